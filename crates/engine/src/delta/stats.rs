//! Statistics of data files: those of merged files are united, those of decoded rows are computed.
//!
//! ```text
//! {"numRecords":10,"minValues":{"a":1,"s":{"b":"x"}},"maxValues":{...},"nullCount":{"a":0,"s":{"b":2}}}
//! ```
//!
//! Bounds are kept as they are written, because numbers of 38 digits would lose some as floats. A bound that cannot be
//! compared is omitted: then readers do not skip the file by it.

use std::{cmp::Ordering, collections::BTreeMap, collections::HashMap};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, make_array},
    buffer::NullBuffer,
    compute,
    datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, TimeUnit},
};
use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    tz::TimeZone,
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    error::{Error, Result},
    format::parquet::Bound,
};

/// Maximum characters of a bound of text, as in Delta.
const TEXT_CHARS: usize = 32;

/// Names of a column and the columns that it is within, from the outermost on.
type Path = Vec<String>;

/// Types of columns by path.
pub type Types = HashMap<Path, DataType>;

/// Statistics of a file, or of several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    records: u64,
    nulls: BTreeMap<Path, u64>,
    /// Least and greatest values, as JSON.
    least: BTreeMap<Path, String>,
    greatest: BTreeMap<Path, String>,
    /// Whether bounds may be wider than the values, and counts of nulls are not known.
    is_wide: bool,
}

/// The form of statistics in a log.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatsJson {
    min_values: Option<Box<RawValue>>,
    max_values: Option<Box<RawValue>>,
    null_count: Option<Box<RawValue>>,
    tight_bounds: Option<bool>,
}

impl Stats {
    /// Reads the statistics of a file of `records` rows, none of which is deleted. Damaged ones are as good as none.
    pub fn read(text: Option<&str>, records: u64) -> Self {
        let none = Self { records, ..Self::default() };
        let Some(Ok(stated)) = text.map(serde_json::from_str::<StatsJson>) else { return none };
        let leaves = |tree: &Option<Box<RawValue>>| {
            let mut out = BTreeMap::new();
            if let Some(tree) = tree {
                flatten_json(tree.get(), &mut Vec::new(), &mut out);
            }
            out
        };
        let is_wide = stated.tight_bounds == Some(false);
        let nulls = leaves(&stated.null_count).into_iter().filter_map(|(path, text)| Some((path, text.parse().ok()?)));
        Self {
            nulls: nulls.filter(|(_, nulls)| *nulls <= records).collect(),
            least: leaves(&stated.min_values),
            greatest: leaves(&stated.max_values),
            records,
            is_wide,
        }
    }

    /// Creates statistics of all columns of these paths, whose values do not matter; for [`Self::of_rows`].
    pub fn for_columns(paths: Vec<Path>) -> Self {
        Self { least: paths.into_iter().map(|path| (path, String::new())).collect(), ..Self::default() }
    }

    /// Returns the least and the greatest value of a column, as text without quotes; `None` if they are not known.
    pub fn column_bounds(&self, path: &Path) -> Option<(String, String)> {
        let text = |json: &String| serde_json::from_str::<String>(json).unwrap_or_else(|_| json.clone());
        Some((text(self.least.get(path)?), text(self.greatest.get(path)?)))
    }

    /// Returns the number of nulls of a column; `None` if it is not known.
    pub fn null_count(&self, path: &Path) -> Option<u64> {
        self.nulls.get(path).copied().filter(|_| !self.is_wide)
    }

    /// Returns the number of rows.
    pub fn record_count(&self) -> u64 {
        self.records
    }

    /// Computes the statistics of rows, for the columns that `like` has some for.
    ///
    /// # Errors
    /// Never in practice: the columns are those of a file of the table.
    pub fn of_rows(batches: &[RecordBatch], like: &Self, types: &Types) -> Result<Self> {
        let records = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let mut out = Self { records, ..Self::default() };
        for path in like.nulls.keys().chain(like.least.keys()) {
            if out.nulls.contains_key(path) {
                continue;
            }
            let columns: Option<Vec<ArrayRef>> = batches.iter().map(|batch| nested_column(batch, path)).collect();
            let Some(columns) = columns else { continue };
            out.nulls.insert(path.clone(), columns.iter().map(|column| column.logical_null_count() as u64).sum());
            if !like.least.contains_key(path) && !like.greatest.contains_key(path) {
                continue;
            }
            let Some(data_type) = types.get(path) else { continue };
            for column in columns.iter().filter(|column| column.logical_null_count() < column.len()) {
                let Some((least, greatest)) = bounds_of(column)? else {
                    out.least.remove(path);
                    out.greatest.remove(path);
                    break;
                };
                update_bound(&mut out.least, path, least, data_type, Ordering::Less);
                update_bound(&mut out.greatest, path, greatest, data_type, Ordering::Greater);
            }
        }
        Ok(out)
    }

