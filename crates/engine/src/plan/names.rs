//! Names that readers cannot accept: which reader rejects what, and how a name is changed for it.
//!
//! | name | affected readers |
//! |---|---|
//! | nothing before the first dot of the last component | webdataset, DALI, energon, wids |
//! | first component `__x__` | webdataset and energon ignore it |
//! | control characters, absolute paths, components `.` and `..` | tar readers |
//! | no extension | webdataset and energon ignore it, wids and DALI split it differently |
//!
//! Names that only an index cannot store are rules of that index, in `indexes/`.
//!
//! Only tar has names: in Parquet and TFRecord they are ordinary values. If every name has an extension, the three
//! rules by which readers split names (webdataset's, DALI's, wids') agree, also for dots in folder names.

use crate::{
    format::{OutputFormat, index::IndexKind},
    indexes::{
        self,
        names::{MemberName, Renaming, Rule},
    },
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

/// Rules of all tars; those of an index are its own.
const RULES: [Rule; 4] = [
    Rule { fault: "nothing before the dot", reader: "webdataset", index: None, harmless: false, breaks: has_no_stem },
    Rule { fault: "`__x__` means metadata", reader: "webdataset", index: None, harmless: false, breaks: is_metadata },
    Rule { fault: "not a plain path", reader: "tar", index: None, harmless: false, breaks: is_odd_path },
    Rule { fault: "no extension", reader: "webdataset", index: None, harmless: true, breaks: has_no_extension },
];

fn base_name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

fn has_no_stem(name: MemberName<'_>) -> bool {
    base_name(name.key).is_empty()
}

fn is_metadata(name: MemberName<'_>) -> bool {
    // The pattern `__[^/]*__($|/)`, from the start of the name.
    if !name.key.starts_with("__") {
        return false;
    }
    let whole = if name.key.contains('/') { name.key.to_owned() } else { format!("{}.{}", name.key, name.extension) };
    let marked = |part: &str| part.len() >= 4 && part.starts_with("__") && part.ends_with("__");
    marked(whole.split('/').next().unwrap_or_default()) || marked(name.key)
}

fn is_odd_path(name: MemberName<'_>) -> bool {
    let folders = name.key.strip_suffix(base_name(name.key)).and_then(|folders| folders.strip_suffix('/'));
    let odd = |part: &str| part.is_empty() || part == "." || part == "..";
    folders.is_some_and(|folders| folders.split('/').any(odd))
        || name.key.chars().chain(name.extension.chars()).any(char::is_control)
}

fn has_no_extension(name: MemberName<'_>) -> bool {
    name.extension.is_empty()
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
    pub fn broken_rule(&self, name: MemberName<'_>) -> Option<&'static Rule> {
        if !self.format.has_keys() {
            return None;
        }
        let of_indexes = self.indexes.iter().flat_map(|kind| indexes::index_for(*kind).about().rules);
        RULES.iter().chain(of_indexes).find(|rule| (self.strict || !rule.harmless) && (rule.breaks)(name))
    }

    /// Returns how names must be changed so that they break no rule.
    pub fn required_renaming(&self) -> Renaming {
        if !self.format.has_keys() {
            return Renaming::NONE;
        }
        self.indexes
            .iter()
            .map(|kind| indexes::index_for(*kind).about().renaming)
            .fold(Renaming::NONE, Renaming::combined_with)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::key::escape_key;

    fn fault(key: &str, extension: &str, indexes: &[IndexKind]) -> Option<&'static str> {
        NameRules::new(OutputFormat::Tar, indexes, true)
            .broken_rule(MemberName { key, extension })
            .map(|rule| rule.fault)
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
        assert!(rules.broken_rule(MemberName { key: "README", extension: "" }).is_none());
        let rules = NameRules::new(OutputFormat::TfRecord, &all, true);
        assert!(rules.broken_rule(MemberName { key: "my photo", extension: "" }).is_none());
    }

    #[test]
    fn renamed_names_are_readable() {
        let renaming = NameRules::new(OutputFormat::Tar, &[IndexKind::Dali, IndexKind::Wids], true).required_renaming();
        assert_eq!(renaming.rename_key(escape_key("my é.1"), 3), "my%20%C3%A9%2E1");
        assert_eq!(renaming.rename_extension("v 1.jpg"), "v%201.jpg");
        assert_eq!(renaming.rename_extension("%20"), "%2520");
        let long = format!("a.b/{}/{}", "c.".repeat(30), "n".repeat(80));
        let short = renaming.rename_key(escape_key(&long), 3);
        assert_eq!(short.len(), 96);
        assert_eq!(fault(&short, "jpg", &[IndexKind::Wids]), None, "{short}");
    }

    proptest! {
        #[test]
        fn renamed_names_are_accepted_and_stay_different(
            keys in prop::collection::btree_set("[a /%2.é_]{1,3}|[a./]{90,130}", 2..6), extension in "[a é%2]{1,4}",
        ) {
            let rules = NameRules::new(OutputFormat::Tar, &[IndexKind::Dali, IndexKind::Wids], true);
            let renaming = rules.required_renaming();
            let extension = renaming.rename_extension(&extension);
            let renamed: std::collections::BTreeSet<String> =
                keys.iter().map(|key| renaming.rename_key(escape_key(key), extension.len())).collect();
            prop_assert_eq!(renamed.len(), keys.len());
            for key in &renamed {
                let broken = rules.broken_rule(MemberName { key, extension: &extension });
                prop_assert!(broken.is_none(), "{} {:?}", key, broken);
                prop_assert!(!base_name(key).contains('.') && !base_name(key).is_empty(), "{}", key);
            }
        }
    }
}
