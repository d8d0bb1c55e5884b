//! Reads sources of records: one thread cuts them into splits, in order, and workers parse these. Sources that are small are opened, cut
//! and parsed by one worker.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::Scope,
};

use arrow::datatypes::{Fields, SchemaRef};
use xxhash_rust::xxh3::Xxh3Default;

use super::{Outcomes, Pipeline, REMOTE_REQUESTS, fitting, survives};
use crate::{
    error::{Error, Result},
    events::{Cancel, Event, Observer},
    exec::{
        budget::{Budget, Released},
        gather::{OnError, ReadOutcome},
        given,
        ordered::ordered,
    },
    format::Parsed,
    plan::memory::MemoryPlan,
    record::{Content, RecordBlock, Split},
    scan::{RecordSource, SourceFile, content_hash},
    schema::unite_lists,
};

/// Reads sources of records, several splits at a time.
pub(super) fn read_records<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    parser: Parser<'a>,
) -> Outcomes<'scope> {
    let Parser { pipeline, sources, .. } = parser;
    let memory = &pipeline.memory;
    let budget = Arc::new(Budget::new(memory.split_bytes * memory.parse_window as u64));
    let (room, least) = (Arc::clone(&budget), memory.split_bytes / REQUESTS_FOR_ONE);
    let requests = requests(sources, *memory, pipeline.on_error).map_while(move |request| {
        let bytes = request.as_ref().map_or(0, |request| request.bytes(sources, memory.split_bytes).max(least));
        room.acquire(bytes).then(|| request.map(|request| (bytes, request)))
    });
    let window = memory.parse_window * usize::try_from(REQUESTS_FOR_ONE).unwrap_or(1);
    let parse = move |(bytes, request)| Ok((bytes, parser.parse(request)?));
    let read = ordered(scope, requests, workers(sources, pipeline), window, pipeline.cancel, parse);
    Box::new(Released::new(read, budget).flat_map(|reads| match reads {
        Ok(reads) => reads.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(e) => vec![Err(e)],
    }))
}

/// What a worker is asked to read.
enum ReadRequest {
    /// A split of a source.
    Split(usize, Split),
    /// The source came to its end; the hash of its bytes.
    End(usize, u64),
    /// The rest of the source cannot be read.
    Broken(usize, Error),
    /// All of a small source.
    Whole(usize),
}

type Requests<'a> = Box<dyn Iterator<Item = Result<ReadRequest>> + Send + 'a>;

/// Requests for all sources, one after the other.
fn requests(
    sources: &[RecordSource],
    memory: MemoryPlan,
    on_error: OnError,
) -> impl Iterator<Item = Result<ReadRequest>> + Send {
    sources.iter().enumerate().flat_map(move |(i, source)| -> Requests<'_> {
        if is_small(source) {
            return Box::new(std::iter::once(Ok(ReadRequest::Whole(i))));
        }
        Box::new(surviving(i, source, requests_of(i, source, memory), on_error))
    })
}

/// What is to be said about a source: that its store has failed, where it has, and else what was found.
fn blamed(file: &SourceFile, error: Error) -> Error {
    file.fault().unwrap_or(error)
}

/// Ends the requests of a source at its first error, which is a request itself where the run goes on without bad sources.
fn surviving<'a>(
    i: usize,
    source: &'a RecordSource,
    requests: Requests<'a>,
    on_error: OnError,
) -> impl Iterator<Item = Result<ReadRequest>> + Send {
    let mut over = false;
    requests.map_while(move |request| {
        if over {
            return None;
        }
        Some(match request.map_err(|e| blamed(&source.file, e)) {
            Err(e) if survives(&e, on_error) => {
                over = true;
                Ok(ReadRequest::Broken(i, e))
            }
            other => other,
        })
    })
}

fn requests_of(i: usize, source: &RecordSource, memory: MemoryPlan) -> Requests<'_> {
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
            split.map(|split| ReadRequest::Split(i, split)).map_err(|e| match e.place().source {
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
        Ok(ReadRequest::End(i, hash))
    });
    Box::new(splits.chain(end))
}

