//! Writing local files that are large and read later, by others.
//!
//! Through the page cache every byte would be copied once more, inputs still to be read would have to make room, and
//! the disk would sit idle until the file is synced. So full chunks go past it, from a thread of their own, while the
//! next chunk is filled:
//!
//! ```text
//! write -> [chunk] -- full --> thread -> disk
//!             ^----- empty ------'
//! finish: the rest; what is no whole block goes through the page cache
//! ```
//!
//! A file of less than a chunk is written by `finish` alone. File systems that cannot go past the page cache get the same
//! bytes through it.
#![expect(clippy::disallowed_methods, reason = "this is a part of the one place that writes files")]

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread::JoinHandle,
};

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::{fs::OFlags, io::Errno};

use super::store::{PIECE, read_some};
use crate::error::Result;

/// Bytes that go to the disk at once.
pub(super) const CHUNK: usize = 2 << 20;

/// Chunks of a file: one that is filled, one that is written, one that waits.
const CHUNKS: usize = 3;

/// What addresses, offsets and lengths are multiples of when the page cache is passed by; enough for every common disk.
pub(super) const BLOCK: usize = 4096;

/// How a file is opened so that the page cache is passed by.
#[cfg(target_os = "linux")]
pub(super) const DIRECT: Option<OFlags> = Some(OFlags::DIRECT);
#[cfg(not(target_os = "linux"))]
pub(super) const DIRECT: Option<OFlags> = None;

/// Writes a new file.
#[derive(Debug)]
pub(super) struct FileWriter {
    chunk: Chunk,
    stage: Stage,
}

/// Who has the file.
#[derive(Debug)]
enum Stage {
    /// Nothing was written yet.
    Gathering(Target),
    Writing(Behind),
    Failed,
}

impl FileWriter {
    /// Writes to `file`, which is new, and which `path` names.
    pub(super) fn new(file: File, path: &Path) -> Self {
        let target = Target { file, path: path.to_owned(), direct: None, at: 0 };
        Self { chunk: Chunk::new(), stage: Stage::Gathering(target) }
    }

    /// Appends bytes of `source` as [`Sink::append_from`](super::store::Sink::append_from) does: they are read to where they
    /// are written from.
    pub(super) fn append_from(
        &mut self,
        source: &mut dyn Read,
        bytes: u64,
        look: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let mut taken = 0;
        while taken < bytes {
            if self.chunk.room() == 0 {
                self.turn()?;
            }
            let most = PIECE.min(self.chunk.room());
            let want = usize::try_from(bytes - taken).unwrap_or(most).min(most);
            let n = read_some(source, self.chunk.space(want))?;
            if n == 0 {
                break;
            }
            look(self.chunk.keep(n))?;
            taken += n as u64;
        }
        Ok(taken)
    }

    /// Writes what is left; the file is whole, but not durable yet.
    pub(super) fn finish(self) -> io::Result<File> {
        let mut target = match self.stage {
            Stage::Gathering(target) => target,
            Stage::Writing(behind) => behind.join()?,
            Stage::Failed => return Err(already()),
        };
        let bytes = self.chunk.bytes();
        let whole = bytes.len() / BLOCK * BLOCK;
        let (blocks, rest) = bytes.split_at(if target.direct.is_some() { whole } else { 0 });
        target.append(blocks)?;
        target.append_cached(rest)?;
        Ok(target.file)
    }

    /// Hands the full chunk on and takes an empty one.
    fn turn(&mut self) -> io::Result<()> {
        let mut behind = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Gathering(target) => Behind::start(target)?,
            Stage::Writing(behind) => behind,
            Stage::Failed => return Err(already()),
        };
        let empty = match behind.empty_chunk() {
            Some(empty) => empty,
            None => return Err(behind.join().err().unwrap_or_else(already)),
        };
        let full = std::mem::replace(&mut self.chunk, empty);
        if behind.full.send(full).is_err() {
            return Err(behind.join().err().unwrap_or_else(already));
        }
        self.stage = Stage::Writing(behind);
        Ok(())
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunk.room() == 0 {
            self.turn()?;
        }
        let taken = bytes.len().min(PIECE).min(self.chunk.room());
        self.chunk.push(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nobody reads a file that is not finished.
        Ok(())
    }
}

fn already() -> io::Error {
    io::Error::other("writing failed before")
}

