//! Rows of `--read flatten=yes`: one row per cell of a source, along all dimensions of its largest variable.
//!
//! ```text
//! t2m(time, lat, lon)   as stored, one value per row; packed values are keys into their decoded values
//! time(time)            each value for all cells of its record:    0 0 0 0 0 0 1 1 1 1 1 1
//! lat(lat)              each value for all cells of its map row:   0 0 0 1 1 1 0 0 0 1 1 1
//! lon(lon)              all values, repeated:                      0 1 2 0 1 2 0 1 2 0 1 2
//! ```
//!
//! Columns are [coded](crate::record::coded) where keys take less space than values: few coordinates are repeated in
//! many rows, and packed numbers have few different values.

use std::{
    borrow::Cow,
    ops::AddAssign,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::{ArrayRef, DictionaryArray, Int64Array, NullArray, PrimitiveArray, RecordBatch, UInt64Array},
    compute::take,
    datatypes::UInt16Type,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{
    Arrays, DType, Slab, Values,
    records::{Axis, Plan, PlanColumn},
    rows::{Elements, bounding_slab, decode_flat, missing_coordinates, row_fields},
    slab::permute_axes,
};
use crate::{
    error::{Error, Result},
    record::coded::{MAX_VALUES, batch_of, coded_column},
};

/// Minimum number of rows per possible value of packed numbers for these to become keys: all possible values are
/// decoded.
const ROWS_PER_VALUE: usize = 4;

/// Cells of consecutive records.
#[derive(Debug)]
pub struct Cells {
    /// One row per cell; columns may be coded.
    pub batch: RecordBatch,
    /// One hash per record: a chain of XXH3-64 over the stored bytes of its variables, each seeded with the hash before
    /// it. Cells are too many and too small for individual hashes.
    pub hashes: Vec<u64>,
}

/// Reads `count` cells of a source from number `first` on, which must be those of whole records. Hashes are 0 unless
/// `hashed`.
///
/// # Errors
/// As [`read_rows`](super::rows::read_rows).
pub fn read_cells(source: &dyn Arrays, plan: &Plan, first: u64, count: u64, hashed: bool) -> Result<Cells> {
    let per_record = plan.rows_per_record().max(1);
    if !first.is_multiple_of(per_record) || !count.is_multiple_of(per_record) {
        return Err(Error::internal("rows of cells are cut between records"));
    }
    let records = Slab { start: vec![first / per_record], count: vec![count / per_record] };
    let mut hashes = vec![0; usize::try_from(records.count[0]).unwrap_or(0)];
    let mut columns = Vec::with_capacity(plan.columns.len());
    for dim in missing_coordinates(plan) {
        columns.push(index_column(plan, dim, &records)?);
    }
    for column in &plan.columns {
        let read = cell_column(source, plan, column, &records, hashed.then_some(&mut hashes));
        columns.push(
            read.map_err(|e| if e.place().column.is_some() { e } else { e.in_column(column.field.name().as_str()) })?,
        );
    }
    let rows = usize::try_from(count).map_err(|_| Error::internal("more cells than memory has bytes"))?;
    Ok(Cells { batch: batch_of(&row_fields(plan), columns, rows)?, hashes })
}

/// Returns the lengths and names of the dimensions of the cells in a range of records.
fn grid_dims<'a>(plan: &'a Plan, records: &Slab) -> Vec<(&'a str, u64)> {
    let along = plan.dim.iter().map(|dim| (dim.as_str(), records.count[0]));
    let within = plan.cells.iter().flatten().map(|(dim, length)| (dim.as_str(), *length));
    along.chain(within).collect()
}

/// Returns the indices of cells along a dimension.
fn index_column(plan: &Plan, dim: &str, records: &Slab) -> Result<ArrayRef> {
    let grid = grid_dims(plan, records);
    let axis = grid.iter().position(|(name, _)| *name == dim).unwrap_or(0);
    let base = if plan.dim.as_deref() == Some(dim) { records.start[0] } else { 0 };
    let numbers = base..base + grid.get(axis).map_or(0, |(_, length)| *length);
    let numbers = numbers.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    broadcast_values(Arc::new(Int64Array::from_iter_values(numbers)), &grid, &[axis])
}

/// Assigns to each cell its value of an array that has only the dimensions `axes` of the grid.
fn broadcast_values(values: ArrayRef, grid: &[(&str, u64)], axes: &[usize]) -> Result<ArrayRef> {
    if values.len() <= MAX_VALUES && values.data_type().is_primitive() {
        return Ok(Arc::new(broadcast_keys(grid, axes, values.len())?.with_values(values)));
    }
    Ok(take(values.as_ref(), &UInt64Array::from(broadcast_indices::<u64>(grid, axes)), None)?)
}

/// Coordinate keys; consecutive ranges mostly need the same ones.
static PATTERNS: Mutex<Vec<Pattern>> = Mutex::new(Vec::new());

