//! What a running loader has done so far.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// What was read and delivered since the start; seconds are those of all threads together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LoadStats {
    /// Records delivered.
    pub samples: u64,
    /// Steps delivered.
    pub steps: u64,
    /// Ranges of shards that were read.
    pub requests: u64,
    /// Bytes read from shards, as they are stored; of Parquet the bytes of decoded blocks.
    pub bytes_read: u64,
    /// Bytes of the batches delivered.
    pub bytes_delivered: u64,
    /// Seconds that the consumer waited for batches.
    pub seconds_waited: f64,
    /// Seconds of reading; of Parquet they are among those of decoding.
    pub seconds_read: f64,
    /// Seconds of decompressing, checking and parsing.
    pub seconds_decoded: f64,
    /// Seconds of copying records into batches.
    pub seconds_gathered: f64,
    /// Bytes of windows and batches in memory.
    pub memory_now: u64,
    /// Most bytes of windows and batches in memory at a time.
    pub memory_peak: u64,
}

/// The counts, which threads add to.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) samples: AtomicU64,
    pub(super) steps: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_delivered: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) read: AtomicU64,
    pub(super) decoded: AtomicU64,
    pub(super) gathered: AtomicU64,
    memory_now: AtomicU64,
    memory_peak: AtomicU64,
}

/// Adds to a count.
pub(super) fn add_to(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Adds the nanoseconds since an instant.
pub(super) fn add_since(counter: &AtomicU64, since: Instant) {
    add_to(counter, u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
}

impl Counters {
    /// Notes bytes that were allocated.
    pub(super) fn hold_bytes(&self, bytes: u64) {
        let now = self.memory_now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.memory_peak.fetch_max(now, Ordering::Relaxed);
    }

    /// Notes bytes that were freed.
    pub(super) fn free_bytes(&self, bytes: u64) {
        self.memory_now.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub(super) fn stats(&self) -> LoadStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| Duration::from_nanos(count(counter)).as_secs_f64();
        LoadStats {
            samples: count(&self.samples),
            steps: count(&self.steps),
            requests: count(&self.requests),
            bytes_read: count(&self.bytes_read),
            bytes_delivered: count(&self.bytes_delivered),
            seconds_waited: seconds(&self.waited),
            seconds_read: seconds(&self.read),
            seconds_decoded: seconds(&self.decoded),
            seconds_gathered: seconds(&self.gathered),
            memory_now: count(&self.memory_now),
            memory_peak: count(&self.memory_peak),
        }
    }
}
