//! One contract, every array format: what `array::Arrays` promises, checked against each implementation, and that the
//! records which are made of it do not depend on how a source is cut.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::sync::Arc;

use arrow::{array::RecordBatch, compute::concat_batches, datatypes::Schema};
use proptest::prelude::*;
use shardify::{
    array::{
        Arrays, Slab, Values,
        records::ArrayOptions,
        slab::{BufferExtent, copy_box},
    },
    error::Kind,
    format::{
        Parsed, RecordReader,
        arrays::{ArrayReader, OpenSources},
        hdf5::Hdf5Source,
        netcdf::NetCdfSource,
        npy::{self, NpySource},
        ranged::RangedInput,
        zarr::ZarrSource,
    },
    record::Payload,
    storage::{Folder, LocalStore},
};
use support::testdata_path;

type Opened = shardify::Result<Box<dyn Arrays>>;

/// A way to open the bytes of a file.
type Open = fn(Vec<u8>) -> Opened;

fn npy_source(bytes: Vec<u8>) -> Opened {
    let form = npy::sniff(&bytes).ok_or_else(|| shardify::Error::input("no arrays"))?;
    Ok(Box::new(NpySource::open(RangedInput::Bytes(bytes.into()), form)?))
}

fn netcdf_source(bytes: Vec<u8>) -> Opened {
    Ok(Box::new(NetCdfSource::open(RangedInput::Bytes(bytes.into()))?))
}

fn hdf5_source(bytes: Vec<u8>) -> Opened {
    Ok(Box::new(Hdf5Source::open(RangedInput::Bytes(bytes.into()), "made")?))
}

fn zarr_source() -> Box<dyn Arrays> {
    let store = LocalStore::new(testdata_path("arrays/grid.zarr"));
    Box::new(ZarrSource::open(Folder::new(Arc::new(store), ""), None).unwrap())
}

/// A classic file of netCDF: `v(t, x)` with records, `f(x, y)` without.
fn classic() -> Vec<u8> {
    let mut out = b"CDF\x01".to_vec();
    let number = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_be_bytes());
    let name = |out: &mut Vec<u8>, name: &str| {
        out.extend_from_slice(&[0, 0, 0, 1]);
        out.extend_from_slice(name.as_bytes());
        out.resize(out.len().next_multiple_of(4), 0);
    };
    [3, 10, 3].into_iter().for_each(|n| number(&mut out, n));
    for (dim, length) in [("t", 0), ("x", 5), ("y", 4)] {
        name(&mut out, dim);
        number(&mut out, length);
    }
    [0, 0, 11, 2].into_iter().for_each(|n| number(&mut out, n));
    let mut begins = Vec::new();
    for (variable, dims, bytes) in [("v", [0, 1], 12), ("f", [1, 2], 40)] {
        name(&mut out, variable);
        [2, dims[0], dims[1], 0, 0, 3, bytes].into_iter().for_each(|n| number(&mut out, n));
        begins.push(out.len());
        number(&mut out, 0);
    }
    let start = u32::try_from(out.len()).unwrap();
    for (at, begin) in begins.into_iter().zip([start + 40, start]) {
        out[at..at + 4].copy_from_slice(&begin.to_be_bytes());
    }
    out.extend((0..20_u16).flat_map(u16::to_be_bytes));
    for record in 0..3_u16 {
        out.extend((0..5).flat_map(|x| (record * 100 + x).to_be_bytes()));
        out.extend_from_slice(&[0, 0]);
    }
    out
}

/// Every format that is one file, with a file of it.
fn files() -> Vec<(&'static str, Open, Vec<u8>)> {
    let read = |name: &str| std::fs::read(testdata_path(&format!("arrays/{name}"))).unwrap();
    vec![
        ("npy", npy_source, read("cube.npy")),
        ("npz", npy_source, read("pair.npz")),
        ("netcdf classic", netcdf_source, classic()),
        ("netcdf classic, real", netcdf_source, read("example_1.nc")),
        ("netcdf-4", hdf5_source, read("grid.nc")),
        ("hdf5", hdf5_source, read("dim_scales.hdf5")),
        ("hdf5, layout of version 2", hdf5_source, read("ref_groups.h5")),
    ]
}

