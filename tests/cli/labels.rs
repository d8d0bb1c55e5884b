//! Labels beside files: rows of a table, metadata of an imagefolder, and folders of classes become parts of samples.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{collections::BTreeMap, path::Path};

use crate::support;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use support::{Folder, Ran};

/// Images of the test data, with the names that they get.
const IMAGES: [(&str, &str); 4] = [
    ("files/images/cat-111793_640.webp", "in/cat-1.webp"),
    ("files/images/cat-1245673_640.webp", "in/cat-2.webp"),
    ("files/images/triangle-001.gif", "in/sub/tri.gif"),
    ("files/images/video-001.rgb.jpeg", "in/sub/video.rgb.jpeg"),
];

const TABLE: &str =
    "file,label,note\ncat-1.webp,7,\"a\nb\"\nsub/tri.gif,8,\ncat-2,9,\nvideo.rgb.jpeg,10,c\nnone.jpg,11,\n";

fn images(folder: &Folder) {
    IMAGES.iter().for_each(|(from, to)| folder.copy(from, to));
}

/// The JSON parts of a tar dataset, by member.
fn labels(folder: &Folder, dataset: &str) -> BTreeMap<String, Value> {
    let members = folder.members(dataset).into_iter().filter(|(name, _)| name.ends_with(".json"));
    members.map(|(name, content)| (name, serde_json::from_slice(&content).unwrap())).collect()
}

/// The labels of [`TABLE`].
fn expected() -> BTreeMap<String, Value> {
    BTreeMap::from([
        ("cat-1.json".to_owned(), json!({"label": 7, "note": "a\nb"})),
        ("cat-2.json".to_owned(), json!({"label": 9, "note": null})),
        ("sub/tri.json".to_owned(), json!({"label": 8, "note": null})),
        ("sub/video.json".to_owned(), json!({"label": 10, "note": "c"})),
    ])
}

#[track_caller]
fn refused(ran: Ran, code: i32, texts: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    for text in texts {
        assert!(ran.stderr.contains(text), "expected `{text}` in {}", ran.stderr);
    }
}

fn files_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { out.extend(files_below(&entry)) } else { out.push(entry) }
    }
    out
}

/// Whether a file of a dataset contains a text.
fn states(folder: &Folder, dataset: &str, text: &str) -> bool {
    files_below(&folder.path().join(dataset))
        .iter()
        .any(|path| std::fs::read(path).unwrap().windows(text.len()).any(|window| window == text.as_bytes()))
}

#[test]
fn a_row_becomes_a_part_of_the_sample_that_it_names() {
    let folder = Folder::new();
    images(&folder);
    folder.write("labels.csv", TABLE);
    let told = folder.run("convert in --labels labels.csv --out tar").ok();
    assert!(told.stderr.contains("labels.csv: the column `file` names the samples"), "{}", told.stderr);
    assert!(told.stderr.contains("1 row of the labels names no sample, first `none.jpg`"), "{}", told.stderr);
    assert_eq!(labels(&folder, "tar"), expected());
    let members = folder.members("tar");
    for (from, to) in IMAGES {
        let content = std::fs::read(support::testdata_path(from)).unwrap();
        assert_eq!(members[to.strip_prefix("in/").unwrap()], content);
    }
    folder.run("verify tar --read-data").ok();
    // The origin is that of the files.
    let found = folder.run("manifest tar --find sub/tri --json").ok();
    assert_eq!(found.objects()[0]["origin"]["source"], "sub/tri.gif");
    assert_eq!(folder.run("manifest tar --json").ok().summary()["sources"], 4);
    // Rows may name longer paths, and the table may be among the files or have other formats.
    folder.write("in/labels.jsonl", "{\"image\":\"in/cat-1.webp\",\"box\":[1,2]}\n{\"image\":\"cat-2\",\"box\":[]}\n");
    folder.run("convert in --labels in/labels.jsonl --include cat* --include labels.jsonl --out lines").ok();
    let lines = labels(&folder, "lines");
    assert_eq!((lines.len(), &lines["cat-1.json"]), (2, &json!({"box": [1, 2]})));
    folder.run("convert labels.csv --to parquet --out table").ok();
    let (table, _) = folder.only_shards("table").remove(0);
    folder.run(&format!("convert in --exclude *.jsonl --labels table/{table}:file --out typed")).ok();
    assert_eq!(labels(&folder, "typed"), expected());
    // Text that looks like a number names a sample by its text.
    folder.write("numbers/007.txt", "x");
    folder.write("numbers.csv", "id,zip\n007,01234\n");
    folder.run("convert numbers --from files --labels numbers.csv --out numbered").ok();
    assert_eq!(labels(&folder, "numbered")["007.json"], json!({"zip": "01234"}));
}

