//! Batches of a dataset in an order that is computed, for training.
//!
//! ```text
//! snapshot -> positions, basis -> order -> windows -> readers -> pieces -> gatherers -> batches, in the order of steps
//! ```
//!
//! | module | content |
//! |---|---|
//! | `settings`, `memory`, `loader` | what is asked for; what is known before the first batch |
//! | `plan` | windows and steps of an epoch |
//! | `columns`, `source`, `chunks`, `framed`, `rows`, `pages`, `piece` | how positions become decoded records |
//! | `window`, `gather`, `batches`, `pool`, `stats` | records in memory, batches, and the threads between them |
//! | `take`, `mixture` | records by position, without an order; one batch of several datasets |
//!
//! A step has the same records at any number of ranks and threads. No thread runs before an epoch is started, and none
//! after its batches are dropped, but those that read the next epoch ahead after the last batch of one; they end with
//! the loader. Nothing is shared between processes.

mod batches;
mod chunks;
mod columns;
mod framed;
mod gather;
mod loader;
mod memory;
mod mixture;
mod pages;
mod piece;
mod plan;
mod pool;
mod rows;
mod settings;
mod source;
mod stats;
mod take;
#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly, and damage files")]
mod tests;
mod window;

pub use self::{
    batches::Batches,
    gather::LoadedBatch,
    loader::{Loader, LoaderFacts},
    mixture::join_batches,
    settings::{LoaderSettings, Omitted},
    stats::LoadStats,
    take::Records,
};
