//! Finding inputs: from what the user named to a sorted list of source files.
//!
//! A source is a file, a folder, a glob or a URL. Folders are walked; hidden files, `shardify.toml`, other datasets'
//! system folders and the output dataset are passed over and counted, never silently. The order is by name, so that
//! the same inputs always come in the same order.

mod kind;

use std::{
    collections::{BTreeMap, HashSet},
    io::Read,
    path::Path,
    sync::Arc,
};

use globset::{Glob, GlobSet, GlobSetBuilder};
use jiff::Timestamp;

pub use kind::{Input, InputFormat, RecordSource, SniffOptions, classify};

use crate::{
    codec::decompress,
    error::{Error, Result},
    storage::{self, Location, Object, ObjectFacts, SYSTEM_FOLDER, Store, StoreSettings},
};

/// Name of the configuration file, which is never an input.
pub const CONFIG_FILE: &str = "shardify.toml";

/// One input object.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Where to read it.
    pub object: Object,
    /// URL or absolute path, without secrets.
    pub uri: String,
    /// Name in origins and keys: the path below what the user named.
    pub name: String,
    /// When it was last written.
    pub modified: Timestamp,
    /// Entity tag, where the store has one.
    pub etag: Option<String>,
}

impl SourceFile {
    /// Size in bytes, as stored.
    pub fn bytes(&self) -> u64 {
        self.object.bytes()
    }

    /// Opens it, decompressed if it is compressed; `tap` sees the stored bytes on their way.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(&self, tap: impl FnMut(&[u8]) + Send + 'static) -> Result<Box<dyn Read + Send>> {
        let mut raw: Box<dyn Read + Send> = Box::new(Tap { inner: self.object.read()?, tap });
        let mut head = Vec::new();
        raw.by_ref().take(16).read_to_end(&mut head)?;
        let compression = decompress::sniff(&head);
        let whole: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(head).chain(raw));
        match compression {
            Some(compression) => decompress::decoder(compression, whole).map_err(|e| e.at(self.uri.clone())),
            None => Ok(whole),
        }
    }

    /// Up to `limit` first bytes after decompression, and whether that is all there is.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn head(&self, limit: usize) -> Result<(Vec<u8>, bool)> {
        let mut head = Vec::new();
        let result = self.open(|_| {}).and_then(|r| Ok(r.take(limit as u64 + 1).read_to_end(&mut head)?));
        match result {
            Ok(_) => {}
            // A damaged compressed file is reported when it is converted; what could be read tells its format.
            Err(e) if head.is_empty() => return Err(e),
            Err(_) => {}
        }
        let complete = head.len() <= limit;
        head.truncate(limit);
        Ok((head, complete))
    }
}

/// Which inputs to take.
#[derive(Debug, Clone, Default)]
pub struct ScanOptions {
    /// Globs of which one must match; empty: all.
    pub include: Vec<String>,
    /// Globs of which none may match.
    pub exclude: Vec<String>,
    /// The output dataset, which is never read.
    pub dataset: Option<Location>,
}

/// What a scan found.
#[derive(Debug, Default)]
pub struct Found {
    /// Inputs, sorted by name.
    pub files: Vec<SourceFile>,
    /// Files passed over because they are hidden, configuration or part of another dataset.
    pub passed_over: u64,
    /// Files passed over because of `--include` or `--exclude`.
    pub filtered: u64,
}

/// Finds all inputs that `sources` name; relative paths are taken from `folder`.
///
/// # Errors
/// When a source does not exist, a pattern is malformed, or a store fails.
pub fn scan(sources: &[String], folder: &Path, settings: &StoreSettings, options: &ScanOptions) -> Result<Found> {
    let mut scan = Scan {
        include: globs(&options.include)?,
        exclude: globs(&options.exclude)?,
        dataset: options.dataset.as_ref().map(|d| format!("{}/", d.to_string().trim_end_matches('/'))),
        several: sources.len() > 1,
        found: Found::default(),
    };
    for source in sources {
        scan.source(source, folder, settings)?;
    }
    let mut found = scan.found;
    let mut seen = HashSet::new();
    found.files.retain(|f| seen.insert(f.uri.clone()));
    distinguish(&mut found.files);
    found.files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

struct Scan {
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
    dataset: Option<String>,
    several: bool,
    found: Found,
}

impl Scan {
    fn source(&mut self, text: &str, folder: &Path, settings: &StoreSettings) -> Result<()> {
        if let Some((above, pattern)) = split_glob(text) {
            let root = Location::parse(if above.is_empty() { "." } else { above }, folder)?;
            let matcher = globs(&[pattern.to_owned()])?;
            return self.folder(&root, settings, matcher.as_ref(), text);
        }
        let location = Location::parse(text, folder)?;
        if let Some((above, name)) = location.split_name() {
            let store = storage::open(&above, settings)?;
            if let Some(facts) = store.head(&name)? {
                self.take(&store, facts, name);
                return Ok(());
            }
        }
        self.folder(&location, settings, None, text)
    }

    /// Takes everything below a folder that `matcher` matches.
    fn folder(
        &mut self,
        root: &Location,
        settings: &StoreSettings,
        matcher: Option<&GlobSet>,
        text: &str,
    ) -> Result<()> {
        let store = storage::open(root, settings)?;
        let listing = store.list("")?;
        if listing.is_empty() && root.local_path().is_none_or(|p| !p.is_dir()) {
            return Err(Error::usage("expected a file or folder, found nothing")
                .at(text)
                .hint("check the path; quote patterns so that the shell leaves them alone"));
        }
        let prefix = match root.split_name() {
            Some((_, name)) if self.several && matcher.is_none() => format!("{name}/"),
            _ => String::new(),
        };
        for facts in listing {
            if matcher.is_some_and(|m| !m.is_match(&facts.path)) {
                continue;
            }
            if self.is_output(root, &facts.path) {
                continue;
            }
            if is_passed_over(&facts.path) {
                self.found.passed_over += 1;
                continue;
            }
            let name = format!("{prefix}{}", facts.path);
            self.take(&store, facts, name);
        }
        Ok(())
    }

    fn is_output(&self, root: &Location, path: &str) -> bool {
        self.dataset.as_ref().is_some_and(|dataset| root.join(path).to_string().starts_with(dataset.as_str()))
    }

    fn take(&mut self, store: &Arc<dyn Store>, facts: ObjectFacts, name: String) {
        let wanted = self.include.as_ref().is_none_or(|g| matches(g, &name))
            && !self.exclude.as_ref().is_some_and(|g| matches(g, &name));
        if !wanted {
            self.found.filtered += 1;
            return;
        }
        self.found.files.push(SourceFile {
            uri: store.location().join(&facts.path).to_string(),
            object: Object::new(Arc::clone(store), facts.path, facts.bytes),
            name,
            modified: facts.modified,
            etag: facts.etag,
        });
    }
}

/// A pattern matches the whole name, or the file name alone when it has no slash.
fn matches(set: &GlobSet, name: &str) -> bool {
    set.is_match(name) || name.rsplit('/').next().is_some_and(|last| set.is_match(last))
}

fn is_passed_over(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.') || part == SYSTEM_FOLDER)
        || path.rsplit('/').next() == Some(CONFIG_FILE)
}

fn globs(patterns: &[String]) -> Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let bad = |e: globset::Error| Error::usage("expected a glob such as `**/*.csv`").cause(e);
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(bad)?);
    }
    set.build().map(Some).map_err(bad)
}

