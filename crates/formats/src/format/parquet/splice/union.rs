//! Unites several dictionaries: each distinct entry once, in the order of first occurrence.
//!
//! Entries are stored in the form of a dictionary page, so that the page is complete when the last one was added. They
//! are compared by their bytes alone: numbers that are equal but have different bits, such as 0 and -0, remain two
//! entries.
//!
//! ```text
//! slot   0  free        or   upper half of the hash << 32 | entry + 1
//! ```

use xxhash_rust::xxh3::xxh3_64;

use super::super::chunk::first_last_words;

/// Bytes of a text's length prefix.
const LENGTH: usize = 4;

/// Form of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryForm {
    /// Fixed size in bytes.
    Fixed(usize),
    /// Length as a u32, then that many bytes.
    Text,
}

impl EntryForm {
    /// Returns the start of each entry of a dictionary page, and the end of the last one; `None` if there are fewer
    /// entries.
    pub(super) fn entry_starts(self, page: &[u8], entries: usize) -> Option<Vec<u32>> {
        u32::try_from(page.len()).ok()?;
        // Each entry has at least one byte, so a wrong number cannot cause a large allocation.
        let shortest = match self {
            Self::Fixed(width) => width.max(1),
            Self::Text => LENGTH,
        };
        if entries.checked_mul(shortest)? > page.len() {
            return None;
        }
        let mut places = Vec::with_capacity(entries + 1);
        let mut at = 0;
        places.push(0);
        for _ in 0..entries {
            at += match self {
                Self::Fixed(width) => width,
                Self::Text => {
                    let length = page.get(at..)?.first_chunk::<LENGTH>()?;
                    LENGTH + usize::try_from(u32::from_le_bytes(*length)).ok()?
                }
            };
            if at > page.len() {
                return None;
            }
            places.push(u32::try_from(at).ok()?);
        }
        Some(places)
    }

    /// Returns the hashes of the entries of a dictionary page.
    pub(super) fn entry_hashes<'a>(self, page: &'a [u8], places: &'a [u32]) -> impl Iterator<Item = u64> + 'a {
        places.windows(2).map(move |place| {
            let entry = &page[place[0] as usize..place[1] as usize];
            match self {
                Self::Fixed(4) => mix_word(load_word::<4>(entry)),
                Self::Fixed(8) => mix_word(load_word::<8>(entry)),
                Self::Text => hash_text(entry),
                Self::Fixed(_) => xxh3_64(entry),
            }
        })
    }
}

/// Number of entries that are looked up together.
const BATCH: usize = 64;

/// Entries of one form.
trait EntryOps {
    fn hash(entry: &[u8]) -> u64;
    fn is_same(one: &[u8], other: &[u8]) -> bool;
    /// Returns the range of an entry; any range if the entry does not exist.
    fn entry_range(places: &[u32], number: usize) -> (usize, usize);
}

/// Numbers of `W` bytes.
struct WordEntry<const W: usize>;

impl<const W: usize> EntryOps for WordEntry<W> {
    #[inline]
    fn hash(entry: &[u8]) -> u64 {
        mix_word(load_word::<W>(entry))
    }

    #[inline]
    fn is_same(one: &[u8], other: &[u8]) -> bool {
        load_word::<W>(one) == load_word::<W>(other)
    }

    #[inline]
    fn entry_range(_: &[u32], number: usize) -> (usize, usize) {
        (number * W, number * W + W)
    }
}

/// Texts with a length prefix.
struct TextEntry;

impl EntryOps for TextEntry {
    #[inline]
    fn hash(entry: &[u8]) -> u64 {
        hash_text(entry)
    }

    #[inline]
    fn is_same(one: &[u8], other: &[u8]) -> bool {
        same_text(one, other)
    }

    #[inline]
    fn entry_range(places: &[u32], number: usize) -> (usize, usize) {
        range_of(places, number)
    }
}

/// Entries of any other size.
struct WideEntry;

impl EntryOps for WideEntry {
    #[inline]
    fn hash(entry: &[u8]) -> u64 {
        xxh3_64(entry)
    }

    #[inline]
    fn is_same(one: &[u8], other: &[u8]) -> bool {
        one == other
    }

    #[inline]
    fn entry_range(places: &[u32], number: usize) -> (usize, usize) {
        range_of(places, number)
    }
}

#[inline]
fn range_of(places: &[u32], number: usize) -> (usize, usize) {
    match places.get(number..).unwrap_or_default() {
        [start, end, ..] => (*start as usize, *end as usize),
        _ => (0, 0),
    }
}

/// The distinct entries of several dictionaries.
#[derive(Debug)]
pub(super) struct Union {
    /// Entries in the form of a dictionary page.
    page: Vec<u8>,
    /// Start of each entry, and end of the last one.
    places: Vec<u32>,
    slots: Vec<u64>,
}

impl Union {
    pub(super) fn new() -> Self {
        Self { page: Vec::new(), places: vec![0], slots: vec![0; 1024] }
    }

