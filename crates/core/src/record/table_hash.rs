//! The hash of a table: of the names and types of its columns and all values, however the rows are cut into batches and
//! packed. It says whether a table that arrives again is the one that is known.
//!
//! Values of a column stand in few long buffers, which are hashed as they are, so a table is hashed about as fast as
//! memory is read. What depends on the writer's packing is not hashed: dictionaries and views are unpacked beforehand,
//! offsets become lengths, and what lies under nulls is omitted.
//!
//! ```text
//! table    XXH3-64 of: number of rows, column*                                   1 in place of 0
//! column   XXH3-64 of: name, type, extension name, extension parameters,
//!                      number of rows, nulls, lengths, values, column* of its children
//! nulls    XXH3-64 of the numbers of the rows that are null, from 0; those of a null struct are null in its fields
//! lengths  XXH3-64 of the bytes of each text or binary value, or the items of each list or map, without nulls
//! values   XXH3-64 of the values without nulls: little-endian of fixed width; text and binary end to end;
//!          a boolean is one byte, 0 or 1
//! name, type, ...  length, then UTF-8               each number, length and hash is u64, little-endian
//! ```
//!
//! Children are the fields of a struct, the items of a list, keys and values of a map; items of null lists are omitted.
//! Types are in the words of `schema.json`, but large texts, binaries and lists are those without `large`, and types
//! with children are `struct`, `list`, `map` and `fixed_list(items)`.

use std::{num::NonZeroU64, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, GenericByteArray, OffsetSizeTrait, RecordBatch},
    buffer::{BooleanBuffer, NullBuffer},
    compute,
    datatypes::{
        ArrowNativeType, BinaryType, ByteArrayType, DataType, Field, Fields, LargeBinaryType, LargeUtf8Type, Utf8Type,
    },
};
use xxhash_rust::xxh3::Xxh3Default;

use crate::{
    error::{Error, Result},
    schema::{self, EXTENSION_METADATA, EXTENSION_NAME},
};

/// Hashes the rows of a table as they come.
pub struct TableHasher {
    columns: Vec<ColumnHasher>,
    rows: u64,
    /// Bytes that are gathered before they are hashed.
    gathered: Vec<u8>,
}

impl TableHasher {
    /// Starts a table with columns in their [plain form](schema::plain_fields).
    pub fn new(plain: &Fields) -> Self {
        Self { columns: columns_of(plain), rows: 0, gathered: Vec::new() }
    }

    /// Adds rows of these columns.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) if they have other columns.
    pub fn add_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_columns() != self.columns.len() {
            let found = format!("expected {} columns to hash, found {}", self.columns.len(), batch.num_columns());
            return Err(Error::internal(found));
        }
        self.rows += batch.num_rows() as u64;
        let gathered = &mut self.gathered;
        self.columns
            .iter_mut()
            .zip(batch.columns())
            .try_for_each(|(hasher, column)| hasher.add_values(column, None, gathered))
    }

    /// Returns the hash.
    pub fn finish(self) -> NonZeroU64 {
        let mut hasher = Xxh3Default::new();
        hasher.update(&self.rows.to_le_bytes());
        self.columns.into_iter().for_each(|column| hasher.update(&column.finish().to_le_bytes()));
        NonZeroU64::new(hasher.digest()).unwrap_or(NonZeroU64::MIN)
    }
}

/// Hashes one column, or the values within one.
struct ColumnHasher {
    /// Name, type and extension.
    head: Vec<u8>,
    rows: u64,
    nulls: Xxh3Default,
    lengths: Xxh3Default,
    values: Xxh3Default,
    children: Vec<Self>,
}

fn columns_of(fields: &Fields) -> Vec<ColumnHasher> {
    fields.iter().map(|field| ColumnHasher::new(field)).collect()
}

