//! Facts about a page for the page indexes, wherever they are available without decoding its values.
//!
//! | fact | from |
//! |---|---|
//! | rows | the number of values, if the column is not nested; the offset index; the header; the levels |
//! | nulls | the column index; the header; the footer; the levels |
//! | bounds | the column index; those of the whole chunk, which bound each of its pages too |

use ::parquet::{
    data_type::AsBytes,
    file::{
        metadata::ColumnChunkMetaData,
        page_index::{column_index::ColumnIndexMetaData, offset_index::OffsetIndexMetaData},
    },
};

use super::{
    bounds::{Bounded, ComparisonOrder, bounds_of},
    page::{CutPage, Page, PageResult, Pages},
};
use crate::format::parquet::thrift::PageKind;

/// Known facts about a page.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Rows that begin in it; unknown if its first row begins in the previous page.
    pub(super) rows: Option<u64>,
    /// Number of nulls, and of all values.
    pub(super) nulls: Option<u64>,
    pub(super) values: u64,
    /// Least and greatest value.
    pub(super) bounds: Option<(Vec<u8>, Vec<u8>)>,
    /// Number of NaNs.
    pub(super) nans: Option<i64>,
    /// Bytes of its texts.
    pub(super) text_bytes: Option<i64>,
    /// Histograms of the repetition levels and of the definition levels.
    pub(super) histograms: [Option<Vec<i64>>; 2],
}

impl Facts {
    /// Adds facts from the levels of the page.
    pub(super) fn learn_levels(&mut self, cut: &CutPage<'_>) {
        let [repetition, definition] = &cut.histograms;
        self.rows = cut.begins_row.then(|| repetition.first().map_or(0, |rows| rows.unsigned_abs()));
        self.nulls = Some(self.values - cut.present as u64);
        if repetition.len() > 1 {
            self.histograms[0] = Some(repetition.clone());
        }
        if definition.len() > 1 {
            self.histograms[1] = Some(definition.clone());
        }
    }

    /// Adds facts from the levels of the page that footers and indexes lack.
    pub(super) fn learn_unless_known(&mut self, pages: &Pages, cut: &CutPage<'_>) {
        if !self.are_known() {
            self.learn_levels(cut);
            self.count_levels(pages);
        }
    }

    /// Returns whether all facts that the page indexes need are known.
    pub(super) fn are_known(&self) -> bool {
        self.rows.is_some() && self.nulls.is_some()
    }

    /// If values are nullable but not nested, their numbers give the histogram of levels.
    fn count_levels(&mut self, pages: &Pages) {
        if let (0, 1, Some(nulls)) = (pages.repetition, pages.definition, self.nulls) {
            let counts = [nulls, self.values.saturating_sub(nulls)];
            self.histograms[1] = Some(counts.iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).collect());
        }
    }

    /// Combines the facts of two pages that are joined; `other` is the second one.
    pub(super) fn join_next(&mut self, other: Self, order: ComparisonOrder) {
        let add = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| one + other);
        let sum = |one: Option<i64>, other: Option<i64>| one.zip(other).map(|(one, other)| one + other);
        let (one_null, other_null) = (self.is_null(), other.is_null());
        self.bounds = match (self.bounds.take(), other.bounds) {
            (bounds, _) if other_null => bounds,
            (_, bounds) if one_null => bounds,
            (Some((least, greatest)), Some((l, g))) => Some((
                if order.compare(&l, &least).is_lt() { l } else { least },
                if order.compare(&g, &greatest).is_gt() { g } else { greatest },
            )),
            _ => None,
        };
        self.rows = add(self.rows, other.rows);
        self.nulls = add(self.nulls, other.nulls);
        self.values += other.values;
        self.nans = sum(self.nans, other.nans);
        self.text_bytes = sum(self.text_bytes, other.text_bytes);
        for (one, other) in self.histograms.iter_mut().zip(other.histograms) {
            *one = one.take().zip(other).and_then(|(one, other)| {
                (one.len() == other.len()).then(|| one.iter().zip(&other).map(|(one, other)| one + other).collect())
            });
        }
    }

    /// Returns whether all its values are null.
    pub(super) fn is_null(&self) -> bool {
        self.nulls == Some(self.values)
    }
}

/// The page indexes of a chunk, if it has them and they have as many pages as the chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Indexes<'a> {
    pub(super) columns: Option<&'a ColumnIndexMetaData>,
    pub(super) offsets: Option<&'a OffsetIndexMetaData>,
}

