//! What values mean beyond the type that Arrow has for them: a mark on their field, which Parquet files state as a logical type.
//!
//! ```text
//! uuid        fixed_binary(16)          ARROW:extension:name  arrow.uuid
//! json        text                      ARROW:extension:name  arrow.json
//! others      as `Logical::fits` says   shardify:logical      time(UTC), enum, bson, variant, geometry("EPSG:3857") ...
//! ```
//!
//! Extensions of Arrow for the same (`geoarrow.wkb`, `arrow.parquet.variant`) mean the same as our own key, which stands in no
//! file: it is made of the Parquet schema where a file is read and taken off where one is written.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Metadata};
use serde_json::Value;

use super::{EXTENSION_METADATA, EXTENSION_NAME, JSON_EXTENSION};

/// Key of the field metadata with the printed form of a [`Logical`] that no Arrow extension stands for.
const LOGICAL: &str = "shardify:logical";

/// Value of [`LOGICAL`] for values that mean no more than their type says.
const NOTHING: &str = "nothing";

/// Key of the field metadata that marks a column as what its source says it is: JSON text that is but text beside other
/// text, and columns without values that stay so. It lives while types are united; [`settle`](super::settle) removes it where
/// there are values.
pub(super) const STATED: &str = "shardify:stated";

const UUID_EXTENSION: &str = "arrow.uuid";
const WKB_EXTENSION: &str = "geoarrow.wkb";
/// The name of today and the one before it was canonical.
const VARIANT_EXTENSIONS: [&str; 2] = ["arrow.parquet.variant", "parquet.variant"];

/// Reference system of coordinates that is meant where none is named.
const DEFAULT_CRS: &str = "OGC:CRS84";

/// How points are joined where nothing is said.
const DEFAULT_EDGES: &str = "spherical";

/// What values mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logical {
    /// An identifier of 16 bytes.
    Uuid,
    /// A JSON document as text.
    Json,
    /// One of a set of texts.
    Enum,
    /// A BSON document.
    Bson,
    /// A value with a type of its own, as Parquet's VARIANT has it.
    Variant,
    /// A time of day in UTC.
    UtcTime,
    /// A shape on a plane, in WKB.
    Geometry {
        /// Reference system; `None` is longitude and latitude.
        crs: Option<String>,
    },
    /// A shape on a globe, in WKB.
    Geography {
        /// Reference system; `None` is longitude and latitude.
        crs: Option<String>,
        /// How points are joined; `None` is by great circles.
        edges: Option<String>,
    },
}

impl Logical {
    /// What the values of a field mean, if its metadata says so and its type can hold such values.
    pub fn of(field: &Field) -> Option<Self> {
        let marks = field.metadata();
        let found = match marks.get(LOGICAL) {
            Some(name) => Self::parse(name),
            None => Self::of_extension(marks.get(EXTENSION_NAME)?, marks.get(EXTENSION_METADATA)),
        };
        found.filter(|logical| logical.fits(field.data_type()))
    }

    fn of_extension(name: &str, metadata: Option<&String>) -> Option<Self> {
        Some(match name {
            UUID_EXTENSION => Self::Uuid,
            JSON_EXTENSION => Self::Json,
            name if VARIANT_EXTENSIONS.contains(&name) => Self::Variant,
            WKB_EXTENSION => {
                let metadata: Value = metadata.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
                let crs = match &metadata["crs"] {
                    Value::Null => None,
                    Value::String(name) => Some(name.clone()).filter(|name| name != DEFAULT_CRS),
                    described => Some(described.to_string()),
                };
                match metadata["edges"].as_str() {
                    None | Some("planar") => Self::Geometry { crs },
                    Some(edges) => {
                        Self::Geography { crs, edges: Some(edges.to_owned()).filter(|edges| edges != DEFAULT_EDGES) }
                    }
                }
            }
            _ => return None,
        })
    }

