//! Header blocks of tar members: ustar, preceded by pax if a value does not fit ustar.
//!
//! ```text
//! ustar  0 name 100 | 100 mode 8 | 108 uid 8 | 116 gid 8 | 124 size 12 | 136 mtime 12 | 148 checksum 8
//!        156 type 1 | 157 link 100 | 257 "ustar\0" "00" | 265 owner 32 | 297 group 32 | 329 devices 16
//!        345 prefix 155 | 500 zeros 12
//! pax    header of type 'x' | records "LENGTH key=value\n" padded to 512 | header of the member itself
//! ```
//!
//! A name of more than 100 bytes is split at a slash into prefix and name if both fit. Names are stored as UTF-8.

/// Block size of a tar.
pub(super) const BLOCK: usize = 512;
/// Two blocks of zeros end an archive.
pub(super) const TRAILER: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Maximum length of a written member name, in bytes.
pub(super) const MAX_NAME: usize = 0xffff;
/// Largest size that eleven octal digits can represent.
pub(super) const MAX_OCTAL_SIZE: u64 = (8 << 30) - 1;
/// Maximum bytes of pax records that are read: twice the size for the longest name.
const MAX_PAX: u64 = 2 * (MAX_NAME as u64 + 1);

pub(super) const NAME: std::ops::Range<usize> = 0..100;
pub(super) const SIZE: std::ops::Range<usize> = 124..136;
pub(super) const CHECKSUM: std::ops::Range<usize> = 148..156;
pub(super) const TYPE: usize = 156;
pub(super) const LINK: std::ops::Range<usize> = 157..257;
pub(super) const MAGIC: std::ops::Range<usize> = 257..265;
pub(super) const PREFIX: std::ops::Range<usize> = 345..500;

/// Header of an empty regular file without a name, mode 0644, with owner and time zero.
const TEMPLATE: [u8; BLOCK] = {
    let mut block = [0; BLOCK];
    let fields: [(usize, &[u8]); 9] = [
        (100, b"0000644\0"),
        (108, b"0000000\0"),
        (116, b"0000000\0"),
        (SIZE.start, b"00000000000\0"),
        (136, b"00000000000\0"),
        (CHECKSUM.start, b"        "),
        (TYPE, b"0"),
        (MAGIC.start, b"ustar\x0000"),
        (329, b"0000000\x000000000\0"),
    ];
    let mut field = 0;
    while field < fields.len() {
        let (start, bytes) = fields[field];
        let mut i = 0;
        while i < bytes.len() {
            block[start + i] = bytes[i];
            i += 1;
        }
        field += 1;
    }
    block
};

/// Appends the header of a regular file, with a pax header before it if needed.
pub(super) fn push_member_header(out: &mut Vec<u8>, name: &str, size: u64) {
    let fits = split_name(name);
    let large = size > MAX_OCTAL_SIZE;
    if fits.is_none() || large {
        let mut records = Vec::with_capacity(name.len() + 64);
        if fits.is_none() {
            push_pax_record(&mut records, "path", name);
        }
        if large {
            push_pax_record(&mut records, "size", &size.to_string());
        }
        push_ustar(out, "", "././@PaxHeader", records.len() as u64, b'x');
        out.extend_from_slice(&records);
        push_padding(out, records.len());
    }
    let (prefix, name) = fits.unwrap_or_else(|| ("", shorten_name(name)));
    push_ustar(out, prefix, name, if large { 0 } else { size }, b'0');
}

/// Sets the size in a header block, then its checksum.
pub(super) fn seal_header(block: &mut [u8], size: u64) {
    set_octal(&mut block[SIZE.start..SIZE.end - 1], size);
    let sum = header_checksum(block);
    set_octal(&mut block[CHECKSUM.start..CHECKSUM.start + 6], u64::from(sum));
    block[CHECKSUM.start + 6..CHECKSUM.end].copy_from_slice(b"\0 ");
}

/// Returns the number of zeros between content of this length and the next block.
pub(super) fn padding_length(length: usize) -> usize {
    length.wrapping_neg() % BLOCK
}

/// Appends the zeros after content of this length.
pub(super) fn push_padding(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&[0; BLOCK][..padding_length(length)]);
}

