//! A source file: where it was found, how it is named, and how its bytes are opened.

use std::{io::Read, ops::Range, sync::Arc};

use jiff::Timestamp;

use super::{
    name::{self, Named, SharedName},
    stream::Stream,
};
use crate::{
    codec::decompress,
    delta::DataFile,
    error::{Error, Result},
    format::files::TreeFile,
    record::{
        key::key_length,
        key_rule::{Cut, KeyRule},
    },
    storage::{Object, ObjectFacts, Spool, Store, Watch, ZipStore, watch_store},
};

/// A location below which sources were found.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) store: Arc<dyn Store>,
    /// The same store, without the records.
    pub(super) unwatched: Arc<dyn Store>,
    /// Records failures of the store.
    pub(super) watch: Watch,
    /// The location without secrets. All its sources share the text, because there may be millions.
    pub(super) shown: Arc<str>,
    /// Prefix of its sources' names before their paths.
    pub(super) prefix: Arc<str>,
    /// For a stream: the copy of its bytes, and what identifies it.
    pub(super) stream: Option<Stream>,
    /// The archive whose members are the sources; `None` if they are files.
    pub(super) archive: Option<Arc<ZipStore>>,
}

impl Root {
    pub(super) fn new(store: Arc<dyn Store>, prefix: String) -> Arc<Self> {
        let shown = store.location().to_string().into();
        let unwatched = Arc::clone(&store);
        let (store, watch) = watch_store(store);
        Arc::new(Self { store, unwatched, watch, shown, prefix: prefix.into(), stream: None, archive: None })
    }

    /// Returns the same root with another prefix.
    pub(super) fn with_prefix(&self, prefix: String) -> Arc<Self> {
        let (store, watch, shown) = (Arc::clone(&self.store), self.watch.clone(), Arc::clone(&self.shown));
        let (unwatched, archive) = (Arc::clone(&self.unwatched), self.archive.clone());
        Arc::new(Self { store, unwatched, watch, shown, prefix: prefix.into(), stream: None, archive })
    }
}

/// One input object. There may be millions of them, so everything that can be derived is not stored, and neighbours
/// share what they have in common.
#[derive(Debug, Clone)]
pub struct SourceFile {
    pub(super) name: SharedName<Arc<Root>>,
    pub(super) bytes: u64,
    /// Microseconds since 1970.
    pub(super) modified: i64,
    /// What is known beforehand; `None` for most files.
    facts: Option<Arc<KnownFacts>>,
    /// Length of the key of its sample, where that is the beginning of the name.
    key_bytes: u32,
    /// Length of the entity tag behind the name; [`NO_TAG`] if there is none.
    etag_bytes: u16,
    /// Whether it is a folder that is one source.
    pub(super) is_store: bool,
}

/// Length of the entity tag of a source that has none.
const NO_TAG: u16 = u16::MAX;

/// Sources whose names share a text.
pub(super) const PACKED_NAMES: usize = 1_024;

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
pub(super) struct StatedSource {
    /// Its name, which begins with the prefix of its root.
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) modified: i64,
    pub(super) etag: Option<String>,
}

impl StatedSource {
    pub(super) fn new(root: &Root, facts: ObjectFacts) -> Self {
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
    pub(super) fn memory_bytes(&self) -> u64 {
        (size_of::<SourceFile>() + self.name.len() + self.entity_tag().0.len()) as u64
    }
}

impl SourceFile {
    /// Returns a source that shares nothing with others.
    pub(super) fn new(root: &Arc<Root>, stated: &StatedSource) -> Self {
        Self::from_stated(SharedName::new(Arc::clone(root), &stated.name, stated.entity_tag().0), stated)
    }

    /// Returns a folder that is one source, with the paths of its metadata if it was listed.
    pub(super) fn of_store(root: &Arc<Root>, stated: &StatedSource, metadata: Option<Vec<String>>) -> Self {
        let known = |metadata| Arc::new(KnownFacts { store: Some(metadata), ..KnownFacts::default() });
        Self { is_store: true, facts: metadata.map(known), ..Self::new(root, stated) }
    }

    /// Returns sources below a root, which share a text.
    pub(super) fn pack_sources(root: &Arc<Root>, stated: &[StatedSource]) -> Vec<Self> {
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

    pub(super) fn root(&self) -> &Arc<Root> {
        self.name.shared_data()
    }

    /// Gives it another root, and a name below that.
    pub(super) fn set_root(&mut self, root: Arc<Root>, name: &str) {
        self.name = SharedName::new(root, name, self.etag().unwrap_or_default());
    }

    /// Returns the name used in origins and keys: the path below the user's source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the URL or absolute path, without secrets.
    pub fn uri(&self) -> String {
        if let Some(stream) = &self.root().stream {
            return stream.uri().to_owned();
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
            let (store, watch) = watch_store(Arc::clone(&self.root().unwatched));
            let (shown, prefix) = (Arc::clone(&self.root().shown), Arc::clone(&self.root().prefix));
            let (unwatched, archive) = (Arc::clone(&self.root().unwatched), self.root().archive.clone());
            let root = Root { store, unwatched, watch, shown, prefix, stream: None, archive };
            apart.set_root(Arc::new(root), self.name());
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

    /// Returns the paths of the metadata in a Zarr store, if the store was listed.
    pub fn store_metadata(&self) -> Option<&[String]> {
        self.facts.as_ref()?.store.as_deref()
    }

    /// Returns the path within its store.
    pub(super) fn path(&self) -> &str {
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

    /// Whether ranges of it can be read, by this process and by others: not of a stream, nor from a plain web server,
    /// nor of a packed member of an archive.
    pub(super) fn has_ranges(&self) -> bool {
        self.root().stream.is_none() && !self.is_packed_member() && !self.root().store.location().is_web()
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
        let (input, packed) = self.decompress_input(self.object().read_start(limit as u64 + 1)?)?;
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
