//! `head`: the first records of everything that `convert` reads, and no id of a private dataset.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use support::{Folder, testdata_path};

/// The values of the records that `head --json` prints.
fn values(folder: &Folder, arguments: &str) -> Vec<serde_json::Value> {
    let objects = folder.run(&format!("head {arguments} --json")).ok().objects();
    objects.into_iter().filter(|object| object["type"] == "record").map(|mut object| object["values"].take()).collect()
}

#[test]
fn tables_of_every_format_have_the_same_first_records() {
    let folder = Folder::new();
    let of = |name: &str| testdata_path(&format!("inputs/{name}")).display().to_string();
    let expected = values(&folder, &format!("{} -n 3", of("people.csv")));
    assert_eq!(expected.len(), 3);
    for name in ["people.csv.gz", "people.csv.zst", "people.utf16.csv", "people.arrow", "people.parquet"] {
        assert_eq!(values(&folder, &format!("{} -n 3", of(name))), expected, "{name}");
    }
    let csv = std::fs::read(testdata_path("inputs/people.csv")).unwrap();
    for from in [&["--from", "csv"][..], &[]] {
        let ran = folder.run_input(&[&["head", "-", "-n", "3", "--json"], from].concat(), &csv).ok();
        assert_eq!(ran.objects()[2]["values"], expected[2], "{from:?}");
    }
    for to in ["parquet", "tar", "tfrecord"] {
        folder.run(&format!("convert {} --out {to} --to {to}", of("people.csv"))).ok();
        assert_eq!(values(&folder, &format!("{to} -n 3")), expected, "{to}");
    }
}

#[test]
fn a_table_fits_forty_columns_and_wide_records_become_lists() {
    let folder = Folder::new();
    let long = "x".repeat(300);
    folder.write("a.csv", format!("id,name,note\n1,日本語日本語,{long}\n22,Ada,\n"));
    let names: Vec<String> = (0..40).map(|n| format!("column_{n}")).collect();
    folder.write("wide.csv", format!("{}\n{}\n", names.join(","), vec!["7"; 40].join(",")));
    for (source, first) in [("a.csv", "id"), ("wide.csv", "record 1")] {
        let text = std::process::Command::new(env!("CARGO_BIN_EXE_shardify"))
            .args(["head", source])
            .current_dir(folder.path())
            .env("COLUMNS", "40")
            .output()
            .unwrap();
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.trim_start().starts_with(first), "{text}");
        let wide = |line: &&str| unicode_columns(line) > 40;
        assert_eq!(text.lines().filter(wide).count(), 0, "{text}");
        assert!(text.contains("int64"), "{text}");
    }
}

/// Columns of a line whose characters are ASCII, or of East Asian scripts, or the sign of a cut.
fn unicode_columns(line: &str) -> usize {
    line.chars().map(|c| if c.is_ascii() || c == '…' { 1 } else { 2 }).sum()
}

#[test]
fn a_value_that_needs_a_wider_type_is_shown() {
    let folder = Folder::new();
    // Types are inferred from the first 256 KiB, and the text is behind them.
    let rows: String = (0..9_000).map(|n| format!("{n},{}\n", "y".repeat(40))).collect();
    folder.write("a.csv", format!("n,pad\n{rows}text,z\n"));
    let shown = values(&folder, "a.csv -n 9001");
    assert_eq!(shown.len(), 9_001);
    assert_eq!(shown[9_000]["n"], "text");
}

#[test]
fn rejected_records_are_counted_and_rows_keep_their_numbers() {
    let folder = Folder::new();
    folder.write("a.csv", "a,b\n1,2\n1,2,3,4\n5,6\n");
    let ran = folder.run("head a.csv --json").ok();
    assert_eq!(ran.summary()["rejected"], 1);
    let rows: Vec<_> = ran.objects().iter().filter_map(|object| object["row"].as_u64()).collect();
    assert_eq!(rows, [1, 3]);
    assert!(ran.stderr.contains("record 2 of a.csv"), "{}", ran.stderr);
}

