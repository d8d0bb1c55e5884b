//! Samples and sources have subjects by their paths or by a table: found, erased and kept out by them.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use support::Folder;

const PATTERN: &str = "--subject-from-path scans/{subject}/*";

/// Two scans with labels of each of three people.
fn scans(folder: &Folder) {
    for person in ["PAT-1", "PAT-2", "PAT-3"] {
        for scan in 1..=2 {
            folder.write(&format!("scans/{person}/{scan}.ima"), format!("scan {scan} of {person}"));
            folder.write(&format!("scans/{person}/{scan}.json"), format!("{{\"n\":{scan}}}"));
        }
    }
}

fn found(folder: &Folder, id: &str) -> usize {
    let found = folder.run(&format!("manifest --find {id} --json"));
    found.stdout.matches("\"source\"").count()
}

#[test]
fn a_persons_scans_are_found_erased_and_kept_out() {
    for (to, source) in [("tar", "scans"), ("parquet", "."), ("tfrecord", "scans/PAT-*/*")] {
        let folder = Folder::new();
        scans(&folder);
        let told = folder.run(&format!("convert {source} --to {to} {PATTERN}")).ok();
        assert!(told.stderr.contains("found subject ids for 6 samples"), "{}", told.stderr);
        assert_eq!(found(&folder, "PAT-2"), 2, "{to}");
        assert_eq!(found(&folder, "PAT-4"), 0, "{to}");
        folder.run("verify --read-data").ok();
        // The dataset knows the pattern from now on.
        folder.write("scans/PAT-2/3.ima", "a late scan");
        folder.write("scans/PAT-4/1.ima", "a new patient");
        folder.run(&format!("convert {source}")).ok();
        assert_eq!((found(&folder, "PAT-2"), found(&folder, "PAT-4")), (3, 1), "{to}");
        folder.run("compact --min-inputs 2").ok();
        assert_eq!((found(&folder, "PAT-2"), found(&folder, "PAT-4")), (3, 1), "{to}");
        let plan = folder.run("erase shards PAT-2 --all-versions --dry-run --json").ok();
        assert_eq!(plan.summary()["records_erased"], 3, "{to}");
        folder.run("erase shards PAT-2 --all-versions").ok();
        folder.run("verify --read-data").ok();
        folder.write("scans/PAT-2/4.ima", "a scan after the erasure");
        folder.write("scans/PAT-2/4.json", "{}");
        folder.write("scans/PAT-5/1.ima", "another");
        let again = folder.run(&format!("convert {source}")).ok();
        assert!(
            again.stderr.contains("erased") || again.stdout.contains("erased"),
            "{} {}",
            again.stdout,
            again.stderr
        );
        assert_eq!((found(&folder, "PAT-2"), found(&folder, "PAT-5")), (0, 1), "{to}");
        assert_eq!(folder.run("manifest --json").ok().summary()["records"], 6, "{to}");
    }
}

#[test]
fn what_has_no_subject_stops_a_run_unless_that_is_meant() {
    let folder = Folder::new();
    scans(&folder);
    folder.write("scans/notes.txt", "about");
    let refused = folder.run(&format!("convert scans {PATTERN}"));
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("expected a subject of the sample `notes`, found none"), "{}", refused.stderr);
    let told = folder.run(&format!("convert scans {PATTERN} --accept subjects")).ok();
    assert!(told.stderr.contains("; 1 have none"), "{}", told.stderr);
    let wrong = folder.run("convert scans --out other --subject-from-path scans/*");
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("{subject}"), "{}", wrong.stderr);
    // Another pattern is another meaning of subject ids.
    folder.write("scans/PAT-9/1.ima", "x");
    let changed = folder.run("convert scans --subject-from-path {subject}/* --exclude notes*");
    assert_eq!(changed.code, 8, "{}", changed.stderr);
    assert!(changed.stderr.contains("created with --subject-from-path scans/{subject}/*"), "{}", changed.stderr);
    // Whom adopted shards are about nobody knows.
    folder.run("convert scans --out plain --index none").ok();
    let refused = folder.run("adopt plain --out shards");
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("which shards to adopt do not have"), "{}", refused.stderr);
}

