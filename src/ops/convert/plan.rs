//! Decides what a run converts, and how. The plan of a conversion is a value.
//!
//! ```text
//! Listing --open--> Opened --name--> Named --finish--> ConvertPlan
//!           formats, columns   indexes, names      sizes, shapes, constants, arguments
//! ```
//!
//! Each stage consumes the one before it, so that nothing can be used before it is known: the format of the shards
//! follows from the formats of the sources, indexes from the format of the shards, and names from the indexes.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use arrow::datatypes::{DataType, Field, Fields, SchemaRef};
use bytes::Bytes;

use super::{
    arguments::log_arguments,
    classes,
    columns::{self, GivenTypes},
    dedup, idle,
    inputs::{self, Inputs},
    job::ConvertJob,
    keys, label_column,
    labels::{self, LabelTables, Labels},
    listing::{Listing, SkippedCounts},
    select::ConvertSelection,
    shuffle, split, subjects,
};
use crate::{
    array::outputs,
    codec::Codec,
    dataset::{Pseudonymizer, Settings},
    error::{Error, Result},
    events::Event,
    exec::{
        convert::infer_all,
        cut::ShardEnds,
        encode::{Encoder, RowsAs},
        gates::{IdColumns, names::PartsGate, subjects::SubjectResolver},
    },
    format::{OutputFormat, StoredTypes, files, parquet::schema_of_samples},
    id::Version,
    indexes::version,
    ops::{
        inputs::LiveDataset,
        names::{Choices, Naming},
    },
    plan::{memory::MemoryPlan, names::OnMissing},
    record::{
        IGNORED_NAMES,
        key::part_type,
        parts::{KEY_COLUMN, is_table_of_samples},
        path::field_at,
        split::{FOLDER_KEY, Splits},
    },
    scan::{Input, RecordSource, SourceFile, folders_of, with_partitions},
    schema::{self, print_dims, schema_of, tensor_dims, unite_lists},
    units::Size,
};

/// The decision about a run.
pub(super) enum Decision {
    /// There are no new sources.
    Nothing {
        /// Settings of the dataset.
        settings: Box<Settings>,
        /// Skipped sources and files.
        skipped: SkippedCounts,
        /// Number of locations that could not be listed.
        faults: usize,
    },
    /// Sources are to be converted.
    Convert(Box<ConvertPlan>),
}

/// What a run converts, and how. It has no references into the dataset or the options.
pub(super) struct ConvertPlan {
    /// Version that the plan was made for; 0 if the dataset is new.
    pub(super) base: Version,
    /// Settings of the dataset after the run.
    pub(super) settings: Settings,
    /// The options that determined the content of the shards, as recorded in the log.
    pub(super) arguments: BTreeMap<String, String>,
    /// Sizes that keep the run within its memory limit.
    pub(super) memory: MemoryPlan,
    /// The sources, in order.
    pub(super) inputs: Inputs,
    /// Starts of the record ids of each source, if they follow from more sources than these.
    pub(super) keys: Option<Vec<String>>,
    /// Hash of each source; `None` if it is known only when the source was read; empty if no source is a part of one.
    pub(super) hashes: Vec<Option<u64>>,
    /// Stored bytes of the listed sources.
    pub(super) bytes: u64,
    /// Locations that could not be listed; each counts as a rejected record.
    pub(super) faults: Vec<Error>,
    /// Skipped sources and files.
    pub(super) skipped: SkippedCounts,
    /// Number of samples of files whose keys are other spellings of erased ones.
    pub(super) similar: u64,
    /// Stored URIs of sources whose old records are to be removed.
    pub(super) replaced: HashSet<String>,
    /// Tables of labels; `None` if there are none.
    pub(super) labels: Option<LabelTables>,
    /// Columns of the rows, or the parts of the samples. They are widened if a value does not fit.
    pub(super) fields: Fields,
    /// Types that the user gave; they are never widened.
    pub(super) given: GivenTypes,
    /// Form of rows, if the user chose one.
    pub(super) rows: Option<RowsAs>,
    /// Whether tensors in TFRecord are lists of numbers rather than bytes.
    pub(super) tensor_lists: bool,
    /// Whether pictures and recordings are stored in Parquet as Hugging Face does.
    pub(super) media: bool,
    /// Record names that are changed or refused, and samples that are rejected without being read.
    pub(super) naming: Naming,
    /// The user's choices for names, from which `naming` follows.
    pub(super) choices: Choices,
    /// Resolves subject ids; `None` if a column has them, or if there are none.
    pub(super) subjects: Option<SubjectResolver>,
    /// Constants of all records of arrays.
    pub(super) constants: Option<Bytes>,
}

