//! Ids as they are stored: plain or hidden, as columns, as hashes, as numbers of records.

pub(super) mod column;
pub(super) mod numbers;
pub(super) mod private;
pub(super) mod salt;

use serde::{Deserialize, Serialize};

/// The two kinds of id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdKind {
    /// Names one record.
    Record,
    /// Whom records are about.
    Subject,
}

impl IdKind {
    /// `record` or `subject`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Subject => "subject",
        }
    }
}
