//! `reshard`: cuts a version of a dataset anew, into another dataset.
//!
//! ```text
//! choose     which records: a bitmap of each shard, and a new number for each record   choose.rs, dedup.rs
//! group      shards that must not be mixed: other constants, types, partitions or sort runs
//! plan       where each new shard ends                                                 plan/reshard.rs
//! write      new shards, in parallel                                                   exec/reshard.rs
//! describe   id index, list of sources, what lies beside shards                        sources.rs
//! commit     the first version of the new dataset; until then it does not exist
//! ```

mod choose;
mod dedup;
mod report;
mod sources;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem::discriminant,
    time::Instant,
};

use bytes::Bytes;
use rayon::prelude::*;

pub use self::report::{ReshardReport, ReshardedShard};
use self::{
    choose::{Chosen, choose_records},
    sources::KeptSources,
};
use super::{Context, manifest, rewrite};
use crate::{
    dataset::{
        ContentHashes, Counts, Dataset, NewShard, Numbers, Operation, Parent, Publication, Settings, ShardMeta,
        Snapshot, Transaction, check_folders, commit_reshard, folder_of, renumber_segments,
    },
    error::{Error, Result},
    events::Event,
    exec::{
        constants,
        cut::{ShardEnds, ShardSize},
        ordered::run_ordered,
        reshard::{
            CutShard, NewCut, Resharder, Stock, StockPart,
            shuffle::{Mixed, Order},
        },
        shard::ShardNaming,
        types::{self, TypeKinds},
    },
    id::{TransactionId, Version, Writer},
    indexes::{
        self,
        version::{PreparedIndexes, refresh_indexes},
    },
    plan::reshard::{Cut, Share, even_marks, locate_mark, separate_ends, shard_parts, shards_of},
    record::{dedup::DedupBy, filter::Filter},
    storage::{Location, Staged, Store},
    units::Size,
};

/// A sample of records.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordSample {
    /// Share of the records, above 0 and up to 1.
    pub share: f64,
    /// Another seed chooses other records.
    pub seed: u64,
}

/// How a dataset is cut, and which records are taken.
#[derive(Debug, Clone, Default)]
pub struct ReshardOptions {
    /// The version; the newest by default.
    pub at: Option<String>,
    /// How large the shards are; those of the dataset's target by default.
    pub cut: Option<Cut>,
    /// Record and subject ids of the records to take; `None` for all.
    pub ids: Option<Vec<String>>,
    /// Condition on rows.
    pub filter: Option<Filter>,
    /// Sample to take.
    pub sample: Option<RecordSample>,
    /// Splits to take of a divided dataset; all if there are none.
    pub split: Vec<String>,
    /// What duplicates have in common, of which only the first record is taken; `None` if all are.
    pub dedup: Option<DedupBy>,
    /// Seed by which the records are shuffled; `None` if they keep their order.
    pub shuffle: Option<u64>,
    /// Plan without writing anything.
    pub dry_run: bool,
}

/// Cuts a version of a dataset into a new dataset at `out`.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if `out` is a dataset, or nothing is chosen;
/// [`Kind::Integrity`](crate::error::Kind::Integrity) naming a shard that is damaged;
/// [`Kind::Conflict`](crate::error::Kind::Conflict) if another command made the dataset, or erased somebody, meanwhile.
pub fn reshard_dataset(
    context: &Context<'_>,
    parent: &Location,
    out: &Location,
    options: &ReshardOptions,
) -> Result<ReshardReport> {
    let started = Instant::now();
    if out.relative_to(parent).is_some() || parent.relative_to(out).is_some() {
        return Err(Error::usage("expected an --out outside of the dataset")
            .at_location(out.to_string())
            .with_hint("name a new folder or URL; `compact` merges the shards of the dataset itself"));
    }
    let snapshot = manifest::open_snapshot(context, parent, options.at.as_deref())?;
    let child = context.open_dataset(out)?;
    refuse_dataset(&child)?;
    let resharded = Run { context, snapshot: &snapshot, child: &child, options }.run();
    let report = super::or_overtaken(Some(&snapshot), resharded)?;
    Ok(ReshardReport { seconds: started.elapsed().as_secs_f64(), ..report })
}

