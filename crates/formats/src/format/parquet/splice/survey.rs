//! Reads the footers of all inputs and determines the form of the output.
//!
//! If all files have one schema, the output has it too, including the names of lists, ids of fields and types that
//! Arrow does not know, so all row groups fit unchanged. If schemas differ, or columns have types that other readers
//! treat as plain numbers, the output has the schema that Arrow derives from their union. Key-value metadata on which
//! all files agree is kept, and so is the sort order, if bounds show that each row group continues the previous one.

use std::{collections::BTreeSet, sync::Arc};

use ::parquet::{
    arrow::ARROW_SCHEMA_META_KEY,
    file::metadata::{RowGroupMetaData, SortingColumn},
    schema::types::{SchemaDescriptor, TypePtr},
};
use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use serde_json::Value;

use super::{
    super::{
        encode::ParquetEncoder,
        logical::storable_fields,
        open::{exact_in_floats, open_fields},
    },
    Source,
    bounds::{Bounded, ComparisonOrder, bounds_of},
};
use crate::{
    codec::Codec,
    error::Result,
    record::widen::try_cast_to,
    schema::{bound::can_merge, schema_of, settle_fields, unite_fields, unite_lists},
};

/// Findings so far.
#[derive(Debug, Default)]
pub struct Survey {
    seen: Option<SurveyState>,
    decodes: bool,
    /// Types that columns get, where these hold all values.
    types: Fields,
    /// Columns of integers of which float64 may not hold all.
    inexact: BTreeSet<String>,
}

#[derive(Debug)]
struct SurveyState {
    root: TypePtr,
    /// Whether all files have this root.
    same_root: bool,
    /// The fields of the first file.
    fields: Fields,
    /// Whether all files have these fields.
    same_fields: bool,
    /// The united fields, in which texts without any value have no type.
    united: Fields,
    /// The serialised Arrow schema, if all files agree on it.
    hint: Option<Option<String>>,
    metadata: Vec<(String, String)>,
    /// Columns with values that the types of [`storable_fields`] cannot represent.
    unstorable: BTreeSet<String>,
    /// Sort order of all row groups, individually and in sequence.
    sorting: Sorting,
}

/// The row groups' declared sort order, and whether it holds across them.
#[derive(Debug)]
enum Sorting {
    /// No row group was read yet.
    Unknown,
    /// Sorted by these columns; the edge describes the end of the last row group.
    By(Vec<SortingColumn>, Option<Edge>),
    /// Not sorted, or unknown.
    Not,
}

/// Known bounds of a row group in its first sort column.
#[derive(Debug, Clone)]
struct Edge {
    least: Vec<u8>,
    greatest: Vec<u8>,
    has_nulls: bool,
}

impl Edge {
    fn from_group(group: &RowGroupMetaData, by: &SortingColumn, order: ComparisonOrder) -> Option<Self> {
        let chunk = group.columns().get(usize::try_from(by.column_idx).ok()?)?;
        let statistics = chunk.statistics()?;
        let numbers = order != ComparisonOrder::Float || statistics.nan_count_opt() == Some(0);
        if chunk.column_descr().max_rep_level() > 0 || !numbers {
            return None;
        }
        let Bounded::Within((least, _), (greatest, _)) = bounds_of(chunk, order) else { return None };
        Some(Self { least, greatest, has_nulls: statistics.null_count_opt()? > 0 })
    }

    /// Returns whether all values of `next` follow these. If some may be equal, the other sort columns would decide,
    /// whose values are not known.
    fn comes_before(&self, next: &Self, by: &SortingColumn, only: bool, order: ComparisonOrder) -> bool {
        let nulls = if by.nulls_first { next.has_nulls } else { self.has_nulls };
        let compared = if by.descending {
            order.compare(&next.greatest, &self.least)
        } else {
            order.compare(&self.greatest, &next.least)
        };
        !nulls && (compared.is_lt() || (compared.is_eq() && only))
    }
}

