//! Tests the fast path against the exact one: both give the same block for any range.
//!
//! `SHARDIFY_FUZZ_CASES` sets the number of ranges.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{ops::ControlFlow, sync::Arc};

use arrow::datatypes::{Field, Fields, SchemaRef};
use bytes::Bytes;
use proptest::{prelude::*, sample::select};

use super::{Accepted, JsonOptions, JsonSource, JsonTable, Mode, records};
use crate::{
    format::{Parsed, RecordReader, TypeMismatch},
    record::{Payload, RecordBlock, SourceRange},
    schema,
};

/// Keys as written in the source; some are longer than one comparison, some contain escapes.
const KEYS: [&str; 7] = [
    r#""a""#,
    r#""b c""#,
    r#""é""#,
    r#""k\u0065y""#,
    r#""a_key_of_20_letters_""#,
    r#""a key that is a good deal longer than two times sixteen letters""#,
    r#""""#,
];

const SCALARS: [&str; 44] = [
    "0",
    "7",
    "42",
    "-1",
    "-0",
    "1234567",
    "12345678",
    "123456789",
    "-1234567890123",
    "9007199254740993",
    "123456789012345",
    "1234567890123456",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "0.5",
    "80.25",
    "-3.0",
    "-0.0",
    "123.456",
    "1234.56",
    "12345.67",
    "0.8414709848078965",
    "-122.41941550000001",
    "3.141592653589793",
    "1e3",
    "1.5E-7",
    "12.5e+10",
    "1e400",
    "5e-324",
    "0.000001",
    "100000.125",
    "9007199254740993.5",
    "true",
    "false",
    "null",
    "null",
    r#""""#,
    r#""V000000001""#,
    r#""ward 4""#,
    r#""2024-08-08 14:41:57""#,
    r#""a note that is longer than one or two steps of the copy, as notes often are""#,
    r#""Müller, 日本 😀""#,
    r#""\u00e9\n\t\"\\\/ \ud83d\ude00\u0000""#,
];

/// Fragments that one change inserts into a range.
const PIECES: [&[u8]; 40] = [
    b"\"", b"\\", b"{", b"}", b"[", b"]", b":", b",", b"0", b"1", b"9", b".", b"e", b"E", b"+", b"-", b" ", b"\t",
    b"\r", b"\n", b"\0", b"\x1f", b"\x7f", b"\x80", b"\xc3", b"\xff", b"t", b"f", b"n", b"u", b"null", b"true",
    b"\\u00e9", b"\\ud800", b"\\x", b"00", b"{}", b"[]", b"\r\n", b"\"a\":",
];

/// White space between the parts of a record: before and after keys, before and after values.
type Style = [&'static str; 4];

fn style() -> impl Strategy<Value = Style> {
    select(vec![["", "", "", ""], [" ", "", " ", ""], [" ", " ", " ", " "], ["  ", "\t", "\r", " "], ["", "", " ", ""]])
}

fn value() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        8 => select(&SCALARS[..]).prop_map(str::to_owned),
        1 => any::<i64>().prop_map(|v| v.to_string()),
        1 => any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| format!("{v:?}")),
        2 => (0..20_000i32, 0..4usize).prop_map(|(v, places)| format!("{:.places$}", f64::from(v) / 100.0)),
        1 => "[ -~é日]{0,70}".prop_map(|s| serde_json::to_string(&s).unwrap()),
    ];
    scalar.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..4), select(vec![",", ", ", " ,"]))
                .prop_map(|(items, comma)| format!("[{}]", items.join(comma))),
            (prop::collection::vec(inner, 0..3), style()).prop_map(|(values, style)| object(&values, &style)),
        ]
    })
}

/// Returns an object with the first of the keys.
fn object(values: &[String], [a, b, c, d]: &Style) -> String {
    let members: Vec<String> = values.iter().zip(KEYS).map(|(v, key)| format!("{a}{key}{b}:{c}{v}{d}")).collect();
    format!("{{{}}}", members.join(","))
}

/// Generates records, most with the same keys in the same order and values of the same kind.
fn lines() -> impl Strategy<Value = Vec<String>> {
    let column = prop_oneof![
        3 => value().prop_map(|v| vec![v.clone(), v]),
        2 => prop::collection::vec(value(), 1..3),
        1 => Just(vec!["1".to_owned(), "12".to_owned(), "null".to_owned()]),
        1 => Just(vec!["1.5".to_owned(), "3".to_owned(), "12.75".to_owned()]),
    ];
    let columns = prop::collection::vec(column, 1..KEYS.len());
    let rows = prop::collection::vec((any::<u32>(), style(), 0..12u8), 1..10);
    (columns, style(), rows).prop_map(|(columns, usual, rows)| {
        let row = |(seed, other, luck): (u32, Style, u8)| {
            let mut values: Vec<String> =
                columns.iter().enumerate().map(|(i, c)| c[(seed >> (3 * i)) as usize % c.len()].clone()).collect();
            match luck {
                0 => return object(&values, &other),
                1 => values.truncate(values.len() / 2),
                2 => values.reverse(),
                3 => return format!("{{\"a\":1,{}", &object(&values, &usual)[1..]),
                4 => return format!(" {}\t", object(&values, &usual)),
                _ => {}
            }
            object(&values, &usual)
        };
        rows.into_iter().map(row).collect()
    })
}

