//! Validates names of records that are known only while reading: rows with ids, and samples of foreign archives.
//!
//! A record whose name some reader cannot accept stops the run, or is removed from its block and becomes a reject. (If
//! names are to be changed instead, the encoder does that.)

use super::{Gate, GatedBlock};
use crate::{
    dataset::IdKind,
    error::{Error, Result},
    exec::source::SourceFacts,
    indexes::names::{MemberName, Rule},
    plan::names::NameRules,
    record::{Payload, Sample, key::escape_key},
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
}

impl Gate for NameGate {
    fn pass_block(&self, gated: &mut GatedBlock, source: &SourceFacts) -> Result<()> {
        let broken = self.broken_rules(gated, &source.name.key)?;
        let found: Vec<(&str, &Rule)> = broken.iter().flatten().map(|(name, rule)| (name.as_str(), *rule)).collect();
        if !found.is_empty() && !self.skip {
            return Err(refused_names_error(found.len(), found.into_iter()));
        }
        gated.reject_records(broken.iter().map(|b| b.as_ref().map(|(name, rule)| reject_reason(name, rule))).collect())
    }
}

impl NameGate {
    /// Returns for each record the name that breaks a rule, if any. `source_key` is the prefix of the names of rows
    /// without an id.
    fn broken_rules(&self, gated: &mut GatedBlock, source_key: &str) -> Result<Vec<Option<(String, &'static Rule)>>> {
        let row = |key: &str| {
            let rule = self.rules.broken_rule(MemberName { key, extension: "json" })?;
            Some((format!("{key}.json"), rule))
        };
        // Names of rows have nine digits.
        let unnamed = || row(&format!("{source_key}-000000000"));
        if let Payload::Samples(samples) = &gated.block.payload {
            return Ok(samples.iter().map(|sample| self.broken_sample(sample)).collect());
        }
        Ok(match gated.ids_of_kind(IdKind::Record)? {
            None => vec![unnamed(); gated.block.payload.len()],
            Some(ids) => ids.iter().map(|id| id.map_or_else(unnamed, |id| row(&escape_key(id)))).collect(),
        })
    }

    fn broken_sample(&self, sample: &Sample) -> Option<(String, &'static Rule)> {
        sample.parts.iter().find_map(|part| {
            let rule = self.rules.broken_rule(MemberName { key: &sample.key, extension: &part.extension })?;
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

impl Gate for PartsGate {
    fn pass_block(&self, gated: &mut GatedBlock, _source: &SourceFacts) -> Result<()> {
        let Payload::Samples(samples) = &gated.block.payload else { return Ok(()) };
        let reasons: Vec<Option<String>> = samples.iter().map(|sample| self.lacking_parts(sample)).collect();
        match reasons.iter().flatten().next() {
            Some(first) if !self.skip => Err(incomplete_error(first.clone())),
            _ => gated.reject_records(reasons),
        }
    }
}

impl PartsGate {
    fn lacking_parts(&self, sample: &Sample) -> Option<String> {
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
pub fn incomplete_error(problem: String) -> Error {
    Error::input(problem).with_hint(
        "skip such samples with --missing skip, keep them with --missing keep, or skip kinds of files with --exclude",
    )
}

/// Returns the reason for which a record is rejected because of its name.
pub fn reject_reason(name: &str, rule: &Rule) -> String {
    format!("{} cannot accept the name `{name}`: {}", rule.reader, rule.fault)
}

/// Returns the error that stops a run because of record names.
pub fn refused_names_error<'a>(count: usize, names: impl Iterator<Item = (&'a str, &'a Rule)>) -> Error {
    let first: Vec<(&str, &Rule)> = names.take(EXAMPLES).collect();
    let examples: Vec<String> =
        first.iter().map(|(name, rule)| format!("`{name}` ({}: {})", rule.reader, rule.fault)).collect();
    let more = if count > examples.len() { ", ..." } else { "" };
    let error = Error::input(format!(
        "expected names that every reader of these shards accepts, found {count} that some reader cannot accept: \
         {}{more}",
        examples.join(", ")
    ))
    .with_hint("escape them with --on-name rename, or skip these records with --on-name skip");
    match first.iter().find_map(|(_, rule)| rule.index) {
        Some(kind) => error.with_hint(format!("or omit {kind} from --index")),
        None => error,
    }
}
