//! `manifest --find`: by id, by the begin of an id, from a file; as a table, CSV and objects.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use serde_json::Value;
use support::Folder;

/// A dataset of nine commits of ten records each.
fn appended(to: &str) -> Folder {
    let folder = Folder::new();
    for part in 0..9 {
        let rows: String = (0..10).map(|i| format!("r{part}-{i},PAT-{:03},{i}\n", i % 4)).collect();
        folder.write(&format!("{part}.csv"), format!("id,who,x\n{rows}"));
        folder.run(&format!("convert {part}.csv --to {to} --id id --subject who")).ok();
    }
    folder
}

fn hits(objects: &[Value]) -> Vec<&Value> {
    objects.iter().filter(|object| object["type"] == "hit").collect()
}

#[test]
fn each_commit_merges_small_segments_of_the_id_index_with_its_own() {
    for to in ["parquet", "tar"] {
        let folder = appended(to);
        let plan = folder.run("compact --min-inputs 100 --dry-run --json").ok().summary();
        assert_eq!((&plan["segments_merged"], &plan["segments_after"]), (&0.into(), &2.into()), "{plan}");
        let ids = "r0-0 r8-9 PAT-002 nobody";
        let after = folder.run(&format!("manifest --find {ids} --json"));
        assert_eq!(after.code, 1, "one of them is nobody");
        for (at, old) in [("v1", 1 + 2), ("v4", 1 + 4 * 2)] {
            let then = folder.run(&format!("manifest --find {ids} --json --at {at}"));
            assert_eq!(hits(&then.objects()).len(), old, "{to} {at}: as many as that version had");
        }
        assert_eq!(after.summary()["hits"], 2 + 9 * 2);
        assert_eq!(after.summary()["missing"], serde_json::json!(["nobody"]));
        folder.run("vacuum --retain 0 --force").ok();
        folder.run("verify --read-data").ok();
        assert_eq!(hits(&folder.run("manifest --find PAT-002 --json").ok().objects()).len(), 18);
    }
    // In one version with the shards.
    let folder = appended("tar");
    let both = folder.run("compact --min-inputs 2 --json").ok().summary();
    assert_eq!((&both["version"], &both["segments_merged"], &both["shards_after"]), (&10.into(), &0.into(), &1.into()));
    let text = folder.run("manifest --find r3-7").ok().stdout;
    assert!(text.contains("r3-7: v4-v9 in ") && text.contains("still stored"), "{text}");
    let hit = folder.run("manifest --find r3-7 --json").ok().objects().remove(0);
    assert_eq!((&hit["earlier"][0]["state"], &hit["earlier"][0]["stored"]), (&"compacted".into(), &true.into()));
    folder.run("vacuum --retain 0 --force").ok();
    let hit = folder.run("manifest --find r3-7 --json").ok().objects().remove(0);
    assert_eq!((&hit["earlier"][0]["state"], &hit["earlier"][0]["stored"]), (&"vacuumed".into(), &false.into()));
    assert_eq!((&hit["state"], &hit["stored"], &hit["versions"]["from"]), (&"live".into(), &true.into(), &4.into()));
}