#[test]
fn labels_are_the_same_in_every_format_at_any_number_of_threads_and_tasks() {
    let folder = Folder::new();
    images(&folder);
    folder.write("labels.csv", TABLE);
    for to in ["tar", "tfrecord", "parquet"] {
        let convert = format!("convert in --labels labels.csv --to {to} --target-shard 24KiB --index none");
        folder.run(&format!("{convert} --jobs 1 --out {to}-1")).ok();
        folder.run(&format!("{convert} --jobs 4 --out {to}-4")).ok();
        assert_eq!(folder.shards_below_tags(&format!("{to}-1")), folder.shards_below_tags(&format!("{to}-4")));
        folder.run(&format!("convert {to}-1 --to tar --out back-{to}")).ok();
        assert_eq!(labels(&folder, &format!("back-{to}")), expected(), "{to}");
        // Tasks in any order, and in one process.
        folder.run(&format!("{convert} --task-size 20KiB --out {to}-tasks")).ok();
        let plan = folder.run(&format!("plan {convert} --task-size 20KiB --out {to}-plan --json")).ok().summary();
        let (path, tasks) = (plan["plan"].as_str().unwrap(), plan["tasks"].as_u64().unwrap());
        assert!(tasks > 1);
        for task in (0..tasks).rev() {
            folder.run(&format!("run-task {path} --task {task}")).ok();
        }
        folder.run(&format!("commit {path}")).ok();
        let content = |dataset: String| -> Vec<Vec<u8>> {
            folder.only_shards(&dataset).into_iter().map(|(_, bytes)| bytes).collect()
        };
        assert_eq!(content(format!("{to}-plan")), content(format!("{to}-tasks")));
        folder.run(&format!("convert {to}-plan --to tar --out back-plan-{to}")).ok();
        assert_eq!(labels(&folder, &format!("back-plan-{to}")), expected(), "{to}");
    }
}

#[test]
fn a_plan_has_no_labels_and_its_tasks_need_the_same_table() {
    let folder = Folder::new();
    images(&folder);
    folder.write("labels.csv", TABLE.replace(",c", ",secret-word"));
    let plan = "plan convert in --labels labels.csv --task-size 20KiB --out planned --json";
    let first = folder.run(plan).ok().summary();
    assert!(!states(&folder, "planned", "secret-word"));
    assert_eq!(folder.run(plan).ok().summary()["plan"], first["plan"], "the same table continues the plan");
    let path = first["plan"].as_str().unwrap();
    folder.run(&format!("run-task {path} --task 0")).ok();
    folder.write("labels.csv", TABLE.replace(",c", ",another"));
    refused(folder.run(&format!("run-task {path} --task 1")), 6, &["expected the labels as they were", "labels.csv"]);
    assert_ne!(folder.run(plan).ok().summary()["plan"], first["plan"]);
}

#[test]
fn the_column_that_names_samples_is_checked() {
    let folder = Folder::new();
    images(&folder);
    folder.write("labels.csv", TABLE);
    refused(
        folder.run("convert in --labels labels.csv:fil"),
        2,
        &["no such column", "column `fil`", "there is a column `file`", "the columns are file, label, note"],
    );
    folder.write("odd.csv", "a,b\ncat-1.webp,2\n");
    refused(folder.run("convert in --labels odd.csv"), 2, &["such as file_name", "found a, b", "FILE:COLUMN"]);
    folder.run("convert in --labels odd.csv:a --include cat-1*").ok();
    assert_eq!(labels(&folder, "shards")["cat-1.json"], json!({"b": 2}));
    refused(folder.run("convert in --labels missing.csv --out other"), 2, &["missing.csv"]);
    refused(folder.run("convert in --labels in/cat-1.webp --out other"), 6, &["expected a table for --labels"]);
    refused(folder.run("convert labels.csv --labels odd.csv:a --out other"), 2, &["expected files for --labels"]);
    folder.write("bad.csv", "file,label\ncat-1.webp,1,2,3\n");
    refused(folder.run("convert in --labels bad.csv --out other"), 6, &["bad.csv"]);
}

