//! How workbooks are read where they do not say, whether or not there is a reader of them.

use std::sync::Arc;

#[cfg(feature = "excel")]
pub use super::room::Room;

/// Room for decoded rows, of which a build without readers takes none.
#[cfg(not(feature = "excel"))]
#[derive(Debug, Default)]
pub struct Room;

#[cfg(not(feature = "excel"))]
impl Room {
    /// Creates the room of a run.
    pub fn with_memory(_: u64) -> Self {
        Self
    }
}

/// How a workbook is read.
#[derive(Debug, Clone)]
pub struct ExcelOptions {
    /// Name of the sheet; `None` takes the only visible one with data.
    pub sheet: Option<String>,
    /// Whether the first row names the columns.
    pub has_header: bool,
    /// Rows of the sheet before the header, or the first record, that are no records.
    pub skip: u64,
    /// Texts that mean null.
    pub nulls: Vec<String>,
    /// Room for decoded rows, which all workbooks of a run share.
    pub room: Arc<Room>,
}

impl Default for ExcelOptions {
    fn default() -> Self {
        Self { sheet: None, has_header: true, skip: 0, nulls: Vec::new(), room: Arc::default() }
    }
}
