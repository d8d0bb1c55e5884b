//! Logical types that Arrow does not know, between the schema of a Parquet file and marks on Arrow's fields ([`Logical`]).
//!
//! The parquet crate knows most logical types by Arrow's types alone, and drops the others in both directions: UUID, JSON, BSON,
//! ENUM, VARIANT, GEOMETRY, GEOGRAPHY, and that a TIME is in UTC.

use std::sync::Arc;

use ::parquet::{
    arrow::{
        ARROW_SCHEMA_META_KEY,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    },
    basic::{ConvertedType, EdgeInterpolationAlgorithm as Edges, LogicalType, Repetition, Type as PhysicalType},
    errors::ParquetError,
    file::metadata::ParquetMetaData,
    schema::types::{Type, TypePtr},
};
use arrow::{
    datatypes::{DataType, Field, FieldRef, Fields, Metadata, Schema, TimeUnit as ArrowUnit},
    ipc,
};

use super::read::PARQUET;
use crate::{
    codec::base64::from_base64,
    error::Result,
    format::guard::guard,
    schema::{Logical, changed, stated},
};

/// The metadata of a file with the types to decode to, marked as its schema says. `name` stands in errors.
///
/// Items of lists of two levels have no marks here, for the decoder makes fields of them that carry none, and refuses a
/// schema in which they do; [`with_item_marks`] adds them.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when the schema has no equivalent in Arrow.
pub(super) fn arrow_metadata(metadata: &Arc<ParquetMetaData>, name: &str) -> Result<ArrowReaderMetadata> {
    let given = guard(PARQUET, name, || ArrowReaderMetadata::try_new(Arc::clone(metadata), ArrowReaderOptions::new()))?;
    let root = metadata.file_metadata().schema_descr().root_schema();
    let marked = parts_of(given.schema().fields(), root.get_fields());
    let marked = without_item_marks(&stated(&with_zones(&marked, metadata)), root.get_fields());
    if marked == *given.schema().fields() {
        return Ok(given);
    }
    let schema = Schema::new(marked).with_metadata(given.schema().metadata().clone());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    match guard(PARQUET, name, || ArrowReaderMetadata::try_new(Arc::clone(metadata), options)) {
        Ok(marked) => Ok(marked),
        // A type that the file itself hints at need not be one that may be asked for.
        Err(_) => Ok(given),
    }
}

/// The same fields with the marks of items of lists of two levels, as the schema of the file has them.
pub(super) fn with_item_marks(fields: &Fields, metadata: &ParquetMetaData) -> Fields {
    parts_of(fields, metadata.file_metadata().schema_descr().root_schema().get_fields())
}

/// Takes the marks off all items of lists of two levels.
fn without_item_marks(fields: &Fields, types: &[TypePtr]) -> Fields {
    let mut types = types.iter();
    let unmarked = |field: &FieldRef| match types.find(|found| found.name() == field.name()) {
        Some(found) => item_unmarked(field, found, is_repeated(found)),
        None => Arc::clone(field),
    };
    fields.iter().map(unmarked).collect()
}

