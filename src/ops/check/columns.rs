//! Rules of columns: what is counted of each column while shards are read, and what follows from the counts.
//!
//! Counts of parts of the data add up to those of all of it in any order, so neither threads nor the cut into shards
//! change an answer. Nulls satisfy every rule but those about nulls, as in SQL; NaN is neither above a minimum nor
//! below a maximum.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Scalar, StringArray},
    compute::{
        CastOptions, cast, cast_with_options,
        kernels::cmp::{gt, lt},
        or,
    },
    datatypes::DataType,
};
use regex::Regex;

use super::{
    RuleReport, Status,
    rules::{ColumnRules, Severity, text_of as text_of_rule},
};
use crate::{
    error::Result,
    exec::seen::{Seen, SeenMemory},
    format::parquet::ColumnFacts,
    ops::columns::Extremes,
    record::{extreme::nan_mask, fingerprint::Fingerprinter, json::text_of},
    schema::nearest_name,
    units::group_digits,
};

/// Values that a rule shows, at most.
const EXAMPLES: usize = 3;
/// Characters of a value that is shown.
const EXAMPLE: usize = 60;

/// A column with its rules.
pub(super) struct ColumnCheck<'r> {
    pub(super) name: &'r str,
    rules: Option<&'r ColumnRules>,
    min: Option<Bound>,
    max: Option<Bound>,
    accepted: Option<Vec<String>>,
    pattern: Option<Regex>,
    /// Fingerprints of the values so far, if they must be different.
    unique: Option<Mutex<Seen>>,
    /// Whether values may be shown.
    shown: bool,
    /// Whether the values have to be read, whatever footers state.
    pub(super) must_be_read: bool,
    /// Whether the range has to be known.
    wants_range: bool,
}

impl<'r> ColumnCheck<'r> {
    pub(super) fn new(name: &'r str, rules: Option<&'r ColumnRules>, shown: bool) -> Self {
        let bound = |of: fn(&ColumnRules) -> &Option<toml::Spanned<toml::Value>>| {
            let bound = rules.and_then(|rules| of(rules).as_ref())?.get_ref();
            Some(Bound { text: text_of_rule(bound)?, is_text: bound.is_str() })
        };
        let accepted = rules.and_then(|rules| rules.accepted_values.as_ref());
        // Checked when the file was read.
        let pattern = rules.and_then(|rules| rules.pattern.as_ref()).and_then(|p| Regex::new(p.get_ref()).ok());
        Self {
            name,
            rules,
            min: bound(|rules| &rules.min),
            max: bound(|rules| &rules.max),
            accepted: accepted.map(|values| values.get_ref().iter().filter_map(text_of_rule).collect()),
            pattern,
            unique: None,
            shown,
            must_be_read: false,
            wants_range: false,
        }
    }

    /// Returns whether values must be different.
    pub(super) fn is_unique(&self) -> bool {
        self.rules.and_then(|rules| rules.unique.as_ref()).is_some_and(|unique| *unique.get_ref())
    }

    /// Gives the memory for a rule of unique values.
    pub(super) fn set_memory(&mut self, memory: SeenMemory) {
        self.unique = self.is_unique().then(|| Mutex::new(Seen::new(memory)));
    }

    /// Makes the range known.
    pub(super) fn want_range(&mut self) {
        self.wants_range = true;
    }

    /// Returns whether whole values are needed, rather than that there are some.
    pub(super) fn needs_values(&self) -> bool {
        self.must_be_read || self.is_unique() || self.accepted.is_some() || self.pattern.is_some() || self.has_bounds()
    }

    fn has_bounds(&self) -> bool {
        self.min.is_some() || self.max.is_some()
    }