/// Decides what to convert.
///
/// # Errors
/// When the options contradict the sources, the sources contradict each other, or either contradicts the dataset.
pub(super) fn decide_plan(job: &ConvertJob<'_>, settings: Settings, listing: Listing) -> Result<Decision> {
    let Listing { fresh, of, faults, live, replaced, skipped, labels } = listing;
    let label_hash = labels.as_ref().map(|labels| labels.tell_origin(job));
    if fresh.is_empty() {
        if skipped.unchanged > 0 {
            idle::check_options(job, &settings)?;
        }
        tell_faults(job, &faults);
        return Ok(Decision::Nothing { settings: Box::new(settings), skipped, faults: faults.len() });
    }
    let bytes = fresh.iter().map(SourceFile::bytes).sum();
    let split = split::inherit_splits(job, &settings, &live)?;
    let label_types = labels.as_ref().map(|labels| labels.types.clone()).or(settings.label_types);
    let settings = Settings { labels: label_hash.or(settings.labels), label_types, split, ..settings };
    let opened = OpenedSources::new(job, settings, fresh, of, labels.as_ref(), &live)?;
    opened.check_dataset(job)?;
    let skipped = SkippedCounts { erased: skipped.erased + opened.erased, ..skipped };
    if opened.inputs.source_files().next().is_none() {
        tell_faults(job, &faults);
        return Ok(Decision::Nothing { settings: Box::new(opened.settings), skipped, faults: faults.len() });
    }
    let labels = labels.map(|labels| labels.tables);
    let listed = Listed { bytes, faults, live, replaced, skipped, labels };
    Ok(Decision::Convert(Box::new(opened.choose_names(job)?.finish(job, listed)?)))
}

/// Tells what could not be listed where no run begins, which would count and keep it.
fn tell_faults(job: &ConvertJob<'_>, faults: &[Error]) {
    faults.iter().take(IGNORED_NAMES).for_each(|fault| job.context.observer.event(Event::Note(fault.to_line())));
}

/// Results of the listing besides the files.
struct Listed {
    bytes: u64,
    faults: Vec<Error>,
    live: Vec<LiveDataset>,
    replaced: HashSet<String>,
    skipped: SkippedCounts,
    labels: Option<LabelTables>,
}

/// Sources with known formats and columns, from which the format of the shards follows.
struct OpenedSources {
    settings: Settings,
    given: GivenTypes,
    subjects: Option<SubjectResolver>,
    inputs: Inputs,
    fields: Fields,
    /// Number of sources skipped because they were erased, or their subject was.
    erased: u64,
    similar: u64,
}

