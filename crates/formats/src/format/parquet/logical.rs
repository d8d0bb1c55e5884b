//! Logical types that Arrow lacks: translates between the schema of a Parquet file and the marks on Arrow's fields
//! ([`Logical`]).
//!
//! The parquet crate derives most logical types from Arrow's types alone, and drops the others in both directions:
//! UUID, JSON, BSON, ENUM, VARIANT, GEOMETRY, GEOGRAPHY, and that a TIME is in UTC.

use std::{cell::RefCell, sync::Arc};

use ::parquet::{
    arrow::{
        ARROW_SCHEMA_META_KEY,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    },
    basic::{ConvertedType, EdgeInterpolationAlgorithm as Edges, LogicalType, Repetition, Type as PhysicalType},
    errors::ParquetError,
    file::{metadata::ParquetMetaData, reader::ChunkReader},
    schema::types::{Type, TypePtr},
};
use arrow::{
    datatypes::{DataType, Field, FieldRef, Fields, Metadata, Schema, TimeUnit as ArrowUnit},
    ipc,
};

use super::{as_bytes::without_intervals, int96::Spans, pages::PARQUET};
use crate::{
    codec::base64::from_base64,
    error::Result,
    format::guard::guard_decoding,
    schema::{INTERVAL, Logical, map_fields, mark_stated},
};

/// Returns the metadata of a file with the types to decode to, marked as its schema states. `name` is the file's name
/// in errors.
///
/// Items of two-level lists have no marks here, because the decoder creates their fields without marks and rejects a
/// schema that has them; [`with_item_marks`] adds them.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if the schema has no Arrow equivalent, or no 64-bit type holds all INT96
/// timestamps of a column.
pub(super) fn arrow_metadata<R: ChunkReader + 'static>(
    input: &Arc<R>,
    metadata: &Arc<ParquetMetaData>,
    name: &str,
) -> Result<ArrowReaderMetadata> {
    let plain = guard_decoding(PARQUET, name, || without_intervals(metadata))?;
    let new = |options| guard_decoding(PARQUET, name, || ArrowReaderMetadata::try_new(Arc::clone(&plain), options));
    let mut given = new(ArrowReaderOptions::new())?;
    if has_units(given.schema().fields()) {
        let stored = new(ArrowReaderOptions::new().with_skip_arrow_metadata(true))?;
        if contradicts_stored(given.schema().fields(), stored.schema().fields(), metadata) {
            given = stored;
        }
    }
    let spans = Spans::read(input, metadata, name)?;
    let root = metadata.file_metadata().schema_descr().root_schema();
    let marked = parts_of(given.schema().fields(), root.get_fields());
    let marked = without_item_marks(&mark_stated(&with_zones(&marked, metadata)), root.get_fields());
    let marked = spans.as_ref().map_or(Ok(marked.clone()), |spans| spans.apply_units(&marked, None, name))?;
    if marked == *given.schema().fields() {
        return Ok(given);
    }
    let with = |fields: Fields| {
        let schema = Schema::new(fields).with_metadata(given.schema().metadata().clone());
        new(ArrowReaderOptions::new().with_schema(Arc::new(schema)))
    };
    match with(marked) {
        Ok(marked) => Ok(marked),
        // A type in the file's own Arrow schema may not be accepted as a requested type.
        Err(_) => match spans {
            Some(spans) => with(spans.apply_units(given.schema().fields(), None, name)?),
            None => Ok(given),
        },
    }
}

/// Returns whether some values are numbers of a unit that the type states.
fn has_units(fields: &Fields) -> bool {
    leaf_types(fields).iter().any(|leaf| leaf.is_decimal() || matches!(leaf, DataType::Timestamp(..)))
}

/// Returns whether the Arrow schema in a file states other units than its Parquet schema, so that it is not that of
/// this file: the decoder would take the numbers for ones of that unit. INT96 has no unit of its own.
fn contradicts_stored(given: &Fields, stored: &Fields, metadata: &ParquetMetaData) -> bool {
    let digits = |data_type: &DataType| match data_type {
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => Some((*p, *s)),
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => Some((*p, *s)),
        _ => None,
    };
    let columns = metadata.file_metadata().schema_descr().columns();
    let leaves = leaf_types(given).into_iter().zip(leaf_types(stored)).zip(columns);
    leaves.filter(|(_, column)| column.physical_type() != PhysicalType::INT96).any(|((given, stored), _)| {
        match (&given, &stored) {
            (DataType::Timestamp(one, _), DataType::Timestamp(other, _)) => one != other,
            _ => digits(&given) != digits(&stored),
        }
    })
}

