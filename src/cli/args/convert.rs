//! Arguments of `convert`, a struct for each heading of its help.

use arrow::datatypes::Field;
use clap::Args;

use super::{
    LineageArgs, PrivateArgs,
    choices::{SettingParser, choice},
    codec, column_type, count,
    indexes::{IndexChoice, index_kinds},
    size, subject_pattern,
};
use crate::{
    codec::Codec,
    error::{Error, Result},
    exec::{cut::ShardEnds, gather::OnError},
    format::OutputFormat,
    ops::{
        convert::{
            self, Accept, ConvertOptions, LabelSource, OnSchema, SplitChoice, SubjectSource, WriteOption, WriteSetting,
        },
        inputs::{Identity, OnChanged},
    },
    plan::names::{OnMissing, OnName},
    record::{dedup::DedupChoice, key_rule::KeyRule, split::SplitBy, subject::SubjectPattern},
    scan::{
        InputFormat,
        settings::{Read, ReadSetting},
    },
    units::Size,
};

#[derive(Debug, Args)]
pub(in crate::cli) struct ConvertArgs {
    /// Files, folders, globs, URLs; - is stdin [default: .].
    ///
    /// URLs are file:, s3:, gs:, az:, http: or https:. Standard input needs --from.
    pub(in crate::cli) sources: Vec<String>,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    pub(in crate::cli) output: OutputArgs,
    #[command(flatten)]
    ids: IdArgs,
    #[command(flatten)]
    pub(in crate::cli) private: PrivateArgs,
    #[command(flatten)]
    pub(in crate::cli) lineage: LineageArgs,
    #[command(flatten)]
    types: TypeArgs,
    #[command(flatten)]
    indexes: IndexArgs,
    #[command(flatten)]
    errors: ErrorArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
struct InputArgs {
    /// Input format [default: detected from the content].
    #[arg(long, value_parser = choice::<InputFormat>(), value_name = "FORMAT")]
    from: Option<InputFormat>,
    /// Read only inputs that match; may be repeated.
    ///
    /// The glob is matched against paths below the given sources.
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Skip inputs that match; may be repeated.
    ///
    /// The glob is matched against paths below the given sources. An input that matches --include too is skipped.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Columns of tables to keep [default: all].
    ///
    /// The columns are stored in this order. Other columns are not parsed, so their values may be anything; for
    /// Parquet, they are not read at all. --id and --subject may name columns that are not kept: ids are stored beside
    /// the shards. Later runs into the dataset keep the same columns; '*' means all.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    columns: Vec<String>,
    /// Table with the labels of files: the row of a sample becomes its part json.
    ///
    /// CSV, JSONL or Parquet, local or remote. KEY is the column that names a file's path, its file name or the
    /// sample's key [default: file_name, else file, path, image, filename, id or key]. A sample without a row is an
    /// error without --accept labels. Without --labels, the metadata.csv, .jsonl or .parquet of an imagefolder of
    /// Hugging Face is used where files are beside it; `none` turns that off.
    #[arg(long, value_name = "FILE[:KEY]", hide_short_help = true)]
    labels: Option<String>,
    /// Column of the labels that becomes the class of a sample: its part cls.
    ///
    /// Whole numbers are taken as they are. Names are numbered in their order, as those of --label-from-folder are. The
    /// dataset keeps the column.
    #[arg(long, value_name = "COLUMN", conflicts_with = "label_from_folder", hide_short_help = true)]
    label_column: Option<String>,
    /// The key of a file; files with one key are the parts of one sample.
    ///
    /// `first-dot` (WebDataset's rule), `last-dot` for names with dots such as 1.2.840.7.dcm, or a regular expression:
    /// its groups make the key, after what precedes its match, and what follows them names the part. '^([^/]+)/' makes
    /// a sample of each folder, '([^_/]+)_' one of P1_image.png and P1_mask.png. What matches outside of the groups is
    /// omitted from the key: '(?:images|labels)/(.*)' joins images/7.jpg and labels/7.txt, and
    /// '(?<part>images|masks)/(.*)' joins images/7.png and masks/7.png as images.png and masks.png. The dataset keeps
    /// the rule.
    #[arg(long, value_name = "RULE", hide_short_help = true)]
    key: Option<KeyRule>,
    /// Label each sample with the number of the folder directly above its files: its part cls.
    ///
    /// The names of these folders, sorted, are the classes 0, 1 and so on. The dataset keeps them: later runs give
    /// known classes the same numbers, and new ones the next; `manifest` shows them.
    #[arg(long, hide_short_help = true)]
    label_from_folder: bool,
    /// Rows of tables to keep: a condition in SQL.
    ///
    /// For example "age >= 18 and site in ('A', 'B')" or "day >= today() - 30". There are =, !=, <, <=, >, >=, in,
    /// between, like, is null, and, or, not and parentheses, with the meaning that they have in SQL; date '2026-01-31'
    /// and timestamp '2026-01-31 12:00' are literals, and "a name" in double quotes is a column. today() and now() are
    /// in UTC and fixed once for a run. The log states the condition.
    #[arg(long = "where", value_name = "CONDITION", allow_hyphen_values = true)]
    filter: Option<String>,
    /// Setting of an input format; may be repeated, and the last value of a setting counts.
    ///
    /// A setting may be an option of its own: --delimiter tab is --read delimiter=tab, --raw is --read raw=yes.
    ///
    /// Arrays are split along an unlimited dimension, else the first that the variables share.
    ///
    /// By the standard reading of delimited text (RFC 4180), the first line is the header and every other line a
    /// record. With tidy=yes, another reading is taken where that one is impossible, and a note tells: notes above the
    /// table have another number of fields than all records and are skipped; a header may lack the name of the row
    /// labels, or the delimiter at the end of each record; `'` may be the quote, or no character. Otherwise a damaged
    /// record is an error; with --on-error skip or quarantine it is repaired if exactly one reading fits, or else
    /// rejected.
    #[arg(long, value_name = "KEY=VALUE", value_parser = SettingParser::<Read>::default(), hide_short_help = true)]
    read: Vec<ReadSetting>,
    /// How to recognize inputs that were converted before.
    ///
    /// With `content`, samples made of files are recognized by content only if they were first converted with
    /// `content`.
    #[arg(long, value_parser = choice::<Identity>(), value_name = "HOW", default_value = "path",
          hide_short_help = true)]
    identity: Identity,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(in crate::cli) struct OutputArgs {
    /// Dataset to create or extend [default: ./shards].
    ///
    /// Without --out, the dataset is the one of shardify.toml, else $SHARDIFY_DATASET, else ./shards.
    #[arg(long, short = 'o', alias = "output", value_name = "DATASET")]
    pub(in crate::cli) out: Option<String>,
    /// Shard format [default: tables parquet, files tar].
    #[arg(long, value_parser = choice::<OutputFormat>(), value_name = "FORMAT")]
    to: Option<OutputFormat>,
    /// Shard size on disk [default: 128MiB].
    #[arg(long, alias = "shard-size", value_name = "SIZE", value_parser = target)]
    target_shard: Option<Size>,
    /// Split the records: train=0.8,val=0.1,test=0.1.
    ///
    /// The shards of each split lie in a folder of its name, split=train. A subject, or what --split-by names, is in
    /// one split as a whole, in later runs too. Add seed=7 after the shares for a different split.
    #[arg(long, value_name = "SHARES", value_parser = split)]
    split: Option<SplitChoice>,
    /// What --split keeps together [default: subject id, else record id, else content].
    ///
    /// Subject, id, content or a column, whose equal values are kept together; `column:id` is the column of that name.
    #[arg(long, value_name = "WHAT", requires = "split", value_parser = split_by, hide_short_help = true)]
    split_by: Option<SplitBy>,
    /// Duplicates to omit: those with one content, one record id, or equal values in columns.
    ///
    /// The first record in the order of the input stays, and records that the dataset holds come before it. For
    /// samples, the content are the names and bytes of all parts, and columns are parts, such as jpg; a sample without
    /// such a part is compared as a whole. The dataset keeps the setting for later runs; `none`
    /// keeps all records of a run. `column:id` is the column of that name.
    #[arg(long, value_name = "content|id|COLUMN[,COLUMN]|none", value_parser = dedup_choice, hide_short_help = true)]
    dedup: Option<DedupChoice>,
    /// Shuffle the records, in an order that follows from this seed.
    ///
    /// The order is exact over all records of the run, not within a buffer, and the same at any memory and number of
    /// threads. Later runs shuffle the records that they add, with the same seed. With --split, each split is shuffled
    /// by itself.
    #[arg(long, value_name = "SEED", hide_short_help = true)]
    shuffle: Option<u64>,
    /// Number of shards, of about equal size.
    ///
    /// The inputs must not be compressed, because their sizes are not known then. There are fewer shards if there are
    /// fewer records. With --split, each split has so many. The run is not cut into tasks. `compact` still merges and
    /// divides shards by their sizes.
    #[arg(long, value_name = "N", value_parser = count,
          conflicts_with_all = ["target_shard", "records_per_shard"], hide_short_help = true)]
    shards: Option<u64>,
    /// With --shards: even in records, not in bytes.
    ///
    /// Numbers of records differ by at most one, for ranks that wait for each other. The inputs may be compressed: they
    /// are read twice, first to count the records; with --shuffle, once.
    #[arg(long, requires = "shards", hide_short_help = true)]
    even: bool,
    /// Number of records of each shard; the last shard has the rest.
    ///
    /// The run is not cut into tasks. `compact` still merges and divides shards by their sizes.
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "target_shard",
          hide_short_help = true)]
    records_per_shard: Option<u64>,
    /// Compression: none, zstd, lz4, snappy, gzip.
    ///
    /// A level may follow, as in zstd:3. Parquet takes all of them, tar none, gzip and zstd, TFRecord none and gzip
    /// [default: zstd:1 for parquet, none for tar and tfrecord].
    #[arg(long, alias = "compression", value_name = "CODEC[:LEVEL]", value_parser = codec)]
    codec: Option<Codec>,
    /// Print the plan without writing anything.
    #[arg(long)]
    dry_run: bool,
    /// Convert only the first records, as a trial of options.
    ///
    /// The records are the first N that are written, in the order of the input; what comes behind them is not read. The
    /// dataset is marked as a trial, and later runs into it are refused unless --overwrite replaces all of its records.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), hide_short_help = true)]
    limit: Option<u64>,
    /// Replace all records of the dataset, in one version.
    ///
    /// All inputs are converted, also those that were before. Older versions stay readable until `vacuum`. Ids that
    /// were erased or blocked stay so, and the dataset keeps its settings.
    #[arg(long, hide_short_help = true)]
    overwrite: bool,
    /// Stored size of the inputs of a task [default: 8GiB].
    ///
    /// Larger inputs are converted task by task, each into a folder of its own. A killed run that is started again with
    /// the same options continues with the tasks that have not finished.
    #[arg(long, value_name = "SIZE", value_parser = size, hide_short_help = true)]
    task_size: Option<Size>,
    /// Setting of a shard format; may be repeated, and the last value of a setting counts.
    #[arg(long, value_name = "KEY=VALUE", value_parser = SettingParser::<WriteOption>::default(),
          hide_short_help = true)]
    write: Vec<WriteSetting>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Ids and lineage")]
