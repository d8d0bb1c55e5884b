//! Dictionaries: each distinct value once, and for each value the index of its entry.
//!
//! Entries are in the order of their first occurrence, so that the bytes depend only on the values. They are found
//! through a hash table with open addressing, whose number of slots is a power of two and at most half of which are
//! used:
//!
//! ```text
//! slot   0  free        or   tag << 20 | entry + 1        tag: twelve bits of the hash
//! ```
//!
//! A key of fixed size is stored beside each entry and distinguishes nearly all entries: the texts themselves remain at
//! their first occurrence, so that each access to one would be a cache miss.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::column::Word;

/// Odd multiplier without regular bit patterns.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bits of a slot that hold the entry.
const ENTRY_BITS: u32 = 20;

/// Maximum number of entries of a dictionary.
const MAX_ENTRIES: usize = (1 << ENTRY_BITS) - 2;

/// Entries and, for each value, the index of its entry.
#[derive(Debug)]
pub(super) struct Dictionary<E> {
    pub(super) entries: Vec<E>,
    pub(super) indices: Vec<u32>,
}

/// A type of dictionary entries.
pub(super) trait DictionaryEntry: Copy {
    /// Type stored beside the entry; equal entries have equal keys.
    type Key: Copy + Eq;

    /// Returns the key.
    fn key(self) -> Self::Key;

    /// Returns a hash, which is the same for equal entries.
    fn hash(self, key: Self::Key) -> u64;

    /// Returns whether two entries with equal keys are equal.
    fn is_same(self, other: Self) -> bool;
}

impl<W: Word> DictionaryEntry for W {
    type Key = W;

    #[inline]
    fn key(self) -> W {
        self
    }

    #[inline]
    fn hash(self, _key: W) -> u64 {
        let mixed = self.bits().wrapping_mul(MIX);
        // The upper bits choose the slot; without this step the tag would depend on the value's lower bits only.
        mixed ^ mixed >> 29
    }

    #[inline]
    fn is_same(self, _other: Self) -> bool {
        true
    }
}

/// Maximum length in bytes of texts that are determined by their keys.
const KEYED_BYTES: usize = 16;

/// Key of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextKey {
    /// Its length.
    length: usize,
    /// Its first eight bytes.
    first: u64,
    /// Its last eight bytes.
    last: u64,
}

impl DictionaryEntry for &[u8] {
    type Key = TextKey;

    #[inline]
    fn key(self) -> TextKey {
        let (first, last) = first_last_words(self);
        TextKey { length: self.len(), first, last }
    }

    #[inline]
    fn hash(self, key: TextKey) -> u64 {
        let TextKey { length, first, last } = key;
        if length > KEYED_BYTES {
            return xxh3_64(self);
        }
        let product = u128::from(first ^ MIX) * u128::from(last ^ MIX.rotate_left(17) ^ length as u64);
        (low_half(product) ^ low_half(product >> 64)).wrapping_mul(MIX)
    }

    #[inline]
    fn is_same(self, other: Self) -> bool {
        self.len() <= KEYED_BYTES || self == other
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn low_half(product: u128) -> u64 {
    product as u64
}

/// Returns the first and the last eight bytes, which overlap in a shorter text.
#[inline]
pub(in super::super) fn first_last_words(bytes: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)))
    } else {
        (bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0)
    }
}

impl<E: DictionaryEntry> Dictionary<E> {
    /// Returns the dictionary of `values`, unless it would have more than `max_entries` entries. `room` is memory for
    /// the indices.
    pub(super) fn from_values(values: &[E], max_entries: usize, room: &mut Vec<u32>) -> Option<Self> {
        let max_entries = max_entries.min(MAX_ENTRIES);
        let mut table = DictionaryTable::new();
        let mut indices = zeroed_indices(room, values.len());
        for (place, &value) in indices.iter_mut().zip(values) {
            let key = value.key();
            let hash = value.hash(key);
            *place = match table.find(value, key, hash) {
                Ok(index) => index,
                Err(free) if table.entries.len() < max_entries => table.add_entry(value, key, hash, free),
                Err(_) => {
                    *room = indices;
                    return None;
                }
            };
        }
        Some(Self { entries: table.entries, indices })
    }

