//! What is cut into tasks: an operation says what a task writes and what the outcomes of all make together; the rest is
//! the same for every operation.
//!
//! ```text
//! run     has no outcome? -> prepare -> claim -> write -> still open? -> publish -> record the outcome
//! commit  open? -> outcomes of all tasks -> commit -> committed meanwhile?
//! ```

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::tasks::{
    Committed, TaskReport, Tasks, all_outcomes, begin_task, check_open, commit_open, plan_again, record_outcome,
    with_what_is_kept,
};
use crate::{
    dataset::{NewShard, Operation, Outcome, OutcomeShard, PlanRecord, Publication, claim_attempt},
    error::{Error, Result},
    id::Writer,
    storage::Staged,
};

/// An operation that is cut into tasks: what all its tasks share, which is stored with the plan.
pub trait Planned: Serialize + DeserializeOwned {
    /// The operation.
    const OPERATION: Operation;
    /// What its commit reports.
    type Report;

    /// Returns what runs its tasks.
    ///
    /// # Errors
    /// When the dataset cannot be read.
    fn task_runner<'a>(&'a self, tasks: Tasks<'a>) -> Result<Box<dyn TaskRunner + 'a>>;

    /// Commits the outcomes of all tasks.
    ///
    /// # Errors
    /// When they cannot be committed together; as a commit.
    fn commit_outcomes(&self, tasks: Tasks<'_>, outcomes: Vec<Outcome>) -> Result<Committed<Self::Report>>;

    /// Reads what a plan states.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the plan is not one of this operation.
    fn read(record: &PlanRecord) -> Result<Self> {
        serde_json::from_value(record.work.clone()).map_err(|e| {
            Error::integrity(format!("expected a plan of `{}`, found another", Self::OPERATION)).with_cause(e)
        })
    }

    /// Returns what a plan states.
    ///
    /// # Errors
    /// Never in practice.
    fn to_value(&self) -> Result<Value> {
        serde_json::to_value(self).map_err(|e| Error::internal("encoding a plan failed").with_cause(e))
    }
}

/// Writes what a prepared task makes, under the names of its attempt.
pub type TaskWrite<'a> = Box<dyn FnOnce(&Writer) -> Result<Written> + 'a>;

/// Runs the tasks of a plan.
pub trait TaskRunner {
    /// Tells that these tasks are about to be run.
    ///
    /// # Errors
    /// When the store fails.
    fn begin_tasks(&self, tasks: &[usize]) -> Result<()> {
        let _ = tasks;
        Ok(())
    }

    /// Opens what a task reads.
    ///
    /// # Errors
    /// When a source has changed or cannot be read.
    fn prepare_write(&self, task: usize) -> Result<TaskWrite<'_>>;
}

/// What an attempt at a task has written.
pub struct Written {
    pub(super) adds: Vec<NewShard>,
    /// For each shard of a compaction, its group and its MD5.
    pub(super) groups: Vec<(u64, Option<[u8; 16]>)>,
    pub(super) staged: Vec<Staged>,
    /// The outcome, without its shards.
    pub(super) outcome: Outcome,
}

impl Written {
    /// Returns what an attempt leaves that wrote no object.
    pub(super) fn without_objects(outcome: Outcome) -> Self {
        Self { adds: Vec::new(), groups: Vec::new(), staged: Vec::new(), outcome }
    }
}

impl Tasks<'_> {
    /// Runs a task unless it has an outcome.
    ///
    /// # Errors
    /// When the plan has no such task or is not open; those of `runner`; when the store fails.
    pub(super) fn run_task(self, runner: &dyn TaskRunner, task: usize) -> Result<TaskReport> {
        if let Some(done) = begin_task(self, task)? {
            return Ok(done);
        }
        let Self { context, dataset, record: plan } = self;
        let write = runner.prepare_write(task)?;
        let writer = claim_attempt(dataset, &plan.id, task, plan.tasks.len())?;
        let mut publication = Publication::begin_as(dataset, writer.clone(), plan.operation, plan.base)?;
        let Written { mut adds, groups, staged, mut outcome } = write(&writer)?;
        context.cancel.check()?;
        check_open(dataset, plan)?;
        publication.publish_shards(adds.iter_mut(), staged)?;
        let shard = |(number, shard): (usize, &NewShard)| match groups.get(number) {
            Some((group, md5)) => OutcomeShard::from_grouped_shard(shard, *group, *md5),
            None => OutcomeShard::from_shard(shard),
        };
        outcome.shards = adds.iter().enumerate().map(shard).collect();
        record_outcome(dataset, plan, &outcome, publication)
    }

    /// Runs tasks of the plan, one after the other.
    ///
    /// # Errors
    /// When a task does not exist or fails; the tasks before it keep their outcomes.
    pub fn run_all<P: Planned>(
        self,
        tasks: impl Iterator<Item = usize>,
        done: &mut dyn FnMut(TaskReport),
    ) -> Result<()> {
        let work = P::read(self.record)?;
        let runner = work.task_runner(self)?;
        // The first that does not exist ends the command.
        let tasks: Vec<usize> = tasks.take(self.record.tasks.len() + 1).collect();
        runner.begin_tasks(&tasks)?;
        for task in tasks {
            // What the plan was made of may have been vacuumed since.
            let ran = super::or_overtaken_since(self.dataset, None, self.run_task(runner.as_ref(), task));
            done(ran.map_err(with_what_is_kept)?);
        }
        Ok(())
    }

    /// Commits the plan.
    ///
    /// # Errors
    /// When tasks have no outcome, the plan is void or one of another operation; as a commit.
    pub fn commit_plan<P: Planned>(self) -> Result<Committed<P::Report>> {
        let work = P::read(self.record)?;
        self.commit_by(|outcomes| work.commit_outcomes(self, outcomes)).map_err(plan_again)
    }

    /// Commits the plan by a function of the outcomes of all tasks.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub(super) fn commit_by<R>(
        self,
        commit: impl FnOnce(Vec<Outcome>) -> Result<Committed<R>>,
    ) -> Result<Committed<R>> {
        commit_open(self.dataset, self.record, || commit(all_outcomes(self.dataset, self.record)?))
    }
}
