//! Tags, what changed between versions, and how columns drift, by the real binary.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use serde_json::Value;
use support::Folder;

/// A table of people; `weight` is added to what they weigh.
fn people(first: usize, count: usize, weight: usize) -> String {
    let rows = (first..first + count).map(|i| {
        let city = ["Bonn", "Kiel", "Ulm"][i % 3];
        format!("P{i},{city},{}\n", 50 + i % 40 + weight)
    });
    format!("person,city,weight\n{}", rows.collect::<String>())
}

/// Four versions: two conversions, a compaction, a conversion.
fn dataset() -> Folder {
    let folder = Folder::new();
    for (name, first) in [("a", 0), ("b", 100)] {
        folder.write(&format!("in/{name}.csv"), people(first, 100, 0));
        folder.run("convert in --out d --id person --quiet").ok();
    }
    folder.run("compact d --min-inputs 2").ok();
    folder.write("in/c.csv", people(200, 50, 0));
    folder.run("convert in --out d --id person --quiet").ok();
    folder
}

fn entries(folder: &Folder, dataset: &str) -> Vec<Value> {
    folder.run(&format!("manifest {dataset} --history --json")).ok().objects()
}

#[test]
fn a_tag_names_a_version_wherever_a_version_is_asked_for() {
    let folder = dataset();
    let tagged = folder.run("manifest d --tag train-2026-11 --at v2 --json").ok().summary();
    assert_eq!((tagged["tagged"].as_u64(), tagged["version"].as_u64()), (Some(2), Some(5)));
    let at = |when: &str| folder.run(&format!("manifest d --json --at {when}")).ok().summary();
    assert_eq!(at("train-2026-11")["records"], 200);
    assert_eq!(at("train-2026-11")["version"], 2);
    assert_eq!(at("v5")["tags"]["train-2026-11"], 2);
    folder.run("verify d --at train-2026-11 --read-data").ok();
    let diff = folder.run("manifest d --diff train-2026-11 v4 --json").ok().summary();
    assert_eq!(diff["records_added"], 50);
    let found = folder.run("manifest d --find P7 --at train-2026-11 --json").ok().summary();
    assert_eq!((&found["version"], &found["hits"]), (&2.into(), &1.into()));
    let history = entries(&folder, "d");
    assert_eq!(history[1]["tags"][0], "train-2026-11");
    assert_eq!(history[4]["operation"], "tag");
    assert!(folder.run("manifest d --history").ok().stdout.contains("[train-2026-11]"));
    assert!(folder.run("manifest d").ok().stdout.contains("train-2026-11 is v2"));
}

#[test]
fn a_tag_is_given_once() {
    let folder = dataset();
    folder.run("manifest d --tag gold").ok();
    let again = folder.run("manifest d --tag gold --at v4 --json").ok().summary();
    assert_eq!((&again["changed"], &again["version"]), (&false.into(), &5.into()));
    let other = folder.run("manifest d --tag gold --at v1");
    assert_eq!(other.code, 2);
    assert!(other.stderr.contains("names v4") && other.stderr.contains("--untag gold"), "{}", other.stderr);
    for name in ["v42", "7d", "2026-11-21", "two words", "-x", ""] {
        assert_eq!(folder.run_with(&["manifest", "d", &format!("--tag={name}")]).code, 2, "{name}");
    }
    assert_eq!(folder.run("manifest d --untag silver").code, 2);
    let unknown = folder.run("manifest d --at silver");
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("gold"), "{}", unknown.stderr);
    folder.run("manifest d --untag gold").ok();
    assert_eq!(folder.run("manifest d --at gold").code, 2);
    folder.run("manifest d --tag gold --at v1").ok();
}

