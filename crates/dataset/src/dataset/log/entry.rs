//! The log: one JSON object per version, created only if absent.
//!
//! An entry is complete: it names every list and segment of its version, so opening a snapshot takes one listing, one
//! read of the entry, and one parallel round of reads. Entry names count down, so that the newest version comes first
//! in a listing. Unknown fields are ignored, so later releases may add some that others may ignore. The last field is a
//! checksum over all bytes before it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use arrow::datatypes::Fields;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    codec::{Codec, hex::hash_or_none, merkle::Hash, seal::json_is_whole},
    dataset::{
        ids::{IdKind, private::PrivateIds, width::HashWidth},
        index::{SegmentRef, places::PlaceRef},
        log::{
            attempts::Attempts, bounds, cache::LogCache, duplicates::DuplicatesRef, erasures::Erasures,
            operation::Operation,
        },
        table::{closed, list::ListRef, paths::system_path},
    },
    error::{Error, Result},
    format::{OutputFormat, index::IndexKind},
    id::{TransactionId, Version},
    record::{
        dedup::DedupBy,
        key_rule::KeyRule,
        split::{SplitBy, Splits},
        subject::SubjectsFrom,
    },
    storage::{RESTORE_HINT, Store, checked_path},
    units::Size,
};

/// Format of everything below `_shardify/`, which every entry states, whatever features the dataset uses.
pub const FORMAT_VERSION: u32 = 1;

/// One version of the dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Format version of the dataset.
    pub format: u32,
    /// Number of this version.
    pub version: Version,
    /// Id of the run that wrote it.
    pub transaction: TransactionId,
    /// When it was committed.
    #[serde(with = "instant")]
    pub committed_at: Timestamp,
    /// What the run did.
    pub operation: Operation,
    /// Program and release that wrote it.
    pub tool: String,
    /// Options of the run that affected its output.
    pub arguments: BTreeMap<String, String>,
    /// Revisions of the repositories that hold the run's sources, as far as local files reveal them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<Revision>,
    /// Record, byte and shard counts of the run.
    pub counts: Counts,
    /// Settings of the dataset.
    pub settings: Settings,
    /// Sums over the live shards.
    pub totals: Totals,
    /// The next record number to assign.
    pub next_record: u64,
    /// First version whose objects are all kept: `vacuum` may have deleted objects that only older versions need.
    #[serde(default)]
    pub readable_from: Version,
    /// Tags of runs that must no longer commit, because this entry's `vacuum` deletes what they wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub abandoned: Vec<String>,
    /// Corrections of wrong commit times; every later entry repeats them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<Correction>,
    /// Tagged versions: they stay readable, whatever `readable_from` says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Version>,
    /// Lists of live shards.
    pub shards: Vec<ListRef>,
    /// Lists that make up the run table.
    pub runs: Vec<ListRef>,
    /// Lists of runs that only vacuumed versions contain: they record where a record was, even after its bytes are
    /// deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<ListRef>,
    /// Lists of sources.
    pub sources: Vec<ListRef>,
    /// Lists of what the log keeps of vacuumed versions (see [`past`](super::past)); absent if none was vacuumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ListRef>,
    /// Segments of the id index.
    pub segments: Vec<SegmentRef>,
    /// Tables of places of sorted records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceRef>,
    /// Tables of the records that runs omitted as duplicates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub duplicates: Vec<DuplicatesRef>,
    /// State of erasures; absent if nothing was ever erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erasures: Option<Erasures>,
    /// Lists of what became of shards before a copy of them was made, see [`committed`](super::committed); only of a
    /// copy of a version from before an erasure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub basis: Vec<ListRef>,
    /// Merkle root of the version, computed by [`root`](super::root). Every stored entry has one; it is `None` in
    /// memory for a version whose shards an erasure has replaced since, to which the stored one does not apply.
    #[serde(with = "hash_or_none")]
    pub root: Option<Hash>,
}

impl Entry {
    /// Path of the entry, relative to the dataset.
    pub fn path(&self) -> String {
        entry_path(self.version)
    }

    /// Returns all lists that it names.
    pub(in crate::dataset) fn own_lists(&self) -> impl Iterator<Item = &ListRef> {
        let lists = [&self.shards, &self.runs, &self.lineage, &self.sources, &self.history, &self.basis];
        lists.into_iter().flatten().chain(self.erasures.iter().flat_map(Erasures::all_lists))
    }

