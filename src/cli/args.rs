//! The command line as types. Doc comments are the help: the first paragraph is a line of `-h`, all of it is `--help`.

mod bench;
mod block;
mod check;
mod choices;
mod convert;
mod erase;
mod head;
mod indexes;
mod manifest;
mod plan;
mod proof;
mod pull;
mod report;
mod reshard;
mod runs;
mod undo;

use std::{path::PathBuf, time::Duration};

use arrow::datatypes::Field;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

pub(super) use bench::BenchArgs;
pub(super) use block::BlockArgs;
pub(super) use check::CheckArgs;
pub(super) use convert::ConvertArgs;
pub(super) use erase::EraseArgs;
pub(super) use head::HeadArgs;
pub(super) use manifest::{Export, ManifestArgs};
pub(super) use plan::{CommitArgs, Manifest, PlanAdoptArgs, PlanArgs, PlanCommand, PlanCompactArgs, RunTaskArgs};
pub(super) use proof::{ProveArgs, VerifyProofArgs};
pub(super) use pull::PullArgs;
pub(super) use report::ReportArgs;
pub(super) use reshard::ReshardArgs;
pub(super) use runs::{RunsArgs, expect_ids};
pub(super) use undo::{RemoveArgs, RevertArgs};

use self::{choices::choice, head::InputArgs};
use crate::{
    codec::Codec,
    dataset::{Arrangement, IdMode, Order, PrivateChoice},
    error::{Error, Result},
    ops::{
        adopt::AdoptOptions, compact, convert::column_type as named_type, inspect::InspectOptions,
        vacuum::VacuumOptions,
    },
    plan::memory::DEFAULT_MEMORY,
    record::subject::SubjectPattern,
    storage::Location,
    units::{Size, parse_duration},
};

/// Turns files, dumps and arrays into training shards, and finds every record.
///
/// Without a path, a command reads the current folder and uses the dataset of shardify.toml, else the one of
/// $SHARDIFY_DATASET, else ./shards. shardify.toml may set most options of every command.
#[derive(Debug, Parser)]
#[command(name = "shardify", version, propagate_version = true, max_term_width = 100)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(super) struct Global {
    /// Number of threads [default: all cores].
    ///
    /// The shards do not depend on it. At most four threads are started for each core.
    #[arg(long, short = 'j', global = true, value_name = "N", value_parser = threads, help_heading = "Resources")]
    pub(super) jobs: Option<std::num::NonZeroUsize>,
    /// Memory limit.
    ///
    /// The records of the shards do not depend on it. Sizes of row groups, and with them the bytes of shards, do below
    /// 16 times --write row-group, which is the default, and with --split below twice that for each further split.
    #[arg(long, global = true, value_name = "SIZE", default_value = exact(DEFAULT_MEMORY), value_parser = size,
          help_heading = "Resources")]
    pub(super) memory: Size,
    /// Print one JSON object per line.
    ///
    /// The last object has the type `summary`, unless the command fails: then standard error ends with an object of the
    /// type `error`. Nothing else is printed to standard output.
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(super) json: bool,
    /// Print no progress, notes or summary.
    ///
    /// Answers of queries (inspect, manifest, verify-proof), the objects of --json, damage that verify finds, warnings
    /// and errors are still printed.
    #[arg(long, short, global = true, help_heading = GLOBAL)]
    pub(super) quiet: bool,
    /// Print more details, such as complete lists.
    #[arg(long, short, global = true, action = ArgAction::Count, help_heading = GLOBAL, hide_short_help = true)]
    pub(super) verbose: u8,
    /// When to show progress on standard error.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ProgressWhen::Auto,
        help_heading = GLOBAL,
          hide_short_help = true)]
    pub(super) progress: ProgressWhen,
    /// Print help; --help shows all options and examples.
    ///
    /// -h prints a summary of the most used options.
    #[arg(long, short, global = true, action = ArgAction::Help, help_heading = GLOBAL)]
    help: Option<bool>,
    /// Print the version.
    #[arg(long, short = 'V', global = true, action = ArgAction::Version, help_heading = GLOBAL, hide_short_help = true)]
    version: Option<bool>,
}