#[test]
fn samples_without_rows_and_rows_for_one_sample_are_errors() {
    let folder = Folder::new();
    images(&folder);
    folder.write("some.csv", "file,label\ncat-1.webp,1\nx,2\ny,3\n");
    let convert = "convert in --labels some.csv";
    refused(
        folder.run(convert),
        6,
        &["found none for the sample `cat-2`; 3 of 4 samples have none", "--accept labels"],
    );
    let told = folder.run(&format!("{convert} --accept labels")).ok();
    assert!(told.stderr.contains("samples without a label: 3 of 4, first `cat-2`, `sub/tri`"), "{}", told.stderr);
    assert!(told.stderr.contains("2 rows of the labels name no sample, first `x`, `y`"), "{}", told.stderr);
    assert_eq!(labels(&folder, "shards").len(), 1);
    // A sample without a label lacks a part.
    let skipped =
        folder.run(&format!("{convert} --accept labels --missing skip --on-error skip --include cat* --out some"));
    assert_eq!(skipped.code, 3, "{skipped:?}");
    assert_eq!(labels(&folder, "some").len(), folder.members("some").len() / 2, "the other sample is a reject");
    folder.write("twice.csv", "file,label\n\ncat-1.webp,\"1\n2\"\ncat-2.webp,2\ncat-1,3\n");
    refused(
        folder.run("convert in --labels twice.csv --accept labels --out other"),
        6,
        &["for the sample `cat-1`, found two: line 3 and line 6"],
    );
    folder.write("twice.jsonl", "{\"file\":\"cat-1.webp\"}\n{\"file\":\"cat-1.webp\"}\n");
    refused(
        folder.run("convert in --labels twice.jsonl --accept labels --out other"),
        6,
        &["found two: line 1 and line 2"],
    );
    folder.copy(IMAGES[2].0, "in/more/tri.gif");
    folder.write("names.csv", "file,label\ntri.gif,1\n");
    refused(
        folder.run("convert in --labels names.csv --accept labels --out other"),
        6,
        &["found `tri.gif`, which may be `more/tri` or `sub/tri`", "write more of the path"],
    );
}

#[test]
fn a_part_that_is_there_already_is_refused() {
    let folder = Folder::new();
    images(&folder);
    folder.write("in/cat-1.json", "{}");
    folder.write("labels.csv", TABLE);
    refused(folder.run("convert in --labels labels.csv"), 6, &["in/cat-1.json", "--exclude '*.json'"]);
    folder.run("convert in --labels labels.csv --exclude *.json").ok();
    // Without a row, a file of this kind is a part as any other.
    folder.write("labels.csv", TABLE.replace("cat-1.webp", "other"));
    folder.run("convert in --labels labels.csv --accept labels --out own").ok();
    assert_eq!(labels(&folder, "own")["cat-1.json"], json!({}));
    folder.write("in/cat-2.cls", "3");
    refused(
        folder.run("convert in --label-from-folder --exclude *.json --exclude sub/* --out cls"),
        6,
        &["expected files in folders of classes", "`cat-1`"],
    );
    folder.write("in/sub/tri.cls", "3");
    refused(folder.run("convert in --label-from-folder --include sub/* --out cls"), 6, &["a part `cls`", "tri.cls"]);
}