/// Maximum bytes of keys that are kept.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// Keys of all cells of a grid into an array with some of its dimensions.
#[derive(Debug, Clone)]
struct Pattern {
    lengths: Vec<u64>,
    axes: Vec<usize>,
    /// Keys without values.
    keys: DictionaryArray<UInt16Type>,
}

/// Returns keys into an array of `values` values that has only the dimensions `axes` of the grid.
fn broadcast_keys(grid: &[(&str, u64)], axes: &[usize], values: usize) -> Result<DictionaryArray<UInt16Type>> {
    let lengths: Vec<u64> = grid.iter().map(|(_, length)| *length).collect();
    let patterns = || PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |known: &&Pattern| known.lengths == lengths && known.axes == axes && known.keys.values().len() == values;
    if let Some(known) = patterns().iter().find(same) {
        return Ok(known.keys.clone());
    }
    let keys = PrimitiveArray::<UInt16Type>::new(broadcast_indices(grid, axes).into(), None);
    let keys = DictionaryArray::try_new(keys, Arc::new(NullArray::new(values)))?;
    let mut patterns = patterns();
    patterns.push(Pattern { lengths, axes: axes.to_vec(), keys: keys.clone() });
    let bytes = |patterns: &[Pattern]| patterns.iter().map(|pattern| pattern.keys.len() * 2).sum::<usize>();
    while bytes(&patterns) > MAX_KEPT_BYTES {
        patterns.remove(0);
    }
    Ok(keys)
}

/// Returns for each cell of the grid the number of its element in an array that has only the dimensions `axes`.
fn broadcast_indices<N: Copy + Default + AddAssign + TryFrom<u64>>(grid: &[(&str, u64)], axes: &[usize]) -> Vec<N> {
    let mut strides = vec![0; grid.len()];
    let mut stride = 1;
    for axis in axes.iter().rev() {
        strides[*axis] += stride;
        stride *= grid[*axis].1;
    }
    let cells = grid.iter().fold(1_u64, |all, (_, length)| all.saturating_mul(*length));
    let Some(cells) = usize::try_from(cells).ok().filter(|cells| *cells > 0) else { return Vec::new() };
    let mut numbers = Vec::with_capacity(cells);
    numbers.push(N::default());
    // From the last dimension on: the cells so far are repeated for each further index.
    for ((_, length), stride) in grid.iter().zip(strides).rev() {
        let block = numbers.len();
        for index in 1..*length {
            let start = numbers.len();
            numbers.extend_from_within(..block);
            if let Some(more) = N::try_from(index * stride).ok().filter(|_| stride > 0) {
                numbers[start..].iter_mut().for_each(|number| *number += more);
            }
        }
    }
    numbers
}

fn cell_column(
    source: &dyn Arrays,
    plan: &Plan,
    column: &PlanColumn,
    records: &Slab,
    hashes: Option<&mut Vec<u64>>,
) -> Result<ArrayRef> {
    let slab = bounding_slab(plan, column, &(records.start[0]..records.start[0] + records.count[0]), &[]);
    let read = Elements::read(source, column, slab.clone())?;
    if let Some(hashes) = hashes {
        chain_hashes(&read, column, &slab, hashes);
    }
    let grid = grid_dims(plan, records);
    let axis = |dim: &String| grid.iter().position(|(name, _)| name == dim).unwrap_or(0);
    let axes: Vec<usize> = column.dims.iter().map(axis).collect();
    let whole = axes.iter().copied().eq(0..grid.len());
    if whole
        && read.varied.is_none()
        && let Some(column) = packed_column(plan, column, &read.bytes)?
    {
        return Ok(column);
    }
    let values = match read.varied {
        None => Values::Fixed(read.bytes),
        Some(varied) => Values::Varied(varied),
    };
    let values = decode_flat(column, plan, values)?;
    if whole { Ok(values) } else { broadcast_values(values, &grid, &axes) }
}

/// Adds the stored bytes of a variable to the hashes of the records.
fn chain_hashes(read: &Elements, column: &PlanColumn, slab: &Slab, hashes: &mut [u64]) {
    let (bytes, width) = match &read.varied {
        None => (Cow::Borrowed(&read.bytes), read.width),
        Some(texts) => (Cow::Owned(texts.iter().flat_map(|text| xxh3_64(text).to_le_bytes()).collect()), 8),
    };
    let Some(along) = column.axes.iter().position(|axis| *axis == Axis::Record) else {
        let all = xxh3_64(&bytes).to_le_bytes();
        hashes.iter_mut().for_each(|hash| *hash = xxh3_64_with_seed(&all, *hash));
        return;
    };
    let bytes = if along == 0 {
        bytes
    } else {
        let order: Vec<usize> = std::iter::once(along).chain((0..slab.count.len()).filter(|a| *a != along)).collect();
        Cow::Owned(permute_axes(&bytes, width, &slab.count, &order))
    };
    let record = bytes.len() / hashes.len().max(1);
    for (hash, bytes) in hashes.iter_mut().zip(bytes.chunks_exact(record.max(1))) {
        *hash = xxh3_64_with_seed(bytes, *hash);
    }
}

