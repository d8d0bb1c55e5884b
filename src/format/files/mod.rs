//! Trees of small files, grouped into samples by the rule of WebDataset.
//!
//! Files that share a path up to the first dot of their name are the parts of one sample:
//!
//! ```text
//! scans/P-1.ct.png   -> key scans/P-1   extension ct.png   \
//! scans/P-1.JSON     -> key scans/P-1   extension json     /  one sample of two parts
//! scans/README       -> key scans/README   extension bin
//! ```
//!
//! Grouping, splitting and reading depend on the list of files alone, never on threads or on the order in which a
//! directory happened to be listed. This module opens nothing itself: the caller hands in a function that reads a file.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    error::{Error, Result},
    record::{Part, Payload, RecordBlock, Reject, Sample},
};

/// Extension of files whose name has none.
const NO_EXTENSION: &str = "bin";

/// A file of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Path relative to the source root, components separated by `/`.
    pub path: String,
    /// Size in bytes when the tree was listed.
    pub bytes: u64,
    /// Number of the source it belongs to; carried along for the caller, grouping does not look at it.
    pub source: u32,
}

/// The files of one sample: indices into the list of entries, sorted by extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleFiles {
    /// At least one index.
    pub files: Box<[usize]>,
}

impl SampleFiles {
    /// Key that all files of the sample share.
    pub fn key<'a>(&self, entries: &'a [FileEntry]) -> &'a str {
        self.files.first().map_or("", |&file| split_key(&entries[file].path).0)
    }

    /// Bytes of all files as listed.
    pub fn bytes(&self, entries: &[FileEntry]) -> u64 {
        self.files.iter().map(|&file| entries[file].bytes).sum()
    }
}

/// Splits a path into the key (up to the first dot of its last component) and the extension in lower case. A name
/// without a dot, or with nothing behind it, has the extension `bin`.
pub fn split_key(path: &str) -> (&str, String) {
    let (key, extension) = cut(path);
    (key, if extension.is_empty() { NO_EXTENSION.to_owned() } else { extension.to_lowercase() })
}

/// Key and extension as they stand in the path; the extension is empty where there is none.
pub fn cut(path: &str) -> (&str, &str) {
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    match path[name..].find('.') {
        Some(dot) => (&path[..name + dot], &path[name + dot + 1..]),
        None => (path, ""),
    }
}

/// Groups files into samples. `entries` are sorted by path bytewise; the samples come sorted by key.
pub fn group(entries: &[FileEntry]) -> Vec<SampleFiles> {
    let key = |file: &usize| cut(&entries[*file].path).0;
    // Sorted by path is not sorted by key: `a-b.jpg` stands between `a.jpg` and `a/x.jpg`.
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|a, b| key(a).cmp(key(b)));
    order
        .chunk_by(|a, b| key(a) == key(b))
        .map(|files| {
            let mut files: Box<[usize]> = files.into();
            if files.len() > 1 {
                files.sort_by_cached_key(|&file| split_key(&entries[file].path).1);
            }
            SampleFiles { files }
        })
        .collect()
}

/// Cuts samples into consecutive ranges of about `split_bytes` bytes and at most `max_files` files each; a sample that
/// is larger on its own gets a range of its own.
pub fn plan_splits(
    samples: &[SampleFiles],
    entries: &[FileEntry],
    split_bytes: u64,
    max_files: usize,
) -> Vec<Range<usize>> {
    let mut splits = Vec::new();
    let (mut start, mut bytes, mut files) = (0, 0u64, 0);
    for (i, sample) in samples.iter().enumerate() {
        let size = sample.bytes(entries);
        if i > start && (bytes.saturating_add(size) > split_bytes || files + sample.files.len() > max_files) {
            splits.push(start..i);
            (start, bytes, files) = (i, 0, 0);
        }
        bytes = bytes.saturating_add(size);
        files += sample.files.len();
    }
    if start < samples.len() {
        splits.push(start..samples.len());
    }
    splits
}

/// Distinct extensions of all samples, sorted: the columns that the samples need in a table.
pub fn column_names(samples: &[SampleFiles], entries: &[FileEntry]) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    for &file in samples.iter().flat_map(|sample| &sample.files) {
        let extension = cut(&entries[file].path).1;
        if !seen.contains(extension) {
            seen.insert(split_key(&entries[file].path).1);
        }
    }
    seen.into_iter().collect()
}

