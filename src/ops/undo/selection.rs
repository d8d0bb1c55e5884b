//! The records of selected sources: which sources they are, and in which rows of which shards they lie.

use std::collections::{BTreeMap, HashSet};

use arrow::array::{Array, AsArray};
use serde::Serialize;

use super::ROWS;
use crate::{
    dataset::{IdQuery, Pseudonymizer, ShardMeta, Snapshot, SourceRow, sidecar_batches, token_of},
    error::Result,
    exec::erase::AffectedShard,
    id::Version,
    ops::rewrite::{self, Ranges},
};

/// A source that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemovedSource {
    /// Its name.
    pub source: String,
    /// Its URL or absolute path.
    pub uri: String,
    /// The version that imported it.
    pub version: Version,
}

/// Selected sources and the records that came from them.
#[derive(Debug, Default)]
pub(in crate::ops) struct SourceSelection {
    /// Numbers of all records of the selected tables and archives.
    ranges: Ranges,
    /// Stored keys of samples with selected files, with the record numbers of the run that imported them.
    samples: Vec<((u64, u64), HashSet<String>)>,
    /// URI and version of the selected rows of the list.
    rows: HashSet<(String, Version)>,
    /// The sources, for the report.
    pub(super) sources: Vec<RemovedSource>,
}

/// A row of the list of sources, reduced to what decides which record numbers belong to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SourceStart {
    first: u64,
    version: Version,
    /// Position in the list: within a version, sources are in the order of their records.
    at: usize,
}

impl SourceSelection {
    /// Selects the sources of the newest version that `wanted` accepts.
    ///
    /// # Errors
    /// When the list of sources cannot be read.
    pub(in crate::ops) fn select_sources(
        newest: &Snapshot,
        pseudonymizer: Option<&Pseudonymizer>,
        wanted: &mut dyn FnMut(&SourceRow) -> bool,
    ) -> Result<Self> {
        let keys = &newest.entry().settings.keys;
        let mut starts: Vec<SourceStart> = Vec::new();
        let mut tables: Vec<SourceStart> = Vec::new();
        let mut parts: BTreeMap<(u64, Version), HashSet<String>> = BTreeMap::new();
        let mut selection = Self::default();
        newest.each_source(&mut |row| {
            let at = starts.len();
            starts.extend(row.first_records().map(|first| SourceStart { first, version: row.version, at }));
            if row.removed.is_some() || !wanted(&row) {
                return Ok(());
            }
            if row.is_part_of_sample() {
                let key = keys.path_key(&row.name);
                parts.entry((row.first_record, row.version)).or_default().insert(key.into_owned());
            } else {
                tables.extend_from_slice(&starts[at..]);
            }
            selection.rows.insert((row.uri.clone(), row.version));
            selection.sources.push(RemovedSource { source: row.name, uri: row.uri, version: row.version });
            Ok(())
        })?;
        starts.sort_unstable();
        let end = |first: u64| {
            let next = starts.partition_point(|start| start.first <= first);
            starts.get(next).map_or(newest.entry().next_record, |start| start.first)
        };
        // A source without records begins where the next one begins: the last of these has the records.
        let owns = |start: &&SourceStart| {
            let next = starts.partition_point(|other| other.first <= start.first);
            next.checked_sub(1).and_then(|last| starts.get(last)) == Some(*start)
        };
        selection.ranges = Ranges::new(tables.iter().filter(owns).map(|own| (own.first, end(own.first))).collect());
        if !parts.is_empty() {
            selection.with_other_parts(newest, &parts)?;
        }
        let stored = |key: String| IdQuery::new(pseudonymizer, &key).hashed_text().to_owned();
        selection.samples = parts
            .into_iter()
            .map(|((first, _), keys)| ((first, end(first)), keys.into_iter().map(stored).collect()))
            .collect();
        Ok(selection)
    }

    /// Selects all files of a sample that has a selected file.
    fn with_other_parts(&mut self, newest: &Snapshot, parts: &BTreeMap<(u64, Version), HashSet<String>>) -> Result<()> {
        let rule = &newest.entry().settings.keys;
        newest.each_source(&mut |row| {
            let keys = parts
                .get(&(row.first_record, row.version))
                .filter(|_| row.is_part_of_sample() && row.removed.is_none());
            if keys.is_some_and(|keys| keys.contains(rule.path_key(&row.name).as_ref()))
                && self.rows.insert((row.uri.clone(), row.version))
            {
                self.sources.push(RemovedSource { source: row.name, uri: row.uri, version: row.version });
            }
            Ok(())
        })
    }

    /// Returns the version that removed a source, if `version` removes the selected ones.
    pub(in crate::ops) fn removed_by(&self, row: &SourceRow, version: Version) -> Option<Version> {
        match row.removed {
            None if self.rows.contains(&(row.uri.clone(), row.version)) => Some(version),
            known => known,
        }
    }

    /// Returns the live shards that hold records of the selected sources, with their rows.
    ///
    /// # Errors
    /// When sidecars or record numbers cannot be read.
    pub(in crate::ops) fn affected_shards(&self, newest: &Snapshot) -> Result<Vec<AffectedShard>> {
        let store = newest.dataset().store();
        let table = newest.run_table()?;
        let by_shard = newest.runs_by_shard()?;
        let mut affected_shards = Vec::new();
        for shard in newest.live_shards()? {
            let runs = by_shard.get(shard.path.as_str()).map_or(&[][..], Vec::as_slice);
            let mut rows = rewrite::rows_in(store, runs, table, &self.ranges)?;
            for (numbers, keys) in &self.samples {
                let inside = rewrite::rows_in(store, runs, table, &Ranges::new(vec![*numbers]))?;
                rows.extend(rows_with(newest, shard, keys, &inside)?);
            }
            rows.sort_unstable();
            rows.dedup();
            if !rows.is_empty() {
                affected_shards.push(rewrite::affected_shard(newest, shard, runs, rows));
            }
        }
        Ok(affected_shards)
    }
}

/// Returns those of the ascending `rows` whose record id is in `keys`.
fn rows_with(newest: &Snapshot, shard: &ShardMeta, keys: &HashSet<String>, rows: &[u64]) -> Result<Vec<u64>> {
    let mut out = Vec::new();
    if rows.is_empty() {
        return Ok(out);
    }
    let mut first = 0;
    for batch in sidecar_batches(newest.dataset().store(), &shard.sidecar(), ROWS)? {
        let batch = batch?;
        let ids = batch.column(0).as_string::<i32>();
        let end = first + batch.num_rows() as u64;
        let here = &rows[rows.partition_point(|row| *row < first)..rows.partition_point(|row| *row < end)];
        let is_wanted = |row: &&u64| {
            let at = usize::try_from(**row - first).unwrap_or(usize::MAX);
            at < ids.len() && ids.is_valid(at) && keys.contains(token_of(ids.value(at)))
        };
        out.extend(here.iter().filter(is_wanted));
        first = end;
    }
    Ok(out)
}
