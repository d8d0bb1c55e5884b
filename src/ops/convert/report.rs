//! Report of `convert`.

use serde::Serialize;

use super::{job::ConvertJob, listing::SkippedCounts};
use crate::{
    codec::Codec,
    dataset::{Counts, Dataset, NewShard, OutcomeCounts, Settings, Snapshot},
    events::{Event, Observer},
    format::{OutputFormat, index::IndexKind},
    id::Version,
};

/// Report of a `convert` run.
#[derive(Debug, Clone, Serialize)]
pub struct ConvertReport {
    /// The dataset.
    pub dataset: String,
    /// The new version; the current one if there was nothing to do.
    pub version: Option<Version>,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Format of the shards.
    pub format: OutputFormat,
    /// Compression.
    pub codec: Codec,
    /// Indexes that the shards have.
    pub indexes: Vec<IndexKind>,
    /// Folder of the new shards, relative to the dataset.
    pub folder: Option<String>,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Sources converted.
    pub sources: u64,
    /// Sources that the dataset contains already.
    pub sources_unchanged: u64,
    /// Sources skipped because they have changed.
    pub sources_changed: u64,
    /// Sources skipped because their content is known under another name.
    pub sources_moved: u64,
    /// Sources skipped because they, or their subject, were erased.
    pub sources_erased: u64,
    /// Shards rewritten without the old records of replaced sources; they count as added, too.
    pub shards_rewritten: u64,
    /// Ignored files: hidden, configuration or datasets.
    #[serde(rename = "files_passed_over")]
    pub files_ignored: u64,
    /// Samples whose names were changed for a reader.
    pub samples_renamed: u64,
    /// Samples that lack a part which others have.
    pub samples_incomplete: u64,
    /// Ignored entries of archives: folders, links and devices.
    #[serde(rename = "entries_passed_over")]
    pub entries_ignored: u64,
    /// Empty lines, which are not records.
    pub blank_lines: u64,
    /// Records with fewer fields than the header.
    pub records_padded: u64,
    /// Damaged records that were repaired, for example by reading them with another delimiter.
    pub records_repaired: u64,
    /// Lines that hold no record and were skipped, for example a repeated header.
    pub lines_skipped: u64,
    /// Records whose record id occurred before in the run, as far as that is cheap to detect: among some millions of
    /// consecutive records.
    pub ids_repeated: u64,
    /// Imported records whose record id or subject id is another spelling of an erased one.
    pub records_similar: u64,
    /// What each split of a divided dataset got.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<SplitCounts>,
    /// File with the rejected records, relative to the dataset.
    pub rejects: Option<String>,
    /// Estimate of the memory needed, in bytes.
    pub memory_bytes: u64,
    /// Estimated output; present for plans only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// Columns of the shards.
    pub columns: Vec<(String, String)>,
    /// Time taken.
    pub seconds: f64,
}

impl ConvertReport {
    /// Returns the report of a run that has written nothing yet and could not list `faults` locations.
    pub(super) fn new(job: &ConvertJob<'_>, settings: &Settings, skipped: SkippedCounts, faults: usize) -> Self {
        let report = Self::before_run(job.dataset, job.snapshot, settings, skipped, faults);
        Self { dry_run: job.options.dry_run, ..report }
    }

    /// Sets the counts that the log does not keep; `similar` are samples found before anything was read.
    pub(super) fn set_others(&mut self, counts: OutcomeCounts, similar: u64) {
        self.records_similar = counts.similar + similar;
        self.ids_repeated = counts.repeated;
        self.blank_lines = counts.blank_lines;
        self.records_padded = counts.padded;
        self.records_repaired = counts.repaired;
        self.lines_skipped = counts.skipped_lines;
        self.entries_ignored = counts.ignored_entries;
    }

