//! Restores rows that a tar stores as JSON: the result of `convert --to tar` for a table, if the file beside the shards
//! states the types of the columns.
//!
//! ```text
//! people-000000001.json   {"id":7,"born":"1999-12-31","score":"NaN"}   ->   id int64 | born date | score float64
//! ```
//!
//! JSON has fewer types than tables, so each value is read in the type that represents it in JSON, mostly text, and
//! then converted to its own type.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryBuilder, Int64Array, Int64Builder, ListArray, MapArray, RecordBatch,
        StructArray, new_null_array,
    },
    compute::{CastOptions, can_cast_types, cast_with_options},
    datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit},
    error::ArrowError,
};
use bytes::Bytes;

use crate::{
    codec::base64::from_base64,
    error::{Error, Result},
    format::{
        Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, facts,
        json::{JsonSource, Mode},
        tar::TarReader,
    },
    record::{
        PartSizes, Payload, RecordBlock, Reject, Sample, SourcePart, SourceRange, duration, hash::row_hashes, interval,
        time, widen::cast_to,
    },
    schema,
};

/// UTC as an offset.
const UTC: &str = "+00:00";

/// Extension of the only part of a row.
const JSON: &str = "json";

/// Reader of rows in a tar.
#[derive(Debug)]
pub(super) struct RowsInTar {
    tar: TarReader,
    json: JsonSource,
    types: Fields,
    carriers: SchemaRef,
}

impl RowsInTar {
    /// Creates a reader for rows whose columns had these types.
    pub(super) fn new(types: Fields) -> Self {
        let types: Fields = types.iter().map(|field| Arc::new(restorable_field(field))).collect();
        let carriers: Fields = types.iter().map(|field| Arc::new(carrier_field(field))).collect();
        let json = JsonSource::new(Mode::Lines);
        Self { tar: TarReader::new(), json, types, carriers: Arc::new(Schema::new(carriers)) }
    }

    /// Converts rows to their original types.
    fn restore_rows(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let columns = self
            .types
            .iter()
            .zip(rows.columns())
            .map(|(field, array)| restore_array(array, field.data_type()).map_err(|e| e.in_column(field.name())))
            .collect::<Result<_>>()?;
        Ok(RecordBatch::try_new(Arc::new(Schema::new(self.types.clone())), columns)?)
    }
}

impl RecordReader for RowsInTar {
    fn facts(&self) -> &ReaderFacts {
        &facts::ROWS
    }

    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        self.tar.ranges(input, range_bytes, max_record_bytes)
    }

    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        self.tar.parts(input, sizes)
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        self.tar.ranges_of(part, input, range_bytes, max_record_bytes)
    }

    fn infer(&self, _: &SourceRange) -> Fields {
        self.types.clone()
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let unhashed = SourceRange { hashed: false, ..range.clone() };
        let Parsed::Block(block) = self.tar.parse(&unhashed, schema)? else {
            return Err(Error::internal("a value of an archive did not fit its column"));
        };
        let RecordBlock { payload: Payload::Samples(samples), rows: numbers, mut rejects, .. } = block else {
            return Err(Error::internal("an archive holds samples"));
        };
        let mut lines = Vec::new();
        let mut accepted = Vec::new();
        for (sample, number) in samples.iter().zip(numbers) {
            match row_of(sample) {
                Some(text) => {
                    lines.extend_from_slice(text);
                    lines.push(b'\n');
                    accepted.push(number);
                }
                None => rejects.push(reject_row(number, range, sample)),
            }
        }
        let lines = SourceRange { hashed: false, ..SourceRange::of_bytes(0, Bytes::from(lines)) };
        let parsed = self.json.parse(&lines, &self.carriers)?;
        let read = match parsed {
            Parsed::Block(read) => read,
            Parsed::Mismatch(mismatch) => return Ok(Parsed::Mismatch(mismatch)),
        };
        let number = |row: u32| accepted.get(row as usize).copied().unwrap_or_default();
        rejects.extend(read.rejects.into_iter().map(|r| Reject {
            row: number(r.row),
            line: 0,
            byte: range.offset,
            ..r
        }));
        rejects.sort_by_key(|r| r.row);
        let Payload::Rows(rows) = read.payload else { return Err(Error::internal("JSON holds rows")) };
        let rows = self.restore_rows(&rows)?;
        Ok(Parsed::Block(RecordBlock {
            hashes: range.hashes_if_needed(rows.num_rows(), || row_hashes(&rows)),
            rows: read.rows.iter().map(|row| number(*row)).collect(),
            payload: Payload::Rows(cast_to(&rows, schema)?),
            lacking: read.lacking,
            rejects,
            ignored: block.ignored,
            bytes_in: block.bytes_in,
            ..RecordBlock::empty()
        }))
    }
}

/// Returns the JSON of a row; `None` if the sample is not a row, or contains line ends, which shardify never writes.
fn row_of(sample: &Sample) -> Option<&[u8]> {
    match sample.parts.as_slice() {
        [part] if part.extension == JSON && memchr::memchr(b'\n', &part.bytes).is_none() => Some(&part.bytes),
        _ => None,
    }
}

