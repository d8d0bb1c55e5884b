//! The execution layer: runs work in parallel, keeps results in input order, and bounds memory.
//!
//! ```text
//! ranges -[ordered: parse]-> blocks -Gather-> batches -Cut-> units -[ordered: encode]-> encoded -Appender-> shards
//!         many threads               one             one           many threads                 one
//! ```
//!
//! Every stage passes on its results in input order, so the output does not depend on the number of threads. Every
//! stage holds a bounded number of results, so memory does not depend on the size of the input.

pub mod adopt;
pub mod arrange;
pub mod budget;
pub mod compact;
mod compare;
pub mod constants;
pub mod convert;
mod copy;
pub mod cut;
pub mod divide;
pub mod encode;
pub mod erase;
pub mod fetch;
pub mod gates;
pub mod gather;
mod given;
pub mod optimize;
pub mod ordered;
pub mod rejects;
pub mod reshard;
pub mod rewrite;
pub mod scatter;
pub mod seen;
pub mod separated;
pub mod shard;
pub mod shuffle;
pub mod sort;
pub mod source;
mod spill;
mod splice;
pub mod splits;
pub mod types;
