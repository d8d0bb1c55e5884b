//! Values that nearly all differ: dictionaries become pages of values.
//!
//! ```text
//! indices 0, 1, 2 ...              the dictionary becomes a page, its compressed bytes unchanged after the levels
//! nearly so, and snappy            the compressed dictionary is expanded into a page (`expand`)
//! anything else                    values are gathered from the dictionary, and compressed
//! ```

use std::ops::Range;

use ::parquet::basic::Compression;

use super::{
    CutPage, EntryForm, Facts, INCOMPRESSIBLE, Loaded, MergeBuffers, Merging, PageResult, Pages, Refused, Stop,
    check_same, hybrid, inflate_page, put_before, put_behind_length,
};
use crate::format::parquet::splice::expand::{Expander, SnappyDictionary};

/// Maximum bytes of a page of gathered values, and of a dictionary that replaces several pages by one.
const MAX_GATHERED: usize = 16 << 20;
const MAX_TURNED: u64 = 4 << 20;

/// Maximum number of separate byte ranges in a page.
const MAX_RANGES: usize = 1 << 20;

impl Merging<'_> {
    /// Writes the values of a part without a dictionary.
    pub(super) fn gather_values(&mut self, part: Loaded<'_>, form: EntryForm) -> Result<(), Stop> {
        let Loaded { pages, mut facts, .. } = part;
        self.tally.spliced += pages.dictionary.as_ref().map_or(0, |page| page.whole.len() as u64);
        let indexed = |number: &usize| Pages::is_indices(&pages.data[*number]);
        let first = (0..pages.data.len()).find(indexed).unwrap_or_default();
        let end = first + (first..pages.data.len()).take_while(indexed).count();
        let only = !(end..pages.data.len()).any(|number| indexed(&number));
        let (mut places, mut turned) = (None, 0..0);
        let mut expander = self.can_expand(&pages).then(Expander::default);
        for (number, page) in pages.data.iter().enumerate() {
            if !Pages::is_indices(page) {
                self.copy_page(&pages, page, std::mem::take(&mut facts[number]))?;
                continue;
            }
            self.tally.spliced += page.whole.len() as u64;
            if number == first && only && self.turn_dictionary(&pages, first..end, &mut facts)? {
                turned = first..end;
            }
            if turned.contains(&number) {
                continue;
            }
            if places.is_none() {
                places = Some(self.load_dictionary(&pages, form)?);
            }
            let mut room = std::mem::take(&mut self.buffers.page);
            let cut = pages.cut_page(page, &mut room)?;
            let mut facts = std::mem::take(&mut facts[number]);
            facts.learn_unless_known(&pages, &cut);
            self.gather_page(&pages, &cut, facts, places.as_deref().unwrap_or_default(), &mut expander)?;
            self.buffers.page = room;
        }
        Ok(())
    }

    /// Replaces the dictionary by a page of values, if some pages of indices refer to each of its entries once and in
    /// order; returns false if they do not.
    fn turn_dictionary(&mut self, pages: &Pages, of: Range<usize>, facts: &mut [Facts]) -> Result<bool, Stop> {
        let Some(entries) = pages.dictionary.as_ref().filter(|_| self.keeps_codec(pages)) else { return Ok(false) };
        let inflated = entries.header.uncompressed;
        let may = matches!(entries.header.encoding, 0 | 2)
            && (of.len() == 1 || (pages.repetition == 0 && inflated <= MAX_TURNED));
        if !may {
            return Ok(false);
        }
        let mut next = 0_u32;
        let (mut levels, mut counts) = (Vec::new(), Vec::with_capacity(of.len()));
        let MergeBuffers { page: room, body, packed, dictionary, .. } = &mut self.buffers;
        body.clear();
        packed.clear();
        for number in of.clone() {
            let page = &pages.data[number];
            let cut = pages.cut_page(page, room)?;
            if !hybrid::counts_up(cut.packed_indices()?, next) {
                return Ok(false);
            }
            next = u32::try_from(next as usize + cut.present).map_err(|_| Refused::Unknown)?;
            facts[number].learn_unless_known(pages, &cut);
            if of.len() == 1 {
                cut.put_levels(pages, body);
            }
            counts.push((levels.len()..levels.len() + cut.definition.len(), page.header.values));
            levels.extend_from_slice(cut.definition);
        }
        if entries.header.values != u64::from(next) {
            return Ok(false);
        }
        if of.len() > 1 && pages.definition > 0 {
            let count = |values: u64| usize::try_from(values).unwrap_or(usize::MAX);
            let parts: Vec<_> = counts.into_iter().map(|(at, values)| (&levels[at], count(values))).collect();
            let (whole, length) = put_behind_length(body, |body| hybrid::join_levels(&parts, pages.definition, body));
            if !whole {
                return Err(Refused::from("expected a level for each value").into());
            }
            u32::try_from(length).map_err(|_| Refused::Unknown)?;
        }
        if !put_before(self.target.name, body, pages.stored_body(entries), inflated, packed) {
            return Ok(false);
        }
        let mut all = std::mem::take(&mut facts[of.start]);
        for number in of.skip(1) {
            all.join_next(std::mem::take(&mut facts[number]), self.order);
        }
        let length = body.len() + usize::try_from(inflated).map_err(|_| Refused::Unknown)?;
        if self.out.is_sample() {
            let values = inflate_page(pages.codec, pages.stored_body(entries), inflated, dictionary)?;
            check_same(inflate_page(pages.codec, packed, length as u64, room)?, &[body, values])?;
        }
        self.out.put_page(all.values, 0, length, packed, Some(all))?;
        Ok(true)
    }

    /// Decompresses the dictionary into its buffer and finds its entries.
    fn load_dictionary(&mut self, pages: &Pages, form: EntryForm) -> PageResult<Vec<u32>> {
        let mut room = std::mem::take(&mut self.buffers.dictionary);
        let (page, places) = pages.inflate_dictionary(form, &mut room)?;
        if pages.codec == Compression::UNCOMPRESSED {
            // The dictionary was not compressed.
            room = page.to_vec();
        }
        self.buffers.dictionary = room;
        Ok(places)
    }

    /// Returns whether the compressed dictionary may be expanded into pages.
    fn can_expand(&self, pages: &Pages) -> bool {
        let compressed = |entries: &super::Page| {
            entries.header.compressed as f64 <= INCOMPRESSIBLE * entries.header.uncompressed as f64
        };
        pages.codec == Compression::SNAPPY
            && self.keeps_codec(pages)
            && pages.dictionary.as_ref().is_some_and(compressed)
    }

    /// Writes the values of a page from the loaded dictionary.
    fn gather_page(
        &mut self,
        pages: &Pages,
        cut: &CutPage<'_>,
        facts: Facts,
        places: &[u32],
        expander: &mut Option<Expander>,
    ) -> Result<(), Stop> {
        let entries = pages.dictionary.as_ref().ok_or(Refused::Unknown)?;
        let ranges = value_ranges(cut, places)?;
        let MergeBuffers { body, dictionary, packed, page, .. } = &mut self.buffers;
        body.clear();
        cut.put_levels(pages, body);
        let length = body.len() + ranges.iter().map(|range| range.len()).sum::<usize>();
        if length > MAX_GATHERED {
            return Err(Refused::Unknown.into());
        }
        packed.clear();
        // The buffer may be longer, and then has bytes of an earlier dictionary after those of this one.
        let inflated = usize::try_from(entries.header.uncompressed).ok().and_then(|length| dictionary.get(..length));
        let source = SnappyDictionary { packed: pages.stored_body(entries), inflated: inflated.unwrap_or_default() };
        let expanded = expander.as_mut().and_then(|expander| expander.expand_page(source, body, &ranges, packed));
        let sampled = self.out.is_sample();
        if expanded.is_none() || sampled {
            ranges.iter().for_each(|range| body.extend_from_slice(&dictionary[range.clone()]));
        }
        if expanded.is_none() {
            *expander = None;
            return self.put_page(&entries.header, 0, facts);
        }
        if sampled {
            check_same(inflate_page(pages.codec, packed, length as u64, page)?, &[body])?;
        }
        Ok(self.out.put_page(facts.values, 0, length, packed, Some(facts))?)
    }
}

/// Returns the byte ranges of the dictionary that are the values of a page. Adjacent ones are joined: if nearly all
/// values differ, most are adjacent.
fn value_ranges(cut: &CutPage<'_>, places: &[u32]) -> PageResult<Vec<Range<usize>>> {
    let (mut ranges, mut beyond) = (Vec::<Range<usize>>::new(), false);
    let whole = hybrid::read(cut.packed_indices()?, |indices| {
        for index in indices {
            let Some([start, end]) = places.get(*index as usize..).and_then(|rest| rest.first_chunk()) else {
                beyond = true;
                continue;
            };
            let (start, end) = (*start as usize, *end as usize);
            if let Some(last) = ranges.last_mut().filter(|last| last.end == start) {
                last.end = end;
            } else if ranges.len() <= MAX_RANGES {
                // Not more: a few bytes may repeat an index billions of times.
                ranges.push(start..end);
            }
        }
    });
    if beyond || !whole {
        return Err(Refused::from("expected indices into the dictionary, found others"));
    }
    if ranges.len() > MAX_RANGES {
        return Err(Refused::Unknown);
    }
    Ok(ranges)
}
