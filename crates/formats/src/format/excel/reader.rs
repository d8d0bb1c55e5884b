//! Reads the records of a sheet.

use std::sync::Arc;

use arrow::{
    array::{AsArray, BinaryArray, RecordBatch},
    datatypes::{Fields, SchemaRef},
};

use super::{
    book::{Book, BookForm, SheetInfo},
    columns::rows_of,
    container,
    kept::{Chunk, KeptRows},
    options::ExcelOptions,
    package::list_members,
    sheet::{SheetBuilder, SheetTable},
};
use crate::{
    codec::zip,
    error::{Error, Kind, Result},
    format::{
        Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, facts::SheetRows, ranged::RangedInput,
        rows::parsed_rows,
    },
    record::{Content, SourceRange},
};

/// Most sheets that a message names.
const NAMED_SHEETS: usize = 10;

/// Parts that tell which kind of workbook an archive is.
const MARKS: [(&str, BookForm); 3] =
    [("xl/workbook.xml", BookForm::Xlsx), ("xl/workbook.bin", BookForm::Xlsb), ("content.xml", BookForm::Ods)];

/// The first member of documents of OpenDocument: what they are.
const SPREADSHEET: &[u8] = b"application/vnd.oasis.opendocument.spreadsheet";

/// Opens the bytes of a source again.
pub type ReopenBook = Box<dyn Fn() -> Result<RangedInput> + Send + Sync>;

/// Returns which kind of workbook a source is, if it is one; `open` is called if its head does not rule that out.
///
/// # Errors
/// When the source cannot be read; when it is an archive, is `named` as a workbook, and is damaged.
pub fn sniff(head: &[u8], named: bool, open: &dyn Fn() -> Result<RangedInput>) -> Result<Option<BookForm>> {
    if head.starts_with(container::MAGIC) {
        let is_book = named
            || [b"W\0o\0r\0k\0b\0o\0o\0k\0".as_slice(), b"B\0o\0o\0k\0\0"]
                .iter()
                .any(|name| memchr::memmem::find(head, name).is_some());
        return Ok(is_book.then_some(BookForm::Xls));
    }
    if !head.starts_with(zip::MAGIC) {
        return Ok(None);
    }
    let members = match list_members(&open()?) {
        Err(error) if !named && error.kind() == Kind::Input => return Ok(None),
        members => members?,
    };
    let has = |name: &str| members.iter().any(|member| member.name.eq_ignore_ascii_case(name));
    if has("mimetype") && has("content.xml") {
        return Ok(memchr::memmem::find(head, SPREADSHEET).map(|_| BookForm::Ods));
    }
    let found = MARKS.iter().find(|(part, _)| has(part)).map(|(_, form)| *form);
    // Where the workbook is follows from the relations of the package.
    Ok(found.filter(|form| *form != BookForm::Ods).or((named && has("_rels/.rels")).then_some(BookForm::Xlsx)))
}

/// A sheet of a workbook.
pub struct ExcelReader {
    form: BookForm,
    open: ReopenBook,
    name: String,
    /// Bytes of the source.
    bytes: u64,
    options: ExcelOptions,
    sheet: String,
    fields: Fields,
    first_column: u16,
    kept: Option<Arc<KeptRows>>,
    facts: ReaderFacts,
}

impl std::fmt::Debug for ExcelReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExcelReader").field("name", &self.name).field("sheet", &self.sheet).finish_non_exhaustive()
    }
}

impl ExcelReader {
    /// Opens a workbook of so many stored bytes, chooses a sheet and decodes it. `name` is used in errors. Also returns
    /// the first of its rows.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is damaged, has a password, has several sheets of which none is
    /// named, or its sheet has no header.
    pub fn open(
        form: BookForm,
        open: ReopenBook,
        options: &ExcelOptions,
        name: &str,
        bytes: u64,
    ) -> Result<(Self, SourceRange)> {
        let mut book = open_book(form, &open, options, name)?;
        let (sheet, mut remarks) = choose_sheet(&mut book, options).map_err(|e| e.at_location(name))?;
        let table = decode_sheet(&mut book, &sheet, options, false, name)?;
        remarks.extend(table.remarks.iter().cloned());
        let sampled = u128::from(bytes) * table.sample.row_count() as u128 / u128::from(table.rows.max(1));
        let sampled = u64::try_from(sampled).unwrap_or(bytes);
        let sample = Content::Batch { batch: table.sample.clone().into_batch()?, bytes: sampled };
        let facts = ReaderFacts {
            reads_own_source: true,
            columns: Some(table.column_names()),
            rows: Some(table.rows),
            sheet: Some(Arc::new(SheetRows { name: sheet.clone(), rows_before: table.rows_before })),
            remarks,
            ..ReaderFacts::default()
        };
        let reader = Self {
            form,
            open,
            name: name.to_owned(),
            bytes,
            options: options.clone(),
            sheet,
            fields: table.fields,
            first_column: table.first_column,
            kept: table.kept.map(Arc::new),
            facts,
        };
        Ok((reader, SourceRange::new(0, sample)))
    }