/// Splits `data/2026/**/*.csv` into the folder before the first pattern and the pattern.
fn split_glob(text: &str) -> Option<(&str, &str)> {
    // An existing path may contain these characters, and a query string has a question mark.
    let first = text.find(['*', '?', '[', '{'])?;
    if Path::new(text).exists() || (text.contains("://") && !text.contains('*')) {
        return None;
    }
    match text[..first].rfind('/') {
        Some(slash) => Some((&text[..=slash], &text[slash + 1..])),
        None => Some(("", text)),
    }
}

/// Files of several roots may share a name; those get their full URI as a name.
fn distinguish(files: &mut [SourceFile]) {
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files.iter() {
        *uses.entry(&file.name).or_default() += 1;
    }
    let shared: HashSet<String> = uses.into_iter().filter(|(_, n)| *n > 1).map(|(name, _)| name.to_owned()).collect();
    for file in files.iter_mut().filter(|f| shared.contains(&f.name)) {
        file.name = file.uri.trim_start_matches('/').to_owned();
    }
}

struct Tap<F> {
    inner: Box<dyn Read + Send>,
    tap: F,
}

impl<F: FnMut(&[u8])> Read for Tap<F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buffer)?;
        (self.tap)(&buffer[..n]);
        Ok(n)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]
mod tests {
    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        folder
    }

    fn names(sources: &[&str], folder: &Path, options: &ScanOptions) -> Vec<String> {
        let sources: Vec<String> = sources.iter().map(|s| (*s).to_owned()).collect();
        scan(&sources, folder, &[], options).unwrap().files.into_iter().map(|f| f.name).collect()
    }

    #[test]
    fn a_folder_gives_its_files_in_order_without_hidden_ones_and_the_output() {
        let folder = tree(&[
            "b.csv",
            "a/x.csv",
            ".git/config",
            "shards/_shardify/log/1.json",
            "shards/t/000000.parquet",
            "shardify.toml",
        ]);
        let dataset = Location::local(&folder.path().join("shards")).unwrap();
        let options = ScanOptions { dataset: Some(dataset), ..ScanOptions::default() };
        assert_eq!(names(&["."], folder.path(), &options), ["a/x.csv", "b.csv"]);
    }

    #[test]
    fn globs_and_filters_choose() {
        let folder = tree(&["a/1.csv", "a/2.txt", "b/3.csv", "4.csv"]);
        let all = ScanOptions::default();
        assert_eq!(names(&["**/*.csv"], folder.path(), &all), ["4.csv", "a/1.csv", "b/3.csv"]);
        assert_eq!(names(&["a/*.csv"], folder.path(), &all), ["1.csv"]);
        let some = ScanOptions { include: vec!["*.csv".into()], exclude: vec!["b/**".into()], dataset: None };
        assert_eq!(names(&["."], folder.path(), &some), ["4.csv", "a/1.csv"]);
    }

    #[test]
    fn files_of_several_roots_keep_distinct_names() {
        let folder = tree(&["a/x.csv", "b/x.csv"]);
        assert_eq!(names(&["a", "b"], folder.path(), &ScanOptions::default()), ["a/x.csv", "b/x.csv"]);
        let both = names(&["a/x.csv", "b/x.csv"], folder.path(), &ScanOptions::default());
        assert_eq!(both.len(), 2);
        assert_ne!(both[0], both[1]);
    }

    #[test]
    fn a_missing_source_is_an_error() {
        let folder = tree(&["a.csv"]);
        assert!(scan(&["nothing.csv".to_owned()], folder.path(), &[], &ScanOptions::default()).is_err());
    }
}
