//! What a run does, as entries, intents, leases and plans state it: one word of a fixed list, so that no code compares
//! texts. An unknown word makes an object unreadable: it is damaged, or a newer release wrote it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The operation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Converts sources.
    Convert,
    /// Takes existing shards over.
    Adopt,
    /// Merges or sorts shards.
    Compact,
    /// Deletes what only expired versions need.
    Vacuum,
    /// Gives a version a name.
    Tag,
    /// Takes the name of a version away.
    Untag,
    /// Erases records from every version.
    Erase,
    /// Removes records from the newest version.
    Remove,
    /// Restores the content of an earlier version.
    Revert,
    /// Blocks ids that may arrive later.
    Block,
    /// Unblocks ids.
    Unblock,
    /// Copies a version of another dataset.
    Pull,
    /// Cuts a new dataset from a version of another one.
    Reshard,
}

impl Operation {
    /// Returns the word on disk, in reports and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Convert => "convert",
            Self::Adopt => "adopt",
            Self::Compact => "compact",
            Self::Vacuum => "vacuum",
            Self::Tag => "tag",
            Self::Untag => "untag",
            Self::Erase => "erase",
            Self::Remove => "remove",
            Self::Revert => "revert",
            Self::Block => "block",
            Self::Unblock => "unblock",
            Self::Pull => "pull",
            Self::Reshard => "reshard",
        }
    }

    /// Whether it imports sources.
    pub fn imports_sources(self) -> bool {
        matches!(self, Self::Convert | Self::Adopt)
    }

    /// Whether it leaves the records of a copy as they were pulled.
    pub fn keeps_a_copy(self) -> bool {
        matches!(self, Self::Pull | Self::Vacuum | Self::Tag | Self::Untag)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_on_disk() {
        let words = [
            "convert", "adopt", "compact", "vacuum", "tag", "untag", "erase", "remove", "revert", "block", "unblock",
            "pull", "reshard",
        ];
        for word in words {
            let operation: Operation = serde_json::from_value(word.into()).unwrap();
            assert_eq!((operation.name(), serde_json::to_value(operation).unwrap()), (word, word.into()));
        }
        for word in ["Convert", "sort", "plan", ""] {
            assert!(serde_json::from_value::<Operation>(word.into()).is_err(), "{word}");
        }
    }
}
