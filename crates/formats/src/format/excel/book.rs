//! A workbook of any kind: its sheets, and the cells of one of them.
//!
//! xlsx, xlsm and xlsb are read as streams by the crate calamine, behind a [`Package`]. It reads a sheet of xls as a
//! whole, from a stream whose sizes were checked before ([`biff`]). Sheets of OpenDocument are read by
//! [`ods`].

use std::{io::Cursor, sync::MutexGuard};

use calamine::{Data, DataRef, Reader, SheetType, SheetVisible, Xls, Xlsb, Xlsx, XlsxError};
use memchr::memmem;

use super::{
    biff,
    cells::{CellValue, column_letters},
    dates::{from_iso, from_serial, span_of_days, span_of_iso},
    ods,
    options::Room,
    package::{Package, list_members},
    sheet::SheetBuilder,
};
use crate::{
    error::{Error, Result},
    format::{guard::guard_decoding, ranged::RangedInput},
};

/// Format name in errors.
const WORKBOOK: &str = "a workbook";

/// Cells after which the [`Package`] is told that the decoder holds none.
const CELLS_PER_MARK: u32 = 256;

/// The kinds of workbooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookForm {
    /// Office Open XML.
    Xlsx,
    /// The binary form of it.
    Xlsb,
    /// OpenDocument.
    Ods,
    /// Excel 97 to 2003, and 5.
    Xls,
}

/// What is known of a sheet before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SheetInfo {
    pub(super) name: String,
    pub(super) is_visible: bool,
}

/// A workbook that is open.
pub(super) struct Book<'a> {
    inner: Inner,
    /// Held while others that take much memory wait.
    _turn: Option<MutexGuard<'a, ()>>,
    /// The source, for errors.
    name: String,
    /// Sheets of cells, in their order.
    pub(super) sheets: Vec<SheetInfo>,
}

enum Inner {
    Xlsx(Box<Xlsx<Package>>, Package),
    Xlsb(Box<Xlsb<Package>>, Package),
    Xls(Box<Xls<Cursor<Vec<u8>>>>),
    Ods(ods::OdsBook),
}

impl<'a> Book<'a> {
    /// Opens a workbook. The room bounds the bytes of texts that cells share, and of what is decoded as a whole.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is damaged, has a password, or is a bomb.
    pub(super) fn open(form: BookForm, input: RangedInput, room: &'a Room, name: &str) -> Result<Self> {
        let package = |input: RangedInput| {
            let members = list_members(&input)?;
            Package::open(input, members, room.most_texts())
        };
        let mut turn = None;
        let inner = match form {
            BookForm::Xlsx => {
                let package = package(input)?;
                turn = room.take_turn(package.text_bytes());
                let book = decode(&package, name, || Xlsx::new(package.clone()))?;
                Inner::Xlsx(Box::new(book), package)
            }
            BookForm::Xlsb => {
                let package = package(input)?;
                turn = room.take_turn(package.text_bytes());
                let book = decode(&package, name, || Xlsb::new(package.clone()))?;
                Inner::Xlsb(Box::new(book), package)
            }
            BookForm::Ods => Inner::Ods(ods::OdsBook::open(package(input)?)?),
            BookForm::Xls => {
                let checked = biff::checked_container(&input, room.memory())?;
                turn = room.take_turn(checked.needed);
                Inner::Xls(Box::new(guarded(name, || Xls::new(Cursor::new(checked.container)).map_err(damaged))?))
            }
        };
        let sheets = match &inner {
            Inner::Xlsx(book, package) => {
                package.end_opening();
                sheets_of(book.sheets_metadata())
            }
            Inner::Xlsb(book, package) => {
                package.end_opening();
                sheets_of(book.sheets_metadata())
            }
            Inner::Xls(book) => sheets_of(book.sheets_metadata()),
            Inner::Ods(book) => book.sheets(),
        };
        Ok(Self { inner, _turn: turn, name: name.to_owned(), sheets })
    }

