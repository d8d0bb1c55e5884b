//! A zip archive as a read-only store: its members are the objects below the location of the archive.
//!
//! ```text
//! /data/pets.zip/cat/1.jpg  =  member `cat/1.jpg` of /data/pets.zip        location of the store: /data/pets.zip
//! ```
//!
//! The directory is read once. The file of a local archive stays open, and a small member takes one read of it. A
//! stored member gives ranges; another one is unpacked in memory for them. The entity tag of a member is its checksum,
//! so an archive that is packed anew with the same members has the same objects.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    ops::Range,
    os::unix::fs::FileExt as _,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;

use super::{
    location::Location,
    object::Object,
    pin::Pin,
    store::{
        Existing, Listed, ObjectFacts, PutOutcome, Reading, Sink, Staged, Store, Visit, beyond_end, changed_object,
        missing_object,
    },
    unpacked,
};
use crate::{
    codec::zip::{self, Content, Method, Ranges, ZipMember},
    error::{Error, Result},
};

/// Maximum number of archives whose files stay open; those of others are opened for each read.
const OPEN_FILES: usize = 64;
/// Number of archives whose files stay open.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Number of archives that were opened by this process.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Bytes of extra fields that are read with a local header, whose length is not known before.
const EXTRA: u64 = 64;
/// Maximum bytes of a packed member that are read at once.
const SMALL: u64 = 4 << 20;

/// A zip archive.
#[derive(Debug)]
pub struct ZipStore {
    archive: Arc<Archive>,
    /// Names of all members, one after the other.
    names: String,
    /// Members, sorted by name.
    entries: Vec<Entry>,
    /// Offsets of the contents of members that were read in ranges, by their places among the entries.
    starts: Mutex<HashMap<usize, u64>>,
}

/// What of a member is known from the directory.
#[derive(Debug, Clone, Copy)]
struct Entry {
    name_at: u64,
    name_bytes: u32,
    content: Content,
}

/// Bytes of memory of a member, without its name.
const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;

impl ZipStore {
    /// Reads the directory of an archive. `choose` gets every member, with the bytes of memory that it takes, and
    /// returns whether it is an object of the store.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) when the archive is damaged or truncated, in several files, has a
    /// name twice, or members that overlap; when the store or `choose` fails.
    pub fn open(
        store: Arc<dyn Store>,
        facts: ObjectFacts,
        choose: &mut dyn FnMut(&ZipMember, u64) -> Result<bool>,
    ) -> Result<Self> {
        let location = store.location().join(&facts.path);
        let object =
            Object::new(Arc::clone(&store), facts.path.as_str(), facts.bytes).of_version(facts.etag.as_deref());
        let archive = Archive {
            location,
            store,
            facts,
            object,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            file: OnceLock::new(),
        };
        let (mut names, mut entries) = (String::new(), Vec::new());
        let read = zip::each_member(&archive, &mut |member| {
            if choose(&member, ENTRY_BYTES + member.name.len() as u64)? {
                let (name_at, name_bytes) = (names.len() as u64, u32::try_from(member.name.len()).unwrap_or(u32::MAX));
                names.push_str(&member.name);
                entries.push(Entry { name_at, name_bytes, content: member.content });
            }
            Ok(())
        });
        let directory = archive.located(read)?;
        let mut store = Self { archive: Arc::new(archive), names, entries, starts: Mutex::default() };
        store.sort_entries();
        let checked = store.check_repeats().and_then(|()| store.check_overlaps(directory));
        store.archive.located(checked)?;
        Ok(store)
    }

