//! Delimited text that is not clean: what is a record, what is told, and what stops the run.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use support::Folder;

fn count(summary: &serde_json::Value, name: &str) -> u64 {
    summary[name].as_u64().unwrap()
}

#[test]
fn a_first_record_with_text_in_columns_of_numbers_is_found_by_its_id() {
    let folder = Folder::new();
    let rest: String = (2..200).map(|i| format!("PAT-{i:05},{i}.5,{}\n", 40 + i)).collect();
    for (number, first) in ["<0.3,>90", "pending,pending", "10%,5%", "NA,NA"].into_iter().enumerate() {
        folder.write("lab.csv", format!("patient,crp,gfr\nPAT-00001,{first}\n{rest}"));
        for (more, out) in [("--subject patient", "s"), ("--type crp=text --type gfr=text --id patient", "t")] {
            let out = format!("{out}{number}");
            let ran = folder.run(&format!("convert lab.csv {more} --out {out} --json")).ok();
            assert_eq!(count(&ran.summary(), "records_out"), 199, "{first}");
            folder.run(&format!("manifest {out} --find PAT-00001")).ok();
        }
    }
}

#[test]
fn quotes_far_apart_swallow_no_records() {
    let folder = Folder::new();
    // Larger than what is looked at before reading.
    let table = |first: &str, second: &str, last: &str| {
        let value = |i: u32| match i {
            15_000 => first.to_owned(),
            25_000 => second.to_owned(),
            _ => format!("note {i}"),
        };
        let rows: String = (0..30_000).map(|i| format!("{i}\tname {i}\t{}\t0.5\n", value(i))).collect();
        format!("id\tname\tnote\tx\n{rows}{last}")
    };
    for (number, (first, second)) in [
        ("\"open quote", "plain"),
        ("\"open quote", "\"open quote"),
        ("\"A friend\" of Bob", "5\" pipe"),
        ("\"open quote", "close quote\""),
    ]
    .into_iter()
    .enumerate()
    {
        folder.write("a.tsv", table(first, second, ""));
        let ran = folder.run(&format!("convert a.tsv --id id --to tar --out o{number} --json")).ok();
        assert_eq!(count(&ran.summary(), "records_out"), 30_000, "{first} {second}");
        assert!(ran.stderr.contains("was read as a character"), "{}", ran.stderr);
        let members = folder.members(&format!("o{number}"));
        for value in [first, second] {
            let text = serde_json::to_string(value).unwrap();
            let found = members.values().filter(|json| String::from_utf8_lossy(json).contains(&text)).count();
            assert_eq!(found, 1 + usize::from(first == second), "{value}");
        }
    }
    // If a line does not fit, nothing is guessed.
    folder.write("a.tsv", table("\"A friend\" of Bob", "plain", "30000\tname\tnote\t0.5\tmore\n"));
    let refused = folder.run("convert a.tsv --out refused");
    assert!(refused.code == 6 && refused.stderr.contains("a.tsv, line 15002"), "{refused:?}");
}

#[test]
fn skipped_lines_are_counted_and_quoted_and_can_be_turned_off() {
    let folder = Folder::new();
    folder.write("a.csv", "Report of the office\nid,day,rain\n1,2024-01-01,0.5\n2,2024-01-02,1.5\n3,2024-01-03,2.5\n");
    let ran = folder.run("convert a.csv --out a --json").ok();
    assert_eq!((count(&ran.summary(), "records_in"), count(&ran.summary(), "lines_skipped")), (3, 1));
    assert!(ran.stderr.contains("`Report of the office`"), "{ran:?}");
    let plain = folder.run("convert a.csv --read tidy=no --read delimiter=, --out b");
    assert!(plain.code == 6 && plain.stderr.contains("a.csv, line 2"), "{plain:?}");
    let wrong = folder.run("convert a.csv --read neat=yes --out c");
    assert!(wrong.code == 2 && wrong.stderr.contains("tidy"), "{wrong:?}");
    let wrong = folder.run("convert a.csv --read tidy=maybe --out c");
    assert!(wrong.code == 2 && wrong.stderr.contains("tidy=yes or no"), "{wrong:?}");
}

#[test]
fn row_labels_without_a_name_are_a_column() {
    let folder = Folder::new();
    let head = "Ad,Media\nVisit,9806,13104\nSign-up,3065,6096\nSelection,1763,3130\n";
    folder.write("a.csv", head);
    let ran = folder.run("convert a.csv --out a --json").ok();
    assert_eq!(count(&ran.summary(), "records_out"), 3);
    let names: Vec<_> = ran.summary()["columns"].as_array().unwrap().iter().map(|c| c[0].clone()).collect();
    assert_eq!(names, ["column_1", "Ad", "Media"]);
    // Far below, a record without a label would shift its values.
    let rows: String = (0..300).map(|i| format!("row {i},{i},{i}\n")).collect();
    folder.write("a.csv", format!("{head}{rows}1,2\n"));
    let refused = folder.run("convert a.csv --out b");
    assert!(refused.code == 6 && refused.stderr.contains("expected 3 fields, found 2"), "{refused:?}");
}
