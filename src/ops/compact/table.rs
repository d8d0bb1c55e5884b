//! Compaction of Delta tables of other programs: merges small data files of each partition, and commits that as an
//! OPTIMIZE.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use jiff::Timestamp;
use serde::Serialize;

use super::options::{DEFAULT_MIN_INPUTS, Options, Proof};
use crate::{
    dataset::Dataset,
    delta::{
        self, LiveFile, LiveTable, Replacement,
        actions::{Add, Values},
        replace,
    },
    error::{Effect, Error, Kind, Result},
    events::Event,
    exec::{
        budget::Budget,
        optimize::{FileMerger, MergedFile},
        ordered::ordered,
    },
    format::{OutputFormat, parquet::Tally},
    id::Version,
    ops::{Context, manifest::parse_when},
    plan::{
        compact::{self as plan, Candidate, Choice, CompactOptions, CompactPlan, When},
        memory::MemoryPlan,
    },
    storage::Location,
    units::Size,
};

/// Target size of a file if neither the user nor the table states one.
pub const DEFAULT_TABLE_TARGET: Size = Size::mib(128);
/// Uncompressed bytes of a row group.
const ROW_GROUP: Size = Size::mib(64);
/// Largest target of a file whose statistics are kept if the table states its target.
const MAX_STATED_TARGET: Size = Size::mib(1024);
/// Tag of a file: the target of the compaction that made it.
const COMPACTED_FOR: &str = "shardify.compactedFor";
/// Property of a table: the target size of its files.
const TARGET_PROPERTY: &str = "delta.targetFileSize";
/// Maximum number of merges that write the end of their file and read it back, while others use the processor.
const ENDING_AT_ONCE: usize = 2;

/// Decision about one file.
#[derive(Debug, Clone, Serialize)]
pub struct FileChoice {
    /// Its path below the table.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// `merge` or `keep`.
    pub choice: &'static str,
    /// Number of the group in which it is merged.
    pub group: Option<usize>,
    /// Reason for the choice.
    pub reason: &'static str,
}

/// Report of a compaction of a table.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TableReport {
    /// The table.
    pub table: String,
    /// The new version of the table; the current one if there was nothing to do.
    pub version: u64,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Target size of a file.
    pub target: u64,
    /// Rows of the merged files that are not deleted.
    pub records_in: u64,
    /// Rows of the new files.
    pub records_out: u64,
    /// Bytes of the merged files.
    pub bytes_in: u64,
    /// Bytes of the new files.
    pub bytes_out: u64,
    /// Files that were merged, or would be.
    pub files_removed: u64,
    /// New files.
    pub files_added: u64,
    /// Deletion vectors of the merged files, which are not needed any more.
    pub vectors_removed: u64,
    /// Deleted rows that the new files do not have any more.
    pub rows_dropped: u64,
    /// Bytes of the merged files that were copied unchanged.
    pub bytes_copied: u64,
    /// Bytes of the merged files that were spliced.
    pub bytes_spliced: u64,
    /// Bytes of the merged files that were decoded and encoded again.
    pub bytes_reencoded: u64,
    /// Merges that were dropped because another program had removed or changed their files.
    pub groups_dropped: u64,
    /// Live files before the run.
    pub files_before: u64,
    /// Live files after the run, without those that others have added meanwhile.
    pub files_after: u64,
    /// Time taken.
    pub seconds: f64,
    /// Decision about each file, with its reason.
    #[serde(skip)]
    pub choices: Vec<FileChoice>,
}

/// Returns the Delta table at a location; `None` if a dataset is there, or no table.
///
/// # Errors
/// When the store fails.
pub fn table_at(context: &Context<'_>, location: &Location) -> Result<Option<delta::Table>> {
    // A web server's folders cannot be listed, and nothing is written there.
    if location.local_path().is_none() && matches!(location.url().scheme(), "http" | "https") {
        return Ok(None);
    }
    let dataset = context.dataset(location)?;
    if dataset.latest()?.is_some() {
        return Ok(None);
    }
    let table = delta::Table::open(Arc::clone(dataset.store()))?;
    Ok(table.exists().then_some(table))
}

