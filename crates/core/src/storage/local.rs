//! Local folders with durable, atomic writes.
//!
//! An object is written under a fresh name in the staging folder, synced, and then renamed without replacing anything
//! ([`naming`]). Afterwards the folder is synced, because a name is not durable before that.
//!
//! ```text
//! ROOT/_shardify/staging/<random>   being written: never listed as a shard, harmless after a crash
//! ROOT/<path>                       complete and durable
//! ```
//!
//! No path leads out of the root: see `beneath`.
use std::{
    any::Any,
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufRead, Read, Seek as _, Write},
    ops::Range,
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt as _},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use jiff::Timestamp;
#[cfg(target_os = "linux")]
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::{
    buffer::spare_capacity,
    fs::{Mode, OFlags},
    io::{read, retry_on_intr},
};

use super::{
    back,
    beneath::{Name, OpenFolder, path_below_root, stays_below},
    durable::{Syncer, Syncs},
    location::Location,
    naming,
    pin::Pin,
    sink::FileWriter,
    store::{
        Existing, Local, Lock, ObjectFacts, Pending, PutOutcome, Reading, SYSTEM_FOLDER, Sink, Staged, Store, Visit,
        beyond_end, changed_object, missing_object, occupied_name,
    },
    walk,
};
use crate::{
    error::{Effect, Error, Kind, Result},
    id::{TransactionId, run_of_folder, run_of_name},
};

/// Folder of staged files.
pub(super) const STAGING: &str = "_shardify/staging";

/// Folder of the files that are locked.
const LOCKS: &str = "_shardify/locks";

/// Age of a staged file that nobody writes to any more.
const ABANDONED: Duration = Duration::from_secs(7 * 24 * 3600);

/// A store rooted at a local folder, which is created with the first object.
#[derive(Debug)]
pub struct LocalStore {
    root: PathBuf,
    location: Location,
    /// Distinguishes staged files of this process; the prefix distinguishes processes.
    serial: AtomicU64,
    prefix: String,
    /// The open root, for relative opens of many small files without resolving the full path; opened by the first one.
    folder: OnceLock<Option<File>>,
    /// The open staging folder, which all staged files share.
    staging: Mutex<Option<Arc<OpenFolder>>>,
    syncer: Arc<Syncer>,
    /// The closest folder above the root that existed before the root was created.
    existing_ancestor: OnceLock<PathBuf>,
}

impl LocalStore {
    /// Opens the folder `root`, which need not exist yet.
    pub fn new(root: PathBuf) -> Self {
        let location = Location::from_local_path(&root).unwrap_or_else(|_| fallback_location());
        let mut prefix = TransactionId::fresh().0;
        prefix.truncate(12);
        Self {
            root,
            location,
            serial: AtomicU64::new(0),
            prefix,
            folder: OnceLock::new(),
            staging: Mutex::default(),
            syncer: Arc::default(),
            existing_ancestor: OnceLock::new(),
        }
    }

    /// Returns the path of an object for reading it.
    fn object_path(&self, path: &str) -> io::Result<PathBuf> {
        path_below_root(&self.root, path)
    }

    /// Opens a file for reading.
    fn open_below(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = match self.folder.get_or_init(|| File::open(&self.root).ok()) {
            Some(folder) if stays_below(path) => rustix::fs::openat(folder, path, flags, Mode::empty()),
            _ => rustix::fs::open(self.object_path(path)?, flags, Mode::empty()),
        };
        Ok(file?)
    }

    /// Removes the folders of a run that a deletion has left empty: nothing is written there any more. Other folders
    /// may be the user's.
    fn remove_empty_folders(&self, path: &str) {
        let is_below_run = path.split('/').next().is_some_and(|first| run_of_folder(first).is_some());
        let mut path = path;
        while let Some((folder, _)) = path.rsplit_once('/') {
            let name = folder.rsplit('/').next().unwrap_or_default();
            let is_own = is_below_run || run_of_folder(name).is_some() || run_of_name(name).is_some();
            let removed = || {
                let (above, name) = OpenFolder::open_parent(&self.root, folder)?;
                above.entry_name(name).remove_folder()
            };
            if !is_own || removed().is_err() {
                return;
            }
            path = folder;
        }
    }

