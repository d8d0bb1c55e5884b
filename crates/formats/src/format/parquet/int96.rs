//! INT96 timestamps: days and nanoseconds of the day, which reach beyond every 64-bit unit that is as fine.
//!
//! ```text
//! nanoseconds of the day  i64le | Julian day  u32le       9999-12-31, which Spark writes for "no end", is not a number
//!                                                         of nanoseconds in 64 bits; it is one of microseconds
//! ```
//!
//! The decoder of the parquet crate wraps around silently. So the values of such columns are read once when a file is
//! opened, and each column gets a unit that holds all of them: nanoseconds as far as possible, as other readers have
//! it, otherwise microseconds. A column of which no unit holds all values is refused.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use ::parquet::{
    basic::{Encoding, Type as PhysicalType},
    column::{
        page::{Page, PageReader as _},
        reader::{ColumnReader, get_column_reader},
    },
    data_type::Int96,
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData},
        reader::ChunkReader,
        serialized_reader::SerializedPageReader,
    },
};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};

use super::pages::{MAX_BROTLI_BYTES, PARQUET, check_chunk};
use crate::{
    error::{Error, Result},
    format::guard::guard_decoding,
    schema::{map_fields, whole_micros},
};

/// The Julian day of 1970-01-01.
const EPOCH: i64 = 2_440_588;

const NANOS_PER_DAY: i64 = 86_400_000_000_000;

/// Number of values read at a time.
const ROWS: usize = 8_192;

/// Bytes of a value.
const WIDTH: usize = 12;

/// What the values of a column have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    /// Least and greatest value in nanoseconds since 1970.
    bounds: Option<(i128, i128)>,
    /// The coarsest unit of which all values are multiples.
    unit: TimeUnit,
}

impl Span {
    const EMPTY: Self = Self { bounds: None, unit: TimeUnit::Second };

    fn add_timestamp(&mut self, nanos: i64, day: i32) {
        let total = i128::from(i64::from(day) - EPOCH) * i128::from(NANOS_PER_DAY) + i128::from(nanos);
        self.bounds = Some(self.bounds.map_or((total, total), |(least, most)| (least.min(total), most.max(total))));
        while nanos % nanos_per(self.unit) != 0 {
            self.unit = match self.unit {
                TimeUnit::Second => TimeUnit::Millisecond,
                TimeUnit::Millisecond => TimeUnit::Microsecond,
                TimeUnit::Microsecond | TimeUnit::Nanosecond => TimeUnit::Nanosecond,
            };
        }
    }

    fn fits_unit(&self, unit: TimeUnit) -> bool {
        let within = |value: i128| i64::try_from(value / i128::from(nanos_per(unit))).is_ok();
        self.unit <= unit && self.bounds.is_none_or(|(least, most)| within(least) && within(most))
    }
}

