//! Names that readers cannot accept: which reader rejects what, and how a name is changed for it.
//!
//! | name | affected readers |
//! |---|---|
//! | nothing before the first dot of the last component | webdataset, DALI, energon, wids |
//! | first component `__x__` | webdataset and energon ignore it |
//! | control characters, absolute paths, components `.` and `..` | tar readers |
//! | no extension | webdataset and energon ignore it, wids and DALI split it differently |
//! | blanks, non-ASCII characters | DALI's index, and the program that creates it |
//! | more than 100 bytes | wids, which supports no longer names |
//!
//! Only tar has names: in Parquet and TFRecord they are ordinary values. If every name has an extension, the three
//! rules by which readers split names (webdataset's, DALI's, wids') agree, also for dots in folder names.

use crate::{
    format::{OutputFormat, index::IndexKind},
    id::IdHash,
    record::key::{escape_extension, escape_plain},
};

/// Action for a name that a reader cannot accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnName {
    /// Stop the run and report the names.
    Fail,
    /// Escape or shorten it; different names remain different.
    Rename,
    /// Reject the record.
    Skip,
}

/// Action for a sample that lacks a part which others have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnMissing {
    /// Stop the run and report the sample.
    Fail,
    /// Reject it.
    Skip,
    /// Keep it and count it.
    #[default]
    Keep,
}

/// Maximum bytes of a name that wids reads.
const WIDS_BYTES: usize = 100;

/// Name of a planned tar member.
#[derive(Debug, Clone, Copy)]
pub struct Name<'a> {
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
    breaks: fn(Name<'_>) -> bool,
}

/// All rules, those of the format first.
pub const RULES: [Rule; 7] = [
    Rule { fault: "nothing before the dot", reader: "webdataset", index: None, harmless: false, breaks: has_no_stem },
    Rule { fault: "`__x__` means metadata", reader: "webdataset", index: None, harmless: false, breaks: is_metadata },
    Rule { fault: "not a plain path", reader: "tar", index: None, harmless: false, breaks: is_odd_path },
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
    if !name.key.starts_with("__") {
        return false;
    }
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

/// The rules that apply to shards of a format with certain indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRules {
    format: OutputFormat,
    indexes: Vec<IndexKind>,
    /// Whether harmless faults count, too.
    strict: bool,
}

impl NameRules {
    /// Creates the rules for shards of a format with these indexes. If `strict`, harmless faults count, too.
    pub fn new(format: OutputFormat, indexes: &[IndexKind], strict: bool) -> Self {
        Self { format, indexes: indexes.to_vec(), strict }
    }

    /// Returns the first rule that the name breaks.
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

    /// Returns how names must be changed so that they break no rule.
    pub fn renaming(&self) -> Renaming {
        let needs = |kind| self.format == OutputFormat::Tar && self.indexes.contains(&kind);
        Renaming { plain: needs(IndexKind::Dali), max_bytes: needs(IndexKind::Wids).then_some(WIDS_BYTES) }
    }
}

/// Changes to names, in addition to the escapes that every tar needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Renaming {
    /// Whether blanks and non-ASCII characters are escaped.
    plain: bool,
    /// Maximum bytes of a name; longer names are truncated and made unique by a hash. `None` if unlimited.
    max_bytes: Option<usize>,
}

impl Renaming {
    /// Returns whether any name is changed.
    pub fn is_active(self) -> bool {
        self.plain || self.max_bytes.is_some()
    }

    /// Changes a key that is already escaped; `extension` is the length of the max_bytes extension that will follow.
    pub fn key(self, key: String, extension: usize) -> String {
        let key = if self.plain { escape_plain(&key) } else { key };
        match self.max_bytes {
            Some(max_bytes) if key.len() + 1 + extension > max_bytes => {
                shorten(&key, max_bytes.saturating_sub(extension + 1))
            }
            _ => key,
        }
    }

    /// Changes an extension.
    pub fn extension(self, extension: &str) -> String {
        if self.plain { escape_extension(extension) } else { extension.to_owned() }
    }
}

/// Truncates a key and appends a hash of the whole key.
fn shorten(key: &str, max_bytes: usize) -> String {
    let hash = format!("-{:016x}", IdHash::of(key).0);
    let mut end = max_bytes.saturating_sub(hash.len()).min(key.len());
    while !key.is_char_boundary(end) {
        end -= 1;
    }
    let (folders, last) = key[..end].rsplit_once('/').map_or(("", &key[..end]), |(folders, last)| (folders, last));
    let slash = if folders.is_empty() { "" } else { "/" };
    // The rest of a truncated folder name may contain dots, which end a key.
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
    fn each_reader_rejects_what_it_cannot_accept() {
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
            ("/abs", "x", Some("not a plain path")),
            ("../a", "x", Some("not a plain path")),
            ("a//b", "x", Some("not a plain path")),
            ("a\nb", "x", Some("not a plain path")),
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
    fn renamed_names_are_readable() {
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
        fn renamed_names_are_accepted_and_stay_different(
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
