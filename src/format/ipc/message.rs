//! Takes messages from an input and looks at what they claim before anything is decoded.

use std::io::Read;

use arrow::ipc::{self, MessageHeader};

use super::MAGIC;
use crate::error::{Error, Result};

/// What ends the messages.
pub(super) const END_MARK: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Where the first message of a file begins at the latest.
const MAX_PADDING: u64 = 64;

/// A message as it stands in the source.
pub(super) struct Message {
    pub(super) metadata: Vec<u8>,
    pub(super) body: Vec<u8>,
}

/// The messages of a file or stream.
pub(super) struct Messages<'a> {
    input: Box<dyn Read + Send + 'a>,
    consumed: u64,
    /// Bytes that a flatbuffer, or all values of a batch, may have.
    limit: u64,
    is_file: bool,
    /// Whether the end mark was met, rather than the end of the input.
    marked: bool,
}

impl<'a> Messages<'a> {
    pub(super) fn new(input: Box<dyn Read + Send + 'a>, limit: u64) -> Self {
        Self { input, consumed: 0, limit, is_file: false, marked: false }
    }

    /// Bytes read so far.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// The next message; `None` at the end mark, or where a stream ends without one.
    pub(super) fn next(&mut self) -> Result<Option<Message>> {
        let Some(word) = self.word()? else { return self.ended() };
        let word = if self.consumed == 4 && word == MAGIC[..4] {
            self.is_file = true;
            if self.exactly(4)?[..2] != MAGIC[4..] {
                return Err(self.broken("expected ARROW1"));
            }
            self.after_padding()?
        } else {
            word
        };
        let word = if word == [0xff; 4] { self.word()?.ok_or_else(|| self.cut_short())? } else { word };
        let length = match u64::try_from(i32::from_le_bytes(word)) {
            Ok(0) => {
                self.marked = true;
                return Ok(None);
            }
            Ok(length) => length,
            Err(_) => return Err(self.broken("expected the length of a message, found one below 0")),
        };
        let metadata = self.exactly(length)?;
        let message = ipc::root_as_message(&metadata).map_err(|_| self.broken("expected a message"))?;
        let length = u64::try_from(message.bodyLength());
        let body =
            self.exactly(length.map_err(|_| self.broken("expected the length of a body, found one below 0"))?)?;
        Ok(Some(Message { metadata, body }))
    }

    /// The first word of the first message; some writers pad the magic bytes to 64.
    fn after_padding(&mut self) -> Result<[u8; 4]> {
        loop {
            let word = self.word()?.ok_or_else(|| self.cut_short())?;
            if word != [0; 4] || self.consumed > MAX_PADDING {
                return Ok(word);
            }
        }
    }

    fn ended(&self) -> Result<Option<Message>> {
        if self.is_file || self.consumed == 0 { Err(self.cut_short()) } else { Ok(None) }
    }

