//! Adds columns for partition folders `key=value` in the paths of sources, as Hive, Spark and DuckDB write them.
//!
//! ```text
//! events/dt=2026-11-01/site=A%2FB/part-0.csv     dt date 2026-11-01, site text A/B
//! ```
//!
//! Such a folder counts if it is below the user's source, or directly above it in an unbroken sequence of such folders.
//! All values of a key have one type: whole numbers, dates or text. If a source itself has a column of that name, its
//! own column is used.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, StringArray, UInt32Array, new_null_array},
    compute::{CastOptions, cast_with_options, take},
    datatypes::{DataType, Field, Fields, Schema, SchemaRef},
};
use percent_encoding::percent_decode_str;

use super::{
    RecordSource, SourceFile,
    selected::{column_of, of_columns},
};
use crate::{
    error::{Error, Result},
    format::{
        Parsed, RecordReader,
        adapted::{Adapted, Adapter},
    },
    record::{
        Payload, SourceRange,
        filter::{ColumnBounds, GroupBounds, RowBounds},
    },
    schema::unite_lists,
};

/// Hive's folder value for rows without a value.
const NONE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Keys and values of the folders of a path; `None` for a missing value.
type Folders = Vec<(String, Option<String>)>;

/// Returns the folders `key=value` above a source; none of a data file of a table, whose log states its values.
pub fn folders_of(file: &SourceFile) -> Folders {
    if file.table_file().is_some() {
        return Folders::new();
    }
    let (uri, name) = (file.uri(), file.name());
    let above = uri.strip_suffix(name).unwrap_or_default().trim_end_matches('/');
    let mut outer: Vec<&str> = above.rsplit('/').take_while(|folder| key_and_value(folder).is_some()).collect();
    outer.reverse();
    let inner = name.rsplit_once('/').map_or("", |(folders, _)| folders);
    distinct_keys(outer.into_iter().chain(inner.split('/')))
}

/// Returns the folders `key=value` in a path.
pub fn folders_in(path: &str) -> Folders {
    distinct_keys(path.rsplit_once('/').map_or("", |(folders, _)| folders).split('/'))
}

/// Returns keys and values of folders; the last value of a key counts.
fn distinct_keys<'a>(folders: impl Iterator<Item = &'a str>) -> Folders {
    let mut out: Folders = Vec::new();
    for (key, value) in folders.filter_map(key_and_value) {
        match out.iter_mut().find(|(known, _)| *known == key) {
            Some(known) => known.1 = value,
            None => out.push((key, value)),
        }
    }
    out
}

fn key_and_value(folder: &str) -> Option<(String, Option<String>)> {
    let (key, value) = folder.split_once('=').filter(|(key, _)| !key.is_empty())?;
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let value = (!value.is_empty() && value != NONE).then(|| decoded(value));
    Some((decoded(key), value))
}

/// Adds the columns of their folders to sources.
pub fn with_partitions(sources: Vec<RecordSource>) -> Vec<RecordSource> {
    let folders: Vec<Folders> = sources.iter().map(|source| folders_of(&source.file)).collect();
    let mut types: BTreeMap<&str, DataType> = BTreeMap::new();
    for (key, value) in folders.iter().flatten() {
        let Some(value) = value else { continue };
        let found = type_of(value);
        let known = types.entry(key).or_insert_with(|| found.clone());
        if *known != found {
            *known = DataType::Utf8;
        }
    }
    let field = |key: &str| Field::new(key, types.get(key).cloned().unwrap_or(DataType::Null), true);
    let partition_columns: Vec<Vec<(Field, Option<String>)>> = folders
        .iter()
        .map(|folders| folders.iter().map(|(key, value)| (field(key), value.clone())).collect())
        .collect();
    sources
        .into_iter()
        .zip(partition_columns)
        .map(|(source, partition_columns)| with_columns(source, partition_columns))
        .collect()
}