/// Returns the facts of each data page of a chunk of `rows` rows.
pub(super) fn facts_of(
    pages: &Pages,
    chunk: &ColumnChunkMetaData,
    indexes: Indexes<'_>,
    order: ComparisonOrder,
    rows: u64,
    buffer: &mut Vec<u8>,
) -> PageResult<Vec<Facts>> {
    let count = pages.data.len();
    let columns = indexes.columns.filter(|index| usize::try_from(index.num_pages()) == Ok(count));
    let offsets = indexes.offsets.filter(|index| index.page_locations().len() == count);
    let whole = bounds_of(chunk, order);
    let stated = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
    let all = u64::try_from(chunk.num_values()).unwrap_or_default();
    let mut found = Vec::with_capacity(count);
    for (number, page) in pages.data.iter().enumerate() {
        let mut facts = stated_facts(pages, page);
        if let Some(index) = columns {
            from_index(&mut facts, index, number, pages, order);
        } else if let Bounded::Within(least, greatest) = &whole {
            facts.bounds = Some((least.0.clone(), greatest.0.clone()));
        }
        if facts.nulls.is_none() {
            facts.nulls = match stated {
                Some(0) => Some(0),
                Some(nulls) if nulls == all => Some(facts.values),
                Some(nulls) if count == 1 && nulls <= all => Some(nulls),
                _ => None,
            };
        }
        if let (None, Some(index)) = (facts.rows, offsets) {
            facts.rows = rows_between(index, number, rows);
        }
        facts.text_bytes = offsets.and_then(|index| index.unencoded_byte_array_data_bytes()?.get(number).copied());
        // A page that is rewritten is decompressed anyway, and yields its facts then.
        if facts.rows.is_none() || (facts.nulls.is_none() && (pages.repetition > 0 || !Pages::is_indices(page))) {
            facts.learn_levels(&pages.cut_levels(page, buffer)?);
        }
        facts.count_levels(pages);
        found.push(facts);
    }
    let counted = found.iter().map(|page| page.rows).sum::<Option<u64>>();
    if pages.repetition > 0 && counted.is_some_and(|counted| counted != rows) {
        // Some writers store the number of values as the number of rows in headers of version 2.
        for (page, facts) in pages.data.iter().zip(&mut found) {
            facts.learn_levels(&pages.cut_page(page, buffer)?);
        }
    }
    Ok(found)
}

/// Returns the facts stated by the header and the schema.
fn stated_facts(pages: &Pages, page: &Page) -> Facts {
    let mut facts = Facts { values: page.header.values, ..Facts::default() };
    if pages.repetition == 0 {
        facts.rows = Some(facts.values);
    }
    if pages.definition == 0 {
        facts.nulls = Some(0);
    }
    if let PageKind::DataV2 { nulls, rows, .. } = page.header.kind {
        (facts.rows, facts.nulls) = (Some(rows), Some(nulls));
    }
    facts
}

fn from_index(facts: &mut Facts, index: &ColumnIndexMetaData, number: usize, pages: &Pages, order: ComparisonOrder) {
    if let Some(nulls) = index.null_count(number).and_then(|nulls| u64::try_from(nulls).ok()) {
        facts.nulls = Some(nulls).filter(|nulls| *nulls <= facts.values);
    }
    facts.nans = index.nan_count(number);
    let levels = |counts: Option<&[i64]>, most: i16| counts.filter(|_| most > 0).map(<[i64]>::to_vec);
    facts.histograms = [
        levels(index.repetition_level_histogram(number), pages.repetition),
        levels(index.definition_level_histogram(number), pages.definition),
    ];
    if !index.is_null_page(number) {
        facts.bounds = bounds_at(index, number);
        if let Some((least, greatest)) = &mut facts.bounds {
            order.widen_zeros(least, greatest);
        }
    }
}

pub(super) fn bounds_at(index: &ColumnIndexMetaData, number: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    use ColumnIndexMetaData::{BOOLEAN, BYTE_ARRAY, DOUBLE, FIXED_LEN_BYTE_ARRAY, FLOAT, INT32, INT64, INT96};
    macro_rules! of {
        ($index:expr) => {{
            let (least, greatest) = ($index.min_value(number)?, $index.max_value(number)?);
            Some((least.as_bytes().to_vec(), greatest.as_bytes().to_vec()))
        }};
    }
    match index {
        BOOLEAN(index) => of!(index),
        INT32(index) => of!(index),
        INT64(index) => of!(index),
        INT96(index) => of!(index),
        FLOAT(index) => of!(index),
        DOUBLE(index) => of!(index),
        BYTE_ARRAY(index) | FIXED_LEN_BYTE_ARRAY(index) => of!(index),
    }
}

/// Returns the number of rows between the starts of a page and of the next one.
fn rows_between(index: &OffsetIndexMetaData, number: usize, rows: u64) -> Option<u64> {
    let first = |page: usize| index.page_locations().get(page).map(|place| place.first_row_index);
    let begin = u64::try_from(first(number)?).ok()?;
    let end = first(number + 1).map_or(Some(rows), |row| u64::try_from(row).ok())?;
    end.checked_sub(begin)
}
