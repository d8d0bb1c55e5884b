//! Segments of ids that ascend: the ids themselves, in order, which takes much less room than their hashes.
//!
//! ```text
//! _shardify/index/record/<txn>-0.segment/b=0000.table    id text | record u64      row group: ids[0..n)
//!                                                                                       ids[n..2n) ...
//! ```
//!
//! Neighbouring ids share most of their text, and records are numbered in the same order, so both columns are
//! differences. Row groups have their least and greatest id, so a lookup reads the footer and one row group. The only
//! bucket holds all ids.
//!
//! What a segment means does not depend on its form: its root is that of the pairs (hash, record) in the order of
//! hashes, which are made of the ids where they are needed ([`HashOrder`]), in as many passes over the segment as
//! memory asks for; therefore a segment with a root has at most [`MOST_HASHED`]. Private ids never ascend, because
//! tokens are random.

use std::{ops::RangeInclusive, sync::Arc};

use arrow::{
    array::{Array, RecordBatch, StringArray, StringBuilder, UInt64Array},
    datatypes::{DataType, Field, Schema},
};
use parquet::{
    arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
    file::statistics::Statistics,
    schema::types::SchemaDescriptor,
};
use rayon::prelude::*;

use super::{
    collect::SEGMENT_PAIRS,
    pairs::{self, PairSum},
    segment::{SegmentRef, WrittenBucket},
};
use crate::{
    codec::{hex::to_hex, sha256},
    dataset::{
        ids::{
            Wanted,
            ascending::{self, LEAST_GROUP_ROWS},
            width::HashWidth,
        },
        table::{
            self, Group, GroupWriter,
            chunks::{self, Chunk, Values},
            fetch::{Parts, group_range},
            sealed, typed_column,
        },
    },
    error::{Error, Result},
    id::IdHash,
    record::numbers::Progression,
    storage::Store,
};

/// Maximum pairs of a segment that is read in the order of hashes: such a reader reads it again for each part that fits
/// its memory.
pub(super) const MOST_HASHED: u64 = 16 << 20;

/// Maximum pairs of other segments: the footer, which a lookup reads, grows with them.
const MOST_PAIRS: u64 = 1 << 30;

/// Row groups that a segment is divided into, if they do not get too small or too large.
const GROUPS: u64 = 32;
const MOST_GROUP_ROWS: u64 = 1 << 20;

/// Row groups that are encoded at the same time, if they have no more rows than this together.
const GROUPS_AT_ONCE: usize = 8;
const ROWS_AT_ONCE: usize = 4 << 20;

/// Rows of a batch that a reader decodes.
const BATCH_ROWS: usize = 8_192;

/// Pairs sorted at a time by a reader in the order of hashes (16 bytes each).
pub(super) const HELD_PAIRS: u64 = 1 << 20;

/// Footer bytes of a row group, and of the rest of the footer; rounded up.
const FOOTER_GROUP_BYTES: u64 = 320;
const FOOTER_BYTES: u64 = 2 << 10;

/// Segments smaller than this are read whole.
const SMALL_BYTES: u64 = 128 << 10;

fn segment_schema() -> Schema {
    Schema::new(vec![ascending::id_field(), Field::new("record", DataType::UInt64, false)])
}

/// Maximum pairs of a segment whose hashes have this width.
pub(super) fn most_pairs(width: HashWidth) -> u64 {
    if width.has_proofs() { MOST_HASHED } else { MOST_PAIRS }
}

/// Rows of a row group of a segment.
fn group_rows(pairs: u64) -> usize {
    let rows = pairs.div_ceil(GROUPS).next_power_of_two().clamp(LEAST_GROUP_ROWS as u64, MOST_GROUP_ROWS);
    usize::try_from(rows).unwrap_or(BATCH_ROWS)
}

/// Returns columns as a row group. A lookup reads a row group as a whole, and their pages are so many that an index of
/// them would be most of what is read.
fn into_row_group(mut chunks: Vec<Chunk>, rows: usize) -> Group {
    for chunk in &mut chunks {
        (chunk.close.offset_index, chunk.close.column_index) = (None, None);
    }
    Group { chunks, rows: rows as u64 }
}

