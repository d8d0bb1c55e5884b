//! Verified range reads: the blocks that contain a range are read and compared with their hashes. The bytes after the
//! blocks are in memory and already verified.

use std::ops::Range;

use bytes::Bytes;

use super::object::Object;
use crate::{
    codec::seal::Blocks,
    error::{Error, Result},
};

/// Error message for a block that does not match its hash.
pub const BLOCK_MISMATCH: &str = "expected bytes that match the checksum, found others";

/// Hint for damaged objects of a dataset.
pub const RESTORE_HINT: &str = "restore the object from a copy of the dataset; `shardify verify` lists what is damaged";

/// Expected content of an object.
#[derive(Debug)]
pub(super) struct Checks {
    pub(super) blocks: Blocks,
    /// Bytes after the blocks, already verified.
    pub(super) tail: Bytes,
}

impl Checks {
    /// Reads and verifies a range.
    pub(super) fn range(&self, object: &Object, range: &Range<u64>) -> Result<Bytes> {
        let (body, within) = (self.blocks.body(), |at: u64| usize::try_from(at).unwrap_or(usize::MAX));
        let beyond = || damaged(object, "expected a range within the object, found one beyond its end", range.start);
        if range.start >= body {
            let (start, end) = (within(range.start - body), within(range.end.saturating_sub(body)));
            let inside = start <= end && end <= self.tail.len();
            return if inside { Ok(self.tail.slice(start..end)) } else { Err(beyond()) };
        }
        let around = self.blocks.around(range);
        let found = object.fetched(around.clone())?;
        if let Some(at) = self.blocks.damage(around.start, &found) {
            return Err(damaged(object, BLOCK_MISMATCH, at));
        }
        let start = within(range.start - around.start);
        if range.end <= body {
            return Ok(found.slice(start..within(range.end - around.start)));
        }
        let rest = self.tail.get(..within(range.end - body)).ok_or_else(beyond)?;
        Ok([&found[start..], rest].concat().into())
    }
}

/// Returns the error for bytes that do not match.
fn damaged(object: &Object, message: &str, byte: u64) -> Error {
    let place = object.store.location().join(object.path()).to_string();
    Error::integrity(message).at(place).byte(byte).hint(RESTORE_HINT)
}
