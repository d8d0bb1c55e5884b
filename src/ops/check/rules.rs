//! The file of rules: TOML, with a table for each subject of rules, and a table `columns.NAME` for each column.
//!
//! ```toml
//! [freshness]
//! max_age = "26h"                    # since records were added
//! [volume]
//! min_records = 1_000
//! max_change = 0.5                   # of the number of records, against another version
//! against = "previous"
//! [columns.age]
//! not_null = true
//! min = 0
//! max = 120
//! ```
//!
//! Names are those of dbt's tests and of Great Expectations where these have one. Everything that can be wrong with a
//! file is found before any data is read, and an error names line and character.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use regex::Regex;
use serde::{Deserialize, Serialize};
use toml::{Spanned, Value};

use crate::{
    error::{Error, Result},
    storage::SmallFile,
    units::parse_duration,
};

/// Word for the version before records were added last.
pub(super) const PREVIOUS: &str = "previous";

/// A file of rules.
pub(super) const FILE: SmallFile = SmallFile::new("a file of rules", 4 << 20);

/// Whether a rule that does not hold fails the check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The check fails.
    #[default]
    Error,
    /// The check goes on, and the rule is reported.
    Warn,
}

/// Age of the data.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Freshness {
    /// Maximum age, as a duration.
    pub(super) max_age: Spanned<String>,
    /// Column of dates or times whose greatest value counts; without one, the time at which records were added.
    pub(super) column: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) severity: Severity,
}

/// Number of records.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Volume {
    pub(super) min_records: Option<Spanned<u64>>,
    pub(super) max_records: Option<Spanned<u64>>,
    /// Maximum relative change against another version.
    pub(super) max_change: Option<Spanned<f64>>,
    /// That version.
    pub(super) against: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) severity: Severity,
}

/// Columns and their types.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SchemaRules {
    /// Types of columns that there must be.
    #[serde(default)]
    pub(super) columns: BTreeMap<String, Spanned<String>>,
    /// Version whose columns and types there must be.
    pub(super) against: Option<Spanned<String>>,
    /// Whether there may be others.
    pub(super) extra_columns: Option<Spanned<bool>>,
    #[serde(default)]
    pub(super) severity: Severity,
}

/// Rules of a column.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnRules {
    pub(super) not_null: Option<Spanned<bool>>,
    pub(super) max_null_share: Option<Spanned<f64>>,
    pub(super) unique: Option<Spanned<bool>>,
    pub(super) min: Option<Spanned<Value>>,
    pub(super) max: Option<Spanned<Value>>,
    pub(super) accepted_values: Option<Spanned<Vec<Value>>>,
    pub(super) pattern: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) severity: Severity,
}

/// Distributions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DriftRules {
    /// Version that is compared with.
    pub(super) against: Spanned<String>,
    /// Maximum population stability index of a column.
    pub(super) max_psi: Option<Spanned<f64>>,
    /// Maximum change of the share of nulls of a column.
    pub(super) max_null_change: Option<Spanned<f64>>,
    /// Columns that are compared; all by default.
    pub(super) columns: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    pub(super) severity: Severity,
}

/// Splits for training and evaluation, which must have no subject in common.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SplitRules {
    /// `subject`, `id`, or a column whose values must be in one split each.
    pub(super) by: Option<Spanned<String>>,
    /// Column that states the split of a record; without one, folders `split=NAME` do.
    pub(super) column: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) severity: Severity,
}

/// The tables of a file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tables {
    pub(super) freshness: Option<Spanned<Freshness>>,
    pub(super) volume: Option<Spanned<Volume>>,
    pub(super) schema: Option<Spanned<SchemaRules>>,
    pub(super) columns: BTreeMap<String, Spanned<ColumnRules>>,
    pub(super) drift: Option<Spanned<DriftRules>>,
    pub(super) splits: Option<Spanned<SplitRules>>,
}

/// A file of rules.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Its name.
    pub(super) name: String,
    text: String,
    pub(super) tables: Tables,
}

