//! The dataset card of Hugging Face (`--index hf`), through the command line.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

use crate::support;

use std::fs;

use support::Folder;

const CARD: &str = "shards/README.md";

fn read(folder: &Folder) -> String {
    fs::read_to_string(folder.path().join(CARD)).unwrap()
}

/// Paths that the card lists for a split.
fn listed(folder: &Folder, split: &str) -> Vec<String> {
    let text = read(folder);
    let lines = text.lines().map(str::trim);
    let of_split = lines.skip_while(|line| *line != format!("- split: \"{split}\"")).skip(2);
    let paths = of_split.map_while(|line| line.strip_prefix("- \"")?.strip_suffix('"'));
    let mut out: Vec<String> = paths.map(str::to_owned).collect();
    out.sort();
    out
}

fn live(folder: &Folder) -> Vec<String> {
    let objects = folder.run("manifest --list --json").ok().objects();
    let shards = objects.iter().filter(|object| object["type"] == "shard");
    let mut out: Vec<String> = shards.map(|shard| shard["path"].as_str().unwrap().to_owned()).collect();
    out.sort();
    out
}

fn convert(folder: &Folder, run: u64) {
    let rows: String = (0..20).map(|i| format!("PAT-{},{},{i}\n", i % 5, run * 100 + i)).collect();
    folder.write(&format!("raw/{run}.csv"), format!("patient,n,x\n{rows}"));
    folder.run(&format!("convert raw/{run}.csv --index hf --id n --subject patient")).ok();
}

#[test]
fn the_card_lists_the_live_shards_and_users_lines_are_kept() {
    let folder = Folder::new();
    (1..=2).for_each(|run| convert(&folder, run));
    assert_eq!(listed(&folder, "train"), live(&folder));
    let theirs = read(&folder).replace("---\n# shardify", "---\nlicense: mit\n# shardify") + "# About\n";
    folder.write(CARD, &theirs);
    for command in ["compact --min-inputs 2", "erase shards --subject PAT-3 --all-versions", "compact --sort-by x"] {
        folder.run(command).ok();
        assert_eq!(listed(&folder, "train"), live(&folder), "{command}");
        folder.run("verify").ok();
    }
    let text = read(&folder);
    assert!(text.starts_with("---\nlicense: mit\n# shardify: begin") && text.ends_with("# About\n"), "{text}");
    let sound = folder.run("verify --json").ok().summary();
    assert_eq!(sound["unreferenced"], 0, "{sound}");
    // The card of a run that was killed.
    folder.write(CARD, &theirs);
    let ran = folder.run("verify");
    assert!(ran.code == 1 && ran.stdout.contains("belongs to another version"), "{ran:?}");
    folder.run("compact").ok();
    fs::remove_file(folder.path().join(CARD)).unwrap();
    folder.run("compact").ok();
    assert_eq!(listed(&folder, "train"), live(&folder));
    folder.run("vacuum --retain 0s --force").ok();
    folder.run("verify").ok();
    // The card is no source.
    folder.run("convert shards --out copy").ok();
}

#[test]
fn a_card_of_the_users_is_never_replaced() {
    let folder = Folder::new();
    let mine = "---\nlicense: mit\n---\n# Mine\n";
    folder.write(CARD, mine);
    folder.write("a.csv", "a\n1\n");
    let ran = folder.run("convert a.csv --index hf");
    assert!(ran.code == 2 && ran.stderr.contains("expected no README.md"), "{ran:?}");
    assert_eq!(read(&folder), mine);
    assert!(!folder.path().join("shards/_shardify/log").exists());
    fs::remove_file(folder.path().join(CARD)).unwrap();
    folder.run("convert a.csv --index hf").ok();
    folder.write(CARD, mine);
    folder.write("b.csv", "a\n2\n");
    let ran = folder.run("convert b.csv").ok();
    assert!(ran.stderr.contains("README.md was not written by shardify"), "{ran:?}");
    assert_eq!(read(&folder), mine);
    let ran = folder.run("verify");
    assert!(ran.code == 1 && ran.stdout.contains("README.md"), "{ran:?}");
    // Their own card, with the lines that are replaced.
    folder.write(CARD, "---\n# shardify: begin\n# shardify: end\nlicense: mit\n---\n# Mine\n");
    folder.run("compact").ok();
    assert_eq!(listed(&folder, "train"), live(&folder));
    assert!(read(&folder).ends_with("# shardify: end\nlicense: mit\n---\n# Mine\n"));
    folder.run("verify").ok();
}

#[test]
fn folders_name_splits() {
    let folder = Folder::new();
    folder.write("a.csv", "a\n1\n");
    folder.run("convert a.csv --index hf").ok();
    let shard = folder.path().join("shards").join(&live(&folder)[0]);
    for split in ["test", "not-a-split"] {
        fs::create_dir_all(folder.path().join(format!("new/split={split}"))).unwrap();
        fs::copy(&shard, folder.path().join(format!("new/split={split}/{split}.parquet"))).unwrap();
        let ran = folder.run("adopt new --out shards");
        if split == "test" {
            ran.ok();
            assert_eq!((listed(&folder, "train").len(), listed(&folder, "test").len()), (1, 1));
        } else {
            assert!(ran.code == 6 && ran.stderr.contains("as splits of Hugging Face do"), "{ran:?}");
        }
    }
    folder.run("verify").ok();
}

#[test]
fn tar_shards_have_a_card_unless_they_are_compressed() {
    let folder = Folder::new();
    folder.write("raw/a.txt", "a");
    let ran = folder.run("convert raw --to tar --codec gzip --index hf");
    assert_eq!(ran.code, 2, "{ran:?}");
    folder.run("convert raw --to tar --index dali,hf").ok();
    assert_eq!(listed(&folder, "train"), live(&folder));
    folder.run("verify").ok();
}
