//! Batches against an oracle that reads whole shards with other code, in orders that are computed turn by turn.

use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use arrow::{
    array::{Array, ArrayRef, LargeBinaryArray, RecordBatch, StringArray, UInt64Array},
    compute::{concat_batches, take},
    datatypes::{DataType, SchemaRef},
};

use super::{LoadedBatch, Loader, LoaderSettings, Records, join_batches};
use crate::{
    codec::stream::open_shard_decoder,
    dataset::{Dataset, ShardMeta, Snapshot, numbered_rows},
    error::{Error, Kind, Result},
    format::{OutputFormat, parquet},
    order::{EpochOrder, OrderParameters, Remainder, StepLayout},
    storage::{self, Location, StoreSettings},
};

const ALL: [&str; 14] = [
    "adopted",
    "compacted",
    "erased",
    "parquet",
    "parquet-samples",
    "pulled",
    "shuffled",
    "sorted",
    "split",
    "tar",
    "tar-gzip",
    "tar-zst",
    "tfrecord",
    "tfrecord-gzip",
];

/// The datasets of `testdata/load/datasets.tar.gz`, unpacked.
struct Folder(tempfile::TempDir);

impl Folder {
    fn unpack() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/load/datasets.tar.gz");
        let unpacked = flate2::read::GzDecoder::new(std::fs::File::open(archive).unwrap());
        tar::Archive::new(unpacked).unpack(folder.path()).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self, name: &str) -> Snapshot {
        let location = Location::from_local_path(&self.path(name)).unwrap();
        let store = storage::open_store(&location, &StoreSettings::default()).unwrap();
        Dataset::new(store).open_newest().unwrap()
    }
}

fn settings(batch: u64) -> LoaderSettings {
    LoaderSettings { global_batch_size: batch, seed: 3, threads: 2, ..LoaderSettings::default() }
}

/// Small blocks and windows, so that there are many.
fn small(batch: u64) -> LoaderSettings {
    LoaderSettings { block: Some(5), lanes: Some(4), window: Some(17), ..settings(batch) }
}

fn loader(snapshot: &Snapshot, settings: &LoaderSettings) -> Loader {
    Loader::open(snapshot, settings.clone()).unwrap()
}

fn all_of(loader: &Loader, epoch: u64, first_step: u64) -> Vec<LoadedBatch> {
    loader.start(epoch, first_step).unwrap().map(Result::unwrap).collect()
}

/// All records by position, and their numbers.
struct Oracle {
    numbers: Vec<u64>,
    records: RecordBatch,
}

impl Oracle {
    fn read(snapshot: &Snapshot, schema: &SchemaRef, split: Option<&str>) -> Self {
        let (mut numbers, mut batches) = (Vec::new(), Vec::new());
        let runs = snapshot.runs_by_shard().unwrap();
        let store = snapshot.dataset().store();
        let is_chosen = |shard: &&ShardMeta| split.is_none_or(|split| shard.path.contains(&format!("split={split}/")));
        for shard in snapshot.live_shards().unwrap().iter().filter(is_chosen) {
            let rows = numbered_rows(store, &runs[shard.path.as_str()], snapshot.run_table().unwrap()).unwrap();
            let rows: Vec<u64> = rows.map(|row| row.unwrap().unwrap().record).collect();
            let records = read_shard(snapshot, shard, schema);
            assert_eq!(rows.len(), records.num_rows());
            numbers.extend(rows);
            batches.push(records);
        }
        Self { numbers, records: concat_batches(schema, &batches).unwrap() }
    }

    /// Compares a batch with the records at its positions.
    fn check(&self, batch: &LoadedBatch) {
        let positions = UInt64Array::from(batch.positions.clone());
        for (found, all) in batch.columns.columns().iter().zip(self.records.columns()) {
            assert_eq!(found, &take(all, &positions, None).unwrap());
            assert_eq!(found.offset(), 0);
        }
        let numbers = batch.positions.iter().map(|at| self.numbers[usize::try_from(*at).unwrap()]);
        assert_eq!(batch.numbers, numbers.collect::<Vec<_>>());
        assert_eq!((batch.columns.num_rows(), batch.expected), (batch.numbers.len(), batch.numbers.len() as u64));
    }
}

