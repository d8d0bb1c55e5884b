//! Everything that may happen to a dataset, held against a model: commands one after the other, stopped within one another, ended
//! at any of their storage calls. `model` makes sequences of a seed, `schedule` takes all pairs; docs/RELIABILITY.md has figures.
#![expect(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests fail loudly, write their own inputs and say how far they are"
)]

mod dice;
mod gate;
mod model;
mod schedule;
mod world;
