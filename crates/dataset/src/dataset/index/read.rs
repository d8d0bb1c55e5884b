//! Reading segments: the pairs of a few hashes with few requests, or all of them in order.

use std::{
    ops::{Range, RangeInclusive},
    sync::Arc,
};

use arrow::array::{RecordBatch, UInt64Array};
use parquet::{
    arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
    file::{metadata::ParquetMetaData, statistics::Statistics},
};
use rayon::prelude::*;

use super::{
    ordered::{self, HELD_PAIRS, HashOrder},
    segment::{ROW_GROUP_ROWS, SegmentRef, bucket_of},
    sum::{SegmentSum, mismatch_error},
};
use crate::{
    dataset::{
        ids::{Wanted, width::HashWidth},
        table::{
            self,
            fetch::{Parts, group_range},
            sealed, typed_column,
        },
    },
    error::{Error, Result},
    id::IdHash,
    storage::Store,
};

/// Footer bytes per row group, and fixed footer bytes; rounded up.
const FOOTER_GROUP_BYTES: u64 = 160;
const FOOTER_BYTES: u64 = 2 << 10;

/// Row groups held in memory at a time.
const MAX_GROUPS_IN_MEMORY: usize = 64;

/// Returns the record numbers that a segment has for an id, or for others with its hash.
///
/// # Errors
/// If its bucket is missing or damaged.
pub(in crate::dataset) fn lookup_one(store: &Arc<dyn Store>, segment: &SegmentRef, id: Wanted<'_>) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    if segment.ordered {
        ordered::lookup_ids(store, segment, &[&id], &mut |_, record| found.push(record))?;
    } else {
        in_bucket(store, segment, segment.bucket_of(id.hash), &[id.hash], &mut |_, record| found.push(record))?;
    }
    Ok(found)
}

