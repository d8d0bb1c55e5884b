//! The pipeline of `convert`: sources in, finished but unpublished shards out.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::Scope,
};

use arrow::datatypes::{DataType, SchemaRef};
use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::{
    budget::{Budget, Released},
    encode::{Encoded, Encoder, Unit},
    gather::{Cutting, Feedback, Gather, OnError, Read, SourceFacts, SourceTally, Tally},
    given,
    names::{NameGate, PartsGate},
    ordered::ordered,
    rejects::RejectsFile,
    shard::{Appender, FinishedShard, ShardNaming},
    subjects::SubjectResolver,
    suppress::SuppressGate,
};
use crate::{
    dataset::Segments,
    error::{Error, Kind, Result},
    events::{Cancel, Event, Observer},
    exec::encode::Output,
    format::{
        Misfit, Parsed,
        files::{SampleFiles, Samples, plan_splits, read_block},
    },
    id::TransactionId,
    plan::{memory::MemoryPlan, roll::RowGroupPlanner},
    record::{Content, Part, Payload, RecordBlock, Reject, Split, spare::Spare},
    scan::{RecordSource, SourceFile, content_hash},
    storage::{Store, sys::release_freed_memory},
};

/// What is to be converted.
#[derive(Debug)]
pub enum Work<'a> {
    /// Sources that hold records, all to one schema.
    Records {
        /// The sources.
        sources: &'a [RecordSource],
        /// Columns of all of them united.
        schema: SchemaRef,
    },
    /// Samples made of files.
    Samples {
        /// The files.
        files: &'a [SourceFile],
        /// The samples.
        samples: &'a Samples,
        /// How they are read.
        reading: &'a Reading,
        /// Samples to be rejected unread, by number, and why.
        left_out: &'a BTreeMap<usize, String>,
        /// Where the hash of each file goes; empty where nobody asks for it.
        hashes: &'a [AtomicU64],
    },
}

impl Work<'_> {
    /// What a store that sources lie in has failed with.
    fn fault(&self) -> Option<Error> {
        match self {
            Self::Records { sources, .. } => sources.iter().find_map(|source| source.file.fault()),
            Self::Samples { files, .. } => files.iter().find_map(SourceFile::fault),
        }
    }
}

/// Files of a split at most, where opening one costs little.
const LOCAL_FILES: usize = 256;

/// Bytes of such a split at most: small, so that many of them are read at a time.
const LOCAL_BYTES: u64 = 1 << 20;

/// Files read at a time from a local disk at least: more than processors, for while one waits for the disk others go on.
const LOCAL_REQUESTS: usize = 32;

/// Heads of files read at a time from a local disk.
const LOCAL_OPENING: usize = 16;

/// The same where each file is a request that others should not have to wait for.
const REMOTE_FILES: usize = 8;

/// Requests in flight to a remote store: what counts is how long each takes, not the processor.
const REMOTE_REQUESTS: usize = 64;