    fn operation_error(&self, path: &str, doing: &str) -> impl FnOnce(io::Error) -> Error {
        let place = self.root.join(path).display().to_string();
        let message = format!("{doing} failed");
        move |cause| {
            let hint = match cause.kind() {
                io::ErrorKind::PermissionDenied => Some("check the permissions of the file and its folder"),
                io::ErrorKind::InvalidInput => Some("nothing is read, written or deleted outside of the folder"),
                _ => None,
            };
            let error = Error::storage(message).at_location(place).with_cause(cause);
            match hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        }
    }

    /// Returns the error for a folder of the dataset that cannot be created: what is in the way, where.
    fn no_folder(&self, doing: &str) -> impl FnOnce(io::Error) -> Error {
        let message = format!("{doing} failed");
        let root = self.root.clone();
        move |cause| {
            let above = root.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(&root);
            let place = above.display().to_string();
            if !above.is_dir() && matches!(cause.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists) {
                let found = if above.exists() { "a file" } else { "a link to nothing" };
                return Error::usage(format!("expected a folder, found {found}"))
                    .at_location(place)
                    .with_hint("a dataset is a folder of shards: name one that is new, or has a dataset");
            }
            let error = Error::storage(message).at_location(root.display().to_string());
            match cause.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => error
                    .with_cause(cause)
                    .with_hint(format!("you may not write to {place}: name a folder that you may write to")),
                _ => error.with_cause(cause).with_hint("name another folder for the dataset"),
            }
        }
    }

    fn stage_file(&self, path: &str) -> Result<StagedFile> {
        let to = self.object_path(path).map_err(self.operation_error(path, "writing"))?;
        self.existing_ancestor();
        let folder = self.staging_folder(None).map_err(self.no_folder("creating the folder of the dataset"))?;
        let name = format!("{}-{}", self.prefix, self.serial.fetch_add(1, Ordering::Relaxed));
        let from = self.root.join(STAGING).join(&name);
        Ok(StagedFile { folder, name, from, to, named: false, syncs: Syncs::default() })
    }

    /// Returns the staging folder, and opens it anew if it is the one that `removed` names.
    fn staging_folder(&self, removed: Option<&Arc<OpenFolder>>) -> io::Result<Arc<OpenFolder>> {
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        match &*staging {
            Some(open) if !removed.is_some_and(|removed| Arc::ptr_eq(open, removed)) => Ok(Arc::clone(open)),
            _ => Ok(Arc::clone(staging.insert(Arc::new(OpenFolder::open_or_create(&self.root, STAGING)?)))),
        }
    }

    /// Creates a file in the staging folder, which another process may have removed because it was empty.
    fn create_staged(&self, staged: &mut StagedFile) -> io::Result<File> {
        match staged.staged_name().create_new() {
            Err(e) if is_absent(&e) => {
                staged.folder = self.staging_folder(Some(&staged.folder))?;
                staged.staged_name().create_new()
            }
            created => created,
        }
    }

    /// Writes `bytes` to a staged file and syncs it.
    fn stage_whole(&self, path: &str, bytes: &[u8]) -> Result<StagedFile> {
        let mut staged = self.stage_file(path)?;
        let mut write = || {
            let mut file = self.create_staged(&mut staged)?;
            file.write_all(bytes)?;
            file.sync_data()
        };
        write().map_err(self.operation_error(path, "writing"))?;
        Ok(staged)
    }

    /// Waits until all files are durable, renames them with `name`, calls `given` for each, and syncs their folders.
    fn name_all(
        &self,
        staged: Vec<Staged>,
        rename: fn(Name<'_>, Name<'_>, &str) -> io::Result<()>,
        given: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut files = Vec::with_capacity(staged.len());
        for object in staged {
            let (path, mut file) = object.into_parts::<StagedFile>()?;
            file.syncs.wait().map_err(self.operation_error(&path, "writing"))?;
            files.push((path, file));
        }
        let mut named = Vec::with_capacity(files.len());
        for (path, mut file) in files {
            let (folder, name) = self.folder_for(&path).map_err(self.operation_error(&path, "creating the folder"))?;
            match rename(file.staged_name(), folder.entry_name(name), &path) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(occupied_name(&self.location, &path)),
                Err(e) => return Err(self.operation_error(&path, "naming")(e)),
            }
            file.named = true;
            given(&path);
            named.push(file.to.clone());
        }
        self.sync_folders(named.iter().map(PathBuf::as_path)).map_err(self.operation_error("", "syncing the folder"))
    }

    /// Returns the closest folder above the root that existed before this store created any.
    fn existing_ancestor(&self) -> &Path {
        self.existing_ancestor.get_or_init(|| {
            let existing_ancestor = self.root.ancestors().skip(1).find(|folder| folder.is_dir());
            existing_ancestor.unwrap_or(Path::new("/")).to_owned()
        })
    }

    /// Opens the folder of an object, and creates it if it is missing; returns the object's name in it.
    fn folder_for<'a>(&self, path: &'a str) -> io::Result<(OpenFolder, &'a str)> {
        self.existing_ancestor();
        OpenFolder::created_for(&self.root, path)
    }

    /// Syncs the folder of each file and every folder above it up to the first that existed before. Each folder is
    /// synced once and all in parallel: nothing refers to these files before all of them are durable.
    fn sync_folders<'a>(&self, files: impl Iterator<Item = &'a Path>) -> io::Result<()> {
        let mut folders = BTreeSet::new();
        for file in files {
            let mut folder = file.parent();
            while let Some(f) = folder {
                if !f.starts_with(&self.root) || !folders.insert(f.to_owned()) {
                    break;
                }
                folder = f.parent();
            }
        }
        // The folders above the root may be as new as the root.
        let existing_ancestor = self.existing_ancestor();
        folders.extend(
            self.root
                .ancestors()
                .skip(1)
                .take_while(|folder| folder.starts_with(existing_ancestor))
                .map(Path::to_owned),
        );
        self.syncer.sync_all(folders.iter().map(File::open))
    }

    /// Appends a file that had so many bytes when it was listed.
    fn read_listed(&self, path: &str, bytes: u64, into: &mut Vec<u8>) -> io::Result<Result<()>> {
        let Ok(expected) = usize::try_from(bytes) else {
            return Ok(Err(Error::internal("an object is larger than memory")));
        };
        let file = self.open_below(path)?;
        let start = into.len();
        // With capacity for one byte more than expected, a single read detects a longer file.
        into.reserve(expected + 1);
        loop {
            let count = retry_on_intr(|| read(&file, spare_capacity(into)))?;
            let found = into.len() - start;
            if found > expected {
                return Ok(Err(changed_object(&self.location, path, bytes, "more")));
            }
            if found == expected {
                return Ok(Ok(()));
            }
            if count == 0 {
                return Ok(Err(changed_object(&self.location, path, bytes, &found.to_string())));
            }
        }
    }

    /// Reads a range that must exist completely.
    fn read_range(&self, path: &str, range: &Range<u64>) -> Result<Bytes> {
        let read = || {
            let file = File::open(self.object_path(path)?)?;
            let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
            // A request beyond the end of the file must not allocate its length first.
            let found = file.metadata()?.len();
            if found < range.end {
                return Ok(Err(found));
            }
            let mut buffer = vec![0; length];
            match file.read_exact_at(&mut buffer, range.start) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Err(file.metadata()?.len())),
                read => read.map(|()| Ok(buffer)),
            }
        };
        match read() {
            Ok(Ok(bytes)) => Ok(bytes.into()),
            Ok(Err(found)) => Err(beyond_end(&self.location, path, range, found)),
            Err(e) if is_absent(&e) => Err(missing_object(&self.location, path)),
            Err(e) => Err(self.operation_error(path, "reading")(e).at_byte(range.start)),
        }
    }
}

