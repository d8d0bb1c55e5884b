//! The root of a version: one hash over its shards, its id index and what was erased. A few kilobytes prove to a reader
//! without the dataset that an id is in the version, or that it is not.
//!
//! ```text
//! root -- head      "shardify root 1\nversion 5\nids plain\nlists 2\nsegments 2\ntombstones <SHA-256>\n"
//!      |- list      "list <shards> <root of shards>\n"                              as the log entry lists them
//!      |            '- shard    "shard <path> <records> <BLAKE3>\n"                 in the order of the list
//!      '- segment   "segment <kind> <record base> <pairs> <buckets> <root of buckets>[ <split>]\n" as listed
//!                   "sealed <kind> <record base> <pairs> <buckets> <root of seals>[ <split>]\n"    5-byte hashes
//! ```
//!
//! All levels are Merkle trees as in RFC 6962 ([`merkle`]); `dataset::index` defines the tree of a segment.
//! Hashes of lists and segments are stored in the log entry, so a commit computes its root from what it wrote itself
//! and from what was there before. Pairs are sorted, so two neighbouring blocks prove that nothing lies between them.
//! The head states the number of segments, so that none can be omitted, and how ids are stored, so that a plain id
//! cannot be looked up where the index has tokens: `ids plain`, or `ids hmac <check>` or `ids sealed <check>` with the
//! check value of the key. If records are divided by ids, the head ends in `split <rule>`: the writer has checked that
//! each id of a segment has the segment's split by this rule. The root depends only on what the version refers to.

use arrow::array::{BinaryArray, RecordBatch, StringArray, UInt64Array};
use sha2::{Digest, Sha256};

use crate::{
    codec::{
        hex::to_hex,
        merkle::{self, Hash},
    },
    dataset::{
        ids::private::IdMode,
        index::{SegmentTree, known_leaf},
        log::{
            entry::Entry,
            erased::read_tombstones,
            shards::{self, ShardMeta},
            snapshot::{Dataset, Snapshot},
        },
        table::typed_column,
    },
    error::{Error, Result},
    id::IdHash,
};

/// Returns the hash of a shard in a list.
fn shard_leaf(path: &str, records: u64, checksum: &[u8]) -> Hash {
    merkle::hash_leaf(format!("shard {path} {records} {}\n", to_hex(checksum)).as_bytes())
}

/// Returns the hashes of the rows of a list of shards.
pub(in crate::dataset) fn shard_leaves(rows: &RecordBatch) -> Result<Vec<Hash>> {
    let (paths, checksums): (&StringArray, &BinaryArray) =
        (typed_column(rows, "path")?, typed_column(rows, "checksum")?);
    let records: &UInt64Array = typed_column(rows, "records")?;
    let leaf = |row| shard_leaf(paths.value(row), records.value(row), checksums.value(row));
    Ok((0..rows.num_rows()).map(leaf).collect())
}

/// Returns the root of shards in order.
pub(in crate::dataset) fn root_of_shards(shards: &[ShardMeta]) -> Hash {
    let leaves: Vec<Hash> =
        shards.iter().map(|shard| shard_leaf(&shard.path, shard.records, &shard.checksum)).collect();
    merkle::merkle_root(&leaves)
}

fn list_leaf(shards: u64, root: &Hash) -> Hash {
    merkle::hash_leaf(format!("list {shards} {}\n", to_hex(root)).as_bytes())
}

/// Returns the leaves of the lists of shards; `None` for a version whose shards an erasure has replaced since.
fn known_lists(entry: &Entry) -> Option<Vec<Hash>> {
    entry.shards.iter().map(|list| Some(list_leaf(list.rows, &list.root?))).collect()
}

/// Returns the root of a version, computed from its entry.
pub(in crate::dataset) fn of_entry(dataset: &Dataset, entry: &Entry) -> Result<Hash> {
    let segments: Option<Vec<String>> = entry.segments.iter().map(known_leaf).collect();
    let (Some(lists), Some(segments)) = (known_lists(entry), segments) else {
        return Err(Error::integrity("expected roots of all lists of shards and segments, found a version without"));
    };
    Ok(Leaves::from_entry(dataset, entry, lists, segments.iter().map(String::as_str))?.merkle_root())
}

