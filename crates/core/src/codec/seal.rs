//! Seals: the expected size and hash of an object, stored where the object is referred to.
//!
//! A seal consists of the size of an object and the BLAKE3 hash of its tail. The tail of most objects is the whole
//! object. In tables that are read in parts, it is everything after the row groups; the footer in it has a hash of each
//! block before:
//!
//! ```text
//! | block 0 | block 1 | ... | block n |  page index, footer (with the hashes of the blocks)  |
//! |<------------- body ------------->|<----------------------- tail ------------------------>|
//!   16 KiB each, the last one shorter       its BLAKE3 is in the seal
//! ```
//!
//! So a range is verified by reading the tail and the blocks around the range, and the whole object by reading it once.
//! A JSON document has its own checksum as its last field.

use std::{
    fmt,
    io::{self, BufRead},
    ops::Range,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use xxhash_rust::xxh3::Xxh3;

use super::{
    base64::{from_base64, to_base64},
    checksum::xxh3_64,
    hex::{from_hex, to_hex},
    leb128::{put_leb128, take_leb128},
};

/// Size of a block in bytes.
pub const BLOCK_BYTES: u64 = 16 << 10;

/// Size of a block's hash in bytes.
const HASH_BYTES: usize = 16;

/// Maximum body size of objects that are verified as a whole.
const WHOLE_BYTES: u64 = 4 * BLOCK_BYTES;

/// Expected size and hash of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// Size of the object in bytes.
    pub bytes: u64,
    /// Number of bytes at its end that are hashed.
    pub tail: u64,
    /// BLAKE3 hash of the last `tail` bytes.
    pub hash: [u8; 32],
}

impl Seal {
    /// Seals an object that is verified as a whole.
    pub fn for_bytes(bytes: &[u8]) -> Self {
        let length = bytes.len() as u64;
        Self { bytes: length, tail: length, hash: *blake3::hash(bytes).as_bytes() }
    }

    /// Creates the seal of an object whose size and BLAKE3 hash are known.
    pub fn from_hash(bytes: u64, hash: [u8; 32]) -> Self {
        Self { bytes, tail: bytes, hash }
    }

    /// Whether the hash covers the whole object.
    pub fn is_whole(&self) -> bool {
        self.tail == self.bytes
    }

    /// Returns the size of the body, which is the offset of the tail.
    pub fn body_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.tail)
    }

    /// Whether these are the last bytes of the object.
    pub fn is_tail(&self, tail: &[u8]) -> bool {
        tail.len() as u64 == self.tail && *blake3::hash(tail).as_bytes() == self.hash
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        put_leb128(out, self.bytes);
        put_leb128(out, self.tail);
        out.extend_from_slice(&self.hash);
    }

    fn decode_from(bytes: &mut &[u8]) -> Option<Self> {
        let (length, tail) = (take_leb128(bytes)?, take_leb128(bytes)?);
        let (hash, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        (tail <= length).then_some(Self { bytes: length, tail, hash: *hash })
    }
}

/// Encodes seals as bytes: for each its size and tail as LEB128, and the hash.
pub fn encode_seals(seals: &[Seal]) -> Vec<u8> {
    let mut out = Vec::with_capacity(seals.len() * 40);
    seals.iter().for_each(|seal| seal.encode_into(&mut out));
    out
}

/// Decodes the output of [`encode_seals`]; `None` if the bytes are malformed.
pub fn decode_seals(mut bytes: &[u8]) -> Option<Vec<Seal>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        out.push(Seal::decode_from(&mut bytes)?);
    }
    Some(out)
}

/// Text: `<bytes>:<tail>:<hexadecimal digits of the hash>`.
impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.bytes, self.tail, to_hex(&self.hash))
    }
}

impl Serialize for Seal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Seal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut parts = text.splitn(3, ':');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let seal = number().zip(number()).and_then(|(bytes, tail)| {
            let hash = from_hex(parts.next()?)?.try_into().ok()?;
            (tail <= bytes).then_some(Self { bytes, tail, hash })
        });
        seal.ok_or_else(|| D::Error::custom(format!("expected a seal `<bytes>:<tail>:<BLAKE3>`, found `{text}`")))
    }
}

