//! Which record has an id, where it is and where it came from.

pub(super) mod find;
pub(super) mod origins;
pub(super) mod placed;
pub(super) mod prefix;
