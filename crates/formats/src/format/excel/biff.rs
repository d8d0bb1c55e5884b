//! The stream of an xls workbook: records, whose sizes are checked before a decoder makes tables of them.
//!
//! ```text
//! record    type u16   length u16   value           a long value goes on in records of type 3c
//! globals   BOF   ...   BOUNDSHEET: offset of a sheet u32, state, kind, name   ...   EOF
//! sheet     BOF   DIMENSIONS   cells: row u16, column u16, ...   EOF      tables of other kinds lie within
//! ```
//!
//! The decoder makes a table of all cells between the first and the last one of each sheet. It reserves memory for what
//! DIMENSIONS states, which nothing else follows from, so that is set to one cell.

use std::collections::HashSet;

use super::container::{Container, container_of};
use crate::{
    error::{Error, Result},
    format::ranged::RangedInput,
    units::Size,
};

/// Divisor of the memory that gives the most bytes of a file, which is held a few times.
const FILE_SHARE: u64 = 8;

/// Most sheets of a workbook.
const MOST_SHEETS: usize = 4096;

/// Bytes that a decoder takes for a value, one in a list of cells, and the text of a formula.
const VALUE_BYTES: u64 = 32;
const CELL_BYTES: u64 = 48;
const FORMULA_BYTES: u64 = 24;

const BOF: u16 = 0x0809;
const EOF: u16 = 0x000a;
const DIMENSIONS: u16 = 0x0200;
const FORMULA: u16 = 0x0006;
const MULRK: u16 = 0x00bd;
/// Records of one cell: number, texts, boolean or error, and packed number.
const CELLS: [u16; 6] = [0x0203, 0x0204, 0x00d6, 0x0205, 0x027e, 0x00fd];

/// What to do about a workbook with a password.
pub(super) fn password_error() -> Error {
    Error::input("expected a workbook without a password, found an encrypted one")
        .with_hint("open it with its password, and save it without")
}

/// A workbook whose sizes were checked.
pub(super) struct CheckedBook {
    /// A container of nothing but its stream.
    pub(super) container: Vec<u8>,
    /// Bytes that its sheets take while they are decoded.
    pub(super) needed: u64,
}

/// Returns the workbook as a container of nothing but its stream, after its sizes were checked.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if it is encrypted, damaged, or would take too much memory.
pub(super) fn checked_container(input: &RangedInput, memory: u64) -> Result<CheckedBook> {
    let bytes = input.byte_count();
    if bytes > memory / FILE_SHARE {
        return Err(Error::input(format!(
            "expected an xls workbook of at most {}, found {}",
            Size(memory / FILE_SHARE),
            Size(bytes)
        ))
        .with_hint("raise --memory; such a file may take an eighth of it")
        .with_hint("or save it as xlsx, which is read piece by piece"));
    }
    let container = Container::open(input.read_range(0..bytes)?)?;
    if container.has_stream("EncryptedPackage") {
        return Err(password_error());
    }
    for name in ["Workbook", "Book"] {
        if let Some(mut stream) = container.stream(name)? {
            drop(container);
            let needed = check_stream(&mut stream, memory)?;
            return Ok(CheckedBook { container: container_of(name, &stream), needed });
        }
    }
    Err(Error::input("expected a workbook in a compound file, found none: it is another kind of document"))
}

/// A record: its type, and where its value begins and ends.
struct Record {
    kind: u16,
    start: usize,
    end: usize,
}

/// Returns the record at an offset; `None` at the end.
fn record_at(stream: &[u8], at: usize) -> Result<Option<Record>> {
    let Some(head) = stream.get(at..at + 4) else { return Ok(None) };
    let (kind, length) = (u16::from_le_bytes([head[0], head[1]]), u16::from_le_bytes([head[2], head[3]]));
    let (start, end) = (at + 4, at + 4 + usize::from(length));
    if end > stream.len() {
        let message = format!("expected a record of {length} bytes in the workbook, found its end");
        return Err(Error::input(message).at_byte(at as u64));
    }
    Ok(Some(Record { kind, start, end }))
}

fn u16_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 2).map_or(0, |two| u64::from(u16::from_le_bytes([two[0], two[1]])))
}

/// Cells between a first and a last one.
#[derive(Default)]
struct Bounds {
    rows: Option<(u64, u64)>,
    columns: (u64, u64),
    count: u64,
}

