//! Records that a store failed while a source was read.
//!
//! Between a store and the code that handles a bad record there are decoders, many of them in crates: they may treat a
//! failed read as the end of a file, report it as damage, or drop it. Bad bytes may cost a record; a failing store must
//! not, because the record is intact and would be lost for good. So the store itself records its first failure, which
//! is checked before any record is skipped and before anything is committed.
//!
//! ```text
//! Object, Folder -> Watched -> store          fault() <- code that skips records, code that commits
//!                      `---- first failure ------'
//! ```
//!
//! Objects also report to their thread: [`capture_fault`] calls a decoder and returns the failure beneath it, even if
//! the decoder drops it.

use std::{
    cell::RefCell,
    io::{self, Read},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

use super::{
    location::Location,
    pin::Pin,
    store::{Existing, Local, ObjectFacts, PutOutcome, Reading, Sink, Staged, Store, Visit},
};
use crate::error::{Error, Kind, Result};

/// The first failure of a watched store.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<Option<Error>>>);

impl Watch {
    /// Returns the first failure, if there was one.
    pub fn first_fault(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Error::flatten_causes)
    }

    fn note_failure(&self, error: &Error) {
        // An error about bytes, such as an object that ends before a range does, is not a failure of the store.
        if error.kind() == Kind::Storage {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.flatten_causes());
        }
    }

    fn observe_result<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.note_failure(error))
    }
}

thread_local! {
    /// The first failure in this thread while [`capture_fault`] is active.
    static FIRST_FAULT: RefCell<Option<Option<Error>>> = const { RefCell::new(None) };
}

/// Calls a decoder that reads objects in this thread; also returns the store's first failure during the call.
pub fn capture_fault<T>(work: impl FnOnce() -> T) -> (T, Option<Error>) {
    let outer = FIRST_FAULT.replace(Some(None));
    let out = work();
    let fault = FIRST_FAULT.replace(outer).flatten();
    if let Some(fault) = &fault {
        report_fault(fault);
    }
    (out, fault)
}

/// Reports a store failure to an active [`capture_fault`] in this thread.
pub(super) fn report_fault(error: &Error) {
    if error.kind() == Kind::Storage {
        FIRST_FAULT.with_borrow_mut(|fault| {
            if let Some(fault) = fault {
                fault.get_or_insert_with(|| error.flatten_causes());
            }
        });
    }
}

/// A reader of an object that reports failures to its thread.
pub(super) struct ReportingReader(pub(super) Box<dyn Read + Send>, pub(super) String);

impl Read for ReportingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| locate_error(error, &self.1, report_fault))
    }
}

/// Converts a failed read into an [`Error`] and passes it to `report`.
fn locate_error(error: io::Error, place: &str, report: impl FnOnce(&Error)) -> io::Error {
    if error.kind() == io::ErrorKind::Interrupted {
        return error;
    }
    let error = match error.downcast::<Error>() {
        Ok(ours) => ours,
        Err(error) => Error::storage("reading failed").at_location(place).with_cause(error),
    };
    report(&error);
    error.into()
}

/// Wraps a store so that its first failure is recorded.
pub fn watch_store(store: Arc<dyn Store>) -> (Arc<dyn Store>, Watch) {
    let watch = Watch::default();
    (Arc::new(Watched { inner: store, watch: watch.clone() }), watch)
}

#[derive(Debug)]
struct Watched {
    inner: Arc<dyn Store>,
    watch: Watch,
}

struct WatchedReader {
    inner: Box<dyn Read + Send>,
    place: String,
    watch: Watch,
}

impl Read for WatchedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner
            .read(buffer)
            .map_err(|error| locate_error(error, &self.place, |error| self.watch.note_failure(error)))
    }
}

impl Store for Watched {
    fn location(&self) -> &Location {
        self.inner.location()
    }

    fn endpoint(&self) -> Option<String> {
        self.inner.endpoint()
    }

    fn as_local(&self) -> Option<&dyn Local> {
        self.inner.as_local()
    }