impl Store for LocalStore {
    fn location(&self) -> &Location {
        &self.location
    }

    fn as_local(&self) -> Option<&dyn Local> {
        Some(self)
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        match self.object_path(path).and_then(fs::metadata) {
            Ok(meta) if meta.is_file() => Ok(Some(object_facts(path.to_owned(), &meta))),
            Ok(_) => Ok(None),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(self.operation_error(path, "reading the file attributes")(e)),
        }
    }

    fn read_into(&self, path: &str, bytes: Option<u64>, into: &mut Vec<u8>) -> Result<bool> {
        let read = match bytes {
            Some(bytes) => self.read_listed(path, bytes, into),
            None => {
                self.object_path(path).and_then(File::open).and_then(|mut file| file.read_to_end(into).map(|_| Ok(())))
            }
        };
        match read {
            Ok(read) => read.map(|()| true),
            Err(e) if is_absent(&e) => Ok(false),
            Err(e) => Err(self.operation_error(path, "reading")(e)),
        }
    }

    fn get_ranges(&self, path: &str, ranges: &[Range<u64>], _: &Pin) -> Result<Vec<Bytes>> {
        ranges.iter().map(|range| self.read_range(path, range)).collect()
    }

    fn read_tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        let Some(facts) = self.head(path)? else { return Ok(None) };
        let start = facts.bytes.saturating_sub(bytes);
        Ok(Some((self.read_range(path, &(start..facts.bytes))?, facts.bytes)))
    }

    fn open_reader(&self, path: &str, reading: Reading<'_>) -> Result<Box<dyn Read + Send>> {
        let opened = self.object_path(path).and_then(|path| -> io::Result<Box<dyn Read + Send>> {
            Ok(match reading {
                Reading::Whole(_) | Reading::Start(_) => Box::new(File::open(path)?),
                Reading::Back => back::open_uncached(&path)?,
                Reading::Range(range, _) => {
                    let mut file = File::open(path)?;
                    file.seek(io::SeekFrom::Start(range.start))?;
                    Box::new(file.take(range.end.saturating_sub(range.start)))
                }
            })
        });
        opened.map_err(|e| {
            if is_absent(&e) { missing_object(&self.location, path) } else { self.operation_error(path, "opening")(e) }
        })
    }

    fn visit(&self, folder: &str, visit: Visit<'_>) -> Result<()> {
        let top = if folder.is_empty() { Ok(self.root.clone()) } else { self.object_path(folder) };
        let top = top.map_err(self.operation_error(folder, "listing"))?;
        walk::walk_folder(&top, folder, visit)
    }

    fn write(&self, path: &str, bytes: Bytes, existing: Existing) -> Result<PutOutcome> {
        let staged = self.stage_whole(path, &bytes)?;
        if existing == Existing::Replace {
            self.name_staged(vec![Staged::new(path, staged)], existing)?;
            return Ok(PutOutcome::Created);
        }
        let (folder, name) = self.folder_for(path).map_err(self.operation_error(path, "creating the folder"))?;
        match naming::rename_no_replace(staged.staged_name(), folder.entry_name(name), path) {
            Ok(()) => {
                // Repeating the sync would prove nothing: the kernel reports a failed sync only once.
                self.sync_folders(std::iter::once(staged.to.as_path()))
                    .map_err(|e| self.operation_error(path, "syncing the folder")(e).with_effect(Effect::Certain))?;
                Ok(PutOutcome::Created)
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(PutOutcome::Exists),
            Err(e) => Err(self.operation_error(path, "creating")(e).with_effect(Effect::Possible)),
        }
    }

    fn delete_all(&self, paths: &[String]) -> Result<()> {
        for path in paths {
            match OpenFolder::open_parent(&self.root, path).and_then(|(folder, name)| folder.entry_name(name).remove())
            {
                Ok(()) => self.remove_empty_folders(path),
                Err(e) if is_absent(&e) => {}
                Err(e) => return Err(self.operation_error(path, "deleting")(e)),
            }
        }
        Ok(())
    }

    fn create_sink(&self, path: &str) -> Result<Box<dyn Sink>> {
        let mut staged = self.stage_file(path)?;
        let file = self.create_staged(&mut staged).map_err(self.operation_error(path, "creating"))?;
        let (file, syncer) = (FileWriter::new(file, &staged.from), Arc::clone(&self.syncer));
        Ok(Box::new(LocalSink { path: path.to_owned(), file, syncer, staged }))
    }

    fn name_staged(&self, staged: Vec<Staged>, existing: Existing) -> Result<()> {
        if existing == Existing::Replace {
            return self.name_all(staged, |from, to, _| from.rename_to(to), &mut |_| {});
        }
        // An error drops `named`, which removes the names given so far.
        let mut named = Named { root: &self.root, paths: Vec::new() };
        self.name_all(staged, naming::rename_no_replace, &mut |path| named.paths.push(path.to_owned()))?;
        named.paths.clear();
        Ok(())
    }
}

