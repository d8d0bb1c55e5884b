//! `bench`: what is counted is what was read, before and after.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use serde_json::Value;
use support::Folder;

fn runs(folder: &Folder, arguments: &str) -> (Vec<Value>, Value) {
    let ran = folder.run(&format!("bench {arguments} --time 100ms --step 1ms --readers 2 --json")).ok();
    let runs = ran.objects().into_iter().filter(|object| object["type"] == "run").collect();
    (runs, ran.summary())
}

/// Whether a cold run ended for lack of records; on a busy machine its time may be over before.
fn ended_early(run: &Value) -> bool {
    run["seconds"].as_f64().unwrap() < 0.1
}

#[test]
fn cold_readers_read_everything_once() {
    let folder = Folder::new();
    for n in 0..50 {
        folder.write(&format!("in/{n}.jpg"), vec![7; 1_000]);
        folder.write(&format!("in/{n}.cls"), "1");
    }
    folder.run("convert in --out d --to tar --target-shard 16KiB --quiet").ok();
    let (runs, summary) = self::runs(&folder, "in d");
    assert_eq!(runs.len(), 8);
    for run in runs.iter().filter(|run| run["cache"] == "cold" && ended_early(run)) {
        assert_eq!((&run["records"], &run["bytes"]), (&50.into(), &50_050.into()), "{run}");
        let shards = summary["dataset"]["files"].as_u64().unwrap();
        let opened = if run["side"] == "source" { 100 } else { shards };
        assert_eq!(run["files_opened"], opened, "{run}");
        assert_eq!(run["waiting"].is_null(), run["readers"] == 1, "{run}");
    }
    assert_eq!((&summary["source"]["format"], &summary["source"]["files"]), (&"files".into(), &100.into()));
    assert!(summary["speedup_warm"].as_f64().unwrap() > 0.0);
}

#[test]
fn tables_and_a_page() {
    let folder = Folder::new();
    let rows: String = (0..5_000).map(|n| format!("{n},name <b>{n}</b>\n")).collect();
    folder.write("in/a<b>.csv", format!("id,name\n{rows}"));
    folder.run("convert in --out d --quiet").ok();
    let (runs, summary) = self::runs(&folder, "in d");
    let mut complete = runs.iter().filter(|run| run["cache"] == "cold" && ended_early(run));
    assert!(complete.all(|run| run["records"] == 5_000), "{runs:?}");
    assert!(summary["notes"][0].as_str().unwrap().contains("keeps at most 1 of 2 readers busy"), "{summary}");
    let told = folder.run("bench in/a<b>.csv d --time 50ms --step 1ms --readers 1 --html page.html").ok();
    assert!(told.stdout.contains("records/s"), "{}", told.stdout);
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    super::report::check(&page);
    assert!(page.contains("a&lt;b&gt;.csv") && !page.contains("NaN") && !page.contains("inf"));
    // A dataset may be compared with another one.
    self::runs(&folder, "d d");
}

#[test]
fn mistakes_are_told() {
    let folder = Folder::new();
    folder.write("in/a.csv", "id\n1\n");
    assert_eq!(folder.run("bench in nowhere").code, 2);
    folder.run("convert in --out d --quiet").ok();
    assert_eq!(folder.run("bench nowhere d").code, 2);
    let bad = folder.run("bench in d --step 5");
    assert_eq!(bad.code, 2);
    assert!(bad.stderr.contains("100ms"), "{}", bad.stderr);
}
