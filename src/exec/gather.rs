//! Gathers parsed splits in order: numbers the rows, counts everything, and handles rejects and notes.
//!
//! This is the only place where the order of the input becomes the order of the records and where in = out + rejected +
//! deduplicated + filtered is counted.

use std::{
    collections::VecDeque,
    io::Read as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    dedup::{DedupGate, Places},
    encode::{SourceBatch, SourceName},
    rejects::{RejectLine, RejectsFile},
    separated::Separated,
    sides::SideRecords,
    suppress::{without, without_origins},
};
use crate::{
    codec::encoding,
    dataset::SuppressList,
    error::{Error, Result},
    events::{Event, Observer},
    format::{Framing, Parsed, TypeMismatch},
    record::{
        IGNORED_NAMES, Oddity, Payload, RecordBlock, Reject, Remark, SourcePart, named, numbers::Numbers, side::Side,
    },
    scan::SourceFile,
};

/// Bytes of a source that tell its encoding.
const HEAD_BYTES: usize = 256 << 10;

/// How bad records and files are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// Stop the run; nothing is committed.
    #[default]
    Fail,
    /// Skip them and count them.
    Skip,
    /// Skip them, count them, and write them to a rejects file.
    Quarantine,
}

/// Result of reading a part of a source.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all outcomes are parsed splits")]
pub enum ReadOutcome {
    /// The records that follow are those of a part of a source, which is not its first.
    Entered {
        /// Index of the source.
        source: usize,
        /// The part.
        part: SourcePart,
    },
    /// A split was parsed.
    Parsed {
        /// Index of the source.
        source: usize,
        /// Offset of the split in the source.
        offset: u64,
        /// Parsed content, or a value that does not fit its column.
        parsed: Parsed,
        /// Records of each side, taken out of the block; empty if the dataset is not divided.
        sides: Vec<SideRecords>,
        /// Valid records that are filtered out, regardless of `on_error`.
        rejected: Vec<Reject>,
        /// Number of valid records skipped because they were erased before.
        erased: u64,
        /// Number of valid records that do not satisfy the condition of the run.
        filtered: u64,
    },
    /// A part of a source, or the rest of it, cannot be read, and the run continues without it.
    Broken {
        /// Index of the source.
        source: usize,
        /// Cause.
        error: Error,
        /// Number of records in it; 1 if unknown.
        records: u64,
    },
    /// A source has ended.
    End {
        /// Index of the source.
        source: usize,
        /// XXH3-64 of its bytes as stored; 0 if only a part of them was read.
        hash: u64,
    },
}

/// Counts and hash of a source after a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourceTally {
    /// Number of records in it, including rejected ones, and of rows that are deleted.
    pub records: u64,
    /// Number of its first record, relative to the first record of the run.
    pub first_record: u64,
    /// XXH3-64 of its bytes; 0 if only a part of them was read.
    pub hash: u64,
}

/// Counts of a run.
#[derive(Debug, Default)]
pub struct Tally {
    /// Records read.
    pub records_in: u64,
    /// Records that were not accepted.
    pub rejected: u64,
    /// Rejected records that were erased before.
    pub erased: u64,
    /// Records that do not satisfy the condition of the run.
    pub filtered: u64,
    /// Records that are duplicates of others.
    pub deduplicated: u64,
    /// Accepted records whose ids are other spellings of erased ones.
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
    /// Archive entries that are not files.
    pub ignored: u64,
    /// Counts per source.
    pub sources: Vec<SourceTally>,
    /// For each side of a divided dataset, the number of the first record of each source, relative to the first record
    /// of the run; `None` for sources without records there. Empty if the dataset is not divided.
    pub firsts: Vec<Vec<Option<u64>>>,
    /// Set if a value did not fit, so that the run must start again with wider types.
    pub mismatch: Option<(usize, TypeMismatch)>,
}

/// Consecutive records of the output.
#[derive(Debug)]
pub struct Gathered {
    /// The records; empty if all records of a split were rejected.
    pub records: SourceBatch,
    /// Stored bytes of input that they account for: over a whole run, at most the size of the input. Records of one
    /// side account for what was read since the last ones of that side.
    pub bytes_in: u64,
    /// Side of the dataset that they belong to.
    pub side: Side,
}