impl Local for LocalStore {
    #[cfg(target_os = "linux")]
    fn is_cached(&self, path: &str) -> bool {
        let mut byte = [0];
        let mut start = [io::IoSliceMut::new(&mut byte)];
        // Fails if it would wait for the disk, or if the file system cannot tell.
        self.open_below(path).is_ok_and(|file| preadv2(file, &mut start, 0, ReadWriteFlags::NOWAIT).is_ok())
    }

    #[cfg(not(target_os = "linux"))]
    fn is_cached(&self, _path: &str) -> bool {
        false
    }

    fn open_file(&self, path: &str) -> Result<File> {
        self.open_below(path).map(File::from).map_err(|e| {
            if is_absent(&e) { missing_object(&self.location, path) } else { self.operation_error(path, "opening")(e) }
        })
    }

    fn link_object(&self, source: &Location, path: &str) -> Result<Option<Staged>> {
        let Some(source) = source.local_path() else { return Ok(None) };
        let staged = self.stage_file(path)?;
        // A link to a symbolic link would not outlive its target.
        let linked = fs::canonicalize(source).and_then(|source| staged.staged_name().link_from(&source));
        match linked {
            Ok(()) => Ok(Some(Staged::new(path, staged))),
            Err(e) if is_absent(&e) => Err(missing_object(&self.location, &source.display().to_string())),
            // Another file system, one without hard links, or too many links: the caller has to copy.
            Err(_) => Ok(None),
        }
    }

