//! The pipeline of `convert`: turns sources into finished but unpublished shards.
//!
//! ```text
//! records | samples --(read: workers)--> Gather (order) --> Cut (units) --(encode: workers)--> Appender (write)
//! ```

#[cfg(test)]
mod part_tests;
mod records;
mod samples;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    thread::Scope,
};

use arrow::datatypes::SchemaRef;

pub use self::{records::infer_all, samples::ReadPlan};
use self::{
    records::{Parser, read_records},
    samples::{SampleReader, read_samples},
};
use super::{
    cut::{Closing, EncodedUnits, Encoding, Feedback, ShardEnds, ShardSize},
    encode::{Encoded, Encoder, Output},
    gates::{Gates, subjects::SubjectResolver},
    gather::{Gather, GatherSetup, Gathered, OnError, Progress, ReadOutcome, SourceTally, Tally, counted_size},
    rejects::RejectsFile,
    scatter::Scatter,
    shard::{Appended, Appender, FinishedShard, ShardNaming},
    shuffle::{ShuffleSetup, ShuffledIds, Shuffler},
    source::SourceFacts,
};
use crate::{
    dataset::{PlaceRef, Segments, SuppressList},
    error::{Error, Kind, Result},
    events::{Cancel, Event, Observer},
    format::{
        Framing, TypeMismatch,
        files::{SampleFiles, Samples},
    },
    id::Writer,
    plan::{
        memory::MemoryPlan,
        reshard::too_few,
        roll::{InputSize, Spread},
    },
    record::{
        RecordBlock,
        split::{Split, Splits},
    },
    scan::{RecordSource, SourceFile},
    storage::{Staged, Store, sys::release_freed_memory},
};

/// Input of the pipeline.
#[derive(Debug)]
pub enum PipelineInput<'a> {
    /// Sources that contain records; all are converted to one schema.
    Records {
        /// The sources.
        sources: &'a [RecordSource],
        /// United columns of all sources.
        schema: SchemaRef,
    },
    /// Samples made of files.
    Samples {
        /// The files.
        files: &'a [SourceFile],
        /// The samples.
        samples: &'a Samples,
        /// How the files are read.
        read_plan: &'a ReadPlan,
        /// Samples to reject without reading them, by number, with the reasons.
        rejected: &'a BTreeMap<usize, String>,
        /// Receives the hash of each file; empty if the hashes are not needed.
        hashes: &'a [AtomicU64],
        /// Gives each sample the subject id of its files; `None` if there are none.
        subjects: Option<&'a SubjectResolver>,
    },
}

impl PipelineInput<'_> {
    /// Returns the failure of a store of sources, if there was one.
    fn fault(&self) -> Option<Error> {
        match self {
            Self::Records { sources, .. } => sources.iter().find_map(|source| source.file.store_fault()),
            Self::Samples { files, .. } => {
                // There may be millions of files, and few stores.
                let mut of_other_stores = files.chunk_by(SourceFile::shares_store).filter_map(<[_]>::first);
                of_other_stores.find_map(SourceFile::store_fault)
            }
        }
    }

    /// Returns the size of the input, as it is counted while it is read.
    fn size(&self, framing: Option<&dyn Framing>) -> InputSize {
        match self {
            Self::Records { sources, .. } => {
                // Of compressed and of recoded text, only the decoded bytes are counted as they are read.
                let recoded = sources.iter().filter(|source| source.packed || source.encoding.is_some());
                InputSize {
                    bytes: sources.iter().map(RecordSource::input_bytes).sum(),
                    error: recoded.map(|source| source.file.bytes()).max().unwrap_or(0),
                }
            }
            Self::Samples { files, samples, rejected, .. } => {
                let bytes_of = |sample: SampleFiles<'_, SourceFile>| -> u64 {
                    sample.part_sizes().map(|bytes| counted_size(framing, bytes)).sum()
                };
                let all: u64 = samples.iter_range(0..samples.len(), files).map(bytes_of).sum();
                let out: u64 = rejected.keys().map(|i| bytes_of(samples.get(*i, files))).sum();
                InputSize { bytes: all.saturating_sub(out), error: 0 }
            }
        }
    }
}

