//! Mutations that know where lengths and offsets lie, and make checksums right again; shared by the targets of
//! cargo-fuzz and by `tests/fuzz_smoke.rs`. `scripts/checks/mutators.py` has the same for whole files of the corpus,
//! and more of it.

use std::io::{Read, Write};

/// A small generator, so that a seed says it all.
pub struct Random(u64);

impl Random {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.number().checked_rem(end as u64).unwrap_or(0) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

const LIMITS: [u64; 34] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    31,
    32,
    63,
    64,
    100,
    127,
    128,
    129,
    255,
    256,
    1000,
    1023,
    1024,
    4096,
    32767,
    32768,
    65535,
    65536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 62,
    i64::MAX as u64,
    u64::MAX,
];

/// A number near another one, or at a limit of something.
fn nearby(random: &mut Random, value: u64) -> u64 {
    match random.below(6) {
        0 => value.wrapping_add(1),
        1 => value.wrapping_sub(1),
        2 => value.wrapping_mul(2),
        3 => value ^ 1 << random.below(64),
        4 => random.number() >> random.below(64),
        _ => random.one(&LIMITS),
    }
}

/// Changes the integer of `width` bytes at `at`.
fn integer(data: &mut [u8], at: usize, width: usize, big: bool, random: &mut Random) {
    let Some(bytes) = data.get_mut(at..at + width) else { return };
    let fold = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
    let old = if big { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) };
    let new = nearby(random, old);
    for (place, byte) in bytes.iter_mut().enumerate() {
        let shift = 8 * if big { width - 1 - place } else { place };
        *byte = (new >> shift) as u8;
    }
}

/// Places of a pattern.
fn places(data: &[u8], pattern: &[u8]) -> Vec<usize> {
    if pattern.is_empty() || data.len() < pattern.len() {
        return Vec::new();
    }
    data.windows(pattern.len()).enumerate().filter(|(_, window)| *window == pattern).map(|(at, _)| at).collect()
}

/// A damaged copy for the reader of this name.
pub fn mutant(name: &str, data: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = data.to_vec();
    if out.is_empty() {
        return vec![random.number() as u8];
    }
    for _ in 0..random.one(&[1, 1, 1, 2, 4]) {
        out = match (name, random.below(4)) {
            (_, 0) => plain(out, random),
            ("parquet", _) => parquet(out, random),
            ("tar", _) => tar(out, random),
            ("tfrecord", _) => tfrecord(out, random),
            ("foreign_shards", 1) => tar(out, random),
            ("foreign_shards", _) => tfrecord(out, random),
            ("hdf5", _) => hdf5(out, random),
            ("netcdf", _) if out.starts_with(b"\x89HDF") => hdf5(out, random),
            ("netcdf", _) => words(out, random, 2048, true),
            ("npy", _) if out.starts_with(b"PK") => zip(out, random),
            ("safetensors", _) => safetensors(out, random),
            ("nifti", _) => words(out, random, 560, is_big(data)),
            ("arrow", _) => words(out, random, usize::MAX, false),
            ("packed", _) => packed(out, random),
            ("zarr" | "delta" | "dataset", _) => several(name, out, random),
            ("csv" | "json" | "jsonl" | "proof" | "schema" | "arguments" | "npy" | "warc", _) => tokens(out, random),
            _ => plain(out, random),
        };
        if out.is_empty() {
            out.push(0);
        }
    }
    out
}

/// Bits, bytes, integers, blocks.
fn plain(mut out: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let at = random.below(out.len());
    let length = random.one(&[1, 2, 4, 8, 64, 512]).min(out.len() - at);
    match random.below(8) {
        0 | 1 => out[at] ^= 1 << random.below(8),
        2 => out[at] = random.number() as u8,
        3 => out.truncate(at.max(1)),
        4 => {
            let width = random.one(&[2, 4, 8]);
            let big = random.below(2) == 0;
            integer(&mut out, at, width, big, random);
        }
        5 => out[at..at + length].fill(random.one(&[0, 255])),
        6 => drop(out.drain(at..at + length)),
        _ => {
            let block = out[at..at + length].to_vec();
            out.splice(at..at, block);
        }
    }
    out
}