/// Returns the block or type mismatch of the exact path alone.
fn exactly(source: &JsonSource, range: &SourceRange, schema: &SchemaRef) -> Result<RecordBlock, TypeMismatch> {
    let (pinned, taken) = (&source.options.pinned, source.options.taken.as_deref());
    let table = JsonTable::new(schema, &source.options.text).with_pinned(pinned).with_projection(taken);
    let mut accepted =
        Accepted { source, range, table, most: usize::MAX, rows: Vec::new(), hashes: Vec::new(), rejects: Vec::new() };
    let blank_lines = match records::visit_records(Mode::Lines, &[], range, |found| accepted.take(found)) {
        ControlFlow::Break(mismatch) => return Err(mismatch),
        ControlFlow::Continue(blank) => blank,
    };
    Ok(RecordBlock {
        payload: Payload::Rows(accepted.table.finish().unwrap()),
        rows: accepted.rows,
        hashes: accepted.hashes,
        sharing: 1,
        rejects: accepted.rejects,
        lines: memchr::memchr_iter(b'\n', range.content_bytes()).count() as u64,
        blank_lines,
        bytes_in: range.bytes_in(),
        ..RecordBlock::empty()
    })
}

fn compare(source: &JsonSource, range: &SourceRange, schema: &SchemaRef) -> Result<(), TestCaseError> {
    let (ours, exact) = match (source.parse(range, schema).unwrap(), exactly(source, range, schema)) {
        (Parsed::Block(ours), Ok(exact)) => (ours, exact),
        (Parsed::Mismatch(ours), Err(exact)) => {
            prop_assert_eq!(ours, exact);
            return Ok(());
        }
        (ours, exact) => return Err(TestCaseError::fail(format!("{ours:?}\n{exact:?}"))),
    };
    let (Payload::Rows(our_rows), Payload::Rows(exact_rows)) = (&ours.payload, &exact.payload) else {
        return Err(TestCaseError::fail("expected rows"));
    };
    // Arrow's equality of floats distinguishes the two zeros, and JSON has no NaN.
    prop_assert_eq!(our_rows, exact_rows);
    let rest = |block: &RecordBlock| {
        (
            block.rows.clone(),
            block.hashes.clone(),
            block.rejects.clone(),
            (block.lines, block.blank_lines, block.padded, block.ignored, block.bytes_in),
        )
    };
    prop_assert_eq!(rest(&ours), rest(&exact));
    Ok(())
}

fn cases() -> u32 {
    std::env::var("SHARDIFY_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn both_paths_agree_on_whole_and_on_damaged_lines(
        lines in lines(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..3usize, select(&PIECES[..])), 0..4),
        end in select(vec!["\n", "\r\n", "\n\n"]), pinned: bool, text: bool, some: bool,
        offset in select(vec![0u64, 1000]),
    ) {
        let whole = lines.join(end) + end;
        let mut bytes = whole.clone().into_bytes();
        for (at, gone, piece) in changes {
            let at = at.index(bytes.len());
            bytes.splice(at..(at + gone).min(bytes.len()), piece.iter().copied());
        }
        // Enough bytes after the last line for the fast path to be used there too.
        bytes.extend(std::iter::repeat_n(b' ', 80));
        let options = JsonOptions {
            bound: Vec::new(),
            text: if text { vec!["b c".to_owned()] } else { Vec::new() },
            pinned: if pinned { ["a", "b c", "é", "key"].map(str::to_owned).to_vec() } else { Vec::new() },
            taken: some.then(|| ["b c", "é"].map(str::to_owned).to_vec()),
            records: Vec::new(),
        };
        let read = |fields: Fields| -> Fields {
            let taken = |field: &&Arc<Field>| !some || ["b c", "é"].contains(&field.name().as_str());
            fields.iter().filter(taken).cloned().collect()
        };
        let source = JsonSource::new(Mode::Lines).with_options(options);
        let undamaged = SourceRange::of_bytes(offset, Bytes::from(whole));
        let range = SourceRange::of_bytes(offset, Bytes::from(bytes));
        let (before, after) = (source.infer(&undamaged), source.infer(&range));
        compare(&source, &range, &schema::schema_of(&read(before)))?;
        compare(&source, &range, &schema::schema_of(&read(after)))?;
    }
}

/// The fast path accepts the lines that it is made for.
#[test]
fn usual_lines_take_the_fast_path() {
    let usual = [
        r#"{"id":"V1","age":70,"w":51.65,"f":true,"n":null,"t":"a note of more than thirty-two letters"}"#,
        r#"{"id": "V1", "age": 70, "w": 51.65, "f": false, "n": "x", "t": "two\nlines \u00e9 \ud83d\ude00"}"#,
        r#"{"id":"é","age":-7000000000,"w":0.8414709848078965,"t":"日本"}"#,
        r#"{"x":{"y":[1,2.5,-3e-7],"z":{"k":"v"}},"l":[{"m":1},{"m":null}],"e":[],"j":{"d":[[],{}]}}"#,
    ];
    for line in usual {
        let source =
            JsonSource::new(Mode::Lines).with_options(JsonOptions { text: vec!["j".into()], ..Default::default() });
        let text = format!("{line}\n").repeat(3) + &" ".repeat(80);
        let range = SourceRange::of_bytes(0, Bytes::from(text));
        let mut table = JsonTable::new(&schema::schema_of(&source.infer(&range)), &source.options.text);
        for row in 0..3 {
            let start = row * (line.len() + 1);
            assert_eq!(table.push_line(range.content_bytes(), start), Some(start + line.len()), "{line}");
        }
    }
}
