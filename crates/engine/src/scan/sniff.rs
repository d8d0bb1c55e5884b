//! What one file is, told by its content: compression first, then formats with a signature, then text.

use std::sync::Arc;

use arrow::datatypes::Fields;

use super::{
    Head, SourceFile,
    formats::{
        self, HEAD_BYTES, InputFormat, SniffOptions, Start, first_range, is_csv_name, locate_result, zarr_source,
    },
    source::RecordSource,
};
use crate::{
    delta::{DataFile, TableReader},
    error::{Error, Kind, Place, Result},
    format::{
        Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, facts, parquet::ParquetReader, ranged::RangedInput,
    },
    record::SourceRange,
};

/// Bytes looked at to tell a format, where there are so many sources that all of them together tell enough.
const SHORT_HEAD_BYTES: usize = 32 << 10;
/// The same of delimited text whose first record is longer than that: it may have tens of thousands of columns.
const WIDE_HEAD_BYTES: usize = 8 << 20;
/// Bytes looked at in all sources together, unless that would be less than the above of each.
const ALL_HEAD_BYTES: usize = 64 << 20;

/// The records that a file holds; `None` when it holds none.
pub(super) fn sniff_source(file: &SourceFile, options: &SniffOptions) -> Result<Option<RecordSource>> {
    if file.is_store() {
        return zarr_source(file, options);
    }
    if let Some(table) = file.table_file() {
        return table_source(file, table).map(Some);
    }
    let head_bytes = (ALL_HEAD_BYTES / options.sources.max(1)).clamp(SHORT_HEAD_BYTES, HEAD_BYTES);
    let head = file.read_head(head_bytes)?;
    let enough = head.complete || head_bytes == HEAD_BYTES;
    let complete = head.complete;
    let found = source_of(file, options, head)?;
    if found.is_none() && !complete && is_said_to_be_delimited(file, options) {
        return source_of(file, options, file.read_head(WIDE_HEAD_BYTES)?);
    }
    if enough || found.as_ref().is_some_and(|source| source.sample.is_some()) {
        return Ok(found);
    }
    // Its first record may just be longer than that.
    source_of(file, options, file.read_head(HEAD_BYTES)?)
}

/// Whether the user or the name says that a file is delimited text.
fn is_said_to_be_delimited(file: &SourceFile, options: &SniffOptions) -> bool {
    match options.from {
        Some(from) => from.is_delimited(),
        None => is_csv_name(&file.name().to_ascii_lowercase()),
    }
}

fn source_of(file: &SourceFile, options: &SniffOptions, head: Head) -> Result<Option<RecordSource>> {
    formats::open(Start { file, options, head })
}

/// A data file of a Delta table.
fn table_source(file: &SourceFile, table: &DataFile) -> Result<RecordSource> {
    let inner = ParquetReader::open_as_stored(RangedInput::Object(file.object()), &file.uri())?;
    let reader = Arc::new(locate_result(TableReader::open(inner, table), file)?);
    let mut source = RecordSource::new(file, InputFormat::PARQUET, reader);
    source.sample = first_range(&source)?;
    Ok(source)
}

/// A source that fails with `error` when it is converted.
pub(super) fn unreadable_source(file: &SourceFile, options: &SniffOptions, error: Error) -> RecordSource {
    // Of what its name states, so that it is an error of its own among files of one format.
    let stated = || InputFormat::ALL.into_iter().find(|format| format.matches_packed_name(file.name()));
    let format = options.from.or_else(stated).unwrap_or(InputFormat::CSV);
    let reader =
        Arc::new(Unreadable { kind: error.kind(), message: error.message().to_owned(), place: error.place().clone() });
    RecordSource::new(file, format, reader)
}

/// Stands for a file that could not be read, until it is its turn.
#[derive(Debug)]
struct Unreadable {
    kind: Kind,
    message: String,
    place: Place,
}

impl RecordReader for Unreadable {
    fn facts(&self) -> &ReaderFacts {
        &facts::HELD
    }

    fn ranges<'a>(&'a self, _: SourceBytes<'a>, _: usize, _: usize) -> RangeStream<'a> {
        Box::new(std::iter::once_with(|| {
            let mut error = Error::new(self.kind, self.message.clone());
            let place = &self.place;
            error = place.source.iter().fold(error, |e, source| e.at_location(source.clone()));
            Err(place.byte.iter().fold(error, |e, byte| e.at_byte(*byte)))
        }))
    }

    fn infer(&self, _: &SourceRange) -> Fields {
        Fields::empty()
    }

    fn parse(&self, _: &SourceRange, _: &arrow::datatypes::SchemaRef) -> Result<Parsed> {
        Err(Error::internal("nothing was read of this source"))
    }
}
