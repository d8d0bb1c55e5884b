//! The contract of a kind of index: what it is, the file beside a shard, and the files of a version; and what those
//! kinds share whose files are replaced with each version.

use arrow::datatypes::Fields;

use super::names::{Renaming, Rule};
use crate::{
    dataset::{Dataset, NewShard, SealingSink, ShardMeta, Snapshot},
    error::{Error, Result},
    format::{OutputFormat, index::IndexKind, tar::places::Place},
    storage::{Staged, Store},
};

/// What a kind of index is, and asks of a dataset.
#[derive(Debug)]
pub struct About {
    /// What the help says of it.
    pub help: &'static str,
    /// Formats of shards that can have it. Only Parquet shards may be compressed: offsets into compressed bytes are
    /// useless to the tools that read tar and TFRecord.
    pub formats: &'static [OutputFormat],
    /// Whether new datasets have it by default, because it costs almost nothing.
    pub is_default: bool,
    /// Whether it lists the members of tar shards.
    pub lists_members: bool,
    /// Whether it states the MD5 of shards.
    pub needs_md5: bool,
    /// Whether the files of a version are made of those beside every shard, which shards adopted in place do not have.
    pub needs_all_beside: bool,
    /// Names that it cannot store.
    pub rules: &'static [Rule],
    /// How names are changed to break none of the rules.
    pub renaming: Renaming,
}

impl About {
    /// An index that asks for nothing and fits no shards.
    pub(super) const NONE: Self = Self {
        help: "",
        formats: &[],
        is_default: false,
        lists_members: false,
        needs_md5: false,
        needs_all_beside: false,
        rules: &[],
        renaming: Renaming::NONE,
    };
}

/// A kind of index.
pub trait Index: Sync {
    /// Returns what it is, and asks of a dataset.
    fn about(&self) -> &'static About;

    /// Starts the file beside a shard; `None` if shards of this format have none.
    ///
    /// # Errors
    /// When the store fails.
    fn start_beside(&self, _shard: &StartedShard<'_>) -> Result<Option<Box<dyn FileBeside>>> {
        Ok(None)
    }

    /// Whether the bytes of the file beside a shard agree with offset and length of its records.
    fn matches_records(&self, _bytes: &[u8], _records: &[(u64, u64)], _format: OutputFormat) -> bool {
        true
    }

    /// Stages the file of a folder of new shards, given with the MD5 of their bytes if an index needs it.
    ///
    /// # Errors
    /// When the store fails.
    fn of_folder(&self, _store: &dyn Store, _shards: &[ShardWithMd5<'_>]) -> Result<Option<Staged>> {
        Ok(None)
    }

    /// Returns what keeps the files of a version; `None` if there are none.
    fn of_version(&self) -> Option<Box<dyn OfVersion>> {
        None
    }
}

/// A shard, and the MD5 of its bytes.
pub type ShardWithMd5<'a> = (&'a ShardMeta, Option<[u8; 16]>);

/// Text to collect before it is written.
pub(super) const TEXT_BYTES: usize = 64 << 10;

/// A shard that is about to be written.
pub struct StartedShard<'a> {
    /// The store of the dataset.
    pub store: &'a dyn Store,
    /// Path of the shard.
    pub path: &'a str,
    /// Path of its sidecar.
    pub sidecar: &'a str,
    /// Its format.
    pub format: OutputFormat,
}

impl StartedShard<'_> {
    /// Starts the file that the kind has beside the shard.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) fn create_sink(&self, kind: IndexKind) -> Result<SealingSink> {
        SealingSink::whole(self.store, &kind.sidecar_path(self.path).unwrap_or_default())
    }
}

/// An index beside a shard that is being written. Each shard has either members or records.
pub trait FileBeside: Send {
    /// Adds the next member of a tar, which is a part of this record.
    ///
    /// # Errors
    /// Fails if its name does not fit the index or the store fails.
    fn add_member(&mut self, _place: &Place<'_>, _record: u64) -> Result<()> {
        Ok(())
    }

