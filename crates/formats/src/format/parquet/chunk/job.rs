//! Writes a column as planned: cuts it into pages, and gives each page its levels, values and bounds.

use std::ops::Range;

use ::parquet::{basic::Encoding, schema::types::ColumnDescPtr};

use super::{
    bits::{put_hybrid, width_of},
    column::{ChunkColumn, Word},
    compress::Compressor,
    dictionary::Dictionary,
    levels::{LevelLayout, PAGE_BYTES, PAGE_ROWS, PageRange, Slots},
    page::{Chunk, PageFacts, PageWriter, Repeats},
    plan::Plan,
    scratch::Scratch,
    stats::Bounds,
    values::{put_bits, put_differences, put_range, put_texts, put_texts_after_lengths, put_texts_without_prefixes},
};
use crate::{codec::Codec, error::Result};

/// Options of a chunk.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Options {
    /// Compression of its pages.
    pub(in super::super) codec: Codec,
    /// Whether values are examined, for dictionaries, bounds and better encodings. Contents of files are not.
    pub(in super::super) inspects_values: bool,
    /// Whether lists and structs are encoded here.
    pub(in super::super) nested: bool,
    /// Whether [`Noted`](super::Noted) is returned.
    pub(in super::super) is_noted: bool,
}

/// Appends indices into a dictionary of that many entries.
pub(super) fn put_indices(entries: usize, indices: &[u32], body: &mut Vec<u8>) {
    let width = width_of(entries.saturating_sub(1) as u64);
    body.push(width);
    put_hybrid(body, indices, width);
}

/// A finished chunk, and the compressor and memory that it used.
pub(super) type Finished = (Chunk, Compressor, Vec<u8>);

/// A column with its plan.
pub(super) struct Job<'a> {
    pub(super) column: &'a ChunkColumn<'a>,
    pub(super) plan: Plan,
    pub(super) descr: &'a ColumnDescPtr,
    pub(super) options: Options,
}

impl Job<'_> {
    fn page_writer(
        &self,
        compressor: Compressor,
        scratch: &mut Scratch,
        with_dictionary: bool,
    ) -> (PageWriter, Encoding) {
        let encoding = if with_dictionary { Encoding::RLE_DICTIONARY } else { self.plan.encoding };
        let (packed, order) = (std::mem::take(&mut scratch.packed), self.column.order);
        (PageWriter::new(self.descr, compressor, packed, encoding, order, self.options.inspects_values), encoding)
    }

    /// Writes all pages; `put` appends the values of a page.
    fn write(
        &self,
        pages: Vec<PageRange>,
        mut writer: PageWriter,
        scratch: &mut Scratch,
        mut facts: impl FnMut(Range<usize>) -> (Option<Bounds>, Option<u64>),
        mut put: impl FnMut(Range<usize>, &mut Vec<u8>),
    ) -> Result<Finished> {
        let count = pages.len();
        for (number, page) in pages.into_iter().enumerate() {
            self.column.put_levels(&page, &mut scratch.body);
            put(page.values.clone(), &mut scratch.body);
            let (bounds, text_bytes) = facts(page.values.clone());
            writer.write_data(PageFacts::for_page(self.column.layout, &page, bounds, text_bytes), &scratch.body)?;
            if number == 0 {
                writer.expect_pages(count - 1);
            }
        }
        writer.finish()
    }

    pub(super) fn write_words<W: Word>(
        &self,
        values: &[W],
        compressor: Compressor,
        scratch: &mut Scratch,
    ) -> Result<Finished> {
        let dictionary = match self.plan.entries {
            0 => None,
            max_entries => Dictionary::of_words(values, max_entries, &mut scratch.indices),
        };
        let (mut writer, encoding) = self.page_writer(compressor, scratch, dictionary.is_some());
        if let Some(dictionary) = &dictionary {
            let mut entries = Vec::new();
            W::put(&dictionary.entries, &mut entries);
            writer.write_dictionary(dictionary.entries.len(), &entries)?;
        }
        let put = |range: Range<usize>, body: &mut Vec<u8>| match (&dictionary, encoding) {
            (Some(dictionary), _) => put_indices(dictionary.entries.len(), &dictionary.indices[range], body),
            (None, Encoding::DELTA_BINARY_PACKED) => put_differences(&values[range], body),
            (None, Encoding::BYTE_STREAM_SPLIT) => put_range(&values[range], body),
            (None, _) => W::put(&values[range], body),
        };
        let facts = |range: Range<usize>| (self.column.order.of_words(&values[range]), None);
        let pages = self.column.cut_pages(self.column.layout.cut_words(W::WIDTH));
        let finished = self.write(pages, writer, scratch, facts, put);
        scratch.indices = dictionary.map_or_else(Vec::new, |dictionary| dictionary.indices);
        finished
    }

    pub(super) fn write_bits(
        &self,
        values: &arrow::buffer::BooleanBuffer,
        compressor: Compressor,
        scratch: &mut Scratch,
    ) -> Result<Finished> {
        let (writer, _) = self.page_writer(compressor, scratch, false);
        let slice = |range: Range<usize>| values.slice(range.start, range.len());
        let facts = |range: Range<usize>| {
            let set = slice(range.clone()).count_set_bits();
            let (least, greatest) = (u64::from(set == range.len()), u64::from(set > 0));
            ((!range.is_empty()).then_some(Bounds::Keys { least, greatest, nans: 0, only_nans: false }), None)
        };
        let put = |range: Range<usize>, body: &mut Vec<u8>| put_bits(&slice(range), body);
        let pages = self.column.cut_pages(self.column.layout.cut_words(1));
        self.write(pages, writer, scratch, facts, put)
    }

    pub(super) fn write_texts(
        &self,
        values: &[&[u8]],
        compressor: Compressor,
        scratch: &mut Scratch,
    ) -> Result<Finished> {
        let dictionary = match self.plan.entries {
            0 => None,
            max_entries => Dictionary::from_values(values, max_entries, &mut scratch.indices),
        };
        let (writer, encoding) = self.page_writer(compressor, scratch, dictionary.is_some());
        let mut writer = if self.options.is_noted { writer.with_sharing()? } else { writer };
        if let Some(dictionary) = &dictionary {
            let mut entries = Vec::new();
            put_texts(&dictionary.entries, &mut entries);
            writer.write_dictionary(dictionary.entries.len(), &entries)?;
        }
        let put = |range: Range<usize>, body: &mut Vec<u8>| match (&dictionary, encoding) {
            (Some(dictionary), _) => put_indices(dictionary.entries.len(), &dictionary.indices[range], body),
            (None, Encoding::DELTA_LENGTH_BYTE_ARRAY) => put_texts_after_lengths(&values[range], body),
            (None, Encoding::DELTA_BYTE_ARRAY) => put_texts_without_prefixes(&values[range], body),
            (None, _) => put_texts(&values[range], body),
        };
        let pages = self.column.cut_pages(self.column.cut_texts(values, dictionary.is_some()));
        let mut seen = vec![false; dictionary.as_ref().map_or(0, |dictionary| dictionary.entries.len())];
        let facts = |range: Range<usize>| {
            let bytes = values[range.clone()].iter().map(|value| value.len() as u64).sum();
            let bounds = match &dictionary {
                _ if !self.options.inspects_values => None,
                Some(dictionary) if dictionary.entries.len() <= PAGE_ROWS * 4 => {
                    Bounds::of_bytes(dictionary.occurring_entries(range, &mut seen))
                }
                _ => Bounds::of_bytes(values[range].iter().copied()),
            };
            (bounds, Some(bytes))
        };
        let mut finished = self.write(pages, writer, scratch, facts, put)?;
        if let Some(dictionary) = &dictionary
            && self.options.is_noted
            && matches!(self.column.layout, LevelLayout { slots: Slots::One(_), levels: None, .. })
        {
            let repeats = Repeats::new(&dictionary.indices, dictionary.entries.len(), self.column);
            finished.0.noted.get_or_insert_default().repeats = Some(repeats);
        }
        scratch.indices = dictionary.map_or_else(Vec::new, |dictionary| dictionary.indices);
        Ok(finished)
    }
}

