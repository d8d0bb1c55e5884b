//! Arguments of `manifest`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

use super::super::found::Form;
use super::ProveArgs;
use crate::{
    error::{Error, Result},
    ops::{describe::Description, drift::Thresholds, export::ExportFormat},
};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("wanted").args(["find", "find_file"]).multiple(true))]
pub(in crate::cli) struct ManifestArgs {
    /// Dataset [default: ./shards].
    pub(in crate::cli) dataset: Option<String>,
    /// Find records by record id or subject id.
    ///
    /// 'PAT-000*' matches all ids with this prefix; \* at the end is a literal star.
    #[arg(long, value_name = "ID", num_args = 1.., conflicts_with_all = ["list", "history"], help_heading = "Lookup")]
    pub(in crate::cli) find: Vec<String>,
    /// Find the ids of a file, one per line.
    ///
    /// In a file .jsonl, each line is a JSON string. - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "history"], help_heading = "Lookup")]
    pub(in crate::cli) find_file: Option<PathBuf>,
    /// With --find: say which steps of training runs had the records.
    ///
    /// Exit code 1: no run saw them. `shardify runs` shows the runs.
    #[arg(long, requires = "wanted", conflicts_with_all = ["limit", "at", "export"], help_heading = "Lookup",
          hide_short_help = true)]
    pub(in crate::cli) runs: bool,
    /// Show at most N records per id or prefix.
    ///
    /// All records are counted [default: 1000 in a table, else all].
    #[arg(long, value_name = "N", requires = "wanted", help_heading = "Lookup", hide_short_help = true)]
    pub(in crate::cli) limit: Option<u64>,
    /// List the live shards.
    #[arg(long, conflicts_with = "history", help_heading = LISTING)]
    pub(in crate::cli) list: bool,
    /// With --list: print URLs as brace ranges.
    ///
    /// WebDataset and other training tools expand them, such as shards/{000000..000041}.tar.
    #[arg(long, requires = "list", help_heading = LISTING)]
    pub(in crate::cli) urls: bool,
    /// With --list: print one path or URL per line, in the order of the records.
    ///
    /// Readers that take a list of files read exactly the live shards with it.
    #[arg(long, requires = "list", conflicts_with = "urls", help_heading = LISTING, hide_short_help = true)]
    pub(in crate::cli) paths: bool,
    /// With --list: only the shards of this split of a dataset made with `convert --split`.
    #[arg(long, value_name = "NAME", requires = "list", help_heading = LISTING, hide_short_help = true)]
    pub(in crate::cli) split: Option<String>,
    /// List the versions.
    #[arg(long, help_heading = VERSIONS)]
    pub(in crate::cli) history: bool,
    /// Compare two versions.
    ///
    /// A and B are versions (v42), tags, instants, dates or durations before now.
    #[arg(long, num_args = 2, value_names = ["A", "B"], help_heading = COMPARISON,
          conflicts_with_all = ["find", "find_file", "list", "history", "at", "export"])]
    pub(in crate::cli) diff: Vec<String>,
    /// Detect drift from version A to version B.
    ///
    /// Compares the population stability index (PSI) and the share of nulls of each column, and the number of records.
    /// Exit code 1 if one of them exceeds its threshold.
    #[arg(long, num_args = 2, value_names = ["A", "B"], help_heading = COMPARISON,
          conflicts_with_all = ["find", "find_file", "list", "history", "at", "export", "diff"])]
    pub(in crate::cli) drift: Vec<String>,
    /// With --drift: threshold of the population stability index.
    #[arg(long, value_name = "PSI", requires = "drift", default_value_t = Thresholds::default().psi,
        value_parser = threshold,
          help_heading = COMPARISON, hide_short_help = true)]
    psi: f64,
    /// With --drift: threshold of the change in the share of nulls.
    #[arg(long, value_name = "SHARE", requires = "drift", default_value_t = Thresholds::default().null_share,
          value_parser = threshold, help_heading = COMPARISON, hide_short_help = true)]
    null_share: f64,
    /// With --drift: threshold of the change in the number of records, as a share of the older number.
    #[arg(long, value_name = "SHARE", requires = "drift", default_value_t = Thresholds::default().volume,
          value_parser = threshold, help_heading = COMPARISON, hide_short_help = true)]
    volume: f64,
    /// Write live records, or a document about the version.
    ///
    /// csv, jsonl and parquet have one row per live record: ids, shard, offset, origin, versions and hash. With --find
    /// or --find-file, csv and jsonl have one row per record found. The output goes to standard output.
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["list", "history"], help_heading = LISTING)]
    pub(in crate::cli) export: Option<ExportChoice>,
    /// With --export csv: escape cells that look like formulas.
    ///
    /// Cells that begin with =, +, -, @, a tab or a carriage return get a ' in front, so that no spreadsheet runs them.
    #[arg(long, requires = "export", help_heading = LISTING, hide_short_help = true)]
    pub(in crate::cli) escape_formulas: bool,
    /// Version to read [default: the newest].
    ///
    /// A version (v42), a tag, an instant, a date or a duration before now.
    #[arg(long, value_name = "WHEN", help_heading = VERSIONS)]
    pub(in crate::cli) at: Option<String>,
    /// Tag the newest version, or that of --at.
    ///
    /// `vacuum` keeps tagged versions, and options that take a version take its tags. A name begins with a letter and
    /// consists of letters, digits and . _ - + /.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["find", "find_file", "list", "history", "diff", "drift",
        "export"],
          help_heading = VERSIONS)]
    pub(in crate::cli) tag: Option<String>,
    /// Delete a tag.
    ///
    /// `vacuum` may then delete the version.
    #[arg(long, value_name = "NAME", help_heading = VERSIONS,
          conflicts_with_all = ["find", "find_file", "list", "history", "diff", "drift", "export", "tag", "at"])]
    pub(in crate::cli) untag: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) proof: ProveArgs,
    /// File with the key of private ids.
    ///
    /// The default is the key in $SHARDIFY_ID_KEY. Used by --find, --diff and --export.
    #[arg(long, value_name = "FILE", help_heading = super::IDS, hide_short_help = true)]
    pub(in crate::cli) id_key: Option<PathBuf>,
}

