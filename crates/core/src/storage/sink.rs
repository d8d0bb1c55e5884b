//! Writes large local files that are read later, by other processes.
//!
//! The page cache would copy every byte once more, evict inputs that are still to be read, and leave the disk idle
//! until the file is synced. So full chunks bypass it, written by a separate thread while the next chunk is filled:
//!
//! ```text
//! write -> [chunk] -- full --> thread -> disk
//!             ^----- empty ------'
//! finish: the rest; a partial block goes through the page cache
//! ```
//!
//! A file smaller than a chunk is written by `finish` alone. On file systems without direct I/O the same bytes go
//! through the page cache. [`Progress`] tells readers how many bytes have been written.
#![expect(clippy::disallowed_methods, reason = "this is a part of the one place that writes files")]

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
};

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::{fs::OFlags, io::Errno};

use super::store::{PIECE, read_some};
use crate::error::Result;

/// Bytes per write to the disk.
pub(super) const CHUNK: usize = 2 << 20;

/// Chunks per file: one being filled, one being written, and others that wait for a disk that hesitates.
const CHUNKS: usize = 4;

/// Alignment of addresses, offsets and lengths for direct I/O; sufficient for every common disk.
pub(super) const BLOCK: usize = 4096;

/// Open flags that bypass the page cache.
#[cfg(target_os = "linux")]
pub(super) const DIRECT: Option<OFlags> = Some(OFlags::DIRECT);
#[cfg(not(target_os = "linux"))]
pub(super) const DIRECT: Option<OFlags> = None;

/// Writes a new file.
#[derive(Debug)]
pub(super) struct FileWriter {
    chunk: Chunk,
    stage: Stage,
    ending: Ending,
}

/// How far a file is written, for those who read it meanwhile.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<(Mutex<Written>, Condvar)>);

#[derive(Debug, Clone, Copy)]
enum Written {
    /// So many bytes, and more may follow.
    Partly(u64),
    /// All bytes.
    Wholly(u64),
    /// The writer was dropped before the file was complete.
    Abandoned,
}

impl Default for Written {
    fn default() -> Self {
        Self::Partly(0)
    }
}

impl Progress {
    /// Notes how far the file is. Of an abandoned file nothing else can be said: its thread may still be writing, and
    /// readers would wait for ever for what comes after.
    fn set_written(&self, written: Written) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, Written::Partly(_)) {
            *state = written;
            changed.notify_all();
        }
    }

    /// Waits until `bytes` bytes are written or the file is complete; returns the number of bytes, and whether they are
    /// all.
    pub(super) fn wait_for(&self, bytes: u64) -> io::Result<(u64, bool)> {
        let (state, changed) = &*self.0;
        let too_few = |written: &mut Written| matches!(written, Written::Partly(found) if *found < bytes);
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match *changed.wait_while(state, too_few).unwrap_or_else(PoisonError::into_inner) {
            Written::Partly(found) => Ok((found, false)),
            Written::Wholly(found) => Ok((found, true)),
            Written::Abandoned => Err(io::Error::other("the file was abandoned while it was written")),
        }
    }
}

/// Tells readers at its end that the file was abandoned, which it is unless it is complete.
#[derive(Debug)]
struct Ending(Progress);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.set_written(Written::Abandoned);
    }
}

/// Where the open file is.
#[derive(Debug)]
enum Stage {
    /// Nothing has been written yet.
    Buffering(Target),
    Writing(WriteBehind),
    Failed,
}

impl FileWriter {
    /// Creates a writer for the new file `file` at `path`.
    pub(super) fn new(file: File, path: &Path) -> Self {
        let progress = Progress::default();
        let target = Target { file, path: path.to_owned(), direct: None, at: 0, progress: progress.clone() };
        Self { chunk: Chunk::new(), stage: Stage::Buffering(target), ending: Ending(progress) }
    }

    /// Returns how far the file is written.
    pub(super) fn progress(&self) -> Progress {
        self.ending.0.clone()
    }

    /// Appends bytes of `source` as [`Sink::append_from`](super::store::Sink::append_from) does: they are read directly
    /// into the chunk that is written.
    pub(super) fn append_from(
        &mut self,
        source: &mut dyn Read,
        bytes: u64,
        look: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let mut taken = 0;
        while taken < bytes {
            if self.chunk.spare_capacity() == 0 {
                self.pass_chunk()?;
            }
            let most = PIECE.min(self.chunk.spare_capacity());
            let want = usize::try_from(bytes - taken).unwrap_or(most).min(most);
            let n = read_some(source, self.chunk.spare_slice(want))?;
            if n == 0 {
                break;
            }
            look(self.chunk.commit_bytes(n))?;
            taken += n as u64;
        }
        Ok(taken)
    }

    /// Writes the remaining bytes; the file is complete, but not durable yet.
    pub(super) fn finish(self) -> io::Result<File> {
        let mut target = match self.stage {
            Stage::Buffering(target) => target,
            Stage::Writing(behind) => behind.join_thread()?,
            Stage::Failed => return Err(failed_before()),
        };
        let bytes = self.chunk.filled_bytes();
        let whole = bytes.len() / BLOCK * BLOCK;
        let (blocks, rest) = bytes.split_at(if target.direct.is_some() { whole } else { 0 });
        target.append_blocks(blocks)?;
        target.append_cached(rest)?;
        target.progress.set_written(Written::Wholly(target.at));
        Ok(target.file)
    }

