//! Sources in a stated dialect: their head, and where their ranges are cut.
//!
//! ```text
//! [EF BB BF] skipped lines  comments, header  | records, comments ... | next range
//! '------------------ data_offset -----------'
//! ```

use std::{io::Read, ops::Range, sync::Arc};

use super::{
    super::ReaderFacts,
    options::CsvOptions,
    profile::Profile,
    quotes::Quotes,
    quoting::Quoting,
    ranges::{LIMIT, READ, most_records, skip_head},
    source::CsvSource,
    stated::{RecordScan, Stated, USUAL, detect},
    tokenize::{LF, count_lines},
};
use crate::{
    error::{Error, Result},
    format::carry::Carried,
    record::SourceRange,
    schema::distinct_names,
    units::Size,
};

/// Recognises text in a stated dialect; `start` is where its first record or header may begin, and `skipped` the number
/// of lines before it that the user skips.
pub(super) fn sniff_stated(
    head: &[u8],
    start: usize,
    skipped: u64,
    complete: bool,
    options: &CsvOptions,
) -> Option<CsvSource> {
    let text = &head[start..];
    let delimiter = options.stated.delimiter.clone().or_else(|| options.delimiter.map(|delimiter| vec![delimiter]));
    let dialect = match delimiter {
        Some(delimiter) => Stated::new(&options.stated, delimiter),
        None => detect(&options.stated, text, complete),
    };
    let (_, consistency, _) = dialect.consistency(text, complete);
    let first = dialect.first_records(text, complete).next();
    let Some((first, next)) = first else {
        return complete.then(|| CsvSource::without_records(head.len() as u64, count_lines(head), options));
    };
    let fields = dialect.split_fields(&text[first.clone()]).ok()?;
    let names: Option<Vec<String>> = match options.has_header {
        true => fields.into_iter().map(|(name, _)| String::from_utf8(name).ok()).collect(),
        false => Some(vec![String::new(); fields.len()]),
    };
    let before = if options.has_header { next } else { 0 };
    let comments = |line: &&[u8]| dialect.is_comment(line);
    let above = text[..if options.has_header { first.start } else { 0 }].split_inclusive(|byte| *byte == LF);
    let comments = above.filter(comments).count() as u64;
    let lines = count_lines(&head[..start + before]);
    let header_lines = if options.has_header { 1 + count_lines(&text[first]) } else { 0 };
    Some(CsvSource {
        facts: ReaderFacts {
            selects_columns: true,
            columns: Some(distinct_names(names?)),
            lines_skipped: skipped + comments,
            blank_lines_before: lines.saturating_sub(header_lines + skipped + comments),
            ..ReaderFacts::default()
        },
        delimiter: USUAL,
        consistency,
        data_offset: (start + before) as u64,
        header_lines: lines,
        options: CsvOptions { tidy: false, repair: false, ..options.clone() },
        header: Vec::new(),
        profile: Profile::default(),
        quotes: Quotes::default(),
        quoting: Quoting::always_standard(),
        trailing: false,
        labels: false,
        stated: Some(Arc::new(dialect)),
    })
}

/// Iterator over the ranges of a source in a stated dialect.
pub(super) struct StatedRanges<R> {
    input: R,
    dialect: Arc<Stated>,
    range_bytes: usize,
    max_record_bytes: usize,
    max_records: usize,
    /// Number of bytes to skip first.
    skip: u64,
    /// Position of the carried bytes in the stream.
    offset: u64,
    carried: Carried,
    scan: RecordScan,
    exhausted: bool,
    /// Error that ended the input; returned after the records before it.
    fault: Option<Error>,
}

