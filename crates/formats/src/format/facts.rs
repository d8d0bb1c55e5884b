//! What a reader knows of its source before records are read, as a value: whoever wraps a reader copies the value and
//! changes a field, so no wrapper can forget one.

use std::sync::Arc;

use crate::array::origin::Layout;

/// Facts of a source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReaderFacts {
    /// Whether `ranges` ignores its input, because the reader holds the source itself and reads it out of order.
    pub reads_own_source: bool,
    /// Whether bytes of the source other than gaps are never read, as those of columns that are not taken.
    pub skips_bytes: bool,
    /// Whether records may take far more memory than their bytes, because they lie in compressed blocks.
    pub packs_records: bool,
    /// Whether the reader itself omits columns that are not taken.
    pub selects_columns: bool,
    /// Whether records are samples rather than rows.
    pub yields_samples: bool,
    /// Names of the columns, when the source has a fixed set of them; `None` when each record may have its own.
    pub columns: Option<Vec<String>>,
    /// Number of rows, if it is known without reading them.
    pub rows: Option<u64>,
    /// The sheet that the records are rows of, if they are.
    pub sheet: Option<Arc<SheetRows>>,
    /// Number of blank lines before the records, which no range contains.
    pub blank_lines_before: u64,
    /// Number of lines before the records that are not records, which no range contains and the notes name.
    pub lines_skipped: u64,
    /// How the source is read, where its records do not show it.
    pub notes: Vec<String>,
    /// What users should know of the source before it is read, such as what is not taken from it.
    pub remarks: Vec<String>,
    /// Units of columns that a source states, without those of time, which decide what a value is.
    pub units: Vec<(String, String)>,
    /// Layout of records in the arrays that they are slices of.
    pub layout: Option<Arc<Layout>>,
}

/// Where the records of a source are in the sheet that they are rows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SheetRows {
    /// Name of the sheet.
    pub name: String,
    /// Rows before the first record.
    pub rows_before: u64,
}

impl SheetRows {
    /// Describes the place of a record, which is counted from 1.
    pub fn describe_row(&self, record: u64) -> String {
        format!("row {} of the sheet `{}`", self.rows_before + record, self.name)
    }
}

/// Facts of a source of rows of which nothing is known.
pub static ROWS: ReaderFacts = base_facts(false, false);

/// Facts of a source of samples.
pub static SAMPLES: ReaderFacts = base_facts(false, true);

/// Facts of a source that its reader holds.
pub static HELD: ReaderFacts = base_facts(true, false);

const fn base_facts(reads_own_source: bool, yields_samples: bool) -> ReaderFacts {
    ReaderFacts {
        reads_own_source,
        yields_samples,
        selects_columns: false,
        skips_bytes: false,
        packs_records: false,
        columns: None,
        rows: None,
        sheet: None,
        blank_lines_before: 0,
        lines_skipped: 0,
        notes: Vec::new(),
        remarks: Vec::new(),
        units: Vec::new(),
        layout: None,
    }
}

impl ReaderFacts {
    /// Returns the notes as one text; `None` if there are none.
    pub fn joined_notes(&self) -> Option<String> {
        (!self.notes.is_empty()).then(|| self.notes.join("; "))
    }
}
