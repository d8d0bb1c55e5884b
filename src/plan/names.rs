//! Names that readers cannot take: which reader minds what, and what a name becomes instead.
//!
//! | name | who minds |
//! |---|---|
//! | nothing before the first dot of its last component | webdataset, DALI, energon, wids |
//! | first component `__x__` | webdataset and energon pass over it |
//! | control characters, absolute paths, components `.` and `..` | tar readers |
//! | no extension | webdataset and energon pass over it, wids and DALI take it apart elsewhere |
//! | blanks, other characters than ASCII | the index of DALI, and the program that it comes with |
//! | more than 100 bytes | wids, which knows no longer names |
//!
//! Only tar has names: in Parquet and TFRecord they are values like any other. Where every name has an extension, the
//! three rules by which readers take names apart (webdataset's, DALI's, wids') agree, dots in folders included.

use crate::{
    format::{OutputFormat, index::IndexKind},
    id::IdHash,
    record::key::{escape_extension, escape_plain},
};

/// What to do with a name that a reader cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnName {
    /// Stop, and say which names.
    Fail,
    /// Escape or shorten it; different names stay different.
    Rename,
    /// Reject the record.
    Skip,
}

/// What to do with a sample that lacks a part which others have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMissing {
    /// Stop, and name it.
    Fail,
    /// Reject it.
    Skip,
    /// Take it as it is, and count it.
    #[default]
    Keep,
}

/// Longest name that wids reads.
const WIDS_BYTES: usize = 100;

/// A member that is to be.
#[derive(Debug, Clone, Copy)]
pub struct Name<'a> {
    /// Up to the first dot of the last component.
    pub key: &'a str,
    /// What follows the dot; empty where there is none.
    pub extension: &'a str,
}

/// One thing that a reader minds.
#[derive(Debug)]
pub struct Rule {
    /// What is wrong with the name.
    pub fault: &'static str,
    /// Who minds.
    pub reader: &'static str,
    /// The index that it matters to; all tars when there is none.
    pub index: Option<IndexKind>,
    /// Whether the format has an answer that leaves the key alone, so that only those who ask are told.
    pub harmless: bool,
    breaks: fn(Name<'_>) -> bool,
}

/// Every rule, those of the format first.
pub const RULES: [Rule; 7] = [
    Rule { fault: "nothing before the dot", reader: "webdataset", index: None, harmless: false, breaks: has_no_stem },
    Rule { fault: "`__x__` means metadata", reader: "webdataset", index: None, harmless: false, breaks: is_metadata },
    Rule { fault: "no plain path", reader: "tar", index: None, harmless: false, breaks: is_odd_path },
    Rule { fault: "no extension", reader: "webdataset", index: None, harmless: true, breaks: has_no_extension },
    Rule { fault: "blanks", reader: "dali", index: Some(IndexKind::Dali), harmless: false, breaks: has_blanks },
    Rule { fault: "not ASCII", reader: "dali", index: Some(IndexKind::Dali), harmless: false, breaks: is_not_ascii },
    Rule { fault: "over 100 bytes", reader: "wids", index: Some(IndexKind::Wids), harmless: false, breaks: is_long },
];

fn base(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

fn has_no_stem(name: Name<'_>) -> bool {
    base(name.key).is_empty()
}

fn is_metadata(name: Name<'_>) -> bool {
    // The pattern `__[^/]*__($|/)`, from the start of the name.
    let whole = if name.key.contains('/') { name.key.to_owned() } else { format!("{}.{}", name.key, name.extension) };
    let marked = |part: &str| part.len() >= 4 && part.starts_with("__") && part.ends_with("__");
    marked(whole.split('/').next().unwrap_or_default()) || marked(name.key)
}

fn is_odd_path(name: Name<'_>) -> bool {
    let folders = name.key.strip_suffix(base(name.key)).and_then(|folders| folders.strip_suffix('/'));
    let odd = |part: &str| part.is_empty() || part == "." || part == "..";
    folders.is_some_and(|folders| folders.split('/').any(odd))
        || name.key.chars().chain(name.extension.chars()).any(char::is_control)
}

fn has_no_extension(name: Name<'_>) -> bool {
    name.extension.is_empty()
}

fn has_blanks(name: Name<'_>) -> bool {
    name.key.chars().chain(name.extension.chars()).any(char::is_whitespace)
}

fn is_not_ascii(name: Name<'_>) -> bool {
    !name.key.is_ascii() || !name.extension.is_ascii()
}

fn is_long(name: Name<'_>) -> bool {
    name.key.len() + 1 + name.extension.len() > WIDS_BYTES
}

/// The rules that matter for some shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRules {
    format: OutputFormat,
    indexes: Vec<IndexKind>,
    /// Whether harmless faults count.
    strict: bool,
}

impl NameRules {
    /// Rules for shards of a format with these indexes. `strict`: faults count that the format has an answer to.
    pub fn new(format: OutputFormat, indexes: &[IndexKind], strict: bool) -> Self {
        Self { format, indexes: indexes.to_vec(), strict }
    }

