//! Tests with workbooks made byte by byte, and with files of other writers in `testdata/excel`.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{io::Write as _, path::PathBuf, sync::Arc};

use arrow::{
    array::RecordBatch,
    compute::concat_batches,
    datatypes::{DataType, TimeUnit},
};
use bytes::Bytes;

use super::{
    BookForm, ExcelReader,
    options::{ExcelOptions, Room},
    sniff,
};
use crate::{
    error::{Error, Kind, Result},
    format::{Parsed, RecordReader, ranged::RangedInput},
    record::{Payload, SourceRange, json::RowJson},
    schema::schema_of,
};

/// A member of an archive: its name, content, and the size that the directory states.
struct Member {
    name: String,
    content: Vec<u8>,
    stated: Option<u32>,
}

fn member(name: &str, content: impl Into<Vec<u8>>) -> Member {
    Member { name: name.to_owned(), content: content.into(), stated: None }
}

/// Returns an archive of deflated members.
fn archive(members: &[Member]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for Member { name, content, stated } in members {
        let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(content).unwrap();
        let packed = packer.finish().unwrap();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let mut common = vec![20, 0, 0, 0, 8, 0, 0, 0, 0x21, 0];
        for number in
            [crc32fast::hash(content), length(&packed), stated.unwrap_or(length(content)), length(name.as_bytes())]
        {
            common.extend_from_slice(&number.to_le_bytes());
        }
        let at = length(&out);
        out.extend_from_slice(&[&b"PK\x03\x04"[..], &common, name.as_bytes(), &packed].concat());
        let places = [&[0; 10][..], &at.to_le_bytes()].concat();
        directory.extend_from_slice(&[&b"PK\x01\x02\x14\0"[..], &common, &places, name.as_bytes()].concat());
    }
    let (count, at) = (u16::try_from(members.len()).unwrap(), u32::try_from(out.len()).unwrap());
    let bytes = u32::try_from(directory.len()).unwrap();
    out.extend_from_slice(&directory);
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    [count, count].iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    [bytes, at].iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    out.extend_from_slice(&[0, 0]);
    out
}

/// A sheet of a made workbook: its name, state, and the XML of its rows and what follows them.
struct Sheet<'a> {
    name: &'a str,
    state: &'a str,
    data: String,
    behind: &'a str,
}

fn sheet(name: &str, data: impl Into<String>) -> Sheet<'_> {
    Sheet { name, state: "visible", data: data.into(), behind: "" }
}

/// Styles: 0 plain, 1 a date and time, 2 a duration.
const STYLES: &str = r#"<styleSheet><numFmts count="1"><numFmt numFmtId="170" formatCode="[h]:mm"/></numFmts>
<cellXfs count="3"><xf numFmtId="0"/><xf numFmtId="22"/><xf numFmtId="170"/></cellXfs></styleSheet>"#;

