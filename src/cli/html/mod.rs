//! The pages of `report` and `bench`: one HTML file each that needs nothing else, with drawings as SVG and pictures as
//! data URLs.
//!
//! Every text that comes from data passes through [`escape_html`]. The page has no scripts, and a policy that forbids
//! them and every request, in case a text got through.

mod bench;
mod style;
mod svg;

use std::fmt::Write as _;

pub(super) use self::bench::render_page as bench_page;
use self::{
    style::STYLE,
    svg::{Bar, Edge, Node},
};
use super::{
    human::{clean, plural},
    report::class_shares,
};
use crate::{
    codec::base64::to_base64,
    ops::{
        drift::{ColumnDrift, DriftReport},
        report::{ColumnReport, Report, SizeBin, SourceFolder, VersionReport},
    },
    units::{Size, group_digits},
};

/// Bytes of a page from which on columns are omitted.
const MAX_BYTES: usize = 900_000;
/// Maximum number of columns whose drift is drawn.
const MAX_DRIFT: usize = 60;
/// Maximum number of folders and versions in the graph.
const MAX_NODES: usize = 12;
/// Maximum number of versions in the table.
const MAX_ROWS: usize = 60;
/// Characters of a text that is cut.
const MAX_TEXT: usize = 240;

/// Returns a text for HTML: nothing in it is markup, and control characters and marks of direction are replaced.
fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// Returns the beginning of a text of any length, for HTML.
fn escape_some(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => escape_html(&text[..end]) + "…",
        None => escape_html(text),
    }
}

/// Returns the page.
pub(super) fn page(report: &Report) -> String {
    let name = report.source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let mut out = begin_page(name, "report");
    // Writing to a string cannot fail, here and below.
    if let Some(version) = report.version {
        let _ = write!(out, " <small>{version}</small>");
    }
    let _ = writeln!(out, "</h1><p class=\"sub mono\">{}</p></header>", escape_some(&report.source));
    write_tiles(&mut out, report);
    write_versions(&mut out, report);
    write_sizes(&mut out, report);
    write_drift(&mut out, report);
    write_rejects(&mut out, report);
    write_lineage(&mut out, report);
    write_parts(&mut out, report);
    write_media(&mut out, report);
    write_columns(&mut out, report);
    write_footer(&mut out, report);
    out.push_str("</main></body></html>\n");
    out
}

/// Returns the beginning of a page, up to the name in its heading.
fn begin_page(name: &str, what: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src \
          'unsafe-inline'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
          <meta name=\"referrer\" content=\"no-referrer\">\
         <title>{0} – shardify {what}</title><style>{STYLE}</style></head><body><main>\n<header><h1><bdi>{0}</bdi>",
        escape_some(name)
    )
}

fn write_heading(out: &mut String, title: &str, about: &str) {
    let _ = writeln!(out, "\n<section><h2>{title}</h2><p class=\"about\">{about}</p>");
}

