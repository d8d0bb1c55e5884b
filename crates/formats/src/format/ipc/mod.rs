//! Arrow IPC input: files (Feather 2), read through their footer, and streams, read front to back.
//!
//! ```text
//! stream   message* [ end mark ]            the mark may be missing, see [`identity`]
//! file     "ARROW1" 00 00   message* [ end mark ]   footer: schema, offsets of batches  length i32le   "ARROW1"
//! message  FF FF FF FF   length i32le   flatbuffer, padded to 8   body     (before Arrow 0.15: no FF FF FF FF)
//! end mark FF FF FF FF 00 00 00 00
//! ```
//!
//! Lengths in messages are not trusted: flatbuffers are verified, and the sizes that a batch states are checked against
//! a bound before it is decoded ([`claims`]). A batch is the smallest unit that can be read; it is passed on in pieces
//! of about the size of a range.

mod claims;
mod file;
mod identity;
mod stream;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, sync::Arc};

use arrow::{
    array::RecordBatch,
    datatypes::{Fields, Schema, SchemaRef},
    ipc::{self, MessageHeader},
};

pub use self::identity::StreamEnd;
use self::{
    file::{FileBatches, IpcFile},
    stream::StreamBatches,
};
use super::{
    Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, facts, ranged::RangedInput, rows::parsed_rows,
};
use crate::{
    error::{Error, Result},
    record::{
        Content, PartExtent, PartSizes, SourcePart, SourceRange, size::logical_bytes, source_part::PartCuts,
        widen::cast_to,
    },
    schema,
};

/// Format name in errors of the guard.
const ARROW: &str = "Arrow IPC data";

/// Magic bytes at the start and the end of a file.
const MAGIC: &[u8] = b"ARROW1";

/// Maximum bytes of a batch, as a multiple of those of the largest record.
const BATCH_RECORDS: u64 = 2;

/// Maximum rows of a piece, because rows may take no bytes.
const MAX_ROWS: usize = 1 << 20;

/// The two forms of Arrow IPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpcForm {
    /// With a footer.
    File,
    /// Messages alone.
    Stream,
}

/// Detects the form of an Arrow IPC source by its head. A stream begins with its schema.
pub fn sniff(head: &[u8]) -> Option<IpcForm> {
    if head.starts_with(MAGIC) {
        return Some(IpcForm::File);
    }
    let marked = head.strip_prefix(&[0xff; 4]);
    let (length, rest) = marked.unwrap_or(head).split_first_chunk::<4>()?;
    let length = usize::try_from(i32::from_le_bytes(*length)).ok()?;
    let is_schema = match rest.get(..length) {
        Some(message) => ipc::root_as_message(message).ok()?.header_type() == MessageHeader::Schema,
        // The schema of thousands of columns is longer than the head.
        None => marked.is_some() && begins_schema(rest) == Some(true),
    };
    is_schema.then_some(IpcForm::Stream)
}

/// Whether the start of a flatbuffer is that of a message with a schema; `None` if it is none, or too short to tell.
///
/// ```text
/// root: u32 -> table: i32, back to its vtable; fields        vtable: u16 bytes, u16 of the table, u16 per field
/// ```
fn begins_schema(start: &[u8]) -> Option<bool> {
    let place = |at: usize| -> Option<usize> {
        let bytes = start.get(at..)?.first_chunk::<4>()?;
        usize::try_from(i32::from_le_bytes(*bytes)).ok()
    };
    let table = place(0)?;
    let vtable = table.checked_sub(place(table)?)?;
    let field = start.get(vtable..)?.get(usize::from(ipc::Message::VT_HEADER_TYPE)..)?.first_chunk::<2>()?;
    let header = start.get(table..)?.get(usize::from(u16::from_le_bytes(*field)))?;
    Some(*header == MessageHeader::Schema.0)
}

/// Reads an Arrow IPC file, or any stream.
#[derive(Debug, Default)]
pub struct IpcReader {
    file: Option<IpcFile>,
}

