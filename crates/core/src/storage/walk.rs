//! Lists a local folder: many folders at a time, few entries in memory, without loops.
//!
//! ```text
//! folders to list -> [threads] -- batches of entries --> bounded channel -> visitor, on the caller's thread
//!        ^-- folders in them --'
//! ```
//!
//! Listing waits for the disk, so there are more threads than processors. A thread is started when a folder waits and
//! no thread is idle.
//!
//! A link to a file is listed as itself, with the size of its target. A dangling link is listed as an empty object:
//! reading it is an error, and nothing is silently missing. A link to a folder is reported and not followed. Other
//! entries (pipes, devices, sockets) are not objects.

use std::{
    fs::{self, DirEntry},
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::Scope,
};

use crossbeam_channel::{Sender, bounded};

use super::{
    local::{is_absent, object_facts},
    store::{Listed, ObjectFacts, Visit},
};
use crate::error::{Error, Result};

/// Entries per batch; a folder's entries are sorted within it.
const BATCH: usize = 4096;

/// Maximum batches queued for the visitor: few, because the visitor is alone when the last folder has been listed.
const QUEUE: usize = 4;

/// Maximum folders listed concurrently.
const THREADS: usize = 16;

/// Calls `visit` for everything below the folder `top`; paths begin with `prefix`, the name of `top` in its store.
pub(super) fn walk_folder(top: &Path, prefix: &str, visit: Visit<'_>) -> Result<()> {
    let (sender, receiver) = bounded::<Vec<Listed>>(QUEUE);
    let folders = Folders::default();
    std::thread::scope(|scope| {
        folders.add_folder(PendingFolder { at: top.to_owned(), path: prefix.to_owned() }, scope, &sender);
        drop(sender);
        let mut result = Ok(());
        'listing: for batch in &receiver {
            for listed in batch {
                match visit(listed) {
                    Ok(ControlFlow::Continue(())) => {}
                    end => {
                        result = end.map(drop);
                        break 'listing;
                    }
                }
            }
        }
        // Without a receiver the threads end.
        drop(receiver);
        result
    })
}