    /// Returns the number of entries.
    pub(super) fn entry_count(&self) -> usize {
        self.places.len() - 1
    }

    /// Returns the dictionary page.
    pub(super) fn page(&self) -> &[u8] {
        &self.page
    }

    /// Returns the numbers of the entries of a dictionary page, and adds those that are not present yet; `None` if
    /// there is no more room.
    pub(super) fn add_entries(&mut self, form: EntryForm, page: &[u8], places: &[u32]) -> Option<Vec<u32>> {
        match form {
            EntryForm::Fixed(4) => self.numbers_of::<WordEntry<4>>(page, places),
            EntryForm::Fixed(8) => self.numbers_of::<WordEntry<8>>(page, places),
            EntryForm::Text => self.numbers_of::<TextEntry>(page, places),
            EntryForm::Fixed(_) => self.numbers_of::<WideEntry>(page, places),
        }
    }

    /// Looks up many entries together, step by step: each step waits for memory, and the waits of different entries
    /// overlap.
    fn numbers_of<K: EntryOps>(&mut self, page: &[u8], places: &[u32]) -> Option<Vec<u32>> {
        let mut numbers = Vec::with_capacity(places.len());
        let (mut hashes, mut slots, mut ranges) = ([0; BATCH], [0; BATCH], [(0, 0); BATCH]);
        let count = places.len().saturating_sub(1);
        for first in (0..count).step_by(BATCH) {
            let places = &places[first..(first + BATCH).min(count) + 1];
            let entries = || places.windows(2).map(|place| &page[place[0] as usize..place[1] as usize]);
            let mask = self.slots.len() - 1;
            for (entry, (hash, slot)) in entries().zip(hashes.iter_mut().zip(&mut slots)) {
                *hash = K::hash(entry);
                *slot = self.slots[slot_of(*hash) & mask];
            }
            // The range of a free slot is arbitrary, and is not used.
            for (slot, range) in slots.iter().zip(&mut ranges).take(places.len() - 1) {
                *range = K::entry_range(&self.places, number_of(*slot));
            }
            for (entry, ((hash, slot), (start, end))) in entries().zip(hashes.iter().zip(&slots).zip(&ranges)) {
                let alike = *slot != 0 && slot >> 32 == hash >> 32;
                if alike && self.page.get(*start..*end).is_some_and(|found| K::is_same(found, entry)) {
                    numbers.push(slot_number(*slot));
                } else {
                    numbers.push(self.find_or_add::<K>(entry, *hash)?);
                }
            }
        }
        Some(numbers)
    }

    /// Returns the number of an entry, which is added if it is not present yet; `None` if there is no more room.
    pub(super) fn number_of(&mut self, form: EntryForm, entry: &[u8]) -> Option<u32> {
        match form {
            EntryForm::Fixed(4) => self.find_or_add::<WordEntry<4>>(entry, WordEntry::<4>::hash(entry)),
            EntryForm::Fixed(8) => self.find_or_add::<WordEntry<8>>(entry, WordEntry::<8>::hash(entry)),
            EntryForm::Text => self.find_or_add::<TextEntry>(entry, TextEntry::hash(entry)),
            EntryForm::Fixed(_) => self.find_or_add::<WideEntry>(entry, WideEntry::hash(entry)),
        }
    }

    fn find_or_add<K: EntryOps>(&mut self, entry: &[u8], hash: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = slot_of(hash) & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return self.add_entry(entry, hash, at, K::hash);
            }
            if slot >> 32 == hash >> 32 {
                let (start, end) = K::entry_range(&self.places, number_of(slot));
                if K::is_same(&self.page[start..end], entry) {
                    return Some(slot_number(slot));
                }
            }
            at = (at + 1) & mask;
        }
    }

    fn add_entry(&mut self, entry: &[u8], hash: u64, free: usize, hash_of: impl Fn(&[u8]) -> u64) -> Option<u32> {
        let number = u32::try_from(self.entry_count()).ok()?;
        let end = u32::try_from(self.page.len() + entry.len()).ok()?;
        self.slots[free] = hash >> 32 << 32 | (u64::from(number) + 1);
        self.page.extend_from_slice(entry);
        self.places.push(end);
        if self.entry_count() * 2 > self.slots.len() {
            self.grow(hash_of);
        }
        Some(number)
    }

    #[cold]
    fn grow(&mut self, hash_of: impl Fn(&[u8]) -> u64) {
        let size = self.slots.len() * 4;
        let mask = size - 1;
        self.slots = vec![0; size];
        for (number, place) in self.places.windows(2).enumerate() {
            let hash = hash_of(&self.page[place[0] as usize..place[1] as usize]);
            let mut at = slot_of(hash) & mask;
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = hash >> 32 << 32 | (number as u64 + 1);
        }
    }
}

/// Odd multiplier without regular bit patterns.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maximum length in bytes of texts that are compared with a few instructions.
const MAX_SHORT_TEXT: usize = 16;

