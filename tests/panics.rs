//! A bug in the middle of a run: whoever is told of events panics, at each event of a conversion in turn.
//!
//! The run ends, neither waiting for ever nor with success; nothing is committed; the same command then does all of it.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

#[expect(dead_code, reason = "these tests use a part of it")]
mod support;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use shardify::{
    error::Kind,
    events::{Cancel, Event, Observer},
    format::OutputFormat,
    ops::{
        Context,
        convert::{ConvertOptions, convert},
    },
    storage::{Location, StoreSettings},
    units::Size,
};
use support::Folder;

/// Panics at one event.
struct Fragile {
    seen: AtomicUsize,
    at: usize,
}

impl Observer for Fragile {
    fn event(&self, _: Event) {
        let number = self.seen.fetch_add(1, Ordering::Relaxed);
        assert_ne!(number, self.at, "a bug on purpose");
    }
}

/// Converts `in.csv`; how it ended, and how many events there were.
fn run(folder: &Folder, to: OutputFormat, at: usize) -> (Option<Result<u64, Kind>>, usize) {
    let observer: &'static Fragile = Box::leak(Box::new(Fragile { seen: AtomicUsize::new(0), at }));
    let context = Context {
        folder: folder.path().to_owned(),
        settings: StoreSettings::default(),
        stdin: || Box::new(std::io::empty()),
        jobs: 2,
        memory: Size::mib(16),
        id_key: None,
        observer,
        cancel: Cancel::default(),
    };
    let dataset = Location::parse("ds", folder.path()).unwrap();
    let options = ConvertOptions {
        sources: vec!["in.csv".into()],
        to: Some(to),
        target_shard: Some(Size(256 << 10)),
        ..ConvertOptions::default()
    };
    let (ended, wait) = mpsc::channel();
    std::thread::spawn(move || {
        let done = catch_unwind(AssertUnwindSafe(|| convert(&context, &dataset, &options)));
        let done = done.ok().map(|done| done.map(|report| report.counts.records_out).map_err(|e| e.kind()));
        // Nobody waits where the test has given up.
        let _ = ended.send(done);
    });
    let done = wait.recv_timeout(Duration::from_secs(60));
    let done = done.unwrap_or_else(|_| panic!("{to}: a panic at event {at} did not end the run within a minute"));
    (done, observer.seen.load(Ordering::Relaxed))
}

fn ends_wherever_it_panics(to: OutputFormat, rows: u64) {
    let folder = Folder::new();
    let text: String = (0..rows).map(|i| format!("{i},text of row {i}\n")).collect();
    std::fs::write(folder.path().join("in.csv"), format!("id,text\n{text}")).unwrap();
    let log = folder.path().join("ds/_shardify/log");
    let (done, events) = run(&folder, to, usize::MAX);
    assert_eq!(done, Some(Ok(rows)));
    assert!(events > 8, "{events}");
    std::fs::remove_dir_all(folder.path().join("ds")).unwrap();
    for at in (0..events).step_by(events.div_ceil(24)) {
        let (done, _) = run(&folder, to, at);
        // Threads finish in another order each time, so the last events may come after the commit, or not at all.
        match done {
            None | Some(Err(Kind::Internal)) => {
                let versions = std::fs::read_dir(&log).map_or(0, Iterator::count);
                assert_eq!(versions, 0, "{to}: committed although it panicked at event {at}");
            }
            Some(Ok(_)) => {
                assert!(at + 3 > events, "{to}: event {at} of {events}");
                std::fs::remove_dir_all(folder.path().join("ds")).unwrap();
            }
            Some(Err(kind)) => panic!("{to}: a panic at event {at} is blamed on {kind:?}"),
        }
    }
    assert_eq!(run(&folder, to, usize::MAX).0, Some(Ok(rows)));
}

#[test]
fn a_conversion_to_parquet_ends_wherever_it_panics() {
    ends_wherever_it_panics(OutputFormat::Parquet, 60_000);
}

#[test]
fn a_conversion_to_tar_ends_wherever_it_panics() {
    ends_wherever_it_panics(OutputFormat::Tar, 3_000);
}

#[test]
fn a_conversion_to_tfrecord_ends_wherever_it_panics() {
    ends_wherever_it_panics(OutputFormat::TfRecord, 20_000);
}
