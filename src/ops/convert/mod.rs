//! `convert`: sources become shards of a dataset.
//!
//! Scan, sort out what is already there, tell tables from files, look at the types, plan, run the pipeline, publish,
//! commit. When a value turns up that does not fit the types seen in the samples, all tables are looked at in full and
//! the run starts again with types that every value fits; nothing of the first attempt is kept.

mod consent;
mod conversion;
mod estimate;
mod naming;
mod options;
mod prepare;
mod replace;
mod report;
mod sources;
mod subjects;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use arrow::datatypes::{Fields, SchemaRef};

use self::{
    conversion::Conversion,
    prepare::{Prepared, force_binary, source_facts},
    sources::Fresh,
};
pub use self::{
    options::{Accept, ConvertOptions, OnSchema, SubjectSource},
    report::{ConvertReport, Estimate},
};
use super::{
    Context, indexes,
    inputs::{self},
    lineage,
    names::{Choices, Naming},
    revision,
};
use crate::{
    array::outputs,
    dataset::{
        Counts, Dataset, Hiding, NewShard, Numbers, Publication, Retraction, Revision, Settings, Snapshot,
        SuppressList, Transaction, choose_private, note_beside,
    },
    error::{Error, Result},
    events::Event,
    exec::{
        constants,
        convert::{Converted, Pipeline, Reading, Work, infer_all, run},
        encode::{Encoder, RowsAs, SourceName},
        gather::{OnError, SourceFacts, Tally},
        index::wids_list,
        live,
        names::PartsGate,
        rejects::RejectsFile,
        shard::ShardNaming,
        suppress::SuppressGate,
        types,
    },
    format::{Misfit, OutputFormat, index::IndexKind},
    id::{TransactionId, Version},
    plan::{memory::MemoryPlan, names::OnMissing},
    record::{parts::KEY_COLUMN, path::field_at},
    scan::{self, Found, InputFormat, ScanOptions, SourceFile, TableFormat},
    schema::{self, unite_lists},
    storage::{Location, SYSTEM_FOLDER, Staged, plain_urls},
    units::Size,
};

