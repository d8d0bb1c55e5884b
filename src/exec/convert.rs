//! The pipeline of `convert`: sources in, finished but unpublished shards out.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::BTreeMap,
    io::Read as _,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::datatypes::SchemaRef;
use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::Xxh3Default;

use super::{
    encode::{Encoded, Encoder, Unit},
    gather::{Cutting, Feedback, Gather, OnError, Read, RejectsFile, SourceFacts, SourceTally, Tally},
    names::NameGate,
    ordered::ordered,
    shard::{Appender, FinishedShard, ShardNaming},
};
use crate::{
    dataset::SegmentRef,
    error::{Error, Result},
    events::{Cancel, Event, Observer},
    exec::encode::{Body, Output},
    format::{
        Parsed,
        files::{FileEntry, SampleFiles, read_block},
    },
    id::TransactionId,
    plan::{memory::MemoryPlan, roll::RowGroupPlanner},
    record::{Payload, RecordBlock, Reject, Split},
    scan::{RecordSource, SourceFile},
    storage::Store,
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
        /// The same as the grouping sees them.
        entries: &'a [FileEntry],
        /// The samples.
        samples: &'a [SampleFiles],
        /// Ranges of samples to read together.
        splits: &'a [Range<usize>],
        /// Samples to be rejected unread, by number, and why.
        left_out: &'a BTreeMap<usize, String>,
    },
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
    /// Looks at names that are known only while records are read; there is none when every name will do.
    pub names: Option<&'a NameGate>,
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
    pub segments: Vec<SegmentRef>,
}