/// Heading of options that are the same for every command.
const GLOBAL: &str = "Global options";

/// What `compact` verifies before the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum VerifyWhat {
    /// Decode and compare all values of Parquet; compare all bytes of tar and TFRecord
    Full,
}

/// When progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProgressWhen {
    /// If standard error is a terminal, and not with --quiet
    Auto,
    /// Always; without a terminal, as a line per second
    Always,
    /// Never
    Never,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Convert files, tables, archives and arrays into shards.
    ///
    /// Inputs that the dataset already has are skipped, so the same command can be repeated as data arrives. All shards
    /// of a run become visible in one version, or none.
    Convert(Box<ConvertArgs>),
    /// Make a dataset of existing shards without rewriting them.
    ///
    /// These are Parquet, tar and TFRecord files, which the dataset registers.
    ///
    /// Each file is read once, for its checksum, records and ids. Files that are not shards, and files and folders
    /// whose names begin with _ or ., are ignored. The dataset owns the shards afterwards: do not change or delete
    /// them; `vacuum` deletes those that a compaction has replaced. Folders KEY=VALUE are kept, and shards of different
    /// folders are never merged.
    Adopt(AdoptArgs),
    /// Show formats, sizes and columns of files, and the next command.
    ///
    /// Only the first bytes of each file, Parquet footers and a sample of the records are read; numbers with ~ are
    /// estimates.
    ///
    /// If the next command is `convert` and the source has 16 MiB or more, a sample is converted into memory for about
    /// half a second, to say what the command will take on this machine: the object `cost` of --json. It has no
    /// estimate of a sample that cannot be converted, and the time to write shards to a slow disk or over a network is
    /// not in it.
    ///
    /// The small-file score is the percentage of the reading time that is spent on opening files, if opening a file
    /// takes as long as reading 4 MiB: files of 128 MiB have 3, files of 4 MiB have 50. Small files are those below 16
    /// MiB, an eighth of the default target. A column that looks like an id, without repeated values in the sample, is
    /// suggested for --id.
    Inspect(InspectArgs),
    /// Show the first records of a dataset, file or folder.
    ///
    /// Rows are a table with the types of its columns, or lists of values where the terminal is too narrow. Samples are
    /// lists of their members with media type and size. Every source of `convert` can be shown, and no more of it is
    /// read than necessary.
    Head(HeadArgs),
    /// Describe a dataset or source as text, JSON or one HTML page.
    ///
    /// Versions, sizes, columns with ranges, nulls and frequent values, drift, rejected records, lineage and pictures.
    /// Counts, nulls and ranges are exact where the log, sidecars and Parquet footers state them; distributions come
    /// from all records of small inputs, else from a sample of at most 65,536 records, and the report says which. Ids
    /// of private datasets and the names of their sources are not shown.
    Report(ReportArgs),
    /// Benchmark loading: original files vs. shards.
    ///
    /// Readers take records from the source, as a loader of files does, and from the dataset, with an empty and with a
    /// full page cache: records and bytes per second, time to the first batch, files opened, and the share of time that
    /// a training step waits. Records are not decoded further, so pictures stay JPEG. `python -m shardify.bench`
    /// measures the loaders that are installed.
    Bench(BenchArgs),
    /// Merge small shards, and divide large ones.
    ///
    /// Records keep their ids and order, and lookups find them in the new shards. Old shards stay readable in older
    /// versions until `vacuum` deletes them.
    Compact(CompactArgs),
    /// Show a dataset, find records, compare and export versions.
    ///
    /// Without options, a summary of the newest version is printed.
    Manifest(ManifestArgs),
    /// Copy a version of a dataset to a local disk, checked.
    ///
    /// Every byte is compared with the checksums of the dataset. The copy is a dataset: records are found in it, and
    /// `verify` checks it. Each pull is a version of the copy, and fetches only what the copy lacks. A pull that was
    /// interrupted continues when it is run again.
    Pull(PullArgs),
    /// Training runs: what they read, and which steps saw a record.
    ///
    /// A trainer records a run with `loader.record(NAME)` of the Python package. The order of a loader is a function of
    /// the version, the seed and a few numbers, so a run stores no list of what it read: the steps of a record are
    /// computed. Exit code 1 of --find: no run saw it.
    Runs(RunsArgs),
    /// Rewrite a dataset with different shard sizes, or a subset of it.
    ///
    /// Members of tar, records of TFRecord and row groups of Parquet are copied as they are stored; only compressed
    /// units and row groups that are divided are decoded. The new dataset finds its records by their ids, states their
    /// origin, and names the dataset and the version that it was cut from. The old dataset is not changed.
    Reshard(ReshardArgs),
    /// Validate the data against rules, as a gate for pipelines.
    ///
    /// Rules state how old, how large and how different from another version the data may be, which columns of which
    /// types there must be, which values columns may have, and that nobody is in two splits. Exit code 1 if a
    /// rule fails. Columns are read once, and only where Parquet footers do not decide.
    Check(CheckArgs),
    /// Check a dataset against its log.
    ///
    /// Exit code 1 if something is damaged or missing.
    Verify(VerifyArgs),
    /// Delete files that no retained version needs.
    ///
    /// These are shards and indexes of versions older than the retention, and files of runs that were killed. Files
    /// that shardify did not write are kept. Adopted shards belong to the dataset: they are deleted once a compaction
    /// has replaced them and the retention is over.
    Vacuum(VacuumArgs),
    /// Remove the records of an input or a run from the newest version.
    ///
    /// This undoes `convert`: older versions keep the records until `vacuum` deletes them, and `revert` restores them.
    /// The next `convert` reads the input again if it is still there. To remove a person for good, use `erase`.
    Remove(RemoveArgs),
    /// Restore the content of an older version as a new version.
    ///
    /// A revert can be reverted. Records that were erased since then stay erased.
    Revert(RevertArgs),
    /// Erase records or subjects, and block their re-import.
    ///
    /// Affected shards are rewritten without the records, read back and compared, and the ids are removed from the id
    /// index. Afterwards `convert` skips records with these ids, and `adopt` refuses files that contain them. Without
    /// --all-versions, older versions keep the records until `vacuum` deletes those versions. Inputs are not changed.
    /// Each run writes a receipt to _shardify/receipts/. Run the command again to finish an erasure that was
    /// interrupted.
    Erase(EraseArgs),
    /// Block ids that the dataset has no records of yet.
    ///
    /// Later runs of `convert` skip records with these ids and count them as erased, and `adopt` refuses files that
    /// contain them. If the dataset has records of an id already, use `erase`.
    Block(BlockArgs),
    /// Allow ids that were erased or blocked.
    ///
    /// Erased records do not come back by themselves: the next `convert` reads them again if an input has them. The log
    /// keeps what was allowed, when and why.
    Unblock(BlockArgs),
    /// Plan a conversion as tasks for several processes or machines.
    ///
    /// The plan is stored in the dataset. Each task is run by `run-task`, anywhere and in any order, and `commit` makes
    /// one version of all of them. `convert` does the same by itself if its inputs are larger than --task-size.
    Plan(PlanArgs),
    /// Run tasks of a plan.
    ///
    /// Nothing is visible before `commit`. A task that was run before ends at once, so it can be repeated after a
    /// failure. Exit codes 4 and 5 are worth another attempt, 2 and 6 are not.
    RunTask(RunTaskArgs),
    /// Commit a plan whose tasks have all been run.
    ///
    /// If a task is missing, nothing is committed, and the exit code is 4. If a value fitted no column, the answer is
    /// the next plan, with wider types.
    Commit(CommitArgs),
    /// Check a proof made by `manifest`, without the dataset.
    ///
    /// Exit code 0 if the proof holds, 1 if it does not, 7 if it holds but its root was not checked.
    VerifyProof(VerifyProofArgs),
    /// Print completions for a shell.
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
    /// Print or write manual pages.
    Man {
        /// Folder for the pages of all commands, such as ~/.local/share/man/man1.
        ///
        /// The folder is created. The pages are shardify.1, shardify-convert.1 and so on.
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
}

