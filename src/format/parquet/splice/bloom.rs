//! Bloom filters of merged chunks. Filters cannot be joined without growing: those of many small row groups are full of holes
//! each, and together of none. So the values are read once more, and hashed into a filter that is made for as many.
//!
//! Only columns that have filters pay for this; others stay undecoded.

use std::sync::Arc;

use ::parquet::{
    bloom_filter::Sbbf,
    column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader},
    data_type::{AsBytes, DataType},
    errors::ParquetError,
    file::{serialized_reader::SerializedPageReader, statistics::Statistics},
    schema::types::ColumnDescPtr,
};

use super::{
    super::{
        pages::{MAX_BROTLI_BYTES, check_chunk, is_brotli},
        read::PARQUET,
    },
    column::Part,
};
use crate::{error::Result, format::guard::guard};

/// How often a filter says of a value that it may be there when it is not.
const MISTAKES: f64 = 0.01;

/// Values read at a time.
const ROWS: usize = 8_192;

/// The filter of all parts together; `None` when none of them has one.
pub(super) fn filter_of(column: &ColumnDescPtr, parts: &[Part<'_>]) -> Result<Option<Sbbf>> {
    if !parts.iter().any(|part| part.chunk.bloom_filter_offset().is_some()) {
        return Ok(None);
    }
    if let [alone] = parts {
        // A filter that cannot be read is none.
        let filter = guard(PARQUET, alone.name, || Sbbf::read_from_column_chunk(alone.chunk, alone.input));
        return Ok(filter.ok().flatten());
    }
    let present = |part: &Part<'_>| {
        let nulls = part.chunk.statistics().and_then(Statistics::null_count_opt).unwrap_or(0);
        u64::try_from(part.chunk.num_values()).unwrap_or(0).saturating_sub(nulls)
    };
    let most: u64 = parts.iter().map(present).sum();
    let mut filter = guard(PARQUET, "", || Sbbf::new_with_ndv_fpp(most.max(1), MISTAKES))?;
    for part in parts {
        guard(PARQUET, part.name, || -> Result<(), ParquetError> {
            if is_brotli(part.chunk) {
                check_chunk(part.input, part.chunk, MAX_BROTLI_BYTES)?;
            }
            let input = Arc::new(part.input.clone());
            let rows = usize::try_from(part.rows)?;
            let pages = Box::new(SerializedPageReader::new(input, part.chunk, rows, None)?);
            match get_column_reader(ColumnDescPtr::clone(column), pages) {
                ColumnReader::BoolColumnReader(reader) => insert_all(reader, &mut filter),
                ColumnReader::Int32ColumnReader(reader) => insert_all(reader, &mut filter),
                ColumnReader::Int64ColumnReader(reader) => insert_all(reader, &mut filter),
                ColumnReader::Int96ColumnReader(reader) => insert_all(reader, &mut filter),
                ColumnReader::FloatColumnReader(reader) => insert_all(reader, &mut filter),
                ColumnReader::DoubleColumnReader(reader) => insert_all(reader, &mut filter),
                ColumnReader::ByteArrayColumnReader(reader) => insert_all(reader, &mut filter),
                ColumnReader::FixedLenByteArrayColumnReader(reader) => insert_all(reader, &mut filter),
            }
        })?;
    }
    // It was made for values that all differ.
    filter.fold_to_target_fpp(MISTAKES);
    Ok(Some(filter))
}

fn insert_all<T: DataType>(mut reader: ColumnReaderImpl<T>, filter: &mut Sbbf) -> Result<(), ParquetError> {
    let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        definition.clear();
        repetition.clear();
        values.clear();
        let (records, _, _) = reader.read_records(ROWS, Some(&mut definition), Some(&mut repetition), &mut values)?;
        values.iter().for_each(|value| filter.insert(value.as_bytes()));
        if records == 0 {
            return Ok(());
        }
    }
}
