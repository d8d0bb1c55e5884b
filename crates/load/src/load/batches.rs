//! The steps of an epoch: threads that read windows and gather batches, and the queue between them and the consumer.
//!
//! ```text
//! planner    windows in the order of the steps that need them, as far as they fit into memory
//! readers    block after block: one request, checked and decoded
//! gatherers  steps in order: wait for the windows of a step, then copy its records into a batch
//! consumer   takes batches in order; at most a few are ready ahead of it
//! ```
//!
//! One mutex guards the state; data is never touched under it. A window is in memory until the last step that needs it
//! was gathered. If memory is full, the planner waits; it goes beyond the limit only for the window that the next step
//! waits for while nothing else is being gathered, since then nothing would ever be freed. A failed block is the error
//! of the first step that needs its window; the batches before it are delivered.
//!
//! Once all steps of an epoch are being gathered, windows of the next one are read into the memory that becomes free.
//! Whoever leaves an epoch early ends that, too.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use arrow::array::RecordBatch;

use super::{
    columns::LoadColumns,
    gather::{LoadedBatch, Slice, gather_step},
    loader::NextEpoch,
    plan::EpochPlan,
    pool::BytePool,
    settings::Omitted,
    source::RecordSource,
    stats::{LoadStats, add_since, add_to},
    window::{HeldBytes, Ledger, Window},
};
use crate::{
    error::{Error, Result},
    order::LaneWindow,
};

/// How long an epoch that is read ahead waits for memory of the one before, until it looks again.
const AHEAD_PATIENCE: Duration = Duration::from_millis(10);

/// What an epoch of a rank needs, and the limits of its memory.
#[derive(Debug)]
pub(super) struct EpochJob {
    pub(super) source: Arc<RecordSource>,
    pub(super) columns: LoadColumns,
    pub(super) plan: EpochPlan,
    pub(super) epoch: u64,
    /// Bytes of windows, and how many they may be if a window is larger than expected.
    pub(super) window_bytes: u64,
    pub(super) most_window_bytes: u64,
    /// Estimated bytes of a record.
    pub(super) record_bytes: u64,
    /// Records that are not delivered.
    pub(super) without: Omitted,
    /// Distance between the steps that are delivered, at least 1: the others are those of other processes.
    pub(super) stride: u64,
    /// Batches that are ready or being gathered.
    pub(super) ahead: u64,
    /// Buffers of batches.
    pub(super) pool: BytePool,
    pub(super) readers: usize,
    pub(super) gatherers: usize,
    /// The epoch after this one, if it is read ahead.
    pub(super) next: Option<NextEpoch>,
}

/// A block of a window to read.
#[derive(Debug)]
struct ReadTask {
    window: Arc<Window>,
    block: usize,
}

#[derive(Debug)]
struct State {
    stopped: bool,
    /// Why a thread ended early; nothing else is delivered then.
    fatal: Option<Error>,
    /// The windows of each lane that some step still needs, in order.
    lanes: HashMap<u64, VecDeque<Arc<Window>>>,
    tasks: VecDeque<ReadTask>,
    /// Next step to gather, next step to deliver, and the step after the last.
    next: u64,
    delivered: u64,
    end: u64,
    ready: BTreeMap<u64, Result<LoadedBatch>>,
    /// Steps that are being gathered.
    gathering: usize,
    /// Whether the next step waits for a window that is not planned yet.
    starving: bool,
    /// Whether nobody has asked for the epoch yet: windows are read, and no batch is made.
    ahead: bool,
}

#[derive(Debug)]
struct Shared {
    job: EpochJob,
    ledger: Arc<Ledger>,
    state: Mutex<State>,
    waiting: Waiting,
}

/// Who waits for what: each is woken by that alone, since there are thousands of steps a second.
#[derive(Debug, Default)]
struct Waiting {
    /// The planner, for memory, and for the last step to be taken.
    planner: Condvar,
    /// Readers, for blocks.
    readers: Condvar,
    /// Gatherers, for a step that may be gathered, and for the windows of the one that they have.
    steps: Condvar,
    windows: Condvar,
    /// The consumer.
    batch: Condvar,
}

impl Waiting {
    fn wake_all(&self) {
        let Self { planner, readers, steps, windows, batch } = self;
        [planner, readers, steps, windows, batch].into_iter().for_each(Condvar::notify_all);
    }
}

