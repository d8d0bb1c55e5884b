//! Formats that shardify reads and writes: one folder each, without imports of each other.
//!
//! Inputs with many records per source implement [`RecordReader`]: a source is cut into [`SourceRange`]s in order, then
//! types are inferred from each range, or it is parsed, independently. Outputs whose shards are a plain sequence of
//! framed records implement [`Framing`]; Parquet, whose shards are row groups and a footer, has its own encoder.

pub mod adapted;
mod ahead;
pub mod arrays;
pub mod avro;
mod carry;
#[cfg(test)]
mod corpus;
pub mod csv;
pub mod excel;
pub mod facts;
pub mod files;
pub mod guard;
pub mod hdf5;
pub mod index;
pub mod ipc;
pub mod json;
pub mod netcdf;
pub mod nifti;
pub mod npy;
mod output;
pub mod parquet;
pub mod ranged;
mod rows;
pub mod safetensors;
pub mod tar;
pub mod tfrecord;
pub mod warc;
pub mod zarr;

use std::io::Read;

use arrow::datatypes::{Fields, SchemaRef};

use self::{arrays::ArraySource, tar::places::MemberPlaces};
pub use self::{
    facts::ReaderFacts,
    output::{OutputFacts, OutputFormat, StoredTypes},
};
use crate::{
    error::{Error, Kind, Result},
    record::{PartSizes, Payload, RecordBlock, SourcePart, SourceRange, filter::RowBounds, source_part::PartCuts},
};

/// A source, read from its first byte.
pub type SourceBytes<'a> = Box<dyn Read + Send + 'a>;

/// Ranges of a source, in order.
pub type RangeStream<'a> = Box<dyn Iterator<Item = Result<SourceRange>> + Send + 'a>;

/// An input format whose sources hold many records: rows of a table, or samples. One value represents one source with
/// its dialect.
pub trait RecordReader: Send + Sync + std::fmt::Debug {
    /// Returns what is known of the source.
    fn facts(&self) -> &ReaderFacts;

    /// Cuts the source, read from its first byte, into ranges of about `range_bytes`, in input order. The cut depends
    /// on the bytes alone, never on threads. A record longer than `max_record_bytes` is an error that names its
    /// position. Damage between records is an error that names its byte; the ranges before it are valid.
    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a>;

    /// Cuts the source, read from its first byte, into parts of about `sizes.part_bytes` that
    /// [`ranges_of`](Self::ranges_of) can read on their own. No parts, or a single one, mean that the source is read as
    /// a whole, as those are that cannot be entered in the middle.
    ///
    /// Damage is no error here, and nothing behind it is cut: the part that contains it reports it when it is read.
    ///
    /// # Errors
    /// When the store fails.
    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        let _ = (input, sizes);
        Ok(Vec::new())
    }

    /// Cuts a part of the source into ranges, as [`ranges`](Self::ranges) does with all of it. `input` begins with the
    /// first byte of the part and ends with its last, unless the reader holds the source itself. Offsets of ranges are
    /// those in the source.
    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        let _ = (part, input, range_bytes, max_record_bytes);
        let error = Error::internal("expected a source that can be read in parts, found one that cannot");
        Box::new(std::iter::once(Err(error)))
    }

    /// Decides anew how the source is read, from all of its bytes, after [`parse`](Self::parse) has returned a mismatch
    /// with [`TypeMismatch::QUOTES`]; no later `parse` does. Returns a note if it is read otherwise than before.
    ///
    /// # Errors
    /// When it cannot be read.
    fn settle(&self, input: SourceBytes<'_>) -> Result<Option<&'static str>> {
        let _ = input;
        Ok(None)
    }

    /// Returns the reader as one of arrays, if its records are slices of such.
    fn arrays(&self) -> Option<&dyn ArraySource> {
        None
    }

    /// Returns what is known, without reading them, of the rows of a range after they are parsed; `None` if nothing is.
    fn bounds<'a>(&'a self, range: &SourceRange) -> Option<RowBounds<'a>> {
        let _ = range;
        None
    }

    /// Infers the column types from this range; columns without a value have type `Null`. Invalid records are skipped.
    /// The union of the results for all ranges gives types that every value of the source fits.
    ///
    /// For samples, the columns are `__key__` and, for each part, one column named by its extension.
    fn infer(&self, range: &SourceRange) -> Fields;

    /// Parses the range into rows with the columns of `schema`, matched by name (columns the source lacks are null), or
    /// into samples, whose parts need not fit the schema.
    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed>;
}

/// Cuts a stream into parts that end between its ranges; `count` returns the numbers of records and lines of a range,
/// as `parse` counts them.
///
/// # Errors
/// When the store fails.
pub fn cut_parts(
    ranges: impl Iterator<Item = Result<SourceRange>>,
    sizes: &PartSizes,
    count: impl Fn(&SourceRange) -> (u64, u64),
) -> Result<Vec<SourcePart>> {
    let mut cuts = PartCuts::new(sizes, 0);
    for range in ranges {
        match range {
            Ok(range) => {
                let (records, lines) = count(&range);
                cuts.add_piece(range.offset + range.bytes_in(), records, lines);
            }
            Err(error) if error.kind() == Kind::Storage => return Err(error),
            Err(_) => break,
        }
    }
    Ok(cuts.of_bytes())
}

