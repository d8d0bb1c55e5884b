//! The plan of a conversion as an object in the dataset: what all tasks share, and a row per source.
//!
//! Everything that depends on the whole list of sources is decided when the plan is made and stored: settings, types,
//! names, starts of record ids, constants. A task only opens its own sources again. So a task gives the same bytes
//! wherever it runs, and does so in any order.

use std::{cell::RefCell, collections::BTreeMap};

use arrow::datatypes::Fields;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    commit::source_revisions,
    inputs::{Inputs, keys_of},
    job::ConvertJob,
    labels::{self, LabelTables},
    listing::SkippedCounts,
    options::{ConvertOptions, LabelSource, SubjectSource},
    plan::ConvertPlan,
    stream::STDIN,
};
use crate::{
    dataset::{
        Dataset, NewPlan, Operation, PlanRecord, PlanTask, PlannedSource, Revision, Settings, publish_plan,
        publish_plan_like,
    },
    error::{Error, Result},
    events::Event,
    exec::gates::names::PartsGate,
    format::{files::SampleFiles, parquet::schema_of_samples},
    indexes::version,
    ops::{names::Choices, planned::Planned as _, tasks as ops_tasks},
    plan::tasks,
    record::{PartSizes, SourcePart},
    scan::{RecordSource, Scouted, SourceFile, scout_parts},
    schema::{self, schema_of, wire},
    storage::plain_argument,
    units::Size,
};

/// What all tasks of a plan share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConvertWork {
    /// The user's options; the sources are without secrets.
    pub(super) options: ConvertOptions,
    /// Settings of the dataset after the run.
    pub(super) settings: Settings,
    /// The memory limit that the sizes of ranges and units follow from, whatever memory a task may use.
    pub(super) memory: Size,
    /// The options that determined the content of the shards, as recorded in the log.
    pub(super) arguments: BTreeMap<String, String>,
    /// Columns of the rows, or the parts of the samples.
    #[serde(with = "wire")]
    pub(super) fields: Fields,
    /// Whether the sources are files that make up samples.
    pub(super) of_files: bool,
    /// Whether the records are samples: of files, or of archives.
    pub(super) of_samples: bool,
    /// The user's choices for names.
    pub(super) choices: Choices,
    /// The parts that all samples should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parts: Option<PartsGate>,
    /// Number of sources.
    pub(super) sources: u64,
    /// Their stored bytes.
    pub(super) bytes: u64,
    /// Locations that could not be listed; each counts as a rejected record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) faults: Vec<Fault>,
    /// Skipped sources and files.
    pub(super) skipped: SkippedCounts,
    /// Number of samples of files whose keys are other spellings of erased ones.
    pub(super) similar: u64,
    /// Number of samples whose names are changed.
    pub(super) renamed: u64,
    /// Number of samples that lack a part which others have.
    pub(super) incomplete: u64,
    /// Tables of labels, of which rows of sources state the row numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) labels: Option<LabelTables>,
    /// Revisions of the repositories that contain the sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) revisions: Vec<Revision>,
}

/// A location that could not be listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Fault {
    place: Option<String>,
    message: String,
}

impl Fault {
    fn from_error(error: &Error) -> Self {
        Self { place: error.place().source.clone(), message: error.message().to_owned() }
    }

    /// Returns the error.
    pub(super) fn to_error(&self) -> Error {
        let error = Error::input(self.message.clone());
        match &self.place {
            Some(place) => error.at_location(place.clone()),
            None => error,
        }
    }
}

impl ConvertWork {
    fn from_plan(job: &ConvertJob<'_>, plan: &ConvertPlan) -> Self {
        let sources = job.options.sources.iter().map(|source| plain_argument(source)).collect();
        let labels = match &job.options.labels {
            Some(LabelSource::Table(place)) => Some(LabelSource::Table(plain_argument(place))),
            other => other.clone(),
        };
        Self {
            options: ConvertOptions { sources, labels, ..job.options.clone() },
            settings: plan.settings.clone(),
            memory: job.context.memory,
            arguments: plan.arguments.clone(),
            fields: plan.fields.clone(),
            of_files: matches!(plan.inputs, Inputs::Samples { .. }),
            of_samples: plan.inputs.give_samples(),
            choices: plan.choices,
            parts: plan.naming.parts.clone(),
            sources: plan.inputs.source_files().count() as u64,
            bytes: plan.bytes,
            faults: plan.faults.iter().map(Fault::from_error).collect(),
            skipped: plan.skipped,
            similar: plan.similar,
            renamed: plan.naming.checked.renamed,
            incomplete: plan.naming.checked.incomplete,
            labels: plan.labels.clone(),
            revisions: source_revisions(job),
        }
    }

