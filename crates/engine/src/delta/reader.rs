//! Reads a data file of a Delta table as rows of the table: columns by their logical names and in the types of the
//! table, partition values as columns, and without deleted rows.
//!
//! Rows keep the numbers that they have in the file, so an origin leads to them even if rows before them are deleted.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayData, ArrayRef, AsArray, BooleanArray, ListArray, MapArray, RecordBatch, RecordBatchOptions,
        StructArray, UInt32Array, make_array, new_null_array,
    },
    compute::{cast, filter_record_batch, take},
    datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType},
};
use roaring::RoaringTreemap;

use super::{
    DataFile,
    protocol::Mapping,
    schema::{Column, FIELD_ID, Shape},
    vectors,
};
use crate::{
    error::{Error, Result},
    format::{Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, TypeMismatch, parquet::ParquetReader},
    record::{
        Payload, RecordBlock, SourceRange,
        filter::{ColumnBounds, GroupBounds, RowBounds},
        hash::row_hashes,
        widen::{ValueMismatch, cast_to, try_cast_to},
    },
};

/// Reads one data file.
#[derive(Debug)]
pub struct TableReader {
    inner: ParquetReader,
    /// The table's columns.
    schema: SchemaRef,
    /// What readers tell.
    facts: ReaderFacts,
    /// For each of its columns, where its values come from.
    origins: Vec<Origin>,
    /// Deleted rows.
    deleted: Option<RoaringTreemap>,
}

/// Where the values of a column come from.
#[derive(Debug)]
enum Origin {
    /// Nowhere: the file was written before the column was added.
    Null,
    /// A partition value, as an array of one.
    Constant(ArrayRef),
    /// A column of the file.
    Column(usize, ValueConversion),
}

/// How a value of the file becomes one of the table.
#[derive(Debug)]
enum ValueConversion {
    /// As it is, but for its type.
    Same,
    /// A timestamp of which the file does not say, as the table does, whether it is an instant.
    Zone(Option<Arc<str>>),
    /// A struct of these fields, from fields of the file; `None` if the file lacks them.
    Struct(Vec<(String, Option<(usize, Self)>)>),
    List(Box<Self>),
    Map(Box<Self>, Box<Self>),
}

impl TableReader {
    /// Opens a data file; `inner` reads it is.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if its columns do not fit those of the table, or its deletion vector
    /// is damaged; if the store fails.
    pub fn open(inner: ParquetReader, file: &DataFile) -> Result<Self> {
        let table = &file.info.schema;
        let schema = Arc::new(Schema::new(table.fields.clone()));
        let given = inner.stated_fields();
        let origin = |(at, column): (usize, &Column)| {
            if table.is_partition[at] {
                let text = file.partition_values.get(&column.physical).and_then(Option::as_deref);
                return table.partition_value(at, text).map(Origin::Constant);
            }
            let found = find_column(given, column, table.mapping);
            Ok(
                match found
                    .map(|at| value_conversion(&given[at], &column.shape, table.mapping).map(|part| (at, part)))
                    .transpose()
                {
                    Ok(Some((at, part))) => Origin::Column(at, part),
                    Ok(None) => Origin::Null,
                    Err(e) => return Err(e.in_column(column.name.clone())),
                },
            )
        };
        let origins = table.columns.iter().enumerate().map(origin).collect::<Result<_>>()?;
        let deleted = file.deletion_vector.as_ref().map(|vector| vectors::read(file.info.store.as_ref(), vector));
        let deleted = deleted.transpose()?;
        if let Some(row) = deleted.as_ref().and_then(RoaringTreemap::max).filter(|row| *row >= inner.row_count()) {
            return Err(Error::input(format!(
                "expected a deletion vector of {} rows, found row {row} in it",
                inner.row_count()
            )));
        }
        let live = inner.row_count() - deleted.as_ref().map_or(0, RoaringTreemap::len);
        let facts = ReaderFacts {
            reads_own_source: true,
            columns: Some(table.columns.iter().map(|column| column.name.clone()).collect()),
            rows: Some(live),
            ..ReaderFacts::default()
        };
        Ok(Self { inner, schema, facts, origins, deleted })
    }

