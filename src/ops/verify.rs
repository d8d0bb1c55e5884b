//! `verify`: checks that a dataset agrees with its log.
//!
//! Without reading data: every live shard exists with its recorded size, sidecars have a row for each record, runs
//! number each record exactly once, the id index is sorted and contains every id of every sidecar, and lists of shards
//! and the index have the hashes that the log records. With `--read-data`, every byte of every shard is read:
//! checksums, framing, CRCs, offsets and content hashes, decoded row counts and ids.

mod ids;
pub(in crate::ops) mod tasks;

use std::{
    collections::{BTreeMap, HashSet},
    io::BufReader,
    time::Instant,
};

use arrow::array::{Array, RecordBatch, StringArray, UInt64Array};
use rayon::prelude::*;
use serde::Serialize;

use self::ids::Index;
use super::{
    Context, indexes,
    parent::{Look, ParentReport, parent_report},
    training,
};
use crate::{
    codec::{checksum::xxh3_64, seal::damaged_line, stream},
    dataset::{
        Audit, Beside, ContentHashes, Dataset, IdColumns, NumberSet, Pseudonymizer, Run, ShardMeta, Snapshot,
        SuppressList, check_duplicates, check_root, find_leftovers, hashes_cover_values,
        id_columns as known_id_columns, is_shard_name, numbered_rows, open_plans, pseudonymizer_of, read_places,
        read_sidecar, run_names,
    },
    error::{Error, Kind, Result},
    events::Event,
    exec::rewrite::verify_checksum,
    format::index,
    format::{
        OutputFormat, Scanned, parquet,
        tfrecord::{IdFeatures, scan_with},
    },
    id::{Version, run_of_folder, run_of_name},
    indexes::version,
    record::{BATCH_ROWS, hash::row_hashes, id_column, parts::KEY_COLUMN},
    storage::{Listed, Location, RequestMemory, SYSTEM_FOLDER, run_waiting},
};

/// Memory that the verification of a shard takes, and that of each of its records.
const LEAST_MEMORY: u64 = 4 << 20;
const ROW_MEMORY: u64 = 256;

/// A problem that was found.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// The object.
    pub object: String,
    /// What was expected and what was found.
    pub problem: String,
}

/// Report of `verify`.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// The dataset.
    pub dataset: String,
    /// The verified version; absent if nothing was ever committed.
    pub version: Option<Version>,
    /// Whether every byte was read.
    pub read_data: bool,
    /// Live shards.
    pub shards: u64,
    /// Live records.
    pub records: u64,
    /// Bytes of live shards.
    pub bytes: u64,
    /// Ids in the index.
    pub ids: u64,
    /// Objects that no version refers to: left by an unfinished run.
    pub unreferenced: u64,
    /// Erasures so far: after one, objects left by unfinished runs may contain erased records.
    pub erasures: u64,
    /// The dataset that this one was cut from; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentReport>,
    /// Number of problems.
    pub problem_count: u64,
    /// The problems.
    #[serde(skip)]
    pub problems: Vec<Problem>,
    /// Time taken.
    pub seconds: f64,
}

