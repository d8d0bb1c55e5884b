//! The shards of a version as it was committed, and what erasures have left of each.
//!
//! Positions of records, and the hash over them, are those of the list as committed: an erasure from all versions
//! leaves holes in it, and every other record keeps its place. So what was committed must be known afterwards:
//!
//! ```text
//! a dataset    entry of the version: its lists, which never change    newest entry: rewritten, with the gone rows
//! its copy     list of shards: what was there to be copied            `basis`: both, for shards rewritten before
//! ```
//!
//! A replacement of which it is not known what it lacks counts as what was committed.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema},
};

use super::{bounds::check_number, cache::LogCache, gone::GoneRows, runs::Run, shards::ShardMeta, snapshot::Snapshot};
use crate::{
    codec::hex::to_hex,
    dataset::table::{self, sealed::Sealed, typed_column},
    error::{Error, Result},
    storage::checked_path,
};

/// A shard as its version was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedShard {
    /// Its path at that time.
    pub path: String,
    /// Records that it had.
    pub records: u64,
    /// Bytes that it had before compression.
    pub raw_bytes: u64,
    /// BLAKE3 of the object.
    pub checksum: [u8; 32],
    /// Sort key of shards.
    pub first_record: u64,
    /// Its record numbers as the basis states them.
    pub numbers: String,
    /// Path of the shard that has its records now; `None` if there are none left.
    pub now: Option<String>,
    /// Those of its records that this shard lacks, numbered from 0 in the order of their rows.
    pub gone: GoneRows,
}

/// Consecutive rows with consecutive record numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dataset) struct NumberedRows {
    /// First row in the shard, from 0.
    pub(in crate::dataset) row: u64,
    /// Record number of the first row.
    pub(in crate::dataset) number: u64,
    pub(in crate::dataset) records: u64,
}

/// Returns runs in the order of their rows; those that continue each other, in rows and numbers, become one.
pub(in crate::dataset) fn joined_rows(runs: &[&Run]) -> Vec<NumberedRows> {
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

/// Returns the record numbers of a shard as the basis states them.
fn numbers_text(runs: &[&Run]) -> Result<String> {
    if let [run] = runs
        && let Some(scattered) = &run.scattered
    {
        return Ok(format!("{}:{}", scattered.base.unwrap_or(0), run.numbers_table()?.seal));
    }
    let mut text = String::new();
    for rows in joined_rows(runs) {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a text does not fail.
        let _ = write!(text, "{comma}{}+{}", rows.number, rows.records);
    }
    Ok(text)
}

impl CommittedShard {
    /// Returns a shard that nothing was erased from.
    fn whole(shard: &ShardMeta, runs: &[&Run]) -> Result<Self> {
        Ok(Self {
            path: shard.path.clone(),
            records: shard.records,
            raw_bytes: shard.raw_bytes,
            checksum: shard.checksum,
            first_record: shard.first_record,
            numbers: numbers_text(runs)?,
            now: Some(shard.path.clone()),
            gone: GoneRows::default(),
        })
    }

    /// Whether its records are in the shard that was committed.
    pub(in crate::dataset) fn is_whole(&self) -> bool {
        self.now.as_ref() == Some(&self.path)
    }

    /// Returns the leaf of the basis, if its first record has this position.
    pub(in crate::dataset) fn leaf_text(&self, first: u64) -> String {
        let Self { records, path, checksum, numbers, .. } = self;
        format!("rows {first} {records} {path} {} {numbers}\n", to_hex(checksum))
    }
}

/// Returns the shards of a version as it was committed, in the order of its list.
///
/// # Errors
/// When a list cannot be read, or what is left of a shard is not what the lists say.
pub(in crate::dataset) fn committed_shards(snapshot: &Snapshot) -> Result<Vec<CommittedShard>> {
    let Some(before) = snapshot.before_erasures() else { return own_shards(snapshot) };
    let runs = snapshot.runs_by_shard()?;
    let read_now =
        |shard: &ShardMeta| CommittedShard::whole(shard, runs.get(shard.path.as_str()).map_or(&[][..], Vec::as_slice));
    let mut out = own_shards(&before.then)?;
    for shard in &mut out {
        let Some(fate) = shard.now.as_ref().and_then(|now| before.replacements.fate_of(now)) else { continue };
        match (fate.now, fate.gone) {
            (None, _) => shard.now = None,
            (Some(now), Some(gone)) => {
                shard.now = Some(now.path.clone());
                shard.gone = shard.gone.followed_by(&gone);
            }
            (Some(now), None) => *shard = CommittedShard { first_record: shard.first_record, ..read_now(now)? },
        }
    }
    Ok(out)
}

/// Returns those of the list of an entry, whatever erasures did later; of a copy, what erasures did before is known.
fn own_shards(snapshot: &Snapshot) -> Result<Vec<CommittedShard>> {
    let runs = snapshot.runs_by_shard()?;
    let mut out: Vec<CommittedShard> = snapshot.read_lists(&snapshot.entry().basis, read)?;
    let replaced: HashSet<String> = out.iter().filter_map(|shard| shard.now.clone()).collect();
    let live: HashMap<&str, u64> = snapshot.live_shards()?.iter().map(|s| (s.path.as_str(), s.records)).collect();
    for shard in &out {
        let left = shard.records.checked_sub(shard.gone.as_slice().len() as u64);
        if shard.now.as_ref().is_some_and(|now| live.get(now.as_str()).copied() != left) {
            return Err(Error::integrity("expected a shard with the records that erasures left, found another number")
                .at_location(snapshot.dataset().store().location().join(&shard.path).to_string()));
        }
    }
    for shard in snapshot.live_shards()?.iter().filter(|shard| !replaced.contains(&shard.path)) {
        out.push(CommittedShard::whole(shard, runs.get(shard.path.as_str()).map_or(&[][..], Vec::as_slice))?);
    }
    if !replaced.is_empty() || !snapshot.entry().basis.is_empty() {
        out.sort_by(|a, b| (a.first_record, &a.path).cmp(&(b.first_record, &b.path)));
    }
    Ok(out)
}

/// Returns the columns of the list of a copy.
fn basis_schema() -> Schema {
    let number = |name: &str| Field::new(name, DataType::UInt64, false);
    Schema::new(vec![
        Field::new("was", DataType::Utf8, false),
        number("records"),
        number("raw_bytes"),
        Field::new("checksum", DataType::Binary, false),
        number("first_record"),
        Field::new("numbers", DataType::Utf8, false),
        Field::new("now", DataType::Utf8, true),
        Field::new("gone", DataType::Binary, false),
    ])
}

/// Encodes rows of the list of a copy.
pub(in crate::dataset) fn to_batch(rows: &[CommittedShard]) -> Result<RecordBatch> {
    let numbers =
        |of: fn(&CommittedShard) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.path))),
        numbers(|row| row.records),
        numbers(|row| row.raw_bytes),
        Arc::new(BinaryArray::from_iter_values(rows.iter().map(|row| row.checksum))),
        numbers(|row| row.first_record),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.numbers))),
        Arc::new(rows.iter().map(|row| row.now.as_deref()).collect::<StringArray>()),
        Arc::new(BinaryArray::from_iter_values(rows.iter().map(|row| row.gone.encode()))),
    ];
    Ok(RecordBatch::try_new(Arc::new(basis_schema()), columns)?)
}

