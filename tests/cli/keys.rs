//! Where the keys of samples of files end: `--key`, the dataset that keeps it, and the commands that derive files from
//! keys.

use crate::support::{Folder, Ran};

fn scans(folder: &Folder, source: &str) {
    for number in 0..40 {
        folder.write(&format!("{source}/1.2.840.113619.2.55.3.{number}.dcm"), format!("scan {number}").as_bytes());
    }
}

#[track_caller]
fn refused(ran: Ran, code: i32, texts: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    for text in texts {
        assert!(ran.stderr.contains(text), "expected `{text}` in {}", ran.stderr);
    }
}

#[test]
fn names_with_dots_are_samples_of_their_own() {
    let folder = Folder::new();
    scans(&folder, "in");
    // By the usual rule they are one sample, which is told.
    let told = folder.run("convert in --out one --to tar").ok();
    assert!(
        told.stderr.contains(
            "40 files, such as `1.2.840.113619.2.55.3.0.dcm` and `1.2.840.113619.2.55.3.1.dcm`, become one sample, `1`"
        ),
        "{told:?}"
    );
    assert!(folder.run("inspect in").ok().stderr.contains("become one sample, `1`"));
    for to in ["tar", "tfrecord", "parquet"] {
        let from = format!("for-{to}");
        scans(&folder, &from);
        let ran = folder.run(&format!("convert {from} --out {to} --to {to} --key last-dot --json")).ok();
        assert_eq!(ran.summary()["records_out"], 40);
        assert!(!ran.stderr.contains("become one sample"), "{ran:?}");
        let found = folder.run(&format!("manifest {to} --find 1.2.840.113619.2.55.3.7 --json")).ok();
        assert!(found.stdout.contains("1.2.840.113619.2.55.3.7.dcm"), "{found:?}");
        // A later run needs no option, and refuses another rule.
        folder.write(&format!("{from}/1.2.840.113619.2.55.3.99.dcm"), b"another");
        assert_eq!(folder.run(&format!("convert {from} --out {to} --json")).ok().summary()["records_out"], 1);
        refused(
            folder.run(&format!("convert {from} --out {to} --key first-dot")),
            2,
            &["created with --key 'last-dot'"],
        );
        assert!(folder.run(&format!("manifest {to}")).ok().stdout.contains("last-dot"));
        // Erased is one sample, with its file.
        let erased = folder.run(&format!("erase {to} 1.2.840.113619.2.55.3.7 --json")).ok().summary();
        assert_eq!(erased["records_erased"], 1);
        let removed = folder.run(&format!("remove {to} --source 1.2.840.113619.2.55.3.8.dcm --json")).ok().summary();
        assert_eq!(removed["records"], 1, "{removed}");
        assert_eq!(folder.run(&format!("verify {to} --read-data --json")).ok().summary()["records"], 39);
        // The erased file does not come back, and the removed one does.
        let again = folder.run(&format!("convert {from} --out {to} --json")).ok().summary();
        assert_eq!((&again["records_out"], &again["sources_erased"]), (&1.into(), &1.into()), "{again}");
    }
    let members = folder.members("tar");
    assert!(members.contains_key("1%2E2%2E840%2E113619%2E2%2E55%2E3%2E39.dcm"), "{members:?}");
}

#[test]
fn a_pattern_makes_samples_of_folders_and_of_words() {
    let folder = Folder::new();
    for (path, text) in [
        ("in/P1/scan.dcm", "a"),
        ("in/P1/report.txt", "b"),
        ("in/P2/scan.dcm", "c"),
        ("in/P2/report.txt", "d"),
        ("flat/P1_image.png", "e"),
        ("flat/P1_mask.png", "f"),
        ("flat/P2_image.png", "g"),
        ("flat/P2_mask.png", "h"),
    ] {
        folder.write(path, text.as_bytes());
    }
    let of = |source: &str, rule: &str, task: &str| {
        let out = format!("{source}-out{}", task.len());
        let ran = folder.run(&format!("convert {source} --out {out} --to tar --key {rule} {task} --json")).ok();
        assert_eq!(ran.summary()["records_out"], 2, "{ran:?}");
        folder.members(&out).into_keys().collect::<Vec<_>>()
    };
    for task in ["", "--task-size 1KiB"] {
        assert_eq!(of("in", "^([^/]+)/", task), ["P1.report.txt", "P1.scan.dcm", "P2.report.txt", "P2.scan.dcm"]);
        let flat = ["P1.image.png", "P1.mask.png", "P2.image.png", "P2.mask.png"];
        assert_eq!(of("flat", "([^_/]+)_", task), flat);
    }
    folder.write("in/notes.md", b"no folder");
    refused(
        folder.run("convert in --out other --key ^([^/]+)/"),
        6,
        &["expected a path with a key by --key '^([^/]+)/', found `notes.md`", "--exclude"],
    );
    refused(folder.run("convert in --out other --key ("), 2, &["regular expression"]);
    folder.write("rows.csv", b"a,b\n1,2\n");
    refused(folder.run("convert rows.csv --out other --key last-dot"), 2, &["expected files for --key"]);
}

#[test]
fn options_that_are_seldom_meant_are_told() {
    let folder = Folder::new();
    folder.write("rows.csv", b"a,b\n1,2\n");
    refused(folder.run("convert rows.csv --out a --target-shard 1"), 2, &["at least 1.0 KiB", "--records-per-shard"]);
    let told = folder.run("convert rows.csv --out b --memory 10MB").ok();
    assert!(told.stderr.contains("is less than a run takes at least"), "{told:?}");
    let told = folder.run("convert rows.csv --out c --to tar --codec zstd").ok();
    assert!(told.stderr.contains("webdataset reads .tar and .tar.gz"), "{told:?}");
}