/// Does work that opens many files in parallel, by as many threads as that takes.
///
/// # Errors
/// When threads cannot be started.
pub fn opening<T: Send>(files: usize, remote: bool, work: impl FnOnce() -> T + Send) -> Result<T> {
    let requests = if remote { REMOTE_REQUESTS } else { LOCAL_OPENING };
    if files <= rayon::current_num_threads() {
        return Ok(work());
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(requests.min(files)).build();
    Ok(pool.map_err(|e| Error::internal("starting threads failed").cause(e))?.install(work))
}

/// How files of samples are read.
#[derive(Debug)]
pub struct Reading {
    /// Ranges of samples to read together.
    splits: Vec<Range<usize>>,
    /// Splits that are read at a time.
    requests: usize,
    /// Splits that are read or wait for their turn.
    window: usize,
    /// Bytes of them.
    budget: u64,
}

impl Reading {
    /// Plans to read the files within `memory`. What comes out does not depend on it.
    pub fn new(files: &[SourceFile], samples: &Samples, memory: MemoryPlan, jobs: usize) -> Self {
        let budget = 4 * memory.split_bytes * memory.parse_window as u64;
        if files.iter().any(SourceFile::is_remote) {
            let split_bytes = memory.split_bytes / 8;
            Self {
                splits: plan_splits(samples, files, split_bytes, REMOTE_FILES),
                requests: REMOTE_REQUESTS,
                window: REMOTE_REQUESTS * 4,
                budget,
            }
        } else {
            let requests = LOCAL_REQUESTS.max(jobs * 2);
            Self {
                splits: plan_splits(samples, files, memory.split_bytes.min(LOCAL_BYTES), LOCAL_FILES),
                requests,
                window: requests * 2,
                budget,
            }
        }
    }
}

/// Everything that the pipeline needs besides the work.
pub struct Pipeline<'a> {
    /// Store of the dataset.
    pub store: &'a Arc<dyn Store>,
    /// Makes bytes of records.
    pub encoder: &'a Encoder,
    /// Names shards.
    pub naming: ShardNaming,
    /// Size of a shard.
    pub target: u64,
    /// Bounds.
    pub memory: MemoryPlan,
    /// Threads.
    pub jobs: usize,
    /// What to do with bad records.
    pub on_error: OnError,
    /// Columns whose types the user gave.
    pub given: &'a [String],
    /// Looks at names that are known only while records are read; there is none when every name will do.
    pub names: Option<&'a NameGate>,
    /// Looks for samples without parts that others have; there is none when they are kept.
    pub parts: Option<&'a PartsGate>,
    /// Resolves subject ids; `None` if a column has them, or if there are none.
    pub subjects: Option<&'a SubjectResolver>,
    /// Leaves out who was erased; there is none where nobody was.
    pub suppress: Option<&'a SuppressGate<'a>>,
    /// Where they go.
    pub rejects: Option<&'a RejectsFile>,
    /// Names of sources, in the order of the work.
    pub facts: &'a [SourceFacts],
    /// Names the run.
    pub transaction: &'a TransactionId,
    /// Is told what happens.
    pub observer: &'a dyn Observer,
    /// Stops it.
    pub cancel: &'a Cancel,
}

/// What the pipeline made.
#[derive(Debug)]
pub struct Converted {
    /// Shards without names.
    pub shards: Vec<FinishedShard>,
    /// Records written.
    pub records: u64,
    /// Segments of the id index.
    pub segments: Segments,
}

/// Runs the pipeline. Counts are in `tally` even when it fails; a misfit is a failure noted there.
///
/// # Errors
/// When a source cannot be read, a record is bad and `on_error` says fail, or the store fails.
pub fn run(pipeline: &Pipeline<'_>, work: &Work<'_>, tally: &Mutex<Tally>) -> Result<Converted> {
    tally.lock().unwrap_or_else(PoisonError::into_inner).sources = vec![SourceTally::default(); pipeline.facts.len()];
    let feedback = Arc::new(Feedback::default());
    std::thread::scope(|scope| {
        // Whoever waits for a size that will never come must not keep the scope open, also when this thread panics.
        let _closing = Closing(&feedback);
        let memory = &pipeline.memory;
        // Only in Parquet have samples columns that they must fit.
        let columns = match pipeline.encoder.output() {
            Output::Parquet(parquet) => Some(parquet.schema()),
            Output::Stream(_) => None,
        };
        let reads = match work {
            Work::Records { sources, schema } => read_records(scope, Parser { pipeline, sources, schema, columns }),
            Work::Samples { files, samples, reading, left_out, hashes } => {
                let reader = SampleReader { pipeline, files, samples, left_out, hashes, columns };
                read_splits(scope, reader, reading)
            }
        };
        let units = Gather::new(
            reads,
            cutting(pipeline, &feedback),
            pipeline.on_error,
            pipeline.rejects,
            pipeline.facts,
            tally,
            pipeline.observer,
        )
        .suppressing(pipeline.suppress.map(|gate| gate.list));
        let encode = {
            let feedback = Arc::clone(&feedback);
            move |unit: Unit| encode(pipeline.encoder, &feedback, unit)
        };
        let encoded = ordered(scope, units, pipeline.jobs, memory.encode_window, pipeline.cancel, encode);
        let result = append(pipeline, encoded);
        // A decoder may have taken a failed read for the end of a source.
        result.and_then(|converted| match work.fault() {
            Some(fault) => Err(fault),
            None => Ok(converted),
        })
    })
}