    /// Whether values of this type can mean it.
    pub fn fits(&self, data_type: &DataType) -> bool {
        use DataType::{
            Binary, BinaryView, Dictionary, FixedSizeBinary, LargeBinary, LargeUtf8, RunEndEncoded, Struct, Time32,
            Time64, Utf8, Utf8View,
        };
        match (self, data_type) {
            (_, Dictionary(_, value)) => self.fits(value),
            (_, RunEndEncoded(_, value)) => self.fits(value.data_type()),
            (Self::Uuid, FixedSizeBinary(16)) => true,
            (Self::Json, Utf8 | LargeUtf8 | Utf8View) => true,
            (Self::Enum | Self::Bson, Binary | LargeBinary | BinaryView) => true,
            (Self::Geometry { .. } | Self::Geography { .. }, Binary | LargeBinary | BinaryView) => true,
            (Self::UtcTime, Time32(_) | Time64(_)) => true,
            (Self::Variant, Struct(parts)) => parts.iter().any(|part| part.name() == "metadata"),
            _ => false,
        }
    }

    /// The field with the mark, in place of any other.
    #[must_use]
    pub fn mark(&self, field: Field) -> Field {
        let mut marks = field.metadata().clone();
        match self {
            Self::Uuid | Self::Json => {
                marks.remove(LOGICAL);
                let name = if *self == Self::Uuid { UUID_EXTENSION } else { JSON_EXTENSION };
                if marks.insert(EXTENSION_NAME.to_owned(), name.to_owned()).as_deref() != Some(name) {
                    marks.remove(EXTENSION_METADATA);
                }
            }
            other => {
                marks.insert(LOGICAL.to_owned(), other.print());
            }
        }
        field.with_metadata(marks)
    }

    /// The field with a mark that its values mean nothing more than its type says, whatever its extension is.
    #[must_use]
    pub fn unmark(field: Field) -> Field {
        let marks = field.metadata().clone().with(LOGICAL, NOTHING);
        field.with_metadata(marks)
    }

