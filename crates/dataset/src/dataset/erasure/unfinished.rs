//! Work that an erasure has left after its commit, recorded with the commit.
//!
//! ```text
//! order (durable) -> entry that names it -> objects deleted, rejects cleaned -> receipt -> dropped by a later entry
//! ```
//!
//! An order lists the objects that the commit replaces, the words that lines of rejects must not contain, as keyed
//! hashes, and the receipt as far as it is known before the commit. So any later command can finish a killed erasure
//! without knowing the erased ids, and the receipt is the same as without the interruption.
//!
//! Nothing is deleted that a readable version has. An object at one of shardify's own paths was written by one run and
//! has no other use. The path of a shard that was adopted in place may have been reused by its owner; the file is
//! deleted only if it still has the adopted bytes.

use std::{
    collections::{HashMap, HashSet},
    io::Read,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    codec::hex::{from_hex, hash_or_none, to_hex},
    dataset::{
        ids::salt::{KeyedHash, Salt},
        index::SegmentRef,
        log::{
            entry::Entry,
            erased::Replacements,
            erasures::Unfinished,
            shards::{self, ShardMeta},
            snapshot::{Dataset, Snapshot},
        },
        table::{
            paths::{index_stem, is_shard_name, system_path},
            sealed::Sealed,
        },
    },
    error::{Error, Result},
    format::index::IndexKind,
    id::{TransactionId, Version},
    storage::{Listed, SMALL, SYSTEM_FOLDER, for_each_waiting},
};

/// Bytes of a file hashed at a time.
const PIECE: usize = 256 << 10;

/// The work left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureOrder {
    /// Objects that the commit replaces.
    pub delete: Vec<PendingDeletion>,
    /// Words that lines of rejects must not contain; empty if rejects stay as they are.
    pub words: Vec<HashedText>,
    /// The receipt, without facts known only at the end.
    pub receipt: Value,
}

/// An object to be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingDeletion {
    /// Its path.
    pub path: String,
    /// BLAKE3 of the bytes that may be deleted, if the path is not one of shardify's own: any other content is a user's
    /// file.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    pub blake3: Option<[u8; 32]>,
}

/// A text that is known only by its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HashedText {
    /// Length of the text.
    pub bytes: usize,
    /// HMAC-SHA-256 of the text under the salt of the dataset.
    #[serde(with = "keyed_hash")]
    pub hmac_sha256: KeyedHash,
}

/// A hash in JSON.
mod keyed_hash {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    use super::{KeyedHash, from_hex, to_hex};

    pub(in crate::dataset) fn serialize<S: Serializer>(hash: &KeyedHash, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_hex(hash))
    }

    pub(in crate::dataset) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<KeyedHash, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = from_hex(&text).and_then(|bytes| bytes.try_into().ok());
        hash.ok_or_else(|| D::Error::custom("expected 64 hexadecimal digits"))
    }
}

impl HashedText {
    /// Hashes a text.
    pub fn from_text(salt: &Salt, text: &str) -> Self {
        Self { bytes: text.len(), hmac_sha256: salt.hash(text) }
    }
}

impl ErasureOrder {
    /// Stores the order durably for the entry that will name it; `number` distinguishes the orders of one run.
    ///
    /// # Errors
    /// When the store fails.
    pub fn write(&self, dataset: &Dataset, transaction: &TransactionId, number: usize) -> Result<Unfinished> {
        let mut bytes =
            serde_json::to_vec_pretty(self).map_err(|e| Error::internal("encoding an order failed").with_cause(e))?;
        bytes.push(b'\n');
        let order = system_path(&format!("erasures/{transaction}-{number}.json"));
        let blake3 = to_hex(blake3::hash(&bytes).as_bytes());
        dataset.store().put_if_absent(&order, Bytes::from(bytes))?;
        Ok(Unfinished { version: Version(0), transaction: transaction.clone(), order, blake3 })
    }
}