fn write_tiles(out: &mut String, report: &Report) {
    let about = if report.records_exact { "" } else { "~" };
    let records =
        report.records.map_or_else(|| "unknown".to_owned(), |records| format!("{about}{}", group_digits(records)));
    let is_dataset = report.version.is_some();
    let codec = report.codec.as_deref().filter(|codec| *codec != "none");
    let format_note = codec.map_or_else(|| "format".to_owned(), ToOwned::to_owned);
    let mut all = vec![
        (records, "records".to_owned()),
        (Size(report.bytes).to_string(), "stored".to_owned()),
        (group_digits(report.files), plural_noun(report.files, if is_dataset { "live shard" } else { "file" })),
        (report.format.clone(), format_note),
    ];
    if report.columns > 0 {
        all.push((group_digits(report.columns), plural_noun(report.columns, "column")));
    }
    if is_dataset {
        all.push((group_digits(report.sources), plural_noun(report.sources, "source")));
        all.push((group_digits(report.versions), plural_noun(report.versions, "version")));
    }
    if report.rejects.records > 0 {
        all.push((group_digits(report.rejects.records), "rejected".to_owned()));
    }
    if report.damaged > 0 {
        all.push((group_digits(report.damaged), plural_noun(report.damaged, "damaged file")));
    }
    out.push_str("<div class=\"tiles\">");
    for (value, label) in all {
        let _ =
            write!(out, "<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape_some(&value), escape_html(&label));
    }
    out.push_str("</div>\n");
}

fn plural_noun(count: u64, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

fn write_versions(out: &mut String, report: &Report) {
    let list = &report.version_list;
    if list.is_empty() {
        return;
    }
    let at = report.committed_at.as_deref().unwrap_or_default();
    let shown = match (report.versions - list.len() as u64, list.len().saturating_sub(MAX_ROWS)) {
        (0, 0) => String::new(),
        (older, more) => format!("; {} not listed", group_digits(older + more as u64)),
    };
    write_heading(out, "Versions", &format!("Records after each run; latest commit {}{shown}.", escape_html(at)));
    let bar = |version: &VersionReport| Bar {
        value: version.totals.records as f64,
        title: format!(
            "{}, {}: {}, {}",
            version.version,
            version.operation,
            plural(version.totals.records, "record"),
            Size(version.totals.bytes)
        ),
    };
    if list.len() > 1 {
        let bars = svg::draw_bars(&list.iter().map(bar).collect::<Vec<_>>(), "Records by version");
        let (first, last) = (list.first().map(|v| v.version), list.last().map(|v| v.version));
        let _ = write!(
            out,
            "<div class=\"card tall\" style=\"margin-bottom:12px\">{bars}<div class=\"axis\"><span>{}</span><span>{}\
             </span></div></div>",
            first.unwrap_or_default(),
            last.unwrap_or_default()
        );
    }
    out.push_str("<div class=\"scroll\"><table class=\"stack\"><thead><tr><th>Version</th><th>Run</th>");
    write_number_heads(out, &VERSION_NUMBERS);
    out.push_str("<th>Committed</th></tr></thead><tbody>");
    list.iter().rev().take(MAX_ROWS).for_each(|version| version_row(out, version));
    out.push_str("</tbody></table></div></section>");
}

/// Writes the heads of columns of numbers.
fn write_number_heads(out: &mut String, names: &[&str]) {
    for name in names {
        let _ = write!(out, "<th class=\"n\">{name}</th>");
    }
}

/// Writes numbers into a row. A narrow page has no head of the table, and names each of them.
fn write_numbers(out: &mut String, names: &[&str], cells: &[String]) {
    for (name, cell) in names.iter().zip(cells) {
        let _ = write!(out, "<td class=\"n\" data-name=\"{name}\">{cell}</td>");
    }
}

/// Numbers of a version, as the head of their table names them.
const VERSION_NUMBERS: [&str; 8] =
    ["Records in", "Records out", "Rejected", "Bytes in", "Bytes out", "Shards", "Live records", "Live bytes"];

fn version_row(out: &mut String, version: &VersionReport) {
    let counts = &version.counts;
    let tags: String =
        version.tags.iter().take(8).map(|tag| format!("<span class=\"tag\">{}</span>", escape_some(tag))).collect();
    let gone = if version.readable { "" } else { " class=\"gone\"" };
    let _ = write!(out, "<tr{gone}><td>{}{tags}</td><td>{}</td>", version.version, version.operation);
    let records = [counts.records_in, counts.records_out, counts.records_refused()].map(group_digits);
    let [records_in, records_out, refused] = records;
    let shards = format!("+{} −{}", group_digits(counts.shards_added), group_digits(counts.shards_removed));
    let [bytes_in, bytes_out, live] =
        [counts.bytes_in, counts.bytes_out, version.totals.bytes].map(|n| Size(n).to_string());
    let live_records = group_digits(version.totals.records);
    let cells = [records_in, records_out, refused, bytes_in, bytes_out, shards, live_records, live];
    write_numbers(out, &VERSION_NUMBERS, &cells);
    let _ = write!(out, "<td>{}</td></tr>", escape_html(&version.committed_at));
}

fn write_sizes(out: &mut String, report: &Report) {
    if report.shard_sizes.is_empty() {
        return;
    }
    let (file, title) = match report.version {
        Some(_) => ("shard", "Shards"),
        None => ("file", "Files"),
    };
    write_heading(out, "Sizes", "Bins double in size.");
    out.push_str("<div class=\"two\">");
    size_card(out, title, "all of them", &report.shard_sizes, file);
    size_card(out, "Records", &report.record_sizes_from, &report.record_sizes, "record");
    out.push_str("</div></section>");
}

fn size_card(out: &mut String, title: &str, from: &str, bins: &[SizeBin], what: &str) {
    let Some((first, last)) = bins.first().zip(bins.last()) else { return };
    let bar = |bin: &SizeBin| Bar {
        value: bin.count as f64,
        title: format!("from {}: {}, {}", Size(bin.from), plural(bin.count, what), Size(bin.bytes)),
    };
    let bars = svg::draw_bars(&bins.iter().map(bar).collect::<Vec<_>>(), &format!("Sizes of {what}s"));
    let _ = write!(
        out,
        "<div class=\"card tall\"><h3>{title}</h3><p class=\"facts\">{}</p>{bars}<div class=\"axis\"><span>{}</span>\
         <span>{}</span></div></div>",
        escape_some(from),
        Size(first.from),
        Size(last.from.saturating_mul(2))
    );
}

fn write_columns(out: &mut String, report: &Report) {
    if report.column_list.is_empty() {
        return;
    }
    let sample = escape_some(&report.sample);
    let about = match report.sample_is_all {
        true => "Computed over all records.".to_owned(),
        false => format!(
            "Histograms, frequent values and numbers with ~ are of a sample: {sample}. Other numbers are exact."
        ),
    };
    write_heading(out, "Columns", &about);
    if !report.hidden.is_empty() {
        let names: Vec<String> =
            report.hidden.iter().map(|name| format!("<code>{}</code>", escape_some(name))).collect();
        let why = if report.is_private { "ids are private" } else { "they hold ids (<code>--ids</code> shows them)" };
        let _ = write!(out, "<p class=\"about\">Not shown, because {why}: {}.</p>", names.join(", "));
    }
    out.push_str("<div class=\"grid\">");
    let mut shown = 0;
    let room = MAX_BYTES + picture_bytes(report);
    for column in &report.column_list {
        if out.len() > room {
            break;
        }
        out.push_str(&column_card(column));
        shown += 1;
    }
    out.push_str("</div>");
    let left = report.columns.saturating_sub(shown);
    if left > 0 {
        let _ = write!(out, "<p class=\"about\">{} not shown.</p>", plural(left, "more column"));
    }
    out.push_str("</section>");
}

/// Returns the bytes that pictures take in the page, at least.
fn picture_bytes(report: &Report) -> usize {
    report.media.pictures.iter().map(|picture| picture.content.len() * 4 / 3).sum()
}

fn column_card(column: &ColumnReport) -> String {
    let mut out = format!(
        "<div class=\"card\"><div class=\"top\"><h3 class=\"mono\"><bdi>{}</bdi></h3><span class=\"type\">{}</span>\
         </div><p class=\"facts\">",
        escape_some(&column.column),
        escape_some(&column.data_type)
    );
    let mut facts = vec![match (column.nulls, column.null_share) {
        (Some(0), _) => "no nulls".to_owned(),
        (Some(nulls), share) => format!("<em>{}</em> null ({})", group_digits(nulls), format_percent(share)),
        (None, 0.0) => "~no nulls".to_owned(),
        (None, share) => format!("~<em>{}</em> null", format_percent(share)),
    }];
    if let (Some(min), Some(max)) = (&column.min, &column.max) {
        let about = if column.range_exact { "" } else { "~" };
        facts.push(format!(
            "{about}<em><bdi>{}</bdi></em> to <em><bdi>{}</bdi></em>",
            cut_and_escape(min, 44),
            cut_and_escape(max, 44)
        ));
    }
    if let Some(distinct) = column.sampled_distinct.filter(|distinct| *distinct > 0) {
        let different = if distinct == column.sampled_values && distinct > 1 { "all different" } else { "distinct" };
        facts.push(match different {
            "distinct" => format!("{} distinct in {}", group_digits(distinct), group_digits(column.sampled_values)),
            all => format!("{all} in {}", group_digits(column.sampled_values)),
        });
    }
    if column.sampled_nans > 0 {
        facts.push(format!("{} NaN in the sample", group_digits(column.sampled_nans)));
    }
    if let Some(bytes) = column.stored_bytes {
        facts.push(format!("{} stored", Size(bytes)));
    }
    out.push_str(&facts.join(" · "));
    out.push_str("</p>");
    if column.bins.len() > 1 {
        out.push_str(&histogram_svg(column));
    }
    let distinct = column.sampled_distinct.unwrap_or(0);
    if column.kind != "number" && column.kind != "time" || distinct <= 8 && column.bins.len() < 2 {
        top_values(&mut out, column);
    }
    out + "</div>\n"
}

fn histogram_svg(column: &ColumnReport) -> String {
    let is_time = column.kind == "time";
    let bar = |bin: &crate::ops::report::HistogramBin| Bar {
        value: bin.count as f64,
        title: match is_time {
            true => plural(bin.count, "value"),
            false => {
                format!("{} to {}: {}", format_number(bin.from), format_number(bin.to), plural(bin.count, "value"))
            }
        },
    };
    let bars =
        svg::draw_bars(&column.bins.iter().map(bar).collect::<Vec<_>>(), &format!("Histogram of {}", column.column));
    let ends = column.bins.first().zip(column.bins.last());
    let ends = ends.map_or((0.0, 0.0), |(first, last)| (first.from, last.to));
    let (low, high) = match (&column.sampled_min, &column.sampled_max) {
        (Some(low), Some(high)) => (low.clone(), high.clone()),
        _ => {
            let unit = if column.kind == "bytes" { " bytes" } else { " items" };
            (format_number(ends.0), format_number(ends.1) + unit)
        }
    };
    format!(
        "{bars}<div class=\"axis\"><span>{}</span><span>{}</span></div>",
        cut_and_escape(&low, 32),
        cut_and_escape(&high, 32)
    )
}

fn top_values(out: &mut String, column: &ColumnReport) {
    if column.top.is_empty() {
        return;
    }
    out.push_str("<ul class=\"values\">");
    for top in &column.top {
        let share = 100.0 * top.count as f64 / column.sampled_values.max(1) as f64;
        let value = if top.value.is_empty() { "<i>empty</i>".to_owned() } else { cut_and_escape(&top.value, 80) };
        let _ = write!(
            out,
            "<li style=\"--w:{share:.1}%\"><span title=\"{}\"><bdi>{value}</bdi></span><i>{}</i></li>",
            escape_html(&top.value),
            group_digits(top.count)
        );
    }
    out.push_str("</ul>");
}

/// Returns at most so many characters of a text, for HTML.
fn cut_and_escape(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some((end, _)) => escape_html(&text[..end]) + "…",
        None => escape_html(text),
    }
}

fn format_percent(share: f64) -> String {
    if share > 0.0 && share < 0.001 { "&lt;0.1%".to_owned() } else { format!("{:.1}%", share * 100.0) }
}

/// Writes a number in at most some eight digits.
fn format_number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (0.001..1e9).contains(&size) {
        let text = format!("{value:.*}", if size < 10.0 { 3 } else { 1 });
        return if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    }
    format!("{value:.3e}")
}

