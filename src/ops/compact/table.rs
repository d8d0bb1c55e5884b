//! Compaction of Delta tables of other programs: merges small data files of each partition, or puts their rows into an
//! order, and commits that as an OPTIMIZE.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use jiff::Timestamp;

use super::{
    files::{COMPACTED_FOR, FilePlan, ORDER, target_size},
    options::{Options, ProofLevel},
    report::TableReport,
};
use crate::{
    dataset::{Arrangement, Dataset, Order, ShardOrder},
    delta::{
        self, Arranged, LiveTable, Replacement,
        actions::{Add, Values},
        commit_replacements,
    },
    error::{Effect, Error, Kind, Result},
    events::Event,
    exec::{
        arrange::Arranging,
        budget::Budget,
        optimize::{FileMerger, NewFile, Rewritten},
        ordered::run_ordered,
    },
    format::{OutputFormat, parquet::Tally},
    id::run_uuid,
    ops::Context,
    plan::{memory::MemoryPlan, sort::SortMemory},
    storage::Location,
    units::Size,
};

/// Uncompressed bytes of a row group.
const ROW_GROUP: Size = Size::from_mib(64);
/// Largest target of a file whose statistics are kept if the table states its target.
const MAX_STATED_TARGET: Size = Size::from_mib(1024);
/// Maximum number of merges that write the end of their file and read it back, while others use the processor.
const ENDING_AT_ONCE: usize = 2;

