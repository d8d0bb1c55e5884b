//! Merges one column of several row groups into one chunk, by the cheapest method that each page allows.
//!
//! ```text
//! no dictionary, or the same one     pages are copied; values that repeat often get a dictionary
//! dictionaries that have much in     entries united; indices rewritten through a table, levels unchanged
//! common
//! nearly every value once            indices 0, 1, 2 ...: the dictionary becomes a page of values, compressed bytes
//!                                    unchanged after the levels; else values gathered from the dictionary
//! another codec                      pages decompressed and compressed again; nothing is decoded
//! ```
//!
//! A united dictionary contains each value once: pyarrow silently reads wrong values if one occurs twice.
//! Rewritten pages are of version 1, which all readers support.

mod gather;
mod keyed;

use std::{borrow::Cow, ops::Range};

use ::parquet::{basic::Compression, file::metadata::ColumnChunkMetaData, schema::types::ColumnDescPtr};
use arrow::array::BooleanBufferBuilder;
use bytes::Bytes;

use super::{
    super::{
        chunk::{
            Compressor, expected_entries, index_bytes, put_behind_length, put_hybrid, put_levels, width_of,
            width_of_all,
        },
        thrift::PageHeader,
    },
    Tally,
    bounds::ComparisonOrder,
    facts::{Facts, Indexes, facts_of},
    hybrid::{self, Hybrid},
    out::{Out, SplicedChunk},
    page::{CutPage, PLAIN, Page, PageResult, Pages, Refused, form_of, inflate_page},
    proof::Sums,
    slice,
    stored::{put_before, put_stored},
    union::{EntryForm, Union},
};
use crate::{
    codec::Codec,
    error::{Error, Result},
    format::ranged::RangedInput,
};

/// Number of parts whose dictionaries are united before the method for all parts is chosen.
const SAMPLED_PARTS: usize = 6;

/// Minimum number of parts for an additional sample before anything is united.
const EXTRA_SAMPLE_PARTS: usize = 16;

/// Approximate maximum number of dictionary entries in that sample.
const SAMPLED_ENTRIES: u64 = 2048;

/// Maximum size of a dictionary encoding relative to the values: readers hold dictionaries in memory.
const DICTIONARY_GAIN: f64 = 0.95;

/// Number of values per entry from which on numbers count as repeated, and maximum number of entries examined then.
const REPEATED_RATIO: u64 = 8;
const MAX_SCATTERED: usize = 8192;

/// Maximum bytes of a dictionary, predicted and actual: with larger ones, filters on single values become slow.
const PREDICTED_DICTIONARY_BYTES: f64 = 4e6;
const MAX_DICTIONARY_BYTES: usize = 8 << 20;

/// Number of values in a page of indices joined from several: readers process the values of a page together, so larger
/// pages have no benefit.
const JOINED: usize = 1 << 16;

/// Maximum number of values in a page to be joined; larger pages are rewritten alone, run by run.
const MAX_JOINED: u64 = 1 << 18;

/// Compression ratio above which a page is stored uncompressed.
const INCOMPRESSIBLE: f64 = 0.9;

/// Number of the encoding of dictionary indices.
const INDICES: i32 = 8;

/// A chunk of an input.
pub(super) struct Part<'a> {
    /// Name of the file, for errors.
    pub(super) name: &'a str,
    pub(super) input: &'a RangedInput,
    pub(super) chunk: &'a ColumnChunkMetaData,
    pub(super) indexes: Indexes<'a>,
    /// The rows that are wanted.
    pub(super) rows: Range<u64>,
    /// Rows of its row group.
    pub(super) group_rows: u64,
}

impl Part<'_> {
    /// Returns whether all rows of the row group are wanted.
    pub(super) fn is_whole(&self) -> bool {
        self.rows == (0..self.group_rows)
    }
}

/// The target of a merge.
pub(super) struct Target<'a> {
    pub(super) column: &'a ColumnDescPtr,
    pub(super) codec: Codec,
    /// The codec's name in footers.
    pub(super) name: Compression,
}

/// A part with parsed pages.
struct Loaded<'a> {
    part: &'a Part<'a>,
    pages: Pages,
    facts: Vec<Facts>,
    /// The entries of the dictionary that are kept, if the part is a slice.
    used: Option<Vec<u32>>,
}

