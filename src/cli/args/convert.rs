//! Arguments of `convert`.

use arrow::datatypes::Field;
use clap::{Args, ValueEnum};

use super::{LineageArgs, PrivateArgs, codec, column_type, delimiter, encoding, size, subject_pattern};
use crate::{
    array::records::ArrayOptions,
    codec::{Codec, encoding::Encoding},
    error::{Error, Result},
    exec::{encode::RowsAs, gather::OnError},
    format::{OutputFormat, index::IndexKind},
    ops::{
        convert::{Accept, ConvertOptions, OnSchema, SubjectSource},
        inputs::{Identity, OnChanged},
    },
    plan::names::{OnMissing, OnName},
    record::subject::SubjectPattern,
    scan::InputFormat,
    units::Size,
};

#[derive(Debug, Args)]
pub(in crate::cli) struct ConvertArgs {
    /// Files, folders, globs or URLs (file:, s3:, gs:, az:, http:, https:); the current folder unless given; `-` is
    /// standard input and needs --from
    pub(in crate::cli) sources: Vec<String>,
    /// Dataset to write to; one that exists is added to. Default: shardify.toml, then $SHARDIFY_DATASET, then ./shards
    #[arg(long, value_name = "DATASET")]
    pub(in crate::cli) out: Option<String>,
    /// Format of the sources, where their content does not tell
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Option<From>,
    /// Format of the shards; default: tables to parquet, files to tar
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<To>,
    /// Size of a shard on disk [default: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    target_shard: Option<Size>,
    /// Compression: none, zstd, lz4, snappy, gzip, with a level if you like (zstd:3) [default: parquet zstd:1, tar and
    /// tfrecord none]
    #[arg(long, value_name = "CODEC[:LEVEL]", value_parser = codec)]
    codec: Option<Codec>,
    /// Columns that make the record id, or paths into nested ones (patient.id); default: the origin (source#row), of files
    /// the sample key
    #[arg(long, value_name = "COLUMN[,COLUMN]", value_delimiter = ',')]
    id: Vec<String>,
    /// Column that says whom the record is about, or a path into a nested one (subject.reference)
    #[arg(long, value_name = "COLUMN")]
    subject: Option<String>,
    /// Subject id of each sample or source, taken from its path: 'scans/{subject}/*' (`*` matches within a name, `**` folders)
    #[arg(long, value_name = "PATTERN", value_parser = subject_pattern, conflicts_with_all = ["subject", "subject_table"])]
    subject_from_path: Option<SubjectPattern>,
    /// Table with the subject id of each sample or source, by path or sample key: columns `path` and `subject` (or --subject)
    #[arg(long, value_name = "FILE")]
    subject_table: Option<String>,
    /// Indexes for training tools: auto, none, or any of dali, wids, energon (uncompressed tar), dali, tfindex
    /// (uncompressed tfrecord) [default: the dataset's; auto, which is dali for tar, dali and tfindex for tfrecord]
    #[arg(long, value_name = "KIND[,KIND]", value_delimiter = ',', value_enum)]
    index: Vec<IndexChoice>,
    /// Uncompressed size of a Parquet row group, at most 128MiB [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    row_group: Option<Size>,
    /// File with the columns and their types, instead of looking at the records: {"columns": [{"name": "age", "type":
    /// "int64"}, ...]}, or as a Parquet file has them
    #[arg(long, value_name = "FILE")]
    schema: Option<String>,
    /// Type of a column instead of the inferred one: bool, int8 to int64, uint8 to uint64, float32, float64, decimal(p,s),
    /// date, time(unit), timestamp, timestamp(unit, zone), instant, duration(unit), text, binary (base64 in CSV and JSON), json;
    /// of JSON and typed inputs also list<T>, struct<name: T, ...>. Values that it does not hold are bad records
    #[arg(long = "type", value_name = "COL=TYPE", value_parser = column_type)]
    types: Vec<Field>,
    /// Text that means null, besides nothing at all
    #[arg(long, value_name = "TEXT")]
    null: Option<String>,
    /// Delimiter of delimited text, where the content does not tell
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Encoding of text, where the content does not tell: latin1, windows-1252, utf-16, shift_jis ...
    #[arg(long, value_name = "NAME", value_parser = encoding)]
    encoding: Option<Encoding>,
    /// Delimited text has no header
    #[arg(long)]
    no_header: bool,
    /// Add columns for folders `key=value` in the paths of tables (Hive partitions)
    #[arg(long)]
    hive_columns: bool,
    /// Arrays: dimension along which records lie [default: one that can grow, else the first that variables share]
    #[arg(long, value_name = "DIM")]
    record_dim: Option<String>,
    /// Arrays: variables to take; all unless given
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    var: Vec<String>,
    /// Arrays: values as they are stored, without _FillValue, scale_factor, units of time and other CF conventions
    #[arg(long)]
    raw: bool,
    /// Arrays: cut each record into patches of this size
    #[arg(long, value_name = "DIM=N[,DIM=N]", value_delimiter = ',', value_parser = dim_size)]
    patch: Vec<(String, u64)>,
    /// Arrays: distance from one patch to the next [default: their size]
    #[arg(long, value_name = "DIM=N[,DIM=N]", value_delimiter = ',', value_parser = dim_size)]
    stride: Vec<(String, u64)>,
    /// Arrays: a row for each cell instead of each record
    #[arg(long)]
    flatten: bool,
    /// Arrays: take sources that claim far more values than their stored bytes can hold, because most were never written
    #[arg(long)]
    sparse: bool,
    /// Arrays: what a tensor becomes in tfrecord
    #[arg(long, value_enum, value_name = "HOW", default_value_t = TensorChoice::Bytes)]
    tensors: TensorChoice,
    /// What a row becomes in tar; default: a table with a column __key__ becomes samples again, any other json
    #[arg(long, value_enum, value_name = "HOW")]
    rows: Option<RowsChoice>,
    /// How samples store pictures and recordings in parquet
    #[arg(long, value_enum, value_name = "HOW", default_value_t = MediaChoice::Bytes)]
    media: MediaChoice,
    /// Sources with different columns
    #[arg(long, value_enum, value_name = "HOW", default_value_t = SchemaChoice::Union)]
    on_schema: SchemaChoice,
    /// Take only inputs that match
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Leave out inputs that match
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// A bad record or file
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ErrorChoice::Fail)]
    on_error: ErrorChoice,
    /// A name that a reader of the shards cannot take, such as blanks for dali or more than 100 bytes for wids
    /// [default: fail; names of rows are made of ids and renamed, unless --index asks for that index]
    #[arg(long, value_enum, value_name = "HOW")]
    on_name: Option<NameChoice>,
    /// A sample that lacks a part which others have
    #[arg(long, value_enum, value_name = "HOW", default_value_t = MissingChoice::Keep)]
    missing: MissingChoice,
    /// A source that changed since it was converted
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ChangedChoice::Fail)]
    on_changed: ChangedChoice,
    /// What makes a source one that was converted before; samples of files are known by their content if they were converted with `content`
    #[arg(long, value_enum, value_name = "HOW", default_value_t = IdentityChoice::Path)]
    identity: IdentityChoice,
    /// Take data in that looks unlike the dataset: samples beside rows (kind), rows that share no column with it (columns), ids
    /// from other columns (settings)
    #[arg(long, value_enum, value_name = "WHAT[,WHAT]", value_delimiter = ',')]
    accept: Vec<AcceptChoice>,
    /// Leave out records whose id is another spelling of an erased one, too: `007`, `+7`, `7.0`, blanks, case, Unicode forms
    #[arg(long)]
    id_normalize: bool,
    #[command(flatten)]
    pub(in crate::cli) private: PrivateArgs,
    #[command(flatten)]
    pub(in crate::cli) lineage: LineageArgs,
    /// Print what would be done and do nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum From {
    Csv,
    Tsv,
    Jsonl,
    Json,
    Parquet,
    Arrow,
    Files,
    Tar,
    #[value(name = "tfrecord")]
    TfRecord,
    #[value(name = "netcdf")]
    NetCdf,
    Hdf5,
    Zarr,
    Npy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TensorChoice {
    /// Bytes, shape and type
    Bytes,
    /// A list of numbers
    Lists,
}

