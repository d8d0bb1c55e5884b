//! Finds inputs: turns the user's sources into a sorted list of source files.
//!
//! A source is a file, a folder, a glob or a URL. Folders are walked; hidden files, leftovers of systems,
//! `shardify.toml`, system folders of other datasets and the output dataset are ignored and counted, never silently.
//! Files are sorted by name, so the same inputs always have the same order.

mod archives;
mod companions;
mod file;
mod foreign;
mod formats;
mod globs;
mod ignored;
mod kind;
mod misnamed;
mod name;
mod partitions;
mod parts;
mod rows;
mod selected;
pub mod settings;
mod sniff;
mod source;
mod stated_stream;
mod stored;
mod stores;
mod stream;
mod tables;

use std::{path::Path, sync::Arc};

use globset::GlobSet;
use rayon::{
    iter::{IntoParallelRefIterator, ParallelIterator},
    slice::{ParallelSlice, ParallelSliceMut},
};
use xxhash_rust::xxh3::xxh3_64;

pub use archives::{Archives, check_archives};
pub use companions::{Companions, ignore_companions};
pub use file::{Head, SourceFile};
pub use foreign::{is_foreign_archive, is_text};
pub use formats::{InputFormat, SniffOptions};
pub use ignored::CONFIG_FILE;
pub use kind::{BIDS, BIDS_IMAGES, BIDS_OPTIONS, Input, classify_inputs, names_records};
pub use misnamed::{contradiction_note, misnamed_note, names_arrays};
pub use partitions::{folders_in, folders_of, with_partitions};
pub use parts::{Scouted, closed_hash, scout_parts};
pub use source::{First, RecordSource};
pub use stated_stream::StatedStream;
pub use stored::{Listed as ListedSource, content_hash, reopen_sources};
pub use tables::{FoundTable, TableFormat, refuse_foreign};

use self::{
    archives::is_archive_name,
    file::{PACKED_NAMES, Root, StatedSource},
    globs::{compile_globs, matches_name, split_glob},
    ignored::{LastFolder, is_ignored},
    tables::Tables,
};
use crate::{
    error::{Error, Kind, Result},
    record::{
        IGNORED_NAMES,
        clutter::{is_bookkeeping, is_sign},
    },
    schema,
    storage::{self, Listed, Location, ObjectFacts, SYSTEM_FOLDER, Store, StoreSettings, plain_argument},
    units::Size,
};

/// Sorts by name.
pub fn sort_by_name(files: &mut [SourceFile]) {
    name::sort_by_name(files);
}

/// Selection of inputs.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// Globs, one of which must match; if empty, all files match.
    pub include: Vec<String>,
    /// Globs, none of which may match.
    pub exclude: Vec<String>,
    /// The output dataset, which is never read.
    pub dataset: Option<Location>,
    /// Memory limit of the run; the list of inputs may use half of it.
    pub memory: Size,
    /// Which archives are read as folders.
    pub archives: Archives,
}

impl Default for ScanOptions {
    fn default() -> Self {
        let (include, exclude) = (Vec::new(), Vec::new());
        Self { include, exclude, dataset: None, memory: Size(u64::MAX), archives: Archives::default() }
    }
}

/// Divisor of the memory limit that gives the maximum size of the list of inputs.
const LIST_DIVISOR: u64 = 2;

/// Estimated bytes of memory of a fault.
const FAULT_BYTES: u64 = 512;

/// Entries of a folder that are compared with a misspelt name, at most.
const MANY_NEIGHBOURS: usize = 10_000;

/// Result of a scan.
#[derive(Debug, Default)]
pub struct ScanResult {
    /// Inputs, sorted by name.
    pub files: Vec<SourceFile>,
    /// Errors for names that are not valid text, sorted by location.
    pub faults: Vec<Error>,
    /// Number of files ignored because they are hidden, leftovers of systems, configuration or part of another dataset,
    /// and of links to folders.
    pub ignored: u64,
    /// Names of the first of these that hold data of others: hidden files and leftovers.
    pub ignored_names: Vec<String>,
    /// How many hidden files and leftovers there are.
    pub hidden: u64,
    /// How many of them are in the system folder of a source that is a dataset.
    pub system_files: u64,
    /// How many of them are links to folders.
    pub folder_links: u64,
    /// How many of them are symbolic links in archives.
    pub archive_links: u64,
    /// Number of files skipped because of `--include` or `--exclude`.
    pub filtered: u64,
    /// Folders with a table log at or above the inputs; never the output dataset.
    pub tables: Vec<FoundTable>,
}