fn write_drift(out: &mut String, report: &Report) {
    let Some(drift) = &report.drift else { return };
    let beyond = match (drift.drifted, drift.columns_beyond) {
        (false, _) => "No threshold is exceeded.".to_owned(),
        (true, columns) => format!("{} beyond the thresholds.", plural(columns, "column")),
    };
    let change = format!(
        "{} to {} records ({:+.1}%) from {} to {}. {beyond} {}",
        group_digits(drift.records_before),
        group_digits(drift.records_after),
        drift.volume_change * 100.0,
        drift.from,
        drift.to,
        drift.not_compared.map_or_else(
            || format!("Grey is {}, colour is {}; bins are made from the older version.", drift.from, drift.to),
            |why| format!("Not compared: {}.", escape_html(why))
        ),
    );
    write_heading(out, &format!("Drift from {} to {}", drift.from, drift.to), &change);
    out.push_str("<div class=\"grid\">");
    drift.columns.iter().take(MAX_DRIFT).for_each(|column| drift_card(out, column, drift));
    out.push_str("</div>");
    if drift.columns.len() > MAX_DRIFT {
        let _ = write!(
            out,
            "<p class=\"about\">{} with less drift not shown.</p>",
            plural((drift.columns.len() - MAX_DRIFT) as u64, "column")
        );
    }
    out.push_str("</section>");
}