impl Bounds {
    fn add(&mut self, row: u64, first: u64, last: u64) {
        self.count += last.saturating_sub(first) + 1;
        let (rows, columns) = (self.rows.unwrap_or((row, row)), self.columns);
        self.columns = match self.rows {
            None => (first, last),
            Some(_) => (columns.0.min(first), columns.1.max(last)),
        };
        self.rows = Some((rows.0.min(row), rows.1.max(row)));
    }

    fn area(&self) -> u64 {
        self.rows.map_or(0, |(top, bottom)| (bottom - top + 1) * (self.columns.1 - self.columns.0 + 1))
    }
}

/// Checks the sizes of all sheets, and sets those that are only stated. Returns the bytes that they take.
fn check_stream(stream: &mut [u8], memory: u64) -> Result<u64> {
    let sheets = sheet_offsets(stream)?;
    let (mut walked, mut all, mut largest) = (0_u64, 0_u64, 0_u64);
    for at in sheets {
        let (end, sizes) = measure_sheet(stream, at)?;
        walked += (end - at) as u64;
        all = all.saturating_add(sizes.kept);
        largest = largest.max(sizes.passing);
        if walked > 4 * stream.len() as u64 {
            return Err(Error::input("expected sheets one after the other, found some within others"));
        }
    }
    let needed = all.saturating_add(largest);
    if needed > memory / 4 * 3 {
        return Err(Error::input(format!(
            "expected sheets of xls that fit into three quarters of the memory, found some of {}",
            Size(needed)
        ))
        .with_hint("raise --memory")
        .with_hint("or save it as xlsx, which is read piece by piece"));
    }
    Ok(needed)
}

/// Returns where the sheets begin.
fn sheet_offsets(stream: &[u8]) -> Result<Vec<usize>> {
    let (mut at, mut sheets) = (0, HashSet::new());
    while let Some(record) = record_at(stream, at)? {
        match record.kind {
            0x002f => return Err(password_error()),
            0x0085 => {
                let value = &stream[record.start..record.end];
                let offset = u16_at(value, 0) | u16_at(value, 2) << 16;
                let offset = usize::try_from(offset).ok().filter(|offset| *offset < stream.len());
                let offset = offset.ok_or_else(|| {
                    Error::input("expected a sheet within the workbook, found one beyond it").at_byte(at as u64)
                })?;
                if !sheets.insert(offset) || sheets.len() > MOST_SHEETS {
                    let message = format!("expected at most {MOST_SHEETS} different sheets, found more, or one twice");
                    return Err(Error::input(message).at_byte(at as u64));
                }
            }
            EOF => break,
            _ => {}
        }
        at = record.end;
    }
    let mut sheets: Vec<usize> = sheets.into_iter().collect();
    sheets.sort_unstable();
    Ok(sheets)
}

/// Bytes that a sheet takes.
struct Sizes {
    /// As long as the workbook is open.
    kept: u64,
    /// While it is decoded or read.
    passing: u64,
}

/// Returns where a sheet ends, and what it takes.
fn measure_sheet(stream: &mut [u8], start: usize) -> Result<(usize, Sizes)> {
    let (mut at, mut depth) = (start, 0);
    let (mut values, mut formulas) = (Bounds::default(), Bounds::default());
    while let Some(Record { kind, start, end }) = record_at(stream, at)? {
        at = end;
        let value = &mut stream[start..end];
        let (row, column) = (u16_at(value, 0), u16_at(value, 2));
        match kind {
            BOF => depth += 1,
            EOF if depth <= 1 => break,
            EOF => depth -= 1,
            _ if depth > 1 => {}
            DIMENSIONS => value.iter_mut().for_each(|byte| *byte = 0),
            MULRK => values.add(
                row,
                column,
                column.max((column + (value.len() as u64).saturating_sub(6) / 6).saturating_sub(1)),
            ),
            FORMULA => {
                values.add(row, column, column);
                formulas.add(row, column, column);
            }
            _ if CELLS.contains(&kind) => values.add(row, column, column),
            _ => {}
        }
    }
    let kept = values.area() * VALUE_BYTES + formulas.area() * FORMULA_BYTES;
    let passing = values.area() * VALUE_BYTES + (values.count + formulas.count) * CELL_BYTES;
    Ok((at, Sizes { kept, passing }))
}
