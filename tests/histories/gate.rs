//! A store that pauses a run at one of its calls until the owner of the gate resumes or ends it.
//!
//! A paused run represents a process: each of its threads waits at its next call. If a run is ended, every further call
//! fails, as if its machine had crashed; nothing that it would clean up afterwards reaches the store.

use std::{
    io::{Read, Write},
    ops::Range,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use jiff::Timestamp;
use shardify::{
    error::{Error, Result},
    storage::{Listed, Location, Lock, ObjectFacts, Pin, PutOutcome, Sink, Staged, Store},
};

/// State of calls beyond the stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    /// Calls wait.
    Wait,
    /// Calls proceed.
    Go,
    /// All calls fail from now on.
    End,
}

#[derive(Debug)]
struct State {
    calls: usize,
    signal: Signal,
    /// Whether the run has finished.
    finished: bool,
    /// Calls so far, in order.
    trace: Vec<String>,
}

/// Lets the calls of a run pass up to a given one.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Number of calls that pass before the stop.
    stop_at: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    /// Creates a gate that pauses after so many calls.
    pub(crate) fn new(stop_at: usize) -> Arc<Self> {
        let state = State { calls: 0, signal: Signal::Wait, finished: false, trace: Vec::new() };
        Arc::new(Self { stop_at, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Creates a gate that never pauses and only counts.
    pub(crate) fn open() -> Arc<Self> {
        Self::new(usize::MAX)
    }

    fn call(&self, what: &str, path: &str) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let number = state.calls;
        state.trace.push(format!("{what} {path}"));
        if number > self.stop_at {
            self.changed.notify_all();
            while state.signal == Signal::Wait {
                state = self.changed.wait(state).unwrap();
            }
        }
        if state.signal == Signal::End {
            return Err(Error::storage("this process was ended by the test").at(path.to_owned()));
        }
        Ok(())
    }

    /// Returns the number of calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.state.lock().unwrap().calls
    }

    /// Returns the calls so far.
    pub(crate) fn trace(&self) -> Vec<String> {
        self.state.lock().unwrap().trace.clone()
    }

    /// Returns whether its run was ended.
    pub(crate) fn ended(&self) -> bool {
        self.state.lock().unwrap().signal == Signal::End
    }

    /// Waits until the run is paused; returns false if it finished first.
    pub(crate) fn wait(&self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut state = self.state.lock().unwrap();
        while state.calls <= self.stop_at && !state.finished {
            let left = deadline.checked_duration_since(Instant::now()).unwrap_or_else(|| {
                panic!("neither at call {} nor finished after two minutes: {:#?}", self.stop_at, state.trace)
            });
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
        state.calls > self.stop_at
    }

    /// Marks the run as finished.
    pub(crate) fn mark_finished(&self) {
        self.state.lock().unwrap().finished = true;
        self.changed.notify_all();
    }

    /// Resumes all calls.
    pub(crate) fn go(&self) {
        self.set(Signal::Go);
    }

    /// Ends the run at its current calls.
    pub(crate) fn end(&self) {
        self.set(Signal::End);
    }

    fn set(&self, signal: Signal) {
        self.state.lock().unwrap().signal = signal;
        self.changed.notify_all();
    }
}

/// A store behind a gate.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) gate: Arc<Gate>,
}

impl Gated {
    /// Publishes objects one by one, so that a run may be paused between any two of them.
    fn one_by_one(&self, what: &str, staged: Vec<Staged>, give: impl Fn(Vec<Staged>) -> Result<()>) -> Result<()> {
        let mut staged = staged.into_iter();
        while let Some(one) = staged.next() {
            if let Err(e) = self.gate.call(what, &one.path) {
                // Dropping these objects would clean them up, which does not happen after a crash.
                std::mem::forget(one);
                staged.for_each(std::mem::forget);
                return Err(e);
            }
            give(vec![one])?;
        }
        Ok(())
    }
}

impl Store for Gated {
    fn location(&self) -> &Location {
        self.inner.location()
    }

    fn get(&self, path: &str) -> Result<Option<Bytes>> {
        self.gate.call("get", path)?;
        self.inner.get(path)
    }

    fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.gate.call("range", path)?;
        self.inner.get_range(path, range)
    }

    fn get_ranges(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.gate.call("ranges", path)?;
        self.inner.get_ranges(path, ranges)
    }

    fn get_ranges_of(&self, path: &str, ranges: &[Range<u64>], pin: &Pin) -> Result<Vec<Bytes>> {
        self.gate.call("ranges of", path)?;
        self.inner.get_ranges_of(path, ranges, pin)
    }

    fn read_of(&self, path: &str, pin: &Pin) -> Result<Box<dyn Read + Send>> {
        self.gate.call("read of", path)?;
        self.inner.read_of(path, pin)
    }

    fn check_present(&self, objects: &[(&str, Option<u64>)]) -> Result<()> {
        self.gate.call("check present", "")?;
        self.inner.check_present(objects)
    }

    fn tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        self.gate.call("tail", path)?;
        self.inner.tail(path, bytes)
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        self.gate.call("head", path)?;
        self.inner.head(path)
    }

    fn read(&self, path: &str) -> Result<Box<dyn Read + Send>> {
        self.gate.call("read", path)?;
        self.inner.read(path)
    }

    fn read_start(&self, path: &str) -> Result<Box<dyn Read + Send>> {
        self.gate.call("begin", path)?;
        self.inner.read_start(path)
    }

    fn read_back(&self, path: &str) -> Result<Box<dyn Read + Send>> {
        self.gate.call("read back", path)?;
        self.inner.read_back(path)
    }

    fn read_whole(&self, path: &str, bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        self.gate.call("read whole", path)?;
        self.inner.read_whole(path, bytes, into)
    }

    fn walk(&self, folder: &str, visit: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.gate.call("walk", folder)?;
        self.inner.walk(folder, visit)
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectFacts>> {
        self.gate.call("list", folder)?;
        self.inner.list(folder)
    }

    fn first(&self, folder: &str, wanted: &dyn Fn(&str) -> bool) -> Result<Option<String>> {
        self.gate.call("first", folder)?;
        self.inner.first(folder, wanted)
    }

    fn put(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.gate.call("put", path)?;
        self.inner.put(path, bytes)
    }

    fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome> {
        self.gate.call("put if absent", path)?;
        self.inner.put_if_absent(path, bytes)
    }

    fn settle_deletions(&self, paths: &[String]) -> Result<()> {
        self.inner.settle_deletions(paths)
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.gate.call("delete", path)?;
        self.inner.delete(path)
    }

    fn create(&self, path: &str) -> Result<Box<dyn Sink>> {
        self.gate.call("create", path)?;
        Ok(Box::new(GatedSink { inner: self.inner.create(path)?, gate: Arc::clone(&self.gate), path: path.to_owned() }))
    }

    fn link(&self, source: &Location, path: &str) -> Result<Option<Staged>> {
        self.gate.call("link", path)?;
        self.inner.link(source, path)
    }

    fn publish(&self, staged: Vec<Staged>) -> Result<()> {
        self.one_by_one("publish", staged, |one| self.inner.publish(one))
    }

    fn replace(&self, staged: Vec<Staged>) -> Result<()> {
        self.one_by_one("replace", staged, |one| self.inner.replace(one))
    }

    fn now(&self, probe: &str) -> Result<Timestamp> {
        self.gate.call("now", probe)?;
        self.inner.now(probe)
    }

    fn is_locked(&self, name: &str) -> Result<Option<bool>> {
        self.gate.call("is locked", name)?;
        self.inner.is_locked(name)
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        self.gate.call("lock", name)?;
        self.inner.lock(name)
    }
}

struct GatedSink {
    inner: Box<dyn Sink>,
    gate: Arc<Gate>,
    path: String,
}

impl Write for GatedSink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl Sink for GatedSink {
    fn append_from(
        &mut self,
        source: &mut dyn Read,
        bytes: u64,
        look: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        self.inner.append_from(source, bytes, look)
    }

    fn finish(self: Box<Self>) -> Result<Staged> {
        self.gate.call("finish", &self.path)?;
        self.inner.finish()
    }
}