impl IpcReader {
    /// Opens a file and reads its footer. `name` is used in errors.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is not an Arrow file, or has types without a plain form.
    pub fn open(input: RangedInput, name: &str) -> Result<Self> {
        let file = IpcFile::open(input, name)?;
        plain(file.schema()).map_err(|e| e.at_location(name))?;
        Ok(Self { file: Some(file) })
    }

    /// Returns a reader of streams, which receive their bytes through `ranges`.
    pub fn of_stream() -> Self {
        Self::default()
    }
}

impl RecordReader for IpcReader {
    fn facts(&self) -> &ReaderFacts {
        if self.file.is_some() { &facts::HELD } else { &facts::ROWS }
    }

    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        let batches = match &self.file {
            Some(file) => IpcBatches::File(FileBatches::new(file, 0..file.batch_count())),
            None => IpcBatches::Stream(Box::new(StreamBatches::new(input))),
        };
        Box::new(IpcRanges::new(batches, range_bytes, max_record_bytes))
    }

    /// Parts end between the batches of a file.
    fn parts(&self, _: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let limit = message_limit(sizes.max_record_bytes as u64);
        let mut cuts = PartCuts::new(sizes, 0);
        for batch in 0..file.batch_count() {
            // What is damaged is reported when it is read.
            let Some(rows) = file.rows_of(batch, limit)? else { return Ok(Vec::new()) };
            cuts.add_piece(file.share_of_batches(batch + 1), rows, 0);
        }
        Ok(cuts.of_units())
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        _: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        let number = |batch: u64| usize::try_from(batch).unwrap_or(usize::MAX);
        let (Some(file), PartExtent::Units { first, count, .. }) = (&self.file, &part.extent) else {
            let error = Error::internal("expected batches as a part of an Arrow file, found something else");
            return Box::new(std::iter::once(Err(error)));
        };
        let batches = number(*first)..number(first.saturating_add(*count));
        if batches.end > file.batch_count() {
            let message = format!("expected {} batches as when the parts were planned", batches.end);
            return Box::new(std::iter::once(Err(Error::input(format!("{message}, found {}", file.batch_count()))
                .with_hint("the file was changed since then; plan again"))));
        }
        let ranges = IpcRanges::new(IpcBatches::File(FileBatches::new(file, batches)), range_bytes, max_record_bytes);
        Box::new(ranges.starting_at_row(part.first_row))
    }

    fn infer(&self, range: &SourceRange) -> Fields {
        match &range.content {
            // Types without a plain form were refused during splitting.
            Content::Batch { batch, .. } => plain(batch.schema_ref()).map(|schema| schema.fields().clone()),
            Content::Bytes(_) | Content::Rows { .. } => return Fields::empty(),
        }
        .unwrap_or_default()
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let Content::Batch { batch, bytes } = &range.content else {
            return Err(Error::internal("expected a batch of rows, found bytes"));
        };
        let plain = plain(batch.schema_ref())?;
        parsed_rows(&cast_to(&named_batch(batch, &plain)?, &plain)?, range, schema, *bytes)
    }
}

/// Returns rows whose columns have the names that those of the schema in plain types have.
fn named_batch(batch: &RecordBatch, plain: &SchemaRef) -> Result<RecordBatch> {
    let names: Fields = plain
        .fields()
        .iter()
        .zip(batch.schema_ref().fields())
        .map(|(plain, given)| Arc::new(given.as_ref().clone().with_name(plain.name())))
        .collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(names)), batch.columns().to_vec())?)
}

/// Returns the most bytes of a message, given those of a record.
fn message_limit(max_record_bytes: u64) -> u64 {
    max_record_bytes.saturating_mul(BATCH_RECORDS)
}

/// Returns the schema in plain types, with unique names.
fn plain(schema: &SchemaRef) -> Result<SchemaRef> {
    let fields = schema::plain_fields(&schema::mark_stated(schema.fields()))?;
    let names = schema::distinct_names(fields.iter().map(|field| field.name().clone()).collect());
    let named = fields.iter().zip(names).map(|(field, name)| Arc::new(field.as_ref().clone().with_name(name)));
    Ok(Arc::new(Schema::new(named.collect::<Fields>())))
}

