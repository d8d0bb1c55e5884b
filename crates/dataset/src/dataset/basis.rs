//! Positions of records in a version, and the basis, the hash that names them.
//!
//! A position is the number of a live row over the live shards of a version, or of one split, in the order of the list.
//! Training loaders compute their order from positions, so two versions with equal positions need equal hashes: the
//! basis is the Merkle root ([`merkle`]) over a leaf for each shard.
//!
//! ```text
//! leaf       "rows <first position> <records> <path> <BLAKE3> <numbers>\n"
//! <numbers>  "<first number>+<records>,..." in the order of the rows; of a scattered run "<base>:<seal of its table>"
//! ```
//!
//! A row is live if a run of the version has it; others of a shard have no position. Runs that continue each other are
//! one in a leaf, so that the basis does not depend on how the log cuts them. Opening reads the entry, the shards and
//! the runs, no footer and no sidecar.
//!
//! Both are those of the version as it was committed. What an erasure from all versions has removed since is a *hole*,
//! a position without a record. All others stay, so no other record changes its step.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use crate::{
    codec::merkle::{self, Hash},
    dataset::{
        log::{
            committed::{CommittedShard, NumberedRows, committed_shards, joined_rows},
            runs::Run,
            shards::ShardMeta,
            snapshot::Snapshot,
        },
        sidecar::numbers::ScatteredNumbers,
    },
    error::{Error, Result},
    record::split::split_of_path,
    storage::Store,
};

/// A shard with the positions of its records.
#[derive(Debug)]
pub struct PositionedShard {
    committed: CommittedShard,
    first: u64,
    /// What has its records now; `None` if there are none left.
    meta: Option<ShardMeta>,
    /// Rows of that, and their numbers.
    rows: Vec<NumberedRows>,
    /// The run whose table states its record numbers; otherwise its runs do.
    scattered: Option<Box<Run>>,
}

/// Consecutive positions, and the rows of a shard that have their records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionedRows {
    /// Index of the shard in [`Positions::shards`].
    pub shard: usize,
    /// Consecutive positions.
    pub positions: Range<u64>,
    /// Those of them that have no record any more, ascending.
    pub holes: Vec<u64>,
    /// Rows in the shard, from 0: one for each of the others.
    pub rows: Range<u64>,
}

/// The positions of the records of a version, or of one of its splits.
#[derive(Debug)]
pub struct Positions {
    shards: Vec<PositionedShard>,
    records: u64,
}

impl Positions {
    /// Finds the live rows of a version, or of one split.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if there is no such split; when a list cannot be read.
    pub fn of_snapshot(snapshot: &Snapshot, split: Option<&str>) -> Result<Self> {
        let runs = snapshot.runs_by_shard()?;
        let live: HashMap<&str, &ShardMeta> =
            snapshot.live_shards()?.iter().map(|shard| (shard.path.as_str(), shard)).collect();
        let mut committed = committed_shards(snapshot)?;
        let splits: HashSet<String> =
            committed.iter().filter_map(|shard| split_of_path(&shard.path)).map(str::to_owned).collect();
        committed.retain(|shard| split.is_none() || split_of_path(&shard.path) == split);
        let (mut shards, mut records) = (Vec::new(), 0_u64);
        for committed in committed {
            let meta = committed.now.as_deref().map(|now| {
                let missing = || Error::integrity("expected what is left of a shard, found none").at_location(now);
                live.get(now).copied().ok_or_else(missing)
            });
            let meta = meta.transpose()?.cloned();
            let runs = meta.as_ref().and_then(|meta| runs.get(meta.path.as_str())).map_or(&[][..], Vec::as_slice);
            let scattered = match runs {
                [run] if run.scattered.is_some() => Some(Box::new(Run::clone(run))),
                _ => None,
            };
            let first = records;
            records += committed.records;
            let shard = PositionedShard { committed, first, meta, rows: joined_rows(runs), scattered };
            shard.check_records()?;
            shards.push(shard);
        }
        match split {
            Some(split) if shards.is_empty() && !has_split(snapshot, split) => Err(unknown_split(splits, split)),
            _ => Ok(Self { shards, records }),
        }
    }

    /// Returns the number of positions.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the number of holes.
    pub fn holes(&self) -> u64 {
        self.shards.iter().map(PositionedShard::holes).sum()
    }

    /// Returns the shards in the order of their positions.
    pub fn shards(&self) -> &[PositionedShard] {
        &self.shards
    }

    /// Returns the rows at consecutive positions, cut where another shard begins or rows are not live. Positions from
    /// the number of records on are left out.
    pub fn rows_at(&self, positions: Range<u64>) -> Vec<PositionedRows> {
        let (mut at, mut found) = (positions.start, Vec::new());
        let mut shard = self.shards.partition_point(|shard| shard.first + shard.committed.records <= at);
        while let Some(of) = self.shards.get(shard).filter(|_| at < positions.end) {
            let end = positions.end.min(of.first + of.committed.records);
            of.rows_between(at - of.first..end - of.first, |positions, holes, rows| {
                found.push(PositionedRows { shard, positions, holes, rows });
            });
            (at, shard) = (end, shard + 1);
        }
        found
    }

