//! What a footer says about the values of columns: how many are null, and their bounds.
//!
//! Bounds are given only where every reader orders values alike: whole numbers (and what is stored as such), and floats
//! in files whose footers state that no value is NaN. A file of another program may state less; then less is returned.

use ::parquet::{
    file::{
        metadata::{ParquetMetaData, RowGroupMetaData},
        statistics::Statistics,
    },
    schema::types::SchemaDescriptor,
};

/// What the footer says about the values of a column that is not nested.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnValues {
    /// The name.
    pub name: String,
    /// Number of nulls; `None` if a row group does not state it.
    pub nulls: Option<u64>,
    /// Least and greatest value; `None` if there is no value, or a row group does not state them.
    pub bounds: Option<ColumnBounds>,
}

/// The bounds of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnBounds {
    /// The least value.
    pub least: Bound,
    /// The greatest value.
    pub greatest: Bound,
}

/// A bound of a column, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub enum Bound {
    /// A whole number, or a number of days or units of time.
    Whole(i64),
    /// A float, never NaN.
    Float(f64),
}

/// Returns what the footer says about columns that are not nested, in their order.
pub(super) fn values_of(metadata: &ParquetMetaData) -> Vec<ColumnValues> {
    let schema = metadata.file_metadata().schema_descr();
    let flat = (0..schema.num_columns()).filter(|leaf| is_flat(schema, *leaf));
    flat.map(|leaf| values_of_leaf(schema, metadata.row_groups(), leaf)).collect()
}

fn is_flat(schema: &SchemaDescriptor, leaf: usize) -> bool {
    let column = schema.column(leaf);
    column.path().parts().len() == 1 && column.max_rep_level() == 0
}

fn values_of_leaf(schema: &SchemaDescriptor, groups: &[RowGroupMetaData], leaf: usize) -> ColumnValues {
    let name = schema.column(leaf).name().to_owned();
    let mut values = ColumnValues { name, nulls: Some(0), bounds: None };
    let mut bounded = true;
    for group in groups.iter().filter(|group| group.num_rows() > 0) {
        let stated = group.columns().get(leaf).and_then(|chunk| chunk.statistics());
        let nulls = stated.and_then(Statistics::null_count_opt);
        values.nulls = values.nulls.zip(nulls).map(|(a, b)| a.saturating_add(b));
        if nulls.is_some_and(|nulls| i64::try_from(nulls) == Ok(group.num_rows())) {
            continue;
        }
        match stated.and_then(bounds_of) {
            Some(found) if bounded => {
                values.bounds = Some(values.bounds.map_or(found, |known| span_bounds(known, found)))
            }
            _ => bounded = false,
        }
    }
    values.bounds = values.bounds.filter(|_| bounded);
    values
}

fn span_bounds(a: ColumnBounds, b: ColumnBounds) -> ColumnBounds {
    ColumnBounds {
        least: if b.least < a.least { b.least } else { a.least },
        greatest: if b.greatest > a.greatest { b.greatest } else { a.greatest },
    }
}

fn bounds_of(statistics: &Statistics) -> Option<ColumnBounds> {
    let whole = |least: Option<i64>, greatest: Option<i64>| {
        Some(ColumnBounds { least: Bound::Whole(least?), greatest: Bound::Whole(greatest?) })
    };
    let float = |least: Option<f64>, greatest: Option<f64>| {
        let (least, greatest) = least.zip(greatest).filter(|(a, b)| !a.is_nan() && !b.is_nan())?;
        let bounds = ColumnBounds { least: Bound::Float(least), greatest: Bound::Float(greatest) };
        // Some readers order NaN above all numbers, and bounds leave it out.
        (statistics.nan_count_opt() == Some(0)).then_some(bounds)
    };
    match statistics {
        Statistics::Int32(of) => whole(of.min_opt().copied().map(i64::from), of.max_opt().copied().map(i64::from)),
        Statistics::Int64(of) => whole(of.min_opt().copied(), of.max_opt().copied()),
        Statistics::Float(of) => float(of.min_opt().copied().map(f64::from), of.max_opt().copied().map(f64::from)),
        Statistics::Double(of) => float(of.min_opt().copied(), of.max_opt().copied()),
        _ => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use ::parquet::{arrow::ArrowWriter, file::properties::WriterProperties};
    use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
    use bytes::Bytes;

    use super::*;
    use crate::format::parquet::open;

    fn values(columns: Vec<(&str, ArrayRef)>, rows_per_group: usize) -> Vec<ColumnValues> {
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows_per_group)).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        open(Bytes::from(writer.into_inner().unwrap()), "test").unwrap().column_values()
    }

    #[test]
    fn row_groups_are_united() {
        let found = values(
            vec![
                ("n", Arc::new(Int64Array::from(vec![Some(5), None, None, None, Some(-3), Some(9)]))),
                ("t", Arc::new(StringArray::from(vec![Some("a"); 6]))),
                ("nothing", Arc::new(Int64Array::from(vec![None; 6]))),
            ],
            2,
        );
        assert_eq!(found[0].nulls, Some(3));
        let whole = ColumnBounds { least: Bound::Whole(-3), greatest: Bound::Whole(9) };
        assert_eq!(found[0].bounds, Some(whole));
        assert_eq!((found[1].nulls, found[1].bounds), (Some(0), None));
        assert_eq!((found[2].nulls, found[2].bounds), (Some(6), None));
    }

    #[test]
    fn floats_have_bounds_only_without_nan() {
        let floats = |values: Vec<f64>| Arc::new(Float64Array::from(values)) as ArrayRef;
        let found = values(vec![("x", floats(vec![1.5, -2.0])), ("y", floats(vec![1.5, f64::NAN]))], 8);
        let floats = ColumnBounds { least: Bound::Float(-2.0), greatest: Bound::Float(1.5) };
        assert!(found[0].bounds.is_none_or(|bounds| bounds == floats));
        assert_eq!(found[1].bounds, None);
    }
}
