//! The table in a sheet: takes its cells in order, and decides what is header, what are records and which types the
//! columns have.
//!
//! ```text
//!      A     B       C
//! 1   Visits of March           --read skip=2
//! 2
//! 3   id    when    weight      the first row that is not empty: the header
//! 4   1     ...     7.5         record 1
//! 5                             record 2, of nulls: rows follow
//! 6   2     ...     8           record 3
//! 7                             nothing: no row follows
//! ```

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

use super::{
    cells::{CellValue, MOST_COLUMNS, MOST_ROWS, column_letters, kind, push_cell},
    kept::{Chunk, KeptRows},
    options::ExcelOptions,
};
use crate::{
    error::{Error, Result},
    schema::distinct_names,
};

/// Most bytes of the cells of a row.
const MOST_ROW_BYTES: usize = 256 << 20;

/// Names of kinds of values, by their bits.
const KINDS: [(u8, &str); 7] = [
    (kind::WHOLE | kind::NUMBER, "numbers"),
    (kind::BOOL, "booleans"),
    (kind::DATE, "dates"),
    (kind::STAMP, "timestamps"),
    (kind::CLOCK, "times"),
    (kind::SPAN, "durations"),
    (kind::TEXT, "texts"),
];

/// What was seen of a column.
#[derive(Debug, Clone, Copy, Default)]
struct ColumnSeen {
    kinds: u8,
    /// The first row of the sheet, from 1, that has each kind; by the number of its bit.
    first: [u32; 8],
}

/// What is told of cells without a plain value.
#[derive(Debug, Default)]
pub(super) struct Oddities {
    /// Cells of errors.
    pub(super) errors: u64,
    /// The place of the first of them.
    pub(super) first_error: Option<String>,
    /// Formulas whose value was never stored.
    pub(super) uncomputed: u64,
    /// The place of the first of them.
    pub(super) first_uncomputed: Option<String>,
    /// Merged regions.
    pub(super) merged: u64,
    /// The first of them.
    pub(super) first_merged: Option<String>,
    /// Records of nulls between others.
    pub(super) empty_rows: u64,
}

/// Takes the cells of a sheet.
pub(super) struct SheetBuilder<'a> {
    options: &'a ExcelOptions,
    name: &'a str,
    /// Row of the sheet, from 1, whose cells are taken; 0 before the first.
    row: u32,
    /// Row of the last record or the header.
    last_record: u32,
    /// Row of the header, or before the first record.
    start: Option<u32>,
    header: Vec<(u16, String, u8)>,
    cells: Vec<u8>,
    /// Whether the current row has a cell that is not empty.
    is_filled: bool,
    /// Columns of the current row that have a value.
    taken: Vec<u16>,
    columns: Vec<ColumnSeen>,
    chunk: Chunk,
    /// The first rows.
    sample: Option<Chunk>,
    rows: u64,
    kept: Option<KeptRows>,
    needs_room: bool,
    pub(super) oddities: Oddities,
}

/// The table of a sheet.
#[derive(Debug)]
pub(super) struct SheetTable {
    /// Its columns.
    pub(super) fields: Fields,
    /// The first column, counted from 0.
    pub(super) first_column: u16,
    /// Rows of the sheet before the first record.
    pub(super) rows_before: u64,
    /// Number of records.
    pub(super) rows: u64,
    /// The first records.
    pub(super) sample: Chunk,
    /// The records; `None` if there was no room.
    pub(super) kept: Option<KeptRows>,
    /// What users should know of the values.
    pub(super) remarks: Vec<String>,
}

impl<'a> SheetBuilder<'a> {
    /// Creates the builder of a sheet. Rows are always kept if `needs_room`.
    pub(super) fn new(name: &'a str, options: &'a ExcelOptions, needs_room: bool) -> Self {
        Self {
            options,
            name,
            row: 0,
            last_record: 0,
            start: None,
            header: Vec::new(),
            cells: Vec::new(),
            is_filled: false,
            taken: Vec::new(),
            columns: Vec::new(),
            chunk: Chunk::default(),
            sample: None,
            rows: 0,
            kept: Some(KeptRows::new(&options.room)),
            needs_room,
            oddities: Oddities::default(),
        }
    }