/// Compacts a Delta table.
///
/// # Errors
/// [`Kind::Usage`] if the table has a feature that prevents it, or an option does not apply; when a file or the log is
/// damaged, another program committed first, or the store fails.
pub fn compact_table(context: &Context<'_>, table: &delta::Table, options: &Options) -> Result<TableReport> {
    let started = Instant::now();
    refuse_options(options)?;
    let live = table.live(options.target_shard.unwrap_or(MAX_STATED_TARGET).0)?;
    live.check_rewritable()?;
    let plan = FilePlan::make(&live, options)?;
    let mut report = plan.report(&live, options.dry_run);
    if !options.dry_run && !plan.plan.groups.is_empty() {
        let work = Work { context, live: &live, options, plan: &plan };
        let result = work.run(&mut report);
        live.store().tidy();
        result?;
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Refuses options that have no meaning for a table.
fn refuse_options(options: &Options) -> Result<()> {
    let option = match options {
        Options { order: Some(_), .. } => "--sort-by or --zorder",
        Options { proof: Proof::Full, .. } => "--verify",
        Options { no_check: true, .. } => "--no-check",
        _ => return Ok(()),
    };
    Err(Error::usage(format!("expected no {option} with a Delta table, found it"))
        .hint("leave it out: small files are merged in their order, and every new file is read back")
        .hint("`shardify convert TABLE` makes a dataset of the table, which can be sorted"))
}

/// Returns the target size of files.
fn target(live: &LiveTable, options: &Options) -> Result<Size> {
    let stated = || live.property(TARGET_PROPERTY).and_then(stated_size).filter(|size| size.0 > 0);
    let target = options.target_shard.or_else(stated).unwrap_or(DEFAULT_TABLE_TARGET);
    if target.0 == 0 {
        return Err(Error::usage("expected a --target-shard of at least one byte, found 0"));
    }
    Ok(target)
}

/// Reads a size as properties of tables have it: a number of bytes, or one with a unit such as `128mb`.
fn stated_size(text: &str) -> Option<Size> {
    let text = text.trim().to_ascii_lowercase();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.trim() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).map(Size)
}

/// Which files are merged.
struct FilePlan<'a> {
    target: Size,
    /// Live files by the time at which they were written.
    files: Vec<&'a LiveFile>,
    plan: CompactPlan,
}

impl<'a> FilePlan<'a> {
    fn make(live: &'a LiveTable, options: &Options) -> Result<Self> {
        let target = target(live, options)?;
        let selection = CompactOptions {
            target,
            min_inputs: options.min_inputs.unwrap_or(DEFAULT_MIN_INPUTS),
            since: instant(options.since.as_deref())?,
            until: instant(options.until.as_deref())?,
            max_bytes: options.max_bytes,
        };
        let mut files: Vec<&LiveFile> = live.files().iter().collect();
        files.sort_by(|a, b| {
            let of = |file: &LiveFile| file.add.modification_time;
            of(a).cmp(&of(b)).then_with(|| a.path.cmp(&b.path))
        });
        let candidates: Vec<Candidate> = files.iter().map(|file| candidate(file, target)).collect();
        let plan = plan::plan(&candidates, &selection);
        Ok(Self { target, files, plan })
    }

    fn report(&self, live: &LiveTable, dry_run: bool) -> TableReport {
        let choice = |(file, choice): (&&LiveFile, &Choice)| FileChoice {
            file: file.path.clone(),
            bytes: file.bytes(),
            choice: if matches!(choice, Choice::Merge(_)) { "merge" } else { "keep" },
            group: if let Choice::Merge(group) = choice { Some(*group) } else { None },
            reason: reason(*choice),
        };
        let before = self.files.len() as u64;
        let removed: u64 = self.plan.groups.iter().map(|group| group.inputs.len() as u64).sum();
        TableReport {
            table: live.store().location().to_string(),
            version: live.version(),
            dry_run,
            target: self.target.0,
            files_before: before,
            files_after: if dry_run { before - removed + self.plan.groups.len() as u64 } else { before },
            choices: self.files.iter().zip(&self.plan.choices).map(choice).collect(),
            ..TableReport::default()
        }
    }

    fn files_of(&self, group: usize) -> Vec<&'a LiveFile> {
        let inputs = self.plan.groups.get(group).map_or(&[][..], |group| &group.inputs);
        inputs.iter().filter_map(|number| self.files.get(*number).copied()).collect()
    }
}

/// Returns a point in time; versions of a table have none that is known without reading all of its log.
fn instant(text: Option<&str>) -> Result<Option<When>> {
    match parse_when(text)? {
        Some(When::Version(version)) => Err(Error::usage(format!(
            "expected a duration, a date or an instant for files of a Delta table, found {version}"
        ))
        .hint("files are chosen by the time at which they were written, e.g. --since 7d")),
        when => Ok(when),
    }
}

