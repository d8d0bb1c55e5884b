//! Rewriting of id index segments and lists of sources without erased entries.
//!
//! Both are immutable and shared by several versions, so the old objects stay until no version needs them, or until
//! they are deleted because their content must not exist any more. Only those buckets of a segment that hold one of the
//! records are read; the others are linked, or copied if a store does not support links.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    io::Write,
    sync::Arc,
};

use crate::{
    codec::merkle::Hash,
    dataset::{
        index::{self, BucketWriter, SegmentRef, WrittenBucket},
        log::{
            erased::ReplacedObject,
            snapshot::Dataset,
            sources::{self, SourceRow},
        },
        table::{
            self, TableWriter,
            list::ListRef,
            paths::{segment_path, table_path},
            sealed::{Sealed, seal_of},
        },
    },
    error::{Error, Result},
    id::{IdHash, TransactionId},
    storage::{Staged, Store},
};

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// A rewritten object, and the one it replaces.
#[derive(Debug)]
pub struct Reindexed {
    pub(in crate::dataset) replaced: ReplacedObject,
    /// Its objects, not yet published.
    pub staged: Vec<Staged>,
}

impl Reindexed {
    /// Returns the path of the replaced object.
    pub fn replaced_path(&self) -> &str {
        &self.replaced.was
    }

    /// Returns a copy without the unpublished objects.
    #[must_use]
    pub fn without_staged(&self) -> Self {
        Self { replaced: self.replaced.clone(), staged: Vec::new() }
    }

    /// Returns the number of buckets of the replaced segment; 0 for lists.
    pub fn was_buckets(&self) -> u64 {
        self.replaced.was_buckets
    }
}

/// Rewrites a segment without some records, given by number and hash; `None` if it has none of them. `number`
/// distinguishes the new segments of a transaction.
///
/// # Errors
/// When a bucket is missing or damaged, or the store fails.
pub fn rewrite_segment(
    dataset: &Dataset,
    segment: &SegmentRef,
    erased: &HashSet<u64>,
    hashes: &[IdHash],
    transaction: &TransactionId,
    number: usize,
) -> Result<Option<Reindexed>> {
    let store = dataset.store();
    let folder = segment_path(&format!("{}/{transaction}-{number}", segment.kind.name()));
    let touched: BTreeSet<u64> = hashes.iter().map(|hash| segment.bucket_of(*hash)).collect();
    let (mut removed, mut rewritten) = (0, BTreeMap::new());
    for bucket in touched {
        if let Some((written, pairs)) = rewrite_bucket(store, segment, bucket, erased, &folder)? {
            removed += pairs;
            rewritten.insert(bucket, written);
        }
    }
    if rewritten.is_empty() {
        return Ok(None);
    }
    let pairs = segment.pairs.checked_sub(removed).ok_or_else(|| {
        Error::integrity(format!("expected {} pairs in a segment, found more", segment.pairs))
            .at_location(segment.path.clone())
    })?;
    let mut replaced = ReplacedObject {
        was: segment.path.clone(),
        was_buckets: segment.buckets,
        now: None,
        rows: pairs,
        buckets: segment.buckets,
        root: None,
        seals: Vec::new(),
    };
    if pairs == 0 {
        return Ok(Some(Reindexed { replaced, staged: Vec::new() }));
    }
    let made = SegmentRef { path: folder.clone(), ..segment.clone() };
    let untouched: Vec<u64> = (0..segment.buckets).filter(|bucket| !rewritten.contains_key(bucket)).collect();
    if segment.hashes.has_proofs() {
        let kept = index::facts_of(store, segment, &untouched)?;
        let mut facts: BTreeMap<u64, (u64, Hash)> = untouched.iter().copied().zip(kept).collect();
        facts.extend(rewritten.iter().filter_map(|(bucket, one)| Some((*bucket, (one.pairs, one.hash?)))));
        replaced.root = Some(index::root_of(facts.into_values()));
    }
    let mut buckets: BTreeMap<u64, Staged> =
        rewritten.into_iter().map(|(bucket, written)| (bucket, written.staged)).collect();
    for bucket in untouched {
        buckets
            .insert(bucket, copy_bucket(store.as_ref(), &segment.sealed_bucket(bucket)?, &made.bucket_path(bucket))?);
    }
    replaced.seals = buckets.values().map(seal_of).collect::<Result<_>>()?;
    let staged = buckets.into_values().collect();
    replaced.now = Some(folder);
    Ok(Some(Reindexed { replaced, staged }))
}

