//! Finds inputs: turns the user's sources into a sorted list of source files.
//!
//! A source is a file, a folder, a glob or a URL. Folders are walked; hidden files, leftovers of systems,
//! `shardify.toml`, system folders of other datasets and the output dataset are ignored and counted, never silently.
//! Files are sorted by name, so the same inputs always have the same order.

mod companions;
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
mod stored;
mod stores;
mod tables;

use std::{io::Read, ops::Range, path::Path, sync::Arc};

use globset::GlobSet;
use jiff::Timestamp;
use rayon::{
    iter::{IntoParallelRefIterator, ParallelIterator},
    slice::{ParallelSlice, ParallelSliceMut},
};
use xxhash_rust::xxh3::xxh3_64;

pub use companions::{Companions, ignore_companions};
pub use foreign::is_foreign_archive;
pub use formats::{InputFormat, SniffOptions};
pub use ignored::CONFIG_FILE;
pub use kind::{BIDS, BIDS_OPTIONS, Input, classify_inputs, names_records};
pub use misnamed::{contradiction_note, misnamed_note, names_arrays};
pub use partitions::{folders_in, folders_of, with_partitions};
pub use parts::{Scouted, closed_hash, scout_parts};
pub use source::{First, RecordSource};
pub use stored::{Listed as ListedSource, content_hash, reopen_sources};
pub use tables::{FoundTable, TableFormat, refuse_foreign};

use self::{
    globs::{compile_globs, matches_name, split_glob},
    ignored::{LastFolder, is_ignored},
    name::{Named, SharedName},
    tables::Tables,
};
use crate::{
    codec::decompress,
    delta::DataFile,
    error::{Error, Kind, Result},
    format::files::TreeFile,
    record::{
        IGNORED_NAMES,
        clutter::{is_bookkeeping, is_sign},
        key::key_length,
        key_rule::{Cut, KeyRule},
    },
    schema,
    storage::{
        self, Listed, Location, Object, ObjectFacts, SYSTEM_FOLDER, Spool, Store, StoreSettings, Watch, plain_argument,
        watch_store,
    },
    units::Size,
};

/// A location below which sources were found.
#[derive(Debug)]
struct Root {
    store: Arc<dyn Store>,
    /// The same store, without the records.
    unwatched: Arc<dyn Store>,
    /// Records failures of the store.
    watch: Watch,
    /// The location without secrets. All its sources share the text, because there may be millions.
    shown: Arc<str>,
    /// Prefix of its sources' names before their paths.
    prefix: Arc<str>,
    /// For a stream: the copy of its bytes, and its identifier.
    stream: Option<(Spool, String)>,
}

impl Root {
    fn new(store: Arc<dyn Store>, prefix: String) -> Arc<Self> {
        let shown = store.location().to_string().into();
        let unwatched = Arc::clone(&store);
        let (store, watch) = watch_store(store);
        Arc::new(Self { store, unwatched, watch, shown, prefix: prefix.into(), stream: None })
    }

    /// Returns the same root with another prefix.
    fn with_prefix(&self, prefix: String) -> Arc<Self> {
        let (store, watch, shown) = (Arc::clone(&self.store), self.watch.clone(), Arc::clone(&self.shown));
        let unwatched = Arc::clone(&self.unwatched);
        Arc::new(Self { store, unwatched, watch, shown, prefix: prefix.into(), stream: None })
    }
}

/// One input object. There may be millions of them, so everything that can be derived is not stored, and neighbours
/// share what they have in common.
#[derive(Debug, Clone)]
pub struct SourceFile {
    name: SharedName<Arc<Root>>,
    bytes: u64,
    /// Microseconds since 1970.
    modified: i64,
    /// What is known beforehand; `None` for most files.
    facts: Option<Arc<KnownFacts>>,
    /// Length of the key of its sample, where that is the beginning of the name.
    key_bytes: u32,
    /// Length of the entity tag behind the name; [`NO_TAG`] if there is none.
    etag_bytes: u16,
    /// Whether it is a folder that is one source.
    is_store: bool,
}

/// Length of the entity tag of a source that has none.
const NO_TAG: u16 = u16::MAX;

/// Sources whose names share a text.
const PACKED_NAMES: usize = 1_024;

