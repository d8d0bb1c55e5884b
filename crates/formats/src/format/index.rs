//! Which kinds of index for training tools there are, and what their files are called: all that datasets and listings
//! know of them. What an index contains, and what it asks of a dataset, is in `indexes/`.

use crate::error::{Error, Result};

/// What the files of a kind of index are called.
#[derive(Debug)]
pub struct Files {
    /// Name of the kind on the command line.
    pub name: &'static str,
    /// File beside each shard.
    pub beside: Option<Beside>,
    /// File in each folder of shards, which describes the shards that one commit put there.
    pub of_folder: Option<&'static str>,
    /// Objects that describe the newest version and are replaced with it; folders end with `/`.
    pub of_version: &'static [&'static str],
    /// Feature of cargo that writing the files needs and this program was built without.
    pub lacks: Option<&'static str>,
}

/// Name of the file beside a shard.
#[derive(Debug, Clone, Copy)]
pub enum Beside {
    /// The name of the shard up to its first dot, then this ending.
    Stem(&'static str),
    /// The whole name of the shard, then this ending.
    Whole(&'static str),
}

const NO_FILES: Files = Files { name: "", beside: None, of_folder: None, of_version: &[], lacks: None };

/// Makes the enumeration of the kinds of a list of their files.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident { $($field:ident: $value:expr),* };)*) => {
        /// A kind of index.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum IndexKind {
            $($(#[$doc])* $kind,)*
        }

        impl IndexKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Returns what its files are called.
            pub const fn files(self) -> &'static Files {
                match self {
                    $(Self::$kind => const { &Files { $($field: $value,)* ..NO_FILES } },)*
                }
            }
        }
    };
}

kinds! {
    /// NVIDIA DALI: offsets of every part of a tar, or of every record of a TFRecord.
    Dali { name: "dali", beside: Some(Beside::Stem(".idx")) };
    /// wids: shards with counts and MD5 sums.
    Wids { name: "wids", of_folder: Some("shardindex.json"), of_version: &["shardindex.json"] };
    /// Megatron-Energon: offsets of samples, and a database of their keys.
    Energon {
        name: "energon",
        beside: Some(Beside::Whole(".idx")),
        of_version: &[".nv-meta/"],
        lacks: if cfg!(feature = "energon") { None } else { Some("energon") }
    };
    /// The `tfrecord` package: offsets of every record.
    TfIndex { name: "tfindex", beside: Some(Beside::Stem(".tfindex")) };
    /// Readers of Delta tables: a log of the live shards.
    Delta { name: "delta", of_version: &["_delta_log/"] };
    /// Hugging Face datasets: a dataset card with the live shards.
    Hf { name: "hf", of_version: &["README.md"] };
}

impl IndexKind {
    /// Returns the path of the file beside a shard, if the kind has one.
    pub fn sidecar_path(self, shard: &str) -> Option<String> {
        Some(match self.files().beside? {
            Beside::Stem(ending) => format!("{}{ending}", shard_stem(shard)),
            Beside::Whole(ending) => format!("{shard}{ending}"),
        })
    }

    /// Whether an object of a dataset is one that the kind replaces with each version.
    pub fn has_of_version(self, path: &str) -> bool {
        self.files().of_version.iter().any(|name| *name == path || name.ends_with('/') && path.starts_with(name))
    }

    /// Fails on kinds that this program was built without.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) that says how to get a program that has them.
    pub fn check_built(kinds: &[Self]) -> Result<()> {
        let lacking = kinds.iter().find_map(|kind| Some((kind, kind.files().lacks?)));
        let Some((kind, feature)) = lacking else { return Ok(()) };
        Err(Error::usage(format!(
            "expected a program built with the feature `{feature}`, which the index {kind} needs, found one without"
        ))
        .with_hint(format!("cargo install --path . --features {feature}"))
        .with_hint("or install the Python package, whose program has it"))
    }
}

impl std::fmt::Display for IndexKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.files().name)
    }
}

/// Returns the path of a shard up to the first dot of its name.
pub fn shard_stem(shard: &str) -> &str {
    let name = shard.rfind('/').map_or(0, |slash| slash + 1);
    shard[name..].find('.').map_or(shard, |dot| &shard[..name + dot])
}

/// Returns the path without the ending that files beside shards have; `None` for other files.
pub fn strip_beside(path: &str) -> Option<&str> {
    let mut endings = IndexKind::ALL.iter().filter_map(|kind| kind.files().beside);
    endings.find_map(|(Beside::Stem(ending) | Beside::Whole(ending))| path.strip_suffix(ending))
}

/// Returns the names of files that describe a folder of shards.
pub fn of_folders() -> impl Iterator<Item = &'static str> {
    IndexKind::ALL.iter().filter_map(|kind| kind.files().of_folder)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn tools_find_the_files_where_they_look() {
        for (kind, shard, place) in [
            (IndexKind::Dali, "a.b/000001.tar", Some("a.b/000001.idx")),
            (IndexKind::Energon, "a.b/000001.tar", Some("a.b/000001.tar.idx")),
            (IndexKind::TfIndex, "t/000001.tfrecord", Some("t/000001.tfindex")),
            (IndexKind::Wids, "t/000001.tar", None),
            (IndexKind::Delta, "t/000001.parquet", None),
            (IndexKind::Hf, "t/000001.parquet", None),
        ] {
            assert_eq!(kind.sidecar_path(shard).as_deref(), place);
        }
        assert_eq!(strip_beside("t/000001.tar.idx"), Some("t/000001.tar"));
        assert_eq!(strip_beside("t/000001.tar"), None);
        let replaced =
            |path: &str| IndexKind::ALL.iter().copied().filter(|k| k.has_of_version(path)).collect::<Vec<_>>();
        assert_eq!(replaced(".nv-meta/split.yaml"), [IndexKind::Energon]);
        assert_eq!(replaced("README.md"), [IndexKind::Hf]);
        assert_eq!(replaced("README.md.old"), []);
        assert_eq!(replaced("t/shardindex.json"), []);
    }

    #[test]
    fn logs_and_the_command_line_have_the_same_names() {
        let names = ["dali", "wids", "energon", "tfindex", "delta", "hf"];
        assert_eq!(serde_json::to_value(IndexKind::ALL).unwrap(), serde_json::json!(names));
        assert_eq!(IndexKind::ALL.iter().map(ToString::to_string).collect::<Vec<_>>(), names);
    }
}