impl ChunkColumn<'_> {
    /// Returns the pages for some ranges of rows.
    fn cut_pages(&self, rows: impl IntoIterator<Item = Range<usize>>) -> Vec<PageRange> {
        let mut value = 0;
        let page = |rows: Range<usize>| {
            let slots = self.layout.slots_of(rows.clone());
            let first = value;
            value += self.values_in(&slots);
            PageRange { rows, slots, values: first..value }
        };
        rows.into_iter().map(page).collect()
    }

    /// Returns how many slots have a value.
    fn values_in(&self, slots: &Range<usize>) -> usize {
        match &self.validity {
            Some(validity) if slots.len() == 1 => usize::from(validity.value(slots.start)),
            Some(validity) => validity.slice(slots.start, slots.len()).count_set_bits(),
            None => slots.len(),
        }
    }

    /// Cuts the rows of texts into pages. If there is a dictionary, or all texts are short, rows that are not lists are
    /// counted instead of measured.
    fn cut_texts(&self, values: &[&[u8]], dictionary: bool) -> Vec<Range<usize>> {
        let longest = || values.iter().map(|value| value.len()).max().unwrap_or_default();
        if !self.layout.repeats && (dictionary || (longest() + 4).saturating_mul(PAGE_ROWS) <= PAGE_BYTES) {
            return self.layout.cut_words(0);
        }
        let mut rest = values;
        self.layout.cut_by_bytes(|slots| {
            let (row, after) = rest.split_at(self.values_in(&slots).min(rest.len()));
            rest = after;
            row.iter().map(|value| value.len() + 4).sum()
        })
    }

    /// Appends the levels at the start of a page's body.
    fn put_levels(&self, page: &PageRange, body: &mut Vec<u8>) {
        let validity = self.validity.as_ref().map(|validity| validity.slice(page.slots.start, page.slots.len()));
        self.layout.put_page_levels(&page.rows, validity.as_ref(), page.values.len(), body);
    }
}

impl Repeats {
    /// Returns the repeats from the indices of the values; entries are numbered in the order of their first occurrence.
    fn new(indices: &[u32], entries: usize, column: &ChunkColumn<'_>) -> Self {
        let keys = match &column.validity {
            None => indices.to_vec(),
            Some(validity) => {
                let mut keys = vec![u32::MAX; column.layout.slot_count()];
                validity.set_indices().zip(indices).for_each(|(row, index)| keys[row] = *index);
                keys
            }
        };
        let mut firsts = Vec::with_capacity(entries);
        for (row, key) in (0_u32..).zip(&keys) {
            if *key as usize == firsts.len() {
                firsts.push(row);
            }
        }
        Self { keys, firsts }
    }
}