/// What is known of a source before it is opened.
#[derive(Debug, Default, Clone)]
struct KnownFacts {
    /// How it is read as a data file of a Delta table.
    table: Option<DataFile>,
    /// Paths of the metadata within a Zarr store, in order.
    store: Option<Vec<String>>,
    /// Key and ending, where the name does not begin with the key.
    joined: Option<(String, String)>,
}

/// Returns the length of a key by the usual rule. It is taken while the name is in the cache: of a million names, none
/// is later.
fn usual_key(name: &str) -> u32 {
    u32::try_from(key_length(name.as_bytes())).unwrap_or(u32::MAX)
}

/// What a store says of a source.
struct StatedSource {
    /// Its name, which begins with the prefix of its root.
    name: String,
    bytes: u64,
    modified: i64,
    etag: Option<String>,
}

impl StatedSource {
    fn new(root: &Root, facts: ObjectFacts) -> Self {
        Self {
            name: if root.prefix.is_empty() { facts.path } else { format!("{}{}", root.prefix, facts.path) },
            bytes: facts.bytes,
            modified: facts.modified.as_microsecond(),
            etag: facts.etag,
        }
    }

    /// Returns its entity tag, and the length of it. One that is longer than any store makes them counts as none.
    fn entity_tag(&self) -> (&str, u16) {
        let tag = self.etag.as_deref().and_then(|tag| Some((tag, u16::try_from(tag.len()).ok()?)));
        tag.filter(|(_, bytes)| *bytes < NO_TAG).unwrap_or(("", NO_TAG))
    }

    /// Estimates the bytes of memory of the source.
    fn memory_bytes(&self) -> u64 {
        (size_of::<SourceFile>() + self.name.len() + self.entity_tag().0.len()) as u64
    }
}

impl SourceFile {
    /// Returns a source that shares nothing with others.
    fn new(root: &Arc<Root>, stated: &StatedSource) -> Self {
        Self::from_stated(SharedName::new(Arc::clone(root), &stated.name, stated.entity_tag().0), stated)
    }

    /// Returns sources below a root, which share a text.
    fn pack_sources(root: &Arc<Root>, stated: &[StatedSource]) -> Vec<Self> {
        let texts: Vec<(&str, &str)> = stated.iter().map(|one| (one.name.as_str(), one.entity_tag().0)).collect();
        name::pack_names(Arc::clone(root), &texts).zip(stated).map(|(name, one)| Self::from_stated(name, one)).collect()
    }

    fn from_stated(name: SharedName<Arc<Root>>, stated: &StatedSource) -> Self {
        Self {
            key_bytes: usual_key(&name),
            name,
            bytes: stated.bytes,
            modified: stated.modified,
            facts: None,
            etag_bytes: stated.entity_tag().1,
            is_store: false,
        }
    }

    fn root(&self) -> &Arc<Root> {
        self.name.shared_data()
    }

    /// Gives it another root, and a name below that.
    fn set_root(&mut self, root: Arc<Root>, name: &str) {
        self.name = SharedName::new(root, name, self.etag().unwrap_or_default());
    }

    /// Creates a source from a stream that can be read only once. Its identifier is a hash of its content, so that the
    /// same content is recognised again.
    ///
    /// # Errors
    /// Fails if the stream cannot be read or stored.
    pub fn of_stream(name: &str, input: impl Read) -> Result<Self> {
        let spool = Spool::from_reader(input)?;
        let bytes = spool.byte_count();
        let unwatched = Arc::clone(spool.store());
        let (store, watch) = watch_store(Arc::clone(&unwatched));
        let digest = blake3::Hash::from(spool.checksum()).to_hex();
        let uri = format!("{name}:{}", &digest[..16]);
        let root = Root { store, unwatched, watch, shown: name.into(), prefix: "".into(), stream: Some((spool, uri)) };
        Ok(Self::new(&Arc::new(root), &StatedSource { name: name.to_owned(), bytes, modified: 0, etag: None }))
    }

    /// Returns the name used in origins and keys: the path below the user's source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the URL or absolute path, without secrets.
    pub fn uri(&self) -> String {
        if let Some((_, uri)) = &self.root().stream {
            return uri.clone();
        }
        match self.root().store.location().local_path() {
            Some(folder) => match folder.to_str() {
                // This is a hot path: there may be millions of sources.
                Some(folder) => [folder, if folder.ends_with('/') { "" } else { "/" }, self.path()].concat(),
                None => folder.join(self.path()).display().to_string(),
            },
            None => self.root().store.location().join(self.path()).to_string(),
        }
    }