impl OpenedSources {
    fn new(
        job: &ConvertJob<'_>,
        mut settings: Settings,
        fresh: Vec<SourceFile>,
        total: usize,
        labels: Option<&Labels>,
        live: &[LiveDataset],
    ) -> Result<Self> {
        if let Some(old) = job.snapshot {
            job.check_settings(&old.entry().settings, &settings)?;
            job.tell_settings(&old.entry().settings, &settings);
        }
        if settings.types.is_none() {
            settings.types = job.types_of_shards(settings.shard_format)?;
        }
        let subjects = subjects::subject_resolver(job, &settings)?;
        let given = GivenTypes::read(job, &settings)?;
        let (inputs, fields, skipped_erased) =
            match inputs::detect_formats(job, fresh, total, &given, settings.shard_format)? {
                Input::Records(_) if labels.is_some() => return Err(labels::records_refusal("--labels")),
                Input::Records(_) if job.options.key.is_some() => return Err(keys::records_refusal()),
                Input::Records(_) if job.options.label_from_folder => {
                    return Err(labels::records_refusal(classes::OPTION));
                }
                Input::Records(sources) => {
                    let (sources, erased) = subjects::without_erased_sources(job, subjects.as_ref(), sources);
                    let mut sources = with_folder_columns(job, sources);
                    for source in &mut sources {
                        let open = |fields: Fields, live: &LiveDataset| live.source_fields(&source.file.uri(), &fields);
                        source.fields = live.iter().fold(source.fields.clone(), open);
                    }
                    let fields = columns_of(job, &settings, &given, &sources)?;
                    (Inputs::Records(sources), fields, subjects::SkippedErased { erased, similar: 0 })
                }
                Input::Files(files) => {
                    let (files, skipped_erased) = subjects::without_erased_files(job, subjects.as_ref(), files);
                    let files = match settings.limit {
                        Some(limit) => files::files_of_first(files, usize::try_from(limit).unwrap_or(usize::MAX)),
                        None => files,
                    };
                    let samples = with_labels(job, &mut settings, labels, subjects.as_ref(), &files)?;
                    let part = |name: String| Arc::new(Field::new(&name, part_type(&name, b""), true));
                    let fields = samples.column_names(&files).into_iter().map(part).collect();
                    (Inputs::Samples { samples, files }, fields, skipped_erased)
                }
            };
        if inputs.give_samples() {
            refuse_options_of_rows(job, &given)?;
            if job.options.to.is_none() && job.snapshot.is_none() {
                settings.shard_format = OutputFormat::Tar;
                settings.codec = job.options.codec.unwrap_or(Codec::None);
            }
        }
        settings.split = final_splits(job, &settings, &inputs, &given.selection, &fields)?;
        dedup::check_dedup(&settings, &record_facts(&inputs, &fields))?;
        let subjects::SkippedErased { erased, similar } = skipped_erased;
        Ok(Self { settings, given, subjects, inputs, fields, erased, similar })
    }

    /// Checks the sources against the dataset.
    fn check_dataset(&self, job: &ConvertJob<'_>) -> Result<()> {
        if let Some(resolver) = &self.subjects {
            subjects::check_subjects(job, resolver, &self.inputs)?;
        }
        if let (Some(ShardEnds::Parts(_)), Inputs::Records(sources)) = (job.options.ends, &self.inputs)
            && let Some(source) = sources.iter().find(|source| source.packed || source.encoding.is_some())
        {
            return Err(Error::usage("expected inputs of known size for --shards, found a compressed or recoded one")
                .at_location(source.file.uri())
                .with_hint("use --records-per-shard or --target-shard"));
        }
        job.check_raw(&self.inputs)?;
        job.check_alike(&self.inputs, &self.fields, &self.settings)
    }

    /// Chooses indexes, and how to treat names that they or the format cannot store.
    fn choose_names(mut self, job: &ConvertJob<'_>) -> Result<Named> {
        self.settings.shard_format.check_codec(self.settings.codec)?;
        self.settings.indexes = job.choose_indexes(&self.settings)?;
        let settings = &self.settings;
        let memory =
            job.context.memory_plan(settings).for_splits(settings.split.as_ref().map_or(1, Splits::split_count));
        let shuffles = settings.shuffle.is_some() && matches!(self.inputs, Inputs::Records(_));
        let memory = if shuffles { memory.for_shuffle() } else { memory };
        let files = match &self.inputs {
            Inputs::Samples { files, samples } => Some((samples, files.as_slice())),
            Inputs::Records(_) => None,
        };
        let asked = job.options.index.is_some() || (files.is_some() && job.snapshot.is_some());
        let choices = Choices { on_name: job.options.on_name, missing: job.options.missing, asked };
        let mut naming = Naming::plan(files, &mut self.settings, choices, job.context.observer)?;
        if job.options.missing != OnMissing::Keep && self.inputs.give_samples() && naming.parts.is_none() {
            naming.parts = self.parts_of_records(job, memory)?;
        }
        Ok(Named { opened: self, memory, naming, choices })
    }

