//! The help of all commands: what clap makes of [`args`](super::args), with colours, examples, exit codes and
//! explanations of values.
//!
//! `-h` fits a screen, so values are explained in `--help` only. Help, man page, completions and the reference are
//! rendered from the same command.

use std::fmt::Write as _;

use clap::{
    Arg, Command, CommandFactory,
    builder::styling::{AnsiColor, Styles},
};

use super::{args::Cli, exit};

/// Colours of help and of usage errors, as cargo has them.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default())
    .error(AnsiColor::Red.on_default().bold())
    .valid(AnsiColor::Cyan.on_default().bold())
    .invalid(AnsiColor::Yellow.on_default());

/// Examples of each command: what it is for, and a line for a shell. `tests/reference.rs` runs all of them, in this
/// order, in one folder.
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "shardify",
        &[
            ("Show formats and sizes of the files in raw/, and the next command", "shardify inspect raw"),
            ("Convert them into the dataset ./shards", "shardify convert raw --subject person_id"),
            ("Find every record of subject 7", "shardify manifest --find 7"),
        ],
    ),
    (
        "convert",
        &[
            ("Preview a conversion", "shardify convert raw --subject person_id --dry-run"),
            (
                "Add the new files of raw/ to ./shards; run it again as files arrive",
                "shardify convert raw --subject person_id",
            ),
            (
                "Set a column type and write bad records to a rejects file",
                "shardify convert people.csv --out people --id id --type name=text --on-error quarantine",
            ),
            (
                "Pack images into tar shards with indexes for DALI",
                "shardify convert images --out images-tar --to tar --index dali",
            ),
            (
                "Cut the maps of a NetCDF file into patches",
                "shardify convert grid.nc --out patches --read record-dim=time --read patch=lat=2,lon=2",
            ),
            (
                "Divide patients for training and evaluation",
                "shardify convert raw --out divided --subject person_id --split train=0.8,val=0.1,test=0.1",
            ),
            ("Keep what proofs about people need", "shardify convert people.csv --out proved --id id --proofs"),
            ("Read CSV from standard input", "cat people.csv | shardify convert - --from csv --out piped"),
        ],
    ),
    (
        "adopt",
        &[
            (
                "Make a dataset of Parquet files, linked into another folder",
                "shardify adopt train --out linked --id id",
            ),
            ("Register the shards where they are", "shardify adopt train --id id"),
        ],
    ),
    (
        "inspect",
        &[
            ("Inspect a folder", "shardify inspect raw"),
            ("Inspect the files that match a glob", "shardify inspect 'raw/*.csv'"),
        ],
    ),
    (
        "head",
        &[
            ("Show the first records of ./shards", "shardify head"),
            ("Show three records of a file as JSON", "shardify head people.csv -n 3 --json"),
        ],
    ),
    (
        "report",
        &[
            ("Describe ./shards as text", "shardify report"),
            ("Write a page for people who have no shardify", "shardify report shards --html report.html"),
            ("Describe files before they are converted", "shardify report raw"),
        ],
    ),
    (
        "bench",
        &[
            ("Compare files with the shards that were made of them", "shardify bench images images-tar --time 500ms"),
            (
                "Write a page, for steps of 250 ms and batches of 64",
                "shardify bench images images-tar --step 250ms --batch 64 --time 500ms --html bench.html",
            ),
        ],
    ),
    (
        "compact",
        &[
            ("Show what would be merged, and why", "shardify compact --dry-run"),
            ("Merge the small shards of the last week", "shardify compact --since 7d"),
            ("Sort all records of a dataset", "shardify compact shards --sort-by person_id"),
            ("Merge the small files of a Delta table", "shardify compact lake/visits"),
        ],
    ),
    (
        "manifest",
        &[
            ("Show a summary of ./shards", "shardify manifest"),
            ("Find all records of subject 7", "shardify manifest --find 7"),
            ("Print the shards for a WebDataset loader", "shardify manifest images-tar --list --urls"),
            ("Tag the newest version", "shardify manifest --tag release-1"),
            ("Compare two versions", "shardify manifest --diff v1 release-1"),
            ("Export the positions of all records", "shardify manifest --export csv > records.csv"),
            ("Prove that id 7 is there", "shardify manifest proved --prove 7 --out id-7.proof"),
            ("Prove that nobody is in two splits", "shardify manifest divided --prove-split --out split.proof"),
        ],
    ),
    (
        "pull",
        &[
            (
                "Copy the newest version into a local folder; run it again to get what is new",
                "shardify pull shards copy",
            ),
            ("Copy two splits of a dataset made with `convert --split`", "shardify pull divided eval --split val,test"),
            ("Copy only the shards of a tagged version", "shardify pull shards data --at release-1 --data-only"),
        ],
    ),
    (
        "runs",
        &[
            ("List the training runs of a dataset", "shardify runs shards"),
            ("Which steps saw a patient, and which checkpoint did not", "shardify runs shards --find PAT-00023"),
        ],
    ),
    (
        "reshard",
        &[
            ("Cut a dataset into 128 even shards", "shardify reshard shards --out shards-128 --shards 128"),
            ("Take only the records of subject 7", "echo 7 | shardify reshard shards --out subject-7 --ids -"),
            ("Put all records in a random order", "shardify reshard shards --out shuffled --shuffle 1"),
            (
                "Take half of the records that satisfy a condition",
                "shardify reshard shards --out older --where 'year_of_birth < 1980' --sample 0.5",
            ),
        ],
    ),
    (
        "check",
        &[
            ("Check the newest version by rules; exit code 1 if one fails", "shardify check --rules rules.toml"),
            (
                "Write metrics for the textfile collector of node_exporter as well",
                "shardify check shards --rules rules.toml --prometheus shardify.prom",
            ),
        ],
    ),
    ("verify", &[("Check a dataset, and read all of its data", "shardify verify --read-data")]),
    (
        "vacuum",
        &[
            ("Show what would be deleted", "shardify vacuum --dry-run"),
            ("Delete what only versions older than 30 days need", "shardify vacuum --retain 30d"),
        ],
    ),
    (
        "remove",
        &[
            ("Remove the records of one input", "shardify remove --source DEATH.csv"),
            ("Show what removing a whole run would do", "shardify remove --run v1 --dry-run"),
        ],
    ),
    ("revert", &[("Restore the content of version 1", "shardify revert --to v1")]),
    (
        "erase",
        &[
            ("Show what would be erased", "shardify erase --subject 7 --dry-run"),
            ("Erase a subject from all versions", "shardify erase --subject 7 --all-versions --reason 'request 17'"),
        ],
    ),
    ("block", &[("Block a subject before data arrives", "shardify block --subject 4711 --reason 'request 18'")]),
    ("unblock", &[("Allow the subject again", "shardify unblock --subject 4711 --reason 'request 19'")]),
    (
        "plan",
        &[
            (
                "Plan a conversion as tasks, and print the plan",
                "shardify plan convert raw --out planned --subject person_id --task-size 64KiB",
            ),
            (
                "Write a script that submits the tasks to Slurm",
                "shardify plan convert raw --out planned --subject person_id --task-size 64KiB --manifest slurm > \
                 job.sh",
            ),
        ],
    ),
    (
        "run-task",
        &[
            ("Run the first task of a plan", "shardify run-task planned/_shardify/plans/*.json --task 0"),
            ("Run several tasks, one after the other", "shardify run-task planned/_shardify/plans/*.json --task 0..2"),
        ],
    ),
    ("commit", &[("Make a version of what the tasks wrote", "shardify commit planned/_shardify/plans/*.json")]),
    ("verify-proof", &[("Check a proof, and that it is about id 7", "shardify verify-proof id-7.proof --id 7")]),
    (
        "completions",
        &[(
            "Install completions for bash",
            "shardify completions bash > ~/.local/share/bash-completion/completions/shardify",
        )],
    ),
    ("man", &[("Install a manual page for each command", "shardify man --out ~/.local/share/man/man1")]),
];