#[test]
fn begins_of_ids_are_found_and_counted() {
    let folder = appended("parquet");
    let find = |arguments: &[&str]| folder.run_with(&[&["manifest", "--json", "--find"], arguments].concat());
    let all = find(&["r3-*"]).ok();
    let ids: Vec<String> =
        hits(&all.objects()).iter().map(|hit| hit["record_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, (0..10).map(|i| format!("r3-{i}")).collect::<Vec<_>>());
    assert_eq!(hits(&all.objects())[0]["id"], "r3-*");
    let some = find(&["PAT-00*", "--limit", "7"]).ok();
    assert_eq!(hits(&some.objects()).len(), 7);
    assert_eq!((&some.summary()["hits"], &some.summary()["shown"]), (&90.into(), &7.into()));
    assert_eq!(find(&["q*"]).code, 1);
    let both = find(&["r1-1", "PAT-001*"]).ok().summary();
    assert_eq!(both["hits"], 1 + 9 * 3);
    assert_eq!(find(&["r3-*", "--at", "v3"]).code, 1, "it was not there yet");
    // Origins are ids where there is no other.
    folder.write("plain.csv", (0..30).map(|i| format!("{i}\n")).collect::<String>());
    folder.run("convert plain.csv --read header=no --from csv --out plain").ok();
    let rows = folder.run_with(&["manifest", "plain", "--json", "--find", "plain.csv#2*"]).ok();
    let rows: Vec<u64> = hits(&rows.objects()).iter().map(|hit| hit["origin"]["row"].as_u64().unwrap()).collect();
    assert_eq!(rows, [2, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29]);
    assert_eq!(folder.run_with(&["manifest", "plain", "--json", "--find", "pl*"]).ok().summary()["hits"], 30);
    assert_eq!(folder.run_with(&["manifest", "plain", "--find", "plain.csv#31*"]).code, 1);
}

#[test]
fn origins_of_sources_with_one_name_are_told_apart() {
    let folder = Folder::new();
    // Each table has rows that are rejected, at its begin, in the middle and at its end; one has nothing else.
    let table = |name: &str, bad: &dyn Fn(u64) -> bool| {
        let rows = (1..=20).map(|row| if bad(row) { "1,2,3,4\n".to_owned() } else { format!("{name},{row}\n") });
        folder.write(&format!("{name}/x.csv"), format!("name,value\n{}", rows.collect::<String>()));
    };
    table("a", &|row| row % 2 == 1);
    table("b", &|row| row < 6);
    table("c", &|_| true);
    table("d", &|row| row > 12);
    table("e", &|row| row % 5 == 0);
    for name in ["a", "b", "c", "d", "e"] {
        assert_eq!(folder.run(&format!("convert {name}/x.csv --on-error skip --out ds")).code, 3);
    }
    let exported = folder.run("manifest ds --export jsonl").ok().objects();
    assert_eq!(exported.len(), 10 + 15 + 12 + 16);
    let key = |hit: &serde_json::Value| (hit["shard"].to_string(), hit["ordinal"].as_u64());
    let mut of_id = std::collections::BTreeMap::<String, Vec<_>>::new();
    for row in &exported {
        of_id.entry(row["record_id"].as_str().unwrap().to_owned()).or_default().push(key(row));
    }
    assert!(of_id.contains_key("x.csv#20") && of_id.contains_key("x.csv#1"));
    for (id, mut rows) in of_id {
        let found = folder.run_with(&["manifest", "ds", "--find", &id, "--json"]).ok();
        let mut places: Vec<_> = hits(&found.objects()).into_iter().map(key).collect();
        places.sort();
        rows.sort();
        assert_eq!(places, rows, "{id}");
        let plan = folder.run_with(&["erase", "ds", "--source", &id, "--dry-run", "--json"]).ok().summary();
        assert_eq!(plan["records_erased"], rows.len(), "{id}");
    }
}

#[test]
fn ids_of_a_file_are_taken_as_they_are() {
    let folder = Folder::new();
    let ids = ["a*", " b ", "c\nd", "e,\"f\"", "=1+1"];
    let rows = ids.map(|id| serde_json::json!({ "id": id }).to_string() + "\n").concat();
    folder.write("in.jsonl", rows);
    folder.run("convert in.jsonl --id id").ok();
    folder.write("ids.txt", "a*\n b \ne,\"f\"\r\nb\n");
    let found = folder.run("manifest --find-file ids.txt --json");
    assert_eq!((found.code, &found.summary()["missing"]), (1, &serde_json::json!(["b"])));
    assert_eq!(found.summary()["hits"], 3);
    folder.write("ids.jsonl", ids.map(|id| serde_json::json!(id).to_string() + "\n").concat());
    assert_eq!(folder.run("manifest --find-file ids.jsonl --json").ok().summary()["hits"], 5);
    let csv = folder.run("manifest --find-file ids.jsonl --export csv --escape-formulas").ok().stdout;
    assert!(csv.starts_with("id,kind,record_id,subject_id,shard,ordinal,"), "{csv}");
    assert!(csv.contains("\n\"c\nd\",record,\"c\nd\",,"), "{csv}");
    assert!(csv.contains("\n\"'=1+1\",record,") && csv.contains(",live,true,"), "{csv}");
    let lines = folder.run("manifest --find-file ids.jsonl --export jsonl").ok().objects();
    assert_eq!((lines.len(), &lines[0]["record_id"]), (5, &"a*".into()));
    assert_eq!(folder.run_with(&["manifest", "--find", "a\\*", "--json"]).ok().summary()["hits"], 1);
    assert_eq!(folder.run("manifest --find a --export parquet").code, 2);
    folder.write("bad.jsonl", "\"a*\"\nb\n");
    let bad = folder.run("manifest --find-file bad.jsonl");
    assert!(bad.code == 2 && bad.stderr.contains("line 2"), "{bad:?}");
}
