//! Which table a source holds, and whether all of it arrived.
//!
//! Both are asked of a stream before it is converted: the [hash of its rows](crate::record::table_hash) says whether
//! they are those of an earlier run, and the end mark that its writer was not stopped between two batches.

use std::{num::NonZeroU64, sync::Arc};

use super::{FileBatches, IpcBatches, IpcRanges, IpcReader, StreamBatches, named_batch, plain};
use crate::{
    error::{Error, Result},
    format::SourceBytes,
    record::{Content, table_hash::TableHasher, widen::cast_to},
};

/// Bytes of rows that are hashed at a time: few enough for the caches.
const PIECE_BYTES: usize = 2 << 20;

/// What ends a stream that is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The end mark.
    Mark,
    /// The end mark, or the end of the input.
    Any,
}

impl IpcReader {
    /// Returns the hash of all rows, which depends neither on batches nor on how values are packed.
    ///
    /// # Errors
    /// If the source cannot be read, or ends without what has to end it.
    pub fn table_hash(&self, input: SourceBytes<'_>, max_record_bytes: usize, end: StreamEnd) -> Result<NonZeroU64> {
        let batches = match &self.file {
            Some(file) => IpcBatches::File(FileBatches::new(file, 0..file.batch_count())),
            None => IpcBatches::Stream(Box::new(StreamBatches::new(input))),
        };
        let mut ranges = IpcRanges::new(batches, PIECE_BYTES, max_record_bytes);
        let mut hasher = None;
        for range in ranges.by_ref() {
            let Content::Batch { batch, .. } = range?.content else { continue };
            let schema = plain(batch.schema_ref())?;
            let hasher = hasher.get_or_insert_with(|| TableHasher::new(schema.fields()));
            hasher.add_batch(&cast_to(&named_batch(&batch, &schema)?, &schema)?)?;
        }
        let schema = match &ranges.batches {
            IpcBatches::Stream(stream) => {
                require_mark(stream, end)?;
                stream.schema()
            }
            IpcBatches::File(_) => self.file.as_ref().map(|file| Arc::clone(file.schema())),
        };
        match (hasher, schema) {
            (Some(hasher), _) => Ok(hasher.finish()),
            (None, Some(schema)) => Ok(TableHasher::new(plain(&schema)?.fields()).finish()),
            (None, None) => Err(Error::input("expected the schema of a table, found none")),
        }
    }

    /// Checks that a stream ends with the end mark, without decoding it. A file ends with its footer in any case.
    ///
    /// # Errors
    /// If it is cut, or its messages do not follow each other.
    pub fn check_end(&self, input: SourceBytes<'_>, max_record_bytes: usize) -> Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let mut stream = StreamBatches::new(input);
        stream.skip_messages(super::message_limit(max_record_bytes as u64))?;
        require_mark(&stream, StreamEnd::Mark)
    }
}

fn require_mark(stream: &StreamBatches<'_>, end: StreamEnd) -> Result<()> {
    if stream.is_marked() || end == StreamEnd::Any {
        return Ok(());
    }
    Err(Error::input("expected the end mark of the Arrow stream, found its end without one: the stream was cut")
        .at_byte(stream.consumed_bytes())
        .with_hint("the program that writes the stream failed or was stopped: see what it says")
        .with_hint("if it writes no end mark, take the stream as it is: --read end=any"))
}