fn drift_card(out: &mut String, column: &ColumnDrift, drift: &DriftReport) {
    let psi = column.psi.map_or_else(|| "no index".to_owned(), |psi| format!("PSI <em>{psi:.3}</em>"));
    let beyond: String = column.beyond.iter().map(|what| format!("<span class=\"tag bad\">{what}</span>")).collect();
    let _ = write!(
        out,
        "<div class=\"card\"><div class=\"top\"><h3 class=\"mono\"><bdi>{}</bdi></h3><span class=\"type\">{}{beyond}\
         </span></div>\
         <p class=\"facts\">{psi} · nulls {} to {}</p>",
        escape_some(&column.column),
        column.kind,
        format_percent(column.nulls_before),
        format_percent(column.nulls_after)
    );
    let sum = |of: fn(&crate::ops::drift::BinDrift) -> u64| column.bins.iter().map(of).sum::<u64>().max(1) as f64;
    let (before, after) = (sum(|bin| bin.before), sum(|bin| bin.after));
    let shares: Vec<(f64, f64)> =
        column.bins.iter().map(|bin| (bin.before as f64 / before, bin.after as f64 / after)).collect();
    if shares.len() > 1 {
        let label = format!("{} in {} and {}", column.column, drift.from, drift.to);
        out.push_str(&svg::draw_pairs(&shares, &label));
        let end = |bin: Option<&crate::ops::drift::BinDrift>| match bin {
            Some(bin) => bin.up_to.map(format_number).or_else(|| bin.value.clone()),
            None => None,
        };
        let low = end(column.bins.first()).unwrap_or_default();
        let sign = if column.bins.first().is_some_and(|bin| bin.up_to.is_some()) { "≤ " } else { "" };
        let _ =
            write!(out, "<div class=\"axis\"><span>{sign}{}</span><span>others</span></div>", cut_and_escape(&low, 32));
    }
    out.push_str("</div>");
}