    /// Returns the row of the sheet, from 1, whose cells are taken.
    pub(super) fn row(&self) -> u32 {
        self.row
    }

    /// Takes a cell, whose row and column are counted from 0. Cells come in the order of rows.
    ///
    /// # Errors
    /// If it is outside of what a sheet can have, comes in another order, or the disk is full.
    pub(super) fn take_cell(&mut self, row: u32, column: u32, value: CellValue<'_>) -> Result<()> {
        let (Ok(narrow), true) = (u16::try_from(column), row < MOST_ROWS && column < MOST_COLUMNS) else {
            let message = format!("expected at most {MOST_ROWS} rows and {MOST_COLUMNS} columns in the sheet");
            return Err(Error::input(format!(
                "{message} `{}`, found row {}, column {}",
                self.name,
                row + 1,
                column + 1
            )));
        };
        if row + 1 != self.row {
            self.begin_row(row)?;
        }
        let value = match value {
            CellValue::Text(text) if text.is_empty() || self.options.nulls.iter().any(|null| null == text) => {
                return Ok(());
            }
            value => value,
        };
        if self.row <= self.options_skip() {
            return Ok(());
        }
        if self.taken.last().is_some_and(|last| *last >= narrow) {
            if self.taken.contains(&narrow) {
                let place = self.place(column);
                return Err(Error::input(format!("expected one value in {place}, found two")));
            }
            self.taken.push(narrow);
            self.taken.sort_unstable();
        } else {
            self.taken.push(narrow);
        }
        self.is_filled = true;
        if self.cells.len() > MOST_ROW_BYTES {
            return Err(Error::input(format!(
                "expected at most {MOST_ROW_BYTES} bytes in row {} of the sheet `{}`, found more",
                self.row, self.name
            )));
        }
        push_cell(&mut self.cells, narrow, value);
        Ok(())
    }

    /// Counts a formula whose value was never stored.
    pub(super) fn count_uncomputed(&mut self, row: u32, column: u32) {
        self.oddities.uncomputed += 1;
        self.oddities.first_uncomputed.get_or_insert_with(|| format!("{}{}", column_letters(column), row + 1));
    }

    fn options_skip(&self) -> u32 {
        u32::try_from(self.options.skip).unwrap_or(u32::MAX)
    }

    /// Names a cell of the current row.
    fn place(&self, column: u32) -> String {
        format!("the cell {}{} of the sheet `{}`", column_letters(column), self.row, self.name)
    }

    fn begin_row(&mut self, row: u32) -> Result<()> {
        if row + 1 < self.row {
            return Err(Error::input(format!(
                "expected the rows of the sheet `{}` in order, found row {} after row {}",
                self.name,
                row + 1,
                self.row
            )));
        }
        self.end_row()?;
        self.row = row + 1;
        Ok(())
    }

