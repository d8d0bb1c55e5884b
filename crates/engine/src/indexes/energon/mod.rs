//! The index of Megatron-Energon: offsets of samples beside each shard, and the folder `.nv-meta/`, as
//! `energon prepare` makes it.
//!
//! ```text
//! 000000.tar.idx    u64 little-endian per sample, and one more: offset of its first header; the end of the last
//! .nv-meta/         .info.json  split.yaml  index.uuid  dataset.yaml  index.sqlite
//! ```
//!
//! Training that reads shards from beginning to end needs no `index.sqlite`; energon asks it for samples by their
//! keys, as auxiliary data and mounted datasets do. `database.rs` writes it, with the SQLite that the feature `energon`
//! of cargo compiles. Without the feature, versions of datasets with this index are not written at all.

#[cfg(feature = "energon")]
mod database;

use std::{fmt::Write as _, io::Write as _};

use super::kind::{self, About, Difference, FileBeside, Index, OfVersion, StartedShard};
use crate::{
    dataset::{Dataset, NewShard, PartRow, PartsWriter, SealingSink, ShardMeta, Snapshot},
    error::Result,
    format::{OutputFormat, index::IndexKind, tar::places::Place},
    record::split::split_of_path,
    storage::{self, Staged, Store},
};

/// The index for Megatron-Energon.
pub(super) struct Energon;

/// Database of samples by their keys.
const DATABASE: &str = ".nv-meta/index.sqlite";
const SPLIT: &str = ".nv-meta/split.yaml";
const INFO: &str = ".nv-meta/.info.json";
const UUID: &str = ".nv-meta/index.uuid";
const DESCRIPTION: &str = ".nv-meta/dataset.yaml";

/// A crude dataset: samples are passed on unchanged, and the training code interprets their parts.
const CRUDE: &str = "__module__: megatron.energon\n__class__: CrudeWebdataset\nsubflavors: {}\n";

impl Index for Energon {
    fn about(&self) -> &'static About {
        &About {
            help: "For Megatron-Energon",
            formats: &[OutputFormat::Tar],
            lists_members: true,
            needs_all_beside: true,
            ..About::NONE
        }
    }

    fn start_beside(&self, shard: &StartedShard<'_>) -> Result<Option<Box<dyn FileBeside>>> {
        let parts = PartsWriter::create(shard.store, shard.sidecar)?;
        Ok(Some(Box::new(Offsets { sink: shard.create_sink(IndexKind::Energon)?, parts })))
    }

    fn matches_records(&self, bytes: &[u8], records: &[(u64, u64)], _format: OutputFormat) -> bool {
        let end = records.last().map(|(offset, length)| offset.saturating_add(*length));
        let expected = records.iter().map(|(offset, _)| *offset).chain([end.unwrap_or_default()]);
        bytes.chunks(8).map(<[u8]>::to_vec).eq(expected.map(|offset| offset.to_le_bytes().to_vec()))
    }

    fn of_version(&self) -> Option<Box<dyn OfVersion>> {
        Some(Box::new(Folder::default()))
    }
}

/// The offsets of a shard's samples, and the list of their parts, which the database is made of.
struct Offsets {
    sink: SealingSink,
    parts: PartsWriter,
}

impl FileBeside for Offsets {
    fn add_member(&mut self, place: &Place<'_>, record: u64) -> Result<()> {
        if place.first {
            self.sink.write_all(&place.header.to_le_bytes())?;
        }
        self.parts.push(PartRow { record, name: place.name.to_owned(), offset: place.content, size: place.size })
    }

    fn finish(mut self: Box<Self>, _records: u64, end: u64) -> Result<Vec<Staged>> {
        self.sink.write_all(&end.to_le_bytes())?;
        Ok(vec![self.parts.finish()?, self.sink.finish()?])
    }
}

/// The folder `.nv-meta/`.
#[derive(Default)]
struct Folder {
    /// Database of the version that is about to be committed.
    database: Option<Database>,
}

impl OfVersion for Folder {
    fn check_dataset(&self, dataset: &Dataset, snapshot: Option<&Snapshot>) -> Result<()> {
        kind::refuse_to_replace(dataset, snapshot, IndexKind::Energon, &[DATABASE, SPLIT, INFO, UUID])
    }

    fn prepare_commit(
        &mut self,
        dataset: &Dataset,
        snapshot: Option<&Snapshot>,
        _adds: &[NewShard],
        shards: &[&ShardMeta],
    ) -> Result<()> {
        self.check_dataset(dataset, snapshot)?;
        self.database = Some(Database::create(dataset.store().as_ref(), shards)?);
        Ok(())
    }

