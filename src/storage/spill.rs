//! Bytes that do not fit into memory for a while: a file without a name in the folder for temporary files of the system,
//! which goes when the [`Spill`] does, even if the process is killed.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    sync::{Mutex, PoisonError},
};

use crate::error::{Error, Result};

/// Pieces of bytes on disk.
#[derive(Debug)]
pub struct Spill {
    /// The file, and its length.
    file: Mutex<(File, u64)>,
}

fn failed(e: std::io::Error) -> Error {
    Error::storage("chunks that do not fit into memory cannot be kept on disk")
        .cause(e)
        .hint("give TMPDIR a folder with room for them, or raise --memory")
}

impl Spill {
    /// Makes an empty one.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn new() -> Result<Self> {
        Ok(Self { file: Mutex::new((tempfile::tempfile().map_err(failed)?, 0)) })
    }

    /// Adds a piece; returns where it begins.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, end) = &mut *guard;
        let start = *end;
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        *end += bytes.len() as u64;
        Ok(start)
    }

    /// Reads into `out` from an offset on.
    ///
    /// # Errors
    /// When there are no such bytes.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        guard.0.seek(SeekFrom::Start(offset)).map_err(failed)?;
        guard.0.read_exact(out).map_err(failed)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back() {
        let spill = Spill::new().unwrap();
        assert_eq!((spill.append(b"abc").unwrap(), spill.append(b"defg").unwrap()), (0, 3));
        let mut out = [0; 3];
        spill.read(2, &mut out).unwrap();
        assert_eq!(&out, b"cde");
        assert!(spill.read(5, &mut out).is_err());
    }
}
