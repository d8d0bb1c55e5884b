//! Indexes of tar shards as training tools read them: pure encoders, and the walk over headers that feeds them.
//!
//! ```text
//! DALI     "v1.2 <samples>\n"  [ext offset size name]+ "\n"     a line per sample; offsets are those of the content
//! energon  u64 little-endian per sample, and one more           offset of its first header; the end of the last
//! wids     {"__kind__", "wids_version", "shardlist": [{"url", "md5sum", "nsamples", "filesize"}], "name"}
//! ```
//!
//! The tools group neighbours by the name up to the first dot of its last component, and so does [`MemberScanner`].

use std::io::Write as _;

use serde::{Deserialize, Serialize};

use super::{
    header::{BLOCK, Head, padding, parse},
    scan::key_of,
};
use crate::error::{Error, Result};

/// Where a member is in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Full name, `key.extension`.
    pub name: &'a str,
    /// Length of the key in the name.
    pub key: usize,
    /// Whether it begins a sample.
    pub first: bool,
    /// Offset of its first header, a pax header included.
    pub header: u64,
    /// Offset of its content.
    pub content: u64,
    /// Bytes of content.
    pub size: u64,
}

impl Place<'_> {
    /// The name behind the key and its dot.
    pub fn extension(&self) -> &str {
        self.name.get(self.key + 1..).unwrap_or_default()
    }
}

/// Finds members in a tar that passes by in pieces of any size. It holds one header, never content.
#[derive(Debug)]
pub struct MemberScanner {
    window: Vec<u8>,
    wanted: usize,
    /// Bytes of content and padding still to come.
    skip: u64,
    offset: u64,
    key: Vec<u8>,
    name: Vec<u8>,
    samples: u64,
}

impl Default for MemberScanner {
    fn default() -> Self {
        Self { window: Vec::new(), wanted: BLOCK, skip: 0, offset: 0, key: Vec::new(), name: Vec::new(), samples: 0 }
    }
}

impl MemberScanner {
    /// Takes the next bytes of the shard and reports members whose headers they complete.
    ///
    /// # Errors
    /// When the bytes are no tar, or a name is one that readers skip; whatever `visit` fails with.
    pub fn feed(&mut self, mut bytes: &[u8], visit: &mut dyn FnMut(Place<'_>) -> Result<()>) -> Result<()> {
        while !bytes.is_empty() {
            let missing = if self.skip > 0 { self.skip } else { (self.wanted - self.window.len()) as u64 };
            let taken = usize::try_from(missing).unwrap_or(bytes.len()).min(bytes.len());
            let (piece, rest) = bytes.split_at(taken);
            bytes = rest;
            self.offset += taken as u64;
            if self.skip > 0 {
                self.skip -= taken as u64;
                continue;
            }
            self.window.extend_from_slice(piece);
            if self.window.len() == self.wanted {
                self.header(visit)?;
            }
        }
        Ok(())
    }

    fn header(&mut self, visit: &mut dyn FnMut(Place<'_>) -> Result<()>) -> Result<()> {
        let header = self.offset - self.window.len() as u64;
        let damaged = |problem: String| Error::integrity(problem).byte(header);
        let size = match parse(&self.window, &mut self.name).map_err(damaged)? {
            Head::Needs(wanted) => {
                self.wanted = wanted;
                return Ok(());
            }
            Head::Member { size, .. } => size,
        };
        let over = usize::try_from(size % BLOCK as u64).map_or(0, padding);
        self.skip = size + over as u64;
        self.window.clear();
        self.wanted = BLOCK;
        let name = std::str::from_utf8(&self.name)
            .map_err(|e| damaged("expected a member name in UTF-8, found other bytes".to_owned()).cause(e))?;
        let key = key_of(&self.name)
            .ok_or_else(|| damaged(format!("expected a member named `key.extension`, found `{name}`")))?;
        let first = self.samples == 0 || key != self.key;
        let place = Place { name, key: key.len(), first, header, content: self.offset, size };
        visit(place)?;
        if first {
            self.samples += 1;
            self.key.clear();
            self.key.extend_from_slice(&self.name[..place.key]);
        }
        Ok(())
    }

    /// Samples found so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Bytes seen so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// First line of DALI's index.
pub fn dali_head(samples: u64) -> String {
    format!("v1.2 {samples}\n")
}

/// Appends a member to DALI's index; `begins` says that it is the first of the shard. The line of the last sample is left
/// open and ends with a line break of its own.
///
/// # Errors
/// When the name has a blank, which the format has no way to quote.
pub fn push_dali(out: &mut Vec<u8>, place: &Place<'_>, begins: bool) -> Result<()> {
    if place.name.bytes().any(|b| b.is_ascii_whitespace()) || place.extension().is_empty() {
        return Err(Error::input(format!("the index of DALI cannot hold the name `{}`", place.name))
            .hint("escape such names with --on-name rename, or leave the index out with --index none"));
    }
    if !begins {
        out.push(if place.first { b'\n' } else { b' ' });
    }
    // Writing to memory cannot fail.
    let _ = write!(out, "{} {} {} {}", place.extension(), place.content, place.size, place.name);
    Ok(())
}

/// A shard as wids lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WidsShard {
    /// Path relative to the list.
    pub url: String,
    /// MD5 of the whole file in hexadecimal.
    pub md5sum: String,
    /// Samples in it.
    pub nsamples: u64,
    /// Bytes of the file.
    pub filesize: u64,
}

/// What wids reads: all shards of a folder, or of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WidsList {
    #[serde(rename = "__kind__")]
    kind: String,
    wids_version: u32,
    /// The shards, in the order of their records.
    pub shardlist: Vec<WidsShard>,
}

impl WidsList {
    /// A list of shards, which readers number their samples by.
    pub fn new(shards: Vec<WidsShard>) -> Self {
        Self { kind: "wids-shard-index-v1".to_owned(), wids_version: 1, shardlist: shards }
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// Never in practice.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes =
            serde_json::to_vec_pretty(self).map_err(|e| Error::internal("encoding a list failed").cause(e))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it is no such list.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|e| Error::integrity("the list of wids is damaged").cause(e))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::{
        super::{TRAILER, TarFraming, header::push_member_header, scan::members},
        *,
    };
    use crate::{
        format::{Framing, Keyed},
        record::{Part, Payload, Sample},
    };

