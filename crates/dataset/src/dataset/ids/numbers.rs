//! Sets of record numbers.

/// A set of record numbers, stored as pages of bits because numbers arrive in any order but lie close together.
#[derive(Debug, Default)]
pub struct NumberSet {
    pages: std::collections::BTreeMap<u64, Box<[u64; 1024]>>,
}

impl NumberSet {
    const PAGE: u64 = 1024 * 64;

    /// Adds a number; returns false if it was already present.
    pub fn insert(&mut self, number: u64) -> bool {
        let page = self.pages.entry(number / Self::PAGE).or_insert_with(|| Box::new([0; 1024]));
        let at = number % Self::PAGE;
        let word = &mut page[usize::try_from(at / 64).unwrap_or(0)];
        let bit = 1 << (at % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Whether a number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        let at = number % Self::PAGE;
        let word = |page: &[u64; 1024]| page.get(usize::try_from(at / 64).unwrap_or(0)).copied().unwrap_or(0);
        self.pages.get(&(number / Self::PAGE)).is_some_and(|page| word(page) >> (at % 64) & 1 == 1)
    }

    /// Adds consecutive numbers, given the first and their count.
    pub fn insert_range(&mut self, first: u64, count: u64) {
        let end = first.saturating_add(count);
        let mut at = first;
        while at < end {
            let page = self.pages.entry(at / Self::PAGE).or_insert_with(|| Box::new([0; 1024]));
            let page_end = (at / Self::PAGE + 1).saturating_mul(Self::PAGE).min(end);
            while at < page_end {
                let bit = at % 64;
                let bits = (64 - bit).min(page_end - at);
                page[usize::try_from(at % Self::PAGE / 64).unwrap_or(0)] |= (u64::MAX >> (64 - bits)) << bit;
                at += bits;
            }
        }
    }

    /// Returns the numbers as ranges: first number and count.
    pub fn to_ranges(&self) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (page, words) in &self.pages {
            for (at, word) in (0..).zip(words.iter()) {
                let mut word = *word;
                while word != 0 {
                    let start = u64::from(word.trailing_zeros());
                    let length = u64::from((word >> start).trailing_ones());
                    let first = page * Self::PAGE + at * 64 + start;
                    match out.last_mut() {
                        Some((last, records)) if *last + *records == first => *records += length,
                        _ => out.push((first, length)),
                    }
                    word = if start + length == 64 { 0 } else { word >> (start + length) << (start + length) };
                }
            }
        }
        out
    }
}

/// New numbers for some records: those that are kept are counted from 0 in the order of their old numbers.
///
/// ```text
/// old number   0   1   2   3   4   5   6        kept: 1 2 3 6
/// new number       0   1   2           3
/// ```
///
/// The order stays, so whatever is sorted by numbers stays sorted, and the records of a source stay consecutive.
#[derive(Debug, Default)]
pub struct Renumbering {
    /// `None` if all numbers stay.
    pages: Option<std::collections::BTreeMap<u64, RankedPage>>,
    records: u64,
}

#[derive(Debug)]
struct RankedPage {
    /// Kept records before the page.
    before: u64,
    words: Box<[u64; 1024]>,
    /// Kept records of the page before each word.
    ranks: Box<[u32; 1024]>,
}

impl RankedPage {
    /// Returns the number of kept records before the place in the page.
    fn kept_before(&self, at: u64) -> u64 {
        let word = usize::try_from(at / 64).unwrap_or(0);
        let below = self.words[word] & ((1_u64 << (at % 64)) - 1);
        self.before + u64::from(self.ranks[word]) + u64::from(below.count_ones())
    }

    fn is_kept(&self, at: u64) -> bool {
        self.words[usize::try_from(at / 64).unwrap_or(0)] >> (at % 64) & 1 == 1
    }
}

impl Renumbering {
    /// Returns the numbering in which all of `records` numbers stay.
    pub fn identity(records: u64) -> Self {
        Self { pages: None, records }
    }

