//! Records that only one of two versions has, matched by their ids.
//!
//! Only sidecars of shards that hold such records are read; the run tables show which ones those are. If all rows fit
//! into memory, they are sorted by id there; otherwise they are partitioned into files by the hash of their ids, and
//! each file is processed by itself.
//!
//! Ids on both sides are compared by the content hashes in the sidecars. Where some are not stored, a first pass finds
//! these ids, and in a second one their rows have the content that is read from the shards.
//!
//! ```text
//! rows of both sides -> in memory, sorted by id -> pairs and singles
//!                    -> 32 files by 5 bits of the hash -> each of them in the same way, with the next 5 bits
//! ```

use std::{
    io::{BufRead, BufReader, Read, Write},
    num::NonZeroU64,
    sync::Arc,
};

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::{Change, Context, Only, RecordChanges, Wants, contents::WantedRows};
use crate::{
    dataset::{Run, SidecarRow, Snapshot, numbered_rows, stream_sidecar},
    error::{Error, Result},
    events::Cancel,
    ops::export::shown_hash,
    record::BATCH_ROWS,
    storage::{Location, Scratch, create_scratch},
};

/// Divisor of the memory limit for rows: sorting and writing need some memory, too.
const MEMORY_SHARE: u64 = 4;
/// Bits of the hash that choose a file; each file has a buffer.
const FILE_BITS: u32 = 5;
/// Maximum depth of partitioning: below it, the rows belong to a few ids with very many records.
const LEVELS: u32 = 10;
/// Memory of a row besides its texts, in bytes.
const ROW_BYTES: usize = 128;

/// A record that was added, removed or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordChange {
    /// What happened to it.
    pub change: Change,
    /// Record id.
    pub record_id: String,
    /// Subject id.
    pub subject_id: Option<String>,
    /// Place of the record in the first version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<RecordPlace>,
    /// Place of the record in the second version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<RecordPlace>,
}

/// Place of a record in a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordPlace {
    /// Path of the shard.
    pub shard: String,
    /// Row within the shard, from 0.
    pub ordinal: u64,
    /// Content hash, XXH3-64 in hexadecimal; absent if none is stored.
    pub hash: Option<String>,
}

/// Finds changes among records that one version alone has, and corrects the counts by ids that both versions have.
pub(super) fn find_changes(
    context: &Context<'_>,
    first: &Snapshot,
    second: &Snapshot,
    only: &Only,
    counts: &mut RecordChanges,
    visit: &mut dyn FnMut(RecordChange) -> Result<Wants>,
) -> Result<()> {
    let sides = [(first, &only.first), (second, &only.second)];
    if sides.iter().any(|(_, ranges)| ranges.is_empty()) {
        // Nothing to match: the remaining rows are not read unless they are wanted.
        for (side, (snapshot, ranges)) in (0..).zip(sides) {
            let side = DiffSide { snapshot, ranges, second: side == 1, wanted: &WantedRows::default() };
            side.read(&context.cancel, &mut |row| visit(row.into_change()))?;
        }
        return Ok(());
    }
    let mut wanted = [WantedRows::default(), WantedRows::default()];
    let mut matcher = read_sides(context, sides, &wanted)?;
    if matcher.unknown && first.entry().settings.shard_format.is_columnar() {
        matcher.finish(&context.cancel, &mut |same| {
            if same.iter().any(|row| row.second)
                && same.iter().any(|row| !row.second)
                && same.iter().any(Row::is_unknown)
            {
                same.iter().for_each(|row| wanted[usize::from(row.second)].add_row(&row.shard, row.ordinal));
            }
            Ok(())
        })?;
        matcher = read_sides(context, sides, &wanted)?;
    }
    let mut wants = Wants::More;
    let mut visit_change = |change: RecordChange| {
        match change.change {
            Change::Changed => counts.records_changed += 1,
            Change::Rewritten => {
                counts.records_rewritten += 1;
                return Ok(());
            }
            Change::Added | Change::Removed => {}
        }
        if wants == Wants::More {
            wants = visit(change)?;
        }
        Ok(())
    };
    matcher.finish(&context.cancel, &mut |same| pair_rows(same, &mut visit_change))?;
    let again = counts.records_changed + counts.records_rewritten;
    counts.records_added -= again;
    counts.records_removed -= again;
    Ok(())
}