#[test]
fn metadata_of_an_imagefolder_are_labels() {
    let folder = Folder::new();
    images(&folder);
    folder.write("in/metadata.csv", "file_name,label\n./cat-1.webp,1\ncat-2.webp,2\n");
    folder
        .write("in/sub/metadata.jsonl", "{\"file_name\":\"tri.gif\",\"x\":1.5}\n{\"file_name\":\"video.rgb.jpeg\"}\n");
    let told = folder.run("convert in").ok();
    assert!(
        told.stderr.contains("metadata.csv and 1 more: its rows become the parts `json` of samples; --labels none"),
        "{}",
        told.stderr
    );
    let found = labels(&folder, "shards");
    assert_eq!((&found["cat-2.json"], &found["sub/tri.json"]), (&json!({"label": 2}), &json!({"x": 1.5})));
    assert_eq!((found.len(), found["sub/video.json"].clone()), (4, json!({"x": null})));
    assert!(!folder.members("shards").keys().any(|name| name.contains("metadata")));
    let shown = folder.run("inspect in").ok().stdout;
    assert!(shown.contains("4 records") && shown.contains("shardify convert in"), "{shown}");
    let shown = folder.run("head in --json").ok().stdout;
    assert_eq!(shown.matches("\"type\":\"record\"").count(), 4, "{shown}");
    // Paths are relative to the metadata, and whole.
    folder.write("in/sub/metadata.jsonl", "{\"file_name\":\"sub/tri.gif\",\"x\":1.5}\n{\"file_name\":\"video\"}\n");
    refused(folder.run("convert in --out other"), 6, &["2 of 4 samples have none"]);
    // It can be turned off; then it is a file as any other.
    refused(folder.run("convert in --labels none --out other"), 2, &["expected either records or files"]);
    folder.run("convert in --labels none --from files --out other").ok();
    assert!(folder.members("other").contains_key("metadata.csv"));
    // A table of this name alone, or without the column, is a table.
    folder.run("convert in/metadata.csv --out table").ok();
    assert_eq!(folder.run("manifest table --json").ok().summary()["records"], 2);
    folder.write("in/metadata.csv", "name,label\ncat-1.webp,1\n");
    refused(folder.run("convert in --exclude *.jsonl --out wrong"), 2, &["expected either records or files"]);
}

#[test]
fn later_runs_join_new_files_and_tell_of_a_changed_table() {
    let folder = Folder::new();
    images(&folder);
    folder.write("labels.csv", TABLE);
    folder.run("convert in --labels labels.csv").ok();
    let told = folder.run("convert in --labels labels.csv").ok();
    assert!(told.stdout.contains("nothing to do") && !told.stderr.contains("changed"), "{told:?}");
    // A file name that an older file has, too, is not unique.
    folder.copy(IMAGES[3].0, "in/new/video.rgb.jpeg");
    refused(folder.run("convert in --labels labels.csv"), 6, &["`new/video` or `sub/video`"]);
    folder.write("labels.csv", format!("{}new/video,12,\n", TABLE.replace("video.rgb", "sub/video.rgb")));
    let told = folder.run("convert in --labels labels.csv").ok();
    assert!(told.stderr.contains("the labels changed since an earlier run"), "{}", told.stderr);
    assert_eq!(labels(&folder, "shards")["new/video.json"], json!({"label": 12, "note": null}));
    let told = folder.run("convert in --labels labels.csv").ok();
    assert!(!told.stderr.contains("changed"), "the newest table is known: {}", told.stderr);
    // Another kind of command keeps what is known.
    folder.run("compact --min-inputs 2").ok();
    let told = folder.run("convert in --labels labels.csv").ok();
    assert!(!told.stderr.contains("changed"), "{}", told.stderr);
    // Samples without labels are not added unawares.
    folder.copy(IMAGES[2].0, "in/other.gif");
    refused(folder.run("convert in"), 8, &["expected --labels", "--accept labels"]);
    folder.run("convert in --accept labels").ok();
    folder.copy(IMAGES[2].0, "in/another.gif");
    folder.run("convert in --labels none").ok();
}

#[test]
fn a_replaced_sample_has_the_new_label_and_differs() {
    let folder = Folder::new();
    images(&folder);
    folder.write("labels.csv", TABLE);
    folder.run("convert in --labels labels.csv").ok();
    folder.write("labels.csv", TABLE.replace(",7,", ",77,"));
    // The images are written again, with the same content.
    std::thread::sleep(std::time::Duration::from_millis(10));
    images(&folder);
    folder.run("convert in --labels labels.csv --on-changed replace").ok();
    let compared = folder.run("manifest shards --diff v1 v2 --json").ok().summary();
    assert_eq!((compared["records_changed"].clone(), compared["records_rewritten"].clone()), (json!(1), json!(3)));
    // Shards of the older version are in the same folder until then.
    folder.run("vacuum shards --retain 0s --force").ok();
    assert_eq!(labels(&folder, "shards")["cat-1.json"]["label"], 77);
}

#[test]
fn labels_take_an_eighth_of_the_memory() {
    let folder = Folder::new();
    images(&folder);
    let rows: String = (0..60_000).map(|row| format!("{row}.jpg,{row}\n")).collect();
    folder.write("many.csv", format!("file,label\n{rows}"));
    refused(
        folder.run("convert in --labels many.csv --accept labels --memory 64MiB"),
        6,
        &["expected labels that fit an eighth of the memory", "raise --memory", "many.csv"],
    );
    folder.run("convert in --labels many.csv --accept labels --memory 256MiB").ok();
}