impl Unfinished {
    /// Reads the order.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if it does not match the entry; if the store fails.
    pub fn read_order(&self, dataset: &Dataset) -> Result<ErasureOrder> {
        let place = || dataset.store().location().join(&self.order).to_string();
        let missing = || Error::integrity("the order of an erasure's remaining work is missing").at_location(place());
        let bytes = dataset.store().get(&self.order)?.ok_or_else(missing)?;
        if to_hex(blake3::hash(&bytes).as_bytes()) != self.blake3 {
            return Err(Error::integrity(
                "the order of an erasure's remaining work does not match the checksum in the log",
            )
            .at_location(place())
            .with_hint("nothing was deleted"));
        }
        serde_json::from_slice(&bytes).map_err(|e| {
            Error::integrity("the order of an erasure's remaining work is damaged").at_location(place()).with_cause(e)
        })
    }
}

impl PendingDeletion {
    /// Deletes the object; false if it does not exist, or another file is at its path.
    ///
    /// # Errors
    /// When the store fails.
    pub fn delete(&self, dataset: &Dataset) -> Result<bool> {
        let there = self.is_deletable(dataset)?;
        if there {
            dataset.store().delete(&self.path)?;
        }
        Ok(there)
    }

    /// Whether the object exists and may be deleted.
    ///
    /// # Errors
    /// When the store fails.
    pub fn is_deletable(&self, dataset: &Dataset) -> Result<bool> {
        let store = dataset.store();
        if store.head(&self.path)?.is_none() {
            return Ok(false);
        }
        let Some(expected) = self.blake3 else { return Ok(true) };
        let mut hasher = blake3::Hasher::new();
        let (mut source, mut piece) = (store.read(&self.path)?, vec![0; PIECE]);
        loop {
            match source.read(&mut piece) {
                Ok(0) => return Ok(*hasher.finalize().as_bytes() == expected),
                Ok(n) => {
                    hasher.update(&piece[..n]);
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::from(e).at_location(store.location().join(&self.path).to_string())),
            }
        }
    }
}

/// Returns the objects of a rewritten shard: the shard, its metadata objects, and, if the path is one of shardify's
/// own, the indexes beside it.
fn objects_of(shard: &ShardMeta) -> Vec<PendingDeletion> {
    let own = |path: String| PendingDeletion { path, blake3: None };
    let mut out: Vec<PendingDeletion> = shard.beside.sidecar_paths().map(own).into();
    let path = shard.path.as_str();
    if is_shard_name(path) {
        out.push(own(path.to_owned()));
        out.extend(IndexKind::ALL.iter().filter_map(|kind| kind.sidecar_path(path)).map(own));
    } else {
        out.push(PendingDeletion { path: path.to_owned(), blake3: Some(shard.checksum) });
    }
    out
}

/// Returns the existing objects that an erasure replaces: of `shards`, of segments with their numbers of buckets, and
/// of lists, which have none.
///
/// # Errors
/// When the store fails.
pub fn replaced_objects<'a>(
    dataset: &Dataset,
    shards: impl Iterator<Item = &'a ShardMeta>,
    others: impl Iterator<Item = (&'a str, u64)>,
) -> Result<Vec<PendingDeletion>> {
    let mut all: Vec<PendingDeletion> = shards.flat_map(objects_of).collect();
    all.extend(others.flat_map(|(path, buckets)| others_of(path, buckets)));
    // The bytes are compared immediately before deletion.
    let store = dataset.store().as_ref();
    let there = for_each_waiting(store, SMALL, &all, |object| Ok(store.head(&object.path)?.is_some()))?;
    Ok(all.into_iter().zip(there).filter_map(|(object, there)| there.then_some(object)).collect())
}

fn others_of(path: &str, buckets: u64) -> Vec<PendingDeletion> {
    let own = |path: String| PendingDeletion { path, blake3: None };
    match buckets {
        0 => vec![own(path.to_owned())],
        buckets => (0..buckets).map(|bucket| own(SegmentRef::bucket_at(path, bucket))).collect(),
    }
}

/// Returns what unfinished erasures named by `newest` still have to delete, except objects that a readable version has.
///
/// # Errors
/// When an order or a list cannot be read.
fn pending_deletions(newest: &Snapshot) -> Result<Vec<PendingDeletion>> {
    let dataset = newest.dataset();
    let mut pending = Vec::new();
    for unfinished in newest.entry().erasures.iter().flat_map(|erasures| &erasures.unfinished) {
        if !unfinished.is_finished(dataset.store().as_ref())? {
            pending.extend(unfinished.read_order(dataset)?.delete);
        }
    }
    without_used(newest, pending)
}

