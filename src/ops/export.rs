//! `manifest --export`: one row per live record, for spreadsheets and query engines.
//!
//! Sidecars are read and written batch by batch, so memory does not depend on the number of records. Rows are in the
//! order of the shards and of the records in them. Values are exported unchanged; cells that a spreadsheet would
//! interpret as formulas are escaped only on request.

use std::io::Write;
use std::num::NonZeroU64;
use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::properties::WriterProperties,
};
use serde::Serialize;

use crate::{
    dataset::{SidecarRow, Snapshot, numbered_rows, stream_sidecar},
    error::{Error, Result},
    events::Cancel,
    id::Version,
    record::BATCH_ROWS,
};

/// Number of batches in a row group.
const GROUP_BATCHES: usize = 16;
/// Columns, in the order that all formats use.
const COLUMNS: [&str; 11] = [
    "record_id",
    "subject_id",
    "shard",
    "ordinal",
    "offset",
    "length",
    "source",
    "row",
    "first_version",
    "shard_version",
    "hash",
];

/// Formats of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// RFC 4180 with a header; null is an empty cell, the empty text is `""`.
    Csv,
    /// The same, but cells that begin with `=`, `+`, `-`, `@`, a tab or a carriage return are prefixed with `'`.
    EscapedCsv,
    /// One JSON object per line.
    Jsonl,
    /// Parquet, compressed with zstd.
    Parquet,
}

/// A live record.
#[derive(Debug, Clone, Serialize)]
pub struct ExportRow {
    /// Record id; `source#row` if none is stored.
    pub record_id: String,
    /// Subject id.
    pub subject_id: Option<String>,
    /// Path of the shard.
    pub shard: String,
    /// Row within the shard, from 0.
    pub ordinal: u64,
    /// Offset in the uncompressed shard; absent in Parquet.
    pub offset: Option<u64>,
    /// Length in bytes; absent in Parquet.
    pub length: Option<u64>,
    /// Name of the source.
    pub source: String,
    /// Row in the source, from 1; absent if the whole source is the record.
    pub row: Option<u64>,
    /// First version that had the record.
    pub first_version: Version,
    /// First version that had it in this shard.
    pub shard_version: Version,
    /// Content hash, XXH3-64 in hexadecimal; absent if none is stored.
    pub hash: Option<String>,
}

/// Passes every live record of a snapshot to `visit`, a batch at a time; returns their number.
///
/// # Errors
/// When a sidecar cannot be read or does not match the run table, or `visit` fails.
pub fn visit_records(
    snapshot: &Snapshot,
    cancel: &Cancel,
    visit: &mut dyn FnMut(&[ExportRow]) -> Result<()>,
) -> Result<u64> {
    super::or_overtaken(Some(snapshot), read_records(snapshot, cancel, visit))
}

fn read_records(
    snapshot: &Snapshot,
    cancel: &Cancel,
    visit: &mut dyn FnMut(&[ExportRow]) -> Result<()>,
) -> Result<u64> {
    let table = snapshot.run_table()?;
    let runs = snapshot.runs_by_shard()?;
    let store = snapshot.dataset().store();
    let mut exported = 0;
    for shard in snapshot.live_shards()? {
        let runs = runs.get(shard.path.as_str()).map_or(&[][..], Vec::as_slice);
        let mut numbers = numbered_rows(store, runs, table)?;
        let mut ordinal = 0;
        for batch in stream_sidecar(store, &shard.sidecar(), BATCH_ROWS)? {
            cancel.check()?;
            let mut rows = Vec::with_capacity(BATCH_ROWS);
            for row in batch? {
                // A row of the shard that is in no live run is not a record any more.
                if let Some(known) = numbers.next().transpose()?.flatten() {
                    rows.push(export_row(snapshot, row, &shard.path, ordinal, known.first_version, known.from)?);
                }
                ordinal += 1;
            }
            exported += rows.len() as u64;
            visit(&rows)?;
        }
        if ordinal != shard.records {
            return Err(Error::integrity(format!("expected a sidecar of {} rows, found {ordinal}", shard.records))
                .at_location(store.location().join(&shard.path).to_string()));
        }
    }
    Ok(exported)
}

fn export_row(
    snapshot: &Snapshot,
    row: SidecarRow,
    shard: &str,
    ordinal: u64,
    first: Version,
    moved: Version,
) -> Result<ExportRow> {
    Ok(ExportRow {
        record_id: snapshot.shown_id(row.id_or_origin())?,
        subject_id: row.subject_id.map(|stored| snapshot.shown_id(stored)).transpose()?,
        shard: shard.to_owned(),
        ordinal,
        offset: row.offset,
        length: row.length,
        source: row.source,
        row: row.row,
        first_version: first,
        shard_version: moved,
        hash: shown_hash(row.hash),
    })
}

/// Returns a stored content hash in hexadecimal.
pub(super) fn shown_hash(hash: Option<NonZeroU64>) -> Option<String> {
    hash.map(|hash| format!("{hash:016x}"))
}

