//! Report of `plan`.

use std::io::Write;

use super::{clean, line, plural, shell_word};
use crate::{
    error::Result,
    ops::tasks::PlanReport,
    units::{Size, grouped},
};

/// Writes why nothing was planned.
pub(in crate::cli) fn nothing_planned(w: &mut dyn Write, report: &PlanReport) -> Result<()> {
    let unchanged = report.sources_unchanged;
    match report.operation {
        "compact" => writeln!(w, "nothing to do: {} need no merge", plural(unchanged, "shard"))?,
        _ => writeln!(w, "nothing to do: {} already converted", plural(unchanged, "source"))?,
    }
    Ok(())
}

/// Writes what was planned, and the commands that carry it out.
pub(in crate::cli) fn planned(w: &mut dyn Write, plan: &str, report: &PlanReport) -> Result<()> {
    let shown = clean(plan);
    writeln!(w, "{shown}")?;
    let sources = plural(report.sources, if report.operation == "compact" { "shard" } else { "source" });
    line(w, "plans", format_args!("{sources}, {}", Size(report.bytes)))?;
    let done = if report.tasks_done > 0 {
        format!(", {} done already", grouped(report.tasks_done as u64))
    } else {
        String::new()
    };
    line(w, "tasks", format_args!("{}{done}", grouped(report.tasks as u64)))?;
    let (records, shards) = (grouped(report.records), plural(report.shards, "shard"));
    line(w, "about", format_args!("{records} records in {shards}"))?;
    let (word, last) = (shell_word(&shown), report.tasks.saturating_sub(1));
    line(w, "run", format_args!("shardify run-task {word} --task 0..{last}"))?;
    line(w, "commit", format_args!("shardify commit {word}"))
}
