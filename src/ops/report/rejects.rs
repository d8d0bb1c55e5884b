//! Rejected records by reason, from the files that `--on-error quarantine` keeps.
//!
//! Reasons that differ only in values and numbers count as one. At most so many bytes are read, and long lines are only
//! counted, because a line holds the rejected record.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, BufReader, Read},
};

use serde::{Deserialize, Serialize};

use crate::{
    dataset::{Entry, Snapshot},
    error::Result,
    id::Version,
    ops::Context,
    storage::SYSTEM_FOLDER,
};

/// Maximum number of bytes that are read of all files.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum length of a line in bytes that is parsed.
const MAX_LINE: u64 = 1 << 20;
/// Maximum number of reasons that are told apart.
const MAX_REASONS: usize = 50;
/// Maximum number of examples of a reason.
const MAX_EXAMPLES: usize = 3;
/// Stands for the reasons beyond these, and for lines that are too long.
const OTHER: &str = "(other reasons)";

/// Rejected records.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RejectsReport {
    /// Records that the described versions rejected, according to the log.
    pub records: u64,
    /// Records that they skipped because their ids are erased or blocked.
    pub erased: u64,
    /// Records in the files of rejects.
    pub recorded: u64,
    /// Whether all files of rejects were read to their end.
    pub complete: bool,
    /// The reasons, most frequent first.
    #[serde(skip)]
    pub groups: Vec<RejectGroup>,
}

/// Records that were rejected for one reason.
#[derive(Debug, Clone, Serialize)]
pub struct RejectGroup {
    /// The reason, with `…` for values and `N` for numbers.
    pub reason: String,
    /// Number of records.
    pub records: u64,
    /// The first of them; none for private datasets.
    pub examples: Vec<RejectExample>,
}

/// A rejected record.
#[derive(Debug, Clone, Serialize)]
pub struct RejectExample {
    /// Version that rejected it.
    pub version: Version,
    /// Its source.
    pub source: Option<String>,
    /// Its row in the source, from 1.
    pub row: u64,
    /// Its line, if the source consists of lines.
    pub line: Option<u64>,
    /// The reason.
    pub reason: String,
}

#[derive(Deserialize)]
struct RejectLine {
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    row: u64,
    #[serde(default)]
    records: Option<u64>,
    #[serde(default)]
    line: Option<u64>,
    #[serde(default)]
    reason: String,
}

/// Groups the rejects of some versions.
pub(super) fn of_versions(
    context: &Context<'_>,
    snapshot: &Snapshot,
    entries: &[Entry],
    hide: bool,
) -> Result<RejectsReport> {
    let mut report = RejectsReport {
        records: entries.iter().map(|entry| entry.counts.records_refused()).sum(),
        erased: entries.iter().map(|entry| entry.counts.records_erased).sum(),
        complete: true,
        ..RejectsReport::default()
    };
    if report.records == 0 {
        return Ok(report);
    }
    let versions: HashMap<String, Version> =
        entries.iter().map(|entry| (entry.transaction.to_string(), entry.version)).collect();
    let store = snapshot.dataset().store();
    let mut files: Vec<(Version, String)> = Vec::new();
    for object in store.list_folder(&format!("{SYSTEM_FOLDER}/rejects"))? {
        let name = object.path.rsplit('/').next().and_then(|name| name.strip_suffix(".jsonl"));
        files.extend(name.and_then(|name| versions.get(name)).map(|version| (*version, object.path.clone())));
    }
    files.sort();
    let mut groups = Groups { all: BTreeMap::new(), hide };
    let mut left = MAX_BYTES;
    for (version, path) in files {
        context.cancel.check()?;
        let mut lines = BufReader::new(store.read(&path)?.take(left));
        let read = groups.read(version, &mut lines)?;
        left -= read;
        report.complete &= left > 0;
    }
    report.groups = groups.finish();
    report.recorded = report.groups.iter().map(|group| group.records).sum();
    Ok(report)
}

struct Groups {
    all: BTreeMap<String, RejectGroup>,
    hide: bool,
}