/// Waits; what another thread left when it panicked is told by that thread.
fn wait_on<'a>(what: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    what.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// The batches of an epoch, in the order of their steps. Its threads end when it is dropped.
#[derive(Debug)]
pub struct Batches {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    finished: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_memory<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.ahead {
            // The epoch before frees memory, which it does not tell.
            let waited = self.waiting.planner.wait_timeout(state, AHEAD_PATIENCE);
            return waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        wait_on(&self.waiting.planner, state)
    }

    /// Begins to read the next epoch once all steps of this one are being gathered: then readers have nothing to do.
    fn begin_next(&self) {
        let Some(next) = &self.job.next else { return };
        let mut state = self.lock();
        while !state.stopped && state.next < state.end {
            state = wait_on(&self.waiting.planner, state);
        }
        // Who has taken the last batch may have dropped the others already.
        let is_delivered = state.next >= state.end && state.fatal.is_none();
        drop(state);
        if is_delivered {
            next.begin(&self.ledger.shared_held());
        }
    }

    /// Tells all threads to end.
    fn stop(&self, fatal: Option<Error>) {
        let mut state = self.lock();
        state.stopped = true;
        if state.fatal.is_none() {
            state.fatal = fatal;
        }
        drop(state);
        self.waiting.wake_all();
    }

