//! `report`: everything worth knowing of a dataset or a source on one page.
//!
//! Counts, nulls and bounds come from the log, the sidecars and the footers of Parquet, and are exact. Distributions
//! and frequent values come from all records of small inputs, else from a sample whose size the report states. How
//! much is read does not depend on the size of the input, apart from footers and lengths. Nothing depends on the
//! clock or on threads, so the same input gives the same report.
//!
//! Columns of ids are described only if that is asked for. Of private datasets they never are, and source names,
//! reasons with values, and the content of samples are omitted, too.

mod lineage;
mod media;
mod profile;
mod records;
mod rejects;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde::Serialize;

pub use super::sizes::SizeBin;
pub use lineage::SourceFolder;
pub use media::{Media, Picture};
pub use profile::{ColumnReport, HistogramBin, TopValue};
pub use records::PartReport;
pub use rejects::{RejectExample, RejectGroup, RejectsReport};

use self::records::{Collected, Pick};
use super::{
    Context,
    columns::{Source, Table, each_live_length, shard_tables},
    drift::{DriftReport, Thresholds, measure_drift},
    head::Hidden,
    inspect, manifest,
    sizes::Sizes,
};
use crate::{
    dataset::{Counts, Entry, Operation, ShardMeta, Snapshot, Totals, check_folders},
    error::{Error, Result},
    events::Event,
    format::OutputFormat,
    id::Version,
    scan::{self, ScanOptions},
    storage::Location,
};

/// Maximum number of versions that are described.
const MAX_VERSIONS: u64 = 200;
/// Maximum number of columns that are described.
pub(super) const MAX_COLUMNS: usize = 300;
/// Maximum number of records whose lengths are read from sidecars.
const MAX_LENGTHS: u64 = 50_000_000;

/// What to report.
#[derive(Debug, Clone)]
pub struct ReportOptions {
    /// Dataset, file, folder, glob or URL.
    pub source: String,
    /// Version of the dataset; the newest by default.
    pub at: Option<String>,
    /// Version that it is compared with.
    pub against: Option<String>,
    /// Whether columns of ids are described like all others, unless ids are private.
    pub ids: bool,
}

/// A version in a report.
#[derive(Debug, Clone, Serialize)]
pub struct VersionReport {
    /// Its number.
    pub version: Version,
    /// When it was committed.
    pub committed_at: String,
    /// Operation that made it.
    pub operation: Operation,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether it can still be read.
    pub readable: bool,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Live shards, records and bytes.
    #[serde(flatten)]
    pub totals: Totals,
}

/// Report of `report`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The dataset or source.
    pub source: String,
    /// The version, if the source is a dataset.
    pub version: Option<Version>,
    /// When it was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<String>,
    /// Format of the shards, or formats of the files.
    pub format: String,
    /// Compression of the shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// Number of live shards, or of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of records, if the files state it.
    pub records: Option<u64>,
    /// Whether the number of records is exact.
    pub records_exact: bool,
    /// Number of columns, including those that are not described.
    pub columns: u64,
    /// Number of records whose values were read.
    pub sampled_records: u64,
    /// Whether these are all records.
    pub sample_is_all: bool,
    /// Which records were read, in words.
    pub sample: String,
    /// Number of sampled records that `convert` would reject.
    pub sample_rejected: u64,
    /// Number of files that cannot be read.
    pub damaged: u64,
    /// Where the sizes of records come from, in words.
    pub record_sizes_from: String,
    /// Whether ids are private.
    pub is_private: bool,
    /// Columns that are not shown, because they hold ids of a private dataset.
    pub hidden: BTreeSet<String>,
    /// Number of versions, including those that are not described.
    pub versions: u64,
    /// Number of sources.
    pub sources: u64,
    /// Number of pictures among the sampled records that were too large to embed, or too many.
    pub pictures_omitted: u64,
    /// The versions, oldest first.
    #[serde(skip)]
    pub version_list: Vec<VersionReport>,
    /// Sizes of the shards or files.
    #[serde(skip)]
    pub shard_sizes: Vec<SizeBin>,
    /// Sizes of records.
    #[serde(skip)]
    pub record_sizes: Vec<SizeBin>,
    /// The columns in their order.
    #[serde(skip)]
    pub column_list: Vec<ColumnReport>,
    /// Parts of samples.
    #[serde(skip)]
    pub parts: Vec<PartReport>,
    /// Rejected records.
    #[serde(skip)]
    pub rejects: RejectsReport,
    /// Folders of sources by version.
    #[serde(skip)]
    pub folders: Vec<SourceFolder>,
    /// Comparison with another version.
    #[serde(skip)]
    pub drift: Option<DriftReport>,
    /// Pictures.
    #[serde(skip)]
    pub media: Media,
}

