//! `bench`: as text, as JSON, or as a page of HTML.

use std::io::Write;

use super::{
    CommandSession,
    args::BenchArgs,
    exit::CommandOutcome,
    html,
    human::{clean, plural},
    json,
};
use crate::{
    error::Result,
    ops::bench::{BenchOptions, BenchReport, BenchRun, Cache, SideReport, run_bench},
    storage,
    units::{Size, group_digits},
};

/// Readers by default, at most.
const READERS: usize = 4;

impl CommandSession<'_> {
    pub(super) fn run_bench(&self, args: &BenchArgs) -> Result<CommandOutcome> {
        let options = BenchOptions {
            source: args.source.clone(),
            dataset: self.dataset_location(args.dataset.as_deref())?,
            step: args.step,
            readers: args.readers.map_or(self.context.jobs.min(READERS), usize::from),
            batch: args.batch.get(),
            limit: args.time,
        };
        let report = run_bench(&self.context, &options)?;
        self.progress.stop();
        let page = args.html.as_ref().map(|file| (file, html::bench_page(&report)));
        // First the answer: it took minutes, and the page may not be writable.
        self.print_answer(|w| if self.global.json { as_json(w, &report) } else { write_text(w, &report) })?;
        if let Some((file, page)) = page {
            let bytes = page.len() as u64;
            storage::save_file(&self.context.parse_location(file)?, &self.context.settings, page.into_bytes().into())?;
            if !self.global.json {
                self.print_report(|w| Ok(writeln!(w, "{}  {}", clean(file), Size(bytes))?))?;
            }
        }
        Ok(CommandOutcome::Done)
    }
}

fn as_json(w: &mut dyn Write, report: &BenchReport) -> Result<()> {
    report.runs.iter().try_for_each(|run| json::write_object(w, "run", run))?;
    json::write_summary(w, report)
}

fn write_text(w: &mut dyn Write, report: &BenchReport) -> Result<()> {
    for (word, side) in [("source", &report.source), ("dataset", &report.dataset)] {
        writeln!(w, "{word:<8} {}  {}", clean(&side.name), describe_side(side))?;
    }
    let (batch, step) = (plural(report.batch, "record"), format_milliseconds(report.step_seconds));
    writeln!(w, "batches of {batch}, a step of {step}\n")?;
    writeln!(
        w,
        "{:<22} {:>11} {:>7} {:>12} {:>11} {:>9} {:>8}",
        "", "records/s", "", "bytes/s", "first batch", "opened", "waiting"
    )?;
    for run in &report.runs {
        writeln!(
            w,
            "{:<22} {:>11} {:>7} {:>12} {:>11} {:>9} {:>8}",
            run_label(run),
            format_rate(run.records_per_second),
            run.spread.map_or_else(String::new, |spread| format!("±{}", format_percent(spread))),
            format!("{}/s", Size(to_whole(run.bytes_per_second))),
            format_milliseconds(run.first_batch_seconds),
            group_digits(run.files_opened),
            run.waiting.map_or_else(String::new, format_percent)
        )?;
    }
    writeln!(w)?;
    for line in conclusion_sentences(report) {
        writeln!(w, "{line}")?;
    }
    report.notes.iter().try_for_each(|note| Ok(writeln!(w, "note: {}", clean(note))?))
}

/// Returns what a side is, in words.
pub(super) fn describe_side(side: &SideReport) -> String {
    // Samples of files have no format that they share.
    let format = if side.format == "files" { String::new() } else { format!(" of {}", clean(&side.format)) };
    format!("{}{format}, {}", plural(side.files, "file"), Size(side.bytes))
}

fn run_label(run: &BenchRun) -> String {
    let cache = match run.cache {
        Cache::Cold => "cold",
        Cache::Warm => "warm",
        Cache::Remote => "remote",
    };
    format!("{} {cache}, {}", run.side, plural(run.readers, "reader"))
}

/// Share of the data below which a run says little: caches, read-ahead and the first files decide its rate.
const LEAST_SHARE: f64 = 0.1;

fn by_share(a: &&BenchRun, b: &&BenchRun) -> std::cmp::Ordering {
    a.share.total_cmp(&b.share)
}

/// Returns the answer in sentences.
pub(super) fn conclusion_sentences(report: &BenchReport) -> Vec<String> {
    let mut out = Vec::new();
    for (cache, speedup, word) in
        [(Cache::Cold, report.speedup_cold, "cold"), (Cache::Warm, report.speedup_warm, "warm")]
    {
        let run = |side: &str| report.side_run(side, cache).or_else(|| report.side_run(side, Cache::Remote));
        let (Some(source), Some(dataset), Some(speedup)) = (run("source"), run("dataset"), speedup) else { continue };
        let word = if source.cache == Cache::Remote && dataset.cache == Cache::Remote { "remote" } else { word };
        if let Some(few) = [source, dataset].into_iter().filter(|run| run.share < LEAST_SHARE).min_by(by_share) {
            out.push(format!(
                "{word}: no conclusion, because only {:.1} % of the {} was read; give it more time with --time",
                100.0 * few.share,
                few.side
            ));
            continue;
        }
        let waits = match (source.waiting, dataset.waiting) {
            (Some(before), Some(after)) => format!(
                "; data wait per {} step: {} (files), {} (shards)",
                format_milliseconds(report.step_seconds),
                format_percent(before),
                format_percent(after)
            ),
            _ => String::new(),
        };
        let files = if dataset.records > 0 && source.records > 0 {
            let each = |run: &BenchRun| run.files_opened as f64 / run.records as f64 * 1_000.0;
            format!(
                "; {} files opened for 1,000 records before, {} after",
                format_rate(each(source)),
                format_rate(each(dataset))
            )
        } else {
            String::new()
        };
        let noise = source.spread.unwrap_or(0.0) + dataset.spread.unwrap_or(0.0);
        let unclear = if (speedup - 1.0).abs() < noise { " (within the spread of the runs)" } else { "" };
        out.push(format!("{word}: {} times the records per second{unclear}{waits}{files}", format_factor(speedup)));
        if word == "remote" {
            break;
        }
    }
    out
}

/// Returns a factor with two digits that count.
pub(super) fn format_factor(number: f64) -> String {
    if number < 10.0 { format!("{number:.1}") } else { group_digits(to_whole(number)) }
}

/// Returns a rate without more digits than it deserves.
pub(super) fn format_rate(number: f64) -> String {
    if number < 10.0 { format!("{number:.2}") } else { group_digits(to_whole(number)) }
}

/// Returns a share in percent.
pub(super) fn format_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns a time in milliseconds or seconds.
pub(super) fn format_milliseconds(seconds: f64) -> String {
    match seconds * 1_000.0 {
        short if short < 10.0 => format!("{short:.1} ms"),
        short if short < 10_000.0 => format!("{short:.0} ms"),
        _ => format!("{seconds:.1} s"),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are positive and below 2^53")]
fn to_whole(number: f64) -> u64 {
    number.round() as u64
}