fn candidate(file: &LiveFile, target: Size) -> Candidate {
    let rows = file.stated_rows().unwrap_or_default();
    // What is left of the file without its deleted rows.
    let bytes = match file.deleted() {
        Some(deleted) if rows > 0 => {
            let left = u128::from(rows.saturating_sub(deleted));
            u64::try_from(u128::from(file.bytes()) * left / u128::from(rows)).unwrap_or_default()
        }
        _ => file.bytes(),
    };
    let made_for = file.add.tags.get(COMPACTED_FOR).and_then(Option::as_deref).and_then(|text| text.parse().ok());
    let written = file.add.modification_time.and_then(|millis| Timestamp::from_millisecond(millis).ok());
    Candidate {
        path: file.path.clone(),
        bytes,
        records: rows,
        version: Version(0),
        committed_at: written.unwrap_or_default(),
        mergeable: true,
        partition: serde_json::to_string(&file.add.partition_values).unwrap_or_default(),
        settled: file.deleted().is_none() && made_for.is_some_and(|made_for: u64| made_for >= target.0),
        // Large files are not divided.
        made_for_target: true,
        sorted: false,
    }
}

fn reason(choice: Choice) -> &'static str {
    match choice {
        Choice::Oversized => "larger than 180% of the target; files of tables are not divided",
        Choice::Settled => "remainder of a compaction; waits for more new files",
        Choice::TooFew => "small, but its partition has too few (new) files to merge it with",
        Choice::OutsideWindow => "written outside the window",
        other => other.reason(),
    }
}

/// The work of a compaction of a table.
struct Work<'a> {
    context: &'a Context<'a>,
    live: &'a LiveTable,
    options: &'a Options,
    plan: &'a FilePlan<'a>,
}

/// Merged files of groups, by their numbers.
type Made = BTreeMap<usize, MergedFile>;

