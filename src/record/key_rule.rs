//! Where the key of a file's sample ends.
//!
//! ```text
//!                  scans/1.2.840.7.dcm           P1_mask.png          P1/scan.nii
//! first-dot        scans/1   2.840.7.dcm         P1_mask   png        P1/scan   nii
//! last-dot         scans/1.2.840.7   dcm         P1_mask   png        P1/scan   nii
//! ([^/_]+)_                                      P1   mask.png
//! ^([^/]+)/                                                           P1   scan.nii
//! ```
//!
//! A key is always the beginning of a path, so whoever knows a key and the rule knows the files. A dataset has one rule: the log
//! states names of files alone, and commands that remove or erase a sample derive its files from them.

use std::{fmt, str::FromStr};

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::key::{extension_of, key_length};
use crate::error::{Error, Result};

/// Maximum bytes of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// What may stand between the key and the name of the part.
const SEPARATORS: [char; 4] = ['.', '_', '-', '/'];

/// Where the key of a file's sample ends.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeyRule {
    /// Before the first dot of the last component, as WebDataset has it.
    #[default]
    FirstDot,
    /// Before the last dot of the last component.
    LastDot,
    /// At the end of the first group of a pattern, or of its match.
    Pattern(Regex),
}

impl KeyRule {
    /// Returns the length of the key of a path in bytes.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if a pattern does not match the path, or its key is no key.
    pub fn length(&self, path: &str) -> Result<usize> {
        let Self::Pattern(pattern) = self else { return Ok(self.cut_at(path).unwrap_or(path.len())) };
        let wrong = |expected: &str| {
            Error::input(format!("expected {expected} by --key '{pattern}', found `{path}`"))
                .hint("change the pattern: its first group, or its match, ends where the key ends")
                .hint("or leave such files out with --exclude")
        };
        let end = self.cut_at(path).ok_or_else(|| wrong("a path with a key"))?;
        let part = part_of(&path[end..]);
        if end == 0 || part.contains('/') || (part.is_empty() && end < path.len()) {
            return Err(wrong("a key, and the name of a part without a folder,"));
        }
        Ok(end)
    }

    /// Returns the key of a path.
    pub fn key<'a>(&self, path: &'a str) -> &'a str {
        &path[..self.cut_at(path).unwrap_or(path.len())]
    }

    /// Returns the extension of a path: the name of its part in lower case.
    pub fn extension(&self, path: &str) -> String {
        extension_of(part_of(&path[self.key(path).len()..]))
    }

    fn cut_at(&self, path: &str) -> Option<usize> {
        match self {
            Self::FirstDot => Some(key_length(path.as_bytes())),
            Self::LastDot => {
                let last = path.rfind('/').map_or(0, |slash| slash + 1);
                Some(path[last..].rfind('.').map_or(path.len(), |dot| last + dot))
            }
            Self::Pattern(pattern) => {
                let found = pattern.captures(path)?;
                found.get(1).or_else(|| found.get(0)).map(|group| group.end())
            }
        }
    }

    /// Whether it is the usual rule.
    pub fn is_first_dot(&self) -> bool {
        matches!(self, Self::FirstDot)
    }
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
            Error::usage("expected first-dot, last-dot or a regular expression for --key, found neither").cause(error)
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
            let length = rule.length(path).ok()?;
            assert_eq!(rule.key(path), &path[..length]);
            Some((path[..length].to_owned(), rule.extension(path)))
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

    proptest! {
        #[test]
        fn the_usual_rule_is_that_of_tar(path in "[ab./_-]{1,12}") {
            prop_assert_eq!(KeyRule::FirstDot.length(&path).unwrap(), key_length(path.as_bytes()));
            let (key, extension) = super::super::key::split_key(&path);
            prop_assert_eq!((KeyRule::FirstDot.key(&path), KeyRule::FirstDot.extension(&path)), (key, extension));
        }
    }
}
