//! Positions of records, and the order of training that is computed from them, survive erasures: whoever is left keeps
//! their step. The model is the list of each version as `manifest` exported it before anybody was erased.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, RecordBatch, cast::AsArray};
use serde_json::Value;
use shardify_core::{
    id::Version,
    storage::{self, Location, StoreSettings},
};
use shardify_dataset::dataset::{Dataset, Snapshot};
use shardify_load::{Loader, LoaderSettings, Omitted};
use support::Folder;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// A record at a position: its number and id.
type Listed = (u64, String);

/// What was known of a version when it was committed.
struct Committed {
    list: Vec<Listed>,
    basis: [u8; 32],
    /// Positions of each step of an epoch.
    steps: Vec<Vec<u64>>,
}

fn open(folder: &Folder, dataset: &str, version: u64) -> Snapshot {
    let location = Location::from_local_path(&folder.path().join(dataset)).unwrap();
    let dataset = Dataset::new(storage::open_store(&location, &StoreSettings::default()).unwrap());
    if version == 0 { dataset.open_newest().unwrap() } else { dataset.open_version(Version(version)).unwrap() }
}

fn settings() -> LoaderSettings {
    LoaderSettings {
        global_batch_size: 12,
        block: Some(7),
        lanes: Some(4),
        window: Some(23),
        threads: 1,
        drop_last: false,
        ..LoaderSettings::default()
    }
}

/// Returns the records of each step: positions, numbers and ids, and how many were expected.
fn steps_of(loader: &Loader) -> Vec<(Vec<(u64, Listed)>, u64)> {
    let step = |batch: shardify_load::LoadedBatch| {
        let ids = ids_of(&batch.columns);
        assert_eq!((ids.len(), batch.positions.len()), (batch.numbers.len(), batch.numbers.len()));
        let listed = batch.numbers.iter().copied().zip(ids);
        (batch.positions.iter().copied().zip(listed).collect(), batch.expected)
    };
    loader.start(0, 0).unwrap().map(|batch| step(batch.unwrap())).collect()
}

/// Finds the id, which is `r<number>;`, in a column of each format.
fn ids_of(columns: &RecordBatch) -> Vec<String> {
    let names = ["id", "json", "record"];
    let (name, column) = names.iter().find_map(|name| Some((*name, columns.column_by_name(name)?))).unwrap();
    let text = |row: usize| match name {
        "id" => column.as_string::<i32>().value(row).to_owned(),
        _ => String::from_utf8_lossy(column.as_binary::<i64>().value(row)).into_owned(),
    };
    let id = |text: String| {
        let from = text.find("r-").unwrap();
        text[from..].split(';').next().unwrap().to_owned()
    };
    (0..column.len()).map(|row| id(text(row))).collect()
}

/// Returns the ids of a version in the order of its list, as the program exports them.
fn exported(folder: &Folder, dataset: &str, version: u64) -> Vec<String> {
    let out = folder.run(&format!("manifest {dataset} --export jsonl --at v{version}")).ok().stdout;
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        row["record_id"].as_str().unwrap().trim_end_matches(';').to_owned()
    };
    out.lines().map(row).collect()
}

/// Compares a version with what was committed, without those who were erased since.
fn check(folder: &Folder, dataset: &str, version: u64, committed: &Committed, erased: &BTreeSet<String>) {
    let loader = Loader::open(&open(folder, dataset, version), settings()).unwrap();
    let holes = committed.list.iter().filter(|(_, id)| erased.contains(id)).count() as u64;
    let facts = loader.facts();
    assert_eq!((facts.records, facts.erased), (committed.list.len() as u64, holes), "{dataset} v{version}");
    assert_eq!(facts.basis, committed.basis, "{dataset} v{version}");
    let found = steps_of(&loader);
    assert_eq!(found.len(), committed.steps.len());
    for ((records, expected), positions) in found.iter().zip(&committed.steps) {
        let model = positions.iter().map(|at| (*at, committed.list[usize::try_from(*at).unwrap()].clone()));
        let left: Vec<(u64, Listed)> = model.filter(|(_, (_, id))| !erased.contains(id)).collect();
        assert_eq!((records, *expected), (&left, positions.len() as u64), "{dataset} v{version}");
    }
}

/// A dataset, its versions as committed, and whom it lost.
struct World {
    folder: Folder,
    dice: Dice,
    format: &'static str,
    persons: u64,
    ids: Vec<(String, u64)>,
    numbers: BTreeMap<String, u64>,
    versions: BTreeMap<u64, Committed>,
    erased: BTreeSet<String>,
}

impl World {
    fn new(format: &'static str, seed: u64) -> Self {
        Self {
            folder: Folder::new(),
            dice: Dice(seed),
            format,
            persons: 9,
            ids: Vec::new(),
            numbers: BTreeMap::new(),
            versions: BTreeMap::new(),
            erased: BTreeSet::new(),
        }
    }

    fn run(&self, command: &str) {
        self.folder.run(command).ok();
    }