    /// Returns the statistics of two files together.
    #[must_use]
    pub fn merged_with(&self, other: &Self, types: &Types) -> Self {
        if self.records == 0 || other.records == 0 {
            return if self.records == 0 { other.clone() } else { self.clone() };
        }
        let both = |(path, nulls): (&Path, &u64)| Some((path.clone(), nulls.checked_add(*other.nulls.get(path)?)?));
        let bounds = |of: fn(&Self) -> &BTreeMap<Path, String>, wanted| {
            let mut out = BTreeMap::new();
            for path in of(self).keys().chain(of(other).keys()) {
                let one = of(self).get(path).filter(|_| !self.is_null(path));
                let another = of(other).get(path).filter(|_| !other.is_null(path));
                let united = match (one, another) {
                    (Some(one), Some(another)) => types.get(path).and_then(|data_type| {
                        let order = compare_bounds(data_type, one, another)?;
                        Some(if order == wanted { one } else { another })
                    }),
                    (Some(one), None) if other.is_null(path) => Some(one),
                    (None, Some(another)) if self.is_null(path) => Some(another),
                    _ => None,
                };
                // Bounds that are no values of the type are omitted.
                let is_value =
                    |bound: &&String| types.get(path).is_some_and(|of| compare_bounds(of, bound, bound).is_some());
                let united = united.filter(is_value);
                out.extend(united.map(|bound| (path.clone(), bound.clone())));
            }
            out
        };
        let is_wide = self.is_wide || other.is_wide;
        Self {
            records: self.records + other.records,
            nulls: self.nulls.iter().filter(|_| !is_wide).filter_map(both).collect(),
            least: bounds(|stats| &stats.least, Ordering::Less),
            greatest: bounds(|stats| &stats.greatest, Ordering::Greater),
            is_wide,
        }
    }

    /// Returns whether all values of a column are null.
    fn is_null(&self, path: &Path) -> bool {
        !self.is_wide && self.nulls.get(path) == Some(&self.records)
    }

    /// Returns the statistics as JSON.
    ///
    /// # Errors
    /// Never in practice: they came from JSON.
    pub fn to_json(&self) -> Result<String> {
        let failed = |e: serde_json::Error| Error::internal("encoding statistics failed").with_cause(e);
        let bound = |text: &String| RawValue::from_string(text.clone());
        let tree = |leaves: &BTreeMap<Path, String>| -> Result<Box<RawValue>> {
            let mut root = Tree::default();
            for (path, text) in leaves {
                root.insert(path, bound(text).map_err(failed)?);
            }
            root.to_raw().map_err(failed)
        };
        let nulls = self
            .nulls
            .iter()
            .filter(|_| !self.is_wide)
            .map(|(path, nulls)| (path.clone(), nulls.to_string()))
            .collect();
        let mut out = BTreeMap::new();
        out.insert("numRecords", bound(&self.records.to_string()).map_err(failed)?);
        out.insert("minValues", tree(&self.least)?);
        out.insert("maxValues", tree(&self.greatest)?);
        out.insert("nullCount", tree(&nulls)?);
        if self.is_wide {
            out.insert("tightBounds", bound(&"false".to_owned()).map_err(failed)?);
        }
        serde_json::to_string(&out).map_err(failed)
    }
}

/// Nested JSON.
#[derive(Default)]
struct Tree {
    leaves: BTreeMap<String, Box<RawValue>>,
    branches: BTreeMap<String, Self>,
}

impl Tree {
    fn insert(&mut self, path: &[String], leaf: Box<RawValue>) {
        match path {
            [] => {}
            [name] => _ = self.leaves.insert(name.clone(), leaf),
            [name, rest @ ..] => self.branches.entry(name.clone()).or_default().insert(rest, leaf),
        }
    }

