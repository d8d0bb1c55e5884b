//! Headers and images, against literal bytes of the standard and files that other programs wrote; what is damaged ends
//! in errors.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::array::records::{ArrayOptions, Plan};

/// A header as the standard lays it out, field by field.
#[derive(Clone)]
struct Made {
    bytes: Vec<u8>,
    big: bool,
}

impl Made {
    fn version_one(dim: &[i16], datatype: i16, big: bool) -> Self {
        let mut made = Self { bytes: vec![0; 352], big };
        made.set(0, &348_i32.to_le_bytes());
        for (number, length) in std::iter::once(&i16::try_from(dim.len()).unwrap()).chain(dim).enumerate() {
            made.set(40 + 2 * number, &length.to_le_bytes());
        }
        made.set(70, &datatype.to_le_bytes());
        for number in 0..8_u8 {
            made.set(76 + 4 * usize::from(number), &f32::from(number + 1).to_le_bytes());
        }
        made.set(108, &352_f32.to_le_bytes());
        made.bytes[344..348].copy_from_slice(b"n+1\0");
        made
    }

    fn version_two(dim: &[i64], datatype: i16, big: bool) -> Self {
        let mut made = Self { bytes: vec![0; 544], big };
        made.set(0, &540_i32.to_le_bytes());
        made.bytes[4..12].copy_from_slice(b"n+2\0\r\n\x1a\n");
        made.set(12, &datatype.to_le_bytes());
        for (number, length) in std::iter::once(&i64::try_from(dim.len()).unwrap()).chain(dim).enumerate() {
            made.set(16 + 8 * number, &length.to_le_bytes());
        }
        made.set(168, &544_i64.to_le_bytes());
        made
    }

    /// Sets a field, given in little-endian order.
    fn set(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        let mut bytes = bytes.to_vec();
        if self.big {
            bytes.reverse();
        }
        self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
        self
    }

    fn with(&self, at: usize, bytes: &[u8]) -> Self {
        let mut other = self.clone();
        other.set(at, bytes);
        other
    }

    fn file(&self, image: &[u8]) -> Vec<u8> {
        [&self.bytes, image].concat()
    }
}

fn open(bytes: &[u8]) -> Result<NiftiSource> {
    NiftiSource::open(RangedInput::Bytes(bytes.to_vec().into()))
}

/// Opens a file as if it had been compressed as a whole.
fn open_packed(bytes: &[u8]) -> Result<NiftiSource> {
    let whole = Bytes::copy_from_slice(bytes);
    let head = whole.slice(..whole.len().min(HEAD));
    let unpack = move |end: u64| {
        let image = whole.slice(..usize::try_from(end).unwrap_or(usize::MAX).min(whole.len()));
        check_padding(end, 0, &whole[image.len()..])?;
        Ok(UnpackedImage { input: RangedInput::Bytes(image), kept: None })
    };
    NiftiSource::open_packed(PackedImage { head, unpack: Box::new(unpack) })
}

fn read(source: &NiftiSource, number: usize, slab: &Slab) -> Result<Vec<u8>> {
    source.read(number, slab).map(|values| match values {
        Values::Fixed(bytes) => bytes,
        Values::Varied(_) => unreachable!(),
    })
}

fn whole(source: &NiftiSource, number: usize) -> Result<Vec<u8>> {
    read(source, number, &Slab::from_shape(&source.header().variables[number].shape))
}

fn shape(source: &NiftiSource) -> (Vec<&str>, Vec<u64>) {
    let image = &source.header().variables[0];
    (image.dims.iter().map(String::as_str).collect(), image.shape.clone())
}

#[test]
fn both_versions_and_both_orders_are_read() {
    let values: Vec<i16> = (0..24).map(|number| number * 300 - 999).collect();
    let stored = |big: bool| -> Vec<u8> {
        values.iter().flat_map(|v| if big { v.to_be_bytes() } else { v.to_le_bytes() }).collect()
    };
    for big in [false, true] {
        for made in [Made::version_one(&[2, 3, 1, 4], 4, big), Made::version_two(&[2, 3, 1, 4], 4, big)] {
            let file = made.file(&stored(big));
            assert!(sniff(&file, false) && sniff(&file[..348.max(file.len() - 48)], false));
            for source in [open(&file).unwrap(), open_packed(&file).unwrap()] {
                assert_eq!(shape(&source), (vec!["t", "z", "y", "x"], vec![4, 1, 3, 2]));
                let expected: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
                assert_eq!(whole(&source, 0).unwrap(), expected);
                // The last row of the third volume: its values are the 17th and 18th.
                let row = Slab { start: vec![2, 0, 2, 0], count: vec![1, 1, 1, 2] };
                let expected: Vec<u8> = values[16..18].iter().flat_map(|value| value.to_ne_bytes()).collect();
                assert_eq!(read(&source, 0, &row).unwrap(), expected);
            }
        }
    }
}