    /// Returns the names of all members, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| self.name_of(entry))
    }

    /// Whether a member is packed, so that all of it is unpacked for a range.
    pub fn is_packed(&self, path: &str) -> bool {
        self.find(path).is_some_and(|(_, entry)| entry.content.method != Method::STORED)
    }

    /// Fails if the archive is no longer as it was when its directory was read. Each read of a remote one states its
    /// entity tag.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it has changed or vanished; if the store fails.
    pub fn check_unchanged(&self) -> Result<()> {
        self.archive.check_unchanged()
    }

    fn name_of(&self, entry: &Entry) -> &str {
        let start = usize::try_from(entry.name_at).unwrap_or(usize::MAX);
        self.names.get(start..start.saturating_add(entry.name_bytes as usize)).unwrap_or_default()
    }

    fn sort_entries(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        if !entries.is_sorted_by(|a, b| self.name_of(a) <= self.name_of(b)) {
            entries.sort_unstable_by(|a, b| self.name_of(a).cmp(self.name_of(b)));
        }
        self.entries = entries;
    }

    fn check_repeats(&self) -> Result<()> {
        let same = |pair: &&[Entry]| self.name_of(&pair[0]) == self.name_of(&pair[1]);
        let Some(pair) = self.entries.windows(2).find(same) else { return Ok(()) };
        let message = format!("expected each name once in the archive, found `{}` twice", self.name_of(&pair[0]));
        Err(Error::input(message)
            .at_byte(pair[0].content.local.max(pair[1].content.local))
            .with_hint("only one of them can be unpacked: pack the files again"))
    }

    /// Fails if the content of a member covers the name of the next one, or reaches the directory: then a few bytes are
    /// the content of many members. No program writes that, and the bytes of all members are fewer than the archive's
    /// once it is excluded.
    fn check_overlaps(&self, directory: u64) -> Result<()> {
        let mut order: Vec<&Entry> = self.entries.iter().filter(|entry| entry.content.packed > 0).collect();
        order.sort_unstable_by_key(|entry| entry.content.local);
        let start = |entry: &Entry| entry.content.local.saturating_add(entry.content.header_bytes());
        let end = |entry: &Entry| start(entry).saturating_add(entry.content.packed);
        let overlap = |pair: &[&Entry]| end(pair[0]) > start(pair[1]);
        let error = |entry: &Entry, other: &str| {
            let message = format!("expected members one after the other, found `{}` over {other}", self.name_of(entry));
            Err(Error::input(message)
                .at_byte(entry.content.local)
                .with_hint("such an archive unpacks to far more than it has: do not trust it"))
        };
        if let Some(last) = order.iter().find(|entry| end(entry) > directory) {
            return error(last, "the directory of the archive");
        }
        match order.windows(2).find(|pair| overlap(pair)) {
            Some(pair) => error(pair[0], &format!("`{}`", self.name_of(pair[1]))),
            None => Ok(()),
        }
    }

    fn find(&self, path: &str) -> Option<(usize, &Entry)> {
        let at = self.entries.binary_search_by(|entry| self.name_of(entry).cmp(path)).ok()?;
        Some((at, self.entries.get(at)?))
    }

    fn require(&self, path: &str) -> Result<(usize, &Entry)> {
        self.find(path).ok_or_else(|| missing_object(&self.archive.location, path))
    }

    fn facts_of(&self, entry: &Entry) -> ObjectFacts {
        ObjectFacts {
            path: self.name_of(entry).to_owned(),
            bytes: entry.content.bytes,
            modified: self.archive.facts.modified,
            etag: Some(format!("crc32:{:08x}", entry.content.crc32)),
        }
    }

    /// Returns the offset of a member's content.
    fn start_of(&self, at: usize, content: &Content) -> Result<u64> {
        if let Some(start) = self.starts.lock().unwrap_or_else(PoisonError::into_inner).get(&at) {
            return Ok(*start);
        }
        let start = content.data_start(&self.archive.read(content.local, content.header_bytes())?)?;
        self.starts.lock().unwrap_or_else(PoisonError::into_inner).insert(at, start);
        Ok(start)
    }

    /// Opens a member; its last read fails if it is not as the directory states.
    fn open_member(&self, path: &str) -> Result<Box<dyn Read + Send>> {
        let (_, Entry { content, .. }) = self.require(path)?;
        let open = || {
            let start = content.data_start(&self.archive.read(content.local, content.header_bytes())?)?;
            content.open(self.archive.open_range(start..start.saturating_add(content.packed))?)
        };
        let inner = open().map_err(|e| self.archive.at_member(path, e))?;
        Ok(Box::new(MemberReader { inner, archive: Arc::clone(&self.archive), path: path.to_owned() }))
    }

    /// Returns the content of a member that is not stored, which stays in memory for a while.
    fn unpack_member(&self, path: &str, at: usize, content: &Content) -> Result<Bytes> {
        let unpack = || {
            let mut whole = Vec::new();
            self.open_member(path)?.read_to_end(&mut whole)?;
            Ok(whole.into())
        };
        unpacked::unpack_once((self.archive.number, at), content.bytes, unpack)
            .map_err(|e| self.archive.at_member(path, e))
    }
}