/// Returns the bytes of input that count for a file of a sample.
pub fn counted_size(framing: Option<&dyn Framing>, content: u64) -> u64 {
    framing.map_or(content, |framing| framing.member_size(content))
}

/// Everything that gathering needs besides its input.
#[derive(Clone, Copy)]
pub struct GatherSetup<'a> {
    /// How bad records are handled.
    pub on_error: OnError,
    /// Destination of rejected records; `None` if they are not kept.
    pub rejects: Option<&'a RejectsFile>,
    /// The sources, in their order.
    pub sources: &'a [SourceFacts],
    /// Receives all counts, also those of a failing run.
    pub tally: &'a Mutex<Tally>,
    /// Receives progress events and notes.
    pub observer: &'a dyn Observer,
    /// Origins of erased records, which are skipped; `None` if nothing was erased.
    pub suppress: Option<&'a SuppressList>,
    /// Leaves out duplicates; `None` if all are kept and no fingerprints are stored.
    pub dedup: Option<&'a DedupGate<'a>>,
    /// Framing of the shards; `None` for Parquet.
    pub framing: Option<&'a dyn Framing>,
}

/// Gathers parsed splits in order.
pub struct Gather<'a, I> {
    input: I,
    setup: GatherSetup<'a>,
    accepted: u64,
    /// What each side got; empty if the dataset is not divided.
    by_side: Vec<SideCount>,
    /// Records that are to be passed on.
    ready: VecDeque<Gathered>,
    /// Stored bytes of input up to the newest record.
    read: u64,
    /// Stored bytes of the sources before the current one.
    read_before: u64,
    /// Records of the sources before the current one.
    records_before: u64,
    /// Position of the first record of each source so far, if duplicates are left out, and the source.
    starts: Vec<(u64, usize)>,
    /// Position in the source that is being read.
    position: Position,
    /// Names of archive entries that hold data and were ignored.
    ignored: Vec<String>,
}

/// What a side of a divided dataset got.
#[derive(Debug, Clone, Default)]
struct SideCount {
    /// Accepted records.
    accepted: u64,
    /// Bytes of input since its last records. They account for all sides, so that the rest of a side can be estimated
    /// from the rest of the input, however large its share is.
    bytes_in: u64,
}

/// Properties of a source that gathering needs.
#[derive(Debug, Clone)]
pub struct SourceFacts {
    /// How its records are named.
    pub name: Arc<SourceName>,
    /// The file; for samples, which have no lines, the first file.
    pub file: SourceFile,
    /// Stored bytes of it that are read: all, or those of a part.
    pub bytes: u64,
    /// Whether content hashes of its records are hashes of their bytes, as for text.
    pub hashes_bytes: bool,
    /// Whether sidecars have the content hashes of its records, unless they hash the records as framed.
    pub stores_hashes: bool,
    /// Whether its records have only row numbers, without lines or byte offsets of their own.
    pub by_row: bool,
    /// Blank lines before its first record, which belong to no split.
    pub blank_lines: u64,
    /// Lines before its first record that are not records, and belong to no split.
    pub lines_skipped: u64,
    /// Note on a decision about it that its records do not show.
    pub note: Option<String>,
}

impl SourceFacts {
    /// Returns whether its records are samples, which state their own files and have no lines.
    fn is_samples(&self) -> bool {
        self.name.name.is_empty()
    }

    /// Returns what to do about a record that cannot be converted. Text in another encoding is not to be skipped.
    fn hint(&self, record: &[u8]) -> &'static str {
        if !self.hashes_bytes || std::str::from_utf8(record).is_ok() {
            return "skip bad records with --on-error skip, or keep them in a file with --on-error quarantine";
        }
        let mut text = self.file.head(HEAD_BYTES).map(|head| head.bytes).unwrap_or_default();
        text.push(b'\n');
        text.extend_from_slice(record);
        encoding::hint(&text)
    }

    /// Counts the lines before a byte, because the reader does not count those before the first split, such as a
    /// header.
    fn lines_before(&self, byte: u64) -> u64 {
        let mut head = Vec::new();
        // If counting fails, the byte in the message is still right.
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
    bytes: u64,
    first_offset: u64,
    /// Lines before the first split, once they were counted.
    head_lines: Option<u64>,
    /// Unusual lines: for each reason the first line, counted from 1 within the source, and their number.
    remarks: Vec<Remark>,
    /// Samples of an archive whose keys come again.
    separated: Separated,
}

