//! Compares the parts of a stream with the whole of it, for tests of formats that can be entered in the middle.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{io::Cursor, sync::Arc};

use arrow::datatypes::{DataType, Field, Fields};

use super::{Parsed, RecordReader};
use crate::{
    error::Error,
    record::{PartSizes, SourcePart, SourceRange},
    schema::schema_of,
};

/// A range as its place and its bytes, or an error as its message and its place.
type Found = Result<(u64, String), (String, Option<u64>)>;

fn found(range: Result<SourceRange, Error>) -> Found {
    range
        .map(|range| (range.offset, range.content_bytes().escape_ascii().to_string()))
        .map_err(|error| (error.message().to_owned(), error.place().byte))
}

/// Numbers of records and lines of a range, as it is parsed with any types.
fn counted(reader: &dyn RecordReader, range: &SourceRange) -> (u64, u64) {
    let inferred = reader.infer(range);
    let text: Fields = inferred.iter().map(|field| Arc::new(Field::new(field.name(), DataType::Utf8, true))).collect();
    let counts: Vec<(u64, u64)> = [inferred, text]
        .into_iter()
        .filter_map(|fields| match reader.parse(range, &schema_of(&fields)).unwrap() {
            Parsed::Block(block) => Some((block.records_in(), block.lines)),
            Parsed::Mismatch(_) => None,
        })
        .collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    counts[0]
}

/// Checks that the parts of a stream have the ranges of the whole, and the right numbers of records and lines before
/// them. Returns the parts.
pub(crate) fn check_parts(
    reader: &dyn RecordReader,
    bytes: &[u8],
    range_bytes: usize,
    max_record_bytes: usize,
    part_bytes: u64,
) -> Vec<SourcePart> {
    let source_bytes = bytes.len() as u64;
    let sizes = PartSizes { source_bytes, part_bytes, range_bytes, max_record_bytes };
    let whole: Vec<_> = reader.ranges(Box::new(Cursor::new(bytes)), range_bytes, max_record_bytes).collect();
    let parts = reader.parts(Box::new(Cursor::new(bytes)), &sizes).unwrap();
    assert!(!parts.is_empty() && parts.len() as u64 <= sizes.part_count());
    assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), source_bytes);
    let (mut end, mut ranges) = (0, Vec::new());
    for (number, part) in parts.iter().enumerate() {
        assert_eq!((part.is_first(), part.is_last), (number == 0, number + 1 == parts.len()));
        let range = part.byte_range().unwrap();
        assert_eq!(range.start, end);
        end = range.end;
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        let text = serde_json::to_string(part).unwrap();
        assert_eq!(serde_json::from_str::<SourcePart>(&text).unwrap(), *part);
        let input = Box::new(Cursor::new(&bytes[range]));
        ranges.extend(reader.ranges_of(part, input, range_bytes, max_record_bytes).map(found));
    }
    assert_eq!(end, source_bytes);
    let head = whole.first().and_then(|range| range.as_ref().ok()).map_or(0, |range| range.offset);
    let head = &bytes[..usize::try_from(head).unwrap()];
    // What precedes the first record has lines if records have.
    let has_lines = whole.iter().flatten().any(|range| counted(reader, range).1 > 0);
    let (mut rows, mut lines) = (0, if has_lines { memchr::memchr_iter(b'\n', head).count() as u64 } else { 0 });
    for range in whole.iter().flatten() {
        if let Some(part) = parts[1..].iter().find(|part| part.byte_range().unwrap().start == range.offset) {
            assert_eq!((part.first_row, part.first_line), (rows, lines), "byte {}", range.offset);
        }
        let (more_rows, more_lines) = counted(reader, range);
        (rows, lines) = (rows + more_rows, lines + more_lines);
    }
    let whole: Vec<Found> = whole.into_iter().map(found).collect();
    for (found, expected) in ranges.iter().zip(&whole) {
        assert_eq!(found, expected);
    }
    assert_eq!(ranges.len(), whole.len());
    parts
}
