//! Trees of small files, grouped into samples.
//!
//! Files that share a key are the parts of one sample. By WebDataset's rule, that is the path up to the first dot of
//! the name; another [rule](crate::record::key_rule) may be chosen, by which the key need not be the beginning of the
//! path:
//!
//! ```text
//! scans/P-1.ct.png   -> key scans/P-1   extension ct.png   \
//! scans/P-1.JSON     -> key scans/P-1   extension json     /  one sample of two parts
//! scans/README       -> key scans/README   extension bin
//! ```
//!
//! A sample may have further parts that are not files (`given`).
//!
//! Grouping, splitting and reading depend only on the list of files, never on threads or on the order of a directory
//! listing. This module opens no files itself: the caller passes a function that reads a file.

mod given;

use std::{collections::BTreeSet, ops::Range};

use bytes::Bytes;
use rayon::prelude::*;

pub use self::given::{GivenPart, PartContents};
pub use crate::record::key::split_key;
use crate::{
    error::{Error, Result},
    record::{
        Part, Payload, RecordBlock, Reject, Sample,
        buffer_pool::BufferPool,
        key::{extension_of, key_length},
        key_rule::part_of,
    },
};

/// Files processed by one thread at a time.
const CHUNK: usize = 4096;

/// A file of the tree; the caller may know more about it.
pub trait TreeFile {
    /// Path relative to the source root, components separated by `/`.
    fn path(&self) -> &str;

    /// Size in bytes when the tree was listed.
    fn byte_count(&self) -> u64;

    /// Returns the key of its sample.
    fn key(&self) -> &str {
        &self.path()[..key_length(self.path().as_bytes())]
    }

    /// Returns the name of its part, after a separator: the rest of the path after the key, unless a rule makes both.
    fn part_suffix(&self) -> &str {
        &self.path()[key_length(self.path().as_bytes())..]
    }

    /// Returns the extension in lower case: the name of its part.
    fn extension(&self) -> String {
        extension_of(part_of(self.part_suffix()))
    }
}

/// Files grouped into samples. Samples are sorted by key unless they are put into another order, and the files of each
/// by extension.
///
/// ```text
/// files   2 0 | 1 | 4 3 5      indexes of files in the list
/// ends        2   3       6    end of each sample
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Samples {
    files: Vec<u32>,
    ends: Vec<u32>,
    /// Parts that are not files, sorted by extension.
    given: Vec<GivenPart>,
}

impl Samples {
    /// Adds parts that are not files. A sample must not have a file with the extension of such a part of it.
    #[must_use]
    pub fn with_given(mut self, parts: impl IntoIterator<Item = GivenPart>) -> Self {
        self.given.extend(parts);
        self.given.sort_by(|a, b| a.extension().cmp(b.extension()));
        self
    }

    /// Returns the samples in ascending order of their ranks; those of equal rank keep their order. Parts that are not
    /// files are given later.
    #[must_use]
    pub fn ordered_by<F: TreeFile + Sync, R: Ord + Send>(
        self,
        files: &[F],
        rank: impl Fn(SampleFiles<'_, F>) -> R + Sync,
    ) -> Self {
        let ranked = (0..self.len()).into_par_iter().map(|sample| (rank(self.get(sample, files)), sample));
        let mut ranked: Vec<(R, usize)> = ranked.collect();
        ranked.par_sort_unstable();
        let mut ordered = Self { files: Vec::with_capacity(self.files.len()), ends: Vec::new(), given: Vec::new() };
        let mut end = 0;
        for (_, sample) in ranked {
            let numbers = self.get(sample, files).numbers;
            ordered.files.extend_from_slice(numbers);
            end += numbers.iter().map(|_| 1).sum::<u32>();
            ordered.ends.push(end);
        }
        ordered
    }

    /// Returns what samples have besides files.
    #[must_use]
    pub fn without_files(self) -> Self {
        Self { files: Vec::new(), ends: Vec::new(), given: self.given }
    }

    /// Returns the parts that are not files.
    pub fn given_parts(&self) -> &[GivenPart] {
        &self.given
    }

    /// Returns the distinct extensions of all parts, sorted: the columns of the samples in a table.
    pub fn column_names<F: TreeFile + Sync>(&self, files: &[F]) -> Vec<String> {
        let mut names = column_names(files);
        names.extend(self.given.iter().map(|part| part.extension().to_owned()));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the files of a sample, at least one.
    pub fn get<'a, F: TreeFile>(&'a self, sample: usize, files: &'a [F]) -> SampleFiles<'a, F> {
        let start = sample.checked_sub(1).map_or(0, |before| self.ends[before]);
        let numbers = &self.files[start as usize..self.ends[sample] as usize];
        SampleFiles { sample, numbers, files, given: &self.given }
    }

    /// Returns the samples of a range.
    pub fn iter_range<'a, F: TreeFile>(
        &'a self,
        range: Range<usize>,
        files: &'a [F],
    ) -> impl Iterator<Item = SampleFiles<'a, F>> + Clone {
        range.map(move |sample| self.get(sample, files))
    }
}

