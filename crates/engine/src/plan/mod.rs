//! Decisions, represented as values. This layer does no I/O and uses no clock: equal inputs give equal plans.

pub mod compact;
pub mod drift;
pub mod memory;
pub mod names;
pub mod reshard;
pub mod roll;
pub mod shuffle;
pub mod sort;
pub mod tasks;