struct IdArgs {
    /// Columns of the record id [default: origin].
    ///
    /// A nested column is named by its path, such as patient.id. Without --id, the record id is the origin, source#row;
    /// the record id of a sample is its key.
    #[arg(long, value_name = "COLUMN[,COLUMN]", value_delimiter = ',')]
    id: Vec<String>,
    /// Column of the subject id.
    ///
    /// The subject is the person, or the thing, that a record is about. A nested column is named by its path, such as
    /// subject.reference.
    #[arg(long, value_name = "COLUMN")]
    subject: Option<String>,
    /// Pattern that extracts the subject id of a sample or input from its path.
    ///
    /// For example 'scans/{subject}/*'. `*` matches within a name, `**` matches folders too. `bids` takes sub-01 of
    /// sub-01/anat/sub-01_T1w.nii.gz, and wants folder and name to agree.
    #[arg(long, value_name = "PATTERN", value_parser = subject_pattern, conflicts_with_all = ["subject",
        "subject_table"],
          hide_short_help = true)]
    subject_from_path: Option<SubjectPattern>,
    /// Table with the subject id of each sample or input.
    ///
    /// Its column `path` holds the path of the input or the sample key; its column `subject`, or the one that --subject
    /// names, holds the subject id.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    subject_table: Option<String>,
    /// Keep the content hash of every row of Parquet shards.
    ///
    /// By default, only rows of text without record and subject ids have one, and `manifest --diff` reads the rows that
    /// it compares. The dataset keeps the choice. Samples, and records of tar and TFRecord, have hashes without it.
    #[arg(long, hide_short_help = true)]
    hash_records: bool,
    /// Make a dataset whose versions can be proved to have an id, or not to have it.
    ///
    /// `manifest --prove` needs whole hashes of ids in the id index, and a hash over them for each version. Without
    /// proofs, the index is a third smaller where ids do not ascend, and ids that ascend are not hashed. A dataset
    /// keeps the choice with which it was made.
    #[arg(long, hide_short_help = true)]
    proofs: bool,
    /// Also skip records whose id is a spelling variant of an erased id.
    ///
    /// Variants differ in leading zeros, signs, decimals (007, +7, 7.0), blanks, case or Unicode form.
    #[arg(long, hide_short_help = true)]
    id_normalize: bool,
    /// Accept data that differs in kind from what the dataset holds.
    ///
    /// Without it, such data is an error, since it is usually a mistake.
    #[arg(long, value_parser = choice::<Accept>(), value_name = "WHAT[,WHAT]", value_delimiter = ',',
          hide_short_help = true)]
    accept: Vec<Accept>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Types")]
