//! How a run tries again when another run was faster: the one policy of all that commit.
//!
//! Each attempt that fails means that another run succeeded, so there is progress; pauses are random, because writers
//! that wait equally long would keep colliding, and grow, because there are many of them.

use std::{
    hash::{BuildHasher as _, RandomState},
    thread,
    time::{Duration, Instant},
};

/// Attempts before giving up, unless a run plans anew after fewer.
pub const MOST: usize = 100;

/// Attempts that are made however long they take.
const LEAST: usize = 10;

/// Time after which no further attempt is begun.
const DEADLINE: Duration = Duration::from_secs(600);

/// Maximum pause before the second attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The longest pause before any attempt.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The attempts of a run, from 0, with a pause before each but the first.
#[derive(Debug)]
pub struct Attempts {
    made: usize,
    most: usize,
    begun: Instant,
}

impl Attempts {
    /// At most so many attempts.
    pub fn at_most(most: usize) -> Self {
        Self { made: 0, most, begun: Instant::now() }
    }
}

impl Default for Attempts {
    fn default() -> Self {
        Self::at_most(MOST)
    }
}

impl Iterator for Attempts {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.made >= self.most || (self.made >= LEAST && self.begun.elapsed() > DEADLINE) {
            return None;
        }
        pause_before(self.made);
        self.made += 1;
        Some(self.made - 1)
    }
}

/// Pauses before an attempt, for a random time that grows with its number; not before the first, which is 0.
pub fn pause_before(attempt: usize) {
    let Some(max) = max_pause(attempt) else { return };
    let random = RandomState::new().hash_one(attempt) % u64::try_from(max.as_micros()).unwrap_or(u64::MAX).max(1);
    thread::sleep(Duration::from_micros(random));
}

/// Returns the maximum pause before an attempt; `None` for the first.
fn max_pause(attempt: usize) -> Option<Duration> {
    let doublings = u32::try_from(attempt.checked_sub(1)?).unwrap_or(u32::MAX);
    Some(FIRST_PAUSE.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        let pauses: Vec<_> = (0..200).map(max_pause).collect();
        assert_eq!(pauses[0], None);
        assert_eq!(pauses[1], Some(FIRST_PAUSE));
        assert!(pauses.is_sorted());
        assert!(pauses[9..].iter().all(|pause| *pause == Some(MAX_PAUSE)));
    }

    #[test]
    fn attempts_end() {
        assert_eq!(Attempts::at_most(3).collect::<Vec<_>>(), [0, 1, 2]);
        let late = Instant::now().checked_sub(DEADLINE + Duration::from_secs(1));
        let Some(begun) = late else { return };
        assert_eq!(Attempts { made: LEAST, most: MOST, begun }.count(), 0);
    }
}