fn read_shard(snapshot: &Snapshot, shard: &ShardMeta, schema: &SchemaRef) -> RecordBatch {
    let object = snapshot.dataset().object_at(&shard.path, shard.bytes);
    let mut bytes = Vec::new();
    let format = snapshot.entry().settings.shard_format;
    if format == OutputFormat::Parquet {
        let batches = parquet::open(object, &shard.path).unwrap().into_batches(1000);
        let batches: Vec<RecordBatch> = batches.map(Result::unwrap).collect();
        let column = |name: &String| Arc::clone(batches[0].column_by_name(name).unwrap());
        assert_eq!(batches.len(), 1);
        let columns = schema.fields().iter().map(|field| column(field.name())).collect();
        return RecordBatch::try_new(Arc::clone(schema), columns).unwrap();
    }
    open_shard_decoder(shard.codec, object.read().unwrap()).unwrap().read_to_end(&mut bytes).unwrap();
    let columns = if format == OutputFormat::Tar { samples_of(&bytes, schema) } else { vec![examples_of(&bytes)] };
    RecordBatch::try_new(Arc::clone(schema), columns).unwrap()
}

/// A key, and files by extension.
type FoundSample = (String, Vec<(String, Vec<u8>)>);

fn samples_of(bytes: &[u8], schema: &SchemaRef) -> Vec<ArrayRef> {
    let mut samples: Vec<FoundSample> = Vec::new();
    for entry in tar::Archive::new(bytes).entries().unwrap() {
        let mut entry = entry.unwrap();
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let base = path.rfind('/').map_or(0, |slash| slash + 1);
        let (name, extension) = path[base..].split_once('.').unwrap();
        let key = format!("{}{name}", &path[..base]);
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        if samples.last().is_none_or(|last| last.0 != key) {
            samples.push((key, Vec::new()));
        }
        samples.last_mut().unwrap().1.push((extension.to_owned(), content));
    }
    let column = |name: &String| -> ArrayRef {
        if name == "__key__" {
            return Arc::new(StringArray::from_iter_values(samples.iter().map(|sample| &sample.0)));
        }
        let part = |sample: &FoundSample| sample.1.iter().find(|part| part.0 == *name).map(|part| part.1.clone());
        Arc::new(samples.iter().map(part).collect::<LargeBinaryArray>())
    };
    schema.fields().iter().map(|field| column(field.name())).collect()
}

fn examples_of(mut bytes: &[u8]) -> ArrayRef {
    let mut found = Vec::new();
    while let Some((length, _)) = bytes.split_first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap();
        found.push(&bytes[12..12 + length]);
        bytes = &bytes[16 + length..];
    }
    Arc::new(LargeBinaryArray::from_iter_values(found))
}

/// Returns the positions of each step of a rank, turn by turn.
fn expected_steps(loader: &Loader, settings: &LoaderSettings, epoch: u64) -> Vec<Vec<u64>> {
    let facts = loader.facts();
    let parameters = OrderParameters {
        records: facts.records,
        block: facts.block,
        lanes: facts.lanes,
        window: facts.window,
        seed: settings.seed,
        epoch,
        basis: facts.basis,
    };
    let order = EpochOrder::new(parameters).unwrap();
    let remainder = if settings.drop_last { Remainder::Dropped } else { Remainder::Delivered };
    let layout = StepLayout::new(&order, settings.global_batch_size, remainder).unwrap();
    assert_eq!((facts.steps_per_epoch, facts.dropped_per_epoch), (layout.steps(), layout.dropped()));
    let rank = layout.rank(settings.rank, settings.world_size).unwrap();
    let position = |turn: u64| if settings.shuffle { order.position_at(turn).unwrap() } else { turn };
    (0..layout.steps()).map(|step| layout.turns_of(step, rank).unwrap().map(position).collect()).collect()
}

fn positions_of(batches: &[LoadedBatch]) -> Vec<Vec<u64>> {
    batches.iter().map(|batch| batch.positions.clone()).collect()
}

/// Checks that an epoch is that of the oracle; returns the positions of its steps.
fn check_epoch(snapshot: &Snapshot, settings: &LoaderSettings, epoch: u64) -> Vec<Vec<u64>> {
    let loader = loader(snapshot, settings);
    let oracle = Oracle::read(snapshot, &loader.facts().schema, settings.split.as_deref());
    assert_eq!(loader.facts().records, oracle.numbers.len() as u64);
    let batches = all_of(&loader, epoch, 0);
    batches.iter().for_each(|batch| oracle.check(batch));
    assert!(batches.iter().enumerate().all(|(at, batch)| (batch.epoch, batch.step) == (epoch, at as u64)));
    let found = positions_of(&batches);
    assert_eq!(found, expected_steps(&loader, settings, epoch));
    found
}