#[test]
fn samples_are_members_with_types_and_sizes() {
    let folder = Folder::new();
    folder.write("in/s/1.png", b"\x89PNG\r\n\x1a\nxyz");
    folder.write("in/s/1.json", r#"{"label": 3}"#);
    folder.copy("arrays/cube.npy", "in/s/1.npy");
    folder.write("in/s/2.cls", "7");
    folder.run("convert in --out tar --to tar --from files").ok();
    folder.run("convert in --out tf --to tfrecord --from files").ok();
    for source in ["in --from files", "tar", "tf"] {
        let objects = folder.run(&format!("head {source} --json")).ok().objects();
        let parts = &objects[0]["parts"];
        assert_eq!(objects[0]["key"], "s/1", "{source}: {objects:?}");
        assert_eq!((&parts[0]["name"], &parts[0]["text"]), (&"s/1.json".into(), &r#"{"label": 3}"#.into()), "{source}");
        assert_eq!(
            (&parts[1]["dtype"], &parts[1]["shape"]),
            (&"int16".into(), &serde_json::json!([4, 3, 2])),
            "{source}"
        );
        assert_eq!((&parts[2]["media"], &parts[2]["bytes"]), (&"image/png".into(), &11.into()), "{source}");
        let text = folder.run(&format!("head {source} -n 1")).ok().stdout;
        assert!(text.contains("image/png") && text.contains("{\"label\": 3}") && !text.contains("s/2"), "{text}");
    }
}

#[test]
fn arrays_are_types_and_shapes() {
    let folder = Folder::new();
    let grid = testdata_path("arrays/grid.nc").display().to_string();
    let text = folder.run(&format!("head {grid} -n 1")).ok().stdout;
    assert!(text.contains("float32[3, 4]"), "{text}");
    let shown = values(&folder, &format!("{grid} -n 1"));
    assert_eq!(shown[0]["t2m"], serde_json::json!({"dtype": "float32", "shape": [3, 4]}));
}

#[test]
fn ids_of_private_datasets_are_hidden() {
    let folder = Folder::new();
    folder.write("key", [7; 32]);
    folder.write("a.csv", "who,name,value\nPAT-1,Ada,3\n");
    folder.write("in/PAT-1.json", r#"{"who": "PAT-1"}"#);
    for (number, mode) in ["hmac", "sealed"].into_iter().enumerate() {
        for to in ["parquet", "tar", "tfrecord"] {
            let out = format!("{to}{number}");
            let private = format!("--id-mode {mode} --id-key key");
            folder.run(&format!("convert a.csv --out {out} --to {to} --id name --subject who {private}")).ok();
            folder.run(&format!("convert in --out files-{out} --to {to} --from files {private}")).ok();
            for shown in [out.clone(), format!("{out} --json"), format!("files-{out}"), format!("files-{out} --json")] {
                let text = folder.run(&format!("head {shown}")).ok().stdout;
                assert!(!text.contains("PAT-1") && !text.contains("Ada"), "{shown}: {text}");
            }
            assert_eq!(values(&folder, &out)[0]["value"], 3);
        }
    }
    folder.run("convert a.csv --out plain --id name --subject who").ok();
    assert_eq!(values(&folder, "plain")[0]["who"], "PAT-1");
}

#[test]
fn a_version_or_a_tag_can_be_shown() {
    let folder = Folder::new();
    folder.write("a.csv", "v\n1\n");
    folder.write("b.csv", "v\n2\n");
    folder.run("convert a.csv").ok();
    folder.run("manifest --tag first").ok();
    folder.run("convert b.csv").ok();
    assert_eq!(values(&folder, "shards").len(), 2);
    for at in ["v1", "first"] {
        assert_eq!(values(&folder, &format!("shards --at {at}")).len(), 1, "{at}");
    }
    assert_eq!(folder.run("head").ok().stdout.lines().count(), 4, "the default is ./shards");
    assert_eq!(folder.run("head a.csv --at v1").code, 2);
    assert_eq!(folder.run("head nothing").code, 2);
    assert_eq!(folder.run("head shards -n 0").code, 2);
}