    /// Reads what follows the messages: nothing, or the footer of a file, which must count as many batches.
    pub(super) fn finish(&mut self, batches: usize) -> Result<()> {
        if !self.marked {
            return Ok(());
        }
        let mut rest = Vec::new();
        self.consumed += self.input.by_ref().take(self.limit + 1).read_to_end(&mut rest)? as u64;
        if !self.is_file {
            return if rest.is_empty() { Ok(()) } else { Err(self.broken("expected nothing after the end mark")) };
        }
        let tail = MAGIC.len() + 4;
        let start = rest.len().checked_sub(tail).filter(|_| rest.ends_with(MAGIC) && rest.len() as u64 <= self.limit);
        let start = start.ok_or_else(|| self.cut_short())?;
        let length = rest[start..].first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes));
        let footer = usize::try_from(length).ok().and_then(|length| rest.get(start.checked_sub(length)?..start));
        let footer = footer.and_then(|bytes| ipc::root_as_footer(bytes).ok());
        let listed = footer.ok_or_else(|| self.broken("expected a footer"))?.recordBatches().map_or(0, |b| b.len());
        if listed == batches {
            return Ok(());
        }
        Err(Error::integrity(format!("expected {listed} batches as in the footer, found {batches}")))
    }

    /// Four bytes; `None` at the end of the input.
    fn word(&mut self) -> Result<Option<[u8; 4]>> {
        let mut word = Vec::with_capacity(4);
        self.consumed += self.input.by_ref().take(4).read_to_end(&mut word)? as u64;
        match <[u8; 4]>::try_from(word) {
            Ok(word) => Ok(Some(word)),
            Err(rest) if rest.is_empty() => Ok(None),
            Err(_) => Err(self.cut_short()),
        }
    }

    /// So many bytes; memory grows with what is there, not with what was promised.
    fn exactly(&mut self, length: u64) -> Result<Vec<u8>> {
        if length > self.limit {
            return Err(too_large(length, self.limit).byte(self.consumed));
        }
        let mut bytes = Vec::new();
        self.consumed += self.input.by_ref().take(length).read_to_end(&mut bytes)? as u64;
        if (bytes.len() as u64) < length { Err(self.cut_short()) } else { Ok(bytes) }
    }

    fn broken(&self, message: &str) -> Error {
        Error::input(format!("{message}, found damaged Arrow IPC data")).byte(self.consumed)
    }

    fn cut_short(&self) -> Error {
        Error::input("expected more Arrow IPC data, found the end")
            .byte(self.consumed)
            .hint("the file may have been cut short while it was copied or written")
    }
}

fn too_large(bytes: u64, limit: u64) -> Error {
    Error::input(format!("expected batches of at most {limit} bytes, found one of {bytes}"))
        .hint("raise --memory; a batch may take a quarter of it")
        .hint("write smaller batches, e.g. max_chunksize=100000 in pyarrow")
}

/// Holds what a batch or dictionary says of its values against `limit`.
pub(super) fn check_batch(metadata: &[u8], body: &[u8], limit: u64) -> Result<()> {
    let message = ipc::root_as_message(metadata)
        .map_err(|error| Error::internal(format!("a message was verified before and is not now: {error}")))?;
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|batch| batch.data()),
        _ => None,
    };
    let Some(batch) = batch else { return Ok(()) };
    let refused = |bytes| Err(too_large(bytes, limit));
    // Nulls take no bytes here and some later on.
    let values = batch.nodes().map_or(0, |nodes| {
        nodes.iter().map(|node| u64::try_from(node.length()).unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
    });
    let rows = u64::try_from(batch.length()).unwrap_or(u64::MAX);
    if values.max(rows) > limit.saturating_mul(2) {
        return refused(values.max(rows));
    }
    let within = |start: i64, length: i64| {
        let range = usize::try_from(start).ok().zip(usize::try_from(length).ok());
        range.and_then(|(start, length)| start.checked_add(length)).is_some_and(|end| end <= body.len())
    };
    if batch.buffers().is_some_and(|buffers| buffers.iter().any(|buffer| !within(buffer.offset(), buffer.length()))) {
        return Err(Error::input("expected values within the body of their message, found some beyond it"));
    }
    if batch.compression().is_none() {
        return Ok(());
    }
    let inflated = batch.buffers().map_or(0, |buffers| {
        // Buffers of no length have no prefix.
        let lengths = buffers.iter().filter(|buffer| buffer.length() > 0).map(|buffer| {
            let start = usize::try_from(buffer.offset()).ok();
            let prefix = start.and_then(|start| body.get(start..)?.first_chunk::<8>());
            // -1 stands for values that are not compressed after all.
            prefix.map_or(0, |prefix| u64::try_from(i64::from_le_bytes(*prefix)).unwrap_or(0))
        });
        lengths.fold(0, u64::saturating_add)
    });
    if inflated > limit { refused(inflated) } else { Ok(()) }
}
