//! Datasets of arrays over their life: added to, compacted, sorted, vacuumed, erased from, and converted into others;
//! what is the same for all records stays beside them.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests fail loudly and clear away their own inputs"
)]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};

use support::Folder;

const CONSTANTS: &str = "_constants.arrow";

/// A Zarr store with `v(t, y)` counting from `first`, and `y(y)`, which is the same for all records.
fn grid(folder: &Folder, path: &str, times: usize, y: &[f32], first: i32) {
    let put = |name: &str, content: &[u8]| {
        folder.write(&format!("{path}/{name}"), content);
    };
    let array = |name: &str, shape: &[usize], dtype: &str, dims: &str, content: Vec<u8>| {
        put(
            &format!("{name}/.zarray"),
            format!(
                r#"{{"zarr_format":2,"shape":{shape:?},"chunks":{shape:?},"dtype":"{dtype}","compressor":null,"fill_value":0,"order":"C","filters":null}}"#
            )
            .as_bytes(),
        );
        put(&format!("{name}/.zattrs"), format!(r#"{{"_ARRAY_DIMENSIONS":{dims}}}"#).as_bytes());
        put(&format!("{name}/{}", vec!["0"; shape.len()].join(".")), &content);
    };
    put(".zgroup", br#"{"zarr_format":2}"#);
    let values = (first..).take(times * y.len()).flat_map(i32::to_le_bytes).collect();
    array("v", &[times, y.len()], "<i4", r#"["t","y"]"#, values);
    array("y", &[y.len()], "<f4", r#"["y"]"#, y.iter().flat_map(|y| y.to_le_bytes()).collect());
}

/// Folders of a dataset with shards, and their constants.
fn constants(folder: &Folder, dataset: &str) -> BTreeMap<String, Option<Vec<u8>>> {
    let shards = folder.only_shards(dataset);
    let folders: BTreeSet<&str> = shards.iter().map(|(path, _)| path.rsplit_once('/').unwrap().0).collect();
    let content = |of: &str| std::fs::read(folder.path().join(dataset).join(of).join(CONSTANTS)).ok();
    folders.into_iter().map(|of| (of.to_owned(), content(of))).collect()
}

/// All files of that name below a dataset.
fn files_of_constants(folder: &Folder, dataset: &str) -> usize {
    let folders = std::fs::read_dir(folder.path().join(dataset)).unwrap().flatten();
    folders.filter(|entry| entry.path().join(CONSTANTS).exists()).count()
}

/// Adds grids one by one.
fn add(folder: &Folder, dataset: &str, format: &str, grids: std::ops::Range<i32>, y: &[f32]) {
    for number in grids {
        grid(folder, &format!("in/g{number}.zarr"), 2, y, number * 100);
        let command =
            format!("convert in/g{number}.zarr --out {dataset} --to {format} --read record-dim=t --accept constants");
        folder.run(&command).ok();
    }
}

/// What is in each tensor of a record, in record order.
fn values(folder: &Folder, dataset: &str, format: &str) -> Vec<Vec<u8>> {
    let out = format!("{dataset}-values");
    let _ = std::fs::remove_dir_all(folder.path().join(&out));
    let tar = match format {
        "tar" => dataset,
        _ => {
            folder.run(&format!("convert {dataset} --out {out} --to tar")).ok();
            &out
        }
    };
    // Members of live shards alone: the dataset may hold older ones.
    let live: BTreeSet<String> = folder
        .run(&format!("manifest {tar} --list --json"))
        .ok()
        .objects()
        .iter()
        .filter_map(|o| Some(o["path"].as_str()?.to_owned()))
        .collect();
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for (path, bytes) in folder.only_shards(tar) {
        if !live.iter().any(|live| path.ends_with(live)) {
            continue;
        }
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            if name.ends_with(".v.npy") {
                found.push((name, content[content.len() - 8..].to_vec()));
            } else if name.ends_with(".v") {
                found.push((name, content));
            }
        }
    }
    let mut values: Vec<Vec<u8>> = found.into_iter().map(|(_, content)| content).collect();
    values.sort();
    values
}

#[test]
fn constants_follow_their_records_through_compaction_and_vacuum() {
    let folder = Folder::new();
    for format in ["parquet", "tar", "tfrecord"] {
        let _ = std::fs::remove_dir_all(folder.path().join("in"));
        add(&folder, format, format, 0..6, &[1.0, 2.0]);
        let before = constants(&folder, format);
        let content = before.values().next().unwrap().clone().unwrap();
        assert!(before.len() == 6 && before.values().all(|other| other.as_ref() == Some(&content)), "{format}");
        let summary = folder.run(&format!("compact {format} --json")).ok().summary();
        assert_eq!((summary["shards_after"].as_u64(), summary["records_out"].as_u64()), (Some(1), Some(12)));
        assert_eq!(files_of_constants(&folder, format), 7, "{format}");
        folder.run(&format!("vacuum {format} --force --retain 0s")).ok();
        let after = constants(&folder, format);
        assert_eq!(after.into_values().collect::<Vec<_>>(), [Some(content)], "{format}");
        assert_eq!(files_of_constants(&folder, format), 1, "{format}");
        folder.run(&format!("verify {format} --read-data")).ok();
    }
}

#[test]
fn shards_of_other_constants_are_not_merged() {
    let folder = Folder::new();
    for format in ["parquet", "tar", "tfrecord"] {
        let _ = std::fs::remove_dir_all(folder.path().join("in"));
        add(&folder, format, format, 0..5, &[1.0, 2.0]);
        add(&folder, format, format, 5..10, &[1.0, 7.0]);
        add(&folder, format, format, 10..12, &[1.0, 2.0]);
        let kinds: BTreeSet<Option<Vec<u8>>> = constants(&folder, format).into_values().collect();
        assert_eq!(kinds.len(), 2);
        let summary = folder.run(&format!("compact {format} --json")).ok().summary();
        assert_eq!((summary["shards_after"].as_u64(), summary["records_out"].as_u64()), (Some(2), Some(24)));
        folder.run(&format!("vacuum {format} --force --retain 0s")).ok();
        let after = constants(&folder, format);
        assert_eq!(after.len(), 2, "{format}: {:?}", after.keys());
        assert_eq!(after.into_values().collect::<BTreeSet<_>>(), kinds, "{format}");
        folder.run(&format!("verify {format} --read-data")).ok();
        // Nothing is left to do.
        assert_eq!(folder.run(&format!("compact {format} --json")).ok().summary()["shards_removed"], 0);
    }
    let sorted = folder.run("compact parquet --zorder t,u --json");
    assert_ne!(sorted.code, 0);
}

#[test]
fn tasks_of_a_compaction_keep_constants_apart() {
    for (format, size) in [("parquet", "1KiB"), ("tar", "8GiB"), ("tfrecord", "8GiB")] {
        let folder = Folder::new();
        add(&folder, "ds", format, 0..5, &[1.0, 2.0]);
        add(&folder, "ds", format, 5..10, &[1.0, 7.0]);
        let kinds: BTreeSet<Option<Vec<u8>>> = constants(&folder, "ds").into_values().collect();
        let report = folder.run(&format!("plan compact ds --task-size {size} --json")).ok().summary();
        // Folders hold shards of one kind of constants, and a task has one folder.
        assert_eq!(report["tasks"], 2, "{report}");
        let plan = report["plan"].as_str().unwrap();
        folder.run(&format!("run-task {plan} --task 0..1")).ok();
        let summary = folder.run(&format!("commit {plan} --json")).ok().summary();
        assert_eq!((summary["shards_after"].as_u64(), summary["records_out"].as_u64()), (Some(2), Some(20)));
        folder.run("vacuum ds --force --retain 0s").ok();
        let after = constants(&folder, "ds");
        assert_eq!(after.len(), 2, "{format}: {:?}", after.keys());
        assert_eq!(after.into_values().collect::<BTreeSet<_>>(), kinds, "{format}");
        folder.run("verify ds --read-data").ok();
    }
}

#[test]
fn sorting_keeps_constants_apart() {
    let folder = Folder::new();
    for (number, y) in [(0, 1.0), (1, 1.0), (2, 5.0), (3, 5.0)] {
        let path = format!("in/g{number}.zarr");
        grid(&folder, &path, 2, &[y, 2.0], number);
        let times: Vec<u8> = [9 - number, 3 - number].into_iter().flat_map(i32::to_le_bytes).collect();
        let array = r#"{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"<i4","compressor":null,"fill_value":0,"order":"C","filters":null}"#;
        folder.write(&format!("{path}/t/.zarray"), array);
        folder.write(&format!("{path}/t/.zattrs"), r#"{"_ARRAY_DIMENSIONS":["t"]}"#);
        folder.write(&format!("{path}/t/0"), times);
        folder.run(&format!("convert {path} --out d --read record-dim=t --accept constants")).ok();
    }
    let before: BTreeSet<_> = constants(&folder, "d").into_values().collect();
    let summary = folder.run("compact d --sort-by t --min-inputs 2 --json").ok().summary();
    assert_eq!((summary["shards_after"].as_u64(), summary["records_out"].as_u64()), (Some(2), Some(8)));
    folder.run("vacuum d --force --retain 0s").ok();
    let after = constants(&folder, "d");
    assert_eq!((after.len(), after.into_values().collect::<BTreeSet<_>>()), (2, before));
    folder.run("verify d --read-data").ok();
}

#[test]
fn a_dataset_of_arrays_becomes_another_with_its_constants() {
    let folder = Folder::new();
    add(&folder, "d", "parquet", 0..6, &[1.0, 2.0]);
    folder.run("compact d").ok();
    let content = constants(&folder, "d").into_values().next().unwrap();
    let expected = values(&folder, "d", "parquet");
    assert_eq!(expected.len(), 12);
    for format in ["tar", "tfrecord", "parquet"] {
        let summary = folder.run(&format!("convert d --out {format} --to {format} --json")).ok().summary();
        assert_eq!(summary["records_out"], 12, "{format}");
        assert_eq!(
            constants(&folder, format).into_values().collect::<Vec<_>>(),
            std::slice::from_ref(&content),
            "{format}"
        );
    }
    assert_eq!(values(&folder, "parquet", "parquet"), expected);
    assert_eq!(values(&folder, "tar", "tar"), expected);
    add(&folder, "d", "parquet", 6..7, &[1.0, 9.0]);
    let ran = folder.run("convert d --out mixed --to tar");
    assert!(ran.code == 6 && ran.stderr.contains("same constants"), "{ran:?}");
}

#[test]
fn arrays_of_another_shape_are_not_added() {
    let folder = Folder::new();
    add(&folder, "d", "parquet", 0..1, &[1.0, 2.0]);
    grid(&folder, "in/other.zarr", 2, &[1.0, 2.0, 3.0], 0);
    let ran = folder.run("convert in/other.zarr --out d --read record-dim=t");
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("[2]") && ran.stderr.contains("[3]") && ran.stderr.contains("`v`"), "{ran:?}");
    // Tar and TFRecord tell the shape with each record.
    add(&folder, "t", "tar", 1..2, &[1.0, 2.0]);
    folder.run("convert in/other.zarr --out t --read record-dim=t --accept constants").ok();
}

#[test]
fn erasing_leaves_constants_with_those_who_stay() {
    let folder = Folder::new();
    for format in ["parquet", "tar", "tfrecord"] {
        let _ = std::fs::remove_dir_all(folder.path().join("in"));
        add(&folder, format, format, 0..2, &[1.0, 2.0]);
        let content = constants(&folder, format).into_values().next().unwrap();
        folder.run_with(&["erase", format, "g0.zarr#2", "--all-versions"]).ok();
        let after = constants(&folder, format);
        assert_eq!(after.into_values().collect::<Vec<_>>(), [content.clone(), content], "{format}");
        folder.run(&format!("verify {format} --read-data")).ok();
        let hit = folder.run_with(&["manifest", format, "--find", "g0.zarr#1", "--json"]).ok().objects().remove(0);
        assert_eq!(hit["origin"]["hyperslab"]["text"], "t[0:1], y[0:2]", "{hit}");
    }
}

#[test]
fn a_record_says_which_part_of_its_source_it_is() {
    let folder = Folder::new();
    folder.copy("arrays/grid.nc", "grid.nc");
    folder.run("convert grid.nc --out d --read patch=lat=2,lon=3 --read stride=lon=1").ok();
    // Two starts of lat and two of lon.
    let ran = folder.run_with(&["manifest", "d", "--find", "grid.nc#8", "--json"]).ok();
    let slab = ran.objects()[0]["origin"]["hyperslab"].clone();
    assert_eq!(slab["text"], "time[1:2], lat[1:3], lon[1:4]");
    assert_eq!(slab["ranges"]["lon"], serde_json::json!([1, 4]));
    assert_eq!(slab["variables"]["t2m"], serde_json::json!(["time", "lat", "lon"]));
    let table = folder.run_with(&["manifest", "d", "--find", "grid.nc#8"]).ok().stdout;
    assert!(table.contains("grid.nc#8: time[1:2], lat[1:3], lon[1:4] of lat, t2m, time in grid.nc"), "{table}");
    folder.run("convert grid.nc --out cells --read flatten=yes").ok();
    let ran = folder.run_with(&["manifest", "cells", "--find", "grid.nc#14", "--export", "csv"]).ok();
    assert!(ran.stdout.contains("\"time[1:2], lat[0:1], lon[1:2]\""), "{}", ran.stdout);
}

#[test]
fn a_column_has_one_unit_in_all_sources_and_runs() {
    let folder = Folder::new();
    let array = |name: &str, unit: &str| {
        let zarr = r#"{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"<f4","#.to_owned()
            + r#""compressor":null,"fill_value":0,"order":"C","filters":null}"#;
        folder.write(&format!("{name}.zarr/.zgroup"), r#"{"zarr_format":2}"#);
        folder.write(&format!("{name}.zarr/t/.zarray"), zarr);
        folder.write(&format!("{name}.zarr/t/.zattrs"), format!(r#"{{"_ARRAY_DIMENSIONS":["time"],"units":{unit}}}"#));
        folder.write(&format!("{name}.zarr/t/0"), 273.15_f32.to_le_bytes().repeat(2));
    };
    array("a", r#""K""#);
    array("b", r#""degC""#);
    array("c", r#"" K ""#);
    array("d", "1");
    let refused = folder.run("convert a.zarr b.zarr --out both");
    assert!(
        refused.code == 8 && refused.stderr.contains("expected the unit `K`, as a.zarr has, found `degC`"),
        "{refused:?}"
    );
    folder.run("convert a.zarr c.zarr d.zarr --out kept").ok();
    let refused = folder.run("convert b.zarr --out kept");
    assert!(refused.code == 8 && refused.stderr.contains("as this dataset has, found `degC`"), "{refused:?}");
    folder.run("manifest kept --tag first").ok();
    assert_eq!(folder.run("convert b.zarr --out kept").code, 8);
    folder.run("convert b.zarr --out kept --accept units").ok();
    // Packed values are numbers of their unit, also if it is one of time.
    let packed = |name: &str, epoch: &str| {
        array(name, &format!(r#""hours since {epoch}","scale_factor":0.5"#));
    };
    packed("p", "2020-01-01");
    packed("q", "2021-01-01");
    assert_eq!(folder.run("convert p.zarr q.zarr --out packed").code, 8);
    // Columns that are not taken are not compared.
    array("e", r#""m""#);
    folder.write("e.zarr/u/.zarray", std::fs::read(folder.path().join("e.zarr/t/.zarray")).unwrap());
    folder.write("e.zarr/u/.zattrs", r#"{"_ARRAY_DIMENSIONS":["time"]}"#);
    folder.write("e.zarr/u/0", 1_f32.to_le_bytes().repeat(2));
    folder.run("convert e.zarr --read var=u --out kept --accept columns").ok();
}