    /// Takes what a footer states of the column, if that decides all rules and all rows are live; returns whether it
    /// does.
    pub(super) fn tally_footer(&self, facts: &ColumnFacts, rows: u64, tally: &mut Tally) -> bool {
        let Some(nulls) = facts.nulls else { return false };
        if self.must_be_read || self.is_unique() || self.accepted.is_some() || self.pattern.is_some() {
            return false;
        }
        if self.has_bounds() || self.wants_range {
            let Some((least, greatest)) = &facts.range else { return false };
            // A footer does not tell whether there are NaNs.
            if self.has_bounds() && facts.field.data_type().is_floating() {
                return false;
            }
            let holds = |bound: &Option<Bound>, value: &ArrayRef, above| match bound {
                Some(bound) => {
                    beyond_bound(value, bound, above).is_ok_and(|found| found.is_ok_and(|m| m.true_count() == 0))
                }
                None => true,
            };
            if !holds(&self.min, least, false) || !holds(&self.max, greatest, true) {
                return false;
            }
        }
        tally.rows += rows;
        tally.present += rows;
        tally.nulls += nulls;
        let range = facts.range.as_ref().filter(|_| !facts.field.data_type().is_nested());
        tally.range.add_range(range);
        true
    }

    /// Counts values.
    pub(super) fn tally_values(&self, values: &ArrayRef, tally: &mut Tally) -> Result<()> {
        tally.rows += values.len() as u64;
        tally.present += values.len() as u64;
        tally.nulls += values.logical_null_count() as u64;
        if values.data_type().is_numeric() || values.data_type().is_temporal() {
            tally.range.add_values(values);
        }
        for (bound, above) in [(&self.min, false), (&self.max, true)] {
            let Some(bound) = bound else { continue };
            match beyond_bound(values, bound, above)? {
                Ok(mask) => {
                    let failures = if above { &mut tally.above } else { &mut tally.below };
                    (0..mask.len()).filter(|row| mask.is_valid(*row) && mask.value(*row)).for_each(|row| {
                        failures.add_failure(|| text_at(values, row));
                    });
                }
                Err(problem) => tally.misfit = Some(problem),
            }
        }
        self.add_texts(values, tally)?;
        self.add_unique(values, tally)
    }

    fn add_texts(&self, values: &ArrayRef, tally: &mut Tally) -> Result<()> {
        let data_type = values.data_type();
        if let Some(accepted) = &self.accepted {
            let texts = accepted_texts(accepted, data_type)?;
            if texts.is_empty() && !data_type.is_null() {
                tally.unacceptable = Some(format!("values of type {data_type}, of which none of these is one"));
            }
            each_text(values, &mut |text| {
                if !texts.contains(text) {
                    tally.unaccepted.add_failure(|| text.to_owned());
                }
            });
        }
        if let Some(pattern) = &self.pattern {
            if !has_text(data_type) {
                tally.textless = Some(format!("values of type {data_type}, which are no texts"));
                return Ok(());
            }
            each_text(values, &mut |text| {
                if !pattern.is_match(text) {
                    tally.unmatched.add_failure(|| text.to_owned());
                }
            });
        }
        Ok(())
    }

