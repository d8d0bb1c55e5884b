//! Gathers what was read, in order: numbers the rows, counts everything, and deals with rejects and notes.
//!
//! This is the one place where the order of the input becomes the order of the records, and where
//! in = out + rejected is counted.

use std::{
    io::Read as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    encode::{SourceBatch, SourceName},
    rejects::{RejectLine, RejectsFile},
    suppress::without_origins,
};
use crate::{
    dataset::SuppressList,
    error::{Error, Result},
    events::{Event, Observer},
    format::{Misfit, Parsed},
    record::{Oddity, RecordBlock, Reject, Remark, numbers::Numbers},
    scan::SourceFile,
};

/// What to do with a bad record or file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Stop; nothing is committed.
    #[default]
    Fail,
    /// Leave it out and count it.
    Skip,
    /// Leave it out, count it, and keep it in a rejects file.
    Quarantine,
}

/// What came of reading a part of a source.
#[derive(Debug)]
pub enum ReadOutcome {
    /// A split was parsed.
    Parsed {
        /// Index of the source.
        source: usize,
        /// Offset of the split in the source.
        offset: u64,
        /// What became of it.
        parsed: Parsed,
        /// Records that were read well but are not wanted, whatever becomes of bad ones.
        left_out: Vec<Reject>,
        /// Records that were read well and left out because they were erased before.
        erased: u64,
    },
    /// A part of a source, or the rest of it, cannot be read, and the run goes on without it.
    Broken {
        /// Index of the source.
        source: usize,
        /// What is wrong.
        error: Error,
        /// Records in it; 1 where nobody knows how many there are.
        records: u64,
    },
    /// A source came to its end.
    End {
        /// Index of the source.
        source: usize,
        /// XXH3-64 of its bytes as stored.
        hash: u64,
    },
}

/// What is known about each source after a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourceTally {
    /// Records in it, rejected ones included.
    pub records: u64,
    /// Number of its first record, counted from the first record of the run.
    pub first_record: u64,
    /// XXH3-64 of its bytes.
    pub hash: u64,
}

/// Everything that was counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// Records read.
    pub records_in: u64,
    /// Records not taken.
    pub rejected: u64,
    /// Those of them that were erased before.
    pub erased: u64,
    /// Records taken whose ids are other spellings of erased ones.
    pub similar: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Empty lines.
    pub blank_lines: u64,
    /// Records with missing fields.
    pub padded: u64,
    /// Damaged records that were repaired.
    pub repaired: u64,
    /// Lines that hold no record and were skipped.
    pub skipped_lines: u64,
    /// Entries of archives that are no files.
    pub passed_over: u64,
    /// Per source.
    pub sources: Vec<SourceTally>,
    /// Set when a value did not fit and the run must start again with wider types.
    pub misfit: Option<(usize, Misfit)>,
}

/// Records that follow each other in the output, in their order.
#[derive(Debug)]
pub struct Gathered {
    /// The records; none where all records of a split were rejected.
    pub records: SourceBatch,
    /// Bytes of input that they stand for.
    pub bytes_in: u64,
}

/// What gathering needs besides its input.
#[derive(Clone, Copy)]
pub struct GatherSetup<'a> {
    /// What to do with bad records.
    pub on_error: OnError,
    /// Destination of rejected records; `None` if they are not kept.
    pub rejects: Option<&'a RejectsFile>,
    /// The sources, in their order.
    pub sources: &'a [SourceFacts],
    /// Receives all counts, also those of a run that fails.
    pub tally: &'a Mutex<Tally>,
    /// Receives progress events and notes.
    pub observer: &'a dyn Observer,
    /// Origins of erased records, which are left out; `None` if nothing was erased.
    pub suppress: Option<&'a SuppressList>,
}

/// Brings what was read into order.
pub struct Gather<'a, I> {
    input: I,
    setup: GatherSetup<'a>,
    accepted: u64,
    /// Source that is being read, with records and lines seen of it.
    position: Position,
}

/// What the gatherer needs to know about a source.
#[derive(Debug, Clone)]
pub struct SourceFacts {
    /// How its records are named.
    pub name: Arc<SourceName>,
    /// The file; of samples, which have no lines, the first one.
    pub file: SourceFile,
    /// Whether content hashes of its records are those of their bytes: of text they are.
    pub hashes_bytes: bool,
    /// Whether its records are numbered only, and lie neither on lines nor at bytes of their own.
    pub by_row: bool,
    /// Blank lines before its records, which are in no split.
    pub blank_lines: u64,
    /// What was decided about it that its records do not show.
    pub note: Option<String>,
}