/// Returns the record numbers that a segment has for any of some ids, or others with their hashes; they are in
/// ascending order of hashes. Every bucket that may contain one is read once.
///
/// # Errors
/// If a bucket is missing or damaged.
pub(in crate::dataset) fn lookup_many(
    store: &Arc<dyn Store>,
    segment: &SegmentRef,
    ids: &[Wanted<'_>],
) -> Result<Vec<(IdHash, u64)>> {
    if segment.ordered {
        let mut texts: Vec<&Wanted<'_>> = ids.iter().collect();
        texts.par_sort_unstable_by_key(|wanted| wanted.id);
        let mut found = Vec::new();
        let visit = &mut |number: usize, record| found.extend(texts.get(number).map(|wanted| (wanted.hash, record)));
        ordered::lookup_ids(store, segment, &texts, visit)?;
        return Ok(found);
    }
    let mut hashes: Vec<IdHash> = ids.iter().map(|wanted| wanted.hash).collect();
    hashes.dedup();
    let buckets: Vec<&[IdHash]> = hashes.chunk_by(|a, b| segment.bucket_of(*a) == segment.bucket_of(*b)).collect();
    let found: Vec<Vec<(IdHash, u64)>> = buckets
        .into_par_iter()
        .map(|hashes| {
            let mut found = Vec::new();
            in_bucket(store, segment, segment.bucket_of(hashes[0]), hashes, &mut |hash, record| {
                found.push((hash, record));
            })?;
            Ok(found)
        })
        .collect::<Result<_>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// Passes the pairs of one bucket that have one of some ascending hashes to `visit`.
fn in_bucket(
    store: &Arc<dyn Store>,
    segment: &SegmentRef,
    bucket: u64,
    hashes: &[IdHash],
    visit: &mut dyn FnMut(IdHash, u64),
) -> Result<()> {
    let object = segment.sealed_bucket(bucket)?;
    let footer = FOOTER_BYTES + (segment.pairs / segment.buckets / ROW_GROUP_ROWS as u64 + 2) * FOOTER_GROUP_BYTES;
    let (tail, guess) = match hashes {
        [hash] => match guess_position(segment, *hash) {
            Guess::Within(range) => (footer, Some(range)),
            Guess::AtEnd(bytes) => (footer + bytes, None),
            Guess::None => (footer, None),
        },
        _ => (footer, None),
    };
    let mut parts = Parts::open(store, &object, tail, guess)?;
    let damaged = |e: Error| index_damage_error(object.display_location(store.as_ref()), e);
    table::catch_panics(|| {
        let metadata = parts.read_metadata(false)?;
        let footer = Arc::clone(metadata.metadata());
        check_column(segment.hashes, &footer)?;
        let groups: Vec<usize> = (0..footer.num_row_groups())
            .filter(|i| may_hold(hash_bounds(segment.hashes, footer.row_group(*i).column(0).statistics()), hashes))
            .collect();
        for groups in groups.chunks(MAX_GROUPS_IN_MEMORY) {
            parts.fetch_ranges(&groups.iter().map(|group| group_range(&footer, *group)).collect::<Vec<_>>())?;
            let reader = parts.clone().into_reader(metadata.clone()).with_row_groups(groups.to_vec());
            for batch in reader.with_batch_size(ROW_GROUP_ROWS).build().map_err(table::parquet_error)? {
                in_batch(&batch?, segment.hashes, hashes, &mut |hash, record| {
                    visit(hash, segment.record_base + record)
                })?;
            }
        }
        Ok(())
    })
    .map_err(damaged)
}

fn index_damage_error(place: String, cause: Error) -> Error {
    table::damage_error(cause, "the id index is damaged", place)
}

/// Checks that a bucket has hashes of this width: the bounds of others would exclude every row group.
fn check_column(width: HashWidth, footer: &ParquetMetaData) -> Result<()> {
    let columns = footer.file_metadata().schema_descr().columns();
    match columns.first().map(|column| column.name()) {
        Some(name) if name == width.column_name() => Ok(()),
        other => {
            let found = other.unwrap_or("no column");
            Err(Error::integrity(format!(
                "expected the column `{}` of the id index, found {found}",
                width.column_name()
            )))
        }
    }
}

/// Returns the columns of a batch of a bucket: hashes as they are stored, and record numbers.
fn batch_columns(width: HashWidth, batch: &RecordBatch) -> Result<(&UInt64Array, &UInt64Array)> {
    Ok((typed_column(batch, width.column_name())?, typed_column(batch, "record")?))
}

/// Returns the pairs of a batch of a bucket of a segment, with the record numbers that the bucket has.
pub(in crate::dataset) fn bucket_pairs(width: HashWidth, batch: &RecordBatch) -> Result<Vec<(u64, u64)>> {
    let (hashes, records) = batch_columns(width, batch)?;
    let hashes = hashes.values().iter().map(|hash| width.of_stored(*hash));
    Ok(hashes.zip(records.values().iter().copied()).collect())
}

/// Passes the pairs of a batch that have one of some ascending hashes to `visit`.
fn in_batch(
    batch: &RecordBatch,
    width: HashWidth,
    hashes: &[IdHash],
    visit: &mut dyn FnMut(IdHash, u64),
) -> Result<()> {
    let (known, records) = batch_columns(width, batch)?;
    let (Some(first), Some(last)) = (known.values().first(), known.values().last()) else { return Ok(()) };
    let stored = |hash: &IdHash| width.to_stored(hash.0);
    let start = hashes.partition_point(|hash| stored(hash) < *first);
    let mut at = 0;
    for hash in hashes[start..].iter().take_while(|hash| stored(hash) <= *last) {
        at += known.values()[at..].partition_point(|known| *known < stored(hash));
        // Another hash may have the same first bytes, so the next one begins here, too.
        let same = known.values()[at..].iter().take_while(|known| **known == stored(hash)).count();
        records.values()[at..at + same].iter().for_each(|record| visit(*hash, *record));
    }
    Ok(())
}

/// Estimated position in its bucket of the row group of a hash.
enum Guess {
    /// In this byte range.
    Within(Range<u64>),
    /// In the last bytes before the footer, at most this many.
    AtEnd(u64),
    /// Unknown.
    None,
}

/// Buckets smaller than this are read whole.
const SMALL_BUCKET: f64 = 96.0 * 1024.0;

/// Estimates the position of a hash: hashes are evenly distributed, so the deviation from the expected position is that
/// of a random walk, and row groups with equal numbers of pairs have nearly equal sizes. A wrong estimate costs a
/// request.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "an estimate within positive bounds"
)]
fn guess_position(segment: &SegmentRef, hash: IdHash) -> Guess {
    if segment.bytes == 0 || segment.pairs == 0 {
        return Guess::None;
    }
    let bucket_pairs = segment.pairs as f64 / segment.buckets as f64;
    let pair_bytes = segment.bytes as f64 / segment.pairs as f64;
    if bucket_pairs * pair_bytes < SMALL_BUCKET {
        return Guess::AtEnd((1.5 * bucket_pairs * pair_bytes) as u64);
    }
    let within = hash.0 << segment.buckets.trailing_zeros().min(63);
    let rank = within as f64 / (u64::MAX as f64 + 1.0) * bucket_pairs;
    // 2.5 standard deviations of the rank and of the bucket's number of pairs.
    let (slack, more) = (2.5 * rank.sqrt() + 16.0, 2.5 * bucket_pairs.sqrt());
    let group = ROW_GROUP_ROWS as f64;
    let first = ((rank - slack).max(0.0) / group).floor();
    let end = (((rank + slack) / group).floor() + 1.0) * group;
    // Row groups begin where the preceding ones end, and those differ in size.
    let margin = 256.0 + first * 64.0;
    if end > bucket_pairs - more {
        return Guess::AtEnd(((bucket_pairs + more - first * group) * pair_bytes + margin) as u64);
    }
    let start = (first * group * pair_bytes - margin).max(0.0);
    Guess::Within(start as u64..(end * pair_bytes + margin) as u64)
}

