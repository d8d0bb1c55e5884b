//! Cuts a source of delimited text into parts, in one pass at the speed of memory.
//!
//! ```text
//! stream -- ranges::CsvRanges --> ranges, and how many records and lines the search for their ends has passed
//! split  -- nearly all -----> these numbers are right
//!        -- a record spans lines --> tokens, and if there is anything odd, screen
//! ```
//!
//! Parts end between the very ranges of a run over the whole source, so that each part is cut into these ranges again,
//! and everything else follows: what a range holds does not depend on its neighbours. What has to be known of the
//! ranges before a part is only how many records and lines they have.
//!
//! Nearly every record is one line, whether it is good or bad. The exceptions are found by `screen`,
//! which alone decides: a damaged record of several lines may be divided.

use std::io::Read as _;

use super::{
    index::Counts,
    notation::Wanted,
    screen::screen_range,
    source::CsvSource,
    tokenize::{LF, count_lines},
};
use crate::{
    error::{Kind, Result},
    format::{RecordReader as _, SourceBytes},
    record::{PartSizes, SourcePart, SourceRange, source_part::PartCuts},
};

/// See [`RecordReader::parts`](crate::format::RecordReader::parts).
pub(super) fn cut_csv_parts(
    source: &CsvSource,
    mut input: SourceBytes<'_>,
    sizes: &PartSizes,
) -> Result<Vec<SourcePart>> {
    // Where spaces move into quotes, a damaged record changes how the bytes after it are turned.
    if source.quotes.spaced {
        return Ok(Vec::new());
    }
    if source.stated.is_some() {
        return cut_stated_parts(source, input, sizes);
    }
    let mut head = Vec::new();
    input.as_mut().take(source.data_offset).read_to_end(&mut head)?;
    // As messages count the lines before the first range.
    let lines = memchr::memchr_iter(LF, &head).count() as u64;
    let ranges = source.cut_ranges(input, 0, sizes.range_bytes, sizes.max_record_bytes);
    let mut ranges = ranges.starting_at(source.data_offset).with_counts();
    let mut cuts = PartCuts::new(sizes, lines);
    loop {
        match ranges.next_counted() {
            Ok(Some((range, counts))) => {
                let (records, lines) = source.count_records(&range, counts);
                cuts.add_piece(range.offset + range.bytes_in(), records, lines);
            }
            Ok(None) => break,
            Err(error) if error.kind() == Kind::Storage => return Err(error),
            Err(_) => break,
        }
    }
    Ok(cuts.of_bytes())
}

/// The same for a stated dialect, whose ranges are counted by reading them.
fn cut_stated_parts(source: &CsvSource, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
    let mut cuts = PartCuts::new(sizes, source.header_lines);
    for range in source.ranges(input, sizes.range_bytes, sizes.max_record_bytes) {
        match range {
            Ok(range) => {
                let (records, lines) = source.count_records(&range, None);
                cuts.add_piece(range.offset + range.bytes_in(), records, lines);
            }
            Err(error) if error.kind() == Kind::Storage => return Err(error),
            Err(_) => break,
        }
    }
    Ok(cuts.of_bytes())
}

impl CsvSource {
    /// Number of records of a range, as [`parse`](crate::format::RecordReader::parse) numbers them, and of its lines.
    fn count_records(&self, range: &SourceRange, counts: Option<Counts>) -> (u64, u64) {
        let bytes = range.content_bytes();
        if let Some(counts) = counts.filter(|counts| !counts.intricate) {
            return (counts.records, counts.lines);
        }
        let lines = counts.map_or_else(|| count_lines(bytes), |counts| counts.lines);
        (
            self.count_tokens(bytes).unwrap_or_else(|| {
                screen_range(self, bytes, range.offset, &|_| false, &|_| Wanted::Text).record_count()
            }),
            lines,
        )
    }

    /// Number of records of a range; nothing if there is anything odd.
    fn count_tokens(&self, bytes: &[u8]) -> Option<u64> {
        if self.is_unusual(bytes) {
            return None;
        }
        let mut tokens = self.tokens(bytes);
        while tokens.advance_chunk() {
            if tokens.is_odd() {
                return None;
            }
        }
        Some(tokens.record_count())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{CsvOptions, sniff, tokenize::tests::trouble},
        *,
    };
    use crate::format::part_checks::check_parts;

    /// Lines of a table that is mostly good.
    const LINES: [&str; 22] = [
        "1,2024-01-01,town,1.5\n",
        "2,2024-01-02,\"a, b\",0.5\n",
        "3,2024-01-03,\"two\nlines\",1.5\n",
        "4,2024-01-04,\"two\r\nlines\",1.5\r\n",
        "5,2024-01-05,\"a \"\"b\"\"\",1.5\n",
        "6,2024-01-06,town,1.5\r\n",
        "7,2024-01-07,town,1.5\r",
        "\n",
        "\r\n",
        "id,day,town,rain\n",
        "id,day,town,rain\r\n",
        "\u{feff}id,day,town,rain\n",
        "8,2024-01-08,\"open,1.5\n",
        "9,2024-01-09,\"torn\nvalue\" here,1.5\n",
        "10,2024-01-10,\"two\nlines\",1.5,more\n",
        "11,2024-01-11,\"few\nlines\"\n",
        "12;2024-01-12;a;1.5\n",
        "'13','2024-01-13','a','1.5'\n",
        "14\n",
        ",,,\n",
        "Source: own survey of all the towns\n",
        "15,2024-01-15,a,more,1.5\n",
    ];

