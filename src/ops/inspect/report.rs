//! What `inspect` is asked and what it answers.

use serde::Serialize;

use super::{cost::Cost, table::TableFacts};
use crate::{
    dataset::{Operation, Settings},
    id::Version,
    ops::{
        parent::ParentReport,
        sizes::{SizeBin, Sizes},
    },
    scan::{InputFormat, settings::ReadSettings},
    units::Size,
};

/// Bytes that could be read in the time it takes to open a file: some 30 ms at 128 MiB/s.
pub const OPEN_COST: Size = Size::from_mib(4);
/// Score above which merging is advised.
pub(super) const HIGH_SCORE: u64 = 25;

/// What to inspect, and how it is read.
#[derive(Debug, Clone, Default)]
pub struct InspectOptions {
    /// Dataset, file, folder, glob or URL.
    pub source: String,
    /// Format of the source, if its content does not tell.
    pub from: Option<InputFormat>,
    /// Settings of input formats.
    pub read: ReadSettings,
}

impl InspectOptions {
    /// Returns what inspects a source of which nothing else is known.
    pub fn of_source(source: &str) -> Self {
        Self { source: source.to_owned(), ..Self::default() }
    }
}

/// Files of one format.
#[derive(Debug, Clone, Serialize)]
pub struct FormatReport {
    /// The format.
    pub format: String,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of records; absent if the files do not state it.
    pub records: Option<u64>,
    /// Whether the number of records is exact.
    pub exact: bool,
    /// Whether there may be many more records, because files are compressed.
    pub at_least: bool,
    /// Files that cannot be read in their format; their records are not counted.
    pub damaged: u64,
}

/// A column of the records in the sample.
#[derive(Debug, Clone, Serialize)]
pub struct InspectedColumn {
    /// Its name.
    pub column: String,
    /// Its type.
    #[serde(rename = "data_type")]
    pub data_type: String,
    /// Share of nulls in the sample.
    pub nulls: f64,
    /// Whether every record of the sample has a different value.
    pub unique: bool,
}

/// A variable of an array source.
#[derive(Debug, Clone, Serialize)]
pub struct VariableReport {
    /// Its name.
    pub variable: String,
    /// Type of an element.
    #[serde(rename = "data_type")]
    pub data_type: String,
    /// Type of its values in a record, where that differs; absent for constants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column_type: Option<String>,
    /// Its dimensions, with their lengths.
    pub dims: Vec<(String, u64)>,
    /// Shape of the stored chunks; absent if the variable is stored in one piece.
    pub chunks: Option<Vec<u64>>,
    /// Compression of the chunks, if the source states it.
    pub codecs: Vec<String>,
    /// Role in a conversion: a column of records, a constant, or none because it cannot be read.
    pub role: &'static str,
    /// Its attributes.
    pub attributes: Vec<(String, String)>,
}

/// Files of at least `from` bytes and less than twice as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Smallest size in the bucket, a power of two, or 0.
    pub from: u64,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Report of `inspect`.
#[derive(Debug, Clone, Serialize)]
pub struct InspectReport {
    /// The inspected source.
    pub source: String,
    /// The version, if the source is a dataset.
    pub version: Option<Version>,
    /// Number of files; of a dataset, its live shards.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of records, if every format states it.
    pub records: Option<u64>,
    /// Whether the number of records is exact.
    pub exact: bool,
    /// Files below an eighth of the target, which is 16 MiB unless a dataset has another target.
    pub small_files: u64,
    /// Share of the time to read everything that is spent on opening files, in percent.
    pub small_file_score: u64,
    /// Number of sampled records.
    pub sampled_records: u64,
    /// Column that seems to hold the record id.
    pub id: Option<String>,
    /// Number of records in which that column is known not to repeat; absent if only the sample was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_unique_in: Option<u64>,
    /// Column that seems to hold the subject id.
    pub subject: Option<String>,
    /// Settings of the dataset, which later runs keep; absent if the source is no dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// What may be wrong with the files or with their use, most important first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Classes of samples by their numbers, of a dataset with classes from folders.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// The command to run next; absent if nothing needs to be done.
    pub command: Option<String>,
    /// Purpose of the command, or the reason why there is none.
    pub advice: String,
    /// What the command will take, if it is a `convert` of a source that is not small and could be sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The formats.
    #[serde(skip)]
    pub formats: Vec<FormatReport>,
    /// The columns.
    #[serde(skip)]
    pub columns: Vec<InspectedColumn>,
    /// Dimension along which the records of arrays are arranged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_dim: Option<String>,
    /// The variables of the first array source.
    #[serde(skip)]
    pub variables: Vec<VariableReport>,
    /// Sizes of the files.
    #[serde(skip)]
    pub sizes: Vec<Bucket>,
    /// Plans that can be continued.
    #[serde(skip)]
    pub plans: Vec<PlanInfo>,
    /// What the log says, if the source is a Delta table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableFacts>,
    /// The dataset that this one was cut from; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentReport>,
}

