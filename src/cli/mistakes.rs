//! Usage errors: makes the suggestions of clap safe to follow, and turns its messages into errors for `--json`.
//!
//! A suggestion is followed without much thought, so none names a command that deletes something.

use clap::{
    builder::StyledStr,
    error::{ContextKind, ContextValue},
};

use super::human::clean;
use crate::{error::Error, storage::plain_argument};

/// Commands that delete, or take records out.
const DELETING: [&str; 4] = ["erase", "remove", "revert", "vacuum"];

/// Commands of other tools, and what does their work here.
const OTHER_COMMANDS: &[(&[&str], &str)] = &[
    (
        &[
            "create", "new", "init", "make", "build", "import", "ingest", "load", "pack", "shard", "add", "append",
            "write",
        ],
        "`shardify convert SOURCE --out DATASET` makes a dataset, or extends one",
    ),
    (&["merge", "concat", "optimize", "optimise", "coalesce"], "`shardify compact DATASET` merges small shards"),
    (
        &["split", "repack", "repartition", "rechunk", "sample", "subset", "filter"],
        "`shardify reshard DATASET --out NEW` cuts a dataset anew; `shardify convert --split` divides records for \
         training",
    ),
    (&["ls", "list", "files"], "`shardify manifest DATASET --list` lists the shards"),
    (&["tag", "name", "label"], "`shardify manifest DATASET --tag NAME` gives a version a name"),
    (
        &["shuffle", "randomize", "permute"],
        "`shardify convert SOURCE --shuffle SEED` shuffles records, and `shardify reshard DATASET --shuffle SEED --out \
         NEW` those of a dataset",
    ),
    (&["sort", "order", "cluster", "zorder"], "`shardify compact DATASET --sort-by COLUMN` sorts the records"),
    (&["dedup", "deduplicate", "distinct", "unique"], "`shardify convert SOURCE --dedup content` omits duplicates"),
    (&["validate", "test", "fsck"], "`shardify verify DATASET` checks its files, `shardify check DATASET` its data"),
    (&["download", "copy", "cp", "sync", "clone"], "`shardify pull DATASET FOLDER` makes a local copy"),
    (&["index"], "`shardify convert SOURCE --index KIND` writes indexes for training tools"),
    (
        &["delete", "rm", "drop", "del", "clean", "gc", "expire", "forget"],
        "there is a command for each purpose: `shardify help remove` (records of a source), `shardify help erase` (a \
         person) and `shardify help vacuum` (files of old versions)",
    ),
    (&["undo", "rollback", "reset", "restore"], "see `shardify help revert`, which restores an older version"),
    (
        &["show", "info", "stat", "stats", "describe", "schema", "analyze", "scan"],
        "`shardify inspect SOURCE` shows what there is",
    ),
    (&["cat", "preview", "peek", "sample-records", "read"], "`shardify head SOURCE` shows the first records"),
    (&["search", "find", "lookup", "grep", "query"], "`shardify manifest DATASET --find ID` finds records"),
    (&["diff", "compare"], "`shardify manifest DATASET --diff v1 v2` compares two versions"),
    (&["log", "history", "versions"], "`shardify manifest DATASET --history` lists the versions"),
    (
        &["export", "dump"],
        "`shardify manifest DATASET --export FORMAT` lists the records; readers open the shards directly",
    ),
    (
        &["serve", "server"],
        "there is no server: readers open the shards directly; `shardify manifest DATASET --list --paths` names them",
    ),
];

