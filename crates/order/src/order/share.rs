//! Numbers cut into parts that differ by one at most: lanes of an order, slots of lanes and of ranks in a step.

/// `count` numbers from 0, cut into `parts`, the larger ones first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EqualShares {
    size: u64,
    larger: u64,
}

impl EqualShares {
    /// Cuts `count` numbers into so many parts, at least one.
    pub(crate) fn of_parts(count: u64, parts: u64) -> Self {
        Self { size: count / parts, larger: count % parts }
    }

    /// Returns the first number of a part.
    pub(crate) fn start_of(self, part: u64) -> u64 {
        part * self.size + part.min(self.larger)
    }

    /// Returns how many numbers a part has.
    pub(crate) fn len_of(self, part: u64) -> u64 {
        self.size + u64::from(part < self.larger)
    }

    /// Returns the part that contains a number.
    pub(crate) fn part_of(self, number: u64) -> u64 {
        let border = self.larger * (self.size + 1);
        if number < border { number / (self.size + 1) } else { self.larger + (number - border) / self.size.max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_contain_their_numbers() {
        for (count, parts) in [(0, 1), (0, 5), (1, 1), (3, 5), (5, 5), (17, 5), (20, 5), (1000, 7)] {
            let shares = EqualShares::of_parts(count, parts);
            let mut next = 0;
            for part in 0..parts {
                assert_eq!(shares.start_of(part), next, "{count} {parts}");
                for number in next..next + shares.len_of(part) {
                    assert_eq!(shares.part_of(number), part, "{count} {parts} {number}");
                }
                next += shares.len_of(part);
            }
            assert_eq!((next, shares.start_of(parts)), (count, count));
        }
    }
}