/// Heading of options that list and export.
const LISTING: &str = "Listing and export";

/// Heading of options that select, list and tag versions.
const VERSIONS: &str = "Versions";

/// Heading of options that compare two versions.
const COMPARISON: &str = "Comparison";

/// A requested export.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) enum Export {
    /// A row per record.
    Records(ExportFormat),
    /// A document about the version.
    Version(Description),
}

/// Formats of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ExportChoice {
    /// CSV with a header; nulls are empty, empty texts are ""
    Csv,
    /// JSON Lines
    Jsonl,
    /// Parquet; redirect it to a file
    Parquet,
    /// Croissant 1.1 (JSON-LD): shards, columns and provenance of the version
    Croissant,
    /// MLflow dataset input, for runs/log-inputs
    Mlflow,
    /// W3C PROV-JSON: versions, runs and folders of inputs
    Prov,
}

fn threshold(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 => Ok(number),
        _ => Err("expected a number of 0 or more".to_owned()),
    }
}

impl ManifestArgs {
    /// Returns the thresholds of --drift.
    pub(in crate::cli) fn drift_thresholds(&self) -> Thresholds {
        Thresholds { psi: self.psi, null_share: self.null_share, volume: self.volume }
    }

    /// Returns the format of found records.
    pub(in crate::cli) fn find_form(&self, json: bool) -> Result<Form> {
        match self.export {
            None if json => Ok(Form::Json),
            None => Ok(Form::Table),
            Some(ExportChoice::Jsonl) if json => Ok(Form::Json),
            Some(ExportChoice::Jsonl) => Ok(Form::Lines),
            Some(ExportChoice::Csv) if !json => Ok(Form::Csv { escape: self.escape_formulas }),
            Some(_) => Err(Error::usage("expected --export csv or jsonl beside --find, found another format")
                .with_hint("use --export csv, --export jsonl, or --json")),
        }
    }

    /// Returns the requested export.
    pub(in crate::cli) fn export_format(&self, json: bool) -> Result<Option<Export>> {
        let Some(choice) = self.export else { return Ok(None) };
        let description = match choice {
            ExportChoice::Croissant => Some(Description::Croissant),
            ExportChoice::Mlflow => Some(Description::Mlflow),
            ExportChoice::Prov => Some(Description::Prov),
            _ => None,
        };
        if json && choice != ExportChoice::Jsonl {
            return Err(Error::usage("--json and --export of another format both write to standard output")
                .with_hint("use --export jsonl with --json, or omit --json"));
        }
        if self.escape_formulas && choice != ExportChoice::Csv {
            return Err(Error::usage("--escape-formulas is for --export csv"));
        }
        if let Some(description) = description {
            return Ok(Some(Export::Version(description)));
        }
        Ok(Some(Export::Records(match choice {
            ExportChoice::Csv if self.escape_formulas => ExportFormat::EscapedCsv,
            ExportChoice::Csv => ExportFormat::Csv,
            ExportChoice::Jsonl => ExportFormat::Jsonl,
            _ => ExportFormat::Parquet,
        })))
    }
}