    /// Returns the check of parts of samples in archives. It needs all samples to be read first.
    fn parts_of_records(&mut self, job: &ConvertJob<'_>, memory: MemoryPlan) -> Result<Option<PartsGate>> {
        let Inputs::Records(sources) = &self.inputs else { return Ok(None) };
        let observer = job.context.observer;
        observer.event(Event::Phase { name: "reading parts", bytes: None });
        let seen = infer_all(sources, memory, job.context.jobs, observer, &job.context.cancel)?;
        self.fields = unite_lists(&self.fields, &self.given.unite_columns(&self.settings, &seen, sources));
        let names = self.fields.iter().map(|f| f.name().clone());
        let mut all: Vec<String> = names.filter(|name| name != KEY_COLUMN).collect();
        all.sort_unstable();
        Ok(Some(PartsGate { all, skip: job.options.missing == OnMissing::Skip }))
    }
}

/// Sources whose names are checked.
struct Named {
    opened: OpenedSources,
    memory: MemoryPlan,
    naming: Naming,
    choices: Choices,
}

impl Named {
    /// Checks the sizes of samples and the shapes of tensors, and reads constants.
    fn finish(self, job: &ConvertJob<'_>, listed: Listed) -> Result<ConvertPlan> {
        let Self { opened, memory, naming, choices } = self;
        let OpenedSources { mut settings, given, subjects, inputs, mut fields, similar, .. } = opened;
        let Listed { mut bytes, faults, live, replaced, skipped, labels } = listed;
        if settings.limit.is_some() {
            // How much is read of tables follows from their records.
            bytes = if matches!(inputs, Inputs::Samples { .. }) {
                inputs.source_files().map(SourceFile::bytes).sum()
            } else {
                0
            };
        }
        match &inputs {
            Inputs::Samples { files, samples } => check_sizes(files, samples, memory)?,
            Inputs::Records(sources) => {
                fields = columns::fit_shapes(job, settings.shard_format, fields)?;
                settings.units = job.unite_units(&settings.units, sources)?;
            }
        }
        version::check_indexes(job.dataset, job.snapshot, &settings.indexes)?;
        if !(inputs.give_samples() && job.options.write.is_hf_media()) {
            let is_given =
                |column: &str| given.prescribed.is_some() || given.given_names().iter().any(|name| name == column);
            fields = version::fit_fields(job.dataset, job.snapshot, &settings.indexes, fields, &is_given)?;
        }
        if settings.shard_format.is_columnar() && !inputs.give_samples() {
            check_columns(&given.selection.stored_columns(&fields), memory)?;
        }
        let constants = inputs.shared_constants(&live)?;
        job.check_constants(constants.as_ref())?;
        Ok(ConvertPlan {
            base: job.base_version(),
            arguments: log_arguments(job.options, &settings, given.prescribed.as_ref(), memory),
            constants,
            rows: job.options.write.row_form(),
            tensor_lists: job.options.write.tensor_lists(),
            media: job.options.write.is_hf_media(),
            settings,
            memory,
            inputs,
            keys: None,
            hashes: Vec::new(),
            bytes,
            faults,
            skipped,
            similar,
            replaced,
            labels,
            fields,
            given,
            naming,
            choices,
            subjects,
        })
    }
}

impl ConvertPlan {
    /// Returns the schema that all records are cast to when they are read: that of the stored records, and columns that
    /// only ids come from.
    pub(super) fn input_schema(&self) -> SchemaRef {
        match self.inputs.give_samples() {
            true => schema_of_samples(&self.fields, self.media),
            false => schema_of(&self.given.selection.read(&self.fields)),
        }
    }

    /// Returns the columns of rows; `None` if the records are samples.
    pub(super) fn row_fields(&self) -> Option<&Fields> {
        (!self.inputs.give_samples()).then_some(&self.fields)
    }

    /// Returns the schema of the stored records.
    pub(super) fn stored_schema(&self) -> SchemaRef {
        match self.inputs.give_samples() {
            true => schema_of_samples(&self.fields, self.media),
            false => schema_of(&self.given.selection.stored_columns(&self.fields)),
        }
    }