    fn add_unique(&self, values: &ArrayRef, tally: &mut Tally) -> Result<()> {
        let Some(seen) = &self.unique else { return Ok(()) };
        let fingerprints = Fingerprinter::default().of_rows(&[("", Arc::clone(values))], values.len())?;
        let nulls = values.logical_nulls();
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (row, fingerprint) in fingerprints.iter().enumerate() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            match seen.find_or_insert(fingerprint, 0)? {
                Some(_) => tally.repeated.add_failure(|| text_at(values, row)),
                None => tally.distinct += 1,
            }
        }
        Ok(())
    }

    /// Returns what follows for each rule; `line` finds a rule in its file, and `columns` are those of the dataset.
    pub(super) fn judge_rules(
        &self,
        tally: &Tally,
        columns: &[String],
        line: &dyn Fn(&Range<usize>) -> u64,
    ) -> Vec<RuleReport> {
        let Some(rules) = self.rules else { return Vec::new() };
        let judge = Judge { check: self, tally, columns, line, severity: rules.severity };
        let mut out = Vec::new();
        if let Some(rule) = rules.not_null.as_ref().filter(|rule| *rule.get_ref()) {
            out.push(judge.judge_nulls("not_null", 0.0, "no nulls".to_owned(), &rule.span()));
        }
        if let Some(rule) = &rules.max_null_share {
            let most = *rule.get_ref();
            out.push(judge.judge_nulls(
                "max_null_share",
                most,
                format!("at most {} null", format_percent(most)),
                &rule.span(),
            ));
        }
        if let Some(rule) = rules.unique.as_ref().filter(|rule| *rule.get_ref()) {
            out.push(judge.judge_values(
                "unique",
                "different values".to_owned(),
                &tally.repeated,
                "repeat a value",
                &rule.span(),
            ));
        }
        if let (Some(rule), Some(bound)) = (&rules.min, &self.min) {
            out.push(judge.judge_values(
                "min",
                format!("at least {}", bound.text),
                &tally.below,
                "are less",
                &rule.span(),
            ));
        }
        if let (Some(rule), Some(bound)) = (&rules.max, &self.max) {
            out.push(judge.judge_values(
                "max",
                format!("at most {}", bound.text),
                &tally.above,
                "are greater",
                &rule.span(),
            ));
        }
        if let (Some(rule), Some(accepted)) = (&rules.accepted_values, &self.accepted) {
            let some = accepted.iter().take(8).map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
            let more = if accepted.len() > 8 { format!(" or {} others", accepted.len() - 8) } else { String::new() };
            let expected = format!("one of {some}{more}");
            out.push(judge.judge_values(
                "accepted_values",
                expected,
                &tally.unaccepted,
                "have another value",
                &rule.span(),
            ));
        }
        if let Some(rule) = &rules.pattern {
            let expected = format!("a match of `{}`", rule.get_ref());
            out.push(judge.judge_values("pattern", expected, &tally.unmatched, "do not match", &rule.span()));
        }
        out
    }

    /// Returns whether values may be shown.
    pub(super) fn is_shown(&self) -> bool {
        self.shown
    }
}

struct Judge<'a> {
    check: &'a ColumnCheck<'a>,
    tally: &'a Tally,
    columns: &'a [String],
    line: &'a dyn Fn(&Range<usize>) -> u64,
    severity: Severity,
}

impl Judge<'_> {
    fn new_report(&self, rule: &'static str, expected: String, span: &Range<usize>) -> RuleReport {
        let mut report = RuleReport::new(rule, self.severity, expected, (self.line)(span));
        report.column = Some(self.check.name.to_owned());
        if self.tally.present == 0 && self.tally.rows > 0 {
            let nearest = nearest_name(self.check.name, self.columns.iter().map(String::as_str));
            let meant = nearest.map_or_else(String::new, |name| format!("; there is a column `{name}`"));
            report.set_failed(format!("no such column{meant}"));
        }
        report
    }

    fn judge_nulls(&self, rule: &'static str, most: f64, expected: String, span: &Range<usize>) -> RuleReport {
        let mut report = self.new_report(rule, expected, span);
        if report.status == Status::Fail {
            return report;
        }
        let (nulls, rows) = (self.tally.nulls, self.tally.rows);
        let share = if rows == 0 { 0.0 } else { nulls as f64 / rows as f64 };
        report.value = Some(if rule == "not_null" { nulls as f64 } else { share });
        let found = match nulls {
            0 => "no nulls".to_owned(),
            _ => format!(
                "{} of {} records are null ({})",
                group_digits(nulls),
                group_digits(rows),
                format_percent(share)
            ),
        };
        report.set_outcome(share <= most, found);
        if report.status == Status::Fail {
            report.failed_records = Some(nulls);
        }
        report
    }

    fn judge_values(
        &self,
        rule: &'static str,
        expected: String,
        failures: &Failures,
        what: &str,
        span: &Range<usize>,
    ) -> RuleReport {
        let mut report = self.new_report(rule, expected, span);
        if report.status == Status::Fail {
            return report;
        }
        let problem = match rule {
            "min" | "max" => &self.tally.misfit,
            "pattern" => &self.tally.textless,
            "accepted_values" => &self.tally.unacceptable,
            _ => &None,
        };
        if let Some(problem) = problem {
            report.set_failed(problem.clone());
            return report;
        }
        report.value = Some(failures.records as f64);
        report.failed_records = Some(failures.records);
        if self.check.shown {
            report.examples = failures.examples.iter().cloned().collect();
        }
        let found = match failures.records {
            0 => format!("{} values", group_digits(self.tally.rows - self.tally.nulls.min(self.tally.rows))),
            some => format!("{} of {} records {what}", group_digits(some), group_digits(self.tally.rows)),
        };
        report.set_outcome(failures.records == 0, found);
        report
    }
}

