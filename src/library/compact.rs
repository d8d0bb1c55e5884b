//! Compaction: `shardify compact` as a builder.

use super::{Mistake, dataset::Dataset, report, session::Session};
use crate::{
    dataset::Counts,
    error::Result,
    ops::compact::{Options, ProofLevel, compact_dataset},
    storage::Location,
    units::Size,
};

/// A compaction; [`Dataset::compact`](crate::Dataset::compact) begins one.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("patients");
/// use shardify::Session;
///
/// let session = Session::new()?;
/// session.convert("testdata/patients/OBSERVATION.csv", &out).records_per_shard(1_000).run()?;
/// let plan = session.open(&out)?.compact().since("7d").min_inputs(3).dry_run().run()?;
/// assert_eq!(plan.shards().0, 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a compaction does nothing until `run`"]
pub struct Compact {
    session: Session,
    dataset: Location,
    options: Options,
    mistake: Mistake,
}

impl Dataset {
    /// Begins a compaction of the newest version.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("patients");
    /// use shardify::Session;
    ///
    /// let session = Session::new()?;
    /// session.convert("testdata/patients/OBSERVATION.csv", &out).records_per_shard(1_000).run()?;
    /// let report = session.open(&out)?.compact().run()?;
    /// assert_eq!(report.shards(), (9, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compact(&self) -> Compact {
        Compact {
            session: self.session.clone(),
            dataset: self.location.clone(),
            options: Options::default(),
            mistake: Mistake::default(),
        }
    }
}

impl Compact {
    /// Sets the size of a shard on disk, in bytes; by default that of the dataset.
    pub fn target_shard(mut self, bytes: u64) -> Self {
        self.options.target_shard = Some(Size(bytes));
        self
    }

    /// Sets how many small shards are worth a merge; by default 5.
    pub fn min_inputs(mut self, shards: usize) -> Self {
        self.options.min_inputs = Some(shards);
        self
    }

    /// Takes only shards of versions since a point in time: `7d` ago, a date, an instant or a version.
    pub fn since(mut self, when: impl Into<String>) -> Self {
        self.options.since = Some(when.into());
        self
    }

    /// Takes only shards of versions until a point in time.
    pub fn until(mut self, when: impl Into<String>) -> Self {
        self.options.until = Some(when.into());
        self
    }

    /// Sets the compression of new shards, for Parquet.
    pub fn codec(mut self, codec: &str) -> Self {
        self.options.codec = self.mistake.accept("codec", codec.parse());
        self
    }

    /// Writes at most so many bytes anew.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.options.max_bytes = Some(Size(bytes));
        self
    }

    /// Compares all values of old and new shards before the commit, not only their checksums.
    pub fn compare_values(mut self) -> Self {
        self.options.proof = ProofLevel::Full;
        self
    }

    /// Plans without changing anything.
    pub fn dry_run(mut self) -> Self {
        self.options.dry_run = true;
        self
    }

    /// Merges small shards and divides large ones of the newest version, and commits a version.
    ///
    /// # Errors
    /// [`ErrorKind::Integrity`](crate::ErrorKind::Integrity) if a shard is damaged,
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if other runs were faster,
    /// [`ErrorKind::Storage`](crate::ErrorKind::Storage) if the store fails.
    pub fn run(mut self) -> Result<CompactReport> {
        self.mistake.check()?;
        self.session.run(|context| compact_dataset(context, &self.dataset, &self.options)).map(CompactReport)
    }
}

report! {
    /// What a compaction did.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("patients");
    /// use shardify::Session;
    ///
    /// let session = Session::new()?;
    /// session.convert("testdata/patients/OBSERVATION.csv", &out).records_per_shard(1_000).run()?;
    /// let report = session.open(&out)?.compact().run()?;
    /// assert_eq!((report.version(), report.shards()), (2, (9, 1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    CompactReport(crate::ops::compact::CompactReport)
}

impl CompactReport {
    /// Returns the new version; the newest one if there was nothing to do.
    pub fn version(&self) -> u64 {
        self.0.version.0
    }

    /// Returns the counts of the run.
    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Returns the numbers of live shards before and after the run.
    pub fn shards(&self) -> (u64, u64) {
        (self.0.shards_before, self.0.shards_after)
    }

    /// Returns the bytes of shards that were copied as they were, without being decoded.
    pub fn bytes_copied(&self) -> u64 {
        self.0.bytes_copied
    }
}
