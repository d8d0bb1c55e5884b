//! Before anything is written: what the inputs are, which columns they have together, and whether all of it will work.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
};

use arrow::datatypes::{DataType, Field, Fields, SchemaRef};
use bytes::Bytes;

use super::{conversion::Conversion, options::OnSchema};
use crate::{
    array::{outputs, records::ArrayOptions},
    codec::Codec,
    error::{Error, Result},
    events::Event,
    exec::{
        constants,
        convert::opening,
        encode::{RowsAs, SourceName},
        gather::{OnError, SourceFacts},
        subjects::SubjectResolver,
    },
    format::{
        OutputFormat,
        arrays::OpenSources,
        csv::{self, CsvOptions},
        files::{self, Samples},
        json::{self, JsonOptions},
        parquet::{self, schema_of_samples},
    },
    ops::inputs::{Identity, Live},
    plan::memory::MemoryPlan,
    record::{
        key::{escape_key, part_type},
        parts::{KEY_COLUMN, is_table_of_samples},
    },
    scan::{Input, InputFormat, RecordSource, SniffOptions, SourceFile, classify, folders_of, with_partitions},
    schema::{self, print_dims, schema_of, tensor_dims, unite_lists},
    storage,
    units::Size,
};

/// The inputs, ready to be read.
pub(super) enum Prepared {
    Records {
        sources: Vec<RecordSource>,
        fields: Fields,
    },
    /// `fields` are the columns that their parts would be.
    Samples {
        files: Vec<SourceFile>,
        samples: Samples,
        fields: Fields,
        /// Room for the hash of each file, where these are asked for.
        hashes: Vec<AtomicU64>,
    },
}

impl Prepared {
    /// Whether the records are samples rather than rows.
    pub(super) fn gives_samples(&self) -> bool {
        match self {
            Self::Records { sources, .. } => sources.iter().any(RecordSource::gives_samples),
            Self::Samples { .. } => true,
        }
    }

    /// The files to be read.
    pub(super) fn files(&self) -> Box<dyn Iterator<Item = &SourceFile> + '_> {
        match self {
            Self::Records { sources, .. } => Box::new(sources.iter().map(|source| &source.file)),
            Self::Samples { files, .. } => Box::new(files.iter()),
        }
    }

    /// What is the same for all records of arrays, or of the datasets among the sources.
    pub(super) fn constants(&self, live: &[Live]) -> Result<Option<Bytes>> {
        if !live.is_empty() {
            let files: Vec<String> = self.files().map(SourceFile::uri).collect();
            let mut all: Option<Bytes> = None;
            for dataset in live {
                match (&all, dataset.constants(&files)?) {
                    (Some(known), Some(found)) if *known != found => {
                        return Err(Error::input("expected datasets with the same constants, found others")
                            .at(dataset.place())
                            .hint("convert them one by one into datasets of their own"));
                    }
                    (_, Some(found)) => all = Some(found),
                    (_, None) => {}
                }
            }
            if all.is_some() {
                return Ok(all);
            }
        }
        let Self::Records { sources, .. } = self else { return Ok(None) };
        let of_sources = sources.iter().map(|source| (source.file.uri(), source.reader.as_ref()));
        constants::of_sources(of_sources)?.as_ref().map(constants::encoded).transpose()
    }

    /// Types of the columns, as far as they are known.
    pub(super) fn fields(&self) -> &Fields {
        match self {
            Self::Records { fields, .. } | Self::Samples { fields, .. } => fields,
        }
    }
}

/// Sources whose first records stay in memory, for an estimate; those of thousands would take too much of it.
pub(super) const SAMPLES_KEPT: usize = 64;