impl ScanResult {
    /// Takes out files about the data beside them, such as descriptions and checksums, unless there is nothing else;
    /// those for which `is_named` holds stay. Returns their number and the first of their names.
    pub fn take_bookkeeping(&mut self, is_named: impl Fn(&str) -> bool) -> (u64, Vec<String>) {
        let may_be = |file: &SourceFile, tables| is_bookkeeping(file.name(), tables) && !is_named(file.name());
        let (mut count, mut names) = (0, Vec::new());
        if !self.files.iter().any(|file| may_be(file, true)) {
            return (count, names);
        }
        let data = || self.files.iter().filter(|file| !may_be(file, false));
        let tables = data().any(|file| names_records(file.name()) && !may_be(file, true));
        if !tables && data().next().is_none() {
            return (count, names);
        }
        self.files.retain(|file| {
            let stays = !may_be(file, tables);
            if !stays {
                count += 1;
                if names.len() < IGNORED_NAMES {
                    names.push(file.name().to_owned());
                }
            }
            stays
        });
        self.ignored += count;
        (count, names)
    }

    /// Takes out what describes the data of a source: bookkeeping, and what other libraries put beside their files.
    pub fn take_described(&mut self, source: &str) {
        self.take_bookkeeping(|name| source.ends_with(name));
        ignore_companions(&mut self.files);
    }

    /// Returns the error for a place without files: what could not be listed, or else `message`.
    pub fn into_error(self, message: &str, place: &str) -> Error {
        self.faults.into_iter().next().unwrap_or_else(|| Error::usage(message).at_location(place))
    }

    /// Counts a file that is no input, and names it if it is hidden or a leftover of a system.
    fn ignore_file(&mut self, path: &str) {
        self.ignored += 1;
        self.system_files += u64::from(path.split('/').next() == Some(SYSTEM_FOLDER));
        let is_ours = path.rsplit('/').next() == Some(CONFIG_FILE) || is_sign(path);
        if !is_ours && !path.split('/').any(|part| part == SYSTEM_FOLDER) {
            self.hidden += 1;
            if self.ignored_names.len() < IGNORED_NAMES {
                self.ignored_names.push(path.to_owned());
            }
        }
    }
}

/// Finds all inputs that `sources` name; relative paths are relative to `folder`.
///
/// # Errors
/// Fails if a source does not exist, a pattern is malformed, or a store fails.
pub fn scan_sources(
    sources: &[String],
    folder: &Path,
    settings: &StoreSettings,
    options: &ScanOptions,
) -> Result<ScanResult> {
    let mut scan = Scan {
        include: compile_globs(&options.include)?,
        exclude: compile_globs(&options.exclude)?,
        dataset: options.dataset.clone(),
        several: sources.len() > 1,
        memory: 0,
        budget: options.memory,
        archives: options.archives,
        unpacked: Vec::new(),
        found_archives: Vec::new(),
        found: ScanResult::default(),
        tables: Tables::default(),
    };
    for source in sources {
        scan.add_source(source, folder, settings)?;
    }
    let mut found = scan.found;
    found.tables = scan.tables.finish(&found.files, settings);
    found.tables.retain(|table| options.dataset.as_ref().is_none_or(|own| table.root.relative_to(own).is_none()));
    found.faults.sort_by(|a, b| a.place().source.cmp(&b.place().source));
    if sources.len() > 1 {
        // If a file is found several times, the first occurrence is kept.
        found.files.par_sort_by_cached_key(|f| xxh3_64(f.uri().as_bytes()));
        found.files.dedup_by(|a, b| a.uri() == b.uri());
    }
    name::sort_folders(&mut found.files);
    let marked = |file: &SourceFile| {
        let name = file.name.rsplit('/').next().unwrap_or_default();
        name == "zarr.json" || name.starts_with(".z")
    };
    if found.files.par_iter().any(marked) {
        found.ignored += stores::group_stores(&mut found.files)?;
        sort_by_name(&mut found.files);
    }
    if distinguish_names(&mut found.files) {
        sort_by_name(&mut found.files);
    }
    Ok(found)
}

