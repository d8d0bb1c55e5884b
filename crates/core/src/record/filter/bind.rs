//! Binds conditions to the types of columns.
//!
//! Whole numbers, decimals, dates and timestamps are whole multiples of a unit. A literal between two multiples is
//! replaced by a multiple with the same result, so no value is ever converted: `price > 1.005` is `cents >= 101`.

use std::collections::HashSet;

use arrow::datatypes::{DataType, Fields, TimeUnit};

use super::{
    Filter, Op,
    columns::Pair,
    instant::{DAY, Instant},
    parse::{Expr, Literal, Operand},
};
use crate::{
    error::{Error, Result},
    record::path::field_at,
    schema,
    schema::file::print_type,
};

/// A condition on rows with columns of known types.
#[derive(Debug, Clone)]
pub struct BoundFilter {
    pub(super) test: Test,
}

/// A column that a condition tests.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FilterColumn {
    /// Its name or path.
    pub(super) path: String,
    pub(super) data_type: DataType,
}

/// A condition on values of known types.
#[derive(Debug, Clone)]
pub(super) enum Test {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Known(Option<bool>),
    Null(FilterColumn),
    Flag(FilterColumn, Op, bool),
    /// Multiples of the column's unit.
    Whole(FilterColumn, Whole),
    /// Floating-point numbers, or others that are compared as such.
    Float(FilterColumn, Op, f64),
    Text(FilterColumn, Op, String),
    /// One of several values; if the flag is set, null is one of them.
    WholeIn(FilterColumn, HashSet<i128>, bool),
    FloatIn(FilterColumn, Vec<f64>, bool),
    TextIn(FilterColumn, HashSet<String>, bool),
    Like(FilterColumn, Vec<char>),
    Pair(Pair),
}

/// A test of a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    Less(i128),
    AtLeast(i128),
    Equal(i128),
    NotEqual(i128),
    Always(bool),
}

impl Whole {
    pub(super) fn holds(self, value: i128) -> bool {
        match self {
            Self::Less(limit) => value < limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Equal(one) => value == one,
            Self::NotEqual(one) => value != one,
            Self::Always(result) => result,
        }
    }
}

/// How values of a type compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Only null, so far.
    Nothing,
    Boolean,
    /// Numbers with so many digits after the point.
    Exact(i8),
    /// Floating-point numbers; single precision if the flag is set.
    Float(bool),
    Text,
    /// Multiples of so many nanoseconds since 1970.
    Time(i128),
    /// Values that compare only with those of the same type.
    Own,
    None,
}

impl Class {
    pub(super) fn from_data_type(data_type: &DataType) -> Self {
        match data_type {
            DataType::Null => Self::Nothing,
            DataType::Boolean => Self::Boolean,
            of if of.is_integer() => Self::Exact(0),
            DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale)
                if (0..=38).contains(scale) =>
            {
                Self::Exact(*scale)
            }
            DataType::Float16 | DataType::Float32 => Self::Float(true),
            DataType::Float64 => Self::Float(false),
            DataType::Utf8 | DataType::LargeUtf8 => Self::Text,
            DataType::Date32 => Self::Time(DAY),
            DataType::Date64 => Self::Time(1_000_000),
            DataType::Timestamp(unit, _) => Self::Time(match unit {
                TimeUnit::Second => 1_000_000_000,
                TimeUnit::Millisecond => 1_000_000,
                TimeUnit::Microsecond => 1_000,
                TimeUnit::Nanosecond => 1,
            }),
            DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::FixedSizeBinary(_) => Self::Own,
            _ => Self::None,
        }
    }
}

impl Filter {
    /// Binds the condition to columns.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) for a column that is not among them, or values that do not compare.
    pub fn bind(&self, fields: &Fields) -> Result<BoundFilter> {
        Ok(BoundFilter { test: Binder { fields }.bind_expr(&self.expr)? })
    }
}

struct Binder<'a> {
    fields: &'a Fields,
}