#[test]
fn an_erasure_removes_the_label_with_its_sample() {
    for to in ["tar", "parquet", "tfrecord"] {
        let folder = Folder::new();
        for person in ["PAT-1", "PAT-2"] {
            folder.copy(IMAGES[2].0, &format!("in/{person}/scan.gif"));
        }
        folder.write("labels.csv", "file,finding\nPAT-1/scan.gif,word-one\nPAT-2/scan.gif,word-two\n");
        let convert =
            format!("convert in --to {to} --codec none --labels labels.csv --subject-from-path {{subject}}/*");
        folder.run(&convert).ok();
        folder.copy(IMAGES[2].0, "in/PAT-3/scan.gif");
        folder.write(
            "labels.csv",
            "file,finding\nPAT-1/scan.gif,word-one\nPAT-2/scan.gif,word-two\nPAT-3/scan.gif,word-3\n",
        );
        folder.run(&format!("plan {convert} --task-size 1KiB")).ok();
        assert!(states(&folder, "shards", "word-one") && !states(&folder, "shards", "word-3"));
        folder.run("erase shards PAT-1 --all-versions").ok();
        assert!(!states(&folder, "shards", "word-one"), "{to}");
        assert!(states(&folder, "shards", "word-two"), "{to}");
        // What comes back is omitted with its label.
        let told = folder.run(&convert).ok();
        assert!(!states(&folder, "shards", "word-one"), "{told:?}");
        folder.run("verify --read-data").ok();
        // A name of a class would stay in the log.
        let class = format!("convert in --to {to} --label-from-folder --out cls --subject-from-path {{subject}}/*");
        refused(folder.run(&class), 6, &["found a folder of a subject"]);
    }
}

#[test]
fn private_datasets_tell_no_names_and_keep_a_keyed_hash() {
    let folder = Folder::new();
    images(&folder);
    folder.write("key", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
    folder.write("labels.csv", "file,label\ncat-1.webp,1\nnobody,2\n");
    folder.run("convert in --labels labels.csv --accept labels --out plain").ok();
    let private = "--id-mode hmac --id-key key --redact-source-paths";
    let told = folder.run(&format!("convert in --labels labels.csv --accept labels {private}")).ok();
    assert!(told.stderr.contains("no sample") && !told.stderr.contains("nobody"), "{}", told.stderr);
    assert!(told.stderr.contains("without a label: 3 of 4") && !told.stderr.contains("cat-2"), "{}", told.stderr);
    let hash =
        |dataset: &str| folder.run(&format!("manifest {dataset} --json")).ok().summary()["settings"]["labels"].clone();
    assert!(hash("plain").is_string());
    assert_ne!(hash("plain"), hash("shards"));
    refused(folder.run(&format!("convert in --label-from-folder --out cls {private}")), 2, &["--redact-source-paths"]);
}

/// Images in folders of classes.
fn classes(folder: &Folder) {
    folder.copy(IMAGES[0].0, "in/train/cat/1.webp");
    folder.copy(IMAGES[1].0, "in/val/cat/2.webp");
    folder.copy(IMAGES[2].0, "in/train/triangle/1.gif");
    folder.write("in/train/triangle/1.txt", "three");
    folder.copy(IMAGES[3].0, "in/train/Zebra/1.jpeg");
}

/// The classes of a tar dataset, by member.
fn numbers(folder: &Folder, dataset: &str) -> Vec<(String, String)> {
    let members = folder.members(dataset).into_iter().filter(|(name, _)| name.ends_with(".cls"));
    members.map(|(name, content)| (name, String::from_utf8(content).unwrap())).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, number)| ((*name).to_owned(), (*number).to_owned())).collect()
}

