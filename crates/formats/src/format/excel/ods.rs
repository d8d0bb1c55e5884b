//! Sheets of OpenDocument, read as a stream of XML. All of them are in one part, `content.xml`.
//!
//! ```text
//! <table:table table:name="Visits">
//!   <table:table-row table:number-rows-repeated="2">
//!     <table:table-cell office:value-type="float" office:value="7.5" table:number-columns-repeated="3"/>
//!     <table:table-cell office:value-type="string"><text:p>a line</text:p><text:p>another</text:p>...
//! ```
//!
//! Empty cells up to the last row and column are repeated, too, which says nothing; how often cells with a value are
//! repeated is bounded. Dates are ISO 8601, and times are durations, because the time of day has no type of its own.

use std::{
    collections::HashMap,
    io::{BufReader, Read},
};

use quick_xml::{
    Reader,
    events::{BytesStart, Event},
};

use super::{
    biff::password_error,
    book::SheetInfo,
    cells::{CellValue, MOST_COLUMNS, MOST_ROWS, column_letters},
    dates::{from_iso, span_of_iso},
    package::Package,
    sheet::SheetBuilder,
    watch::Watch,
};
use crate::error::{Error, Result};

/// Part with all sheets.
const CONTENT: &str = "content.xml";
/// Part that says which parts are encrypted, and how much of it is read.
const MANIFEST: &str = "META-INF/manifest.xml";
const MANIFEST_BYTES: u64 = 4 << 20;

/// Most cells that only repeat others.
const MOST_REPEATS: u64 = 16 << 20;

/// Most sheets, and styles of them.
const MOST_SHEETS: usize = 1 << 16;

/// A workbook of OpenDocument.
pub(super) struct OdsBook {
    package: Package,
    sheets: Vec<OdsSheet>,
}

struct OdsSheet {
    info: SheetInfo,
    has_data: bool,
}

type Content = Reader<BufReader<Watched>>;

/// A part whose bytes are looked at.
struct Watched {
    inner: Box<dyn Read + Send>,
    watch: Watch,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.watch.look_at(&buffer[..read]).map_err(std::io::Error::from)?;
        Ok(read)
    }
}

/// Whether a part of this name begins the elements of a cell that are not its text.
fn is_beside_text(name: &str) -> bool {
    name == "office:annotation" || name == "table:table" || name.starts_with("draw:")
}

impl OdsBook {
    /// Opens a workbook, and lists its sheets.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is encrypted or damaged.
    pub(super) fn open(package: Package) -> Result<Self> {
        let mut manifest = Vec::new();
        if let Some(part) = package.open_part(MANIFEST)? {
            part.take(MANIFEST_BYTES).read_to_end(&mut manifest)?;
        }
        if memchr::memmem::find(&manifest, b"encryption-data").is_some() {
            return Err(password_error());
        }
        let mut book = Self { package, sheets: Vec::new() };
        book.sheets = book.list_sheets()?;
        Ok(book)
    }

    /// Returns the sheets, in their order.
    pub(super) fn sheets(&self) -> Vec<SheetInfo> {
        self.sheets.iter().map(|sheet| sheet.info.clone()).collect()
    }

    /// Whether a sheet has a cell that is not empty.
    pub(super) fn has_data(&self, name: &str) -> bool {
        self.sheets.iter().any(|sheet| sheet.info.name == name && sheet.has_data)
    }

    fn open_content(&self) -> Result<Content> {
        let inner = self.package.open_part(CONTENT)?;
        let inner = inner.ok_or_else(|| Error::input(format!("expected the part `{CONTENT}`, found none")))?;
        let mut watch = Watch::new(u64::MAX);
        watch.end_opening();
        let mut reader = Reader::from_reader(BufReader::with_capacity(64 << 10, Watched { inner, watch }));
        let config = reader.config_mut();
        config.expand_empty_elements = true;
        config.check_end_names = true;
        Ok(reader)
    }