impl Conversion<'_> {
    pub(super) fn prepare(&mut self, fresh: Vec<SourceFile>) -> Result<Prepared> {
        self.prescribed = self.prescribed_columns()?;
        let sniff = self.sniff_options(fresh.len());
        let remote = fresh.iter().any(SourceFile::is_remote);
        let prepared = match opening(fresh.len(), remote, || classify(fresh, &sniff))?? {
            Input::Records(sources) => self.prepare_records(sources)?,
            Input::Files(mut files) => {
                self.without_erased_files(&mut files);
                let samples = files::group(&files);
                let part = |name: String| Arc::new(Field::new(&name, part_type(&name, b""), true));
                let fields = files::column_names(&files).into_iter().map(part).collect();
                let is_asked = self.options.identity == Identity::Content;
                let hashes = files.iter().filter(|_| is_asked).map(|_| AtomicU64::new(0)).collect();
                Prepared::Samples { files, samples, fields, hashes }
            }
        };
        if prepared.gives_samples() {
            self.refuse_options_of_rows()?;
        }
        if self.options.to.is_none() && self.snapshot.is_none() && prepared.gives_samples() {
            self.settings.shard_format = OutputFormat::Tar;
            self.settings.codec = self.options.codec.unwrap_or(Codec::None);
        }
        Ok(prepared)
    }

    /// How the formats of so many sources are told, and what is known of them beforehand.
    fn sniff_options(&self, sources: usize) -> SniffOptions {
        let pinned = self.given_columns();
        SniffOptions {
            from: self.options.from,
            encoding: self.options.encoding,
            csv: CsvOptions {
                delimiter: self.options.delimiter,
                has_header: !self.options.no_header,
                null: self.options.null.clone(),
                pinned: pinned.clone(),
                ..CsvOptions::default()
            },
            json: JsonOptions { pinned, ..JsonOptions::default() },
            arrays: ArrayOptions {
                coded: self.settings.shard_format == OutputFormat::Parquet,
                ..self.options.arrays.clone()
            },
            binary: self.given_binary(),
            open: Arc::new(OpenSources::within(self.context.memory.0)),
            keep_going: self.options.on_error != OnError::Fail,
            sources,
            samples: Some(SAMPLES_KEPT),
        }
    }

    /// Unites the columns of sources of records.
    fn prepare_records(&mut self, mut sources: Vec<RecordSource>) -> Result<Prepared> {
        self.without_erased_sources(&mut sources);
        let sources = self.with_partitions(sources);
        let fields: Vec<Fields> = sources.iter().map(|source| source.fields.clone()).collect();
        self.check_same_columns(&sources, &fields)?;
        refuse_conflicts(&sources, &fields, &self.options.types)?;
        self.check_given_types(&sources)?;
        let fields = self.united(&fields, &sources);
        let shapeless = fields.iter().find(|field| schema::variable_rank(field).is_some());
        if let Some(field) = shapeless.filter(|_| self.options.tensor_lists) {
            let dims = tensor_dims(field).unwrap_or_default();
            return Err(Error::usage(format!(
                "expected tensors of one shape for --tensors lists, found the shape {}",
                print_dims(&dims)
            ))
            .column(field.name())
            .hint("leave --tensors out: bytes have their shape beside them"));
        }
        Ok(Prepared::Records { sources, fields })
    }

    /// Fails where samples were found and an option is for rows.
    fn refuse_options_of_rows(&self) -> Result<()> {
        if self.prescribed.is_some() {
            return Err(Error::usage("expected rows for --schema, found samples").hint("leave --schema out"));
        }
        if self.options.hive_columns {
            return Err(
                Error::usage("expected tables for --hive-columns, found samples").hint("leave --hive-columns out")
            );
        }
        if !self.options.id.is_empty() || self.options.subject.is_some() {
            return Err(Error::usage("expected tables for --id and --subject, found samples")
                .hint("the record id of a sample is its key; leave both options out")
                .hint("give samples subject ids with --subject-from-path or --subject-table"));
        }
        Ok(())
    }

    /// Sources with the columns that their folders say, if they are wanted.
    fn with_partitions(&self, sources: Vec<RecordSource>) -> Vec<RecordSource> {
        if self.options.hive_columns {
            return with_partitions(sources);
        }
        let unused = sources.iter().filter(|source| !source.gives_samples()).find_map(|source| {
            let folders = folders_of(&source.file);
            folders.into_iter().map(|(key, _)| key).find(|key| source.fields.find(key).is_none())
        });
        if let Some(key) = unused {
            let note = format!("folders such as `{key}=` make no columns; --hive-columns makes them");
            self.context.observer.event(Event::Note(note));
        }
        sources
    }

    pub(super) fn united(&self, fields: &[Fields], sources: &[RecordSource]) -> Fields {
        let storable = |fields: Fields| match self.settings.shard_format {
            OutputFormat::Parquet => parquet::storable_fields(&fields),
            OutputFormat::Tar | OutputFormat::TfRecord => fields,
        };
        if let Some(prescribed) = &self.prescribed {
            return storable(prescribed.clone());
        }
        let united = fields.iter().fold(Fields::empty(), |all, fields| unite_lists(&all, fields));
        let is_id = |name: &String| self.settings.id.contains(name) || self.settings.subject.as_ref() == Some(name);
        let typed = sources.iter().any(|s| s.format.is_typed());
        let plain = |t: &DataType| matches!(t, DataType::Int64 | DataType::Utf8 | DataType::Null);
        let pin = |field: &Arc<Field>| match self.options.types.iter().find(|f| f.name() == field.name()) {
            Some(given) => Arc::new(given.clone()),
            // The text of an id must survive: `1.50` as a number would be found as `1.5` only.
            None if !typed
                && is_id(field.name())
                && schema::is_scalar(field.data_type())
                && !plain(field.data_type()) =>
            {
                Arc::new(Field::new(field.name(), DataType::Utf8, true))
            }
            None => Arc::clone(field),
        };
        storable(united.iter().map(pin).collect())
    }

    fn check_same_columns(&self, sources: &[RecordSource], fields: &[Fields]) -> Result<()> {
        let names = |fields: &Fields| fields.iter().map(|f| f.name().clone()).collect::<Vec<_>>();
        if self.options.on_schema == OnSchema::Fail
            && let Some(other) = fields.iter().position(|f| names(f) != names(&fields[0]))
        {
            return Err(Error::input(format!(
                "expected the columns {}, as in {}, found {}",
                names(&fields[0]).join(", "),
                sources[0].file.uri(),
                names(&fields[other]).join(", ")
            ))
            .at(sources[other].file.uri())
            .hint("unite columns by name with --on-schema union"));
        }
        let columns: Vec<String> = fields.iter().flat_map(names).collect();
        let wanted = self.settings.id.iter().chain(&self.settings.subject);
        for column in wanted.chain(self.options.types.iter().map(Field::name)) {
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

    /// Names of the columns whose types the user gave.
    pub(super) fn given_columns(&self) -> Vec<String> {
        let prescribed = self.prescribed.iter().flatten().map(|field| field.name());
        prescribed.chain(self.options.types.iter().map(Field::name)).cloned().collect()
    }

    /// Those of them that are to be bytes.
    fn given_binary(&self) -> Vec<String> {
        let prescribed = self.prescribed.iter().flatten().map(AsRef::as_ref);
        let given = prescribed.chain(&self.options.types);
        given.filter(|field| field.data_type().is_binary()).map(|field| field.name().clone()).collect()
    }

    /// Refuses types that values of a source cannot have, before anything is read.
    fn check_given_types(&self, sources: &[RecordSource]) -> Result<()> {
        let prescribed: Vec<Field> = self.prescribed.iter().flatten().map(|field| field.as_ref().clone()).collect();
        for source in sources {
            let has = |field: &&Field| source.reader.columns().is_none_or(|names| names.contains(field.name()));
            let check = match source.format {
                InputFormat::Csv | InputFormat::Tsv => csv::check_type,
                InputFormat::Jsonl | InputFormat::Json => json::check_type,
                _ => continue,
            };
            let mut given = prescribed.iter().chain(&self.options.types).filter(has);
            given.try_for_each(|field| check(field).map_err(|e| e.at(source.file.uri())))?;
        }
        Ok(())
    }

    /// The columns of `--schema`, with the types of `--type`.
    fn prescribed_columns(&self) -> Result<Option<Fields>> {
        let Some(path) = &self.options.schema else { return Ok(None) };
        let location = self.context.location(path)?;
        let missing = || Error::usage("expected a schema file, found nothing").at(path.clone());
        let (folder, name) = location.split_name().ok_or_else(missing)?;
        let store = storage::open(&folder, &self.context.settings)?;
        let bytes = store.get(&name)?.ok_or_else(missing)?;
        let fields = if parquet::sniff(&bytes) {
            parquet::open(bytes, path)?.schema().fields().clone()
        } else {
            let text = std::str::from_utf8(&bytes)
                .map_err(|e| Error::usage("expected a schema file in UTF-8").at(path.clone()).cause(e))?;
            schema::file::parse(text).map_err(|e| e.at(path.clone()))?
        };
        let given = |field: &Arc<Field>| match self.options.types.iter().find(|f| f.name() == field.name()) {
            Some(given) => Arc::new(given.clone()),
            None => Arc::new(field.as_ref().clone().with_nullable(true)),
        };
        Ok(Some(fields.iter().map(given).collect()))
    }

    /// Tensors of a column are in all shards of Parquet what the dataset has, whoever added them: of one shape, or each of its
    /// own.
    pub(super) fn fit_shapes(&self, prepared: &mut Prepared) -> Result<()> {
        let Some(snapshot) = self.snapshot.filter(|_| self.settings.shard_format == OutputFormat::Parquet) else {
            return Ok(());
        };
        let Prepared::Records { fields, .. } = prepared else { return Ok(()) };
        let Some(shard) = snapshot.shards()?.last().filter(|_| outputs::has_tensors(fields)) else {
            return Ok(());
        };
        let place = self.dataset.store().location().join(&shard.path).to_string();
        let known = parquet::open(self.dataset.object(&shard.path, shard.bytes), &place)?;
        let fit = |field: &Arc<Field>| {
            let Some((_, known)) = known.schema().fields().find(field.name()) else { return Ok(Arc::clone(field)) };
            let (dims, found) = (tensor_dims(known), tensor_dims(field));
            if dims == found {
                return Ok(Arc::clone(field));
            }
            let rank = |dims: &Option<Vec<Option<usize>>>| dims.as_ref().map(Vec::len);
            if schema::variable_rank(known).is_some() && rank(&dims) == rank(&found) {
                return Ok(Arc::new(schema::unite_fields(known, field)));
            }
            let shape = |dims: Option<Vec<Option<usize>>>| dims.map_or_else(|| "none".to_owned(), |d| print_dims(&d));
            Err(Error::input(format!(
                "expected tensors of the shape that `{}` has in this dataset, {}, found {}",
                field.name(),
                shape(dims),
                shape(found)
            ))
            .at(place.as_str())
            .column(field.name())
            .hint("name another dataset with --out, or choose variables with --var"))
        };
        *fields = fields.iter().map(fit).collect::<Result<_>>()?;
        Ok(())
    }

    /// A file that cannot be held in memory is refused before anything is written.
    pub(super) fn check_sizes(&self, prepared: &Prepared, memory: MemoryPlan) -> Result<()> {
        let Prepared::Samples { files, samples, .. } = prepared else { return Ok(()) };
        for sample in samples.range(0..samples.len(), files) {
            let bytes = sample.bytes();
            if bytes > memory.max_record_bytes {
                let uri = sample.files().next().map_or_else(String::new, SourceFile::uri);
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

/// Two sources that state their types must mean the same by a column.
fn refuse_conflicts(sources: &[RecordSource], fields: &[Fields], given: &[Field]) -> Result<()> {
    let mut first: BTreeMap<&str, (usize, &Field)> = BTreeMap::new();
    for (i, fields) in fields.iter().enumerate().filter(|(i, _)| sources[*i].format.is_typed()) {
        for field in fields.iter().filter(|f| given.iter().all(|g| g.name() != f.name())) {
            let (other, stated) = *first.entry(field.name()).or_insert((i, field));
            if let Some(conflict) = schema::conflict(stated, field) {
                return Err(Error::input(format!("expected columns of one type, found that {conflict}"))
                    .at(sources[i].file.uri())
                    .column(field.name())
                    .hint(format!("the other type is in {}", sources[other].file.uri()))
                    .hint("choose sources with --include, or give the column a type with --type, such as text"));
            }
        }
    }
    Ok(())
}

impl Conversion<'_> {
    /// The schema that records are brought to.
    pub(super) fn schema(&self, prepared: &Prepared) -> SchemaRef {
        if prepared.gives_samples() {
            schema_of_samples(prepared.fields(), self.options.media)
        } else {
            schema_of(prepared.fields())
        }
    }

    /// What a row becomes in tar: what the user said, else a table of samples becomes samples again.
    pub(super) fn rows_as(&self, schema: &SchemaRef) -> RowsAs {
        let samples = is_table_of_samples(schema.fields());
        let lists = self.options.tensor_lists && self.settings.shard_format == OutputFormat::TfRecord;
        let default = match outputs::has_tensors(schema.fields()) && !lists {
            true => RowsAs::Tensors,
            false if samples => RowsAs::Parts,
            false => RowsAs::Json,
        };
        self.options.rows.unwrap_or(default)
    }

    /// Columns that make the record id of rows; the key of a table of samples needs no naming.
    pub(super) fn id_columns(&self, prepared: &Prepared, schema: &SchemaRef) -> Vec<String> {
        if prepared.gives_samples() {
            return Vec::new();
        }
        let key = schema.field_with_name(KEY_COLUMN).is_ok_and(|f| f.data_type() == &DataType::Utf8);
        if self.settings.id.is_empty() && key { vec![KEY_COLUMN.to_owned()] } else { self.settings.id.clone() }
    }

    /// Names and types of the columns, for people.
    pub(super) fn columns(&self, prepared: &Prepared) -> Vec<(String, String)> {
        self.schema(prepared).fields().iter().map(|f| (f.name().clone(), schema::file::print_type(f))).collect()
    }
}

/// Makes a column binary.
pub(super) fn force_binary(fields: &Fields, column: &str) -> Fields {
    let binary = |field: &Arc<Field>| match field.name() == column {
        true => Arc::new(Field::new(column, DataType::Binary, true)),
        false => Arc::clone(field),
    };
    fields.iter().map(binary).collect()
}

/// Names of sources and of the keys of their rows: the name without extension where that is unique.
pub(super) fn source_facts(sources: &[RecordSource], resolver: Option<&SubjectResolver>) -> Vec<SourceFacts> {
    let stem = |name: &str| files::split_key(name).0.to_owned();
    let mut stems: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources {
        *stems.entry(stem(source.file.name())).or_default() += 1;
    }
    sources
        .iter()
        .map(|source| {
            let name = source.file.name().to_owned();
            let short = stem(&name);
            let key = escape_key(if stems.get(&short) == Some(&1) { &short } else { &name });
            let columns = source.reader.columns().map(<[String]>::to_vec);
            let subject = resolver.and_then(|resolver| resolver.of_source(&source.file));
            SourceFacts {
                name: Arc::new(SourceName { name, key, columns, subject }),
                file: source.file.clone(),
                hashes_bytes: source.format.is_text(),
                by_row: source.format.is_typed(),
                blank_lines: source.reader.blank_lines_before(),
                note: source.reader.note(),
            }
        })
        .collect()
}
