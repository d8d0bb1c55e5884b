//! What readers read: samples that are files each, sources of records, or the shards of a dataset.
//!
//! A reader takes one item after the other: a sample, as loaders of folders do, or a file of records, as loaders of
//! shards do. Items are in a random order that is the same in every run.

use std::path::PathBuf;

use rayon::prelude::*;

use crate::{
    error::{Error, Result},
    format::{
        files::{self, Samples},
        parquet,
    },
    ops::{
        Context, convert,
        head::{each_block, shard_file},
        manifest,
    },
    record::{Payload, RecordBlock, size::logical_bytes},
    scan::{self, Input, InputFormat, RecordSource, ScanOptions, SniffOptions, SourceFile, classify_inputs},
    storage::{self, Location},
};

/// Bytes of a range of a source of records.
const SPLIT_BYTES: usize = 1 << 20;
/// Rows of a batch of Parquet.
const BATCH_ROWS: usize = 1_024;
/// Maximum number of items; of more, a random choice is read.
const MAX_ITEMS: usize = 200_000;

/// Receives numbers of records and of their bytes; returns whether more are wanted.
pub(super) type Deliver<'a> = dyn FnMut(u64, u64) -> Result<bool> + 'a;

/// Something to read.
pub(super) struct Feed {
    /// Name for people.
    pub(super) name: String,
    /// `files`, or the format of the records.
    pub(super) format: String,
    /// Files, and their stored bytes.
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Whether it is read over a network.
    pub(super) is_remote: bool,
    /// Whether it is a dataset.
    pub(super) is_dataset: bool,
    kind: FeedKind,
    /// Numbers of items in the order of reading.
    order: Vec<usize>,
}

enum FeedKind {
    /// Samples made of files.
    Files { files: Vec<SourceFile>, samples: Samples },
    /// Sources that contain records.
    Records(Vec<RecordSource>),
}

impl Feed {
    /// Finds what a user names: a dataset, or anything that `convert` reads.
    ///
    /// # Errors
    /// When there is nothing, or it cannot be read.
    pub(super) fn from_source(context: &Context<'_>, source: &str) -> Result<Self> {
        if let Some(location) = dataset_at(context, source)? {
            return Self::of_dataset(context, &location);
        }
        let options = ScanOptions { memory: context.memory, ..ScanOptions::default() };
        let mut found = scan::scan_sources(&[source.to_owned()], &context.folder, &context.settings, &options)?;
        scan::refuse_foreign(&found.tables, &found.files)?;
        scan::ignore_companions(&mut found.files);
        convert::leave_out_metadata(None, &mut found.files)?;
        if let Some(fault) = found.faults.pop() {
            return Err(fault);
        }
        if found.files.is_empty() {
            return Err(Error::usage("expected files or a dataset, found none").at_location(source.to_owned()));
        }
        Self::of_found(source, found.files)
    }

    /// Takes the live shards of the newest version.
    pub(super) fn of_dataset(context: &Context<'_>, location: &Location) -> Result<Self> {
        let snapshot = manifest::open_snapshot(context, location, None)?;
        let shards = snapshot.live_shards()?;
        if shards.is_empty() {
            let error =
                Error::usage("expected shards, found a dataset without records").at_location(location.to_string());
            return Err(error.with_hint("`shardify convert SOURCE --out DATASET` adds records"));
        }
        let files = shards.par_iter().map(|shard| shard_file(snapshot.dataset(), &shard.path));
        let files: Vec<SourceFile> = files.collect::<Result<_>>()?;
        let format = InputFormat::from(snapshot.entry().settings.shard_format);
        let sources = files.into_iter().map(|file| records_of(vec![file], Some(format)));
        let sources: Vec<Vec<RecordSource>> = sources.collect::<Result<_>>()?;
        let kind = FeedKind::Records(sources.into_iter().flatten().collect());
        let name = location.to_string();
        Ok(Self { is_dataset: true, ..Self::new(name, format.name().to_owned(), kind) })
    }

    fn of_found(source: &str, files: Vec<SourceFile>) -> Result<Self> {
        let options = SniffOptions { sources: files.len(), samples: Some(0), ..SniffOptions::default() };
        match classify_inputs(files, &options)? {
            Input::Records(sources) => {
                let mut formats: Vec<&str> = sources.iter().map(|source| source.format.name()).collect();
                formats.sort_unstable();
                formats.dedup();
                let formats = formats.join(", ");
                Ok(Self::new(source.to_owned(), formats, FeedKind::Records(sources)))
            }
            Input::Files(files) => {
                let samples = files::group_samples(&files);
                Ok(Self::new(source.to_owned(), "files".to_owned(), FeedKind::Files { files, samples }))
            }
        }
    }

    fn new(name: String, format: String, kind: FeedKind) -> Self {
        let items = match &kind {
            FeedKind::Files { samples, .. } => samples.len(),
            FeedKind::Records(sources) => sources.len(),
        };
        let mut order: Vec<usize> = (0..items).collect();
        // SplitMix64 of the number: a fixed permutation without a generator.
        order.sort_by_cached_key(|item| mix_bits(*item as u64));
        order.truncate(MAX_ITEMS);
        let (files, bytes, is_remote) = match &kind {
            FeedKind::Files { files, .. } => file_totals(files.iter()),
            FeedKind::Records(sources) => file_totals(sources.iter().map(|source| &source.file)),
        };
        Self { name, format, files, bytes, is_remote, is_dataset: false, kind, order }
    }

