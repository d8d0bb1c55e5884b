//! What all work that is cut into tasks has in common: plans are opened, their tasks run and recorded, their outcomes
//! checked, whatever the operation.
//!
//! ```text
//! plan -> stored plan -> run each task -> outcomes, created only if absent -> all are there -> one commit
//! ```

use std::collections::HashMap;

use rayon::prelude::*;
use serde_json::Value;

use super::Context;
use crate::{
    dataset::{
        Counts, Damage, Dataset, NewPlan, Operation, Outcome, OutcomeCounts, OutcomeShard, PlanName, PlanRecord,
        PlanState, PlanTask, PlannedSource, Publication, Recorded, Snapshot, TaskMismatch, check_outcomes, delete_plan,
        folder_of, is_of_plan, plan_state, publish_plan, stored_plans,
    },
    error::{Effect, Error, Kind, Result},
    id::{TransactionId, Version, Writer},
    plan,
    scan::{self, ListedSource, SourceFile},
    storage::SYSTEM_FOLDER,
    units::Size,
};

/// Returns the error of a plan with an operation that is never cut into tasks.
pub fn never_planned(record: &PlanRecord) -> Error {
    Error::integrity(format!("expected a plan of `convert`, `compact` or `adopt`, found one of `{}`", record.operation))
}

/// The tasks of a stored plan.
#[derive(Clone, Copy)]
pub struct Tasks<'a> {
    /// What all commands share.
    pub context: &'a Context<'a>,
    /// The dataset.
    pub dataset: &'a Dataset,
    /// The plan.
    pub record: &'a PlanRecord,
}

/// A plan that is stored.
#[derive(Debug, Clone, serde::Serialize)]
pub struct PlanReport {
    /// The dataset.
    pub dataset: String,
    /// Location of the plan; `None` if there is nothing to do.
    pub plan: Option<String>,
    /// `convert`, `compact` or `adopt`.
    pub operation: Operation,
    /// Number of tasks.
    pub tasks: usize,
    /// Number of tasks that have an outcome already, because an open plan is continued.
    pub tasks_done: usize,
    /// Sources to be converted, shards to be merged, or files to be adopted.
    pub sources: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Expected shards.
    pub shards: u64,
    /// Expected records.
    pub records: u64,
    /// Sources that the dataset contains already, or shards that are not merged.
    pub sources_unchanged: u64,
    /// Time taken.
    pub seconds: f64,
}

impl PlanReport {
    /// Returns the report of a plan without tasks.
    pub(super) fn without_tasks(dataset: &Dataset, operation: Operation, sources_unchanged: u64) -> Self {
        Self {
            dataset: dataset.store().location().to_string(),
            plan: None,
            operation,
            tasks: 0,
            tasks_done: 0,
            sources: 0,
            bytes: 0,
            shards: 0,
            records: 0,
            sources_unchanged,
            seconds: 0.0,
        }
    }

    /// Adds the stored plan.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) fn set_plan(&mut self, dataset: &Dataset, record: &PlanRecord) -> Result<()> {
        let done = Outcome::list_existing(dataset, &record.id, record.tasks.len())?;
        self.plan = Some(location_of(dataset, record));
        self.tasks = record.tasks.len();
        self.tasks_done = done.into_iter().filter(|done| *done).count();
        Ok(())
    }
}

/// Result of running a task.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct TaskReport {
    /// Number of the task.
    pub task: usize,
    /// Whether it had been run before.
    pub already_done: bool,
    /// Records read.
    pub records_in: u64,
    /// Records written.
    pub records_out: u64,
    /// Records rejected, those that were erased earlier among them.
    pub records_rejected: u64,
    /// Records skipped because they were erased earlier.
    pub records_erased: u64,
    /// Records that do not satisfy the condition of the run.
    pub records_filtered: u64,
    /// Shards written.
    pub shards: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// The value that fits no column of the plan, if there is one; the commit then makes a plan with wider types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<String>,
    /// Merges or files that were omitted because of damage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damage>,
}

impl TaskReport {
    /// Returns the report of a task with this outcome.
    pub(super) fn from_outcome(outcome: &Outcome, already_done: bool) -> Self {
        Self {
            task: usize::try_from(outcome.task).unwrap_or(usize::MAX),
            already_done,
            records_in: outcome.counts.records_in,
            records_out: outcome.counts.records_out,
            records_rejected: outcome.counts.records_rejected,
            records_erased: outcome.counts.records_erased,
            records_filtered: outcome.counts.records_filtered,
            shards: outcome.counts.shards_added,
            bytes_out: outcome.counts.bytes_out,
            mismatch: outcome.mismatch.as_ref().map(describe_mismatch),
            damaged: outcome.damaged.clone(),
        }
    }
}

