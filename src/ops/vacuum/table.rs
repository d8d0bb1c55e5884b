//! `vacuum` of a Delta table: deletes files that its log has removed and that no retained version has.
//!
//! The log tells of it before and after, as other programs do. Before each batch of deletions it is read again: a file
//! that another program has added meanwhile, such as by a RESTORE, stays. Files that the log never named are counted
//! and kept: they may be of a run that has not committed yet, or of the user.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rayon::prelude::*;
use serde::Serialize;

use super::{Amount, VacuumOptions, deletion_pool};
use crate::{
    dataset::Dataset,
    delta::{self, FileRole, LiveTable, Removals, Terms, Vacuuming, is_left_alone},
    error::{Error, Result},
    events::Event,
    ops::{Context, warn_about_table_clocks},
    storage::{Listed, ObjectFacts},
};

/// Deletions between two looks at the log.
const BATCH: usize = 1000;

/// A file that was deleted, or would be.
#[derive(Debug, Clone, Serialize)]
pub struct DeletedFile {
    /// Its path below the table.
    pub path: String,
    /// What it is.
    pub kind: FileRole,
    /// Its size.
    pub bytes: u64,
}

/// Report of a `vacuum` of a Delta table.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TableVacuumReport {
    /// The table.
    pub table: String,
    /// The new version; the current one if nothing was deleted.
    pub version: u64,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Time for which removed files are kept, in seconds.
    pub retain_seconds: u64,
    /// The oldest version whose files all stay.
    pub retained_from: u64,
    /// Files deleted.
    pub files_deleted: u64,
    /// Their bytes.
    pub bytes_deleted: u64,
    /// Deleted files by kind.
    pub by_kind: BTreeMap<FileRole, Amount>,
    /// Files that the log has removed, but that retained versions have or that were written within the retention.
    pub files_retained: u64,
    /// Files that the log does not name, other than those whose names begin with `_` or `.`; they are kept.
    pub files_unknown: u64,
    /// Their bytes.
    pub bytes_unknown: u64,
    /// Files that another program has added to the table again meanwhile; they are kept.
    pub files_added_again: u64,
    /// Locations that cannot be listed: unreadable folders, names that are not UTF-8. They are left alone.
    pub unlisted: Vec<String>,
    /// Time taken.
    pub seconds: f64,
    /// The files.
    #[serde(skip)]
    pub deleted: Vec<DeletedFile>,
    /// Paths of the files that the log does not name.
    #[serde(skip)]
    pub unknown: Vec<String>,
}

