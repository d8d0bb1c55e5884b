//! The page of `bench`: what a loader gets before and after, as bars that can be compared by eye.

use std::fmt::Write as _;

use super::{begin_page, escape_html, escape_some, write_heading, write_number_heads, write_numbers};
use crate::{
    cli::bench::{
        conclusion_sentences, describe_side, format_factor, format_milliseconds, format_percent, format_rate,
    },
    ops::bench::{BenchReport, BenchRun, Cache},
    units::{Size, group_digits},
};

/// Returns the page.
pub(in crate::cli) fn render_page(report: &BenchReport) -> String {
    let last = |name: &str| name.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let name = format!("{} → {}", last(&report.source.name), last(&report.dataset.name));
    let mut out = begin_page(&name, "bench");
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        out,
        "</h1><p class=\"sub\">Before: <span class=\"mono\">{}</span>, {}. After: <span class=\"mono\">{}</span>, \
         {}.</p></header>",
        escape_some(&report.source.name),
        escape_html(&describe_side(&report.source)),
        escape_some(&report.dataset.name),
        escape_html(&describe_side(&report.dataset))
    );
    write_tiles(&mut out, report);
    for (cache, title) in [(Cache::Cold, "Cold"), (Cache::Warm, "Warm"), (Cache::Remote, "Remote")] {
        write_section(&mut out, report, cache, title);
    }
    write_table(&mut out, report);
    write_footer(&mut out, report);
    out.push_str("</main></body></html>\n");
    out
}

