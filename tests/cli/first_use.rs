//! What the program says by itself to people who use it for the first time: about options without effect, inputs that
//! are seldom meant, and results that a loader reads badly.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::process::Command;

use crate::support::Folder;

#[test]
fn options_without_effect_on_a_repeated_run_are_said() {
    let folder = Folder::new();
    folder.write("a.csv", "id,age\n1,31\n2,25\n");
    let first = "convert a.csv --type age=int32 --target-shard 1MiB";
    folder.run(first).ok();
    // The same command can be repeated without a word.
    let again = folder.run(first).ok();
    assert_eq!(again.stderr, "");
    let other = folder.run_with(&["convert", "a.csv", "--target-shard", "2MiB", "--where", "age > 30"]).ok();
    assert!(other.stderr.contains("--target-shard stays 1.0 MiB, not 2.0 MiB"), "{other:?}");
    assert!(other.stderr.contains("not read again, so --where had no effect"), "{other:?}");
    let settings = folder.run("manifest --json").ok().summary();
    assert_eq!(settings["settings"]["target_shard"], 1 << 20);
    for (option, column) in [("--type agee=int64", "age"), ("--dedup agee", "age")] {
        let ran = folder.run(&format!("convert a.csv {option}"));
        assert!(ran.code == 2 && ran.stderr.contains(&format!("there is a column `{column}`")), "{ran:?}");
    }
    assert_eq!(folder.run("convert a.csv --id age").code, 8);
    assert_eq!(folder.run("convert a.csv --columns age").code, 8);
    // A new type for a known column is possible, but nothing is read again.
    let typed = folder.run("convert a.csv --type age=int64").ok();
    assert!(typed.stderr.contains("so --type had no effect"), "{typed:?}");
    // With new sources, a changed target is a change.
    folder.write("b.csv", "id,age\n3,31\n");
    let changed = folder.run("convert a.csv b.csv --target-shard 2MiB").ok();
    assert!(changed.stderr.contains("--target-shard changes from 1.0 MiB to 2.0 MiB"), "{changed:?}");
}

#[test]
fn a_misspelt_type_is_an_error_where_the_columns_are_known_and_said_elsewhere() {
    let folder = Folder::new();
    folder.write("a.csv", "id,age\n1,31\n");
    folder.write("a.tsv", "id\tage\n1\t31\n");
    folder.write("a.jsonl", "{\"id\":1,\"age\":31,\"at\":{\"x\":1}}\n");
    folder.run("convert a.csv --out p").ok();
    folder.write("p.parquet", &folder.only_shards("p")[0].1);
    for source in ["a.csv", "a.tsv", "p.parquet"] {
        let ran = folder.run(&format!("convert {source} --out x --type agee=int64"));
        assert!(ran.code == 2 && ran.stderr.contains("there is a column `age`"), "{source}: {ran:?}");
    }
    let said = folder.run("convert a.jsonl --out y --type agee=int64").ok();
    assert!(said.stderr.contains("no record has the column `agee`, which --type names"), "{said:?}");
    folder.run("convert p.parquet --out z --columns id --type age=int32").ok();
    let nested = folder.run("convert a.jsonl --out w --id at.x").ok();
    assert_eq!(nested.stderr, "");
}

#[test]
fn archives_empty_sources_and_wide_rows_are_told() {
    let folder = Folder::new();
    folder.write("zips/a.zip", "PK\u{3}\u{4}");
    folder.write("zips/b.zip", "PK\u{3}\u{4}");
    let said = folder.run("convert zips --out zipped");
    assert!(said.code == 6 && said.stderr.contains("it is truncated"), "{said:?}");
    folder.write("packs/a.7z", "7z");
    folder.write("packs/b.jpg", "b");
    let said = folder.run("convert packs --out packed").ok();
    assert!(said.stderr.contains("`a.7z`") && said.stderr.contains("unpack it"), "{said:?}");
    assert_eq!(folder.run("convert zips --out meant --from files").ok().stderr, "");
    for (name, content) in [("e.csv", ""), ("h.csv", "a,b\n"), ("e.jsonl", "")] {
        folder.write(name, content);
        let said = folder.run(&format!("convert {name} --out {name}.d")).ok();
        assert!(said.stderr.contains("note: the source has no records"), "{name}: {said:?}");
    }
    folder.write("a.csv", "a,b,c\n1,2,3\n");
    let said = folder.run("convert a.csv --to tar --write rows=parts --out parts").ok();
    assert!(said.stderr.contains("each of the 3 values of a row") && said.stderr.contains("3.0 KiB"), "{said:?}");
    assert_eq!(folder.run("convert a.csv --to tar --write rows=json --out json").ok().stderr, "");
}

