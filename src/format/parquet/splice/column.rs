//! One column of several row groups becomes one chunk, by the cheapest way that each of its pages allows.
//!
//! ```text
//! no dictionary, or the same one     pages as they are
//! dictionaries that have much in     entries united; indices rewritten through a table, levels untouched
//! common
//! nearly every value once            indices 0, 1, 2 ...: the dictionary becomes a page of values, its compressed bytes
//!                                    untouched behind the levels; else values gathered from the dictionary
//! another codec                      pages inflated and compressed again; nothing is decoded
//! ```
//!
//! A united dictionary holds each value once: pyarrow reads wrong values, without an error, where one occurs twice.
//! Rewritten pages are of version 1, which all readers take.

use ::parquet::{basic::Compression, file::metadata::ColumnChunkMetaData, schema::types::ColumnDescPtr};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    super::chunk::{Compressor, expected_entries, width_of},
    Tally,
    bounds::Order,
    facts::{Facts, Indexes, facts_of},
    hybrid,
    out::{Out, SplicedChunk},
    page::{Cut, PLAIN, Page, Pages, Refused, Taken, form_of, inflate},
    proof::{Inner, Sums},
    stored::{put_before, put_stored},
    union::{Form, Union},
};
use crate::{
    codec::Codec,
    error::{Error, Result},
    format::ranged::RangedInput,
};

/// Parts whose dictionaries are looked at before it is decided what becomes of all.
const SAMPLE: usize = 6;

/// A dictionary must be this much smaller than the values: readers hold it in memory.
const DICTIONARY_GAIN: f64 = 0.95;

/// Bytes of a dictionary as it is foreseen, and as it comes out: beyond, filters on single values become slow.
const DICTIONARY_BYTES: f64 = 4e6;
const MOST_DICTIONARY_BYTES: usize = 8 << 20;

/// Bytes of a page of gathered values.
const MOST_GATHERED: usize = 16 << 20;

/// A page that was compressed to more than this part of it is stored as it is.
const INCOMPRESSIBLE: f64 = 0.9;

/// Number of the encoding of indices into a dictionary.
const INDICES: i32 = 8;

/// A chunk of an input.
pub(super) struct Part<'a> {
    /// Name of the file, for errors.
    pub(super) name: &'a str,
    pub(super) input: &'a RangedInput,
    pub(super) chunk: &'a ColumnChunkMetaData,
    pub(super) indexes: Indexes<'a>,
    /// Rows of its row group.
    pub(super) rows: u64,
}

/// What a column is merged into.
pub(super) struct Target<'a> {
    pub(super) column: &'a ColumnDescPtr,
    pub(super) codec: Codec,
    /// The codec by its name in footers.
    pub(super) name: Compression,
}

/// A part whose pages are known.
struct Loaded<'a> {
    part: &'a Part<'a>,
    pages: Pages,
    facts: Vec<Facts>,
}

/// Merges the chunks, in order; `None` when some are made in a way that only the decoder knows.
///
/// # Errors
/// When a part is damaged, naming its file, or cannot be read.
pub(super) fn merge(target: &Target<'_>, parts: &[Part<'_>]) -> Result<Option<(SplicedChunk, Tally)>> {
    let order = Order::of(target.column);
    let mut buffers = Buffers::default();
    let mut loaded = Vec::with_capacity(parts.len());
    for part in parts {
        let bytes = part.input.range(range_of(part)?).map_err(|e| e.at(part.name))?;
        match load(part, bytes, order, &mut buffers.page).map(|(pages, facts)| Loaded { part, pages, facts }) {
            Ok(one) => loaded.push(one),
            Err(Refused::Unknown) => return Ok(None),
            Err(Refused::Damaged(message)) => return Err(damaged(part, &message)),
        }
    }
    let merging = Merging {
        target,
        out: Out::new(target.column, target.name),
        compressor: Compressor::new(target.codec)?,
        tally: Tally::default(),
        buffers,
    };
    let chunks: Vec<_> = parts.iter().map(|part| part.chunk).collect();
    let rows = parts.iter().map(|part| part.rows).sum();
    match merging.run(loaded) {
        Ok((out, tally)) => Ok(Some((out.finish(&chunks, rows, order)?, tally))),
        Err((_, Stop::Refused(Refused::Unknown))) => Ok(None),
        Err((Some(at), Stop::Refused(Refused::Damaged(message)))) => Err(damaged(&parts[at], &message)),
        Err((None, Stop::Refused(Refused::Damaged(message)))) => Err(Error::internal(message)),
        Err((_, Stop::Failed(error))) => Err(error),
    }
}

