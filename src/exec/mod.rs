//! Doing: parallel, in order, within bounds.
//!
//! ```text
//! splits --[ordered: parse]--> blocks --Gather--> batches --Cut--> units --[ordered: encode]--> encoded --Appender--> shards
//!          many threads                  one               one              many threads                   one
//! ```
//!
//! Every stage hands on its results in input order, so what is written does not depend on threads; every stage holds
//! a bounded number of results, so memory does not depend on the input.

pub mod adopt;
pub mod budget;
pub mod compact;
mod compare;
pub mod constants;
pub mod convert;
mod copy;
pub mod cut;
pub mod encode;
pub mod erase;
pub mod gather;
mod given;
pub mod index;
pub mod live;
pub mod names;
pub mod ordered;
pub mod rejects;
pub mod rewrite;
pub mod shard;
pub mod sort;
mod splice;
pub mod subjects;
pub mod suppress;
pub mod types;