    /// Returns the number of rows that are not deleted.
    pub fn live_rows(&self) -> u64 {
        self.facts.rows.unwrap_or_default()
    }

    /// Cuts the rows of the file into ranges of about `range_bytes`.
    pub fn ranges_of_rows(&self, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'static> {
        self.inner.ranges_of_rows(range_bytes, max_record_bytes)
    }

    /// Returns the rows of a range that are not deleted, as a new data file of the table has them: in the columns of
    /// `schema`, which is that of [`LiveTable::file_schema`](super::LiveTable::file_schema).
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if the file is damaged or does not fit the table; if the store fails.
    pub fn file_rows_of(&self, range: &SourceRange, schema: &SchemaRef) -> Result<RecordBatch> {
        let (rows, _) = self.inner.read_rows(range)?;
        let stored = || self.stored_rows(&self.drop_deleted(self.table_rows(&rows)?, range.offset)?.0, schema);
        stored().map_err(|e| if e.place().source.is_some() { e } else { e.at_location(self.inner.name()) })
    }

    /// Returns the rows that are not deleted, in batches of about `range_bytes`; see [`Self::file_rows_of`].
    pub fn file_rows<'a>(
        &'a self,
        range_bytes: usize,
        max_record_bytes: usize,
        schema: &'a SchemaRef,
    ) -> impl Iterator<Item = Result<RecordBatch>> + 'a {
        self.ranges_of_rows(range_bytes, max_record_bytes).map(move |range| self.file_rows_of(&range?, schema))
    }

    /// Returns rows of the table under the names that its files have.
    fn stored_rows(&self, rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let of_files = |origin: &Origin, field: &Field| {
            !matches!(origin, Origin::Constant(_)) && *field.data_type() != DataType::Null
        };
        let given = self.origins.iter().zip(self.schema.fields()).zip(rows.columns());
        let given = given.filter(|((origin, field), _)| of_files(origin, field)).map(|(_, array)| array);
        let columns = given
            .zip(schema.fields())
            .map(|(array, field)| rename_fields(array.to_data(), field.data_type()).map(make_array));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect::<Result<_>>()?, &options)?)
    }

    /// Returns rows of the file as rows of the table, deleted ones included.
    fn table_rows(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let column = |(origin, field): (&Origin, &Arc<Field>)| -> Result<ArrayRef> {
            Ok(match origin {
                Origin::Null => new_null_array(field.data_type(), count),
                Origin::Constant(value) => take(value, &UInt32Array::from(vec![0; count]), None)?,
                Origin::Column(at, part) => part.apply(rows.column(*at))?,
            })
        };
        let arrays = self.origins.iter().zip(self.schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
        let typed =
            |(field, array): (&Arc<Field>, &ArrayRef)| field.as_ref().clone().with_data_type(array.data_type().clone());
        let fields: Fields = self.schema.fields().iter().zip(&arrays).map(typed).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let named = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        cast_to(&named, &self.schema)
    }

    /// Returns the rows that are not deleted, and their numbers; `first` is the number of the first row in the file.
    fn drop_deleted(&self, rows: RecordBatch, first: u64) -> Result<(RecordBatch, Vec<u32>)> {
        let count = rows.num_rows();
        let numbers = (0..).take(count);
        let Some(deleted) = &self.deleted else { return Ok((rows, numbers.collect())) };
        let mut keep = vec![true; count];
        for row in vectors::deleted_rows_in(deleted, first, count as u64) {
            if let Some(keep) = usize::try_from(row).ok().and_then(|row| keep.get_mut(row)) {
                *keep = false;
            }
        }
        let numbers = numbers.zip(&keep).filter(|(_, keep)| **keep).map(|(row, _)| row).collect();
        Ok((filter_record_batch(&rows, &BooleanArray::from(keep))?, numbers))
    }
}

