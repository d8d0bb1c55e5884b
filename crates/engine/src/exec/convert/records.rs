//! Reads sources of records: one thread cuts them into ranges, in order, and workers parse the ranges. Small sources
//! are opened, cut and parsed by one worker.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::Scope,
};

use arrow::datatypes::{Fields, SchemaRef};
use xxhash_rust::xxh3::Xxh3Default;

use super::{Outcomes, Pipeline, can_skip};
use crate::{
    error::{Error, Result},
    events::{Cancel, Event, Observer},
    exec::{
        budget::{Limits, ordered_within},
        gates::GatedBlock,
        gather::{Misfit, OnError, ReadOutcome},
        given,
        ordered::run_ordered,
    },
    format::Parsed,
    plan::memory::MemoryPlan,
    record::{Content, SourcePart, SourceRange, sparse},
    scan::{RecordSource, SourceFile, closed_hash},
    schema::unite_lists,
    storage::REMOTE_REQUESTS,
};

/// Reads sources of records, several ranges at a time.
pub(super) fn read_records<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    parser: Parser<'a>,
) -> Outcomes<'scope> {
    let Parser { pipeline, sources, .. } = parser;
    let memory = &pipeline.memory;
    let limits = Limits {
        bytes: memory.range_bytes * memory.parse_window as u64,
        jobs: worker_count(sources, pipeline),
        window: memory.parse_window * usize::try_from(SMALL_REQUESTS_PER_RANGE).unwrap_or(1),
    };
    let (reading, min_bytes) = (parser.to_reading(), memory.range_bytes / SMALL_REQUESTS_PER_RANGE);
    let bytes_of = move |request: &ReadRequest| request.budget_bytes(reading).max(min_bytes);
    let parse = move |request| parser.parse_request(request);
    let read = ordered_within(scope, reading.into_requests(), bytes_of, limits, pipeline.cancel, parse);
    Box::new(read.flat_map(|reads| match reads {
        Ok(reads) => reads.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(e) => vec![Err(e)],
    }))
}

/// A request to a worker.
enum ReadRequest {
    /// The part of a source that is read begins in its middle.
    Enter(usize, SourcePart),
    /// A range of a source.
    Range(usize, SourceRange),
    /// The source has ended; carries the hash of its bytes.
    End(usize, u64),
    /// The rest of the source cannot be read.
    Broken(usize, Error),
    /// All of a small source.
    Whole(usize),
}

type Requests<'a> = Box<dyn Iterator<Item = Result<ReadRequest>> + Send + 'a>;

/// How sources are cut into ranges.
#[derive(Clone, Copy)]
struct Reading<'a> {
    sources: &'a [RecordSource],
    memory: MemoryPlan,
    on_error: OnError,
    /// Columns of the table, as far as they are known.
    columns: usize,
}

impl<'a> Reading<'a> {
    /// Requests for all sources, one source after the other.
    fn into_requests(self) -> impl Iterator<Item = Result<ReadRequest>> + Send + 'a {
        self.sources.iter().enumerate().flat_map(move |(i, source)| -> Requests<'_> {
            if is_small(source) {
                return Box::new(std::iter::once(Ok(ReadRequest::Whole(i))));
            }
            Box::new(self.requests_of(i))
        })
    }

    /// Requests for the ranges of one source, up to the first error.
    fn requests_of(self, i: usize) -> impl Iterator<Item = Result<ReadRequest>> + Send + 'a {
        until_first_error(i, &self.sources[i], self.all_requests_of(i), self.on_error)
    }

    /// Returns the bytes of a range of a source.
    fn range_bytes(self, source: &RecordSource) -> u64 {
        match &source.reader.facts().columns {
            Some(columns) => self.memory.range_bytes_of_wide(columns.len() as u64),
            None => self.memory.range_bytes,
        }
    }

    fn all_requests_of(self, i: usize) -> Requests<'a> {
        let (source, memory) = (&self.sources[i], self.memory);
        let range_bytes = self.range_bytes(source);
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let opens_source = source.reader.facts().reads_own_source;
        let hasher = Arc::new(Mutex::new(Xxh3Default::new()));
        let tap = {
            let hasher = Arc::clone(&hasher);
            move |bytes: &[u8]| hasher.lock().unwrap_or_else(PoisonError::into_inner).update(bytes)
        };
        let input = if opens_source { Ok(Box::new(std::io::empty()) as Box<_>) } else { source.open(tap) };
        let inner_part = source.part.as_ref().filter(|part| !part.is_first());
        let enter = inner_part.map(|part| Ok(ReadRequest::Enter(i, part.clone()))).into_iter();
        let input = match input {
            Ok(input) => input,
            Err(e) => return Box::new(enter.chain(std::iter::once(Err(e)))),
        };
        let ranges = source.ranges(input, bytes(range_bytes), bytes(memory.max_record_bytes)).map(move |range| {
            range.map(|range| ReadRequest::Range(i, range)).map_err(|e| match e.place().source {
                None => e.at_location(source.file.uri()),
                Some(_) => e,
            })
        });
        let end = std::iter::once_with(move || {
            let hash = match (&source.part, opens_source) {
                // Scouting has computed that of the whole source.
                (Some(_), _) => 0,
                (None, true) => closed_hash(source)?,
                (None, false) => hasher.lock().unwrap_or_else(PoisonError::into_inner).digest(),
            };
            Ok(ReadRequest::End(i, hash))
        });
        Box::new(enter.chain(ranges).chain(end))
    }
}

