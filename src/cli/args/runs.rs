//! Arguments of `runs`.

use std::{ops::RangeInclusive, path::PathBuf};

use clap::{ArgGroup, Args};

use crate::error::{Error, Result};

/// Arguments of `runs`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("people").args(["find", "find_file"]).multiple(true))]
pub(in crate::cli) struct RunsArgs {
    /// Dataset [default: ./shards].
    pub(in crate::cli) dataset: Option<String>,
    /// A training run; without it, all are listed.
    pub(in crate::cli) name: Option<String>,
    /// Which steps had a record with this id.
    ///
    /// A record id, a subject id, or an origin (file#row). May be repeated; the ids are taken together. Also says which
    /// checkpoint is the newest that saw none of them. With --json, every step is listed.
    #[arg(long, value_name = "ID", help_heading = "Selection")]
    pub(in crate::cli) find: Vec<String>,
    /// The same for the ids of a file, one per line.
    ///
    /// In a file .jsonl, each line is a JSON string. - is standard input.
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    pub(in crate::cli) find_file: Option<PathBuf>,
    /// Show the records of these steps of the run, such as 12345 or 100..103.
    ///
    /// Steps are numbered from 0, over all epochs; of a range, the last one is included. Slots are counted over all
    /// ranks: of R ranks and a batch of B records, rank r has slots r*B/R and following.
    #[arg(long, value_name = "N[..M]", value_parser = step_range, requires = "name", conflicts_with = "people",
          help_heading = "Selection")]
    pub(in crate::cli) step: Option<RangeInclusive<u64>>,
    /// Add events that a trainer has written, one JSON object per line.
    ///
    /// `loader.record(NAME, to=FILE)` of the Python package writes them where the trainer may only read the dataset.
    /// - is standard input. Events that the dataset has are not added again.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["people", "step", "name"], help_heading = "Changes")]
    pub(in crate::cli) add: Option<PathBuf>,
    /// Let vacuum delete the version that the run reads.
    ///
    /// Its tag `run/NAME` is removed. The run stays listed; its records can be looked up as long as the version exists.
    #[arg(long, requires = "name", conflicts_with_all = ["people", "step", "add"], help_heading = "Changes")]
    pub(in crate::cli) release: bool,
    /// File with the key of private ids.
    ///
    /// The default is the key in $SHARDIFY_ID_KEY. Used by --find, --find-file and --step.
    #[arg(long, value_name = "FILE", help_heading = super::IDS, hide_short_help = true)]
    pub(in crate::cli) id_key: Option<PathBuf>,
}

/// Parses `N` or `N..M`.
fn step_range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let wrong = || "expected the number of a step, or a first and a last one such as 100..103".to_owned();
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.trim_start_matches('=').parse::<u64>().map_err(|_| wrong());
    let (first, last) = (number(first)?, number(last)?);
    if first <= last { Ok(first..=last) } else { Err(wrong()) }
}

impl RunsArgs {
    /// Whether ids are looked for.
    pub(in crate::cli) fn has_ids(&self) -> bool {
        !self.find.is_empty() || self.find_file.is_some()
    }
}

/// Returns an error if there are no ids.
pub(in crate::cli) fn expect_ids(ids: &[String], file: Option<&PathBuf>) -> Result<()> {
    match file {
        Some(file) if ids.is_empty() => {
            Err(Error::usage("expected ids to find, one on each line, found none")
                .at_location(file.display().to_string()))
        }
        _ => Ok(()),
    }
}
