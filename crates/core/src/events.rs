//! Progress events of a running operation, and its cancellation.
//!
//! Library code never prints; it sends [`Event`]s. Only the command line turns them into a progress line. An observer
//! must return at once: events are sent from the threads that do the work.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::error::{Error, Result};

/// A progress event.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A phase began; `bytes` is the work ahead if it is known.
    Phase {
        /// What is being done, as a gerund: `reading`.
        name: &'static str,
        /// Bytes that this phase will process.
        bytes: Option<u64>,
    },
    /// Input was consumed.
    Read {
        /// Bytes of input since the last such event.
        bytes: u64,
        /// Records since the last such event.
        records: u64,
    },
    /// A shard was finished (not yet committed).
    Shard {
        /// Size in bytes.
        bytes: u64,
    },
    /// Information for the user that is not an error.
    Note(String),
}

/// Receives events; implementations must not block.
pub trait Observer: Send + Sync {
    /// Handles one event.
    fn event(&self, event: Event);
}

/// An observer that ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn event(&self, _event: Event) {}
}

/// A cancellation flag that any thread may set; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Requests that the run stops.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails with [`Error::interrupted`] if cancellation was requested.
    ///
    /// # Errors
    /// When [`Cancel::cancel`] was called on any clone.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::interrupted()) } else { Ok(()) }
    }
}
