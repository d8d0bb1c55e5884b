//! Adoptions in tasks: files are read by any number of processes, and become shards in one commit.
//!
//! The plan has a row per file, in the order of the tasks. A task detects the formats of its files again, writes their
//! sidecars, and links or copies the files unless they stay in place. The outcomes are stacked as those of a
//! conversion.

use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{
    AdoptCommitParts, AdoptOptions, AdoptReport, Adoption, Detected, SkippedFile, adopt_arguments, dataset_location,
};
use crate::{
    dataset::{
        Damage, Dataset, Operation, Outcome, OutcomeCounts, PlanRecord, PlannedSource, PrivateChoice, Pseudonymizer,
        Publication, Revision, Settings, Snapshot, Transaction, delete_plan, stage_sources,
    },
    error::{Error, Result},
    id::Writer,
    indexes::version,
    ops::{
        Context,
        planned::{self, Planned, TaskRunner},
        stacked::Stacked,
        tasks::{self, Committed, PlanReport, Tasks},
        verify::tasks::check_index,
    },
    plan,
    scan::SourceFile,
    storage::plain_argument,
    units::Size,
};

/// What all tasks of a plan share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdoptWork {
    /// The source, without secrets.
    source: String,
    in_place: bool,
    settings: Settings,
    /// Whether damaged files are skipped.
    skip_errors: bool,
    /// Files that were skipped when the plan was made.
    skipped: Vec<SkippedFile>,
    unchanged: u64,
    ignored: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revisions: Vec<Revision>,
}

impl AdoptWork {
    /// Returns the options that the tasks depend on.
    fn adopt_options(&self, dataset: &Dataset) -> AdoptOptions {
        AdoptOptions {
            source: self.source.clone(),
            out: (!self.in_place).then(|| dataset.store().location().clone()),
            id: self.settings.id.clone(),
            subject: self.settings.subject.clone(),
            include: Vec::new(),
            exclude: Vec::new(),
            hash_records: self.settings.hash_records,
            proofs: self.settings.hashes.has_proofs(),
            private: PrivateChoice::default(),
            skip_errors: self.skip_errors,
        }
    }
}

/// Plans an adoption without running it.
///
/// # Errors
/// As [`adopt_shards`](super::adopt_shards), and if the names of sources are private.
pub fn plan_adoption(context: &Context<'_>, options: &AdoptOptions, task_size: Option<Size>) -> Result<PlanReport> {
    let started = Instant::now();
    let location = dataset_location(context, options)?;
    let dataset = context.open_dataset(&location)?;
    let snapshot = dataset.newest_snapshot()?;
    crate::ops::erase::finish_cut_short(context, snapshot.as_ref())?;
    let mut adoption = Adoption::new(context, options, &location, &dataset, snapshot.as_ref());
    let stored = find_or_store(&mut adoption, task_size.unwrap_or(plan::tasks::DEFAULT_TASK_SIZE));
    let mut report = crate::ops::or_overtaken_since(&dataset, snapshot.as_ref(), stored)?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Stores the plan, or finds an open one of the same files and options.
fn find_or_store(adoption: &mut Adoption<'_>, task_size: Size) -> Result<PlanReport> {
    let Adoption { dataset, snapshot, .. } = *adoption;
    let detected = adoption.new_files()?;
    let mut report = PlanReport::without_tasks(dataset, Operation::Adopt, adoption.report.files_unchanged);
    if detected.is_empty() {
        return Ok(report);
    }
    let (settings, private) = checked_settings(adoption, &detected)?;
    let rows: Vec<PlannedSource> = detected.iter().map(|(file, _)| tasks::row_of(file)).collect();
    let units: Vec<(u64, u64)> = rows.iter().map(|row| (row.bytes, 1)).collect();
    let mut planned = Vec::new();
    tasks::add_tasks(&mut planned, &units, task_size);
    let work = AdoptWork {
        source: plain_argument(&adoption.options.source),
        in_place: adoption.options.out.is_none(),
        settings,
        skip_errors: adoption.options.skip_errors,
        skipped: std::mem::take(&mut adoption.report.skipped),
        unchanged: adoption.report.files_unchanged,
        ignored: adoption.report.files_ignored,
        revisions: adoption.source_revisions(private.as_ref()),
    };
    (report.sources, report.shards) = (rows.len() as u64, rows.len() as u64);
    report.bytes = rows.iter().map(|row| row.bytes).sum();
    let record = tasks::store_plan(dataset, snapshot, Operation::Adopt, work.to_value()?, planned, rows)?;
    report.set_plan(dataset, &record)?;
    Ok(report)
}

/// Returns the settings of the dataset, after all checks that need the whole list of files.
fn checked_settings(
    adoption: &Adoption<'_>,
    detected: &[(SourceFile, Detected)],
) -> Result<(Settings, Option<Pseudonymizer>)> {
    let format = adoption.one_format(detected)?;
    let settings =
        adoption.choose_settings(format, detected[0].1.map_or(crate::codec::Codec::None, |(_, codec)| codec))?;
    if settings.private.as_ref().is_some_and(|private| private.redacted_sources) {
        return Err(Error::usage(
            "expected an adoption that can be cut into tasks, but the names of sources are private in this dataset, \
             and a plan would state them",
        )
        .with_hint("run `shardify adopt` instead"));
    }
    // Names of shards that collide are found now; the paths themselves follow from the attempt.
    adoption.assign_paths(detected.to_vec(), &settings, "0")?;
    let private = Pseudonymizer::from_settings(&settings, adoption.context.id_key.as_ref())?;
    Ok((settings, private))
}

/// Runs the tasks of a plan.
struct AdoptRunner<'a> {
    work: &'a AdoptWork,
    tasks: Tasks<'a>,
    options: AdoptOptions,
    /// The newest version, which has the same erasures as that of the plan.
    newest: Option<Snapshot>,
}

