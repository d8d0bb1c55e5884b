//! Adoption of existing shards: `shardify adopt` as a builder.

use std::ffi::OsStr;

use super::{
    Mistake, report,
    session::{Session, text},
};
use crate::{
    dataset::Counts,
    error::Result,
    ops::adopt::{AdoptOptions, adopt_shards},
};

/// An adoption of existing shards; [`Session::adopt`] begins one.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("patients");
/// use shardify::Session;
///
/// let session = Session::new()?;
/// session.convert("testdata/patients/PERSON.csv", folder.path().join("one")).run()?;
/// let report = session.adopt(folder.path().join("one/*/*.parquet")).out(&out).id(["person_id"]).run()?;
/// assert_eq!(session.open(&out)?.find(["7"])?.count(), 1);
/// # assert_eq!(report.version(), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "an adoption does nothing until `run`"]
pub struct Adopt {
    session: Session,
    options: AdoptOptions,
    out: Option<String>,
    mistake: Mistake,
}

impl Session {
    /// Makes a dataset of existing shards (a folder, glob or URL), without writing them anew.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let mine = folder.path().join("mine");
    /// # std::fs::create_dir(&mine)?;
    /// # std::fs::copy("testdata/inputs/people.parquet", mine.join("a.parquet"))?;
    /// use shardify::Session;
    ///
    /// let report = Session::new()?.adopt(&mine).run()?;
    /// assert_eq!(report.counts().shards_added, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn adopt(&self, shards: impl AsRef<OsStr>) -> Adopt {
        Adopt::new(self.clone(), shards.as_ref())
    }
}

impl Adopt {
    fn new(session: Session, shards: &OsStr) -> Self {
        let mut mistake = Mistake::default();
        let source = mistake.accept("shards", text(shards)).unwrap_or_default();
        Self { session, options: AdoptOptions { source, ..AdoptOptions::default() }, out: None, mistake }
    }

    /// Sets the dataset that gets the shards, by links or copies; by default their folder becomes one.
    pub fn out(mut self, dataset: impl AsRef<OsStr>) -> Self {
        self.out = self.mistake.accept("out", text(dataset.as_ref()));
        self
    }

    /// Sets the columns that make the record id.
    pub fn id(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.id = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the column of the subject id.
    pub fn subject(mut self, column: impl Into<String>) -> Self {
        self.options.subject = Some(column.into());
        self
    }

    /// Adopts only files that match a glob; may be repeated.
    pub fn include(mut self, glob: impl Into<String>) -> Self {
        self.options.include.push(glob.into());
        self
    }

    /// Skips files that match a glob; may be repeated.
    pub fn exclude(mut self, glob: impl Into<String>) -> Self {
        self.options.exclude.push(glob.into());
        self
    }

    /// Keeps the content hash of every row of Parquet shards.
    pub fn hash_records(mut self) -> Self {
        self.options.hash_records = true;
        self
    }

    /// Makes a dataset whose versions can be proved to have an id, or not to have it.
    pub fn proofs(mut self) -> Self {
        self.options.proofs = true;
        self
    }

    /// Skips damaged files, which [`AdoptReport::skipped`] names; by default the first one is an error.
    pub fn skip_errors(mut self) -> Self {
        self.options.skip_errors = true;
        self
    }

    /// Adopts the shards, and commits a version.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for a file that is no shard or damaged,
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if another run was faster,
    /// [`ErrorKind::Storage`](crate::ErrorKind::Storage) if the store fails.
    pub fn run(mut self) -> Result<AdoptReport> {
        self.mistake.check()?;
        self.session.run(|context| {
            let out = self.out.as_deref().map(|out| context.parse_location(out)).transpose()?;
            adopt_shards(context, &AdoptOptions { out, ..self.options }).map(AdoptReport)
        })
    }
}

report! {
    /// What an adoption did.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("patients");
    /// use shardify::Session;
    ///
    /// let session = Session::new()?;
    /// session.convert("testdata/patients/PERSON.csv", folder.path().join("one")).run()?;
    /// std::fs::write(folder.path().join("one/bad.parquet"), "no Parquet")?;
    /// let report = session.adopt(folder.path().join("one/**/*.parquet")).out(&out).skip_errors().run()?;
    /// assert_eq!((report.counts().shards_added, report.skipped().count()), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    AdoptReport(crate::ops::adopt::AdoptReport)
}

impl AdoptReport {
    /// Returns the new version; the newest one if nothing was adopted, `None` if there is no version yet.
    pub fn version(&self) -> Option<u64> {
        self.0.version.map(|version| version.0)
    }

    /// Returns the counts of the run.
    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Returns the number of files that the dataset had already.
    pub fn files_unchanged(&self) -> u64 {
        self.0.files_unchanged
    }

    /// Returns the files that were skipped, and what is wrong with each.
    pub fn skipped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.skipped.iter().map(|skipped| (skipped.file.as_str(), skipped.problem.as_str()))
    }
}