    fn to_raw(&self) -> serde_json::Result<Box<RawValue>> {
        let mut all = self.leaves.clone();
        for (name, branch) in &self.branches {
            all.insert(name.clone(), branch.to_raw()?);
        }
        serde_json::value::to_raw_value(&all)
    }
}

fn flatten_json(text: &str, above: &mut Path, out: &mut BTreeMap<Path, String>) {
    /// Deeper than any schema.
    const MAX_DEPTH: usize = 64;
    let Ok(tree) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(text) else { return };
    for (name, value) in tree {
        above.push(name);
        match value.get() {
            "null" => {}
            text if text.starts_with('{') && above.len() < MAX_DEPTH => flatten_json(text, above, out),
            text => _ = out.insert(above.clone(), text.to_owned()),
        }
        above.pop();
    }
}

/// Returns a column, in which values within null structs are null.
fn nested_column(batch: &RecordBatch, path: &[String]) -> Option<ArrayRef> {
    let (first, rest) = path.split_first()?;
    let mut array = ArrayRef::clone(batch.column_by_name(first)?);
    for name in rest {
        let DataType::Struct(_) = array.data_type() else { return None };
        let parent = array.as_struct();
        let child = parent.column_by_name(name)?;
        let nulls = NullBuffer::union(parent.nulls(), child.nulls());
        array = make_array(child.to_data().into_builder().nulls(nulls).build().ok()?);
    }
    Some(array)
}

/// Returns the bounds of a column that has values; `None` if its type has none.
fn bounds_of(column: &ArrayRef) -> Result<Option<(String, String)>> {
    let data_type = column.data_type();
    if *data_type == DataType::Utf8 {
        let texts = column.as_string::<i32>();
        return Ok(text_bounds(texts));
    }
    if let DataType::Decimal128(_, scale) = data_type {
        let values = column.as_primitive::<Decimal128Type>();
        let text = |value: i128| decimal_text(value, *scale);
        return Ok(compute::min(values).map(text).zip(compute::max(values).map(text)));
    }
    let number = |is_greatest: bool| -> Result<Option<String>> {
        let bound = match data_type {
            DataType::Float32 => {
                let values = column.as_primitive::<Float32Type>();
                let found = if is_greatest { compute::max(values) } else { compute::min(values) };
                found.map(|value| Bound::Float(f64::from(value)))
            }
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>();
                let found = if is_greatest { compute::max(values) } else { compute::min(values) };
                found.map(Bound::Float)
            }
            _ => integer_bound(column, is_greatest)?,
        };
        Ok(bound.and_then(|bound| print_bound(data_type, bound, is_greatest)).map(|value| value.to_string()))
    };
    Ok(number(false)?.zip(number(true)?))
}

/// Prints a decimal as JSON has numbers.
fn decimal_text(value: i128, scale: i8) -> String {
    let digits = usize::try_from(scale).unwrap_or_default();
    let all = format!("{:0>width$}", value.unsigned_abs(), width = digits + 1);
    let (whole, rest) = all.split_at(all.len() - digits);
    let sign = if value < 0 { "-" } else { "" };
    if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") }
}

/// Returns a bound of whole numbers, or of what is stored as such.
fn integer_bound(column: &ArrayRef, is_greatest: bool) -> Result<Option<Bound>> {
    use arrow::datatypes::Int64Type;
    match column.data_type() {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Timestamp(..) => {}
        DataType::Date32 => {
            let days = compute::cast(column, &DataType::Int32)?;
            return integer_bound(&days, is_greatest);
        }
        _ => return Ok(None),
    }
    let longs = compute::cast(column, &DataType::Int64)?;
    let values = longs.as_primitive::<Int64Type>();
    let found = if is_greatest { compute::max(values) } else { compute::min(values) };
    Ok(found.map(Bound::Whole))
}

/// Returns the bounds of texts, cut as Delta cuts them.
fn text_bounds(texts: &StringArray) -> Option<(String, String)> {
    /// The character behind a greatest value that was cut.
    const LAST: char = '\u{10FFFF}';
    let (least, greatest) = (compute::min_string(texts)?, compute::max_string(texts)?);
    let cut = |text: &str| text.chars().take(TEXT_CHARS).collect::<String>();
    let mut above = cut(greatest);
    if above.len() < greatest.len() {
        if greatest[above.len()..].starts_with(LAST) {
            return None;
        }
        above.push(LAST);
    }
    Some((Value::from(cut(least)).to_string(), Value::from(above).to_string()))
}

