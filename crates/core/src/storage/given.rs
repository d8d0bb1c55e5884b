//! Small files that a user names: keys, rules, schemas, lists of ids, settings.
//!
//! Such a file is read as a whole, so it is bounded, and it is a file: opening a pipe waits for its writer, and a
//! device never ends. What a shell passes as a descriptor (`/dev/stdin`, `<(command)`) may be a pipe, because the user
//! has made it.

use std::{
    fs::{File, FileType, Metadata},
    io::Read,
    os::unix::fs::FileTypeExt as _,
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::{
    error::{Error, Result},
    units::Size,
};

/// Folders whose files are descriptors of this process.
const DESCRIPTORS: [&str; 3] = ["/dev/fd", "/proc/self/fd", "/dev/stdin"];

/// What a file that a user names contains, and how large it may be.
#[derive(Debug, Clone, Copy)]
pub struct SmallFile {
    /// Its content, as in "a file of rules".
    what: &'static str,
    /// Maximum size in bytes.
    pub(super) max: u64,
}

impl SmallFile {
    /// Describes a file of at most `max` bytes.
    pub const fn new(what: &'static str, max: u64) -> Self {
        Self { what, max }
    }

    /// Reads a local file; `None` if there is none.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when it is not a file, is too large or cannot be read.
    pub fn read(self, path: &Path) -> Result<Option<Vec<u8>>> {
        let at = |error: Error| error.at_location(path.display().to_string());
        let unreadable = |e: std::io::Error| at(Error::usage(format!("{} cannot be read", self.what)).with_cause(e));
        // Without waiting for the writer of a pipe.
        let file: File =
            match rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
                // Of a socket.
                Err(Errno::NXIO) => return Err(at(self.wrong_kind("a socket or a device"))),
                opened => opened.map_err(|e| unreadable(e.into()))?.into(),
            };
        self.check_facts(path, &file.metadata().map_err(unreadable)?)?;
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(|e| unreadable(e.into()))?;
        self.read_stream(file).map_err(at).map(Some)
    }

    /// Reads a stream, such as standard input, to its end.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when it is too large or cannot be read.
    pub fn read_stream(self, stream: impl Read) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = stream.take(self.max + 1).read_to_end(&mut bytes);
        read.map_err(|e| Error::usage(format!("{} cannot be read", self.what)).with_cause(e))?;
        if bytes.len() as u64 > self.max { Err(self.too_large("more")) } else { Ok(bytes) }
    }

    /// Checks a file that a library reads; nothing is wrong if there is none.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when it is not a file, or is too large.
    pub(super) fn check_path(self, path: &Path) -> Result<()> {
        path.metadata().map_or(Ok(()), |facts| self.check_facts(path, &facts))
    }

    fn check_facts(self, path: &Path, facts: &Metadata) -> Result<()> {
        if DESCRIPTORS.iter().any(|descriptors| path.starts_with(descriptors)) {
            return Ok(());
        }
        let error = match kind_of(facts.file_type()) {
            Some(found) => self.wrong_kind(found),
            None if facts.len() > self.max => self.too_large(&Size(facts.len()).to_string()),
            None => return Ok(()),
        };
        Err(error.at_location(path.display().to_string()))
    }

    fn wrong_kind(self, found: &str) -> Error {
        Error::usage(format!("expected {}, found {found}", self.what)).with_hint("name a regular file")
    }

    /// Returns the error for a file above the limit.
    pub(super) fn too_large(self, found: &str) -> Error {
        Error::usage(format!("expected {} of at most {}, found {found}", self.what, Size(self.max)))
    }
}

/// Returns what something is that is no regular file.
fn kind_of(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own files")]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_within_the_bound_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let rules = SmallFile::new("a file of rules", 4);
        std::fs::write(at("fits"), "1234").unwrap();
        std::fs::write(at("large"), "12345").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink(at("pipe"), at("link")).unwrap();
        assert_eq!(rules.read(&at("fits")).unwrap().unwrap(), b"1234");
        assert!(rules.read(&at("none")).unwrap().is_none());
        for (name, found) in [
            ("large", "expected a file of rules of at most 4 B, found 5 B"),
            ("pipe", "expected a file of rules, found a pipe"),
            ("link", "expected a file of rules, found a pipe"),
            ("socket", "expected a file of rules, found a socket or a device"),
            (".", "expected a file of rules, found a folder"),
            ("/dev/zero", "expected a file of rules, found a device"),
        ] {
            let error = rules.read(&at(name)).unwrap_err();
            assert_eq!((error.kind(), error.message()), (crate::error::Kind::Usage, found));
            assert!(error.place().source.is_some());
        }
    }

    #[test]
    fn pipes_of_the_shell_are_read_to_their_end_and_bounded() {
        use std::{io::Write as _, os::fd::AsRawFd as _};
        let read = |max: u64| {
            let (reader, mut writer) = std::io::pipe().unwrap();
            let writing = std::thread::spawn(move || {
                for _ in 0..3 {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    let _ = writer.write_all(b"ab");
                }
            });
            let path = format!("/dev/fd/{}", reader.as_raw_fd());
            let found = SmallFile::new("a list", max).read(Path::new(&path));
            writing.join().unwrap();
            found
        };
        assert_eq!(read(6).unwrap().unwrap(), b"ababab");
        assert_eq!(read(5).unwrap_err().message(), "expected a list of at most 5 B, found more");
    }
}
