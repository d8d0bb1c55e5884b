//! Splits of a dataset: training, validation and test, and which of them a record belongs to.
//!
//! A group of records, such as all of a patient, has one split, which follows from the group's text, the shares and the
//! seed alone. So it is the same in every run, on every machine and in every later version.
//!
//! ```text
//! group -> XXH3-64 with the seed -> 0 |------ train ------|-- val --|-- test --| 2^64
//! ```

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, Result};

/// Maximum number of splits: each has a shard open while records are written.
pub const MAX_SPLITS: usize = 16;

/// Maximum difference between the sum of the shares and 1.
const TOLERANCE: f64 = 1e-6;

/// What has one split as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitBy {
    /// All records of a subject. Records without one have splits by their contents.
    Subject,
    /// All records with one record id.
    Id,
    /// All records with one content.
    Content,
    /// All records with one value in a column. Records without a value have splits by their contents.
    Column(String),
}

impl FromStr for SplitBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "" => return Err("expected subject, id, content or the name of a column".to_owned()),
            "subject" => Self::Subject,
            "id" => Self::Id,
            "content" => Self::Content,
            column => Self::Column(column.strip_prefix("column:").unwrap_or(column).to_owned()),
        })
    }
}

impl fmt::Display for SplitBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject => f.write_str("subject"),
            Self::Id => f.write_str("id"),
            Self::Content => f.write_str("content"),
            Self::Column(name) if ["subject", "id", "content"].contains(&name.as_str()) => write!(f, "column:{name}"),
            Self::Column(name) => f.write_str(name),
        }
    }
}

/// Names of the splits and their shares of the groups; the shares add up to 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shares(Vec<(String, f64)>);

// Shares are positive numbers, so each equals itself.
impl Eq for Shares {}

impl Shares {
    /// Returns the names of the splits, in their order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the share of each split.
    pub fn shares(&self) -> impl ExactSizeIterator<Item = f64> {
        self.0.iter().map(|(_, share)| *share)
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, share)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={share}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain)
}

impl FromStr for Shares {
    type Err = String;

    /// Parses `train=0.8,val=0.1,test=0.1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut shares: Vec<(String, f64)> = Vec::new();
        for part in text.split(',') {
            let parsed = part.split_once('=').and_then(|(name, share)| Some((name.trim(), share.trim().parse().ok()?)));
            let Some((name, share)) = parsed.filter(|(_, share): &(&str, f64)| *share > 0.0 && *share <= 1.0) else {
                return Err(format!("expected NAME=SHARE with a share above 0 and at most 1, found `{part}`"));
            };
            if !is_name(name) {
                return Err(format!("expected a name of letters, digits, `_` and `-`, found `{name}`"));
            }
            if shares.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                return Err(format!("expected each name once, found `{name}` twice"));
            }
            shares.push((name.to_owned(), share));
        }
        if shares.len() > MAX_SPLITS {
            return Err(format!("expected at most {MAX_SPLITS} names, found {}", shares.len()));
        }
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        if (sum - 1.0).abs() > TOLERANCE {
            return Err(format!(
                "expected shares that add up to 1, found {sum}; all splits are in one option: --split \
                 train=0.8,val=0.1,test=0.1"
            ));
        }
        Ok(Self(shares))
    }
}

/// How a dataset is divided into splits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splits {
    /// Names and shares.
    pub shares: Shares,
    /// What has one split as a whole.
    pub by: SplitBy,
    /// Seed of the hash.
    #[serde(default)]
    pub seed: u64,
}

/// Number of a split, in the order of the shares.
pub type Split = u8;

impl Splits {
    /// Returns the number of splits.
    pub fn split_count(&self) -> usize {
        self.shares.0.len()
    }

    /// Returns the name of a split.
    pub fn split_name(&self, split: Split) -> Option<&str> {
        self.shares.names().nth(split.into())
    }

    /// Returns the split of a group.
    pub fn split_of_group(&self, group: &str) -> Split {
        self.of_hash(xxh3_64_with_seed(group.as_bytes(), self.seed))
    }

    /// Returns the split of a record that is a group of its own, given the hash of its content.
    pub fn of_content(&self, hash: u64) -> Split {
        self.of_hash(xxh3_64_with_seed(&hash.to_le_bytes(), self.seed))
    }

    fn of_hash(&self, hash: u64) -> Split {
        // The upper 53 bits are a number of this type without rounding.
        let place = (hash >> 11) as f64 / (1_u64 << 53) as f64;
        let mut end = 0.0;
        let reaches = |share: f64| {
            end += share;
            place < end
        };
        let last = self.split_count().saturating_sub(1);
        let split = self.shares.shares().take(last).position(reaches).unwrap_or(last);
        Split::try_from(split).unwrap_or_default()
    }

