//! `remove`, `revert` and `convert --on-changed replace`: a wrong file leaves, everything else stays, and who was
//! erased does not come back that way.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::BTreeMap;

use serde_json::Value;
use support::Folder;

/// The ids of the newest version, with the number of records of each.
fn ids(folder: &Folder) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for row in folder.run("manifest --export jsonl").ok().objects() {
        *out.entry(row["record_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    out
}

fn csv(name: &str, rows: std::ops::Range<usize>) -> String {
    let rows: String = rows.map(|i| format!("{name}{i},PAT-{},text {i}\n", i % 5)).collect();
    format!("id,who,note\n{rows}")
}

/// Three sources of 30 rows, each converted by a run of its own.
fn dataset(to: &str, options: &str) -> Folder {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(&format!("{name}.csv"), csv(name, 0..30));
        folder.run(&format!("convert {name}.csv --id id --subject who --to {to} --codec none {options}")).ok();
    }
    folder
}

#[test]
fn a_wrong_file_leaves_with_its_records_and_can_come_again() {
    for to in ["parquet", "tar", "tfrecord"] {
        for merged in [false, true] {
            let folder = dataset(to, "");
            if merged {
                folder.run("compact --min-inputs 2").ok();
            }
            let before = ids(&folder);
            let plan = folder.run("remove --source b.csv --dry-run --json").ok().summary();
            assert_eq!((&plan["records"], &plan["records_left"]), (&30.into(), &60.into()), "{to}");
            assert_eq!(ids(&folder), before, "{to}: a plan changes nothing");
            let removed = folder.run("remove --source b.csv --json").ok().summary();
            assert_eq!((&removed["records"], &removed["records_removed"]), (&30.into(), &30.into()), "{to}");
            assert_eq!(removed["shards_rewritten"], u64::from(merged), "{to}");
            let left: BTreeMap<_, _> = before.clone().into_iter().filter(|(id, _)| !id.starts_with('b')).collect();
            assert_eq!(ids(&folder), left, "{to}");
            folder.run("verify --read-data").ok();
            // History stays, and says where the record was.
            let hit = folder.run("manifest --find b7 --json").ok().objects();
            assert!(hit.iter().any(|hit| hit["state"] == "removed"), "{to} {hit:?}");
            folder.run("verify --read-data --at v3").ok();
            assert_eq!(folder.run("remove --source b.csv").code, 1, "{to}: it is gone");
            let again = folder.run("convert b.csv --json").ok().summary();
            assert_eq!(again["records_out"], 30, "{to}");
            assert_eq!(ids(&folder), before, "{to}");
            assert_eq!(folder.run("convert b.csv --json").ok().summary()["sources_unchanged"], 1, "{to}");
        }
    }
}

#[test]
fn a_run_leaves_as_a_whole() {
    let folder = dataset("parquet", "");
    folder.write("d.csv", csv("d", 0..10));
    folder.write("e.csv", csv("e", 0..10));
    folder.run("convert d.csv e.csv").ok();
    folder.run("compact --min-inputs 2").ok();
    let removed = folder.run("remove --run v4 --json").ok().summary();
    assert_eq!((&removed["records"], &removed["sources"]), (&20.into(), &2.into()));
    assert!(ids(&folder).keys().all(|id| !id.starts_with(['d', 'e'])));
    let refused = folder.run("remove --run v5");
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("v5, which is a compact"), "{}", refused.stderr);
    assert_eq!(folder.run("remove").code, 2, "nothing is named");
    assert_eq!(folder.run("remove --run v2 --source a.csv").code, 1, "v2 took in another source");
}

