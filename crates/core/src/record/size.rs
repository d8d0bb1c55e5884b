//! Sizes of values, independent of the buffers that hold them.
//!
//! Arrow's own sizes count spare capacity and the rows outside a slice, so the size of the same rows would depend on
//! how they were read. Sizes of row groups and memory budgets must not.

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryViewArray, FixedSizeListArray, GenericListArray, OffsetSizeTrait, RecordBatch,
        StringViewArray,
    },
    datatypes::DataType,
};

/// Returns the bytes of the values in memory: fixed widths, text with a 4-byte offset per value, and one validity bit
/// per row and column. Slicing, spare capacity and shared buffers do not affect it.
pub fn logical_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(array_bytes).sum()
}

fn array_bytes(array: &ArrayRef) -> u64 {
    let rows = array.len() as u64;
    rows.div_ceil(8) + value_bytes(array, rows)
}

fn value_bytes(array: &ArrayRef, rows: u64) -> u64 {
    match array.data_type() {
        DataType::Null => 0,
        DataType::Boolean => rows.div_ceil(8),
        DataType::Utf8 => 4 * rows + offset_span(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => 8 * rows + offset_span(array.as_string::<i64>().value_offsets()),
        DataType::Binary => 4 * rows + offset_span(array.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => 8 * rows + offset_span(array.as_binary::<i64>().value_offsets()),
        DataType::Utf8View => 16 * rows + text_view_bytes(array.as_string_view()),
        DataType::BinaryView => 16 * rows + binary_view_bytes(array.as_binary_view()),
        DataType::FixedSizeBinary(width) => rows * u64::try_from(*width).unwrap_or(0),
        DataType::List(_) => 4 * rows + list_bytes(array.as_list::<i32>()),
        DataType::LargeList(_) => 8 * rows + list_bytes(array.as_list::<i64>()),
        DataType::FixedSizeList(_, _) => fixed_list_bytes(array.as_fixed_size_list()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(array_bytes).sum(),
        DataType::Map(_, _) => {
            let map = array.as_map();
            let (first, length) = offset_range(map.value_offsets());
            let entries: ArrayRef = std::sync::Arc::new(map.entries().slice(first, length));
            4 * rows + array_bytes(&entries)
        }
        DataType::Dictionary(_, _) => dictionary_bytes(array),
        DataType::RunEndEncoded(_, _) => rows.saturating_mul(
            array
                .to_data()
                .child_data()
                .last()
                .map_or(0, |values| max_value_bytes(&arrow::array::make_array(values.clone()))),
        ),
        other => match other.primitive_width() {
            Some(width) => rows * width as u64,
            None => array.to_data().get_slice_memory_size().unwrap_or_default() as u64,
        },
    }
}

/// Returns the first offset and the distance to the last.
fn offset_range<O: OffsetSizeTrait>(offsets: &[O]) -> (usize, usize) {
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => (first.as_usize(), last.as_usize() - first.as_usize()),
        _ => (0, 0),
    }
}

fn offset_span<O: OffsetSizeTrait>(offsets: &[O]) -> u64 {
    offset_range(offsets).1 as u64
}

fn list_bytes<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> u64 {
    let (first, length) = offset_range(list.value_offsets());
    array_bytes(&list.values().slice(first, length))
}

fn fixed_list_bytes(list: &FixedSizeListArray) -> u64 {
    // The values of a sliced list are already sliced.
    array_bytes(list.values())
}

/// Counts one value per row, because a dictionary is only a form of packing.
fn dictionary_bytes(array: &ArrayRef) -> u64 {
    let dictionary = array.as_any_dictionary();
    let values = dictionary.values();
    if values.is_empty() {
        return 0;
    }
    let lengths: Vec<u64> = match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().iter().map(|v| v.map_or(0, str::len) as u64 + 4).collect(),
        other => match other.primitive_width() {
            Some(width) => return array.len() as u64 * width as u64,
            None => (0..values.len()).map(|i| array_bytes(&values.slice(i, 1))).collect(),
        },
    };
    dictionary.normalized_keys().into_iter().map(|key| lengths[key]).fold(0, u64::saturating_add)
}

/// Returns the bytes of the largest value.
fn max_value_bytes(values: &ArrayRef) -> u64 {
    (0..values.len()).map(|i| array_bytes(&values.slice(i, 1))).max().unwrap_or(0)
}

fn text_view_bytes(array: &StringViewArray) -> u64 {
    array.iter().flatten().map(|value| value.len() as u64).sum()
}

fn binary_view_bytes(array: &BinaryViewArray) -> u64 {
    array.iter().flatten().map(|value| value.len() as u64).sum()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{BooleanArray, Int32Array, Int64Array, ListArray, MapBuilder, StringArray, StringBuilder, StructArray},
        datatypes::{Field, Int32Type},
    };
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(array: impl Array + 'static) -> u64 {
        array_bytes(&(Arc::new(array) as ArrayRef))
    }

    #[test]
    fn counts_values_validity_and_offsets() {
        assert_eq!(bytes_of(Int64Array::from(vec![1, 2, 3])), 3 * 8 + 1);
        assert_eq!(bytes_of(BooleanArray::from(vec![true; 9])), 2 + 2);
        assert_eq!(bytes_of(StringArray::from(vec![Some("abc"), None, Some("")])), 3 + 3 * 4 + 1);
        let list =
            ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), Some(2)]), None, Some(vec![])]);
        assert_eq!(bytes_of(list), (3 * 4 + 1) + (2 * 4 + 1));
        let field = Arc::new(Field::new("x", DataType::Int32, true));
        let inner: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        assert_eq!(bytes_of(StructArray::from(vec![(field, inner)])), 1 + (2 * 4 + 1));
    }

    #[test]
    fn slices_of_maps_count_their_own_entries() {
        let mut builder = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
        for key in ["a", "long key"] {
            builder.keys().append_value(key);
            builder.values().append_value("v");
            builder.append(true).unwrap();
        }
        let map = builder.finish();
        let entry = |key: u64| 1 + (4 + key + 1) + (4 + 1 + 1);
        assert_eq!(bytes_of(map.slice(1, 1)), 4 + 1 + entry(8));
        assert_eq!(bytes_of(map.slice(0, 1)), 4 + 1 + entry(1));
    }

    proptest! {
        /// A slice has the same size as a compact copy of its rows.
        #[test]
        fn slicing_does_not_change_the_size(
            rows in prop::collection::vec(prop::option::of(prop::collection::vec(prop::option::of(".{0,5}"), 0..4)),
                0..40),
            cut in 0..40_usize,
        ) {
            let build = |rows: &[Option<Vec<Option<String>>>]| {
                let mut builder = arrow::array::ListBuilder::new(StringBuilder::new());
                for row in rows {
                    builder.append_option(row.clone());
                }
                builder.finish()
            };
            let cut = cut.min(rows.len());
            let sliced = build(&rows).slice(cut, rows.len() - cut);
            prop_assert_eq!(bytes_of(sliced), bytes_of(build(&rows[cut..])));
        }
    }
}