/// Reports on a dataset, a folder, a file or a glob.
///
/// # Errors
/// When nothing is found, or it cannot be read.
pub fn build_report(context: &Context<'_>, options: &ReportOptions) -> Result<Report> {
    if let Some(location) = dataset_at(context, &options.source)? {
        let snapshot = manifest::open_snapshot(context, &location, options.at.as_deref())?;
        let older =
            options.against.as_deref().map(|at| manifest::open_snapshot(context, &location, Some(at))).transpose()?;
        let result = of_snapshot(context, &snapshot, older.as_ref(), options.ids);
        return super::or_overtaken(std::iter::once(&snapshot).chain(&older), result);
    }
    for (option, given) in [("--at", &options.at), ("--against", &options.against)] {
        if given.is_some() {
            let message = format!("expected a dataset with {option}, found none");
            return Err(Error::usage(message).at_location(options.source.clone()));
        }
    }
    of_source(context, &options.source)
}

/// Returns the location of the source if it is a dataset with versions.
fn dataset_at(context: &Context<'_>, source: &str) -> Result<Option<Location>> {
    let Ok(location) = context.parse_location(source) else { return Ok(None) };
    let is_web = location.local_path().is_none() && matches!(location.url().scheme(), "http" | "https");
    if is_web || location.local_path().is_some_and(|path| !path.is_dir()) {
        return Ok(None);
    }
    Ok(context.open_dataset(&location)?.newest_snapshot()?.map(|_| location))
}

fn of_snapshot(context: &Context<'_>, snapshot: &Snapshot, older: Option<&Snapshot>, ids: bool) -> Result<Report> {
    let entry = snapshot.entry();
    let shards = snapshot.live_shards()?;
    let hidden = if ids { Hidden::from_snapshot(snapshot)? } else { Hidden::in_report(snapshot)? };
    let (versions, entries) = newest_versions(snapshot)?;
    let mut report = Report {
        source: snapshot.dataset().store().location().to_string(),
        version: Some(entry.version),
        committed_at: Some(format!("{:.0}", snapshot.committed_at(entry.version, entry.committed_at))),
        format: entry.settings.shard_format.to_string(),
        codec: Some(entry.settings.codec.to_string()),
        files: shards.len() as u64,
        bytes: shards.iter().map(|shard| shard.bytes).sum(),
        records: Some(entry.totals.records),
        records_exact: true,
        is_private: hidden.is_private,
        hidden: hidden.columns.clone(),
        versions: entry.version.0,
        sources: entry.sources.iter().map(|list| list.rows).sum(),
        version_list: versions,
        shard_sizes: shards.iter().map(|shard| shard.bytes).collect::<Sizes>().size_bins(),
        rejects: rejects::of_versions(context, snapshot, &entries, hidden.is_private)?,
        folders: lineage::source_folders(snapshot, hidden.is_private)?,
        ..Report::default()
    };
    check_folders(snapshot.dataset().store().as_ref(), shards.iter())?;
    let tables = shard_tables(snapshot, shards)?;
    if entry.settings.shard_format.is_columnar() {
        table::describe_files(context, &tables, &hidden, &mut report)?;
    } else {
        count_lengths(context, snapshot, &tables, &mut report)?;
        let bytes_each = report.bytes / entry.totals.records.max(1);
        let collected = records::of_shards(context, snapshot, &hidden, Pick::for_stats(bytes_each))?;
        add_sample(collected, &mut report);
    }
    if !hidden.is_private && may_have_media(&report) {
        let collected = records::of_shards(context, snapshot, &hidden, Pick::for_media())?;
        report.pictures_omitted = collected.media.omitted;
        report.media = collected.media;
    }
    if let Some(older) = older {
        let mut found = measure_drift(context, older, snapshot, Thresholds::default())?;
        found.columns.retain(|column| !is_hidden(&hidden, &column.column));
        report.drift = Some(found);
    }
    Ok(report)
}

/// Returns whether records may hold pictures, recordings or arrays; columns of Parquet are known.
fn may_have_media(report: &Report) -> bool {
    let is_media = |column: &ColumnReport| matches!(column.kind, "bytes" | "other");
    report.format != OutputFormat::Parquet.name() || report.column_list.iter().any(is_media)
}

/// Returns whether a column, or the one that holds it, holds ids.
pub(super) fn is_hidden(hidden: &Hidden, column: &str) -> bool {
    let root = column.split('.').next().unwrap_or(column);
    hidden.columns.contains(column) || hidden.columns.contains(root)
}

