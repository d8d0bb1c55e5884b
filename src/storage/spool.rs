//! A place on disk for what can be read only once, such as standard input: types are inferred from the first records
//! and a value that does not fit makes the run start again, so the bytes must stay until the end.
//!
//! The file lies in the folder for temporary files of the system and goes when the [`Spool`] does.

use std::{
    io::{Read, Write},
    sync::Arc,
};

use super::{LocalStore, Store};
use crate::error::{Error, Result};

/// A stream kept on disk.
#[derive(Debug)]
pub struct Spool {
    store: Arc<dyn Store>,
    bytes: u64,
    checksum: [u8; 32],
    _folder: tempfile::TempDir,
}

impl Spool {
    /// Name of the object within [`Self::store`].
    pub const NAME: &'static str = "stream";

    /// Reads a stream to its end.
    ///
    /// # Errors
    /// When it cannot be read, or there is no room for it.
    pub fn of(mut input: impl Read) -> Result<Self> {
        let failed = |e: std::io::Error| {
            Error::storage("a stream cannot be kept on disk")
                .cause(e)
                .hint("give TMPDIR a folder with room for all of it, or name a file")
        };
        let folder = tempfile::Builder::new().prefix("shardify-").tempdir().map_err(failed)?;
        let mut file = tempfile::Builder::new().tempfile_in(folder.path()).map_err(failed)?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        let mut bytes = 0;
        loop {
            let n = match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::storage("the stream cannot be read").cause(e)),
            };
            hasher.update(&buffer[..n]);
            file.write_all(&buffer[..n]).map_err(failed)?;
            bytes += n as u64;
        }
        file.persist(folder.path().join(Self::NAME)).map_err(|e| failed(e.error))?;
        let store = Arc::new(LocalStore::new(folder.path().to_owned()));
        Ok(Self { store, bytes, checksum: *hasher.finalize().as_bytes(), _folder: folder })
    }

    /// Where it is.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// BLAKE3 of all bytes.
    pub fn checksum(&self) -> [u8; 32] {
        self.checksum
    }
}