    fn convert(&mut self, records: u64) {
        let mut text = "id,person,x,note\n".to_owned();
        for _ in 0..records {
            let (number, person) = (self.ids.len(), self.dice.below(self.persons));
            let x = self.dice.below(1000);
            text += &format!("r-{number:04};,P{person},{x},{}\n", "n".repeat(1 + number % 50));
            self.ids.push((format!("r-{number:04}"), person));
        }
        let name = format!("{}.csv", self.ids.len());
        self.folder.write(&name, text);
        self.run(&format!("convert {name} --out d {} --id id --subject person --target-shard 4KiB", self.format));
    }

    /// Notes versions that were committed since the last time.
    fn note(&mut self) {
        let newest = open(&self.folder, "d", 0).version().0;
        let known = self.versions.keys().last().copied().unwrap_or(0);
        for version in known + 1..=newest {
            let list = exported(&self.folder, "d", version);
            let loader = Loader::open(&open(&self.folder, "d", version), settings()).unwrap();
            let (basis, steps) = (loader.facts().basis, steps_of(&loader));
            let mut all: Vec<(u64, Listed)> = steps.iter().flat_map(|step| step.0.clone()).collect();
            all.sort_unstable();
            assert!(all.iter().map(|record| record.0).eq(0..list.len() as u64), "v{version}");
            let found: Vec<&String> = all.iter().map(|record| &record.1.1).collect();
            assert_eq!(found, list.iter().collect::<Vec<_>>(), "v{version}");
            // Numbers are those of other versions.
            let list: Vec<Listed> = all.into_iter().map(|record| record.1).collect();
            for (number, id) in &list {
                assert_eq!(self.numbers.entry(id.clone()).or_insert(*number), number, "v{version}");
            }
            let steps = steps.into_iter().map(|step| step.0.into_iter().map(|record| record.0).collect()).collect();
            self.versions.insert(version, Committed { list, basis, steps });
        }
    }

    /// Erases a person, or some records of which one may be the last of its shard.
    fn erase(&mut self) {
        let mut names = Vec::new();
        if self.dice.below(2) == 0 {
            let person = self.dice.below(self.persons);
            names.push(format!("--subject P{person}"));
            self.erased.extend(self.ids.iter().filter(|id| id.1 == person).map(|id| id.0.clone()));
        } else {
            let (first, count) = (self.dice.below(self.ids.len() as u64), 1 + self.dice.below(40));
            for (id, _) in self.ids.iter().skip(usize::try_from(first).unwrap()).take(usize::try_from(count).unwrap()) {
                names.push(format!("{id};"));
                self.erased.insert(id.clone());
            }
        }
        // Whom an earlier erasure has removed is not found again.
        let _ = self.folder.run(&format!("erase d {} --all-versions", names.join(" ")));
        self.folder.run("verify d --read-data").ok();
    }

    fn check(&self) {
        for (version, committed) in &self.versions {
            check(&self.folder, "d", *version, committed, &self.erased);
        }
    }
}

/// Erasures in a row, of each way to arrange records, between commands that replace shards of newer versions.
#[test]
fn whoever_is_left_keeps_their_position() {
    let cases = [
        ("--to parquet", ""),
        ("--to parquet --shuffle 5", ""),
        ("--to parquet", "compact d --sort-by x"),
        ("--to tar", ""),
        ("--to tar --codec zstd --shuffle 1", ""),
        ("--to tfrecord --codec gzip", ""),
        ("--to tfrecord --split train=0.8,test=0.2", ""),
    ];
    for (seed, (format, arrange)) in cases.into_iter().enumerate() {
        let mut world = World::new(format, seed as u64);
        world.convert(150);
        world.convert(60);
        if !arrange.is_empty() {
            world.run(arrange);
        }
        world.note();
        for turn in 0..4 {
            world.erase();
            world.check();
            world.note();
            match turn {
                0 => world.convert(30),
                1 => world.run("compact d --min-inputs 2"),
                _ => world.run(&format!("manifest d --tag kept-{turn}")),
            }
            world.note();
        }
        let middle = world.versions.keys().nth(1).copied().unwrap();
        world.run("manifest d --untag kept-2");
        world.run("manifest d --untag kept-3");
        world.run(&format!("manifest d --tag old --at v{middle}"));
        world.run("vacuum d --retain 0 --force");
        let kept = world.versions.remove(&middle).unwrap();
        world.erase();
        check(&world.folder, "d", middle, &kept, &world.erased);
    }
}

