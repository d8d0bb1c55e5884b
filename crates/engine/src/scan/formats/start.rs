//! The start of a file, by which its format is told, and what else there is to open it.

use std::{
    io::{Cursor, Read},
    sync::Arc,
};

use arrow::datatypes::Fields;

use super::{
    super::{Head, SourceFile, source::RecordSource},
    format::InputFormat,
};
use crate::{
    array::records::ArrayOptions,
    codec::encoding::Encoding,
    error::{Error, Result},
    format::{
        RecordReader, arrays::OpenSources, csv, excel::options::ExcelOptions, json, ranged::RangedInput,
        warc::WarcOptions,
    },
    record::SourceRange,
    schema,
};

/// Bytes looked at to tell a format.
pub(in crate::scan) const HEAD_BYTES: usize = 256 << 10;
/// Last extensions of files that are compressed or encrypted as a whole, those included that are not read.
pub(in crate::scan) const PACKED: &[&str] =
    &["br", "bz2", "encrypted", "gz", "lz", "lz4", "lzma", "lzo", "sz", "xz", "z", "zst"];

/// How to read sources, where their content does not say.
#[derive(Debug, Clone, Default)]
pub struct SniffOptions {
    /// The format, when the user named it.
    pub from: Option<InputFormat>,
    /// Encoding of text, when the user named it.
    pub encoding: Option<Encoding>,
    /// Settings of delimited text.
    pub csv: csv::CsvOptions,
    /// What records of arrays are.
    pub arrays: ArrayOptions,
    /// Sources of arrays that are open.
    pub open: Arc<OpenSources>,
    /// Which sheet of a workbook is read, and how.
    pub excel: ExcelOptions,
    /// Settings of JSON.
    pub json: json::JsonOptions,
    /// How the content of WARC records is read.
    pub warc: WarcOptions,
    /// Columns of text that are to be read as bytes.
    pub binary: Vec<String>,
    /// Columns of rows that are read; `None` for all.
    pub taken: Option<Vec<String>>,
    /// Whether the hash of each source is needed, even if its records do not need all of its bytes.
    pub hashed: bool,
    /// Whether members of archives that are read in ranges are compared with their checksums before.
    pub compared: bool,
    /// Whether a source that cannot be read is a matter for the conversion.
    pub keep_going: bool,
    /// How many sources there are; of many, less of each is looked at.
    pub sources: usize,
    /// Of how many sources the first records stay in memory; of all if this is not said.
    pub samples: Option<usize>,
}

/// The start of a file, and how it can be read further.
pub(in crate::scan) struct Start<'a> {
    pub(in crate::scan) file: &'a SourceFile,
    pub(in crate::scan) options: &'a SniffOptions,
    pub(in crate::scan) head: Head,
}

/// Largest Parquet or Arrow file that is read although it is compressed as a whole, which leaves no way but to hold it.
const PACKED_FILE: u64 = 256 << 20;

/// Most bytes read to see one record of a format whose records can be large.
const SAMPLE_BYTES: usize = 32 << 20;

impl Start<'_> {
    /// Whether the user named this format, or none.
    pub(super) fn accepts_format(&self, format: InputFormat) -> bool {
        self.options.from.is_none_or(|from| from == format)
    }

    /// Whether the user or the name of the file says that it is of this format.
    pub(super) fn states_format(&self, format: InputFormat) -> bool {
        self.options.from == Some(format) || format.matches_packed_name(self.file.name())
    }

    /// Returns the file with a reader of its records, and the first of them.
    pub(super) fn read_by(
        &self,
        format: InputFormat,
        reader: impl RecordReader + 'static,
    ) -> Result<Option<RecordSource>> {
        let reader: Box<dyn RecordReader> = Box::new(reader);
        let mut source =
            RecordSource { packed: self.head.packed, ..RecordSource::new(self.file, format, reader.into()) };
        source.sample = first_range(&source)?;
        Ok(Some(source))
    }

    /// Returns the file as something whose ranges are read.
    pub(super) fn ranged_input(&self) -> Result<RangedInput> {
        open_ranged(self.file, self.head.packed)
    }
}

/// Parquet and Arrow files are read out of order, so one that is compressed as a whole is decompressed to memory.
pub(in crate::scan) fn open_ranged(file: &SourceFile, packed: bool) -> Result<RangedInput> {
    if !packed {
        return Ok(RangedInput::Object(file.object()));
    }
    let mut bytes = Vec::new();
    file.open(|_| {})?.take(PACKED_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PACKED_FILE {
        return Err(Error::input(
            "expected at most 256 MiB of Parquet, Arrow or arrays in a compressed file, found more",
        )
        .at_location(file.uri())
        .with_hint("decompress it first; these formats compress by themselves"));
    }
    Ok(RangedInput::Bytes(bytes.into()))
}

/// Types that the rows in a file had, if shardify wrote it and its folder says so.
pub(super) fn types_beside(file: &SourceFile) -> Result<Option<Fields>> {
    let Some(text) = file.object().read_sibling(schema::file::NAME)? else { return Ok(None) };
    // Somebody else's file of that name says nothing.
    Ok(std::str::from_utf8(&text).ok().and_then(|text| schema::file::parse(text).ok()))
}

/// Returns the first records of a source; `None` when there are none, or when they are too large or damaged to tell
/// anything.
pub(in crate::scan) fn first_range(source: &RecordSource) -> Result<Option<SourceRange>> {
    let input: Box<dyn Read + Send> =
        if source.reader.facts().reads_own_source { Box::new(std::io::empty()) } else { source.open(|_| {})? };
    let mut ranges = source.reader.ranges(input, HEAD_BYTES, SAMPLE_BYTES);
    Ok(ranges.next().and_then(Result::ok))
}

/// Names the source in an error that does not.
pub(in crate::scan) fn locate_result<T>(result: Result<T>, file: &SourceFile) -> Result<T> {
    result.map_err(|e| if e.place().source.is_some() { e } else { e.at_location(file.uri()) })
}

/// Returns the first range of the head, as far as it holds whole records.
pub(super) fn whole_records(reader: &dyn RecordReader, head: &[u8], complete: bool) -> Option<SourceRange> {
    let length = head.len().max(1);
    let limit = if complete { length.min(HEAD_BYTES / 2) } else { length.div_ceil(2) };
    // A record larger than the head says nothing yet, and neither does one of a table that the end of the head has cut;
    // of JSON, it is no record.
    let may_be_cut = !complete && reader.facts().columns.is_some();
    let is_whole = |range: &SourceRange| !may_be_cut || range.offset + range.bytes_in() < length as u64;
    let of_limit = |limit| {
        let first = reader.ranges(Box::new(Cursor::new(head)), limit, length * 2).next();
        first.and_then(Result::ok).filter(is_whole)
    };
    of_limit(limit).or_else(|| of_limit(1))
}