/// Names the member in errors of its reader.
struct MemberReader {
    inner: Box<dyn Read + Send>,
    archive: Arc<Archive>,
    path: String,
}

impl Read for MemberReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ => self.archive.at_member(&self.path, error.into()).into(),
        })
    }
}

/// The file or object of an archive.
#[derive(Debug)]
struct Archive {
    location: Location,
    store: Arc<dyn Store>,
    /// Its state when it was listed.
    facts: ObjectFacts,
    /// The object, for a remote one.
    object: Object,
    /// Identifies it in this process.
    number: u64,
    /// The open file, for a local one; `None` if too many are open.
    file: OnceLock<Option<Arc<File>>>,
}

impl Drop for Archive {
    fn drop(&mut self) {
        unpacked::forget_archive(self.number);
        if matches!(self.file.get(), Some(Some(_))) {
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Archive {
    /// Names the archive in an error.
    fn located<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error.place().source {
            Some(_) => error,
            None => error.at_location(self.location.to_string()),
        })
    }

    /// Names a member in an error.
    fn at_member(&self, path: &str, error: Error) -> Error {
        if error.place().source.is_some() { error } else { error.at_location(self.location.join(path).to_string()) }
    }

    /// Returns the open file; `None` for a remote archive.
    fn local_file(&self) -> Result<Option<Arc<File>>> {
        let Some(local) = self.store.as_local() else { return Ok(None) };
        let open = || -> Result<Arc<File>> { Ok(Arc::new(local.open_file(&self.facts.path)?)) };
        if let Some(Some(file)) = self.file.get() {
            return Ok(Some(Arc::clone(file)));
        }
        let mine = open()?;
        let kept = self.file.get_or_init(|| {
            let may_stay =
                OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| (open < OPEN_FILES).then_some(open + 1));
            may_stay.is_ok().then(|| Arc::clone(&mine))
        });
        Ok(Some(kept.as_ref().map_or(mine, Arc::clone)))
    }

    /// Returns bytes of a local archive.
    fn read_file(&self, file: &File, offset: u64, bytes: u64) -> Result<Bytes> {
        let range = offset..offset.saturating_add(bytes);
        if range.end > self.facts.bytes {
            return Err(beyond_end(self.store.location(), &self.facts.path, &range, self.facts.bytes));
        }
        let mut buffer = vec![0; usize::try_from(bytes).map_err(|_| Error::internal("a range is larger than memory"))?];
        match file.read_exact_at(&mut buffer, offset) {
            Ok(()) => Ok(buffer.into()),
            Err(e) => Err(self.failed(e, offset)),
        }
    }

