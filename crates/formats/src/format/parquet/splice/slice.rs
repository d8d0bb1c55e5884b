//! Consecutive rows of a row group as a part of the output.
//!
//! ```text
//! pages of a column   |   0   |   1   |   2   |   3   |
//! slice                       | rows          |            begins and ends with a page, or the column is decoded
//! dictionary          only the entries that the pages of the slice refer to
//! ```
//!
//! Nothing of the other rows comes along: no entry of the dictionary, no bound and no Bloom filter. Everything that a
//! footer would state about the slice is derived from its pages, so the other modules need no rules for slices.

use std::ops::Range;

use ::parquet::{
    basic::Type as Physical,
    errors::ParquetError,
    file::metadata::{ColumnChunkMetaData, LevelHistogram},
    schema::types::ColumnDescriptor,
};

use super::{
    bounds::{Bounded, ComparisonOrder, statistics_of},
    facts::{Facts, Indexes},
    hybrid,
    page::{PageResult, Pages, Refused},
    union::{EntryForm, Union},
};

/// Maximum number of entries of a dictionary of which only some are kept; the header is not trusted with more memory.
const MAX_ENTRIES: u64 = 16 << 20;

/// Restricts the pages of a chunk, and their facts, to the wanted rows. Returns the entries of the dictionary that the
/// pages refer to, in the order of first occurrence, and what a footer states of the slice.
pub(super) fn cut_chunk(
    chunk: &ColumnChunkMetaData,
    rows: &Range<u64>,
    indexes: Indexes<'_>,
    pages: &mut Pages,
    facts: &mut Vec<Facts>,
    buffer: &mut Vec<u8>,
) -> PageResult<(Vec<u32>, ColumnChunkMetaData)> {
    let order = ComparisonOrder::for_column(chunk.column_descr());
    let indexed = indexes.columns.is_some_and(|index| usize::try_from(index.num_pages()) == Ok(pages.data.len()));
    let wanted = pages_of(facts, rows)?;
    *facts = facts.drain(wanted.clone()).collect();
    pages.data = pages.data.drain(wanted).collect();
    for (page, facts) in pages.data.iter().zip(facts.iter_mut()) {
        if !facts.are_known() {
            facts.learn_unless_known(pages, &pages.cut_levels(page, buffer)?);
        }
        if !indexed {
            // Those of the whole chunk would say something about the other rows.
            facts.bounds = None;
        }
    }
    let used = used_entries(pages, buffer)?;
    let stated = slice_metadata(chunk, facts, order).map_err(|_| Refused::Unknown)?;
    Ok((used, stated))
}

/// Returns the numbers of the used entries of a dictionary in a united one, to which they are added; others have none.
/// `None` if there is no more room.
pub(super) fn numbers_of_used(
    union: &mut Union,
    form: EntryForm,
    page: &[u8],
    places: &[u32],
    used: &[u32],
) -> Option<Vec<u32>> {
    let (mut kept, mut kept_places) = (Vec::new(), vec![0]);
    for entry in used {
        let range = places.get(*entry as usize..)?.get(..2)?;
        kept.extend_from_slice(&page[range[0] as usize..range[1] as usize]);
        kept_places.push(u32::try_from(kept.len()).ok()?);
    }
    let found = union.add_entries(form, &kept, &kept_places)?;
    let mut table = vec![0; places.len().saturating_sub(1)];
    for (entry, number) in used.iter().zip(found) {
        table[*entry as usize] = number;
    }
    Some(table)
}

/// Returns the pages that consist of exactly these rows.
fn pages_of(facts: &[Facts], rows: &Range<u64>) -> PageResult<Range<usize>> {
    let mut ends = Vec::with_capacity(facts.len() + 1);
    let mut row = 0;
    ends.push(row);
    for page in facts {
        row += page.rows.ok_or(Refused::Unknown)?;
        ends.push(row);
    }
    // Pages without rows of their own belong to those before them.
    let start = ends.binary_search(&rows.start).map_err(|_| Refused::Unknown)?;
    let end = ends.binary_search(&rows.end).map_err(|_| Refused::Unknown)?;
    let unique = |at: usize| ends.get(at.wrapping_sub(1)) != Some(&ends[at]) && ends.get(at + 1) != Some(&ends[at]);
    if unique(start) && unique(end) { Ok(start..end) } else { Err(Refused::Unknown) }
}