#[test]
fn every_format_has_each_record_once_in_the_computed_order() {
    let folder = Folder::unpack();
    for name in ALL {
        let snapshot = folder.open(name);
        for settings in [
            LoaderSettings { drop_last: false, ..small(12) },
            LoaderSettings { drop_last: false, block: Some(1), ..small(8) },
            LoaderSettings { drop_last: false, lanes: Some(1), ..small(7) },
            LoaderSettings { drop_last: false, shuffle: false, block: Some(9), ..settings(12) },
            LoaderSettings { drop_last: false, ..settings(12) },
            small(12),
        ] {
            let steps = check_epoch(&snapshot, &settings, 2);
            let mut all: Vec<u64> = steps.into_iter().flatten().collect();
            let dropped = loader(&snapshot, &settings).facts().dropped_per_epoch;
            if !settings.shuffle {
                assert!(all.is_sorted(), "{name}");
            }
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len() as u64 + dropped, loader(&snapshot, &settings).facts().records, "{name}");
        }
    }
}

#[test]
fn columns_are_those_of_the_format() {
    let folder = Folder::unpack();
    let names = |name: &str| {
        let facts = loader(&folder.open(name), &small(4)).facts();
        let field = |field: &Arc<arrow::datatypes::Field>| format!("{} {}", field.name(), field.data_type());
        facts.schema.fields().iter().map(field).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(names("tar"), "__key__ Utf8, cls LargeBinary, seg.png LargeBinary, txt LargeBinary");
    assert_eq!(names("tfrecord"), "record LargeBinary");
    assert_eq!(names("compacted"), "__key__ Utf8, json LargeBinary");
    assert_eq!(names("parquet"), "id Int64, person Utf8, name Utf8, value Float64, day Date32");
    let chosen = |columns: &[&str]| columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>();
    for (name, columns) in
        [("tar", chosen(&["txt", "__key__"])), ("tar", chosen(&["seg.png"])), ("parquet", chosen(&["value", "id"]))]
    {
        let settings = LoaderSettings { columns: Some(columns.clone()), ..small(4) };
        check_epoch(&folder.open(name), &settings, 0);
        let schema = loader(&folder.open(name), &settings).facts().schema;
        assert_eq!(schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>(), columns);
    }
    for (name, columns) in [("tar", chosen(&["jpg"])), ("tfrecord", chosen(&["id"])), ("parquet", chosen(&["x"]))] {
        let error =
            Loader::open(&folder.open(name), LoaderSettings { columns: Some(columns), ..small(4) }).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{error}");
    }
}

#[test]
fn ranks_share_the_steps_of_one() {
    let folder = Folder::unpack();
    for (name, base) in
        [("tar", small(12)), ("parquet", settings(12)), ("tfrecord", LoaderSettings { shuffle: false, ..small(12) })]
    {
        let base = LoaderSettings { drop_last: false, ..base };
        let snapshot = folder.open(name);
        let whole = check_epoch(&snapshot, &base, 1);
        for world_size in [2, 3, 4, 12] {
            let of_rank = |rank| check_epoch(&snapshot, &LoaderSettings { rank, world_size, ..base.clone() }, 1);
            let ranks: Vec<Vec<Vec<u64>>> = (0..world_size).map(of_rank).collect();
            for (step, expected) in whole.iter().enumerate() {
                let joined: Vec<u64> = ranks.iter().flat_map(|rank| rank[step].clone()).collect();
                assert_eq!(&joined, expected, "{name}, step {step} of {world_size} ranks");
            }
        }
    }
}

#[test]
fn any_step_can_be_the_first() {
    let folder = Folder::unpack();
    for (name, settings) in
        [("tar-zst", small(8)), ("shuffled", LoaderSettings { rank: 1, world_size: 2, ..small(12) })]
    {
        let loader = loader(&folder.open(name), &LoaderSettings { drop_last: false, ..settings });
        let whole = positions_of(&all_of(&loader, 5, 0));
        for first in 0..=whole.len() {
            let rest = all_of(&loader, 5, first as u64);
            assert!(rest.iter().zip(first..).all(|(batch, step)| batch.step == step as u64));
            assert_eq!(positions_of(&rest), whole[first..], "{name} from step {first}");
        }
        assert_eq!(loader.start(5, whole.len() as u64 + 1).unwrap_err().kind(), Kind::Usage);
    }
}

/// The next epoch is read while the last batches of one are taken, is the one that is asked for, and ends with the
/// loader or with who leaves.
#[test]
fn the_next_epoch_is_read_ahead() {
    let folder = Folder::unpack();
    for name in ["tar", "parquet"] {
        let settings = LoaderSettings { drop_last: false, ..small(8) };
        let loader = loader(&folder.open(name), &settings);
        let wait_for_ahead = || {
            let begun = Instant::now();
            while !loader.has_ahead() && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            loader.has_ahead()
        };
        for epoch in 0..4 {
            let mut batches = loader.start(epoch, 0).unwrap();
            let found: Vec<LoadedBatch> = batches.by_ref().map(Result::unwrap).collect();
            assert_eq!(positions_of(&found), expected_steps(&loader, &settings, epoch), "{name} {epoch}");
            assert!(wait_for_ahead(), "{name} {epoch}");
        }
        // Another epoch than the next one.
        assert_eq!(positions_of(&all_of(&loader, 9, 3)), expected_steps(&loader, &settings, 9)[3..]);
        assert!(wait_for_ahead());
        let mut batches = loader.start(2, 0).unwrap();
        assert!(!loader.has_ahead());
        let steps = usize::try_from(loader.facts().steps_per_epoch).unwrap();
        assert_eq!(batches.by_ref().take(steps - 1).filter(Result::is_ok).count(), steps - 1);
        drop(batches);
        assert!(!loader.has_ahead());
        assert_eq!(all_of(&loader, 5, 0).len(), steps);
    }
}

/// Processes that share an epoch have its steps together, and none reads what only others need.
#[test]
fn every_so_manyth_step_is_that_of_the_epoch() {
    let folder = Folder::unpack();
    for (name, settings) in [
        ("tar", small(8)),
        ("parquet", LoaderSettings { shuffle: false, block: Some(4), ..settings(12) }),
        ("tfrecord-gzip", LoaderSettings { rank: 2, world_size: 6, ..small(12) }),
    ] {
        let loader = loader(&folder.open(name), &LoaderSettings { drop_last: false, ..settings.clone() });
        let whole = positions_of(&all_of(&loader, 1, 0));
        for stride in [1, 2, 3, 7, 1000] {
            for first in 0..stride.min(whole.len() as u64 + 2) {
                let mut batches = loader.start_every(1, first, stride).unwrap();
                let found: Vec<LoadedBatch> = batches.by_ref().map(Result::unwrap).collect();
                let steps = (first..whole.len() as u64).step_by(usize::try_from(stride).unwrap());
                assert!(found.iter().map(|batch| batch.step).eq(steps.clone()), "{name} {first} {stride}");
                let expected: Vec<_> = steps.map(|step| whole[usize::try_from(step).unwrap()].clone()).collect();
                assert_eq!(positions_of(&found), expected);
                assert_eq!((batches.stats().memory_now, batches.stats().steps), (0, found.len() as u64));
                if !settings.shuffle && stride == 7 {
                    // A step needs three blocks, and each may be in two shards.
                    assert!(batches.stats().requests <= 4 * found.len() as u64, "{:?}", batches.stats());
                }
            }
        }
        assert_eq!(loader.start_every(1, 0, 0).unwrap_err().kind(), Kind::Usage);
    }
}

#[test]
fn a_split_is_loaded_alone() {
    let folder = Folder::unpack();
    let snapshot = folder.open("split");
    let of_split = |split: &str| LoaderSettings { split: Some(split.to_owned()), drop_last: false, ..small(4) };
    let records = ["train", "test"].map(|split| {
        check_epoch(&snapshot, &of_split(split), 0);
        loader(&snapshot, &of_split(split)).facts().records
    });
    assert_eq!(records.iter().sum::<u64>(), 300);
    assert!(records.iter().all(|records| *records > 20));
    let error = Loader::open(&snapshot, of_split("dev")).unwrap_err();
    assert!(error.kind() == Kind::Usage && error.message().contains("test, train"), "{error}");
    assert_eq!(Loader::open(&folder.open("tar"), of_split("train")).unwrap_err().kind(), Kind::Usage);
}

/// Numbers that look random, for a seed.
fn drawn(seed: u64, count: usize, below: u64) -> Vec<u64> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..count).map(|_| draw()).collect()
}

