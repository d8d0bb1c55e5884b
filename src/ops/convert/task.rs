//! Runs one task of a plan: opens its sources, writes its shards, and records its outcome.
//!
//! ```text
//! plan --claim--> names of this attempt --run--> shards, segments --publish--> outcome, created only if absent
//! ```
//!
//! Nothing of it is visible before the plan is committed. An attempt that is killed leaves objects under names that no
//! other attempt uses; an attempt that comes second compares what it wrote with the outcome and deletes it.

use std::collections::{HashMap, HashSet};

use super::{
    classes,
    columns::GivenTypes,
    commit::{ConvertCommitParts, assemble_commit, outcome_counts},
    inputs::{self, Inputs},
    job::ConvertJob,
    label_column, labels,
    plan::{ConvertPlan, with_folder_columns},
    run::{RunAttempt, RunOutput, run_once},
    shuffle,
    sources::Fresh,
    subjects,
    work::{ConvertWork, ScoutedPart},
};
use crate::{
    dataset::{
        NewSources as _, Outcome, PlannedSource, Pseudonymizer, Sealed, Snapshot, SuppressList, TaskMismatch,
        stage_sources,
    },
    error::{Error, Result},
    events::Event,
    exec::{convert::infer_all, gather::Misfit, shard::ShardNaming},
    format::{
        TypeMismatch,
        files::{self, PartContents, SampleFiles},
    },
    id::Writer,
    ops::{
        names::Naming,
        planned::{self, TaskRunner, Written},
        tasks::{self, Tasks},
    },
    plan::memory::MemoryPlan,
    record::split::Splits,
    scan::{Input, RecordSource, SourceFile},
    schema::{unite_lists, wire},
};

/// A plan with what its tasks need of the dataset.
pub(super) struct ConvertRunner<'a> {
    tasks: Tasks<'a>,
    work: &'a ConvertWork,
    /// Sources that are open already, and their numbers by URI; `None` if each task opens its own.
    opened: Option<(&'a [RecordSource], HashMap<String, usize>)>,
    /// Whether this process has just listed the sources.
    listed: bool,
    /// Contents of the labels; `None` if samples have none.
    labels: Option<PartContents>,
    /// The newest version, which has the same erasures as that of the plan; `None` if the dataset is new.
    newest: Option<Snapshot>,
}

