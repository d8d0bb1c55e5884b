//! Tests of the reader against archives of the real world, if a corpus of them is available, and against Python's
//! `tarfile`.
//!
//! Without a corpus, or without Python, these tests report that they were not run (`format/corpus.rs`).

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{
    fmt::Write as _,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow::datatypes::Schema;
use sha2::{Digest, Sha256};

use super::{
    entry::{self, EntryKind, HeaderOutcome},
    read::{TarReader, sniff},
};
use crate::{
    codec::decompress,
    error::{Kind as ErrorKind, Result},
    format::{Parsed, RecordReader, corpus},
    record::{Payload, RecordBlock},
};

/// Ranges small enough to be cut often.
const SPLIT: usize = 16 << 10;
const MAX_RECORD: usize = 64 << 20;

fn corpus() -> Option<PathBuf> {
    corpus::folder()
}

/// Returns the uncompressed archive; `None` if the file is not one.
fn archive(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).unwrap();
    if let Some(codec) = decompress::detect_compression(&bytes) {
        let mut input = decompress::open_decoder(codec, Box::new(std::io::Cursor::new(bytes))).ok()?;
        bytes = Vec::new();
        input.read_to_end(&mut bytes).ok()?;
    }
    sniff(&bytes).then_some(bytes)
}

fn blocks(archive: &[u8]) -> Result<Vec<RecordBlock>> {
    let reader = TarReader::new();
    let schema = Arc::new(Schema::empty());
    let mut found = Vec::new();
    for range in reader.ranges(Box::new(archive), SPLIT, MAX_RECORD) {
        let Parsed::Block(block) = reader.parse(&range?, &schema).unwrap() else { panic!("a type mismatch") };
        found.push(block);
    }
    Ok(found)
}

/// Returns the number of members of all kinds, including those of rejected samples.
fn count(blocks: &[RecordBlock]) -> u64 {
    let mut count = 0;
    for block in blocks {
        let Payload::Samples(samples) = &block.payload else { panic!("rows") };
        count += samples.iter().map(|sample| sample.parts.len() as u64).sum::<u64>() + block.ignored;
        for reject in &block.rejects {
            let mut at = 0;
            while at < reject.raw.len() {
                let Ok(HeaderOutcome::Entry(entry)) = entry::read_entry(&reject.raw[at..]) else { panic!("no member") };
                // Members that are no parts were counted when they were skipped.
                count += u64::from(entry.kind.is_part());
                at += usize::try_from(entry.total_length()).unwrap();
            }
        }
    }
    count
}

/// Archives in which `tarfile` finds another number of members: the number found here, or `None` if the archive is
/// refused.
const DISAGREEMENTS: &[(&str, Option<u64>)] = &[
    // Pax records without the newline that their length includes: readers disagree about the name.
    ("diff-014-unterminated-pax.tar", None),
    ("test_read_pax_empty_val_no_nl.tar", None),
    // Two pax headers for one member, with different names: readers disagree about which one applies.
    ("pax-multi-hdrs.tar", None),
    // A sparse map that `tarfile` cannot read; here the file is rejected as sparse.
    ("test_read_format_gtar_sparse_1_17_posix10_modified.tar", Some(3)),
    // Compression that is supported here but not in `tarfile`.
    ("test_compat_lz4_1.tar.lz4", Some(6)),
    ("test_compat_lz4_B4.tar.lz4", Some(3)),
    ("test_compat_lz4_B5.tar.lz4", Some(3)),
    ("test_compat_lz4_B7.tar.lz4", Some(3)),
    ("test_compat_zstd_2.tar.zst", Some(6)),
];

/// Compression that this test does not cover.
const OTHER_CODECS: [&str; 7] = [".tbz", ".tlz", ".lz", ".Z", ".xz", ".bz2", "test_compat_gzip_2.tgz"];

#[test]
fn corpus_agrees_with_the_oracle() {
    let Some(root) = corpus() else { return };
    let oracle = std::fs::read_to_string(root.join("ORACLE.tsv")).unwrap();
    let mut surprises = Vec::new();
    for line in oracle.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [file, "tar-wds" | "tar-edge", status, _, members, ..] = fields[..] else { continue };
        if OTHER_CODECS.iter().any(|end| file.ends_with(end)) {
            continue;
        }
        let expected = (status == "ok").then(|| members.parse::<u64>().unwrap());
        let expected = DISAGREEMENTS.iter().find(|(name, _)| file.ends_with(name)).map_or(expected, |(_, ours)| *ours);
        let start = Instant::now();
        let found = archive(&root.join(file)).map(|archive| blocks(&archive));
        assert!(start.elapsed() < Duration::from_secs(10), "{file}");
        let agree = match (&found, expected) {
            (Some(Ok(blocks)), Some(expected)) => count(blocks) == expected,
            (None | Some(Err(_)), None) => true,
            _ => false,
        };
        if let Some(Err(error)) = &found {
            assert_eq!(error.kind(), ErrorKind::Input, "{file}");
            assert!(error.place().byte.is_some() && !error.hints().is_empty(), "{file}: {error}");
        }
        if !agree {
            let found = found.map(|found| found.map(|blocks| count(&blocks)));
            surprises.push(format!("{file}: oracle {status} {members}, found {found:?}"));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

/// Returns regular files as `tar_oracle.py` lists them: hash of the content, and name.
fn files(archive: &[u8]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for range in TarReader::new().ranges(Box::new(archive), SPLIT, MAX_RECORD) {
        let range = range?;
        let (bytes, mut at) = (range.content_bytes(), 0);
        while at < bytes.len() {
            let Ok(HeaderOutcome::Entry(entry)) = entry::read_entry(&bytes[at..]) else { panic!("no member") };
            if entry.kind == EntryKind::File {
                let content = &bytes[at + entry.header_bytes..][..usize::try_from(entry.size).unwrap()];
                let mut line = String::new();
                Sha256::digest(content).iter().for_each(|byte| write!(line, "{byte:02x}").unwrap());
                line.push(' ');
                entry.name.iter().for_each(|byte| write!(line, "{byte:02x}").unwrap());
                found.push(line);
            }
            at += usize::try_from(entry.total_length()).unwrap();
        }
    }
    Ok(found)
}

/// What is accepted equals what `tarfile` finds, name by name and byte by byte. It may be less, because `tarfile` ends
/// silently at a damaged header.
#[test]
fn archives_of_tarfile_whole_and_broken_are_read_as_it_reads_them() {
    const COUNT: usize = 600;
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/checks/tar_oracle.py");
    let python = Command::new("python3").arg(script).arg(folder.path()).arg(COUNT.to_string()).status();
    if !python.is_ok_and(|status| status.success()) {
        return corpus::not_run("there is no python3");
    }
    let (mut taken, mut refused) = (0, 0);
    for number in 0..COUNT {
        let file = |extension: &str| folder.path().join(format!("{number}.{extension}"));
        let expected = std::fs::read_to_string(file("txt")).unwrap();
        let mut expected = expected.lines();
        let end = expected.next().unwrap();
        match files(&std::fs::read(file("tar")).unwrap()) {
            Ok(found) => {
                assert_eq!((end, found), ("end", expected.map(str::to_owned).collect()), "{number}");
                taken += 1;
            }
            Err(error) => {
                assert!(number % 3 != 0, "{number}: {error}");
                assert_eq!(error.kind(), ErrorKind::Input);
                refused += 1;
            }
        }
    }
    assert!(taken > COUNT / 2 && refused > COUNT / 20, "{taken} taken, {refused} refused");
}