/// Everything that the pipeline needs besides its input.
pub struct Pipeline<'a> {
    /// Store of the dataset.
    pub store: &'a Arc<dyn Store>,
    /// Encodes records.
    pub encoder: &'a Encoder,
    /// Paths and format of shards.
    pub naming: ShardNaming,
    /// Target size of a shard, in bytes.
    pub target: u64,
    /// Where shards end; `None` at the target size.
    pub ends: Option<ShardEnds>,
    /// Memory limits.
    pub memory: MemoryPlan,
    /// Number of threads.
    pub jobs: usize,
    /// How bad records are handled.
    pub on_error: OnError,
    /// Columns whose types the user specified.
    pub given: &'a [String],
    /// Treat the records behind the parser.
    pub gates: Gates<'a>,
    /// Splits that the records are divided among; `None` if the dataset is not divided.
    pub splits: Option<&'a Splits>,
    /// Seed by which records are shuffled; `None` if they keep the order of the input.
    pub shuffle: Option<u64>,
    /// Ids that rejected records must not state; `None` if nothing was erased.
    pub suppress: Option<&'a SuppressList>,
    /// Destination of rejected records; `None` if they are not kept.
    pub rejects: Option<&'a RejectsFile>,
    /// Names and properties of sources, in the order of the input.
    pub facts: &'a [SourceFacts],
    /// Names the objects of the run.
    pub writer: &'a Writer,
    /// Receives progress events and notes.
    pub observer: &'a dyn Observer,
    /// Cancellation token.
    pub cancel: &'a Cancel,
}

/// Result of the pipeline.
#[derive(Debug, Default)]
pub struct Converted {
    /// Finished shards, not published yet.
    pub shards: Vec<FinishedShard>,
    /// Records written.
    pub records: u64,
    /// Segments of the id index.
    pub segments: Segments,
    /// Tables of places of shuffled records.
    pub places: Vec<PlaceRef>,
    /// These tables, not published yet.
    pub staged: Vec<Staged>,
}

impl Pipeline<'_> {
    /// Returns the framing of the shards; `None` for Parquet.
    fn framing(&self) -> Option<&dyn Framing> {
        match self.encoder.output() {
            Output::Parquet(_) => None,
            Output::Stream(framing) => Some(*framing),
        }
    }

    /// Returns an error if there are fewer records than even shards.
    fn check_counts(&self, counts: &[u64]) -> Result<()> {
        let Some(ShardEnds::Even(shards)) = self.ends else { return Ok(()) };
        let Some((split, count)) = (0..).zip(counts).find(|(_, count)| **count < shards) else { return Ok(()) };
        let of = self.splits.map_or_else(String::new, |splits| format!(" in {}", splits.split_folder(split)));
        Err(too_few(*count, shards, &of))
    }

    /// Returns the number of splits: one if the dataset is not divided.
    /// When bytes of input count as done. Shuffled records are read twice, and files are copied as fast as they are
    /// read.
    fn progress(&self) -> Progress {
        let are_files = self.facts.iter().any(SourceFacts::is_samples);
        if self.shuffle.is_some() || are_files { Progress::OfReading } else { Progress::OfWriting }
    }

    fn split_count(&self) -> Split {
        self.splits.map_or(1, |splits| Split::try_from(splits.split_count()).unwrap_or(Split::MAX))
    }

    /// Whether content hashes of the rows of a source are stored, or some gate needs them.
    fn needs_hashes(&self, source: usize) -> bool {
        self.facts
            .get(source)
            .is_none_or(|facts| facts.stores_hashes || self.gates.list.iter().any(|gate| gate.needs_hashes(facts)))
    }

    /// Passes a parsed block through the gates.
    fn gated(&self, source: usize, offset: u64, block: RecordBlock) -> Result<Result<ReadOutcome, TypeMismatch>> {
        let facts = self.facts.get(source).ok_or_else(|| Error::internal("a block has no source"))?;
        let mut gated = self.gates.pass_through(block, facts)?;
        Ok(match gated.effects.mismatch.take() {
            Some(mismatch) => Err(mismatch),
            None => Ok(ReadOutcome::Parsed { source, offset, gated }),
        })
    }

    /// Returns what shuffles the records, and what numbers and indexes them before; `None` if they keep their order.
    fn shuffler(&self) -> Option<(Shuffler<'_>, ShuffledIds<'_>)> {
        let (encoder, writer, division) = (self.encoder, self.writer, self.splits);
        let ids = ShuffledIds { seed: self.shuffle?, encoder, writer, division };
        let setup = ShuffleSetup {
            store: self.store,
            splits: self.split_count(),
            memory: self.memory,
            jobs: self.jobs,
            observer: self.observer,
            cancel: self.cancel,
        };
        Some((Shuffler::new(setup, encoder.prepared_layout(self.naming.fingerprints)), ids))
    }
}

