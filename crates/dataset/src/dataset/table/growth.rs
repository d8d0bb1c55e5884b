//! When tables that grow with every commit become one: lists of the log, and segments of the id index.
//!
//! Each table is more than four times as large as all smaller ones together, or else it is merged with them: five
//! tables are as many as ten thousand commits of equal size leave, and a row is written again some twenty times until
//! then. The smallest ones become one in any case: a table of ten rows costs as much as one of a hundred.
//!
//! ```text
//! 5 40 200 1000     a commit adds 15     4 * (5 + 15) >= 40, and 4 * (20 + 40) >= 200, so they become one     260 1000
//! ```

use super::list::ListRef;

/// How many times as large as all smaller tables together one may be that is merged with them.
const RATIO: u64 = 4;

/// Takes out the lists that become one with `added` rows, with which they have at most `most` if these rows are few.
pub(in crate::dataset) fn take_crowd(lists: &mut Vec<ListRef>, added: u64, least: u64, most: u64) -> Vec<ListRef> {
    lists.sort_by_key(|list| list.rows);
    // Among equals, what is in no list yet is the smallest: it is written in any case.
    let place = lists.partition_point(|list| list.rows < added);
    let mut sizes: Vec<u64> = lists.iter().map(|list| list.rows).collect();
    if added > 0 {
        sizes.insert(place, added);
    }
    let crowd = crowd_size(&sizes, least, most);
    lists.drain(..crowd - usize::from(added > 0 && place < crowd)).collect()
}

/// Returns how many of some tables, whose sizes are given in ascending order, become one: the smallest ones, up to
/// `most` in total. Tables of up to `least` never stay beside smaller ones.
pub(in crate::dataset) fn crowd_size(sizes: &[u64], least: u64, most: u64) -> usize {
    let (mut below, mut crowd) = (0_u64, 0);
    for (smaller, size) in sizes.iter().enumerate() {
        let total = below.saturating_add(*size);
        if total > most {
            break;
        }
        if smaller > 0 && *size <= below.saturating_mul(RATIO).max(least) {
            crowd = smaller + 1;
        }
        below = total;
    }
    crowd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_become_one_until_the_next_is_much_larger_than_all_of_them() {
        assert_eq!(crowd_size(&[], 32, 10_000), 0);
        assert_eq!(crowd_size(&[10], 32, 10_000), 0);
        assert_eq!(crowd_size(&[5, 33], 32, 10_000), 0);
        assert_eq!(crowd_size(&[5, 32], 32, 10_000), 2);
        assert_eq!(crowd_size(&[5, 15, 40, 200, 1100], 0, 10_000), 4);
        assert_eq!(
            crowd_size(&[50, 201, 900, 6_000], 0, 10_000),
            3,
            "201 is much more than 50, but 900 is not than both"
        );
        assert_eq!(crowd_size(&[600, 600], 32, 1000), 0, "together they are too many");
        assert_eq!(crowd_size(&[1, 1, u64::MAX, u64::MAX], 32, u64::MAX), 4);
    }

    #[test]
    fn there_are_few_tables_and_rows_are_written_few_times() {
        for step in [1_u64, 7, 100] {
            let (mut sizes, mut total, mut written) = (Vec::new(), 0, 0);
            for commit in 0..10_000 {
                let rows = 1 + commit * 7919 % step;
                total += rows;
                let place = sizes.partition_point(|size| *size < rows);
                sizes.insert(place, rows);
                let merged: u64 = sizes.drain(..crowd_size(&sizes, 16, u64::MAX)).sum();
                written += merged.max(rows);
                if merged > 0 {
                    sizes.insert(0, merged);
                }
                assert!(sizes.is_sorted() && sizes.len() <= 7, "{sizes:?}");
            }
            assert_eq!(sizes.iter().sum::<u64>(), total);
            assert!(written <= 25 * total, "{written} of {total}");
        }
    }
}
