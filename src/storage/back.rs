//! Reading back a file that was just written, from the disk itself.
//!
//! What [`sink`](super::sink) wrote is not in the page cache. Read through it, every byte would take the place of one that is
//! still needed there and be copied once more; and a look at the cache is no proof that anything is on the disk. File systems
//! that cannot be read past the page cache are read through it.

#![expect(clippy::disallowed_methods, reason = "options of opening are needed for reading, too")]

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use super::sink::{CHUNK, Chunk, DIRECT};

/// Opens a file for reading once, onwards.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    let flags = DIRECT.and_then(|flags| i32::try_from(flags.bits()).ok());
    let direct = flags.and_then(|flags| OpenOptions::new().read(true).custom_flags(flags).open(path).ok());
    let Some(file) = direct else { return Ok(Box::new(File::open(path)?)) };
    let mut reader = BackReader { file, at: 0, chunk: Chunk::new(), taken: 0, ended: false };
    // It takes the flag but cannot do it after all, or it cannot be read at all, which is then said.
    if reader.fill().is_err() {
        return Ok(Box::new(File::open(path)?));
    }
    Ok(Box::new(reader))
}

struct BackReader {
    file: File,
    /// Where the next chunk begins.
    at: u64,
    chunk: Chunk,
    /// Bytes of the chunk that were taken.
    taken: usize,
    ended: bool,
}

impl BackReader {
    fn fill(&mut self) -> io::Result<()> {
        self.chunk.clear();
        self.taken = 0;
        let found = self.file.read_at(self.chunk.space(CHUNK), self.at)?;
        self.chunk.keep(found);
        self.at += found as u64;
        // Only the end of a file is no whole chunk, and what follows could not be read from an odd place.
        self.ended = found < CHUNK;
        Ok(())
    }
}

impl Read for BackReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.chunk.bytes().len() && !self.ended {
            self.fill()?;
        }
        let left = self.chunk.bytes().get(self.taken..).unwrap_or_default();
        let length = left.len().min(buffer.len());
        buffer[..length].copy_from_slice(&left[..length]);
        self.taken += length;
        Ok(length)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own files")]
mod tests {
    use super::*;

    #[test]
    fn files_of_every_size_are_read_to_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> =
            (0_u32..).take(2 * CHUNK + 5000).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        for size in [0, 1, 4095, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, bytes.len()] {
            std::fs::write(&path, &bytes[..size]).unwrap();
            let mut found = Vec::new();
            open(&path).unwrap().read_to_end(&mut found).unwrap();
            assert!(found == bytes[..size], "{size}");
        }
        assert!(open(&folder.path().join("none")).is_err());
    }
}