    /// Returns the position of a row of a shard, given by its path; `None` if it has none.
    pub fn position_of(&self, shard: &str, row: u64) -> Option<u64> {
        let is_in = |known: &&PositionedShard| known.meta.as_ref().is_some_and(|meta| meta.path == shard);
        self.shards.iter().filter(is_in).find_map(|known| known.position_of_row(row))
    }

    /// Returns the basis.
    pub fn basis(&self) -> Hash {
        let leaf = |shard: &PositionedShard| merkle::hash_leaf(shard.committed.leaf_text(shard.first).as_bytes());
        merkle::merkle_root(&self.shards.iter().map(leaf).collect::<Vec<Hash>>())
    }
}

impl PositionedShard {
    /// Returns the shard as it was committed.
    pub fn committed(&self) -> &CommittedShard {
        &self.committed
    }

    /// Returns the facts about the shard that has its records now; `None` if there are none left.
    pub fn meta(&self) -> Option<&ShardMeta> {
        self.meta.as_ref()
    }

    /// Returns the position of its first record.
    pub fn first_position(&self) -> u64 {
        self.first
    }

    /// Returns the number of its positions that have no record any more.
    fn holes(&self) -> u64 {
        self.committed.records - self.meta.as_ref().map_or(0, |meta| meta.records)
    }

    /// Returns the table of its record numbers, if they are not in order; it has to be opened for each use.
    ///
    /// # Errors
    /// When the table is missing or damaged.
    pub fn open_numbers(&self, store: &Arc<dyn Store>) -> Result<Option<ScatteredNumbers>> {
        self.scattered.as_ref().map(|run| ScatteredNumbers::open(store, run)).transpose()
    }

    /// Appends the numbers of consecutive live rows, as the runs state them.
    pub fn push_numbers(&self, rows: Range<u64>, out: &mut Vec<u64>) {
        let first = self.rows.partition_point(|known| known.row + known.records <= rows.start);
        for known in self.rows.iter().skip(first).take_while(|known| known.row < rows.end) {
            let (start, end) = (rows.start.max(known.row), rows.end.min(known.row + known.records));
            out.extend((start..end).map(|row| known.number + (row - known.row)));
        }
    }

    /// Fails unless what is left of the shard is what it had without what is gone.
    fn check_records(&self) -> Result<()> {
        let Some(meta) = &self.meta else { return Ok(()) };
        let gone = self.committed.gone.as_slice();
        let expected = self.committed.records.checked_sub(gone.len() as u64);
        if expected == Some(meta.records) && gone.last().is_none_or(|last| *last < self.committed.records) {
            return Ok(());
        }
        let (had, gone, left) = (self.committed.records, gone.len(), meta.records);
        let message = format!("the log is damaged: expected {had} records without {gone} erased ones, found {left}");
        Err(Error::integrity(message).at_location(meta.path.clone()))
    }

    /// Passes some of the records that it had, given by their numbers among them: consecutive positions, holes among
    /// them, and the rows of the others.
    fn rows_between(&self, had: Range<u64>, mut visit: impl FnMut(Range<u64>, Vec<u64>, Range<u64>)) {
        let gone = &self.committed.gone;
        let mut begun = had.start;
        let mut pass = |end: u64, rows: Range<u64>| {
            let holes = match &self.meta {
                Some(_) => gone.within(&(begun..end)).iter().map(|row| self.first + row).collect(),
                None => (self.first + begun..self.first + end).collect(),
            };
            visit(self.first + begun..self.first + end, holes, rows);
            begun = end;
        };
        if self.meta.is_none() {
            pass(had.end, 0..0);
            return;
        }
        let left = had.start - gone.before(had.start)..had.end - gone.before(had.end);
        let (mut before, mut open) = (0, None::<Range<u64>>);
        for known in &self.rows {
            let (start, end) = (left.start.max(before), left.end.min(before + known.records));
            if start < end {
                let rows = known.row + (start - before)..known.row + (end - before);
                match open.as_mut().filter(|open| open.end == rows.start) {
                    Some(open) => open.end = rows.end,
                    None => open.replace(rows).into_iter().for_each(|rows| pass(gone.old_row(start), rows)),
                }
            }
            before += known.records;
        }
        // Holes alone have no row.
        pass(had.end, open.unwrap_or(0..0));
    }

    /// Returns the position of a row; `None` if it is not live.
    fn position_of_row(&self, row: u64) -> Option<u64> {
        let mut before = 0;
        for known in &self.rows {
            if (known.row..known.row + known.records).contains(&row) {
                return Some(self.first + self.committed.gone.old_row(before + (row - known.row)));
            }
            before += known.records;
        }
        None
    }
}