impl Rules {
    /// Parses a file; `name` is its name in errors.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) with line and character if it is not TOML, has unknown keys or
    /// impossible values, or states no rule.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let empty = Self { name: name.to_owned(), text: text.to_owned(), tables: Tables::default() };
        let tables = toml::from_str(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            let told = empty.error_at(&error.span().unwrap_or(0..0), format!("the rules cannot be read: {message}"));
            match message.contains("too large") {
                true => told.with_hint(format!("write numbers beyond {} in quotes", i64::MAX)),
                false => told,
            }
        })?;
        let rules = Self { tables, ..empty };
        rules.check_tables()?;
        Ok(rules)
    }

    /// Returns the line of a part of the file, from 1.
    pub(super) fn line_at(&self, span: &Range<usize>) -> u64 {
        1 + self.text_before(span).matches('\n').count() as u64
    }

    fn text_before(&self, span: &Range<usize>) -> &str {
        self.text.get(..span.start).unwrap_or(&self.text)
    }

    /// Returns an error about a part of the file.
    pub(super) fn error_at(&self, span: &Range<usize>, message: impl Into<String>) -> Error {
        let before = self.text_before(span);
        let character = before.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
        let error =
            Error::usage(message).at_location(self.name.clone()).at_line(self.line_at(span)).at_character(character);
        error.with_hint("`shardify help check` shows a file with all rules")
    }

    /// Returns the columns with rules, in the order of the file.
    pub(super) fn column_rules(&self) -> Vec<(&str, &ColumnRules)> {
        let mut all: Vec<_> = self.tables.columns.iter().collect();
        all.sort_by_key(|(_, rules)| rules.span().start);
        all.into_iter().map(|(name, rules)| (name.as_str(), rules.get_ref())).collect()
    }

    fn check_tables(&self) -> Result<()> {
        let tables = &self.tables;
        if let Some(freshness) = &tables.freshness {
            self.parse_max_age(freshness.get_ref())?;
        }
        if let Some(volume) = &tables.volume {
            self.check_volume(volume)?;
        }
        if let Some(schema) = &tables.schema {
            self.check_schema(schema)?;
        }
        tables.columns.values().try_for_each(|column| self.check_column(column))?;
        if let Some(drift) = &tables.drift {
            let rules = drift.get_ref();
            if rules.max_psi.is_none() && rules.max_null_change.is_none() {
                return Err(
                    self.error_at(&drift.span(), "expected `max_psi` or `max_null_change` in [drift], found neither")
                );
            }
            rules.max_psi.iter().chain(&rules.max_null_change).try_for_each(|limit| self.check_limit(limit))?;
        }
        if let Some(splits) = &tables.splits {
            self.check_splits(splits.get_ref())?;
        }
        let lone = tables.freshness.is_none() && tables.volume.is_none() && tables.schema.is_none();
        if lone && tables.columns.is_empty() && tables.drift.is_none() && tables.splits.is_none() {
            return Err(self.error_at(&(0..0), "expected at least one rule, found none"));
        }
        Ok(())
    }

    /// Returns the maximum age.
    pub(super) fn parse_max_age(&self, freshness: &Freshness) -> Result<Duration> {
        let age = &freshness.max_age;
        parse_duration(age.get_ref()).map_err(|_| {
            let message = format!("expected a duration such as 90m, 26h or 7d, found `{}`", age.get_ref());
            self.error_at(&age.span(), message)
        })
    }

    fn check_limit(&self, limit: &Spanned<f64>) -> Result<()> {
        let value = *limit.get_ref();
        if value.is_finite() && value >= 0.0 {
            return Ok(());
        }
        Err(self.error_at(&limit.span(), format!("expected a number from 0 on, found {value}")))
    }

    fn check_volume(&self, volume: &Spanned<Volume>) -> Result<()> {
        let rules = volume.get_ref();
        if rules.min_records.is_none() && rules.max_records.is_none() && rules.max_change.is_none() {
            let message = "expected `min_records`, `max_records` or `max_change` in [volume], found none of them";
            return Err(self.error_at(&volume.span(), message));
        }
        if let (Some(least), Some(most)) = (&rules.min_records, &rules.max_records)
            && least.get_ref() > most.get_ref()
        {
            let message = format!("expected at least `min_records`, {}, found {}", least.get_ref(), most.get_ref());
            return Err(self.error_at(&most.span(), message));
        }
        rules.max_change.iter().try_for_each(|limit| self.check_limit(limit))?;
        match (&rules.max_change, &rules.against) {
            (Some(change), None) => {
                let message =
                    "expected `against` beside `max_change`: \"previous\", a version, a tag or a duration before now";
                Err(self.error_at(&change.span(), message))
            }
            (None, Some(against)) => {
                Err(self.error_at(&against.span(), "expected `max_change` beside `against`, found none"))
            }
            _ => Ok(()),
        }
    }

    fn check_schema(&self, schema: &Spanned<SchemaRules>) -> Result<()> {
        let rules = schema.get_ref();
        if rules.columns.is_empty() && rules.against.is_none() {
            return Err(self.error_at(&schema.span(), "expected `columns` or `against` in [schema], found neither"));
        }
        for data_type in rules.columns.values() {
            crate::schema::file::parse_type(data_type.get_ref()).map_err(|error| {
                let message = format!("expected a type such as int64, string or timestamp: {}", error.message());
                self.error_at(&data_type.span(), message)
            })?;
        }
        Ok(())
    }

    fn check_column(&self, column: &Spanned<ColumnRules>) -> Result<()> {
        let rules = column.get_ref();
        let states = [
            rules.not_null.is_some(),
            rules.max_null_share.is_some(),
            rules.unique.is_some(),
            rules.min.is_some(),
            rules.max.is_some(),
            rules.accepted_values.is_some(),
            rules.pattern.is_some(),
        ];
        if !states.contains(&true) {
            let message = "expected a rule for the column: not_null, max_null_share, unique, min, max, \
             accepted_values or pattern";
            return Err(self.error_at(&column.span(), message));
        }
        if let Some(share) = &rules.max_null_share
            && !(0.0..=1.0).contains(share.get_ref())
        {
            return Err(
                self.error_at(&share.span(), format!("expected a share from 0 to 1, found {}", share.get_ref()))
            );
        }
        for bound in rules.min.iter().chain(&rules.max) {
            if text_of(bound.get_ref()).is_none() {
                let message = "expected a number, a date, a time or a text as bound";
                return Err(self.error_at(&bound.span(), format!("{message}, found {}", bound.get_ref().type_str())));
            }
        }
        if let (Some(least), Some(most)) = (&rules.min, &rules.max)
            && let (Some(min), Some(max)) = (number_of(least.get_ref()), number_of(most.get_ref()))
            && min > max
        {
            return Err(self.error_at(&most.span(), format!("expected a `max` of at least `min`, {min}, found {max}")));
        }
        if let Some(values) = &rules.accepted_values {
            if values.get_ref().is_empty() {
                return Err(self.error_at(&values.span(), "expected accepted values, found none"));
            }
            if let Some(other) = values.get_ref().iter().find(|value| text_of(value).is_none()) {
                let message =
                    format!("expected numbers, texts or booleans as accepted values, found {}", other.type_str());
                return Err(self.error_at(&values.span(), message));
            }
        }
        match rules.pattern.as_ref().map(|pattern| (pattern, Regex::new(pattern.get_ref()))) {
            Some((pattern, Err(error))) => {
                let last = error.to_string().lines().last().unwrap_or_default().to_owned();
                Err(self.error_at(&pattern.span(), format!("expected a regular expression: {last}")))
            }
            _ => Ok(()),
        }
    }

    fn check_splits(&self, splits: &SplitRules) -> Result<()> {
        match (&splits.by, &splits.column) {
            (by, Some(column)) if by.as_ref().is_none_or(|by| matches!(by.get_ref().as_str(), "subject" | "id")) => {
                let message = "expected `by` to name a column, because `column` states the splits";
                Err(self.error_at(&column.span(), message))
            }
            _ => Ok(()),
        }
    }
}

