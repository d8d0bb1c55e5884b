//! Atomic rename that never replaces an existing file.
//!
//! ```text
//! rename, but only if there is nothing  ->  link, then remove the old name  ->  claim the name, then rename over the claim
//! ```
//!
//! The first is one system call that most local file systems support; NFS supports only links. On file systems without
//! links an empty file is created only if absent, which reserves the name for its creator. A kill between claim and
//! rename leaves the empty file.

use std::io;

use rustix::io::Errno;

use super::beneath::Name;

/// Renames `from` to `to`; fails with [`io::ErrorKind::AlreadyExists`] if `to` exists.
pub(super) fn exclusively(from: Name<'_>, to: Name<'_>) -> io::Result<()> {
    match from.rename_exclusively(to) {
        Err(e) if unknown(&e) => by_link(from, to),
        renamed => renamed,
    }
}

/// Whether the file system does not support the call or the flag.
fn unknown(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}

fn by_link(from: Name<'_>, to: Name<'_>) -> io::Result<()> {
    match from.link(to) {
        Ok(()) => {
            // A second name in the staging folder is harmless.
            let _ = from.remove();
            Ok(())
        }
        Err(e) if unknown(&e) || matches!(Errno::from_io_error(&e), Some(Errno::PERM | Errno::MLINK)) => {
            by_claim(from, to)
        }
        Err(e) => Err(e),
    }
}

fn by_claim(from: Name<'_>, to: Name<'_>) -> io::Result<()> {
    to.create_new()?;
    from.rename(to).inspect_err(|_| {
        // This call created the file, so removing it is safe.
        let _ = to.remove();
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own files")]
mod tests {
    use std::fs;

    use super::{super::beneath::OpenFolder, *};

    type Way = fn(Name<'_>, Name<'_>) -> io::Result<()>;

    const WAYS: [Way; 4] = [exclusively, |from, to| from.rename_exclusively(to), by_link, by_claim];

    #[test]
    fn every_method_takes_a_free_name_and_rejects_an_existing_one() {
        for (i, way) in WAYS.into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let open = OpenFolder::existing(folder.path(), "").unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::write(at("mine"), "mine").unwrap();
            fs::write(at("theirs"), "theirs").unwrap();
            std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
            for taken in ["theirs", "dangling"] {
                let error = way(open.name("mine"), open.name(taken)).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "way {i}, {taken}");
            }
            way(open.name("mine"), open.name("free")).unwrap();
            assert_eq!(fs::read_to_string(at("free")).unwrap(), "mine", "way {i}");
            assert_eq!(fs::read_to_string(at("theirs")).unwrap(), "theirs", "way {i}");
            assert!(!at("mine").exists() && !at("nowhere").exists(), "way {i}");
        }
    }

    #[test]
    fn exactly_one_of_several_writers_gets_a_name() {
        for way in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let open = &OpenFolder::existing(folder.path(), "").unwrap();
            let at = |name: &str| folder.path().join(name);
            let named = std::thread::scope(|scope| {
                let racing: Vec<_> = (0..16)
                    .map(|i| {
                        let from = format!("{i}");
                        fs::write(at(&from), &from).unwrap();
                        scope.spawn(move || way(open.name(&from), open.name("one")).map(|()| from))
                    })
                    .collect();
                racing.into_iter().filter_map(|r| r.join().unwrap().ok()).collect::<Vec<_>>()
            });
            assert_eq!(named, [fs::read_to_string(at("one")).unwrap()]);
        }
    }
}
