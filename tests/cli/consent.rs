//! Data that looks unlike the dataset takes a word of consent, and empty files take none.

use crate::support;

use support::Folder;

fn dataset(to: &str) -> Folder {
    let folder = Folder::new();
    folder.write("a.csv", "id,who,age\n1,x,40\n2,y,50\n");
    folder.run(&format!("convert a.csv --id id --subject who --to {to}")).ok();
    folder
}

#[test]
fn other_data_does_not_join_in_silence() {
    for to in ["parquet", "tfrecord", "tar"] {
        let folder = Folder::new();
        folder.write("a.csv", "id,who,age\n1,x,40\n2,y,50\n");
        folder.run(&format!("convert a.csv --to {to}")).ok();
        folder.write("questions.csv", "question,answer\nwhy,so\n");
        folder.write("in/1.jpg", [0xff, 0xd8, 0xff, 0xe0, 0]);
        folder.write("in/1.txt", "a picture");
        let refused = folder.run("convert questions.csv");
        assert_eq!(refused.code, 8, "{to}: {}", refused.stderr);
        assert!(refused.stderr.contains("age") && refused.stderr.contains("question"), "{}", refused.stderr);
        let refused = folder.run("convert in");
        assert!(refused.code == 8 || refused.code == 2, "{to}: {}", refused.stderr);
        assert_eq!(folder.run("manifest --json").ok().summary()["version"], 1, "{to}");
        // One column in common is enough, and so is a word.
        folder.write("more.csv", "id,who,age,weight\n8,z,3,4\n");
        folder.run("convert more.csv").ok();
        folder.write("questions.csv", "id,question,answer,who\n9,why,so,x\n");
        folder.run("convert questions.csv").ok();
        assert_eq!(folder.run("manifest --json").ok().summary()["records"], 4, "{to}");
    }
    let folder = Folder::new();
    folder.write("rows.csv", "n\n1\n");
    folder.write("in/1.jpg", [0xff, 0xd8, 0xff, 0xe0, 0]);
    folder.run("convert in --to parquet").ok();
    let refused = folder.run("convert rows.csv");
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("this dataset has samples; the sources give rows"), "{}", refused.stderr);
}

#[test]
fn settings_change_with_a_word() {
    let folder = dataset("parquet");
    folder.write("b.csv", "id,who,age\n3,x,40\n");
    let refused = folder.run("convert b.csv --id age");
    assert_eq!(refused.code, 8);
    assert!(refused.stderr.contains("this dataset was created with --id id; you gave --id age"), "{}", refused.stderr);
    let told = folder.run("convert b.csv --codec zstd:7 --id id").ok();
    assert!(told.stderr.contains("--codec changes from zstd:1 to zstd:7"), "{}", told.stderr);
    folder.write("c.csv", "id,who,age\n4,x,41\n");
    folder.run("convert c.csv --id age --accept settings").ok();
}

#[test]
fn schemas_are_compared_with_the_dataset() {
    for to in ["parquet", "tfrecord"] {
        let folder = dataset(to);
        folder.write("b.csv", "id,who,age\n3,x,unknown\n");
        let refused = folder.run("convert b.csv --on-schema fail");
        assert_eq!(refused.code, 6, "{to}: {}", refused.stderr);
        assert!(refused.stderr.contains("this dataset has int64 here; the source has text"), "{to} {}", refused.stderr);
        folder.write("c.csv", "id,who,age,new\n3,x,7,8\n");
        let refused = folder.run("convert c.csv --on-schema fail");
        assert_eq!(refused.code, 6, "{to}: {}", refused.stderr);
        assert!(refused.stderr.contains("the sources have id, who, age, new"), "{}", refused.stderr);
        folder.write("d.csv", "id,age,who\n5,7,x\n");
        folder.run("convert d.csv --on-schema fail").ok();
        let refused = folder.run("convert b.csv");
        assert_eq!(refused.code, 6, "{to}: {}", refused.stderr);
        for part in
            ["expected int64 (the type in this dataset), found `unknown`", "line 2", "`age`", "--on-schema union"]
        {
            assert!(refused.stderr.contains(part), "{to} {part}: {}", refused.stderr);
        }
        let told = folder.run("convert b.csv --on-schema union").ok();
        assert!(told.stderr.contains("`age` from int64 to text"), "{}", told.stderr);
    }
}

