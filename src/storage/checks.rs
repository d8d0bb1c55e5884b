//! Objects of which ranges are read, and whose bytes are checked on the way: the blocks that a range lies in are read and
//! compared with their hashes, and what follows the blocks is in memory, checked before.

use std::ops::Range;

use bytes::Bytes;

use super::object::Object;
use crate::{
    codec::seal::Blocks,
    error::{Error, Result},
};

/// What is wrong with a block that is not what its hash is of.
pub const DAMAGED_BLOCK: &str = "expected the bytes that the checksum is of, found others";

/// What helps when an object of a dataset is damaged.
pub const RESTORE: &str = "restore the object from a copy of the dataset; `shardify verify` lists what is damaged";

/// What an object has to be.
#[derive(Debug)]
pub(super) struct Checks {
    pub(super) blocks: Blocks,
    /// What follows the blocks, checked already.
    pub(super) tail: Bytes,
}

impl Checks {
    /// Reads a range.
    pub(super) fn range(&self, object: &Object, range: &Range<u64>) -> Result<Bytes> {
        let (body, within) = (self.blocks.body(), |at: u64| usize::try_from(at).unwrap_or(usize::MAX));
        let beyond = || damaged(object, "expected more bytes than there are", range.start);
        if range.start >= body {
            let (start, end) = (within(range.start - body), within(range.end.saturating_sub(body)));
            let inside = start <= end && end <= self.tail.len();
            return if inside { Ok(self.tail.slice(start..end)) } else { Err(beyond()) };
        }
        let around = self.blocks.around(range);
        let found = object.fetched(around.clone())?;
        if let Some(at) = self.blocks.damage(around.start, &found) {
            return Err(damaged(object, DAMAGED_BLOCK, at));
        }
        let start = within(range.start - around.start);
        if range.end <= body {
            return Ok(found.slice(start..within(range.end - around.start)));
        }
        let rest = self.tail.get(..within(range.end - body)).ok_or_else(beyond)?;
        Ok([&found[start..], rest].concat().into())
    }
}

/// The error of bytes that are not what they have to be.
fn damaged(object: &Object, message: &str, byte: u64) -> Error {
    let place = object.store.location().join(object.path()).to_string();
    Error::integrity(message).at(place).byte(byte).hint(RESTORE)
}
