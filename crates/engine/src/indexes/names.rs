//! Names of tar members: which an index cannot store, and how they are changed so that it can.

use crate::{
    format::index::IndexKind,
    id::IdHash,
    record::key::{escape_extension, escape_plain},
};

/// Name of a planned tar member.
#[derive(Debug, Clone, Copy)]
pub struct MemberName<'a> {
    /// Name up to the first dot of the last component.
    pub key: &'a str,
    /// Rest of the name after that dot; empty if there is none.
    pub extension: &'a str,
}

/// A kind of name that a reader cannot accept.
#[derive(Debug)]
pub struct Rule {
    /// What is wrong with the name.
    pub fault: &'static str,
    /// The affected reader.
    pub reader: &'static str,
    /// The index that needs the rule; `None` if it applies to all tars.
    pub index: Option<IndexKind>,
    /// Whether the fault is acceptable without changing the key, so that it counts only under strict rules.
    pub harmless: bool,
    /// Whether a name has the fault.
    pub breaks: fn(MemberName<'_>) -> bool,
}

/// Changes to names, in addition to the escapes that every tar needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Renaming {
    /// Whether blanks and non-ASCII characters are escaped.
    pub plain: bool,
    /// Maximum bytes of a name; longer names are truncated and made unique by a hash. `None` if unlimited.
    pub max_bytes: Option<usize>,
}

impl Renaming {
    /// No changes.
    pub const NONE: Self = Self { plain: false, max_bytes: None };

    /// Returns the changes that satisfy both.
    #[must_use]
    pub fn combined_with(self, other: Self) -> Self {
        let max_bytes = self.max_bytes.into_iter().chain(other.max_bytes).min();
        Self { plain: self.plain || other.plain, max_bytes }
    }

    /// Returns whether any name is changed.
    pub fn is_active(self) -> bool {
        self != Self::NONE
    }

    /// Changes a key that is already escaped; `extension` is the length of the extension that will follow.
    pub fn rename_key(self, key: String, extension: usize) -> String {
        let key = if self.plain { escape_plain(&key) } else { key };
        match self.max_bytes {
            Some(max_bytes) if key.len() + 1 + extension > max_bytes => {
                shorten_key(&key, max_bytes.saturating_sub(extension + 1))
            }
            _ => key,
        }
    }

    /// Changes an extension.
    pub fn rename_extension(self, extension: &str) -> String {
        if self.plain { escape_extension(extension) } else { extension.to_owned() }
    }
}

/// Truncates a key and appends a hash of the whole key.
fn shorten_key(key: &str, max_bytes: usize) -> String {
    let hash = format!("-{:016x}", IdHash::from_id(key).0);
    let mut end = max_bytes.saturating_sub(hash.len()).min(key.len());
    while !key.is_char_boundary(end) {
        end -= 1;
    }
    let (folders, last) = key[..end].rsplit_once('/').map_or(("", &key[..end]), |(folders, last)| (folders, last));
    let slash = if folders.is_empty() { "" } else { "/" };
    // The rest of a truncated folder name may contain dots, which end a key.
    format!("{folders}{slash}{}{hash}", last.replace('.', "_"))
}
