//! Names of sources, and their order.
//!
//! There may be millions of names, and a run looks at all of them several times before it reads anything. Neighbours
//! share one text, so that a name costs little more than its letters and they are in the cache together:
//!
//! ```text
//! text    0001/a.jpg"5d41"0001/a.json"7d79"0001/b.jpg...      as the folders were listed
//! names   |--------|......|---------|......|--------|         the rest are entity tags
//! ```

use std::{cmp::Ordering, fmt, ops::Deref, sync::Arc};

use rayon::prelude::*;

/// Minimum average number of files per folder for which sorting by folders is tried.
const MIN_FOLDER_FILES: usize = 8;

/// What neighbours have in common.
struct Block<S> {
    shared: S,
    text: Box<str>,
}

/// The name of a source, and what it shares with others.
pub(super) struct SharedName<S> {
    block: Arc<Block<S>>,
    start: u32,
    length: u32,
}

impl<S> SharedName<S> {
    /// Returns a name that shares nothing, followed by a second text.
    pub(super) fn new(shared: S, name: &str, behind: &str) -> Self {
        let text = [name, behind].concat().into();
        Self { block: Arc::new(Block { shared, text }), start: 0, length: bytes_of(name) }
    }

    /// Returns what the name shares with others.
    pub(super) fn shared_data(&self) -> &S {
        &self.block.shared
    }

    /// Returns so many bytes of what follows the name in the text.
    pub(super) fn text_behind(&self, bytes: u16) -> &str {
        let end = self.start as usize + self.length as usize;
        self.block.text.get(end..end + usize::from(bytes)).unwrap_or_default()
    }
}

fn bytes_of(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

/// Returns names that share a text, each followed by a second text. All together have less than 4 GiB.
pub(super) fn pack_names<S>(shared: S, names: &[(&str, &str)]) -> impl Iterator<Item = SharedName<S>> {
    let mut text = String::with_capacity(names.iter().map(|(name, behind)| name.len() + behind.len()).sum());
    names.iter().for_each(|(name, behind)| text.extend([*name, *behind]));
    let block = Arc::new(Block { shared, text: text.into() });
    names.iter().scan(0_u32, move |next, (name, behind)| {
        let (start, length) = (*next, bytes_of(name));
        *next = start.saturating_add(length).saturating_add(bytes_of(behind));
        Some(SharedName { block: Arc::clone(&block), start, length })
    })
}

impl<S> Clone for SharedName<S> {
    fn clone(&self) -> Self {
        Self { block: Arc::clone(&self.block), ..*self }
    }
}

impl<S> Deref for SharedName<S> {
    type Target = str;

    fn deref(&self) -> &str {
        let name = self.start as usize..self.start as usize + self.length as usize;
        self.block.text.get(name).unwrap_or_default()
    }
}

impl<S> fmt::Debug for SharedName<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// What has a name.
pub(super) trait Named: Send + Sync {
    fn name(&self) -> &str;
}

/// The order of names.
fn by_name<F: Named>(a: &F, b: &F) -> Ordering {
    a.name().cmp(b.name())
}

/// Sorts by name, in place: there may be millions. Files are listed folder by folder, each sorted, so it is often
/// enough to put the folders in order.
pub(super) fn sort_folders<F: Named>(files: &mut [F]) {
    let starts = files.par_windows(2).enumerate().filter(|(_, pair)| pair[0].name() > pair[1].name());
    let starts: Vec<usize> = starts.map(|(at, _)| at + 1).collect();
    if !starts.is_empty() && starts.len() < files.len() / MIN_FOLDER_FILES {
        move_runs(files, &starts);
    }
    sort_by_name(files);
}

/// Puts the runs that begin at the start and at `starts` into the order of their first names.
fn move_runs<F: Named>(files: &mut [F], starts: &[usize]) {
    let begins = std::iter::once(0).chain(starts.iter().copied());
    let ends = starts.iter().copied().chain([files.len()]);
    let mut runs: Vec<(usize, usize)> = begins.zip(ends).collect();
    runs.sort_by(|a, b| by_name(&files[a.0], &files[b.0]));
    // Where each file belongs.
    let mut places = vec![0; files.len()];
    let mut next = 0_u32;
    for (start, end) in runs {
        for place in &mut places[start..end] {
            *place = next;
            next += 1;
        }
    }
    for at in 0..files.len() {
        while places[at] as usize != at {
            let place = places[at] as usize;
            files.swap(at, place);
            places.swap(at, place);
        }
    }
}

/// Sorts by name. Files are usually sorted already, which all cores check.
pub(super) fn sort_by_name<F: Named>(files: &mut [F]) {
    if !files.par_windows(2).all(|pair| pair[0].name() <= pair[1].name()) {
        files.par_sort_unstable_by(by_name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Named for SharedName<()> {
        fn name(&self) -> &str {
            self
        }
    }

    fn names(texts: &[String]) -> Vec<SharedName<()>> {
        let pairs: Vec<(&str, &str)> = texts.iter().map(|text| (text.as_str(), "")).collect();
        pack_names((), &pairs).collect()
    }

    #[test]
    fn packed_names_are_the_same() {
        let names: Vec<String> = (0..3_000).map(|n| format!("{:03}/\u{e4}{}", n / 70, "x".repeat(n % 9))).collect();
        let tags: Vec<String> = (0..3_000).map(|n| "\u{e4}".repeat(n % 4)).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(tags.iter().map(String::as_str)).collect();
        let packed: Vec<SharedName<u8>> = pack_names(7, &pairs).collect();
        assert_eq!(packed.len(), names.len());
        for (name, (text, tag)) in packed.iter().zip(&pairs) {
            let bytes = u16::try_from(tag.len()).unwrap_or(u16::MAX);
            assert_eq!((&**name, name.text_behind(bytes), *name.shared_data()), (*text, *tag, 7));
        }
        let alone = SharedName::new((), "\u{e4}b", "tag");
        assert_eq!((&*alone, alone.text_behind(3)), ("\u{e4}b", "tag"));
    }

    #[test]
    fn folders_in_any_order_are_sorted() {
        for folders in [1, 2, 7, 100] {
            for step in [1, 37] {
                let name = |n: usize| format!("{:03}/{:05}", (n / 50 * step) % folders, n % 50);
                let mut expected: Vec<String> = (0..50 * folders).map(name).collect();
                let mut files = names(&expected);
                expected.sort();
                sort_folders(&mut files);
                assert!(files.iter().map(|name| &**name).eq(&expected), "{folders} {step}");
            }
        }
    }

    #[test]
    fn folders_within_others_are_sorted() {
        let mut expected: Vec<String> = Vec::new();
        for folder in ["b", "a", "a-b", "a/sub"] {
            expected.extend((0..40).map(|n| format!("{folder}/{n:02}")));
            expected.extend((0..20).map(|n| format!("{folder}/z{n:02}")));
        }
        let mut files = names(&expected);
        expected.sort();
        sort_folders(&mut files);
        assert!(files.iter().map(|name| &**name).eq(&expected));
    }
}
