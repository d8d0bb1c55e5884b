//! Subject ids that are not in a column: from the path of a source, or from a table.
//!
//! A pattern is matched against the path relative to the input that the user named, component by component:
//!
//! ```text
//! scans/{subject}/*        scans/PAT-1/ct.dcm             PAT-1
//! {subject}/**             PAT-1/2026/ct.dcm              PAT-1
//! sub-{subject}_*.nii.gz   sub-01_T1w.nii.gz              01
//! ```
//!
//! `bids` stands for the rule of datasets in BIDS, in which folder and file state the participant, and have to agree:
//!
//! ```text
//! bids                     sub-01/anat/sub-01_T1w.nii.gz  sub-01, as `participant_id` of participants.tsv
//!                          sub-01/anat/sub-02_T1w.nii.gz  none
//! ```
//!
//! A path that does not match has no subject. If a path can match in several ways, the result is unambiguous:
//! `{subject}` and the text before it match as little as possible.

use std::collections::{HashMap, hash_map::Entry};

use regex::Regex;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::key::key_and_extension;
use crate::error::{Error, Result};

/// Placeholder of the subject in a pattern.
const SUBJECT: &str = "{subject}";

/// The pattern that stands for the rule of BIDS.
const BIDS: &str = "bids";

/// What a folder and a file of a participant begin with in BIDS.
const PARTICIPANT: &str = "sub-";

/// A path pattern that contains `{subject}`, or a rule with a name.
#[derive(Debug, Clone)]
pub struct SubjectPattern {
    text: String,
    rule: SubjectRule,
}

/// How a path is matched.
#[derive(Debug, Clone)]
enum SubjectRule {
    Pattern {
        regex: Regex,
        /// Whether the pattern begins with a folder name without wildcards; that folder may be above the input that
        /// the user named.
        begins_plain: bool,
    },
    Bids,
}

impl PartialEq for SubjectPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SubjectPattern {}

impl SubjectPattern {
    /// Parses a pattern: `*` and `?` match characters within a component, `**` any number of components, and
    /// `{subject}`, which must occur exactly once, the subject. `bids` is the rule of BIDS.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when the pattern is malformed.
    pub fn parse(text: &str) -> Result<Self> {
        if text == BIDS {
            return Ok(Self { text: text.to_owned(), rule: SubjectRule::Bids });
        }
        let malformed = |found: &str| {
            Error::usage(format!("expected a pattern such as scans/{{subject}}/*, found {found}"))
                .with_hint("`{subject}` matches the subject, `*` a part of a name, `**` folders")
                .with_hint("`bids` takes it from folders and names such as sub-01")
        };
        match text.matches(SUBJECT).count() {
            1 => {}
            0 => return Err(malformed(&format!("`{text}`, which does not contain {SUBJECT}"))),
            _ => return Err(malformed(&format!("`{text}`, which contains {SUBJECT} more than once"))),
        }
        let trimmed = text.strip_prefix("./").unwrap_or(text);
        let components: Vec<&str> = trimmed.split('/').collect();
        if components.iter().any(|component| component.is_empty()) {
            return Err(malformed(&format!("`{text}`, which has an empty component")));
        }
        let mut regex = String::from("(?s)^");
        for (i, component) in components.iter().enumerate() {
            let is_last = i + 1 == components.len();
            match (*component, is_last) {
                ("**", false) => regex.push_str("(?:[^/]+/)*?"),
                ("**", true) => regex.push_str(".+"),
                (component, _) => {
                    push_component(&mut regex, component);
                    regex.push_str(if is_last { "" } else { "/" });
                }
            }
        }
        regex.push('$');
        let regex = Regex::new(&regex).map_err(|e| malformed(&format!("`{text}`")).with_cause(e))?;
        let begins_plain = components.len() > 1 && !components[0].contains(['*', '?', '{', '}']);
        Ok(Self { text: text.to_owned(), rule: SubjectRule::Pattern { regex, begins_plain } })
    }

