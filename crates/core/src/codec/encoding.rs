//! Text that is not UTF-8: detects its encoding and converts a stream to UTF-8.
//!
//! Names are those of the [WHATWG standard](https://encoding.spec.whatwg.org), as used by browsers. There `latin1` and
//! `iso-8859-1` mean windows-1252, which differs only in 80 to 9F: printable characters instead of control characters,
//! which do not occur in text. So a file that is labelled Latin-1 but contains Windows curly quotes is decoded
//! correctly.
//!
//! A byte order mark at the beginning of a source overrides the stated encoding and is not part of the text.
//!
//! A sequence that is malformed in its encoding is decoded to the single byte FF, which never occurs in UTF-8. Text
//! readers reject the record that contains it instead of storing a replacement character.

use std::{
    fmt,
    io::{self, Read},
    str::FromStr,
};

use encoding_rs::{Decoder, DecoderResult, UTF_8, UTF_16BE, UTF_16LE};

use crate::error::{Error, Result};

/// Output for a malformed sequence.
pub const MALFORMED: u8 = 0xff;

/// Bytes per read.
const INPUT_BUFFER: usize = 64 << 10;

/// Bytes of text per decoding step: the maximum that a full input buffer can become, for most encodings.
const OUTPUT_BUFFER: usize = 3 * INPUT_BUFFER;

/// Bytes examined for a pattern of zeros.
const PATTERN_BYTES: usize = 4096;

/// A character encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding(&'static encoding_rs::Encoding);

impl FromStr for Encoding {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        encoding_rs::Encoding::for_label_no_replacement(text.as_bytes()).map(Self).ok_or_else(|| {
            Error::usage(format!("expected an encoding, found `{text}`")).with_hint(
                "use a name such as utf-8, utf-16, latin1, windows-1252, iso-8859-2, shift_jis, gb18030, euc-kr",
            )
        })
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name().to_ascii_lowercase())
    }
}

impl serde::Serialize for Encoding {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Encoding {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Detects the encoding from the first bytes of a source if it is not UTF-8: by a byte order mark, or by the zeros that
/// make up half of UTF-16 text of mostly Latin letters.
pub fn detect_encoding(head: &[u8]) -> Option<Encoding> {
    if let Some((encoding, _)) = encoding_rs::Encoding::for_bom(head) {
        // The byte order mark of UTF-16 may be that of UTF-32, which is not used for files.
        let wide = head.starts_with(&[0xff, 0xfe, 0, 0]);
        return (encoding != UTF_8 && !wide).then_some(Encoding(encoding));
    }
    let (pairs, _) = head[..head.len().min(PATTERN_BYTES)].as_chunks::<2>();
    let is_text = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0xa0..);
    let fits = |high: usize| {
        let latin = pairs.iter().filter(|pair| pair[high] == 0 && is_text(pair[1 - high])).count();
        // Binary numbers have zeros too, but not at the positions that text has.
        let odd = pairs.iter().any(|pair| pair[high] == 0 && !is_text(pair[1 - high]));
        pairs.len() >= 2 && !odd && latin * 10 >= pairs.len() * 7
    };
    [(1, UTF_16LE), (0, UTF_16BE)].into_iter().find(|(high, _)| fits(*high)).map(|(_, encoding)| Encoding(encoding))
}

/// Returns what to do about text that is not UTF-8, given its first bytes.
pub fn encoding_hint(head: &[u8]) -> &'static str {
    match looks_like_windows_1252(head) {
        true => "the text looks like windows-1252; read it with --read encoding=windows-1252",
        false => "name its encoding, as `--read encoding=windows-1252`, or `--read encoding=utf-16le`",
    }
}

/// Whether text is windows-1252 by all appearances: what is not ASCII are letters and marks of Western European
/// languages, few in a row, and nothing of it is UTF-8.
fn looks_like_windows_1252(head: &[u8]) -> bool {
    /// Most letters with accents in a row: in alphabets of their own, all letters are.
    const IN_A_ROW: usize = 3;
    let is_usual = |byte: u8| match byte {
        // Quotes, dashes, the euro sign and others that programs for texts insert.
        0x80 | 0x82..=0x85 | 0x8a | 0x8c | 0x8e | 0x91..=0x97 | 0x99..=0x9a | 0x9c | 0x9e..=0xa0 => true,
        0xa1..=0xab | 0xae..=0xb7 | 0xb9..=0xbf => true,
        0xd7 | 0xf7 => false,
        _ => byte >= 0xc0,
    };
    let high = head.split(u8::is_ascii).filter(|run| !run.is_empty());
    let mut found = false;
    for run in high {
        found = true;
        if run.len() > IN_A_ROW || !run.iter().copied().all(is_usual) || std::str::from_utf8(run).is_ok() {
            return false;
        }
    }
    found
}

