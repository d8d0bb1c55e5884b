//! Columns read as bytes, because a value may not fit the type that the decoder has for them: text that is not UTF-8,
//! and intervals.

use std::sync::Arc;

use ::parquet::{
    basic::{ConvertedType, Type as Physical},
    errors::ParquetError,
    file::metadata::{FileMetaData, ParquetMetaData},
    schema::types::{SchemaDescriptor, Type, TypePtr},
};
use arrow::datatypes::{DataType, Field, Fields};

/// Returns the fields with the text columns of these names as binary.
pub(super) fn as_binary(fields: &Fields, names: &[String]) -> Fields {
    let binary = |field: &Arc<Field>| match is_text(field.data_type()) && names.contains(field.name()) {
        true => Arc::new(field.as_ref().clone().with_data_type(DataType::Binary)),
        false => Arc::clone(field),
    };
    fields.iter().map(binary).collect()
}

/// Returns whether values are text, in any of Arrow's layouts.
pub(super) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => value.is_string(),
        other => other.is_string(),
    }
}

/// Returns the metadata without the text annotation of the columns of these names.
pub(super) fn without_text(metadata: &ParquetMetaData, names: &[String]) -> Result<ParquetMetaData, ParquetError> {
    let fields = metadata.file_metadata().schema().get_fields().iter().map(|field| {
        let text = field.is_primitive() && field.get_physical_type() == Physical::BYTE_ARRAY;
        let is_named = || names.iter().any(|name| name == field.name());
        if text && is_named() { without_annotation(field) } else { Ok(Arc::clone(field)) }
    });
    with_fields(metadata, fields.collect::<Result<_, _>>()?)
}

/// Returns the metadata without the annotation of intervals at any depth: their 12 bytes have months, days and
/// milliseconds, of which no type that the decoder has for them holds all.
pub(super) fn without_intervals(metadata: &Arc<ParquetMetaData>) -> Result<Arc<ParquetMetaData>, ParquetError> {
    let file = metadata.file_metadata();
    let is_interval = |converted| converted == ConvertedType::INTERVAL;
    if !file.schema_descr().columns().iter().any(|column| is_interval(column.converted_type())) {
        return Ok(Arc::clone(metadata));
    }
    let fields = file.schema().get_fields().iter().map(without_interval);
    with_fields(metadata, fields.collect::<Result<_, _>>()?).map(Arc::new)
}

fn without_interval(found: &TypePtr) -> Result<TypePtr, ParquetError> {
    let info = found.get_basic_info();
    if found.is_primitive() {
        return if info.converted_type() == ConvertedType::INTERVAL {
            without_annotation(found)
        } else {
            Ok(Arc::clone(found))
        };
    }
    let fields = found.get_fields().iter().map(without_interval).collect::<Result<_, _>>()?;
    let group = Type::group_type_builder(found.name())
        .with_repetition(info.repetition())
        .with_converted_type(info.converted_type())
        .with_logical_type(info.logical_type_ref().cloned())
        .with_fields(fields)
        .with_id(info.has_id().then(|| info.id()));
    group.build().map(Arc::new)
}

/// Returns a column without its annotation.
fn without_annotation(column: &Type) -> Result<TypePtr, ParquetError> {
    let info = column.get_basic_info();
    let length = match column {
        Type::PrimitiveType { type_length, .. } => *type_length,
        Type::GroupType { .. } => -1,
    };
    let plain = Type::primitive_type_builder(column.name(), column.get_physical_type())
        .with_repetition(info.repetition())
        .with_length(length)
        .with_converted_type(ConvertedType::NONE)
        .with_id(info.has_id().then(|| info.id()));
    plain.build().map(Arc::new)
}

/// Returns the metadata with another schema of the same columns.
fn with_fields(metadata: &ParquetMetaData, fields: Vec<TypePtr>) -> Result<ParquetMetaData, ParquetError> {
    let file = metadata.file_metadata();
    let root = Type::group_type_builder(file.schema().name()).with_fields(fields).build()?;
    let file = FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_owned),
        file.key_value_metadata().cloned(),
        Arc::new(SchemaDescriptor::new(Arc::new(root))),
        file.column_orders().cloned(),
    );
    Ok(ParquetMetaData::new(file, metadata.row_groups().to_vec()))
}
