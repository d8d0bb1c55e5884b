//! Temporary local files for data that does not fit into memory, or that a library writes by itself. Only the user can
//! read them. Most have no name, so the system removes them when the process ends for any reason.
//!
//! An unnamed file has to stay open, and the number of open files is limited. So when many are needed, the later ones
//! have names, as does a database, which its library opens by path. If the process is killed, these stay in the staging
//! folder of a local dataset, which `vacuum` clears, or in the system's folder for temporary files. Only the user can
//! read them.
#![expect(clippy::disallowed_methods, reason = "this is a part of the one place that writes files")]

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    ops::Range,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{beneath::OpenFolder, local::STAGING, location::Location};
use crate::{
    error::{Error, Result},
    id::TransactionId,
};

/// Buffer size of temporary files in bytes.
const BUFFER: usize = 256 << 10;

/// Maximum number of unnamed files at a time: systems limit a process to about 1,000 open files.
const MAX_UNNAMED: usize = 256;

/// Number of unnamed files.
static UNNAMED: AtomicUsize = AtomicUsize::new(0);

/// A local file for records that do not fit into memory; removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    kept: ScratchFile,
    place: String,
}

#[derive(Debug)]
enum ScratchFile {
    Unnamed(Arc<File>),
    Named(PathBuf),
}

/// Returns the staging folder of a local dataset, or the system's folder for temporary files.
fn folder_for(location: &Location) -> Result<PathBuf> {
    let Some(root) = location.local_path() else { return Ok(std::env::temp_dir()) };
    let folder = root.join(STAGING);
    match OpenFolder::open_or_create(root, STAGING) {
        Ok(_) => Ok(folder),
        Err(e) => Err(Error::storage("creating the staging folder failed")
            .at_location(folder.display().to_string())
            .with_cause(e)),
    }
}

/// Returns the error of a failed operation on a temporary file.
fn scratch_error(doing: &str, place: &str, cause: io::Error) -> Error {
    let full = matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let error = Error::storage(format!("{doing} a temporary file failed")).at_location(place).with_cause(cause);
    if full { error.with_hint("free some space on that file system, or raise --memory") } else { error }
}

impl Scratch {
    /// Creates an empty file, near the dataset if that is local.
    pub(super) fn new(location: &Location) -> Result<Self> {
        let folder = folder_for(location)?;
        let place = folder.display().to_string();
        if UNNAMED.fetch_add(1, Ordering::Relaxed) < MAX_UNNAMED {
            return match tempfile::tempfile_in(&folder) {
                Ok(file) => Ok(Self { kept: ScratchFile::Unnamed(Arc::new(file)), place }),
                Err(e) => {
                    UNNAMED.fetch_sub(1, Ordering::Relaxed);
                    Err(scratch_error("creating", &place, e))
                }
            };
        }
        UNNAMED.fetch_sub(1, Ordering::Relaxed);
        let path = folder.join(format!("scratch-{}", TransactionId::fresh()));
        create_private(&path).map_err(|e| scratch_error("creating", &place, e))?;
        Ok(Self { kept: ScratchFile::Named(path), place })
    }

    fn open_file(&self, doing: &str, options: &OpenOptions) -> Result<Arc<File>> {
        match &self.kept {
            ScratchFile::Unnamed(file) => Ok(Arc::clone(file)),
            ScratchFile::Named(path) => {
                options.open(path).map(Arc::new).map_err(|e| scratch_error(doing, &self.place, e))
            }
        }
    }

    /// Truncates the file and opens it for writing.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn create_writer(&self) -> Result<impl Write + Send + use<>> {
        let file = self.open_file("opening", OpenOptions::new().write(true))?;
        file.set_len(0).map_err(|e| scratch_error("writing", &self.place, e))?;
        Ok(io::BufWriter::with_capacity(BUFFER, Cursor { file, at: 0, place: self.place.clone() }))
    }

    /// Opens the file for reading from its beginning.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open_reader(&self) -> Result<impl Read + Send + use<>> {
        Ok(io::BufReader::with_capacity(BUFFER, self.cursor_at(0)?))
    }

    /// Reads a range of the file.
    ///
    /// # Errors
    /// When it cannot be read, or ends before the range does.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let length = usize::try_from(range.end.saturating_sub(range.start));
        let mut bytes = vec![0; length.map_err(|_| Error::internal("a range is larger than memory"))?];
        self.cursor_at(range.start)?.read_exact(&mut bytes).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => scratch_error("reading", &self.place, e),
            _ => Error::from(e),
        })?;
        Ok(bytes)
    }

    fn cursor_at(&self, at: u64) -> Result<Cursor> {
        let file = self.open_file("opening", OpenOptions::new().read(true))?;
        Ok(Cursor { file, at, place: self.place.clone() })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        match &self.kept {
            ScratchFile::Unnamed(_) => drop(UNNAMED.fetch_sub(1, Ordering::Relaxed)),
            // Files left in the staging folder are never part of a dataset.
            ScratchFile::Named(path) => drop(fs::remove_file(path)),
        }
    }
}

