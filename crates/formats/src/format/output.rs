//! Formats of shards, and all that the rest of the program must know of each.
//!
//! A new format is a [`Framing`], an [`OutputFacts`] and a line in [`OutputFormat`]: how its shards are named, which
//! codecs its readers open and how records follow one another are facts here, so that nothing else asks which format
//! it is.

use super::{
    Framing,
    tar::{self, TarFraming},
    tfrecord::{self, TfRecordFraming},
};
use crate::{
    codec::Codec,
    error::{Error, Result},
};

/// Facts about a format of shards.
#[derive(Debug)]
pub struct OutputFacts {
    /// The name on the command line and in the log.
    pub name: &'static str,
    /// The name as its authors write it.
    pub title: &'static str,
    /// What it is, for help.
    pub help: &'static str,
    /// The media type in descriptions of a dataset.
    pub media_type: &'static str,
    /// How names of its shards end, in lower case.
    pub endings: &'static [&'static str],
    /// Whether the first bytes of a file, without compression around it, are those of a shard.
    pub claims: fn(&[u8]) -> bool,
    /// How records are written one after the other; `None` where rows are stored by column.
    pub framing: Option<&'static dyn Framing>,
    /// Which types of values its shards keep.
    pub types: StoredTypes,
    /// The codec of new datasets.
    pub default_codec: Codec,
    /// Whether a stock reader opens shards of a codec.
    pub allows: fn(Codec) -> bool,
    /// The codecs that stock readers open, and which readers these are.
    pub codecs: &'static str,
    /// The usual loader and the codecs that it opens, if these are fewer.
    pub loader: Option<Loader>,
}

/// Which types of values shards keep. What they do not keep is stored beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredTypes {
    /// Those of all columns.
    All,
    /// Those that the extension of a file names; of rows as JSON, none.
    OfParts,
    /// Only the widest of a kind, as `int64`.
    Widest,
}

/// What the usual loader of a format opens.
#[derive(Debug)]
pub struct Loader {
    /// Whether it opens shards of a codec.
    pub opens: fn(Codec) -> bool,
    /// The loader and what it opens, in words.
    pub words: &'static str,
}

static PARQUET: OutputFacts = OutputFacts {
    name: "parquet",
    title: "Parquet",
    help: "Apache Parquet",
    media_type: "application/x-parquet",
    endings: &[".parquet"],
    claims: |head| head.starts_with(b"PAR1"),
    framing: None,
    types: StoredTypes::All,
    default_codec: Codec::Zstd(1),
    allows: |_| true,
    codecs: "use any: every reader opens all of them",
    loader: None,
};

static TAR: OutputFacts = OutputFacts {
    name: "tar",
    title: "tar",
    help: "WebDataset tar",
    media_type: "application/x-tar",
    endings: &[".tar.gz", ".tar.zst", ".tar", ".tgz"],
    claims: tar::sniff,
    framing: Some(&TarFraming),
    types: StoredTypes::OfParts,
    default_codec: Codec::None,
    allows: |codec| matches!(codec, Codec::None | Codec::Gzip(_) | Codec::Zstd(_)),
    codecs: "use none (readers can seek), gzip (every reader) or zstd (GNU tar, Python 3.14)",
    loader: Some(Loader {
        opens: |codec| matches!(codec, Codec::None | Codec::Gzip(_)),
        words: "webdataset reads .tar and .tar.gz",
    }),
};

static TFRECORD: OutputFacts = OutputFacts {
    name: "tfrecord",
    title: "TFRecord",
    help: "TFRecord of tf.train.Example",
    media_type: "application/x-tfrecord",
    endings: &[".tfrecords", ".tfrecord.gz", ".tfrecord"],
    claims: tfrecord::sniff,
    framing: Some(&TfRecordFraming),
    types: StoredTypes::Widest,
    default_codec: Codec::None,
    allows: |codec| matches!(codec, Codec::None | Codec::Gzip(_)),
    codecs: "use none or gzip, which TensorFlow and tfrecord read",
    loader: None,
};

/// Formats of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputFormat {
    /// Apache Parquet.
    Parquet,
    /// WebDataset tar.
    Tar,
    /// TFRecord of `tf.train.Example`.
    TfRecord,
}

impl OutputFormat {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Parquet, Self::Tar, Self::TfRecord];

    /// Returns what is to be known of the format.
    pub fn facts(self) -> &'static OutputFacts {
        match self {
            Self::Parquet => &PARQUET,
            Self::Tar => &TAR,
            Self::TfRecord => &TFRECORD,
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the name as its authors write it.
    pub fn title(self) -> &'static str {
        self.facts().title
    }

    /// Whether rows are stored by column, so that shards have a schema and record ids stand in a column.
    pub fn is_columnar(self) -> bool {
        self.facts().framing.is_none()
    }

    /// Whether its readers tell records apart by keys, which are the names of files.
    pub fn has_keys(self) -> bool {
        self.facts().framing.is_some_and(Framing::has_keys)
    }

    /// Returns how records are written one after the other.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) if the format is columnar.
    pub fn framing(self) -> Result<&'static dyn Framing> {
        self.facts().framing.ok_or_else(|| Error::internal("expected a format that frames records"))
    }

    /// Returns the default codec.
    pub fn default_codec(self) -> Codec {
        self.facts().default_codec
    }

    /// Fails on codecs that no stock reader of the format supports.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) with the supported codecs.
    pub fn check_codec(self, codec: Codec) -> Result<()> {
        let facts = self.facts();
        if (facts.allows)(codec) {
            return Ok(());
        }
        let refused =
            format!("{codec}-compressed {} shards are not supported: no standard reader opens them", facts.title);
        Err(Error::usage(refused).with_hint(facts.codecs))
    }
}

impl std::fmt::Display for OutputFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_log() {
        for format in OutputFormat::ALL {
            assert_eq!(serde_json::to_value(format).ok(), Some(format.name().into()));
            assert!((format.facts().allows)(format.default_codec()), "{format}");
        }
    }
}
