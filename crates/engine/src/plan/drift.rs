//! Measures how far the values of a column moved between two versions.
//!
//! The population stability index compares shares of values in bins, `sum((b - a) * ln(b / a))`, where `a` are the
//! shares of the older version, which defines the bins, and `b` those of the newer one (N. Siddiqi, Credit Risk
//! Scorecards, Wiley 2006; its statistics: B. Yurdakul, Statistical Properties of Population Stability Index, Western
//! Michigan University 2018). By convention, an index below 0.1 means no change, and one above 0.2 to 0.25 a
//! significant change. Bins are deciles. For columns with few distinct values, each value is a bin; for text, the most
//! common values are bins and all others share one.

/// Number of quantile bins for numbers.
pub const QUANTILES: usize = 10;
/// Maximum number of distinct values of a column that gets one bin per value.
pub const MAX_VALUE_BINS: usize = 20;
/// Minimum share of a bin: an empty one would make the index infinite.
pub const MIN_SHARE: f64 = 1e-4;

/// Returns the upper bounds of bins, each included in its bin; values above the last bound have a bin of their own.
/// `values` is a sample in ascending order. A bound is the smallest value that the given number of tenths of the sample
/// does not exceed.
pub fn bin_edges(values: &[f64]) -> Vec<f64> {
    let mut distinct: Vec<f64> = values.to_vec();
    distinct.dedup();
    if distinct.len() <= MAX_VALUE_BINS {
        return distinct;
    }
    let mut edges: Vec<f64> =
        (1..QUANTILES).filter_map(|q| values.get((q * values.len()).div_ceil(QUANTILES) - 1).copied()).collect();
    edges.dedup();
    edges
}

/// Returns the bin of a value.
pub fn bin_index(edges: &[f64], value: f64) -> usize {
    edges.partition_point(|edge| *edge < value)
}

/// Returns the index of two counts of the same bins; `None` if one side has no values.
pub fn population_stability(before: &[u64], after: &[u64]) -> Option<f64> {
    let (all_before, all_after) = (before.iter().sum::<u64>(), after.iter().sum::<u64>());
    if all_before == 0 || all_after == 0 {
        return None;
    }
    let share = |count: u64, all: u64| (count as f64 / all as f64).max(MIN_SHARE);
    let parts = before.iter().zip(after).map(|(a, b)| {
        let (a, b) = (share(*a, all_before), share(*b, all_after));
        (b - a) * (b / a).ln()
    });
    Some(parts.sum())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn bins_are_deciles_or_values() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(bin_edges(&values), [100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0]);
        assert_eq!(
            (
                bin_index(&bin_edges(&values), 100.0),
                bin_index(&bin_edges(&values), 100.5),
                bin_index(&bin_edges(&values), 1e9)
            ),
            (0, 1, 9)
        );
        assert_eq!(bin_edges(&[0.0, 0.0, 1.0, 1.0, 1.0]), [0.0, 1.0]);
        assert!(bin_edges(&[]).is_empty());
        let mostly_one: Vec<f64> = (0..100).map(|i| f64::from(if i < 95 { 1 } else { i })).collect();
        assert_eq!(bin_edges(&mostly_one), [1.0, 95.0, 96.0, 97.0, 98.0, 99.0]);
    }

    #[test]
    fn the_index_agrees_with_its_definition() {
        assert_eq!(population_stability(&[10, 20, 70], &[1, 2, 7]), Some(0.0));
        // (.5 - .25) ln(.5 / .25) + (.5 - .75) ln(.5 / .75)
        assert!((population_stability(&[25, 75], &[50, 50]).unwrap() - 0.274_653_072_167_027_5).abs() < 1e-12);
        let empty = population_stability(&[50, 50], &[100, 0]).unwrap();
        assert!((empty - (0.5 * 2_f64.ln() + (1e-4 - 0.5) * (1e-4_f64 / 0.5).ln())).abs() < 1e-12);
        assert_eq!(population_stability(&[0, 0], &[1, 2]), None);
    }
}
