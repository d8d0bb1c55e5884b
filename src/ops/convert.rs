//! `convert`: sources become shards of a dataset.
//!
//! Scan, sort out what is already there, tell tables from files, look at the types, plan, run the pipeline, publish,
//! commit. When a value turns up that does not fit the types seen in the samples, all tables are looked at in full and
//! the run starts again with types that every value fits; nothing of the first attempt is kept.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use arrow::datatypes::{DataType, Field, Fields};
use serde::Serialize;

use super::{
    Context,
    inputs::{self, OnChanged},
};
use crate::{
    codec::Codec,
    dataset::{Counts, Dataset, NewShard, NewSources, Numbers, Settings, Snapshot, SourceRow, Transaction, commit},
    error::{Error, Result},
    events::Event,
    exec::{
        convert::{Converted, Pipeline, Reading, Work, infer_all, opening, run},
        encode::{Body, Encoder, Piece, SourceName, Unit},
        gather::{OnError, RejectsFile, SourceFacts, SourceTally, Tally, reject_fault},
        shard::ShardNaming,
    },
    format::{
        OutputFormat, Parsed,
        csv::CsvOptions,
        files::{self, Samples},
        json::JsonOptions,
        parquet::schema_of_samples,
    },
    id::{TransactionId, Version},
    plan::memory::MemoryPlan,
    record::key::escape_key,
    scan::{self, Input, InputFormat, RecordSource, ScanOptions, SniffOptions, SourceFile, classify},
    schema::{self, schema_of, unite_lists},
    storage::{Location, SYSTEM_FOLDER, Staged, plain_urls},
    units::Size,
};

/// Sources with different columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnSchema {
    /// Are united by name.
    #[default]
    Union,
    /// Are an error.
    Fail,
}

/// What to convert, and how.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// Files, folders, globs or URLs.
    pub sources: Vec<String>,
    /// Their format, where it is not to be told from the content.
    pub from: Option<InputFormat>,
    /// Format of the shards.
    pub to: Option<OutputFormat>,
    /// Size of a shard.
    pub target_shard: Option<Size>,
    /// Compression.
    pub codec: Option<Codec>,
    /// Columns that make the record id.
    pub id: Vec<String>,
    /// Column of the subject id.
    pub subject: Option<String>,
    /// Uncompressed bytes of a row group.
    pub row_group: Option<Size>,
    /// Globs of inputs to take.
    pub include: Vec<String>,
    /// Globs of inputs to leave out.
    pub exclude: Vec<String>,
    /// Types of columns that are not to be inferred.
    pub types: Vec<(String, DataType)>,
    /// Text that means null.
    pub null: Option<String>,
    /// Delimiter.
    pub delimiter: Option<u8>,
    /// Delimited text has no header.
    pub no_header: bool,
    /// Sources with different columns.
    pub on_schema: OnSchema,
    /// Bad records.
    pub on_error: OnError,
    /// Sources that changed.
    pub on_changed: OnChanged,
    /// Only plan.
    pub dry_run: bool,
}

/// What was done, or would be.
#[derive(Debug, Clone, Serialize)]
pub struct ConvertReport {
    /// The dataset.
    pub dataset: String,
    /// The version made; the current one when there was nothing to do.
    pub version: Option<Version>,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Format of the shards.
    pub format: OutputFormat,
    /// Compression.
    pub codec: Codec,
    /// Folder of the new shards, relative to the dataset.
    pub folder: Option<String>,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Sources converted.
    pub sources: u64,
    /// Sources that were there already.
    pub sources_unchanged: u64,
    /// Sources left out because they changed.
    pub sources_changed: u64,
    /// Files passed over: hidden, configuration or datasets.
    pub files_passed_over: u64,
    /// Empty lines, which are not records.
    pub blank_lines: u64,
    /// Records with fewer fields than the header.
    pub records_padded: u64,
    /// File with the rejected records, relative to the dataset.
    pub rejects: Option<String>,
    /// Estimate of the memory needed, in bytes.
    pub memory_bytes: u64,
    /// What would be written, of a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// Columns of the shards.
    pub columns: Vec<(String, String)>,
    /// Time taken.
    pub seconds: f64,
}