    /// Whether the entry abandons a run, so that it must no longer commit.
    pub fn abandons(&self, run: &TransactionId) -> bool {
        self.abandoned.iter().any(|tag| tag == run.short_tag())
    }
}

/// Consecutive versions with commit times later than that of a following version, because a machine's clock was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Correction {
    /// First of these versions.
    pub first: Version,
    /// Last of these versions.
    pub last: Version,
    /// The time that applies to them instead: when the error was found.
    #[serde(with = "instant")]
    pub at: Timestamp,
}

/// Returns a version's commit time after corrections. `committed_at` is the time in its entry.
pub(in crate::dataset) fn corrected_time(
    corrections: &[Correction],
    version: Version,
    committed_at: Timestamp,
) -> Timestamp {
    let of = corrections.iter().rev().find(|c| c.first <= version && version <= c.last);
    of.map_or(committed_at, |correction| committed_at.min(correction.at))
}

impl Entry {
    /// Returns the version's commit time, corrected by its own entry.
    pub fn effective_time(&self) -> Timestamp {
        corrected_time(&self.corrections, self.version, self.committed_at)
    }
}

/// Revision of a source in a version control system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// URL or path of the source.
    pub source: String,
    /// `git`, `dvc` or `lakefs`.
    pub system: String,
    /// The commit, or DVC's hash of the source.
    pub revision: String,
    /// The checked-out branch, or the algorithm of the hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// URL or path of the repository's folder, or of the `.dvc` file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Whether files differed from the revision; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty: Option<bool>,
}

/// Counts of a run: records in = out + rejected + deduplicated + filtered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Records read.
    pub records_in: u64,
    /// Records written.
    pub records_out: u64,
    /// Records rejected.
    pub records_rejected: u64,
    /// Rejected records that were omitted because their ids are erased or blocked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records_erased: u64,
    /// Records skipped because they were already present.
    pub records_deduplicated: u64,
    /// Records that do not satisfy the condition of the run.
    pub records_filtered: u64,
    /// Records of earlier versions that the run removed from the dataset; they do not count as read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records_removed: u64,
    /// Removed records that the run restored.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records_restored: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes of shards written.
    pub bytes_out: u64,
    /// Shards written.
    pub shards_added: u64,
    /// Shards that stopped being live.
    pub shards_removed: u64,
}

/// Whether a count is omitted from the serialised entry: most datasets never erase.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Counts {
    /// Returns the number of records rejected because of an error.
    pub fn records_refused(&self) -> u64 {
        self.records_rejected.saturating_sub(self.records_erased)
    }

    /// Fails unless every record read is accounted for.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) with the counts.
    pub fn reconcile(&self) -> Result<()> {
        let accounted = self.records_out + self.records_rejected + self.records_deduplicated + self.records_filtered;
        if accounted == self.records_in {
            return Ok(());
        }
        Err(Error::inconsistent_output(format!(
            "expected {} records to be accounted for, found {} written + {} rejected + {} deduplicated + {} filtered \
             = {accounted}",
            self.records_in, self.records_out, self.records_rejected, self.records_deduplicated, self.records_filtered
        )))
    }
}

