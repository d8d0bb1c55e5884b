//! JSON Lines and JSON documents as tables.
//!
//! ```text
//! bytes --ranges--> SourceRange --records--> one text per record --types--> Fields         (infer)
//!                                                          --columns-> RecordBatch    (parse)
//! ```
//!
//! No document tree is built: values go directly from the text of the source into Arrow columns, in one pass. A line
//! that looks like the one before is read by [`fast`], which only compares; any other record is walked by `serde_json`
//! in [`exact`], which decides what is accepted and reports why something is not. No value is changed: a number that no
//! number type can hold makes its column text, and values without a common type are kept as JSON text as written. A key
//! that appears twice rejects the record, because a table can hold only one of the two.

mod bits;
mod columns;
mod exact;
mod fast;
mod fault;
mod names;
mod number;
mod ranges;
mod records;
mod simd;
mod token;
mod types;

#[cfg(test)]
mod agreement;
mod bare;
#[cfg(test)]
mod corpus;

use std::ops::ControlFlow;

use arrow::datatypes::{Field, Fields, SchemaRef};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use self::{
    columns::JsonTable,
    fault::{RecordFault, What},
    records::{LineItem, RecordPlace, ValueExtent},
    types::Shape,
};
use crate::{
    error::{Error, Result},
    format::{Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, TypeMismatch, cut_parts, facts},
    record::{PartSizes, Payload, RecordBlock, Reject, SourcePart, SourceRange, sparse},
    schema::file::print_type,
};

/// Bytes of a range from which the number of values in the rest is estimated.
const ESTIMATE_BYTES: usize = 64 << 10;

/// Hint for an incomplete last line.
const TRUNCATED_HINT: &str = "the file may have been cut short while it was copied or written";

/// Layout of records in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One object per line.
    Lines,
    /// One object, or one array of objects.
    Document,
}

/// Column options given by the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JsonOptions {
    /// Columns that are text whatever they hold.
    pub text: Vec<String>,
    /// Columns, or dotted paths within columns, with a fixed type: a value that does not fit rejects its record.
    pub pinned: Vec<String>,
    /// Columns with the type that the dataset has: as pinned ones, but only the usual notation of values is accepted.
    pub bound: Vec<String>,
    /// Columns that are parsed; `None` for all. Others are skipped, whatever their values.
    pub taken: Option<Vec<String>>,
    /// Names of the members that lead to the records of a document; none if it is their array, or the record.
    pub records: Vec<String>,
}

/// A source of JSON records.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonSource {
    mode: Mode,
    options: JsonOptions,
    facts: ReaderFacts,
}

