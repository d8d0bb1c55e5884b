//! Files without records whose name says that they have some: what they are instead, and what to do about it.
//!
//! Names are what people go by, so a picture named `.csv` or an error page saved as `.jsonl` is named as what it is.
//! The first bytes decide:
//!
//! ```text
//! %PDF-1.7 ...                    a PDF document
//! <!DOCTYPE html> ...             an HTML page, usually that of an error
//! version https://git-lfs. ...    a pointer of Git LFS
//! ```
//!
//! Names alone state which tables and stores cannot be read: they never become samples unless the user says so.

use std::sync::Arc;

use rayon::prelude::*;

use super::{SourceFile, archives::is_archive_name};
use crate::{
    error::{Error, Result},
    format::{csv, json},
};

/// Bytes that tell what a file is: the marks below, or whether text is JSON or delimited.
const HEAD_BYTES: usize = 32 << 10;

/// What the content is that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Packed,
    Archive,
    /// A zip archive under another name.
    Zip,
    Sample,
    Page,
    Pointer,
    Database,
    /// Objects that run code when they are loaded.
    Pickle,
    /// Recordings whose headers name people.
    Medical,
    /// Fields on grids.
    Grid,
    /// A web archive of the format before WARC.
    Arc,
    /// A workbook, which other builds read.
    Workbook,
}

/// What to do about a workbook that this build does not read.
pub(super) const WORKBOOK_HINT: &str = "the program of the Python package reads workbooks, and one that is built with \
                                        cargo build --release --features excel; or save the sheet as CSV";

impl Kind {
    /// Whether it holds records, so that it is no part of a sample unless the user says so.
    fn holds_records(self) -> bool {
        matches!(self, Self::Database | Self::Medical | Self::Grid | Self::Arc)
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Packed => "decompress it first",
            Self::Archive => "unpack it and convert what is in it",
            Self::Zip => "if it is an archive of files, rename it to end in .zip, or unpack it",
            Self::Sample => "if it belongs to a sample, convert it with --from files, or skip it with --exclude",
            Self::Page => {
                "a download may have saved the page of an error: open it in an editor, and download the file again"
            }
            Self::Pointer => "fetch the file that it stands for: git lfs pull",
            Self::Database => {
                "export it as CSV or Parquet first, or give it to shardify.convert in Python as an Arrow table"
            }
            Self::Pickle => {
                "loading it runs the code that it names: save it as Parquet, .npy or .safetensors with the program that \
                 made it"
            }
            Self::Medical => "its header may name the patient, and would be stored with it",
            Self::Grid => "convert it to NetCDF first, for example with cdo or grib_to_netcdf",
            Self::Arc => "convert it first, with the package warcio: warcio recompress FILE.arc.gz FILE.warc.gz",
            Self::Workbook => WORKBOOK_HINT,
        }
    }
}

/// Beginnings of files, names of what they are, and kinds.
const MAGIC: [(&[u8], &str, Kind); 28] = [
    (b"\x1f\x9d", "data compressed by compress (.Z), which is not supported", Kind::Packed),
    (b"\x1f\xa0", "data compressed by compress (.Z), which is not supported", Kind::Packed),
    (b"\x89LZO\x00\r\n\x1a\n", "data compressed by lzop, which is not supported", Kind::Packed),
    (b"LZIP", "data compressed by lzip, which is not supported", Kind::Packed),
    (b"\x5d\0\0", "data compressed by lzma, which is not supported", Kind::Packed),
    (b"PK\x03\x04", "a zip archive", Kind::Zip),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive, which is not supported", Kind::Archive),
    (b"Rar!", "a rar archive, which is not supported", Kind::Archive),
    (b"%PDF-", "a PDF document", Kind::Sample),
    (b"\x89PNG\r\n\x1a\n", "a PNG picture", Kind::Sample),
    (b"\xff\xd8\xff", "a JPEG picture", Kind::Sample),
    (b"GIF87a", "a GIF picture", Kind::Sample),
    (b"GIF89a", "a GIF picture", Kind::Sample),
    (b"II*\0", "a TIFF picture", Kind::Sample),
    (b"MM\0*", "a TIFF picture", Kind::Sample),
    (b"fLaC", "a FLAC recording", Kind::Sample),
    (b"OggS", "an Ogg recording", Kind::Sample),
    (b"ID3", "an MP3 recording", Kind::Sample),
    (b"\x7fELF", "a program", Kind::Sample),
    (b"SQLite format 3\0", "an SQLite database", Kind::Database),
    (b"ORC", "an ORC file", Kind::Database),
    (b"FEA1", "a Feather file of version 1", Kind::Database),
    (b"GRIB", "a GRIB file", Kind::Grid),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of older Microsoft Office", Kind::Database),
    (b"version https://git-lfs.github.com/", "a pointer of Git LFS", Kind::Pointer),
    (b"filedesc://", "an ARC file, the format before WARC", Kind::Arc),
    (b"<?xml", "an XML document", Kind::Page),
    (b"\xef\xbb\xbf<?xml", "an XML document", Kind::Page),
];

