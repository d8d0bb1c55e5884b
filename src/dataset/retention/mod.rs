//! What is kept and what goes: versions that expire, objects that nothing names, and what `verify` has to look at.

pub(super) mod audit;
pub(super) mod vacuum;