/// What a conversion would write, judged by the first records of each source.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Estimate {
    /// Records.
    pub records: u64,
    /// Bytes of shards.
    pub bytes: u64,
    /// Shards.
    pub shards: u64,
}

/// Converts sources into a dataset.
///
/// # Errors
/// Usage, bad input, conflict, storage; nothing is committed then.
pub fn convert(context: &Context<'_>, out: &Location, options: &ConvertOptions) -> Result<ConvertReport> {
    let started = Instant::now();
    let dataset = context.dataset(out)?;
    let snapshot = dataset.latest()?;
    let scan_options = ScanOptions {
        include: options.include.clone(),
        exclude: options.exclude.clone(),
        dataset: Some(out.clone()),
        memory: context.memory,
    };
    let mut found = scan::scan(&options.sources, &context.folder, &context.settings, &scan_options)?;
    if found.files.is_empty() && found.faults.is_empty() {
        return Err(Error::usage("expected something to convert, found no files")
            .at(plain_urls(&options.sources.join(" ")))
            .hint("name a file or folder, or check --include and --exclude"));
    }
    if found.folder_links > 0 {
        let count = found.folder_links;
        let note = format!("links to folders are not followed, found {count}; name those folders themselves");
        context.observer.event(Event::Note(note));
    }
    if options.on_error == OnError::Fail && !found.faults.is_empty() {
        let first = found.faults.swap_remove(0);
        return Err(first.hint("count such places as rejects with --on-error skip or quarantine"));
    }
    let passed_over = found.passed_over;
    let sorted = inputs::sort(found.files, snapshot.as_ref(), options.on_changed)?;
    let mut conversion = Conversion::new(context, &dataset, snapshot.as_ref(), options, found.faults)?;
    let mut report = if sorted.fresh.is_empty() { conversion.report() } else { conversion.run(sorted.fresh)? };
    report.sources_unchanged = sorted.unchanged;
    report.sources_changed = sorted.changed;
    report.files_passed_over = passed_over;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

struct Conversion<'a> {
    context: &'a Context<'a>,
    dataset: &'a Dataset,
    snapshot: Option<&'a Snapshot>,
    options: &'a ConvertOptions,
    /// Places that could not be listed; each counts as a rejected record.
    faults: Vec<Error>,
    settings: Settings,
    planned_on: Version,
}

/// The inputs, ready to be read.
enum Prepared {
    Records { sources: Vec<RecordSource>, fields: Fields },
    Samples { files: Vec<SourceFile>, samples: Samples },
}

impl Prepared {
    fn files(&self) -> Box<dyn Iterator<Item = &SourceFile> + '_> {
        match self {
            Self::Records { sources, .. } => Box::new(sources.iter().map(|source| &source.file)),
            Self::Samples { files, .. } => Box::new(files.iter()),
        }
    }
}

impl<'a> Conversion<'a> {
    fn new(
        context: &'a Context<'a>,
        dataset: &'a Dataset,
        snapshot: Option<&'a Snapshot>,
        options: &'a ConvertOptions,
        faults: Vec<Error>,
    ) -> Result<Self> {
        let old = snapshot.map(|s| &s.entry().settings);
        if let (Some(old), Some(to)) = (old, options.to)
            && old.shard_format != to
        {
            return Err(Error::usage(format!(
                "expected shards of {}, as this dataset has, found {to}",
                old.shard_format
            ))
            .at(dataset.store().location().to_string())
            .hint("name another dataset with --out"));
        }
        let format = options.to.or(old.map(|o| o.shard_format)).unwrap_or(OutputFormat::Parquet);
        let id = if options.id.is_empty() { old.map(|o| o.id.clone()).unwrap_or_default() } else { options.id.clone() };
        let settings = Settings {
            shard_format: format,
            codec: options.codec.or(old.map(|o| o.codec)).unwrap_or_else(|| format.default_codec()),
            target_shard: options.target_shard.or(old.map(|o| o.target_shard)).unwrap_or(Size::mib(128)),
            row_group: options.row_group.or(old.map(|o| o.row_group)).unwrap_or(Size::mib(64)),
            id,
            subject: options.subject.clone().or_else(|| old.and_then(|o| o.subject.clone())),
        };
        if settings.target_shard.0 == 0 {
            return Err(Error::usage("expected a --target-shard of at least one byte, found 0"));
        }
        if settings.row_group > Size::mib(128) {
            return Err(Error::usage(format!(
                "expected a --row-group of at most 128 MiB, found {}",
                settings.row_group
            ))
            .hint("readers decode a row group at once; larger ones exhaust their memory"));
        }
        let planned_on = snapshot.map_or(Version(0), Snapshot::version);
        Ok(Self { context, dataset, snapshot, options, faults, settings, planned_on })
    }

