//! Gathers parsed ranges in order: numbers the rows, counts everything, and handles rejects and notes.
//!
//! This is the only place where the order of the input becomes the order of the records and where in = out + rejected +
//! deduplicated + filtered is counted.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arrow::datatypes::Fields;

use super::{
    encode::SourceBatch,
    gates::{BlockPlace, Effects, GatedBlock, Gates, SplitRecords},
    rejects::{RejectLine, RejectsFile, WITHHELD},
    separated::Separated,
    source::SourceFacts,
};
use crate::{
    dataset::SuppressList,
    error::{Error, Result},
    events::{Event, Observer},
    format::{Framing, TypeMismatch},
    record::{
        IGNORED_NAMES, Oddity, Payload, RecordBlock, Reject, Remark, SourcePart, list_names, numbers::Numbers,
        sparse::Sparsity, split::Split,
    },
};

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
#[expect(clippy::large_enum_variant, reason = "nearly all outcomes are parsed ranges")]
pub enum ReadOutcome {
    /// The records that follow are those of a part of a source, which is not its first.
    Entered {
        /// Index of the source.
        source: usize,
        /// The part.
        part: SourcePart,
    },
    /// A range was parsed, and passed through the gates.
    Parsed {
        /// Index of the source.
        source: usize,
        /// Offset of the range in the source.
        offset: u64,
        /// Its records.
        gated: GatedBlock,
    },
    /// A value of a range does not fit its column.
    Mismatch(Misfit),
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
    /// For each split of a divided dataset, the number of the first record of each source, relative to the first record
    /// of the run; `None` for sources without records there. Empty if the dataset is not divided.
    pub firsts: Vec<Vec<Option<u64>>>,
    /// Set if a value did not fit, so that the run must start again with wider types.
    pub misfit: Option<Misfit>,
}

/// A value that does not fit its column.
#[derive(Debug, Clone)]
pub struct Misfit {
    /// Index of its source.
    pub source: usize,
    /// The value.
    pub mismatch: TypeMismatch,
    /// Columns of its range, with the types that the values there alone have; empty for samples.
    pub near: Fields,
}

/// Consecutive records of the output.
#[derive(Debug)]
pub struct Gathered {
    /// The records; empty if all records of a range were rejected.
    pub records: SourceBatch,
    /// Stored bytes of input that they account for: over a whole run, at most the size of the input. Records of one
    /// split account for what was read since the last ones of that split.
    pub bytes_in: u64,
    /// Split of the dataset that they belong to.
    pub split: Split,
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
    /// Treat the records in order.
    pub gates: Gates<'a>,
    /// Ids that rejected records must not state; `None` if nothing was erased.
    pub suppress: Option<&'a SuppressList>,
    /// Whether the fingerprints of records are stored.
    pub fingerprints: bool,
    /// Framing of the shards; `None` for Parquet.
    pub framing: Option<&'a dyn Framing>,
    /// When bytes of input count as done.
    pub progress: Progress,
}

/// When bytes of input count as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Once they are read: what follows is another phase.
    OfReading,
    /// Once their records are encoded, which may take much longer: whoever writes shards counts them.
    OfWriting,
}

/// Gathers parsed ranges in order.
pub struct Gather<'a, I> {
    input: I,
    setup: GatherSetup<'a>,
    accepted: u64,
    /// What each split got; empty if the dataset is not divided.
    by_split: Vec<SplitCount>,
    /// Records that are to be passed on.
    ready: VecDeque<Gathered>,
    /// Stored bytes of input up to the newest record.
    read: u64,
    /// Stored bytes of the sources before the current one.
    read_before: u64,
    /// Records of the sources before the current one.
    records_before: u64,
    /// Position of the first record of each source so far, and the source.
    starts: Vec<(u64, usize)>,
    /// Position in the source that is being read.
    position: Position,
    /// Names of archive entries that hold data and were ignored.
    ignored: Vec<String>,
    /// The first reject of a run that keeps none.
    first_reject: Option<Error>,
    /// Of the table so far, where records have columns of their own.
    sparsity: Sparsity,
    /// Whether no more is read.
    is_ended: bool,
}