/// The same in one field; `bare` says that it is a list because its column is repeated, without a group around it.
fn item_unmarked(field: &FieldRef, found: &Type, bare: bool) -> FieldRef {
    let inner = |item: &FieldRef| match item_of(found) {
        _ if bare => item_unmarked(item, found, false),
        Some(node) if is_repeated(node) => {
            let item = item_unmarked(item, node, false).as_ref().clone();
            Arc::new(item.with_metadata(Metadata::default()))
        }
        Some(node) => item_unmarked(item, node, false),
        None => Arc::clone(item),
    };
    let data_type = match (field.data_type(), found) {
        (DataType::List(item), _) => DataType::List(inner(item)),
        (DataType::LargeList(item), _) => DataType::LargeList(inner(item)),
        (DataType::FixedSizeList(item, width), _) => DataType::FixedSizeList(inner(item), *width),
        (DataType::Struct(parts), Type::GroupType { fields, .. }) => {
            DataType::Struct(without_item_marks(parts, fields))
        }
        (DataType::Map(entries, sorted), Type::GroupType { fields, .. }) => match (entries.data_type(), &fields[..]) {
            (DataType::Struct(pair), [entry]) if entry.is_group() => {
                let pair = pair.iter().zip(entry.get_fields());
                let pair = pair.map(|(field, found)| item_unmarked(field, found, is_repeated(found))).collect();
                let entries = entries.as_ref().clone().with_data_type(DataType::Struct(pair));
                DataType::Map(Arc::new(entries), *sorted)
            }
            _ => return Arc::clone(field),
        },
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

fn is_repeated(found: &Type) -> bool {
    found.get_basic_info().has_repetition() && found.get_basic_info().repetition() == Repetition::REPEATED
}

/// Gives instants their zone. The parquet crate takes it only from columns that were given to the writer in the unit that they
/// are stored in, while Parquet has no seconds.
fn with_zones(fields: &Fields, metadata: &ParquetMetaData) -> Fields {
    let given = |field: &FieldRef| matches!(field.data_type(), DataType::Timestamp(ArrowUnit::Millisecond, Some(_)));
    if !fields.iter().any(given) {
        return fields.clone();
    }
    let entries = metadata.file_metadata().key_value_metadata();
    let hint = entries.into_iter().flatten().find(|entry| entry.key == ARROW_SCHEMA_META_KEY);
    let hint = hint.and_then(|entry| from_base64(entry.value.as_deref()?)).unwrap_or_default();
    // Behind the mark and the length of a message.
    let message = hint.strip_prefix(&[0xff; 4]).and_then(|rest| rest.get(4..)).unwrap_or(&hint);
    let schema = ipc::root_as_message(message).ok().and_then(|message| message.header_as_schema());
    let Some(Ok(schema)) = schema.map(ipc::convert::try_fb_to_schema) else { return fields.clone() };
    let zoned = |field: &FieldRef| match schema.field_with_name(field.name()).map(Field::data_type) {
        Ok(DataType::Timestamp(ArrowUnit::Second, zone @ Some(_))) if given(field) => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Timestamp(ArrowUnit::Millisecond, zone.clone())))
        }
        _ => Arc::clone(field),
    };
    fields.iter().map(zoned).collect()
}

/// Marks fields as the types in a group say, of which those without columns are missing in Arrow.
fn parts_of(fields: &Fields, types: &[TypePtr]) -> Fields {
    let mut types = types.iter();
    fields
        .iter()
        .map(|field| match types.find(|found| found.name() == field.name()) {
            Some(found) => marked(field, found),
            None => Arc::clone(field),
        })
        .collect()
}

fn marked(field: &FieldRef, found: &Type) -> FieldRef {
    let inner = |item: &FieldRef| -> Option<FieldRef> {
        // A repeated column without a list around it is a list, too.
        if is_repeated(found) {
            return Some(bare(item, found));
        }
        match item_of(found)? {
            // Items of two levels are decoded as text, and text that becomes JSON would be quoted.
            item_type if is_repeated(item_type) && meaning(item_type) == Some(Logical::Json) => None,
            item_type if is_repeated(item_type) => Some(bare(item, item_type)),
            item_type => Some(marked(item, item_type)),
        }
    };
    let data_type = match field.data_type() {
        DataType::List(item) => inner(item).map(DataType::List),
        DataType::LargeList(item) => inner(item).map(DataType::LargeList),
        DataType::FixedSizeList(item, width) => inner(item).map(|item| DataType::FixedSizeList(item, *width)),
        DataType::Struct(_) | DataType::Map(..) => return bare(field, found),
        _ => None,
    };
    match data_type {
        Some(data_type) => Arc::new(field.as_ref().clone().with_data_type(data_type)),
        None => bare(field, found),
    }
}

