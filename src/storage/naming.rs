//! Atomic rename that never replaces an existing file.
//!
//! ```text
//! rename, but only if there is nothing  ->  link, then remove the old name  ->  claim the name, then rename over the claim
//! ```
//!
//! The first is one system call that most local file systems support; NFS supports only links. On file systems without
//! links an empty file is created only if absent, which reserves the name for its creator. A kill between claim and
//! rename leaves the empty file.
#![expect(clippy::disallowed_methods, reason = "this is a part of the one place that gives files their names")]

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use rustix::io::Errno;

/// Renames `from` to `to`; fails with [`io::ErrorKind::AlreadyExists`] if `to` exists.
pub(super) fn exclusively(from: &Path, to: &Path) -> io::Result<()> {
    match by_rename(from, to) {
        Err(e) if unknown(&e) => by_link(from, to),
        renamed => renamed,
    }
}

/// Whether the file system does not support the call or the flag.
fn unknown(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn by_rename(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn by_rename(_from: &Path, _to: &Path) -> io::Result<()> {
    Err(Errno::NOSYS.into())
}

fn by_link(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => {
            // A second name in the staging folder is harmless.
            let _ = fs::remove_file(from);
            Ok(())
        }
        Err(e) if unknown(&e) || matches!(Errno::from_io_error(&e), Some(Errno::PERM | Errno::MLINK)) => {
            by_claim(from, to)
        }
        Err(e) => Err(e),
    }
}

fn by_claim(from: &Path, to: &Path) -> io::Result<()> {
    File::create_new(to)?;
    fs::rename(from, to).inspect_err(|_| {
        // This call created the file, so removing it is safe.
        let _ = fs::remove_file(to);
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly and write their own files")]
mod tests {
    use super::*;

    #[test]
    fn every_method_takes_a_free_name_and_rejects_an_existing_one() {
        for (i, way) in [exclusively, by_rename, by_link, by_claim].into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::write(at("mine"), "mine").unwrap();
            fs::write(at("theirs"), "theirs").unwrap();
            std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
            for taken in ["theirs", "dangling"] {
                let error = way(&at("mine"), &at(taken)).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "way {i}, {taken}");
            }
            way(&at("mine"), &at("free")).unwrap();
            assert_eq!(fs::read_to_string(at("free")).unwrap(), "mine", "way {i}");
            assert_eq!(fs::read_to_string(at("theirs")).unwrap(), "theirs", "way {i}");
            assert!(!at("mine").exists() && !at("nowhere").exists(), "way {i}");
        }
    }

    #[test]
    fn exactly_one_of_several_writers_gets_a_name() {
        for way in [exclusively, by_rename, by_link, by_claim] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            let named = std::thread::scope(|scope| {
                let racing: Vec<_> = (0..16)
                    .map(|i| {
                        let from = at(&format!("{i}"));
                        fs::write(&from, format!("{i}")).unwrap();
                        let to = at("one");
                        scope.spawn(move || way(&from, &to).map(|()| format!("{i}")))
                    })
                    .collect();
                racing.into_iter().filter_map(|r| r.join().unwrap().ok()).collect::<Vec<_>>()
            });
            assert_eq!(named, [fs::read_to_string(at("one")).unwrap()]);
        }
    }
}