/// What a split of a divided dataset got.
#[derive(Debug, Clone, Default)]
struct SplitCount {
    /// Accepted records.
    accepted: u64,
    /// Bytes of input since its last records. They account for all splits, so that the rest of a split can be estimated
    /// from the rest of the input, however large its share is.
    bytes_in: u64,
}

#[derive(Debug, Default)]
struct Position {
    source: Option<usize>,
    records: u64,
    lines: u64,
    bytes: u64,
    first_offset: u64,
    /// Lines before the first range, once they were counted.
    head_lines: Option<u64>,
    /// Unusual lines: for each reason the first line, counted from 1 within the source, and their number.
    remarks: Vec<Remark>,
    /// Samples of an archive whose keys come again.
    separated: Separated,
}

impl<'a, I: Iterator<Item = Result<ReadOutcome>>> Gather<'a, I> {
    /// Gathers from `input`.
    pub fn new(input: I, setup: GatherSetup<'a>) -> Self {
        let splits = setup.tally.lock().unwrap_or_else(PoisonError::into_inner).firsts.len();
        Self {
            input,
            setup,
            accepted: 0,
            by_split: vec![SplitCount::default(); splits],
            ready: VecDeque::new(),
            read: 0,
            read_before: 0,
            records_before: 0,
            starts: Vec::new(),
            position: Position::default(),
            ignored: Vec::new(),
            first_reject: None,
            sparsity: Sparsity::default(),
            is_ended: false,
        }
    }

    fn lock_tally(&self) -> MutexGuard<'a, Tally> {
        self.setup.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the records that are passed on ready.
    fn process_outcome(&mut self, read: ReadOutcome) -> Result<()> {
        match read {
            ReadOutcome::Entered { source, part } => {
                self.enter_part(source, &part);
                Ok(())
            }
            ReadOutcome::End { source, hash } => {
                self.enter_source(source);
                self.lock_tally().sources[source].hash = hash;
                Ok(())
            }
            ReadOutcome::Broken { source, error, records } => self.note_broken_source(source, &error, records),
            ReadOutcome::Mismatch(misfit) => {
                let Misfit { source, mismatch, .. } = &misfit;
                let error = mismatch.error().at_location(self.setup.sources[*source].file.uri()).at_byte(mismatch.byte);
                self.lock_tally().misfit = Some(misfit);
                Err(error)
            }
            ReadOutcome::Parsed { source, offset, gated } => {
                if self.enter_source(source) {
                    self.position.first_offset = offset;
                }
                self.process_block(source, gated)
            }
        }
    }

    /// Notes that records of `source` follow; returns true if they are its first.
    fn enter_source(&mut self, source: usize) -> bool {
        if self.position.source == Some(source) {
            return false;
        }
        self.move_to(Position { source: Some(source), ..Position::default() });
        let facts = &self.setup.sources[source];
        {
            let mut tally = self.lock_tally();
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
            self.lock_tally().sources[source].first_record = self.accepted;
        }
        if self.position.source != position.source {
            self.records_before += self.position.records;
            if let Some(source) = position.source {
                self.starts.push((self.records_before, source));
            }
        }
        self.position = position;
    }

    fn note_broken_source(&mut self, source: usize, error: &Error, records: u64) -> Result<()> {
        self.enter_source(source);
        let first = self.position.records + 1;
        self.position.records += records;
        {
            let mut tally = self.lock_tally();
            tally.records_in += records;
            tally.rejected += records;
            tally.sources[source].records += records;
        }
        self.setup.observer.event(Event::Note(format!("skipped: {error}")));
        if self.setup.on_error != OnError::Quarantine {
            return Ok(());
        }
        self.rejects_file()?.write_fault(first, records, error)
    }

    /// Leaves the sources behind the one that was read last out of the counts.
    fn forget_unread(&self) {
        let read = self.position.source.map_or(0, |last| last + 1);
        self.lock_tally().sources.truncate(read);
    }