/// Endings of files in formats that hold tables or archives, what they are, and kinds. A folder of nothing else holds
/// no samples.
const UNREAD: [(&str, &str, Kind); 47] = [
    ("xlsx", "an Excel workbook", Kind::Workbook),
    ("xlsm", "an Excel workbook", Kind::Workbook),
    ("xlsb", "an Excel workbook", Kind::Workbook),
    ("xls", "an Excel workbook", Kind::Workbook),
    ("ods", "an OpenDocument spreadsheet", Kind::Workbook),
    ("numbers", "a Numbers spreadsheet", Kind::Database),
    ("sas7bdat", "a SAS data set", Kind::Database),
    ("xpt", "a SAS transport file", Kind::Database),
    ("sav", "an SPSS data file", Kind::Database),
    ("zsav", "an SPSS data file", Kind::Database),
    ("por", "an SPSS data file", Kind::Database),
    ("dta", "a Stata data set", Kind::Database),
    ("rds", "an R object", Kind::Database),
    ("rda", "objects of R", Kind::Database),
    ("rdata", "objects of R", Kind::Database),
    ("orc", "an ORC file", Kind::Database),
    ("sqlite", "an SQLite database", Kind::Database),
    ("sqlite3", "an SQLite database", Kind::Database),
    ("db3", "an SQLite database", Kind::Database),
    ("duckdb", "a DuckDB database", Kind::Database),
    ("accdb", "an Access database", Kind::Database),
    ("mdb", "an Access or LMDB database", Kind::Database),
    ("dbf", "a dBASE table", Kind::Database),
    ("gpkg", "a GeoPackage", Kind::Database),
    ("msgpack", "a MessagePack file", Kind::Database),
    ("pkl", "a Python pickle", Kind::Pickle),
    ("pickle", "a Python pickle", Kind::Pickle),
    ("joblib", "objects that joblib pickled", Kind::Pickle),
    ("pt", "objects that PyTorch pickled", Kind::Pickle),
    ("pth", "objects that PyTorch pickled", Kind::Pickle),
    ("ckpt", "objects that PyTorch pickled", Kind::Pickle),
    ("dcm", "a DICOM file", Kind::Medical),
    ("dicom", "a DICOM file", Kind::Medical),
    ("grib", "a GRIB file", Kind::Grid),
    ("grib2", "a GRIB file", Kind::Grid),
    ("grb", "a GRIB file", Kind::Grid),
    ("grb2", "a GRIB file", Kind::Grid),
    ("root", "a ROOT file", Kind::Database),
    ("mcap", "a recording of a robot (MCAP)", Kind::Database),
    ("bag", "a recording of a robot (rosbag)", Kind::Database),
    ("lmdb", "an LMDB database", Kind::Database),
    ("fits", "a FITS file", Kind::Database),
    ("mat", "a MATLAB file", Kind::Database),
    ("arc", "an ARC file, the format before WARC", Kind::Arc),
    ("zip", "a zip archive", Kind::Archive),
    ("7z", "a 7z archive", Kind::Archive),
    ("rar", "a rar archive", Kind::Archive),
];

/// A store of another tool that cannot be read: files of it, what it is, and what to do.
struct ForeignStore {
    has: fn(&SourceFile, &[SourceFile]) -> bool,
    what: &'static str,
    hint: &'static str,
}

