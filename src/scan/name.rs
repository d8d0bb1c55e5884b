//! Names of sources, and their order.
//!
//! A run looks at all names several times before it reads anything. Each name by itself would be somewhere in memory,
//! and a million of them wait for it again and again, so neighbours share one text:
//!
//! ```text
//! text    0001/a.jpg0001/a.json0001/b.jpg...      as the folders were listed
//! names   |--------||---------||--------|
//! ```

use std::{cmp::Ordering, fmt, ops::Deref, sync::Arc};

use rayon::prelude::*;

/// Names that share a text.
const PACKED_NAMES: usize = 1_024;

/// Minimum average number of files per folder for which sorting by folders is tried.
const MIN_FOLDER_FILES: usize = 8;

/// Length of a name that is the whole text.
const WHOLE: u32 = u32::MAX;

/// The name of a source.
#[derive(Clone)]
pub(super) struct Name {
    text: Arc<str>,
    start: u32,
    length: u32,
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        match self.length {
            WHOLE => &self.text,
            length => &self.text[self.start as usize..self.start as usize + length as usize],
        }
    }
}

impl From<String> for Name {
    fn from(name: String) -> Self {
        Self { text: name.into(), start: 0, length: WHOLE }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// What has a name.
pub(super) trait Named: Send + Sync {
    fn name(&self) -> &Name;

    fn name_mut(&mut self) -> &mut Name;
}

/// Stores the names of neighbours together.
pub(super) fn pack<F: Named>(files: &mut [F]) {
    files.par_chunks_mut(PACKED_NAMES).for_each(|files| {
        let bytes: usize = files.iter().map(|file| file.name().len()).sum();
        if u32::try_from(bytes).is_err() {
            return;
        }
        let mut text = String::with_capacity(bytes);
        files.iter().for_each(|file| text.push_str(file.name()));
        let text: Arc<str> = text.into();
        let mut start = 0;
        for file in files {
            let Ok(length) = u32::try_from(file.name().len()) else { return };
            *file.name_mut() = Name { text: Arc::clone(&text), start, length };
            start += length;
        }
    });
}

/// Sorts by name. Files are listed folder by folder, each sorted, so it is often enough to sort the folders.
pub(super) fn sorted<F: Named>(mut files: Vec<F>) -> Vec<F> {
    let ends =
        files.par_windows(2).enumerate().filter(|(_, pair)| pair[0].name() > pair[1].name()).map(|(at, _)| at + 1);
    let mut ends: Vec<usize> = ends.collect();
    if !ends.is_empty() && ends.len() < files.len() / MIN_FOLDER_FILES {
        ends.push(files.len());
        let (mut unsorted, mut start) = (files.into_iter(), 0);
        let run = |end| unsorted.by_ref().take(end - std::mem::replace(&mut start, end)).collect();
        let mut runs: Vec<Vec<F>> = ends.into_iter().map(run).collect();
        runs.sort_by(|a, b| a.first().map(F::name).cmp(&b.first().map(F::name)));
        files = runs.into_iter().flatten().collect();
    }
    sort(&mut files);
    files
}

/// Sorts by name. Files are usually sorted already, which all cores check.
pub(super) fn sort<F: Named>(files: &mut [F]) {
    if !files.par_windows(2).all(|pair| pair[0].name() <= pair[1].name()) {
        files.par_sort_by(|a, b| a.name().cmp(b.name()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Named for Name {
        fn name(&self) -> &Name {
            self
        }

        fn name_mut(&mut self) -> &mut Name {
            self
        }
    }

    #[test]
    fn packed_names_are_the_same() {
        let names: Vec<String> = (0..3_000).map(|n| format!("{:03}/\u{e4}{}", n / 70, "x".repeat(n % 9))).collect();
        let mut files: Vec<Name> = names.iter().cloned().map(Name::from).collect();
        for _ in 0..2 {
            pack(&mut files);
            assert!(files.iter().map(|name| &**name).eq(&names));
        }
        let mut expected = names.clone();
        expected.sort();
        assert!(sorted(files).iter().map(|name| &**name).eq(&expected));
    }

    #[test]
    fn folders_in_any_order_are_sorted() {
        for folders in [1, 2, 7, 100] {
            let name = |n: usize| format!("{:03}/{:05}", (n / 50 * 37) % folders, n % 50);
            let mut expected: Vec<String> = (0..50 * folders).map(name).collect();
            let files: Vec<Name> = expected.iter().cloned().map(Name::from).collect();
            expected.sort();
            assert!(sorted(files).iter().map(|name| &**name).eq(&expected), "{folders}");
        }
    }
}
