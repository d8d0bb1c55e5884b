//! Datasets of many records without their data: a log with lists and an id index, made by the program's own writers,
//! and sidecars of only those shards in which something is looked up.
//!
//! Record `n` has the id `R` and `n` in twelve digits. Shards differ slightly in their number of records, as real ones
//! do.
#![expect(unreachable_pub, reason = "binaries have no outside")]

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::{StringArray, StringBuilder};
use jiff::Timestamp;
use shardify::{
    codec::{Codec, seal::Seal},
    dataset::{
        Beside, Dataset, HashPlan, HashWidth, IdColumn, IdKind, NewShard, Numbers, Operation, Sealed, SegmentMerge,
        SegmentRef, SegmentWriter, Segments, Settings, ShardMeta, SidecarColumns, SidecarWriter, Snapshot, SourceRow,
        SourceRuns, Transaction, commit_transaction, merge_into_one, segments_to_merge, sidecar_path,
    },
    error::{Error, Result},
    events::Cancel,
    format::OutputFormat,
    id::{IdHash, TransactionId, Version},
    units::Size,
};

/// Records per source.
const SOURCE_RECORDS: u64 = 1_000_000;

/// Number of ids that are hashed at a time.
const BATCH: u64 = 1 << 20;

/// Number of records and shards of a dataset.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub records: u64,
    pub shards: u64,
    /// Whether the index sees that ids ascend; else it has hashes, as of ids in any order.
    pub growing: bool,
}

pub fn id(record: u64) -> String {
    format!("R{record:012}")
}

/// Returns the [`id`]s of consecutive records, by counting in the text, because there may be a billion.
pub fn ids(start: u64, end: u64) -> StringArray {
    let mut text = id(start).into_bytes();
    let mut ids = StringBuilder::new();
    for _ in start..end {
        ids.append_value(std::str::from_utf8(&text).unwrap_or_default());
        for digit in text.iter_mut().rev() {
            *digit += 1;
            if *digit <= b'9' {
                break;
            }
            *digit = b'0';
        }
    }
    ids.finish()
}