impl TaskRunner for AdoptRunner<'_> {
    fn prepare_write(&self, task: usize) -> Result<planned::TaskWrite<'_>> {
        let Tasks { context, dataset, record } = self.tasks;
        let files = tasks::reopen_files(context, record.sources_of(dataset.store(), task)?, false)?;
        let location = dataset.store().location();
        let mut adoption = Adoption::new(context, &self.options, location, dataset, self.newest.as_ref());
        let detected = adoption.detect_formats(files)?;
        Ok(Box::new(move |writer: &Writer| self.write(task, adoption, detected, writer)))
    }
}

impl AdoptRunner<'_> {
    fn write(
        &self,
        task: usize,
        mut adoption: Adoption<'_>,
        detected: Vec<(SourceFile, Detected)>,
        writer: &Writer,
    ) -> Result<planned::Written> {
        let Self { work, tasks: Tasks { context, dataset, record }, .. } = self;
        let candidates = adoption.assign_paths(detected, &work.settings, &writer.shard_folder())?;
        let adopted = adoption.adopt_candidates(&candidates, &work.settings)?;
        let absent =
            common_absent_columns(adopted.iter().map(|(_, one)| (one.shard.meta.records, one.absent.as_slice())));
        let pseudonymizer = Pseudonymizer::from_settings(&work.settings, context.id_key.as_ref())?;
        let AdoptCommitParts { mut staged, adds, segments, sources, counts } =
            adoption.assemble_commit(adopted, writer, &work.settings, pseudonymizer.as_ref())?;
        let (table, list) = stage_sources(dataset.store().as_ref(), writer, sources.into_iter())?.unzip();
        staged.extend(table);
        let report = &adoption.report;
        let outcome = Outcome {
            records: counts.records_out,
            segments,
            counts,
            others: OutcomeCounts {
                with_id: report.records_with_id,
                with_subject: report.records_with_subject,
                files_copied: report.files_copied,
                ..OutcomeCounts::default()
            },
            sources: list,
            damaged: report.skipped.iter().map(to_damage).collect(),
            absent,
            ..tasks::empty_outcome(record, task, writer)
        };
        Ok(planned::Written { adds, groups: Vec::new(), staged, outcome })
    }
}

/// Returns the columns that are absent from everything that has records, given the records and absent columns of each
/// part; `None` if nothing has records.
fn common_absent_columns<'a>(parts: impl Iterator<Item = (u64, &'a [String])>) -> Option<Vec<String>> {
    let mut with_records = parts.filter(|(records, _)| *records > 0).map(|(_, absent)| absent);
    let first = with_records.next()?.to_vec();
    Some(with_records.fold(first, |all, absent| all.into_iter().filter(|column| absent.contains(column)).collect()))
}

impl Planned for AdoptWork {
    const OPERATION: Operation = Operation::Adopt;
    type Report = AdoptReport;

    fn task_runner<'a>(&'a self, tasks: Tasks<'a>) -> Result<Box<dyn TaskRunner + 'a>> {
        let (options, newest) = (self.adopt_options(tasks.dataset), tasks.dataset.newest_snapshot()?);
        Ok(Box::new(AdoptRunner { work: self, tasks, options, newest }))
    }