fn reject_row(row: u32, range: &SourceRange, sample: &Sample) -> Reject {
    Reject {
        row,
        line: 0,
        byte: range.offset,
        column: None,
        reason: format!("expected a row, `{0}.json` on one line, found other parts in sample `{0}`", sample.key),
        raw: Bytes::new(),
    }
}

/// Returns the field in whose type JSON represents the values.
fn carrier_field(field: &Field) -> Field {
    if schema::is_json(field) {
        return field.clone();
    }
    let inner = |field: &Field| Arc::new(carrier_field(field));
    let carried = match field.data_type() {
        same @ (DataType::Int64 | DataType::Boolean | DataType::Utf8) => same.clone(),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|f| inner(f)).collect()),
        data_type => match item_of(data_type) {
            Some(item) => DataType::List(inner(item)),
            None if data_type.is_nested() => return schema::json_field(field.name()),
            None => DataType::Utf8,
        },
    };
    Field::new(field.name(), carried, true)
}

/// Returns the item field of any kind of list; a map is a list of its entries.
fn item_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => Some(item),
        _ => None,
    }
}

/// Returns the field of the restored values: the original one, unless text cannot be converted to its type.
fn restorable_field(field: &Field) -> Field {
    match field.data_type() {
        data_type if can_restore(data_type) => field.clone(),
        data_type if data_type.is_nested() => schema::json_field(field.name()),
        _ => Field::new(field.name(), DataType::Utf8, true),
    }
}

fn can_restore(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|f| can_restore(f.data_type())),
        DataType::Null | DataType::Duration(_) | DataType::Interval(_) | DataType::FixedSizeBinary(_) => true,
        other => match item_of(other) {
            Some(item) => can_restore(item.data_type()),
            None => !other.is_nested() && can_cast_types(&DataType::Utf8, other),
        },
    }
}

/// Converts values read from JSON to their original type.
fn restore_array(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    match (array.data_type(), to) {
        (from, to) if from == to => Ok(Arc::clone(array)),
        (_, DataType::Null) => Ok(new_null_array(to, array.len())),
        (DataType::List(_), to) => restored_lists(array, to),
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let members = array.as_struct();
            let columns = fields.iter().zip(members.columns()).map(|(f, column)| restore_array(column, f.data_type()));
            let columns = columns.collect::<Result<_>>()?;
            let nulls = members.nulls().cloned();
            let built = StructArray::try_new_with_length(fields.clone(), columns, nulls, members.len());
            built.map(|built| Arc::new(built) as ArrayRef).map_err(|e| cast_error(to, e))
        }
        (DataType::Utf8, DataType::Timestamp(..) | DataType::Date32) => restore_timestamps(array, to),
        (DataType::Utf8, DataType::Duration(unit)) => restore_durations(array, *unit, to),
        (DataType::Utf8, DataType::Interval(_)) => restore_intervals(array, to),
        (_, to) if to.is_binary() || matches!(to, DataType::FixedSizeBinary(_)) => strict_cast(&bytes_of(array)?, to),
        _ => strict_cast(array, to),
    }
}

/// Restores lists of any kind, and maps.
fn restored_lists(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let list = array.as_list::<i32>();
    let Some(item) = item_of(to) else { return strict_cast(array, to) };
    let values = restore_array(list.values(), item.data_type())?;
    let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
    if let DataType::Map(entries, sorted) = to {
        let entry = values.as_struct_opt().ok_or_else(|| Error::internal("entries of a map are no structs"))?;
        let map = MapArray::try_new(Arc::clone(entries), offsets, entry.clone(), nulls, *sorted);
        return map.map(|map| Arc::new(map) as ArrayRef).map_err(|e| cast_error(to, e));
    }
    let lists = ListArray::try_new(Arc::clone(item), offsets, values, nulls).map_err(|e| cast_error(to, e))?;
    strict_cast(&(Arc::new(lists) as ArrayRef), to)
}

fn restore_durations(array: &ArrayRef, unit: TimeUnit, to: &DataType) -> Result<ArrayRef> {
    let texts = array.as_string::<i32>();
    let mut values = Int64Builder::with_capacity(texts.len());
    for text in texts {
        match text.map(|text| duration::parse(text, unit)) {
            None => values.append_null(),
            Some(Some(value)) => values.append_value(value),
            Some(None) => {
                let text = text.unwrap_or_default();
                return Err(Error::input(format!("expected a duration such as PT1.5S, found `{text}`")));
            }
        }
    }
    strict_cast(&(Arc::new(values.finish()) as ArrayRef), to)
}

