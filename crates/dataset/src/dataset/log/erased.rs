//! Effects of erasures, and how versions from before an erasure are read without the erased records.
//!
//! An erasure from all versions must not leave the objects that older versions name, and cannot change their log
//! entries, which are immutable. So it rewrites each touched object without the records and lists the replacements. The
//! newest entry holds these lists, and every later one repeats them:
//!
//! ```text
//! v3   shards: a b        a was rewritten to a', b to nothing
//! v4   shards: c
//! v5   erase:  c'         rewritten: a -> a', b -> -, c -> c'        replaced: segment s -> s'
//!
//! at v3:  entry 3, its shards and segments mapped through the lists: a'; its records' places from the run table of v5
//! ```
//!
//! Chains are followed: an object that a later erasure rewrites again is in the lists twice. Tombstones record which
//! record numbers were erased, when and why; these numbers are never reused.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema},
};

use crate::{
    codec::{
        merkle::Hash,
        seal::{self, Seal},
    },
    dataset::{
        ids::numbers::NumberSet,
        index::SegmentRef,
        log::{
            entry::{Entry, Totals},
            gone::GoneRows,
            runs::{Run, RunTable, Scattered},
            shards::{self, ShardMeta},
            snapshot::{Dataset, Snapshot},
        },
        table::{
            self,
            list::ListRef,
            paths::{index_stem, numbers_beside, parts_beside, shard_stem},
            sealed::Sealed,
            typed_column,
        },
    },
    error::{Error, Result},
    id::Version,
    storage::Store,
};

/// Consecutive records that were erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// First record number.
    pub first: u64,
    /// How many.
    pub records: u64,
    /// Version that erased them.
    pub version: Version,
    /// Whether they were erased from older versions too.
    pub all_versions: bool,
    /// Reason given by the user.
    pub reason: Option<String>,
}

pub(in crate::dataset) fn tombstone_batch(rows: &[Tombstone]) -> Result<RecordBatch> {
    let number = |name: &str| Field::new(name, DataType::UInt64, false);
    let schema = Schema::new(vec![
        number("first"),
        number("records"),
        number("version"),
        Field::new("all_versions", DataType::Boolean, false),
        Field::new("reason", DataType::Utf8, true),
    ]);
    let numbers =
        |of: fn(&Tombstone) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) };
    let columns: Vec<ArrayRef> = vec![
        numbers(|row| row.first),
        numbers(|row| row.records),
        numbers(|row| row.version.0),
        Arc::new(BooleanArray::from_iter(rows.iter().map(|row| Some(row.all_versions)))),
        Arc::new(rows.iter().map(|row| row.reason.as_deref()).collect::<StringArray>()),
    ];
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

/// Returns every tombstone of an entry.
///
/// # Errors
/// When a list cannot be read.
pub fn read_tombstones(dataset: &Dataset, entry: &Entry) -> Result<Vec<Tombstone>> {
    let mut out = Vec::new();
    for list in entry.erasures.iter().flat_map(|erasures| &erasures.tombstones) {
        for batch in table::read(dataset.store().as_ref(), &list.as_sealed())? {
            let number = |name| typed_column::<UInt64Array>(&batch, name);
            let (first, records, version) = (number("first")?, number("records")?, number("version")?);
            let (all, reason): (&BooleanArray, &StringArray) =
                (typed_column(&batch, "all_versions")?, typed_column(&batch, "reason")?);
            out.extend((0..batch.num_rows()).map(|i| Tombstone {
                first: first.value(i),
                records: records.value(i),
                version: Version(version.value(i)),
                all_versions: all.value(i),
                reason: reason.is_valid(i).then(|| reason.value(i).to_owned()),
            }));
        }
    }
    Ok(out)
}

/// A shard that was rewritten without some records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) struct Rewritten {
    /// Path of the old shard, whose bytes are deleted.
    pub(in crate::dataset) was: String,
    /// Path of its sidecar.
    pub(in crate::dataset) was_sidecar: String,
    /// The replacement; `None` if no record was left.
    pub(in crate::dataset) now: Option<ShardMeta>,
    /// Rows that the replacement lacks; `None` if that is not known, or if there is no replacement.
    pub(in crate::dataset) gone: Option<GoneRows>,
}