/// Returns a file of a store as an input; `None` if there is none. What reads several of one store shares it.
///
/// # Errors
/// Fails if the store fails.
pub fn file_in_store(store: &Arc<dyn Store>, path: &str) -> Result<Option<SourceFile>> {
    let root = Root::new(Arc::clone(store), String::new());
    Ok(store.head(path)?.map(|facts| SourceFile::new(&root, &StatedSource::new(&root, facts))))
}

/// Returns all files of a store as inputs; each Zarr store is one input.
///
/// # Errors
/// Fails if the store fails.
pub fn in_store(store: &Arc<dyn Store>) -> Result<Vec<SourceFile>> {
    let root = Root::new(Arc::clone(store), String::new());
    let stated: Vec<StatedSource> =
        store.list_folder("")?.into_iter().map(|facts| StatedSource::new(&root, facts)).collect();
    let mut files: Vec<SourceFile> =
        stated.chunks(PACKED_NAMES).flat_map(|some| SourceFile::pack_sources(&root, some)).collect();
    stores::group_stores(&mut files)?;
    name::sort_folders(&mut files);
    Ok(files)
}

struct Scan {
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
    dataset: Option<Location>,
    several: bool,
    /// Estimated bytes of the list of inputs.
    memory: u64,
    budget: Size,
    /// The newest inputs of the root that is listed, which get a text together.
    unpacked: Vec<StatedSource>,
    /// Which archives are read as folders.
    archives: Archives,
    /// The archives below the root that is listed.
    found_archives: Vec<ObjectFacts>,
    found: ScanResult,
    tables: Tables,
}

impl Scan {
    fn add_source(&mut self, text: &str, folder: &Path, settings: &StoreSettings) -> Result<()> {
        if let Some((above, pattern)) = split_glob(text) {
            let root = Location::parse(if above.is_empty() { "." } else { above }, folder)?;
            let matcher = compile_globs(&[pattern.to_owned()])?;
            let matches = |path: &str| matcher.as_ref().is_none_or(|matcher| matcher.is_match(path));
            if self.add_from_archive(&root, settings, &matches, text)? {
                return Ok(());
            }
            return self.add_folder(&root, settings, matcher.as_ref(), text);
        }
        let location = Location::parse(text, folder)?;
        if let Some((above, name)) = location.split_name() {
            let store = storage::open_store(&above, settings)?;
            if let Some(facts) = store.head(&name)? {
                self.tables.schedule_search(&above);
                let root = Root::new(store, String::new());
                if self.archives != Archives::None && is_archive_name(&facts.path) {
                    self.found_archives.push(facts);
                    return self.mount_found(&root);
                }
                self.add_file(&root, facts)?;
                self.pack_found(&root);
                return Ok(());
            }
        }
        if self.add_from_archive(&location, settings, &|_| true, text)? {
            return Ok(());
        }
        self.add_folder(&location, settings, None, text)
    }

    /// Adds all files below a folder that `matcher` matches.
    fn add_folder(
        &mut self,
        root: &Location,
        settings: &StoreSettings,
        matcher: Option<&GlobSet>,
        text: &str,
    ) -> Result<()> {
        let store = storage::open_store(root, settings)?;
        let prefix = match root.split_name() {
            Some((_, name)) if self.several && matcher.is_none() => format!("{name}/"),
            _ => String::new(),
        };
        let below = Root::new(Arc::clone(&store), prefix);
        let output = match &self.dataset {
            Some(dataset) if root.relative_to(dataset).is_some() => Some(String::new()),
            Some(dataset) => dataset.relative_to(root).map(|path| format!("{path}/")),
            None => None,
        };
        let mut empty = true;
        let mut last_folder = LastFolder::default();
        if let Some((above, _)) = root.split_name() {
            self.tables.schedule_search(&above);
        }
        store.walk_folder("", &mut |listed| {
            empty = false;
            let special = !matches!(&listed, Listed::Object(facts) if last_folder.is_plain(&facts.path));
            if special && let Listed::Object(facts) = &listed {
                self.tables.note_table(root, &facts.path, matcher.is_none());
            }
            match listed {
                Listed::Object(facts) if matcher.is_some_and(|m| !m.is_match(&facts.path)) => {}
                Listed::Object(facts) if output.as_ref().is_some_and(|o| facts.path.starts_with(o)) => {}
                Listed::Object(facts) if special && is_ignored(&facts.path) && !stores::is_store_file(&facts.path) => {
                    self.found.ignore_file(&facts.path);
                }
                Listed::Object(facts) => self.add_object(&below, facts)?,
                Listed::FolderLink(path) => {
                    self.found.folder_links += u64::from(!is_ignored(&path));
                    self.found.ignored += 1;
                }
                Listed::Fault(fault) => {
                    if self.is_excluded(root, &fault) {
                        self.found.filtered += 1;
                    } else if fault.kind() == Kind::Storage {
                        // An unlistable folder may contain anything, and the failure may be temporary.
                        return Err(fault.with_hint("skip it with --exclude"));
                    } else {
                        self.add_fault(fault)?;
                    }
                }
            }
            Ok(())
        })?;
        self.pack_found(&below);
        self.mount_found(&below)?;
        if empty && root.local_path().is_none_or(|p| !p.is_dir()) {
            let error = Error::usage("no such file or folder").at_location(plain_argument(text));
            let error = match root.local_path().and_then(similar_file_name) {
                Some(neighbour) => error.with_hint(format!("there is `{neighbour}` in the same folder")),
                None => error,
            };
            return Err(error.with_hint("check the path; quote patterns so that the shell does not expand them"));
        }
        Ok(())
    }

