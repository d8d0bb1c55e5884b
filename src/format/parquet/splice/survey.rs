//! Looks at the footers of all inputs and says what the output is to be like.
//!
//! Where all files have one schema, the output has it too, down to the names of lists, ids of fields and types that
//! Arrow does not know; so do all row groups fit without a change. Where they differ, the output has the schema that
//! Arrow makes of their union. Key-value metadata on which all agree is kept.

use std::sync::Arc;

use ::parquet::{
    file::metadata::SortingColumn,
    schema::types::{SchemaDescriptor, TypePtr},
};
use arrow::datatypes::{Fields, Schema, SchemaRef};

use super::{super::encode::ParquetEncoder, Source};
use crate::{
    codec::Codec,
    error::Result,
    schema::{schema_of, unite_lists},
};

/// The key of Arrow's schema.
const ARROW_SCHEMA: &str = "ARROW:schema";

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
    /// How all row groups are sorted, if they are, and whether there is but one.
    sorting: Option<Vec<SortingColumn>>,
    groups: usize,
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
            if entry.key == ARROW_SCHEMA { hint = Some(value) } else { metadata.push((entry.key.clone(), value)) }
        }
        let root = file.schema_descr().root_schema_ptr();
        let groups = source.metadata.row_groups();
        let sorting = match groups.split_first() {
            Some((first, rest)) if rest.iter().all(|group| group.sorting_columns() == first.sorting_columns()) => {
                first.sorting_columns().cloned()
            }
            _ => None,
        };
        let Some(seen) = &mut self.seen else {
            let fields = source.schema()?.fields().clone();
            let (same_root, same_fields) = (true, true);
            let (hint, groups) = (Some(hint), groups.len());
            self.seen = Some(Seen { root, same_root, fields, same_fields, hint, metadata, sorting, groups });
            return Ok(());
        };
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
        if seen.sorting != sorting {
            seen.sorting = None;
        }
        seen.groups += groups.len();
        Ok(())
    }

    /// The encoder of the output, which has `more` metadata unless all inputs have other values for it.
    ///
    /// # Errors
    /// When the schema has no Parquet equivalent.
    pub fn encoder(self, codec: Codec, more: impl Fn(&SchemaRef) -> Vec<(String, String)>) -> Result<ParquetEncoder> {
        let Some(seen) = self.seen else { return ParquetEncoder::new(&schema_of(&Fields::empty()), codec, &[]) };
        let mut metadata = seen.metadata;
        // Sorted row groups behind one another are not sorted, and nobody would notice.
        let sorting = seen.sorting.filter(|_| seen.groups == 1);
        if seen.same_root && seen.same_fields {
            let schema = Arc::new(Schema::new(seen.fields.clone()));
            let leaves = SchemaDescriptor::new(Arc::clone(&seen.root));
            if let Some(encoder) =
                ParquetEncoder::keeping(&schema, &leaves, codec, &metadata, seen.hint.as_ref(), sorting)?
            {
                return Ok(encoder);
            }
        }
        let schema = schema_of(&seen.fields);
        for entry in more(&schema) {
            if !metadata.iter().any(|(key, _)| *key == entry.0) {
                metadata.push(entry);
            }
        }
        ParquetEncoder::new(&schema, codec, &metadata)
    }
}
