//! `bench`: what a loader gets from a source and from the shards that were made of it.
//!
//! Records are read as `convert` reads them, and decoded no further: pictures stay JPEG. So the numbers are those of
//! storage and format, the most that a loader can get, before it decodes. Cold readings come first from the disk: the
//! files are dropped from the page cache, which needs no privileges; entries of folders stay cached, so the truth of a
//! cold machine is worse for small files.
//!
//! | measurement | items | how often |
//! |---|---|---|
//! | cold, 1 reader and all | each once, in a random order | once |
//! | warm, the same | those that an unmeasured pass has read | again and again |
//! | with a step, cold and warm | the same | with all readers |

mod feed;
mod run;

use std::time::Duration;

use rayon::prelude::*;
use serde::Serialize;

use self::{
    feed::Feed,
    run::{Setup, Throughput, measure_feed},
};
use super::Context;
use crate::{
    error::Result,
    events::Event,
    storage::{self, Location},
};

/// Share of what is read that must come from disks in a cold measurement.
const COLD_SHARE: f64 = 0.5;

/// What to measure.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// What a loader reads before: files, tables, arrays, or another dataset.
    pub source: String,
    /// What it reads after.
    pub dataset: Location,
    /// How long a consumer works on a batch.
    pub step: Duration,
    /// Largest number of readers.
    pub readers: usize,
    /// Records of a batch.
    pub batch: u64,
    /// Longest time of one measurement.
    pub limit: Duration,
}

/// State of the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Emptied of the files.
    Cold,
    /// Filled with them.
    Warm,
    /// The files are not on this machine.
    Remote,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct BenchRun {
    /// `source` or `dataset`.
    pub side: &'static str,
    /// State of the page cache.
    pub cache: Cache,
    /// Number of readers.
    pub readers: u64,
    /// Records read.
    pub records: u64,
    /// Their bytes in memory.
    pub bytes: u64,
    /// Time taken.
    pub seconds: f64,
    /// Records per second.
    pub records_per_second: f64,
    /// Bytes in memory per second.
    pub bytes_per_second: f64,
    /// Time from the start to the first batch, in seconds.
    pub first_batch_seconds: f64,
    /// Files opened.
    pub files_opened: u64,
    /// Bytes that came from disks, where the system tells.
    pub disk_bytes: Option<u64>,
    /// Share of the stored bytes of the side that was read, at most 1.
    pub share: f64,
    /// Half of the range of the rates in parts of the time, as a share of their middle; absent for short runs.
    pub spread: Option<f64>,
    /// Share of the time after the first batch that a consumer waits who works for the step on each batch; absent if
    /// the data ended before its second batch, and for fewer readers than the most.
    pub waiting: Option<f64>,
}

/// What is read on a side.
#[derive(Debug, Clone, Serialize)]
pub struct SideReport {
    /// Its name.
    pub name: String,
    /// `files`, or the format of records.
    pub format: String,
    /// Number of files.
    pub files: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

/// Report of `bench`.
#[derive(Debug, Clone, Serialize)]
pub struct BenchReport {
    /// What is read before.
    pub source: SideReport,
    /// What is read after.
    pub dataset: SideReport,
    /// How long a consumer works on a batch, in seconds.
    pub step_seconds: f64,
    /// Records of a batch.
    pub batch: u64,
    /// Largest number of readers.
    pub readers: u64,
    /// Longest time of one measurement, in seconds.
    pub limit_seconds: f64,
    /// Records per second of the dataset as a multiple of those of the source, with all readers: cold, or remote.
    pub speedup_cold: Option<f64>,
    /// The same, warm.
    pub speedup_warm: Option<f64>,
    /// What has to be known to read the numbers.
    pub notes: Vec<String>,
    /// The measurements.
    #[serde(skip)]
    pub runs: Vec<BenchRun>,
}

impl BenchReport {
    /// Returns the measurement of a side with all readers.
    pub fn side_run(&self, side: &str, cache: Cache) -> Option<&BenchRun> {
        self.runs.iter().find(|run| run.side == side && run.cache == cache && run.readers == self.readers)
    }

    fn speedup(&self, cache: Cache) -> Option<f64> {
        let of = |side: &str| {
            let run = self.side_run(side, cache).or_else(|| self.side_run(side, Cache::Remote));
            run.map(|run| run.records_per_second).filter(|rate| *rate > 0.0)
        };
        Some(of("dataset")? / of("source")?)
    }
}

/// Measures a source and a dataset.
///
/// # Errors
/// When one of them is not found or cannot be read.
pub fn run_bench(context: &Context<'_>, options: &BenchOptions) -> Result<BenchReport> {
    let (source, dataset) =
        (Feed::from_source(context, &options.source)?, Feed::of_dataset(context, &options.dataset)?);
    let side = |feed: &Feed| SideReport {
        name: feed.name.clone(),
        format: feed.format.clone(),
        files: feed.files,
        bytes: feed.bytes,
    };
    let mut report = BenchReport {
        source: side(&source),
        dataset: side(&dataset),
        step_seconds: options.step.as_secs_f64(),
        batch: options.batch,
        readers: options.readers as u64,
        limit_seconds: options.limit.as_secs_f64(),
        speedup_cold: None,
        speedup_warm: None,
        notes: Vec::new(),
        runs: Vec::new(),
    };
    for (name, feed) in [("source", &source), ("dataset", &dataset)] {
        BenchSide { context, options, name, feed }.measure(&mut report)?;
    }
    (report.speedup_cold, report.speedup_warm) = (report.speedup(Cache::Cold), report.speedup(Cache::Warm));
    Ok(report)
}

struct BenchSide<'a> {
    context: &'a Context<'a>,
    options: &'a BenchOptions,
    name: &'static str,
    feed: &'a Feed,
}