    fn failed(&self, error: io::Error, offset: u64) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return changed_object(self.store.location(), &self.facts.path, self.facts.bytes, "fewer");
        }
        let place = self.location.to_string();
        Error::storage("reading failed").at_location(place).at_byte(offset).with_cause(error)
    }

    /// Opens a range for sequential reading.
    fn open_range(self: &Arc<Self>, range: Range<u64>) -> Result<Box<dyn Read + Send>> {
        if range.end > self.facts.bytes {
            return Err(beyond_end(self.store.location(), &self.facts.path, &range, self.facts.bytes));
        }
        match self.local_file()? {
            Some(file) => Ok(Box::new(FileRange { archive: Arc::clone(self), file, range })),
            None => self.object.read_range(range),
        }
    }

    fn check_unchanged(&self) -> Result<()> {
        if self.store.as_local().is_none() && self.facts.etag.is_some() {
            return Ok(());
        }
        let again = "nothing of it was committed: convert it when nothing writes to it any more";
        let found = match self.store.head(&self.facts.path)? {
            Some(now) if now == self.facts => return Ok(()),
            Some(now) if now.bytes != self.facts.bytes => format!("one of {} bytes", now.bytes),
            Some(_) => "it changed".to_owned(),
            None => "none".to_owned(),
        };
        let message = format!("expected the archive of {} bytes as it was listed, found {found}", self.facts.bytes);
        Err(Error::input(message).at_location(self.location.to_string()).with_hint(again))
    }
}

impl Ranges for Archive {
    fn byte_count(&self) -> u64 {
        self.facts.bytes
    }

    fn read(&self, offset: u64, bytes: u64) -> Result<Bytes> {
        match self.local_file()? {
            Some(file) => self.read_file(&file, offset, bytes),
            None => self.object.get_range(offset..offset.saturating_add(bytes)),
        }
    }
}

/// Reads a range of a local archive.
struct FileRange {
    archive: Arc<Archive>,
    file: Arc<File>,
    range: Range<u64>,
}

impl Read for FileRange {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX).min(buffer.len());
        if left == 0 {
            return Ok(0);
        }
        let read = match self.file.read_at(&mut buffer[..left], self.range.start) {
            Ok(0) => Err(self.archive.failed(io::ErrorKind::UnexpectedEof.into(), self.range.start).into()),
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(self.archive.failed(e, self.range.start).into()),
            read => read,
        }?;
        self.range.start += read as u64;
        Ok(read)
    }
}

impl Store for ZipStore {
    fn location(&self) -> &Location {
        &self.archive.location
    }

    fn endpoint(&self) -> Option<String> {
        self.archive.store.endpoint()
    }

    fn is_cached(&self, _path: &str) -> bool {
        self.archive.store.is_cached(&self.archive.facts.path)
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        self.archive.check_unchanged()?;
        Ok(self.find(path).map(|(_, entry)| self.facts_of(entry)))
    }

    fn read_into(&self, path: &str, bytes: Option<u64>, into: &mut Vec<u8>) -> Result<bool> {
        let Some((_, Entry { content, .. })) = self.find(path) else { return Ok(false) };
        if let Some(bytes) = bytes.filter(|bytes| *bytes != content.bytes) {
            return Err(changed_object(self.location(), path, bytes, &content.bytes.to_string()));
        }
        if content.packed > SMALL {
            self.open_member(path)?.read_to_end(into)?;
            return Ok(true);
        }
        let mut read = || {
            let end = self.archive.byte_count().saturating_sub(content.local);
            let first = self.archive.read(content.local, (content.header_bytes() + EXTRA + content.packed).min(end))?;
            let start = content.data_start(&first)?;
            let within = |at: u64| usize::try_from(at - content.local).unwrap_or(usize::MAX);
            match first.get(within(start)..within(start + content.packed)) {
                Some(packed) => content.unpack(packed, into),
                None => content.unpack(&self.archive.read(start, content.packed)?, into),
            }
        };
        read().map_err(|e| self.archive.at_member(path, e))?;
        Ok(true)
    }