impl Sorting {
    fn add_group(&mut self, group: &RowGroupMetaData) {
        if group.num_rows() == 0 || matches!(self, Self::Not) {
            return;
        }
        let Some((found, by)) = group.sorting_columns().and_then(|found| Some((found, found.first()?))) else {
            *self = Self::Not;
            return;
        };
        let column = usize::try_from(by.column_idx).ok().and_then(|number| group.columns().get(number));
        let order =
            column.map_or(ComparisonOrder::Undefined, |chunk| ComparisonOrder::for_column(chunk.column_descr()));
        let next = Edge::from_group(group, by, order);
        let follows = match (&*self, &next) {
            (Self::By(before, Some(last)), Some(next)) => {
                before == found && last.comes_before(next, by, found.len() == 1, order)
            }
            (Self::By(..), _) => false,
            _ => true,
        };
        *self = if follows { Self::By(found.clone(), next) } else { Self::Not };
    }
}

/// Returns the names of the columns with values that the types of [`storable_fields`] cannot represent. Only files of
/// other programs can have such columns.
fn unstorable_columns(source: &Source) -> Result<BTreeSet<String>> {
    let fields = source.schema()?.fields();
    let mut names = BTreeSet::new();
    for (field, storable) in fields.iter().zip(&storable_fields(fields)).filter(|(field, storable)| field != storable) {
        let schema = Arc::new(Schema::new(vec![Arc::clone(storable)]));
        for (group, size) in source.row_groups().iter().enumerate() {
            for batch in source.decode_field(group, 0..size.rows, field.name())? {
                if try_cast_to(&batch, &schema)?.is_err() {
                    names.insert(field.name().clone());
                }
            }
        }
    }
    Ok(names)
}

/// Returns the description of a table of pandas without an index that is a range of numbers, if it has one: the range
/// is that of the file, and readers would give other rows its numbers, or fail because there are more rows. The
/// serialised
/// Arrow schema has the same description, so it cannot be kept then.
fn without_range(key: &str, value: &str) -> Option<String> {
    let mut described: Value = (key == "pandas").then(|| serde_json::from_str(value).ok())??;
    let indexes = described.get_mut("index_columns")?.as_array_mut()?;
    let before = indexes.len();
    indexes.retain(|index| index.get("kind").is_none_or(|kind| kind != "range"));
    (indexes.len() < before).then(|| described.to_string())
}

impl Survey {
    /// Adds a file to the survey.
    ///
    /// # Errors
    /// When its schema cannot be read.
    pub fn add_source(&mut self, source: &Source) -> Result<()> {
        let of_floats = self.types.iter().filter(|field| *field.data_type() == DataType::Float64);
        let inexact = of_floats.filter(|field| !exact_in_floats(&source.metadata, field.name()));
        self.inexact.extend(inexact.map(|field| field.name().clone()));
        let file = source.metadata.file_metadata();
        let (mut hint, mut metadata, mut has_range) = (None, Vec::new(), false);
        for entry in file.key_value_metadata().into_iter().flatten() {
            let value = entry.value.clone().unwrap_or_default();
            let value = match without_range(&entry.key, &value) {
                Some(changed) => {
                    has_range = true;
                    changed
                }
                None => value,
            };
            if entry.key == ARROW_SCHEMA_META_KEY {
                hint = Some(value)
            } else {
                metadata.push((entry.key.clone(), value))
            }
        }
        let root = file.schema_descr().root_schema_ptr();
        let Some(seen) = &mut self.seen else {
            let fields = source.schema()?.fields().clone();
            let (same_root, same_fields) = (true, true);
            let mut sorting = Sorting::Unknown;
            source.metadata.row_groups().iter().for_each(|group| sorting.add_group(group));
            let (hint, unstorable) = (Some(hint).filter(|_| !has_range), unstorable_columns(source)?);
            let united = open_fields(&fields, &source.metadata);
            let seen =
                SurveyState { root, same_root, fields, same_fields, united, hint, metadata, unstorable, sorting };
            self.seen = Some(seen);
            return Ok(());
        };
        seen.unstorable.append(&mut unstorable_columns(source)?);
        let same = root.get_fields() == seen.root.get_fields();
        seen.same_root &= same;
        // The unit of INT96 timestamps follows from their values.
        if !same || seen.hint.as_ref() != Some(&hint) || seen.united != seen.fields || source.has_int96() {
            let fields = source.schema()?.fields();
            seen.same_fields &= settle_fields(fields) == settle_fields(&seen.fields);
            let opened = open_fields(fields, &source.metadata);
            if opened != seen.united {
                seen.united = unite_lists(&seen.united, &opened);
            }
        }
        if seen.hint.as_ref() != Some(&hint) || has_range {
            seen.hint = None;
        }
        seen.metadata.retain(|entry| metadata.contains(entry));
        source.metadata.row_groups().iter().for_each(|group| seen.sorting.add_group(group));
        Ok(())
    }

