//! Copies objects from one store to another, several at a time, and checks their bytes as they pass.
//!
//! An object gets its name when all of it has arrived and matches its seal, so a name stands for a whole object, also
//! after the process or the machine was stopped. Small objects get their names together, because each naming waits for
//! the disk.

use std::{
    collections::VecDeque,
    io::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    dataset::{Sealed, copy_sealed},
    error::{Error, Result},
    events::{Cancel, Event, Observer},
    storage::{Staged, Store},
};

/// Memory of a thread: buffers of both stores and the piece that is checked.
pub const BYTES_OF_THREAD: u64 = 32 << 20;
/// Objects that get their names together, at most.
const NAMED_TOGETHER: usize = 32;
/// Bytes of objects that get their names together, at most one object more.
const BYTES_TOGETHER: u64 = 64 << 20;

/// An object to be copied.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The object, with its seal.
    pub object: Sealed,
    /// Its size.
    pub bytes: u64,
    /// Whether an object of that name exists that is not the right one.
    pub replaces: bool,
}

/// Copies objects.
pub struct Fetcher<'a> {
    /// Where objects are read.
    pub from: &'a Arc<dyn Store>,
    /// Where they are written.
    pub to: &'a Arc<dyn Store>,
    /// Number of objects in flight.
    pub threads: usize,
    /// Receives progress events.
    pub observer: &'a dyn Observer,
    /// Cancellation token.
    pub cancel: &'a Cancel,
}

impl Fetcher<'_> {
    /// Copies all objects.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) naming an object that does not match its seal; when a store
    /// fails. Objects that had arrived whole keep their names.
    pub fn fetch_objects(&self, mut wanted: Vec<Wanted>) -> Result<()> {
        // The largest first, so that no thread is left with one at the end.
        wanted.sort_by(|a, b| (b.bytes, &a.object.path).cmp(&(a.bytes, &b.object.path)));
        let queue = Mutex::new(VecDeque::from(wanted));
        let (failure, stop) = (Mutex::new(None), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    if let Err(error) = self.run_worker(&queue, &stop) {
                        stop.store(true, Ordering::Relaxed);
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                });
            }
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Copies objects until none is left or another thread has failed.
    fn run_worker(&self, queue: &Mutex<VecDeque<Wanted>>, stop: &AtomicBool) -> Result<()> {
        let mut batch = Batch { to: self.to, staged: Vec::new(), bytes: 0 };
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let result = loop {
            if stop.load(Ordering::Relaxed) {
                break Ok(());
            }
            let Some(wanted) = next() else { break Ok(()) };
            match self.fetch_object(&wanted, stop).and_then(|staged| batch.add_staged(staged, &wanted)) {
                Ok(()) => {}
                Err(error) => break Err(error),
            }
        };
        // What has arrived need not be fetched again, whatever happened to others.
        let named = batch.publish_staged();
        result.and(named)
    }

    /// Copies an object; `None` if another thread has failed meanwhile.
    fn fetch_object(&self, wanted: &Wanted, stop: &AtomicBool) -> Result<Option<Staged>> {
        let mut sink = self.to.create_sink(&wanted.object.path)?;
        let mut stopped = false;
        let copied = copy_sealed(self.from, &wanted.object, &mut |bytes| {
            self.cancel.check()?;
            stopped = stop.load(Ordering::Relaxed);
            if stopped {
                return Err(Error::interrupted());
            }
            sink.write_all(bytes)?;
            self.observer.event(Event::Read { bytes: bytes.len() as u64, records: 0 });
            Ok(())
        });
        match copied {
            Err(_) if stopped => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(Some(sink.finish()?)),
        }
    }
}

/// Whole objects without names.
struct Batch<'a> {
    to: &'a Arc<dyn Store>,
    staged: Vec<Staged>,
    bytes: u64,
}

impl Batch<'_> {
    fn add_staged(&mut self, staged: Option<Staged>, wanted: &Wanted) -> Result<()> {
        let Some(staged) = staged else { return Ok(()) };
        if wanted.replaces {
            return self.to.replace_staged(vec![staged]);
        }
        self.staged.push(staged);
        self.bytes += wanted.bytes;
        if self.staged.len() >= NAMED_TOGETHER || self.bytes >= BYTES_TOGETHER { self.publish_staged() } else { Ok(()) }
    }

    fn publish_staged(&mut self) -> Result<()> {
        self.bytes = 0;
        let staged = std::mem::take(&mut self.staged);
        if staged.is_empty() { Ok(()) } else { self.to.publish_staged(staged) }
    }
}