    fn acquire_lock(&self, name: &str) -> Result<Lock> {
        self.existing_ancestor();
        let folder = OpenFolder::open_or_create(&self.root, LOCKS)
            .map_err(self.no_folder("creating the folder of the dataset"))?;
        let path = format!("{LOCKS}/{name}");
        let file = folder.entry_name(name).open_lock(true).map_err(self.operation_error(&path, "creating a lock"))?;
        let busy = || {
            Err(Error::conflict("another process runs the same command on this dataset")
                .at_location(self.root.join(&path).display().to_string())
                .with_hint("wait for it to end, then try again"))
        };
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        match file.try_lock() {
            // Another process may have deleted the file between its creation and the lock; a lock on it would be
            // invisible.
            Ok(()) if folder.entry_name(name).file_identity().ok() == file.metadata().ok().map(identity) => {
                Ok(Lock { _file: Some(file) })
            }
            Ok(()) | Err(fs::TryLockError::WouldBlock) => busy(),
            // Some network file systems do not support locks; commits are safe without them.
            Err(fs::TryLockError::Error(_)) => Ok(Lock { _file: None }),
        }
    }

    fn is_locked(&self, name: &str) -> Result<Option<bool>> {
        let folder = OpenFolder::open_existing(&self.root, LOCKS);
        let file = match folder.and_then(|folder| folder.entry_name(name).open_lock(false)) {
            Ok(file) => file,
            Err(e) if is_absent(&e) => return Ok(Some(false)),
            Err(e) => return Err(self.operation_error(name, "checking a lock")(e)),
        };
        Ok(match file.try_lock_shared() {
            Ok(()) => Some(false),
            Err(fs::TryLockError::WouldBlock) => Some(true),
            Err(fs::TryLockError::Error(_)) => None,
        })
    }

    fn settle_deletions(&self, paths: &[String]) -> Result<()> {
        // A missing folder was emptied and removed, which is durable once the one above it is.
        let existing = |path: &Path| path.ancestors().skip(1).find(|folder| folder.is_dir()).map(Path::to_owned);
        let folders: BTreeSet<PathBuf> =
            paths.iter().filter_map(|path| existing(&self.object_path(path).ok()?)).collect();
        self.syncer
            .sync_all(folders.iter().map(File::open))
            .map_err(self.operation_error("", "syncing the folder of deleted files"))
    }

