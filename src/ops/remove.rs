//! `remove`: removes the records of a source, or of a run, from the newest version.
//!
//! It undoes `convert`, not the collection of data: nothing blocks the source from being imported again, older versions
//! keep the records until `vacuum` deletes them, and `revert` restores them. To make a person's records unreadable and
//! block their re-import, use `erase`.
//!
//! ```text
//! list of sources -> record numbers of the sources -> rows of live shards -> shards without them -> commit
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Instant,
};

use arrow::array::{Array, AsArray};
use serde::Serialize;

use super::{
    Context,
    rewrite::{self, Ranges},
};
use crate::{
    dataset::{
        Counts, Dataset, IdQuery, Numbers, Operation, Pseudonymizer, Publication, Retraction, ShardMeta, Snapshot,
        SourceRow, Transaction, commit, pseudonymizer_of, sidecar_batches, token_of,
    },
    error::{Error, Result},
    exec::erase::AffectedShard,
    id::{TransactionId, Version},
    indexes::version::{Prepared, refresh},
    storage::Location,
};

/// Sidecar rows read at a time.
const ROWS: usize = 1 << 16;

/// Options of `remove`.
#[derive(Debug, Clone, Default)]
pub struct RemoveOptions {
    /// Names, paths or URLs of sources; all sources of the run if empty.
    pub sources: Vec<String>,
    /// The version that imported the sources; any version if `None`.
    pub run: Option<Version>,
    /// Plan without changing anything.
    pub dry_run: bool,
}

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

/// Report of a `remove` run.
#[derive(Debug, Clone, Serialize)]
pub struct RemoveReport {
    /// The dataset.
    pub dataset: String,
    /// The new version; the current one if nothing was removed.
    pub version: Version,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Records removed from the newest version, or that would be removed.
    pub records: u64,
    /// Records that remain in it.
    pub records_left: u64,
    /// Number of shards rewritten without the records.
    pub shards_rewritten: u64,
    /// Number of shards that lost all records.
    pub shards_dropped: u64,
    /// Number of sources removed.
    pub sources: u64,
    /// Names of no source, or of sources without remaining records.
    pub missing: Vec<String>,
    /// Time taken.
    pub seconds: f64,
    /// The sources.
    #[serde(skip)]
    pub removed: Vec<RemovedSource>,
}

/// Removes records of sources.
///
/// # Errors
/// When there is no dataset, a name matches several sources, a shard is damaged, other runs keep replacing the shards,
/// or the store fails; nothing is committed then.
pub fn remove(context: &Context<'_>, location: &Location, options: &RemoveOptions) -> Result<RemoveReport> {
    let started = Instant::now();
    if options.sources.is_empty() && options.run.is_none() {
        return Err(Error::usage("expected --source or --run, found neither")
            .hint("name what to remove: `shardify remove --source export.csv`, or `--run v12` for all of a run")
            .hint("`shardify manifest --history` lists the runs"));
    }
    let dataset = context.dataset(location)?;
    if !options.dry_run {
        super::erase::finish_cut_short(context, Some(&dataset.open()?))?;
    }
    let mut report =
        super::until_changed(context, &dataset, &mut |newest| Removal::new(context, &dataset, newest, options)?.run())?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// One attempt of a removal.
struct Removal<'a> {
    context: &'a Context<'a>,
    dataset: &'a Dataset,
    newest: &'a Snapshot,
    options: &'a RemoveOptions,
    selection: Selection,
    missing: Vec<String>,
}

impl<'a> Removal<'a> {
    fn new(
        context: &'a Context<'a>,
        dataset: &'a Dataset,
        newest: &'a Snapshot,
        options: &'a RemoveOptions,
    ) -> Result<Self> {
        if let Some(run) = options.run {
            check_run(newest, run)?;
        }
        let pseudonymizer = if options.sources.is_empty() { None } else { pseudonymizer_of(newest)? };
        let mut names = Names::new(context, &options.sources, pseudonymizer.as_ref());
        let run = options.run;
        let mut wanted = |row: &SourceRow| run.is_none_or(|run| row.version == run) && names.take(row);
        let selection = Selection::of(newest, pseudonymizer.as_ref(), &mut wanted)?;
        let missing = names.missing()?;
        Ok(Self { context, dataset, newest, options, selection, missing })
    }

