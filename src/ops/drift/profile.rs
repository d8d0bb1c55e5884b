//! Profile of a column: a sample of its rows, bins made from the sample, and counts.
//!
//! Each row has a rank, a hash of its place, and a sample keeps the rows of lowest rank. So neither the order nor the
//! number of threads in which shards are read matters, and samples of shards merge into a sample of all of them.

use std::collections::{BTreeMap, HashMap};

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch},
    compute::{cast, kernels::length::length},
    datatypes::DataType,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::Result,
    ops::columns::{as_number, flat_columns},
    plan::drift::{MAX_VALUE_BINS, bin, edges},
};

/// Name of the column of record sizes.
pub(super) const RECORD_BYTES: &str = "(record bytes)";
/// Maximum number of rows in a sample: it gives the share of a value to about half a percent.
const MAX_ROWS: usize = 65_536;
/// Minimum number of rows in a sample.
const MIN_ROWS: usize = 1_024;
/// Memory of a value in a sample, in bytes.
const VALUE_BYTES: u64 = 64;
/// Maximum length of a text in bytes; longer texts are represented by their prefix and their hash.
const MAX_TEXT_BYTES: usize = 96;

/// Kinds of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Number,
    Category,
    List,
    Size,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Category => "category",
            Self::List => "list",
            Self::Size => "size",
        }
    }
}

/// Identifies a column: one that changed from numbers to text counts as two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// Returns how many rows a sample of each of `columns` columns may have within `bytes`.
pub(super) fn sample_rows(bytes: u64, columns: usize) -> usize {
    let rows = bytes / VALUE_BYTES / (columns as u64).max(1);
    usize::try_from(rows).unwrap_or(MAX_ROWS).clamp(MIN_ROWS, MAX_ROWS)
}

/// Returns the ranks of consecutive rows of a shard.
pub(super) fn ranks(shard: u64, first: u64, rows: usize) -> Vec<u64> {
    let rank = |row: u64| {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&shard.to_le_bytes());
        key[8..].copy_from_slice(&row.to_le_bytes());
        xxh3_64(&key)
    };
    (first..first + rows as u64).map(rank).collect()
}

/// Returns the columns of a batch: structs are flattened, lists are replaced by their lengths.
pub(super) fn columns_of(batch: &RecordBatch) -> Result<Vec<(Column, ArrayRef)>> {
    let columns = flat_columns(batch)?.into_iter();
    columns.map(|column| kind_of(&column.name, &column.values)).collect()
}

fn kind_of(name: &str, array: &ArrayRef) -> Result<(Column, ArrayRef)> {
    let nothing = || arrow::array::new_null_array(&DataType::LargeUtf8, array.len());
    let (kind, values) = match array.data_type() {
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            (Kind::List, cast(&length(array)?, &DataType::Float64)?)
        }
        DataType::Map(..) | DataType::Null => (Kind::Category, nothing()),
        DataType::Boolean | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            (Kind::Category, cast(array, &DataType::LargeUtf8)?)
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            (Kind::Category, cast(array, &DataType::LargeBinary)?)
        }
        kind if kind.is_temporal() && !matches!(kind, DataType::Interval(_)) => (Kind::Number, as_number(array)?),
        kind if kind.is_numeric() => (if name == RECORD_BYTES { Kind::Size } else { Kind::Number }, as_number(array)?),
        _ => (Kind::Category, nothing()),
    };
    Ok((Column { name: name.to_owned(), kind }, values))
}

/// A non-null value.
enum Value<'a> {
    Number(f64),
    Text(&'a [u8]),
}

/// Passes each value with its row to `visit`; nulls and NaN are skipped.
fn each(array: &ArrayRef, visit: &mut dyn FnMut(usize, Value<'_>)) {
    let rows = (0..array.len()).filter(|row| array.is_valid(*row));
    match array.data_type() {
        DataType::Float64 => {
            let values: &Float64Array = array.as_primitive();
            let numbers = rows.map(|row| (row, values.value(row))).filter(|(_, value)| !value.is_nan());
            numbers.for_each(|(row, value)| visit(row, Value::Number(value)));
        }
        DataType::LargeUtf8 => {
            rows.for_each(|row| visit(row, Value::Text(array.as_string::<i64>().value(row).as_bytes())));
        }
        DataType::LargeBinary => rows.for_each(|row| visit(row, Value::Text(array.as_binary::<i64>().value(row)))),
        _ => {}
    }
}

/// Returns a text in the form used in samples and bins.
fn key(text: &[u8]) -> Vec<u8> {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_vec();
    }
    let mut key = text[..MAX_TEXT_BYTES].to_vec();
    key.extend_from_slice(format!("... {:016x}", xxh3_64(text)).as_bytes());
    key
}

/// Sampled values of a column.
#[derive(Debug)]
pub(super) struct Sample {
    limit: usize,
    /// Rows of a higher rank are not in the sample.
    highest: u64,
    numbers: Vec<(u64, f64)>,
    texts: Vec<(u64, Vec<u8>)>,
}

