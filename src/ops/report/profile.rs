//! Profile of a column: its values in a sample, and what footers state of all of them.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    compute::cast,
    datatypes::{DataType, FieldRef, Fields, Float64Type},
};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::Result,
    ops::columns::{Class, Extremes, Range, as_number, value_lengths},
    record::{extreme::nan_mask, json::text_of},
    schema::{file::print_type, unite_lists},
};

/// Maximum number of frequent values in a report.
const MAX_TOP: usize = 8;
/// Number of bins of a histogram, unless each whole number has its own.
const BINS: usize = 24;
/// Maximum number of bins of a histogram of whole numbers.
const MAX_WHOLE_BINS: f64 = 32.0;
/// Maximum length of a value in characters; longer texts are told apart by a hash.
const MAX_TEXT: usize = 120;

/// A column in a report.
#[derive(Debug, Clone, Serialize)]
pub struct ColumnReport {
    /// Its name; of members of structs, a path with dots.
    pub column: String,
    /// Its type.
    pub data_type: String,
    /// `number`, `time`, `text`, `boolean`, `bytes`, `list` or `other`. Histograms of bytes and lists are of their
    /// lengths.
    pub kind: &'static str,
    /// Number of nulls in all records; absent if only the sample is known.
    pub nulls: Option<u64>,
    /// Share of nulls, in all records if `nulls` is there, else in the sample.
    pub null_share: f64,
    /// Number of NaNs in the sample; they are neither in the range nor in the histogram.
    pub sampled_nans: u64,
    /// Least value.
    pub min: Option<String>,
    /// Greatest value.
    pub max: Option<String>,
    /// Whether the range is that of all records, rather than of the sample.
    pub range_exact: bool,
    /// Least value in the sample.
    pub sampled_min: Option<String>,
    /// Greatest value in the sample.
    pub sampled_max: Option<String>,
    /// Number of values in the sample that are not null.
    pub sampled_values: u64,
    /// Number of different ones, of which NaN is one and -0.0 is 0.0; absent for bytes and lists.
    pub sampled_distinct: Option<u64>,
    /// Frequent values of the sample, most frequent first; empty if none repeats.
    pub top: Vec<TopValue>,
    /// Histogram of the sample, in the unit of the type.
    pub bins: Vec<HistogramBin>,
    /// Bytes in the shards; absent for formats that do not store columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
}

/// A frequent value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopValue {
    /// The value as text; a long one is cut.
    pub value: String,
    /// Number of records in the sample that have it.
    pub count: u64,
}

/// A bin of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HistogramBin {
    /// Lower bound, inclusive.
    pub from: f64,
    /// Upper bound, exclusive; inclusive for the last bin.
    pub to: f64,
    /// Number of values.
    pub count: u64,
}

/// What footers state of a column in all records.
#[derive(Debug, Clone, Default)]
pub(super) struct Stated {
    pub(super) nulls: Option<u64>,
    pub(super) range: Option<Range>,
    pub(super) stored_bytes: Option<u64>,
    pub(super) records: u64,
}

/// Values of a column.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    pub(super) name: String,
    pub(super) field: FieldRef,
    class: Class,
    rows: u64,
    nulls: u64,
    nans: u64,
    numbers: Vec<f64>,
    counts: HashMap<Box<str>, u64>,
    range: Extremes,
}

impl Profile {
    pub(super) fn new(name: &str, field: &FieldRef) -> Self {
        Self {
            name: name.to_owned(),
            field: Arc::clone(field),
            class: Class::from_data_type(field.data_type()),
            rows: 0,
            nulls: 0,
            nans: 0,
            numbers: Vec::new(),
            counts: HashMap::new(),
            range: Extremes::default(),
        }
    }

    /// Adds values; those of another type are converted, as far as possible.
    pub(super) fn add_values(&mut self, values: &ArrayRef) -> Result<()> {
        self.rows += values.len() as u64;
        let values = match values.data_type() == self.field.data_type() {
            true => Arc::clone(values),
            false => cast(values, self.field.data_type())?,
        };
        self.nulls += values.logical_null_count() as u64;
        match self.class {
            Class::Number | Class::Time => {
                let numbers = as_number(&values)?;
                let numbers = numbers.as_primitive::<Float64Type>().iter().flatten();
                self.numbers.extend(numbers.filter(|number| !number.is_nan()));
            }
            Class::Bytes if matches!(values.data_type(), DataType::FixedSizeBinary(_)) => {}
            Class::Bytes | Class::List => {
                self.numbers.extend(value_lengths(&values)?.as_primitive::<Float64Type>().iter().flatten());
            }
            Class::Text | Class::Boolean | Class::Other => {}
        }
        if self.class.is_plain() {
            self.count_values(&values);
            self.range.add_values(&values);
        }
        Ok(())
    }