/// A dimension with a number: `lat=64`.
fn dim_size(text: &str) -> Result<(String, u64), String> {
    let (dim, size) = text.split_once('=').ok_or_else(|| format!("expected DIM=N, found `{text}`"))?;
    Ok((dim.to_owned(), size.parse().map_err(|_| format!("expected a number for `{dim}`, found `{size}`"))?))
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum To {
    Parquet,
    Tar,
    #[value(name = "tfrecord")]
    TfRecord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IndexChoice {
    /// What suits the shards and costs little
    Auto,
    /// No index
    None,
    /// For NVIDIA DALI
    Dali,
    /// For wids
    Wids,
    /// For Megatron-Energon
    Energon,
    /// For the tfrecord package
    #[value(name = "tfindex")]
    TfIndex,
}

/// Kinds of index; `None` means auto.
fn index_kinds(choices: &[IndexChoice]) -> Result<Option<Vec<IndexKind>>> {
    let alone = |choice| choices.contains(&choice);
    if choices.is_empty() || choices == [IndexChoice::Auto] {
        return Ok(None);
    }
    if choices.len() > 1 && (alone(IndexChoice::Auto) || alone(IndexChoice::None)) {
        return Err(Error::usage("expected `auto` or `none` alone in --index, found other kinds beside it"));
    }
    let kind = |choice: &IndexChoice| match choice {
        IndexChoice::Auto | IndexChoice::None => None,
        IndexChoice::Dali => Some(IndexKind::Dali),
        IndexChoice::Wids => Some(IndexKind::Wids),
        IndexChoice::Energon => Some(IndexKind::Energon),
        IndexChoice::TfIndex => Some(IndexKind::TfIndex),
    };
    Ok(Some(choices.iter().filter_map(kind).collect()))
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RowsChoice {
    /// A member `key.json` with all columns
    Json,
    /// A member `key.column` for each column that is not null
    Parts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MediaChoice {
    /// A column of bytes per extension
    Bytes,
    /// As Hugging Face datasets do: a struct of bytes and path
    Hf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SchemaChoice {
    /// Columns are united by name; types are widened
    Union,
    /// Is an error
    Fail,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ErrorChoice {
    /// Stops the run; nothing is committed
    Fail,
    /// Is left out and counted
    Skip,
    /// Is left out, counted and kept in a rejects file
    Quarantine,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum NameChoice {
    /// Stops the run before anything is written where the names are those of files
    Fail,
    /// Is escaped as %XX, or cut and told apart by a hash
    Rename,
    /// Is left out as a reject
    Skip,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MissingChoice {
    /// Is an error that names it
    Fail,
    /// Is left out as a reject
    Skip,
    /// Is taken as it is, and counted
    Keep,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IdentityChoice {
    /// Its path or URL
    Path,
    /// That, or its content: a file that was moved, or sent again under another name, is skipped
    Content,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AcceptChoice {
    /// Samples in a dataset of rows, or rows in one of samples
    Kind,
    /// Rows that share no column with the dataset
    Columns,
    /// Ids or subjects from other columns than before
    Settings,
    /// Samples or sources without a subject id
    Subjects,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ChangedChoice {
    /// Is an error that names it
    Fail,
    /// Is converted again; its old records stay
    Append,
    /// Is converted again, and its old records are removed in the same version
    Replace,
    /// Is left out
    Skip,
}

impl ConvertArgs {
    pub(in crate::cli) fn options(&self) -> Result<ConvertOptions> {
        let sources = if self.sources.is_empty() { vec![".".to_owned()] } else { self.sources.clone() };
        Ok(ConvertOptions {
            sources,
            from: self.from.map(From::meaning),
            to: self.to.map(To::meaning),
            target_shard: self.target_shard,
            codec: self.codec,
            id: self.id.clone(),
            subject: self.subject.clone().filter(|_| self.subject_table.is_none()),
            subjects: self.subjects(),
            row_group: self.row_group,
            hive_columns: self.hive_columns,
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            schema: self.schema.clone(),
            types: self.types.clone(),
            encoding: self.encoding,
            null: self.null.clone(),
            delimiter: self.delimiter,
            no_header: self.no_header,
            arrays: self.arrays(),
            tensor_lists: self.tensors == TensorChoice::Lists,
            rows: self.rows.map(RowsChoice::meaning),
            media: self.media == MediaChoice::Hf,
            on_schema: self.on_schema.meaning(),
            on_error: self.on_error.meaning(),
            on_changed: self.on_changed.meaning(),
            private: self.private.choice(),
            identity: self.identity.meaning(),
            accept: self.accept.iter().map(|accept| accept.meaning()).collect(),
            id_normalize: self.id_normalize,
            dry_run: self.dry_run,
            index: index_kinds(&self.index)?,
            on_name: self.on_name.map(NameChoice::meaning),
            missing: self.missing.meaning(),
        })
    }

    fn subjects(&self) -> Option<SubjectSource> {
        match (&self.subject_from_path, &self.subject_table) {
            (Some(pattern), _) => Some(SubjectSource::Path(pattern.clone())),
            (None, Some(place)) => Some(SubjectSource::Table { place: place.clone(), column: self.subject.clone() }),
            (None, None) => None,
        }
    }

    fn arrays(&self) -> ArrayOptions {
        ArrayOptions {
            record_dim: self.record_dim.clone(),
            vars: self.var.clone(),
            raw: self.raw,
            patch: self.patch.clone(),
            stride: self.stride.clone(),
            flatten: self.flatten,
            sparse: self.sparse,
            ..ArrayOptions::default()
        }
    }
}

/// Maps each choice of the command line to the library's value of the same name.
macro_rules! meanings {
    ($($choice:ident => $meaning:ident { $($name:ident),* })*) => {
        $(impl $choice {
            fn meaning(self) -> $meaning {
                match self { $(Self::$name => $meaning::$name),* }
            }
        })*
    };
}

meanings! {
    From => InputFormat { Csv, Tsv, Jsonl, Json, Parquet, Arrow, Files, Tar, TfRecord, NetCdf, Hdf5, Zarr, Npy }
    To => OutputFormat { Parquet, Tar, TfRecord }
    RowsChoice => RowsAs { Json, Parts }
    SchemaChoice => OnSchema { Union, Fail }
    ErrorChoice => OnError { Fail, Skip, Quarantine }
    ChangedChoice => OnChanged { Fail, Append, Replace, Skip }
    IdentityChoice => Identity { Path, Content }
    AcceptChoice => Accept { Kind, Columns, Settings, Subjects }
    NameChoice => OnName { Fail, Rename, Skip }
    MissingChoice => OnMissing { Fail, Skip, Keep }
}