/// Properties shared by all shards of the dataset, and defaults of later commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Format of the shards.
    pub shard_format: OutputFormat,
    /// Compression of the shards.
    pub codec: Codec,
    /// Target size of shards.
    pub target_shard: Size,
    /// Uncompressed bytes of a Parquet row group.
    pub row_group: Size,
    /// Columns that make the record id; empty: the origin or sample key.
    pub id: Vec<String>,
    /// Column of the subject id.
    pub subject: Option<String>,
    /// Source of subject ids that are in no column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects_from: Option<SubjectsFrom>,
    /// Where the keys of samples of files end.
    #[serde(default, rename = "key", skip_serializing_if = "KeyRule::is_first_dot")]
    pub keys: KeyRule,
    /// Hash of the tables that labels of samples came from last, keyed if ids are private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// Types of the columns of these tables, which bind later tables; `null` for a column without a value so far.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::schema::file::listed")]
    pub label_types: Option<Fields>,
    /// Units of columns of arrays, which bind later runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<String, String>,
    /// Column of the labels that is the class of a sample; absent if classes come from folders, or there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_column: Option<String>,
    /// Names of the classes of samples, which are numbered in this order from 0; absent if none has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
    /// Indexes for training tools that every shard has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexKind>,
    /// Columns that rows keep, in their order; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Types of the columns of rows, which bind later runs; `null` for a column without a value so far. `None` for
    /// samples and adopted shards.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::schema::file::listed")]
    pub types: Option<Fields>,
    /// Columns that older shards may store with another type than `types` says.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub retyped: BTreeSet<String>,
    /// How records are divided for training and evaluation; `None` if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Splits>,
    /// What duplicates have in common that conversions omit; `None` if they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<DedupBy>,
    /// Number of records of a trial, which got the first of its input and gets no others; `None` for a whole dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Seed of the order of records, which each run shuffles; `None` if they have the order of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle: Option<u64>,
    /// Whether sidecars of Parquet shards have the content hash of every new row.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hash_records: bool,
    /// Bytes of the hashes in the id index; with eight, proofs lead from the root of a version to them.
    #[serde(rename = "hash_bytes", default, skip_serializing_if = "HashWidth::is_eight")]
    pub hashes: HashWidth,
    /// Settings of private ids, if ids are private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<PrivateIds>,
}

impl Settings {
    /// Whether sidecars of Parquet shards have the content hashes of new rows. Rows of text that only their origin
    /// names need them in any case: by its hash, an erasure tells an erased row from another one that has taken its
    /// place in the source.
    pub fn hashes_rows(&self, of_text: bool) -> bool {
        self.hash_records || (of_text && self.id.is_empty() && !self.has_subjects())
    }

    /// Whether records may have subject ids.
    pub fn has_subjects(&self) -> bool {
        self.subject.is_some() || self.subjects_from.is_some()
    }

    /// Returns the division into splits and the kind of the ids that it follows from, if sidecars and the id index have
    /// these ids as they were when the records were divided.
    pub fn divided_by(&self) -> Option<(&Splits, IdKind)> {
        let splits = self.split.as_ref()?;
        match splits.by {
            SplitBy::Subject => Some((splits, IdKind::Subject)),
            // Names of samples and of rows in archives may have been changed for a reader.
            SplitBy::Id if self.shard_format.is_columnar() => Some((splits, IdKind::Record)),
            SplitBy::Id | SplitBy::Content | SplitBy::Column(_) => None,
        }
    }

    /// Whether sidecars have the fingerprints by which duplicates are found.
    pub fn has_fingerprints(&self) -> bool {
        self.dedup.as_ref().is_some_and(DedupBy::needs_fingerprints)
    }
}

/// Sums over live shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Live shards.
    pub shards: u64,
    /// Live records.
    pub records: u64,
    /// Bytes of live shards.
    pub bytes: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shards, records, bytes } = self;
        write!(f, "{records} records and {bytes} bytes in {shards} shards")
    }
}

impl Totals {
    /// Counts a shard with so many records and bytes no more.
    ///
    /// # Errors
    /// Those of [`Self::records_without`].
    pub(in crate::dataset) fn subtract_shard(&mut self, records: u64, bytes: u64) -> Result<()> {
        let less = |total: u64, part: u64| total.checked_sub(part).ok_or_else(|| fewer_than(part, total));
        *self = Self {
            shards: less(self.shards, 1)?,
            records: less(self.records, records)?,
            bytes: less(self.bytes, bytes)?,
        };
        Ok(())
    }

    /// Returns how many records are left without so many of them.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the log counts fewer than its lists have.
    pub fn records_without(&self, records: u64) -> Result<u64> {
        self.records.checked_sub(records).ok_or_else(|| fewer_than(records, self.records))
    }
}

fn fewer_than(listed: u64, total: u64) -> Error {
    Error::integrity(format!(
        "the log is damaged: expected a total of at least {listed}, as its lists have, found {total}"
    ))
    .with_hint(RESTORE_HINT)
}

/// Path of a version's entry.
pub(in crate::dataset) fn entry_path(version: Version) -> String {
    system_path(&format!("log/{:020}.json", u64::MAX - version.0))
}

/// Returns the version whose entry has a path; `None` if it is the path of something else.
pub(in crate::dataset) fn version_of(object: &str) -> Option<Version> {
    let digits = object.strip_suffix(".json")?.rsplit('/').next()?;
    let version = Version(u64::MAX - digits.parse::<u64>().ok()?);
    (object == entry_path(version)).then_some(version)
}