/// Returns the command line as clap knows it, with everything that help shows.
pub(super) fn command_with_help() -> Command {
    with_help(Cli::command().styles(STYLES), 0)
}

fn with_help(command: Command, depth: usize) -> Command {
    let mut text = String::new();
    let header = STYLES.get_header();
    // `plan convert` is below `plan`, whose examples it shares.
    let own = EXAMPLES.iter().filter(|_| depth < 2).find(|(name, _)| *name == command.get_name());
    let examples = own.map_or(&[][..], |(_, all)| *all);
    for (at, (purpose, line)) in examples.iter().enumerate() {
        let heading = if at == 0 { format!("{header}Examples:{header:#}\n") } else { "\n".to_owned() };
        // Writing to a string cannot fail.
        let _ = write!(text, "{heading}  # {purpose}\n  {line}\n");
    }
    if depth == 0 {
        let _ = writeln!(text, "\n{header}Exit codes:{header:#}");
        exit::CODES.iter().for_each(|(code, meaning)| {
            let _ = writeln!(text, "  {code:>3}  {meaning}");
        });
    }
    let command = if text.is_empty() { command } else { command.after_long_help(text.trim_end().to_owned()) };
    command.mut_args(with_values).mut_subcommands(|command| with_help(command, depth + 1))
}

/// Moves the possible values of an option to its long help, with their explanations, unless another command lists them.
fn with_values(arg: Arg) -> Arg {
    let values = arg.get_possible_values();
    if values.is_empty() || arg.is_hide_possible_values_set() || !arg.get_action().takes_values() {
        return arg;
    }
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let width = values.iter().map(|value| value.get_name().len()).max().unwrap_or(0);
    let mut text = format!("{}\n\nPossible values:", end_sentence(&help));
    for value in &values {
        let about = value.get_help().map(ToString::to_string).unwrap_or_default();
        let line = format!("- {:<width$}  {about}", value.get_name());
        let _ = write!(text, "\n{}", line.trim_end());
    }
    arg.hide_possible_values(true).long_help(text)
}

/// Ends a text with a full stop, which clap takes away from help of one paragraph.
fn end_sentence(help: &str) -> String {
    if help.ends_with(['.', ']']) { help.to_owned() } else { format!("{help}.") }
}
