//! What a shard is called, and what is known of it once its bytes are complete.

use crate::{
    codec::Codec,
    dataset::{NewShard, Settings, ShardMeta, folder_of},
    format::{OutputFormat, index::IndexKind},
    storage::Staged,
};

/// Paths, format and compression of the shards of one run.
#[derive(Debug, Clone)]
pub struct ShardNaming {
    /// Folder of the shards.
    pub tag: String,
    /// Format.
    pub format: OutputFormat,
    /// Compression.
    pub codec: Codec,
    /// Indexes of each shard.
    pub indexes: Vec<IndexKind>,
    /// Whether sidecars have a column of fingerprints.
    pub fingerprints: bool,
}

impl ShardNaming {
    /// Returns how the shards of a dataset are made, in a folder.
    pub fn for_dataset(settings: &Settings, folder: impl Into<String>) -> Self {
        Self {
            tag: folder.into(),
            format: settings.shard_format,
            codec: settings.codec,
            indexes: settings.indexes.clone(),
            fingerprints: settings.has_fingerprints(),
        }
    }

    /// Returns the naming for a folder below: `partition` follows the tag, `/` or `/key=value/`.
    pub fn in_partition(&self, partition: &str) -> Self {
        let tag = format!("{}{partition}", self.tag);
        Self { tag: tag.trim_end_matches('/').to_owned(), ..self.clone() }
    }

    /// Returns the path of the shard with this number: `<tag>/000017.tar.gz`.
    pub fn shard_path(&self, number: usize) -> String {
        let packed = if self.format.is_columnar() { "" } else { self.codec.stream_extension() };
        format!("{}/{number:06}.{}{packed}", self.tag, self.format.name())
    }
}

/// A complete shard that is not published yet.
#[derive(Debug)]
pub struct FinishedShard {
    /// Its sidecar, its indexes and, last, its bytes: the order in which they are published.
    pub staged: Vec<Staged>,
    /// Metadata and runs of the shard.
    pub shard: NewShard,
    /// MD5 of its bytes, if an index needs it.
    pub md5: Option<[u8; 16]>,
}

impl FinishedShard {
    /// Returns the shard's entry for the list of shards.
    pub fn meta(&self) -> &ShardMeta {
        &self.shard.meta
    }

    /// Returns the folder of the shard.
    pub fn folder(&self) -> &str {
        folder_of(&self.shard.meta.path)
    }
}