/// A copy of a version from before an erasure has the basis of that version, as has a copy of the copy; what is erased
/// in the copy itself leaves holes in addition.
#[test]
fn copies_have_the_positions_of_their_upstream() {
    for (seed, format) in ["--to parquet --shuffle 2", "--to tar", "--to tfrecord --codec gzip"].into_iter().enumerate()
    {
        let mut world = World::new(format, 70 + seed as u64);
        world.convert(180);
        world.note();
        world.run("pull d before");
        world.convert(20);
        world.note();
        for _ in 0..3 {
            world.erase();
        }
        check(&world.folder, "before", 1, &world.versions[&1], &BTreeSet::new());
        for version in [1, 2] {
            let copy = format!("copy-{version}");
            world.run(&format!("pull d {copy} --at v{version}"));
            world.run(&format!("verify {copy} --read-data"));
            check(&world.folder, &copy, 1, &world.versions[&version], &world.erased);
            world.run(&format!("pull {copy} again-{version}"));
            check(&world.folder, &format!("again-{version}"), 1, &world.versions[&version], &world.erased);
            world.run(&format!("manifest {copy} --tag named"));
            check(&world.folder, &copy, 2, &world.versions[&version], &world.erased);
        }
        // The copy from before learns of the erasures.
        world.run("pull d before --at v1");
        check(&world.folder, "before", 2, &world.versions[&1], &world.erased);
        let copied = world.versions[&1].list.iter().map(|record| record.1.clone());
        let left: Vec<String> = copied.filter(|id| !world.erased.contains(id)).collect();
        let more: Vec<String> = left.iter().step_by(3).map(|id| format!("{id};")).collect();
        world.run(&format!("erase copy-1 {} --all-versions", more.join(" ")));
        let erased = world.erased.iter().cloned().chain(left.iter().step_by(3).cloned()).collect();
        check(&world.folder, "copy-1", 1, &world.versions[&1], &erased);
        world.run("vacuum before --retain 0 --force");
        world.run("verify before --read-data");
    }
}

/// A replay leaves out records by number or position; nothing else moves, and a step may be empty.
#[test]
fn records_that_are_left_out_are_holes() {
    let mut world = World::new("--to tar", 3);
    world.convert(60);
    world.note();
    let snapshot = open(&world.folder, "d", 1);
    let whole = steps_of(&Loader::open(&snapshot, settings()).unwrap());
    let mut without = Omitted::default();
    without.positions.extend(whole[1].0.iter().map(|record| record.0));
    without.numbers.extend([whole[0].0[2].1.0, whole[3].0[0].1.0, 1_000_000]);
    let gone = |(position, (number, _)): &(u64, Listed)| {
        without.positions.contains(position) || without.numbers.contains(number)
    };
    let mut expected = whole.clone();
    expected.iter_mut().for_each(|step| step.0.retain(|record| !gone(record)));
    assert!(expected[1].0.is_empty() && expected[0].0.len() == 11);
    let loader = Loader::open(&snapshot, LoaderSettings { without: without.clone(), ..settings() }).unwrap();
    assert_eq!(steps_of(&loader), expected);
}

/// An erasure deletes the shards that a running loader reads: it ends with an error that says so.
#[test]
fn a_running_loader_says_that_records_were_erased() {
    for format in ["--to parquet", "--to tar"] {
        let mut world = World::new(format, 4);
        world.convert(300);
        let mut fresh = settings();
        fresh.memory = 4 << 20;
        let loader = Loader::open(&open(&world.folder, "d", 1), fresh).unwrap();
        let mut batches = loader.start(0, 0).unwrap();
        batches.next().unwrap().unwrap();
        drop(batches);
        for person in 0..9 {
            world.run(&format!("erase d --subject P{person} --all-versions"));
            if person == 0 {
                let error = loader.start(1, 0).unwrap().find_map(Result::err).unwrap();
                assert!(
                    error.message().contains("erased from all versions while the loader ran, by version v2"),
                    "{error}"
                );
                assert!(error.message().contains("(epoch 1, step "), "{error}");
                assert!(error.hints().iter().any(|hint| hint.contains("erased=\"skip\"")), "{error}");
            }
        }
        // Nobody is left.
        let error = Loader::open(&open(&world.folder, "d", 1), settings()).err().unwrap();
        assert!(error.message().contains("all were erased"), "{error}");
    }
}

/// Records whose sizes differ too much for the memory are an error that names the shard.
#[test]
fn windows_that_are_too_large_name_the_shard() {
    let folder = Folder::new();
    let rows = |records: usize, bytes: usize| {
        let row = |number: usize| format!("r-{number:04}-{bytes};,{}\n", "n".repeat(bytes));
        (0..records).map(row).fold("id,note\n".to_owned(), |text, row| text + &row)
    };
    folder.write("small.csv", rows(4000, 10));
    folder.write("large.csv", rows(400, 60_000));
    folder.run("convert small.csv --out d --to tar --id id").ok();
    folder.run("convert large.csv --out d --to tar --id id").ok();
    let snapshot = open(&folder, "d", 0);
    let large = &snapshot.live_shards().unwrap().last().unwrap().path;
    let listed =
        |memory| LoaderSettings { shuffle: false, lanes: None, window: None, block: Some(25), memory, ..settings() };
    let refused = Loader::open(&snapshot, listed(1000)).unwrap_err();
    let needed: u64 = refused.message().split(' ').find_map(|word| word.parse().ok()).unwrap();
    let mut batches = Loader::open(&snapshot, listed(needed)).unwrap().start(0, 0).unwrap();
    let error = batches.find_map(Result::err).unwrap();
    assert!(error.message().contains("found a shard with records of 6"), "{error}");
    assert!(error.place().source.as_ref().unwrap().ends_with(large.as_str()), "{error}");
    assert!(error.hints().iter().any(|hint| hint.contains("more memory")), "{error}");
}
