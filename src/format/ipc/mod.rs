//! Arrow IPC as input: files (Feather 2) and streams, both read from front to back.
//!
//! ```text
//! stream   message* [ end mark ]
//! file     "ARROW1" 00 ... (to 8 or 64 bytes)   message* end mark   footer   length i32le   "ARROW1"
//! message  FF FF FF FF   length i32le   flatbuffer, padded to 8   body     (before Arrow 0.15: no FF FF FF FF)
//! end mark FF FF FF FF 00 00 00 00
//! ```
//!
//! The messages of a file are those of a stream, so its footer is only held against what was read. Lengths in messages
//! are not trusted: flatbuffers and bodies grow as they are read, and whatever a batch says about the sizes of its values
//! is held against a bound before the batch is decoded.

mod message;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, io::Read, sync::Arc};

use arrow::{
    array::RecordBatch,
    buffer::Buffer,
    datatypes::{Fields, Schema, SchemaRef},
    ipc::{self, MessageHeader, reader::StreamDecoder},
};

use self::message::{END_MARK, Message, Messages, check_batch};
use super::{Parsed, RecordReader, guard::guard, rows::parsed};
use crate::{
    error::{Error, Result},
    record::{Content, Split, size::logical_bytes, widen::cast_to},
    schema,
};

/// What the guard expects.
const ARROW: &str = "Arrow IPC data";

/// A batch may take so many times the bytes of the largest record: it is the least that can be read at once.
const BATCH_RECORDS: u64 = 2;

/// How a file begins and ends.
const MAGIC: &[u8] = b"ARROW1";

/// Whether a source that begins so is Arrow IPC: a file, or a stream, which begins with its schema.
pub fn sniff(head: &[u8]) -> bool {
    let Some(rest) = head.strip_prefix(&[0xff; 4]) else { return head.starts_with(MAGIC) };
    let Some((length, rest)) = rest.split_first_chunk::<4>() else { return false };
    let length = usize::try_from(i32::from_le_bytes(*length)).unwrap_or(0);
    rest.get(..length).is_some_and(|bytes| {
        ipc::root_as_message(bytes).is_ok_and(|message| message.header_type() == MessageHeader::Schema)
    })
}

/// Reads Arrow IPC files and streams.
#[derive(Debug, Default)]
pub struct IpcReader;

impl IpcReader {
    /// A reader; there is nothing to set.
    pub fn new() -> Self {
        Self
    }
}

impl RecordReader for IpcReader {
    fn splits<'a>(
        &'a self,
        input: Box<dyn Read + Send + 'a>,
        split_bytes: usize,
        max_record_bytes: usize,
    ) -> Box<dyn Iterator<Item = Result<Split>> + Send + 'a> {
        let max_record_bytes = max_record_bytes as u64;
        Box::new(Splits {
            messages: Messages::new(input, max_record_bytes.saturating_mul(BATCH_RECORDS)),
            decoder: StreamDecoder::new(),
            split_bytes: split_bytes as u64,
            max_record_bytes,
            row: 0,
            batches: 0,
            counted: 0,
            ready: VecDeque::new(),
            ended: false,
        })
    }

    fn infer(&self, split: &Split) -> Fields {
        match &split.content {
            // What has no plain form was refused while it was cut.
            Content::Batch { batch, .. } => plain(batch.schema_ref()).map(|schema| schema.fields().clone()),
            Content::Bytes(_) | Content::Rows { .. } => return Fields::empty(),
        }
        .unwrap_or_default()
    }

    fn parse(&self, split: &Split, schema: &SchemaRef) -> Result<Parsed> {
        let Content::Batch { batch, bytes } = &split.content else {
            return Err(Error::internal("expected a batch of rows, found bytes"));
        };
        let plain = plain(batch.schema_ref())?;
        let names: Fields = plain
            .fields()
            .iter()
            .zip(batch.schema_ref().fields())
            .map(|(plain, given)| Arc::new(given.as_ref().clone().with_name(plain.name())))
            .collect();
        let named = RecordBatch::try_new(Arc::new(Schema::new(names)), batch.columns().to_vec())?;
        parsed(&cast_to(&named, &plain)?, schema, *bytes)
    }
}

/// The schema in plain types, with names told apart.
fn plain(schema: &SchemaRef) -> Result<SchemaRef> {
    let fields = schema::plain_fields(schema.fields())?;
    let names = schema::distinct_names(fields.iter().map(|field| field.name().clone()).collect());
    let named = fields.iter().zip(names).map(|(field, name)| Arc::new(field.as_ref().clone().with_name(name)));
    Ok(Arc::new(Schema::new(named.collect::<Fields>())))
}

