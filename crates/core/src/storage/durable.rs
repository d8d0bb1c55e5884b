//! Makes files durable in the background, while others are being written.
//!
//! A sync waits for the disk and uses no processor time, so a few dedicated threads are enough. A failed sync is an
//! error of the file, because the kernel reports it only once.
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

/// Concurrent syncs: a disk completes several in the time of one.
const THREADS: usize = 4;

/// Maximum queued syncs, each with an open file.
const QUEUE: usize = 16;

/// Threads that sync files; they end when this is dropped.
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

/// Syncs of one file that are in progress.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    waiting: Vec<Receiver<io::Result<()>>>,
}

impl Syncer {
    /// Syncs files or folders in parallel and waits for them.
    pub(super) fn sync_all(&self, files: impl Iterator<Item = io::Result<File>>) -> io::Result<()> {
        let mut syncs = Syncs::default();
        for file in files {
            syncs.start_sync(self, file?, true)?;
        }
        syncs.wait()
    }

    fn task_sender(&self) -> io::Result<Sender<Task>> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = tasks.as_ref() {
            return Ok(tasks.clone());
        }
        let (sender, receiver) = bounded::<Task>(QUEUE);
        for _ in 0..THREADS {
            let receiver = receiver.clone();
            std::thread::Builder::new().name("sync".to_owned()).spawn(move || {
                for Task { file, whole, done } in receiver {
                    // The receiver is gone if the file was abandoned.
                    let _ = done.send(if whole { file.sync_all() } else { file.sync_data() });
                }
            })?;
        }
        *tasks = Some(sender.clone());
        Ok(sender)
    }
}

impl Syncs {
    /// Starts the sync of a complete file.
    pub(super) fn start_complete(&mut self, syncer: &Syncer, file: File) -> io::Result<()> {
        self.start_sync(syncer, file, false)
    }

    fn start_sync(&mut self, syncer: &Syncer, file: File, whole: bool) -> io::Result<()> {
        let (done, waiting) = bounded(1);
        let given = syncer.task_sender()?.send(Task { file, whole, done });
        given.map_err(|_| io::Error::other("the sync threads have ended"))?;
        self.waiting.push(waiting);
        Ok(())
    }

    /// Waits until all syncs are complete.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        for waiting in self.waiting.drain(..) {
            waiting.recv().map_err(|_| io::Error::other("a sync thread has ended"))??;
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn wait_returns_after_every_sync() {
        let syncer = Syncer::default();
        let mut syncs = Syncs::default();
        for _ in 0..200 {
            let file = tempfile::tempfile().unwrap();
            syncs.start_complete(&syncer, file).unwrap();
        }
        syncs.wait().unwrap();
        assert!(syncs.waiting.is_empty());
        // A file that cannot be synced is an error.
        syncs.start_complete(&syncer, File::open("/dev/null").unwrap()).unwrap();
        assert!(syncs.wait().is_err());
    }
}
