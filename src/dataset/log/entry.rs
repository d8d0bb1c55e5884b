//! The log: one JSON object per version, created only if absent.
//!
//! An entry is complete: it names every list and segment of its version, so opening a snapshot takes one listing, one
//! read of the entry, and one parallel round of reads. Names count down, so that the newest version comes first in a
//! listing. Unknown fields are ignored, so later releases may add some; `format` grows when an old release could not
//! read the dataset correctly any more. The last field is a checksum over all bytes before it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    codec::{
        Codec,
        hex::hash_or_none,
        merkle::Hash,
        seal::{close_json, json_is_whole},
    },
    dataset::{
        ids::private::PrivateIds,
        index::{SegmentRef, places::PlaceRef},
        log::erasures::Erasures,
        table::{list::ListRef, paths::system_path},
    },
    error::{Error, Result},
    format::{OutputFormat, index::IndexKind},
    id::{TransactionId, Version},
    record::subject::SubjectsFrom,
    storage::{RESTORE, Store, checked_path},
    units::Size,
};

/// Version of everything below `_shardify/`; a release reads datasets up to its own.
/// Every entry that is written has it.
pub const FORMAT_VERSION: u32 = 4;

/// First version whose entries carry a checksum.
const CHECKED_FORMAT: u32 = 4;

/// One version of the dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Format version of the dataset.
    pub format: u32,
    /// Number of this version.
    pub version: Version,
    /// Names the run that wrote it.
    pub transaction: TransactionId,
    /// When it was committed.
    #[serde(with = "instant")]
    pub committed_at: Timestamp,
    /// `convert`, `compact`, ...
    pub operation: String,
    /// Program and release that wrote it.
    pub tool: String,
    /// Options of the run that decided its output.
    pub arguments: BTreeMap<String, String>,
    /// Revisions of the repositories that the sources of the run lie in, as far as local files tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<Revision>,
    /// What the run did.
    pub counts: Counts,
    /// What the dataset is.
    pub settings: Settings,
    /// Sums over the live shards.
    pub totals: Totals,
    /// The next record number to give.
    pub next_record: u64,
    /// First version whose objects are all kept: `vacuum` deleted some of those that only older versions need.
    #[serde(default)]
    pub readable_from: Version,
    /// First of the versions that `vacuum` has expired and whose objects may not all be deleted yet; those from here to
    /// `readable_from` are looked at again.
    #[serde(default, skip_serializing_if = "is_no_version")]
    pub expired_from: Version,
    /// Tags of runs that must not commit any more, because this entry's `vacuum` deletes what they wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub abandoned: Vec<String>,
    /// Commit times that were found to be wrong, and what holds in their place; every later entry repeats them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<Correction>,
    /// Versions that were given a name for good: they stay readable, whatever `readable_from` says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Version>,
    /// Lists of live shards.
    pub shards: Vec<ListRef>,
    /// Lists that make up the run table.
    pub runs: Vec<ListRef>,
    /// Lists of runs that only vacuumed versions contain: they tell where a record was, long after its bytes are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<ListRef>,
    /// Lists of sources.
    pub sources: Vec<ListRef>,
    /// Segments of the id index.
    pub segments: Vec<SegmentRef>,
    /// Places of records that were sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceRef>,
    /// What was erased; absent when nothing ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erasures: Option<Erasures>,
    /// One hash for the version, as [`root`](super::root) makes it; absent where a release that had none wrote some list or
    /// segment.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    pub root: Option<Hash>,
}

impl Entry {
    /// Path of the entry, relative to the dataset.
    pub fn path(&self) -> String {
        path(self.version)
    }

    /// Whether the entry says that a run must not commit any more.
    pub fn abandons(&self, run: &TransactionId) -> bool {
        self.abandoned.iter().any(|tag| tag == run.tag())
    }
}

/// Versions whose commit times are later than that of a version after them: the clock of one machine was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Correction {
    /// First of them.
    pub first: Version,
    /// Last of them.
    pub last: Version,
    /// The time that holds for them, at which the error was found.
    #[serde(with = "instant")]
    pub at: Timestamp,
}

/// When a version was committed, by what is known now. `committed_at` is what its entry says.
pub(in crate::dataset) fn effective(
    corrections: &[Correction],
    version: Version,
    committed_at: Timestamp,
) -> Timestamp {
    let of = corrections.iter().rev().find(|c| c.first <= version && version <= c.last);
    of.map_or(committed_at, |correction| committed_at.min(correction.at))
}

impl Entry {
    /// When the version was committed, by what its own entry knows.
    pub fn effective_time(&self) -> Timestamp {
        effective(&self.corrections, self.version, self.committed_at)
    }
}

/// Whether a version is left out of an entry.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
fn is_no_version(version: &Version) -> bool {
    version.0 == 0
}