    /// Passes the full chunk to the thread and gets an empty one.
    fn pass_chunk(&mut self) -> io::Result<()> {
        let mut behind = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Buffering(target) => WriteBehind::start_thread(target)?,
            Stage::Writing(behind) => behind,
            Stage::Failed => return Err(failed_before()),
        };
        let empty = match behind.empty_chunk() {
            Some(empty) => empty,
            None => return Err(behind.join_thread().err().unwrap_or_else(failed_before)),
        };
        let full = std::mem::replace(&mut self.chunk, empty);
        if behind.full.send(full).is_err() {
            return Err(behind.join_thread().err().unwrap_or_else(failed_before));
        }
        self.stage = Stage::Writing(behind);
        Ok(())
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunk.spare_capacity() == 0 {
            self.pass_chunk()?;
        }
        let taken = bytes.len().min(PIECE).min(self.chunk.spare_capacity());
        self.chunk.push(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        // An unfinished file is never read.
        Ok(())
    }
}

fn failed_before() -> io::Error {
    io::Error::other("an earlier write to this file failed")
}

/// Block-aligned memory.
#[derive(Debug)]
pub(super) struct Chunk {
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl Chunk {
    pub(super) fn new() -> Self {
        let memory = vec![0; CHUNK + BLOCK];
        // If the address cannot be aligned, the file system rejects the write, and the fallback handles it.
        let start = memory.as_ptr().align_offset(BLOCK).min(BLOCK);
        Self { memory, start, end: start }
    }

    fn spare_capacity(&self) -> usize {
        self.start + CHUNK - self.end
    }

    fn push(&mut self, bytes: &[u8]) {
        self.memory[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Returns the memory after the chunk's bytes, for at most [`Self::spare_capacity`] more.
    pub(super) fn spare_slice(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.end..self.end + bytes]
    }

    /// Keeps the first `bytes` bytes of [`Self::spare_slice`] and returns them.
    pub(super) fn commit_bytes(&mut self, bytes: usize) -> &[u8] {
        self.end += bytes;
        &self.memory[self.end - bytes..self.end]
    }

    pub(super) fn clear(&mut self) {
        self.end = self.start;
    }

    pub(super) fn filled_bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }
}

/// The writing thread and its chunks.
#[derive(Debug)]
struct WriteBehind {
    full: Sender<Chunk>,
    empty: Receiver<Chunk>,
    /// Chunks that may still be allocated.
    unallocated: usize,
    thread: JoinHandle<io::Result<Target>>,
}

impl WriteBehind {
    fn start_thread(mut target: Target) -> io::Result<Self> {
        target.open_direct();
        let (full, filled) = bounded::<Chunk>(CHUNKS);
        let (emptied, empty) = bounded(CHUNKS);
        let write = move || {
            for mut chunk in filled {
                target.append_blocks(chunk.filled_bytes())?;
                target.progress.set_written(Written::Partly(target.at));
                chunk.clear();
                // The receiver is gone once the file is finished.
                let _ = emptied.send(chunk);
            }
            Ok(target)
        };
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(write)?;
        Ok(Self { full, empty, unallocated: CHUNKS - 1, thread })
    }

    /// Returns an empty chunk; `None` if the thread has failed.
    fn empty_chunk(&mut self) -> Option<Chunk> {
        if let Ok(chunk) = self.empty.try_recv() {
            return Some(chunk);
        }
        if self.unallocated > 0 {
            self.unallocated -= 1;
            return Some(Chunk::new());
        }
        self.empty.recv().ok()
    }

    /// Waits until everything is written.
    fn join_thread(self) -> io::Result<Target> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")))
    }
}

/// A file and its current length.
#[derive(Debug)]
struct Target {
    file: File,
    path: PathBuf,
    /// The same file, opened for direct I/O.
    direct: Option<File>,
    at: u64,
    progress: Progress,
}

impl Target {
    fn open_direct(&mut self) {
        let flags = DIRECT.and_then(|flags| i32::try_from(flags.bits()).ok());
        self.direct = flags.and_then(|flags| OpenOptions::new().write(true).custom_flags(flags).open(&self.path).ok());
    }

    /// Writes whole blocks.
    fn append_blocks(&mut self, blocks: &[u8]) -> io::Result<()> {
        let Some(direct) = &self.direct else { return self.append_cached(blocks) };
        match direct.write_all_at(blocks, self.at) {
            // The file system accepts the flag but not the alignment, or does not support direct writes.
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
    fn files_of_every_size_round_trip() {
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
    fn what_the_thread_writes_after_the_writer_is_gone_does_not_revive_the_file() {
        let progress = Progress::default();
        let threads = progress.clone();
        drop(Ending(progress.clone()));
        threads.set_written(Written::Partly(10));
        assert!(progress.wait_for(1_000).is_err() && progress.wait_for(5).is_err());
        let complete = Progress::default();
        complete.set_written(Written::Wholly(7));
        drop(Ending(complete.clone()));
        assert_eq!(complete.wait_for(1_000).unwrap(), (7, true));
    }

    #[test]
    fn bytes_appended_from_a_source_are_passed_on_and_written() {
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
    fn a_full_disk_is_an_error_in_finish_at_the_latest() {
        let path = Path::new("/dev/full");
        for size in [10, 8 * CHUNK] {
            let mut writer = FileWriter::new(OpenOptions::new().write(true).open(path).unwrap(), path);
            let written = writer.write_all(&noise(size));
            let error = written.and_then(|()| writer.finish()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{size}");
        }
    }
}
