//! Numbers of consecutive records, stored as arithmetic sequences where possible: rows that count up, hashes that many
//! records share.
//!
//! Records made of arrays are so many that writing a number for each would take longer than writing their values.

use std::ops::Range;

/// An arithmetic sequence: `first`, `first + step`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progression {
    /// The first number.
    pub first: u64,
    /// Difference between consecutive numbers.
    pub step: u64,
    /// Number of elements.
    pub count: usize,
}

impl Progression {
    /// Returns the number at a position.
    pub fn number_at(&self, place: usize) -> u64 {
        self.first.wrapping_add(self.step.wrapping_mul(place as u64))
    }

    /// Returns a range of the numbers.
    fn slice_range(&self, range: Range<usize>) -> Self {
        Self { first: self.number_at(range.start), step: self.step, count: range.len() }
    }

    fn iter(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |place| self.number_at(place))
    }
}

/// One number per record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Numbers {
    /// Listed one by one.
    Each(Vec<u64>),
    /// Arithmetic sequences, none of them empty.
    Progressions(Vec<Progression>),
}

impl From<Vec<u64>> for Numbers {
    fn from(each: Vec<u64>) -> Self {
        Self::Each(each)
    }
}

impl FromIterator<u64> for Numbers {
    fn from_iter<I: IntoIterator<Item = u64>>(each: I) -> Self {
        Self::Each(each.into_iter().collect())
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self::Progressions(Vec::new())
    }
}

impl Numbers {
    /// Creates numbers that count up from `first`.
    pub fn counting_from(first: u64, count: usize) -> Self {
        Self::from_progressions(std::iter::once(Progression { first, step: 1, count }))
    }

    /// Creates numbers each of which applies to `sharing` consecutive records.
    pub fn shared_by(each: Vec<u64>, sharing: usize) -> Self {
        match sharing {
            1 => Self::Each(each),
            count => Self::from_progressions(each.into_iter().map(|first| Progression { first, step: 0, count })),
        }
    }

    /// Creates numbers that are all the same.
    pub fn repeat_number(number: u64, count: usize) -> Self {
        Self::from_progressions(std::iter::once(Progression { first: number, step: 0, count }))
    }

    /// Whether all numbers are 0.
    pub fn are_zero(&self) -> bool {
        match self {
            Self::Each(each) => each.iter().all(|number| *number == 0),
            Self::Progressions(progressions) => progressions.iter().all(|found| (found.first, found.step) == (0, 0)),
        }
    }

    fn from_progressions(progressions: impl Iterator<Item = Progression>) -> Self {
        Self::Progressions(progressions.filter(|progression| progression.count > 0).collect())
    }

    /// Returns the numbers with `map` applied to each.
    #[must_use]
    pub fn map_numbers(self, map: impl Fn(u64) -> u64) -> Self {
        match self {
            Self::Each(each) => Self::Each(each.into_iter().map(map).collect()),
            Self::Progressions(progressions) if progressions.iter().all(|progression| progression.step == 0) => {
                Self::from_progressions(
                    progressions
                        .into_iter()
                        .map(|progression| Progression { first: map(progression.first), ..progression }),
                )
            }
            other => other.iter().map(map).collect(),
        }
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        match self {
            Self::Each(each) => each.len(),
            Self::Progressions(progressions) => progressions.iter().map(|progression| progression.count).sum(),
        }
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the numbers.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let (each, progressions) = match self {
            Self::Each(each) => (each.as_slice(), &[][..]),
            Self::Progressions(progressions) => (&[][..], progressions.as_slice()),
        };
        each.iter().copied().chain(progressions.iter().copied().flat_map(Progression::iter))
    }

    /// Returns the number of a record.
    pub fn get(&self, mut at: usize) -> Option<u64> {
        match self {
            Self::Each(each) => each.get(at).copied(),
            Self::Progressions(progressions) => progressions.iter().find_map(|progression| {
                if at < progression.count {
                    return Some(progression.number_at(at));
                }
                at -= progression.count;
                None
            }),
        }
    }

    /// Returns the numbers of a range of records; a range beyond the end is cut.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        match self {
            Self::Each(each) => {
                let end = range.end.min(each.len());
                Self::Each(each.get(range.start.min(end)..end).unwrap_or_default().to_vec())
            }
            Self::Progressions(progressions) => {
                let mut start = 0;
                Self::from_progressions(progressions.iter().map(|progression| {
                    let within = |at: usize| at.saturating_sub(start).min(progression.count);
                    let part = progression.slice_range(within(range.start)..within(range.end));
                    start += progression.count;
                    part
                }))
            }
        }
    }

    /// Splits off and returns the numbers from `at` on.
    pub fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Each(each) => Self::Each(each.split_off(at.min(each.len()))),
            Self::Progressions(_) => {
                let tail = self.slice(at..usize::MAX);
                *self = self.slice(0..at);
                tail
            }
        }
    }

    /// Appends the numbers of the records that follow.
    pub fn append(&mut self, other: Self) {
        match (&mut *self, other) {
            (own, other) if own.is_empty() => *own = other,
            (Self::Progressions(own), Self::Progressions(mut other)) => own.append(&mut other),
            (Self::Each(own), other) => own.extend(other.iter()),
            (Self::Progressions(_), other) => *self = Self::Each(self.iter().chain(other.iter()).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers() -> impl Strategy<Value = Numbers> {
        let progression =
            (0_u64..9, 0_u64..2, 1_usize..5).prop_map(|(first, step, count)| Progression { first, step, count });
        prop_oneof![
            proptest::collection::vec(0_u64..9, 0..6).prop_map(Numbers::Each),
            proptest::collection::vec(progression, 0..4).prop_map(Numbers::Progressions),
        ]
    }

    proptest! {
        #[test]
        fn progressions_equal_listed_numbers(one in numbers(), other in numbers(), at in 0_usize..20,
            end in 0_usize..20) {
            let list: Vec<u64> = one.iter().collect();
            prop_assert_eq!(one.len(), list.len());
            prop_assert_eq!(one.get(at), list.get(at).copied());
            let (from, to) = (at.min(list.len()), end.max(at).min(list.len()));
            prop_assert_eq!(one.slice(at..end.max(at)).iter().collect::<Vec<_>>(), &list[from..to]);
            let mut head = one.clone();
            let tail = head.split_off(at);
            prop_assert_eq!((head.len(), tail.len()), (from, list.len() - from));
            prop_assert_eq!(head.iter().chain(tail.iter()).collect::<Vec<_>>(), &list[..]);
            let mut both = one;
            both.append(other.clone());
            prop_assert_eq!(both.iter().collect::<Vec<_>>(), list.into_iter().chain(other.iter()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn records_share_numbers() {
        assert_eq!(Numbers::shared_by(vec![7, 9], 2).iter().collect::<Vec<_>>(), [7, 7, 9, 9]);
        assert_eq!(Numbers::shared_by(vec![7, 9], 1), Numbers::Each(vec![7, 9]));
        assert!(Numbers::shared_by(vec![7], 0).is_empty());
        assert_eq!(Numbers::counting_from(3, 3).iter().collect::<Vec<_>>(), [3, 4, 5]);
    }
}