/// Sources up to so many bytes are opened, cut and parsed by one worker, so that many of them are open at a time.
const SMALL_SOURCE: u64 = 256 << 10;

fn is_small(source: &RecordSource) -> bool {
    !source.packed && !source.reader.reads_by_itself() && source.file.bytes() <= SMALL_SOURCE
}

/// Requests that may be in flight instead of one for a full split: small sources make small requests.
const REQUESTS_FOR_ONE: u64 = 32;

impl ReadRequest {
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

/// Number of workers that read.
fn workers(sources: &[RecordSource], pipeline: &Pipeline<'_>) -> usize {
    // What small sources take has room for many requests; splits of large ones have not.
    let remote = sources.iter().all(is_small) && sources.iter().any(|source| source.file.is_remote());
    if remote { REMOTE_REQUESTS } else { pipeline.jobs }
}

/// Turns requests of sources into what there is to gather.
#[derive(Clone, Copy)]
pub(super) struct Parser<'a> {
    pub(super) pipeline: &'a Pipeline<'a>,
    pub(super) sources: &'a [RecordSource],
    /// Columns that rows are brought to.
    pub(super) schema: &'a SchemaRef,
    /// Columns that samples must fit; `None` if the format has none.
    pub(super) columns: Option<&'a SchemaRef>,
}

impl Parser<'_> {
    fn parse(&self, request: ReadRequest) -> Result<Vec<ReadOutcome>> {
        Ok(vec![match request {
            ReadRequest::End(source, hash) => ReadOutcome::End { source, hash },
            ReadRequest::Broken(source, error) => ReadOutcome::Broken { source, error, records: 1 },
            ReadRequest::Split(source, split) => self.split(source, &split)?,
            ReadRequest::Whole(source) => return self.whole(source),
        }])
    }

    fn whole(&self, source: usize) -> Result<Vec<ReadOutcome>> {
        let on_error = self.pipeline.on_error;
        let all = requests_of(source, &self.sources[source], self.pipeline.memory);
        let requests = surviving(source, &self.sources[source], all, on_error);
        let reads: Vec<Vec<ReadOutcome>> = requests.map(|request| self.parse(request?)).collect::<Result<_>>()?;
        Ok(reads.into_iter().flatten().collect())
    }

    fn split(&self, source: usize, split: &Split) -> Result<ReadOutcome> {
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
                return Ok(ReadOutcome::Broken { source, error, records: split.rows().unwrap_or(1) });
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
        Ok(ReadOutcome::Parsed { source, offset: split.offset, parsed, left_out, erased })
    }
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
) -> Result<Vec<Fields>> {
    let mut fields = vec![Fields::empty(); sources.len()];
    std::thread::scope(|scope| {
        // What cannot be read says nothing about types, and is dealt with when it is converted.
        let requests = requests(sources, memory, OnError::Skip);
        let results = ordered(scope, requests, jobs, memory.parse_window, cancel, |request| {
            let source = match request {
                ReadRequest::End(..) | ReadRequest::Broken(..) => return Ok(None),
                ReadRequest::Split(source, split) => {
                    return Ok(Some((source, sources[source].reader.infer(&split), split.bytes_in())));
                }
                ReadRequest::Whole(source) => source,
            };
            let mut seen = Fields::empty();
            for request in
                surviving(source, &sources[source], requests_of(source, &sources[source], memory), OnError::Skip)
            {
                if let ReadRequest::Split(_, split) = request? {
                    seen = unite_lists(&seen, &sources[source].reader.infer(&split));
                }
            }
            Ok(Some((source, seen, sources[source].file.bytes())))
        });
        for result in results {
            if let Some((source, seen, bytes)) = result? {
                fields[source] = unite_lists(&fields[source], &seen);
                observer.event(Event::Read { bytes, records: 0 });
            }
        }
        Ok(fields)
    })
}
