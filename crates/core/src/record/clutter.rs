//! Names of what systems and programs leave beside data: previews, settings of folders, locks; and of files about data.
//! They are no records.
//!
//! ```text
//! ._1.png  .DS_Store  Icon\r  __MACOSX/      macOS
//! Thumbs.db  desktop.ini  $RECYCLE.BIN/      Windows
//! @eaDir/                                    network storage
//! ~$a.csv  .~lock.a.csv#                     locks of office programs
//! READ-LIVE-SHARDS-ONLY.parquet              what a dataset puts beside shards of older versions
//! ```

/// Names in any case.
const ANY_CASE: [&[u8]; 7] = [
    b"thumbs.db",
    b"ehthumbs.db",
    b"desktop.ini",
    b"__macosx",
    b"@eadir",
    b"$recycle.bin",
    b"system volume information",
];

/// Names as they are.
const NAMES: [&[u8]; 6] = [b".DS_Store", b".AppleDouble", b".Spotlight-V100", b".Trashes", b".fseventsd", b"Icon\r"];

/// Beginnings of names.
const STARTS: [&[u8]; 4] = [b"._", b"~$", b".~lock.", b"READ-LIVE-SHARDS-ONLY."];

/// Names of the files that a dataset puts beside shards of older versions: a table, and a text that is none.
pub const SIGNS: [&str; 2] =
    ["READ-LIVE-SHARDS-ONLY.parquet", "READ-LIVE-SHARDS-ONLY.run-shardify-manifest-list-paths.parquet"];

/// Whether a path is that of such a file, by its name.
pub fn is_sign(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| SIGNS.contains(&name))
}

/// Returns whether a component of a path is such a name.
pub fn is_clutter(name: &[u8]) -> bool {
    // Most names begin otherwise.
    matches!(
        name.first(),
        Some(b'.' | b'_' | b'@' | b'$' | b'~' | b'T' | b't' | b'E' | b'e' | b'D' | b'd' | b'I' | b'R' | b'S' | b's')
    ) && (STARTS.iter().any(|start| name.starts_with(start))
        || NAMES.contains(&name)
        || ANY_CASE.iter().any(|known| known.eq_ignore_ascii_case(name)))
}

/// Beginnings of the names of files about data, up to a dot or the end, in any case.
const ABOUT: [&str; 9] =
    ["readme", "license", "licence", "copying", "notice", "changelog", "citation", "contributing", "authors"];

/// Names of lists of checksums and of marks that programs set when they are done, in any case.
const MARKS: [&str; 8] =
    ["_success", "sha1sums", "sha256sums", "sha512sums", "md5sums", "b2sums", "checksums.txt", "checksums.md5"];

/// Beginnings of the names of marks.
const MARK_STARTS: [&str; 2] = ["_committed_", "_started_"];

/// Last extensions of such files, and of those that are such files beside tables alone: elsewhere they may be texts of
/// samples.
const MARK_ENDINGS: [&str; 5] = ["crc", "sha1", "sha256", "sha512", "md5"];
const ENDINGS_BESIDE_TABLES: [&str; 4] = ["md", "rst", "log", "pdf"];

/// Extensions of descriptions: `authors.csv` is a table.
const TEXT_ENDINGS: [&str; 10] = ["md", "txt", "rst", "html", "pdf", "cff", "bib", "markdown", "mdx", "org"];

/// Whether a file of this name is about the data beside it: a description, a licence, checksums, a mark that a program
/// was done. There may be millions of names, so nothing is copied.
pub fn is_bookkeeping(path: &str, beside_tables: bool) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_one_of = |text: &str, known: &[&str]| known.iter().any(|one| one.eq_ignore_ascii_case(text));
    let starts_with = |start: &&str| name.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start));
    let last = name.rsplit_once('.').map_or("", |(_, last)| last);
    let (stem, ending) = name.split_once('.').unwrap_or((name, ""));
    is_one_of(stem, &ABOUT) && (ending.is_empty() || is_one_of(ending, &TEXT_ENDINGS))
        || is_one_of(name, &MARKS)
        || MARK_STARTS.iter().any(starts_with)
        || is_one_of(last, &MARK_ENDINGS)
        || beside_tables && is_one_of(last, &ENDINGS_BESIDE_TABLES)
}

/// Returns whether a component of a path is such a name.
pub fn has_clutter(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(is_clutter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_about_data_are_told_from_data() {
        for path in [
            "README",
            "a/README.md",
            "readme.txt",
            "LICENSE",
            "License.txt",
            "CITATION.cff",
            "SHA256SUMS",
            "out/_SUCCESS",
            "a/.part-0.parquet.crc",
            "a.csv.md5",
            "_committed_123",
        ] {
            assert!(is_bookkeeping(path, false) && is_bookkeeping(path, true), "{path}");
        }
        for path in ["notes.md", "run.log", "a/paper.pdf"] {
            assert!(!is_bookkeeping(path, false) && is_bookkeeping(path, true), "{path}");
        }
        for path in ["authors.csv", "license.parquet", "readme_0.txt", "README/1.txt", "a.txt", "success", "1.jpg"] {
            assert!(!is_bookkeeping(path, true), "{path}");
        }
    }

    #[test]
    fn leftovers_are_told_from_data() {
        for path in [
            "._1.png",
            "a/._1.png",
            ".DS_Store",
            "a/.DS_Store",
            "__MACOSX/a/1.png",
            "Thumbs.db",
            "a/THUMBS.DB",
            "Desktop.ini",
            "a/Icon\r",
            "a/@eaDir/1.png/SYNOPHOTO_THUMB_M.jpg",
            "~$a.csv",
            ".~lock.a.csv#",
            "$RECYCLE.BIN/S-1/a.png",
            "a/READ-LIVE-SHARDS-ONLY.parquet",
        ] {
            assert!(has_clutter(path.as_bytes()), "{path}");
        }
        for path in
            ["1.png", "a/b_._c.png", "Icon.png", "thumbs/1.db", ".hidden", "__init__/a", "_macosx/a", "~a", "", "/"]
        {
            assert!(!has_clutter(path.as_bytes()), "{path}");
        }
    }
}
