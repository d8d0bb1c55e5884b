//! The command line as types; the doc comments are the help.

mod block;
mod convert;
mod erase;
mod manifest;
mod proof;
mod undo;

use std::{path::PathBuf, time::Duration};

use arrow::datatypes::Field;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(super) use block::BlockArgs;
pub(super) use convert::ConvertArgs;
pub(super) use erase::EraseArgs;
pub(super) use manifest::{Export, ManifestArgs};
pub(super) use proof::{ProveArgs, VerifyProofArgs};
pub(super) use undo::{RemoveArgs, RevertArgs};

use crate::{
    codec::{Codec, encoding::Encoding},
    dataset::{Arrangement, IdMode, Order, PrivateChoice},
    error::{Error, Result},
    ops::{adopt::AdoptOptions, compact, vacuum::VacuumOptions},
    plan::memory::DEFAULT_MEMORY,
    record::subject::SubjectPattern,
    schema,
    storage::Location,
    units::{Size, parse_duration},
};

/// Turns piles of files and dumps into sized training shards, and knows where every record is.
///
/// With no path at all, every command takes the current folder as its source and ./shards as its dataset;
/// shardify.toml and $SHARDIFY_DATASET name others.
#[derive(Debug, Parser)]
#[command(name = "shardify", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done; 1 the answer is no; 2 wrong usage; 3 done, but records were rejected; \
4 conflict, try again; 5 storage; 6 bad input; 7 a proof whose root was not checked; 8 sources or options differ from \
what the dataset has, say what to do; 70 a bug; 130 interrupted.")]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(super) struct Global {
    /// Print one JSON object per line instead of text
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Threads to work with; all cores unless given. What is written does not depend on it
    #[arg(long, global = true, value_name = "N")]
    pub(super) jobs: Option<usize>,
    /// Memory to work in
    #[arg(long, global = true, value_name = "SIZE", default_value_t = DEFAULT_MEMORY, value_parser = size)]
    pub(super) memory: Size,
    /// Print nothing but the answer and errors
    #[arg(long, short, global = true)]
    pub(super) quiet: bool,
    /// Say more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    /// Show progress on standard error
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ProgressWhen::Auto)]
    pub(super) progress: ProgressWhen,
}

/// What `compact` reads once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum VerifyWhat {
    /// All values of all columns, decoded; all bytes of tar and TFRecord
    Full,
}