    /// Returns each entry that occurs among some values once. `seen` has one element for each entry, all false.
    pub(super) fn occurring_entries<'a>(
        &'a self,
        values: Range<usize>,
        seen: &'a mut [bool],
    ) -> impl Iterator<Item = E> + 'a {
        self.indices[values].iter().for_each(|index| seen[*index as usize] = true);
        self.entries.iter().zip(seen).filter_map(|(entry, seen)| std::mem::take(seen).then_some(*entry))
    }
}

/// Maximum range of numbers for which a table is indexed directly by the number.
const DIRECT_RANGE: u64 = 1 << 15;

impl<W: Word> Dictionary<W> {
    /// Like `of`, but faster if all values are in a narrow range.
    pub(super) fn of_words(values: &[W], max_entries: usize, room: &mut Vec<u32>) -> Option<Self> {
        let (mut least, mut greatest) = (i64::MAX, i64::MIN);
        for value in values {
            least = least.min(value.signed());
            greatest = greatest.max(value.signed());
        }
        match greatest.wrapping_sub(least).cast_unsigned() {
            range if least <= greatest && range < DIRECT_RANGE.min(values.len() as u64) => {
                Self::of_narrow_range(values, least, range, max_entries, room)
            }
            _ => Self::from_values(values, max_entries, room),
        }
    }

    fn of_narrow_range(values: &[W], least: i64, range: u64, max_entries: usize, room: &mut Vec<u32>) -> Option<Self> {
        let mut places = vec![0_u32; usize::try_from(range).ok()? + 1];
        let (mut entries, mut indices) = (Vec::new(), zeroed_indices(room, values.len()));
        for (index, value) in indices.iter_mut().zip(values) {
            let place = &mut places[usize::try_from(value.signed() - least).ok()?];
            if *place == 0 {
                entries.push(*value);
                *place = u32::try_from(entries.len()).ok()?;
            }
            *index = *place - 1;
        }
        if entries.len() > max_entries {
            *room = indices;
            return None;
        }
        Some(Self { entries, indices })
    }
}

fn zeroed_indices(room: &mut Vec<u32>, length: usize) -> Vec<u32> {
    let mut zeros = std::mem::take(room);
    zeros.clear();
    zeros.resize(length, 0);
    zeros
}

struct DictionaryTable<E: DictionaryEntry> {
    slots: Vec<u32>,
    /// Number of bits by which a hash is shifted to get a slot.
    shift: u32,
    keys: Vec<E::Key>,
    entries: Vec<E>,
}

impl<E: DictionaryEntry> DictionaryTable<E> {
    fn new() -> Self {
        const SLOTS: usize = 1024;
        Self { slots: vec![0; SLOTS], shift: u64::BITS - SLOTS.trailing_zeros(), keys: Vec::new(), entries: Vec::new() }
    }

    /// Returns the entry of a value, or the free slot for it.
    #[inline]
    fn find(&self, value: E, key: E::Key, hash: u64) -> Result<u32, usize> {
        let slots = self.slots.as_slice();
        let (mask, tag) = (slots.len() - 1, hash_tag(hash));
        let mut at = first_slot(hash, self.shift);
        loop {
            let slot = slots[at & mask];
            if slot == 0 {
                return Err(at & mask);
            }
            if slot >> ENTRY_BITS == tag {
                let index = entry_index(slot);
                if self.keys[index] == key && self.entries[index].is_same(value) {
                    return Ok(slot & ((1 << ENTRY_BITS) - 1)).map(|entry| entry - 1);
                }
            }
            at += 1;
        }
    }

    #[cold]
    fn add_entry(&mut self, value: E, key: E::Key, hash: u64, free: usize) -> u32 {
        let index = self.entries.len();
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        self.slots[free] = hash_tag(hash) << ENTRY_BITS | (number + 1);
        self.entries.push(value);
        self.keys.push(key);
        if self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
        number
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![0; old.len() * 4];
        self.shift -= 2;
        let mask = self.slots.len() - 1;
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            let index = entry_index(slot);
            let mut at = first_slot(self.entries[index].hash(self.keys[index]), self.shift);
            while self.slots[at & mask] != 0 {
                at += 1;
            }
            self.slots[at & mask] = slot;
        }
    }
}

