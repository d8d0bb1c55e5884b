//! What makes a record a duplicate of another one.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Words that are not names of columns unless `column:` precedes them.
const WORDS: [&str; 3] = ["none", "content", "id"];

/// What duplicates have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DedupBy {
    /// All stored columns of rows; the names and contents of all parts of samples.
    Content,
    /// The record id.
    Id,
    /// The values of these columns of rows; the contents of these parts of samples.
    Columns(Vec<String>),
}

impl DedupBy {
    /// Whether it follows from values of a record that are not in its sidecar, so that its fingerprint has to be
    /// stored.
    pub fn needs_fingerprints(&self) -> bool {
        *self != Self::Id
    }

    /// Returns the columns that it names.
    pub fn columns(&self) -> &[String] {
        match self {
            Self::Columns(columns) => columns,
            Self::Content | Self::Id => &[],
        }
    }
}

impl fmt::Display for DedupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content => f.write_str("content"),
            Self::Id => f.write_str("id"),
            Self::Columns(columns) => match columns.as_slice() {
                [one] if WORDS.contains(&one.as_str()) => write!(f, "column:{one}"),
                columns => f.write_str(&columns.join(",")),
            },
        }
    }
}

/// A choice of which records a run omits as duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DedupChoice {
    /// None of them.
    None,
    /// Those that are duplicates by this.
    By(DedupBy),
}

impl FromStr for DedupChoice {
    type Err = String;

    /// Parses `none`, `content`, `id` or names of columns; `column:id` is the column of that name.
    fn from_str(text: &str) -> Result<Self, String> {
        let columns = match text {
            "none" => return Ok(Self::None),
            "content" => return Ok(Self::By(DedupBy::Content)),
            "id" => return Ok(Self::By(DedupBy::Id)),
            columns => columns.split(',').map(|name| name.strip_prefix("column:").unwrap_or(name).trim().to_owned()),
        };
        let mut names: Vec<String> = Vec::new();
        for name in columns {
            if name.is_empty() {
                return Err("expected content, id, none, or names of columns".to_owned());
            }
            if names.contains(&name) {
                return Err(format!("expected each column once, found `{name}` twice"));
            }
            names.push(name);
        }
        Ok(Self::By(DedupBy::Columns(names)))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_printed() {
        let columns = |names: &[&str]| DedupBy::Columns(names.iter().map(|name| (*name).to_owned()).collect());
        for by in [DedupBy::Content, DedupBy::Id, columns(&["id"]), columns(&["none"]), columns(&["id", "b.c"])] {
            assert_eq!(by.to_string().parse::<DedupChoice>().unwrap(), DedupChoice::By(by));
        }
        assert_eq!("none".parse(), Ok(DedupChoice::None));
        for wrong in ["", ",", "a,", "a,,b", "a,a", "column:"] {
            assert!(wrong.parse::<DedupChoice>().is_err(), "{wrong}");
        }
    }
}