/// Converts text in `encoding` to UTF-8, with the byte FF in place of each malformed sequence. UTF-8 is passed through.
pub fn decode_to_utf8(encoding: Encoding, input: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
    if encoding.0 == UTF_8 {
        return input;
    }
    Box::new(Transcoder {
        input,
        decoder: encoding.0.new_decoder(),
        bytes: vec![0; INPUT_BUFFER],
        rest: 0..0,
        input_ended: false,
        finished: false,
        text: Vec::with_capacity(OUTPUT_BUFFER),
        returned: 0,
    })
}

struct Transcoder {
    input: Box<dyn Read + Send>,
    decoder: Decoder,
    bytes: Vec<u8>,
    /// Bytes that were read but not decoded yet.
    rest: std::ops::Range<usize>,
    /// Whether the input has ended.
    input_ended: bool,
    /// Whether the decoder has produced all its output.
    finished: bool,
    text: Vec<u8>,
    /// Bytes of `text` that were returned.
    returned: usize,
}

impl Read for Transcoder {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.returned == self.text.len() && !self.finished {
            if self.rest.is_empty() && !self.input_ended {
                let count = self.input.read(&mut self.bytes)?;
                self.rest = 0..count;
                self.input_ended = count == 0;
            }
            self.decode_rest();
        }
        let count = out.len().min(self.text.len() - self.returned);
        out[..count].copy_from_slice(&self.text[self.returned..self.returned + count]);
        self.returned += count;
        Ok(count)
    }
}

