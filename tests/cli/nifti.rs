//! NIfTI through the command line: volumes as records, datasets in BIDS, and what is refused.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::io::Read as _;

use insta::assert_snapshot;

use crate::support::{Folder, testdata_path};

const STANDARD: &str = "nifti/standard.nii.gz";
const FUNCTIONAL: &str = "nifti/functional.nii";

/// The header and the elements of an array in NPY of version 1.
fn npy(bytes: &[u8]) -> (String, &[u8]) {
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (String::from_utf8_lossy(&bytes[10..end]).trim_end().to_owned(), &bytes[end..])
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packed = std::fs::File::open(testdata_path(name)).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The numbers are those that nibabel reads.
#[test]
fn a_volume_is_a_record_with_its_transform() {
    let folder = Folder::new();
    folder.copy(FUNCTIONAL, "bold.nii");
    folder.run("convert bold.nii --to tar --out d").ok();
    let found = folder.members("d");
    let (header, image) = npy(&found["bold-000000003.image.npy"]);
    assert_snapshot!(header, @"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 21, 17), }");
    let image = doubles(image);
    assert_eq!(image[..2], [4020.1234798431396, 4153.292186379433]);
    let sum: f64 = image.iter().sum();
    assert!((sum - 3888592.0533176064).abs() < 1e-6, "{sum}");
    folder.run("convert bold.nii --to tar --out single --type image=float32").ok();
    assert!(npy(&folder.members("single")["bold-000000003.image.npy"]).0.contains("'<f4'"));
    let affine = doubles(npy(&found["bold-000000003.affine.npy"]).1);
    let rows = [-4.0, 0.0, 0.0, 32.0, 0.0, 4.0, 0.0, -40.0, 0.0, 0.0, 8.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    assert_eq!(affine, rows);
    assert_eq!(doubles(npy(&found["bold-000000003.spacing.npy"]).1), [4.0, 4.0, 8.0]);
    assert_eq!(found["bold-000000003.json"], b"{\"time_step\":2.0}");
    folder.run("convert bold.nii --to tar --out raw --read raw=yes --read var=image").ok();
    let raw = folder.members("raw");
    let (header, image) = npy(&raw["bold-000000003.image.npy"]);
    assert!(header.contains("'<i2'"), "{header}");
    assert_eq!(image[..4], [&12_192_i16.to_le_bytes()[..], &13_958_i16.to_le_bytes()].concat());
    let records = |options: &str| {
        folder.run(&format!("convert bold.nii --read var=image {options} --json")).ok().summary()["records_out"].clone()
    };
    assert_eq!(records("--out slices --read record-dim=z"), 3);
    assert_eq!(records("--out patches --read patch=y=7,x=17"), 60);
    assert_eq!(records("--out cells --read flatten=yes"), 20 * 3 * 21 * 17);
}

#[test]
fn scans_of_several_shapes_and_types_are_one_dataset() {
    let folder = Folder::new();
    for name in ["standard.nii.gz", "functional.nii", "resampled_anat_moved.nii", "example_nifti2.nii.gz"] {
        folder.copy(&format!("nifti/{name}"), &format!("scans/{name}"));
    }
    folder.copy(STANDARD, "scans/other/standard.nii.gz");
    for (format, jobs) in [("parquet", 1), ("parquet", 8), ("tar", 2), ("tfrecord", 4)] {
        let out = format!("d-{format}-{jobs}");
        let ran = folder.run(&format!("convert scans --to {format} --jobs {jobs} --out {out} --json")).ok();
        assert_eq!(ran.summary()["records_out"], 25, "{ran:?}");
    }
    let (one, other) = (folder.only_shards("d-parquet-1"), folder.only_shards("d-parquet-8"));
    assert!(one.len() == 1 && one[0].1 == other[0].1, "the number of threads changes nothing");
    let again = folder.run("convert scans --out d-parquet-1 --json").ok().summary();
    assert_eq!(again["sources_unchanged"], 5);
    let origin = folder.run("manifest d-parquet-1 --find functional.nii#3").ok().stdout;
    assert!(origin.contains("t[2:3], z[0:3], y[0:21], x[0:17]"), "{origin}");
    let note = folder.run("convert scans --out noted --dry-run").ok().stderr;
    assert!(note.contains("example_nifti2.nii.gz: header extensions are not taken (code 6)"), "{note}");
    folder.run("convert scans --out few --columns spacing --where time_step>1").ok();
}

#[test]
fn a_packed_image_gives_the_records_of_the_plain_one() {
    let folder = Folder::new();
    folder.copy("nifti/example_nifti2.nii.gz", "packed/a.nii.gz");
    let plain = unpacked("nifti/example_nifti2.nii.gz");
    folder.write("plain/a.nii", &plain);
    for source in ["packed", "plain"] {
        folder.run(&format!("convert {source} --to tar --out {source}-d")).ok();
    }
    let packed = folder.members("packed-d");
    assert!(packed.len() == 8 && packed == folder.members("plain-d"));
    let (header, image) = npy(&packed["a-000000002.image.npy"]);
    assert!(header.contains("'<i2'") && header.contains("(12, 20, 32)"), "{header}");
    assert_eq!(image[..4], [&439_i16.to_le_bytes()[..], &421_i16.to_le_bytes()].concat());
    let ran =
        folder.run_input(&["convert", "-", "--from", "nifti", "--to", "tar", "--out", "stdin", "--json"], &plain).ok();
    assert_eq!(ran.summary()["records_out"], 2);
    let head = folder.run("head packed --json").ok().stdout;
    assert!(head.contains("\"time_step\":2000.0"), "{head}");
}

/// An eighth of 64 MiB holds less than this image.
#[test]
fn what_does_not_fit_into_memory_is_unpacked_to_disk() {
    let folder = Folder::new();
    let mut image = unpacked(STANDARD)[..352].to_vec();
    for (number, length) in [4_i16, 128, 128, 8, 80].into_iter().enumerate() {
        image[40 + 2 * number..42 + 2 * number].copy_from_slice(&length.to_le_bytes());
    }
    image.extend((0..128 * 128 * 8 * 80_u32).map(|voxel| (voxel / 997).to_le_bytes()[0]));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &image).unwrap();
    folder.write("packed/a.nii.gz", packed.finish().unwrap());
    folder.write("plain/a.nii", &image);
    folder.run("convert packed --to tar --out disk --memory 64MiB").ok();
    folder.run("convert plain --to tar --out plain-d").ok();
    let found = folder.members("disk");
    assert!(found.len() == 4 * 80 && found == folder.members("plain-d"));
    assert_eq!(npy(&found["a-000000080.image.npy"]).1, &image[image.len() - 128 * 128 * 8..]);
}

#[test]
fn what_is_no_whole_image_is_refused_by_name() {
    let folder = Folder::new();
    let plain = unpacked(STANDARD);
    let packed = std::fs::read(testdata_path(STANDARD)).unwrap();
    let spoilt = |at: usize, bytes: &[u8]| {
        let mut other = plain.clone();
        other[at..at + bytes.len()].copy_from_slice(bytes);
        other
    };
    for (name, bytes, told) in [
        ("cut.nii", plain[..400].to_vec(), "up to byte 492, found the end of the file at 400"),
        ("head.nii", plain[..300].to_vec(), "expected a header of 348 bytes"),
        ("cut.nii.gz", packed[..packed.len() - 20].to_vec(), "cut.nii.gz"),
        ("long.nii", [&plain[..], b"more"].concat(), "which ends at byte 492, found more"),
        ("analyze.nii", spoilt(344, &[0; 4]), "expected `n+1` at the place of the magic"),
        ("pair.hdr", spoilt(345, b"i"), "found the header of a pair (.hdr and .img)"),
        ("vast.nii", spoilt(42, &[0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f]), "found the end of the file at 492"),
        ("complex.nii", spoilt(70, &[32, 0]), "complex numbers (NIfTI datatype 32), which is not supported"),
        ("empty.nii", Vec::new(), "found nothing, the file is empty"),
        ("text.nii", b"no image\n".to_vec(), "expected records, as the name states, found text"),
    ] {
        folder.write(name, bytes);
        let refused = folder.run(&format!("convert {name} --out bad"));
        assert!(refused.code == 6 && refused.stderr.contains(told), "{name}: {refused:?}");
        assert!(refused.stderr.contains(name), "{refused:?}");
    }
    folder.write("in/good.nii", &plain);
    folder.write("in/bad.nii.gz", &packed[..packed.len() - 20]);
    folder.write("in/head.nii", &plain[..400]);
    let kept = folder.run("convert in --out kept --on-error quarantine --json");
    assert_eq!(kept.code, 3, "{kept:?}");
    let summary = kept.summary();
    assert_eq!((summary["records_out"].as_u64(), summary["records_rejected"].as_u64()), (Some(1), Some(2)));
}

/// A header that claims far more than its file can hold.
#[test]
fn a_bomb_is_refused_before_it_is_unpacked() {
    let folder = Folder::new();
    let mut header = unpacked(STANDARD)[..352].to_vec();
    for at in [42, 44, 46] {
        header[at..at + 2].copy_from_slice(&1000_i16.to_le_bytes());
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut packed, &header).unwrap();
    folder.write("bomb.nii.gz", packed.finish().unwrap());
    let refused = folder.run("convert bomb.nii.gz --out d");
    assert!(refused.code == 6 && refused.stderr.contains("stored bytes can hold"), "{refused:?}");
}

#[test]
fn participants_of_bids_are_subjects() {
    let folder = Folder::new();
    folder.copy(STANDARD, "bids/sub-01/anat/sub-01_T1w.nii.gz");
    folder.write("bids/sub-01/anat/sub-01_T1w.json", "{\"EchoTime\":0.03}");
    folder.copy("nifti/example_nifti2.nii.gz", "bids/sub-02/ses-1/func/sub-02_ses-1_task-rest_bold.nii.gz");
    folder.write("bids/participants.tsv", "participant_id\tage\nsub-01\t30\nsub-02\t41\n");
    folder.write("bids/dataset_description.json", "{\"Name\":\"x\",\"BIDSVersion\":\"1.8.0\"}");
    let whole = folder.run("convert bids --out whole");
    assert!(whole.code == 2 && whole.stderr.contains("--from nifti --include 'sub-*/**/*.nii*'"), "{whole:?}");
    let images = "convert bids --from nifti --include sub-*/**/*.nii* --subject-from-path bids";
    assert_eq!(folder.run(&format!("{images} --out images --json")).ok().summary()["records_out"], 3);
    let found = folder.run("manifest images --find sub-02 --json").ok().objects();
    assert_eq!(found.iter().filter(|one| one["subject_id"] == "sub-02").count(), 2, "{found:?}");
    folder.run("erase images --subject sub-02").ok();
    let left = folder.run("manifest images --export jsonl").ok().stdout;
    assert!(left.contains("sub-01_T1w.nii.gz") && !left.contains("sub-02"), "{left}");
    // The table of participants has the labels of samples that are a participant each.
    let recordings = [
        "convert",
        "bids",
        "--from",
        "files",
        "--include",
        "sub-*/**/*.nii.gz",
        "--key",
        "^(?:.*/)?(sub-[^_/]+)_",
        "--labels",
        "bids/participants.tsv:participant_id",
        "--out",
        "labelled",
    ];
    folder.run_with(&recordings).ok();
    let members = folder.members("labelled");
    assert_eq!(members["sub-02.json"], b"{\"age\":41}");
    assert!(members.contains_key("sub-02.ses-1_task-rest_bold.nii.gz"), "{:?}", members.keys());
    folder.copy(STANDARD, "bids/sub-01/anat/sub-02_T1w.nii.gz");
    let refused = folder.run(&format!("{images} --out more"));
    assert!(refused.code == 6 && refused.stderr.contains("sub-01/anat/sub-02_T1w.nii.gz"), "{refused:?}");
    assert!(refused.stderr.contains("folder and name have to state the same participant"), "{refused:?}");
}

#[test]
fn an_image_beside_documents_is_a_part_of_a_sample() {
    let folder = Folder::new();
    folder.copy(STANDARD, "in/a.nii.gz");
    folder.write("in/a.json", "{\"x\":1}");
    folder.run("convert in --out d").ok();
    assert_eq!(folder.members("d").into_keys().collect::<Vec<_>>(), ["a.json", "a.nii.gz"]);
}