/// When progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProgressWhen {
    /// On a terminal
    Auto,
    /// Also where there is no terminal
    Always,
    /// Not at all
    Never,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Turn files, tables and dumps into shards of a dataset
    Convert(Box<ConvertArgs>),
    /// Make a dataset of Parquet, tar or TFRecord shards that are there already, without rewriting them
    ///
    /// Every file is read once, for its checksum, its records and their ids. Files and folders that begin with _ or . are
    /// passed over, and so is what is no shard. The shards are the dataset's from then on: change or delete none of them, and
    /// know that `vacuum` deletes those that a compaction has replaced. Folders key=value are kept, and never merged.
    Adopt(AdoptArgs),
    /// Say what is there, how badly it is cut, and which command to run next
    ///
    /// Reads little: the first bytes of each file, footers of Parquet, a sample of the records; numbers with ~ are estimates.
    ///
    /// The small-file score is the share of the reading time that goes into opening files, in percent, where opening one
    /// costs as long as reading 4 MiB: 0 is fine, 3 is 128 MiB a file, 50 is 4 MiB, at 100 GPUs starve. Small files are those
    /// below an eighth of the target (16 MiB). Columns named like ids are proposed: --id if no value came twice in the
    /// sample.
    Inspect(InspectArgs),
    /// Merge small shards into shards of the right size
    Compact(CompactArgs),
    /// Say what a dataset holds, where a record is, and how it came to be
    Manifest(ManifestArgs),
    /// Check that a dataset is what its log says
    Verify(VerifyArgs),
    /// Delete what no version needs that was current within the retention, and what killed runs left behind
    ///
    /// Files that shardify did not write are never deleted. Shards that were adopted in place are the dataset's: once
    /// a compaction has replaced them and the retention is over, they go.
    Vacuum(VacuumArgs),
    /// Take the records of a wrong file, or of a whole run, out of the newest version
    ///
    /// The opposite of `convert`: older versions keep the records until `vacuum` deletes them, `revert` restores them, and
    /// nothing blocks the source from coming back: where its file still lies among the sources, the next `convert` takes it in
    /// again. To take a person out and keep them out, use `erase`.
    Remove(RemoveArgs),
    /// Make the newest version hold what an older one held
    ///
    /// The revert is a version of its own, and can be reverted. Records that were erased since stay erased.
    Revert(RevertArgs),
    /// Take records out, or all records about a subject, and keep them out
    ///
    /// Touched shards are written anew without the records, read back and compared; the id index and sidecars no longer know
    /// the ids; `convert` leaves them out from then on, and `adopt` refuses files that hold them. Without
    /// --all-versions older versions keep the records until `vacuum` deletes these versions; with it they are read without
    /// the records, and the old bytes are deleted at once. Sources are not touched. Each run leaves a receipt in
    /// _shardify/receipts/. Running it again finishes what was cut short.
    Erase(EraseArgs),
    /// Keep a person out before any record about them arrives
    ///
    /// Records with the id stay out of every later `convert`, which counts them as erased, and `adopt` refuses files that hold
    /// them. Whom the dataset has records of already is erased, not blocked.
    Block(BlockArgs),
    /// Let a person in again who was erased or blocked
    ///
    /// What was erased does not come back: the next `convert` takes records of the person in again, where sources have them.
    /// The log keeps that it was done, when and why.
    Unblock(BlockArgs),
    /// Check a proof that `manifest --prove` wrote; needs no dataset
    VerifyProof(VerifyProofArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

/// Options of every command that writes records.
#[derive(Debug, Args)]
pub(super) struct LineageArgs {
    /// Send OpenLineage events of the run to the end of a file, or to a server; what cannot be delivered is a warning.
    /// $OPENLINEAGE_API_KEY is the server's key, $OPENLINEAGE_NAMESPACE the namespace of the job [default: shardify]
    #[arg(long, value_name = "FILE|URL")]
    pub(super) openlineage: Option<String>,
}

/// Options of commands that take ids into a dataset.
#[derive(Debug, Args)]
pub(super) struct PrivateArgs {
    /// How the dataset stores ids outside of its shards; chosen when it is made [default: plain]
    #[arg(long, value_enum, value_name = "HOW")]
    id_mode: Option<IdModeChoice>,
    /// File with the key of private ids: 32 bytes, raw, in hexadecimal or base64. It is never stored. Default: the key in
    /// $SHARDIFY_ID_KEY
    #[arg(long, value_name = "FILE")]
    pub(super) id_key: Option<PathBuf>,
    /// Store tokens in place of names and URLs of sources, too
    #[arg(long)]
    redact_source_paths: bool,
    /// Make tokens the dataset's own: others with the same key have other tokens; chosen when it is made
    #[arg(long)]
    id_salt: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IdModeChoice {
    /// As they are
    Plain,
    /// As tokens (HMAC-SHA-256) that only who has the key can make; they cannot be turned back
    Hmac,
    /// As tokens, with the id beside each, encrypted: who has the key is shown it
    Sealed,
}

impl PrivateArgs {
    fn choice(&self) -> PrivateChoice {
        let mode = self.id_mode.map(|mode| match mode {
            IdModeChoice::Plain => IdMode::Plain,
            IdModeChoice::Hmac => IdMode::Hmac,
            IdModeChoice::Sealed => IdMode::Sealed,
        });
        PrivateChoice {
            mode,
            redact_sources: self.redact_source_paths,
            salted: self.id_salt,
            key_named: self.id_key.is_some(),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct AdoptArgs {
    /// Folder that holds the shards; it becomes the dataset unless --out names one
    source: String,
    /// Dataset to link the shards into (copied where links are impossible: other file systems, object stores); the source
    /// stays as it is, and must not be changed in place, for links share their bytes
    #[arg(long, value_name = "DATASET")]
    pub(super) out: Option<String>,
    /// Columns of Parquet, or features of TFRecord, that make the record id; default: the sample key, where there is none
    /// the origin (file#row). The id of a sample in tar is always its key
    #[arg(long, value_name = "COLUMN[,COLUMN]", value_delimiter = ',')]
    id: Vec<String>,
    /// Column, or feature, that says whom the record is about
    #[arg(long, value_name = "COLUMN")]
    subject: Option<String>,
    /// Take only files that match
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Leave out files that match
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// A damaged file
    #[arg(long, value_enum, value_name = "HOW", default_value_t = FileErrorChoice::Fail)]
    on_error: FileErrorChoice,
    #[command(flatten)]
    pub(super) private: PrivateArgs,
    #[command(flatten)]
    pub(super) lineage: LineageArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FileErrorChoice {
    /// Stops the run; nothing is committed
    Fail,
    /// Is left out and counted
    Skip,
}

impl AdoptArgs {
    pub(super) fn options(&self, out: Option<Location>) -> AdoptOptions {
        AdoptOptions {
            source: self.source.clone(),
            out,
            id: self.id.clone(),
            subject: self.subject.clone(),
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            private: self.private.choice(),
            skip_errors: self.on_error == FileErrorChoice::Skip,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// A dataset, file, folder, glob or URL; the current folder unless given
    pub(super) source: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct CompactArgs {
    /// The dataset
    pub(super) dataset: Option<String>,
    /// Only shards committed at this point or later: a duration back from now (7d), an instant, a date, a version (v42) or a tag
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only shards committed at this point or earlier
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Size of a shard on disk [default: the dataset's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    target_shard: Option<Size>,
    /// Smallest group of shards worth merging, unless fewer fill a shard
    #[arg(long, value_name = "N", default_value_t = compact::DEFAULT_MIN_INPUTS)]
    min_inputs: usize,
    /// Compression of the new shards (Parquet only) [default: the dataset's]
    #[arg(long, value_name = "CODEC[:LEVEL]", value_parser = codec)]
    codec: Option<Codec>,
    /// Sort the records by columns, ascending, nulls first, ties in record order (Parquet only; encodes anew)
    #[arg(long, value_name = "COLUMN[,COLUMN]", value_delimiter = ',', conflicts_with = "zorder")]
    sort_by: Vec<String>,
    /// Order the records so that those with similar values in all of these columns lie together (Parquet only; encodes
    /// anew)
    #[arg(long, value_name = "COLUMN,COLUMN", value_delimiter = ',')]
    zorder: Vec<String>,
    /// Rewrite at most so much in this run; the rest is left to the next
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with_all = ["sort_by", "zorder"])]
    max_bytes: Option<Size>,
    /// Do not check the checksums inside TFRecord shards; records are compared with what is on record all the same
    #[arg(long)]
    no_check: bool,
    /// Read new shards beside their inputs before the commit, besides comparing checksums
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["sort_by", "zorder"])]
    verify: Option<VerifyWhat>,
    #[command(flatten)]
    pub(super) lineage: LineageArgs,
    /// Print the plan with reasons and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl CompactArgs {
    fn order(&self) -> Option<Order> {
        let order = |by, columns: &[String]| (!columns.is_empty()).then(|| Order { by, columns: columns.to_vec() });
        order(Arrangement::Sort, &self.sort_by).or_else(|| order(Arrangement::ZOrder, &self.zorder))
    }

    pub(super) fn options(&self) -> Result<compact::Options> {
        if self.min_inputs < 2 {
            return Err(Error::usage(format!("expected --min-inputs of 2 or more, found {}", self.min_inputs)));
        }
        Ok(compact::Options {
            target_shard: self.target_shard,
            min_inputs: Some(self.min_inputs),
            since: self.since.clone(),
            until: self.until.clone(),
            codec: self.codec,
            order: self.order(),
            max_bytes: self.max_bytes,
            no_check: self.no_check,
            proof: if self.verify.is_some() { compact::Proof::Full } else { compact::Proof::default() },
            dry_run: self.dry_run,
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The dataset
    pub(super) dataset: Option<String>,
    /// Read every byte of every shard
    #[arg(long)]
    pub(super) read_data: bool,
    /// File with the key of private ids, so that --read-data compares them with the data, too; default: the key in
    /// $SHARDIFY_ID_KEY
    #[arg(long, value_name = "FILE")]
    pub(super) id_key: Option<PathBuf>,
    /// Verify a version (v42), a tag, an instant, a date or a duration back from now
    #[arg(long, value_name = "WHEN")]
    pub(super) at: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct VacuumArgs {
    /// The dataset
    pub(super) dataset: Option<String>,
    /// How long versions stay readable after a newer one replaced them
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = retain)]
    retain: Duration,
    /// Allow to retain less than a day. Only when no other command runs on this dataset: what it has written but not
    /// committed yet would be deleted, except where the store has locks (local folders)
    #[arg(long)]
    force: bool,
    /// Print what would be deleted and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl VacuumArgs {
    pub(super) fn options(&self) -> VacuumOptions {
        VacuumOptions { retain: self.retain, force: self.force, dry_run: self.dry_run }
    }
}

fn retain(text: &str) -> std::result::Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse_duration(text).map_err(|e| one_line(&e)) }
}

/// Says an error of ours on one line, as clap wants it.
fn one_line(error: &Error) -> String {
    std::iter::once(error.to_string()).chain(error.hints().iter().cloned()).collect::<Vec<_>>().join("; ")
}

fn size(text: &str) -> std::result::Result<Size, String> {
    text.parse().map_err(|e| one_line(&e))
}

fn codec(text: &str) -> std::result::Result<Codec, String> {
    text.parse().map_err(|e| one_line(&e))
}

fn delimiter(text: &str) -> std::result::Result<u8, String> {
    match (text, text.as_bytes()) {
        ("\\t" | "tab", _) => Ok(b'\t'),
        (_, [one]) if !matches!(one, b'"' | b'\r' | b'\n') => Ok(*one),
        _ => Err("expected one character, or `tab`".to_owned()),
    }
}

fn subject_pattern(text: &str) -> std::result::Result<SubjectPattern, String> {
    SubjectPattern::parse(text).map_err(|e| one_line(&e))
}

fn encoding(text: &str) -> std::result::Result<Encoding, String> {
    text.parse().map_err(|e| one_line(&e))
}

fn column_type(text: &str) -> std::result::Result<Field, String> {
    let (name, kind) = text.split_once('=').ok_or("expected COLUMN=TYPE")?;
    Ok(schema::file::parse_type(kind).map_err(|e| one_line(&e))?.with_name(name))
}