#[test]
fn records_are_taken_by_position() {
    let folder = Folder::unpack();
    for name in ALL {
        let snapshot = folder.open(name);
        let records = Records::open(&snapshot, None, None, 3).unwrap();
        let oracle = Oracle::read(&snapshot, records.schema(), None);
        let count = records.record_count();
        assert_eq!((count, records.basis()), (oracle.numbers.len() as u64, loader(&snapshot, &small(4)).facts().basis));
        let (all, backwards): (Vec<u64>, Vec<u64>) = ((0..count).collect(), (0..count).rev().collect());
        let twice = vec![count - 1, 0, 0, count - 1];
        let chosen = (1..9).map(|seed| drawn(seed, usize::try_from(1 << seed).unwrap(), count));
        for positions in [all, backwards, twice, vec![], vec![count / 2]].into_iter().chain(chosen) {
            let batch = records.take(&positions).unwrap();
            assert_eq!(batch.positions, positions, "{name}");
            oracle.check(&batch);
        }
        let error = records.take(&[0, count]).unwrap_err();
        assert!(error.kind() == Kind::Usage && error.message().contains(&count.to_string()), "{error}");
    }
}

#[test]
fn records_near_each_other_are_one_request() {
    let folder = Folder::unpack();
    let chosen = ["txt".to_owned()];
    let requests = |name: &str, columns: Option<&[String]>, threads: usize, positions: &[u64]| {
        let records = Records::open(&folder.open(name), None, columns, threads).unwrap();
        records.take(positions).unwrap();
        records.requests()
    };
    let all: Vec<u64> = (0..20).collect();
    assert_eq!(requests("tar", Some(&chosen), 1, &all), 1);
    assert_eq!(requests("tar", Some(&chosen), 2, &[0, 2, 4]), 1);
    let snapshot = folder.open("parquet");
    let shards = u64::try_from(snapshot.live_shards().unwrap().len()).unwrap();
    let records = snapshot.live_shards().unwrap().iter().map(|shard| shard.records).sum::<u64>();
    let spread: Vec<u64> = (0..records).step_by(3).collect();
    assert_eq!(requests("parquet", None, 2, &spread), shards);
}

