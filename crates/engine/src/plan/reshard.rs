//! Decides how a dataset is cut anew: how many shards there are, and where each ends.
//!
//! ```text
//! old shards    |   a   |   b   |   c   |        records that are kept, and their bytes
//! new shards    |    0    |    1    |  2  |      even in bytes, or of so many records
//! ```
//!
//! Shards that must not be mixed are in different groups. Each group is cut on its own.

use std::ops::Range;

use crate::{
    error::{Error, Result},
    units::Size,
};

/// How large the new shards are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// About so many bytes, as even as possible.
    Target(Size),
    /// So many shards, even in bytes.
    Shards(u64),
    /// So many shards of each group, whose numbers of records differ by at most one.
    Even(u64),
    /// So many records; the last shard has the rest.
    Records(u64),
}

/// What is kept of a shard, or of a group of shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Records.
    pub records: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

/// Returns the number of shards of each group; 0 for groups without records.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if so many shards are impossible.
pub fn shards_of(groups: &[Share], cut: Cut) -> Result<Vec<u64>> {
    let filled = |group: &Share| group.records > 0;
    match cut {
        Cut::Target(Size(0)) => Err(Error::usage("expected a --target-shard of at least one byte, found 0")),
        Cut::Records(0) => Err(Error::usage("expected --records-per-shard of at least 1, found 0")),
        Cut::Target(target) => Ok(groups
            .iter()
            .map(|group| {
                let nearest = group.bytes.saturating_add(target.0 / 2) / target.0;
                nearest.max(1).min(group.records)
            })
            .collect()),
        Cut::Even(shards) => {
            if let Some(group) = groups.iter().find(|group| filled(group) && group.records < shards) {
                return Err(too_few(group.records, shards, ""));
            }
            Ok(groups.iter().map(|group| if filled(group) { shards } else { 0 }).collect())
        }
        Cut::Records(records) => Ok(groups.iter().map(|group| group.records.div_ceil(records)).collect()),
        Cut::Shards(shards) => {
            let least = groups.iter().filter(|group| filled(group)).count() as u64;
            let most = groups.iter().map(|group| group.records).sum::<u64>();
            if shards < least.max(1) {
                return Err(Error::usage(format!("expected --shards of at least {}, found {shards}", least.max(1)))
                    .with_hint("shards of different constants, types, partitions or sort runs are never mixed"));
            }
            if shards > most {
                return Err(Error::usage(format!("expected --shards of at most {most}, found {shards}"))
                    .with_hint("a shard has at least one record"));
            }
            Ok(divide_shards(groups, shards))
        }
    }
}

/// Divides shards among groups, so that the largest shard is as small as possible.
fn divide_shards(groups: &[Share], shards: u64) -> Vec<u64> {
    let mut out: Vec<u64> = groups.iter().map(|group| u64::from(group.records > 0)).collect();
    for _ in out.iter().sum()..shards {
        let room = groups.iter().zip(&out).enumerate().filter(|(_, (group, shards))| **shards < group.records);
        let largest = room.max_by(|(i, (a, of_a)), (j, (b, of_b))| {
            let (a, b) = (u128::from(a.bytes) * u128::from(**of_b), u128::from(b.bytes) * u128::from(**of_a));
            a.cmp(&b).then(j.cmp(i))
        });
        let Some((largest, _)) = largest else { break };
        out[largest] += 1;
    }
    out
}

/// Returns the error if there are fewer records than even shards; `of` tells which part of a dataset they are, after a
/// space.
pub fn too_few(records: u64, shards: u64, of: &str) -> Error {
    Error::usage(format!("expected at least {shards} records{of} for {shards} even shards, found {records}")).with_hint(
        format!("a shard has at least one record: leave --even out, or say --shards {} at most", records.max(1)),
    )
}

/// Returns the records before each new shard but the first, for `shards` shards whose numbers of records differ by at
/// most one; the bytes, for shards that are even in bytes.
pub fn even_marks(bytes: u64, shards: u64) -> Vec<u64> {
    let mark = |shard: u64| u128::from(bytes) * u128::from(shard) / u128::from(shards.max(1));
    (1..shards).map(|shard| u64::try_from(mark(shard)).unwrap_or(u64::MAX)).collect()
}

/// Returns the shard in which a mark lies, and the bytes of that shard before it.
pub fn locate_mark(shares: &[Share], mark: u64) -> (usize, u64) {
    let mut before = 0_u64;
    for (number, share) in shares.iter().enumerate() {
        if mark < before.saturating_add(share.bytes) {
            return (number, mark - before);
        }
        before += share.bytes;
    }
    (shares.len(), 0)
}

