//! Stacks the outcomes of tasks that add records: one transaction with the shards, segments and sources of all.
//!
//! ```text
//! task 0  records 0..n0      task 1  records 0..n1      task 2 ...
//! stacked 0..n0              n0..n0+n1                  ...          of the transaction; the commit shifts them
//! ```

use std::sync::Arc;

use super::tasks;
use crate::{
    dataset::{
        Counts, Dataset, ListRef, NewShard, NewSources, Numbers, Operation, OptionalColumns, Outcome, OutcomeCounts,
        PlanRecord, Sealed, SegmentRef, Settings, SourceRow, Transaction, each_source_of_task,
    },
    error::Result,
    storage::Store,
};

/// The outcomes of all tasks, one after the other.
pub(super) struct Stacked {
    pub(super) adds: Vec<NewShard>,
    pub(super) segments: Vec<SegmentRef>,
    pub(super) counts: Counts,
    pub(super) others: OutcomeCounts,
    pub(super) sources: StackedSources,
    pub(super) rejects: Vec<Sealed>,
}

/// The tables of sources of all tasks, each with the number of the first record of its task.
pub(super) struct StackedSources {
    store: Arc<dyn Store>,
    tables: Vec<(ListRef, u64)>,
    optional: OptionalColumns,
}

impl NewSources for StackedSources {
    /// Parts of one source, which follow each other, become one row.
    fn each_row(&self, visit: &mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()> {
        let mut last: Option<SourceRow> = None;
        for (list, base) in &self.tables {
            each_source_of_task(&self.store, list, *base, &mut |row| match &mut last {
                Some(before) if before.uri == row.uri => {
                    before.records += row.records;
                    // On each split, the records of other sources are between those of two parts.
                    if self.optional.other_firsts {
                        before.other_firsts.extend(row.first_records());
                    }
                    Ok(())
                }
                _ => last.replace(row).map_or(Ok(()), &mut *visit),
            })?;
        }
        last.map_or(Ok(()), visit)
    }

    fn optional_columns(&self) -> OptionalColumns {
        self.optional
    }
}

impl Stacked {
    /// Returns the transaction of a plan; takes the shards and segments.
    pub(super) fn build_transaction(
        &mut self,
        record: &PlanRecord,
        settings: Settings,
        operation: Operation,
    ) -> Transaction<'_> {
        self.sources.optional.other_firsts = settings.split.is_some();
        Transaction {
            counts: self.counts,
            adds: std::mem::take(&mut self.adds),
            segments: std::mem::take(&mut self.segments),
            sources: &self.sources,
            numbers: Numbers::Fresh(self.counts.records_out),
            calls: tasks::fresh_calls(),
            ..Transaction::new(record.id.clone(), operation, settings)
        }
    }

    /// Stacks outcomes; each fault is a rejected record that no task saw.
    pub(super) fn from_outcomes(dataset: &Dataset, outcomes: Vec<Outcome>, faults: u64) -> Self {
        let mut all = Self {
            adds: Vec::new(),
            segments: Vec::new(),
            counts: Counts { records_in: faults, records_rejected: faults, ..Counts::default() },
            others: OutcomeCounts::default(),
            sources: StackedSources {
                store: Arc::clone(dataset.store()),
                tables: Vec::new(),
                optional: OptionalColumns::default(),
            },
            rejects: Vec::new(),
        };
        let mut base = 0;
        for outcome in outcomes {
            all.adds.extend(outcome.shards.into_iter().map(|shard| shard.into_new_shard(base)));
            all.segments.extend(outcome.segments.into_iter().map(|segment| segment.shifted_by(base)));
            all.sources.optional.arrays |= outcome.arrays;
            all.sources.optional.part_hashes |= outcome.part_hashes;
            all.sources.tables.extend(outcome.sources.map(|list| (list, base)));
            all.rejects.extend(outcome.rejects);
            all.others += outcome.others;
            all.counts = add_counts(all.counts, outcome.counts);
            base += outcome.records;
        }
        all
    }
}

/// Returns the counts of two tasks together.
fn add_counts(a: Counts, b: Counts) -> Counts {
    Counts {
        records_in: a.records_in + b.records_in,
        records_out: a.records_out + b.records_out,
        records_rejected: a.records_rejected + b.records_rejected,
        records_erased: a.records_erased + b.records_erased,
        records_deduplicated: a.records_deduplicated + b.records_deduplicated,
        records_filtered: a.records_filtered + b.records_filtered,
        records_removed: a.records_removed + b.records_removed,
        records_restored: a.records_restored + b.records_restored,
        bytes_in: a.bytes_in + b.bytes_in,
        bytes_out: a.bytes_out + b.bytes_out,
        shards_added: a.shards_added + b.shards_added,
        shards_removed: a.shards_removed + b.shards_removed,
    }
}
