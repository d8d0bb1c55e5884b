//! Names below the root of a local store. A path from a log, a list or an archive must not lead out of the store,
//! neither by `..` nor by a link that somebody placed in it, so whatever is created, named or deleted is addressed by
//! an open folder and a name in it.
//!
//! ```text
//! ROOT / _shardify / log / 17.json
//!  |        |         |      `-- name: never followed
//!  |        `---------`-- folders: opened one below the other, links are refused
//!  `-- named by the user: links are followed
//! ```
#![expect(clippy::disallowed_methods, reason = "this is a part of the one place that makes folders")]

use std::{
    fs::{self, File},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags},
    io::Errno,
};

/// A name in an open folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'a> {
    folder: &'a OwnedFd,
    name: &'a str,
}

/// An open folder of a store.
#[derive(Debug)]
pub(super) struct OpenFolder {
    folder: OwnedFd,
}

/// Whether a path cannot lead out of the folder that it is relative to.
pub(super) fn stays_below(path: &str) -> bool {
    !path.split('/').any(|part| matches!(part, "" | "." | "..")) && !path.contains('\0')
}

/// Returns the path of an object for opening it.
pub(super) fn path_below_root(root: &Path, path: &str) -> io::Result<PathBuf> {
    if stays_below(path) { Ok(root.join(path)) } else { Err(leads_out(path)) }
}

fn leads_out(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("expected a path below the folder, found {path:?}"))
}

/// Returns the folders above an object, and its name in them.
fn parent_and_name(path: &str) -> io::Result<(Option<&str>, &str)> {
    if !stays_below(path) {
        return Err(leads_out(path));
    }
    Ok(path.rsplit_once('/').map_or((None, path), |(folders, name)| (Some(folders), name)))
}

impl OpenFolder {
    /// Opens a folder below `root`; `""` is `root` itself.
    pub(super) fn open_existing(root: &Path, path: &str) -> io::Result<Self> {
        Self::open(root, path, false)
    }

    /// Opens a folder below `root` and creates what is missing, `root` included.
    pub(super) fn open_or_create(root: &Path, path: &str) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        Self::open(root, path, true)
    }

    /// Opens the folder of an object, and returns the object's name in it.
    pub(super) fn open_parent<'a>(root: &Path, path: &'a str) -> io::Result<(Self, &'a str)> {
        let (folders, name) = parent_and_name(path)?;
        Ok((Self::open_existing(root, folders.unwrap_or_default())?, name))
    }

    /// Opens the folder of an object, creates it if it is missing, and returns the object's name in it.
    pub(super) fn created_for<'a>(root: &Path, path: &'a str) -> io::Result<(Self, &'a str)> {
        let (folders, name) = parent_and_name(path)?;
        Ok((Self::open_or_create(root, folders.unwrap_or_default())?, name))
    }

    fn open(root: &Path, path: &str, create: bool) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
        for part in path.split('/').filter(|_| !path.is_empty()) {
            if !stays_below(part) {
                return Err(leads_out(path));
            }
            let next = || rustix::fs::openat(&folder, part, flags | OFlags::NOFOLLOW, Mode::empty());
            let opened = match next() {
                Err(Errno::NOENT) if create => {
                    match rustix::fs::mkdirat(&folder, part, Mode::from_raw_mode(0o777)) {
                        // Another process has created it meanwhile.
                        Ok(()) | Err(Errno::EXIST) => next(),
                        Err(e) => Err(e),
                    }
                }
                opened => opened,
            };
            folder = opened.map_err(|e| link_error(&folder, part, e))?;
        }
        Ok(Self { folder })
    }

    /// Returns a name in this folder.
    pub(super) fn entry_name<'a>(&'a self, name: &'a str) -> Name<'a> {
        Name { folder: &self.folder, name }
    }
}

/// Says that a link is in the way of a folder, where the system says that there is no folder, or too many links.
fn link_error(folder: &OwnedFd, part: &str, error: Errno) -> io::Error {
    match rustix::fs::readlinkat(folder, part, Vec::new()) {
        Ok(_) if matches!(error, Errno::LOOP | Errno::NOTDIR | Errno::MLINK) => io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("expected a folder, found the link `{part}`, which may lead elsewhere; nothing was changed there"),
        ),
        _ => error.into(),
    }
}