    /// As it stands in the mark.
    fn print(&self) -> String {
        let with = |name: &str, parameters: &[&Option<String>]| {
            let known = parameters.iter().rposition(|parameter| parameter.is_some()).map_or(0, |last| last + 1);
            let texts: Vec<Value> = parameters[..known].iter().map(|text| Value::from((*text).clone())).collect();
            if texts.is_empty() { name.to_owned() } else { format!("{name}{}", Value::from(texts)) }
        };
        match self {
            Self::Uuid => "uuid".to_owned(),
            Self::Json => "json".to_owned(),
            Self::Enum => "enum".to_owned(),
            Self::Bson => "bson".to_owned(),
            Self::Variant => "variant".to_owned(),
            Self::UtcTime => "time".to_owned(),
            Self::Geometry { crs } => with("geometry", &[crs]),
            Self::Geography { crs, edges } => with("geography", &[crs, edges]),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (name, parameters) = text.split_at(text.find('[').unwrap_or(text.len()));
        let mut parameters: std::collections::VecDeque<Option<String>> = match parameters {
            "" => std::collections::VecDeque::new(),
            list => serde_json::from_str(list).ok()?,
        };
        let mut next = || parameters.pop_front().flatten();
        Some(match name {
            "uuid" => Self::Uuid,
            "json" => Self::Json,
            "enum" => Self::Enum,
            "bson" => Self::Bson,
            "variant" => Self::Variant,
            "time" => Self::UtcTime,
            "geometry" => Self::Geometry { crs: next() },
            "geography" => Self::Geography { crs: next(), edges: next() },
            _ => return None,
        })
    }
}

/// The fields with `change` made to them and to all fields within, the innermost first.
#[must_use]
pub fn changed(fields: &Fields, change: &dyn Fn(Field) -> Field) -> Fields {
    fields.iter().map(|field| changed_field(field, change)).collect()
}

fn changed_field(field: &FieldRef, change: &dyn Fn(Field) -> Field) -> FieldRef {
    use DataType::{FixedSizeList, LargeList, LargeListView, List, ListView, Map, RunEndEncoded, Struct};
    let inner = |field: &FieldRef| changed_field(field, change);
    let data_type = match field.data_type() {
        List(item) => List(inner(item)),
        LargeList(item) => LargeList(inner(item)),
        FixedSizeList(item, width) => FixedSizeList(inner(item), *width),
        ListView(item) => ListView(inner(item)),
        LargeListView(item) => LargeListView(inner(item)),
        Struct(parts) => Struct(changed(parts, change)),
        Map(entries, sorted) => Map(inner(entries), *sorted),
        RunEndEncoded(ends, value) => RunEndEncoded(Arc::clone(ends), inner(value)),
        other => other.clone(),
    };
    Arc::new(change(field.as_ref().clone().with_data_type(data_type)))
}

/// Marks fields as what their source states, where that makes a difference: JSON text and columns without values.
#[must_use]
pub fn stated(fields: &Fields) -> Fields {
    changed(fields, &as_stated)
}

/// Marks one field as what its source states.
pub(super) fn as_stated(field: Field) -> Field {
    if !matches!(field.data_type(), DataType::Null) && !super::is_json(&field) {
        return field;
    }
    let marks = field.metadata().clone().with(STATED, "");
    field.with_metadata(marks)
}

/// Whether the source of a column states what it is.
pub(super) fn is_stated(field: &Field) -> bool {
    field.metadata().contains_key(STATED)
}

/// The metadata that a field keeps in its plain form, whose type is `plain`: what its values mean, and extensions.
pub(super) fn kept_marks(field: &Field, plain: &DataType) -> Metadata {
    let given = field.data_type();
    let known = Logical::of(field).is_some_and(|logical| logical.fits(plain));
    let same_storage = std::mem::discriminant(given) == std::mem::discriminant(plain);
    let keeps = |key: &str, value: &str| match key {
        STATED => true,
        LOGICAL => known || value == NOTHING,
        EXTENSION_NAME => known || same_storage,
        // Some writers say that there are no parameters, others say nothing.
        EXTENSION_METADATA => !value.is_empty() && (known || same_storage),
        _ => false,
    };
    field
        .metadata()
        .iter()
        .filter(|(key, value)| keeps(key, value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The metadata that the values of both fields share, once they have the type `united`.
pub(super) fn united_marks(a: &Field, b: &Field, united: &DataType) -> Metadata {
    let of = |field: &Field| kept_marks(field, united);
    match (a.data_type(), b.data_type()) {
        (DataType::Null, DataType::Null) => of(a).into_iter().chain(of(b)).collect(),
        (DataType::Null, _) => of(b),
        (_, DataType::Null) => of(a),
        (one, other) => {
            let (left, right) = (Logical::of(a), Logical::of(b));
            let same_meaning = left == right && left.as_ref().is_none_or(|logical| logical.fits(united));
            // The parts of a variant belong together: with other types they mean nothing.
            let whole = |parts| left != Some(Logical::Variant) || is_part_of(parts, united);
            if !same_meaning || !whole(one) || !whole(other) {
                return Metadata::default();
            }
            let (ours, theirs) = (of(a), of(b));
            let mut marks: Metadata = ours.into_iter().filter(|(key, value)| theirs.get(key) == Some(value)).collect();
            if let Some(logical) = left
                && Logical::of(&Field::new("", united.clone(), true).with_metadata(marks.clone())).as_ref()
                    != Some(&logical)
            {
                marks = logical.mark(Field::new("", united.clone(), true)).metadata().clone();
            }
            marks
        }
    }
}

/// Whether a struct has the fields of another, of equal types.
fn is_part_of(one: &DataType, all: &DataType) -> bool {
    let (DataType::Struct(one), DataType::Struct(all)) = (one, all) else { return false };
    one.iter()
        .all(|part| all.find(part.name()).is_some_and(|(_, other)| other.data_type().equals_datatype(part.data_type())))
}

/// Takes off the marks that are for this program alone.
#[must_use]
pub fn published(fields: &Fields) -> Fields {
    changed(fields, &|field| {
        let mut marks = field.metadata().clone();
        marks.retain(|key, _| key != LOGICAL && key != STATED);
        field.with_metadata(marks)
    })
}