impl SourceFacts {
    /// Whether its records are samples, which name their files themselves and have no lines.
    fn is_samples(&self) -> bool {
        self.name.name.is_empty()
    }

    /// Lines before a byte: what comes before the first split, a header, is not counted by the reader.
    fn lines_before(&self, byte: u64) -> u64 {
        let mut head = Vec::new();
        // Without the count the message is still right about the byte.
        match self.file.open(|_| {}).map(|r| r.take(byte).read_to_end(&mut head)) {
            Ok(Ok(_)) => head.iter().filter(|b| **b == b'\n').count() as u64,
            _ => 0,
        }
    }
}

#[derive(Debug, Default)]
struct Position {
    source: Option<usize>,
    records: u64,
    lines: u64,
    first_offset: u64,
    head_lines: Option<u64>,
    /// Unusual lines: for each reason the first line, counted from 1 within the source, and their number.
    remarks: Vec<Remark>,
}

impl<'a, I: Iterator<Item = Result<ReadOutcome>>> Gather<'a, I> {
    /// Gathers from `input`.
    pub fn new(input: I, setup: GatherSetup<'a>) -> Self {
        Self { input, setup, accepted: 0, position: Position::default() }
    }

    fn tally(&self) -> MutexGuard<'a, Tally> {
        self.setup.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records to hand on, if there are any.
    fn take(&mut self, read: ReadOutcome) -> Result<Option<Gathered>> {
        match read {
            ReadOutcome::End { source, hash } => {
                self.enter(source);
                self.tally().sources[source].hash = hash;
                Ok(None)
            }
            ReadOutcome::Broken { source, error, records } => self.broken(source, &error, records).map(|()| None),
            ReadOutcome::Parsed { source, parsed: Parsed::Misfit(misfit), .. } => {
                let error = Error::input(format!("expected {}, found `{}`", misfit.expected, misfit.value))
                    .at(self.setup.sources[source].file.uri())
                    .byte(misfit.byte)
                    .column(misfit.column.clone());
                self.tally().misfit = Some((source, misfit));
                Err(error)
            }
            ReadOutcome::Parsed { source, offset, parsed: Parsed::Block(block), left_out, erased } => {
                if self.enter(source) {
                    self.position.first_offset = offset;
                }
                self.block(source, block, &left_out, erased).map(Some)
            }
        }
    }

    /// Notes that records of `source` follow; true when they are its first.
    fn enter(&mut self, source: usize) -> bool {
        if self.position.source == Some(source) {
            return false;
        }
        self.report_remarks();
        self.position = Position { source: Some(source), ..Position::default() };
        let facts = &self.setup.sources[source];
        let mut tally = self.tally();
        tally.sources[source].first_record = self.accepted;
        tally.blank_lines += facts.blank_lines;
        if let Some(note) = &facts.note {
            self.setup.observer.event(Event::Note(format!("{}: {note}", facts.name.name)));
        }
        true
    }

    fn broken(&mut self, source: usize, error: &Error, records: u64) -> Result<()> {
        self.enter(source);
        let first = self.position.records + 1;
        self.position.records += records;
        {
            let mut tally = self.tally();
            tally.records_in += records;
            tally.rejected += records;
            tally.sources[source].records += records;
        }
        self.setup.observer.event(Event::Note(format!("left out: {error}")));
        if self.setup.on_error != OnError::Quarantine {
            return Ok(());
        }
        self.rejects_file()?.fault(first, records, error)
    }