    fn report(&self) -> ConvertReport {
        ConvertReport {
            dataset: self.dataset.store().location().to_string(),
            version: self.snapshot.map(Snapshot::version),
            dry_run: self.options.dry_run,
            format: self.settings.shard_format,
            codec: self.settings.codec,
            folder: None,
            counts: Counts {
                records_in: self.faults.len() as u64,
                records_rejected: self.faults.len() as u64,
                ..Counts::default()
            },
            sources: 0,
            sources_unchanged: 0,
            sources_changed: 0,
            files_passed_over: 0,
            blank_lines: 0,
            records_padded: 0,
            rejects: None,
            memory_bytes: 0,
            estimate: None,
            columns: Vec::new(),
            seconds: 0.0,
        }
    }

    fn run(&mut self, fresh: Vec<SourceFile>) -> Result<ConvertReport> {
        let total: u64 = fresh.iter().map(SourceFile::bytes).sum();
        let count = fresh.len() as u64;
        let mut prepared = self.prepare(fresh)?;
        self.settings.shard_format.check_codec(self.settings.codec)?;
        let memory = self.memory();
        self.check_sizes(&prepared, memory)?;
        let naming = ShardNaming {
            tag: self.tag(&prepared, memory)?,
            format: self.settings.shard_format,
            codec: self.settings.codec,
        };
        let mut report = self.report();
        report.sources = count;
        report.memory_bytes = memory.estimate();
        report.counts.bytes_in = total;
        if self.options.dry_run {
            report.folder = Some(naming.tag);
            report.columns = columns(&prepared);
            report.estimate = Some(self.estimate(&prepared)?);
            return Ok(report);
        }
        self.dataset.prove_store()?;
        let transaction = TransactionId::fresh();
        let _lock = self.dataset.store().lock(&naming.tag)?;
        let attempt = self.attempts(&mut prepared, &naming, memory, &transaction, total)?;
        report.columns = columns(&prepared);
        self.commit(&prepared, naming, transaction, attempt, report)
    }

    fn memory(&self) -> MemoryPlan {
        MemoryPlan::new(
            self.context.memory,
            self.context.jobs,
            self.settings.shard_format,
            self.settings.target_shard,
            self.settings.row_group,
        )
    }