enum IpcBatches<'a> {
    File(FileBatches<'a>),
    Stream(Box<StreamBatches<'a>>),
}

impl IpcBatches<'_> {
    fn consumed(&self) -> u64 {
        match self {
            Self::File(batches) => batches.consumed_bytes(),
            Self::Stream(batches) => batches.consumed_bytes(),
        }
    }

    fn next(&mut self, limit: u64) -> Result<Option<RecordBatch>> {
        match self {
            Self::File(batches) => batches.next(limit),
            Self::Stream(batches) => {
                let started = batches.schema().is_some();
                let batch = batches.next(limit)?;
                // Types without a plain form are refused before types are inferred.
                if let (false, Some(schema)) = (started, batches.schema()) {
                    plain(&schema)?;
                }
                Ok(batch)
            }
        }
    }
}

/// Iterates over the batches of a source, in pieces.
struct IpcRanges<'a> {
    batches: IpcBatches<'a>,
    range_bytes: u64,
    max_record_bytes: u64,
    /// Number of rows so far.
    row: u64,
    /// Input bytes that the pieces so far represent.
    counted: u64,
    /// Pieces to be returned; the last one waits, because it represents all remaining input bytes.
    ready: VecDeque<SourceRange>,
    ended: bool,
}

impl Iterator for IpcRanges<'_> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended && self.ready.len() < 2 {
            match self.batches.next(message_limit(self.max_record_bytes)) {
                Ok(Some(batch)) => {
                    if let Err(error) = self.cut(&batch) {
                        return self.fail(error);
                    }
                }
                Ok(None) => {
                    self.ended = true;
                    if let Some(SourceRange { content: Content::Batch { bytes, .. }, .. }) = self.ready.back_mut() {
                        *bytes += self.batches.consumed() - self.counted;
                    }
                }
                Err(error) => return self.fail(error),
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

impl<'a> IpcRanges<'a> {
    fn new(batches: IpcBatches<'a>, range_bytes: usize, max_record_bytes: usize) -> Self {
        Self {
            range_bytes: range_bytes as u64,
            max_record_bytes: max_record_bytes as u64,
            row: 0,
            counted: batches.consumed(),
            batches,
            ready: VecDeque::new(),
            ended: false,
        }
    }

    /// Says that so many rows precede the first batch.
    fn starting_at_row(self, row: u64) -> Self {
        Self { row, ..self }
    }

    fn fail(&mut self, error: Error) -> Option<Result<SourceRange>> {
        self.ended = true;
        self.ready.clear();
        Some(Err(error))
    }

    fn cut(&mut self, batch: &RecordBatch) -> Result<()> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(());
        }
        if batch.num_columns() == 0 {
            return Err(Error::input(format!("expected columns, found {rows} rows without any")));
        }
        let mut pieces = Vec::new();
        self.halve(batch, &mut pieces)?;
        let (before, stands_for) = (self.counted, self.batches.consumed() - self.counted);
        let mut done = 0;
        for batch in pieces {
            done += batch.num_rows();
            let share = u128::from(stands_for) * done as u128 / rows as u128;
            let end = before + u64::try_from(share).unwrap_or(stands_for);
            let (offset, bytes) = (self.row, end - self.counted);
            (self.row, self.counted) = (self.row + batch.num_rows() as u64, end);
            self.ready.push_back(SourceRange::new(offset, Content::Batch { batch, bytes }));
        }
        Ok(())
    }

    /// Halves the rows until each piece is no larger than a range.
    fn halve(&self, batch: &RecordBatch, pieces: &mut Vec<RecordBatch>) -> Result<()> {
        let (rows, bytes) = (batch.num_rows(), logical_bytes(batch));
        if rows == 1 && bytes > self.max_record_bytes {
            let message = format!("expected rows of at most {} bytes, found one of {bytes}", self.max_record_bytes);
            return Err(Error::input(message).with_hint("raise --memory; a record may take an eighth of it"));
        }
        if rows <= 1 || bytes <= self.range_bytes && rows <= MAX_ROWS {
            pieces.push(batch.clone());
            return Ok(());
        }
        self.halve(&batch.slice(0, rows / 2), pieces)?;
        self.halve(&batch.slice(rows / 2, rows - rows / 2), pieces)
    }
}