    /// Returns whether a sheet has a cell that is not empty.
    ///
    /// # Errors
    /// When it is damaged before that cell.
    pub(super) fn has_data(&mut self, name: &str) -> Result<bool> {
        let is_filled = |value: &DataRef<'_>| !matches!(value, DataRef::Empty);
        match &mut self.inner {
            Inner::Ods(book) => Ok(book.has_data(name)),
            Inner::Xls(book) => guarded(&self.name, || {
                let range = book.worksheet_range(name).map_err(damaged)?;
                Ok(range.used_cells().next().is_some())
            }),
            Inner::Xlsx(book, package) => decode_within(package, &self.name, || {
                let mut cells = match book.worksheet_cells_reader(name) {
                    Err(XlsxError::NotAWorksheet(_)) => return Ok(false),
                    cells => cells.map_err(damaged)?,
                };
                while let Some(cell) = cells.next_cell().map_err(damaged)? {
                    if is_filled(cell.get_value()) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }),
            Inner::Xlsb(book, package) => decode_within(package, &self.name, || {
                let mut cells = book.worksheet_cells_reader(name).map_err(damaged)?;
                while let Some(cell) = cells.next_cell().map_err(damaged)? {
                    if is_filled(cell.get_value()) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }),
        }
    }

    /// Passes the cells of a sheet to `builder`.
    ///
    /// # Errors
    /// When the sheet is damaged; when `builder` fails.
    pub(super) fn read_sheet(&mut self, name: &str, builder: &mut SheetBuilder<'_>) -> Result<()> {
        match &mut self.inner {
            Inner::Xlsx(book, package) => {
                decode_within(package, &self.name, || read_xlsx(book, package, name, builder))
            }
            Inner::Xlsb(book, package) => {
                decode_within(package, &self.name, || read_xlsb(book, package, name, builder))
            }
            Inner::Xls(book) => guarded(&self.name, || read_xls(book, name, builder)),
            Inner::Ods(book) => guarded(&self.name, || book.read_sheet(name, builder)),
        }
    }
}

fn sheets_of(sheets: &[calamine::Sheet]) -> Vec<SheetInfo> {
    let of_cells = sheets.iter().filter(|sheet| sheet.typ == SheetType::WorkSheet);
    let info = |sheet: &calamine::Sheet| SheetInfo {
        name: sheet.name.clone(),
        is_visible: sheet.visible == SheetVisible::Visible,
    };
    of_cells.map(info).collect()
}

/// Calls a decoder, whose panics become errors.
fn guarded<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    guard_decoding(WORKBOOK, name, work)
}

/// Calls a decoder; what failed beneath it comes first, whatever it made of that.
fn decode_within<T>(package: &Package, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = guarded(name, work);
    package.take_fault().map_or(done, |fault| Err(fault.at_location(name)))
}

fn decode<T, E: std::error::Error + Send + Sync + 'static>(
    package: &Package,
    name: &str,
    work: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<T> {
    decode_within(package, name, || work().map_err(damaged))
}

fn damaged(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let cause: Box<dyn std::error::Error + Send + Sync> = Box::new(error);
    Error::input("expected a workbook, found one that cannot be decoded").with_cause(cause)
}

/// Adds the place to the error of a decoder.
fn damaged_after(builder: &SheetBuilder<'_>, name: &str) -> impl Fn(Error) -> Error {
    let row = builder.row();
    let place = if row == 0 { "before its first cell".to_owned() } else { format!("in or after row {row}") };
    let message = format!("expected cells of the sheet `{name}`, found damage {place}");
    move |error| Error::input(message.clone()).with_cause(error)
}

fn read_xlsx(book: &mut Xlsx<Package>, package: &Package, name: &str, builder: &mut SheetBuilder<'_>) -> Result<()> {
    let is_1904 = book.has_1904_epoch();
    let mut cells = match book.worksheet_cells_reader(name) {
        // Some writers list a chart as a sheet of cells.
        Err(XlsxError::NotAWorksheet(_)) => return Ok(()),
        cells => cells.map_err(damaged).map_err(damaged_after(builder, name))?,
    };
    let mut unmarked = 0;
    loop {
        let next = cells.next_cell_with_formula_metadata();
        let Some(cell) = next.map_err(damaged).map_err(|e| damaged_after(builder, name)(e))? else { break };
        unmarked += 1;
        if unmarked == CELLS_PER_MARK {
            package.mark_cell();
            unmarked = 0;
        }
        let (row, column) = cell.pos;
        match value_of(&cell.value, is_1904) {
            Some(value) => builder.take_cell(row, column, value)?,
            None if cell.formula.is_some() => builder.count_uncomputed(row, column),
            None => {}
        }
    }
    drop(cells);
    note_merged(&package.drain_part()?, builder);
    Ok(())
}

/// Notes the merged regions that stand behind the cells of a sheet: `<mergeCell ref="A1:B2"/>`.
fn note_merged(tail: &[u8], builder: &mut SheetBuilder<'_>) {
    let start = memmem::find(tail, b"mergeCells").unwrap_or(tail.len());
    for at in memmem::find_iter(&tail[start..], b"mergeCell ") {
        let tag = &tail[start + at..];
        let tag = &tag[..memchr::memchr(b'>', tag).unwrap_or(tag.len())];
        let region = memmem::find(tag, b"ref=").and_then(|at| tag.get(at + 5..));
        let region =
            region.and_then(|region| std::str::from_utf8(region.split(|b| matches!(b, b'"' | b'\'')).next()?).ok());
        if let Some(region) = region {
            builder.oddities.merged += 1;
            builder.oddities.first_merged.get_or_insert_with(|| region.to_owned());
        }
    }
}

fn read_xlsb(book: &mut Xlsb<Package>, package: &Package, name: &str, builder: &mut SheetBuilder<'_>) -> Result<()> {
    let is_1904 = book.has_1904_epoch();
    let mut cells = book.worksheet_cells_reader(name).map_err(damaged).map_err(damaged_after(builder, name))?;
    let mut unmarked = 0;
    loop {
        let next = cells.next_cell().map_err(damaged).map_err(|e| damaged_after(builder, name)(e))?;
        let Some(cell) = next else { break };
        unmarked += 1;
        if unmarked == CELLS_PER_MARK {
            package.mark_cell();
            unmarked = 0;
        }
        let (row, column) = cell.get_position();
        if let Some(value) = value_of(cell.get_value(), is_1904) {
            builder.take_cell(row, column, value)?;
        }
    }
    drop(cells);
    let tail = package.drain_part()?;
    // BrtBeginMergeCells with their number, followed by the first BrtMergeCell: its rows and columns.
    let start =
        memmem::find_iter(&tail, &[0xb1, 0x01, 4]).find(|at| tail.get(at + 7..at + 10) == Some(&[0xb0, 0x01, 16]));
    let number = |at: usize| tail.get(at..at + 4).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)));
    if let Some((start, count)) = start.and_then(|at| Some((at, number(at + 3)?))) {
        builder.oddities.merged = u64::from(count);
        let bounds: Vec<u32> = (0..4).filter_map(|bound| number(start + 10 + 4 * bound)).collect();
        if let [top, bottom, left, right] = bounds[..] {
            builder.oddities.first_merged = Some(region(top, left, bottom, right));
        }
    }
    Ok(())
}