#[test]
fn vacuum_keeps_what_has_a_tag_until_it_has_none() {
    let folder = dataset();
    folder.run("manifest d --tag first --at v1").ok();
    let vacuumed = folder.run("vacuum d --retain 0 --force --json").ok().summary();
    assert_eq!(vacuumed["versions_tagged"], 1);
    assert!(vacuumed["objects_deleted"].as_u64() > Some(0), "{vacuumed}");
    // Version 1 is there with everything, its neighbour is not.
    folder.run("verify d --at first --read-data").ok();
    assert_eq!(folder.run("manifest d --at v1 --json").ok().summary()["records"], 100);
    assert_eq!(folder.run("manifest d --at v2").code, 2);
    let hit = &folder.run("manifest d --find P7 --at first --json").ok().objects()[0];
    assert_eq!(hit["state"], "live");
    let shard = hit["shard"].as_str().unwrap();
    assert!(folder.path().join("d").join(shard).exists());
    assert_eq!(folder.run("manifest d --export csv --at first").ok().stdout.lines().count(), 101);
    let history = entries(&folder, "d");
    assert_eq!((&history[0]["readable"], &history[1]["readable"]), (&true.into(), &false.into()));
    assert_eq!(folder.run("manifest d --tag second --at v2").code, 2);
    let verified = folder.run("verify d --read-data --json").ok().summary();
    assert_eq!(verified["unreferenced"], 0, "{verified}");
    // New versions repeat the tag, and another vacuum keeps it.
    folder.write("in/d.csv", people(300, 10, 0));
    folder.run("convert in --out d --id person --quiet").ok();
    folder.run("vacuum d --retain 0 --force").ok();
    folder.run("verify d --at first --read-data").ok();
    let untagged = folder.run("manifest d --untag first").ok();
    assert!(untagged.stdout.contains("is no longer readable"), "{}", untagged.stdout);
    assert_eq!(folder.run("manifest d --at v1").code, 2);
    folder.run("vacuum d --retain 0 --force").ok();
    assert!(!folder.path().join("d").join(shard).exists());
    folder.run("verify d --read-data").ok();
    // Where it was is still on record.
    let hit = &folder.run("manifest d --find P7 --at v1 --json").ok().objects()[0];
    assert_eq!((&hit["state"], hit["shard"].as_str()), (&"vacuumed".into(), Some(shard)));
}