    /// Returns names and types of the columns, for reports.
    pub(super) fn column_types(&self) -> Vec<(String, String)> {
        let schema = match self.of_samples {
            true => schema_of_samples(&self.fields, self.options.write.is_hf_media()),
            false => schema_of(&self.fields),
        };
        schema.fields().iter().map(|field| (field.name().clone(), schema::file::print_type(field))).collect()
    }
}

/// Returns why a run cannot be cut into tasks; `None` if it can.
pub(super) fn task_obstacle(job: &ConvertJob<'_>, plan: &ConvertPlan) -> Option<&'static str> {
    if job.options.sources.iter().any(|source| source == STDIN) {
        Some("standard input can be read only once")
    } else if job.options.ends.is_some() {
        Some("--shards and --records-per-shard count over the whole run, and each task has shards of its own")
    } else if plan.settings.limit.is_some() {
        Some("the first records are those of the whole run (--limit)")
    } else if plan.settings.dedup.is_some() {
        Some("duplicates are found among all records, and a task sees only its own (--dedup)")
    } else if has_signed_subjects(job.options) {
        Some("the URL of the table of subjects has secrets, and a plan would state them")
    } else if plan.inputs.source_files().any(|file| file.table_file().is_some()) {
        Some("the log of a Delta table decides what is read, and a plan does not store that")
    } else if plan.settings.shuffle.is_some() && matches!(plan.inputs, Inputs::Records(_)) {
        Some("--shuffle mixes the records of all tables and archives, and each task has shards of its own")
    } else if !plan.replaced.is_empty() {
        Some("the run removes records in the same version (--on-changed replace, --overwrite)")
    } else if plan.settings.private.as_ref().is_some_and(|private| private.redacted_sources) {
        Some("the names of sources are private in this dataset, and a plan would state them")
    } else if plan.settings.private.is_some() && job.options.filter.is_some() {
        Some("ids are private in this dataset, and a plan would state those in --where")
    } else {
        None
    }
}

/// Whether the place of the table of subjects has what must not be stored, such as a signature.
fn has_signed_subjects(options: &ConvertOptions) -> bool {
    matches!(&options.subjects, Some(SubjectSource::Table { place, .. }) if plain_argument(place) != *place)
}

/// A source of records, or a part of one.
pub(super) struct Piece {
    /// Number of the source.
    source: usize,
    /// The part; `None` for the whole source.
    part: Option<ScoutedPart>,
}

/// A part of a source, as its row in the table of sources states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScoutedPart {
    /// The part.
    pub(super) part: SourcePart,
    /// Hash of the whole source.
    pub(super) hash: u64,
}

/// Returns the stored bytes of a task: less where the list of files is so long that each task should have a short one.
fn task_size(job: &ConvertJob<'_>, plan: &ConvertPlan) -> Size {
    let usual = || match plan.inputs.has_long_list(job) {
        true => tasks::SHORT_TASK_SIZE,
        false => tasks::DEFAULT_TASK_SIZE,
    };
    job.options.task_size.unwrap_or_else(usual)
}

/// Whether the sources of a plan may be more than one task.
pub(super) fn may_be_cut(job: &ConvertJob<'_>, plan: &ConvertPlan) -> bool {
    tasks::task_count(plan.inputs.source_files().map(|file| (file.bytes(), 1)), task_size(job, plan)) > 1
}