/// Writes the only bucket of a segment from ids in ascending order.
pub(super) struct OrderedWriter {
    table: GroupWriter,
    columns: SchemaDescriptor,
    group_rows: usize,
    ids: StringBuilder,
    records: Vec<u64>,
    full: Vec<(StringArray, UInt64Array)>,
}

impl OrderedWriter {
    pub(super) fn create(store: &dyn Store, segment: &SegmentRef) -> Result<Self> {
        let columns = table::parquet_schema(&segment_schema())?;
        let table = GroupWriter::create(store, &segment.bucket_path(0), &columns)?;
        let group_rows = group_rows(segment.pairs);
        Ok(Self { table, columns, group_rows, ids: StringBuilder::new(), records: Vec::new(), full: Vec::new() })
    }

    /// Appends the next ids, which are encoded, with their record numbers, as a row group.
    pub(super) fn append_group(&mut self, ids: &Chunk, records: &[Progression]) -> Result<()> {
        let rows = ids.row_count();
        let records = chunks::encode_chunk(&self.columns.column(1), rows, &Values::Counted(records))?;
        self.table.append_group(into_row_group(vec![ids.with_column(&self.columns.column(0))?, records], rows))
    }

    /// Appends the next id.
    pub(super) fn push(&mut self, id: &str, record: u64) -> Result<()> {
        self.ids.append_value(id);
        self.records.push(record);
        if self.records.len() < self.group_rows { Ok(()) } else { self.end_group() }
    }

    fn end_group(&mut self) -> Result<()> {
        let records = std::mem::take(&mut self.records);
        self.full.push((self.ids.finish(), UInt64Array::from(records)));
        if self.full.len() < GROUPS_AT_ONCE.min(ROWS_AT_ONCE / self.group_rows) { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        let encode = |(ids, records): &(StringArray, UInt64Array)| {
            let rows = ids.len();
            let chunks = vec![
                chunks::encode_chunk(&self.columns.column(0), rows, &Values::Texts(ids))?,
                chunks::encode_chunk(&self.columns.column(1), rows, &Values::Growing(records))?,
            ];
            Ok(into_row_group(chunks, rows))
        };
        let groups: Vec<Group> = self.full.par_iter().map(encode).collect::<Result<_>>()?;
        self.full.clear();
        groups.into_iter().try_for_each(|group| self.table.append_group(group))
    }

    /// Writes what is left and returns the bytes of all pairs.
    pub(super) fn finish_groups(&mut self) -> Result<u64> {
        if !self.records.is_empty() {
            self.end_group()?;
        }
        self.flush()?;
        Ok(self.table.bytes_written())
    }

    /// Finishes the bucket; `sum` is that of its pairs, `None` if the root of the segment does not follow from it.
    pub(super) fn finish(mut self, sum: Option<&PairSum>) -> Result<WrittenBucket> {
        let bytes = self.finish_groups()?;
        let (pairs, hash) = (self.table.row_count(), sum.and_then(PairSum::hash));
        if let Some(sum) = sum.filter(|sum| sum.pair_count() != pairs) {
            return Err(Error::internal(format!("{pairs} ids are written, but {} are hashed", sum.pair_count())));
        }
        if let Some(hash) = hash {
            self.table.add_metadata(pairs::KEY, to_hex(&hash));
        }
        Ok(WrittenBucket { staged: self.table.finish()?, pairs, bytes, hash })
    }
}

/// Reads the ids of a segment in order, batch by batch.
pub(super) struct IdStream {
    reader: ParquetRecordBatchReader,
    place: String,
    base: u64,
    last: Option<String>,
}

impl IdStream {
    pub(super) fn open(store: &Arc<dyn Store>, segment: &SegmentRef) -> Result<Self> {
        let bucket = segment.sealed_bucket(0)?;
        let place = bucket.display_location(store.as_ref());
        let object = sealed::open_sealed(store, &bucket)?;
        let reader = table::catch_panics(|| {
            let builder = ParquetRecordBatchReaderBuilder::try_new(object).map_err(table::parquet_error)?;
            builder.with_batch_size(BATCH_ROWS).build().map_err(table::parquet_error)
        })
        .map_err(|e| index_damage_error(&place, e))?;
        Ok(Self { reader, place, base: segment.record_base, last: None })
    }

