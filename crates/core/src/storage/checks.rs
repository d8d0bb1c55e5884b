//! Verified range reads: the blocks that contain a range are read and compared with their hashes. The bytes after the
//! blocks are in memory and already verified.

use std::ops::Range;

use bytes::Bytes;

use super::object::Object;
use crate::{
    codec::seal::BlockHashes,
    error::{Error, Result},
};

/// Error message for a block that does not match its hash.
pub const BLOCK_MISMATCH: &str = "expected bytes that match the checksum, found others";

/// Hint for damaged objects of a dataset.
pub const RESTORE_HINT: &str = "restore the object from a copy of the dataset; `shardify verify` lists what is damaged";

/// Expected content of an object.
#[derive(Debug)]
pub(super) struct Checks {
    pub(super) blocks: BlockHashes,
    /// Bytes after the blocks, already verified.
    pub(super) tail: Bytes,
}

impl Checks {
    /// Reads and verifies a range.
    pub(super) fn get_verified(&self, object: &Object, range: &Range<u64>) -> Result<Bytes> {
        let (body, within) = (self.blocks.body_bytes(), |at: u64| usize::try_from(at).unwrap_or(usize::MAX));
        let beyond =
            || damage_error(object, "expected a range within the object, found one beyond its end", range.start);
        if range.start >= body {
            let (start, end) = (within(range.start - body), within(range.end.saturating_sub(body)));
            let inside = start <= end && end <= self.tail.len();
            return if inside { Ok(self.tail.slice(start..end)) } else { Err(beyond()) };
        }
        let around = self.blocks.covering_range(range);
        let found = object.get_unverified(around.clone())?;
        if let Some(at) = self.blocks.find_damage(around.start, &found) {
            return Err(damage_error(object, BLOCK_MISMATCH, at));
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
fn damage_error(object: &Object, message: &str, byte: u64) -> Error {
    let place = object.store.location().join(object.path()).to_string();
    Error::integrity(message).at_location(place).at_byte(byte).with_hint(RESTORE_HINT)
}
