//! Arrow IPC streams: consecutive messages, read in order.
//!
//! A writer may end a stream by the end mark or by closing it, so a file without the mark is whole. Of a pipe, the same
//! bytes may be all that a writer had written when it failed, which only the mark can tell.

use std::io::{self, Read};

use arrow::{
    array::RecordBatch,
    buffer::Buffer,
    datatypes::SchemaRef,
    ipc::{self, reader::StreamDecoder},
};

use super::{
    ARROW,
    claims::{check_message, too_large},
};
use crate::{
    error::{Error, Result},
    format::guard::guard_decoding,
};

/// Marker at the start of every message.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Iterates over the batches of a stream.
pub(super) struct StreamBatches<'a> {
    input: Box<dyn Read + Send + 'a>,
    consumed: u64,
    decoder: StreamDecoder,
    ended: bool,
    marked: bool,
}

/// What is next in a stream.
enum Next {
    /// The flatbuffer of a message, and the length of the body that follows.
    Message { metadata: Vec<u8>, body: u64 },
    /// The end mark.
    Mark,
    /// The end of the input.
    Nothing,
}

impl<'a> StreamBatches<'a> {
    pub(super) fn new(input: Box<dyn Read + Send + 'a>) -> Self {
        Self { input, consumed: 0, decoder: StreamDecoder::new(), ended: false, marked: false }
    }

    /// Whether the end mark was read.
    pub(super) fn is_marked(&self) -> bool {
        self.marked
    }

    /// Passes over all messages without decoding them. `limit` bounds flatbuffers.
    pub(super) fn skip_messages(&mut self, limit: u64) -> Result<()> {
        while let Next::Message { body, .. } = self.read_head(limit)? {
            let passed = io::copy(&mut self.input.by_ref().take(body), &mut io::sink())?;
            self.consumed += passed;
            if passed < body {
                return Err(self.cut_short());
            }
        }
        Ok(())
    }

    /// Returns the bytes read so far.
    pub(super) fn consumed_bytes(&self) -> u64 {
        self.consumed
    }

    /// Returns the types of the columns, once the schema message was read.
    pub(super) fn schema(&self) -> Option<SchemaRef> {
        self.decoder.schema()
    }

    /// Decodes the next batch. `limit` bounds flatbuffers, and the values of a batch.
    pub(super) fn next(&mut self, limit: u64) -> Result<Option<RecordBatch>> {
        while !self.ended {
            // The decoder accepts a message without a body only when more bytes follow.
            let batch = match self.read_message(limit)? {
                Some((metadata, body)) => {
                    let length = u32::try_from(metadata.len()).unwrap_or(u32::MAX).to_le_bytes();
                    let head = self.decode_message([&CONTINUATION[..], &length, &metadata].concat())?;
                    let batch = self.decode_message(body)?;
                    head.or(batch)
                }
                None => {
                    self.ended = true;
                    self.decode_message([CONTINUATION, [0; 4]].concat())?
                }
            };
            if batch.is_some() {
                return Ok(batch);
            }
        }
        Ok(None)
    }

    fn decode_message(&mut self, bytes: Vec<u8>) -> Result<Option<RecordBatch>> {
        let mut bytes = Buffer::from_vec(bytes);
        let mut batch = None;
        while !bytes.is_empty() {
            let found = guard_decoding(ARROW, "", || self.decoder.decode(&mut bytes));
            match found.map_err(|e| e.at_byte(self.consumed))? {
                Some(_) if batch.is_some() => return Err(self.damaged_error("expected one batch in a message")),
                found => batch = batch.or(found),
            }
        }
        Ok(batch)
    }

    /// Reads flatbuffer and body of the next message; `None` at the end mark, or if the input ends without one.
    fn read_message(&mut self, limit: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let Next::Message { metadata, body } = self.read_head(limit)? else { return Ok(None) };
        let body = self.read_exactly(body, limit)?;
        check_message(&metadata, &body, limit).map_err(|e| e.at_byte(self.consumed))?;
        Ok(Some((metadata, body)))
    }

    fn read_head(&mut self, limit: u64) -> Result<Next> {
        let word = match self.read_word()? {
            Some(CONTINUATION) => self.read_word()?.ok_or_else(|| self.cut_short())?,
            Some(word) => word,
            None if self.consumed == 0 => return Err(self.cut_short()),
            None => return Ok(Next::Nothing),
        };
        let length = u64::try_from(i32::from_le_bytes(word));
        let length = length.map_err(|_| self.damaged_error("expected the length of a message"))?;
        if length == 0 {
            let rest = self.input.by_ref().take(1).read_to_end(&mut Vec::new())?;
            self.marked = rest == 0;
            return if rest == 0 {
                Ok(Next::Mark)
            } else {
                Err(self.damaged_error("expected nothing after the end mark"))
            };
        }
        let metadata = self.read_exactly(length, limit)?;
        let message = ipc::root_as_message(&metadata).map_err(|_| self.damaged_error("expected a message"))?;
        let body = u64::try_from(message.bodyLength());
        let body = body.map_err(|_| self.damaged_error("expected the length of a body"))?;
        Ok(Next::Message { metadata, body })
    }

    /// Reads four bytes; `None` at the end of the input.
    fn read_word(&mut self) -> Result<Option<[u8; 4]>> {
        let mut word = Vec::with_capacity(4);
        self.consumed += self.input.by_ref().take(4).read_to_end(&mut word)? as u64;
        match <[u8; 4]>::try_from(word) {
            Ok(word) => Ok(Some(word)),
            Err(rest) if rest.is_empty() => Ok(None),
            Err(_) => Err(self.cut_short()),
        }
    }

    /// Reads `length` bytes; memory grows with the bytes found, not with the stated length.
    fn read_exactly(&mut self, length: u64, limit: u64) -> Result<Vec<u8>> {
        if length > limit {
            return Err(too_large(length, limit).at_byte(self.consumed));
        }
        let mut bytes = Vec::new();
        self.consumed += self.input.by_ref().take(length).read_to_end(&mut bytes)? as u64;
        if (bytes.len() as u64) < length { Err(self.cut_short()) } else { Ok(bytes) }
    }

    fn damaged_error(&self, message: &str) -> Error {
        Error::input(format!("{message}, found damaged Arrow IPC data")).at_byte(self.consumed)
    }

    fn cut_short(&self) -> Error {
        Error::input("expected more Arrow IPC data, found the end")
            .at_byte(self.consumed)
            .with_hint("the stream may have been cut short while it was copied or written")
    }
}
