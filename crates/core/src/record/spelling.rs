//! Spelling variants of ids: different texts that may denote one id, and ids within escaped text.
//!
//! Exports of the same patient differ: `7`, `007`, `+7`, `7.0`, ` 7 `, `pat-7` and `PAT-7`, composed and decomposed
//! letters. These are different ids everywhere except for one question: whether a record may be about an erased person.

use std::borrow::Cow;

use icu_normalizer::ComposingNormalizerBorrowed;

/// Maximum number of words of an id in running text.
const MAX_WORDS: usize = 8;

/// Returns the form that all spellings of one id share: Unicode NFKC in lower case without surrounding blanks, and for
/// numbers the digits without a plus sign, leading zeros and a fraction of zeros.
pub fn normal_form(id: &str) -> String {
    let folded = ComposingNormalizerBorrowed::new_nfkc().normalize(id).to_lowercase();
    let folded = ComposingNormalizerBorrowed::new_nfkc().normalize(folded.trim()).into_owned();
    plain_number(&folded).unwrap_or(folded)
}

/// Returns a text in NFC, in which letters are composed with their marks.
pub fn compose_nfc(text: &str) -> Cow<'_, str> {
    ComposingNormalizerBorrowed::new_nfc().normalize(text)
}

/// Returns a whole number in its shortest form; `None` for other texts.
fn plain_number(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number =
        !whole.is_empty() && whole.bytes().all(|b| b.is_ascii_digit()) && fraction.bytes().all(|b| b == b'0');
    if !is_number {
        return None;
    }
    let shortest = whole.trim_start_matches('0');
    Some(if shortest.is_empty() { "0".to_owned() } else { format!("{sign}{shortest}") })
}

/// Returns a text without the escapes of JSON (`\u00f6`, `\/`) and of quoted CSV fields (`""`); `None` where there are
/// none.
pub fn unescape_text(text: &str) -> Option<String> {
    if !text.contains('\\') && !text.contains("\"\"") {
        return None;
    }
    let mut out: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (units, used) = decode_escape(rest).unwrap_or_else(|| {
            let mut units = [0; 2];
            (c.encode_utf16(&mut units).to_vec(), c.len_utf8())
        });
        out.extend(units);
        rest = &rest[used..];
    }
    Some(String::from_utf16_lossy(&out))
}

/// Decodes an escape at the beginning of a text; returns UTF-16 and the length of the escape in bytes.
fn decode_escape(text: &str) -> Option<(Vec<u16>, usize)> {
    if text.starts_with("\"\"") {
        return Some((vec![u16::from(b'"')], 2));
    }
    let escaped = text.strip_prefix('\\')?;
    let plain = match escaped.bytes().next()? {
        b'u' => return Some((vec![u16::from_str_radix(escaped.get(1..5)?, 16).ok()?], 6)),
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        other @ (b'"' | b'\\' | b'/') => other,
        _ => return None,
    };
    Some((vec![u16::from(plain)], 2))
}

/// Decodes bytes in each encoding that they may be in.
pub fn possible_decodings(bytes: &[u8]) -> Vec<String> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return vec![text.to_owned()];
    }
    let wide = |of: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| of([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    let latin = bytes.iter().map(|byte| char::from(*byte)).collect();
    vec![String::from_utf8_lossy(bytes).into_owned(), latin, wide(u16::from_le_bytes), wide(u16::from_be_bytes)]
}

/// Whether a byte next to a text makes the text a part of a longer word.
pub fn continues_word(byte: Option<&u8>) -> bool {
    byte.is_some_and(|b| b.is_ascii_alphanumeric() || !b.is_ascii())
}

/// Calls `visit` for the spans of up to eight words between word boundaries until it returns true; returns whether it
/// did.
pub fn any_span(text: &str, visit: &mut dyn FnMut(&str) -> bool) -> bool {
    let bytes = text.as_bytes();
    let is_border = |at: &usize| {
        !continues_word(at.checked_sub(1).and_then(|before| bytes.get(before))) || !continues_word(bytes.get(*at))
    };
    let borders: Vec<usize> = (0..=bytes.len()).filter(is_border).filter(|at| text.is_char_boundary(*at)).collect();
    for (i, begin) in borders.iter().enumerate() {
        let mut words = 0;
        for end in &borders[i + 1..] {
            words += usize::from(continues_word(bytes.get(end - 1)));
            if words > MAX_WORDS {
                break;
            }
            if words > 0 && visit(&text[*begin..*end]) {
                return true;
            }
        }
    }
    false
}

/// Returns the texts in which an id may occur: the text itself, and the text without escapes.
pub fn with_unescaped(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    std::iter::once(Cow::Borrowed(text)).chain(unescape_text(text).map(Cow::Owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_id_share_a_form() {
        for spelling in ["7", "007", "+7", "7.0", "7.00", " 7 ", "\u{ff17}"] {
            assert_eq!(normal_form(spelling), "7", "{spelling}");
        }
        for spelling in ["PAT-7", "pat-7", "\tPat-7 ", "ＰＡＴ-7"] {
            assert_eq!(normal_form(spelling), "pat-7", "{spelling}");
        }
        assert_eq!(normal_form("Jo\u{308}rg"), normal_form("J\u{f6}RG"));
        assert_eq!(
            (normal_form("-0"), normal_form("000"), normal_form("-07.0")),
            ("0".into(), "0".into(), "-7".into())
        );
        for other in ["70", "7.5", "7-", "1e3", ".0", "", "7 7"] {
            assert_ne!(normal_form(other), "7", "{other}");
        }
    }

    #[test]
    fn escapes_are_undone() {
        let undone = |text: &str| unescape_text(text).unwrap_or_else(|| text.to_owned());
        assert_eq!(undone(r#"{"name": "J\u00f6rg", "at": "a\/b"}"#), r#"{"name": "Jörg", "at": "a/b"}"#);
        assert_eq!(undone(r"\ud83d\ude00 \q \u12"), "\u{1f600} \\q \\u12");
        assert_eq!(undone(r#""a ""b"" c""#), r#""a "b" c""#);
        assert_eq!(unescape_text("plain"), None);
        assert_eq!(possible_decodings(b"J\xf6rg")[1], "Jörg");
        assert_eq!(possible_decodings(b"P\0\xf6\0")[2], "Pö");
    }

    #[test]
    fn spans_are_between_words() {
        let spans = |text: &str| {
            let mut all = Vec::new();
            any_span(text, &mut |span| {
                all.push(span.to_owned());
                false
            });
            all
        };
        let found = spans("x,PAT-4;Jörg M.");
        for span in ["PAT-4", "x", "Jörg M.", "Jörg", "4", "-4"] {
            assert!(found.iter().any(|other| other == span), "{span}: {found:?}");
        }
        assert!(!found.iter().any(|span| span == "PA" || span == "rg"), "{found:?}");
        assert!(any_span("a b", &mut |span| span == "b"));
    }
}
