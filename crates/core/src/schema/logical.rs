//! Logical types: meanings of values beyond their Arrow type, marked in field metadata. Parquet files state them as
//! logical types.
//!
//! ```text
//! uuid        fixed_binary(16)          ARROW:extension:name  arrow.uuid
//! json        text                      ARROW:extension:name  arrow.json
//! others      as `Logical::fits` says   shardify:logical      time(UTC), enum, geometry("EPSG:3857") ...
//! ```
//!
//! Arrow extensions with the same meaning (`geoarrow.wkb`, `arrow.parquet.variant`) are equivalent to our own key. That
//! key is never in a file: it is derived from the Parquet schema when a file is read and removed when one is written.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, Metadata};
use serde_json::Value;

use super::{EXTENSION_METADATA, EXTENSION_NAME, JSON_EXTENSION, WHOLE_MICROS};

/// Field metadata key with the printed form of a [`Logical`] that has no Arrow extension.
const LOGICAL: &str = "shardify:logical";

/// Value of [`LOGICAL`] for values without a logical type.
const NO_LOGICAL: &str = "nothing";

/// Field metadata key of a column whose type its source states: JSON text that becomes plain text when united with
/// text, and columns without values that stay so. It exists only while types are united;
/// [`settle_fields`](super::settle_fields) removes it from columns with values.
pub(super) const STATED: &str = "shardify:stated";

const UUID_EXTENSION: &str = "arrow.uuid";
const WKB_EXTENSION: &str = "geoarrow.wkb";
/// The current name, and the one that was used before it became canonical.
const VARIANT_EXTENSIONS: [&str; 2] = ["arrow.parquet.variant", "parquet.variant"];

/// Default coordinate reference system.
const DEFAULT_CRS: &str = "OGC:CRS84";

/// Default edge interpolation.
const DEFAULT_EDGES: &str = "spherical";

/// The logical type of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logical {
    /// A 16-byte identifier.
    Uuid,
    /// Months, days and milliseconds, as in Parquet's INTERVAL.
    Interval,
    /// A JSON document as text.
    Json,
    /// One of a fixed set of texts.
    Enum,
    /// A BSON document.
    Bson,
    /// A value with its own type, as in Parquet's VARIANT.
    Variant,
    /// A time of day in UTC.
    UtcTime,
    /// A shape on a plane, in WKB.
    Geometry {
        /// Coordinate reference system; `None` is longitude and latitude.
        crs: Option<String>,
    },
    /// A shape on a sphere or ellipsoid, in WKB.
    Geography {
        /// Coordinate reference system; `None` is longitude and latitude.
        crs: Option<String>,
        /// Edge interpolation; `None` is spherical (great circles).
        edges: Option<String>,
    },
}