/// Creates a file that only the user can read.
fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// A position in a file for sequential reads or writes; errors name the file system.
struct Cursor {
    file: Arc<File>,
    at: u64,
    place: String,
}

impl Write for Cursor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at).map_err(|e| io_failed("writing", &self.place, e))?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let found = self.file.read_at(buffer, self.at).map_err(|e| io_failed("reading", &self.place, e))?;
        self.at += found as u64;
        Ok(found)
    }
}

fn io_failed(doing: &str, place: &str, cause: io::Error) -> io::Error {
    if cause.kind() == io::ErrorKind::Interrupted { cause } else { scratch_error(doing, place, cause).into() }
}

/// The path of a local file for a library that opens files by itself, in its own folder that only the user can access.
#[derive(Debug)]
pub struct ScratchPath {
    folder: PathBuf,
    path: PathBuf,
}

/// Suffixes of the files that SQLite writes for a database.
const DATABASE_SUFFIXES: [&str; 4] = ["", "-journal", "-wal", "-shm"];

impl ScratchPath {
    /// Creates the path of a file that does not exist yet, near the dataset if that is local.
    pub(super) fn new(location: &Location) -> Result<Self> {
        let folder = folder_for(location)?.join(format!("scratch-{}", TransactionId::fresh()));
        let cannot = |e| scratch_error("creating", &folder.display().to_string(), e);
        DirBuilder::new().mode(0o700).create(&folder).map_err(cannot)?;
        let made = Self { path: folder.join("file"), folder };
        create_private(&made.path).map_err(|e| scratch_error("creating", &made.path.display().to_string(), e))?;
        Ok(made)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Copies the bytes of the file.
    ///
    /// # Errors
    /// When it cannot be read, or `out` fails.
    pub fn copy_to(&self, out: &mut dyn Write) -> Result<()> {
        let place = self.path.display().to_string();
        let file = File::open(&self.path).map_err(|e| scratch_error("opening", &place, e))?;
        // Errors of `out` already carry their context.
        Ok(io::copy(&mut Cursor { file: Arc::new(file), at: 0, place }, out).map(drop)?)
    }
}

impl Drop for ScratchPath {
    fn drop(&mut self) {
        for end in DATABASE_SUFFIXES {
            let _ = fs::remove_file(self.folder.join(format!("file{end}")));
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn content(scratch: &Scratch) -> String {
        let mut out = String::new();
        scratch.open_reader().unwrap().read_to_string(&mut out).unwrap();
        out
    }

    #[test]
    fn scratch_files_are_private_and_end_with_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::from_local_path(folder.path()).unwrap();
        let staging = folder.path().join(STAGING);
        let names = || fs::read_dir(&staging).unwrap().count();
        let many: Vec<Scratch> = (0..MAX_UNNAMED + 3).map(|_| Scratch::new(&location).unwrap()).collect();
        for (i, scratch) in many.iter().enumerate() {
            scratch.create_writer().unwrap().write_all(b"an earlier text that was longer").unwrap();
            let mut writer = scratch.create_writer().unwrap();
            write!(writer, "record {i}").unwrap();
            writer.flush().unwrap();
            assert_eq!((content(scratch), content(scratch)), (format!("record {i}"), format!("record {i}")));
            assert_eq!(
                scratch.read(3..8).unwrap(),
                b"ord ".iter().chain(&i.to_string().as_bytes()[..1]).copied().collect::<Vec<_>>()
            );
            assert!(scratch.read(3..80).unwrap_err().to_string().contains("a temporary file failed"));
        }
        // Other tests may have temporary files at the same time.
        assert!((3..MAX_UNNAMED).contains(&names()), "only those that are too many have names: {}", names());
        for entry in fs::read_dir(&staging).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        drop(many);
        assert_eq!(names(), 0);
    }

    #[test]
    fn named_scratch_files_are_in_a_private_folder() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = ScratchPath::new(&Location::from_local_path(folder.path()).unwrap()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(scratch.path()), mode(scratch.path().parent().unwrap())), (0o600, 0o700));
        fs::write(scratch.path(), "bytes").unwrap();
        fs::write(scratch.path().with_file_name("file-journal"), "more").unwrap();
        let mut out = Vec::new();
        scratch.copy_to(&mut out).unwrap();
        assert_eq!(out, b"bytes");
        let above = scratch.path().parent().unwrap().to_owned();
        drop(scratch);
        assert!(!above.exists());
    }

    #[test]
    fn a_full_disk_error_names_the_file_system() {
        let file = Arc::new(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let error = Cursor { file, at: 0, place: "/tmp".to_owned() }.write(b"x").unwrap_err();
        let error = Error::from(error);
        assert_eq!(error.place().source.as_deref(), Some("/tmp"));
        assert!(error.hints()[0].contains("free some space"));
    }
}
