//! Names of sample parts: splits a name into key and extension, derives the content type from the extension, and
//! escapes keys for existing readers.
//!
//! WebDataset's rule: files that share a path up to the first dot of their name are the parts of one sample.
//!
//! A tar member is named `key.extension`. Existing readers split that name at the first dot of its last component, skip
//! names such as `__meta__`, and fail on control characters, absolute paths and `..`. Characters that they would
//! misinterpret are escaped as `%XX` (the UTF-8 bytes in upper-case hexadecimal). A `%` is escaped only where it could
//! be mistaken for such an escape, so that different keys never get one name:
//!
//! ```text
//! patients/P-1     -> patients/P-1          scan 1.5mm -> scan 1%2E5mm
//! ../x             -> %2E%2E/x              /abs       -> %2Fabs
//! __init__         -> %5F_init__            100%       -> 100%
//! 100%25           -> 100%2525              (empty)    -> %
//! ```

use std::borrow::Cow;

use arrow::datatypes::DataType;

/// Extension of files whose name has none.
const NO_EXTENSION: &str = "bin";

/// Last components of extensions that conventionally contain text.
const TEXT: [&str; 32] = [
    "caption",
    "class",
    "cls",
    "cls2",
    "count",
    "csv",
    "geojson",
    "htm",
    "html",
    "id",
    "inx",
    "index",
    "jsn",
    "json",
    "jsonl",
    "log",
    "markdown",
    "md",
    "ndjson",
    "rst",
    "srt",
    "svg",
    "tex",
    "text",
    "toml",
    "transcript",
    "tsv",
    "txt",
    "vtt",
    "xml",
    "yaml",
    "yml",
];

/// Splits a path into the key (up to the first dot of its last component) and the extension in lower case. A name
/// without a dot, or with nothing after it, has the extension `bin`.
pub fn split_key(path: &str) -> (&str, String) {
    let (key, extension) = key_and_extension(path);
    (key, extension_of(extension))
}

/// Returns what follows the key in a path, in lower case.
pub fn lowercase_extension(path: &str) -> Cow<'_, str> {
    let (_, extension) = key_and_extension(path);
    let is_lower = extension.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
    if is_lower { Cow::Borrowed(extension) } else { Cow::Owned(extension.to_lowercase()) }
}

/// Returns the extension of a part, given the rest of its path after the key.
pub fn extension_of(text: &str) -> String {
    if text.is_empty() { NO_EXTENSION.to_owned() } else { text.to_lowercase() }
}

/// Splits a path into key and extension without changing them.
pub fn key_and_extension(path: &str) -> (&str, &str) {
    let end = key_length(path.as_bytes());
    (&path[..end], path[end..].strip_prefix('.').unwrap_or_default())
}

/// Returns the length in bytes of the key at the beginning of a name, which need not be UTF-8.
pub fn key_length(name: &[u8]) -> usize {
    let last = memchr::memrchr(b'/', name).map_or(0, |slash| slash + 1);
    memchr::memchr(b'.', &name[last..]).map_or(name.len(), |dot| last + dot)
}

/// Returns the type of a column that holds a part with this extension: text if both the extension and the content are
/// text.
pub fn part_type(extension: &str, bytes: &[u8]) -> DataType {
    let text = means_text(extension) && simdutf8::basic::from_utf8(bytes).is_ok();
    if text { DataType::Utf8 } else { DataType::Binary }
}

/// Whether parts with this extension are text.
pub fn means_text(extension: &str) -> bool {
    let last = extension.rsplit('.').next().unwrap_or_default();
    TEXT.contains(&last)
}

/// Escapes a key so that tar readers keep it unchanged; different keys give different results.
pub fn escape_key(key: &str) -> String {
    // No other key gives a lone `%`, because that key is escaped below.
    if key.is_empty() {
        return "%".to_owned();
    }
    if key == "%" {
        return "%25".to_owned();
    }
    let bytes = key.as_bytes();
    // A slash is a separator only if both sides are non-empty.
    let separates = |slash: usize| slash > 0 && slash + 1 < bytes.len() && bytes[slash - 1] != b'/';
    let last = memchr::memrchr_iter(b'/', bytes).find(|&slash| separates(slash)).map_or(0, |slash| slash + 1);
    let mut out = String::with_capacity(key.len() + 8);
    let mut start = 0;
    for component in key.split('/') {
        if start > 0 {
            out.push_str(if separates(start - 1) { "/" } else { "%2F" });
        }
        escape_component(component, start >= last, last == 0, &mut out);
        start += component.len() + 1;
    }
    out
}

/// Escapes one component of a key. `last` says whether an extension follows directly, `only` whether the key has no
/// separator.
fn escape_component(component: &str, last: bool, only: bool, out: &mut String) {
    let dots = last || component == "." || component == "..";
    // `webdataset` skips names that match `__[^/]*__($|/)`; without a slash, the extension may complete such a match.
    let skipped = component.starts_with("__") && (only || (component.len() >= 4 && component.ends_with("__")));
    for (at, c) in component.char_indices() {
        let escape = match c {
            '.' => dots,
            '_' => skipped && at == 0,
            '%' => looks_like_escape(&component.as_bytes()[at..]),
            _ => c.is_control(),
        };
        if escape {
            push_escaped(c, out);
        } else {
            out.push(c);
        }
    }
}