fn damaged(part: &Part<'_>, message: &str) -> Error {
    let cause = format!("column {}: {message}", part.chunk.column_path());
    Error::input("expected a Parquet file, found one that cannot be decoded").cause(cause).at(part.name)
}

fn range_of(part: &Part<'_>) -> Result<std::ops::Range<u64>> {
    let place = |offset: i64| u64::try_from(offset).map_err(|_| damaged(part, "expected an offset, found one below 0"));
    let chunk = part.chunk;
    let start = place(chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset()))?;
    let end = start.saturating_add(place(chunk.compressed_size())?);
    if end > part.input.bytes() {
        return Err(damaged(part, "expected a column chunk within the file"));
    }
    Ok(start..end)
}

fn load(part: &Part<'_>, bytes: Bytes, order: Order, buffer: &mut Vec<u8>) -> Taken<(Pages, Vec<Facts>)> {
    let pages = Pages::of(bytes, part.chunk)?;
    let facts = facts_of(&pages, part.chunk, part.indexes, order, part.rows, buffer)?;
    let rows = facts.iter().map(|page| page.rows).sum::<Option<u64>>();
    if rows.is_some_and(|rows| rows != part.rows) {
        let message = format!("expected {} rows as in the footer, found {} in the pages", part.rows, rows.unwrap_or(0));
        return Err(Refused::Damaged(message));
    }
    Ok((pages, facts))
}

/// Memory that is used again.
#[derive(Default)]
struct Buffers {
    page: Vec<u8>,
    dictionary: Vec<u8>,
    body: Vec<u8>,
    packed: Vec<u8>,
}

/// Why merging stops.
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

/// A merge under way.
struct Merging<'a> {
    target: &'a Target<'a>,
    out: Out,
    compressor: Compressor,
    tally: Tally,
    buffers: Buffers,
}

/// With the number of the part at fault.
type Step<T> = Result<T, (Option<usize>, Stop)>;