fn push_ustar(out: &mut Vec<u8>, prefix: &str, name: &str, size: u64, kind: u8) {
    let start = out.len();
    out.extend_from_slice(&TEMPLATE);
    let block = &mut out[start..];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[PREFIX.start..PREFIX.start + prefix.len()].copy_from_slice(prefix.as_bytes());
    block[TYPE] = kind;
    seal_header(block, size);
}

/// Splits a name into ustar's prefix and name at the first possible slash; `None` if they do not fit.
fn split_name(name: &str) -> Option<(&str, &str)> {
    if name.len() <= NAME.len() {
        return Some(("", name));
    }
    let earliest = (name.len() - NAME.len() - 1).max(1);
    let cut = earliest + memchr::memchr(b'/', &name.as_bytes()[earliest..])?;
    (cut <= PREFIX.len() && cut + 1 < name.len()).then(|| (&name[..cut], &name[cut + 1..]))
}

/// Returns the name for readers without pax support; it must not end in a slash, which would mean a folder.
fn shorten_name(name: &str) -> &str {
    let mut end = NAME.len().min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].trim_end_matches('/')
}

fn push_pax_record(out: &mut Vec<u8>, key: &str, value: &str) {
    // The length includes its own digits.
    let rest = " =\n".len() + key.len() + value.len();
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(format!("{length} {key}={value}\n").as_bytes());
}

fn set_octal(field: &mut [u8], mut value: u64) {
    for digit in field.iter_mut().rev() {
        *digit = b'0' + (value & 7) as u8;
        value >>= 3;
    }
}

/// Returns the sum of the bytes, with blanks in place of the checksum itself.
pub(super) fn header_checksum(block: &[u8]) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    sum(block) - sum(&block[CHECKSUM]) + 8 * u32::from(b' ')
}

/// Result of parsing the bytes before the content of a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// This many bytes from the start are needed.
    Needs(usize),
    /// Complete: bytes of the headers, and bytes of content after them.
    Member { length: usize, size: u64 },
}

/// Parses the headers of a member from the start of `window` and stores its name in `name`. The error message states
/// what was expected and found.
pub(super) fn parse_headers(window: &[u8], name: &mut Vec<u8>) -> Result<Head, String> {
    let Some(first) = window.first_chunk::<BLOCK>() else { return Ok(Head::Needs(BLOCK)) };
    let (kind, size) = parse_ustar(first)?;
    if kind == b'0' {
        name_of(first, name);
        return Ok(Head::Member { length: BLOCK, size });
    }
    let length = usize::try_from(size)
        .ok()
        .filter(|_| size <= MAX_PAX)
        .ok_or_else(|| format!("expected a pax header of at most {MAX_PAX} bytes, found one of {size}"))?;
    let own = BLOCK + length + padding_length(length);
    let Some(records) = window.get(BLOCK..own) else { return Ok(Head::Needs(own + BLOCK)) };
    let Some(second) = window[own..].first_chunk::<BLOCK>() else { return Ok(Head::Needs(own + BLOCK)) };
    let (kind, size) = parse_ustar(second)?;
    if kind != b'0' {
        return Err("expected a file after a pax header, found another pax header".to_owned());
    }
    if records[length..].iter().any(|byte| *byte != 0) {
        return Err("expected zeros after a pax header, found other bytes".to_owned());
    }
    name_of(second, name);
    let size = apply_pax(&records[..length], name)?.unwrap_or(size);
    Ok(Head::Member { length: own + BLOCK, size })
}

/// Checks a header block; returns its type and size.
fn parse_ustar(block: &[u8; BLOCK]) -> Result<(u8, u64), String> {
    let mut expected = [0; 8];
    set_octal(&mut expected[..6], u64::from(header_checksum(block)));
    expected[7] = b' ';
    if block[CHECKSUM] != expected {
        let found = String::from_utf8_lossy(&block[CHECKSUM]).into_owned();
        let expected = String::from_utf8_lossy(&expected[..6]).into_owned();
        return Err(format!("expected a tar header with checksum {expected}, found {found:?}"));
    }
    if block[MAGIC] != TEMPLATE[MAGIC] {
        return Err("expected a ustar header, found another kind of tar".to_owned());
    }
    let kind = block[TYPE];
    if !matches!(kind, b'0' | b'x') {
        let kind = char::from(kind);
        return Err(format!("expected a member of type '0' (file) or 'x' (pax header), found type {kind:?}"));
    }
    let digits = &block[SIZE.start..SIZE.end - 1];
    if block[SIZE.end - 1] != 0 || !digits.iter().all(|digit| matches!(digit, b'0'..=b'7')) {
        return Err(format!("expected a size in octal digits, found {:?}", String::from_utf8_lossy(&block[SIZE])));
    }
    Ok((kind, digits.iter().fold(0, |size, digit| size << 3 | u64::from(digit & 7))))
}