    /// Returns the form of rows in tar: the user's choice, or samples if the table contains samples.
    pub(super) fn rows_as(&self, schema: &SchemaRef) -> RowsAs {
        let samples = is_table_of_samples(schema.fields());
        let lists = self.tensor_lists && self.settings.shard_format == OutputFormat::TfRecord;
        let default = match outputs::has_tensors(schema.fields()) && !lists {
            true => RowsAs::Tensors,
            false if samples => RowsAs::Parts,
            false => RowsAs::Json,
        };
        self.rows.unwrap_or(default)
    }

    /// Returns the columns that have the ids of rows of a schema; the key of a table of samples is one without being
    /// named.
    pub(super) fn id_columns(&self, schema: &SchemaRef) -> IdColumns {
        // Without columns, all sources are empty or contain only a header.
        if self.inputs.give_samples() || schema.fields().is_empty() {
            return IdColumns::default();
        }
        let key = schema.field_with_name(KEY_COLUMN).is_ok_and(|f| f.data_type() == &DataType::Utf8);
        let is_keyed = self.settings.id.is_empty() && key;
        let record = if is_keyed { vec![KEY_COLUMN.to_owned()] } else { self.settings.id.clone() };
        IdColumns { record, subject: self.settings.subject.clone() }
    }

    /// Returns names and types of the columns, for reports.
    pub(super) fn column_types(&self) -> Vec<(String, String)> {
        self.stored_schema().fields().iter().map(|f| (f.name().clone(), schema::file::print_type(f))).collect()
    }

    /// Returns the encoder of the records, which have this schema before they are encoded.
    ///
    /// # Errors
    /// When no source has a column that makes ids, or the format cannot store the schema.
    pub(super) fn build_encoder(&self, pseudonymizer: Option<&Pseudonymizer>, schema: &SchemaRef) -> Result<Encoder> {
        let stored = self.stored_schema();
        let IdColumns { record, subject } = self.id_columns(schema);
        if let Some(column) = record.iter().chain(&subject).find(|c| field_at(schema.fields(), c).is_none()) {
            let columns: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
            return Err(columns::unknown_column(column, &columns));
        }
        let encoder = Encoder::new(self.settings.shard_format, self.settings.codec, &stored, record, subject)?;
        Ok(encoder
            .with_stored_columns(stored.fields().len())
            .with_hash_width(self.settings.hashes)
            .with_rows(self.rows_as(&stored))
            .with_renaming(self.naming.renaming)
            .with_external_subjects(self.subjects.is_some())
            .checking_splits(&self.settings)
            .noting_members_for(&self.settings.indexes, self.settings.shard_format)
            .with_pseudonymizer(pseudonymizer.cloned()))
    }

    /// Returns the columns whose types the shards do not store.
    pub(super) fn fields_to_keep(&self) -> Option<Fields> {
        let schema = self.stored_schema();
        let format = self.settings.shard_format;
        let is_untyped = match format.facts().types {
            StoredTypes::All => false,
            StoredTypes::OfParts => self.rows_as(&schema) == RowsAs::Json,
            StoredTypes::Widest => true,
        };
        let fields = || match self.rows_as(&schema) {
            RowsAs::Tensors => outputs::feature_fields(schema.fields()),
            RowsAs::Json | RowsAs::Parts => schema.fields().clone(),
        };
        (is_untyped && !self.inputs.give_samples()).then(fields)
    }
}

/// Groups files into samples and adds their labels and classes.
fn with_labels(
    job: &ConvertJob<'_>,
    settings: &mut Settings,
    labels: Option<&Labels>,
    subjects: Option<&SubjectResolver>,
    files: &[SourceFile],
) -> Result<files::Samples> {
    let samples = files::group_samples(files);
    keys::check_keys(job.context.observer, &settings.keys, files, &samples)?;
    let samples = shuffle::in_order(settings, samples, files);
    let label = match labels {
        Some(labels) => Some(labels.of_samples(job, files, &samples)?),
        None => {
            labels::require_known(job, settings)?;
            None
        }
    };
    let class = match label_column::of_samples(job, settings, &samples, label.as_ref())? {
        Some(class) => Some(class),
        None => classes::of_samples(job, settings, files, &samples, subjects)?,
    };
    Ok(samples.with_given(label.into_iter().chain(class)))
}

