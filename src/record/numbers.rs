//! Numbers of consecutive records, of which stretches follow a rule: rows that count up, hashes that many records share.
//!
//! Records made of arrays are so many that a list with a number for each would take longer to write than their values.

use std::ops::Range;

/// Numbers by a rule: `first`, `first + step`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The first number.
    pub first: u64,
    /// From one to the next.
    pub step: u64,
    /// How many.
    pub count: usize,
}

impl Stretch {
    /// The number at a place within.
    pub fn at(&self, place: usize) -> u64 {
        self.first.wrapping_add(self.step.wrapping_mul(place as u64))
    }

    /// Some of the numbers.
    fn part(&self, range: Range<usize>) -> Self {
        Self { first: self.at(range.start), step: self.step, count: range.len() }
    }

    fn iter(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |place| self.at(place))
    }
}

/// A number for each of some records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Numbers {
    /// One by one.
    Each(Vec<u64>),
    /// By rules, none of which is for no record.
    Stretches(Vec<Stretch>),
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
        Self::Stretches(Vec::new())
    }
}

impl Numbers {
    /// Numbers that count up.
    pub fn counting(first: u64, count: usize) -> Self {
        Self::of(std::iter::once(Stretch { first, step: 1, count }))
    }

    /// Numbers each of which stands for `sharing` records.
    pub fn shared(each: Vec<u64>, sharing: usize) -> Self {
        match sharing {
            1 => Self::Each(each),
            count => Self::of(each.into_iter().map(|first| Stretch { first, step: 0, count })),
        }
    }

    fn of(stretches: impl Iterator<Item = Stretch>) -> Self {
        Self::Stretches(stretches.filter(|stretch| stretch.count > 0).collect())
    }

    /// Returns the numbers with `map` applied to each.
    #[must_use]
    pub fn mapped(self, map: impl Fn(u64) -> u64) -> Self {
        match self {
            Self::Each(each) => Self::Each(each.into_iter().map(map).collect()),
            Self::Stretches(stretches) if stretches.iter().all(|stretch| stretch.step == 0) => {
                Self::of(stretches.into_iter().map(|stretch| Stretch { first: map(stretch.first), ..stretch }))
            }
            other => other.iter().map(map).collect(),
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Each(each) => each.len(),
            Self::Stretches(stretches) => stretches.iter().map(|stretch| stretch.count).sum(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let (each, stretches) = match self {
            Self::Each(each) => (each.as_slice(), &[][..]),
            Self::Stretches(stretches) => (&[][..], stretches.as_slice()),
        };
        each.iter().copied().chain(stretches.iter().copied().flat_map(Stretch::iter))
    }

    /// The number of a record.
    pub fn get(&self, mut at: usize) -> Option<u64> {
        match self {
            Self::Each(each) => each.get(at).copied(),
            Self::Stretches(stretches) => stretches.iter().find_map(|stretch| {
                if at < stretch.count {
                    return Some(stretch.at(at));
                }
                at -= stretch.count;
                None
            }),
        }
    }

    /// Those of some of the records; a range beyond the end is cut.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        match self {
            Self::Each(each) => {
                let end = range.end.min(each.len());
                Self::Each(each.get(range.start.min(end)..end).unwrap_or_default().to_vec())
            }
            Self::Stretches(stretches) => {
                let mut start = 0;
                Self::of(stretches.iter().map(|stretch| {
                    let within = |at: usize| at.saturating_sub(start).min(stretch.count);
                    let part = stretch.part(within(range.start)..within(range.end));
                    start += stretch.count;
                    part
                }))
            }
        }
    }

    /// Takes those from `at` on.
    pub fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Each(each) => Self::Each(each.split_off(at.min(each.len()))),
            Self::Stretches(_) => {
                let tail = self.slice(at..usize::MAX);
                *self = self.slice(0..at);
                tail
            }
        }
    }

    /// Adds those of the records that follow.
    pub fn append(&mut self, other: Self) {
        match (&mut *self, other) {
            (own, other) if own.is_empty() => *own = other,
            (Self::Stretches(own), Self::Stretches(mut other)) => own.append(&mut other),
            (Self::Each(own), other) => own.extend(other.iter()),
            (Self::Stretches(_), other) => *self = Self::Each(self.iter().chain(other.iter()).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers() -> impl Strategy<Value = Numbers> {
        let stretch = (0_u64..9, 0_u64..2, 1_usize..5).prop_map(|(first, step, count)| Stretch { first, step, count });
        prop_oneof![
            proptest::collection::vec(0_u64..9, 0..6).prop_map(Numbers::Each),
            proptest::collection::vec(stretch, 0..4).prop_map(Numbers::Stretches),
        ]
    }

    proptest! {
        #[test]
        fn rules_mean_the_same_as_lists(one in numbers(), other in numbers(), at in 0_usize..20, end in 0_usize..20) {
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
        assert_eq!(Numbers::shared(vec![7, 9], 2).iter().collect::<Vec<_>>(), [7, 7, 9, 9]);
        assert_eq!(Numbers::shared(vec![7, 9], 1), Numbers::Each(vec![7, 9]));
        assert!(Numbers::shared(vec![7], 0).is_empty());
        assert_eq!(Numbers::counting(3, 3).iter().collect::<Vec<_>>(), [3, 4, 5]);
    }
}