    /// Returns the numbering of some records, given their old numbers.
    pub fn from_kept(kept: NumberSet) -> Self {
        let (mut pages, mut records) = (std::collections::BTreeMap::new(), 0);
        for (number, words) in kept.pages {
            let (before, mut ranks, mut rank) = (records, Box::new([0; 1024]), 0_u32);
            for (word, known) in words.iter().zip(ranks.iter_mut()) {
                *known = rank;
                rank += word.count_ones();
            }
            records += u64::from(rank);
            pages.insert(number, RankedPage { before, words, ranks });
        }
        Self { pages: Some(pages), records }
    }

    /// Whether all numbers stay.
    pub fn is_identity(&self) -> bool {
        self.pages.is_none()
    }

    /// Returns the number of kept records.
    pub fn record_count(&self) -> u64 {
        self.records
    }

    /// Returns the new number of a record; `None` if it is not kept.
    pub fn new_number(&self, old: u64) -> Option<u64> {
        let Some(pages) = &self.pages else { return (old < self.records).then_some(old) };
        let (page, at) = (pages.get(&(old / NumberSet::PAGE))?, old % NumberSet::PAGE);
        page.is_kept(at).then(|| page.kept_before(at))
    }

    /// Returns the number of kept records whose old number is smaller.
    pub fn kept_before(&self, old: u64) -> u64 {
        let Some(pages) = &self.pages else { return old.min(self.records) };
        let (page, at) = (old / NumberSet::PAGE, old % NumberSet::PAGE);
        match pages.get(&page) {
            Some(page) => page.kept_before(at),
            None => pages.range(page..).next().map_or(self.records, |(_, next)| next.before),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_have_the_ranges_of_their_numbers(
            numbers in prop::collection::vec(prop_oneof![0..300_u64, 65_400..65_700_u64, 1_000_000..1_000_100_u64],
                0..400),
        ) {
            let mut set = NumberSet::default();
            let mut expected = BTreeSet::new();
            for number in &numbers {
                prop_assert_eq!(set.insert(*number), expected.insert(*number));
            }
            let ranges = set.to_ranges();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
            let found: Vec<u64> = ranges.iter().flat_map(|(first, records)| *first..first + records).collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
    proptest! {
        #[test]
        fn kept_records_are_counted_in_order(
            ranges in prop::collection::vec((prop_oneof![0..300_u64, 65_400..65_700_u64, 1_000_000..1_000_100_u64],
                0..200_u64), 0..40),
            asked in prop::collection::vec(prop_oneof![0..600_u64, 65_300..66_000_u64, 999_000..1_100_000_u64], 0..100),
        ) {
            let (mut set, mut expected) = (NumberSet::default(), BTreeSet::new());
            for (first, count) in ranges {
                set.insert_range(first, count);
                expected.extend(first..first + count);
            }
            let found: Vec<u64> = set.to_ranges().iter().flat_map(|(first, records)| *first..first + records).collect();
            prop_assert_eq!(found, expected.iter().copied().collect::<Vec<_>>());
            let numbering = Renumbering::from_kept(set);
            prop_assert_eq!(numbering.record_count(), expected.len() as u64);
            for (new, old) in (0..).zip(&expected) {
                prop_assert_eq!(numbering.new_number(*old), Some(new));
            }
            for old in asked {
                prop_assert_eq!(numbering.kept_before(old), expected.range(..old).count() as u64);
                prop_assert_eq!(numbering.new_number(old).is_some(), expected.contains(&old));
            }
        }
    }

    #[test]
    fn numbers_that_all_stay_are_their_own() {
        let numbering = Renumbering::identity(3);
        assert!(numbering.is_identity());
        assert_eq!([0, 2].map(|old| numbering.new_number(old).unwrap()), [0, 2]);
        assert_eq!((numbering.new_number(3), numbering.kept_before(2), numbering.kept_before(9)), (None, 2, 3));
    }
}
