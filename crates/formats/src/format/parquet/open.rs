//! Columns of text that hold no value: their type is open. A column without any value is stored as text, because every
//! reader knows that type, and takes the type of another file when the two are united.

use std::sync::Arc;

use ::parquet::file::{metadata::ParquetMetaData, statistics::Statistics};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};

use crate::schema::is_json;

/// Returns the fields of a file, in which texts without any value have the type null.
pub(super) fn open_fields(fields: &Fields, metadata: &ParquetMetaData) -> Fields {
    let columns = metadata.file_metadata().schema_descr().num_columns();
    let is_empty = |leaf: usize| {
        metadata.row_groups().iter().all(|group| {
            let chunk = group.column(leaf);
            let nulls = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
            nulls.is_some() && nulls == u64::try_from(chunk.num_values()).ok()
        })
    };
    let mut walk = FieldWalk { leaf: 0, is_empty: &|leaf| leaf < columns && is_empty(leaf) };
    let opened: Fields = fields.iter().map(|field| walk.open_field(field)).collect();
    // Some types have another number of leaves in Arrow.
    if walk.leaf == columns { opened } else { fields.clone() }
}

/// Whether all values of a column of integers, by its bounds, are ones that float64 holds.
pub(super) fn exact_in_floats(metadata: &ParquetMetaData, column: &str) -> bool {
    let columns = metadata.file_metadata().schema_descr();
    let at = (0..columns.num_columns()).find(|at| columns.column(*at).path().parts() == [column]);
    let exact = |bound: Option<&i64>| bound.is_some_and(|value| value.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS);
    let within = |at: usize| {
        metadata.row_groups().iter().all(|group| match group.column(at).statistics() {
            Some(Statistics::Int64(bounds)) => {
                let nulls = bounds.null_count_opt() == u64::try_from(group.column(at).num_values()).ok();
                nulls || exact(bounds.min_opt()) && exact(bounds.max_opt())
            }
            _ => false,
        })
    };
    at.is_some_and(within)
}

/// Visits fields in the order of the leaves of the file.
struct FieldWalk<'a> {
    leaf: usize,
    is_empty: &'a dyn Fn(usize) -> bool,
}

impl FieldWalk<'_> {
    fn open_field(&mut self, field: &FieldRef) -> FieldRef {
        use DataType::{FixedSizeList, LargeList, List, Map, Struct, Utf8};
        let data_type = match field.data_type() {
            List(item) => List(self.open_field(item)),
            LargeList(item) => LargeList(self.open_field(item)),
            FixedSizeList(item, width) => FixedSizeList(self.open_field(item), *width),
            Map(entries, sorted) => Map(self.open_field(entries), *sorted),
            Struct(parts) => Struct(parts.iter().map(|part| self.open_field(part)).collect()),
            plain => {
                let leaf = self.leaf;
                self.leaf += 1;
                if *plain == Utf8 && !is_json(field) && (self.is_empty)(leaf) {
                    return Arc::new(Field::new(field.name(), DataType::Null, true));
                }
                return Arc::clone(field);
            }
        };
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    }
}