#[test]
fn sources_of_one_name_are_told_apart() {
    let folder = Folder::new();
    // All rows of the first are bad, so it begins where the second one begins.
    folder.write("x/export.csv", "id,n\nx1,1,2,3\nx2,1,2,3\n");
    folder.write("y/export.csv", csv("y", 0..5));
    folder.write("z/export.csv", csv("z", 0..5));
    for name in ["x", "y", "z"] {
        folder.run(&format!("convert {name}/export.csv --id id --on-error skip"));
    }
    let refused = folder.run("remove --source export.csv");
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("name of 3 sources"), "{}", refused.stderr);
    folder.run("remove --source x/export.csv").ok();
    assert_eq!(ids(&folder).len(), 10, "it had no record");
    folder.run("remove --source y/export.csv").ok();
    assert!(ids(&folder).keys().all(|id| id.starts_with('z')));
    folder.run("verify --read-data").ok();
}

#[test]
fn a_changed_source_is_replaced() {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = dataset(to, "");
        folder.run("compact --min-inputs 2").ok();
        folder.write("b.csv", csv("b", 10..45));
        let refused = folder.run("convert b.csv");
        assert_eq!(refused.code, 8, "{to} {}", refused.stderr);
        assert!(refused.stderr.contains("--on-changed replace"), "{}", refused.stderr);
        let done = folder.run("convert b.csv --on-changed replace --json").ok().summary();
        assert_eq!((&done["records_out"], &done["records_removed"]), (&35.into(), &30.into()), "{to}");
        let expected: BTreeMap<String, usize> = ["a", "c"]
            .iter()
            .flat_map(|name| (0..30).map(move |i| (format!("{name}{i}"), 1)))
            .chain((10..45).map(|i| (format!("b{i}"), 1)))
            .collect();
        assert_eq!(ids(&folder), expected, "{to}");
        folder.run("verify --read-data").ok();
        assert_eq!(folder.run("convert b.csv --on-changed replace --json").ok().summary()["sources"], 0, "{to}");
        // Replaced once more, and back.
        folder.write("b.csv", csv("b", 0..2));
        folder.run("convert b.csv --on-changed replace").ok();
        assert_eq!(ids(&folder).len(), 62, "{to}");
        folder.run("revert --to v5").ok();
        assert_eq!(ids(&folder), expected, "{to}");
        folder.run("verify --read-data").ok();
        assert_eq!(folder.run("convert b.csv").code, 8, "{to}: its content of then is what the dataset has");
    }
}

#[test]
fn a_sample_is_replaced_and_removed_with_all_its_files() {
    let folder = Folder::new();
    for key in ["s1", "s2"] {
        folder.write(&format!("in/{key}.txt"), format!("text of {key}"));
        folder.write(&format!("in/{key}.cls"), "0");
    }
    folder.run("convert in --out shards").ok();
    folder.write("in/s1.cls", "17");
    folder.run("convert in --out shards --on-changed replace").ok();
    folder.run("vacuum --retain 0 --force").ok();
    let members = folder.members("shards");
    assert_eq!(members.get("s1.cls").map(Vec::as_slice), Some(b"17".as_slice()));
    assert_eq!(
        members.get("s1.txt").map(Vec::as_slice),
        Some(b"text of s1".as_slice()),
        "the part that did not change"
    );
    assert_eq!(ids(&folder), BTreeMap::from([("s1".into(), 1), ("s2".into(), 1)]));
    let removed = folder.run("remove --source in/s2.txt --json").ok().summary();
    assert_eq!((&removed["records"], &removed["sources"]), (&1.into(), &2.into()), "both of its files");
    assert_eq!(ids(&folder), BTreeMap::from([("s1".into(), 1)]));
    assert_eq!(folder.run("convert in --json").ok().summary()["sources"], 2);
}

#[test]
fn who_was_erased_does_not_come_back_with_an_older_version() {
    for (to, all) in [("parquet", ""), ("parquet", "--all-versions"), ("tar", ""), ("tfrecord", "")] {
        let folder = dataset(to, "");
        folder.run("compact --min-inputs 2").ok();
        folder.run(&format!("erase shards PAT-3 {all}")).ok();
        folder.run("remove --source c.csv").ok();
        let reverted = folder.run("revert --to v3 --json").ok().summary();
        if all.is_empty() {
            assert_eq!(reverted["records_kept_out"], 18, "{to}");
        }
        let left = ids(&folder);
        assert_eq!(left.len(), 72, "{to} {all}");
        assert!(left.keys().all(|id| id[1..].parse::<usize>().unwrap() % 5 != 3), "{to} {all}");
        folder.run("verify --read-data").ok();
        let found = folder.run("manifest --find PAT-3");
        assert_eq!(found.code, 1, "{to} {all}: {}", found.stdout);
    }
}

