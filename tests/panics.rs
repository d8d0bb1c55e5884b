//! A bug in the middle of a run: whoever is told of events panics, at each event of a conversion in turn.
//!
//! The run ends, neither waiting for ever nor with success; nothing is committed; the same command then does all of it.
//! The program itself panics where no thread can be started, and says so as a failure like others.
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
        convert::{ConvertOptions, convert_sources},
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
        memory: Size::from_mib(16),
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
        let done = catch_unwind(AssertUnwindSafe(|| convert_sources(&context, &dataset, &options)));
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

/// Runs the program where no thread starts: no system has the memory for stacks of this size.
fn without_threads(folder: &Folder, arguments: &[&str]) -> std::process::Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_shardify"))
        .args(arguments)
        .current_dir(folder.path())
        .env("RUST_MIN_STACK", (1_u64 << 60).to_string())
        .env("RUST_BACKTRACE", "full")
        .output()
        .unwrap()
}

#[test]
fn a_refused_thread_is_no_bug_but_a_lack_of_resources() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("in.csv"), "id\n1\n").unwrap();
    let ran = without_threads(&folder, &["convert", "in.csv"]);
    let told = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(5), "{told}");
    let lines: Vec<&str> = told.lines().collect();
    let [error, hint] = lines[..] else { panic!("expected an error and a hint: {told}") };
    assert_eq!(error, "error: the system refused to start a thread");
    assert!(hint.contains("--jobs 1"), "{told}");
    assert!(!folder.path().join("shards/_shardify/log").exists(), "nothing is committed");
    let ran = without_threads(&folder, &["convert", "in.csv", "--json"]);
    assert_eq!(ran.status.code(), Some(5));
    let object: serde_json::Value = serde_json::from_slice(&ran.stderr).unwrap();
    assert!(ran.stdout.is_empty(), "an error is no answer");
    assert_eq!((&object["type"], &object["code"]), (&"error".into(), &5.into()), "{object}");
    folder.run("convert in.csv").ok();
}

/// Whoever reads the completions may stop before their end, and a disk may be full.
#[test]
fn completions_that_cannot_be_written_are_no_bug() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_shardify"));
    let ran = program.args(["completions", "bash"]).stdout(full).output().unwrap();
    assert_eq!(ran.status.code(), Some(5), "{}", String::from_utf8_lossy(&ran.stderr));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = program.stdout(writer).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
}
