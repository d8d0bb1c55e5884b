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
//! the runs, no footer and no sidecar. An erasure from all versions replaces shards of older versions, and so changes
//! their basis.

use std::{fmt::Write as _, ops::Range, sync::Arc};

use crate::{
    codec::{
        hex::to_hex,
        merkle::{self, Hash},
    },
    dataset::{
        log::{runs::Run, shards::ShardMeta, snapshot::Snapshot},
        sidecar::numbers::ScatteredNumbers,
    },
    error::{Error, Result},
    record::split::split_of_path,
    storage::Store,
};

/// Consecutive live rows with consecutive record numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NumberedRows {
    /// First row in the shard, from 0.
    row: u64,
    /// Record number of the first row.
    number: u64,
    records: u64,
}

/// What states the record numbers of a shard.
#[derive(Debug)]
enum NumberSource {
    /// Its runs.
    Runs,
    /// The table of its scattered run.
    Table(Box<Run>),
}

/// A shard with the positions of its records.
#[derive(Debug)]
pub struct PositionedShard {
    meta: ShardMeta,
    first: u64,
    rows: Vec<NumberedRows>,
    numbers: NumberSource,
}

/// Rows of a shard that have consecutive positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionedRows {
    /// Index of the shard in [`Positions::shards`].
    pub shard: usize,
    /// Rows in the shard, from 0.
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
        let live = snapshot.live_shards()?;
        let chosen = live.iter().filter(|shard| split.is_none() || split_of_path(&shard.path) == split);
        let (mut shards, mut records) = (Vec::new(), 0_u64);
        for meta in chosen {
            let runs = runs.get(meta.path.as_str()).map_or(&[][..], Vec::as_slice);
            let (rows, numbers) = match runs {
                [run] if run.scattered.is_some() => (joined_rows(runs), NumberSource::Table(Box::new(Run::clone(run)))),
                runs => (joined_rows(runs), NumberSource::Runs),
            };
            shards.push(PositionedShard { meta: meta.clone(), first: records, rows, numbers });
            records += meta.records;
        }
        match split {
            Some(split) if shards.is_empty() && !has_split(snapshot, split) => Err(unknown_split(live, split)),
            _ => Ok(Self { shards, records }),
        }
    }

    /// Returns the number of positions.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the shards in the order of their positions.
    pub fn shards(&self) -> &[PositionedShard] {
        &self.shards
    }

    /// Returns the rows at consecutive positions, cut where another shard begins or rows are not live. Positions from
    /// the number of records on are left out.
    pub fn rows_at(&self, positions: Range<u64>) -> Vec<PositionedRows> {
        let (mut at, mut found) = (positions.start, Vec::new());
        let mut shard = self.shards.partition_point(|shard| shard.first + shard.meta.records <= at);
        while let Some(of) = self.shards.get(shard).filter(|_| at < positions.end) {
            let end = positions.end.min(of.first + of.meta.records);
            of.rows_between(at - of.first..end - of.first, |rows| found.push(PositionedRows { shard, rows }));
            (at, shard) = (end, shard + 1);
        }
        found
    }

    /// Returns the position of a row of a shard, given by its path; `None` if it has none.
    pub fn position_of(&self, shard: &str, row: u64) -> Option<u64> {
        self.shards.iter().filter(|known| known.meta.path == shard).find_map(|known| known.position_of_row(row))
    }

    /// Returns the basis.
    ///
    /// # Errors
    /// When a shard with a scattered run has no table of numbers.
    pub fn basis(&self) -> Result<Hash> {
        let leaf = |shard: &PositionedShard| Ok(merkle::hash_leaf(shard.leaf_text()?.as_bytes()));
        Ok(merkle::merkle_root(&self.shards.iter().map(leaf).collect::<Result<Vec<Hash>>>()?))
    }
}

impl PositionedShard {
    /// Returns the facts about the shard.
    pub fn meta(&self) -> &ShardMeta {
        &self.meta
    }