/// Converts packed numbers to keys into their decoded values; `None` if that would not be smaller.
pub(super) fn packed_column(plan: &Plan, column: &PlanColumn, bytes: &[u8]) -> Result<Option<ArrayRef>> {
    macro_rules! of {
        ($type:ty) => {
            keyed(
                bytes.as_chunks().0,
                <$type>::from_ne_bytes,
                |least, code| least.wrapping_add(code as $type).to_ne_bytes(),
                |value, least| value.wrapping_sub(least).to_le_bytes(),
            )
        };
    }
    #[expect(clippy::cast_possible_truncation, reason = "codes are within the type")]
    let found = match column.dtype {
        DType::Int(1) => of!(i8),
        DType::UInt(1) => of!(u8),
        DType::Int(2) => of!(i16),
        DType::UInt(2) => of!(u16),
        DType::Int(4) => of!(i32),
        DType::UInt(4) => of!(u32),
        _ => None,
    };
    let Some((keys, table)) = found else { return Ok(None) };
    // Decoding a number that never occurs may fail.
    match decode_flat(column, plan, Values::Fixed(table)) {
        Ok(values) if values.data_type().is_primitive() => coded_column(keys, values).map(Some),
        _ => Ok(None),
    }
}

/// Returns the distance of each number from the smallest one, and the stored form of all numbers from the smallest to
/// the largest one.
fn keyed<const N: usize, T: Copy + Ord>(
    stored: &[[u8; N]],
    read: impl Fn([u8; N]) -> T,
    store: impl Fn(T, u32) -> [u8; N],
    distance: impl Fn(T, T) -> [u8; N],
) -> Option<(Vec<u16>, Vec<u8>)> {
    let first = read(*stored.first()?);
    let least = stored.iter().fold(first, |least, value| least.min(read(*value)));
    let greatest = stored.iter().fold(first, |greatest, value| greatest.max(read(*value)));
    let wide = |value: T| distance(value, least).iter().rev().fold(0_usize, |all, byte| all << 8 | usize::from(*byte));
    let values = wide(greatest) + 1;
    if values > MAX_VALUES || values.saturating_mul(ROWS_PER_VALUE) > stored.len() {
        return None;
    }
    let key = |value: &[u8; N]| {
        let distance = distance(read(*value), least);
        u16::from_le_bytes([distance[0], distance.get(1).copied().unwrap_or(0)])
    };
    let table = (0_u32..).take(values).flat_map(|code| store(least, code)).collect();
    Some((stored.iter().map(key).collect(), table))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_elements_are_repeated_as_the_grid_says() {
        let grid = [("t", 2), ("y", 2), ("x", 3)];
        assert_eq!(broadcast_indices::<u16>(&grid, &[0]), [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
        assert_eq!(broadcast_indices::<u16>(&grid, &[1]), [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
        assert_eq!(broadcast_indices::<u64>(&grid, &[2]), [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(broadcast_indices::<u64>(&grid, &[2, 0]), [0, 2, 4, 0, 2, 4, 1, 3, 5, 1, 3, 5]);
        assert_eq!(broadcast_indices::<u16>(&grid, &[]), [0; 12]);
        assert_eq!(broadcast_indices::<u16>(&[("t", 2), ("y", 0)], &[0]), [0_u16; 0]);
        assert_eq!(broadcast_indices::<u16>(&[], &[]), [0]);
    }

    #[test]
    fn packed_numbers_are_keys_where_there_are_few() {
        let bytes: Vec<[u8; 2]> = [-3_i16, 4, -3, 0].repeat(8).iter().map(|v| v.to_ne_bytes()).collect();
        let keys = |bytes: &[[u8; 2]]| {
            let store = |least: i16, code: u32| least.wrapping_add(i16::try_from(code).unwrap()).to_ne_bytes();
            keyed(bytes, i16::from_ne_bytes, store, |value, least| value.wrapping_sub(least).to_le_bytes())
        };
        let (found, table) = keys(&bytes).unwrap();
        assert_eq!(found, [0, 7, 0, 3].repeat(8));
        let table: Vec<i16> = table.as_chunks().0.iter().map(|v| i16::from_ne_bytes(*v)).collect();
        assert_eq!(table, [-3, -2, -1, 0, 1, 2, 3, 4]);
        assert_eq!(keys(&bytes[..31]), None);
        assert_eq!(keys(&[]), None);
        let all: Vec<[u8; 2]> = [i16::MIN, i16::MAX].repeat(1 << 17).iter().map(|v| v.to_ne_bytes()).collect();
        let (found, table) = keyed(
            &all,
            i16::from_ne_bytes,
            |least, code| (i32::from(least) + i32::try_from(code).unwrap()).to_le_bytes()[..2].try_into().unwrap(),
            |value, least| value.wrapping_sub(least).to_le_bytes(),
        )
        .unwrap();
        assert_eq!((&found[..2], table.len()), (&[0, u16::MAX][..], 1 << 17));
    }
}
