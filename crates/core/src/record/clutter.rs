//! Names of what systems and programs leave beside data: previews, settings of folders, locks. They are no records.
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

/// Returns whether a component of a path is such a name.
pub fn has_clutter(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(is_clutter)
}

#[cfg(test)]
mod tests {
    use super::*;

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