impl Merging<'_> {
    fn run(mut self, mut parts: Vec<Loaded<'_>>) -> Step<(Out, Tally)> {
        let indexed = |part: &Loaded<'_>| part.pages.data.iter().any(Pages::is_indices);
        if !parts.iter().any(indexed) {
            self.copy_all(parts)?;
        } else if self.same_dictionary(&parts) {
            if let Some(first) = parts.iter().find(|part| indexed(part))
                && let Some(page) = &first.pages.dictionary
            {
                let bytes = first.pages.bytes.slice(page.whole.clone());
                self.out.copy(bytes, &page.header, None).map_err(|e| (None, e.into()))?;
            }
            self.copy_all(parts)?;
        } else {
            let form = parts.first().and_then(|part| form_of(part.part.chunk));
            let form = form.ok_or((None, Stop::Refused(Refused::Unknown)))?;
            match self.united(&parts, form)? {
                Some((union, tables)) => self.rewrite_all(parts, &union, &tables)?,
                None => {
                    for (at, part) in parts.drain(..).enumerate() {
                        self.gather(part, form).map_err(|stop| (Some(at), stop))?;
                    }
                }
            }
        }
        Ok((self.out, self.tally))
    }

    /// Whether the dictionaries of all parts that have one are the same, byte by byte, and can stay as they are.
    fn same_dictionary(&self, parts: &[Loaded<'_>]) -> bool {
        let mut dictionaries = parts.iter().filter(|part| part.pages.data.iter().any(Pages::is_indices)).map(|part| {
            let page = part.pages.dictionary.as_ref()?;
            Some((page.header.values, page.header.encoding, part.pages.stored(page)))
        });
        let first = dictionaries.next();
        parts.iter().all(|part| self.keeps(&part.pages)) && dictionaries.all(|other| Some(other) == first)
    }

    fn keeps(&self, pages: &Pages) -> bool {
        std::mem::discriminant(&pages.codec) == std::mem::discriminant(&self.target.name)
    }

    fn copy_all(&mut self, parts: Vec<Loaded<'_>>) -> Step<()> {
        for (at, part) in parts.into_iter().enumerate() {
            for (page, facts) in part.pages.data.iter().zip(part.facts) {
                self.copy(&part.pages, page, facts).map_err(|stop| (Some(at), stop))?;
            }
        }
        Ok(())
    }

    /// Takes over a page whose values need no change.
    fn copy(&mut self, pages: &Pages, page: &Page, facts: Facts) -> Result<(), Stop> {
        if self.keeps(pages) {
            self.tally.copied += page.whole.len() as u64;
            return Ok(self.out.copy(pages.bytes.slice(page.whole.clone()), &page.header, Some(facts))?);
        }
        self.tally.reencoded += page.whole.len() as u64;
        let cut = pages.cut(page, &mut self.buffers.page)?;
        let body = &mut self.buffers.body;
        body.clear();
        cut.put_levels(pages, body);
        body.extend_from_slice(cut.values);
        let encoding = i32::try_from(page.header.encoding).unwrap_or(-1);
        let packed = self.compressor.compress(body, &mut self.buffers.packed)?;
        Ok(self.out.page(facts.values, encoding, body.len(), packed, Some(facts))?)
    }

    /// Unites the dictionaries of all parts, unless values are better off without one. With the dictionary come, for
    /// each part, the numbers that its entries have in it.
    fn united(&mut self, parts: &[Loaded<'_>], form: Form) -> Step<Option<(Union, Vec<Vec<u32>>)>> {
        let indices = |part: &Loaded<'_>| -> u64 {
            let pages = part.pages.data.iter().zip(&part.facts).filter(|(page, _)| Pages::is_indices(page));
            pages.map(|(_, facts)| facts.values - facts.nulls.unwrap_or(0).min(facts.values)).sum()
        };
        let total: u64 = parts.iter().map(indices).sum();
        let (mut union, mut tables) = (Union::new(), Vec::with_capacity(parts.len()));
        let (mut seen, mut packed, mut inflated) = (0, 0, 0);
        for (at, part) in parts.iter().enumerate() {
            let values = indices(part);
            if values == 0 {
                tables.push(Vec::new());
                continue;
            }
            let found = part.pages.dictionary(form, &mut self.buffers.dictionary);
            let (page, places) = found.map_err(|refused| (Some(at), refused.into()))?;
            let table = union.numbers(form, page, &places);
            let Some(table) = table.filter(|_| union.page().len() <= MOST_DICTIONARY_BYTES) else { return Ok(None) };
            tables.push(table);
            seen += values;
            inflated += page.len();
            packed += part.pages.dictionary.as_ref().map_or(0, |page| page.body.len());
            if (at + 1 == SAMPLE || at + 1 == parts.len())
                && !worth_uniting(&union, seen, total, packed as f64 / inflated.max(1) as f64)
            {
                return Ok(None);
            }
        }
        Ok(Some((union, tables)))
    }

    fn rewrite_all(&mut self, parts: Vec<Loaded<'_>>, union: &Union, tables: &[Vec<u32>]) -> Step<()> {
        let dictionary = union.page();
        let failed = |error: Error| (None, error.into());
        let packed = self.compressor.compress(dictionary, &mut self.buffers.packed).map_err(failed)?;
        let entries = union.entries() as u64;
        self.out.page(entries, i32::try_from(PLAIN).unwrap_or(0), dictionary.len(), packed, None).map_err(failed)?;
        for (at, (part, table)) in parts.into_iter().zip(tables).enumerate() {
            // Entries are added as parts come, so that the indices of the first ones are narrow.
            let width = width_of(table.iter().max().copied().unwrap_or(0).into());
            self.tally.spliced += part.pages.dictionary.as_ref().map_or(0, |page| page.whole.len() as u64);
            for (page, facts) in part.pages.data.iter().zip(part.facts) {
                if Pages::is_indices(page) {
                    self.rewrite(&part.pages, page, facts, table, width)
                } else {
                    self.copy(&part.pages, page, facts)
                }
                .map_err(|stop| (Some(at), stop))?;
            }
        }
        Ok(())
    }

    /// Rewrites the indices of a page.
    fn rewrite(&mut self, pages: &Pages, page: &Page, mut facts: Facts, table: &[u32], to: u8) -> Result<(), Stop> {
        self.tally.spliced += page.whole.len() as u64;
        let cut = pages.cut(page, &mut self.buffers.page)?;
        facts.learn_unless_known(&cut);
        let body = &mut self.buffers.body;
        body.clear();
        cut.put_levels(pages, body);
        let (width, indices) = cut.indices()?;
        body.push(to);
        let mut sums = Sums::default();
        if !hybrid::remap(indices, width, cut.present, table, to, body, |found| sums.add(found)) {
            return Err(Refused::from("expected indices into the dictionary, found others").into());
        }
        self.put(page, INDICES, facts)?;
        self.out.note(Inner::Indices(sums));
        Ok(())
    }

    /// Writes the page in `body`, compressed if that is worth it; `page` is what it was made of.
    fn put(&mut self, page: &Page, encoding: i32, facts: Facts) -> Result<(), Stop> {
        let Buffers { body, packed, .. } = &mut self.buffers;
        let fits = page.header.compressed as f64 > INCOMPRESSIBLE * page.header.uncompressed as f64;
        if fits {
            packed.clear();
            if put_stored(self.target.name, body, packed) {
                return Ok(self.out.page(facts.values, encoding, body.len(), packed, Some(facts))?);
            }
        }
        let packed = self.compressor.compress(body, packed)?;
        Ok(self.out.page(facts.values, encoding, body.len(), packed, Some(facts))?)
    }

    /// Writes the values of a part without a dictionary.
    fn gather(&mut self, part: Loaded<'_>, form: Form) -> Result<(), Stop> {
        let Loaded { pages, facts, .. } = part;
        let indexed = pages.data.iter().filter(|page| Pages::is_indices(page)).count();
        self.tally.spliced += pages.dictionary.as_ref().map_or(0, |page| page.whole.len() as u64);
        let mut places = None;
        for (page, mut facts) in pages.data.iter().zip(facts) {
            if !Pages::is_indices(page) {
                self.copy(&pages, page, facts)?;
                continue;
            }
            self.tally.spliced += page.whole.len() as u64;
            let mut room = std::mem::take(&mut self.buffers.page);
            let cut = pages.cut(page, &mut room)?;
            facts.learn_unless_known(&cut);
            if indexed > 1 || !self.turn_dictionary(&pages, &cut, &facts)? {
                if places.is_none() {
                    places = Some(self.load_dictionary(&pages, form)?);
                }
                self.gather_page(&pages, &cut, facts, places.as_deref().unwrap_or_default())?;
            }
            self.buffers.page = room;
        }
        Ok(())
    }

    /// Makes the dictionary a page of values, if it has each value once and in order; false if it has not.
    fn turn_dictionary(&mut self, pages: &Pages, cut: &Cut<'_>, facts: &Facts) -> Result<bool, Stop> {
        let Some(entries) = pages.dictionary.as_ref().filter(|_| self.keeps(pages)) else { return Ok(false) };
        let (width, indices) = cut.indices()?;
        let straight = entries.header.values == cut.present as u64
            && matches!(entries.header.encoding, 0 | 2)
            && hybrid::counts_up(indices, width, cut.present);
        if !straight {
            return Ok(false);
        }
        let Buffers { body, packed, .. } = &mut self.buffers;
        body.clear();
        packed.clear();
        cut.put_levels(pages, body);
        let length = entries.header.uncompressed;
        if !put_before(self.target.name, body, pages.stored(entries), length, packed) {
            return Ok(false);
        }
        let inflated = body.len() + usize::try_from(length).map_err(|_| Refused::Unknown)?;
        self.out.page(facts.values, 0, inflated, packed, Some(facts.clone()))?;
        if self.out.is_sample() {
            let length = entries.header.uncompressed;
            let values = inflate(pages.codec, pages.stored(entries), length, &mut self.buffers.dictionary)?;
            self.out.note(Inner::Values(xxh3_64(values)));
        }
        Ok(true)
    }

    /// Inflates the dictionary into its buffer and finds its entries.
    fn load_dictionary(&mut self, pages: &Pages, form: Form) -> Taken<Vec<u32>> {
        let mut room = std::mem::take(&mut self.buffers.dictionary);
        let (page, places) = pages.dictionary(form, &mut room)?;
        if pages.codec == Compression::UNCOMPRESSED {
            // Nothing was inflated.
            room = page.to_vec();
        }
        self.buffers.dictionary = room;
        Ok(places)
    }

    /// Writes the values of a page, which stand in the loaded dictionary.
    fn gather_page(&mut self, pages: &Pages, cut: &Cut<'_>, facts: Facts, places: &[u32]) -> Result<(), Stop> {
        let Buffers { body, packed, dictionary, .. } = &mut self.buffers;
        body.clear();
        cut.put_levels(pages, body);
        let levels = body.len();
        let (width, indices) = cut.indices()?;
        let mut beyond = false;
        let whole = hybrid::read(indices, width, cut.present, |indices| {
            for index in indices {
                let index = *index as usize;
                match (places.get(index), places.get(index + 1)) {
                    (Some(start), Some(end)) if body.len() <= MOST_GATHERED => {
                        body.extend_from_slice(&dictionary[*start as usize..*end as usize]);
                    }
                    (Some(_), Some(_)) => {}
                    _ => beyond = true,
                }
            }
        });
        if beyond || !whole {
            return Err(Refused::from("expected indices into the dictionary, found others").into());
        }
        if body.len() > MOST_GATHERED {
            return Err(Refused::Unknown.into());
        }
        let packed = self.compressor.compress(body, packed)?;
        self.out.page(facts.values, 0, body.len(), packed, Some(facts))?;
        if self.out.is_sample() {
            self.out.note(Inner::Values(xxh3_64(&body[levels..])));
        }
        Ok(())
    }
}

/// Whether a dictionary of all values is likely to be smaller than the values, given what `seen` of `total` values had
/// and how well entries are compressed.
fn worth_uniting(union: &Union, seen: u64, total: u64, ratio: f64) -> bool {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let entries = expected_entries(count(seen), union.entries().min(count(seen)), count(total));
    let entry_bytes = union.page().len() as f64 / union.entries().max(1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the number of values")]
    let width = width_of(entries as u64);
    let dictionary = entries * entry_bytes * ratio + total as f64 * f64::from(width) / 8.0;
    let plain = total as f64 * entry_bytes * ratio;
    dictionary < DICTIONARY_GAIN * plain && entries * entry_bytes <= DICTIONARY_BYTES
}
