//! Standard input as a source: a stream that can be read only once, and so is copied to disk.
//!
//! A stream has no path by which a later run would know it again. Without a name, its bytes are what identifies it, and
//! every other content is another source:
//!
//! ```text
//!             URI                      origins     known again by
//! no name     stdin:<hash of bytes>    stdin#1     the same bytes
//! a name      stream:visits            visits#1    the stated tag, unread; else the hash: of the rows of Arrow data,
//!                                                  however they are cut into batches, or of the bytes
//! ```
//!
//! Arrow data are read to their end before anything else, because a stream whose writer failed looks like a shorter one.

use std::{
    io::{self, Read},
    num::NonZeroU64,
    sync::Arc,
};

use xxhash_rust::xxh3::Xxh3Default;

use super::{
    InputFormat, SniffOptions,
    file::{Root, SourceFile, StatedSource},
    formats::{HEAD_BYTES, locate_result, open_ranged},
    kind::not_in_format,
};
use crate::{
    dataset::{StreamHash, StreamTag},
    error::{Error, Result},
    format::ipc::{self, IpcForm, IpcReader, StreamEnd},
    storage::{Spool, watch_store},
};

/// Name of a stream that the user did not name.
const STDIN: &str = "stdin";

/// A stream, copied to disk.
#[derive(Debug)]
pub(super) struct Stream {
    spool: Spool,
    uri: String,
    /// What identifies it, if it has a name.
    identity: Option<Identity>,
}

#[derive(Debug)]
struct Identity {
    /// The text of its [`StreamTag`].
    tag: String,
    /// `None` if it was not read.
    hash: Option<NonZeroU64>,
}

impl Stream {
    pub(super) fn uri(&self) -> &str {
        &self.uri
    }
}

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
        let stream = Stream { spool, uri: format!("stream:{name}"), identity: Some(Identity { tag, hash }) };
        SourceFile::with_stream(name, stream)
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

impl SourceFile {
    /// Creates a source from a stream without a name. Its identifier is a hash of its bytes, so that the same content is
    /// recognised again.
    ///
    /// # Errors
    /// Fails if the stream cannot be read or stored.
    pub fn of_stream(name: &str, input: impl Read) -> Result<Self> {
        let mut hasher = blake3::Hasher::new();
        let spool = Spool::from_reader(input, |bytes| {
            hasher.update(bytes);
        })?;
        let uri = format!("{name}:{}", &hasher.finalize().to_hex()[..16]);
        Ok(Self::with_stream(name, Stream { spool, uri, identity: None }))
    }

    fn with_stream(name: &str, stream: Stream) -> Self {
        let unwatched = Arc::clone(stream.spool.store());
        let (store, watch) = watch_store(Arc::clone(&unwatched));
        let (bytes, etag) = (stream.spool.byte_count(), stream.identity.as_ref().map(|identity| identity.tag.clone()));
        let stream = Some(stream);
        let root = Root { store, unwatched, watch, shown: name.into(), prefix: "".into(), stream, archive: None };
        Self::new(&Arc::new(root), &StatedSource { name: name.to_owned(), bytes, modified: 0, etag })
    }

    fn stream_identity(&self) -> Option<&Identity> {
        self.root().stream.as_ref()?.identity.as_ref()
    }

    /// Returns the tag of a named stream; `None` for any other source.
    pub fn stream_tag(&self) -> Option<StreamTag<'_>> {
        StreamTag::parse(&self.stream_identity()?.tag)
    }

    /// Returns the hash of a named stream that was read; `None` for any other source.
    pub fn stream_hash(&self) -> Option<u64> {
        self.stream_identity()?.hash.map(NonZeroU64::get)
    }

    /// Whether it is a named stream that was not read.
    pub fn is_unread(&self) -> bool {
        self.stream_identity().is_some_and(|identity| identity.hash.is_none())
    }
}