    /// Returns the object to read.
    pub fn object(&self) -> Object {
        Object::new(Arc::clone(&self.root().store), self.path(), self.bytes).of_version(self.etag())
    }

    /// Returns the failure of its store while something was read, if any. After a failure, nothing that was read may be
    /// treated as complete, whatever a decoder made of it.
    pub fn store_fault(&self) -> Option<Error> {
        self.root().watch.first_fault()
    }

    /// Whether a [fault](Self::store_fault) of this file is one of the other file too.
    pub fn shares_store(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.root(), other.root())
    }

    /// Returns the same file, whose failures are no [faults](Self::store_fault) of this one: it is read as an attempt
    /// that may fail.
    #[must_use]
    pub fn to_unwatched(&self) -> Self {
        let mut apart = self.clone();
        if self.root().stream.is_none() {
            let root = Root::new(Arc::clone(&self.root().unwatched), self.root().prefix.to_string());
            apart.set_root(root, self.name());
        }
        apart
    }

    /// Appends all stored bytes to `into`; if that fails, possibly a part of them.
    ///
    /// # Errors
    /// Fails if the file no longer exists or its size has changed.
    pub fn read_whole(&self, into: &mut Vec<u8>) -> Result<()> {
        self.root().store.read_whole(self.path(), self.bytes, into)
    }

    /// Whether its start is in memory, so that reading it waits for nothing; false if that is unknown.
    pub fn is_cached(&self) -> bool {
        self.root().store.is_cached(self.path())
    }

    /// Returns whether reading it needs a network request.
    pub fn is_remote(&self) -> bool {
        self.root().store.location().local_path().is_none()
    }

    /// Returns the size in bytes, as stored.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the time of the last modification.
    pub fn modified(&self) -> Timestamp {
        Timestamp::from_microsecond(self.modified).unwrap_or_default()
    }

    /// Returns the entity tag, if the store has one.
    pub fn etag(&self) -> Option<&str> {
        (self.etag_bytes != NO_TAG).then(|| self.name.text_behind(self.etag_bytes))
    }

    /// Applies a rule for keys: that of a path which has none is the whole path.
    pub fn key_by(&mut self, rule: &KeyRule) {
        if self.joined_name().is_some() {
            self.facts_mut().joined = None;
        }
        match rule.cut_path(&self.name) {
            Some(Cut::At(end)) => self.key_bytes = u32::try_from(end).unwrap_or(u32::MAX),
            Some(Cut::Joined { key, part }) => self.facts_mut().joined = Some((key, format!(".{part}"))),
            None => self.key_bytes = u32::try_from(self.name.len()).unwrap_or(u32::MAX),
        }
    }

    fn facts_mut(&mut self) -> &mut KnownFacts {
        Arc::make_mut(self.facts.get_or_insert_default())
    }

    fn joined_name(&self) -> Option<&(String, String)> {
        self.facts.as_ref()?.joined.as_ref()
    }

    /// Returns the file as a data file of a Delta table, whose log decides which rows it has.
    #[must_use]
    pub fn in_table(mut self, file: DataFile) -> Self {
        self.facts_mut().table = Some(file);
        self
    }

    /// Returns how it is read as a data file of a Delta table; `None` for other files.
    pub fn table_file(&self) -> Option<&DataFile> {
        self.facts.as_ref()?.table.as_ref()
    }

    /// Returns the path within its store.
    fn path(&self) -> &str {
        match self.root().stream {
            Some(_) => Spool::NAME,
            None => self.name.get(self.root().prefix.len()..).unwrap_or_default(),
        }
    }

    /// Estimates its bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.name.len() + self.etag().map_or(0, str::len)) as u64
    }

    /// Opens it, decompressed if necessary; `tap` observes the stored bytes.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn open(&self, tap: impl FnMut(&[u8]) + Send + 'static) -> Result<Box<dyn Read + Send>> {
        Ok(self.decompress_input(Box::new(Tap { inner: self.object().read()?, tap }))?.0)
    }

    /// Opens a range of its stored bytes, as they are; `tap` observes them.
    ///
    /// # Errors
    /// Fails if it cannot be read. Reading fails if it is shorter.
    pub fn open_range(
        &self,
        range: Range<u64>,
        tap: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Box<dyn Read + Send>> {
        Ok(Box::new(Tap { inner: self.object().read_range(range)?, tap }))
    }

    /// Whether ranges of it can be read, by this process and by others: not of a stream, nor from a plain web server.
    fn has_ranges(&self) -> bool {
        self.root().stream.is_none() && !self.root().store.location().is_web()
    }

    /// Decompresses an opened source if necessary; also returns whether the whole source is compressed.
    fn decompress_input(&self, mut raw: Box<dyn Read + Send>) -> Result<(Box<dyn Read + Send>, bool)> {
        let mut head = Vec::new();
        raw.by_ref().take(16).read_to_end(&mut head)?;
        let compression = decompress::detect_compression(&head);
        let whole: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(head).chain(raw));
        match compression {
            Some(compression) => {
                let input = decompress::open_decoder(compression, whole).map_err(|e| e.at_location(self.uri()))?;
                Ok((input, true))
            }
            None => Ok((whole, false)),
        }
    }

    /// Reads up to `limit` bytes from the start, after decompression.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn read_head(&self, limit: usize) -> Result<Head> {
        let (input, packed) = self.decompress_input(self.object().read_start()?)?;
        let mut bytes = Vec::new();
        match input.take(limit as u64 + 1).read_to_end(&mut bytes) {
            Ok(_) => {}
            // A damaged compressed file is reported when it is converted; the readable part reveals its format.
            Err(e) if bytes.is_empty() => return Err(Error::from(e).at_location(self.uri())),
            Err(_) => {}
        }
        let complete = bytes.len() <= limit;
        bytes.truncate(limit);
        Ok(Head { bytes, complete, packed })
    }
}

