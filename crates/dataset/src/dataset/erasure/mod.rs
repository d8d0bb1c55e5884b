//! Erasures: their commits, the ids that stay blocked, and the deletions that are still to be done.

pub(super) mod block;
pub(super) mod erase;
pub(super) mod reindex;
pub(super) mod suppress;
pub(super) mod unfinished;
