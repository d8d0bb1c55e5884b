//! Sequences of commands on a dataset, compared with a model: commands one after the other, paused while others run,
//! and ended at any storage call. `model` derives sequences from a seed, `schedule` covers all pairs;
//! docs/RELIABILITY.md has figures.
#![expect(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests fail loudly, write their own inputs and report progress"
)]

mod dice;
mod gate;
mod model;
mod schedule;
mod world;
