//! Arguments of `manifest`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{
    error::{Error, Result},
    ops::export::ExportFormat,
};

#[derive(Debug, Args)]
pub(in crate::cli) struct ManifestArgs {
    /// The dataset
    pub(in crate::cli) dataset: Option<String>,
    /// Find records by record id or subject id
    #[arg(long, value_name = "ID", num_args = 1.., conflicts_with_all = ["list", "history"])]
    pub(in crate::cli) find: Vec<String>,
    /// Find the ids of a file, one per line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "history"])]
    pub(in crate::cli) find_file: Option<PathBuf>,
    /// List the live shards
    #[arg(long, conflicts_with = "history")]
    pub(in crate::cli) list: bool,
    /// With --list: print brace ranges for training tools
    #[arg(long, requires = "list")]
    pub(in crate::cli) urls: bool,
    /// List the versions
    #[arg(long)]
    pub(in crate::cli) history: bool,
    /// Say what changed between two versions, instants, dates or durations back from now
    #[arg(long, num_args = 2, value_names = ["A", "B"],
          conflicts_with_all = ["find", "find_file", "list", "history", "at", "export"])]
    pub(in crate::cli) diff: Vec<String>,
    /// Write one row per live record to standard output: ids, shard, offset, origin, versions, hash
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["find", "find_file", "list", "history"])]
    pub(in crate::cli) export: Option<ExportChoice>,
    /// With --export csv: put a ' before cells that a spreadsheet would take for a formula (they begin with = + - @,
    /// a tab or a carriage return); without it every cell is exported as it is
    #[arg(long, requires = "export")]
    pub(in crate::cli) escape_formulas: bool,
    /// Answer for a version (v42), an instant, a date or a duration back from now
    #[arg(long, value_name = "WHEN")]
    pub(in crate::cli) at: Option<String>,
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
}

impl ManifestArgs {
    /// The format of the export, if one is asked for.
    pub(in crate::cli) fn export_format(&self, json: bool) -> Result<Option<ExportFormat>> {
        let Some(choice) = self.export else { return Ok(None) };
        if json && choice != ExportChoice::Jsonl {
            return Err(Error::usage("--json and --export of another format both write to standard output")
                .hint("use --export jsonl with --json, or leave --json out"));
        }
        if self.escape_formulas && choice != ExportChoice::Csv {
            return Err(Error::usage("--escape-formulas is for --export csv"));
        }
        Ok(Some(match choice {
            ExportChoice::Csv if self.escape_formulas => ExportFormat::EscapedCsv,
            ExportChoice::Csv => ExportFormat::Csv,
            ExportChoice::Jsonl => ExportFormat::Jsonl,
            ExportChoice::Parquet => ExportFormat::Parquet,
        }))
    }
}