/// Returns the rows of both sides, to be matched.
fn read_sides(
    context: &Context<'_>,
    sides: [(&Snapshot, &Vec<(u64, u64)>); 2],
    wanted: &[WantedRows; 2],
) -> Result<Matcher> {
    let budget = usize::try_from(context.memory.0 / MEMORY_SHARE).unwrap_or(usize::MAX);
    let mut matcher = Matcher::new(sides[0].0.dataset().store().location().clone(), budget, 0);
    for (second, ((snapshot, ranges), wanted)) in [false, true].into_iter().zip(sides.into_iter().zip(wanted)) {
        let side = DiffSide { snapshot, ranges, second, wanted };
        side.read(&context.cancel, &mut |row| matcher.add_row(row).map(|()| Wants::More))?;
    }
    Ok(matcher)
}

/// A record that one version alone has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    record_id: String,
    /// What tells its content from others of this id: the stored hash, or a fingerprint of its values; 0 if it is
    /// unknown.
    content: u128,
    second: bool,
    shard: Arc<str>,
    ordinal: u64,
    subject_id: Option<String>,
    /// Stored content hash.
    hash: Option<NonZeroU64>,
}

/// Returns a stored content hash as the sidecar states it.
fn stored_hash(hash: Option<NonZeroU64>) -> u64 {
    hash.map_or(0, NonZeroU64::get)
}

impl Row {
    fn record_place(&self) -> RecordPlace {
        RecordPlace { shard: self.shard.to_string(), ordinal: self.ordinal, hash: shown_hash(self.hash) }
    }

    fn is_unknown(&self) -> bool {
        self.content == 0
    }

    fn into_change(self) -> RecordChange {
        let place = Some(self.record_place());
        let (change, before, after) =
            if self.second { (Change::Added, None, place) } else { (Change::Removed, place, None) };
        RecordChange { change, record_id: self.record_id, subject_id: self.subject_id, before, after }
    }

    fn memory_bytes(&self) -> usize {
        ROW_BYTES + self.record_id.len() + self.subject_id.as_ref().map_or(0, String::len)
    }
}

/// What one version alone has.
struct DiffSide<'a> {
    snapshot: &'a Snapshot,
    /// Numbers of its records.
    ranges: &'a [(u64, u64)],
    second: bool,
    /// Rows whose contents are read.
    wanted: &'a WantedRows,
}

impl DiffSide<'_> {
    fn overlaps(&self, from: u64, until: u64) -> bool {
        let next = self.ranges.partition_point(|range| range.1 <= from);
        self.ranges.get(next).is_some_and(|range| range.0 < until)
    }

    /// Reads the rows of the records.
    fn read(&self, cancel: &Cancel, visit: &mut dyn FnMut(Row) -> Result<Wants>) -> Result<()> {
        if self.ranges.is_empty() {
            return Ok(());
        }
        let snapshot = self.snapshot;
        // In the order of the records, because the names of shards are random.
        let mut shards: Vec<(&str, Vec<&Run>)> = snapshot.runs_by_shard()?.into_iter().collect();
        shards.sort_by_key(|(shard, runs)| {
            let first = runs.iter().map(|run| run.first).min();
            let in_set = runs.iter().find_map(|run| run.scattered.as_ref()).map(|scattered| scattered.shard);
            (first, in_set, *shard)
        });
        for (shard, runs) in shards {
            if runs.iter().any(|run: &&Run| self.overlaps(run.first, run.end_record()))
                && self.read_shard(shard, &runs, cancel, visit)? == Wants::Count
            {
                break;
            }
        }
        Ok(())
    }

    fn read_shard(
        &self,
        shard: &str,
        runs: &[&Run],
        cancel: &Cancel,
        visit: &mut dyn FnMut(Row) -> Result<Wants>,
    ) -> Result<Wants> {
        let (snapshot, second) = (self.snapshot, self.second);
        let store = snapshot.dataset().store();
        let name: Arc<str> = shard.into();
        let mut numbers = numbered_rows(store, runs, snapshot.run_table()?)?;
        let mut contents = self.wanted.open_contents(snapshot, shard)?;
        let mut ordinal = 0;
        let Some(sidecar) = runs.first().map(|run| run.sidecar()) else { return Ok(Wants::More) };
        for batch in stream_sidecar(store, &sidecar, BATCH_ROWS)? {
            cancel.check()?;
            for row in batch? {
                let known = numbers.next().transpose()?.flatten();
                if known.is_some_and(|known| self.overlaps(known.record, known.record + 1)) {
                    let record_id = snapshot.shown_id(row.id_or_origin())?;
                    let SidecarRow { subject_id, hash, .. } = row;
                    let subject_id = subject_id.map(|stored| snapshot.shown_id(stored)).transpose()?;
                    let content = contents.content_at(ordinal)?.unwrap_or_else(|| stored_hash(hash).into());
                    let shard = Arc::clone(&name);
                    if visit(Row { record_id, content, second, shard, ordinal, subject_id, hash })? == Wants::Count {
                        return Ok(Wants::Count);
                    }
                }
                ordinal += 1;
            }
        }
        Ok(Wants::More)
    }
}