/// Describes a value that fits no column.
pub(super) fn describe_mismatch(mismatch: &TaskMismatch) -> String {
    let TaskMismatch { source, column, expected, value, .. } = mismatch;
    let value = if value.is_empty() { String::new() } else { format!(", found `{value}`") };
    format!("{source}: expected {expected} in column `{column}`{value}")
}

/// Result of committing a plan.
#[derive(Debug)]
pub enum Committed<R> {
    /// The plan is a version now.
    Version(Box<R>),
    /// The plan is this version already.
    Already(Version),
    /// A value fitted no column, which the text describes; the tasks of this plan have to be run.
    Next(Box<PlanRecord>, String),
}

/// A plan that was named by its path or URL.
pub enum OpenedPlan {
    /// It exists.
    Plan(Dataset, Box<PlanRecord>),
    /// It was committed, and is deleted.
    Committed(Dataset, Version),
}

/// Opens a plan by its path or URL.
///
/// # Errors
/// When there is and was no plan, it is damaged, or another release made it; if the store fails.
pub fn open_plan(context: &Context<'_>, place: &str) -> Result<OpenedPlan> {
    let location = context.parse_location(place)?;
    let shown = location.to_string();
    let wrong = || {
        Error::usage("expected the path or URL of a plan, as `shardify plan` prints it")
            .at_location(shown.clone())
            .with_hint("it ends with _shardify/plans/, two groups of 32 digits, and .json")
    };
    let mut above = location.clone();
    let mut names = Vec::new();
    for _ in 0..3 {
        let (folder, name) = above.split_name().ok_or_else(wrong)?;
        names.push(name);
        above = folder;
    }
    let name =
        PlanName::parse(&names[0]).filter(|_| names[1] == "plans" && names[2] == SYSTEM_FOLDER).ok_or_else(wrong)?;
    let dataset = context.open_dataset(&above)?;
    if let Some(record) = PlanRecord::read(&dataset, &name)? {
        return Ok(OpenedPlan::Plan(dataset, Box::new(record)));
    }
    let entries = match dataset.newest_snapshot()? {
        Some(newest) => dataset.entries_up_to(newest.version())?,
        None => Vec::new(),
    };
    match entries.iter().find(|entry| entry.transaction == name.id) {
        Some(entry) => Ok(OpenedPlan::Committed(dataset, entry.version)),
        None => Err(Error::usage("expected a plan, found none")
            .at_location(shown)
            .with_hint("it was given up by a vacuum or voided by an erasure, or the path is wrong: plan again")),
    }
}

/// Returns the path or URL of a plan.
pub fn location_of(dataset: &Dataset, plan: &PlanRecord) -> String {
    dataset.store().location().join(&plan.plan_name().path()).to_string()
}