    fn prepare(&mut self, fresh: Vec<SourceFile>) -> Result<Prepared> {
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
        let remote = fresh.iter().any(SourceFile::is_remote);
        let prepared = match opening(remote, || classify(fresh, &sniff))?? {
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
                let samples = files::group(&files);
                Prepared::Samples { files, samples }
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

    fn united(&self, fields: &[Fields]) -> Fields {
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
                sources[0].file.uri(),
                names(&fields[other]).join(", ")
            ))
            .at(sources[other].file.uri())
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
    fn check_sizes(&self, prepared: &Prepared, memory: MemoryPlan) -> Result<()> {
        let Prepared::Samples { files, samples } = prepared else { return Ok(()) };
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

    /// Name of the folder for the new shards: a hash of what goes in and of every option that decides what comes out,
    /// so that the same run writes the same names.
    fn tag(&self, prepared: &Prepared, memory: MemoryPlan) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        prepared.files().for_each(|file| {
            add(file.name());
            add(&file.bytes().to_string());
            add(file.etag().unwrap_or_default());
        });
        for (name, value) in self.arguments(memory) {
            add(&name);
            add(&value);
        }
        let tag = hasher.finalize().to_hex()[..12].to_owned();
        // The same inputs converted once more into the same dataset must not overwrite what is there.
        let used = |tag: &str| -> Result<bool> {
            let Some(snapshot) = self.snapshot else { return Ok(false) };
            Ok(snapshot.runs()?.all().iter().any(|r| r.shard.split('/').next() == Some(tag)))
        };
        let mut unique = tag.clone();
        let mut serial = 2;
        while used(&unique)? {
            unique = format!("{tag}-{serial}");
            serial += 1;
        }
        Ok(unique)
    }

    fn arguments(&self, memory: MemoryPlan) -> BTreeMap<String, String> {
        let options = self.options;
        let mut out = BTreeMap::new();
        let mut set = |name: &str, value: String| {
            if !value.is_empty() {
                out.insert(name.to_owned(), value);
            }
        };
        set("to", self.settings.shard_format.to_string());
        set("codec", self.settings.codec.to_string());
        set("target-shard", self.settings.target_shard.0.to_string());
        set("row-group", self.settings.row_group.0.to_string());
        set("split", memory.split_bytes.to_string());
        set("unit", memory.unit_bytes.to_string());
        set("id", self.settings.id.join(","));
        set("subject", self.settings.subject.clone().unwrap_or_default());
        set("from", options.from.map_or_else(String::new, |f| f.name().to_owned()));
        set("null", options.null.clone().unwrap_or_default());
        set("delimiter", options.delimiter.map_or_else(String::new, |d| char::from(d).to_string()));
        set("no-header", if options.no_header { "true".into() } else { String::new() });
        set("type", options.types.iter().map(|(name, t)| format!("{name}={t}")).collect::<Vec<_>>().join(","));
        out
    }

    /// Runs the pipeline until every value fits its column.
    fn attempts(
        &self,
        prepared: &mut Prepared,
        naming: &ShardNaming,
        memory: MemoryPlan,
        transaction: &TransactionId,
        total: u64,
    ) -> Result<Attempt> {
        let observer = self.context.observer;
        loop {
            observer.event(Event::Phase { name: "converting", bytes: Some(total) });
            let rejects = self.rejects_file(transaction)?;
            let faults = self.faults.len() as u64;
            let tally = Mutex::new(Tally { records_in: faults, rejected: faults, ..Tally::default() });
            let result = self.pipeline(prepared, naming, memory, transaction, rejects.as_ref(), &tally);
            let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(converted) => {
                    let rejects = match rejects {
                        Some(file) if tally.rejected > 0 => {
                            Some(file.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?)
                        }
                        _ => None,
                    };
                    return Ok(Attempt { converted, tally, rejects });
                }
                Err(error) => {
                    match (tally.misfit, &mut *prepared) {
                        (Some((source, misfit)), Prepared::Records { sources, fields }) => {
                            observer.event(Event::Note(format!(
                            "{}: column `{}` was taken for {} but holds `{}`; looking at all values and starting again",
                            sources[source].file.name(), misfit.column, misfit.expected, misfit.value
                        )));
                            observer.event(Event::Phase { name: "inferring types", bytes: Some(total) });
                            let seen = infer_all(sources, memory, self.context.jobs, observer, &self.context.cancel)?;
                            let wider = unite_lists(fields, &self.united(&seen));
                            let wider = self.united(&[wider]);
                            // The types seen already allow for everything: only text can hold this value.
                            let wider = if wider == *fields { force_text(&wider, &misfit.column) } else { wider };
                            if wider == *fields {
                                return Err(error);
                            }
                            *fields = wider;
                        }
                        _ => return Err(error),
                    }
                }
            }
        }
    }

    /// Encodes the first records of each source to see what becomes of a byte.
    fn estimate(&self, prepared: &Prepared) -> Result<Estimate> {
        let (records, bytes) = match prepared {
            Prepared::Records { sources, fields } => self.estimate_tables(sources, fields)?,
            Prepared::Samples { files, samples } => {
                let framing = if self.settings.shard_format == OutputFormat::Tar { 768 } else { 32 };
                (samples.len() as u64, files.iter().map(|file| file.bytes() + framing).sum())
            }
        };
        let shards = bytes.div_ceil(self.settings.target_shard.0);
        Ok(Estimate { records, bytes, shards })
    }