/// The files of one sample, sorted by extension, and its parts that are not files.
#[derive(Debug)]
pub struct SampleFiles<'a, F> {
    sample: usize,
    numbers: &'a [u32],
    files: &'a [F],
    given: &'a [GivenPart],
}

impl<F> Clone for SampleFiles<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for SampleFiles<'_, F> {}

impl<'a, F: TreeFile> SampleFiles<'a, F> {
    /// Returns its files.
    pub fn files(self) -> impl Iterator<Item = &'a F> + Clone {
        self.numbers.iter().map(move |&number| &self.files[number as usize])
    }

    /// Returns the indexes of its files in the list.
    pub fn file_indexes(self) -> impl Iterator<Item = usize> {
        self.numbers.iter().map(|number| *number as usize)
    }

    /// Returns the key that all files of the sample share.
    pub fn key(self) -> &'a str {
        self.files().next().map_or("", F::key)
    }

    /// Returns the extensions of its files as written in their paths.
    fn raw_extensions(self) -> impl Iterator<Item = &'a str> + Clone {
        self.files().map(|file| part_of(file.part_suffix()))
    }

    /// Whether its files are in the order of their extensions, which differ and are in lower case.
    fn is_plain(self) -> bool {
        let mut before: Option<&str> = None;
        self.files().all(|file| {
            let ending = file.part_suffix();
            before.replace(ending).is_none_or(|before| before < ending)
                && ending.strip_prefix('.').is_some_and(is_lower)
        })
    }

    /// Returns its parts that are not files: extension and content.
    pub fn given_contents(self) -> impl Iterator<Item = (&'a str, Bytes)> + Clone {
        self.given.iter().filter_map(move |part| Some((part.extension(), part.content(self.sample)?)))
    }

    /// Returns the sizes of all parts, of files as listed.
    pub fn part_sizes(self) -> impl Iterator<Item = u64> {
        self.files().map(F::byte_count).chain(self.given_contents().map(|(_, content)| content.len() as u64))
    }

    /// Returns the bytes of all parts.
    pub fn total_bytes(self) -> u64 {
        self.part_sizes().sum()
    }

    /// Returns the bytes of all files as listed.
    fn file_bytes(self) -> u64 {
        self.files().map(F::byte_count).sum()
    }

    /// Returns its parts, given the contents of its files in their order.
    fn into_parts(self, mut cut: impl FnMut() -> Bytes) -> Vec<Part> {
        let file = |name: &str| Part { extension: extension_of(name), bytes: cut() };
        let mut parts: Vec<Part> = self.raw_extensions().map(file).collect();
        let files = parts.len();
        parts.extend(self.given_contents().map(|(extension, bytes)| Part { extension: extension.to_owned(), bytes }));
        if parts.len() > files {
            parts.sort_by(|a, b| a.extension.cmp(&b.extension));
        }
        parts
    }
}

/// Groups files into samples. `files` must be sorted by path bytewise; the samples are sorted by key.
pub fn group_samples<F: TreeFile + Sync>(files: &[F]) -> Samples {
    let keys: Vec<&str> = files.par_iter().map(F::key).collect();
    let key = |file: u32| keys[file as usize];
    let mut order: Vec<u32> = (0..).take(files.len()).collect();
    // Sorted by path usually means sorted by key, but `a-b.jpg` is between `a.jpg` and `a/x.jpg`.
    if !keys.is_sorted() {
        order.par_sort_by(|a, b| key(*a).cmp(key(*b)));
    }
    let mut ends = Vec::new();
    let mut end = 0;
    for sample in order.chunk_by_mut(|a, b| key(*a) == key(*b)) {
        if sample.len() > 1 && !(SampleFiles { sample: 0, numbers: sample, files, given: &[] }).is_plain() {
            sample.sort_by_cached_key(|file| files[*file as usize].extension());
        }
        end += sample.iter().map(|_| 1).sum::<u32>();
        ends.push(end);
    }
    Samples { files: order, ends, given: Vec::new() }
}

