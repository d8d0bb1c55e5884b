//! Answers of `manifest --find`: a table for people, CSV or JSON for programs, written as records are found.

use std::io::Write;

use super::{
    align::write_aligned,
    human::{clean, plural},
    json,
};
use crate::{
    dataset::PlaceState,
    error::Result,
    ops::{
        export::csv_cells,
        manifest::{DuplicateReport, ErasedReport, HitReport, HyperslabReport, SearchReport, VersionsReport},
    },
};

/// Number of table lines whose columns are aligned together.
const ALIGNED_LINES: usize = 1_000;

/// Number of records up to which the table also lists their earlier positions.
const RECORDS_WITH_HISTORY: usize = 20;

/// Columns of the table.
const HEADER: [&str; 10] =
    ["ID", "RECORD", "SUBJECT", "SHARD", "ROW", "OFFSET", "LENGTH", "ORIGIN", "VERSIONS", "STATE"];

/// Columns of CSV.
const COLUMNS: [&str; 18] = [
    "id",
    "kind",
    "record_id",
    "subject_id",
    "shard",
    "ordinal",
    "offset",
    "length",
    "source",
    "row",
    "uri",
    "first_version",
    "last_version",
    "state",
    "stored",
    "hash",
    "hyperslab",
    "variables",
];

/// Format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A table for people.
    Table,
    /// One JSON object per hit, and a summary.
    Json,
    /// One JSON object per hit.
    Lines,
    /// A header and a line per hit.
    Csv {
        /// Whether cells that look like formulas get a `'` in front.
        escape: bool,
    },
}

/// Writes hits as they come.
pub(super) struct FoundWriter<'a> {
    form: Form,
    w: &'a mut dyn Write,
    /// Lines that are not written yet, and notes to write below them.
    lines: Vec<[String; HEADER.len()]>,
    notes: Vec<String>,
    /// Earlier positions of records, if few were found.
    earlier: Vec<String>,
    hits: usize,
    widths: [usize; HEADER.len()],
}

impl<'a> FoundWriter<'a> {
    /// Starts an answer.
    ///
    /// # Errors
    /// When `w` fails.
    pub(super) fn new(form: Form, w: &'a mut dyn Write) -> Result<Self> {
        if let Form::Csv { .. } = form {
            writeln!(w, "{}", COLUMNS.join(","))?;
        }
        let lines = vec![HEADER.map(str::to_owned)];
        Ok(Self { form, w, lines, notes: Vec::new(), earlier: Vec::new(), hits: 0, widths: [0; HEADER.len()] })
    }

    /// Writes a hit.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write_hit(&mut self, hit: &HitReport) -> Result<()> {
        match self.form {
            Form::Json => json::write_object(self.w, "hit", hit),
            Form::Lines => {
                serde_json::to_writer(&mut *self.w, hit).map_err(std::io::Error::from)?;
                Ok(self.w.write_all(b"\n")?)
            }
            Form::Csv { escape } => Ok(self.w.write_all(csv_line(hit, escape).as_bytes())?),
            Form::Table => {
                self.lines.push(hit_cells(hit));
                self.notes.extend(hit_notes(hit));
                self.hits += 1;
                if self.hits <= RECORDS_WITH_HISTORY {
                    self.earlier.extend(earlier_positions(hit));
                }
                if self.lines.len() >= ALIGNED_LINES { self.flush() } else { Ok(()) }
            }
        }
    }

    /// Writes an erased id as an object.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write_erased(&mut self, erased: &ErasedReport) -> Result<()> {
        json::write_object(self.w, "erased", erased)
    }

    /// Writes a record that was omitted as an object.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write_duplicate(&mut self, duplicate: &DuplicateReport) -> Result<()> {
        json::write_object(self.w, "duplicate", duplicate)
    }

    fn flush(&mut self) -> Result<()> {
        write_aligned(self.w, &self.lines, &mut self.widths)?;
        self.lines.clear();
        for note in self.notes.drain(..) {
            writeln!(self.w, "{note}")?;
        }
        Ok(())
    }

    /// Ends the answer.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(mut self, report: &SearchReport) -> Result<()> {
        match self.form {
            Form::Json => return json::write_summary(self.w, report),
            Form::Lines | Form::Csv { .. } => return Ok(()),
            Form::Table => {}
        }
        if report.hits == 0 {
            return Ok(());
        }
        self.flush()?;
        if self.hits <= RECORDS_WITH_HISTORY {
            self.earlier.iter().try_for_each(|note| writeln!(self.w, "{note}"))?;
        }
        if report.shown < report.hits {
            writeln!(self.w, "... and {} more; --limit N shows more", plural(report.hits - report.shown, "record"))?;
        }
        let found = report.ids - report.missing.len() as u64;
        writeln!(self.w, "{} of {} at {}", plural(report.hits, "record"), plural(found, "id"), report.version)?;
        Ok(())
    }
}

