//! Cuts the sources of a run into tasks.
//!
//! ```text
//! units of sources   |--|---|-|----|--|-|-----|--|---|-|     sources, or the files of samples, in order
//! tasks              |-----------|---------|-----------|     even parts of about the task size
//! ```
//!
//! The cut follows from the list of sources and the task size alone, never from the number of workers.

use std::ops::Range;

use crate::units::Size;

/// Default stored bytes of a task.
pub const DEFAULT_TASK_SIZE: Size = Size::from_mib(8 << 10);

/// Stored bytes of a task of a run whose list of files is long: it has half a million files at most.
pub const SHORT_TASK_SIZE: Size = Size::from_mib(2 << 10);

/// Bytes that a source counts for besides its content: opening a file costs as much as reading some kilobytes.
const SOURCE_BYTES: u64 = 4 << 10;

fn unit_weight(bytes: u64, sources: u64) -> u64 {
    bytes.saturating_add(sources.saturating_mul(SOURCE_BYTES)).max(1)
}

/// Returns the number of tasks that come closest to the wanted size; at least 1. Units that are larger than a task may
/// leave fewer.
pub fn task_count(units: impl Iterator<Item = (u64, u64)>, task_size: Size) -> u64 {
    let total: u128 = units.map(|(bytes, sources)| u128::from(unit_weight(bytes, sources))).sum();
    let count = (total + u128::from(task_size.0 / 2)) / u128::from(task_size.0.max(1));
    u64::try_from(count).unwrap_or(u64::MAX).max(1)
}

/// Returns the units of each task, given the bytes and the number of sources of each unit. A unit is never divided.
/// All tasks but those of large units have about the same size, so there is no small one at the end.
pub fn cut_tasks(units: &[(u64, u64)], task_size: Size) -> Vec<Range<usize>> {
    let total: u128 = units.iter().map(|(bytes, sources)| u128::from(unit_weight(*bytes, *sources))).sum();
    let count = u128::from(task_count(units.iter().copied(), task_size)).min(units.len().max(1) as u128);
    let (mut tasks, mut start, mut sum, mut part) = (Vec::new(), 0, 0_u128, 0);
    for (i, (bytes, sources)) in units.iter().enumerate() {
        let weight = u128::from(unit_weight(*bytes, *sources));
        // A unit belongs to the part in which its middle lies.
        let own = (2 * sum + weight) * count / (2 * total);
        sum += weight;
        if i > start && own > part {
            tasks.push(start..i);
            start = i;
        }
        part = own;
    }
    if start < units.len() {
        tasks.push(start..units.len());
    }
    tasks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(units: &[(u64, u64)], tasks: &[Range<usize>]) -> Vec<u64> {
        tasks.iter().map(|task| units[task.clone()].iter().map(|(bytes, _)| bytes).sum()).collect()
    }

    #[test]
    fn tasks_are_even() {
        let units = vec![(1 << 20, 1); 1000];
        let tasks = cut_tasks(&units, Size::from_mib(64));
        assert_eq!(tasks.len(), 16);
        for size in sizes(&units, &tasks) {
            assert!((60 << 20..=66 << 20).contains(&size), "{size}");
        }
        assert_eq!(sizes(&units, &cut_tasks(&units, Size::from_mib(8 << 10))), [1000 << 20]);
        assert!(cut_tasks(&[], Size::from_mib(1)).is_empty());
        assert_eq!(cut_tasks(&[(0, 0)], Size::from_mib(1)).len(), 1);
    }

    #[test]
    fn a_large_source_is_a_task_of_its_own() {
        let units = [(10, 1), (500 << 20, 1), (10, 1), (100 << 20, 1)];
        let tasks = cut_tasks(&units, Size::from_mib(100));
        assert!(tasks.iter().any(|task| task.contains(&1) && !task.contains(&3)), "{tasks:?}");
    }

    proptest! {
        #[test]
        fn every_unit_is_in_one_task(
            units in proptest::collection::vec((0_u64..1 << 24, 0_u64..5), 0..200),
            size in 1_u64..1 << 26,
        ) {
            let tasks = cut_tasks(&units, Size(size));
            prop_assert_eq!(tasks.iter().cloned().flatten().collect::<Vec<_>>(), (0..units.len()).collect::<Vec<_>>());
            prop_assert!(tasks.iter().all(|task| !task.is_empty()));
        }
    }
}
