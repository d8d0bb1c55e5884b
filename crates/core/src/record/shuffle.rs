//! The order of a shuffled run: each record has a rank that follows from the seed and from what names the record, and
//! nothing else.
//!
//! ```text
//! sample of files     key                    --+
//! other records       source | row, 8 bytes  --+-> XXH3-128 with the seed -> rank; the records ascend by rank
//! ```
//!
//! So the order is the same in every run with the same seed, whatever the memory, the number of threads and the order
//! of the sources. Equal ranks keep the order of the input.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// A place in the order of a shuffled run.
pub type Rank = u128;

/// Returns the rank of a sample made of files.
pub fn rank_of_sample(seed: u64, key: &str) -> Rank {
    xxh3_128_with_seed(key.as_bytes(), seed)
}

/// The ranks of the rows of a source.
#[derive(Debug, Clone)]
pub struct RowRanks {
    seed: u64,
    /// The name of the source, and room for a row.
    text: Vec<u8>,
}

impl RowRanks {
    /// Creates the ranks of a source's rows, given its name as it is recorded.
    pub fn new(seed: u64, source: &str) -> Self {
        Self { seed, text: [source.as_bytes(), &[0; 8]].concat() }
    }

    /// Returns the rank of a row, counted from 1.
    pub fn rank_of_row(&mut self, row: u64) -> Rank {
        let name = self.text.len() - 8;
        self.text[name..].copy_from_slice(&row.to_le_bytes());
        xxh3_128_with_seed(&self.text, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of `xxhash.xxh3_128_hexdigest` of Python.
    #[test]
    fn ranks_are_those_of_xxh3() {
        assert_eq!(rank_of_sample(7, "scans/P-1"), SAMPLE);
        let mut ranks = RowRanks::new(7, "a.csv");
        assert_eq!([1, 1_000_000].map(|row| ranks.rank_of_row(row)), ROWS);
        assert_ne!(rank_of_sample(8, "scans/P-1"), SAMPLE);
    }

    const SAMPLE: Rank = 0xb4c4_c9fb_0443_6ceb_f9a6_6e8a_a866_30b3;
    const ROWS: [Rank; 2] = [0xf7d1_cb39_e49c_3c65_24d3_7cfd_7522_7f54, 0x6314_8bf5_e5b5_20ac_cd8c_cc8b_9d03_ad34];

    /// Every order of four records is as frequent as any other, over many seeds.
    #[test]
    fn all_orders_are_alike() {
        let (seeds, mut counts) = (24_000_u64, std::collections::BTreeMap::new());
        for seed in 0..seeds {
            let mut ranks = RowRanks::new(seed, "table.csv");
            let mut rows = [1_u64, 2, 3, 4];
            rows.sort_by_key(|row| ranks.rank_of_row(*row));
            *counts.entry(rows).or_insert(0_u64) += 1;
        }
        let expected = seeds as f64 / 24.0;
        let chi: f64 = counts.values().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
        // 0.001 quantile of chi-square with 23 degrees of freedom.
        assert!(counts.len() == 24 && chi < 49.73, "{chi}: {counts:?}");
    }
}