/// Returns values with other names of the fields within them.
fn rename_fields(data: ArrayData, to: &DataType) -> Result<ArrayData> {
    if data.data_type() == to {
        return Ok(data);
    }
    let types: Vec<&DataType> = match to {
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::List(field) | DataType::Map(field, _) => vec![field.data_type()],
        _ => {
            let message = format!("expected values of type {to}, found {}", data.data_type());
            return Err(Error::internal(message));
        }
    };
    let children = data.child_data().iter().cloned().zip(types);
    let children = children.map(|(child, to)| rename_fields(child, to)).collect::<Result<Vec<_>>>()?;
    Ok(data.into_builder().data_type(to.clone()).child_data(children).build()?)
}

/// Returns the index of a column among the fields of a file or of a struct in it.
fn find_column(given: &Fields, column: &Column, mapping: Mapping) -> Option<usize> {
    let id = column.id.map(|id| id.to_string()).filter(|_| mapping == Mapping::Id);
    let has_ids = given.iter().any(|field| field.metadata().contains_key(FIELD_ID));
    match id {
        Some(id) if has_ids => given.iter().position(|field| field.metadata().get(FIELD_ID) == Some(&id)),
        _ => given.iter().position(|field| *field.name() == column.physical),
    }
}

fn value_conversion(given: &Field, shape: &Shape, mapping: Mapping) -> Result<ValueConversion> {
    let wrong = || {
        Error::input(format!("expected a column of the type that the Delta table states, found {}", given.data_type()))
            .with_hint("the file is not the one that the log means, or the log is damaged")
    };
    Ok(match (shape, given.data_type()) {
        (Shape::Leaf(DataType::Timestamp(_, to)), DataType::Timestamp(_, from)) if to.is_some() != from.is_some() => {
            ValueConversion::Zone(to.clone())
        }
        (Shape::Leaf(to), from) if can_widen(from, to) => ValueConversion::Same,
        (Shape::Struct(columns), DataType::Struct(fields)) => {
            let field = |column: &Column| {
                let found = find_column(fields, column, mapping);
                let found =
                    found.map(|at| Ok::<_, Error>((at, value_conversion(&fields[at], &column.shape, mapping)?)));
                Ok((column.name.clone(), found.transpose()?))
            };
            ValueConversion::Struct(columns.iter().map(field).collect::<Result<_>>()?)
        }
        (Shape::List(item), DataType::List(field)) => {
            ValueConversion::List(Box::new(value_conversion(field, item, mapping)?))
        }
        (Shape::Map(key, value), DataType::Map(entries, _)) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => ValueConversion::Map(
                Box::new(value_conversion(&pair[0], key, mapping)?),
                Box::new(value_conversion(&pair[1], value, mapping)?),
            ),
            _ => return Err(wrong()),
        },
        _ => return Err(wrong()),
    })
}

/// Whether a type of Delta's may be stored as `from` in a file that was written before its column was widened.
fn can_widen(from: &DataType, to: &DataType) -> bool {
    let width = |data_type: &DataType| match data_type {
        DataType::Int8 => Some(1),
        DataType::Int16 => Some(2),
        DataType::Int32 => Some(3),
        DataType::Int64 => Some(4),
        _ => None,
    };
    match (from, to) {
        (DataType::Null, _) => true,
        (DataType::Timestamp(..) | DataType::Date32, DataType::Timestamp(..)) => true,
        (DataType::Float32, DataType::Float64) => true,
        (DataType::Decimal128(..) | DataType::Decimal32(..) | DataType::Decimal64(..), DataType::Decimal128(..)) => {
            true
        }
        // Old writers state neither text nor the width of bytes.
        (DataType::Binary | DataType::LargeUtf8, DataType::Utf8) => true,
        (DataType::FixedSizeBinary(_) | DataType::LargeBinary, DataType::Binary) => true,
        (from, DataType::Float64 | DataType::Decimal128(..)) if width(from).is_some() => true,
        (from, to) => {
            from == to || matches!((width(from), width(to)), (Some(from), Some(to)) if from <= to || from == 3)
        }
    }
}