    /// Returns the subject of a path if it matches. The source's name is the last `name` bytes of the path; folders
    /// before it are considered only if the pattern begins with the name of one.
    pub fn match_subject<'p>(&self, path: &'p str, name: usize) -> Option<&'p str> {
        let SubjectRule::Pattern { regex, begins_plain } = &self.rule else {
            return path.get(path.len().saturating_sub(name)..).and_then(participant_of);
        };
        candidate_starts(path, name).take(if *begins_plain { usize::MAX } else { 1 }).find_map(|start| {
            let found = regex.captures(&path[start..])?.get(1)?;
            Some(&path[start + found.start()..start + found.end()])
        })
    }
}

/// Returns the participant that a path in BIDS states: the nearest folder `sub-LABEL`, and the name `sub-LABEL_...`;
/// `None` if they disagree.
fn participant_of(path: &str) -> Option<&str> {
    let label_end = |text: &str| {
        let label = text.strip_prefix(PARTICIPANT)?;
        let length = label.bytes().take_while(u8::is_ascii_alphanumeric).count();
        (length > 0).then_some(PARTICIPANT.len() + length)
    };
    let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = folders.rsplit('/').find(|folder| label_end(folder) == Some(folder.len()));
    // Files without a name of their own, as in the folders of some recordings, belong to the folder.
    if !file.starts_with(PARTICIPANT) {
        return folder;
    }
    let (name, rest) = file.split_at_checked(label_end(file)?)?;
    let ends_label = rest.is_empty() || rest.starts_with(['_', '.']);
    (ends_label && folder.is_none_or(|folder| folder == name)).then_some(name)
}

/// Returns the positions at which a path may begin: at its last `name` bytes, then at each folder further left.
fn candidate_starts(path: &str, name: usize) -> impl Iterator<Item = usize> {
    let begin = path.len().saturating_sub(name);
    let further = path.as_bytes()[..begin].iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let folders = path[..further].bytes().enumerate().rev().filter(|(_, byte)| *byte == b'/').map(|(at, _)| at + 1);
    std::iter::once(begin).chain(folders.collect::<Vec<_>>())
}

fn push_component(regex: &mut String, component: &str) {
    let mut rest = component;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix(SUBJECT) {
            regex.push_str("([^/]+?)");
            rest = after;
            continue;
        }
        match c {
            '*' => regex.push_str("[^/]*?"),
            '?' => regex.push_str("[^/]"),
            _ => regex.push_str(&regex::escape(&rest[..c.len_utf8()])),
        }
        rest = &rest[c.len_utf8()..];
    }
}

/// Subjects by path or key, from a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubjectTable {
    subjects: HashMap<String, String>,
}

impl SubjectTable {
    /// Adds a row.
    ///
    /// # Errors
    /// When the table has a different subject for the same path.
    pub fn insert(&mut self, path: &str, subject: &str) -> Result<()> {
        let path = path.strip_prefix("./").unwrap_or(path).trim_start_matches('/');
        match self.subjects.entry(path.to_owned()) {
            Entry::Vacant(vacant) => {
                vacant.insert(subject.to_owned());
                Ok(())
            }
            Entry::Occupied(known) if known.get() == subject => Ok(()),
            Entry::Occupied(known) => {
                Err(Error::input(format!("expected one subject of `{path}`, found `{}` and `{subject}`", known.get())))
            }
        }
    }

    /// Returns the number of paths.
    pub fn len(&self) -> usize {
        self.subjects.len()
    }

    /// Whether there are no paths.
    pub fn is_empty(&self) -> bool {
        self.subjects.is_empty()
    }