    /// Returns the number of items.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns what an item is.
    pub(super) fn item_noun(&self) -> &'static str {
        match (&self.kind, self.is_dataset) {
            (FeedKind::Files { .. }, _) => "sample",
            (FeedKind::Records(_), true) => "shard",
            (FeedKind::Records(_), false) => "file",
        }
    }

    /// Reads an item and passes its records on; returns the number of files that were opened.
    ///
    /// # Errors
    /// When it cannot be read, or `deliver` fails.
    pub(super) fn read(&self, context: &Context<'_>, at: usize, deliver: &mut Deliver<'_>) -> Result<u64> {
        let Some(item) = self.order.get(at).copied() else { return Ok(0) };
        match &self.kind {
            FeedKind::Files { files, samples } => {
                let (mut bytes, mut opened) = (0, 0);
                for sample in samples.iter_range(item..item + 1, files) {
                    for file in sample.files() {
                        // What a loader decodes has to be in memory.
                        let mut content = Vec::new();
                        file.read_whole(&mut content)?;
                        bytes += content.len() as u64;
                        opened += 1;
                    }
                }
                deliver(1, bytes)?;
                Ok(opened)
            }
            FeedKind::Records(sources) => {
                let Some(source) = sources.get(item) else { return Ok(0) };
                if source.format == InputFormat::PARQUET && self.is_dataset {
                    let file = parquet::open(source.file.object(), &source.file.uri())?;
                    for batch in file.into_batches(BATCH_ROWS) {
                        let batch = batch?;
                        if !deliver(batch.num_rows() as u64, logical_bytes(&batch))? {
                            break;
                        }
                    }
                } else {
                    each_block(context, source, SPLIT_BYTES, &mut |block| deliver_block(&block, deliver))?;
                }
                Ok(1)
            }
        }
    }

    /// Returns the local files of the first items, to drop them from the cache.
    pub(super) fn local_paths(&self, items: usize) -> Vec<PathBuf> {
        let path = |file: &SourceFile| Some(PathBuf::from(file.uri())).filter(|_| !file.is_remote());
        let chosen = self.order.iter().take(items);
        let paths: Vec<PathBuf> = match &self.kind {
            FeedKind::Files { files, samples } => chosen
                .flat_map(|item| {
                    samples
                        .iter_range(*item..item + 1, files)
                        .flat_map(|s| s.files().filter_map(path).collect::<Vec<_>>())
                })
                .collect(),
            FeedKind::Records(sources) => chosen.filter_map(|item| path(&sources.get(*item)?.file)).collect(),
        };
        paths.into_iter().flat_map(with_inner).collect()
    }
}

/// Returns the location of the source if it is a dataset with versions.
fn dataset_at(context: &Context<'_>, source: &str) -> Result<Option<Location>> {
    let Ok(location) = context.parse_location(source) else { return Ok(None) };
    if location.is_web() || location.local_path().is_some_and(|path| !path.is_dir()) {
        return Ok(None);
    }
    Ok(context.open_dataset(&location)?.newest_snapshot()?.map(|_| location))
}

fn records_of(files: Vec<SourceFile>, from: Option<InputFormat>) -> Result<Vec<RecordSource>> {
    let options = SniffOptions { from, sources: files.len(), samples: Some(0), ..SniffOptions::default() };
    match classify_inputs(files, &options)? {
        Input::Records(sources) => Ok(sources),
        Input::Files(files) => {
            let place = files.first().map(SourceFile::uri).unwrap_or_default();
            Err(Error::integrity("expected a shard, found another file").at_location(place))
        }
    }
}

fn deliver_block(block: &RecordBlock, deliver: &mut Deliver<'_>) -> Result<bool> {
    let bytes = match &block.payload {
        Payload::Rows(batch) => logical_bytes(batch),
        Payload::Samples(samples) => {
            samples.iter().flat_map(|sample| &sample.parts).map(|part| part.bytes.len() as u64).sum()
        }
    };
    deliver(block.payload.len() as u64, bytes)
}

fn file_totals<'a>(files: impl Iterator<Item = &'a SourceFile>) -> (u64, u64, bool) {
    files.fold((0, 0, false), |(count, bytes, remote), file| {
        (count + 1, bytes + file.bytes(), remote | file.is_remote())
    })
}

/// Returns a file, or those in a folder that is read as one source.
fn with_inner(path: PathBuf) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path];
    }
    let mut out = Vec::new();
    let found = Location::from_local_path(&path)
        .and_then(|location| storage::open_store(&location, &storage::StoreSettings::default()));
    // What is not found stays in the cache, which the bytes that came from disks tell.
    if let Ok(listed) = found.and_then(|store| store.list_folder("")) {
        out.extend(listed.iter().map(|facts| path.join(&facts.path)));
    }
    out
}

/// Returns a number that looks random and differs for different numbers (SplitMix64).
fn mix_bits(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
