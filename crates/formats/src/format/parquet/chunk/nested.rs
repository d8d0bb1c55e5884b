//! Splits lists and structs into leaves: arrays of plain values, and the positions of their values in the rows.
//!
//! ```text
//! FixedSizeList<f64, 6>                        one leaf, six slots a row                        tensors
//! Struct<data: List<f64>, shape: List<i32>>    two leaves, each in the rows of the struct       tensors of any shape
//! ```
//!
//! Lists of anything but leaves are left to the writer of the parquet crate. In Parquet a null list has no items,
//! whereas Arrow's fixed-size lists have: such items are removed.

use std::ops::Range;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, MutableArrayData, make_array},
    buffer::BooleanBuffer,
    compute::nullif,
    datatypes::{DataType, Field},
};

use super::levels::{LevelLayout, Slots};

/// A leaf column, in one or more arrays.
pub(super) struct Leaf {
    pub(super) layout: LevelLayout,
    /// Values of its slots; slots without a value are null or omitted.
    pub(super) arrays: Vec<ArrayRef>,
}

/// Structs that enclose a column.
#[derive(Clone, Default)]
struct Enclosing {
    /// Definition level of their content.
    level: u8,
    /// Definition levels of all rows where an enclosing struct is null; [`EXISTS`] where none is.
    ends: Option<Vec<u8>>,
}

/// Marks rows whose enclosing structs all exist.
const EXISTS: u8 = u8::MAX;

/// Maximum nesting depth of structs; deeper ones are left to the general writer.
const MAX_DEPTH: u8 = 60;

impl Enclosing {
    fn end_level(&self, row: usize) -> Option<u8> {
        self.ends.as_ref().map(|ends| ends[row]).filter(|end| *end != EXISTS)
    }
}

/// Returns the leaves of a field whose arrays have its type, except for [coded](crate::record::coded) values; `None` if
/// its structure is not supported here, or a non-nullable part has nulls.
pub(super) fn field_leaves(field: &Field, arrays: &[ArrayRef]) -> Option<Vec<Leaf>> {
    let mut leaves = Vec::new();
    collect_leaves(field, arrays.to_vec(), &Enclosing::default(), &mut leaves)?;
    Some(leaves)
}

fn collect_leaves(field: &Field, arrays: Vec<ArrayRef>, enclosing: &Enclosing, out: &mut Vec<Leaf>) -> Option<()> {
    match field.data_type() {
        DataType::Struct(parts) if enclosing.level < MAX_DEPTH => {
            let within = enclose_struct(field, &arrays, enclosing)?;
            for (at, part) in parts.iter().enumerate() {
                let arrays = arrays.iter().map(|array| array.as_struct_opt()?.columns().get(at).cloned());
                collect_leaves(part, arrays.collect::<Option<_>>()?, &within, out)?;
            }
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)
            if !item.data_type().is_nested() =>
        {
            out.push(list_leaf(field, item, &arrays, enclosing)?);
        }
        other if !other.is_nested() => out.push(single_leaf(field, arrays, enclosing)?),
        _ => return None,
    }
    Some(())
}

/// Adds a struct to those that enclose its parts.
fn enclose_struct(field: &Field, arrays: &[ArrayRef], enclosing: &Enclosing) -> Option<Enclosing> {
    let level = enclosing.level + u8::from(field.is_nullable());
    if arrays.iter().all(|array| array.null_count() == 0) {
        return Some(Enclosing { level, ends: enclosing.ends.clone() });
    }
    if !field.is_nullable() {
        return None;
    }
    let rows = arrays.iter().map(|array| array.len()).sum();
    let mut ends = enclosing.ends.clone().unwrap_or_else(|| vec![EXISTS; rows]);
    let nulls = arrays.iter().flat_map(|array| (0..array.len()).map(|row| array.is_null(row)));
    for (end, null) in ends.iter_mut().zip(nulls) {
        if null && *end == EXISTS {
            *end = enclosing.level;
        }
    }
    Some(Enclosing { level, ends: Some(ends) })
}

/// Returns the leaf of a field with one value or null in each row.
fn single_leaf(field: &Field, arrays: Vec<ArrayRef>, enclosing: &Enclosing) -> Option<Leaf> {
    let max_level = enclosing.level + u8::from(field.is_nullable());
    let rows = arrays.iter().map(|array| array.len()).sum();
    let nullable = field.is_nullable();
    let layout = |levels| LevelLayout { slots: Slots::One(rows), levels, max_level, nullable, repeats: false };
    let Some(ends) = &enclosing.ends else { return Some(Leaf { layout: layout(None), arrays }) };
    let (mut levels, mut shown) = (Vec::with_capacity(rows), Vec::with_capacity(arrays.len()));
    for array in arrays {
        let ends = &ends[levels.len()..][..array.len()];
        let hidden = BooleanBuffer::collect_bool(ends.len(), |row| ends[row] != EXISTS);
        let shows = nullif(&array, &BooleanArray::new(hidden, None)).ok()?;
        for (row, end) in ends.iter().enumerate() {
            let null = *end == EXISTS && shows.is_null(row);
            if null && !nullable {
                return None;
            }
            levels.push(if *end == EXISTS { max_level - u8::from(null) } else { *end });
        }
        shown.push(shows);
    }
    Some(Leaf { layout: layout(Some(levels)), arrays: shown })
}