/// Restores dates and timestamps. Arrow's parser is fast, but knows only years of four digits.
fn restore_timestamps(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let cast_all = || match to {
        // The text states its offset; the zone's name is a label that the cast does not know.
        DataType::Timestamp(unit, Some(zone)) if zone.as_ref() != UTC => {
            strict_cast(&strict_cast(array, &DataType::Timestamp(*unit, Some(UTC.into())))?, to)
        }
        _ => strict_cast(array, to),
    };
    let texts = array.as_string::<i32>();
    let parse = |text: &str| match to {
        DataType::Timestamp(unit, Some(_)) => time::parse_instant(text, *unit),
        DataType::Timestamp(unit, None) => time::parse_timestamp(text, *unit),
        _ => time::parse_date(text).map(i64::from),
    };
    cast_all().or_else(|error| {
        let values = texts.iter().map(|text| text.map(|text| parse(text).ok_or(())).transpose());
        let Ok(values) = values.collect::<Result<Vec<_>, ()>>() else { return Err(error) };
        let values: ArrayRef = Arc::new(Int64Array::from(values));
        match to {
            DataType::Date32 => strict_cast(&strict_cast(&values, &DataType::Int32)?, to),
            _ => strict_cast(&values, to),
        }
    })
}

fn restore_intervals(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let texts = array.as_string::<i32>();
    interval::of_texts(texts, to)
        .map_err(|row| Error::input(format!("expected an interval such as P1M2DT3.5S, found `{}`", texts.value(row))))
}

fn strict_cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, to, &options).map_err(|e| cast_error(to, e))
}

fn cast_error(to: &DataType, error: ArrowError) -> Error {
    Error::input(format!("expected values of {to}, found other values")).with_cause(error)
}

fn bytes_of(array: &ArrayRef) -> Result<ArrayRef> {
    let texts = array.as_string::<i32>();
    let mut bytes = BinaryBuilder::with_capacity(texts.len(), texts.values().len());
    for text in texts {
        match text.map(from_base64) {
            None => bytes.append_null(),
            Some(Some(value)) => bytes.append_value(value),
            Some(None) => return Err(Error::input("expected base64, found other text")),
        }
    }
    Ok(Arc::new(bytes.finish()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{
        BinaryArray, Date32Array, Decimal128Array, Float64Array, Int32Array, StringArray, TimestampMicrosecondArray,
        UInt64Array,
    };

    use super::*;
    use crate::format::{Framed, Framing, Keyed, tar::TarFraming};

    fn nested() -> ArrayRef {
        let fields: Fields =
            vec![Field::new("on", DataType::Date32, true), Field::new("raw", DataType::Binary, true)].into();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Date32Array::from(vec![Some(1), None, Some(3)])),
            Arc::new(BinaryArray::from_opt_vec(vec![Some(&b"\x00\xff"[..]), Some(b""), None])),
        ];
        Arc::new(StructArray::new(fields, columns, Some(vec![true, true, false].into())))
    }

    #[test]
    fn rows_round_trip_with_their_types() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("small", Arc::new(Int32Array::from(vec![Some(-1), None, Some(i32::MAX)]))),
            ("large", Arc::new(UInt64Array::from(vec![Some(u64::MAX), Some(0), None]))),
            ("float", Arc::new(Float64Array::from(vec![Some(f64::INFINITY), Some(-0.1), None]))),
            ("text", Arc::new(StringArray::from(vec![Some(""), Some("1\n2"), None]))),
            ("day", Arc::new(Date32Array::from(vec![Some(-1), Some(20_000), None]))),
            ("at", Arc::new(TimestampMicrosecondArray::from(vec![Some(1), Some(-1), None]).with_timezone("UTC"))),
            // The first microseconds of the years -1 and 10000.
            (
                "far",
                Arc::new(TimestampMicrosecondArray::from(vec![
                    Some(-62_198_755_200_000_000),
                    Some(253_402_300_800_000_000),
                    None,
                ])),
            ),
            (
                "price",
                Arc::new(
                    Decimal128Array::from(vec![Some(150), None, Some(-1)]).with_precision_and_scale(9, 2).unwrap(),
                ),
            ),
            ("raw", Arc::new(BinaryArray::from_opt_vec(vec![Some(&b"\x00"[..]), None, Some(b"")]))),
            ("visit", nested()),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
        let keys: Vec<String> = (0..3).map(|i| format!("k{i}")).collect();
        let mut framed = Framed::default();
        let payload = Payload::Rows(batch.clone());
        TarFraming.frame(Keyed::new(&payload, &keys), &mut framed).unwrap();
        let text = String::from_utf8_lossy(&framed.bytes);
        assert!(text.contains(r#""far":"-0001-01-01T00:00:00""#), "{text}");
        assert!(text.contains(r#""far":"+10000-01-01T00:00:00""#), "{text}");
        let reader = RowsInTar::new(batch.schema_ref().fields().clone());
        let ranges: Vec<SourceRange> =
            reader.ranges(Box::new(&framed.bytes[..]), 1 << 20, 1 << 20).collect::<Result<_>>().unwrap();
        let [range] = ranges.as_slice() else { panic!("{ranges:?}") };
        let schema = batch.schema();
        let Parsed::Block(block) = reader.parse(range, &schema).unwrap() else { panic!("no block") };
        assert!(block.rejects.is_empty(), "{:?}", block.rejects);
        let Payload::Rows(rows) = block.payload else { panic!("no rows") };
        assert_eq!(rows, batch);
    }
}
