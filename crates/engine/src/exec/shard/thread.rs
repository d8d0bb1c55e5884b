//! The thread that writes a shard of framed records.
//!
//! Copying a shard's bytes into the chunks that go to the disk, hashing them and listing its records takes as long as
//! encoding does on a few cores. It is done here while the appender decides where the next records go:
//!
//! ```text
//! units -> appender (order, places, ids) --[piece]--> thread (bytes, hash, sidecar, indexes) -> finished shard
//! ```
//!
//! A few pieces wait while another is written, so that a disk that hesitates does not stop the workers. The end of a
//! shard, its last bytes and its sidecar, is written while the next shard begins. A failure ends the thread; the
//! appender learns of it with its next piece or when it asks for the finished shard. Dropping it waits for the thread,
//! so that nothing is written afterwards.

use std::thread::JoinHandle;

use crossbeam_channel::{Sender, bounded};

use super::{finished::FinishedShard, writer::StreamShardWriter};
use crate::{
    error::{Error, Result},
    exec::encode::Piece,
};

/// A shard that a thread of its own writes.
pub(super) struct ShardThread {
    bytes: u64,
    records: u64,
    /// `None` once nothing more is to come.
    steps: Option<Sender<Step>>,
    /// `None` once it was waited for.
    thread: Option<JoinHandle<Result<FinishedShard>>>,
}

/// What the thread is told to do.
enum Step {
    Append(Box<Piece>),
    /// Finish the shard, whose first record has this number.
    End(u64),
}

impl ShardThread {
    /// Starts the thread of a new shard; so many pieces may wait.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(super) fn start(mut writer: StreamShardWriter, waiting: usize) -> Result<Self> {
        let bytes = writer.bytes_written();
        let (give, steps) = bounded::<Step>(waiting);
        let write = move || {
            for step in steps {
                match step {
                    Step::Append(piece) => writer.append(*piece)?,
                    Step::End(first) => return writer.finish(&[(first, None)]),
                }
            }
            Err(ended_error())
        };
        let thread = std::thread::Builder::new().name("shard".to_owned()).spawn(write);
        let thread = thread.map_err(|e| Error::internal("starting a thread failed").with_cause(e))?;
        Ok(Self { bytes, records: 0, steps: Some(give), thread: Some(thread) })
    }

    /// Returns the bytes of the shard, those that are still to be written included.
    pub(super) fn total_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of its records.
    pub(super) fn record_count(&self) -> u64 {
        self.records
    }

    /// Appends records, now or soon.
    ///
    /// # Errors
    /// Fails if these or earlier records could not be written.
    pub(super) fn append(&mut self, piece: Box<Piece>) -> Result<()> {
        self.bytes += piece.bytes.len() as u64;
        self.records += piece.lengths.len() as u64;
        self.send_step(Step::Append(piece))
    }

    /// Ends the shard, whose first record has the number `first`; it is finished now or soon.
    ///
    /// # Errors
    /// Fails if earlier records could not be written.
    pub(super) fn end_shard(&mut self, first: u64) -> Result<()> {
        self.send_step(Step::End(first))
    }

    /// Waits for the shard after its [end](Self::end_shard).
    ///
    /// # Errors
    /// Fails if the store fails.
    pub(super) fn wait_finished(mut self) -> Result<FinishedShard> {
        self.join_thread()
    }

    fn send_step(&mut self, step: Step) -> Result<()> {
        match self.steps.as_ref().map(|steps| steps.send(step)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.join_thread().err().unwrap_or_else(ended_error)),
        }
    }

    fn join_thread(&mut self) -> Result<FinishedShard> {
        self.steps = None;
        let thread = self.thread.take().ok_or_else(ended_error)?;
        thread.join().unwrap_or_else(|panic| Err(Error::of_panic(panic.as_ref())))
    }
}

impl Drop for ShardThread {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            // What it could not write is dropped with it.
            let _ = thread.join();
        }
    }
}

