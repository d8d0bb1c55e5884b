//! shardify turns piles of files and dumps into sized training shards, keeps them compacted, and can always say where
//! a record is, where it came from and which versions held it.
//!
//! The way of a record:
//!
//! ```text
//! location -> scan::SourceFile -> split -> format::<in> -> RecordBlock -> exec (parallel, in order, bounded)
//!          -> format::<out> encoder (parallel) -> ordered append -> ShardMeta -> Transaction -> commit (put-if-absent)
//! compact:  Snapshot -> plan::compact -> tasks -> copy | re-encode -> ShardMeta -> Transaction(replace) -> Snapshot
//! find:     Snapshot -> id index -> record number -> run table -> shard, ordinal, offset, origin, versions
//! ```
//!
//! Modules stand in layers and import only downwards; `tests/architecture/` enforces it. `ARCHITECTURE.md` is the
//! map, `docs/FORMAT.md` describes every byte written.

pub mod array;
pub mod cli;
pub mod codec;
pub mod dataset;
pub mod error;
pub mod events;
pub mod exec;
pub mod format;
#[doc(hidden)]
pub mod fuzzing;
pub mod id;
pub mod ops;
pub mod plan;
pub mod record;
pub mod scan;
pub mod schema;
pub mod storage;
pub mod units;

pub use error::{Error, Result};