/// Parsed pieces of the sources, in order.
type Reads<'scope> = Box<dyn Iterator<Item = Result<Read>> + Send + 'scope>;

/// Reads sources of records, several splits at a time.
fn read_records<'scope, 'a: 'scope>(scope: &'scope Scope<'scope, '_>, parser: Parser<'a>) -> Reads<'scope> {
    let Parser { pipeline, sources, .. } = parser;
    let memory = &pipeline.memory;
    let budget = Arc::new(Budget::new(memory.split_bytes * memory.parse_window as u64));
    let (room, least) = (Arc::clone(&budget), memory.split_bytes / PIECES_FOR_ONE);
    let pieces = pieces(sources, *memory, pipeline.on_error).map_while(move |piece| {
        let bytes = piece.as_ref().map_or(0, |piece| piece.bytes(sources, memory.split_bytes).max(least));
        room.acquire(bytes).then(|| piece.map(|piece| (bytes, piece)))
    });
    let window = memory.parse_window * usize::try_from(PIECES_FOR_ONE).unwrap_or(1);
    let parse = move |(bytes, piece)| Ok((bytes, parser.parse(piece)?));
    let read = ordered(scope, pieces, requests(sources, pipeline), window, pipeline.cancel, parse);
    Box::new(Released::new(read, budget).flat_map(|reads| match reads {
        Ok(reads) => reads.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(e) => vec![Err(e)],
    }))
}

/// Reads the files of samples.
#[derive(Clone, Copy)]
struct SampleReader<'a> {
    pipeline: &'a Pipeline<'a>,
    files: &'a [SourceFile],
    samples: &'a Samples,
    left_out: &'a BTreeMap<usize, String>,
    hashes: &'a [AtomicU64],
    columns: Option<&'a SchemaRef>,
}

impl SampleReader<'_> {
    fn bytes_of(&self, range: &Range<usize>) -> u64 {
        self.samples.range(range.clone(), self.files).map(SampleFiles::bytes).sum()
    }

    fn read(&self, range: &Range<usize>, spare: &Spare) -> Result<Read> {
        let rejects = rejects_of(self.left_out, range);
        let wanted: Vec<usize> = range.clone().filter(|i| !self.left_out.contains_key(i)).collect();
        let sample = |i: usize| self.samples.get(i, self.files);
        // Streams hash what they frame.
        let hashed = self.columns.is_some();
        let mut block = read_samples(wanted.iter().map(|i| sample(*i)), self.pipeline.on_error, hashed, spare)?;
        annotate_samples(&mut block, self.pipeline.subjects, self.hashes, |row| sample(wanted[row as usize]));
        renumber(&mut block, &wanted, range.start);
        Ok(Read::Parsed { source: 0, offset: 0, parsed: fitting(block, self.columns), left_out: rejects, erased: 0 })
    }
}

/// Reads samples of files, several splits at a time.
fn read_splits<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    reader: SampleReader<'a>,
    reading: &'a Reading,
) -> Reads<'scope> {
    let budget = Arc::new(Budget::new(reading.budget));
    let room = Arc::clone(&budget);
    let ranges = reading.splits.iter().cloned().map(move |range| (reader.bytes_of(&range), range));
    let ranges = ranges.take_while(move |(bytes, _)| room.acquire(*bytes)).map(Ok);
    let spare = Spare::default();
    let read = move |(bytes, range): (u64, Range<usize>)| Ok((bytes, reader.read(&range, &spare)?));
    let requests = reading.requests.min(reading.splits.len());
    let read = ordered(scope, ranges, requests, reading.window, reader.pipeline.cancel, read);
    Box::new(Released::new(read, budget))
}

