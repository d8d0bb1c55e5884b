//! Hashes of rows without source bytes of their own: rows of Parquet, Arrow and Avro files.
//!
//! The hash of a row is a chain over its columns; each value is hashed with the previous hash as the seed:
//!
//! ```text
//! h0 = 0;  h(n) = XXH3-64(bytes of the value, seed h(n-1));  a null is the one byte FF with the seed inverted
//! fixed width   little-endian bytes         boolean     one byte, 0 or 1
//! text, binary  the bytes                   dictionary  its value
//! struct        chain over the fields       list, map   chain over the hashes of the items, then their number
//! ```
//!
//! The writer's packing of values (views, dictionaries, slices) does not affect the hash; types and column order do.

use arrow::{
    array::{Array, AsArray, OffsetSizeTrait, RecordBatch},
    datatypes::DataType,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::json;

/// Returns one hash per row.
pub fn row_hashes(batch: &RecordBatch) -> Vec<u64> {
    let mut hashes = vec![0; batch.num_rows()];
    for column in batch.columns() {
        extend_hashes(column.as_ref(), &mut hashes);
    }
    hashes
}

fn hash_null(seed: u64) -> u64 {
    xxh3_64_with_seed(&[0xff], !seed)
}

/// Chains each value of `array` to the hash of its row.
fn extend_hashes(array: &dyn Array, hashes: &mut [u64]) {
    match array.data_type() {
        DataType::Null => hashes.iter_mut().for_each(|hash| *hash = hash_null(*hash)),
        DataType::Boolean => {
            let values = array.as_boolean();
            extend_each(array, hashes, |row, seed| xxh3_64_with_seed(&[u8::from(values.value(row))], seed));
        }
        DataType::Utf8 => extend_bytes(array.as_string::<i32>().iter().map(|v| v.map(str::as_bytes)), hashes),
        DataType::LargeUtf8 => {
            extend_bytes(array.as_string::<i64>().iter().map(|v| v.map(str::as_bytes)), hashes);
        }
        DataType::Utf8View => extend_bytes(array.as_string_view().iter().map(|v| v.map(str::as_bytes)), hashes),
        DataType::Binary => extend_bytes(array.as_binary::<i32>().iter(), hashes),
        DataType::LargeBinary => extend_bytes(array.as_binary::<i64>().iter(), hashes),
        DataType::BinaryView => extend_bytes(array.as_binary_view().iter(), hashes),
        DataType::FixedSizeBinary(_) => extend_bytes(array.as_fixed_size_binary().iter(), hashes),
        DataType::Struct(_) => {
            let columns = array.as_struct().columns();
            let mut chained = hashes.to_vec();
            columns.iter().for_each(|column| extend_hashes(column.as_ref(), &mut chained));
            extend_each(array, hashes, |row, _| chained[row]);
        }
        DataType::List(_) => extend_lists(array, array.as_list::<i32>().value_offsets(), hashes),
        DataType::LargeList(_) => extend_lists(array, array.as_list::<i64>().value_offsets(), hashes),
        DataType::Map(..) => extend_lists(array, array.as_map().value_offsets(), hashes),
        DataType::FixedSizeList(_, width) => {
            let offsets: Vec<i64> = (0..=array.len() as i64).map(|row| row * i64::from(*width)).collect();
            extend_lists(array, &offsets, hashes);
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            if dictionary.values().is_empty() {
                return hashes.iter_mut().for_each(|hash| *hash = hash_null(*hash));
            }
            let (keys, values) = (dictionary.normalized_keys(), dictionary.values());
            extend_each(array, hashes, |row, seed| hash_value(values.as_ref(), keys[row], seed));
        }
        data_type => match data_type.primitive_width() {
            Some(width) => extend_fixed(array, width, hashes),
            // Unions and run-end encoded values, which no reader returns.
            None => extend_each(array, hashes, |row, seed| {
                let mut text = Vec::new();
                json::write_value(array, row, &mut text);
                xxh3_64_with_seed(&text, seed)
            }),
        },
    }
}

fn hash_value(array: &dyn Array, row: usize, seed: u64) -> u64 {
    let mut hash = [seed];
    extend_hashes(array.slice(row, 1).as_ref(), &mut hash);
    hash[0]
}

fn extend_each(array: &dyn Array, hashes: &mut [u64], hash: impl Fn(usize, u64) -> u64) {
    for (row, seed) in hashes.iter_mut().enumerate() {
        *seed = if array.is_null(row) { hash_null(*seed) } else { hash(row, *seed) };
    }
}

fn extend_bytes<'a>(values: impl Iterator<Item = Option<&'a [u8]>>, hashes: &mut [u64]) {
    for (hash, value) in hashes.iter_mut().zip(values) {
        *hash = value.map_or_else(|| hash_null(*hash), |value| xxh3_64_with_seed(value, *hash));
    }
}