fn refuse_dataset(child: &Dataset) -> Result<()> {
    if child.newest_snapshot()?.is_none() {
        return Ok(());
    }
    Err(Error::usage("expected an --out that is no dataset yet, found one")
        .at_location(child.store().location().to_string())
        .with_hint("name another folder; reshard makes a new dataset"))
}

/// A run.
struct Run<'a> {
    context: &'a Context<'a>,
    snapshot: &'a Snapshot,
    child: &'a Dataset,
    options: &'a ReshardOptions,
}

/// Shards that may be mixed.
struct ShardGroup {
    /// Places among the chosen shards, in record order.
    members: Vec<usize>,
    /// Folder of the new shards.
    folder: String,
    /// Types and constants of the folder.
    descriptions: Descriptions,
}

/// Content of `schema.json` and of the constants of a folder.
type Descriptions = (Option<Bytes>, Option<Bytes>);

impl Run<'_> {
    fn run(&self) -> Result<ReshardReport> {
        let (context, snapshot) = (self.context, self.snapshot);
        let newest = snapshot.dataset().open_newest()?;
        let parent = Parent::from_snapshot(snapshot, &newest)?;
        let store = snapshot.dataset().store().as_ref();
        check_folders(store, snapshot.live_shards()?.iter())?;
        let total = snapshot.entry().totals.bytes;
        context.observer.event(Event::Phase { name: "choosing records", bytes: None });
        let mut chosen = choose_records(context, snapshot, self.options)?;
        if chosen.stocks.is_empty() {
            return Err(self.no_records_error(&chosen));
        }
        let id = TransactionId::fresh();
        let settings = self.child_settings();
        let shards: Vec<&ShardMeta> = chosen.stocks.iter().map(|stock| &stock.shard).collect();
        let types = TypeKinds::of_shards(snapshot, &shards)?;
        let groups = group_shards(store, &types, &id, &chosen.stocks, self.options.shuffle.is_some())?;
        if let Some(Cut::Even(_)) = self.options.cut {
            refuse_kinds(&groups, &chosen.stocks)?;
        }
        chosen
            .stocks
            .par_iter_mut()
            .try_for_each(|stock| stock.weigh_kept(&rewrite::new_rewriter(context, snapshot)))?;
        let resharder = Resharder {
            rewriter: rewrite::new_rewriter(context, snapshot),
            child: self.child,
            runs: snapshot.run_table()?,
            numbering: &chosen.numbering,
            hashes: ContentHashes::from_snapshot(snapshot),
            settled_for: settings.target_shard.0,
            keeps_runs: false,
        };
        let cuts = self.plan_cuts(&resharder, &groups, &chosen.stocks, &settings)?;
        let mut report = self.build_report(&parent, &cuts, &chosen)?;
        if self.options.dry_run {
            return Ok(report);
        }
        self.child.test_store()?;
        let mut publication = Publication::begin(self.child, &id, Operation::Reshard, Version(0))?;
        context.observer.event(Event::Phase { name: "writing shards", bytes: Some(total) });
        let written = match self.options.shuffle {
            None => self.write(&resharder, &cuts)?,
            Some(seed) => self.write_shuffled(&resharder, &groups, &chosen.stocks, seed, &id)?,
        };
        let made = self.describe_folders(&groups, written, &mut report)?;
        self.commit_child(&parent, settings, &chosen, made, &mut publication, &mut report)?;
        Ok(report)
    }

    /// Returns the error if no record is chosen.
    fn no_records_error(&self, chosen: &Chosen) -> Error {
        let error = Error::usage("expected records to take, found none")
            .at_location(self.snapshot.dataset().store().location().to_string());
        match chosen.missing.first() {
            Some(id) => error.with_hint(format!("no record has the id `{id}`")),
            None => error.with_hint("an empty dataset is not made"),
        }
    }

    /// Returns the settings of the new dataset.
    fn child_settings(&self) -> Settings {
        let settings = self.snapshot.entry().settings.clone();
        // Later conversions into the new dataset shuffle alike.
        let settings = Settings { shuffle: self.options.shuffle.or(settings.shuffle), ..settings };
        match self.options.cut {
            Some(Cut::Target(target)) => Settings { target_shard: target, ..settings },
            _ => settings,
        }
    }

    /// Decides where each new shard ends.
    fn plan_cuts<'s>(
        &self,
        resharder: &Resharder<'_>,
        groups: &[ShardGroup],
        stocks: &'s [Stock],
        settings: &Settings,
    ) -> Result<Vec<NewCut<'s>>> {
        let cut = self.options.cut.unwrap_or(Cut::Target(settings.target_shard));
        let shares: Vec<Share> = groups.iter().map(|group| share_of(group, stocks)).collect();
        let shards = shards_of(&shares, cut)?;
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut out = Vec::new();
        for ((group, share), shards) in groups.iter().zip(shares).zip(shards) {
            let members: Vec<&Stock> = group.members.iter().map(|member| &stocks[*member]).collect();
            let ends = match cut {
                Cut::Records(records) => (1..shards).map(|shard| shard * records).collect(),
                Cut::Even(_) => even_marks(share.records, shards),
                Cut::Target(_) | Cut::Shards(_) => even_ends(resharder, &members, share, shards)?,
            };
            let of_members: Vec<Share> = members.iter().map(|stock| stock.share).collect();
            let first = members.iter().map(|stock| stock.shard.first_record).min().unwrap_or(0);
            for parts in shard_parts(&of_members, &ends) {
                let number = numbers.entry(&group.folder).or_default();
                out.push(NewCut {
                    parts: parts.into_iter().map(|(member, kept)| StockPart { stock: members[member], kept }).collect(),
                    naming: shard_naming(&group.folder, settings, members[0]),
                    number: *number,
                    first_of_set: resharder.numbering.kept_before(first),
                });
                *number += 1;
            }
        }
        Ok(out)
    }

    fn write(&self, resharder: &Resharder<'_>, cuts: &[NewCut<'_>]) -> Result<Vec<CutShard>> {
        let context = self.context;
        let settings = &self.snapshot.entry().settings;
        let memory = context.memory_plan(settings);
        let concurrent = memory.concurrent_rewrites(settings.shard_format, context.jobs);
        std::thread::scope(|scope| {
            let input = cuts.iter().map(Ok);
            run_ordered(scope, input, concurrent, concurrent, &context.cancel, move |cut| resharder.write(cut))
                .collect()
        })
    }

    /// Writes shards of records in the order of their ranks, those of each group by themselves.
    fn write_shuffled(
        &self,
        resharder: &Resharder<'_>,
        groups: &[ShardGroup],
        stocks: &[Stock],
        seed: u64,
        id: &TransactionId,
    ) -> Result<Vec<CutShard>> {
        let settings = self.child_settings();
        let cut = self.options.cut.unwrap_or(Cut::Target(settings.target_shard));
        let shares: Vec<Share> = groups.iter().map(|group| share_of(group, stocks)).collect();
        let shards = shards_of(&shares, cut)?;
        let memory = self.context.memory_plan(&settings);
        let order = Order { seed, memory, jobs: self.context.jobs, writer: &Writer::from(id.clone()) };
        let mut out = Vec::new();
        for (group, shards) in groups.iter().zip(shards) {
            let members: Vec<&Stock> = group.members.iter().map(|member| &stocks[*member]).collect();
            let ends = match cut {
                Cut::Target(_) => None,
                Cut::Shards(_) => Some(ShardEnds::Parts(shards)),
                Cut::Even(_) => Some(ShardEnds::Even(shards)),
                Cut::Records(records) => Some(ShardEnds::Records(records)),
            };
            let first = members.iter().flat_map(|stock| stock.runs.iter().map(|run| run.first)).min().unwrap_or(0);
            let naming = shard_naming(&group.folder, &settings, members[0]);
            let size = ShardSize { target: settings.target_shard.0, ends };
            let mixed = Mixed { members, naming, size, first: resharder.numbering.kept_before(first) };
            out.extend(resharder.shuffle_records(&mixed, &order)?);
        }
        Ok(out)
    }

    /// Describes the folders of new shards.
    fn describe_folders(
        &self,
        groups: &[ShardGroup],
        written: Vec<CutShard>,
        report: &mut ReshardReport,
    ) -> Result<NewShards> {
        let store = self.child.store().as_ref();
        let mut made = NewShards::default();
        let mut folders: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (number, shard) in written.into_iter().enumerate() {
            report.bytes_copied += shard.tally.copied;
            report.bytes_spliced += shard.tally.spliced;
            report.bytes_reencoded += shard.tally.reencoded;
            folders.entry(shard.finished.folder().to_owned()).or_default().push(number);
            made.places.extend(shard.places);
            made.staged.extend(shard.finished.staged);
            made.md5.push(shard.finished.md5);
            made.shards.push(shard.finished.shard);
        }
        for (folder, members) in folders {
            let shards = members.iter().map(|number| (&made.shards[*number].meta, made.md5[*number]));
            made.staged.extend(indexes::of_folders(store, &self.snapshot.entry().settings.indexes, shards)?);
            let Some(group) = groups.iter().find(|group| group.folder == folder) else { continue };
            let (schema, of_constants) = &group.descriptions;
            let types = schema.as_ref().map(|bytes| types::stage_as_read(store, &folder, bytes));
            let constants = of_constants.as_ref().map(|bytes| constants::stage_constants(store, &folder, bytes));
            made.staged.extend(types.into_iter().chain(constants).collect::<Result<Vec<_>>>()?);
        }
        Ok(made)
    }

    fn commit_child(
        &self,
        parent: &Parent,
        settings: Settings,
        chosen: &Chosen,
        mut made: NewShards,
        publication: &mut Publication<'_>,
        report: &mut ReshardReport,
    ) -> Result<()> {
        let (snapshot, child) = (self.snapshot, self.child);
        let (from, to) = (snapshot.dataset().store(), child.store().as_ref());
        self.context.observer.event(Event::Phase { name: "writing the id index", bytes: None });
        let segments = &snapshot.entry().segments;
        let (numbering, cancel) = (&chosen.numbering, &self.context.cancel);
        let index = renumber_segments(from, to, segments, numbering, publication.run_id(), cancel)?;
        made.staged.extend(index.staged);
        let sources = KeptSources::from_snapshot(snapshot, chosen, &self.context.cancel)?;
        self.context.cancel.check()?;
        publication.publish_shards(made.shards.iter_mut(), made.staged)?;
        let bytes_out = made.shards.iter().map(|shard| shard.meta.bytes).sum();
        report.counts = Counts { bytes_out, ..report.counts };
        report.shards = made
            .shards
            .iter()
            .map(|shard| resharded_shard(&shard.meta.path, shard.meta.records, shard.meta.bytes))
            .collect();
        report.measure_shards();
        let transaction = Transaction {
            arguments: self.entry_arguments(parent)?,
            revisions: snapshot.entry().revisions.clone(),
            counts: report.counts,
            adds: made.shards,
            segments: index.refs,
            places: made.places,
            sources: &sources,
            numbers: Numbers::Fresh(chosen.numbering.record_count()),
            ..Transaction::new(publication.run_id().clone(), Operation::Reshard, settings)
        };
        let committed = publication.attempt_commit(|| commit_reshard(child, snapshot, parent, &transaction))?;
        report.version = Some(committed.version());
        refresh_indexes(&committed, PreparedIndexes::default(), self.context.observer)
    }

    /// Returns what decided the shards, as the log entry has it.
    fn entry_arguments(&self, parent: &Parent) -> Result<BTreeMap<String, String>> {
        let mut arguments = parent.to_arguments(self.snapshot)?;
        let mut add = |name: &str, value: String| drop(arguments.insert(name.to_owned(), value));
        match self.options.cut {
            Some(Cut::Target(target)) => add("target-shard", target.0.to_string()),
            Some(Cut::Shards(shards)) => add("shards", shards.to_string()),
            Some(Cut::Even(shards)) => {
                add("shards", shards.to_string());
                add("even", "true".to_owned());
            }
            Some(Cut::Records(records)) => add("records-per-shard", records.to_string()),
            None => {}
        }
        if let Some(ids) = &self.options.ids {
            add("ids", ids.len().to_string());
        }
        if let Some(filter) = &self.options.filter {
            // Conditions name values, which may be ids.
            let is_private = self.snapshot.entry().settings.private.is_some();
            let shown = |text: &str| if is_private { "private".to_owned() } else { text.to_owned() };
            add("where", shown(filter.given()));
            add("where-resolved", shown(filter.resolved()));
        }
        if !self.options.split.is_empty() {
            add("splits", self.options.split.join(","));
        }
        if let Some(by) = &self.options.dedup {
            add("dedup", by.to_string());
        }
        if let Some(seed) = self.options.shuffle {
            add("shuffle", seed.to_string());
        }
        if let Some(sample) = self.options.sample {
            add("sample", sample.share.to_string());
            add("seed", sample.seed.to_string());
        }
        Ok(arguments)
    }

    /// Returns the report of the plan.
    fn build_report(&self, parent: &Parent, cuts: &[NewCut<'_>], chosen: &Chosen) -> Result<ReshardReport> {
        let entry = self.snapshot.entry();
        let counts = Counts {
            records_in: entry.totals.records,
            records_out: entry.totals.records - chosen.filtered - chosen.deduplicated,
            records_filtered: chosen.filtered,
            records_deduplicated: chosen.deduplicated,
            bytes_in: entry.totals.bytes,
            shards_added: cuts.len() as u64,
            ..Counts::default()
        };
        counts.reconcile()?;
        let shard = |cut: &NewCut<'_>| {
            let (mut records, mut bytes) = (0, 0_u128);
            for part in &cut.parts {
                let (of_part, share) = (part.kept.end - part.kept.start, part.stock.share);
                records += of_part;
                bytes += u128::from(share.bytes) * u128::from(of_part) / u128::from(share.records.max(1));
            }
            resharded_shard(&cut.naming.shard_path(cut.number), records, u64::try_from(bytes).unwrap_or(u64::MAX))
        };
        let mut report = ReshardReport {
            parent: parent.origin.place.clone(),
            parent_version: parent.origin.version,
            parent_root: parent.root.clone(),
            dataset: self.child.store().location().to_string(),
            version: None,
            dry_run: self.options.dry_run,
            counts,
            shards_before: entry.totals.shards,
            shards_after: cuts.len() as u64,
            shard_bytes: [0; 2],
            shard_records: [0; 2],
            bytes_copied: 0,
            bytes_spliced: 0,
            bytes_reencoded: 0,
            ids: self.options.ids.as_ref().map(|ids| ids.len() as u64),
            ids_missing: chosen.missing.clone(),
            seconds: 0.0,
            shards: cuts.iter().map(shard).collect(),
        };
        report.measure_shards();
        Ok(report)
    }
}