fn parts(sheets: &[Sheet<'_>], texts: &str, properties: &str) -> Vec<Member> {
    let types = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
    let mut members = vec![
        member("[Content_Types].xml", "<Types/>"),
        member(
            "_rels/.rels",
            format!(
                r#"<Relationships><Relationship Id="r1" Type="{types}/officeDocument" Target="xl/workbook.xml"/></Relationships>"#
            ),
        ),
        member("xl/styles.xml", STYLES),
        member("xl/sharedStrings.xml", texts),
    ];
    let (mut listed, mut related) = (String::new(), String::new());
    for (number, sheet) in (1..).zip(sheets) {
        let Sheet { name, state, data, behind } = sheet;
        listed.push_str(&format!(r#"<sheet name="{name}" sheetId="{number}" state="{state}" r:id="s{number}"/>"#));
        related.push_str(&format!(
            r#"<Relationship Id="s{number}" Type="{types}/worksheet" Target="worksheets/sheet{number}.xml"/>"#
        ));
        let xml = format!("<worksheet><sheetData>{data}</sheetData>{behind}</worksheet>");
        members.push(member(&format!("xl/worksheets/sheet{number}.xml"), xml));
    }
    let book = format!(r#"<workbook xmlns:r="{types}">{properties}<sheets>{listed}</sheets></workbook>"#);
    members.push(member("xl/workbook.xml", book));
    members.push(member("xl/_rels/workbook.xml.rels", format!("<Relationships>{related}</Relationships>")));
    members
}

fn book(sheets: &[Sheet<'_>]) -> Vec<u8> {
    archive(&parts(sheets, "<sst><si><t>shared</t></si></sst>", ""))
}

fn open(bytes: &[u8], options: &ExcelOptions) -> Result<(ExcelReader, SourceRange)> {
    let bytes = Bytes::copy_from_slice(bytes);
    let input = move || Ok(RangedInput::Bytes(bytes.clone()));
    let length = input()?.byte_count();
    let head = input()?.read_range(0..length.min(256 << 10))?;
    let form = sniff(&head, true, &input)?.ok_or_else(|| Error::input("no workbook"))?;
    ExcelReader::open(form, Box::new(input), options, "test", length)
}

/// Returns all rows as JSON, one a line.
fn rows_of(reader: &ExcelReader, range_bytes: usize) -> Result<(RecordBatch, Vec<u64>)> {
    let ranges: Vec<SourceRange> =
        reader.ranges(Box::new(std::io::empty()), range_bytes, 16 << 20).collect::<Result<_>>()?;
    let (mut batches, mut hashes, mut row, mut bytes) = (Vec::new(), Vec::new(), 0, 0);
    for range in &ranges {
        assert_eq!(range.offset, row);
        bytes += range.bytes_in();
        let schema = schema_of(&reader.infer(range));
        let Parsed::Block(block) = reader.parse(range, &schema)? else { panic!("a type mismatch") };
        let Payload::Rows(batch) = block.payload else { panic!("samples") };
        row += batch.num_rows() as u64;
        batches.push(batch);
        hashes.extend(block.hashes);
    }
    assert!(ranges.is_empty() || bytes == reader.bytes());
    assert_eq!(Some(row), reader.facts().rows);
    let schema = schema_of(&reader.infer(&SourceRange::of_bytes(0, Bytes::new())));
    Ok((concat_batches(&schema, &batches)?, hashes))
}

fn json(batch: &RecordBatch) -> Vec<String> {
    let rows = RowJson::new(batch);
    let line = |row| {
        let mut out = Vec::new();
        rows.write_row(row, &mut out);
        String::from_utf8(out).unwrap()
    };
    (0..batch.num_rows()).map(line).collect()
}

fn read(bytes: &[u8], options: &ExcelOptions) -> Result<(Vec<String>, Vec<String>)> {
    let (reader, _) = open(bytes, options)?;
    Ok((json(&rows_of(&reader, 1 << 20)?.0), reader.facts().remarks.clone()))
}

fn refusal(bytes: &[u8], options: &ExcelOptions) -> String {
    let error = read(bytes, options).unwrap_err();
    assert_eq!(error.kind(), Kind::Input, "{error}");
    format!("{} {}", error.message(), error.hints().join(" "))
}

fn text(place: &str, text: &str) -> String {
    format!(r#"<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>"#)
}

fn number(place: &str, number: impl std::fmt::Display) -> String {
    format!(r#"<c r="{place}"><v>{number}</v></c>"#)
}

fn header(names: &[&str]) -> String {
    let cell = |(column, name): (u8, &&str)| text(&format!("{}1", char::from(b'A' + column)), name);
    format!("<row r=\"1\">{}</row>", (0..).zip(names).map(cell).collect::<String>())
}

#[test]
fn cells_have_the_types_of_their_columns() {
    let data = header(&["whole", "real", "when", "day", "clock", "span", "yes", "word", "none"])
        + r#"<row r="2"><c r="A2"><v>1</v></c><c r="B2"><v>1</v></c><c r="C2" s="1"><v>45356.5</v></c>
             <c r="D2" s="1"><v>45356</v></c><c r="E2" s="1"><v>0.25</v></c><c r="F2" s="2"><v>1.5</v></c>
             <c r="G2" t="b"><v>1</v></c><c r="H2" t="s"><v>0</v></c></row>
             <row r="3"><c r="A3"><v>9007199254740991</v></c><c r="B3"><v>0.1</v></c><c r="C3" s="1"><v>45356</v></c>
             <c r="H3" t="str"><f>A1</f><v>00123</v></c></row>"#;
    let (reader, sample) = open(&book(&[sheet("S", data)]), &ExcelOptions::default()).unwrap();
    let types: Vec<DataType> = reader.infer(&sample).iter().map(|field| field.data_type().clone()).collect();
    let expected = [
        DataType::Int64,
        DataType::Float64,
        DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Date32,
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Duration(TimeUnit::Millisecond),
        DataType::Boolean,
        DataType::Utf8,
        DataType::Null,
    ];
    assert_eq!(types, expected);
    assert_eq!(
        json(&rows_of(&reader, 1 << 20).unwrap().0),
        [
            r#"{"whole":1,"real":1.0,"when":"2024-03-05T12:00:00","day":"2024-03-05","clock":"06:00:00","span":"PT129600S","yes":true,"word":"shared","none":null}"#,
            r#"{"whole":9007199254740991,"real":0.1,"when":"2024-03-05T00:00:00","day":null,"clock":null,"span":null,"yes":null,"word":"00123","none":null}"#,
        ]
    );
    assert_eq!(reader.facts().remarks, Vec::<String>::new());
}

#[test]
fn mixed_columns_are_text_and_errors_are_null() {
    let data = header(&["a"])
        + &number("A2", 0.5).replace("<c", "<row r=\"2\"><c")
        + "</row>"
        + &format!("<row r=\"3\">{}</row><row r=\"4\">{}</row>", number("A3", 3), text("A4", "n/a"))
        + r#"<row r="5"><c r="A5" t="e"><v>#DIV/0!</v></c></row><row r="6"><c r="A6" t="b"><v>0</v></c></row>
             <row r="7"><c r="A7" s="1"><v>45356.25</v></c></row><row r="8"><c r="A8"><f>1+1</f><v></v></c></row>"#;
    let made = Sheet { behind: r#"<mergeCells count="1"><mergeCell ref="A2:A3"/></mergeCells>"#, ..sheet("S", data) };
    let bytes = book(&[made]);
    let (rows, remarks) = read(&bytes, &ExcelOptions::default()).unwrap();
    let expected = ["\"0.5\"", "\"3\"", "\"n/a\"", "null", "\"FALSE\"", "\"2024-03-05T06:00:00\""];
    assert_eq!(rows, expected.map(|value| format!("{{\"a\":{value}}}")));
    let told = remarks.join("\n");
    for expected in [
        "numbers from row 2 on, texts from row 4 on, booleans from row 6 on, timestamps from row 7 on",
        "1 cell of the sheet `S` holds an error such as #DIV/0! (the first is A5)",
        "1 formula of the sheet `S` has no stored value (the first is A8)",
        "1 merged region of the sheet `S` has a value in its first cell alone (the first is A2:A3)",
    ] {
        assert!(told.contains(expected), "{expected}\n{told}");
    }
    let (rows, _) = read(&bytes, &ExcelOptions { nulls: vec!["n/a".to_owned()], ..ExcelOptions::default() }).unwrap();
    assert_eq!(rows[2], "{\"a\":null}");
}

#[test]
fn dates_count_from_1900_or_1904() {
    let data = header(&["d"])
        + &[1.0, 59.0, 60.0, 61.0, 45_356.0]
            .iter()
            .zip(2..)
            .map(|(serial, row)| format!(r#"<row r="{row}"><c r="A{row}" s="1"><v>{serial}</v></c></row>"#))
            .collect::<String>();
    let days = |properties: &str| {
        let members = parts(&[sheet("S", data.clone())], "<sst/>", properties);
        read(&archive(&members), &ExcelOptions::default()).unwrap().0.join(" ")
    };
    assert_eq!(days(""), r#"{"d":"1900-01-01"} {"d":"1900-02-28"} {"d":null} {"d":"1900-03-01"} {"d":"2024-03-05"}"#);
    assert_eq!(
        days(r#"<workbookPr date1904="1"/>"#),
        r#"{"d":"1904-01-02"} {"d":"1904-02-29"} {"d":"1904-03-01"} {"d":"1904-03-02"} {"d":"2028-03-06"}"#
    );
}

#[test]
fn the_header_is_a_row_of_distinct_names_or_an_error() {
    let options = ExcelOptions::default();
    let of = |row: String| refusal(&book(&[sheet("S", row)]), &options);
    let row = |cells: &[String]| format!("<row r=\"3\">{}</row><row r=\"4\">{}</row>", cells.concat(), number("C4", 1));
    assert!(
        of(row(&[text("A3", "a"), number("B3", 2019), text("C3", "c")])).contains("`2019`, which is no text, in B3")
    );
    assert!(of(row(&[text("A3", "a"), text("C3", "c")])).contains("nothing in B3"));
    assert!(of(row(&[text("A3", "a"), text("B3", "a"), text("C3", "c")])).contains("`a` a second time in B3"));
    assert!(of(row(&[text("A3", "a"), text("B3", "b")])).contains("nothing in C3"), "a value without a name");
    let two = row(&[text("A3", "a"), text("C3", "c")]);
    let none = ExcelOptions { has_header: false, ..ExcelOptions::default() };
    let rows = read(&book(&[sheet("S", two.clone())]), &none).unwrap().0;
    assert_eq!(
        rows,
        [r#"{"column_1":"a","column_2":null,"column_3":"c"}"#, r#"{"column_1":null,"column_2":null,"column_3":"1"}"#]
    );
    let skipped = ExcelOptions { skip: 3, has_header: false, ..ExcelOptions::default() };
    assert_eq!(read(&book(&[sheet("S", two)]), &skipped).unwrap().0, [r#"{"column_1":1}"#]);
}

#[test]
fn empty_rows_between_others_are_records_of_nulls() {
    let data = header(&["a"])
        + &format!("<row r=\"2\">{}</row><row r=\"5\">{}</row>", number("A2", 1), number("A5", 2))
        + r#"<row r="6"><c r="A6" s="1"/></row><row r="9"/>"#;
    let (rows, remarks) = read(&book(&[sheet("S", data)]), &ExcelOptions::default()).unwrap();
    assert_eq!(rows, [r#"{"a":1}"#, r#"{"a":null}"#, r#"{"a":null}"#, r#"{"a":2}"#]);
    assert!(remarks[0].contains("2 empty rows of the sheet `S` are between others: records of nulls"), "{remarks:?}");
}

#[test]
fn the_only_visible_sheet_with_data_is_read() {
    let table = || header(&["a"]) + &format!("<row r=\"2\">{}</row>", number("A2", 1));
    let hidden = |name, state| Sheet { state, ..sheet(name, table()) };
    let bytes =
        book(&[sheet("Empty", ""), sheet("Data", table()), hidden("People", "hidden"), hidden("Keys", "veryHidden")]);
    let (rows, remarks) = read(&bytes, &ExcelOptions::default()).unwrap();
    assert_eq!(rows, [r#"{"a":1}"#]);
    assert_eq!(remarks, ["hidden sheets are not read: `People`, `Keys`; --read sheet=NAME reads one"]);
    let of = |sheet: &str| ExcelOptions { sheet: Some(sheet.to_owned()), ..ExcelOptions::default() };
    assert_eq!(read(&bytes, &of("People")).unwrap().0, rows);
    assert!(refusal(&bytes, &of("people")).contains("found `Empty`, `Data`, `People`, `Keys`"));
    let two = book(&[sheet("A", table()), sheet("B", table())]);
    assert!(
        refusal(&two, &ExcelOptions::default())
            .contains("found 2: `A`, `B` `convert --read sheet=NAME` reads one of them")
    );
    let only_hidden = book(&[sheet("A", ""), hidden("B", "hidden")]);
    assert!(refusal(&only_hidden, &ExcelOptions::default()).contains("only hidden ones: `B`"));
    assert_eq!(read(&book(&[sheet("A", "")]), &ExcelOptions::default()).unwrap().0, Vec::<String>::new());
}

#[test]
fn ranges_of_any_size_and_rows_without_room_are_the_same() {
    let row = |row: u32| {
        format!(
            "<row r=\"{row}\">{}{}</row>",
            number(&format!("A{row}"), row),
            text(&format!("B{row}"), &"x".repeat(row as usize % 90))
        )
    };
    let data = header(&["a", "b"]) + &(2..20_000).map(row).collect::<String>();
    let bytes = book(&[sheet("S", data)]);
    let (reader, sample) = open(&bytes, &ExcelOptions::default()).unwrap();
    let (whole, hashes) = rows_of(&reader, 1 << 20).unwrap();
    assert_eq!(whole.num_rows(), 19_998);
    assert!(sample.row_count().unwrap() > 1000);
    let room = Arc::new(Room::with_memory(1 << 22));
    while room.take_spill() {}
    let full = ExcelOptions { room: Arc::clone(&room), ..ExcelOptions::default() };
    while room.take_memory(1) {}
    let (unkept, _) = open(&bytes, &full).unwrap();
    for (reader, range_bytes) in [(&reader, 1), (&reader, 5000), (&unkept, 1 << 16)] {
        let (rows, same) = rows_of(reader, range_bytes).unwrap();
        assert!(rows == whole && same == hashes, "{range_bytes}");
    }
    let error = reader.ranges(Box::new(std::io::empty()), 1, 60).find_map(Result::err).unwrap();
    assert!(error.message().contains("of the sheet `S`"), "{error}");
}

#[test]
fn rows_out_of_order_and_outside_of_a_sheet_are_errors() {
    let of = |data: &str| refusal(&book(&[sheet("S", header(&["a", "b"]) + data)]), &ExcelOptions::default());
    assert!(
        of(r#"<row r="3"><c r="A3"><v>1</v></c></row><row r="2"><c r="A2"><v>1</v></c></row>"#)
            .contains("row 2 after row 3")
    );
    assert!(of(r#"<row r="2"><c r="A2"><v>1</v></c><c r="A2"><v>2</v></c></row>"#).contains("found two"));
    assert!(of(r#"<row r="1048577"><c r="A1048577"><v>1</v></c></row>"#).contains("row 1048577"));
    assert!(of(r#"<row r="2"><c r="XFE2"><v>1</v></c></row>"#).contains("column 16385"));
    assert!(of(r#"<row r="2"><c r="A2" t="s"><v>7</v></c></row>"#).contains("in or after row 1"));
    let (rows, _) = read(
        &book(&[sheet("S", header(&["a", "b"]) + r#"<row r="2"><c r="B2"><v>2</v></c><c r="A2"><v>1</v></c></row>"#)]),
        &ExcelOptions::default(),
    )
    .unwrap();
    assert_eq!(rows, [r#"{"a":1,"b":2}"#]);
}

#[test]
fn bombs_and_stated_sizes_are_refused() {
    let options = ExcelOptions { room: Arc::new(Room::with_memory(64 << 20)), ..ExcelOptions::default() };
    let table = || sheet("S", header(&["a"]));
    let of = |members: Vec<Member>| refusal(&archive(&members), &options);
    for count in ["4000000000", "99999999999", "18446744073709551615"] {
        let texts = format!("<sst uniqueCount=\"{count}\"><si><t>a</t></si></sst>");
        assert!(of(parts(&[table()], &texts, "")).contains("texts that cells share"), "{count}");
    }
    let many = format!("<sst>{}</sst>", "<si><t>abcdefgh</t></si>".repeat(400_000));
    assert!(of(parts(&[table()], &many, "")).contains("texts that cells share"));
    let long = sheet("S", header(&["a"]) + &format!("<row r=\"2\">{}</row>", text("A2", &"x".repeat(17 << 20))));
    assert!(of(parts(&[long], "<sst/>", "")).contains("a longer one"));
    let bomb = sheet("S", header(&["a"]) + &" ".repeat(65 << 20));
    assert!(of(parts(&[bomb], "<sst/>", "")).contains("times their size"));
    // The directory states less than there is.
    let mut members = parts(&[sheet("S", header(&["a"]) + &number("A2", 1).repeat(1000))], "<sst/>", "");
    for member in members.iter_mut().filter(|member| member.name.contains("sheet1")) {
        member.stated = Some(300);
    }
    assert!(of(members).contains("as the directory of the archive states"));
    let mut members = parts(&[table()], "<sst/>", "");
    members.push(member("XL/Styles.xml", STYLES));
    assert!(of(members).contains("twice"));
}

const MANIFEST: &str = "<manifest:manifest/>";

fn ods(content: &str) -> Vec<u8> {
    let mime = "application/vnd.oasis.opendocument.spreadsheet";
    let content = format!("<office:document-content><office:body>{content}</office:body></office:document-content>");
    let mut bytes =
        archive(&[member("content.xml", content), member("META-INF/manifest.xml", MANIFEST), member("mimetype", mime)]);
    // The head has the type where it is not packed; here it stands behind the archive's comment.
    bytes.truncate(bytes.len() - 2);
    bytes.extend_from_slice(&u16::try_from(mime.len()).unwrap().to_le_bytes());
    bytes.extend_from_slice(mime.as_bytes());
    bytes
}

#[test]
fn sheets_of_opendocument_have_their_types_and_repeats() {
    let cell = |kind: &str, value: &str| format!(r#"<table:table-cell office:value-type="{kind}" {value}/>"#);
    let word = |word: &str| {
        format!(r#"<table:table-cell office:value-type="string"><text:p>{word}</text:p></table:table-cell>"#)
    };
    let names = ["n", "day", "at", "span", "yes", "word"].map(word).concat();
    let row = [
        cell("float", r#"office:value="7.5""#),
        cell("date", r#"office:date-value="2024-03-05""#),
        cell("date", r#"office:date-value="2024-03-05T10:20:30""#),
        cell("time", r#"office:time-value="PT10H20M30S""#),
        cell("boolean", r#"office:boolean-value="true""#),
        r#"<table:table-cell office:value-type="string"><office:annotation><text:p>no</text:p></office:annotation><text:p>a<text:s text:c="2"/>b &amp;<text:span> c</text:span></text:p><text:p>d</text:p></table:table-cell>"#.to_owned(),
    ]
    .concat();
    let table = format!(
        r#"<table:table table:name="S"><table:table-row>{names}</table:table-row>
           <table:table-row table:number-rows-repeated="2">{row}<table:table-cell table:number-columns-repeated="16000"/></table:table-row>
           <table:table-row table:number-rows-repeated="1048570"><table:table-cell table:number-columns-repeated="16384"/></table:table-row></table:table>"#
    );
    let hidden = r#"<style:style style:name="t2"><style:table-properties table:display="false"/></style:style>"#;
    let second = r#"<table:table table:name="H" table:style-name="t2"><table:table-row><table:table-cell office:value-type="float" office:value="1"/></table:table-row></table:table>"#;
    let (rows, remarks) = read(&ods(&format!("{hidden}{second}{table}")), &ExcelOptions::default()).unwrap();
    let expected =
        r#"{"n":7.5,"day":"2024-03-05","at":"2024-03-05T10:20:30","span":"PT37230S","yes":true,"word":"a  b & c\nd"}"#;
    assert_eq!(rows, [expected, expected]);
    assert_eq!(remarks, ["hidden sheets are not read: `H`; --read sheet=NAME reads one"]);
    let bomb = r#"<table:table table:name="S"><table:table-row table:number-rows-repeated="1048576"><table:table-cell table:number-columns-repeated="16384" office:value-type="float" office:value="1"/></table:table-row></table:table>"#;
    assert!(refusal(&ods(bomb), &ExcelOptions::default()).contains("cells that repeat others"));
    let spaces = r#"<table:table table:name="S"><table:table-row><table:table-cell office:value-type="string"><text:p><text:s text:c="4000000000"/></text:p></table:table-cell></table:table-row></table:table>"#;
    assert!(read(&ods(spaces), &ExcelOptions::default()).is_err(), "a name of blanks");
    assert!(
        refusal(&ods("<table:table table:name=\"S\"><table:table-row>"), &ExcelOptions::default())
            .contains("found damage")
    );
}

fn testdata() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/excel"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let known = |path: &PathBuf| {
        path.extension()
            .is_some_and(|ending| ["xlsx", "xlsm", "xlsb", "xls", "ods"].contains(&ending.to_str().unwrap()))
    };
    files.into_iter().filter(known).map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Without a header, and of the first sheet, so that each of them has rows.
fn any_rows(bytes: &[u8]) -> Result<Vec<String>> {
    let none = ExcelOptions { has_header: false, ..ExcelOptions::default() };
    read(bytes, &none).map(|(rows, _)| rows)
}

#[test]
fn damaged_files_give_errors_or_rows_but_never_panic() {
    let files = testdata();
    assert!(files.len() >= 8, "{}", files.len());
    for (path, bytes) in files {
        let whole = any_rows(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!whole.is_empty(), "{}", path.display());
        let is_zip = bytes.starts_with(b"PK");
        for end in (0..bytes.len()).step_by(1 + bytes.len() / 150) {
            let cut = any_rows(&bytes[..end]);
            // The last sectors of a compound file may be unused.
            assert!(cut.is_err() || !is_zip && cut.unwrap() == whole, "{} cut at {end}", path.display());
        }
        for at in (0..bytes.len()).step_by(1 + bytes.len() / 300) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            let rows = any_rows(&flipped);
            // Parts of an archive have checksums; sectors have none.
            assert!(!is_zip || rows.is_err() || rows.unwrap() == whole, "{} flipped at {at}", path.display());
        }
    }
}

#[test]
fn only_workbooks_are_workbooks() {
    let none = |head: &[u8], named| sniff(head, named, &|| Ok(RangedInput::Bytes(Bytes::copy_from_slice(head))));
    assert_eq!(none(b"id,name\n", true).unwrap(), None);
    assert_eq!(none(&archive(&[member("a.npy", "x")]), false).unwrap(), None);
    assert_eq!(none(&archive(&[member("word/document.xml", "x"), member("_rels/.rels", "x")]), false).unwrap(), None);
    assert_eq!(none(b"PK\x03\x04 and nothing else", false).unwrap(), None);
    assert!(none(b"PK\x03\x04 and nothing else", true).is_err());
    assert_eq!(none(&book(&[sheet("S", "")]), false).unwrap(), Some(BookForm::Xlsx));
}
