//! Bounds of a column in a row group, from the footer of a Parquet file of any origin.
//!
//! Bounds are used only if the file states in which order they are meant. Old writers ordered text by signed bytes, and
//! stated nothing.

use ::parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, statistics::StatisticsConverter},
    basic::ColumnOrder,
    errors::ParquetError,
};
use arrow::{array::Array, compute::cast, datatypes::Field};

use crate::{
    format::guard::guard_decoding,
    record::filter::{Bound, ColumnBounds, bound_of},
};

/// Returns what the footer states of a column, whose values are cast to the type of `field` when they are read; `None`
/// for nested columns, or if nothing is known.
pub(super) fn column_bounds(metadata: &ArrowReaderMetadata, group: usize, field: &Field) -> Option<ColumnBounds> {
    let schema = metadata.schema();
    // Columns of one name are told apart by other names, which the file does not have.
    let same = schema.fields().iter().filter(|other| other.name() == field.name()).count();
    if same != 1 || field.data_type().is_nested() {
        return None;
    }
    let bounds = guard_decoding("a Parquet file", "", || Ok::<_, ParquetError>(stated_bounds(metadata, group, field)));
    bounds.ok().flatten()
}

fn stated_bounds(metadata: &ArrowReaderMetadata, group: usize, field: &Field) -> Option<ColumnBounds> {
    let converter = StatisticsConverter::try_new(field.name(), metadata.schema(), metadata.parquet_schema()).ok()?;
    let leaf = converter.parquet_column_index()?;
    let file = metadata.metadata();
    let chunk = file.row_groups().get(group)?.column(leaf);
    let statistics = chunk.statistics()?;
    let nulls = statistics.null_count_opt();
    let ordered = matches!(file.file_metadata().column_order(leaf), ColumnOrder::TYPE_DEFINED_ORDER(_));
    if !ordered || statistics.is_min_max_deprecated() {
        return Some(ColumnBounds { min: None, max: None, nulls });
    }
    let groups = || std::iter::once(file.row_group(group));
    let bound = |array: &dyn Array| -> Option<Bound> { bound_of(&cast(array, field.data_type()).ok()?) };
    let min = converter.row_group_mins(groups()).ok().and_then(|array| bound(&array));
    let max = converter.row_group_maxes(groups()).ok().and_then(|array| bound(&array));
    Some(ColumnBounds { min, max, nulls })
}