impl Sample {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, highest: u64::MAX, numbers: Vec::new(), texts: Vec::new() }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn rows(&self) -> usize {
        self.numbers.len().max(self.texts.len())
    }

    pub(super) fn add(&mut self, ranks: &[u64], values: &ArrayRef) {
        each(values, &mut |row, value| {
            if ranks[row] <= self.highest {
                match value {
                    Value::Number(number) => self.numbers.push((ranks[row], number)),
                    Value::Text(text) => self.texts.push((ranks[row], key(text))),
                }
            }
        });
        self.shrink(2 * self.limit);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.limit = self.limit.min(other.limit);
        self.numbers.extend(other.numbers);
        self.texts.extend(other.texts);
        self.shrink(self.limit);
    }

    /// Keeps the rows of lowest rank if there are more than `most`.
    fn shrink(&mut self, most: usize) {
        if self.rows() > most {
            let highest = least(&mut self.numbers, self.limit).or(least(&mut self.texts, self.limit));
            self.highest = highest.unwrap_or(self.highest);
        }
    }

    /// Makes bins from the sample.
    pub(super) fn bins(mut self) -> Bins {
        self.shrink(self.limit);
        let mut values: Vec<f64> =
            self.numbers.iter().map(|(_, value)| if *value == 0.0 { 0.0 } else { *value }).collect();
        values.sort_by(f64::total_cmp);
        let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (_, text) in self.texts {
            *counts.entry(text).or_default() += 1;
        }
        let mut texts: Vec<(Vec<u8>, u64)> = counts.into_iter().collect();
        // The most frequent first; the order of the map decides between equally frequent ones.
        texts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        texts.truncate(MAX_VALUE_BINS);
        let texts: Vec<Vec<u8>> = texts.into_iter().map(|(text, _)| text).collect();
        let numbers = (0..).zip(&texts).map(|(i, text)| (text.clone(), i)).collect();
        Bins { edges: edges(&values), texts, numbers }
    }
}

/// Keeps the rows of lowest rank, and returns the highest rank among them; `None` if there are fewer than `limit`.
fn least<T>(rows: &mut Vec<(u64, T)>, limit: usize) -> Option<u64> {
    if rows.len() <= limit {
        return None;
    }
    let (_, (highest, _), _) = rows.select_nth_unstable_by_key(limit - 1, |(rank, _)| *rank);
    let highest = *highest;
    rows.truncate(limit);
    Some(highest)
}

/// Bins of a column, followed by one for values in none of them.
#[derive(Debug, Default)]
pub(super) struct Bins {
    edges: Vec<f64>,
    texts: Vec<Vec<u8>>,
    /// Index of each text's bin.
    numbers: HashMap<Vec<u8>, usize>,
}

impl Bins {
    fn len(&self) -> usize {
        self.edges.len().max(self.texts.len()) + 1
    }

    fn of_text(&self, text: &[u8]) -> usize {
        let known =
            if text.len() <= MAX_TEXT_BYTES { self.numbers.get(text) } else { self.numbers.get(key(text).as_slice()) };
        known.copied().unwrap_or(self.texts.len())
    }

    /// Returns the upper bound of a bin of numbers, or the value of a bin of texts.
    pub(super) fn label(&self, bin: usize) -> (Option<f64>, Option<String>) {
        (self.edges.get(bin).copied(), self.texts.get(bin).map(|text| String::from_utf8_lossy(text).into_owned()))
    }
}

/// Counts of a column's values.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    /// Number of non-null values.
    pub(super) values: u64,
    /// Number of values in each bin.
    pub(super) bins: Vec<u64>,
}

impl Counted {
    pub(super) fn new(bins: &Bins) -> Self {
        Self { values: 0, bins: vec![0; bins.len()] }
    }

    pub(super) fn add(&mut self, bins: &Bins, values: &ArrayRef) {
        each(values, &mut |_, value| {
            let bin = match value {
                Value::Number(number) => bin(&bins.edges, number),
                Value::Text(text) => bins.of_text(text),
            };
            self.values += 1;
            if let Some(count) = self.bins.get_mut(bin) {
                *count += 1;
            }
        });
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.values += other.values;
        self.bins.iter_mut().zip(&other.bins).for_each(|(own, other)| *own += other);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn column(values: ArrayRef) -> ArrayRef {
        columns_of(&RecordBatch::try_from_iter([("x", values)]).unwrap()).unwrap().remove(0).1
    }

    #[test]
    fn a_sample_does_not_depend_on_the_order_of_shards() {
        let shards: Vec<ArrayRef> = (0..8)
            .map(|s| column(Arc::new(Int64Array::from_iter_values((0..5_000).map(|i| (s * 5_000 + i) % 7_919)))))
            .collect();
        let sample = |order: &[usize]| {
            let mut all = Sample::new(1_000);
            for shard in order {
                let mut own = Sample::new(1_000);
                own.add(&ranks(*shard as u64, 0, 5_000), &shards[*shard]);
                all.merge(own);
            }
            assert_eq!(all.rows(), 1_000);
            all.bins().edges
        };
        let edges = sample(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(edges, sample(&[7, 3, 5, 1, 0, 2, 6, 4]));
        assert_eq!(edges.len(), 9);
        assert!((edges[4] - 3_960.0).abs() < 500.0, "{edges:?}");
    }

    #[test]
    fn texts_are_counted_by_the_commonest() {
        let texts: StringArray = (0..300).map(|i| (i % 3 > 0).then(|| format!("t{}", i % 50))).collect();
        let texts = column(Arc::new(texts));
        let mut sample = Sample::new(1_000);
        sample.add(&ranks(0, 0, 300), &texts);
        let bins = sample.bins();
        assert_eq!(bins.texts.len(), MAX_VALUE_BINS);
        let mut counted = Counted::new(&bins);
        counted.add(&bins, &texts);
        assert_eq!((counted.values, counted.bins.iter().sum::<u64>()), (200, 200));
        assert_eq!(counted.bins.len(), MAX_VALUE_BINS + 1);
    }
}
