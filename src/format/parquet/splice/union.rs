//! The dictionary of several dictionaries: each different entry once, in the order in which it first occurs.
//!
//! Entries are kept in the very form of a dictionary page, so that the page is there when the last one was added. They
//! are told apart by their bytes alone: numbers that are equal but have other bits, as 0 and -0, stay two.
//!
//! ```text
//! slot   0  free        or   upper half of the hash << 32 | entry + 1
//! ```

use xxhash_rust::xxh3::xxh3_64;

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

    /// The number of an entry, which is added unless it is there already; `None` when there is no more room.
    #[inline]
    pub(super) fn number(&mut self, entry: &[u8]) -> Option<u32> {
        let hash = xxh3_64(entry);
        let mask = self.slots.len() - 1;
        let mut at = slot_of(hash) & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return self.add(entry, hash, at);
            }
            if slot >> 32 == hash >> 32 {
                let number = number_of(slot);
                let place = self.places[number] as usize..self.places[number + 1] as usize;
                if &self.page[place] == entry {
                    return u32::try_from(number).ok();
                }
            }
            at = (at + 1) & mask;
        }
    }

    fn add(&mut self, entry: &[u8], hash: u64, free: usize) -> Option<u32> {
        let number = u32::try_from(self.entries()).ok()?;
        let end = u32::try_from(self.page.len() + entry.len()).ok()?;
        self.slots[free] = hash >> 32 << 32 | (u64::from(number) + 1);
        self.page.extend_from_slice(entry);
        self.places.push(end);
        if self.entries() * 2 > self.slots.len() {
            self.grow();
        }
        Some(number)
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 4;
        let mask = size - 1;
        self.slots = vec![0; size];
        for (number, place) in self.places.windows(2).enumerate() {
            let hash = xxh3_64(&self.page[place[0] as usize..place[1] as usize]);
            let mut at = slot_of(hash) & mask;
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = hash >> 32 << 32 | (number as u64 + 1);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn slot_of(hash: u64) -> usize {
    hash as u32 as usize
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn number_of(slot: u64) -> usize {
    (slot as u32 - 1) as usize
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_entry_has_one_number(texts in prop::collection::vec("[ab]{0,9}", 0..4000)) {
            let mut union = Union::new();
            let mut all = Vec::new();
            for text in &texts {
                let mut entry = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
                entry.extend_from_slice(text.as_bytes());
                all.push((union.number(&entry).unwrap(), entry));
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
        fn pages_that_lie_are_refused(page in prop::collection::vec(any::<u8>(), 0..50), entries in 0_usize..60) {
            for form in [Form::Text, Form::Fixed(4), Form::Fixed(0)] {
                if let Some(places) = form.places(&page, entries) {
                    prop_assert!(places.len() == entries + 1 && *places.last().unwrap() as usize <= page.len());
                }
            }
        }
    }
}
