//! Conditions on rows, as SQL writes them: `age >= 18 and site in ('A', 'B')`.
//!
//! ```text
//! text --parse--> Filter (columns and literals) --bind, to types--> BoundFilter --matches--> rows
//!                                                                              `-may_match-> row groups, by bounds
//! ```
//!
//! The result is that of DuckDB: comparisons with null are null, `and`, `or` and `not` have three values, and only rows
//! for which the condition is true match. NaN is equal to itself and greater than every other number. Numbers are
//! compared exactly unless one of them is a floating-point number.

mod bind;
mod bounds;
mod columns;
mod evaluate;
mod instant;
mod parse;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests;
mod token;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::parse::Expr;
pub use self::{
    bind::BoundFilter,
    bounds::{Bound, ColumnBounds, GroupBounds, RowBounds, bound_of},
};
use crate::error::{Error, Result};

/// A condition whose columns are not bound to types yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    given: String,
    resolved: String,
    expr: Expr,
}

impl Filter {
    /// Parses a condition; `today()` and `now()` are those of `now`, in UTC.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) naming the place in the text.
    pub fn parse(text: &str, now: Timestamp) -> Result<Self> {
        let (expr, resolved) = parse::parse(text, now)?;
        Ok(Self { given: text.to_owned(), resolved, expr })
    }

    /// Returns the condition as the user wrote it.
    pub fn given(&self) -> &str {
        &self.given
    }

    /// Returns the condition with dates and times in place of `today()` and `now()`.
    pub fn resolved(&self) -> &str {
        &self.resolved
    }

    /// Returns the names, or paths, of the columns that the condition names.
    pub fn columns(&self) -> BTreeSet<&str> {
        let mut columns = BTreeSet::new();
        self.expr.each_column(&mut |column| {
            columns.insert(column);
        });
        columns
    }
}

/// A condition as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    given: String,
    resolved: String,
}

impl Serialize for Filter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Stored { given: self.given.clone(), resolved: self.resolved.clone() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Stored { given, resolved } = Stored::deserialize(deserializer)?;
        let parsed = parse::parse(&resolved, Timestamp::UNIX_EPOCH);
        let (expr, _) = parsed.map_err(|e: Error| serde::de::Error::custom(e.message()))?;
        Ok(Self { given, resolved, expr })
    }
}

/// Comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Op {
    /// Returns whether two values with this order satisfy the comparison.
    fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }

    /// Returns the operator that is equivalent after exchanging both sides.
    fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::AtMost => Self::AtLeast,
            Self::Greater => Self::Less,
            Self::AtLeast => Self::AtMost,
            same => same,
        }
    }
}

/// Orders floating-point numbers: NaN is equal to itself and greater than all others, and zeros are equal.
fn order_floats(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
