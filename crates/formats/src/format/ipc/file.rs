//! Arrow IPC files: batches at the offsets given by the footer.
//!
//! The format specifies that a file holds a stream between its magic bytes and its footer. JavaScript and Polars omit
//! the schema there, others omit the end mark or pad between messages, so only the footer is used.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::RecordBatch,
    buffer::Buffer,
    datatypes::SchemaRef,
    ipc::{self, Block, MetadataVersion, convert::try_fb_to_schema, reader::FileDecoder},
};

use super::{
    ARROW, MAGIC,
    claims::{check_message, too_large},
};
use crate::{
    error::{Error, Kind, Result},
    format::{guard::guard_decoding, ranged::RangedInput},
};

/// Bytes of the footer's length and of the magic bytes at the end.
const TAIL_BYTES: u64 = 10;

/// Maximum bytes of a footer, which is room for a hundred thousand columns.
const MAX_FOOTER_BYTES: u64 = 64 << 20;

/// A file whose footer was read.
#[derive(Debug)]
pub(super) struct IpcFile {
    input: RangedInput,
    name: String,
    schema: SchemaRef,
    version: MetadataVersion,
    dictionaries: Vec<Block>,
    batches: Vec<Block>,
}

impl IpcFile {
    pub(super) fn open(input: RangedInput, name: &str) -> Result<Self> {
        let footer = read_footer(&input).map_err(|e| e.at_location(name))?;
        let Ok(footer) = ipc::root_as_footer(&footer) else {
            return Err(Error::input("expected the footer of an Arrow file, found a damaged one").at_location(name));
        };
        let schema = footer.schema().filter(|schema| schema.endianness().equals_to_target_endianness());
        let schema =
            schema.ok_or_else(|| Error::input("expected a schema in little-endian, found none").at_location(name))?;
        let schema = guard_decoding(ARROW, name, || try_fb_to_schema(schema))?;
        Ok(Self {
            name: name.to_owned(),
            schema: Arc::new(schema),
            version: footer.version(),
            dictionaries: footer.dictionaries().iter().flatten().copied().collect(),
            batches: footer.recordBatches().iter().flatten().copied().collect(),
            input,
        })
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.input.byte_count()
    }

    /// Returns the number of batches.
    pub(super) fn batch_count(&self) -> usize {
        self.batches.len()
    }

    /// Returns the input bytes that the dictionaries and the first `batches` batches represent; the whole file at the
    /// end.
    pub(super) fn share_of_batches(&self, batches: usize) -> u64 {
        self.share_of_blocks(self.dictionaries.len() + batches)
    }

    fn share_of_blocks(&self, taken: usize) -> u64 {
        let blocks = self.dictionaries.len() + self.batches.len();
        let share = u128::from(self.file_bytes()) * taken as u128 / blocks.max(1) as u128;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Returns the number of rows that a batch states; `None` if it is damaged.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) fn rows_of(&self, batch: usize, limit: u64) -> Result<Option<u64>> {
        let Some(block) = self.batches.get(batch) else { return Ok(None) };
        let (start, length) = (u64::try_from(block.offset()), u64::try_from(block.metaDataLength()));
        let (Ok(start), Ok(length)) = (start, length) else { return Ok(None) };
        let bytes = match self.input.read_range(start..start.saturating_add(length.min(limit))) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == Kind::Storage => return Err(error.at_location(&*self.name)),
            Err(_) => return Ok(None),
        };
        let message = ipc::root_as_message(message_flatbuffer(&bytes)).ok();
        let rows = message.and_then(|message| Some(message.header_as_record_batch()?.length()));
        Ok(rows.and_then(|rows| u64::try_from(rows).ok()))
    }

    /// Reads a block and checks the sizes that it states.
    fn read_block(&self, block: &Block, limit: u64) -> Result<Buffer> {
        let beyond = || Error::input("expected a batch within the file, found one beyond it").at_location(&*self.name);
        let unsigned = |value: i64| u64::try_from(value).map_err(|_| beyond());
        let start = unsigned(block.offset())?;
        let head = unsigned(block.metaDataLength().into())?;
        let length = head.checked_add(unsigned(block.bodyLength())?).ok_or_else(beyond)?;
        if length > limit {
            return Err(too_large(length, limit).at_location(&*self.name).at_byte(start));
        }
        let bytes = self.input.read_range(start..start.checked_add(length).ok_or_else(beyond)?);
        let bytes = bytes.map_err(|e| e.at_location(&*self.name))?;
        let (metadata, body) = bytes.split_at(usize::try_from(head).map_err(|_| beyond())?);
        check_message(message_flatbuffer(metadata), body, limit)
            .map_err(|e| e.at_location(&*self.name).at_byte(start))?;
        Ok(Buffer::from(bytes))
    }
}