fn with_columns(mut source: RecordSource, mut partition_columns: Vec<(Field, Option<String>)>) -> RecordSource {
    let own = |name: &String| {
        source.fields.find(name).is_some()
            || source.reader.facts().columns.as_ref().is_some_and(|columns| columns.contains(name))
    };
    partition_columns.retain(|(field, _)| !own(field.name()));
    if partition_columns.is_empty() || source.yields_samples() {
        return source;
    }
    let fields: Fields = partition_columns.iter().map(|(field, _)| field.clone()).collect();
    let names = partition_columns.iter().map(|(field, _)| field.name().clone());
    let mut facts = source.reader.facts().clone();
    if let Some(columns) = &mut facts.columns {
        columns.extend(names);
    }
    source.fields = unite_lists(&source.fields, &fields);
    source.reader = Arc::new(Adapted::new(source.reader, facts, Partition { partition_columns, fields }));
    source
}

/// Infers whole numbers in canonical form, dates, or text.
fn type_of(value: &str) -> DataType {
    match value.parse::<i64>() {
        Ok(number) if number.to_string() == value => DataType::Int64,
        _ if value.len() == 10 && value.parse::<jiff::civil::Date>().is_ok() => DataType::Date32,
        _ => DataType::Utf8,
    }
}

/// Adds the columns that folders state to the rows of a source.
#[derive(Debug)]
struct Partition {
    partition_columns: Vec<(Field, Option<String>)>,
    fields: Fields,
}

impl Partition {
    /// Returns the rows with the columns of `schema`, given those of the source itself.
    fn add_partition_columns(&self, own: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let rows = own.num_rows();
        let column = |field: &Arc<Field>| match self
            .partition_columns
            .iter()
            .find(|(column, _)| column.name() == field.name())
        {
            Some((_, value)) => constant_column(value.as_deref(), field, rows),
            None => column_of(own, field),
        };
        of_columns(schema, schema.fields().iter().map(column).collect::<Result<_>>()?, rows)
    }
}

fn constant_column(value: Option<&str>, field: &Field, rows: usize) -> Result<ArrayRef> {
    let Some(value) = value else { return Ok(new_null_array(field.data_type(), rows)) };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let one = cast_with_options(&StringArray::from(vec![value]), field.data_type(), &options).map_err(|e| {
        Error::input(format!(
            "expected a folder `{}=` with a value of {}, found `{value}`",
            field.name(),
            field.data_type()
        ))
        .in_column(field.name().clone())
        .with_cause(e)
    })?;
    Ok(take(&one, &UInt32Array::from(vec![0; rows]), None)?)
}

impl Adapter for Partition {
    fn bounds<'a>(&'a self, inner: &'a dyn RecordReader, range: &SourceRange) -> Option<RowBounds<'a>> {
        let nothing = |rows| GroupBounds { rows, of_column: Box::new(|_: &str, _: &DataType| None) };
        let inner = match inner.bounds(range) {
            Some(bounds) => bounds,
            None => RowBounds { groups: vec![nothing(range.row_count()?)], deleted: 0 },
        };
        let of_folders = |group: GroupBounds<'a>| GroupBounds {
            rows: group.rows,
            of_column: Box::new(move |name: &str, data_type: &DataType| {
                let Some((_, value)) = self.partition_columns.iter().find(|(column, _)| column.name() == name) else {
                    return (group.of_column)(name, data_type);
                };
                let value = constant_column(value.as_deref(), &Field::new(name, data_type.clone(), true), 1).ok()?;
                Some(ColumnBounds::of_value(&value, group.rows))
            }),
        };
        Some(RowBounds { groups: inner.groups.into_iter().map(of_folders).collect(), ..inner })
    }

    fn infer(&self, inner: &dyn RecordReader, range: &SourceRange) -> Fields {
        unite_lists(&inner.infer(range), &self.fields)
    }

    fn parse(&self, inner: &dyn RecordReader, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let own = |field: &&Arc<Field>| self.partition_columns.iter().all(|(column, _)| column.name() != field.name());
        let fields: Fields = schema.fields().iter().filter(own).cloned().collect();
        let own = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        Ok(match inner.parse(range, &own)? {
            Parsed::Block(mut block) => {
                if let Payload::Rows(batch) = &block.payload {
                    block.payload = Payload::Rows(self.add_partition_columns(batch, schema)?);
                }
                Parsed::Block(block)
            }
            mismatch @ Parsed::Mismatch(_) => mismatch,
        })
    }
}