/// Every format.
fn sources() -> Vec<(&'static str, Box<dyn Arrays>)> {
    let files = files().into_iter().map(|(name, open, bytes)| (name, open(bytes).unwrap()));
    files.chain([("zarr", zarr_source())]).collect()
}

fn length(count: u64) -> usize {
    usize::try_from(count).unwrap()
}

/// The elements of a slab, each as its bytes.
fn elements(source: &dyn Arrays, variable: usize, slab: &Slab) -> Vec<Vec<u8>> {
    let count = length(slab.element_count());
    match source.read(variable, slab).unwrap() {
        Values::Varied(values) => values,
        Values::Fixed(bytes) if count == 0 => {
            assert!(bytes.is_empty());
            Vec::new()
        }
        Values::Fixed(bytes) => {
            assert_eq!(bytes.len() % count, 0);
            bytes.chunks_exact(bytes.len() / count).map(<[u8]>::to_vec).collect()
        }
    }
}

/// The part of a slab of elements that were read as a whole.
fn part(whole: &[Vec<u8>], shape: &[u64], slab: &Slab) -> Vec<Vec<u8>> {
    let numbers: Vec<u8> = (0..whole.len() as u64).flat_map(u64::to_ne_bytes).collect();
    let mut out = vec![0; 8 * length(slab.element_count())];
    let all = Slab::from_shape(shape);
    let from = BufferExtent { start: &all.start, shape };
    copy_box(slab, 8, from, &numbers, BufferExtent { start: &slab.start, shape: &slab.count }, &mut out);
    out.as_chunks::<8>().0.iter().map(|number| whole[length(u64::from_ne_bytes(*number))].clone()).collect()
}

#[test]
fn headers_say_what_can_be_read() {
    for (name, source) in sources() {
        let header = source.header();
        assert!(!header.variables.is_empty(), "{name}");
        for (number, variable) in header.variables.iter().enumerate() {
            assert_eq!(variable.shape.len(), variable.dims.len(), "{name} {}", variable.name);
            assert!(variable.chunks.as_ref().is_none_or(|chunks| chunks.len() == variable.shape.len()), "{name}");
            let same = header.variables.iter().filter(|other| other.name == variable.name);
            assert_eq!(same.count(), 1, "{name} {}", variable.name);
            if variable.dtype.refusal_reason().is_some() {
                continue;
            }
            let whole = elements(source.as_ref(), number, &Slab::from_shape(&variable.shape));
            assert_eq!(whole.len() as u64, variable.element_count(), "{name} {}", variable.name);
            if let Some(width) = variable.dtype.byte_width() {
                assert!(whole.iter().all(|element| element.len() == width), "{name} {}", variable.name);
            }
            let none = Slab { start: vec![0; variable.shape.len()], count: vec![0; variable.shape.len()] };
            if !variable.shape.is_empty() {
                assert!(elements(source.as_ref(), number, &none).is_empty(), "{name} {}", variable.name);
            }
        }
        assert!(source.read(header.variables.len(), &Slab::from_shape(&[])).is_err(), "{name}");
    }
}

/// All records of a source, cut into ranges of about so many bytes, which was closed and is opened again.
fn records(name: &str, options: &ArrayOptions, range_bytes: usize, limit: usize) -> RecordBatch {
    let source = |name: &str| sources().into_iter().find(|(found, _)| *found == name).unwrap().1;
    let open = Arc::new(OpenSources::with_memory(0));
    let reader = || {
        let again = name.to_owned();
        let again = Box::new(move || Ok(source(&again)));
        ArrayReader::new(source(name), again, options, "made", 1_000, &open).unwrap()
    };
    // One is open, and there is no room for another.
    let (_first, reader) = (reader(), reader());
    let schema = Arc::new(Schema::new(reader.infer(&reader.first_range())));
    let ranges = reader.ranges(Box::new(std::io::empty()), range_bytes, limit);
    let batches: Vec<RecordBatch> = ranges
        .map(|range| match reader.parse(&range.unwrap(), &schema).unwrap() {
            Parsed::Block(block) => match block.payload {
                Payload::Rows(rows) => rows,
                Payload::Samples(_) => panic!("samples"),
            },
            Parsed::Mismatch(mismatch) => panic!("{mismatch:?}"),
        })
        .collect();
    concat_batches(&schema, &batches).unwrap()
}