fn ended_error() -> Error {
    Error::internal("the thread of a shard ended before its work")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly and write their own files")]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::*;
    use crate::{
        codec::Codec,
        dataset::{SidecarColumns, SourceRuns},
        exec::shard::finished::ShardNaming,
        format::{
            Framed, Framing as _, Keyed, OutputFormat,
            index::IndexKind,
            tar::{TarFraming, places::MemberPlaces},
        },
        record::{Part, Payload, Sample},
        storage::{LocalStore, Store},
    };

    fn start(folder: &Path, waiting: usize) -> ShardThread {
        let store = LocalStore::new(folder.to_owned());
        let naming = ShardNaming {
            tag: "x".into(),
            format: OutputFormat::Tar,
            codec: Codec::None,
            indexes: vec![IndexKind::Dali],
            fingerprints: false,
        };
        ShardThread::start(StreamShardWriter::create(&store, &TarFraming, &naming, 0).unwrap(), waiting).unwrap()
    }

    fn piece(key: &str, noted: bool) -> Box<Piece> {
        let part = Part { extension: "txt".into(), bytes: b"text".to_vec().into() };
        let sample = Sample { key: key.into(), origin: String::new(), subject: None, parts: vec![part] };
        let (payload, keys) = (Payload::Samples(vec![sample]), [key.to_owned()]);
        let mut framed = Framed { members: noted.then(MemberPlaces::default), ..Framed::default() };
        TarFraming.frame(Keyed::new(&payload, &keys), &mut framed).unwrap();
        let mut sources = SourceRuns::default();
        sources.push(&Arc::from("source"), 1);
        let rows = SidecarColumns {
            record_ids: None,
            subject_ids: None,
            extents: None,
            sources,
            rows: None,
            hashes: vec![7].into(),
            fingerprints: None,
        };
        Box::new(Piece {
            raw_bytes: framed.bytes.len() as u64,
            bytes: framed.bytes.into(),
            crc32: 0,
            rows,
            lengths: framed.lengths,
            members: framed.members.map(|members| (Arc::new(members), 0)),
        })
    }

    #[test]
    fn members_that_are_noted_or_found_give_the_same_index() {
        for noted in [[true, true], [false, false], [true, false], [false, true]] {
            let folder = tempfile::tempdir().unwrap();
            let mut shard = start(folder.path(), 1);
            ["a", "b"].into_iter().zip(noted).for_each(|(key, noted)| shard.append(piece(key, noted)).unwrap());
            assert_eq!((shard.total_bytes(), shard.record_count()), (2048, 2));
            shard.end_shard(5).unwrap();
            let finished = shard.wait_finished().unwrap();
            assert_eq!((finished.meta().records, finished.meta().first_record), (2, 5));
            let store: &dyn Store = &LocalStore::new(folder.path().to_owned());
            store.publish_staged(finished.staged).unwrap();
            let index = std::fs::read_to_string(folder.path().join("x/000000.idx")).unwrap();
            assert_eq!(index, "v1.2 2\ntxt 512 4 a.txt\ntxt 1536 4 b.txt\n", "{noted:?}");
        }
    }

    #[test]
    fn a_failure_is_the_error_of_a_later_call() {
        let folder = tempfile::tempdir().unwrap();
        let failed = |(given, waiting): (usize, usize)| {
            let mut shard = start(folder.path(), waiting);
            let appended =
                (0..given).try_for_each(|_| shard.append(piece("a b", true))).and_then(|()| shard.end_shard(0));
            let error = appended.err().unwrap_or_else(|| shard.wait_finished().unwrap_err());
            assert!(error.message().contains("the index of DALI cannot hold the name `a b.txt`"), "{error}");
        };
        // So many that one is given after the thread has ended.
        [(1, 0), (1, 3), (2, 1), (10, 0), (10, 3)].into_iter().for_each(failed);
    }

    #[test]
    fn a_shard_that_is_dropped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut shard = start(folder.path(), 3);
        shard.append(piece("a", true)).unwrap();
        drop(shard);
        let files = walk(folder.path());
        assert!(files.is_empty(), "{files:?}");
    }

    fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
        }
        files
    }
}