impl Groups {
    /// Counts the lines of a file, and returns their bytes.
    fn read(&mut self, version: Version, lines: &mut dyn BufRead) -> Result<u64> {
        let mut bytes = 0;
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut *lines).take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
            if read == 0 {
                return Ok(bytes);
            }
            bytes += read;
            if line.ends_with(b"\n") {
                match serde_json::from_slice(&line) {
                    Ok(parsed) => self.add_line(version, parsed),
                    Err(_) => self.count_records(OTHER, 1),
                }
            } else if read == MAX_LINE {
                self.count_records(OTHER, 1);
                bytes += skip_line(lines)?;
            }
        }
    }

    fn add_line(&mut self, version: Version, line: RejectLine) {
        let reason = reason_pattern(&line.reason);
        let known = self.all.contains_key(&reason) || self.all.len() < MAX_REASONS;
        let reason = if known { reason } else { OTHER.to_owned() };
        self.count_records(&reason, line.records.unwrap_or(1));
        let hide = self.hide;
        if let Some(group) = self.all.get_mut(&reason).filter(|group| !hide && group.examples.len() < MAX_EXAMPLES) {
            group.examples.push(RejectExample {
                version,
                source: line.source,
                row: line.row,
                line: line.line,
                reason: line.reason,
            });
        }
    }

    fn count_records(&mut self, reason: &str, records: u64) {
        let empty = || RejectGroup { reason: reason.to_owned(), records: 0, examples: Vec::new() };
        let group = self.all.entry(reason.to_owned()).or_insert_with(empty);
        group.records = group.records.saturating_add(records);
    }

    fn finish(self) -> Vec<RejectGroup> {
        let mut groups: Vec<RejectGroup> = self.all.into_values().collect();
        groups.sort_by(|a, b| b.records.cmp(&a.records).then_with(|| a.reason.cmp(&b.reason)));
        groups
    }
}

/// Skips the rest of a line, and returns its bytes.
fn skip_line(lines: &mut dyn BufRead) -> Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = lines.fill_buf()?;
        if buffer.is_empty() {
            return Ok(skipped);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        lines.consume(used);
        skipped += used as u64;
        if end.is_some() {
            return Ok(skipped);
        }
    }
}

/// Returns a reason without values in quotes, and without numbers.
fn reason_pattern(reason: &str) -> String {
    let mut out = String::new();
    let mut rest = reason.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '`' | '"' => {
                out.extend([c, '…', c]);
                for quoted in rest.by_ref() {
                    if quoted == c {
                        break;
                    }
                }
            }
            // Types have numbers in their names.
            digit if digit.is_ascii_digit() && out.ends_with(char::is_alphabetic) => {
                out.push(digit);
                while let Some(next) = rest.next_if(char::is_ascii_digit) {
                    out.push(next);
                }
            }
            digit if digit.is_ascii_digit() => {
                while rest.next_if(char::is_ascii_digit).is_some() {}
                if ["N,", "N."].iter().any(|group| out.ends_with(group)) {
                    out.pop();
                } else {
                    out.push('N');
                }
            }
            other => out.push(other),
        }
    }
    out.chars().take(300).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn values_and_numbers_do_not_tell_reasons_apart() {
        assert_eq!(reason_pattern("expected int64, found `PAT 1`"), "expected int64, found `…`");
        assert_eq!(reason_pattern("expected 3 fields, found 1,200"), "expected N fields, found N");
        assert_eq!(reason_pattern("an open `quote"), "an open `…`");
    }

    #[test]
    fn long_and_damaged_lines_are_counted() {
        let mut groups = Groups { all: BTreeMap::new(), hide: false };
        let long = format!("{{\"reason\":\"{}\"}}\n", "x".repeat(3 << 20));
        let text = format!(
            "{{\"source\":\"a\",\"row\":2,\"records\":4,\"reason\":\"bad\"}}\n{long}no \
             json\n{{\"reason\":\"bad\"}}\ncut"
        );
        let read = groups.read(Version(1), &mut text.as_bytes()).unwrap();
        assert_eq!(read, text.len() as u64);
        let found = groups.finish();
        assert_eq!((found[0].reason.as_str(), found[0].records, found[0].examples.len()), ("bad", 5, 2));
        assert_eq!((found[1].reason.as_str(), found[1].records), (OTHER, 2));
    }
}
