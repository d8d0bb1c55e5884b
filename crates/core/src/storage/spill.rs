//! Temporary storage for bytes that do not fit into memory: an unnamed file in the system's folder for temporary files.
//! The system removes it when the [`Spill`] is dropped, even if the process is killed.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    sync::{Mutex, PoisonError},
};

use crate::error::{Error, Result};

/// Pieces of bytes on disk.
#[derive(Debug)]
pub struct Spill {
    /// The file and its length in bytes.
    file: Mutex<(File, u64)>,
}

fn spill_error(e: std::io::Error) -> Error {
    Error::storage("writing chunks that do not fit into memory to a temporary file failed")
        .with_cause(e)
        .with_hint("set TMPDIR to a folder with enough free space, or raise --memory")
}

impl Spill {
    /// Creates an empty spill file.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn new() -> Result<Self> {
        Ok(Self { file: Mutex::new((tempfile::tempfile().map_err(spill_error)?, 0)) })
    }

    /// Appends a piece and returns its offset.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, end) = &mut *guard;
        let start = *end;
        file.seek(SeekFrom::Start(start)).map_err(spill_error)?;
        file.write_all(bytes).map_err(spill_error)?;
        *end += bytes.len() as u64;
        Ok(start)
    }

    /// Fills `out` with the bytes from `offset`.
    ///
    /// # Errors
    /// When the file ends before `out` is full.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        guard.0.seek(SeekFrom::Start(offset)).map_err(spill_error)?;
        guard.0.read_exact(out).map_err(spill_error)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_back() {
        let spill = Spill::new().unwrap();
        assert_eq!((spill.append(b"abc").unwrap(), spill.append(b"defg").unwrap()), (0, 3));
        let mut out = [0; 3];
        spill.read(2, &mut out).unwrap();
        assert_eq!(&out, b"cde");
        assert!(spill.read(5, &mut out).is_err());
    }
}