    /// Returns the position of its first record.
    pub fn first_position(&self) -> u64 {
        self.first
    }

    /// Returns the table of its record numbers, if they are not in order; it has to be opened for each use.
    ///
    /// # Errors
    /// When the table is missing or damaged.
    pub fn open_numbers(&self, store: &Arc<dyn Store>) -> Result<Option<ScatteredNumbers>> {
        match &self.numbers {
            NumberSource::Runs => Ok(None),
            NumberSource::Table(run) => ScatteredNumbers::open(store, run).map(Some),
        }
    }

    /// Appends the numbers of consecutive live rows, as the runs state them.
    pub fn push_numbers(&self, rows: Range<u64>, out: &mut Vec<u64>) {
        let first = self.rows.partition_point(|known| known.row + known.records <= rows.start);
        for known in self.rows.iter().skip(first).take_while(|known| known.row < rows.end) {
            let (start, end) = (rows.start.max(known.row), rows.end.min(known.row + known.records));
            out.extend((start..end).map(|row| known.number + (row - known.row)));
        }
    }

    /// Passes the rows of some of its live records, given by their numbers among them.
    fn rows_between(&self, live: Range<u64>, mut visit: impl FnMut(Range<u64>)) {
        let (mut before, mut open) = (0, None::<Range<u64>>);
        for known in &self.rows {
            let (start, end) = (live.start.max(before), live.end.min(before + known.records));
            if start < end {
                let rows = known.row + (start - before)..known.row + (end - before);
                match open.as_mut().filter(|open| open.end == rows.start) {
                    Some(open) => open.end = rows.end,
                    None => open.replace(rows).into_iter().for_each(&mut visit),
                }
            }
            before += known.records;
        }
        open.into_iter().for_each(visit);
    }

    /// Returns the position of a row; `None` if it is not live.
    fn position_of_row(&self, row: u64) -> Option<u64> {
        let mut before = self.first;
        for known in &self.rows {
            if (known.row..known.row + known.records).contains(&row) {
                return Some(before + (row - known.row));
            }
            before += known.records;
        }
        None
    }

    fn leaf_text(&self) -> Result<String> {
        let ShardMeta { records, path, checksum, .. } = &self.meta;
        let mut text = format!("rows {} {records} {path} {} ", self.first, to_hex(checksum));
        match &self.numbers {
            NumberSource::Table(run) => {
                let base = run.scattered.as_ref().and_then(|scattered| scattered.base).unwrap_or(0);
                text += &format!("{base}:{}", run.numbers_table()?.seal);
            }
            NumberSource::Runs => {
                for (i, rows) in self.rows.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    // Writing to a text does not fail.
                    let _ = write!(text, "{comma}{}+{}", rows.number, rows.records);
                }
            }
        }
        text.push('\n');
        Ok(text)
    }
}

/// Returns runs in the order of their rows; those that continue each other, in rows and numbers, become one.
fn joined_rows(runs: &[&Run]) -> Vec<NumberedRows> {
    let mut out: Vec<NumberedRows> = Vec::new();
    for run in runs.iter().filter(|run| run.records > 0) {
        let rows = NumberedRows { row: run.ordinal, number: run.first, records: run.records };
        let continues =
            |last: &&mut NumberedRows| last.row + last.records == rows.row && last.number + last.records == rows.number;
        match out.last_mut().filter(continues) {
            Some(last) => last.records += rows.records,
            None => out.push(rows),
        }
    }
    out
}

fn has_split(snapshot: &Snapshot, split: &str) -> bool {
    let splits = snapshot.entry().settings.split.as_ref();
    splits.is_some_and(|splits| splits.shares.names().any(|known| known == split))
}