impl<'a> ConvertRunner<'a> {
    /// Opens the dataset of a plan.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(super) fn new(tasks: Tasks<'a>, work: &'a ConvertWork) -> Result<Self> {
        let newest = tasks.dataset.newest_snapshot()?;
        Ok(Self { tasks, work, opened: None, listed: false, labels: None, newest })
    }

    /// Reads the labels of the plan again.
    ///
    /// # Errors
    /// When they have changed or cannot be read.
    pub(super) fn with_tables(self) -> Result<Self> {
        let Some(tables) = &self.work.labels else { return Ok(self) };
        let pseudonymizer = self.convert_job()?.pseudonymizer;
        let labels = tables.reopen(self.tasks.context, &self.work.settings, pseudonymizer.as_ref())?;
        Ok(Self { labels: Some(labels), ..self })
    }

    /// Uses what the run that made or continues the plan has listed and opened.
    pub(super) fn with_opened(self, inputs: &'a Inputs) -> Self {
        let sources = match inputs {
            Inputs::Records(sources) => sources,
            Inputs::Samples { samples, .. } => {
                return Self { labels: labels::contents_of(samples).cloned(), listed: true, ..self };
            }
        };
        let numbers = sources.iter().enumerate().map(|(number, source)| (source.file.uri(), number)).collect();
        Self { opened: Some((sources, numbers)), listed: true, ..self }
    }

    fn convert_job(&self) -> Result<ConvertJob<'_>> {
        let snapshot = self.newest.as_ref();
        Ok(ConvertJob {
            context: self.tasks.context,
            dataset: self.tasks.dataset,
            snapshot,
            options: &self.work.options,
            pseudonymizer: Pseudonymizer::from_settings(&self.work.settings, self.tasks.context.id_key.as_ref())?,
            suppress: snapshot.map(SuppressList::from_snapshot).transpose()?.flatten(),
        })
    }

    /// Writes what a task makes, or learns that a value fits no column.
    fn write(&self, task: usize, job: &ConvertJob<'_>, plan: &ConvertPlan, writer: &Writer) -> Result<Written> {
        let naming = ShardNaming::for_dataset(&plan.settings, writer.shard_folder());
        match run_once(job, plan, &naming, writer).map_err(|error| plan.given.explain_mismatch(error))? {
            RunAttempt::Made(made) => self.collect_written(job, task, plan, *made, writer),
            RunAttempt::Mismatch { misfit: Misfit { source, mismatch, .. }, error } => {
                let mismatch = Some(self.describe_mismatch(job, plan, source, &mismatch, error)?);
                let outcome = Outcome { mismatch, ..tasks::empty_outcome(self.tasks.record, task, writer) };
                Ok(Written::without_objects(outcome))
            }
        }
    }

    /// Returns what a later plan has to know about a value that fits no column.
    fn describe_mismatch(
        &self,
        job: &ConvertJob<'_>,
        plan: &ConvertPlan,
        source: usize,
        mismatch: &TypeMismatch,
        error: Error,
    ) -> Result<TaskMismatch> {
        let (name, fields) = match &plan.inputs {
            Inputs::Samples { .. } => (String::new(), None),
            Inputs::Records(sources) => {
                if mismatch.is_of_quotes()
                    || plan.given.prescribed.is_some()
                    || plan.given.given_names().contains(&mismatch.column)
                {
                    return Err(error);
                }
                let (observer, cancel) = (job.context.observer, &job.context.cancel);
                observer.event(Event::Phase { name: "inferring types", bytes: None });
                let seen = infer_all(sources, plan.memory, job.context.jobs, observer, cancel)?;
                let fields = unite_lists(&plan.fields, &plan.given.unite_columns(&plan.settings, &seen, sources));
                if fields == plan.fields && plan.given.is_bound(&mismatch.column) {
                    return Err(plan.given.explain_mismatch(error));
                }
                (sources[source].file.name().to_owned(), Some(wire::encode_fields(&fields)?))
            }
        };
        // A value may be an id, which a private dataset must not state.
        let value = if job.pseudonymizer.is_some() { String::new() } else { mismatch.value.clone() };
        Ok(TaskMismatch {
            source: name,
            column: mismatch.column.clone(),
            expected: mismatch.expected.clone(),
            value,
            fields,
        })
    }

    /// Returns what an attempt wrote.
    fn collect_written(
        &self,
        job: &ConvertJob<'_>,
        task: usize,
        plan: &ConvertPlan,
        made: RunOutput,
        writer: &Writer,
    ) -> Result<Written> {
        // A run that omits duplicates is not cut into tasks.
        let RunOutput { converted, tally, part_hashes, rejects, found: _ } = made;
        let store = self.tasks.dataset.store().as_ref();
        let others = outcome_counts(&tally, &converted);
        let records = converted.records;
        let rejects_ref = rejects.as_ref().map(Sealed::from_staged).transpose()?;
        let ConvertCommitParts { mut staged, adds, segments, counts, .. } =
            assemble_commit(store, plan, converted, &tally, rejects)?;
        counts.reconcile()?;
        let sources = Fresh {
            inputs: &plan.inputs,
            hashes: &plan.hashes,
            part_hashes: &part_hashes,
            tally: &tally,
            pseudonymizer: job.pseudonymizer.as_ref(),
        };
        let optional = sources.optional_columns();
        let table = stage_sources(store, writer, sources.source_rows())?;
        let (table, list) = table.map_or((None, None), |(table, list)| (Some(table), Some(list)));
        staged.extend(table);
        let outcome = Outcome {
            records,
            segments,
            counts,
            others,
            sources: list,
            arrays: optional.arrays,
            part_hashes: optional.part_hashes,
            rejects: rejects_ref,
            ..tasks::empty_outcome(self.tasks.record, task, writer)
        };
        Ok(Written { adds, groups: Vec::new(), staged, outcome })
    }

    /// Returns the plan of a task: its sources, opened, and everything that was decided for the whole run.
    fn task_plan(&self, job: &ConvertJob<'_>, task: usize) -> Result<ConvertPlan> {
        let work = self.work;
        let rows = self.tasks.record.sources_of(self.tasks.dataset.store(), task)?;
        let bytes = rows.iter().map(|row| row.bytes).sum();
        let (keys, decisions) = keys_and_decisions(&rows, work.of_files);
        let parts = rows.iter().map(part_of).collect::<Result<Vec<_>>>()?;
        let files = tasks::reopen_files(self.tasks.context, rows, self.listed)?;
        let given = GivenTypes::read(job, &work.settings)?;
        let settings = work.settings.clone();
        let memory = MemoryPlan::for_settings(work.memory, self.tasks.context.jobs, &settings)
            .for_splits(settings.split.as_ref().map_or(1, Splits::split_count));
        let mut inputs = self.open_inputs(job, files, &given, &decisions)?;
        if let Inputs::Records(sources) = &mut inputs {
            for (source, part) in sources.iter_mut().zip(&parts) {
                source.part = part.as_ref().map(|scouted| scouted.part.clone());
            }
        }
        let bytes = match &inputs {
            Inputs::Records(sources) => sources.iter().map(RecordSource::input_bytes).sum(),
            Inputs::Samples { .. } => bytes,
        };
        let rejected = match &inputs {
            Inputs::Records(_) => None,
            Inputs::Samples { files, samples } => {
                let reason = |number: usize| decisions.for_sample(samples.get(number, files))?.reject.clone();
                Some((0..samples.len()).filter_map(|number| Some((number, reason(number)?))).collect())
            }
        };
        let store = self.tasks.dataset.store().as_ref();
        let constants = self.tasks.record.read_constants(store)?;
        Ok(ConvertPlan {
            base: self.tasks.record.base,
            arguments: work.arguments.clone(),
            memory,
            inputs,
            keys: (!work.of_files).then_some(keys),
            hashes: parts.iter().map(|part| part.as_ref().map(|scouted| scouted.hash)).collect(),
            bytes,
            faults: Vec::new(),
            skipped: super::listing::SkippedCounts::default(),
            similar: 0,
            replaced: HashSet::new(),
            labels: work.labels.clone(),
            fields: work.fields.clone(),
            given,
            rows: work.options.write.row_form(),
            tensor_lists: work.options.write.tensor_lists(),
            media: work.options.write.is_hf_media(),
            naming: Naming::of_part(&settings, work.choices, rejected, work.parts.clone()),
            choices: work.choices,
            subjects: subjects::subject_resolver(job, &settings)?,
            settings,
            constants,
        })
    }

    /// Detects the formats of the sources again, or groups files into samples again.
    fn open_inputs(
        &self,
        job: &ConvertJob<'_>,
        mut files: Vec<SourceFile>,
        given: &GivenTypes,
        decisions: &Decisions,
    ) -> Result<Inputs> {
        if self.work.of_files {
            files.sort_by(|a, b| a.name().cmp(b.name()));
            files.iter_mut().for_each(|file| file.key_by(&self.work.settings.keys));
            let samples = shuffle::in_order(&self.work.settings, files::group_samples(&files), &files);
            let row = |number: usize| decisions.for_sample(samples.get(number, &files))?.label;
            let label = self.labels.as_ref().map(|labels| labels::of_task(labels, (0..samples.len()).map(row)));
            let class = match label_column::of_known(&self.work.settings, &samples, label.as_ref())? {
                Some(class) => Some(class),
                None => classes::of_known(&self.work.settings, &files, &samples)?,
            };
            return Ok(Inputs::Samples { samples: samples.with_given(label.into_iter().chain(class)), files });
        }
        if let Some((sources, numbers)) = &self.opened {
            let open = |file: &SourceFile| {
                let number =
                    numbers.get(&file.uri()).ok_or_else(|| Error::internal("a source of the plan is not open"))?;
                Ok(RecordSource { sample: None, ..sources[*number].clone() })
            };
            return Ok(Inputs::Records(files.iter().map(open).collect::<Result<_>>()?));
        }
        let total = usize::try_from(self.work.sources).unwrap_or(usize::MAX);
        let names: Vec<String> = files.iter().map(|file| file.name().to_owned()).collect();
        let opened = inputs::detect_formats(job, files, total, given, self.work.settings.shard_format)?;
        let Input::Records(sources) = opened else {
            return Err(Error::input("expected records in the sources of this task, found only files")
                .with_hint("a source has changed since the plan was made: plan again"));
        };
        // Keys are assigned by position.
        if !sources.iter().map(|source| source.file.name()).eq(names.iter().map(String::as_str)) {
            return Err(Error::internal("the sources of a task were opened in another order"));
        }
        Ok(Inputs::Records(with_folder_columns(job, sources)))
    }
}