/// Runs the pipeline. Counts are in `tally` even if it fails; a value that does not fit its column is a failure
/// recorded there. `counts` are those of [`count`], if shards are to be even.
///
/// # Errors
/// Fails if a source cannot be read, a record is bad and `on_error` is `Fail`, or the store fails.
pub fn run(
    pipeline: &Pipeline<'_>,
    input: &PipelineInput<'_>,
    tally: &Mutex<Tally>,
    counts: Option<Vec<u64>>,
) -> Result<Converted> {
    let feedback: Arc<[Feedback]> = (0..pipeline.split_count()).map(|_| Feedback::default()).collect();
    let shuffler = pipeline.shuffler();
    std::thread::scope(|scope| {
        let _closing = Closing(&feedback);
        let size = input.size(pipeline.framing());
        let progress = pipeline.progress();
        let gathered = gathered(scope, pipeline, input, tally, progress);
        let counts = counts.unwrap_or_default();
        let result = match &shuffler {
            None => {
                let encoded = encoded(scope, pipeline, (size, counts), (gathered, &feedback));
                append(pipeline, size, encoded, (tally, None))
            }
            Some((shuffler, ids)) => {
                let (spilled, segments) = ids.spill_with_ids(scope, shuffler, gathered)?;
                // All records are known by now, so their part of the input is exact.
                let size = InputSize { error: 0, ..size };
                let counts = spilled.split_records().to_vec();
                pipeline.check_counts(&counts)?;
                let shuffled = shuffler.merge_runs(scope, spilled, size)?;
                let encoded = encoded(scope, pipeline, (size, counts), (shuffled, &feedback));
                append(pipeline, size, encoded, (tally, Some((shuffler, segments))))
            }
        };
        // A decoder may have treated a failed read as the end of a source.
        result.and_then(|converted| match input.fault() {
            Some(fault) => Err(fault),
            None => Ok(converted),
        })
    })
}

/// Counts the records of each split, without encoding them: even shards need to know how many there are. Failures are
/// recorded as by
/// [`run`].
///
/// # Errors
/// As [`run`]; [`Kind::Usage`] if there are fewer records than shards.
pub fn count(pipeline: &Pipeline<'_>, input: &PipelineInput<'_>, tally: &Mutex<Tally>) -> Result<Vec<u64>> {
    let mut counts = vec![0; usize::from(pipeline.split_count())];
    std::thread::scope(|scope| {
        for gathered in gathered(scope, pipeline, input, tally, Progress::OfReading) {
            let Gathered { records, split, .. } = gathered?;
            let count = counts.get_mut(usize::from(split)).ok_or_else(|| Error::internal("a record has no split"))?;
            *count += records.payload.len() as u64;
        }
        input.fault().map_or(Ok(()), Err)
    })?;
    pipeline.check_counts(&counts)?;
    Ok(counts)
}

/// Reads the records in order.
fn gathered<'scope>(
    scope: &'scope Scope<'scope, '_>,
    pipeline: &'scope Pipeline<'_>,
    input: &'scope PipelineInput<'_>,
    tally: &'scope Mutex<Tally>,
    progress: Progress,
) -> Gather<'scope, Outcomes<'scope>> {
    {
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.sources = vec![SourceTally::default(); pipeline.facts.len()];
        let divided = pipeline.splits.map_or(0, Splits::split_count);
        tally.firsts = vec![vec![None; pipeline.facts.len()]; divided];
    }
    let outcomes = match input {
        PipelineInput::Records { sources, schema } => read_records(scope, Parser { pipeline, sources, schema }),
        PipelineInput::Samples { files, samples, read_plan, rejected, hashes, subjects } => {
            let reader = SampleReader { pipeline, files, samples, rejected, hashes, subjects: *subjects };
            read_samples(scope, reader, read_plan)
        }
    };
    let setup = GatherSetup {
        on_error: pipeline.on_error,
        rejects: pipeline.rejects,
        sources: pipeline.facts,
        tally,
        observer: pipeline.observer,
        gates: pipeline.gates,
        suppress: pipeline.suppress,
        fingerprints: pipeline.naming.fingerprints,
        framing: pipeline.framing(),
        progress,
    };
    Gather::new(outcomes, setup)
}

