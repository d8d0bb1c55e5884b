//! Answers for programs: one JSON object per line, `type` and `schema` first, the last one of type `summary`.
//!
//! Fields are only ever added; `schema` grows when the meaning of one changes.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    codec::hex::to_hex,
    dataset::{Entry, ShardMeta, Snapshot},
    error::{Error, Result},
    events::Cancel,
    ops::{self, diff::DiffReport},
};

const SCHEMA: u32 = 1;

/// Writes one object.
pub(super) fn write_object<T: Serialize>(w: &mut dyn Write, kind: &str, fields: &T) -> Result<()> {
    let value =
        serde_json::to_value(fields).map_err(|e| Error::internal("encoding the answer failed").with_cause(e))?;
    let Value::Object(fields) = value else {
        return Err(Error::internal("an answer is not an object"));
    };
    // A map sorts its keys; the two that tell a reader what this is must come first.
    let head = format!("{{\"type\":{},\"schema\":{SCHEMA}", Value::from(kind));
    w.write_all(head.as_bytes())?;
    for (name, value) in fields {
        write!(w, ",{}:{value}", Value::from(name))?;
    }
    w.write_all(b"}\n")?;
    Ok(())
}

/// Writes one object to standard error, where every line is one with `--json`: `docs/reference/events.schema.json` has
/// their fields.
pub(super) fn write_event<T: Serialize>(kind: &str, fields: &T) {
    let mut line = Vec::new();
    // At once, so that no other line comes in between. There is nobody to tell that standard error is closed.
    if write_object(&mut line, kind, fields).is_ok() {
        let _ = io::stderr().write_all(&line);
    }
}

/// Writes a note or a warning to standard error.
pub(super) fn write_message(kind: &str, text: &str) {
    write_event(kind, &json!({ "message": text }));
}

/// Writes the last object.
pub(super) fn write_summary<T: Serialize>(w: &mut dyn Write, fields: &T) -> Result<()> {
    write_object(w, "summary", fields)
}

/// Writes live shards.
pub(super) fn write_shards(w: &mut dyn Write, shards: &[ShardMeta]) -> Result<()> {
    for shard in shards {
        let checksum = to_hex(&shard.checksum);
        let fields = json!({
            "path": shard.path,
            "records": shard.records,
            "bytes": shard.bytes,
            "codec": shard.codec,
            "raw_bytes": shard.raw_bytes,
            "blake3": checksum,
            "first_record": shard.first_record,
            "version": shard.version,
            "committed_at": format!("{:.6}", shard.committed_at),
        });
        write_object(w, "shard", &fields)?;
    }
    let records: u64 = shards.iter().map(|s| s.records).sum();
    let bytes: u64 = shards.iter().map(|s| s.bytes).sum();
    write_summary(w, &json!({ "shards": shards.len(), "records": records, "bytes": bytes }))
}

/// Writes paths or brace ranges of shards: as objects `{name: place}` and a summary `{total: n}`, or bare for a shell.
pub(super) fn write_places(
    w: &mut dyn Write,
    name: &'static str,
    total: &str,
    places: impl Iterator<Item = String>,
    json: bool,
) -> Result<()> {
    let mut written = 0_u64;
    for place in places {
        if json {
            write_object(w, name, &json!({ name: place }))?
        } else {
            writeln!(w, "{place}")?
        }
        written += 1;
    }
    if json { write_summary(w, &json!({ total: written })) } else { Ok(()) }
}

/// Writes every live record.
pub(super) fn write_records(w: &mut dyn Write, snapshot: &Snapshot, cancel: &Cancel) -> Result<()> {
    let records = ops::export::visit_records(snapshot, cancel, &mut |rows| {
        rows.iter().try_for_each(|row| write_object(w, "record", row))
    })?;
    write_summary(w, &json!({ "version": snapshot.version(), "records": records }))
}

/// Writes what changed between two versions.
pub(super) fn write_diff(w: &mut dyn Write, report: &DiffReport) -> Result<()> {
    report.shards.iter().try_for_each(|change| write_object(w, "shard", change))?;
    report.sources.iter().try_for_each(|change| write_object(w, "source", change))?;
    report.settings.iter().try_for_each(|change| write_object(w, "setting", change))?;
    write_summary(w, report)
}

/// Writes all versions; `newest` knows which of them can be read, and their tags.
pub(super) fn write_history(w: &mut dyn Write, entries: &[Entry], newest: &Snapshot) -> Result<()> {
    for entry in entries {
        let mut fields = Map::new();
        fields.insert("version".into(), json!(entry.version));
        fields.insert("committed_at".into(), json!(format!("{:.6}", entry.committed_at)));
        fields.insert("operation".into(), json!(entry.operation));
        fields.insert("readable".into(), json!(newest.can_read(entry.version)));
        let tags: Vec<&String> = newest.tags().iter().filter(|(_, v)| **v == entry.version).map(|(t, _)| t).collect();
        fields.insert("tags".into(), json!(tags));
        fields.insert("arguments".into(), json!(entry.arguments));
        fields.insert("revisions".into(), json!(entry.revisions));
        for part in [json!(entry.counts), json!(entry.totals)] {
            if let Value::Object(part) = part {
                fields.extend(part);
            }
        }
        write_object(w, "version", &fields)?;
    }
    write_summary(w, &json!({ "versions": entries.len() }))
}

/// Writes an error to standard error; an answer without a summary is not whole.
pub(super) fn write_error(error: &Error) {
    write_event("error", &error_fields(error));
}

fn error_fields(error: &Error) -> Value {
    let place = error.place();
    let mut causes = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        causes.push(inner.to_string());
        cause = inner.source();
    }
    let mut fields = json!({
        "code": super::exit::exit_code(error.kind()),
        "message": error.message(),
        "source": place.source,
        "line": place.line,
        "byte": place.byte,
        "column": place.column,
        "causes": causes,
        "hints": error.hints(),
    });
    if let Some(character) = place.character {
        fields["character"] = json!(character);
    }
    fields
}