impl JsonSource {
    /// Returns a source with this layout.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            options: JsonOptions::default(),
            facts: ReaderFacts { selects_columns: true, ..facts::ROWS.clone() },
        }
    }

    /// Sets the column options.
    #[must_use]
    pub fn with_options(mut self, options: JsonOptions) -> Self {
        self.options = options;
        if !self.options.records.is_empty() {
            self.mode = Mode::Document;
            self.facts.notes.clear();
        }
        self
    }

    /// Returns the layout of records in this source.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Infers types over the range; `None` if a faulty record has already affected the types, which cannot happen if
    /// each record is `checked` on its own first.
    fn shape(&self, range: &SourceRange, checked: bool) -> Option<Fields> {
        let mut shape = Shape::new(&self.options.text).with_projection(self.options.taken.as_deref());
        let end = records::visit_records(self.mode, &self.options.records, range, |found| {
            let LineItem::Record(_, text) = found else { return ControlFlow::Continue(()) };
            if checked && self.check(text).is_err() {
                return ControlFlow::Continue(());
            }
            match shape.observe_record(text) {
                Err(_) if !checked => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        end.is_continue().then(|| shape.to_fields())
    }

    /// Fails if no schema can accept this record.
    fn check(&self, record: &str) -> Result<(), RecordFault> {
        Shape::new(&self.options.text).with_projection(self.options.taken.as_deref()).observe_record(record)
    }

    /// Decides whether a faulty record requires wider types or must be rejected.
    fn judge(
        &self,
        fault: RecordFault,
        range: &SourceRange,
        place: RecordPlace<'_>,
        text: &str,
    ) -> ControlFlow<TypeMismatch, Reject> {
        // Inference skips records with any other fault, so widening would not help them.
        let fault = match fault.what {
            What::Mismatch { .. } => self.check(text).err().unwrap_or(fault),
            What::Broken { .. } => fault,
        };
        match fault.what {
            What::Broken { reason, at } => {
                let reason =
                    if self.may_be_cut(range, place, &reason) { format!("{reason}; {TRUNCATED_HINT}") } else { reason };
                ControlFlow::Continue(reject(range, place, at, fault.column, reason))
            }
            What::Mismatch { value, expected } => {
                let column = fault.column.unwrap_or_default();
                if let Some(whose) = self.fixed(&column) {
                    let reason = format!("expected {expected}{whose}, found {value}");
                    return ControlFlow::Continue(reject(range, place, 0, Some(column), reason));
                }
                let byte = range.offset + place.start as u64;
                ControlFlow::Break(TypeMismatch { column, line: place.line, byte, value, expected })
            }
        }
    }

    /// Whether a record is incomplete because its source ends within a line: ranges end with a line unless the source
    /// does not.
    fn may_be_cut(&self, range: &SourceRange, place: RecordPlace<'_>, reason: &str) -> bool {
        let bytes = range.content_bytes();
        self.mode == Mode::Lines
            && bytes.last().is_some_and(|last| *last != b'\n')
            && bytes[place.start + place.bytes.len()..].trim_ascii().is_empty()
            && reason.starts_with(fault::UNEXPECTED_END)
    }

    /// Returns who has fixed the type of a column, as messages say it; `None` if it may change.
    fn fixed(&self, column: &str) -> Option<&'static str> {
        let covers = |pin: &str| column.strip_prefix(pin).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let any = |pins: &[String]| pins.iter().any(|pin| covers(pin));
        any(&self.options.pinned)
            .then_some("")
            .or_else(|| any(&self.options.bound).then_some(" (the type in this dataset)"))
    }
}

/// Fails on a type that no JSON value can have.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) that names column and type.
pub fn check_type(field: &Field) -> Result<()> {
    if columns::is_readable(field) {
        return Ok(());
    }
    let found = print_type(field);
    Err(Error::usage(format!("expected a type that JSON can be read as, found {found}"))
        .in_column(field.name())
        .with_hint("omit the type, or keep the values as written with `json`"))
}

impl RecordReader for JsonSource {
    fn facts(&self) -> &ReaderFacts {
        &self.facts
    }

    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        match self.mode {
            Mode::Lines => Box::new(ranges::LineRanges::new(input, range_bytes, max_record_bytes)),
            Mode::Document => {
                let mut input = Some(input);
                Box::new(std::iter::from_fn(move || Some(ranges::read_document(input.take()?, max_record_bytes))))
            }
        }
    }

    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        // A document has no place where it can be entered.
        if self.mode == Mode::Document {
            return Ok(Vec::new());
        }
        cut_parts(
            ranges::LineRanges::new(input, sizes.range_bytes, sizes.max_record_bytes),
            sizes,
            records::count_lines,
        )
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        let start = part.start_byte();
        Box::new(ranges::LineRanges::new(input, range_bytes, max_record_bytes).starting_at(start))
    }

    fn infer(&self, range: &SourceRange) -> Fields {
        self.shape(range, false).or_else(|| self.shape(range, true)).unwrap_or_default()
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        if range.content_bytes().len() > ranges::MAX_RANGE {
            return Err(
                Error::internal("expected a range shorter than 2 GiB, found a longer one").at_byte(range.offset)
            );
        }
        let table = JsonTable::new(schema, &self.options.text)
            .with_pinned(&self.options.pinned)
            .with_projection(self.options.taken.as_deref());
        let most = sparse::most_records(schema.fields().len(), range.content_bytes().len());
        let mut accepted =
            Accepted { source: self, range, table, most, rows: Vec::new(), hashes: Vec::new(), rejects: Vec::new() };
        let end = match self.mode {
            Mode::Lines => accepted.lines(),
            Mode::Document => {
                records::visit_records(self.mode, &self.options.records, range, |found| accepted.take(found))
                    .map_continue(|blank| (memchr::memchr_iter(b'\n', range.content_bytes()).count() as u64, blank))
            }
        };
        let (lines, blank_lines) = match end {
            ControlFlow::Break(mismatch) => return Ok(Parsed::Mismatch(mismatch)),
            ControlFlow::Continue(found) => found,
        };
        if accepted.is_too_sparse() {
            return Err(sparse::too_sparse(schema.fields().len()));
        }
        let Accepted { table, rows, hashes, rejects, .. } = accepted;
        Ok(Parsed::Block(RecordBlock {
            lacking: table.lacking_columns(),
            payload: Payload::Rows(table.finish()?),
            rows,
            hashes,
            rejects,
            lines,
            blank_lines,
            bytes_in: range.bytes_in(),
            ..RecordBlock::empty()
        }))
    }
}

