//! Verifies that the id index contains exactly the ids of the sidecars, in memory that does not depend on their number.
//!
//! Pairs of the index are in the order of hashes, rows of sidecars in that of shards, so the two cannot be compared as
//! they are read. But a sum over hashed pairs does not depend on the order: the index's pairs for a shard's records and
//! the sidecar's pairs must have the same sum. Only a shard whose sums differ is compared pair by pair.
//!
//! ```text
//! index     (hash, number) -> shard by the runs -> sum of the shard     |
//! sidecar   row -> (hash, number)               -> sum of the shard     | equal, or compared pair by pair
//! ```
//!
//! Numbers of sorted shards are scattered: all of these shards share one sum. Pairs of records that are not live any
//! more belong to no shard.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicU64, Ordering},
};

use arrow::array::{Array, RecordBatch, StringArray};
use rayon::prelude::*;

use crate::{
    codec::checksum::xxh3_64,
    dataset::{
        IdColumn, IdKind, Run, SegmentRef, Settings, ShardMeta, Snapshot, SuppressList, each_pair, numbered_rows,
        sidecar_batches, stored_hash,
    },
    error::{Error, Result},
    exec::splits::SplitCheck,
    id::IdHash,
    record::split::split_of_path,
};

/// Rows of a sidecar read at a time.
pub(super) const ROWS: usize = 1 << 16;

/// A pair of the index, with its kind.
type Pair = (IdKind, IdHash, u64);

/// An order-independent sum over pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    pairs: u64,
    mixed: u64,
}

impl Sum {
    /// Adds a pair of a record in a split; the split is empty where segments do not state it.
    pub(super) fn add_pair(&mut self, (kind, hash, number): Pair, split: &str) {
        let mut bytes = [0; 17];
        bytes[..8].copy_from_slice(&hash.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16] = u8::from(kind == IdKind::Subject);
        self.pairs += 1;
        self.mixed = self.mixed.wrapping_add(xxh3_64(&bytes) ^ xxh3_64(split.as_bytes()).rotate_left(32));
    }

    fn merge(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.mixed = self.mixed.wrapping_add(other.mixed);
    }
}

/// Sums of the index's pairs for the records of each shard.
pub(super) struct Index<'a> {
    snapshot: &'a Snapshot,
    suppress: Option<&'a SuppressList>,
    shards: Vec<Sum>,
    sorted: Sum,
    /// Sum of the sidecars of sorted shards.
    seen: [AtomicU64; 2],
    /// Number of pairs in the index.
    pub(super) pairs: u64,
    /// Whether all segments state their splits.
    has_splits: bool,
}

impl<'a> Index<'a> {
    /// Sums up the index. `sorted` are the numbers of sorted shards; they are unknown if they are damaged.
    ///
    /// # Errors
    /// When a segment is damaged or the store fails.
    pub(super) fn read(
        snapshot: &'a Snapshot,
        shards: &[ShardMeta],
        sorted: &[Run],
        suppress: Option<&'a SuppressList>,
    ) -> Result<Self> {
        let version = snapshot.version();
        let numbers: HashMap<&str, usize> = shards.iter().enumerate().map(|(i, s)| (s.path.as_str(), i)).collect();
        let plain =
            snapshot.run_table()?.as_slice().iter().filter(|run| run.is_in_version(version) && run.scattered.is_none());
        let place = |run: &Run| (run.first, run.first + run.records, numbers.get(run.shard.as_str()).copied());
        let mut owners: Vec<(u64, u64, Option<usize>)> = plain.map(place).collect();
        owners.extend(sorted.iter().map(|run| (run.first, run.first + run.records, None)));
        owners.sort_unstable();
        let has_splits = snapshot.entry().segments.iter().all(|segment| segment.split.is_some());
        let sum = |segment: &SegmentRef| {
            let (mut sums, mut sorted, mut pairs) = (vec![Sum::default(); shards.len()], Sum::default(), 0);
            let kind = segment.kind;
            let split = segment.split.as_deref().filter(|_| has_splits).unwrap_or_default();
            each_pair(snapshot.dataset().store(), segment, &mut |hash, number| {
                pairs += 1;
                let at = owners.partition_point(|(first, _, _)| *first <= number);
                match at.checked_sub(1).and_then(|at| owners.get(at)).filter(|(_, end, _)| number < *end) {
                    Some((_, _, Some(shard))) => sums[*shard].add_pair((kind, hash, number), split),
                    Some((_, _, None)) => sorted.add_pair((kind, hash, number), split),
                    None => {}
                }
                Ok(())
            })?;
            Ok((sums, sorted, pairs))
        };
        let mut index = Self {
            snapshot,
            suppress,
            shards: vec![Sum::default(); shards.len()],
            sorted: Sum::default(),
            seen: [AtomicU64::new(0), AtomicU64::new(0)],
            pairs: 0,
            has_splits,
        };
        // Only a few segments at a time, because each has a sum for every shard.
        for segments in snapshot.entry().segments.chunks(rayon::current_num_threads().max(1)) {
            let found: Vec<(Vec<Sum>, Sum, u64)> = segments.par_iter().map(sum).collect::<Result<_>>()?;
            for (sums, sorted, pairs) in found {
                index.shards.iter_mut().zip(sums).for_each(|(all, sum)| all.merge(sum));
                index.sorted.merge(sorted);
                index.pairs += pairs;
            }
        }
        Ok(index)
    }

