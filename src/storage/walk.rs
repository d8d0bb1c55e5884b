//! Listing a local folder: several folders at a time, holding few entries, without going round in circles.
//!
//! ```text
//! folder -> [task] -- entries by the hundred --> bounded channel -> visitor, on the thread of the caller
//!              `-> folder -> [task] ...
//! ```
//!
//! A link to a file is listed as itself, with the size of what it leads to. A link that leads nowhere is listed too,
//! as an object of no bytes: whoever reads it is told so, and nothing is missing in silence. A link to a folder is
//! reported and not followed. Other things (pipes, devices, sockets) are not objects.

use std::{
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
};

use crossbeam_channel::{Sender, bounded};
use rayon::Scope;

use super::{
    Listed, ObjectFacts,
    local::{absent, facts},
};
use crate::error::{Error, Result};

/// Entries that travel together.
const BATCH: usize = 512;

/// Batches on their way to the visitor.
const QUEUE: usize = 16;

/// Shows everything below the folder `top` to `visit`; paths begin with `prefix`, the name of `top` in its store.
pub(super) fn walk(top: &Path, prefix: &str, visit: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
    let (give, take) = bounded::<Vec<Listed>>(QUEUE);
    std::thread::scope(|threads| {
        let start = Folder { at: top.to_owned(), path: prefix.to_owned() };
        // The pool's threads wait for the visitor, so the visitor must not be one of them.
        threads.spawn(move || rayon::in_place_scope(|scope| start.list(scope, &give)));
        let mut result = Ok(());
        for batch in &take {
            for listed in batch {
                result = result.and_then(|()| visit(listed));
            }
            if result.is_err() {
                break;
            }
        }
        // Without a receiver the tasks end.
        drop(take);
        result
    })
}

/// A folder to be listed.
struct Folder {
    at: PathBuf,
    /// Its path in the store; empty at the root.
    path: String,
}

impl Folder {
    fn list<'s>(self, scope: &Scope<'s>, give: &Sender<Vec<Listed>>) {
        let mut batch = Vec::new();
        let entries = match fs::read_dir(&self.at) {
            Ok(entries) => entries,
            // It need not exist, and may vanish while its parent is listed.
            Err(e) if absent(&e) => return,
            Err(e) => {
                let _ = give.send(vec![self.fault("listing the folder failed", e)]);
                return;
            }
        };
        for entry in entries {
            let listed = match entry {
                Ok(entry) => self.entry(&entry, scope, give),
                Err(e) => Some(self.fault("listing the folder failed", e)),
            };
            batch.extend(listed);
            if batch.len() == BATCH && give.send(std::mem::take(&mut batch)).is_err() {
                return;
            }
        }
        if !batch.is_empty() {
            // Nobody listens any more once the visitor has failed.
            let _ = give.send(batch);
        }
    }

    /// What there is to say about an entry; a folder is listed by a task of its own.
    fn entry<'s>(&self, entry: &DirEntry, scope: &Scope<'s>, give: &Sender<Vec<Listed>>) -> Option<Listed> {
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            let place = entry.path().display().to_string();
            let fault = Error::input("expected a file name in UTF-8, found other bytes");
            return Some(Listed::Fault(fault.at(place).hint("rename it, or its folder")));
        };
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) };
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(e) if absent(&e) => return None,
            Err(e) => return Some(self.fault("looking up an entry failed", e)),
        };
        if kind.is_dir() {
            let folder = Self { at: entry.path(), path };
            let give = give.clone();
            scope.spawn(move |scope| folder.list(scope, &give));
            return None;
        }
        if kind.is_symlink() {
            return link(entry, path);
        }
        match entry.metadata() {
            Ok(meta) if kind.is_file() => Some(Listed::Object(facts(path, &meta))),
            Ok(_) => None,
            Err(e) if absent(&e) => None,
            Err(e) => Some(self.fault("looking up a file failed", e)),
        }
    }

    fn fault(&self, doing: &str, cause: io::Error) -> Listed {
        let error = Error::storage(doing).at(self.at.display().to_string()).cause(cause);
        Listed::Fault(error.hint("check the permissions of the folder, or leave it out"))
    }
}

fn link(entry: &DirEntry, path: String) -> Option<Listed> {
    match fs::metadata(entry.path()) {
        Ok(target) if target.is_file() => Some(Listed::Object(facts(path, &target))),
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
        walk(top, "", &mut |listed| {
            out.push(match listed {
                Listed::Object(facts) => format!("{} {}", facts.path, facts.bytes),
                Listed::FolderLink(path) => format!("link {path}"),
                Listed::Fault(e) => format!("fault {}", e.message()),
            });
            Ok(())
        })
        .unwrap();
        out.sort();
        out
    }

    #[test]
    fn links_to_files_are_files_and_links_to_folders_are_told() {
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
    fn names_that_are_not_text_are_faults_beside_the_others() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"\xff.jpg")), "x").unwrap();
        fs::write(folder.path().join("good.jpg"), "x").unwrap();
        assert_eq!(listed(folder.path()), ["fault expected a file name in UTF-8, found other bytes", "good.jpg 1"]);
    }

    #[test]
    fn a_visitor_that_has_seen_enough_ends_the_walk() {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..50 {
            let below = folder.path().join(format!("{i}"));
            fs::create_dir(&below).unwrap();
            (0..200).for_each(|j| fs::write(below.join(format!("{j}")), "").unwrap());
        }
        let mut seen = 0;
        let result = walk(folder.path(), "", &mut |_| {
            seen += 1;
            if seen == 700 { Err(Error::interrupted()) } else { Ok(()) }
        });
        assert!(result.is_err());
        assert_eq!(seen, 700);
    }

    #[test]
    fn a_missing_folder_is_empty() {
        assert!(listed(Path::new("/nowhere/at/all")).is_empty());
    }
}