/// What a source is in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// URL or path of the source.
    pub source: String,
    /// `git`, `dvc` or `lakefs`.
    pub system: String,
    /// The commit, or the hash that DVC has for the source.
    pub revision: String,
    /// The branch that is checked out, or the algorithm of the hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// URL or path of the repository's folder, or of the `.dvc` file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Whether files differed from the revision; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty: Option<bool>,
}

/// What a run did: records in = out + rejected + deduplicated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Records read.
    pub records_in: u64,
    /// Records written.
    pub records_out: u64,
    /// Records not taken.
    pub records_rejected: u64,
    /// Those of them that were left out because they were erased before, which is as it should be.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records_erased: u64,
    /// Records left out because they were there already.
    pub records_deduplicated: u64,
    /// Records of earlier versions that the run removed from the dataset; they are none of the records read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records_removed: u64,
    /// Removed records that the run brought back.
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

/// Whether a count is left out of an entry: most datasets never erase.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Counts {
    /// Records that were rejected because something is wrong with them.
    pub fn records_refused(&self) -> u64 {
        self.records_rejected.saturating_sub(self.records_erased)
    }

    /// Fails unless every record that came in is accounted for.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) with the four counts.
    pub fn reconcile(&self) -> Result<()> {
        let accounted = self.records_out + self.records_rejected + self.records_deduplicated;
        if accounted == self.records_in {
            return Ok(());
        }
        Err(Error::mistaken(format!(
            "expected {} records to be accounted for, found {} written + {} rejected + {} deduplicated = {accounted}",
            self.records_in, self.records_out, self.records_rejected, self.records_deduplicated
        )))
    }
}

/// What all shards of the dataset have in common, and the defaults of later commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Format of the shards.
    pub shard_format: OutputFormat,
    /// Compression of the shards.
    pub codec: Codec,
    /// Size that shards aim at.
    pub target_shard: Size,
    /// Uncompressed bytes of a Parquet row group.
    pub row_group: Size,
    /// Columns that make the record id; empty: the origin or sample key.
    pub id: Vec<String>,
    /// Column of the subject id.
    pub subject: Option<String>,
    /// Where subject ids come from that are in no column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects_from: Option<SubjectsFrom>,
    /// Indexes for training tools that every shard has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexKind>,
    /// What stands for ids, where they are private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<PrivateIds>,
}