/// Returns the files of the first samples.
pub fn files_of_first<F: TreeFile>(mut files: Vec<F>, samples: usize) -> Vec<F> {
    let mut keys: Vec<&str> = files.iter().map(F::key).collect();
    keys.sort_unstable();
    keys.dedup();
    if let Some(end) = keys.get(samples).map(|key| (*key).to_owned()) {
        files.retain(|file| file.key() < end.as_str());
    }
    files
}

/// Whether there is an extension, and it is its own lower case.
fn is_lower(extension: &str) -> bool {
    !extension.is_empty() && extension.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
}

/// Cuts samples into consecutive ranges of about `range_bytes` bytes and at most `max_files` files each; a larger
/// sample gets its own range.
pub fn plan_ranges<F: TreeFile>(
    samples: &Samples,
    files: &[F],
    range_bytes: u64,
    max_files: usize,
) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut bytes, mut count) = (0, 0u64, 0);
    for (i, sample) in samples.iter_range(0..samples.len(), files).enumerate() {
        let size = sample.total_bytes();
        if i > start && (bytes.saturating_add(size) > range_bytes || count + sample.numbers.len() > max_files) {
            ranges.push(start..i);
            (start, bytes, count) = (i, 0, 0);
        }
        bytes = bytes.saturating_add(size);
        count += sample.numbers.len();
    }
    if start < samples.len() {
        ranges.push(start..samples.len());
    }
    ranges
}

/// Returns the distinct extensions of all files, sorted: the columns of their samples in a table.
pub fn column_names<F: TreeFile + Sync>(files: &[F]) -> Vec<String> {
    let seen = files
        .par_chunks(CHUNK)
        .map(|files| files.iter().map(|file| part_of(file.part_suffix())).collect::<BTreeSet<&str>>())
        .reduce(BTreeSet::new, |one, other| if one.len() < other.len() { &other | &one } else { &one | &other });
    let columns: BTreeSet<String> = seen.into_iter().map(extension_of).collect();
    columns.into_iter().collect()
}

/// Reads samples into a block. Row numbers count from 0 within the block. A sample with two files whose extensions
/// differ only in case is rejected without being read. `read` appends the content of a file; all files share a buffer
/// of `pool`. Hashes are zero unless `hashed`.
///
/// # Errors
/// Errors of `read`; an error that names no source gets the path of the file.
pub fn read_block<'a, F: TreeFile + 'a>(
    samples: impl Iterator<Item = SampleFiles<'a, F>> + Clone,
    hashed: bool,
    pool: &BufferPool,
    read: &dyn Fn(&F, &mut Vec<u8>) -> Result<()>,
) -> Result<RecordBlock> {
    let listed: u64 = samples.clone().map(SampleFiles::file_bytes).sum();
    // One more byte than listed, so that a read detects the end of the file.
    let mut content = pool.take_buffer(usize::try_from(listed).unwrap_or_default().saturating_add(1));
    let mut ends = Vec::new();
    let mut block = RecordBlock::empty();
    for (row, files) in (0u32..).zip(samples.clone()) {
        if let Some(reject) = extension_collision(row, files) {
            block.bytes_in += files.file_bytes();
            block.rejects.push(reject);
            continue;
        }
        for file in files.files() {
            read(file, &mut content).map_err(|e| name_source(e, file.path()))?;
            ends.push(content.len());
        }
        block.rows.push(row);
    }
    block.bytes_in += content.len() as u64;
    let content = pool.lend_buffer(content);
    let mut start = 0;
    let mut ends = ends.into_iter();
    let mut cut = || {
        let end = ends.next().unwrap_or(start);
        content.slice(std::mem::replace(&mut start, end)..end)
    };
    let mut taken = Vec::with_capacity(block.rows.len());
    let mut rows = block.rows.iter().peekable();
    for (row, files) in (0u32..).zip(samples) {
        if rows.next_if_eq(&&row).is_some() {
            let parts = files.into_parts(&mut cut);
            taken.push(Sample { key: files.key().to_owned(), origin: sample_origin(files), subject: None, parts });
        }
    }
    block.hashes = taken.iter().map(|sample| if hashed { sample.hash() } else { 0 }).collect();
    block.payload = Payload::Samples(taken);
    Ok(block)
}

