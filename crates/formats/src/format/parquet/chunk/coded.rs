//! Encodes [coded](crate::record::coded) columns: their keys become indices of a dictionary, and each of their values
//! is processed only once.
//!
//! ```text
//! arrays    keys 2 0 2 | keys 1 1 0            each with its table of values, some of which never occur
//! tables    used, index in the dictionary      entries in the order of their values, each once
//! pages     index of each key, without nulls --> hybrid
//! ```
//!
//! Entries are in the order of their values, so the lowest and the highest index of a page give its bounds.

use ::parquet::{
    basic::{Encoding, Type},
    schema::types::ColumnDescPtr,
};
use arrow::{
    array::{Array, ArrayRef, make_array},
    buffer::BooleanBuffer,
};

use super::{
    bits::{GROUP, least_run, put_packed, put_run, width_of},
    column::{DenseValues, Word, collect_words},
    compress::Compressor,
    dictionary::Dictionary,
    job::{Finished, Options, put_indices},
    levels::{LevelLayout, PageRange},
    nested::Leaf,
    page::{Chunk, PageFacts, PageWriter},
    plan::{Entries, STRETCH, STRETCHES, plan_sample, stretch_starts},
    scratch::Scratch,
    stats::{Bounds, ValueOrder},
};
use crate::{error::Result, record::coded::as_coded};

/// Index of keys without a value.
const NULL: u32 = u32::MAX;

/// Maximum number of entries for which a dictionary is always used: such values are coordinates, which repeat often.
const ALWAYS_DICTIONARY_ENTRIES: usize = 4096;

/// Minimum number of rows per entry.
const ROWS_PER_ENTRY: usize = 8;

/// Minimum average length of runs of equal values, in rows, for pages to be written run by run.
const MIN_MEAN_RUN: usize = 16;

/// Number of keys that are examined together: neighbours are often equal.
const BLOCK: usize = 64;

/// Values of a table, and for each whether a key refers to it; later its index.
struct CodedTable<'a> {
    values: &'a ArrayRef,
    used: Vec<bool>,
    indices: Vec<u32>,
}

/// Keys of an array, and the index of their table.
struct Segment<'a> {
    keys: &'a [u16],
    table: usize,
}

/// Encodes a column whose arrays are all coded; `None` if they are not, or if a dictionary would not make their values
/// smaller.
///
/// # Errors
/// Those of [`encode_field`](super::encode_field).
pub(super) fn encode_coded(
    scratch: &mut Scratch,
    descr: &ColumnDescPtr,
    leaf: &Leaf,
    options: Options,
) -> Result<Option<Chunk>> {
    // Levels are made from keys here.
    if leaf.layout.levels.is_some() {
        return Ok(None);
    }
    let Some((tables, segments)) = tables_of(&leaf.arrays) else { return Ok(None) };
    let mut words = Vec::with_capacity(tables.len());
    let mut order = None;
    for table in &tables {
        let Some((values, of)) = values_of(table.values, descr, scratch) else { return Ok(None) };
        words.push(values);
        order = Some(of);
    }
    let Some(order) = order else { return Ok(None) };
    let column = Coded { descr, layout: &leaf.layout, tables, segments, order, options };
    let narrow: Option<Vec<&[u32]>> = words
        .iter()
        .map(|words| if let DenseValues::Narrow(words) = words { Some(&words[..]) } else { None })
        .collect();
    let wide: Option<Vec<&[u64]>> =
        words.iter().map(|words| if let DenseValues::Wide(words) = words { Some(&words[..]) } else { None }).collect();
    match (narrow, wide) {
        (Some(words), _) => column.encode(&words, scratch),
        (_, Some(words)) => column.encode(&words, scratch),
        _ => Ok(None),
    }
}

/// Marks the values that occur.
fn tables_of(arrays: &[ArrayRef]) -> Option<(Vec<CodedTable<'_>>, Vec<Segment<'_>>)> {
    let mut tables: Vec<CodedTable<'_>> = Vec::new();
    let mut segments = Vec::with_capacity(arrays.len());
    for array in arrays {
        let array = as_coded(array)?;
        let same = |table: &CodedTable<'_>| std::sync::Arc::ptr_eq(table.values, array.values());
        if !tables.last().is_some_and(same) {
            let values = array.values();
            tables.push(CodedTable { values, used: vec![false; values.len()], indices: Vec::new() });
        }
        let keys: &[u16] = array.keys().values();
        if let Some(table) = tables.last_mut() {
            mark_used(keys, &mut table.used);
        }
        segments.push(Segment { keys, table: tables.len().checked_sub(1)? });
    }
    Some((tables, segments))
}