/// Options of other tools, the commands where they are likely (all if there are none), and what is meant.
const OTHER_OPTIONS: &[(&[&str], &[&str], &str)] = &[
    (&["--format"], &["convert"], "'--to' is the format of the shards, '--from' that of the inputs"),
    (
        &["--delim", "--sep", "--separator"],
        &["convert", "head", "inspect"],
        "'--delimiter' is the delimiter of delimited text",
    ),
    (
        &["--seed", "--random-state"],
        &["convert", "reshard"],
        "'--shuffle SEED' shuffles, and '--split' takes seed=N after its shares",
    ),
    (
        &[
            "--train-split",
            "--val-split",
            "--test-split",
            "--train-size",
            "--test-size",
            "--val-size",
            "--splits",
            "--split-ratio",
            "--ratio",
        ],
        &["convert"],
        "'--split train=0.8,val=0.1,test=0.1' makes splits",
    ),
    (&["--skip", "--skip-rows", "--skiprows"], &["convert"], "notes above a table are skipped without an option"),
    (
        &["--na-values", "--null-values", "--nullstr", "--nan"],
        &["convert"],
        "'--null NA,N/A' names texts to treat as null",
    ),
    (
        &["--dtype", "--dtypes", "--types", "--column-types"],
        &["convert"],
        "'--type COLUMN=TYPE' sets the type of a column",
    ),
    (
        &["--ignore-errors", "--keep-going", "--skip-errors", "--on-bad-lines"],
        &["convert"],
        "'--on-error skip' skips bad records, '--on-error quarantine' keeps them in a file",
    ),
    (&["--max-memory", "--mem", "--memory-limit", "--ram"], &[], "'--memory' is the memory limit"),
    (&["--filter", "--query", "--predicate"], &["convert"], "'--where' is a condition that rows must meet"),
    (&["--select", "--usecols", "--fields", "--features"], &["convert"], "'--columns' names the columns to keep"),
    (&["--key-column", "--primary-key", "--record-id"], &["convert"], "'--id' names the columns of the record id"),
    (
        &["--patient", "--patient-id", "--subject-id", "--group", "--group-by"],
        &["convert"],
        "'--subject' names the column of the subject id",
    ),
    (
        &["--label", "--target"],
        &["convert"],
        "'--labels FILE' takes labels from a table, '--label-from-folder' from folders",
    ),
    (
        &["--shuffle-buffer", "--buffer-size"],
        &["convert"],
        "'--shuffle SEED' shuffles all records exactly, without a buffer",
    ),
    (
        &["--head", "--max-records", "--nrows"],
        &["convert"],
        "'--limit N' converts only the first records, 'shardify head' shows them",
    ),
    (
        &["--version-id", "--as-of"],
        &["manifest", "verify", "head", "report", "check"],
        "'--at' names a version, a tag or a time",
    ),
    (
        &["--days", "--older-than", "--retention", "--keep"],
        &["vacuum"],
        "'--retain' is how long old versions stay, such as 30d",
    ),
    (
        &["--id", "--ids-of", "--patient"],
        &["erase"],
        "'--record' or '--subject' precedes an id, and an id alone is either",
    ),
    (&["--split"], &["head", "report", "verify"], "name the folder of the split: shardify head DATASET/*/split=val"),
    (
        &["--stratify", "--stratified"],
        &["convert"],
        "'--split' divides by a hash of the id; '--split-by COLUMN' keeps equal values together",
    ),
    (&["--charset"], &["convert"], "'--encoding' is the encoding of text"),
    (&["--row-group-size"], &["convert"], "'--row-group' is the size of a row group"),
    (&["--workers", "--threads", "--num-workers", "--processes"], &[], "'--jobs' is the number of threads"),
    (
        &["--output-dir", "--outdir", "--dest", "--destination", "--dataset"],
        &["convert", "reshard"],
        "'--out' is the dataset",
    ),
    (
        &["-i", "--input", "--source", "--path"],
        &["convert"],
        "inputs are given without an option: shardify convert SOURCE --out DATASET",
    ),
    (
        &["--maxcount", "--samples-per-shard", "--rows-per-shard"],
        &["convert", "reshard"],
        "'--records-per-shard' is the number of records of each shard",
    ),
    (&["--maxsize", "--max-shard-size"], &["convert", "reshard"], "'--target-shard' is the size of a shard"),
    (&["--num-shards", "--n-shards"], &["convert", "reshard"], "'--shards' is the number of shards"),
    (&["-r", "--recursive"], &["convert", "inspect"], "folders are always read with the folders in them"),
    (
        &["--force", "-f", "--append"],
        &["convert"],
        "a run adds to the dataset; '--overwrite' replaces all of its records",
    ),
    (
        &["--compression", "--codec"],
        &["reshard"],
        "the new shards keep the codec of the dataset; 'convert DATASET --codec CODEC --out NEW' changes it",
    ),
    (&["-o", "--out", "--output"], &["pull"], "the folder is the second argument: shardify pull DATASET FOLDER"),
];

/// Values that options do not have, the options, and what to do instead.
const OTHER_VALUES: &[(&[&str], &[&str], &str)] = &[
    (&["--from"], &["xlsx", "xlsm", "xlsb", "xls", "ods"], "'--from excel' takes workbooks of all kinds"),
    (&["--from"], &["zip", "7z", "rar"], "unpack the archive, and convert the folder"),
    (
        &["--from"],
        &["orc", "sqlite", "sql", "pickle", "pkl", "mds", "litdata", "lance"],
        "write it as Parquet with the library that reads it, and convert that",
    ),
    (&["--from"], &["dicom", "dcm", "images", "jpg", "png"], "'--from files' makes samples of files of any kind"),
    (
        &["--to"],
        &["csv", "jsonl", "json", "arrow", "hdf5", "zarr", "mds", "litdata", "lance", "delta", "iceberg"],
        "shards are parquet, tar or tfrecord; '--index delta' adds a Delta log to Parquet",
    ),
    (
        &["--on-error"],
        &["ignore", "continue", "warn", "drop"],
        "'skip' counts bad records, 'quarantine' keeps them in a file",
    ),
    (&["--codec", "--compression"], &["gz", "zip"], "'gzip' is the codec"),
    (&["--codec", "--compression"], &["brotli", "br", "bz2", "bzip2", "xz", "lzma"], "'zstd:19' is the smallest"),
];