struct TypeArgs {
    /// Type of a column; may be repeated.
    ///
    /// Overrides the inferred type. Types are bool, int8 to int64, uint8 to uint64, float32, float64, decimal(p,s),
    /// date, time(unit), timestamp, timestamp(unit, zone), instant, duration(unit), text, binary (base64 in CSV and
    /// JSON) and json; JSON and typed inputs also take list<T> and struct<name: T, ...>. A value that does not fit is a
    /// bad record, which --on-error handles.
    #[arg(long = "type", value_name = "COLUMN=TYPE", value_parser = column_type)]
    types: Vec<Field>,
    /// File with the columns and their types.
    ///
    /// Types are not inferred then. The file is JSON, such as {"columns": [{"name": "age", "type": "int64"}]}, or a
    /// Parquet file with these columns.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    schema: Option<String>,
    /// How to treat inputs with other columns or types, also than the dataset has.
    #[arg(long, value_parser = choice::<OnSchema>(), value_name = "HOW", default_value = "keep",
          hide_short_help = true)]
    on_schema: OnSchema,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Training indexes")]
struct IndexArgs {
    /// Indexes to write beside the shards, for training tools.
    ///
    /// All shards of a dataset have the same kinds. The default is that of the dataset; a new dataset has `auto`.
    #[arg(long, value_name = "KIND[,KIND]", value_delimiter = ',', value_enum, hide_short_help = true)]
    index: Vec<IndexChoice>,
    /// How to treat names that a reader of the shards cannot handle.
    ///
    /// Examples are blanks for DALI, and names longer than 100 bytes for wids. The default is `fail`; keys made from
    /// record ids are renamed instead, unless --index asks for that index.
    #[arg(long, value_parser = choice::<OnName>(), value_name = "HOW", hide_short_help = true)]
    on_name: Option<OnName>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Errors")]
struct ErrorArgs {
    /// How to treat bad records and files.
    ///
    /// A run that rejected records ends with exit code 3.
    #[arg(long, value_parser = choice::<OnError>(), value_name = "HOW", default_value = "fail")]
    on_error: OnError,
    /// How to treat changed inputs.
    ///
    /// An input has changed if its content differs from when it was converted.
    #[arg(long, value_parser = choice::<OnChanged>(), value_name = "HOW", default_value = "fail",
          hide_short_help = true)]
    on_changed: OnChanged,
    /// How to treat samples that lack a part which other samples have.
    #[arg(long, value_parser = choice::<OnMissing>(), value_name = "HOW", default_value = "keep",
          hide_short_help = true)]
    missing: OnMissing,
}