/// Verifies a snapshot.
///
/// # Errors
/// When there is no dataset, the store fails or the run is interrupted; [`Kind::Conflict`] if other runs deleted what
/// was to be verified. Damage is in the report and not an error.
pub fn verify_dataset(
    context: &Context<'_>,
    location: &Location,
    at: Option<&str>,
    read_data: bool,
) -> Result<VerifyReport> {
    let started = Instant::now();
    let dataset = context.open_dataset(location)?;
    let mut report = VerifyReport {
        dataset: location.to_string(),
        version: None,
        read_data,
        shards: 0,
        records: 0,
        bytes: 0,
        ids: 0,
        unreferenced: 0,
        erasures: 0,
        parent: None,
        problem_count: 0,
        problems: Vec::new(),
        seconds: 0.0,
    };
    if dataset.newest_snapshot()?.is_none() && at.is_none() {
        // A killed first run leaves a folder without a version, which is valid.
        if dataset.store().find_first(SYSTEM_FOLDER, &|_| true)?.is_none() {
            dataset.open_newest()?;
        }
        report.unreferenced = left_by_killed_runs(&dataset)?;
        return Ok(report);
    }
    let snapshot = super::manifest::open_snapshot(context, location, at)?;
    // Ids in the data are plain, and without the key their tokens cannot be computed.
    let private = snapshot.entry().settings.private.is_some();
    let pseudonymizer = if private && dataset.id_key().is_some() { pseudonymizer_of(&snapshot)? } else { None };
    let compare = read_data && (!private || pseudonymizer.is_some());
    let columns = if compare { id_columns(&dataset, &snapshot, &mut report.problems)? } else { Vec::new() };
    let newest = dataset.newest_snapshot()?.map(|latest| latest.version()) == Some(snapshot.version());
    // Older versions may still contain records that were erased later.
    let suppress = if newest { SuppressList::without_key(&snapshot)? } else { None };
    let (dataset, snapshot) = (&dataset, &snapshot);
    let hashes = ContentHashes::from_snapshot(snapshot);
    let verification = Verification { context, dataset, snapshot, read_data, columns, pseudonymizer, hashes, suppress };
    report.version = Some(snapshot.version());
    report.erasures = snapshot.entry().erasures.as_ref().map_or(0, |erasures| erasures.count);
    super::or_overtaken(Some(snapshot), verification.run(&mut report))?;
    // Objects that another run deleted are not damage.
    if !report.problems.is_empty() && snapshot.has_lost_data().is_ok_and(|overtaken| overtaken) {
        return Err(super::overtaken_error(dataset));
    }
    if report.problems.is_empty() {
        report.parent = parent_report(context, snapshot, Look::Anywhere)?;
    }
    report.problem_count = report.problems.len() as u64;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Returns the id columns of all versions up to a snapshot, without repetition.
fn id_columns(dataset: &Dataset, snapshot: &Snapshot, problems: &mut Vec<Problem>) -> Result<Vec<IdColumns>> {
    let entries = match dataset.entries_up_to(snapshot.version()) {
        Ok(entries) => entries,
        Err(e) => {
            record_damage(e, problems)?;
            vec![snapshot.entry().clone()]
        }
    };
    Ok(known_id_columns(&entries))
}

struct Verification<'a> {
    context: &'a Context<'a>,
    dataset: &'a Dataset,
    snapshot: &'a Snapshot,
    read_data: bool,
    /// Id columns of all versions so far: records added before other columns were named keep their ids.
    columns: Vec<IdColumns>,
    /// How ids are stored, if they are private and their key is known.
    pseudonymizer: Option<Pseudonymizer>,
    /// How content hashes are compared.
    hashes: ContentHashes,
    /// Ids that must not occur; known for the newest version only.
    suppress: Option<SuppressList>,
}

