//! Files whose names say what they are and whose content does not bear it out: cut short, damaged, encrypted, or packed
//! in a way that is not read. They are errors that say so, and never files to be archived.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use insta::assert_snapshot;
use support::Folder;

/// Bytes that are neither text nor any format.
const NOISE: &[u8] = b"\x00\xff\x13\x37\x00\x80noise\x00\xfe";

#[test]
fn damaged_files_are_errors_that_name_the_way_out() {
    let folder = Folder::new();
    let compressed = [b"\x1f\x9d\x90", NOISE].concat();
    let zip = [b"PK\x03\x04", NOISE].concat();
    let encrypted = [b"PARE", NOISE, b"PARE"].concat();
    for (name, content, told) in [
        ("a.tar.Z", &compressed[..], "found data compressed by compress (.Z), which is not supported"),
        ("b.tar.Z", NOISE, "found bytes of no known format, beginning with 00 ff 13 37 00 80 6e 6f"),
        ("c.tar.lzo", NOISE, "found bytes of no known format, beginning with 00 ff 13 37 00 80 6e 6f"),
        ("d.csv.gz", zip.as_slice(), "expected records, as the name states, found a zip archive"),
        ("e.zip", NOISE, "expected a zip archive, as the name states, found bytes of no known format"),
        ("f.parquet", &encrypted[..], "expected a Parquet file, found an encrypted one"),
        ("g.parquet.encrypted", &encrypted[..], "expected a Parquet file, found an encrypted one"),
        ("h.parquet", b"", "found nothing, the file is empty"),
        ("i.json", b"[{\"a\":1,\"b\":2},\n{\"a\":2,\"b\":", "may have been cut short"),
        ("j.json", b"\"a\":1,\"b\":2},\n{\"a\":2,\"b\":3}]", "expected records, as the name states"),
        ("k.jsonl", b"\"a\":1,\"b\":2}\n{\"a\":2,\"b\":3}\n", "line 1, byte 0"),
        ("l.geojsonl", NOISE, "expected UTF-8 text, found byte 0xFF"),
    ] {
        folder.write(name, content);
        let ran = folder.run(&format!("convert {name} --out {name}.out"));
        assert_eq!(ran.code, 6, "{name}: {ran:?}");
        assert!(ran.stderr.contains(told) && ran.stderr.contains(name), "{name}: {}", ran.stderr);
        folder.run(&format!("convert {name} --out {name}.files --from files")).ok();
    }
    let ran = folder.run("convert b.tar.Z");
    assert_snapshot!(folder.redact(&ran.stderr), @r"
    error: expected records, as the name states, found bytes of no known format, beginning with 00 ff 13 37 00 80 6e 6f
       at: [FOLDER]/b.tar.Z
     hint: the file may be damaged: download it again, or skip it with --exclude
     hint: if it has another format, name it with --from; --from files converts all files as samples
    ");
}

#[test]
fn a_damaged_file_among_others_does_not_turn_them_into_samples() {
    let folder = Folder::new();
    folder.write("in/a.json", "[{\"a\":1}]");
    folder.write("in/b.json", "[{\"a\":2},{\"a\":");
    let ran = folder.run("convert in");
    assert_eq!(ran.code, 6);
    assert!(ran.stderr.contains("b.json, line 1"), "{}", ran.stderr);
    let skipped = folder.run("convert in --on-error skip --json");
    assert_eq!((skipped.code, skipped.summary()["records_out"].as_u64()), (3, Some(2)));
    folder.write("more/a.csv", "a,b\n1,2\n");
    folder.write("more/b.parquet", NOISE);
    assert_eq!(folder.run("convert more --out m").code, 6);
    let skipped = folder.run("convert more --out m --on-error skip --json");
    assert_eq!((skipped.code, skipped.summary()["records_out"].as_u64()), (3, Some(1)));
    // Among pictures anything that does not claim to hold records is a part of a sample.
    for name in ["1.jpg", "1.zip", "1.json", "2.bin", "2.xyz"] {
        folder.write(&format!("samples/{name}"), NOISE);
    }
    let samples = folder.run("convert samples --out s --json").ok();
    assert_eq!(samples.summary()["records_out"], 2);
}

#[test]
fn files_in_formats_that_are_not_read_are_no_samples_unless_it_is_said() {
    let folder = Folder::new();
    let recording = [&[0; 128], b"DICM".as_slice(), NOISE].concat();
    for (names, content, told) in [
        (["a/1.sas7bdat", "a/2.sas7bdat"], NOISE, "a SAS data set, which is not supported (and 1 more like it)"),
        (["b/1.pkl", "b/2.pt"], NOISE, "a Python pickle, which is not supported (and 1 more like it)"),
        (["c/1.dcm", "c/2.DCM"], &recording, "a DICOM file, which is not supported"),
        (["d/IM0001", "d/IM0002"], &recording, "a DICOM file, which is not supported"),
        (["e/1.grib2", "e/2.grb"], NOISE, "a GRIB file, which is not supported"),
        (["f/rows.csv", "f/model.rds"], NOISE, "`rows.csv` contains records, `model.rds` is an R object"),
    ] {
        let source = &names[0][..1];
        for name in names {
            folder.write(name, if name.ends_with("csv") { b"id,x\n1,2\n" } else { content });
        }
        let ran = folder.run(&format!("convert {source} --out {source}.out"));
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.contains(told) && ran.stderr.contains("--from files"), "{names:?}: {}", ran.stderr);
        folder.run(&format!("convert {source} --out {source}.files --from files")).ok();
    }
    // Parts of samples have such names, too.
    for name in ["1.jpg", "1.pkl", "2.jpg", "2.pkl"] {
        folder.write(&format!("samples/{name}"), NOISE);
    }
    assert_eq!(folder.run("convert samples --out s --json").ok().summary()["records_out"], 2);
}