/// Reads samples into a block. Row numbers count from 0 within the block. A sample with two files whose extensions
/// differ in case only is rejected without being read.
///
/// # Errors
/// Whatever `read` fails with; an error that names no source is given the path of the file.
pub fn read_block(
    samples: &[SampleFiles],
    entries: &[FileEntry],
    read: &dyn Fn(&FileEntry) -> Result<Bytes>,
) -> Result<RecordBlock> {
    let mut block = RecordBlock {
        payload: Payload::Samples(Vec::new()),
        rows: Vec::with_capacity(samples.len()),
        hashes: Vec::with_capacity(samples.len()),
        rejects: Vec::new(),
        lines: 0,
        blank_lines: 0,
        padded: 0,
        bytes_in: 0,
    };
    let mut taken = Vec::with_capacity(samples.len());
    for (row, files) in (0u32..).zip(samples) {
        if let Some(reject) = collision(row, files, entries) {
            block.bytes_in += files.bytes(entries);
            block.rejects.push(reject);
            continue;
        }
        let sample = read_sample(files, entries, read)?;
        block.bytes_in += sample.bytes();
        block.rows.push(row);
        block.hashes.push(hash(&sample));
        taken.push(sample);
    }
    block.payload = Payload::Samples(taken);
    Ok(block)
}

fn read_sample(
    files: &SampleFiles,
    entries: &[FileEntry],
    read: &dyn Fn(&FileEntry) -> Result<Bytes>,
) -> Result<Sample> {
    let mut parts = Vec::with_capacity(files.files.len());
    for &file in &files.files {
        let entry = &entries[file];
        let bytes = read(entry).map_err(|e| name_source(e, &entry.path))?;
        parts.push(Part { extension: split_key(&entry.path).1, bytes });
    }
    Ok(Sample { key: files.key(entries).to_owned(), origin: origin(files, entries).into_owned(), parts })
}

fn name_source(error: Error, path: &str) -> Error {
    if error.place().source.is_some() { error } else { error.at(path) }
}

/// Two neighbours in extension order that have the same one.
fn collision(row: u32, sample: &SampleFiles, entries: &[FileEntry]) -> Option<Reject> {
    let path = |file: usize| entries[file].path.as_str();
    let pair = sample.files.windows(2).find(|pair| split_key(path(pair[0])).1 == split_key(path(pair[1])).1)?;
    let extension = split_key(path(pair[0])).1;
    Some(Reject {
        row,
        line: 0,
        byte: 0,
        reason: format!(
            "expected one file with extension `{extension}` for key `{}`, found `{}` and `{}`",
            sample.key(entries),
            path(pair[0]),
            path(pair[1])
        ),
        column: Some(extension),
        raw: Bytes::new(),
    })
}

/// Where the sample came from: its path, or the key with the endings of all its files in braces, as a shell reads it.
fn origin<'a>(sample: &SampleFiles, entries: &'a [FileEntry]) -> Cow<'a, str> {
    let key = sample.key(entries);
    let ending = |&file: &usize| &entries[file].path[key.len()..];
    match &sample.files[..] {
        [file] => Cow::Borrowed(&entries[*file].path),
        files if files.iter().all(|f| ending(f).starts_with('.')) => {
            let endings: Vec<&str> = files.iter().map(|f| &ending(f)[1..]).collect();
            Cow::Owned(format!("{key}.{{{}}}", endings.join(",")))
        }
        files => Cow::Owned(format!("{key}{{{}}}", files.iter().map(ending).collect::<Vec<_>>().join(","))),
    }
}