    /// Compares the sidecar of a shard, given with its number, with the index.
    ///
    /// # Errors
    /// When it is damaged, contains an erased id, or contains an id that the index lacks.
    pub(super) fn check_shard(&self, number: usize, shard: &ShardMeta) -> Result<()> {
        let mut sum = Sum::default();
        let split = self.split_check(shard)?;
        let own = self.stated_split(shard);
        let rows = self.each_sidecar_pair(shard, &mut |row, pair, id| {
            sum.add_pair(pair, own);
            split.as_ref().map_or(Ok(()), |check| check.check_row(row, pair.0, id))
        })?;
        if rows != shard.records {
            return Err(Error::integrity(format!("expected a sidecar of {} rows, found {rows}", shard.records)));
        }
        if self.is_sorted(shard)? {
            self.seen[0].fetch_add(sum.pairs, Ordering::Relaxed);
            self.seen[1].fetch_add(sum.mixed, Ordering::Relaxed);
            return Ok(());
        }
        if self.shards.get(number) == Some(&sum) { Ok(()) } else { self.find_difference(shard) }
    }

    /// Returns the check that the ids of a shard belong to the split in whose folder it lies; `None` if the dataset is
    /// not divided by ids that sidecars state as they were divided.
    fn split_check<'s>(&'s self, shard: &ShardMeta) -> Result<Option<SplitCheck<'s>>> {
        let settings = &self.snapshot.entry().settings;
        let Some(splits) = &settings.split else { return Ok(None) };
        let split = splits.of_path(&shard.path).ok_or_else(|| {
            Error::integrity(format!("expected the shard in the folder of a split, such as {}", splits.split_folder(0)))
        })?;
        Ok(SplitCheck::new(settings, split))
    }

    /// Returns the split that segments must state for the records of a shard; empty if they state none.
    fn stated_split<'s>(&self, shard: &'s ShardMeta) -> &'s str {
        split_of_path(&shard.path).filter(|_| self.has_splits).unwrap_or_default()
    }

    /// Returns whether the sums of all sorted shards and of the index's pairs for them agree.
    pub(super) fn sorted_agree(&self) -> bool {
        let [pairs, mixed] = &self.seen;
        self.sorted == Sum { pairs: pairs.load(Ordering::Relaxed), mixed: mixed.load(Ordering::Relaxed) }
    }

    /// Returns whether the record numbers of a shard are in a table beside it.
    pub(super) fn is_sorted(&self, shard: &ShardMeta) -> Result<bool> {
        let runs = self.snapshot.run_table()?.of_shard(&shard.path, self.snapshot.version());
        Ok(runs.iter().any(|run| run.scattered.is_some()))
    }

    /// Finds a difference between one shard and the index.
    ///
    /// # Errors
    /// The difference, or what cannot be read.
    pub(super) fn find_difference(&self, shard: &ShardMeta) -> Result<()> {
        let mut wanted: HashMap<Pair, (u64, String)> = HashMap::new();
        let mut numbers = HashSet::new();
        self.each_sidecar_pair(shard, &mut |row, pair, id| {
            numbers.insert(pair.2);
            wanted.insert(pair, (row, id.to_owned()));
            Ok(())
        })?;
        let mut strange = None;
        let own = self.stated_split(shard);
        for segment in &self.snapshot.entry().segments {
            each_pair(self.snapshot.dataset().store(), segment, &mut |hash, number| {
                if !numbers.contains(&number) {
                    return Ok(());
                }
                if wanted.remove(&(segment.kind, hash, number)).is_none() {
                    strange.get_or_insert((segment.kind, number));
                }
                match segment.split.as_deref().filter(|split| self.has_splits && *split != own) {
                    None => Ok(()),
                    Some(split) => Err(Error::integrity(format!(
                        "a segment of the id index states the split {split} for record {number}, which is on {own}"
                    ))
                    .at_location(segment.path.clone())),
                }
            })?;
        }
        if let Some(((kind, _, _), (row, id))) = wanted.into_iter().min_by_key(|(_, (row, _))| *row) {
            let kind = kind.name();
            return Err(Error::integrity(format!("the {kind} id `{id}` of row {row} is not in the id index")));
        }
        match strange {
            None => Ok(()),
            Some((kind, number)) => Err(Error::integrity(format!(
                "the id index has a {} id of record {number} that its row in the sidecar does not have",
                kind.name()
            ))),
        }
    }

    /// Passes the ids of a sidecar as pairs, each with its row, to `visit`; returns the number of rows.
    fn each_sidecar_pair(
        &self,
        shard: &ShardMeta,
        visit: &mut dyn FnMut(u64, Pair, &str) -> Result<()>,
    ) -> Result<u64> {
        let (store, table) = (self.snapshot.dataset().store(), self.snapshot.run_table()?);
        let runs = table.of_shard(&shard.path, self.snapshot.version());
        let mut numbers = numbered_rows(store, &runs, table)?;
        let mut first = 0;
        for batch in sidecar_batches(store, &shard.sidecar(), ROWS)? {
            let batch = batch?;
            let kinds = [(0, IdKind::Record), (1, IdKind::Subject)];
            let settings = &self.snapshot.entry().settings;
            let column = |(at, kind)| hashes_of(settings, &batch, at).map(|(ids, hashes)| (kind, ids, hashes));
            let columns: Vec<_> = kinds.into_iter().map(column).collect::<Result<_>>()?;
            for row in 0..batch.num_rows() {
                let (number, ordinal) = (numbers.next().transpose()?.flatten(), first + row as u64);
                for (kind, ids, hashes) in &columns {
                    let Some(hash) = hashes[row] else { continue };
                    let (id, name) = (ids.value(row), kind.name());
                    if self.suppress.is_some_and(|list| list.has_stored(*kind, id)) {
                        return Err(Error::integrity(format!("the {name} id of row {ordinal} was erased")));
                    }
                    let number =
                        number.ok_or_else(|| Error::integrity(format!("row {ordinal} has no record number")))?;
                    visit(ordinal, (*kind, hash, number.record), id)?;
                }
            }
            first += batch.num_rows() as u64;
        }
        Ok(first)
    }
}

/// Returns a column of ids of a sidecar with the hash of each, as the index has it.
pub(super) fn hashes_of(
    settings: &Settings,
    batch: &RecordBatch,
    at: usize,
) -> Result<(StringArray, Vec<Option<IdHash>>)> {
    let ids = batch.column(at).as_any().downcast_ref::<StringArray>();
    let ids = ids.ok_or_else(|| Error::integrity("expected ids in a sidecar, found another column"))?;
    let mut hashes = vec![None; ids.len()];
    if settings.private.is_some() {
        hashes = ids.iter().map(|id| id.map(|id| stored_hash(settings, id))).collect();
    } else {
        IdColumn::join_parts(std::slice::from_ref(ids))?
            .to_hashes()
            .iter()
            .for_each(|(row, hash)| hashes[row] = Some(hash));
    }
    hashes.iter_mut().flatten().for_each(|hash| *hash = settings.hashes.truncate_hash(*hash));
    Ok((ids.clone(), hashes))
}
