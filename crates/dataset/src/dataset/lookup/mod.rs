//! Lookups: which record has an id, in which shard it is, and which source it came from.

pub(super) mod duplicates;
pub(super) mod find;
pub(super) mod origins;
pub(super) mod placed;
pub(super) mod prefix;