/// Returns the failure of the source's store if there was one, else `error`.
fn store_fault_or(file: &SourceFile, error: Error) -> Error {
    file.store_fault().unwrap_or(error)
}

/// Ends the requests of a source at its first error. The error becomes a request itself if the run continues without
/// bad sources.
fn until_first_error<'a>(
    i: usize,
    source: &'a RecordSource,
    requests: Requests<'a>,
    on_error: OnError,
) -> impl Iterator<Item = Result<ReadRequest>> + Send {
    let mut ended = false;
    requests.map_while(move |request| {
        if ended {
            return None;
        }
        Some(match request.map_err(|e| store_fault_or(&source.file, e)) {
            Err(e) if can_skip(&e, on_error) => {
                ended = true;
                Ok(ReadRequest::Broken(i, e))
            }
            other => other,
        })
    })
}

/// Maximum bytes of a source that is opened, cut and parsed by one worker, so that many such sources are open at a
/// time.
const SMALL_SOURCE: u64 = 256 << 10;

fn is_small(source: &RecordSource) -> bool {
    let facts = source.reader.facts();
    !source.packed && !facts.reads_own_source && !facts.packs_records && source.file.bytes() <= SMALL_SOURCE
}

/// Requests that may be in flight per full range, because small sources make small requests.
const SMALL_REQUESTS_PER_RANGE: u64 = 32;

impl ReadRequest {
    /// Returns the bytes that count against the budget.
    fn budget_bytes(&self, reading: Reading<'_>) -> u64 {
        match self {
            Self::Range(source, range @ SourceRange { content: Content::Bytes(bytes), .. }) => {
                let of_own_columns = reading.sources[*source].reader.facts().columns.is_none();
                let times = if of_own_columns { sparse::growth_factor(reading.columns, bytes) } else { 1 };
                let unpacked = range.blocks.map_or(0, |blocks| blocks.unpacked_bytes);
                unpacked.max(times * bytes.len() as u64) + range.linked_bytes()
            }
            // Parsed content may be many times larger than its range.
            Self::Range(source, _) => reading.range_bytes(&reading.sources[*source]),
            Self::Whole(source) => reading.sources[*source].file.bytes(),
            Self::Enter(..) | Self::End(..) | Self::Broken(..) => 0,
        }
    }
}

/// Returns the number of workers that read.
fn worker_count(sources: &[RecordSource], pipeline: &Pipeline<'_>) -> usize {
    // Many requests fit the budget if all sources are small; ranges of large sources would not.
    let remote = sources.iter().all(is_small) && sources.iter().any(|source| source.file.is_remote());
    if remote { REMOTE_REQUESTS } else { pipeline.jobs }
}

/// Parses the requested ranges.
#[derive(Clone, Copy)]
pub(super) struct Parser<'a> {
    pub(super) pipeline: &'a Pipeline<'a>,
    pub(super) sources: &'a [RecordSource],
    /// Columns to which rows are cast.
    pub(super) schema: &'a SchemaRef,
}

