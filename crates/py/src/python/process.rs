//! Values with threads behind them, which a forked child has a copy of but must not use, and waiting for them.

use std::time::Duration;

/// How long signals wait to be looked at.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// A value of the process that made it. A forked child has no threads of its parent, so it neither uses nor drops it.
pub(super) struct OfProcess<T> {
    owner: u32,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    pub(super) fn new(value: T) -> Self {
        Self { owner: std::process::id(), value: Some(value) }
    }

    /// Returns the value; `None` in a child of the process that made it.
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|_| self.owner == std::process::id())
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
