//! Lower-case hexadecimal text of bytes, and back: the text form of checksums, keys and hashes.

/// Returns the hexadecimal digits of bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    push_hex(bytes, &mut out);
    out
}

/// Appends the hexadecimal digits of bytes.
pub fn push_hex(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for b in bytes {
        out.push(char::from(DIGITS[usize::from(b >> 4)]));
        out.push(char::from(DIGITS[usize::from(b & 15)]));
    }
}

/// Parses pairs of hexadecimal digits in either case; `None` if the text contains anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Serializes an optional hash as text.
pub mod hash_or_none {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    use super::{from_hex, to_hex};

    /// Writes the digits.
    ///
    /// # Errors
    /// When the serializer fails.
    #[expect(clippy::ref_option, reason = "serde asks like this")]
    pub fn serialize<S: Serializer>(hash: &Option<[u8; 32]>, serializer: S) -> Result<S::Ok, S::Error> {
        match hash {
            Some(hash) => serializer.serialize_str(&to_hex(hash)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads the digits.
    ///
    /// # Errors
    /// When they do not represent 32 bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[u8; 32]>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let hash = from_hex(&text).and_then(|bytes| bytes.try_into().ok());
        hash.map(Some).ok_or_else(|| D::Error::custom("expected 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_round_trip() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(to_hex(&bytes[250..]), "fafbfcfdfeff");
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!(from_hex("0aA"), None);
        assert_eq!(from_hex("0AfF"), Some(vec![10, 255]));
        for wrong in ["0g", "é", "+1", " 1"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }
}
