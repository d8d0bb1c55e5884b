//! One version of a dataset, and its live shards.

use std::ffi::OsStr;

use super::{
    batches::Batches,
    find::{FindReport, FoundRecord},
    session::{Session, text},
    verify::VerifyReport,
};
use crate::{
    dataset::{ShardMeta, Snapshot},
    error::Result,
    ops::{
        manifest::{self, LookupIds},
        verify::verify_dataset,
    },
    record::split::split_of_path,
    storage::Location,
};

/// A version of a dataset; [`Session::open`] opens the newest one.
///
/// It stays readable while other runs commit, until a vacuum or an erasure deletes what it needs.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("patients");
/// use shardify::Session;
///
/// let session = Session::new()?;
/// session.convert("testdata/patients/OBSERVATION.csv", &out).subject("person_id").run()?;
///
/// let dataset = session.open(&out)?;
/// let found = dataset.find(["7"])?;
/// assert_eq!(found.count(), 562);
/// assert_eq!(found.records()[0].source(), "OBSERVATION.csv");
///
/// let erased = dataset.erase().subject("7").all_versions().reason("request 17").run()?;
/// assert_eq!(erased.records(), 562);
/// let found = session.open(&out)?.find(["7"])?;
/// assert_eq!((found.count(), found.erased().next()), (0, Some(("7", 2))));
/// assert!(session.open(&out)?.verify()?.is_sound());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Dataset {
    pub(super) session: Session,
    pub(super) location: Location,
    snapshot: Snapshot,
}

impl Session {
    /// Opens the newest version of a dataset.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if there is none; when the store fails or the log is damaged.
    pub fn open(&self, dataset: impl AsRef<OsStr>) -> Result<Dataset> {
        Dataset::open(self.clone(), &text(dataset.as_ref())?, None)
    }

    /// Opens the version of a dataset that a text names: `v3`, a tag, a date, an instant, or how long ago (`7d`).
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("patients");
    /// use shardify::{ErrorKind, Session};
    ///
    /// let session = Session::new()?;
    /// session.convert("testdata/patients/PERSON.csv", &out).run()?;
    /// assert_eq!(session.open_at(&out, "v1")?.version(), 1);
    /// let none = session.open_at(&out, "v2").err().map(|error| error.kind());
    /// assert_eq!(none, Some(ErrorKind::Usage));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if there is no such version; when the store fails or the log is
    /// damaged.
    pub fn open_at(&self, dataset: impl AsRef<OsStr>, version: &str) -> Result<Dataset> {
        Dataset::open(self.clone(), &text(dataset.as_ref())?, Some(version))
    }
}

impl Dataset {
    fn open(session: Session, dataset: &str, at: Option<&str>) -> Result<Self> {
        let (location, snapshot) = session.run(|context| {
            let location = context.parse_location(dataset)?;
            let snapshot = manifest::open_snapshot(context, &location, at)?;
            Ok((location, snapshot))
        })?;
        Ok(Self { session, location, snapshot })
    }

    /// Returns the number of the version.
    pub fn version(&self) -> u64 {
        self.snapshot.version().0
    }

    /// Returns the number of live records.
    pub fn records(&self) -> u64 {
        self.snapshot.entry().totals.records
    }

    /// Returns the live shards, in the order of their records.
    ///
    /// # Errors
    /// When the store fails, or the list is damaged.
    pub fn shards(&self) -> Result<Vec<Shard>> {
        let shard = |meta: &ShardMeta| Shard { dataset: self.clone(), meta: meta.clone() };
        Ok(manifest::live_shards(&self.snapshot)?.iter().map(shard).collect())
    }

    /// Finds the records with these record ids, subject ids or origins (`source#row`).
    ///
    /// # Errors
    /// When the store fails, or the index is damaged.
    pub fn find(&self, ids: impl IntoIterator<Item = impl Into<String>>) -> Result<FindReport> {
        self.found(LookupIds { ids: ids.into_iter().map(Into::into).collect(), ..LookupIds::default() })
    }

    /// Finds the records whose record or subject id begins with a text; at most so many are returned, all are counted.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if ids are private; when the store fails, or the index is damaged.
    pub fn find_prefix(&self, prefix: impl Into<String>, limit: u64) -> Result<FindReport> {
        self.found(LookupIds { prefixes: vec![prefix.into()], limit: Some(limit), ..LookupIds::default() })
    }

    fn found(&self, wanted: LookupIds) -> Result<FindReport> {
        let at = self.snapshot.version().to_string();
        let mut records = Vec::new();
        let answer = self.session.run(|context| {
            manifest::find_wanted(context, &self.location, Some(&at), &wanted, &mut |hit| {
                records.push(FoundRecord(hit));
                Ok(())
            })
        })?;
        Ok(FindReport::from_search(records, answer))
    }

    /// Verifies the version: log, lists, index, sidecars, and the sizes of the shards.
    ///
    /// # Errors
    /// When the store fails; damage is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verified(false)
    }

    /// Verifies the version, and reads all of its data: every byte and every record.
    ///
    /// # Errors
    /// When the store fails; damage is in the report.
    pub fn verify_data(&self) -> Result<VerifyReport> {
        self.verified(true)
    }

    fn verified(&self, read_data: bool) -> Result<VerifyReport> {
        let at = self.snapshot.version().to_string();
        self.session.run(|context| verify_dataset(context, &self.location, Some(&at), read_data)).map(VerifyReport)
    }
}

/// A live shard of a version.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("weather");
/// use shardify::{Batch, Session};
///
/// let session = Session::new()?;
/// session.convert("testdata/csv/seattle-weather.csv", &out).run()?;
/// let mut rows = 0;
/// for shard in session.open(&out)?.shards()? {
///     for batch in shard.batches() {
///         if let Batch::Rows(batch) = batch? {
///             rows += batch.num_rows();
///         }
///     }
/// }
/// assert_eq!(rows, 1_461);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Shard {
    dataset: Dataset,
    meta: ShardMeta,
}

impl Shard {
    /// Returns its path, relative to the dataset.
    pub fn path(&self) -> &str {
        &self.meta.path
    }

    /// Returns its path or URL.
    pub fn location(&self) -> String {
        self.dataset.location.join(&self.meta.path).to_string()
    }

    /// Returns the number of its records.
    pub fn records(&self) -> u64 {
        self.meta.records
    }

    /// Returns its size on disk in bytes.
    pub fn bytes(&self) -> u64 {
        self.meta.bytes
    }

    /// Returns the part of a divided dataset that it belongs to, such as `train`.
    pub fn part(&self) -> Option<&str> {
        split_of_path(&self.meta.path)
    }

    /// Reads its live records, in their order, a few megabytes ahead.
    pub fn batches(&self) -> Batches {
        Batches::read_ahead(self.dataset.session.clone(), self.dataset.snapshot.clone(), self.meta.clone())
    }
}