    /// The first rule that the name breaks.
    pub fn broken(&self, name: Name<'_>) -> Option<&'static Rule> {
        if self.format != OutputFormat::Tar {
            return None;
        }
        RULES.iter().find(|rule| {
            rule.index.is_none_or(|kind| self.indexes.contains(&kind))
                && (self.strict || !rule.harmless)
                && (rule.breaks)(name)
        })
    }

    /// What names have to become so that they break no rule.
    pub fn renaming(&self) -> Renaming {
        let minds = |kind| self.format == OutputFormat::Tar && self.indexes.contains(&kind);
        Renaming { plain: minds(IndexKind::Dali), longest: minds(IndexKind::Wids).then_some(WIDS_BYTES) }
    }
}

/// How names are changed, besides the escapes that every tar needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Renaming {
    /// Blanks and characters that are not ASCII are escaped.
    plain: bool,
    /// Longer names are cut, and told apart by a hash.
    longest: Option<usize>,
}

impl Renaming {
    /// Whether anything changes.
    pub fn is_active(self) -> bool {
        self.plain || self.longest.is_some()
    }

    /// The key instead of one that is escaped already; `extension` is the longest one that will follow.
    pub fn key(self, key: String, extension: usize) -> String {
        let key = if self.plain { escape_plain(&key) } else { key };
        match self.longest {
            Some(longest) if key.len() + 1 + extension > longest => {
                shorten(&key, longest.saturating_sub(extension + 1))
            }
            _ => key,
        }
    }

    /// The extension instead.
    pub fn extension(self, extension: &str) -> String {
        if self.plain { escape_extension(extension) } else { extension.to_owned() }
    }
}

/// The begin of a key and a hash of all of it.
fn shorten(key: &str, longest: usize) -> String {
    let hash = format!("-{:016x}", IdHash::of(key).0);
    let mut end = longest.saturating_sub(hash.len()).min(key.len());
    while !key.is_char_boundary(end) {
        end -= 1;
    }
    let (folders, last) = key[..end].rsplit_once('/').map_or(("", &key[..end]), |(folders, last)| (folders, last));
    let slash = if folders.is_empty() { "" } else { "/" };
    // What was a folder may have dots, which end a key.
    format!("{folders}{slash}{}{hash}", last.replace('.', "_"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::key::escape_key;

    fn fault(key: &str, extension: &str, indexes: &[IndexKind]) -> Option<&'static str> {
        NameRules::new(OutputFormat::Tar, indexes, true).broken(Name { key, extension }).map(|rule| rule.fault)
    }

    #[test]
    fn each_reader_minds_what_it_cannot_take() {
        let all = [IndexKind::Dali, IndexKind::Wids];
        for (key, extension, found) in [
            ("a/b", "jpg", None),
            ("a.b/c", "seg.png", None),
            ("", "hidden", Some("nothing before the dot")),
            ("d/", "x", Some("nothing before the dot")),
            ("__init__", "py", Some("`__x__` means metadata")),
            ("__meta__/x", "json", Some("`__x__` means metadata")),
            ("__a", "b__", Some("`__x__` means metadata")),
            ("d/__x__", "json", None),
            ("/abs", "x", Some("no plain path")),
            ("../a", "x", Some("no plain path")),
            ("a//b", "x", Some("no plain path")),
            ("a\nb", "x", Some("no plain path")),
            ("README", "", Some("no extension")),
            ("my photo", "jpg", Some("blanks")),
            ("photo", "v 1.jpg", Some("blanks")),
            ("é", "jpg", Some("not ASCII")),
            (&"n".repeat(97), "jpg", Some("over 100 bytes")),
            (&"n".repeat(96), "jpg", None),
        ] {
            assert_eq!(fault(key, extension, &all), found, "{key}.{extension}");
        }
        assert_eq!(fault("my photo", "jpg", &[IndexKind::Energon]), None);
        assert_eq!(fault(&"n".repeat(200), "jpg", &[IndexKind::Dali]), None);
        let rules = NameRules::new(OutputFormat::Tar, &[], false);
        assert!(rules.broken(Name { key: "README", extension: "" }).is_none());
        let rules = NameRules::new(OutputFormat::TfRecord, &all, true);
        assert!(rules.broken(Name { key: "my photo", extension: "" }).is_none());
    }

    #[test]
    fn renamed_names_say_what_they_were() {
        let renaming = NameRules::new(OutputFormat::Tar, &[IndexKind::Dali, IndexKind::Wids], true).renaming();
        assert_eq!(renaming.key(escape_key("my é.1"), 3), "my%20%C3%A9%2E1");
        assert_eq!(renaming.extension("v 1.jpg"), "v%201.jpg");
        assert_eq!(renaming.extension("%20"), "%2520");
        let long = format!("a.b/{}/{}", "c.".repeat(30), "n".repeat(80));
        let short = renaming.key(escape_key(&long), 3);
        assert_eq!(short.len(), 96);
        assert_eq!(fault(&short, "jpg", &[IndexKind::Wids]), None, "{short}");
    }

    proptest! {
        #[test]
        fn renamed_names_are_taken_and_stay_apart(
            keys in prop::collection::btree_set("[a /%2.é_]{1,3}|[a./]{90,130}", 2..6), extension in "[a é%2]{1,4}",
        ) {
            let rules = NameRules::new(OutputFormat::Tar, &[IndexKind::Dali, IndexKind::Wids], true);
            let renaming = rules.renaming();
            let extension = renaming.extension(&extension);
            let renamed: std::collections::BTreeSet<String> =
                keys.iter().map(|key| renaming.key(escape_key(key), extension.len())).collect();
            prop_assert_eq!(renamed.len(), keys.len());
            for key in &renamed {
                let broken = rules.broken(Name { key, extension: &extension });
                prop_assert!(broken.is_none(), "{} {:?}", key, broken);
                prop_assert!(!base(key).contains('.') && !base(key).is_empty(), "{}", key);
            }
        }
    }
}