    /// Adds values of a type that may be wider than the one so far, as in the next file of a source.
    pub(super) fn add_any(&mut self, field: &FieldRef, values: &ArrayRef) -> Result<()> {
        if field.data_type() != self.field.data_type() {
            let own = Fields::from(vec![Arc::clone(&self.field)]);
            let united = unite_lists(&own, &Fields::from(vec![Arc::clone(field)]));
            let united = united.first().filter(|united| united.data_type() != self.field.data_type());
            if let Some(united) = united {
                self.range.convert_type(united.data_type());
                self.field = Arc::clone(united);
                self.class = Class::from_data_type(self.field.data_type());
                if !matches!(self.class, Class::Number | Class::Time) {
                    self.numbers.clear();
                }
            }
        }
        self.add_values(values)
    }

    fn count_values(&mut self, values: &ArrayRef) {
        let nans = nan_mask(values);
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            if nans.as_ref().is_some_and(|nans| nans.value(row)) {
                self.nans += 1;
            } else if let Some(text) = text_of(values, row) {
                // Zero has one value, whatever its sign.
                let key = if text == "-0.0" && values.data_type().is_floating() {
                    "0.0".into()
                } else {
                    shorten_value(&text)
                };
                match self.counts.get_mut(&*key) {
                    Some(count) => *count += 1,
                    None => {
                        self.counts.insert(key.into(), 1);
                    }
                }
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.nulls += other.nulls;
        self.nans += other.nans;
        self.numbers.extend(other.numbers);
        for (value, count) in other.counts {
            *self.counts.entry(value).or_default() += count;
        }
        self.range.merge(&other.range);
    }

    /// Counts records that have no such column.
    pub(super) fn add_absent(&mut self, rows: u64) {
        self.rows += rows;
        self.nulls += rows;
    }

    pub(super) fn row_count(&self) -> u64 {
        self.rows
    }

    /// Returns the report of a column of which only the sample is known; `all` says that this is everything.
    pub(super) fn into_report(self, all: bool) -> ColumnReport {
        self.report_with(&Stated::default(), all)
    }

    /// Returns the report of a column, with what is stated of all records.
    pub(super) fn report_with(mut self, stated: &Stated, all: bool) -> ColumnReport {
        let nulls = if all { Some(self.nulls) } else { stated.nulls };
        let share = |nulls: u64, rows: u64| if rows == 0 { 0.0 } else { nulls as f64 / rows as f64 };
        let range_exact = all || stated.range.is_some();
        let sampled = self.range.known_range();
        let range = if all { sampled } else { stated.range.as_ref().or(sampled) };
        let text = |value: &ArrayRef| text_of(value, 0).map(|text| shorten_value(&text).into_owned());
        let texts = |range: Option<&Range>| range.map_or((None, None), |(least, most)| (text(least), text(most)));
        let ((min, max), (sampled_min, sampled_max)) = (texts(range), texts(sampled));
        let distinct = self.counts.len() as u64 + u64::from(self.nans > 0);
        ColumnReport {
            data_type: print_type(&self.field),
            kind: self.class.name(),
            nulls,
            null_share: match (all, stated.nulls) {
                (false, Some(nulls)) => share(nulls, stated.records),
                _ => share(self.nulls, self.rows),
            },
            sampled_nans: self.nans,
            min,
            max,
            range_exact,
            sampled_min,
            sampled_max,
            sampled_values: self.rows - self.nulls.min(self.rows),
            sampled_distinct: self.class.is_plain().then_some(distinct),
            top: self.top_values(),
            bins: histogram_bins(&mut self.numbers),
            stored_bytes: stated.stored_bytes,
            column: self.name,
        }
    }

    /// Returns the frequent values; the text decides between equally frequent ones.
    fn top_values(&self) -> Vec<TopValue> {
        let repeats = self.counts.values().any(|count| *count > 1);
        if !repeats && self.counts.len() > MAX_TOP {
            return Vec::new();
        }
        let mut all: Vec<(&str, u64)> = self.counts.iter().map(|(value, count)| (&**value, *count)).collect();
        let order = |a: &(&str, u64)| (Reverse(a.1), a.0.to_owned());
        if all.len() > MAX_TOP {
            all.select_nth_unstable_by(MAX_TOP - 1, |a, b| (Reverse(a.1), a.0).cmp(&(Reverse(b.1), b.0)));
            all.truncate(MAX_TOP);
        }
        all.sort_by_key(order);
        all.into_iter().map(|(value, count)| TopValue { value: value.to_owned(), count }).collect()
    }
}

/// Returns a value as it is counted and shown: of a long one, its beginning and a hash.
fn shorten_value(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}… {:08x}", &text[..end], xxh3_64(text.as_bytes()) >> 32).into(),
        None => text.into(),
    }
}