#[test]
fn records_do_not_depend_on_ranges() {
    for raw in [false, true] {
        let all = || {
            sources().into_iter().filter(|(_, source)| {
                source.header().variables.iter().all(|variable| variable.dtype.refusal_reason().is_none())
            })
        };
        assert!(all().count() >= 7);
        for (name, source) in all() {
            // Some have arrays with nothing in common, among which the user has to choose.
            let several = ["hdf5", "hdf5, layout of version 2"].contains(&name);
            let vars = source.header().variables.iter().take(usize::from(several)).map(|v| v.name.clone()).collect();
            let options = ArrayOptions { raw, vars, ..ArrayOptions::default() };
            let whole = records(name, &options, 1 << 30, 1 << 30);
            assert!(whole.num_rows() > 0, "{name}");
            assert_eq!(records(name, &options, 1, 1 << 16), whole, "{name}");
        }
    }
}

#[test]
fn what_was_cut_or_changed_ends_well() {
    for (name, open, bytes) in files() {
        let step = (bytes.len() / 200).max(1);
        let check = |bytes: Vec<u8>| match open(bytes) {
            Err(error) => assert!(matches!(error.kind(), Kind::Input | Kind::Integrity), "{name}: {error}"),
            Ok(source) => {
                for (number, variable) in source.header().variables.iter().enumerate() {
                    if variable.element_count() < 10_000 && variable.dtype.refusal_reason().is_none() {
                        let _ = source.read(number, &Slab::from_shape(&variable.shape));
                    }
                }
            }
        };
        for at in (0..bytes.len()).step_by(step) {
            check(bytes[..at].to_vec());
            for value in [0, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                check(changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn slabs_are_parts_of_the_whole(corners in prop::collection::vec((0.0_f64..1.0, 0.0_f64..1.0), 8)) {
        for (name, source) in sources() {
            for (number, variable) in source.header().variables.iter().enumerate() {
                let is_empty = variable.element_count() == 0 || variable.shape.is_empty();
                if variable.dtype.refusal_reason().is_some() || is_empty {
                    continue;
                }
                let at = |part: f64, length: u64| {
                    #[expect(clippy::cast_possible_truncation, reason = "a part of a small number")]
                    let at = (part * length as f64) as u64;
                    at.min(length - 1)
                };
                let start: Vec<u64> = variable.shape.iter().zip(&corners).map(|(n, (from, _))| at(*from, *n)).collect();
                let count: Vec<u64> = variable.shape.iter().zip(&start).zip(&corners)
                    .map(|((n, start), (_, part))| 1 + at(*part, n - start)).collect();
                let slab = Slab { start, count };
                let whole = elements(source.as_ref(), number, &Slab::from_shape(&variable.shape));
                let found = elements(source.as_ref(), number, &slab);
                prop_assert_eq!(found, part(&whole, &variable.shape, &slab), "{} {} {}", name, variable.name,
                    slab.describe());
            }
        }
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        for (_, open, good) in files() {
            let mut noisy = good[..8.min(good.len())].to_vec();
            noisy.extend_from_slice(&bytes);
            if let Ok(source) = open(noisy) {
                for (number, variable) in source.header().variables.iter().enumerate() {
                    if variable.element_count() < 10_000 && variable.dtype.refusal_reason().is_none() {
                        let _ = source.read(number, &Slab::from_shape(&variable.shape));
                    }
                }
            }
        }
    }
}
