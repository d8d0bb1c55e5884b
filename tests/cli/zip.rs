//! Zip archives as inputs: their members are read as the files of a folder, and whatever is wrong with an archive is an
//! error that names it.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::io::Write;

use crate::support;

use flate2::{Compression, write::DeflateEncoder};
use support::Folder;

/// A member to be written.
#[derive(Clone)]
struct Member {
    name: Vec<u8>,
    content: Vec<u8>,
    method: u16,
    flags: u16,
    /// Unix mode; 0 for none.
    mode: u32,
    /// Checksum in both headers, if it is not that of the content.
    crc32: Option<u32>,
    /// Size in both headers, if it is not that of the content.
    bytes: Option<u32>,
}

fn member(name: &str, content: impl AsRef<[u8]>) -> Member {
    Member {
        name: name.as_bytes().to_vec(),
        content: content.as_ref().to_vec(),
        method: 8,
        flags: 1 << 11,
        mode: 0,
        crc32: None,
        bytes: None,
    }
}

fn stored(name: &str, content: impl AsRef<[u8]>) -> Member {
    Member { method: 0, ..member(name, content) }
}

impl Member {
    fn packed(&self) -> Vec<u8> {
        match self.method {
            8 => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(&self.content).unwrap();
                encoder.finish().unwrap()
            }
            93 => zstd::bulk::compress(&self.content, 3).unwrap(),
            _ => self.content.clone(),
        }
    }

    /// Fields that both headers have, from the version needed to the length of the extra field.
    fn common(&self) -> Vec<u8> {
        let mut out = Vec::new();
        [20, self.flags, self.method, 0, 0].iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        let sizes = [
            self.crc32.unwrap_or_else(|| crc32(&self.content)),
            u32::try_from(self.packed().len()).unwrap(),
            self.bytes.unwrap_or_else(|| u32::try_from(self.content.len()).unwrap()),
        ];
        sizes.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        out.extend_from_slice(&u16::try_from(self.name.len()).unwrap().to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Returns an archive.
fn zip(members: &[Member]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for member in members {
        let local = u32::try_from(out.len()).unwrap();
        for part in [b"PK\x03\x04", &member.common()[..], &member.name, &member.packed()] {
            out.extend_from_slice(part);
        }
        let attributes = [(member.mode << 16).to_le_bytes(), local.to_le_bytes()].concat();
        for part in [b"PK\x01\x02\x14\x03", &member.common()[..], &[0; 6], &attributes, &member.name] {
            directory.extend_from_slice(part);
        }
    }
    end(out, &directory, members.len())
}

/// Adds a directory of so many entries, and the end.
fn end(mut out: Vec<u8>, directory: &[u8], entries: usize) -> Vec<u8> {
    let start = u32::try_from(out.len()).unwrap();
    let count = u16::try_from(entries).unwrap().to_le_bytes();
    let bytes = u32::try_from(directory.len()).unwrap().to_le_bytes();
    for part in [directory, b"PK\x05\x06\0\0\0\0", &count, &count, &bytes, &start.to_le_bytes(), &[0, 0]] {
        out.extend_from_slice(part);
    }
    out
}

/// Whether a run failed with an error that contains all of this.
#[track_caller]
fn refused(folder: &Folder, command: &str, told: &[&str]) {
    let ran = folder.run(command);
    assert!(ran.code == 6, "{command}: {ran:?}");
    assert!(told.iter().all(|told| ran.stderr.contains(told)), "{command}: {told:?} in {}", ran.stderr);
    assert!(ran.stderr.contains("hint: "), "{command}: {}", ran.stderr);
}

fn pets() -> Vec<Member> {
    vec![
        stored("cat/1.jpg", b"\xff\xd8\xff first"),
        member("cat/1.json", "{\"age\":1}"),
        Member { method: 93, ..member("dog/2.jpg", b"\xff\xd8\xff second") },
        member("dog/2.json", "{\"age\":2}"),
    ]
}

#[test]
fn members_are_the_files_of_a_folder_of_the_name_of_the_archive() {
    let folder = Folder::new();
    folder.write("pets.zip", zip(&pets()));
    for pet in pets() {
        folder.write(&format!("unpacked/pets.zip/{}", String::from_utf8(pet.name).unwrap()), pet.content);
    }
    for (options, number) in ["", "--label-from-folder --jobs 3", "--include **/dog/*"].into_iter().zip(0..) {
        folder.run(&format!("convert pets.zip --to tar --out packed{number} {options}")).ok();
        folder.run(&format!("convert unpacked --to tar --out plain{number} {options}")).ok();
        let (packed, plain) = (folder.members(&format!("packed{number}")), folder.members(&format!("plain{number}")));
        assert!(packed == plain && !packed.is_empty(), "{options}: {packed:?} {plain:?}");
    }
    let all = folder.run("convert pets.zip --out packed --to tar").ok();
    assert_eq!(all.stderr, "");
    assert!(folder.members("packed").contains_key("pets.zip/cat/1.jpg"));
    // A part of it, by its path and by a pattern.
    folder.run("convert pets.zip/dog --out dogs --to tar").ok();
    folder.run("convert pets.zip/dog/* --out dogs2 --to tar").ok();
    let dogs: Vec<String> = folder.members("dogs").into_keys().collect();
    assert_eq!(dogs, ["pets.zip/dog/2.jpg", "pets.zip/dog/2.json"]);
    assert_eq!(folder.members("dogs2").into_keys().collect::<Vec<_>>(), dogs);
    let none = folder.run("convert pets.zip/horse --out none");
    assert!(none.code == 2 && none.stderr.contains("no such file or folder in the archive"), "{none:?}");
}

#[test]
fn tables_in_archives_are_united_and_described() {
    let folder = Folder::new();
    folder.write("in/b.csv", "id,x\n5,6\n");
    folder.write("in/a.zip", zip(&[member("1.csv", "id,x\n1,2\n"), stored("deep/2.csv", "id,x\n3,4\n")]));
    let ran = folder.run("convert in --out d --json").ok().summary();
    assert_eq!(ran["records_out"].as_u64(), Some(3), "{ran}");
    let head = folder.run("head in/a.zip --json").ok();
    assert!(head.stdout.contains("\"id\":1") && head.stdout.contains("\"id\":3"), "{head:?}");
    let inspected = folder.run("inspect in --json").ok().summary();
    assert_eq!(inspected["files"].as_u64(), Some(3), "{inspected}");
    assert_eq!(folder.run("convert in --out d --dry-run --json").ok().code, 0);
    // Parquet is read in ranges, whether it is packed or not.
    let shard = folder.only_shards("d").remove(0).1;
    folder.write("p.zip", zip(&[member("one.parquet", &shard), stored("two.parquet", &shard)]));
    let ran = folder.run("convert p.zip --out p --json").ok().summary();
    assert_eq!(ran["records_out"].as_u64(), Some(6), "{ran}");
    // A table of labels may be in the archive of its pictures.
    folder.write("l.zip", zip(&[stored("1.jpg", "x"), member("labels.csv", "file_name,label\n1.jpg,cat\n")]));
    let labels = "file_name,label\nin/1.jpg,cat\nin/2.jpg,dog\n";
    folder.write("m.zip", zip(&[stored("in/1.jpg", "x"), stored("in/2.jpg", "y"), member("labels.csv", labels)]));
    for archive in ["l", "m"] {
        folder.run(&format!("convert {archive}.zip --labels {archive}.zip/labels.csv --to tar --out {archive}")).ok();
        let members = folder.members(archive);
        assert!(members.values().any(|bytes| bytes.ends_with(b"\"cat\"}")), "{members:?}");
    }
}

#[test]
fn an_archive_that_is_packed_anew_is_unchanged_and_a_changed_member_is_changed() {
    let folder = Folder::new();
    folder.write("a.zip", zip(&[member("1.csv", "a\n1\n"), member("2.csv", "a\n2\n")]));
    folder.run("convert a.zip --out d").ok();
    folder.write("a.zip", zip(&[stored("2.csv", "a\n2\n"), stored("1.csv", "a\n1\n"), member("3.csv", "a\n3\n")]));
    let again = folder.run("convert a.zip --out d --json").ok().summary();
    assert_eq!((again["records_in"].as_u64(), again["sources_unchanged"].as_u64()), (Some(1), Some(2)), "{again}");
    folder.write("a.zip", zip(&[member("1.csv", "a\n9\n"), member("2.csv", "a\n2\n"), member("3.csv", "a\n3\n")]));
    let changed = folder.run("convert a.zip --out d");
    assert!(changed.code != 0 && changed.stderr.contains("a.zip/1.csv"), "{changed:?}");
    folder.run("convert a.zip --out d --on-changed replace").ok();
}

#[test]
fn plans_of_archives_are_carried_out_by_tasks() {
    let folder = Folder::new();
    folder.write("a.zip", zip(&[member("1.csv", "a\n1\n"), stored("2.csv", "a\n2\n"), member("x/3.csv", "a\n3\n")]));
    let report = folder.run("plan convert a.zip --out d --task-size 1KiB --json").ok().summary();
    let plan = report["plan"].as_str().unwrap().to_owned();
    for task in 0..report["tasks"].as_u64().unwrap() {
        folder.run(&format!("run-task {plan} --task {task}")).ok();
    }
    let committed = folder.run(&format!("commit {plan} --json")).ok().summary();
    assert_eq!(committed["records_out"].as_u64(), Some(3), "{committed}");
}

#[test]
fn what_is_no_file_is_counted() {
    let folder = Folder::new();
    let link = Member { mode: 0o12_0777, ..stored("link.jpg", "1.jpg") };
    let members =
        [stored("d/", ""), stored("d/1.jpg", "x"), link, stored("__MACOSX/d/._1.jpg", "x"), stored("d/.DS_Store", "x")];
    folder.write("a.zip", zip(&members));
    let ran = folder.run("convert a.zip --out d --to tar --json").ok();
    assert_eq!(ran.summary()["files_passed_over"].as_u64(), Some(3), "{ran:?}");
    assert!(ran.stderr.contains("symbolic links in archives are not followed, found 1"), "{ran:?}");
    assert_eq!(folder.members("d").into_keys().collect::<Vec<_>>(), ["a.zip/d/1.jpg"]);
}

#[test]
fn bad_members_are_errors_by_name_and_rejects() {
    let good = || member("good.csv", "a\n1\n");
    let bad = |name: &str| member(name, "a\n2\n");
    for (bad, told) in [
        (bad("../up.csv"), "\"../up.csv\": the part `..`"),
        (bad("/top.csv"), "an absolute path"),
        (bad("a\\b.csv"), "a backslash"),
        (bad("C:b.csv"), "a drive letter"),
        (bad("a\0b.csv"), "a NUL character"),
        (Member { flags: 1, ..bad("secret.csv") }, "found `secret.csv` with one"),
        (Member { method: 99, ..bad("aes.csv") }, "found `aes.csv` with one"),
        (Member { method: 9, ..bad("d64.csv") }, "found `d64.csv` by deflate64"),
        (Member { method: 14, ..bad("lzma.csv") }, "found `lzma.csv` by lzma"),
        (bad("inner.zip"), "found another archive"),
        (Member { crc32: Some(7), ..bad("sum.csv") }, "expected the checksum 00000007 of the archive"),
        (
            Member { bytes: Some(3), ..bad("long.csv") },
            "expected 3 bytes, as the directory of the archive states, found more",
        ),
        (
            Member { bytes: Some(5), ..bad("short.csv") },
            "expected 5 bytes, as the directory of the archive states, found 4",
        ),
    ] {
        let folder = Folder::new();
        folder.write("a.zip", zip(&[good(), bad.clone()]));
        let ran = folder.run("convert a.zip --out d");
        assert!(
            [4, 5, 6].contains(&ran.code) && ran.stderr.contains(told) && ran.stderr.contains("a.zip"),
            "{told}: {ran:?}"
        );
        assert!(!folder.path().join("d").exists(), "{told}");
        let skipped = folder.run("convert a.zip --out d --on-error skip --json");
        assert_eq!(skipped.code, 3, "{told}: {skipped:?}");
        let summary = skipped.summary();
        assert!(
            summary["records_rejected"].as_u64() >= Some(1) && summary["records_out"].as_u64() >= Some(1),
            "{summary}"
        );
        folder.run("convert a.zip --out e --include good.csv").ok();
    }
}

#[test]
fn damaged_pictures_are_rejects() {
    let folder = Folder::new();
    let damaged = Member { crc32: Some(7), ..member("2.jpg", "two") };
    let stored_damaged = Member { crc32: Some(7), ..stored("3.jpg", "three") };
    folder.write("a.zip", zip(&[member("1.jpg", "one"), damaged, stored_damaged]));
    let ran = folder.run("convert a.zip --out d --to tar");
    assert!(ran.code != 0 && ran.stderr.contains("a.zip/2.jpg") && ran.stderr.contains("checksum"), "{ran:?}");
    let skipped = folder.run("convert a.zip --out d --to tar --on-error skip --json");
    assert_eq!((skipped.code, skipped.summary()["records_rejected"].as_u64()), (3, Some(2)), "{skipped:?}");
    // A stored table is compared before it is read in ranges.
    folder.write("t.csv", "a\n1\n2\n");
    folder.run("convert t.csv --out t").ok();
    let shard = folder.only_shards("t").remove(0).1;
    folder.write("p.zip", zip(&[Member { crc32: Some(7), ..stored("p.parquet", shard) }]));
    let ran = folder.run("convert p.zip --out p");
    assert!(ran.code != 0 && ran.stderr.contains("checksum 00000007"), "{ran:?}");
}

#[test]
fn bad_archives_are_errors_that_say_where() {
    let folder = Folder::new();
    let whole = zip(&pets());
    folder.write("cut.zip", &whole[..whole.len() - 40]);
    refused(&folder, "convert cut.zip --out d", &["cut.zip", "it is truncated"]);
    refused(&folder, "inspect cut.zip", &["cut.zip", "it is truncated"]);
    refused(&folder, "head cut.zip", &["cut.zip", "it is truncated"]);
    folder.write("twice.zip", zip(&[member("a.csv", "a\n1\n"), member("a.csv", "a\n2\n")]));
    refused(&folder, "convert twice.zip --out d", &["found `a.csv` twice"]);
    let mut disks = whole.clone();
    let at = disks.len() - 18;
    disks[at] = 1;
    folder.write("disks.zip", disks);
    refused(&folder, "convert disks.zip --out d", &["in one file"]);
    // The same bytes are the content of two members.
    let (one, two) = (member("a.csv", vec![b'1'; 10_000]), member("b.csv", vec![b'1'; 10_000]));
    let mut out = zip(std::slice::from_ref(&one));
    let directory_at = out.len() - 22 - 46 - 5;
    let mut directory = out.split_off(directory_at)[..51].to_vec();
    let second = [b"PK\x01\x02\x14\x03", &two.common()[..], &[0; 14], &two.name].concat();
    directory.extend_from_slice(&second);
    folder.write("bomb.zip", end(out, &directory, 2));
    refused(&folder, "convert bomb.zip --out d", &["bomb.zip", "one after the other", "do not trust it"]);
    // The local header contradicts the directory.
    let mut other = whole.clone();
    other[30] = b'x';
    folder.write("other.zip", other);
    refused(&folder, "convert other.zip --out d --to tar", &["other.zip/cat/1.jpg", "another name"]);
    folder.write("book.zip", zip(&[member("[Content_Types].xml", "x"), member("xl/workbook.xml", "x")]));
    refused(&folder, "convert book.zip --out d", &["a workbook or document of Office"]);
    folder
        .write("table.zip", zip(&[member("t/_delta_log/00000000000000000000.json", "{}"), member("t/a.parquet", "x")]));
    refused(&folder, "convert table.zip --out d", &["found a Delta table"]);
    folder.write("empty.zip", zip(&[]));
    assert_eq!(folder.run("convert empty.zip --out d").code, 2);
}

#[test]
fn archives_in_folders_stay_whole_with_from_files() {
    let folder = Folder::new();
    folder.write("in/1.zip", zip(&pets()));
    folder.write("in/1.txt", "x");
    folder.run("convert in --from files --to tar --out whole").ok();
    assert_eq!(folder.members("whole").into_keys().collect::<Vec<_>>(), ["1.txt", "1.zip"]);
    folder.run("convert in/1.zip --from files --to tar --out members").ok();
    assert_eq!(folder.members("members").len(), 4);
}

#[test]
fn the_number_of_threads_changes_no_byte() {
    let folder = Folder::new();
    let members: Vec<Member> = (0..300)
        .flat_map(|n| {
            let content = format!("{n} ").repeat(n * 7 + 1);
            [
                member(&format!("{:02}/{n:03}.txt", n % 7), &content),
                stored(&format!("{:02}/{n:03}.bin", n % 7), content),
            ]
        })
        .collect();
    folder.write("a.zip", zip(&members));
    for jobs in [1, 2, 8] {
        folder.run(&format!("convert a.zip --to tar --out j{jobs} --jobs {jobs}")).ok();
        assert_eq!(folder.shards_below_tags(&format!("j{jobs}")), folder.shards_below_tags("j1"), "{jobs}");
    }
}
