//! Comparisons of two columns.

use arrow::{
    array::{ArrayRef, AsArray, BooleanArray},
    compute::{cast, kernels::cmp},
    datatypes::{DataType, Decimal256Type, Float32Type, Float64Type},
};

use super::{
    Op,
    bind::{Class, FilterColumn},
    evaluate::{times_to_int64, widest_decimal},
    order_floats,
};
use crate::error::Result;

/// A comparison of two columns.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) left: FilterColumn,
    op: Op,
    pub(super) right: FilterColumn,
    how: How,
}

/// The type in which two columns are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Decimal numbers with so many digits after the point.
    Exact(i8),
    Single,
    Double,
    /// Nanoseconds, of these units.
    Time(i128, i128),
    Text,
    /// Values of one type.
    Same,
}

impl Pair {
    /// Returns the comparison; `None` if the columns do not compare.
    pub(super) fn new(left: &FilterColumn, op: Op, right: &FilterColumn, wide: bool) -> Option<Self> {
        let how =
            match (Class::from_data_type(&left.data_type), Class::from_data_type(&right.data_type)) {
                (Class::Exact(_), Class::Exact(_)) if wide => How::Double,
                (Class::Exact(a), Class::Exact(b)) => How::Exact(a.max(b)),
                (Class::Float(single), Class::Exact(_)) | (Class::Exact(_), Class::Float(single)) => {
                    if single && !wide { How::Single } else { How::Double }
                }
                (Class::Float(a), Class::Float(b)) => {
                    if a && b && !wide {
                        How::Single
                    } else {
                        How::Double
                    }
                }
                (Class::Time(a), Class::Time(b)) => How::Time(a, b),
                (Class::Text, Class::Text) => How::Text,
                (Class::Boolean, Class::Boolean) => How::Same,
                (Class::Own, Class::Own) if left.data_type == right.data_type => How::Same,
                _ => return None,
            };
        Some(Self { left: left.clone(), op, right: right.clone(), how })
    }

    /// Compares values of both columns row by row; null where one of them is null.
    pub(super) fn evaluate(&self, left: &ArrayRef, right: &ArrayRef) -> Result<BooleanArray> {
        let op = self.op;
        Ok(match self.how {
            How::Exact(scale) => {
                let (left, right) = (widest_decimal(left, scale)?, widest_decimal(right, scale)?);
                let (left, right) = (left.as_primitive::<Decimal256Type>(), right.as_primitive::<Decimal256Type>());
                compare_rows(left.iter(), right.iter(), |a, b| op.holds(a.cmp(&b)))
            }
            How::Single => {
                let (left, right) = (cast(left, &DataType::Float32)?, cast(right, &DataType::Float32)?);
                let (left, right) = (left.as_primitive::<Float32Type>(), right.as_primitive::<Float32Type>());
                compare_rows(left.iter(), right.iter(), |a, b| op.holds(order_floats(a.into(), b.into())))
            }
            How::Double => {
                let (left, right) = (cast(left, &DataType::Float64)?, cast(right, &DataType::Float64)?);
                let (left, right) = (left.as_primitive::<Float64Type>(), right.as_primitive::<Float64Type>());
                compare_rows(left.iter(), right.iter(), |a, b| op.holds(order_floats(a, b)))
            }
            How::Time(a, b) => {
                let (left, right) = (times_to_int64(left)?, times_to_int64(right)?);
                let nanoseconds = |unit: i128| move |value: Option<i64>| value.map(|value| i128::from(value) * unit);
                let (left, right) = (left.iter().map(nanoseconds(a)), right.iter().map(nanoseconds(b)));
                compare_rows(left, right, |a, b| op.holds(a.cmp(&b)))
            }
            How::Text => {
                let (left, right) = (cast(left, &DataType::LargeUtf8)?, cast(right, &DataType::LargeUtf8)?);
                compare_rows(left.as_string::<i64>().iter(), right.as_string::<i64>().iter(), |a, b| op.holds(a.cmp(b)))
            }
            How::Same => compare_arrays(op, left, right)?,
        })
    }
}

fn compare_rows<T>(
    left: impl Iterator<Item = Option<T>>,
    right: impl Iterator<Item = Option<T>>,
    holds: impl Fn(T, T) -> bool,
) -> BooleanArray {
    left.zip(right).map(|(a, b)| Some(holds(a?, b?))).collect()
}

/// Compares values of one type.
fn compare_arrays(op: Op, left: &ArrayRef, right: &ArrayRef) -> Result<BooleanArray> {
    Ok(match op {
        Op::Equal => cmp::eq(left, right)?,
        Op::NotEqual => cmp::neq(left, right)?,
        Op::Less => cmp::lt(left, right)?,
        Op::AtMost => cmp::lt_eq(left, right)?,
        Op::Greater => cmp::gt(left, right)?,
        Op::AtLeast => cmp::gt_eq(left, right)?,
    })
}
