//! shardify turns piles of files and dumps into sized training shards, keeps them compacted, and records where each
//! record is, where it came from and which versions contain it.
//!
//! Data flow:
//!
//! ```text
//! location -> scan::SourceFile -> split -> format::<in> -> RecordBlock -> exec (parallel, in order, bounded)
//!          -> format::<out> encoder (parallel) -> ordered append -> ShardMeta -> Transaction -> commit (put-if-absent)
//! compact:  Snapshot -> plan::compact -> tasks -> copy | re-encode -> ShardMeta -> Transaction(replace) -> Snapshot
//! find:     Snapshot -> id index -> record number -> run table -> shard, ordinal, offset, origin, versions
//! ```
//!
//! Modules form layers and import only from lower ones; `tests/architecture/` enforces this. `ARCHITECTURE.md` is the
//! map of the code, `docs/FORMAT.md` specifies every byte on disk.

pub mod cli;
#[doc(hidden)]
pub mod fuzzing;
pub mod ops;

pub use shardify_core::{array, codec, error, events, id, record, schema, settings, storage, units};
pub use shardify_dataset::dataset;
pub use shardify_engine::{delta, exec, indexes, plan, scan};
pub use shardify_formats::format;

pub use error::{Error, Result};