/// Returns whether all keys are equal.
fn is_uniform(keys: &[u16]) -> bool {
    keys.first().is_some_and(|first| keys.iter().fold(0, |differs, key| differs | (key ^ first)) == 0)
}

fn mark_used(keys: &[u16], used: &mut [bool]) {
    for block in keys.chunks(BLOCK) {
        let block = if is_uniform(block) { &block[..1] } else { block };
        for key in block {
            if let Some(used) = used.get_mut(usize::from(*key)) {
                *used = true;
            }
        }
    }
}

/// Returns the words of a table, including those of nulls.
fn values_of(
    values: &ArrayRef,
    descr: &ColumnDescPtr,
    scratch: &mut Scratch,
) -> Option<(DenseValues<'static>, ValueOrder)> {
    let filled = make_array(values.to_data().into_builder().nulls(None).build().ok()?);
    // Texts are not supported: they would have to outlive the table.
    filled.data_type().primitive_width()?;
    let (words, order) = collect_words(&[filled], descr, scratch)?;
    match (words, descr.physical_type()) {
        (DenseValues::Narrow(words), Type::INT32 | Type::FLOAT) => Some((DenseValues::Narrow(words), order)),
        (DenseValues::Wide(words), Type::INT64 | Type::DOUBLE) => Some((DenseValues::Wide(words), order)),
        _ => None,
    }
}

/// Returns the index for a key.
fn index_of(indices: &[u32], key: u16) -> u32 {
    indices.get(usize::from(key)).copied().unwrap_or(NULL)
}

struct Coded<'a> {
    descr: &'a ColumnDescPtr,
    layout: &'a LevelLayout,
    tables: Vec<CodedTable<'a>>,
    segments: Vec<Segment<'a>>,
    order: ValueOrder,
    options: Options,
}

