//! Encodes a column chunk, in the way that suits its values.
//!
//! ```text
//! lists --- nested ----> arrays without parts, and where their values stand in the rows (levels)
//! arrays --- column ---> values without nulls, and where the nulls are
//! sample of them ------> Plan: which encoding makes the fewest bytes, after compression
//! pages  --- bits / values / dictionary ---> compress ---> page
//! ```
//!
//! A dictionary is worth it when its entries and the packed indices take less than the values themselves. Whether they
//! will is foreseen from a sample, so that no dictionary is built only to be given up. Where there is none, the other
//! encodings are tried on the sample: compressed packed differences, byte streams, texts without their prefixes. Only
//! encodings that pyarrow, DuckDB, Polars and Spark read are among them.
//!
//! One chunk has one encoding, all decisions are made from the values alone, and lists within lists and unusual types are
//! left to the writer of the parquet crate.

mod bits;
mod coded;
mod column;
mod compress;
mod dictionary;
mod levels;
mod nested;
mod page;
mod scratch;
mod stats;
mod values;

use std::ops::Range;

use ::parquet::{basic::Encoding, schema::types::ColumnDescPtr};
use arrow::{
    array::{Array, ArrayRef},
    datatypes::Field,
};

pub(super) use self::{
    bits::{GROUP, least_run, put_packed, put_run, put_varint, unpack},
    compress::{Compressor, name_of, put_zstd_frame},
    dictionary::{ends, expected_entries},
    page::Chunk,
};
pub(crate) use self::{
    bits::{put_behind_length, put_even, put_hybrid, put_levels, put_same_levels, width_of},
    page::put_header,
    values::{put_differences, put_texts, put_texts_after_lengths, put_texts_without_prefixes, shared_prefix},
};
use self::{
    column::{Column, Values, Word},
    dictionary::{Dictionary, Entry},
    levels::{Layout, Page, Slots},
    nested::Leaf,
    page::{PageFacts, PageWriter},
    scratch::Scratch,
    stats::{Bounds, Order},
    values::{put_bits, put_split},
};
use crate::{
    codec::Codec,
    error::{Error, Result},
    record::coded::{is_coded, plain_column},
};

/// Bytes after which a data page is closed.
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// Rows after which a data page is closed.
pub(super) const PAGE_ROWS: usize = 20_000;

/// Values looked at before the encoding is chosen: so many stretches of so many neighbours.
const STRETCHES: usize = 16;
const STRETCH: usize = 1024;

/// Bytes of text among them, roughly.
const SAMPLE_BYTES: usize = 512 << 10;

/// A dictionary must be this much smaller than anything else: readers hold it in memory.
const DICTIONARY_GAIN: f64 = 0.95;

/// Encodings that are slower to read, and those whose values must be put together again, have to be this much smaller.
const SLOWER_GAIN: f64 = 0.8;

/// The others only have to be smaller, but not by chance: packed differences need no search for matches.
const FASTER_GAIN: f64 = 0.99;

/// A dictionary so small against the plain values leaves nothing to try.
const CLEAR_GAIN: f64 = 0.25;

/// Bytes of the entries of a dictionary at most.
const DICTIONARY_BYTES: usize = 4 << 20;

/// How a chunk is to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// Compression of its pages.
    pub(super) codec: Codec,
    /// Whether values are looked at: for dictionaries, bounds and better encodings. Contents of files are not.
    pub(super) looks: bool,
    /// Whether lists and structs are taken.
    pub(super) parts: bool,
    /// Whether it is told which texts are the same.
    pub(super) tells_repeats: bool,
}

/// Which values of a column are the same, as its dictionary has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeats {
    /// For each row the number of its value; of a null `u32::MAX`.
    pub keys: Vec<u32>,
    /// For each number the row where it occurs first.
    pub firsts: Vec<u32>,
}

