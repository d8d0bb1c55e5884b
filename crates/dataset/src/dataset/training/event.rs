//! Events of a training run, as they are stored.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    codec::{hex::from_hex, merkle::Hash},
    dataset::log::entry::instant,
    error::{Error, Result},
    id::Version,
    order::{EpochOrder, OrderParameters, Remainder, StepLayout},
};

/// Version of the format of events.
const FORMAT: u32 = 1;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainingEvent {
    /// 1.
    pub format: u32,
    /// The attempt that reports it, 32 hexadecimal digits: each start of the job is one.
    pub attempt: String,
    /// When it happened, by the clock of the trainer. Nothing follows from it.
    #[serde(with = "instant")]
    pub at: Timestamp,
    /// Program and release that reported it.
    pub tool: String,
    /// What happened.
    #[serde(flatten)]
    pub event: RunEvent,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RunEvent {
    /// The run began. It is the first event, and no other one is.
    Start(Box<RunStart>),
    /// Another attempt went on from a state.
    Resume(RunResume),
    /// A checkpoint of the weights was written.
    Checkpoint(RunCheckpoint),
    /// The trainer has come so far.
    Progress(RunProgress),
    /// The run has ended; no other event follows but `resume`.
    End(RunEnd),
}

/// A number of turns of an epoch that were delivered, all epochs before it being over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EpochTurn {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Turns of it, a multiple of the batch.
    pub turn: u64,
}

/// The parameters of an order, all of them numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOrder {
    /// 1: order 1 of docs/FORMAT.md.
    pub format: u32,
    /// The seed.
    pub seed: u64,
    /// Whether records are shuffled; otherwise a turn is a position.
    pub shuffle: bool,
    /// Records of a block.
    pub block: u64,
    /// Number of lanes.
    pub lanes: u64,
    /// Records of a window.
    pub window: u64,
}

/// How a run began, and what it reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStart {
    /// Name of the run.
    pub name: String,
    /// The run, 32 hexadecimal digits, whatever it is called.
    pub id: String,
    /// The version that it reads.
    pub version: Version,
    /// Root of the version in hexadecimal; `None` if its entry has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Basis of the positions in hexadecimal.
    pub basis: String,
    /// The split that it reads; `None` if it reads all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Number of positions.
    pub records: u64,
    /// The order.
    pub order: RunOrder,
    /// Records of a step over all ranks.
    pub global_batch_size: u64,
    /// Whether records that do not fill a step are left out.
    pub drop_last: bool,
    /// Where it began; not 0 if it went on from a state of a run that was not recorded.
    #[serde(flatten)]
    pub from: EpochTurn,
    /// Number of steps after which progress is reported at the latest.
    pub report_every: u64,
    /// What the weights learn of the data: `train`, or `validate` if they do not.
    pub role: String,
    /// The run that it repeats with holes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<RunReplay>,
    /// Numbers of the records that are left out, ascending: their slots stay empty, and no other record moves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<u64>,
}

/// A run, and the number of its steps that precede.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReplay {
    /// Name of the run.
    pub run: String,
    /// The run, 32 hexadecimal digits.
    pub id: String,
    /// Steps that were completed.
    pub step: u64,
}

/// How another attempt went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResume {
    /// Steps that were completed, counted over epochs in batches of this attempt.
    pub step: u64,
    /// Where it went on.
    #[serde(flatten)]
    pub from: EpochTurn,
    /// Records of a step over all ranks, from here on.
    pub global_batch_size: u64,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCheckpoint {
    /// Steps that were completed, as in [`RunResume`].
    pub step: u64,
    /// Where it is in the order.
    #[serde(flatten)]
    pub at: EpochTurn,
    /// Its name, as it was given: a path or URL.
    pub name: String,
    /// A hash of it, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// How far the trainer has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProgress {
    /// Steps that were completed, as in [`RunResume`].
    pub step: u64,
    /// Where it is in the order.
    #[serde(flatten)]
    pub at: EpochTurn,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Steps that were completed, as in [`RunResume`].
    pub step: u64,
    /// Where it is in the order.
    #[serde(flatten)]
    pub at: EpochTurn,
    /// Why, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl RunEvent {
    /// Returns the name of the kind of event.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Resume(_) => "resume",
            Self::Checkpoint(_) => "checkpoint",
            Self::Progress(_) => "progress",
            Self::End(_) => "end",
        }
    }

    /// Returns where the trainer is in the order.
    pub fn reached(&self) -> EpochTurn {
        match self {
            Self::Start(start) => start.from,
            Self::Resume(resume) => resume.from,
            Self::Checkpoint(checkpoint) => checkpoint.at,
            Self::Progress(progress) => progress.at,
            Self::End(end) => end.at,
        }
    }
}

impl RunStart {
    /// Returns the steps of an epoch of some batch.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the parameters make no order.
    pub fn layout(&self, batch: u64) -> Result<StepLayout> {
        let remainder = if self.drop_last { Remainder::Dropped } else { Remainder::Delivered };
        StepLayout::new(&self.epoch_order(0)?, batch, remainder).map_err(|e| self.no_order(&e.to_string()))
    }

    /// Returns the order of an epoch.
    ///
    /// # Errors
    /// As [`layout`](Self::layout).
    pub fn epoch_order(&self, epoch: u64) -> Result<EpochOrder> {
        let RunOrder { seed, block, lanes, window, .. } = self.order;
        let basis = self.basis_hash()?;
        let parameters = OrderParameters { records: self.records, block, lanes, window, seed, epoch, basis };
        EpochOrder::new(parameters).map_err(|e| self.no_order(&e.to_string()))
    }

    /// Whether a record is left out, given its number.
    pub fn omits(&self, number: u64) -> bool {
        self.without.binary_search(&number).is_ok()
    }

    /// Returns the basis.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if it is no hash.
    pub fn basis_hash(&self) -> Result<Hash> {
        let hash = from_hex(&self.basis).and_then(|bytes| bytes.try_into().ok());
        hash.ok_or_else(|| self.no_order("its basis is not 64 hexadecimal digits"))
    }

    fn no_order(&self, why: &str) -> Error {
        Error::integrity(format!("the training run `{}` has no order: {why}", self.name))
    }
}

impl TrainingEvent {
    /// Returns an error unless the numbers of an event make sense by themselves.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) that names what is wrong.
    pub fn check(&self) -> Result<()> {
        let is_hex = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
        let wrong =
            |what: String| Err(Error::usage(format!("an event `{}` of a training run: {what}", self.event.kind())));
        if self.format != FORMAT {
            return wrong(format!("expected format {FORMAT}, found {}", self.format));
        }
        if !is_hex(&self.attempt, 32) {
            return wrong(format!("expected 32 hexadecimal digits as its attempt, found `{}`", self.attempt));
        }
        let RunEvent::Start(start) = &self.event else { return Ok(()) };
        if !is_hex(&start.id, 32) {
            return wrong(format!("expected 32 hexadecimal digits as its id, found `{}`", start.id));
        }
        if start.order.format != 1 {
            return wrong(format!("expected order 1, found order {}", start.order.format));
        }
        if !matches!(start.role.as_str(), "train" | "validate") {
            return wrong(format!("expected the role train or validate, found `{}`", start.role));
        }
        if !start.without.is_sorted() {
            return wrong("expected the numbers of `without` in ascending order".to_owned());
        }
        if start.report_every == 0 {
            return wrong("expected to report every step or more, found 0".to_owned());
        }
        match start.layout(start.global_batch_size) {
            Ok(_) => Ok(()),
            Err(e) => wrong(e.to_string()),
        }
    }
}
