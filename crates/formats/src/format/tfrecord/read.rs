//! TFRecord files of any origin as tables.
//!
//! A range holds whole frames. The checksum of a length protects the position of the next record, so a mismatch is an
//! error of the file; a wrong checksum of the data, or data that is not a `tf.train.Example`, rejects only that record.
//!
//! Without a schema, a column has the kind of its features: numbers, text if all bytes are UTF-8, lists if a record
//! does not have exactly one value. Parts of samples are text only if their names indicate text, as in tar.

use std::{
    collections::{BTreeMap, HashMap},
    io::Read,
    sync::Arc,
};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::{DataType, Field, Fields, SchemaRef},
};
use bytes::Bytes;

use super::{
    FOOT, HEAD, MAX_DATA,
    columns::{FeatureColumn, RowMismatch, readable_field},
    decode::{Example, Feature},
};
use crate::{
    codec::checksum::{masked_crc32c, xxh3_64},
    error::{Error, Result},
    format::{Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, TypeMismatch, ahead, cut_parts, facts},
    record::{PartSizes, Payload, RecordBlock, Reject, SourcePart, SourceRange, key::means_text, parts::KEY_COLUMN},
    schema,
};

/// Maximum bytes of a range: below 2 GiB, because offsets within columns have 31 bits, with room for numbers that
/// become text.
const MAX_RANGE: usize = 0x7FFF_FFFF / 4;
/// Maximum characters of a value shown in a message.
const SHOWN: usize = 60;

/// Reads TFRecord files of any origin.
#[derive(Debug, Clone, Default)]
pub struct TfRecordReader {
    types: Option<Fields>,
}

impl TfRecordReader {
    /// Creates a reader. `types` are the types of the columns that the records were written from, if known; otherwise
    /// types are inferred.
    pub fn new(types: Option<Fields>) -> Self {
        let readable = |fields: Fields| fields.iter().map(|field| readable_field(field)).collect::<Vec<_>>().into();
        Self { types: types.map(readable) }
    }
}

/// Detects a TFRecord file by its head. An empty one cannot be detected.
pub fn sniff(head: &[u8]) -> bool {
    matches!(length_of(head), Some(Ok(length)) if length <= MAX_DATA)
}

/// Returns the length of the data of a record at the start of `bytes`, if it is complete; the error states what is
/// wrong with it.
fn length_of(bytes: &[u8]) -> Option<Result<u64, String>> {
    let (length, crc) = bytes.get(..HEAD)?.split_first_chunk::<8>()?;
    let (expected, found) = (masked_crc32c(length), u32::from_le_bytes(*crc.first_chunk()?));
    let problem = || format!("expected a length with checksum {found:08x}, found {expected:08x}");
    Some(if expected == found { Ok(u64::from_le_bytes(*length)) } else { Err(problem()) })
}

impl RecordReader for TfRecordReader {
    fn facts(&self) -> &ReaderFacts {
        &facts::ROWS
    }

    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        Box::new(TfRecordRanges::new(input, 0, range_bytes, max_record_bytes))
    }

    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        let ranges = TfRecordRanges::new(input, 0, sizes.range_bytes, sizes.max_record_bytes);
        cut_parts(ranges, sizes, |range| (iter_frames(range).count() as u64, 0))
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        let start = part.start_byte();
        Box::new(TfRecordRanges::new(input, start, range_bytes, max_record_bytes))
    }

    fn infer(&self, range: &SourceRange) -> Fields {
        if let Some(types) = &self.types {
            return types.clone();
        }
        let mut seen: BTreeMap<&str, SeenFeatures> = BTreeMap::new();
        for example in iter_frames(range).filter_map(|frame| frame.decode_example().ok()) {
            for (name, feature) in &example.features {
                seen.entry(name)
                    .or_default()
                    .look_at(feature, example.find_exact(name).is_some_and(|e| !e.doubles.is_empty()));
            }
        }
        let samples = are_samples(&seen);
        let data_type = |name: &str, seen: &SeenFeatures| match seen.data_type() {
            // The extension determines the type of a part, as in tar.
            DataType::Utf8 if samples && name != KEY_COLUMN && !means_text(name) => DataType::Binary,
            other => other,
        };
        seen.iter()
            .map(|(name, seen)| Arc::new(schema::mark_repeated(Field::new(*name, data_type(name, seen), true))))
            .collect()
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let mut table = ExampleTable::new(schema);
        let (mut rows, mut hashes, mut rejects) = (Vec::new(), Vec::new(), Vec::new());
        let mut places = Vec::new();
        for (row, frame) in (0..).zip(iter_frames(range)) {
            match frame.decode_example() {
                Ok(example) => {
                    if let Err(mismatch) = table.push_example(&example) {
                        return Ok(Parsed::Mismatch(TypeMismatch { byte: frame.offset, ..mismatch }));
                    }
                    rows.push(row);
                    hashes.push(if range.hashed { xxh3_64(frame.data) } else { 0 });
                    places.push(frame.offset);
                }
                Err(reason) => {
                    let raw = Bytes::copy_from_slice(frame.data);
                    rejects.push(Reject { row, line: 0, byte: frame.offset, column: None, reason, raw });
                }
            }
        }
        let payload = match table.finish()? {
            Ok(batch) => Payload::Rows(batch),
            Err((row, mismatch)) => {
                let byte = places.get(row).copied().unwrap_or(range.offset);
                return Ok(Parsed::Mismatch(TypeMismatch { byte, ..mismatch }));
            }
        };
        Ok(Parsed::Block(RecordBlock {
            payload,
            rows,
            hashes,
            rejects,
            bytes_in: range.bytes_in(),
            ..RecordBlock::empty()
        }))
    }
}