#[test]
fn a_day_without_records_is_no_error() {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = dataset(to);
        folder.write("day/empty.csv", "");
        folder.write("day/header.csv", "id,who,age\n");
        folder.write("day/empty.jsonl", "");
        for source in ["day/empty.csv", "day/header.csv", "day/empty.jsonl", "day"] {
            let done = folder.run(&format!("convert {source} --json")).ok().summary();
            assert_eq!(done["records_in"], 0, "{to} {source}");
        }
        assert_eq!(folder.run("manifest --json").ok().summary()["records"], 2, "{to}");
        // Beside full files they do not matter.
        folder.write("next/b.csv", "id,who,age\n9,x,1\n");
        folder.write("next/c.csv", "");
        folder.write("next/d.jsonl", "");
        assert_eq!(folder.run("convert next --json").ok().summary()["records_out"], 1, "{to}");
        folder.run("verify --read-data").ok();
    }
}

#[test]
fn a_file_that_was_moved_is_known_by_its_content_on_request() {
    for private in ["", "--id-mode hmac --id-key key"] {
        let folder = Folder::new();
        folder.write("key", [7; 32]);
        let key = if private.is_empty() { "" } else { "--id-key key" };
        folder.write("inbox/a.csv", "id,n\n1,2\n");
        folder.write("inbox/empty.csv", "");
        folder.run(&format!("convert inbox --id id {private}")).ok();
        folder.write("archive/2026/a.csv", "id,n\n1,2\n");
        folder.write("archive/2026/b.csv", "id,n\n1,3\n");
        folder.write("archive/2026/empty.csv", "");
        let known = folder.run(&format!("convert archive --identity content --json {key}")).ok();
        let summary = known.summary();
        assert_eq!((&summary["sources_moved"], &summary["records_out"]), (&1.into(), &1.into()), "{summary}");
        assert!(known.stderr.contains("v1 converted the same content as `a.csv`"), "{}", known.stderr);
        // By its path it is new, and what was removed is not known.
        folder.run(&format!("remove --source inbox/a.csv {key}")).ok();
        let taken = folder.run(&format!("convert archive --identity content --json {key}")).ok().summary();
        assert_eq!((&taken["sources_moved"], &taken["records_out"]), (&0.into(), &1.into()), "{taken}");
    }
}

#[test]
fn samples_under_other_names_are_known_where_that_is_asked_for() {
    for key in ["", "--id-key key"] {
        let folder = Folder::new();
        folder.write("key", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
        let mode = if key.is_empty() { "" } else { "--id-mode hmac" };
        for (name, class) in [("cat", "0"), ("dog", "1")] {
            folder.write(&format!("in/{name}.jpg"), format!("\u{7f}a picture of a {name}"));
            folder.write(&format!("in/{name}.cls"), class);
        }
        folder.run(&format!("convert in --identity content {mode} {key}")).ok();
        // Sent again elsewhere, with another label, with one part more, new, and touched.
        folder.write("again/x/1.jpg", "\u{7f}a picture of a cat");
        folder.write("again/x/1.CLS", "0");
        folder.write("again/relabelled.jpg", "\u{7f}a picture of a cat");
        folder.write("again/relabelled.cls", "1");
        folder.write("again/more.jpg", "\u{7f}a picture of a dog");
        folder.write("again/more.cls", "1");
        folder.write("again/more.txt", "a dog");
        folder.write("again/new.jpg", "\u{7f}a picture of a cow");
        folder.write("again/new.cls", "0");
        std::thread::sleep(std::time::Duration::from_millis(20));
        folder.write("in/cat.jpg", "\u{7f}a picture of a cat");
        let ran = folder.run(&format!("convert in again --identity content --json {key}")).ok();
        let summary = ran.summary();
        assert_eq!(summary["sources_moved"], 2, "{summary}");
        assert_eq!(summary["sources_unchanged"], 4, "{summary}");
        assert_eq!(summary["records_out"], 3, "{summary}");
        assert!(
            ran.stderr.contains("converted the same content as `in/cat") || ran.stderr.contains("as `cat"),
            "{}",
            ran.stderr
        );
        assert_eq!(folder.run(&format!("manifest --json {key}")).ok().summary()["records"], 5);
        folder.run(&format!("verify --read-data {key}")).ok();
        // Without the option they are new.
        folder.write("third/y.jpg", "\u{7f}a picture of a cat");
        folder.write("third/y.cls", "0");
        let summary = folder.run(&format!("convert third --json {key}")).ok().summary();
        assert_eq!((&summary["sources_moved"], &summary["records_out"]), (&0.into(), &1.into()));
    }
}