#[test]
fn folders_are_classes_that_keep_their_numbers() {
    let folder = Folder::new();
    classes(&folder);
    let told = folder.run("convert in --label-from-folder").ok();
    assert!(told.stderr.contains("note: classes: Zebra = 0, cat = 1, triangle = 2"), "{}", told.stderr);
    let first =
        [("train/Zebra/1.cls", "0"), ("train/cat/1.cls", "1"), ("train/triangle/1.cls", "2"), ("val/cat/2.cls", "1")];
    assert_eq!(numbers(&folder, "shards"), pairs(&first));
    // Later runs know it.
    folder.copy(IMAGES[0].0, "in/val/cat/3.webp");
    folder.copy(IMAGES[0].0, "in/val/ant/1.webp");
    let told = folder.run("convert in").ok();
    assert!(told.stderr.contains("new classes: ant = 3") && !told.stderr.contains("cat ="), "{}", told.stderr);
    let later = [("val/ant/1.cls", "3"), ("val/cat/3.cls", "1")];
    let mut all = pairs(&[&first[..], &later[..]].concat());
    all.sort();
    assert_eq!(numbers(&folder, "shards"), all);
    let settings = folder.run("manifest --json").ok().summary()["settings"].clone();
    assert_eq!(settings["classes"], json!(["Zebra", "cat", "triangle", "ant"]));
    let shown = folder.run("manifest").ok().stdout;
    assert!(shown.contains("classes    4: 0 Zebra, 1 cat, 2 triangle, 3 ant"), "{shown}");
    let shown = folder.run("inspect shards").ok().stdout;
    assert!(shown.contains("4: 0 Zebra, 1 cat, 2 triangle, 3 ant"), "{shown}");
    folder.run("compact --min-inputs 2").ok();
    assert_eq!(numbers(&folder, "shards"), all);
    folder.run("verify --read-data").ok();
    // Also as a column of Parquet, beside labels, and in tasks.
    folder.write("labels.csv", "file,x\nval/ant/1.webp,5\n");
    let more = "convert in --label-from-folder --labels labels.csv --accept labels --to parquet";
    folder.run(&format!("{more} --out columns")).ok();
    let (_, bytes) = folder.only_shards("columns").remove(0);
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
    let names: Vec<String> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["__key__", "cls", "gif", "jpeg", "json", "txt", "webp"]);
    assert!(reader.schema().field(1).data_type() == &arrow::datatypes::DataType::Utf8);
    folder.run(&format!("{more} --out tasks --task-size 8KiB")).ok();
    for dataset in ["columns", "tasks"] {
        folder.run(&format!("convert {dataset} --to tar --out {dataset}-tar")).ok();
    }
    assert_eq!(folder.members("columns-tar"), folder.members("tasks-tar"));
    assert_eq!(numbers(&folder, "tasks-tar")[0], ("train/Zebra/1.cls".to_owned(), "0".to_owned()));
    // A dataset whose samples have no classes gets none unawares.
    folder.run("convert in --exclude **/ant/* --out without").ok();
    refused(folder.run("convert in --label-from-folder --out without"), 8, &["--label-from-folder"]);
    refused(
        folder.run("convert labels.csv --label-from-folder --out rows"),
        2,
        &["expected files for --label-from-folder"],
    );
}

#[test]
fn a_number_never_means_two_classes() {
    let folder = Folder::new();
    classes(&folder);
    folder.run("convert in --label-from-folder").ok();
    folder.copy(IMAGES[0].0, "in/x/bee/1.webp");
    let plan = folder.run("plan convert in --json").ok().summary();
    let plan = plan["plan"].as_str().unwrap().to_owned();
    folder.run(&format!("run-task {plan} --task 0")).ok();
    folder.copy(IMAGES[0].0, "in/y/ant/1.webp");
    folder.run("convert in --include y/**").ok();
    refused(folder.run(&format!("commit {plan}")), 4, &["another run gave the numbers of new classes"]);
    folder.run("convert in").ok();
    let settings = folder.run("manifest --json").ok().summary()["settings"].clone();
    assert_eq!(settings["classes"], json!(["Zebra", "cat", "triangle", "ant", "bee"]));
    // Without new classes, a plan goes with those of another run.
    folder.copy(IMAGES[0].0, "in/x/cat/1.webp");
    let plan = folder.run("plan convert in --json").ok().summary();
    let plan = plan["plan"].as_str().unwrap().to_owned();
    folder.run(&format!("run-task {plan} --task 0")).ok();
    folder.copy(IMAGES[0].0, "in/y/cow/1.webp");
    folder.run("convert in --include y/**").ok();
    folder.run(&format!("commit {plan}")).ok();
    let settings = folder.run("manifest --json").ok().summary()["settings"].clone();
    assert_eq!(settings["classes"], json!(["Zebra", "cat", "triangle", "ant", "bee", "cow"]));
    let numbers: BTreeMap<String, String> = numbers(&folder, "shards").into_iter().collect();
    assert_eq!((numbers["x/cat/1.cls"].as_str(), numbers["y/cow/1.cls"].as_str()), ("1", "5"));
}

