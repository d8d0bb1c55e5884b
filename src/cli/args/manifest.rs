//! Arguments of `manifest`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::super::found::Form;
use super::ProveArgs;
use crate::{
    error::{Error, Result},
    ops::{describe::Description, drift::Thresholds, export::ExportFormat},
};

#[derive(Debug, Args)]
pub(in crate::cli) struct ManifestArgs {
    /// The dataset
    pub(in crate::cli) dataset: Option<String>,
    /// Find records by record id or subject id; 'PAT-000*' finds all that begin so (\* at the end is a star)
    #[arg(long, value_name = "ID", num_args = 1.., conflicts_with_all = ["list", "history"])]
    pub(in crate::cli) find: Vec<String>,
    /// Find the ids of a file, one per line as they are, or with the ending .jsonl a JSON text per line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "history"])]
    pub(in crate::cli) find_file: Option<PathBuf>,
    /// With --find: show at most N records of each 'BEGIN*'; all are counted [default: 1000 in a table, else all]
    #[arg(long, value_name = "N", requires = "find")]
    pub(in crate::cli) limit: Option<u64>,
    /// List the live shards
    #[arg(long, conflicts_with = "history")]
    pub(in crate::cli) list: bool,
    /// With --list: print brace ranges for training tools
    #[arg(long, requires = "list")]
    pub(in crate::cli) urls: bool,
    /// List the versions
    #[arg(long)]
    pub(in crate::cli) history: bool,
    /// Say what changed between two versions, tags, instants, dates or durations back from now
    #[arg(long, num_args = 2, value_names = ["A", "B"],
          conflicts_with_all = ["find", "find_file", "list", "history", "at", "export"])]
    pub(in crate::cli) diff: Vec<String>,
    /// Say whether values drifted from version A, the older one, to B: population stability index and share of nulls of each
    /// column, number of records. Exit code 1 when something is beyond its threshold
    #[arg(long, num_args = 2, value_names = ["A", "B"],
          conflicts_with_all = ["find", "find_file", "list", "history", "at", "export", "diff"])]
    pub(in crate::cli) drift: Vec<String>,
    /// With --drift: greatest population stability index of a column that is no drift
    #[arg(long, value_name = "INDEX", requires = "drift", default_value_t = Thresholds::default().psi, value_parser = threshold)]
    psi: f64,
    /// With --drift: greatest difference between the shares of nulls of a column that is no drift
    #[arg(long, value_name = "SHARE", requires = "drift", default_value_t = Thresholds::default().null_share,
          value_parser = threshold)]
    null_share: f64,
    /// With --drift: greatest change of the number of records that is no drift, as a share of the older number
    #[arg(long, value_name = "SHARE", requires = "drift", default_value_t = Thresholds::default().volume,
          value_parser = threshold)]
    volume: f64,
    /// Write one row per live record to standard output: ids, shard, offset, origin, versions, hash; with --find or
    /// --find-file one per record found, as csv or jsonl; or a document about the version
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["list", "history"])]
    pub(in crate::cli) export: Option<ExportChoice>,
    /// With --export csv: put a ' before cells that a spreadsheet would take for a formula (they begin with = + - @,
    /// a tab or a carriage return); without it every cell is exported as it is
    #[arg(long, requires = "export")]
    pub(in crate::cli) escape_formulas: bool,
    /// Give a version a name for good: the newest one, or that of --at. `vacuum` keeps it, and --at and --diff take the name.
    /// Names are letters, digits and . _ - + /, and begin with a letter
    #[arg(long, value_name = "NAME", conflicts_with_all = ["find", "find_file", "list", "history", "diff", "drift", "export"])]
    pub(in crate::cli) tag: Option<String>,
    /// Take a name away; `vacuum` no longer keeps its version for it
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["find", "find_file", "list", "history", "diff", "drift", "export", "tag", "at"])]
    pub(in crate::cli) untag: Option<String>,
    /// File with the key of private ids, for --find, --diff and --export; default: the key in $SHARDIFY_ID_KEY
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) id_key: Option<PathBuf>,
    /// Answer for a version (v42), a tag, an instant, a date or a duration back from now
    #[arg(long, value_name = "WHEN")]
    pub(in crate::cli) at: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) proof: ProveArgs,
}

/// What is to be exported.
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
    /// With a header; null is nothing, the empty text is ""
    Csv,
    /// An object per line
    Jsonl,
    /// Parquet, to be redirected to a file
    Parquet,
    /// Croissant 1.1 (JSON-LD): shards, columns, provenance of the version
    Croissant,
    /// A dataset input of MLflow, for runs/log-inputs
    Mlflow,
    /// W3C PROV-JSON: versions, the runs that made them, folders of sources
    Prov,
}

fn threshold(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 => Ok(number),
        _ => Err("expected a number of 0 or more".to_owned()),
    }
}

impl ManifestArgs {
    /// How much may change.
    pub(in crate::cli) fn thresholds(&self) -> Thresholds {
        Thresholds { psi: self.psi, null_share: self.null_share, volume: self.volume }
    }

    /// How found records are written.
    pub(in crate::cli) fn find_form(&self, json: bool) -> Result<Form> {
        match self.export {
            None if json => Ok(Form::Json),
            None => Ok(Form::Table),
            Some(ExportChoice::Jsonl) if json => Ok(Form::Json),
            Some(ExportChoice::Jsonl) => Ok(Form::Lines),
            Some(ExportChoice::Csv) if !json => Ok(Form::Csv { escape: self.escape_formulas }),
            Some(_) => {
                Err(Error::usage("records that were found are written as csv or as objects, found another --export")
                    .hint("use --export csv, --export jsonl, or --json"))
            }
        }
    }

    /// The format of the export, if one is asked for.
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
                .hint("use --export jsonl with --json, or leave --json out"));
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
