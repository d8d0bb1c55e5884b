//! Retention: versions that expire, objects that no version needs, and the objects that `verify` checks.

pub(super) mod audit;
pub(super) mod sign;
pub(super) mod vacuum;
