//! `--even`: shards whose numbers of records differ by at most one, for ranks that wait for each other.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::BTreeMap;

use support::{Folder, Ran};

/// 103 records, one of which is a hundred times as large as the others; as CSV, and as files.
fn folder() -> Folder {
    let folder = Folder::new();
    let mut csv = "id,who,text\n".to_owned();
    for i in 0..103_usize {
        let text = "x".repeat(if i == 40 { 20_000 } else { 200 });
        csv.push_str(&format!("{i},P{},{text}\n", i % 30));
        folder.write(&format!("files/{i:03}.txt"), text);
    }
    folder.write("rows.csv", csv);
    folder
}

/// Returns the numbers of records of the live shards, by the folder of their part.
fn counts(folder: &Folder, dataset: &str) -> BTreeMap<String, Vec<u64>> {
    let mut out = BTreeMap::<String, Vec<u64>>::new();
    for shard in folder.run(&format!("manifest {dataset} --list --json")).ok().objects() {
        let Some(path) = shard["path"].as_str() else { continue };
        let part = path.split('/').find(|folder| folder.starts_with("split=")).unwrap_or_default();
        out.entry(part.to_owned()).or_default().push(shard["records"].as_u64().unwrap());
    }
    out
}

fn assert_even(counts: &BTreeMap<String, Vec<u64>>, parts: usize, shards: usize, what: &str) {
    assert_eq!(counts.len(), parts, "{what}: {counts:?}");
    for of_part in counts.values() {
        let (least, most) = (of_part.iter().min().unwrap(), of_part.iter().max().unwrap());
        assert!(of_part.len() == shards && most - least <= 1, "{what}: {counts:?}");
    }
    assert_eq!(counts.values().flatten().sum::<u64>(), 103, "{what}");
}

const FORMS: [&str; 6] = [
    "rows.csv --to parquet",
    "rows.csv --to tar",
    "rows.csv --to tfrecord --codec gzip",
    "files --to tar",
    "files --to parquet",
    "rows.csv --to tar --shuffle 7",
];

#[test]
fn conversions_deal_records_evenly_in_every_format_and_to_each_part() {
    let folder = folder();
    for (number, form) in FORMS.iter().enumerate() {
        folder.run(&format!("convert {form} --out a{number} --shards 8 --even")).ok();
        let found = counts(&folder, &format!("a{number}"));
        assert_even(&found, 1, 8, form);
        assert!(found[""].iter().all(|records| [12, 13].contains(records)), "{found:?}");
        folder.run(&format!("convert {form} --out b{number} --shards 3 --even --split train=0.7,val=0.3")).ok();
        assert_even(&counts(&folder, &format!("b{number}")), 2, 3, form);
        folder.run(&format!("verify b{number} --read-data")).ok();
    }
    // A plan of tasks has one task, and the same shards.
    folder.run("convert rows.csv --out c --shards 8 --even --jobs 1 --memory 64MiB").ok();
    assert_eq!(counts(&folder, "c"), counts(&folder, "a0"));
}

#[test]
fn rejects_filters_and_duplicates_do_not_count() {
    let folder = folder();
    let mut csv = "id,n\n".to_owned();
    (0..60).for_each(|i| csv.push_str(&format!("{},{i}\n", i % 50)));
    csv.push_str("7,8,9\n");
    folder.write("odd.csv", csv);
    let options = "--shards 4 --even --dedup id --id id --where 'n >= 8' --on-error quarantine";
    let arguments: Vec<String> = format!("convert odd.csv --out odd {options} --json")
        .replace("'n >= 8'", "n>=8")
        .split(' ')
        .map(str::to_owned)
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran: Ran = folder.run_with(&arguments);
    let summary = ran.summary();
    // Of 60 rows, 8 are filtered out, and two of the ids 0 to 9 are there twice after that: 8 and 9.
    let found = ["records_out", "records_rejected", "records_filtered", "records_deduplicated"];
    assert_eq!(found.map(|name| summary[name].as_u64().unwrap()), [50, 1, 8, 2], "{ran:?}");
    let counts = counts(&folder, "odd");
    assert_eq!(counts[""].iter().sum::<u64>(), 50);
    assert!(counts[""].iter().all(|records| [12, 13].contains(records)) && counts[""].len() == 4, "{counts:?}");
}

#[test]
fn too_few_records_are_an_error_and_fewer_shards_are_said() {
    let folder = Folder::new();
    folder.write("few.csv", "id\n1\n2\n3\n4\n5\n");
    folder.run("convert few.csv --out few").ok();
    for command in ["convert few.csv --out x", "reshard few --out x", "convert few.csv --shuffle 1 --out x"] {
        let ran = folder.run(&format!("{command} --shards 8 --even"));
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("expected at least 8 records for 8 even shards, found 5"), "{ran:?}");
    }
    (0..5).for_each(|i| drop(folder.write(&format!("texts/{i}.txt"), "x")));
    let said = folder.run("convert texts --out y --shards 8").ok().stderr;
    assert!(said.contains("--shards 8 gave 5"), "{said}");
    assert_eq!(folder.run("convert few.csv --out z --even").code, 2);
}

#[test]
fn reshard_deals_records_evenly() {
    let folder = folder();
    for (number, form) in FORMS.iter().enumerate() {
        folder.run(&format!("convert {form} --out p{number} --split train=0.7,val=0.3")).ok();
        for options in ["", " --shuffle 3"] {
            let out = format!("r{number}{}", options.len());
            folder.run(&format!("reshard p{number} --out {out} --shards 5 --even{options}")).ok();
            assert_even(&counts(&folder, &out), 2, 5, form);
            folder.run(&format!("verify {out} --read-data")).ok();
        }
    }
}