/// Whether a path is that of an entry: 20 digits and `.json`. Consoles, file managers and Hadoop leave other objects in
/// folders, such as `.DS_Store` or an empty object with the name of the folder.
fn is_entry(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".json").is_some_and(|number| number.len() == 20 && number.bytes().all(|b| b.is_ascii_digit()))
}

/// How often the newest entry is looked for while it vanishes.
const LOOKS: usize = 10;

/// Returns the newest entry.
pub(in crate::dataset) fn newest_entry(cache: &LogCache) -> Result<Option<Entry>> {
    let store = cache.store().as_ref();
    let mut vanished = String::new();
    // Between listing and reading, others may have committed and a vacuum may have deleted it: there is a newer one.
    for _ in Attempts::at_most(LOOKS) {
        let Some(first) = store.find_first(&system_path("log"), &is_entry)? else { return Ok(None) };
        if let Some(entry) = cache.get_decoded(&first, |bytes| decode_entry(store, &first, bytes))? {
            return Ok(Some(entry));
        }
        vanished = first;
    }
    Err(Error::storage("the newest log entry vanished while it was read").at_location(vanished))
}

/// Returns the version of the newest entry, which is not read.
pub(in crate::dataset) fn newest_version(store: &dyn Store) -> Result<Option<Version>> {
    Ok(store.find_first(&system_path("log"), &is_entry)?.and_then(|path| version_of(&path)))
}

/// Returns the entry of a version.
pub(in crate::dataset) fn read(cache: &LogCache, version: Version) -> Result<Option<Entry>> {
    if version.0 == 0 {
        return Ok(None);
    }
    let path = entry_path(version);
    cache.get_decoded(&path, |bytes| decode_entry(cache.store().as_ref(), &path, bytes))
}

/// Returns the bytes of an entry, including its checksum.
pub(in crate::dataset) fn encode_entry(entry: &Entry) -> Result<Vec<u8>> {
    closed::encode_json(entry, "a log entry")
}

fn decode_entry(store: &dyn Store, path: &str, bytes: &[u8]) -> Result<Entry> {
    /// The part needed to report that the rest cannot be parsed.
    #[derive(Deserialize)]
    struct EntryHead {
        format: u32,
    }
    let place = || store.location().join(path).to_string();
    let changed = |what: &str| {
        Error::integrity(format!("the log entry is damaged: {what}")).at_location(place()).with_hint(RESTORE_HINT)
    };
    // Nothing in an entry is trusted until its checksum is verified.
    match json_is_whole(bytes) {
        Some(true) => {}
        Some(false) => return Err(changed("its checksum does not match its bytes")),
        None => return Err(changed("expected a checksum at its end, found none")),
    }
    let bad = |e: serde_json::Error| {
        Error::integrity("the log entry is damaged")
            .at_location(place())
            .at_line(e.line() as u64)
            .with_hint(RESTORE_HINT)
            .with_cause(e)
    };
    let head: EntryHead = serde_json::from_slice(bytes).map_err(bad)?;
    if head.format != FORMAT_VERSION {
        return Err(Error::usage(format!("expected dataset format {FORMAT_VERSION}, found {}", head.format))
            .at_location(place())
            .with_hint("use a newer release of shardify"));
    }
    let entry: Entry = serde_json::from_slice(bytes).map_err(bad)?;
    check_paths(&entry).map_err(|e| e.at_location(place()))?;
    bounds::check_entry(&entry).map_err(|e| changed(e.message()))?;
    if entry.path() != path {
        return Err(changed(&format!("expected the version in its file name, found {}", entry.version)));
    }
    Ok(entry)
}

/// Fails if an entry names an object outside of the dataset.
fn check_paths(entry: &Entry) -> Result<()> {
    let lists = entry.own_lists().map(|list| &list.path);
    let indexes = entry.segments.iter().map(|segment| &segment.path);
    let places = entry.places.iter().map(|place| &place.path);
    let duplicates = entry.duplicates.iter().map(|table| &table.path);
    lists.chain(indexes).chain(places).chain(duplicates).try_for_each(|path| checked_path(path).map(drop))
}

/// RFC 3339 with microseconds.
pub(in crate::dataset) mod instant {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(in crate::dataset) fn serialize<S: Serializer>(instant: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{instant:.6}"))
    }