/// Compact JSON form of many seals: base64 of their encoded bytes.
pub mod many {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    use super::{Seal, decode_seals, encode_seals, from_base64, to_base64};

    /// Writes the seals.
    ///
    /// # Errors
    /// When the serializer fails.
    pub fn serialize<S: Serializer>(seals: &[Seal], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_base64(&encode_seals(seals)))
    }

    /// Reads the seals.
    ///
    /// # Errors
    /// When the text does not contain seals.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Seal>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let seals = from_base64(&text).and_then(|bytes| decode_seals(&bytes));
        seals.ok_or_else(|| D::Error::custom("expected seals in base64"))
    }
}

/// Hashes an object while it is written.
#[derive(Debug)]
pub struct Sealer {
    /// Hash of all bytes of the tail so far; while the body is short, this may be the whole object.
    tail: Option<Box<blake3::Hasher>>,
    /// Offset of the tail.
    start: u64,
    /// Blocks of the body; `None` if the object is verified as a whole.
    blocks: Option<OpenBlocks>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct OpenBlocks {
    hashes: Vec<u8>,
    open: Box<blake3::Hasher>,
    filled: usize,
}

impl OpenBlocks {
    fn update(&mut self, mut bytes: &[u8]) {
        const BLOCK: usize = 16 << 10;
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.open.update(now);
            self.filled += now.len();
            if self.filled == BLOCK {
                self.close_block();
            }
            bytes = rest;
        }
    }

    fn close_block(&mut self) {
        if self.filled > 0 {
            self.hashes.extend_from_slice(&self.open.finalize().as_bytes()[..HASH_BYTES]);
            self.open.reset();
            self.filled = 0;
        }
    }
}

impl Sealer {
    /// Creates a sealer for an object that is verified as a whole.
    pub fn for_object() -> Self {
        Self { tail: Some(Box::default()), start: 0, blocks: None, bytes: 0 }
    }

    /// Creates a sealer for an object with a body whose parts can be verified separately.
    pub fn in_blocks() -> Self {
        Self { blocks: Some(OpenBlocks::default()), ..Self::for_object() }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(blocks) = &mut self.blocks {
            blocks.update(bytes);
            if self.bytes > WHOLE_BYTES {
                self.tail = None;
            }
        }
        if let Some(tail) = &mut self.tail {
            tail.update(bytes);
        }
    }

    /// Ends the body and returns the text that must be stored in the tail. `None` if the body is so short that the
    /// object is verified as a whole.
    pub fn end_body(&mut self) -> Option<String> {
        let mut blocks = self.blocks.take()?;
        if self.tail.is_some() {
            return None;
        }
        blocks.close_block();
        self.start = self.bytes;
        self.tail = Some(Box::default());
        Some(to_base64(&blocks.hashes))
    }

    /// Returns the seal of all bytes added.
    pub fn finish(&self) -> Option<Seal> {
        let hash = *self.tail.as_ref()?.finalize().as_bytes();
        Some(Seal { bytes: self.bytes, tail: self.bytes - self.start, hash })
    }
}

/// Hashes of the blocks of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHashes {
    body: u64,
    hashes: Vec<u8>,
}

impl BlockHashes {
    /// Parses the output of [`Sealer::end_body`]; `None` if it does not belong to a body of `body` bytes.
    pub fn parse(text: &str, body: u64) -> Option<Self> {
        let hashes = from_base64(text)?;
        let blocks = usize::try_from(body.div_ceil(BLOCK_BYTES)).ok()?;
        (hashes.len() == blocks * HASH_BYTES).then_some(Self { body, hashes })
    }

    /// Returns the blocks of an object without a body.
    pub fn without_body() -> Self {
        Self { body: 0, hashes: Vec::new() }
    }

    /// Returns the size of the body in bytes.
    pub fn body_bytes(&self) -> u64 {
        self.body
    }