    /// Returns the stored bytes of the source.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the decoded rows, which are decoded again if there was no room for them.
    fn load_rows(&self) -> Result<Arc<KeptRows>> {
        if let Some(kept) = &self.kept {
            return Ok(Arc::clone(kept));
        }
        let mut book = open_book(self.form, &self.open, &self.options, &self.name)?;
        let table = decode_sheet(&mut book, &self.sheet, &self.options, true, &self.name)?;
        if table.fields != self.fields || Some(table.rows) != self.facts.rows {
            return Err(Error::input(
                "expected the same rows as before, found others: the workbook was changed meanwhile",
            )
            .at_location(self.name.as_str()));
        }
        table.kept.map(Arc::new).ok_or_else(|| Error::internal("rows of a sheet were not kept"))
    }
}

fn open_book<'a>(form: BookForm, open: &ReopenBook, options: &'a ExcelOptions, name: &str) -> Result<Book<'a>> {
    let at = |error: Error| if error.place().source.is_some() { error } else { error.at_location(name) };
    Book::open(form, open().map_err(at)?, &options.room, name).map_err(at)
}

fn decode_sheet(
    book: &mut Book<'_>,
    sheet: &str,
    options: &ExcelOptions,
    needs_room: bool,
    name: &str,
) -> Result<SheetTable> {
    let at = |error: Error| if error.place().source.is_some() { error } else { error.at_location(name) };
    let mut builder = SheetBuilder::new(sheet, options, needs_room);
    book.read_sheet(sheet, &mut builder).map_err(at)?;
    builder.finish().map_err(at)
}

/// Returns the name of the sheet that is read, and what to say of others.
fn choose_sheet(book: &mut Book<'_>, options: &ExcelOptions) -> Result<(String, Vec<String>)> {
    let listed = |sheets: &[&SheetInfo]| {
        let named = sheets.iter().take(NAMED_SHEETS).map(|sheet| format!("`{}`", sheet.name)).collect::<Vec<_>>();
        let more = sheets.len().saturating_sub(NAMED_SHEETS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", named.join(", "))
    };
    let all = book.sheets.clone();
    if let Some(wanted) = &options.sheet {
        return match all.iter().find(|sheet| sheet.name == *wanted) {
            Some(sheet) => Ok((sheet.name.clone(), Vec::new())),
            None => Err(Error::input(format!(
                "expected the sheet `{wanted}`, found {}",
                listed(&all.iter().collect::<Vec<_>>())
            ))
            .with_hint("`convert --read sheet=NAME` reads one of them")),
        };
    }
    let (visible, hidden): (Vec<&SheetInfo>, Vec<&SheetInfo>) = all.iter().partition(|sheet| sheet.is_visible);
    let mut filled = Vec::new();
    for sheet in &visible {
        // What there is only one of need not be looked at.
        if all.len() == 1 || book.has_data(&sheet.name)? {
            filled.push(*sheet);
        }
    }
    let mut hidden_filled = Vec::new();
    for sheet in &hidden {
        if book.has_data(&sheet.name)? {
            hidden_filled.push(*sheet);
        }
    }
    let remark = (!hidden_filled.is_empty())
        .then(|| format!("hidden sheets are not read: {}; --read sheet=NAME reads one", listed(&hidden_filled)));
    match filled.as_slice() {
        [only] => Ok((only.name.clone(), remark.into_iter().collect())),
        [] => match (visible.first(), hidden_filled.is_empty()) {
            (_, false) => Err(Error::input(format!(
                "expected a visible sheet with data, found only hidden ones: {}",
                listed(&hidden_filled)
            ))
            .with_hint("`convert --read sheet=NAME` reads one of them")),
            (Some(first), true) => Ok((first.name.clone(), Vec::new())),
            (None, true) => Err(Error::input("expected a workbook with sheets of cells, found none")),
        },
        several => {
            Err(Error::input(format!("expected one sheet with data, found {}: {}", several.len(), listed(several)))
                .with_hint("`convert --read sheet=NAME` reads one of them; the others are datasets of their own"))
        }
    }
}

impl RecordReader for ExcelReader {
    fn facts(&self) -> &ReaderFacts {
        &self.facts
    }

    fn ranges<'a>(&'a self, _: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        Box::new(SheetRanges {
            reader: self,
            range_bytes,
            max_record_bytes,
            rows: None,
            chunk: 0,
            row: 0,
            done: 0,
            ready: Vec::new(),
            ended: false,
        })
    }

    fn infer(&self, _: &SourceRange) -> Fields {
        self.fields.clone()
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let Content::Batch { batch, bytes } = &range.content else {
            return Err(Error::internal("expected rows of a sheet, found bytes"));
        };
        let rows = rows_of(cells_of(batch)?, &self.fields, self.first_column)?;
        parsed_rows(&rows, range, schema, *bytes)
    }
}