    /// Lists the sheets: a style of each says whether it is shown.
    fn list_sheets(&self) -> Result<Vec<OdsSheet>> {
        let mut content = self.open_content()?;
        let (mut buffer, mut style, mut hidden) = (Vec::new(), String::new(), HashMap::new());
        let mut sheets: Vec<OdsSheet> = Vec::new();
        let mut depth = 0_usize;
        loop {
            buffer.clear();
            match content.read_event_into(&mut buffer).map_err(damaged)? {
                Event::Start(tag) => match tag.name().as_ref() {
                    "style:style" => style = attribute(&tag, "style:name")?.unwrap_or_default(),
                    "style:table-properties" if attribute(&tag, "table:display")?.as_deref() == Some("false") => {
                        hidden.insert(style.clone(), ());
                    }
                    "table:dde-links" => skip_element(&mut content, "table:dde-links")?,
                    "table:table" => {
                        depth += 1;
                        if depth == 1 {
                            let name = attribute(&tag, "table:name")?.unwrap_or_default();
                            let of_style = attribute(&tag, "table:style-name")?.unwrap_or_default();
                            let info = SheetInfo { name, is_visible: !hidden.contains_key(&of_style) };
                            sheets.push(OdsSheet { info, has_data: false });
                        }
                    }
                    "table:table-cell" | "table:covered-table-cell" if depth == 1 => {
                        content.get_mut().get_mut().watch.mark_cell();
                        if let Some(sheet) = sheets.last_mut() {
                            sheet.has_data |= tag.attributes_raw().contains("value-type=");
                        }
                    }
                    "text:p" if depth == 1 => {
                        if let Some(sheet) = sheets.last_mut() {
                            sheet.has_data = true;
                        }
                    }
                    "table:shapes" => skip_element(&mut content, "table:shapes")?,
                    _ => {}
                },
                Event::End(tag) if tag.name().as_ref() == "table:table" => depth = depth.saturating_sub(1),
                Event::Eof => return Ok(sheets),
                _ => {}
            }
            if sheets.len() + hidden.len() > MOST_SHEETS {
                return Err(Error::input(format!(
                    "expected at most {MOST_SHEETS} sheets and their styles, found more"
                )));
            }
        }
    }

    /// Passes the cells of a sheet to `builder`.
    ///
    /// # Errors
    /// When the sheet is damaged; when `builder` fails.
    pub(super) fn read_sheet(&self, name: &str, builder: &mut SheetBuilder<'_>) -> Result<()> {
        let mut content = self.open_content()?;
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            match content.read_event_into(&mut buffer).map_err(damaged)? {
                Event::Start(tag) => match tag.name().as_ref() {
                    "table:dde-links" => skip_element(&mut content, "table:dde-links")?,
                    "table:table" => {
                        if attribute(&tag, "table:name")?.unwrap_or_default() == name {
                            TableReader { content: &mut content, row: 0, repeats: 0 }.read(builder)?;
                            return drain(content);
                        }
                        skip_element(&mut content, "table:table")?;
                    }
                    _ => {}
                },
                Event::Eof => return Err(Error::input(format!("expected the sheet `{name}`, found it no longer"))),
                _ => {}
            }
            content.get_mut().get_mut().watch.mark_cell();
        }
    }
}

/// Reads the rest, whose end compares all of the part with its checksum.
fn drain(content: Content) -> Result<()> {
    std::io::copy(&mut content.into_inner().into_inner().inner, &mut std::io::sink())?;
    Ok(())
}

fn damaged(error: quick_xml::Error) -> Error {
    match error {
        quick_xml::Error::Io(io) => match io.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(ours) => Error::new(ours.kind(), ours.message().to_owned()),
            None => Error::input("expected a sheet, found one that cannot be unpacked").with_cause(io.to_string()),
        },
        other => Error::input("expected a sheet in XML, found damage").with_cause(other.to_string()),
    }
}

/// Returns the value of an attribute.
fn attribute(tag: &BytesStart<'_>, name: &str) -> Result<Option<String>> {
    let found = tag.try_get_attribute(name).map_err(|e| damaged(e.into()))?;
    let value = |found: quick_xml::events::attributes::Attribute<'_>| {
        found.normalized_value(quick_xml::XmlVersion::Explicit1_0).map(std::borrow::Cow::into_owned).map_err(damaged)
    };
    found.map(value).transpose()
}

