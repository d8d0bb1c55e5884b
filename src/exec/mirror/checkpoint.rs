//! Checkpoints of a Delta log: the whole state at a version as one Parquet file (V1), a row per action.

use std::{collections::BTreeMap, sync::Arc};

use ::parquet::{
    arrow::ArrowWriter,
    basic::Compression,
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties},
};
use arrow::{
    array::{
        Array, ArrayRef, AsArray as _, BooleanArray, Int32Array, Int64Array, ListBuilder, MapArray, MapBuilder,
        MapFieldNames, RecordBatch, StringArray, StringBuilder, StructArray,
    },
    buffer::NullBuffer,
    datatypes::{DataType, Field, Fields, Int32Type, Int64Type, Schema},
};
use bytes::Bytes;

use super::actions::{Action, Add, FileFormat, MetaData, Protocol, Remove, Txn};
use crate::{
    error::{Error, Result},
    format::parquet,
};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 8192;

/// Values of partition columns.
type Values = BTreeMap<String, Option<String>>;

/// Encodes a checkpoint.
///
/// # Errors
/// Fails only if the actions do not fit into memory.
pub(super) fn encode(actions: &[Action]) -> Result<Vec<u8>> {
    let columns = [
        ("txn", txns(actions)?),
        ("add", adds(actions)?),
        ("remove", removes(actions)?),
        ("metaData", tables(actions)?),
        ("protocol", protocols(actions)?),
    ];
    let fields: Fields =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| Arc::new(array) as ArrayRef).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by(concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let failed = |e: ParquetError| Error::internal("encoding a checkpoint of a Delta log failed").cause(e);
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).map_err(failed)?;
    writer.write(&batch).map_err(failed)?;
    writer.into_inner().map_err(failed)
}

/// A struct column: null in rows of other actions.
fn column<T>(rows: &[Option<&T>], children: Vec<(&str, ArrayRef)>) -> Result<StructArray> {
    let fields: Fields =
        children.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = children.into_iter().map(|(_, array)| array).collect();
    let present: NullBuffer = rows.iter().map(Option::is_some).collect::<Vec<bool>>().into();
    Ok(StructArray::try_new_with_length(fields, arrays, Some(present), rows.len())?)
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn longs(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

fn flags(values: impl Iterator<Item = Option<bool>>) -> ArrayRef {
    Arc::new(values.collect::<BooleanArray>())
}

fn maps<'a>(values: impl Iterator<Item = Option<&'a Values>>) -> Result<ArrayRef> {
    let names = MapFieldNames { entry: "key_value".to_owned(), key: "key".to_owned(), value: "value".to_owned() };
    let mut builder = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for map in values {
        for (key, value) in map.into_iter().flatten() {
            builder.keys().append_value(key);
            builder.values().append_option(value.as_deref());
        }
        builder.append(map.is_some())?;
    }
    Ok(Arc::new(builder.finish()))
}

fn lists<'a>(values: impl Iterator<Item = Option<&'a [String]>>) -> ArrayRef {
    let mut builder = ListBuilder::new(StringBuilder::new()).with_field(Field::new("element", DataType::Utf8, true));
    for list in values {
        for item in list.into_iter().flatten() {
            builder.values().append_value(item);
        }
        builder.append(list.is_some());
    }
    Arc::new(builder.finish())
}

fn txns(actions: &[Action]) -> Result<StructArray> {
    let rows: Vec<Option<&Txn>> = actions.iter().map(|action| action.txn.as_ref()).collect();
    let each = || rows.iter().copied();
    column(
        &rows,
        vec![
            ("appId", texts(each().map(|row| Some(row?.app_id.as_str())))),
            ("version", longs(each().map(|row| Some(row?.version)))),
            ("lastUpdated", longs(each().map(|row| row?.last_updated))),
        ],
    )
}

fn adds(actions: &[Action]) -> Result<StructArray> {
    let rows: Vec<Option<&Add>> = actions.iter().map(|action| action.add.as_ref()).collect();
    let each = || rows.iter().copied();
    column(
        &rows,
        vec![
            ("path", texts(each().map(|row| Some(row?.path.as_str())))),
            ("partitionValues", maps(each().map(|row| Some(&row?.partition_values)))?),
            ("size", longs(each().map(|row| Some(row?.size)))),
            ("modificationTime", longs(each().map(|row| Some(row?.modification_time)))),
            ("dataChange", flags(each().map(|row| Some(row?.data_change)))),
            ("tags", maps(each().map(|_| None))?),
            ("stats", texts(each().map(|row| row?.stats.as_deref()))),
        ],
    )
}

fn removes(actions: &[Action]) -> Result<StructArray> {
    let rows: Vec<Option<&Remove>> = actions.iter().map(|action| action.remove.as_ref()).collect();
    let each = || rows.iter().copied();
    column(
        &rows,
        vec![
            ("path", texts(each().map(|row| Some(row?.path.as_str())))),
            ("deletionTimestamp", longs(each().map(|row| row?.deletion_timestamp))),
            ("dataChange", flags(each().map(|row| Some(row?.data_change)))),
            ("extendedFileMetadata", flags(each().map(|row| row?.extended_file_metadata))),
            ("partitionValues", maps(each().map(|row| Some(&row?.partition_values)))?),
            ("size", longs(each().map(|row| row?.size))),
        ],
    )
}

