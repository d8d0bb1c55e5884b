//! Compactions that meet others, damage, and limits: what can be committed is, and nothing is left behind.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

use std::{
    collections::BTreeSet,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use shardify::{
    error::Kind,
    events::{Cancel, Event, Observer, Silent},
    format::OutputFormat,
    ops::{
        Context,
        compact::{CompactReport, Options, ProofLevel, compact_dataset},
        convert::{ConvertOptions, convert_sources},
        verify::verify_dataset,
    },
    storage::{Location, StoreSettings},
    units::Size,
};

fn context<'a>(folder: &Path, observer: &'a dyn Observer) -> Context<'a> {
    Context {
        folder: folder.to_owned(),
        settings: StoreSettings::default(),
        stdin: || Box::new(std::io::empty()),
        jobs: 1,
        memory: Size::from_mib(64),
        id_key: None,
        observer,
        cancel: Cancel::default(),
    }
}

/// Twelve conversions of 100 records each, so many shards.
fn dataset(folder: &Path, to: OutputFormat) -> Location {
    let out = Location::from_local_path(&folder.join("ds")).unwrap();
    for k in 0..12 {
        let name = format!("{k}.csv");
        let rows: String = (0..100).map(|i| format!("t{k}r{i},{i}\n")).collect();
        std::fs::write(folder.join(&name), format!("id,x\n{rows}")).unwrap();
        let options =
            ConvertOptions { sources: vec![name], to: Some(to), id: vec!["id".into()], ..ConvertOptions::default() };
        convert_sources(&context(folder, &Silent), &out, &options).unwrap();
    }
    out
}

/// Files of shards below the dataset that the newest version does not name.
fn strays(context: &Context<'_>, out: &Location, inputs: &BTreeSet<String>) -> Vec<String> {
    let dataset = context.open_dataset(out).unwrap();
    let live: BTreeSet<String> =
        dataset.open_newest().unwrap().live_shards().unwrap().iter().map(|shard| shard.path.clone()).collect();
    let all = dataset.store().list_folder("").unwrap().into_iter().map(|object| object.path);
    let is_shard = |path: &str| {
        [".tar", ".parquet", ".tfrecord"].iter().any(|end| path.ends_with(end))
            && !path.contains("/READ-LIVE-SHARDS-ONLY.")
    };
    all.filter(|path| {
        let staged = path.starts_with("_shardify/staging");
        staged || (!path.starts_with('_') && is_shard(path) && !live.contains(path) && !inputs.contains(path))
    })
    .collect()
}

fn live(context: &Context<'_>, out: &Location) -> BTreeSet<String> {
    let snapshot = context.open_dataset(out).unwrap().open_newest().unwrap();
    snapshot.live_shards().unwrap().iter().map(|shard| shard.path.clone()).collect()
}

/// Merges of three or four shards each.
fn options(context: &Context<'_>, out: &Location) -> Options {
    let snapshot = context.open_dataset(out).unwrap().open_newest().unwrap();
    let bytes = snapshot.entry().totals.bytes;
    Options { target_shard: Some(Size(bytes / 3)), min_inputs: Some(2), ..Options::default() }
}

/// Runs another compaction when the first shard of this one is finished.
struct Meddler<'a> {
    folder: &'a Path,
    out: &'a Location,
    options: Options,
    done: AtomicBool,
}

impl Observer for Meddler<'_> {
    fn event(&self, event: Event) {
        if matches!(event, Event::Shard { .. }) && !self.done.swap(true, Ordering::SeqCst) {
            let report = compact_dataset(&context(self.folder, &Silent), self.out, &self.options).unwrap();
            assert!(report.counts.shards_added > 0);
        }
    }
}

