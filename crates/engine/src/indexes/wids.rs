//! The index of wids, `shardindex.json`: shards with counts and MD5 sums. The list in a folder has the shards that one
//! commit put there, that of the dataset has all live shards and is built from the lists of the folders.
//!
//! ```text
//! {"__kind__", "wids_version", "shardlist": [{"url", "md5sum", "nsamples", "filesize"}]}
//! ```

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{
    kind::{self, About, Difference, Index, OfVersion, ShardWithMd5},
    names::{MemberName, Renaming, Rule},
};
use crate::{
    codec::hex::to_hex,
    dataset::{Dataset, Snapshot, get_sealed, stage_small},
    error::{Error, Result},
    format::{OutputFormat, index::IndexKind},
    storage::{Staged, Store},
};

/// The index for wids.
pub(super) struct Wids;

/// Name of the lists.
const LIST: &str = "shardindex.json";

/// Maximum bytes of a name that wids reads.
const NAME_BYTES: usize = 100;

const RULES: &[Rule] = &[Rule {
    fault: "over 100 bytes",
    reader: "wids",
    index: Some(IndexKind::Wids),
    harmless: false,
    breaks: |name: MemberName<'_>| name.key.len() + 1 + name.extension.len() > NAME_BYTES,
}];

impl Index for Wids {
    fn about(&self) -> &'static About {
        &About {
            help: "For wids",
            formats: &[OutputFormat::Tar],
            needs_md5: true,
            needs_all_beside: true,
            rules: RULES,
            renaming: Renaming { max_bytes: Some(NAME_BYTES), ..Renaming::NONE },
            ..About::NONE
        }
    }

    fn of_folder(&self, store: &dyn Store, shards: &[ShardWithMd5<'_>]) -> Result<Option<Staged>> {
        let Some((first, _)) = shards.first() else { return Ok(None) };
        let entry = |(meta, md5): &ShardWithMd5<'_>| {
            Some(Shard {
                url: meta.path.rsplit('/').next().unwrap_or_default().to_owned(),
                md5sum: to_hex(&(*md5)?),
                nsamples: meta.records,
                filesize: meta.bytes,
            })
        };
        let Some(list) = shards.iter().map(entry).collect::<Option<Vec<_>>>() else { return Ok(None) };
        Ok(Some(stage_small(store, &list_beside(&first.path), &List::new(list).encode()?)?))
    }

    fn of_version(&self) -> Option<Box<dyn OfVersion>> {
        Some(Box::new(Self))
    }
}

impl OfVersion for Wids {
    fn check_dataset(&self, dataset: &Dataset, snapshot: Option<&Snapshot>) -> Result<()> {
        kind::refuse_to_replace(dataset, snapshot, IndexKind::Wids, &[LIST])
    }

    fn write(&mut self, snapshot: &Snapshot) -> Result<Option<String>> {
        let list = of_live(snapshot)?;
        let store = snapshot.dataset().store().as_ref();
        if !kind::compare_objects(store, &[(LIST, &list)])?.is_empty() {
            store.put(LIST, list.into())?;
        }
        Ok(None)
    }

    fn find_differences(&self, snapshot: &Snapshot) -> Result<Vec<Difference>> {
        kind::compare_objects(snapshot.dataset().store().as_ref(), &[(LIST, &of_live(snapshot)?)])
    }
}

/// Returns the path of the list in the folder of a shard.
fn list_beside(shard: &str) -> String {
    format!("{}{LIST}", shard.rfind('/').map_or("", |slash| &shard[..=slash]))
}

/// Builds the list of all live shards from the lists of their folders.
fn of_live(snapshot: &Snapshot) -> Result<Vec<u8>> {
    let store = snapshot.dataset().store().as_ref();
    let mut lists: HashMap<String, List> = HashMap::new();
    let mut live = Vec::new();
    for shard in snapshot.live_shards()? {
        let path = list_beside(&shard.path);
        if !lists.contains_key(&path) {
            let place = store.location().join(&path).to_string();
            let bytes = get_sealed(store, &shard.beside_at(&path)?)?;
            lists.insert(path.clone(), List::decode(&bytes).map_err(|e| e.at_location(place))?);
        }
        let name = shard.path.rsplit('/').next().unwrap_or_default();
        let listed = lists.get(&path).and_then(|list| list.shardlist.iter().find(|s| s.url == name));
        let listed = listed.filter(|s| s.filesize == shard.bytes && s.nsamples == shard.records).ok_or_else(|| {
            Error::integrity(format!(
                "expected the shard `{name}` in the wids list, found no entry with its size and records"
            ))
            .at_location(path.clone())
        })?;
        live.push(Shard { url: shard.path.clone(), ..listed.clone() });
    }
    List::new(live).encode()
}

/// A shard in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Shard {
    /// Path relative to the list.
    url: String,
    /// MD5 of the whole file in hexadecimal.
    md5sum: String,
    /// Samples in it.
    nsamples: u64,
    /// Bytes of the file.
    filesize: u64,
}

/// A list of shards, whose order determines how readers number the samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct List {
    #[serde(rename = "__kind__")]
    kind: String,
    wids_version: u32,
    shardlist: Vec<Shard>,
}

impl List {
    fn new(shards: Vec<Shard>) -> Self {
        Self { kind: "wids-shard-index-v1".to_owned(), wids_version: 1, shardlist: shards }
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes =
            serde_json::to_vec_pretty(self).map_err(|e| Error::internal("encoding a list failed").with_cause(e))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|e| Error::integrity("the list of wids is damaged").with_cause(e))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_back_in_order() {
        let shard = |url: &str| Shard { url: url.into(), md5sum: "0".repeat(32), nsamples: 2, filesize: 10 };
        let list = List::new(vec![shard("b.tar"), shard("a.tar")]);
        assert_eq!(list.shardlist[0].url, "b.tar", "in the order of their records");
        let text = String::from_utf8(list.encode().unwrap()).unwrap();
        assert!(text.starts_with("{\n  \"__kind__\": \"wids-shard-index-v1\",\n  \"wids_version\": 1,"), "{text}");
        assert_eq!(List::decode(text.as_bytes()).unwrap(), list);
        assert!(List::decode(b"{}").is_err());
    }
}