fn cells_of(batch: &RecordBatch) -> Result<&BinaryArray> {
    let cells = batch.columns().first().and_then(|column| column.as_binary_opt::<i32>());
    cells.ok_or_else(|| Error::internal("expected rows of a sheet, found others"))
}

/// Iterates over the rows of a sheet, in pieces.
struct SheetRanges<'a> {
    reader: &'a ExcelReader,
    range_bytes: usize,
    max_record_bytes: usize,
    rows: Option<Arc<KeptRows>>,
    /// Number of the next chunk.
    chunk: usize,
    /// Number of rows so far.
    row: u64,
    /// Bytes of decoded rows so far.
    done: u64,
    /// Pieces of a chunk, the first of them last.
    ready: Vec<RecordBatch>,
    ended: bool,
}

impl SheetRanges<'_> {
    /// Halves the rows until each piece is no larger than a range.
    fn halve(&self, batch: RecordBatch, pieces: &mut Vec<RecordBatch>) -> Result<()> {
        let rows = batch.num_rows();
        if rows <= 1 || piece_bytes(&batch)? <= self.range_bytes {
            pieces.push(batch);
            return Ok(());
        }
        self.halve(batch.slice(0, rows / 2), pieces)?;
        self.halve(batch.slice(rows / 2, rows - rows / 2), pieces)
    }

    fn next_piece(&mut self) -> Result<Option<SourceRange>> {
        let rows = match &self.rows {
            Some(rows) => Arc::clone(rows),
            None => Arc::clone(self.rows.insert(self.reader.load_rows()?)),
        };
        while self.ready.is_empty() {
            if self.chunk == rows.chunk_count() {
                return Ok(None);
            }
            let chunk: Chunk = rows.chunk(self.chunk)?;
            self.chunk += 1;
            let mut pieces = Vec::new();
            self.halve(chunk.into_batch()?, &mut pieces)?;
            pieces.reverse();
            self.ready = pieces;
        }
        let Some(batch) = self.ready.pop() else { return Ok(None) };
        let bytes = piece_bytes(&batch)?;
        if bytes > self.max_record_bytes {
            let place = self.reader.facts.sheet.as_ref().map(|sheet| sheet.describe_row(self.row + 1));
            let place = place.unwrap_or_default();
            let message = format!("expected rows of at most {} bytes, found {bytes} in {place}", self.max_record_bytes);
            return Err(Error::input(message).with_hint("raise --memory; a record may take an eighth of it"));
        }
        let share = |done: u64| match rows.byte_count() {
            0 => self.reader.bytes,
            all => {
                u64::try_from(u128::from(self.reader.bytes) * u128::from(done) / u128::from(all)).unwrap_or(u64::MAX)
            }
        };
        let (before, row) = (share(self.done), self.row);
        self.done += bytes as u64;
        self.row += batch.num_rows() as u64;
        let bytes = share(self.done).saturating_sub(before);
        Ok(Some(SourceRange::new(row, Content::Batch { batch, bytes })))
    }
}

fn piece_bytes(batch: &RecordBatch) -> Result<usize> {
    let offsets = cells_of(batch)?.value_offsets();
    let bytes = offsets.last().zip(offsets.first()).map_or(0, |(end, start)| end - start);
    Ok(usize::try_from(bytes).unwrap_or_default())
}

impl Iterator for SheetRanges<'_> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_piece();
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
