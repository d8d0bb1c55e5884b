//! Records that were omitted as duplicates are those of people, too: they are found, erased and blocked by their own
//! ids, and come back once the record that they repeated has left the dataset.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

use crate::support;

use std::collections::BTreeSet;

use support::Folder;

/// The people whose records a dataset has, by the ids of their records.
#[track_caller]
fn records(folder: &Folder) -> BTreeSet<String> {
    let listed = folder.run("manifest d --find R1 R2 R3 R4 R5 R6 R7 --json");
    let hits = listed.objects().into_iter().filter(|object| object["type"] == "hit" && object["state"] == "live");
    hits.map(|hit| hit["id"].as_str().unwrap().to_owned()).collect()
}

fn set(ids: &str) -> BTreeSet<String> {
    ids.split(' ').filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

/// How datasets are made: formats, and private ids.
const WAYS: [&str; 4] = ["--to parquet", "--to tar", "--to tfrecord", "--to parquet --id-mode sealed"];

/// A dataset whose run, or first two runs, omitted a record of Q because P has one with the same mail.
fn dataset(way: &str, runs: usize) -> Folder {
    let folder = Folder::new();
    if way.contains("id-mode") {
        let key = folder.write("key", "0f".repeat(32));
        let of = |command| format!("[{command}]\nid-key = {:?}\n", key.display().to_string());
        let commands = ["convert", "manifest", "erase", "remove"].map(of);
        folder.write(".config/shardify/shardify.toml", commands.concat());
    }
    folder.write("a.csv", "rid,pat,mail\nR1,P,one@x\nR2,Z,z@x\n");
    folder.write("b.csv", "rid,pat,mail\nR3,Q,one@x\nR4,Y,y@x\n");
    let options = format!("--out d --id rid --subject pat --dedup mail --json {way}");
    if runs == 1 {
        folder.run(&format!("convert a.csv b.csv {options}")).ok();
    } else {
        folder.run(&format!("convert a.csv {options}")).ok();
        folder.run("convert b.csv --out d").ok();
    }
    assert_eq!(records(&folder), set("R1 R2 R4"), "{way} {runs}");
    folder
}

#[test]
fn they_come_back_when_the_record_that_they_repeat_leaves() {
    for (way, runs) in WAYS.iter().zip([2, 1, 2, 1]) {
        for (action, left) in [
            ("erase d --subject P", "R2 R3 R4"),
            ("erase d --subject P --all-versions", "R2 R3 R4"),
            ("remove d --source a.csv", "R3 R4"),
            ("convert a.csv --out d --on-changed replace", "R1 R2 R3 R4"),
        ] {
            let folder = dataset(way, runs);
            if action.starts_with("convert") {
                folder.write("a.csv", "rid,pat,mail\nR1,P,other@x\nR2,Z,z@x\n");
            }
            let acted = folder.run(action).ok();
            let note = "1 record was omitted as a duplicate of a record that the dataset no longer has";
            assert!(acted.stderr.contains(note), "{way} {runs} {action}: {acted:?}");
            let found = folder.run("manifest d --find Q").ok();
            assert!(found.stdout.contains("`shardify convert` takes it"), "{way} {runs} {action}: {found:?}");
            // Whoever was removed alone would come back, and with them the duplicate.
            let again = folder.run("convert b.csv --out d").ok();
            assert!(again.stderr.contains("read again: b.csv"), "{way} {runs} {action}: {again:?}");
            assert_eq!(records(&folder), set(left), "{way} {runs} {action}");
            let once_more = folder.run("convert b.csv --out d").ok();
            assert!(once_more.stdout.contains("nothing to do"), "{way} {runs} {action}: {once_more:?}");
            folder.run("verify d --read-data").ok();
        }
    }
}

#[test]
fn people_who_are_only_duplicates_are_erased_and_stay_out() {
    for (way, runs) in WAYS.iter().zip([1, 2, 1, 2]) {
        for erase in ["--subject Q", "Q", "R3", "--record R3 --all-versions", "--subject Q --all-versions"] {
            let folder = dataset(way, runs);
            let found = folder.run("manifest d --find Q").ok();
            assert!(found.stdout.contains("was omitted in"), "{way} {erase}: {found:?}");
            let planned = folder.run(&format!("erase d {erase} --dry-run --json")).ok().summary();
            let erased = folder.run(&format!("erase d {erase} --json")).ok().summary();
            for report in [planned, erased] {
                assert_eq!((&report["left_out"], &report["records_erased"]), (&1.into(), &0.into()), "{way} {erase}");
            }
            let again = folder.run(&format!("erase d {erase}")).ok();
            assert!(again.stdout.contains("nothing to erase"), "{way} {erase}: {again:?}");
            // Neither the same row nor, of a person, another one comes.
            folder.write("c.csv", "rid,pat,mail\nR3,Q,new@x\n");
            let refused = folder.run("convert c.csv --out d --json").ok().summary();
            assert_eq!(refused["records_rejected"], 1, "{way} {erase}: {refused}");
            folder.run("erase d --subject P").ok();
            folder.run("convert a.csv b.csv --out d").ok();
            assert_eq!(records(&folder), set("R2 R4"), "{way} {runs} {erase}");
            folder.run("verify d --read-data").ok();
        }
    }
}

#[test]
fn sources_that_repeat_each_other_settle() {
    let folder = Folder::new();
    folder.write("a.csv", "rid,mail\nR1,1\nR2,2\n");
    folder.write("b.csv", "rid,mail\nR3,1\nR4,3\n");
    folder.write("c.csv", "rid,mail\nR5,3\nR6,1\nR7,7\n");
    for source in ["a.csv --id rid --dedup mail", "b.csv", "c.csv"] {
        folder.run(&format!("convert {source} --out d")).ok();
    }
    folder.run("erase d R1").ok();
    folder.run("convert a.csv b.csv c.csv --out d").ok();
    // The first of the rest stays.
    assert_eq!(records(&folder), set("R2 R3 R4 R7"));
    for sources in ["a.csv b.csv c.csv", "c.csv a.csv", "b.csv"] {
        let again = folder.run(&format!("convert {sources} --out d")).ok();
        assert!(again.stdout.contains("nothing to do"), "{sources}: {again:?}");
    }
    folder.run("revert d --to v2").ok();
    folder.run("convert a.csv b.csv c.csv --out d").ok();
    assert_eq!(records(&folder), set("R2 R3 R4 R7"));
}

#[test]
fn samples_of_files_come_back() {
    for to in ["tar", "parquet"] {
        let folder = Folder::new();
        for (name, content) in [("p1", "same"), ("q1", "same"), ("z1", "other")] {
            folder.write(&format!("in/{name}.txt"), content);
            folder.write(&format!("in/{name}.cls"), "1");
        }
        folder.run(&format!("convert in --out d --to {to} --dedup content")).ok();
        let found = folder.run("manifest d --find q1").ok();
        assert!(found.stdout.contains("as a duplicate of `p1`"), "{to}: {found:?}");
        folder.run("erase d p1 --all-versions").ok();
        for number in 0..2 {
            let ran = folder.run("convert in --out d").ok();
            assert_eq!(ran.stderr.contains("read again"), number == 0, "{to}: {ran:?}");
            let live = folder.run("manifest d --find q1 z1").ok();
            assert_eq!(live.stdout.matches("live").count(), 2, "{to}: {live:?}");
        }
    }
}

#[test]
fn damage_to_their_table_is_found_and_stops_nobody_else() {
    let folder = dataset(WAYS[0], 2);
    let tables = folder.path().join("d/_shardify/duplicates");
    let table = std::fs::read_dir(tables).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&table).unwrap();
    for at in (0..whole.len()).step_by(41) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&table, &damaged).unwrap();
        let found = folder.run("verify d");
        // Bytes that no reader of the rows looks at: statistics, names of the writer.
        assert!(found.code == 0 || found.code == 1 && found.stdout.contains("duplicates/"), "{at}: {found:?}");
        if found.code == 0 {
            let found = folder.run("manifest d --find Q").ok();
            assert!(found.stdout.contains("was omitted in"), "{at}: {found:?}");
        }
    }
    std::fs::write(&table, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(folder.run("verify d").code, 1);
    assert_eq!(folder.run("manifest d --find Q").code, 5);
    folder.write("c.csv", "rid,pat,mail\nR5,C,c@x\n");
    folder.run("convert c.csv --out d").ok();
    let erased = folder.run("erase d --subject Z --all-versions").ok();
    assert!(erased.stdout.contains("is damaged and was not searched"), "{erased:?}");
    let ran = folder.run("convert a.csv b.csv c.csv --out d").ok();
    assert!(ran.stderr.contains("do not come back, because of damage"), "{ran:?}");
    assert_eq!(records(&folder), set("R1 R4 R5"));
}
