//! Columns of the types of a sheet, made of rows of cells.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BinaryArray, BooleanBuilder, Date32Builder, DurationMillisecondBuilder, Float64Builder,
        Int64Builder, NullArray, RecordBatch, RecordBatchOptions, StringBuilder, Time32MillisecondBuilder,
        TimestampMillisecondBuilder,
    },
    datatypes::{DataType, Fields, Schema},
};

use super::cells::{CellValue, RowCells};
use crate::error::{Error, Result};

/// Milliseconds of a day.
const DAY: i64 = 86_400_000;

/// Collects the values of a column.
enum ColumnBuilder {
    Null(usize),
    Whole(Int64Builder),
    Number(Float64Builder),
    Bool(BooleanBuilder),
    Date(Date32Builder),
    Stamp(TimestampMillisecondBuilder),
    Clock(Time32MillisecondBuilder),
    Span(DurationMillisecondBuilder),
    Text(StringBuilder, String),
}

/// Runs the same expression on whichever builder there is.
macro_rules! each_builder {
    ($self:expr, $builder:ident => $work:expr, $rows:ident => $null:expr) => {
        match $self {
            ColumnBuilder::Null($rows) => $null,
            ColumnBuilder::Whole($builder) => $work,
            ColumnBuilder::Number($builder) => $work,
            ColumnBuilder::Bool($builder) => $work,
            ColumnBuilder::Date($builder) => $work,
            ColumnBuilder::Stamp($builder) => $work,
            ColumnBuilder::Clock($builder) => $work,
            ColumnBuilder::Span($builder) => $work,
            ColumnBuilder::Text($builder, _) => $work,
        }
    };
}

impl ColumnBuilder {
    fn new(data_type: &DataType, rows: usize) -> Self {
        match data_type {
            DataType::Int64 => Self::Whole(Int64Builder::with_capacity(rows)),
            DataType::Float64 => Self::Number(Float64Builder::with_capacity(rows)),
            DataType::Boolean => Self::Bool(BooleanBuilder::with_capacity(rows)),
            DataType::Date32 => Self::Date(Date32Builder::with_capacity(rows)),
            DataType::Timestamp(..) => Self::Stamp(TimestampMillisecondBuilder::with_capacity(rows)),
            DataType::Time32(_) => Self::Clock(Time32MillisecondBuilder::with_capacity(rows)),
            DataType::Duration(_) => Self::Span(DurationMillisecondBuilder::with_capacity(rows)),
            DataType::Utf8 => Self::Text(StringBuilder::with_capacity(rows, 0), String::new()),
            _ => Self::Null(0),
        }
    }

    fn row_count(&self) -> usize {
        use arrow::array::ArrayBuilder as _;
        each_builder!(self, builder => builder.len(), rows => *rows)
    }

    /// Adds nulls up to a number of rows.
    fn fill_nulls(&mut self, to: usize) {
        for _ in self.row_count()..to {
            each_builder!(self, builder => builder.append_null(), rows => *rows += 1);
        }
    }

    /// Adds a value; returns whether it has the type of the column.
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers are below 2^53")]
    fn push_value(&mut self, value: CellValue<'_>) -> bool {
        match (self, value) {
            (this, CellValue::Error) => each_builder!(this, builder => builder.append_null(), rows => *rows += 1),
            (Self::Whole(builder), CellValue::Number(number)) => builder.append_value(number as i64),
            (Self::Number(builder), CellValue::Number(number)) => builder.append_value(number),
            (Self::Bool(builder), CellValue::Bool(value)) => builder.append_value(value),
            (Self::Date(builder), CellValue::Date(days)) => builder.append_value(days),
            (Self::Stamp(builder), CellValue::Stamp(milliseconds)) => builder.append_value(milliseconds),
            (Self::Stamp(builder), CellValue::Date(days)) => builder.append_value(i64::from(days) * DAY),
            (Self::Clock(builder), CellValue::Clock(milliseconds)) => builder.append_value(milliseconds),
            (Self::Span(builder), CellValue::Span(milliseconds)) => builder.append_value(milliseconds),
            (Self::Text(builder, _), CellValue::Text(text)) => builder.append_value(text),
            (Self::Text(builder, text), value) => {
                text.clear();
                value.print(text);
                builder.append_value(text.as_str());
            }
            _ => return false,
        }
        true
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Null(rows) => Arc::new(NullArray::new(rows)),
            Self::Whole(mut builder) => Arc::new(builder.finish()),
            Self::Number(mut builder) => Arc::new(builder.finish()),
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Date(mut builder) => Arc::new(builder.finish()),
            Self::Stamp(mut builder) => Arc::new(builder.finish()),
            Self::Clock(mut builder) => Arc::new(builder.finish()),
            Self::Span(mut builder) => Arc::new(builder.finish()),
            Self::Text(mut builder, _) => Arc::new(builder.finish()),
        }
    }
}

/// Returns rows in the types of their sheet, whose first column is `first_column`.
///
/// # Errors
/// If a cell has another type: types are those of all cells.
pub(super) fn rows_of(cells: &BinaryArray, fields: &Fields, first_column: u16) -> Result<RecordBatch> {
    let rows = cells.len();
    let mut columns: Vec<ColumnBuilder> =
        fields.iter().map(|field| ColumnBuilder::new(field.data_type(), rows)).collect();
    for row in 0..rows {
        for (column, value) in RowCells(cells.value(row)) {
            let number = column.checked_sub(first_column).map(usize::from);
            let Some(builder) = number.and_then(|number| columns.get_mut(number)) else {
                // An error that is alone in its column is beside the table.
                if value == CellValue::Error {
                    continue;
                }
                return Err(Error::internal("a cell is outside of its sheet"));
            };
            builder.fill_nulls(row);
            if !builder.push_value(value) {
                return Err(Error::internal("a cell has another type than its column"));
            }
        }
    }
    columns.iter_mut().for_each(|column| column.fill_nulls(rows));
    let columns: Vec<ArrayRef> = columns.into_iter().map(ColumnBuilder::finish).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields.clone())), columns, &options)?)
}