impl Name<'_> {
    /// Creates a file, which must not exist.
    pub(super) fn create_new(self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self.folder, self.name, flags, Mode::from_raw_mode(0o666))?.into())
    }

    /// Opens a file whose content does not matter; with `create`, a missing one is created. A pipe in its place delays
    /// nothing.
    pub(super) fn open_lock(self, create: bool) -> io::Result<File> {
        let access = if create { OFlags::RDWR | OFlags::CREATE } else { OFlags::RDONLY };
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(self.folder, self.name, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(file.into()),
            Err(Errno::LOOP | Errno::MLINK) => {
                let found = format!("expected a file, found the link `{}`, which may lead elsewhere", self.name);
                Err(io::Error::new(io::ErrorKind::InvalidInput, found))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Returns the device and the number of the file, or of the link itself.
    pub(super) fn file_identity(self) -> io::Result<(u64, u64)> {
        let facts = rustix::fs::statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((facts.st_dev, facts.st_ino))
    }

    /// Returns the name alone.
    pub(super) fn as_str(&self) -> &str {
        self.name
    }

    /// Returns another name in the same folder.
    pub(super) fn sibling_name<'b>(&'b self, name: &'b str) -> Name<'b> {
        Name { folder: self.folder, name }
    }

    /// Removes a file, or a link but not its target.
    pub(super) fn remove(self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self.folder, self.name, AtFlags::empty())?)
    }

    /// Removes an empty folder.
    pub(super) fn remove_folder(self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self.folder, self.name, AtFlags::REMOVEDIR)?)
    }

    /// Renames a file, and replaces what has the new name.
    pub(super) fn rename_to(self, to: Name<'_>) -> io::Result<()> {
        Ok(rustix::fs::renameat(self.folder, self.name, to.folder, to.name)?)
    }

    /// Renames a file unless something has the new name.
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    pub(super) fn rename_exclusively(self, to: Name<'_>) -> io::Result<()> {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(self.folder, self.name, to.folder, to.name, flags)?)
    }

    /// Fails as a file system does that lacks this call.
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    pub(super) fn rename_exclusively(self, _to: Name<'_>) -> io::Result<()> {
        Err(Errno::NOSYS.into())
    }

    /// Gives a file a second name, which must not exist.
    pub(super) fn link_to(self, to: Name<'_>) -> io::Result<()> {
        Ok(rustix::fs::linkat(self.folder, self.name, to.folder, to.name, AtFlags::empty())?)
    }

    /// Gives a file outside of the store this name, which must not exist.
    pub(super) fn link_from(self, source: &Path) -> io::Result<()> {
        Ok(rustix::fs::linkat(CWD, source, self.folder, self.name, AtFlags::empty())?)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly and write their own files")]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_are_refused() {
        for path in ["", "/etc/passwd", "..", "a/../../b", "a//b", "./a", "a/.", "a\0b", "a/"] {
            assert!(!stays_below(path), "{path:?}");
            assert_eq!(
                path_below_root(Path::new("/r"), path).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{path:?}"
            );
            assert!(OpenFolder::open_parent(Path::new("/"), path).is_err(), "{path:?}");
        }
        for path in ["a", "a/b", "..a/b..", "a/...", ".hidden", "a\\b", "C:/x"] {
            assert_eq!(path_below_root(Path::new("/r"), path).unwrap(), Path::new("/r").join(path));
        }
    }

    #[test]
    fn folders_are_created_and_links_to_folders_are_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        let inside = tempfile::tempdir().unwrap();
        let root = inside.path().join("new");
        let (folder, name) = OpenFolder::created_for(&root, "a/b/c").unwrap();
        drop(folder.entry_name(name).create_new().unwrap());
        assert!(root.join("a/b/c").is_file());
        std::os::unix::fs::symlink(outside.path(), root.join("a/link")).unwrap();
        for path in ["a/link/x", "a/link/deeper/x"] {
            let error = OpenFolder::created_for(&root, path).unwrap_err();
            assert!(error.to_string().contains("the link `link`"), "{error}");
            assert!(OpenFolder::open_parent(&root, path).is_err());
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        // The root itself is the user's choice.
        std::os::unix::fs::symlink(&root, inside.path().join("alias")).unwrap();
        let (folder, name) = OpenFolder::open_parent(&inside.path().join("alias"), "a/b/c").unwrap();
        folder.entry_name(name).remove().unwrap();
        assert!(!root.join("a/b/c").exists());
    }

    #[test]
    fn links_in_place_of_files_are_neither_truncated_nor_replaced_by_their_target() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "content").unwrap();
        std::os::unix::fs::symlink(at("precious"), at("lock")).unwrap();
        let open = OpenFolder::open_existing(folder.path(), "").unwrap();
        assert!(open.entry_name("lock").open_lock(true).unwrap_err().to_string().contains("link"));
        assert!(open.entry_name("lock").create_new().is_err());
        open.entry_name("lock").remove().unwrap();
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "content");
    }
}
