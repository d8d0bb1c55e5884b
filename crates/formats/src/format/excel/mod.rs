//! Workbooks of Excel and OpenDocument: one of their sheets as a table.
//!
//! ```text
//! xlsx, xlsm, xlsb, ods   a zip archive of parts      package  -> book -> sheet -> kept -> ranges
//! xls                     a compound file             container, biff ->
//! ```
//!
//! A cell has a value of its own, whatever is above or below it, so types follow from all cells of a sheet. It is
//! decoded once, when it is opened, and its rows wait as bytes until they are converted (`kept`).
//!
//! Decoders allocate what a file states and may panic. What they get is checked before (`watch`, `biff`), and they are
//! called behind the guard. Without the feature `excel`, only the [options] exist.

#[cfg(feature = "excel")]
mod biff;
#[cfg(feature = "excel")]
mod book;
#[cfg(feature = "excel")]
mod cells;
#[cfg(feature = "excel")]
mod columns;
#[cfg(feature = "excel")]
mod container;
#[cfg(feature = "excel")]
mod dates;
#[cfg(feature = "excel")]
mod kept;
#[cfg(feature = "excel")]
mod ods;
pub mod options;
#[cfg(feature = "excel")]
mod package;
#[cfg(feature = "excel")]
mod reader;
#[cfg(feature = "excel")]
mod room;
#[cfg(feature = "excel")]
mod sheet;
#[cfg(all(test, feature = "excel"))]
mod tests;
#[cfg(feature = "excel")]
mod watch;

#[cfg(feature = "excel")]
pub use self::{
    book::BookForm,
    reader::{ExcelReader, ReopenBook, sniff},
};
