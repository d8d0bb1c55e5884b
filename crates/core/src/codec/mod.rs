//! Compression codecs, checksums and text encodings of bytes.
//!
//! A [`Codec`] is a choice (`zstd:3`) written the same way on the command line, in configuration and in metadata.
//! [`stream`] compresses whole shards in parallel units that can later be copied from file to file, [`decompress`]
//! reads them and inputs, [`encoding`] converts text of any encoding to UTF-8, [`checksum`] has the checksums that
//! formats and the catalog use, [`sha256`] hashes ids, [`hex`] and [`base64`] write bytes as text, [`leb128`] numbers
//! as few bytes, [`merkle`] computes one hash of many, [`chunk_tree`] proves that bytes are part of a hashed input,
//! [`seal`] has the expected size and hash of objects, and [`metered`] reads a stream and hashes each record in it.

pub mod base64;
pub mod blosc;
pub mod checksum;
pub mod chunk_tree;
pub mod decompress;
pub mod encoding;
pub mod hex;
pub mod leb128;
pub mod lzf;
pub mod merkle;
pub mod metered;
pub mod seal;
pub mod sha256;
pub mod stream;
pub mod zip;

use std::{fmt, str::FromStr};

use crate::error::{Error, Result};

/// Compression of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Codec {
    /// No compression.
    #[default]
    None,
    /// Zstandard at a level from 1 to 22.
    Zstd(i32),
    /// LZ4; inside Parquet and for inputs only.
    Lz4,
    /// Snappy; inside Parquet and for inputs only.
    Snappy,
    /// Gzip (DEFLATE) at a level from 1 to 9.
    Gzip(u32),
}

/// Default level of `zstd`: at this level compression keeps up with reading.
const ZSTD_DEFAULT: i32 = 1;
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = 1..=22;
/// Default level of `gzip`, the same as gzip's own.
const GZIP_DEFAULT: u32 = 6;
const GZIP_LEVELS: std::ops::RangeInclusive<u32> = 1..=9;
const CHOICES: &str = "use none, zstd, zstd:1 to zstd:22, lz4, snappy, gzip, or gzip:1 to gzip:9";

impl FromStr for Codec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        match (name, level) {
            ("none", None) => Ok(Self::None),
            ("lz4", None) => Ok(Self::Lz4),
            ("snappy", None) => Ok(Self::Snappy),
            ("zstd", level) => Ok(Self::Zstd(parse_level(name, level, ZSTD_DEFAULT, &ZSTD_LEVELS)?)),
            ("gzip", level) => Ok(Self::Gzip(parse_level(name, level, GZIP_DEFAULT, &GZIP_LEVELS)?)),
            ("none" | "lz4" | "snappy", Some(_)) => {
                Err(Error::usage(format!("codec `{name}` has no levels, found `{text}`")).with_hint(CHOICES))
            }
            _ => Err(Error::usage(format!("expected a codec, found `{text}`")).with_hint(CHOICES)),
        }
    }
}

fn parse_level<N>(name: &str, level: Option<&str>, default: N, range: &std::ops::RangeInclusive<N>) -> Result<N>
where
    N: FromStr + PartialOrd + fmt::Display,
{
    let Some(text) = level else { return Ok(default) };
    // A plus sign or leading zeros would give one codec two spellings.
    let plain = !text.starts_with(['+', '0']);
    text.parse().ok().filter(|level| plain && range.contains(level)).ok_or_else(|| {
        let (first, last) = (range.start(), range.end());
        Error::usage(format!("expected a {name} level from {first} to {last}, found `{text}`")).with_hint(CHOICES)
    })
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Snappy => f.write_str("snappy"),
            Self::Gzip(level) => write!(f, "gzip:{level}"),
        }
    }
}

impl serde::Serialize for Codec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Codec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn every_codec_is_read_back_as_it_is_written() {
        for codec in [Codec::None, Codec::Zstd(1), Codec::Zstd(22), Codec::Lz4, Codec::Snappy, Codec::Gzip(9)] {
            assert_eq!(codec.to_string().parse::<Codec>().unwrap(), codec);
            let json = serde_json::to_string(&codec).unwrap();
            assert_eq!(json, format!("\"{codec}\""));
            assert_eq!(serde_json::from_str::<Codec>(&json).unwrap(), codec);
        }
        assert_eq!("zstd".parse::<Codec>().unwrap(), Codec::Zstd(1));
        assert_eq!("gzip".parse::<Codec>().unwrap(), Codec::Gzip(6));
        assert_eq!("zstd:3".parse::<Codec>().unwrap().to_string(), "zstd:3");
    }

    #[test]
    fn an_unknown_codec_is_a_usage_error_that_lists_the_choices() {
        for text in [
            "",
            "ZSTD",
            "zst",
            "zstd:",
            "zstd:0",
            "zstd:23",
            "zstd:-1",
            "zstd:+3",
            "zstd:03",
            "zstd:99999999999",
            "zstd:3:4",
            "gzip:0",
            "gzip:10",
            "gzip:x",
            "lz4:1",
            "snappy:",
            "none:0",
            " none",
            "brotli",
        ] {
            let error = text.parse::<Codec>().unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{text}");
            assert!(error.hints()[0].contains("gzip:9"), "{text}");
        }
        assert!(serde_json::from_str::<Codec>("\"zip\"").is_err());
        assert!(serde_json::from_str::<Codec>("3").is_err());
    }
}
