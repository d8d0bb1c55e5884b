//! Tells from the bounds of columns that no row of a group can match.
//!
//! A condition on a group of rows has a set of possible results; the group is skipped unless true is one of them. What
//! is not known is possible, so a group is skipped only if its bounds prove that no row matches.

use arrow::{
    array::{Array, AsArray},
    compute::cast,
    datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, UInt64Type},
};

use super::{
    Op,
    bind::{BoundFilter, Class, FilterColumn, Test, Whole},
    order_floats,
};

/// A bound of a column's values.
#[derive(Debug, Clone, PartialEq)]
pub enum Bound {
    /// A multiple of the column's unit.
    Whole(i128),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
}

/// What is known of a column's values in a group of rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnBounds {
    /// No value is less; `None` if unknown.
    pub min: Option<Bound>,
    /// No value is greater, apart from NaN; `None` if unknown.
    pub max: Option<Bound>,
    /// Number of nulls; `None` if unknown.
    pub nulls: Option<u64>,
}

impl ColumnBounds {
    /// Returns the bounds of a column whose value, the only one of an array, is the same in so many rows.
    pub fn of_value(value: &dyn Array, rows: u64) -> Self {
        let bound = bound_of(value);
        Self { nulls: Some(if value.is_null(0) { rows } else { 0 }), min: bound.clone(), max: bound }
    }
}

/// Returns the bound that an array of one value states.
pub fn bound_of(array: &dyn Array) -> Option<Bound> {
    if array.len() != 1 || array.is_null(0) {
        return None;
    }
    let converted = |to: &DataType| cast(array, to).ok().filter(|converted| converted.is_valid(0));
    match Class::from_data_type(array.data_type()) {
        Class::Exact(scale) if array.data_type().is_decimal() => {
            let wide = converted(&DataType::Decimal128(38, scale))?;
            Some(Bound::Whole(wide.as_primitive::<Decimal128Type>().value(0)))
        }
        Class::Exact(_) if *array.data_type() == DataType::UInt64 => {
            Some(Bound::Whole(array.as_primitive::<UInt64Type>().value(0).into()))
        }
        Class::Time(_) if *array.data_type() == DataType::Date32 => {
            let days = cast(&converted(&DataType::Int32)?, &DataType::Int64).ok()?;
            Some(Bound::Whole(days.as_primitive::<Int64Type>().value(0).into()))
        }
        Class::Exact(_) | Class::Time(_) => {
            Some(Bound::Whole(converted(&DataType::Int64)?.as_primitive::<Int64Type>().value(0).into()))
        }
        Class::Float(_) => Some(Bound::Float(converted(&DataType::Float64)?.as_primitive::<Float64Type>().value(0))),
        Class::Text => Some(Bound::Text(converted(&DataType::LargeUtf8)?.as_string::<i64>().value(0).to_owned())),
        _ => None,
    }
}

/// Results that a condition can have for the rows of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Possible {
    yes: bool,
    no: bool,
}

/// What is known of the rows of a range without reading them.
pub struct RowBounds<'a> {
    /// Groups of rows that have all rows of the range.
    pub groups: Vec<GroupBounds<'a>>,
    /// Number of its rows that are deleted: they are in the range, but no rows of the source.
    pub deleted: u64,
}

/// What is known of some rows.
pub struct GroupBounds<'a> {
    /// Number of rows.
    pub rows: u64,
    /// Returns the bounds of a column of that name and type; `None` if nothing is known of it.
    pub of_column: BoundsOfColumn<'a>,
}

/// Returns the bounds of a column of a name and type.
type BoundsOfColumn<'a> = Box<dyn Fn(&str, &DataType) -> Option<ColumnBounds> + 'a>;

impl BoundFilter {
    /// Returns whether some row of a range may match. The condition is bound to the types that rows have after they
    /// are parsed.
    pub fn may_match_some(&self, bounds: &RowBounds<'_>) -> bool {
        bounds.groups.iter().any(|group| self.may_match(group.rows, &group.of_column))
    }

    /// Returns whether some row of a group of `rows` may match, given the bounds of a column of that name and type;
    /// `None` if nothing is known of it.
    pub fn may_match(&self, rows: u64, bounds: &dyn Fn(&str, &DataType) -> Option<ColumnBounds>) -> bool {
        possible_results(&self.test, rows, bounds).yes
    }
}

