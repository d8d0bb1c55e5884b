//! What `inspect` says of a Delta table: its live files, and whether they should be merged.

use serde::Serialize;

use super::report::{FormatReport, InspectReport, base_report};
use crate::{
    delta::{self, LiveFile},
    error::{Error, Result},
    ops::{compact, shell_word},
    units::Size,
};

/// What the log of a Delta table says.
#[derive(Debug, Clone, Serialize)]
pub struct TableFacts {
    /// Its newest version.
    pub version: u64,
    /// Partitions that have files.
    pub partitions: u64,
    /// Live files with a deletion vector.
    pub vectors: u64,
    /// Rows of live files that deletion vectors delete.
    pub deleted_rows: u64,
}

/// Inspects a table.
///
/// # Errors
/// When its log is damaged or needs a feature that is not supported, or the store fails.
pub(super) fn inspect_table(source: &str, table: &delta::Table) -> Result<InspectReport> {
    let live = table.live_table(u64::MAX)?;
    let files = live.files();
    let sizes: Vec<u64> = files.iter().map(LiveFile::stated_bytes).collect();
    let plan = compact::plan_table(&live);
    let target = plan.as_ref().map_or(compact::DEFAULT_TABLE_TARGET, |plan| Size(plan.target));
    let mut out = base_report(source, &sizes, Size(target.0 / 8));
    let deleted_rows = files.iter().filter_map(LiveFile::deleted_row_count).sum::<u64>();
    let rows: Option<u64> = files.iter().map(LiveFile::stated_rows).sum();
    out.records = rows.map(|rows| rows.saturating_sub(deleted_rows));
    out.exact = true;
    out.formats.push(FormatReport {
        at_least: false,
        format: "delta".to_owned(),
        files: out.files,
        bytes: out.bytes,
        records: out.records,
        exact: true,
        damaged: 0,
    });
    let mut partitions: Vec<_> = files.iter().map(|file| &file.add.partition_values).collect();
    partitions.sort_unstable();
    partitions.dedup();
    out.table = Some(TableFacts {
        version: live.version(),
        partitions: partitions.len() as u64,
        vectors: files.iter().filter(|file| file.deleted_row_count().is_some()).count() as u64,
        deleted_rows,
    });
    let convert = format!("`shardify convert {}` makes a dataset of it", shell_word(source));
    match plan {
        Ok(plan) if plan.files_after < plan.files_before => {
            out.command = Some(format!("shardify compact {}", shell_word(source)));
            out.advice = format!("leaves {} of {} files; {convert}", plan.files_after, plan.files_before);
        }
        Ok(_) if out.small_files > 1 => {
            let few = "some files are small, but too few to be worth merging; compact --min-inputs 2 does it";
            out.advice = format!("{few}; {convert}");
        }
        Ok(_) => out.advice = format!("no files that are worth merging; {convert}"),
        Err(error) => out.advice = format!("{}; {convert}", error_with_hints(&error)),
    }
    Ok(out)
}

/// Returns an error and its hints as one line.
fn error_with_hints(error: &Error) -> String {
    std::iter::once(error.message()).chain(error.hints().iter().map(String::as_str)).collect::<Vec<_>>().join("; ")
}