/// A plan that can be continued.
#[derive(Debug, Clone, Serialize)]
pub struct PlanInfo {
    /// Path or URL of the plan.
    pub plan: String,
    /// What its tasks do.
    pub operation: Operation,
    /// Number of its tasks.
    pub tasks: u64,
    /// How many of them have finished.
    pub tasks_done: u64,
    /// When it was made, or its last task finished.
    pub touched: String,
}

pub(super) fn base_report(source: &str, sizes: &[u64], small: Size) -> InspectReport {
    InspectReport {
        source: source.to_owned(),
        version: None,
        files: sizes.len() as u64,
        bytes: sizes.iter().sum(),
        records: None,
        exact: false,
        small_files: sizes.iter().filter(|bytes| **bytes < small.0).count() as u64,
        small_file_score: open_cost_percent(sizes),
        sampled_records: 0,
        id: None,
        id_unique_in: None,
        subject: None,
        settings: None,
        problems: Vec::new(),
        classes: Vec::new(),
        command: None,
        advice: String::new(),
        cost: None,
        formats: Vec::new(),
        columns: Vec::new(),
        record_dim: None,
        variables: Vec::new(),
        sizes: size_histogram(sizes),
        plans: Vec::new(),
        table: None,
        parent: None,
    }
}

/// Returns the share of the reading time that is spent on opening files, in percent.
pub(super) fn open_cost_percent(sizes: &[u64]) -> u64 {
    let opening = u128::from(OPEN_COST.0) * sizes.len() as u128;
    let reading: u128 = sizes.iter().map(|bytes| u128::from(*bytes)).sum();
    u64::try_from((100 * opening + (opening + reading) / 2).checked_div(opening + reading).unwrap_or(0)).unwrap_or(100)
}

/// Counts files by powers of two, without gaps between the smallest and the largest.
fn size_histogram(sizes: &[u64]) -> Vec<Bucket> {
    let bucket = |bin: SizeBin| Bucket { from: bin.from, files: bin.count, bytes: bin.bytes };
    sizes.iter().copied().collect::<Sizes>().size_bins().into_iter().map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_the_share_of_time_for_opening_files() {
        assert_eq!(open_cost_percent(&[]), 0);
        assert_eq!(open_cost_percent(&[128 << 20; 10]), 3);
        assert_eq!(open_cost_percent(&[4 << 20]), 50);
        assert_eq!(open_cost_percent(&[1000; 100_000]), 100);
    }

    #[test]
    fn sizes_fall_into_powers_of_two() {
        let bucket = |from, files, bytes| Bucket { from, files, bytes };
        assert_eq!(size_histogram(&[0, 1, 3, 4]), [bucket(0, 1, 0), bucket(1, 1, 1), bucket(2, 1, 3), bucket(4, 1, 4)]);
        assert_eq!(
            size_histogram(&[1024, 2047, 5000]),
            [bucket(1024, 2, 3071), bucket(2048, 0, 0), bucket(4096, 1, 5000)]
        );
    }
}
