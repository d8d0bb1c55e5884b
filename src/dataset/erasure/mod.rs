//! Erasures: what they commit, what they keep from coming back, and what they have left to do.

pub(super) mod block;
pub(super) mod erase;
pub(super) mod reindex;
pub(super) mod suppress;
pub(super) mod unfinished;