impl Work<'_> {
    fn run(&self, report: &mut TableReport) -> Result<()> {
        let store = self.live.store();
        Dataset::new(Arc::clone(store)).test_store()?;
        let (mut made, damaged) = self.merge_all()?;
        if made.is_empty() {
            return Err(damaged.unwrap_or_else(|| {
                Error::conflict("other programs have removed or changed the same files meanwhile")
                    .at(report.table.clone())
                    .hint("nothing was committed; run the command again")
            }));
        }
        self.context.cancel.check()?;
        let now = Timestamp::now().as_millisecond();
        let groups: Vec<usize> = made.keys().copied().collect();
        let replacements: Vec<Replacement> =
            made.iter().map(|(group, one)| self.replacement(*group, one, now)).collect::<Result<_>>()?;
        let staged: Vec<_> = made.values_mut().filter_map(|one| one.staged.take()).collect();
        let paths: Vec<String> = staged.iter().map(|staged| staged.path.clone()).collect();
        let path_of = |replacement: &Replacement| replacement.add.as_ref().map(|add| add.path.clone());
        store.publish(staged)?;
        let committed = match replace(self.live, &replacements, now) {
            Ok(committed) => committed,
            Err(error) if error.effect() == Effect::None => return Err(self.taken_back(error, &paths)),
            Err(error) => return Err(error),
        };
        let lost = replacements.iter().enumerate().filter(|(number, _)| !committed.replacements.contains(number));
        let lost: BTreeSet<String> = lost.filter_map(|(_, replacement)| path_of(replacement)).collect();
        // Paths are encoded in the log.
        let lost: Vec<String> =
            paths.into_iter().filter(|path| lost.contains(&delta::actions::encoded_path(path))).collect();
        lost.iter().try_for_each(|path| store.delete(path)).map_err(|e| e.with_effect(Effect::Certain))?;
        report.version = committed.version;
        for number in &committed.replacements {
            self.count(groups[*number], &made[&groups[*number]], &replacements[*number], report);
        }
        report.groups_dropped = (self.plan.plan.groups.len() - committed.replacements.len()) as u64;
        report.files_after = report.files_before - report.files_removed + report.files_added;
        match damaged {
            None => Ok(()),
            // The other merges are committed without waiting for a repair of the damage.
            Some(error) => Err(error.hint(format!("other merges are committed as v{}", report.version))),
        }
    }

    /// Deletes new files that were not committed.
    fn taken_back(&self, error: Error, paths: &[String]) -> Error {
        let store = self.live.store();
        match paths.iter().try_for_each(|path| store.delete(path)) {
            Ok(()) => error,
            Err(_) => error.hint("new files could not be deleted: no version has them, and VACUUM deletes them"),
        }
    }

    /// Merges every group. A group whose files another program has removed or changed is skipped; one with a damaged
    /// file is skipped, and the first such error is returned.
    fn merge_all(&self) -> Result<(Made, Option<Error>)> {
        let Self { context, live, options, plan } = *self;
        let groups = &plan.plan.groups;
        let total = groups.iter().map(|group| group.bytes).sum();
        context.observer.event(Event::Phase { name: "compacting", bytes: Some(total) });
        let memory = MemoryPlan::new(context.memory, context.jobs, OutputFormat::Parquet, plan.target, ROW_GROUP);
        let concurrent = memory.concurrent_rewrites(OutputFormat::Parquet, context.jobs + 1);
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let merger = FileMerger {
            table: live,
            schema: live.file_schema()?,
            types: live.types(),
            codec: options.codec,
            row_group: memory.unit_bytes,
            split_bytes: bytes(memory.split_bytes),
            max_record_bytes: bytes(memory.max_record_bytes),
            concurrent_merges: Budget::new(concurrent as u64),
            observer: context.observer,
            cancel: &context.cancel,
        };
        let merger = &merger;
        std::thread::scope(|scope| {
            let window = concurrent + ENDING_AT_ONCE;
            let merge = move |group: usize| {
                let files = plan.files_of(group);
                merger.merge(&files, files.first().map_or("", |file| file.folder()), group)
            };
            let results = ordered(scope, (0..groups.len()).map(Ok), window, window, &context.cancel, merge);
            let (mut made, mut damaged) = (Made::new(), None);
            for (group, result) in results.enumerate() {
                match result {
                    Ok(one) => _ = made.insert(group, one),
                    Err(error) if error.kind() == Kind::Interrupted => return Err(error),
                    Err(_) if self.is_gone(group)? => {}
                    Err(error) if matches!(error.kind(), Kind::Integrity | Kind::Input) => {
                        damaged.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok((made, damaged))
        })
    }

    /// Whether another program has removed or changed a file of the group.
    fn is_gone(&self, group: usize) -> Result<bool> {
        let gone = delta::gone(self.live)?;
        Ok(self.plan.files_of(group).iter().any(|file| gone.contains(&file.path)))
    }

    fn replacement(&self, group: usize, made: &MergedFile, now: i64) -> Result<Replacement> {
        let files = self.plan.files_of(group);
        let add = |path: &str| -> Result<Add> {
            let size = i64::try_from(made.bytes).map_err(|_| Error::internal("a file is too large"))?;
            let tags: Values = [(COMPACTED_FOR.to_owned(), Some(self.plan.target.0.to_string()))].into();
            Ok(Add {
                partition_values: files.first().map(|file| file.add.partition_values.clone()).unwrap_or_default(),
                stats: Some(made.stats.to_json()?),
                tags,
                data_change: false,
                ..Add::new(path, size, now)
            })
        };
        let add = made.staged.as_ref().map(|staged| add(&staged.path)).transpose()?;
        Ok(Replacement { removes: files.iter().map(|file| file.add.clone()).collect(), add })
    }

    /// Adds a committed merge to the report.
    fn count(&self, group: usize, made: &MergedFile, replacement: &Replacement, report: &mut TableReport) {
        let files = self.plan.files_of(group);
        let Tally { copied, spliced, reencoded } = made.tally;
        report.records_in += made.records_in;
        report.records_out += made.stats.records();
        report.bytes_in += files.iter().map(|file| file.bytes()).sum::<u64>();
        report.bytes_out += made.bytes;
        report.files_removed += files.len() as u64;
        report.files_added += u64::from(replacement.add.is_some());
        report.vectors_removed += files.iter().filter(|file| file.deleted().is_some()).count() as u64;
        report.rows_dropped += files.iter().filter_map(|file| file.deleted()).sum::<u64>();
        report.bytes_copied += copied;
        report.bytes_spliced += spliced;
        report.bytes_reencoded += reencoded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_properties() {
        for (text, expected) in [
            ("104857600", Some(104_857_600)),
            ("128mb", Some(128 << 20)),
            ("1 GB", Some(1 << 30)),
            ("64k", Some(64 << 10)),
            ("much", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(stated_size(text).map(|size| size.0), expected, "{text}");
        }
    }
}