    pub(in crate::dataset) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{codec::seal::close_json, error::Kind};

    #[test]
    #[expect(clippy::unwrap_used, reason = "tests fail loudly")]
    fn only_entries_are_read_as_entries() {
        let store: Arc<dyn Store> = Arc::new(crate::storage::RemoteStore::in_memory().unwrap());
        let latest = |store: &Arc<dyn Store>| newest_entry(&LogCache::new(Arc::clone(store)));
        assert!(latest(&store).unwrap().is_none());
        for marker in ["", "/.DS_Store", "/_SUCCESS", "/00000000000000000000.json.tmp", "/0.json", "/x/y"] {
            store.put(&format!("{}{marker}", system_path("log")), "".into()).unwrap();
        }
        assert!(latest(&store).unwrap().is_none());
        let entry = entry_path(Version(1));
        store.put(&entry, r#"{"format": 99}"#.into()).unwrap();
        assert_eq!(latest(&store).unwrap_err().place().source.as_deref(), Some(&*format!("memory:///{entry}")));
    }

    #[test]
    fn newer_versions_sort_first() {
        assert!(entry_path(Version(2)) < entry_path(Version(1)));
        assert_eq!(entry_path(Version(1)), "_shardify/log/18446744073709551614.json");
    }

    #[test]
    fn a_flipped_bit_in_an_entry_is_detected() {
        let store = crate::storage::RemoteStore::in_memory().unwrap();
        let entry = |format: u32| {
            serde_json::json!({
                "format": format, "version": 1, "transaction": "00", "committed_at": "2026-01-01T00:00:00Z",
                "operation": "convert", "tool": "t", "arguments": {},
                "counts": {"records_in": 0, "records_out": 0, "records_rejected": 0, "records_deduplicated": 0,
                    "records_filtered": 0, "bytes_in": 0, "bytes_out": 0, "shards_added": 0, "shards_removed": 0},
                "settings": {"shard_format": "tar", "codec": "none", "target_shard": 1, "row_group": 1, "id": [],
                    "subject": null},
                "totals": {"shards": 0, "records": 0, "bytes": 0}, "next_record": 0,
                "shards": [], "runs": [], "sources": [], "segments": [], "root": "00".repeat(32),
            })
        };
        let path = entry_path(Version(1));
        let read = |bytes: &[u8]| decode_entry(&store, &path, bytes);
        let kind = |bytes: &[u8]| read(bytes).unwrap_err().kind();
        let unchecked = serde_json::to_vec_pretty(&entry(1)).unwrap();
        assert_eq!(kind(&unchecked), Kind::Integrity, "an entry without a checksum");
        let bytes = close_json(unchecked).unwrap();
        let parsed = read(&bytes).unwrap();
        assert_eq!((parsed.format, parsed.version), (1, Version(1)));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(kind(&flipped), Kind::Integrity, "byte {at} bit {bit}");
            }
        }
        // Under the name of another version, an entry is invalid.
        let other = encode_entry(&Entry { version: Version(2), ..parsed }).unwrap();
        assert_eq!(kind(&other), Kind::Integrity);
        for other in [0, 2] {
            let other = close_json(serde_json::to_vec_pretty(&entry(other)).unwrap()).unwrap();
            assert_eq!(kind(&other), Kind::Usage);
        }
        // What every entry has may not be missing, and an unknown word is no operation.
        for (field, value) in [("root", None), ("counts", None), ("operation", Some("sort"))] {
            let mut changed = entry(1);
            let fields = changed.as_object_mut().unwrap();
            match value {
                None => drop(fields.remove(field)),
                Some(value) => drop(fields.insert(field.to_owned(), value.into())),
            }
            let changed = close_json(serde_json::to_vec_pretty(&changed).unwrap()).unwrap();
            assert_eq!(kind(&changed), Kind::Integrity, "{field}");
        }
    }

    #[test]
    fn counts_that_do_not_add_up_are_an_error() {
        let counts = Counts { records_in: 3, records_out: 1, records_rejected: 1, ..Counts::default() };
        assert!(counts.reconcile().is_err());
        assert!(Counts { records_deduplicated: 1, ..counts }.reconcile().is_ok());
        assert!(Counts { records_filtered: 1, ..counts }.reconcile().is_ok());
    }
}
