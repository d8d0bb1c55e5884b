//! The record of a plan.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    PlanName,
    sources::{PlannedSource, Rows},
};
use crate::{
    dataset::{
        log::{operation::Operation, publication::Publication, snapshot::Dataset},
        table::{
            closed,
            list::ListRef,
            paths::{system_path, table_path},
            sealed::{Sealed, get_sealed, seal_of, stage_small},
        },
    },
    error::{Error, Result},
    id::{TransactionId, Version},
    storage::{Staged, Store},
};

/// Format of plans and outcomes.
const FORMAT: u32 = 1;

/// A task of a plan: consecutive sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanTask {
    /// Its first row in the table of sources.
    pub first: u64,
    /// Number of its rows.
    pub sources: u64,
    /// Stored bytes of its sources.
    pub bytes: u64,
}

/// A plan as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlanRecord {
    /// Format of the record.
    pub format: u32,
    /// Id of the plan and of the transaction that commits it.
    pub id: TransactionId,
    /// Hash of its bytes; empty until they are made.
    #[serde(skip)]
    hash: String,
    /// What its tasks do.
    pub operation: Operation,
    /// The release that made it; only the same release runs its tasks, because another may write other bytes.
    pub tool: String,
    /// Version that it was made on; 0 for a new dataset.
    pub base: Version,
    /// Hash of everything that it was made from; a run with the same options and sources continues it.
    pub signature: String,
    /// The tasks.
    pub tasks: Vec<PlanTask>,
    /// The table of sources.
    pub sources: ListRef,
    /// Constants of all records of arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constants: Option<Sealed>,
    /// The options and decisions of the operation.
    pub work: Value,
}

/// Name and version of this release.
pub(super) const TOOL: &str = concat!("shardify ", env!("CARGO_PKG_VERSION"));

/// A plan to be published: what a record says besides its objects.
pub struct NewPlan<'a> {
    /// The operation.
    pub operation: Operation,
    /// Version that it is made on.
    pub base: Version,
    /// Returns the hash of everything that it is made from, once the rows of all sources have been taken.
    pub signature: Box<dyn FnOnce() -> String + 'a>,
    /// The tasks.
    pub tasks: Vec<PlanTask>,
    /// Constants of all records.
    pub constants: Option<&'a [u8]>,
    /// The options and decisions of the operation.
    pub work: Value,
}

/// Publishes a plan with its sources, in the order of the tasks.
///
/// # Errors
/// When the store fails.
pub fn publish_plan(
    dataset: &Dataset,
    plan: NewPlan<'_>,
    sources: impl Iterator<Item = PlannedSource>,
) -> Result<PlanRecord> {
    let id = TransactionId::fresh();
    let store = dataset.store().as_ref();
    let path = sources_path(&id);
    let (table, rows) = Rows::write(store, &path, sources)?;
    let list = ListRef { path, rows, root: None, seal: seal_of(&table)? };
    let constants = plan.constants.map(|bytes| stage_small(store, &constants_path(&id), bytes)).transpose()?;
    let mut record = PlanRecord {
        format: FORMAT,
        id,
        hash: String::new(),
        operation: plan.operation,
        tool: TOOL.to_owned(),
        base: plan.base,
        signature: (plan.signature)(),
        tasks: plan.tasks,
        sources: list,
        constants: constants.as_ref().map(Sealed::from_staged).transpose()?,
        work: plan.work,
    };
    publish_record(dataset, &mut record, std::iter::once(table).chain(constants).collect())?;
    Ok(record)
}

