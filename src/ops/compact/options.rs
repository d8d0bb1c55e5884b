//! What a user may choose for a compaction.

use crate::{codec::Codec, dataset::Order, units::Size};

/// Options of `compact`.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Target size of a shard; `None` uses the dataset's setting.
    pub target_shard: Option<Size>,
    /// Minimum number of shards in a group worth rewriting.
    pub min_inputs: Option<usize>,
    /// Start of the window: a duration back from now, an instant or a version.
    pub since: Option<String>,
    /// End of the window.
    pub until: Option<String>,
    /// Compression of new shards, for Parquet.
    pub codec: Option<Codec>,
    /// Order of the records; `None` keeps the order of record numbers.
    pub order: Option<Order>,
    /// Maximum number of bytes to rewrite in this run.
    pub max_bytes: Option<Size>,
    /// Do not verify the checksums inside TFRecord shards; records are still compared with their sidecars.
    pub no_check: bool,
    /// How new shards are verified before they are committed.
    pub proof: ProofLevel,
    /// Plan without changing anything.
    pub dry_run: bool,
}

/// How a merge is verified to be lossless.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProofLevel {
    /// By checksums: copied bytes equal their source, and written bytes equal what was encoded.
    #[default]
    Checksums,
    /// In addition, decodes both sides and compares all values of all columns, or all bytes of all records.
    Full,
}

/// Default minimum number of shards in a group.
pub const DEFAULT_MIN_INPUTS: usize = 5;
