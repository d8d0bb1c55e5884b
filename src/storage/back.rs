//! Reads back a file that was just written, from the disk itself.
//!
//! What [`sink`](super::sink) wrote is not in the page cache. Reading it through the cache would evict pages that are
//! still needed and copy every byte once more, and a read from the cache does not prove that anything is on the disk.
//! File systems without direct I/O are read through the page cache.

#![expect(clippy::disallowed_methods, reason = "options of opening are needed for reading, too")]

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use super::sink::{BLOCK, CHUNK, Chunk, DIRECT};

/// Opens a file for one sequential read.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    let flags = DIRECT.and_then(|flags| i32::try_from(flags.bits()).ok());
    let direct = flags.and_then(|flags| OpenOptions::new().read(true).custom_flags(flags).open(path).ok());
    let Some(file) = direct else { return Ok(Box::new(File::open(path)?)) };
    let bytes = file.metadata()?.len();
    let mut reader = BackReader { file, bytes, at: 0, chunk: Chunk::new(), consumed: 0, ended: false };
    // The file system accepts the flag but does not support direct reads, or the file is unreadable; a cached read
    // reports the latter.
    if reader.fill().is_err() {
        return Ok(Box::new(File::open(path)?));
    }
    Ok(Box::new(reader))
}

struct BackReader {
    file: File,
    /// Size of the file in bytes.
    bytes: u64,
    /// Offset of the next chunk.
    at: u64,
    chunk: Chunk,
    /// Bytes of the current chunk that were consumed.
    consumed: usize,
    ended: bool,
}

impl BackReader {
    fn fill(&mut self) -> io::Result<()> {
        self.chunk.clear();
        self.consumed = 0;
        let (file, at) = (&self.file, self.at);
        let read = |buffer: &mut [u8], ahead: usize| file.read_at(buffer, at + ahead as u64);
        let (found, ended) = fill(self.chunk.space(CHUNK), self.bytes.saturating_sub(at), read)?;
        self.chunk.keep(found);
        self.at += found as u64;
        self.ended = ended;
        Ok(())
    }
}

/// Reads until `buffer` is full or `left` bytes are read, which is the end of the file. After a short read, the next
/// read still has to begin at a block boundary.
fn fill(
    buffer: &mut [u8],
    left: u64,
    mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<(usize, bool)> {
    let mut found = 0;
    while found < buffer.len() {
        let read = match read(&mut buffer[found..], found) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        found += read;
        if read == 0 || found as u64 >= left {
            return Ok((found, true));
        }
        if found < buffer.len() {
            let whole = found / BLOCK * BLOCK;
            if found - whole == read {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file system returned a partial block before the end of the file",
                ));
            }
            found = whole;
        }
    }
    Ok((found, false))
}

impl Read for BackReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.consumed == self.chunk.bytes().len() && !self.ended {
            self.fill()?;
        }
        let left = self.chunk.bytes().get(self.consumed..).unwrap_or_default();
        let length = left.len().min(buffer.len());
        buffer[..length].copy_from_slice(&left[..length]);
        self.consumed += length;
        Ok(length)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own files")]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_is_not_the_end() {
        let bytes: Vec<u8> = (0..5 * BLOCK + 100).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let most = [BLOCK + 7, 3 * BLOCK, 2 * BLOCK - 1, BLOCK, 9 * BLOCK];
        let mut call = 0;
        let mut buffer = vec![0; 8 * BLOCK];
        let read = |out: &mut [u8], at: usize| {
            assert_eq!(at % BLOCK, 0, "past the page cache only whole blocks can be read");
            call += 1;
            let length = out.len().min(most[(call - 1) % most.len()]).min(bytes.len() - at);
            out[..length].copy_from_slice(&bytes[at..at + length]);
            Ok(length)
        };
        let (found, ended) = fill(&mut buffer, bytes.len() as u64, read).unwrap();
        assert!(ended && buffer[..found] == bytes);
        let stuck = fill(&mut buffer, 100_000, |_, _| Ok(7)).unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::UnexpectedEof);
    }

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