    fn estimate_tables(&self, sources: &[RecordSource], fields: &Fields) -> Result<(u64, u64)> {
        let schema = schema_of(fields);
        let encoder =
            Encoder::new(self.settings.shard_format, self.settings.codec, &schema, self.settings.id.clone(), None)?;
        let (mut records, mut bytes) = (0.0, 0.0);
        for (source, facts) in sources.iter().zip(table_facts(sources)) {
            let Some(sample) = &source.sample else { continue };
            let Ok(Parsed::Block(block)) = source.reader.parse(sample, &schema) else { continue };
            // Of a compressed source only the size as stored is known.
            let after_header = source.file.bytes().saturating_sub(sample.offset) as f64;
            let scale = (after_header / (sample.bytes_in() as f64).max(1.0)).max(1.0);
            records += block.payload.len() as f64 * scale;
            let piece = Piece {
                payload: block.payload,
                source: facts.name,
                rows: (1..).take(block.rows.len()).collect(),
                hashes: block.hashes,
            };
            let unit = Unit { number: 0, pieces: vec![piece], starts_shard: false, bytes_in: 0 };
            bytes += scale
                * match encoder.encode(unit)?.body {
                    Body::RowGroup(group) => group.encoded_bytes as f64,
                    Body::Stream { bytes, .. } => bytes.len() as f64,
                };
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive estimates")]
        Ok((records.round() as u64, bytes.round() as u64))
    }

    fn rejects_file(&self, transaction: &TransactionId) -> Result<Option<RejectsFile>> {
        if self.options.on_error != OnError::Quarantine {
            return Ok(None);
        }
        let file = Mutex::new(self.dataset.store().create(&rejects_path(transaction))?);
        self.faults.iter().try_for_each(|fault| reject_fault(&file, fault))?;
        Ok(Some(file))
    }

    fn pipeline(
        &self,
        prepared: &Prepared,
        naming: &ShardNaming,
        memory: MemoryPlan,
        transaction: &TransactionId,
        rejects: Option<&RejectsFile>,
        tally: &Mutex<Tally>,
    ) -> Result<Converted> {
        let reading;
        let (schema, facts, work) = match prepared {
            Prepared::Records { sources, fields } => {
                let schema = schema_of(fields);
                (Arc::clone(&schema), table_facts(sources), Work::Records { sources, schema })
            }
            Prepared::Samples { files, samples } => {
                let schema = schema_of_samples(&files::column_names(files));
                reading = Reading::new(files, samples, memory, self.context.jobs);
                let name = Arc::new(SourceName { name: String::new(), key: String::new(), columns: None });
                let facts = files.first().map(|file| SourceFacts { name, file: file.clone() });
                (schema, facts.into_iter().collect(), Work::Samples { files, samples, reading: &reading })
            }
        };
        let ids = if matches!(prepared, Prepared::Records { .. }) { self.settings.id.clone() } else { Vec::new() };
        for column in ids.iter().chain(&self.settings.subject) {
            if matches!(prepared, Prepared::Records { .. }) && schema.field_with_name(column).is_err() {
                return Err(Error::usage("no source has this column").column(column.clone()));
            }
        }
        let subject = self.settings.subject.clone().filter(|_| matches!(prepared, Prepared::Records { .. }));
        let encoder = Encoder::new(self.settings.shard_format, self.settings.codec, &schema, ids, subject)?;
        let pipeline = Pipeline {
            store: self.dataset.store(),
            encoder: &encoder,
            naming: naming.clone(),
            target: self.settings.target_shard.0,
            memory,
            jobs: self.context.jobs,
            on_error: self.options.on_error,
            rejects,
            facts: &facts,
            transaction,
            observer: self.context.observer,
            cancel: &self.context.cancel,
        };
        run(&pipeline, &work, tally)
    }

    fn commit(
        &self,
        prepared: &Prepared,
        naming: ShardNaming,
        transaction: TransactionId,
        attempt: Attempt,
        mut report: ConvertReport,
    ) -> Result<ConvertReport> {
        let Attempt { converted, tally, rejects } = attempt;
        let mut staged: Vec<Staged> = Vec::with_capacity(2 * converted.shards.len() + 1);
        let mut adds: Vec<NewShard> = Vec::with_capacity(converted.shards.len());
        for finished in converted.shards {
            staged.extend(finished.staged);
            adds.push(finished.shard);
        }
        report.rejects = rejects.as_ref().map(|r| r.path.clone());
        staged.extend(rejects);
        report.counts = Counts {
            records_in: tally.records_in,
            records_out: converted.records,
            records_rejected: tally.rejected,
            records_deduplicated: 0,
            bytes_in: tally.bytes_in.max(report.counts.bytes_in),
            bytes_out: adds.iter().map(|s| s.meta.bytes).sum(),
            shards_added: adds.len() as u64,
            shards_removed: 0,
        };
        report.counts.reconcile()?;
        report.blank_lines = tally.blank_lines;
        report.records_padded = tally.padded;
        report.folder = Some(naming.tag.clone());
        let memory = self.memory();
        self.context.cancel.check()?;
        self.dataset.store().publish(staged)?;
        let transaction = Transaction {
            id: transaction,
            operation: "convert",
            arguments: self.arguments(memory),
            counts: report.counts,
            settings: self.settings.clone(),
            adds,
            removes: Vec::new(),
            segments: converted.segments,
            sources: &Fresh { prepared, tally: &tally },
            numbers: Numbers::Fresh(converted.records),
        };
        let snapshot = commit(self.dataset, &transaction, self.planned_on)?;
        report.version = Some(snapshot.version());
        Ok(report)
    }
}

/// Sources of a run as the dataset will know them.
struct Fresh<'a> {
    prepared: &'a Prepared,
    tally: &'a Tally,
}

