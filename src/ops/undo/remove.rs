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

use serde::Serialize;

use super::{
    commit_and_refresh,
    selection::{RemovedSource, SourceSelection},
};
use crate::{
    dataset::{
        Counts, Dataset, Operation, Pseudonymizer, Publication, Retraction, Snapshot, SourceRow, Transaction,
        pseudonymizer_of,
    },
    error::{Error, Result},
    exec::erase::AffectedShard,
    id::{TransactionId, Version},
    ops::{Context, rewrite},
    storage::Location,
};

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
pub fn remove_sources(context: &Context<'_>, location: &Location, options: &RemoveOptions) -> Result<RemoveReport> {
    let started = Instant::now();
    if options.sources.is_empty() && options.run.is_none() {
        return Err(Error::usage("expected --source or --run, found neither")
            .with_hint("name what to remove: `shardify remove --source export.csv`, or `--run v12` for all of a run")
            .with_hint("`shardify manifest --history` lists the runs"));
    }
    let dataset = context.open_dataset(location)?;
    if !options.dry_run {
        crate::ops::erase::finish_cut_short(context, Some(&dataset.open_newest()?))?;
    }
    let mut report = crate::ops::until_changed(context, &dataset, &mut |newest| {
        Removal::new(context, &dataset, newest, options)?.run()
    })?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// One attempt of a removal.
struct Removal<'a> {
    context: &'a Context<'a>,
    dataset: &'a Dataset,
    newest: &'a Snapshot,
    options: &'a RemoveOptions,
    selection: SourceSelection,
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
        let mut wanted = |row: &SourceRow| run.is_none_or(|run| row.version == run) && names.match_source(row);
        let selection = SourceSelection::select_sources(newest, pseudonymizer.as_ref(), &mut wanted)?;
        let missing = names.missing_names()?;
        Ok(Self { context, dataset, newest, options, selection, missing })
    }

    fn run(self) -> Result<RemoveReport> {
        let affected_shards = self.selection.affected_shards(self.newest)?;
        let mut report = self.build_report(&affected_shards)?;
        if self.options.dry_run || (affected_shards.is_empty() && self.selection.sources.is_empty()) {
            return Ok(report);
        }
        self.dataset.test_store()?;
        let transaction = TransactionId::fresh();
        let mut publication = Publication::begin(self.dataset, &transaction, Operation::Remove, self.newest.version())?;
        let rewritten =
            rewrite::rewrite_and_publish(self.context, self.newest, affected_shards, &mut publication, &mut 0)?;
        report.counts = Counts {
            records_removed: rewritten.records,
            bytes_out: rewritten.bytes,
            shards_added: rewritten.shards.len() as u64,
            shards_removed: rewritten.removes.len() as u64,
            ..Counts::default()
        };
        let removed_by = |row: &SourceRow, version| self.selection.removed_by(row, version);
        let transaction = Transaction {
            arguments: self.entry_arguments(),
            counts: report.counts,
            removes: rewritten.removes,
            places: rewritten.places,
            retraction: Retraction { rewritten: rewritten.shards, sources: Some(&removed_by), ..Retraction::default() },
            ..Transaction::new(transaction, Operation::Remove, self.newest.entry().settings.clone())
        };
        let snapshot = commit_and_refresh(self.context, self.newest, &transaction, publication)?;
        report.version = snapshot.version();
        report.records_left = snapshot.entry().totals.records;
        Ok(report)
    }

    fn build_report(&self, affected_shards: &[AffectedShard]) -> Result<RemoveReport> {
        let records: u64 = affected_shards.iter().map(|affected| affected.ordinals.len() as u64).sum();
        let dropped =
            affected_shards.iter().filter(|affected| affected.ordinals.len() as u64 == affected.shard.records).count();
        Ok(RemoveReport {
            dataset: self.dataset.store().location().to_string(),
            version: self.newest.version(),
            dry_run: self.options.dry_run,
            counts: Counts::default(),
            records,
            records_left: self.newest.entry().totals.records_without(records)?,
            shards_rewritten: (affected_shards.len() - dropped) as u64,
            shards_dropped: dropped as u64,
            sources: self.selection.sources.len() as u64,
            missing: self.missing.clone(),
            removed: self.selection.sources.clone(),
            seconds: 0.0,
        })
    }

    fn entry_arguments(&self) -> BTreeMap<String, String> {
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
    let entry = newest.dataset().read_entry(run)?;
    if entry.operation.imports_sources() {
        return Ok(());
    }
    let what = format!("expected a version that imported sources, found {run}, which is a {}", entry.operation);
    Err(Error::usage(what)
        .at_location(newest.dataset().store().location().to_string())
        .with_hint("`shardify manifest --history` lists the runs; `shardify revert` goes back to an older version"))
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
            let uri = context.parse_location(text).map_or_else(|_| text.clone(), |location| location.to_string());
            match pseudonymizer {
                Some(pseudonymizer) => (
                    text.as_str(),
                    pseudonymizer.stored_source(text).into_owned(),
                    pseudonymizer.stored_uri(&uri).into_owned(),
                ),
                None => (text.as_str(), text.clone(), uri),
            }
        };
        let wanted: Vec<_> = sources.iter().map(texts).collect();
        Self { found: vec![BTreeSet::new(); wanted.len()], wanted, by_uri: HashSet::new() }
    }

    /// Returns whether a source is requested; all sources are if no name is given.
    fn match_source(&mut self, row: &SourceRow) -> bool {
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
    fn missing_names(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for (i, (text, _, _)) in self.wanted.iter().enumerate() {
            let uris = self.found[i].len() + usize::from(self.by_uri.contains(&i));
            if uris == 0 {
                missing.push((*text).to_owned());
            }
            if uris > 1 {
                let some: Vec<&str> = self.found[i].iter().take(3).map(String::as_str).collect();
                return Err(Error::usage(format!("`{text}` is the name of {uris} sources: which is meant?"))
                    .with_hint(format!("name the source by its path or URL, such as {}", some.join(" or ")))
                    .with_hint("or name the run that imported it with --run"));
            }
        }
        Ok(missing)
    }
}
