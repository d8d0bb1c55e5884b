//! Lookup by id: what `shardify manifest --find` answers.

use crate::ops::manifest::{DuplicateReport, ErasedReport, HitReport, SearchReport};

/// What a lookup found: the records, and what became of the other ids.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("patients");
/// use shardify::Session;
///
/// let session = Session::new()?;
/// session.convert("testdata/patients/OBSERVATION.csv", &out).subject("person_id").run()?;
/// let found = session.open(&out)?.find(["7", "nobody"])?;
/// assert_eq!((found.count(), found.missing()), (562, &["nobody".to_owned()][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, serde::Serialize)]
pub struct FindReport {
    records: Vec<FoundRecord>,
    erased: Vec<ErasedReport>,
    duplicates: Vec<DuplicateReport>,
    #[serde(flatten)]
    answer: SearchReport,
}

impl FindReport {
    /// Joins the records that a search has visited with its answer.
    pub(super) fn from_search(records: Vec<FoundRecord>, mut answer: SearchReport) -> Self {
        // The command line prints these as objects of their own.
        let erased = std::mem::take(&mut answer.erased);
        let duplicates = std::mem::take(&mut answer.duplicates);
        Self { records, erased, duplicates, answer }
    }

    /// Returns the version that was searched.
    pub fn version(&self) -> u64 {
        self.answer.version.0
    }

    /// Returns the records, in the order of the ids.
    pub fn records(&self) -> &[FoundRecord] {
        &self.records
    }

    /// Returns the number of records that have one of the ids; more than are shown if a prefix has a limit.
    pub fn count(&self) -> u64 {
        self.answer.hits
    }

    /// Returns the ids without a record, including those below.
    pub fn missing(&self) -> &[String] {
        &self.answer.missing
    }

    /// Returns the ids that were erased, and the version of each that erased them.
    pub fn erased(&self) -> impl Iterator<Item = (&str, u64)> {
        self.erased.iter().map(|erased| (erased.id.as_str(), erased.version.0))
    }

    /// Returns the ids of records that were omitted as duplicates, and the id of the record that each repeats, if it
    /// is known.
    pub fn duplicates(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.duplicates.iter().map(|duplicate| {
            let first = duplicate.of.as_ref().map(|first| first.record_id.as_str());
            (duplicate.id.as_str(), first)
        })
    }
}

/// A record that a lookup found: where it is, where it came from, and which versions have it.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("patients");
/// use shardify::Session;
///
/// let session = Session::new()?;
/// session.convert("testdata/patients/OBSERVATION.csv", &out).subject("person_id").run()?;
/// let found = session.open(&out)?.find(["OBSERVATION.csv#515"])?;
/// let record = &found.records()[0];
/// assert_eq!((record.subject_id(), record.source_row(), record.versions()), (Some("7"), Some(515), (1, None)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, serde::Serialize)]
#[serde(transparent)]
pub struct FoundRecord(pub(super) HitReport);

impl FoundRecord {
    /// Returns the id that was asked for, or the prefix with a `*`.
    pub fn asked(&self) -> &str {
        &self.0.id
    }

    /// Returns the record id.
    pub fn record_id(&self) -> &str {
        &self.0.record_id
    }

    /// Returns the subject id.
    pub fn subject_id(&self) -> Option<&str> {
        self.0.subject_id.as_deref()
    }

    /// Returns the path of the shard, relative to the dataset.
    pub fn shard(&self) -> &str {
        &self.0.shard
    }

    /// Returns the row within the shard, from 0.
    pub fn row(&self) -> u64 {
        self.0.ordinal
    }

    /// Returns offset and length in bytes within the uncompressed shard; `None` for Parquet.
    pub fn bytes(&self) -> Option<(u64, u64)> {
        self.0.offset.zip(self.0.length)
    }

    /// Returns the name of the source.
    pub fn source(&self) -> &str {
        &self.0.origin.source
    }

    /// Returns the row in the source, from 1; `None` if the whole source is the record.
    pub fn source_row(&self) -> Option<u64> {
        self.0.origin.row
    }

    /// Returns the first version that has the record, and the last one; `None` while it is live.
    pub fn versions(&self) -> (u64, Option<u64>) {
        (self.0.versions.from.0, self.0.versions.to.map(|last| last.0))
    }

    /// Whether the bytes still exist.
    pub fn is_stored(&self) -> bool {
        self.0.stored
    }
}
