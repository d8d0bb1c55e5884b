//! Bounds the bytes in flight between the two ends of a stage, for items whose sizes are known before they are read.
//!
//! A limit on the number of items does not bound memory if a few of them are large. The producer of the stage waits
//! until there is reserve; an item larger than the whole budget is processed alone.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::Scope,
};

use super::ordered::{Ordered, run_ordered};
use crate::{error::Result, events::Cancel};

/// Byte budget of items in flight.
#[derive(Debug)]
pub struct Budget {
    bytes: u64,
    state: Mutex<BudgetState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BudgetState {
    used: u64,
    closed: bool,
}

impl Budget {
    /// Creates a budget of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until `bytes` more fit the budget; returns false if the budget was closed, so that no reserve will be
    /// released.
    pub fn acquire(&self, bytes: u64) -> bool {
        let mut state = self.lock_state();
        while !state.closed && state.used > 0 && state.used.saturating_add(bytes) > self.bytes {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.used = state.used.saturating_add(bytes);
        !state.closed
    }

    /// Waits like [`acquire`](Self::acquire); the returned reservation releases its bytes when it is dropped.
    pub fn reserve(&self, bytes: u64) -> Reservation<'_> {
        self.acquire(bytes);
        Reservation { budget: self, bytes }
    }

    /// Releases bytes.
    fn release(&self, bytes: u64) {
        let mut state = self.lock_state();
        state.used = state.used.saturating_sub(bytes);
        self.changed.notify_all();
    }

    fn lock_state(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserved bytes of a budget, released on drop.
#[derive(Debug)]
pub struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// Limits of a stage.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes in flight; an item that has more is alone.
    pub bytes: u64,
    /// Number of threads.
    pub jobs: usize,
    /// Items in flight.
    pub window: usize,
}

/// Like [`run_ordered`], with a limit on the bytes in flight, too; `bytes_of` says how many an item has.
pub fn ordered_within<'scope, 'env, I, T, U, F>(
    scope: &'scope Scope<'scope, 'env>,
    input: I,
    bytes_of: impl Fn(&T) -> u64 + Send + 'scope,
    limits: Limits,
    cancel: &Cancel,
    work: F,
) -> Released<Ordered<(u64, U)>>
where
    I: Iterator<Item = Result<T>> + Send + 'scope,
    T: Send + 'scope,
    U: Send + 'scope,
    F: Fn(T) -> Result<U> + Clone + Send + 'scope,
{
    let budget = Arc::new(Budget::new(limits.bytes));
    let room = Arc::clone(&budget);
    let items = input.map_while(move |item| {
        let bytes = item.as_ref().map_or(0, &bytes_of);
        room.acquire(bytes).then(|| item.map(|item| (bytes, item)))
    });
    let work = move |(bytes, item)| Ok((bytes, work(item)?));
    Released { inner: run_ordered(scope, items, limits.jobs, limits.window, cancel, work), budget }
}

/// Output of a stage: releases the bytes of each item that it yields. Dropping it closes the budget, which ends all
/// waiting.
#[derive(Debug)]
pub struct Released<I> {
    inner: I,
    budget: Arc<Budget>,
}

impl<T, E, I: Iterator<Item = Result<(u64, T), E>>> Iterator for Released<I> {
    type Item = Result<T, E>;

    fn next(&mut self) -> Option<Self::Item> {
        self.inner.next().map(|item| {
            item.map(|(bytes, piece)| {
                self.budget.release(bytes);
                piece
            })
        })
    }
}

impl<I> Drop for Released<I> {
    fn drop(&mut self) {
        self.budget.lock_state().closed = true;
        self.budget.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_flight_stay_within_the_budget_and_a_large_one_is_processed_alone() {
        let budget = Arc::new(Budget::new(10));
        let (give, take) = crossbeam_channel::unbounded();
        std::thread::scope(|scope| {
            let feeder = Arc::clone(&budget);
            scope.spawn(move || {
                for bytes in [4, 6, 1, 50, 2] {
                    assert!(feeder.acquire(bytes));
                    let _ = give.send(Ok::<_, ()>((bytes, bytes)));
                }
            });
            let pieces = Released { inner: take.iter(), budget: Arc::clone(&budget) };
            let seen: Vec<u64> = pieces
                .map(|piece| {
                    let used = budget.lock_state().used;
                    assert!(used <= 10 || used == 50, "{used}");
                    piece.unwrap_or_default()
                })
                .collect();
            assert_eq!(seen, [4, 6, 1, 50, 2]);
        });
    }

    #[test]
    fn a_dropped_reservation_releases_its_bytes() {
        let budget = Budget::new(2);
        let (one, other) = (budget.reserve(1), budget.reserve(1));
        drop(one);
        let another = budget.reserve(1);
        assert_eq!(budget.lock_state().used, 2);
        drop((other, another));
        assert_eq!(budget.lock_state().used, 0);
    }

    #[test]
    fn waiting_ends_when_the_consumer_is_dropped() {
        let budget = Arc::new(Budget::new(1));
        assert!(budget.acquire(1));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.acquire(1));
            drop(Released { inner: std::iter::empty::<Result<(u64, ()), ()>>(), budget: Arc::clone(&budget) });
            assert!(matches!(waiting.join(), Ok(false)));
        });
    }
}