    fn run(self) -> Result<RemoveReport> {
        let affected_shards = self.selection.affected_shards(self.newest)?;
        let mut report = self.report(&affected_shards)?;
        if self.options.dry_run || (affected_shards.is_empty() && self.selection.sources.is_empty()) {
            return Ok(report);
        }
        self.dataset.test_store()?;
        let transaction = TransactionId::fresh();
        let mut publication = Publication::begin(self.dataset, &transaction, Operation::Remove, self.newest.version())?;
        let rewritten = rewrite::publish(self.context, self.newest, affected_shards, &mut publication, &mut 0)?;
        report.counts = Counts {
            records_removed: rewritten.records,
            bytes_out: rewritten.bytes,
            shards_added: rewritten.shards.len() as u64,
            shards_removed: rewritten.removes.len() as u64,
            ..Counts::default()
        };
        let removed_by = |row: &SourceRow, version| self.selection.removed_by(row, version);
        self.context.cancel.check()?;
        let transaction = Transaction {
            id: transaction,
            operation: Operation::Remove,
            arguments: self.arguments(),
            revisions: Vec::new(),
            counts: report.counts,
            settings: self.newest.entry().settings.clone(),
            adds: Vec::new(),
            removes: rewritten.removes,
            segments: Vec::new(),
            merges: Vec::new(),
            places: rewritten.places,
            retraction: Retraction { rewritten: rewritten.shards, sources: Some(&removed_by), ..Retraction::default() },
            sources: &(),
            duplicates: None,
            numbers: Numbers::Kept,
            calls: 0,
        };
        let planned_on = self.newest.version();
        let snapshot = publication.attempt(|| commit(self.dataset, &transaction, planned_on))?;
        report.version = snapshot.version();
        report.records_left = snapshot.entry().totals.records;
        refresh(&snapshot, Prepared::default(), self.context.observer)?;
        super::inputs::tell_left_out(self.context, &snapshot)?;
        Ok(report)
    }

    fn report(&self, affected_shards: &[AffectedShard]) -> Result<RemoveReport> {
        let records: u64 = affected_shards.iter().map(|affected| affected.ordinals.len() as u64).sum();
        let dropped =
            affected_shards.iter().filter(|affected| affected.ordinals.len() as u64 == affected.shard.records).count();
        Ok(RemoveReport {
            dataset: self.dataset.store().location().to_string(),
            version: self.newest.version(),
            dry_run: self.options.dry_run,
            counts: Counts::default(),
            records,
            records_left: self.newest.entry().totals.without(records)?,
            shards_rewritten: (affected_shards.len() - dropped) as u64,
            shards_dropped: dropped as u64,
            sources: self.selection.sources.len() as u64,
            missing: self.missing.clone(),
            removed: self.selection.sources.clone(),
            seconds: 0.0,
        })
    }

    fn arguments(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        if let Some(run) = self.options.run {
            out.insert("run".to_owned(), run.to_string());
        }
        // The names as the dataset stores them: tokens, if sources are private.
        let names: BTreeSet<&str> = self.selection.sources.iter().map(|source| source.source.as_str()).collect();
        if !self.options.sources.is_empty() {
            out.insert("source".to_owned(), names.into_iter().collect::<Vec<_>>().join(","));
        }
        out
    }
}

/// Returns an error unless a version imported sources.
fn check_run(newest: &Snapshot, run: Version) -> Result<()> {
    let entry = newest.dataset().entry(run)?;
    if entry.operation.imports() {
        return Ok(());
    }
    let what = format!("expected a version that imported sources, found {run}, which is a {}", entry.operation);
    Err(Error::usage(what)
        .at(newest.dataset().store().location().to_string())
        .hint("`shardify manifest --history` lists the runs; `shardify revert` goes back to an older version"))
}

/// Source names given by the user, and the sources that match them.
struct Names<'a> {
    /// For each argument, the texts that the list may contain: the name, and the path or URL.
    wanted: Vec<(&'a str, String, String)>,
    /// For each argument, the URIs of the sources that have it as their name.
    found: Vec<BTreeSet<String>>,
    by_uri: HashSet<usize>,
}