#[test]
fn content_of_files_is_recognized_whatever_the_labels() {
    let folder = Folder::new();
    images(&folder);
    folder.write("labels.csv", TABLE);
    folder.run("convert in --labels labels.csv --identity content").ok();
    folder.copy(IMAGES[2].0, "in/moved.gif");
    folder.write("labels.csv", format!("{TABLE}moved,1,\n"));
    let again = folder.run("convert in --labels labels.csv --identity content --json").ok();
    let summary = again.summary();
    assert_eq!((summary["sources_moved"].clone(), summary["records_out"].clone()), (json!(1), json!(0)), "{summary}");
}

/// Returns the text of a member of any shard of a dataset, by GNU tar.
fn label(folder: &Folder, dataset: &str, member: &str) -> String {
    let shards = folder.run(&format!("manifest {dataset} --list --json")).ok().objects();
    let read = |shard: &serde_json::Value| {
        let path = folder.path().join(dataset).join(shard["path"].as_str()?);
        let out = std::process::Command::new("tar").arg("xOf").arg(path).arg(member).output().unwrap();
        out.status.success().then(|| String::from_utf8(out.stdout).unwrap())
    };
    shards.iter().find_map(read).unwrap_or_default()
}

#[test]
fn types_of_labels_bind_the_tables_of_later_runs() {
    let folder = Folder::new();
    for name in ["a", "b", "c", "d"] {
        folder.write(&format!("{name}/{name}.txt"), name);
    }
    folder.write("a.csv", "file,n,w,code\na.txt,7,1.5,x\n");
    folder.write("b.csv", "file,n,w,code\nb.txt,,2,7\n");
    folder.write("c.csv", "file,n,w,code\nc.txt,many,2,7\n");
    folder.write("d.jsonl", "{\"file\":\"d.txt\",\"n\":8,\"w\":null,\"code\":\"z\",\"new\":true}\n");
    folder.run("convert a --labels a.csv --out ds").ok();
    folder.run("convert b --labels b.csv --out ds").ok();
    assert_eq!(label(&folder, "ds", "b.json"), r#"{"n":null,"w":2.0,"code":"7"}"#);
    let refused = folder.run("convert c --labels c.csv --out ds");
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    for part in
        ["expected int64, as labels of this dataset have, found text", "c.csv", "column `n`", "--on-schema union"]
    {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    folder.run("convert d --labels d.jsonl --out ds").ok();
    assert_eq!(label(&folder, "ds", "d.json"), r#"{"n":8,"w":null,"code":"z","new":true}"#);
    let widened = folder.run("convert c --labels c.csv --out ds --on-schema union").ok();
    assert!(widened.stderr.contains("types of labels change: `n` from int64 to text"), "{}", widened.stderr);
    assert_eq!(label(&folder, "ds", "c.json"), r#"{"n":"many","w":2.0,"code":"7"}"#);
    assert_eq!(label(&folder, "ds", "a.json"), r#"{"n":7,"w":1.5,"code":"x"}"#);
}

#[test]
fn a_plan_reads_labels_with_the_types_of_the_dataset() {
    let folder = Folder::new();
    folder.write("a/a.txt", "a");
    folder.write("b/b.txt", "b");
    folder.write("a.csv", "file,w\na.txt,1.5\n");
    folder.write("b.csv", "file,w\nb.txt,2\n");
    folder.run("convert a --labels a.csv --out ds").ok();
    let plan =
        folder.run("plan convert b --labels b.csv --out ds --json").ok().summary()["plan"].as_str().unwrap().to_owned();
    folder.run(&format!("run-task {plan} --task 0")).ok();
    folder.run(&format!("commit {plan}")).ok();
    assert_eq!(label(&folder, "ds", "b.json"), r#"{"w":2.0}"#);
}

#[test]
fn the_metadata_of_several_folders_has_one_type() {
    let folder = Folder::new();
    folder.write("data/train/a.txt", "a");
    folder.write("data/test/b.txt", "b");
    folder.write("data/train/metadata.csv", "file_name,w\na.txt,1.5\n");
    folder.write("data/test/metadata.csv", "file_name,w\nb.txt,2\n");
    folder.run("convert data --out ds").ok();
    assert_eq!(label(&folder, "ds", "train/a.json"), r#"{"w":1.5}"#);
    assert_eq!(label(&folder, "ds", "test/b.json"), r#"{"w":2.0}"#);
}