/// Keeps the lesser or the greater of two bounds.
fn update_bound(bounds: &mut BTreeMap<Path, String>, path: &Path, new: String, data_type: &DataType, wanted: Ordering) {
    match bounds.get(path).map(|old| compare_bounds(data_type, &new, old)) {
        None => _ = bounds.insert(path.clone(), new),
        Some(Some(order)) if order == wanted => _ = bounds.insert(path.clone(), new),
        Some(Some(_)) => {}
        Some(None) => _ = bounds.remove(path),
    }
}

/// Compares two bounds of a type, given as JSON; `None` if they cannot be compared.
fn compare_bounds(data_type: &DataType, one: &str, other: &str) -> Option<Ordering> {
    let text = |json: &str| serde_json::from_str::<String>(json).ok();
    Some(match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            one.parse::<i64>().ok()?.cmp(&other.parse().ok()?)
        }
        DataType::Float32 | DataType::Float64 => {
            let number = |json: &str| json.parse::<f64>().ok().filter(|number| number.is_finite());
            number(one)?.partial_cmp(&number(other)?)?
        }
        DataType::Decimal128(..) => Decimal::read(one)?.compare(&Decimal::read(other)?),
        DataType::Utf8 => text(one)?.cmp(&text(other)?),
        DataType::Date32 => {
            let date = |json| text(json)?.parse::<Date>().ok();
            date(one)?.cmp(&date(other)?)
        }
        DataType::Timestamp(..) => {
            let instant = |json| {
                let text = text(json)?;
                let in_utc = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
                text.parse::<Timestamp>().ok().or_else(|| Some(in_utc()?.timestamp()))
            };
            instant(one)?.cmp(&instant(other)?)
        }
        _ => return None,
    })
}

/// A decimal number as it is written.
struct Decimal<'a> {
    is_negative: bool,
    /// Digits without leading zeros, and without trailing ones behind the point.
    whole: &'a str,
    rest: &'a str,
}

