//! Arguments of `plan`, `run-task` and `commit`.

use std::{ops::RangeInclusive, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::{AdoptArgs, CompactArgs, ConvertArgs, size};
use crate::{
    error::{Error, Result},
    units::Size,
};

#[derive(Debug, Args)]
pub(in crate::cli) struct PlanArgs {
    #[command(subcommand)]
    pub(in crate::cli) what: PlanCommand,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum PlanCommand {
    /// Plan a conversion; all options of `convert` apply.
    Convert(Box<PlanConvertArgs>),
    /// Plan a compaction; all options of `compact` apply but those that sort.
    Compact(Box<PlanCompactArgs>),
    /// Plan an adoption; all options of `adopt` apply.
    Adopt(Box<PlanAdoptArgs>),
    /// Another command, which cannot be planned.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct PlanConvertArgs {
    #[command(flatten)]
    pub(in crate::cli) convert: ConvertArgs,
    /// Print a job for this cluster manager instead of a summary.
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    pub(in crate::cli) manifest: Option<Manifest>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct PlanAdoptArgs {
    #[command(flatten)]
    pub(in crate::cli) adopt: AdoptArgs,
    /// Bytes of files for each task [default: 8GiB].
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Output")]
    pub(in crate::cli) task_size: Option<Size>,
    /// Print a job for this cluster manager instead of a summary.
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    pub(in crate::cli) manifest: Option<Manifest>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct PlanCompactArgs {
    #[command(flatten)]
    pub(in crate::cli) compact: CompactArgs,
    /// Bytes of shards for each task [default: 8GiB].
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Output")]
    pub(in crate::cli) task_size: Option<Size>,
    /// Print a job for this cluster manager instead of a summary.
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    pub(in crate::cli) manifest: Option<Manifest>,
}

/// A description of a cluster job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Manifest {
    /// A shell script that submits a job array, and the commit after it
    Slurm,
    /// A Kubernetes Indexed Job; the commit is a command to run afterwards
    K8s,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct RunTaskArgs {
    /// Path or URL of the plan.
    pub(in crate::cli) plan: String,
    /// Task to run, or a range of tasks: 7 or 0..15, both ends included.
    #[arg(long, value_name = "N|A..B", value_parser = tasks)]
    pub(in crate::cli) task: RangeInclusive<usize>,
    /// File with the key of private ids.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(in crate::cli) id_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct CommitArgs {
    /// Path or URL of the plan.
    pub(in crate::cli) plan: String,
    /// File with the key of private ids.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(in crate::cli) id_key: Option<PathBuf>,
}

fn tasks(text: &str) -> Result<RangeInclusive<usize>> {
    let wrong = || Error::usage(format!("expected a task such as 7 or a range such as 0..15, found `{text}`"));
    let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
    match text.split_once("..") {
        None => number(text).map(|task| task..=task),
        Some((first, last)) => {
            let range = number(first)?..=number(last)?;
            if range.is_empty() { Err(wrong()) } else { Ok(range) }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_numbers_or_ranges() {
        assert_eq!(tasks("7").unwrap(), 7..=7);
        assert_eq!(tasks("0..15").unwrap(), 0..=15);
        for wrong in ["", "x", "-1", "3..", "..3", "4..3", "1..2..3"] {
            assert!(tasks(wrong).is_err(), "{wrong}");
        }
    }
}