    fn rejects_file(&self) -> Result<&'a RejectsFile> {
        self.setup.rejects.ok_or_else(|| Error::internal("there is no file for rejects"))
    }

    fn block(&mut self, source: usize, block: RecordBlock, left_out: &[Reject], erased: u64) -> Result<Gathered> {
        let records = block.records_in() + left_out.len() as u64 + erased;
        let name = &self.setup.sources[source].name.name;
        let (block, more) = match self.setup.suppress.filter(|list| list.has_origins_in(name)) {
            Some(list) => {
                let hashes_bytes = self.setup.sources[source].hashes_bytes;
                without_origins(list, name, self.position.records, hashes_bytes, block)?
            }
            None => (block, 0),
        };
        let erased = erased + more;
        for reject in &block.rejects {
            self.reject(source, reject, self.setup.on_error)?;
        }
        let quiet = if self.setup.on_error == OnError::Quarantine { OnError::Quarantine } else { OnError::Skip };
        for reject in left_out {
            self.reject(source, reject, quiet)?;
        }
        for remark in &block.remarks {
            self.remark(source, *remark);
        }
        let base = self.position.records;
        self.position.records += records;
        self.position.lines += block.lines;
        {
            let mut tally = self.tally();
            tally.records_in += records;
            tally.rejected += (block.rejects.len() + left_out.len()) as u64 + erased;
            tally.erased += erased;
            tally.bytes_in += block.bytes_in;
            tally.blank_lines += block.blank_lines;
            tally.padded += block.padded;
            for remark in &block.remarks {
                match remark.oddity {
                    Oddity::Doubtful => {}
                    Oddity::Repaired => tally.repaired += remark.count,
                    Oddity::Skipped => tally.skipped_lines += remark.count,
                }
            }
            tally.passed_over += block.passed_over;
            tally.sources[source].records += records;
        }
        self.setup.observer.event(Event::Read { bytes: block.bytes_in, records });
        self.accepted += block.payload.len() as u64;
        let records = SourceBatch {
            source: Arc::clone(&self.setup.sources[source].name),
            rows: match block.rows.as_slice() {
                [] => Numbers::counting(base + 1, block.payload.len()),
                rows => rows.iter().map(|row| base + u64::from(*row) + 1).collect::<Vec<u64>>().into(),
            },
            hashes: Numbers::shared(block.hashes, block.sharing),
            payload: block.payload,
        };
        Ok(Gathered { records, bytes_in: block.bytes_in })
    }

    /// Adds to the remarks about the current source.
    fn remark(&mut self, source: usize, remark: Remark) {
        let line = self.line(source, remark.line);
        match self.position.remarks.iter_mut().find(|one| one.why == remark.why) {
            Some(one) => one.count += remark.count,
            None => self.position.remarks.push(Remark { line, ..remark }),
        }
    }

    /// Reports what was unusual about the source that was read last.
    fn report_remarks(&mut self) {
        let Some(source) = self.position.source else { return };
        for Remark { line, count, why, .. } in std::mem::take(&mut self.position.remarks) {
            let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
            let name = &self.setup.sources[source].name.name;
            self.setup.observer.event(Event::Note(format!("{name}, line {line}: {why}{more}")));
        }
    }

    fn reject(&mut self, source: usize, reject: &Reject, on_error: OnError) -> Result<()> {
        if on_error == OnError::Skip {
            return Ok(());
        }
        let facts = &self.setup.sources[source];
        let places = !facts.is_samples() && !facts.by_row;
        let line = if places { self.line(source, reject.line) } else { 0 };
        let row = self.position.records + u64::from(reject.row) + 1;
        match on_error {
            OnError::Quarantine => {
                let line = RejectLine {
                    source: (!facts.is_samples()).then(|| facts.file.uri()),
                    row,
                    records: None,
                    line: places.then_some(line),
                    byte: places.then_some(reject.byte),
                    column: reject.column.as_deref(),
                    reason: &reject.reason,
                    raw: None,
                    raw_base64: None,
                };
                self.rejects_file()?.write(line.with_raw(&reject.raw), self.setup.suppress)
            }
            _ => {
                let reason = if facts.by_row { format!("row {row}: {}", reject.reason) } else { reject.reason.clone() };
                let mut error = Error::input(reason).hint(
                    "leave bad records out with --on-error skip, or keep them in a file with --on-error quarantine",
                );
                if !facts.is_samples() {
                    error = error.at(facts.file.uri());
                }
                if places {
                    error = error.line(line).byte(reject.byte);
                }
                if let Some(column) = &reject.column {
                    error = error.column(column.clone());
                }
                Err(error)
            }
        }
    }

    /// Number of a line of the current split within its source, from 1.
    fn line(&mut self, source: usize, line: u64) -> u64 {
        let first_offset = self.position.first_offset;
        let facts = &self.setup.sources[source];
        let head = *self.position.head_lines.get_or_insert_with(|| facts.lines_before(first_offset));
        head + self.position.lines + line + 1
    }
}

impl<I: Iterator<Item = Result<ReadOutcome>>> Iterator for Gather<'_, I> {
    type Item = Result<Gathered>;

    fn next(&mut self) -> Option<Result<Gathered>> {
        loop {
            let Some(read) = self.input.next() else {
                self.report_remarks();
                return None;
            };
            match read.and_then(|read| self.take(read)) {
                Ok(None) => {}
                Ok(Some(gathered)) => return Some(Ok(gathered)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
