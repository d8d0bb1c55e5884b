//! safetensors through the command line: what its records are, what is kept as bits, and what is refused.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::io::Write as _;

use insta::assert_snapshot;

use crate::support::{Folder, testdata_path};

const FEATURES: &str = "safetensors/features.safetensors";

/// Returns a file of these tensors, each with its type, shape and bytes.
fn file(tensors: &[(&str, &str, &[u64], &[u8])]) -> Vec<u8> {
    let (mut members, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let (begin, end) = (data.len(), data.len() + bytes.len());
        members.push(format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#));
        data.extend_from_slice(bytes);
    }
    let header = format!("{{{}}}", members.join(","));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// The header and the elements of an array in NPY of version 1.
fn npy(bytes: &[u8]) -> (String, &[u8]) {
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (String::from_utf8_lossy(&bytes[10..end]).trim_end().to_owned(), &bytes[end..])
}

#[test]
fn tensors_become_records_along_their_first_dimension() {
    let folder = Folder::new();
    folder.copy(FEATURES, "features.safetensors");
    let ran = folder.run("convert features.safetensors --to tar --out d").ok();
    assert!(ran.stderr.contains("constants, stored once, in _constants.arrow: scale, mean (3)"), "{ran:?}");
    let found = folder.members("d");
    assert_eq!(found.len(), 12, "{:?}", found.keys());
    let (header, image) = npy(&found["features-000000003.image.npy"]);
    assert_snapshot!(header, @"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }");
    assert_eq!(image, [12, 13, 14, 15, 16, 17]);
    let (header, embedding) = npy(&found["features-000000002.embedding.npy"]);
    assert!(header.contains("'<f2'"), "{header}");
    // 2.25 and 65504.
    assert_eq!(embedding, [0x80, 0x40, 0xff, 0x7b]);
    assert_eq!(found["features-000000004.json"], b"{\"label\":-1}");
    let again = folder.run("convert features.safetensors --to tar --out d --json").ok().summary();
    assert_eq!(again["sources_unchanged"], 1);
    let origin = folder.run("manifest d --find features.safetensors#2").ok().stdout;
    assert!(origin.contains("dim_0[1:2]") && origin.contains("image"), "{origin}");
}

#[test]
fn every_way_in_gives_the_same_records() {
    let folder = Folder::new();
    let bytes = std::fs::read(testdata_path(FEATURES)).unwrap();
    folder.write("plain/features.safetensors", &bytes);
    folder.write("packed/features.safetensors.gz", gzip(&bytes));
    folder.write("named/features.bin", &bytes);
    for (number, source) in ["plain", "packed", "named/features.bin"].into_iter().enumerate() {
        for (format, jobs) in [("parquet", 1), ("tfrecord", 8), ("tar", 2)] {
            let out = format!("d{number}-{format}");
            let ran = folder.run(&format!("convert {source} --to {format} --jobs {jobs} --out {out} --json")).ok();
            assert_eq!(ran.summary()["records_out"], 4);
            assert_eq!(folder.only_shards(&out).len(), 1);
        }
        let shown = folder.run(&format!("head {source} --json")).ok().stdout;
        assert!(shown.contains("\"label\":-1"), "{shown}");
        let inspected = folder.run(&format!("inspect {source}")).ok().stdout;
        assert!(inspected.contains("embedding(dim_0 4, dim_1 2)  float16"), "{inspected}");
    }
    let ran = folder
        .run_input(&["convert", "-", "--from", "safetensors", "--to", "tar", "--out", "stdin", "--json"], &bytes)
        .ok();
    assert_eq!(ran.summary()["records_out"], 4);
}

#[test]
fn numbers_without_a_column_type_are_kept_as_bits_if_they_are_asked_for() {
    let folder = Folder::new();
    let bits = [0x80, 0x3f, 0x00, 0xc0];
    folder.write("b.safetensors", file(&[("x", "BF16", &[2], &bits), ("q", "F4", &[2, 4], &[1, 2, 3, 4])]));
    let refused = folder.run("convert b.safetensors --out d");
    assert_eq!(refused.code, 6);
    assert_snapshot!(folder.redact(&refused.stderr), @r"
    error: expected elements that can be read, found BF16, which has no column type; --read raw=yes keeps its bits as uint16
       at: [FOLDER]/b.safetensors, column `x`
     hint: choose other variables with --read var
    ");
    folder.run("convert b.safetensors --out d --to tar --read raw=yes").ok();
    let found = folder.members("d");
    assert_eq!(found["b-000000001.json"], b"{\"x\":16256}");
    assert_eq!(npy(&found["b-000000002.q.npy"]).1, [3, 4]);
}

#[test]
fn weights_and_damage_are_refused_by_name() {
    let folder = Folder::new();
    folder.write("w.safetensors", file(&[("a.weight", "F32", &[2, 3], &[0; 24]), ("b.weight", "U8", &[4], &[0; 4])]));
    let refused = folder.run("convert w.safetensors --out d");
    assert!(refused.code == 6 && refused.stderr.contains("`dim_0` (2) of a.weight"), "{refused:?}");
    folder.run("convert w.safetensors --out d --read var=b.weight").ok();
    let whole = std::fs::read(testdata_path(FEATURES)).unwrap();
    for (name, bytes, told) in [
        ("cut.safetensors", whole[..whole.len() - 1].to_vec(), "expected a file of 468 bytes, as its tensors state"),
        ("long.safetensors", [&whole[..], b"x"].concat(), "found 469"),
        ("size.safetensors", [&u64::MAX.to_le_bytes()[..], &whole[8..]].concat(), "expected a header of at most"),
        ("none.safetensors", file(&[]), "expected arrays, found none"),
        ("empty.safetensors", Vec::new(), "found nothing, the file is empty"),
        ("text.safetensors", b"no tensor\n".to_vec(), "expected records, as the name states, found text"),
    ] {
        folder.write(name, bytes);
        let refused = folder.run(&format!("convert {name} --out bad"));
        assert!(refused.code == 6 && refused.stderr.contains(told), "{name}: {refused:?}");
        assert!(refused.stderr.contains(name), "{refused:?}");
    }
    // The reverse: the content decides.
    folder.write("features.csv", &whole);
    let ran = folder.run("convert features.csv --out named").ok();
    assert!(ran.stderr.contains("contains safetensors; reading it as safetensors"), "{ran:?}");
    folder.write("in/good.safetensors", &whole);
    folder.write("in/bad.safetensors", &whole[..300]);
    let kept = folder.run("convert in --out kept --on-error quarantine --json");
    assert_eq!(kept.code, 3, "{kept:?}");
    let summary = kept.summary();
    assert_eq!((summary["records_out"].as_u64(), summary["records_rejected"].as_u64()), (Some(4), Some(1)));
}