/// Aligned words of the first bytes, or near the end, where metadata lie.
fn words(mut out: Vec<u8>, random: &mut Random, reach: usize, big: bool) -> Vec<u8> {
    let width = random.one(&[2, 4, 4, 8]);
    let reach = reach.min(out.len());
    let start = if random.below(4) == 0 { out.len().saturating_sub(512) } else { 0 };
    let at = (start + random.below(reach.min(out.len() - start))) / 4 * 4;
    integer(&mut out, at, width, big, random);
    out
}

/// Whether the numbers of a NIfTI file are big-endian, as its first one says.
fn is_big(data: &[u8]) -> bool {
    data.first() == Some(&0)
}

/// Tokens of the header, whose length stays right.
fn safetensors(out: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let length = out.first_chunk().map_or(0, |size| u64::from_le_bytes(*size)) as usize;
    let Some((header, data)) = out.get(8..).and_then(|rest| rest.split_at_checked(length)) else {
        return plain(out, random);
    };
    let header = tokens(header.to_vec(), random);
    [&(header.len() as u64).to_le_bytes()[..], &header, data].concat()
}

/// Numbers of the footer, whose length stays right, and begins of pages.
fn parquet(mut out: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let end = out.len().saturating_sub(8);
    let Some(Ok(length)) = out.get(end..end + 4).map(<[u8; 4]>::try_from) else {
        return plain(out, random);
    };
    let Some(start) = end.checked_sub(u32::from_le_bytes(length) as usize).filter(|start| *start < end) else {
        return plain(out, random);
    };
    if random.below(3) == 0 && start > 4 {
        // Headers of pages are small, and levels come first in pages: both lie behind what looks like a header.
        let heads = places(&out[..start], &[0x15]);
        let at = heads.get(random.below(heads.len())).copied().unwrap_or(4) + random.below(24);
        if let Some(byte) = out.get_mut(at) {
            *byte = nearby(random, u64::from(*byte)) as u8;
        }
        return out;
    }
    let at = start + random.below(end - start);
    if random.below(3) > 0 {
        out[at] = nearby(random, u64::from(out[at])) as u8;
        return out;
    }
    // A number of another length in place of a byte.
    let mut value = nearby(random, u64::from(out[at]));
    let mut number = Vec::new();
    while value > 127 {
        number.push(value as u8 | 128);
        value >>= 7;
    }
    number.push(value as u8);
    out.splice(at..at + 1, number);
    let end = out.len() - 8;
    out[end..end + 4].copy_from_slice(&u32::try_from(end - start).unwrap_or(0).to_le_bytes());
    out
}

/// Fields of a header, with its checksum.
fn tar(mut out: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let headers: Vec<usize> =
        (0..out.len() / 512).map(|block| 512 * block).filter(|at| out[at + 257..at + 262] == *b"ustar").collect();
    if headers.is_empty() {
        return plain(out, random);
    }
    let at = random.one(&headers);
    let (start, width) =
        random.one(&[(0, 100), (100, 8), (124, 12), (124, 12), (156, 1), (156, 1), (157, 100), (257, 8), (345, 155)]);
    let field = &mut out[at + start..at + start + width];
    match random.below(4) {
        0 if width > 1 => {
            let digits = format!("{:0width$o}", random.number() >> (63 - 3 * (width.min(21) - 1)), width = width - 1);
            let length = digits.len().min(width - 1);
            field[..length].copy_from_slice(&digits.as_bytes()[..length]);
        }
        1 if width == 12 => {
            field[0] = random.one(&[0x80, 0xff]);
            let number = nearby(random, 512);
            field[4..].copy_from_slice(&number.to_be_bytes());
        }
        2 if width == 1 => field[0] = random.one(b"01257xgLKSVMN"),
        _ => field[random.below(width)] = random.number() as u8,
    }
    let header = &mut out[at..at + 512];
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out
}

