//! The gates of a conversion, in their order.

use std::sync::{
    PoisonError,
    atomic::{AtomicU64, Ordering},
};

use super::{fingerprints, inputs::Inputs, job::ConvertJob, plan::ConvertPlan};
use crate::{
    dataset::DuplicatesRef,
    error::Result,
    exec::gates::{
        Gate,
        dedup::DedupGate,
        fit::{FitGate, OpenTypesGate},
        limit::LimitGate,
        names::{NameGate, PartsGate},
        select::SelectGate,
        splits::{Groups, SplitGate},
        subjects::SubjectResolver,
        suppress::SuppressGate,
    },
    id::Writer,
    storage::Staged,
};

/// The gates of a run; `None` for those that it does not have.
pub(super) struct ConvertGates<'a> {
    open: Option<OpenTypesGate>,
    select: Option<SelectGate>,
    subjects: Option<&'a SubjectResolver>,
    suppress: Option<SuppressGate<'a>>,
    names: Option<&'a NameGate>,
    parts: Option<&'a PartsGate>,
    fit: Option<FitGate>,
    dedup: Option<DedupGate<'a>>,
    splits: Option<SplitGate<'a>>,
    limit: Option<LimitGate>,
}

/// What the gates of a run found.
#[derive(Default)]
pub(super) struct GateResults {
    /// Number of accepted records whose ids are other spellings of erased ones.
    pub(super) similar: u64,
    /// Number of groups that have one split as a whole; `None` if they were not counted.
    pub(super) groups: Option<usize>,
    /// The table of records that were omitted as duplicates.
    pub(super) duplicates: Option<(Staged, DuplicatesRef)>,
}

impl ConvertPlan {
    /// Returns the gates. What is known of files before they are read was done to them when they were listed.
    ///
    /// # Errors
    /// When what the dataset holds cannot be read, or a condition does not suit the columns.
    pub(super) fn open_gates<'a>(&'a self, job: &'a ConvertJob<'_>, writer: &Writer) -> Result<ConvertGates<'a>> {
        let reads_records = matches!(self.inputs, Inputs::Records(_));
        let prunes = self.given.given_names().is_empty();
        let suppress = job.suppress.as_ref().filter(|_| reads_records);
        let fits = self.inputs.give_samples() && self.settings.shard_format.is_columnar();
        Ok(ConvertGates {
            open: self.row_fields().and_then(OpenTypesGate::new),
            select: if self.inputs.give_samples() {
                None
            } else {
                self.given.selection.select_gate(&self.fields, prunes)?
            },
            subjects: self.subjects.as_ref().filter(|_| reads_records),
            suppress: suppress.map(|list| SuppressGate {
                list,
                normalize: job.options.id_normalize,
                similar: AtomicU64::new(0),
            }),
            names: self.naming.gate.as_ref(),
            parts: self.naming.parts.as_ref(),
            fit: fits.then(|| FitGate { columns: self.stored_schema() }),
            dedup: fingerprints::dedup_gate(job, self, writer)?,
            splits: self.settings.split.as_ref().map(|splits| SplitGate {
                splits,
                pseudonymizer: job.pseudonymizer.as_ref(),
                groups: Groups::default(),
            }),
            // Files beyond it were not listed.
            limit: self.settings.limit.filter(|_| reads_records).map(LimitGate::new),
        })
    }
}

impl ConvertGates<'_> {
    /// Returns the gates in their order: open types first, since a condition needs them; then the condition, so that a
    /// record which does not satisfy it counts as filtered whatever else is the matter with it; duplicates and splits
    /// behind them, since a record that does not stay is nobody's first and in no split; the limit counts what is left.
    pub(super) fn ordered_gates(&self) -> Vec<&dyn Gate> {
        fn as_gate(gate: Option<&impl Gate>) -> Option<&dyn Gate> {
            gate.map(|gate| gate as &dyn Gate)
        }
        let all = [
            as_gate(self.open.as_ref()),
            as_gate(self.select.as_ref()),
            as_gate(self.subjects),
            as_gate(self.suppress.as_ref()),
            as_gate(self.names),
            as_gate(self.parts),
            as_gate(self.fit.as_ref()),
            as_gate(self.dedup.as_ref()),
            as_gate(self.splits.as_ref()),
            as_gate(self.limit.as_ref()),
        ];
        all.into_iter().flatten().collect()
    }

    /// Ends the gates behind the last record.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) fn finish(self) -> Result<GateResults> {
        let table = self.dedup.and_then(|gate| gate.table);
        let table = table.map(|table| table.into_inner().unwrap_or_else(PoisonError::into_inner).finish());
        Ok(GateResults {
            similar: self.suppress.map_or(0, |gate| gate.similar.load(Ordering::Relaxed)),
            groups: self.splits.and_then(|gate| gate.groups.group_count()),
            duplicates: table.transpose()?.flatten(),
        })
    }
}