impl<'a> Parser<'a> {
    fn to_reading(self) -> Reading<'a> {
        let Pipeline { memory, on_error, .. } = *self.pipeline;
        Reading { sources: self.sources, memory, on_error, columns: self.schema.fields().len() }
    }

    fn parse_request(&self, request: ReadRequest) -> Result<Vec<ReadOutcome>> {
        Ok(vec![match request {
            ReadRequest::Enter(source, part) => ReadOutcome::Entered { source, part },
            ReadRequest::End(source, hash) => ReadOutcome::End { source, hash },
            ReadRequest::Broken(source, error) => ReadOutcome::Broken { source, error, records: 1 },
            ReadRequest::Range(source, range) => {
                self.parse_range(source, &SourceRange { hashed: self.pipeline.needs_hashes(source), ..range })?
            }
            ReadRequest::Whole(source) => return self.parse_source(source),
        }])
    }

    fn parse_source(&self, source: usize) -> Result<Vec<ReadOutcome>> {
        let requests = self.to_reading().requests_of(source);
        let reads: Vec<Vec<ReadOutcome>> =
            requests.map(|request| self.parse_request(request?)).collect::<Result<_>>()?;
        Ok(reads.into_iter().flatten().collect())
    }

    fn parse_range(&self, source: usize, range: &SourceRange) -> Result<ReadOutcome> {
        let file = &self.sources[source].file;
        let reader = self.sources[source].reader.as_ref();
        let (gates, offset) = (self.pipeline.gates, range.offset);
        if let Some(block) = gates.list.iter().find_map(|gate| gate.prune_range(reader, range)) {
            let mut gated = GatedBlock::new(block, Arc::clone(gates.ids));
            gated.effects.filtered = range.row_count().unwrap_or_default().saturating_sub(gated.block.deleted);
            return Ok(ReadOutcome::Parsed { source, offset, gated });
        }
        let result = match self.pipeline.given {
            given if !given.is_empty() && !self.sources[source].format.is_text() => {
                given::parse_given(reader, range, self.schema, given)
            }
            _ => reader.parse(range, self.schema),
        };
        let misfit = |mismatch| ReadOutcome::Mismatch(Misfit { source, mismatch, near: reader.infer(range) });
        let named = |e: Error| if e.place().source.is_none() { e.at_location(file.uri()) } else { e };
        let block = match result.map_err(|e| named(store_fault_or(file, e))) {
            Err(error) if can_skip(&error, self.pipeline.on_error) => {
                return Ok(ReadOutcome::Broken { source, error, records: range.row_count().unwrap_or(1) });
            }
            parsed => match parsed? {
                Parsed::Block(block) => block,
                Parsed::Mismatch(mismatch) => return Ok(misfit(mismatch)),
            },
        };
        Ok(self.pipeline.gated(source, offset, block)?.unwrap_or_else(misfit))
    }
}

/// Infers the types of all columns of all tables from all values.
///
/// # Errors
/// Fails if a source cannot be read.
pub fn infer_all(
    sources: &[RecordSource],
    memory: MemoryPlan,
    jobs: usize,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Vec<Fields>> {
    let mut fields = vec![Fields::empty(); sources.len()];
    // An unreadable source says nothing about types; the conversion itself handles it.
    let reading = &Reading { sources, memory, on_error: OnError::Skip, columns: 0 };
    std::thread::scope(|scope| {
        let results = run_ordered(scope, reading.into_requests(), jobs, memory.parse_window, cancel, move |request| {
            let source = match request {
                ReadRequest::Enter(..) | ReadRequest::End(..) | ReadRequest::Broken(..) => return Ok(None),
                ReadRequest::Range(source, range) => {
                    return Ok(Some((source, sources[source].reader.infer(&range), range.bytes_in())));
                }
                ReadRequest::Whole(source) => source,
            };
            let mut seen = Fields::empty();
            for request in reading.requests_of(source) {
                if let ReadRequest::Range(_, range) = request? {
                    seen = unite_lists(&seen, &sources[source].reader.infer(&range));
                }
            }
            Ok(Some((source, seen, sources[source].file.bytes())))
        });
        for result in results {
            if let Some((source, seen, bytes)) = result? {
                fields[source] = unite_lists(&fields[source], &seen);
                if fields[source].len() > sparse::MOST_COLUMNS {
                    return Err(sparse::too_sparse(fields[source].len()).at_location(sources[source].file.uri()));
                }
                observer.event(Event::Read { bytes, records: 0 });
            }
        }
        Ok(fields)
    })
}