#[test]
fn a_record_that_is_damaged_is_an_error_with_its_place() {
    let folder = Folder::unpack();
    for name in ["tar", "parquet", "tfrecord"] {
        let snapshot = folder.open(name);
        let path = snapshot.live_shards().unwrap()[0].path.clone();
        let whole = Records::open(&snapshot, None, None, 2).unwrap();
        let all: Vec<u64> = (0..whole.record_count()).collect();
        let shard = folder.path(name).join(&path);
        let mut bytes = std::fs::read(&shard).unwrap();
        let half = bytes.len() / 2;
        bytes[half / 2..half].iter_mut().for_each(|byte| *byte ^= 0xff);
        std::fs::write(&shard, bytes).unwrap();
        let error = whole.take(&all).unwrap_err();
        assert!(error.place().source.as_deref().is_some_and(|place| place.contains(&path)), "{name}: {error}");
    }
}

#[test]
fn batches_of_datasets_are_joined() {
    let folder = Folder::unpack();
    let of = |name: &str, columns: &[&str]| {
        let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
        let snapshot = folder.open(name);
        let records = Records::open(&snapshot, None, Some(&columns), 1).unwrap();
        (Oracle::read(&snapshot, records.schema(), None), records.take(&[3, 1]).unwrap(), records.take(&[0]).unwrap())
    };
    let (tar, two, one) = of("tar", &["__key__", "txt"]);
    let (zstd, others, _) = of("tar-zst", &["__key__", "txt"]);
    let joined = join_batches(&[two, one, others]).unwrap();
    assert_eq!((joined.positions.as_slice(), joined.expected), (&[3, 1, 0, 3, 1][..], 5));
    let part = |range: std::ops::Range<usize>| LoadedBatch {
        epoch: 0,
        step: 0,
        expected: range.len() as u64,
        numbers: joined.numbers[range.clone()].to_vec(),
        positions: joined.positions[range.clone()].to_vec(),
        columns: concat_batches(&joined.columns.schema(), &[joined.columns.slice(range.start, range.len())]).unwrap(),
    };
    for (oracle, range) in [(&tar, 0..3), (&zstd, 3..5)] {
        let part = part(range);
        for (found, all) in part.columns.columns().iter().zip(oracle.records.columns()) {
            assert_eq!(found, &take(all, &UInt64Array::from(part.positions.clone()), None).unwrap());
        }
    }
    let (_, two, _) = of("tar", &["__key__"]);
    let (_, other, _) = of("tar", &["txt"]);
    let error = join_batches(&[two, other]).unwrap_err();
    assert!(error.message().contains("__key__ Utf8") && error.message().contains("txt LargeBinary"), "{error}");
    assert_eq!(join_batches(&[]).unwrap_err().kind(), Kind::Usage);
}

