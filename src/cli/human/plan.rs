//! Report of `plan`.

use std::io::Write;

use super::{clean, line, plural, shell_word};
use crate::{
    dataset::Operation,
    error::Result,
    ops::tasks::PlanReport,
    units::{Size, grouped},
};

/// Returns what the tasks of a plan read.
fn inputs_of(report: &PlanReport) -> &'static str {
    match report.operation {
        Operation::Adopt => "file",
        Operation::Compact => "shard",
        _ => "source",
    }
}

/// Writes why nothing was planned.
pub(in crate::cli) fn nothing_planned(w: &mut dyn Write, report: &PlanReport) -> Result<()> {
    let unchanged = report.sources_unchanged;
    match report.operation {
        Operation::Adopt => writeln!(w, "nothing to do: {} already adopted", plural(unchanged, "file"))?,
        Operation::Compact => writeln!(w, "nothing to do: {} need no merge", plural(unchanged, "shard"))?,
        _ => writeln!(w, "nothing to do: {} already converted", plural(unchanged, "source"))?,
    }
    Ok(())
}

/// Writes what was planned, and the commands that carry it out.
pub(in crate::cli) fn planned(w: &mut dyn Write, plan: &str, report: &PlanReport) -> Result<()> {
    let shown = clean(plan);
    writeln!(w, "{shown}")?;
    let sources = plural(report.sources, inputs_of(report));
    line(w, "plans", format_args!("{sources}, {}", Size(report.bytes)))?;
    let done = if report.tasks_done > 0 {
        format!(", {} done already", grouped(report.tasks_done as u64))
    } else {
        String::new()
    };
    line(w, "tasks", format_args!("{}{done}", grouped(report.tasks as u64)))?;
    let (records, shards) = (grouped(report.records), plural(report.shards, "shard"));
    // Records are counted when the files are adopted.
    match report.operation {
        Operation::Adopt => line(w, "makes", shards)?,
        _ => line(w, "about", format_args!("{records} records in {shards}"))?,
    }
    let (word, last) = (shell_word(&shown), report.tasks.saturating_sub(1));
    line(w, "run", format_args!("shardify run-task {word} --task 0..{last}"))?;
    line(w, "commit", format_args!("shardify commit {word}"))
}