fn hit_cells(hit: &HitReport) -> [String; HEADER.len()] {
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let origin = match hit.origin.row {
        Some(row) => format!("{} row {row}", hit.origin.source),
        None => hit.origin.source.clone(),
    };
    [
        clean(&hit.id).into_owned(),
        clean(&hit.record_id).into_owned(),
        hit.subject_id.as_ref().map_or_else(|| "-".to_owned(), |id| clean(id).into_owned()),
        clean(&hit.shard).into_owned(),
        hit.ordinal.to_string(),
        number(hit.offset),
        number(hit.length),
        clean(&origin).into_owned(),
        format_versions(hit.versions),
        hit.state.name().to_owned(),
    ]
}

/// Returns notes that have no column in the table.
fn hit_notes(hit: &HitReport) -> Vec<String> {
    let record = clean(&hit.record_id);
    let mut notes = Vec::new();
    if let Some(slab) = &hit.origin.hyperslab {
        let (part, source) = (clean(&slab.text), clean(&hit.origin.source));
        notes.push(format!("{record}: {part} of {} in {source}", clean(&variable_names(slab))));
    }
    if let (Some(offset), Some(length), Some(inside)) = (hit.frame_offset, hit.frame_length, hit.offset_in_frame) {
        let shard = clean(&hit.shard);
        notes.push(format!("{record}: at {inside} of the frame at {offset}, {length} bytes, of {shard}"));
    }
    match (hit.state, &hit.now) {
        (PlaceState::Vacuumed, Some(now)) => notes.push(format!(
            "{record}: these bytes are deleted; the newest version has it in {}, row {}",
            clean(&now.shard),
            now.ordinal
        )),
        (PlaceState::Removed | PlaceState::Erased, _) => notes.push(format!(
            "{record}: {} by the version after {}; its bytes are {}",
            hit.state.name(),
            hit.versions.to.map_or_else(|| "this one".to_owned(), |to| to.to_string()),
            if hit.stored { "kept for older versions until they are vacuumed" } else { "gone" }
        )),
        _ => {}
    }
    notes
}

/// Returns the names of the arrays that a record is part of.
fn variable_names(slab: &HyperslabReport) -> String {
    slab.variables.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Returns the positions of a record before it was compacted.
fn earlier_positions(hit: &HitReport) -> impl Iterator<Item = String> + '_ {
    hit.earlier.iter().map(|place| {
        let (record, shard) = (clean(&hit.record_id), clean(&place.shard));
        let bytes = if place.stored { "still stored" } else { "deleted by vacuum" };
        format!("{record}: {} in {shard} row {}, {bytes}", format_versions(place.versions), place.ordinal)
    })
}

fn csv_line(hit: &HitReport, escape: bool) -> String {
    let number = |n: Option<u64>| n.map(|n| n.to_string());
    let slab = hit.origin.hyperslab.as_ref();
    let cells: [Option<String>; COLUMNS.len()] = [
        Some(hit.id.clone()),
        Some(hit.kind.to_owned()),
        Some(hit.record_id.clone()),
        hit.subject_id.clone(),
        Some(hit.shard.clone()),
        number(Some(hit.ordinal)),
        number(hit.offset),
        number(hit.length),
        Some(hit.origin.source.clone()),
        number(hit.origin.row),
        hit.origin.uri.clone(),
        number(Some(hit.versions.from.0)),
        number(hit.versions.to.map(|to| to.0)),
        Some(hit.state.name().to_owned()),
        Some(hit.stored.to_string()),
        hit.hash.clone(),
        slab.map(|slab| slab.text.clone()),
        slab.map(variable_names),
    ];
    let mut line = String::new();
    csv_cells(&cells, escape, &mut line);
    line.push('\n');
    line
}

fn format_versions(versions: VersionsReport) -> String {
    match versions.to {
        Some(to) if to == versions.from => to.to_string(),
        Some(to) => format!("{}-{to}", versions.from),
        None => format!("{}-", versions.from),
    }
}