/// Returns a share in words.
pub(super) fn format_percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        small if small < 0.01 => "less than 0.01 %".to_owned(),
        percent => {
            let text = format!("{percent:.2}");
            format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

/// Records that break a rule.
#[derive(Debug, Clone, Default)]
pub(super) struct Failures {
    records: u64,
    /// The least values in the order of texts, so that they do not depend on the order of reading.
    examples: BTreeSet<String>,
}

impl Failures {
    fn add_failure(&mut self, text: impl FnOnce() -> String) {
        self.records += 1;
        let text = shorten_example(&text());
        if self.examples.len() < EXAMPLES || self.examples.last().is_some_and(|last| text < *last) {
            self.examples.insert(text);
            while self.examples.len() > EXAMPLES {
                self.examples.pop_last();
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.records += other.records;
        self.examples.extend(other.examples);
        while self.examples.len() > EXAMPLES {
            self.examples.pop_last();
        }
    }
}

fn shorten_example(text: &str) -> String {
    match text.char_indices().nth(EXAMPLE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What is counted of a column.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// Live records.
    pub(super) rows: u64,
    /// Live records of shards that have the column.
    pub(super) present: u64,
    pub(super) nulls: u64,
    pub(super) distinct: u64,
    pub(super) range: Extremes,
    below: Failures,
    above: Failures,
    unaccepted: Failures,
    unmatched: Failures,
    repeated: Failures,
    /// Why values cannot be compared with a bound.
    misfit: Option<String>,
    /// Why values cannot match a pattern.
    textless: Option<String>,
    /// Why no value can be an accepted one.
    unacceptable: Option<String>,
}

impl Tally {
    /// Counts records of a shard without the column.
    pub(super) fn add_absent(&mut self, rows: u64) {
        self.rows += rows;
        self.nulls += rows;
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.present += other.present;
        self.nulls += other.nulls;
        self.distinct += other.distinct;
        self.range.merge(&other.range);
        self.below.merge(other.below);
        self.above.merge(other.above);
        self.unaccepted.merge(other.unaccepted);
        self.unmatched.merge(other.unmatched);
        self.repeated.merge(other.repeated);
        self.misfit = self.misfit.take().max(other.misfit);
        self.textless = self.textless.take().max(other.textless);
        self.unacceptable = self.unacceptable.take().max(other.unacceptable);
    }
}

/// Returns a value as text; bytes that are not UTF-8 lose what is not.
fn text_at(values: &ArrayRef, row: usize) -> String {
    match values.data_type() {
        DataType::LargeBinary => part_text(values.as_binary::<i64>().value(row)).into_owned(),
        _ => text_of(values.as_ref(), row).unwrap_or_default(),
    }
}

/// Returns the content of a part as text, without the end of its last line.
fn part_text(bytes: &[u8]) -> Cow<'_, str> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    String::from_utf8_lossy(bytes.strip_suffix(b"\r").unwrap_or(bytes))
}

/// Passes the values that are not null to `visit`, as texts.
fn each_text(values: &ArrayRef, visit: &mut dyn FnMut(&str)) {
    match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().iter().flatten().for_each(visit),
        DataType::LargeUtf8 => values.as_string::<i64>().iter().flatten().for_each(visit),
        DataType::LargeBinary => values.as_binary::<i64>().iter().flatten().for_each(|bytes| visit(&part_text(bytes))),
        _ => (0..values.len()).filter_map(|row| text_of(values.as_ref(), row)).for_each(|text| visit(&text)),
    }
}

/// Returns whether values of a type are texts, or parts of samples, whose content may be one. A column of nulls may be
/// of any type.
fn has_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::LargeBinary | DataType::Null
    )
}

