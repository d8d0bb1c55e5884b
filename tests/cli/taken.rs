//! What is taken of folders and archives, and what is not: links, leftovers of systems, metadata and stores of other
//! tools, names that are alike. What holds data and is not taken is named.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::collections::BTreeMap;

use tar::EntryType;

use crate::support::{Folder, Ran};

/// An archive of members: name, type, and content or target.
fn archive(members: &[(&str, EntryType, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, text) in members {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        if kind.is_hard_link() || kind.is_symlink() {
            header.set_size(0);
            builder.append_link(&mut header, name, text).unwrap();
        } else {
            header.set_size(text.len() as u64);
            builder.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
    }
    builder.into_inner().unwrap()
}

const FILE: EntryType = EntryType::Regular;
const HARD: EntryType = EntryType::Link;
const SYMBOLIC: EntryType = EntryType::Symlink;

#[track_caller]
fn refused(ran: &Ran, code: i32, texts: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    for text in texts {
        assert!(ran.stderr.contains(text), "expected `{text}` in {}", ran.stderr);
    }
}

fn texts(folder: &Folder, dataset: &str) -> BTreeMap<String, String> {
    folder.members(dataset).into_iter().map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap())).collect()
}

fn is(members: &[(&str, &str)]) -> BTreeMap<String, String> {
    members.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn links_of_an_archive_have_the_content_of_their_targets() {
    let folder = Folder::new();
    let members = [
        ("0.jpg", HARD, "1.jpg"),
        ("0.txt", FILE, "zero"),
        ("1.jpg", FILE, "picture"),
        ("2.jpg", SYMBOLIC, "d/3.jpg"),
        ("d/3.jpg", HARD, "1.jpg"),
    ];
    let expected = is(&[
        ("0.jpg", "picture"),
        ("0.txt", "zero"),
        ("1.jpg", "picture"),
        ("2.jpg", "picture"),
        ("d/3.jpg", "picture"),
    ]);
    let bytes = archive(&members);
    folder.write("a.tar", &bytes);
    folder.write("b.tar.zst", zstd::encode_all(&bytes[..], 1).unwrap());
    for (source, dataset) in [("a.tar", "a"), ("b.tar.zst", "b"), ("a.tar --jobs 1 --to parquet", "p")] {
        let summary = folder.run(&format!("convert {source} --out {dataset} --json")).ok().summary();
        assert_eq!((&summary["records_in"], &summary["records_out"]), (&4.into(), &4.into()), "{source}");
        folder.run(&format!("verify {dataset} --read-data")).ok();
    }
    assert_eq!((texts(&folder, "a"), texts(&folder, "b")), (expected.clone(), expected.clone()));
    folder.run("convert p --out back --to tar").ok();
    assert_eq!(texts(&folder, "back"), expected);
    // Standard input can be read but once.
    let ran = folder.run_input(&["convert", "-", "--from", "tar", "--out", "s"], &bytes);
    assert_eq!((ran.code, texts(&folder, "s")), (0, expected));
}

#[test]
fn links_to_no_file_of_the_archive_reject_their_sample_by_name() {
    let folder = Folder::new();
    let members = [
        ("1.jpg", SYMBOLIC, "/etc/passwd"),
        ("1.txt", FILE, "one"),
        ("2.jpg", SYMBOLIC, "2.jpg"),
        ("3.txt", FILE, "three"),
    ];
    folder.write("a.tar", archive(&members));
    let named = "expected the content of `1.jpg`, found a link to `/etc/passwd`, which is not in the archive";
    refused(&folder.run("convert a.tar --out a"), 6, &[named, "--on-error skip"]);
    let ran = folder.run("convert a.tar --out a --on-error quarantine --json");
    let counts = ["records_in", "records_out", "records_rejected"].map(|name| ran.summary()[name].as_u64().unwrap());
    assert_eq!((ran.code, counts), (3, [3, 1, 2]));
    assert_eq!(texts(&folder, "a"), is(&[("3.txt", "three")]));
}

#[test]
fn archives_that_loaders_read_otherwise_are_not_adopted() {
    let folder = Folder::new();
    folder.write("links/a.tar", archive(&[("0.jpg", FILE, "x"), ("1.jpg", HARD, "0.jpg")]));
    folder.write("twice/a.tar", archive(&[("0.jpg", FILE, "x"), ("0.jpg", FILE, "y")]));
    folder.write(
        "apart/a.tar",
        archive(&[("0.a", FILE, "x"), ("1.a", FILE, "y"), ("0.b", FILE, "z"), ("1.b", FILE, "w")]),
    );
    refused(&folder.run("adopt links --out l"), 6, &["expected `1.jpg` to be a plain file, found a link to `0.jpg`"]);
    refused(
        &folder.run("adopt twice --out t"),
        6,
        &["expected one file with extension `jpg` in a sample, found another"],
    );
    let ran = folder.run("adopt apart --out a").ok();
    assert!(
        ran.stderr.contains("2 samples have the key of an earlier sample, the first of them samples 1 and 3"),
        "{ran:?}"
    );
    let ran = folder.run("convert apart --out c").ok();
    assert!(ran.stderr.contains("2 of 4 samples have the key of an earlier sample, first `0`"), "{ran:?}");
}

#[test]
fn members_of_one_name_are_named_wherever_they_are() {
    let folder = Folder::new();
    let mut members = vec![("first.jpg", FILE, "0"), ("a.jpg", FILE, "1"), ("a.txt", FILE, "x")];
    members.extend([("b.jpg", FILE, "2"), ("c.jpg", FILE, "3"), ("a.jpg", FILE, "4"), ("a.txt", FILE, "y")]);
    folder.write("far.tar", archive(&members));
    for options in ["", "--to parquet", "--split train=0.5,val=0.5"] {
        let ran = folder.run(&format!("convert far.tar --out o{} {options} --json", options.len())).ok();
        assert_eq!(ran.summary()["records_out"], 5);
        let told = "far.tar: 1 of 5 samples has the key of an earlier sample, first `a`; 2 members have the name of \
         an earlier member, first `a.jpg`: both hold data and are records of their own";
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
    folder.write("near.tar", archive(&[("a.jpg", FILE, "1"), ("a.jpg", FILE, "4"), ("b.jpg", FILE, "2")]));
    refused(&folder.run("convert near.tar --out n"), 6, &["for key `a`, found another, `a.jpg`", "near.tar"]);
    let ran = folder.run("convert near.tar --out n --on-error quarantine --json");
    assert_eq!(
        (ran.code, &ran.summary()["records_rejected"], &ran.summary()["records_out"]),
        (3, &1.into(), &1.into())
    );
    let inspected = folder.run("inspect far.tar --json").ok();
    assert!(inspected.stdout.contains("1 of 5 samples has the key of an earlier sample, first `a`"), "{inspected:?}");
}

#[test]
fn leftovers_of_systems_are_no_records() {
    let folder = Folder::new();
    let files = [
        "1.png",
        "._1.png",
        ".DS_Store",
        "Thumbs.db",
        "__MACOSX/._1.png",
        "@eaDir/1.png/THUMB.jpg",
        "desktop.ini",
        "d/Icon\r",
    ];
    for name in files {
        folder.write(&format!("in/{name}"), name);
    }
    let members: Vec<_> = files.iter().map(|name| (*name, FILE, *name)).collect();
    folder.write("in.tar", archive(&members));
    let ran = folder.run("convert in --out f").ok();
    assert_eq!(texts(&folder, "f"), is(&[("1.png", "1.png")]));
    assert!(ran.stderr.contains("ignored files that are hidden or leftovers of a system: `"), "{ran:?}");
    let ran = folder.run("convert in.tar --out t --json").ok();
    assert_eq!((texts(&folder, "t"), &ran.summary()["entries_passed_over"]), (is(&[("1.png", "1.png")]), &7.into()));
    assert!(ran.stderr.contains("`._1.png`, `.DS_Store`, `Thumbs.db`"), "{ran:?}");
    for name in ["a.csv", "._a.csv", "~$a.csv", "Thumbs.db", ".~lock.a.csv#"] {
        folder.write(&format!("tables/{name}"), "a,b\n1,2\n");
    }
    assert_eq!(folder.run("convert tables --out r --json").ok().summary()["records_out"], 1);
}

#[test]
fn metadata_of_other_tools_are_no_records() {
    let folder = Folder::new();
    folder.copy("inputs/people.arrows", "saved/train/data-00000-of-00001.arrow");
    folder.write("saved/train/state.json", r#"{"_split": "train"}"#);
    folder.write("saved/train/dataset_info.json", r#"{"features": {}}"#);
    folder.write("saved/dataset_dict.json", r#"{"splits": ["train"]}"#);
    let ran = folder.run("convert saved --out s --json").ok();
    assert_eq!((&ran.summary()["records_in"], &ran.summary()["files_passed_over"]), (&3.into(), &3.into()));
    assert!(ran.stderr.contains("files of Hugging Face datasets"), "{ran:?}");
    assert!(ran.stderr.contains("`saved/dataset_dict.json`") || ran.stderr.contains("`dataset_dict.json`"), "{ran:?}");
    // Alone, such names say nothing.
    folder.write("alone/state.json", r#"{"a": 1}"#);
    assert_eq!(folder.run("convert alone --out a --json").ok().summary()["records_out"], 1);
}

#[test]
fn stores_and_tables_of_unsupported_formats_are_refused_by_name() {
    let folder = Folder::new();
    folder.write("x.zarr/zarr.json", "{}");
    folder.write("x.zarr/t/c/0", "x");
    folder.write("l/_versions/1.manifest", "x");
    folder.write("l/data/0.lance", "x");
    folder.write("m/index.json", r#"{"version": 2, "shards": []}"#);
    folder.write("m/shard.00000.mds", "x");
    folder.write("c/index.json", r#"{"chunks": []}"#);
    folder.write("c/chunk-0-0.bin", "x");
    folder.write("t/a.dta", "<stata_dta>");
    folder.write("t/b.dta", "<stata_dta>");
    folder.write("s/x.db", "SQLite format 3\0 and so on");
    for (source, what) in [
        ("x.zarr", "a Zarr store without readable metadata"),
        ("l", "a Lance dataset"),
        ("m", "MosaicML's MDS"),
        ("c", "LitData"),
        ("t", "a Stata data set"),
        ("t/a.dta", "a Stata data set"),
        ("s", "an SQLite database"),
    ] {
        refused(&folder.run(&format!("convert {source} --out o")), 6, &[what, "--from files"]);
    }
    assert_eq!(folder.run("convert t --from files --out f --json").ok().summary()["records_out"], 2);
    // Beside pictures, such a file is a part of a sample.
    folder.write("p/a.dta", "x");
    folder.write("p/a.jpg", "x");
    assert_eq!(folder.run("convert p --out p-out --json").ok().summary()["records_out"], 1);
}

#[test]
fn one_wrong_byte_does_not_make_a_table_an_opaque_file() {
    let folder = Folder::new();
    let mut text = b"pid\tstart\tname\n".to_vec();
    for i in 0..60 {
        text.extend(format!("{}\t2005-01-0{}\tallergy {i}\n", 1000 + i, 1 + i % 9).bytes());
    }
    folder.write("good.txt", &text);
    assert_eq!(folder.run("convert good.txt --out good --json").ok().summary()["records_in"], 60);
    text[500] ^= 0x80;
    for name in ["bad.txt", "bad"] {
        folder.write(name, &text);
        refused(&folder.run(&format!("convert {name} --out o")), 6, &["UTF-8", "line 20", "--read encoding"]);
        let ran = folder.run(&format!("convert {name} --out {name}-out --on-error skip --json"));
        assert_eq!(
            (ran.code, &ran.summary()["records_in"], &ran.summary()["records_out"]),
            (3, &60.into(), &59.into())
        );
    }
}

#[test]
fn files_in_folders_split_by_split_are_joined_by_a_rule() {
    let folder = Folder::new();
    for i in 0..3 {
        folder.write(&format!("yolo/images/train/{i}.jpg"), "J");
        folder.write(&format!("yolo/labels/train/{i}.txt"), "L");
        folder.write(&format!("seg/images/{i}.png"), "I");
        folder.write(&format!("seg/masks/{i}.png"), "M");
        folder.write(&format!("classes/cats/{i}.png"), "M");
        folder.write(&format!("classes/dogs/{i}.png"), "M");
    }
    let ran = folder.run("convert yolo --out apart").ok();
    assert!(ran.stderr.contains("--key '(?:images|labels)/(.*)'"), "{ran:?}");
    let ran = folder.run("convert yolo --key (?:images|labels)/(.*) --out yolo-out --json").ok();
    assert!(!ran.stderr.contains("side by side"), "{ran:?}");
    assert_eq!(ran.summary()["records_out"], 3);
    assert_eq!(
        texts(&folder, "yolo-out").keys().collect::<Vec<_>>(),
        ["train/0.jpg", "train/0.txt", "train/1.jpg", "train/1.txt", "train/2.jpg", "train/2.txt"]
    );
    let found = folder.run("manifest yolo-out --find train/1 --json").ok();
    assert!(found.stdout.contains("{images/train/1.jpg,labels/train/1.txt}"), "{found:?}");
    assert_eq!(folder.run("convert yolo --out yolo-out --json").ok().summary()["records_in"], 0);
    assert_eq!(folder.run("erase yolo-out train/1 --json").ok().summary()["records_erased"], 1);
    assert_eq!(folder.run("remove yolo-out --source labels/train/2.txt --json").ok().summary()["records"], 1);
    assert_eq!(folder.run("verify yolo-out --read-data --json").ok().summary()["records"], 1);
    let ran = folder.run("convert seg --out seg-apart").ok();
    assert!(ran.stderr.contains("--key '(?<part>images|masks)/(.*)'"), "{ran:?}");
    folder.run("convert seg --key (?<part>images|masks)/(.*) --out seg-out").ok();
    let both = texts(&folder, "seg-out");
    assert_eq!((both.len(), &both["0.images.png"], &both["0.masks.png"]), (6, &"I".to_owned(), &"M".to_owned()));
    refused(
        &folder.run("convert seg --key (?:images|masks)/(.*) --out both"),
        6,
        &["`images/0.png` and `masks/0.png`"],
    );
    assert!(!folder.run("convert classes --out classes-out").ok().stderr.contains("side by side"));
}

#[test]
fn names_that_collapse_or_look_alike_are_told() {
    let folder = Folder::new();
    for name in ["crop_0.01.jpg", "crop_0.02.jpg", "a.jpg", "a.txt"] {
        folder.write(&format!("in/{name}"), name);
    }
    let ran = folder.run("convert in --out i").ok();
    assert!(ran.stderr.contains("2 files, such as `crop_0.01.jpg` and `crop_0.02.jpg`, become one sample"), "{ran:?}");
    folder.write("forms/caf\u{e9}.jpg", "composed");
    folder.write("forms/cafe\u{301}.jpg", "decomposed");
    let ran = folder.run("convert forms --out f --json").ok();
    assert!(ran.stderr.contains("differ only in the normal form of Unicode"), "{ran:?}");
    assert_eq!(ran.summary()["records_out"], 2);
}

#[test]
fn tables_that_have_little_in_common_are_told() {
    let folder = Folder::new();
    folder.write("feed/agency.csv", "agency_id,agency_name\n1,Metro\n");
    folder.write("feed/stops.csv", "stop_id,stop_name,stop_lat\nA,First,1.5\n");
    folder.write("feed/trips.csv", "route_id,service_id,trip_id\nR,S,T\n");
    let ran = folder.run("convert feed --out f").ok();
    assert!(ran.stderr.contains("0 of 8 columns in common"), "{ran:?}");
    assert!(ran.stderr.contains("--include 'agency.csv'"), "{ran:?}");
    folder.write("days/1.csv", "id,x\n1,2\n");
    folder.write("days/2.csv", "id,x,y\n1,2,3\n");
    assert!(!folder.run("convert days --out d").ok().stderr.contains("in common"));
}