fn unknown_split(live: &[ShardMeta], split: &str) -> Error {
    let mut known: Vec<&str> = live.iter().filter_map(|shard| split_of_path(&shard.path)).collect();
    known.sort_unstable();
    known.dedup();
    let found = if known.is_empty() { "a dataset that is not divided".to_owned() } else { known.join(", ") };
    Error::usage(format!("expected a dataset with the split `{split}`, found {found}"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        codec::seal::Seal,
        dataset::{
            log::runs::Scattered,
            table::{beside::Beside, sealed::Sealed},
        },
        id::Version,
    };

    fn run(first: u64, records: u64, ordinal: u64) -> Run {
        let sidecar = Sealed::new("_shardify/sidecar/t/0.table", Seal::for_bytes(b""));
        Run {
            first,
            records,
            shard: "t/0.tar".to_owned(),
            ordinal,
            from: Version(1),
            until: None,
            since: None,
            scattered: None,
            beside: Arc::new(Beside::new(sidecar)),
        }
    }

    fn shard(first: u64, runs: &[Run]) -> PositionedShard {
        let records = runs.iter().map(|run| run.records).sum();
        let meta = ShardMeta { path: "t/0.tar".to_owned(), records, ..ShardMeta::placeholder() };
        let rows = joined_rows(&runs.iter().collect::<Vec<_>>());
        PositionedShard { meta, first, rows, numbers: NumberSource::Runs }
    }

    #[test]
    fn positions_lead_to_live_rows_and_their_numbers() {
        let runs = [run(10, 3, 0), run(13, 2, 3), run(40, 5, 7)];
        let positions = Positions { records: 13, shards: vec![shard(0, &runs), shard(10, &[run(5, 3, 0)])] };
        let rows = |shard, rows| PositionedRows { shard, rows };
        assert_eq!(positions.rows_at(0..13), [rows(0, 0..5), rows(0, 7..12), rows(1, 0..3)]);
        assert_eq!(positions.rows_at(4..6), [rows(0, 4..5), rows(0, 7..8)]);
        assert_eq!(positions.rows_at(9..11), [rows(0, 11..12), rows(1, 0..1)]);
        assert_eq!((positions.rows_at(13..20), positions.rows_at(3..3)), (vec![], vec![]));
        let placed = [(0, Some(0)), (4, Some(4)), (5, None), (6, None), (7, Some(5)), (11, Some(9)), (12, None)];
        assert!(placed.iter().all(|(row, position)| positions.shards[0].position_of_row(*row) == *position));
        assert_eq!(positions.shards[1].position_of_row(2), Some(12));
        let mut numbers = Vec::new();
        positions.shards[0].push_numbers(7..9, &mut numbers);
        positions.shards[0].push_numbers(2..5, &mut numbers);
        assert_eq!(numbers, [40, 41, 12, 13, 14]);
    }

    /// The format states these lines, so that other programs can compute them.
    #[test]
    fn leaves_state_numbers_whatever_the_runs() {
        let whole = shard(20, &[run(10, 5, 0), run(40, 5, 5)]).leaf_text().unwrap();
        assert_eq!(whole, format!("rows 20 10 t/0.tar {} 10+5,40+5\n", "00".repeat(32)));
        assert_eq!(shard(20, &[run(10, 3, 0), run(13, 2, 3), run(40, 5, 5)]).leaf_text().unwrap(), whole);
        let mut scattered = run(3, 4, 0);
        scattered.scattered = Some(Scattered { span: 9, set: "x".into(), shard: 0, base: Some(3) });
        let table = Seal::for_bytes(b"numbers");
        let beside =
            scattered.beside.with_staged("t/0.tar", &BTreeMap::from([("_shardify/sidecar/t/0.records.table", table)]));
        scattered.beside = Arc::new(beside);
        let numbers = NumberSource::Table(Box::new(scattered));
        let leaf = PositionedShard { numbers, ..shard(0, &[run(3, 4, 0)]) }.leaf_text().unwrap();
        assert!(leaf.ends_with(&format!(" 3:{table}\n")), "{leaf}");
    }
}