#[test]
fn a_record_is_a_volume_with_its_transform() {
    let mut made = Made::version_one(&[2, 3, 2, 5], 2, false);
    made.set(254, &1_i16.to_le_bytes()).set(123, &[2 | 16]);
    for number in 0..12_u8 {
        made.set(280 + 4 * usize::from(number), &(f32::from(number) + 0.5).to_le_bytes());
    }
    let source = open(&made.file(&[7; 60])).unwrap();
    let plan = Plan::new(source.header(), &ArrayOptions::default()).unwrap();
    assert_eq!((plan.dim.as_deref(), plan.row_count(), plan.constants.len()), (Some("t"), 5, 0));
    let names: Vec<&str> = plan.columns.iter().map(|column| column.field.name().as_str()).collect();
    assert_eq!(names, ["image", "affine", "spacing", "time_step"]);
    let doubles = |number, slab: &Slab| DType::Float(8).decode_doubles(&read(&source, number, slab).unwrap());
    let row = Slab { start: vec![3, 1, 0], count: vec![2, 1, 4] };
    assert_eq!(doubles(1, &row), [4.5, 5.5, 6.5, 7.5, 4.5, 5.5, 6.5, 7.5]);
    assert_eq!(doubles(2, &Slab { start: vec![4, 0], count: vec![1, 3] }), [2.0, 3.0, 4.0]);
    assert_eq!(doubles(3, &Slab { start: vec![0], count: vec![5] }), [5.0; 5]);
    let unit = |number: usize| source.header().variables[number].attribute("units").and_then(Attribute::as_text);
    assert_eq!((unit(1), unit(2), unit(3)), (None, Some("mm"), Some("ms")));
}

#[test]
fn every_image_has_four_dimensions() {
    for (dim, dims, lengths) in [
        (&[5][..], &["t", "z", "y", "x"][..], &[1, 1, 1, 5][..]),
        (&[5, 2], &["t", "z", "y", "x"], &[1, 1, 2, 5]),
        (&[5, 1, 2], &["t", "z", "y", "x"], &[1, 2, 1, 5]),
        (&[5, 1, 1, 2, 1, 1, 1], &["t", "z", "y", "x"], &[2, 1, 1, 5]),
        (&[1, 1, 2, 1, 5], &["u", "t", "z", "y", "x"], &[5, 1, 2, 1, 1]),
        (&[1, 1, 2, 1, 1, 5], &["v", "u", "t", "z", "y", "x"], &[5, 1, 1, 2, 1, 1]),
    ] {
        let voxels: u64 = lengths.iter().product();
        let source =
            open(&Made::version_one(dim, 256, false).file(&vec![1; usize::try_from(voxels).unwrap()])).unwrap();
        assert_eq!(shape(&source), (dims.to_vec(), lengths.to_vec()), "{dim:?}");
        assert_eq!(Plan::new(source.header(), &ArrayOptions::default()).unwrap().dim.as_deref(), Some("t"));
    }
    // Lengths of dimensions that the header does not state mean nothing.
    let unstated = Made::version_one(&[5, 2, 1], 2, false).with(48, &(-7_i16).to_le_bytes());
    assert!(open(&unstated.file(&[1; 10])).is_ok());
    // A vector of FreeSurfer, whose length is in glmin.
    let long = Made::version_one(&[-1, 1, 1], 2, true).with(144, &40_000_i32.to_le_bytes());
    assert_eq!(shape(&open(&long.file(&[0; 40_000])).unwrap()).1, [1, 1, 1, 40_000]);
    let colours = open(&Made::version_one(&[2, 1, 1], 128, false).file(&[1, 2, 3, 4, 5, 6])).unwrap();
    assert_eq!(shape(&colours), (vec!["t", "z", "y", "x", "rgb"], vec![1, 1, 1, 2, 3]));
    assert_eq!(shape(&open(&Made::version_one(&[2, 1, 1], 2304, false).file(&[0; 8])).unwrap()).1[4], 4);
}

