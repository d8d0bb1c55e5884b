//! Before anything is written: what the inputs are, which columns they have together, and whether all of it will work.

use std::{collections::BTreeMap, sync::Arc};

use arrow::datatypes::{DataType, Field, Fields};

use super::{Conversion, OnSchema};
use crate::{
    codec::Codec,
    error::{Error, Result},
    exec::{encode::SourceName, gather::SourceFacts},
    format::{
        OutputFormat,
        csv::CsvOptions,
        files::{self, FileEntry, SampleFiles},
        json::JsonOptions,
        parquet::schema_of_samples,
    },
    plan::memory::MemoryPlan,
    record::key::escape_key,
    scan::{Input, InputFormat, RecordSource, SniffOptions, SourceFile, classify},
    schema::{self, unite_lists},
    units::Size,
};

/// The inputs, ready to be read.
pub(super) enum Prepared {
    Records { sources: Vec<RecordSource>, fields: Fields },
    Samples { files: Vec<SourceFile>, entries: Vec<FileEntry>, samples: Vec<SampleFiles> },
}

impl Conversion<'_> {
    pub(super) fn prepare(&mut self, fresh: Vec<SourceFile>) -> Result<Prepared> {
        let pinned: Vec<String> = self.options.types.iter().map(|(name, _)| name.clone()).collect();
        let sniff = SniffOptions {
            from: self.options.from,
            csv: CsvOptions {
                delimiter: self.options.delimiter,
                has_header: !self.options.no_header,
                null: self.options.null.clone(),
                pinned: pinned.clone(),
                ..CsvOptions::default()
            },
            json: JsonOptions { pinned, ..JsonOptions::default() },
        };
        let prepared = match classify(fresh, &sniff)? {
            Input::Records(sources) => {
                let fields: Vec<Fields> = sources
                    .iter()
                    .map(|s| s.sample.as_ref().map_or_else(Fields::empty, |split| s.reader.infer(split)))
                    .collect();
                self.check_same_columns(&sources, &fields)?;
                let fields = self.united(&fields);
                Prepared::Records { sources, fields }
            }
            Input::Files(files) => {
                let entries: Vec<FileEntry> = files
                    .iter()
                    .zip(0..)
                    .map(|(f, source)| FileEntry { path: f.name.clone(), bytes: f.bytes(), source })
                    .collect();
                let samples = files::group(&entries);
                Prepared::Samples { files, entries, samples }
            }
        };
        if self.options.to.is_none() && self.snapshot.is_none() && matches!(prepared, Prepared::Samples { .. }) {
            self.settings.shard_format = OutputFormat::Tar;
            self.settings.codec = self.options.codec.unwrap_or(Codec::None);
        }
        if matches!(prepared, Prepared::Samples { .. })
            && (!self.options.id.is_empty() || self.options.subject.is_some())
        {
            return Err(Error::usage("expected tables for --id and --subject, found files")
                .hint("the record id of a sample is its key; leave both options out"));
        }
        Ok(prepared)
    }

    pub(super) fn united(&self, fields: &[Fields]) -> Fields {
        let united = fields.iter().fold(Fields::empty(), |all, fields| unite_lists(&all, fields));
        let is_id = |name: &String| self.settings.id.contains(name) || self.settings.subject.as_ref() == Some(name);
        let plain = |t: &DataType| matches!(t, DataType::Int64 | DataType::Utf8 | DataType::Null);
        let pin = |field: &Arc<Field>| match self.options.types.iter().find(|(name, _)| name == field.name()) {
            Some((name, data_type)) => Arc::new(Field::new(name, data_type.clone(), true)),
            // The text of an id must survive: `1.50` as a number would be found as `1.5` only.
            None if is_id(field.name()) && schema::is_scalar(field.data_type()) && !plain(field.data_type()) => {
                Arc::new(Field::new(field.name(), DataType::Utf8, true))
            }
            None => Arc::clone(field),
        };
        united.iter().map(pin).collect()
    }

    fn check_same_columns(&self, sources: &[RecordSource], fields: &[Fields]) -> Result<()> {
        let names = |fields: &Fields| fields.iter().map(|f| f.name().clone()).collect::<Vec<_>>();
        if self.options.on_schema == OnSchema::Fail
            && let Some(other) = fields.iter().position(|f| names(f) != names(&fields[0]))
        {
            return Err(Error::input(format!(
                "expected the columns {}, as in {}, found {}",
                names(&fields[0]).join(", "),
                sources[0].file.uri,
                names(&fields[other]).join(", ")
            ))
            .at(sources[other].file.uri.clone())
            .hint("unite columns by name with --on-schema union"));
        }
        let columns: Vec<String> = fields.iter().flat_map(names).collect();
        let wanted = self.settings.id.iter().chain(&self.settings.subject);
        for column in wanted.chain(self.options.types.iter().map(|(name, _)| name)) {
            // JSON may have a field that the sample does not show.
            let hidden = sources.iter().any(|s| s.format != InputFormat::Csv) || columns.is_empty();
            if !columns.contains(column) && !hidden {
                return Err(Error::usage("no source has this column")
                    .column(column.clone())
                    .hint(format!("the columns are {}", columns.join(", "))));
            }
        }
        Ok(())
    }

    /// A file that cannot be held in memory is refused before anything is written.
    pub(super) fn check_sizes(&self, prepared: &Prepared, memory: MemoryPlan) -> Result<()> {
        let Prepared::Samples { files, entries, samples } = prepared else { return Ok(()) };
        for sample in samples {
            let bytes: u64 = sample.files.iter().map(|i| entries[*i].bytes).sum();
            if bytes > memory.max_record_bytes {
                let uri = sample.files.first().map_or_else(String::new, |i| files[*i].uri.clone());
                return Err(Error::input(format!(
                    "expected samples of at most {}, found one of {}",
                    Size(memory.max_record_bytes),
                    Size(bytes)
                ))
                .at(uri)
                .hint(
                    "a sample may take an eighth of the memory: raise --memory, or leave the file out with --exclude",
                ));
            }
        }
        Ok(())
    }
}

