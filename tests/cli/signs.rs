//! Files beside shards of older versions, over which readers of the whole folder trip.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and look at files")]

use crate::support::Folder;

const NAMES: [&str; 2] =
    ["READ-LIVE-SHARDS-ONLY.parquet", "READ-LIVE-SHARDS-ONLY.run-shardify-manifest-list-paths.parquet"];

/// Paths of the signs in a dataset, sorted.
fn signs(folder: &Folder, dataset: &str) -> Vec<String> {
    let root = folder.path().join(dataset);
    let (mut found, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(next) = folders.pop() {
        for path in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains("READ-LIVE") {
                found.push(path.strip_prefix(&root).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

fn visits(folder: &Folder, dataset: &str, options: &str) {
    for day in 0..6 {
        folder.write("in/day.csv", format!("id,who\n{day}a,P{day}\n{day}b,P1\n"));
        folder
            .run(&format!("convert in/day.csv --out {dataset} --id id --subject who --on-changed append{options}"))
            .ok();
    }
}

#[test]
fn signs_come_with_older_shards_and_go_with_them() {
    let folder = Folder::new();
    visits(&folder, "ds", "");
    assert_eq!(signs(&folder, "ds"), [""; 0], "nothing was replaced yet");
    folder.run("compact ds").ok();
    let found = signs(&folder, "ds");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(NAMES.iter().zip(&found).all(|(name, path)| path.ends_with(name)), "{found:?}");
    // They are neither records nor left over, for this dataset and for whoever reads it.
    let verified = folder.run("verify ds --read-data").ok();
    assert!(!verified.stdout.contains("left over"), "{verified:?}");
    let summary = folder.run("convert ds --out copy --json").ok();
    assert_eq!(summary.summary()["records_out"], 12, "{summary:?}");
    assert!(!summary.stderr.contains("READ-LIVE"), "{summary:?}");
    assert_eq!(folder.run("report ds --json").ok().summary()["records"], 12);
    // While an older version is kept, so are they.
    folder.run("manifest ds --tag kept --at v2").ok();
    folder.run("vacuum ds --retain 0s --force").ok();
    assert_eq!(signs(&folder, "ds"), found);
    folder.run("manifest ds --untag kept").ok();
    let dry = folder.run("vacuum ds --retain 0s --force --dry-run -v").ok();
    assert!(dry.stdout.contains("READ-LIVE-SHARDS-ONLY"), "{dry:?}");
    folder.run("vacuum ds --retain 0s --force").ok();
    assert_eq!(signs(&folder, "ds"), [""; 0]);
    assert!(folder.run("vacuum ds --retain 0s --force").ok().stdout.contains("nothing to delete"));
}

#[test]
fn each_partition_has_signs_and_other_formats_none() {
    let folder = Folder::new();
    visits(&folder, "split", " --split train=0.5,val=0.5 --split-by id");
    folder.run("compact split --min-inputs 2").ok();
    let found = signs(&folder, "split");
    assert!(found.iter().any(|path| path.contains("/split=train/")), "{found:?}");
    assert!(found.iter().any(|path| path.contains("/split=val/")), "{found:?}");
    visits(&folder, "tar", " --to tar");
    folder.run("compact tar").ok();
    assert_eq!(signs(&folder, "tar"), [""; 0]);
}

#[test]
fn a_file_of_somebody_else_with_such_a_name_stays() {
    let folder = Folder::new();
    visits(&folder, "ds", "");
    folder.run("compact ds").ok();
    let path = folder.path().join("ds").join(&signs(&folder, "ds")[0]);
    std::fs::write(&path, "mine").unwrap();
    folder.run("vacuum ds --retain 0s --force").ok();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn an_erasure_leaves_a_sign_beside_what_it_replaced() {
    let folder = Folder::new();
    visits(&folder, "ds", "");
    folder.run("erase ds P1").ok();
    assert_eq!(signs(&folder, "ds").len(), 2);
    assert_eq!(folder.run("manifest ds").ok().stdout.lines().filter(|line| line.contains("older")).count(), 1);
}