/// Whether a row group with these bounds may hold one of some ascending hashes.
fn may_hold(bounds: Option<RangeInclusive<u64>>, hashes: &[IdHash]) -> bool {
    let Some(bounds) = bounds else { return true };
    hashes.get(hashes.partition_point(|hash| hash.0 < *bounds.start())).is_some_and(|hash| hash.0 <= *bounds.end())
}

/// Returns the range of the hashes of a row group, whatever the bytes that are not stored, if it is known.
fn hash_bounds(width: HashWidth, statistics: Option<&Statistics>) -> Option<RangeInclusive<u64>> {
    // UINT64 is stored as INT64 but ordered as unsigned.
    let Some(Statistics::Int64(known)) = statistics else { return None };
    let (least, greatest) = (known.min_opt()?.cast_unsigned(), known.max_opt()?.cast_unsigned());
    Some(width.of_stored(least)..=width.end_of_stored(greatest))
}

/// Reads the pairs of a range of hashes of a segment in order, batch by batch; record numbers are absolute.
pub(super) enum PairStream {
    /// Of buckets of hashes.
    Buckets(BucketStream),
    /// Of ids in ascending order.
    Ids(HashOrder),
}

impl PairStream {
    /// Starts at the first pair; `held` pairs may be in memory.
    pub(super) fn new(store: &Arc<dyn Store>, segment: &SegmentRef, hashes: RangeInclusive<u64>, held: u64) -> Self {
        match segment.ordered {
            true => Self::Ids(HashOrder::new(store, segment, &hashes, held)),
            false => Self::Buckets(BucketStream::new(store, segment, hashes)),
        }
    }

    /// Replaces the content of `out` with the next pairs; returns false at the end.
    ///
    /// # Errors
    /// If a bucket is missing, damaged or not sorted.
    pub(super) fn next_batch(&mut self, out: &mut Vec<(u64, u64)>) -> Result<bool> {
        match self {
            Self::Buckets(buckets) => buckets.next_batch(out),
            Self::Ids(ids) => ids.next_batch(out),
        }
    }
}

/// A [`PairStream`] of buckets of hashes.
pub(super) struct BucketStream {
    store: Arc<dyn Store>,
    segment: SegmentRef,
    hashes: RangeInclusive<u64>,
    /// The next bucket, and the last one.
    buckets: RangeInclusive<u64>,
    reader: Option<(u64, ParquetRecordBatchReader)>,
    last: (u64, u64),
}

impl BucketStream {
    fn new(store: &Arc<dyn Store>, segment: &SegmentRef, hashes: RangeInclusive<u64>) -> Self {
        let bucket = |hash: &u64| bucket_of(IdHash(*hash), segment.buckets);
        Self {
            store: Arc::clone(store),
            segment: segment.clone(),
            buckets: bucket(hashes.start())..=bucket(hashes.end()),
            hashes,
            reader: None,
            last: (0, 0),
        }
    }