/// Runs the pipeline. Counts are in `tally` even when it fails; a misfit is a failure noted there.
///
/// # Errors
/// When a source cannot be read, a record is bad and `on_error` says fail, or the store fails.
pub fn run(pipeline: &Pipeline<'_>, work: &Work<'_>, tally: &Mutex<Tally>) -> Result<Converted> {
    tally.lock().unwrap_or_else(PoisonError::into_inner).sources = vec![SourceTally::default(); pipeline.facts.len()];
    let feedback = Arc::new(Feedback::default());
    std::thread::scope(|scope| {
        let memory = &pipeline.memory;
        let reads: Box<dyn Iterator<Item = Result<Read>> + Send> = match work {
            Work::Records { sources, schema } => Box::new(ordered(
                scope,
                table_splits(sources, *memory),
                pipeline.jobs,
                memory.parse_window,
                pipeline.cancel,
                move |piece| parse(pipeline, sources, schema, piece),
            )),
            Work::Samples { files, entries, samples, splits, left_out } => {
                let ranges = splits.iter().cloned().map(Ok);
                let on_error = pipeline.on_error;
                let read = move |range: Range<usize>| {
                    let (taken, rows, rejects) = without(samples, range, left_out);
                    read_samples(files, entries, &taken, &rows, rejects, on_error)
                };
                Box::new(ordered(scope, ranges, pipeline.jobs * 2, memory.parse_window * 2, pipeline.cancel, read))
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
        );
        let encode = {
            let feedback = Arc::clone(&feedback);
            move |unit: Unit| encode(pipeline.encoder, &feedback, unit)
        };
        let encoded = ordered(scope, units, pipeline.jobs, memory.encode_window, pipeline.cancel, encode);
        let result = append(pipeline, encoded);
        // Whoever waits for a size that will never come must not keep the scope open.
        feedback.close();
        result
    })
}

fn cutting(pipeline: &Pipeline<'_>, feedback: &Arc<Feedback>) -> Cutting {
    match pipeline.encoder.output() {
        Output::Stream(_) => Cutting::Even(pipeline.memory.unit_bytes),
        Output::Parquet(parquet) => {
            let target = pipeline.target.saturating_sub(parquet.footer_bytes(0)).max(1);
            let planner = RowGroupPlanner::new(target, pipeline.memory.unit_bytes);
            Cutting::RowGroups(planner, Arc::clone(feedback))
        }
    }
}

fn encode(encoder: &Encoder, feedback: &Feedback, unit: Unit) -> Result<Encoded> {
    let number = unit.number;
    let encoded = encoder.encode(unit);
    match &encoded {
        Ok(Encoded { body: Body::RowGroup(group), .. }) => {
            let footer = match encoder.output() {
                Output::Parquet(parquet) => parquet.footer_bytes(1) - parquet.footer_bytes(0),
                Output::Stream(_) => 0,
            };
            feedback.tell(number, group.encoded_bytes + footer);
        }
        Ok(_) => {}
        Err(_) => feedback.close(),
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
    }
    let (shards, records, segments) = appender.finish()?;
    Ok(Converted { shards, records, segments })
}

/// A split, or the end of a source.
enum TablePiece {
    Split(usize, Split),
    End(usize, u64),
}

/// Splits of all tables, one after the other.
fn table_splits(sources: &[RecordSource], memory: MemoryPlan) -> impl Iterator<Item = Result<TablePiece>> + Send {
    let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    sources.iter().enumerate().flat_map(move |(i, source)| -> Box<dyn Iterator<Item = Result<TablePiece>> + Send> {
        let hasher = Arc::new(Mutex::new(Xxh3Default::new()));
        let tap = {
            let hasher = Arc::clone(&hasher);
            move |bytes: &[u8]| hasher.lock().unwrap_or_else(PoisonError::into_inner).update(bytes)
        };
        let input = match source.file.open(tap) {
            Ok(input) => input,
            Err(e) => return Box::new(std::iter::once(Err(e))),
        };
        let splits =
            source.reader.splits(input, bytes(memory.split_bytes), bytes(memory.max_record_bytes)).map(move |split| {
                split.map(|split| TablePiece::Split(i, split)).map_err(|e| match e.place().source {
                    None => e.at(source.file.uri.clone()),
                    Some(_) => e,
                })
            });
        let end = std::iter::once_with(move || {
            Ok(TablePiece::End(i, hasher.lock().unwrap_or_else(PoisonError::into_inner).digest()))
        });
        Box::new(splits.chain(end))
    })
}

fn parse(pipeline: &Pipeline<'_>, sources: &[RecordSource], schema: &SchemaRef, piece: TablePiece) -> Result<Read> {
    match piece {
        TablePiece::End(source, hash) => Ok(Read::End { source, hash }),
        TablePiece::Split(source, split) => {
            let mut parsed = sources[source].reader.parse(&split, schema)?;
            let mut left_out = Vec::new();
            if let (Parsed::Block(block), Some(names)) = (&mut parsed, pipeline.names) {
                let whole = std::mem::replace(block, RecordBlock::empty());
                let key = &pipeline.facts[source].name.key;
                let at = |e: Error| if e.place().source.is_some() { e } else { e.at(sources[source].file.uri.clone()) };
                (*block, left_out) = names.pass(whole, key).map_err(at)?;
            }
            Ok(Read::Parsed { source, offset: split.offset, parsed, left_out })
        }
    }
}

/// The samples of a range that are to be read, their rows in it, and the others as rejects.
fn without<'a>(
    samples: &'a [SampleFiles],
    range: Range<usize>,
    left_out: &BTreeMap<usize, String>,
) -> (Cow<'a, [SampleFiles]>, Vec<u32>, Vec<Reject>) {
    let row = |i: usize| u32::try_from(i - range.start).unwrap_or(u32::MAX);
    let rejects: Vec<Reject> = left_out
        .range(range.clone())
        .map(|(i, reason)| Reject {
            row: row(*i),
            line: 0,
            byte: 0,
            column: None,
            reason: reason.clone(),
            raw: Bytes::new(),
        })
        .collect();
    let rows: Vec<usize> = range.clone().filter(|i| !left_out.contains_key(i)).collect();
    let taken = if rejects.is_empty() {
        Cow::Borrowed(&samples[range.clone()])
    } else {
        Cow::Owned(rows.iter().map(|i| samples[*i].clone()).collect())
    };
    (taken, rows.into_iter().map(row).collect(), rejects)
}

