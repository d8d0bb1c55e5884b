//! Delta tables among the sources: which of their data files are converted.
//!
//! The source is the table. Each of its data files has a row in the dataset's list of sources, whose entity tag states
//! the version of the table; the newest of these versions is the one up to which the table was converted. A later run
//! takes the files that were added since then with new rows, even if they were merged into others in the meantime. If
//! rows were removed since then, the table has changed.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::options::ConvertOptions;
use crate::{
    dataset::{Pseudonymizer, Snapshot},
    delta::{self, DataFile, Mark},
    error::{Error, Result},
    events::Event,
    id::Version,
    ops::{
        Context,
        inputs::{OnChanged, Partition},
    },
    scan::{self, FoundTable, InputFormat, ScanResult, SourceFile, TableFormat},
    storage::{self, Location},
};

/// A Delta table among the sources.
pub(super) struct TableSource {
    table: delta::Table,
    root: Location,
    snapshot: delta::Snapshot,
    /// Listed files below its root, by URI.
    listed: HashMap<String, SourceFile>,
}

/// Takes the Delta tables, and the files in their folders, out of what was found.
///
/// # Errors
/// If a source is a part of a table, options choose parts of one, or a log is damaged or not supported.
pub(super) fn take_tables(
    context: &Context<'_>,
    found: &mut ScanResult,
    options: &ConvertOptions,
) -> Result<Vec<TableSource>> {
    refuse_tables(found)?;
    let roots: Vec<Location> =
        found.tables.iter().filter(|table| is_whole(table)).map(|table| table.root.clone()).collect();
    let Some(first) = roots.first() else {
        return match options.read.as_of() {
            Some(_) => Err(Error::usage("expected a Delta table for --read as-of, found none")
                .with_hint("name the folder that contains its _delta_log")),
            None => Ok(Vec::new()),
        };
    };
    if !options.include.is_empty() || !options.exclude.is_empty() {
        return Err(Error::usage(
            "expected a whole Delta table, whose log decides which files are live, found --include or --exclude",
        )
        .at_location(first.to_string())
        .with_hint("convert the table alone, without these options"));
    }
    if let Some(from) = options.from.filter(|from| *from != InputFormat::PARQUET) {
        return Err(Error::usage(format!("expected no --from with a Delta table, found {}", from.name()))
            .at_location(first.to_string()));
    }
    roots.into_iter().map(|root| TableSource::open(context, root, found, options)).collect()
}

/// Whether all files of a Delta table are among the sources.
fn is_whole(table: &FoundTable) -> bool {
    table.format == TableFormat::Delta && table.whole
}

/// Returns an error if there are files of tables whose log decides which files are live, unless it is read.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), naming the first of them.
pub(in crate::ops) fn refuse_tables(found: &ScanResult) -> Result<()> {
    scan::refuse_foreign(found.tables.iter().filter(|table| !is_whole(table)), &found.files)
}

impl TableSource {
    fn open(context: &Context<'_>, root: Location, found: &mut ScanResult, options: &ConvertOptions) -> Result<Self> {
        let table = delta::Table::open(storage::open_store(&root, &context.settings)?)?;
        let snapshot = table.read_snapshot(options.read.as_of())?;
        let prefix = format!("{}/", root.to_string().trim_end_matches('/'));
        let files = std::mem::take(&mut found.files);
        let (own, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.uri().starts_with(&prefix));
        found.files = others;
        found.faults.retain(|fault| fault.place().source.as_ref().is_none_or(|place| !place.starts_with(&prefix)));
        let live = snapshot.files().len();
        let log = format!("{prefix}_delta_log/");
        let data = own.iter().filter(|file| !file.uri().starts_with(&log)).count();
        found.ignored += data.saturating_sub(live) as u64;
        let version = snapshot.version();
        context.observer.event(Event::Note(format!("{root}: a Delta table at v{version}, files: {live}")));
        let listed = own.into_iter().map(|file| (file.uri(), file)).collect();
        Ok(Self { table, root, snapshot, listed })
    }