    /// Returns the subject of the longest table path that the given path ends with, with or without an extension. The
    /// source's name is the last `name` bytes of the path.
    fn find_subject<'a>(&'a self, path: &'a str, name: usize) -> Option<SubjectMatch<'a>> {
        let begin = path.len().saturating_sub(name);
        let slashes = path.bytes().enumerate().filter(|(_, byte)| *byte == b'/').map(|(at, _)| at + 1);
        std::iter::once(0).chain(slashes).find_map(|start| {
            let rest = &path[start..];
            let last = rest.rfind('/').map_or(0, |slash| slash + 1);
            let stem = rest[last..].rfind('.').map_or(rest, |dot| &rest[..last + dot]);
            let row =
                [rest, stem, key_and_extension(rest).0].into_iter().find_map(|text| self.subjects.get_key_value(text));
            row.map(|(row, subject)| SubjectMatch { subject, partial_key: (start > begin).then_some(row) })
        })
    }
}

/// Subject id of a path, and how it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubjectMatch<'a> {
    /// The subject.
    pub subject: &'a str,
    /// Key of the table row if it is shorter than the source's name; it may match other sources as well.
    pub partial_key: Option<&'a str>,
}

/// Source of subject ids that are not in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subjects {
    /// The path of the source.
    Path(SubjectPattern),
    /// A table.
    Table(SubjectTable),
}

impl Subjects {
    /// Returns what to do about a path without a subject.
    pub fn missing_hint(&self) -> &'static str {
        match self {
            Self::Path(SubjectPattern { rule: SubjectRule::Bids, .. }) => {
                "folder and name have to state the same participant, such as sub-01: rename the file, or skip it with \
                 --exclude"
            }
            _ => "correct the pattern or the table, or skip the file with --exclude",
        }
    }

    /// Returns the subject of a path whose last `name` bytes are the source's name.
    pub fn find_subject<'a>(&'a self, path: &'a str, name: usize) -> Option<SubjectMatch<'a>> {
        match self {
            Self::Path(pattern) => {
                pattern.match_subject(path, name).map(|subject| SubjectMatch { subject, partial_key: None })
            }
            Self::Table(table) => table.find_subject(path, name),
        }
    }
}

/// The source of subject ids as the log stores it: the pattern, or the fact that it was a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectsFrom {
    /// A pattern of paths.
    Path(SubjectPattern),
    /// A table, which has to be provided again.
    Table,
}

impl Serialize for SubjectPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for SubjectPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(|e| serde::de::Error::custom(e.message()))
    }
}