/// A record with its framing.
struct Frame<'a> {
    /// Offset in the source.
    offset: u64,
    data: &'a [u8],
    /// Stored checksum of the data.
    expected: u32,
}

impl<'a> Frame<'a> {
    fn decode_example(&self) -> Result<Example<'a>, String> {
        let found = masked_crc32c(self.data);
        if found != self.expected {
            return Err(format!("expected data with checksum {:08x}, found {found:08x}", self.expected));
        }
        Example::read(self.data)
    }
}

/// Iterates over the records of a range, which are complete.
fn iter_frames(range: &SourceRange) -> impl Iterator<Item = Frame<'_>> {
    let (bytes, mut at) = (range.content_bytes(), 0);
    std::iter::from_fn(move || {
        let length = length_of(&bytes[at..])?.ok()?;
        let (data, foot) = bytes[at + HEAD..].split_at_checked(usize::try_from(length).ok()?)?;
        let expected = u32::from_le_bytes(*foot.first_chunk()?);
        let offset = range.offset + at as u64;
        at += HEAD + data.len() + FOOT;
        Some(Frame { offset, data, expected })
    })
}

/// Whether records are samples: they have a text key, and all other features are parts.
fn are_samples(seen: &BTreeMap<&str, SeenFeatures>) -> bool {
    let content = |seen: &SeenFeatures| matches!(seen.data_type(), DataType::Utf8 | DataType::Binary | DataType::Null);
    seen.get(KEY_COLUMN).is_some_and(|key| key.data_type() == DataType::Utf8) && seen.values().all(content)
}

/// What was seen of the features of one name.
#[derive(Debug, Default)]
struct SeenFeatures {
    ints: bool,
    floats: bool,
    doubles: bool,
    bytes: bool,
    binary: bool,
    /// Whether a record had a number of values other than one.
    lists: bool,
}

impl SeenFeatures {
    fn look_at(&mut self, feature: &Feature<'_>, doubles: bool) {
        let count = match feature {
            Feature::None => return,
            Feature::Ints(values) => {
                self.ints = true;
                values.len()
            }
            Feature::Floats(values) => {
                self.floats = true;
                self.doubles |= doubles;
                values.len()
            }
            Feature::Bytes(values) => {
                self.bytes = true;
                self.binary |= values.iter().any(|bytes| simdutf8::basic::from_utf8(bytes).is_err());
                values.len()
            }
        };
        self.lists |= count != 1;
    }

    fn data_type(&self) -> DataType {
        let item = match self {
            Self { binary: true, .. } => DataType::Binary,
            Self { bytes: true, .. } => DataType::Utf8,
            Self { doubles: true, .. } | Self { ints: true, floats: true, .. } => DataType::Float64,
            Self { floats: true, .. } => DataType::Float32,
            Self { ints: true, .. } => DataType::Int64,
            _ => DataType::Null,
        };
        if self.lists { DataType::new_list(item, true) } else { item }
    }
}

/// The columns of a schema, to which records are appended.
struct ExampleTable<'a> {
    schema: SchemaRef,
    names: HashMap<String, usize>,
    columns: Vec<FeatureColumn<'a>>,
    /// Number of the last record with a value, by column.
    filled: Vec<usize>,
    rows: usize,
}

impl<'a> ExampleTable<'a> {
    fn new(schema: &SchemaRef) -> Self {
        let fields = schema.fields();
        Self {
            schema: Arc::clone(schema),
            names: fields.iter().enumerate().map(|(i, field)| (field.name().clone(), i)).collect(),
            columns: fields.iter().map(|field| FeatureColumn::new(field)).collect(),
            filled: vec![0; fields.len()],
            rows: 0,
        }
    }

    fn push_example(&mut self, example: &Example<'a>) -> Result<(), TypeMismatch> {
        self.rows += 1;
        for (name, feature) in &example.features {
            let Some(&at) = self.names.get(*name) else {
                return Err(type_mismatch(name, display_feature(feature), "no column of this name"));
            };
            if self.columns[at].push(feature, example.find_exact(name)).is_none() {
                return Err(type_mismatch(
                    name,
                    display_feature(feature),
                    &self.schema.field(at).data_type().to_string(),
                ));
            }
            self.filled[at] = self.rows;
        }
        for (column, filled) in self.columns.iter_mut().zip(&self.filled) {
            if *filled < self.rows {
                column.push_null();
            }
        }
        Ok(())
    }