/// Converts sources into a dataset.
///
/// # Errors
/// Usage, bad input, conflict, storage; nothing is committed then.
pub fn convert(context: &Context<'_>, out: &Location, options: &ConvertOptions) -> Result<ConvertReport> {
    let started = Instant::now();
    let dataset = context.dataset(out)?;
    let snapshot = dataset.latest()?;
    let result = convert_onto(context, (out, &dataset, snapshot.as_ref()), options);
    let mut report = super::or_overtaken_since(&dataset, snapshot.as_ref(), result)?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Converts sources into a dataset whose newest snapshot is given.
fn convert_onto(
    context: &Context<'_>,
    (out, dataset, snapshot): (&Location, &Dataset, Option<&Snapshot>),
    options: &ConvertOptions,
) -> Result<ConvertReport> {
    if !options.dry_run {
        super::erase::finish_cut_short(context, snapshot)?;
    }
    let (mut found, live) = find(context, out, options)?;
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
    let suppress = snapshot.map(SuppressList::of).transpose()?.flatten();
    let files = found.files.len();
    if let Some(list) = &suppress {
        found.files.retain(|file| !list.has_source(&file.uri()));
    }
    let erased = (files - found.files.len()) as u64;
    let mut sorted = inputs::sort(context, found.files, snapshot, (options.identity, options.on_changed))?;
    let mut conversion = Conversion::new(context, dataset, snapshot, options, found.faults)?;
    conversion.suppress = suppress;
    conversion.live = live;
    conversion.sources_erased = erased;
    conversion.replaced = std::mem::take(&mut sorted.replaced);
    let mut report = if sorted.fresh.is_empty() { conversion.idle()? } else { conversion.run(sorted.fresh)? };
    report.sources_unchanged = sorted.unchanged;
    report.sources_changed = sorted.changed;
    report.sources_moved = sorted.moved;
    report.files_passed_over = passed_over;
    Ok(report)
}

/// The name that standard input has among sources.
const STDIN: &str = "-";

/// Finds the inputs, standard input among them.
fn find(context: &Context<'_>, out: &Location, options: &ConvertOptions) -> Result<(Found, Vec<inputs::Live>)> {
    let scan_options = ScanOptions {
        include: options.include.clone(),
        exclude: options.exclude.clone(),
        dataset: Some(out.clone()),
        memory: context.memory,
    };
    let (streams, named): (Vec<String>, Vec<String>) = options.sources.iter().cloned().partition(|s| s == STDIN);
    let mut found = Found::default();
    if !named.is_empty() {
        found = scan::scan(&named, &context.folder, &context.settings, &scan_options)?;
    }
    let mut live = Vec::new();
    scan::refuse_foreign(&found.tables, &found.files)?;
    for table in found.tables.iter().filter(|table| table.format == TableFormat::Dataset) {
        let Some(dataset) = inputs::Live::of(context, &table.root)? else { continue };
        found.passed_over += dataset.keep(&mut found.files);
        live.push(dataset);
    }
    if !streams.is_empty() {
        match options.from {
            None => return Err(Error::usage("expected --from beside `-`, for standard input has no name to go by")),
            Some(InputFormat::Files) => {
                return Err(Error::usage("expected records from standard input, found --from files"));
            }
            Some(_) => found.files.push(SourceFile::of_stream("stdin", (context.stdin)())?),
        }
    }
    if let Some(SubjectSource::Table { place, .. }) = &options.subjects {
        // It may lie among what it is about.
        let table = subjects::table_file(context, place)?.uri();
        let files = found.files.len();
        found.files.retain(|file| file.uri() != table);
        found.passed_over += (files - found.files.len()) as u64;
    }
    if options.from != Some(InputFormat::Files) {
        found.passed_over += scan::pass_over_companions(&mut found.files);
    }
    if found.files.is_empty() && found.faults.is_empty() {
        return Err(Error::usage("expected something to convert, found no files")
            .at(plain_urls(&options.sources.join(" ")))
            .hint("name a file or folder, or check --include and --exclude"));
    }
    Ok((found, live))
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
            subjects_from: match &options.subjects {
                Some(source) => Some(source.kept()),
                None => old.and_then(|o| o.subjects_from.clone()),
            },
            indexes: old.map(|o| o.indexes.clone()).unwrap_or_default(),
            private: choose_private(old, options.private, context.id_key.as_ref())
                .map_err(|error| error.at(dataset.store().location().to_string()))?,
        };
        let hiding = Hiding::of(&settings, context.id_key.as_ref())?;
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
        Ok(Self {
            context,
            dataset,
            snapshot,
            options,
            faults,
            settings,
            hiding,
            live: Vec::new(),
            constants: None,
            prescribed: None,
            naming: Naming::default(),
            suppress: None,
            resolver: None,
            sources_erased: 0,
            samples_similar: 0,
            replaced: HashSet::new(),
            planned_on,
        })
    }

    fn check_names(&mut self, prepared: &mut Prepared, memory: MemoryPlan) -> Result<Naming> {
        let files = match &*prepared {
            Prepared::Samples { files, samples, .. } => Some((samples, files.as_slice())),
            Prepared::Records { .. } => None,
        };
        let asked = self.options.index.is_some() || (files.is_some() && self.snapshot.is_some());
        let choices = Choices { on_name: self.options.on_name, missing: self.options.missing, asked };
        let mut naming = Naming::plan(files, &mut self.settings, choices, self.context.observer)?;
        if self.options.missing != OnMissing::Keep && prepared.gives_samples() && naming.parts.is_none() {
            naming.parts = self.parts_of_records(prepared, memory)?;
        }
        Ok(naming)
    }

    /// Which parts samples in archives should have is known only once all of them were looked at.
    fn parts_of_records(&self, prepared: &mut Prepared, memory: MemoryPlan) -> Result<Option<PartsGate>> {
        let Prepared::Records { sources, fields } = prepared else { return Ok(None) };
        let observer = self.context.observer;
        observer.event(Event::Phase { name: "looking at parts", bytes: None });
        let seen = infer_all(sources, memory, self.context.jobs, observer, &self.context.cancel)?;
        *fields = unite_lists(fields, &self.united(&seen, sources));
        let mut all: Vec<String> = fields.iter().map(|f| f.name().clone()).filter(|name| name != KEY_COLUMN).collect();
        all.sort_unstable();
        Ok(Some(PartsGate { all, skip: self.options.missing == OnMissing::Skip }))
    }

    /// Nothing is new; indexes that a killed run left behind are brought up to date.
    fn idle(&self) -> Result<ConvertReport> {
        self.indexes()?;
        if let Some(snapshot) = self.snapshot.filter(|_| !self.options.dry_run) {
            live::refresh(snapshot, None)?;
        }
        Ok(self.report())
    }

    fn indexes(&self) -> Result<Vec<IndexKind>> {
        let old = self.snapshot.map(|s| s.entry().settings.indexes.as_slice());
        indexes::choose(self.options.index.as_deref(), old, self.settings.shard_format, self.settings.codec)
    }

    fn report(&self) -> ConvertReport {
        ConvertReport {
            dataset: self.dataset.store().location().to_string(),
            version: self.snapshot.map(Snapshot::version),
            dry_run: self.options.dry_run,
            format: self.settings.shard_format,
            codec: self.settings.codec,
            indexes: self.settings.indexes.clone(),
            folder: None,
            counts: Counts {
                records_in: self.faults.len() as u64,
                records_rejected: self.faults.len() as u64,
                ..Counts::default()
            },
            sources: 0,
            sources_unchanged: 0,
            sources_changed: 0,
            sources_moved: 0,
            sources_erased: self.sources_erased,
            shards_rewritten: 0,
            files_passed_over: 0,
            samples_renamed: self.naming.checked.renamed,
            samples_incomplete: self.naming.checked.incomplete,
            entries_passed_over: 0,
            blank_lines: 0,
            records_padded: 0,
            records_repaired: 0,
            lines_skipped: 0,
            ids_repeated: 0,
            records_similar: 0,
            rejects: None,
            memory_bytes: 0,
            estimate: None,
            columns: Vec::new(),
            seconds: 0.0,
        }
    }

    fn run(&mut self, fresh: Vec<SourceFile>) -> Result<ConvertReport> {
        let total: u64 = fresh.iter().map(SourceFile::bytes).sum();
        if let Some(old) = self.snapshot {
            self.check_settings(&old.entry().settings)?;
        }
        self.resolver = self.resolver()?;
        let mut prepared = self.prepare(fresh)?;
        self.check_subjects(&prepared)?;
        self.check_alike(&prepared)?;
        if prepared.files().next().is_none() {
            return self.idle();
        }
        self.settings.shard_format.check_codec(self.settings.codec)?;
        self.settings.indexes = self.indexes()?;
        let memory = self.memory();
        self.naming = self.check_names(&mut prepared, memory)?;
        self.check_sizes(&prepared, memory)?;
        self.fit_shapes(&mut prepared)?;
        self.constants = prepared.constants(&self.live)?;
        let transaction = TransactionId::fresh();
        let naming = ShardNaming {
            tag: transaction.tag().to_owned(),
            format: self.settings.shard_format,
            codec: self.settings.codec,
            indexes: self.settings.indexes.clone(),
        };
        let mut report = self.report();
        report.sources = prepared.files().count() as u64;
        report.memory_bytes = memory.estimate();
        report.counts.bytes_in = total;
        if self.options.dry_run {
            report.columns = self.columns(&prepared);
            report.estimate = Some(self.estimate(&prepared)?);
            return Ok(report);
        }
        self.dataset.prove_store()?;
        let publication = Publication::begin(self.dataset, &transaction, "convert", self.planned_on)?;
        let attempt = self.attempts(&mut prepared, &naming, memory, &transaction, total)?;
        report.columns = self.columns(&prepared);
        self.commit(&prepared, naming, publication, attempt, report)
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
                        Some(file) if tally.rejected > 0 => Some(file.finish()?),
                        _ => None,
                    };
                    return Ok(Attempt { converted, tally, rejects });
                }
                Err(error) => match (&tally.misfit, &mut *prepared) {
                    (Some((source, misfit)), prepared) => {
                        if !self.widen(prepared, *source, misfit, memory)? {
                            return Err(error);
                        }
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    /// Finds types that hold a value which did not fit; false when there are none.
    fn widen(&self, prepared: &mut Prepared, source: usize, misfit: &Misfit, memory: MemoryPlan) -> Result<bool> {
        let observer = self.context.observer;
        let (sources, fields) = match prepared {
            Prepared::Records { .. } if self.given_columns().contains(&misfit.column) => return Ok(false),
            Prepared::Records { .. } if self.prescribed.is_some() => return Ok(false),
            Prepared::Records { sources, fields } => (sources, fields),
            // The name of a part promised text, and the content is something else.
            Prepared::Samples { fields, .. } => {
                let wider = force_binary(fields, &misfit.column);
                let changed = wider != *fields;
                *fields = wider;
                return Ok(changed);
            }
        };
        observer.event(Event::Note(format!(
            "{}: column `{}` was taken for {} but holds `{}`; looking at all values and starting again",
            sources[source].file.name(),
            misfit.column,
            misfit.expected,
            misfit.value
        )));
        observer.event(Event::Phase { name: "inferring types", bytes: None });
        let seen = infer_all(sources, memory, self.context.jobs, observer, &self.context.cancel)?;
        let wider = unite_lists(fields, &self.united(&seen, sources));
        let wider = self.united(&[wider], sources);
        // The types seen already allow for everything: only text can hold this value.
        let wider = if wider == *fields { schema::force_text(&wider, &misfit.column) } else { wider };
        let changed = wider != *fields;
        *fields = wider;
        Ok(changed)
    }

    fn rejects_file(&self, transaction: &TransactionId) -> Result<Option<RejectsFile>> {
        if self.options.on_error != OnError::Quarantine {
            return Ok(None);
        }
        let file = RejectsFile::new(self.dataset.store().create(&rejects_path(transaction))?, self.hiding.clone());
        self.faults.iter().try_for_each(|fault| file.fault(1, 1, fault))?;
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
        let schema = self.schema(prepared);
        let (facts, work) = match prepared {
            Prepared::Records { sources, .. } => {
                (source_facts(sources, self.resolver.as_ref()), Work::Records { sources, schema: Arc::clone(&schema) })
            }
            Prepared::Samples { files, samples, hashes, .. } => {
                reading = Reading::new(files, samples, memory, self.context.jobs);
                let name =
                    Arc::new(SourceName { name: String::new(), key: String::new(), columns: None, subject: None });
                let facts = files.first().map(|file| SourceFacts {
                    name,
                    file: file.clone(),
                    hashes_bytes: false,
                    by_row: false,
                    blank_lines: 0,
                    note: None,
                });
                (
                    facts.into_iter().collect(),
                    Work::Samples {
                        files,
                        samples,
                        reading: &reading,
                        left_out: &self.naming.checked.left_out,
                        hashes,
                    },
                )
            }
        };
        let encoder = self.encoder(prepared, &schema)?;
        let suppress = self.suppress.as_ref().map(|list| SuppressGate {
            list,
            id: self.id_columns(prepared, &schema),
            subject: self.settings.subject.clone(),
            normalize: self.options.id_normalize,
            similar: AtomicU64::new(0),
        });
        let given = self.given_columns();
        let pipeline = Pipeline {
            given: &given,
            store: self.dataset.store(),
            encoder: &encoder,
            naming: naming.clone(),
            target: self.settings.target_shard.0,
            memory,
            jobs: self.context.jobs,
            on_error: self.options.on_error,
            names: self.naming.gate.as_ref(),
            parts: self.naming.parts.as_ref(),
            subjects: self.resolver.as_ref(),
            suppress: suppress.as_ref(),
            rejects,
            facts: &facts,
            transaction,
            observer: self.context.observer,
            cancel: &self.context.cancel,
        };
        let converted = run(&pipeline, &work, tally)?;
        if let Some(gate) = &suppress {
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.similar = gate.similar.load(Ordering::Relaxed);
        }
        Ok(converted)
    }

    fn encoder(&self, prepared: &Prepared, schema: &SchemaRef) -> Result<Encoder> {
        let mut ids = self.id_columns(prepared, schema);
        let mut subject = self.settings.subject.clone().filter(|_| !prepared.gives_samples());
        if schema.fields().is_empty() {
            // All sources are empty, or have nothing but a header.
            (ids, subject) = (Vec::new(), None);
        }
        if let Some(column) = ids.iter().chain(&subject).find(|c| field_at(schema.fields(), c).is_none()) {
            return Err(Error::usage("no source has this column").column(column));
        }
        let encoder = Encoder::new(self.settings.shard_format, self.settings.codec, schema, ids, subject)?;
        Ok(encoder
            .with_rows(self.rows_as(schema))
            .renaming(self.naming.renaming)
            .with_external_subjects(self.resolver.is_some())
            .hiding(self.hiding.clone()))
    }

    /// Revisions that the sources are of; each repository once.
    fn revisions(&self) -> Vec<Revision> {
        let sources = self.options.sources.iter().filter(|source| *source != STDIN);
        let folders = sources.filter_map(|source| lineage::source_folder_or_file(self.context, source));
        revision::all(folders, self.hiding.as_ref())
    }

    /// Columns whose types the shards do not tell.
    fn fields_to_keep(&self, prepared: &Prepared) -> Option<Fields> {
        let schema = self.schema(prepared);
        let untold = match self.settings.shard_format {
            OutputFormat::Parquet => false,
            OutputFormat::Tar => self.rows_as(&schema) == RowsAs::Json,
            OutputFormat::TfRecord => true,
        };
        let fields = || match self.rows_as(&schema) {
            RowsAs::Tensors => outputs::feature_fields(schema.fields()),
            RowsAs::Json | RowsAs::Parts => schema.fields().clone(),
        };
        (untold && !prepared.gives_samples()).then(fields)
    }

    fn commit(
        &self,
        prepared: &Prepared,
        naming: ShardNaming,
        mut publication: Publication<'_>,
        attempt: Attempt,
        mut report: ConvertReport,
    ) -> Result<ConvertReport> {
        let Attempt { converted, tally, rejects } = attempt;
        let store = self.dataset.store().as_ref();
        let mut staged: Vec<Staged> = wids_list(store, &converted.shards)?.into_iter().collect();
        if let Some(fields) = self.fields_to_keep(prepared).filter(|_| !converted.shards.is_empty()) {
            staged.push(types::stage(store, &naming.tag, &fields)?);
        }
        if let Some(constants) = self.constants.as_ref().filter(|_| !converted.shards.is_empty()) {
            staged.push(constants::stage(store, &naming.tag, constants)?);
        }
        let mut adds: Vec<NewShard> = Vec::with_capacity(converted.shards.len());
        for finished in converted.shards {
            staged.extend(finished.staged);
            adds.push(finished.shard);
        }
        report.rejects = rejects.as_ref().map(|r| r.path.clone());
        staged.extend(rejects);
        staged.extend(converted.segments.staged);
        report.records_similar = tally.similar + self.samples_similar;
        report.ids_repeated = converted.segments.repeated;
        report.counts = Counts {
            records_in: tally.records_in,
            records_out: converted.records,
            records_rejected: tally.rejected,
            records_erased: tally.erased,
            bytes_in: tally.bytes_in.max(report.counts.bytes_in),
            bytes_out: adds.iter().map(|s| s.meta.bytes).sum(),
            shards_added: adds.len() as u64,
            shards_removed: 0,
            ..Counts::default()
        };
        report.counts.reconcile()?;
        report.blank_lines = tally.blank_lines;
        report.records_padded = tally.padded;
        report.records_repaired = tally.repaired;
        report.lines_skipped = tally.skipped_lines;
        report.entries_passed_over = tally.passed_over;
        report.folder = Some(naming.tag.clone());
        let memory = self.memory();
        self.context.cancel.check()?;
        note_beside(adds.iter_mut(), &staged);
        publication.publish(staged)?;
        let database = live::Database::with(self.snapshot, &adds, store, &self.settings.indexes)?;
        let sources = Fresh { prepared, tally: &tally, hiding: self.hiding.as_ref() };
        let transaction = Transaction {
            id: publication.id().clone(),
            operation: "convert",
            arguments: self.arguments(memory),
            revisions: self.revisions(),
            counts: report.counts,
            settings: self.settings.clone(),
            adds,
            removes: Vec::new(),
            segments: converted.segments.refs,
            merges: Vec::new(),
            places: Vec::new(),
            retraction: Retraction::default(),
            sources: &sources,
            numbers: Numbers::Fresh(converted.records),
            calls: 0,
        };
        let snapshot = match self.replaced.is_empty() {
            true => publication.commit(&transaction)?,
            false => self.replace(transaction, publication)?,
        };
        report.shards_rewritten = snapshot.entry().counts.shards_added.saturating_sub(report.counts.shards_added);
        report.counts = snapshot.entry().counts;
        report.version = Some(snapshot.version());
        live::refresh(&snapshot, database)?;
        Ok(report)
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