impl Coded<'_> {
    fn encode<W: Word>(mut self, words: &[&[W]], scratch: &mut Scratch) -> Result<Option<Chunk>> {
        let Some(entries) = self.index(words) else { return Ok(None) };
        let nulls = self.null_count();
        if nulls > 0 && !self.layout.nullable {
            return Ok(None);
        }
        let rows: usize = self.segments.iter().map(|segment| segment.keys.len()).sum();
        let mut compressor = scratch.take_compressor(self.options.codec)?;
        if entries.len() > ALWAYS_DICTIONARY_ENTRIES.min((rows - nulls) / ROWS_PER_ENTRY) || entries.is_empty() {
            let sample = self.sample_values(&entries);
            // Entries in order are much smaller than others: packed numbers are equally spaced.
            scratch.body.clear();
            W::put(&entries, &mut scratch.body);
            let bytes = compressor.compress(&scratch.body, &mut scratch.packed)?.len() as f64;
            let all = Entries { count: entries.len() as f64, bytes };
            let plan = plan_sample(&sample, rows - nulls, all, self.order, &mut compressor)?;
            if plan.entries < entries.len() || entries.is_empty() {
                scratch.keep_compressor(self.options.codec, compressor);
                return Ok(None);
            }
        }
        let (chunk, compressor, packed) = self.write(&entries, nulls > 0, compressor, scratch)?;
        scratch.keep_compressor(self.options.codec, compressor);
        scratch.packed = packed;
        Ok(Some(chunk))
    }

    /// Returns the entries of the dictionary in the order of their values, and stores their indices in the tables.
    fn index<W: Word>(&mut self, words: &[&[W]]) -> Option<Vec<W>> {
        let mut occurring = Vec::new();
        for (table, words) in self.tables.iter().zip(words) {
            let used = |code: &usize| table.used[*code] && table.values.is_valid(*code);
            occurring.extend((0..words.len()).filter(used).map(|code| words[code]));
        }
        let found = Dictionary::from_values(&occurring, usize::MAX, &mut Vec::new())?;
        let mut sorted: Vec<(u64, u32)> =
            found.entries.iter().map(|entry| self.order.key_of_bits(entry.bits())).zip(0_u32..).collect();
        sorted.sort_unstable();
        let mut ranks = vec![0; sorted.len()];
        for ((_, entry), rank) in sorted.iter().zip(0_u32..) {
            ranks[*entry as usize] = rank;
        }
        let mut next = found.indices.iter();
        for table in &mut self.tables {
            let (used, values) = (&table.used, table.values);
            let index = |code: usize| match used[code] && values.is_valid(code) {
                true => next.next().map_or(NULL, |entry| ranks[*entry as usize]),
                false => NULL,
            };
            table.indices = (0..used.len()).map(index).collect();
        }
        Some(sorted.iter().map(|(_, entry)| found.entries[*entry as usize]).collect())
    }

    fn null_count(&self) -> usize {
        let of = |segment: &Segment<'_>| {
            let table = &self.tables[segment.table];
            let has = table.used.iter().zip(&table.indices).any(|(used, index)| *used && *index == NULL);
            if has { segment.keys.iter().filter(|key| table.indices[usize::from(**key)] == NULL).count() } else { 0 }
        };
        self.segments.iter().map(of).sum()
    }

    /// Returns some of the values, evenly spread.
    fn sample_values<W: Word>(&self, entries: &[W]) -> Vec<W> {
        let rows: usize = self.segments.iter().map(|segment| segment.keys.len()).sum();
        let mut indices = Vec::new();
        if rows <= STRETCHES * STRETCH {
            self.append_indices(0, rows, &mut indices);
        } else {
            stretch_starts(rows, STRETCH).for_each(|start| self.append_indices(start, STRETCH, &mut indices));
        }
        indices.into_iter().filter_map(|index| entries.get(index as usize)).copied().collect()
    }

    /// Returns the keys of some rows, block by block, each block with the indices of its table.
    fn key_blocks(&self, mut start: usize, mut rows: usize) -> impl Iterator<Item = (&[u16], &[u32])> {
        self.segments.iter().flat_map(move |segment| {
            let from = start.min(segment.keys.len());
            let to = segment.keys.len().min(from + rows);
            start -= from;
            rows -= to - from;
            let indices = self.tables[segment.table].indices.as_slice();
            segment.keys[from..to].chunks(BLOCK).map(move |block| (block, indices))
        })
    }

    /// Appends the indices of some rows, including those of nulls.
    fn append_indices(&self, start: usize, rows: usize, out: &mut Vec<u32>) {
        for (block, indices) in self.key_blocks(start, rows) {
            match block.first() {
                Some(first) if is_uniform(block) => out.resize(out.len() + block.len(), index_of(indices, *first)),
                _ => out.extend(block.iter().map(|key| index_of(indices, *key))),
            }
        }
    }

    /// Finds runs of equal indices in some rows; returns false if there are more than `most`, or if there are nulls.
    fn find_runs(&self, start: usize, rows: usize, most: usize, out: &mut Vec<(u32, usize)>) -> bool {
        out.clear();
        let push = |index: u32, count: usize, out: &mut Vec<(u32, usize)>| match out.last_mut() {
            Some((last, length)) if *last == index => *length += count,
            _ => out.push((index, count)),
        };
        for (block, indices) in self.key_blocks(start, rows) {
            match block.first() {
                Some(first) if is_uniform(block) => push(index_of(indices, *first), block.len(), out),
                _ => block.iter().for_each(|key| push(index_of(indices, *key), 1, out)),
            }
            if out.len() > most {
                return false;
            }
        }
        out.iter().all(|(index, _)| *index != NULL)
    }

    fn write<W: Word>(
        &self,
        entries: &[W],
        has_nulls: bool,
        compressor: Compressor,
        scratch: &mut Scratch,
    ) -> Result<Finished> {
        let packed = std::mem::take(&mut scratch.packed);
        let mut writer = PageWriter::new(
            self.descr,
            compressor,
            packed,
            Encoding::RLE_DICTIONARY,
            self.order,
            self.options.inspects_values,
        )
        .storing_noise();
        let mut body = Vec::new();
        W::put(entries, &mut body);
        writer.write_dictionary(entries.len(), &body)?;
        let keys: Vec<u64> = entries.iter().map(|entry| self.order.key_of_bits(entry.bits())).collect();
        let has_nans = entries.iter().any(|entry| self.order.is_nan(entry.bits()));
        let (body, indices) = (&mut scratch.body, &mut scratch.indices);
        let mut runs = Vec::new();
        let pages = self.layout.cut_words(W::WIDTH);
        let (count, mut done) = (pages.len(), 0);
        for (number, rows) in pages.into_iter().enumerate() {
            let slots = self.layout.slots_of(rows.clone());
            indices.clear();
            let in_runs = !has_nans && self.find_runs(slots.start, slots.len(), slots.len() / MIN_MEAN_RUN, &mut runs);
            let mut validity = None;
            if !in_runs {
                self.append_indices(slots.start, slots.len(), indices);
                validity = if has_nulls { without_nulls(indices) } else { None };
            }
            let values = done..done + if in_runs { slots.len() } else { indices.len() };
            done = values.end;
            self.layout.put_page_levels(&rows, validity.as_ref(), values.len(), body);
            let bounds = if in_runs {
                put_runs(entries.len(), &runs, body);
                bounds_of_runs(&runs, &keys)
            } else {
                put_indices(entries.len(), indices, body);
                self.page_bounds(indices, entries, &keys, has_nans)
            };
            writer
                .write_data(PageFacts::for_page(self.layout, &PageRange { rows, slots, values }, bounds, None), body)?;
            if number == 0 {
                writer.expect_pages(count - 1);
            }
        }
        writer.finish()
    }

    /// Returns the bounds of a page, from its indices, or from its values if some of them are NaN.
    fn page_bounds<W: Word>(&self, indices: &[u32], entries: &[W], keys: &[u64], has_nans: bool) -> Option<Bounds> {
        if !has_nans {
            return index_bounds(indices, keys);
        }
        let words: Vec<W> = indices.iter().map(|index| entries[*index as usize]).collect();
        self.order.of_words(&words)
    }
}