impl<R: Read> StatedRanges<R> {
    /// Creates an iterator over `input`, whose first bytes up to the data of `source` belong to no range.
    pub(super) fn new(
        input: R,
        source: &CsvSource,
        dialect: &Arc<Stated>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> Self {
        let skip = source.data_offset;
        Self {
            input,
            dialect: Arc::clone(dialect),
            range_bytes: range_bytes.clamp(1, LIMIT),
            max_record_bytes: max_record_bytes.clamp(1, LIMIT),
            max_records: most_records(range_bytes, source.column_names().len()),
            skip,
            offset: skip,
            carried: Carried::default(),
            scan: RecordScan::new(),
            exhausted: false,
            fault: None,
        }
    }

    /// Sets the position of `input` in the stream, where a record starts.
    pub(super) fn starting_at(self, offset: u64) -> Self {
        Self { skip: 0, offset, ..self }
    }

    /// Returns the end of the next range in the buffer.
    fn next_end(&mut self) -> Result<Option<usize>> {
        skip_head(&mut self.input, &mut self.skip)?;
        let mut records = 0;
        loop {
            let whole = self.exhausted && self.fault.is_none();
            while let Some((record, next)) = self.dialect.next_record(self.carried.as_slice(), &mut self.scan, whole) {
                self.check_length(&record)?;
                records += usize::from(!record.is_empty());
                if next >= self.range_bytes || records >= self.max_records {
                    return Ok(Some(next));
                }
            }
            self.check_length(&(self.scan.start..self.carried.len()))?;
            if self.exhausted {
                // A record that a fault cuts is not part of what was read before it.
                return match (self.scan.start, self.fault.take()) {
                    (0, Some(fault)) => Err(fault),
                    (end, fault) => {
                        self.fault = fault;
                        Ok((end > 0).then_some(end))
                    }
                };
            }
            self.read_more();
        }
    }

    fn read_more(&mut self) {
        let step = self.range_bytes.clamp(256, READ);
        let wanted = self.carried.len() + step;
        match self.carried.fill_from(&mut self.input, wanted, wanted.max(2 * self.carried.len())) {
            Ok(filled) => self.exhausted = !filled,
            Err(error) => {
                self.exhausted = true;
                self.fault = Some(error.into());
            }
        }
    }

    fn check_length(&self, record: &Range<usize>) -> Result<()> {
        if record.len() <= self.max_record_bytes {
            return Ok(());
        }
        let limit = Size(self.max_record_bytes as u64);
        Err(Error::input(format!("expected a record of at most {limit}, found a longer one"))
            .at_byte(self.offset + record.start as u64)
            .with_hint("a quote that is not closed makes one record of many: --read quote=none reads it as a character")
            .with_hint("if records are really that long, allow more memory with --memory"))
    }
}

impl<R: Read> Iterator for StatedRanges<R> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_end() {
            Ok(end) => {
                let end = end?;
                let bytes = self.carried.take_front(end, !self.exhausted);
                let range = SourceRange::of_bytes(self.offset, bytes);
                self.offset += end as u64;
                self.scan = RecordScan::new();
                Some(Ok(range))
            }
            Err(error) => {
                self.exhausted = true;
                self.carried.clear();
                self.scan = RecordScan::new();
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::util::display::array_value_to_string;
    use proptest::prelude::*;

    use super::{
        super::{corpus::read, notation::Notation, sniff, stated::StatedDialect},
        *,
    };
    use crate::format::part_checks::check_parts;

    fn options(stated: StatedDialect) -> CsvOptions {
        CsvOptions { certain: true, stated, ..CsvOptions::default() }
    }

    /// Columns with their types, rows, reasons of rejects, and the number of comments; the same at any size of ranges.
    fn outcome(text: &str, options: &CsvOptions) -> (String, Vec<String>, Vec<String>) {
        let source = sniff(text.as_bytes(), true, options).unwrap();
        let out = read(&source, text.as_bytes(), 1 << 20);
        for size in [1, 7, 40] {
            assert!(read(&source, text.as_bytes(), size) == out, "ranges of {size} bytes");
        }
        let types =
            out.batch.schema().fields().iter().map(|f| format!("{}:{}", f.name(), f.data_type())).collect::<Vec<_>>();
        let value = |row, column: usize| match out.batch.column(column).is_null(row) {
            true => "null".to_owned(),
            false => array_value_to_string(out.batch.column(column), row).unwrap(),
        };
        let row = |row| (0..out.batch.num_columns()).map(|column| value(row, column)).collect::<Vec<_>>().join(" / ");
        let rows = (0..out.batch.num_rows()).map(row).collect();
        (types.join(" "), rows, out.rejects.into_iter().map(|(_, _, reason, _)| reason).collect())
    }

    fn stated(delimiter: &str) -> StatedDialect {
        StatedDialect { delimiter: Some(delimiter.as_bytes().to_vec()), ..StatedDialect::default() }
    }

    #[test]
    fn delimiters_of_several_characters_divide_outside_of_quotes() {
        let text = "id||name||v\n1||\"a||b\"||0.5\r\n2|| x| ||\n3||||1.5\n4||\"say \"\"hi\"\"\"||2";
        let (types, rows, rejects) = outcome(text, &options(stated("||")));
        assert_eq!(types, "id:Int64 name:Utf8 v:Float64");
        assert_eq!(rows, ["1 / a||b / 0.5", "2 /  x|  / null", "3 / null / 1.5", "4 / say \"hi\" / 2.0"]);
        assert!(rejects.is_empty());
        let (_, rows, _) = outcome("aÇb\n1ÇÄ\n", &options(stated("Ç")));
        assert_eq!(rows, ["1 / Ä"]);
    }

    #[test]
    fn escapes_are_taken_off_where_they_mean_something() {
        let dialect = StatedDialect { escape: Some(b'\\'), ..stated(",") };
        let text =
            "id,t\n1,\"say \\\"hi\\\", you\"\n2,a\\,b\n3,C:\\dir\\\\x\n4,\"two\\\nlines\"\n5,two\\\nlines\n6,\\N\n";
        let (_, rows, rejects) = outcome(text, &CsvOptions { nulls: vec!["\\N".into()], ..options(dialect) });
        assert_eq!(
            rows,
            ["1 / say \"hi\", you", "2 / a,b", "3 / C:\\dir\\x", "4 / two\nlines", "5 / two\nlines", "6 / null"]
        );
        assert!(rejects.is_empty());
    }

    #[test]
    fn quotes_may_be_others_or_none() {
        let single = StatedDialect { quote: Some(b'\''), ..stated(",") };
        let (_, rows, _) = outcome("a,b\n1,'x, \"y\"'\n2,'it''s'\n", &options(single));
        assert_eq!(rows, ["1 / x, \"y\"", "2 / it's"]);
        let none = StatedDialect { quote: None, ..stated("\t") };
        let (_, rows, _) = outcome("a\tb\n1\t\"open\n2\t\"\"\n3\t5\"\n", &options(none));
        assert_eq!(rows, ["1 / \"open", "2 / \"\"", "3 / 5\""]);
    }

    #[test]
    fn what_does_not_have_the_dialect_is_rejected() {
        let text = "a;b\n1;2;3\n\"x\"y;2\n4;\"5\n6;7\n";
        let dialect = StatedDialect { comment: Some(b'#'), ..stated(";") };
        let (_, rows, rejects) = outcome(text, &options(dialect));
        assert!(rows.is_empty(), "{rows:?}");
        assert_eq!(rejects.len(), 3, "{rejects:?}");
        assert!(rejects[0].contains("expected 2 fields, found 3"), "{rejects:?}");
        assert!(
            rejects[1].contains("found text at byte 13") && rejects[2].contains("opened at byte 19"),
            "{rejects:?}"
        );
    }

    #[test]
    fn comments_and_skipped_lines_are_no_records() {
        let dialect = StatedDialect { comment: Some(b'%'), ..StatedDialect::default() };
        let text = "made by x\n% it's \"one\na;b\n1;2\n% more\n\n3;\"%\"\n";
        let source = sniff(text.as_bytes(), true, &CsvOptions { skip: 1, ..options(dialect.clone()) }).unwrap();
        assert_eq!((source.column_names(), source.facts.lines_skipped), (&["a".to_owned(), "b".to_owned()][..], 2));
        let (_, rows, _) = outcome(text, &CsvOptions { skip: 1, ..options(dialect) });
        assert_eq!(rows, ["1 / 2", "3 / %"]);
        let (_, rows, _) = outcome("x\na,b\n1,2\n", &CsvOptions { skip: 1, ..options(StatedDialect::default()) });
        assert_eq!(rows, ["1 / 2"]);
    }

    #[test]
    fn notations_change_typed_columns_alone() {
        let notation =
            Notation { decimal: Some(b','), thousands: Some(b'.'), date: Some("%d.%m.%Y".into()), timestamp: None };
        let text = "n;t;d\n1.234,5;1,5;31.12.2026\n-7;x;01.01.2027\n";
        let (types, rows, _) = outcome(text, &options(StatedDialect { notation, ..StatedDialect::default() }));
        assert_eq!(types, "n:Float64 t:Utf8 d:Date32");
        assert_eq!(rows, ["1234.5 / 1,5 / 2026-12-31", "-7.0 / x / 2027-01-01"]);
    }

    #[test]
    fn dialects_that_show_are_taken_with_a_note() {
        let named = CsvOptions { named: true, ..CsvOptions::default() };
        let rows = |line: &str| (0..5).map(|i| line.replace('N', &i.to_string())).collect::<String>();
        for (text, columns, note) in [
            (format!("id||v\n{}", rows("N||x\n")), 2, "`||`"),
            (format!("id~|~v\n{}", rows("N~|~x\n")), 2, "`~|~`"),
            (format!("id::v\n{}", rows("N::x\n")), 2, "`::`"),
            (format!("id\u{1}v\n{}", rows("N\u{1}x\n")), 2, r"`\x01`"),
            (format!("id,v\n{}", rows("N,\"a \\\"b\\\", c\"\n")), 2, r"`\`"),
        ] {
            let source = sniff(text.as_bytes(), true, &named).unwrap();
            assert_eq!(source.column_names().len(), columns, "{text}");
            assert!(source.facts.notes[0].contains(note), "{:?}", source.facts.notes);
        }
        for text in ["id|w|v\n1||x\n2|a|y\n3||z\n", "a,b\n1,C:\\\"x\n2,y\n", "t::x,v\n1::2,3\n1:2,3\n"] {
            assert!(sniff(text.as_bytes(), true, &named).unwrap().stated.is_none(), "{text}");
        }
    }

    #[test]
    fn parts_have_the_records_of_the_whole() {
        let dialect = StatedDialect { escape: Some(b'\\'), comment: Some(b'#'), ..stated("::") };
        let text = "id::t\n1::\"a\\\"\n::b\"\n# c\n2::x\n\n3::y\\\nz\n4::\"w\"\n".repeat(3);
        let source = sniff(text.as_bytes(), true, &options(dialect)).unwrap();
        let parts = check_parts(&source, text.as_bytes(), 20, 1 << 20, 40);
        assert!(parts.len() > 1, "{parts:?}");
    }

    proptest! {
        /// Values are written by the rules of a dialect, and come back.
        #[test]
        fn what_is_written_is_read(
            rows in prop::collection::vec(prop::collection::vec("[a|:\\\\'\"\n\r ,1]{0,6}", 3), 1..8),
            delimiter in prop::sample::select(vec!["||", ",", "::", "~"]),
            quote in prop::sample::select(vec![b'"', b'\'']),
        ) {
            let quote_char = char::from(quote);
            let write = |value: &String| {
                let escaped: String = value.chars().flat_map(|one| match one {
                    one if one == quote_char || one == '\\' => vec!['\\', one],
                    one => vec![one],
                }).collect();
                format!("{quote_char}{escaped}{quote_char}")
            };
            let line = |row: &Vec<String>| row.iter().map(write).collect::<Vec<_>>().join(delimiter) + "\n";
            let text = format!("x{delimiter}y{delimiter}z\n{}", rows.iter().map(line).collect::<String>());
            let dialect = StatedDialect { quote: Some(quote), escape: Some(b'\\'), ..stated(delimiter) };
            let text_columns = ["x", "y", "z"].map(str::to_owned).into_iter().collect();
            let (_, found, rejects) = outcome(&text, &CsvOptions { text: text_columns, ..options(dialect) });
            let wanted: Vec<String> = rows.iter().map(|row| row.join(" / ")).collect();
            prop_assert_eq!(found, wanted);
            prop_assert!(rejects.is_empty());
        }
    }
}