/// Cuts large sources into parts. Those of text are read once for that.
fn cut_pieces(job: &ConvertJob<'_>, plan: &ConvertPlan) -> Result<Vec<Piece>> {
    let Inputs::Records(sources) = &plan.inputs else { return Ok(Vec::new()) };
    let task_bytes = task_size(job, plan).0;
    let sizes = |source: &RecordSource| PartSizes {
        source_bytes: source.file.bytes(),
        part_bytes: task_bytes,
        range_bytes: usize::try_from(plan.memory.range_bytes).unwrap_or(usize::MAX),
        max_record_bytes: usize::try_from(plan.memory.max_record_bytes).unwrap_or(usize::MAX),
    };
    let large: u64 = sources.iter().filter(|s| sizes(s).part_count() > 1).map(|source| source.file.bytes()).sum();
    if large > 0 {
        job.context.observer.event(Event::Phase { name: "cutting large sources", bytes: Some(large) });
    }
    let scouted = |(number, source): (usize, &RecordSource)| -> Result<Vec<Piece>> {
        job.context.cancel.check()?;
        Ok(match scout_parts(source, &sizes(source))? {
            None => vec![Piece { source: number, part: None }],
            Some(Scouted { parts, hash }) => {
                job.context.observer.event(Event::Read { bytes: source.file.bytes(), records: 0 });
                let piece = |part| Piece { source: number, part: Some(ScoutedPart { part, hash }) };
                parts.into_iter().map(piece).collect()
            }
        })
    };
    let all: Vec<Vec<Piece>> = sources.par_iter().enumerate().map(scouted).collect::<Result<_>>()?;
    Ok(all.into_iter().flatten().collect())
}

/// Cuts the sources of a plan into tasks.
fn tasks_of(job: &ConvertJob<'_>, plan: &ConvertPlan, pieces: &[Piece]) -> Vec<PlanTask> {
    let units: Vec<(u64, u64)> = match &plan.inputs {
        Inputs::Records(sources) => {
            let bytes = |piece: &Piece| match &piece.part {
                Some(scouted) => scouted.part.bytes,
                None => sources[piece.source].file.bytes(),
            };
            pieces.iter().map(|piece| (bytes(piece), 1)).collect()
        }
        Inputs::Samples { files, samples } => {
            let unit = |sample: SampleFiles<'_, SourceFile>| (sample.total_bytes(), sample.files().count() as u64);
            samples.iter_range(0..samples.len(), files).map(unit).collect()
        }
    };
    let mut planned = Vec::new();
    ops_tasks::add_tasks(&mut planned, &units, task_size(job, plan));
    planned
}

/// Returns the rows of the table of sources.
fn planned_rows<'a>(plan: &'a ConvertPlan, pieces: &'a [Piece]) -> Box<dyn Iterator<Item = PlannedSource> + 'a> {
    match &plan.inputs {
        Inputs::Records(sources) => {
            let keys = plan.keys.clone().unwrap_or_else(|| keys_of(sources));
            Box::new(pieces.iter().map(move |piece| PlannedSource {
                key: keys[piece.source].clone(),
                part: piece.part.as_ref().and_then(|part| serde_json::to_string(part).ok()),
                ..ops_tasks::row_of(&sources[piece.source].file)
            }))
        }
        Inputs::Samples { files, samples } => Box::new((0..samples.len()).flat_map(move |number| {
            let mut reject = plan.naming.checked.rejected.get(&number).cloned();
            let mut label = labels::part_of(samples).and_then(|part| part.content_number(number));
            samples.get(number, files).files().map(move |file| PlannedSource {
                reject: reject.take(),
                label: label.take(),
                ..ops_tasks::row_of(file)
            })
        })),
    }
}

/// Hash of everything that a plan is made from. Types are not part of it: a run whose types were widened is continued
/// with these. Neither are the parts of large sources, which follow from the rest.
struct Signature<'a> {
    hasher: RefCell<blake3::Hasher>,
    constants: &'a [u8],
}

impl<'a> Signature<'a> {
    /// Begins with what all sources share.
    fn new(job: &ConvertJob<'_>, plan: &'a ConvertPlan, work: &ConvertWork) -> Result<Self> {
        let shared = ConvertWork { fields: Fields::empty(), ..work.clone() };
        let hasher = RefCell::new(ops_tasks::signature_hasher(job.snapshot, &shared.to_value()?));
        Ok(Self { hasher, constants: plan.constants.as_deref().unwrap_or_default() })
    }

