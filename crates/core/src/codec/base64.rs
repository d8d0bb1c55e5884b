//! Bytes as base64 (RFC 4648) and back: binary in JSON with the standard alphabet and padding, sealed ids and keys with
//! the alphabet for URLs.

use base64::{
    Engine as _, alphabet,
    engine::{
        DecodePaddingMode, GeneralPurpose,
        general_purpose::{NO_PAD, PAD, STANDARD, URL_SAFE_NO_PAD},
    },
};

// What is left of a last digit is skipped, as readers commonly do.
static READ_STANDARD: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));
static READ_UNPADDED: GeneralPurpose = unpadded_engine(&alphabet::STANDARD);
static READ_URL: GeneralPurpose = unpadded_engine(&alphabet::URL_SAFE);

const fn unpadded_engine(alphabet: &alphabet::Alphabet) -> GeneralPurpose {
    let config = NO_PAD.with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(alphabet, config.with_decode_padding_mode(DecodePaddingMode::RequireNone))
}

/// Bytes in base64, with the standard alphabet and padding.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Appends bytes in base64 for URLs, without padding.
pub fn push_base64url(bytes: &[u8], out: &mut String) {
    URL_SAFE_NO_PAD.encode_string(bytes, out);
}

/// The bytes that [`to_base64()`] made such text of; `None` when it is other text.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    READ_STANDARD.decode(text).ok()
}

/// The bytes of either alphabet, with padding or without; `None` when it is other text.
pub fn from_any_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let reader = if digits.contains(['-', '_']) { &READ_URL } else { &READ_UNPADDED };
    reader.decode(digits).ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn standard_base64_pads() {
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe", "//4=")]
        {
            assert_eq!(to_base64(bytes), text);
            assert_eq!(from_base64(text).unwrap(), bytes);
        }
        for text in ["Z", "Zg=", "Zg", "Z===", "Zg==Zg==", "Zg= ", "Zm9v\n", "====", "ä///", "-_8="] {
            assert_eq!(from_base64(text), None, "{text}");
        }
        assert_eq!(from_base64("Zh==").unwrap(), b"f");
    }

    #[test]
    fn base64_round_trips() {
        for length in 0..50 {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 37 % 251) as u8).collect();
            let mut url = String::new();
            push_base64url(&bytes, &mut url);
            assert_eq!(from_any_base64(&url).unwrap(), bytes);
            assert_eq!(from_any_base64(&to_base64(&bytes)).unwrap(), bytes);
            assert_eq!(from_base64(&to_base64(&bytes)).unwrap(), bytes);
        }
        let mut url = String::new();
        push_base64url(b"\xfb\xff", &mut url);
        assert_eq!(url, "-_8");
        assert_eq!(from_any_base64("+/8=").unwrap(), b"\xfb\xff");
        assert!(from_any_base64("a b").is_none() && from_any_base64("a").is_none());
    }
}