/// Stores whose files must not become samples. The functions get a file and all files, sorted by name.
const STORES: [ForeignStore; 5] = [
    ForeignStore {
        has: |file, _| is_below(file, ".zarr"),
        what: "part of a Zarr store without readable metadata (zarr.json, or .zgroup and .zarray)",
        hint: "copy the store anew, with hidden files",
    },
    ForeignStore {
        has: |file, _| file.name().ends_with(".lance") || is_below(file, ".lance"),
        what: "part of a Lance dataset, which is not supported",
        hint: "export it as Parquet, for example with pylance: lance.dataset(PATH).to_table()",
    },
    ForeignStore {
        has: |file, _| file.name().ends_with(".mds") || file.name().ends_with(".mds.zstd"),
        what: "a shard of MosaicML's MDS, which is not supported",
        hint: "export it as Parquet with the package streaming",
    },
    ForeignStore {
        has: |file, files| file.name().ends_with("meta/info.json") && is_lerobot(file, files),
        what: "the description of a LeRobot dataset, whose episodes are not read",
        hint: "to convert its frames without videos, as rows: --include '**/data/**/*.parquet'",
    },
    ForeignStore {
        has: |file, files| {
            let (folder, name) =
                file.name().rsplit_once('/').map_or(("", file.name()), |(folder, name)| (folder, name));
            name.starts_with("chunk-") && name.contains(".bin") && has_file(files, folder, "index.json")
        },
        what: "a chunk of LitData, which is not supported",
        hint: "export it as Parquet with the package litdata",
    },
];

/// What to do in any case.
const AS_FILES: &str = "to store the files as they are, as samples: --from files; to leave them out: --exclude";

/// Whether a name may be that of a file of a store: most names have no dot in a folder and another ending.
fn may_be_of_store(name: &str) -> bool {
    let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
    folder.contains('.')
        || last.starts_with("chunk-")
        || last.contains(".mds")
        || last.ends_with(".lance")
        || last == "info.json"
}

/// Whether files of episodes lie beside `meta/info.json`, as in LeRobot datasets of all versions.
fn is_lerobot(info: &SourceFile, files: &[SourceFile]) -> bool {
    let meta = info.name().strip_suffix("info.json").unwrap_or_default();
    let below = files.partition_point(|file| file.name() < meta);
    let names = || files[below..].iter().map(SourceFile::name).take_while(|name| name.starts_with(meta));
    names()
        .filter_map(|name| name.strip_prefix(meta))
        .any(|name| name.starts_with("episodes") || name.starts_with("tasks"))
}

/// Whether a file is in a folder whose name ends so.
fn is_below(file: &SourceFile, end: &str) -> bool {
    let is_in = |path: &str| path.match_indices(end).any(|(at, _)| path[at + end.len()..].starts_with('/'));
    is_in(file.name()) || is_in(&file.root().shown) || file.root().shown.ends_with(end)
}

/// Whether a file of a name is in a folder.
fn has_file(files: &[SourceFile], folder: &str, name: &str) -> bool {
    let wanted = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    files.binary_search_by(|file| file.name().cmp(wanted.as_str())).is_ok()
}

/// Refuses stores of other tools that cannot be read.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input), naming the first file of one.
pub(super) fn refuse_stores(files: &[SourceFile]) -> Result<()> {
    let of_root = |part: &&[SourceFile]| [".zarr", ".lance"].iter().any(|end| part[0].root().shown.contains(end));
    let is_in_store = files.chunk_by(|one, next| Arc::ptr_eq(one.root(), next.root())).any(|part| of_root(&part));
    let found = files
        .par_iter()
        .filter(|file| !file.is_store() && (is_in_store || may_be_of_store(file.name())))
        .find_map_first(|file| STORES.iter().find(|store| (store.has)(file, files)).map(|store| (file, store)));
    let Some((file, store)) = found else { return Ok(()) };
    let expected = "expected records or files of samples, found";
    Err(Error::input(format!("{expected} {}", store.what))
        .at_location(file.uri())
        .with_hint(store.hint)
        .with_hint(AS_FILES))
}

