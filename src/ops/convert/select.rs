//! Which columns of rows are read, and which of them are stored.
//!
//! ```text
//! columns of a source ---read---> stored | ids | tested --gate--> stored | ids --encode--> stored
//! ```
//!
//! Ids, the splits of records and what they are duplicates by may come from columns that are not stored. These travel
//! behind the stored columns as far as the encoder. Columns that only the condition of the run tests travel behind them
//! as far as the condition.

use std::{collections::BTreeSet, sync::Arc};

use arrow::datatypes::{Field, Fields};

use crate::{
    dataset::Settings,
    error::Result,
    exec::gates::select::SelectGate,
    record::{
        dedup::DedupBy,
        filter::{BoundFilter, Filter},
        split::SplitBy,
    },
    schema::{ByName, schema_of},
};

/// The list of columns that means all of them.
pub(super) const ALL_COLUMNS: &str = "*";

/// Columns that are read and stored.
#[derive(Debug, Clone, Default)]
pub(super) struct ConvertSelection {
    /// Stored columns, in their order; empty for all.
    stored: Vec<String>,
    /// Columns of ids.
    ids: Vec<String>,
    /// Condition on rows.
    filter: Option<Filter>,
}

impl ConvertSelection {
    /// Returns the selection that the settings of a dataset state, with a condition.
    pub(super) fn new(settings: &Settings, filter: Option<Filter>) -> Self {
        let split_by = match settings.split.as_ref().map(|split| &split.by) {
            Some(SplitBy::Column(name)) => Some(name),
            _ => None,
        };
        let dedup_by = settings.dedup.iter().flat_map(DedupBy::columns);
        let ids = settings.id.iter().chain(&settings.subject).chain(split_by).chain(dedup_by).cloned().collect();
        Self { stored: settings.columns.clone(), ids, filter }
    }

    /// Returns the columns, or paths, that the condition tests.
    pub(super) fn tested_columns(&self) -> BTreeSet<&str> {
        self.filter.as_ref().map(Filter::columns).unwrap_or_default()
    }

    /// Binds the condition to the columns, of which all that are empty have the type null.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if it does not suit them.
    pub(super) fn bind_filter(&self, fields: &Fields) -> Result<Option<BoundFilter>> {
        let filter = self.filter.as_ref().filter(|_| !fields.is_empty());
        filter.map(|filter| filter.bind(fields)).transpose()
    }

    /// Returns the gate that omits rows and columns; `None` if all are kept. `prunes` is whether rows need not be
    /// read to know that they do not match.
    ///
    /// # Errors
    /// As [`bind_filter`](Self::bind).
    pub(super) fn select_gate(&self, fields: &Fields, prunes: bool) -> Result<Option<SelectGate>> {
        let filter = self.bind_filter(fields)?;
        if filter.is_none() && self.stored.is_empty() {
            return Ok(None);
        }
        Ok(Some(SelectGate { filter, carried: schema_of(&self.encoder_columns(fields)), prunes }))
    }

    /// Returns the names of the columns that are read; `None` for all. A path stands for the column that contains it.
    pub(super) fn names_to_read(&self) -> Option<Vec<String>> {
        if self.stored.is_empty() {
            return None;
        }
        let mut taken: BTreeSet<&str> = self.stored.iter().map(String::as_str).collect();
        taken.extend(with_containers(self.ids.iter().map(String::as_str)));
        taken.extend(with_containers(self.tested_columns().into_iter()));
        Some(taken.into_iter().map(str::to_owned).collect())
    }

    /// Returns the columns that are read: first those that the encoder gets, then those that only the condition needs.
    pub(super) fn read(&self, fields: &Fields) -> Fields {
        let Some(taken) = self.names_to_read() else { return fields.clone() };
        let carried = self.encoder_columns(fields);
        let known = ByName::new(&carried);
        let others = fields.iter().filter(|field| taken.contains(field.name()) && known.find(field.name()).is_none());
        carried.iter().chain(others).cloned().collect()
    }

    /// Returns the columns that the encoder gets: first the stored ones, in their order, then those that only ids come
    /// from.
    fn encoder_columns(&self, fields: &Fields) -> Fields {
        if self.stored.is_empty() {
            return fields.clone();
        }
        let ids: BTreeSet<&str> = with_containers(self.ids.iter().map(String::as_str)).collect();
        let stored: BTreeSet<&str> = self.stored.iter().map(String::as_str).collect();
        let is_other = |name: &str| ids.contains(name) && !stored.contains(name);
        let others = |field: &&Arc<Field>| is_other(field.name());
        self.stored_columns(fields).iter().chain(fields.iter().filter(others)).cloned().collect()
    }

    /// Returns the columns that are stored.
    pub(super) fn stored_columns(&self, fields: &Fields) -> Fields {
        if self.stored.is_empty() {
            return fields.clone();
        }
        let fields = ByName::new(fields);
        self.stored.iter().filter_map(|name| fields.find(name)).map(|(_, field)| Arc::<Field>::clone(field)).collect()
    }
}

/// Returns paths, and all columns that may contain them.
fn with_containers<'a>(paths: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    paths.flat_map(|path| path.match_indices('.').map(move |(dot, _)| &path[..dot]).chain(std::iter::once(path)))
}