fn read(cache: &LogCache, list: &Sealed) -> Result<Vec<CommittedShard>> {
    let damaged = |e| table::damage_error(e, "the table is damaged", list.display_location(cache.store().as_ref()));
    decode_batches(&cache.read_list(list)?).map_err(damaged)
}

fn decode_batches(batches: &[RecordBatch]) -> Result<Vec<CommittedShard>> {
    let mut out = Vec::new();
    for batch in batches {
        let text = |name| typed_column::<StringArray>(batch, name);
        let number = |name| typed_column::<UInt64Array>(batch, name);
        let bytes = |name| typed_column::<BinaryArray>(batch, name);
        let (was, numbers, now) = (text("was")?, text("numbers")?, text("now")?);
        let (records, raw_bytes, first) = (number("records")?, number("raw_bytes")?, number("first_record")?);
        let (checksums, gone) = (bytes("checksum")?, bytes("gone")?);
        for i in 0..batch.num_rows() {
            let found = checksums.value(i).len();
            let checksum = checksums.value(i).try_into();
            let wrong = |_| Error::integrity(format!("expected a checksum of 32 bytes, found {found}"));
            out.push(CommittedShard {
                path: checked_path(was.value(i))?.to_owned(),
                records: check_number("records of a shard", records.value(i))?,
                raw_bytes: check_number("bytes of a shard", raw_bytes.value(i))?,
                checksum: checksum.map_err(wrong)?,
                first_record: check_number("the first record of a shard", first.value(i))?,
                numbers: numbers.value(i).to_owned(),
                now: now.is_valid(i).then(|| checked_path(now.value(i)).map(str::to_owned)).transpose()?,
                gone: GoneRows::decode(gone.value(i))?,
            });
        }
    }
    Ok(out)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        codec::seal::Seal,
        dataset::{log::runs::Scattered, table::beside::Beside},
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

    fn shard(runs: &[Run]) -> CommittedShard {
        let records = runs.iter().map(|run| run.records).sum();
        let meta = ShardMeta { path: "t/0.tar".to_owned(), records, ..ShardMeta::placeholder() };
        CommittedShard::whole(&meta, &runs.iter().collect::<Vec<_>>()).unwrap()
    }

    /// The format states these lines, so that other programs can compute them.
    #[test]
    fn leaves_state_numbers_whatever_the_runs() {
        let whole = shard(&[run(10, 5, 0), run(40, 5, 5)]).leaf_text(20);
        assert_eq!(whole, format!("rows 20 10 t/0.tar {} 10+5,40+5\n", "00".repeat(32)));
        assert_eq!(shard(&[run(10, 3, 0), run(13, 2, 3), run(40, 5, 5)]).leaf_text(20), whole);
        let mut scattered = run(3, 4, 0);
        scattered.scattered = Some(Scattered { span: 9, set: "x".into(), shard: 0, base: Some(3) });
        let table = Seal::for_bytes(b"numbers");
        let beside =
            scattered.beside.with_staged("t/0.tar", &BTreeMap::from([("_shardify/sidecar/t/0.records.table", table)]));
        scattered.beside = Arc::new(beside);
        let leaf = shard(&[scattered]).leaf_text(0);
        assert!(leaf.ends_with(&format!(" 3:{table}\n")), "{leaf}");
    }

    #[test]
    fn what_was_copied_is_read_back() {
        let some = shard(&[run(10, 5, 0)]);
        let rows = [
            CommittedShard { now: Some("u/0.tar".into()), gone: GoneRows::new(vec![0, 4]), ..some.clone() },
            CommittedShard { now: None, checksum: [7; 32], ..some },
        ];
        let batch = to_batch(&rows).unwrap();
        assert_eq!(decode_batches(std::slice::from_ref(&batch)).unwrap(), rows);
        let outside = CommittedShard { path: "../x".into(), ..rows[1].clone() };
        assert!(decode_batches(&[to_batch(&[outside]).unwrap()]).is_err());
    }
}