    fn rejects_file(&self) -> Result<&'a RejectsFile> {
        self.setup.rejects.ok_or_else(|| Error::internal("there is no file for rejects"))
    }

    fn process_block(&mut self, source: usize, mut gated: GatedBlock) -> Result<()> {
        let facts = &self.setup.sources[source];
        if facts.name.columns.is_none() {
            let tables = gated.record_blocks().filter_map(|block| match &block.payload {
                Payload::Rows(batch) => Some(batch),
                Payload::Samples(_) => None,
            });
            tables
                .into_iter()
                .try_for_each(|batch| self.sparsity.add_records(batch))
                .map_err(|e| e.at_location(facts.file.uri()))?;
        }
        let (records, base) = (gated.records_in(), self.position.records);
        gated.record_blocks().for_each(|block| self.look_for_separated(source, &block.payload));
        let bytes_in = self.take_input_bytes(source, &gated);
        let (sources, starts) = (self.setup.sources, self.starts.as_slice());
        let place = BlockPlace { sources, starts, source, base, before: self.records_before };
        self.setup.gates.list.iter().try_for_each(|gate| gate.pass_in_order(&mut gated, &place))?;
        let GatedBlock { block, splits, effects, .. } = gated;
        for reject in &block.rejects {
            match self.setup.on_error {
                OnError::Fail => return Err(self.reject_error(source, reject)),
                OnError::Quarantine => self.write_reject(source, reject)?,
                OnError::Skip if self.first_reject.is_some() => {}
                OnError::Skip => self.first_reject = Some(self.first_reject_error(source, reject)),
            }
        }
        if self.setup.on_error == OnError::Quarantine {
            effects.rejected.iter().try_for_each(|reject| self.write_reject(source, reject))?;
        }
        for remark in &block.remarks {
            self.add_remark(source, *remark);
        }
        // One more than is named says that there are others.
        let room = IGNORED_NAMES + 1 - self.ignored.len();
        self.ignored.extend(block.ignored_names.iter().take(room).cloned());
        self.position.records += records + block.deleted;
        self.position.lines += block.lines;
        self.count_records(source, records, &block, &effects);
        let bytes = if self.setup.progress == Progress::OfReading { block.bytes_in } else { 0 };
        self.setup.observer.event(Event::Read { bytes, records });
        if splits.is_empty() {
            self.pass_on(source, base, SplitRecords { split: 0, records: block }, bytes_in);
            return Ok(());
        }
        self.by_split.iter_mut().for_each(|split| split.bytes_in += bytes_in);
        for part in splits {
            let bytes_in = self.count_split(source, part.split, part.records.payload.len());
            self.pass_on(source, base, part, bytes_in);
        }
        Ok(())
    }

    /// Adds what became of the records of a block to the counts of the run.
    fn count_records(&self, source: usize, records: u64, block: &RecordBlock, effects: &Effects) {
        let mut tally = self.lock_tally();
        tally.records_in += records;
        tally.rejected += (block.rejects.len() + effects.rejected.len()) as u64 + effects.erased;
        tally.erased += effects.erased;
        tally.filtered += effects.filtered;
        tally.deduplicated += effects.deduplicated;
        tally.bytes_in += block.bytes_in;
        tally.blank_lines += block.blank_lines;
        tally.skipped_lines += block.skipped_lines;
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

    /// Makes records ready to be passed on; `base` is the number of the source's records before their block.
    fn pass_on(
        &mut self,
        source: usize,
        base: u64,
        SplitRecords { split, records: block }: SplitRecords,
        bytes_in: u64,
    ) {
        self.accepted += block.payload.len() as u64;
        let records = SourceBatch {
            source: Arc::clone(&self.setup.sources[source].name),
            rows: match block.rows.as_slice() {
                [] => Numbers::counting_from(base + 1, block.payload.len()),
                rows => rows.iter().map(|row| base + u64::from(*row) + 1).collect::<Vec<u64>>().into(),
            },
            hashes: match self.setup.sources[source].stores_hashes {
                true => Numbers::shared_by(block.hashes, block.sharing),
                false => Numbers::repeat_number(0, block.payload.len()),
            },
            fingerprints: match self.setup.fingerprints {
                true => block.fingerprints.into_iter().flatten().collect(),
                false => Vec::new(),
            },
            payload: block.payload,
            lacking: block.lacking,
            sidecar: None,
        };
        self.ready.push_back(Gathered { records, bytes_in, split });
    }

    /// Notes where the records of a source begin in a split, as a number among the records of that split. Returns the
    /// bytes of input since its last records.
    fn count_split(&mut self, source: usize, split: Split, records: usize) -> u64 {
        let number = usize::from(split);
        let mut tally = self.lock_tally();
        let Some(split) = self.by_split.get_mut(number) else { return 0 };
        let first = tally.firsts.get_mut(number).and_then(|firsts| firsts.get_mut(source)).filter(|_| records > 0);
        if let Some(first) = first {
            first.get_or_insert(split.accepted);
        }
        split.accepted += records as u64;
        std::mem::take(&mut split.bytes_in)
    }

    /// Returns the stored bytes of input since the last records. What no record accounts for, such as a header or a
    /// broken part, counts with the first records of the next source.
    fn take_input_bytes(&mut self, source: usize, gated: &GatedBlock) -> u64 {
        let facts = &self.setup.sources[source];
        if facts.is_samples() {
            // Each file counts as its member does, because many may be smaller than their headers.
            let samples = gated.record_blocks().filter_map(|block| match &block.payload {
                Payload::Samples(samples) => Some(samples),
                Payload::Rows(_) => None,
            });
            let parts = samples.flatten().flat_map(|sample| &sample.parts);
            return parts.map(|part| counted_size(self.setup.framing, part.bytes.len() as u64)).sum();
        }
        // A compressed source has more bytes than are stored.
        self.position.bytes += gated.block.bytes_in;
        let read = self.read_before + self.position.bytes.min(facts.bytes);
        read - std::mem::replace(&mut self.read, read)
    }

    /// Adds to the remarks about the current source.
    fn add_remark(&mut self, source: usize, remark: Remark) {
        let line = self.source_line(source, remark.line);
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
            let facts = &self.setup.sources[source];
            let place = if facts.by_row { String::new() } else { format!(", line {line}") };
            self.setup.observer.event(Event::Note(format!("{}{place}: {why}{more}", facts.name.name)));
        }
        if let Some(note) =
            std::mem::take(&mut self.position.separated).repeated_keys_note(&self.setup.sources[source].name.name)
        {
            self.setup.observer.event(Event::Note(note));
        }
    }

    /// Notes which samples of an archive come again.
    fn look_for_separated(&mut self, source: usize, payload: &Payload) {
        let facts = &self.setup.sources[source];
        let (Payload::Samples(samples), false) = (payload, facts.is_samples()) else { return };
        for sample in samples {
            self.position.separated.add_sample(&sample.key, sample.parts.iter().map(|part| part.extension.as_str()));
        }
    }

    /// Names what was ignored although it holds data.
    fn report_ignored(&mut self) {
        let names = std::mem::take(&mut self.ignored);
        if !names.is_empty() {
            let more = if names.len() > IGNORED_NAMES { ", and others" } else { "" };
            let names = list_names(&names[..names.len().min(IGNORED_NAMES)], 0);
            self.setup.observer.event(Event::Note(format!(
                "ignored archive members, which hold data but are leftovers of a system or of an unknown type: \
                 {names}{more}"
            )));
        }
    }

    /// Names the first of the records that were rejected and are kept nowhere.
    fn report_first_reject(&mut self) {
        if let Some(error) = self.first_reject.take() {
            let note =
                format!("the first rejected record: {error}; --on-error quarantine keeps such records in a file");
            self.setup.observer.event(Event::Note(note));
        }
    }

    /// Returns the line and byte of a reject; `None` for samples, and for tables whose rows have no lines.
    fn place_of_reject(&mut self, source: usize, reject: &Reject) -> Option<(u64, u64)> {
        let facts = &self.setup.sources[source];
        let has_lines = !facts.is_samples() && !facts.by_row;
        has_lines.then(|| (self.source_line(source, reject.line), reject.byte))
    }

    fn write_reject(&mut self, source: usize, reject: &Reject) -> Result<()> {
        let line = self.reject_line(source, reject);
        self.rejects_file()?.write(line, self.setup.suppress)
    }

    /// Returns the error for a reject, without what it says of an erased record.
    fn first_reject_error(&mut self, source: usize, reject: &Reject) -> Error {
        let line = self.reject_line(source, reject);
        match self.setup.suppress.is_some_and(|erased| line.names_erased(erased)) {
            true => Error::input(WITHHELD),
            false => self.reject_error(source, reject),
        }
    }

    fn reject_line<'r>(&mut self, source: usize, reject: &'r Reject) -> RejectLine<'r> {
        let place = self.place_of_reject(source, reject);
        let facts = &self.setup.sources[source];
        let line = RejectLine {
            source: (!facts.is_samples()).then(|| facts.file.uri()),
            row: self.position.records + u64::from(reject.row) + 1,
            records: None,
            line: place.map(|(line, _)| line),
            byte: place.map(|(_, byte)| byte),
            column: reject.column.as_deref(),
            reason: &reject.reason,
            raw: None,
            raw_base64: None,
        };
        line.with_raw(&reject.raw)
    }

    fn reject_error(&mut self, source: usize, reject: &Reject) -> Error {
        let place = self.place_of_reject(source, reject);
        let facts = &self.setup.sources[source];
        let row = self.position.records + u64::from(reject.row) + 1;
        let reason = match &facts.sheet {
            Some(sheet) => format!("{}: {}", sheet.describe_row(row), reject.reason),
            None if facts.by_row => format!("row {row}: {}", reject.reason),
            None => reject.reason.clone(),
        };
        let hint = value_hint(&reject.reason).unwrap_or_else(|| facts.error_hint(&reject.raw));
        let mut error = Error::input(reason).with_hint(hint);
        if !facts.is_samples() {
            error = error.at_location(facts.file.uri());
        }
        if let Some((line, byte)) = place {
            error = error.at_line(line).at_byte(byte);
        }
        if let Some(column) = &reject.column {
            error = error.in_column(column.clone());
        }
        error
    }

    /// Returns the number of a line of the current range within its source, from 1.
    fn source_line(&mut self, source: usize, line: u64) -> u64 {
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
            let read = if self.is_ended { None } else { self.input.next() };
            let Some(read) = read else {
                self.report_remarks();
                self.report_ignored();
                self.report_first_reject();
                return None;
            };
            if let Err(error) = read.and_then(|read| self.process_outcome(read)) {
                return Some(Err(error));
            }
            self.is_ended = self.setup.gates.list.iter().any(|gate| gate.ends_run());
            if self.is_ended {
                self.forget_unread();
            }
        }
    }
}

/// Returns what to do about a value, by the reason why its record is rejected; `None` if that is nothing special.
fn value_hint(reason: &str) -> Option<&'static str> {
    let (expected, found) = reason.strip_prefix("expected ")?.split_once(", found `")?;
    let found = found.strip_suffix('`')?.trim_start_matches(['-', '+']);
    let is_number = ["float", "decimal"].iter().any(|kind| expected.starts_with(kind));
    let (whole, fraction) = found.split_once(',')?;
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    (is_number && are_digits(whole) && are_digits(fraction)).then_some(
        "the number has a decimal comma, which is not read as a number: leave --type out, and the column is text",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_comma_is_named() {
        for (reason, is_comma) in [
            ("expected float64, found `9326,97`", true),
            ("expected decimal(10, 2), found `-1.326,97`", true),
            ("expected float64 (the type in this dataset), found `1,5`", true),
            ("expected float64, found `abc`", false),
            ("expected int64, found `1,5`", false),
            ("expected 3 fields, found 4", false),
        ] {
            assert_eq!(value_hint(reason).is_some(), is_comma, "{reason}");
        }
    }
}