fn noise(i: u64) -> u64 {
    (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

impl Scale {
    /// Returns the first record of a shard; for the shard after the last, the number of records.
    pub fn first(self, shard: u64) -> u64 {
        let even = u64::try_from(u128::from(self.records) * u128::from(shard) / u128::from(self.shards)).unwrap_or(0);
        let width = self.records / self.shards / 16;
        let inner = 0 < shard && shard < self.shards && width > 0;
        if inner { even + noise(shard) % width } else { even }
    }

    pub fn shard_of(self, record: u64) -> u64 {
        let (mut low, mut high) = (0, self.shards);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if self.first(middle) <= record { low = middle } else { high = middle }
        }
        low
    }

    pub fn path(shard: u64) -> String {
        format!("0123456789ab/{shard:06}.tar")
    }

    fn new_shard(self, shard: u64, seal: Option<&Seal>) -> NewShard {
        let first = self.first(shard);
        let records = self.first(shard + 1) - first;
        let mut new = new_shard(Self::path(shard), first, records);
        if let Some(seal) = seal {
            new.meta.beside = Arc::new(Beside::new(Sealed::new(sidecar_path(&new.meta.path), *seal)));
        }
        NewShard { runs: vec![(first, records, 0)], ..new }
    }

    /// Commits shards and index as one version; `sidecars` are those that were written, and no other can be read.
    pub fn build(self, dataset: &Dataset, sidecars: &BTreeMap<u64, Seal>) -> Result<Snapshot> {
        let plan = HashPlan::new(HashWidth::Five);
        let mut writer = SegmentWriter::new(Arc::clone(dataset.store()), IdKind::Record, &plan, TransactionId::fresh());
        let mut start = 0;
        while start < self.records {
            let end = self.records.min(start + BATCH);
            let ids = IdColumn::from(ids(start, end));
            if self.growing {
                writer.push_all(plan.ids_for_index(IdKind::Record, Some(&ids)).into_encoded()?, start)?;
            } else {
                ids.to_hashes().iter().try_for_each(|(row, hash)| writer.push(hash, start + row as u64))?;
            }
            start = end;
        }
        let Segments { refs, staged, .. } = Segments::finish_all([writer])?;
        dataset.store().publish_staged(staged)?;
        let sources: Vec<SourceRow> = (0..self.records.div_ceil(SOURCE_RECORDS)).map(|i| self.source(i)).collect();
        let transaction = Transaction {
            adds: (0..self.shards).map(|shard| self.new_shard(shard, sidecars.get(&shard))).collect(),
            segments: refs,
            sources: &sources,
            numbers: Numbers::Fresh(self.records),
            ..transaction()
        };
        commit_transaction(dataset, &transaction, Version(0))
    }

    fn source(self, number: u64) -> SourceRow {
        SourceRow {
            uri: format!("s3://hospital/exports/records-{number:06}.csv"),
            name: format!("records-{number:06}.csv"),
            bytes: 150_000_000 + noise(number) % 1_000_000,
            modified: Timestamp::UNIX_EPOCH,
            etag: None,
            hash: noise(number),
            records: SOURCE_RECORDS.min(self.records - number * SOURCE_RECORDS),
            first_record: number * SOURCE_RECORDS,
            other_firsts: Vec::new(),
            arrays: None,
            part_hash: None,
            version: Version(0),
            removed: None,
        }
    }

    /// Writes the sidecars of shards, as if the shards existed; returns their seals.
    pub fn write_sidecars(
        self,
        dataset: &Dataset,
        shards: impl IntoIterator<Item = u64>,
    ) -> Result<BTreeMap<u64, Seal>> {
        shards.into_iter().map(|shard| Ok((shard, self.write_sidecar(dataset, shard)?))).collect()
    }

    fn write_sidecar(self, dataset: &Dataset, shard: u64) -> Result<Seal> {
        let records: Vec<u64> = (self.first(shard)..self.first(shard + 1)).collect();
        let mut writer = SidecarWriter::create(dataset.store().as_ref(), &Self::path(shard), false)?;
        let ids: StringArray = records.iter().map(|record| Some(id(*record))).collect();
        let lengths: Vec<u64> = records.iter().map(|record| 1_536 + 512 * (noise(*record) % 41)).collect();
        let offsets = lengths.iter().scan(0, |at, length| Some(std::mem::replace(at, *at + length)));
        let mut sources = SourceRuns::default();
        for record in &records {
            sources.push(&self.source(record / SOURCE_RECORDS).name.into(), 1);
        }
        writer.append_rows(SidecarColumns {
            record_ids: Some(ids.into()),
            subject_ids: None,
            extents: Some((offsets.collect(), lengths.into())),
            sources,
            rows: Some(records.iter().map(|record| record % SOURCE_RECORDS + 1).collect()),
            hashes: records.iter().map(|record| noise(*record) << 13).collect(),
            fingerprints: None,
        })?;
        let staged = writer.finish()?;
        let seal = staged.seal().ok_or_else(|| Error::internal("a sidecar has no seal"))?;
        dataset.store().publish_staged(vec![staged])?;
        Ok(seal)
    }
}

/// Merges crowded segments, as `compact` does, until there are none; returns the replaced segments.
pub fn merge_index(dataset: &Dataset, memory: u64) -> Result<Vec<SegmentRef>> {
    let mut replaced = Vec::new();
    loop {
        let snapshot = dataset.open_newest()?;
        let groups = segments_to_merge(&snapshot.entry().segments);
        if groups.is_empty() {
            return Ok(replaced);
        }
        for group in groups {
            let merged = merge_into_one(dataset.store(), group, memory, &Cancel::default())?;
            dataset.store().publish_staged(merged.staged)?;
            let replaces = merged.inputs.iter().map(|segment| segment.path.clone()).collect();
            replaced.extend(merged.inputs);
            let merges = vec![SegmentMerge { replaces, by: merged.output }];
            let transaction =
                Transaction { operation: Operation::Compact, merges, numbers: Numbers::Kept, ..transaction() };
            commit_transaction(dataset, &transaction, snapshot.version())?;
        }
    }
}

/// Returns the size of a shard that only exists in lists.
pub fn shard_bytes(path: &str) -> u64 {
    134_217_728 + IdHash::from_id(path).0 % 100_000
}

pub fn new_shard(path: String, first: u64, records: u64) -> NewShard {
    // Checksums are as random as real ones, regardless of the path.
    let mut checksum = [0; 32];
    for (i, part) in checksum.chunks_mut(8).enumerate() {
        part.copy_from_slice(&IdHash::from_id(&format!("{path} {i}")).0.to_le_bytes());
    }
    let bytes = shard_bytes(&path);
    // As long as that of a real shard; the sealed object does not exist.
    let beside = Beside::new(Sealed::new(sidecar_path(&path), Seal::from_hash(bytes, checksum)));
    let meta = ShardMeta {
        path,
        records,
        bytes,
        codec: Codec::None,
        raw_bytes: bytes,
        checksum,
        body_offset: 0,
        body_bytes: bytes - 1_024,
        body_crc32: u32::try_from(noise(first) & 0xffff_ffff).unwrap_or(0),
        compacted_for: 0,
        first_record: first,
        version: Version(0),
        committed_at: Timestamp::UNIX_EPOCH,
        order: None,
        beside: Arc::new(beside),
    };
    NewShard { meta, runs: vec![(first, records, 0)], since: Vec::new(), scattered: None }
}

pub fn transaction() -> Transaction<'static> {
    let settings = Settings {
        shard_format: OutputFormat::Tar,
        codec: Codec::None,
        target_shard: Size::from_mib(128),
        row_group: Size::from_mib(64),
        id: vec!["id".into()],
        subject: None,
        subjects_from: None,
        keys: shardify::record::key_rule::KeyRule::FirstDot,
        labels: None,
        label_types: None,
        units: BTreeMap::new(),
        label_column: None,
        classes: None,
        indexes: Vec::new(),
        private: None,
        columns: Vec::new(),
        types: None,
        retyped: std::collections::BTreeSet::new(),
        split: None,
        dedup: None,
        limit: None,
        shuffle: None,
        hash_records: false,
        hashes: HashWidth::Five,
    };
    Transaction::new(TransactionId::fresh(), Operation::Convert, settings)
}