#[test]
fn slope_and_intercept_are_attributes_where_they_change_something() {
    let made = Made::version_one(&[2, 1, 1], 4, false);
    let scaled = |slope: f32, intercept: f32| {
        let made = made.with(112, &slope.to_le_bytes()).with(116, &intercept.to_le_bytes());
        open(&made.file(&[0; 4])).map(|source| {
            let image = &source.header().variables[0];
            ["scale_factor", "add_offset"].map(|name| image.attribute(name).map(Attribute::to_doubles))
        })
    };
    assert_eq!(scaled(0.1, -3.0).unwrap(), [Some(vec![f64::from(0.1_f32)]), Some(vec![-3.0])]);
    assert_eq!(scaled(1.0, 2.0).unwrap(), [Some(vec![1.0]), Some(vec![2.0])]);
    for (slope, intercept) in [(0.0, 5.0), (f32::NAN, 5.0), (f32::INFINITY, 5.0), (0.0, f32::NAN), (1.0, 0.0)] {
        assert_eq!(scaled(slope, intercept).unwrap(), [None, None], "{slope} {intercept}");
    }
    let error = scaled(2.0, f32::NAN).unwrap_err();
    assert_eq!((error.place().byte, error.message().contains("finite intercept")), (Some(116), true), "{error}");
}

#[test]
fn damaged_headers_are_refused_with_their_byte() {
    let one = Made::version_one(&[2, 2, 2], 2, false);
    let two = Made::version_two(&[2, 2, 2], 2, true);
    let short = |value: i16| value.to_le_bytes();
    let long = |value: i64| value.to_le_bytes();
    let float = |value: f32| value.to_le_bytes();
    let mut extended = one.with(108, &float(400.0)).with(348, &[1]);
    extended.bytes.resize(400, 0);
    let extension = |size: i32| extended.with(352, &size.to_le_bytes());
    for (made, byte, told) in [
        (one.with(40, &short(0)), 40, "expected 1 to 7 dimensions, found 0"),
        (one.with(40, &short(9)), 40, "found 9"),
        (two.with(16, &long(i64::MIN)), 16, "expected 1 to 7 dimensions"),
        (one.with(42, &short(-1)), 42, "expected a length of at least 1 of `x`, found -1"),
        (one.with(46, &short(0)), 46, "expected a length of at least 1 of `z`, found 0"),
        (two.with(24, &long(i64::MAX)), 552, "up to byte 18446744073709551615"),
        (one.with(42, &short(i16::MAX)), 360, "found the end of the file at 360"),
        (one.with(108, &float(f32::NAN)), 108, "found the offset NaN"),
        (one.with(108, &float(f32::INFINITY)), 108, "found the offset inf"),
        (one.with(108, &float(-352.0)), 108, "found the offset -352"),
        (one.with(108, &float(0.0)), 108, "expected the image after the header, from byte 352 on"),
        (one.with(108, &float(348.0)), 108, "found the offset 348"),
        (one.with(108, &float(352.5)), 108, "found the offset 352.5"),
        (one.with(108, &float(4e6)), 360, "found the end of the file at 360"),
        (two.with(168, &long(540)), 168, "from byte 544 on, found the offset 540"),
        (two.with(168, &long(i64::MAX)), 552, "found the end of the file at 552"),
        (extension(0), 352, "expected a multiple of 16, up to 48 bytes"),
        (extension(-16), 352, "as the size of an extension, found -16"),
        (extension(17), 352, "found 17"),
        (extension(64), 352, "found 64"),
        (extension(i32::MAX - 15), 352, "as the size of an extension"),
        (one.with(344, b"ni1\0"), 344, "found the header of a pair (.hdr and .img)"),
        (one.with(344, b"\0\0\0\0"), 344, "expected `n+1` at the place of the magic, found 00 00 00 00"),
        (two.with(4, b"\0\0\0\0\0\0\0\0"), 4, "expected `n+2` and 0d 0a 1a 0a"),
        (one.with(252, &short(1)).with(256, &float(2.0)), 256, "expected the numbers of a unit quaternion"),
    ] {
        let file = made.file(&[9; 8]);
        for opened in [open(&file), open_packed(&file).and_then(|source| whole(&source, 0).map(|_| source))] {
            let error = opened.unwrap_err();
            assert!(error.message().contains(told), "{told}: {error}");
            assert_eq!(error.place().byte, Some(byte), "{error}");
        }
    }
    // A flag without an extension, and one with two.
    assert!(open(&one.with(348, &[1]).file(&[9; 8])).is_ok());
    let two = extension(16).with(356, &44_i32.to_le_bytes()).with(368, &32_i32.to_le_bytes());
    let source = open(&two.file(&[9; 8])).unwrap();
    assert_eq!(source.header().remarks, ["header extensions are not taken (code 44, 0)"]);
}

