//! Web archives as inputs: WARC, WET and WAT.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use serde_json::Value;
use support::{Folder, Ran};

fn record(kind: &str, id: &str, fields: &str, block: &str) -> String {
    format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{id}>\r\nWARC-Date: 2024-05-06T07:08:09Z\r\n\
         WARC-Target-URI: http://example.com/{id}\r\n{fields}Content-Length: {}\r\n\r\n{block}\r\n\r\n",
        block.len()
    )
}

fn response(id: &str, body: &str) -> String {
    let block = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n{body}");
    record("response", id, "Content-Type: application/http; msgtype=response\r\n", &block)
}

fn wet(id: &str, text: &str) -> String {
    record("conversion", id, "Content-Type: text/plain\r\n", text)
}

/// Values of the rows that `head` printed.
fn values(ran: &Ran) -> Vec<Value> {
    ran.objects().into_iter().filter(|object| object["type"] == "record").map(|row| row["values"].clone()).collect()
}

#[test]
fn archives_become_every_format_of_shards() {
    let folder = Folder::new();
    folder.copy("warc/example.warc.gz", "in/example.warc.gz");
    for format in ["parquet", "tar", "tfrecord"] {
        let ran = folder.run(&format!("convert in --to {format} --out {format} --json")).ok().summary();
        assert_eq!((ran["records_in"].as_u64(), ran["records_out"].as_u64()), (Some(6), Some(6)), "{ran}");
        let found = folder.run(&format!("manifest {format} --find example.warc.gz#3 --json")).ok();
        assert!(found.stdout.contains("\"hits\":1"), "{found:?}");
        let again = folder.run(&format!("convert in --to {format} --out {format} --json")).ok().summary();
        assert_eq!((again["records_in"].as_u64(), again["sources_unchanged"].as_u64()), (Some(0), Some(1)), "{again}");
        folder.run(&format!("verify {format} --read-data")).ok();
    }
    let rows = folder.run("head parquet --json").ok();
    let expected =
        "\"id\":\"a9c51e3e-0221-11e7-bf66-0242ac120005\",\"type\":\"response\",\"uri\":\"http://example.com/\"";
    assert!(rows.stdout.contains(expected) && rows.stdout.contains("\"status\":200"), "{}", rows.stdout);
    let back = folder.run("convert tar --out back --json").ok().summary();
    assert_eq!(back["records_out"].as_u64(), Some(6), "{back}");
    assert_eq!(values(&folder.run("head back --json")), values(&rows));
}

#[test]
fn archives_are_described_and_read_from_standard_input() {
    let folder = Folder::new();
    folder.copy("warc/example.warc.gz", "a.warc.gz");
    let inspected = folder.run("inspect a.warc.gz").ok();
    assert!(inspected.stdout.contains("warc") && inspected.stdout.contains("warc_headers"), "{inspected:?}");
    let head = folder.run("head a.warc.gz --json").ok();
    assert_eq!(head.stdout.matches("\"type\":\"response\"").count(), 1, "{head:?}");
    let bytes = std::fs::read(folder.path().join("a.warc.gz")).unwrap();
    let ran = folder.run_input(&["convert", "-", "--from", "warc", "--out", "d", "--json"], &bytes).ok().summary();
    assert_eq!(ran["records_out"].as_u64(), Some(6), "{ran}");
    let dry = folder.run("convert a.warc.gz --out e --dry-run --json").ok();
    assert!(dry.stdout.contains("\"warc_headers\"") && !folder.path().join("e").exists(), "{dry:?}");
    // The dictionary of an archive in zstd lies before its frames.
    folder.copy("warc/dictionary.warc.zst", "b.warc.zst");
    let other = folder.run("head b.warc.zst --json").ok();
    assert_eq!(values(&other), values(&head));
}

#[test]
fn columns_conditions_and_ids_are_chosen() {
    let folder = Folder::new();
    let all = [record("warcinfo", "0", "", "a: b"), response("1", "one"), response("2", "two"), wet("3", "three")];
    folder.write("a.warc", all.concat());
    let convert = "convert a.warc --out d --id id --columns id,uri,status,payload --json";
    let ran = folder.run_with(&[convert.split(' ').collect::<Vec<_>>(), vec!["--where", "type = 'response'"]].concat());
    let summary = ran.ok().summary();
    assert_eq!(
        (summary["records_out"].as_u64(), summary["records_filtered"].as_u64()),
        (Some(2), Some(2)),
        "{summary}"
    );
    let head = folder.run("head d --json").ok();
    let line = "{\"id\":\"1\",\"uri\":\"http://example.com/1\",\"status\":200,\"payload\":{\"bytes\":3,";
    assert!(head.stdout.contains(line), "{}", head.stdout);
    let found = folder.run("manifest d --find 2 --json").ok();
    assert!(found.stdout.contains("\"row\":3"), "{found:?}");
}

