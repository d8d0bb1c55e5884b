//! Arrays through the command line: what their records are, what becomes of them in each format, and what is refused.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and move their own inputs")]

use crate::support;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{Float16Type, Float32Type, Float64Type},
};
use insta::assert_snapshot;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use support::{Folder, testdata_path};

/// An array in NPY whose header has so many bytes, as its header and its elements.
fn npy(bytes: &[u8]) -> (String, Vec<u8>) {
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8(bytes[10..10 + length].to_vec()).unwrap();
    (header.trim_end().to_owned(), bytes[10 + length..].to_vec())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn only_scales_name_dimensions() {
    let folder = Folder::new();
    folder.copy("arrays/bounds.nc", "bounds.nc");
    let shown = folder.run("inspect bounds.nc").ok().stdout;
    assert!(shown.contains("records along time\n") && shown.contains("time_bnds(time 2, nv 2)"), "{shown}");
    folder.run("convert bounds.nc --read record-dim=time --out d --to tar").ok();
    assert_eq!(folder.members("d").len(), 8, "time, its bounds, the values and the origin of two records");
}

#[test]
fn an_array_becomes_a_sample_for_each_index() {
    let folder = Folder::new();
    folder.copy("arrays/cube.npy", "cube.npy");
    folder.run("convert cube.npy --out d --to tar").ok();
    let members = folder.members("d");
    let names: Vec<&str> = members.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "cube-000000001.array.npy",
            "cube-000000002.array.npy",
            "cube-000000003.array.npy",
            "cube-000000004.array.npy"
        ]
    );
    let (header, elements) = npy(&members["cube-000000002.array.npy"]);
    assert_snapshot!(header, @"{'descr': '<i2', 'fortran_order': False, 'shape': (3, 2), }");
    assert_eq!(elements, [6, 0, 7, 0, 8, 0, 9, 0, 10, 0, 11, 0]);
}