impl<'a, I: Iterator<Item = Result<ReadOutcome>>> Gather<'a, I> {
    /// Gathers from `input`.
    pub fn new(input: I, setup: GatherSetup<'a>) -> Self {
        let sides = setup.tally.lock().unwrap_or_else(PoisonError::into_inner).firsts.len();
        Self {
            input,
            setup,
            accepted: 0,
            by_side: vec![SideCount::default(); sides],
            ready: VecDeque::new(),
            read: 0,
            read_before: 0,
            records_before: 0,
            starts: Vec::new(),
            position: Position::default(),
            ignored: Vec::new(),
        }
    }

    fn tally(&self) -> MutexGuard<'a, Tally> {
        self.setup.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the records that are passed on ready.
    fn process(&mut self, read: ReadOutcome) -> Result<()> {
        match read {
            ReadOutcome::Entered { source, part } => {
                self.enter_part(source, &part);
                Ok(())
            }
            ReadOutcome::End { source, hash } => {
                self.enter(source);
                self.tally().sources[source].hash = hash;
                Ok(())
            }
            ReadOutcome::Broken { source, error, records } => self.broken(source, &error, records),
            ReadOutcome::Parsed { source, parsed: Parsed::Mismatch(mismatch), .. } => {
                let error = mismatch.error().at(self.setup.sources[source].file.uri()).byte(mismatch.byte);
                self.tally().mismatch = Some((source, mismatch));
                Err(error)
            }
            ReadOutcome::Parsed { source, offset, parsed: Parsed::Block(block), sides, rejected, erased, filtered } => {
                if self.enter(source) {
                    self.position.first_offset = offset;
                }
                self.block(source, (block, sides), &rejected, (erased, filtered))
            }
        }
    }

    /// Notes that records of `source` follow; returns true if they are its first.
    fn enter(&mut self, source: usize) -> bool {
        if self.position.source == Some(source) {
            return false;
        }
        self.move_to(Position { source: Some(source), ..Position::default() });
        let facts = &self.setup.sources[source];
        {
            let mut tally = self.tally();
            tally.blank_lines += facts.blank_lines;
            tally.skipped_lines += facts.lines_skipped;
        }
        if let Some(note) = &facts.note {
            self.setup.observer.event(Event::Note(format!("{}: {note}", facts.name.name)));
        }
        true
    }

    /// Notes that records of a part of `source` follow. What concerns the source as a whole was told by its first part.
    fn enter_part(&mut self, source: usize, part: &SourcePart) {
        let (records, head_lines) = (part.first_row, Some(part.first_line));
        self.move_to(Position { source: Some(source), records, head_lines, ..Position::default() });
    }

    fn move_to(&mut self, position: Position) {
        self.report_remarks();
        if let Some(source) = position.source {
            let before = self.setup.sources.get(self.position.source.unwrap_or(0)..source).unwrap_or_default();
            self.read_before += before.iter().map(|facts| facts.bytes).sum::<u64>();
            self.tally().sources[source].first_record = self.accepted;
        }
        if self.position.source != position.source {
            self.records_before += self.position.records;
            if let Some(source) = position.source.filter(|_| self.setup.dedup.is_some()) {
                self.starts.push((self.records_before, source));
            }
        }
        self.position = position;
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
        self.setup.observer.event(Event::Note(format!("skipped: {error}")));
        if self.setup.on_error != OnError::Quarantine {
            return Ok(());
        }
        self.rejects_file()?.fault(first, records, error)
    }