/// Moves ends of shards, given as records before them, so that no shard is empty.
pub fn separate_ends(ends: &mut [u64], records: u64) {
    let mut least = 1;
    for end in ends.iter_mut() {
        *end = (*end).max(least);
        least = *end + 1;
    }
    let mut most = records.saturating_sub(1);
    for end in ends.iter_mut().rev() {
        *end = (*end).min(most);
        most = end.saturating_sub(1);
    }
}

/// Returns the parts of old shards that each new shard is made of: the number of the old shard, and which of its kept
/// records. `ends` are the records before each new shard but the first.
pub fn shard_parts(shares: &[Share], ends: &[u64]) -> Vec<Vec<(usize, Range<u64>)>> {
    let records = shares.iter().map(|share| share.records).sum();
    let mut out = Vec::with_capacity(ends.len() + 1);
    let (mut shard, mut before, mut start) = (0, 0_u64, 0_u64);
    for end in ends.iter().copied().chain([records]) {
        let mut parts = Vec::new();
        while start < end && shard < shares.len() {
            let shard_end = before + shares[shard].records;
            let until = shard_end.min(end);
            if until > start {
                parts.push((shard, start - before..until - before));
                start = until;
            }
            if until == shard_end {
                (shard, before) = (shard + 1, shard_end);
            }
        }
        out.push(parts);
    }
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(records: u64, bytes: u64) -> Share {
        Share { records, bytes }
    }

    #[test]
    fn shards_are_divided_by_bytes() {
        let groups = [share(10, 100), share(0, 0), share(10, 50), share(1, 500)];
        assert_eq!(shards_of(&groups, Cut::Shards(3)).unwrap(), [1, 0, 1, 1]);
        assert_eq!(shards_of(&groups, Cut::Shards(6)).unwrap(), [3, 0, 2, 1]);
        assert_eq!(shards_of(&groups, Cut::Shards(21)).unwrap(), [10, 0, 10, 1]);
        assert_eq!(shards_of(&groups, Cut::Records(4)).unwrap(), [3, 0, 3, 1]);
        assert_eq!(shards_of(&groups[..3], Cut::Even(7)).unwrap(), [7, 0, 7]);
        assert!(shards_of(&groups, Cut::Even(2)).unwrap_err().to_string().contains("found 1"));
        assert_eq!(shards_of(&groups, Cut::Target(Size(40))).unwrap(), [3, 0, 1, 1]);
        for wrong in [Cut::Shards(2), Cut::Shards(22), Cut::Shards(0), Cut::Records(0), Cut::Target(Size(0))] {
            assert!(shards_of(&groups, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn marks_lie_in_shards() {
        assert_eq!(even_marks(10, 3), [3, 6]);
        // 103 records for 8 ranks: 12 or 13 each.
        assert_eq!(even_marks(103, 8), [12, 25, 38, 51, 64, 77, 90]);
        let shares = [share(1, 4), share(0, 0), share(5, 6)];
        assert_eq!([0, 3, 4, 9, 10].map(|mark| locate_mark(&shares, mark)), [(0, 0), (0, 3), (2, 0), (2, 5), (3, 0)]);
    }

    proptest! {
        #[test]
        fn every_record_is_in_one_shard(
            records in prop::collection::vec(0..20_u64, 1..8),
            ends in prop::collection::vec(0..160_u64, 0..20),
        ) {
            let shares: Vec<Share> = records.iter().map(|records| share(*records, *records)).collect();
            let total: u64 = records.iter().sum();
            let mut ends = ends;
            ends.sort_unstable();
            ends.truncate(usize::try_from(total.saturating_sub(1)).unwrap());
            separate_ends(&mut ends, total);
            let made = shard_parts(&shares, &ends);
            prop_assert_eq!(made.len(), ends.len() + 1);
            prop_assert!(total == 0 || made.iter().all(|parts| !parts.is_empty()));
            let all: Vec<(usize, u64)> =
                made.into_iter().flatten().flat_map(|(shard, range)| range.map(move |row| (shard, row))).collect();
            let expected: Vec<(usize, u64)> =
                records.iter().enumerate().flat_map(|(shard, records)| (0..*records).map(move |row| (shard,
                    row))).collect();
            prop_assert_eq!(all, expected);
        }
    }
}