fn masked_crc32c(data: &[u8]) -> [u8; 4] {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data) as u32;
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// The length or the data of a record, with right checksums.
fn tfrecord(out: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(head) = out.get(at..at + 8).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()) {
        let length = u64::from_le_bytes(head) as usize;
        let Some(end) = at.checked_add(16).and_then(|at| at.checked_add(length)).filter(|end| *end <= out.len()) else {
            break;
        };
        frames.push((at, end));
        at = end;
    }
    if frames.is_empty() {
        return plain(out, random);
    }
    let (start, end) = random.one(&frames);
    let mut data = out[start + 12..end - 4].to_vec();
    let mut head = data.len() as u64;
    if random.below(4) == 0 {
        head = nearby(random, head);
    } else if !data.is_empty() {
        data = plain(data, random);
        head = data.len() as u64;
    }
    let head = head.to_le_bytes();
    let mut frame = head.to_vec();
    frame.extend_from_slice(&masked_crc32c(&head));
    frame.extend_from_slice(&data);
    frame.extend_from_slice(&masked_crc32c(&data));
    [&out[..start], &frame, &out[end..]].concat()
}

/// Fields behind signatures, and numbers of messages of object headers; checksums of small blocks are made right.
fn hdf5(mut out: Vec<u8>, random: &mut Random) -> Vec<u8> {
    const SIGNS: [&[u8]; 16] = [
        b"OHDR",
        b"OCHK",
        b"TREE",
        b"HEAP",
        b"SNOD",
        b"FRHP",
        b"FHDB",
        b"BTHD",
        b"BTLF",
        b"FAHD",
        b"FADB",
        b"EAHD",
        b"EAIB",
        b"GCOL",
        b"\x89HDF",
        b"\x01\x00\x18\x00",
    ];
    let sign = random.one(&SIGNS);
    let found = places(&out, sign);
    let Some(at) = found.get(random.below(found.len())).copied() else { return plain(out, random) };
    let width = random.one(&[1, 1, 2, 4, 8, 8]);
    let fixed = match sign {
        b"FAHD" => Some(24),
        b"EAHD" => Some(68),
        b"BTHD" => Some(34),
        b"FRHP" => Some(142),
        b"\x89HDF" if out.get(at + 8).is_some_and(|version| *version >= 2) => Some(44),
        b"OHDR" => header_length(&out[at..]),
        _ => None,
    };
    let reach = fixed.unwrap_or(72);
    let place = at + 4 + random.below(reach.saturating_sub(4 + width).max(1));
    integer(&mut out, place, width, false, random);
    if let Some(length) = fixed
        && at + length + 4 <= out.len()
    {
        let sum = lookup3(&out[at..at + length]);
        out[at + length..at + length + 4].copy_from_slice(&sum.to_le_bytes());
    }
    out
}

/// Bytes of an object header of version 2 up to its checksum.
fn header_length(header: &[u8]) -> Option<usize> {
    let flags = *header.get(5)?;
    let at = 6 + if flags & 32 > 0 { 16 } else { 0 } + if flags & 16 > 0 { 4 } else { 0 };
    let width = 1_usize << (flags & 3);
    let size = header.get(at..at + width)?.iter().rev().fold(0_usize, |all, byte| all << 8 | usize::from(*byte));
    (size < 4096).then_some(at + width + size)
}

