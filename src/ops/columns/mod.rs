//! What commands that describe records share, so that a number is the same wherever it is printed: `report`, `check`
//! and `manifest --drift` read live rows by `scan.rs`, sample them by `sample.rs`, unite bounds by `range.rs`, and take
//! columns apart here. Members of structs are columns of their own; of columns of one name, the first counts.

mod range;
mod sample;
mod scan;

use std::{collections::HashSet, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StructArray, make_array},
    buffer::NullBuffer,
    compute::{cast, kernels::length::length},
    datatypes::{DataType, Field, FieldRef},
};

use crate::error::Result;

pub(super) use range::{Extremes, Range};
pub(super) use sample::{ColumnSample, Facts, Roots, sampled_ranges};
pub(super) use scan::{Source, Table, each_live_length, filter_live, row_count, shard_tables};

/// Classes of types whose values are described in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Class {
    Number,
    Time,
    Text,
    Boolean,
    Bytes,
    List,
    Other,
}

impl Class {
    pub(super) fn from_data_type(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Self::Bytes
            }
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => Self::List,
            DataType::Interval(_) => Self::Other,
            kind if kind.is_temporal() => Self::Time,
            kind if kind.is_numeric() => Self::Number,
            _ => Self::Other,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Time => "time",
            Self::Text => "text",
            Self::Boolean => "boolean",
            Self::Bytes => "bytes",
            Self::List => "list",
            Self::Other => "other",
        }
    }

    /// Whether values have an order that is shown, and are few enough bytes to be counted one by one.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Number | Self::Time | Self::Text | Self::Boolean)
    }
}

/// A column of a batch.
pub(super) struct FlatColumn {
    /// Name; of members of structs, a path with dots.
    pub(super) name: String,
    /// Its field.
    pub(super) field: FieldRef,
    /// Its values: a member is null where its struct is.
    pub(super) values: ArrayRef,
}

/// Returns the columns of a batch: structs are flattened, and dictionaries replaced by their values. Of columns of one
/// name, only the first is there.
pub(super) fn flat_columns(batch: &RecordBatch) -> Result<Vec<FlatColumn>> {
    let mut out = Vec::new();
    for (field, values) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        add_flattened(field.name(), field, values, &mut out)?;
    }
    let mut seen = HashSet::new();
    out.retain(|column| seen.insert(column.name.clone()));
    Ok(out)
}

fn add_flattened(name: &str, field: &FieldRef, values: &ArrayRef, out: &mut Vec<FlatColumn>) -> Result<()> {
    match values.data_type() {
        DataType::Struct(_) => {
            let parts: &StructArray = values.as_struct();
            for (field, part) in parts.fields().iter().zip(parts.columns()) {
                let part = match NullBuffer::union(parts.nulls(), part.nulls()) {
                    Some(nulls) if !matches!(part.data_type(), DataType::Null) => {
                        make_array(part.to_data().into_builder().nulls(Some(nulls)).build()?)
                    }
                    _ => Arc::clone(part),
                };
                add_flattened(&format!("{name}.{}", field.name()), field, &part, out)?;
            }
        }
        DataType::Dictionary(_, plain) => {
            let field = Field::new(field.name(), plain.as_ref().clone(), field.is_nullable());
            add_flattened(name, &Arc::new(field.clone()), &cast(values, field.data_type())?, out)?;
        }
        _ => out.push(FlatColumn { name: name.to_owned(), field: Arc::clone(field), values: Arc::clone(values) }),
    }
    Ok(())
}

/// Returns the lengths of lists, texts or bytes.
pub(super) fn value_lengths(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast(&length(values)?, &DataType::Float64)?)
}

/// Returns numbers, dates and times as floating-point numbers: dates and times in the unit of their type.
pub(super) fn as_number(values: &ArrayRef) -> Result<ArrayRef> {
    let whole = match values.data_type() {
        DataType::Date32 | DataType::Time32(_) => cast(values, &DataType::Int32)?,
        kind if kind.is_temporal() => cast(values, &DataType::Int64)?,
        _ => Arc::clone(values),
    };
    Ok(cast(&whole, &DataType::Float64)?)
}