/// Options of every command that writes records.
#[derive(Debug, Args)]
pub(super) struct LineageArgs {
    /// File or URL to send OpenLineage events to.
    ///
    /// Events are appended to a file, or posted to a server with the key in $OPENLINEAGE_API_KEY.
    /// $OPENLINEAGE_NAMESPACE is the namespace of the job [default: shardify]. An event that cannot be delivered is a
    /// warning.
    #[arg(long, value_name = "FILE|URL", help_heading = IDS, hide_short_help = true)]
    pub(super) openlineage: Option<String>,
}

/// Options of commands that store ids in a dataset.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ids and lineage")]
pub(super) struct PrivateArgs {
    /// How a new dataset stores ids outside of its shards [default: plain].
    #[arg(long, value_parser = choice::<IdMode>(), value_name = "HOW", hide_short_help = true)]
    id_mode: Option<IdMode>,
    /// File with the key of private ids.
    ///
    /// The default is the key in $SHARDIFY_ID_KEY. A key is 32 bytes, raw, in hexadecimal or in base64. It is never
    /// stored in the dataset.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(super) id_key: Option<PathBuf>,
    /// Also store tokens in place of the names and URLs of inputs.
    #[arg(long, hide_short_help = true)]
    redact_source_paths: bool,
    /// Salt the tokens of a new dataset.
    ///
    /// Tokens then differ from those of other datasets with the same key.
    #[arg(long, hide_short_help = true)]
    id_salt: bool,
}