/// The start of a source.
#[derive(Debug)]
pub struct Head {
    /// The bytes, decompressed.
    pub bytes: Vec<u8>,
    /// Whether these are all bytes of the source.
    pub complete: bool,
    /// Whether the whole source is compressed.
    pub packed: bool,
}

impl Named for SourceFile {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Sorts by name.
pub fn sort_by_name(files: &mut [SourceFile]) {
    name::sort_by_name(files);
}

impl TreeFile for SourceFile {
    fn path(&self) -> &str {
        self.name()
    }

    fn byte_count(&self) -> u64 {
        self.bytes
    }

    fn key(&self) -> &str {
        match self.joined_name() {
            Some(joined) => &joined.0,
            None => &self.name[..self.key_bytes as usize],
        }
    }

    fn part_suffix(&self) -> &str {
        match self.joined_name() {
            Some(joined) => &joined.1,
            None => &self.name[self.key_bytes as usize..],
        }
    }
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
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { include: Vec::new(), exclude: Vec::new(), dataset: None, memory: Size(u64::MAX) }
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
        unpacked: Vec::new(),
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
    found: ScanResult,
    tables: Tables,
}

impl Scan {
    fn add_source(&mut self, text: &str, folder: &Path, settings: &StoreSettings) -> Result<()> {
        if let Some((above, pattern)) = split_glob(text) {
            let root = Location::parse(if above.is_empty() { "." } else { above }, folder)?;
            let matcher = compile_globs(&[pattern.to_owned()])?;
            return self.add_folder(&root, settings, matcher.as_ref(), text);
        }
        let location = Location::parse(text, folder)?;
        if let Some((above, name)) = location.split_name() {
            let store = storage::open_store(&above, settings)?;
            if let Some(facts) = store.head(&name)? {
                self.tables.schedule_search(&above);
                let root = Root::new(store, String::new());
                self.add_object(&root, facts)?;
                self.pack_found(&root);
                return Ok(());
            }
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
                        self.account_memory(FAULT_BYTES)?;
                        self.found.faults.push(fault);
                    }
                }
            }
            Ok(())
        })?;
        self.pack_found(&below);
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

    fn add_object(&mut self, root: &Arc<Root>, facts: ObjectFacts) -> Result<()> {
        let stated = StatedSource::new(root, facts);
        let wanted = self.include.as_ref().is_none_or(|g| matches_name(g, &stated.name))
            && !self.exclude.as_ref().is_some_and(|g| matches_name(g, &stated.name));
        if !wanted {
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
            file.set_root(Root::new(Arc::clone(&file.root().store), above), &name);
        }
    }
    true
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