    /// Returns whether a location below `root` that cannot be listed is excluded together with everything below it.
    fn is_excluded(&self, root: &Location, fault: &Error) -> bool {
        let (Some(exclude), Some(place), Some(root)) =
            (&self.exclude, fault.place().source.as_deref(), root.local_path())
        else {
            return false;
        };
        let path = Path::new(place).strip_prefix(root).map(|path| path.to_string_lossy().into_owned());
        path.is_ok_and(|path| matches_name(exclude, &path) || matches_name(exclude, &format!("{path}/_")))
    }

    /// Accounts for an entry of so many bytes.
    ///
    /// # Errors
    /// If the list exceeds its share of the memory limit: the rest cannot make it smaller.
    fn account_memory(&mut self, bytes: u64) -> Result<()> {
        self.memory += bytes;
        if self.memory <= self.budget.0 / LIST_DIVISOR {
            return Ok(());
        }
        let count = self.found.files.len() + self.unpacked.len() + self.found.faults.len();
        Err(Error::usage(format!(
            "expected a list of inputs that fits into half of --memory {}, found more than {count} inputs",
            self.budget,
        ))
        .with_hint(format!("raise the limit: --memory {}MiB is enough for twice as many", (self.budget.0 >> 19).max(1)))
        .with_hint("or convert the inputs in parts: folder by folder, or with --include"))
    }

    /// Adds an object of a folder, which may be an archive.
    fn add_object(&mut self, root: &Arc<Root>, facts: ObjectFacts) -> Result<()> {
        if self.archives != Archives::All || !is_archive_name(&facts.path) {
            return self.add_file(root, facts);
        }
        self.account_memory((size_of::<ObjectFacts>() + facts.path.len()) as u64)?;
        self.found_archives.push(facts);
        Ok(())
    }

    /// Whether `--include` and `--exclude` take a name.
    fn takes_name(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|globs| matches_name(globs, name)) && !self.is_excluded_name(name)
    }

    fn is_excluded_name(&self, name: &str) -> bool {
        self.exclude.as_ref().is_some_and(|globs| matches_name(globs, name))
    }

    fn add_file(&mut self, root: &Arc<Root>, facts: ObjectFacts) -> Result<()> {
        let stated = StatedSource::new(root, facts);
        if !self.takes_name(&stated.name) {
            self.found.filtered += 1;
            return Ok(());
        }
        self.account_memory(stated.memory_bytes())?;
        self.unpacked.push(stated);
        if self.unpacked.len() == PACKED_NAMES {
            self.pack_found(root);
        }
        Ok(())
    }

    /// Adds the newest inputs of a root to those that were found.
    fn pack_found(&mut self, root: &Arc<Root>) {
        self.found.files.extend(SourceFile::pack_sources(root, &self.unpacked));
        self.unpacked.clear();
    }
}

/// Makes names unique: files of several roots with the same name get the location of their root as a prefix. Returns
/// true if there were any. `files` must be sorted by name.
fn distinguish_names(files: &mut [SourceFile]) -> bool {
    if !files.par_windows(2).any(|pair| pair[0].name() == pair[1].name()) {
        return false;
    }
    for same in files.chunk_by_mut(|a, b| a.name() == b.name()).filter(|same| same.len() > 1) {
        for file in same {
            let folder = file.root().store.location().to_string();
            let above = format!("{}/", folder.trim_matches('/'));
            let name = format!("{above}{}", file.path());
            file.set_root(file.root().with_prefix(above), &name);
        }
    }
    true
}

