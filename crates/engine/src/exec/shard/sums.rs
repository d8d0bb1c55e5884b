//! Counts and hashes the bytes of a shard while they are written.

use std::io::{self, BufRead, Read, Write};

use md5::{Digest as _, Md5};

use super::finished::ShardNaming;
use crate::{
    error::Result,
    indexes,
    storage::{Sink, Staged, Store},
};

/// Counts and hashes the bytes written to a sink.
pub(super) struct HashingSink {
    inner: Box<dyn Sink>,
    sums: Sums,
    /// Number of bytes so far.
    pub(super) bytes: u64,
}

struct Sums {
    /// Boxed because the hasher is larger than everything around it.
    blake3: Box<blake3::Hasher>,
    md5: Option<Md5>,
}

impl Sums {
    fn update(&mut self, bytes: &[u8]) {
        match &mut self.md5 {
            None => {
                self.blake3.update(bytes);
            }
            // MD5 is the slowest step for these bytes, so both hashes are computed in parallel.
            Some(md5) => {
                rayon::join(|| md5.update(bytes), || self.blake3.update(bytes));
            }
        }
    }
}

/// Size and hashes of the bytes written to a sink.
pub(super) struct Hashed {
    pub(super) bytes: u64,
    /// BLAKE3.
    pub(super) checksum: [u8; 32],
    /// MD5, if an index needs it.
    pub(super) md5: Option<[u8; 16]>,
    pub(super) staged: Staged,
}

impl HashingSink {
    pub(super) fn create(store: &dyn Store, path: &str, naming: &ShardNaming) -> Result<Self> {
        let md5 = indexes::any_kind(&naming.indexes, |about| about.needs_md5).then(Md5::new);
        let sums = Sums { blake3: Box::new(blake3::Hasher::new()), md5 };
        Ok(Self { inner: store.create_sink(path)?, sums, bytes: 0 })
    }

    pub(super) fn append_from(
        &mut self,
        source: &mut dyn Read,
        bytes: u64,
        look: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let sums = &mut self.sums;
        let taken = self.inner.append_from(source, bytes, &mut |piece| {
            sums.update(piece);
            look(piece)
        })?;
        self.bytes += taken;
        Ok(taken)
    }

    pub(super) fn follow(&self) -> Option<Box<dyn BufRead + Send>> {
        self.inner.read_following()
    }

    pub(super) fn finish(self) -> Result<Hashed> {
        Ok(Hashed {
            bytes: self.bytes,
            checksum: *self.sums.blake3.finalize().as_bytes(),
            md5: self.sums.md5.map(|md5| md5.finalize().into()),
            staged: self.inner.finish()?,
        })
    }
}

impl Write for HashingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.sums.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
