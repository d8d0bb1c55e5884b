//! Report of `plan`.

use std::io::Write;

use super::{clean, plural, shell_word, write_line};
use crate::{
    dataset::Operation,
    error::Result,
    ops::tasks::PlanReport,
    units::{Size, group_digits},
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
pub(in crate::cli) fn write_plan(w: &mut dyn Write, plan: &str, report: &PlanReport) -> Result<()> {
    let shown = clean(plan);
    writeln!(w, "{shown}")?;
    let sources = plural(report.sources, inputs_of(report));
    write_line(w, "plans", format_args!("{sources}, {}", Size(report.bytes)))?;
    let done = if report.tasks_done > 0 {
        format!(", {} done already", group_digits(report.tasks_done as u64))
    } else {
        String::new()
    };
    write_line(w, "tasks", format_args!("{}{done}", group_digits(report.tasks as u64)))?;
    let (records, shards) = (group_digits(report.records), plural(report.shards, "shard"));
    // Records are counted when the files are adopted.
    match report.operation {
        Operation::Adopt => write_line(w, "makes", shards)?,
        _ => write_line(w, "about", format_args!("{records} records in {shards}"))?,
    }
    let (word, last) = (shell_word(&shown), report.tasks.saturating_sub(1));
    write_line(w, "run", format_args!("shardify run-task {word} --task 0..{last}"))?;
    write_line(w, "commit", format_args!("shardify commit {word}"))
}
