//! The key of a file's sample, and the name of its part.
//!
//! ```text
//!                  scans/1.2.840.7.dcm           P1_mask.png          P1/scan.nii
//! first-dot        scans/1   2.840.7.dcm         P1_mask   png        P1/scan   nii
//! last-dot         scans/1.2.840.7   dcm         P1_mask   png        P1/scan   nii
//! ([^/_]+)_                                      P1   mask.png
//! ^([^/]+)/                                                           P1   scan.nii
//!
//!                                  images/a/7.jpg     labels/a/7.txt     images/a/7.png    masks/a/7.png
//! (?:images|labels)/(.*)           a/7   jpg          a/7   txt
//! (?<part>images|masks)/(.*)                                             a/7   images.png  a/7   masks.png
//! ```
//!
//! What a pattern matches outside of its groups is omitted from the key, so that files in folders side by side have
//! one. A key follows from a path and the rule alone. A dataset has one rule: the log states names of files alone, and
//! commands that remove or erase a sample derive its files from them.

use std::{borrow::Cow, fmt, str::FromStr};

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::key::{extension_of, key_length};
use crate::error::{Error, Result};

/// Maximum bytes of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// What may stand between the key and the name of the part.
const SEPARATORS: [char; 4] = ['.', '_', '-', '/'];

/// Name of the group that names the part.
const PART: &str = "part";

/// The key and the name of the part that a path has by a rule.
#[derive(Debug, PartialEq, Eq)]
pub enum Cut {
    /// The key is the beginning of the path, of this length, and the rest names the part.
    At(usize),
    /// Both are made of pieces of the path.
    Joined {
        /// The key.
        key: String,
        /// The name of the part as in the path, without a separator before it.
        part: String,
    },
}

/// Where the key of a file's sample ends.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeyRule {
    /// Before the first dot of the last component, as WebDataset has it.
    #[default]
    FirstDot,
    /// Before the last dot of the last component.
    LastDot,
    /// The path before the match of a pattern, and its groups; without groups, the path up to the end of the match.
    Pattern(Regex),
}

impl KeyRule {
    /// Checks that a path has a key.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if a pattern does not match the path, or its key is no key.
    pub fn check_key(&self, path: &str) -> Result<()> {
        let Self::Pattern(pattern) = self else { return Ok(()) };
        let wrong = |expected: &str| {
            Error::input(format!("expected {expected} by --key '{pattern}', found `{path}`"))
                .with_hint("change the pattern: its groups make the key, and what follows them names the part")
                .with_hint("or leave such files out with --exclude")
        };
        let (key, part, whole) = match self.cut_path(path).ok_or_else(|| wrong("a path with a key"))? {
            Cut::At(end) => (path[..end].to_owned(), part_of(&path[end..]).to_owned(), end == path.len()),
            Cut::Joined { key, part } => (key, part, true),
        };
        if key.is_empty() || key.ends_with('/') || part.contains('/') || (part.is_empty() && !whole) {
            return Err(wrong("a key, and the name of a part without a folder,"));
        }
        Ok(())
    }

    /// Returns the key of a path: that of one without a key is the whole path.
    pub fn path_key<'a>(&self, path: &'a str) -> Cow<'a, str> {
        match self.cut_path(path) {
            Some(Cut::At(end)) => Cow::Borrowed(&path[..end]),
            Some(Cut::Joined { key, .. }) => Cow::Owned(key),
            None => Cow::Borrowed(path),
        }
    }

    /// Returns the extension of a path: the name of its part in lower case.
    pub fn path_extension(&self, path: &str) -> String {
        match self.cut_path(path) {
            Some(Cut::At(end)) => extension_of(part_of(&path[end..])),
            Some(Cut::Joined { part, .. }) => extension_of(&part),
            None => extension_of(""),
        }
    }

    /// Returns the key and the part of a path; `None` if a pattern does not match it.
    pub fn cut_path(&self, path: &str) -> Option<Cut> {
        match self {
            Self::FirstDot => Some(Cut::At(key_length(path.as_bytes()))),
            Self::LastDot => {
                let last = path.rfind('/').map_or(0, |slash| slash + 1);
                Some(Cut::At(path[last..].rfind('.').map_or(path.len(), |dot| last + dot)))
            }
            Self::Pattern(pattern) => by_pattern(pattern, path),
        }
    }

    /// Whether it is the usual rule.
    pub fn is_first_dot(&self) -> bool {
        matches!(self, Self::FirstDot)
    }
}

/// Returns the key and the part of a path by a pattern; `None` if it does not match.
fn by_pattern(pattern: &Regex, path: &str) -> Option<Cut> {
    let found = pattern.captures(path)?;
    let whole = found.get(0)?;
    let part = found.name(PART);
    let is_part = |at: usize| part.is_some_and(|part| found.get(at).is_some_and(|group| group.range() == part.range()));
    let mut groups: Vec<_> =
        (1..found.len()).filter(|at| !is_part(*at)).filter_map(|at| found.get(at)).map(|group| group.range()).collect();
    if groups.is_empty() {
        groups.push(whole.range());
    }
    let mut key = path[..whole.start()].to_owned();
    let (mut end, mut last) = (whole.start(), whole.start());
    for group in groups {
        // A group within another one is in the key already.
        if group.start >= end {
            key.push_str(&path[group.clone()]);
            (end, last) = (group.end, group.start);
        }
    }
    if end == path.len() {
        // The end of the name states what the part is.
        end = key_length(path.as_bytes()).max(last);
        key.truncate(key.len() - (path.len() - end));
    }
    let rest = part_of(&path[end..]);
    Some(match part.map(|part| part.as_str()) {
        None if path.starts_with(&key) && key.len() == end => Cut::At(end),
        None => Cut::Joined { key, part: rest.to_owned() },
        Some(part) if rest.is_empty() => Cut::Joined { key, part: part.to_owned() },
        Some(part) => Cut::Joined { key, part: format!("{part}.{rest}") },
    })
}

