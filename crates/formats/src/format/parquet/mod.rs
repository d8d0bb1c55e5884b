//! Apache Parquet: shards made of row groups that are encoded in parallel, and a reader that survives hostile files.
//!
//! ```text
//! "PAR1" | row group 0: chunk of column 0, chunk of column 1, ... | row group 1 | ... | column indexes |
//!        | offset indexes | footer: schema, row groups, key-value metadata (ARROW:schema last) | length u32le | "PAR1"
//! chunk: [dictionary page] data page*    V1 pages of about 1 MiB or 20,000 rows, whichever comes first
//! ```
//!
//! A [`RowGroup`] is encoded in memory on any thread; a [`ParquetShard`] appends row groups in order. The bytes depend
//! only on the records and the options, not on the clock or the number of threads.

mod as_bytes;
mod bounds;
mod chunk;
#[cfg(test)]
mod corpus;
mod encode;
mod facts;
mod input;
mod int96;
mod logical;
mod open;
mod pages;
mod read;
mod samples;
mod splice;
mod thrift;
mod values;

// For tables with known columns, which are written without examining them.
pub use ::parquet::arrow::ARROW_SCHEMA_META_KEY as ARROW_SCHEMA;
pub use chunk::{Noted, Repeats, TextChunk};
pub use chunk::{
    put_behind_length, put_differences, put_even, put_header, put_hybrid, put_levels, put_same_levels, put_texts,
    put_texts_after_lengths, put_texts_without_prefixes, shared_prefix, width_of,
};
pub use encode::{ParquetEncoder, ParquetShard, RowGroup};
pub use facts::ColumnFacts;
pub use input::{ParquetReader, encrypted_error, is_encrypted, sniff};
pub use logical::storable_fields;
pub use read::{Batches, ParquetFile, RowGroupSize, open, open_with_pages};
pub use samples::{batch_of_samples, media_metadata, schema_of_samples};
pub use splice::{GroupNote, GroupPart, Proving, Source, Survey, TableChunk, Tally, splice_groups, splice_table};
pub use values::{Bound, ColumnBounds, ColumnValues};

pub use crate::record::{size::logical_bytes, widen::cast_to};
