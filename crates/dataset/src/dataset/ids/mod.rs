//! Ids as stored: plain or private, as columns, hashes and record numbers.

pub(super) mod ascending;
pub(super) mod column;
pub(super) mod numbers;
pub(super) mod private;
pub(super) mod salt;
pub(super) mod width;

use serde::{Deserialize, Serialize};

use crate::id::IdHash;

/// The two kinds of id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdKind {
    /// Identifies one record.
    Record,
    /// Identifies what records are about.
    Subject,
}

impl IdKind {
    /// Returns `record` or `subject`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Subject => "subject",
        }
    }
}

/// An id to look up, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::dataset) struct Wanted<'a> {
    /// Its hash.
    pub hash: IdHash,
    /// Its text, or the token of a private id.
    pub id: &'a str,
}