    /// Returns the range of whole blocks that contains a range of the body.
    pub fn covering_range(&self, range: &Range<u64>) -> Range<u64> {
        let start = (range.start / BLOCK_BYTES * BLOCK_BYTES).min(self.body);
        start..range.end.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES).clamp(start, self.body)
    }

    /// Returns the offset of the first block that does not match its hash; `None` if all match. `start` is the offset
    /// of `bytes`.
    pub fn find_damage(&self, start: u64, bytes: &[u8]) -> Option<u64> {
        const BLOCK: usize = 16 << 10;
        let first = usize::try_from(start / BLOCK_BYTES).ok()?;
        let known = self.hashes.chunks_exact(HASH_BYTES).skip(first);
        let mut known = known.chain(std::iter::repeat(&[][..]));
        let wrong = bytes.chunks(BLOCK).position(|block| {
            let hash = blake3::hash(block);
            known.next() != Some(&hash.as_bytes()[..HASH_BYTES])
        });
        wrong.map(|block| start + block as u64 * BLOCK_BYTES)
    }
}

/// The bytes before and after the checksum of a JSON document.
const FIELD: &[u8] = b",\n  \"checksum\": \"";
const END: &[u8] = b"\"\n}\n";

/// Ends a JSON object whose last line is its closing brace with a field `checksum`: the BLAKE3 hash of all
/// bytes before that field. `None` if the document does not end as an object with fields does.
pub fn close_json(mut json: Vec<u8>) -> Option<Vec<u8>> {
    let fields = json.strip_suffix(b"\n}")?.len();
    json.truncate(fields);
    let hash = blake3::hash(&json);
    json.extend_from_slice(FIELD);
    json.extend_from_slice(hash.to_hex().as_bytes());
    json.extend_from_slice(END);
    Some(json)
}

/// Whether a JSON document matches its checksum; `None` if it has none.
pub fn json_is_whole(bytes: &[u8]) -> Option<bool> {
    let rest = bytes.strip_suffix(END)?;
    let (rest, digits) = rest.split_last_chunk::<64>()?;
    let rest = rest.strip_suffix(FIELD)?;
    Some(blake3::hash(rest).to_hex().as_bytes() == digits)
}

/// Ends a JSON object with fields, on one line, with a field `xxh3`: the XXH3 of all bytes before that field, in 16
/// digits.
pub fn close_line(line: &mut Vec<u8>) {
    if line.pop_if(|last| *last == b'}').is_some() {
        let hash = xxh3_64(line);
        line.extend_from_slice(line_end(hash).as_bytes());
    }
}

/// Returns the last field of a line.
fn line_end(hash: u64) -> String {
    format!(",\"xxh3\":\"{hash:016x}\"}}")
}

