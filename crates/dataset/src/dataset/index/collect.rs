//! Pairs that arrive in any order, collected and sorted for a segment.
//!
//! Hashes are evenly distributed. Pairs are partitioned by their first bits as they arrive, so that finishing a segment
//! means sorting many small parts, each of which fits a cache:
//!
//! ```text
//! pairs as they arrive -> runs of 2^16 pairs, split into 256 parts -> part i of all runs, sorted -> bucket
//! ```

use crate::id::IdHash;

/// Pairs held in memory before they are written as a segment (12 bytes each).
pub(super) const SEGMENT_PAIRS: usize = 4 << 20;

/// Number of parts that pairs are split into by the first bits of their hashes; also the maximum number of buckets of a
/// segment.
pub(super) const PARTS: usize = 256;

/// Bits that select a part.
const PART_BITS: u32 = PARTS.trailing_zeros();

/// Pairs per run: split together, so that all parts stay in a cache meanwhile.
const RUN_PAIRS: usize = 1 << 16;

/// Pairs collected for the next segment.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// Base of the record numbers below.
    first: u64,
    pub(super) len: usize,
    runs: Vec<PairRun>,
    hashes: Vec<u64>,
    records: Vec<u32>,
}

/// Pairs split into parts, each in order of arrival.
#[derive(Debug)]
struct PairRun {
    hashes: Vec<u64>,
    records: Vec<u32>,
    /// Start of each part, and the end of the last one.
    starts: Vec<u32>,
}

impl Pairs {
    /// Adds a pair; returns false if its record is too far from the first one.
    pub(super) fn push(&mut self, hash: u64, record: u64) -> bool {
        if self.len == 0 {
            self.first = record;
        }
        let Some(Ok(record)) = record.checked_sub(self.first).map(u32::try_from) else { return false };
        self.hashes.push(hash);
        self.records.push(record);
        self.len += 1;
        if self.hashes.len() == RUN_PAIRS {
            self.partition_pairs();
        }
        true
    }

    /// Adds pairs of consecutive records while the run has room and returns how many; 0 if their records are too far
    /// from the first one.
    pub(super) fn push_consecutive(&mut self, hashes: &[IdHash], record: u64) -> usize {
        if self.len == 0 {
            self.first = record;
        }
        let Some(Ok(record)) = record.checked_sub(self.first).map(u32::try_from) else { return 0 };
        let room = (RUN_PAIRS - self.hashes.len()).min(SEGMENT_PAIRS - self.len);
        let taken = hashes.len().min(room).min(usize::try_from(u32::MAX - record).unwrap_or(usize::MAX));
        let Ok(end) = u32::try_from(taken).map(|taken| record + taken) else { return 0 };
        self.hashes.extend(hashes[..taken].iter().map(|hash| hash.0));
        self.records.extend(record..end);
        self.len += taken;
        if self.hashes.len() == RUN_PAIRS {
            self.partition_pairs();
        }
        taken
    }

    /// Makes a run of the pairs that are in none.
    pub(super) fn partition_pairs(&mut self) {
        let part = |hash: u64| usize::from((hash >> (u64::BITS - PART_BITS)).to_le_bytes()[0]);
        let mut starts = vec![0_u32; PARTS + 1];
        self.hashes.iter().for_each(|hash| starts[part(*hash) + 1] += 1);
        for i in 0..PARTS {
            starts[i + 1] += starts[i];
        }
        let mut ends = starts.clone();
        let (mut hashes, mut records) = (vec![0; self.hashes.len()], vec![0; self.hashes.len()]);
        for (hash, record) in self.hashes.drain(..).zip(self.records.drain(..)) {
            let at = &mut ends[part(hash)];
            (hashes[*at as usize], records[*at as usize]) = (hash, record);
            *at += 1;
        }
        self.runs.push(PairRun { hashes, records, starts });
    }

    /// Returns the pairs of a part, sorted.
    pub(super) fn sorted_part(&self, part: usize) -> Vec<(u64, u64)> {
        let range = |run: &PairRun| run.starts[part] as usize..run.starts[part + 1] as usize;
        let count: usize = self.runs.iter().map(|run| range(run).len()).sum();
        // As many piles as pairs, so that hardly anything is left to sort.
        let bits = count.max(2).ilog2().min(u64::BITS - PART_BITS);
        let pile = |hash: u64| usize::try_from((hash << PART_BITS) >> (u64::BITS - bits)).unwrap_or(0);
        let mut starts = vec![0_u32; (1 << bits) + 1];
        for run in &self.runs {
            run.hashes[range(run)].iter().for_each(|hash| starts[pile(*hash) + 1] += 1);
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut sorted = vec![(0, 0); count];
        for run in &self.runs {
            for (hash, record) in run.hashes[range(run)].iter().zip(&run.records[range(run)]) {
                let at = &mut starts[pile(*hash)];
                sorted[*at as usize] = (*hash, self.first + u64::from(*record));
                *at += 1;
            }
        }
        sort_nearly_sorted(&mut sorted);
        sorted
    }
}

/// Places that a pair is moved by at most before all pairs are sorted in another way.
const MOST_MOVES: usize = 64;

/// Sorts pairs hardly any of which is more than a few places from its own.
pub(super) fn sort_nearly_sorted(pairs: &mut [(u64, u64)]) {
    for at in 1..pairs.len() {
        let pair = pairs[at];
        let mut to = at;
        while to > 0 && pairs[to - 1] > pair {
            pairs[to] = pairs[to - 1];
            to -= 1;
        }
        pairs[to] = pair;
        if at - to > MOST_MOVES {
            return pairs.sort_unstable();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_sorted_however_far_they_are_from_their_place() {
        let noise = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (len, step) in [(0, 1), (1, 1), (2, 1), (1_000, 1), (1_000, 7), (1_000, 400), (5_000, 1_u64 << 40)] {
            // Ascends but for noise of `step`.
            let mut pairs: Vec<(u64, u64)> = (0..len).map(|n| (10 * n + noise(n) % (10 * step), n % 3)).collect();
            let mut expected = pairs.clone();
            expected.sort_unstable();
            sort_nearly_sorted(&mut pairs);
            assert!(pairs == expected, "{len} {step}");
        }
        let mut same: Vec<(u64, u64)> = (0..100_000).map(|n| (7, n)).collect();
        let expected = same.clone();
        sort_nearly_sorted(&mut same);
        assert_eq!(same, expected);
    }
}