/// Rows that are to be matched by id.
struct Matcher {
    location: Location,
    budget: usize,
    level: u32,
    rows: Vec<Row>,
    /// Whether the content of some row is unknown.
    unknown: bool,
    bytes: usize,
    files: Vec<(Scratch, Box<dyn Write + Send>)>,
    /// Shards that rows in files refer to by index.
    shards: Vec<Arc<str>>,
}

impl Matcher {
    fn new(location: Location, budget: usize, level: u32) -> Self {
        Self {
            location,
            budget,
            level,
            rows: Vec::new(),
            unknown: false,
            bytes: 0,
            files: Vec::new(),
            shards: Vec::new(),
        }
    }

    fn add_row(&mut self, row: Row) -> Result<()> {
        self.unknown |= row.is_unknown();
        if !self.files.is_empty() {
            return self.spill_row(&row);
        }
        self.bytes += row.memory_bytes();
        self.rows.push(row);
        if self.bytes > self.budget && self.level < LEVELS {
            for _ in 0..1 << FILE_BITS {
                let file = create_scratch(&self.location)?;
                let sink: Box<dyn Write + Send> = Box::new(file.create_writer()?);
                self.files.push((file, sink));
            }
            let rows = std::mem::take(&mut self.rows);
            rows.iter().try_for_each(|row| self.spill_row(row))?;
        }
        Ok(())
    }

    fn spill_row(&mut self, row: &Row) -> Result<()> {
        let hash = xxh3_64(row.record_id.as_bytes()) >> (FILE_BITS * self.level);
        let file = usize::try_from(hash & ((1 << FILE_BITS) - 1)).unwrap_or(0);
        if self.shards.last() != Some(&row.shard) {
            self.shards.push(Arc::clone(&row.shard));
        }
        let shard = self.shards.len() as u64 - 1;
        if let Some((_, sink)) = self.files.get_mut(file) {
            encode_row(row, shard, sink.as_mut())?;
        }
        Ok(())
    }

    /// Passes the rows of each id to `visit`, those of equal content next to each other.
    fn finish(mut self, cancel: &Cancel, visit: &mut dyn FnMut(&[Row]) -> Result<()>) -> Result<()> {
        self.rows.sort_unstable();
        for same in self.rows.chunk_by(|a, b| a.record_id == b.record_id) {
            visit(same)?;
        }
        drop(self.rows);
        for (file, mut sink) in std::mem::take(&mut self.files) {
            cancel.check()?;
            sink.flush()?;
            drop(sink);
            let mut part = Self::new(self.location.clone(), self.budget, self.level + 1);
            let mut input = BufReader::new(file.open_reader()?);
            while let Some(row) = decode_row(&mut input, &self.shards)? {
                part.add_row(row)?;
            }
            part.finish(cancel, visit)?;
        }
        Ok(())
    }
}

/// Pairs the rows of one id: first those of equal content, then the others in order; unpaired rows were added or
/// removed.
fn pair_rows(rows: &[Row], visit: &mut dyn FnMut(RecordChange) -> Result<()>) -> Result<()> {
    let (mut first, mut second): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| !row.second);
    let change = |change, before: &Row, after: &Row| RecordChange {
        change,
        record_id: after.record_id.clone(),
        subject_id: after.subject_id.clone(),
        before: Some(before.record_place()),
        after: Some(after.record_place()),
    };
    // Both are sorted by content.
    let mut unlike = Vec::new();
    let mut others = std::mem::take(&mut second).into_iter().peekable();
    for before in std::mem::take(&mut first) {
        while let Some(after) = others.next_if(|after| after.content < before.content) {
            second.push(after);
        }
        match others.next_if(|after| after.content == before.content && !before.is_unknown()) {
            Some(after) => visit(change(Change::Rewritten, before, after))?,
            None => unlike.push(before),
        }
    }
    second.extend(others);
    let pairs = unlike.len().min(second.len());
    for (before, after) in unlike.iter().zip(&second) {
        visit(change(Change::Changed, before, after))?;
    }
    unlike[pairs..].iter().chain(&second[pairs..]).try_for_each(|row| visit((*row).clone().into_change()))
}