/// Returns the types of the columns of fields at any depth, in the order of the file.
fn leaf_types(fields: &Fields) -> Vec<DataType> {
    let leaves = RefCell::new(Vec::new());
    let _ = map_fields(fields, &|field| {
        match field.data_type() {
            DataType::Dictionary(_, value) => leaves.borrow_mut().push(value.as_ref().clone()),
            data_type if !data_type.is_nested() => leaves.borrow_mut().push(data_type.clone()),
            _ => {}
        }
        field
    });
    leaves.into_inner()
}

/// Returns the metadata of a file with the types of its Parquet schema alone; INT96 timestamps are in microseconds.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if the schema has no Arrow equivalent, or microseconds do not hold all
/// INT96
/// timestamps.
pub(super) fn stored_metadata<R: ChunkReader + 'static>(
    input: &Arc<R>,
    metadata: &Arc<ParquetMetaData>,
    name: &str,
) -> Result<ArrowReaderMetadata> {
    let plain = guard_decoding(PARQUET, name, || without_intervals(metadata))?;
    let new = |options| guard_decoding(PARQUET, name, || ArrowReaderMetadata::try_new(Arc::clone(&plain), options));
    let given = new(ArrowReaderOptions::new().with_skip_arrow_metadata(true))?;
    let Some(spans) = Spans::read(input, metadata, name)? else { return Ok(given) };
    let schema = Schema::new(spans.apply_units(given.schema().fields(), Some(ArrowUnit::Microsecond), name)?);
    new(ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(Arc::new(schema)))
}

/// Returns the fields with the marks of items of two-level lists, from the schema of the file.
pub(super) fn with_item_marks(fields: &Fields, metadata: &ParquetMetaData) -> Fields {
    parts_of(fields, metadata.file_metadata().schema_descr().root_schema().get_fields())
}

/// Removes the marks of all items of two-level lists.
fn without_item_marks(fields: &Fields, types: &[TypePtr]) -> Fields {
    let mut types = types.iter();
    let unmarked = |field: &FieldRef| match types.find(|found| found.name() == field.name()) {
        Some(found) => item_unmarked(field, found, is_repeated(found)),
        None => Arc::clone(field),
    };
    fields.iter().map(unmarked).collect()
}

/// Removes them from one field; `bare` means that it is a list because its column is repeated, without a group around
/// it.
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