/// The accepted part of a range.
struct Accepted<'a> {
    source: &'a JsonSource,
    range: &'a SourceRange,
    table: JsonTable,
    /// Records beyond which the table is too sparse.
    most: usize,
    rows: Vec<u32>,
    hashes: Vec<u64>,
    rejects: Vec<Reject>,
}

impl<'a> Accepted<'a> {
    /// Processes all lines, usual ones without finding their ends first; returns the number of line ends and of blank
    /// lines.
    fn lines(&mut self) -> ControlFlow<TypeMismatch, (u64, u64)> {
        let bytes = self.range.content_bytes();
        let mut lines = records::LineCursor::new(self.range);
        let mut known = false;
        while let Some(start) = lines.next_start()
            && !self.is_too_sparse()
        {
            if start >= ESTIMATE_BYTES && !known {
                self.make_room(start, bytes.len());
                known = true;
            }
            if let Some(end) = self.table.push_line(bytes, start) {
                self.rows.push(lines.pass_record(end));
                self.hash(&bytes[start..end]);
            } else if let Some(found) = lines.next() {
                self.take(found)?;
            }
        }
        ControlFlow::Continue((lines.line_count(), lines.blank_count()))
    }

    /// Reserves memory for the rest of the range, extrapolating from the part up to `done`.
    fn make_room(&mut self, done: usize, all: usize) {
        self.table.make_room(done, all);
        let rows = self.rows.len() * (all / done);
        self.rows.reserve(rows);
        self.hashes.reserve(rows);
    }

    fn hash(&mut self, record: &[u8]) {
        self.hashes.push(if self.range.hashed { xxh3_64(record) } else { 0 });
    }

    /// Whether the table would outgrow its records; what follows is not read.
    fn is_too_sparse(&self) -> bool {
        self.rows.len() > self.most
    }

    fn take(&mut self, found: LineItem<'a>) -> ControlFlow<TypeMismatch> {
        match found {
            _ if self.is_too_sparse() => {}
            LineItem::Broken(place, at, reason) => {
                let cut = self.source.mode == Mode::Document && reason.starts_with(fault::UNEXPECTED_END);
                let reason = if cut { format!("{reason}; {TRUNCATED_HINT}") } else { reason };
                self.rejects.push(reject(self.range, place, at, None, reason));
            }
            LineItem::Record(place, text) => match self.table.push_record(text) {
                Ok(()) => {
                    self.rows.push(place.row);
                    self.hash(place.bytes);
                }
                Err(fault) => self.rejects.push(self.source.judge(fault, self.range, place, text)?),
            },
        }
        ControlFlow::Continue(())
    }
}

/// Returns a reject with a copy of the record, so that it does not keep the whole range in memory.
fn reject(range: &SourceRange, place: RecordPlace<'_>, at: usize, column: Option<String>, reason: String) -> Reject {
    Reject {
        row: place.row,
        line: place.line,
        byte: range.offset + (place.start + at) as u64,
        column,
        reason,
        raw: Bytes::copy_from_slice(place.bytes),
    }
}

