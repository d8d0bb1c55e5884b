//! Bloom filters of merged chunks. Filters cannot be merged without growing: those of many small row groups are mostly
//! empty one by one, but not together. So the values are read again and hashed into a filter sized for all of them.
//!
//! Only columns that have filters require this; others are not decoded.

use std::{ops::Range, sync::Arc};

use ::parquet::{
    bloom_filter::Sbbf,
    column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader},
    data_type::{AsBytes, DataType},
    errors::ParquetError,
    file::{serialized_reader::SerializedPageReader, statistics::Statistics},
    schema::types::ColumnDescPtr,
};

use super::{
    super::pages::{MAX_BROTLI_BYTES, PARQUET, check_chunk, is_brotli},
    column::Part,
};
use crate::{error::Result, format::guard::guard_decoding};

/// False positive rate of the filter.
const FALSE_POSITIVE_RATE: f64 = 0.01;

/// Number of values read at a time.
const ROWS: usize = 8_192;

/// Returns the filter of all parts together; `None` if no part has one.
pub(super) fn filter_of(column: &ColumnDescPtr, parts: &[Part<'_>]) -> Result<Option<Sbbf>> {
    if !parts.iter().any(|part| part.chunk.bloom_filter_offset().is_some()) {
        return Ok(None);
    }
    if let [alone] = parts
        && alone.is_whole()
    {
        // A filter that cannot be read counts as missing.
        let filter = guard_decoding(PARQUET, alone.name, || Sbbf::read_from_column_chunk(alone.chunk, alone.input));
        return Ok(filter.ok().flatten());
    }
    let present = |part: &Part<'_>| {
        let nulls = part.chunk.statistics().and_then(Statistics::null_count_opt).unwrap_or(0);
        // Of slices an upper bound.
        u64::try_from(part.chunk.num_values()).unwrap_or(0).saturating_sub(nulls)
    };
    let most: u64 = parts.iter().map(present).sum();
    let mut filter = guard_decoding(PARQUET, "", || Sbbf::new_with_ndv_fpp(most.max(1), FALSE_POSITIVE_RATE))?;
    for part in parts {
        guard_decoding(PARQUET, part.name, || -> Result<(), ParquetError> {
            if is_brotli(part.chunk) {
                check_chunk(part.input, part.chunk, MAX_BROTLI_BYTES)?;
            }
            let input = Arc::new(part.input.clone());
            let rows = usize::try_from(part.group_rows)?;
            let wanted = usize::try_from(part.rows.start)?..usize::try_from(part.rows.end)?;
            let pages = Box::new(SerializedPageReader::new(input, part.chunk, rows, None)?);
            match get_column_reader(ColumnDescPtr::clone(column), pages) {
                ColumnReader::BoolColumnReader(reader) => insert_all(reader, &wanted, &mut filter),
                ColumnReader::Int32ColumnReader(reader) => insert_all(reader, &wanted, &mut filter),
                ColumnReader::Int64ColumnReader(reader) => insert_all(reader, &wanted, &mut filter),
                ColumnReader::Int96ColumnReader(reader) => insert_all(reader, &wanted, &mut filter),
                ColumnReader::FloatColumnReader(reader) => insert_all(reader, &wanted, &mut filter),
                ColumnReader::DoubleColumnReader(reader) => insert_all(reader, &wanted, &mut filter),
                ColumnReader::ByteArrayColumnReader(reader) => insert_all(reader, &wanted, &mut filter),
                ColumnReader::FixedLenByteArrayColumnReader(reader) => insert_all(reader, &wanted, &mut filter),
            }
        })?;
    }
    // It was sized for values that are all distinct.
    filter.fold_to_target_fpp(FALSE_POSITIVE_RATE);
    Ok(Some(filter))
}

fn insert_all<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    wanted: &Range<usize>,
    filter: &mut Sbbf,
) -> Result<(), ParquetError> {
    let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut left = wanted.end - reader.skip_records(wanted.start)?;
    while left > 0 {
        definition.clear();
        repetition.clear();
        values.clear();
        let (records, _, _) =
            reader.read_records(left.min(ROWS), Some(&mut definition), Some(&mut repetition), &mut values)?;
        values.iter().for_each(|value| filter.insert(value.as_bytes()));
        if records == 0 {
            break;
        }
        left = left.saturating_sub(records);
    }
    Ok(())
}
