//! A store that pauses a run at one of its calls until the owner of the gate resumes or ends it.
//!
//! A paused run represents a process: each of its threads waits at its next call. If a run is ended, every further call
//! fails, as if its machine had crashed; nothing that it would clean up afterwards reaches the store.
//!
//! Calls are recorded with the objects they touch, so that a schedule can tell which of them could have changed places
//! with calls of another run without any difference.

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
    storage::{Existing, Local, Location, Lock, ObjectFacts, Pin, PutOutcome, Reading, Sink, Staged, Store, Visit},
};

/// A run that finds a lock taken so many times is ended, because a paused run does not release it.
const LOCK_ATTEMPTS: usize = 10;

/// The object that a remote store writes to learn the time.
const CLOCK: &str = "_shardify/clock";

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

/// What a call does with its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// Reads objects.
    Read,
    /// Reads the names in folders.
    List,
    /// Creates, replaces or deletes objects, or checks whether they exist while doing so.
    Write,
    /// Takes a lock, which is an object, too.
    Lock,
    /// Looks whether a lock is taken.
    LookAtLock,
    /// Reads the clock.
    Clock,
}

/// A call of a store.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    touch: Touch,
    what: &'static str,
    /// Full paths.
    paths: Vec<String>,
}

impl Call {
    /// Returns whether the call changes anything that lasts.
    pub(crate) fn has_effect(&self) -> bool {
        matches!(self.touch, Touch::Write | Touch::Lock)
    }

    /// Returns whether each of two calls, of different runs, has the same effect and outcome in either order.
    pub(crate) fn commutes_with(&self, other: &Self) -> bool {
        use Touch::{Clock, List, Lock, LookAtLock, Read, Write};
        let same = || self.paths.iter().any(|path| other.paths.contains(path));
        match (self.touch, other.touch) {
            (Read | List, Read | List) | (Clock, Clock | Read | List) | (Read | List, Clock) => true,
            (LookAtLock, Read | List | LookAtLock | Clock) | (Read | List | Clock, LookAtLock) => true,
            // Whether an object is young depends on the time of its creation, and so does the expiry of a lease.
            (Clock, Write | Lock) | (Write | Lock, Clock) => false,
            (List, Write | Lock) => !other.is_below(self),
            (Write | Lock, List) => !self.is_below(other),
            (Read | Write | Lock | LookAtLock, Write | Lock) | (Write | Lock, Read | LookAtLock) => !same(),
        }
    }

    /// Returns whether any of its objects is in the listed folders of another call.
    fn is_below(&self, list: &Self) -> bool {
        self.paths.iter().any(|path| list.paths.iter().any(|folder| path.starts_with(folder)))
    }

    /// Returns whether the call takes a lock that the other one takes or looks at. Locks are released between calls, so
    /// that calls after it do not tell when another run finds it free.
    pub(crate) fn locks_against(&self, other: &Self) -> bool {
        self.touch == Touch::Lock
            && matches!(other.touch, Touch::Lock | Touch::LookAtLock)
            && !self.commutes_with(other)
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.what, self.paths.join(" "))
    }
}

#[derive(Debug)]
struct State {
    calls: usize,
    signal: Signal,
    /// Whether the run has finished.
    finished: bool,
    /// Calls so far, in order.
    trace: Vec<Call>,
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

    /// Returns whether it may pause its run.
    pub(crate) fn pauses(&self) -> bool {
        self.stop_at < usize::MAX
    }

