//! A store that counts requests, bytes read and written, and how many requests had to wait for one another.
//!
//! Every request takes longer than the store needs by a fixed delay. So concurrent requests overlap, and a request that
//! begins after another has ended may have waited for it. The length of the longest such chain is the depth: at a
//! remote store, a lookup takes the depth times the round-trip time.
#![expect(dead_code, unreachable_pub, reason = "each binary uses a part of this")]

use std::{
    io::Read,
    ops::Range,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use shardify::{
    error::Result,
    storage::{Listed, Location, Lock, ObjectFacts, Pin, PutOutcome, Sink, Staged, Store},
};

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

    fn get(&self, path: &str) -> Result<Option<Bytes>> {
        self.count(
            "get",
            path,
            |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |b| b.len() as u64),
            || self.inner.get(path),
        )
    }

    fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.count("range", path, |bytes: &Bytes| bytes.len() as u64, || self.inner.get_range(path, range.clone()))
    }

    fn tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        let length = |tail: &Option<(Bytes, u64)>| tail.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64);
        self.count("tail", path, length, || self.inner.tail(path, bytes))
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        self.count("head", path, |_| 0, || self.inner.head(path))
    }

    /// The shards of these tests are listed but do not exist.
    fn check_present(&self, _objects: &[(&str, Option<u64>)]) -> Result<()> {
        Ok(())
    }

    fn read(&self, path: &str) -> Result<Box<dyn Read + Send>> {
        self.count("read", path, |_| 0, || self.inner.read(path))
    }

    fn read_whole(&self, path: &str, bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        self.inner.read_whole(path, bytes, into)
    }

    fn walk(&self, folder: &str, visit: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.inner.walk(folder, visit)
    }

    fn get_ranges_of(&self, path: &str, ranges: &[Range<u64>], pin: &Pin) -> Result<Vec<Bytes>> {
        let length = |found: &Vec<Bytes>| found.iter().map(|bytes| bytes.len() as u64).sum();
        self.count("range", path, length, || self.inner.get_ranges_of(path, ranges, pin))
    }

    fn first(&self, folder: &str, wanted: &dyn Fn(&str) -> bool) -> Result<Option<String>> {
        self.count("list", folder, |_| 0, || self.inner.first(folder, wanted))
    }

    fn put(&self, path: &str, bytes: Bytes) -> Result<()> {
        let length = bytes.len() as u64;
        self.count("put", path, |()| length, || self.inner.put(path, bytes.clone()))
    }

    fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome> {
        let length = bytes.len() as u64;
        self.count("put", path, |_| length, || self.inner.put_if_absent(path, bytes.clone()))
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.inner.delete(path)
    }

    fn create(&self, path: &str) -> Result<Box<dyn Sink>> {
        self.inner.create(path)
    }

    fn publish(&self, staged: Vec<Staged>) -> Result<()> {
        let paths: Vec<String> = staged.iter().map(|one| one.path.clone()).collect();
        self.inner.publish(staged)?;
        for path in paths {
            let bytes = self.inner.head(&path)?.map_or(0, |facts| facts.bytes);
            self.count("put", &path, |()| bytes, || Ok(()))?;
        }
        Ok(())
    }

    fn replace(&self, staged: Vec<Staged>) -> Result<()> {
        self.inner.replace(staged)
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        self.inner.lock(name)
    }
}
