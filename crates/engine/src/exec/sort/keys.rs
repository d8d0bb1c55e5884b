//! Sort keys: one byte string per record; the records are ordered by comparing these.
//!
//! The keys use Arrow's row format: nulls first, numbers by value (NaN last, -0 before 0), text and binary by their
//! bytes, booleans false first, dates and timestamps by time. The record number comes last, so no two keys are equal
//! and ties keep the order of the records, however the work was divided.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, UInt64Array},
    compute::{SortOptions, concat},
    datatypes::{DataType, SchemaRef},
    row::{OwnedRow, RowConverter, Rows, SortField},
};

use crate::{
    dataset::{Arrangement, Order},
    error::{Error, Result},
    plan::sort::{MAX_ZORDER_COLUMNS, RANK_BITS, interleave_bits, scale_rank},
};

/// Number of a column's values from which quantiles are computed.
pub(in crate::exec) const SAMPLE_ROWS: u64 = 1 << 16;

/// Builds the keys of records.
#[derive(Debug)]
pub(in crate::exec) struct Keys {
    converter: RowConverter,
    columns: Vec<usize>,
    record: usize,
    curve: Option<Vec<Ranks>>,
}

/// Checks that the columns of a schema support an order, and returns their indexes.
pub(in crate::exec) fn columns_of(schema: &SchemaRef, order: &Order) -> Result<Vec<usize>> {
    let option = match order.by {
        Arrangement::Sort => "--sort-by",
        Arrangement::ZOrder => "--zorder",
        Arrangement::Shuffle => "--shuffle",
    };
    let column = |name: &String| {
        let index = schema.index_of(name).map_err(|_| {
            let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            Error::usage(format!("expected columns of the dataset for {option}, found `{name}`"))
                .with_hint(format!("the columns are: {}", names.join(", ")))
        })?;
        if is_sortable(schema.field(index).data_type()) {
            return Ok(index);
        }
        let found = schema.field(index).data_type();
        Err(Error::usage(format!("expected a column of single values for {option}, found `{name}` of type {found}"))
            .with_hint("choose a column of numbers, dates, times, booleans or text"))
    };
    let columns: Vec<usize> = order.columns.iter().map(column).collect::<Result<_>>()?;
    if let Some((i, _)) = columns.iter().enumerate().find(|(i, column)| columns[..*i].contains(column)) {
        return Err(Error::usage(format!(
            "expected each column once for {option}, found `{}` twice",
            order.columns[i]
        )));
    }
    match order.by {
        Arrangement::ZOrder if !(2..=MAX_ZORDER_COLUMNS).contains(&columns.len()) => {
            let message = format!("expected 2 to {MAX_ZORDER_COLUMNS} columns for --zorder, found {}", columns.len());
            Err(Error::usage(message).with_hint("use --sort-by for one column"))
        }
        _ => Ok(columns),
    }
}

fn is_sortable(data_type: &DataType) -> bool {
    use DataType::{
        Binary, Boolean, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, Duration, FixedSizeBinary,
        LargeBinary, LargeUtf8, Time32, Time64, Timestamp, Utf8,
    };
    data_type.is_numeric()
        || matches!(
            data_type,
            Boolean | Utf8 | LargeUtf8 | Binary | LargeBinary | FixedSizeBinary(_) | Date32 | Date64 | Time32(_)
        )
        || matches!(data_type, Time64(_) | Timestamp(..) | Duration(_))
        || matches!(data_type, Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..))
}

/// Creates the converter of columns of these types to keys.
pub(in crate::exec) fn row_converter<'a>(types: impl Iterator<Item = &'a DataType>) -> Result<RowConverter> {
    let options = SortOptions { descending: false, nulls_first: true };
    Ok(RowConverter::new(types.map(|t| SortField::new_with_options(t.clone(), options)).collect())?)
}

impl Keys {
    /// Creates keys for batches of `schema` whose column `record` contains record numbers. `curve` has the ranks of
    /// each column of a Z-order.
    pub(in crate::exec) fn new(
        schema: &SchemaRef,
        columns: &[usize],
        record: usize,
        curve: Option<Vec<Ranks>>,
    ) -> Result<Self> {
        let types = columns.iter().map(|column| schema.field(*column).data_type());
        let number = std::iter::once(&DataType::UInt64);
        let converter = match curve {
            None => row_converter(types.chain(number))?,
            Some(_) => row_converter([DataType::UInt64, DataType::UInt64].iter())?,
        };
        Ok(Self { converter, columns: columns.to_vec(), record, curve })
    }

    /// Returns an empty list of keys.
    pub(in crate::exec) fn empty_rows(&self) -> Rows {
        self.converter.empty_rows(0, 0)
    }

    /// Appends the keys of a batch.
    pub(in crate::exec) fn append_keys(&self, rows: &mut Rows, batch: &RecordBatch) -> Result<()> {
        let mut columns: Vec<ArrayRef> = match &self.curve {
            None => self.columns.iter().map(|column| Arc::clone(batch.column(*column))).collect(),
            Some(curve) => vec![Arc::new(curve_keys(curve, &self.columns, batch)?)],
        };
        columns.push(Arc::clone(batch.column(self.record)));
        Ok(self.converter.append(rows, &columns)?)
    }

    /// Returns the keys of a batch.
    pub(in crate::exec) fn batch_keys(&self, batch: &RecordBatch) -> Result<Rows> {
        let mut rows = self.empty_rows();
        self.append_keys(&mut rows, batch)?;
        Ok(rows)
    }
}

