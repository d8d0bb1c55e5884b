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

    /// Returns the numbers as ranges: first number and count.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_have_the_ranges_of_their_numbers(
            numbers in prop::collection::vec(prop_oneof![0..300_u64, 65_400..65_700_u64, 1_000_000..1_000_100_u64], 0..400),
        ) {
            let mut set = NumberSet::default();
            let mut expected = BTreeSet::new();
            for number in &numbers {
                prop_assert_eq!(set.insert(*number), expected.insert(*number));
            }
            let ranges = set.ranges();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
            let found: Vec<u64> = ranges.iter().flat_map(|(first, records)| *first..first + records).collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
