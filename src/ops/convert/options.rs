//! Options of a conversion.

use arrow::datatypes::Field;

use crate::{
    array::records::ArrayOptions,
    codec::{Codec, encoding::Encoding},
    dataset::PrivateChoice,
    exec::{encode::RowsAs, gather::OnError},
    format::{OutputFormat, index::IndexKind},
    ops::inputs::{Identity, OnChanged},
    plan::names::{OnMissing, OnName},
    record::subject::{SubjectPattern, SubjectsFrom},
    scan::InputFormat,
    units::Size,
};

/// A difference between new data and the dataset that the user has agreed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// Samples beside rows, or rows beside samples.
    Kind,
    /// Rows that share no column with the dataset.
    Columns,
    /// Ids or subjects from other columns.
    Settings,
    /// Samples and sources without a subject in a dataset that has subjects.
    Subjects,
}

/// Origin of subject ids that no column has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubjectSource {
    /// The path of each source or sample.
    Path(SubjectPattern),
    /// A table.
    Table {
        /// Where it lies.
        place: String,
        /// Its column with the subjects.
        column: Option<String>,
    },
}

impl SubjectSource {
    /// How the log keeps it.
    pub(super) fn kept(&self) -> SubjectsFrom {
        match self {
            Self::Path(pattern) => SubjectsFrom::Path(pattern.clone()),
            Self::Table { .. } => SubjectsFrom::Table,
        }
    }
}

/// Sources with different columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnSchema {
    /// Are united by name.
    #[default]
    Union,
    /// Are an error.
    Fail,
}

/// What to convert, and how.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// Files, folders, globs or URLs.
    pub sources: Vec<String>,
    /// Their format, where it is not to be told from the content.
    pub from: Option<InputFormat>,
    /// Format of the shards.
    pub to: Option<OutputFormat>,
    /// Size of a shard.
    pub target_shard: Option<Size>,
    /// Compression.
    pub codec: Option<Codec>,
    /// Columns that make the record id.
    pub id: Vec<String>,
    /// Column of the subject id.
    pub subject: Option<String>,
    /// Where subject ids come from that are in no column.
    pub subjects: Option<SubjectSource>,
    /// Uncompressed bytes of a row group.
    pub row_group: Option<Size>,
    /// Whether folders `key=value` in the paths of sources are columns.
    pub hive_columns: bool,
    /// What records of arrays are.
    pub arrays: ArrayOptions,
    /// Whether tensors in TFRecord are lists of numbers rather than bytes.
    pub tensor_lists: bool,
    /// Globs of inputs to take.
    pub include: Vec<String>,
    /// Globs of inputs to leave out.
    pub exclude: Vec<String>,
    /// File that says which columns there are, with their types: a schema file or Parquet.
    pub schema: Option<String>,
    /// Types of columns that are not to be inferred.
    pub types: Vec<Field>,
    /// Encoding of text, where the content does not tell.
    pub encoding: Option<Encoding>,
    /// Text that means null.
    pub null: Option<String>,
    /// Delimiter.
    pub delimiter: Option<u8>,
    /// Delimited text has no header.
    pub no_header: bool,
    /// Names that a reader cannot take.
    pub on_name: Option<OnName>,
    /// Samples that lack a part which others have.
    pub missing: OnMissing,
    /// What rows become in tar, unless that follows from their columns.
    pub rows: Option<RowsAs>,
    /// Whether pictures and recordings are stored in Parquet as Hugging Face does.
    pub media: bool,
    /// Sources with different columns.
    pub on_schema: OnSchema,
    /// Bad records.
    pub on_error: OnError,
    /// Sources that changed.
    pub on_changed: OnChanged,
    /// What makes a source known.
    pub identity: Identity,
    /// How ids are stored.
    pub private: PrivateChoice,
    /// Differences between the sources and the dataset that are meant.
    pub accept: Vec<Accept>,
    /// Whether records stay out whose ids are other spellings of erased ones.
    pub id_normalize: bool,
    /// Only plan.
    pub dry_run: bool,
    /// Indexes for training tools; those that suit the shards and cost little unless given.
    pub index: Option<Vec<IndexKind>>,
}
