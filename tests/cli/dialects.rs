//! Dialects of delimited text that are stated or evident, JSON as Python writes it, and files that are about data.

use crate::support::Folder;

/// The rows of a table as `head` prints them, without its header and types.
fn rows(folder: &Folder, dataset: &str) -> Vec<String> {
    let printed = folder.run(&format!("head {dataset} --json -n 100")).ok();
    let records = printed.objects().into_iter().filter(|object| object["type"] == "record");
    records.map(|record| record["values"].to_string()).collect()
}

#[test]
fn a_stated_dialect_is_read_as_it_says() {
    let folder = Folder::new();
    folder.write(
        "de.csv",
        "Report\nname;sum;day;time\n# it's \"open\nMüller;1.234,50;31.12.2026;31.12.2026 23:05\n\
         'a;b';-7,25;01.01.2027;\n",
    );
    let stated = [
        "convert",
        "de.csv",
        "--out",
        "d",
        "--skip",
        "1",
        "--comment",
        "#",
        "--quote",
        "'",
        "--decimal",
        ",",
        "--thousands",
        ".",
        "--date",
        "%d.%m.%Y",
        "--timestamp",
        "%d.%m.%Y %H:%M",
        "--json",
    ];
    let summary = folder.run_with(&stated).ok().summary();
    assert_eq!((&summary["records_out"], &summary["lines_skipped"]), (&2.into(), &2.into()), "{summary}");
    assert_eq!(
        rows(&folder, "d"),
        [
            r#"{"day":"2026-12-31","name":"Müller","sum":1234.5,"time":"2026-12-31T23:05:00"}"#,
            r#"{"day":"2027-01-01","name":"a;b","sum":-7.25,"time":null}"#,
        ]
    );
    folder.run("verify d --read-data").ok();
    // A later run with the same options has nothing to do.
    assert!(folder.run_with(&stated).ok().summary()["records_out"] == 0);
    let mistakes = [
        ("--decimal ab", "expected one ASCII character, found `ab`"),
        ("--date dd.mm.yyyy", "expected the format of a date"),
        ("--skip few", "expected a number of lines"),
        ("--delimiter=", "expected a delimiter"),
    ];
    for (option, message) in mistakes {
        let ran = folder.run(&format!("convert de.csv --out e {option}"));
        assert!(ran.code == 2 && ran.stderr.contains(message), "{option}: {ran:?}");
    }
}

#[test]
fn ranges_and_tasks_of_a_stated_dialect_are_those_of_the_whole() {
    let folder = Folder::new();
    let line = |i: usize| format!("{i}||\"text {i} \\\"quoted\\\"\n|| over lines\"||{}.5\n", i * 7 % 1000);
    folder.write("a.csv", "id||t||v\n".to_owned() + &(0..40_000).map(line).collect::<String>());
    let options = "--delimiter || --escape \\ --to tar --rows json --quiet";
    folder.run(&format!("convert a.csv --out one {options} --jobs 1")).ok();
    folder.run(&format!("convert a.csv --out two {options} --jobs 4")).ok();
    assert!(folder.shards("one").iter().map(|s| &s.1).eq(folder.shards("two").iter().map(|s| &s.1)));
    folder.run(&format!("convert a.csv --out tasks {options} --task-size 1MiB")).ok();
    let (one, tasks) = (folder.members("one"), folder.members("tasks"));
    assert_eq!((one.len(), one == tasks), (40_000, true));
    let bad = folder.run("convert a.csv --out bad --delimiter || --on-error skip --json");
    assert!(bad.code == 3 || bad.code == 6, "quotes are not escaped without the option: {bad:?}");
}

#[test]
fn evident_dialects_are_told() {
    let folder = Folder::new();
    let lines = |line: &str| (0..9).map(|i| line.replace('N', &i.to_string())).collect::<String>();
    for (name, text, note) in [
        ("bars.csv", "id||name||v\n".to_owned() + &lines("N||n||N.5\n"), "`||` was taken as the delimiter"),
        (
            "hive.csv",
            "id\u{1}name\u{1}v\n".to_owned() + &lines("N\u{1}n\u{1}N.5\n"),
            r"`\x01` was taken as the delimiter",
        ),
        (
            "mysql.csv",
            "id,name,v\n".to_owned() + &lines("N,\"say \\\"hi\\\", N\",N.5\n"),
            r"`\` was taken as the escape",
        ),
    ] {
        folder.write(name, text);
        let ran = folder.run(&format!("convert {name} --out d-{name} --json")).ok();
        assert!(ran.stderr.contains(&note.replace('\\', "\\\\")), "{ran:?}");
        let columns = ran.summary()["columns"].to_string();
        assert_eq!(columns, r#"[["id","int64"],["name","text"],["v","float64"]]"#);
    }
    assert!(rows(&folder, "d-mysql.csv")[3].contains(r#""name":"say \"hi\", 3""#));
}

#[test]
fn records_within_a_document_and_floats_of_python() {
    let folder = Folder::new();
    folder.write("page.json", r#"{"page": {"data": [{"a": 1, "b": NaN}, {"a": 2, "b": -Infinity}], "n": 2}}"#);
    folder.write("flat.json", r#"{"n": 2, "data": [{"a": 1}, {"a": 2}]}"#);
    let told = folder.run("convert flat.json --out one").ok();
    assert!(told.stderr.contains("if the objects in its `data` are the records: --read records=data"), "{told:?}");
    let summary = folder.run("convert page.json --out two --records page.data --json").ok().summary();
    assert_eq!(
        (&summary["records_out"], summary["columns"].to_string()),
        (&2.into(), r#"[["a","int64"],["b","float64"]]"#.into())
    );
    let ran = folder.run("convert page.json --out three --records page.rows");
    assert!(ran.code == 6 && ran.stderr.contains("expected the records at `page.rows`"), "{ran:?}");
}

#[test]
fn files_about_data_are_ignored_and_named() {
    let folder = Folder::new();
    for (name, text) in [
        ("in/a.csv", "id,x\n1,2\n"),
        ("in/README.md", "# about\n"),
        ("in/LICENSE", "free\n"),
        ("in/_SUCCESS", ""),
        ("in/run.log", "done\n"),
        ("in/SHA256SUMS", "00 a.csv\n"),
        ("pictures/1.jpg", "x"),
        ("pictures/1.md", "caption"),
        ("pictures/README.md", "# about\n"),
        ("docs/README.md", "# the only file\n"),
    ] {
        folder.write(name, text);
    }
    let ran = folder.run("convert in --out tables").ok();
    assert!(ran.stderr.contains("ignored files about the data: `LICENSE`, `README.md`"), "{}", ran.stderr);
    assert!(ran.stdout.contains("ignored    5 files"), "{}", ran.stdout);
    folder.run("convert pictures --out samples --quiet").ok();
    assert_eq!(folder.members("samples").into_keys().collect::<Vec<_>>(), ["1.jpg", "1.md"]);
    // What is all there is, or asked for, is data.
    for sources in ["docs", "pictures --from files", "pictures --include *.md"] {
        folder.run(&format!("convert {sources} --out taken --overwrite --quiet")).ok();
        assert!(folder.members("taken").keys().any(|name| name.starts_with("README")), "{sources}");
    }
    assert_eq!(folder.run("inspect in --json").ok().objects()[0]["files"], 1);
}