#[test]
fn too_few_shards_for_the_workers_of_a_loader_are_told_with_a_command_that_makes_more() {
    let folder = Folder::new();
    for sample in 0..120 {
        folder.write(&format!("raw/{sample:03}.txt"), format!("{sample:0>1000}"));
    }
    let said = folder.run("convert raw --out few").ok();
    assert!(said.stderr.contains("the dataset has 1 shard") && said.stderr.contains("--shards 8"), "{said:?}");
    let dataset = folder.path().join("few").display().to_string();
    folder.run(&format!("reshard {dataset} --shards 8 --out cut")).ok();
    assert_eq!(folder.only_shards("cut").len(), 8);
    assert_eq!(folder.run("convert raw --out many --shards 8").ok().stderr, "");
    assert_eq!(folder.run("convert raw --out meant --target-shard 128MiB").ok().stderr, "");
    let divided = folder.run("convert raw --out divided --split train=0.5,val=0.5").ok();
    let target = divided.stderr.split("--target-shard ").nth(1).unwrap().split('`').next().unwrap();
    let parts =
        folder.run(&format!("convert raw --out parts --split train=0.5,val=0.5 --target-shard {target} --json"));
    for split in parts.ok().summary()["splits"].as_array().unwrap() {
        assert!(split["shards"].as_u64().unwrap() >= 8, "{split}");
    }
}

#[test]
fn inspect_names_problems_and_the_settings_of_a_dataset() {
    let folder = Folder::new();
    for name in ["cat/1", "cat/2", "dog/1"] {
        folder.write(&format!("pets/{name}.jpg"), [0xff, 0xd8, 0xff, 0xe0]);
    }
    let shown = folder.run("inspect pets").ok().stdout;
    assert!(shown.contains("problems\n") && shown.contains("no labels: --label-from-folder"), "{shown}");
    assert!(shown.contains("3 of 3 files are small"), "{shown}");
    folder.write("pets/cat/1.txt", "a cat");
    folder.write("pets/empty.txt", "");
    folder.write("pets/more.7z", "7z");
    folder.write("pets/cut.zip", "PK\u{3}\u{4}");
    let shown = folder.run("inspect pets").ok().stdout;
    for problem in ["lack a part that others have", "`empty.txt`: empty", "`more.7z`: archives", "it is truncated"] {
        assert!(shown.contains(problem), "{problem}: {shown}");
    }
    folder.write("a.csv", "patient_id,visit_id\nA,1\nA,1\n");
    let shown = folder.run("inspect a.csv --json").ok().summary();
    assert!(shown["problems"][0].as_str().unwrap().contains("`visit_id` looks like an id and repeats"), "{shown}");
    folder.write("b.csv", "id,who\n1,x\n2,y\n3,z\n");
    folder.run("convert b.csv --id id --subject who --split train=0.5,val=0.5 --shuffle 7 --dedup id").ok();
    let shown = folder.run("inspect shards").ok().stdout;
    for setting in
        ["record id  id", "subject    who", "train=0.5", "shuffled with seed 7", "by id", "target     128 MiB"]
    {
        assert!(shown.contains(setting), "{setting}: {shown}");
    }
    let summary = folder.run("inspect shards --json").ok().summary();
    assert_eq!(summary["settings"]["shuffle"], 7);
}

#[test]
fn progress_is_an_object_a_line_with_json() {
    let folder = Folder::new();
    let rows: String = (0..400_000).map(|row| format!("{row},{},{row}\n", row * 7)).collect();
    folder.write("a.csv", format!("a,b,c\n{rows}"));
    let ran = folder.run("convert a.csv --json --progress always -j 1 --codec zstd:19").ok();
    let lines: Vec<serde_json::Value> = ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        assert_eq!(line["type"], "progress");
        assert!(line["phase"].is_string() && line["bytes"].is_u64() && line["records"].is_u64(), "{line}");
    }
}

#[test]
fn a_store_without_credentials_says_which_ones_are_looked_for() {
    let folder = Folder::new();
    let run = |url: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardify"));
        for (name, _) in std::env::vars() {
            if ["AWS_", "GOOGLE_"].iter().any(|cloud| name.starts_with(cloud)) {
                command.env_remove(name);
            }
        }
        let output = command.args(["convert", url]).env("HOME", folder.path()).current_dir(folder.path()).output();
        let output = output.unwrap();
        assert!(matches!(output.status.code(), Some(2 | 5)), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run("s3://bucket/x");
    assert!(said.contains("AWS_ACCESS_KEY_ID") && said.contains("AWS_PROFILE"), "{said}");
    let said = run("gs://bucket/x");
    assert!(said.contains("GOOGLE_SERVICE_ACCOUNT"), "{said}");
}

#[test]
fn a_dataset_below_a_file_or_in_a_folder_that_cannot_be_made_is_an_error_that_names_it() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n");
    for out in ["a.csv/x", "a.csv/x/y"] {
        let ran = folder.run(&format!("convert a.csv --out {out}"));
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("expected a folder, found a file\n") && ran.stderr.contains("/a.csv\n"), "{ran:?}");
    }
}

#[test]
fn an_id_that_repeats_beyond_the_sample_is_not_suggested() {
    let folder = Folder::new();
    let rows: String = (0..200_000).map(|n| format!("{},{n},some words that fill the line\n", n % 150_000)).collect();
    folder.write("a.csv", format!("county_id,row_id,text\n{rows}"));
    let summary = folder.run("inspect a.csv --json").ok().summary();
    assert_eq!((&summary["id"], &summary["id_unique_in"]), (&"row_id".into(), &200_000.into()), "{summary}");
    assert!(summary["advice"].as_str().unwrap().ends_with("`row_id` is unique in all 200,000 records"));
}
