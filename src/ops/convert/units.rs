//! Units of variables: a column has one, in all sources of a run and in all runs of a dataset. A value of 0 in `degC`
//! beside one of 273.15 in `K` is another value in the same column, which no reader can tell.

use std::collections::{BTreeMap, btree_map::Entry};

use super::{job::ConvertJob, options::Accept};
use crate::{
    error::{Error, Result},
    scan::RecordSource,
};

impl ConvertJob<'_> {
    /// Returns the units of the dataset's columns with those of the sources; a column keeps the one that it has.
    ///
    /// # Errors
    /// [`Kind::Changed`](crate::error::Kind::Changed) if a source states another unit, without consent.
    pub(super) fn unite_units(
        &self,
        known: &BTreeMap<String, String>,
        sources: &[RecordSource],
    ) -> Result<BTreeMap<String, String>> {
        let mut units = known.clone();
        let mut stated_by: BTreeMap<&str, &str> = BTreeMap::new();
        for source in sources {
            for (column, unit) in &source.reader.facts().units {
                match units.entry(column.clone()) {
                    Entry::Vacant(free) => {
                        stated_by.insert(column, source.file.name());
                        free.insert(unit.clone());
                    }
                    Entry::Occupied(had) if had.get() == unit => {}
                    Entry::Occupied(had) => {
                        let whose = stated_by.get(column.as_str()).copied().unwrap_or("this dataset");
                        self.check_unit(source, column, had.get(), unit, whose)?;
                    }
                }
            }
        }
        Ok(units)
    }

    fn check_unit(&self, source: &RecordSource, column: &str, expected: &str, found: &str, whose: &str) -> Result<()> {
        if self.options.accept.contains(&Accept::Units) {
            return Ok(());
        }
        let message = format!("expected the unit `{expected}`, as {whose} has, found `{found}`");
        Err(Error::changed(message)
            .at_location(source.file.uri())
            .in_column(column)
            .with_hint(
                "convert sources of other units into a dataset of their own with --out, or change their values first",
            )
            .with_hint("or, if both mean the same, accept it with --accept units"))
    }
}
