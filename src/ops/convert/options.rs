//! Options of a conversion.

use std::str::FromStr;

use arrow::datatypes::Field;
use jiff::Timestamp;

use super::write::WriteSettings;
use crate::{
    codec::Codec,
    dataset::PrivateChoice,
    error::Result,
    exec::{cut::ShardEnds, gather::OnError},
    format::{OutputFormat, index::IndexKind},
    ops::inputs::{Identity, OnChanged},
    plan::names::{OnMissing, OnName},
    record::{
        dedup::DedupChoice,
        filter::Filter,
        key_rule::KeyRule,
        split::{Shares, SplitBy},
        subject::{SubjectPattern, SubjectsFrom},
    },
    scan::{InputFormat, settings::ReadSettings},
    schema,
    units::Size,
};

/// A difference between new data and the dataset that the user has agreed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accept {
    /// Samples beside rows, or rows beside samples.
    Kind,
    /// Rows that share no column with the dataset.
    Columns,
    /// Ids or subjects from other columns.
    Settings,
    /// Samples and sources without a subject in a dataset that has subjects.
    Subjects,
    /// Samples without a row in the labels.
    Labels,
    /// Arrays whose constants differ from those of the dataset.
    Constants,
    /// Variables of other units than those of the dataset, or of other sources.
    Units,
}

/// Origin of the labels of samples made of files.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelSource {
    /// There are none, not even from the metadata of an imagefolder.
    None,
    /// A table: its path or URL, and after a colon the column that names the samples.
    Table(String),
}

/// Origin of subject ids that are not in a column.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectSource {
    /// The path of each source or sample.
    Path(SubjectPattern),
    /// A table.
    Table {
        /// Path or URL of the table.
        place: String,
        /// The table's column of subject ids.
        column: Option<String>,
    },
}

impl SubjectSource {
    /// Returns the form that the log records.
    pub(super) fn to_recorded(&self) -> SubjectsFrom {
        match self {
            Self::Path(pattern) => SubjectsFrom::Path(pattern.clone()),
            Self::Table { .. } => SubjectsFrom::Table,
        }
    }
}

/// How sources with different columns are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnSchema {
    /// They are united by name, and the types that the dataset has stay.
    #[default]
    Keep,
    /// They are united by name, and types of the dataset that do not hold all values are widened.
    Union,
    /// They are an error.
    Fail,
}

/// A choice of how records are divided.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SplitChoice {
    /// Names and shares of the splits.
    pub shares: Shares,
    /// What has one split as a whole; `None` for subjects, record ids or contents, the first that the records have.
    pub by: Option<SplitBy>,
    /// Seed of the hash.
    pub seed: u64,
}

impl FromStr for SplitChoice {
    type Err = String;

    /// Parses `train=0.8,val=0.1,test=0.1`, with or without `seed=7` behind it.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (shares, seed) =
            match text.rsplit_once(',').and_then(|(rest, last)| Some((rest, last.strip_prefix("seed=")?))) {
                None => (text, 0),
                Some((rest, seed)) => {
                    let wrong =
                        |_| format!("expected a whole number as the seed, found `{seed}`; no part is named `seed`");
                    (rest, seed.parse().map_err(wrong)?)
                }
            };
        Ok(Self { shares: shares.parse()?, by: None, seed })
    }
}

/// Parses a condition on rows; `today()` and `now()` are those of the call.
///
/// # Errors
/// When the text is no condition.
pub fn parse_condition(text: &str) -> Result<Filter> {
    Filter::parse(text, Timestamp::now()).map_err(|error| {
        error.with_hint("a condition looks like \"age >= 18 and site in ('A', 'B')\" or \"day >= today() - 30\"")
    })
}

/// Returns a column of the type that a text names, such as `list<int64>`.
///
/// # Errors
/// When the text names no type.
pub fn column_type(name: &str, kind: &str) -> Result<Field> {
    Ok(schema::file::parse_type(kind)?.with_name(name))
}

/// Sources and options of a conversion.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct ConvertOptions {
    /// Files, folders, globs or URLs.
    pub sources: Vec<String>,
    /// Format of the sources; `None` detects it from the content.
    pub from: Option<InputFormat>,
    /// Format of the shards.
    pub to: Option<OutputFormat>,
    /// Target size of a shard.
    pub target_shard: Option<Size>,
    /// How records are divided for training and evaluation; `None` as those of the dataset are.
    #[serde(default)]
    pub split: Option<SplitChoice>,
    /// Which duplicates are omitted; `None` as the dataset does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<DedupChoice>,
    /// Seed of the order of records; `None` for that of the dataset, which may have the order of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle: Option<u64>,
    /// Whether sidecars of Parquet shards have the content hash of every row, also where the dataset has none so far.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hash_records: bool,
    /// Whether the id index of a new dataset has all that `manifest --prove` needs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proofs: bool,
    /// Where shards end, if not at a target size.
    #[serde(default)]
    pub ends: Option<ShardEnds>,
    /// Compression.
    pub codec: Option<Codec>,
    /// Columns that make the record id.
    pub id: Vec<String>,
    /// Column of the subject id.
    pub subject: Option<String>,
    /// Origin of subject ids that are not in a column.
    pub subjects: Option<SubjectSource>,
    /// Origin of labels; `None` takes them from the metadata of an imagefolder, if the sources are one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelSource>,
    /// Where the keys of samples of files end; `None` for the dataset's rule.
    pub key: Option<KeyRule>,
    /// Column of the labels that becomes the class of a sample.
    #[serde(default)]
    pub label_column: Option<String>,
    /// Whether samples get the numbers of the folders above their files as classes.
    #[serde(default)]
    pub label_from_folder: bool,
    /// Columns that rows keep; empty for those of the dataset, and `*` alone for all.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Condition on rows; others are omitted.
    #[serde(default)]
    pub filter: Option<Filter>,
    /// Globs of inputs to include.
    pub include: Vec<String>,
    /// Globs of inputs to exclude.
    pub exclude: Vec<String>,
    /// File that defines the columns and their types: a schema file or Parquet.
    pub schema: Option<String>,
    /// Types of single columns; the others are inferred.
    #[serde(with = "crate::schema::wire::list")]
    pub types: Vec<Field>,
    /// Settings of input formats.
    #[serde(default)]
    pub read: ReadSettings,
    /// Settings of shard formats.
    #[serde(default)]
    pub write: WriteSettings,
    /// How names that a reader cannot handle are treated.
    pub on_name: Option<OnName>,
    /// How samples that lack a part which others have are treated.
    pub missing: OnMissing,
    /// How sources with different columns are handled.
    pub on_schema: OnSchema,
    /// How bad records are handled.
    pub on_error: OnError,
    /// How changed sources are handled.
    pub on_changed: OnChanged,
    /// Whether the run replaces all that the dataset has, in one version.
    #[serde(default)]
    pub overwrite: bool,
    /// Number of records after which the run ends; `None` for all.
    #[serde(default)]
    pub limit: Option<u64>,
    /// What identifies a source that was converted before.
    pub identity: Identity,
    /// How ids are stored.
    pub private: PrivateChoice,
    /// Differences between the sources and the dataset that the user accepts.
    pub accept: Vec<Accept>,
    /// Whether records are rejected whose ids are other spellings of erased ids.
    pub id_normalize: bool,
    /// Stored bytes of the sources of a task; `None` for the default. A run of one task stores no plan.
    pub task_size: Option<Size>,
    /// Plan without writing anything.
    pub dry_run: bool,
    /// Indexes for training tools; `None` chooses those that suit the shards and are cheap.
    pub index: Option<Vec<IndexKind>>,
}
