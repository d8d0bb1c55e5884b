//! A bound on bytes in flight between the two ends of a stage, for pieces whose sizes are known before they are read.
//!
//! The number of pieces in flight does not bound memory when a few of them are large. Whoever feeds the stage waits
//! until there is room; a piece larger than all the room goes alone.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Room for so many bytes.
#[derive(Debug)]
pub struct Budget {
    bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    closed: bool,
}

impl Budget {
    /// Room for `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until there is room for `bytes` more; false when nobody will make room any more.
    pub fn acquire(&self, bytes: u64) -> bool {
        let mut state = self.lock();
        while !state.closed && state.used > 0 && state.used.saturating_add(bytes) > self.bytes {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.used = state.used.saturating_add(bytes);
        !state.closed
    }

    /// Waits as [`acquire`](Self::acquire) does; the room is given back when what is returned is dropped.
    pub fn room(&self, bytes: u64) -> Room<'_> {
        self.acquire(bytes);
        Room { budget: self, bytes }
    }

    /// Gives room back.
    fn release(&self, bytes: u64) {
        let mut state = self.lock();
        state.used = state.used.saturating_sub(bytes);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room that was acquired.
#[derive(Debug)]
pub struct Room<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// Hands on what comes out of the stage and gives its room back; when dropped, nobody waits for room any more.
#[derive(Debug)]
pub struct Released<I> {
    inner: I,
    budget: Arc<Budget>,
}

impl<I> Released<I> {
    /// Wraps the output of a stage: pieces with the bytes that were acquired for them.
    pub fn new(inner: I, budget: Arc<Budget>) -> Self {
        Self { inner, budget }
    }
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
        self.budget.lock().closed = true;
        self.budget.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_flight_stay_within_the_budget_and_a_large_one_goes_alone() {
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
            let pieces = Released::new(take.iter(), Arc::clone(&budget));
            let seen: Vec<u64> = pieces
                .map(|piece| {
                    let used = budget.lock().used;
                    assert!(used <= 10 || used == 50, "{used}");
                    piece.unwrap_or_default()
                })
                .collect();
            assert_eq!(seen, [4, 6, 1, 50, 2]);
        });
    }

    #[test]
    fn room_is_free_again_once_it_was_dropped() {
        let budget = Budget::new(2);
        let (one, other) = (budget.room(1), budget.room(1));
        drop(one);
        let another = budget.room(1);
        assert_eq!(budget.lock().used, 2);
        drop((other, another));
        assert_eq!(budget.lock().used, 0);
    }

    #[test]
    fn whoever_waits_is_told_when_nobody_takes_any_more() {
        let budget = Arc::new(Budget::new(1));
        assert!(budget.acquire(1));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.acquire(1));
            drop(Released::new(std::iter::empty::<Result<(u64, ()), ()>>(), Arc::clone(&budget)));
            assert!(matches!(waiting.join(), Ok(false)));
        });
    }
}
