//! Dictionaries for values that were written without one and repeat often enough: the shard becomes smaller, and
//! readers that group or filter by the values compare indices instead of values.
//!
//! ```text
//! sample    the first pages of two parts --> number of distinct values --> worthwhile, or pages are copied
//! look up   each value of each page      --> its index; the dictionary grows
//! write     the dictionary, then pages of indices
//! ```

use arrow::{array::BooleanBufferBuilder, buffer::BooleanBuffer};

use super::{Joined, Loaded, MergeResult, Merging, Stop, estimate_distinct, hybrid, index_bytes, level_width};
use crate::format::parquet::splice::{
    page::{PLAIN, Page, PageResult, Pages, Refused},
    union::{EntryForm, Union},
};

/// Maximum size of the pages of indices and the dictionary relative to the values.
const GAIN: f64 = 0.7;

/// Maximum number of entries of the dictionary, predicted, and its maximum bytes, actual: with few entries, lookups
/// cost almost nothing and readers gain most.
const MAX_PREDICTED_ENTRIES: f64 = 16e3;
const MAX_DICTIONARY_BYTES: usize = 1 << 20;

/// Values with a new dictionary.
pub(super) struct KeyedColumn {
    form: EntryForm,
    union: Union,
    seen: RecentValues,
    /// The index of each value.
    numbers: Vec<u32>,
    /// Which rows have a value.
    present: BooleanBuffer,
    /// For each page its number of rows, and of rows with a value.
    pages: Vec<(usize, usize)>,
}