/// Writes every live record of a snapshot; returns their number.
///
/// # Errors
/// When a sidecar cannot be read, or `w` fails.
pub fn export_records(snapshot: &Snapshot, format: ExportFormat, cancel: &Cancel, w: &mut dyn Write) -> Result<u64> {
    match format {
        ExportFormat::Csv | ExportFormat::EscapedCsv => {
            writeln!(w, "{}", COLUMNS.join(","))?;
            let mut line = String::new();
            visit_records(snapshot, cancel, &mut |rows| {
                for row in rows {
                    line.clear();
                    csv_line(row, format == ExportFormat::EscapedCsv, &mut line);
                    w.write_all(line.as_bytes())?;
                }
                Ok(())
            })
        }
        ExportFormat::Jsonl => visit_records(snapshot, cancel, &mut |rows| {
            for row in rows {
                serde_json::to_writer(&mut *w, row).map_err(std::io::Error::from)?;
                w.write_all(b"\n")?;
            }
            Ok(())
        }),
        ExportFormat::Parquet => parquet(snapshot, cancel, w),
    }
}

fn csv_line(row: &ExportRow, escape: bool, line: &mut String) {
    let number = |n: Option<u64>| n.map(|n| n.to_string());
    let cells: [Option<String>; COLUMNS.len()] = [
        Some(row.record_id.clone()),
        row.subject_id.clone(),
        Some(row.shard.clone()),
        number(Some(row.ordinal)),
        number(row.offset),
        number(row.length),
        Some(row.source.clone()),
        number(row.row),
        number(Some(row.first_version.0)),
        number(Some(row.shard_version.0)),
        row.hash.clone(),
    ];
    csv_cells(&cells, escape, line);
    line.push('\n');
}

/// Appends the cells of a line as in RFC 4180; null is an empty cell, the empty text is `""`. If `escape` is set, cells
/// that a spreadsheet interprets as formulas are prefixed with `'`.
pub fn csv_cells(cells: &[Option<String>], escape: bool, line: &mut String) {
    for (i, cell) in cells.iter().enumerate() {
        if i > 0 {
            line.push(',');
        }
        if let Some(text) = cell {
            csv_cell(text, escape, line);
        }
    }
}

fn csv_cell(text: &str, escape: bool, line: &mut String) {
    let formula = escape && text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let quoted = text.is_empty() || formula || text.contains([',', '"', '\n', '\r']);
    if !quoted {
        line.push_str(text);
        return;
    }
    line.push('"');
    if formula {
        line.push('\'');
    }
    line.push_str(&text.replace('"', "\"\""));
    line.push('"');
}

/// Writes Parquet; each row group is encoded in memory and written when it is complete.
fn parquet(snapshot: &Snapshot, cancel: &Cancel, w: &mut dyn Write) -> Result<u64> {
    let failed = |e: parquet::errors::ParquetError| Error::internal("encoding the export failed").with_cause(e);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema(), Some(properties)).map_err(failed)?;
    let mut batches = 0;
    let exported = visit_records(snapshot, cancel, &mut |rows| {
        writer.write(&rows_to_batch(rows)?).map_err(failed)?;
        batches += 1;
        if batches == GROUP_BATCHES {
            batches = 0;
            writer.flush().map_err(failed)?;
            writer.sync()?;
            w.write_all(writer.inner())?;
            writer.inner_mut().clear();
        }
        Ok(())
    })?;
    w.write_all(&writer.into_inner().map_err(failed)?)?;
    Ok(exported)
}

fn schema() -> SchemaRef {
    let field = |name: &str| {
        let text = matches!(name, "record_id" | "subject_id" | "shard" | "source" | "hash");
        let nullable = matches!(name, "subject_id" | "offset" | "length" | "row" | "hash");
        Field::new(name, if text { DataType::Utf8 } else { DataType::UInt64 }, nullable)
    };
    Arc::new(Schema::new(COLUMNS.map(field).to_vec()))
}

fn rows_to_batch(rows: &[ExportRow]) -> Result<RecordBatch> {
    let text =
        |of: fn(&ExportRow) -> Option<&str>| -> ArrayRef { Arc::new(rows.iter().map(of).collect::<StringArray>()) };
    let number =
        |of: fn(&ExportRow) -> Option<u64>| -> ArrayRef { Arc::new(rows.iter().map(of).collect::<UInt64Array>()) };
    let columns = vec![
        text(|r| Some(&r.record_id)),
        text(|r| r.subject_id.as_deref()),
        text(|r| Some(&r.shard)),
        number(|r| Some(r.ordinal)),
        number(|r| r.offset),
        number(|r| r.length),
        text(|r| Some(&r.source)),
        number(|r| r.row),
        number(|r| Some(r.first_version.0)),
        number(|r| Some(r.shard_version.0)),
        text(|r| r.hash.as_deref()),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str, escape: bool) -> String {
        let mut line = String::new();
        csv_cell(text, escape, &mut line);
        line
    }

    #[test]
    fn cells_are_quoted_where_needed_and_changed_only_when_asked() {
        assert_eq!(cell("plain", false), "plain");
        assert_eq!(cell("", false), "\"\"");
        assert_eq!(cell("a,\"b\"\n", false), "\"a,\"\"b\"\"\n\"");
        for start in ["=", "+", "-", "@", "\t", "\r"] {
            let text = format!("{start}1");
            assert_eq!(cell(&text, true), format!("\"'{text}\""));
            assert_eq!(cell(&text, false).trim_matches('"'), text);
        }
    }
}
