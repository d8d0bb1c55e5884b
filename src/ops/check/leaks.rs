//! Leaks: subjects, ids or values of a column that are in more than one split of a dataset, such as training and test.
//!
//! A split is a folder `split=NAME` or a value of a column. The fingerprint of each group is kept with the split in
//! which it was first, in bounded memory, so which groups are in two splits does not depend on the order of reading.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::{Error, Result},
    exec::seen::{Seen, SeenMemory},
    record::{fingerprint::Fingerprinter, json::text_of},
};

/// Groups that are shown, at most.
const EXAMPLES: usize = 3;
/// Splits that are counted by name, at most.
const MAX_SPLITS: usize = 64;

/// What decides which records belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// Subject ids of the sidecars.
    Subject,
    /// Record ids of the sidecars.
    Id,
    /// A column.
    Column(String),
}

/// Split of records.
#[derive(Clone, Copy)]
pub(super) enum SplitOf<'a> {
    /// All are on one.
    One(&'a str),
    /// A column states it.
    Column(&'a ArrayRef),
}

/// Groups and their splits.
pub(super) struct Leaks {
    pub(super) by: By,
    /// Column that states the split; otherwise folders do.
    pub(super) column: Option<String>,
    state: Mutex<LeakState>,
}

struct LeakState {
    seen: Seen,
    leaked: Seen,
    counts: Counts,
}

/// What is counted of leaks.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    /// Groups in more than one split.
    pub(super) leaked: u64,
    /// Groups.
    pub(super) groups: u64,
    /// Records with a group and a split.
    pub(super) records: u64,
    /// Records of each split.
    pub(super) splits: BTreeMap<String, u64>,
    /// The least of the groups in more than one split.
    pub(super) examples: BTreeSet<String>,
}

impl Leaks {
    pub(super) fn new(by: By, column: Option<String>, memory: SeenMemory) -> Self {
        let state = LeakState { seen: Seen::new(memory), leaked: Seen::new(memory), counts: Counts::default() };
        Self { by, column, state: Mutex::new(state) }
    }

    /// Returns the columns of the data that are needed.
    pub(super) fn needed_columns(&self) -> impl Iterator<Item = &str> {
        let by = if let By::Column(name) = &self.by { Some(name.as_str()) } else { None };
        by.into_iter().chain(self.column.as_deref())
    }

    /// Adds records; those without a group or without a split are in no two splits.
    pub(super) fn add_records(&self, groups: &ArrayRef, splits: SplitOf<'_>) -> Result<()> {
        let fingerprinter = Fingerprinter::default();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let LeakState { seen, leaked, counts } = &mut *state;
        for row in 0..groups.len() {
            let split: Option<Cow<'_, str>> = match splits {
                SplitOf::One(split) => Some(split.into()),
                SplitOf::Column(column) => cell_text(column, row),
            };
            let (Some(group), Some(split)) = (cell_text(groups, row), split) else { continue };
            counts.records += 1;
            let is_known = counts.splits.contains_key(split.as_ref());
            if is_known || counts.splits.len() < MAX_SPLITS {
                *counts.splits.entry(split.clone().into_owned()).or_default() += 1;
            }
            let (fingerprint, number) = (fingerprinter.of_id(&group), xxh3_64(split.as_bytes()));
            match seen.find_or_insert(&fingerprint, number)? {
                None => counts.groups += 1,
                Some(first) if first != number && leaked.find_or_insert(&fingerprint, number)?.is_none() => {
                    counts.leaked += 1;
                    counts.examples.insert(group.into_owned());
                    if counts.examples.len() > EXAMPLES {
                        counts.examples.pop_last();
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Adds records of a sidecar.
    pub(super) fn add_ids(&self, batch: &RecordBatch, split: &str) -> Result<()> {
        let name = if self.by == By::Id { "record_id" } else { "subject_id" };
        let ids = batch.column_by_name(name);
        let ids = ids.ok_or_else(|| Error::integrity(format!("expected `{name}` in a sidecar, found none")))?;
        self.add_records(ids, SplitOf::One(split))
    }

    pub(super) fn counts(&self) -> Counts {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }
}

fn cell_text(values: &ArrayRef, row: usize) -> Option<Cow<'_, str>> {
    match values.as_string_opt::<i32>() {
        Some(texts) => texts.is_valid(row).then(|| texts.value(row).into()),
        None => text_of(values.as_ref(), row).map(Cow::Owned),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    #[test]
    fn a_group_on_two_splits_counts_once() {
        let leaks = Leaks::new(By::Subject, None, SeenMemory::from_limit(1 << 20));
        let groups = |texts: &[Option<&str>]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
        leaks.add_records(&groups(&[Some("a"), Some("b"), None, Some("a")]), SplitOf::One("train")).unwrap();
        leaks.add_records(&groups(&[Some("c"), Some("a"), Some("a"), None]), SplitOf::One("test")).unwrap();
        let splits = groups(&[Some("train"), None, Some("test")]);
        leaks.add_records(&groups(&[Some("c"), Some("b"), Some("c")]), SplitOf::Column(&splits)).unwrap();
        let counts = leaks.counts();
        assert_eq!((counts.leaked, counts.groups, counts.records), (2, 3, 8));
        assert_eq!(counts.examples.into_iter().collect::<Vec<_>>(), ["a", "c"]);
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        leaks.add_records(&numbers, SplitOf::One("train")).unwrap();
        assert_eq!(leaks.counts().groups, 5);
    }
}