impl Verification<'_> {
    fn run(&self, report: &mut VerifyReport) -> Result<()> {
        let shards = match self.snapshot.live_shards() {
            Ok(shards) => shards,
            Err(e) => return record_damage(e, &mut report.problems),
        };
        if let Err(e) = self.snapshot.run_table() {
            return record_damage(e, &mut report.problems);
        }
        self.verify_chain(shards, &mut report.problems)?;
        if let Err(e) = check_root(self.snapshot) {
            record_damage(e, &mut report.problems)?;
        }
        report.shards = shards.len() as u64;
        report.records = shards.iter().map(|s| s.records).sum();
        report.bytes = shards.iter().map(|s| s.bytes).sum();
        let totals = self.snapshot.entry().totals;
        if (totals.records, totals.bytes) != (report.records, report.bytes) {
            report.problems.push(Problem {
                object: format!("log entry of {}", self.snapshot.version()),
                problem: format!(
                    "expected {} records in {} bytes, found {} in {}",
                    totals.records, totals.bytes, report.records, report.bytes
                ),
            });
        }
        let scattered = self.live_runs()?.filter(|run| run.scattered.is_some()).collect::<Vec<_>>();
        let sorted = match self.sorted_numbers(&scattered) {
            Ok(sorted) => Some(sorted),
            Err(e) => record_damage(e, &mut report.problems).map(|()| None)?,
        };
        let known = sorted.as_deref().unwrap_or_default();
        let index = match Index::read(self.snapshot, shards, known, self.suppress.as_ref()) {
            Ok(index) => index,
            Err(e) => return record_damage(e, &mut report.problems),
        };
        report.ids = index.pairs;
        let work = if self.read_data { Some(report.bytes) } else { None };
        self.context.observer.event(Event::Phase { name: "verifying", bytes: work });
        let check = |(number, shard): (usize, &ShardMeta)| self.verify_shard(number, shard, &index);
        let rows = shards.iter().map(|shard| shard.records).max().unwrap_or(0);
        let object_bytes = LEAST_MEMORY + rows * ROW_MEMORY;
        let memory = RequestMemory { object_bytes, total_bytes: self.context.memory.0 / 2 };
        let found: Vec<Vec<Problem>> = run_waiting(self.dataset.store().as_ref(), memory, || {
            shards.par_iter().enumerate().map(check).collect::<Result<_>>()
        })?;
        let whole = found.iter().all(Vec::is_empty);
        report.problems.extend(found.into_iter().flatten());
        if let Some(sorted) = &sorted {
            if whole && !index.sorted_agree() {
                self.sorted_ids(shards, &index, &mut report.problems)?;
            }
            self.verify_numbers(shards, sorted, &mut report.problems)?;
        }
        self.left_out(&mut report.problems)?;
        self.verify_rejects(&mut report.problems)?;
        self.verify_training(&mut report.problems)?;
        self.live_indexes(&mut report.problems)?;
        self.verify_erased(&mut report.problems)?;
        report.unreferenced = self.count_unreferenced()?;
        Ok(())
    }

    /// Verifies the chain of checksums: from the entries of the log to every object that readable versions refer to.
    /// Live shards are verified one by one elsewhere.
    fn verify_chain(&self, shards: &[ShardMeta], problems: &mut Vec<Problem>) -> Result<()> {
        let newest = self.dataset.open_newest()?;
        let only = (newest.version() != self.snapshot.version()).then(|| self.snapshot.version());
        let live: HashSet<&str> = shards.iter().map(|shard| shard.path.as_str()).collect();
        let cancel = &self.context.cancel;
        let found = Audit::new(&newest, only, self.read_data)?.run(
            self.dataset,
            |path| live.contains(path),
            || cancel.check(),
        )?;
        found.into_iter().try_for_each(|error| record_damage(error, problems))
    }

    /// Returns all problems of a shard.
    fn verify_shard(&self, number: usize, shard: &ShardMeta, index: &Index<'_>) -> Result<Vec<Problem>> {
        self.context.cancel.check()?;
        let mut problems = Vec::new();
        let checks: [&dyn Fn() -> Result<()>; 4] = [
            &|| self.verify_size(shard),
            &|| index.check_shard(number, shard),
            &|| self.verify_indexes(shard),
            &|| self.verify_data(shard),
        ];
        for check in checks {
            match check() {
                Ok(()) => {}
                Err(e) if e.kind() == Kind::Interrupted => return Err(e),
                Err(e) => problems.push(problem_from_error(&e, &shard.path)),
            }
        }
        self.context.observer.event(Event::Read { bytes: shard.bytes, records: shard.records });
        Ok(problems)
    }

    fn verify_size(&self, shard: &ShardMeta) -> Result<()> {
        match self.dataset.store().head(&shard.path)? {
            None => Err(Error::integrity("expected a shard, found none")),
            Some(facts) if facts.bytes != shard.bytes => {
                Err(Error::integrity(format!("expected {} bytes, found {}", shard.bytes, facts.bytes)))
            }
            Some(_) => Ok(()),
        }
    }

    /// Verifies the indexes for training tools; a missing or incomplete shard is reported separately.
    fn verify_indexes(&self, shard: &ShardMeta) -> Result<()> {
        if self.verify_size(shard).is_err() {
            return Ok(());
        }
        let settings = &self.snapshot.entry().settings;
        indexes::check_shard(self.dataset.store(), shard, settings.shard_format, &settings.indexes)
    }

    /// Verifies the indexes of the live shards, which follow the newest version.
    fn live_indexes(&self, problems: &mut Vec<Problem>) -> Result<()> {
        if self.dataset.newest_snapshot()?.map(|latest| latest.version()) != Some(self.snapshot.version()) {
            return Ok(());
        }
        match version::stale_indexes(self.snapshot) {
            Ok(found) => {
                problems.extend(found.into_iter().map(|(object, problem)| Problem { object, problem }));
                Ok(())
            }
            Err(e) => record_damage(e, problems),
        }
    }

    /// Verifies the tables of records that runs omitted as duplicates.
    fn left_out(&self, problems: &mut Vec<Problem>) -> Result<()> {
        for table in &self.snapshot.entry().duplicates {
            self.context.cancel.check()?;
            if let Err(error) = check_duplicates(self.dataset.store(), table) {
                record_damage(error, problems)?;
            }
        }
        Ok(())
    }

    /// Verifies the lines of rejected records.
    fn verify_rejects(&self, problems: &mut Vec<Problem>) -> Result<()> {
        let store = self.dataset.store();
        for object in store.list_folder(&format!("{SYSTEM_FOLDER}/rejects"))? {
            self.context.cancel.check()?;
            if let Some(line) = damaged_line(&mut BufReader::new(store.read(&object.path)?))? {
                let problem = format!("line {line} is damaged: its hash does not match its bytes");
                problems.push(Problem { object: object.path, problem });
            }
        }
        Ok(())
    }

    /// Verifies that training runs are whole, and read what this dataset has.
    fn verify_training(&self, problems: &mut Vec<Problem>) -> Result<()> {
        for name in run_names(self.dataset)? {
            self.context.cancel.check()?;
            if let Err(error) = training::check_run(self.dataset, &name) {
                record_damage(error, problems)?;
            }
        }
        Ok(())
    }

    /// Verifies that objects which an erasure replaced are deleted.
    fn verify_erased(&self, problems: &mut Vec<Problem>) -> Result<()> {
        let Some(latest) = self.dataset.newest_snapshot()? else { return Ok(()) };
        let found = match find_leftovers(&latest) {
            Ok(found) => found,
            Err(e) => return record_damage(e, problems),
        };
        let what = "holds records that were erased; run the same `shardify erase` again, it was interrupted";
        problems.extend(found.into_iter().map(|o| Problem { object: o.path, problem: what.to_owned() }));
        Ok(())
    }

    fn verify_data(&self, shard: &ShardMeta) -> Result<()> {
        if !self.read_data || self.dataset.store().head(&shard.path)?.is_none() {
            return Ok(());
        }
        verify_checksum(self.dataset, shard, &self.context.cancel)?;
        let format = self.snapshot.entry().settings.shard_format;
        if format.is_columnar() { self.verify_parquet(shard) } else { self.verify_stream(shard, format) }
    }

    fn verify_stream(&self, shard: &ShardMeta, format: OutputFormat) -> Result<()> {
        let sidecar = read_sidecar(self.dataset.store().as_ref(), &shard.sidecar())?;
        let rows = || sidecar.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
        let stored = self.dataset.store().read(&shard.path)?;
        let mut input = BufReader::with_capacity(1 << 20, stream::open_shard_decoder(shard.codec, stored)?);
        let (mut expected, mut ordinal) = (rows(), 0_u64);
        let mut compare = |found: &Scanned, has_its_ids: bool| {
            let Some((batch, row)) = expected.next() else {
                return Err(Error::integrity(format!("expected {ordinal} records, found more")).at_byte(found.offset));
            };
            check_row(batch, row, found, &self.hashes, has_its_ids)
                .map_err(|problem| Error::integrity(format!("row {ordinal}: {problem}")).at_byte(found.offset))?;
            ordinal += 1;
            Ok(())
        };
        if format == OutputFormat::TfRecord {
            let (features, mut wanted) = (self.id_features(), rows());
            let read = |data: Option<&[u8]>| match (data, wanted.next()) {
                (Some(data), Some((batch, row))) if !features.is_empty() => {
                    let (record, subject) = (text_at(batch, 0, row), text_at(batch, 1, row));
                    let agree = |(features, told): &(IdFeatures, bool)| {
                        let subject = subject.filter(|_| !told);
                        match &self.pseudonymizer {
                            None => features.may_have_ids(data, record, subject),
                            Some(pseudonymizer) => features
                                .agree_with(data, record, subject, &|stored, id| pseudonymizer.matches_id(stored, id)),
                        }
                    };
                    (record.is_none() && subject.is_none()) || features.iter().any(agree)
                }
                _ => true,
            };
            scan_with(&mut input, self.context.memory.0 / 8, read, |found, agree| compare(&found, agree))?;
        } else {
            let framing = format.framing()?;
            framing.scan_foreign(&mut input, &mut |found, _| compare(&found, true))?;
        }
        if ordinal == shard.records {
            return Ok(());
        }
        Err(Error::integrity(format!("expected {} records, found {ordinal}", shard.records)))
    }

    fn id_features(&self) -> Vec<(IdFeatures, bool)> {
        let features = |(record, subject, told): &IdColumns| (IdFeatures::new(record, subject.as_ref()), *told);
        self.columns.iter().map(features).collect()
    }

    fn verify_parquet(&self, shard: &ShardMeta) -> Result<()> {
        let sidecar = read_sidecar(self.dataset.store().as_ref(), &shard.sidecar())?;
        let file = parquet::open(self.dataset.object_at(&shard.path, shard.bytes), &shard.path)?;
        let mut rows = 0;
        let hashed = hashes_cover_values(self.dataset.store(), &shard.sidecar())?;
        let mut ids = SidecarIds::new(&sidecar, self.columns.len() == 1, self.pseudonymizer.as_ref());
        for batch in file.into_batches(BATCH_ROWS) {
            self.context.cancel.check()?;
            let batch = batch?;
            let named = |columns: &[String]| -> Result<Option<StringArray>> {
                let there = !columns.is_empty() && columns.iter().all(|c| batch.column_by_name(c).is_some());
                there.then(|| id_column(&batch, columns)).transpose()
            };
            let key = vec![KEY_COLUMN.to_owned()];
            let (mut record, mut subject) = (Vec::new(), Vec::new());
            for (columns, whom, _) in &self.columns {
                record.extend(named(if columns.is_empty() { &key } else { columns })?);
                subject.extend(named(whom.as_slice())?);
            }
            let stored = |hash| self.hashes.to_stored(hash);
            let hashes: Option<Vec<u64>> =
                if hashed { row_hashes(&batch).into_iter().map(stored).collect() } else { None };
            ids.compare_ids(batch.num_rows(), [&record, &subject], hashes.as_deref())?;
            rows += batch.num_rows() as u64;
        }
        if rows == shard.records {
            return Ok(());
        }
        Err(Error::integrity(format!("expected {} records, found {rows}", shard.records)))
    }

    /// Reports the sorted shards whose ids, taken together, differ from the index.
    fn sorted_ids(&self, shards: &[ShardMeta], index: &Index<'_>, problems: &mut Vec<Problem>) -> Result<()> {
        for shard in shards {
            match if index.is_sorted(shard)? { index.find_difference(shard) } else { Ok(()) } {
                Ok(()) => {}
                Err(e) if e.kind() == Kind::Integrity => problems.push(problem_from_error(&e, &shard.path)),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Returns the runs of the version.
    fn live_runs(&self) -> Result<impl Iterator<Item = &Run>> {
        let version = self.snapshot.version();
        Ok(self.snapshot.run_table()?.as_slice().iter().filter(move |run| run.is_in_version(version)))
    }

    /// Verifies that every live record has exactly one number; `sorted` are the numbers of sorted shards.
    fn verify_numbers(&self, shards: &[ShardMeta], sorted: &[Run], problems: &mut Vec<Problem>) -> Result<()> {
        let mut live: Vec<&Run> = self.live_runs()?.filter(|run| run.scattered.is_none()).collect();
        live.extend(sorted);
        live.sort_by_key(|r| r.first);
        let object = "run table".to_owned();
        let mut report = |problem: String| problems.push(Problem { object: object.clone(), problem });
        for pair in live.windows(2) {
            if pair[0].first + pair[0].records > pair[1].first {
                report(format!("records from {} on are in {} and in {}", pair[1].first, pair[0].shard, pair[1].shard));
            }
        }
        let numbered: u64 = live.iter().map(|r| r.records).sum();
        let records: u64 = shards.iter().map(|s| s.records).sum();
        if numbered != records {
            report(format!("expected numbers for {records} records, found {numbered}"));
        }
        if live.last().is_some_and(|r| r.first + r.records > self.snapshot.entry().next_record) {
            report("a record has a number that was never assigned".to_owned());
        }
        Ok(())
    }

    /// Returns the numbers of sorted shards as ranges. Verifies that each number occurs once and that its place leads
    /// back to its row.
    fn sorted_numbers(&self, runs: &[&Run]) -> Result<Vec<Run>> {
        let store = self.dataset.store();
        let mut numbers = NumberSet::default();
        // Order-independent sums over all places.
        let mut sums: BTreeMap<(&str, u64), (u64, u64)> = BTreeMap::new();
        for run in runs {
            let Some(scattered) = &run.scattered else { continue };
            let (sum, _) = sums.entry((&scattered.set, scattered.shard)).or_default();
            for (ordinal, known) in (0..).zip(numbered_rows(store, &[run], self.snapshot.run_table()?)?) {
                let Some(known) = known? else { continue };
                if !numbers.insert(known.record) || !(run.first..run.end_record()).contains(&known.record) {
                    return Err(Error::integrity(format!("record {} occurs twice, or is out of bounds", known.record))
                        .at_location(store.location().join(&run.shard).to_string()));
                }
                *sum = sum.wrapping_add(place_hash(known.record, ordinal));
            }
        }
        for table in &self.snapshot.entry().places {
            if !runs.iter().any(|run| run.scattered.as_ref().is_some_and(|s| s.set == table.set)) {
                continue;
            }
            read_places(store, table, &mut |record, shard, ordinal| {
                // Shards of the set that are no longer live have places too.
                if let Some((_, sum)) = sums.get_mut(&(table.set.as_str(), shard)) {
                    *sum = sum.wrapping_add(place_hash(record, ordinal));
                }
                Ok(())
            })?;
        }
        if let Some((set, shard)) = sums.iter().find(|(_, (rows, places))| rows != places).map(|(key, _)| key) {
            return Err(Error::integrity(format!("the places of shard {shard} do not lead to its records"))
                .at_location(format!("set {set}")));
        }
        let range = |(first, records)| Run {
            first,
            records,
            shard: "sorted shards".to_owned(),
            ordinal: 0,
            from: self.snapshot.version(),
            until: None,
            since: None,
            scattered: None,
            beside: Beside::placeholder(),
        };
        Ok(numbers.to_ranges().into_iter().map(range).collect())
    }

    /// Returns the number of objects in the folder that no version of the run table and no open plan refers to.
    fn count_unreferenced(&self) -> Result<u64> {
        let mut runs = self.snapshot.run_table()?.as_slice().to_vec();
        // Versions that only their tags keep are not in the run table of newer ones.
        for version in self.snapshot.tags().values().filter(|v| **v < self.snapshot.readable_from()) {
            runs.extend(self.dataset.open_version(*version)?.run_table()?.as_slice().iter().cloned());
        }
        let stems: HashSet<&str> = runs.iter().map(|r| index::shard_stem(&r.shard)).collect();
        let folders: HashSet<&str> = runs.iter().filter_map(|r| Some(&r.shard[..=r.shard.rfind('/')?])).collect();
        let staging = format!("{SYSTEM_FOLDER}/staging/");
        let plans = OpenPlans::from_dataset(self.dataset)?;
        let left_over = |path: &str| {
            let known = || indexes::belongs_to_shard(path, |s| stems.contains(s), |f| folders.contains(f));
            path.starts_with(&staging) || (is_shard_name(path) && !known() && !plans.contains_path(path))
        };
        let mut count = 0;
        self.dataset.store().walk_folder("", &mut |listed| {
            count += u64::from(matches!(listed, Listed::Object(object) if left_over(&object.path)));
            Ok(())
        })?;
        Ok(count)
    }
}

/// Returns the number of objects in a dataset that has no version yet, all left by unfinished runs.
fn left_by_killed_runs(dataset: &Dataset) -> Result<u64> {
    let kept = ["store.json", "locks/"].map(|name| format!("{SYSTEM_FOLDER}/{name}"));
    let system = format!("{SYSTEM_FOLDER}/");
    let plans = OpenPlans::from_dataset(dataset)?;
    let left_over = |path: &str| {
        let is_ours = path.starts_with(&system) || is_shard_name(path);
        is_ours && !plans.contains_path(path) && !kept.iter().any(|kept| path.starts_with(kept.as_str()))
    };
    let mut count = 0;
    dataset.store().walk_folder("", &mut |listed| {
        count += u64::from(matches!(listed, Listed::Object(object) if left_over(&object.path)));
        Ok(())
    })?;
    Ok(count)
}

/// Tags of the plans that are open: what their tasks wrote waits for a commit.
struct OpenPlans(HashSet<String>);

impl OpenPlans {
    fn from_dataset(dataset: &Dataset) -> Result<Self> {
        Ok(Self(open_plans(dataset)?.into_iter().map(|plan| plan.name.id.short_tag().to_owned()).collect()))
    }

    fn contains_path(&self, path: &str) -> bool {
        let tag = path.split('/').find_map(|name| run_of_folder(name).or_else(|| run_of_name(name)));
        tag.is_some_and(|tag| self.0.contains(tag))
    }
}

/// Ids of a sidecar, read together with the rows of its shard.
struct SidecarIds<'a> {
    rows: Box<dyn Iterator<Item = (&'a RecordBatch, usize)> + 'a>,
    ordinal: u64,
    /// Whether the id columns never changed, so that every row with a value has an id.
    all_named: bool,
    pseudonymizer: Option<&'a Pseudonymizer>,
}

impl<'a> SidecarIds<'a> {
    fn new(sidecar: &'a [RecordBatch], all_named: bool, pseudonymizer: Option<&'a Pseudonymizer>) -> Self {
        let rows = sidecar.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
        Self { rows: Box::new(rows), ordinal: 0, all_named, pseudonymizer }
    }

    /// Compares with the ids from the columns, record ids first, and with the hashes of the rows.
    fn compare_ids(&mut self, rows: usize, ids: [&[StringArray]; 2], hashes: Option<&[u64]>) -> Result<()> {
        for row in 0..rows {
            let Some((batch, at)) = self.rows.next() else {
                return Err(Error::integrity(format!("expected {} records, found more", self.ordinal)));
            };
            let stored = batch.column(6).as_any().downcast_ref::<UInt64Array>().map(|hashes| hashes.value(at));
            if hashes.is_some_and(|hashes| hashes.get(row).copied() != stored) {
                return Err(Error::integrity(format!(
                    "row {}: the record does not agree with the sidecar",
                    self.ordinal
                )));
            }
            for (column, ids) in ids.into_iter().enumerate() {
                let Some(newest) = ids.last() else { continue };
                let stored = text_at(batch, column, at);
                let found = |ids: &StringArray| ids.is_valid(row).then(|| ids.value(row).to_owned());
                let is = |ids: &StringArray| match (stored, found(ids)) {
                    (None, None) => true,
                    (Some(stored), Some(id)) => is_stored(self.pseudonymizer, stored, &id),
                    _ => false,
                };
                if !ids.iter().any(is) && (stored.is_some() || self.all_named) {
                    // The message contains neither form of a private id.
                    let found = if self.pseudonymizer.is_some() { None } else { found(newest) };
                    return Err(Error::integrity(format!(
                        "expected the id `{}` in row {}, found `{}`",
                        stored.unwrap_or_default(),
                        self.ordinal,
                        found.as_deref().unwrap_or("another")
                    )));
                }
            }
            self.ordinal += 1;
        }
        Ok(())
    }
}

/// Returns whether a stored id is the stored form of `id`.
fn is_stored(pseudonymizer: Option<&Pseudonymizer>, stored: &str, id: &str) -> bool {
    pseudonymizer.map_or(stored == id, |pseudonymizer| pseudonymizer.matches_id(stored, id))
}

/// Returns an error unless a record agrees with its row in the sidecar.
fn check_row(
    batch: &RecordBatch,
    row: usize,
    found: &Scanned,
    hashes: &ContentHashes,
    has_its_ids: bool,
) -> Result<(), String> {
    let number = |column: usize| batch.column(column).as_any().downcast_ref::<UInt64Array>().map(|a| a.value(row));
    let same_hash = hashes.to_stored(found.hash).is_none_or(|hash| number(6) == Some(hash));
    if (number(2), number(3)) != (Some(found.offset), Some(found.length)) || !same_hash {
        return Err("the record does not agree with the sidecar".to_owned());
    }
    if has_its_ids {
        return Ok(());
    }
    let ids: Vec<&str> = (0..2).filter_map(|column| text_at(batch, column, row)).collect();
    Err(format!("expected a record with the id `{}`, found another", ids.join("` and the subject id `")))
}

fn text_at(batch: &RecordBatch, column: usize, row: usize) -> Option<&str> {
    let array = batch.column(column).as_any().downcast_ref::<StringArray>()?;
    array.is_valid(row).then(|| array.value(row))
}

/// Returns a hash of a record's place, such that errors in two places do not cancel out in a sum.
fn place_hash(record: u64, ordinal: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&record.to_le_bytes());
    bytes[8..].copy_from_slice(&ordinal.to_le_bytes());
    xxh3_64(&bytes)
}

fn problem_from_error(error: &Error, object: &str) -> Problem {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    Problem { object: object.to_owned(), problem: text }
}

/// Records damage that prevents further checks as a problem; returns every other error.
fn record_damage(error: Error, problems: &mut Vec<Problem>) -> Result<()> {
    if error.kind() != Kind::Integrity {
        return Err(error);
    }
    let object = error.place().source.clone().unwrap_or_default();
    problems.push(problem_from_error(&error, &object));
    Ok(())
}
