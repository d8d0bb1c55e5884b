//! Standard input with a name: when it is known, when it has to be whole, and what it is called.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::sync::Arc;

use crate::support;

use arrow::{
    array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray, StringViewArray},
    datatypes::Int32Type,
    ipc::writer::{FileWriter, StreamWriter},
};
use flate2::{Compression, write::GzEncoder};
use std::io::Write;
use support::{Folder, Ran};

const ROWS: i64 = 20;

/// Returns rows of visits, whose texts are packed as `pack` does.
fn visits(first: i64, pack: fn(Vec<String>) -> ArrayRef) -> RecordBatch {
    let days = (first..ROWS).map(|row| format!("day {}", row % 3)).collect();
    let columns: [(&str, ArrayRef); 2] =
        [("visit", Arc::new(Int64Array::from_iter_values(first..ROWS))), ("day", pack(days))];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn texts(values: Vec<String>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

fn views(values: Vec<String>) -> ArrayRef {
    Arc::new(StringViewArray::from_iter_values(values))
}

fn words(values: Vec<String>) -> ArrayRef {
    Arc::new(values.iter().map(|value| Some(value.as_str())).collect::<DictionaryArray<Int32Type>>())
}

/// Returns a stream in batches of so many rows.
fn stream_of(batch: &RecordBatch, rows: usize) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    for at in (0..batch.num_rows()).step_by(rows) {
        writer.write(&batch.slice(at, rows.min(batch.num_rows() - at))).unwrap();
    }
    writer.into_inner().unwrap()
}

fn file_of(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Converts standard input into the dataset `d`.
fn convert(folder: &Folder, input: &[u8], more: &str) -> Ran {
    let arguments = format!("convert - --from arrow --out d --json {more}");
    folder.run_input(&arguments.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>(), input)
}

#[track_caller]
fn assert_unchanged(ran: Ran) {
    let summary = ran.ok().summary();
    assert_eq!((&summary["sources"], &summary["sources_unchanged"]), (&0.into(), &1.into()), "{summary}");
}

fn versions(folder: &Folder) -> usize {
    std::fs::read_dir(folder.path().join("d/_shardify/log")).map_or(0, Iterator::count)
}

#[test]
fn the_same_rows_are_known_however_they_are_cut_and_packed() {
    let folder = Folder::new();
    let first = convert(&folder, &stream_of(&visits(0, texts), 7), "--read name=visits").ok().summary();
    assert_eq!(first["records_out"], ROWS);
    for batch in [visits(0, texts), visits(0, views), visits(0, words)] {
        for bytes in [stream_of(&batch, 1), stream_of(&batch, 1000), file_of(&batch), packed(&stream_of(&batch, 3))] {
            assert_unchanged(convert(&folder, &bytes, "--name visits"));
        }
    }
    assert_eq!(versions(&folder), 1);
    let found = folder.run("manifest d --find visits#3 --json").ok().objects();
    let origin = &found[0]["origin"];
    assert_eq!((&origin["source"], &origin["row"]), (&"visits".into(), &3.into()), "{found:?}");
}

#[test]
fn other_rows_are_a_changed_source() {
    let folder = Folder::new();
    convert(&folder, &stream_of(&visits(0, texts), 7), "--name visits").ok();
    let fewer = stream_of(&visits(5, texts), 7);
    let refused = convert(&folder, &fewer, "--name visits");
    assert_eq!((refused.code, &refused.error()["source"]), (8, &"stream:visits".into()));
    assert_eq!(convert(&folder, &fewer, "--name visits --on-changed skip").ok().summary()["sources_changed"], 1);
    let replaced = convert(&folder, &fewer, "--name visits --on-changed replace").ok().summary();
    assert_eq!((&replaced["records_out"], &replaced["version"]), (&(ROWS - 5).into(), &2.into()));
    assert_unchanged(convert(&folder, &fewer, "--name visits"));
    // What was removed is not known any longer.
    folder.run("remove d --source visits").ok();
    assert_eq!(convert(&folder, &fewer, "--name visits").ok().summary()["records_out"], ROWS - 5);
}

#[test]
fn the_same_tag_saves_reading() {
    let folder = Folder::new();
    let rows = stream_of(&visits(0, texts), 7);
    convert(&folder, &rows, "--name visits --etag v42").ok();
    for ignored in [&b"no Arrow data"[..], b""] {
        assert_unchanged(convert(&folder, ignored, "--name visits --etag v42"));
    }
    assert_unchanged(convert(&folder, &rows, "--name visits --etag v43"));
    assert_unchanged(convert(&folder, &rows, "--name visits"));
    // Another name, another format, or all records anew: it is read.
    assert_eq!(convert(&folder, b"no Arrow data", "--name other --etag v42").code, 6);
    assert_eq!(convert(&folder, b"", "--name visits --etag v42 --overwrite").code, 6);
    let csv = folder
        .run_input(&["convert", "-", "--from", "csv", "--name", "visits", "--etag", "v42", "--out", "d"], b"a\n1\n");
    assert_eq!(csv.code, 8, "{csv:?}");
}

#[test]
fn rows_of_another_name_are_known_by_content() {
    let folder = Folder::new();
    convert(&folder, &stream_of(&visits(0, texts), 7), "--name visits").ok();
    let moved = convert(&folder, &stream_of(&visits(0, views), 2), "--name copy --identity content").ok();
    assert_eq!(moved.summary()["sources_moved"], 1);
    assert!(moved.stderr.contains("v1 converted the same content as `visits`"), "{}", moved.stderr);
    assert_eq!(convert(&folder, &stream_of(&visits(0, views), 2), "--name copy").ok().summary()["records_out"], ROWS);
}

#[test]
fn private_datasets_know_their_streams() {
    let folder = Folder::new();
    let key = "--id-mode hmac --id-key key --redact-source-paths --id visit";
    folder.write("key", "0f".repeat(32));
    convert(&folder, &stream_of(&visits(0, texts), 7), &format!("--name visits --etag v1 {key}")).ok();
    assert_unchanged(convert(&folder, &stream_of(&visits(0, words), 3), "--name visits --id-key key"));
    assert_unchanged(convert(&folder, b"", "--name visits --etag v1 --id-key key"));
    let moved = convert(&folder, &stream_of(&visits(0, words), 3), "--name copy --identity content --id-key key");
    assert_eq!(moved.ok().summary()["sources_moved"], 1);
    let entries = std::fs::read_dir(folder.path().join("d/_shardify/log")).unwrap();
    for entry in entries.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()) {
        assert!(!entry.contains("visits"), "{entry}");
    }
}

#[test]
fn a_stream_that_was_cut_commits_nothing() {
    let folder = Folder::new();
    let whole = stream_of(&visits(0, words), 7);
    for cut in [&whole[..whole.len() - 8], &whole[..whole.len() - 4], &whole[..whole.len() / 2], &whole[..9], b""] {
        for more in ["", "--name v", "--on-error skip", "--name v --on-error quarantine"] {
            let ran = convert(&folder, cut, more);
            assert_eq!(ran.code, 6, "{} bytes, {more}: {ran:?}", cut.len());
        }
        assert_eq!(convert(&folder, &packed(cut), "--on-error skip").code, 6);
    }
    assert_eq!(versions(&folder), 0);
    let error = convert(&folder, &whole[..whole.len() - 8], "--name v").error();
    assert!(error["message"].as_str().unwrap().ends_with("the stream was cut"), "{error}");
    assert_eq!(error["byte"], whole.len() - 8);
    let unmarked = &whole[..whole.len() - 8];
    assert_eq!(convert(&folder, unmarked, "--name v --read end=any").ok().summary()["records_out"], ROWS);
    assert_unchanged(convert(&folder, &whole, "--name v"));
    // A file may end so.
    folder.write("unmarked.arrows", unmarked);
    assert_eq!(folder.run("convert unmarked.arrows --out e --json").ok().summary()["records_out"], ROWS);
}

#[test]
fn any_format_may_have_a_name() {
    let folder = Folder::new();
    let csv = |input: &str, more: &str| {
        let arguments = format!("convert - --from csv --out d --json --name visits {more}");
        folder.run_input(&arguments.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>(), input.as_bytes())
    };
    assert_eq!(csv("id,day\n1,a\n", "").ok().summary()["records_out"], 1);
    assert_unchanged(csv("id,day\n1,a\n", ""));
    assert_eq!(csv("id,day\n2,b\n", "").code, 8, "as many bytes");
    assert_eq!(csv("id,day\n2,b\n", "--on-changed append").ok().summary()["records_out"], 1);
    let moved = folder.run_input(
        &["convert", "-", "--from", "csv", "--out", "d", "--json", "--name", "other", "--identity", "content"],
        b"id,day\n2,b\n",
    );
    assert_eq!(moved.ok().summary()["sources_moved"], 1);
}

#[test]
fn rows_arrive_in_every_format() {
    for format in ["parquet", "tar", "tfrecord"] {
        let folder = Folder::new();
        convert(&folder, &stream_of(&visits(0, words), 7), &format!("--name visits --to {format} --jobs 4")).ok();
        let shown = folder.run("head d -n 20 --json").ok().objects();
        let days: Vec<&str> = shown.iter().filter_map(|record| record["values"]["day"].as_str()).collect();
        assert_eq!(days.len(), usize::try_from(ROWS).unwrap(), "{format}: {shown:?}");
        assert_eq!((days[1], days[19]), ("day 1", "day 1"));
    }
}

#[test]
fn settings_that_do_not_fit_are_errors() {
    let folder = Folder::new();
    let rows = stream_of(&visits(0, texts), 7);
    folder.write("visits", &rows);
    folder.write("other.arrows", &rows);
    for (arguments, part) in [
        ("convert - --from arrow --etag v1 --out d", "expected --read name=NAME with --read etag=v1"),
        ("convert visits --name v --out d", "expected `-`, standard input, among the sources with --read name"),
        ("convert visits --etag v --out d", "expected `-`, standard input, among the sources with --read etag"),
        ("convert - --name v --out d", "expected --from with `-`"),
        (
            "convert - visits --from arrow --name visits --out d",
            "expected sources of different names, found two `visits`",
        ),
        ("convert - --from arrow --name= --out d", "expected a name of 1 to 1024 bytes"),
        ("plan convert - --from arrow --read name=v --out d", "standard input can be read only once"),
    ] {
        let ran = folder.run_input(&arguments.split(' ').collect::<Vec<_>>(), &rows);
        assert_eq!(ran.code, 2, "{arguments}: {ran:?}");
        assert!(ran.stderr.contains(part), "{arguments}: {}", ran.stderr);
    }
    assert_eq!(versions(&folder), 0);
    let both = convert(&folder, &rows, "other.arrows --name _SUCCESS").ok().summary();
    assert_eq!((&both["sources"], &both["records_out"]), (&2.into(), &(2 * ROWS).into()));
}