    fn write(&mut self, snapshot: &Snapshot) -> Result<Option<String>> {
        let database = self.database.take();
        if self.find_differences(snapshot)?.is_empty() {
            return Ok(None);
        }
        let store = snapshot.dataset().store().as_ref();
        let shards = snapshot.live_shards()?;
        let database = match database.filter(|database| database.shards.iter().eq(shards.iter().map(|s| &s.path))) {
            Some(database) => database,
            None => Database::create(store, &shards.iter().collect::<Vec<_>>())?,
        };
        store.replace_staged(vec![database.staged])?;
        store.put(SPLIT, encode_split(shards).into())?;
        store.put(INFO, encode_info(shards).into())?;
        // Only users can describe what the parts mean, so an existing description is kept.
        store.put_if_absent(DESCRIPTION, CRUDE.into())?;
        store.put(UUID, content_uuid(shards).into())?;
        Ok(None)
    }

    fn find_differences(&self, snapshot: &Snapshot) -> Result<Vec<Difference>> {
        let store = snapshot.dataset().store().as_ref();
        let shards = snapshot.live_shards()?;
        let (info, split, uuid) = (encode_info(shards), encode_split(shards), content_uuid(shards));
        let expected = [(INFO, info.as_bytes()), (SPLIT, split.as_bytes()), (UUID, uuid.as_bytes())];
        let mut out = kind::compare_objects(store, &expected)?;
        if store.head(DATABASE)?.is_none() {
            out.push(kind::missing_object(DATABASE));
        }
        Ok(out)
    }
}

/// A database that is not published yet.
struct Database {
    /// Paths of its shards.
    shards: Vec<String>,
    staged: Staged,
}

impl Database {
    /// Builds the database of these shards.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if two samples have the same key;
    /// [`Kind::Usage`](crate::error::Kind::Usage) without the feature; also fails if the store fails.
    fn create(store: &dyn Store, shards: &[&ShardMeta]) -> Result<Self> {
        IndexKind::check_built(&[IndexKind::Energon])?;
        let scratch = storage::scratch_path(store.location())?;
        #[cfg(feature = "energon")]
        database::write_database(store, scratch.path(), shards)?;
        let mut sink = store.create_sink(DATABASE)?;
        scratch.copy_to(&mut sink)?;
        let staged = sink.finish()?;
        Ok(Self { shards: shards.iter().map(|shard| shard.path.clone()).collect(), staged })
    }
}

/// Encodes `.info.json`: shards and their counts; a shard's number is its position.
fn encode_info(shards: &[ShardMeta]) -> String {
    let mut out = "{\n  \"shard_counts\": {".to_owned();
    for (i, shard) in shards.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        // Writing to memory cannot fail.
        let _ = write!(out, "{comma}\n    {}: {}", serde_json::Value::from(shard.path.as_str()), shard.records);
    }
    out.push_str(if shards.is_empty() { "}\n}\n" } else { "\n  }\n}\n" });
    out
}

/// Encodes `split.yaml`: the shards of each split; all are for training if the dataset is not divided. Users keep other
/// splits in a file of another name.
fn encode_split(shards: &[ShardMeta]) -> String {
    let mut splits: Vec<(&str, String)> = ["train", "val", "test"].map(|split| (split, String::new())).to_vec();
    for shard in shards {
        let split = split_of_path(&shard.path).unwrap_or("train");
        let path = format!("\n  - {}", serde_json::Value::from(shard.path.as_str()));
        match splits.iter_mut().find(|(name, _)| *name == split) {
            Some((_, paths)) => paths.push_str(&path),
            None => splits.push((split, path)),
        }
    }
    let mut out = "split_parts:\n".to_owned();
    for (name, paths) in splits {
        // Writing to memory cannot fail.
        let _ = writeln!(out, "  {name}:{}", if paths.is_empty() { " []" } else { &paths });
    }
    out.push_str("exclude: []\n");
    out
}

/// Encodes `index.uuid`: an identifier of the content, in the form of a UUID (version 8: custom).
fn content_uuid(shards: &[ShardMeta]) -> String {
    let mut hasher = blake3::Hasher::new();
    for shard in shards {
        hasher.update(&(shard.path.len() as u64).to_le_bytes());
        hasher.update(shard.path.as_bytes());
        hasher.update(&shard.checksum);
    }
    let hex = hasher.finalize().to_hex();
    format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[12..15], &hex[15..18], &hex[18..30])
}
