//! Strips: arrays of numbers as small grids of means, to be drawn in colours.

use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray},
    compute::cast,
    datatypes::{DataType, Field, Float64Type},
};
use serde::Serialize;

use crate::{
    array::npy,
    schema::{file::print_type, tensor_shape},
};

/// Maximum number of strips.
const MAX_STRIPS: usize = 12;
/// Maximum numbers of columns and rows of a strip.
const MAX_COLUMNS: usize = 64;
const MAX_ROWS: usize = 16;
/// Maximum number of values that a strip is made of.
const MAX_VALUES: usize = 1 << 20;

/// An array as a grid of means.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Strip {
    /// Record and column or part.
    pub name: String,
    /// Type of an element.
    pub data_type: String,
    /// Shape of the array.
    pub shape: Vec<u64>,
    /// Least finite value.
    pub min: f64,
    /// Greatest finite value.
    pub max: f64,
    /// Means of neighbouring values, row by row; absent where there are none. Rows are all dimensions but the last.
    pub cells: Vec<Vec<Option<f64>>>,
}

/// Collects strips.
#[derive(Debug, Default)]
pub(super) struct Strips {
    strips: Vec<Strip>,
}

impl Strips {
    /// Adds a value if it is an array of numbers.
    pub(super) fn add(&mut self, name: &str, field: &Field, column: &ArrayRef, row: usize) {
        if self.strips.len() >= MAX_STRIPS || column.is_null(row) {
            return;
        }
        let (values, shape) = match column.data_type() {
            DataType::FixedSizeList(..) => {
                let list: &FixedSizeListArray = column.as_fixed_size_list();
                (list.value(row), tensor_shape(field))
            }
            DataType::List(_) => (column.as_list::<i32>().value(row), None),
            _ => return,
        };
        let is_number = values.data_type().is_numeric() && values.len() > 1;
        if !is_number || values.len() > MAX_VALUES {
            return;
        }
        let Ok(numbers) = cast(&values, &DataType::Float64) else { return };
        let numbers: Vec<f64> = numbers.as_primitive::<Float64Type>().iter().map(|n| n.unwrap_or(f64::NAN)).collect();
        let shape = shape.unwrap_or_else(|| vec![numbers.len()]);
        let data_type = print_type(&Field::new("item", values.data_type().clone(), true));
        self.push(name, data_type, shape.into_iter().map(|n| n as u64).collect(), &numbers);
    }

    /// Adds the content of an NPY file, if it is whole.
    pub(super) fn add_npy(&mut self, name: &str, bytes: &[u8]) {
        if self.strips.len() >= MAX_STRIPS {
            return;
        }
        let Ok(header) = npy::parse(bytes) else { return };
        let count = header.shape.iter().try_fold(1_u64, |all, length| all.checked_mul(*length));
        let length =
            count.zip(header.dtype.width()).and_then(|(count, width)| usize::try_from(count).ok()?.checked_mul(width));
        let Some(body) = length.and_then(|length| bytes.get(header.offset..header.offset.checked_add(length)?)) else {
            return;
        };
        if header.fortran || count.is_none_or(|count| count > MAX_VALUES as u64 || count < 2) {
            return;
        }
        let mut body = body.to_vec();
        if header.swapped {
            header.dtype.swap(&mut body);
        }
        let numbers = header.dtype.doubles(&body);
        self.push(name, header.dtype.name(), header.shape, &numbers);
    }

    fn push(&mut self, name: &str, data_type: String, shape: Vec<u64>, numbers: &[f64]) {
        let finite = || numbers.iter().copied().filter(|number| number.is_finite());
        let (min, max) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        let width = shape.last().and_then(|width| usize::try_from(*width).ok()).unwrap_or(0);
        if width == 0 || !numbers.len().is_multiple_of(width) || min > max {
            return;
        }
        let cells = cells(numbers, width);
        self.strips.push(Strip { name: name.to_owned(), data_type, shape, min, max, cells });
    }

    pub(super) fn finish(self) -> Vec<Strip> {
        self.strips
    }
}

/// Returns means of neighbouring numbers of rows of some width.
fn cells(numbers: &[f64], width: usize) -> Vec<Vec<Option<f64>>> {
    let rows: Vec<&[f64]> = numbers.chunks(width).collect();
    let (height, columns) = (rows.len().min(MAX_ROWS), width.min(MAX_COLUMNS));
    let part = |number: usize, of: usize, all: usize| number * all / of..(number + 1) * all / of;
    let mean = |row: usize, column: usize| {
        let cells = rows.get(part(row, height, rows.len())).unwrap_or_default();
        let values = cells.iter().flat_map(|row| row.get(part(column, columns, width)).unwrap_or_default());
        let (sum, count) = values.filter(|v| v.is_finite()).fold((0.0, 0_u32), |(sum, count), v| (sum + v, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    };
    (0..height).map(|row| (0..columns).map(|column| mean(row, column)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_means_of_neighbours() {
        let numbers: Vec<f64> = (0..256).map(f64::from).collect();
        let found = cells(&numbers, 128);
        assert_eq!((found.len(), found[0].len()), (2, 64));
        assert_eq!((found[0][0], found[1][63]), (Some(0.5), Some(254.5)));
        assert_eq!(cells(&[f64::NAN, 1.0], 2), [[None, Some(1.0)]]);
    }

    #[test]
    fn damaged_arrays_are_left_out() {
        let whole = [npy::header("'<f4'", &[2, 3]), vec![0; 24]].concat();
        let mut strips = Strips::default();
        strips.add_npy("whole", &whole);
        (0..whole.len()).for_each(|length| strips.add_npy("cut", &whole[..length]));
        strips.add_npy("large", &npy::header("'<f4'", &[u64::MAX, 3]));
        strips.add_npy("text", &[npy::header("'<U1'", &[2]), vec![0; 8]].concat());
        let found = strips.finish();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].shape.as_slice(), found[0].cells.len()), (&[2, 3][..], 2));
    }
}