impl ValueConversion {
    fn apply(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let field = |name: &str, array: &ArrayRef| Field::new(name, array.data_type().clone(), true);
        Ok(match self {
            Self::Same => Arc::clone(array),
            Self::Zone(zone) => {
                let from = match array.data_type() {
                    DataType::Timestamp(_, from) => from.clone(),
                    _ => None,
                };
                let micros = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, from))?;
                Arc::new(micros.as_primitive::<TimestampMicrosecondType>().clone().with_timezone_opt(zone.clone()))
            }
            Self::Struct(parts) => {
                let given = array.as_struct();
                let column = |found: &Option<(usize, Self)>| match found {
                    Some((at, part)) => part.apply(given.column(*at)),
                    None => Ok(new_null_array(&DataType::Null, given.len())),
                };
                let columns = parts.iter().map(|(_, found)| column(found)).collect::<Result<Vec<_>>>()?;
                let fields = parts.iter().zip(&columns).map(|((name, _), column)| field(name, column)).collect();
                Arc::new(StructArray::try_new_with_length(fields, columns, given.nulls().cloned(), given.len())?)
            }
            Self::List(item) => {
                let given = array.as_list::<i32>();
                let values = item.apply(given.values())?;
                let item = Arc::new(field("item", &values));
                Arc::new(ListArray::try_new(item, given.offsets().clone(), values, given.nulls().cloned())?)
            }
            Self::Map(key, value) => {
                let given = array.as_map();
                let (keys, values) = (key.apply(given.keys())?, value.apply(given.values())?);
                let pair = vec![field("key", &keys).with_nullable(false), field("value", &values)];
                let pairs = StructArray::try_new(pair.into(), vec![keys, values], given.entries().nulls().cloned())?;
                let entries = Arc::new(Field::new("entries", pairs.data_type().clone(), false));
                Arc::new(MapArray::try_new(entries, given.offsets().clone(), pairs, given.nulls().cloned(), false)?)
            }
        })
    }
}

impl RecordReader for TableReader {
    fn facts(&self) -> &ReaderFacts {
        &self.facts
    }

    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        self.inner.ranges(input, range_bytes, max_record_bytes)
    }

    /// A column has the bounds that its file states under its own name, or those of its partition value.
    fn bounds<'a>(&'a self, range: &SourceRange) -> Option<RowBounds<'a>> {
        let inner = self.inner.bounds(range)?;
        let of_table = |group: GroupBounds<'a>| GroupBounds {
            rows: group.rows,
            of_column: Box::new(move |column: &str, data_type: &DataType| {
                let at = self.schema.index_of(column).ok()?;
                match self.origins.get(at).filter(|_| self.schema.field(at).data_type() == data_type)? {
                    Origin::Null => Some(ColumnBounds::of_value(&new_null_array(data_type, 1), group.rows)),
                    Origin::Constant(value) => Some(ColumnBounds::of_value(value, group.rows)),
                    Origin::Column(at, ValueConversion::Same) => {
                        (group.of_column)(self.inner.column_name(*at)?, data_type)
                    }
                    Origin::Column(..) => None,
                }
            }),
        };
        let count = range.row_count()?;
        let deleted =
            self.deleted.iter().map(|rows| vectors::deleted_rows_in(rows, range.offset, count).count() as u64);
        Some(RowBounds { groups: inner.groups.into_iter().map(of_table).collect(), deleted: deleted.sum() })
    }

    fn infer(&self, _: &SourceRange) -> Fields {
        self.schema.fields().clone()
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let (rows, bytes) = self.inner.read_rows(range)?;
        let count = rows.num_rows() as u64;
        let at = |e: Error| if e.place().source.is_some() { e } else { e.at_location(self.inner.name()) };
        let rows = self.table_rows(&rows).map_err(at)?;
        let (rows, numbers) = self.drop_deleted(rows, range.offset)?;
        let hashes = range.hashes_if_needed(rows.num_rows(), || row_hashes(&rows));
        Ok(match try_cast_to(&rows, schema).map_err(at)? {
            Err(ValueMismatch { column, row, value, expected, .. }) => {
                Parsed::Mismatch(TypeMismatch { column, line: row as u64, byte: 0, value, expected })
            }
            Ok(batch) => Parsed::Block(RecordBlock {
                deleted: count - numbers.len() as u64,
                rows: numbers,
                payload: Payload::Rows(batch),
                hashes,
                bytes_in: bytes,
                ..RecordBlock::empty()
            }),
        })
    }
}
