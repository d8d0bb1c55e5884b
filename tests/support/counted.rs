//! A store that counts requests, bytes read and written, and how many requests had to wait for one another.
//!
//! Every request takes longer than the store needs by a fixed delay. So concurrent requests overlap, and a request that
//! begins after another has ended may have waited for it. The length of the longest such chain is the depth: at a
//! remote store, a lookup takes the depth times the round-trip time.
#![expect(dead_code, unreachable_pub, reason = "each binary uses a part of this")]

use std::{
    cell::RefCell,
    io::Read,
    ops::Range,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use jiff::Timestamp;
use shardify::{
    error::Result,
    storage::{Existing, Local, Location, ObjectFacts, Pin, PutOutcome, Reading, Sink, Staged, Store, Visit},
};

use super::scale::shard_bytes;

/// A request: operation, object, bytes, start and end.
#[derive(Debug, Clone)]
pub struct Request {
    pub what: &'static str,
    pub path: String,
    pub bytes: u64,
    start: Instant,
    end: Instant,
}

/// Totals over requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    pub listings: u64,
    pub gets: u64,
    pub heads: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Length of the longest chain of requests in which each began after the previous one had ended.
    pub depth: u64,
}

#[derive(Debug)]
pub struct Counted {
    inner: Arc<dyn Store>,
    delay: Duration,
    requests: Mutex<Vec<Request>>,
}

impl Counted {
    pub fn new(inner: Arc<dyn Store>, delay: Duration) -> Arc<Self> {
        Arc::new(Self { inner, delay, requests: Mutex::default() })
    }

    /// Returns the requests since the last call.
    pub fn take(&self) -> Vec<Request> {
        self.requests.lock().map(|mut requests| std::mem::take(&mut *requests)).unwrap_or_default()
    }

    fn count<T>(
        &self,
        what: &'static str,
        path: &str,
        bytes: impl Fn(&T) -> u64,
        run: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        let done = run();
        std::thread::sleep(self.delay);
        let bytes = done.as_ref().map_or(0, bytes);
        let request = Request { what, path: path.to_owned(), bytes, start, end: Instant::now() };
        if let Ok(mut requests) = self.requests.lock() {
            requests.push(request);
        }
        done
    }
}

/// Computes totals over requests.
pub fn sums(requests: &[Request]) -> Sums {
    let mut sums = Sums::default();
    let mut ordered: Vec<&Request> = requests.iter().collect();
    ordered.sort_by_key(|request| request.end);
    let mut depths: Vec<u64> = Vec::with_capacity(ordered.len());
    for (i, request) in ordered.iter().enumerate() {
        match request.what {
            "list" => sums.listings += 1,
            "head" => sums.heads += 1,
            "put" => sums.bytes_written += request.bytes,
            _ => {
                sums.gets += 1;
                sums.bytes_read += request.bytes;
            }
        }
        let before = ordered[..i].iter().zip(&depths).filter(|(other, _)| other.end <= request.start);
        depths.push(1 + before.map(|(_, depth)| *depth).max().unwrap_or(0));
    }
    sums.depth = depths.into_iter().max().unwrap_or(0);
    sums
}

impl Store for Counted {
    fn location(&self) -> &Location {
        self.inner.location()
    }

    fn as_local(&self) -> Option<&dyn Local> {
        self.inner.as_local()
    }

    /// The shards of these tests are listed but do not exist, nor what is beside them.
    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        if path.contains("0123456789ab/") {
            let modified = Timestamp::UNIX_EPOCH;
            return Ok(Some(ObjectFacts { path: path.to_owned(), bytes: shard_bytes(path), modified, etag: None }));
        }
        self.count("head", path, |_| 0, || self.inner.head(path))
    }

    fn read_into(&self, path: &str, bytes: Option<u64>, into: &mut Vec<u8>) -> Result<bool> {
        let whole = self.count(
            "get",
            path,
            |whole: &Option<Vec<u8>>| whole.as_ref().map_or(0, |whole| whole.len() as u64),
            || {
                let mut whole = Vec::new();
                Ok(self.inner.read_into(path, bytes, &mut whole)?.then_some(whole))
            },
        )?;
        into.extend_from_slice(whole.as_deref().unwrap_or_default());
        Ok(whole.is_some())
    }

    fn get_ranges(&self, path: &str, ranges: &[Range<u64>], pin: &Pin) -> Result<Vec<Bytes>> {
        let length = |found: &Vec<Bytes>| found.iter().map(|bytes| bytes.len() as u64).sum();
        self.count("range", path, length, || self.inner.get_ranges(path, ranges, pin))
    }

    fn read_tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        let length = |tail: &Option<(Bytes, u64)>| tail.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64);
        self.count("tail", path, length, || self.inner.read_tail(path, bytes))
    }

    fn open_reader(&self, path: &str, reading: Reading<'_>) -> Result<Box<dyn Read + Send>> {
        self.count("read", path, |_| 0, || self.inner.open_reader(path, reading.clone()))
    }

    fn visit(&self, folder: &str, visit: Visit<'_>) -> Result<()> {
        let visit = RefCell::new(visit);
        self.count("list", folder, |()| 0, || self.inner.visit(folder, &mut |listed| (visit.borrow_mut())(listed)))
    }

    fn write(&self, path: &str, bytes: Bytes, existing: Existing) -> Result<PutOutcome> {
        let length = bytes.len() as u64;
        self.count("put", path, |_| length, || self.inner.write(path, bytes.clone(), existing))
    }

    fn delete_all(&self, paths: &[String]) -> Result<()> {
        self.inner.delete_all(paths)
    }

    fn create_sink(&self, path: &str) -> Result<Box<dyn Sink>> {
        self.inner.create_sink(path)
    }

    fn name_staged(&self, staged: Vec<Staged>, existing: Existing) -> Result<()> {
        let paths: Vec<String> = staged.iter().map(|one| one.path.clone()).collect();
        self.inner.name_staged(staged, existing)?;
        for path in paths {
            let bytes = self.inner.head(&path)?.map_or(0, |facts| facts.bytes);
            self.count("put", &path, |()| bytes, || Ok(()))?;
        }
        Ok(())
    }
}