    /// Returns the next ids and their absolute record numbers; `None` at the end.
    ///
    /// # Errors
    /// If the segment is damaged or its ids do not ascend.
    pub(super) fn next(&mut self) -> Result<Option<(StringArray, Vec<u64>)>> {
        let batch = table::catch_panics(|| Ok(self.reader.next().transpose()?))
            .map_err(|e| index_damage_error(&self.place, e))?;
        let Some(batch) = batch else { return Ok(None) };
        let (ids, records) = batch_columns(&batch).map_err(|e| index_damage_error(&self.place, e))?;
        let ascends = (1..ids.len()).all(|row| ids.value(row - 1) <= ids.value(row));
        let follows = ids.is_empty() || self.last.as_deref().is_none_or(|last| last <= ids.value(0));
        if !ascends || !follows || ids.null_count() + records.null_count() > 0 {
            return Err(Error::integrity("the id index is not sorted").at_location(self.place.clone()));
        }
        if let Some(last) = ids.len().checked_sub(1) {
            self.last = Some(ids.value(last).to_owned());
        }
        let records = records.values().iter().map(|record| self.base.saturating_add(*record)).collect();
        Ok(Some((ids.clone(), records)))
    }

    /// Passes every id with its record to `visit`.
    ///
    /// # Errors
    /// Like [`next`](Self::next), and those of `visit`.
    pub(super) fn each_id(mut self, visit: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        while let Some((ids, records)) = self.next()? {
            for (row, record) in records.into_iter().enumerate() {
                visit(ids.value(row), record)?;
            }
        }
        Ok(())
    }
}

fn batch_columns(batch: &RecordBatch) -> Result<(&StringArray, &UInt64Array)> {
    Ok((typed_column(batch, "id")?, typed_column(batch, "record")?))
}

fn index_damage_error(place: &str, cause: Error) -> Error {
    table::damage_error(cause, "the id index is damaged", place.to_owned())
}

/// Reads the pairs of some range of hashes of a segment in the order of hashes, in bounded memory: the ids are read
/// once for each part of the range that has as many pairs as are held.
pub(super) struct HashOrder {
    store: Arc<dyn Store>,
    segment: SegmentRef,
    /// Parts of the range that are still to be read, the next one last.
    parts: Vec<RangeInclusive<u64>>,
    pairs: Vec<(u64, u64)>,
    at: usize,
}

impl HashOrder {
    pub(super) fn new(store: &Arc<dyn Store>, segment: &SegmentRef, hashes: &RangeInclusive<u64>, held: u64) -> Self {
        let width = u128::from(hashes.end() - hashes.start()) + 1;
        let expected = (u128::from(segment.pairs) * width) >> u64::BITS;
        let parts = expected.div_ceil(u128::from(held.max(1))).clamp(1, width.min(1 << 16));
        let bound =
            |part: u128| u64::try_from(width * part / parts).map_or(u64::MAX, |at| hashes.start().saturating_add(at));
        let range = |part: u128| {
            let end = if part + 1 == parts { *hashes.end() } else { bound(part + 1) - 1 };
            bound(part)..=end
        };
        let parts = (0..parts).rev().map(range).collect();
        Self { store: Arc::clone(store), segment: segment.clone(), parts, pairs: Vec::new(), at: 0 }
    }

    /// Replaces the content of `out` with the next pairs; returns false at the end.
    ///
    /// # Errors
    /// If the segment is missing or damaged, or its ids do not ascend.
    pub(super) fn next_batch(&mut self, out: &mut Vec<(u64, u64)>) -> Result<bool> {
        while self.at == self.pairs.len() {
            let Some(part) = self.parts.pop() else { return Ok(false) };
            self.read(&part)?;
        }
        let end = self.pairs.len().min(self.at + BATCH_ROWS);
        out.clear();
        out.extend_from_slice(&self.pairs[self.at..end]);
        self.at = end;
        Ok(true)
    }