/// What was erased is neither at a position nor in a batch.
#[test]
fn erased_records_are_not_delivered() {
    let folder = Folder::unpack();
    let mut keys: Vec<String> = Vec::new();
    for batch in all_of(&loader(&folder.open("erased"), &LoaderSettings { drop_last: false, ..small(4) }), 0, 0) {
        let found: &StringArray = arrow::array::AsArray::as_string(batch.columns.column(0));
        keys.extend(found.iter().flatten().map(|key| key.rsplit('/').next().unwrap().to_owned()));
    }
    keys.sort_unstable();
    let erased = [5, 6, 59, 60, 100];
    let kept = (0..120).filter(|i| !erased.contains(i)).map(|i| format!("k{i:03}"));
    assert_eq!(keys, kept.collect::<Vec<_>>());
    // Of an older version, too.
    let dataset = folder.open("erased").dataset().clone();
    let older = dataset.open_version(shardify_core::id::Version(2)).unwrap();
    assert_eq!(loader(&older, &small(4)).facts().records, 115);
    check_epoch(&older, &small(4), 0);
}

/// The basis names the data, not where it is or how it came there.
#[test]
fn a_copy_has_the_basis_of_its_upstream() {
    let folder = Folder::unpack();
    let [of_copy, upstream] = ["pulled", "shuffled"].map(|name| loader(&folder.open(name), &small(4)));
    assert_eq!(of_copy.facts().basis, upstream.facts().basis);
    assert_eq!(positions_of(&all_of(&of_copy, 0, 0)), positions_of(&all_of(&upstream, 0, 0)));
    let other = loader(&folder.open("tfrecord"), &small(4));
    assert_ne!(other.facts().basis, upstream.facts().basis);
}

#[test]
fn epochs_seeds_and_threads() {
    let folder = Folder::unpack();
    let snapshot = folder.open("tar");
    let steps = |settings: &LoaderSettings, epoch| positions_of(&all_of(&loader(&snapshot, settings), epoch, 0));
    let base = steps(&small(8), 0);
    assert_ne!(base, steps(&small(8), 1));
    assert_ne!(base, steps(&LoaderSettings { seed: 4, ..small(8) }, 0));
    for threads in [0, 1, 3, 8] {
        assert_eq!(base, steps(&LoaderSettings { threads, ..small(8) }, 0));
    }
}

/// Returns the path of the first shard of a dataset.
fn first_shard(folder: &Folder, name: &str) -> PathBuf {
    folder.path(name).join(&folder.open(name).live_shards().unwrap()[0].path)
}

/// Loads an epoch in order until an error, which ends it; returns the error and the number of batches before it.
fn failure_of(snapshot: &Snapshot, settings: LoaderSettings) -> (Error, u64) {
    let loader = Loader::open(snapshot, settings).unwrap();
    let mut batches = loader.start(0, 0).unwrap();
    let mut sound = 0;
    loop {
        match batches.next() {
            Some(Ok(batch)) => {
                assert_eq!(batch.numbers.len() as u64, batch.expected);
                sound += 1;
            }
            Some(Err(error)) => {
                assert!(batches.next().is_none());
                return (error, sound);
            }
            None => panic!("expected an error"),
        }
    }
}

#[test]
fn damage_is_an_error_with_its_place_and_step() {
    let folder = Folder::unpack();
    for name in ["tar", "tar-zst", "tar-gzip", "tfrecord", "tfrecord-gzip", "parquet", "adopted"] {
        let path = first_shard(&folder, name);
        let sound = std::fs::read(&path).unwrap();
        let mut seen = 0;
        for at in (0..sound.len()).step_by(sound.len() / 23 + 1) {
            let mut damaged = sound.clone();
            damaged[at] ^= 4;
            std::fs::write(&path, &damaged).unwrap();
            let snapshot = folder.open(name);
            let opened = Loader::open(&snapshot, LoaderSettings { shuffle: false, block: Some(5), ..settings(4) });
            let Ok(loader) = opened else {
                seen += 1;
                continue;
            };
            let oracle = || {
                std::fs::write(&path, &sound).unwrap();
                Oracle::read(&folder.open(name), &loader.facts().schema, None)
            };
            match loader.start(0, 0).unwrap().collect::<Result<Vec<_>>>() {
                // A byte that no record needs, such as one of a seek table.
                Ok(batches) => batches.iter().for_each(|batch| oracle().check(batch)),
                Err(error) => {
                    seen += 1;
                    let place = error.place().source.clone().unwrap();
                    assert!(place.ends_with(path.file_name().unwrap().to_str().unwrap()), "{error}");
                    assert!(error.message().contains("(epoch 0, step "), "{error}");
                    assert_eq!(error.kind(), Kind::Integrity, "{error}");
                }
            }
        }
        assert!(seen >= 10, "{name}: {seen}");
        std::fs::write(&path, &sound).unwrap();
        check_epoch(&folder.open(name), &small(4), 0);
    }
}

