//! Positions of sorted records in every readable version.

use std::collections::BTreeMap;

use crate::{
    dataset::{
        index::places::lookup_places,
        log::{runs::Run, snapshot::Snapshot},
    },
    error::Result,
};

/// Returns the current and former positions of each record in readable versions: runs with ordinals, oldest version
/// first. `records` must ascend.
///
/// # Errors
/// When the run table or places cannot be read.
pub fn places_of<'a>(snapshot: &'a Snapshot, records: &[u64]) -> Result<BTreeMap<u64, Vec<(&'a Run, u64)>>> {
    let table = snapshot.run_table()?;
    let runs: Vec<(u64, Vec<&Run>)> = records.iter().map(|record| (*record, table.of_record(*record))).collect();
    // Records that may be in one set are looked up together, so that each table is opened once.
    let mut asked: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (record, runs) in &runs {
        for set in runs.iter().filter_map(|run| Some(run.scattered.as_ref()?.set.as_str())) {
            let asked = asked.entry(set).or_default();
            if asked.last() != Some(record) {
                asked.push(*record);
            }
        }
    }
    let mut found: BTreeMap<(&str, u64), (u64, u64)> = BTreeMap::new();
    for (set, records) in asked {
        for table in snapshot.entry().places.iter().filter(|table| table.set == set) {
            let start = records.partition_point(|record| *record < table.first);
            let end = records.partition_point(|record| *record <= table.last);
            if start < end {
                let places = lookup_places(snapshot.dataset().store(), table, &records[start..end])?;
                found.extend(places.into_iter().map(|(record, place)| ((set, record), place)));
            }
        }
    }
    let ordinal = |record: u64, run: &Run| match &run.scattered {
        None => Some(run.ordinal + (record - run.first)),
        Some(scattered) => {
            let (shard, ordinal) = found.get(&(scattered.set.as_str(), record))?;
            (*shard == scattered.shard).then_some(*ordinal)
        }
    };
    Ok(runs
        .into_iter()
        .map(|(record, runs)| {
            let places = runs.into_iter().filter_map(|run| Some((run, ordinal(record, run)?))).collect();
            (record, places)
        })
        .collect())
}