/// Ends all waiting for sizes when it is dropped.
struct Closing<'a>(&'a Feedback);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn cutting(pipeline: &Pipeline<'_>, feedback: &Arc<Feedback>) -> Cutting {
    match pipeline.encoder.output() {
        Output::Stream(framing) => Cutting::Even { bytes: pipeline.memory.unit_bytes, member: framing.member_bytes() },
        Output::Parquet(parquet) => {
            let target = pipeline.target.saturating_sub(parquet.footer_bytes(0)).max(1);
            let planner = RowGroupPlanner::new(target, pipeline.memory.unit_bytes);
            Cutting::RowGroups(planner, Arc::clone(feedback))
        }
    }
}

fn encode(encoder: &Encoder, feedback: &Feedback, unit: Unit) -> Result<Encoded> {
    let number = unit.number;
    let footer = match encoder.output() {
        Output::Parquet(parquet) => parquet.footer_bytes(1) - parquet.footer_bytes(0),
        Output::Stream(_) => 0,
    };
    let encoded = encoder.encode_telling(unit, |bytes| feedback.tell(number, bytes + footer));
    if encoded.is_err() {
        feedback.close();
    }
    encoded
}

fn append(pipeline: &Pipeline<'_>, encoded: impl Iterator<Item = Result<Encoded>>) -> Result<Converted> {
    let mut appender = Appender::new(
        Arc::clone(pipeline.store),
        pipeline.encoder,
        pipeline.naming.clone(),
        pipeline.target,
        pipeline.transaction,
        pipeline.observer,
    );
    for unit in encoded {
        appender.append(unit?)?;
        release_freed_memory(pipeline.memory.bytes / 8 * 7);
    }
    let (shards, records, segments) = appender.finish()?;
    Ok(Converted { shards, records, segments })
}

/// A piece of a source.
enum SourcePiece {
    Split(usize, Split),
    /// The source came to its end; the hash of its bytes.
    End(usize, u64),
    /// The rest of the source cannot be read.
    Broken(usize, Error),
    /// All of a small source.
    Whole(usize),
}

type Pieces<'a> = Box<dyn Iterator<Item = Result<SourcePiece>> + Send + 'a>;

/// Pieces of all sources, one after the other.
fn pieces(
    sources: &[RecordSource],
    memory: MemoryPlan,
    on_error: OnError,
) -> impl Iterator<Item = Result<SourcePiece>> + Send {
    sources.iter().enumerate().flat_map(move |(i, source)| -> Pieces<'_> {
        if is_small(source) {
            return Box::new(std::iter::once(Ok(SourcePiece::Whole(i))));
        }
        Box::new(surviving(i, source, pieces_of(i, source, memory), on_error))
    })
}

/// Whether the run goes on without what cannot be read. It does where the bytes are at fault, never where the store is.
fn survives(error: &Error, on_error: OnError) -> bool {
    on_error != OnError::Fail
        && !matches!(error.kind(), Kind::Storage | Kind::Conflict | Kind::Interrupted | Kind::Internal)
}

/// What is to be said about a source: that its store has failed, where it has, and else what was found.
fn blamed(file: &SourceFile, error: Error) -> Error {
    file.fault().unwrap_or(error)
}

/// Ends the pieces of a source at its first error, which is a piece itself where the run goes on without bad sources.
fn surviving<'a>(
    i: usize,
    source: &'a RecordSource,
    pieces: Pieces<'a>,
    on_error: OnError,
) -> impl Iterator<Item = Result<SourcePiece>> + Send {
    let mut over = false;
    pieces.map_while(move |piece| {
        if over {
            return None;
        }
        Some(match piece.map_err(|e| blamed(&source.file, e)) {
            Err(e) if survives(&e, on_error) => {
                over = true;
                Ok(SourcePiece::Broken(i, e))
            }
            other => other,
        })
    })
}