impl Transcoder {
    /// Decodes as much of the rest as the buffer can hold.
    fn decode_rest(&mut self) {
        self.returned = 0;
        self.text.resize(OUTPUT_BUFFER, 0);
        let mut filled = 0;
        loop {
            // One byte is reserved for a malformed sequence.
            let room = &mut self.text[filled..OUTPUT_BUFFER - 1];
            let (result, read, written) =
                self.decoder.decode_to_utf8_without_replacement(&self.bytes[self.rest.clone()], room, self.input_ended);
            self.rest.start += read;
            filled += written;
            match result {
                DecoderResult::Malformed(..) => {
                    self.text[filled] = MALFORMED;
                    filled += 1;
                }
                DecoderResult::InputEmpty => {
                    self.finished = self.input_ended;
                    break;
                }
                DecoderResult::OutputFull => break,
            }
            if filled + 16 > OUTPUT_BUFFER {
                break;
            }
        }
        self.text.truncate(filled);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Kind;

    /// Returns a few bytes per read, so that sequences are split.
    struct Dribble(Vec<u8>, usize);

    impl Read for Dribble {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(out.len()).min(self.1);
            out[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    fn text(label: &str, bytes: &[u8], step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        decode_to_utf8(label.parse().unwrap(), Box::new(Dribble(bytes.to_vec(), step))).read_to_end(&mut out).unwrap();
        out
    }

    fn utf16(text: &str, little: bool) -> Vec<u8> {
        text.encode_utf16().flat_map(|unit| if little { unit.to_le_bytes() } else { unit.to_be_bytes() }).collect()
    }

    #[test]
    fn western_european_text_is_recognized() {
        for (text, is_windows_1252) in [
            (&b"id,name\n1,Ren\xe9e\n2,Zo\xeb \x96 \x93M\xfcller\x94\n"[..], true),
            (b"id,name\n1,Anna\n", false),
            ("id,name\n1,Ren\u{e9}e\n".as_bytes(), false),
            (b"1,Ren\xc3\xa9e\n2,Zo\xeb\n", false),
            // KOI8-R and Shift_JIS: words of letters that are not ASCII.
            (b"1,\xed\xcf\xd3\xcb\xd7\xc1\n", false),
            (b"1,\x93\x8c\x8b\x9e\n", false),
        ] {
            assert_eq!(looks_like_windows_1252(text), is_windows_1252, "{text:?}");
            assert_eq!(encoding_hint(text).contains("looks like"), is_windows_1252);
        }
    }

    #[test]
    fn names_are_those_of_browsers() {
        for (label, name) in [
            ("latin1", "windows-1252"),
            ("ISO-8859-1", "windows-1252"),
            ("utf-16", "utf-16le"),
            ("utf-16be", "utf-16be"),
            ("sjis", "shift_jis"),
            ("UTF8", "utf-8"),
        ] {
            assert_eq!(label.parse::<Encoding>().unwrap().to_string(), name);
        }
        for label in ["", "utf-7", "ebcdic", "iso-2022-kr"] {
            assert_eq!(label.parse::<Encoding>().unwrap_err().kind(), Kind::Usage, "{label}");
        }
    }

    #[test]
    fn texts_become_utf8() {
        assert_eq!(text("latin1", b"caf\xe9 \x93x\x94 \x81", 1), "caf\u{e9} \u{201c}x\u{201d} \u{81}".as_bytes());
        assert_eq!(text("shift_jis", b"\x93\xfa\x96{", 1), "\u{65e5}\u{672c}".as_bytes());
        let mixed = "id,name\n1,\u{e9}\u{1F600}\n";
        for step in [1, 3, 1000] {
            assert_eq!(text("utf-16le", &utf16(mixed, true), step), mixed.as_bytes());
            assert_eq!(text("utf-16be", &utf16(mixed, false), step), mixed.as_bytes());
            assert_eq!(text("utf-16", &utf16(&format!("\u{feff}{mixed}"), false), step), mixed.as_bytes());
        }
        assert_eq!(text("utf-8", b"\xef\xbb\xbfa\xff", 1), b"\xef\xbb\xbfa\xff");
    }

    #[test]
    fn malformed_sequences_become_a_byte_that_readers_reject() {
        assert_eq!(text("shift_jis", b"a\x81\xffb\n", 1), b"a\xffb\n");
        // A lone surrogate, and half a code unit at the end.
        assert_eq!(text("utf-16le", b"a\0\x00\xd8b\0c", 1), b"a\xffb\xff");
        let many = [0x00, 0xd8].repeat(200_000);
        assert_eq!(text("utf-16le", &many, 1 << 20), vec![MALFORMED; 200_000]);
    }

    #[test]
    fn utf16_is_detected() {
        let names = |little| detect_encoding(&utf16("id,name\r\n1,\u{e9}t\u{e9}\r\n", little)).map(|e| e.to_string());
        assert_eq!(names(true).unwrap(), "utf-16le");
        assert_eq!(names(false).unwrap(), "utf-16be");
        assert_eq!(detect_encoding(b"\xff\xfe1\x4e").unwrap().to_string(), "utf-16le");
        assert_eq!(detect_encoding(b"\xfe\xff").unwrap().to_string(), "utf-16be");
        let numbers: Vec<u8> = (0..100_u16).flat_map(u16::to_le_bytes).collect();
        for head in
            [&b""[..], b"a", b"a\0", b"id,name\n", b"\xef\xbb\xbfid", &[0; 64], &numbers, b"\xff\xfe\0\0a\0\0\0"]
        {
            assert_eq!(detect_encoding(head), None, "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_round_trips_in_pieces_of_any_size(input: String, little: bool, step in 1..50_usize) {
            let bytes = utf16(&input, little);
            // A byte order mark at the beginning is not text.
            let expected = input.strip_prefix('\u{feff}').unwrap_or(&input);
            prop_assume!(!input.starts_with('\u{fffe}') && !input.starts_with('\u{bbef}'));
            let label = if little { "utf-16le" } else { "utf-16be" };
            prop_assert_eq!(text(label, &bytes, step), expected.as_bytes());
        }

        #[test]
        fn arbitrary_bytes_are_decoded_to_the_end(bytes: Vec<u8>, step in 1..50_usize) {
            for label in ["gb18030", "iso-2022-jp", "euc-jp", "big5", "utf-16"] {
                prop_assert_eq!(text(label, &bytes, step), text(label, &bytes, 1 << 20));
            }
        }
    }
}