impl Binder<'_> {
    fn bind_expr(&self, expr: &Expr) -> Result<Test> {
        let all = |parts: &[Expr]| parts.iter().map(|part| self.bind_expr(part)).collect::<Result<Vec<_>>>();
        Ok(match expr {
            Expr::All(parts) => Test::All(all(parts)?),
            Expr::Any(parts) => Test::Any(all(parts)?),
            Expr::Not(inner) => Test::Not(Box::new(self.bind_expr(inner)?)),
            Expr::Known(result) => Test::Known(*result),
            Expr::IsNull(path) => match self.find_column(path)? {
                (_, Class::Nothing) => Test::Known(Some(true)),
                (column, _) => Test::Null(column),
            },
            Expr::Flag(path) => match self.find_column(path)? {
                (_, Class::Nothing) => Test::Known(None),
                (column, Class::Boolean) => Test::Flag(column, Op::Equal, true),
                (column, _) => return Err(incomparable_error(&column, "no comparison")),
            },
            Expr::Compare(left, op, right) => self.bind_comparison(left, *op, right, false)?,
            Expr::Between(value, low, high) => {
                let wide = [value, low, high]
                    .into_iter()
                    .try_fold(false, |wide, side| Ok::<_, Error>(wide || self.is_double(side)?))?;
                let low = self.bind_comparison(value, Op::AtLeast, low, wide)?;
                Test::All(vec![low, self.bind_comparison(value, Op::AtMost, high, wide)?])
            }
            Expr::In(path, list) => self.is_in(path, list)?,
            Expr::Like(path, pattern) => match self.find_column(path)? {
                (_, Class::Nothing) => Test::Known(None),
                (column, Class::Text) => Test::Like(column, pattern.chars().collect()),
                (column, _) => return Err(incomparable_error(&column, "a pattern")),
            },
        })
    }

    fn find_column(&self, path: &str) -> Result<(FilterColumn, Class)> {
        let field = field_at(self.fields, path).ok_or_else(|| {
            let names: Vec<&String> = self.fields.iter().map(|field| field.name()).collect();
            schema::hint_columns(Error::usage("no source has this column of --where").in_column(path), path, &names)
        })?;
        let class = Class::from_data_type(field.data_type());
        Ok((FilterColumn { path: path.to_owned(), data_type: field.data_type().clone() }, class))
    }

    fn is_double(&self, side: &Operand) -> Result<bool> {
        Ok(match side {
            Operand::Literal(literal) => matches!(literal, Literal::Float(_)),
            Operand::Column(path) => self.find_column(path)?.1 == Class::Float(false),
        })
    }

    /// Binds a comparison; `wide` says that numbers are compared in double precision because of another operand.
    fn bind_comparison(&self, left: &Operand, op: Op, right: &Operand, wide: bool) -> Result<Test> {
        match (left, right) {
            (Operand::Column(path), Operand::Literal(literal)) => {
                let (column, class) = self.find_column(path)?;
                with_literal(column, class, op, literal, wide)
            }
            (Operand::Literal(_), Operand::Column(_)) => self.bind_comparison(right, op.flipped(), left, wide),
            (Operand::Column(left), Operand::Column(right)) => {
                let ((left, left_class), (right, right_class)) = (self.find_column(left)?, self.find_column(right)?);
                if left_class == Class::Nothing || right_class == Class::Nothing {
                    return Ok(Test::Known(None));
                }
                match Pair::new(&left, op, &right, wide) {
                    Some(pair) => Ok(Test::Pair(pair)),
                    None => Err(incomparable_error(
                        &left,
                        &format!("column `{}` of {}", right.path, column_type_name(&right)),
                    )),
                }
            }
            (Operand::Literal(Literal::Null), _) | (_, Operand::Literal(Literal::Null)) => Ok(Test::Known(None)),
            (Operand::Literal(_), Operand::Literal(_)) => {
                Err(Error::usage("expected a column on one side of each comparison in --where, found two literals"))
            }
        }
    }

    fn is_in(&self, path: &str, list: &[Literal]) -> Result<Test> {
        let (column, class) = self.find_column(path)?;
        let null = list.contains(&Literal::Null);
        let values = || list.iter().filter(|literal| **literal != Literal::Null);
        let wide = list.iter().any(|literal| matches!(literal, Literal::Float(_)));
        let (mut wholes, mut texts, mut floats) = (HashSet::new(), HashSet::new(), Vec::new());
        let mut others = Vec::new();
        for literal in values() {
            match with_literal(column.clone(), class, Op::Equal, literal, wide)? {
                Test::Whole(_, Whole::Equal(value)) => {
                    wholes.insert(value);
                }
                // No value of the column is equal to the literal.
                Test::Whole(..) => {}
                Test::Float(_, _, value) => floats.push(value),
                Test::Text(_, _, value) => {
                    texts.insert(value);
                }
                other => others.push(other),
            }
        }
        Ok(match class {
            Class::Nothing => Test::Known(None),
            Class::Exact(_) | Class::Time(_) if !wide => Test::WholeIn(column, wholes, null),
            Class::Exact(_) | Class::Float(_) => Test::FloatIn(column, floats, null),
            Class::Text => Test::TextIn(column, texts, null),
            _ => {
                others.extend(null.then_some(Test::Known(None)));
                Test::Any(others)
            }
        })
    }
}