/// The result of parsing a range.
#[derive(Debug)]
pub enum Parsed {
    /// Every value fits; invalid records are among the block's rejects.
    Block(RecordBlock),
    /// A well-formed value does not fit the type of its column, or a column is not in the schema.
    Mismatch(TypeMismatch),
}

/// A value that needs a wider type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeMismatch {
    /// Column.
    pub column: String,
    /// Line within the range, from 0.
    pub line: u64,
    /// Byte offset in the source.
    pub byte: u64,
    /// The value, shortened to something that fits on a line.
    pub value: String,
    /// Type that the column had; [`Self::NO_COLUMN`] if there is no such column.
    pub expected: String,
}

impl TypeMismatch {
    /// What was expected where a source has a column that the schema lacks.
    pub const NO_COLUMN: &'static str = "no column of this name";

    /// What was expected where a record is possible only if a quote is a character.
    pub const QUOTES: &'static str = "quotes of RFC 4180";

    /// Whether the source is to be [settled](RecordReader::settle).
    pub fn is_of_quotes(&self) -> bool {
        self.expected == Self::QUOTES
    }

    /// Returns the error of a run whose columns and types are fixed, without its place in a source.
    pub fn error(&self) -> Error {
        if self.expected == Self::NO_COLUMN {
            return Error::input("expected the columns of the schema, found another one")
                .in_column(self.column.clone())
                .with_hint("add the column to the schema, or name the columns to keep with --columns");
        }
        if self.is_of_quotes() {
            return Error::input(
                "expected quotes as RFC 4180 has them, found a record that fits only if a quote is a character",
            )
            .with_hint(
                "enclose the value in quotes and double those in it; a larger --task-size reads the source as a whole",
            );
        }
        Error::input(format!("expected {}, found `{}`", self.expected, self.value)).in_column(self.column.clone())
    }
}

/// Records to be framed, with their keys.
#[derive(Debug, Clone, Copy)]
pub struct Keyed<'a> {
    /// The records.
    pub payload: &'a Payload,
    /// One key per record: the record id, or a name derived from the origin.
    pub keys: &'a [String],
    /// Columns that some of them do not have: a null there is no member of an object.
    pub lacking: &'a [String],
}

impl<'a> Keyed<'a> {
    /// Returns records of which all have the same columns.
    pub fn new(payload: &'a Payload, keys: &'a [String]) -> Self {
        Self { payload, keys, lacking: &[] }
    }
}

/// Framed records, one after the other.
#[derive(Debug, Default)]
pub struct Framed {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// Length of each record.
    pub lengths: Vec<u64>,
    /// Their members, if these are to be noted; formats without members leave it is.
    pub members: Option<MemberPlaces>,
}

/// A record found by scanning a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// Offset of its first byte in the uncompressed stream.
    pub offset: u64,
    /// Its length in bytes, framing and padding included.
    pub length: u64,
    /// XXH3-64 of these bytes.
    pub hash: u64,
}

/// Extents of an uncompressed shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes up to the end of the records.
    pub body: u64,
    /// All bytes, trailer included.
    pub raw: u64,
}

/// An output format whose shard is `record* trailer`, with every record framed independently of its neighbours, so that
/// shards can be joined by copying byte ranges.
pub trait Framing: Send + Sync + std::fmt::Debug {
    /// Appends records.
    ///
    /// # Errors
    /// If a record cannot be expressed in this format.
    fn frame(&self, records: Keyed<'_>, out: &mut Framed) -> Result<()>;

    /// Whether readers distinguish records by keys, so that neighbours must have different ones.
    fn has_keys(&self) -> bool;

    /// Approximate overhead in bytes per member of a record: headers, padding, checksums.
    fn member_bytes(&self) -> u64;

    /// Returns about how many bytes a member with that much content takes in a shard.
    fn member_size(&self, content: u64) -> u64 {
        content.saturating_add(self.member_bytes())
    }

    /// Returns the bytes that end a shard.
    fn trailer(&self) -> &'static [u8];

    /// Scans an uncompressed shard, checks every checksum and length of the format, and reports each record.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity), naming the byte offset, at the first fault, including a
    /// missing trailer and trailing bytes.
    fn scan(&self, input: &mut dyn Read, visit: &mut dyn FnMut(Scanned) -> Result<()>) -> Result<()>;

    /// Scans an uncompressed shard written by any program, and reports each record, with its key if the format has
    /// keys. For shards written by shardify, the records are the same as those of [`scan`](Self::scan).
    ///
    /// # Errors
    /// If the shard is damaged or truncated; names the byte.
    fn scan_foreign(
        &self,
        input: &mut dyn Read,
        visit: &mut dyn FnMut(Scanned, Option<&str>) -> Result<()>,
    ) -> Result<Extent>;
}

#[cfg(test)]
mod faulty;
#[cfg(test)]
mod part_checks;
