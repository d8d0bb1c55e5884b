//! `check`: rules about a version of a dataset, as a gate for jobs.
//!
//! Rules are about the age and the number of records, columns and their types, values, drift against another version,
//! and groups that are in two splits. Everything about columns is counted in one pass (`read.rs`), in which
//! footers decide what they can. A rule is never half known: either all records were counted, or the run fails.
//!
//! Of private datasets, values of columns of ids are counted, but shown nowhere.

mod columns;
mod events;
mod leaks;
mod read;
mod rules;

use std::time::{Duration, Instant};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    compute::cast,
    datatypes::{DataType, Float64Type, TimeUnit, TimestampMicrosecondType},
};
use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};
use toml::Spanned;

use self::{
    columns::{ColumnCheck, Tally, format_percent},
    leaks::{By, Leaks},
    read::{Scan, ScanResult},
    rules::{DriftRules, Freshness, PREVIOUS, SchemaRules, SplitRules, Volume},
};
pub use self::{
    events::with_check,
    rules::{Rules, Severity},
};
use super::{
    Context,
    drift::{ColumnDrift, Thresholds, measure_drift},
    head::Hidden,
    manifest,
    report::is_hidden,
};
use crate::{
    dataset::{Entry, Operation, Snapshot, check_folders},
    error::{Error, Result},
    exec::seen::SeenMemory,
    id::Version,
    record::split::split_of_path,
    schema::file::print_type,
    storage::{self, Location},
    units::group_digits,
};

/// Versions that are read to find the newest one that added records.
const LOOK_BACK: u64 = 1_000;
/// How far ahead a time without a zone may be that is taken for UTC.
const AHEAD: SignedDuration = SignedDuration::from_hours(24);

/// What became of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It holds.
    Pass,
    /// It cannot be decided yet, such as a comparison with a version that does not exist.
    Skip,
    /// It does not hold, and has the severity `warn`.
    Warn,
    /// It does not hold.
    Fail,
}

/// A rule and what became of it.
#[derive(Debug, Clone, Serialize)]
pub struct RuleReport {
    /// Key of the rule in the file; with the name of its table, unless that is of a column.
    pub rule: &'static str,
    /// Column that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// What became of it.
    pub status: Status,
    /// Whether it fails the check.
    pub severity: Severity,
    /// What was expected, in words.
    pub expected: String,
    /// What was found, in words.
    pub found: String,
    /// The number that decides: seconds, records, a share, or an index.
    pub value: Option<f64>,
    /// Number of records that break it, for rules of values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_records: Option<u64>,
    /// Some values that break it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Line in the file of rules.
    pub line: u64,
}

impl RuleReport {
    fn new(rule: &'static str, severity: Severity, expected: String, line: u64) -> Self {
        let (value, failed_records, examples) = (None, None, Vec::new());
        let (column, found, status) = (None, String::new(), Status::Pass);
        Self { rule, column, status, severity, expected, found, value, failed_records, examples, line }
    }

    fn set_outcome(&mut self, holds: bool, found: String) {
        self.status = if holds { Status::Pass } else { Status::Fail };
        self.found = found;
    }

    fn set_failed(&mut self, found: String) {
        self.set_outcome(false, found);
    }

    fn into_skipped(mut self, why: String) -> Self {
        (self.status, self.found) = (Status::Skip, why);
        self
    }
}