/// Returns the error with the user's words as they may be printed: without control characters and secrets of URLs.
pub(super) fn printable_error(mut error: clap::Error) -> clap::Error {
    let shown = |text: &str| clean(&plain_argument(text)).into_owned();
    let kinds = [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand];
    for kind in kinds.into_iter().chain([ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand]) {
        let value = match error.get(kind) {
            Some(ContextValue::String(text)) => ContextValue::String(shown(text)),
            Some(ContextValue::Strings(texts)) => ContextValue::Strings(texts.iter().map(|text| shown(text)).collect()),
            _ => continue,
        };
        error.insert(kind, value);
    }
    error
}

/// Returns the error with suggestions that are safe to follow.
pub(super) fn with_safe_suggestions(mut error: clap::Error) -> clap::Error {
    let suggested = error.remove(ContextKind::SuggestedSubcommand);
    let names = match suggested {
        Some(ContextValue::String(name)) => vec![name],
        Some(ContextValue::Strings(names)) => names,
        _ => Vec::new(),
    };
    if let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) {
        let known = OTHER_COMMANDS.iter().find(|(others, _)| others.contains(&given.as_str()));
        let safe: Vec<String> = names.into_iter().filter(|name| !DELETING.contains(&name.as_str())).collect();
        match known {
            Some((_, tip)) => set_tip(&mut error, tip),
            None if !safe.is_empty() => {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(safe));
            }
            None => {}
        }
        return error;
    }
    let command = command_of(&error);
    let meant = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(given)) => equivalent_option(given, command.as_deref()),
        _ => None,
    };
    if let (Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
        && let Some(tip) = meant_value(option, value)
    {
        set_tip(&mut error, tip);
        return error;
    }
    match meant {
        Some(tip) => {
            error.remove(ContextKind::SuggestedArg);
            // The usage line is that of the option which clap took for the closest.
            error.remove(ContextKind::Usage);
            set_tip(&mut error, &tip);
        }
        // "To pass it as a value, use --" is of use where a value may begin like an option: for ids.
        None if error.kind() == clap::error::ErrorKind::UnknownArgument && command.as_deref() != Some("erase") => {
            error.remove(ContextKind::Suggested);
        }
        None => {}
    }
    error
}

/// Returns what to do instead of giving an option a value that it does not have.
fn meant_value(option: &str, value: &str) -> Option<&'static str> {
    let option = option.split([' ', '=']).next()?;
    let value = value.to_ascii_lowercase();
    let value = value.split(':').next()?;
    let known = OTHER_VALUES.iter().find(|(options, values, _)| options.contains(&option) && values.contains(&value));
    known.map(|(.., tip)| *tip)
}

/// Sets the only tip of an error.
fn set_tip(error: &mut clap::Error, tip: &str) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip.to_owned())]));
}

/// Returns what an option of another tool is called here.
fn equivalent_option(given: &str, command: Option<&str>) -> Option<String> {
    let of_command = |commands: &[&str]| commands.is_empty() || command.is_some_and(|name| commands.contains(&name));
    let known = OTHER_OPTIONS.iter().find(|(others, commands, _)| others.contains(&given) && of_command(commands));
    let is_output = matches!(given, "-o" | "--out" | "--output");
    match (known, command?) {
        (None, "manifest") if !given.starts_with('-') => {
            Some(format!("'--find {given}' finds the records of an id: shardify manifest DATASET --find {given}"))
        }
        (Some((_, _, tip)), _) => Some((*tip).to_owned()),
        (None, "inspect" | "head" | "manifest" | "verify") if is_output => {
            Some("the answer goes to standard output: add > FILE".to_owned())
        }
        (None, "compact") if is_output => {
            Some("a compaction is a version of the dataset itself; 'reshard --out' makes another dataset".to_owned())
        }
        _ => None,
    }
}

/// Returns the command that an error is about, from its usage line.
fn command_of(error: &clap::Error) -> Option<String> {
    let usage = error.get(ContextKind::Usage)?.to_string();
    let mut words = usage.split_whitespace().skip_while(|word| *word != "shardify").skip(1);
    match words.next()? {
        "plan" => words.next().map(str::to_owned),
        command => Some(command.to_owned()),
    }
}

/// Returns the mistake as an error of the program: the first line is the message, tips are hints.
pub(super) fn as_error(error: &clap::Error) -> Error {
    let text = error.to_string();
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_message =
        |line: &&str| !line.starts_with("tip:") && !line.starts_with("Usage:") && !line.starts_with("For more");
    let message = lines().take_while(is_message).collect::<Vec<_>>().join(" ");
    let tips = lines().filter_map(|line| line.strip_prefix("tip:"));
    let result = Error::usage(message.strip_prefix("error:").unwrap_or(&message).trim().to_owned());
    tips.fold(result, |result, tip| result.with_hint(tip.trim().to_owned()))
}