fn pieces_of(i: usize, source: &RecordSource, memory: MemoryPlan) -> Pieces<'_> {
    let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let by_itself = source.reader.reads_by_itself();
    let hasher = Arc::new(Mutex::new(Xxh3Default::new()));
    let tap = {
        let hasher = Arc::clone(&hasher);
        move |bytes: &[u8]| hasher.lock().unwrap_or_else(PoisonError::into_inner).update(bytes)
    };
    let input = if by_itself { Ok(Box::new(std::io::empty()) as Box<_>) } else { source.open(tap) };
    let input = match input {
        Ok(input) => input,
        Err(e) => return Box::new(std::iter::once(Err(e))),
    };
    let splits =
        source.reader.splits(input, bytes(memory.split_bytes), bytes(memory.max_record_bytes)).map(move |split| {
            split.map(|split| SourcePiece::Split(i, split)).map_err(|e| match e.place().source {
                None => e.at(source.file.uri()),
                Some(_) => e,
            })
        });
    let end = std::iter::once_with(move || {
        let hash = match (by_itself, source.file.etag()) {
            (false, _) => hasher.lock().unwrap_or_else(PoisonError::into_inner).digest(),
            // Where the store vouches for the content it is not read twice.
            (true, Some(_)) => 0,
            // Nor is it fetched for that alone.
            (true, None) if source.file.is_remote() => 0,
            (true, None) => content_hash(&source.file)?,
        };
        Ok(SourcePiece::End(i, hash))
    });
    Box::new(splits.chain(end))
}

/// Sources up to so many bytes are opened, cut and parsed by one worker, so that many of them are open at a time.
const SMALL_SOURCE: u64 = 256 << 10;

fn is_small(source: &RecordSource) -> bool {
    !source.packed && !source.reader.reads_by_itself() && source.file.bytes() <= SMALL_SOURCE
}

/// Pieces that may be in flight instead of one of full size. Small sources make small pieces.
const PIECES_FOR_ONE: u64 = 32;

impl SourcePiece {
    /// Bytes that count against those in flight, when `most` are those of a full split.
    fn bytes(&self, sources: &[RecordSource], most: u64) -> u64 {
        match self {
            Self::Split(_, Split { content: Content::Bytes(bytes), .. }) => bytes.len() as u64,
            // What comes of them may be many times larger.
            Self::Split(..) => most,
            Self::Whole(source) => sources[*source].file.bytes(),
            Self::End(..) | Self::Broken(..) => 0,
        }
    }
}

/// Workers that read pieces.
fn requests(sources: &[RecordSource], pipeline: &Pipeline<'_>) -> usize {
    // What small sources take has room for many requests; splits of large ones have not.
    let remote = sources.iter().all(is_small) && sources.iter().any(|source| source.file.is_remote());
    if remote { REMOTE_REQUESTS } else { pipeline.jobs }
}

/// Turns pieces of sources into what there is to gather.
#[derive(Clone, Copy)]
struct Parser<'a> {
    pipeline: &'a Pipeline<'a>,
    sources: &'a [RecordSource],
    schema: &'a SchemaRef,
    columns: Option<&'a SchemaRef>,
}