impl ColumnHasher {
    fn new(field: &Field) -> Self {
        let (kind, children) = match field.data_type() {
            DataType::Struct(fields) => ("struct".to_owned(), columns_of(fields)),
            DataType::List(item) | DataType::LargeList(item) => ("list".to_owned(), vec![Self::new(item)]),
            DataType::FixedSizeList(item, width) => (format!("fixed_list({width})"), vec![Self::new(item)]),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) => ("map".to_owned(), columns_of(pair)),
                _ => ("map".to_owned(), Vec::new()),
            },
            DataType::LargeUtf8 => (schema::file::print_type(&with_type(field, DataType::Utf8)), Vec::new()),
            DataType::LargeBinary => (schema::file::print_type(&with_type(field, DataType::Binary)), Vec::new()),
            _ => (schema::file::print_type(field), Vec::new()),
        };
        let mark = |key| field.metadata().get(key).map_or("", String::as_str);
        let mut head = Vec::new();
        for text in [field.name(), kind.as_str(), mark(EXTENSION_NAME), mark(EXTENSION_METADATA)] {
            head.extend_from_slice(&(text.len() as u64).to_le_bytes());
            head.extend_from_slice(text.as_bytes());
        }
        let new = Xxh3Default::new;
        Self { head, rows: 0, nulls: new(), lengths: new(), values: new(), children }
    }

    fn finish(self) -> u64 {
        let mut hasher = Xxh3Default::new();
        hasher.update(&self.head);
        let own = [self.rows, self.nulls.digest(), self.lengths.digest(), self.values.digest()];
        let children = self.children.into_iter().map(Self::finish);
        own.into_iter().chain(children).for_each(|number| hasher.update(&number.to_le_bytes()));
        hasher.digest()
    }

    /// Adds values. Those of a struct are null where `above` is, too.
    fn add_values(&mut self, array: &ArrayRef, above: Option<&NullBuffer>, gathered: &mut Vec<u8>) -> Result<()> {
        let nulls = NullBuffer::union(array.nulls(), above).filter(|nulls| nulls.null_count() > 0);
        if let Some(nulls) = &nulls {
            self.add_nulls(nulls, gathered);
        }
        self.rows += array.len() as u64;
        let valid = Valid { nulls: nulls.as_ref(), rows: array.len() };
        match array.data_type() {
            DataType::Null => {}
            DataType::Boolean => self.add_booleans(array.as_boolean(), &valid, gathered),
            DataType::Utf8 => self.add_texts(array.as_bytes::<Utf8Type>(), &valid, gathered),
            DataType::LargeUtf8 => self.add_texts(array.as_bytes::<LargeUtf8Type>(), &valid, gathered),
            DataType::Binary => self.add_texts(array.as_bytes::<BinaryType>(), &valid, gathered),
            DataType::LargeBinary => self.add_texts(array.as_bytes::<LargeBinaryType>(), &valid, gathered),
            DataType::Struct(_) => {
                let columns = array.as_struct().columns();
                let mut fields = self.children.iter_mut().zip(columns);
                fields.try_for_each(|(child, column)| child.add_values(column, nulls.as_ref(), gathered))?;
            }
            DataType::List(_) | DataType::LargeList(_) | DataType::Map(..) | DataType::FixedSizeList(..) => {
                self.add_lists(array, nulls.as_ref(), gathered)?;
            }
            data_type => {
                let width = match data_type {
                    DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
                    _ => data_type.primitive_width(),
                };
                let Some(width) = width else {
                    return Err(Error::internal(format!(
                        "expected a type in its plain form to hash, found {data_type}"
                    )));
                };
                self.add_fixed(array, width, &valid);
            }
        }
        Ok(())
    }

    fn add_nulls(&mut self, nulls: &NullBuffer, gathered: &mut Vec<u8>) {
        gathered.clear();
        let absent: BooleanBuffer = !nulls.inner();
        absent.set_indices().for_each(|row| gathered.extend_from_slice(&(self.rows + row as u64).to_le_bytes()));
        self.nulls.update(gathered);
    }

    fn add_booleans(&mut self, array: &BooleanArray, valid: &Valid<'_>, gathered: &mut Vec<u8>) {
        gathered.clear();
        valid.each_run(|start, end| gathered.extend((start..end).map(|row| u8::from(array.value(row)))));
        self.values.update(gathered);
    }

    fn add_texts<T: ByteArrayType>(&mut self, array: &GenericByteArray<T>, valid: &Valid<'_>, gathered: &mut Vec<u8>) {
        let (offsets, bytes) = (array.value_offsets(), array.value_data());
        add_lengths(&mut self.lengths, offsets, valid, gathered);
        valid.each_run(|start, end| {
            self.values.update(&bytes[offsets[start].as_usize()..offsets[end].as_usize()]);
        });
    }

    fn add_fixed(&mut self, array: &ArrayRef, width: usize, valid: &Valid<'_>) {
        let data = array.to_data();
        let Some(bytes) = data.buffers().first().map(|buffer| &buffer.as_slice()[data.offset() * width..]) else {
            return;
        };
        valid.each_run(|start, end| self.values.update(&bytes[start * width..end * width]));
    }

    fn add_lists(&mut self, array: &ArrayRef, nulls: Option<&NullBuffer>, gathered: &mut Vec<u8>) -> Result<()> {
        // What null lists contain is any writer's own business; most contain nothing.
        let array = match nulls {
            Some(nulls) => compute::filter(array, &BooleanArray::new(nulls.inner().clone(), None))?,
            None => Arc::clone(array),
        };
        let items = match array.data_type() {
            DataType::FixedSizeList(..) => vec![Arc::clone(array.as_fixed_size_list().values())],
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                vec![self.items_within(list.value_offsets(), list.values(), gathered)]
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                vec![self.items_within(list.value_offsets(), list.values(), gathered)]
            }
            _ => {
                let map = array.as_map();
                let entries: ArrayRef = Arc::new(map.entries().clone());
                let entries = self.items_within(map.value_offsets(), &entries, gathered);
                entries.as_struct().columns().to_vec()
            }
        };
        self.children.iter_mut().zip(&items).try_for_each(|(child, items)| child.add_values(items, None, gathered))
    }

    /// Adds the lengths of lists; returns the items of all of them.
    fn items_within<O: OffsetSizeTrait>(
        &mut self,
        offsets: &[O],
        items: &ArrayRef,
        gathered: &mut Vec<u8>,
    ) -> ArrayRef {
        let rows = offsets.len().saturating_sub(1);
        add_lengths(&mut self.lengths, offsets, &Valid { nulls: None, rows }, gathered);
        let edge = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize());
        let (first, end) = (edge(offsets.first()), edge(offsets.last()));
        items.slice(first, end - first)
    }
}