/// Merges the chunks, in order; `None` if some have a form that only the decoder supports.
///
/// # Errors
/// When a part is damaged, naming its file, or cannot be read.
pub(super) fn merge_chunks(target: &Target<'_>, parts: &[Part<'_>]) -> Result<Option<(SplicedChunk, Tally)>> {
    let order = ComparisonOrder::for_column(target.column);
    let mut buffers = MergeBuffers::default();
    let (mut loaded, mut stated) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
    for part in parts {
        let bytes = part.input.read_range(range_of(part)?).map_err(|e| e.at_location(part.name))?;
        match load_part(part, bytes, order, &mut buffers.page) {
            Ok((one, chunk)) => {
                loaded.push(one);
                stated.push(chunk);
            }
            Err(Refused::Unknown) => return Ok(None),
            Err(Refused::Damaged(message)) => return Err(damaged_error(part, &message)),
        }
    }
    let merging = Merging {
        target,
        out: Out::new(target.column, target.name),
        order,
        compressor: Compressor::new(target.codec)?,
        tally: Tally::default(),
        buffers,
    };
    let chunks: Vec<&ColumnChunkMetaData> = stated.iter().map(AsRef::as_ref).collect();
    let rows = parts.iter().map(|part| part.rows.end - part.rows.start).sum();
    match merging.run(loaded) {
        Ok((out, tally)) => Ok(Some((out.finish(&chunks, rows, order)?, tally))),
        Err((_, Stop::Refused(Refused::Unknown))) => Ok(None),
        Err((Some(at), Stop::Refused(Refused::Damaged(message)))) => Err(damaged_error(&parts[at], &message)),
        Err((None, Stop::Refused(Refused::Damaged(message)))) => Err(Error::internal(message)),
        Err((_, Stop::Failed(error))) => Err(error),
    }
}

fn damaged_error(part: &Part<'_>, message: &str) -> Error {
    let cause = format!("column {}: {message}", part.chunk.column_path());
    Error::input("expected a Parquet file, found one that cannot be decoded").with_cause(cause).at_location(part.name)
}

fn range_of(part: &Part<'_>) -> Result<std::ops::Range<u64>> {
    let place = |offset: i64| {
        u64::try_from(offset).map_err(|_| damaged_error(part, "expected an offset, found a negative one"))
    };
    let chunk = part.chunk;
    let start = place(chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset()))?;
    let end = start.saturating_add(place(chunk.compressed_size())?);
    if end > part.input.byte_count() {
        return Err(damaged_error(part, "expected a column chunk within the file"));
    }
    Ok(start..end)
}

/// Parses the pages of a part, and returns what a footer states of it.
fn load_part<'a>(
    part: &'a Part<'a>,
    bytes: Bytes,
    order: ComparisonOrder,
    buffer: &mut Vec<u8>,
) -> PageResult<(Loaded<'a>, Cow<'a, ColumnChunkMetaData>)> {
    let mut pages = Pages::from_chunk(bytes, part.chunk)?;
    let expected = part.group_rows;
    let mut facts = facts_of(&pages, part.chunk, part.indexes, order, expected, buffer)?;
    let rows = facts.iter().map(|page| page.rows).sum::<Option<u64>>();
    if rows.is_some_and(|rows| rows != expected) {
        let message = format!("expected {expected} rows as in the footer, found {} in the pages", rows.unwrap_or(0));
        return Err(Refused::Damaged(message));
    }
    if part.is_whole() {
        return Ok((Loaded { part, pages, facts, used: None }, Cow::Borrowed(part.chunk)));
    }
    let (used, stated) = slice::cut_chunk(part.chunk, &part.rows, part.indexes, &mut pages, &mut facts, buffer)?;
    Ok((Loaded { part, pages, facts, used: Some(used) }, Cow::Owned(stated)))
}

/// Reusable memory.
#[derive(Default)]
struct MergeBuffers {
    page: Vec<u8>,
    dictionary: Vec<u8>,
    body: Vec<u8>,
    packed: Vec<u8>,
    values: Vec<u32>,
}

/// Pages of indices that are being joined.
struct Joined {
    /// Definition levels of columns with a maximum level of 1, one bit each; those of other columns are in `levels`.
    present: BooleanBufferBuilder,
    levels: Vec<u32>,
    indices: Vec<u32>,
    /// The header of the first page, and the facts of all pages.
    page: Option<(PageHeader, Facts)>,
}

impl Joined {
    fn new() -> Self {
        Self { present: BooleanBufferBuilder::new(0), levels: Vec::new(), indices: Vec::new(), page: None }
    }
}