/// Returns the name in the folder of a missing file that is spelt most like its name.
fn similar_file_name(missing: &Path) -> Option<String> {
    let (folder, wanted) = (missing.parent()?, missing.file_name()?.to_str()?);
    let entries = std::fs::read_dir(folder).ok()?.take(MANY_NEIGHBOURS);
    let names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    schema::nearest_name(wanted, names.iter().map(String::as_str)).map(str::to_owned)
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
        scan_sources(&sources, folder, &StoreSettings::default(), options)
            .unwrap()
            .files
            .iter()
            .map(|f| f.name().to_owned())
            .collect()
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
        let dataset = Location::from_local_path(&folder.path().join("shards")).unwrap();
        let options = ScanOptions { dataset: Some(dataset), ..ScanOptions::default() };
        assert_eq!(names(&["."], folder.path(), &options), ["a/x.csv", "b.csv"]);
    }

    #[test]
    fn objects_are_plain_if_they_are_neither_ignored_nor_of_a_log() {
        let paths = "a.csv .a.csv a/b.csv a/.b.csv a/.b/c.csv a/b/c.csv .a/b/c.csv shardify.toml a/shardify.toml \
         _shardify a/_shardify/log/1.json a/_shardify/x a/b/_delta_log/1.json a/metadata/v1.metadata.json \
         a/metadata/x.png \
                     metadata _delta_log a/my_delta_log/1.json shardify.toml/a a/b/.zarray";
        let mut last_folder = LastFolder::default();
        for path in paths.split_whitespace().flat_map(|path| [path, path, "a/b.csv", path]) {
            let mut known = Tables::default();
            known.note_table(&Location::from_local_path(Path::new("/x")).unwrap(), path, true);
            let special = is_ignored(path) || !known.finish(&[], &StoreSettings::default()).is_empty();
            let plain = last_folder.is_plain(path);
            assert!(plain != special || (!plain && path == "a/metadata/x.png"), "{path}");
        }
    }

    #[test]
    fn names_of_records_are_known_in_any_case() {
        let named = ["a/b.CSV", "b.jsonl.gz", "c.x.TsT.tar", "d.tfrecord-00000-of-00010", "e.hdf5", "f.arrow"];
        named.iter().for_each(|name| assert!(names_records(name), "{name}"));
        ["a.jpg", "csv", "b.csv/c", "d.gz", "e.JPG.gz", ""]
            .iter()
            .for_each(|name| assert!(!names_records(name), "{name}"));
    }

    #[test]
    fn globs_and_filters_select_files() {
        let folder = tree(&["a/1.csv", "a/2.txt", "b/3.csv", "4.csv"]);
        let all = ScanOptions::default();
        assert_eq!(names(&["**/*.csv"], folder.path(), &all), ["4.csv", "a/1.csv", "b/3.csv"]);
        assert_eq!(names(&["a/*.csv"], folder.path(), &all), ["1.csv"]);
        let some = ScanOptions { include: vec!["*.csv".into()], exclude: vec!["b/**".into()], ..all };
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
    fn a_list_beyond_the_memory_limit_states_its_size() {
        let names: Vec<String> = (0..1000).map(|i| format!("{i}.jpg")).collect();
        let folder = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let scan = |memory| {
            scan_sources(
                &[".".to_owned()],
                folder.path(),
                &StoreSettings::default(),
                &ScanOptions { memory, ..ScanOptions::default() },
            )
        };
        let error = scan(Size(50 << 10)).unwrap_err();
        assert!(error.message().contains("found more than 4"), "{error}");
        assert_eq!(error.hints()[0], "raise the limit: --memory 1MiB is enough for twice as many");
        assert_eq!(scan(Size(120 << 10)).unwrap().files.len(), 1000);
    }

    #[test]
    fn a_missing_source_is_an_error() {
        let folder = tree(&["a.csv"]);
        assert!(
            scan_sources(
                &["nothing.csv".to_owned()],
                folder.path(),
                &StoreSettings::default(),
                &ScanOptions::default()
            )
            .is_err()
        );
    }
}