/// Refuses files that are all in formats which hold tables or archives that cannot be read.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input), naming the first one.
pub(super) fn refuse_unread(files: &[SourceFile]) -> Result<()> {
    let [first, others @ ..] = files else { return Ok(()) };
    let found = match named_unread(first.name()) {
        Some(found) if others.iter().all(|file| named_unread(file.name()).is_some()) => Some(found),
        Some(_) => None,
        // A database, or a recording, may have any name.
        None if others.is_empty() || extension_of(first.name()).is_empty() => {
            let is_like = |file: &SourceFile| extension_of(file.name()) == extension_of(first.name());
            let found = recognize_foreign(&first.read_head(HEAD_BYTES)?.bytes);
            found.filter(|(_, kind)| kind.holds_records() && others.iter().all(is_like))
        }
        None => None,
    };
    let Some((what, kind)) = found else { return Ok(()) };
    if others.is_empty() && is_archive_name(first.name()) {
        return Err(not_as_named(first));
    }
    let more = if others.is_empty() { String::new() } else { format!(" (and {} more like it)", others.len()) };
    let lack = if kind == Kind::Workbook { "which this build does not read" } else { "which is not supported" };
    Err(Error::input(format!("expected records or files of samples, found {what}, {lack}{more}"))
        .at_location(first.uri())
        .with_hint(kind.hint())
        .with_hint(AS_FILES))
}

/// Returns whether a name is that of an archive which is not read: its members are neither records nor files.
pub fn is_foreign_archive(name: &str) -> bool {
    named_unread(name).is_some_and(|(_, kind)| kind == Kind::Archive)
}

/// Returns what a file is, by its name, that cannot be read.
fn named_unread(name: &str) -> Option<(&'static str, Kind)> {
    let last = extension_of(name);
    UNREAD.iter().find(|(known, ..)| known.eq_ignore_ascii_case(last)).map(|(_, what, kind)| (*what, *kind))
}

/// Returns what a file is, by its name, that cannot be read, in words.
pub(super) fn describe_unread(name: &str) -> Option<&'static str> {
    named_unread(name).map(|(what, _)| what)
}

/// Returns the last extension of a name; the empty text if it has none.
fn extension_of(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Beginnings of HTML, in lower case.
const HTML: [&[u8]; 2] = [b"<!doctype html", b"<html"];

/// Returns what begins so and holds no records.
fn recognize_foreign(head: &[u8]) -> Option<(&'static str, Kind)> {
    let begins = |magic: &[u8]| match magic {
        // A few letters may begin a text, too.
        b"ORC" | b"ID3" | b"GRIB" => head.starts_with(magic) && head.contains(&0),
        _ => head.starts_with(magic),
    };
    if head.get(128..132) == Some(b"DICM") && head.contains(&0) {
        return Some(("a DICOM file", Kind::Medical));
    }
    let of_magic = || MAGIC.iter().find(|(magic, ..)| begins(magic)).map(|(_, name, kind)| (*name, *kind));
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let is_html = HTML.iter().any(|mark| text.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark)));
    if is_html { Some(("an HTML page", Kind::Page)) } else { of_magic() }
}

/// Returns whether the first bytes are those of something that holds no records, however much it looks like text.
pub(super) fn holds_no_records(head: &[u8]) -> bool {
    recognize_foreign(head).is_some()
}

/// Returns the error for a file whose content is not what its name states.
pub(super) fn not_as_named(file: &SourceFile) -> Error {
    let (head, complete, packed) = match file.read_head(HEAD_BYTES) {
        Ok(head) => (head.bytes, head.complete, head.packed),
        Err(_) => (Vec::new(), false, false),
    };
    let expected = if is_archive_name(file.name()) { "a zip archive" } else { "records" };
    let error = |found: &str| {
        Error::input(format!("expected {expected}, as the name states, found {found}")).at_location(file.uri())
    };
    if file.bytes() == 0 {
        return error("nothing, the file is empty").with_hint("write or download it again, or skip it with --exclude");
    }
    if let Some((name, kind)) = recognize_foreign(&head) {
        return error(name).with_hint(kind.hint());
    }
    if let Some(source) = json::sniff(&head, complete) {
        let (what, from) = match source.mode() {
            json::Mode::Lines => ("JSON Lines", "jsonl"),
            json::Mode::Document => ("a JSON document", "json"),
        };
        return error(what).with_hint(format!("name the format with --from {from}, or rename the file"));
    }
    if is_table(&head, complete) {
        return error("delimited text").with_hint("name the format with --from csv, or rename the file");
    }
    let what = if packed { "compressed data of an unknown format".to_owned() } else { describe_unknown(&head) };
    error(&what)
        .with_hint("the file may be damaged: download it again, or skip it with --exclude")
        .with_hint("if it has another format, name it with --from; --from files converts all files as samples")
}