    fn remove_leftovers(&self) {
        let is_old = |entry: &fs::DirEntry| {
            let age = entry.metadata().ok().and_then(|meta| meta.modified().ok()?.elapsed().ok());
            age.is_some_and(|age| age > ABANDONED)
        };
        let Ok(staging) = OpenFolder::open_existing(&self.root, STAGING) else { return };
        let left = fs::read_dir(self.root.join(STAGING)).into_iter().flatten().flatten();
        for name in left.filter(is_old).filter_map(|entry| entry.file_name().into_string().ok()) {
            let _ = staging.entry_name(&name).remove();
        }
        // A folder that is not empty stays: it is in use, or holds something else.
        for path in [STAGING, SYSTEM_FOLDER] {
            if OpenFolder::open_parent(&self.root, path)
                .and_then(|(above, name)| above.entry_name(name).remove_folder())
                .is_err()
            {
                break;
            }
        }
    }

    fn current_time(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A file in the staging folder; removed when dropped before it is published.
#[derive(Debug)]
pub(super) struct StagedFile {
    folder: Arc<OpenFolder>,
    name: String,
    /// Path of the file, for reading it.
    from: PathBuf,
    to: PathBuf,
    named: bool,
    syncs: Syncs,
}

impl StagedFile {
    fn staged_name(&self) -> Name<'_> {
        self.folder.entry_name(&self.name)
    }
}

impl Pending for StagedFile {
    fn path_below(&self, root: &Path) -> Option<String> {
        self.from.strip_prefix(root).ok()?.to_str().map(str::to_owned)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.named {
            // A failure cannot be handled in `drop`; `vacuum` clears the staging folder.
            let _ = self.staged_name().remove();
        }
    }
}

/// Files that were renamed; the new names are removed when this is dropped.
struct Named<'a> {
    root: &'a Path,
    paths: Vec<String>,
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        for path in &self.paths {
            // A file that cannot be removed stays behind: no log entry refers to it.
            let _ =
                OpenFolder::open_parent(self.root, path).and_then(|(folder, name)| folder.entry_name(name).remove());
        }
    }
}

struct LocalSink {
    path: String,
    file: FileWriter,
    syncer: Arc<Syncer>,
    staged: StagedFile,
}

impl LocalSink {
    /// Adds the path of the file to an error.
    fn add_path(&self, error: Error) -> Error {
        if error.kind() != Kind::Storage || error.place().source.is_some() {
            return error;
        }
        Error::storage("writing failed").at_location(self.staged.to.display().to_string()).with_cause(error)
    }
}

impl Write for LocalSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|e| match e.kind() {
            io::ErrorKind::Interrupted => e,
            _ => {
                Error::storage("writing failed").at_location(self.staged.to.display().to_string()).with_cause(e).into()
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Sink for LocalSink {
    fn append_from(
        &mut self,
        source: &mut dyn Read,
        bytes: u64,
        look: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        self.file.append_from(source, bytes, look).map_err(|e| self.add_path(e))
    }

    fn read_following(&self) -> Option<Box<dyn BufRead + Send>> {
        back::open_following(&self.staged.from, self.file.progress()).ok()
    }

    fn finish(self: Box<Self>) -> Result<Staged> {
        let Self { path, file, syncer, mut staged } = *self;
        let durable = file.finish().and_then(|file| staged.syncs.start_complete(&syncer, file));
        durable
            .map_err(|e| Error::storage("writing failed").at_location(staged.to.display().to_string()).with_cause(e))?;
        Ok(Staged::new(path, staged))
    }
}

pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

pub(super) fn object_facts(path: String, meta: &fs::Metadata) -> ObjectFacts {
    let modified = meta.modified().ok().and_then(|t| Timestamp::try_from(t).ok()).unwrap_or_default();
    ObjectFacts { path, bytes: meta.len(), modified, etag: None }
}

fn fallback_location() -> Location {
    // Only reached for a root that is not absolute, which `Location` never yields.
    Location::parse("memory:///", Path::new("/")).unwrap_or_else(|_| unreachable!("a constant URL parses"))
}