#[test]
fn text_is_a_column_of_wet_and_of_archives_that_are_to_have_it() {
    let folder = Folder::new();
    folder.write("in/a.warc.wet", [record("warcinfo", "0", "", "a: b"), wet("1", "caf\u{e9}")].concat());
    folder.write("in/b.warc", [response("2", "two"), response("3", "three")].concat());
    folder.run("convert in --out d").ok();
    let head = folder.run("head d --json").ok().stdout;
    assert!(
        head.contains("\"text\":\"caf\u{e9}\"") && head.contains("\"text\":null,\"payload\":{\"bytes\":3,"),
        "{head}"
    );
    folder.run("convert in/b.warc --out e --read text=yes").ok();
    let head = folder.run("head e --json").ok().stdout;
    assert!(head.contains("\"text\":\"two\"") && head.contains("\"payload\":null"), "{head}");
    folder.run("convert in/a.warc.wet --out f --read text=no").ok();
    assert!(!folder.run("head f --json").ok().stdout.contains("\"text\":"));
    let block = "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\npacked";
    folder.write("br.warc", record("response", "4", "Content-Type: application/http\r\n", block).repeat(2));
    let told = folder.run("convert br.warc --out h").ok().stderr;
    assert!(told.contains("br.warc: a body in brotli") && told.contains("(and 1 more)"), "{told}");
    assert!(!folder.run("convert br.warc --out i --read body=raw").ok().stderr.contains("brotli"));
    let wrong = folder.run("convert in --out g --read body=packed");
    assert!(wrong.code == 2 && wrong.stderr.contains("body=decoded or raw"), "{wrong:?}");
}

#[test]
fn damaged_records_are_told_kept_and_skipped() {
    let folder = Folder::new();
    let wrong = response("2", "two").replace("Content-Length: 62", "Content-Length: 61");
    assert_ne!(wrong, response("2", "two"));
    let at = response("1", "one").len();
    folder.write("in/a.warc", [&response("1", "one"), &wrong, &response("3", "three")].map(String::as_str).concat());
    let ran = folder.run("convert in --out d");
    let told = format!(
        "row 2: expected a block of 61 bytes and then the next record, found 66 bytes before it (the record begins at \
         byte {at})"
    );
    assert!(ran.code == 6 && ran.stderr.contains(&told) && ran.stderr.contains("hint: "), "{ran:?}");
    let kept = folder.run("convert in --out d --on-error quarantine --json");
    assert_eq!((kept.code, kept.summary()["records_out"].as_u64()), (3, Some(2)), "{kept:?}");
    let rejects = kept.summary()["rejects"].as_str().unwrap().to_owned();
    let rejects = std::fs::read_to_string(folder.path().join("d").join(rejects)).unwrap();
    assert!(rejects.contains("urn:uuid:2") && rejects.contains("\"row\":2"), "{rejects}");
    let found = folder.run("manifest d --find a.warc#3 --json").ok();
    assert!(found.stdout.contains("\"hits\":1"), "{found:?}");
    folder.write("cut.warc", &response("1", "one").as_bytes()[..at - 9]);
    let ran = folder.run("convert cut.warc --out e");
    assert!(ran.code == 6 && ran.stderr.contains("expected a block of 62 bytes"), "{ran:?}");
}

#[test]
fn other_formats_under_these_names_are_told() {
    let folder = Folder::new();
    folder.copy("bad/example.arc.gz", "old.arc.gz");
    let ran = folder.run("convert old.arc.gz --out d");
    assert!(ran.code == 6 && ran.stderr.contains("an ARC file") && ran.stderr.contains("warcio recompress"), "{ran:?}");
    folder.copy("bad/example.arc.gz", "named.warc.gz");
    let ran = folder.run("convert named.warc.gz --out d");
    assert!(ran.code == 6 && ran.stderr.contains("an ARC file") && ran.stderr.contains("warcio recompress"), "{ran:?}");
    folder.write("empty.warc", "");
    let ran = folder.run("convert empty.warc --out d");
    assert!(ran.code == 6 && ran.stderr.contains("the file is empty"), "{ran:?}");
    folder.write("table.warc", "a,b\n1,2\n");
    let ran = folder.run("convert table.warc --out table").ok();
    assert!(ran.stderr.contains("is named as WARC but contains csv"), "{ran:?}");
    folder.write("prose.warc", "a web archive\n");
    let ran = folder.run("convert prose.warc --out d");
    assert!(ran.code == 6 && ran.stderr.contains("text of another kind"), "{ran:?}");
    folder.write("page.csv", response("1", "one"));
    let ran = folder.run("convert page.csv --out d").ok();
    assert!(ran.stderr.contains("is named as delimited text but contains warc"), "{ran:?}");
    let ran = folder.run("convert page.csv --out e --read delimiter=;");
    assert!(ran.stderr.contains("delimiter"), "{ran:?}");
}

#[test]
fn threads_memory_and_tasks_change_no_record() {
    let folder = Folder::new();
    let records: Vec<String> =
        (0..4000).map(|i| response(&i.to_string(), &format!("page {i} ").repeat(i % 90))).collect();
    folder.write("a.warc", records.concat());
    for (name, more) in [("a", "--jobs 1"), ("b", "--jobs 8"), ("c", "--jobs 2 --task-size 200KiB")] {
        let ran = folder.run(&format!("convert a.warc --out {name} --memory 64MiB {more} --json")).ok().summary();
        assert_eq!(ran["records_out"].as_u64(), Some(4000), "{ran}");
        let ids = folder.run(&format!("manifest {name} --find a.warc#4000 --json")).ok();
        assert!(ids.stdout.contains("\"hits\":1"), "{ids:?}");
    }
    assert_eq!(folder.only_shards("a")[0].1, folder.only_shards("b")[0].1);
}