impl Logical {
    /// Returns the logical type of a field if its metadata states one and its type can store it.
    pub fn from_field(field: &Field) -> Option<Self> {
        let marks = field.metadata();
        let found = match marks.get(LOGICAL) {
            Some(name) => Self::parse(name),
            None => Self::of_extension(marks.get(EXTENSION_NAME)?, marks.get(EXTENSION_METADATA)),
        };
        found.filter(|logical| logical.fits_type(field.data_type()))
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

    /// Whether values of this type can store it.
    pub fn fits_type(&self, data_type: &DataType) -> bool {
        use DataType::{
            Binary, BinaryView, Dictionary, FixedSizeBinary, LargeBinary, LargeUtf8, RunEndEncoded, Struct, Time32,
            Time64, Utf8, Utf8View,
        };
        match (self, data_type) {
            (_, Dictionary(_, value)) => self.fits_type(value),
            (_, RunEndEncoded(_, value)) => self.fits_type(value.data_type()),
            (Self::Uuid, FixedSizeBinary(16)) | (Self::Interval, FixedSizeBinary(12)) => true,
            (Self::Json, Utf8 | LargeUtf8 | Utf8View) => true,
            (Self::Enum | Self::Bson, Binary | LargeBinary | BinaryView) => true,
            (Self::Geometry { .. } | Self::Geography { .. }, Binary | LargeBinary | BinaryView) => true,
            (Self::UtcTime, Time32(_) | Time64(_)) => true,
            (Self::Variant, Struct(parts)) => parts.iter().any(|part| part.name() == "metadata"),
            _ => false,
        }
    }

    /// Returns the field marked with this logical type, in place of any other mark.
    #[must_use]
    pub fn mark_field(&self, field: Field) -> Field {
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

    /// Returns the field marked as having no logical type, whatever its extension is.
    #[must_use]
    pub fn unmark_field(field: Field) -> Field {
        let marks = field.metadata().clone().with(LOGICAL, NO_LOGICAL);
        field.with_metadata(marks)
    }

    /// Prints the logical type as in the mark.
    fn print(&self) -> String {
        let with = |name: &str, parameters: &[&Option<String>]| {
            let known = parameters.iter().rposition(|parameter| parameter.is_some()).map_or(0, |last| last + 1);
            let texts: Vec<Value> = parameters[..known].iter().map(|text| Value::from((*text).clone())).collect();
            if texts.is_empty() { name.to_owned() } else { format!("{name}{}", Value::from(texts)) }
        };
        match self {
            Self::Uuid => "uuid".to_owned(),
            Self::Interval => "interval".to_owned(),
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
            "interval" => Self::Interval,
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

/// Applies `change` to the fields and all nested fields, innermost first.
#[must_use]
pub fn map_fields(fields: &Fields, change: &dyn Fn(Field) -> Field) -> Fields {
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
        Struct(parts) => Struct(map_fields(parts, change)),
        Map(entries, sorted) => Map(inner(entries), *sorted),
        RunEndEncoded(ends, value) => RunEndEncoded(Arc::clone(ends), inner(value)),
        other => other.clone(),
    };
    Arc::new(change(field.as_ref().clone().with_data_type(data_type)))
}

/// Marks fields as stated by their source where that makes a difference: JSON text and columns without values.
#[must_use]
pub fn mark_stated(fields: &Fields) -> Fields {
    map_fields(fields, &as_stated)
}

/// Marks one field as stated by its source.
pub(super) fn as_stated(field: Field) -> Field {
    if !matches!(field.data_type(), DataType::Null) && !super::is_json(&field) {
        return field;
    }
    let marks = field.metadata().clone().with(STATED, "");
    field.with_metadata(marks)
}

/// Whether the source of a column states its type.
pub(super) fn is_stated(field: &Field) -> bool {
    field.metadata().contains_key(STATED)
}

/// Returns the metadata that a field keeps in its plain form, whose type is `plain`: logical types and extensions.
pub(super) fn kept_marks(field: &Field, plain: &DataType) -> Metadata {
    let given = field.data_type();
    let known = Logical::from_field(field).is_some_and(|logical| logical.fits_type(plain));
    let same_storage = std::mem::discriminant(given) == std::mem::discriminant(plain);
    let keeps = |key: &str, value: &str| match key {
        STATED => true,
        WHOLE_MICROS => same_storage,
        LOGICAL => known || value == NO_LOGICAL,
        EXTENSION_NAME => known || same_storage,
        // Some writers state empty parameters, others omit them.
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

/// Returns the metadata that both fields share, once they have the type `united`.
pub(super) fn united_marks(a: &Field, b: &Field, united: &DataType) -> Metadata {
    let of = |field: &Field| kept_marks(field, united);
    match (a.data_type(), b.data_type()) {
        (DataType::Null, DataType::Null) => of(a).into_iter().chain(of(b)).collect(),
        (DataType::Null, _) => of(b),
        (_, DataType::Null) => of(a),
        (one, other) => {
            let (left, right) = (Logical::from_field(a), Logical::from_field(b));
            let same_meaning = left == right && left.as_ref().is_none_or(|logical| logical.fits_type(united));
            // The parts of a variant belong together: with other types they have no meaning.
            let whole = |parts| left != Some(Logical::Variant) || is_part_of(parts, united);
            if !same_meaning || !whole(one) || !whole(other) {
                return Metadata::default();
            }
            let (ours, theirs) = (of(a), of(b));
            let mut marks: Metadata = ours.into_iter().filter(|(key, value)| theirs.get(key) == Some(value)).collect();
            if let Some(logical) = left
                && Logical::from_field(&Field::new("", united.clone(), true).with_metadata(marks.clone())).as_ref()
                    != Some(&logical)
            {
                marks = logical.mark_field(Field::new("", united.clone(), true)).metadata().clone();
            }
            marks
        }
    }
}

/// Whether a struct has all fields of another, with equal types.
fn is_part_of(one: &DataType, all: &DataType) -> bool {
    let (DataType::Struct(one), DataType::Struct(all)) = (one, all) else { return false };
    one.iter()
        .all(|part| all.find(part.name()).is_some_and(|(_, other)| other.data_type().equals_datatype(part.data_type())))
}

/// Replaces Parquet's intervals by Arrow's, which have a text form of their own type.
#[must_use]
pub fn with_open_intervals(fields: &Fields) -> Fields {
    map_fields(fields, &|field| match Logical::from_field(&field) {
        Some(Logical::Interval) => {
            Field::new(field.name(), DataType::Interval(IntervalUnit::MonthDayNano), field.is_nullable())
        }
        _ => field,
    })
}

/// Removes the marks that are internal to this program.
#[must_use]
pub fn published_fields(fields: &Fields) -> Fields {
    map_fields(fields, &|field| {
        let mut marks = field.metadata().clone();
        marks.retain(|key, _| key != LOGICAL && key != STATED && key != WHOLE_MICROS);
        field.with_metadata(marks)
    })
}