/// Returns the flatbuffer of a message without what precedes it: before Arrow 0.15, only its length.
fn message_flatbuffer(metadata: &[u8]) -> &[u8] {
    metadata.strip_prefix(&[0xff; 4]).unwrap_or(metadata).get(4..).unwrap_or_default()
}

/// Iterates over batches of a file, in the order of its footer.
pub(super) struct FileBatches<'a> {
    file: &'a IpcFile,
    decoder: FileDecoder,
    /// Number of dictionaries read so far; all of them precede the batches.
    dictionaries: usize,
    /// Batches not read yet.
    batches: Range<usize>,
    /// Whether these begin with the first one of the file, and so represent its dictionaries, too.
    from_start: bool,
}

impl<'a> FileBatches<'a> {
    pub(super) fn new(file: &'a IpcFile, batches: Range<usize>) -> Self {
        let decoder = FileDecoder::new(Arc::clone(&file.schema), file.version);
        Self { file, decoder, dictionaries: 0, from_start: batches.start == 0, batches }
    }

    /// Returns the input bytes that the blocks up to here represent; the whole file at the end.
    pub(super) fn consumed_bytes(&self) -> u64 {
        match self.from_start {
            true => self.file.share_of_blocks(self.dictionaries + self.batches.start),
            false => self.file.share_of_batches(self.batches.start),
        }
    }

    pub(super) fn next(&mut self, limit: u64) -> Result<Option<RecordBatch>> {
        let Self { file, decoder, dictionaries, batches, .. } = self;
        while *dictionaries < file.dictionaries.len() {
            let block = &file.dictionaries[*dictionaries];
            let bytes = file.read_block(block, limit)?;
            guard_decoding(ARROW, &file.name, || decoder.read_dictionary(block, &bytes))?;
            *dictionaries += 1;
        }
        let Some(block) = batches.next().and_then(|number| file.batches.get(number)) else { return Ok(None) };
        let bytes = file.read_block(block, limit)?;
        let batch = guard_decoding(ARROW, &file.name, || decoder.read_record_batch(block, &bytes))?;
        batch.map(Some).ok_or_else(|| Error::input("expected a batch, found an empty message").at_location(&*file.name))
    }
}

fn read_footer(input: &RangedInput) -> Result<bytes::Bytes> {
    let cut_short = || {
        Error::input("expected an Arrow file, found one that does not end with a footer")
            .with_hint("the file may have been cut short while it was copied or written")
    };
    let start = input.byte_count().checked_sub(TAIL_BYTES).ok_or_else(cut_short)?;
    let tail = input.read_range(start..input.byte_count())?;
    let length = tail.strip_suffix(MAGIC).and_then(|length| length.first_chunk()).ok_or_else(cut_short)?;
    let length = u64::try_from(i32::from_le_bytes(*length)).ok().filter(|&length| length <= MAX_FOOTER_BYTES);
    let from = length.and_then(|length| start.checked_sub(length)).ok_or_else(cut_short)?;
    input.read_range(from..start)
}