fn name_of(block: &[u8; BLOCK], name: &mut Vec<u8>) {
    let text = |field: std::ops::Range<usize>| {
        let field = &block[field];
        &field[..memchr::memchr(0, field).unwrap_or(field.len())]
    };
    name.clear();
    let prefix = text(PREFIX);
    if !prefix.is_empty() {
        name.extend_from_slice(prefix);
        name.push(b'/');
    }
    name.extend_from_slice(text(NAME));
}

/// Applies pax records: replaces the name by `path` and returns `size`.
fn apply_pax(mut records: &[u8], name: &mut Vec<u8>) -> Result<Option<u64>, String> {
    let mut size = None;
    while !records.is_empty() {
        let (key, value, rest) =
            split_pax_record(records).ok_or("expected pax records `LENGTH key=value`, found other bytes")?;
        match key {
            b"path" => {
                name.clear();
                name.extend_from_slice(value);
            }
            b"size" => {
                let text = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                size = Some(text.ok_or("expected a number as pax size, found something else")?);
            }
            _ => {}
        }
        records = rest;
    }
    Ok(size)
}

/// Splits off the first record: returns key, value and the rest.
pub(super) fn split_pax_record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = memchr::memchr(b' ', records)?;
    let length: usize = str::from_utf8(&records[..blank]).ok()?.parse().ok()?;
    let record = records.get(..length)?;
    let text = record.get(blank + 1..)?.strip_suffix(b"\n")?;
    let equals = memchr::memchr(b'=', text)?;
    Some((&text[..equals], &text[equals + 1..], &records[length..]))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn pax_records_count_their_own_digits() {
        for length in [0, 1, 85, 90, 91, 92, 93, 988, 989, 990, 991, 9987, 9988, 65_535] {
            let value = "v".repeat(length);
            let mut out = Vec::new();
            push_pax_record(&mut out, "path", &value);
            let (key, found, rest) = split_pax_record(&out).unwrap();
            assert_eq!((key, found.len(), rest), (&b"path"[..], length, &b""[..]));
        }
    }

    #[test]
    fn sizes_beyond_octal_go_into_a_pax_header() {
        for size in [MAX_OCTAL_SIZE, MAX_OCTAL_SIZE + 1, u64::MAX] {
            let mut out = Vec::new();
            push_member_header(&mut out, "a/b.bin", size);
            let mut name = Vec::new();
            let length = out.len();
            assert_eq!(length, if size > MAX_OCTAL_SIZE { 3 * BLOCK } else { BLOCK });
            assert_eq!(parse_headers(&out, &mut name).unwrap(), Head::Member { length, size });
            assert_eq!(name, b"a/b.bin");
        }
    }

    #[test]
    fn names_are_cut_only_where_both_halves_fit() {
        let long = |a: usize, b: usize| format!("{}/{}", "a".repeat(a), "b".repeat(b));
        for (name, expected) in [
            ("x".repeat(100), Some((0, 100))),
            ("x".repeat(101), None),
            (long(1, 99), Some((1, 99))),
            (long(1, 100), Some((1, 100))),
            (long(1, 101), None),
            (long(155, 100), Some((155, 100))),
            (long(156, 100), None),
            (long(155, 101), None),
            (format!("/{}", "b".repeat(100)), None),
            (format!("{}/", "b".repeat(100)), None),
            (format!("a/{}/{}", "b".repeat(50), "c".repeat(60)), Some((52, 60))),
        ] {
            let found = split_name(&name).map(|(prefix, name)| (prefix.len(), name.len()));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn hostile_pax_records_are_errors() {
        for records in [
            &b"x"[..],
            b"5 a=b",
            b"99 path=x\n",
            b"0 path=x\n",
            b"3 =\n",
            b"-1 a=b\n",
            b"9 size=x\n",
            b"11 size=-1\n",
            b"18446744073709551615 a=b\n",
            b"4 ab\n",
            b"\xff 1",
            b" ",
            b"30 size=99999999999999999999\n",
        ] {
            assert!(apply_pax(records, &mut Vec::new()).is_err(), "{records:?}");
        }
    }
}
