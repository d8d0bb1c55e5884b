//! Looks at the footers of all inputs and says what the output is to be like.
//!
//! Where all files have one schema, the output has it too, down to the names of lists, ids of fields and types that
//! Arrow does not know; so do all row groups fit without a change. Where they differ, and where columns have types that other
//! readers take for bare numbers, the output has the schema that Arrow makes of their union. Key-value metadata on which all agree is kept, and so is the order of their rows, where bounds
//! say that each row group continues the one before.

use std::{collections::BTreeSet, sync::Arc};

use ::parquet::{
    arrow::ARROW_SCHEMA_META_KEY,
    file::metadata::{RowGroupMetaData, SortingColumn},
    schema::types::{SchemaDescriptor, TypePtr},
};
use arrow::datatypes::{Fields, Schema, SchemaRef};

use super::{
    super::{encode::ParquetEncoder, logical::storable_fields},
    Source,
    bounds::{Bounded, Order, bounds_of},
};
use crate::{
    codec::Codec,
    error::Result,
    record::widen::cast_or_unfit,
    schema::{schema_of, unite_lists},
};

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Survey {
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    root: TypePtr,
    /// Whether all files have this root.
    same_root: bool,
    fields: Fields,
    /// Whether all files have these fields.
    same_fields: bool,
    /// Arrow's schema as it is written, if all files agree on it.
    hint: Option<Option<String>>,
    metadata: Vec<(String, String)>,
    /// Columns with values that the types of [`storable_fields`] cannot hold.
    unstorable: BTreeSet<String>,
    /// How all row groups are sorted, alone and one behind the other.
    sorting: Sorting,
}

/// What row groups say of their order, and whether it holds from each to the next.
#[derive(Debug)]
enum Sorting {
    /// None was seen.
    Unknown,
    /// By these columns; the last one ends so.
    By(Vec<SortingColumn>, Option<Edge>),
    /// Not, or nobody knows.
    Not,
}

/// What is known of the values of a row group in the column that it is sorted by first.
#[derive(Debug, Clone)]
struct Edge {
    least: Vec<u8>,
    greatest: Vec<u8>,
    has_nulls: bool,
}

impl Edge {
    fn of(group: &RowGroupMetaData, by: &SortingColumn, order: Order) -> Option<Self> {
        let chunk = group.columns().get(usize::try_from(by.column_idx).ok()?)?;
        let statistics = chunk.statistics()?;
        let numbers = order != Order::Float || statistics.nan_count_opt() == Some(0);
        if chunk.column_descr().max_rep_level() > 0 || !numbers {
            return None;
        }
        let Bounded::Within((least, _), (greatest, _)) = bounds_of(chunk, order) else { return None };
        Some(Self { least, greatest, has_nulls: statistics.null_count_opt()? > 0 })
    }

    /// Whether all values of `next` come after these. Where some may be equal, it is for the other columns to say, whose
    /// values are not known.
    fn comes_before(&self, next: &Self, by: &SortingColumn, only: bool, order: Order) -> bool {
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
    fn add(&mut self, group: &RowGroupMetaData) {
        if group.num_rows() == 0 || matches!(self, Self::Not) {
            return;
        }
        let Some((found, by)) = group.sorting_columns().and_then(|found| Some((found, found.first()?))) else {
            *self = Self::Not;
            return;
        };
        let column = usize::try_from(by.column_idx).ok().and_then(|number| group.columns().get(number));
        let order = column.map_or(Order::Undefined, |chunk| Order::of(chunk.column_descr()));
        let next = Edge::of(group, by, order);
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

/// Names of the columns with values that the types of [`storable_fields`] cannot hold. Only releases that wrote columns in other
/// types, and other programs, have made any that must be looked at.
fn unstorable(source: &Source) -> Result<BTreeSet<String>> {
    let fields = source.schema()?.fields();
    let mut names = BTreeSet::new();
    for (field, storable) in fields.iter().zip(&storable_fields(fields)).filter(|(field, storable)| field != storable) {
        let schema = Arc::new(Schema::new(vec![Arc::clone(storable)]));
        for group in 0..source.row_groups().len() {
            for batch in source.decode(group, field.name())? {
                if cast_or_unfit(&batch, &schema)?.is_err() {
                    names.insert(field.name().clone());
                }
            }
        }
    }
    Ok(names)
}

impl Survey {
    /// Looks at one more file.
    ///
    /// # Errors
    /// When its schema cannot be read.
    pub fn add(&mut self, source: &Source) -> Result<()> {
        let file = source.metadata.file_metadata();
        let (mut hint, mut metadata) = (None, Vec::new());
        for entry in file.key_value_metadata().into_iter().flatten() {
            let value = entry.value.clone().unwrap_or_default();
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
            source.metadata.row_groups().iter().for_each(|group| sorting.add(group));
            let (hint, unstorable) = (Some(hint), unstorable(source)?);
            let seen = Seen { root, same_root, fields, same_fields, hint, metadata, unstorable, sorting };
            self.seen = Some(seen);
            return Ok(());
        };
        seen.unstorable.append(&mut unstorable(source)?);
        let same = root.get_fields() == seen.root.get_fields();
        seen.same_root &= same;
        if !same || seen.hint.as_ref() != Some(&hint) {
            let fields = source.schema()?.fields();
            seen.same_fields &= *fields == seen.fields;
            if *fields != seen.fields {
                seen.fields = unite_lists(&seen.fields, fields);
            }
        }
        if seen.hint.as_ref() != Some(&hint) {
            seen.hint = None;
        }
        seen.metadata.retain(|entry| metadata.contains(entry));
        source.metadata.row_groups().iter().for_each(|group| seen.sorting.add(group));
        Ok(())
    }

    /// The encoder of the output, which has `more` metadata unless all inputs have other values for it.
    ///
    /// # Errors
    /// When the schema has no Parquet equivalent.
    pub fn encoder(self, codec: Codec, more: impl Fn(&SchemaRef) -> Vec<(String, String)>) -> Result<ParquetEncoder> {
        let Some(seen) = self.seen else { return ParquetEncoder::new(&schema_of(&Fields::empty()), codec, &[]) };
        let mut metadata = seen.metadata;
        // Sorted row groups behind one another need not be sorted, and nobody would notice.
        let sorting = match seen.sorting {
            Sorting::By(columns, _) => Some(columns),
            _ => None,
        };
        let storable: Fields = storable_fields(&seen.fields)
            .iter()
            .zip(&seen.fields)
            .map(|(storable, field)| if seen.unstorable.contains(field.name()) { field } else { storable })
            .cloned()
            .collect();
        let same_types =
            storable.iter().zip(&seen.fields).all(|(one, other)| one.data_type().equals_datatype(other.data_type()));
        if seen.same_root && seen.same_fields && same_types {
            let schema = Arc::new(Schema::new(seen.fields.clone()));
            let leaves = SchemaDescriptor::new(Arc::clone(&seen.root));
            if let Some(encoder) =
                ParquetEncoder::keeping(&schema, &leaves, codec, &metadata, seen.hint.as_ref(), sorting)?
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