impl Merging<'_> {
    /// Looks up all values, if that is worthwhile; `None` if it is not, or some page has another encoding.
    pub(super) fn build_keyed(
        &mut self,
        parts: &[Loaded<'_>],
        form: Option<EntryForm>,
    ) -> MergeResult<Option<KeyedColumn>> {
        let pages = || parts.iter().flat_map(|part| part.pages.data.iter().map(move |page| (&part.pages, page)));
        let plain = |(pages, page): (&Pages, &Page)| {
            pages.repetition == 0 && pages.definition <= 1 && page.header.encoding == PLAIN
        };
        let Some(form) = form.filter(|form| matches!(form, EntryForm::Text | EntryForm::Fixed(4 | 8))) else {
            return Ok(None);
        };
        if parts.len() < 2 || !pages().all(plain) || !self.values_repeat(parts, form)? {
            return Ok(None);
        }
        let mut keyed = KeyedColumn {
            form,
            union: Union::new(),
            seen: RecentValues::new(),
            numbers: Vec::new(),
            present: BooleanBuffer::new_unset(0),
            pages: Vec::new(),
        };
        let mut present = BooleanBufferBuilder::new(0);
        for (at, part) in parts.iter().enumerate() {
            for page in &part.pages.data {
                let added = keyed.add_page(&part.pages, page, &mut self.buffers.page, &mut present);
                if !added.map_err(|refused| (Some(at), Stop::Refused(refused)))? {
                    return Ok(None);
                }
            }
        }
        keyed.present = present.finish();
        Ok(Some(keyed))
    }

    /// Predicts from two pages whether there are few distinct values.
    fn values_repeat(&mut self, parts: &[Loaded<'_>], form: EntryForm) -> MergeResult<bool> {
        let total: u64 = parts.iter().flat_map(|part| &part.pages.data).map(|page| page.header.values).sum();
        let (mut union, mut seen, mut bytes, mut stored) = (Union::new(), 0, 0, 0);
        for at in [0, parts.len() / 2] {
            let Some((part, page)) = parts.get(at).and_then(|part| Some((part, part.pages.data.first()?))) else {
                continue;
            };
            let mut looked = || -> PageResult<Option<usize>> {
                let cut = part.pages.cut_page(page, &mut self.buffers.page)?;
                let places = form.entry_starts(cut.values, cut.present).ok_or(Refused::from(TRUNCATED))?;
                bytes += cut.values.len();
                stored += page.body.len();
                Ok(union.add_entries(form, cut.values, &places).map(|numbers| numbers.len()))
            };
            match looked().map_err(|refused| (Some(at), Stop::Refused(refused)))? {
                Some(count) => seen += count as u64,
                None => return Ok(false),
            }
        }
        if seen == 0 {
            return Ok(false);
        }
        let entries = estimate_distinct(seen, union.entry_count(), total);
        let dictionary = entries * union.page().len() as f64 / union.entry_count() as f64;
        let ratio = stored as f64 / bytes.max(1) as f64;
        let plain = bytes as f64 / seen as f64 * total as f64 * ratio;
        let indices = index_bytes(entries, usize::try_from(total).unwrap_or(usize::MAX));
        Ok(entries <= MAX_PREDICTED_ENTRIES && dictionary * ratio.min(1.0) + indices < GAIN * plain)
    }

    /// Writes the dictionary and the pages of indices.
    pub(super) fn write_keyed(&mut self, parts: Vec<Loaded<'_>>, keyed: &KeyedColumn) -> MergeResult<()> {
        self.put_dictionary(&keyed.union)?;
        let (mut row, mut value) = (0, 0);
        let mut counts = keyed.pages.iter();
        let mut joined = Joined::new();
        for (at, part) in parts.into_iter().enumerate() {
            let stopped = |stop| (Some(at), stop);
            for (page, mut facts) in part.pages.data.iter().zip(part.facts) {
                let Some((rows, values)) = counts.next() else { break };
                self.tally.reencoded += page.whole.len() as u64;
                if !facts.are_known() {
                    let levels = part.pages.cut_levels(page, &mut self.buffers.page).map_err(|e| stopped(e.into()))?;
                    facts.learn_unless_known(&part.pages, &levels);
                }
                joined.indices.extend_from_slice(&keyed.numbers[value..value + values]);
                if part.pages.definition > 0 {
                    joined.present.append_buffer(&keyed.present.slice(row, *rows));
                    row += rows;
                }
                value += values;
                self.add_joined_facts(page, facts, &mut joined).map_err(stopped)?;
            }
        }
        self.flush(&mut joined).map_err(|stop| (None, stop))
    }
}

/// Error message about a page that ends too early.
const TRUNCATED: &str = "expected more values, found the end of the page";

impl KeyedColumn {
    /// Looks up the values of a page; returns false if there are too many distinct ones.
    fn add_page(
        &mut self,
        pages: &Pages,
        page: &Page,
        room: &mut Vec<u8>,
        present: &mut BooleanBufferBuilder,
    ) -> PageResult<bool> {
        let cut = pages.cut_page(page, room)?;
        let rows = usize::try_from(page.header.values).map_err(|_| Refused::Unknown)?;
        if pages.definition > 0 {
            debug_assert_eq!(level_width(pages.definition), 1);
            if !hybrid::read_bits(cut.definition, rows, present) {
                return Err("expected a level for each value".into());
            }
        }
        self.pages.push((rows, cut.present));
        let (seen, union, numbers) = (&mut self.seen, &mut self.union, &mut self.numbers);
        let found = match self.form {
            EntryForm::Fixed(4) => seen.look_up_words::<4>(cut.values, cut.present, union, numbers),
            EntryForm::Fixed(8) => seen.look_up_words::<8>(cut.values, cut.present, union, numbers),
            _ => seen.look_up_texts(cut.values, cut.present, union, numbers),
        };
        found.ok_or(Refused::from(TRUNCATED))?;
        Ok(self.union.page().len() <= MAX_DICTIONARY_BYTES)
    }
}

/// Cache of short values that were looked up before, at the slots of their hashes; each slot has the latest value.
struct RecentValues(Vec<(Short, u32)>);

/// A value in the lower bytes, and its length; `NONE` has a length that no value has.
type Short = (u128, u32);
const NONE: Short = (0, u32::MAX);

/// Maximum bytes of a short text.
const SHORT: usize = size_of::<u128>();

/// Number of cached values, a power of two.
const CACHE_SLOTS: usize = 1 << 14;

/// For each length, the mask of the bytes that belong to the text.
const MASKS: [u128; SHORT + 1] = {
    let mut masks = [u128::MAX; SHORT + 1];
    let mut length = 0;
    while length < SHORT {
        masks[length] = (1 << (8 * length)) - 1;
        length += 1;
    }
    masks
};

impl RecentValues {
    fn new() -> Self {
        Self(vec![(NONE, 0); CACHE_SLOTS])
    }

    /// Appends the indices of `count` texts of a page; `None` if the page has fewer, or there are too many for a
    /// dictionary.
    fn look_up_texts(&mut self, mut page: &[u8], count: usize, union: &mut Union, out: &mut Vec<u32>) -> Option<()> {
        out.reserve(count);
        for _ in 0..count {
            let (length, rest) = page.split_first_chunk()?;
            let short = u32::from_le_bytes(*length);
            let length = usize::try_from(short).ok()?;
            let number = match (MASKS.get(length), rest.first_chunk()) {
                (Some(mask), Some(bytes)) => {
                    let text = (u128::from_le_bytes(*bytes) & mask, short);
                    self.cached_number(text, || union.number_of(EntryForm::Text, page.get(..LENGTH + length)?))?
                }
                _ => union.number_of(EntryForm::Text, page.get(..LENGTH + length)?)?,
            };
            out.push(number);
            page = rest.get(length..)?;
        }
        Some(())
    }

    /// Like `texts`, for values of `W` bytes.
    fn look_up_words<const W: usize>(
        &mut self,
        page: &[u8],
        count: usize,
        union: &mut Union,
        out: &mut Vec<u32>,
    ) -> Option<()> {
        let words = page.as_chunks::<W>().0.get(..count)?;
        out.reserve(count);
        for word in words {
            let mut bytes = [0; SHORT];
            bytes[..W].copy_from_slice(word);
            let word = (u128::from_le_bytes(bytes), 0);
            out.push(self.cached_number(word, || union.number_of(EntryForm::Fixed(W), &bytes[..W]))?);
        }
        Some(())
    }

    #[inline(always)]
    fn cached_number(&mut self, value: Short, find: impl FnOnce() -> Option<u32>) -> Option<u32> {
        let slot = &mut self.0[slot_of(value)];
        if slot.0 != value {
            *slot = (value, find()?);
        }
        Some(slot.1)
    }
}

/// Bytes of a text's length prefix.
const LENGTH: usize = 4;

#[expect(clippy::cast_possible_truncation, reason = "the upper bits are meant, which are fewer")]
fn slot_of((text, length): Short) -> usize {
    /// Odd multiplier without regular bit patterns.
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let folded = (text as u64) ^ ((text >> 64) as u64).rotate_left(29) ^ u64::from(length);
    (folded.wrapping_mul(MIX) >> (u64::BITS - CACHE_SLOTS.trailing_zeros())) as usize
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_text_has_its_number(texts in prop::collection::vec("[ab\0]{0,3}|[a-d]{14,18}|.{0,9}", 0..900),
            cut in 0_usize..40) {
            let mut page = Vec::new();
            for text in &texts {
                page.extend_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
                page.extend_from_slice(text.as_bytes());
            }
            let (mut seen, mut union, mut numbers) = (RecentValues::new(), Union::new(), Vec::new());
            seen.look_up_texts(&page, texts.len(), &mut union, &mut numbers).unwrap();
            let places = EntryForm::Text.entry_starts(union.page(), union.entry_count()).unwrap();
            for (text, number) in texts.iter().zip(&numbers) {
                let number = *number as usize;
                let entry = &union.page()[places[number] as usize..places[number + 1] as usize];
                prop_assert_eq!(&entry[LENGTH..], text.as_bytes());
            }
            let different: std::collections::BTreeSet<_> = texts.iter().collect();
            prop_assert_eq!(union.entry_count(), different.len());
            let words: Vec<u8> = texts.iter().flat_map(|text| (text.len() as u64).to_le_bytes()).collect();
            let (mut seen, mut lengths, mut found) = (RecentValues::new(), Union::new(), Vec::new());
            seen.look_up_words::<8>(&words, texts.len(), &mut lengths, &mut found).unwrap();
            prop_assert!(seen.look_up_words::<8>(&words, texts.len() + 1, &mut lengths, &mut Vec::new()).is_none());
            for (text, number) in texts.iter().zip(found) {
                let at = number as usize * 8;
                prop_assert_eq!(&lengths.page()[at..at + 8], &(text.len() as u64).to_le_bytes());
            }
            let short = &page[..page.len().saturating_sub(cut + 1)];
            let found = seen.look_up_texts(short, texts.len(), &mut union, &mut numbers);
            prop_assert!(texts.is_empty() || found.is_none());
        }
    }
}
