//! Evaluates conditions on rows.

use std::collections::HashSet;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, PrimitiveArray, RecordBatch},
    buffer::NullBuffer,
    compute::{and_kleene, cast, is_null, not, or_kleene, prep_null_mask_filter},
    datatypes::{ArrowPrimitiveType, DataType, Decimal128Type, Float64Type, Int64Type, UInt64Type},
};

use super::{
    bind::{BoundFilter, FilterColumn, Test},
    order_floats,
};
use crate::{
    error::{Error, Result},
    record::{coded::plain_column, path::column_at},
};

impl BoundFilter {
    /// Returns for each row whether the condition is true.
    ///
    /// # Errors
    /// When the rows lack a column.
    pub fn matching_rows(&self, rows: &RecordBatch) -> Result<BooleanArray> {
        let result = evaluate_test(&self.test, rows)?;
        Ok(if result.null_count() > 0 { prep_null_mask_filter(&result) } else { result })
    }
}

fn evaluate_test(test: &Test, rows: &RecordBatch) -> Result<BooleanArray> {
    let values = |column: &FilterColumn| values_of(column, rows);
    Ok(match test {
        Test::All(parts) => fold_tests(parts, rows, true, |a, b| Ok(and_kleene(a, b)?))?,
        Test::Any(parts) => fold_tests(parts, rows, false, |a, b| Ok(or_kleene(a, b)?))?,
        Test::Not(inner) => not(&evaluate_test(inner, rows)?)?,
        Test::Known(result) => constant_mask(*result, rows.num_rows()),
        Test::Null(column) => is_null(&values(column)?)?,
        Test::Flag(column, op, value) => {
            let values = values(column)?;
            BooleanArray::from_unary(values.as_boolean(), |found| op.holds(found.cmp(value)))
        }
        Test::Whole(column, whole) => test_wholes(&values(column)?, |value| whole.holds(value))?,
        Test::WholeIn(column, list, null) => {
            let found = test_wholes(&values(column)?, |value| list.contains(&value))?;
            or_null(found, *null)
        }
        Test::Float(column, op, value) => test_floats(&values(column)?, |found| op.holds(order_floats(found, *value)))?,
        Test::FloatIn(column, list, null) => {
            let is_in = |found: f64| list.iter().any(|value| order_floats(found, *value).is_eq());
            or_null(test_floats(&values(column)?, is_in)?, *null)
        }
        Test::Text(column, op, text) => test_texts(&values(column)?, |found| op.holds(found.cmp(text))),
        Test::TextIn(column, list, null) => {
            let is_in = |list: &HashSet<String>, found: &str| list.contains(found);
            or_null(test_texts(&values(column)?, |found| is_in(list, found)), *null)
        }
        Test::Like(column, pattern) => test_texts(&values(column)?, |found| matches_like(found, pattern)),
        Test::Pair(pair) => pair.evaluate(&values(&pair.left)?, &values(&pair.right)?)?,
    })
}

/// Combines the results of all parts.
fn fold_tests(
    parts: &[Test],
    rows: &RecordBatch,
    empty: bool,
    combine: impl Fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray>,
) -> Result<BooleanArray> {
    let mut result: Option<BooleanArray> = None;
    for part in parts {
        let next = evaluate_test(part, rows)?;
        result = Some(match result {
            None => next,
            Some(before) => combine(&before, &next)?,
        });
    }
    Ok(result.unwrap_or_else(|| constant_mask(Some(empty), rows.num_rows())))
}

fn constant_mask(result: Option<bool>, rows: usize) -> BooleanArray {
    match result {
        Some(value) => BooleanArray::from(vec![value; rows]),
        None => BooleanArray::new_null(rows),
    }
}

fn values_of(column: &FilterColumn, rows: &RecordBatch) -> Result<ArrayRef> {
    let found = column_at(rows, &column.path)?;
    plain_column(&found.ok_or_else(|| Error::internal("a tested column is missing").in_column(column.path.clone()))?)
}

/// Makes false null, because the value could be equal to a null in a list.
fn or_null(found: BooleanArray, null: bool) -> BooleanArray {
    if !null {
        return found;
    }
    let (values, _) = found.clone().into_parts();
    let nulls = NullBuffer::union(found.nulls(), Some(&NullBuffer::new(values.clone())));
    BooleanArray::new(values, nulls)
}

/// Returns dates and timestamps as multiples of their units.
pub(super) fn times_to_int64(array: &ArrayRef) -> Result<Int64Array> {
    let number = if *array.data_type() == DataType::Date32 { &cast(array, &DataType::Int32)? } else { array };
    Ok(cast(number, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// Returns numbers as decimals with so many digits after the point; 76 digits hold all of them.
pub(super) fn widest_decimal(array: &ArrayRef, scale: i8) -> Result<ArrayRef> {
    Ok(cast(array, &DataType::Decimal256(76, scale))?)
}

fn test_primitive<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, holds: impl Fn(i128) -> bool) -> BooleanArray
where
    i128: From<T::Native>,
{
    BooleanArray::from_unary(array, |value| holds(value.into()))
}

/// Tests multiples of the column's unit.
fn test_wholes(array: &ArrayRef, holds: impl Fn(i128) -> bool) -> Result<BooleanArray> {
    Ok(match array.data_type() {
        DataType::UInt64 => test_primitive(array.as_primitive::<UInt64Type>(), holds),
        DataType::Decimal128(..) => test_primitive(array.as_primitive::<Decimal128Type>(), holds),
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => {
            let wide = cast(array, &DataType::Decimal128(38, *scale))?;
            test_primitive(wide.as_primitive::<Decimal128Type>(), holds)
        }
        _ => test_primitive(&times_to_int64(array)?, holds),
    })
}

fn test_floats(array: &ArrayRef, holds: impl Fn(f64) -> bool) -> Result<BooleanArray> {
    let double = cast(array, &DataType::Float64)?;
    Ok(BooleanArray::from_unary(double.as_primitive::<Float64Type>(), holds))
}

fn test_texts(array: &ArrayRef, holds: impl Fn(&str) -> bool) -> BooleanArray {
    match array.data_type() {
        DataType::LargeUtf8 => BooleanArray::from_unary(array.as_string::<i64>(), holds),
        _ => BooleanArray::from_unary(array.as_string::<i32>(), holds),
    }
}

/// Returns whether a text matches a pattern, in which `%` stands for any text and `_` for one character.
fn matches_like(text: &str, pattern: &[char]) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut next) = (0, 0);
    // The last `%`, and where the text that it stands for ends.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(next) {
            Some('%') => {
                star = Some((next, at));
                next += 1;
            }
            Some(one) if *one == '_' || *one == text[at] => (at, next) = (at + 1, next + 1),
            _ => match &mut star {
                Some((from, end)) => {
                    *end += 1;
                    (at, next) = (*end, *from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[next..].iter().all(|one| *one == '%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_sql() {
        let like = |text: &str, pattern: &str| matches_like(text, &pattern.chars().collect::<Vec<_>>());
        for (text, pattern) in
            [("", "%"), ("", ""), ("abc", "a%"), ("é", "_"), ("abab", "%ab"), ("a%", "a%"), ("xaybz", "%a%b_")]
        {
            assert!(like(text, pattern), "{text} like {pattern}");
        }
        for (text, pattern) in [("a", ""), ("", "_"), ("abc", "a_"), ("aba", "%ab"), ("A", "a"), ("a%", "a\\%")] {
            assert!(!like(text, pattern), "{text} like {pattern}");
        }
    }
}