/// Encodes a row for a file: numbers little-endian, texts after their lengths; the length `u64::MAX` stands for an
/// absent subject.
fn encode_row(row: &Row, shard: u64, out: &mut dyn Write) -> Result<()> {
    let length = |text: Option<&String>| text.map_or(u64::MAX, |text| text.len() as u64);
    let subject = row.subject_id.as_ref();
    out.write_all(&row.content.to_le_bytes())?;
    let numbers = [
        u64::from(row.second),
        stored_hash(row.hash),
        shard,
        row.ordinal,
        length(Some(&row.record_id)),
        length(subject),
    ];
    for number in numbers {
        out.write_all(&number.to_le_bytes())?;
    }
    out.write_all(row.record_id.as_bytes())?;
    out.write_all(subject.map_or(&[][..], |subject| subject.as_bytes()))?;
    Ok(())
}

fn decode_row(input: &mut impl BufRead, shards: &[Arc<str>]) -> Result<Option<Row>> {
    if input.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let damaged = || Error::storage("a temporary file is not what was written to it");
    let mut content = [0; 16];
    input.read_exact(&mut content)?;
    let mut numbers = [0_u64; 6];
    for number in &mut numbers {
        let mut bytes = [0; 8];
        input.read_exact(&mut bytes)?;
        *number = u64::from_le_bytes(bytes);
    }
    let [second, hash, shard, ordinal, id, subject] = numbers;
    let mut text = |length: u64| -> Result<String> {
        let mut bytes = Vec::new();
        input.by_ref().take(length).read_to_end(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| damaged())
    };
    let record_id = text(id)?;
    let subject_id = if subject == u64::MAX { None } else { Some(text(subject)?) };
    let shard = usize::try_from(shard).ok().and_then(|shard| shards.get(shard)).ok_or_else(damaged)?;
    let (content, second, shard) = (u128::from_le_bytes(content), second == 1, Arc::clone(shard));
    Ok(Some(Row { record_id, content, second, shard, ordinal, subject_id, hash: NonZeroU64::new(hash) }))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn row(id: &str, hash: u64, second: bool) -> Row {
        let content = hash.into();
        Row {
            record_id: id.into(),
            content,
            second,
            shard: "s".into(),
            ordinal: hash,
            subject_id: None,
            hash: NonZeroU64::new(hash),
        }
    }

    fn matched(rows: Vec<Row>, budget: usize) -> Vec<(Change, String)> {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::parse(&folder.path().to_string_lossy(), folder.path()).unwrap();
        let mut matcher = Matcher::new(location, budget, 0);
        rows.into_iter().for_each(|row| matcher.add_row(row).unwrap());
        let mut out = Vec::new();
        let cancel = Cancel::default();
        matcher
            .finish(&cancel, &mut |same| {
                pair_rows(same, &mut |c| {
                    out.push((c.change, c.record_id));
                    Ok(())
                })
            })
            .unwrap();
        out.sort_by(|a, b| (&a.1, a.0 as u8).cmp(&(&b.1, b.0 as u8)));
        out
    }

    #[test]
    fn ids_are_matched_with_any_memory() {
        let mut rows = vec![row("gone", 1, false), row("new", 2, true)];
        rows.extend([row("other", 1, false), row("other", 2, true), row("same", 7, true), row("same", 7, false)]);
        // Two before, three after; one of them is unchanged.
        rows.extend([row("many", 1, false), row("many", 2, false)]);
        rows.extend([row("many", 2, true), row("many", 3, true), row("many", 4, true)]);
        // Without a hash, the content may have changed.
        rows.extend([row("unknown", 0, false), row("unknown", 0, true)]);
        let expected = [
            (Change::Removed, "gone"),
            (Change::Added, "many"),
            (Change::Changed, "many"),
            (Change::Rewritten, "many"),
            (Change::Added, "new"),
            (Change::Changed, "other"),
            (Change::Rewritten, "same"),
            (Change::Changed, "unknown"),
        ]
        .map(|(change, id)| (change, id.to_owned()));
        assert_eq!(matched(rows.clone(), usize::MAX), expected);
        assert_eq!(matched(rows.clone(), 300), expected);
        assert_eq!(matched(rows, 0), expected);
    }

    #[test]
    fn thousands_of_rows_round_trip_through_files() {
        let rows = (0..5_000_u64).flat_map(|i| {
            let id = format!("id-{i}");
            [row(&id, i + 1, false), row(&id, if i % 10 == 0 { i + 9 } else { i + 1 }, true)]
        });
        let found = matched(rows.collect(), 20_000);
        assert_eq!(found.len(), 5_000);
        assert_eq!(found.iter().filter(|(change, _)| *change == Change::Changed).count(), 500);
    }
}