fn with_type(field: &Field, data_type: DataType) -> Field {
    field.clone().with_data_type(data_type)
}

fn add_lengths<O: OffsetSizeTrait>(hasher: &mut Xxh3Default, offsets: &[O], valid: &Valid<'_>, gathered: &mut Vec<u8>) {
    gathered.clear();
    valid.each_run(|start, end| {
        for pair in offsets[start..=end].windows(2) {
            gathered.extend_from_slice(&((pair[1].as_usize() - pair[0].as_usize()) as u64).to_le_bytes());
        }
    });
    hasher.update(gathered);
}

/// The rows that have values.
struct Valid<'a> {
    nulls: Option<&'a NullBuffer>,
    rows: usize,
}

impl Valid<'_> {
    /// Calls `visit` with the first row of each run of values and the row after its last one.
    fn each_run(&self, mut visit: impl FnMut(usize, usize)) {
        match self.nulls {
            Some(nulls) => nulls.valid_slices().for_each(|(start, end)| visit(start, end)),
            None => visit(0, self.rows),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{
            BinaryViewArray, Date32Array, DictionaryArray, FixedSizeListArray, Float64Array, Int8Array, Int32Array,
            Int64Array, LargeListArray, LargeStringArray, ListArray, MapArray, StringArray, StringViewArray,
            StructArray, UInt64Array,
        },
        buffer::OffsetBuffer,
        compute::concat_batches,
        datatypes::{Int32Type, Int64Type, Schema, SchemaRef},
    };
    use proptest::prelude::*;

    use super::*;
    use crate::record::widen::cast_to;

    fn hash_of(batches: &[RecordBatch]) -> u64 {
        let plain = |batch: &RecordBatch| -> SchemaRef {
            Arc::new(Schema::new(schema::plain_fields(batch.schema_ref().fields()).unwrap()))
        };
        let mut hasher = TableHasher::new(plain(&batches[0]).fields());
        batches.iter().for_each(|batch| hasher.add_batch(&cast_to(batch, &plain(batch)).unwrap()).unwrap());
        hasher.finish().get()
    }

    fn nulls(valid: &[bool]) -> Option<NullBuffer> {
        Some(NullBuffer::from(valid.to_vec()))
    }

    fn struct_of(name: &str, column: ArrayRef, valid: Option<NullBuffer>) -> ArrayRef {
        let field = Field::new(name, column.data_type().clone(), true);
        Arc::new(StructArray::new(vec![field].into(), vec![column], valid))
    }

    /// One column of each kind, with other values under the nulls in the second variant.
    fn kinds(hidden: i8) -> RecordBatch {
        let other = i64::from(hidden);
        let text = format!("a{}bc", "?".repeat(usize::from(hidden.unsigned_abs())));
        let middle = i32::from(hidden) + 1;
        let words = StringArray::new(
            OffsetBuffer::new(vec![0, 1, middle, middle + 2].into()),
            text.into_bytes().into(),
            nulls(&[true, false, true]),
        );
        let items: ArrayRef =
            Arc::new(Int64Array::from([vec![1, 2], vec![7; usize::try_from(other).unwrap()]].concat()));
        let item = Arc::new(Field::new_list_field(DataType::Int64, true));
        let within = OffsetBuffer::new(vec![0, 2, 2 + i32::from(hidden), 2 + i32::from(hidden)].into());
        let tags = ListArray::new(item, within, items, nulls(&[true, false, true]));
        let x = Arc::new(Float64Array::from(vec![Some(1.5), Some(f64::from(hidden)), None]));
        let pair = FixedSizeListArray::new(
            Arc::new(Field::new_list_field(DataType::Int8, true)),
            2,
            Arc::new(Int8Array::from(vec![hidden, hidden, 1, 2, 3, 4])),
            nulls(&[false, true, true]),
        );
        let entry = [("key", DataType::Utf8), ("value", DataType::Date32)]
            .map(|(name, t)| Field::new(name, t, name == "value"));
        let pairs: Vec<ArrayRef> =
            vec![Arc::new(StringArray::from(vec!["k", "l"])), Arc::new(Date32Array::from(vec![Some(7), None]))];
        let entries = StructArray::new(entry.to_vec().into(), pairs, None);
        let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let map = MapArray::new(field, OffsetBuffer::new(vec![0, 1, 1, 2].into()), entries, None, false);
        let columns: [(&str, ArrayRef); 7] = [
            ("id", Arc::new(Int32Array::from(vec![1, 2, 3]))),
            ("word", Arc::new(words)),
            ("flag", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
            ("tags", Arc::new(tags)),
            ("point", struct_of("x", x, nulls(&[true, false, true]))),
            ("pair", Arc::new(pair)),
            ("map", Arc::new(map)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn the_hash_is_that_of_another_implementation() {
        // By the Python package xxhash, from the picture above.
        assert_eq!(hash_of(&[kinds(0)]), 0x66cb_13c3_7472_5f0f);
        let none = RecordBatch::new_empty(Arc::new(Schema::empty()));
        assert_eq!(hash_of(&[none]), 0xc77b_3abb_6f87_acd9);
    }

    #[test]
    fn what_lies_under_nulls_and_where_batches_end_do_not_matter() {
        for hidden in [0, 1, 5] {
            let rows = kinds(hidden);
            assert_eq!(hash_of(std::slice::from_ref(&rows)), hash_of(&[kinds(0)]), "{hidden}");
            let pieces: Vec<RecordBatch> = [(0, 0), (0, 1), (1, 2), (3, 0)].map(|(at, n)| rows.slice(at, n)).to_vec();
            assert_eq!(hash_of(&pieces), hash_of(std::slice::from_ref(&rows)), "{hidden}");
        }
    }

    #[test]
    fn tables_that_differ_have_other_hashes() {
        let of = |name: &str, column: ArrayRef| hash_of(&[RecordBatch::try_from_iter([(name, column)]).unwrap()]);
        let texts = |values: &[Option<&str>]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
        let lists = |values: &[Option<Vec<Option<i64>>>]| -> ArrayRef {
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(values.to_vec()))
        };
        let number = |valid| struct_of("x", Arc::new(Int64Array::from(vec![None, Some(1)])), nulls(valid));
        let all = [
            of("a", texts(&[Some("ab"), Some("c")])),
            of("a", texts(&[Some("a"), Some("bc")])),
            of("a", texts(&[Some("c"), Some("ab")])),
            of("a", texts(&[Some("ab"), Some("c"), None])),
            of("a", texts(&[Some("ab"), None, Some("c")])),
            of("a", texts(&[Some("ab"), Some(""), Some("c")])),
            of("b", texts(&[Some("ab"), Some("c")])),
            of("a", Arc::new(arrow::array::BinaryArray::from(vec![&b"ab"[..], b"c"]))),
            of("a", Arc::new(Int64Array::from(vec![1]))),
            of("a", Arc::new(UInt64Array::from(vec![1]))),
            of("a", lists(&[Some(vec![Some(1)]), Some(vec![])])),
            of("a", lists(&[Some(vec![]), Some(vec![Some(1)])])),
            of("a", lists(&[Some(vec![Some(1)]), None])),
            of("a", lists(&[Some(vec![Some(1), None]), Some(vec![])])),
            of("a", number(&[true, true])),
            of("a", number(&[false, true])),
            of("a", Arc::new(arrow::array::NullArray::new(2))),
            of("a", Arc::new(arrow::array::NullArray::new(3))),
        ];
        for (at, hash) in all.iter().enumerate() {
            assert!(!all[..at].contains(hash), "{at}");
        }
    }

    proptest! {
        #[test]
        fn packing_does_not_matter(
            values in proptest::collection::vec(proptest::option::of(".{0,20}"), 1..200),
            cuts in proptest::collection::vec(0_usize..200, 0..8),
            changed in 0_usize..200,
        ) {
            let texts: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
            let numbers = || texts.iter().map(|text| text.map(|text| text.len() as i64));
            let bytes = |text: &str| text.bytes().map(|b| Some(i64::from(b))).collect::<Vec<_>>();
            let lists = || texts.iter().map(|text| text.map(bytes));
            let forms: [(ArrayRef, ArrayRef, ArrayRef); 3] = [
                (
                    Arc::new(StringArray::from(texts.clone())),
                    Arc::new(Int64Array::from_iter(numbers())),
                    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists())),
                ),
                (
                    Arc::new(StringViewArray::from(texts.clone())),
                    Arc::new(Int64Array::from_iter(numbers())),
                    Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(lists())),
                ),
                (
                    Arc::new(texts.iter().copied().collect::<DictionaryArray<Int32Type>>()),
                    Arc::new(Int64Array::from_iter(numbers())),
                    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists())),
                ),
            ];
            let batch = |(text, number, list): &(ArrayRef, ArrayRef, ArrayRef)| {
                let columns = [("text", text), ("number", number), ("list", list)];
                RecordBatch::try_from_iter(columns.map(|(name, column)| (name, Arc::clone(column)))).unwrap()
            };
            let expected = hash_of(&[batch(&forms[0])]);
            let inner = cuts.iter().map(|cut| cut % (values.len() + 1));
            let mut cuts: Vec<usize> = inner.chain([0, values.len()]).collect();
            cuts.sort_unstable();
            for form in &forms {
                let whole = batch(form);
                let pieces: Vec<RecordBatch> = cuts.windows(2).map(|at| whole.slice(at[0], at[1] - at[0])).collect();
                prop_assert_eq!(hash_of(&pieces), expected);
                prop_assert_eq!(hash_of(&[concat_batches(&whole.schema(), &pieces).unwrap()]), expected);
            }
            let mut other = texts.clone();
            let at = changed % other.len();
            other[at] = if other[at].is_none() { Some("") } else { None };
            let (_, number, list) = forms[0].clone();
            let changed = batch(&(Arc::new(LargeStringArray::from(other)) as ArrayRef, number, list));
            prop_assert_ne!(hash_of(&[changed]), expected);
        }

        #[test]
        fn bytes_are_hashed_as_they_are(
            values in proptest::collection::vec(
                proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)), 0..50,
            ),
        ) {
            let bytes: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            let views: ArrayRef = Arc::new(BinaryViewArray::from(bytes.clone()));
            let plain: ArrayRef = Arc::new(arrow::array::LargeBinaryArray::from(bytes));
            let of = |column| hash_of(&[RecordBatch::try_from_iter([("b", column)]).unwrap()]);
            prop_assert_eq!(of(views), of(plain));
        }
    }
}