    fn commit_outcomes(&self, tasks: Tasks<'_>, outcomes: Vec<Outcome>) -> Result<Committed<AdoptReport>> {
        commit_outcomes(self, tasks, outcomes)
    }
}

/// Commits the outcomes of all tasks.
fn commit_outcomes(
    work: &AdoptWork,
    Tasks { context, dataset, record }: Tasks<'_>,
    outcomes: Vec<Outcome>,
) -> Result<Committed<AdoptReport>> {
    let started = Instant::now();
    if work.in_place {
        check_in_place(dataset, record, &outcomes)?;
    } else {
        tasks::check_present(dataset, record, &outcomes)?;
    }
    outcomes.iter().try_for_each(|outcome| check_index(dataset.store(), &work.settings, outcome))?;
    let parts = outcomes.iter().filter_map(|outcome| Some((1, outcome.absent.as_deref()?)));
    if let Some(column) = common_absent_columns(parts).and_then(|absent| absent.into_iter().next()) {
        return Err(Error::input("expected a feature for ids, found none with this name in any record")
            .at_location(work.source.clone())
            .in_column(column));
    }
    let newest = dataset.newest_snapshot()?;
    let options = work.adopt_options(dataset);
    let location = dataset.store().location();
    let mut report = Adoption::new(context, &options, location, dataset, newest.as_ref()).report;
    let damaged = outcomes.iter().flat_map(|outcome| &outcome.damaged);
    report.skipped = work.skipped.clone();
    report.skipped.extend(damaged.map(to_skipped_file));
    report.files_skipped = report.skipped.len() as u64;
    let mut stacked = Stacked::from_outcomes(dataset, outcomes, 0);
    stacked.counts.reconcile()?;
    context.cancel.check()?;
    let mut settings = work.settings.clone();
    if settings.shard_format.is_columnar() && newest.is_none() {
        // Shards that are added or compacted later use the codec of the existing ones.
        settings.codec = stacked.adds.first().map_or(settings.codec, |first| first.meta.codec);
    }
    let indexes = version::PreparedIndexes::new(dataset, newest.as_ref(), &stacked.adds, &settings.indexes)?;
    let publication = Publication::begin(dataset, &record.id, Operation::Adopt, record.base)?;
    let transaction = Transaction {
        arguments: adopt_arguments(work.in_place, &settings),
        revisions: work.revisions.clone(),
        ..stacked.build_transaction(record, settings, Operation::Adopt)
    };
    let committed = publication.commit(&transaction)?;
    version::refresh_indexes(&committed, indexes, context.observer)?;
    // What is left of the plan is deleted by `vacuum` if this fails.
    let _ = delete_plan(dataset, &record.id, false);
    report.version = Some(committed.version());
    report.format = Some(committed.entry().settings.shard_format);
    report.folder = (!work.in_place).then(|| record.id.short_tag().to_owned());
    report.counts = committed.entry().counts;
    report.files_copied = stacked.others.files_copied;
    (report.files_unchanged, report.files_ignored) = (work.unchanged, work.ignored);
    report.records_with_id = stacked.others.with_id;
    report.records_with_subject = stacked.others.with_subject;
    report.record_ids = report.records_with_id > 0;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(Committed::Version(Box::new(report)))
}

fn to_damage(SkippedFile { file, problem }: &SkippedFile) -> Damage {
    Damage { place: file.clone(), problem: problem.clone() }
}

fn to_skipped_file(Damage { place, problem }: &Damage) -> SkippedFile {
    SkippedFile { file: place.clone(), problem: problem.clone() }
}

/// Fails unless the shards that stay in place are files of the plan which have not changed.
fn check_in_place(dataset: &Dataset, record: &PlanRecord, outcomes: &[Outcome]) -> Result<()> {
    for (task, outcome) in outcomes.iter().enumerate() {
        let rows = record.sources_of(dataset.store(), task)?;
        let planned: HashSet<&str> = rows.iter().map(|row| row.path.as_str()).collect();
        let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
        for shard in &outcome.shards {
            if !planned.contains(shard.path()) {
                return Err(Error::integrity(format!("expected a file of the plan, found `{}`", shard.path())));
            }
            bytes.insert(shard.path(), shard.stored_bytes());
        }
        let expected: Vec<(&str, Option<u64>)> = bytes.into_iter().map(|(path, bytes)| (path, Some(bytes))).collect();
        dataset.store().check_present(&expected)?;
    }
    Ok(())
}
