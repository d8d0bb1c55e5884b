//! What there is to say of an input format.

use std::fmt;

use arrow::datatypes::Field;

use super::{super::source::RecordSource, start::Start};
use crate::error::Result;

/// A format that sources may have.
pub(in crate::scan) struct Format {
    /// Its name on the command line and in the log.
    pub(super) name: &'static str,
    /// What the help says of it.
    pub(super) help: &'static str,
    /// What a name with one of its endings states.
    pub(super) states: &'static str,
    /// Last extensions of its files, in lower case.
    pub(super) endings: &'static [&'static str],
    /// What it holds.
    pub(super) class: Class,
    /// Opens a file if its first bytes are those of this format, or of one whose files are told apart by opening them;
    /// `None` for text, folders and anything.
    pub(super) open: Option<OpenFormat>,
    /// Fails for a type that its values cannot have; `None` if they have types of their own.
    pub(super) check_type: Option<fn(&Field) -> Result<()>>,
}

/// Opens a file by its start; returns `None` if it is of another format.
pub(super) type OpenFormat = fn(&Start<'_>) -> Result<Option<RecordSource>>;

/// What the files of a format hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Records of text, whose values have no types.
    Text,
    /// Tables whose columns have types.
    Table,
    /// Samples, or rows that were written as such.
    Samples,
    /// Arrays.
    Arrays,
    /// Anything.
    Files,
}

/// An input format, as `--from` names it.
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub struct InputFormat(pub(super) &'static Format);

impl InputFormat {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns what the help says of it.
    pub fn help(self) -> &'static str {
        self.0.help
    }

    /// Returns the last extensions of its files, in lower case.
    pub fn endings(self) -> &'static [&'static str] {
        self.0.endings
    }

    /// Returns whether columns have their own types, which may conflict with those of another source.
    pub fn is_typed(self) -> bool {
        matches!(self.0.class, Class::Table | Class::Arrays)
    }

    /// Returns whether records are text whose values have no types.
    pub fn is_text(self) -> bool {
        self.0.class == Class::Text
    }

    /// Returns whether sources contain arrays.
    pub fn is_array(self) -> bool {
        self.0.class == Class::Arrays
    }

    /// Fails for a type that its values cannot have.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) with the types that they can have.
    pub fn check_type(self, field: &Field) -> Result<()> {
        self.0.check_type.map_or(Ok(()), |check| check(field))
    }
}

impl PartialEq for InputFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for InputFormat {}

impl fmt::Debug for InputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<InputFormat> for &'static str {
    fn from(format: InputFormat) -> Self {
        format.name()
    }
}
