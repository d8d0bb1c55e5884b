//! Report of `inspect`.

use std::io::Write;

use super::{clean, plural, table::write_table_facts, write_line, write_parent, write_settings};
use crate::{
    error::Result,
    ops::inspect::{Bucket, Cost, InspectReport},
    units::{Size, group_digits},
};

/// Writes what `inspect` found.
pub(in crate::cli) fn write_inspect(w: &mut dyn Write, report: &InspectReport) -> Result<()> {
    let version = report.version.map_or_else(String::new, |version| format!("{version} of "));
    writeln!(w, "{version}{}", clean(&report.source))?;
    for format in &report.formats {
        let about = match (format.exact, format.at_least) {
            (true, _) => "",
            (false, true) => "at least ",
            (false, false) => "~",
        };
        let records = format.records.map_or_else(String::new, |n| format!(", {about}{}", plural(n, "record")));
        let files = plural(format.files, if report.version.is_some() { "shard" } else { "file" });
        let damaged =
            if format.damaged > 0 { format!(", {} damaged", group_digits(format.damaged)) } else { String::new() };
        writeln!(w, "  {:<10} {files}, {}{records}{damaged}", format.format, Size(format.bytes))?;
    }
    if let Some(table) = &report.table {
        write_table_facts(w, table)?;
    }
    if let Some(chosen) = &report.settings {
        write_line(w, "target", chosen.target_shard)?;
        write_settings(w, chosen)?;
    }
    write_parent(w, report.parent.as_ref(), &report.source)?;
    for plan in &report.plans {
        let (done, tasks) = (group_digits(plan.tasks_done), plural(plan.tasks, "task"));
        writeln!(w, "  plan       {}: {done} of {tasks} done, last at {}", plan.operation, plan.touched)?;
        writeln!(w, "             {}", clean(&plan.plan))?;
    }
    if report.files > 0 {
        writeln!(w, "sizes")?;
        write_sizes(w, &report.sizes, "files")?;
        if report.files > 1 {
            let (small, files) = (group_digits(report.small_files), group_digits(report.files));
            writeln!(w, "  small-file score {} of 100, {small} of {files} small", report.small_file_score)?;
        }
    }
    if !report.columns.is_empty() {
        writeln!(w, "columns in {}", plural(report.sampled_records, "sampled record"))?;
        let width = report.columns.iter().map(|c| c.column.chars().count()).max().unwrap_or(0).min(40);
        for column in &report.columns {
            let nulls = if column.nulls > 0.0 { format!("  {:.1}% null", column.nulls * 100.0) } else { String::new() };
            let unique = if column.unique { "  unique" } else { "" };
            writeln!(w, "  {:<width$}  {}{nulls}{unique}", clean(&column.column), clean(&column.data_type))?;
        }
    }
    write_variables(w, report)?;
    if !report.problems.is_empty() {
        writeln!(w, "problems")?;
        report.problems.iter().try_for_each(|problem| writeln!(w, "  {}", clean(problem)))?;
    }
    match &report.command {
        Some(command) => writeln!(w, "next\n  {}\n  {}", clean(command), clean(&report.advice))?,
        None => writeln!(w, "next\n  {}", clean(&report.advice))?,
    }
    report.cost.iter().try_for_each(|cost| writeln!(w, "  {}", format_estimate(cost)).map_err(Into::into))
}

/// Writes a line per bucket: its lower bound, and how many files, or of what else `noun` says, it has.
pub(in crate::cli) fn write_sizes(w: &mut dyn Write, buckets: &[Bucket], noun: &str) -> Result<()> {
    let all = buckets.iter().map(|bucket| bucket.files).sum();
    for bucket in buckets.iter().filter(|bucket| bucket.files > 0) {
        let (from, bytes) = (Size(bucket.from).to_string(), Size(bucket.bytes).to_string());
        let (files, share) = (group_digits(bucket.files), format_share(bucket.files, all));
        let noun = if bucket.files == 1 { format!("{} ", noun.trim_end_matches('s')) } else { noun.to_owned() };
        writeln!(w, "  {from:>9}+ {files:>11} {noun} {share:>5} {bytes:>9}")?;
    }
    Ok(())
}

/// Returns a share in percent, without a claim that few are none or most are all.
fn format_share(files: u64, all: u64) -> String {
    match (u128::from(files) * 200 / u128::from(all.max(1))).div_ceil(2) {
        0 if files > 0 => "< 1 %".to_owned(),
        100 if files < all => "99 %".to_owned(),
        percent => format!("{percent} %"),
    }
}

/// Returns what the next command will take, in words.
fn format_estimate(cost: &Cost) -> String {
    format!(
        "about {} and {} in {}, by {:.1} s of work on a sample of {}",
        format_duration(cost.seconds),
        Size(cost.bytes),
        plural(cost.shards, "shard"),
        cost.sampled_seconds,
        Size(cost.sampled_bytes)
    )
}

/// Returns a duration with two digits that count.
fn format_duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a range of u64")]
    let whole = seconds.clamp(0.0, 1e9).round() as u64;
    match whole {
        0..10 => format!("{:.1} s", seconds.max(0.1)),
        10..60 => format!("{whole} s"),
        60..600 => format!("{} min {} s", whole / 60, whole % 60 / 10 * 10),
        600..3_600 => format!("{} min", (whole + 30) / 60),
        3_600..86_400 => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} h", group_digits((whole + 1_800) / 3_600)),
    }
}

/// Writes the variables of an array source with their attributes.
fn write_variables(w: &mut dyn Write, report: &InspectReport) -> Result<()> {
    if let Some(dim) = &report.record_dim {
        writeln!(w, "records along {}", clean(dim))?;
    }
    for variable in &report.variables {
        let dims: Vec<String> = variable.dims.iter().map(|(dim, length)| format!("{dim} {length}")).collect();
        let lengths = |chunk: &Vec<u64>| chunk.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        let chunks =
            variable.chunks.as_ref().map_or_else(String::new, |chunks| format!("  chunks {}", lengths(chunks)));
        let codecs =
            if variable.codecs.is_empty() { String::new() } else { format!(" {}", variable.codecs.join(", ")) };
        let role = if variable.role == "record" { String::new() } else { format!("  {}", variable.role) };
        let shape = format!("{}({})", variable.variable, dims.join(", "));
        let read_as = variable.column_type.as_ref().map_or_else(String::new, |name| format!(" as {name}"));
        let data_type = format!("{}{read_as}", variable.data_type);
        writeln!(w, "  {}  {}{chunks}{}{role}", clean(&shape), clean(&data_type), clean(&codecs))?;
        for (name, value) in &variable.attributes {
            let short: String = value.chars().take(80).collect();
            writeln!(w, "    {}: {}", clean(name), clean(&short))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_do_not_claim_none_or_all() {
        let shares = [
            format_share(0, 0),
            format_share(1, 1_000),
            format_share(999, 1_000),
            format_share(1, 3),
            format_share(2, 3),
            format_share(7, 7),
        ];
        assert_eq!(shares, ["0 %", "< 1 %", "99 %", "33 %", "67 %", "100 %"]);
    }
}