/// Removes objects that a readable version has.
///
/// # Errors
/// When the log or a list cannot be read.
pub fn without_used(newest: &Snapshot, mut pending: Vec<PendingDeletion>) -> Result<Vec<PendingDeletion>> {
    if !pending.is_empty() {
        let used = used_paths(newest)?;
        pending.retain(|object| !used.contains(&object.path));
    }
    Ok(pending)
}

/// Returns the objects of readable versions.
fn used_paths(newest: &Snapshot) -> Result<HashSet<String>> {
    let (dataset, entry) = (newest.dataset(), newest.entry());
    let replacements = Replacements::from_entry(dataset.store().as_ref(), entry)?;
    let mapped_before = entry.erasures.as_ref().map_or(Version(0), |erasures| erasures.rewrote_before);
    let mut readable: Vec<Entry> = dataset.entries_between(Version(entry.readable_from.0.max(1)), newest.version())?;
    for version in newest.tags().values().filter(|version| **version < newest.readable_from()) {
        readable.push(dataset.read_entry(*version)?);
    }
    let mut out: HashSet<String> = HashSet::new();
    let mut lists: HashMap<(String, bool), Sealed> = HashMap::new();
    for old in readable {
        let mapped = old.version < mapped_before;
        let (segments, sources) = match mapped {
            true => (replacements.current_segments(&old.segments), replacements.current_lists(&old.sources)?),
            false => (old.segments, old.sources),
        };
        out.extend(segments.iter().flat_map(|segment| segment.bucket_paths().collect::<Vec<_>>()));
        out.extend(sources.into_iter().map(|list| list.path));
        lists.extend(old.shards.iter().map(|list| ((list.path.clone(), mapped), list.as_sealed())));
    }
    let lists: Vec<((String, bool), Sealed)> = lists.into_iter().collect();
    shards::each_list(dataset.log_cache(), &lists, &mut |((_, mapped), _), shards| {
        let now = |shard| if *mapped { replacements.current_shard(shard) } else { Some(shard) };
        let now = shards?.into_iter().filter_map(now);
        out.extend(now.flat_map(|shard| objects_of(&shard)).map(|object| object.path));
        Ok(())
    })?;
    Ok(out)
}