#[test]
fn a_table_says_whom_samples_are_about() {
    let folder = Folder::new();
    scans(&folder);
    folder.write(
        "scans/people.csv",
        "path,subject,note\nPAT-1/1,007,a\nPAT-1/2.ima,007,b\nPAT-2/1,08,\nPAT-2/2,08,\nscans/PAT-3/1.ima,\
         9,\nPAT-3/2,9,\n",
    );
    let told = folder.run("convert scans --subject-table scans/people.csv").ok();
    assert!(told.stderr.contains("found subject ids for 6 samples"), "{}", told.stderr);
    assert_eq!((found(&folder, "007"), found(&folder, "7"), found(&folder, "9")), (2, 0, 2));
    folder.write("scans/PAT-4/1.ima", "new");
    let refused = folder.run("convert scans");
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("expected --subject-table"), "{}", refused.stderr);
    let refused = folder.run("convert scans --subject-table scans/people.csv");
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("expected a subject of the sample `PAT-4/1`"), "{}", refused.stderr);
    folder.write(
        "people.jsonl",
        "{\"who\":\"P4\",\"file_name\":\"PAT-4/1.ima\"}\n{\"who\":\"P4\",\"file_name\":\"x.ima\"}\n",
    );
    folder.run("convert scans --subject-table people.jsonl --subject who --exclude people.csv").ok();
    assert_eq!(found(&folder, "P4"), 1);
}

#[test]
fn a_table_that_may_mean_two_things_is_refused() {
    let folder = Folder::new();
    scans(&folder);
    folder.write("short.csv", "key,subject\n1,x\n2,y\n");
    let refused = folder.run("convert scans --subject-table short.csv");
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("`1`, which matches `PAT-1/1` and `PAT-2/1`"), "{}", refused.stderr);
    folder.write("twice.csv", "path,subject\nPAT-1/1,x\nPAT-1/1,y\n");
    let refused = folder.run("convert scans --subject-table twice.csv");
    assert!(refused.code == 6 && refused.stderr.contains("found `x` and `y`"), "{}", refused.stderr);
    folder.write("parts.csv", "path,subject\nPAT-1/1.ima,x\nPAT-1/1.json,y\n");
    let refused = folder.run("convert scans --subject-table parts.csv --accept subjects");
    assert!(refused.code == 6 && refused.stderr.contains("expected one subject of the sample"), "{}", refused.stderr);
    folder.write("none.csv", "a,b,c\n1,2,3\n");
    let refused = folder.run("convert scans --subject-table none.csv");
    assert!(refused.code == 2 && refused.stderr.contains("found a, b, c"), "{}", refused.stderr);
    let refused = folder.run("convert scans --subject-table missing.csv");
    assert!(refused.code != 0 && refused.stderr.contains("missing.csv"), "{}", refused.stderr);
}

#[test]
fn tables_and_archives_of_people_have_subjects_too() {
    let folder = Folder::new();
    for person in ["PAT-1", "PAT-2"] {
        folder.write(&format!("people/{person}/visits.csv"), "day,pulse\n1,70\n2,80\n");
    }
    folder.run("convert people --subject-from-path {subject}/*.csv").ok();
    assert_eq!(found(&folder, "PAT-1"), 2);
    folder.run("verify --read-data").ok();
    folder.run("erase shards PAT-1 --all-versions").ok();
    folder.write("people/PAT-1/later.csv", "day,pulse\n3,70\n");
    folder.write("people/PAT-3/visits.csv", "day,pulse\n3,70\n");
    folder.run("convert people").ok();
    assert_eq!((found(&folder, "PAT-1"), found(&folder, "PAT-3")), (0, 1));
    // Of an archive the samples' own names tell, or its name tells for all.
    let folder = Folder::new();
    scans(&folder);
    folder.run("convert scans --out made --index none").ok();
    let (_, tar) = folder.only_shards("made").remove(0);
    folder.write("all.tar", &tar);
    folder.write("by/PAT-7.tar", &tar);
    folder.run("convert all.tar --out a --subject-from-path {subject}/*").ok();
    let json = folder.run("manifest a --find PAT-3 --json").ok();
    assert_eq!(json.stdout.matches("\"source\"").count(), 2);
    folder.run("convert by --out b --subject-from-path by/{subject}.tar").ok();
    let json = folder.run("manifest b --find PAT-7 --json").ok();
    assert_eq!(json.stdout.matches("\"source\"").count(), 6);
    let refused = folder.run("convert all.tar --out c --subject-from-path x-{subject}/*");
    assert!(
        refused.code == 6 && refused.stderr.contains("expected a subject of the sample `PAT-1/1`"),
        "{}",
        refused.stderr
    );
}

#[test]
fn private_subjects_are_not_told() {
    let folder = Folder::new();
    scans(&folder);
    folder.write("key", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
    let told = folder
        .run(&format!("convert scans {PATTERN} --id-mode hmac --id-key key --redact-source-paths --to parquet"))
        .ok();
    assert!(!told.stderr.contains("PAT-"), "{}", told.stderr);
    let json = folder.run("manifest --find PAT-3 --id-key key --json").ok();
    assert_eq!(json.stdout.matches("\"source\"").count(), 2);
    let mut files = vec![folder.path().join("shards/_shardify")];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(4).any(|window| window == b"PAT-"), "{}", path.display());
        }
    }
}