/// Marks a field that is no list.
fn bare(field: &FieldRef, found: &Type) -> FieldRef {
    let mut out = field.as_ref().clone();
    match (field.data_type(), found) {
        (DataType::Struct(parts), Type::GroupType { fields, .. }) => {
            out = out.with_data_type(DataType::Struct(parts_of(parts, fields)));
        }
        // A date that some writer had in milliseconds is stored as any other.
        (DataType::Date64, Type::PrimitiveType { physical_type: PhysicalType::INT32, .. }) => {
            out = out.with_data_type(DataType::Date32);
        }
        (DataType::Map(entries, sorted), Type::GroupType { fields, .. }) => {
            if let (DataType::Struct(pair), [entry]) = (entries.data_type(), fields.as_slice())
                && entry.is_group()
            {
                let pair = pair.iter().zip(entry.get_fields()).map(|(field, found)| marked(field, found));
                let pair = entries.as_ref().clone().with_data_type(DataType::Struct(pair.collect()));
                out = out.with_data_type(DataType::Map(Arc::new(pair), *sorted));
            }
        }
        _ => {}
    }
    let known = Logical::of(&out);
    match meaning(found).filter(|logical| logical.fits(field.data_type())) {
        Some(logical) if known.as_ref() != Some(&logical) => out = logical.mark(out),
        // Beside the schema files may call bytes a shape that the schema does not, and that are none.
        None if known.is_some_and(|known| !matches!(known, Logical::Uuid | Logical::Json)) => {
            out = Logical::unmark(out)
        }
        _ => {}
    }
    Arc::new(out)
}

/// The items of a list, which has a group around them or has not.
fn item_of(list: &Type) -> Option<&Type> {
    if !list.is_group() {
        return None;
    }
    let [repeated] = list.get_fields() else { return None };
    match repeated.as_ref() {
        Type::GroupType { fields, .. } => match fields.as_slice() {
            [item] if repeated.name() != "array" && repeated.name() != format!("{}_tuple", list.name()) => Some(item),
            _ => Some(repeated),
        },
        Type::PrimitiveType { .. } => Some(repeated),
    }
}

/// What a type says that Arrow's types do not.
fn meaning(found: &Type) -> Option<Logical> {
    let info = found.get_basic_info();
    Some(match (info.logical_type_ref(), info.converted_type()) {
        (Some(LogicalType::Uuid), _) => Logical::Uuid,
        (Some(LogicalType::Json), _) | (None, ConvertedType::JSON) => Logical::Json,
        (Some(LogicalType::Bson), _) | (None, ConvertedType::BSON) => Logical::Bson,
        (Some(LogicalType::Enum), _) | (None, ConvertedType::ENUM) => Logical::Enum,
        (Some(LogicalType::Variant(_)), _) => Logical::Variant,
        (Some(LogicalType::Time(time)), _) if time.is_adjusted_to_u_t_c => Logical::UtcTime,
        (Some(LogicalType::Geometry(shape)), _) => Logical::Geometry { crs: shape.crs.clone() },
        (Some(LogicalType::Geography(shape)), _) => {
            let edges = match shape.algorithm {
                None | Some(Edges::SPHERICAL | Edges::_Unknown(_)) => None,
                Some(Edges::VINCENTY) => Some("vincenty"),
                Some(Edges::THOMAS) => Some("thomas"),
                Some(Edges::ANDOYER) => Some("andoyer"),
                Some(Edges::KARNEY) => Some("karney"),
            };
            Logical::Geography { crs: shape.crs.clone(), edges: edges.map(str::to_owned) }
        }
        _ => return None,
    })
}

/// The logical type of Parquet for what values mean, in a column of this physical type.
fn stated_type(logical: &Logical, column: &Type) -> Option<LogicalType> {
    Some(match logical {
        Logical::Uuid => LogicalType::Uuid,
        Logical::Json => LogicalType::Json,
        Logical::Enum => LogicalType::Enum,
        Logical::Bson => LogicalType::Bson,
        Logical::Variant => LogicalType::variant(Some(1)),
        Logical::UtcTime => match column.get_basic_info().logical_type_ref() {
            Some(LogicalType::Time(time)) => LogicalType::time(true, time.unit),
            _ => return None,
        },
        Logical::Geometry { crs } => LogicalType::geometry(crs.clone()),
        Logical::Geography { crs, edges } => {
            let edges = match edges.as_deref() {
                Some("vincenty") => Some(Edges::VINCENTY),
                Some("thomas") => Some(Edges::THOMAS),
                Some("andoyer") => Some(Edges::ANDOYER),
                Some("karney") => Some(Edges::KARNEY),
                _ => None,
            };
            LogicalType::geography(crs.clone(), edges)
        }
    })
}