fn write_rejects(out: &mut String, report: &Report) {
    let rejects = &report.rejects;
    if rejects.records == 0 {
        return;
    }
    let about = match (rejects.recorded, rejects.complete) {
        (0, _) => "The runs kept no file of rejects; with --on-error quarantine, they do.".to_owned(),
        (recorded, true) => format!("{} on record.", plural(recorded, "record")),
        (recorded, false) => format!("{} in the first 64 MiB of the files of rejects.", plural(recorded, "record")),
    };
    write_heading(out, "Rejected records", &format!("{} by the runs above. {about}", group_digits(rejects.records)));
    if rejects.groups.is_empty() {
        out.push_str("</section>");
        return;
    }
    out.push_str(
        "<div class=\"scroll\"><table class=\"stack\"><thead><tr><th class=\"n\">Records</th><th>Reason</th>\
         <th>Examples</th></tr></thead><tbody>",
    );
    for group in &rejects.groups {
        let _ = write!(
            out,
            "<tr><td class=\"n\">{}</td><td class=\"wrap\">{}</td><td class=\"wrap\">",
            group_digits(group.records),
            escape_some(&group.reason)
        );
        for example in &group.examples {
            let source = escape_some(example.source.as_deref().unwrap_or_default());
            let place = example.line.map_or_else(|| format!("row {}", example.row), |line| format!("line {line}"));
            let _ = write!(out, "<p><code><bdi>{source}</bdi></code> {place}: {}</p>", escape_some(&example.reason));
        }
        out.push_str("</td></tr>");
    }
    out.push_str("</tbody></table></div></section>");
}