    /// Adds the next record of a TFRecord.
    ///
    /// # Errors
    /// When the store fails.
    fn add_record(&mut self, _offset: u64, _length: u64) -> Result<()> {
        Ok(())
    }

    /// Finishes the index, which is not published yet; the last record ends at byte `end` of the shard.
    ///
    /// # Errors
    /// When the store fails.
    fn finish(self: Box<Self>, records: u64, end: u64) -> Result<Vec<Staged>>;
}

/// An object that differs from the newest version: its path, and what is wrong and what to do.
pub type Difference = (String, String);

/// The files that one index has for a version.
pub trait OfVersion {
    /// Checks that a dataset can have the files, before any work is done.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if a new dataset would replace a file of somebody else; if the store
    /// fails.
    fn check_dataset(&self, _dataset: &Dataset, _snapshot: Option<&Snapshot>) -> Result<()> {
        Ok(())
    }

    /// Returns the columns of a run with the types that the index has, where these hold all values without loss;
    /// `is_given` tells whether the user gave the type of a column.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) for a column that no such index can have;
    /// [`Kind::Input`](crate::error::Kind::Input) for one that the index has with another type.
    fn fit_fields(
        &self,
        _dataset: &Dataset,
        _snapshot: Option<&Snapshot>,
        fields: Fields,
        _is_given: &dyn Fn(&str) -> bool,
    ) -> Result<Fields> {
        Ok(fields)
    }

    /// Checks that the index can describe the shards of a run, which are published, but not committed: those that it
    /// adds, and all of the new version. Keeps what the commit needs.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it cannot; as [`check_dataset`](Self::check_dataset).
    fn prepare_commit(
        &mut self,
        dataset: &Dataset,
        snapshot: Option<&Snapshot>,
        _adds: &[NewShard],
        _shards: &[&ShardMeta],
    ) -> Result<()> {
        self.check_dataset(dataset, snapshot)
    }

    /// Writes the files of a version that are not up to date. Returns what users must be told.
    ///
    /// # Errors
    /// Fails if a file beside a shard is missing or damaged, or the store fails.
    fn write(&mut self, snapshot: &Snapshot) -> Result<Option<String>>;

    /// Returns the files that differ from the snapshot.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn find_differences(&self, snapshot: &Snapshot) -> Result<Vec<Difference>>;
}

/// Compares objects with the bytes that they should have.
pub(super) fn compare_objects(store: &dyn Store, expected: &[(&str, &[u8])]) -> Result<Vec<Difference>> {
    let mut out = Vec::new();
    for (path, bytes) in expected {
        match store.get(path)? {
            None => out.push(missing_object(path)),
            Some(found) if found != *bytes => out.push((
                (*path).to_owned(),
                "the index belongs to another version; `shardify compact` or `convert` rewrites it".to_owned(),
            )),
            Some(_) => {}
        }
    }
    Ok(out)
}

/// Returns the difference of an object that does not exist.
pub(super) fn missing_object(path: &str) -> Difference {
    let what = "expected an index of the live shards, found none; `shardify compact` or `convert` rewrites it";
    (path.to_owned(), what.to_owned())
}

/// Checks that a new dataset would replace no file of somebody else.
pub(super) fn refuse_to_replace(
    dataset: &Dataset,
    snapshot: Option<&Snapshot>,
    kind: IndexKind,
    paths: &[&str],
) -> Result<()> {
    if snapshot.is_some() {
        return Ok(());
    }
    let store = dataset.store();
    for path in paths {
        // Another run may have made the dataset meanwhile.
        if store.head(path)?.is_some() && dataset.newest_snapshot()?.is_none() {
            return Err(Error::usage(format!("expected no {path}, which the index {kind} would replace, found one"))
                .at_location(store.location().join(path).to_string())
                .with_hint(format!("move it away, name another dataset with --out, or leave {kind} out of --index")));
        }
    }
    Ok(())
}
