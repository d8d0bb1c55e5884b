//! Profile of a column: values of a sample, bins made from them, and counts of all values.

use std::collections::{BTreeMap, HashMap};

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch},
    compute::cast,
    datatypes::DataType,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::Result,
    ops::columns::{Class, as_number, flat_columns, value_lengths},
    plan::drift::{MAX_VALUE_BINS, bin_edges, bin_index},
};

/// Name of the column of record sizes.
pub(super) const RECORD_BYTES: &str = "(record bytes)";
/// Maximum length of a text in bytes; longer texts are represented by their prefix and their hash.
const MAX_TEXT_BYTES: usize = 96;

/// Kinds of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum DriftKind {
    Number,
    Category,
    List,
    Size,
}

impl DriftKind {
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
pub(super) struct DriftColumn {
    pub(super) name: String,
    pub(super) kind: DriftKind,
}

/// A column of a batch.
pub(super) struct Values {
    pub(super) column: DriftColumn,
    nulls: u64,
    /// Numbers, texts or bytes to be binned; all null where values have no bins.
    binned: ArrayRef,
}

/// Returns the columns of a batch: structs are flattened, lists are replaced by their lengths.
pub(super) fn columns_of(batch: &RecordBatch) -> Result<Vec<Values>> {
    let columns = flat_columns(batch)?.into_iter();
    columns.map(|column| values_of(column.name, &column.values)).collect()
}

fn values_of(name: String, values: &ArrayRef) -> Result<Values> {
    let (kind, binned) = match Class::from_data_type(values.data_type()) {
        Class::Number if name == RECORD_BYTES => (DriftKind::Size, as_number(values)?),
        Class::Number | Class::Time => (DriftKind::Number, as_number(values)?),
        Class::List => (DriftKind::List, value_lengths(values)?),
        Class::Text | Class::Boolean => (DriftKind::Category, cast(values, &DataType::LargeUtf8)?),
        Class::Bytes => (DriftKind::Category, cast(values, &DataType::LargeBinary)?),
        Class::Other => (DriftKind::Category, arrow::array::new_null_array(&DataType::LargeUtf8, values.len())),
    };
    Ok(Values { column: DriftColumn { name, kind }, nulls: values.logical_null_count() as u64, binned })
}

/// A value that is not null.
enum Value<'a> {
    Number(f64),
    Text(&'a [u8]),
}

/// Passes each value that is not null to `visit`.
fn each_value(array: &ArrayRef, visit: &mut dyn FnMut(Value<'_>)) {
    match array.data_type() {
        DataType::Float64 => {
            let values: &Float64Array = array.as_primitive();
            values.iter().flatten().for_each(|number| visit(Value::Number(number)));
        }
        DataType::LargeUtf8 => {
            array.as_string::<i64>().iter().flatten().for_each(|text| visit(Value::Text(text.as_bytes())));
        }
        DataType::LargeBinary => {
            array.as_binary::<i64>().iter().flatten().for_each(|bytes| visit(Value::Text(bytes)));
        }
        _ => {}
    }
}

/// Returns a text in the form used in samples and bins.
fn text_key(text: &[u8]) -> Vec<u8> {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_vec();
    }
    let mut key = text[..MAX_TEXT_BYTES].to_vec();
    key.extend_from_slice(format!("... {:016x}", xxh3_64(text)).as_bytes());
    key
}

/// Sampled values of a column.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    numbers: Vec<f64>,
    texts: BTreeMap<Vec<u8>, u64>,
}

impl Sampled {
    /// Adds values; NaN has no place among the bounds of bins.
    pub(super) fn add_values(&mut self, values: &Values) {
        each_value(&values.binned, &mut |value| match value {
            Value::Number(number) if number.is_nan() => {}
            Value::Number(number) => self.numbers.push(if number == 0.0 { 0.0 } else { number }),
            Value::Text(text) => *self.texts.entry(text_key(text)).or_default() += 1,
        });
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.numbers.extend(other.numbers);
        for (text, count) in other.texts {
            *self.texts.entry(text).or_default() += count;
        }
    }

    /// Makes bins from the sample.
    pub(super) fn into_bins(mut self) -> Bins {
        self.numbers.sort_by(f64::total_cmp);
        let mut texts: Vec<(Vec<u8>, u64)> = self.texts.into_iter().collect();
        // The most frequent first; the order of the map decides between equally frequent ones.
        texts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        texts.truncate(MAX_VALUE_BINS);
        let texts: Vec<Vec<u8>> = texts.into_iter().map(|(text, _)| text).collect();
        let places = (0..).zip(&texts).map(|(i, text)| (text.clone(), i)).collect();
        Bins { edges: bin_edges(&self.numbers), texts, places }
    }
}

/// Bins of a column, followed by one for values in none of them. NaN is above all numbers, as in SQL.
#[derive(Debug, Default)]
pub(super) struct Bins {
    edges: Vec<f64>,
    texts: Vec<Vec<u8>>,
    /// Index of each text's bin.
    places: HashMap<Vec<u8>, usize>,
}

impl Bins {
    fn len(&self) -> usize {
        self.edges.len().max(self.texts.len()) + 1
    }

    fn of_text(&self, text: &[u8]) -> usize {
        let known = if text.len() <= MAX_TEXT_BYTES {
            self.places.get(text)
        } else {
            self.places.get(text_key(text).as_slice())
        };
        known.copied().unwrap_or(self.texts.len())
    }

    /// Returns the upper bound of a bin of numbers, or the value of a bin of texts.
    pub(super) fn bin_label(&self, bin: usize) -> (Option<f64>, Option<String>) {
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

    pub(super) fn count_values(&mut self, bins: &Bins, values: &Values) {
        self.values += values.binned.len() as u64 - values.nulls;
        each_value(&values.binned, &mut |value| {
            let bin = match value {
                Value::Number(number) if number.is_nan() => bins.edges.len(),
                Value::Number(number) => bin_index(&bins.edges, number),
                Value::Text(text) => bins.of_text(text),
            };
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

    use arrow::array::StringArray;

    use super::*;

    fn column(values: ArrayRef) -> Values {
        columns_of(&RecordBatch::try_from_iter([("x", values)]).unwrap()).unwrap().remove(0)
    }

    fn bins_of(values: &Values) -> Bins {
        let mut sampled = Sampled::default();
        sampled.add_values(values);
        sampled.into_bins()
    }

    #[test]
    fn texts_are_counted_by_the_commonest() {
        let texts: StringArray = (0..300).map(|i| (i % 3 > 0).then(|| format!("t{}", i % 50))).collect();
        let texts = column(Arc::new(texts));
        let bins = bins_of(&texts);
        assert_eq!(bins.texts.len(), MAX_VALUE_BINS);
        let mut counted = Counted::new(&bins);
        counted.count_values(&bins, &texts);
        assert_eq!((counted.values, counted.bins.iter().sum::<u64>()), (200, 200));
        assert_eq!(counted.bins.len(), MAX_VALUE_BINS + 1);
    }

    #[test]
    fn nan_is_a_value_above_all_others() {
        let values = column(Arc::new(Float64Array::from(vec![Some(f64::NAN), Some(1.0), None, Some(-0.0), Some(0.0)])));
        let bins = bins_of(&values);
        assert_eq!(bins.edges, [0.0, 1.0]);
        let mut counted = Counted::new(&bins);
        counted.count_values(&bins, &values);
        assert_eq!((counted.values, counted.bins), (4, vec![2, 1, 1]));
    }
}