/// Returns the united columns of record sources.
fn columns_of(
    job: &ConvertJob<'_>,
    settings: &Settings,
    given: &GivenTypes,
    sources: &[RecordSource],
) -> Result<Fields> {
    let all: Vec<Fields> = sources.iter().map(|source| source.fields.clone()).collect();
    let names = columns::names_of(sources, &all);
    columns::check_named_columns(job.options, settings, sources, &names)?;
    let all = with_named_columns(job, settings, given, sources, all, &names)?;
    let fields: Vec<Fields> = all.iter().map(|fields| given.selection.read(fields)).collect();
    columns::check_same_columns(job.options, sources, &fields)?;
    columns::refuse_conflicts(sources, &fields, &job.options.types)?;
    given.check_sources(sources)?;
    given.check_bound(job.options, sources, &fields)?;
    let fields = given.unite_columns(settings, &fields, sources);
    given.selection.bind_filter(&fields)?;
    let shapeless = fields.iter().find(|field| schema::variable_rank(field).is_some());
    if let Some(field) = shapeless.filter(|_| job.options.write.tensor_lists()) {
        let dims = tensor_dims(field).unwrap_or_default();
        return Err(Error::usage(format!(
            "expected tensors of one shape for --write tensors=lists, found the shape {}",
            print_dims(&dims)
        ))
        .in_column(field.name())
        .with_hint("leave it out: as bytes, tensors are stored with their shapes"));
    }
    Ok(fields)
}

/// Returns the columns of each source, in which all columns occur that --columns and --where name. Sources whose first
/// records lack one of them are read in full, if their columns are only known then.
fn with_named_columns(
    job: &ConvertJob<'_>,
    settings: &Settings,
    given: &GivenTypes,
    sources: &[RecordSource],
    all: Vec<Fields>,
    names: &[String],
) -> Result<Vec<Fields>> {
    let prescribed: Option<Vec<String>> =
        given.prescribed.as_ref().map(|fields| fields.iter().map(|field| field.name().clone()).collect());
    let names = prescribed.as_deref().unwrap_or(names);
    let named = columns::named_columns(job.options);
    let missing = |names: &[String], all: &[Fields]| -> Option<String> {
        let tested = given.selection.tested_columns();
        let is_there = |path: &&str| {
            names.iter().any(|name| name == path) || all.iter().any(|fields| field_at(fields, path).is_some())
        };
        let untested = || tested.into_iter().find(|path| !is_there(path)).map(str::to_owned);
        named.iter().find(|column| !names.contains(column)).cloned().or_else(untested)
    };
    let given_fields = given.prescribed.clone().map(|fields| vec![fields]);
    let found = missing(names, given_fields.as_deref().unwrap_or(&all));
    let Some(column) = found.filter(|_| !names.is_empty()) else { return Ok(all) };
    let may_hide = |source: &RecordSource| source.reader.facts().columns.is_none() && !source.format.is_typed();
    if prescribed.is_some() || !sources.iter().any(may_hide) {
        return Err(columns::unknown_named_column(job.options, &column, names));
    }
    let (context, observer) = (job.context, job.context.observer);
    observer.event(Event::Phase { name: "looking for columns", bytes: None });
    let seen = infer_all(sources, context.memory_plan(settings), context.jobs, observer, &context.cancel)?;
    let names = columns::names_of(sources, &seen);
    match missing(&names, &seen) {
        Some(column) => Err(columns::unknown_named_column(job.options, &column, &names)),
        None => Ok(all.iter().zip(&seen).map(|(sample, seen)| unite_lists(sample, seen)).collect()),
    }
}

/// Returns what the records have that their splits, and what they are duplicates by, may follow from.
fn record_facts<'a>(inputs: &Inputs, fields: &'a Fields) -> split::RecordFacts<'a> {
    let are_samples = inputs.give_samples();
    split::RecordFacts { are_samples, have_keys: are_samples || fields.find(KEY_COLUMN).is_some(), fields }
}