/// Returns the accepted values as the texts that values of a type have: 1 is `1.0` in a column of floating-point
/// numbers, and -0.0 is 0.
fn accepted_texts(accepted: &[String], data_type: &DataType) -> Result<HashSet<String>> {
    if matches!(data_type, DataType::LargeBinary) || data_type.is_nested() {
        return Ok(accepted.iter().cloned().collect());
    }
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(accepted));
    let safe = CastOptions { safe: true, ..CastOptions::default() };
    let Ok(values) = cast_with_options(&texts, data_type, &safe) else { return Ok(accepted.iter().cloned().collect()) };
    let mut out: HashSet<String> = (0..values.len()).filter_map(|row| text_of(values.as_ref(), row)).collect();
    if data_type.is_floating() && out.iter().any(|text| text.parse() == Ok(0.0_f64)) {
        out.extend(["0.0".to_owned(), "-0.0".to_owned()]);
    }
    Ok(out)
}

/// Returns whether a decimal has all digits of the text that it was cast from.
fn keeps_digits(value: &ArrayRef, text: &str) -> bool {
    let plain = |text: &str| match text.contains(['e', 'E']) {
        true => None,
        false if text.contains('.') => Some(text.trim_end_matches('0').trim_end_matches('.').to_owned()),
        false => Some(text.to_owned()),
    };
    !value.data_type().is_decimal() || text_of(value.as_ref(), 0).is_some_and(|cast| plain(&cast) == plain(text))
}

/// A least or greatest value.
#[derive(Debug, Clone)]
struct Bound {
    text: String,
    /// Whether it is written as text in the rules.
    is_text: bool,
}

