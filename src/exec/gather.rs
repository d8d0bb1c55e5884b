//! Gathers parsed blocks to units: numbers the rows, counts everything, deals with rejects, and cuts.
//!
//! This is the one place where the order of the input becomes the order of the records, and where
//! in = out + rejected is counted.

use std::{
    collections::VecDeque,
    io::Read as _,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{
    encode::{Piece, SourceName, Unit},
    rejects::{RejectLine, RejectsFile},
    suppress::without_origins,
};
use crate::{
    dataset::SuppressList,
    error::{Error, Result},
    events::{Event, Observer},
    format::{Misfit, Parsed, parquet::logical_bytes},
    plan::roll::RowGroupPlanner,
    record::{Oddity, Payload, RecordBlock, Reject, Remark, Sample, numbers::Numbers},
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

/// Something that the parse stage hands on.
#[derive(Debug)]
pub enum Read {
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
    /// Damaged records that were read in another way than their neighbours.
    pub repaired: u64,
    /// Lines that are no records and were left out.
    pub skipped_lines: u64,
    /// Entries of archives that are no files.
    pub passed_over: u64,
    /// Per source.
    pub sources: Vec<SourceTally>,
    /// Set when a value did not fit and the run must start again with wider types.
    pub misfit: Option<(usize, Misfit)>,
}

/// Encoded sizes on their way back from the encoders to the planner.
#[derive(Debug, Default)]
pub struct Feedback {
    state: Mutex<FeedbackState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FeedbackState {
    sizes: Vec<Option<u64>>,
    closed: bool,
}

impl Feedback {
    /// Tells the encoded size of a unit.
    pub fn tell(&self, unit: usize, bytes: u64) {
        let mut state = self.lock();
        if state.sizes.len() <= unit {
            state.sizes.resize(unit + 1, None);
        }
        state.sizes[unit] = Some(bytes);
        self.changed.notify_all();
    }

    /// Ends all waiting: the run has failed.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The size of a unit, if it is known by now.
    fn size(&self, unit: usize) -> Option<u64> {
        self.lock().sizes.get(unit).copied().flatten()
    }

    /// Waits for the size of a unit; `None` when the run has failed.
    fn wait(&self, unit: usize) -> Option<u64> {
        let mut state = self.lock();
        loop {
            if let Some(Some(bytes)) = state.sizes.get(unit) {
                return Some(*bytes);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, FeedbackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How units are cut.
#[derive(Debug)]
pub enum Cutting {
    /// Every so many bytes.
    Even {
        /// Bytes of a unit.
        bytes: u64,
        /// Bytes that a member of a record takes besides its content.
        member: u64,
    },
    /// By what is missing in the shard.
    RowGroups(RowGroupPlanner, Arc<Feedback>),
}

/// Minimum bytes counted per row: its hash, row number and id take memory as well.
const LEAST_ROW: u64 = 32;

impl Cutting {
    /// Estimated bytes of the records once encoded.
    fn weight(&self, payload: &Payload) -> u64 {
        match (self, payload) {
            (Self::RowGroups(..), Payload::Rows(batch)) => {
                logical_bytes(batch).max(LEAST_ROW.saturating_mul(batch.num_rows() as u64))
            }
            (Self::Even { member, .. }, Payload::Rows(batch)) => {
                // In each row the columns are named again.
                let names: u64 = batch.schema_ref().fields().iter().map(|field| field.name().len() as u64 + 4).sum();
                logical_bytes(batch).saturating_add((member + names).saturating_mul(batch.num_rows() as u64))
            }
            (_, Payload::Samples(samples)) => samples.iter().map(|sample| self.weight_of(sample)).sum(),
        }
    }

    fn weight_of(&self, sample: &Sample) -> u64 {
        let member = match self {
            Self::RowGroups(..) => 0,
            Self::Even { member, .. } => *member,
        };
        sample.bytes() + member * sample.parts.len() as u64
    }

    /// Splits a piece of `bytes` so that the head has about `room` bytes; at least one record when `force`.
    fn split(&self, piece: Piece, bytes: u64, room: u64, force: bool) -> (Option<Piece>, u64, Option<Piece>) {
        let records = piece.payload.len();
        let (head_records, head_bytes) = match &piece.payload {
            Payload::Rows(_) => {
                let share = u128::from(room) * records as u128 / u128::from(bytes.max(1));
                let taken = usize::try_from(share).unwrap_or(records).clamp(usize::from(force), records);
                let taken_bytes = u64::try_from(u128::from(bytes) * taken as u128 / records as u128).unwrap_or(bytes);
                (taken, taken_bytes)
            }
            Payload::Samples(samples) => {
                let mut taken = 0;
                let mut taken_bytes = 0;
                for sample in samples {
                    let weight = self.weight_of(sample);
                    if taken_bytes + weight > room && !(force && taken == 0) {
                        break;
                    }
                    taken += 1;
                    taken_bytes += weight;
                }
                (taken, taken_bytes)
            }
        };
        if head_records == 0 {
            return (None, 0, Some(piece));
        }
        if head_records == records {
            return (Some(piece), bytes, None);
        }
        let (head_payload, tail_payload) = match piece.payload {
            Payload::Rows(batch) => (
                Payload::Rows(batch.slice(0, head_records)),
                Payload::Rows(batch.slice(head_records, records - head_records)),
            ),
            Payload::Samples(mut samples) => {
                let tail = samples.split_off(head_records);
                (Payload::Samples(samples), Payload::Samples(tail))
            }
        };
        let (mut rows, mut hashes) = (piece.rows, piece.hashes);
        let (tail_rows, tail_hashes) = (rows.split_off(head_records), hashes.split_off(head_records));
        let source = Arc::clone(&piece.source);
        let tail = Piece { payload: tail_payload, source, rows: tail_rows, hashes: tail_hashes };
        (Some(Piece { payload: head_payload, source: piece.source, rows, hashes }), head_bytes, Some(tail))
    }
}

/// Turns what was read into units.
pub struct Gather<'a, I> {
    input: I,
    cutting: Cutting,
    on_error: OnError,
    rejects: Option<&'a RejectsFile>,
    sources: &'a [SourceFacts],
    tally: &'a Mutex<Tally>,
    observer: &'a dyn Observer,
    suppress: Option<&'a SuppressList>,
    pieces: VecDeque<(Piece, u64)>,
    pending_bytes: u64,
    pending_bytes_in: u64,
    accepted: u64,
    units: usize,
    /// Units whose encoded size the planner was told.
    told: usize,
    /// Budget of the unit that is being filled.
    cut: Option<(u64, bool)>,
    /// Source that is being read, with records and lines seen of it.
    position: Position,
    ended: bool,
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
    /// Unusual lines, of each reason the first and how many; lines count from 1 within the source.
    remarks: Vec<Remark>,
}

impl<'a, I: Iterator<Item = Result<Read>>> Gather<'a, I> {
    /// Gathers from `input`; counts go to `tally`.
    pub fn new(
        input: I,
        cutting: Cutting,
        on_error: OnError,
        rejects: Option<&'a RejectsFile>,
        sources: &'a [SourceFacts],
        tally: &'a Mutex<Tally>,
        observer: &'a dyn Observer,
    ) -> Self {
        Self {
            input,
            cutting,
            on_error,
            rejects,
            sources,
            tally,
            observer,
            suppress: None,
            pieces: VecDeque::new(),
            pending_bytes: 0,
            pending_bytes_in: 0,
            accepted: 0,
            units: 0,
            told: 0,
            cut: None,
            position: Position::default(),
            ended: false,
        }
    }

    /// Leaves out records whose origins are on this list.
    #[must_use]
    pub fn suppressing(self, suppress: Option<&'a SuppressList>) -> Self {
        Self { suppress, ..self }
    }

    fn tally(&self) -> MutexGuard<'a, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&mut self, read: Read) -> Result<()> {
        match read {
            Read::End { source, hash } => {
                self.enter(source);
                self.tally().sources[source].hash = hash;
                Ok(())
            }
            Read::Broken { source, error, records } => self.broken(source, &error, records),
            Read::Parsed { source, parsed: Parsed::Misfit(misfit), .. } => {
                let error = Error::input(format!("expected {}, found `{}`", misfit.expected, misfit.value))
                    .at(self.sources[source].file.uri())
                    .byte(misfit.byte)
                    .column(misfit.column.clone());
                self.tally().misfit = Some((source, misfit));
                Err(error)
            }
            Read::Parsed { source, offset, parsed: Parsed::Block(block), left_out, erased } => {
                if self.enter(source) {
                    self.position.first_offset = offset;
                }
                self.block(source, block, &left_out, erased)
            }
        }
    }

    /// Notes that records of `source` follow; true when they are its first.
    fn enter(&mut self, source: usize) -> bool {
        if self.position.source == Some(source) {
            return false;
        }
        self.tell_remarks();
        self.position = Position { source: Some(source), ..Position::default() };
        let facts = &self.sources[source];
        let mut tally = self.tally();
        tally.sources[source].first_record = self.accepted;
        tally.blank_lines += facts.blank_lines;
        if let Some(note) = &facts.note {
            self.observer.event(Event::Note(format!("{}: {note}", facts.name.name)));
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
        self.observer.event(Event::Note(format!("left out: {error}")));
        if self.on_error != OnError::Quarantine {
            return Ok(());
        }
        self.rejects_file()?.fault(first, records, error)
    }

    fn rejects_file(&self) -> Result<&'a RejectsFile> {
        self.rejects.ok_or_else(|| Error::internal("there is no file for rejects"))
    }

    fn block(&mut self, source: usize, block: RecordBlock, left_out: &[Reject], erased: u64) -> Result<()> {
        let records = block.records_in() + left_out.len() as u64 + erased;
        let name = &self.sources[source].name.name;
        let (block, more) = match self.suppress.filter(|list| list.has_origins_in(name)) {
            Some(list) => {
                let hashes_bytes = self.sources[source].hashes_bytes;
                without_origins(list, name, self.position.records, hashes_bytes, block)?
            }
            None => (block, 0),
        };
        let erased = erased + more;
        for reject in &block.rejects {
            self.reject(source, reject, self.on_error)?;
        }
        let quiet = if self.on_error == OnError::Quarantine { OnError::Quarantine } else { OnError::Skip };
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
        self.observer.event(Event::Read { bytes: block.bytes_in, records });
        self.pending_bytes_in += block.bytes_in;
        if block.payload.is_empty() {
            return Ok(());
        }
        self.accepted += block.payload.len() as u64;
        let bytes = self.cutting.weight(&block.payload);
        self.pending_bytes += bytes;
        let piece = Piece {
            source: Arc::clone(&self.sources[source].name),
            rows: match block.rows.as_slice() {
                [] => Numbers::counting(base + 1, block.payload.len()),
                rows => rows.iter().map(|row| base + u64::from(*row) + 1).collect::<Vec<u64>>().into(),
            },
            hashes: Numbers::shared(block.hashes, block.sharing),
            payload: block.payload,
        };
        self.pieces.push_back((piece, bytes));
        Ok(())
    }

    /// Adds to what is unusual about the source.
    fn remark(&mut self, source: usize, remark: Remark) {
        let line = self.line(source, remark.line);
        match self.position.remarks.iter_mut().find(|one| one.why == remark.why) {
            Some(one) => one.count += remark.count,
            None => self.position.remarks.push(Remark { line, ..remark }),
        }
    }

    /// Tells what was unusual about the source that was read last.
    fn tell_remarks(&mut self) {
        let Some(source) = self.position.source else { return };
        for Remark { line, count, why, .. } in std::mem::take(&mut self.position.remarks) {
            let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
            self.observer.event(Event::Note(format!("{}, line {line}: {why}{more}", self.sources[source].name.name)));
        }
    }

    fn reject(&mut self, source: usize, reject: &Reject, on_error: OnError) -> Result<()> {
        if on_error == OnError::Skip {
            return Ok(());
        }
        let facts = &self.sources[source];
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
                self.rejects_file()?.write(line.with_raw(&reject.raw), self.suppress)
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
        let facts = &self.sources[source];
        let head = *self.position.head_lines.get_or_insert_with(|| facts.lines_before(first_offset));
        head + self.position.lines + line + 1
    }

    /// Size of the unit to be filled next, and whether it starts a shard; `None` while that depends on what is not known
    /// and there is still something else to do: to gather what the largest unit would take.
    fn budget(&mut self) -> Result<Option<(u64, bool)>> {
        if let Some(cut) = self.cut {
            return Ok(Some(cut));
        }
        let cut = match &mut self.cutting {
            Cutting::Even { bytes, .. } => (*bytes, false),
            Cutting::RowGroups(planner, feedback) => {
                let idle = self.ended || self.pending_bytes >= planner.unit_bytes();
                while self.told < planner.must_know() {
                    let bytes = match feedback.size(self.told) {
                        Some(bytes) => bytes,
                        None if !idle => return Ok(None),
                        None => feedback.wait(self.told).ok_or_else(|| Error::internal("the run has ended"))?,
                    };
                    planner.encoded(self.told, bytes);
                    self.told += 1;
                }
                let cut = planner.cut();
                (cut.raw_bytes, cut.starts_shard)
            }
        };
        self.cut = Some(cut);
        Ok(self.cut)
    }

    /// Cuts a unit of at most `budget` bytes (at least one record) off the pending pieces.
    fn cut_unit(&mut self, budget: u64, starts_shard: bool) -> Unit {
        let mut pieces = Vec::new();
        let mut room = budget;
        let mut raw = 0;
        while let Some((piece, bytes)) = self.pieces.pop_front() {
            if bytes <= room {
                room -= bytes;
                raw += bytes;
                pieces.push(piece);
                continue;
            }
            let (head, head_bytes, tail) = self.cutting.split(piece, bytes, room, pieces.is_empty());
            if let Some(head) = head {
                raw += head_bytes;
                pieces.push(head);
            }
            if let Some(tail) = tail {
                self.pieces.push_front((tail, bytes - head_bytes));
            }
            break;
        }
        self.pending_bytes -= raw;
        self.cut = None;
        if let Cutting::RowGroups(planner, _) = &mut self.cutting {
            planner.push(raw);
        }
        let unit =
            Unit { number: self.units, pieces, starts_shard, bytes_in: std::mem::take(&mut self.pending_bytes_in) };
        self.units += 1;
        unit
    }

    fn next_unit(&mut self) -> Result<Option<Unit>> {
        loop {
            if self.pieces.is_empty() {
                if self.ended {
                    return Ok(None);
                }
            } else {
                match self.budget()? {
                    Some((budget, starts_shard)) if self.ended || self.pending_bytes >= budget => {
                        return Ok(Some(self.cut_unit(budget, starts_shard)));
                    }
                    _ => {}
                }
            }
            match self.input.next() {
                Some(read) => self.take(read?)?,
                None => {
                    self.tell_remarks();
                    self.ended = true;
                }
            }
        }
    }
}

impl<I: Iterator<Item = Result<Read>>> Iterator for Gather<'_, I> {
    type Item = Result<Unit>;

    fn next(&mut self) -> Option<Result<Unit>> {
        self.next_unit().transpose()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{ArrayRef, UInt8Array};
    use arrow::record_batch::RecordBatch;

    use super::*;
    use crate::record::Part;

    /// Rows of one byte.
    fn narrow(rows: usize) -> Payload {
        let column: ArrayRef = Arc::new(UInt8Array::from(vec![7; rows]));
        Payload::Rows(RecordBatch::try_from_iter([("flag", column)]).unwrap())
    }

    fn samples(count: usize) -> Payload {
        let part = || Part { extension: "cls".into(), bytes: vec![b'1'].into() };
        let sample = || Sample { key: "k".into(), origin: "o".into(), subject: None, parts: vec![part(), part()] };
        Payload::Samples((0..count).map(|_| sample()).collect())
    }

    #[test]
    fn short_records_count_for_what_they_become() {
        let framed = Cutting::Even { bytes: 64 << 10, member: 768 };
        assert!((1000 * (1 + 768 + 8)..1000 * 800).contains(&framed.weight(&narrow(1000))));
        assert_eq!(framed.weight(&samples(10)), 10 * 2 * (1 + 768));
        let table = Cutting::RowGroups(RowGroupPlanner::new(1 << 20, 1 << 16), Arc::default());
        assert_eq!(table.weight(&narrow(1000)), 32_000);
        assert_eq!(table.weight(&samples(10)), 20);
    }

    #[test]
    fn a_piece_is_split_by_weight() {
        let framed = Cutting::Even { bytes: 64 << 10, member: 768 };
        for payload in [narrow(1000), samples(1000)] {
            let bytes = framed.weight(&payload);
            let piece = Piece {
                source: Arc::new(SourceName { name: "a".into(), key: "a".into(), columns: None, subject: None }),
                rows: Numbers::counting(1, 1000),
                hashes: Numbers::default(),
                payload,
            };
            let (head, weight, tail) = framed.split(piece, bytes, bytes / 4, false);
            let (head, tail) = (head.unwrap().payload.len(), tail.unwrap().payload.len());
            assert!((248..=250).contains(&head) && head + tail == 1000, "{head} and {tail}");
            assert!(weight <= bytes / 4);
        }
    }
}
