//! Columns of batches: which a dataset has, and which of them are loaded.
//!
//! | format | columns |
//! |---|---|
//! | tar | `__key__`, and for each extension the bytes of the file; null where a record has none |
//! | TFRecord | `record`, the serialised example |
//! | Parquet | the columns of the table, decoded |

use std::{collections::BTreeSet, sync::Arc};

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::error::{Error, Result};

/// Name of the column of keys.
pub(super) const KEY: &str = "__key__";
/// Name of the column of serialised examples.
const RECORD: &str = "record";

/// Columns of a framed format, and where their bytes are in a record.
#[derive(Debug, Clone)]
pub(super) struct PartColumns {
    /// Extension of each column; empty for that of keys.
    extensions: Vec<Vec<u8>>,
    /// Number of the column of keys, if it is loaded.
    pub(super) key: Option<usize>,
    /// Whether a file with another extension is an error, because all columns are loaded.
    pub(super) complete: bool,
}

impl PartColumns {
    /// Returns the number of columns.
    pub(super) fn len(&self) -> usize {
        self.extensions.len()
    }

    /// Returns the column of an extension; `near` is a guess.
    pub(super) fn column_of(&self, extension: &[u8], near: usize) -> Option<usize> {
        if extension.is_empty() {
            return None;
        }
        if self.extensions.get(near).is_some_and(|known| known == extension) {
            return Some(near);
        }
        self.extensions.iter().position(|known| known == extension)
    }
}

/// What is loaded, and how records become columns.
#[derive(Debug, Clone)]
pub(super) enum Layout {
    /// Files of samples in a tar.
    Parts(PartColumns),
    /// Serialised examples.
    Examples,
    /// Columns of a table. The flag says whether these are all columns.
    Rows(bool),
}

/// The columns of batches.
#[derive(Debug, Clone)]
pub(super) struct LoadColumns {
    pub(super) schema: SchemaRef,
    pub(super) layout: Layout,
}

impl LoadColumns {
    /// Returns the columns of samples whose files have these extensions.
    pub(super) fn of_parts(known: &BTreeSet<String>, chosen: Option<&[String]>) -> Result<Self> {
        let all = std::iter::once(KEY).chain(known.iter().map(String::as_str));
        let names = choose_names(&all.collect::<Vec<_>>(), chosen)?;
        let field = |name: &String| match name.as_str() {
            KEY => Field::new(name, DataType::Utf8, false),
            _ => Field::new(name, DataType::LargeBinary, true),
        };
        let key = names.iter().position(|name| name == KEY);
        let extension = |name: &String| if name == KEY { Vec::new() } else { name.clone().into_bytes() };
        let extensions = names.iter().map(extension).collect();
        let layout = Layout::Parts(PartColumns { extensions, key, complete: chosen.is_none() });
        Ok(Self { schema: Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>())), layout })
    }

    /// Returns the column of serialised examples.
    pub(super) fn of_examples(chosen: Option<&[String]>) -> Result<Self> {
        choose_names(&[RECORD], chosen)?;
        let fields = vec![Field::new(RECORD, DataType::LargeBinary, false)];
        Ok(Self { schema: Arc::new(Schema::new(fields)), layout: Layout::Examples })
    }

    /// Returns columns of a table.
    pub(super) fn of_rows(fields: &[FieldRef], chosen: Option<&[String]>) -> Result<Self> {
        let all: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let names = choose_names(&all, chosen)?;
        // Other shards may lack a column.
        let field = |name: &String| {
            let found = fields.iter().find(|field| field.name() == name);
            found.map(|field| field.as_ref().clone().with_nullable(true))
        };
        let schema = Schema::new(names.iter().filter_map(field).collect::<Vec<_>>());
        Ok(Self { schema: Arc::new(schema), layout: Layout::Rows(chosen.is_none()) })
    }
}

/// Returns the names of the columns that are loaded.
fn choose_names(all: &[&str], chosen: Option<&[String]>) -> Result<Vec<String>> {
    let Some(chosen) = chosen else { return Ok(all.iter().map(|name| (*name).to_owned()).collect()) };
    if chosen.is_empty() {
        return Err(Error::usage("expected one column or more, found none"));
    }
    for (at, name) in chosen.iter().enumerate() {
        if !all.contains(&name.as_str()) {
            let known = all.join(", ");
            return Err(Error::usage(format!("expected columns among {known}, found `{name}`")));
        }
        if chosen.iter().take(at).any(|earlier| earlier == name) {
            return Err(Error::usage(format!("expected each column once, found `{name}` twice")));
        }
    }
    Ok(chosen.to_vec())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn columns_are_chosen_by_name() {
        let known: BTreeSet<String> = ["cls", "jpg"].map(str::to_owned).into();
        let names = |columns: &LoadColumns| {
            columns.schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&LoadColumns::of_parts(&known, None).unwrap()), "__key__ cls jpg");
        let chosen = ["jpg", "__key__"].map(str::to_owned);
        let columns = LoadColumns::of_parts(&known, Some(&chosen)).unwrap();
        assert_eq!(names(&columns), "jpg __key__");
        let Layout::Parts(parts) = columns.layout else { panic!("expected parts") };
        assert_eq!((parts.key, parts.column_of(b"jpg", 7), parts.column_of(b"cls", 0)), (Some(1), Some(0), None));
        assert_eq!(parts.column_of(b"", 0), None);
        for wrong in [&["png"][..], &[], &["jpg", "jpg"]] {
            let wrong: Vec<String> = wrong.iter().map(|name| (*name).to_owned()).collect();
            assert!(LoadColumns::of_parts(&known, Some(&wrong)).is_err());
        }
        assert!(LoadColumns::of_examples(Some(&chosen)).is_err());
    }
}