impl Repeats {
    /// By the numbers of the values, which count up as values first occur.
    fn new(indices: &[u32], entries: usize, column: &Column<'_>) -> Self {
        let keys = match &column.validity {
            None => indices.to_vec(),
            Some(validity) => {
                let mut keys = vec![u32::MAX; column.layout.all()];
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

/// Encodes the arrays, one behind the other, to a chunk for each of the columns that they are; gives back arrays of types
/// that are none of this module's. `looks` says of a column whether its values are looked at.
///
/// # Errors
/// When the level of the codec is out of range, or a value or row is too large for a page.
pub(super) fn encode(
    field: &Field,
    columns: &[ColumnDescPtr],
    mut arrays: Vec<ArrayRef>,
    options: Options,
    looks: impl Fn(&ColumnDescPtr) -> bool,
) -> Result<Result<Vec<Chunk>, Vec<ArrayRef>>> {
    let plain = |arrays: Vec<ArrayRef>| arrays.iter().map(plain_column).collect::<Result<Vec<_>>>();
    let coded = arrays.iter().filter(|array| is_coded(array.data_type())).count();
    if coded > 0 && coded < arrays.len() {
        arrays = plain(arrays)?;
    }
    let mut leaves = leaves_of(field, columns, &arrays, options);
    if leaves.is_none() && coded > 0 {
        arrays = plain(arrays)?;
        leaves = leaves_of(field, columns, &arrays, options);
    }
    let Some(leaves) = leaves else { return Ok(Err(arrays)) };
    // Each array is dropped as soon as it is done with.
    drop(arrays);
    let mut scratch = Scratch::take();
    let encode = |(leaf, column): (Leaf, &ColumnDescPtr)| {
        encode_leaf(&mut scratch, column, leaf, Options { looks: options.looks && looks(column), ..options })
    };
    let chunks = leaves.into_iter().zip(columns).map(encode).collect::<Result<Vec<_>>>();
    scratch.keep();
    chunks.map(Ok)
}

/// The columns of a field, if they are such as are encoded here.
fn leaves_of(field: &Field, columns: &[ColumnDescPtr], arrays: &[ArrayRef], options: Options) -> Option<Vec<Leaf>> {
    if arrays.is_empty() || columns.is_empty() {
        return None;
    }
    let leaves = match columns {
        [column] if !field.data_type().is_nested() && column.max_rep_level() == 0 && column.max_def_level() <= 1 => {
            let rows = arrays.iter().map(|array| array.len()).sum();
            vec![Leaf { layout: Layout::flat(rows, column.max_def_level() == 1), arrays: arrays.to_vec() }]
        }
        _ if options.parts => nested::leaves(field, arrays)?,
        _ => return None,
    };
    let fits = |(leaf, column): (&Leaf, &ColumnDescPtr)| {
        let (definition, repetition) = (i16::from(leaf.layout.most), i16::from(leaf.layout.repeats));
        // A null where the schema allows none is for the general writer to refuse.
        let allowed =
            |array: &ArrayRef| leaf.layout.nullable || leaf.layout.levels.is_some() || array.logical_null_count() == 0;
        (column.max_def_level(), column.max_rep_level()) == (definition, repetition)
            && leaf.arrays.iter().all(|array| column::takes(array.data_type(), column) && allowed(array))
    };
    (leaves.len() == columns.len() && leaves.iter().zip(columns).all(fits)).then_some(leaves)
}

fn encode_leaf(scratch: &mut Scratch, descr: &ColumnDescPtr, mut leaf: Leaf, options: Options) -> Result<Chunk> {
    if leaf.arrays.iter().any(|array| is_coded(array.data_type())) {
        if let Some(chunk) = coded::encode(scratch, descr, &leaf, options)? {
            return Ok(chunk);
        }
        leaf.arrays = leaf.arrays.iter().map(plain_column).collect::<Result<_>>()?;
    }
    let Leaf { layout, arrays } = leaf;
    let validity = layout.validity().or_else(|| column::validity(&arrays));
    if let Some((values, order)) = column::words(&arrays, descr, scratch) {
        drop(arrays);
        return encode_values(scratch, descr, Column { layout: &layout, validity, values, order }, options);
    }
    let Some((values, order)) = column::texts(&arrays, scratch) else {
        return Err(Error::internal(format!("expected values to encode, found other ones in {}", descr.path())));
    };
    encode_values(scratch, descr, Column { layout: &layout, validity, values, order }, options)
}

fn encode_values(scratch: &mut Scratch, descr: &ColumnDescPtr, column: Column<'_>, options: Options) -> Result<Chunk> {
    let mut compressor = scratch.compressor(options.codec)?;
    let plan = match &column.values {
        Values::Narrow(values) => plan_words(values, column.order, &mut compressor)?,
        Values::Wide(values) => plan_words(values, column.order, &mut compressor)?,
        Values::Bytes(values) if options.looks => plan_texts(values, &mut compressor)?,
        Values::Bits(_) | Values::Bytes(_) => Plan::plain(),
    };
    let job = Job { column: &column, plan, descr, options };
    let (chunk, compressor, packed) = match &column.values {
        Values::Narrow(values) => job.write_words(values, compressor, scratch),
        Values::Wide(values) => job.write_words(values, compressor, scratch),
        Values::Bits(values) => job.write_bits(values, compressor, scratch),
        Values::Bytes(values) => job.write_texts(values, compressor, scratch),
    }?;
    scratch.keep_compressor(options.codec, compressor);
    scratch.packed = packed;
    scratch.take_back(column.values);
    Ok(chunk)
}

/// How values are to be encoded.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Plan {
    /// Encoding without a dictionary.
    encoding: Encoding,
    /// Entries that a dictionary may have; none if there should be no dictionary.
    entries: usize,
}

impl Plan {
    fn plain() -> Self {
        Self { encoding: Encoding::PLAIN, entries: 0 }
    }

    /// With a dictionary if that makes fewer bytes than `other` does.
    fn with_dictionary(self, expected: f64, entry_bytes: f64, dictionary: f64, other: f64) -> Self {
        if dictionary >= DICTIONARY_GAIN * other {
            return self;
        }
        let room = DICTIONARY_BYTES as f64 / entry_bytes;
        // The estimate may be off; twice as many entries are not yet a loss.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between zero and a few million")]
        let entries = (2.0 * expected + 1024.0).min(room) as usize;
        Self { entries, ..self }
    }
}

/// Stretches of neighbours, spread over all values.
fn sample<T: Copy>(values: &[T], stretch: usize) -> Vec<T> {
    if values.len() <= STRETCHES * stretch {
        return values.to_vec();
    }
    stretches(values.len(), stretch).flat_map(|start| &values[start..start + stretch]).copied().collect()
}

/// Where stretches of so many neighbours begin: one in each part of the values, but each at another place in it, for maps
/// that lie one behind the other would show the same latitudes again and again.
fn stretches(values: usize, stretch: usize) -> impl Iterator<Item = usize> {
    const GOLDEN: u64 = 0x9e37_79b9;
    let step = values / STRETCHES;
    let room = step.saturating_sub(stretch) as u64;
    (0..STRETCHES).map(move |i| {
        let share = (u128::from((i as u64 * GOLDEN) & 0xffff_ffff) * u128::from(room)) >> 32;
        i * step + usize::try_from(share).unwrap_or_default()
    })
}

/// Entries of a dictionary of all values, by those of the sample; and bytes of the indices.
fn foresee<E: Entry>(sample: &[E], total: usize) -> (f64, f64) {
    let found =
        Dictionary::of(sample, usize::MAX, &mut Vec::new()).map_or(sample.len(), |dictionary| dictionary.entries.len());
    let entries = expected_entries(sample.len(), found, total);
    (entries, index_bytes(entries, total))
}

/// Bytes of indices into a dictionary of so many entries.
pub(super) fn index_bytes(entries: f64, total: usize) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the number of values")]
    let width = width_of(entries as u64);
    total as f64 * f64::from(width) / 8.0
}

fn plan_words<W: Word>(values: &[W], order: Order, compressor: &mut Compressor) -> Result<Plan> {
    let sample = sample(values, STRETCH);
    let (entries, _) = foresee(&sample, values.len());
    plan_sample(&sample, values.len(), Entries { count: entries, bytes: entries * W::WIDTH as f64 }, order, compressor)
}

/// Entries of a dictionary, and the bytes that they take in it.
#[derive(Debug, Clone, Copy)]
struct Entries {
    count: f64,
    bytes: f64,
}

/// Plans for `total` words like those of the sample, with so many different ones.
fn plan_sample<W: Word>(
    sample: &[W],
    total: usize,
    entries: Entries,
    order: Order,
    compressor: &mut Compressor,
) -> Result<Plan> {
    if sample.is_empty() {
        return Ok(Plan::plain());
    }
    let scale = total as f64 / sample.len() as f64;
    let entry_bytes = W::WIDTH as f64;
    let dictionary = entries.bytes + index_bytes(entries.count, total);
    let plain = total as f64 * entry_bytes;
    if dictionary < CLEAR_GAIN * plain {
        return Ok(Plan::plain().with_dictionary(entries.count, entry_bytes, dictionary, plain));
    }
    let (mut page, mut packed) = (Vec::new(), Vec::new());
    let mut size = |put: &dyn Fn(&[W], &mut Vec<u8>)| -> Result<f64> {
        page.clear();
        put(sample, &mut page);
        Ok(compressor.compress(&page, &mut packed)?.len() as f64 * scale)
    };
    let plain = size(&W::put)?;
    let (encoding, other, gain) = if order.is_float() {
        (Encoding::BYTE_STREAM_SPLIT, size(&put_split)?, SLOWER_GAIN)
    } else {
        (Encoding::DELTA_BINARY_PACKED, size(&put_differences)?, FASTER_GAIN)
    };
    let (encoding, best) = if other < gain * plain { (encoding, other) } else { (Encoding::PLAIN, plain) };
    Ok(Plan { encoding, entries: 0 }.with_dictionary(entries.count, entry_bytes, dictionary, best))
}

fn plan_texts(values: &[&[u8]], compressor: &mut Compressor) -> Result<Plan> {
    if values.is_empty() {
        return Ok(Plan::plain());
    }
    let total: usize = values.iter().map(|value| value.len()).sum();
    let mean = total as f64 / values.len() as f64;
    let sample = sample(values, (SAMPLE_BYTES * values.len() / STRETCHES / (total + 1)).clamp(1, STRETCH));
    let scale = values.len() as f64 / sample.len() as f64;
    let (entries, indices) = foresee(&sample, values.len());
    let entry_bytes = mean + 4.0;
    let plain = values.len() as f64 * entry_bytes;
    if entries * entry_bytes + indices < CLEAR_GAIN * plain {
        return Ok(Plan::plain().with_dictionary(entries, entry_bytes, 0.0, plain));
    }
    let (mut page, mut packed) = (Vec::new(), Vec::new());
    let mut size = |put: fn(&[&[u8]], &mut Vec<u8>)| -> Result<f64> {
        page.clear();
        put(&sample, &mut page);
        Ok(compressor.compress(&page, &mut packed)?.len() as f64 * scale)
    };
    let packed_plain = size(put_texts)?;
    let mut best = (Encoding::PLAIN, packed_plain);
    for (encoding, put, gain) in [
        (Encoding::DELTA_LENGTH_BYTE_ARRAY, put_texts_after_lengths as fn(&[&[u8]], &mut Vec<u8>), FASTER_GAIN),
        (Encoding::DELTA_BYTE_ARRAY, put_texts_without_prefixes, SLOWER_GAIN),
    ] {
        let bytes = size(put)?;
        if bytes < gain * best.1 {
            best = (encoding, bytes);
        }
    }
    let dictionary = entries * entry_bytes * (packed_plain / plain).min(1.0) + indices;
    Ok(Plan { encoding: best.0, entries: 0 }.with_dictionary(entries, entry_bytes, dictionary, best.1))
}

impl Column<'_> {
    /// Pages of some rows each.
    fn pages(&self, rows: impl IntoIterator<Item = Range<usize>>) -> Vec<Page> {
        let mut value = 0;
        let page = |rows: Range<usize>| {
            let slots = self.layout.slots_of(rows.clone());
            let first = value;
            value += self.values_in(&slots);
            Page { rows, slots, values: first..value }
        };
        rows.into_iter().map(page).collect()
    }

    /// How many slots have a value.
    fn values_in(&self, slots: &Range<usize>) -> usize {
        match &self.validity {
            Some(validity) if slots.len() == 1 => usize::from(validity.value(slots.start)),
            Some(validity) => validity.slice(slots.start, slots.len()).count_set_bits(),
            None => slots.len(),
        }
    }

    /// Rows of the pages of texts. Of those that are no lists rows are counted where there is a dictionary.
    fn cut_texts(&self, values: &[&[u8]], dictionary: bool) -> Vec<Range<usize>> {
        if dictionary && !self.layout.repeats {
            return self.layout.cut_words(0);
        }
        let mut rest = values;
        self.layout.cut(|slots| {
            let (row, after) = rest.split_at(self.values_in(&slots).min(rest.len()));
            rest = after;
            row.iter().map(|value| value.len() + 4).sum()
        })
    }

    /// Begins the body of a page with its levels.
    fn put_levels(&self, page: &Page, body: &mut Vec<u8>) {
        let validity = self.validity.as_ref().map(|validity| validity.slice(page.slots.start, page.slots.len()));
        self.layout.put(&page.rows, validity.as_ref(), page.values.len(), body);
    }
}

/// Appends indices into a dictionary of so many entries.
fn put_indices(entries: usize, indices: &[u32], body: &mut Vec<u8>) {
    let width = width_of(entries.saturating_sub(1) as u64);
    body.push(width);
    put_hybrid(body, indices, width);
}

/// A finished chunk, the compressor and the memory that were used.
type Finished = (Chunk, Compressor, Vec<u8>);

/// A column to be written as planned.
struct Job<'a> {
    column: &'a Column<'a>,
    plan: Plan,
    descr: &'a ColumnDescPtr,
    options: Options,
}