#[test]
fn types_that_cannot_be_read_are_named() {
    for (datatype, what) in [(1, "one bit"), (32, "complex"), (1536, "128 bits"), (1792, "complex"), (0, "unknown")] {
        let source = open(&Made::version_one(&[2, 1, 1], datatype, false).file(&[])).unwrap();
        let error = Plan::new(source.header(), &ArrayOptions::default()).unwrap_err();
        assert!(error.message().contains(what) && error.message().contains(&datatype.to_string()), "{error}");
    }
}

#[test]
fn only_padding_may_follow_an_image() {
    let file = Made::version_one(&[2, 2, 2], 2, false).file(&[9; 8]);
    let with = |more: &[u8]| {
        let bytes = [&file, more].concat();
        let packed = open_packed(&bytes).and_then(|source| whole(&source, 0));
        let plain = open(&bytes).and_then(|source| whole(&source, 0));
        assert_eq!(packed.as_ref().map_err(Error::message), plain.as_ref().map_err(Error::message));
        plain
    };
    assert_eq!(with(&[0; 5000]).unwrap(), [9; 8]);
    let error = with(&[0, 0, 1, 0]).unwrap_err();
    assert!(error.message().contains("which ends at byte 360, found more"), "{error}");
    assert_eq!(error.place().byte, Some(362));
    assert!(with(&vec![0; (1 << 20) + 1]).is_err() && with(&vec![0; 1 << 20]).is_ok());
}

#[test]
fn an_image_is_unpacked_once() {
    let file = Made::version_one(&[2, 2, 2], 2, false).file(&[9; 8]);
    let counted = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (content, calls) = (Bytes::from(file), Arc::clone(&counted));
    let head = content.clone();
    let unpack = move |_| {
        calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(UnpackedImage { input: RangedInput::Bytes(content.clone()), kept: None })
    };
    let source = NiftiSource::open_packed(PackedImage { head, unpack: Box::new(unpack) }).unwrap();
    whole(&source, 1).unwrap();
    assert_eq!(counted.load(std::sync::atomic::Ordering::Relaxed), 0, "the header suffices for the transform");
    assert_eq!((whole(&source, 0).unwrap(), whole(&source, 0).unwrap()), (vec![9; 8], vec![9; 8]));
    assert_eq!(counted.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn cut_files_end_in_errors() {
    for made in [Made::version_one(&[2, 2, 2], 4, false), Made::version_two(&[2, 2, 2], 4, true)] {
        let file = made.file(&[9; 16]);
        for end in 0..file.len() {
            let plain = open(&file[..end]).unwrap_err();
            let packed = open_packed(&file[..end]).and_then(|source| whole(&source, 0)).unwrap_err();
            assert_eq!((plain.message(), plain.place().byte), (packed.message(), packed.place().byte), "{end}");
            assert!(plain.place().byte.is_some(), "{end}: {plain}");
        }
    }
}

proptest! {
    #[test]
    fn flipped_bits_are_read_or_refused(at in 0..360 * 8_usize, big: bool) {
        let mut file = Made::version_one(&[2, 2, 2], 2, big).file(&[9; 8]);
        file[at / 8] ^= 1 << (at % 8);
        match open(&file) {
            Err(error) => prop_assert!(error.place().byte.is_some(), "{error}"),
            Ok(source) => {
                for number in 0..source.header().variables.len() {
                    let width = source.header().variables[number].dtype.byte_width();
                    prop_assert!(width.is_none() || whole(&source, number).is_ok());
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..700), two: bool, big: bool) {
        let made = if two { Made::version_two(&[1], 2, big) } else { Made::version_one(&[1], 2, big) };
        let kept = if two { 12 } else { 4 };
        let _ = open(&[&made.bytes[..kept], &bytes].concat());
        let _ = open_packed(&bytes);
    }
}