fn tables(actions: &[Action]) -> Result<StructArray> {
    let rows: Vec<Option<&MetaData>> = actions.iter().map(|action| action.meta_data.as_ref()).collect();
    let each = || rows.iter().copied();
    let options: Vec<Option<Values>> = each().map(|row| row.map(|table| optional(&table.format.options))).collect();
    let properties: Vec<Option<Values>> = each().map(|row| row.map(|table| optional(&table.configuration))).collect();
    let formats: Vec<Option<&FileFormat>> = each().map(|row| row.map(|table| &table.format)).collect();
    let format = column(
        &formats,
        vec![
            ("provider", texts(formats.iter().map(|row| Some(row.as_ref()?.provider.as_str())))),
            ("options", maps(options.iter().map(Option::as_ref))?),
        ],
    )?;
    column(
        &rows,
        vec![
            ("id", texts(each().map(|row| Some(row?.id.as_str())))),
            ("name", texts(each().map(|_| None))),
            ("description", texts(each().map(|_| None))),
            ("format", Arc::new(format)),
            ("schemaString", texts(each().map(|row| Some(row?.schema_string.as_str())))),
            ("partitionColumns", lists(each().map(|row| Some(row?.partition_columns.as_slice())))),
            ("createdTime", longs(each().map(|row| row?.created_time))),
            ("configuration", maps(properties.iter().map(Option::as_ref))?),
        ],
    )
}

fn optional(map: &BTreeMap<String, String>) -> Values {
    map.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect()
}

fn protocols(actions: &[Action]) -> Result<StructArray> {
    let rows: Vec<Option<&Protocol>> = actions.iter().map(|action| action.protocol.as_ref()).collect();
    let each = || rows.iter().copied();
    let numbers =
        |of: fn(&Protocol) -> i32| -> ArrayRef { Arc::new(each().map(|row| row.map(of)).collect::<Int32Array>()) };
    column(
        &rows,
        vec![
            ("minReaderVersion", numbers(|protocol| protocol.min_reader_version)),
            ("minWriterVersion", numbers(|protocol| protocol.min_writer_version)),
            ("readerFeatures", lists(each().map(|row| row?.reader_features.as_deref()))),
            ("writerFeatures", lists(each().map(|row| row?.writer_features.as_deref()))),
        ],
    )
}

/// Decodes a checkpoint; `place` is its name in errors.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if it is no checkpoint that this module wrote, or an equal one.
pub(super) fn decode(bytes: Bytes, place: &str) -> Result<Vec<Action>> {
    let other =
        |e: Error| Error::integrity("expected a checkpoint of a Delta log, found something else").at(place).cause(e);
    let mut out = Vec::new();
    for batch in parquet::open(bytes, place).map_err(other)?.batches(BATCH_ROWS) {
        let batch = batch.map_err(other)?;
        let rows = Rows::of(&batch)
            .ok_or_else(|| Error::integrity("expected a checkpoint of a Delta log, found other columns").at(place))?;
        for row in 0..batch.num_rows() {
            out.push(rows.action(row).ok_or_else(|| {
                Error::integrity(format!("expected an action in row {row} of the checkpoint, found something else"))
                    .at(place)
            })?);
        }
    }
    Ok(out)
}

/// The columns of a batch.
struct Rows<'a> {
    txn: &'a StructArray,
    add: &'a StructArray,
    remove: &'a StructArray,
    table: &'a StructArray,
    protocol: &'a StructArray,
}

impl<'a> Rows<'a> {
    fn of(batch: &'a RecordBatch) -> Option<Self> {
        let column = |name: &str| batch.column_by_name(name)?.as_struct_opt();
        Some(Self {
            txn: column("txn")?,
            add: column("add")?,
            remove: column("remove")?,
            table: column("metaData")?,
            protocol: column("protocol")?,
        })
    }

