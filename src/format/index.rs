//! Indexes for training tools beside shards: kinds, supported formats, and locations.
//!
//! | kind | fits | place | read by |
//! |---|---|---|---|
//! | `dali` | uncompressed tar, TFRecord | `<tag>/000000.idx` | NVIDIA DALI |
//! | `wids` | uncompressed tar | `shardindex.json`, of each folder and of the dataset | wids |
//! | `energon` | uncompressed tar | `<tag>/000000.tar.idx`, `.nv-meta/` | Megatron-Energon |
//! | `tfindex` | uncompressed TFRecord | `<tag>/000000.tfindex` | the `tfrecord` package |
//! | `delta` | Parquet | `_delta_log/` | readers of Delta tables |
//! | `hf` | Parquet, uncompressed tar | `README.md` | Hugging Face datasets |

use super::OutputFormat;
use crate::{
    codec::Codec,
    error::{Error, Result},
};

/// A kind of index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexKind {
    /// NVIDIA DALI: offsets of every part of a tar, or of every record of a TFRecord.
    Dali,
    /// wids: shards with counts and MD5 sums.
    Wids,
    /// Megatron-Energon: offsets of samples, and a database of their keys.
    Energon,
    /// The `tfrecord` package: offsets of every record.
    TfIndex,
    /// Readers of Delta tables: a log of the live shards.
    Delta,
    /// Hugging Face datasets: a dataset card with the live shards.
    Hf,
}

impl IndexKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Dali, Self::Wids, Self::Energon, Self::TfIndex, Self::Delta, Self::Hf];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dali => "dali",
            Self::Wids => "wids",
            Self::Energon => "energon",
            Self::TfIndex => "tfindex",
            Self::Delta => "delta",
            Self::Hf => "hf",
        }
    }

    /// Whether shards of this format and codec can have the index: offsets into compressed bytes are useless to the
    /// tools that read tar and TFRecord. Parquet compresses its pages.
    pub fn fits(self, format: OutputFormat, codec: Codec) -> bool {
        let formats: &[OutputFormat] = match self {
            Self::Dali => &[OutputFormat::Tar, OutputFormat::TfRecord],
            Self::Wids | Self::Energon => &[OutputFormat::Tar],
            Self::TfIndex => &[OutputFormat::TfRecord],
            Self::Delta => &[OutputFormat::Parquet],
            Self::Hf => &[OutputFormat::Parquet, OutputFormat::Tar],
        };
        (codec == Codec::None || format == OutputFormat::Parquet) && formats.contains(&format)
    }

    /// Whether the index lists the members of records in shards of this format.
    pub fn lists_members(self, format: OutputFormat) -> bool {
        format == OutputFormat::Tar && matches!(self, Self::Dali | Self::Energon)
    }

    /// Whether the index needs nothing beside the shards, so that shards which were adopted in place can have it.
    pub fn needs_no_files(self) -> bool {
        matches!(self, Self::Delta)
    }

    /// Returns the default kinds of index, which cost almost nothing. (wids requires an MD5 of every byte, energon a
    /// database that is rewritten with every version.)
    pub fn auto(format: OutputFormat, codec: Codec) -> Vec<Self> {
        [Self::Dali, Self::TfIndex].into_iter().filter(|kind| kind.fits(format, codec)).collect()
    }

    /// Returns the path of the index file beside a shard, if the kind has one. It has the same name as the shard up to
    /// the first dot.
    pub fn beside(self, shard: &str) -> Option<String> {
        let name = shard.rfind('/').map_or(0, |slash| slash + 1);
        let stem = &shard[..shard[name..].find('.').map_or(shard.len(), |dot| name + dot)];
        match self {
            Self::Dali => Some(format!("{stem}.idx")),
            Self::Wids | Self::Delta | Self::Hf => None,
            Self::Energon => Some(format!("{shard}.idx")),
            Self::TfIndex => Some(format!("{stem}.tfindex")),
        }
    }

    /// Fails on kinds that these shards cannot have.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) that names the kinds that fit.
    pub fn check(kinds: &[Self], format: OutputFormat, codec: Codec) -> Result<()> {
        let Some(kind) = kinds.iter().find(|kind| !kind.fits(format, codec)) else { return Ok(()) };
        let names = |codec| {
            let fit: Vec<&str> = Self::ALL.iter().filter(|k| k.fits(format, codec)).map(|k| k.name()).collect();
            fit.join(", ")
        };
        let hint = match (names(codec), names(Codec::None)) {
            (now, plain) if now.is_empty() => format!("use --codec none, which {plain} fit, or --index none"),
            (now, _) => format!("what fits is {now}"),
        };
        let is_plain = codec == Codec::None || format == OutputFormat::Parquet;
        let packed = if is_plain { String::new() } else { format!(" compressed with {codec}") };
        Err(Error::usage(format!("the index {} does not fit shards of {format}{packed}", kind.name())).hint(hint))
    }
}

impl std::fmt::Display for IndexKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn tools_find_the_files_where_they_look() {
        let places = |kind: IndexKind, shard: &str| kind.beside(shard).unwrap();
        assert_eq!(places(IndexKind::Dali, "a.b/000001.tar"), "a.b/000001.idx");
        assert_eq!(places(IndexKind::Energon, "a.b/000001.tar"), "a.b/000001.tar.idx");
        assert_eq!(places(IndexKind::TfIndex, "t/000001.tfrecord"), "t/000001.tfindex");
        assert_eq!(IndexKind::Wids.beside("t/000001.tar"), None);
        assert_eq!(IndexKind::Delta.beside("t/000001.parquet"), None);
        assert_eq!(IndexKind::Hf.beside("t/000001.parquet"), None);
    }

    #[test]
    fn kinds_that_do_not_fit_are_refused_with_those_that_do() {
        let hint = |kind, format, codec| IndexKind::check(&[kind], format, codec).unwrap_err().hints()[0].clone();
        assert_eq!(hint(IndexKind::TfIndex, OutputFormat::Tar, Codec::None), "what fits is dali, wids, energon, hf");
        assert_eq!(
            hint(IndexKind::Dali, OutputFormat::Tar, Codec::Gzip(6)),
            "use --codec none, which dali, wids, energon, hf fit, or --index none"
        );
        assert_eq!(hint(IndexKind::Dali, OutputFormat::Parquet, Codec::Zstd(1)), "what fits is delta, hf");
        for format in [OutputFormat::Parquet, OutputFormat::Tar, OutputFormat::TfRecord] {
            for codec in [Codec::None, Codec::Zstd(1), Codec::Gzip(6)] {
                assert!(IndexKind::check(&IndexKind::auto(format, codec), format, codec).is_ok());
            }
        }
    }
}