fn extend_fixed(array: &dyn Array, width: usize, hashes: &mut [u64]) {
    let data = array.to_data();
    let Some(bytes) = data.buffers().first().map(|buffer| &buffer.as_slice()[data.offset() * width..]) else { return };
    extend_each(array, hashes, |row, seed| xxh3_64_with_seed(&bytes[row * width..][..width], seed));
}

fn extend_lists<O: OffsetSizeTrait>(array: &dyn Array, offsets: &[O], hashes: &mut [u64]) {
    let items: &dyn Array = match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().values().as_ref(),
        DataType::LargeList(_) => array.as_list::<i64>().values().as_ref(),
        DataType::Map(..) => array.as_map().entries(),
        _ => array.as_fixed_size_list().values().as_ref(),
    };
    let first = offsets.first().map_or(0, |offset| offset.as_usize());
    let last = offsets.last().map_or(0, |offset| offset.as_usize());
    // Items are hashed separately, all at once, and then chained per list.
    let mut each_item = vec![0; last - first];
    extend_hashes(items.slice(first, last - first).as_ref(), &mut each_item);
    extend_each(array, hashes, |row, seed| {
        let (start, end) = (offsets[row].as_usize(), offsets[row + 1].as_usize());
        let chain = each_item[start - first..end - first]
            .iter()
            .fold(seed, |seed, item| xxh3_64_with_seed(&item.to_le_bytes(), seed));
        xxh3_64_with_seed(&((end - start) as u64).to_le_bytes(), chain)
    });
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{
            ArrayRef, DictionaryArray, FixedSizeListArray, Int32Array, Int64Array, ListArray, StringArray,
            StringViewArray, StructArray,
        },
        datatypes::{Field, Int32Type},
    };

    use super::*;

    fn hashes(array: impl Array + 'static) -> Vec<u64> {
        row_hashes(&RecordBatch::try_from_iter([("c", Arc::new(array) as ArrayRef)]).unwrap())
    }

    #[test]
    fn packing_does_not_change_the_hash() {
        let texts = [Some("a"), None, Some(""), Some("a text of more than twelve bytes")];
        let plain = hashes(StringArray::from(texts.to_vec()));
        assert_eq!(plain, hashes(StringViewArray::from(texts.to_vec())));
        assert_eq!(plain, hashes(texts.into_iter().collect::<DictionaryArray<Int32Type>>()));
        assert_eq!(plain[1..], hashes(StringArray::from(texts.to_vec()).slice(1, 3)));
        assert_eq!(plain.iter().collect::<std::collections::HashSet<_>>().len(), 4);
        assert_eq!(plain[0], xxh3_64_with_seed(b"a", 0));
    }

    #[test]
    fn lists_differ_by_their_items_and_lengths() {
        let rows = || [Some(vec![Some(1), None]), Some(vec![]), None, Some(vec![Some(1)]), Some(vec![None, Some(1)])];
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>(rows());
        let all = hashes(list.clone());
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 5);
        assert_eq!(all[3..], hashes(list.slice(3, 2)));
        let pairs =
            FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>([rows()[0].clone(), rows()[4].clone()], 2);
        assert_eq!(hashes(pairs.clone()), [all[0], all[4]]);
        assert_eq!(hashes(pairs.slice(1, 1)), [all[4]]);
    }

    #[test]
    fn values_do_not_move_between_columns() {
        let row = |a: Option<i64>, b: Option<i64>| {
            let columns = [("a", a), ("b", b)].map(|(n, v)| (n, Arc::new(Int64Array::from(vec![v])) as ArrayRef));
            row_hashes(&RecordBatch::try_from_iter(columns).unwrap())[0]
        };
        assert_ne!(row(Some(1), None), row(None, Some(1)));
        assert_eq!(row(Some(1), None), row(Some(1), None));
        let inner: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(1)]));
        let fields = vec![Arc::new(Field::new("x", DataType::Int32, true))].into();
        let masked = StructArray::new(fields, vec![inner], Some(vec![true, false].into()));
        let found = hashes(masked);
        assert_eq!((found[0], found[1]), (xxh3_64_with_seed(&1_i32.to_le_bytes(), 0), hash_null(0)));
    }
}
