//! Atomic rename that never replaces an existing file.
//!
//! ```text
//! rename, but only if there is nothing  ->  link, then remove the old name  ->  rename under a claim
//! ```
//!
//! The first is one system call that most local file systems support; NFS supports only links. On file systems without
//! links, who wants a name creates its *claim* in the staging folder, looks that the name is free, renames, and removes
//! the claim. Nothing ever stands at the name but the whole file.
//!
//! A kill leaves a claim behind. It is locked while its process lives and states the machine, so another process of
//! that machine takes it over. Locks of such file systems often do not reach further: a claim of another machine is
//! waited for, and is removed with the staging folder's other leftovers.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use super::beneath::Name;

/// How long a claim of another process is waited for: it is held for a look and a rename.
const PATIENCE: Duration = Duration::from_secs(10);

/// Renames `from` to `to`, which is at `path` in the store; fails with [`io::ErrorKind::AlreadyExists`] if `to` exists.
pub(super) fn rename_no_replace(from: Name<'_>, to: Name<'_>, path: &str) -> io::Result<()> {
    match from.rename_exclusively(to) {
        Err(e) if is_unsupported(&e) => by_link(from, to, path),
        renamed => renamed,
    }
}

/// Whether the file system does not support the call or the flag.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}

fn by_link(from: Name<'_>, to: Name<'_>, path: &str) -> io::Result<()> {
    match from.link_to(to) {
        Ok(()) => {
            // A second name in the staging folder is harmless.
            let _ = from.remove();
            Ok(())
        }
        Err(e) if is_unsupported(&e) || matches!(Errno::from_io_error(&e), Some(Errno::PERM | Errno::MLINK)) => {
            by_claim(from, to, path)
        }
        Err(e) => Err(e),
    }
}

fn by_claim(from: Name<'_>, to: Name<'_>, path: &str) -> io::Result<()> {
    let name = format!("claim-{}", &blake3::hash(path.as_bytes()).to_hex()[..32]);
    let claim = from.sibling_name(&name);
    let held = hold_claim(claim, to, &boot_id(), PATIENCE)?;
    let renamed = match to.file_identity() {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => from.rename_to(to),
        Err(e) => Err(e),
    };
    let _ = claim.remove();
    drop(held);
    renamed
}

/// Creates the claim of a name, or takes over one whose process is gone. It is held as long as the file is open.
fn hold_claim(claim: Name<'_>, to: Name<'_>, machine: &str, patience: Duration) -> io::Result<File> {
    let since = Instant::now();
    loop {
        match claim.create_new() {
            Ok(mut file) => {
                // A file system without locks has none that say anything else.
                let locked = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
                if locked && is_at(claim, &file) {
                    file.write_all(machine.as_bytes()).inspect_err(|_| drop(claim.remove()))?;
                    return Ok(file);
                }
            }
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            Err(_) => {
                if let Some(file) = take_over(claim, machine)? {
                    return Ok(file);
                }
            }
        }
        if to.file_identity().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if since.elapsed() > patience {
            return Err(io::Error::other(format!(
                "`_shardify/staging/{}` says that a process of another machine is giving this name to a file; if none \
                 is running there, it was killed: remove that file and run the command again",
                claim.as_str()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Opens and locks the claim of a process of this machine that is gone; `None` if it may be alive.
fn take_over(claim: Name<'_>, machine: &str) -> io::Result<Option<File>> {
    let mut file = match claim.open_lock(false) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if file.try_lock().is_err() || !is_at(claim, &file) {
        return Ok(None);
    }
    let mut of = String::new();
    (&mut file).take(100).read_to_string(&mut of)?;
    Ok((!machine.is_empty() && of == machine).then_some(file))
}

/// Whether a name is still that of an open file.
fn is_at(name: Name<'_>, file: &File) -> bool {
    let open = file.metadata().map(|facts| (facts.dev(), facts.ino()));
    name.file_identity().ok() == open.ok()
}

/// Tells this machine, until it starts again, from every other; empty if nothing does.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own files")]
mod tests {
    use std::fs;

    use super::{super::beneath::OpenFolder, *};

    type Way = fn(Name<'_>, Name<'_>, &str) -> io::Result<()>;

    const WAYS: [Way; 4] = [rename_no_replace, |from, to, _| from.rename_exclusively(to), by_link, by_claim];

    #[test]
    fn every_method_takes_a_free_name_and_rejects_an_existing_one() {
        for (i, way) in WAYS.into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let open = OpenFolder::open_existing(folder.path(), "").unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::write(at("mine"), "mine").unwrap();
            fs::write(at("theirs"), "theirs").unwrap();
            std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
            for taken in ["theirs", "dangling"] {
                let error = way(open.entry_name("mine"), open.entry_name(taken), taken).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "way {i}, {taken}");
            }
            way(open.entry_name("mine"), open.entry_name("free"), "free").unwrap();
            assert_eq!(fs::read_to_string(at("free")).unwrap(), "mine", "way {i}");
            assert_eq!(fs::read_to_string(at("theirs")).unwrap(), "theirs", "way {i}");
            assert!(!at("mine").exists() && !at("nowhere").exists(), "way {i}");
        }
    }

    #[test]
    fn exactly_one_of_several_writers_gets_a_name() {
        for way in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let open = &OpenFolder::open_existing(folder.path(), "").unwrap();
            let at = |name: &str| folder.path().join(name);
            let named = std::thread::scope(|scope| {
                let racing: Vec<_> = (0..16)
                    .map(|i| {
                        let from = format!("{i}");
                        fs::write(at(&from), &from).unwrap();
                        scope.spawn(move || way(open.entry_name(&from), open.entry_name("one"), "one").map(|()| from))
                    })
                    .collect();
                racing.into_iter().filter_map(|r| r.join().unwrap().ok()).collect::<Vec<_>>()
            });
            assert_eq!(named, [fs::read_to_string(at("one")).unwrap()]);
        }
    }

    #[test]
    fn claims_of_killed_processes_are_taken_over_and_of_others_respected() {
        let folder = tempfile::tempdir().unwrap();
        let open = OpenFolder::open_existing(folder.path(), "").unwrap();
        let at = |name: &str| folder.path().join(name);
        let (claim, free, short) = (open.entry_name("claim"), open.entry_name("free"), Duration::from_millis(50));
        let left = |content: &str| fs::write(at("claim"), content).unwrap();
        // Nobody has locked it: its process is gone.
        left("this machine");
        drop(hold_claim(claim, free, "this machine", short).unwrap());
        let alive = File::open(at("claim")).unwrap();
        alive.lock().unwrap();
        let error = hold_claim(claim, free, "this machine", short).unwrap_err();
        assert!(error.to_string().contains("staging/claim"), "{error}");
        drop(alive);
        for other in ["", "another machine"] {
            left(other);
            assert!(hold_claim(claim, free, "this machine", short).is_err(), "{other}");
            assert_eq!(fs::read_to_string(at("claim")).unwrap(), other);
        }
        fs::write(at("free"), "taken meanwhile").unwrap();
        let error = hold_claim(claim, free, "this machine", short).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_kill_under_a_claim_leaves_no_file_at_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let open = OpenFolder::open_existing(folder.path(), "").unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("mine"), "mine").unwrap();
        let name = format!("claim-{}", &blake3::hash(b"entry").to_hex()[..32]);
        fs::write(at(&name), boot_id()).unwrap();
        assert!(!at("entry").exists());
        by_claim(open.entry_name("mine"), open.entry_name("entry"), "entry").unwrap();
        assert!(at("entry").exists() && !at(&name).exists());
    }
}
