//! Headers and tensors, against literal bytes of the specification and files that the library wrote; what is damaged
//! ends in errors.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use proptest::prelude::*;

use super::*;
use crate::array::DType;

/// Returns a file of this header and these tensors.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn open(bytes: &[u8], raw: bool) -> Result<SafetensorsSource> {
    SafetensorsSource::open(RangedInput::Bytes(bytes.to_vec().into()), raw)
}

fn read_all(source: &SafetensorsSource, number: usize) -> Vec<u8> {
    let slab = Slab::from_shape(&source.header().variables[number].shape);
    match source.read(number, &slab).unwrap() {
        Values::Fixed(bytes) => bytes,
        Values::Varied(_) => unreachable!(),
    }
}

/// The example of the format's description, with a tensor of one byte that comes first in the file.
const TWO: &str = concat!(
    r#"{"__metadata__":{"format":"pt"},"x":{"dtype":"F16","shape":[2,2],"data_offsets":[1,9]},"#,
    r#""flag":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}}   "#
);
const DATA: [u8; 9] = [1, 0x00, 0x3c, 0x00, 0xc0, 0xff, 0x7b, 0x00, 0x7c];

#[test]
fn tensors_are_read_as_the_header_states() {
    let source = open(&file(TWO, &DATA), false).unwrap();
    let header = source.header();
    assert_eq!(header.attributes, [("format".to_owned(), Attribute::Text("pt".to_owned()))]);
    let (x, flag) = (&header.variables[0], &header.variables[1]);
    assert_eq!((x.name.as_str(), &x.dtype, x.shape.as_slice()), ("x", &DType::Float(2), &[2, 2][..]));
    assert_eq!(x.dims, ["dim_0", "dim_1"]);
    assert_eq!((flag.name.as_str(), &flag.dtype, flag.shape.len()), ("flag", &DType::Bool, 0));
    // 1, -2, 65504, infinity.
    assert_eq!(DType::Float(2).decode_doubles(&read_all(&source, 0)), [1.0, -2.0, 65504.0, f64::INFINITY]);
    assert_eq!(read_all(&source, 1), [1]);
    let second = source.read(0, &Slab { start: vec![1, 1], count: vec![1, 1] }).unwrap();
    assert_eq!(second, Values::Fixed(f16_infinity()));
}

fn f16_infinity() -> Vec<u8> {
    0x7c00_u16.to_ne_bytes().to_vec()
}

#[test]
fn files_are_told_by_a_number_before_an_object() {
    let whole = file(TWO, &DATA);
    assert!(sniff(&whole, false) && sniff(&file("{}", b""), false) && sniff(&file("{ \n}", b""), false));
    for other in [&whole[..8], b"{\"a\":1}\n{\"a\":2}\n", b"", b"\0\0\0\0\0\0\0\0[1]", &file("{1", b"")] {
        assert!(!sniff(other, true), "{other:?}");
    }
    let large = [&u64::MAX.to_le_bytes()[..], b"{\"x\""].concat();
    assert!(sniff(&large, true) && !sniff(&large, false));
}

#[test]
fn numbers_without_a_column_type_are_read_as_bits() {
    for (dtype, shape, bytes, stored, raw_shape) in [
        ("BF16", "[2]", 4, DType::UInt(2), &[2][..]),
        ("F8_E5M2", "[3,1]", 3, DType::UInt(1), &[3, 1]),
        ("F8_E4M3", "[]", 1, DType::UInt(1), &[]),
        ("F4", "[3,4]", 6, DType::UInt(1), &[3, 2]),
        ("F6_E3M2", "[2,4]", 6, DType::UInt(1), &[2, 3]),
    ] {
        let header = format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{bytes}]}}}}"#);
        let data: Vec<u8> = (1..=bytes).collect();
        let raw = open(&file(&header, &data), true).unwrap();
        let variable = &raw.header().variables[0];
        assert_eq!((&variable.dtype, variable.shape.as_slice()), (&stored, raw_shape), "{dtype}");
        let mut expected = data.clone();
        stored.swap_bytes(&mut expected);
        assert_eq!(read_all(&raw, 0), if cfg!(target_endian = "little") { data.clone() } else { expected });
        let plain = open(&file(&header, &data), false).unwrap();
        let reason = plain.header().variables[0].dtype.refusal_reason().unwrap().to_owned();
        assert!(reason.contains(dtype) && reason.contains("--read raw=yes"), "{reason}");
    }
    let header = r#"{"x":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}}"#;
    let error = open(&file(header, &[0; 3]), true).unwrap_err();
    assert!(error.message().contains("whole bytes in the last dimension"), "{error}");
}