/// Memory that begins at a multiple of a block.
#[derive(Debug)]
pub(super) struct Chunk {
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl Chunk {
    pub(super) fn new() -> Self {
        let memory = vec![0; CHUNK + BLOCK];
        // Where the address cannot be told the file system will refuse, and that is dealt with.
        let start = memory.as_ptr().align_offset(BLOCK).min(BLOCK);
        Self { memory, start, end: start }
    }

    fn room(&self) -> usize {
        self.start + CHUNK - self.end
    }

    fn push(&mut self, bytes: &[u8]) {
        self.memory[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Memory behind its bytes, for at most [`Self::room`] more.
    pub(super) fn space(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.end..self.end + bytes]
    }

    /// Keeps the first bytes of [`Self::space`], and returns them.
    pub(super) fn keep(&mut self, bytes: usize) -> &[u8] {
        self.end += bytes;
        &self.memory[self.end - bytes..self.end]
    }

    pub(super) fn clear(&mut self) {
        self.end = self.start;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }
}

/// The thread that writes, and its chunks.
#[derive(Debug)]
struct Behind {
    full: Sender<Chunk>,
    empty: Receiver<Chunk>,
    /// Chunks that may still be made.
    unmade: usize,
    thread: JoinHandle<io::Result<Target>>,
}

impl Behind {
    fn start(mut target: Target) -> io::Result<Self> {
        target.open_direct();
        let (full, filled) = bounded::<Chunk>(CHUNKS);
        let (emptied, empty) = bounded(CHUNKS);
        let write = move || {
            for mut chunk in filled {
                target.append(chunk.bytes())?;
                chunk.clear();
                // Nobody takes it once the file is finished.
                let _ = emptied.send(chunk);
            }
            Ok(target)
        };
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(write)?;
        Ok(Self { full, empty, unmade: CHUNKS - 1, thread })
    }

    /// A chunk to be filled; `None` when the thread has failed.
    fn empty_chunk(&mut self) -> Option<Chunk> {
        if let Ok(chunk) = self.empty.try_recv() {
            return Some(chunk);
        }
        if self.unmade > 0 {
            self.unmade -= 1;
            return Some(Chunk::new());
        }
        self.empty.recv().ok()
    }

    /// Waits until everything is written.
    fn join(self) -> io::Result<Target> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes has died")))
    }
}

/// A file and how far it is written.
#[derive(Debug)]
struct Target {
    file: File,
    path: PathBuf,
    /// The same file, past the page cache.
    direct: Option<File>,
    at: u64,
}

impl Target {
    fn open_direct(&mut self) {
        let flags = DIRECT.and_then(|flags| i32::try_from(flags.bits()).ok());
        self.direct = flags.and_then(|flags| OpenOptions::new().write(true).custom_flags(flags).open(&self.path).ok());
    }

    /// Writes whole blocks.
    fn append(&mut self, blocks: &[u8]) -> io::Result<()> {
        let Some(direct) = &self.direct else { return self.append_cached(blocks) };
        match direct.write_all_at(blocks, self.at) {
            // It takes the flag but not the alignment, or does not take it after all.
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::INVAL | Errno::OPNOTSUPP)) => {
                self.direct = None;
                self.append_cached(blocks)
            }
            Err(e) => Err(e),
            Ok(()) => {
                self.at += blocks.len() as u64;
                Ok(())
            }
        }
    }

    fn append_cached(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly and write their own files")]
mod tests {
    use super::*;

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn files_of_every_size_come_out_as_they_went_in() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = noise(5 * CHUNK + 17);
        let sizes = [0, 1, BLOCK, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + BLOCK, 2 * CHUNK, 4 * CHUNK + 100, bytes.len()];
        for (i, size) in sizes.into_iter().enumerate() {
            for step in [1000, PIECE, 3 * CHUNK] {
                let path = folder.path().join(format!("{i}-{step}"));
                let mut writer = FileWriter::new(File::create_new(&path).unwrap(), &path);
                bytes[..size].chunks(step).for_each(|piece| writer.write_all(piece).unwrap());
                writer.finish().unwrap();
                assert!(std::fs::read(&path).unwrap() == bytes[..size], "{size} bytes in steps of {step}");
            }
        }
    }

    #[test]
    fn what_is_appended_from_a_source_is_seen_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = noise(2 * CHUNK + 5 * BLOCK + 17);
        for (i, asked) in [0, 100, CHUNK as u64 + 1, bytes.len() as u64, u64::MAX].into_iter().enumerate() {
            let path = folder.path().join(format!("{i}"));
            let mut writer = FileWriter::new(File::create_new(&path).unwrap(), &path);
            let mut seen = Vec::new();
            writer.write_all(b"head").unwrap();
            let mut source = &bytes[..];
            let look = &mut |piece: &[u8]| {
                seen.extend_from_slice(piece);
                Ok(())
            };
            let taken = writer.append_from(&mut source, asked, look).unwrap();
            assert_eq!(taken, asked.min(bytes.len() as u64));
            writer.write_all(b"foot").unwrap();
            writer.finish().unwrap();
            let expected = &bytes[..usize::try_from(taken).unwrap()];
            assert!(seen == expected && source.len() == bytes.len() - seen.len());
            assert!(std::fs::read(&path).unwrap() == [b"head", expected, b"foot"].concat());
        }
    }

    #[test]
    fn a_disk_that_takes_nothing_is_an_error_at_the_latest_in_the_end() {
        let path = Path::new("/dev/full");
        for size in [10, 8 * CHUNK] {
            let mut writer = FileWriter::new(OpenOptions::new().write(true).open(path).unwrap(), path);
            let written = writer.write_all(&noise(size));
            let error = written.and_then(|()| writer.finish()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{size}");
        }
    }
}
