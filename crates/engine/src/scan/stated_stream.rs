//! Standard input as the user states it: under a name, with a tag, in a format.
//!
//! Arrow data are read to their end before anything else, because a stream whose writer failed looks like a shorter
//! one.

use std::{
    io::{self, Read},
    num::NonZeroU64,
};

use xxhash_rust::xxh3::Xxh3Default;

use super::{
    file::SourceFile,
    formats::{HEAD_BYTES, InputFormat, SniffOptions, locate_result, open_ranged},
    kind::not_in_format,
    stream::Stream,
};
use crate::{
    error::{Error, Result},
    format::ipc::{self, IpcForm, IpcReader, StreamEnd},
    record::stream_tag::{StreamHash, StreamTag},
    storage::Spool,
};

/// Name of a stream that the user did not name.
const STDIN: &str = "stdin";

/// What the user says of a stream.
#[derive(Debug, Clone, Copy)]
pub struct StatedStream<'a> {
    /// Its name; `None` if it has none.
    pub name: Option<&'a str>,
    /// The state of what it is a copy of.
    pub etag: Option<&'a str>,
    /// Its format.
    pub from: InputFormat,
    /// What ends it, if it is an Arrow stream.
    pub end: StreamEnd,
    /// Maximum bytes of a record.
    pub max_record_bytes: usize,
}

impl StatedStream<'_> {
    /// Returns the named stream as a source that was not read: its tag may say that it is known.
    ///
    /// # Errors
    /// Fails if no temporary file can be made.
    pub fn unread_source(&self) -> Result<SourceFile> {
        Ok(self.named_source(Spool::from_reader(io::empty(), |_| {})?, None))
    }

    /// Reads the stream to its end.
    ///
    /// # Errors
    /// Fails if it cannot be read or stored, or is an Arrow stream that was cut.
    pub fn read_source(&self, input: impl Read) -> Result<SourceFile> {
        if self.name.is_none() {
            let file = SourceFile::of_stream(STDIN, input)?;
            if self.hash_kind() == StreamHash::Rows && self.end == StreamEnd::Mark {
                let reader = self.open_arrow(&file)?;
                locate_result(reader.check_end(file.open(|_| {})?, self.max_record_bytes), &file)?;
            }
            return Ok(file);
        }
        if self.hash_kind() == StreamHash::Bytes {
            let mut hasher = Xxh3Default::new();
            let spool = Spool::from_reader(input, |bytes| hasher.update(bytes))?;
            return Ok(self.named_source(spool, NonZeroU64::new(hasher.digest()).or(Some(NonZeroU64::MIN))));
        }
        let spool = Spool::from_reader(input, |_| {})?;
        let file = self.named_source(spool.clone(), None);
        let reader = self.open_arrow(&file)?;
        let hash = reader.table_hash(file.open(|_| {})?, self.max_record_bytes, self.end);
        Ok(self.named_source(spool, Some(locate_result(hash, &file)?)))
    }

    /// Returns what the stream's hash is taken of.
    fn hash_kind(&self) -> StreamHash {
        if self.from == InputFormat::ARROW { StreamHash::Rows } else { StreamHash::Bytes }
    }

    fn named_source(&self, spool: Spool, hash: Option<NonZeroU64>) -> SourceFile {
        let name = self.name.unwrap_or(STDIN);
        let tag = StreamTag { hash: self.hash_kind(), stated: self.etag }.to_string();
        SourceFile::with_stream(name, Stream::named(name, spool, tag, hash))
    }

    fn open_arrow(&self, file: &SourceFile) -> Result<IpcReader> {
        let head = file.read_head(HEAD_BYTES)?;
        if head.bytes.is_empty() {
            return Err(Error::input("expected Arrow data, found nothing: standard input is empty")
                .at_location(file.uri())
                .with_hint("the program that writes it failed or was stopped: see what it says"));
        }
        match ipc::sniff(&head.bytes) {
            Some(IpcForm::Stream) => Ok(IpcReader::of_stream()),
            Some(IpcForm::File) => IpcReader::open(open_ranged(file, head.packed)?, &file.uri()),
            None => Err(not_in_format(file, self.from, &SniffOptions::default())),
        }
    }
}