fn region(top: u32, left: u32, bottom: u32, right: u32) -> String {
    let row = |row: u32| u64::from(row) + 1;
    let letters = |column: u32| column_letters(column.min(u32::from(u16::MAX)));
    format!("{}{}:{}{}", letters(left), row(top), letters(right), row(bottom))
}

fn read_xls(book: &mut Xls<Cursor<Vec<u8>>>, name: &str, builder: &mut SheetBuilder<'_>) -> Result<()> {
    let is_1904 = book.has_1904_epoch();
    let range = book.worksheet_range(name).map_err(damaged)?;
    let (top, left) = range.start().unwrap_or_default();
    for (row, cells) in (top..).zip(range.rows()) {
        for (column, cell) in (left..).zip(cells) {
            if let Some(value) = value_of(&as_ref(cell), is_1904) {
                builder.take_cell(row, column, value)?;
            }
        }
    }
    let merged = book.merge_cells_by_sheet_name(name).map_err(damaged)?;
    builder.oddities.merged = merged.len() as u64;
    builder.oddities.first_merged = merged.first().map(|one| region(one.start.0, one.start.1, one.end.0, one.end.1));
    Ok(())
}

fn as_ref(cell: &Data) -> DataRef<'_> {
    match cell {
        Data::Int(number) => DataRef::Int(*number),
        Data::Float(number) => DataRef::Float(*number),
        Data::String(text) => DataRef::SharedString(text),
        Data::Bool(value) => DataRef::Bool(*value),
        Data::DateTime(value) => DataRef::DateTime(*value),
        Data::DateTimeIso(text) => DataRef::DateTimeIso(text.clone()),
        Data::DurationIso(text) => DataRef::DurationIso(text.clone()),
        Data::Error(error) => DataRef::Error(error.clone()),
        Data::Empty => DataRef::Empty,
        // Rich text is text.
        #[expect(unreachable_patterns, reason = "other kinds of cells may be added")]
        _ => DataRef::Empty,
    }
}

/// Returns the value of a cell; `None` if it is empty.
#[expect(clippy::cast_precision_loss, reason = "whole numbers of xls and xlsb have 30 bits")]
fn value_of<'c>(value: &'c DataRef<'_>, is_1904: bool) -> Option<CellValue<'c>> {
    Some(match value {
        DataRef::Int(number) => CellValue::Number(*number as f64),
        DataRef::Float(number) => CellValue::Number(*number),
        DataRef::String(text) => CellValue::Text(text),
        DataRef::SharedString(text) => CellValue::Text(text),
        DataRef::Bool(value) => CellValue::Bool(*value),
        DataRef::DateTime(value) if value.is_duration() => span_of_days(value.as_f64()),
        DataRef::DateTime(value) => from_serial(value.as_f64(), is_1904),
        DataRef::DateTimeIso(text) => from_iso(text).unwrap_or(CellValue::Text(text)),
        DataRef::DurationIso(text) => span_of_iso(text).unwrap_or(CellValue::Text(text)),
        DataRef::Error(_) => CellValue::Error,
        DataRef::Empty => return None,
    })
}