/// Number of bytes shown of content in an unknown format: enough to recognise a signature.
const SHOWN_BYTES: usize = 8;

/// Describes content in an unknown format. Text is not shown, because it may be about people.
fn describe_unknown(head: &[u8]) -> String {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..);
    if head.is_empty() {
        return "something else".to_owned();
    }
    if head.iter().all(is_text) {
        return "text of another kind".to_owned();
    }
    let shown: Vec<String> = head.iter().take(SHOWN_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("bytes of no known format, beginning with {}", shown.join(" "))
}

/// Whether a file begins with several lines of text.
pub fn is_text(file: &SourceFile) -> bool {
    let Ok(head) = file.read_head(HEAD_BYTES) else { return false };
    let whole = head.bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    whole.len() + 4 > head.bytes.len() && whole.lines().nth(1).is_some() && memchr::memchr(0, &head.bytes).is_none()
}

/// Returns whether text named JSON Lines is a table instead: no line is an object, and each has the same fields.
pub(super) fn is_table(head: &[u8], complete: bool) -> bool {
    let has_objects = head.split(|byte| *byte == b'\n').any(|line| line.trim_ascii_start().starts_with(b"{"));
    !has_objects && csv::sniff(head, complete, &csv::CsvOptions::default()).is_some_and(|source| source.is_convincing())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_so_is_named() {
        let name = |head: &[u8]| recognize_foreign(head).map(|(name, _)| name);
        assert_eq!(name(b"%PDF-1.7\n1 0 obj"), Some("a PDF document"));
        assert_eq!(name(b"\n<!DocType HTML>\n<html>"), Some("an HTML page"));
        assert_eq!(name(b"version https://git-lfs.github.com/spec/v1\n"), Some("a pointer of Git LFS"));
        assert_eq!(name(b"ORC\x0a\0\0"), Some("an ORC file"));
        assert_eq!(name(b"ORC,ID3\n1,2\n"), None, "a header");
        assert_eq!(name(b"ID3,b\n1,2\n"), None, "a header");
        assert_eq!(name(b"id,x\n1,2\n"), None);
        let mut recording = [0; 140];
        recording[128..132].copy_from_slice(b"DICM");
        assert_eq!(name(&recording), Some("a DICOM file"));
        assert_eq!(name(&[b"a,".repeat(64), b"DICM\n".to_vec()].concat()), None, "a header");
    }

    #[test]
    fn names_state_what_cannot_be_read() {
        assert_eq!(describe_unread("a/b.SAS7BDAT"), Some("a SAS data set"));
        assert_eq!(describe_unread("scan.1.dcm"), Some("a DICOM file"));
        assert_eq!(describe_unread("mat"), None);
        assert_eq!(describe_unread("a.mat/b"), None);
        assert!(is_foreign_archive("a.7z") && !is_foreign_archive("a.pkl"));
    }

    #[test]
    fn bytes_of_no_known_format_are_shown_and_text_is_not() {
        assert_eq!(describe_unknown("Zahl der Fälle: 3\n".as_bytes()), "text of another kind");
        assert_eq!(describe_unknown(b""), "something else", "it could not be read");
        assert_eq!(describe_unknown(b"Stra\xdfe\r\n"), "text of another kind");
        assert_eq!(describe_unknown(b"\x00\xff12"), "bytes of no known format, beginning with 00 ff 31 32");
        assert_eq!(
            describe_unknown(b"\x89LZO\0\r\n\x1a\n rest"),
            "bytes of no known format, beginning with 89 4c 5a 4f 00 0d 0a 1a"
        );
    }

    #[test]
    fn tables_are_told_from_damaged_json() {
        assert!(is_table(b"id,x\n1,2\n3,4\n", true));
        assert!(!is_table(b"{\"id\":1,\"x\":2}\n{\"id\":1,\n", true));
    }
}