    fn table(choices: &[usize], dialect: fn(&str) -> String, ending: bool) -> Vec<u8> {
        let good = (0..30).map(|_| LINES[0]);
        let some = choices.iter().map(|choice| LINES[choice % LINES.len()]);
        let body: String = good.chain(some).map(dialect).collect();
        let mut text = dialect("id,day,town,rain\n") + &body;
        if !ending {
            text.truncate(text.trim_end().len());
        }
        text.into_bytes()
    }

    proptest! {
        #[test]
        fn parts_of_trouble_are_those_of_the_whole(
            bytes in trouble(3000), header: bool, range in 1_usize..400, max in prop::sample::select(&[60,
                1 << 20][..]), part in 1_u64..1500,
        ) {
            let options = CsvOptions { has_header: header, delimiter: Some(b','), ..CsvOptions::default() };
            if let Some(source) = sniff(&bytes, true, &options) {
                check_parts(&source, &bytes, range, max, part);
            }
        }

        #[test]
        fn parts_of_damaged_tables_are_those_of_the_whole(
            choices in proptest::collection::vec(0_usize..200, 0..60),
            ending: bool,
            dialect in 0_usize..4,
            range in 1_usize..700,
            part in 1_u64..1500,
        ) {
            // Most choices are the first line.
            let choices: Vec<usize> = choices.into_iter().map(|choice| if choice < 44 { choice } else { 0 }).collect();
            let dialects: [fn(&str) -> String; 4] = [
                str::to_owned,
                |line| line.replace(',', ";"),
                |line| line.replace('"', "\u{1}").replace('\'', "\"").replace('\u{1}', "'"),
                |line| if line.starts_with("id") { line.to_owned() } else { line.replacen("1.5", "1.5,", 1) },
            ];
            let bytes = table(&choices, dialects[dialect], ending);
            let source = sniff(&bytes, true, &CsvOptions::default()).unwrap();
            check_parts(&source, &bytes, range, 1 << 20, part);
        }
    }

    #[test]
    fn values_and_terminators_are_never_cut() {
        let text = "\u{feff}a,b\r\n1,\"x\r\ny\r\n\"\r\n2,\"\"\"\n\"\r\n\r\n3,z";
        let source = sniff(text.as_bytes(), true, &CsvOptions::default()).unwrap();
        let parts = check_parts(&source, text.as_bytes(), 1, 100, 1);
        let facts: Vec<_> =
            parts.iter().map(|part| (part.byte_range().unwrap().start, part.first_row, part.first_line)).collect();
        assert_eq!(facts, [(0, 0, 0), (20, 1, 4), (29, 2, 6), (31, 2, 7)]);
    }

    #[test]
    fn sources_with_spaces_before_quotes_are_read_as_a_whole() {
        let lines = "1, \"x, y\" ,z\n".repeat(100);
        let text = format!("a,b,c\n{lines}");
        let source = sniff(text.as_bytes(), true, &CsvOptions::default()).unwrap();
        let sizes =
            PartSizes { source_bytes: text.len() as u64, part_bytes: 100, range_bytes: 10, max_record_bytes: 100 };
        assert!(source.quotes.spaced);
        assert!(source.parts(Box::new(std::io::empty()), &sizes).unwrap().is_empty());
    }

    #[test]
    fn what_is_too_long_ends_the_cutting() {
        let good = "1,2\n".repeat(1000);
        let text = format!("a,b\n{good}3,\"{}", good.repeat(3));
        let source = sniff(text.as_bytes(), true, &CsvOptions::default()).unwrap();
        let parts = check_parts(&source, text.as_bytes(), 64, 500, 500);
        assert_eq!(parts.len(), 8, "of 32 that there would be");
        assert!(parts[7].byte_range().unwrap().start < 4004);
    }

    #[test]
    fn single_records_on_lines_need_no_second_look() {
        let text = format!("a,b\n{}", "1,\"x\"\n\n".repeat(1000));
        let source = sniff(text.as_bytes(), true, &CsvOptions::default()).unwrap();
        let mut ranges = source.cut_ranges(Box::new(text.as_bytes()), source.data_offset, 1000, 1000).with_counts();
        while let Some((range, counts)) = ranges.next_counted().unwrap() {
            let counts = counts.unwrap();
            let lines = memchr::memchr_iter(LF, range.content_bytes()).count() as u64;
            assert_eq!(
                (counts.intricate, counts.lines, counts.records),
                (false, lines, (lines + u64::from(range.content_bytes()[0] != LF)) / 2)
            );
        }
        assert!(source.facts.columns.is_some());
    }
}