impl Job<'_> {
    fn writer(&self, compressor: Compressor, scratch: &mut Scratch, with_dictionary: bool) -> (PageWriter, Encoding) {
        let encoding = if with_dictionary { Encoding::RLE_DICTIONARY } else { self.plan.encoding };
        let (packed, order) = (std::mem::take(&mut scratch.packed), self.column.order);
        (PageWriter::new(self.descr, compressor, packed, encoding, order, self.options.looks), encoding)
    }

    /// Writes all pages, whose values `put` appends.
    fn write(
        &self,
        pages: Vec<Page>,
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
            writer.data(PageFacts::of(self.column.layout, &page, bounds, text_bytes), &scratch.body)?;
            if number == 0 {
                writer.expect_pages(count - 1);
            }
        }
        writer.finish()
    }

    fn write_words<W: Word>(&self, values: &[W], compressor: Compressor, scratch: &mut Scratch) -> Result<Finished> {
        let dictionary = match self.plan.entries {
            0 => None,
            most => Dictionary::of_words(values, most, &mut scratch.indices),
        };
        let (mut writer, encoding) = self.writer(compressor, scratch, dictionary.is_some());
        if let Some(dictionary) = &dictionary {
            let mut entries = Vec::new();
            W::put(&dictionary.entries, &mut entries);
            writer.dictionary(dictionary.entries.len(), &entries)?;
        }
        let put = |range: Range<usize>, body: &mut Vec<u8>| match (&dictionary, encoding) {
            (Some(dictionary), _) => put_indices(dictionary.entries.len(), &dictionary.indices[range], body),
            (None, Encoding::DELTA_BINARY_PACKED) => put_differences(&values[range], body),
            (None, Encoding::BYTE_STREAM_SPLIT) => put_split(&values[range], body),
            (None, _) => W::put(&values[range], body),
        };
        let facts = |range: Range<usize>| (self.column.order.of_words(&values[range]), None);
        let pages = self.column.pages(self.column.layout.cut_words(W::WIDTH));
        let finished = self.write(pages, writer, scratch, facts, put);
        scratch.indices = dictionary.map_or_else(Vec::new, |dictionary| dictionary.indices);
        finished
    }

    fn write_bits(
        &self,
        values: &arrow::buffer::BooleanBuffer,
        compressor: Compressor,
        scratch: &mut Scratch,
    ) -> Result<Finished> {
        let (writer, _) = self.writer(compressor, scratch, false);
        let slice = |range: Range<usize>| values.slice(range.start, range.len());
        let facts = |range: Range<usize>| {
            let set = slice(range.clone()).count_set_bits();
            let (least, greatest) = (u64::from(set == range.len()), u64::from(set > 0));
            ((!range.is_empty()).then_some(Bounds::Keys { least, greatest, nans: 0, only_nans: false }), None)
        };
        let put = |range: Range<usize>, body: &mut Vec<u8>| put_bits(&slice(range), body);
        let pages = self.column.pages(self.column.layout.cut_words(1));
        self.write(pages, writer, scratch, facts, put)
    }

    fn write_texts(&self, values: &[&[u8]], compressor: Compressor, scratch: &mut Scratch) -> Result<Finished> {
        let dictionary = match self.plan.entries {
            0 => None,
            most => Dictionary::of(values, most, &mut scratch.indices),
        };
        let (mut writer, encoding) = self.writer(compressor, scratch, dictionary.is_some());
        if let Some(dictionary) = &dictionary {
            let mut entries = Vec::new();
            put_texts(&dictionary.entries, &mut entries);
            writer.dictionary(dictionary.entries.len(), &entries)?;
        }
        let put = |range: Range<usize>, body: &mut Vec<u8>| match (&dictionary, encoding) {
            (Some(dictionary), _) => put_indices(dictionary.entries.len(), &dictionary.indices[range], body),
            (None, Encoding::DELTA_LENGTH_BYTE_ARRAY) => put_texts_after_lengths(&values[range], body),
            (None, Encoding::DELTA_BYTE_ARRAY) => put_texts_without_prefixes(&values[range], body),
            (None, _) => put_texts(&values[range], body),
        };
        let pages = self.column.pages(self.column.cut_texts(values, dictionary.is_some()));
        let mut seen = vec![false; dictionary.as_ref().map_or(0, |dictionary| dictionary.entries.len())];
        let facts = |range: Range<usize>| {
            let bytes = values[range.clone()].iter().map(|value| value.len() as u64).sum();
            let bounds = match &dictionary {
                _ if !self.options.looks => None,
                Some(dictionary) if dictionary.entries.len() <= PAGE_ROWS * 4 => {
                    Bounds::of_bytes(dictionary.occurring(range, &mut seen))
                }
                _ => Bounds::of_bytes(values[range].iter().copied()),
            };
            (bounds, Some(bytes))
        };
        let mut finished = self.write(pages, writer, scratch, facts, put)?;
        if let Some(dictionary) = &dictionary
            && self.options.tells_repeats
            && matches!(self.column.layout, Layout { slots: Slots::One(_), levels: None, .. })
        {
            finished.0.repeats = Some(Repeats::new(&dictionary.indices, dictionary.entries.len(), self.column));
        }
        scratch.indices = dictionary.map_or_else(Vec::new, |dictionary| dictionary.indices);
        Ok(finished)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests;