/// Encodes rows: those of a list of shards, with an empty path where nothing is left, preceded by the old path.
pub(in crate::dataset) fn rewritten_batch(rows: &[Rewritten]) -> Result<RecordBatch> {
    let nothing = ShardMeta::placeholder();
    let metas: Vec<ShardMeta> = rows.iter().map(|row| row.now.clone().unwrap_or_else(|| nothing.clone())).collect();
    let shards = shards::full_batch(&metas)?;
    let mut columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.was)))];
    columns.extend_from_slice(shards.columns());
    columns.push(Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.was_sidecar))));
    columns.push(Arc::new(rows.iter().map(|row| row.gone.as_ref().map(GoneRows::encode)).collect::<BinaryArray>()));
    Ok(RecordBatch::try_new(Arc::new(rewritten_schema()), columns)?)
}

/// Returns the columns of a list of rewritten shards.
pub(in crate::dataset) fn rewritten_schema() -> Schema {
    let mut fields = vec![Arc::new(Field::new("was", DataType::Utf8, false))];
    fields.extend(shards::shard_schema().fields().iter().cloned());
    fields.push(Arc::new(Field::new(WAS_SIDECAR, DataType::Utf8, false)));
    fields.push(Arc::new(Field::new(GONE, DataType::Binary, true)));
    Schema::new(fields)
}

const WAS_SIDECAR: &str = "was_sidecar";
const GONE: &str = "gone";

fn read_rewritten(store: &dyn Store, list: &Sealed) -> Result<Vec<Rewritten>> {
    let batches = table::read(store, list)?;
    let damaged = |e| table::damage_error(e, "the table is damaged", list.display_location(store));
    let mut metas = shards::decode_batches(&batches).map_err(damaged)?.into_iter();
    let mut out = Vec::with_capacity(metas.len());
    for batch in batches {
        let sidecars = typed_column::<StringArray>(&batch, WAS_SIDECAR)?;
        let paths = typed_column::<StringArray>(&batch, "was")?;
        // Lists that older erasures wrote lack it.
        let gone = batch.column_by_name(GONE).map(|_| typed_column::<BinaryArray>(&batch, GONE)).transpose()?;
        for (row, meta) in (0..batch.num_rows()).zip(metas.by_ref()) {
            let gone = gone.filter(|gone| gone.is_valid(row)).map(|gone| GoneRows::decode(gone.value(row)));
            out.push(Rewritten {
                was: paths.value(row).to_owned(),
                was_sidecar: sidecars.value(row).to_owned(),
                now: (!meta.path.is_empty()).then_some(meta),
                gone: gone.transpose().map_err(damaged)?,
            });
        }
    }
    Ok(out)
}

/// A segment of the id index, or a list, that was rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) struct ReplacedObject {
    /// Path of the old object.
    pub(in crate::dataset) was: String,
    /// Number of its buckets; 0 for lists.
    pub(in crate::dataset) was_buckets: u64,
    /// Path of the new object; `None` if nothing was left.
    pub(in crate::dataset) now: Option<String>,
    /// Pairs or rows of the new object.
    pub(in crate::dataset) rows: u64,
    /// Number of its buckets.
    pub(in crate::dataset) buckets: u64,
    /// Root of its hashes, of a segment with proofs.
    pub(in crate::dataset) root: Option<Hash>,
    /// Seals of its buckets, or of the list; empty if nothing was left.
    pub(in crate::dataset) seals: Vec<Seal>,
}

/// Returns the columns of a list of replaced objects.
pub(in crate::dataset) fn replaced_schema() -> Schema {
    let number = |name: &str| Field::new(name, DataType::UInt64, false);
    Schema::new(vec![
        Field::new("was", DataType::Utf8, false),
        number("was_buckets"),
        Field::new("now", DataType::Utf8, true),
        number("rows"),
        number("buckets"),
        Field::new("root", DataType::Binary, true),
        Field::new("seals", DataType::Binary, true),
    ])
}

pub(in crate::dataset) fn replaced_batch(rows: &[ReplacedObject]) -> Result<RecordBatch> {
    let seals = |row: &ReplacedObject| (!row.seals.is_empty()).then(|| seal::encode_seals(&row.seals));
    let numbers =
        |of: fn(&ReplacedObject) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.was))),
        numbers(|row| row.was_buckets),
        Arc::new(rows.iter().map(|row| row.now.as_deref()).collect::<StringArray>()),
        numbers(|row| row.rows),
        numbers(|row| row.buckets),
        Arc::new(rows.iter().map(|row| row.root).collect::<BinaryArray>()),
        Arc::new(rows.iter().map(seals).collect::<BinaryArray>()),
    ];
    Ok(RecordBatch::try_new(Arc::new(replaced_schema()), columns)?)
}