#[test]
fn a_diff_lists_the_records_that_came_and_went() {
    let folder = dataset();
    let of = |from: &str, to: &str, more: &str| folder.run(&format!("manifest d --diff {from} {to} {more}")).ok();
    // From the first version to the compaction: only the second hundred is new, whatever was moved.
    let objects = of("v1", "v3", "--json").objects();
    let records: Vec<&Value> = objects.iter().filter(|o| o["type"] == "record").collect();
    assert_eq!(records.len(), 100);
    assert!(records.iter().all(|r| r["change"] == "added" && r["before"].is_null()));
    let mut ids: Vec<&str> = records.iter().map(|r| r["record_id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!((ids[0], ids[99]), ("P100", "P199"));
    // Each is found where the second version has it.
    let hit = &folder.run("manifest d --find P150 --at v3 --json").ok().objects()[0];
    let change = records.iter().find(|r| r["record_id"] == "P150").unwrap();
    assert_eq!((&hit["shard"], &hit["ordinal"]), (&change["after"]["shard"], &change["after"]["ordinal"]));
    assert!(hit["hash"].is_null() && change["after"]["hash"].is_null());
    let summary = objects.last().unwrap();
    let counts = ["added", "removed", "changed", "rewritten", "moved", "unchanged"]
        .map(|name| summary[format!("records_{name}")].as_u64().unwrap());
    assert_eq!(counts, [100, 0, 0, 0, 100, 0]);
    // Back again they went.
    let back = of("v4", "v1", "--json").objects();
    assert_eq!(back.iter().filter(|o| o["type"] == "record" && o["change"] == "removed").count(), 150);
    assert_eq!(back.last().unwrap()["records_removed"], 150);
    let shown = of("v1", "v4", "").stdout;
    assert!(shown.contains("records    +150 -0 ~0") && shown.contains("... 145 records more"), "{shown}");
    assert!(of("v1", "v4", "-v").stdout.contains("+ record   P249"));
    // A compaction alone changes no record.
    assert!(of("v2", "v3", "--json").objects().iter().all(|o| o["type"] != "record"));
}

#[test]
fn drift_is_told_by_the_exit_code() {
    let folder = Folder::new();
    folder.write("in/a.csv", people(0, 4_000, 0));
    folder.run("convert in --out d --id person --quiet").ok();
    folder.write("in/b.csv", people(4_000, 1_000, 0));
    folder.run("convert in --out d --id person --quiet").ok();
    let same = folder.run("manifest d --drift v1 v2 --json").ok();
    let summary = same.summary();
    assert_eq!((&summary["drifted"], &summary["columns_compared"]), (&false.into(), &3.into()));
    assert_eq!((&summary["records_before"], &summary["records_after"]), (&4_000.into(), &5_000.into()));
    assert!(same.objects().iter().filter(|o| o["type"] == "column").all(|c| c["psi"].as_f64().unwrap() < 0.01));
    // Much heavier people without a city.
    let heavy = people(5_000, 4_000, 30).replace("Bonn", "").replace("Kiel", "");
    folder.write("in/c.csv", heavy);
    folder.run("convert in --out d --id person --quiet").ok();
    let drifted = folder.run("manifest d --drift v2 v3 --json --psi 0.1");
    assert_eq!(drifted.code, 1);
    let objects = drifted.objects();
    let column = |name: &str| objects.iter().find(|o| o["column"] == name).unwrap();
    assert_eq!(column("weight")["beyond"][0], "psi");
    assert_eq!(column("city")["nulls_before"], 0.0);
    assert!(column("city")["beyond"].as_array().unwrap().contains(&"nulls".into()), "{}", column("city"));
    let bins = column("weight")["bins"].as_array().unwrap();
    let sum = |split: &str| bins.iter().map(|b| b[split].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("before"), sum("after")), (5_000, 9_000));
    let shown = folder.run("manifest d --drift v2 v3");
    assert!(shown.stdout.contains("beyond"), "{}", shown.stdout);
    assert_eq!(shown.code, 1);
    // Everything may change where that is allowed.
    folder.run("manifest d --drift v2 v3 --psi 9 --null-share 1 --volume 9").ok();
    assert_eq!(folder.run("manifest d --drift v1 v2 --volume 0.1").code, 1);
    assert_eq!(folder.run("manifest d --drift v1 v2 --psi -1").code, 2);
    assert_eq!(folder.run("manifest d --psi 1").code, 2);
}

#[test]
fn of_samples_the_sizes_are_compared() {
    let folder = Folder::new();
    for i in 0..50 {
        folder.write(&format!("in/s{i:03}.txt"), "x".repeat(100 + i));
    }
    folder.run("convert in --out d --to tar --quiet").ok();
    for i in 50..70 {
        folder.write(&format!("in/s{i:03}.txt"), "x".repeat(5_000));
    }
    folder.run("convert in --out d --quiet").ok();
    let drifted = folder.run("manifest d --drift v1 v2 --json");
    assert_eq!(drifted.code, 1, "{drifted:?}");
    let objects = drifted.objects();
    assert_eq!((&objects[0]["column"], &objects[0]["kind"]), (&"(record bytes)".into(), &"size".into()));
    assert!(drifted.summary()["not_compared"].as_str().unwrap().contains("sizes"));
}

#[test]
fn a_column_that_changes_its_type_has_drifted() {
    let folder = Folder::new();
    folder.write("a.csv", "id,v\n1,2\n2,3\n");
    folder.write("b.csv", "id,v\n1,x\n2,y\n");
    folder.run("convert a.csv").ok();
    folder.run("convert b.csv --on-schema union").ok();
    let ran = folder.run("manifest --drift v1 v2 --verbose");
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("v   category") && ran.stdout.contains("beyond: type"), "{}", ran.stdout);
}