#[test]
fn what_contradicts_the_format_is_refused_with_its_place() {
    let of = |members: &str| file(&format!("{{{members}}}"), &[0; 8]);
    let tensor = |name: &str, dtype: &str, shape: &str, from: u64, to: u64| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#)
    };
    let two = |one: &str, other: &str| of(&[one, other].join(","));
    let whole = tensor("x", "F32", "[2]", 0, 8);
    assert!(open(&of(&whole), false).is_ok());
    for (bytes, message, column) in [
        (two(&whole, &whole), "found the key `x` twice", None),
        (of(&format!(r#""__metadata__":{{"a":"1","a":"2"}},{whole}"#)), "found the key `a` twice", None),
        (of(&format!(r#""__metadata__":{{"a":1}},{whole}"#)), "expected a string", None),
        (of(&whole.replace("shape", "shapes")), "missing field `shape`", None),
        (of(&whole.replace("[2]", "[-2]")), "invalid value: integer `-2`", None),
        (of(&whole.replace("[2]", &format!("{:?}", [1; 65]))), "more than 64 dimensions", None),
        (of(&whole.replace("F32", "F31")), "expected a type of safetensors, found `F31`", Some("x")),
        (of(&whole.replace("F32", "I8")), "expected 2 bytes for I8 of the shape [2], found 8", Some("x")),
        (of(&tensor("x", "F32", "[4294967296,4294967296]", 0, 8)), "expected a tensor that fits", Some("x")),
        (
            of(&tensor("x", "F4", "[15]", 0, 8)),
            "expected whole bytes for F4 of the shape [15], found 60 bits",
            Some("x"),
        ),
        (two(&tensor("x", "U8", "[4]", 0, 4), &tensor("y", "U8", "[3]", 5, 8)), "found a gap: 5 to 8", Some("y")),
        (two(&tensor("x", "U8", "[4]", 0, 4), &tensor("y", "U8", "[5]", 3, 8)), "found an overlap: 3 to 8", Some("y")),
        (of(&tensor("x", "U8", "[4]", 8, 4)), "found an end before the begin: 8 to 4", Some("x")),
        (of(&tensor("x", "F32", "[1]", 0, 4)), "as its tensors state, found", None),
        (of(&tensor("x", "U8", "[9]", 0, 9)), "as its tensors state, found", None),
        (of(&tensor("x", "U8", "[18446744073709551615]", 0, u64::MAX)), "expected a file of more than 2^64", None),
        (of(""), "as its tensors state, found", None),
        (file("{}x", b""), "found trailing characters", None),
        (file("[]", b""), "expected the header of a safetensors file", None),
        (file("{\"\u{0}", b""), "expected the header of a safetensors file", None),
        ([&9_u64.to_le_bytes()[..], b"{}"].concat(), "expected a header of 9 bytes, found the end of the file", None),
        ([&(1_u64 << 63).to_le_bytes()[..], b"{}"].concat(), "expected a header of at most 100000000 bytes", None),
        (vec![2, 0, 0], "expected a number of 8 bytes, found 3", None),
    ] {
        let error = open(&bytes, false).unwrap_err();
        assert!(error.message().contains(message), "{message}: {error}");
        assert_eq!(error.place().column.as_deref(), column, "{error}");
        assert!(error.place().byte.is_some_and(|byte| byte <= bytes.len() as u64 + 9), "{error:?}");
    }
    // The byte is that of the second key.
    let repeated = format!("{{{whole},{whole}}}");
    let error = open(&file(&repeated, &[0; 8]), false).unwrap_err();
    let second = 8 + repeated.rfind("\"x\"").unwrap() as u64;
    assert!(error.place().byte.is_some_and(|byte| byte > second && byte <= second + 4), "{error:?}");
}

#[test]
fn hosts_of_tensors_are_refused_before_they_take_memory() {
    let tensors: Vec<String> = (0..=1 << 16)
        .map(|number| format!(r#""{number}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#))
        .collect();
    let error = open(&file(&format!("{{{}}}", tensors.join(",")), b""), false).unwrap_err();
    assert!(error.message().contains("more than 65536 tensors"), "{error}");
    assert!(open(&file(&format!("{{{}}}", tensors[1..].join(",")), b""), false).is_ok());
}

#[test]
fn cut_files_end_in_errors() {
    let whole = file(TWO, &DATA);
    for end in 0..whole.len() {
        let error = open(&whole[..end], false).unwrap_err();
        assert!(error.place().byte.is_some(), "{end}: {error}");
    }
}

proptest! {
    #[test]
    fn flipped_bits_change_values_and_nothing_else(at in 0..(8 + TWO.len() + DATA.len()) * 8) {
        let mut bytes = file(TWO, &DATA);
        bytes[at / 8] ^= 1 << (at % 8);
        match open(&bytes, false) {
            Err(error) => prop_assert!(error.place().byte.is_some(), "{error}"),
            Ok(source) => {
                let variables = source.header().variables.iter().enumerate();
                let taken = variables.map(|(number, variable)| match variable.dtype.byte_width() {
                    Some(_) => read_all(&source, number).len(),
                    // BF16 differs from F16 by more than a bit, but this test need not know.
                    None => 8,
                });
                prop_assert_eq!(taken.sum::<usize>(), DATA.len());
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        header in "[{}\",:\\[\\]0-9a-z]{0,40}",
    ) {
        let _ = open(&bytes, false);
        let _ = open(&file(&header, &bytes), true);
    }

    /// Tensors of these shapes, one after the other, come back from any slab.
    #[test]
    fn slabs_are_those_of_the_whole(shapes in proptest::collection::vec((0..4_u64, 1..4_u64), 1..5), seed: u8) {
        let (mut members, mut at) = (Vec::new(), 0);
        for (number, (rows, columns)) in shapes.iter().enumerate() {
            let end = at + rows * columns * 2;
            let place = format!(r#""shape":[{rows},{columns}],"data_offsets":[{at},{end}]"#);
            members.push(format!(r#""{number}":{{"dtype":"U16",{place}}}"#));
            at = end;
        }
        members.rotate_left(usize::from(seed) % shapes.len());
        let data: Vec<u8> = (0..at / 2).flat_map(|number| u16::try_from(number).unwrap_or(0).to_le_bytes()).collect();
        let source = open(&file(&format!("{{{}}}", members.join(",")), &data), false).unwrap();
        for (number, variable) in source.header().variables.iter().enumerate() {
            let own: usize = variable.name.parse().unwrap();
            let before: u64 = shapes[..own].iter().map(|(rows, columns)| rows * columns).sum();
            let (rows, columns) = shapes[own];
            for row in 0..rows {
                let slab = Slab { start: vec![row, columns - 1], count: vec![1, 1] };
                let expected = u16::try_from(before + (row + 1) * columns - 1).unwrap().to_ne_bytes().to_vec();
                prop_assert_eq!(source.read(number, &slab).unwrap(), Values::Fixed(expected));
            }
        }
    }
}