fn read_replaced(store: &dyn Store, list: &Sealed) -> Result<Vec<ReplacedObject>> {
    let mut out = Vec::new();
    for batch in table::read(store, list)? {
        let text = |name| typed_column::<StringArray>(&batch, name);
        let number = |name| typed_column::<UInt64Array>(&batch, name);
        let (was, now) = (text("was")?, text("now")?);
        let (was_buckets, rows, buckets) = (number("was_buckets")?, number("rows")?, number("buckets")?);
        let bytes = |name| typed_column::<BinaryArray>(&batch, name);
        let (roots, seals) = (bytes("root")?, bytes("seals")?);
        for i in 0..batch.num_rows() {
            let seals =
                if seals.is_valid(i) { seal::decode_seals(seals.value(i)).unwrap_or_default() } else { Vec::new() };
            let now = now.is_valid(i).then(|| now.value(i).to_owned());
            if now.is_some() && seals.len() as u64 != buckets.value(i).max(1) {
                let found = format!("expected a seal of each part of a rewritten object, found {}", seals.len());
                return Err(Error::integrity(found).at_location(list.display_location(store)));
            }
            out.push(ReplacedObject {
                was: was.value(i).to_owned(),
                was_buckets: was_buckets.value(i),
                now,
                rows: rows.value(i),
                buckets: buckets.value(i),
                root: if roots.is_valid(i) { roots.value(i).try_into().ok() } else { None },
                seals,
            });
        }
    }
    Ok(out)
}

/// What erasures have made of a shard.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::dataset) struct ShardFate<'a> {
    /// Its replacement; `None` if no record is left.
    pub(in crate::dataset) now: Option<&'a ShardMeta>,
    /// Rows of the shard that the replacement lacks, if that is known.
    pub(in crate::dataset) gone: Option<GoneRows>,
}

/// Maps old objects to their replacements.
#[derive(Debug, Default)]
pub(in crate::dataset) struct Replacements {
    shards: HashMap<String, Option<ShardMeta>>,
    /// Rows that the replacement of an old shard lacks.
    gone: HashMap<String, GoneRows>,
    /// Sidecars of old shards.
    sidecars: Vec<String>,
    others: HashMap<String, ReplacedObject>,
}

impl Replacements {
    /// Returns the replacements that an entry lists.
    pub(in crate::dataset) fn from_entry(store: &dyn Store, entry: &Entry) -> Result<Self> {
        let mut out = Self::default();
        let Some(erasures) = &entry.erasures else { return Ok(out) };
        for list in &erasures.rewritten {
            for row in read_rewritten(store, &list.as_sealed())? {
                out.sidecars.push(row.was_sidecar);
                out.gone.extend(row.gone.map(|gone| (row.was.clone(), gone)));
                out.shards.insert(row.was, row.now);
            }
        }
        for list in &erasures.replaced {
            out.others.extend(read_replaced(store, &list.as_sealed())?.into_iter().map(|row| (row.was.clone(), row)));
        }
        Ok(out)
    }