impl TaskRunner for ConvertRunner<'_> {
    /// Begins one phase for all of the tasks, so that progress and remaining time are those of the command.
    fn begin_tasks(&self, tasks: &[usize]) -> Result<()> {
        let Tasks { context, dataset, record } = self.tasks;
        let done = match tasks {
            [_] => Vec::new(),
            _ => Outcome::list_existing(dataset, &record.id, record.tasks.len())?,
        };
        let left = tasks.iter().filter(|task| done.get(**task) != Some(&true));
        let bytes = left.filter_map(|task| record.tasks.get(*task)).map(|task| task.bytes).sum();
        context.observer.event(Event::Phase { name: "converting", bytes: Some(bytes) });
        Ok(())
    }

    fn prepare_write(&self, task: usize) -> Result<planned::TaskWrite<'_>> {
        let job = self.convert_job()?;
        let plan = self.task_plan(&job, task)?;
        Ok(Box::new(move |writer: &Writer| self.write(task, &job, &plan, writer)))
    }
}

/// Returns the part of a source that a row states.
fn part_of(row: &PlannedSource) -> Result<Option<ScoutedPart>> {
    let parse = |text: &String| {
        serde_json::from_str(text)
            .map_err(|e| Error::integrity("expected a part of a source in the plan").with_cause(e))
    };
    row.part.as_ref().map(parse).transpose()
}

/// What was decided about samples, by the name of their first file.
struct Decisions(HashMap<String, SampleDecision>);

/// What was decided about a sample.
struct SampleDecision {
    /// Why it is rejected; `None` if it is not.
    reject: Option<String>,
    /// Its row in the labels.
    label: Option<u32>,
}

impl Decisions {
    fn for_sample(&self, sample: SampleFiles<'_, SourceFile>) -> Option<&SampleDecision> {
        sample.files().find_map(|file| self.0.get(file.name()))
    }
}

/// Returns the starts of record ids of the sources, and what was decided about samples.
fn keys_and_decisions(rows: &[PlannedSource], of_files: bool) -> (Vec<String>, Decisions) {
    let keys = if of_files { Vec::new() } else { rows.iter().map(|row| row.key.clone()).collect() };
    let decided = rows.iter().filter(|row| row.reject.is_some() || row.label.is_some());
    let decision = |row: &PlannedSource| {
        (format!("{}{}", row.prefix, row.path), SampleDecision { reject: row.reject.clone(), label: row.label })
    };
    (keys, Decisions(decided.map(decision).collect()))
}
