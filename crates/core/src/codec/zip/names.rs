//! Names of members: their encodings, and which of them lead out of the folder that an archive stands for.
//!
//! A name is UTF-8 if the flags of the member say so. Otherwise an extra field of Info-ZIP may state it in UTF-8, with
//! the checksum of the name that it replaces. All other names are in code page 437.

use std::borrow::Cow;

use super::fields::{extra_fields, uint_at};

/// Flag of a name in UTF-8.
pub(super) const UTF8: u16 = 1 << 11;

/// Id of the extra field of Info-ZIP with the name in UTF-8.
const UNICODE_PATH: u64 = 0x7075;

/// The upper half of code page 437; the lower half is ASCII.
const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ\
                     ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// Returns a name as text; `None` if it is said to be UTF-8 and is not.
pub(super) fn decode_name(raw: &[u8], flags: u16, extra: &[u8]) -> Option<String> {
    if flags & UTF8 != 0 {
        return std::str::from_utf8(raw).ok().map(str::to_owned);
    }
    if raw.is_ascii() {
        return Some(raw.iter().map(|byte| char::from(*byte)).collect());
    }
    let stated =
        extra_fields(extra).find_map(|(id, content)| (id == UNICODE_PATH).then(|| unicode_path(content, raw))?);
    Some(stated.unwrap_or_else(|| decode_cp437(raw)))
}

/// Returns the name that an extra field states for a member of this raw name.
fn unicode_path(content: &[u8], raw: &[u8]) -> Option<String> {
    let (head, name) = content.split_at_checked(5)?;
    let is_of_name = head[0] == 1 && uint_at(head, 1, 4) == u64::from(crc32fast::hash(raw));
    std::str::from_utf8(name).ok().filter(|_| is_of_name).map(str::to_owned)
}

fn decode_cp437(raw: &[u8]) -> String {
    let upper: Vec<char> = CP437.chars().collect();
    let of_byte = |byte: &u8| match byte.checked_sub(128) {
        Some(at) => upper.get(usize::from(at)).copied().unwrap_or(char::REPLACEMENT_CHARACTER),
        None => char::from(*byte),
    };
    raw.iter().map(of_byte).collect()
}

/// Removes the leading `./` of a name, which means nothing.
pub(super) fn without_dot(mut name: String) -> String {
    while name.starts_with("./") {
        name.drain(..2);
    }
    name
}

/// Returns why a name does not name a file below the folder that the archive stands for; `None` if it does.
pub(super) fn unsafe_name(name: &str) -> Option<Cow<'static, str>> {
    let bytes = name.as_bytes();
    let fault = match bytes {
        [] => "no name",
        [b'/', ..] => "an absolute path",
        [letter, b':', ..] if letter.is_ascii_alphabetic() => "a drive letter",
        _ if bytes.contains(&0) => "a NUL character",
        _ if bytes.contains(&b'\\') => "a backslash",
        _ => {
            let part = name.trim_end_matches('/').split('/').find(|part| matches!(*part, "" | "." | ".."))?;
            return Some(if part.is_empty() { "an empty part".into() } else { format!("the part `{part}`").into() });
        }
    };
    Some(fault.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_as_their_flags_and_fields_say() {
        let raw = b"caf\x82/\xe1.txt";
        let mut field = [0x75, 0x70, 14, 0, 1].to_vec();
        field.extend_from_slice(&crc32fast::hash(raw).to_le_bytes());
        field.extend_from_slice("日本.t".as_bytes().get(..8).unwrap_or_default());
        field.extend_from_slice(b"x");
        assert_eq!(decode_name(raw, 0, &[]).as_deref(), Some("café/ß.txt"));
        assert_eq!(decode_name(raw, 0, &field).as_deref(), Some("日本.tx"));
        assert_eq!(decode_name(b"other\x82", 0, &field).as_deref(), Some("otheré"), "the field is of another name");
        assert_eq!(decode_name("é".as_bytes(), UTF8, &[]).as_deref(), Some("é"));
        assert_eq!(decode_name(raw, UTF8, &[]), None);
        assert_eq!(CP437.chars().count(), 128);
    }

    #[test]
    fn names_that_lead_out_of_the_archive_are_told() {
        for name in ["", "/a", "C:a", "a\0", "a\\b", "..", "a/../b", "a//b", "a/./b", "../a/"] {
            assert!(unsafe_name(name).is_some(), "{name:?}");
        }
        for name in ["a", "a/b/", "..a", "a..", "ab:c", "a/c:d"] {
            assert!(unsafe_name(name).is_none(), "{name:?}");
        }
        assert_eq!(without_dot("././a".to_owned()), "a");
    }
}