/// Rewrites a bucket without some records and returns the number of omitted pairs; `None` if it has none of them.
fn rewrite_bucket(
    store: &Arc<dyn Store>,
    segment: &SegmentRef,
    bucket: u64,
    erased: &HashSet<u64>,
    folder: &str,
) -> Result<Option<(WrittenBucket, u64)>> {
    let made = SegmentRef { path: folder.to_owned(), ..segment.clone() };
    if segment.ordered {
        let kept = |record: u64| (!erased.contains(&record)).then(|| record.saturating_sub(segment.record_base));
        let written = index::rewrite_ordered(store, store.as_ref(), segment, &made, &kept)?;
        let removed = segment.pairs.saturating_sub(written.pairs);
        return Ok((removed > 0).then_some((written, removed)));
    }
    let mut written = BucketWriter::create(store.as_ref(), &made, bucket)?;
    let mut removed = 0;
    for batch in table::read(store.as_ref(), &segment.sealed_bucket(bucket)?)? {
        let mut kept = index::bucket_pairs(segment.hashes, &batch)?;
        kept.retain(|(_, record)| !erased.contains(&(segment.record_base + record)));
        removed += (batch.num_rows() - kept.len()) as u64;
        written.push_all(&kept)?;
    }
    if removed == 0 {
        return Ok(None);
    }
    Ok(Some((written.finish()?, removed)))
}

/// Copies a bucket to another name; its seal is unchanged.
fn copy_bucket(store: &dyn Store, from: &Sealed, to: &str) -> Result<Staged> {
    if let Some(linked) = store.link_object(&store.location().join(&from.path), to)? {
        return Ok(linked.with_seal(Some(from.seal)));
    }
    let (mut source, mut sink) = (store.read(&from.path)?, store.create_sink(to)?);
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let n = source.read(&mut buffer)?;
        if n == 0 {
            return Ok(sink.finish()?.with_seal(Some(from.seal)));
        }
        sink.write_all(&buffer[..n])?;
    }
}

/// Rewrites a list of sources without some of them, given by URI; `None` if it has none of them.
///
/// # Errors
/// When it cannot be read, or the store fails.
pub fn rewrite_source_list(
    dataset: &Dataset,
    list: &ListRef,
    gone: &HashSet<String>,
    transaction: &TransactionId,
    number: usize,
) -> Result<Option<Reindexed>> {
    let store = dataset.store();
    let path = table_path(&format!("lists/{transaction}-e-sources-{number}"));
    let mut table = TableWriter::new(store.as_ref(), &path);
    let (mut pending, mut removed): (Vec<SourceRow>, u64) = (Vec::new(), 0);
    let optional = sources::OptionalColumns::from_columns(&table::columns_of(store, list)?);
    sources::read(store, list, &mut |row| {
        if gone.contains(&row.uri) {
            removed += 1;
            return Ok(());
        }
        pending.push(row);
        if pending.len() < table::BATCH_ROWS {
            Ok(())
        } else {
            table.add_rows(&sources::to_batch(&std::mem::take(&mut pending), optional)?)
        }
    })?;
    if removed == 0 {
        return Ok(None);
    }
    if !pending.is_empty() {
        table.add_rows(&sources::to_batch(&pending, optional)?)?;
    }
    let mut replaced = ReplacedObject {
        was: list.path.clone(),
        was_buckets: 0,
        now: None,
        rows: 0,
        buckets: 0,
        root: None,
        seals: Vec::new(),
    };
    let mut staged = Vec::new();
    if let Some((written, rows)) = table.finish()? {
        (replaced.now, replaced.rows) = (Some(path.clone()), rows);
        replaced.seals = vec![seal_of(&written)?];
        staged.push(written);
    }
    Ok(Some(Reindexed { replaced, staged }))
}