/// Returns the slot at which the search begins: the upper bits of a product are mixed best.
#[inline]
fn first_slot(hash: u64, shift: u32) -> usize {
    usize::try_from(hash >> shift).unwrap_or_default()
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lowest bits are meant, which choose no slot")]
fn hash_tag(hash: u64) -> u32 {
    hash as u32 & 0xfff
}

#[inline]
fn entry_index(slot: u32) -> usize {
    (slot & ((1 << ENTRY_BITS) - 1)) as usize - 1
}

/// Estimates how many distinct values `total` values have, if `found` were found among `seen` of them.
///
/// Drawing `seen` times from `n` equally likely values finds `n * (1 - e^(-seen / n))` of them. Uses basic arithmetic
/// only, so that all machines get the same result.
pub(in super::super) fn expected_entries(seen: usize, found: usize, total: usize) -> f64 {
    let (seen, found, total) = (seen as f64, found as f64, total as f64);
    if seen >= total || found >= seen {
        return if found >= seen { total } else { found };
    }
    let drawn = |n: f64, draws: f64| n * (1.0 - exp_neg(draws / n));
    let (mut low, mut high) = (found, 1e12);
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if drawn(middle, seen) < found { low = middle } else { high = middle }
    }
    drawn(low, total).clamp(found, total)
}

/// Returns `e^-x` by the definition of `e`, exact enough for an estimate.
fn exp_neg(x: f64) -> f64 {
    let mut power = (1.0 - x / 65_536.0).max(0.0);
    for _ in 0..16 {
        power *= power;
    }
    power
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_are_the_different_values_in_order(values in proptest::collection::vec(0_u64..3000, 0..5000),
            shift in 0_u32..53) {
            let values: Vec<u64> = values.iter().map(|v| v << shift).collect();
            let dictionary = Dictionary::from_values(&values, usize::MAX, &mut Vec::new()).unwrap();
            let back: Vec<u64> = dictionary.indices.iter().map(|i| dictionary.entries[*i as usize]).collect();
            prop_assert_eq!(back, &values[..]);
            let mut first = Vec::new();
            values.iter().for_each(|v| if !first.contains(v) { first.push(*v) });
            prop_assert_eq!(&dictionary.entries, &first);
            let close = Dictionary::of_words(&values, usize::MAX, &mut Vec::new()).unwrap();
            prop_assert_eq!((&close.entries, &close.indices), (&dictionary.entries, &dictionary.indices));
            prop_assert!(Dictionary::from_values(&values, first.len(), &mut Vec::new()).is_some());
            let smaller = |limit| Dictionary::from_values(&values, limit, &mut Vec::new());
            prop_assert!(first.is_empty() || smaller(first.len() - 1).is_none());
        }

        #[test]
        fn texts_of_all_lengths_are_distinguished(texts in proptest::collection::vec("[ab\0]{0,20}", 0..3000)) {
            let values: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
            let dictionary = Dictionary::from_values(&values, usize::MAX, &mut Vec::new()).unwrap();
            let back: Vec<&[u8]> = dictionary.indices.iter().map(|i| dictionary.entries[*i as usize]).collect();
            prop_assert_eq!(back, values);
            let different: std::collections::BTreeSet<_> = texts.iter().collect();
            prop_assert_eq!(dictionary.entries.len(), different.len());
        }
    }

    #[test]
    fn the_number_of_entries_is_predicted() {
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.1, "{found} {expected}");
        near(expected_entries(16_384, 13_960, 500_000), 50_000.0);
        near(expected_entries(16_384, 100, 500_000), 100.0);
        near(expected_entries(16_384, 16_384, 500_000), 500_000.0);
        near(expected_entries(100, 40, 100), 40.0);
    }
}
