//! Verification: what `shardify verify` answers.

use super::report;

report! {
    /// What a verification found.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("patients");
    /// use shardify::Session;
    ///
    /// let session = Session::new()?;
    /// session.convert("testdata/patients/OBSERVATION.csv", &out).subject("person_id").run()?;
    /// let report = session.open(&out)?.verify_data()?;
    /// assert!(report.is_sound());
    /// assert_eq!(report.records(), 8_099);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    VerifyReport(crate::ops::verify::VerifyReport)
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.0.problem_count == 0
    }

    /// Returns the number of records that were verified.
    pub fn records(&self) -> u64 {
        self.0.records
    }

    /// Returns the number of problems, of which [`problems`](Self::problems) has the first.
    pub fn problem_count(&self) -> u64 {
        self.0.problem_count
    }

    /// Returns the objects that have a problem, and what it is.
    pub fn problems(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.problems.iter().map(|problem| (problem.object.as_str(), problem.problem.as_str()))
    }
}