/// Sets the time zone of instants. The parquet crate takes it only from columns whose Arrow unit is the stored one, and
/// Parquet has no seconds.
fn with_zones(fields: &Fields, metadata: &ParquetMetaData) -> Fields {
    let given = |field: &FieldRef| matches!(field.data_type(), DataType::Timestamp(ArrowUnit::Millisecond, Some(_)));
    if !fields.iter().any(given) {
        return fields.clone();
    }
    let entries = metadata.file_metadata().key_value_metadata();
    let hint = entries.into_iter().flatten().find(|entry| entry.key == ARROW_SCHEMA_META_KEY);
    let hint = hint.and_then(|entry| from_base64(entry.value.as_deref()?)).unwrap_or_default();
    // The message follows a marker and its length.
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

/// Marks fields as stated by the types in a group; Arrow lacks those without columns.
fn parts_of(fields: &Fields, types: &[TypePtr]) -> Fields {
    let mut types = types.iter();
    fields
        .iter()
        .map(|field| match types.find(|found| found.name() == field.name()) {
            Some(found) => mark_field(field, found),
            None => Arc::clone(field),
        })
        .collect()
}

fn mark_field(field: &FieldRef, found: &Type) -> FieldRef {
    let inner = |item: &FieldRef| -> Option<FieldRef> {
        // A repeated column without a list around it is a list, too.
        if is_repeated(found) {
            return Some(mark_non_list(item, found));
        }
        match item_of(found)? {
            // Items of two-level lists are decoded as text, and text that is marked as JSON would be quoted.
            item_type if is_repeated(item_type) && logical_meaning(item_type) == Some(Logical::Json) => None,
            item_type if is_repeated(item_type) => Some(mark_non_list(item, item_type)),
            item_type => Some(mark_field(item, item_type)),
        }
    };
    let data_type = match field.data_type() {
        DataType::List(item) => inner(item).map(DataType::List),
        DataType::LargeList(item) => inner(item).map(DataType::LargeList),
        DataType::FixedSizeList(item, width) => inner(item).map(|item| DataType::FixedSizeList(item, *width)),
        DataType::Struct(_) | DataType::Map(..) => return mark_non_list(field, found),
        _ => None,
    };
    match data_type {
        Some(data_type) => Arc::new(field.as_ref().clone().with_data_type(data_type)),
        None => mark_non_list(field, found),
    }
}

/// Marks a field that is not a list.
fn mark_non_list(field: &FieldRef, found: &Type) -> FieldRef {
    let mut out = field.as_ref().clone();
    match (field.data_type(), found) {
        (DataType::Struct(parts), Type::GroupType { fields, .. }) => {
            out = out.with_data_type(DataType::Struct(parts_of(parts, fields)));
        }
        // A date that the writer had in milliseconds is stored as any other date.
        (DataType::Date64, Type::PrimitiveType { physical_type: PhysicalType::INT32, .. }) => {
            out = out.with_data_type(DataType::Date32);
        }
        (DataType::Map(entries, sorted), Type::GroupType { fields, .. }) => {
            if let (DataType::Struct(pair), [entry]) = (entries.data_type(), fields.as_slice())
                && entry.is_group()
            {
                let pair = pair.iter().zip(entry.get_fields()).map(|(field, found)| mark_field(field, found));
                let pair = entries.as_ref().clone().with_data_type(DataType::Struct(pair.collect()));
                out = out.with_data_type(DataType::Map(Arc::new(pair), *sorted));
            }
        }
        _ => {}
    }
    let known = Logical::from_field(&out);
    match logical_meaning(found).filter(|logical| logical.fits_type(field.data_type())) {
        Some(logical) if known.as_ref() != Some(&logical) => out = logical.mark_field(out),
        // The embedded Arrow schema may mark bytes as a shape that the Parquet schema does not, and that they are not.
        None if known.is_some_and(|known| !matches!(known, Logical::Uuid | Logical::Json)) => {
            out = Logical::unmark_field(out)
        }
        _ => {}
    }
    Arc::new(out)
}

/// Returns the items of a list, which may be enclosed in a group or not.
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

/// Returns the part of a type's meaning that Arrow's types lack.
fn logical_meaning(found: &Type) -> Option<Logical> {
    let info = found.get_basic_info();
    Some(match (info.logical_type_ref(), info.converted_type()) {
        (Some(LogicalType::Uuid), _) => Logical::Uuid,
        (None, ConvertedType::INTERVAL) => Logical::Interval,
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

/// Returns Parquet's logical type for a meaning, in a column of this physical type.
fn stated_type(logical: &Logical, column: &Type) -> Option<LogicalType> {
    Some(match logical {
        Logical::Uuid => LogicalType::Uuid,
        Logical::Json => LogicalType::Json,
        Logical::Enum => LogicalType::Enum,
        Logical::Bson => LogicalType::Bson,
        Logical::Variant => LogicalType::variant(Some(1)),
        // It has only a converted type.
        Logical::Interval => return None,
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

/// Adds the meaning of the fields' marks to the types that Arrow's converter made from these fields.
///
/// # Errors
/// When the parquet crate rejects a type; marks that do not fit are ignored.
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
    let known = Logical::from_field(field);
    let logical = known.as_ref().and_then(|logical| stated_type(logical, made));
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
            None if known == Some(Logical::Interval) => Arc::new(
                Type::primitive_type_builder(made.name(), *physical_type)
                    .with_repetition(info.repetition())
                    .with_length(*type_length)
                    .with_converted_type(ConvertedType::INTERVAL)
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
                        vec![rebuild_group(entry, types_of(entry.get_fields(), pair)?, None)?]
                    }
                    _ => parts.clone(),
                },
                DataType::List(item)
                | DataType::LargeList(item)
                | DataType::FixedSizeList(item, _)
                | DataType::ListView(item)
                | DataType::LargeListView(item) => match parts.as_slice() {
                    [repeated] if repeated.is_group() => match repeated.get_fields() {
                        [made] => vec![rebuild_group(repeated, vec![type_of(made, item)?], None)?],
                        _ => parts.clone(),
                    },
                    _ => parts.clone(),
                },
                _ => parts.clone(),
            };
            rebuild_group(made, parts, logical)?
        }
    })
}

/// Returns the group with other parts, and another logical type if one is given.
fn rebuild_group(group: &TypePtr, parts: Vec<TypePtr>, logical: Option<LogicalType>) -> Result<TypePtr, ParquetError> {
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

/// Replaces types that have no Parquet equivalent by types that all readers know: otherwise, a date in milliseconds or
/// a time in seconds would be a plain number to all readers but Arrow's.
#[must_use]
pub fn storable_fields(fields: &Fields) -> Fields {
    map_fields(fields, &|field| {
        let data_type = match field.data_type() {
            DataType::Interval(_) => return Logical::Interval.mark_field(field.with_data_type(INTERVAL)),
            DataType::Dictionary(key, value) => DataType::Dictionary(key.clone(), Box::new(storable_type(value))),
            other => storable_type(other),
        };
        field.with_data_type(data_type)
    })
}

fn storable_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Date64 => DataType::Date32,
        DataType::Timestamp(ArrowUnit::Second, zone) => DataType::Timestamp(ArrowUnit::Millisecond, zone.clone()),
        DataType::Time32(ArrowUnit::Second) => DataType::Time32(ArrowUnit::Millisecond),
        // Parquet has no values without bytes of a fixed width.
        DataType::FixedSizeBinary(0) => DataType::Binary,
        other => other.clone(),
    }
}