/// Returns the name of a part, given the rest of a path after the key.
pub fn part_of(rest: &str) -> &str {
    rest.strip_prefix(SEPARATORS).unwrap_or(rest)
}

impl PartialEq for KeyRule {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::FirstDot, Self::FirstDot) | (Self::LastDot, Self::LastDot) => true,
            (Self::Pattern(one), Self::Pattern(other)) => one.as_str() == other.as_str(),
            _ => false,
        }
    }
}

impl Eq for KeyRule {}

impl fmt::Display for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstDot => "first-dot",
            Self::LastDot => "last-dot",
            Self::Pattern(pattern) => pattern.as_str(),
        })
    }
}

impl FromStr for KeyRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "first-dot" => return Ok(Self::FirstDot),
            // Of a path in Python, this is the stem.
            "last-dot" | "stem" => return Ok(Self::LastDot),
            _ => {}
        }
        let pattern = RegexBuilder::new(text).size_limit(MAX_PATTERN_BYTES).build();
        pattern.map(Self::Pattern).map_err(|error| {
            Error::usage("expected first-dot, last-dot or a regular expression for --key, found neither")
                .with_cause(error)
        })
    }
}

impl TryFrom<String> for KeyRule {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<KeyRule> for String {
    fn from(rule: KeyRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_ends_where_the_rule_says() {
        let cut = |rule: &str, path: &str| {
            let rule: KeyRule = rule.parse().unwrap();
            rule.check_key(path).ok()?;
            Some((rule.path_key(path).into_owned(), rule.path_extension(path)))
        };
        let is = |key: &str, extension: &str| Some((key.to_owned(), extension.to_owned()));
        assert_eq!(cut("first-dot", "scans/1.2.840.7.DCM"), is("scans/1", "2.840.7.dcm"));
        assert_eq!(cut("last-dot", "scans/1.2.840.7.DCM"), is("scans/1.2.840.7", "dcm"));
        assert_eq!(cut("stem", "a.b/README"), is("a.b/README", "bin"));
        assert_eq!(cut("([^/_]+)_", "x/P1_mask.png"), is("x/P1", "mask.png"));
        assert_eq!(cut("^([^/]+)/", "P1/scan.nii"), is("P1", "scan.nii"));
        assert_eq!(cut("^[^/]+", "P1/scan.nii"), is("P1", "scan.nii"));
        for (rule, path) in
            [("^([^/]+)/", "scan.nii"), ("^([^/]+)/", "P1/a/scan.nii"), ("^()", "a.png"), ("^(a)_", "a_")]
        {
            assert_eq!(cut(rule, path), None, "{rule} {path}");
        }
        assert!("(".parse::<KeyRule>().is_err());
        assert!("(a{1000}){1000}".parse::<KeyRule>().is_err());
    }

    #[test]
    fn files_in_folders_side_by_side_have_one_key() {
        let cut = |rule: &str, path: &str| {
            let rule: KeyRule = rule.parse().unwrap();
            rule.check_key(path).unwrap();
            (rule.path_key(path).into_owned(), rule.path_extension(path))
        };
        let is = |key: &str, extension: &str| (key.to_owned(), extension.to_owned());
        let yolo = "(?:images|labels)/(.*)";
        assert_eq!(cut(yolo, "images/train/7.jpg"), is("train/7", "jpg"));
        assert_eq!(cut(yolo, "labels/train/7.txt"), is("train/7", "txt"));
        assert_eq!(cut(yolo, "v2/labels/train/7.txt"), is("v2/train/7", "txt"));
        assert_eq!(cut("(?:images|labels)/train/([^/.]+)", "images/train/7.JPG"), is("7", "jpg"));
        let seg = "(?<part>images|masks)/(.*)";
        assert_eq!(cut(seg, "images/7.png"), is("7", "images.png"));
        assert_eq!(cut(seg, "masks/7.png"), is("7", "masks.png"));
        assert_eq!(cut("^([^/]+/)[^/]+/(.*)", "a/images/7.b.png"), is("a/7", "b.png"));
        assert_eq!(
            cut("(?:imagesTr|labelsTr)/(case_[0-9]+)", "imagesTr/case_001_0000.nii.gz"),
            is("case_001", "0000.nii.gz")
        );
        assert_eq!(cut("(?:imagesTr|labelsTr)/(case_[0-9]+)", "labelsTr/case_001.nii.gz"), is("case_001", "nii.gz"));
    }

    proptest! {
        #[test]
        fn the_usual_rule_is_that_of_tar(path in "[ab./_-]{1,12}") {
            prop_assert_eq!(KeyRule::FirstDot.cut_path(&path), Some(Cut::At(key_length(path.as_bytes()))));
            let (key, extension) = super::super::key::split_key(&path);
            let found = (KeyRule::FirstDot.path_key(&path), KeyRule::FirstDot.path_extension(&path));
            prop_assert_eq!((found.0.as_ref(), found.1), (key, extension));
        }

        #[test]
        fn patterns_never_panic(pattern in "[ab/(|)?.*]{1,8}", path in "[ab./é]{0,8}") {
            if let Ok(rule) = pattern.parse::<KeyRule>() {
                let _ = (rule.check_key(&path), rule.path_key(&path), rule.path_extension(&path));
            }
        }
    }
}