/// Publishes a plan with the sources of another one.
///
/// # Errors
/// When an object of the other plan is damaged; if the store fails.
pub fn publish_like(dataset: &Dataset, other: &PlanRecord, work: Value) -> Result<PlanRecord> {
    let id = TransactionId::fresh();
    let store = dataset.store().as_ref();
    let copy = |object: &Sealed, path: &str| stage_small(store, path, &get_sealed(store, object)?);
    let table = copy(&other.sources.as_sealed(), &sources_path(&id))?;
    let constants = other.constants.as_ref().map(|object| copy(object, &constants_path(&id))).transpose()?;
    let mut record = PlanRecord {
        sources: ListRef { path: table.path.clone(), seal: seal_of(&table)?, ..other.sources.clone() },
        constants: constants.as_ref().map(Sealed::from_staged).transpose()?,
        work,
        id,
        ..other.clone()
    };
    publish_record(dataset, &mut record, std::iter::once(table).chain(constants).collect())?;
    Ok(record)
}

fn sources_path(plan: &TransactionId) -> String {
    table_path(&format!("plans/{plan}-sources"))
}

fn constants_path(plan: &TransactionId) -> String {
    system_path(&format!("plans/{plan}-constants.arrow"))
}

/// Publishes the objects of a plan, then its record, so that a reader of the record finds them.
fn publish_record(dataset: &Dataset, record: &mut PlanRecord, objects: Vec<Staged>) -> Result<()> {
    let bytes = closed::encode_json(record, "a plan")?;
    record.hash = PlanName::from_content(&record.id, &bytes).hash;
    let mut publication = Publication::begin(dataset, &record.id, record.operation, record.base)?;
    publication.publish(objects)?;
    let object = stage_small(dataset.store().as_ref(), &record.plan_name().path(), &bytes)?;
    publication.publish(vec![object])?;
    publication.hand_over();
    Ok(())
}

/// The part of a record that tells who can read the rest.
#[derive(Deserialize)]
struct PlanHead {
    tool: String,
}

impl PlanRecord {
    /// Reads a plan; `None` if there is none of this name.
    ///
    /// # Errors
    /// When it is not what its name says, or another release made it; if the store fails.
    pub fn read(dataset: &Dataset, name: &PlanName) -> Result<Option<Self>> {
        let (store, path) = (dataset.store().as_ref(), name.path());
        let Some(bytes) = store.get(&path)? else { return Ok(None) };
        let place = || store.location().join(&path).to_string();
        if PlanName::from_content(&name.id, &bytes) != *name {
            return Err(Error::integrity("expected the plan with the hash that its name states, found another one")
                .at_location(place())
                .with_hint("it is damaged, or somebody changed it: plan again"));
        }
        let head: PlanHead = closed::decode_json(store, &path, &bytes, "the plan")?;
        if head.tool != TOOL {
            return Err(Error::usage(format!("expected a plan of {TOOL}, found one of {}", head.tool))
                .at_location(place())
                .with_hint("another release may write other bytes: run all tasks with the release that made the plan")
                .with_hint("or plan again with this one"));
        }
        let record: Self = closed::decode_json(store, &path, &bytes, "the plan")?;
        if record.id != name.id {
            return Err(
                Error::integrity(format!("expected the plan {}, found {}", name.id, record.id)).at_location(place())
            );
        }
        Ok(Some(Self { hash: name.hash.clone(), ..record }))
    }

    /// Reads the constants of all records.
    ///
    /// # Errors
    /// When they are damaged; if the store fails.
    pub fn read_constants(&self, store: &dyn Store) -> Result<Option<Bytes>> {
        self.constants.as_ref().map(|object| get_sealed(store, object)).transpose()
    }

    /// Returns its name.
    pub fn plan_name(&self) -> PlanName {
        PlanName { id: self.id.clone(), hash: self.hash.clone() }
    }

    /// Reads the sources of a task.
    ///
    /// # Errors
    /// When the table is damaged; if the store fails.
    pub fn sources_of(&self, store: &Arc<dyn Store>, task: usize) -> Result<Vec<PlannedSource>> {
        let Some(task) = self.tasks.get(task) else { return Ok(Vec::new()) };
        super::sources::read_range(store, &self.sources, task.first..task.first.saturating_add(task.sources))
    }
}
