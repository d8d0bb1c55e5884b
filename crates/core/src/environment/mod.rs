//! What a run takes from the environment: the current folder, and the settings and credentials of object stores.
//!
//! The command line, the library and the Python extension take the same, so that a store that opens for one opens for
//! the others. Everything else in the crates knows what it is given, and no environment.

mod profile;

use std::path::PathBuf;

use crate::{
    error::{Error, Result},
    storage::StoreSettings,
};

/// First parts of the names of variables that are settings of stores.
const STORE_VARIABLES: [&str; 6] = ["AWS_", "GOOGLE_", "GCS_", "AZURE_", "OBJECT_STORE_", "OPENLINEAGE_"];

/// Returns the folder that relative paths are resolved against.
///
/// # Errors
/// When the folder was deleted, or cannot be read.
pub fn current_folder() -> Result<PathBuf> {
    std::env::current_dir().map_err(|e| Error::storage("the current folder cannot be read").with_cause(e))
}

/// Returns the settings of remote stores: those that are given, those of the environment, and those in the files of
/// other command lines. What is given for a kind of store is all that counts for it, so that a key is never used with
/// the token of another one.
pub fn store_settings(given: Vec<(String, String)>) -> StoreSettings {
    let is_given = |start: &str| given.iter().any(|(name, _)| name.starts_with(start));
    let starts: Vec<&str> = STORE_VARIABLES.into_iter().filter(|start| !is_given(start)).collect();
    let (has_aws, has_google) = (is_given("AWS_"), is_given("GOOGLE_"));
    let named = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| starts.iter().any(|start| name.starts_with(start)));
    let mut settings: Vec<(String, String)> = named.collect();
    settings.extend(given);
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if !has_aws {
        profile::add_profile_settings(&mut settings, environment);
    }
    if !has_google {
        profile::add_google(&mut settings, environment("HOME"));
    }
    StoreSettings::new(settings)
}