    fn shard() -> (Vec<u8>, Vec<u64>) {
        let part = |extension: &str, size: usize| Part { extension: extension.into(), bytes: vec![b'x'; size].into() };
        let sample =
            |key: &str, parts: Vec<Part>| Sample { key: key.into(), origin: String::new(), subject: None, parts };
        let long = "d/".repeat(90) + &"n".repeat(120);
        let samples = vec![
            sample("a", vec![part("cls", 0), part("jpg", 513)]),
            sample(&long, vec![part("jpg", 512)]),
            sample("b/c", vec![part("seg.png", 1), part("txt", 2000)]),
        ];
        let keys: Vec<String> = samples.iter().map(|s| s.key.clone()).collect();
        let (mut out, mut lengths) = (Vec::new(), Vec::new());
        TarFraming.frame(Keyed { payload: &Payload::Samples(samples), keys: &keys }, &mut out, &mut lengths).unwrap();
        (out, lengths)
    }

    #[test]
    fn members_are_found_whatever_the_pieces() {
        let (bytes, lengths) = shard();
        let mut expected = Vec::new();
        let mut start = 0;
        for length in &lengths {
            let end = start + usize::try_from(*length).unwrap();
            for (i, member) in members(&bytes[start..end]).enumerate() {
                let member = member.unwrap();
                expected.push((member.name, i == 0, start as u64 + member.data_offset, member.size));
            }
            start = end;
        }
        assert_eq!(expected.len(), 5);
        for step in [1, 7, 511, 512, 513, 4096, bytes.len()] {
            let mut scanner = MemberScanner::default();
            let mut found = Vec::new();
            let mut starts = Vec::new();
            for piece in bytes.chunks(step) {
                scanner
                    .feed(piece, &mut |place| {
                        found.push((place.name.to_owned(), place.first, place.content, place.size));
                        if place.first {
                            starts.push(place.header);
                        }
                        Ok(())
                    })
                    .unwrap();
            }
            assert_eq!(found, expected, "{step}");
            assert_eq!(starts, [0, lengths[0], lengths[0] + lengths[1]]);
            assert_eq!((scanner.samples(), scanner.offset()), (3, bytes.len() as u64));
        }
    }

    #[test]
    fn the_index_of_dali_has_a_line_per_sample() {
        let mut scanner = MemberScanner::default();
        let mut out = Vec::new();
        let mut bytes = Vec::new();
        for (name, size) in [("a.cls", 0), ("a.jpg", 3), ("d/b.X.png", 512)] {
            push_member_header(&mut bytes, name, size);
            bytes.extend(vec![0; usize::try_from(size.div_ceil(512) * 512).unwrap()]);
        }
        scanner.feed(&bytes, &mut |place| push_dali(&mut out, &place, place.header == 0)).unwrap();
        assert_eq!(dali_head(scanner.samples()), "v1.2 2\n");
        assert_eq!(out, b"cls 512 0 a.cls jpg 1024 3 a.jpg\nX.png 2048 512 d/b.X.png");
    }

    #[test]
    fn names_that_an_index_cannot_hold_are_errors() {
        for name in ["a b.jpg", "a.j\tpg"] {
            let mut bytes = Vec::new();
            push_member_header(&mut bytes, name, 0);
            let pushed = MemberScanner::default().feed(&bytes, &mut |place| push_dali(&mut Vec::new(), &place, true));
            assert!(pushed.is_err(), "{name}");
        }
        assert!(MemberScanner::default().feed(&TRAILER, &mut |_| Ok(())).is_err());
    }

    #[test]
    fn lists_of_wids_are_read_back_in_order() {
        let shard = |url: &str| WidsShard { url: url.into(), md5sum: "0".repeat(32), nsamples: 2, filesize: 10 };
        let list = WidsList::new(vec![shard("b.tar"), shard("a.tar")]);
        assert_eq!(list.shardlist[0].url, "b.tar", "in the order of their records");
        let text = String::from_utf8(list.encode().unwrap()).unwrap();
        assert!(text.starts_with("{\n  \"__kind__\": \"wids-shard-index-v1\",\n  \"wids_version\": 1,"), "{text}");
        assert_eq!(WidsList::decode(text.as_bytes()).unwrap(), list);
        assert!(WidsList::decode(b"{}").is_err());
    }
}