fn split(text: &str) -> Result<SplitChoice, String> {
    text.parse()
}

fn target(text: &str) -> Result<Size, String> {
    /// Less is a mistake of units: nearly every record would have a shard of its own.
    const LEAST: Size = Size(1 << 10);
    match size(text)? {
        target if target < LEAST => Err(format!(
            "expected at least {LEAST}, found {target}; a size may have a unit, such as 128MiB, and \
             --records-per-shard states records"
        )),
        target => Ok(target),
    }
}

fn dedup_choice(text: &str) -> Result<DedupChoice, String> {
    text.parse()
}

fn split_by(text: &str) -> Result<SplitBy, String> {
    text.parse()
}

impl OutputArgs {
    /// Returns where shards end, if not at a target size.
    fn shard_ends(&self) -> Option<ShardEnds> {
        let of_shards = if self.even { ShardEnds::Even } else { ShardEnds::Parts };
        self.records_per_shard.map(ShardEnds::Records).or(self.shards.map(of_shards))
    }
}

impl ConvertArgs {
    pub(in crate::cli) fn to_options(&self) -> Result<ConvertOptions> {
        let Self { input, output, ids, types, errors, indexes, .. } = self;
        let sources = if self.sources.is_empty() { vec![".".to_owned()] } else { self.sources.clone() };
        let twice = |(at, field): (usize, &Field)| types.types[..at].iter().any(|other| other.name() == field.name());
        if let Some((_, field)) = types.types.iter().enumerate().find(|(at, field)| twice((*at, *field))) {
            return Err(Error::usage("expected one --type for each column, found two")
                .in_column(field.name())
                .with_hint("leave one of them out"));
        }
        Ok(ConvertOptions {
            task_size: self.output.task_size,
            sources,
            from: input.from,
            to: output.to,
            target_shard: output.target_shard,
            ends: output.shard_ends(),
            split: output.split.clone().map(|choice| SplitChoice { by: output.split_by.clone(), ..choice }),
            dedup: output.dedup.clone(),
            shuffle: output.shuffle,
            codec: output.codec,
            id: ids.id.clone(),
            columns: input.columns.clone(),
            key: input.key.clone(),
            label_from_folder: input.label_from_folder,
            label_column: input.label_column.clone(),
            labels: input.labels.as_deref().map(|labels| match labels {
                "none" => LabelSource::None,
                table => LabelSource::Table(table.to_owned()),
            }),
            filter: input.filter.as_deref().map(convert::parse_condition).transpose()?,
            subject: ids.subject.clone().filter(|_| ids.subject_table.is_none()),
            subjects: ids.subject_source(),
            include: input.include.clone(),
            exclude: input.exclude.clone(),
            schema: types.schema.clone(),
            types: types.types.clone(),
            read: input.read.iter().cloned().collect(),
            write: output.write.iter().cloned().collect(),
            on_schema: types.on_schema,
            on_error: errors.on_error,
            on_changed: errors.on_changed,
            limit: output.limit,
            overwrite: output.overwrite,
            hash_records: ids.hash_records,
            proofs: ids.proofs,
            private: self.private.to_choice(),
            identity: input.identity,
            accept: ids.accept.clone(),
            id_normalize: ids.id_normalize,
            dry_run: output.dry_run,
            index: index_kinds(&indexes.index)?,
            on_name: indexes.on_name,
            missing: errors.missing,
        })
    }
}

impl IdArgs {
    fn subject_source(&self) -> Option<SubjectSource> {
        match (&self.subject_from_path, &self.subject_table) {
            (Some(pattern), _) => Some(SubjectSource::Path(pattern.clone())),
            (None, Some(place)) => Some(SubjectSource::Table { place: place.clone(), column: self.subject.clone() }),
            (None, None) => None,
        }
    }
}
