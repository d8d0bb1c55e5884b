//! Cuts a large source into parts that different tasks read.
//!
//! ```text
//! RecordSource --scout: one pass over the bytes--> parts, hash of the bytes
//! RecordSource with a part --ranges--> the ranges of this part, numbered as in the source
//! ```
//!
//! The records of all parts, one part after the other, are those of the source, with the same row numbers, lines,
//! places, rejects and counts. This holds if the source was recognised in the same way, that is with equal options and
//! the same number of bytes of its head, and if the run uses the sizes that it was scouted with. What is told about a
//! source as a whole is told by its first part: blank lines before the records, and notes on how it is read. Notes on
//! unusual lines are those of each part.
//!
//! A part does not have the hash of its source. Scouting computes it, since it reads all bytes anyway; a run that reads
//! a part gives 0.

use std::io::Read;

use xxhash_rust::xxh3::Xxh3Default;

use super::{RecordSource, content_hash};
use crate::{
    error::{Error, Result},
    record::{PartSizes, SourcePart},
};

/// Result of scouting a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scouted {
    /// Its parts, in order; at least two.
    pub parts: Vec<SourcePart>,
    /// The hash that a run over the whole source gives: XXH3-64 of its stored bytes, or 0 if its entity tag takes the
    /// place of a hash.
    pub hash: u64,
}

/// Cuts a source into parts of about `sizes.part_bytes`. `None` if it is read as a whole: because it is small, or
/// because it cannot be entered in the middle, as compressed sources, text that is not UTF-8, JSON documents, streams
/// of Arrow, standard input and files of plain web servers.
///
/// Text, tar and TFRecord are read to their end, and damage in them is reported by the part that contains it.
///
/// # Errors
/// Fails if the store fails.
pub fn scout_parts(source: &RecordSource, sizes: &PartSizes) -> Result<Option<Scouted>> {
    let file = &source.file;
    let by_itself = source.reader.facts().reads_own_source;
    if sizes.part_count() < 2 || source.packed || source.encoding.is_some() || !(by_itself || file.has_ranges()) {
        return Ok(None);
    }
    let at = |error: Error| if error.place().source.is_some() { error } else { error.at_location(file.uri()) };
    if by_itself {
        let parts = source.reader.parts(Box::new(std::io::empty()), sizes).map_err(at)?;
        return match parts.len() {
            0 | 1 => Ok(None),
            _ => Ok(Some(Scouted { parts, hash: closed_hash(source)? })),
        };
    }
    let mut input = Hashing { inner: file.object().read()?, hasher: Xxh3Default::new() };
    let parts = source.reader.parts(Box::new(&mut input), sizes).map_err(at)?;
    if parts.len() < 2 {
        return Ok(None);
    }
    std::io::copy(&mut input, &mut std::io::sink())?;
    // A reader may have treated a failed read as the end of the source.
    match file.store_fault() {
        Some(fault) => Err(fault),
        None => Ok(Some(Scouted { parts, hash: input.hasher.digest() })),
    }
}

/// Returns the hash of a source whose reader opens it by itself. It is 0, and the source is not read again, if the
/// store's entity tag identifies the content, if it is remote, or if only some of its columns are read and nobody needs
/// the hash. Of a source of which only the start is read, as many bytes are hashed.
///
/// # Errors
/// Fails if it cannot be read.
pub fn closed_hash(source: &RecordSource) -> Result<u64> {
    let file = &source.file;
    let known = file.etag().is_some() || file.is_remote();
    if known || (source.reader.facts().skips_bytes && !source.hashed) {
        return Ok(0);
    }
    let Some(first) = &source.first else { return content_hash(file) };
    let start = file.object().read_range(0..first.read().min(file.bytes()))?;
    let mut start = Hashing { inner: start, hasher: Xxh3Default::new() };
    std::io::copy(&mut start, &mut std::io::sink())?;
    Ok(start.hasher.digest())
}

/// Hashes the bytes that pass.
struct Hashing {
    inner: Box<dyn Read + Send>,
    hasher: Xxh3Default,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}