/// Returns the nanoseconds of a unit.
fn nanos_per(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// What the values of all INT96 columns of a file have in common, by leaf.
#[derive(Debug)]
pub(super) struct Spans(Vec<Option<Span>>);

impl Spans {
    /// Reads the values of all INT96 columns of a file; `None` if it has no such column.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) fn read<R: ChunkReader + 'static>(
        input: &Arc<R>,
        metadata: &ParquetMetaData,
        name: &str,
    ) -> Result<Option<Self>> {
        let columns = metadata.file_metadata().schema_descr().columns();
        let is_int96 = |leaf: usize| columns.get(leaf).is_some_and(|c| c.physical_type() == PhysicalType::INT96);
        if !(0..columns.len()).any(is_int96) {
            return Ok(None);
        }
        let mut spans: Vec<Option<Span>> = (0..columns.len()).map(|l| is_int96(l).then_some(Span::EMPTY)).collect();
        for group in metadata.row_groups() {
            for (span, chunk) in spans.iter_mut().zip(group.columns()) {
                let Some(span) = span.as_mut().filter(|_| chunk.column_type() == PhysicalType::INT96) else { continue };
                guard_decoding(PARQUET, name, || add_chunk(input, group, chunk, span))?;
            }
        }
        Ok(Some(Self(spans)))
    }

    /// Returns the fields of the file with units that hold all values: `wanted`, or the first that does of the unit
    /// that the field has, nanoseconds and microseconds.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) for a column of which no such unit holds all values.
    pub(super) fn apply_units(&self, fields: &Fields, wanted: Option<TimeUnit>, name: &str) -> Result<Fields> {
        let leaves = RefCell::new(self.0.iter());
        let column = |field: &FieldRef| {
            let refused = Cell::new(false);
            let of_leaf = |field: Field| {
                if field.data_type().is_nested() {
                    return field;
                }
                let (Some(Some(span)), DataType::Timestamp(given, zone)) =
                    (leaves.borrow_mut().next(), field.data_type())
                else {
                    return field;
                };
                let units = [wanted.unwrap_or(*given), TimeUnit::Nanosecond, TimeUnit::Microsecond];
                let units = if wanted.is_some() { &units[..1] } else { &units[..] };
                let Some(unit) = units.iter().find(|unit| span.fits_unit(**unit)) else {
                    refused.set(true);
                    return field;
                };
                let zone = zone.clone();
                let typed = field.with_data_type(DataType::Timestamp(*unit, zone));
                let may_be_micros = *unit == TimeUnit::Nanosecond && span.fits_unit(TimeUnit::Microsecond);
                if may_be_micros { whole_micros(typed) } else { typed }
            };
            let changed = map_fields(&Fields::from(vec![Arc::clone(field)]), &of_leaf);
            if refused.get() {
                Err(unit_error(wanted).at_location(name).in_column(field.name().as_str()))
            } else {
                Ok(changed)
            }
        };
        let columns = fields.iter().map(column).collect::<Result<Vec<_>>>()?;
        Ok(columns.iter().flatten().cloned().collect())
    }
}

fn unit_error(wanted: Option<TimeUnit>) -> Error {
    Error::input(match wanted {
        Some(_) => "expected INT96 timestamps of whole microseconds, found ones with nanoseconds, or beyond 64 bits",
        None => {
            "expected INT96 timestamps of one unit that fits in 64 bits, found nanoseconds and dates beyond the years \
             1677 to 2262"
        }
    })
    .with_hint("leave the column out with --columns, or write the file again with 64-bit timestamps")
}

/// Adds the values of a chunk: those of its dictionary, if all data pages refer to it.
fn add_chunk<R: ChunkReader + 'static>(
    input: &Arc<R>,
    group: &RowGroupMetaData,
    chunk: &ColumnChunkMetaData,
    span: &mut Span,
) -> Result<(), ParquetError> {
    check_chunk(input.as_ref(), chunk, MAX_BROTLI_BYTES)?;
    let rows = usize::try_from(group.num_rows())?;
    let mut pages = SerializedPageReader::new(Arc::clone(input), chunk, rows, None)?;
    let is_coded = chunk
        .page_encoding_stats_mask()
        .is_some_and(|mask| mask.is_only(Encoding::RLE_DICTIONARY) || mask.is_only(Encoding::PLAIN_DICTIONARY));
    if is_coded
        && let Some(Page::DictionaryPage { buf, num_values, .. }) = pages.get_next_page()?
        && buf.len() == WIDTH * num_values as usize
    {
        for value in buf.chunks_exact(WIDTH) {
            if let Some((nanos, rest)) = value.split_first_chunk()
                && let Some(day) = rest.first_chunk()
            {
                span.add_timestamp(i64::from_le_bytes(*nanos), i32::from_le_bytes(*day));
            }
        }
        return Ok(());
    }
    let pages = Box::new(SerializedPageReader::new(Arc::clone(input), chunk, rows, None)?);
    let ColumnReader::Int96ColumnReader(mut reader) = get_column_reader(chunk.column_descr_ptr(), pages) else {
        return Ok(());
    };
    let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::<Int96>::new());
    let mut left = rows;
    while left > 0 {
        definition.clear();
        repetition.clear();
        values.clear();
        let (records, _, _) =
            reader.read_records(left.min(ROWS), Some(&mut definition), Some(&mut repetition), &mut values)?;
        for value in &values {
            let [low, high, day] = value.data() else { continue };
            span.add_timestamp((i64::from(high.cast_signed()) << 32) | i64::from(*low), day.cast_signed());
        }
        if records == 0 {
            break;
        }
        left = left.saturating_sub(records);
    }
    Ok(())
}
