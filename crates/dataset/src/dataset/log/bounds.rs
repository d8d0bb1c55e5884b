//! Bounds of the numbers that a log states: a dataset may be somebody else's, and a number that no dataset reaches
//! would become a size of memory, a loop without end, or a sum that overflows.
//!
//! They are checked where entries and lists are decoded, once, so that what reads them may add and allocate.

use crate::{
    dataset::{index::SegmentRef, log::entry::Entry},
    error::{Error, Result},
};

/// Numbers of records, bytes and rows are below it: sums of as many as there are shards fit into 64 bits.
pub(in crate::dataset) const TOO_MANY: u64 = 1 << 48;

/// Most buckets of a segment of the id index.
pub(in crate::dataset) const MAX_BUCKETS: u64 = 1 << 16;

/// Returns a number.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if no dataset reaches it.
pub(in crate::dataset) fn check_number(what: &str, number: u64) -> Result<u64> {
    if number < TOO_MANY {
        return Ok(number);
    }
    Err(Error::integrity(format!("expected {what} below {TOO_MANY}, found {number}")))
}

/// Fails if a number of an entry is none that a dataset reaches, or a root or a split is missing.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) that names the number.
pub(in crate::dataset) fn check_entry(entry: &Entry) -> Result<()> {
    let (totals, counts) = (&entry.totals, &entry.counts);
    let numbers = [
        ("a version", entry.version.0),
        ("the oldest version", entry.readable_from.0),
        ("a next record", entry.next_record),
        ("shards", totals.shards),
        ("records", totals.records),
        ("bytes of shards", totals.bytes),
        ("records in", counts.records_in),
        ("records out", counts.records_out),
        ("rejected records", counts.records_rejected),
        ("erased records", counts.records_erased),
        ("deduplicated records", counts.records_deduplicated),
        ("filtered records", counts.records_filtered),
        ("removed records", counts.records_removed),
        ("restored records", counts.records_restored),
    ];
    numbers.into_iter().try_for_each(|(what, number)| check_number(what, number).map(drop))?;
    let rows = entry.own_lists().map(|list| list.rows);
    let mut rows = rows.chain(entry.duplicates.iter().map(|table| table.rows));
    rows.try_for_each(|rows| check_number("rows of a list", rows).map(drop))?;
    let (oldest, newest) = (entry.readable_from, entry.version);
    if oldest > newest {
        return Err(Error::integrity(format!("expected an oldest version of at most {newest}, found {oldest}")));
    }
    for place in &entry.places {
        [place.first, place.last, place.rows, place.bytes, place.base.unwrap_or_default()]
            .into_iter()
            .try_for_each(|number| check_number("numbers of a table of places", number).map(drop))?;
    }
    if entry.root.is_none() || entry.shards.iter().any(|list| list.root.is_none()) {
        return Err(Error::integrity("expected a root of the version and of each list of shards, found none"));
    }
    if entry.settings.split.is_some() && entry.segments.iter().any(|segment| segment.split.is_none()) {
        return Err(Error::integrity("expected segments of the id index that state their split, found one without"));
    }
    entry.segments.iter().try_for_each(check_segment)
}

/// Fails if a segment cannot be one.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity).
pub(in crate::dataset) fn check_segment(segment: &SegmentRef) -> Result<()> {
    check_number("ids of a segment", segment.pairs)?;
    check_number("bytes of a segment", segment.bytes)?;
    check_number("the first record of a segment", segment.record_base)?;
    let has_seals = segment.seals.len() as u64 == segment.buckets;
    if segment.root.is_some() != segment.hashes.has_proofs() {
        return Err(Error::integrity("expected a root of a segment where hashes have eight bytes, and only there")
            .at_location(segment.path.clone()));
    }
    if segment.buckets.is_power_of_two() && segment.buckets <= MAX_BUCKETS && has_seals {
        return Ok(());
    }
    Err(Error::integrity(format!(
        "expected a segment of the id index of a power of two of at most {MAX_BUCKETS} buckets with a seal each, \
         found {} buckets and {} seals",
        segment.buckets,
        segment.seals.len()
    ))
    .at_location(segment.path.clone()))
}
