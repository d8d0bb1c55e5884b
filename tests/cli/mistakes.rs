//! Mistakes of people who use the program for the first time.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support::Folder;

#[test]
fn no_suggestion_deletes_anything() {
    let folder = Folder::new();
    for command in ["create", "merge", "serve", "erasee", "vacum", "delete"] {
        let ran = folder.run(command);
        assert_eq!(ran.code, 2, "{ran:?}");
        for deletes in ["erase'", "remove'", "revert'", "vacuum'"] {
            assert!(!ran.stderr.contains(&format!("'{deletes}")), "{command}: {}", ran.stderr);
        }
    }
    for (command, meant) in
        [("create", "convert"), ("merge", "compact"), ("ls", "manifest"), ("info", "inspect"), ("split", "reshard")]
    {
        let ran = folder.run(command);
        assert!(ran.stderr.contains(&format!("shardify {meant} ")), "{command}: {}", ran.stderr);
    }
    let ran = folder.run("convertt");
    assert!(ran.stderr.contains("'convert'"), "{}", ran.stderr);
}

#[test]
fn names_of_options_in_other_tools_are_understood() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n");
    let ran = folder.run("convert a.csv -o out --compression zstd:3 --shard-size 1MiB -j 1 --json").ok();
    assert_eq!(ran.summary()["records_out"], 1);
    let settings = folder.run("manifest out --json").ok().summary();
    assert_eq!(settings["settings"]["target_shard"], 1024 * 1024);
    folder.run("convert a.csv --output other").ok();
    folder.run("reshard other -o cut --shard-size 1MiB").ok();
    folder.run("reshard other --output cut2").ok();
    folder.run("report other -o report.html").ok();
    for (line, tip) in [
        ("pull other -o copy", "shardify pull DATASET FOLDER"),
        ("compact other --output new", "reshard --out"),
        ("reshard other -o cut3 --compression zstd", "--codec CODEC"),
        ("inspect other -o file", "> FILE"),
        ("convert a.csv --num-workers 2", "'--jobs'"),
        ("convert a.csv --num-shards 2", "'--shards'"),
        ("plan convert a.csv --format csv", "'--from'"),
    ] {
        let ran = folder.run(line);
        assert!(ran.code == 2 && ran.stderr.contains(tip), "{line}: {ran:?}");
    }
    // An id may begin like an option.
    assert!(folder.run("erase other -0815 --dry-run").stderr.contains("-- -0"));
    let format = folder.run("convert a.csv --format parquet");
    assert!(format.code == 2 && format.stderr.contains("'--to'") && format.stderr.contains("'--from'"), "{format:?}");
    let other = folder.run("compact --format parquet");
    assert!(other.code == 2 && !other.stderr.contains("'--to'"), "compact has no --to: {other:?}");
    // More threads than are of use are not started.
    folder.run("convert a.csv -o third --jobs 100000").ok();
    assert_eq!(folder.run("convert a.csv -o fourth --jobs 0").code, 2);
}

#[test]
fn mistakes_in_the_command_line_are_objects_with_json() {
    let folder = Folder::new();
    for arguments in ["convert a.csv --bogus --json", "create --json", "convert --json --to nothing a.csv"] {
        let ran = folder.run(arguments);
        assert_eq!(ran.code, 2, "{ran:?}");
        let error = ran.error();
        assert_eq!((&error["type"], &error["code"]), (&"error".into(), &2.into()), "{arguments}");
        let message = error["message"].as_str().unwrap();
        assert!(!message.is_empty() && !message.contains("Usage") && !message.starts_with("error"), "{message}");
    }
}

#[test]
fn a_dataset_is_not_an_id_a_source_of_itself_or_a_file() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n");
    folder.run("convert a.csv").ok();
    let erased = folder.run("erase shards");
    assert!(erased.code == 2 && erased.stderr.contains("expected an id to erase, found a dataset"), "{erased:?}");
    // With a kind, it is an id, and so is a URL.
    assert_eq!(folder.run("erase --record shards").code, 1);
    assert_eq!(folder.run("erase https://hospital.example/Patient/1").code, 1);
    let itself = folder.run("convert shards --out shards");
    assert!(itself.code == 2 && itself.stderr.contains("other than the dataset itself"), "{itself:?}");
    let file = folder.run("convert a.csv --out a.csv");
    assert!(file.code == 2 && file.stderr.contains("expected the folder of a dataset, found a file"), "{file:?}");
}

#[test]
fn the_error_for_a_misspelt_column_suggests_the_nearest() {
    let folder = Folder::new();
    folder.write("a.csv", "Patient,age\nx,1\n");
    folder.write("b.csv", "Patient,age\ny,2\n");
    for option in ["--id patinet", "--subject patinet", "--type patinet=int64"] {
        let ran = folder.run(&format!("convert a.csv b.csv {option}"));
        assert!(ran.code == 2 && ran.stderr.contains("there is a column `Patient`"), "{ran:?}");
        assert!(ran.stderr.contains("the columns are Patient, age\n"), "{ran:?}");
    }
    folder.write("c.jsonl", "{\"Patient\":\"x\"}\n");
    let ran = folder.run("convert c.jsonl --id patinet");
    assert!(ran.code == 2 && ran.stderr.contains("there is a column `Patient`"), "{ran:?}");
    let ran = folder.run("convert a.csv --id weight");
    assert!(ran.code == 2 && !ran.stderr.contains("there is a column"), "{ran:?}");
    let names: Vec<String> = (0..500).map(|n| format!("c{n}")).collect();
    folder.write("wide.csv", format!("{0}\n{0}\n", names.join(",")));
    let ran = folder.run("convert wide.csv --id weight");
    assert!(ran.code == 2 && ran.stderr.contains("c29 and 470 more"), "{ran:?}");
    folder.write("images/a.jpg", "x");
    let ran = folder.run("convert images --type age=int64");
    assert!(ran.code == 2 && ran.stderr.contains("expected tables for --type, found samples"), "{ran:?}");
}