fn write_lineage(out: &mut String, report: &Report) {
    let mut folders: Vec<&SourceFolder> = report.folders.iter().collect();
    if folders.is_empty() {
        return;
    }
    folders.sort_by_key(|folder| std::cmp::Reverse((folder.records, folder.version)));
    folders.truncate(MAX_NODES);
    folders.sort_by_key(|folder| folder.version);
    let names = |folder: &SourceFolder| match (&folder.folder, report.is_private) {
        (Some(name), _) => name.clone(),
        (None, true) => "sources, names not shown".to_owned(),
        (None, false) => "other folders".to_owned(),
    };
    // Versions with sources, and the newest ones.
    let newest = report.version_list.iter().rev().take(MAX_NODES / 2).map(|version| version.version);
    let used = folders.iter().map(|folder| folder.version).chain(newest);
    let wanted: std::collections::BTreeSet<_> = used.collect();
    let versions: Vec<&VersionReport> = report.version_list.iter().filter(|v| wanted.contains(&v.version)).collect();
    let sources: Vec<Node> = folders
        .iter()
        .map(|folder| Node {
            title: names(folder),
            note: format!("{}, {}", plural(folder.sources, "source"), Size(folder.bytes)),
        })
        .collect();
    let edge = |(from, folder): (usize, &&SourceFolder)| {
        let to = versions.iter().position(|version| version.version == folder.version)?;
        Some(Edge { from, to, weight: folder.records })
    };
    let edges: Vec<Edge> = folders.iter().enumerate().filter_map(edge).collect();
    let version = |version: &&VersionReport| Node {
        title: format!("{} {}", version.version, version.operation),
        note: format!("{} live, {}", group_digits(version.totals.records), Size(version.totals.bytes)),
    };
    let versions: Vec<Node> = versions.iter().map(version).collect();
    let left = report.folders.len().saturating_sub(folders.len());
    let more = if left > 0 {
        format!(" {} with fewer records not drawn.", plural(left as u64, "folder"))
    } else {
        String::new()
    };
    write_heading(out, "Lineage", &format!("Folders of sources, and the versions that took records from them.{more}"));
    let graph = svg::draw_graph(&sources, &versions, &edges, "Sources and versions");
    let _ = write!(out, "<div class=\"scroll\">{graph}</div></section>");
}

fn write_parts(out: &mut String, report: &Report) {
    if report.parts.is_empty() {
        return;
    }
    let about = if report.sample_is_all {
        "All samples.".to_owned()
    } else {
        format!("Of a sample: {}.", escape_some(&report.sample))
    };
    write_heading(out, "Parts of samples", &about);
    out.push_str("<div class=\"grid\">");
    for part in &report.parts {
        let bar = |bin: &SizeBin| Bar {
            value: bin.count as f64,
            title: format!("from {}: {}", Size(bin.from), plural(bin.count, "sample")),
        };
        let bars =
            svg::draw_bars(&part.sizes.iter().map(bar).collect::<Vec<_>>(), &format!("Sizes of {}", part.extension));
        let ends =
            part.sizes.first().zip(part.sizes.last()).map(|(a, b)| (Size(a.from), Size(b.from.saturating_mul(2))));
        let (low, high) = ends.unwrap_or((Size(0), Size(0)));
        let classes = match part.classes.is_empty() {
            true => String::new(),
            false => format!("<p class=\"facts\">{}</p>", escape_some(&class_shares(part))),
        };
        let _ = write!(
            out,
            "<div class=\"card\"><div class=\"top\"><h3 class=\"mono\"><bdi>.{}</bdi></h3><span class=\"type\">{}\
             </span></div>\
             <p class=\"facts\">{} · {}</p>{classes}{bars}<div class=\"axis\"><span>{low}</span><span>{high}</span></div>\
             </div>",
            escape_some(&part.extension),
            part.media,
            plural(part.samples, "sample"),
            Size(part.bytes)
        );
    }
    out.push_str("</div></section>");
}

