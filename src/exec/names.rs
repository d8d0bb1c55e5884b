//! Validates names of records that are known only while reading: rows with ids, and samples of foreign archives.
//!
//! A record whose name some reader cannot accept stops the run, or is removed from its block and becomes a reject. (If
//! names are to be changed instead, the encoder does that.)

use arrow::{array::BooleanArray, compute::filter_record_batch};
use bytes::Bytes;

use super::encode::id_column;
use crate::{
    error::{Error, Result},
    indexes::names::{Name, Rule},
    plan::names::NameRules,
    record::{Payload, RecordBlock, Reject, Sample, key::escape_key},
};

/// Maximum number of names that a message gives as examples.
pub const EXAMPLES: usize = 3;

/// Filter behind the parser that validates record names.
#[derive(Debug, Clone)]
pub struct NameGate {
    /// The rules.
    pub rules: NameRules,
    /// Whether a record that breaks a rule is skipped; otherwise it stops the run.
    pub skip: bool,
    /// Columns that make the record id.
    pub id: Vec<String>,
}

impl NameGate {
    /// Returns the block without records whose names break a rule, and these records as rejects. `source_key` is the
    /// prefix of the names of rows without an id.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) with the number of such records and examples, unless they are
    /// skipped.
    pub fn pass(&self, block: RecordBlock, source_key: &str) -> Result<(RecordBlock, Vec<Reject>)> {
        let broken = self.broken(&block.payload, source_key)?;
        let found: Vec<(&str, &Rule)> = broken.iter().flatten().map(|(name, rule)| (name.as_str(), *rule)).collect();
        if !found.is_empty() && !self.skip {
            return Err(refusal(found.len(), found.into_iter()));
        }
        let reasons = broken.iter().map(|b| b.as_ref().map(|(name, rule)| reason(name, rule))).collect();
        reject_records(block, reasons)
    }

    /// Returns for each record the name that breaks a rule, if any.
    fn broken(&self, payload: &Payload, source_key: &str) -> Result<Vec<Option<(String, &'static Rule)>>> {
        let row = |key: &str| {
            let rule = self.rules.broken(Name { key, extension: "json" })?;
            Some((format!("{key}.json"), rule))
        };
        // Names of rows have nine digits.
        let unnamed = || row(&format!("{source_key}-000000000"));
        match payload {
            Payload::Samples(samples) => Ok(samples.iter().map(|sample| self.broken_sample(sample)).collect()),
            Payload::Rows(batch) if self.id.is_empty() => Ok(vec![unnamed(); batch.num_rows()]),
            Payload::Rows(batch) => {
                let ids = id_column(batch, &self.id)?;
                Ok(ids.iter().map(|id| id.map_or_else(unnamed, |id| row(&escape_key(id)))).collect())
            }
        }
    }

    fn broken_sample(&self, sample: &Sample) -> Option<(String, &'static Rule)> {
        sample.parts.iter().find_map(|part| {
            let rule = self.rules.broken(Name { key: &sample.key, extension: &part.extension })?;
            Some((format!("{}.{}", sample.key, part.extension), rule))
        })
    }
}

/// Filter behind the parser that finds samples without a part that others have.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PartsGate {
    /// Extensions that a sample should have, sorted.
    pub all: Vec<String>,
    /// Whether a sample without one of them is skipped; otherwise it stops the run.
    pub skip: bool,
}

impl PartsGate {
    /// Returns the block without incomplete samples, and these samples as rejects.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) naming the first of them, unless they are skipped.
    pub fn pass(&self, block: RecordBlock) -> Result<(RecordBlock, Vec<Reject>)> {
        let Payload::Samples(samples) = &block.payload else { return Ok((block, Vec::new())) };
        let reasons: Vec<Option<String>> = samples.iter().map(|sample| self.lacking(sample)).collect();
        match reasons.iter().flatten().next() {
            Some(first) if !self.skip => Err(incomplete(first.clone())),
            _ => reject_records(block, reasons),
        }
    }

    fn lacking(&self, sample: &Sample) -> Option<String> {
        let has = |extension: &String| sample.parts.iter().any(|part| part.extension == *extension);
        let lacking: Vec<&str> = self.all.iter().filter(|e| !has(e)).map(String::as_str).collect();
        (!lacking.is_empty()).then(|| format!("{}: {}", sample.key, missing_parts(&self.all, &lacking)))
    }
}

/// Describes which parts a sample lacks.
pub fn missing_parts(all: &[String], lacking: &[&str]) -> String {
    format!("expected the parts {}, found no {}", all.join(", "), lacking.join(", "))
}

/// Returns the error that stops a run because of a sample that lacks parts.
pub fn incomplete(problem: String) -> Error {
    Error::input(problem).hint(
        "skip such samples with --missing skip, keep them with --missing keep, or skip kinds of files with --exclude",
    )
}

/// Removes the records that have a reason from a block; they become rejects.
pub(super) fn reject_records(
    mut block: RecordBlock,
    reasons: Vec<Option<String>>,
) -> Result<(RecordBlock, Vec<Reject>)> {
    let keep: Vec<bool> = reasons.iter().map(Option::is_none).collect();
    if keep.iter().all(|keep| *keep) {
        return Ok((block, Vec::new()));
    }
    block.expand();
    let reject = |(row, reason): (&u32, Option<String>)| {
        Some(Reject { row: *row, line: 0, byte: 0, column: None, reason: reason?, raw: Bytes::new() })
    };
    let rejects = block.rows.iter().zip(reasons).filter_map(reject).collect();
    let mut flags = keep.iter().copied();
    block.rows.retain(|_| flags.next().unwrap_or(true));
    let mut flags = keep.iter().copied();
    block.hashes.retain(|_| flags.next().unwrap_or(true));
    let mut flags = keep.iter().copied();
    block.fingerprints.retain(|_| flags.next().unwrap_or(true));
    block.payload = match block.payload {
        Payload::Rows(batch) => Payload::Rows(filter_record_batch(&batch, &BooleanArray::from(keep))?),
        Payload::Samples(samples) => {
            Payload::Samples(samples.into_iter().zip(&keep).filter(|(_, keep)| **keep).map(|(s, _)| s).collect())
        }
    };
    Ok((block, rejects))
}

/// Returns the reason for which a record is rejected because of its name.
pub fn reason(name: &str, rule: &Rule) -> String {
    format!("{} cannot accept the name `{name}`: {}", rule.reader, rule.fault)
}

/// Returns the error that stops a run because of record names.
pub fn refusal<'a>(count: usize, names: impl Iterator<Item = (&'a str, &'a Rule)>) -> Error {
    let first: Vec<(&str, &Rule)> = names.take(EXAMPLES).collect();
    let examples: Vec<String> =
        first.iter().map(|(name, rule)| format!("`{name}` ({}: {})", rule.reader, rule.fault)).collect();
    let more = if count > examples.len() { ", ..." } else { "" };
    let error = Error::input(format!(
        "expected names that every reader of these shards accepts, found {count} that some reader cannot accept: \
         {}{more}",
        examples.join(", ")
    ))
    .hint("escape them with --on-name rename, or skip these records with --on-name skip");
    match first.iter().find_map(|(_, rule)| rule.index) {
        Some(kind) => error.hint(format!("or omit {kind} from --index")),
        None => error,
    }
}
