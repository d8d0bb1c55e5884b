//! Checkpoints of a Delta log: the whole state at a version as one Parquet file (V1), a row per action.

use std::sync::Arc;

use ::parquet::{
    arrow::ArrowWriter,
    basic::Compression,
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties},
};
use arrow::{
    array::{
        Array, ArrayRef, BooleanArray, Int32Array, Int64Array, ListBuilder, MapBuilder, MapFieldNames, RecordBatch,
        StringArray, StringBuilder, StructArray,
    },
    buffer::NullBuffer,
    datatypes::{DataType, Field, Fields, Schema},
};

use crate::{
    delta::actions::{Action, Add, FileFormat, Metadata, Protocol, Remove, Txn, Values},
    error::{Error, Result},
};

/// Encodes a checkpoint.
///
/// # Errors
/// Fails only if the actions do not fit into memory.
pub(super) fn encode_checkpoint(actions: &[Action]) -> Result<Vec<u8>> {
    let columns = [
        ("txn", txn_structs(actions)?),
        ("add", add_structs(actions)?),
        ("remove", remove_structs(actions)?),
        ("metaData", metadata_structs(actions)?),
        ("protocol", protocol_structs(actions)?),
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
    let failed = |e: ParquetError| Error::internal("encoding a checkpoint of a Delta log failed").with_cause(e);
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).map_err(failed)?;
    writer.write(&batch).map_err(failed)?;
    writer.into_inner().map_err(failed)
}

/// A struct column: null in rows of other actions.
fn struct_column<T>(rows: &[Option<&T>], children: Vec<(&str, ArrayRef)>) -> Result<StructArray> {
    let fields: Fields =
        children.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = children.into_iter().map(|(_, array)| array).collect();
    let present: NullBuffer = rows.iter().map(Option::is_some).collect::<Vec<bool>>().into();
    Ok(StructArray::try_new_with_length(fields, arrays, Some(present), rows.len())?)
}

fn string_array<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn int64_array(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

fn boolean_array(values: impl Iterator<Item = Option<bool>>) -> ArrayRef {
    Arc::new(values.collect::<BooleanArray>())
}

fn map_array<'a>(values: impl Iterator<Item = Option<&'a Values>>) -> Result<ArrayRef> {
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

fn list_array<'a>(values: impl Iterator<Item = Option<&'a [String]>>) -> ArrayRef {
    let mut builder = ListBuilder::new(StringBuilder::new()).with_field(Field::new("element", DataType::Utf8, true));
    for list in values {
        for item in list.into_iter().flatten() {
            builder.values().append_value(item);
        }
        builder.append(list.is_some());
    }
    Arc::new(builder.finish())
}

fn txn_structs(actions: &[Action]) -> Result<StructArray> {
    let rows: Vec<Option<&Txn>> = actions.iter().map(|action| action.txn.as_ref()).collect();
    let each = || rows.iter().copied();
    struct_column(
        &rows,
        vec![
            ("appId", string_array(each().map(|row| Some(row?.app_id.as_str())))),
            ("version", int64_array(each().map(|row| Some(row?.version)))),
            ("lastUpdated", int64_array(each().map(|row| row?.last_updated))),
        ],
    )
}

fn add_structs(actions: &[Action]) -> Result<StructArray> {
    let rows: Vec<Option<&Add>> = actions.iter().map(|action| action.add.as_ref()).collect();
    let each = || rows.iter().copied();
    struct_column(
        &rows,
        vec![
            ("path", string_array(each().map(|row| Some(row?.path.as_str())))),
            ("partitionValues", map_array(each().map(|row| Some(&row?.partition_values)))?),
            ("size", int64_array(each().map(|row| row?.size))),
            ("modificationTime", int64_array(each().map(|row| row?.modification_time))),
            ("dataChange", boolean_array(each().map(|row| Some(row?.data_change)))),
            ("tags", map_array(each().map(|_| None))?),
            ("stats", string_array(each().map(|row| row?.stats.as_deref()))),
        ],
    )
}