/// The types of a schema that Arrow's converter made of these fields, with what their marks say.
///
/// # Errors
/// When the parquet crate refuses a type; marks that do not fit are none.
pub(super) fn with_meaning(root: &Type, fields: &Fields) -> Result<Type, ParquetError> {
    Type::group_type_builder(root.name()).with_fields(types_of(root.get_fields(), fields)?).build()
}

fn types_of(types: &[TypePtr], fields: &Fields) -> Result<Vec<TypePtr>, ParquetError> {
    types
        .iter()
        .enumerate()
        .map(|(at, made)| match fields.get(at) {
            Some(field) => type_of(made, field),
            None => Ok(Arc::clone(made)),
        })
        .collect()
}

fn type_of(made: &TypePtr, field: &Field) -> Result<TypePtr, ParquetError> {
    let logical = Logical::of(field).and_then(|logical| stated_type(&logical, made));
    let info = made.get_basic_info();
    let id = info.has_id().then(|| info.id());
    Ok(match made.as_ref() {
        Type::PrimitiveType { physical_type, type_length, .. } => match logical {
            Some(logical) => Arc::new(
                Type::primitive_type_builder(made.name(), *physical_type)
                    .with_repetition(info.repetition())
                    .with_length(*type_length)
                    .with_logical_type(Some(logical))
                    .with_id(id)
                    .build()?,
            ),
            None => Arc::clone(made),
        },
        Type::GroupType { fields: parts, .. } => {
            let parts = match field.data_type() {
                DataType::Struct(fields) => types_of(parts, fields)?,
                DataType::Map(entries, _) => match (entries.data_type(), parts.as_slice()) {
                    (DataType::Struct(pair), [entry]) => {
                        vec![regrouped(entry, types_of(entry.get_fields(), pair)?, None)?]
                    }
                    _ => parts.clone(),
                },
                DataType::List(item)
                | DataType::LargeList(item)
                | DataType::FixedSizeList(item, _)
                | DataType::ListView(item)
                | DataType::LargeListView(item) => match parts.as_slice() {
                    [repeated] if repeated.is_group() => match repeated.get_fields() {
                        [made] => vec![regrouped(repeated, vec![type_of(made, item)?], None)?],
                        _ => parts.clone(),
                    },
                    _ => parts.clone(),
                },
                _ => parts.clone(),
            };
            regrouped(made, parts, logical)?
        }
    })
}

/// The group with other parts, and another meaning if there is one.
fn regrouped(group: &TypePtr, parts: Vec<TypePtr>, logical: Option<LogicalType>) -> Result<TypePtr, ParquetError> {
    let info = group.get_basic_info();
    let known = logical.or_else(|| info.logical_type_ref().cloned());
    let built = Type::group_type_builder(group.name())
        .with_repetition(info.repetition())
        .with_converted_type(info.converted_type())
        .with_logical_type(known)
        .with_fields(parts)
        .with_id(info.has_id().then(|| info.id()));
    built.build().map(Arc::new)
}

/// Types that readers of Parquet know, in place of those that Parquet has no word for: with them a date in milliseconds and times
/// in seconds would be bare numbers to all readers but Arrow's.
#[must_use]
pub fn storable_fields(fields: &Fields) -> Fields {
    changed(fields, &|field| {
        let data_type = match field.data_type() {
            DataType::Dictionary(key, value) => DataType::Dictionary(key.clone(), Box::new(storable(value))),
            other => storable(other),
        };
        field.with_data_type(data_type)
    })
}

fn storable(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Date64 => DataType::Date32,
        DataType::Timestamp(ArrowUnit::Second, zone) => DataType::Timestamp(ArrowUnit::Millisecond, zone.clone()),
        DataType::Time32(ArrowUnit::Second) => DataType::Time32(ArrowUnit::Millisecond),
        other => other.clone(),
    }
}
