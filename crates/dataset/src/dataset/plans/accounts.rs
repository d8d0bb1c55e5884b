//! Whether the outcome of a task adds up: a commit takes it over as it is, so each record, shard and source is
//! accounted for first.
//!
//! Workers write outcomes, and whoever may write to the dataset can make one up. What an outcome states about itself,
//! and about the plan, is compared here; whether the bytes of its objects are those that it states is known to
//! `verify`.
//!
//! ```text
//! shards of the attempt   |-- runs --|-- runs --|      numbers 0..records of the task, each once
//! segments                pairs <= records, below the same numbers
//! sources                 rows of the plan's task, each once at most
//! counts                  in = out + rejected + deduplicated + filtered, out = records of the shards
//! ```

use std::{collections::HashSet, sync::Arc};

use super::{
    outcome::{Outcome, OutcomeShard, each_source},
    record::PlanRecord,
};
use crate::{
    dataset::{
        index::SegmentRef,
        log::{
            bounds::{TOO_MANY, check_segment},
            snapshot::Dataset,
        },
        table::paths::is_adopted_sidecar,
    },
    error::{Error, Result},
    id::Writer,
    storage::Store,
};

/// What to do about an outcome that does not add up.
pub const MADE_UP_HINT: &str = "the outcome was damaged or made up: delete it, run its task again, and commit again";

/// Fails unless the outcomes of all tasks of a plan add up. `is_merge` says that record numbers are those of the merged
/// shards, which the caller compares with them; `names_sources` that sources have the names of the plan's rows.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) that names the task and what differs; when a table cannot be
/// read.
pub fn check_outcomes(dataset: &Dataset, record: &PlanRecord, outcomes: &[Outcome], is_merge: bool) -> Result<()> {
    let mut paths: HashSet<&str> = HashSet::new();
    for (task, outcome) in outcomes.iter().enumerate() {
        let account = Account { record, task, outcome };
        account
            .check_outcome(is_merge, &mut paths)
            .and_then(|()| if is_merge { Ok(()) } else { account.check_sources(dataset.store()) })
            .map_err(|error| {
                error
                    .at_location(
                        dataset.store().location().join(&Outcome::path_for(&record.id, outcome.task)).to_string(),
                    )
                    .with_hint(MADE_UP_HINT)
            })?;
    }
    Ok(())
}

/// The outcome of a task.
struct Account<'a> {
    record: &'a PlanRecord,
    task: usize,
    outcome: &'a Outcome,
}

impl<'a> Account<'a> {
    fn check_outcome(&self, is_merge: bool, paths: &mut HashSet<&'a str>) -> Result<()> {
        let outcome = self.outcome;
        let folder = self.find_writer()?.shard_folder();
        for shard in &outcome.shards {
            // A shard that stays in place has only its sidecar from the attempt, and the plan names it.
            let is_in_place = is_adopted_sidecar(shard.sidecar_path());
            if !is_in_place && shard.path().split('/').next() != Some(folder.as_str()) {
                return Err(outcome_error(format!("shards in {folder}/"), shard.path()));
            }
            check_unique(paths, shard.path())?;
        }
        outcome.segments.iter().try_for_each(|segment| check_unique(paths, &segment.path))?;
        let others = outcome.sources.iter().map(|list| list.path.as_str());
        others
            .chain(outcome.rejects.iter().map(|rejects| rejects.path.as_str()))
            .try_for_each(|path| check_unique(paths, path))?;
        self.check_numbers()?;
        let runs = self.checked_runs()?;
        if !is_merge {
            every_record_once(runs)?;
        }
        outcome.segments.iter().try_for_each(|segment| self.check_task_segment(segment))
    }

    /// Returns the attempt that has the outcome.
    fn find_writer(&self) -> Result<Writer> {
        let serial = usize::try_from(self.outcome.writer).ok().filter(|serial| {
            serial.checked_rem(self.record.tasks.len()) == Some(self.task) && (*serial as u64) < TOO_MANY
        });
        match serial {
            Some(serial) => Ok(Writer { run: self.record.id.clone(), serial: Some(serial) }),
            None => Err(outcome_error(format!("an attempt of task {}", self.task), &self.outcome.writer.to_string())),
        }
    }

