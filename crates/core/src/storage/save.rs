//! Files for the user that are not objects of a dataset: receipts, proofs, lists.
//!
//! A regular file is replaced atomically and keeps its permissions; a new file gets those that the umask leaves.
//! Anything else (a device, a pipe, standard output) is written to directly. Symbolic links are followed.
#![expect(clippy::disallowed_methods, reason = "this is a part of the one place that writes files")]

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Maximum length of a chain of symbolic links, as in the operating system.
const MAX_LINKS: usize = 40;

/// Writes a file.
pub(super) fn save_local(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(meta) if is_descriptor(path) || !meta.is_file() => {
            let mut file = OpenOptions::new().append(true).open(path)?;
            file.write_all(bytes)
        }
        Ok(meta) => replace_file(&fs::canonicalize(path)?, bytes, Some(meta.permissions())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => replace_file(&resolve_links(path)?, bytes, None),
        Err(e) => Err(e),
    }
}

/// Whether a path names an open file of a process, such as `/dev/stdout`. It may be a regular file that other processes
/// write to as well. Files in `/dev/shm` are files like any other.
fn is_descriptor(path: &Path) -> bool {
    path.parent() == Some(Path::new("/dev")) || path.starts_with("/dev/fd") || path.starts_with("/proc")
}

/// Resolves symbolic links, dangling ones included.
fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&path) else { return Ok(path) };
        path = path.parent().unwrap_or(Path::new(".")).join(next);
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

fn replace_file(path: &Path, bytes: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let umasked = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().prefix(".shardify-").permissions(umasked).tempfile_in(folder)?;
    if let Some(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_paths_of_open_files_are_descriptors() {
        for path in ["/dev/stdout", "/dev/null", "/dev/fd/1", "/proc/self/fd/1"] {
            assert!(is_descriptor(Path::new(path)), "{path}");
        }
        for path in ["/dev/shm/page.html", "/dev/shm/runs/proof.json", "/devices/page.html", "dev/page.html"] {
            assert!(!is_descriptor(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn links_devices_and_permissions_are_preserved() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        save_local(&at("new"), b"1").unwrap();
        fs::write(at("plain"), "").unwrap();
        assert_eq!(mode("new"), mode("plain"), "as the umask says");
        fs::set_permissions(at("new"), Permissions::from_mode(0o640)).unwrap();
        save_local(&at("new"), b"2").unwrap();
        assert_eq!((mode("new"), fs::read(at("new")).unwrap()), (0o640, b"2".to_vec()));
        symlink("new", at("link")).unwrap();
        symlink("later", at("dangling")).unwrap();
        save_local(&at("link"), b"3").unwrap();
        save_local(&at("dangling"), b"4").unwrap();
        for (link, to, content) in [("link", "new", "3"), ("dangling", "later", "4")] {
            assert_eq!(fs::read_link(at(link)).unwrap(), Path::new(to));
            assert_eq!(fs::read_to_string(at(to)).unwrap(), content);
        }
        save_local(Path::new("/dev/null"), b"5").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file(), "a device is written to, not replaced");
        let error = save_local(Path::new("/dev/full"), b"6").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 5, "nothing else is left");
    }
}