/// The batches of a source, in pieces.
struct Splits<'a> {
    messages: Messages<'a>,
    decoder: StreamDecoder,
    split_bytes: u64,
    max_record_bytes: u64,
    /// Rows so far.
    row: u64,
    /// Batches so far.
    batches: usize,
    /// Bytes of input that the pieces so far stand for.
    counted: u64,
    /// Pieces to be handed out; the last one waits, for it stands for whatever comes after it.
    ready: VecDeque<Split>,
    ended: bool,
}

impl Iterator for Splits<'_> {
    type Item = Result<Split>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended && self.ready.len() < 2 {
            if let Err(error) = self.read() {
                self.ended = true;
                self.ready.clear();
                return Some(Err(error));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

impl Splits<'_> {
    /// Reads a message, and cuts the batch that it may hold.
    fn read(&mut self) -> Result<()> {
        let Some(Message { metadata, body }) = self.messages.next()? else {
            let mut end = Buffer::from(END_MARK);
            self.decode(&mut end)?;
            self.messages.finish(self.batches)?;
            self.ended = true;
            if let Some(Split { content: Content::Batch { bytes, .. }, .. }) = self.ready.back_mut() {
                *bytes += self.messages.consumed() - self.counted;
            }
            return Ok(());
        };
        check_batch(&metadata, &body, self.messages.limit())?;
        let mut head = Buffer::from_vec([&END_MARK[..4], &(metadata.len() as u32).to_le_bytes(), &metadata].concat());
        self.decode(&mut head)?;
        self.decode(&mut Buffer::from_vec(body))
    }

    fn decode(&mut self, bytes: &mut Buffer) -> Result<()> {
        let had_schema = self.decoder.schema().is_some();
        while !bytes.is_empty() {
            let decoded = guard(ARROW, "", || self.decoder.decode(bytes));
            if let Some(batch) = decoded.map_err(|e| self.here(e))? {
                self.cut(&batch)?;
            }
        }
        match self.decoder.schema() {
            Some(schema) if !had_schema => plain(&schema).map(drop),
            _ => Ok(()),
        }
    }

    /// The same error at the byte that was read last; there is no name to give here.
    fn here(&self, error: Error) -> Error {
        let place = Error::new(error.kind(), error.message()).byte(self.messages.consumed());
        error.hints().iter().fold(place, |place, hint| place.hint(hint)).cause(error)
    }

    fn cut(&mut self, batch: &RecordBatch) -> Result<()> {
        self.batches += 1;
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(());
        }
        if batch.num_columns() == 0 {
            return Err(Error::input(format!("expected columns, found {rows} rows without any")));
        }
        let mut pieces = Vec::new();
        self.halve(batch, &mut pieces)?;
        let (stands_for, before) = (self.messages.consumed() - self.counted, self.counted);
        let mut done = 0;
        for piece in pieces {
            done += piece.num_rows();
            let end = u128::from(stands_for) * done as u128 / rows as u128;
            let end = before + u64::try_from(end).unwrap_or(stands_for);
            let bytes = end - self.counted;
            self.counted = end;
            let length = piece.num_rows() as u64;
            self.ready.push_back(Split { offset: self.row, content: Content::Batch { batch: piece, bytes } });
            self.row += length;
        }
        Ok(())
    }

    /// Halves the rows until a piece is no larger than a split.
    fn halve(&self, batch: &RecordBatch, pieces: &mut Vec<RecordBatch>) -> Result<()> {
        /// Rows of a piece at most, for rows may take no bytes at all.
        const MAX_ROWS: usize = 1 << 20;
        let (rows, bytes) = (batch.num_rows(), logical_bytes(batch));
        if rows == 1 && bytes > self.max_record_bytes {
            let message = format!("expected rows of at most {} bytes, found one of {bytes}", self.max_record_bytes);
            return Err(Error::input(message).hint("raise --memory; a record may take an eighth of it"));
        }
        if rows <= 1 || bytes <= self.split_bytes && rows <= MAX_ROWS {
            pieces.push(batch.clone());
            return Ok(());
        }
        self.halve(&batch.slice(0, rows / 2), pieces)?;
        self.halve(&batch.slice(rows / 2, rows - rows / 2), pieces)
    }
}

impl std::fmt::Debug for Splits<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Splits").field("row", &self.row).finish_non_exhaustive()
    }
}