/// Returns the places of rows on a curve, given the ranks of some columns.
pub(in crate::exec) fn curve_keys(curve: &[Ranks], columns: &[usize], batch: &RecordBatch) -> Result<UInt64Array> {
    let ranks = curve.iter().zip(columns).map(|(ranks, column)| ranks.column_ranks(batch.column(*column)));
    let ranks: Vec<Vec<u64>> = ranks.collect::<Result<_>>()?;
    let mut one = vec![0; ranks.len()];
    let key = |row: usize| {
        one.iter_mut().zip(&ranks).for_each(|(one, ranks)| *one = ranks[row]);
        interleave_bits(&one)
    };
    Ok(UInt64Array::from_iter_values((0..batch.num_rows()).map(key)))
}

/// Returns the first 16 bytes of a key, which decide most comparisons.
pub(in crate::exec) fn key_prefix(row: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let taken = row.len().min(16);
    bytes[..taken].copy_from_slice(&row[..taken]);
    u128::from_be_bytes(bytes)
}

/// Ranks of a column's values: positions between the quantiles of a sample.
#[derive(Debug)]
pub(in crate::exec) struct Ranks {
    converter: RowConverter,
    bounds: Vec<OwnedRow>,
}

impl Ranks {
    /// Computes quantiles of a sample.
    pub(in crate::exec) fn new(sample: &[ArrayRef], data_type: &DataType) -> Result<Self> {
        let converter = row_converter(std::iter::once(data_type))?;
        let mut bounds: Vec<OwnedRow> = Vec::new();
        if !sample.is_empty() {
            let joined = concat(&sample.iter().map(AsRef::as_ref).collect::<Vec<_>>())?;
            let rows = converter.convert_columns(&[joined])?;
            let mut sorted: Vec<_> = rows.iter().collect();
            sorted.sort_unstable();
            let most = (1_usize << RANK_BITS) - 1;
            let mut distinct = sorted.clone();
            distinct.dedup();
            if distinct.len() > most {
                distinct = (1..=most).map(|i| sorted[i * sorted.len() / (most + 1)]).collect();
                distinct.dedup();
            }
            bounds = distinct.into_iter().map(|row| row.owned()).collect();
        }
        Ok(Self { converter, bounds })
    }

    fn column_ranks(&self, column: &ArrayRef) -> Result<Vec<u64>> {
        let rows = self.converter.convert_columns(&[Arc::clone(column)])?;
        let rank = |row| self.bounds.partition_point(|bound| bound.row() <= row);
        Ok(rows.iter().map(|row| scale_rank(rank(row), self.bounds.len() + 1)).collect())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{Float64Array, Int64Array, StringArray},
        datatypes::{Field, Schema},
    };

    use super::*;

    #[test]
    fn nulls_come_first_and_ties_keep_record_order() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![Some(2.0), None, Some(f64::NAN), Some(-1.0), None]));
        let records: ArrayRef = Arc::new(UInt64Array::from(vec![9, 8, 7, 6, 5]));
        let batch = RecordBatch::try_from_iter([("v", values), ("n", records)]).unwrap();
        let keys = Keys::new(&batch.schema(), &[0], 1, None).unwrap().batch_keys(&batch).unwrap();
        let mut order: Vec<usize> = (0..5).collect();
        order.sort_by(|a, b| keys.row(*a).cmp(&keys.row(*b)));
        assert_eq!(order, [4, 1, 3, 0, 2]);
    }

    #[test]
    fn ranks_follow_values_and_few_values_are_spread() {
        let values: ArrayRef =
            Arc::new((0..100_000_i64).map(|i| (i % 7 != 0).then_some(i * i)).collect::<Int64Array>());
        let ranks = Ranks::new(&[Arc::clone(&values)], &DataType::Int64).unwrap().column_ranks(&values).unwrap();
        assert!(ranks.iter().skip(1).step_by(7).is_sorted());
        assert!(ranks.iter().step_by(7).all(|rank| *rank == ranks[0]));
        assert!(ranks[99_999] > 4_000 && ranks[1] < 700, "{} {}", ranks[99_999], ranks[1]);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["f", "m", "f", "x"]));
        let ranks = Ranks::new(&[Arc::clone(&texts)], &DataType::Utf8).unwrap().column_ranks(&texts).unwrap();
        assert_eq!(ranks, [1024, 2048, 1024, 3072]);
    }

    #[test]
    fn orders_name_columns_of_single_values_once() {
        let list = DataType::new_list(DataType::Int64, true);
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Utf8, true),
            Field::new("l", list, true),
        ]));
        let of = |by, names: &[&str]| {
            let order = Order { by, columns: names.iter().map(|name| (*name).to_owned()).collect() };
            columns_of(&schema, &order)
        };
        assert_eq!(of(Arrangement::Sort, &["b", "a"]).unwrap(), [1, 0]);
        assert_eq!(of(Arrangement::ZOrder, &["a", "b"]).unwrap(), [0, 1]);
        assert!(of(Arrangement::ZOrder, &["a"]).is_err());
        for bad in [&["c"][..], &["l"], &["a", "a"]] {
            assert_eq!(of(Arrangement::Sort, bad).unwrap_err().kind(), crate::error::Kind::Usage);
        }
    }
}
