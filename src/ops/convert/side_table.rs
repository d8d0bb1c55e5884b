//! Tables beside the sources, such as those of subjects and of labels: small tables of any format that `convert` reads.
//!
//! They are read with the readers of sources, range by range. An invalid row is an error, because a table beside the
//! sources has no rejects.

use std::{io::Read as _, sync::Arc};

use arrow::{
    array::RecordBatch,
    datatypes::{DataType, Field, Fields},
};

use crate::{
    error::{Error, Result},
    format::Parsed,
    ops::Context,
    record::{Payload, SourceRange},
    scan::{self, Input, RecordSource, ScanOptions, SniffOptions, SourceFile, classify_inputs},
    schema::{is_scalar, schema_of, unite_lists},
    storage::plain_argument,
};

/// Bytes of a table read at a time.
const RANGE_BYTES: usize = 4 << 20;

/// A table beside the sources.
pub(super) struct SideTable {
    source: RecordSource,
    /// Its columns, with types that hold every value.
    pub(super) fields: Fields,
}

/// Returns the location of the table of an option, resolved as sources are.
///
/// # Errors
/// When it does not exist, or there are several files.
pub(super) fn locate_table(context: &Context<'_>, place: &str, option: &str) -> Result<SourceFile> {
    let sources = [place.to_owned()];
    let mut found = scan::scan_sources(&sources, &context.folder, &context.settings, &ScanOptions::default())?;
    if let Some(fault) = found.faults.pop() {
        return Err(fault);
    }
    match <[SourceFile; 1]>::try_from(found.files) {
        Ok([file]) => Ok(file),
        Err(files) => Err(Error::usage(format!("expected one table for {option}, found {} files", files.len()))
            .at_location(plain_argument(place))),
    }
}

impl SideTable {
    /// Opens a table and infers the types of its columns from all rows.
    ///
    /// # Errors
    /// When it cannot be read, or is no table.
    pub(super) fn open(file: SourceFile, option: &str) -> Result<Self> {
        let uri = file.uri();
        let at = |e: Error| if e.place().source.is_none() { e.at_location(uri.clone()) } else { e };
        let sniffed = SniffOptions { sources: 1, ..SniffOptions::default() };
        let sources = match classify_inputs(vec![file], &sniffed).map_err(at)? {
            Input::Records(sources) => sources,
            Input::Files(_) => Vec::new(),
        };
        let Some(source) = sources.into_iter().next().filter(|source| !source.yields_samples()) else {
            return Err(Error::input(format!("expected a table for {option}, found something else")).at_location(uri));
        };
        let mut table = Self { source, fields: Fields::empty() };
        let mut fields = Fields::empty();
        table.each_range(RANGE_BYTES, &mut |range| {
            fields = unite_lists(&fields, &table.source.reader.infer(range));
            Ok(())
        })?;
        table.fields = fields;
        Ok(table)
    }

    /// Reads columns with these types, where they are named.
    #[must_use]
    pub(super) fn with_types(self, types: &Fields) -> Self {
        let of =
            |field: &Arc<Field>| types.find(field.name()).map_or_else(|| Arc::clone(field), |(_, of)| Arc::clone(of));
        Self { fields: self.fields.iter().map(of).collect(), ..self }
    }

    /// Returns the path or URL of the table.
    pub(super) fn uri(&self) -> String {
        self.source.file.uri()
    }

    /// Returns the names of its columns.
    pub(super) fn column_names(&self) -> Vec<&str> {
        self.fields.iter().map(|field| field.name().as_str()).collect()
    }

    /// Calls `look` with the rows of each range. Columns for which `is_id` holds are text if the format does not state
    /// their types: the text of an id must be preserved, `007` is not `7`.
    ///
    /// # Errors
    /// When the table cannot be read, a row is invalid, or `look` fails.
    pub(super) fn each_batch(
        &self,
        is_id: impl Fn(&str) -> bool,
        look: &mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let text = |field: &Arc<Field>| match is_scalar(field.data_type())
            && !self.source.format.is_typed()
            && is_id(field.name())
        {
            true => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
            false => Arc::clone(field),
        };
        let schema = schema_of(&self.fields.iter().map(text).collect());
        self.each_range(RANGE_BYTES, &mut |range| {
            let block = match self.source.reader.parse(range, &schema)? {
                Parsed::Block(block) => block,
                Parsed::Mismatch(mismatch) => {
                    return Err(mismatch.error());
                }
            };
            if let Some(reject) = block.rejects.first() {
                return Err(Error::input(format!("expected rows of a table, found an invalid one: {}", reject.reason))
                    .at_byte(range.offset + reject.byte));
            }
            match &block.payload {
                Payload::Rows(batch) => look(batch),
                Payload::Samples(_) => Ok(()),
            }
        })
    }

    /// Describes where a row is, counted from 0: by its line for text, else by its number.
    pub(super) fn place_of(&self, row: u64) -> String {
        match self.line_of(row) {
            Ok(Some(line)) => format!("line {line}"),
            _ => format!("row {}", row + 1),
        }
    }

    /// Returns the line on which a row begins, from 1. The table is read again, a record at a time.
    fn line_of(&self, row: u64) -> Result<Option<u64>> {
        if !self.source.format.is_text() {
            return Ok(None);
        }
        let schema = schema_of(&self.fields);
        let (mut rows, mut start) = (0, None);
        self.each_range(1, &mut |range| {
            if start.is_some() {
                return Ok(());
            }
            let Parsed::Block(block) = self.source.reader.parse(range, &schema)? else { return Ok(()) };
            let records = block.records_in();
            // A record at a time: another cut would not tell on which line the row begins.
            if rows + records > row && records == 1 {
                let blank = range.content_bytes().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                start = Some(range.offset + blank as u64);
            }
            rows += records;
            Ok(())
        })?;
        let Some(start) = start else { return Ok(None) };
        let mut before = Vec::new();
        self.source.open(|_| {})?.take(start).read_to_end(&mut before)?;
        Ok(Some(before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1))
    }

    fn each_range(&self, range_bytes: usize, look: &mut dyn FnMut(&SourceRange) -> Result<()>) -> Result<()> {
        let uri = self.uri();
        let at = |e: Error| if e.place().source.is_none() { e.at_location(uri.clone()) } else { e };
        let input = match self.source.reader.facts().reads_own_source {
            true => Box::new(std::io::empty()) as Box<_>,
            false => self.source.open(|_| {}).map_err(at)?,
        };
        let mut ranges = self.source.reader.ranges(input, range_bytes, RANGE_BYTES);
        ranges.try_for_each(|range| look(&range?)).map_err(at)
    }
}
