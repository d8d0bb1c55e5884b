//! Indexes that training tools want beside shards: which there are, what they fit, and where the tools look for them.
//!
//! | kind | fits | place | who reads it |
//! |---|---|---|---|
//! | `dali` | uncompressed tar, TFRecord | `<tag>/000000.idx` | NVIDIA DALI |
//! | `wids` | uncompressed tar | `shardindex.json`, of each folder and of the dataset | wids |
//! | `energon` | uncompressed tar | `<tag>/000000.tar.idx`, `.nv-meta/` | Megatron-Energon |
//! | `tfindex` | uncompressed TFRecord | `<tag>/000000.tfindex` | the `tfrecord` package |

use super::OutputFormat;
use crate::{
    codec::Codec,
    error::{Error, Result},
};

/// A kind of index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexKind {
    /// Of NVIDIA DALI: offsets of every part of a tar, or of every record of a TFRecord.
    Dali,
    /// Of wids: shards with counts and MD5 sums.
    Wids,
    /// Of Megatron-Energon: offsets of samples, and a database of their keys.
    Energon,
    /// Of the `tfrecord` package: offsets of every record.
    TfIndex,
}

impl IndexKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Dali, Self::Wids, Self::Energon, Self::TfIndex];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dali => "dali",
            Self::Wids => "wids",
            Self::Energon => "energon",
            Self::TfIndex => "tfindex",
        }
    }

    /// Whether shards of this format and codec can have it: offsets into compressed bytes mean nothing to these tools.
    pub fn fits(self, format: OutputFormat, codec: Codec) -> bool {
        let formats: &[OutputFormat] = match self {
            Self::Dali => &[OutputFormat::Tar, OutputFormat::TfRecord],
            Self::Wids | Self::Energon => &[OutputFormat::Tar],
            Self::TfIndex => &[OutputFormat::TfRecord],
        };
        codec == Codec::None && formats.contains(&format)
    }

    /// Kinds for shards of which nobody said what they need: those that cost next to nothing. (wids wants an MD5 of every byte,
    /// energon a database that is written anew with every version.)
    pub fn auto(format: OutputFormat, codec: Codec) -> Vec<Self> {
        [Self::Dali, Self::TfIndex].into_iter().filter(|kind| kind.fits(format, codec)).collect()
    }

    /// Path of the file that it puts beside each shard, if it does. All of them share the name of the shard up to the
    /// first dot.
    pub fn beside(self, shard: &str) -> Option<String> {
        let name = shard.rfind('/').map_or(0, |slash| slash + 1);
        let stem = &shard[..shard[name..].find('.').map_or(shard.len(), |dot| name + dot)];
        match self {
            Self::Dali => Some(format!("{stem}.idx")),
            Self::Wids => None,
            Self::Energon => Some(format!("{shard}.idx")),
            Self::TfIndex => Some(format!("{stem}.tfindex")),
        }
    }

    /// Refuses kinds that these shards cannot have.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) that says which kinds fit.
    pub fn check(kinds: &[Self], format: OutputFormat, codec: Codec) -> Result<()> {
        let Some(kind) = kinds.iter().find(|kind| !kind.fits(format, codec)) else { return Ok(()) };
        let names = |codec| {
            let fit: Vec<&str> = Self::ALL.iter().filter(|k| k.fits(format, codec)).map(|k| k.name()).collect();
            fit.join(", ")
        };
        let hint = match (names(codec), names(Codec::None)) {
            (_, plain) if plain.is_empty() => format!("{format} needs no index: use --index none"),
            (now, plain) if now.is_empty() => format!("use --codec none, which {plain} fit, or --index none"),
            (now, _) => format!("what fits is {now}"),
        };
        let plain = codec == Codec::None || format == OutputFormat::Parquet;
        let packed = if plain { String::new() } else { format!(" compressed with {codec}") };
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
    }

    #[test]
    fn kinds_that_do_not_fit_are_refused_with_those_that_do() {
        let hint = |kind, format, codec| IndexKind::check(&[kind], format, codec).unwrap_err().hints()[0].clone();
        assert_eq!(hint(IndexKind::TfIndex, OutputFormat::Tar, Codec::None), "what fits is dali, wids, energon");
        assert_eq!(
            hint(IndexKind::Dali, OutputFormat::Tar, Codec::Gzip(6)),
            "use --codec none, which dali, wids, energon fit, or --index none"
        );
        assert_eq!(
            hint(IndexKind::Dali, OutputFormat::Parquet, Codec::Zstd(1)),
            "parquet needs no index: use --index none"
        );
        for format in [OutputFormat::Parquet, OutputFormat::Tar, OutputFormat::TfRecord] {
            for codec in [Codec::None, Codec::Zstd(1), Codec::Gzip(6)] {
                assert!(IndexKind::check(&IndexKind::auto(format, codec), format, codec).is_ok());
            }
        }
    }
}