/// Returns how often an element is repeated, at most so often.
fn repeats(tag: &BytesStart<'_>, name: &str) -> Result<u32> {
    let Some(text) = attribute(tag, name)? else { return Ok(1) };
    let number = text.trim().parse::<u64>().map_err(|_| {
        Error::input(format!(
            "expected a number of repeats in `{name}`, found `{}`",
            text.chars().take(40).collect::<String>()
        ))
    })?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Reads up to the end of the element that has just begun.
fn skip_element(content: &mut Content, name: &str) -> Result<()> {
    let (mut buffer, mut depth) = (Vec::new(), 1);
    while depth > 0 {
        buffer.clear();
        match content.read_event_into(&mut buffer).map_err(damaged)? {
            Event::Start(tag) if tag.name().as_ref() == name => depth += 1,
            Event::End(tag) if tag.name().as_ref() == name => depth -= 1,
            Event::Eof => return Err(Error::input(format!("expected the end of `{name}`, found that of the file"))),
            _ => {}
        }
        content.get_mut().get_mut().watch.mark_cell();
    }
    Ok(())
}

/// A cell that may be repeated.
struct Repeated {
    column: u32,
    count: u32,
    value: Owned,
}

/// The value of a cell that waits for the end of its row.
enum Owned {
    Plain(CellValue<'static>),
    Text(String),
    /// A formula without a value.
    Uncomputed,
}

/// Reads the rows of a table.
struct TableReader<'a> {
    content: &'a mut Content,
    /// The row, counted from 0.
    row: u64,
    /// Cells that repeated others so far.
    repeats: u64,
}

impl TableReader<'_> {
    fn read(mut self, builder: &mut SheetBuilder<'_>) -> Result<()> {
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            match self.content.read_event_into(&mut buffer).map_err(damaged)? {
                Event::Start(tag) => match tag.name().as_ref() {
                    "table:table-row" => {
                        let count = repeats(&tag, "table:number-rows-repeated")?;
                        let cells = self.read_row(builder)?;
                        self.pass_row(&cells, count, builder)?;
                        self.row += u64::from(count);
                    }
                    // Pictures, and the source of a table that is linked.
                    "table:shapes" => skip_element(self.content, "table:shapes")?,
                    "office:forms" => skip_element(self.content, "office:forms")?,
                    _ => {}
                },
                Event::End(tag) if tag.name().as_ref() == "table:table" => return Ok(()),
                Event::Eof => return Err(self.cut_short()),
                _ => {}
            }
            self.content.get_mut().get_mut().watch.mark_cell();
        }
    }

    fn cut_short(&self) -> Error {
        Error::input(format!("expected the end of the sheet, found that of the file after row {}", self.row))
    }

    /// Returns the cells of a row that are not empty.
    fn read_row(&mut self, builder: &mut SheetBuilder<'_>) -> Result<Vec<Repeated>> {
        let (mut buffer, mut cells, mut column) = (Vec::new(), Vec::new(), 0_u32);
        loop {
            buffer.clear();
            match self.content.read_event_into(&mut buffer).map_err(damaged)? {
                Event::Start(tag) => {
                    let name = tag.name().as_ref().to_owned();
                    if !matches!(name.as_str(), "table:table-cell" | "table:covered-table-cell") {
                        skip_element(self.content, &name)?;
                        continue;
                    }
                    let count = repeats(&tag, "table:number-columns-repeated")?;
                    if let Some(region) = self.merged_region(&tag, column)? {
                        builder.oddities.merged += 1;
                        builder.oddities.first_merged.get_or_insert(region);
                    }
                    let tag = tag.into_owned();
                    if let Some(value) = self.read_cell(&tag, &name)? {
                        cells.push(Repeated { column, count, value });
                    }
                    column = column.saturating_add(count);
                }
                Event::End(tag) if tag.name().as_ref() == "table:table-row" => return Ok(cells),
                Event::Eof => return Err(self.cut_short()),
                _ => {}
            }
            self.content.get_mut().get_mut().watch.mark_cell();
        }
    }

    fn merged_region(&self, tag: &BytesStart<'_>, column: u32) -> Result<Option<String>> {
        let span = |name| repeats(tag, name).map(u64::from);
        let (rows, columns) = (span("table:number-rows-spanned")?, span("table:number-columns-spanned")?);
        if rows <= 1 && columns <= 1 {
            return Ok(None);
        }
        let last = u64::from(column).saturating_add(columns.max(1) - 1).min(u64::from(MOST_COLUMNS));
        let (from, to) = (column_letters(column), column_letters(u32::try_from(last).unwrap_or_default()));
        Ok(Some(format!("{from}{}:{to}{}", self.row + 1, self.row.saturating_add(rows.max(1)))))
    }

    /// Returns the value of a cell; `None` if it is empty.
    fn read_cell(&mut self, tag: &BytesStart<'_>, name: &str) -> Result<Option<Owned>> {
        let text = self.read_text(name)?;
        let get = |name: &str| attribute(tag, name);
        let is_error = get("calcext:value-type")?.as_deref() == Some("error");
        let number = || -> Result<Option<Owned>> {
            let Some(value) = get("office:value")? else { return Ok(None) };
            let number = fast_float2::parse::<f64, _>(value.trim()).map_err(|_| {
                let shown: String = value.chars().take(40).collect();
                Error::input(format!("expected a number in row {} of the sheet, found `{shown}`", self.row + 1))
            })?;
            Ok(Some(Owned::Plain(CellValue::Number(number))))
        };
        let or_text = |value: Option<String>, parse: fn(&str) -> Option<CellValue<'static>>| {
            value.map(|value| parse(&value).map_or(Owned::Text(value), Owned::Plain))
        };
        let kind = get("office:value-type")?;
        let value = match kind.as_deref() {
            _ if is_error => Some(Owned::Plain(CellValue::Error)),
            Some("float" | "percentage" | "currency") => number()?,
            Some("date") => or_text(get("office:date-value")?, from_iso),
            Some("time") => or_text(get("office:time-value")?, span_of_iso),
            Some("boolean") => {
                let value = get("office:boolean-value")?;
                value.map(|value| Owned::Plain(CellValue::Bool(value.eq_ignore_ascii_case("true"))))
            }
            Some("string") => Some(Owned::Text(get("office:string-value")?.unwrap_or(text))),
            _ => (!text.is_empty()).then_some(Owned::Text(text)),
        };
        let is_empty = value.as_ref().is_none_or(|value| matches!(value, Owned::Text(text) if text.is_empty()));
        if is_empty && kind.is_none() && get("table:formula")?.is_some() {
            return Ok(Some(Owned::Uncomputed));
        }
        Ok(value)
    }

    /// Reads up to the end of a cell, and returns its text, without remarks upon it and drawings in it.
    fn read_text(&mut self, name: &str) -> Result<String> {
        let (mut buffer, mut text, mut is_first) = (Vec::new(), String::new(), true);
        loop {
            buffer.clear();
            match self.content.read_event_into(&mut buffer).map_err(damaged)? {
                Event::Start(tag) => match tag.name().as_ref() {
                    "text:p" if std::mem::take(&mut is_first) => {}
                    "text:p" | "text:line-break" => text.push('\n'),
                    "text:tab" => text.push('\t'),
                    "text:s" => {
                        let count = repeats(&tag, "text:c")?.min(1 << 20);
                        text.extend(std::iter::repeat_n(' ', usize::try_from(count).unwrap_or_default()));
                    }
                    other if is_beside_text(other) => {
                        let other = other.to_owned();
                        skip_element(self.content, &other)?;
                    }
                    _ => {}
                },
                Event::Text(part) => text.push_str(&part.xml10_content()),
                Event::CData(part) => text.push_str(&part.xml10_content()),
                Event::GeneralRef(entity) => text.push_str(&resolve_entity(&entity)?),
                Event::End(tag) if tag.name().as_ref() == name => return Ok(text),
                Event::Eof => return Err(self.cut_short()),
                _ => {}
            }
            if text.len() > 16 << 20 {
                return Err(Error::input(format!("expected a shorter text in row {} of the sheet", self.row + 1)));
            }
        }
    }

    /// Passes a row on, as often as it is repeated.
    fn pass_row(&mut self, cells: &[Repeated], count: u32, builder: &mut SheetBuilder<'_>) -> Result<()> {
        if cells.is_empty() {
            return Ok(());
        }
        let width: u64 = cells.iter().map(|cell| u64::from(cell.count)).sum();
        self.repeats = self.repeats.saturating_add(width.saturating_mul(u64::from(count)) - cells.len() as u64);
        if self.repeats > MOST_REPEATS {
            return Err(Error::input(format!(
                "expected at most {MOST_REPEATS} cells that repeat others, found more in row {} of the sheet",
                self.row + 1
            ))
            .with_hint("it is a bomb, or whole rows or columns were filled: delete them, or save the sheet as CSV"));
        }
        for row in self.row..self.row + u64::from(count) {
            let row = u32::try_from(row).unwrap_or(MOST_ROWS);
            for cell in cells {
                for column in cell.column..cell.column.saturating_add(cell.count) {
                    match &cell.value {
                        Owned::Plain(value) => builder.take_cell(row, column, *value)?,
                        Owned::Text(text) => builder.take_cell(row, column, CellValue::Text(text))?,
                        Owned::Uncomputed => builder.count_uncomputed(row, column),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the text that an entity stands for.
fn resolve_entity(entity: &quick_xml::events::BytesRef<'_>) -> Result<String> {
    if let Some(character) = entity.resolve_char_ref().map_err(damaged)? {
        return Ok(character.to_string());
    }
    let known = match entity.as_ref() {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        other => {
            let shown: String = other.chars().take(40).collect();
            return Err(Error::input(format!("expected an entity of XML in a sheet, found `&{shown};`")));
        }
    };
    Ok(known.to_owned())
}