    /// Returns the columns as a batch, or the row with a value that does not fit.
    fn finish(self) -> Result<Result<RecordBatch, (usize, TypeMismatch)>> {
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (field, column) in self.schema.fields().iter().zip(self.columns) {
            match column.finish() {
                Ok(array) => arrays.push(array),
                Err(RowMismatch(row)) => {
                    let mismatch =
                        type_mismatch(field.name(), "another value".to_owned(), &field.data_type().to_string());
                    return Ok(Err((row, mismatch)));
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(Ok(RecordBatch::try_new_with_options(self.schema, arrays, &options)?))
    }
}

fn type_mismatch(column: &str, value: String, expected: &str) -> TypeMismatch {
    TypeMismatch { column: column.to_owned(), line: 0, byte: 0, value, expected: expected.to_owned() }
}

/// Returns a feature for messages.
fn display_feature(feature: &Feature<'_>) -> String {
    let text = match feature {
        Feature::None => "nothing".to_owned(),
        Feature::Ints(values) => format!("{:?}", &values[..values.len().min(SHOWN)]),
        Feature::Floats(values) => format!("{:?}", &values[..values.len().min(SHOWN)]),
        Feature::Bytes(values) => match &values[..] {
            [bytes] => bytes[..bytes.len().min(SHOWN)].escape_ascii().to_string(),
            values => format!("{} values", values.len()),
        },
    };
    text.chars().take(SHOWN).collect()
}

/// Iterator over ranges, which end after the last record that fits.
struct TfRecordRanges<'a> {
    input: Box<dyn Read + Send + 'a>,
    /// Bytes read but not returned yet; starts with a record.
    buffer: Vec<u8>,
    /// Offset of the buffer in the source.
    offset: u64,
    range_bytes: usize,
    max_record_bytes: usize,
    /// Error to be returned after the current range.
    failure: Option<Error>,
    done: bool,
}

impl<'a> TfRecordRanges<'a> {
    /// Starts at a record, at this offset in the source.
    fn new(input: SourceBytes<'a>, offset: u64, range_bytes: usize, max_record_bytes: usize) -> Self {
        let range_bytes = range_bytes.clamp(1, MAX_RANGE);
        let max_record_bytes = max_record_bytes.min(MAX_RANGE);
        Self { input, buffer: Vec::new(), offset, range_bytes, max_record_bytes, failure: None, done: false }
    }

    fn next_range(&mut self) -> Result<Option<SourceRange>> {
        self.buffer.reserve_exact((self.range_bytes + ahead::READ).saturating_sub(self.buffer.len()));
        let mut at = 0;
        loop {
            match self.record_end(at) {
                Ok(Some(end)) => at = end,
                Ok(None) => break,
                // The records before it are valid.
                Err(error) if at > 0 => {
                    self.failure = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ahead::take_range(&mut self.buffer, &mut self.offset, at))
    }

    /// Returns the end of the record at an offset, once it is complete; `None` at the end of the source or of the
    /// range.
    fn record_end(&mut self, at: usize) -> Result<Option<usize>> {
        let Some(length) = self.data_length(at)? else { return Ok(None) };
        let end = at + HEAD + length + FOOT;
        if at > 0 && end > self.range_bytes {
            return Ok(None);
        }
        if self.fill_buffer(end)? {
            return Ok(Some(end));
        }
        Err(self.cut_short(&format!("expected a record of {length} bytes")))
    }

    /// Returns the length of the data of the record at an offset; `None` at the end.
    fn data_length(&mut self, at: usize) -> Result<Option<usize>> {
        if !self.fill_buffer(at + HEAD)? {
            self.done = self.buffer.len() == at;
            return if self.done { Ok(None) } else { Err(self.cut_short("expected a record")) };
        }
        let byte = self.offset + at as u64;
        match length_of(&self.buffer[at..]).transpose() {
            Ok(length) => {
                let length = length.unwrap_or(u64::MAX);
                let fits = usize::try_from(length).ok().filter(|length| *length <= self.max_record_bytes);
                fits.map(Some).ok_or_else(|| {
                    let limit = self.max_record_bytes;
                    Error::input(format!("expected a record of at most {limit} bytes, found one of {length}"))
                        .at_byte(byte)
                        .with_hint("if the input is as it should be, raise --memory")
                })
            }
            Err(problem) => Err(Error::input(problem)
                .at_byte(byte)
                .with_hint("the file is damaged or not a TFRecord; get it again from its source")),
        }
    }

    fn fill_buffer(&mut self, target: usize) -> Result<bool> {
        ahead::fill_buffer(self.input.as_mut(), &mut self.buffer, target)
    }

    fn cut_short(&self, expected: &str) -> Error {
        ahead::cut_short(expected, self.offset + self.buffer.len() as u64)
    }
}

impl Iterator for TfRecordRanges<'_> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.failure.take().map_or_else(|| self.next_range(), Err);
        self.done |= next.is_err();
        next.transpose()
    }
}