/// Returns the number of bits of a level.
fn level_width(most: i16) -> u8 {
    width_of(most.unsigned_abs().into())
}

/// Reason for stopping a merge.
enum Stop {
    Refused(Refused),
    Failed(Error),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A merge in progress.
struct Merging<'a> {
    target: &'a Target<'a>,
    out: Out,
    order: ComparisonOrder,
    compressor: Compressor,
    tally: Tally,
    buffers: MergeBuffers,
}

/// A result whose error has the number of the part at fault.
type MergeResult<T> = Result<T, (Option<usize>, Stop)>;

impl Merging<'_> {
    fn run(mut self, mut parts: Vec<Loaded<'_>>) -> MergeResult<(Out, Tally)> {
        let indexed = |part: &Loaded<'_>| part.pages.data.iter().any(Pages::is_indices);
        if !parts.iter().any(indexed) {
            let form = parts.first().and_then(|part| form_of(part.part.chunk));
            match self.build_keyed(&parts, form)? {
                Some(keyed) => self.write_keyed(parts, &keyed)?,
                None => self.copy_all(parts)?,
            }
        } else if self.same_dictionary(&parts) {
            if let Some(first) = parts.iter().find(|part| indexed(part))
                && let Some(page) = &first.pages.dictionary
            {
                let bytes = first.pages.bytes.slice(page.whole.clone());
                self.out.copy_page(bytes, &page.header, None).map_err(|e| (None, e.into()))?;
            }
            self.copy_all(parts)?;
        } else {
            let form = parts.first().and_then(|part| form_of(part.part.chunk));
            let form = form.ok_or((None, Stop::Refused(Refused::Unknown)))?;
            match self.unite_dictionaries(&parts, form)? {
                Some((union, tables)) => self.rewrite_all(parts, &union, &tables)?,
                None => {
                    for (at, part) in parts.drain(..).enumerate() {
                        self.gather_values(part, form).map_err(|stop| (Some(at), stop))?;
                    }
                }
            }
        }
        Ok((self.out, self.tally))
    }

    /// Returns whether the dictionaries of all parts that have one are equal, byte by byte, and can be kept.
    fn same_dictionary(&self, parts: &[Loaded<'_>]) -> bool {
        let mut dictionaries = parts.iter().filter(|part| part.pages.data.iter().any(Pages::is_indices)).map(|part| {
            let page = part.pages.dictionary.as_ref()?;
            Some((page.header.values, page.header.encoding, part.pages.stored_body(page)))
        });
        let first = dictionaries.next();
        let whole = |part: &Loaded<'_>| part.used.as_ref().is_none_or(Vec::is_empty) && self.keeps_codec(&part.pages);
        parts.iter().all(whole) && dictionaries.all(|other| Some(other) == first)
    }

    fn keeps_codec(&self, pages: &Pages) -> bool {
        std::mem::discriminant(&pages.codec) == std::mem::discriminant(&self.target.name)
    }

    fn copy_all(&mut self, parts: Vec<Loaded<'_>>) -> MergeResult<()> {
        for (at, part) in parts.into_iter().enumerate() {
            for (page, facts) in part.pages.data.iter().zip(part.facts) {
                self.copy_page(&part.pages, page, facts).map_err(|stop| (Some(at), stop))?;
            }
        }
        Ok(())
    }

    /// Copies a page whose values need no change.
    fn copy_page(&mut self, pages: &Pages, page: &Page, mut facts: Facts) -> Result<(), Stop> {
        if self.keeps_codec(pages) {
            if !facts.are_known() {
                facts.learn_unless_known(pages, &pages.cut_levels(page, &mut self.buffers.page)?);
            }
            self.tally.copied += page.whole.len() as u64;
            return Ok(self.out.copy_page(pages.bytes.slice(page.whole.clone()), &page.header, Some(facts))?);
        }
        self.tally.reencoded += page.whole.len() as u64;
        let cut = pages.cut_page(page, &mut self.buffers.page)?;
        facts.learn_unless_known(pages, &cut);
        let body = &mut self.buffers.body;
        body.clear();
        cut.put_levels(pages, body);
        body.extend_from_slice(cut.values);
        let encoding = i32::try_from(page.header.encoding).unwrap_or(-1);
        let packed = self.compressor.compress(body, &mut self.buffers.packed)?;
        Ok(self.out.put_page(facts.values, encoding, body.len(), packed, Some(facts))?)
    }

    /// Unites the dictionaries of all parts, unless values are smaller without one. Also returns, for each part, the
    /// numbers of its entries in the united dictionary.
    fn unite_dictionaries(
        &mut self,
        parts: &[Loaded<'_>],
        form: EntryForm,
    ) -> MergeResult<Option<(Union, Vec<Vec<u32>>)>> {
        let indices = |part: &Loaded<'_>| -> u64 {
            let pages = part.pages.data.iter().zip(&part.facts).filter(|(page, _)| Pages::is_indices(page));
            pages.map(|(_, facts)| facts.values - facts.nulls.unwrap_or(0).min(facts.values)).sum()
        };
        let total: u64 = parts.iter().map(indices).sum();
        if !self.predict_union(parts, form, indices, total)? {
            return Ok(None);
        }
        let (mut union, mut tables) = (Union::new(), Vec::with_capacity(parts.len()));
        let (mut seen, mut packed, mut inflated) = (0, 0, 0);
        for (at, part) in parts.iter().enumerate() {
            let values = indices(part);
            if values == 0 {
                tables.push(Vec::new());
                continue;
            }
            let found = part.pages.inflate_dictionary(form, &mut self.buffers.dictionary);
            let (page, places) = found.map_err(|refused| (Some(at), refused.into()))?;
            let table = match &part.used {
                None => union.add_entries(form, page, &places),
                Some(used) => slice::numbers_of_used(&mut union, form, page, &places, used),
            };
            let Some(table) = table.filter(|_| union.page().len() <= MAX_DICTIONARY_BYTES) else { return Ok(None) };
            tables.push(table);
            seen += values;
            inflated += page.len();
            packed += part.pages.dictionary.as_ref().map_or(0, |page| page.body.len());
            if at + 1 == SAMPLED_PARTS || at + 1 == parts.len() {
                let entry_bytes = union.page().len() as f64 / union.entry_count().max(1) as f64;
                let entries = estimate_distinct(seen, union.entry_count(), total);
                let ratio = match form {
                    EntryForm::Fixed(width) if union.entry_count() as u64 * REPEATED_RATIO <= seen => {
                        self.scattered_ratio(width, union.page()).map_err(|error| (None, error.into()))?
                    }
                    _ => packed as f64 / inflated.max(1) as f64,
                };
                if !worth_uniting(entries, entry_bytes, total, ratio) {
                    return Ok(None);
                }
            }
        }
        Ok(Some((union, tables)))
    }

    /// Returns the compression ratio of repeated numbers in random order: the entries of dictionaries may be sorted,
    /// and nothing states whether they are.
    fn scattered_ratio(&mut self, width: usize, entries: &[u8]) -> Result<f64> {
        const STEP: usize = 0x9e37_79b1;
        let count = entries.len() / width.max(1);
        let body = &mut self.buffers.body;
        body.clear();
        for number in 0..count.min(MAX_SCATTERED) {
            let at = number.wrapping_mul(STEP) % count * width;
            body.extend_from_slice(&entries[at..at + width]);
        }
        let packed = self.compressor.compress(body, &mut self.buffers.packed)?.len();
        Ok(packed as f64 / body.len().max(1) as f64)
    }

    /// Predicts from a sample of the entries of a few parts, selected by hash, whether uniting all dictionaries is
    /// worthwhile, which it is not if nearly all values differ.
    fn predict_union(
        &mut self,
        parts: &[Loaded<'_>],
        form: EntryForm,
        indices: impl Fn(&Loaded<'_>) -> u64,
        total: u64,
    ) -> MergeResult<bool> {
        let (mut sample, mut seen, mut divisor) = (Vec::new(), 0.0, None);
        let (mut count, mut packed, mut inflated) = (0, 0, 0);
        let middle = (parts.len() >= EXTRA_SAMPLE_PARTS).then_some(parts.len() / 2);
        for at in [0, 1].into_iter().chain(middle) {
            let Some((part, page)) = parts.get(at).and_then(|part| Some((part, part.pages.dictionary.as_ref()?)))
            else {
                continue;
            };
            let (values, entries) = (indices(part), page.header.values);
            if values == 0 {
                continue;
            }
            if entries <= values / 2 {
                return Ok(true);
            }
            let found = part.pages.inflate_dictionary(form, &mut self.buffers.dictionary);
            let (page, places) = found.map_err(|refused| (Some(at), refused.into()))?;
            let divisor = *divisor.get_or_insert_with(|| (entries / SAMPLED_ENTRIES).max(1));
            let before = sample.len();
            sample.extend(form.entry_hashes(page, &places).filter(|hash| hash % divisor == 0));
            seen += (sample.len() - before) as f64 * values as f64 / entries as f64;
            count += entries;
            inflated += page.len();
            packed += part.pages.dictionary.as_ref().map_or(0, |page| page.body.len());
        }
        let Some(divisor) = divisor else { return Ok(true) };
        sample.sort_unstable();
        sample.dedup();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than the number of values")]
        let entries = estimate_distinct(seen as u64, sample.len(), total / divisor) * divisor as f64;
        let entry_bytes = inflated as f64 / count as f64;
        Ok(worth_uniting(entries, entry_bytes, total, packed as f64 / inflated.max(1) as f64))
    }

    fn put_dictionary(&mut self, union: &Union) -> MergeResult<()> {
        let dictionary = union.page();
        let failed = |error: Error| (None, error.into());
        let packed = self.compressor.compress(dictionary, &mut self.buffers.packed).map_err(failed)?;
        let entries = union.entry_count() as u64;
        self.out.put_page(entries, i32::try_from(PLAIN).unwrap_or(0), dictionary.len(), packed, None).map_err(failed)
    }

    fn rewrite_all(&mut self, parts: Vec<Loaded<'_>>, union: &Union, tables: &[Vec<u32>]) -> MergeResult<()> {
        self.put_dictionary(union)?;
        let mut joined = Joined::new();
        for (at, (part, table)) in parts.into_iter().zip(tables).enumerate() {
            // Entries are added part by part, so that the indices of the first parts are narrow.
            let width = width_of_all(table);
            self.tally.spliced += part.pages.dictionary.as_ref().map_or(0, |page| page.whole.len() as u64);
            let stopped = |stop| (Some(at), stop);
            for (page, facts) in part.pages.data.iter().zip(part.facts) {
                if Pages::is_indices(page) && part.pages.repetition == 0 && page.header.values <= MAX_JOINED {
                    self.join_page(&part.pages, page, facts, table, &mut joined).map_err(stopped)?;
                    continue;
                }
                self.flush(&mut joined).map_err(stopped)?;
                if Pages::is_indices(page) {
                    self.rewrite_indices(&part.pages, page, facts, table, width)
                } else {
                    self.copy_page(&part.pages, page, facts)
                }
                .map_err(stopped)?;
            }
        }
        self.flush(&mut joined).map_err(|stop| (None, stop))
    }

    /// Adds the indices of a page of a column without nested parts to a page that joins several.
    fn join_page(
        &mut self,
        pages: &Pages,
        page: &Page,
        mut facts: Facts,
        table: &[u32],
        joined: &mut Joined,
    ) -> Result<(), Stop> {
        self.tally.spliced += page.whole.len() as u64;
        let cut = pages.cut_page(page, &mut self.buffers.page)?;
        facts.learn_unless_known(pages, &cut);
        if !hybrid::map_indices(cut.packed_indices()?, table, &mut joined.indices) {
            return Err(Refused::from("expected indices into the dictionary, found others").into());
        }
        if pages.definition > 0 {
            let count = usize::try_from(page.header.values).map_err(|_| Refused::Unknown)?;
            let Joined { present, levels, .. } = joined;
            let whole = match level_width(pages.definition) {
                1 => hybrid::read_bits(cut.definition, count, present),
                width => hybrid::read(Hybrid { bytes: cut.definition, width, count }, |some| levels.extend(some)),
            };
            if !whole {
                return Err(Refused::from("expected a level for each value").into());
            }
        }
        self.add_joined_facts(page, facts, joined)
    }

    /// Adds a page, whose indices and levels were added, to the joined page, which is written when it is full.
    fn add_joined_facts(&mut self, page: &Page, facts: Facts, joined: &mut Joined) -> Result<(), Stop> {
        match &mut joined.page {
            Some((_, all)) => all.join_next(facts, self.order),
            None => joined.page = Some((page.header, facts)),
        }
        if joined.indices.len().max(joined.levels.len()).max(joined.present.len()) >= JOINED {
            self.flush(joined)
        } else {
            Ok(())
        }
    }

    /// Writes the joined page.
    fn flush(&mut self, joined: &mut Joined) -> Result<(), Stop> {
        let Some((like, facts)) = joined.page.take() else { return Ok(()) };
        let body = &mut self.buffers.body;
        body.clear();
        let definition = self.target.column.max_def_level();
        if definition > 0 {
            let ((), length) = put_behind_length(body, |body| match level_width(definition) {
                1 => put_levels(body, &joined.present.finish()),
                width => put_hybrid(body, &joined.levels, width),
            });
            u32::try_from(length).map_err(|_| Refused::Unknown)?;
        }
        let width = width_of_all(&joined.indices);
        body.push(width);
        let (start, mut at, mut same) = (body.len(), 0, true);
        put_hybrid(body, &joined.indices, width);
        let written = Hybrid { bytes: &body[start..], width, count: joined.indices.len() };
        let whole = hybrid::read(written, |found| {
            same &= joined.indices.get(at..at + found.len()) == Some(found);
            at += found.len();
        });
        if !whole || !same {
            return Err(Error::inconsistent_output("expected the indices from the table, found others").into());
        }
        joined.indices.clear();
        joined.levels.clear();
        self.put_page(&like, INDICES, facts)
    }

    /// Rewrites the indices of a page.
    fn rewrite_indices(
        &mut self,
        pages: &Pages,
        page: &Page,
        mut facts: Facts,
        table: &[u32],
        to: u8,
    ) -> Result<(), Stop> {
        self.tally.spliced += page.whole.len() as u64;
        let cut = pages.cut_page(page, &mut self.buffers.page)?;
        facts.learn_unless_known(pages, &cut);
        let body = &mut self.buffers.body;
        body.clear();
        cut.put_levels(pages, body);
        let indices = cut.packed_indices()?;
        body.push(to);
        let start = body.len();
        let mut sums = Sums::default();
        let mapped =
            hybrid::remap_indices(indices, table, to, &mut self.buffers.values, body, |found| sums.add_indices(found));
        if !mapped {
            return Err(Refused::from("expected indices into the dictionary, found others").into());
        }
        // Read from the written bytes, independently of the table.
        let mut written = Sums::default();
        let output = Hybrid { bytes: &body[start..], width: to, count: cut.present };
        if !hybrid::read(output, |found| written.add_indices(found)) || written != sums {
            return Err(Error::inconsistent_output("expected the indices from the table, found others").into());
        }
        self.put_page(&page.header, INDICES, facts)
    }

    /// Writes the page in `body`, compressed if that is worthwhile; `like` is the page that it was made from.
    fn put_page(&mut self, like: &PageHeader, encoding: i32, facts: Facts) -> Result<(), Stop> {
        let MergeBuffers { body, packed, page, .. } = &mut self.buffers;
        packed.clear();
        let dense = like.compressed as f64 > INCOMPRESSIBLE * like.uncompressed as f64;
        let stored = dense && put_stored(self.target.name, body, packed);
        let packed = if stored { packed } else { self.compressor.compress(body, packed)? };
        if self.out.is_sample() {
            check_same(inflate_page(self.target.name, packed, body.len() as u64, page)?, &[body])?;
        }
        Ok(self.out.put_page(facts.values, encoding, body.len(), packed, Some(facts))?)
    }
}

/// Returns an error if a page decompresses to other bytes than those that it was made from.
fn check_same(found: &[u8], parts: &[&[u8]]) -> Result<()> {
    let mut rest = Some(found);
    for part in parts {
        rest = rest.and_then(|rest| rest.strip_prefix(*part));
    }
    if rest == Some(&[]) {
        Ok(())
    } else {
        Err(Error::inconsistent_output("expected the page as it was assembled, found another"))
    }
}

/// Estimates the number of distinct entries among `total` values, if `seen` values had `found`.
fn estimate_distinct(seen: u64, found: usize, total: u64) -> f64 {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    expected_entries(count(seen), found.min(count(seen)), count(total))
}

/// Returns whether a dictionary of that many entries, with its indices, is smaller than the values, given the
/// compression ratio of entries.
fn worth_uniting(entries: f64, entry_bytes: f64, total: u64, ratio: f64) -> bool {
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    let dictionary = entries * entry_bytes * ratio + index_bytes(entries, total);
    let plain = total as f64 * entry_bytes * ratio;
    dictionary < DICTIONARY_GAIN * plain && entries * entry_bytes <= PREDICTED_DICTIONARY_BYTES
}