/// Counts finite numbers in bins of one width: whole numbers of a short range each have their own.
fn histogram_bins(numbers: &mut Vec<f64>) -> Vec<HistogramBin> {
    numbers.retain(|number| number.is_finite());
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let span = greatest - least;
    if numbers.is_empty() || !span.is_finite() {
        return Vec::new();
    }
    if span == 0.0 {
        return vec![HistogramBin { from: least, to: greatest, count: numbers.len() as u64 }];
    }
    let whole = span < MAX_WHOLE_BINS && numbers.iter().all(|number| number.fract() == 0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below 32")]
    let count = if whole { span as usize + 1 } else { BINS };
    let width = if whole { 1.0 } else { span / count as f64 };
    let edges: Vec<f64> =
        (0..=count).map(|edge| if !whole && edge == count { greatest } else { least + width * edge as f64 }).collect();
    let mut counts = vec![0; count];
    for number in numbers.iter() {
        let bin = edges.partition_point(|edge| edge <= number).saturating_sub(1).min(count - 1);
        counts[bin] += 1;
    }
    let bin = |(at, count): (usize, u64)| HistogramBin { from: edges[at], to: edges[at + 1], count };
    counts.into_iter().enumerate().map(bin).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{Float64Array, Int64Array, StringArray},
        datatypes::Field,
    };

    use super::*;

    fn profile(values: ArrayRef) -> ColumnReport {
        let mut profile = Profile::new("x", &Arc::new(Field::new("x", values.data_type().clone(), true)));
        let half = values.len() / 2;
        profile.add_values(&values.slice(0, half)).unwrap();
        let mut other = Profile::new("x", &profile.field);
        other.add_values(&values.slice(half, values.len() - half)).unwrap();
        profile.merge(other);
        profile.into_report(true)
    }

    #[test]
    fn every_value_is_in_the_bin_whose_bounds_say_so() {
        let values: Vec<f64> = (0..1_000).map(|i| f64::from(i * i % 977) / 7.0).collect();
        let report = profile(Arc::new(Float64Array::from(values.clone())));
        assert_eq!(report.bins.len(), BINS);
        let last = report.bins.len() - 1;
        for (at, bin) in report.bins.iter().enumerate() {
            let inside = |value: &&f64| bin.from <= **value && (**value < bin.to || at == last && **value <= bin.to);
            assert_eq!(values.iter().filter(inside).count() as u64, bin.count, "{bin:?}");
        }
    }

    #[test]
    fn whole_numbers_have_bins_of_their_own_and_nan_none() {
        let report = profile(Arc::new(Int64Array::from(vec![Some(3), Some(5), None, Some(3)])));
        let counts: Vec<(f64, u64)> = report.bins.iter().map(|bin| (bin.from, bin.count)).collect();
        assert_eq!(counts, [(3.0, 2), (4.0, 0), (5.0, 1)]);
        assert_eq!((report.nulls, report.min.as_deref(), report.max.as_deref()), (Some(1), Some("3"), Some("5")));
        assert_eq!(report.top[0], TopValue { value: "3".into(), count: 2 });
        let report = profile(Arc::new(Float64Array::from(vec![f64::NAN, 1.0, f64::INFINITY, f64::NAN])));
        assert_eq!((report.sampled_nans, report.bins.len()), (2, 1));
        assert_eq!((report.min.as_deref(), report.sampled_values), (Some("1.0"), 4));
        assert!(profile(Arc::new(Float64Array::from(vec![f64::MIN, f64::MAX]))).bins.is_empty());
    }

    #[test]
    fn long_texts_are_told_apart() {
        let texts: StringArray = ["a", "b"].iter().map(|end| Some("é".repeat(300) + end)).collect();
        let report = profile(Arc::new(texts));
        assert_eq!((report.sampled_distinct, report.top.len()), (Some(2), 2));
        assert!(report.top[0].value.chars().count() < MAX_TEXT + 20);
    }
}
