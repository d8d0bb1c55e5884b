//! Records and their columns, against literal bytes, and cuts of every size.

use std::io::{Cursor, Write as _};

use arrow::{
    array::{Array as _, AsArray as _, RecordBatch},
    datatypes::{Int32Type, TimestampMicrosecondType},
};
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;

use super::*;
use crate::{
    error::{Error, Kind},
    format::{faulty::Faulty, part_checks::check_parts},
    schema::schema_of,
};

const RANGE: usize = 1 << 20;

fn record(kind: &str, fields: &str, block: impl AsRef<[u8]>) -> Vec<u8> {
    let block = block.as_ref();
    let head = format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{kind}-1>\r\nWARC-Date: 2016-01-01T00:00:01Z\r\n\
         {fields}Content-Length: {}\r\n\r\n",
        block.len()
    );
    [head.as_bytes(), block, b"\r\n\r\n"].concat()
}

fn http(fields: &str, head: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let block = [format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes(), body.as_ref()].concat();
    record("response", &format!("Content-Type: application/http; msgtype=response\r\n{fields}"), block)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn read_all(reader: &WarcReader, bytes: &[u8], range_bytes: usize) -> (Vec<RecordBlock>, Option<Error>) {
    let (mut blocks, mut fault) = (Vec::new(), None);
    for range in reader.ranges(Box::new(Cursor::new(bytes.to_vec())), range_bytes, RANGE) {
        match range {
            Ok(range) => match reader.parse(&range, &schema_of(&reader.infer(&range))).unwrap() {
                Parsed::Block(block) => blocks.push(block),
                Parsed::Mismatch(mismatch) => panic!("{mismatch:?}"),
            },
            Err(error) => fault = Some(error),
        }
    }
    (blocks, fault)
}

/// Rows and rejects of bytes that have no other fault.
fn rows_with(bytes: &[u8], options: WarcOptions) -> (RecordBatch, Vec<Reject>) {
    let reader = WarcReader::new(bytes, options, None);
    let (blocks, fault) = read_all(&reader, bytes, RANGE);
    assert!(fault.is_none(), "{fault:?}");
    let schema = schema_of(&reader.fields);
    let rejects = blocks.iter().flat_map(|block| block.rejects.clone()).collect();
    let batches: Vec<RecordBatch> = blocks
        .into_iter()
        .map(|block| match block.payload {
            Payload::Rows(rows) => rows,
            Payload::Samples(_) => panic!("expected rows"),
        })
        .collect();
    (arrow::compute::concat_batches(&schema, &batches).unwrap(), rejects)
}

fn rows_of(bytes: &[u8]) -> RecordBatch {
    let (rows, rejects) = rows_with(bytes, WarcOptions::default());
    assert!(rejects.is_empty(), "{rejects:?}");
    rows
}

/// Values of a column of text or bytes.
fn values(rows: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = rows.column_by_name(name).unwrap();
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match column.as_binary_opt::<i32>() {
        Some(bytes) => bytes.iter().map(|value| value.map(text)).collect(),
        None => column.as_string::<i32>().iter().map(|value| value.map(str::to_owned)).collect(),
    }
}

fn value(rows: &RecordBatch, name: &str) -> Option<String> {
    values(rows, name)[0].clone()
}

/// Names and values of a column of fields in the first row.
fn pairs(rows: &RecordBatch, name: &str) -> Vec<(String, String)> {
    let list = rows.column_by_name(name).unwrap().as_list::<i32>().value(0);
    let (names, values) =
        (list.as_struct().column(0).as_string::<i32>(), list.as_struct().column(1).as_string::<i32>());
    let pair = |(name, value): (Option<&str>, Option<&str>)| {
        (name.unwrap_or("none").to_owned(), value.unwrap_or("none").to_owned())
    };
    names.iter().zip(values).map(pair).collect()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_response_has_the_columns_of_its_message() {
    let fields = "WARC-Target-URI: <http://example.com/caf\u{e9}>\r\nWARC-IP-Address: 93.184.216.34\r\n";
    let head =
        "Content-Type: text/HTML; charset=UTF-8\r\nX-Long: a\r\n  b\r\nset-cookie: 1\r\nSet-Cookie: 2\r\nodd\r\n";
    let rows = rows_of(&http(fields, head, b"<html>\xff</html>"));
    for (column, expected) in [
        ("id", some("response-1")),
        ("type", some("response")),
        ("uri", some("http://example.com/caf\u{e9}")),
        ("ip", some("93.184.216.34")),
        ("mime", some("text/html")),
        ("charset", some("utf-8")),
        ("encoding", None),
        ("truncated", None),
        ("start_line", some("HTTP/1.1 200 OK")),
        ("payload", some("<html>\\xff</html>")),
    ] {
        assert_eq!(value(&rows, column), expected, "{column}");
    }
    assert_eq!(rows.column_by_name("status").unwrap().as_primitive::<Int32Type>().value(0), 200);
    let date = rows.column_by_name("date").unwrap().as_primitive::<TimestampMicrosecondType>();
    assert_eq!((date.value(0), date.timezone()), (1_451_606_401_000_000, Some("UTC")));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let headers = [
        pair("Content-Type", "text/HTML; charset=UTF-8"),
        pair("X-Long", "a b"),
        pair("set-cookie", "1"),
        pair("Set-Cookie", "2"),
        pair("odd", "none"),
    ];
    assert_eq!(pairs(&rows, "headers"), headers);
    assert_eq!(pairs(&rows, "warc_headers").len(), 7);
    assert_eq!(pairs(&rows, "warc_headers")[1], pair("WARC-Record-ID", "<urn:uuid:response-1>"));
}

#[test]
fn records_of_other_types_have_their_blocks() {
    let bytes = [
        record("warcinfo", "Content-Type: application/warc-fields\r\n", "software: x\r\n"),
        record("request", "Content-Type: application/http\r\n", "POST /a HTTP/1.0\r\nHost: b\r\n\r\nc=d"),
        record("resource", "Content-Type: image/png\r\nWARC-Truncated: length\r\n", b"\x89PNG"),
        record("revisit", "Content-Type: application/http\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
        record("response", "Content-Type: text/dns\r\n", "20240101\n"),
        record("response", "", "HTTP/1.1 404 Not Found\n\nno"),
        record("response", "Content-Type: application/http\r\n", "no message at all"),
        record("metadata", "", ""),
    ]
    .concat();
    let rows = rows_of(&bytes);
    let of = |column| values(&rows, column).into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>();
    assert_eq!(
        of("type"),
        ["warcinfo", "request", "resource", "revisit", "response", "response", "response", "metadata"]
    );
    let payloads = ["software: x\\r\\n", "c=d", "\\x89PNG", "", "20240101\\n", "no", "no message at all", ""];
    assert_eq!(of("payload"), payloads);
    let types = ["application/warc-fields", "", "image/png", "", "text/dns", "", "application/http", ""];
    assert_eq!(of("mime"), types);
    assert_eq!(of("start_line")[1..6], ["POST /a HTTP/1.0", "", "HTTP/1.1 200 OK", "", "HTTP/1.1 404 Not Found"]);
    assert_eq!(of("truncated"), ["", "", "length", "", "", "", "", ""]);
    let status = rows.column_by_name("status").unwrap().as_primitive::<Int32Type>();
    let status: Vec<Option<i32>> = status.iter().collect();
    assert_eq!(status, [None, None, None, Some(200), None, Some(404), None, None]);
}

#[test]
fn bodies_are_decoded_unless_they_are_to_stay() {
    let packed = gzip(b"a page");
    let chunked = [format!("{:x}\r\n", packed.len()).as_bytes(), &packed, b"\r\n0\r\n\r\n"].concat();
    let bytes = http("", "Transfer-Encoding: chunked\r\nContent-Encoding: GZIP\r\n", &chunked);
    let rows = rows_of(&bytes);
    assert_eq!((value(&rows, "payload"), value(&rows, "encoding")), (some("a page"), None));
    let (rows, _) = rows_with(&bytes, WarcOptions { raw: true, text: None });
    let stored = chunked.escape_ascii().to_string();
    assert_eq!((value(&rows, "payload"), value(&rows, "encoding")), (Some(stored), some("gzip, chunked")));
    let rows = rows_of(&http("", "Content-Encoding: br\r\n", "x"));
    assert_eq!((value(&rows, "payload"), value(&rows, "encoding")), (some("x"), some("br")));
    let brotli = http("", "Content-Encoding: br\r\n", "x").repeat(3);
    for (raw, told) in [(false, vec![3]), (true, Vec::new())] {
        let reader = WarcReader::new(&brotli, WarcOptions { raw, text: None }, None);
        let (blocks, _) = read_all(&reader, &brotli, RANGE);
        assert_eq!(blocks[0].remarks.iter().map(|remark| remark.count).collect::<Vec<_>>(), told);
    }
}

#[test]
fn bodies_that_are_shorter_than_stated_are_marked() {
    let of = |fields: &str, head: &str, body: &str| value(&rows_of(&http(fields, head, body)), "truncated");
    assert_eq!(of("", "Content-Length: 5\r\n", "page"), some("content-length"));
    assert_eq!(of("", "Content-Length: 4\r\n", "page"), None);
    assert_eq!(of("", "Content-Length: 3\r\n", "page"), None);
    assert_eq!(of("WARC-Truncated: time\r\n", "Content-Length: 5\r\n", "page"), some("time"));
    assert_eq!(
        of("", "Transfer-Encoding: chunked\r\nContent-Length: 9\r\n", "4\r\npage\r\n"),
        some("transfer-encoding")
    );
}

#[test]
fn text_has_a_column_where_the_first_records_are_text() {
    let text = |kind: &str, media: &str| {
        let info = record("warcinfo", "Content-Type: application/warc-fields\r\n", "software: x\r\n");
        let bytes = [info, record(kind, &format!("Content-Type: {media}\r\n"), "h\u{e9}")].concat();
        let rows = rows_of(&bytes);
        // What the head cuts off changes nothing.
        let cut = WarcReader::new(&bytes[..bytes.len() - 6], WarcOptions::default(), None);
        assert_eq!(cut.text, rows.column_by_name("text").is_some());
        rows
    };
    let rows = text("conversion", "text/plain");
    assert_eq!((values(&rows, "text")[1].clone(), values(&rows, "payload")[1].clone()), (some("h\u{e9}"), None));
    assert!(text("metadata", "application/json").column_by_name("text").is_some());
    for (kind, media) in [("conversion", "image/png"), ("resource", "text/plain"), ("metadata", "text/plain")] {
        assert!(text(kind, media).column_by_name("text").is_none(), "{kind} {media}");
    }
    let bytes = [http("", "", "text"), http("", "", b"\xff")].concat();
    let (rows, _) = rows_with(&bytes, WarcOptions { raw: false, text: Some(true) });
    assert_eq!(values(&rows, "text"), [some("text"), None]);
    assert_eq!(values(&rows, "payload"), [None, some("\\xff")]);
}

#[test]
fn columns_that_are_not_taken_are_not_read() {
    let taken = ["uri".to_owned(), "status".to_owned(), "elsewhere".to_owned()];
    let reader = WarcReader::new(b"", WarcOptions::default(), Some(&taken));
    let bytes = http("", "", "x");
    let (blocks, _) = read_all(&reader, &bytes, RANGE);
    let Payload::Rows(rows) = &blocks[0].payload else { panic!("expected rows") };
    assert_eq!((rows.num_rows(), rows.num_columns()), (1, 2));
    assert_eq!(reader.facts().columns, Some(vec!["uri".to_owned(), "status".to_owned()]));
    let none = WarcReader::new(b"", WarcOptions::default(), Some(&[]));
    let (blocks, _) = read_all(&none, &bytes, RANGE);
    assert_eq!((blocks[0].payload.len(), blocks[0].rows.len()), (1, 1));
}

/// A record with a wrong length between two that are right.
fn damaged() -> (Vec<u8>, usize) {
    let first = http("", "", "one");
    let wrong = String::from_utf8(http("", "", "two")).unwrap().replace("Content-Length: 22", "Content-Length: 21");
    (([&first[..], wrong.as_bytes(), &http("", "", "three")].concat()), first.len())
}

#[test]
fn a_damaged_record_is_a_bad_record_with_its_place() {
    let (bytes, at) = damaged();
    for range_bytes in [1, 100, RANGE] {
        let reader = WarcReader::new(&bytes, WarcOptions::default(), None);
        let (blocks, fault) = read_all(&reader, &bytes, range_bytes);
        assert!(fault.is_none());
        let rejects: Vec<&Reject> = blocks.iter().flat_map(|block| &block.rejects).collect();
        let [reject] = rejects.as_slice() else { panic!("{rejects:?}") };
        assert_eq!(reject.byte, at as u64);
        assert!(reject.reason.contains("block of 21 bytes") && reject.reason.contains(&format!("byte {at}")));
        assert!(reject.raw.starts_with(b"WARC/1.0\r\n") && reject.raw.ends_with(b"two\r\n\r\n"));
        assert_eq!(blocks.iter().map(|block| block.payload.len()).sum::<usize>(), 2);
    }
    let (rows, rejects) = rows_with(&bytes, WarcOptions::default());
    assert_eq!((values(&rows, "payload"), rejects[0].row), (vec![some("one"), some("three")], 1));
}

#[test]
fn a_record_beyond_the_limit_is_passed_over() {
    let (first, last) = (http("", "", "one"), http("", "", "two"));
    for length in [RANGE + 1, RANGE + 1000, 3 * RANGE] {
        let large = format!("WARC/1.0\r\nContent-Length: {length}\r\n\r\n");
        let body = vec![b'x'; length];
        let bytes = [&first[..], large.as_bytes(), &body, b"\r\n\r\n", &last].concat();
        let reader = WarcReader::new(&bytes, WarcOptions::default(), None);
        for range_bytes in [1, 1 << 16, RANGE] {
            let (blocks, fault) = read_all(&reader, &bytes, range_bytes);
            assert!(fault.is_none(), "{fault:?}");
            let rejects: Vec<&Reject> = blocks.iter().flat_map(|block| &block.rejects).collect();
            let [reject] = rejects.as_slice() else { panic!("{rejects:?}") };
            assert!(reject.reason.contains(&format!("found one of {length}; ")), "{}", reject.reason);
            assert_eq!((reject.byte, &reject.raw[..]), (first.len() as u64, large.as_bytes()));
            assert_eq!(blocks.iter().map(|block| block.payload.len()).sum::<usize>(), 2);
            check_parts(&reader, &bytes, range_bytes, RANGE, 500);
            // Without the record behind it, the end follows.
            let whole = &bytes[..bytes.len() - last.len()];
            assert_eq!(found(&reader, whole, range_bytes).len(), 2);
        }
        let wrong = [&bytes[..bytes.len() - last.len() - 4], b"x", &last].concat();
        let (blocks, fault) = read_all(&reader, &wrong, RANGE);
        let fault = fault.unwrap();
        assert_eq!((fault.kind(), fault.place().byte), (Kind::Input, Some(first.len() as u64)));
        assert_eq!(blocks.iter().map(|block| block.payload.len()).sum::<usize>(), 1);
    }
}

#[test]
fn lengths_that_the_rest_cannot_have_are_damage() {
    for length in [RANGE as u64 + 1, 4 << 30, 1 << 63, u64::MAX] {
        let large = format!("WARC/1.0\r\nContent-Length: {length}\r\n\r\nx\r\n\r\n");
        let bytes = [&http("", "", "one")[..], large.as_bytes(), &http("", "", "two")].concat();
        let (rows, rejects) = rows_with(&bytes, WarcOptions::default());
        assert_eq!((rows.num_rows(), rejects.len()), (2, 1), "{length}");
    }
    let lost = [&http("", "", "one")[..], b"WARC/1.0\r\n\r\n", &vec![b'x'; 2 * RANGE], &http("", "", "two")].concat();
    let (blocks, fault) = read_all(&WarcReader::new(&lost, WarcOptions::default(), None), &lost, RANGE);
    assert!(fault.unwrap().message().contains("none in the 1048576 bytes behind it"));
    assert_eq!(blocks.len(), 1);
}

#[test]
fn records_before_a_fault_are_read() {
    let text = Faulty::before_fault(WarcReader::new(b"", WarcOptions::default(), None).ranges(
        Box::new(Faulty(b"WARC/1.0\r\nContent-Length: 1\r\n\r\na\r\n\r\nWARC/1.0\r\nContent-Length: 9\r\n\r\nb")),
        RANGE,
        RANGE,
    ));
    assert_eq!(
        text,
        "WARC/1.0\\r\\nContent-Length: 1\\r\\n\\r\\na\\r\\n\\r\\n".replace("\\r", "\r").replace("\\n", "\n")
    );
}

/// What a file has, with row numbers: rows as texts, and rejects.
fn found(reader: &WarcReader, bytes: &[u8], range_bytes: usize) -> Vec<(u64, String)> {
    let (blocks, fault) = read_all(reader, bytes, range_bytes);
    let (mut base, mut all) = (0, Vec::new());
    for block in blocks {
        let Payload::Rows(rows) = &block.payload else { panic!("expected rows") };
        let shown = |row: usize| {
            let columns = rows.columns().iter().map(|column| format!("{:?}", column.slice(row, 1)));
            format!("{:x} {}", block.hashes[row], columns.collect::<String>())
        };
        all.extend(block.rows.iter().enumerate().map(|(at, row)| (base + u64::from(*row), shown(at))));
        all.extend(block.rejects.iter().map(|r| (base + u64::from(r.row), format!("{} {:?}", r.reason, r.raw))));
        base += block.records_in();
    }
    all.sort();
    assert_eq!(all.iter().map(|(row, _)| *row).collect::<Vec<_>>(), (0..base).collect::<Vec<_>>());
    all.extend(fault.map(|fault| (base, format!("{fault:?}"))));
    all
}

fn sample() -> Vec<u8> {
    let packed = gzip(&b"<p>page</p>".repeat(40));
    [
        record("warcinfo", "", "a: b\r\n"),
        http("", "Content-Encoding: gzip\r\n", &packed),
        http("", "Content-Length: 30\r\n", "text\r\nWARC/1.0\r\nWARC/1.0\r\n"),
        damaged().0,
        record("metadata", "", ""),
        record("resource", "", vec![b'z'; 3000]),
    ]
    .concat()
}

#[test]
fn parts_and_ranges_of_any_size_are_the_whole() {
    let bytes = sample();
    let reader = WarcReader::new(&bytes, WarcOptions::default(), None);
    let whole = found(&reader, &bytes, RANGE);
    assert_eq!(whole.len(), 8);
    for range_bytes in [1, 300, 700, 2000, 5000] {
        assert_eq!(found(&reader, &bytes, range_bytes), whole, "{range_bytes}");
        for part_bytes in [1, 900, 4000] {
            check_parts(&reader, &bytes, range_bytes, RANGE, part_bytes);
        }
    }
}

#[test]
fn cut_files_have_the_records_before_the_cut() {
    let bytes = sample();
    let reader = WarcReader::new(&bytes, WarcOptions::default(), None);
    let whole = found(&reader, &bytes, RANGE);
    for cut in (0..bytes.len()).step_by(7) {
        let some = found(&reader, &bytes[..cut], 500);
        // At most the last entry differs.
        let same = some.iter().zip(&whole).take_while(|(one, other)| one == other).count();
        assert!(some.len() - same <= 1, "{cut}: {some:?}");
        assert!(some.len() == same || some[same].1.contains("expected"), "{cut}: {some:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damage_gives_the_same_entries_for_any_cut(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 1..6),
        range_bytes in 1..4000_usize,
    ) {
        let mut bytes = sample();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        let reader = WarcReader::new(&bytes, WarcOptions::default(), None);
        prop_assert_eq!(found(&reader, &bytes, range_bytes), found(&reader, &bytes, RANGE));
        check_parts(&reader, &bytes, range_bytes, RANGE, 2000);
    }

    #[test]
    fn records_of_any_content_come_back(
        blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8),
    ) {
        let records = blocks.iter().map(|block| record("resource", "Content-Type: x/y\r\n", block));
        let bytes: Vec<u8> = records.flatten().collect();
        let expected: Vec<_> = blocks.iter().map(|block| Some(block.escape_ascii().to_string())).collect();
        prop_assert_eq!(values(&rows_of(&bytes), "payload"), expected);
    }
}