    /// Returns the rows of the sources, which are added as they pass; the first piece of a source stands for all.
    fn hashed_rows<'r>(
        &'r self,
        plan: &'r ConvertPlan,
        pieces: &'r [Piece],
    ) -> impl Iterator<Item = PlannedSource> + 'r {
        let mut last = None;
        planned_rows(plan, pieces)
            .enumerate()
            .inspect(move |(number, row)| {
                let source = pieces.get(*number).map(|piece| piece.source);
                if source.is_none() || source != last {
                    ops_tasks::add_row(&mut self.hasher.borrow_mut(), row);
                }
                last = source;
            })
            .map(|(_, row)| row)
    }

    /// Returns the hash once all rows have passed.
    fn finish(&self) -> String {
        self.hasher.borrow_mut().update(self.constants).finalize().to_hex().to_string()
    }

    /// Returns the hash of whole sources.
    fn hash_sources(job: &ConvertJob<'_>, plan: &ConvertPlan, work: &ConvertWork) -> Result<String> {
        let whole: Vec<Piece> = match &plan.inputs {
            Inputs::Records(sources) => (0..sources.len()).map(|source| Piece { source, part: None }).collect(),
            Inputs::Samples { .. } => Vec::new(),
        };
        let signature = Signature::new(job, plan, work)?;
        signature.hashed_rows(plan, &whole).for_each(drop);
        Ok(signature.finish())
    }

    /// Returns the hash of what a stored plan says.
    fn of_stored(job: &ConvertJob<'_>, record: &PlanRecord) -> Result<String> {
        let shared = ConvertWork { fields: Fields::empty(), ..ConvertWork::read(record)? };
        let mut hasher = ops_tasks::signature_hasher(job.snapshot, &shared.to_value()?);
        let mut last = PlannedSource::default();
        for rows in ops_tasks::rows_of(job.dataset, record) {
            for row in rows? {
                let is_piece = row.part.is_some();
                let row = PlannedSource { part: None, ..row };
                if !is_piece || row != last {
                    ops_tasks::add_row(&mut hasher, &row);
                }
                last = row;
            }
        }
        let constants = record.read_constants(job.dataset.store().as_ref())?;
        Ok(hasher.update(&constants.unwrap_or_default()).finalize().to_hex().to_string())
    }
}

/// Publishes a plan of at least that many tasks, or returns an open plan of the same options and sources; `None` if
/// there are fewer tasks.
///
/// # Errors
/// When a source cannot be read, or the store fails.
pub(super) fn find_or_publish(job: &ConvertJob<'_>, plan: &ConvertPlan, at_least: usize) -> Result<Option<PlanRecord>> {
    let work = ConvertWork::from_plan(job, plan);
    // Without plans there is none to continue, and one pass over the sources is enough.
    if ops_tasks::has_plans(job.dataset)?
        && let Some(found) = ops_tasks::find_plan(job.dataset, &Signature::hash_sources(job, plan, &work)?, |found| {
            Signature::of_stored(job, found)
        })?
    {
        return Ok(Some(found));
    }
    let pieces = cut_pieces(job, plan)?;
    let tasks = tasks_of(job, plan, &pieces);
    if tasks.len() < at_least {
        return Ok(None);
    }
    let signature = Signature::new(job, plan, &work)?;
    let new = NewPlan {
        operation: Operation::Convert,
        base: plan.base,
        signature: Box::new(|| signature.finish()),
        tasks,
        constants: plan.constants.as_deref(),
        work: work.to_value()?,
    };
    publish_plan(job.dataset, new, signature.hashed_rows(plan, &pieces)).map(Some)
}

/// Publishes the plan that follows one whose types did not hold all values.
///
/// # Errors
/// If the Delta log of the dataset has a column with another type; if the store fails.
pub(super) fn publish_wider(
    dataset: &Dataset,
    record: &PlanRecord,
    work: &ConvertWork,
    fields: Fields,
) -> Result<PlanRecord> {
    let is_given =
        |column: &str| work.options.schema.is_some() || work.options.types.iter().any(|field| field.name() == column);
    let fields = if work.of_samples && work.options.write.is_hf_media() {
        fields
    } else {
        let newest = dataset.newest_snapshot()?;
        version::fit_fields(dataset, newest.as_ref(), &work.settings.indexes, fields, &is_given)?
    };
    publish_plan_like(dataset, record, ConvertWork { fields, ..work.clone() }.to_value()?)
}