/// New shards and their objects, which are not published yet.
#[derive(Default)]
struct NewShards {
    shards: Vec<NewShard>,
    md5: Vec<Option<[u8; 16]>>,
    places: Vec<crate::dataset::PlaceRef>,
    staged: Vec<Staged>,
}

fn resharded_shard(path: &str, records: u64, bytes: u64) -> ReshardedShard {
    ReshardedShard { path: path.to_owned(), records, bytes }
}

/// Returns the groups of shards that may be mixed, in the order of their first records.
fn group_shards(
    store: &dyn Store,
    types: &TypeKinds,
    id: &TransactionId,
    stocks: &[Stock],
    is_shuffled: bool,
) -> Result<Vec<ShardGroup>> {
    let mut known: HashMap<String, Descriptions> = HashMap::new();
    let mut kinds: Vec<(Descriptions, usize)> = Vec::new();
    let mut places: HashMap<(String, (Option<String>, String)), usize> = HashMap::new();
    let mut groups: Vec<ShardGroup> = Vec::new();
    for (number, stock) in stocks.iter().enumerate() {
        let path = stock.shard.path.as_str();
        let folder = folder_of(path);
        let descriptions = match known.get(folder) {
            Some(known) => known.clone(),
            None => {
                let read = (types::read(store, folder)?, constants::read(store, folder)?);
                known.entry(folder.to_owned()).or_insert(read).clone()
            }
        };
        let of = (descriptions.clone(), types.kind_of(path));
        let kind = kinds.iter().position(|kind| *kind == of).unwrap_or_else(|| {
            kinds.push(of);
            kinds.len() - 1
        });
        let folder =
            format!("{}/{}", id.tag_of(kind), rewrite::partition_folders(path)).trim_end_matches('/').to_owned();
        let set = stock.shard.order.as_ref().map(|order| order.set.clone());
        let codec = if path.ends_with(".parquet") { String::new() } else { stock.shard.codec.to_string() };
        // Shuffled records are sorted and compressed anew.
        let kind = if is_shuffled { (None, String::new()) } else { (set, codec) };
        let place = *places.entry((folder.clone(), kind)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.members.push(number),
            None => groups.push(ShardGroup { members: vec![number], folder, descriptions }),
        }
    }
    Ok(groups)
}