    /// Returns the folder of a split's shards below that of their run: `split=train`.
    pub fn split_folder(&self, split: Split) -> String {
        format!("{FOLDER_KEY}={}", self.split_name(split).unwrap_or_default())
    }

    /// Returns the split in whose folder a shard lies; `None` if it lies in none.
    pub fn of_path(&self, path: &str) -> Option<Split> {
        let name = split_of_path(path)?;
        let split = self.shares.names().position(|known| known == name)?;
        Split::try_from(split).ok()
    }

    /// Fails unless `other`, the wish of the user, asks for the same.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) that states both.
    pub fn check_same(&self, other: &Self) -> Result<()> {
        if self == other {
            return Ok(());
        }
        Err(Error::usage(format!("expected the split of this dataset, {self}, found {other}"))
            .with_hint("leave --split out: later runs divide new records alike")
            .with_hint("or name another dataset with --out"))
    }
}

impl fmt::Display for Splits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.shares, self.by)?;
        if self.seed == 0 { Ok(()) } else { write!(f, " with seed {}", self.seed) }
    }
}

/// Key of the folders of splits.
pub const FOLDER_KEY: &str = "split";

/// Returns the name of the split in whose folder a shard lies; `None` if the dataset is not divided.
pub fn split_of_path(path: &str) -> Option<&str> {
    path.split('/').rev().skip(1).find_map(|folder| folder.strip_prefix(FOLDER_KEY)?.strip_prefix('='))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn splits(text: &str, seed: u64) -> Splits {
        Splits { shares: text.parse().unwrap(), by: SplitBy::Subject, seed }
    }

    #[test]
    fn shares_are_kept() {
        let splits = splits("train=0.8,val=0.1,test=0.1", 7);
        let mut counts = [0_u32; 3];
        (0..100_000).for_each(|group| counts[usize::from(splits.split_of_group(&format!("PAT-{group:05}")))] += 1);
        for (count, share) in counts.into_iter().zip(splits.shares.shares()) {
            assert!((f64::from(count) / 100_000.0 - share).abs() < 0.005, "{counts:?}");
        }
    }

    /// The splits of groups are part of the format: they must never change.
    #[test]
    fn splits_of_groups_are_fixed() {
        let splits = splits("train=0.5,val=0.3,test=0.2", 1);
        let found: Vec<Split> =
            ["", "PAT-00023", "a", "b", "c", "ä", "0"].map(|group| splits.split_of_group(group)).to_vec();
        assert_eq!(found, [0, 1, 2, 1, 0, 1, 1]);
        assert_eq!([0, 1, u64::MAX].map(|hash| splits.of_content(hash)), [1, 1, 0]);
    }

    #[test]
    fn bad_shares_are_refused() {
        for (text, part) in [
            ("", "found ``"),
            ("train", "found `train`"),
            ("train=0.8", "add up to 1, found 0.8"),
            ("train=0.8,val=0.3", "add up to 1"),
            ("train=0,val=1", "found `train=0`"),
            ("train=-1,val=2", "found `train=-1`"),
            ("train=nan,val=1", "found `train=nan`"),
            ("a/b=0.5,c=0.5", "found `a/b`"),
            ("a=0.5,A=0.5", "`A` twice"),
        ] {
            let error = text.parse::<Shares>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let many: Vec<String> = (0..17).map(|i| format!("s{i}={}", 1.0 / 17.0)).collect();
        assert!(many.join(",").parse::<Shares>().unwrap_err().contains("at most 16"));
    }

    #[test]
    fn texts_and_folders_come_back() {
        let splits = splits("train=0.75,held-out=0.25", 0);
        assert_eq!(splits.shares.to_string().parse::<Shares>().unwrap(), splits.shares);
        for by in ["subject", "id", "content", "site", "column:id"] {
            assert_eq!(by.parse::<SplitBy>().unwrap().to_string(), by);
        }
        assert_eq!(splits.split_folder(1), "split=held-out");
        assert_eq!(splits.of_path("0123456789abcdef/split=held-out/000000.tar"), Some(1));
        assert_eq!(splits.of_path("0123456789abcdef/split=other/000000.tar"), None);
        assert_eq!(split_of_path("0123456789abcdef/000000.tar"), None);
        let text = serde_json::to_string(&splits).unwrap();
        assert_eq!(text, r#"{"shares":[["train",0.75],["held-out",0.25]],"by":"subject","seed":0}"#);
        assert_eq!(serde_json::from_str::<Splits>(&text).unwrap(), splits);
    }
}