#[test]
fn merges_whose_shards_are_gone_are_left_out_and_the_rest_is_committed() {
    for to in [OutputFormat::Tar, OutputFormat::Parquet] {
        for (window, left) in [("v2", true), ("v12", false)] {
            let folder = tempfile::tempdir().unwrap();
            let out = dataset(folder.path(), to);
            let plain = context(folder.path(), &Silent);
            let inputs = live(&plain, &out);
            let wide = options(&plain, &out);
            let narrow = Options {
                until: Some(window.to_owned()),
                target_shard: Some(Size(wide.target_shard.unwrap().0 * 3)),
                ..wide.clone()
            };
            let meddler = Meddler { folder: folder.path(), out: &out, options: narrow, done: AtomicBool::new(false) };
            let ran = compact_dataset(&context(folder.path(), &meddler), &out, &wide);
            if left {
                let CompactReport { counts, groups_dropped, version, .. } = ran.unwrap();
                assert_eq!((groups_dropped, counts.shards_added, version.0), (1, 2, 14), "{to}");
            } else {
                assert_eq!(ran.unwrap_err().kind(), Kind::Conflict);
            }
            assert_eq!(strays(&plain, &out, &inputs), Vec::<String>::new());
            let verified = verify_dataset(&plain, &out, None, true).unwrap();
            assert!(verified.problems.is_empty(), "{:?}", verified.problems);
            assert_eq!(plain.open_dataset(&out).unwrap().open_newest().unwrap().entry().totals.records, 1_200);
        }
    }
}

#[test]
fn damage_stops_its_own_merge_only_and_leaves_nothing_behind() {
    for to in [OutputFormat::Tar, OutputFormat::TfRecord, OutputFormat::Parquet] {
        let folder = tempfile::tempdir().unwrap();
        let out = dataset(folder.path(), to);
        let plain = context(folder.path(), &Silent);
        let inputs = live(&plain, &out);
        let shard = folder.path().join("ds").join(inputs.iter().nth(5).unwrap());
        let mut bytes = std::fs::read(&shard).unwrap();
        bytes[700] ^= 1;
        std::fs::write(&shard, bytes).unwrap();
        let error = compact_dataset(&plain, &out, &options(&plain, &out)).unwrap_err();
        assert!(matches!(error.kind(), Kind::Integrity | Kind::Input), "{to}: {error:?}");
        assert!(error.hints().iter().any(|hint| hint.contains("v13")), "{error:?}");
        let left = live(&plain, &out);
        assert!(left.len() < 12 && left.len() > 3, "{left:?}");
        assert_eq!(strays(&plain, &out, &inputs), Vec::<String>::new());
        assert_eq!(plain.open_dataset(&out).unwrap().open_newest().unwrap().entry().totals.records, 1_200);
    }
}

#[test]
fn bounded_runs_take_small_steps_to_the_same_end() {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path(), OutputFormat::Tar);
    let plain = context(folder.path(), &Silent);
    let wide = options(&plain, &out);
    let bounded = Options { max_bytes: Some(Size(wide.target_shard.unwrap().0 * 3 / 2)), ..wide.clone() };
    let mut runs = 0;
    while compact_dataset(&plain, &out, &bounded).unwrap().counts.shards_added == 1 {
        runs += 1;
    }
    assert!(runs > 1, "{runs}");
    assert_eq!(compact_dataset(&plain, &out, &wide).unwrap().counts.shards_added, 0);
    assert!(verify_dataset(&plain, &out, None, true).unwrap().problems.is_empty());
}

#[test]
fn a_full_proof_finds_nothing_in_what_is_right() {
    for to in [OutputFormat::Tar, OutputFormat::TfRecord, OutputFormat::Parquet] {
        let folder = tempfile::tempdir().unwrap();
        let out = dataset(folder.path(), to);
        let plain = context(folder.path(), &Silent);
        let full = Options { proof: ProofLevel::Full, ..options(&plain, &out) };
        assert_eq!(compact_dataset(&plain, &out, &full).unwrap().counts.shards_added, 3, "{to}");
        assert!(verify_dataset(&plain, &out, None, true).unwrap().problems.is_empty());
    }
}