    /// Returns the action of a row; `None` if a value is missing.
    fn action(&self, row: usize) -> Option<Action> {
        let mut action = Action::default();
        if self.txn.is_valid(row) {
            action.txn = Some(Txn {
                app_id: text(self.txn, "appId", row)?,
                version: long(self.txn, "version", row)?,
                last_updated: long(self.txn, "lastUpdated", row),
            });
        }
        if self.add.is_valid(row) {
            action.add = Some(Add {
                path: text(self.add, "path", row)?,
                partition_values: map(self.add, "partitionValues", row)?,
                size: long(self.add, "size", row)?,
                modification_time: long(self.add, "modificationTime", row)?,
                data_change: flag(self.add, "dataChange", row)?,
                stats: text(self.add, "stats", row),
            });
        }
        if self.remove.is_valid(row) {
            action.remove = Some(Remove {
                path: text(self.remove, "path", row)?,
                deletion_timestamp: long(self.remove, "deletionTimestamp", row),
                data_change: flag(self.remove, "dataChange", row)?,
                extended_file_metadata: flag(self.remove, "extendedFileMetadata", row),
                partition_values: map(self.remove, "partitionValues", row).unwrap_or_default(),
                size: long(self.remove, "size", row),
            });
        }
        if self.table.is_valid(row) {
            action.meta_data = Some(self.meta_data(row)?);
        }
        if self.protocol.is_valid(row) {
            let number = |name| Some(valid(self.protocol, name, row)?.as_primitive_opt::<Int32Type>()?.value(row));
            action.protocol = Some(Protocol {
                min_reader_version: number("minReaderVersion")?,
                min_writer_version: number("minWriterVersion")?,
                reader_features: list(self.protocol, "readerFeatures", row),
                writer_features: list(self.protocol, "writerFeatures", row),
            });
        }
        Some(action)
    }

    fn meta_data(&self, row: usize) -> Option<MetaData> {
        let format = valid(self.table, "format", row)?.as_struct_opt()?;
        let full = |values: Values| values.into_iter().map(|(key, value)| Some((key, value?))).collect();
        Some(MetaData {
            id: text(self.table, "id", row)?,
            format: FileFormat {
                provider: text(format, "provider", row)?,
                options: map(format, "options", row).and_then(full).unwrap_or_default(),
            },
            schema_string: text(self.table, "schemaString", row)?,
            partition_columns: list(self.table, "partitionColumns", row)?,
            configuration: map(self.table, "configuration", row).and_then(full).unwrap_or_default(),
            created_time: long(self.table, "createdTime", row),
        })
    }
}

/// Returns the array of a field if it has a value in this row.
fn valid<'a>(of: &'a StructArray, name: &str, row: usize) -> Option<&'a ArrayRef> {
    of.column_by_name(name).filter(|array| array.is_valid(row))
}

fn text(of: &StructArray, name: &str, row: usize) -> Option<String> {
    Some(valid(of, name, row)?.as_string_opt::<i32>()?.value(row).to_owned())
}

fn long(of: &StructArray, name: &str, row: usize) -> Option<i64> {
    Some(valid(of, name, row)?.as_primitive_opt::<Int64Type>()?.value(row))
}

fn flag(of: &StructArray, name: &str, row: usize) -> Option<bool> {
    Some(valid(of, name, row)?.as_boolean_opt()?.value(row))
}

fn map(of: &StructArray, name: &str, row: usize) -> Option<Values> {
    let entries = valid(of, name, row)?.as_any().downcast_ref::<MapArray>()?.value(row);
    let (keys, values) = (entries.column(0).as_string_opt::<i32>()?, entries.column(1).as_string_opt::<i32>()?);
    let value = |i: usize| values.is_valid(i).then(|| values.value(i).to_owned());
    Some((0..entries.len()).map(|i| (keys.value(i).to_owned(), value(i))).collect())
}

fn list(of: &StructArray, name: &str, row: usize) -> Option<Vec<String>> {
    let items = valid(of, name, row)?.as_list_opt::<i32>()?.value(row);
    Some(items.as_string_opt::<i32>()?.iter().flatten().map(str::to_owned).collect())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_read_as_written() {
        let values: Values = [("k".to_owned(), None), ("l".to_owned(), Some("x".to_owned()))].into();
        let text = |name: &str| name.to_owned();
        let protocol = Protocol {
            min_reader_version: 3,
            min_writer_version: 7,
            reader_features: Some(vec![text("timestampNtz")]),
            writer_features: Some(vec![text("timestampNtz"), text("invariants")]),
        };
        let table = MetaData {
            id: text("i"),
            format: FileFormat { provider: text("parquet"), options: BTreeMap::new() },
            schema_string: text("{}"),
            partition_columns: vec![text("k"), text("l")],
            configuration: [(text("a"), text("b"))].into(),
            created_time: Some(4),
        };
        let add = Add {
            path: text("a"),
            partition_values: values.clone(),
            size: 5,
            modification_time: 6,
            data_change: false,
            stats: Some(text("{}")),
        };
        let remove = Remove {
            path: text("r"),
            deletion_timestamp: Some(7),
            data_change: true,
            extended_file_metadata: Some(true),
            partition_values: values,
            size: Some(8),
        };
        let actions = vec![
            Action { protocol: Some(protocol), ..Action::default() },
            Action { meta_data: Some(table), ..Action::default() },
            Action { txn: Some(Txn { app_id: text("app"), version: 9, last_updated: None }), ..Action::default() },
            Action { add: Some(add), ..Action::default() },
            Action { remove: Some(remove), ..Action::default() },
        ];
        let bytes = Bytes::from(encode(&actions).unwrap());
        assert_eq!(decode(bytes.clone(), "test").unwrap(), actions);
        assert!(decode(bytes.slice(..bytes.len() - 9), "test").is_err());
    }
}
