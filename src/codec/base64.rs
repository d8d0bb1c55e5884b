//! Bytes as base64 (RFC 4648) and back: binary in JSON with the standard alphabet and padding, sealed ids and keys with the
//! alphabet for URLs.

/// The standard alphabet.
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// The alphabet for URLs and names of files.
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Bytes in base64, with the standard alphabet and padding.
pub fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    push(bytes, STANDARD, &mut out);
    (0..(3 - bytes.len() % 3) % 3).for_each(|_| out.push('='));
    out
}

/// Appends bytes in base64 for URLs, without padding.
pub fn push_base64url(bytes: &[u8], out: &mut String) {
    push(bytes, URL, out);
}

fn push(bytes: &[u8], alphabet: &[u8; 64], out: &mut String) {
    for three in bytes.chunks(3) {
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..=three.len() {
            out.push(char::from(alphabet[(word >> (18 - 6 * i)) as usize & 63]));
        }
    }
}

/// The bytes that [`base64`] made such text of; `None` when it is other text.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let padding = text.bytes().rev().take_while(|digit| *digit == b'=').count();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    digits(&text.as_bytes()[..text.len() - padding], |digit| match digit {
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    })
}

/// The bytes of either alphabet, with padding or without; `None` when it is other text.
pub fn from_any_base64(text: &str) -> Option<Vec<u8>> {
    digits(text.trim_end_matches('=').as_bytes(), |digit| match digit {
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    })
}

/// The bytes of digits without padding; what is left of a last digit is passed over, as readers commonly do.
fn digits(text: &[u8], last: impl Fn(u8) -> Option<u8>) -> Option<Vec<u8>> {
    if text.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for four in text.chunks(4) {
        let mut word = 0_u32;
        for digit in four {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                _ => last(*digit)?,
            };
            word = word << 6 | u32::from(value);
        }
        let bytes = (word << (6 * (4 - four.len()) + 8)).to_be_bytes();
        out.extend_from_slice(&bytes[..four.len() - 1]);
    }
    Some(out)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn standard_base64_pads() {
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe", "//4=")]
        {
            assert_eq!(base64(bytes), text);
            assert_eq!(from_base64(text).unwrap(), bytes);
        }
        for text in ["Z", "Zg=", "Zg", "Z===", "Zg==Zg==", "Zg= ", "Zm9v\n", "====", "ä///", "-_8="] {
            assert_eq!(from_base64(text), None, "{text}");
        }
    }

    #[test]
    fn base64_goes_there_and_back() {
        for length in 0..50 {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 37 % 251) as u8).collect();
            let mut url = String::new();
            push_base64url(&bytes, &mut url);
            assert_eq!(from_any_base64(&url).unwrap(), bytes);
            assert_eq!(from_any_base64(&base64(&bytes)).unwrap(), bytes);
            assert_eq!(from_base64(&base64(&bytes)).unwrap(), bytes);
        }
        let mut url = String::new();
        push_base64url(b"\xfb\xff", &mut url);
        assert_eq!(url, "-_8");
        assert_eq!(from_any_base64("+/8=").unwrap(), b"\xfb\xff");
        assert!(from_any_base64("a b").is_none() && from_any_base64("a").is_none());
    }
}