#[test]
fn a_store_with_cut_metadata_is_an_error() {
    let folder = Folder::new();
    folder.write("s.zarr/zarr.json", "{\n  \"attributes\": {},\n  \"zarr_");
    folder.write("s.zarr/x/zarr.json", r#"{"zarr_format": 3, "node_type": "array"}"#);
    folder.write("s.zarr/x/c/0", "chunk");
    for source in ["s.zarr", "."] {
        let ran = folder.run(&format!("convert {source}"));
        assert_eq!(ran.code, 6, "{ran:?}");
        assert!(ran.stderr.contains("expected JSON in `zarr.json`"), "{}", ran.stderr);
    }
}

#[test]
fn lines_around_a_table_are_noted() {
    let folder = Folder::new();
    let number = std::cell::Cell::new(0);
    let read = |content: &str| {
        folder.write("a.csv", content);
        number.set(number.get() + 1);
        let ran = folder.run(&format!("convert a.csv --json --out o{}", number.get())).ok();
        let summary = ran.summary();
        let columns = summary["columns"].as_array().unwrap().iter().map(|c| c[0].as_str().unwrap().to_owned());
        let count = |name: &str| summary[name].as_u64().unwrap();
        let counts = [count("records_in"), count("blank_lines"), count("records_padded")];
        let events = ran.stderr.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let told = |event: serde_json::Value| {
            format!("{}: {}", event["type"].as_str().unwrap(), event["message"].as_str().unwrap())
        };
        (columns.collect::<Vec<_>>().join(" "), counts, events.map(told).collect::<Vec<_>>().join("\n"))
    };
    let none = String::new;
    assert_eq!(read("\n\na,b\n1,2\n\n"), ("a b".into(), [1, 3, 0], none()));
    assert_eq!(read("#a,b\n1,2\n"), ("#a b".into(), [1, 0, 0], none()));
    assert_eq!(read("# note\nname\n"), ("# note".into(), [1, 0, 0], none()));
    assert_eq!(
        read("## made, by, us\n\n# note\na,b\n1,2\n"),
        (
            "a b".into(),
            [1, 1, 0],
            "note: a.csv: 2 comment lines (`#`) before the table were skipped: `## made, by, us`, `# note`".into()
        )
    );
    assert_eq!(
        read("##x\n#a,b\n1,2\n"),
        ("#a b".into(), [1, 0, 0], "note: a.csv: 1 comment line (`#`) before the table was skipped: `##x`".into())
    );
    let (.., told) = read("a,b,c\n1,2,3\n# note\n4,5,6\n");
    assert!(told.starts_with("note: a.csv, line 3: this looks like a comment"), "{told}");
    let (_, counts, told) = read("\na,b,c\n1,2,3\n4,5");
    assert_eq!(counts, [2, 1, 1]);
    assert!(told.starts_with("note: a.csv, line 4: the last record has fewer fields than the header"), "{told}");
    // With an end of line it is a short record like any other.
    assert_eq!(read("a,b,c\n1,2,3\n4,5\n"), ("a b c".into(), [2, 0, 1], none()));
    let rows = "1,2024-01-01,a,0.5\n2,2024-01-02,b,1.5\n3,2024-01-03,c,2.5\n";
    let table = |more: &str| format!("id,day,town,rain\n{rows}{more}9,2024-02-01,d,3.5\n");
    let (_, counts, told) = read(&table("4;2024-01-04;x, y;3.5\n5;2024-01-05;z;3.5\n"));
    assert_eq!(counts, [6, 0, 0]);
    assert_eq!(
        told,
        "note: a.csv, line 5: a record uses another delimiter than the others and was read with it (and 1 more)"
    );
    let (_, counts, told) = read(&table(",,,\n"));
    assert_eq!(counts, [5, 0, 0]);
    assert_eq!(told, "note: a.csv, line 5: a line with nothing but delimiters was kept as a record without values");
    let (_, counts, told) = read(&table("id,day,town,rain\n"));
    assert_eq!(counts, [5, 0, 0]);
    assert!(
        told.contains("note: a.csv, line 5: this record is equal to the header, and was kept as a record"),
        "{told}"
    );
    let (columns, counts, told) = read(&format!("Report of the office\n\n{}", table("")));
    assert_eq!((&*columns, counts[0]), ("id day town rain", 4));
    assert_eq!(told, "note: a.csv: 1 line before the table was skipped: `Report of the office`");
    folder.write("a.csv", table("Source: own survey of all towns\n"));
    let refused = folder.run("convert a.csv");
    assert!(refused.code == 6 && refused.stderr.contains("line 5") && refused.stderr.contains("a note"), "{refused:?}");
    let skipped = folder.run("convert a.csv --json --on-error skip --out skipped");
    let count = |name: &str| skipped.summary()[name].as_u64().unwrap();
    assert_eq!([count("records_in"), count("records_out"), count("records_rejected")], [5, 4, 1]);
    folder.write("a.csv", table("4;2024-01-04;x;3.5\n"));
    let summary = folder.run("convert a.csv --json --out counted").ok().summary();
    assert_eq!(summary["records_repaired"].as_u64(), Some(1));
    // Lines of bad records are still counted from the first.
    folder.write("a.csv", "# note\n\na,b\n1,2\n1,2,3\n");
    assert!(folder.run("convert a.csv").stderr.contains("a.csv, line 5, byte"));
}