    fn rejects_file(&self) -> Result<&'a RejectsFile> {
        self.setup.rejects.ok_or_else(|| Error::internal("there is no file for rejects"))
    }

    fn block(
        &mut self,
        source: usize,
        (block, sides): (RecordBlock, Vec<SideRecords>),
        rejected: &[Reject],
        (erased, filtered): (u64, u64),
    ) -> Result<()> {
        let accepted: usize = sides.iter().map(|part| part.records.payload.len()).sum();
        let records = block.records_in() + (accepted + rejected.len()) as u64 + erased + filtered;
        let (block, sides, by_origin) = self.without_erased_origins(source, block, sides)?;
        let erased = erased + by_origin;
        for reject in &block.rejects {
            self.reject(source, reject, self.setup.on_error)?;
        }
        let quiet = if self.setup.on_error == OnError::Quarantine { OnError::Quarantine } else { OnError::Skip };
        for reject in rejected {
            self.reject(source, reject, quiet)?;
        }
        for remark in &block.remarks {
            self.remark(source, *remark);
        }
        let of_sides = sides.iter().map(|part| &part.records.payload);
        std::iter::once(&block.payload).chain(of_sides).for_each(|payload| self.look_for_separated(source, payload));
        // One more than is named says that there are others.
        let room = IGNORED_NAMES + 1 - self.ignored.len();
        self.ignored.extend(block.ignored_names.iter().take(room).cloned());
        let base = self.position.records;
        self.position.records += records + block.deleted;
        self.position.lines += block.lines;
        {
            let mut tally = self.tally();
            tally.records_in += records;
            tally.rejected += (block.rejects.len() + rejected.len()) as u64 + erased;
            tally.erased += erased;
            tally.filtered += filtered;
            tally.bytes_in += block.bytes_in;
            tally.blank_lines += block.blank_lines;
            tally.padded += block.padded;
            for remark in &block.remarks {
                match remark.oddity {
                    Oddity::Doubtful => {}
                    Oddity::Repaired => tally.repaired += remark.count,
                }
            }
            tally.ignored += block.ignored;
            tally.sources[source].records += records + block.deleted;
        }
        self.setup.observer.event(Event::Read { bytes: block.bytes_in, records });
        let bytes_in = self.account(source, block.bytes_in, &block.payload, &sides);
        let (block, sides) = self.without_duplicates((source, base), block, sides)?;
        if sides.is_empty() {
            self.pass_on(source, base, SideRecords { side: 0, records: block }, bytes_in);
            return Ok(());
        }
        self.by_side.iter_mut().for_each(|side| side.bytes_in += bytes_in);
        for part in sides {
            let bytes_in = self.count_side(source, part.side, part.records.payload.len());
            self.pass_on(source, base, part, bytes_in);
        }
        Ok(())
    }

    /// Takes out the records whose origins were erased, and counts them.
    fn without_erased_origins(
        &self,
        source: usize,
        mut block: RecordBlock,
        mut sides: Vec<SideRecords>,
    ) -> Result<(RecordBlock, Vec<SideRecords>, u64)> {
        let SourceFacts { name, hashes_bytes, .. } = &self.setup.sources[source];
        let Some(list) = self.setup.suppress.filter(|list| list.has_origins_in(&name.name)) else {
            return Ok((block, sides, 0));
        };
        let mut erased = 0;
        for records in std::iter::once(&mut block).chain(sides.iter_mut().map(|part| &mut part.records)) {
            let whole = std::mem::replace(records, RecordBlock::empty());
            let (rest, count) = without_origins(list, &name.name, self.position.records, *hashes_bytes, whole)?;
            *records = rest;
            erased += count;
        }
        Ok((block, sides, erased))
    }

    /// Takes out duplicates, counts them and puts them on record; `base` is the number of the source's records before
    /// the block.
    fn without_duplicates(
        &self,
        (source, base): (usize, u64),
        mut block: RecordBlock,
        mut sides: Vec<SideRecords>,
    ) -> Result<(RecordBlock, Vec<SideRecords>)> {
        let Some(gate) = self.setup.dedup else { return Ok((block, sides)) };
        let all = std::iter::once(&block).chain(sides.iter().map(|part| &part.records));
        let Some(firsts) = gate.duplicates(all, self.records_before + base)? else { return Ok((block, sides)) };
        let places = Places { names: self.setup.sources, starts: &self.starts, source, base };
        let all = std::iter::once(&mut block).chain(sides.iter_mut().map(|part| &mut part.records));
        for (records, firsts) in all.zip(&firsts) {
            gate.record(records, firsts, &places)?;
            let duplicates: Vec<bool> = firsts.iter().map(Option::is_some).collect();
            let (rest, count) = without(std::mem::replace(records, RecordBlock::empty()), &duplicates)?;
            *records = rest;
            self.tally().deduplicated += count;
        }
        Ok((block, sides))
    }

    /// Makes records ready to be passed on; `base` is the number of the source's records before their block.
    fn pass_on(&mut self, source: usize, base: u64, SideRecords { side, records: block }: SideRecords, bytes_in: u64) {
        self.accepted += block.payload.len() as u64;
        let records = SourceBatch {
            source: Arc::clone(&self.setup.sources[source].name),
            rows: match block.rows.as_slice() {
                [] => Numbers::counting(base + 1, block.payload.len()),
                rows => rows.iter().map(|row| base + u64::from(*row) + 1).collect::<Vec<u64>>().into(),
            },
            hashes: match self.setup.sources[source].stores_hashes {
                true => Numbers::shared(block.hashes, block.sharing),
                false => Numbers::same(0, block.payload.len()),
            },
            fingerprints: match self.setup.dedup {
                Some(gate) if gate.stores() => block.fingerprints.into_iter().flatten().collect(),
                _ => Vec::new(),
            },
            payload: block.payload,
            sidecar: None,
        };
        self.ready.push_back(Gathered { records, bytes_in, side });
    }

    /// Notes where the records of a source begin on a side, as a number among the records of that side. Returns the
    /// bytes of input since its last records.
    fn count_side(&mut self, source: usize, side: Side, records: usize) -> u64 {
        let number = usize::from(side);
        let mut tally = self.tally();
        let Some(side) = self.by_side.get_mut(number) else { return 0 };
        let first = tally.firsts.get_mut(number).and_then(|firsts| firsts.get_mut(source)).filter(|_| records > 0);
        if let Some(first) = first {
            first.get_or_insert(side.accepted);
        }
        side.accepted += records as u64;
        std::mem::take(&mut side.bytes_in)
    }

    /// Returns the stored bytes of input since the last records. What no record accounts for, such as a header or a
    /// broken part, counts with the first records of the next source.
    fn account(&mut self, source: usize, bytes: u64, payload: &Payload, sides: &[SideRecords]) -> u64 {
        let facts = &self.setup.sources[source];
        if facts.is_samples() {
            // Each file counts as its member does, because many may be smaller than their headers.
            let payloads = std::iter::once(payload).chain(sides.iter().map(|part| &part.records.payload));
            let samples = payloads.filter_map(|payload| match payload {
                Payload::Samples(samples) => Some(samples),
                Payload::Rows(_) => None,
            });
            let parts = samples.flatten().flat_map(|sample| &sample.parts);
            return parts.map(|part| counted_size(self.setup.framing, part.bytes.len() as u64)).sum();
        }
        // A compressed source has more bytes than are stored.
        self.position.bytes += bytes;
        let read = self.read_before + self.position.bytes.min(facts.bytes);
        read - std::mem::replace(&mut self.read, read)
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
        if let Some(note) = std::mem::take(&mut self.position.separated).note(&self.setup.sources[source].name.name) {
            self.setup.observer.event(Event::Note(note));
        }
    }

    /// Notes which samples of an archive come again.
    fn look_for_separated(&mut self, source: usize, payload: &Payload) {
        let facts = &self.setup.sources[source];
        let (Payload::Samples(samples), false) = (payload, facts.is_samples()) else { return };
        for sample in samples {
            self.position.separated.add(&sample.key, sample.parts.iter().map(|part| part.extension.as_str()));
        }
    }

    /// Names what was ignored although it holds data.
    fn report_ignored(&mut self) {
        let names = std::mem::take(&mut self.ignored);
        if !names.is_empty() {
            let more = if names.len() > IGNORED_NAMES { ", and others" } else { "" };
            let names = named(&names[..names.len().min(IGNORED_NAMES)], 0);
            self.setup.observer.event(Event::Note(format!(
                "ignored archive members, which hold data but are leftovers of a system or of an unknown type: \
                 {names}{more}"
            )));
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
                let mut error = Error::input(reason).hint(facts.hint(&reject.raw));
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

    /// Returns the number of a line of the current split within its source, from 1.
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
            if let Some(gathered) = self.ready.pop_front() {
                return Some(Ok(gathered));
            }
            let Some(read) = self.input.next() else {
                self.report_remarks();
                self.report_ignored();
                return None;
            };
            if let Err(error) = read.and_then(|read| self.process(read)) {
                return Some(Err(error));
            }
        }
    }
}