/// Counts of a column with rules.
#[derive(Debug, Clone, Serialize)]
pub struct ColumnMetrics {
    /// Its name.
    pub column: String,
    /// Live records.
    pub records: u64,
    /// Nulls among them.
    pub nulls: u64,
    /// Number of different values, if a rule needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct: Option<u64>,
    /// Least number; absent for other types and for ids of private datasets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Greatest number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// Report of `check`.
#[derive(Debug, Clone, Serialize)]
pub struct CheckReport {
    /// The dataset.
    pub dataset: String,
    /// Its version.
    pub version: Version,
    /// When that was committed.
    #[serde(serialize_with = "as_text")]
    pub committed_at: Timestamp,
    /// When it was checked, by the clock of the store.
    #[serde(serialize_with = "as_text")]
    pub checked_at: Timestamp,
    /// File of the rules.
    pub rules: String,
    /// `fail` if a rule fails, `warn` if one warns, else `pass`.
    pub status: Status,
    /// Rules that hold.
    pub passed: u64,
    /// Rules that fail.
    pub failed: u64,
    /// Rules that do not hold, of the severity `warn`.
    pub warned: u64,
    /// Rules that were not decided.
    pub skipped: u64,
    /// Live records.
    pub records: u64,
    /// Live shards.
    pub shards: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Stored bytes of what was read of them for rules of columns.
    pub bytes_read: u64,
    /// Time taken.
    pub seconds: f64,
    /// The rules, in the order of tables in this file's documentation, and of columns in the file of rules.
    #[serde(skip)]
    pub results: Vec<RuleReport>,
    /// Counts of columns with rules.
    #[serde(skip)]
    pub columns: Vec<ColumnMetrics>,
}

fn as_text<S: Serializer>(time: &Timestamp, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}

/// Reads a file of rules.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) when there is none, or it is not one.
pub fn read_rules(context: &Context<'_>, file: &str) -> Result<Rules> {
    let location = context.parse_location(file)?;
    let missing = || {
        let error = Error::usage("expected a file of rules, found nothing").at_location(file.to_owned());
        error.with_hint("`shardify help check` shows a file with all rules")
    };
    let bytes = storage::read_small(rules::FILE, &location, &context.settings)?.ok_or_else(missing)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|e| Error::usage("expected rules in UTF-8").at_location(file).with_cause(e))?;
    Rules::parse(file, text)
}

/// Checks a version of a dataset.
///
/// # Errors
/// When there is no such version, or it cannot be read. A rule that does not hold is in the report and not an error.
pub fn check_version(
    context: &Context<'_>,
    location: &Location,
    at: Option<&str>,
    rules: &Rules,
) -> Result<CheckReport> {
    let snapshot = manifest::open_snapshot(context, location, at)?;
    let check = Check { context, location, snapshot: &snapshot, rules, hidden: Hidden::from_snapshot(&snapshot)? };
    super::or_overtaken(Some(&snapshot), check.run())
}

struct Check<'a> {
    context: &'a Context<'a>,
    location: &'a Location,
    snapshot: &'a Snapshot,
    rules: &'a Rules,
    hidden: Hidden,
}