fn write_tiles(out: &mut String, report: &BenchReport) {
    out.push_str("<div class=\"tiles\">");
    let mut tile = |value: String, label: &str| {
        let _ =
            write!(out, "<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape_html(&value), escape_html(label));
    };
    for (speedup, label) in
        [(report.speedup_cold, "records per second, cold"), (report.speedup_warm, "records per second, warm")]
    {
        if let Some(speedup) = speedup {
            tile(format!("{} ×", format_factor(speedup)), label);
        }
    }
    let cold = |side: &str| report.side_run(side, Cache::Cold).or_else(|| report.side_run(side, Cache::Remote));
    for (side, word) in [("source", "before"), ("dataset", "after")] {
        if let Some(waiting) = cold(side).and_then(|run| run.waiting) {
            tile(format_percent(waiting), &format!("of the time a step waits {word}, cold"));
        }
    }
    tile(group_digits(report.source.files), if report.source.files == 1 { "file before" } else { "files before" });
    tile(group_digits(report.dataset.files), if report.dataset.files == 1 { "file after" } else { "files after" });
    out.push_str("</div>\n");
}

fn write_section(out: &mut String, report: &BenchReport, cache: Cache, title: &str) {
    let runs: Vec<&BenchRun> = report.runs.iter().filter(|run| run.cache == cache).collect();
    if runs.is_empty() {
        return;
    }
    let what = match cache {
        Cache::Cold => {
            "The files were dropped from the page cache before each measurement, so they come from the disk."
        }
        Cache::Warm => "The files are in the page cache, so no disk is involved.",
        Cache::Remote => "The files come over the network.",
    };
    write_heading(out, title, what);
    out.push_str("<div class=\"two\">");
    write_card(out, "Records per second", &runs, |run| run.records_per_second, format_rate);
    write_card(
        out,
        "Bytes in memory per second",
        &runs,
        |run| run.bytes_per_second,
        |bytes| format!("{}/s", rate_size(bytes)),
    );
    write_card(out, "Time to the first batch", &runs, |run| run.first_batch_seconds, format_milliseconds);
    let waiting: Vec<&BenchRun> = runs.into_iter().filter(|run| run.waiting.is_some()).collect();
    if !waiting.is_empty() {
        let title = format!("Waiting of a step of {}", format_milliseconds(report.step_seconds));
        // Shares of the whole, so that 3 % looks like 3 %.
        write_rates(out, &title, &waiting, |run| run.waiting.unwrap_or(0.0), format_percent, 1.0, " waits");
    }
    out.push_str("</div></section>");
}

fn write_card(out: &mut String, title: &str, runs: &[&BenchRun], of: fn(&BenchRun) -> f64, show: fn(f64) -> String) {
    let most = runs.iter().map(|run| of(run)).fold(0.0, f64::max);
    write_rates(out, title, runs, of, show, most, "");
}

fn write_rates(
    out: &mut String,
    title: &str,
    runs: &[&BenchRun],
    of: fn(&BenchRun) -> f64,
    show: fn(f64) -> String,
    most: f64,
    class: &str,
) {
    let _ = write!(
        out,
        "<div class=\"card\"><h3>{}</h3><div class=\"rates\" style=\"margin-top:10px\">",
        escape_html(title)
    );
    for run in runs {
        let (value, word) = (of(run), if run.side == "source" { "before" } else { "after" });
        let width = if most > 0.0 { (value / most * 100.0).clamp(0.0, 100.0) } else { 0.0 };
        let readers = if run.readers == 1 { "1 reader".to_owned() } else { format!("{} readers", run.readers) };
        let _ = write!(
            out,
            "<span>{word}, {readers}</span><div class=\"bar {word}{class}\" style=\"--w:{width:.1}%\"></div><span \
             class=\"n\">{}</span>",
            escape_html(&show(value))
        );
    }
    out.push_str("</div></div>");
}

/// Numbers of a measurement, as the head of their table names them.
const MEASUREMENTS: [&str; 9] =
    ["Readers", "Records", "Bytes", "Time", "Records/s", "First batch", "Files opened", "From disks", "Waiting"];

fn write_table(out: &mut String, report: &BenchReport) {
    write_heading(
        out,
        "All measurements",
        "Each takes at most the time stated below, and ends earlier if a cold reading comes to the end.",
    );
    out.push_str("<div class=\"scroll\"><table class=\"stack\"><thead><tr><th>Side</th><th>Cache</th>");
    write_number_heads(out, &MEASUREMENTS);
    out.push_str("</tr></thead><tbody>");
    for run in &report.runs {
        let cache = match run.cache {
            Cache::Cold => "cold",
            Cache::Warm => "warm",
            Cache::Remote => "remote",
        };
        let word = if run.side == "source" { "before" } else { "after" };
        let cells = [
            run.readers.to_string(),
            group_digits(run.records),
            Size(run.bytes).to_string(),
            format_milliseconds(run.seconds),
            format_rate(run.records_per_second),
            format_milliseconds(run.first_batch_seconds),
            group_digits(run.files_opened),
            run.disk_bytes.map_or_else(|| "unknown".to_owned(), |bytes| Size(bytes).to_string()),
            run.waiting.map_or_else(String::new, format_percent),
        ];
        let _ = write!(out, "<tr><td>{word}</td><td>{cache}</td>");
        write_numbers(out, &MEASUREMENTS, &cells);
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></section>");
}

fn write_footer(out: &mut String, report: &BenchReport) {
    out.push_str("<footer>");
    for line in conclusion_sentences(report).iter().chain(&report.notes) {
        let _ = write!(out, "<p>{}.</p>", escape_html(line));
    }
    let _ = write!(
        out,
        "<p>Readers of shardify {} took batches of {} records in a random order of samples or shards, for at most {} \
         a measurement; two batches for each reader wait in a queue. Records were read into memory and decoded no \
         further. A consumer took a batch, worked for {}, and took the next; the time that it waited after the first \
         batch counts.</p></footer>",
        env!("CARGO_PKG_VERSION"),
        group_digits(report.batch),
        format_milliseconds(report.limit_seconds),
        format_milliseconds(report.step_seconds)
    );
}

fn rate_size(bytes: f64) -> Size {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and below 2^53")]
    let bytes = bytes as u64;
    Size(bytes)
}
