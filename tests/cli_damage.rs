//! Damaged and lying files through the command line: each of these once ended in a crash, a hang or too much memory.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod support;

use support::Folder;

/// An array in NPY: its shape, and its bytes of float64.
fn npy(shape: &str, elements: usize) -> Vec<u8> {
    let text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.resize(out.len() + 8 * elements, 0);
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
    assert!(ran.code == 6 && ran.stderr.contains("stored bytes") && ran.stderr.contains("--sparse"), "{ran:?}");
    folder.write("sparse.zarr/zarr.json", zarr("[200000]"));
    assert_eq!(folder.run("convert sparse.zarr --out d").code, 6);
    let summary = folder.run("convert sparse.zarr --out d --sparse --json").ok().summary();
    assert_eq!(summary["records_out"], 200_000);
}
