//! On-disk copy of input that can be read only once, such as standard input. Types are inferred from the first records
//! and a value that does not fit restarts the run, so the bytes must be kept until the end.
//!
//! The file is in the system's folder for temporary files and has no name, so only this process can read it, and the
//! system removes it when the process ends for any reason.

use std::{
    fs::File,
    io::{self, Read, Write},
    ops::Range,
    os::unix::fs::FileExt,
    sync::Arc,
};

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    location::Location,
    pin::Pin,
    store::{
        Existing, Listed, ObjectFacts, PutOutcome, Reading, Sink, Staged, Store, Visit, beyond_end, changed_object,
        missing_object,
    },
};
use crate::error::{Error, Result};

/// A stream copied to disk.
#[derive(Debug, Clone)]
pub struct Spool {
    store: Arc<dyn Store>,
    bytes: u64,
}

impl Spool {
    /// Name of the object within [`Self::store`].
    pub const NAME: &'static str = "stream";

    /// Reads a stream to its end; `tap` observes the bytes.
    ///
    /// # Errors
    /// When it cannot be read, or the disk is full.
    pub fn from_reader(mut input: impl Read, mut tap: impl FnMut(&[u8])) -> Result<Self> {
        let failed = |e: std::io::Error| {
            Error::storage("copying the stream to a temporary file failed")
                .with_cause(e)
                .with_hint("set TMPDIR to a folder with enough free space for the whole stream, or name a file")
        };
        let folder = std::env::temp_dir();
        let mut file = tempfile::tempfile_in(&folder).map_err(failed)?;
        let mut buffer = vec![0; 1 << 20];
        let mut bytes = 0;
        loop {
            let n = match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) if e.get_ref().is_some_and(|cause| cause.is::<Error>()) => return Err(e.into()),
                Err(e) => return Err(Error::storage("reading the stream failed").with_cause(e)),
            };
            tap(&buffer[..n]);
            file.write_all(&buffer[..n]).map_err(failed)?;
            bytes += n as u64;
        }
        let store = Arc::new(SpoolStore { file: Arc::new(file), bytes, location: Location::from_local_path(&folder)? });
        Ok(Self { store, bytes })
    }

    /// Returns the store that contains the stream.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the size in bytes.
    pub fn byte_count(&self) -> u64 {
        self.bytes
    }
}

/// A read-only store whose one object is an unnamed file.
#[derive(Debug)]
struct SpoolStore {
    file: Arc<File>,
    bytes: u64,
    /// The nominal folder of the file.
    location: Location,
}

/// Reads the file sequentially.
struct SpoolReader {
    file: Arc<File>,
    at: u64,
}

impl Read for SpoolReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let found = self.file.read_at(buffer, self.at)?;
        self.at += found as u64;
        Ok(found)
    }
}

impl SpoolStore {
    fn object_facts(&self) -> ObjectFacts {
        ObjectFacts { path: Spool::NAME.to_owned(), bytes: self.bytes, modified: Timestamp::UNIX_EPOCH, etag: None }
    }

    fn check_path(&self, path: &str) -> Result<()> {
        if path == Spool::NAME { Ok(()) } else { Err(missing_object(&self.location, path)) }
    }

    fn read_only<T>(&self) -> Result<T> {
        Err(Error::internal("a stream copied to disk is read-only"))
    }

    fn read_range(&self, path: &str, range: &Range<u64>) -> Result<Bytes> {
        self.check_path(path)?;
        if range.end > self.bytes {
            return Err(beyond_end(&self.location, path, range, self.bytes));
        }
        let length = usize::try_from(range.end.saturating_sub(range.start))
            .map_err(|_| Error::internal("a range is larger than memory"))?;
        let mut buffer = vec![0; length];
        let read = self.file.read_exact_at(&mut buffer, range.start);
        read.map_err(|e| Error::storage("reading a stream copied to disk failed").with_cause(e))?;
        Ok(buffer.into())
    }
}

impl Store for SpoolStore {
    fn location(&self) -> &Location {
        &self.location
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        Ok((path == Spool::NAME).then(|| self.object_facts()))
    }

    fn read_into(&self, path: &str, bytes: Option<u64>, into: &mut Vec<u8>) -> Result<bool> {
        if path != Spool::NAME {
            return Ok(false);
        }
        if let Some(bytes) = bytes.filter(|bytes| *bytes != self.bytes) {
            return Err(changed_object(&self.location, path, bytes, &self.bytes.to_string()));
        }
        into.extend_from_slice(&self.read_range(path, &(0..self.bytes))?);
        Ok(true)
    }

    fn get_ranges(&self, path: &str, ranges: &[Range<u64>], _: &Pin) -> Result<Vec<Bytes>> {
        ranges.iter().map(|range| self.read_range(path, range)).collect()
    }

    fn read_tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        let start = self.bytes.saturating_sub(bytes);
        Ok(Some((self.read_range(path, &(start..self.bytes))?, self.bytes)))
    }

    fn open_reader(&self, path: &str, reading: Reading<'_>) -> Result<Box<dyn Read + Send>> {
        self.check_path(path)?;
        let reader = |at| SpoolReader { file: Arc::clone(&self.file), at };
        Ok(match reading {
            Reading::Range(range, _) => Box::new(reader(range.start).take(range.end.saturating_sub(range.start))),
            Reading::Whole(_) | Reading::Start(_) | Reading::Back => Box::new(reader(0)),
        })
    }

    fn visit(&self, _folder: &str, visit: Visit<'_>) -> Result<()> {
        visit(Listed::Object(self.object_facts())).map(drop)
    }

    fn write(&self, _path: &str, _bytes: Bytes, _: Existing) -> Result<PutOutcome> {
        self.read_only()
    }

    fn delete_all(&self, _paths: &[String]) -> Result<()> {
        self.read_only()
    }

    fn create_sink(&self, _path: &str) -> Result<Box<dyn Sink>> {
        self.read_only()
    }

    fn name_staged(&self, _staged: Vec<Staged>, _: Existing) -> Result<()> {
        self.read_only()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::Object;

    #[test]
    fn a_stream_can_be_read_again_and_has_no_name() {
        let mut seen = Vec::new();
        let spool = Spool::from_reader(&b"0123456789"[..], |bytes| seen.extend_from_slice(bytes)).unwrap();
        assert_eq!((spool.byte_count(), seen.as_slice()), (10, &b"0123456789"[..]));
        let object = Object::new(Arc::clone(spool.store()), Spool::NAME, 10);
        for _ in 0..2 {
            assert_eq!(io::read_to_string(object.read().unwrap()).unwrap(), "0123456789");
        }
        assert_eq!(object.get_range(3..5).unwrap(), "34");
        assert!(object.get_range(5..11).is_err() && object.read_sibling("other").unwrap().is_none());
        let mut whole = Vec::new();
        spool.store().read_whole(Spool::NAME, 10, &mut whole).unwrap();
        assert_eq!(whole, b"0123456789");
        assert!(!std::env::temp_dir().join(Spool::NAME).exists());
        assert!(spool.store().put("x", Bytes::new()).is_err());
    }
}