/// Checks that the lists of shards match their hashes in the log, and that the log's root follows from them. The hashes
/// of segments are checked whenever all their pairs are read.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) naming what was changed; if something cannot be read.
pub fn check_root(snapshot: &Snapshot) -> Result<()> {
    let (dataset, entry) = (snapshot.dataset(), snapshot.entry());
    let place = |path: &str| dataset.store().location().join(path).to_string();
    for list in &entry.shards {
        let Some(known) = list.root else { continue };
        if root_of_shards(&shards::read(dataset.log_cache(), &list.as_sealed())?) != known {
            return Err(Error::integrity("expected a list of shards that matches the hash in the log, found another")
                .at_location(place(&list.path)));
        }
    }
    match entry.root {
        Some(known) if of_entry(dataset, entry)? != known => {
            Err(Error::integrity("the root in the log entry does not follow from what it refers to")
                .at_location(place(&entry.path())))
        }
        _ => Ok(()),
    }
}

/// Returns the line of the head that states how the ids of a version are stored.
fn ids_line(entry: &Entry) -> String {
    match &entry.settings.private {
        None => IdMode::Plain.name().to_owned(),
        Some(private) => format!("{} {}", private.mode.name(), private.check),
    }
}

/// Returns the line of the head that states the rule by which ids have splits; empty if they do not follow from ids.
fn split_line(entry: &Entry) -> Result<String> {
    let Some((splits, _)) = entry.settings.divided_by() else { return Ok(String::new()) };
    let rule = serde_json::to_string(splits).map_err(|e| Error::internal("encoding a rule failed").with_cause(e))?;
    Ok(format!("split {rule}\n"))
}

/// The leaves of a version.
#[derive(Debug)]
struct Leaves {
    head: String,
    hashes: Vec<Hash>,
}

impl Leaves {
    fn from_entry<'a>(
        dataset: &Dataset,
        entry: &Entry,
        lists: Vec<Hash>,
        segments: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<Self> {
        let mut stones = Sha256::new();
        for stone in read_tombstones(dataset, entry)? {
            stones.update(format!("{} {} {}\n", stone.first, stone.records, stone.version));
        }
        let head = format!(
            "shardify root 1\nversion {}\nids {}\nlists {}\nsegments {}\ntombstones {}\n{}",
            entry.version.0,
            ids_line(entry),
            lists.len(),
            segments.len(),
            to_hex(&stones.finalize()),
            split_line(entry)?
        );
        let mut hashes = vec![merkle::hash_leaf(head.as_bytes())];
        hashes.extend(lists);
        hashes.extend(segments.map(|text| merkle::hash_leaf(text.as_bytes())));
        Ok(Self { head, hashes })
    }

    fn merkle_root(&self) -> Hash {
        merkle::merkle_root(&self.hashes)
    }
}

/// The tree of a version.
#[derive(Debug)]
pub struct VersionTree {
    /// The segments, in leaf order.
    pub segments: Vec<SegmentTree>,
    leaves: Leaves,
}

impl VersionTree {
    /// Returns the tree of a snapshot, with the blocks of its segments around a hash. If an erasure
    /// has replaced its shards since, they are treated as one list, in record order.
    ///
    /// # Errors
    /// When the index or a list cannot be read, or is not what the log says.
    pub fn new(snapshot: &Snapshot, around: Option<IdHash>) -> Result<Self> {
        let (dataset, entry) = (snapshot.dataset(), snapshot.entry());
        let segments: Vec<SegmentTree> = entry
            .segments
            .iter()
            .map(|segment| SegmentTree::new(dataset.store(), segment, around))
            .collect::<Result<_>>()?;
        let lists = match known_lists(entry) {
            Some(lists) => lists,
            None => {
                let shards = snapshot.live_shards()?;
                vec![list_leaf(shards.len() as u64, &root_of_shards(shards))]
            }
        };
        let leaves = Leaves::from_entry(dataset, entry, lists, segments.iter().map(|segment| segment.text.as_str()))?;
        Ok(Self { segments, leaves })
    }

    /// Returns the text of the first leaf.
    pub fn head_text(&self) -> &str {
        &self.leaves.head
    }

    /// Returns the root.
    pub fn merkle_root(&self) -> Hash {
        self.leaves.merkle_root()
    }

    /// Returns the number of leaves.
    pub fn leaf_count(&self) -> usize {
        self.leaves.hashes.len()
    }

    /// Returns the hashes of the leaves of lists.
    pub fn list_hashes(&self) -> &[Hash] {
        self.leaves.hashes.get(1..self.leaf_count() - self.segments.len()).unwrap_or_default()
    }

    /// Returns the sibling hashes on the path from the head to the root.
    pub fn head_path(&self) -> Vec<Hash> {
        merkle::audit_path(&self.leaves.hashes, 0)
    }

    /// Returns the leaf index of a segment, and the sibling hashes on its path.
    pub fn segment_path(&self, segment: usize) -> (usize, Vec<Hash>) {
        let index = self.leaf_count() - self.segments.len() + segment;
        (index, merkle::audit_path(&self.leaves.hashes, index))
    }
}