    fn call(&self, call: Call) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let number = state.calls;
        let place = call.paths.first().cloned().unwrap_or_default();
        state.trace.push(call);
        if number > self.stop_at {
            self.changed.notify_all();
            while state.signal == Signal::Wait {
                state = self.changed.wait(state).unwrap();
            }
        }
        if state.signal == Signal::End {
            return Err(Error::storage("this process was ended by the test").at_location(place));
        }
        Ok(())
    }

    /// Returns the calls so far.
    pub(crate) fn trace(&self) -> Vec<Call> {
        self.state.lock().unwrap().trace.clone()
    }

    /// Returns the number of calls of one kind on one object.
    fn attempts(&self, touch: Touch, path: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.trace.iter().filter(|call| call.touch == touch && call.paths.iter().any(|one| one == path)).count()
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
    fn call(&self, touch: Touch, what: &'static str, path: &str) -> Result<()> {
        self.gate.call(Call { touch, what, paths: vec![self.full(path)] })
    }

    fn full(&self, path: &str) -> String {
        self.inner.location().join(path).to_string()
    }

    /// Publishes objects one by one, so that a run may be paused between any two of them.
    fn one_by_one(
        &self,
        what: &'static str,
        staged: Vec<Staged>,
        give: impl Fn(Vec<Staged>) -> Result<()>,
    ) -> Result<()> {
        let mut staged = staged.into_iter();
        while let Some(one) = staged.next() {
            if let Err(e) = self.call(Touch::Write, what, &one.path) {
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

    fn as_local(&self) -> Option<&dyn Local> {
        self.inner.as_local().map(|_| -> &dyn Local { self })
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        self.call(if path.ends_with(CLOCK) { Touch::Clock } else { Touch::Read }, "head", path)?;
        self.inner.head(path)
    }

    fn read_into(&self, path: &str, bytes: Option<u64>, into: &mut Vec<u8>) -> Result<bool> {
        self.call(Touch::Read, "fetch", path)?;
        self.inner.read_into(path, bytes, into)
    }

    fn get_ranges(&self, path: &str, ranges: &[Range<u64>], pin: &Pin) -> Result<Vec<Bytes>> {
        self.call(Touch::Read, "ranges", path)?;
        self.inner.get_ranges(path, ranges, pin)
    }

    fn read_tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        self.call(Touch::Read, "tail", path)?;
        self.inner.read_tail(path, bytes)
    }

    fn open_reader(&self, path: &str, reading: Reading<'_>) -> Result<Box<dyn Read + Send>> {
        self.call(Touch::Read, "open", path)?;
        self.inner.open_reader(path, reading)
    }

    fn visit(&self, folder: &str, visit: Visit<'_>) -> Result<()> {
        self.call(Touch::List, "visit", folder)?;
        self.inner.visit(folder, visit)
    }

    fn write(&self, path: &str, bytes: Bytes, existing: Existing) -> Result<PutOutcome> {
        let touch = if path.ends_with(CLOCK) { Touch::Clock } else { Touch::Write };
        self.call(touch, if existing == Existing::Keep { "put if absent" } else { "put" }, path)?;
        self.inner.write(path, bytes, existing)
    }

    fn delete_all(&self, paths: &[String]) -> Result<()> {
        paths.iter().try_for_each(|path| {
            self.call(Touch::Write, "delete", path)?;
            self.inner.delete(path)
        })
    }

    fn create_sink(&self, path: &str) -> Result<Box<dyn Sink>> {
        self.call(Touch::Write, "create", path)?;
        Ok(Box::new(GatedSink {
            inner: self.inner.create_sink(path)?,
            gate: Arc::clone(&self.gate),
            path: self.full(path),
        }))
    }

    fn name_staged(&self, staged: Vec<Staged>, existing: Existing) -> Result<()> {
        let what = if existing == Existing::Keep { "publish" } else { "replace" };
        self.one_by_one(what, staged, |one| self.inner.name_staged(one, existing))
    }
}

impl Local for Gated {
    fn is_cached(&self, path: &str) -> bool {
        self.inner.is_cached(path)
    }

    fn open_file(&self, path: &str) -> Result<std::fs::File> {
        self.gate.call(Call { touch: Touch::Read, what: "open", paths: vec![self.full(path)] })?;
        self.inner.as_local().unwrap().open_file(path)
    }

    fn link_object(&self, source: &Location, path: &str) -> Result<Option<Staged>> {
        self.gate.call(Call { touch: Touch::Write, what: "link", paths: vec![self.full(path), source.to_string()] })?;
        self.inner.link_object(source, path)
    }

    fn acquire_lock(&self, name: &str) -> Result<Lock> {
        self.call(Touch::Lock, "lock", name)?;
        let taken = self.inner.acquire_lock(name);
        if taken.is_err() && self.gate.attempts(Touch::Lock, &self.full(name)) >= LOCK_ATTEMPTS {
            self.gate.end();
        }
        taken
    }

    fn is_locked(&self, name: &str) -> Result<Option<bool>> {
        self.call(Touch::LookAtLock, "is locked", name)?;
        self.inner.is_locked(name)
    }

    fn settle_deletions(&self, paths: &[String]) -> Result<()> {
        self.inner.settle_deletions(paths)
    }

    fn remove_leftovers(&self) {
        self.inner.remove_leftovers();
    }

    fn current_time(&self) -> Timestamp {
        // A run that was ended has no use for the time.
        let _ = self.call(Touch::Clock, "now", CLOCK);
        Timestamp::now()
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
        self.gate.call(Call { touch: Touch::Write, what: "finish", paths: vec![self.path.clone()] })?;
        self.inner.finish()
    }
}

#[test]
fn calls_commute_unless_they_touch_the_same() {
    let call = |touch, path: &str| Call { touch, what: "", paths: vec![path.to_owned()] };
    let commute = |one: (Touch, &str), other: (Touch, &str)| {
        let (one, other) = (call(one.0, one.1), call(other.0, other.1));
        let either = one.commutes_with(&other);
        assert_eq!(either, other.commutes_with(&one), "{one:?} {other:?}");
        either
    };
    assert!(commute((Touch::Read, "ds/a"), (Touch::Write, "ds/b")));
    assert!(!commute((Touch::Read, "ds/a"), (Touch::Write, "ds/a")));
    assert!(!commute((Touch::Write, "ds/a"), (Touch::Write, "ds/a")));
    assert!(commute((Touch::Read, "ds/a"), (Touch::Read, "ds/a")));
    assert!(commute((Touch::List, "ds/x"), (Touch::Write, "ds/a")));
    assert!(!commute((Touch::List, "ds"), (Touch::Write, "ds/a")));
    assert!(!commute((Touch::LookAtLock, "ds/l"), (Touch::Lock, "ds/l")));
    assert!(commute((Touch::LookAtLock, "ds/l"), (Touch::LookAtLock, "ds/l")));
    assert!(!commute((Touch::Clock, "ds/probe"), (Touch::Write, "ds/a")));
    assert!(call(Touch::Lock, "ds/l").locks_against(&call(Touch::LookAtLock, "ds/l")));
    assert!(!call(Touch::Read, "ds/l").locks_against(&call(Touch::Lock, "ds/l")));
}