/// Returns the Delta table at a location; `None` if a dataset is there, or no table.
///
/// # Errors
/// When the store fails.
pub fn table_at(context: &Context<'_>, location: &Location) -> Result<Option<delta::Table>> {
    // A web server's folders cannot be listed, and nothing is written there.
    if location.local_path().is_none() && matches!(location.url().scheme(), "http" | "https") {
        return Ok(None);
    }
    let dataset = context.open_dataset(location)?;
    if dataset.newest_snapshot()?.is_some() {
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
    // The bounds of large files decide what is sorted.
    let stats_below =
        if options.order.is_some() { u64::MAX } else { options.target_shard.unwrap_or(MAX_STATED_TARGET).0 };
    let live = table.live_table(stats_below)?;
    live.check_rewritable()?;
    let target = target_size(&live, options)?;
    let memory = SortMemory::new(context.memory);
    let arranging = |order| Arranging::new(&live, order, target.0, memory, context.jobs);
    let arranging = options.order.as_ref().map(arranging).transpose()?;
    let plan = FilePlan::for_table(&live, target, options, arranging.as_ref())?;
    let mut report = plan.to_report(&live, options.dry_run, options.order.as_ref());
    if !options.dry_run && !plan.groups.is_empty() {
        let work =
            TableWork { context, live: &live, options, plan: &plan, arranging: arranging.as_ref(), set: run_uuid() };
        let result = work.run(&mut report);
        live.store().remove_leftovers();
        result?;
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Plans the compaction of a table by the default options.
///
/// # Errors
/// [`Kind::Usage`] if the table has a feature that prevents it.
pub fn plan_table(live: &LiveTable) -> Result<TableReport> {
    live.check_rewritable()?;
    let options = Options { dry_run: true, ..Options::default() };
    Ok(FilePlan::for_table(live, target_size(live, &options)?, &options, None)?.to_report(live, true, None))
}

/// Refuses options that have no meaning for a table.
fn refuse_options(options: &Options) -> Result<()> {
    let option = match options {
        Options { proof: ProofLevel::Full, .. } => "--verify",
        Options { no_check: true, .. } => "--no-check",
        _ => return Ok(()),
    };
    Err(Error::usage(format!("expected no {option} with a Delta table, found it"))
        .with_hint("leave it out: every new file is read back"))
}

/// The work of a compaction of a table.
struct TableWork<'a> {
    context: &'a Context<'a>,
    live: &'a LiveTable,
    options: &'a Options,
    plan: &'a FilePlan<'a>,
    /// How rows are arranged; `None` if files are merged.
    arranging: Option<&'a Arranging>,
    /// Name of this run in the tags of arranged files.
    set: String,
}

/// New files of groups, by their numbers.
type RewrittenGroups = BTreeMap<usize, Rewritten>;

impl TableWork<'_> {
    fn run(&self, report: &mut TableReport) -> Result<()> {
        let store = self.live.store();
        Dataset::new(Arc::clone(store)).test_store()?;
        let (mut made, damaged) = self.rewrite_all()?;
        if made.is_empty() {
            return Err(damaged.unwrap_or_else(|| {
                Error::conflict("other programs have removed or changed the same files meanwhile")
                    .at_location(report.table.clone())
                    .with_hint("nothing was committed; run the command again")
            }));
        }
        self.context.cancel.check()?;
        let now = Timestamp::now().as_millisecond();
        let groups: Vec<usize> = made.keys().copied().collect();
        let replacements: Vec<Replacement> =
            made.iter().map(|(group, one)| self.build_replacement(*group, one, now)).collect::<Result<_>>()?;
        let new_files = made.values_mut().flat_map(|one| one.files.iter_mut());
        let staged: Vec<_> = new_files.filter_map(|file| file.staged.take()).collect();
        let paths: Vec<String> = staged.iter().map(|staged| staged.path.clone()).collect();
        store.publish_staged(staged)?;
        let committed = match commit_replacements(self.live, &replacements, self.arranged_columns(), now) {
            Ok(committed) => committed,
            Err(error) if error.effect() == Effect::None => return Err(self.taken_back(error, &paths)),
            Err(error) => return Err(error),
        };
        let lost = replacements.iter().enumerate().filter(|(number, _)| !committed.replacements.contains(number));
        let lost: BTreeSet<&str> =
            lost.flat_map(|(_, replacement)| &replacement.adds).map(|add| add.path.as_str()).collect();
        // Paths are encoded in the log.
        let lost: Vec<String> =
            paths.into_iter().filter(|path| lost.contains(delta::actions::encoded_path(path).as_str())).collect();
        lost.iter().try_for_each(|path| store.delete(path)).map_err(|e| e.with_effect(Effect::Certain))?;
        report.version = committed.version;
        for number in &committed.replacements {
            self.count_group(groups[*number], &made[&groups[*number]], report);
        }
        report.groups_dropped = (self.plan.groups.len() - committed.replacements.len()) as u64;
        report.files_after = report.files_before - report.files_removed + report.files_added;
        match damaged {
            None => Ok(()),
            // The other merges are committed without waiting for a repair of the damage.
            Some(error) => Err(error.with_hint(format!("other merges are committed as v{}", report.version))),
        }
    }

    /// Deletes new files that were not committed.
    fn taken_back(&self, error: Error, paths: &[String]) -> Error {
        let store = self.live.store();
        match paths.iter().try_for_each(|path| store.delete(path)) {
            Ok(()) => error,
            Err(_) => error.with_hint("new files could not be deleted: no version has them, and VACUUM deletes them"),
        }
    }

    /// Rewrites every group. A group whose files another program has removed or changed is skipped; one with a damaged
    /// file is skipped, and the first such error is returned.
    fn rewrite_all(&self) -> Result<(RewrittenGroups, Option<Error>)> {
        let Self { context, live, options, plan, arranging, .. } = *self;
        let groups = &plan.groups;
        let total = groups.iter().map(|group| group.bytes).sum();
        let name = if arranging.is_some() { "sorting" } else { "compacting" };
        context.observer.event(Event::Phase { name, bytes: Some(total) });
        let memory = MemoryPlan::new(context.memory, context.jobs, OutputFormat::Parquet, plan.target, ROW_GROUP);
        // A sort takes all of the memory.
        let concurrent = match arranging {
            None => memory.concurrent_rewrites(OutputFormat::Parquet, context.jobs + 1),
            Some(_) => 1,
        };
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let merger = FileMerger {
            table: live,
            schema: live.file_schema()?,
            types: live.leaf_types(),
            codec: options.codec,
            row_group: memory.unit_bytes,
            range_bytes: bytes(memory.range_bytes),
            max_record_bytes: bytes(memory.max_record_bytes),
            concurrent_merges: Budget::new(concurrent as u64),
            observer: context.observer,
            cancel: &context.cancel,
        };
        let merger = &merger;
        std::thread::scope(|scope| {
            let window = if arranging.is_some() { 1 } else { concurrent + ENDING_AT_ONCE };
            let rewrite = move |group: usize| {
                let files = plan.files_of(group);
                let folder = files.first().map_or("", |file| file.folder_prefix());
                match arranging {
                    None => merger.merge_files(&files, folder, group),
                    Some(arranging) => merger.arrange_files(&files, folder, group, arranging),
                }
            };
            let results = run_ordered(scope, (0..groups.len()).map(Ok), window, window, &context.cancel, rewrite);
            let (mut made, mut damaged) = (RewrittenGroups::new(), None);
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

    /// Returns what the commit says of the order, by the names that users see.
    fn arranged_columns(&self) -> Arranged<'_> {
        match &self.options.order {
            Some(Order { by: Arrangement::Sort, columns }) => Arranged { sort_by: columns, ..Arranged::default() },
            Some(Order { by: Arrangement::ZOrder, columns }) => Arranged { zorder_by: columns, ..Arranged::default() },
            _ => Arranged::default(),
        }
    }

    /// Returns the tags of the new files of a group.
    fn file_tags(&self, group: usize) -> Result<Values> {
        let mut tags: Values = [(COMPACTED_FOR.to_owned(), Some(self.plan.target.0.to_string()))].into();
        if let Some(arranging) = self.arranging {
            let order = ShardOrder { order: arranging.order.clone(), set: format!("{}-{group}", self.set) };
            let text = serde_json::to_string(&order)
                .map_err(|e| Error::internal("encoding the order of a file failed").with_cause(e))?;
            tags.insert(ORDER.to_owned(), Some(text));
        }
        Ok(tags)
    }

    /// Whether another program has removed or changed a file of the group.
    fn is_gone(&self, group: usize) -> Result<bool> {
        let gone = delta::changed_files(self.live)?;
        Ok(self.plan.files_of(group).iter().any(|file| gone.contains(&file.path)))
    }

    fn build_replacement(&self, group: usize, made: &Rewritten, now: i64) -> Result<Replacement> {
        let files = self.plan.files_of(group);
        let tags = self.file_tags(group)?;
        let add = |file: &NewFile| -> Result<Add> {
            let size = i64::try_from(file.bytes).map_err(|_| Error::internal("a file is too large"))?;
            let path = file.staged.as_ref().map(|staged| staged.path.as_str());
            Ok(Add {
                partition_values: files.first().map(|file| file.add.partition_values.clone()).unwrap_or_default(),
                stats: Some(file.stats.to_json()?),
                tags: tags.clone(),
                data_change: false,
                ..Add::new(path.unwrap_or_default(), size, now)
            })
        };
        let adds = made.files.iter().map(add).collect::<Result<_>>()?;
        Ok(Replacement { removes: files.iter().map(|file| file.add.clone()).collect(), adds })
    }

    /// Adds a committed group to the report.
    fn count_group(&self, group: usize, made: &Rewritten, report: &mut TableReport) {
        let files = self.plan.files_of(group);
        let Tally { copied, spliced, reencoded } = made.tally;
        report.records_in += made.records_in;
        report.records_out += made.records_out();
        report.bytes_in += files.iter().map(|file| file.stated_bytes()).sum::<u64>();
        report.bytes_out += made.files.iter().map(|file| file.bytes).sum::<u64>();
        report.files_removed += files.len() as u64;
        report.files_added += made.files.len() as u64;
        report.vectors_removed += files.iter().filter(|file| file.deleted_row_count().is_some()).count() as u64;
        report.rows_dropped += files.iter().filter_map(|file| file.deleted_row_count()).sum::<u64>();
        report.bytes_copied += copied;
        report.bytes_spliced += spliced;
        report.bytes_reencoded += reencoded;
    }
}
