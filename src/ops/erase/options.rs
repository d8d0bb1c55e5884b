//! Options of an erasure.

use super::kinds::EraseId;
use crate::storage::Location;

/// What to erase, and how.
#[derive(Debug, Clone, Default)]
pub struct EraseOptions {
    /// Whom, or what.
    pub ids: Vec<EraseId>,
    /// Whether older versions lose the records as well.
    pub all_versions: bool,
    /// Why; it is kept.
    pub reason: Option<String>,
    /// File for the receipt, besides the one in the dataset.
    pub receipt: Option<Location>,
    /// Only plan.
    pub dry_run: bool,
}
