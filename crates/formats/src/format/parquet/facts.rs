//! What the footer of a Parquet file states of its columns: nulls, least and greatest values, and stored bytes.
//!
//! A statement is used only if it is meant for all rows of the file: one row group without it makes it unknown.
//! Bounds count as known only if they are values of the column, rather than bounds that were truncated; NaN never is
//! a bound.

use std::sync::Arc;

use ::parquet::{
    arrow::arrow_reader::statistics::StatisticsConverter,
    basic::{ColumnOrder, Type as Physical},
    file::{metadata::ParquetMetaData, statistics::Statistics},
};
use arrow::{
    array::{Array, ArrayRef},
    datatypes::{DataType, Field, FieldRef, SchemaRef},
};

use crate::record::extreme::{extreme_value, nan_mask};

/// Facts about a column of a file.
#[derive(Debug, Clone)]
pub struct ColumnFacts {
    /// Name; of members of structs, a path with dots.
    pub name: String,
    /// The column.
    pub field: FieldRef,
    /// Name of the column of the file that holds it.
    pub root: String,
    /// Number of nulls; `None` if it is unknown.
    pub nulls: Option<u64>,
    /// Least and greatest value as arrays of one value, which is null if the file has no values; `None` if unknown.
    pub range: Option<(ArrayRef, ArrayRef)>,
    /// Bytes in the file.
    pub encoded_bytes: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
}

/// Returns the facts of all columns.
pub(super) fn facts_of(metadata: &ParquetMetaData, schema: &SchemaRef) -> Vec<ColumnFacts> {
    let parquet = metadata.file_metadata().schema_descr();
    let mut out = Vec::new();
    for (root, field) in schema.fields().iter().enumerate() {
        let mut leaves = (0..parquet.num_columns()).filter(|leaf| parquet.get_column_root_idx(*leaf) == root);
        let mut columns = Columns { metadata, root: field.name(), out: &mut out };
        columns.add_field(field.name(), field, &mut leaves);
    }
    out
}

struct Columns<'a> {
    metadata: &'a ParquetMetaData,
    root: &'a str,
    out: &'a mut Vec<ColumnFacts>,
}

impl Columns<'_> {
    /// Adds the columns of a field; `leaves` are those of the file that are left for it.
    fn add_field(&mut self, name: &str, field: &FieldRef, leaves: &mut dyn Iterator<Item = usize>) {
        if let DataType::Struct(members) = field.data_type() {
            for member in members {
                self.add_field(&format!("{name}.{}", member.name()), member, leaves);
            }
            return;
        }
        // Dictionaries are a matter of memory; statistics are of the values.
        let field = match field.data_type() {
            DataType::Dictionary(_, plain) => {
                Arc::new(Field::new(field.name(), plain.as_ref().clone(), field.is_nullable()))
            }
            _ => Arc::clone(field),
        };
        let is_nested = field.data_type().is_nested();
        let own: Vec<usize> = leaves.take(leaves_of(field.data_type())).collect();
        let mut facts = ColumnFacts {
            name: name.to_owned(),
            field: Arc::clone(&field),
            root: self.root.to_owned(),
            nulls: None,
            range: None,
            encoded_bytes: self.sum_chunks(&own, |column| column.compressed_size()),
            raw_bytes: self.sum_chunks(&own, |column| column.uncompressed_size()),
        };
        if let ([leaf], false) = (own.as_slice(), is_nested) {
            facts.nulls = self.null_count(*leaf);
            facts.range = self.value_range(*leaf, &field);
        }
        self.out.push(facts);
    }

    fn sum_chunks(&self, leaves: &[usize], of: fn(&::parquet::file::metadata::ColumnChunkMetaData) -> i64) -> u64 {
        let groups = self.metadata.row_groups().iter();
        let chunks = groups.flat_map(|group| leaves.iter().filter_map(|leaf| group.columns().get(*leaf)));
        chunks.map(|chunk| u64::try_from(of(chunk)).unwrap_or(0)).fold(0, u64::saturating_add)
    }

    fn group_statistics(&self, leaf: usize) -> impl Iterator<Item = (u64, Option<&Statistics>)> {
        let rows = |rows: i64| u64::try_from(rows).unwrap_or(0);
        let groups = self.metadata.row_groups().iter();
        groups.map(move |group| (rows(group.num_rows()), group.columns().get(leaf).and_then(|c| c.statistics())))
    }

    fn null_count(&self, leaf: usize) -> Option<u64> {
        self.group_statistics(leaf).try_fold(0_u64, |sum, (rows, statistics)| match (rows, statistics) {
            (0, _) => Some(sum),
            (rows, statistics) => sum.checked_add(statistics?.null_count_opt().filter(|nulls| *nulls <= rows)?),
        })
    }

    /// Returns the bounds if every row group with values states them.
    fn value_range(&self, leaf: usize, field: &Field) -> Option<(ArrayRef, ArrayRef)> {
        let file = self.metadata.file_metadata();
        let column = file.schema_descr().column(leaf);
        if !matches!(file.column_order(leaf), ColumnOrder::TYPE_DEFINED_ORDER(_))
            || column.physical_type() == Physical::INT96
            || column.max_rep_level() > 0
        {
            return None;
        }
        let may_be_cut = matches!(column.physical_type(), Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY)
            && !field.data_type().is_numeric();
        for (rows, statistics) in self.group_statistics(leaf) {
            if rows == 0 || statistics.is_some_and(|s| s.null_count_opt() == Some(rows)) {
                continue;
            }
            let statistics = statistics?;
            let is_whole = !may_be_cut || statistics.min_is_exact() && statistics.max_is_exact();
            let is_stated = statistics.min_bytes_opt().is_some() && statistics.max_bytes_opt().is_some();
            if statistics.is_min_max_deprecated() || !is_whole || !is_stated {
                return None;
            }
        }
        let is_nan = |bounds: &ArrayRef| nan_mask(bounds).is_some_and(|nans| nans.true_count() > 0);
        let converter = StatisticsConverter::from_column_index(leaf, field, file.schema_descr()).ok()?;
        let mins = converter.row_group_mins(self.metadata.row_groups()).ok()?;
        let maxes = converter.row_group_maxes(self.metadata.row_groups()).ok()?;
        // Values that the converter cannot represent are null.
        let with_values =
            |(rows, s): (u64, Option<&Statistics>)| rows > s.and_then(Statistics::null_count_opt).unwrap_or(0);
        let groups = self.group_statistics(leaf).filter(|group| with_values(*group)).count();
        let is_known = |bounds: &ArrayRef| bounds.len() - bounds.null_count() == groups && !is_nan(bounds);
        let range = is_known(&mins) && is_known(&maxes);
        if range { Some((extreme_value(&mins, false)?, extreme_value(&maxes, true)?)) } else { None }
    }
}

