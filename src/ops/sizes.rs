//! Histograms of sizes by powers of two.

use serde::Serialize;

/// Number of classes: 0, and a power of two for each bit.
const CLASSES: usize = 65;

/// Sizes of at least `from` bytes and less than twice as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeBin {
    /// Smallest size in the bin, a power of two, or 0.
    pub from: u64,
    /// Number of sizes.
    pub count: u64,
    /// Their sum.
    pub bytes: u64,
}

/// Counts sizes.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    counts: [(u64, u64); CLASSES],
}

impl Default for Sizes {
    fn default() -> Self {
        Self { counts: [(0, 0); CLASSES] }
    }
}

impl Sizes {
    pub(super) fn add(&mut self, bytes: u64) {
        let class = bytes.checked_ilog2().map_or(0, |e| e as usize + 1);
        if let Some((count, sum)) = self.counts.get_mut(class) {
            *count += 1;
            *sum = sum.saturating_add(bytes);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (own, other) in self.counts.iter_mut().zip(&other.counts) {
            own.0 += other.0;
            own.1 = own.1.saturating_add(other.1);
        }
    }

    /// Returns the bins from the smallest to the largest size, without gaps.
    pub(super) fn size_bins(&self) -> Vec<SizeBin> {
        let from = |class: usize| if class == 0 { 0 } else { 1 << (class - 1) };
        let used = |counts: &(u64, u64)| counts.0 > 0;
        let (Some(first), Some(last)) = (self.counts.iter().position(used), self.counts.iter().rposition(used)) else {
            return Vec::new();
        };
        let bins = self.counts.iter().enumerate().take(last + 1).skip(first);
        bins.map(|(class, (count, bytes))| SizeBin { from: from(class), count: *count, bytes: *bytes }).collect()
    }
}

impl FromIterator<u64> for Sizes {
    fn from_iter<T: IntoIterator<Item = u64>>(sizes: T) -> Self {
        let mut all = Self::default();
        sizes.into_iter().for_each(|bytes| all.add(bytes));
        all
    }
}
