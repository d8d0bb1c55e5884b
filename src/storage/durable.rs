//! Makes files durable in the background, while others are being written.
//!
//! A sync waits for the disk and costs no processor time, so a few threads that do nothing else are enough. An error
//! of a sync is an error of the file, for the kernel tells it only once.
//!
//! ```text
//! sink:    write ... write | finish              publish
//!                            start the sync        wait for it, then rename
//! ```

use std::{
    fs::File,
    io,
    sync::{Mutex, PoisonError},
};

use crossbeam_channel::{Receiver, Sender, bounded};

/// Syncs at a time: a disk does several as fast as one.
const THREADS: usize = 4;

/// Syncs that wait for their turn, each with an open file.
const WAITING: usize = 16;

/// Threads that sync files; they end with it.
#[derive(Debug, Default)]
pub(super) struct Syncer {
    tasks: Mutex<Option<Sender<Task>>>,
}

#[derive(Debug)]
struct Task {
    file: File,
    whole: bool,
    done: Sender<io::Result<()>>,
}

/// Syncs of one file that are under way.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    waiting: Vec<Receiver<io::Result<()>>>,
}

impl Syncer {
    /// Syncs files or folders side by side and waits for them.
    pub(super) fn all(&self, files: impl Iterator<Item = io::Result<File>>) -> io::Result<()> {
        let mut syncs = Syncs::default();
        for file in files {
            syncs.start(self, file?, true)?;
        }
        syncs.wait()
    }

    fn tasks(&self) -> io::Result<Sender<Task>> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = tasks.as_ref() {
            return Ok(tasks.clone());
        }
        let (give, take) = bounded::<Task>(WAITING);
        for _ in 0..THREADS {
            let take = take.clone();
            std::thread::Builder::new().name("sync".to_owned()).spawn(move || {
                for Task { file, whole, done } in take {
                    // Nobody waits for a file that was given up.
                    let _ = done.send(if whole { file.sync_all() } else { file.sync_data() });
                }
            })?;
        }
        *tasks = Some(give.clone());
        Ok(give)
    }
}

impl Syncs {
    /// Starts the sync of a file that is complete.
    pub(super) fn last(&mut self, syncer: &Syncer, file: File) -> io::Result<()> {
        self.start(syncer, file, false)
    }

    fn start(&mut self, syncer: &Syncer, file: File, whole: bool) -> io::Result<()> {
        let (done, waiting) = bounded(1);
        let given = syncer.tasks()?.send(Task { file, whole, done });
        given.map_err(|_| io::Error::other("the threads that sync files are gone"))?;
        self.waiting.push(waiting);
        Ok(())
    }

    /// Waits until everything is durable.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        for waiting in self.waiting.drain(..) {
            waiting.recv().map_err(|_| io::Error::other("a thread that syncs files is gone"))??;
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn every_sync_is_waited_for() {
        let syncer = Syncer::default();
        let mut syncs = Syncs::default();
        for _ in 0..200 {
            let file = tempfile::tempfile().unwrap();
            syncs.last(&syncer, file).unwrap();
        }
        syncs.wait().unwrap();
        assert!(syncs.waiting.is_empty());
        // What cannot be synced says so.
        syncs.last(&syncer, File::open("/dev/null").unwrap()).unwrap();
        assert!(syncs.wait().is_err());
    }
}