/// Returns the number of columns of a file that a type takes.
fn leaves_of(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| leaves_of(field.data_type())).sum(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => leaves_of(item.data_type()),
        _ => 1,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{Float64Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray},
        datatypes::Int32Type,
    };
    use bytes::Bytes;

    use super::*;
    use crate::{
        codec::Codec,
        format::parquet::{ParquetEncoder, open},
        record::json::text_of,
    };

    fn facts(columns: Vec<(&str, ArrayRef)>) -> Vec<ColumnFacts> {
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
        let encoder = ParquetEncoder::new(&batch.schema(), Codec::Snappy, &[]).unwrap();
        let mut shard = encoder.start_shard(Vec::new()).unwrap();
        shard.append(encoder.encode(&[batch.slice(0, 2)]).unwrap()).unwrap();
        shard.append(encoder.encode(&[batch.slice(2, 2)]).unwrap()).unwrap();
        open(Bytes::from(shard.finish().unwrap()), "test").unwrap().column_facts().unwrap()
    }

    fn range(facts: &ColumnFacts) -> Option<(Option<String>, Option<String>)> {
        facts.range.as_ref().map(|(least, greatest)| (text_of(least, 0), text_of(greatest, 0)))
    }

    #[test]
    fn bounds_and_nulls_of_all_row_groups_are_united() {
        let long = "x".repeat(300);
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(9), None, Some(-4), Some(2)]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), Some("é"), Some("a"), None]));
        let cut: ArrayRef = Arc::new(StringArray::from(vec![Some(long.as_str()), None, Some("a"), None]));
        let none: ArrayRef = Arc::new(Int64Array::from(vec![None::<i64>; 4]));
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, f64::NAN, 1.0, 2.0]));
        let pair: ArrayRef = Arc::new(StructArray::from(vec![(
            Arc::new(Field::new("deep", DataType::Int64, true)),
            Arc::clone(&numbers),
        )]));
        let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1)]); 4]));
        let found = facts(vec![
            ("n", numbers),
            ("t", texts),
            ("cut", cut),
            ("none", none),
            ("f", floats),
            ("s", pair),
            ("l", list),
        ]);
        let text = |text: &str| Some(text.to_owned());
        assert_eq!((found[0].nulls, range(&found[0])), (Some(1), Some((text("-4"), text("9")))));
        assert_eq!((found[1].nulls, range(&found[1])), (Some(1), Some((text("a"), text("é")))));
        assert_eq!((found[2].nulls, range(&found[2])), (Some(2), None), "a bound that was cut is no value");
        assert_eq!((found[3].nulls, range(&found[3])), (Some(4), Some((None, None))));
        assert_eq!(range(&found[4]), None, "one row group has only NaN");
        assert_eq!((found[5].name.as_str(), range(&found[5])), ("s.deep", Some((text("-4"), text("9")))));
        assert_eq!((found[6].name.as_str(), found[6].nulls, range(&found[6])), ("l", None, None));
        assert!(found.iter().all(|column| column.encoded_bytes > 0 && column.raw_bytes > 0));
    }
}