#[test]
fn a_flipped_byte_of_content_names_the_record() {
    let folder = Folder::unpack();
    let path = first_shard(&folder, "tar");
    let mut bytes = std::fs::read(&path).unwrap();
    let text = b"text of 7 ";
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let settings = LoaderSettings { shuffle: false, block: Some(4), ..settings(4) };
    let (error, sound) = failure_of(&folder.open("tar"), settings);
    // Record 8 is in the second step, and a failed window fails the first step that needs it.
    assert!(error.message().starts_with("record 8: expected bytes with hash"), "{error}");
    assert!(error.message().ends_with("(epoch 0, step 1)") && error.place().byte.is_some(), "{error}");
    assert_eq!(sound, 1);
    assert!(error.hints().iter().any(|hint| hint.contains("verify")));
}

#[test]
fn cut_and_missing_shards_are_errors() {
    let folder = Folder::unpack();
    for name in ["tar", "tar-zst", "tfrecord", "parquet"] {
        let path = first_shard(&folder, name);
        let bytes = std::fs::read(&path).unwrap();
        for length in [0, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let opened = Loader::open(&folder.open(name), LoaderSettings { shuffle: false, ..small(4) });
            let error = opened.and_then(|loader| loader.start(0, 0)?.collect::<Result<Vec<_>>>());
            match error {
                // The end of a tar, and the seek table of zstd, are not read.
                Ok(batches) => assert!(length > 0 && name.starts_with("tar") && !batches.is_empty(), "{name} {length}"),
                Err(error) => assert!(error.place().source.is_some(), "{error}"),
            }
        }
        std::fs::remove_file(&path).unwrap();
        let opened = Loader::open(&folder.open(name), small(4));
        let error = opened.and_then(|loader| loader.start(0, 0)?.collect::<Result<Vec<_>>>()).unwrap_err();
        assert!(error.place().source.is_some(), "{error}");
    }
}

#[test]
fn memory_that_does_not_suffice_is_refused_with_what_does() {
    let folder = Folder::unpack();
    let snapshot = folder.open("tar");
    let error = Loader::open(&snapshot, LoaderSettings { memory: 100_000, ..small(8) }).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    let needed: u64 = error.message().split(' ').find_map(|word| word.parse().ok()).unwrap();
    assert!(error.hints()[0].contains("a window of"), "{:?}", error.hints());
    let settings = LoaderSettings { memory: needed, drop_last: false, ..small(8) };
    check_epoch(&snapshot, &settings, 0);
    let loader = loader(&snapshot, &settings);
    let mut batches = loader.start(0, 0).unwrap();
    while batches.next().is_some() {}
    // Records of this dataset differ in size by a factor of two.
    assert!(batches.stats().memory_peak <= 2 * needed, "{:?} {needed}", batches.stats());
    assert_eq!(batches.stats().samples, 120);
    assert!(Loader::open(&snapshot, LoaderSettings { memory: needed - 1, ..small(8) }).is_err());
}