impl Check<'_> {
    fn run(&self) -> Result<CheckReport> {
        let started = Instant::now();
        let now = self.snapshot.dataset().store_time()?;
        let shards = self.snapshot.live_shards()?;
        check_folders(self.snapshot.dataset().store().as_ref(), shards.iter())?;
        let tables = &self.rules.tables;
        let checks = self.column_checks();
        let leaks = tables.splits.as_ref().map(|splits| self.prepare_leaks(splits)).transpose()?;
        let has_columns = leaks.as_ref().is_some_and(|leaks| leaks.needed_columns().next().is_some());
        let wants_values = !checks.is_empty() || tables.schema.is_some() || has_columns;
        let found = Scan::new(self.context, self.snapshot, &checks, leaks.as_ref()).run(wants_values)?;
        let mut results = Vec::new();
        if let Some(freshness) = &tables.freshness {
            results.push(self.check_freshness(freshness.get_ref(), &checks, &found, now)?);
        }
        if let Some(volume) = &tables.volume {
            self.check_volume(volume.get_ref(), &mut results)?;
        }
        if let Some(schema) = &tables.schema {
            self.check_schema(schema.get_ref(), &found, &mut results)?;
        }
        let names: Vec<String> = found.fields.iter().map(|field| field.name().clone()).collect();
        for (check, tally) in checks.iter().zip(&found.tallies) {
            results.extend(check.judge_rules(tally, &names, &|span| self.rules.line_at(span)));
        }
        if let Some(drift) = &tables.drift {
            self.check_drift(drift.get_ref(), &mut results)?;
        }
        if let (Some(splits), Some(leaks)) = (&tables.splits, &leaks) {
            results.push(self.check_leaks(splits, leaks));
        }
        let metrics = checks.iter().zip(&found.tallies).map(|(check, tally)| column_metrics(check, tally)).collect();
        Ok(self.build_report(now, results, metrics, found.bytes_read, started.elapsed()))
    }

    fn build_report(
        &self,
        now: Timestamp,
        mut results: Vec<RuleReport>,
        columns: Vec<ColumnMetrics>,
        bytes_read: u64,
        time: Duration,
    ) -> CheckReport {
        for rule in results.iter_mut().filter(|rule| rule.status == Status::Fail && rule.severity == Severity::Warn) {
            rule.status = Status::Warn;
        }
        let count = |status| results.iter().filter(|rule| rule.status == status).count() as u64;
        let (failed, warned) = (count(Status::Fail), count(Status::Warn));
        let entry = self.snapshot.entry();
        CheckReport {
            dataset: self.location.to_string(),
            version: entry.version,
            committed_at: self.snapshot.committed_at(entry.version, entry.committed_at),
            checked_at: now,
            rules: self.rules.name.clone(),
            status: match (failed, warned) {
                (0, 0) => Status::Pass,
                (0, _) => Status::Warn,
                _ => Status::Fail,
            },
            passed: count(Status::Pass),
            failed,
            warned,
            skipped: count(Status::Skip),
            records: entry.totals.records,
            shards: entry.totals.shards,
            bytes: entry.totals.bytes,
            bytes_read,
            seconds: time.as_secs_f64(),
            columns,
            results,
        }
    }

    /// Returns the columns with rules, and the one that states the age of records.
    fn column_checks(&self) -> Vec<ColumnCheck<'_>> {
        let shown = |name: &str| !(is_hidden(&self.hidden, name) || self.hidden.is_private && self.has_samples());
        let mut checks: Vec<ColumnCheck<'_>> = self
            .rules
            .column_rules()
            .into_iter()
            .map(|(name, rules)| ColumnCheck::new(name, Some(rules), shown(name)))
            .collect();
        if let Some(column) = self.rules.tables.freshness.as_ref().and_then(|rules| rules.get_ref().column.as_ref()) {
            let name = column.get_ref().as_str();
            if !checks.iter().any(|check| check.name == name) {
                checks.push(ColumnCheck::new(name, None, shown(name)));
            }
            checks.iter_mut().filter(|check| check.name == name).for_each(ColumnCheck::want_range);
        }
        let memory = self.seen_memory(checks.iter().filter(|check| check.is_unique()).count());
        checks.iter_mut().for_each(|check| check.set_memory(memory));
        checks
    }

    /// Whether records may be samples, whose parts may name anybody.
    fn has_samples(&self) -> bool {
        !self.snapshot.entry().settings.shard_format.is_columnar()
    }

    /// Returns the memory of one of all sets of fingerprints.
    fn seen_memory(&self, unique: usize) -> SeenMemory {
        let sets = unique + if self.rules.tables.splits.is_some() { 2 } else { 0 };
        SeenMemory::from_limit(self.context.memory.0 / (sets as u64).max(1))
    }

    fn rule_line<T>(&self, part: &Spanned<T>) -> u64 {
        self.rules.line_at(&part.span())
    }

    /// Returns the version that a rule compares with; `None` if the only records are those of the first version.
    fn baseline_snapshot(&self, against: &Spanned<String>) -> Result<Option<Snapshot>> {
        let text = against.get_ref();
        let wanted = match text.as_str() {
            PREVIOUS => match self.last_addition()?.version.0 {
                0 | 1 => return Ok(None),
                version => Version(version - 1).to_string(),
            },
            _ => text.clone(),
        };
        manifest::open_snapshot(self.context, self.location, Some(&wanted)).map(Some).map_err(|error| {
            let message = format!("no version can be compared with: {}", error.message());
            let told = self.rules.error_at(&against.span(), message);
            error.hints().iter().fold(told, |told, hint| told.with_hint(hint.clone()))
        })
    }

    fn check_freshness(
        &self,
        rules: &Freshness,
        checks: &[ColumnCheck<'_>],
        found: &ScanResult,
        now: Timestamp,
    ) -> Result<RuleReport> {
        let most = self.rules.parse_max_age(rules)?;
        let expected = format!("at most {} old", rules.max_age.get_ref());
        let mut report = RuleReport::new("freshness.max_age", rules.severity, expected, self.rule_line(&rules.max_age));
        let newest = match &rules.column {
            None => {
                let entry = self.last_addition()?;
                self.snapshot.committed_at(entry.version, entry.committed_at)
            }
            Some(column) => {
                let name = column.get_ref();
                report.column = Some(name.clone());
                let tally = checks.iter().zip(&found.tallies).find(|(check, _)| check.name == name.as_str());
                let range = tally.and_then(|(_, tally)| tally.range.known_range());
                match range.and_then(|(_, greatest)| time_of(greatest)) {
                    Some(time) => time,
                    None => {
                        let present = tally.is_some_and(|(_, tally)| tally.present > 0);
                        let why = if present { "no dates or times with a known range" } else { "no such column" };
                        report.set_failed(why.to_owned());
                        return Ok(report);
                    }
                }
            }
        };
        let age = now.duration_since(newest);
        report.value = Some(age.as_secs_f64());
        if age < -AHEAD {
            report.set_failed(format!("from {newest:.0}, which is in the future"));
            return Ok(report);
        }
        let age = age.max(SignedDuration::ZERO);
        let found = format!("{} old, from {newest:.0}", format_duration(age));
        report.set_outcome(age <= SignedDuration::try_from(most).unwrap_or(SignedDuration::MAX), found);
        Ok(report)
    }

    /// Returns the entry that added records last: not a merge, a tag or an erasure.
    fn last_addition(&self) -> Result<Entry> {
        let newest = self.snapshot.entry();
        let adds = |entry: &Entry| {
            entry.counts.records_out > 0
                && (entry.operation.imports_sources()
                    || matches!(entry.operation, Operation::Pull | Operation::Reshard))
        };
        let mut found: Entry = newest.clone();
        for version in (newest.version.0.saturating_sub(LOOK_BACK).max(1)..newest.version.0).rev() {
            if adds(&found) {
                break;
            }
            found = self.snapshot.dataset().read_entry(Version(version))?;
        }
        Ok(found)
    }

    fn check_volume(&self, rules: &Volume, out: &mut Vec<RuleReport>) -> Result<()> {
        let records = self.snapshot.entry().totals.records;
        let mut add = |rule, part: &Spanned<u64>, expected: String, holds| {
            let mut report = RuleReport::new(rule, rules.severity, expected, self.rule_line(part));
            report.value = Some(records as f64);
            report.set_outcome(holds, format!("{} records", group_digits(records)));
            out.push(report);
        };
        if let Some(least) = &rules.min_records {
            let expected = format!("at least {} records", group_digits(*least.get_ref()));
            add("volume.min_records", least, expected, records >= *least.get_ref());
        }
        if let Some(most) = &rules.max_records {
            let expected = format!("at most {} records", group_digits(*most.get_ref()));
            add("volume.max_records", most, expected, records <= *most.get_ref());
        }
        let (Some(limit), Some(against)) = (&rules.max_change, &rules.against) else { return Ok(()) };
        let expected = format!("at most {} more or less than {}", format_percent(*limit.get_ref()), against.get_ref());
        let mut report = RuleReport::new("volume.max_change", rules.severity, expected, self.rule_line(limit));
        let Some(older) = self.baseline_snapshot(against)? else {
            out.push(report.into_skipped("there is no version before".to_owned()));
            return Ok(());
        };
        let before = older.entry().totals.records;
        let change = match (before, records) {
            (0, 0) => 0.0,
            (0, _) => f64::INFINITY,
            (before, records) => records as f64 / before as f64 - 1.0,
        };
        report.value = change.is_finite().then_some(change);
        let found = format!("{} records after {} in {}", group_digits(records), group_digits(before), older.version());
        report.set_outcome(change.abs() <= *limit.get_ref(), found);
        out.push(report);
        Ok(())
    }

    fn check_schema(&self, rules: &SchemaRules, found: &ScanResult, out: &mut Vec<RuleReport>) -> Result<()> {
        let mut wanted: Vec<(String, String, u64)> = Vec::new();
        for (name, data_type) in &rules.columns {
            let parsed = crate::schema::file::parse_type(data_type.get_ref())?;
            wanted.push((name.clone(), print_type(&parsed), self.rule_line(data_type)));
        }
        wanted.sort_by_key(|(_, _, line)| *line);
        if let Some(against) = &rules.against {
            let line = self.rule_line(against);
            match self.baseline_snapshot(against)? {
                Some(older) => {
                    let fields = Scan::new(self.context, &older, &[], None).run(true)?.fields;
                    let of_older = fields.iter().map(|field| (field.name().clone(), print_type(field), line));
                    let new: Vec<_> = of_older.filter(|(name, ..)| !rules.columns.contains_key(name)).collect();
                    wanted.extend(new);
                }
                None => {
                    let expected = "the columns of the version before".to_owned();
                    let report = RuleReport::new("schema.against", rules.severity, expected, line);
                    out.push(report.into_skipped("there is no version before".to_owned()));
                }
            }
        }
        for (name, data_type, line) in &wanted {
            let mut report = RuleReport::new("schema.columns", rules.severity, data_type.clone(), *line);
            report.column = Some(name.clone());
            match found.fields.iter().find(|field| field.name() == name) {
                Some(field) => {
                    let actual = print_type(field);
                    report.set_outcome(actual == *data_type, actual);
                }
                None => report.set_failed("no such column".to_owned()),
            }
            out.push(report);
        }
        if let Some(extra) = rules.extra_columns.as_ref().filter(|extra| !*extra.get_ref() && !wanted.is_empty()) {
            let expected = "no other columns".to_owned();
            let mut report = RuleReport::new("schema.extra_columns", rules.severity, expected, self.rule_line(extra));
            let others = found.fields.iter().filter(|field| !wanted.iter().any(|(name, ..)| name == field.name()));
            let others: Vec<String> = others.map(|field| format!("`{}`", field.name())).collect();
            report.value = Some(others.len() as f64);
            let text = if others.is_empty() { "no other columns".to_owned() } else { others.join(", ") };
            report.set_outcome(others.is_empty(), text);
            out.push(report);
        }
        Ok(())
    }

    fn check_drift(&self, rules: &DriftRules, out: &mut Vec<RuleReport>) -> Result<()> {
        let Some(older) = self.baseline_snapshot(&rules.against)? else {
            let expected = "no drift since the version before".to_owned();
            let report = RuleReport::new("drift.against", rules.severity, expected, self.rule_line(&rules.against));
            out.push(report.into_skipped("there is no version before".to_owned()));
            return Ok(());
        };
        let found = measure_drift(self.context, &older, self.snapshot, Thresholds::default())?;
        let named = rules.columns.as_ref().map(|columns| columns.get_ref());
        for column in found.columns.iter().filter(|c| named.is_none_or(|named| named.contains(&c.column))) {
            self.drift_of(rules, &older, column, out);
        }
        for name in named.into_iter().flatten().filter(|name| !found.columns.iter().any(|c| c.column == **name)) {
            let line = rules.columns.as_ref().map_or(0, |columns| self.rule_line(columns));
            let mut report =
                RuleReport::new("drift.columns", rules.severity, format!("a column of {}", older.version()), line);
            report.column = Some(name.clone());
            report.set_failed("neither version has such a column".to_owned());
            out.push(report);
        }
        Ok(())
    }

    fn drift_of(&self, rules: &DriftRules, older: &Snapshot, column: &ColumnDrift, out: &mut Vec<RuleReport>) {
        let version = older.version();
        if let Some(most) = &rules.max_psi {
            let expected = format!("a population stability index of at most {} against {version}", most.get_ref());
            let mut report = RuleReport::new("drift.max_psi", rules.severity, expected, self.rule_line(most));
            report.column = Some(column.column.clone());
            report.value = column.psi;
            let changed = column.beyond.iter().find(|beyond| matches!(**beyond, "gone" | "type"));
            match (column.psi, changed) {
                (_, Some(&"gone")) => report.set_failed(format!("values in {version} alone")),
                (_, Some(_)) => report.set_failed(format!("values of another type than in {version}")),
                (Some(psi), None) => report.set_outcome(psi <= *most.get_ref(), format!("{psi:.3}")),
                (None, None) => report.set_outcome(true, format!("no values in {version}")),
            }
            out.push(report);
        }
        if let Some(most) = &rules.max_null_change {
            let expected = format!("a share of nulls within {} of that of {version}", format_percent(*most.get_ref()));
            let mut report = RuleReport::new("drift.max_null_change", rules.severity, expected, self.rule_line(most));
            report.column = Some(column.column.clone());
            let change = column.nulls_after - column.nulls_before;
            report.value = Some(change);
            let found = format!("{} after {}", format_percent(column.nulls_after), format_percent(column.nulls_before));
            report.set_outcome(change.abs() <= *most.get_ref(), found);
            out.push(report);
        }
    }

    fn prepare_leaks(&self, splits: &Spanned<SplitRules>) -> Result<Leaks> {
        let rules = splits.get_ref();
        let settings = &self.snapshot.entry().settings;
        let has_subjects = settings.subject.is_some() || settings.subjects_from.is_some();
        let by = match rules.by.as_ref().map(|by| by.get_ref().as_str()) {
            None if has_subjects => By::Subject,
            None => By::Id,
            Some("subject") if !has_subjects => {
                let span = rules.by.as_ref().map_or(splits.span(), Spanned::span);
                let error = self.rules.error_at(&span, "the dataset has no subject ids");
                return Err(error.with_hint("name the column of subjects: by = \"patient_id\""));
            }
            Some("subject") => By::Subject,
            Some("id") => By::Id,
            Some(column) => By::Column(column.to_owned()),
        };
        let column = rules.column.as_ref().map(|column| column.get_ref().clone());
        if column.is_none() && !self.snapshot.live_shards()?.iter().any(|shard| split_of_path(&shard.path).is_some()) {
            let error = self.rules.error_at(&splits.span(), "the dataset is not divided, so no record has a split");
            return Err(error
                .with_hint("if a column states the split, name it: column = \"split\", and by = the column of subjects")
                .with_hint("`shardify convert --split train=0.8,test=0.2` divides a new dataset"));
        }
        let unique = self.rules.column_rules().iter().filter(|(_, rules)| rules.unique.is_some()).count();
        Ok(Leaks::new(by, column, self.seen_memory(unique)))
    }

    fn check_leaks(&self, splits: &Spanned<SplitRules>, leaks: &Leaks) -> RuleReport {
        let counts = leaks.counts();
        let noun = match &leaks.by {
            By::Subject => "subjects".to_owned(),
            By::Id => "ids".to_owned(),
            By::Column(column) => format!("values of `{column}`"),
        };
        let expected = format!("no {noun} in two splits");
        let severity = splits.get_ref().severity;
        let mut report = RuleReport::new("splits.leaks", severity, expected, self.rule_line(splits));
        if let By::Column(column) = &leaks.by {
            report.column = Some(column.clone());
        }
        if counts.records == 0 && self.snapshot.entry().totals.records > 0 {
            report.set_failed(format!("no record has both {noun} and a split"));
            return report;
        }
        report.value = Some(counts.leaked as f64);
        let shown = !self.hidden.is_private
            || matches!(&leaks.by, By::Column(column) if !is_hidden(&self.hidden, column) && !self.has_samples());
        if shown {
            report.examples = counts.examples.iter().cloned().collect();
        }
        let splits: Vec<&str> = counts.splits.keys().map(String::as_str).collect();
        let found = format!(
            "{} of {} {noun} are on two of {}",
            group_digits(counts.leaked),
            group_digits(counts.groups),
            splits.join(", ")
        );
        report.set_outcome(counts.leaked == 0, found);
        report
    }
}