fn write_media(out: &mut String, report: &Report) {
    let pictures = &report.media.pictures;
    if !pictures.is_empty() {
        let omitted = match report.pictures_omitted {
            0 => String::new(),
            some => format!(" {} more too large or too many for the page.", group_digits(some)),
        };
        write_heading(
            out,
            "Pictures",
            &format!("{} of sampled records.{omitted}", plural(pictures.len() as u64, "picture")),
        );
        out.push_str("<div class=\"gallery\">");
        for picture in pictures {
            let (name, size) = (escape_some(&picture.name), Size(picture.bytes));
            let content = to_base64(&picture.content);
            let _ = write!(
                out,
                "<figure><img alt=\"{name}\" src=\"data:{};base64,{content}\"><figcaption><bdi>{name}</bdi><br>{size}\
                </figcaption></figure>",
                picture.media
            );
        }
        out.push_str("</div></section>");
    }
}

fn write_footer(out: &mut String, report: &Report) {
    let private = if report.is_private {
        " Ids of this dataset are private: columns of ids, names of sources, values in reasons and the content of \
         samples are omitted."
    } else {
        ""
    };
    let rejected = match report.sample_rejected {
        0 => String::new(),
        some => format!(" <code>convert</code> would reject {} of the sampled records.", group_digits(some)),
    };
    let _ = write!(
        out,
        "<footer>Counts, nulls and ranges are exact where the log, sidecars and Parquet footers state them; NaN is in \
         no range.{rejected}{private} Made by shardify {}.</footer>",
        env!("CARGO_PKG_VERSION")
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::report::{Media, Picture, TopValue};

    const HOSTILE: &str = "<script>alert(1)</script>\"'&\u{202e}\u{0}\u{61c}";

    fn column(name: &str) -> ColumnReport {
        ColumnReport {
            column: name.to_owned(),
            data_type: name.to_owned(),
            kind: "text",
            nulls: None,
            null_share: 0.5,
            sampled_nans: 1,
            min: Some(name.to_owned()),
            max: Some(name.to_owned()),
            range_exact: true,
            sampled_min: Some(name.to_owned()),
            sampled_max: Some(name.to_owned()),
            sampled_values: 2,
            sampled_distinct: Some(1),
            top: vec![TopValue { value: name.to_owned(), count: 2 }],
            bins: Vec::new(),
            stored_bytes: Some(1),
        }
    }

    #[test]
    fn nothing_of_the_data_is_markup() {
        let picture = Picture { name: HOSTILE.into(), media: "image/png", bytes: 3, content: b"abc".to_vec() };
        let report = Report {
            source: HOSTILE.to_owned(),
            format: HOSTILE.to_owned(),
            columns: 1,
            hidden: [HOSTILE.to_owned()].into(),
            column_list: vec![column(HOSTILE)],
            media: Media { pictures: vec![picture], ..Media::default() },
            ..Report::default()
        };
        let page = page(&report);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
        assert!(!page.contains(['\u{202e}', '\u{0}', '\u{61c}']));
        assert!(page.contains("data:image/png;base64,YWJj"));
        for end in ["</section>", "</div>", "</p>"] {
            let start = end.replace("</", "<").replace('>', "");
            let opened = page.matches(&format!("{start}>")).count() + page.matches(&format!("{start} ")).count();
            assert_eq!(page.matches(end).count(), opened, "{end}");
        }
    }

    #[test]
    fn a_page_is_bounded() {
        let wide = "&".repeat(10_000);
        let columns: Vec<ColumnReport> = (0..5_000).map(|_| column(&wide)).collect();
        let report = Report { columns: 5_000, column_list: columns, ..Report::default() };
        let page = page(&report);
        assert!(page.len() < 1_100_000, "{}", page.len());
        assert!(page.contains("more columns not shown"));
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 1.5, 12.34, -3.0, 1e12, 0.000_01, 1_234_567.0].map(format_number);
        assert_eq!(texts, ["0", "1.5", "12.3", "-3", "1.000e12", "1.000e-5", "1234567"]);
    }
}