/// Removes the nulls, and returns their positions if there were any.
fn without_nulls(indices: &mut Vec<u32>) -> Option<BooleanBuffer> {
    let valid = BooleanBuffer::collect_bool(indices.len(), |row| indices[row] != NULL);
    if valid.count_set_bits() == valid.len() {
        return None;
    }
    indices.retain(|index| *index != NULL);
    Some(valid)
}

/// Appends indices that consist of runs: runs that are too short are packed together.
fn put_runs(entries: usize, runs: &[(u32, usize)], body: &mut Vec<u8>) {
    let width = width_of(entries.saturating_sub(1) as u64);
    body.push(width);
    let (least, mut packed) = (least_run(width), Vec::new());
    for &(index, mut count) in runs {
        // Packed values form whole groups.
        let fill = packed.len().next_multiple_of(GROUP) - packed.len();
        let fill = fill.min(count);
        packed.resize(packed.len() + fill, index);
        count -= fill;
        if count >= least {
            put_packed(body, &packed, width);
            packed.clear();
            put_run(body, count as u64, index, width);
        } else {
            packed.resize(packed.len() + count, index);
        }
    }
    put_packed(body, &packed, width);
}

/// Returns the bounds of a page from its runs.
fn bounds_of_runs(runs: &[(u32, usize)], keys: &[u64]) -> Option<Bounds> {
    let key = |index: u32| keys.get(index as usize).copied();
    let (least, greatest) = (runs.iter().map(|run| run.0).min()?, runs.iter().map(|run| run.0).max()?);
    Some(Bounds::Keys { least: key(least)?, greatest: key(greatest)?, nans: 0, only_nans: false })
}

/// Returns the bounds of a page from its indices.
fn index_bounds(indices: &[u32], keys: &[u64]) -> Option<Bounds> {
    let least = indices.iter().fold(u32::MAX, |least, index| least.min(*index));
    let greatest = indices.iter().fold(0, |greatest, index| greatest.max(*index));
    let (least, greatest) = (*keys.get(least as usize)?, *keys.get(greatest as usize)?);
    Some(Bounds::Keys { least, greatest, nans: 0, only_nans: false })
}