    fn read(&mut self, part: &RangeInclusive<u64>) -> Result<()> {
        (self.pairs, self.at) = (Vec::new(), 0);
        let mut stream = IdStream::open(&self.store, &self.segment)?;
        let mut hashes = Vec::new();
        while let Some((ids, records)) = stream.next()? {
            hashes.clear();
            sha256::sha256_heads((0..ids.len()).map(|row| ids.value(row).as_bytes()), &mut hashes);
            let cut = hashes.iter().map(|hash| self.segment.hashes.truncate_hash(IdHash(*hash)).0);
            let pairs = cut.zip(records);
            self.pairs.extend(pairs.filter(|(hash, _)| part.contains(hash)));
        }
        self.pairs.par_sort_unstable();
        Ok(())
    }
}

/// Passes all pairs of a segment to `visit`, in the order of ids; returns how many there are.
///
/// # Errors
/// If the segment is missing or damaged, and those of `visit`.
pub(super) fn each_pair(
    store: &Arc<dyn Store>,
    segment: &SegmentRef,
    visit: &mut dyn FnMut(IdHash, u64) -> Result<()>,
) -> Result<u64> {
    let (mut stream, mut hashes, mut count) = (IdStream::open(store, segment)?, Vec::new(), 0);
    while let Some((ids, records)) = stream.next()? {
        hashes.clear();
        sha256::sha256_heads((0..ids.len()).map(|row| ids.value(row).as_bytes()), &mut hashes);
        count += records.len() as u64;
        let mut pairs = hashes.iter().zip(records);
        pairs.try_for_each(|(hash, record)| visit(segment.hashes.truncate_hash(IdHash(*hash)), record))?;
    }
    Ok(count)
}

/// Writes the only bucket of another segment, with the records of a segment for which `number` returns a number, and
/// that number, which is relative to the base of the other segment and ascends as the old one does.
///
/// # Errors
/// If the segment is missing or damaged, or a store fails.
pub(in crate::dataset) fn rewrite_ordered(
    from: &Arc<dyn Store>,
    to: &dyn Store,
    segment: &SegmentRef,
    made: &SegmentRef,
    number: &dyn Fn(u64) -> Option<u64>,
) -> Result<WrittenBucket> {
    let mut written = OrderedWriter::create(to, made)?;
    IdStream::open(from, segment)?.each_id(&mut |id, record| match number(record) {
        Some(record) => written.push(id, record),
        None => Ok(()),
    })?;
    if !made.hashes.has_proofs() {
        return written.finish(None);
    }
    let (mut sum, mut pairs) = (PairSum::new(made.hashes), Vec::new());
    let mut sorted = HashOrder::new(from, segment, &(0..=u64::MAX), HELD_PAIRS);
    while sorted.next_batch(&mut pairs)? {
        let kept: Vec<(u64, u64)> = pairs.iter().filter_map(|(hash, record)| Some((*hash, number(*record)?))).collect();
        sum.add_pairs(&kept);
    }
    written.finish(Some(&sum))
}

/// Returns the first and the last id of a segment; `None` if it has none.
///
/// # Errors
/// If it is missing or damaged.
pub(super) fn id_bounds(store: &Arc<dyn Store>, segment: &SegmentRef) -> Result<Option<(String, String)>> {
    let bucket = segment.sealed_bucket(0)?;
    let builder = table::open_table(store, &bucket)?;
    let groups = builder.metadata().num_row_groups();
    let end = |group: usize, last: bool| -> Result<Option<String>> {
        let rows = usize::try_from(builder.metadata().row_group(group).num_rows()).unwrap_or(0);
        let builder = table::open_table(store, &bucket)?.with_row_groups(vec![group]).with_batch_size(1);
        let builder = builder.with_offset(if last { rows.saturating_sub(1) } else { 0 });
        let mut reader = builder.build().map_err(table::parquet_error)?;
        let batch = reader.next().transpose()?;
        batch.map(|batch| Ok::<_, Error>(batch_columns(&batch)?.0.value(0).to_owned())).transpose()
    };
    let ends = table::catch_panics(|| match groups.checked_sub(1) {
        None => Ok(None),
        Some(last) => Ok(end(0, false)?.zip(end(last, true)?)),
    });
    ends.map_err(|e| index_damage_error(&bucket.display_location(store.as_ref()), e))
}

/// Passes the record numbers of some ids, which are in the order of their texts, to `visit`, with the number of the id.
///
/// # Errors
/// If the segment is missing or damaged.
pub(super) fn lookup_ids(
    store: &Arc<dyn Store>,
    segment: &SegmentRef,
    wanted: &[&Wanted<'_>],
    visit: &mut dyn FnMut(usize, u64),
) -> Result<()> {
    let object = segment.sealed_bucket(0)?;
    // A run may write smaller row groups than a merge.
    let rows = if segment.pairs > SEGMENT_PAIRS as u64 { group_rows(segment.pairs) } else { LEAST_GROUP_ROWS };
    let groups = segment.pairs / rows as u64 + 1;
    let all = if segment.bytes > 0 && segment.bytes < SMALL_BYTES { segment.bytes } else { 0 };
    let mut parts = Parts::open(store, &object, FOOTER_BYTES + groups * FOOTER_GROUP_BYTES + all, None)?;
    let read = || {
        let metadata = parts.read_metadata(false)?;
        let footer = Arc::clone(metadata.metadata());
        let may_hold = |group: &usize| has_one(footer.row_group(*group).column(0).statistics(), wanted);
        for group in (0..footer.num_row_groups()).filter(may_hold) {
            parts.fetch_ranges(&[group_range(&footer, group)])?;
            let reader = parts.clone().into_reader(metadata.clone()).with_row_groups(vec![group]);
            for batch in reader.with_batch_size(BATCH_ROWS).build().map_err(table::parquet_error)? {
                in_batch(&batch?, wanted, &mut |number, record| visit(number, segment.record_base + record))?;
            }
        }
        Ok(())
    };
    table::catch_panics(read).map_err(|e| index_damage_error(&object.display_location(store.as_ref()), e))
}

/// Whether a row group may have one of some ids: true unless its statistics exclude it.
fn has_one(statistics: Option<&Statistics>, wanted: &[&Wanted<'_>]) -> bool {
    let Some(Statistics::ByteArray(known)) = statistics else { return true };
    let (Some(least), Some(greatest)) = (known.min_opt(), known.max_opt()) else { return true };
    let first = wanted.partition_point(|wanted| wanted.id.as_bytes() < least.data());
    wanted.get(first).is_some_and(|wanted| wanted.id.as_bytes() <= greatest.data())
}

/// Passes the records of a batch that have one of some ids to `visit`.
fn in_batch(batch: &RecordBatch, wanted: &[&Wanted<'_>], visit: &mut dyn FnMut(usize, u64)) -> Result<()> {
    let (ids, records) = batch_columns(batch)?;
    let Some(last) = ids.len().checked_sub(1) else { return Ok(()) };
    let start = wanted.partition_point(|wanted| wanted.id < ids.value(0));
    let mut at = 0;
    for (number, wanted) in wanted.iter().enumerate().skip(start).take_while(|(_, wanted)| wanted.id <= ids.value(last))
    {
        at += first_at_least(ids, at, wanted.id);
        let same = (at..ids.len()).take_while(|row| ids.value(*row) == wanted.id).count();
        records.values()[at..at + same].iter().for_each(|record| visit(number, *record));
        at += same;
    }
    Ok(())
}

/// Returns how many ids from some row on are less than an id.
fn first_at_least(ids: &StringArray, from: usize, id: &str) -> usize {
    let (mut low, mut high) = (from, ids.len());
    while low < high {
        let middle = low.midpoint(high);
        if ids.value(middle) < id { low = middle + 1 } else { high = middle }
    }
    low - from
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::{
        super::{
            MergedSegment, SegmentTree, SegmentWriter, Segments, lookup_one, merge_into_one, read_segment,
            renumber_segments,
        },
        *,
    };
    use crate::{
        dataset::{
            ids::{
                IdKind,
                column::{IdColumn, IdHashes},
                numbers::{NumberSet, Renumbering},
                width::HashPlan,
            },
            sidecar::{SidecarColumns, SidecarGroups, SourceRuns},
        },
        events::Cancel,
        id::{IdHash, TransactionId},
        record::numbers::Numbers,
        storage::RemoteStore,
    };

    fn memory() -> Arc<dyn Store> {
        Arc::new(RemoteStore::in_memory().unwrap())
    }

    /// Writes the ids of consecutive records from `first` on, a part at a time, and one by one if they are to be
    /// hashed.
    fn written(store: &Arc<dyn Store>, parts: &[Vec<String>], first: u64, hashed: bool) -> Vec<SegmentRef> {
        let mut writer =
            SegmentWriter::new(Arc::clone(store), IdKind::Record, &HashPlan::default(), TransactionId::fresh());
        let mut record = first;
        for part in parts {
            let hashes = IdColumn::from(part.iter().map(Some).collect::<StringArray>()).to_hashes();
            if hashed {
                hashes.iter().for_each(|(row, hash)| writer.push(hash, record + row as u64).unwrap());
            } else {
                writer.push_all(hashes, record).unwrap();
            }
            record += part.len() as u64;
        }
        let Segments { refs, staged, .. } = Segments::finish_all([writer]).unwrap();
        store.publish_staged(staged).unwrap();
        refs
    }

    fn find(store: &Arc<dyn Store>, segment: &SegmentRef, id: &str) -> Vec<u64> {
        lookup_one(store, segment, Wanted { hash: IdHash::from_id(id), id }).unwrap()
    }

    fn merged(store: &Arc<dyn Store>, segments: Vec<SegmentRef>, bytes: u64) -> SegmentRef {
        let MergedSegment { output, staged, .. } = merge_into_one(store, segments, bytes, &Cancel::default()).unwrap();
        store.publish_staged(staged).unwrap();
        output
    }

    #[test]
    fn the_form_of_a_segment_changes_nothing_but_its_size() {
        let store = memory();
        let numbers = |from: u64, to: u64, step: usize| (from..to).step_by(step).map(|n| n.to_string()).collect();
        let cases: [Vec<Vec<String>>; 5] = [
            vec![numbers(1_000_000, 1_040_000, 1), numbers(1_040_000, 1_100_000, 7)],
            vec![(0..100_000).map(|n| format!("PAT-{:06}", n / 25)).collect()],
            vec![vec!["one".into()]],
            vec![vec![String::new(), "a".into(), "a".into()], vec!["a".into(), "\u{e4}".into(), "\u{1f600}".into()]],
            vec![(0..70_000).map(|n| format!("{}{n:06}", "x".repeat(100))).collect()],
        ];
        for parts in cases {
            let [ordered] = written(&store, &parts, 70, false).try_into().unwrap();
            let [hashed] = written(&store, &parts, 70, true).try_into().unwrap();
            assert!(ordered.ordered && !hashed.ordered);
            assert!(ordered.pairs < 1_000 || ordered.bytes * 4 < hashed.bytes, "{} {}", ordered.bytes, hashed.bytes);
            assert_eq!((ordered.pairs, ordered.root), (hashed.pairs, hashed.root));
            assert!(read_segment(&store, &ordered).unwrap() == read_segment(&store, &hashed).unwrap());
            let ids: Vec<&String> = parts.iter().flatten().collect();
            for id in ids.iter().step_by(1 + ids.len() / 7).chain([ids.last().unwrap()]) {
                assert!(!find(&store, &ordered, id).is_empty());
                assert_eq!(find(&store, &ordered, id), find(&store, &hashed, id), "{id}");
            }
            for id in ["", "0", "PAT-", "\u{10ffff}"] {
                assert_eq!(find(&store, &ordered, id), find(&store, &hashed, id), "{id}");
                let tree = |segment| SegmentTree::new(&store, segment, Some(IdHash::from_id(id))).unwrap();
                let (one, other) = (tree(&ordered), tree(&hashed));
                let shown = |tree: &SegmentTree| {
                    let bucket = tree.bucket.as_ref().unwrap();
                    let blocks =
                        bucket.blocks.iter().map(|block| (block.index, block.pairs.clone(), block.path.clone()));
                    (tree.text.clone(), bucket.text.clone(), bucket.path.clone(), blocks.collect::<Vec<_>>())
                };
                assert_eq!(shown(&one), shown(&other));
            }
        }
    }

    #[test]
    fn pairs_come_in_the_order_of_hashes_however_few_are_held() {
        let store = memory();
        let ids: Vec<String> = (0..5_000).map(|n| format!("{n:05}")).collect();
        let [segment] = written(&store, &[ids], 0, false).try_into().unwrap();
        let all: Vec<(u64, u64)> = read_segment(&store, &segment).unwrap().iter().map(|(h, r)| (h.0, *r)).collect();
        let (third, half) = (u64::MAX / 3, u64::MAX / 2);
        for held in [50, 900, 4_000, 1 << 20] {
            for range in [0..=u64::MAX, third..=half, 0..=0, u64::MAX..=u64::MAX, third..=third + 1] {
                let (mut sorted, mut batch) = (Vec::new(), Vec::new());
                let mut stream = HashOrder::new(&store, &segment, &range, held);
                while stream.next_batch(&mut batch).unwrap() {
                    sorted.extend_from_slice(&batch);
                }
                let expected: Vec<_> = all.iter().filter(|pair| range.contains(&pair.0)).copied().collect();
                assert!(sorted == expected, "{held} {range:?}");
            }
        }
    }

    #[test]
    fn ids_that_follow_each_other_stay_ordered_when_they_are_merged() {
        let store = memory();
        let ids = |from: u64, to: u64| (from..to).map(|n| format!("{n:07}")).collect::<Vec<_>>();
        let segment = |from, to, base| {
            let [segment] = written(&store, &[ids(from, to)], 0, false).try_into().unwrap();
            segment.shifted_by(base)
        };
        // They were not added in the order of their ids.
        let inputs = vec![segment(50_000, 90_000, 0), segment(0, 50_000, 40_000), segment(100_000, 100_001, 90_000)];
        let follow = merged(&store, inputs.clone(), 1 << 20);
        assert!(follow.ordered && follow.bytes < 40_000, "{follow:?}");
        assert_eq!(find(&store, &follow, "0000007"), [40_007]);
        assert_eq!(find(&store, &follow, "0089999"), [39_999]);
        assert_eq!(find(&store, &follow, "0100000"), [90_000]);
        assert!(find(&store, &follow, "0090000").is_empty());
        // The ids of one lie between those of another.
        let between = merged(&store, [inputs, vec![segment(10, 20, 100_000)]].concat(), 1 << 20);
        assert!(!between.ordered);
        assert_eq!(find(&store, &between, "0000011"), [40_011, 100_001]);
        let (follow, between) = (read_segment(&store, &follow).unwrap(), read_segment(&store, &between).unwrap());
        assert_eq!((follow.len(), between.len()), (90_001, 90_011));
        assert!(follow.iter().all(|pair| between.binary_search(pair).is_ok()));
    }

    #[test]
    fn records_that_are_kept_are_found_under_their_new_numbers() {
        let (from, to) = (memory(), memory());
        let ids: Vec<String> = (0..40_000).map(|n| format!("{n:06}")).collect();
        let segments = written(&from, &[ids], 0, false);
        let mut kept = NumberSet::default();
        (0..40_000).filter(|record| record % 7 == 3).for_each(|record| kept.insert_range(record, 1));
        let numbering = Renumbering::from_kept(kept);
        let made =
            renumber_segments(&from, to.as_ref(), &segments, &numbering, &TransactionId::fresh(), &Cancel::default())
                .unwrap();
        to.publish_staged(made.staged).unwrap();
        let [segment] = made.refs.try_into().unwrap();
        assert!(segment.ordered && segment.pairs == 5_714);
        assert_eq!(find(&to, &segment, "000010"), [1]);
        assert!(find(&to, &segment, "000011").is_empty());
        assert!(read_segment(&to, &segment).is_ok());
    }

    #[test]
    fn ids_that_do_not_ascend_are_hashed() {
        let store = memory();
        let ids = |numbers: &mut dyn Iterator<Item = u64>| numbers.map(|n| format!("{n:07}")).collect::<Vec<_>>();
        let part = |from: u64| ids(&mut (from..from + 1_000));
        let forms = |parts: &[Vec<String>]| -> Vec<(bool, u64)> {
            written(&store, parts, 0, false).iter().map(|segment| (segment.ordered, segment.pairs)).collect()
        };
        assert_eq!(forms(&[part(0), part(5_000), part(5_999)]), [(true, 3_000)]);
        assert_eq!(forms(&[part(5_000), part(0)]), [(false, 2_000)]);
        assert_eq!(forms(&[ids(&mut [2, 1].into_iter())]), [(false, 2)]);
        // Many that ascend are a segment of their own.
        let many = ids(&mut (0..1_048_576));
        assert_eq!(forms(&[many, part(5), part(7)]), [(true, 1 << 20), (false, 2_000)]);
        // Hashes take less than ids of many random digits.
        let random = |n: u64| format!("{n:05}{:09x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 28);
        let random: Vec<String> = (0..20_000).map(random).collect();
        assert!(written(&store, &[random], 0, false)[0].bytes < 20_000 * 10);
    }

    /// Ids as the thread that encodes rows has them, in columns of the sidecar.
    fn encoded(texts: &StringArray) -> IdHashes {
        let (rows, ids) = (texts.len(), IdColumn::join_parts(std::slice::from_ref(texts)).unwrap());
        let columns = SidecarColumns {
            record_ids: None,
            subject_ids: Some(ids.clone()),
            extents: None,
            sources: SourceRuns::for_source(&"a.csv".into(), rows),
            rows: None,
            hashes: Numbers::repeat_number(0, rows),
            fingerprints: None,
        };
        SidecarGroups::encode_columns(&columns, false).unwrap().share_columns(IdKind::Subject, ids.to_hashes())
    }

    #[test]
    fn columns_of_sidecars_are_taken_as_they_are() {
        let store = memory();
        // Subjects have many records, so their column has a dictionary; the sidecar of many rows has several row
        // groups.
        for repeats in [1, 40] {
            let parts = [0..300_000_u64, 300_000..300_010, 300_010..340_000, 340_000..340_020];
            let text = |n: u64| format!("PAT-{:07}", n / repeats);
            let mut writer =
                SegmentWriter::new(Arc::clone(&store), IdKind::Subject, &HashPlan::default(), TransactionId::fresh());
            for (part, form) in parts.iter().zip([0, 1, 2, 1]) {
                let texts: StringArray = part.clone().map(|n| Some(text(n))).collect();
                let hashes = match form {
                    0 => encoded(&texts),
                    1 => IdColumn::from(texts).to_hashes(),
                    _ => IdColumn::from(texts).to_hashes().into_encoded().unwrap(),
                };
                writer.push_all(hashes, part.start).unwrap();
            }
            let Segments { refs, staged, .. } = Segments::finish_all([writer]).unwrap();
            store.publish_staged(staged).unwrap();
            let [segment] = refs.try_into().unwrap();
            assert!(segment.ordered && segment.pairs == 340_020, "{segment:?}");
            for n in [0, 39, 150_001, 299_999, 300_000, 300_009, 300_010, 339_999, 340_000, 340_019] {
                let same: Vec<u64> =
                    (n / repeats * repeats..340_020).take_while(|m| m / repeats == n / repeats).collect();
                assert_eq!(find(&store, &segment, &text(n)), same);
            }
            assert!(find(&store, &segment, "PAT-").is_empty());
            // The root is that of the same pairs in the order of hashes.
            assert_eq!(read_segment(&store, &segment).unwrap().len(), 340_020);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let store = memory();
        let ids: Vec<String> = (0..4_000).map(|n| format!("{n:06}")).collect();
        let [segment] = written(&store, &[ids], 0, false).try_into().unwrap();
        let wrong = SegmentRef { root: Some([7; 32]), ..segment.clone() };
        assert!(read_segment(&store, &wrong).is_err());
        let fewer = SegmentRef { pairs: 3_999, ..segment.clone() };
        assert!(read_segment(&store, &fewer).is_err());
        // An entry that says the wrong form.
        let hashed = SegmentRef { ordered: false, ..segment.clone() };
        let wanted = Wanted { hash: IdHash::from_id("000001"), id: "000001" };
        assert!(lookup_one(&store, &hashed, wanted).is_err() && read_segment(&store, &hashed).is_err());
        store.delete(&segment.bucket_path(0)).unwrap();
        assert!(lookup_one(&store, &segment, wanted).is_err());
    }
}