    fn next_batch(&mut self, out: &mut Vec<(u64, u64)>) -> Result<bool> {
        loop {
            if self.reader.is_none() {
                let Some(bucket) = self.buckets.next() else { return Ok(false) };
                self.reader = Some((bucket, self.open_bucket(bucket)?));
            }
            let Some((bucket, reader)) = &mut self.reader else { return Ok(false) };
            let place = || self.store.location().join(&self.segment.bucket_path(*bucket)).to_string();
            let batch =
                table::catch_panics(|| Ok(reader.next().transpose()?)).map_err(|e| index_damage_error(place(), e))?;
            let Some(batch) = batch else {
                self.reader = None;
                continue;
            };
            let (width, base) = (self.segment.hashes, self.segment.record_base);
            let (hashes, records) = batch_columns(width, &batch).map_err(|e| index_damage_error(place(), e))?;
            let hashes = hashes.values().iter().map(|hash| width.of_stored(*hash));
            out.clear();
            out.extend(hashes.zip(records.values()).map(|(hash, record)| (hash, base + record)));
            let (first, last) = (out.first().copied().unwrap_or(self.last), out.last().copied().unwrap_or(self.last));
            let own = |hash: u64| bucket_of(IdHash(hash), self.segment.buckets) == *bucket;
            if first < self.last || !out.is_sorted() || !own(first.0) || !own(last.0) {
                return Err(Error::integrity("the id index is not sorted").at_location(place()));
            }
            self.last = last;
            if !self.hashes.contains(&first.0) || !self.hashes.contains(&last.0) {
                out.retain(|(hash, _)| self.hashes.contains(hash));
            }
            if !out.is_empty() {
                return Ok(true);
            }
        }
    }

    fn open_bucket(&self, bucket: u64) -> Result<ParquetRecordBatchReader> {
        let bucket = self.segment.sealed_bucket(bucket)?;
        let place = || bucket.display_location(self.store.as_ref());
        let object = sealed::open_sealed(&self.store, &bucket)?;
        table::catch_panics(|| {
            let builder = ParquetRecordBatchReaderBuilder::try_new(object).map_err(table::parquet_error)?;
            check_column(self.segment.hashes, builder.metadata())?;
            let meets = |group: &usize| {
                let known =
                    hash_bounds(self.segment.hashes, builder.metadata().row_group(*group).column(0).statistics());
                known.is_none_or(|known| known.start() <= self.hashes.end() && self.hashes.start() <= known.end())
            };
            let groups = (0..builder.metadata().num_row_groups()).filter(meets).collect();
            builder.with_row_groups(groups).with_batch_size(ROW_GROUP_ROWS).build().map_err(table::parquet_error)
        })
        .map_err(|e| index_damage_error(place(), e))
    }
}

/// Passes all pairs of a segment to `visit`, with absolute record numbers, in bounded memory. They come in the order of
/// hashes, or in that of ids if the segment has ids and no root.
///
/// # Errors
/// If a bucket is missing, damaged or not sorted, its pairs do not match the hash in the log, or `visit` fails.
pub fn each_pair(
    store: &Arc<dyn Store>,
    segment: &SegmentRef,
    visit: &mut dyn FnMut(IdHash, u64) -> Result<()>,
) -> Result<()> {
    let check = |count: u64| match count == segment.pairs {
        true => Ok(()),
        false => Err(Error::integrity(format!("expected {} pairs, found {count}", segment.pairs))
            .at_location(store.location().join(&segment.path).to_string())),
    };
    if segment.ordered && !segment.hashes.has_proofs() {
        return ordered::each_pair(store, segment, visit).and_then(check);
    }
    let mut stream = PairStream::new(store, segment, 0..=u64::MAX, HELD_PAIRS);
    let (mut batch, mut count) = (Vec::new(), 0);
    let mut sum = SegmentSum::new(segment);
    while stream.next_batch(&mut batch)? {
        count += batch.len() as u64;
        if segment.root.is_some() {
            sum.add_pairs(&batch);
        }
        batch.iter().try_for_each(|(hash, record)| visit(IdHash(*hash), *record))?;
    }
    check(count)?;
    if segment.root.is_some_and(|root| root != sum.into_root()) { Err(mismatch_error(store, segment)) } else { Ok(()) }
}

/// Returns all pairs of a segment, in the order of hashes.
///
/// # Errors
/// Those of [`each_pair`].
pub fn read_segment(store: &Arc<dyn Store>, segment: &SegmentRef) -> Result<Vec<(IdHash, u64)>> {
    let mut pairs = Vec::new();
    each_pair(store, segment, &mut |hash, record| {
        pairs.push((hash, record));
        Ok(())
    })?;
    if segment.ordered {
        pairs.par_sort_unstable();
    }
    Ok(pairs)
}