/// The items of a list array, and the rows that they belong to.
struct Items {
    values: ArrayRef,
    /// Start of each row and end of the last one, or the length of a fixed-size list.
    bounds: Result<Vec<usize>, usize>,
}

impl Items {
    fn from_array(array: &ArrayRef) -> Option<Self> {
        let place = |offset: i64| usize::try_from(offset).unwrap_or_default();
        let (values, offsets): (&ArrayRef, Vec<usize>) = match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                (list.values(), list.value_offsets().iter().map(|offset| place(i64::from(*offset))).collect())
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                (list.values(), list.value_offsets().iter().map(|offset| place(*offset)).collect())
            }
            DataType::FixedSizeList(_, length) => {
                let values = ArrayRef::clone(array.as_fixed_size_list().values());
                return Some(Self { values, bounds: Err(usize::try_from(*length).ok()?) });
            }
            _ => return None,
        };
        let (first, last) = (*offsets.first()?, *offsets.last()?);
        let bounds = offsets.into_iter().map(|offset| offset - first).collect();
        Some(Self { values: values.slice(first, last - first), bounds: Ok(bounds) })
    }

    fn of_row(&self, row: usize) -> Range<usize> {
        match &self.bounds {
            Ok(starts) => starts[row]..starts[row + 1],
            Err(length) => row * length..(row + 1) * length,
        }
    }
}

/// Returns the leaf of a field with a list of values in each row.
fn list_leaf(field: &Field, item: &Field, arrays: &[ArrayRef], enclosing: &Enclosing) -> Option<Leaf> {
    let items = arrays.iter().map(Items::from_array).collect::<Option<Vec<_>>>()?;
    let level = enclosing.level + u8::from(field.is_nullable());
    let max_level = level + 1 + u8::from(item.is_nullable());
    let layout = |slots, levels| LevelLayout { slots, levels, max_level, nullable: item.is_nullable(), repeats: true };
    let rows: usize = arrays.iter().map(|array| array.len()).sum();
    let has_nulls = arrays.iter().any(|array| array.null_count() > 0);
    let lengths = || arrays.iter().zip(&items).flat_map(|(array, items)| (0..array.len()).map(|row| items.of_row(row)));
    let empty = match items.first()?.bounds {
        Err(length) => length == 0,
        Ok(_) => lengths().any(|row| row.is_empty()),
    };
    if enclosing.ends.is_none() && !has_nulls && !empty {
        let slots = match items.first()?.bounds {
            Err(each) => Slots::Even { rows, each },
            Ok(_) => Slots::Each(row_starts(lengths().map(|row| row.len()), rows)),
        };
        let arrays = items.into_iter().map(|items| items.values).collect();
        return Some(Leaf { layout: layout(slots, None), arrays });
    }
    // Nulls cannot be detected from keys.
    if has_nulls && !field.is_nullable() || items.iter().any(|items| items.values.as_any_dictionary_opt().is_some()) {
        return None;
    }
    let (mut levels, mut lengths, mut leaves) = (Vec::new(), Vec::with_capacity(rows), Vec::new());
    for (array, items) in arrays.iter().zip(items) {
        let mut taken: Vec<Range<usize>> = Vec::new();
        for row in 0..array.len() {
            let before = levels.len();
            match enclosing.end_level(lengths.len()) {
                Some(end) => levels.push(end),
                None if array.is_null(row) => levels.push(enclosing.level),
                None => match items.of_row(row) {
                    none if none.is_empty() => levels.push(level),
                    some => {
                        levels.extend(some.clone().map(|at| max_level - u8::from(items.values.is_null(at))));
                        match taken.last_mut() {
                            Some(last) if last.end == some.start => last.end = some.end,
                            _ => taken.push(some),
                        }
                    }
                },
            }
            lengths.push(levels.len() - before);
        }
        leaves.push(parts_of(items.values, &taken)?);
    }
    if !item.is_nullable() && leaves.iter().any(|leaf| leaf.null_count() > 0) {
        return None;
    }
    let slots = Slots::Each(row_starts(lengths.into_iter(), rows));
    Some(Leaf { layout: layout(slots, Some(levels)), arrays: leaves })
}

/// Concatenates some parts of an array.
fn parts_of(array: ArrayRef, parts: &[Range<usize>]) -> Option<ArrayRef> {
    let length = parts.iter().map(Range::len).sum();
    if length == array.len() {
        return Some(array);
    }
    let data = array.to_data();
    let mut out = MutableArrayData::new(vec![&data], false, length);
    parts.iter().try_for_each(|part| out.try_extend(0, part.start, part.end)).ok()?;
    Some(make_array(out.freeze()))
}

/// Returns the starts of rows of these lengths, and the end of the last.
fn row_starts(lengths: impl Iterator<Item = usize>, rows: usize) -> Vec<usize> {
    let mut starts = Vec::with_capacity(rows + 1);
    let mut end = 0;
    starts.push(end);
    starts.extend(lengths.map(|length| {
        end += length;
        end
    }));
    starts
}