/// Returns the newest versions up to that of the snapshot, oldest first, and their entries.
fn newest_versions(snapshot: &Snapshot) -> Result<(Vec<VersionReport>, Vec<Entry>)> {
    let newest = snapshot.version().0;
    let oldest = newest.saturating_sub(MAX_VERSIONS - 1).max(1);
    let entries: Vec<Entry> = (oldest..=newest)
        .into_par_iter()
        .map(|version| snapshot.dataset().read_entry(Version(version)))
        .collect::<Result<_>>()?;
    let report = |entry: &Entry| VersionReport {
        version: entry.version,
        committed_at: format!("{:.0}", snapshot.committed_at(entry.version, entry.committed_at)),
        operation: entry.operation,
        tags: snapshot.tags().iter().filter(|(_, v)| **v == entry.version).map(|(tag, _)| tag.clone()).collect(),
        readable: snapshot.can_read(entry.version),
        counts: entry.counts,
        totals: entry.totals,
    };
    Ok((entries.iter().map(report).collect(), entries))
}

/// Counts the lengths of live records, from sidecars.
fn count_lengths(context: &Context<'_>, snapshot: &Snapshot, tables: &[Table], report: &mut Report) -> Result<()> {
    let shards = snapshot.live_shards()?;
    let records: u64 = shards.iter().map(|shard| shard.records).sum();
    // Every so many shards.
    let step = usize::try_from(records.div_ceil(MAX_LENGTHS).max(1)).unwrap_or(usize::MAX);
    context.observer.event(Event::Phase { name: "reading sidecars", bytes: None });
    let chosen: Vec<(&ShardMeta, &Table)> = shards.iter().zip(tables).step_by(step).collect();
    let counted: Vec<Sizes> = chosen
        .par_iter()
        .map(|(shard, table)| {
            context.cancel.check()?;
            let mut sizes = Sizes::default();
            let live = table.live.as_deref().unwrap_or_default();
            each_live_length(snapshot.dataset().store(), shard, live, &mut |lengths| {
                lengths.iter().for_each(|bytes| sizes.add(*bytes));
                Ok(())
            })?;
            Ok(sizes)
        })
        .collect::<Result<_>>()?;
    let mut all = Sizes::default();
    counted.iter().for_each(|sizes| all.merge(sizes));
    report.record_sizes = all.size_bins();
    report.record_sizes_from = match step {
        1 => "all records, from the sidecars".to_owned(),
        step => format!("the records of every {step}th shard, from the sidecars"),
    };
    Ok(())
}

/// Adds what was read by the readers of `convert`.
fn add_sample(collected: Collected, report: &mut Report) {
    let Collected { records, rejected, columns, parts, .. } = collected;
    report.sampled_records = records;
    report.sample_rejected = rejected;
    report.sample_is_all = report.records_exact && report.records == Some(records) && rejected == 0;
    report.sample = match report.sample_is_all {
        true => "all records".to_owned(),
        false => collected.basis,
    };
    report.columns = columns.len() as u64;
    let all = report.sample_is_all;
    report.column_list = columns.into_iter().take(MAX_COLUMNS).map(|column| column.into_report(all)).collect();
    report.parts = parts;
}

fn of_source(context: &Context<'_>, source: &str) -> Result<Report> {
    let mut found =
        scan::scan_sources(&[source.to_owned()], &context.folder, &context.settings, &ScanOptions::default())?;
    scan::refuse_foreign(&found.tables, &found.files)?;
    scan::ignore_companions(&mut found.files);
    let inspected = inspect::inspect_source(context, &inspect::InspectOptions::of_source(source))?;
    let mut formats: BTreeMap<&str, u64> = BTreeMap::new();
    inspected.formats.iter().for_each(|format| *formats.entry(&format.format).or_default() += format.files);
    let mut report = Report {
        source: inspected.source.clone(),
        format: formats.keys().copied().collect::<Vec<_>>().join(", "),
        files: inspected.files,
        bytes: inspected.bytes,
        records: inspected.records,
        records_exact: inspected.exact,
        damaged: inspected.formats.iter().map(|format| format.damaged).sum(),
        shard_sizes: found.files.iter().map(scan::SourceFile::bytes).collect::<Sizes>().size_bins(),
        ..Report::default()
    };
    let hidden = Hidden::default();
    let picked = records::Picked::from_files(found.files, &report.format);
    if report.format == OutputFormat::Parquet.name() {
        let table =
            |file: &scan::SourceFile| Table { object: Source::Found(file.clone()), place: file.uri(), live: None };
        let tables: Vec<Table> = picked.files().iter().map(table).collect();
        table::describe_files(context, &tables, &hidden, &mut report)?;
    } else {
        let collected = records::of_files(context, &picked, Pick::for_stats(0))?;
        report.record_sizes = collected.sizes.size_bins();
        add_sample(collected, &mut report);
        report.record_sizes_from = report.sample.clone();
    }
    if may_have_media(&report) {
        let collected = records::of_files(context, &picked, Pick::for_media())?;
        report.pictures_omitted = collected.media.omitted;
        report.media = collected.media;
    }
    Ok(report)
}