/// Returns how the records are divided, now that their columns are known.
fn final_splits(
    job: &ConvertJob<'_>,
    settings: &Settings,
    inputs: &Inputs,
    selection: &ConvertSelection,
    fields: &Fields,
) -> Result<Option<Splits>> {
    let known = record_facts(inputs, fields);
    let splits = split::settle_splits(settings, job.options.split.as_ref(), &known)?;
    let has_column = selection.stored_columns(fields).find(FOLDER_KEY).is_some();
    if splits.is_some() && settings.shard_format.is_columnar() && has_column {
        return Err(Error::usage(format!(
            "expected no column `{FOLDER_KEY}` beside --split, found one: readers take the name of the folder for it"
        ))
        .with_hint("name the columns to keep with --columns, without this one, or omit such files with --exclude"));
    }
    Ok(splits)
}

/// Returns an error if samples were found and an option applies only to rows.
fn refuse_options_of_rows(job: &ConvertJob<'_>, given: &GivenTypes) -> Result<()> {
    if given.prescribed.is_some() {
        return Err(Error::usage("expected rows for --schema, found samples").with_hint("leave --schema out"));
    }
    if !job.options.columns.is_empty() {
        return Err(Error::usage("expected tables for --columns, found samples")
            .with_hint("samples have no columns; leave --columns out, and choose files with --include and --exclude"));
    }
    if job.options.filter.is_some() {
        return Err(Error::usage("expected tables for --where, found samples")
            .with_hint("samples have no columns; leave --where out, and choose files with --include and --exclude"));
    }
    if job.options.read.hive_columns() {
        return Err(
            Error::usage("expected tables for --read hive-columns=yes, found samples").with_hint("leave it out")
        );
    }
    if !job.options.types.is_empty() {
        return Err(Error::usage("expected tables for --type, found samples")
            .with_hint("samples have no columns; leave --type out"));
    }
    if !job.options.id.is_empty() || job.options.subject.is_some() {
        return Err(Error::usage("expected tables for --id and --subject, found samples")
            .with_hint("the record id of a sample is its key; leave both options out")
            .with_hint("give samples subject ids with --subject-from-path or --subject-table"));
    }
    Ok(())
}

/// Adds the columns that folders of the sources state, if they are wanted.
pub(super) fn with_folder_columns(job: &ConvertJob<'_>, sources: Vec<RecordSource>) -> Vec<RecordSource> {
    if job.options.read.hive_columns() {
        return with_partitions(sources);
    }
    let unused = sources.iter().filter(|source| !source.yields_samples()).find_map(|source| {
        let folders = folders_of(&source.file);
        folders.into_iter().map(|(key, _)| key).find(|key| source.fields.find(key).is_none())
    });
    if let Some(key) = unused {
        let note =
            format!("folders such as `{key}=` do not become columns; --read hive-columns=yes makes them columns");
        job.context.observer.event(Event::Note(note));
    }
    sources
}

/// Returns an error for columns that need more than the memory limit whatever they hold, before anything is read.
fn check_columns(fields: &Fields, memory: MemoryPlan) -> Result<()> {
    let columns = fields.iter().map(|field| schema::leaf_count(field)).sum();
    let Some(larger) = memory.larger_for_columns(columns) else { return Ok(()) };
    let (limit, mib) = (Size(memory.bytes), larger.0 >> 20);
    Err(Error::usage(format!(
        "expected columns whose encoders and footers fit into --memory {limit}, found {columns} columns"
    ))
    .with_hint(format!("raise the limit: --memory {mib}MiB; or name the columns to keep with --columns")))
}

/// Returns an error for a file that does not fit into memory, before anything is written.
fn check_sizes(files: &[SourceFile], samples: &files::Samples, memory: MemoryPlan) -> Result<()> {
    for sample in samples.iter_range(0..samples.len(), files) {
        let bytes = sample.total_bytes();
        if bytes > memory.max_record_bytes {
            let uri = sample.files().next().map_or_else(String::new, SourceFile::uri);
            return Err(Error::input(format!(
                "expected samples of at most {}, found one of {}",
                Size(memory.max_record_bytes),
                Size(bytes)
            ))
            .at_location(uri)
            .with_hint(
                "a sample may take an eighth of the memory: raise --memory, or leave the file out with --exclude",
            ));
        }
    }
    Ok(())
}