/// Cuts gathered records into units and encodes these.
fn encoded<'scope>(
    scope: &'scope Scope<'scope, '_>,
    pipeline: &'scope Pipeline<'_>,
    (size, counts): (InputSize, Vec<u64>),
    (gathered, feedback): (impl Iterator<Item = Result<Gathered>> + Send + 'scope, &Arc<[Feedback]>),
) -> EncodedUnits {
    let encoding = Encoding {
        encoder: pipeline.encoder,
        memory: pipeline.memory,
        jobs: pipeline.jobs,
        size: ShardSize { target: pipeline.target, ends: pipeline.ends },
        input: size,
        counts,
        is_framed: pipeline.shuffle.is_some(),
        cancel: pipeline.cancel,
    };
    encoding.encode_units(scope, gathered, feedback)
}

/// Results of reading the sources, in order.
type Outcomes<'scope> = Box<dyn Iterator<Item = Result<ReadOutcome>> + Send + 'scope>;

/// Returns whether the run continues without an unreadable part: if its bytes are at fault, but never if the store is.
fn can_skip(error: &Error, on_error: OnError) -> bool {
    on_error != OnError::Fail
        && !matches!(error.kind(), Kind::Usage | Kind::Storage | Kind::Conflict | Kind::Interrupted | Kind::Internal)
}

/// Appends the units of each split to its shards. The records of a split follow those of the splits before it.
fn append(
    pipeline: &Pipeline<'_>,
    input: InputSize,
    encoded: impl Iterator<Item = Result<Encoded>>,
    (tally, shuffled): (&Mutex<Tally>, Option<(&Shuffler<'_>, Vec<Segments>)>),
) -> Result<Converted> {
    let appender = |split: Split| {
        let naming = match pipeline.splits {
            None => pipeline.naming.clone(),
            Some(splits) => pipeline.naming.in_partition(&format!("/{}/", splits.split_folder(split))),
        };
        let (store, spread) = (Arc::clone(pipeline.store), Spread::new(pipeline.target, Some(input)));
        let scatter = |(shuffler, _): &(&Shuffler<'_>, Vec<Segments>)| {
            let set = format!("{}-{split}", pipeline.naming.tag.replace('/', "-"));
            Scatter::new(pipeline.store.as_ref(), pipeline.cancel, set, shuffler.fan_in())
        };
        let scatter = shuffled.as_ref().map(scatter);
        Appender::new(store, pipeline.encoder, naming, spread, pipeline.writer, pipeline.observer)
            .ending_with_units(pipeline.ends.is_some())
            .writing_behind(pipeline.memory.write_window)
            .with_scatter(scatter)
            .of_split(split, pipeline.splits)
    };
    let mut appenders: Vec<Appender<'_>> = (0..pipeline.split_count()).map(appender).collect();
    let (mut told, counts) = (0, pipeline.progress() == Progress::OfWriting);
    for unit in encoded {
        let unit = unit?;
        // The units of each split account for all of the input.
        let bytes = unit.bytes_in / u64::from(pipeline.split_count().max(1));
        if counts {
            told += bytes;
            pipeline.observer.event(Event::Read { bytes, records: 0 });
        }
        let appender = appenders.get_mut(usize::from(unit.split));
        appender.ok_or_else(|| Error::internal("a unit has no split"))?.append_unit(unit)?;
        release_freed_memory(pipeline.memory.bytes / 4 * 3);
    }
    if counts {
        // Behind the last record that was kept.
        pipeline.observer.event(Event::Read { bytes: input.bytes.saturating_sub(told), records: 0 });
    }
    let mut all = Converted::default();
    let mut indexed = shuffled.map(|(_, segments)| segments.into_iter());
    for (split, appender) in appenders.into_iter().enumerate() {
        let Appended { shards, records, segments, places } = appender.finish()?;
        // Shuffled records were indexed in the order of the input.
        let segments = indexed.as_mut().and_then(Iterator::next).unwrap_or(segments);
        let base = all.records;
        for (place, staged) in places {
            all.places.push(place.shifted_by(base));
            all.staged.push(staged);
        }
        let moved = |finished: FinishedShard| FinishedShard { shard: finished.shard.shifted_by(base), ..finished };
        all.shards.extend(shards.into_iter().map(moved));
        all.segments.append_shifted(segments, base);
        all.records += records;
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.firsts.get_mut(split).into_iter().flatten().flatten().for_each(|first| *first += base);
    }
    if pipeline.splits.is_some() {
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        let Tally { sources, firsts, .. } = &mut *tally;
        for (number, source) in sources.iter_mut().enumerate() {
            // A source without records is where the next run begins.
            let first = firsts.iter().find_map(|firsts| firsts.get(number).copied().flatten());
            source.first_record = first.unwrap_or(all.records);
        }
    }
    Ok(all)
}