fn has_split(snapshot: &Snapshot, split: &str) -> bool {
    let splits = snapshot.entry().settings.split.as_ref();
    splits.is_some_and(|splits| splits.shares.names().any(|known| known == split))
}

fn unknown_split(splits: HashSet<String>, split: &str) -> Error {
    let mut known: Vec<String> = splits.into_iter().collect();
    known.sort_unstable();
    let found = if known.is_empty() { "a dataset that is not divided".to_owned() } else { known.join(", ") };
    Error::usage(format!("expected a dataset with the split `{split}`, found {found}"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{
        dataset::{log::gone::GoneRows, table::beside::Beside},
        id::Version,
    };

    fn run(first: u64, records: u64, ordinal: u64) -> Run {
        Run {
            first,
            records,
            shard: "t/0.tar".to_owned(),
            ordinal,
            from: Version(1),
            until: None,
            since: None,
            scattered: None,
            beside: Beside::placeholder(),
        }
    }

    /// A shard that had so many records, of which some are gone.
    fn shard(first: u64, records: u64, gone: &[u64], runs: &[Run]) -> PositionedShard {
        let left = runs.iter().map(|run| run.records).sum();
        let meta = ShardMeta { path: "t/0.tar".to_owned(), records: left, ..ShardMeta::placeholder() };
        let committed = CommittedShard {
            path: "t/0.tar".to_owned(),
            records,
            raw_bytes: 0,
            checksum: [0; 32],
            first_record: 0,
            numbers: String::new(),
            now: Some("t/0.tar".to_owned()),
            gone: GoneRows::new(gone.to_vec()),
        };
        let rows = joined_rows(&runs.iter().collect::<Vec<_>>());
        let shard = PositionedShard { committed, first, meta: Some(meta), rows, scattered: None };
        shard.check_records().unwrap();
        shard
    }

    fn rows(shard: usize, positions: Range<u64>, holes: &[u64], rows: Range<u64>) -> PositionedRows {
        PositionedRows { shard, positions, holes: holes.to_vec(), rows }
    }

    #[test]
    fn positions_lead_to_live_rows_and_their_numbers() {
        let runs = [run(10, 3, 0), run(13, 2, 3), run(40, 5, 7)];
        let shards = vec![shard(0, 10, &[], &runs), shard(10, 3, &[], &[run(5, 3, 0)])];
        let positions = Positions { records: 13, shards };
        assert_eq!(
            positions.rows_at(0..13),
            [rows(0, 0..5, &[], 0..5), rows(0, 5..10, &[], 7..12), rows(1, 10..13, &[], 0..3)]
        );
        assert_eq!(positions.rows_at(4..6), [rows(0, 4..5, &[], 4..5), rows(0, 5..6, &[], 7..8)]);
        assert_eq!(positions.rows_at(9..11), [rows(0, 9..10, &[], 11..12), rows(1, 10..11, &[], 0..1)]);
        assert_eq!((positions.rows_at(13..20), positions.rows_at(3..3)), (vec![], vec![]));
        let placed = [(0, Some(0)), (4, Some(4)), (5, None), (6, None), (7, Some(5)), (11, Some(9)), (12, None)];
        assert!(placed.iter().all(|(row, position)| positions.shards[0].position_of_row(*row) == *position));
        assert_eq!(positions.shards[1].position_of_row(2), Some(12));
        let mut numbers = Vec::new();
        positions.shards[0].push_numbers(7..9, &mut numbers);
        positions.shards[0].push_numbers(2..5, &mut numbers);
        assert_eq!(numbers, [40, 41, 12, 13, 14]);
    }

    #[test]
    fn what_is_gone_leaves_holes() {
        let runs = [run(10, 1, 0), run(12, 3, 1), run(40, 2, 9)];
        let shards = vec![shard(0, 9, &[1, 5, 8], &runs), shard(9, 2, &[], &[run(5, 2, 0)])];
        let mut positions = Positions { records: 11, shards };
        assert_eq!(positions.holes(), 3);
        assert_eq!(
            positions.rows_at(0..11),
            [rows(0, 0..6, &[1, 5], 0..4), rows(0, 6..9, &[8], 9..11), rows(1, 9..11, &[], 0..2)]
        );
        assert_eq!(positions.rows_at(1..2), [rows(0, 1..2, &[1], 0..0)]);
        assert_eq!(positions.rows_at(5..7), [rows(0, 5..7, &[5], 9..10)]);
        assert_eq!(positions.rows_at(4..6), [rows(0, 4..6, &[5], 3..4)]);
        positions.shards[0].meta = None;
        positions.shards[0].rows.clear();
        assert_eq!(positions.rows_at(7..10), [rows(0, 7..9, &[7, 8], 0..0), rows(1, 9..10, &[], 0..1)]);
        assert_eq!(positions.holes(), 9);
    }
}