/// Returns the newest open plan with a signature, which `made_anew` makes of what a plan says: its record only states
/// one.
///
/// # Errors
/// When the store or the log cannot be read.
pub(super) fn find_plan(
    dataset: &Dataset,
    signature: &str,
    made_anew: impl Fn(&PlanRecord) -> Result<String>,
) -> Result<Option<PlanRecord>> {
    let mut plans = stored_plans(dataset)?;
    plans.sort_by_key(|plan| std::cmp::Reverse(plan.touched));
    for plan in plans {
        // A plan that cannot be read is not continued, nor one that says other than its signature; `vacuum` deletes it.
        let Ok(Some(record)) = PlanRecord::read(dataset, &plan.name) else { continue };
        if record.signature == signature
            && made_anew(&record).is_ok_and(|made| made == signature)
            && plan_state(dataset, &record.id, record.base)? == PlanState::Open
        {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// Whether the dataset has plans, which a run may continue.
///
/// # Errors
/// When the store fails.
pub(super) fn has_plans(dataset: &Dataset) -> Result<bool> {
    Ok(!stored_plans(dataset)?.is_empty())
}

/// Stores the plan of an operation whose tasks follow from its rows, or finds an open one that was made from the same.
///
/// # Errors
/// When the store or the log cannot be read or written.
pub(super) fn store_plan(
    dataset: &Dataset,
    snapshot: Option<&Snapshot>,
    operation: Operation,
    work: Value,
    tasks: Vec<PlanTask>,
    rows: Vec<PlannedSource>,
) -> Result<PlanRecord> {
    let signature_of = |work: &Value, rows: &mut dyn Iterator<Item = &PlannedSource>, tasks: &[PlanTask]| {
        let mut hasher = signature_hasher(snapshot, work);
        rows.for_each(|row| add_row(&mut hasher, row));
        for task in tasks {
            hasher.update(&task.sources.to_le_bytes());
        }
        hasher.finalize().to_hex().to_string()
    };
    let signature = signature_of(&work, &mut rows.iter(), &tasks);
    let made_anew = |found: &PlanRecord| {
        let rows = rows_of(dataset, found).collect::<Result<Vec<_>>>()?;
        Ok(signature_of(&found.work, &mut rows.iter().flatten(), &found.tasks))
    };
    if let Some(found) = find_plan(dataset, &signature, made_anew)? {
        return Ok(found);
    }
    dataset.test_store()?;
    let base = snapshot.map_or(Version(0), Snapshot::version);
    let signature = Box::new(move || signature);
    let new = NewPlan { operation, base, signature, tasks, constants: None, work };
    publish_plan(dataset, new, rows.into_iter())
}

/// Adds the tasks of units of work, each of bytes and sources, that follow those of the tasks before.
pub(super) fn add_tasks(tasks: &mut Vec<PlanTask>, units: &[(u64, u64)], task_size: Size) {
    for range in plan::tasks::cut_tasks(units, task_size) {
        let first = tasks.last().map_or(0, |last| last.first + last.sources);
        let (bytes, sources) = units[range].iter().fold((0, 0), |(b, s), unit| (b + unit.0, s + unit.1));
        tasks.push(PlanTask { first, sources, bytes });
    }
}

/// Returns the rows of a plan, task by task.
pub(super) fn rows_of(dataset: &Dataset, plan: &PlanRecord) -> impl Iterator<Item = Result<Vec<PlannedSource>>> {
    (0..plan.tasks.len()).map(|task| plan.sources_of(dataset.store(), task))
}

/// Begins the hash of everything that a plan is made from: its work, and the erasures of the dataset.
pub(super) fn signature_hasher(snapshot: Option<&Snapshot>, work: &Value) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(work.to_string().as_bytes());
    let erasures = snapshot.and_then(|snapshot| snapshot.entry().erasures.as_ref());
    hasher.update(&erasures.map_or(0, |erasures| erasures.count).to_le_bytes());
    hasher
}

/// Adds a row of a plan to its hash, but not the part: that follows from the rest.
pub(super) fn add_row(hasher: &mut blake3::Hasher, row: &PlannedSource) {
    // There may be millions of rows, and many short updates take longer than one of their bytes.
    let mut bytes = Vec::with_capacity(256);
    let mut add = |text: &str| {
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    };
    [&row.root, &row.prefix, row.path.as_str(), row.key.as_str()].into_iter().for_each(&mut add);
    [&row.etag, &row.reject].into_iter().for_each(|text| add(text.as_deref().unwrap_or_default()));
    add(&row.label.map_or_else(String::new, |label| label.to_string()));
    bytes.extend_from_slice(&row.bytes.to_le_bytes());
    bytes.extend_from_slice(&row.modified.to_le_bytes());
    hasher.update(&bytes);
}

/// Returns the row of a file; streams, which cannot be planned, have none.
pub(super) fn row_of(file: &SourceFile) -> PlannedSource {
    let Some(listed) = file.to_listed() else { return PlannedSource::default() };
    PlannedSource {
        root: listed.root,
        prefix: listed.prefix,
        path: listed.path,
        is_store: listed.is_store,
        bytes: listed.bytes,
        modified: listed.modified,
        etag: listed.etag,
        ..PlannedSource::default()
    }
}

/// Opens the files of a task's rows, which must not have changed. Those that this process has just `listed` were
/// compared with the plan.
///
/// # Errors
/// When a file has changed or is gone; if its store fails.
pub(super) fn reopen_files(context: &Context<'_>, rows: Vec<PlannedSource>, listed: bool) -> Result<Vec<SourceFile>> {
    let listing = rows.into_iter().map(|row| ListedSource {
        root: row.root,
        prefix: row.prefix,
        path: row.path,
        is_store: row.is_store,
        bytes: row.bytes,
        modified: row.modified,
        etag: row.etag,
    });
    let files = scan::reopen_sources(listing, &context.settings)?;
    if listed {
        return Ok(files);
    }
    match files.par_iter().find_map_first(|file| file.check_unchanged().err()) {
        Some(changed) => Err(changed),
        None => Ok(files),
    }
}

/// Returns the report of a task that has an outcome already; `None` if it is to be run.
///
/// # Errors
/// When the plan has no such task or is not open, or the store fails.
pub(super) fn begin_task(Tasks { context, dataset, record }: Tasks<'_>, task: usize) -> Result<Option<TaskReport>> {
    context.cancel.check()?;
    check_number(dataset, record, task)?;
    if let Some(outcome) = Outcome::read(dataset, &record.id, task as u64)? {
        return Ok(Some(TaskReport::from_outcome(&outcome, true)));
    }
    check_open(dataset, record)?;
    dataset.test_store()?;
    Ok(None)
}

/// Adds what a run that stopped has achieved, where running again may help.
pub(super) fn with_what_is_kept(error: Error) -> Error {
    match error.kind() {
        Kind::Interrupted | Kind::Storage => {
            error.with_hint("finished tasks are kept: the same command continues after them")
        }
        _ => error,
    }
}

/// Fails unless a plan has a task.
fn check_number(dataset: &Dataset, record: &PlanRecord, task: usize) -> Result<()> {
    if task < record.tasks.len() {
        return Ok(());
    }
    let last = record.tasks.len().saturating_sub(1);
    Err(Error::usage(format!("expected a task from 0 to {last}, found {task}"))
        .at_location(location_of(dataset, record)))
}

/// Fails unless the tasks of a plan can be run.
///
/// # Errors
/// [`Kind::Conflict`]; when the log cannot be read.
pub(super) fn check_open(dataset: &Dataset, record: &PlanRecord) -> Result<()> {
    expect_open(dataset, plan_state(dataset, &record.id, record.base)?)
}

fn expect_open(dataset: &Dataset, state: PlanState) -> Result<()> {
    match state {
        PlanState::Open => Ok(()),
        PlanState::Committed(version) => {
            let error = Error::conflict(format!("this plan is committed already, as version {version}"));
            Err(error.at_location(dataset.store().location().to_string()))
        }
        PlanState::Void(version) => Err(voided_error(dataset, version)),
    }
}

/// Returns the error for a plan that can no longer be committed.
fn voided_error(dataset: &Dataset, version: Version) -> Error {
    Error::conflict(format!("version {version} voided this plan"))
        .at_location(dataset.store().location().to_string())
        .with_hint("an id was erased or blocked, or a vacuum gave the plan up: plan again")
}

/// Returns the outcome of an attempt that wrote nothing.
pub(super) fn empty_outcome(record: &PlanRecord, task: usize, writer: &Writer) -> Outcome {
    Outcome {
        plan: record.id.clone(),
        task: task as u64,
        writer: writer.serial.unwrap_or_default() as u64,
        records: 0,
        shards: Vec::new(),
        segments: Vec::new(),
        counts: Counts::default(),
        others: OutcomeCounts::default(),
        sources: None,
        arrays: false,
        part_hashes: false,
        rejects: None,
        mismatch: None,
        damaged: Vec::new(),
        absent: None,
    }
}

/// Records the outcome of an attempt, and withdraws what it wrote if another attempt was first.
///
/// # Errors
/// When the other attempt wrote something else, the plan is not open, or the store fails.
pub(super) fn record_outcome(
    dataset: &Dataset,
    plan: &PlanRecord,
    outcome: &Outcome,
    publication: Publication<'_>,
) -> Result<TaskReport> {
    let recorded = |recorded: Recorded| matches!(recorded, Recorded::Created);
    let created = publication.hand_over_by(|| outcome.try_record(dataset).map(recorded))?;
    // The plan may have been voided after the last look: erased records must not stay in its shards.
    let state = plan_state(dataset, &plan.id, plan.base)?;
    if let PlanState::Void(_) = state {
        delete_plan(dataset, &plan.id, true)?;
    }
    expect_open(dataset, state)?;
    Ok(TaskReport::from_outcome(outcome, !created))
}

/// Commits a plan unless it is committed.
///
/// # Errors
/// [`Kind::Conflict`] if the plan was voided; those of `commit`.
pub(super) fn commit_open<R>(
    dataset: &Dataset,
    record: &PlanRecord,
    commit: impl FnOnce() -> Result<Committed<R>>,
) -> Result<Committed<R>> {
    match plan_state(dataset, &record.id, record.base)? {
        PlanState::Open => {}
        PlanState::Committed(version) => {
            delete_plan(dataset, &record.id, false)?;
            return Ok(Committed::Already(version));
        }
        PlanState::Void(version) => return Err(voided_error(dataset, version)),
    }
    match commit() {
        // Another process may have committed the plan meanwhile, and deleted what this one was reading.
        Err(error) if error.effect() == Effect::None => match plan_state(dataset, &record.id, record.base)? {
            PlanState::Committed(version) => Ok(Committed::Already(version)),
            PlanState::Void(version) => Err(voided_error(dataset, version)),
            PlanState::Open => Err(error),
        },
        result => result,
    }
}

/// Says what helps if a plan conflicts with what others have committed since it was made: its commit would fail again.
pub(super) fn plan_again(error: Error) -> Error {
    match error.kind() {
        Kind::Conflict => error.rephrase_hints("run the command again", "plan again"),
        _ => error,
    }
}

/// Returns a number for the names of lists that no other commit of the plan uses: a killed one may have left lists.
pub(super) fn fresh_calls() -> usize {
    let digits = &TransactionId::fresh().0[..8];
    usize::from_str_radix(digits, 16).unwrap_or_default()
}

/// Returns the outcomes of all tasks.
///
/// # Errors
/// [`Kind::Conflict`] naming the tasks without an outcome; when one is damaged or does not add up, or the store fails.
pub(super) fn all_outcomes(dataset: &Dataset, record: &PlanRecord) -> Result<Vec<Outcome>> {
    let outcomes = Outcome::read_all(dataset, &record.id, record.tasks.len())?;
    let missing: Vec<usize> =
        outcomes.iter().enumerate().filter(|(_, outcome)| outcome.is_none()).map(|(task, _)| task).collect();
    if missing.is_empty() {
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        check_outcomes(dataset, record, &outcomes, record.operation == Operation::Compact)?;
        return Ok(outcomes);
    }
    Err(Error::conflict(format!(
        "expected outcomes of {} tasks, found {}; missing: {}",
        record.tasks.len(),
        record.tasks.len() - missing.len(),
        format_ranges(&missing)
    ))
    .at_location(dataset.store().location().to_string())
    .with_hint("run the missing tasks, then commit again"))
}

/// Fails unless the shards of all tasks exist with their sizes: one listing for each folder. The outcome of a task
/// whose shard is gone is deleted, so that the task can be run again.
///
/// # Errors
/// [`Kind::Conflict`] naming the tasks; when the store fails.
pub(super) fn check_present(dataset: &Dataset, record: &PlanRecord, outcomes: &[Outcome]) -> Result<()> {
    let store = dataset.store().as_ref();
    // Only an adoption in place has shards elsewhere.
    let mut paths = outcomes.iter().flat_map(|outcome| &outcome.shards).map(OutcomeShard::path);
    if let Some(path) = paths.find(|path| !is_of_plan(path, &record.id)) {
        return Err(Error::integrity(format!("expected shards of this plan, found `{path}`"))
            .at_location(location_of(dataset, record)));
    }
    let mut gone: Vec<(usize, String)> = Vec::new();
    for (task, outcome) in outcomes.iter().enumerate() {
        let mut listed: HashMap<&str, HashMap<String, u64>> = HashMap::new();
        for shard in &outcome.shards {
            let folder = folder_of(shard.path());
            if !listed.contains_key(folder) {
                let facts = store.list_folder(folder)?.into_iter().map(|facts| (facts.path, facts.bytes)).collect();
                listed.insert(folder, facts);
            }
            if listed[folder].get(shard.path()) != Some(&shard.stored_bytes()) {
                gone.push((task, shard.path().to_owned()));
                break;
            }
        }
    }
    let Some((task, path)) = gone.first() else { return Ok(()) };
    for (task, _) in &gone {
        Outcome::delete(dataset, &record.id, *task as u64)?;
    }
    let tasks: Vec<usize> = gone.iter().map(|(task, _)| *task).collect();
    Err(Error::conflict(format!("the shard of a task is gone; run task {} again", format_ranges(&tasks)))
        .at_location(store.location().join(path).to_string())
        .with_hint(format!("then commit again; {} of {} tasks are affected", gone.len(), outcomes.len()))
        .with_hint(format!("shardify run-task {} --task {task}", location_of(dataset, record))))
}

/// Formats ascending numbers as ranges: `3, 17-20`.
pub(super) fn format_ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let text = |run: &[usize]| match run {
        [only] => only.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    runs.map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tasks_are_ranges() {
        assert_eq!(format_ranges(&[3, 17, 18, 19, 20, 22]), "3, 17-20, 22");
    }
}