/// Escapes blanks and non-ASCII characters in a key that is already escaped; different keys stay different, because
/// every `%` that could be mistaken for an escape is one.
pub fn escape_plain(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for c in key.chars() {
        if c.is_whitespace() || !c.is_ascii() { push_escaped(c, &mut out) } else { out.push(c) }
    }
    out
}

/// Escapes blanks, control characters and non-ASCII characters in an extension; different extensions give different
/// results.
pub fn escape_extension(extension: &str) -> String {
    let mut out = String::with_capacity(extension.len());
    for (at, c) in extension.char_indices() {
        let escape = match c {
            '%' => looks_like_escape(&extension.as_bytes()[at..]),
            _ => c.is_whitespace() || c.is_control() || !c.is_ascii(),
        };
        if escape { push_escaped(c, &mut out) } else { out.push(c) }
    }
    out
}

fn looks_like_escape(bytes: &[u8]) -> bool {
    let hex = |b: &u8| matches!(b, b'0'..=b'9' | b'A'..=b'F');
    bytes.len() >= 3 && bytes[1..3].iter().all(hex)
}

fn push_escaped(c: char, out: &mut String) {
    const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        out.extend(['%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_end_at_the_first_dot_of_the_name() {
        for (path, key, extension) in [
            ("a.jpg", "a", "jpg"),
            ("d.x/a.Seg.PNG", "d.x/a", "seg.png"),
            ("d.x/a", "d.x/a", "bin"),
            ("a.", "a", "bin"),
            (".hidden", "", "hidden"),
            ("d/.x", "d/", "x"),
            ("d/", "d/", "bin"),
            ("", "", "bin"),
            ("ä.É", "ä", "é"),
        ] {
            assert_eq!(split_key(path), (key, extension.to_owned()), "{path}");
        }
    }

    #[test]
    fn text_is_detected_by_extension_and_content() {
        for (extension, bytes, expected) in [
            ("json", &b"{}"[..], DataType::Utf8),
            ("seg.txt", "ä".as_bytes(), DataType::Utf8),
            ("txt", b"\xe4", DataType::Binary),
            ("jpg", b"text", DataType::Binary),
            ("txt.gz", b"", DataType::Binary),
            ("cls", b"", DataType::Utf8),
        ] {
            assert_eq!(part_type(extension, bytes), expected, "{extension}");
        }
    }

    /// Reverses the escapes.
    fn unescape(text: &str) -> String {
        if text == "%" {
            return String::new();
        }
        let bytes = text.as_bytes();
        let (mut out, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            if bytes[at] == b'%' && looks_like_escape(&bytes[at..]) {
                out.push(u8::from_str_radix(&text[at + 1..at + 3], 16).unwrap());
                at += 3;
            } else {
                out.push(bytes[at]);
                at += 1;
            }
        }
        String::from_utf8(out).unwrap()
    }

    /// Matches `__[^/]*__($|/)` at the start, as `webdataset` does.
    fn webdataset_skips(name: &str) -> bool {
        let first = name.split('/').next().unwrap();
        first.len() >= 4 && first.starts_with("__") && first.ends_with("__")
    }

    #[test]
    fn safe_keys_are_unchanged() {
        for key in ["a", "a/b", "v1.2/x", "100%", "50%x", "ä ö", "a\\b", "_x_", "a__b__", "d/__x", "%2e", "... /x"] {
            assert_eq!(escape_key(key), key);
        }
    }

    #[test]
    fn characters_that_readers_misinterpret_are_escaped() {
        for (key, escaped) in [
            ("", "%"),
            ("%", "%25"),
            ("%25", "%2525"),
            ("a%2Fb", "a%252Fb"),
            ("1.5", "1%2E5"),
            ("v1.2/x.y", "v1.2/x%2Ey"),
            ("..", "%2E%2E"),
            ("../x", "%2E%2E/x"),
            ("a/./b", "a/%2E/b"),
            ("/abs", "%2Fabs"),
            ("//abs", "%2F%2Fabs"),
            ("/", "%2F"),
            ("a/", "a%2F"),
            ("a//b", "a/%2Fb"),
            ("a\nb\u{7f}\u{85}", "a%0Ab%7F%C2%85"),
            ("__init__", "%5F_init__"),
            ("__a", "%5F_a"),
            ("__a__/x", "%5F_a__/x"),
            ("d/__a__", "d/%5F_a__"),
        ] {
            assert_eq!(escape_key(key), escaped, "{key:?}");
        }
    }

    proptest! {
        #[test]
        fn escaping_can_be_undone(key in "[a%2F5E_./\\x01\u{80}é]{0,9}") {
            prop_assert_eq!(unescape(&escape_key(&key)), key);
        }

        #[test]
        fn webdataset_readers_recover_the_key(key in "[a%2_./\\x01]{0,9}", extension in "[a-z_.]{1,4}") {
            let escaped = escape_key(&key);
            let name = format!("{escaped}.{extension}");
            prop_assert!(!webdataset_skips(&name), "{}", name);
            let base = name.rfind('/').map_or(0, |slash| slash + 1);
            let dot = base + name[base..].find('.').unwrap();
            prop_assert!(dot > base);
            prop_assert_eq!(&name[..dot], escaped.as_str());
            prop_assert!(name.split('/').all(|c| !c.is_empty() && c != "." && c != ".."));
            prop_assert!(!name.chars().any(char::is_control));
        }
    }
}
