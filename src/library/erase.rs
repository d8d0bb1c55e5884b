//! Erasure: `shardify erase` as a builder.

use super::{dataset::Dataset, report, session::Session};
use crate::{
    dataset::Counts,
    error::Result,
    ops::erase::{EraseId, EraseOptions, NameKind, erase_records},
    storage::Location,
};

/// An erasure of records; [`Dataset::erase`](crate::Dataset::erase) begins one.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("patients");
/// use shardify::Session;
///
/// let session = Session::new()?;
/// session.convert("testdata/patients/OBSERVATION.csv", &out).subject("person_id").run()?;
/// let plan = session.open(&out)?.erase().subject("7").all_versions().dry_run().run()?;
/// assert_eq!(plan.records(), 562);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "an erasure does nothing until `run`"]
pub struct Erase {
    session: Session,
    dataset: Location,
    options: EraseOptions,
}

impl Dataset {
    /// Begins an erasure of records from the newest version, or from all.
    pub fn erase(&self) -> Erase {
        Erase { session: self.session.clone(), dataset: self.location.clone(), options: EraseOptions::default() }
    }
}

impl Erase {
    fn add(mut self, id: String, kind: Option<NameKind>) -> Self {
        self.options.ids.push(EraseId { id, kind });
        self
    }

    /// Adds an id of any kind; it is an error if records of several kinds have it.
    pub fn id(self, id: impl Into<String>) -> Self {
        self.add(id.into(), None)
    }

    /// Adds the id of one record.
    pub fn record(self, id: impl Into<String>) -> Self {
        self.add(id.into(), Some(NameKind::Record))
    }

    /// Adds the id of a subject, with all of its records.
    pub fn subject(self, id: impl Into<String>) -> Self {
        self.add(id.into(), Some(NameKind::Subject))
    }

    /// Erases the records also from older versions.
    pub fn all_versions(mut self) -> Self {
        self.options.all_versions = true;
        self
    }

    /// Sets the reason, which the log and the receipt state.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.options.reason = Some(reason.into());
        self
    }

    /// Plans without erasing anything.
    pub fn dry_run(mut self) -> Self {
        self.options.dry_run = true;
        self
    }

    /// Erases the records, commits a version, and writes a receipt. The ids are refused from then on.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if there is no id or one is ambiguous,
    /// [`ErrorKind::Integrity`](crate::ErrorKind::Integrity) if a shard is damaged,
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if other runs were faster,
    /// [`ErrorKind::Storage`](crate::ErrorKind::Storage) if the store fails.
    pub fn run(self) -> Result<EraseReport> {
        self.session.run(|context| erase_records(context, &self.dataset, &self.options)).map(EraseReport)
    }
}

report! {
    /// What an erasure did.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("patients");
    /// use shardify::Session;
    ///
    /// let session = Session::new()?;
    /// session.convert("testdata/patients/OBSERVATION.csv", &out).subject("person_id").run()?;
    /// let report = session.open(&out)?.erase().subject("7").run()?;
    /// assert_eq!((report.version(), report.records(), report.kept_in()), (2, 562, Some((1, 1))));
    /// assert!(out.join(report.receipt().unwrap_or_default()).is_file());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    EraseReport(crate::ops::erase::EraseReport)
}

impl EraseReport {
    /// Returns the new version; the newest one if there was nothing to erase.
    pub fn version(&self) -> u64 {
        self.0.version.0
    }

    /// Returns the number of records that were erased.
    pub fn records(&self) -> u64 {
        self.0.records_erased
    }

    /// Returns the counts of the run.
    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Returns the ids that no record has, and that were not erased before.
    pub fn missing(&self) -> &[String] {
        &self.0.missing
    }

    /// Returns the oldest and the newest version that still have some of the records, until they are vacuumed.
    pub fn kept_in(&self) -> Option<(u64, u64)> {
        self.0.kept_in.map(|(oldest, newest)| (oldest.0, newest.0))
    }

    /// Returns the path of the receipt, relative to the dataset.
    pub fn receipt(&self) -> Option<&str> {
        self.0.receipt.as_deref()
    }
}