impl Parser<'_> {
    fn parse(&self, piece: SourcePiece) -> Result<Vec<Read>> {
        Ok(vec![match piece {
            SourcePiece::End(source, hash) => Read::End { source, hash },
            SourcePiece::Broken(source, error) => Read::Broken { source, error, records: 1 },
            SourcePiece::Split(source, split) => self.split(source, &split)?,
            SourcePiece::Whole(source) => return self.whole(source),
        }])
    }

    fn whole(&self, source: usize) -> Result<Vec<Read>> {
        let on_error = self.pipeline.on_error;
        let all = pieces_of(source, &self.sources[source], self.pipeline.memory);
        let pieces = surviving(source, &self.sources[source], all, on_error);
        let reads: Vec<Vec<Read>> = pieces.map(|piece| self.parse(piece?)).collect::<Result<_>>()?;
        Ok(reads.into_iter().flatten().collect())
    }

    fn split(&self, source: usize, split: &Split) -> Result<Read> {
        let file = &self.sources[source].file;
        let reader = self.sources[source].reader.as_ref();
        let result = match self.pipeline.given {
            given if !given.is_empty() && !self.sources[source].format.is_text() => {
                given::parse(reader, split, self.schema, given)
            }
            _ => reader.parse(split, self.schema),
        };
        let mut parsed = match result.map_err(|e| blamed(file, e)) {
            Err(error) if survives(&error, self.pipeline.on_error) => {
                return Ok(Read::Broken { source, error, records: split.rows().unwrap_or(1) });
            }
            parsed => parsed?,
        };
        let (mut left_out, mut erased) = (Vec::new(), 0);
        if let Parsed::Block(block) = &mut parsed {
            let at = |e: Error| if e.place().source.is_some() { e } else { e.at(self.sources[source].file.uri()) };
            if let Some(resolver) = self.pipeline.subjects {
                resolver.resolve_members(block, self.pipeline.facts[source].name.subject.as_deref()).map_err(at)?;
            }
            if let Some(gate) = self.pipeline.suppress {
                (*block, erased) = gate.pass(std::mem::replace(block, RecordBlock::empty())).map_err(at)?;
            }
            if let Some(names) = self.pipeline.names {
                let whole = std::mem::replace(block, RecordBlock::empty());
                (*block, left_out) = names.pass(whole, &self.pipeline.facts[source].name.key).map_err(at)?;
            }
            if let Some(parts) = self.pipeline.parts {
                let whole = std::mem::replace(block, RecordBlock::empty());
                let (rest, incomplete) = parts.pass(whole).map_err(at)?;
                *block = rest;
                left_out.extend(incomplete);
            }
        }
        let parsed = match parsed {
            Parsed::Block(block) => fitting(block, self.columns),
            misfit @ Parsed::Misfit(_) => misfit,
        };
        Ok(Read::Parsed { source, offset: split.offset, parsed, left_out, erased })
    }
}

/// The block, unless it has samples with parts for which there is no column.
fn fitting(block: RecordBlock, columns: Option<&SchemaRef>) -> Parsed {
    let (Payload::Samples(samples), Some(schema)) = (&block.payload, columns) else { return Parsed::Block(block) };
    let misfit = |part: &Part| match schema.fields().find(&part.extension).map(|(_, field)| field.data_type()) {
        None => Some("no part of this extension"),
        Some(DataType::Utf8) if simdutf8::basic::from_utf8(&part.bytes).is_err() => Some("text in UTF-8"),
        Some(_) => None,
    };
    let found = samples.iter().find_map(|s| s.parts.iter().find_map(|part| Some((s, part, misfit(part)?))));
    match found {
        None => Parsed::Block(block),
        Some((sample, part, expected)) => Parsed::Misfit(Misfit {
            column: part.extension.clone(),
            line: 0,
            byte: 0,
            value: format!("{}.{}", sample.key, part.extension),
            expected: expected.to_owned(),
        }),
    }
}

/// Row of a sample within its range.
fn row_in(range_start: usize, sample: usize) -> u32 {
    u32::try_from(sample - range_start).unwrap_or(u32::MAX)
}

/// Assigns subject ids to samples by their files, and stores the hash of each file; each only if asked for.
fn annotate_samples<'a>(
    block: &mut RecordBlock,
    resolver: Option<&SubjectResolver>,
    hashes: &[AtomicU64],
    files_of: impl Fn(u32) -> SampleFiles<'a, SourceFile>,
) {
    let Payload::Samples(samples) = &mut block.payload else { return };
    if resolver.is_none() && hashes.is_empty() {
        return;
    }
    for (sample, row) in samples.iter_mut().zip(&block.rows) {
        let files = files_of(*row);
        sample.subject = resolver.and_then(|resolver| resolver.of_sample(files));
        for (number, part) in files.numbers().zip(&sample.parts) {
            if let Some(place) = hashes.get(number) {
                place.store(xxh3_64(&part.bytes), Ordering::Relaxed);
            }
        }
    }
}

/// Samples of a range that are not to be read.
fn rejects_of(left_out: &BTreeMap<usize, String>, range: &Range<usize>) -> Vec<Reject> {
    let reject = |(sample, reason): (&usize, &String)| Reject {
        row: row_in(range.start, *sample),
        line: 0,
        byte: 0,
        column: None,
        reason: reason.clone(),
        raw: Bytes::new(),
    };
    left_out.range(range.clone()).map(reject).collect()
}