/// Heading of options about ids and lineage.
const IDS: &str = "Ids and lineage";

impl PrivateArgs {
    fn to_choice(&self) -> PrivateChoice {
        PrivateChoice {
            mode: self.id_mode,
            redact_sources: self.redact_source_paths,
            salted: self.id_salt,
            key_named: self.id_key.is_some(),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct AdoptArgs {
    /// Folder of the shards; becomes the dataset unless --out is given.
    source: String,
    /// Adopt only files that match; may be repeated.
    #[arg(long, value_name = "GLOB", help_heading = "Input")]
    include: Vec<String>,
    /// Skip files that match; may be repeated.
    #[arg(long, value_name = "GLOB", help_heading = "Input")]
    exclude: Vec<String>,
    /// Dataset to link the shards into [default: SOURCE].
    ///
    /// Shards are hard links where the file system allows it, and copies elsewhere, as in object stores. The source
    /// folder is not changed. Do not change its files in place afterwards: a link shares their bytes.
    #[arg(long, short = 'o', alias = "output", value_name = "DATASET", help_heading = "Output")]
    pub(super) out: Option<String>,
    /// Columns or features of the record id.
    ///
    /// Parquet has columns, TFRecord features. Without --id, the record id is the sample key, else the origin,
    /// file#row. The record id of a tar sample is always its key.
    #[arg(long, value_name = "COLUMN[,COLUMN]", value_delimiter = ',', help_heading = IDS)]
    id: Vec<String>,
    /// Column or feature of the subject id.
    ///
    /// The subject is the person, or the thing, that a record is about.
    #[arg(long, value_name = "COLUMN", help_heading = IDS)]
    subject: Option<String>,
    /// Keep the content hash of every row of Parquet.
    ///
    /// The dataset keeps the choice. Samples, and records of tar and TFRecord, have hashes without it.
    #[arg(long, help_heading = IDS, hide_short_help = true)]
    hash_records: bool,
    /// Make a dataset whose versions can be proved to have an id, or not to have it.
    ///
    /// `manifest --prove` needs whole hashes of ids in the id index. A dataset keeps the choice with which it was made.
    #[arg(long, help_heading = IDS, hide_short_help = true)]
    proofs: bool,
    #[command(flatten)]
    pub(super) private: PrivateArgs,
    #[command(flatten)]
    pub(super) lineage: LineageArgs,
    /// How to treat damaged files.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = FileErrorChoice::Fail, help_heading = "Errors")]
    on_error: FileErrorChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FileErrorChoice {
    /// Stop; nothing is committed
    Fail,
    /// Skip and count it
    Skip,
}

impl AdoptArgs {
    pub(super) fn to_options(&self, out: Option<Location>) -> AdoptOptions {
        AdoptOptions {
            source: self.source.clone(),
            out,
            id: self.id.clone(),
            subject: self.subject.clone(),
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            hash_records: self.hash_records,
            proofs: self.proofs,
            private: self.private.to_choice(),
            skip_errors: self.on_error == FileErrorChoice::Skip,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// Dataset, file, folder, glob or URL [default: current folder].
    source: Option<String>,
    #[command(flatten)]
    input: InputArgs,
}

impl InspectArgs {
    /// Returns what to inspect.
    pub(super) fn to_options(&self) -> InspectOptions {
        let source = self.source.as_deref().unwrap_or(".").to_owned();
        InspectOptions { source, from: self.input.from, read: self.input.settings() }
    }
}

#[derive(Debug, Args)]
pub(super) struct CompactArgs {
    /// Dataset or Delta table [default: ./shards].
    ///
    /// Small files of a Delta table of other programs, a folder with a _delta_log, are merged as OPTIMIZE does.
    pub(super) dataset: Option<String>,
    /// Merge only shards committed at this time or later.
    ///
    /// A time is a duration before now (7d), an instant, a date, a version (v42) or a tag.
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    since: Option<String>,
    /// Merge only shards committed at this time or earlier.
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    until: Option<String>,
    /// Minimum number of shards to merge.
    ///
    /// Fewer are merged if they fill a shard.
    #[arg(long, value_name = "N", default_value_t = compact::DEFAULT_MIN_INPUTS, help_heading = "Selection")]
    min_inputs: usize,
    /// Rewrite at most this much; later runs do the rest.
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with_all = ["sort_by", "zorder"],
          help_heading = "Selection")]
    max_bytes: Option<Size>,
    /// Shard size on disk [default: as before].
    ///
    /// The dataset keeps it for later runs of `compact` and `convert`. Of a Delta table the default is
    /// delta.targetFileSize, or else 128 MiB.
    #[arg(long, alias = "shard-size", value_name = "SIZE", value_parser = size, help_heading = "Output")]
    target_shard: Option<Size>,
    /// Parquet compression [default: as before].
    ///
    /// none, zstd, lz4, snappy or gzip; a level may follow, as in zstd:3.
    #[arg(long, alias = "compression", value_name = "CODEC[:LEVEL]", value_parser = codec, help_heading = "Output")]
    codec: Option<Codec>,
    /// Sort the records by columns.
    ///
    /// Parquet only. Ascending, nulls first; equal records keep their order. All shards are decoded and encoded again.
    #[arg(
        long,
        value_name = "COLUMN[,COLUMN]",
        value_delimiter = ',',
        conflicts_with = "zorder",
        help_heading = "Output"
    )]
    sort_by: Vec<String>,
    /// Cluster the records by several columns.
    ///
    /// Parquet only. A Z-order curve places records with similar values in all of the columns near each other. All
    /// shards are decoded and encoded again.
    #[arg(long, value_name = "COLUMN,COLUMN", value_delimiter = ',', help_heading = "Output")]
    zorder: Vec<String>,
    /// Print the plan without writing anything.
    ///
    /// The plan gives a reason for each shard.
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
    /// Verify new shards against their inputs.
    ///
    /// This happens before the commit, in addition to the checksums.
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["sort_by", "zorder"], help_heading = "Errors")]
    verify: Option<VerifyWhat>,
    /// Do not check the checksums inside TFRecord shards.
    ///
    /// Records are still compared with the hashes in the dataset.
    #[arg(long, help_heading = "Errors", hide_short_help = true)]
    no_check: bool,
    #[command(flatten)]
    pub(super) lineage: LineageArgs,
}