fn possible_results(test: &Test, rows: u64, bounds: &dyn Fn(&str, &DataType) -> Option<ColumnBounds>) -> Possible {
    let anything = Possible { yes: true, no: true };
    let known = |column: &FilterColumn| bounds(&column.path, &column.data_type);
    let result = |yes: bool, no: bool| Possible { yes, no };
    let of = |column: &FilterColumn, results: &dyn Fn(&ColumnBounds) -> Possible| match known(column) {
        None => anything,
        // A comparison with null is neither true nor false.
        Some(found) if found.nulls.is_some_and(|nulls| nulls >= rows) => result(false, false),
        Some(found) => results(&found),
    };
    match test {
        Test::All(parts) => parts
            .iter()
            .map(|part| possible_results(part, rows, bounds))
            .fold(result(true, false), |a, b| result(a.yes && b.yes, a.no || b.no)),
        Test::Any(parts) => parts
            .iter()
            .map(|part| possible_results(part, rows, bounds))
            .fold(result(false, true), |a, b| result(a.yes || b.yes, a.no && b.no)),
        Test::Not(inner) => {
            let inner = possible_results(inner, rows, bounds);
            result(inner.no, inner.yes)
        }
        Test::Known(value) => result(*value == Some(true), *value == Some(false)),
        Test::Null(column) => match known(column).and_then(|found| found.nulls) {
            None => anything,
            Some(nulls) => result(nulls > 0, nulls < rows),
        },
        Test::Whole(column, whole) => of(column, &|found| match (&found.min, &found.max) {
            (Some(Bound::Whole(min)), Some(Bound::Whole(max))) => of_whole(*whole, *min, *max),
            _ => anything,
        }),
        Test::WholeIn(column, list, _) => of(column, &|found| match (&found.min, &found.max) {
            (Some(Bound::Whole(min)), Some(Bound::Whole(max))) => {
                result(list.iter().any(|value| (min..=max).contains(&value)), true)
            }
            _ => anything,
        }),
        Test::Text(column, op, text) => of(column, &|found| match (&found.min, &found.max) {
            (Some(Bound::Text(min)), Some(Bound::Text(max))) => of_order(*op, min.cmp(text), max.cmp(text)),
            _ => anything,
        }),
        Test::TextIn(column, list, _) => of(column, &|found| match (&found.min, &found.max) {
            (Some(Bound::Text(min)), Some(Bound::Text(max))) => {
                result(list.iter().any(|value| min <= value && value <= max), true)
            }
            _ => anything,
        }),
        // NaN may be above the maximum. Other numbers that are compared as floating-point numbers have no such bounds.
        Test::Float(column, op, value) => of(column, &|found| match &found.min {
            Some(Bound::Float(min)) if !min.is_nan() => {
                of_order(*op, order_floats(*min, *value), std::cmp::Ordering::Greater)
            }
            _ => anything,
        }),
        Test::Flag(..) | Test::FloatIn(..) | Test::Like(..) | Test::Pair(_) => anything,
    }
}

fn of_whole(whole: Whole, min: i128, max: i128) -> Possible {
    let (yes, no) = match whole {
        Whole::Less(limit) => (min < limit, max >= limit),
        Whole::AtLeast(limit) => (max >= limit, min < limit),
        Whole::Equal(one) => ((min..=max).contains(&one), min != one || max != one),
        Whole::NotEqual(one) => (min != one || max != one, (min..=max).contains(&one)),
        Whole::Always(value) => (value, !value),
    };
    Possible { yes, no }
}

/// Returns the possible results of a comparison, given how the least and the greatest value compare with the literal.
fn of_order(op: Op, min: std::cmp::Ordering, max: std::cmp::Ordering) -> Possible {
    let equal = min.is_le() && max.is_ge();
    let unequal = min.is_ne() || max.is_ne();
    let (yes, no) = match op {
        Op::Equal => (equal, unequal),
        Op::NotEqual => (unequal, equal),
        Op::Less => (min.is_lt(), max.is_ge()),
        Op::AtMost => (min.is_le(), max.is_gt()),
        Op::Greater => (max.is_gt(), min.is_le()),
        Op::AtLeast => (max.is_ge(), min.is_lt()),
    };
    Possible { yes, no }
}