/// XXH3-64 over extension, length (8 bytes, little endian) and content of every part.
fn hash(sample: &Sample) -> u64 {
    let mut hasher = Xxh3::new();
    for part in &sample.parts {
        hasher.update(part.extension.as_bytes());
        hasher.update(&(part.bytes.len() as u64).to_le_bytes());
        hasher.update(&part.bytes);
    }
    hasher.digest()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entries(paths: &[&str]) -> Vec<FileEntry> {
        let mut paths = paths.to_vec();
        paths.sort_unstable();
        paths.iter().map(|p| FileEntry { path: (*p).to_owned(), bytes: p.len() as u64, source: 0 }).collect()
    }

    /// Content of a file is its path.
    fn read_path(entry: &FileEntry) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(entry.path.as_bytes()))
    }

    fn samples_of(block: &RecordBlock) -> &[Sample] {
        let Payload::Samples(samples) = &block.payload else { panic!("rows") };
        samples
    }

    #[test]
    fn keys_end_at_the_first_dot_of_the_name() {
        for (path, key, extension) in [
            ("a.jpg", "a", "jpg"),
            ("d.x/a.Seg.PNG", "d.x/a", "seg.png"),
            ("d.x/a", "d.x/a", "bin"),
            ("a.", "a", "bin"),
            (".hidden", "", "hidden"),
            ("d/.x", "d/", "x"),
            ("d/", "d/", "bin"),
            ("", "", "bin"),
            ("ä.É", "ä", "é"),
        ] {
            assert_eq!(split_key(path), (key, extension.to_owned()), "{path}");
        }
    }

    #[test]
    fn files_of_a_key_meet_even_when_others_sort_between() {
        let entries = entries(&["a.jpg", "a.b/x.txt", "a.json", "a/x.cls", "a-1.jpg", "B.txt", "a.b/x.cls"]);
        let samples = group(&entries);
        let keys: Vec<&str> = samples.iter().map(|s| s.key(&entries)).collect();
        assert_eq!(keys, ["B", "a", "a-1", "a.b/x", "a/x"]);
        let block = read_block(&samples, &entries, &read_path).unwrap();
        let origins: Vec<&str> = samples_of(&block).iter().map(|s| s.origin.as_str()).collect();
        assert_eq!(origins, ["B.txt", "a.{jpg,json}", "a-1.jpg", "a.b/x.{cls,txt}", "a/x.cls"]);
        assert_eq!(block.rows, [0, 1, 2, 3, 4]);
        assert_eq!(block.bytes_in, entries.iter().map(|e| e.bytes).sum::<u64>());
        assert_eq!(column_names(&samples, &entries), ["cls", "jpg", "json", "txt"]);
    }

    #[test]
    fn colliding_extensions_are_rejected_by_name() {
        let entries = entries(&["a.JPG", "a.jpg", "b.txt"]);
        let block = read_block(&group(&entries), &entries, &read_path).unwrap();
        assert_eq!(block.rows, [1]);
        assert_eq!(block.records_in(), 2);
        assert_eq!(
            block.rejects[0].reason,
            "expected one file with extension `jpg` for key `a`, found `a.JPG` and `a.jpg`"
        );
        assert_eq!(block.rejects[0].row, 0);
    }

    #[test]
    fn a_file_without_extension_beside_one_with() {
        let entries = entries(&["README", "README.txt"]);
        let block = read_block(&group(&entries), &entries, &read_path).unwrap();
        assert_eq!(samples_of(&block)[0].origin, "README{,.txt}");
    }

    #[test]
    fn a_failed_read_names_the_file() {
        let entries = entries(&["a.jpg"]);
        let error = read_block(&group(&entries), &entries, &|_| Err(Error::storage("gone"))).unwrap_err();
        assert_eq!(error.to_string(), "a.jpg: gone");
    }

    #[test]
    fn hashes_tell_parts_apart() {
        let sample = |parts: &[(&str, &'static str)]| Sample {
            key: "k".into(),
            origin: "o".into(),
            parts: parts.iter().map(|(e, b)| Part { extension: (*e).into(), bytes: Bytes::from(*b) }).collect(),
        };
        let all = [
            sample(&[("a", "x")]),
            sample(&[("b", "x")]),
            sample(&[("a", "x"), ("b", "")]),
            sample(&[("a", ""), ("b", "x")]),
            sample(&[]),
        ];
        let hashes: std::collections::BTreeSet<u64> = all.iter().map(hash).collect();
        assert_eq!(hashes.len(), all.len());
    }

    #[test]
    fn no_files_give_nothing() {
        assert!(group(&[]).is_empty());
        assert!(plan_splits(&[], &[], 10, 10).is_empty());
        assert!(column_names(&[], &[]).is_empty());
        assert_eq!(read_block(&[], &[], &read_path).unwrap().records_in(), 0);
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
            let found: Vec<(String, Vec<String>)> = group(&entries)
                .iter()
                .map(|s| {
                    let extensions = s.files.iter().map(|&f| split_key(&entries[f].path).1).collect();
                    (s.key(&entries).to_owned(), extensions)
                })
                .collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn splits_are_consecutive_and_bounded(
            sizes in prop::collection::vec(0u64..50, 0..40), limit in 1u64..100, most in 1usize..5,
        ) {
            let entries: Vec<FileEntry> = sizes
                .iter()
                .enumerate()
                .map(|(i, &bytes)| FileEntry { path: format!("{i:03}.x"), bytes, source: 0 })
                .collect();
            let samples = group(&entries);
            let splits = plan_splits(&samples, &entries, limit, most);
            let mut next = 0;
            for split in &splits {
                prop_assert_eq!(split.start, next);
                prop_assert!(!split.is_empty() && split.len() <= most);
                let bytes: u64 = samples[split.clone()].iter().map(|s| s.bytes(&entries)).sum();
                prop_assert!(bytes <= limit || split.len() == 1);
                next = split.end;
            }
            prop_assert_eq!(next, samples.len());
        }
    }
}