    /// Returns the replacements for objects that were just written.
    pub(in crate::dataset) fn from_replaced<'a>(replaced: impl Iterator<Item = &'a ReplacedObject>) -> Self {
        let others = replaced.map(|one| (one.was.clone(), one.clone())).collect();
        Self { others, ..Self::default() }
    }

    /// Returns the replacement at the end of a shard's chain: `None` if the shard was never rewritten, `Some(None)` if
    /// nothing of it is left.
    fn final_shard(&self, path: &str) -> Option<Option<&ShardMeta>> {
        let mut found = self.shards.get(path)?;
        while let Some(next) = found.as_ref().and_then(|now| self.shards.get(&now.path)) {
            found = next;
        }
        Some(found.as_ref())
    }

    /// Returns the current form of a shard; `None` if nothing of it is left.
    pub(in crate::dataset) fn current_shard(&self, shard: ShardMeta) -> Option<ShardMeta> {
        match self.final_shard(&shard.path) {
            None => Some(shard),
            Some(None) => None,
            // Its version and its position among the shards are unchanged.
            Some(Some(now)) => Some(ShardMeta {
                version: shard.version,
                committed_at: shard.committed_at,
                first_record: shard.first_record,
                ..now.clone()
            }),
        }
    }

    /// Returns what has become of a shard: `None` if it was never rewritten.
    pub(in crate::dataset) fn fate_of(&self, path: &str) -> Option<ShardFate<'_>> {
        let mut now = self.shards.get(path)?;
        let mut gone = self.gone.get(path).cloned();
        while let Some((next, found)) = now.as_ref().and_then(|now| self.shards.get_key_value(&now.path)) {
            gone = gone.zip(self.gone.get(next)).map(|(gone, later)| gone.followed_by(later));
            now = found;
        }
        Some(ShardFate { now: now.as_ref(), gone })
    }

    /// Whether an erasure from all versions has replaced or removed this shard.
    pub(in crate::dataset) fn has_shard(&self, path: &str) -> bool {
        self.shards.contains_key(path)
    }

    /// Returns the replacement of another object; `Some(None)` if nothing is left.
    fn final_object(&self, path: &str) -> Option<Option<&ReplacedObject>> {
        let mut found = self.others.get(path)?;
        while let Some(next) = found.now.as_ref().and_then(|now| self.others.get(now)) {
            found = next;
        }
        Some(found.now.is_some().then_some(found))
    }

    /// Returns the current form of segments of the id index.
    pub(in crate::dataset) fn current_segments(&self, segments: &[SegmentRef]) -> Vec<SegmentRef> {
        let replacement = |segment: &SegmentRef| match self.final_object(&segment.path) {
            None => Some(segment.clone()),
            Some(now) => now.map(|now| SegmentRef {
                path: now.now.clone().unwrap_or_default(),
                pairs: now.rows,
                buckets: now.buckets,
                root: now.root,
                seals: now.seals.clone(),
                ..segment.clone()
            }),
        };
        segments.iter().filter_map(replacement).collect()
    }

    /// Returns the current form of lists.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if a rewritten list has no seal.
    pub(in crate::dataset) fn current_lists(&self, lists: &[ListRef]) -> Result<Vec<ListRef>> {
        let replaced = |list: &ListRef, now: &ReplacedObject| -> Result<ListRef> {
            let missing =
                || Error::integrity("expected the seal of a rewritten list, found none").at_location(list.path.clone());
            let seal = *now.seals.first().ok_or_else(missing)?;
            let path = now.now.clone().unwrap_or_default();
            Ok(ListRef { path, rows: now.rows, root: now.root, seal })
        };
        let replacement = |list: &ListRef| match self.final_object(&list.path) {
            None => Some(Ok(list.clone())),
            Some(now) => now.map(|now| replaced(list, now)),
        };
        lists.iter().filter_map(replacement).collect()
    }

    /// Returns the objects that replace any for which `has` is true, by path: shards, and the paths of others.
    pub(in crate::dataset) fn needed_for(&self, has: impl Fn(&str) -> bool) -> (Vec<&ShardMeta>, Vec<String>) {
        let mut shards: HashMap<&str, &ShardMeta> = HashMap::new();
        for was in self.shards.keys().filter(|was| has(was)) {
            let mut path = was.as_str();
            while let Some(Some(now)) = self.shards.get(path) {
                path = &now.path;
                shards.insert(path, now);
            }
        }
        let mut others = Vec::new();
        for (was, replaced) in &self.others {
            let needed = has(was) || (0..replaced.was_buckets).any(|bucket| has(&SegmentRef::bucket_at(was, bucket)));
            let now = if needed { self.final_object(was).flatten() } else { None };
            others.extend(now.into_iter().flat_map(ReplacedObject::now_paths));
        }
        (shards.into_values().collect(), others)
    }

    /// Whether an object was replaced by an erasure and must no longer exist.
    pub(in crate::dataset) fn is_gone(&self, gone: &Gone, path: &str) -> bool {
        gone.objects.contains(path) || index_stem(path).is_some_and(|stem| gone.stems.contains(stem))
    }

    /// Returns the objects that must no longer exist.
    pub(in crate::dataset) fn gone_objects(&self) -> Gone {
        let mut gone = Gone::default();
        for was in self.shards.keys() {
            gone.objects.insert(was.clone());
            gone.stems.insert(shard_stem(was).to_owned());
        }
        for sidecar in &self.sidecars {
            gone.objects.extend([parts_beside(sidecar), numbers_beside(sidecar), sidecar.clone()]);
        }
        for replaced in self.others.values() {
            match replaced.was_buckets {
                0 => gone.objects.extend([replaced.was.clone()]),
                buckets => gone.objects.extend((0..buckets).map(|b| SegmentRef::bucket_at(&replaced.was, b))),
            }
        }
        gone
    }
}