impl NewSources for Fresh<'_> {
    fn rows(&self) -> Box<dyn Iterator<Item = SourceRow> + '_> {
        let row = |file: &SourceFile, tally: &SourceTally| SourceRow {
            uri: file.uri(),
            name: file.name().to_owned(),
            bytes: file.bytes(),
            modified: file.modified(),
            etag: file.etag().map(str::to_owned),
            hash: tally.hash,
            records: tally.records,
            first_record: tally.first_record,
            version: Version(0),
        };
        match self.prepared {
            Prepared::Records { sources, .. } => {
                Box::new(sources.iter().zip(&self.tally.sources).map(move |(source, tally)| row(&source.file, tally)))
            }
            // Each file is read once, as part of its sample; its own hash is not worth reading it again. A touched
            // file counts as changed.
            Prepared::Samples { files, .. } => {
                Box::new(files.iter().map(move |file| row(file, &SourceTally::default())))
            }
        }
    }
}

struct Attempt {
    converted: Converted,
    tally: Tally,
    rejects: Option<Staged>,
}

fn rejects_path(transaction: &TransactionId) -> String {
    format!("{SYSTEM_FOLDER}/rejects/{transaction}.jsonl")
}

/// Makes the column that a value did not fit text, or JSON text when it has structure.
fn force_text(fields: &Fields, column: &str) -> Fields {
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

/// Names of tables and of the keys of their rows: the name without extension where that is unique.
fn table_facts(sources: &[RecordSource]) -> Vec<SourceFacts> {
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
            SourceFacts { name: Arc::new(SourceName { name, key, columns }), file: source.file.clone() }
        })
        .collect()
}

fn columns(prepared: &Prepared) -> Vec<(String, String)> {
    let fields = match prepared {
        Prepared::Records { fields, .. } => schema::settle(fields),
        Prepared::Samples { files, .. } => schema_of_samples(&files::column_names(files)).fields().clone(),
    };
    fields
        .iter()
        .map(|f| (f.name().clone(), if schema::is_json(f) { "json".to_owned() } else { f.data_type().to_string() }))
        .collect()
}