impl<'a> Names<'a> {
    fn new(context: &Context<'_>, sources: &'a [String], pseudonymizer: Option<&Pseudonymizer>) -> Self {
        let texts = |text: &'a String| {
            let uri = context.location(text).map_or_else(|_| text.clone(), |location| location.to_string());
            match pseudonymizer {
                Some(pseudonymizer) => {
                    (text.as_str(), pseudonymizer.source(text).into_owned(), pseudonymizer.uri(&uri).into_owned())
                }
                None => (text.as_str(), text.clone(), uri),
            }
        };
        let wanted: Vec<_> = sources.iter().map(texts).collect();
        Self { found: vec![BTreeSet::new(); wanted.len()], wanted, by_uri: HashSet::new() }
    }

    /// Returns whether a source is requested; all sources are if no name is given.
    fn take(&mut self, row: &SourceRow) -> bool {
        let mut taken = self.wanted.is_empty();
        for (i, (_, name, uri)) in self.wanted.iter().enumerate() {
            if row.uri == *uri {
                self.by_uri.insert(i);
                taken = true;
            } else if row.name == *name {
                self.found[i].insert(row.uri.clone());
                taken = true;
            }
        }
        taken
    }

    /// Returns the names that match no source; fails if one matches several.
    fn missing(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for (i, (text, _, _)) in self.wanted.iter().enumerate() {
            let uris = self.found[i].len() + usize::from(self.by_uri.contains(&i));
            if uris == 0 {
                missing.push((*text).to_owned());
            }
            if uris > 1 {
                let some: Vec<&str> = self.found[i].iter().take(3).map(String::as_str).collect();
                return Err(Error::usage(format!("`{text}` is the name of {uris} sources: which is meant?"))
                    .hint(format!("name the source by its path or URL, such as {}", some.join(" or ")))
                    .hint("or name the run that imported it with --run"));
            }
        }
        Ok(missing)
    }
}

/// Selected sources and the records that came from them.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Numbers of all records of the selected tables and archives.
    ranges: Ranges,
    /// Stored keys of samples with selected files, with the record numbers of the run that imported them.
    samples: Vec<((u64, u64), HashSet<String>)>,
    /// URI and version of the selected rows of the list.
    rows: HashSet<(String, Version)>,
    /// The sources, for the report.
    sources: Vec<RemovedSource>,
}

/// A row of the list of sources, reduced to what decides which record numbers belong to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    first: u64,
    version: Version,
    /// Position in the list: within a version, sources are in the order of their records.
    at: usize,
}

impl Selection {
    /// Selects the sources of the newest version that `wanted` accepts.
    ///
    /// # Errors
    /// When the list of sources cannot be read.
    pub(super) fn of(
        newest: &Snapshot,
        pseudonymizer: Option<&Pseudonymizer>,
        wanted: &mut dyn FnMut(&SourceRow) -> bool,
    ) -> Result<Self> {
        let keys = &newest.entry().settings.keys;
        let mut starts: Vec<Start> = Vec::new();
        let mut tables: Vec<Start> = Vec::new();
        let mut parts: BTreeMap<(u64, Version), HashSet<String>> = BTreeMap::new();
        let mut selection = Self::default();
        newest.each_source(&mut |row| {
            let at = starts.len();
            starts.extend(row.firsts().map(|first| Start { first, version: row.version, at }));
            if row.removed.is_some() || !wanted(&row) {
                return Ok(());
            }
            if row.is_part_of_sample() {
                let key = keys.key(&row.name);
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
        let owns = |start: &&Start| {
            let next = starts.partition_point(|other| other.first <= start.first);
            next.checked_sub(1).and_then(|last| starts.get(last)) == Some(*start)
        };
        selection.ranges = Ranges::new(tables.iter().filter(owns).map(|own| (own.first, end(own.first))).collect());
        if !parts.is_empty() {
            selection.with_other_parts(newest, &parts)?;
        }
        let stored = |key: String| IdQuery::new(pseudonymizer, &key).text().to_owned();
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
            if keys.is_some_and(|keys| keys.contains(rule.key(&row.name).as_ref()))
                && self.rows.insert((row.uri.clone(), row.version))
            {
                self.sources.push(RemovedSource { source: row.name, uri: row.uri, version: row.version });
            }
            Ok(())
        })
    }

    /// Returns the version that removed a source, if `version` removes the selected ones.
    pub(super) fn removed_by(&self, row: &SourceRow, version: Version) -> Option<Version> {
        match row.removed {
            None if self.rows.contains(&(row.uri.clone(), row.version)) => Some(version),
            known => known,
        }
    }

    /// Returns the live shards that hold records of the selected sources, with their rows.
    ///
    /// # Errors
    /// When sidecars or record numbers cannot be read.
    pub(super) fn affected_shards(&self, newest: &Snapshot) -> Result<Vec<AffectedShard>> {
        let store = newest.dataset().store();
        let table = newest.runs()?;
        let by_shard = newest.runs_by_shard()?;
        let mut affected_shards = Vec::new();
        for shard in newest.shards()? {
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