/// Makes the column that a value did not fit text, or JSON text when it has structure.
pub(super) fn force_text(fields: &Fields, column: &str) -> Fields {
    let top = |field: &Field| {
        field.name() == column || column.strip_prefix(field.name().as_str()).is_some_and(|rest| rest.starts_with('.'))
    };
    fields
        .iter()
        .map(|field| {
            if !top(field) {
                return Arc::clone(field);
            }
            Arc::new(if schema::is_scalar(field.data_type()) && field.data_type() != &DataType::Utf8 {
                Field::new(field.name(), DataType::Utf8, true)
            } else {
                schema::json_field(field.name())
            })
        })
        .collect()
}

/// Names of sources and of the keys of their rows: the name without extension where that is unique.
pub(super) fn source_facts(sources: &[RecordSource]) -> Vec<SourceFacts> {
    let stem = |name: &str| files::split_key(name).0.to_owned();
    let mut stems: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources {
        *stems.entry(stem(&source.file.name)).or_default() += 1;
    }
    sources
        .iter()
        .map(|source| {
            let name = source.file.name.clone();
            let short = stem(&name);
            let key = escape_key(if stems.get(&short) == Some(&1) { &short } else { &name });
            let columns = source.reader.columns().map(<[String]>::to_vec);
            SourceFacts { name: Arc::new(SourceName { name, key, columns }), file: source.file.clone() }
        })
        .collect()
}

pub(super) fn columns(prepared: &Prepared) -> Vec<(String, String)> {
    let fields = match prepared {
        Prepared::Records { fields, .. } => schema::settle(fields),
        Prepared::Samples { entries, samples, .. } => {
            schema_of_samples(&files::column_names(samples, entries)).fields().clone()
        }
    };
    fields
        .iter()
        .map(|f| (f.name().clone(), if schema::is_json(f) { "json".to_owned() } else { f.data_type().to_string() }))
        .collect()
}