    /// Sets what each split of a divided dataset got.
    pub(super) fn set_splits(&mut self, settings: &Settings, adds: &[NewShard]) {
        let Some(splits) = &settings.split else { return };
        let of = |name: &str| SplitCounts { name: name.to_owned(), ..SplitCounts::default() };
        self.splits = splits.shares.names().map(of).collect();
        for shard in adds.iter().map(|shard| &shard.meta) {
            let split = splits.of_path(&shard.path).and_then(|split| self.splits.get_mut(usize::from(split)));
            if let Some(split) = split {
                split.records += shard.records;
                split.shards += 1;
                split.bytes += shard.bytes;
            }
        }
    }

    /// Says so if the splits got other shares of the records than were asked for. The number of groups is unknown if
    /// there are many, or if several tasks have counted their own.
    pub(super) fn note_shares(&self, settings: &Settings, groups: Option<usize>, observer: &dyn Observer) {
        let Some(splits) = &settings.split else { return };
        let records: u64 = self.splits.iter().map(|split| split.records).sum();
        let share = |split: &SplitCounts| 100.0 * split.records as f64 / records as f64;
        let asked = || splits.shares.shares().map(|share| share * 100.0);
        let is_off = |(asked, found): (f64, f64)| (found - asked).abs() > (asked.min(100.0 - asked) / 5.0).max(2.0);
        if records == 0 || !asked().zip(self.splits.iter().map(share)).any(is_off) {
            return;
        }
        let percent = |shares: &mut dyn Iterator<Item = f64>| {
            shares.map(|share| format!("{share:.1}")).collect::<Vec<_>>().join("/")
        };
        let number = groups.map_or_else(String::new, |groups| format!("{groups} groups by {}; ", splits.by));
        observer.event(Event::Note(format!(
            "{number}shares of records are {} % ({} % were asked for), since groups stay whole",
            percent(&mut self.splits.iter().map(share)),
            percent(&mut asked()),
        )));
    }

    /// Returns the report of a run on a dataset that has written nothing yet.
    pub(super) fn before_run(
        dataset: &Dataset,
        snapshot: Option<&Snapshot>,
        settings: &Settings,
        skipped: SkippedCounts,
        faults: usize,
    ) -> Self {
        Self {
            dataset: dataset.store().location().to_string(),
            version: snapshot.map(Snapshot::version),
            dry_run: false,
            format: settings.shard_format,
            codec: settings.codec,
            indexes: settings.indexes.clone(),
            folder: None,
            counts: Counts { records_in: faults as u64, records_rejected: faults as u64, ..Counts::default() },
            sources: 0,
            sources_unchanged: skipped.unchanged,
            sources_changed: skipped.changed,
            sources_moved: skipped.moved,
            sources_erased: skipped.erased,
            shards_rewritten: 0,
            files_ignored: skipped.ignored,
            samples_renamed: 0,
            samples_incomplete: 0,
            entries_ignored: 0,
            blank_lines: 0,
            records_padded: 0,
            records_repaired: 0,
            lines_skipped: 0,
            ids_repeated: 0,
            records_similar: 0,
            splits: Vec::new(),
            rejects: None,
            memory_bytes: 0,
            estimate: None,
            columns: Vec::new(),
            seconds: 0.0,
        }
    }
}

/// What a split of a divided dataset got.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SplitCounts {
    /// Name of the split.
    pub name: String,
    /// Records.
    pub records: u64,
    /// Shards.
    pub shards: u64,
    /// Bytes of shards.
    pub bytes: u64,
}

/// Estimated output of a conversion, from the first records of each source.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Estimate {
    /// Records.
    pub records: u64,
    /// Bytes of shards.
    pub bytes: u64,
    /// Shards.
    pub shards: u64,
    /// Rejected records; absent if only the first records were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<u64>,
    /// Whether columns, types and counts are those of the first records of the sources: what follows may widen types,
    /// add columns or be rejected.
    pub sampled: bool,
    /// Whether there may be many more, because sources are compressed.
    pub compressed: bool,
}