    /// Runs the work of a thread; a panic is an error that the consumer receives.
    fn run_thread(&self, work: impl FnOnce(&Self) -> Result<()>) {
        let failure = match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => Error::of_panic(panic.as_ref()),
        };
        self.stop(Some(failure));
    }

    /// Plans windows as long as there is memory for them.
    fn plan_windows(&self) -> Result<()> {
        let (first, end) = {
            let state = self.lock();
            (state.next, state.end)
        };
        let steps = (first..end).step_by(usize::try_from(self.job.stride).unwrap_or(usize::MAX));
        for place in self.job.plan.windows(steps) {
            let bytes = place.records().saturating_mul(self.job.record_bytes);
            let mut state = self.lock();
            let fits = loop {
                if state.stopped {
                    return Ok(());
                }
                let held = self.ledger.held_bytes().saturating_add(bytes);
                if held <= self.job.window_bytes {
                    break true;
                }
                if state.starving && state.gathering == 0 && state.tasks.is_empty() {
                    break held <= self.job.most_window_bytes;
                }
                state = self.wait_for_memory(state);
            };
            let lane = place.lane;
            let window = if fits {
                let blocks = self.job.plan.blocks_of(&place);
                let needed = self.job.plan.needed_of(&place, first, self.job.stride);
                Arc::new(Window::new(place, blocks, needed, bytes, &self.ledger))
            } else {
                let error = self.too_large(&state, &place);
                Arc::new(Window::failed(place, error, &self.ledger))
            };
            let tasks = (0..window.blocks.len()).map(|block| ReadTask { window: Arc::clone(&window), block });
            state.tasks.extend(tasks);
            state.lanes.entry(lane).or_default().push_back(window);
            drop(state);
            self.waiting.readers.notify_all();
            self.waiting.steps.notify_all();
        }
        self.begin_next();
        Ok(())
    }

    /// Names the shard with the largest records among those that the windows need.
    fn too_large(&self, state: &State, next: &LaneWindow) -> Error {
        let (limit, source) = (self.job.most_window_bytes, &self.job.source);
        let held = state.lanes.values().flatten().flat_map(|window| window.blocks.iter().cloned());
        let blocks = held.chain(self.job.plan.blocks_of(next));
        let largest = blocks.filter_map(|block| source.largest_records(&block)).max();
        let error = Error::usage(match largest {
            None => format!("expected windows of at most {limit} bytes in all, found records that are larger"),
            Some((bytes, _)) => {
                format!("expected windows of at most {limit} bytes in all, found a shard with records of {bytes} bytes")
            }
        });
        let error = error.with_hint("give the loader more memory, or choose a smaller window");
        match largest {
            None => error,
            Some((_, shard)) => error.at_location(source.place_of(shard)),
        }
    }

    /// Reads blocks until there are none.
    fn read_blocks(&self) -> Result<()> {
        loop {
            let mut state = self.lock();
            let ReadTask { window, block } = loop {
                if state.stopped {
                    return Ok(());
                }
                match state.tasks.pop_front() {
                    Some(task) => break task,
                    None => state = wait_on(&self.waiting.readers, state),
                }
            };
            drop(state);
            let read = match window.blocks.get(block) {
                Some(positions) if !window.has_failed() => {
                    let needed = window.needed_of(block);
                    self.job.source.read_pieces(positions, needed, &self.job.columns, &self.ledger.counters)
                }
                _ => Err(Error::internal("another block of the window failed")),
            };
            let complete = window.store_block(block, read, || self.job.plan.permutation_of(&window.place));
            // Whoever waits for memory is woken after the window is free.
            drop(window);
            if complete {
                drop(self.lock());
                self.waiting.windows.notify_all();
                self.waiting.planner.notify_all();
            }
        }
    }

    /// Gathers steps until there are none.
    fn gather_steps(&self) -> Result<()> {
        while let Some((step, slices)) = self.take_step()? {
            let waiting = || slices.iter().any(|slice| slice.window.content().is_none());
            let mut state = self.lock();
            while !state.stopped && waiting() {
                state = wait_on(&self.waiting.windows, state);
            }
            if state.stopped {
                return Ok(());
            }
            drop(state);
            let begun = Instant::now();
            let batch = self.empty_batch(step)?;
            let gathered = gather_step(&slices, &self.job.columns, &self.job.without, &self.job.pool, batch);
            let gathered = gathered.map_err(|e| at_step(&e, self.job.epoch, step));
            drop(slices);
            if let Ok(batch) = &gathered {
                self.ledger.counters.hold_bytes(batch.memory_bytes());
            }
            add_since(&self.ledger.counters.gathered, begun);
            let mut state = self.lock();
            state.gathering -= 1;
            state.ready.insert(step, gathered);
            drop(state);
            self.waiting.planner.notify_all();
            self.waiting.batch.notify_all();
        }
        Ok(())
    }

    fn empty_batch(&self, step: u64) -> Result<LoadedBatch> {
        let expected = self.job.plan.slots_of(step)?;
        let columns = RecordBatch::new_empty(Arc::clone(&self.job.columns.schema));
        Ok(LoadedBatch { epoch: self.job.epoch, step, expected, numbers: Vec::new(), positions: Vec::new(), columns })
    }

    /// Takes the next step, once all its windows are planned; `None` if there is none any more.
    fn take_step(&self) -> Result<Option<(u64, Vec<Slice>)>> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.next >= state.end {
                return Ok(None);
            }
            if !state.ahead && (state.next - state.delivered) / self.job.stride < self.job.ahead {
                let step = state.next;
                if let Some(slices) = self.slices_of(&mut state, step)? {
                    state.starving = false;
                    state.next = state.next.saturating_add(self.job.stride);
                    state.gathering += 1;
                    if state.next >= state.end {
                        self.waiting.planner.notify_all();
                        self.waiting.steps.notify_all();
                    }
                    return Ok(Some((step, slices)));
                }
                if !state.starving {
                    state.starving = true;
                    self.waiting.planner.notify_all();
                }
            }
            state = wait_on(&self.waiting.steps, state);
        }
    }

    /// Finds the windows of a step, and forgets those that no later step needs; `None` if one is not planned yet.
    fn slices_of(&self, state: &mut State, step: u64) -> Result<Option<Vec<Slice>>> {
        let lanes: Vec<_> = self.job.plan.lanes_of(step)?.collect();
        let mut slices = Vec::with_capacity(lanes.len());
        for of_lane in &lanes {
            let Some(windows) = state.lanes.get_mut(&of_lane.lane) else { return Ok(None) };
            while windows.front().is_some_and(|window| window.place.turns.end <= of_lane.turns.start) {
                windows.pop_front();
            }
            let mut at = of_lane.turns.start;
            for window in windows.iter() {
                let (first, end) = (window.place.turns.start, window.place.turns.end.min(of_lane.turns.end));
                if (first..end).contains(&at) {
                    let turn = |turn: u64| usize::try_from(turn - first).unwrap_or(usize::MAX);
                    slices.push(Slice { window: Arc::clone(window), turns: turn(at)..turn(end) });
                    at = end;
                }
            }
            if at < of_lane.turns.end {
                return Ok(None);
            }
        }
        if step.saturating_add(self.job.stride) >= state.end {
            state.lanes.clear();
        }
        for of_lane in &lanes {
            if let Some(windows) = state.lanes.get_mut(&of_lane.lane) {
                while windows.front().is_some_and(|window| window.place.turns.end <= of_lane.turns.end) {
                    windows.pop_front();
                }
            }
        }
        Ok(Some(slices))
    }
}