/// Detects JSON by the first bytes of a source; `complete` means that these are all. Several objects on separate lines,
/// or one object on one line, are lines; other structured JSON is a document.
pub fn sniff(head: &[u8], complete: bool) -> Option<JsonSource> {
    let head = head.strip_prefix(records::BOM).unwrap_or(head).trim_ascii_start();
    let mode = match head.first()? {
        b'{' if starts_as_lines(head, complete) => Mode::Lines,
        b'{' | b'[' => match records::value_extent(head) {
            ValueExtent::Whole => Mode::Document,
            ValueExtent::Started if !complete => Mode::Document,
            _ => return None,
        },
        _ => return None,
    };
    let mut source = JsonSource::new(mode);
    let is_one = mode == Mode::Document || head.trim_ascii_end().iter().all(|byte| *byte != b'\n');
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    if let Some(name) = records::first_array(text).filter(|_| is_one && head[0] == b'{') {
        source.facts.notes.push(format!(
            "the document is one record; if the objects in its `{name}` are the records: --read records={name}"
        ));
    }
    Some(source)
}

/// Whether the first line is a whole object, and the next non-blank one starts as one. A first line longer than the
/// head counts if it is well-formed so far, because documents have line breaks earlier.
fn starts_as_lines(head: &[u8], complete: bool) -> bool {
    let Some(end) = memchr::memchr(b'\n', head) else {
        return match records::value_extent(head) {
            ValueExtent::Whole => true,
            ValueExtent::Started => !complete,
            ValueExtent::Not => false,
        };
    };
    let rest = head[end..].trim_ascii_start();
    matches!(records::value_extent(&head[..end]), ValueExtent::Whole) && matches!(rest.first(), None | Some(b'{'))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use proptest::prelude::*;

    use arrow::{array::AsArray as _, datatypes::Float64Type};

    use super::*;
    use crate::{record::json::RowJson, schema};

    pub(super) fn range(bytes: &[u8]) -> SourceRange {
        SourceRange::of_bytes(0, Bytes::copy_from_slice(bytes))
    }

    pub(super) fn block(parsed: Parsed) -> RecordBlock {
        match parsed {
            Parsed::Block(block) => block,
            Parsed::Mismatch(mismatch) => panic!("{mismatch:?}"),
        }
    }

    /// Infers and parses; values must fit the inferred types.
    pub(super) fn read(source: &JsonSource, bytes: &[u8]) -> RecordBlock {
        let range = range(bytes);
        let schema = schema::schema_of(&source.infer(&range));
        let block = block(source.parse(&range, &schema).unwrap());
        assert_eq!(block.bytes_in, bytes.len() as u64);
        assert_eq!(block.rows.len(), block.payload.len());
        assert_eq!(block.hashes.len(), block.payload.len());
        block
    }

    pub(super) fn rows(block: &RecordBlock) -> Vec<String> {
        let Payload::Rows(batch) = &block.payload else { panic!("samples") };
        let json = RowJson::new(batch);
        let row = |row| {
            let mut out = Vec::new();
            json.write_row(row, &mut out);
            String::from_utf8(out).unwrap()
        };
        (0..batch.num_rows()).map(row).collect()
    }

    fn lines() -> JsonSource {
        JsonSource::new(Mode::Lines)
    }

    #[test]
    fn records_lie_at_a_path_in_a_document() {
        let text = b"{\"n\": {\"data\": [1]}, \"page\": {\"data\": [ {\"a\": NaN},\n {\"a\": 2} ]}}";
        let at = |path: &str| {
            let records = path.split('.').map(str::to_owned).collect();
            JsonSource::new(Mode::Lines).with_options(JsonOptions { records, ..JsonOptions::default() })
        };
        let found = read(&at("page.data"), text);
        assert_eq!((found.payload.len(), found.rejects.len()), (2, 0));
        for (path, reason) in [
            ("page.rows", "expected the records at `page.rows`, found no such member"),
            ("n.data", "found an array that starts with a number"),
            ("page.data.x", "expected an object"),
        ] {
            let found = read(&at(path), text);
            assert!(found.payload.is_empty() && found.rejects[0].reason.contains(reason), "{:?}", found.rejects);
        }
    }

    #[test]
    fn an_array_of_objects_in_a_document_is_told() {
        let note = |text: &str| sniff(text.as_bytes(), false).unwrap().facts.notes.join("");
        let before = "{\"m\": {\"x\": [{}]}, \"d\": \"[{\", \"features\" : [ ";
        let most = format!("{before}{}", "{\"a\": 1}, ".repeat(before.len()));
        assert!(note(&most).contains("records=features"));
        assert_eq!(note(&format!("{before}{{\"a\": 1}}, {{")), "", "an array that is small describes a record");
        assert_eq!(note("{\"a\":[{\"b\":1}]}\n{\"a\":[{\"b\":1}]}\n"), "");
        assert_eq!(note("{\"a\": [1, 2],\n \"b\": {\"c\": [{}]}, "), "");
    }

    #[test]
    fn words_of_python_are_floats() {
        let lines = JsonSource::new(Mode::Lines);
        let text = "{\"a\":1,\"b\":[0.5,-Infinity]}\n{\"a\":NaN,\"b\":[Infinity],\"c\":\"NaN\"}\n{\"a\":2.5}\n";
        let found = read(&lines, text.as_bytes());
        assert_eq!(rows(&found).len(), 3, "{found:?}");
        let Payload::Rows(batch) = &found.payload else { panic!("rows") };
        let floats = batch.column_by_name("a").unwrap().as_primitive::<Float64Type>().clone();
        assert!(floats.value(0) == 1.0 && floats.value(1).is_nan() && floats.value(2) == 2.5);
        let items = batch.column_by_name("b").unwrap().as_list::<i32>().values().to_owned();
        assert_eq!(items.as_primitive::<Float64Type>().values(), &[0.5, f64::NEG_INFINITY, f64::INFINITY]);
        assert_eq!(batch.column_by_name("c").unwrap().as_string::<i32>().value(1), "NaN");
        let document = sniff(b"[{\"a\": NaN}, {\"a\": 1.5}]", true).unwrap();
        assert_eq!(document.mode(), Mode::Document);
        let found = read(&document, b"[{\"a\": NaN}, {\"a\": 1.5}]");
        assert_eq!((found.payload.len(), found.rejects.len()), (2, 0));
        // In text the word is kept; JSON has no place for it.
        let mixed = read(&lines, b"{\"a\":NaN}\n{\"a\":true}\n");
        assert_eq!(rows(&mixed)[0], "{\"a\":\"NaN\"}");
        let json = read(&lines, b"{\"a\":[NaN]}\n{\"a\":true}\n");
        assert!(json.rejects.len() == 1 && json.rejects[0].reason.contains("found NaN"), "{:?}", json.rejects);
    }

    #[test]
    fn lines_become_rows_and_rejects() {
        let block =
            read(&lines(), b"{\"a\":1}\n\n[2]\r\n {\"a\":1,\"a\":2}\n{\"a\" 3}\n{\"a\":\"\xFF\"}\n  {\"a\":4}  ");
        assert_eq!(rows(&block), [r#"{"a":1}"#, r#"{"a":4}"#]);
        assert_eq!(block.rows, [0, 5]);
        assert_eq!(block.hashes[1], xxh3_64(b"{\"a\":4}"));
        assert_eq!((block.lines, block.blank_lines, block.records_in()), (6, 1, 6));
        let rejects: Vec<_> =
            block.rejects.iter().map(|r| (r.row, r.line, r.byte, r.column.as_deref(), r.reason.as_str())).collect();
        assert_eq!(
            rejects,
            [
                (1, 2, 9, None, "expected an object, found an array"),
                (2, 3, 26, Some("a"), "expected each key once, found one that appears twice"),
                (3, 4, 34, None, "invalid JSON: expected `:`"),
                (4, 5, 43, None, "expected UTF-8 text, found byte 0xFF"),
            ]
        );
        assert_eq!(&block.rejects[1].raw[..], b"{\"a\":1,\"a\":2}");
    }

    #[test]
    fn a_truncated_last_line_is_reported_as_truncation() {
        let reasons = |bytes: &[u8]| -> Vec<bool> {
            read(&lines(), bytes).rejects.iter().map(|reject| reject.reason.ends_with(TRUNCATED_HINT)).collect()
        };
        for cut in [&b"{\"a\":1}\n{\"a\":"[..], b"{\"a\":1}\n{\"a\":\"te", b"{\"a\":1}\n{", b"{\"a\":1}\n{\"a\":1,\"b"]
        {
            assert_eq!(reasons(cut), [true], "{}", String::from_utf8_lossy(cut));
        }
        // The line continues after the fault, or is complete.
        for other in [&b"{\"a\":1}\n{\"a\" 3}"[..], b"{\"a\":1}\n{\"a\":\n", b"{\"a\":\n{\"a\":1}", b"{\"a\":1}\n[1]"] {
            assert_eq!(reasons(other), [false], "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn bad_records_leave_no_columns() {
        let fields = lines().infer(&range(b"{\"a\":1}\n{\"zzz\":1,\"b\n{\"a\":2.5,\"c\":1}\n"));
        let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        assert!(lines().infer(&range(b"{\"zzz\":1,\"b\n")).is_empty());
    }

    #[test]
    fn a_mismatch_stops_the_range_unless_the_record_is_bad_anyway() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let source = lines();
        let parsed = source.parse(&range(b"{\"a\":\"x\",\"b\n{\"a\":1}\n{\"a\":\"y\"}\n"), &schema).unwrap();
        let Parsed::Mismatch(mismatch) = parsed else { panic!("{parsed:?}") };
        assert_eq!(
            mismatch,
            TypeMismatch { column: "a".into(), line: 2, byte: 20, value: "\"y\"".into(), expected: "Int64".into() }
        );
        let parsed = source.parse(&range(b"{\"b\":1}"), &schema).unwrap();
        assert!(matches!(parsed, Parsed::Mismatch(m) if m.column == "b"));
    }

    #[test]
    fn pinned_columns_reject_what_does_not_fit() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let source = lines().with_options(JsonOptions { pinned: vec!["a".into()], ..JsonOptions::default() });
        let block = block(source.parse(&range(b"{\"a\":1}\n{\"a\":\"x\"}\n{\"a\":2}\n"), &schema).unwrap());
        assert_eq!(block.rows, [0, 2]);
        assert_eq!(block.rejects[0].reason, "expected int64, found \"x\"");
        assert_eq!(block.rejects[0].column.as_deref(), Some("a"));
        assert!(matches!(source.parse(&range(b"{\"ab\":1}"), &schema).unwrap(), Parsed::Mismatch(_)));
    }

    #[test]
    fn text_columns_keep_everything() {
        let source = lines().with_options(JsonOptions { text: vec!["a".into()], ..JsonOptions::default() });
        let block = read(&source, b"{\"a\":007}\n{\"a\":1.50}\n{\"a\":{\"b\": []}}\n");
        assert_eq!(rows(&block), [r#"{"a":"1.50"}"#, r#"{"a":"{\"b\": []}"}"#]);
        assert_eq!(block.rejects.len(), 1);
    }

    #[test]
    fn objects_without_keys_are_rows_without_columns() {
        assert_eq!(rows(&read(&lines(), b"{}\n{}\n")), ["{}", "{}"]);
        assert_eq!(rows(&read(&JsonSource::new(Mode::Document), b"[]")), [""; 0]);
    }

    #[test]
    fn offsets_count_from_the_start_of_the_source() {
        let range = SourceRange::of_bytes(1000, Bytes::from_static(b"{}\n1\n"));
        let block = block(lines().parse(&range, &Arc::new(Schema::empty())).unwrap());
        assert_eq!(block.rejects[0].byte, 1003);
    }

    #[test]
    fn json_is_recognised_by_its_start() {
        for (head, complete, expected) in [
            ("{\"a\":1}\n{\"a\":2}\n", true, Some(Mode::Lines)),
            ("{\"a\":1}\n\n {\"a\":", false, Some(Mode::Lines)),
            ("\u{feff}\n{\"a\":1}", true, Some(Mode::Lines)),
            ("{\"a\":1}\r\n", true, Some(Mode::Lines)),
            ("{\"a\":\"long", false, Some(Mode::Lines)),
            ("{\"a\":\"long", true, None),
            ("{\n \"a\": 1\n}\n", true, Some(Mode::Document)),
            ("{\n \"a\": 1,", false, Some(Mode::Document)),
            ("{\n \"a\": 1,", true, None),
            ("{\n}\n{\n}\n", true, None),
            ("[{},{}]", true, Some(Mode::Document)),
            ("[", false, Some(Mode::Document)),
            ("[section]\nkey=value\n", false, None),
            ("[2024-01-01] started", false, None),
            ("{\"a\":1}\nfoo", true, None),
            ("{a:1}\n", true, None),
            ("a,b\n1,2\n", true, None),
            ("1\n2\n", true, None),
            ("", true, None),
            (" \n", true, None),
        ] {
            assert_eq!(sniff(head.as_bytes(), complete).map(|s| s.mode()), expected, "{head:?}");
        }
        assert!(sniff("[".repeat(100_000).as_bytes(), false).is_some());
        assert!(sniff("[".repeat(100_000).as_bytes(), true).is_none());
    }

    /// Any JSON value as text, with few distinct keys, so that types are united.
    fn value_text() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            any::<i64>().prop_map(|v| v.to_string()),
            (-3i64..3).prop_map(|v| v.to_string()),
            prop::sample::select(vec!["-0", "1e3", "0.10", "1e400", "123456789012345678901234567890", "2.5"])
                .prop_map(str::to_owned),
            any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| format!("{v:?}")),
            "[a-c\"\\\\\n\u{1F600}]{0,4}".prop_map(|s| serde_json::to_string(&s).unwrap()),
        ];
        scalar.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|v| format!("[{}]", v.join(" , "))),
                object_text(inner),
            ]
        })
    }

    fn object_text(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
        prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| {
            let members: Vec<String> = map.iter().map(|(k, v)| format!("\"{k}\": {v}")).collect();
            format!("{{{}}}", members.join(","))
        })
    }

    /// Whether the output equals the input, except that columns may be wider and absent fields null. Both stay text,
    /// because the numbers of `serde_json` are rounded.
    fn same(source: &str, out: &str) -> bool {
        type Raw = Box<serde_json::value::RawValue>;
        let members = |text| serde_json::from_str::<std::collections::BTreeMap<String, Raw>>(text).unwrap();
        let items = |text| serde_json::from_str::<Vec<Raw>>(text).unwrap();
        let string = |text| serde_json::from_str::<String>(text).unwrap();
        match (source.as_bytes()[0], out.as_bytes()[0]) {
            (b'{', b'{') => {
                let (source, out) = (members(source), members(out));
                source.iter().all(|(k, v)| out.get(k).is_some_and(|o| same(v.get(), o.get())))
                    && out.iter().all(|(k, o)| source.contains_key(k) || o.get() == "null")
            }
            (b'[', b'[') => {
                let (source, out) = (items(source), items(out));
                source.len() == out.len() && source.iter().zip(&out).all(|(v, o)| same(v.get(), o.get()))
            }
            (b'"', b'"') => string(source) == string(out),
            (_, b'"') => source == string(out),
            (b'0'..=b'9' | b'-', b'0'..=b'9' | b'-') => {
                let bits = |text: &str| text.parse::<f64>().unwrap().to_bits();
                source == out
                    || (bits(source) == bits(out) && (source.len() < 17 || source.contains('.')))
                    || format!("{:.0}", out.parse::<f64>().unwrap()) == source
            }
            _ => source == out,
        }
    }

    proptest! {
        #[test]
        fn every_value_fits_the_inferred_types_and_round_trips(
            records in prop::collection::vec(object_text(value_text()), 1..12), cut in 0usize..12,
        ) {
            let (first, second) = records.split_at(cut.min(records.len()));
            let source = lines();
            let bytes = |records: &[String]| range(records.join("\n").as_bytes());
            let (a, b) = (bytes(first), bytes(second));
            let united = schema::unite_lists(&source.infer(&a), &source.infer(&b));
            let schema = schema::schema_of(&united);
            for (part, records) in [(a, first), (b, second)] {
                let block = block(source.parse(&part, &schema).unwrap());
                prop_assert_eq!(block.rejects.len(), 0);
                prop_assert_eq!(block.payload.len(), records.len());
                for (row, record) in rows(&block).iter().zip(records) {
                    prop_assert!(same(record, row), "{} -> {}", record, row);
                }
            }
        }

        #[test]
        fn damaged_input_never_panics_and_every_record_is_counted(
            records in prop::collection::vec(object_text(value_text()), 1..6),
            at in any::<prop::sample::Index>(), byte: u8,
        ) {
            let mut bytes = records.join("\n").into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let block = read(&lines(), &bytes);
            let expected = bytes.split(|&b| b == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
            prop_assert_eq!(block.records_in(), expected as u64);
            let whole = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok();
            let document = read(&JsonSource::new(Mode::Document), &bytes);
            prop_assert!(whole || !document.rejects.is_empty());
        }
    }
}
