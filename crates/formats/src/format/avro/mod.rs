//! Avro object container files: a header with the schema, then blocks of records, each compressed by itself.
//!
//! ```text
//! header | block | block | ... | block        a block: count, bytes, data, sync marker
//!        |--- range ----|----- range ---|     whole blocks, decoded by one worker
//! ```
//!
//! Values are decoded here, from the schema that the file states: no other schema is laid over it, and columns that are
//! not taken are skipped. Each value that cannot be is told apart from damage, behind which nothing of a block can be
//! trusted ([`input`]). A file is read from front to back, so it may come from a stream or be compressed as a whole.

mod arrays;
mod column;
mod fields;
mod header;
mod input;
mod ranges;
mod schema;
mod skip;
mod table;
#[cfg(test)]
mod tests;
mod unpack;

use std::{
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::datatypes::{Fields, SchemaRef};

use self::{
    column::{AvroColumn, Weight},
    fields::{FileColumn, columns_of},
    header::{BlockHead, BlockLimits, Header, MAGIC},
    ranges::AvroRanges,
    table::{Rows, decode_range},
    unpack::Codec,
};
use super::{Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, TypeMismatch, ahead, cut_parts};
use crate::{
    error::{Error, Result},
    record::{
        Content, PartSizes, Payload, RecordBlock, SourcePart, SourceRange,
        hash::row_hashes,
        widen::{ValueMismatch, try_cast_to},
    },
    schema as types,
};

/// Maximum bytes of a block: offsets within columns have 31 bits.
const MAX_BLOCK: u64 = 0x7FFF_FFFF / 4;

/// First bytes of a message in Avro's single-object encoding.
const SINGLE_OBJECT: &[u8] = &[0xc3, 0x01];

/// Returns whether a file that begins with `head` is an Avro file.
pub fn sniff(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Returns whether bytes begin like a message in Avro's single-object encoding, which is no file.
pub fn is_single_object(head: &[u8]) -> bool {
    head.starts_with(SINGLE_OBJECT)
}

/// Returns the error for such a message.
pub fn single_object_error() -> Error {
    Error::input("expected an Avro file with its schema, found a message in Avro's single-object encoding")
        .with_hint("its schema is elsewhere; write the messages to an object container file with it")
}

/// Reads one Avro file.
#[derive(Debug)]
pub struct AvroReader {
    header: Header,
    /// All columns of the file.
    columns: Vec<FileColumn>,
    /// For each of them, whether it is read.
    taken: Vec<bool>,
    /// The columns that are read, in plain types.
    fields: Fields,
    /// What a record of these columns takes.
    weight: Weight,
    facts: ReaderFacts,
    /// Maximum bytes of a block; set by `ranges`.
    limit: AtomicU64,
}

impl AvroReader {
    /// Reads the header of a file from its start; `None` if it goes on behind the bytes of `input`.
    ///
    /// # Errors
    /// If the header is damaged, or states what is not supported.
    pub fn open(input: &mut dyn Read) -> Result<Option<Self>> {
        let mut bytes = Vec::new();
        loop {
            let target = (bytes.len() * 2).max(ahead::READ);
            let goes_on = ahead::fill_buffer(input, &mut bytes, target)?;
            if let Some(header) = Header::parse(&bytes)? {
                return Self::new(header).map(Some);
            }
            if !goes_on {
                return Ok(None);
            }
        }
    }

    /// Returns the error for a file that ends within its header.
    pub fn cut_short(bytes: u64) -> Error {
        ahead::cut_short("expected the header of an Avro file", bytes)
    }

    fn new(header: Header) -> Result<Self> {
        let columns = columns_of(&header.schema);
        let names = types::distinct_names(columns.iter().map(|column| column.name.clone()).collect());
        let columns: Vec<FileColumn> =
            columns.into_iter().zip(&names).map(|(column, name)| FileColumn { name: name.clone(), ..column }).collect();
        let unknown = header.schema.unknown.iter().map(|(path, name)| {
            format!("column `{path}` has the logical type {name}, which is not supported; it is read as bytes")
        });
        let remarks = unknown.collect();
        let facts = ReaderFacts {
            columns: Some(names),
            selects_columns: true,
            packs_records: true,
            remarks,
            ..ReaderFacts::default()
        };
        Ok(Self {
            taken: vec![true; columns.len()],
            columns,
            header,
            fields: Fields::empty(),
            weight: Weight { bytes: 0, least: 0 },
            facts,
            limit: AtomicU64::new(MAX_BLOCK),
        })
    }

    /// Reads the columns of these names alone, or all; those named in `binary` as bytes instead of text.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if one of them has a type that no column can have.
    pub fn with_columns(mut self, names: Option<&[String]>, binary: &[String]) -> Result<Self> {
        for (column, taken) in self.columns.iter_mut().zip(&mut self.taken) {
            *taken = names.is_none_or(|names| names.contains(&column.name));
            if binary.contains(&column.name) {
                column.read_as_bytes();
            }
        }
        let taken = || self.columns.iter().zip(&self.taken).filter(|(_, taken)| **taken).map(|(column, _)| column);
        let fields = taken().map(|column| match &column.field {
            Ok(field) => Ok(Arc::new(field.clone().with_name(&column.name))),
            Err(refused) => Err(refused.error()),
        });
        let fields: Fields = fields.collect::<Result<_>>()?;
        self.fields = types::plain_fields(&types::mark_stated(&fields))?;
        let bytes = taken().map(|column| AvroColumn::new(&column.of).weight().bytes).fold(0, u64::saturating_add);
        self.weight = Weight { bytes, least: self.header.schema.root.least };
        Ok(self)
    }

    fn limits(&self) -> BlockLimits {
        let bytes = self.limit.load(Ordering::Relaxed);
        BlockLimits { bytes, least: self.header.schema.root.least, plain: self.header.codec == Codec::Null }
    }

    fn set_limit(&self, max_record_bytes: usize) {
        self.limit.store((max_record_bytes as u64).min(MAX_BLOCK), Ordering::Relaxed);
    }

    /// Returns the head of the block at the start of `bytes`. The error says why there is none that is whole.
    fn whole_block(&self, bytes: &[u8], limits: BlockLimits) -> Result<BlockHead, String> {
        let head = BlockHead::read(bytes, limits)?;
        let Some(found) = bytes.get(head.end..head.next()) else {
            return Err("expected a whole block, found a part of one".to_owned());
        };
        if found != self.header.sync {
            let shown = |marker: &[u8]| marker.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            return Err(format!(
                "expected a block of {} records and the sync marker {}, found {}",
                head.records,
                shown(&self.header.sync),
                shown(found)
            ));
        }
        if head.records == 0 && head.end > head.start {
            let (data, mut content) = (bytes[head.start..head.end].to_vec().into(), Vec::new());
            let result = self.header.codec.unpack_to(&data, limits.bytes, &mut content);
            if result.is_err() || !content.is_empty() {
                return Err("expected a block without records to be empty, found data in it".to_owned());
            }
        }
        Ok(head)
    }
}

impl RecordReader for AvroReader {
    fn facts(&self) -> &ReaderFacts {
        &self.facts
    }

    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        self.set_limit(max_record_bytes);
        Box::new(AvroRanges::new(self, input, 0, self.header.bytes, range_bytes))
    }

    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        let ranges = self.ranges(input, sizes.range_bytes, sizes.max_record_bytes);
        // A gap is one reject.
        cut_parts(ranges, sizes, |range| (range.row_count().unwrap_or(1), 0))
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        self.set_limit(max_record_bytes);
        let skipped = if part.is_first() { self.header.bytes } else { 0 };
        Box::new(AvroRanges::new(self, input, part.start_byte(), skipped, range_bytes))
    }

    fn infer(&self, _: &SourceRange) -> Fields {
        self.fields.clone()
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let Content::Bytes(bytes) = &range.content else {
            return Err(Error::internal("expected blocks of an Avro file, found rows"));
        };
        let Rows { batch, rows, rejects } = decode_range(self, range, bytes, self.limits())?;
        let hashes = range.hashes_if_needed(batch.num_rows(), || row_hashes(&batch));
        Ok(match try_cast_to(&batch, schema)? {
            Err(ValueMismatch { column, row, value, expected, .. }) => {
                let line = rows.get(row).copied().map_or(0, u64::from);
                Parsed::Mismatch(TypeMismatch { column, line, byte: range.offset, value, expected })
            }
            Ok(batch) => Parsed::Block(RecordBlock {
                payload: Payload::Rows(batch),
                rows,
                hashes,
                rejects,
                bytes_in: range.bytes_in(),
                ..RecordBlock::empty()
            }),
        })
    }
}

/// Returns a number of a record within a range, which has fewer than 32 bits can count.
fn row_number(records: u64) -> u32 {
    u32::try_from(records).unwrap_or(u32::MAX)
}