#[test]
fn netcdf_is_decoded_and_constants_lie_beside() {
    let folder = Folder::new();
    folder.copy("arrays/grid.nc", "grid.nc");
    folder.run("convert grid.nc --out d --to tar --id time").ok();
    let found = folder.members("d");
    let keys: Vec<&String> = found.keys().filter(|key| key.ends_with("t2m.npy")).collect();
    assert_eq!(keys.len(), 4);
    let (header, elements) = npy(&found[keys[1]]);
    assert!(header.contains("'<f4'") && header.contains("(3, 4)"), "{header}");
    let values = floats(&elements);
    assert_eq!(values[0], 270.0 + 12.0 * 0.5);
    assert!(values[5].is_nan());
    let json = found.iter().find(|(key, _)| key.ends_with(".json")).unwrap();
    assert_snapshot!(String::from_utf8_lossy(json.1), @r#"{"time":"2020-01-01T00:00:00"}"#);
    folder.run("convert grid.nc --out raw --to tar --read raw=yes").ok();
    let raw = folder.members("raw");
    let (header, _) = npy(&raw["grid-000000001.t2m.npy"]);
    assert!(header.contains("'<i2'"), "{header}");
    let folders = std::fs::read_dir(folder.path().join("d")).unwrap().flatten();
    assert_eq!(folders.filter(|entry| entry.path().join("_constants.arrow").exists()).count(), 1);
}

#[test]
fn patches_and_cells_are_rows() {
    let folder = Folder::new();
    folder.copy("arrays/grid.nc", "grid.nc");
    let records =
        |command: &str| folder.run(&format!("convert grid.nc {command} --json")).ok().summary()["records_out"].clone();
    assert_eq!(records("--out patches --read patch=lat=2,lon=2"), 4 * 2 * 2);
    assert_eq!(records("--out strides --read patch=lon=2 --read stride=lon=1"), 4 * 3);
    assert_eq!(records("--out cells --read flatten=yes"), 4 * 3 * 4);
    assert_eq!(records("--out rows --read record-dim=lat"), 3);
    assert_eq!(records("--out one --read var=lat --read record-dim=lat"), 3);
}

#[test]
fn every_format_is_told_by_its_content() {
    let folder = Folder::new();
    for (name, records) in
        [("pair.npz", 3), ("example_1.nc", 1), ("ref_tst_irish_rover.nc", 4), ("dim_scales.hdf5", 4), ("cube.npy", 4)]
    {
        folder.copy(&format!("arrays/{name}"), "data");
        // One of its datasets has no scales.
        let dim = if name == "dim_scales.hdf5" { "--read record-dim=z1" } else { "" };
        let summary = folder.run(&format!("convert data --out {name}.d {dim} --json")).ok().summary();
        assert_eq!(summary["records_out"], records, "{name}");
        std::fs::remove_file(folder.path().join("data")).unwrap();
    }
}

#[test]
fn a_zarr_store_is_one_source() {
    let folder = Folder::new();
    for name in ["a/c/0/0", "a/c/0/1", "a/c/1/0", "a/c/1/1", "a/zarr.json", "b/c/0", "b/zarr.json", "zarr.json"] {
        folder.copy(&format!("arrays/grid.zarr/{name}"), &format!("in/grid.zarr/{name}"));
    }
    for source in ["in", "in/grid.zarr"] {
        let out = format!("out-{}", source.replace('/', "-"));
        folder.run(&format!("convert {source} --out {out} --to tar")).ok();
        let found = folder.members(&out);
        let (header, elements) = npy(&found["grid-000000003.a.npy"]);
        assert!(header.contains("(6,)"), "{header}");
        assert_eq!(elements[..4], 12_i32.to_le_bytes());
        assert_eq!(found["grid-000000003.json"], br#"{"b":"NaN"}"#);
        let again = folder.run(&format!("convert {source} --out {out} --json")).ok().summary();
        assert_eq!(again["sources_unchanged"], 1);
    }
}

#[test]
fn what_cannot_be_taken_is_named() {
    let folder = Folder::new();
    folder.copy("arrays/grid.nc", "grid.nc");
    folder.copy("bad/objects.npy", "objects.npy");
    let fails = |command: &str, code| {
        let ran = folder.run(command);
        assert_eq!(ran.code, code, "{ran:?}");
        folder.redact(&ran.stderr)
    };
    assert_snapshot!(fails("convert objects.npy --out d", 6), @r"
    error: expected elements that can be read, found Python objects, which only unpickling would read (|O)
       at: [FOLDER]/objects.npy, column `array`
     hint: choose other variables with --read var
    ");
    assert_snapshot!(fails("convert grid.nc --out d --read record-dim=depth", 2), @r"
    error: expected a dimension of the variables for --read record-dim, found `depth`
       at: [FOLDER]/grid.nc
     hint: the dimensions are time, lat, lon
    ");
    assert_snapshot!(fails("convert grid.nc --out d --read var=rain", 2), @r"
    error: no variable has this name
       at: [FOLDER]/grid.nc, column `rain`
     hint: the variables are time, lat, t2m
    ");
    assert_snapshot!(fails("convert grid.nc --out d --read patch=lat=9", 2), @r"
    error: expected a patch and a stride of 1 to 3 for `lat`, found 9 and 9
       at: [FOLDER]/grid.nc
     hint: a patch fits into its dimension: --read patch=lat=3
    ");
}

#[test]
fn inspect_shows_variables() {
    let folder = Folder::new();
    folder.copy("arrays/grid.nc", "grid.nc");
    let shown = folder.run("inspect grid.nc").ok().stdout;
    let variables = shown.split("records along").nth(1).unwrap().split("makes").next().unwrap();
    assert_snapshot!(variables, @r"
     time
      time(time 4)  int32 as timestamp(us)  chunks 1024
        units: days since 2020-01-01
      lat(lat 3)  float32  constant
      t2m(time 4, lat 3, lon 4)  int16 as float32  chunks 2x3x4
        _FillValue: -999
        scale_factor: 0.5
        add_offset: 270
    next
      shardify convert grid.nc --read record-dim=time
    ");
}

#[test]
fn inspect_says_what_is_wrong_with_a_file_and_why_that_may_be() {
    let folder = Folder::new();
    let whole = std::fs::read(testdata_path("arrays/grid.nc")).unwrap();
    folder.write("cut.nc", &whole[..whole.len() / 2]);
    let ran = folder.run("inspect cut.nc");
    assert!(ran.code == 6 && ran.stderr.contains("cut.nc\n") && ran.stderr.contains("cut short"), "{ran:?}");
    folder.copy("arrays/grid.nc", "in/a.nc");
    folder.write("in/cut.nc", &whole[..whole.len() / 2]);
    let shown = folder.run("inspect in").ok().stdout;
    assert!(shown.contains("cut.nc: expected") && shown.contains("cut short"), "{shown}");
}

#[test]
fn attributes_of_named_types_and_old_layouts_are_read() {
    let folder = Folder::new();
    folder.copy("arrays/named_types.h5", "named.h5");
    let shown = folder.run("inspect named.h5").ok().stdout;
    let variables = shown.split("records along").nth(1).unwrap().split("next").next().unwrap();
    assert!(variables.contains("level: 7, 8") && variables.contains("units: m"), "{shown}");
    folder.copy("arrays/ref_groups.h5", "old.h5");
    let ran = folder.run("convert old.h5 --out d --to tar");
    assert!(ran.code == 6 && ran.stderr.contains("--read var=MyGroup.Group_A.dset2"), "{ran:?}");
    folder.run("convert old.h5 --out d --to tar --read var=MyGroup.Group_A.dset2").ok();
    let found = folder.members("d");
    let (header, elements) = npy(&found["old-000000002.mygroup.group_a.dset2.npy"]);
    assert!(header.contains("(10,)"), "{header}");
    assert_eq!(elements[4..8], 2_i32.to_le_bytes());
}

#[test]
fn arrays_of_several_shapes_say_theirs() {
    let folder = Folder::new();
    let npy = |shape: &str, count: i16| {
        let text = format!("{{'descr': '<i2', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut out = b"\x93NUMPY\x01\x00".to_vec();
        out.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
        out.extend_from_slice(text.as_bytes());
        out.extend((0..count).flat_map(i16::to_le_bytes));
        out
    };
    folder.write("in/a.npy", npy("(2, 3, 2)", 12));
    folder.write("in/b.npy", npy("(1, 4, 2)", 8));
    let summary = folder.run("convert in --out d --json").ok().summary();
    assert_eq!(summary["records_out"], 3);
    for jobs in [1, 4] {
        folder.run(&format!("convert in --out j{jobs} --jobs {jobs}")).ok();
    }
    assert_eq!(folder.shards_below_tags("j1"), folder.shards_below_tags("j4"));
    for (out, source) in [("t", "in"), ("back", "d")] {
        folder.run(&format!("convert {source} --out {out} --to tar")).ok();
        let members = folder.members(out);
        let mut shapes: Vec<String> = members
            .iter()
            .filter(|(name, _)| name.ends_with(".array.npy"))
            .map(|(_, content)| self::npy(content).0.split("'shape': ").nth(1).unwrap().to_owned())
            .collect();
        shapes.sort();
        assert_eq!(shapes, ["(3, 2), }", "(3, 2), }", "(4, 2), }"], "{out}");
        let last = members.iter().rfind(|(name, _)| name.ends_with(".npy")).unwrap();
        assert_eq!(self::npy(last.1).1[14..], 7_i16.to_le_bytes(), "{out}");
    }
    folder.run("convert in --out f --to tfrecord").ok();
    // Later ones have to fit.
    folder.write("more/c.npy", npy("(1, 9, 5)", 45));
    folder.run("convert more --out d").ok();
    folder.run("compact d --min-inputs 2 --verify full").ok();
    folder.run("verify d --read-data").ok();
    folder.run("convert in/a.npy --out one").ok();
    let ran = folder.run("convert in/b.npy --out one");
    assert!(ran.code == 6 && ran.stderr.contains("[3, 2], found [4, 2]"), "{ran:?}");
    folder.write("flat/d.npy", npy("(2, 6)", 12));
    folder.write("flat/e.npy", npy("(2, 3, 2)", 12));
    let ran = folder.run("convert flat --out e");
    assert!(ran.code == 6 && ran.stderr.contains("[6]") && ran.stderr.contains("[3, 2]"), "{ran:?}");
    let ran = folder.run("convert in --out l --to tfrecord --write tensors=lists");
    assert!(ran.code == 2 && ran.stderr.contains("[?, 2]"), "{ran:?}");
}

#[test]
fn shards_do_not_depend_on_threads() {
    let folder = Folder::new();
    folder.copy("arrays/grid.nc", "grid.nc");
    for format in ["parquet", "tar", "tfrecord"] {
        let shards = |jobs: u32| {
            let out = format!("{format}{jobs}");
            folder.run(&format!("convert grid.nc --out {out} --to {format} --jobs {jobs}")).ok();
            folder.shards_below_tags(&out)
        };
        assert!(shards(1) == shards(4), "{format}");
    }
}

#[test]
fn floats_that_json_has_no_words_for_are_read_as_python_writes_them() {
    let folder = Folder::new();
    let grid = r#""chunk_grid":{"name":"regular","configuration":{"chunk_shape":[3]}}"#;
    let keys = r#""chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}}"#;
    let codecs = r#""codecs":[{"name":"bytes","configuration":{"endian":"little"}}]"#;
    let attributes = r#"{"_FillValue":NaN,"top":Infinity,"low":-Infinity,"said":"a \"NaN\" is none: NaN"}"#;
    let zarr = format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[3],"data_type":"float32","fill_value":NaN,{grid},{keys},{codecs},"attributes":{attributes}}}"#
    );
    folder.write("z/zarr.json", zarr);
    folder.write("z/c/0", [1.0_f32, f32::NAN, 3.0].map(f32::to_le_bytes).concat());
    let shown = folder.run("inspect z --json").ok().stdout;
    assert!(shown.contains(r#"a \"NaN\" is none: NaN"#), "{shown}");
    let converted = folder.run("convert z --out shards --json").ok().summary();
    assert_eq!(converted["records_out"], 3, "{converted}");
    // A store at the root of what is asked for is one too.
    assert!(shown.contains(r#""format":"zarr""#), "{shown}");
    folder.write("bad/zarr.json", r#"{"zarr_format":3,"node_type":"array","attributes":{"a":NaNa}}"#);
    assert_eq!(folder.run("convert bad --out none").code, 6);
}

/// An NPY file of integers.
fn integers(shape: &[usize]) -> Vec<u8> {
    let lengths = shape.iter().map(|length| format!("{length},")).collect::<Vec<_>>().concat();
    let text = format!("{{'descr': '<i2', 'fortran_order': False, 'shape': ({lengths}), }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    let count = i16::try_from(shape.iter().product::<usize>()).unwrap();
    out.extend((0..count).flat_map(i16::to_le_bytes));
    out
}

/// An archive of such files, as `numpy.savez` writes it.
fn npz(arrays: &[(&str, &[usize])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, shape) in arrays {
        let (content, name) = (integers(shape), format!("{name}.npy"));
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &content);
        let (sum, bytes) = (u32::try_from(sum).unwrap(), u32::try_from(content.len()).unwrap());
        let mut facts = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        [sum, bytes, bytes].iter().for_each(|number| facts.extend_from_slice(&number.to_le_bytes()));
        facts.extend_from_slice(&u16::try_from(name.len()).unwrap().to_le_bytes());
        facts.extend_from_slice(&[0, 0]);
        let at = u32::try_from(out.len()).unwrap();
        directory.extend_from_slice(b"PK\x01\x02\x14\x00");
        directory.extend_from_slice(&facts);
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&at.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"PK\x03\x04");
        out.extend_from_slice(&facts);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&content);
    }
    let count = u16::try_from(arrays.len()).unwrap().to_le_bytes();
    let lengths = [directory.len(), out.len()].map(|length| u32::try_from(length).unwrap().to_le_bytes());
    let end = [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, lengths.as_flattened(), &[0, 0]].concat();
    [out, directory, end].concat()
}

#[test]
fn arrays_that_leave_the_records_are_named_or_refused() {
    let folder = Folder::new();
    folder.write("xy.npz", npz(&[("x", &[6, 4]), ("y", &[6]), ("mean", &[1, 4]), ("names", &[4])]));
    for command in ["convert xy.npz --out d", "convert xy.npz --out e --dry-run", "inspect xy.npz"] {
        let told = folder.run(command).ok().stderr;
        assert!(told.contains("records are along `dim_0`; variables without it are constants, stored once"), "{told}");
        assert!(told.contains("mean (1x4), names (4)"), "{told}");
    }
    let splits = npz(&[("x_train", &[6, 4]), ("y_train", &[6]), ("x_test", &[3, 4]), ("y_test", &[3])]);
    folder.write("splits.npz", splits);
    for command in ["convert splits.npz --out s", "convert splits.npz --out s --dry-run", "inspect splits.npz"] {
        let ran = folder.run(command);
        assert_eq!(ran.code, 6, "{ran:?}");
        let candidates = "`dim_0` (6) of x_train, y_train; `dim_0_3` (3) of x_test, y_test";
        assert!(ran.stderr.contains(candidates), "{ran:?}");
        assert!(ran.stderr.contains("--read var=x_train,y_train or --read var=x_test,y_test"), "{ran:?}");
        assert!(ran.stderr.contains("--read record-dim=dim_0"), "{ran:?}");
    }
    let test = folder.run("convert splits.npz --out test --read var=x_test,y_test --json").ok().summary();
    assert_eq!(test["records_out"], 3);
    folder.write("sparse.npz", npz(&[("indices", &[7]), ("indptr", &[5]), ("shape", &[2]), ("data", &[7])]));
    assert_eq!(folder.run("convert sparse.npz --out sparse").code, 6);
}

#[test]
fn names_of_hdf5_that_are_not_taken_are_told() {
    let folder = Folder::new();
    folder.copy("arrays/links.h5", "links.h5");
    for command in ["convert links.h5 --out d", "inspect links.h5"] {
        let told = folder.run(command).ok().stderr;
        for expected in
            ["`b` is `a`", "`soft` is `g.d`", "`h` is `g`", "links to other files are not followed", "`other.h5`"]
        {
            assert!(told.contains(expected), "{expected}: {told}");
        }
    }
    folder.run("convert links.h5 --out t --to tar").ok();
    let record: serde_json::Value = serde_json::from_slice(&folder.members("t")["links-000000002.json"]).unwrap();
    assert_eq!(record, serde_json::json!({"a": 1, "g.d": 1.0}));
}

#[test]
fn frames_of_pandas_have_their_columns() {
    let folder = Folder::new();
    folder.copy("arrays/frame.h5", "frame.h5");
    let told = folder.run("convert frame.h5 --out d --to tar").ok().stderr;
    assert!(told.contains("indexes of tables repeat their values and are not taken: df._i_table.index"), "{told}");
    let members = folder.members("d");
    let record: serde_json::Value = serde_json::from_slice(&members["frame-000000003.json"]).unwrap();
    assert_eq!(record["df.table"], serde_json::json!({"index": 2, "a": 3, "c": 6, "t": null, "s": "ä", "f": true}));
    let record: serde_json::Value = serde_json::from_slice(&members["frame-000000001.json"]).unwrap();
    assert_eq!(record["df.table"]["t"], "2024-01-01T00:00:00");
    // Two rows and two columns, which are no pairs.
    folder.copy("arrays/frame_fixed.h5", "fixed.h5");
    let told = folder.run("convert fixed.h5 --out f --to tar").ok().stderr;
    assert!(told.contains("records are along `df.axis1`") && told.contains("df.axis0 (2)"), "{told}");
    let members = folder.members("f");
    assert_eq!(members["fixed-000000002.json"], br#"{"df.axis1":1}"#);
    assert_eq!(npy(&members["fixed-000000002.df.block0_values.npy"]).1, 2_i64.to_le_bytes());
}

#[test]
fn floats_of_tensors_are_nan_where_they_are_missing_and_can_be_rounded() {
    let folder = Folder::new();
    folder.copy("arrays/grid.nc", "grid.nc");
    folder.run("convert grid.nc --out d").ok();
    let read = |dataset: &str| {
        let shard = folder.only_shards(dataset).remove(0).1;
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(shard)).unwrap().build().unwrap();
        let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
        std::sync::Arc::clone(batches[0].column_by_name("t2m").unwrap().as_fixed_size_list().values())
    };
    let values = read("d");
    let floats = values.as_primitive::<Float32Type>();
    assert_eq!(floats.null_count(), 0);
    assert!(floats.value(12 + 5).is_nan() && floats.value(12) == 276.0);
    folder.run("convert grid.nc --out wide --type t2m=float64").ok();
    let values = read("wide");
    assert!(values.as_primitive::<Float64Type>().value(12 + 5).is_nan() && values.null_count() == 0);
    // Integers have no NaN; rounded to floats, they have.
    folder.run("convert grid.nc --out raw --read raw=yes --type t2m=float16").ok();
    assert_eq!(read("raw").as_primitive::<Float16Type>().value(12).to_f32(), 12.0);
    let shown = folder.run("inspect grid.nc").ok().stdout;
    assert!(shown.contains("t2m(time 4, lat 3, lon 4)  int16 as float32  chunks"), "{shown}");
}

/// Metadata of an array `(time, x)` of int32 in Zarr 2.
fn zarray(times: usize, fill: &str) -> String {
    format!(
        r#"{{"zarr_format":2,"shape":[{times},2],"chunks":[2,2],"dtype":"<i4","compressor":null,"fill_value":{fill},"order":"C","filters":null}}"#
    )
}

#[test]
fn what_a_zarr_store_holds_counts_more_than_consolidated_metadata() {
    let folder = Folder::new();
    let dims = r#"{"_ARRAY_DIMENSIONS":["time","x"]}"#;
    let chunk = |first: i32| (first..first + 4).flat_map(i32::to_le_bytes).collect::<Vec<u8>>();
    folder.write("s/.zgroup", r#"{"zarr_format":2}"#);
    for array in ["a", "b"] {
        folder.write(&format!("s/{array}/.zarray"), zarray(4, "0"));
        folder.write(&format!("s/{array}/.zattrs"), dims);
        (0..2).for_each(|n| drop(folder.write(&format!("s/{array}/{n}.0"), chunk(4 * n))));
    }
    let array = zarray(2, "0");
    let copy = format!(
        r#"{{"zarr_consolidated_format":1,"metadata":{{".zgroup":{{"zarr_format":2}},"a/.zarray":{array},"a/.zattrs":{dims},"gone/.zarray":{array},"gone/.zattrs":{dims}}}}}"#
    );
    folder.write("s/.zmetadata", copy);
    let ran = folder.run("convert s --out d --to tar").ok();
    let told = "whose own metadata count: `a` changed, `b` was added, `gone` was deleted";
    assert!(ran.stderr.contains(told), "{ran:?}");
    assert!(folder.run("inspect s").ok().stderr.contains(told));
    let members = folder.members("d");
    assert_eq!(members.len(), 8, "{:?}", members.keys());
    // 0 is the fill value by default, and a value like any other.
    assert_eq!(npy(&members["s-000000001.a.npy"]).1, [0, 1].map(i32::to_le_bytes).concat());
    assert_eq!(npy(&members["s-000000004.a.npy"]).1, [6, 7].map(i32::to_le_bytes).concat());
    folder.write("s/a/.zarray", zarray(4, "7"));
    folder.run("convert s --out masked --to tar --read var=a").ok();
    assert_eq!(folder.members("masked")["s-000000004.a.mask.npy"].last(), Some(&1));
}

#[test]
fn unknown_versions_and_damaged_chunks_are_bad_input() {
    let folder = Folder::new();
    folder.write("v4/zarr.json", r#"{"zarr_format":4,"node_type":"group"}"#);
    let ran = folder.run("convert v4 --out d");
    assert!(ran.code == 6 && ran.stderr.contains("found those of Zarr 4"), "{ran:?}");
    let grid = r#""chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}}"#;
    let keys = r#""chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}}"#;
    let codecs = r#""codecs":[{"name":"bytes","configuration":{"endian":"little"}},{"name":"crc32c"}]"#;
    let zarr = format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"int16","fill_value":0,{grid},{keys},{codecs},"attributes":{{}}}}"#
    );
    folder.write("sum/zarr.json", zarr);
    // The checksum of four zeros in CRC-32C, and one bit that was changed.
    folder.write("sum/c/0", [0, 0, 0, 0, 0xc7, 0x4b, 0x67, 0x48]);
    folder.run("convert sum --out good").ok();
    folder.write("sum/c/1", [0, 0, 1, 0, 0xc7, 0x4b, 0x67, 0x48]);
    let ran = folder.run("convert sum --out d");
    assert!(ran.code == 6 && ran.stderr.contains("c/1") && ran.stderr.contains("checksum"), "{ran:?}");
    let skipped = folder.run("convert sum --out skipped --on-error skip --json");
    assert_eq!(skipped.code, 3, "{skipped:?}");
    assert_eq!((&skipped.summary()["records_in"], &skipped.summary()["records_rejected"]), (&4.into(), &4.into()));
    // A file of libhdf5's first format, in which the type of `sky` got the version 0.
    let whole = std::fs::read(testdata_path("arrays/ref_groups.h5")).unwrap();
    let at = whole.windows(4).position(|bytes| bytes == [0x10, 9, 0, 0] || bytes == [0x10, 8, 0, 0]).unwrap();
    let mut changed = whole;
    changed[at] &= 0x0f;
    folder.write("v0.h5", changed);
    let ran = folder.run("convert v0.h5 --out h");
    assert!(ran.code == 6 && ran.stderr.contains("a datatype of version 0"), "{ran:?}");
}

#[test]
fn attributes_of_wrong_types_are_refused_by_name() {
    let folder = Folder::new();
    folder.write("s/.zgroup", r#"{"zarr_format":2}"#);
    folder.write("s/a/.zarray", zarray(2, "null"));
    folder.write("s/a/0.0", [0; 16]);
    for (attribute, named) in [
        (r#""scale_factor":"0.005""#, "`scale_factor`, found the text `0.005`"),
        (r#""missing_value":"-1""#, "`missing_value`, found the text `-1`"),
        (r#""scale_factor":0.5,"valid_range":[0.0,4.0]"#, "`valid_range`"),
        (r#""units":"days since 0000-01-01""#, "days since 0000-01-01"),
    ] {
        folder.write("s/a/.zattrs", format!(r#"{{"_ARRAY_DIMENSIONS":["time","x"],{attribute}}}"#));
        for command in ["convert s --out d", "inspect s"] {
            let ran = folder.run(command);
            assert!(ran.code == 6 && ran.stderr.contains(named) && ran.stderr.contains("column `a`"), "{ran:?}");
            assert!(ran.stderr.contains("--read raw=yes"), "{ran:?}");
        }
        folder.run("convert s --out raw --read raw=yes").ok();
        std::fs::remove_dir_all(folder.path().join("raw")).unwrap();
    }
}