/// Returns existing objects that erasures from all versions replaced and no readable version has: an erasure was
/// killed, perhaps one of a release that did not record the work left, or a user restored them. Files at paths that are
/// not shardify's own are considered only if the bytes they had are on record.
///
/// # Errors
/// If the log or a list cannot be read, or the store fails. Names that cannot be listed are never shardify's.
pub fn find_leftovers(newest: &Snapshot) -> Result<Vec<PendingDeletion>> {
    if newest.entry().erasures.as_ref().is_none_or(|erasures| erasures.rewrote_before.0 == 0) {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    newest.dataset().store().walk_folder("", &mut |listed| {
        if let Listed::Object(facts) = listed {
            paths.push(facts.path);
        }
        Ok(())
    })?;
    leftovers_among(newest, paths.iter().map(String::as_str))
}

/// Like [`find_leftovers`], among objects that were listed.
///
/// # Errors
/// As [`find_leftovers`].
pub fn leftovers_among<'a>(newest: &Snapshot, listed: impl Iterator<Item = &'a str>) -> Result<Vec<PendingDeletion>> {
    let dataset = newest.dataset();
    let replacements = Replacements::from_entry(dataset.store().as_ref(), newest.entry())?;
    let gone = replacements.gone_objects();
    let pending: HashMap<String, PendingDeletion> =
        pending_deletions(newest)?.into_iter().map(|object| (object.path.clone(), object)).collect();
    let mut found = Vec::new();
    for path in listed {
        match pending.get(path) {
            Some(object) => found.push(object.clone()),
            None if is_own(path) && replacements.is_gone(&gone, path) => {
                found.push(PendingDeletion { path: path.to_owned(), blake3: None });
            }
            None => {}
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let mut out = Vec::new();
    for object in without_used(newest, found)? {
        if object.blake3.is_none() || object.is_deletable(dataset)? {
            out.push(object);
        }
    }
    Ok(out)
}

/// Whether a path is chosen by shardify: below its folder, or that of one of its shards or of an index beside one.
fn is_own(path: &str) -> bool {
    let is_system = path.strip_prefix(SYSTEM_FOLDER).is_some_and(|rest| rest.starts_with('/'));
    is_system || is_shard_name(path) || index_stem(path).is_some_and(|stem| is_shard_name(&format!("{stem}.tar")))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{dataset::table::paths::receipt_path, storage::RemoteStore};

    fn dataset() -> Dataset {
        Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()))
    }

    #[test]
    fn an_order_is_believed_only_if_it_has_the_checksum_that_the_log_has() {
        let (dataset, salt) = (dataset(), Salt::fresh());
        let order = ErasureOrder {
            delete: vec![
                PendingDeletion { path: "a.tar".into(), blake3: Some([7; 32]) },
                PendingDeletion { path: "_shardify/lists/x".into(), blake3: None },
            ],
            words: vec![HashedText::from_text(&salt, "PAT-1")],
            receipt: serde_json::json!({ "records_erased": 3 }),
        };
        let unfinished = order.write(&dataset, &TransactionId::fresh(), 0).unwrap();
        assert_eq!(unfinished.read_order(&dataset).unwrap(), order);
        let text = dataset.store().get(&unfinished.order).unwrap().unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("PAT-1"));
        let changed = String::from_utf8_lossy(&text).replace("a.tar", "b.tar");
        dataset.store().put(&unfinished.order, changed.into()).unwrap();
        assert!(unfinished.read_order(&dataset).unwrap_err().to_string().contains("checksum"));
        dataset.store().delete(&unfinished.order).unwrap();
        assert!(unfinished.read_order(&dataset).unwrap_err().to_string().contains("missing"));
        assert!(!unfinished.is_finished(dataset.store().as_ref()).unwrap());
        dataset.store().put(&receipt_path(&unfinished.transaction), "{}".into()).unwrap();
        assert!(unfinished.is_finished(dataset.store().as_ref()).unwrap());
    }

    #[test]
    fn a_file_that_was_replaced_is_not_deleted() {
        let dataset = dataset();
        let put = |bytes: &str| dataset.store().put("a.tar", bytes.to_owned().into()).unwrap();
        let pending = PendingDeletion { path: "a.tar".into(), blake3: Some(*blake3::hash(b"adopted").as_bytes()) };
        assert!(!pending.delete(&dataset).unwrap());
        put("new");
        assert!(!pending.delete(&dataset).unwrap());
        assert!(dataset.store().head("a.tar").unwrap().is_some());
        put("adopted");
        assert!(pending.delete(&dataset).unwrap());
        assert!(dataset.store().head("a.tar").unwrap().is_none());
    }

    fn shard(path: &str) -> ShardMeta {
        ShardMeta { path: path.into(), checksum: [1; 32], ..ShardMeta::placeholder() }
    }

    #[test]
    fn objects_of_a_shard_never_include_files_beside_adopted_shards() {
        let paths =
            |path: &str| -> Vec<String> { objects_of(&shard(path)).into_iter().map(|object| object.path).collect() };
        let own = paths("0123456789abcdef/000000.tar");
        for path in ["0123456789abcdef/000000.tar", "0123456789abcdef/000000.idx", "0123456789abcdef/000000.tar.idx"] {
            assert!(own.contains(&path.to_owned()), "{path}");
        }
        assert_eq!(own.len(), 3 + 1 + 3);
        let foreign = objects_of(&shard("data/a.tar"));
        assert_eq!(foreign.len(), 4);
        assert_eq!(foreign[3], PendingDeletion { path: "data/a.tar".into(), blake3: Some([1; 32]) });
        for path in ["_shardify/lists/x", "0123456789abcdef/000000.tar", "0123456789abcdef/000000.idx"] {
            assert!(is_own(path), "{path}");
        }
        for path in ["a.tar", "a.idx", "data/000000.tar", "_shardify.txt"] {
            assert!(!is_own(path), "{path}");
        }
    }
}