impl<'a> Decimal<'a> {
    /// Returns `None` for a number with an exponent.
    fn read(text: &'a str) -> Option<Self> {
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
        let all = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let is_number = !whole.is_empty() && all(whole) && all(rest);
        is_number.then(|| Self { is_negative, whole: whole.trim_start_matches('0'), rest: rest.trim_end_matches('0') })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let size = |one: &Self, other: &Self| {
            one.whole.len().cmp(&other.whole.len()).then(one.whole.cmp(other.whole)).then(one.rest.cmp(other.rest))
        };
        let is_zero = |one: &Self| one.whole.is_empty() && one.rest.is_empty();
        match (self.is_negative && !is_zero(self), other.is_negative && !is_zero(other)) {
            (false, false) => size(self, other),
            (true, true) => size(other, self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

/// Prints a bound; `None` for types without bounds in the log.
pub fn print_bound(data_type: &DataType, bound: Bound, is_greatest: bool) -> Option<Value> {
    Some(match (data_type, bound) {
        (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, Bound::Whole(number)) => number.into(),
        (DataType::Float32 | DataType::Float64, Bound::Float(number)) => {
            // Infinity is no number in JSON.
            serde_json::Number::from_f64(number).map(Value::Number)?
        }
        (DataType::Date32, Bound::Whole(days)) => print_date(days)?.into(),
        (DataType::Timestamp(unit, zone), Bound::Whole(ticks)) => {
            print_time(ticks, *unit, is_greatest, zone.is_some())?.into()
        }
        _ => return None,
    })
}

/// Years that readers print with four digits.
fn is_plain(year: i16) -> bool {
    (1..=9999).contains(&year)
}

fn print_date(days: i64) -> Option<String> {
    let date = Date::constant(1970, 1, 1).checked_add(jiff::Span::new().try_days(days).ok()?).ok()?;
    is_plain(date.year()).then(|| date.to_string())
}

/// Prints a time in milliseconds, the unit of times in a log: least ones are rounded down, greatest ones up.
fn print_time(ticks: i64, unit: TimeUnit, is_greatest: bool, has_zone: bool) -> Option<String> {
    let millis = match unit {
        // Parquet has no seconds: they are stored as milliseconds.
        TimeUnit::Second | TimeUnit::Millisecond => ticks,
        TimeUnit::Microsecond => {
            let down = ticks.div_euclid(1000);
            if is_greatest && ticks.rem_euclid(1000) > 0 { down + 1 } else { down }
        }
        TimeUnit::Nanosecond => return None,
    };
    let instant = Timestamp::from_millisecond(millis).ok()?;
    let text = instant.strftime(if has_zone { "%Y-%m-%dT%H:%M:%S.%3fZ" } else { "%Y-%m-%dT%H:%M:%S.%3f" }).to_string();
    let year = instant.to_zoned(TimeZone::UTC).year();
    is_plain(year).then_some(text)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use serde_json::json;

    use super::*;

    fn types() -> Types {
        let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Path>();
        [
            (path(&["n"]), DataType::Int64),
            (path(&["x"]), DataType::Float64),
            (path(&["d"]), DataType::Decimal128(38, 4)),
            (path(&["t"]), DataType::Utf8),
            (path(&["at"]), DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            (path(&["s", "day"]), DataType::Date32),
        ]
        .into()
    }

    #[test]
    fn statistics_of_merged_files_are_those_of_all_rows() {
        let one = r#"{"numRecords":3,"minValues":{"n":-5,"d":12345678901234567890.1234,"t":"b","at":"2026-01-01T00:00:00.12Z","s":{"day":"2026-01-02"},"x":1.5},
            "maxValues":{"n":7,"d":99999999999999999999.5,"t":"c","at":"2026-01-01T00:00:00.9Z","s":{"day":"2026-02-01"},"x":2},"nullCount":{"n":0,"d":1,"t":0,"s":{"day":2}}}"#;
        let two = r#"{"numRecords":2,"minValues":{"n":10,"d":12345678901234567890.1233,"t":"\u00fc","at":"2026-01-01T01:00:00.1+01:00","s":{"day":"2025-12-31"}},
            "maxValues":{"n":11,"d":-1,"t":"z","at":"2026-01-01T00:00:00.95Z","s":{"day":"2026-01-01"}},"nullCount":{"n":1,"d":0,"t":0,"s":{"day":0}}}"#;
        let united = Stats::read(Some(one), 3).merged_with(&Stats::read(Some(two), 2), &types());
        assert_eq!(
            united.to_json().unwrap(),
            r#"{"maxValues":{"at":"2026-01-01T00:00:00.95Z","d":99999999999999999999.5,"n":11,"s":{"day":"2026-02-01"},"t":"z"},"#.to_owned()
                + r#""minValues":{"at":"2026-01-01T01:00:00.1+01:00","d":12345678901234567890.1233,"n":-5,"s":{"day":"2025-12-31"},"t":"b"},"#
                + r#""nullCount":{"d":1,"n":1,"s":{"day":2},"t":0},"numRecords":5}"#
        );
    }

    #[test]
    fn unknown_null_and_wide_statistics() {
        let known = Stats::read(
            Some(r#"{"minValues":{"n":1,"t":"a"},"maxValues":{"n":2,"t":"b"},"nullCount":{"n":0,"t":0}}"#),
            4,
        );
        let all_null = Stats::read(Some(r#"{"nullCount":{"n":2,"t":0}}"#), 2);
        let json = |stats: Stats| stats.to_json().unwrap();
        assert_eq!(
            json(known.merged_with(&all_null, &types())),
            r#"{"maxValues":{"n":2},"minValues":{"n":1},"nullCount":{"n":2,"t":0},"numRecords":6}"#
        );
        for damaged in [None, Some("{"), Some("[]"), Some(r#"{"nullCount":{"n":9}}"#)] {
            let united = known.merged_with(&Stats::read(damaged, 2), &types());
            assert_eq!(json(united), r#"{"maxValues":{},"minValues":{},"nullCount":{},"numRecords":6}"#, "{damaged:?}");
        }
        let wide = Stats::read(
            Some(r#"{"minValues":{"n":0},"maxValues":{"n":9},"nullCount":{"n":0},"tightBounds":false}"#),
            2,
        );
        assert_eq!(
            json(known.merged_with(&wide, &types())),
            r#"{"maxValues":{"n":9},"minValues":{"n":0},"nullCount":{},"numRecords":6,"tightBounds":false}"#
        );
        // No statistics, but text in place of a number.
        let text = Stats::read(Some(r#"{"minValues":{"n":"1"},"maxValues":{"n":"2"},"nullCount":{"n":0}}"#), 4);
        assert_eq!(
            json(text.merged_with(&all_null, &types())),
            r#"{"maxValues":{},"minValues":{},"nullCount":{"n":2},"numRecords":6}"#
        );
    }

    #[test]
    fn decimals_are_compared_by_value() {
        for (one, other, order) in [
            ("1", "1.00", Ordering::Equal),
            ("-0", "0.0", Ordering::Equal),
            ("9", "10", Ordering::Less),
            ("-9", "-10", Ordering::Greater),
            ("0.09", "0.1", Ordering::Less),
            ("-0.1", "0.01", Ordering::Less),
            ("123456789012345678901234567890.1234", "123456789012345678901234567890.1235", Ordering::Less),
        ] {
            let of = DataType::Decimal128(38, 4);
            assert_eq!(compare_bounds(&of, one, other), Some(order), "{one} {other}");
            assert_eq!(compare_bounds(&of, other, one), Some(order.reverse()), "{one} {other}");
        }
        assert_eq!(compare_bounds(&DataType::Decimal128(38, 4), "1e3", "1"), None);
    }

    #[test]
    fn decimals_are_printed_as_numbers() {
        let texts = [(12345, 2), (-5, 3), (0, 2), (7, 0), (-100, 1)].map(|(value, scale)| decimal_text(value, scale));
        assert_eq!(texts, ["123.45", "-0.005", "0.00", "7", "-10.0"]);
    }

    #[test]
    fn statistics_of_rows_are_exact() {
        use arrow::array::{Float64Array, Int64Array};
        let long = "x".repeat(40);
        let columns: [(&str, ArrayRef); 3] = [
            ("n", std::sync::Arc::new(Int64Array::from(vec![Some(3), None, Some(-1)]))),
            ("x", std::sync::Arc::new(Float64Array::from(vec![1.5, f64::NAN, 0.0]))),
            ("t", std::sync::Arc::new(StringArray::from(vec![Some("b"), Some(&long), None]))),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap();
        let like = r#"{"minValues":{"n":-9,"x":-9,"t":"a"},"maxValues":{"n":9,"x":9,"t":"z"},"nullCount":{"n":0,"x":0,"t":0,"gone":0},"tightBounds":false}"#;
        let stats = Stats::of_rows(&[batch], &Stats::read(Some(like), 5), &types()).unwrap();
        let cut = format!("{}\u{10FFFF}", "x".repeat(32));
        assert_eq!(
            stats.to_json().unwrap(),
            format!(
                r#"{{"maxValues":{{"n":3,"t":"{cut}"}},"minValues":{{"n":-1,"t":"b"}},"nullCount":{{"n":1,"t":1,"x":0}},"numRecords":3}}"#
            )
        );
    }

    #[test]
    fn bounds_never_exclude_a_value() {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let local = DataType::Timestamp(TimeUnit::Millisecond, None);
        for (data_type, bound, is_greatest, expected) in [
            (&DataType::Int8, Bound::Whole(-3), false, json!(-3)),
            (&DataType::Float64, Bound::Float(-2.5), false, json!(-2.5)),
            (&DataType::Date32, Bound::Whole(-1), true, json!("1969-12-31")),
            (&utc, Bound::Whole(-1), false, json!("1969-12-31T23:59:59.999Z")),
            (&utc, Bound::Whole(1), true, json!("1970-01-01T00:00:00.001Z")),
            (&utc, Bound::Whole(2000), true, json!("1970-01-01T00:00:00.002Z")),
            (&local, Bound::Whole(1_700_000_000_123), true, json!("2023-11-14T22:13:20.123")),
        ] {
            assert_eq!(print_bound(data_type, bound, is_greatest), Some(expected));
        }
        for (data_type, bound) in [
            (DataType::Utf8, Bound::Whole(1)),
            (DataType::Float64, Bound::Float(f64::INFINITY)),
            (DataType::Decimal128(9, 2), Bound::Whole(1)),
            (DataType::Date32, Bound::Whole(i64::from(i32::MAX))),
            (utc, Bound::Whole(i64::MIN)),
        ] {
            assert_eq!(print_bound(&data_type, bound, false), None);
        }
    }
}