/// Returns the number, from 1, of the first line that does not match its hash; lines may be longer than memory.
///
/// # Errors
/// When the lines cannot be read.
pub fn damaged_line(lines: &mut dyn BufRead) -> io::Result<Option<u64>> {
    let end_bytes = line_end(0).len();
    let (mut number, mut hasher, mut end) = (1, Xxh3::new(), Vec::new());
    loop {
        let piece = lines.fill_buf()?;
        if piece.is_empty() {
            return Ok((!end.is_empty()).then_some(number));
        }
        let line_feed = memchr::memchr(b'\n', piece);
        let body = &piece[..line_feed.unwrap_or(piece.len())];
        end.extend_from_slice(body);
        let hashed = end.len().saturating_sub(end_bytes);
        hasher.update(&end[..hashed]);
        end.drain(..hashed);
        let consumed = body.len() + usize::from(line_feed.is_some());
        lines.consume(consumed);
        if line_feed.is_some() {
            if line_end(hasher.digest()).as_bytes() != end {
                return Ok(Some(number));
            }
            (number, end) = (number + 1, Vec::new());
            hasher.reset();
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_line_is_detected() {
        let mut line = br#"{"row":3,"reason":"expected a number, found \"x\""}"#.to_vec();
        assert_eq!(damaged_line(&mut [&line, b"\n".as_slice()].concat().as_slice()).unwrap(), Some(1));
        close_line(&mut line);
        serde_json::from_slice::<serde_json::Value>(&line).unwrap();
        let first = [line.as_slice(), b"\n"].concat();
        let damaged = |lines: &[u8], at_once| damaged_line(&mut io::BufReader::with_capacity(at_once, lines)).unwrap();
        for bit in 0..line.len() * 8 {
            line[bit / 8] ^= 1 << (bit % 8);
            let lines = [&first, line.as_slice(), b"\n", &first].concat();
            assert_eq!(damaged(&lines, 1 + bit % 100), Some(2), "bit {bit}");
            line[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(damaged(&first.repeat(9), 7), None);
        assert_eq!(damaged(&first[..first.len() - 1], 7), Some(1), "the end of a line is missing");
        assert_eq!(damaged(b"", 7), None);
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 7_u64;
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .take(bytes)
        .collect()
    }

    #[test]
    fn every_flipped_bit_of_a_block_is_detected() {
        for body in [0, 1, 65_536, 65_537, 81_920, 100_001] {
            let content = noise(body);
            let mut sealer = Sealer::in_blocks();
            content.chunks(10_007).for_each(|piece| sealer.update(piece));
            let text = sealer.end_body();
            let tail = text.clone().unwrap_or_else(|| "footer".to_owned());
            sealer.update(tail.as_bytes());
            let seal = sealer.finish().unwrap();
            let all = [&content[..], tail.as_bytes()].concat();
            assert_eq!(seal.bytes, all.len() as u64);
            assert_eq!(seal.is_whole(), body <= 65_536, "{body}");
            assert!(seal.is_tail(&all[usize::try_from(seal.body_bytes()).unwrap()..]));
            let Some(text) = text else {
                assert_eq!(seal, Seal::for_bytes(&all));
                continue;
            };
            let blocks = BlockHashes::parse(&text, seal.body_bytes()).unwrap();
            assert!(BlockHashes::parse(&text, seal.body_bytes() + BLOCK_BYTES).is_none());
            assert_eq!(blocks.find_damage(0, &content), None);
            let around = blocks.covering_range(&(40_000..40_001));
            assert_eq!(around, 32_768..49_152);
            assert_eq!(blocks.covering_range(&(body as u64 - 1..body as u64)).end, body as u64);
            assert_eq!(blocks.find_damage(around.start, &content[32_768..49_152]), None);
            for at in [0, 16_384, 50_000, body - 1] {
                let mut flipped = content.clone();
                flipped[at] ^= 4;
                assert_eq!(blocks.find_damage(0, &flipped), Some(at as u64 / BLOCK_BYTES * BLOCK_BYTES));
            }
            // Extra bytes are damage as well.
            assert!(blocks.find_damage(0, &[&content[..], &[0; 20_000]].concat()).is_some());
        }
    }

    #[test]
    fn seals_are_read_back() {
        let seals =
            [Seal::for_bytes(b""), Seal::for_bytes(b"abc"), Seal { bytes: u64::MAX >> 1, tail: 300, hash: [7; 32] }];
        assert_eq!(decode_seals(&encode_seals(&seals)).unwrap(), seals);
        assert!(decode_seals(&encode_seals(&seals)[1..]).is_none());
        for seal in seals {
            let text = serde_json::to_string(&seal).unwrap();
            assert_eq!(serde_json::from_str::<Seal>(&text).unwrap(), seal);
        }
        assert!(serde_json::from_str::<Seal>("\"1:2:00\"").is_err());
    }

    #[test]
    fn any_change_of_a_document_invalidates_its_checksum() {
        let json = serde_json::to_vec_pretty(&serde_json::json!({"format": 4, "name": "a"})).unwrap();
        assert_eq!(json_is_whole(&json), None);
        let closed = close_json(json).unwrap();
        assert_eq!(json_is_whole(&closed), Some(true));
        assert!(serde_json::from_slice::<serde_json::Value>(&closed).unwrap()["checksum"].is_string());
        for at in 0..closed.len() {
            for bit in 0..8 {
                let mut flipped = closed.clone();
                flipped[at] ^= 1 << bit;
                assert_ne!(json_is_whole(&flipped), Some(true), "byte {at}");
            }
        }
        assert!(close_json(b"{}".to_vec()).is_none());
    }
}