    fn is_cached(&self, path: &str) -> bool {
        self.inner.is_cached(path)
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        self.watch.observe_result(self.inner.head(path))
    }

    fn read_into(&self, path: &str, bytes: Option<u64>, into: &mut Vec<u8>) -> Result<bool> {
        self.watch.observe_result(self.inner.read_into(path, bytes, into))
    }

    fn get_ranges(&self, path: &str, ranges: &[Range<u64>], pin: &Pin) -> Result<Vec<Bytes>> {
        self.watch.observe_result(self.inner.get_ranges(path, ranges, pin))
    }

    fn read_tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        self.watch.observe_result(self.inner.read_tail(path, bytes))
    }

    fn open_reader(&self, path: &str, reading: Reading<'_>) -> Result<Box<dyn Read + Send>> {
        let inner = self.watch.observe_result(self.inner.open_reader(path, reading))?;
        let place = self.inner.location().join(path).to_string();
        Ok(Box::new(WatchedReader { inner, place, watch: self.watch.clone() }))
    }

    fn visit(&self, folder: &str, visit: Visit<'_>) -> Result<()> {
        self.inner.visit(folder, visit)
    }

    fn write(&self, path: &str, bytes: Bytes, existing: Existing) -> Result<PutOutcome> {
        self.inner.write(path, bytes, existing)
    }

    fn delete_all(&self, paths: &[String]) -> Result<()> {
        self.inner.delete_all(paths)
    }

    fn create_sink(&self, path: &str) -> Result<Box<dyn Sink>> {
        self.inner.create_sink(path)
    }

    fn name_staged(&self, staged: Vec<Staged>, existing: Existing) -> Result<()> {
        self.inner.name_staged(staged, existing)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::{Object, RemoteStore};

    #[test]
    fn the_first_store_failure_is_recorded_and_short_objects_are_not() {
        let (store, watch) = watch_store(Arc::new(RemoteStore::in_memory().unwrap()));
        store.put("a", "12345".into()).unwrap();
        let object = Object::new(Arc::clone(&store), "a", 5);
        assert_eq!(object.get_range(1..3).unwrap(), "23");
        assert_eq!(object.get_range(3..9).unwrap_err().kind(), Kind::Input, "a damaged footer may ask for that");
        assert_eq!(store.get_range("a", 3..9).unwrap_err().kind(), Kind::Input);
        assert!(store.get("none").unwrap().is_none());
        assert!(watch.first_fault().is_none());
        assert_eq!(store.read("gone").map(drop).unwrap_err().kind(), Kind::Storage);
        let _ = store.read("gone too").map(drop);
        assert_eq!(watch.first_fault().unwrap().place().source.as_deref(), Some("memory:///gone"));
    }

    #[test]
    fn capture_fault_returns_the_failure_of_this_thread() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let gone = Object::new(Arc::clone(&store), "gone", 100);
        let (inner, outer) = capture_fault(|| capture_fault(|| gone.get_range(0..5).ok()).1);
        assert!(inner.is_some() && outer.is_some_and(|fault| fault.kind() == Kind::Storage));
        let (_, fault) = capture_fault(|| gone.get_range(90..200).ok());
        assert!(fault.is_none(), "an error about bytes is not a store failure");
        let _ = gone.get_range(0..5);
        assert!(capture_fault(|| ()).1.is_none(), "no failure was reported");
    }

    #[test]
    fn a_failed_read_is_recorded_even_if_it_is_dropped() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(5))
            }
        }
        let (inner, watch) = (Box::new(Failing), Watch::default());
        let mut reader = WatchedReader { inner, place: "x.csv".to_owned(), watch: watch.clone() };
        let error = Error::from(reader.read(&mut [0; 8]).unwrap_err());
        assert_eq!((error.kind(), error.place().source.as_deref()), (Kind::Storage, Some("x.csv")));
        let noted = watch.first_fault().unwrap();
        assert_eq!((noted.kind(), noted.place().source.as_deref()), (Kind::Storage, Some("x.csv")));
        assert!(std::error::Error::source(&noted).unwrap().to_string().contains("os error 5"));
    }
}