/// Returns an error if a part has shards that must not be mixed: its records cannot be dealt to even shards then.
fn refuse_kinds(groups: &[ShardGroup], stocks: &[Stock]) -> Result<()> {
    let mut parts = HashSet::new();
    let part = |group: &ShardGroup| {
        group.members.first().map(|member| rewrite::partition_folders(&stocks[*member].shard.path))
    };
    match groups.iter().all(|group| parts.insert(part(group))) {
        true => Ok(()),
        false => Err(Error::usage("expected records that may be mixed for --even, found shards of different kinds")
            .with_hint("shards of different constants, types or sort runs are never mixed: leave --even out")
            .with_hint("with --shuffle, those of different sort runs are mixed")),
    }
}

/// Returns the chosen records of a group.
fn share_of(group: &ShardGroup, stocks: &[Stock]) -> Share {
    group.members.iter().fold(Share::default(), |sum, member| Share {
        records: sum.records + stocks[*member].share.records,
        bytes: sum.bytes + stocks[*member].share.bytes,
    })
}

fn shard_naming(folder: &str, settings: &Settings, first: &Stock) -> ShardNaming {
    // Units of one codec can be joined whatever their levels are.
    let same = discriminant(&settings.codec) == discriminant(&first.shard.codec);
    let own = same || settings.shard_format.is_columnar();
    ShardNaming {
        tag: folder.to_owned(),
        format: settings.shard_format,
        codec: if own { settings.codec } else { first.shard.codec },
        indexes: settings.indexes.clone(),
        fingerprints: settings.has_fingerprints(),
    }
}

