//! Report of `plan`.

use std::io::Write;

use super::{clean, line, plural, shell_word};
use crate::{
    error::Result,
    ops::convert::PlanReport,
    units::{Size, grouped},
};

/// Writes what was planned, and the commands that carry it out.
pub(in crate::cli) fn planned(w: &mut dyn Write, plan: &str, report: &PlanReport) -> Result<()> {
    let shown = clean(plan);
    writeln!(w, "{shown}")?;
    let sources = plural(report.sources, "source");
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