/// Rows of a block that was read of some samples of a range become rows of the range.
fn renumber(block: &mut RecordBlock, wanted: &[usize], start: usize) {
    let in_range = |row: u32| wanted.get(row as usize).map_or(row, |sample| row_in(start, *sample));
    block.rows.iter_mut().for_each(|row| *row = in_range(*row));
    block.rejects.iter_mut().for_each(|reject| reject.row = in_range(reject.row));
}

fn read_samples<'a>(
    samples: impl Iterator<Item = SampleFiles<'a, SourceFile>> + Clone,
    on_error: OnError,
    hashed: bool,
    spare: &Spare,
) -> Result<RecordBlock> {
    match read_block(samples.clone(), hashed, spare, &read_file) {
        Err(e) if !survives(&e, on_error) => Err(e),
        // One file cannot be read: find out which sample it is of, and take the others.
        Err(_) => read_apart(samples, hashed, spare),
        read => read,
    }
}

fn read_file(file: &SourceFile, into: &mut Vec<u8>) -> Result<()> {
    let gone = "it vanished since it was listed, or is a link that leads nowhere; leave it out with --exclude";
    let read = file.read_whole(into);
    read.map_err(|e| if e.kind() == Kind::Storage { e.hint(gone) } else { e })
}

/// Reads samples one by one; those that cannot be read become rejects.
fn read_apart<'a>(
    samples: impl Iterator<Item = SampleFiles<'a, SourceFile>>,
    hashed: bool,
    spare: &Spare,
) -> Result<RecordBlock> {
    let mut all = RecordBlock::empty();
    let mut taken = Vec::new();
    for (sample, row) in samples.zip(0..) {
        match read_block(std::iter::once(sample), hashed, spare, &read_file) {
            Ok(block) => {
                if let Payload::Samples(samples) = block.payload {
                    all.rows.extend(samples.iter().map(|_| row));
                    taken.extend(samples);
                }
                all.hashes.extend(block.hashes);
                all.rejects.extend(block.rejects.into_iter().map(|reject| Reject { row, ..reject }));
                all.bytes_in += block.bytes_in;
            }
            Err(e) if !survives(&e, OnError::Skip) => return Err(e),
            Err(e) => all.rejects.push(Reject {
                row,
                line: 0,
                byte: 0,
                column: None,
                reason: format!("{}: {e}", sample.key()),
                raw: Bytes::new(),
            }),
        }
    }
    all.payload = Payload::Samples(taken);
    Ok(all)
}

/// Types of all columns of all tables, looked at in full.
///
/// # Errors
/// When a source cannot be read.
pub fn infer_all(
    sources: &[RecordSource],
    memory: MemoryPlan,
    jobs: usize,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Vec<arrow::datatypes::Fields>> {
    let mut fields = vec![arrow::datatypes::Fields::empty(); sources.len()];
    std::thread::scope(|scope| {
        // What cannot be read says nothing about types, and is dealt with when it is converted.
        let pieces = pieces(sources, memory, OnError::Skip);
        let results = ordered(scope, pieces, jobs, memory.parse_window, cancel, |piece| {
            let source = match piece {
                SourcePiece::End(..) | SourcePiece::Broken(..) => return Ok(None),
                SourcePiece::Split(source, split) => {
                    return Ok(Some((source, sources[source].reader.infer(&split), split.bytes_in())));
                }
                SourcePiece::Whole(source) => source,
            };
            let mut seen = arrow::datatypes::Fields::empty();
            for piece in surviving(source, &sources[source], pieces_of(source, &sources[source], memory), OnError::Skip)
            {
                if let SourcePiece::Split(_, split) = piece? {
                    seen = crate::schema::unite_lists(&seen, &sources[source].reader.infer(&split));
                }
            }
            Ok(Some((source, seen, sources[source].file.bytes())))
        });
        for result in results {
            if let Some((source, seen, bytes)) = result? {
                fields[source] = crate::schema::unite_lists(&fields[source], &seen);
                observer.event(Event::Read { bytes, records: 0 });
            }
        }
        Ok(fields)
    })
}
