//! Workbooks as tables: their sheets are converted and shown, and what is not read of them is told. Without the feature
//! `excel` they are refused by name.

use crate::support;

use support::{Folder, Ran};

fn folder_with(names: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    names.iter().for_each(|(from, to)| folder.copy(&format!("excel/{from}"), to));
    folder
}

fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, 6, "{}\n{}", ran.stdout, ran.stderr);
    words.iter().for_each(|word| assert!(ran.stderr.contains(word), "{word}\n{}", ran.stderr));
}

#[cfg(not(feature = "excel"))]
#[test]
fn builds_without_the_feature_say_so() {
    let folder = folder_with(&[("temperature.xlsx", "t.xlsx"), ("date.xls", "d.xls")]);
    for name in ["t.xlsx", "d.xls", "."] {
        refused(&folder.run(&format!("convert {name} --out d")), &["--features excel", "--from files"]);
    }
    // Beside pictures it is a part of a sample.
    folder.write("p/a.jpg", "x");
    folder.copy("excel/temperature.xlsx", "p/a.xlsx");
    assert_eq!(folder.run("convert p --out p-out --json").ok().summary()["records_out"], 1);
    let ran = folder.run("convert t.xlsx --from excel --out d");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("expected a build with the feature `excel`"), "{}", ran.stderr);
    assert_eq!(folder.run("convert t.xlsx --from files --out f --json").ok().summary()["records_out"], 1);
}

#[cfg(feature = "excel")]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod with_feature {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn a_sheet_becomes_shards_of_every_format() {
        let folder = folder_with(&[("temperature.xlsx", "t.xlsx")]);
        for format in ["parquet", "tar", "tfrecord"] {
            let ran = folder.run(&format!("convert t.xlsx --to {format} --id label --out {format} --json")).ok();
            assert_eq!(ran.summary()["records_out"], 2, "{format}");
            let found = folder.run(&format!("manifest {format} --find fahrenheit")).ok();
            assert!(found.stdout.contains("t.xlsx row 2"), "{}", found.stdout);
            let again = folder.run(&format!("convert t.xlsx --to {format} --id label --out {format}")).ok();
            assert!(again.stdout.contains("nothing to do") || again.stderr.contains("nothing to do"), "{again:?}");
        }
        let back = folder.run("head parquet").ok().stdout;
        assert!(back.contains("celsius") && back.contains("22.2222"), "{back}");
    }

    #[test]
    fn workbooks_are_known_by_their_content() {
        let folder =
            folder_with(&[("temperature.xlsx", "t.data"), ("date.xlsb", "b.xlsx"), ("merged_cells.ods", "m.ods")]);
        let head = folder.run("head t.data --json").ok();
        assert!(head.stdout.contains("celsius"), "{}", head.stdout);
        let inspected = folder.run("inspect t.data").ok().stdout;
        assert!(inspected.contains("excel") && inspected.contains("2 records"), "{inspected}");
        let bytes = std::fs::read(folder.path().join("t.data")).unwrap();
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&bytes).unwrap();
        folder.write("t.xlsx.gz", packed.finish().unwrap());
        assert_eq!(folder.run("convert t.xlsx.gz --out z --json").ok().summary()["records_out"], 2);
        let ran = folder.run_input(&["convert", "-", "--from", "excel", "--out", "s", "--json"], &bytes).ok();
        assert_eq!(ran.summary()["records_out"], 2);
        let ran = folder.run("convert b.xlsx --read header=no --out b --json").ok();
        assert_eq!(ran.summary()["records_out"], 3);
    }

    #[test]
    fn the_header_and_the_sheet_can_be_named() {
        let folder = folder_with(&[("date.xlsx", "d.xlsx"), ("temperature.xlsx", "t.xlsx")]);
        refused(
            &folder.run("convert d.xlsx --out d"),
            &["A1 of the sheet `Sheet1`", "--read header=no", "--read skip=N"],
        );
        let ran = folder.run("convert d.xlsx --read header=no --read skip=1 --out d --json").ok();
        assert_eq!(ran.summary()["records_out"], 2);
        refused(
            &folder.run("convert t.xlsx --read sheet=Other --out o"),
            &["expected the sheet `Other`, found `Sheet1`"],
        );
        folder.write("t.csv", "a,b\n1,2\n");
        let unused = folder.run("convert t.csv --read sheet=S --out u").ok();
        assert!(unused.stderr.contains("--sheet has no effect: it is for Excel"), "{}", unused.stderr);
    }

    #[test]
    fn rows_that_do_not_fit_a_given_type_are_told_by_their_row_in_the_sheet() {
        let folder = folder_with(&[("temperature.xlsx", "t.xlsx")]);
        let ran = folder.run("convert t.xlsx --type label=int64 --out d");
        refused(&ran, &["row 2 of the sheet `Sheet1`", "celsius"]);
        let ran = folder.run("convert t.xlsx --type value=int64 --on-error quarantine --out q --json");
        assert_eq!(
            (ran.code, ran.summary()["records_out"].clone(), ran.summary()["records_rejected"].clone()),
            (3, 1.into(), 1.into())
        );
    }

    #[test]
    fn damaged_and_encrypted_workbooks_are_refused_by_name() {
        let folder = folder_with(&[
            ("refused/pass_protected.xlsx", "p.xlsx"),
            ("refused/pass_protected.ods", "p.ods"),
            ("refused/issue_594_dos.ods", "dos.ods"),
            ("temperature.xlsx", "good/t.xlsx"),
        ]);
        for name in ["p.xlsx", "p.ods"] {
            refused(&folder.run(&format!("convert {name} --out d")), &["found an encrypted one", name]);
        }
        refused(&folder.run("convert dos.ods --read header=no --out d"), &["dos.ods", "cells that repeat others"]);
        let bytes = std::fs::read(folder.path().join("good/t.xlsx")).unwrap();
        folder.write("good/cut.xlsx", &bytes[..bytes.len() / 2]);
        refused(&folder.run("convert good --out d"), &["good/cut.xlsx", "truncated"]);
        let ran = folder.run("convert good --on-error quarantine --out d --json");
        assert_eq!((ran.code, ran.summary()["records_out"].clone()), (3, 2.into()));
        folder.write("text.xlsx", "id,name\n1,a\n2,b\n");
        let ran = folder.run("convert text.xlsx --out e").ok();
        assert!(ran.stderr.contains("is named as a workbook but contains csv"), "{}", ran.stderr);
    }

    #[test]
    fn a_workbook_beside_pictures_may_have_their_labels() {
        let folder = folder_with(&[("temperature.xlsx", "p/labels.xlsx")]);
        folder.write("p/celsius.jpg", "x");
        let ran = folder.run("convert p --out d");
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("--labels") && ran.stderr.contains("--from files"), "{}", ran.stderr);
    }

    #[test]
    fn equal_books_in_two_folders_are_two_sources() {
        let folder = folder_with(&[("temperature.xlsx", "a/t.xlsx"), ("temperature.xlsx", "b/t.xlsx")]);
        let ran = folder.run("convert a b --out d --jobs 8 --json").ok();
        assert_eq!(ran.summary()["records_out"], 4);
        let chosen = folder.run("convert a --out c --columns value --where value>50 --json").ok();
        assert_eq!(chosen.summary()["records_out"], 1);
    }
}
