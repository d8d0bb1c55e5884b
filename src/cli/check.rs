//! `check`: as text, as JSON, and as metrics for Prometheus.

use std::io::Write;

use super::{
    CommandSession,
    args::CheckArgs,
    exit::CommandOutcome,
    human::{clean, plural},
    json, prometheus,
};
use crate::{
    error::{Error, Result},
    ops::check::{CheckReport, RuleReport, Status, check_version, read_rules, with_check},
    storage,
};

/// Widest name of a rule that others are aligned with.
const NAME: usize = 40;

impl CommandSession<'_> {
    pub(super) fn run_check(&self, args: &CheckArgs) -> Result<CommandOutcome> {
        if args.prometheus.as_deref() == Some("-") && self.global.json {
            return Err(Error::usage("expected one answer on standard output, found --json and --prometheus -")
                .with_hint("write the metrics to a file: --prometheus FILE"));
        }
        let dataset = self.dataset_location(args.dataset.as_deref())?;
        let rules = read_rules(&self.context, &args.rules)?;
        let report = with_check(&self.context, args.lineage.openlineage.as_deref(), &dataset, || {
            check_version(&self.context, &dataset, args.at.as_deref(), &rules)
        })?;
        self.progress.stop();
        let metrics = args.prometheus.as_ref().map(|file| (file, prometheus::metrics_text(&report)));
        // First the answer: what was found counts even if the metrics cannot be written.
        self.print_answer(|w| match &metrics {
            Some((file, metrics)) if *file == "-" => Ok(w.write_all(metrics.as_bytes())?),
            _ if self.global.json => as_json(w, &report),
            _ => write_text(w, &report, self.global.quiet, self.global.verbose > 0),
        })?;
        if let Some((file, metrics)) = metrics.filter(|(file, _)| *file != "-") {
            storage::save_file(
                &self.context.parse_location(file)?,
                &self.context.settings,
                metrics.into_bytes().into(),
            )?;
        }
        Ok(if report.status == Status::Fail { CommandOutcome::No } else { CommandOutcome::Done })
    }
}

fn as_json(w: &mut dyn Write, report: &CheckReport) -> Result<()> {
    report.results.iter().try_for_each(|rule| json::write_object(w, "rule", rule))?;
    report.columns.iter().try_for_each(|column| json::write_object(w, "column", column))?;
    json::write_summary(w, report)
}

/// Writes the results for a terminal; with `quiet` only those that do not hold.
fn write_text(w: &mut dyn Write, report: &CheckReport, quiet: bool, verbose: bool) -> Result<()> {
    if !quiet {
        writeln!(w, "{} of {}", report.version, clean(&report.dataset))?;
    }
    let width = report.results.iter().map(|rule| rule_name(rule).chars().count()).filter(|width| *width <= NAME).max();
    for rule in report.results.iter().filter(|rule| !quiet || matches!(rule.status, Status::Fail | Status::Warn)) {
        let word = match rule.status {
            Status::Pass => "pass",
            Status::Skip => "skip",
            Status::Warn => "WARN",
            Status::Fail => "FAIL",
        };
        write!(w, "  {word}  {:<width$}  {}", rule_name(rule), clean(&rule.found), width = width.unwrap_or(0))?;
        if matches!(rule.status, Status::Fail | Status::Warn) {
            if !rule.examples.is_empty() {
                let examples: Vec<String> = rule.examples.iter().map(|text| format!("`{}`", clean(text))).collect();
                write!(w, ": {}", examples.join(", "))?;
            }
            write!(w, "; expected {}", clean(&rule.expected))?;
        }
        if verbose {
            write!(w, " ({}, line {})", clean(&report.rules), rule.line)?;
        }
        writeln!(w)?;
    }
    if !quiet {
        writeln!(w, "{}", status_summary(report))?;
    }
    Ok(())
}

fn rule_name(rule: &RuleReport) -> String {
    match &rule.column {
        Some(column) => format!("{} {}", clean(column), rule.rule),
        None => rule.rule.to_owned(),
    }
}

fn status_summary(report: &CheckReport) -> String {
    let all = plural(report.results.len() as u64, "rule");
    let mut parts = Vec::new();
    for (count, what) in
        [(report.failed, "failed"), (report.warned, "warned"), (report.skipped, "skipped"), (report.passed, "passed")]
    {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    format!("{all}: {}", parts.join(", "))
}