/// A record that was removed when its person was erased comes back with no revert either.
#[test]
fn what_was_removed_before_an_erasure_stays_out_too() {
    let folder = dataset("parquet", "");
    folder.run("remove --source a.csv").ok();
    folder.run("erase shards PAT-3").ok();
    folder.run("revert --to v3").ok();
    assert!(ids(&folder).keys().all(|id| id[1..].parse::<usize>().unwrap() % 5 != 3), "{:?}", ids(&folder));
    folder.run("verify --read-data").ok();
}

#[test]
fn sorted_shards_lose_rows_and_come_back() {
    let folder = dataset("parquet", "");
    folder.run("compact --sort-by note").ok();
    let before = ids(&folder);
    folder.run("remove --source b.csv").ok();
    assert_eq!(ids(&folder).len(), 60);
    folder.run("verify --read-data").ok();
    folder.run("revert --to v4").ok();
    assert_eq!(ids(&folder), before);
    folder.run("verify --read-data").ok();
    let found = folder.run("manifest --find b7 --json").ok().objects();
    assert!(found.iter().any(|hit| hit["state"] == "live"), "{found:?}");
    // The same once more: both runs of the shard that was restored have to be known.
    folder.run("erase shards PAT-1 --all-versions").ok();
    for version in 1..=6 {
        folder.run(&format!("verify --read-data --at v{version}")).ok();
    }
}

#[test]
fn private_datasets_name_nobody() {
    let folder = Folder::new();
    folder.write("key", [7; 32]);
    for name in ["a", "PAT-4"] {
        folder.write(&format!("{name}.csv"), csv(name, 0..20));
        let private = "--id-mode hmac --redact-source-paths --id-key key";
        folder.run(&format!("convert {name}.csv --id id --subject who {private}")).ok();
    }
    assert_eq!(folder.run("remove --source PAT-4.csv").code, 2, "it takes the key");
    let removed = folder.run("remove --source PAT-4.csv --id-key key --json").ok();
    assert_eq!(removed.summary()["records"], 20);
    assert!(!removed.stdout.contains("PAT-4"), "{}", removed.stdout);
    assert!(!folder.run("manifest --history --json").ok().stdout.contains("PAT-4"));
    folder.write("a.csv", csv("a", 5..20));
    let done = folder.run("convert a.csv --on-changed replace --id-key key --json").ok().summary();
    assert_eq!((&done["records_out"], &done["records_removed"]), (&15.into(), &20.into()));
    assert_eq!(folder.run("manifest --json").ok().summary()["records"], 15);
}

#[test]
fn the_history_and_the_difference_tell_what_left() {
    let folder = dataset("parquet", "");
    folder.run("remove --source b.csv").ok();
    let history = folder.run("manifest --history").ok().stdout;
    assert!(history.lines().any(|line| line.contains("remove") && line.ends_with("30 removed")), "{history}");
    let sources = |text: &str| -> Vec<(Value, Value)> {
        let objects = folder.run(text).ok().objects();
        let sources = objects.iter().filter(|object| object["type"] == "source");
        sources.map(|source| (source["change"].clone(), source["source"].clone())).collect()
    };
    assert_eq!(sources("manifest --diff v3 v4 --json"), [("removed".into(), "b.csv".into())]);
    folder.run("revert --to v3").ok();
    assert_eq!(sources("manifest --diff v4 v5 --json"), [("added".into(), "b.csv".into())]);
    assert_eq!(sources("manifest --diff v3 v5 --json"), []);
    let same = folder.run("revert --to v5 --json").ok().summary();
    assert_eq!(same["version"], 5, "there is nothing to do");
}