impl BenchSide<'_> {
    fn measure(&self, report: &mut BenchReport) -> Result<()> {
        if self.feed.len() < self.options.readers && self.feed.item_noun() != "sample" {
            let (items, noun) = (self.feed.len(), self.feed.item_noun());
            let (ending, keep) = if items == 1 { ("", "keeps") } else { ("s", "keep") };
            report.notes.push(format!(
                "the {} has {items} {noun}{ending}, which {keep} at most {items} of {} readers busy",
                self.name, self.options.readers
            ));
        }
        let mut counts = vec![1, self.options.readers];
        counts.dedup();
        if self.feed.is_remote {
            return self.measure_runs(Cache::Remote, &counts, None, report);
        }
        self.measure_runs(Cache::Cold, &counts, None, report)?;
        // The pass that fills the cache is not measured.
        let most = self.options.readers;
        self.report_phase(Cache::Warm);
        let filled = measure_feed(self.context, self.feed, self.reader_setup(most, None, None))?;
        self.measure_runs(Cache::Warm, &counts, Some(filled.items.max(1)), report)
    }

    fn report_phase(&self, cache: Cache) {
        let name = match (self.name, cache) {
            ("source", Cache::Cold) => "reading the source, cold",
            ("source", Cache::Warm) => "reading the source, warm",
            ("source", Cache::Remote) => "reading the source",
            (_, Cache::Cold) => "reading the dataset, cold",
            (_, Cache::Warm) => "reading the dataset, warm",
            (_, Cache::Remote) => "reading the dataset",
        };
        self.context.observer.event(Event::Phase { name, bytes: None });
    }

    fn reader_setup(&self, readers: usize, step: Option<Duration>, again: Option<usize>) -> Setup {
        Setup { readers, batch: self.options.batch, step, limit: self.options.limit, again }
    }

    fn measure_runs(
        &self,
        cache: Cache,
        counts: &[usize],
        again: Option<usize>,
        report: &mut BenchReport,
    ) -> Result<()> {
        for readers in counts.iter().copied() {
            self.report_phase(cache);
            let (measured, disk_bytes) = self.measure_once(cache, self.reader_setup(readers, None, again))?;
            let mut run = self.summarize_run(cache, readers, measured, disk_bytes);
            if cache == Cache::Cold && disk_bytes.is_some_and(|disk| (disk as f64) < COLD_SHARE * measured.bytes as f64)
            {
                self.note_warm(&run, report);
            }
            if readers == self.options.readers {
                let (measured, _) =
                    self.measure_once(cache, self.reader_setup(readers, Some(self.options.step), again))?;
                let time = measured.time.saturating_sub(measured.first_batch).as_secs_f64();
                run.waiting = (measured.batches > 1 && time > 0.0).then(|| measured.waited.as_secs_f64() / time);
            }
            report.runs.push(run);
        }
        Ok(())
    }

    fn measure_once(&self, cache: Cache, setup: Setup) -> Result<(Throughput, Option<u64>)> {
        if cache == Cache::Cold {
            self.empty_cache()?;
        }
        let before = storage::bytes_from_disks();
        let measured = measure_feed(self.context, self.feed, setup)?;
        let after = storage::bytes_from_disks();
        Ok((measured, after.zip(before).map(|(after, before)| after.saturating_sub(before))))
    }

    fn empty_cache(&self) -> Result<()> {
        let paths = self.feed.local_paths(self.feed.len());
        if let Some(folder) = paths.first().and_then(|path| path.parent()) {
            storage::write_dirty_pages(folder)?;
        }
        paths.par_iter().try_for_each(|path| {
            self.context.cancel.check()?;
            storage::drop_cached(path).map(|_| ())
        })
    }

    fn summarize_run(&self, cache: Cache, readers: usize, measured: Throughput, disk_bytes: Option<u64>) -> BenchRun {
        let seconds = measured.time.as_secs_f64();
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        BenchRun {
            side: self.name,
            cache,
            readers: readers as u64,
            records: measured.records,
            bytes: measured.bytes,
            seconds,
            records_per_second: rate(measured.records),
            bytes_per_second: rate(measured.bytes),
            first_batch_seconds: measured.first_batch.as_secs_f64(),
            files_opened: measured.opened,
            disk_bytes,
            share: (measured.bytes as f64 / (self.feed.bytes as f64).max(1.0)).min(1.0),
            spread: measured.spread(self.options.limit),
            waiting: None,
        }
    }

    /// Notes that the cache could not be emptied, as on a file system in memory.
    fn note_warm(&self, run: &BenchRun, report: &mut BenchReport) {
        let stored = self.feed.bytes as f64 / (self.feed.bytes as f64).max(run.bytes as f64);
        let disk = run.disk_bytes.unwrap_or(0) as f64;
        if disk < COLD_SHARE * stored * run.bytes as f64 {
            let note = format!(
                "of what the cold readers of the {} read, little came from a disk: it lies in memory, or below this \
                 system's cache",
                self.name
            );
            if !report.notes.contains(&note) {
                report.notes.push(note);
            }
        }
    }
}
