//! The dictionary of several dictionaries: each different entry once, in the order in which it first occurs.
//!
//! Entries are kept in the very form of a dictionary page, so that the page is there when the last one was added. They
//! are told apart by their bytes alone: numbers that are equal but have other bits, as 0 and -0, stay two.
//!
//! ```text
//! slot   0  free        or   upper half of the hash << 32 | entry + 1
//! ```

use xxhash_rust::xxh3::xxh3_64;

use super::super::chunk::ends;

/// Bytes of a text's length in front of it.
const LENGTH: usize = 4;

/// What entries look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// So many bytes each.
    Fixed(usize),
    /// Their length as a u32, then as many bytes.
    Text,
}

impl Form {
    /// Where each entry of a dictionary page begins, and where the last one ends; `None` when they are not so many.
    pub(super) fn places(self, page: &[u8], entries: usize) -> Option<Vec<u32>> {
        u32::try_from(page.len()).ok()?;
        // Each entry takes a byte at least, so a number that lies does not get far.
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

    /// Hashes of the entries of a dictionary page.
    pub(super) fn hashes<'a>(self, page: &'a [u8], places: &'a [u32]) -> impl Iterator<Item = u64> + 'a {
        places.windows(2).map(move |place| {
            let entry = &page[place[0] as usize..place[1] as usize];
            match self {
                Self::Fixed(4) => mixed(word::<4>(entry)),
                Self::Fixed(8) => mixed(word::<8>(entry)),
                Self::Text => hash_text(entry),
                Self::Fixed(_) => xxh3_64(entry),
            }
        })
    }
}

/// The entries of several dictionaries.
#[derive(Debug)]
pub(super) struct Union {
    /// Entries as a dictionary page has them.
    page: Vec<u8>,
    /// Where they begin, and where the last one ends.
    places: Vec<u32>,
    slots: Vec<u64>,
}

impl Union {
    pub(super) fn new() -> Self {
        Self { page: Vec::new(), places: vec![0], slots: vec![0; 1024] }
    }

    /// How many entries there are.
    pub(super) fn entries(&self) -> usize {
        self.places.len() - 1
    }

    /// The dictionary page.
    pub(super) fn page(&self) -> &[u8] {
        &self.page
    }

    /// The numbers of the entries of a dictionary page, which are added unless they are there already; `None` when there
    /// is no more room.
    pub(super) fn numbers(&mut self, form: Form, page: &[u8], places: &[u32]) -> Option<Vec<u32>> {
        let entries = places.windows(2).map(|place| &page[place[0] as usize..place[1] as usize]);
        match form {
            Form::Fixed(4) => self.numbers_by(entries, |e| mixed(word::<4>(e)), |a, b| word::<4>(a) == word::<4>(b)),
            Form::Fixed(8) => self.numbers_by(entries, |e| mixed(word::<8>(e)), |a, b| word::<8>(a) == word::<8>(b)),
            Form::Text => self.numbers_by(entries, hash_text, same_text),
            Form::Fixed(_) => self.numbers_by(entries, xxh3_64, |a, b| a == b),
        }
    }

    #[inline]
    fn numbers_by<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a [u8]>,
        hash_of: impl Fn(&[u8]) -> u64 + Copy,
        same: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Option<Vec<u32>> {
        let mut numbers = Vec::with_capacity(entries.size_hint().0);
        'entries: for entry in entries {
            let hash = hash_of(entry);
            let mask = self.slots.len() - 1;
            let mut at = slot_of(hash) & mask;
            loop {
                let slot = self.slots[at & mask];
                if slot == 0 {
                    numbers.push(self.add(entry, hash, at & mask, hash_of)?);
                    continue 'entries;
                }
                if slot >> 32 == hash >> 32 {
                    let number = number_of(slot);
                    if same(&self.page[self.places[number] as usize..self.places[number + 1] as usize], entry) {
                        numbers.push(slot_number(slot));
                        continue 'entries;
                    }
                }
                at += 1;
            }
        }
        Some(numbers)
    }