impl Settings {
    /// Whether records may have subject ids.
    pub fn has_subjects(&self) -> bool {
        self.subject.is_some() || self.subjects_from.is_some()
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

/// Path of a version's entry.
pub(in crate::dataset) fn path(version: Version) -> String {
    system_path(&format!("log/{:020}.json", u64::MAX - version.0))
}

/// Whether a path is that of an entry: 20 digits and `.json`. Consoles, file managers and Hadoop leave markers such as
/// `.DS_Store` or an empty object with the name of the folder wherever they come by.
fn is_entry(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".json").is_some_and(|number| number.len() == 20 && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The newest entry.
pub(in crate::dataset) fn latest(store: &dyn Store) -> Result<Option<Entry>> {
    let Some(first) = store.first(&system_path("log"), &is_entry)? else { return Ok(None) };
    match store.get(&first)? {
        Some(bytes) => decode(store, &first, &bytes).map(Some),
        None => Err(Error::storage("the newest log entry vanished while it was read").at(first)),
    }
}

/// The entry of one version.
pub(in crate::dataset) fn read(store: &dyn Store, version: Version) -> Result<Option<Entry>> {
    if version.0 == 0 {
        return Ok(None);
    }
    let path = path(version);
    store.get(&path)?.map(|bytes| decode(store, &path, &bytes)).transpose()
}

/// First version of receipts that carry a checksum.
pub const CHECKED_RECEIPT: u32 = 2;

/// Whether a receipt is as it was written, given what its checksum says; those of older releases have none.
pub(in crate::dataset) fn receipt_is_whole(bytes: &[u8], checked: Option<bool>) -> bool {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let head: Option<Head> = serde_json::from_slice(bytes).ok();
    checked.unwrap_or_else(|| head.is_some_and(|head| head.schema < CHECKED_RECEIPT))
}

/// Bytes of an entry, with its checksum.
pub(in crate::dataset) fn encode(entry: &Entry) -> Result<Vec<u8>> {
    let failed = || Error::internal("encoding a log entry failed");
    let json = serde_json::to_vec_pretty(entry).map_err(|e| failed().cause(e))?;
    close_json(json).ok_or_else(failed)
}

fn decode(store: &dyn Store, path: &str, bytes: &[u8]) -> Result<Entry> {
    /// Only what is needed to say that the rest cannot be understood.
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    let place = || store.location().join(path).to_string();
    let changed = |what: &str| Error::integrity(format!("the log entry is damaged: {what}")).at(place()).hint(RESTORE);
    // Of an entry that carries a checksum nothing is believed before it is known to be right.
    let checked = json_is_whole(bytes);
    if checked == Some(false) {
        return Err(changed("expected what its checksum is of, found other bytes"));
    }
    let bad = |e: serde_json::Error| {
        Error::integrity("the log entry is damaged").at(place()).line(e.line() as u64).hint(RESTORE).cause(e)
    };
    let head: Head = serde_json::from_slice(bytes).map_err(bad)?;
    if head.format >= CHECKED_FORMAT && checked.is_none() {
        return Err(changed("expected a checksum at its end, found none"));
    }
    if head.format > FORMAT_VERSION {
        return Err(Error::usage(format!("expected dataset format {FORMAT_VERSION} or older, found {}", head.format))
            .at(place())
            .hint("use a newer release of shardify"));
    }
    let entry: Entry = serde_json::from_slice(bytes).map_err(bad)?;
    check_paths(&entry).map_err(|e| e.at(place()))?;
    if checked.is_some() && entry.path() != path {
        return Err(changed(&format!("expected the version that its name says, found {}", entry.version)));
    }
    Ok(entry)
}

/// Fails where an entry names an object that does not lie below the dataset.
fn check_paths(entry: &Entry) -> Result<()> {
    let lists = [&entry.shards, &entry.runs, &entry.lineage, &entry.sources].into_iter().flatten();
    let lists = lists.map(|list| &list.path);
    let indexes = entry.segments.iter().map(|segment| &segment.path);
    let places = entry.places.iter().map(|place| &place.path);
    lists.chain(indexes).chain(places).try_for_each(|path| checked_path(path).map(drop))
}

/// RFC 3339 with microseconds.
mod instant {
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
    use super::*;
    use crate::error::Kind;

    #[test]
    #[expect(clippy::unwrap_used, reason = "tests fail loudly")]
    fn only_entries_are_read_as_entries() {
        let store = crate::storage::RemoteStore::memory().unwrap();
        assert!(latest(&store).unwrap().is_none());
        for marker in ["", "/.DS_Store", "/_SUCCESS", "/00000000000000000000.json.tmp", "/0.json", "/x/y"] {
            store.put(&format!("{}{marker}", system_path("log")), "".into()).unwrap();
        }
        assert!(latest(&store).unwrap().is_none());
        let entry = path(Version(1));
        store.put(&entry, r#"{"format": 99}"#.into()).unwrap();
        assert_eq!(latest(&store).unwrap_err().place().source.as_deref(), Some(&*format!("memory:///{entry}")));
    }

    #[test]
    fn newer_versions_sort_first() {
        assert!(path(Version(2)) < path(Version(1)));
        assert_eq!(path(Version(1)), "_shardify/log/18446744073709551614.json");
    }

    #[test]
    fn an_entry_of_which_a_bit_was_flipped_is_damaged() {
        let store = crate::storage::RemoteStore::memory().unwrap();
        let entry = |format| {
            serde_json::json!({
                "format": format, "version": 1, "transaction": "00", "committed_at": "2026-01-01T00:00:00Z",
                "operation": "convert", "tool": "t", "arguments": {},
                "counts": {"records_in": 0, "records_out": 0, "records_rejected": 0, "records_deduplicated": 0,
                    "bytes_in": 0, "bytes_out": 0, "shards_added": 0, "shards_removed": 0},
                "settings": {"shard_format": "tar", "codec": "none", "target_shard": 1, "row_group": 1, "id": [], "subject": null},
                "totals": {"shards": 0, "records": 0, "bytes": 0}, "next_record": 0,
                "shards": [], "runs": [], "sources": [], "segments": [],
            })
        };
        let path = path(Version(1));
        let read = |bytes: &[u8]| decode(&store, &path, bytes);
        let old = serde_json::to_vec_pretty(&entry(3)).unwrap();
        let parsed = read(&old).unwrap();
        assert_eq!((parsed.format, parsed.version), (3, Version(1)), "older releases wrote no checksum");
        let kind = |bytes: &[u8]| read(bytes).unwrap_err().kind();
        assert_eq!(kind(&serde_json::to_vec_pretty(&entry(4)).unwrap()), Kind::Integrity);
        let bytes = encode(&Entry { format: FORMAT_VERSION, ..parsed.clone() }).unwrap();
        assert_eq!(read(&bytes).unwrap().format, FORMAT_VERSION);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(kind(&flipped), Kind::Integrity, "byte {at} bit {bit}");
            }
        }
        // An entry under another name is another version.
        let other = encode(&Entry { format: FORMAT_VERSION, version: Version(2), ..parsed }).unwrap();
        assert_eq!(kind(&other), Kind::Integrity);
        let newer = close_json(serde_json::to_vec_pretty(&entry(5)).unwrap()).unwrap();
        assert_eq!(kind(&newer), Kind::Usage);
    }

    #[test]
    fn counts_that_do_not_add_up_are_an_error() {
        let counts = Counts { records_in: 3, records_out: 1, records_rejected: 1, ..Counts::default() };
        assert!(counts.reconcile().is_err());
        assert!(Counts { records_deduplicated: 1, ..counts }.reconcile().is_ok());
    }
}
