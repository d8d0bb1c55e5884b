//! Reads back a file that was just written, or is still being written, from the disk itself.
//!
//! What [`sink`](super::sink) wrote is not in the page cache. Reading it through the cache would evict pages that are
//! still needed and copy every byte once more, and a read from the cache does not prove that anything is on the disk.
//! File systems without direct I/O are read through the page cache.
//!
//! ```text
//! written   [chunk][chunk][chunk][chunk][chunk][chun
//! read      [chunk][chunk]                             the disk reads while the processor makes the next chunks
//! ```

#![expect(clippy::disallowed_methods, reason = "options of opening are needed for reading, too")]

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::sink::{BLOCK, CHUNK, Chunk, DIRECT, Progress};

/// Bytes that must be written before a reader that has caught up goes on: a disk is faster if it seldom alternates.
const BURST: u64 = 8 * CHUNK as u64;

/// Opens a file for one sequential read.
pub(super) fn open_uncached(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    let bytes = std::fs::metadata(path)?.len();
    Ok(Box::new(BackReader::open(path, Until::End(bytes))?))
}

/// Opens a file that is being written for one sequential read, which waits for its bytes.
pub(super) fn open_following(path: &Path, progress: Progress) -> io::Result<Box<dyn BufRead + Send>> {
    Ok(Box::new(BackReader::open(path, Until::Written { progress, known: 0, complete: false })?))
}

fn open_direct(path: &Path) -> Option<File> {
    let flags = i32::try_from(DIRECT?.bits()).ok()?;
    OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
}

/// How many bytes can be read.
enum Until {
    /// The file has so many.
    End(u64),
    /// Those that are written.
    Written { progress: Progress, known: u64, complete: bool },
}

impl Until {
    /// Returns the end of the bytes that can be read, at least a chunk after `at` or the end of the file.
    fn readable_end(&mut self, at: u64) -> io::Result<u64> {
        match self {
            Self::End(bytes) => Ok(*bytes),
            Self::Written { progress, known, complete } => {
                if *known < at + CHUNK as u64 && !*complete {
                    (*known, *complete) = progress.wait_for(at + BURST)?;
                }
                Ok(*known)
            }
        }
    }

    /// Returns whether bytes may follow those that can be read.
    fn is_open(&self) -> bool {
        matches!(self, Self::Written { complete: false, .. })
    }
}

struct BackReader {
    path: PathBuf,
    file: File,
    direct: bool,
    until: Until,
    /// Offset of the next chunk.
    at: u64,
    chunk: Chunk,
    /// Bytes of the current chunk that were consumed.
    consumed: usize,
    ended: bool,
}

impl BackReader {
    fn open(path: &Path, until: Until) -> io::Result<Self> {
        let (file, direct) = match open_direct(path) {
            Some(file) => (file, true),
            None => (File::open(path)?, false),
        };
        let path = path.to_owned();
        Ok(Self { path, file, direct, until, at: 0, chunk: Chunk::new(), consumed: 0, ended: false })
    }

    fn fill_chunk(&mut self) -> io::Result<()> {
        let end = self.until.readable_end(self.at)?;
        match self.fill_to(end) {
            // The file system accepts the flag but does not support direct reads, or the file is unreadable; a cached
            // read reports the latter.
            Err(_) if self.direct => {
                (self.file, self.direct) = (File::open(&self.path)?, false);
                self.fill_to(end)
            }
            filled => filled,
        }
    }

    fn fill_to(&mut self, end: u64) -> io::Result<()> {
        self.chunk.clear();
        self.consumed = 0;
        let (file, at) = (&self.file, self.at);
        let read = |buffer: &mut [u8], ahead: usize| file.read_at(buffer, at + ahead as u64);
        let (found, ended) = read_blocks(self.chunk.spare_slice(CHUNK), end.saturating_sub(at), read)?;
        self.chunk.commit_bytes(found);
        self.at += found as u64;
        self.ended = ended && !self.until.is_open();
        Ok(())
    }
}

/// Reads until `buffer` is full or `left` bytes are read, which is the end of the file. After a short read, the next
/// read still has to begin at a block boundary.
fn read_blocks(
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
        let found = self.fill_buf()?;
        let length = found.len().min(buffer.len());
        buffer[..length].copy_from_slice(&found[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for BackReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.consumed == self.chunk.filled_bytes().len() && !self.ended {
            self.fill_chunk()?;
        }
        Ok(self.chunk.filled_bytes().get(self.consumed..).unwrap_or_default())
    }

    fn consume(&mut self, bytes: usize) {
        self.consumed += bytes;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own files")]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::storage::sink::FileWriter;

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
        let (found, ended) = read_blocks(&mut buffer, bytes.len() as u64, read).unwrap();
        assert!(ended && buffer[..found] == bytes);
        let stuck = read_blocks(&mut buffer, 100_000, |_, _| Ok(7)).unwrap_err();
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
            open_uncached(&path).unwrap().read_to_end(&mut found).unwrap();
            assert!(found == bytes[..size], "{size}");
        }
        assert!(open_uncached(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_file_is_read_while_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> =
            (0_u32..).take(11 * CHUNK + 5000).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 8 * CHUNK, 9 * CHUNK, bytes.len()] {
            let path = folder.path().join(format!("{size}"));
            let mut writer = FileWriter::new(File::create_new(&path).unwrap(), &path);
            let mut reader = open_following(&path, writer.progress()).unwrap();
            let reading = std::thread::spawn(move || {
                let mut found = Vec::new();
                reader.read_to_end(&mut found).map(|_| found)
            });
            bytes[..size].chunks(100_000).for_each(|piece| writer.write_all(piece).unwrap());
            writer.finish().unwrap();
            assert!(reading.join().unwrap().unwrap() == bytes[..size], "{size}");
        }
    }

    #[test]
    fn a_reader_of_an_abandoned_file_does_not_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for size in [0, 3 * CHUNK] {
            let mut writer = FileWriter::new(File::create(&path).unwrap(), &path);
            let mut reader = open_following(&path, writer.progress()).unwrap();
            let reading = std::thread::spawn(move || reader.read_to_end(&mut Vec::new()).map(drop));
            writer.write_all(&vec![7; size]).unwrap();
            drop(writer);
            let error = reading.join().unwrap().unwrap_err();
            assert!(error.to_string().contains("abandoned"), "{error}");
        }
    }
}
