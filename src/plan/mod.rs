//! Decisions, as values. Nothing here reads, writes or looks at a clock: the same facts give the same plan.

pub mod compact;
pub mod drift;
pub mod memory;
pub mod names;
pub mod roll;
pub mod sort;
