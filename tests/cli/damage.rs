//! Damaged and lying files through the command line: each of these once ended in a crash, a hang or too much memory.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use support::Folder;

/// An array in NPY of float64 that are all 0.
fn npy(shape: &str, elements: usize) -> Vec<u8> {
    npy_of("'<f8'", shape, 8 * elements)
}

/// An array in NPY: its type, its shape, and how many zeros follow.
fn npy_of(descr: &str, shape: &str, bytes: usize) -> Vec<u8> {
    let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.resize(out.len() + bytes, 0);
    out
}

/// A Zarr array of version 3 without a single stored chunk.
fn zarr(shape: &str) -> String {
    format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": {shape}, "data_type": "float32", "fill_value": 1.5,
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [1000]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}]}}"#
    )
}

/// A classic NetCDF: the unlimited dimension `t` is still empty, `v(t)` has no values and `c` is one number.
fn empty_netcdf() -> Vec<u8> {
    let mut out = b"CDF\x01".to_vec();
    let mut words = |words: &[u32]| words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    let name = |letter: u8| u32::from(letter) << 24;
    words(&[0, 10, 1, 1, name(b't'), 0, 0, 0, 11, 2]);
    words(&[1, name(b'v'), 1, 0, 0, 0, 5, 4, 132]);
    words(&[1, name(b'c'), 0, 0, 0, 5, 4, 128]);
    out.resize(128, 0);
    out.extend_from_slice(&2.5_f32.to_be_bytes());
    out
}

#[test]
fn arrays_without_elements_give_empty_lists() {
    let folder = Folder::new();
    folder.write("a.npy", npy("(4, 0)", 0));
    folder.write("b.npy", npy("(2, 3, 0, 5)", 0));
    folder.write("c.nc", empty_netcdf());
    for (file, records) in [("a.npy", 4), ("b.npy", 2), ("c.nc", 1)] {
        for to in ["parquet", "tar", "tfrecord"] {
            let out = format!("{file}.{to}");
            let summary = folder.run(&format!("convert {file} --out {out} --to {to} --json")).ok().summary();
            assert_eq!(summary["records_out"], records, "{out}: {summary}");
            folder.run(&format!("verify {out} --read-data")).ok();
        }
        let back = folder.run(&format!("convert {file}.parquet --out {file}.back --to tar --json")).ok().summary();
        assert_eq!(back["records_out"], records, "{file}");
    }
}

#[test]
fn records_that_no_stored_byte_backs_are_refused_unless_they_are_wanted() {
    let folder = Folder::new();
    folder.write("huge.zarr/zarr.json", zarr("[5600000000000000000]"));
    let ran = folder.run("convert huge.zarr --out d");
    assert!(
        ran.code == 6 && ran.stderr.contains("stored bytes") && ran.stderr.contains("--read sparse=yes"),
        "{ran:?}"
    );
    folder.write("sparse.zarr/zarr.json", zarr("[200000]"));
    assert_eq!(folder.run("convert sparse.zarr --out d").code, 6);
    let summary = folder.run("convert sparse.zarr --out d --read sparse=yes --json").ok().summary();
    assert_eq!(summary["records_out"], 200_000);
}

#[test]
fn a_footer_that_claims_columns_it_does_not_have_takes_no_memory() {
    let folder = Folder::new();
    // Version 2, a schema of one group `s` with 2^31 - 1 columns, no rows, no row groups.
    let footer = b"\x15\x04\x19\x1c\x48\x01s\x15\xfe\xff\xff\xff\x0f\x00\x16\x00\x19\x0c\x00";
    let mut file = b"PAR1".to_vec();
    file.extend_from_slice(footer);
    file.extend_from_slice(&u32::try_from(footer.len()).unwrap().to_le_bytes());
    file.extend_from_slice(b"PAR1");
    folder.write("in/x.parquet", file);
    for command in ["convert in --out c", "adopt in --out a"] {
        let ran = folder.run(command);
        assert!(ran.code == 6 && ran.stderr.contains("columns as its groups say"), "{command}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    }
}

#[test]
fn types_that_no_codec_or_byte_suits_are_errors_about_the_file() {
    let folder = Folder::new();
    let text = zarr("[3]").replace("\"float32\"", "\"r8\"").replace("1.5", "\"\"");
    let bytes = r#"{"name": "bytes", "configuration": {"endian": "little"}}"#;
    folder.write("vlen.zarr/zarr.json", text.replace(bytes, r#"{"name": "vlen-bytes"}"#));
    folder.write("none.npy", npy_of("'|V0'", "(4,)", 0));
    folder.write("member.npy", npy_of("[('a', '<f8', (0,)), ('b', '|u1'), ('c', '|u1')]", "(4,)", 8));
    let expected = [
        ("vlen.zarr", "expected a codec for bytes(1)"),
        ("none.npy", "elements of no bytes"),
        ("member.npy", "elements without a byte"),
    ];
    for (file, why) in expected {
        let ran = folder.run(&format!("convert {file} --out d"));
        assert!(ran.code == 6 && ran.stderr.contains(why), "{file}: {ran:?}");
    }
}

#[test]
fn rows_before_the_end_of_cut_gzip_are_kept() {
    use std::io::Write as _;
    for (name, row) in [("a.csv.gz", "ID,VALUE-ID\n"), ("a.jsonl.gz", "{\"id\":ID,\"v\":\"value ID\"}\n")] {
        let folder = Folder::new();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        if name.ends_with("csv.gz") {
            packed.write_all(b"id,v\n").unwrap();
        }
        for id in 0..5_000_u64 {
            packed.write_all(row.replace("ID", &(id * 7_919 % 100_003).to_string()).as_bytes()).unwrap();
        }
        let packed = packed.finish().unwrap();
        folder.write(name, &packed[..packed.len() / 2]);
        assert_eq!(folder.run(&format!("convert {name}")).code, 6);
        let ran = folder.run(&format!("convert {name} --on-error skip --json"));
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        let summary = ran.summary();
        assert_eq!(summary["records_rejected"], 1, "{summary}");
        assert!(summary["records_out"].as_u64().unwrap() > 1_000, "{summary}");
    }
}
