//! Undoes the codings of HTTP bodies: chunks, gzip, deflate and zstd.
//!
//! ```text
//! chunked   size in hexadecimal [;extension] CRLF  bytes CRLF ...  0 CRLF [trailer CRLF ...] CRLF
//! ```
//!
//! What cannot be undone stays as it is, and its coding is named. A body may become much larger than it is stored:
//! beyond a bound that follows from its stored length it counts as one that cannot be undone.

use std::{borrow::Cow, io::Read};

use super::fields::first_line;
use crate::format::guard::catch_quietly;

/// Times that a body may become larger.
const MAX_GROWTH: usize = 256;
/// Bytes that any body may become.
const FREE_BYTES: usize = 64 << 10;
/// Times that a packed body usually becomes larger, at most.
const USUAL_GROWTH: usize = 16;
/// Maximum zstd window, as a power of two: that of RFC 9659.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Returns about how many bytes more than it is stored a body of this length becomes.
pub(super) fn usual_growth(stored: usize) -> usize {
    stored.saturating_mul(USUAL_GROWTH).max(FREE_BYTES)
}

/// A body, as far as its codings were undone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HttpBody<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// Codings that were not undone, in the order in which they were applied.
    pub(super) left: Vec<String>,
    /// Whether the last chunk is missing.
    pub(super) cut: bool,
}

/// Codings that a header states, in the order in which they were applied.
#[derive(Debug, Default)]
pub(super) struct Codings {
    pub(super) content: Vec<String>,
    pub(super) transfer: Vec<String>,
}

/// Undoes the codings of a body; it becomes no larger than `limit` bytes.
pub(super) fn decode_body(stored: &[u8], mut codings: Codings, limit: usize) -> HttpBody<'_> {
    let mut body = HttpBody { bytes: Cow::Borrowed(stored), ..HttpBody::default() };
    if stored.is_empty() {
        return body;
    }
    let limit = limit.min(stored.len().saturating_mul(MAX_GROWTH).max(FREE_BYTES));
    if codings.transfer.last().is_some_and(|last| last == "chunked") {
        match join_chunks(stored) {
            Some((joined, cut)) => {
                codings.transfer.pop();
                (body.bytes, body.cut) = (Cow::Owned(joined), cut);
            }
            None => {
                // Many crawlers store a body without its chunks, under the header as it was.
                body.left.extend(codings.transfer.pop());
            }
        }
    }
    let stated: Vec<String> = codings.content.into_iter().chain(codings.transfer).collect();
    let mut undone = stated.len();
    while let Some(coding) = undone.checked_sub(1).and_then(|last| stated.get(last)) {
        let Some(decoded) = unpack(coding, &body.bytes, limit) else { break };
        body.bytes = Cow::Owned(decoded);
        undone -= 1;
    }
    body.left.splice(0..0, stated.into_iter().take(undone));
    body
}

/// Joins chunks; also returns whether the last one is missing. `None` if there are none.
fn join_chunks(bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
    let mut joined = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        let Some((size, line)) = chunk_size(rest) else {
            // Chunks that end somewhere are cut; bytes of another kind behind them are none.
            let ends = rest.is_empty() || !rest.contains(&b'\n');
            return (rest.len() < bytes.len() && ends).then_some((joined, true));
        };
        rest = &rest[line..];
        if size == 0 {
            // Fields behind the last chunk would be lost.
            return matches!(rest, b"" | b"\r" | b"\n" | b"\r\n").then_some((joined, false));
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Some((chunk, after)) = rest.split_at_checked(size) else {
            joined.extend_from_slice(rest);
            return Some((joined, true));
        };
        joined.extend_from_slice(chunk);
        rest = after.strip_prefix(b"\r\n").or_else(|| after.strip_prefix(b"\n")).unwrap_or(after);
        if rest.len() == after.len() && !after.is_empty() {
            return after.strip_prefix(b"\r").is_some_and(<[u8]>::is_empty).then_some((joined, true));
        }
    }
}

/// Returns the size of a chunk and the length of its line.
fn chunk_size(bytes: &[u8]) -> Option<(u64, usize)> {
    let (line, length) = first_line(&bytes[..bytes.len().min(1 << 10)])?;
    let ended = bytes[..length].ends_with(b"\n");
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    let is_hex = !digits.is_empty() && digits.len() <= 16 && digits.iter().all(u8::is_ascii_hexdigit);
    let size = is_hex.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())??;
    ended.then_some((size, length))
}

