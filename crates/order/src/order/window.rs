//! Windows of a lane: turns that are shuffled together, and the blocks that they read.

use std::ops::Range;

use super::permutation::{GOLDEN, scaled_below};

/// A window of a lane: consecutive turns of the lane, which read as many consecutive places in some other order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneWindow {
    /// The lane, from 0.
    pub lane: u64,
    /// Number of the window in its lane, from 0.
    pub number: u64,
    /// Its turns, counted in the lane.
    pub turns: Range<u64>,
    /// The places that it reads, among the records of all permuted blocks, laid end to end.
    pub places: Range<u64>,
}

impl LaneWindow {
    /// Returns the number of its records.
    pub fn records(&self) -> u64 {
        self.turns.end - self.turns.start
    }
}

/// What a window reads of a block: consecutive positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBlock {
    /// Number of the block in the dataset, from 0.
    pub number: u64,
    /// Positions that the window reads; others of the block are read by the window before or after, or another lane.
    pub positions: Range<u64>,
}

/// Number and turns of the window of a lane of `count` turns that contains one of them.
///
/// Windows have `window` turns but for the first and the last, which have more than half and at most one and a half as
/// many. The lanes' windows end at different times, in any range of lanes, because multiples of the golden ratio are
/// spread evenly; so those who read some lanes hold little more than one window of each.
pub(crate) fn window_of(lane: u64, count: u64, window: u64, turn: u64) -> (u64, Range<u64>) {
    let least = window / 2 + 1;
    let second = least + scaled_below((lane + 1).wrapping_mul(GOLDEN), window);
    // How many windows begin in a range of turns that begins where the second window does.
    let begun = |turns: Option<u64>| turns.map_or(0, |turns| turns / window + 1);
    let last = begun(count.checked_sub(least + second));
    let number = begun(turn.checked_sub(second)).min(last);
    let start = if number == 0 { 0 } else { second + (number - 1) * window };
    let end = if number == last { count } else { second + number * window };
    (number, start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_each_other_and_are_neither_small_nor_large() {
        for window in (1..40).chain([1000, (1 << 40) - 1]) {
            for count in (1..200).chain([1 << 20]).filter(|count| count / window < 1000) {
                for lane in [0, 1, 2, 3, 7, 65_535] {
                    let (mut next, mut at) = (0, 0);
                    while at < count {
                        let (number, turns) = window_of(lane, count, window, at);
                        let what = format!("window {window}, {count} turns, lane {lane}: {number} {turns:?}");
                        assert_eq!((number, turns.start), (next, at), "{what}");
                        assert_eq!(window_of(lane, count, window, turns.end - 1), (number, turns.clone()), "{what}");
                        let turn_count = turns.end - turns.start;
                        if turn_count == count {
                            assert!(count <= 2 * window, "{what}");
                        } else {
                            assert!(turn_count > window / 2 && turn_count <= 3 * window / 2, "{what}");
                            assert!(count > window, "{what}");
                        }
                        if number > 0 && turns.end < count {
                            assert_eq!(turn_count, window, "{what}");
                        }
                        (next, at) = (number + 1, turns.end);
                    }
                    assert_eq!(at, count);
                }
            }
        }
    }

    #[test]
    fn windows_of_any_eight_neighbouring_lanes_end_at_different_times() {
        for first in 0..64 {
            let mut ends: Vec<u64> =
                (first..first + 8).map(|lane| window_of(lane, 10_000, 1000, 0).1.end % 1000).collect();
            ends.sort_unstable();
            let gap = ends.windows(2).map(|pair| pair[1] - pair[0]).min();
            assert!(gap >= Some(55), "{first}: {ends:?}");
        }
    }
}
