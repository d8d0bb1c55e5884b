//! `head`: the first records of a dataset or a source, as a table, as lists, or as JSON.

use std::{collections::HashMap, io::Write};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::Field,
};
use serde_json::{Map, Value, json};
use unicode_width::UnicodeWidthStr;

use super::{
    CommandSession,
    align::{GAP, cut_to_width, pad_to_width},
    args::HeadArgs,
    exit::CommandOutcome,
    human::clean,
    json::{self},
};
use crate::{
    array::npy,
    error::Result,
    ops::head::{HeadOptions, HeadPart, HeadRecord, HeadReport, HeadSample, read_head},
    record::{
        interval::{Interval, is_interval},
        json::{RowJson, text_of},
        media::{bytes_of, media_type},
    },
    schema::{file::print_type, tensor_item, tensor_shape},
    units::Size,
};

/// Columns of output that is no terminal of known width.
const WIDTH: usize = 80;
/// Columns that a terminal is taken to have at least.
const MIN_WIDTH: usize = 20;
/// Columns of a table that a name or a type has at least, if it has so many; below that, records are lists.
const MIN_CELL: usize = 16;
/// Columns of a type in a list at least.
const MIN_TYPE: usize = 6;
/// Columns of the widest cell that is not the only one.
const MAX_CELL: usize = 40;
/// Characters of a value that are kept.
const MAX_TEXT: usize = 1_000;
/// Values of a tensor that are shown.
const SHOWN_VALUES: usize = 4;

impl CommandSession<'_> {
    pub(super) fn run_head(&self, args: &HeadArgs) -> Result<CommandOutcome> {
        let source = match &args.source {
            Some(source) => source.clone(),
            None => self.dataset_location(None)?.to_string(),
        };
        let options = HeadOptions {
            source,
            records: args.records,
            at: args.at.clone(),
            from: args.input.from,
            read: args.input.settings(),
        };
        if self.global.json {
            self.print_answer(|w| {
                let report = read_head(&self.context, &options, &mut |record| as_json(w, &record))?;
                self.progress.stop();
                json::write_summary(w, &report)
            })?;
            return Ok(CommandOutcome::Done);
        }
        let mut shown = Shown::default();
        let report = read_head(&self.context, &options, &mut |record| shown.add_record(&record))?;
        self.progress.stop();
        self.print_answer(|w| shown.write(w, &report, output_width()))?;
        Ok(CommandOutcome::Done)
    }
}

/// Returns the width to write in: that of the terminal, else `$COLUMNS`.
fn output_width() -> usize {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.or_else(named).unwrap_or(WIDTH).max(MIN_WIDTH)
}

/// Records as text, until all of them are known and can be aligned.
#[derive(Default)]
struct Shown {
    columns: Vec<TableColumn>,
    /// Name of a column -> its number.
    places: HashMap<String, usize>,
    rows: Vec<Vec<String>>,
    samples: Vec<HeadSample>,
}

/// A column of the table.
struct TableColumn {
    name: String,
    data_type: String,
    is_number: bool,
}

