//! Dictionaries: each different value once, and for each value the number of its entry.
//!
//! Entries stand in the order in which they first occur, so that the bytes depend on nothing but the values. The table
//! that finds them is open, with a power of two of slots of which at most half are taken:
//!
//! ```text
//! slot   0  free        or   tag << 32 | entry + 1        tag: upper half of the hash
//! ```

use xxhash_rust::xxh3::xxh3_64;

use super::column::Word;

/// Odd, and far from any pattern that data has.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Entries and, for each value, its entry.
#[derive(Debug)]
pub(super) struct Dictionary<E> {
    pub(super) entries: Vec<E>,
    pub(super) indices: Vec<u32>,
}

/// Something that can be an entry.
pub(super) trait Entry: Copy {
    /// A number that equal entries share.
    fn hash(self) -> u64;

    /// Whether it is the same entry.
    fn same(self, other: Self) -> bool;
}

impl<W: Word> Entry for W {
    #[inline]
    fn hash(self) -> u64 {
        self.bits().wrapping_mul(MIX)
    }

    #[inline]
    fn same(self, other: Self) -> bool {
        self == other
    }
}

impl Entry for &[u8] {
    #[inline]
    fn hash(self) -> u64 {
        if self.len() > 16 {
            return xxh3_64(self);
        }
        let (low, high) = ends(self);
        let product = u128::from(low ^ MIX) * u128::from(high ^ MIX.rotate_left(17) ^ self.len() as u64);
        let [low, high] = [product & u128::from(u64::MAX), product >> 64].map(|half| u64::try_from(half).unwrap_or(0));
        (low ^ high).wrapping_mul(MIX)
    }

    #[inline]
    fn same(self, other: Self) -> bool {
        if self.len() != other.len() {
            return false;
        }
        if self.len() > 16 { self == other } else { ends(self) == ends(other) }
    }
}

/// The first and the last bytes of up to sixteen, which may overlap.
#[inline]
fn ends(bytes: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)))
    } else {
        (bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0)
    }
}

impl<E: Entry> Dictionary<E> {
    /// The dictionary of `values`, unless it would have more than `most` entries.
    pub(super) fn of(values: &[E], most: usize) -> Option<Self> {
        let mut table = Table { slots: vec![0; 1024], entries: Vec::new() };
        let mut indices = Vec::with_capacity(values.len());
        for &value in values {
            let index = table.find(value);
            if index as usize >= most {
                return None;
            }
            indices.push(index);
        }
        Some(Self { entries: table.entries, indices })
    }
}

struct Table<E> {
    slots: Vec<u64>,
    entries: Vec<E>,
}

impl<E: Entry> Table<E> {
    /// The entry of the value, which becomes one if it is new.
    #[inline]
    fn find(&mut self, value: E) -> u32 {
        let hash = value.hash();
        let tag = hash >> 32;
        let mask = self.slots.len() - 1;
        let mut at = place(hash, self.slots.len());
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return self.add(value, tag, at);
            }
            if slot >> 32 == tag {
                let index = low(slot) - 1;
                if self.entries[index as usize].same(value) {
                    return index;
                }
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn add(&mut self, value: E, tag: u64, at: usize) -> u32 {
        let index = low(self.entries.len() as u64);
        self.slots[at] = tag << 32 | (u64::from(index) + 1);
        self.entries.push(value);
        if self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
        index
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![0; old.len() * 4];
        let mask = self.slots.len() - 1;
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            let mut at = place(self.entries[low(slot) as usize - 1].hash(), self.slots.len());
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
    }
}

/// Slot where the search begins: the upper bits of a product are its best mixed ones.
#[inline]
fn place(hash: u64, slots: usize) -> usize {
    usize::try_from(hash >> (64 - slots.trailing_zeros())).unwrap_or_default()
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn low(slot: u64) -> u32 {
    slot as u32
}

/// How many different values `total` values probably have, when `found` were found among `seen` of them.
///
/// Draws from `n` equally likely values find `n * (1 - e^(-seen / n))` of them. Made of nothing but multiplications, so
/// that all machines agree.
pub(super) fn expected_entries(seen: usize, found: usize, total: usize) -> f64 {
    let (seen, found, total) = (seen as f64, found as f64, total as f64);
    if seen >= total || found >= seen {
        return if found >= seen { total } else { found };
    }
    let drawn = |n: f64, draws: f64| n * (1.0 - decay(draws / n));
    let (mut low, mut high) = (found, 1e12);
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if drawn(middle, seen) < found { low = middle } else { high = middle }
    }
    drawn(low, total).clamp(found, total)
}

/// `e^-x` by the definition of `e`, exact enough for an estimate.
fn decay(x: f64) -> f64 {
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
        fn entries_are_the_different_values_in_order(values in proptest::collection::vec(0_u64..3000, 0..5000), shift in 0_u32..53) {
            let values: Vec<u64> = values.iter().map(|v| v << shift).collect();
            let dictionary = Dictionary::of(&values, usize::MAX).unwrap();
            let back: Vec<u64> = dictionary.indices.iter().map(|i| dictionary.entries[*i as usize]).collect();
            prop_assert_eq!(back, &values[..]);
            let mut first = Vec::new();
            values.iter().for_each(|v| if !first.contains(v) { first.push(*v) });
            prop_assert_eq!(&dictionary.entries, &first);
            prop_assert!(Dictionary::of(&values, first.len()).is_some());
            prop_assert!(first.is_empty() || Dictionary::of(&values, first.len() - 1).is_none());
        }

        #[test]
        fn texts_of_all_lengths_are_told_apart(texts in proptest::collection::vec("[ab\0]{0,20}", 0..3000)) {
            let values: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
            let dictionary = Dictionary::of(&values, usize::MAX).unwrap();
            let back: Vec<&[u8]> = dictionary.indices.iter().map(|i| dictionary.entries[*i as usize]).collect();
            prop_assert_eq!(back, values);
            let different: std::collections::BTreeSet<_> = texts.iter().collect();
            prop_assert_eq!(dictionary.entries.len(), different.len());
        }
    }

    #[test]
    fn the_number_of_entries_is_foreseen() {
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.1, "{found} {expected}");
        near(expected_entries(16_384, 13_960, 500_000), 50_000.0);
        near(expected_entries(16_384, 100, 500_000), 100.0);
        near(expected_entries(16_384, 16_384, 500_000), 500_000.0);
        near(expected_entries(100, 40, 100), 40.0);
    }
}