impl ReplacedObject {
    fn now_paths(&self) -> Vec<String> {
        match (&self.now, self.buckets) {
            (None, _) => Vec::new(),
            (Some(now), 0) => vec![now.clone()],
            (Some(now), buckets) => (0..buckets).map(|bucket| SegmentRef::bucket_at(now, bucket)).collect(),
        }
    }
}

/// Objects that an erasure has replaced.
#[derive(Debug, Default)]
pub(in crate::dataset) struct Gone {
    objects: HashSet<String>,
    stems: HashSet<String>,
}

/// Maps the runs of a version that is not in the newest run table, because only a tag keeps it, to the replacements of
/// its shards, without the numbers of records erased from all versions. `erased` holds these, in ascending order.
fn mapped_runs(
    runs: &RunTable,
    replacements: &Replacements,
    erased: &[(u64, u64)],
    version: Version,
) -> Result<RunTable> {
    let mut out = Vec::new();
    for (shard, old) in runs.by_shard(version) {
        let now = match replacements.final_shard(shard) {
            None => {
                out.extend(old.into_iter().cloned());
                continue;
            }
            Some(None) => continue,
            Some(Some(now)) => now,
        };
        let mapped = |run: &Run, first, records, ordinal| Run {
            first,
            records,
            shard: now.path.clone(),
            ordinal,
            scattered: None,
            beside: Arc::new(now.beside.of_runs()),
            ..run.clone()
        };
        let mut ordinal = 0;
        for run in old {
            let (Some(scattered), Some(order)) = (&run.scattered, &now.order) else {
                for (first, records) in without_holes(run.first..run.end_record(), erased) {
                    out.push(mapped(run, first, records, ordinal));
                    ordinal += records;
                }
                continue;
            };
            let scattered = Some(Scattered { span: scattered.span, set: order.set.clone(), shard: 0, base: None });
            out.push(Run { scattered, ..mapped(run, run.first, now.records, 0) });
            ordinal = now.records;
        }
        if ordinal != now.records {
            return Err(Error::integrity(format!("expected runs of {} records, found {ordinal}", now.records))
                .at_location(now.path.clone()));
        }
    }
    Ok(RunTable::new(out))
}

/// Returns the rest of a range without `holes`, which are ascending and disjoint: first numbers and counts.
fn without_holes(range: Range<u64>, holes: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut at = range.start;
    let next = holes.partition_point(|(first, records)| first + records <= range.start);
    for (first, records) in holes[next..].iter().take_while(|(first, _)| *first < range.end) {
        if *first > at {
            out.push((at, first - at));
        }
        at = at.max(first + records);
    }
    if at < range.end {
        out.push((at, range.end - at));
    }
    out
}

/// An older version as read after an erasure from all versions.
pub(in crate::dataset) struct View {
    pub(in crate::dataset) entry: Entry,
    pub(in crate::dataset) shards: Vec<ShardMeta>,
    pub(in crate::dataset) runs: RunTable,
    pub(in crate::dataset) replacements: Replacements,
}