impl std::fmt::Display for SubjectPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn subject(pattern: &str, folder: &str, name: &str) -> Option<String> {
        let path = format!("{folder}{name}");
        SubjectPattern::parse(pattern).unwrap().match_subject(&path, name.len()).map(str::to_owned)
    }

    #[test]
    fn patterns_match_the_named_component() {
        for (pattern, name, expected) in [
            ("scans/{subject}/*", "scans/PAT-1/a.dcm", Some("PAT-1")),
            ("scans/{subject}/*", "scans/PAT-1/x/a.dcm", None),
            ("scans/{subject}/**", "scans/PAT-1/x/a.dcm", Some("PAT-1")),
            ("{subject}/**", "PAT-1/x/a.dcm", Some("PAT-1")),
            ("{subject}/**", "a.dcm", None),
            ("**/{subject}/*.dcm", "a/b/PAT-1/a.dcm", Some("PAT-1")),
            ("**/{subject}/*.dcm", "PAT-1/a.dcm", Some("PAT-1")),
            ("sub-{subject}_*.nii.gz", "sub-01_a_b.nii.gz", Some("01")),
            ("sub-{subject}_*.nii.gz", "sub-01_a_b.nii", None),
            ("{subject}.?ng", "a.b.png", Some("a.b")),
            ("p (1)/{subject}+.x", "p (1)/\u{e4}+.x", Some("\u{e4}")),
            ("./{subject}/*", "a/b", Some("a")),
        ] {
            assert_eq!(subject(pattern, "/data/", name).as_deref(), expected, "{pattern} of {name}");
        }
    }

    #[test]
    fn only_a_pattern_that_begins_with_a_plain_name_matches_folders_above_the_input() {
        assert_eq!(subject("scans/{subject}/*", "/data/scans/", "PAT-1/a.dcm").as_deref(), Some("PAT-1"));
        assert_eq!(subject("s3-x/scans/{subject}/*", "/s3-x/scans/", "PAT-1/a.dcm").as_deref(), Some("PAT-1"));
        assert_eq!(subject("{subject}/**", "/data/scans/", "a.dcm"), None);
        assert_eq!(subject("*/{subject}/*", "/data/scans/", "PAT-1/a.dcm"), None);
        assert_eq!(subject("ans/{subject}/*", "/data/scans/", "PAT-1/a.dcm"), None);
    }

    #[test]
    fn participants_of_bids_agree_in_folder_and_name() {
        for (name, expected) in [
            ("sub-01/anat/sub-01_T1w.nii.gz", Some("sub-01")),
            ("sub-01/ses-2/func/sub-01_ses-2_bold.nii", Some("sub-01")),
            ("derivatives/x/sub-Ab9/anat/sub-Ab9_T1w.nii.gz", Some("sub-Ab9")),
            ("sub-01_T1w.nii.gz", Some("sub-01")),
            ("sub-01.nii", Some("sub-01")),
            ("sub-01/meg/recording.ds/data.meg4", Some("sub-01")),
            ("sub-01/anat/sub-02_T1w.nii.gz", None),
            ("sub-1/anat/sub-01_T1w.nii.gz", None),
            ("sub-01/anat/sub-01x_T1w.nii.gz", None),
            ("sub-0_1/anat/sub-_T1w.nii.gz", None),
            ("sub-01/anat/sub-01-T1w.nii.gz", None),
            ("participants.tsv", None),
            ("sub-/x", None),
        ] {
            assert_eq!(subject("bids", "/sub-study/", name).as_deref(), expected, "{name}");
        }
        let stored = serde_json::to_string(&SubjectPattern::parse("bids").unwrap()).unwrap();
        assert_eq!(stored, "\"bids\"");
        assert_eq!(serde_json::from_str::<SubjectPattern>(&stored).unwrap().to_string(), "bids");
    }

    #[test]
    fn malformed_patterns_are_rejected() {
        for text in ["scans/*", "", "{subject}/{subject}", "/{subject}/*", "a//{subject}", "{subject}/"] {
            assert!(SubjectPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tables_name_paths_stems_keys_and_parts_of_paths() {
        let mut table = SubjectTable::default();
        for (path, subject) in [("./scans/a.ct.png", "1"), ("b.ct", "2"), ("x/c", "3"), ("a.ct.png", "4")] {
            table.insert(path, subject).unwrap();
        }
        table.insert("b.ct", "2").unwrap();
        assert!(table.insert("b.ct", "5").unwrap_err().message().contains("found `2` and `5`"));
        let subjects = Subjects::Table(table);
        let matched = |folder: &str, name: &str| {
            let path = format!("{folder}{name}");
            subjects
                .find_subject(&path, name.len())
                .map(|matched| (matched.subject.to_owned(), matched.partial_key.map(str::to_owned)))
        };
        assert_eq!(matched("/d/", "scans/a.ct.png"), Some(("1".into(), None)));
        assert_eq!(matched("/d/scans/", "a.ct.png"), Some(("1".into(), None)));
        assert_eq!(matched("/d/", "other/a.ct.png"), Some(("4".into(), Some("a.ct.png".into()))));
        assert_eq!(matched("/d/", "b.ct.png"), Some(("2".into(), None)));
        assert_eq!(matched("/d/", "v1.2/x/c"), Some(("3".into(), Some("x/c".into()))));
        assert_eq!(matched("/d/", "x/c.a.b"), Some(("3".into(), None)));
        assert_eq!(matched("/d/", "c.a.b"), None);
    }
}