    fn get_ranges(&self, path: &str, ranges: &[Range<u64>], _: &Pin) -> Result<Vec<Bytes>> {
        let (at, Entry { content, .. }) = self.require(path)?;
        if let Some(range) = ranges.iter().find(|range| range.end > content.bytes) {
            return Err(beyond_end(self.location(), path, range, content.bytes));
        }
        if content.method != Method::STORED {
            let whole = self.unpack_member(path, at, content)?;
            let beyond = || Error::internal("a range is not in an unpacked member");
            return ranges.iter().map(|range| unpacked::range_of(&whole, range).ok_or_else(beyond)).collect();
        }
        let start = self.start_of(at, content).map_err(|e| self.archive.at_member(path, e))?;
        let read = |range: &Range<u64>| {
            let bytes = range.end.saturating_sub(range.start);
            self.archive.read(start.saturating_add(range.start), bytes)
        };
        ranges.iter().map(read).collect()
    }

    fn read_tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        let Some((_, Entry { content, .. })) = self.find(path) else { return Ok(None) };
        let range = content.bytes.saturating_sub(bytes)..content.bytes;
        let tail = self.get_ranges(path, std::slice::from_ref(&range), &Pin::default())?.pop().unwrap_or_default();
        Ok(Some((tail, content.bytes)))
    }

    fn open_reader(&self, path: &str, reading: Reading<'_>) -> Result<Box<dyn Read + Send>> {
        let Reading::Range(range, _) = reading else { return self.open_member(path) };
        let (at, Entry { content, .. }) = self.require(path)?;
        if content.method == Method::STORED {
            let start = self.start_of(at, content).map_err(|e| self.archive.at_member(path, e))?;
            let end = range.end.clamp(range.start, content.bytes.max(range.start));
            return self.archive.open_range(start.saturating_add(range.start)..start.saturating_add(end));
        }
        let mut input = self.open_member(path)?;
        io::copy(&mut input.by_ref().take(range.start), &mut io::sink())?;
        Ok(Box::new(input.take(range.end.saturating_sub(range.start))))
    }

    fn visit(&self, folder: &str, visit: Visit<'_>) -> Result<()> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let first = self.entries.partition_point(|entry| self.name_of(entry) < prefix.as_str());
        for entry in &self.entries[first..] {
            if !self.name_of(entry).starts_with(&prefix) || visit(Listed::Object(self.facts_of(entry)))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, _: &str, _: Bytes, _: Existing) -> Result<PutOutcome> {
        self.read_only()
    }

    fn delete_all(&self, _: &[String]) -> Result<()> {
        self.read_only()
    }

    fn create_sink(&self, _: &str) -> Result<Box<dyn Sink>> {
        self.read_only()
    }

    fn name_staged(&self, _: Vec<Staged>, _: Existing) -> Result<()> {
        self.read_only()
    }
}

impl ZipStore {
    fn read_only<T>(&self) -> Result<T> {
        Err(Error::usage("expected a folder to write to, found a zip archive")
            .at_location(self.location().to_string())
            .with_hint("archives are only read"))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::{LocalStore, RemoteStore};

    /// An archive of stored and deflated members, in the order given.
    fn zip(members: &[(&str, &[u8], bool)]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, content, deflated) in members {
            let mut packed = content.to_vec();
            if *deflated {
                packed.clear();
                let read =
                    flate2::read::DeflateEncoder::new(*content, flate2::Compression::fast()).read_to_end(&mut packed);
                read.unwrap();
            }
            let length = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
            let method = [if *deflated { 8 } else { 0 }, 0, 0, 0, 0, 0];
            let sizes = [crc32fast::hash(content).to_le_bytes(), length(packed.len()), length(content.len())].concat();
            let common = [&[20, 0, 0, 0][..], &method, &sizes, &length(name.len())].concat();
            let local = length(out.len());
            out.extend_from_slice(&[b"PK\x03\x04", &common[..], name.as_bytes(), &packed].concat());
            let entry = [b"PK\x01\x02\x14\x03", &common[..], &[0; 10], &local, name.as_bytes()].concat();
            directory.extend_from_slice(&entry);
        }
        let count = u16::try_from(members.len()).unwrap().to_le_bytes();
        let place = [u32::try_from(directory.len()).unwrap(), u32::try_from(out.len()).unwrap()].map(u32::to_le_bytes);
        [&out[..], &directory, b"PK\x05\x06\0\0\0\0", &count, &count, &place.concat(), &[0, 0]].concat()
    }