/// Jenkins' hash of 2006, which HDF5 has as its checksum.
fn lookup3(data: &[u8]) -> u32 {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
    let start = 0xdead_beef_u32.wrapping_add(data.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut rest = data;
    while rest.len() > 12 {
        a = a.wrapping_add(word(&rest[..4]));
        b = b.wrapping_add(word(&rest[4..8]));
        c = c.wrapping_add(word(&rest[8..12]));
        a = a.wrapping_sub(c) ^ c.rotate_left(4);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(6);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(8);
        b = b.wrapping_add(a);
        a = a.wrapping_sub(c) ^ c.rotate_left(16);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(19);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(4);
        b = b.wrapping_add(a);
        rest = &rest[12..];
    }
    if rest.is_empty() {
        return c;
    }
    let mut last = [0; 12];
    last[..rest.len()].copy_from_slice(rest);
    a = a.wrapping_add(word(&last[..4]));
    b = b.wrapping_add(word(&last[4..8]));
    c = c.wrapping_add(word(&last[8..]));
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

/// Fields of the directories of a zip.
fn zip(mut out: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let sign: &[u8] = random.one(&[b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"]);
    let found = places(&out, sign);
    let Some(at) = found.get(random.below(found.len())).copied() else { return plain(out, random) };
    let width = random.one(&[2, 4]);
    integer(&mut out, at + 4 + random.below(40), width, false, random);
    out
}

/// What lies within a gzip, or the gzip itself.
fn packed(out: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let mut inner = Vec::new();
    let unpacked = flate2::read::MultiGzDecoder::new(out.as_slice()).take(1 << 20).read_to_end(&mut inner);
    if unpacked.is_err() || inner.is_empty() || random.below(2) == 0 {
        return plain(out, random);
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let written = gzip.write_all(&tokens(inner, random)).and_then(|()| gzip.finish());
    written.unwrap_or(out)
}

/// One of several files, by what it is.
fn several(name: &str, out: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let mut files = shardify::fuzzing::several(&out);
    if files.is_empty() {
        return plain(out, random);
    }
    let number = random.below(files.len());
    let (path, content) = &mut files[number];
    if !content.is_empty() {
        let kind = match path.rsplit('.').next() {
            Some("json" | "zarray" | "zattrs" | "zgroup" | "zmetadata") => "json",
            Some("parquet") => "parquet",
            Some("tar") => "tar",
            Some("tfrecord") => "tfrecord",
            _ => "",
        };
        *content = mutant(kind, content, random).into();
    } else if name == "zarr" {
        path.push('0');
    }
    let parts = files.iter().map(|(path, content)| (path.as_str(), content.as_ref()));
    shardify::fuzzing::joined(parts)
}

/// Tokens in place of others.
fn tokens(mut out: Vec<u8>, random: &mut Random) -> Vec<u8> {
    const TOKENS: [&[u8]; 44] = [
        b"null",
        b"true",
        b"NaN",
        b"-Infinity",
        b"-0",
        b"1e400",
        b"9223372036854775808",
        b"-9223372036854775809",
        b"0.1",
        b"\"\"",
        b"\"\\ud800\"",
        b"\"\\u0000\"",
        b"{}",
        b"[]",
        b"[[[[[[[[",
        b"}",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\n",
        b"\r\n",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b";",
        b"\t",
        b"2020-02-30",
        b"9999-12-31T23:59:60Z",
        b"list<",
        b"struct<a: ",
        b">",
        b"decimal(",
        b"8YiB",
        b"-1",
        b"0",
        b"18446744073709551615",
        b"'<f8'",
        b"'|O'",
        b"(0,)",
        b"--",
        b"=",
        b"\"a\":",
    ];
    let at = random.below(out.len());
    if random.below(3) == 0 {
        // A number becomes another.
        let digits = |byte: &u8| byte.is_ascii_digit();
        let start = out[at..].iter().position(digits).map_or(at, |place| at + place);
        let end = out[start..].iter().position(|byte| !digits(byte)).map_or(out.len(), |place| start + place);
        let number = nearby(random, (end - start) as u64).to_string();
        out.splice(start..end, number.into_bytes());
        return out;
    }
    let length = random.one(&[0, 0, 1, 4]).min(out.len() - at);
    out.splice(at..at + length, random.one(&TOKENS).iter().copied());
    out
}