/// Maps a version from before the last erasure from all versions through the lists of the newest one. The rest of its
/// runs is in the newest version's run table, unless only a tag keeps the version.
pub(in crate::dataset) fn mapped_view(then: &Snapshot, newest: &Snapshot) -> Result<View> {
    let (dataset, entry, version) = (then.dataset(), then.entry().clone(), then.version());
    let replacements = Replacements::from_entry(dataset.store().as_ref(), newest.entry())?;
    let shards: Vec<ShardMeta> =
        then.live_shards()?.iter().filter_map(|shard| replacements.current_shard(shard.clone())).collect();
    let mut places = newest.entry().places.clone();
    let runs = if version < newest.readable_from() {
        let mut erased = NumberSet::default();
        for stone in read_tombstones(dataset, newest.entry())?.into_iter().filter(|stone| stone.all_versions) {
            (stone.first..stone.first + stone.records).for_each(|number| {
                erased.insert(number);
            });
        }
        places.extend(entry.places.iter().filter(|place| !newest.entry().places.contains(place)).cloned());
        mapped_runs(then.run_table()?, &replacements, &erased.to_ranges(), version)?
    } else {
        let known = newest.run_table()?.as_slice().iter().filter(|run| run.from <= version);
        RunTable::new(
            known.map(|run| Run { until: run.until.filter(|until| *until <= version), ..run.clone() }).collect(),
        )
    };
    let newest = newest.entry();
    let totals = Totals {
        shards: shards.len() as u64,
        records: shards.iter().map(|shard| shard.records).sum(),
        bytes: shards.iter().map(|shard| shard.bytes).sum(),
    };
    // No list contains its replaced shards, so the lists' roots do not apply.
    let lists = entry.shards.iter().map(|list| ListRef { root: None, ..list.clone() }).collect();
    let entry = Entry {
        totals,
        shards: lists,
        root: None,
        segments: replacements.current_segments(&entry.segments),
        sources: replacements.current_lists(&entry.sources)?,
        runs: newest.runs.clone(),
        lineage: newest.lineage.clone(),
        places,
        readable_from: newest.readable_from,
        erasures: newest.erasures.clone(),
        ..entry
    };
    Ok(View { entry, shards, runs, replacements })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{
        dataset::{
            ids::{IdKind, width::HashWidth},
            table::beside::Beside,
        },
        storage::RemoteStore,
    };

    fn shard(path: &str, records: u64) -> ShardMeta {
        ShardMeta { path: path.into(), records, ..ShardMeta::placeholder() }
    }

    fn replaced(was: &str, now: Option<&str>, buckets: u64) -> ReplacedObject {
        ReplacedObject {
            was: was.into(),
            was_buckets: buckets,
            now: now.map(str::to_owned),
            rows: 7,
            buckets,
            root: Some([7; 32]),
            seals: now.map_or_else(Vec::new, |now| vec![Seal::for_bytes(now.as_bytes()); 2]),
        }
    }

    #[test]
    fn chains_are_followed_to_their_ends() {
        let rows = [
            ("a".to_owned(), Some(shard("b", 9))),
            ("b".to_owned(), Some(shard("c", 8))),
            ("x".to_owned(), Some(shard("y", 1))),
            ("y".to_owned(), None),
        ];
        let others = [replaced("s", Some("t"), 2), replaced("t", Some("u"), 2), replaced("l", None, 0)];
        let replacements = Replacements {
            shards: rows.into_iter().collect(),
            gone: [("a", vec![2]), ("b", vec![0, 2])].map(|(was, rows)| (was.to_owned(), GoneRows::new(rows))).into(),
            sidecars: vec!["_shardify/sidecar/t/adopted/000000.table".into()],
            others: others.into_iter().map(|row| (row.was.clone(), row)).collect(),
        };
        let old = ShardMeta { version: Version(3), first_record: 40, ..shard("a", 10) };
        let now = replacements.current_shard(old).unwrap();
        assert_eq!((now.path.as_str(), now.records, now.version, now.first_record), ("c", 8, Version(3), 40));
        let fate = replacements.fate_of("a").unwrap();
        assert_eq!((fate.now.unwrap().path.as_str(), fate.gone), ("c", Some(GoneRows::new(vec![0, 2, 3]))));
        assert_eq!(replacements.fate_of("x"), Some(ShardFate { now: None, gone: None }));
        assert_eq!(replacements.fate_of("c"), None);
        assert_eq!(replacements.current_shard(shard("x", 2)), None);
        assert_eq!(replacements.current_shard(shard("z", 2)).unwrap().path, "z");
        let segment = |path: &str| SegmentRef {
            kind: IdKind::Record,
            path: path.into(),
            record_base: 5,
            split: None,
            ordered: false,
            hashes: HashWidth::Eight,
            pairs: 9,
            buckets: 2,
            bytes: 0,
            root: None,
            seals: Vec::new(),
        };
        let mapped = replacements.current_segments(&[segment("s"), segment("other")]);
        assert_eq!((mapped[0].path.as_str(), mapped[0].pairs, mapped[0].record_base), ("u", 7, 5));
        assert_eq!(mapped[1], segment("other"));
        let list =
            |path: &str| ListRef { path: path.into(), rows: 9, root: None, seal: Seal::for_bytes(path.as_bytes()) };
        assert_eq!(replacements.current_lists(&[list("l"), list("m")]).unwrap(), [list("m")]);
        let (shards, objects) = replacements.needed_for(|path| path == "a" || path == "s/b=0001.table");
        assert_eq!(shards.len(), 2);
        assert_eq!(objects, ["u/b=0000.table", "u/b=0001.table"]);
        let gone = replacements.gone_objects();
        for path in ["a", "b", "y", "t/b=0001.table", "l", "_shardify/sidecar/t/adopted/000000.table"] {
            assert!(replacements.is_gone(&gone, path), "{path}");
        }
        for path in ["c", "u/b=0000.table", "m"] {
            assert!(!replacements.is_gone(&gone, path), "{path}");
        }
    }

    #[test]
    fn runs_of_a_version_kept_only_by_a_tag_omit_erased_records() {
        assert_eq!(without_holes(10..20, &[]), [(10, 10)]);
        assert_eq!(without_holes(10..20, &[(0, 5), (8, 4), (15, 1), (19, 9), (40, 1)]), [(12, 3), (16, 3)]);
        assert!(without_holes(10..20, &[(5, 30)]).is_empty());
        let run = |first, records, shard: &str, ordinal, set: Option<&str>| Run {
            first,
            records,
            shard: shard.into(),
            ordinal,
            from: Version(2),
            until: None,
            since: Some(Version(1)),
            scattered: set.map(|set| Scattered { span: records, set: set.into(), shard: 7, base: None }),
            beside: Beside::placeholder(),
        };
        let sorted = |set: &str| {
            let order = crate::dataset::Order { by: crate::dataset::Arrangement::Sort, columns: Vec::new() };
            Some(crate::dataset::ShardOrder { order, set: set.into() })
        };
        let replacements = Replacements {
            shards: HashMap::from([
                ("a".to_owned(), Some(shard("b", 12))),
                ("b".to_owned(), Some(shard("c", 11))),
                ("x".to_owned(), None),
                ("s".to_owned(), Some(ShardMeta { order: sorted("new"), ..shard("t", 9) })),
            ]),
            ..Replacements::default()
        };
        let runs = RunTable::new(vec![
            run(100, 10, "a", 0, None),
            run(50, 5, "a", 10, None),
            run(200, 10, "x", 0, None),
            run(300, 10, "kept", 0, None),
            run(400, 10, "s", 0, Some("old")),
        ]);
        let erased = [(50, 1), (100, 1), (105, 2), (200, 10), (401, 1)];
        let mapped = mapped_runs(&runs, &replacements, &erased, Version(3)).unwrap();
        let mut shown: Vec<(&str, u64, u64, u64)> =
            mapped.as_slice().iter().map(|run| (run.shard.as_str(), run.first, run.records, run.ordinal)).collect();
        shown.sort_unstable();
        assert_eq!(
            shown,
            [("c", 51, 4, 7), ("c", 101, 4, 0), ("c", 107, 3, 4), ("kept", 300, 10, 0), ("t", 400, 9, 0)]
        );
        let scattered = mapped.as_slice().iter().find_map(|run| run.scattered.clone()).unwrap();
        assert_eq!(scattered, Scattered { span: 10, set: "new".into(), shard: 0, base: None });
        assert!(mapped_runs(&runs, &replacements, &[], Version(3)).is_err(), "more records than the shard has");
    }

    #[test]
    fn lists_are_read_back() {
        let store = RemoteStore::in_memory().unwrap();
        let put = |path: &str, rows: &RecordBatch| {
            let seal = table::write(&store, path, rows, table::writer_properties().build()).unwrap();
            Sealed::new(path, seal)
        };
        let rewritten = [
            Rewritten {
                was: "a".into(),
                was_sidecar: "s".into(),
                now: Some(shard("b", 9)),
                gone: Some(GoneRows::new(vec![9])),
            },
            Rewritten { was: "c".into(), was_sidecar: "d".into(), now: None, gone: None },
        ];
        let list = put("rewritten", &rewritten_batch(&rewritten).unwrap());
        assert_eq!(read_rewritten(&store, &list).unwrap(), rewritten);
        let others = [replaced("s", Some("t"), 2), replaced("l", None, 0)];
        let list = put("replaced", &replaced_batch(&others).unwrap());
        assert_eq!(read_replaced(&store, &list).unwrap(), others);
        let other = Sealed { seal: Seal::for_bytes(b""), ..list };
        assert_eq!(read_replaced(&store, &other).unwrap_err().kind(), crate::error::Kind::Integrity);
    }
}
