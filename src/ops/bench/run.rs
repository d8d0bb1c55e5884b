//! One measurement: readers that fill a queue of batches, and a consumer that empties it.
//!
//! ```text
//! reader 1 --\
//! reader 2 ---+--> queue, 2 batches for each reader --> consumer: takes a batch, works for --step, takes the next
//! reader n --/                                          waits whenever the queue is empty
//! ```
//!
//! This is how loaders with workers work, and the queue has the length that torch's DataLoader gives it.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use super::feed::Feed;
use crate::{
    error::{Error, Result},
    ops::Context,
};

/// Batches that wait, for each reader.
const AHEAD: usize = 2;
/// How often an interrupt is looked for.
const PATIENCE: Duration = Duration::from_millis(100);

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    /// Number of readers.
    pub(super) readers: usize,
    /// Records of a batch.
    pub(super) batch: u64,
    /// How long the consumer works on a batch.
    pub(super) step: Option<Duration>,
    /// Longest time.
    pub(super) limit: Duration,
    /// Number of the first items that are read, again and again; `None` to read each item once.
    pub(super) again: Option<usize>,
}

/// What was measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Throughput {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) batches: u64,
    /// From the start to the end of the last batch.
    pub(super) time: Duration,
    pub(super) first_batch: Duration,
    /// Time that the consumer waited after the first batch.
    pub(super) waited: Duration,
    pub(super) opened: u64,
    /// Items that were begun.
    pub(super) items: usize,
    /// Records taken in each part of the time limit.
    windows: [u64; WINDOWS],
}

/// Parts of the time limit, whose rates show how much a rate varies.
const WINDOWS: usize = 8;

impl Throughput {
    /// Returns half of the range of the rates in parts of the time, as a share of their middle; `None` if too few parts
    /// passed. The first part has the start, and the last one may be cut.
    pub(super) fn spread(&self, limit: Duration) -> Option<f64> {
        let each = limit.as_secs_f64() / WINDOWS as f64;
        let passed = (1..WINDOWS).take_while(|window| (window + 1) as f64 * each <= self.time.as_secs_f64());
        let counts: Vec<u64> = passed.map(|window| self.windows[window]).collect();
        let (least, most) = (*counts.iter().min()?, *counts.iter().max()?);
        (counts.len() > 2 && most > 0).then(|| (most - least) as f64 / (most + least) as f64)
    }
}

#[derive(Clone, Copy, Default)]
struct BatchCounts {
    records: u64,
    bytes: u64,
}

/// Measures a feed.
///
/// # Errors
/// When something cannot be read, or the user interrupts.
pub(super) fn measure_feed(context: &Context<'_>, feed: &Feed, setup: Setup) -> Result<Throughput> {
    let (next, opened) = (AtomicUsize::new(0), AtomicU64::new(0));
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let mut measured = Throughput::default();
    std::thread::scope(|scope| {
        let (sender, batches) = bounded::<BatchCounts>(AHEAD * setup.readers);
        for _ in 0..setup.readers {
            let sender = sender.clone();
            let (next, opened, failure) = (&next, &opened, &failure);
            scope.spawn(move || {
                if let Err(error) = read(context, feed, setup, next, opened, &sender) {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            });
        }
        drop(sender);
        measured = consume_batches(context, &batches, setup);
        // Readers see that nobody takes batches any more.
        drop(batches);
    });
    context.cancel.check()?;
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let (opened, items) = (opened.into_inner(), next.into_inner().min(feed.len()));
    Ok(Throughput { opened, items, ..measured })
}

fn consume_batches(
    context: &Context<'_>,
    batches: &crossbeam_channel::Receiver<BatchCounts>,
    setup: Setup,
) -> Throughput {
    let started = Instant::now();
    let mut measured = Throughput::default();
    while started.elapsed() < setup.limit && !context.cancel.is_cancelled() {
        let asked = Instant::now();
        let batch = match batches.recv_timeout(PATIENCE) {
            Ok(batch) => batch,
            Err(RecvTimeoutError::Timeout) => {
                if measured.batches > 0 {
                    measured.waited += asked.elapsed();
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if measured.batches == 0 {
            measured.first_batch = started.elapsed();
        } else {
            measured.waited += asked.elapsed();
        }
        measured.batches += 1;
        measured.records += batch.records;
        let part = started.elapsed().as_secs_f64() / setup.limit.as_secs_f64() * WINDOWS as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few, and none below 0")]
        let part = (part as usize).min(WINDOWS - 1);
        measured.windows[part] += batch.records;
        measured.bytes += batch.bytes;
        if let Some(step) = setup.step {
            std::thread::sleep(step);
        }
        measured.time = started.elapsed();
    }
    measured
}

/// Reads items until there are none, or nobody takes batches.
fn read(
    context: &Context<'_>,
    feed: &Feed,
    setup: Setup,
    next: &AtomicUsize,
    opened: &AtomicU64,
    sender: &Sender<BatchCounts>,
) -> Result<()> {
    let items = setup.again.unwrap_or(feed.len()).min(feed.len());
    let (mut pending, mut is_wanted) = (BatchCounts::default(), true);
    while is_wanted && items > 0 {
        let at = next.fetch_add(1, Ordering::Relaxed);
        if at >= items && setup.again.is_none() {
            break;
        }
        let files = feed.read(context, at % items, &mut |records, bytes| {
            pending.records += records;
            pending.bytes += bytes;
            while is_wanted && pending.records >= setup.batch {
                let bytes = pending.bytes * setup.batch / pending.records;
                let batch = BatchCounts { records: setup.batch, bytes };
                pending = BatchCounts { records: pending.records - setup.batch, bytes: pending.bytes - bytes };
                is_wanted = sender.send(batch).is_ok() && !context.cancel.is_cancelled();
            }
            Ok(is_wanted)
        })?;
        opened.fetch_add(files, Ordering::Relaxed);
    }
    if is_wanted && pending.records > 0 {
        // A consumer that has gone needs no rest.
        let _ = sender.send(pending);
    }
    Ok(())
}