    /// Begins a survey of files whose columns get the types of `types`, where these hold all values.
    pub fn with_types(types: Fields) -> Self {
        Self { types, ..Self::default() }
    }

    /// Returns an encoder for the schema that all files have, byte for byte; `None` if they have several, or if it
    /// cannot be kept.
    ///
    /// # Errors
    /// Those of [`Self::into_encoder`].
    pub fn keeping_encoder(self, codec: Codec) -> Result<Option<ParquetEncoder>> {
        let encoder = self.into_encoder(codec, |_| Vec::new())?;
        Ok(encoder.keeps_schema().then_some(encoder))
    }

    /// Returns the remarks of Spark on which all files agree, such as the calendar of their dates, without its schema.
    pub fn marks_of_spark(&self) -> Vec<(String, String)> {
        let is_mark = |key: &str| key.starts_with("org.apache.spark.") && !key.starts_with("org.apache.spark.sql.");
        let all = self.seen.iter().flat_map(|seen| &seen.metadata);
        all.filter(|(key, _)| is_mark(key)).cloned().collect()
    }

    /// States that some rows are decoded and encoded: the output then has the schema that Arrow derives, because not
    /// every form of another writer can be encoded.
    #[must_use]
    pub fn with_decoded_rows(self) -> Self {
        Self { decodes: true, ..self }
    }

    /// Returns the encoder of the output, which has the metadata `more` unless all inputs have other values for it.
    ///
    /// # Errors
    /// When the schema has no Parquet equivalent.
    pub fn into_encoder(
        self,
        codec: Codec,
        more: impl Fn(&SchemaRef) -> Vec<(String, String)>,
    ) -> Result<ParquetEncoder> {
        let Some(seen) = self.seen else { return ParquetEncoder::new(&schema_of(&Fields::empty()), codec, &[]) };
        let exact = |field: &FieldRef| match field.data_type() {
            DataType::Int64 if !self.inexact.contains(field.name()) => {
                Arc::new(field.as_ref().clone().with_data_type(DataType::Int32))
            }
            _ => Arc::clone(field),
        };
        let of_types = |(field, exact): (&FieldRef, FieldRef)| match self.types.find(field.name()) {
            Some((_, now)) if can_merge(&exact, now) => Arc::new(unite_fields(field, now)),
            _ => Arc::clone(field),
        };
        let retyped: Fields = seen.united.iter().map(|field| of_types((field, exact(field)))).collect();
        let same_fields = seen.same_fields && retyped == seen.united;
        let fields = if same_fields { &seen.fields } else { &retyped };
        let mut metadata = seen.metadata;
        // Consecutive sorted row groups need not be sorted together, and no reader would detect that.
        let sorting = match seen.sorting {
            Sorting::By(columns, _) => Some(columns),
            _ => None,
        };
        let storable: Fields = storable_fields(fields)
            .iter()
            .zip(fields)
            .map(|(storable, field)| if seen.unstorable.contains(field.name()) { field } else { storable })
            .cloned()
            .collect();
        let same_types =
            storable.iter().zip(fields).all(|(one, other)| one.data_type().equals_datatype(other.data_type()));
        if seen.same_root && same_fields && same_types && !self.decodes {
            let schema = Arc::new(Schema::new(seen.fields.clone()));
            let leaves = SchemaDescriptor::new(Arc::clone(&seen.root));
            if let Some(encoder) =
                ParquetEncoder::for_kept_schema(&schema, &leaves, codec, &metadata, seen.hint.as_ref(), sorting)?
            {
                return Ok(encoder);
            }
        }
        let schema = schema_of(&storable);
        for entry in more(&schema) {
            if !metadata.iter().any(|(key, _)| *key == entry.0) {
                metadata.push(entry);
            }
        }
        ParquetEncoder::new(&schema, codec, &metadata)
    }
}