/// Adds the step to an error.
fn at_step(error: &Error, epoch: u64, step: u64) -> Error {
    let message = format!("{} (epoch {epoch}, step {step})", error.message());
    let mut out = Error::new(error.kind(), message);
    let place = error.place();
    if let Some(source) = &place.source {
        out = out.at_location(source.clone());
    }
    if let Some(byte) = place.byte {
        out = out.at_byte(byte);
    }
    if let Some(column) = &place.column {
        out = out.in_column(column.clone());
    }
    out = error.hints().iter().fold(out, |out, hint| out.with_hint(hint.clone()));
    match std::error::Error::source(error) {
        Some(cause) => out.with_cause(cause.to_string()),
        None => out,
    }
}

impl Batches {
    /// Starts the threads of an epoch from a step on. `beside` are the windows of the epoch before: then batches are
    /// only made once [`begin`](Self::begin) is called.
    pub(super) fn start(job: EpochJob, first_step: u64, beside: Option<HeldBytes>) -> Result<Self> {
        let end = job.plan.layout().steps();
        let state = State {
            stopped: false,
            fatal: None,
            lanes: HashMap::new(),
            tasks: VecDeque::new(),
            next: first_step,
            delivered: first_step,
            end,
            ready: BTreeMap::new(),
            gathering: 0,
            starving: false,
            ahead: beside.is_some(),
        };
        let (readers, gatherers) = (job.readers, job.gatherers);
        let ledger = Arc::new(beside.map_or_else(Ledger::default, Ledger::beside));
        let state = Mutex::new(state);
        let shared = Arc::new(Shared { job, ledger, state, waiting: Waiting::default() });
        let mut batches = Self { shared, threads: Vec::new(), finished: first_step >= end };
        if !batches.finished {
            batches.spawn("load-plan", Shared::plan_windows)?;
            (0..readers).try_for_each(|_| batches.spawn("load-read", Shared::read_blocks))?;
            (0..gatherers).try_for_each(|_| batches.spawn("load-gather", Shared::gather_steps))?;
        }
        Ok(batches)
    }

    /// Begins to make the batches of an epoch that was read ahead.
    pub(super) fn begin(&self) {
        self.shared.lock().ahead = false;
        self.shared.waiting.wake_all();
    }

    /// Starts a thread; those that were started before end if it fails, because `self` is dropped.
    fn spawn(&mut self, name: &str, work: fn(&Shared) -> Result<()>) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = Builder::new().name(name.to_owned()).spawn(move || shared.run_thread(work));
        let refused = |e| Error::storage("the system refused to start a thread").with_cause(e);
        self.threads.push(thread.map_err(refused)?);
        Ok(())
    }

    /// Returns what was read and delivered so far.
    pub fn stats(&self) -> LoadStats {
        self.shared.ledger.counters.stats()
    }

    /// Waits for the next batch, but only so long. `None`: there is none yet; `Some(None)`: the epoch has ended.
    pub fn next_within(&mut self, wait: Duration) -> Option<Option<Result<LoadedBatch>>> {
        if self.finished {
            return Some(None);
        }
        let (begun, counters) = (Instant::now(), &self.shared.ledger.counters);
        let mut state = self.shared.lock();
        let found = loop {
            if let Some(error) = state.fatal.take() {
                break Err(error);
            }
            let step = state.delivered;
            if let Some(batch) = state.ready.remove(&step) {
                state.delivered = state.delivered.saturating_add(self.shared.job.stride);
                break batch;
            }
            let Some(left) = wait.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else {
                add_since(&counters.waited, begun);
                return None;
            };
            let waited = self.shared.waiting.batch.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        };
        self.finished = found.is_err() || state.delivered >= state.end;
        drop(state);
        self.shared.waiting.steps.notify_one();
        add_since(&counters.waited, begun);
        match &found {
            Ok(batch) => {
                counters.free_bytes(batch.memory_bytes());
                add_to(&counters.samples, batch.numbers.len() as u64);
                add_to(&counters.steps, 1);
                add_to(&counters.bytes_delivered, batch.memory_bytes());
            }
            Err(_) => self.shared.stop(None),
        }
        Some(Some(found))
    }
}

impl Iterator for Batches {
    type Item = Result<LoadedBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.next_within(Duration::from_secs(3600)) {
                return found;
            }
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.shared.stop(None);
        for thread in self.threads.drain(..) {
            // Its panic was reported, or nobody asks any more.
            let _ = thread.join();
        }
        // Who leaves an epoch early may want no other.
        if let Some(next) = self.shared.job.next.as_ref().filter(|_| !self.finished) {
            next.forget();
        }
    }
}
