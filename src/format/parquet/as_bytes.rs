//! Text columns read as bytes: some writers store text that is not UTF-8 in them, which a text column cannot hold.

use std::sync::Arc;

use ::parquet::{
    basic::{ConvertedType, Type as Physical},
    errors::ParquetError,
    file::metadata::{FileMetaData, ParquetMetaData},
    schema::types::{SchemaDescriptor, Type},
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
    let file = metadata.file_metadata();
    let root = file.schema();
    let fields = root.get_fields().iter().map(|field| {
        let text = field.is_primitive() && field.get_physical_type() == Physical::BYTE_ARRAY;
        if !text || !names.iter().any(|name| name == field.name()) {
            return Ok(Arc::clone(field));
        }
        let info = field.get_basic_info();
        let plain = Type::primitive_type_builder(field.name(), Physical::BYTE_ARRAY)
            .with_repetition(info.repetition())
            .with_converted_type(ConvertedType::NONE)
            .with_id(info.has_id().then(|| info.id()));
        plain.build().map(Arc::new)
    });
    let root = Type::group_type_builder(root.name()).with_fields(fields.collect::<Result<_, _>>()?).build()?;
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