fn read_samples(
    files: &[SourceFile],
    entries: &[FileEntry],
    samples: &[SampleFiles],
    rows: &[u32],
    left_out: Vec<Reject>,
    on_error: OnError,
) -> Result<Read> {
    // All parts share one allocation: thousands of small ones, freed by other threads, would stay with the allocator.
    let total: u64 = samples.iter().map(|sample| sample.bytes(entries)).sum();
    let arena = RefCell::new(BytesMut::with_capacity(usize::try_from(total).unwrap_or_default()));
    let read = |entry: &FileEntry| read_file(files, entry, &mut arena.borrow_mut());
    let mut block = match read_block(samples, entries, &read) {
        Ok(block) => block,
        Err(e) if on_error == OnError::Fail => return Err(e),
        // One file cannot be read: find out which sample it is of, and take the others.
        Err(_) => read_apart(samples, entries, &read)?,
    };
    let in_range = |row: u32| rows.get(row as usize).copied().unwrap_or(row);
    block.rows.iter_mut().for_each(|row| *row = in_range(*row));
    block.rejects.iter_mut().for_each(|reject| reject.row = in_range(reject.row));
    Ok(Read::Parsed { source: 0, offset: 0, parsed: Parsed::Block(block), left_out })
}

fn read_file(files: &[SourceFile], entry: &FileEntry, arena: &mut BytesMut) -> Result<Bytes> {
    let file = files.get(entry.source as usize).ok_or_else(|| Error::internal("a file is not in the scan"))?;
    let expected = usize::try_from(file.bytes()).map_err(|_| Error::internal("a file is larger than memory"))?;
    let mut input = file.object.read()?;
    arena.resize(expected, 0);
    let mut found = 0;
    while found < expected {
        match input.read(&mut arena[found..])? {
            0 => break,
            n => found += n,
        }
    }
    // A file that grows while it is read must not take more memory than planned.
    let grew = found == expected && input.read(&mut [0; 1])? > 0;
    if found < expected || grew {
        let found = if grew { "more".to_owned() } else { found.to_string() };
        arena.clear();
        return Err(Error::input(format!("expected {expected} bytes, found {found}"))
            .at(file.uri.clone())
            .hint("the file changed while it was read; run the command again"));
    }
    Ok(arena.split().freeze())
}

/// Reads samples one by one; those that cannot be read become rejects.
fn read_apart(
    samples: &[SampleFiles],
    entries: &[FileEntry],
    read: &dyn Fn(&FileEntry) -> Result<Bytes>,
) -> Result<RecordBlock> {
    let mut all = read_block(&[], entries, read)?;
    let mut taken = Vec::new();
    for (sample, row) in samples.iter().zip(0..) {
        match read_block(std::slice::from_ref(sample), entries, read) {
            Ok(block) => {
                if let Payload::Samples(samples) = block.payload {
                    all.rows.extend(samples.iter().map(|_| row));
                    taken.extend(samples);
                }
                all.hashes.extend(block.hashes);
                all.rejects.extend(block.rejects.into_iter().map(|reject| Reject { row, ..reject }));
                all.bytes_in += block.bytes_in;
            }
            Err(e) => all.rejects.push(Reject {
                row,
                line: 0,
                byte: 0,
                column: None,
                reason: format!("{}: {e}", sample.key(entries)),
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
        let results = ordered(scope, table_splits(sources, memory), jobs, memory.parse_window, cancel, |piece| {
            Ok(match piece {
                TablePiece::End(..) => None,
                TablePiece::Split(source, split) => {
                    Some((source, sources[source].reader.infer(&split), split.bytes_in()))
                }
            })
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
