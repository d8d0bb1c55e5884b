//! Options of an erasure.

use super::kinds::EraseId;
use crate::storage::Location;

/// Options of `erase`.
#[derive(Debug, Clone, Default)]
pub struct EraseOptions {
    /// Ids of the records to erase.
    pub ids: Vec<EraseId>,
    /// Whether the records are also erased from older versions.
    pub all_versions: bool,
    /// Reason for the erasure, recorded in the log.
    pub reason: Option<String>,
    /// Destination of a copy of the receipt.
    pub receipt: Option<Location>,
    /// Plan without erasing anything.
    pub dry_run: bool,
}