/// Returns a value as plain text; `None` for arrays and tables.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is) => Some(is.to_string()),
        Value::Datetime(time) => Some(time.to_string()),
        Value::Array(_) | Value::Table(_) => None,
    }
}

/// Returns a number.
fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let error = Rules::parse("rules.toml", text).unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Usage);
        format!("{}: {}", error.place(), error.message())
    }

    #[test]
    fn columns_are_in_the_order_of_the_file() {
        let rules =
            Rules::parse("r", "[columns.b]\nunique = true\n[columns.\"a.c\"]\nmin = 2020-01-01\nmax = 1e3\n").unwrap();
        assert_eq!(rules.column_rules().iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["b", "a.c"]);
        let min = rules.column_rules()[1].1.min.clone().unwrap();
        assert_eq!((text_of(min.get_ref()).as_deref(), rules.line_at(&min.span())), (Some("2020-01-01"), 4));
    }

    #[test]
    fn errors_name_line_character_and_what_was_expected() {
        let told = [
            ("", "rules.toml, line 1, character 1: expected at least one rule, found none"),
            (
                "[freshness]\nmax_age = \"1x\"\n",
                "rules.toml, line 2, character 11: expected a duration such as 90m, 26h or 7d, found `1x`",
            ),
            (
                "[volume]\nmax_change = 0.1\n",
                "rules.toml, line 2, character 14: expected `against` beside `max_change`: \"previous\", a version, a \
                 tag or a duration before now",
            ),
            (
                "[columns.a]\nmax_null_share = 2\n",
                "rules.toml, line 2, character 18: expected a share from 0 to 1, found 2",
            ),
            (
                "[columns.a]\npattern = \"(\"\n",
                "rules.toml, line 2, character 11: expected a regular expression: error: unclosed group",
            ),
            (
                "[schema]\ncolumns = { a = \"integre\" }\n",
                "rules.toml, line 2, character 17: expected a type such as int64, string or timestamp: ",
            ),
            (
                "[columns.a]\nmin = 5\nmax = 1.5\n",
                "rules.toml, line 3, character 7: expected a `max` of at least `min`, 5, found 1.5",
            ),
            ("[volume]\nmin_records = -1\n", "rules.toml, line 2, character 15: the rules cannot be read: "),
            (
                "[columns.a]\nnot_nul = true\n",
                "rules.toml, line 2, character 1: the rules cannot be read: unknown field `not_nul`, ",
            ),
            ("[columns.a\n", "rules.toml, line 1, character 11: the rules cannot be read: "),
        ];
        for (text, expected) in told {
            let found = error(text);
            assert!(found.starts_with(expected), "{text:?}: {found}");
        }
    }
}