fn name_source(error: Error, path: &str) -> Error {
    if error.place().source.is_some() { error } else { error.at_location(path) }
}

/// Returns a reject if two neighbours in extension order have the same one.
fn extension_collision<F: TreeFile>(row: u32, sample: SampleFiles<'_, F>) -> Option<Reject> {
    if sample.is_plain() {
        return None;
    }
    let extension = |file: &F| file.extension();
    let mut pairs = sample.files().zip(sample.files().skip(1));
    let (one, other) = pairs.find(|(one, other)| extension(one) == extension(other))?;
    Some(Reject {
        row,
        line: 0,
        byte: 0,
        reason: format!(
            "expected one file with extension `{}` for key `{}`, found `{}` and `{}`",
            extension(one),
            sample.key(),
            one.path(),
            other.path()
        ),
        column: Some(extension(one)),
        raw: Bytes::new(),
    })
}

/// Returns the origin of a sample: its path, or the key with the extensions of all its files in shell braces. If paths
/// do not begin with the key, the braces hold the paths.
fn sample_origin<F: TreeFile>(sample: SampleFiles<'_, F>) -> String {
    let key = if sample.files().all(|file| file.path().starts_with(sample.key())) { sample.key() } else { "" };
    let endings = || sample.files().map(|file| &file.path()[key.len()..]);
    let mut origin = String::with_capacity(key.len() + 3 + endings().map(|ending| ending.len() + 1).sum::<usize>());
    origin.push_str(key);
    if sample.numbers.len() == 1 {
        origin.extend(endings());
        return origin;
    }
    let dots = endings().all(|ending| ending.starts_with('.'));
    origin.push_str(if dots { ".{" } else { "{" });
    for (i, ending) in endings().enumerate() {
        if i > 0 {
            origin.push(',');
        }
        origin.push_str(&ending[usize::from(dots)..]);
    }
    origin.push('}');
    origin
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    struct Entry {
        path: String,
        bytes: u64,
    }

    impl TreeFile for Entry {
        fn path(&self) -> &str {
            &self.path
        }

        fn byte_count(&self) -> u64 {
            self.bytes
        }
    }

    fn read_all(files: &[Entry], read: &dyn Fn(&Entry, &mut Vec<u8>) -> Result<()>) -> Result<RecordBlock> {
        let samples = group_samples(files);
        read_block(samples.iter_range(0..samples.len(), files), true, &BufferPool::default(), read)
    }

    fn entries(paths: &[&str]) -> Vec<Entry> {
        let mut paths = paths.to_vec();
        paths.sort_unstable();
        paths.iter().map(|p| Entry { path: (*p).to_owned(), bytes: p.len() as u64 }).collect()
    }

    /// The content of a file is its path.
    fn read_path(entry: &Entry, into: &mut Vec<u8>) -> Result<()> {
        into.extend_from_slice(entry.path.as_bytes());
        Ok(())
    }

    fn samples_of(block: &RecordBlock) -> &[Sample] {
        let Payload::Samples(samples) = &block.payload else { panic!("rows") };
        samples
    }

    #[test]
    fn files_with_one_key_are_grouped_even_if_others_sort_between() {
        let entries = entries(&["a.jpg", "a.b/x.txt", "a.json", "a/x.cls", "a-1.jpg", "B.txt", "a.b/x.cls"]);
        let samples = group_samples(&entries);
        let keys: Vec<&str> = samples.iter_range(0..samples.len(), &entries).map(SampleFiles::key).collect();
        assert_eq!(keys, ["B", "a", "a-1", "a.b/x", "a/x"]);
        let block = read_all(&entries, &read_path).unwrap();
        let origins: Vec<&str> = samples_of(&block).iter().map(|s| s.origin.as_str()).collect();
        assert_eq!(origins, ["B.txt", "a.{jpg,json}", "a-1.jpg", "a.b/x.{cls,txt}", "a/x.cls"]);
        assert_eq!(block.rows, [0, 1, 2, 3, 4]);
        assert_eq!(block.bytes_in, entries.iter().map(|e| e.bytes).sum::<u64>());
        assert_eq!(column_names(&entries), ["cls", "jpg", "json", "txt"]);
    }

    #[test]
    fn colliding_extensions_are_rejected_by_name() {
        let entries = entries(&["a.JPG", "a.jpg", "b.txt"]);
        let block = read_all(&entries, &read_path).unwrap();
        assert_eq!(block.rows, [1]);
        assert_eq!(block.records_in(), 2);
        assert_eq!(
            block.rejects[0].reason,
            "expected one file with extension `jpg` for key `a`, found `a.JPG` and `a.jpg`"
        );
        assert_eq!(block.rejects[0].row, 0);
    }

    #[test]
    fn a_file_without_extension_and_one_with_share_a_key() {
        let entries = entries(&["README", "README.txt"]);
        let block = read_all(&entries, &read_path).unwrap();
        assert_eq!(samples_of(&block)[0].origin, "README{,.txt}");
    }

    #[test]
    fn given_parts_are_sorted_among_the_files_and_not_in_the_origin() {
        let entries = entries(&["a.jpg", "a.txt", "b.jpg"]);
        let contents = PartContents::new(b"{}[1]".to_vec(), vec![2, 5]);
        let given = |extension: &str, numbers: [Option<u32>; 2]| {
            GivenPart::new(extension, contents.clone(), numbers.into_iter())
        };
        let samples =
            group_samples(&entries).with_given([given("json", [Some(1), None]), given("cls", [Some(9), Some(0)])]);
        assert_eq!(samples.column_names(&entries), ["cls", "jpg", "json", "txt"]);
        assert_eq!(samples.get(0, &entries).part_sizes().collect::<Vec<_>>(), [5, 5, 3]);
        let all = samples.iter_range(0..samples.len(), &entries);
        let block = read_block(all, true, &BufferPool::default(), &read_path).unwrap();
        let parts = |sample: &Sample| -> Vec<(String, String)> {
            let text = |part: &Part| String::from_utf8(part.bytes.to_vec()).unwrap();
            sample.parts.iter().map(|part| (part.extension.clone(), text(part))).collect()
        };
        let pair = |extension: &str, text: &str| (extension.to_owned(), text.to_owned());
        let [a, b] = samples_of(&block) else { panic!("two samples") };
        assert_eq!(parts(a), [pair("jpg", "a.jpg"), pair("json", "[1]"), pair("txt", "a.txt")]);
        assert_eq!(parts(b), [pair("cls", "{}"), pair("jpg", "b.jpg")]);
        assert_eq!((a.origin.as_str(), b.origin.as_str()), ("a.{jpg,txt}", "b.jpg"));
        assert_eq!(block.bytes_in, 15, "only files are read");
    }

    #[test]
    fn a_failed_read_names_the_file() {
        let entries = entries(&["a.jpg"]);
        let error = read_all(&entries, &|_, _| Err(Error::storage("gone"))).unwrap_err();
        assert_eq!(error.to_string(), "a.jpg: gone");
    }

    #[test]
    fn no_files_give_nothing() {
        let none = entries(&[]);
        assert!(group_samples(&none).is_empty());
        assert!(plan_ranges(&group_samples(&none), &none, 10, 10).is_empty());
        assert!(column_names(&none).is_empty());
        assert_eq!(read_all(&none, &read_path).unwrap().records_in(), 0);
    }

    proptest! {
        #[test]
        fn grouping_is_by_key_and_loses_nothing(paths in prop::collection::btree_set("[ab./-]{1,6}", 0..20)) {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let entries = entries(&paths);
            let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for path in &paths {
                let (key, extension) = split_key(path);
                expected.entry(key.to_owned()).or_default().push(extension);
            }
            expected.values_mut().for_each(|e| e.sort());
            let samples = group_samples(&entries);
            let found: Vec<(String, Vec<String>)> = samples
                .iter_range(0..samples.len(), &entries)
                .map(|s| (s.key().to_owned(), s.files().map(|f| split_key(&f.path).1).collect()))
                .collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn splits_are_consecutive_and_bounded(
            sizes in prop::collection::vec(0u64..50, 0..40), limit in 1u64..100, most in 1usize..5,
        ) {
            let entries: Vec<Entry> = sizes
                .iter()
                .enumerate()
                .map(|(i, &bytes)| Entry { path: format!("{i:03}.x"), bytes })
                .collect();
            let samples = group_samples(&entries);
            let ranges = plan_ranges(&samples, &entries, limit, most);
            let mut next = 0;
            for range in &ranges {
                prop_assert_eq!(range.start, next);
                prop_assert!(!range.is_empty() && range.len() <= most);
                let bytes: u64 = samples.iter_range(range.clone(), &entries).map(SampleFiles::total_bytes).sum();
                prop_assert!(bytes <= limit || range.len() == 1);
                next = range.end;
            }
            prop_assert_eq!(next, samples.len());
        }
    }
}