/// Returns which values are less than a bound, or greater; a text if the bound is no value of their type.
fn beyond_bound(values: &ArrayRef, bound: &Bound, above: bool) -> Result<std::result::Result<BooleanArray, String>> {
    let data_type = values.data_type();
    let compare = |values: &ArrayRef, bound: ArrayRef| -> Result<BooleanArray> {
        let bound = Scalar::new(bound);
        let mask = if above { gt(values, &bound)? } else { lt(values, &bound)? };
        match nan_mask(values) {
            Some(nans) => Ok(or(&mask, &nans)?),
            None => Ok(mask),
        }
    };
    let is_comparable = match data_type {
        DataType::Null => return Ok(Ok(BooleanArray::from(vec![false; values.len()]))),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => bound.is_text,
        _ => data_type.is_numeric() || data_type.is_temporal(),
    };
    let number = bound.text.parse::<f64>();
    if is_comparable {
        let zero = data_type.is_floating() && number == Ok(0.0);
        // Arrow orders -0.0 before 0.0, which are equal.
        let text = if !zero {
            bound.text.as_str()
        } else if above {
            "0.0"
        } else {
            "-0.0"
        };
        let text: ArrayRef = Arc::new(StringArray::from(vec![text]));
        let exact = cast_with_options(&text, data_type, &CastOptions { safe: true, ..CastOptions::default() });
        if let Some(exact) = exact.ok().filter(|exact| exact.is_valid(0) && keeps_digits(exact, &bound.text)) {
            return compare(values, exact).map(Ok);
        }
    }
    match number {
        Ok(number) if data_type.is_numeric() => {
            compare(&cast(values, &DataType::Float64)?, Arc::new(Float64Array::from(vec![number]))).map(Ok)
        }
        _ => Ok(Err(format!("values of type {data_type}, which cannot be compared with `{}`", bound.text))),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{Date32Array, Int64Array};

    use super::*;
    use crate::ops::check::rules::Rules;

    fn judged(rules: &str, values: &[ArrayRef]) -> Vec<(String, Status, String, Vec<String>)> {
        let rules = Rules::parse("r", &format!("[columns.x]\n{rules}")).unwrap();
        let columns = rules.column_rules();
        let mut check = ColumnCheck::new(columns[0].0, Some(columns[0].1), true);
        check.set_memory(SeenMemory::from_limit(1 << 20));
        let mut tally = Tally::default();
        for values in values {
            let mut own = Tally::default();
            check.tally_values(values, &mut own).unwrap();
            tally.merge(own);
        }
        let reports = check.judge_rules(&tally, &["x".to_owned()], &|_| 1);
        reports.into_iter().map(|r| (r.rule.to_owned(), r.status, r.found, r.examples)).collect()
    }

    #[test]
    fn bounds_are_compared_as_values() {
        let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(9_007_199_254_740_993), Some(-1), None]));
        let found = judged("min = 0\nmax = 9007199254740992", &[ints]);
        assert_eq!(found[0].2, "1 of 3 records are less");
        assert_eq!((found[1].1, found[1].3.as_slice()), (Status::Fail, &["9007199254740993".to_owned()][..]));
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.4, 0.5, f64::NAN]));
        let found = judged("min = 0.5\nmax = 1", &[floats]);
        assert_eq!(
            (found[0].2.as_str(), found[1].2.as_str()),
            ("2 of 3 records are less", "1 of 3 records are greater")
        );
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![0, 20_000]));
        assert_eq!(judged("min = 1970-01-02", &[dates])[0].3, ["1970-01-01"]);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        assert_eq!(judged("min = 0", &[texts])[0].1, Status::Fail);
    }

    #[test]
    fn zeros_are_equal_and_decimals_are_compared_with_all_digits_of_a_bound() {
        let zeros: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, 0.0]));
        let found = judged("min = 0\nmax = -0.0\naccepted_values = [0]", &[zeros]);
        assert!(found.iter().all(|(_, status, ..)| *status == Status::Pass), "{found:?}");
        let cents = arrow::array::Decimal128Array::from(vec![100, 101]).with_precision_and_scale(10, 2).unwrap();
        let found = judged("max = 1.005\nmin = 1", &[Arc::new(cents)]);
        assert_eq!((found[0].2.as_str(), found[1].2.as_str()), ("2 values", "1 of 2 records are greater"));
        let large: ArrayRef = Arc::new(arrow::array::UInt64Array::from(vec![u64::MAX, 1]));
        assert_eq!(judged("max = \"18446744073709551614\"", &[large])[0].3, ["18446744073709551615"]);
    }

    #[test]
    fn a_rule_that_does_not_apply_to_the_type_fails_without_values_too() {
        let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let nulls: ArrayRef = Arc::new(Int64Array::from(vec![None, None]));
        for values in [ints, nulls] {
            let found = judged("pattern = \"^[0-9]$\"\naccepted_values = [\"a\"]\nmin = \"x\"", &[values]);
            let told: Vec<&str> = found.iter().map(|(_, _, told, _)| told.as_str()).collect();
            assert_eq!(
                told,
                [
                    "values of type Int64, which cannot be compared with `x`",
                    "values of type Int64, of which none of these is one",
                    "values of type Int64, which are no texts",
                ]
            );
            assert!(found.iter().all(|(_, status, ..)| *status == Status::Fail));
        }
    }

    #[test]
    fn repeated_and_unaccepted_values_are_told() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), Some("a"), None, Some("b"), None]));
        let found =
            judged("unique = true\naccepted_values = [\"a\"]\npattern = \"^[ab]$\"", &[Arc::clone(&texts), texts]);
        assert_eq!(
            (found[0].2.as_str(), found[0].3.as_slice()),
            ("4 of 10 records repeat a value", &["a".to_owned(), "b".to_owned()][..])
        );
        assert_eq!(found[1].2, "4 of 10 records have another value");
        assert_eq!((found[2].1, found[2].2.as_str()), (Status::Pass, "6 values"));
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
        assert_eq!(judged("accepted_values = [1, 2.0]", &[floats])[0].1, Status::Pass);
    }

    #[test]
    fn shares_of_nulls_are_limits() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(2), Some(3)]));
        let found = judged("not_null = true\nmax_null_share = 0.25", &[values]);
        assert_eq!((found[0].1, found[0].2.as_str()), (Status::Fail, "1 of 4 records are null (25 %)"));
        assert_eq!(found[1].1, Status::Pass);
    }
}