/// Returns the entries of the dictionary that pages refer to, in the order of first occurrence.
fn used_entries(pages: &Pages, buffer: &mut Vec<u8>) -> PageResult<Vec<u32>> {
    let entries = pages.dictionary.as_ref().map_or(0, |page| page.header.values);
    if entries > MAX_ENTRIES {
        return Err(Refused::Unknown);
    }
    let mut seen = vec![false; usize::try_from(entries).map_err(|_| Refused::Unknown)?];
    let (mut out, mut beyond) = (Vec::new(), false);
    for page in pages.data.iter().filter(|page| Pages::is_indices(page)) {
        let cut = pages.cut_page(page, buffer)?;
        let whole = hybrid::read(cut.packed_indices()?, |indices| {
            for index in indices {
                match seen.get_mut(*index as usize) {
                    Some(seen) if *seen => {}
                    Some(seen) => {
                        *seen = true;
                        out.push(*index);
                    }
                    None => beyond = true,
                }
            }
        });
        if beyond || !whole {
            return Err(Refused::from("expected indices into the dictionary, found others"));
        }
    }
    Ok(out)
}

/// Returns what a footer would state about some pages of a chunk.
fn slice_metadata(
    chunk: &ColumnChunkMetaData,
    facts: &[Facts],
    order: ComparisonOrder,
) -> Result<ColumnChunkMetaData, ParquetError> {
    let column = chunk.column_descr();
    let values: u64 = facts.iter().map(|page| page.values).sum();
    let nulls = facts.iter().map(|page| page.nulls).sum::<Option<u64>>();
    let nans = facts.iter().map(|page| page.nans.and_then(|nans| u64::try_from(nans).ok())).sum::<Option<u64>>();
    let texts = facts.iter().map(|page| page.text_bytes).sum::<Option<i64>>();
    let levels = |which: usize| {
        let mut pages = facts.iter().map(|page| page.histograms[which].as_ref());
        let first = pages.next()??.clone();
        let sum = |all: Vec<i64>, more: &Vec<i64>| all.iter().zip(more).map(|(one, other)| one + other).collect();
        pages.try_fold(first, |all, more| more.map(|more| sum(all, more))).map(LevelHistogram::from)
    };
    chunk
        .clone()
        .into_builder()
        .set_num_values(i64::try_from(values)?)
        .set_unencoded_byte_array_data_bytes(texts)
        .set_repetition_level_histogram(levels(0))
        .set_definition_level_histogram(levels(1))
        .set_statistics(statistics_of(column, united_bounds(column, facts, order), nulls, nans))
        .set_bloom_filter_offset(None)
        .build()
}

/// Returns the bounds of all pages. Those of texts may be prefixes.
fn united_bounds(column: &ColumnDescriptor, facts: &[Facts], order: ComparisonOrder) -> Bounded {
    if facts.iter().all(Facts::is_null) {
        return Bounded::Empty;
    }
    let exact = !matches!(column.physical_type(), Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY);
    let mut whole: Option<(Vec<u8>, Vec<u8>)> = None;
    for page in facts.iter().filter(|page| !page.is_null()) {
        let Some((least, greatest)) = &page.bounds else { return Bounded::Unknown };
        if order == ComparisonOrder::Undefined || order.is_nan(least) || order.is_nan(greatest) {
            return Bounded::Unknown;
        }
        whole = Some(match whole {
            None => (least.clone(), greatest.clone()),
            Some((l, g)) => (
                if order.compare(least, &l).is_lt() { least.clone() } else { l },
                if order.compare(greatest, &g).is_gt() { greatest.clone() } else { g },
            ),
        });
    }
    whole.map_or(Bounded::Unknown, |(least, greatest)| Bounded::Within((least, exact), (greatest, exact)))
}