/// Binds a comparison of a column with a literal.
fn with_literal(column: FilterColumn, class: Class, op: Op, literal: &Literal, wide: bool) -> Result<Test> {
    Ok(match (class, literal) {
        (Class::None, _) => return Err(incomparable_error(&column, "a literal")),
        (_, Literal::Null) | (Class::Nothing, _) => Test::Known(None),
        (Class::Boolean, Literal::Boolean(value)) => Test::Flag(column, op, *value),
        (Class::Exact(_), Literal::Float(value)) => Test::Float(column, op, *value),
        (Class::Exact(_), Literal::Exact(value, scale)) if wide => Test::Float(column, op, float_of(*value, *scale)),
        (Class::Exact(digits), Literal::Exact(value, scale)) => {
            let (multiple, exact) = in_units(*value, *scale, digits);
            Test::Whole(column, multiple_test(op, multiple, exact))
        }
        (Class::Float(_), Literal::Float(value)) => Test::Float(column, op, *value),
        (Class::Float(single), Literal::Exact(value, scale)) => {
            let value = float_of(*value, *scale);
            #[expect(clippy::cast_possible_truncation, reason = "the column has this precision")]
            let value = if single && !wide { f64::from(value as f32) } else { value };
            Test::Float(column, op, value)
        }
        (Class::Text, Literal::Text(text)) => Test::Text(column, op, text.clone()),
        (Class::Time(unit), Literal::Instant(instant)) => {
            let (multiple, exact) = floor_multiple(instant.unix_nanoseconds(), unit);
            Test::Whole(column, multiple_test(op, multiple, exact))
        }
        (Class::Time(unit), Literal::Text(text)) => {
            let is_date = column.data_type == DataType::Date32;
            let parsed = if is_date { Instant::parse_date(text) } else { Instant::parse_timestamp(text) };
            let Some(instant) = parsed else { return Err(incomparable_error(&column, &format!("the text '{text}'"))) };
            let (multiple, exact) = floor_multiple(instant.unix_nanoseconds(), unit);
            Test::Whole(column, multiple_test(op, multiple, exact))
        }
        (_, Literal::Boolean(_)) => return Err(incomparable_error(&column, "a boolean")),
        (_, Literal::Exact(..) | Literal::Float(_)) => return Err(incomparable_error(&column, "a number")),
        (_, Literal::Text(text)) => return Err(incomparable_error(&column, &format!("the text '{text}'"))),
        (_, Literal::Instant(instant)) => return Err(incomparable_error(&column, &instant.to_string())),
    })
}

/// Returns the test of multiples for a comparison with a literal, which is `multiple`, or lies between it and the next
/// one.
fn multiple_test(op: Op, multiple: i128, exact: bool) -> Whole {
    let next = multiple.saturating_add(1);
    match (op, exact) {
        (Op::Equal, true) => Whole::Equal(multiple),
        (Op::NotEqual, true) => Whole::NotEqual(multiple),
        (Op::Equal, false) => Whole::Always(false),
        (Op::NotEqual, false) => Whole::Always(true),
        (Op::Less, true) => Whole::Less(multiple),
        (Op::AtLeast, true) => Whole::AtLeast(multiple),
        (Op::AtMost, _) | (Op::Less, false) => Whole::Less(next),
        (Op::Greater, _) | (Op::AtLeast, false) => Whole::AtLeast(next),
    }
}

/// Returns the greatest multiple of a unit that is not above a value, and whether it is equal.
fn floor_multiple(value: i128, unit: i128) -> (i128, bool) {
    (value.div_euclid(unit), value.rem_euclid(unit) == 0)
}

/// Expresses a decimal number in units with so many digits after the point.
fn in_units(value: i128, scale: u32, digits: i8) -> (i128, bool) {
    let digits = u32::from(digits.unsigned_abs());
    if scale > digits {
        return floor_multiple(value, 10_i128.pow(scale - digits));
    }
    match 10_i128.checked_pow(digits - scale).and_then(|factor| value.checked_mul(factor)) {
        Some(multiple) => (multiple, true),
        // No value of the column is as large, or as small.
        None => (if value < 0 { i128::MIN } else { i128::MAX }, false),
    }
}

/// Returns the floating-point number nearest to a decimal one.
fn float_of(value: i128, scale: u32) -> f64 {
    format!("{value}e-{scale}").parse().unwrap_or(f64::NAN)
}

fn column_type_name(column: &FilterColumn) -> String {
    print_type(&arrow::datatypes::Field::new(&column.path, column.data_type.clone(), true))
}

/// Returns the error for a column and something that does not compare with it.
fn incomparable_error(column: &FilterColumn, found: &str) -> Error {
    let expected = match Class::from_data_type(&column.data_type) {
        Class::Boolean => "true or false",
        Class::Exact(_) | Class::Float(_) => "a number",
        Class::Text => "text, such as 'a'",
        Class::Time(DAY) => "a date, such as date '2026-01-31'",
        Class::Time(_) => "a time, such as timestamp '2026-01-31 12:00:00'",
        Class::Own => "a column of the same type",
        Class::Nothing | Class::None => "only `is null`, or the path of a member",
    };
    let error = Error::usage(format!(
        "expected {expected} to compare with {} in --where, found {found}",
        column_type_name(column)
    ));
    error
        .in_column(column.path.clone())
        .with_hint(format!("or read the column in another type: --type {}=TYPE", column.path))
}