    /// Returns what is to be converted, given the dataset.
    ///
    /// # Errors
    /// If rows were removed and `on_changed` is `Fail`, or a data file is missing.
    pub(super) fn partition_files(
        self,
        context: &Context<'_>,
        snapshot: Option<&Snapshot>,
        on_changed: OnChanged,
    ) -> Result<Partition> {
        let live = self.snapshot.files().len() as u64;
        let Some(known) =
            snapshot.map(|snapshot| ConvertedTable::from_snapshot(context, snapshot, &self)).transpose()?
        else {
            return self.partition_all(HashSet::new());
        };
        let reason = match known.version {
            None if known.rows.is_empty() => return self.partition_all(HashSet::new()),
            None => "another table, or plain files, at this place".to_owned(),
            Some(since) if self.snapshot.version() <= since => {
                return Ok(Partition { unchanged: live, ..Partition::default() });
            }
            Some(since) => match self.table.changes_since(since, &self.snapshot)? {
                None => format!("its version v{since}, and the log no longer says what changed after it"),
                Some(changes) => {
                    let removed_in = changes.removed_in.filter(|_| on_changed != OnChanged::Append);
                    match (removed_in, changes.added.keys().find(|path| self.listed_uri(path).is_none())) {
                        (Some(version), _) => {
                            format!("its version v{since}, and v{version} removed or changed rows of it")
                        }
                        // A file that was merged into another one may be vacuumed; the other one has older rows, too.
                        (None, Some(path)) => {
                            format!("its version v{since}, and `{path}`, which was added later, is gone")
                        }
                        (None, None) => return self.partition_added(changes.added),
                    }
                }
            },
        };
        match on_changed {
            OnChanged::Skip => Ok(Partition { changed: live, ..Partition::default() }),
            OnChanged::Replace => self.partition_all(known.rows),
            OnChanged::Fail | OnChanged::Append => Err(self.changed_error(&known, &reason, on_changed)),
        }
    }

    fn changed_error(&self, known: &ConvertedTable, reason: &str, on_changed: OnChanged) -> Error {
        let converted = known.converted_by;
        let error = Error::changed(format!("this table changed: {converted} converted {reason}"))
            .at_location(self.root.to_string())
            .with_hint("replace all of its old records with those it has now: --on-changed replace");
        let error = match on_changed {
            OnChanged::Append => error,
            _ => error.with_hint("keep the old records, and add the new ones: --on-changed append"),
        };
        error.with_hint("leave it out with --on-changed skip")
    }

    /// Returns all live files as fresh ones; records of sources with the stored URIs `replaced` are removed.
    fn partition_all(mut self, replaced: HashSet<String>) -> Result<Partition> {
        let files = self.snapshot.files().clone();
        let fresh = self.resolve_files(files)?;
        Ok(Partition { fresh, replaced, ..Partition::default() })
    }

    /// Returns the added files as fresh ones.
    fn partition_added(mut self, added: BTreeMap<String, DataFile>) -> Result<Partition> {
        let files = self.snapshot.files();
        let unchanged = files.keys().filter(|path| !added.contains_key(*path)).count() as u64;
        let fresh = self.resolve_files(added)?;
        Ok(Partition { fresh, unchanged, ..Partition::default() })
    }

    /// Returns the URI of a data file, if it was listed.
    fn listed_uri(&self, path: &str) -> Option<String> {
        Some(self.root.join(path).to_string()).filter(|uri| self.listed.contains_key(uri))
    }

    /// Returns the listed files with what the log says of them.
    fn resolve_files(&mut self, files: BTreeMap<String, DataFile>) -> Result<Vec<SourceFile>> {
        let mut out = Vec::with_capacity(files.len());
        for (path, file) in files {
            let listed = self.listed_uri(&path).and_then(|uri| self.listed.remove(&uri)).ok_or_else(|| {
                Error::input("expected a data file that the log of the Delta table names, found none")
                    .at_location(self.root.join(&path).to_string())
                    .with_hint(
                        "the table was copied in part, or vacuumed: restore the file, or convert another version \
                     with --read as-of",
                    )
            })?;
            out.push(listed.in_table(file));
        }
        Ok(out)
    }
}

/// What the dataset records about a table.
struct ConvertedTable {
    /// Version of the table up to which it was converted; `None` if it never was.
    version: Option<u64>,
    /// Newest version of the dataset that converted anything of it.
    converted_by: Version,
    /// Stored URIs of its sources.
    rows: HashSet<String>,
}

impl ConvertedTable {
    fn from_snapshot(context: &Context<'_>, snapshot: &Snapshot, table: &TableSource) -> Result<Self> {
        let pseudonymizer = Pseudonymizer::from_settings(&snapshot.entry().settings, context.id_key.as_ref())?;
        let root = table.root.to_string();
        let stored =
            pseudonymizer.as_ref().map_or_else(|| root.clone().into(), |pseudonymizer| pseudonymizer.stored_uri(&root));
        let own = Mark::new(0, &stored, table.snapshot.table_id()).table;
        let prefix = format!("{}/", root.trim_end_matches('/'));
        let mut known = Self { version: None, converted_by: Version(0), rows: HashSet::new() };
        snapshot.each_source(&mut |row| {
            let mark = row.etag.as_deref().and_then(Mark::parse).filter(|mark| mark.table == own);
            if row.removed.is_none() && (mark.is_some() || row.uri.starts_with(&prefix)) {
                known.version = known.version.max(mark.map(|mark| mark.version));
                known.converted_by = known.converted_by.max(row.version);
                known.rows.insert(row.uri);
            }
            Ok(())
        })?;
        Ok(known)
    }
}