impl Shown {
    fn add_record(&mut self, record: &HeadRecord<'_>) -> Result<()> {
        match record {
            HeadRecord::Sample(sample) => self.samples.push(sample.clone()),
            HeadRecord::Row { batch, index, .. } => {
                let mut row = vec![String::new(); self.columns.len()];
                for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
                    let text = cell_text(field, column.as_ref(), *index);
                    let at = self.column_index(field);
                    row.resize_with(self.columns.len(), String::new);
                    row[at] = text;
                }
                self.rows.push(row);
            }
        }
        Ok(())
    }

    /// Returns the number of a column, after adding it if it is new.
    fn column_index(&mut self, field: &Field) -> usize {
        let known = self.places.get(field.name()).copied();
        let column = TableColumn {
            name: field.name().clone(),
            data_type: type_of(field),
            is_number: field.data_type().is_numeric(),
        };
        match known {
            // A later value may have needed a wider type.
            Some(at) => {
                self.columns[at] = column;
                at
            }
            None => {
                self.places.insert(field.name().clone(), self.columns.len());
                self.columns.push(column);
                self.columns.len() - 1
            }
        }
    }

    fn write(&self, w: &mut dyn Write, report: &HeadReport, width: usize) -> Result<()> {
        if report.records == 0 {
            writeln!(w, "no records")?;
        }
        for sample in &self.samples {
            write_sample(w, sample, width)?;
        }
        if !self.rows.is_empty() {
            match self.column_widths(width) {
                Some(widths) => self.write_table(w, &widths)?,
                None => self.write_lists(w, width)?,
            }
        }
        if !report.hidden.is_empty() {
            let names = report.hidden.iter().map(|name| clean(name)).collect::<Vec<_>>().join(", ");
            writeln!(w, "hidden, because ids are private: {names}")?;
        }
        Ok(())
    }

    /// Returns the widths of the columns; `None` if the table does not fit.
    fn column_widths(&self, width: usize) -> Option<Vec<usize>> {
        let header = |column: &TableColumn| clean(&column.name).width().max(column.data_type.width());
        let natural = |(at, column): (usize, &TableColumn)| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width());
            cells.max().unwrap_or(0).max(header(column))
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(natural).collect();
        // Names that are cut tell little.
        let least: Vec<usize> = self.columns.iter().map(|column| header(column).min(MIN_CELL)).collect();
        let room = width.saturating_sub(GAP * widths.len().saturating_sub(1));
        if widths.len() > 1 {
            widths.iter_mut().for_each(|width| *width = (*width).min(MAX_CELL));
        }
        // The widest lose most.
        while widths.iter().sum::<usize>() > room {
            let open = widths.iter().zip(&least).filter(|(width, least)| width > least).map(|(width, _)| *width);
            let widest = open.max()?;
            let shrinks = |(width, least): &(&mut usize, &usize)| **width == widest && **width > **least;
            widths.iter_mut().zip(&least).filter(shrinks).for_each(|(width, _)| *width -= 1);
        }
        Some(widths)
    }

    /// Writes a table with the names and types of its columns.
    fn write_table(&self, w: &mut dyn Write, widths: &[usize]) -> Result<()> {
        let header = |of: fn(&TableColumn) -> &str| self.columns.iter().map(|column| of(column).to_owned()).collect();
        let names: Vec<String> = header(|column| &column.name);
        let types: Vec<String> = header(|column| &column.data_type);
        for cells in [names, types].iter().chain(&self.rows) {
            let mut line = String::new();
            for (at, (column, width)) in self.columns.iter().zip(widths).enumerate() {
                let text = cut_to_width(&clean(cells.get(at).map_or("", String::as_str)), *width);
                let space = " ".repeat(width - text.width());
                let gap = if at > 0 { " ".repeat(GAP) } else { String::new() };
                line.push_str(&gap);
                line.push_str(&if column.is_number { format!("{space}{text}") } else { format!("{text}{space}") });
            }
            writeln!(w, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Writes a line for each value.
    fn write_lists(&self, w: &mut dyn Write, width: usize) -> Result<()> {
        let longest =
            |of: fn(&TableColumn) -> &str| self.columns.iter().map(|c| clean(of(c)).width()).max().unwrap_or(0);
        let names = longest(|column| &column.name).min(width / 3);
        let types = longest(|column| &column.data_type).min(width / 5).max(MIN_TYPE);
        for (number, row) in self.rows.iter().enumerate() {
            writeln!(w, "record {}", number + 1)?;
            for (at, column) in self.columns.iter().enumerate() {
                let name = pad_to_width(&column.name, names);
                let data_type = pad_to_width(&column.data_type, types);
                let head = format!("  {name}  {data_type}  ");
                let value =
                    cut_to_width(&clean(row.get(at).map_or("", String::as_str)), width.saturating_sub(head.width()));
                writeln!(w, "{}", format!("{head}{value}").trim_end())?;
            }
        }
        Ok(())
    }
}

/// Writes a sample: its key, and a line for each part.
fn write_sample(w: &mut dyn Write, sample: &HeadSample, width: usize) -> Result<()> {
    writeln!(w, "{}", cut_to_width(&clean(sample.key.as_deref().unwrap_or("(private)")), width))?;
    let longest = |of: &dyn Fn(&HeadPart) -> usize| sample.parts.iter().map(of).max().unwrap_or(0);
    let names = longest(&|part| clean(&part.extension).width()).min(width / 3);
    let sizes = longest(&|part| Size(part.bytes).to_string().len());
    for part in &sample.parts {
        let size = Size(part.bytes).to_string();
        let about = match (part_media(part), npy_shape(part), text_start(part)) {
            (_, Some(array), _) => array,
            (media, None, Some(text)) => format!("{media}  {text}"),
            (media, None, None) => media.to_owned(),
        };
        let line = format!("  {}  {size:>sizes$}  {about}", pad_to_width(&part.extension, names));
        writeln!(w, "{}", cut_to_width(&clean(&line), width).trim_end())?;
    }
    Ok(())
}

/// Returns the type of a column; of tensors, element type and shape.
fn type_of(field: &Field) -> String {
    match (tensor_shape(field), tensor_item(field)) {
        (Some(shape), Some(item)) => format!("{}{shape:?}", print_type(item)),
        _ => print_type(field),
    }
}

/// Returns a value on one line.
fn cell_text(field: &Field, column: &dyn Array, index: usize) -> String {
    if column.is_null(index) {
        return "null".to_owned();
    }
    if let Some(bytes) = bytes_of(column, index) {
        return format!("{}, {}", media_type("", bytes), Size(bytes.len() as u64));
    }
    if tensor_shape(field).is_some()
        && let Some(list) = column.as_fixed_size_list_opt()
    {
        let values = list.value(index);
        let some = (0..values.len().min(SHOWN_VALUES)).map(|at| text_of(&values, at).unwrap_or_else(|| "null".into()));
        let more = if values.len() > SHOWN_VALUES { ", …" } else { "" };
        return format!("{}{more}", some.collect::<Vec<_>>().join(", "));
    }
    let text = match Interval::from_array(column, index).filter(|_| is_interval(field)) {
        Some(interval) => {
            let mut text = Vec::new();
            interval.push_text(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
        None => text_of(column, index).unwrap_or_else(|| "null".to_owned()),
    };
    text.chars().take(MAX_TEXT).map(|c| if c.is_whitespace() { ' ' } else { c }).collect()
}

/// Writes a record as an object.
fn as_json(w: &mut dyn Write, record: &HeadRecord<'_>) -> Result<()> {
    match record {
        HeadRecord::Sample(sample) => json::write_object(w, "record", &sample_json(sample)),
        HeadRecord::Row { source, row, batch, index } => {
            // The columns are in their order, which a map of JSON would lose.
            let head = format!("{{\"type\":\"record\",\"schema\":1,\"source\":{},\"row\":{row}", Value::from(*source));
            let mut values = Vec::new();
            for at in 0..batch.num_columns() {
                values.push(if at == 0 { b'{' } else { b',' });
                values.extend_from_slice(&value_json(batch, at, *index)?);
            }
            if values.is_empty() {
                values.push(b'{');
            }
            values.push(b'}');
            write!(w, "{head},\"values\":")?;
            w.write_all(&values)?;
            Ok(w.write_all(b"}\n")?)
        }
    }
}

/// Returns `"name":value`.
fn value_json(batch: &RecordBatch, at: usize, index: usize) -> Result<Vec<u8>> {
    let schema = batch.schema_ref();
    let (field, column) = (schema.field(at), batch.column(at));
    let about = match (tensor_shape(field), tensor_item(field)) {
        _ if column.is_null(index) => None,
        (Some(shape), Some(item)) => Some(json!({ "dtype": print_type(item), "shape": shape })),
        _ => bytes_of(column.as_ref(), index)
            .map(|bytes| json!({ "bytes": bytes.len(), "media": media_type("", bytes) })),
    };
    if let Some(about) = about {
        return Ok(format!("{}:{about}", Value::from(field.name().as_str())).into_bytes());
    }
    let alone = batch.project(&[at])?;
    let mut row = Vec::new();
    RowJson::new(&alone).write_row(index, &mut row);
    Ok(row.get(1..row.len().saturating_sub(1)).unwrap_or_default().to_vec())
}

fn sample_json(sample: &HeadSample) -> Value {
    let part = |part: &HeadPart| {
        let name = match &sample.key {
            Some(key) => format!("{key}.{}", part.extension),
            None => part.extension.clone(),
        };
        let mut about = Map::new();
        about.insert("name".into(), json!(name));
        about.insert("bytes".into(), json!(part.bytes));
        about.insert("media".into(), json!(part_media(part)));
        if let Some(header) = npy_header(part) {
            about.insert("dtype".into(), json!(header.dtype.name()));
            about.insert("shape".into(), json!(header.shape));
        } else if let Some(text) = whole_text(part) {
            about.insert("text".into(), json!(text));
        }
        Value::Object(about)
    };
    json!({
        "source": sample.source,
        "row": sample.row,
        "key": sample.key,
        "parts": sample.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

/// Returns the media type of a part.
fn part_media(part: &HeadPart) -> &'static str {
    media_type(&part.extension, &part.start)
}

/// Returns the header of a NumPy array.
fn npy_header(part: &HeadPart) -> Option<npy::NpyHeader> {
    npy::parse(&part.start).ok()
}

/// Returns type and shape of a NumPy array.
fn npy_shape(part: &HeadPart) -> Option<String> {
    npy_header(part).map(|header| format!("{}{:?}", header.dtype.name(), header.shape))
}

/// Returns the beginning of a text on one line.
fn text_start(part: &HeadPart) -> Option<String> {
    if part.is_hidden || !matches!(part_media(part), "application/json" | "text/plain") {
        return None;
    }
    let text = String::from_utf8_lossy(&part.start);
    Some(text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_TEXT).collect())
}

/// Returns a text that is small enough to be there as a whole.
fn whole_text(part: &HeadPart) -> Option<&str> {
    let is_whole = part.start.len() as u64 == part.bytes && !part.is_hidden;
    let is_text = matches!(part_media(part), "application/json" | "text/plain");
    std::str::from_utf8(&part.start).ok().filter(|_| is_whole && is_text)
}