    fn open(store: &Arc<dyn Store>) -> Result<ZipStore> {
        let facts = store.head("a.zip").unwrap().unwrap();
        ZipStore::open(Arc::clone(store), facts, &mut |_, _| Ok(true))
    }

    #[test]
    fn members_are_objects_of_local_and_remote_archives() {
        let folder = tempfile::tempdir().unwrap();
        let local: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path().to_owned()));
        let remote: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let long: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let members: [(&str, &[u8], bool); 4] =
            [("b/2", &long, true), ("b/1", &long, false), ("a", b"first", false), ("c", b"", true)];
        for store in [local, remote] {
            store.put("a.zip", zip(&members).into()).unwrap();
            let opened: Arc<dyn Store> = Arc::new(open(&store).unwrap());
            let listed: Vec<String> = opened.list_folder("").unwrap().into_iter().map(|facts| facts.path).collect();
            assert_eq!(listed, ["a", "b/1", "b/2", "c"]);
            assert_eq!(opened.list_folder("b").unwrap().len(), 2);
            for (name, content, _) in members {
                let facts = opened.head(name).unwrap().unwrap();
                assert_eq!(facts.etag, Some(format!("crc32:{:08x}", crc32fast::hash(content))));
                assert!(opened.get(name).unwrap().unwrap() == content);
                let object = Object::new(Arc::clone(&opened), name, facts.bytes).of_version(facts.etag.as_deref());
                let mut read = Vec::new();
                object.read().unwrap().read_to_end(&mut read).unwrap();
                assert!(read == content);
                if content.len() > 9 {
                    assert_eq!(object.get_range(70_000..70_009).unwrap(), content[70_000..70_009]);
                    let mut range = Vec::new();
                    object.read_range(5..200_000).unwrap().read_to_end(&mut range).unwrap();
                    assert!(range == content[5..200_000]);
                }
                assert!(opened.get_range(name, 0..facts.bytes + 1).is_err());
                assert_eq!(opened.read_tail(name, 3).unwrap().unwrap().0, content[content.len().saturating_sub(3)..]);
            }
            assert!(opened.get("b").unwrap().is_none() && opened.put("x", Bytes::new()).is_err());
        }
    }

    #[test]
    fn an_archive_that_changes_while_it_is_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path().to_owned()));
        store.put("a.zip", zip(&[("a", b"first", false)]).into()).unwrap();
        let opened = open(&store).unwrap();
        opened.check_unchanged().unwrap();
        store.put("a.zip", zip(&[("a", b"other one", false)]).into()).unwrap();
        let error = opened.check_unchanged().unwrap_err();
        assert!(error.message().contains("as it was listed"), "{error}");
        store.delete("a.zip").unwrap();
        assert!(opened.head("a").is_err());
    }

    #[test]
    fn a_flipped_bit_of_a_member_is_never_other_content() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let members: [(&str, &[u8], bool); 2] = [("a", b"first first first first", true), ("b", b"second", false)];
        let whole = zip(&members);
        for at in 0..whole.len() * 8 {
            let mut spoilt = whole.clone();
            spoilt[at / 8] ^= 1 << (at % 8);
            store.put("a.zip", spoilt.into()).unwrap();
            let Ok(opened) = open(&store) else { continue };
            let opened: Arc<dyn Store> = Arc::new(opened);
            for (name, content, _) in members {
                // There is none if the bit is one of the name.
                if let Ok(Some(found)) = opened.get(name) {
                    assert_eq!(found, content, "bit {at}");
                }
            }
        }
    }
}
