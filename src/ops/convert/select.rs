//! Which columns of rows are read, and which of them are stored.
//!
//! ```text
//! columns of a source ---read---> stored | ids, subject --encode--> stored
//! ```
//!
//! Ids may come from columns that are not stored. These travel behind the stored columns as far as the encoder.

use std::{collections::BTreeSet, sync::Arc};

use arrow::datatypes::{Field, Fields};

use crate::dataset::Settings;

/// The list of columns that means all of them.
pub(super) const ALL_COLUMNS: &str = "*";

/// Columns that are read and stored.
#[derive(Debug, Clone, Default)]
pub(super) struct Selection {
    /// Stored columns, in their order; empty for all.
    stored: Vec<String>,
    /// Columns of ids.
    ids: Vec<String>,
}

impl Selection {
    /// Returns the selection that the settings of a dataset state.
    pub(super) fn new(settings: &Settings) -> Self {
        let ids = settings.id.iter().chain(&settings.subject).cloned().collect();
        Self { stored: settings.columns.clone(), ids }
    }

    /// Returns the names of the columns that are read; `None` for all. A path stands for the column that contains it.
    pub(super) fn taken(&self) -> Option<Vec<String>> {
        if self.stored.is_empty() {
            return None;
        }
        let mut taken: BTreeSet<&str> = self.stored.iter().map(String::as_str).collect();
        for path in &self.ids {
            taken.insert(path);
            taken.extend(path.match_indices('.').map(|(dot, _)| &path[..dot]));
        }
        Some(taken.into_iter().map(str::to_owned).collect())
    }

    /// Returns the columns that are read: first the stored ones, in their order, then the others.
    pub(super) fn read(&self, fields: &Fields) -> Fields {
        let Some(taken) = self.taken() else { return fields.clone() };
        let stored = self.stored(fields);
        let others = fields.iter().filter(|field| taken.contains(field.name()) && !self.stored.contains(field.name()));
        stored.iter().chain(others).cloned().collect()
    }

    /// Returns the columns that are stored.
    pub(super) fn stored(&self, fields: &Fields) -> Fields {
        if self.stored.is_empty() {
            return fields.clone();
        }
        self.stored.iter().filter_map(|name| fields.find(name)).map(|(_, field)| Arc::<Field>::clone(field)).collect()
    }
}