impl CompactArgs {
    fn sort_order(&self) -> Option<Order> {
        let order = |by, columns: &[String]| (!columns.is_empty()).then(|| Order { by, columns: columns.to_vec() });
        order(Arrangement::Sort, &self.sort_by).or_else(|| order(Arrangement::ZOrder, &self.zorder))
    }

    pub(super) fn to_options(&self) -> Result<compact::Options> {
        if self.min_inputs < 2 {
            return Err(Error::usage(format!("expected --min-inputs of 2 or more, found {}", self.min_inputs)));
        }
        Ok(compact::Options {
            target_shard: self.target_shard,
            min_inputs: Some(self.min_inputs),
            since: self.since.clone(),
            until: self.until.clone(),
            codec: self.codec,
            order: self.sort_order(),
            max_bytes: self.max_bytes,
            no_check: self.no_check,
            proof: if self.verify.is_some() { compact::ProofLevel::Full } else { compact::ProofLevel::default() },
            dry_run: self.dry_run,
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Dataset [default: ./shards].
    pub(super) dataset: Option<String>,
    /// Version to verify [default: the newest].
    ///
    /// A version (v42), a tag, an instant, a date or a duration before now.
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    pub(super) at: Option<String>,
    /// Read every byte of every shard.
    ///
    /// Without it, the log, lists, sidecars and indexes are checked, and that shards exist with the right size.
    #[arg(long, help_heading = "Selection")]
    pub(super) read_data: bool,
    /// File with the key of private ids.
    ///
    /// The default is the key in $SHARDIFY_ID_KEY. With a key, --read-data also compares private ids with the data.
    #[arg(long, value_name = "FILE", help_heading = IDS)]
    pub(super) id_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct VacuumArgs {
    /// Dataset, or a Delta table [default: ./shards].
    pub(super) dataset: Option<String>,
    /// Time that replaced versions stay readable [default: 7d].
    ///
    /// A number with a unit: s, m, h, d or w; 0 needs --force. The default for a Delta table is its property
    /// delta.deletedFileRetentionDuration; less than that needs --force.
    #[arg(long, value_name = "DURATION", value_parser = retain, help_heading = "Selection")]
    retain: Option<Duration>,
    /// Allow a retention of less than a day, or than a Delta table states.
    ///
    /// Use it only while no other command runs on the dataset: files that a command has written but not committed yet
    /// would be deleted, except in local folders, where they are locked. Files of a Delta table that running queries
    /// still read would be deleted.
    #[arg(long, help_heading = "Selection")]
    force: bool,
    /// Print what would be deleted without deleting anything.
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
}

impl VacuumArgs {
    pub(super) fn to_options(&self) -> VacuumOptions {
        VacuumOptions { retain: self.retain, force: self.force, dry_run: self.dry_run }
    }
}

fn retain(text: &str) -> std::result::Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse_duration(text).map_err(|e| one_line(&e)) }
}

/// Writes a size as the option takes it, without loss: `128MiB`.
fn exact(size: Size) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = units.into_iter().find(|(_, shift)| size.0 > 0 && size.0.trailing_zeros() >= *shift);
    whole.map_or_else(|| size.0.to_string(), |(unit, shift)| format!("{}{unit}", size.0 >> shift))
}

/// Writes an error and its hints on one line, as clap expects it.
fn one_line(error: &Error) -> String {
    std::iter::once(error.to_string()).chain(error.hints().iter().cloned()).collect::<Vec<_>>().join("; ")
}

fn size(text: &str) -> std::result::Result<Size, String> {
    text.parse().map_err(|e| one_line(&e))
}

fn count(text: &str) -> std::result::Result<u64, String> {
    let found = text.parse::<u64>().ok().filter(|number| *number > 0);
    found.ok_or_else(|| format!("expected a whole number of 1 or more, found `{text}`"))
}

fn threads(text: &str) -> std::result::Result<std::num::NonZeroUsize, String> {
    let found = text.parse().ok();
    found.ok_or_else(|| {
        format!("expected a number of threads of 1 or more, found `{text}`; without --jobs, all cores are used")
    })
}

fn codec(text: &str) -> std::result::Result<Codec, String> {
    text.parse().map_err(|e| one_line(&e))
}

fn subject_pattern(text: &str) -> std::result::Result<SubjectPattern, String> {
    SubjectPattern::parse(text).map_err(|e| one_line(&e))
}

fn column_type(text: &str) -> std::result::Result<Field, String> {
    let (name, kind) = text.split_once('=').ok_or("expected COLUMN=TYPE")?;
    named_type(name, kind).map_err(|e| one_line(&e))
}