#[inline]
fn load_word<const W: usize>(entry: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    if let Some(entry) = entry.first_chunk::<W>() {
        bytes[..W].copy_from_slice(entry);
    }
    u64::from_le_bytes(bytes)
}

#[inline]
fn mix_word(word: u64) -> u64 {
    // In the lower half of the product, each bit depends on lower bits only; in the upper half, on all bits. Many
    // numbers differ only in their upper bits.
    let product = u128::from(word ^ MIX) * u128::from(MIX);
    low_half(product) ^ low_half(product >> 64)
}

#[inline]
fn hash_text(entry: &[u8]) -> u64 {
    if entry.len() > LENGTH + MAX_SHORT_TEXT {
        return xxh3_64(entry);
    }
    let (first, last) = first_last_words(&entry[LENGTH.min(entry.len())..]);
    let product = u128::from(first ^ MIX) * u128::from(last ^ MIX.rotate_left(17) ^ entry.len() as u64);
    low_half(product) ^ low_half(product >> 64)
}

#[inline]
fn same_text(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    if one.len() > LENGTH + MAX_SHORT_TEXT {
        return one == other;
    }
    let from = LENGTH.min(one.len());
    first_last_words(&one[from..]) == first_last_words(&other[from..])
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn low_half(product: u128) -> u64 {
    product as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn slot_of(hash: u64) -> usize {
    hash as u32 as usize
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn slot_number(slot: u64) -> u32 {
    (slot as u32).wrapping_sub(1)
}

fn number_of(slot: u64) -> usize {
    slot_number(slot) as usize
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_entry_has_one_number(texts in prop::collection::vec("[ab]{0,9}|[a-c]{14,22}", 0..4000)) {
            let mut union = Union::new();
            let mut all = Vec::new();
            for texts in texts.chunks(700) {
                let (mut page, mut entries) = (Vec::new(), Vec::new());
                for text in texts {
                    let mut entry = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
                    entry.extend_from_slice(text.as_bytes());
                    page.extend_from_slice(&entry);
                    entries.push(entry);
                }
                let places = EntryForm::Text.entry_starts(&page, texts.len()).unwrap();
                all.extend(union.add_entries(EntryForm::Text, &page, &places).unwrap().into_iter().zip(entries));
            }
            let places = EntryForm::Text.entry_starts(union.page(), union.entry_count()).unwrap();
            for (number, entry) in &all {
                let number = *number as usize;
                prop_assert_eq!(&union.page()[places[number] as usize..places[number + 1] as usize], &entry[..]);
            }
            let different: std::collections::BTreeSet<_> = texts.iter().collect();
            prop_assert_eq!(union.entry_count(), different.len());
        }

        #[test]
        fn numbers_are_distinguished_by_their_bits(values in prop::collection::vec(0_u64..900, 0..3000),
            shift in 0_u32..50) {
            let page: Vec<u8> = values.iter().flat_map(|v| (v << shift).to_le_bytes()).collect();
            for width in [4, 8, 16] {
                let count = page.len() / width;
                let places = EntryForm::Fixed(width).entry_starts(&page, count).unwrap();
                let mut union = Union::new();
                let numbers = union.add_entries(EntryForm::Fixed(width), &page, &places).unwrap();
                let back: Vec<u8> = numbers.iter().flat_map(|n| {
                    union.page()[*n as usize * width..(*n as usize + 1) * width].to_vec()
                }).collect();
                prop_assert_eq!(&back[..], &page[..count * width]);
                let different: std::collections::BTreeSet<_> = page.chunks_exact(width).collect();
                prop_assert_eq!(union.entry_count(), different.len());
            }
        }

        #[test]
        fn numbers_of_every_pattern_find_their_slots(step in 1_u64..1000, shift in 0_u32..54, tenth in any::<bool>()) {
            let count = 2000;
            let value = |i: u64| if tenth { ((i * step) as f64 / 10.0).to_bits() } else { (i * step) << shift };
            let slots: std::collections::BTreeSet<u64> = (0..count).map(|i| mix_word(value(i)) & 0xfff).collect();
            let different: std::collections::BTreeSet<u64> = (0..count).map(value).collect();
            // By chance, 2,000 values occupy about 1,580 of 4,096 slots; the worst of all these patterns occupies 870.
            prop_assert!(slots.len() * 5 > different.len() * 2, "{} of {}", slots.len(), different.len());
        }

        #[test]
        fn pages_with_false_headers_are_refused(page in prop::collection::vec(any::<u8>(), 0..50),
            entries in 0_usize..60) {
            for form in [EntryForm::Text, EntryForm::Fixed(4), EntryForm::Fixed(0)] {
                if let Some(places) = form.entry_starts(&page, entries) {
                    prop_assert!(places.len() == entries + 1 && *places.last().unwrap() as usize <= page.len());
                }
            }
        }
    }
}