/// Folders still to be listed.
#[derive(Debug, Default)]
struct Folders {
    state: Mutex<WalkState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WalkState {
    waiting: Vec<PendingFolder>,
    threads: usize,
    /// Number of threads without a folder.
    idle: usize,
    /// No folder will be added any more.
    closed: bool,
}

impl Folders {
    fn lock_state(&self) -> MutexGuard<'_, WalkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a folder and starts a thread if that helps.
    fn add_folder<'scope>(
        &'scope self,
        folder: PendingFolder,
        scope: &'scope Scope<'scope, '_>,
        sender: &Sender<Vec<Listed>>,
    ) {
        let mut state = self.lock_state();
        state.waiting.push(folder);
        if state.waiting.len() <= state.idle || state.threads == THREADS {
            self.changed.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let sender = sender.clone();
        scope.spawn(move || {
            while let Some(folder) = self.next() {
                if folder.list_entries(&mut |folder| self.add_folder(folder, scope, &sender), &sender).is_err() {
                    self.end_walk();
                }
            }
        });
    }

    /// Returns the folder added last, which keeps the queue short; `None` when all are listed.
    fn next(&self) -> Option<PendingFolder> {
        let mut state = self.lock_state();
        state.idle += 1;
        loop {
            if state.closed {
                return None;
            }
            if let Some(folder) = state.waiting.pop() {
                state.idle -= 1;
                return Some(folder);
            }
            if state.idle == state.threads {
                state.closed = true;
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end_walk(&self) {
        self.lock_state().closed = true;
        self.changed.notify_all();
    }
}

/// A folder to be listed.
#[derive(Debug)]
struct PendingFolder {
    at: PathBuf,
    /// Path in the store; empty at the root.
    path: String,
}

/// The visitor needs no further entries.
struct Unwanted;

impl PendingFolder {
    /// Lists the folder and passes its subfolders to `below`.
    fn list_entries(
        self,
        below: &mut dyn FnMut(Self),
        sender: &Sender<Vec<Listed>>,
    ) -> std::result::Result<(), Unwanted> {
        let skip = if self.path.is_empty() { 0 } else { self.path.len() + 1 };
        let send = |mut batch: Vec<Listed>| {
            sort_batch(&mut batch, skip);
            sender.send(batch).map_err(|_| Unwanted)
        };
        let entries = match fs::read_dir(&self.at) {
            Ok(entries) => entries,
            // The folder need not exist, and may vanish while its parent is listed.
            Err(e) if is_absent(&e) => return Ok(()),
            Err(e) => return send(vec![self.listing_fault("listing the folder failed", e)]),
        };
        let mut batch = Vec::new();
        for entry in entries {
            let listed = match entry {
                Ok(entry) => self.listed_entry(&entry, below),
                Err(e) => Some(self.listing_fault("listing the folder failed", e)),
            };
            batch.extend(listed);
            if batch.len() == BATCH {
                send(std::mem::take(&mut batch))?;
            }
        }
        if batch.is_empty() { Ok(()) } else { send(batch) }
    }

    /// Returns the listed item of an entry; `None` for entries that are not objects.
    fn listed_entry(&self, entry: &DirEntry, below: &mut dyn FnMut(Self)) -> Option<Listed> {
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            let place = entry.path().display().to_string();
            let fault = Error::input("expected a file name in UTF-8, found other bytes");
            return Some(Listed::Fault(fault.at_location(place).with_hint("rename it, or its folder")));
        };
        let mut path = String::with_capacity(self.path.len() + 1 + name.len());
        if !self.path.is_empty() {
            path.push_str(&self.path);
            path.push('/');
        }
        path.push_str(name);
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(e) if is_absent(&e) => return None,
            Err(e) => return Some(self.listing_fault("looking up an entry failed", e)),
        };
        if kind.is_dir() {
            below(Self { at: entry.path(), path });
            return None;
        }
        if kind.is_symlink() {
            return resolve_link(entry, path);
        }
        match entry.metadata() {
            Ok(meta) if kind.is_file() => Some(Listed::Object(object_facts(path, &meta))),
            Ok(_) => None,
            Err(e) if is_absent(&e) => None,
            Err(e) => Some(self.listing_fault("looking up a file failed", e)),
        }
    }

    fn listing_fault(&self, doing: &str, cause: io::Error) -> Listed {
        let error = Error::storage(doing).at_location(self.at.display().to_string()).with_cause(cause);
        Listed::Fault(error.with_hint("check the permissions of the folder"))
    }
}

/// Sorts entries by path; the first `skip` bytes of most paths are the same. Numbers are compared first, because paths
/// are all over the memory.
fn sort_batch(batch: &mut [Listed], skip: usize) {
    let head = |one: &Listed| {
        let name = one.path().as_bytes().get(skip..).unwrap_or_default();
        let mut head = [0; 8];
        let length = name.len().min(head.len());
        head[..length].copy_from_slice(&name[..length]);
        u64::from_be_bytes(head)
    };
    batch.sort_by_cached_key(head);
    let ties = batch.chunk_by_mut(|a, b| head(a) == head(b));
    ties.for_each(|ties| ties.sort_unstable_by(|a, b| a.path().cmp(b.path())));
}

fn resolve_link(entry: &DirEntry, path: String) -> Option<Listed> {
    match fs::metadata(entry.path()) {
        Ok(target) if target.is_file() => Some(Listed::Object(object_facts(path, &target))),
        Ok(target) if target.is_dir() => Some(Listed::FolderLink(path)),
        Ok(_) => None,
        Err(_) => {
            Some(Listed::Object(ObjectFacts { path, bytes: 0, modified: jiff::Timestamp::UNIX_EPOCH, etag: None }))
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]
mod tests {
    use std::os::unix::{ffi::OsStrExt, fs::symlink};

    use super::*;

    fn listed(top: &Path) -> Vec<String> {
        let mut out = Vec::new();
        walk_folder(top, "", &mut |listed| {
            out.push(match listed {
                Listed::Object(facts) => format!("{} {}", facts.path, facts.bytes),
                Listed::FolderLink(path) => format!("link {path}"),
                Listed::Fault(e) => format!("fault {}", e.message()),
            });
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        out.sort();
        out
    }

    #[test]
    fn links_to_files_are_files_and_links_to_folders_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("a/b/x"), "four").unwrap();
        symlink("b/x", top.join("a/y")).unwrap();
        symlink("..", top.join("a/b/up")).unwrap();
        symlink("nowhere", top.join("dangling")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        assert_eq!(listed(top), ["a/b/x 4", "a/y 4", "dangling 0", "link a/b/up", "loop 0"]);
    }

    #[test]
    fn entries_of_a_folder_are_sorted_by_their_paths() {
        let names = ["b", "a", "a.b", "a\u{1}", "é", "abcdefgh", "abcdefgh2", "abcdefgh10", "abcdefg", "abcdefgé", "Z"];
        let object = |path: String| {
            Listed::Object(ObjectFacts { path, bytes: 0, modified: jiff::Timestamp::UNIX_EPOCH, etag: None })
        };
        for folder in ["", "a/long folder/"] {
            let mut batch: Vec<Listed> = names.iter().map(|name| object(format!("{folder}{name}"))).collect();
            let mut expected: Vec<String> = batch.iter().map(|one| one.path().to_owned()).collect();
            expected.sort();
            sort_batch(&mut batch, folder.len());
            assert!(batch.iter().map(Listed::path).eq(expected.iter().map(String::as_str)), "{batch:?}");
        }
    }

    #[test]
    fn names_that_are_not_utf8_are_faults() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"\xff.jpg")), "x").unwrap();
        fs::write(folder.path().join("good.jpg"), "x").unwrap();
        assert_eq!(listed(folder.path()), ["fault expected a file name in UTF-8, found other bytes", "good.jpg 1"]);
    }

    #[test]
    fn a_visitor_error_ends_the_walk() {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..50 {
            let below = folder.path().join(format!("{i}"));
            fs::create_dir(&below).unwrap();
            (0..200).for_each(|j| fs::write(below.join(format!("{j}")), "").unwrap());
        }
        let mut seen = 0;
        let result = walk_folder(folder.path(), "", &mut |_| {
            seen += 1;
            if seen == 700 { Err(Error::interrupted()) } else { Ok(ControlFlow::Continue(())) }
        });
        assert!(result.is_err());
        assert_eq!(seen, 700);
    }

    #[test]
    fn a_missing_folder_is_empty() {
        assert!(listed(Path::new("/nowhere/at/all")).is_empty());
    }
}
