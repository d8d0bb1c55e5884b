//! A cache of log entries and lists.
//!
//! They are created once and never change, and one command asks for the same ones many times: to open older versions,
//! to see who committed meanwhile, to follow the history. On an object store each would be a request of its own. The
//! bytes are kept, not what they say, so that an object is checked each time it is used; what is absent or damaged is
//! asked for again, since the store may be at fault.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::array::RecordBatch;
use bytes::Bytes;

use crate::{
    dataset::table::{self, list::ListRef, sealed::Sealed},
    error::Result,
    storage::Store,
};

/// Maximum bytes of cached objects; beyond it, the cache is emptied.
const MAX_BYTES: usize = 16 << 20;

/// The store of a dataset, with the log entries and lists that were read from it.
#[derive(Debug)]
pub(in crate::dataset) struct LogCache {
    store: Arc<dyn Store>,
    held: Mutex<CachedObjects>,
}

/// Objects by path.
#[derive(Debug, Default)]
struct CachedObjects {
    objects: HashMap<String, Bytes>,
    bytes: usize,
}

impl LogCache {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, held: Mutex::default() }
    }

    pub(in crate::dataset) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns what `decode` makes of the object at the path of an entry or a list; `None` if there is no object.
    ///
    /// # Errors
    /// When the store fails, and those of `decode`.
    pub(super) fn get_decoded<T>(&self, path: &str, decode: impl FnOnce(&Bytes) -> Result<T>) -> Result<Option<T>> {
        let held = || self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = held().objects.get(path).cloned();
        if let Some(bytes) = cached {
            return decode(&bytes).map(Some);
        }
        let Some(bytes) = self.store.get(path)? else { return Ok(None) };
        let decoded = decode(&bytes)?;
        let mut held = held();
        if held.bytes + bytes.len() > MAX_BYTES {
            *held = CachedObjects::default();
        }
        let length = bytes.len();
        if length <= MAX_BYTES && held.objects.insert(path.to_owned(), bytes).is_none() {
            held.bytes += length;
        }
        Ok(Some(decoded))
    }

    /// Reads a list that is small enough to be read as a whole.
    ///
    /// # Errors
    /// When it is missing or damaged, or the store fails.
    pub(super) fn read_list(&self, list: &Sealed) -> Result<Vec<RecordBatch>> {
        let store = self.store.as_ref();
        self.get_decoded(&list.path, |bytes| table::decode_checked(store, list, bytes.clone()))?
            .ok_or_else(|| list.missing_error(store))
    }

    /// Like [`read_list`](Self::read_list), after a check that it has as many rows as its entry says.
    ///
    /// # Errors
    /// Those of [`read_list`](Self::read_list), and if it has another number of rows.
    pub(super) fn rows_of(&self, list: &ListRef) -> Result<Vec<RecordBatch>> {
        let batches = self.read_list(&list.as_sealed())?;
        table::check_rows(self.store.as_ref(), list, batches.iter().map(|batch| batch.num_rows() as u64).sum())?;
        Ok(batches)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{error::Error, storage::RemoteStore};

    fn memory() -> (LogCache, Arc<dyn Store>) {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        (LogCache::new(Arc::clone(&store)), store)
    }

    #[test]
    fn an_object_is_fetched_once_and_what_is_absent_is_asked_for_again() {
        let (cache, store) = memory();
        let get = || cache.get_decoded("a", |bytes| Ok(bytes.clone())).unwrap();
        assert_eq!(get(), None);
        store.put("a", "one".into()).unwrap();
        assert_eq!(get().unwrap(), "one");
        store.delete("a").unwrap();
        assert_eq!(get().unwrap(), "one");
    }

    #[test]
    fn what_is_damaged_is_asked_for_again() {
        let (cache, store) = memory();
        let get = || {
            cache.get_decoded("a", |bytes| match bytes.as_ref() {
                b"whole" => Ok(()),
                _ => Err(Error::integrity("damaged")),
            })
        };
        store.put("a", "broken".into()).unwrap();
        assert!(get().is_err());
        store.put("a", "whole".into()).unwrap();
        assert_eq!(get().unwrap(), Some(()));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (cache, store) = memory();
        for number in 0..5 {
            store.put(&number.to_string(), vec![b'x'; MAX_BYTES / 3].into()).unwrap();
            cache.get_decoded(&number.to_string(), |_| Ok(())).unwrap();
            let held = cache.held.lock().unwrap();
            assert_eq!(held.bytes, held.objects.values().map(Bytes::len).sum::<usize>());
            assert!(held.bytes <= MAX_BYTES);
        }
        store.put("large", vec![b'x'; MAX_BYTES + 1].into()).unwrap();
        cache.get_decoded("large", |_| Ok(())).unwrap();
        assert_eq!(cache.held.lock().unwrap().bytes, 0);
    }
}