fn column_metrics(check: &ColumnCheck<'_>, tally: &Tally) -> ColumnMetrics {
    let number = |value: &ArrayRef| {
        let is_number = value.data_type().is_numeric();
        let number = is_number.then(|| cast(value, &DataType::Float64).ok()).flatten()?;
        Some(number.as_primitive::<Float64Type>().value(0)).filter(|number| number.is_finite())
    };
    let range = tally.range.known_range().filter(|_| check.is_shown());
    ColumnMetrics {
        column: check.name.to_owned(),
        records: tally.rows,
        nulls: tally.nulls,
        distinct: check.is_unique().then_some(tally.distinct),
        min: range.and_then(|(least, _)| number(least)),
        max: range.and_then(|(_, greatest)| number(greatest)),
    }
}

/// Returns a date or time as an instant; those without a time zone are taken as UTC.
fn time_of(value: &ArrayRef) -> Option<Timestamp> {
    if !matches!(value.data_type(), DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)) {
        return None;
    }
    let plain = match value.data_type() {
        DataType::Timestamp(unit, Some(_)) => cast(value, &DataType::Timestamp(*unit, None)).ok()?,
        _ => ArrayRef::clone(value),
    };
    let micros = cast(&plain, &DataType::Timestamp(TimeUnit::Microsecond, None)).ok()?;
    Timestamp::from_microsecond(micros.as_primitive::<TimestampMicrosecondType>().value(0)).ok()
}

/// Returns a duration in its two largest units.
fn format_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().unsigned_abs();
    let sign = if duration.is_negative() { "-" } else { "" };
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let text = match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}min"),
        (0, hours, minutes) => format!("{hours}h {minutes}min"),
        (days, hours, _) => format!("{days}d {hours}h"),
    };
    format!("{sign}{text}")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Date32Array, Int64Array, TimestampNanosecondArray};

    use super::*;

    #[test]
    fn dates_and_times_are_instants() {
        let date: ArrayRef = Arc::new(Date32Array::from(vec![1]));
        assert_eq!(time_of(&date).unwrap().as_second(), 86_400);
        let time: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![5_000_000_000]).with_timezone("+02:00"));
        assert_eq!(time_of(&time).unwrap().as_second(), 5);
        assert!(time_of(&(Arc::new(Int64Array::from(vec![1])) as ArrayRef)).is_none());
    }

    #[test]
    fn spans_have_two_units() {
        let text = |seconds| format_duration(SignedDuration::from_secs(seconds));
        assert_eq!(
            [text(5), text(125), text(7_260), text(90_000), text(-60)],
            ["5s", "2min", "2h 1min", "1d 1h", "-1min"]
        );
    }
}