    fn check_numbers(&self) -> Result<()> {
        let outcome = self.outcome;
        let counts = outcome.counts;
        let all = [
            counts.records_in,
            counts.records_out,
            counts.records_rejected,
            counts.records_erased,
            counts.records_deduplicated,
            counts.records_filtered,
            counts.records_removed,
            counts.records_restored,
            counts.bytes_in,
            counts.bytes_out,
            counts.shards_added,
            counts.shards_removed,
            outcome.records,
        ];
        let of_shards = outcome.shards.iter().flat_map(OutcomeShard::all_numbers);
        if let Some(number) = all.into_iter().chain(of_shards).find(|number| *number >= TOO_MANY) {
            return Err(outcome_error(format!("numbers below {TOO_MANY}"), &number.to_string()));
        }
        counts.reconcile()?;
        let records: u64 = outcome.shards.iter().map(|shard| shard.record_count()).sum();
        let bytes: u64 = outcome.shards.iter().map(|shard| shard.stored_bytes()).sum();
        let same = |what: &str, stated: u64, found: u64| match stated == found {
            true => Ok(()),
            false => Err(outcome_error(format!("{stated} {what}, as it states"), &format!("{found} in its shards"))),
        };
        same("records", outcome.records, records)?;
        same("records", counts.records_out, records)?;
        same("shards", counts.shards_added, outcome.shards.len() as u64)?;
        same("bytes", counts.bytes_out, bytes)
    }

    /// Returns the runs of record numbers in the shards, which cover their rows.
    fn checked_runs(&self) -> Result<Vec<(u64, u64)>> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for shard in &self.outcome.shards {
            let mut ordinal = 0;
            for (first, records, at) in shard.record_runs() {
                let is_next = *at == ordinal && *records < TOO_MANY && *first < TOO_MANY;
                if !is_next || *records == 0 {
                    let run = format!("a run of records at row {ordinal} of {}", shard.path());
                    return Err(outcome_error(run, &format!("one at row {at}")));
                }
                runs.push((*first, *records));
                ordinal += records;
            }
            if ordinal != shard.record_count() {
                let expected = format!("runs of {} records in {}", shard.record_count(), shard.path());
                return Err(outcome_error(expected, &ordinal.to_string()));
            }
        }
        Ok(runs)
    }

    fn check_task_segment(&self, segment: &SegmentRef) -> Result<()> {
        check_segment(segment)?;
        let outcome = self.outcome;
        if segment.pairs <= outcome.records && segment.record_base <= outcome.records && !segment.seals.is_empty() {
            return Ok(());
        }
        let found = format!("{} ids in {} sealed buckets of {}", segment.pairs, segment.seals.len(), segment.path);
        Err(outcome_error(format!("a segment of at most {} sealed ids of the task", outcome.records), &found))
    }

    /// Fails unless the sources are those of the task, each of them once at most.
    fn check_sources(&self, store: &Arc<dyn Store>) -> Result<()> {
        let Some(list) = &self.outcome.sources else { return Ok(()) };
        let planned = self.record.sources_of(store, self.task)?;
        if list.rows > planned.len() as u64 {
            return Err(outcome_error(format!("at most {} sources", planned.len()), &list.rows.to_string()));
        }
        // A source that is cut into parts has a row for each of them.
        let mut left: HashSet<String> = planned.iter().map(|row| format!("{}{}", row.prefix, row.path)).collect();
        let mut last = String::new();
        let mut rows = 0;
        each_source(store, list, 0, &mut |row| {
            rows += 1;
            let ends = row.first_records().all(|first| first <= self.outcome.records) && row.records < TOO_MANY;
            if !left.remove(&row.name) && row.name != last {
                return Err(outcome_error("sources of the plan".to_owned(), &row.name));
            }
            if !ends {
                return Err(outcome_error(format!("records of {} below {}", row.name, self.outcome.records), "others"));
            }
            last = row.name;
            Ok(())
        })?;
        match rows == list.rows {
            true => Ok(()),
            false => Err(outcome_error(format!("{} sources", list.rows), &rows.to_string())),
        }
    }
}

/// Fails unless runs have each number from 0 on once.
fn every_record_once(mut runs: Vec<(u64, u64)>) -> Result<()> {
    runs.sort_unstable();
    let mut next = 0;
    for (first, records) in runs {
        if first != next {
            return Err(outcome_error(format!("record {next} of the task once"), &format!("record {first}")));
        }
        next += records;
    }
    Ok(())
}

/// Fails if another outcome, or the same one, has named an object before.
fn check_unique<'a>(paths: &mut HashSet<&'a str>, path: &'a str) -> Result<()> {
    match paths.insert(path) {
        true => Ok(()),
        false => Err(outcome_error("each object once".to_owned(), &format!("`{path}` twice"))),
    }
}

fn outcome_error(expected: String, found: &str) -> Error {
    Error::integrity(format!("the outcome of a task does not add up: expected {expected}, found {found}"))
}