/// Returns the records before each of some shards but the first, which are even in bytes.
fn even_ends(resharder: &Resharder<'_>, members: &[&Stock], share: Share, shards: u64) -> Result<Vec<u64>> {
    let of_members: Vec<Share> = members.iter().map(|stock| stock.share).collect();
    let mut wanted: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for mark in even_marks(share.bytes, shards) {
        let (member, bytes) = locate_mark(&of_members, mark);
        wanted.entry(member.min(members.len() - 1)).or_default().push(bytes);
    }
    let mut before = Vec::with_capacity(members.len());
    let mut records = 0;
    for share in &of_members {
        before.push(records);
        records += share.records;
    }
    let even = share.bytes / shards.max(1);
    let found: Vec<Vec<u64>> = wanted
        .into_par_iter()
        .map(|(member, marks)| {
            let ends = resharder.shard_ends(members[member], &marks, even)?;
            Ok(ends.into_iter().map(|end| before[member] + end).collect())
        })
        .collect::<Result<_>>()?;
    let mut ends: Vec<u64> = found.into_iter().flatten().collect();
    separate_ends(&mut ends, records);
    Ok(ends)
}

impl ReshardReport {
    /// Computes the smallest and the largest shard.
    fn measure_shards(&mut self) {
        let ends = |of: fn(&ReshardedShard) -> u64| {
            let all = || self.shards.iter().map(of);
            [all().min().unwrap_or(0), all().max().unwrap_or(0)]
        };
        let (bytes, records) = (ends(|shard| shard.bytes), ends(|shard| shard.records));
        (self.shard_bytes, self.shard_records) = (bytes, records);
    }
}

/// Returns the cut that options ask for, of which at most one is given.
pub fn cut_of(target: Option<Size>, shards: Option<u64>, records: Option<u64>, is_even: bool) -> Option<Cut> {
    let of_shards = if is_even { Cut::Even } else { Cut::Shards };
    target.map(Cut::Target).or(shards.map(of_shards)).or(records.map(Cut::Records))
}
