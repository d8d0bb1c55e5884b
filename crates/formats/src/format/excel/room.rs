//! Room for what is decoded of all workbooks of a run, in memory and on disk, and whose turn it is among large ones.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// Default memory of a run, in bytes.
const DEFAULT_MEMORY: u64 = 1 << 30;

/// Divisor of the memory of a run that gives the most bytes of decoded rows that wait in memory.
const KEPT_SHARE: u64 = 16;

/// Divisor of the memory of a run that gives the most bytes of the texts that cells of a workbook share.
const TEXTS_SHARE: u64 = 8;

/// Divisor of the memory of a run that gives the bytes from which on a workbook is decoded alone.
const TURN_SHARE: u64 = 256;

/// Most workbooks whose rows wait on disk.
const MOST_SPILLS: u64 = 32;

/// Room for decoded rows: in memory, or on disk.
#[derive(Debug)]
pub struct Room {
    memory: u64,
    used: AtomicU64,
    spills: AtomicU64,
    /// Whose turn it is among workbooks that take much memory while they are decoded.
    turn: Mutex<()>,
}

impl Default for Room {
    fn default() -> Self {
        Self::with_memory(DEFAULT_MEMORY)
    }
}

impl Room {
    /// Creates the room of a run with so many bytes of memory.
    pub fn with_memory(memory: u64) -> Self {
        Self { memory, used: AtomicU64::new(0), spills: AtomicU64::new(0), turn: Mutex::new(()) }
    }

    /// Returns the memory of the run in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the most bytes of the texts that cells share.
    pub(super) fn most_texts(&self) -> u64 {
        self.memory / TEXTS_SHARE
    }

    /// Waits until a workbook that holds so many bytes may be decoded; several small ones are at a time.
    pub(super) fn take_turn(&self, bytes: u64) -> Option<MutexGuard<'_, ()>> {
        (bytes > self.memory / TURN_SHARE).then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes room in memory; returns whether there is enough.
    pub(super) fn take_memory(&self, bytes: u64) -> bool {
        take_up_to(&self.used, bytes, self.memory / KEPT_SHARE)
    }

    /// Gives back room in memory.
    pub(super) fn give_memory(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes the place of a file on disk; returns whether there is one.
    pub(super) fn take_spill(&self) -> bool {
        take_up_to(&self.spills, 1, MOST_SPILLS)
    }

    /// Gives back the place of a file on disk.
    pub(super) fn give_spill(&self) {
        self.spills.fetch_sub(1, Ordering::Relaxed);
    }
}

fn take_up_to(used: &AtomicU64, more: u64, most: u64) -> bool {
    let add = |used: u64| used.checked_add(more).filter(|sum| *sum <= most);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_up_to_its_end_and_given_back() {
        let room = Room::with_memory(1600);
        assert!(room.take_memory(60) && !room.take_memory(41) && room.take_memory(40));
        room.give_memory(60);
        assert!(room.take_memory(60) && !room.take_memory(1) && !room.take_memory(u64::MAX));
        assert_eq!((room.most_texts(), room.memory()), (200, 1600));
        assert!((0..MOST_SPILLS).all(|_| room.take_spill()) && !room.take_spill());
        room.give_spill();
        assert!(room.take_spill());
        assert!(room.take_turn(6).is_none());
        let turn = room.take_turn(7);
        assert!(turn.is_some() && room.take_turn(6).is_none());
    }
}
