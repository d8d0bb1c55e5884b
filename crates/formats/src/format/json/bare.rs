//! `NaN`, `Infinity` and `-Infinity`, which are no JSON but what Python's `json.dumps` writes for such floats.
//!
//! ```text
//! {"a":NaN,"b":[-Infinity],"c":"NaN"}     the record
//! {"a":0.0,"b":[-0.000000],"c":"NaN"}     what `serde_json` walks: as long, so that positions are those of the record
//! ```
//!
//! Only a record that is invalid as it is gets a mask. Whoever takes a value then looks at the record itself.

/// The words, and numbers of their length.
const WORDS: [(&str, &str); 2] = [("NaN", "0.0"), ("Infinity", "0.000000")];

/// Returns a text with numbers in place of the words outside of strings; `None` if it has none.
pub(super) fn mask_words(text: &str) -> Option<String> {
    let has_word = WORDS.iter().any(|(word, _)| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some());
    if !has_word {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', 'N', 'I']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let is_part = out.ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
        let is_minus_nan = out.ends_with('-') && from.starts_with('N');
        let word = WORDS.iter().find(|(word, _)| from.starts_with(word) && !is_part && !is_minus_nan);
        let taken = match word {
            Some((word, number)) => {
                out.push_str(number);
                word.len()
            }
            None => {
                let end = if from.starts_with('"') { string_length(from) } else { 1 };
                out.push_str(&from[..end]);
                end
            }
        };
        rest = &from[taken..];
    }
    out.push_str(rest);
    (out != text).then_some(out)
}

/// Returns the length of the string at the start of a text, with its quotes.
pub(super) fn string_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(step) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += step + 1;
        if bytes[at - 1] == b'"' {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// Returns the float that a word is.
pub(super) fn parse_word(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn words_are_masked_outside_of_strings() {
        for (text, wanted) in [
            (r#"{"a":NaN,"b":[-Infinity,Infinity]}"#, r#"{"a":0.0,"b":[-0.000000,0.000000]}"#),
            (r#"{"NaN":"Infinity \\","c":NaN}"#, r#"{"NaN":"Infinity \\","c":0.0}"#),
            (r#"{"a":"x\"NaN","b":NaN}"#, r#"{"a":"x\"NaN","b":0.0}"#),
        ] {
            assert_eq!(mask_words(text).unwrap(), wanted);
            assert_eq!(wanted.len(), text.len());
        }
        for text in [r#"{"a":"NaN"}"#, r#"{"a":1}"#, r#"{"a":"NaN"#, "{\"a\":xNaN}", "[-NaN]", ""] {
            assert_eq!(mask_words(text), None, "{text}");
        }
    }
}