/// Undoes a coding; `None` if it is unknown, the bytes are not of it, or they become larger than `limit`.
fn unpack(coding: &str, bytes: &[u8], limit: usize) -> Option<Vec<u8>> {
    let within = |decoder: &mut dyn Read| {
        let mut out = Vec::new();
        let read = decoder.take(limit as u64 + 1).read_to_end(&mut out).ok()?;
        (read <= limit).then_some(out)
    };
    let unpack = || match coding {
        "gzip" | "x-gzip" => within(&mut flate2::bufread::MultiGzDecoder::new(bytes)),
        "deflate" => {
            let mut zlib = flate2::bufread::ZlibDecoder::new(bytes);
            if let Some(out) = within(&mut zlib).filter(|_| zlib.get_ref().is_empty()) {
                return Some(out);
            }
            // Servers send it without the frame of zlib, too.
            let mut bare = flate2::bufread::DeflateDecoder::new(bytes);
            within(&mut bare).filter(|_| bare.get_ref().is_empty())
        }
        "zstd" => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes).ok()?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).ok()?;
            within(&mut decoder)
        }
        _ => None,
    };
    catch_quietly(unpack).ok().flatten()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::io::Write as _;

    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };

    use super::*;

    const TEXT: &[u8] = b"some text, some text, some text";

    fn codings(content: &[&str], transfer: &[&str]) -> Codings {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Codings { content: words(content), transfer: words(transfer) }
    }

    fn decoded(stored: &[u8], content: &[&str], transfer: &[&str]) -> (Vec<u8>, String, bool) {
        let body = decode_body(stored, codings(content, transfer), 1 << 20);
        (body.bytes.into_owned(), body.left.join(","), body.cut)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn whole(bytes: &[u8]) -> (Vec<u8>, String, bool) {
        (bytes.to_vec(), String::new(), false)
    }

    #[test]
    fn codings_are_undone_from_the_last_to_the_first() {
        let frame = zstd::bulk::compress(TEXT, 3).unwrap();
        for (stored, coding) in [
            (gzip(TEXT), "gzip"),
            ([gzip(&TEXT[..9]), gzip(&TEXT[9..])].concat(), "x-gzip"),
            (zlib(TEXT), "deflate"),
            (deflate(TEXT), "deflate"),
            (frame.clone(), "zstd"),
        ] {
            assert_eq!(decoded(&stored, &[coding], &[]), whole(TEXT), "{coding}");
            let members = gzip(&TEXT[..9]).len();
            for cut in (0..stored.len()).filter(|cut| coding != "x-gzip" || *cut != members) {
                let kept = decoded(&stored[..cut], &[coding], &[]);
                assert_eq!((kept.0.as_slice(), kept.1 == coding), (&stored[..cut], cut > 0), "{coding} {cut}");
            }
            let garbage = [&stored[..], b"garbage"].concat();
            assert_eq!(decoded(&garbage, &[coding], &[]), (garbage.clone(), coding.to_owned(), false), "{coding}");
        }
        assert_eq!(decoded(&gzip(&frame), &["zstd", "gzip"], &[]), whole(TEXT));
        assert_eq!(decoded(&gzip(&frame), &["zstd"], &["gzip"]), whole(TEXT));
        // What lies within a coding that stays is stated, too.
        let brotli = gzip(b"not brotli");
        assert_eq!(decoded(&brotli, &["br", "gzip"], &[]), (b"not brotli".to_vec(), "br".to_owned(), false));
        assert_eq!(decoded(TEXT, &["gzip", "br"], &[]), (TEXT.to_vec(), "gzip,br".to_owned(), false));
        assert_eq!(decoded(b"", &["gzip"], &["chunked"]), whole(b""));
    }

    #[test]
    fn chunks_are_joined() {
        let chunks = b"4\r\nsome\r\n19 ; ext=1\r\n text, some text, some te\r\n1\nx\n0\r\n\r\n";
        let joined = b"some text, some text, some tex";
        assert_eq!(decoded(chunks, &[], &["chunked"]), whole(joined));
        let packed = gzip(TEXT);
        let chunked = [format!("{:x}\r\n", packed.len()).as_bytes(), &packed, b"\r\n0\r\n\r\n"].concat();
        assert_eq!(decoded(&chunked, &["gzip"], &["chunked"]), whole(TEXT));
        assert_eq!(decoded(&chunked, &[], &["gzip", "chunked"]), whole(TEXT));
    }

    #[test]
    fn chunks_that_end_early_are_kept_and_marked() {
        let chunks = b"4\r\nsome\r\n5\r\n text\r\n0\r\n\r\n";
        for cut in 1..chunks.len() {
            let (bytes, left, is_cut) = decoded(&chunks[..cut], &[], &["chunked"]);
            match cut {
                // Without a line of a size, nothing says that these are chunks.
                1..=2 => assert_eq!((&bytes[..], left.as_str(), is_cut), (&chunks[..cut], "chunked", false)),
                22.. => assert_eq!((&bytes[..], left.as_str(), is_cut), (&b"some text"[..], "", false), "{cut}"),
                _ => assert_eq!((b"some text".starts_with(&bytes), left.as_str(), is_cut), (true, "", true), "{cut}"),
            }
        }
    }

    #[test]
    fn what_is_not_chunked_stays_as_it_is() {
        for stored in
            [&b"<html>\n</html>"[..], b"4\r\nsomething else\r\n0\r\n\r\n", b"1\r\nx\r\n0\r\nDigest: 1\r\n\r\n"]
        {
            assert_eq!(decoded(stored, &[], &["chunked"]), (stored.to_vec(), "chunked".to_owned(), false));
        }
        let packed = gzip(TEXT);
        assert_eq!(decoded(&packed, &["gzip"], &["chunked"]), (TEXT.to_vec(), "chunked".to_owned(), false));
    }

    #[test]
    fn bombs_stay_packed() {
        let bomb = gzip(&vec![0; 20 << 20]);
        assert!(bomb.len() < 100 << 10);
        assert_eq!(decoded(&bomb, &["gzip"], &[]), (bomb.clone(), "gzip".to_owned(), false));
        let frame = zstd::bulk::compress(&vec![0; 8 << 20], 3).unwrap();
        assert_eq!(decoded(&frame, &["zstd"], &[]).0, frame);
        // A small body may become a page.
        let page = vec![b' '; FREE_BYTES];
        assert_eq!(decoded(&gzip(&page), &["gzip"], &[]), whole(&page));
        assert_eq!(decode_body(&gzip(TEXT), codings(&["gzip"], &[]), 5).left, ["gzip"]);
    }
}
