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

use std::{io::Read, num::NonZeroU64, sync::Arc};

use super::file::{Root, SourceFile, StatedSource};
use crate::{
    error::Result,
    record::stream_tag::StreamTag,
    storage::{Spool, watch_store},
};

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

    /// Creates a stream with a name and the text of its tag, and the hash of its content if it was read.
    pub(super) fn named(name: &str, spool: Spool, tag: String, hash: Option<NonZeroU64>) -> Self {
        Self { spool, uri: format!("stream:{name}"), identity: Some(Identity { tag, hash }) }
    }
}

impl SourceFile {
    /// Creates a source from a stream without a name. Its identifier is a hash of its bytes, so that the same content
    /// is recognised again.
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

    pub(super) fn with_stream(name: &str, stream: Stream) -> Self {
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