    /// Ends the current row, which is the header, a record, or nothing.
    fn end_row(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_filled) {
            return Ok(());
        }
        self.taken.clear();
        let cells = std::mem::take(&mut self.cells);
        if self.start.is_none() && self.options.has_header {
            self.take_header(&cells);
            (self.start, self.last_record) = (Some(self.row), self.row);
        } else {
            if self.start.is_none() {
                (self.start, self.last_record) = (Some(self.row - 1), self.row - 1);
            }
            for _ in self.last_record + 1..self.row {
                self.oddities.empty_rows += 1;
                self.push_record(&[])?;
            }
            self.see_cells(&cells);
            self.push_record(&cells)?;
            self.last_record = self.row;
        }
        self.cells = cells;
        self.cells.clear();
        Ok(())
    }

    fn take_header(&mut self, cells: &[u8]) {
        for (column, value) in super::cells::RowCells(cells) {
            let mut text = String::new();
            value.print(&mut text);
            self.see_column(column);
            self.header.push((column, text, value.kind()));
        }
        self.header.sort_by_key(|(column, ..)| *column);
    }

    fn see_column(&mut self, column: u16) -> &mut ColumnSeen {
        let at = usize::from(column);
        if self.columns.len() <= at {
            self.columns.resize(at + 1, ColumnSeen::default());
        }
        &mut self.columns[at]
    }

    fn see_cells(&mut self, cells: &[u8]) {
        let row = self.row;
        for (column, value) in super::cells::RowCells(cells) {
            let kind = value.kind();
            if kind == 0 {
                self.oddities.errors += 1;
                let place = || format!("{}{row}", column_letters(u32::from(column)));
                self.oddities.first_error.get_or_insert_with(place);
            }
            let seen = self.see_column(column);
            if kind != 0 && seen.kinds & kind == 0 {
                seen.kinds |= kind;
                seen.first[kind.trailing_zeros() as usize] = row;
            }
        }
    }

    fn push_record(&mut self, cells: &[u8]) -> Result<()> {
        self.rows += 1;
        if self.chunk.is_full(cells) {
            self.keep_chunk()?;
        }
        self.chunk.push_row(cells);
        Ok(())
    }

    fn keep_chunk(&mut self) -> Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        self.sample.get_or_insert_with(|| chunk.clone());
        if let Some(kept) = &mut self.kept
            && chunk.row_count() > 0
            && !kept.push(chunk, self.needs_room)?
        {
            self.kept = None;
        }
        Ok(())
    }

    /// Returns the first and the last column with anything in them; `None` if there is none.
    fn used_columns(&self) -> Option<(u16, u16)> {
        let is_used = |at: &usize| {
            self.columns[*at].kinds != 0 || self.header.iter().any(|(column, ..)| usize::from(*column) == *at)
        };
        let first = (0..self.columns.len()).find(is_used)?;
        let last = (0..self.columns.len()).rev().find(is_used)?;
        Some((u16::try_from(first).ok()?, u16::try_from(last).ok()?))
    }

    /// Returns the table.
    ///
    /// # Errors
    /// If the first row is no header; if the disk is full.
    pub(super) fn finish(mut self) -> Result<SheetTable> {
        self.end_row()?;
        self.keep_chunk()?;
        let (first, last) = self.used_columns().unwrap_or((0, 0));
        let names = match self.start {
            None => Vec::new(),
            Some(_) if self.options.has_header => self.header_names(first, last)?,
            Some(_) => distinct_names(vec![String::new(); usize::from(last - first) + 1]),
        };
        let seen = |number: usize| self.columns.get(usize::from(first) + number).copied().unwrap_or_default();
        let field = |(number, name): (usize, &String)| Field::new(name, type_of(seen(number).kinds), true);
        let fields: Fields = names.iter().enumerate().map(field).collect();
        let mut remarks = self.oddities.remarks(self.name);
        remarks.extend(names.iter().enumerate().filter_map(|(number, name)| self.mixed_remark(name, seen(number))));
        Ok(SheetTable {
            fields,
            first_column: first,
            rows_before: u64::from(self.start.unwrap_or_default()),
            rows: self.rows,
            sample: self.sample.unwrap_or_default(),
            kept: self.kept,
            remarks,
        })
    }

    fn header_names(&self, first: u16, last: u16) -> Result<Vec<String>> {
        let row = self.start.unwrap_or_default();
        let place = |column: u16| format!("{}{row} of the sheet `{}`", column_letters(u32::from(column)), self.name);
        let not_header = |found: String| {
            Error::input(format!("expected a row of distinct names as the header, found {found}"))
                .with_hint("if the names are further down: --read skip=N omits the first N rows of the sheet")
                .with_hint("if there are no names: --read header=no")
        };
        let mut names: Vec<String> = Vec::new();
        for column in first..=last {
            let found = self.header.iter().find(|(at, ..)| *at == column);
            let Some((_, name, kind)) = found.filter(|(_, name, _)| !name.trim().is_empty()) else {
                return Err(not_header(format!("nothing in {}, above or beside values", place(column))));
            };
            if *kind != kind::TEXT {
                return Err(not_header(format!("`{name}`, which is no text, in {}", place(column))));
            }
            names.push(name.clone());
        }
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let again = names.iter().rposition(|name| name == twice[0]).unwrap_or_default();
            let again = first + u16::try_from(again).unwrap_or_default();
            return Err(not_header(format!("`{}` a second time in {}", twice[0], place(again))));
        }
        Ok(names)
    }

    /// Returns what to say of a column that is text because its values have no type in common.
    fn mixed_remark(&self, name: &str, seen: ColumnSeen) -> Option<String> {
        if seen.kinds == kind::TEXT || type_of(seen.kinds) != DataType::Utf8 {
            return None;
        }
        let first = |bits: u8| (0..8).filter(|bit| bits & (1 << bit) != 0).map(|bit| seen.first[bit]).min();
        let found = KINDS.iter().filter(|(bits, _)| seen.kinds & bits != 0);
        let mut found: Vec<(u32, &str)> =
            found.filter_map(|(bits, what)| Some((first(bits & seen.kinds)?, *what))).collect();
        found.sort_unstable();
        let found: Vec<String> = found.iter().map(|(row, what)| format!("{what} from row {row} on")).collect();
        Some(format!(
            "the column `{name}` of the sheet `{}` has {}; all of them become text",
            self.name,
            found.join(", ")
        ))
    }
}