    fn add(&mut self, entry: &[u8], hash: u64, free: usize, hash_of: impl Fn(&[u8]) -> u64) -> Option<u32> {
        let number = u32::try_from(self.entries()).ok()?;
        let end = u32::try_from(self.page.len() + entry.len()).ok()?;
        self.slots[free] = hash >> 32 << 32 | (u64::from(number) + 1);
        self.page.extend_from_slice(entry);
        self.places.push(end);
        if self.entries() * 2 > self.slots.len() {
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

/// Odd, and far from any pattern that data has.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Texts of up to so many bytes are told apart by a few instructions.
const SHORT: usize = 16;

#[inline]
fn word<const W: usize>(entry: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    if let Some(entry) = entry.first_chunk::<W>() {
        bytes[..W].copy_from_slice(entry);
    }
    u64::from_le_bytes(bytes)
}

#[inline]
fn mixed(word: u64) -> u64 {
    // In the lower half of the product each bit depends on lower ones only, in the upper half on all: and many numbers
    // differ in their upper bits alone.
    let product = u128::from(word ^ MIX) * u128::from(MIX);
    low_half(product) ^ low_half(product >> 64)
}

#[inline]
fn hash_text(entry: &[u8]) -> u64 {
    if entry.len() > LENGTH + SHORT {
        return xxh3_64(entry);
    }
    let (first, last) = ends(&entry[LENGTH.min(entry.len())..]);
    let product = u128::from(first ^ MIX) * u128::from(last ^ MIX.rotate_left(17) ^ entry.len() as u64);
    low_half(product) ^ low_half(product >> 64)
}

#[inline]
fn same_text(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    if one.len() > LENGTH + SHORT {
        return one == other;
    }
    let from = LENGTH.min(one.len());
    ends(&one[from..]) == ends(&other[from..])
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
    slot as u32 - 1
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
                let places = Form::Text.places(&page, texts.len()).unwrap();
                all.extend(union.numbers(Form::Text, &page, &places).unwrap().into_iter().zip(entries));
            }
            let places = Form::Text.places(union.page(), union.entries()).unwrap();
            for (number, entry) in &all {
                let number = *number as usize;
                prop_assert_eq!(&union.page()[places[number] as usize..places[number + 1] as usize], &entry[..]);
            }
            let different: std::collections::BTreeSet<_> = texts.iter().collect();
            prop_assert_eq!(union.entries(), different.len());
        }

        #[test]
        fn numbers_are_told_apart_by_their_bits(values in prop::collection::vec(0_u64..900, 0..3000), shift in 0_u32..50) {
            let page: Vec<u8> = values.iter().flat_map(|v| (v << shift).to_le_bytes()).collect();
            for width in [4, 8, 16] {
                let count = page.len() / width;
                let places = Form::Fixed(width).places(&page, count).unwrap();
                let mut union = Union::new();
                let numbers = union.numbers(Form::Fixed(width), &page, &places).unwrap();
                let back: Vec<u8> = numbers.iter().flat_map(|n| {
                    union.page()[*n as usize * width..(*n as usize + 1) * width].to_vec()
                }).collect();
                prop_assert_eq!(&back[..], &page[..count * width]);
                let different: std::collections::BTreeSet<_> = page.chunks_exact(width).collect();
                prop_assert_eq!(union.entries(), different.len());
            }
        }

        #[test]
        fn numbers_of_every_pattern_find_their_slots(step in 1_u64..1000, shift in 0_u32..54, tenth in any::<bool>()) {
            let count = 2000;
            let value = |i: u64| if tenth { ((i * step) as f64 / 10.0).to_bits() } else { (i * step) << shift };
            let slots: std::collections::BTreeSet<u64> = (0..count).map(|i| mixed(value(i)) & 0xfff).collect();
            let different: std::collections::BTreeSet<u64> = (0..count).map(value).collect();
            // By chance 2,000 values take about 1,580 of 4,096 slots; the worst of all these patterns takes 870.
            prop_assert!(slots.len() * 5 > different.len() * 2, "{} of {}", slots.len(), different.len());
        }

        #[test]
        fn pages_that_lie_are_refused(page in prop::collection::vec(any::<u8>(), 0..50), entries in 0_usize..60) {
            for form in [Form::Text, Form::Fixed(4), Form::Fixed(0)] {
                if let Some(places) = form.places(&page, entries) {
                    prop_assert!(places.len() == entries + 1 && *places.last().unwrap() as usize <= page.len());
                }
            }
        }
    }
}