#[test]
fn a_consumer_may_stop_at_any_time() {
    let folder = Folder::unpack();
    let loader = loader(&folder.open("tar"), &small(4));
    let begun = Instant::now();
    for taken in 0..loader.facts().steps_per_epoch {
        let mut batches = loader.start(0, 0).unwrap();
        assert_eq!(batches.by_ref().take(usize::try_from(taken).unwrap()).count() as u64, taken);
        drop(batches);
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    let mut batches = loader.start(0, 0).unwrap();
    let mut found = 0;
    while let Some(batch) = loop {
        if let Some(batch) = batches.next_within(Duration::from_micros(50)) {
            break batch;
        }
    } {
        found += batch.unwrap().numbers.len() as u64;
    }
    assert_eq!(found, batches.stats().samples);
    assert!(batches.next_within(Duration::ZERO).is_some_and(|end| end.is_none()));
    assert_eq!(batches.stats().memory_now, 0);
}

#[test]
fn impossible_settings_are_refused() {
    let folder = Folder::unpack();
    let snapshot = folder.open("tar");
    for settings in [
        LoaderSettings { global_batch_size: 0, ..small(4) },
        LoaderSettings { world_size: 3, ..small(4) },
        LoaderSettings { world_size: 0, ..small(4) },
        LoaderSettings { rank: 2, world_size: 2, ..small(4) },
        LoaderSettings { lanes: Some(3), ..small(4) },
        LoaderSettings { lanes: Some(0), ..small(4) },
        LoaderSettings { block: Some(0), ..small(4) },
        LoaderSettings { window: Some(0), ..small(4) },
        LoaderSettings { columns: Some(Vec::new()), ..small(4) },
        LoaderSettings { lanes: Some(128), ..small(128) },
    ] {
        let error = Loader::open(&snapshot, settings.clone()).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{settings:?}: {error}");
    }
    assert_eq!(all_of(&loader(&snapshot, &small(124)), 0, 0).len(), 0);
}

#[test]
fn loaders_are_shared_between_threads() {
    fn is_shared<T: Send + Sync + Clone>() {}
    fn is_sent<T: Send>() {}
    is_shared::<Loader>();
    is_sent::<super::Batches>();
    assert!(DataType::LargeBinary.primitive_width().is_none());
}

/// With as little memory as is accepted, each window is freed before the next one fits; nothing may wait forever.
#[test]
fn any_settings_with_little_memory_reach_the_end() {
    let folder = Folder::unpack();
    let snapshots = ["tar", "tar-zst", "tfrecord", "parquet", "shuffled"].map(|name| folder.open(name));
    let mut state = 5_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for turn in 0..60 {
        let snapshot = &snapshots[turn % snapshots.len()];
        let lanes = 1 << random(4);
        let world_size = [1, 2, 3, 4][usize::try_from(random(4)).unwrap()];
        let mut settings = LoaderSettings {
            global_batch_size: lanes * world_size * (1 + random(3)),
            rank: random(world_size),
            world_size,
            block: Some(1 + random(30)),
            lanes: Some(lanes),
            window: Some(1 + random(60)),
            threads: usize::try_from(1 + random(3)).unwrap(),
            drop_last: random(2) == 0,
            shuffle: random(5) > 0,
            memory: 1000 + random(20_000),
            ..settings(1)
        };
        if let Err(error) = Loader::open(snapshot, settings.clone()) {
            let number = |text: &str| text.split(' ').find_map(|word| word.parse().ok());
            let needed: u64 = number(error.message()).unwrap();
            if let Some(fits) = number(&error.hints()[0]).filter(|_| settings.shuffle) {
                let smaller = LoaderSettings { window: Some(fits), ..settings.clone() };
                assert!(Loader::open(snapshot, smaller).is_ok());
            }
            settings.memory = needed + random(2) * random(needed);
        }
        let loader = loader(snapshot, &settings);
        let expected = expected_steps(&loader, &settings, turn as u64);
        let first = random(expected.len() as u64 + 1);
        let mut batches = loader.start(turn as u64, first).unwrap();
        for positions in expected.iter().skip(usize::try_from(first).unwrap()) {
            let batch = batches.next_within(Duration::from_secs(60)).unwrap_or_else(|| panic!("waits: {settings:?}"));
            assert_eq!(&batch.unwrap().unwrap().positions, positions, "{settings:?}");
        }
        assert!(batches.next().is_none());
        assert!(batches.stats().memory_peak <= 3 * settings.memory, "{settings:?} {:?}", batches.stats());
    }
}

/// The test data has both ways in which a version states record numbers.
#[test]
fn shuffled_and_sorted_shards_have_tables_of_numbers() {
    let folder = Folder::unpack();
    for (name, expected) in [("shuffled", true), ("sorted", true), ("compacted", false)] {
        let snapshot = folder.open(name);
        let runs = snapshot.runs_by_shard().unwrap();
        assert_eq!(runs.values().flatten().any(|run| run.scattered.is_some()), expected, "{name}");
        let numbers: Vec<u64> =
            all_of(&loader(&snapshot, &small(4)), 0, 0).iter().flat_map(|b| b.numbers.clone()).collect();
        assert!(!numbers.is_sorted());
    }
}
