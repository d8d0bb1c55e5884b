//! Settings for opening stores.
//!
//! Settings are names and values as in the usual environment variables. A program that embeds the library may open
//! stores itself: tests provide stores that stop, fail or count.

use std::{fmt, sync::Arc};

use super::{location::Location, store::Store};
use crate::error::Result;

/// Opens the store rooted at a location.
pub type Opener = dyn Fn(&Location) -> Result<Arc<dyn Store>> + Send + Sync;

/// Settings of remote stores, by the names of their environment variables, e.g. `AWS_REGION`.
#[derive(Clone, Default)]
pub struct StoreSettings {
    values: Vec<(String, String)>,
    opener: Option<Arc<Opener>>,
}

impl StoreSettings {
    /// Creates settings from names and values.
    pub fn new(values: Vec<(String, String)>) -> Self {
        Self { values, opener: None }
    }

    /// Returns the settings with `opener` opening all stores.
    #[must_use]
    pub fn with_opener(self, opener: Arc<Opener>) -> Self {
        Self { opener: Some(opener), ..self }
    }

    /// Iterates over names and values.
    pub fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.values.iter()
    }

    /// Returns the function that opens stores, if one was provided.
    pub(super) fn opener(&self) -> Option<&Opener> {
        self.opener.as_deref()
    }
}

/// Values may be secret.
impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSettings")
    }
}