fn remove_structs(actions: &[Action]) -> Result<StructArray> {
    let rows: Vec<Option<&Remove>> = actions.iter().map(|action| action.remove.as_ref()).collect();
    let each = || rows.iter().copied();
    struct_column(
        &rows,
        vec![
            ("path", string_array(each().map(|row| Some(row?.path.as_str())))),
            ("deletionTimestamp", int64_array(each().map(|row| row?.deletion_timestamp))),
            ("dataChange", boolean_array(each().map(|row| Some(row?.data_change)))),
            ("extendedFileMetadata", boolean_array(each().map(|row| row?.extended_file_metadata))),
            ("partitionValues", map_array(each().map(|row| Some(&row?.partition_values)))?),
            ("size", int64_array(each().map(|row| row?.size))),
        ],
    )
}

fn metadata_structs(actions: &[Action]) -> Result<StructArray> {
    let rows: Vec<Option<&Metadata>> = actions.iter().map(|action| action.meta_data.as_ref()).collect();
    let each = || rows.iter().copied();
    let formats: Vec<Option<&FileFormat>> = each().map(|row| row.map(|table| &table.format)).collect();
    let format = struct_column(
        &formats,
        vec![
            ("provider", string_array(formats.iter().map(|row| Some(row.as_ref()?.provider.as_str())))),
            ("options", map_array(formats.iter().map(|row| Some(&row.as_ref()?.options)))?),
        ],
    )?;
    struct_column(
        &rows,
        vec![
            ("id", string_array(each().map(|row| Some(row?.id.as_str())))),
            ("name", string_array(each().map(|_| None))),
            ("description", string_array(each().map(|_| None))),
            ("format", Arc::new(format)),
            ("schemaString", string_array(each().map(|row| row?.schema_string.as_deref()))),
            ("partitionColumns", list_array(each().map(|row| Some(row?.partition_columns.as_slice())))),
            ("createdTime", int64_array(each().map(|row| row?.created_time))),
            ("configuration", map_array(each().map(|row| Some(&row?.configuration)))?),
        ],
    )
}

fn protocol_structs(actions: &[Action]) -> Result<StructArray> {
    let rows: Vec<Option<&Protocol>> = actions.iter().map(|action| action.protocol.as_ref()).collect();
    let each = || rows.iter().copied();
    let numbers = |of: fn(&Protocol) -> i64| -> ArrayRef {
        Arc::new(each().map(|row| i32::try_from(of(row?)).ok()).collect::<Int32Array>())
    };
    struct_column(
        &rows,
        vec![
            ("minReaderVersion", numbers(|protocol| protocol.min_reader_version)),
            ("minWriterVersion", numbers(|protocol| protocol.min_writer_version)),
            ("readerFeatures", list_array(each().map(|row| row?.reader_features.as_deref()))),
            ("writerFeatures", list_array(each().map(|row| row?.writer_features.as_deref()))),
        ],
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{
        delta::{
            checkpoint::{WRITTEN, each_checkpoint_action},
            log::checkpoint_path,
        },
        storage::{RemoteStore, Store},
    };

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
        let table = Metadata {
            id: text("i"),
            format: FileFormat::default(),
            schema_string: Some(text("{}")),
            partition_columns: vec![text("k"), text("l")],
            configuration: [(text("a"), Some(text("b")))].into(),
            created_time: Some(4),
        };
        let add = Add { partition_values: values, stats: Some(text("{}")), ..Add::new("a b", 5, i64::MAX) };
        let remove = Remove::for_add(&Add { path: text("r"), ..add.clone() }, 7, true);
        let actions = vec![
            Action { txn: Some(Txn { app_id: text("app"), version: 9, last_updated: None }), ..Action::default() },
            Action { add: Some(add), ..Action::default() },
            Action { remove: Some(remove), ..Action::default() },
            Action { meta_data: Some(table), ..Action::default() },
            Action { protocol: Some(protocol), ..Action::default() },
        ];
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        store.put(&checkpoint_path(3), encode_checkpoint(&actions).unwrap().into()).unwrap();
        let mut found = Vec::new();
        each_checkpoint_action(&store, &[checkpoint_path(3)], WRITTEN, &mut |action| {
            found.push(action);
            Ok(())
        })
        .unwrap();
        assert_eq!(found, actions);
    }
}