/// Vacuums a Delta table.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the table has a feature that prevents it, or states a longer
/// retention; when the log is damaged or names files outside of the table, another program changes the table, or the
/// store fails. Running it again finishes the work.
pub fn vacuum_table(context: &Context<'_>, table: &delta::Table, options: &VacuumOptions) -> Result<TableVacuumReport> {
    let started = Instant::now();
    let live = table.live_table(0)?;
    live.check_vacuum()?;
    let terms = retention_terms(&live, options)?;
    let dataset = Dataset::new(Arc::clone(live.store()));
    // The clock of a remote store is known only from what is written there.
    let now = if options.dry_run { Timestamp::now() } else { dataset.store_time()? };
    let cutoff = now
        .checked_sub(terms.retain)
        .map_err(|e| Error::usage("expected a --retain that ends after the year 0").with_cause(e))?;
    let removals = table.read_removals(&live)?;
    warn_about_table_clocks(context, removals.newest_commit(), removals.dated_after(now.as_millisecond()), now);
    let mut report = TableVacuumReport {
        table: live.store().location().to_string(),
        version: live.version(),
        dry_run: options.dry_run,
        retain_seconds: terms.retain.as_secs(),
        retained_from: removals.retained_from(cutoff.as_millisecond()),
        ..TableVacuumReport::default()
    };
    let mut files = find_deletable(&live, &removals, cutoff, &mut report)?;
    if !options.dry_run && !files.is_empty() {
        dataset.test_store()?;
        let carried_out = carry_out(context, &live, terms, files, &mut report);
        live.store().remove_leftovers();
        files = carried_out?;
    }
    for file in files {
        report.files_deleted += 1;
        report.bytes_deleted += file.bytes;
        let amount = report.by_kind.entry(file.kind).or_default();
        amount.objects += 1;
        amount.bytes += file.bytes;
        report.deleted.push(file);
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Returns how long files are kept: as long as the table states, if the user does not say.
fn retention_terms(live: &LiveTable, options: &VacuumOptions) -> Result<Terms> {
    let stated = live.retention_period()?;
    let retain = options.retain.unwrap_or(stated);
    if retain < stated && !options.force {
        let (wanted, found) = (format_duration(stated), format_duration(retain));
        return Err(Error::usage(format!(
            "expected --retain of {wanted} or more, as the Delta table states, found {found}"
        ))
        .at_location(live.store().location().to_string())
        .with_hint("otherwise, files could be deleted that running queries still read")
        .with_hint("when no other program uses the table, add --force"));
    }
    Ok(Terms { retain, stated, is_checked: !options.force })
}

fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let unit = [("d", 86_400), ("h", 3600), ("m", 60)]
        .into_iter()
        .find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{seconds}s"), |(name, unit)| format!("{}{name}", seconds / unit))
}

/// Returns the files that may be deleted, by path.
fn find_deletable(
    live: &LiveTable,
    removals: &Removals,
    cutoff: Timestamp,
    report: &mut TableVacuumReport,
) -> Result<Vec<DeletedFile>> {
    let mut files = Vec::new();
    let mut look = |ObjectFacts { path, bytes, modified, .. }: ObjectFacts| {
        match removals.expired_role(&path, cutoff.as_millisecond()) {
            // Another program may be writing a file of this name anew.
            Some(kind) if modified <= cutoff => files.push(DeletedFile { path, kind, bytes }),
            Some(_) => report.files_retained += 1,
            None if removals.is_removed(&path) => report.files_retained += 1,
            None if is_left_alone(&path) || removals.is_live(&path) => {}
            None => {
                report.files_unknown += 1;
                report.bytes_unknown += bytes;
                report.unknown.push(path);
            }
        }
    };
    live.store().walk_folder("", &mut |listed| {
        match listed {
            Listed::Object(facts) => look(facts),
            Listed::FolderLink(_) => {}
            Listed::Fault(e) => report.unlisted.push(e.place().source.clone().unwrap_or_default()),
        }
        Ok(())
    })?;
    report.unknown.sort();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Commits what will be deleted, deletes it, and commits that; returns the files that were deleted.
fn carry_out(
    context: &Context<'_>,
    live: &LiveTable,
    terms: Terms,
    files: Vec<DeletedFile>,
    report: &mut TableVacuumReport,
) -> Result<Vec<DeletedFile>> {
    let now = || Timestamp::now().as_millisecond();
    let bytes = files.iter().map(|file| file.bytes).sum();
    let count = files.len();
    context.cancel.check()?;
    let mut vacuuming = Vacuuming::start(live, terms, count as u64, bytes, now())?;
    context.observer.event(Event::Phase { name: "deleting", bytes: Some(bytes) });
    let done = AtomicU64::new(0);
    let deleted = delete_files(context, live, &mut vacuuming, files, &done);
    let ended = vacuuming.end(done.load(Ordering::Relaxed), deleted.is_ok(), now());
    let deleted = deleted?;
    let (version, added) = ended?;
    report.version = version;
    report.files_added_again = (count - deleted.len()) as u64;
    match deleted.iter().find(|file| added.contains(&file.path)) {
        None => Ok(deleted),
        Some(file) => Err(Error::integrity("another program added a file to the table while it was deleted")
            .at_location(live.store().location().join(&file.path).to_string())
            .with_hint(
                "the newest version lacks this file: restore it from a copy, or restore another version of the table",
            )),
    }
}

/// Deletes files in batches, but those that other programs have added meanwhile; `done` counts them.
fn delete_files(
    context: &Context<'_>,
    live: &LiveTable,
    vacuuming: &mut Vacuuming<'_>,
    files: Vec<DeletedFile>,
    done: &AtomicU64,
) -> Result<Vec<DeletedFile>> {
    let pool = deletion_pool()?;
    let mut deleted = Vec::with_capacity(files.len());
    let mut files = files.into_iter().peekable();
    while files.peek().is_some() {
        let added = vacuuming.read_added_files()?;
        let batch: Vec<DeletedFile> = files.by_ref().take(BATCH).filter(|file| !added.contains(&file.path)).collect();
        pool.install(|| {
            batch.par_iter().try_for_each(|file| {
                context.cancel.check()?;
                live.store().delete(&file.path)?;
                done.fetch_add(1, Ordering::Relaxed);
                context.observer.event(Event::Read { bytes: file.bytes, records: 0 });
                Ok::<(), Error>(())
            })
        })?;
        deleted.extend(batch);
    }
    Ok(deleted)
}