impl Oddities {
    fn remarks(&self, sheet: &str) -> Vec<String> {
        let first = |place: &Option<String>| place.clone().unwrap_or_default();
        let mut remarks = Vec::new();
        if self.errors > 0 {
            remarks.push(format!(
                "{} an error such as #DIV/0! (the first is {}), which is null",
                counted(self.errors, sheet, ["cell", "cells"], ["holds", "hold"]),
                first(&self.first_error)
            ));
        }
        if self.uncomputed > 0 {
            remarks.push(format!(
                "{} no stored value (the first is {}), which is null: open the workbook in a program for sheets, and \
                 save it",
                counted(self.uncomputed, sheet, ["formula", "formulas"], ["has", "have"]),
                first(&self.first_uncomputed)
            ));
        }
        if self.merged > 0 {
            remarks.push(format!(
                "{} a value in its first cell alone (the first is {})",
                counted(self.merged, sheet, ["merged region", "merged regions"], ["has", "have"]),
                first(&self.first_merged)
            ));
        }
        if self.empty_rows > 0 {
            remarks.push(format!(
                "{} between others: {} of nulls",
                counted(self.empty_rows, sheet, ["empty row", "empty rows"], ["is", "are"]),
                if self.empty_rows == 1 { "a record" } else { "records" }
            ));
        }
        remarks
    }
}

/// Returns how many things a sheet has, with a verb; words for one and for many.
fn counted(count: u64, sheet: &str, [one, many]: [&str; 2], [verb, verbs]: [&str; 2]) -> String {
    match count {
        1 => format!("1 {one} of the sheet `{sheet}` {verb}"),
        _ => format!("{count} {many} of the sheet `{sheet}` {verbs}"),
    }
}

/// Returns the type of a column with these kinds of values.
pub(super) fn type_of(kinds: u8) -> DataType {
    match kinds {
        0 => DataType::Null,
        kind::WHOLE => DataType::Int64,
        _ if kinds & !(kind::WHOLE | kind::NUMBER) == 0 => DataType::Float64,
        kind::BOOL => DataType::Boolean,
        kind::DATE => DataType::Date32,
        _ if kinds & !(kind::DATE | kind::STAMP) == 0 => DataType::Timestamp(TimeUnit::Millisecond, None),
        kind::CLOCK => DataType::Time32(TimeUnit::Millisecond),
        kind::SPAN => DataType::Duration(TimeUnit::Millisecond),
        _ => DataType::Utf8,
    }
}

impl SheetTable {
    /// Returns the names of the columns.
    pub(super) fn column_names(&self) -> Vec<String> {
        self.fields.iter().map(|field| field.name().clone()).collect()
    }
}
