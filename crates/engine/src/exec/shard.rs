//! Writes shards: appends encoded units in order, starts the next shard when one is full, and writes each shard's
//! sidecar and index entries along the way.
//!
//! A finished shard is staged, and its bytes are on their way to the disk: it becomes durable and gets its name only
//! when the whole run is published.

pub(super) mod finished;
mod sums;
mod thread;
mod writer;

use std::sync::Arc;

use self::thread::ShardThread;
pub use self::{
    finished::{FinishedShard, ShardNaming},
    writer::{ParquetShardWriter, StreamShardWriter},
};
use super::{
    encode::{Body, Encoded, Encoder, Output, Piece, check_neighbours},
    scatter::{Numbered, Scatter},
};
use crate::{
    codec::Codec,
    dataset::{IdKind, PlaceRef, SegmentWriter, Segments},
    error::{Error, Result},
    events::{Event, Observer},
    format::{Framing, parquet::ParquetEncoder},
    id::Writer,
    plan::roll::{Aim, Spread},
    record::split::{Split, Splits},
    storage::{Staged, Store},
};

/// What an appender made.
#[derive(Debug)]
pub struct Appended {
    /// The shards, not published yet.
    pub shards: Vec<FinishedShard>,
    /// Number of their records.
    pub records: u64,
    /// Segments of the id index.
    pub segments: Segments,
    /// Tables of places of records whose numbers are not consecutive, not published yet.
    pub places: Vec<(PlaceRef, Staged)>,
}

/// Appends units to shards.
pub struct Appender<'a> {
    store: Arc<dyn Store>,
    naming: ShardNaming,
    spread: Spread,
    /// Whether shards start only where their units say.
    by_units: bool,
    /// Maximum number of framed units that wait to be written.
    write_window: usize,
    /// Bytes of input that the units so far account for.
    read: u64,
    /// Bytes of the units so far.
    written: u64,
    observer: &'a dyn Observer,
    open: CurrentShard<'a>,
    /// Number of shards before the open one, and of their records.
    ended: usize,
    ended_records: u64,
    /// The last of them, as long as its end is being written.
    ending: Option<(ShardThread, Option<Numbered>)>,
    finished: Vec<FinishedShard>,
    records: u64,
    last_key: Option<String>,
    record_ids: SegmentWriter,
    subject_ids: SegmentWriter,
    /// Notes the numbers of records that do not lie in their order; `None` if they are consecutive.
    scatter: Option<Scatter<'a>>,
}

/// The shard that is being filled, if any, and what is needed to start the next.
enum CurrentShard<'a> {
    Parquet(&'a ParquetEncoder, Option<Box<ParquetShardWriter>>),
    Stream(&'a dyn Framing, Option<ShardThread>),
}

impl<'a> Appender<'a> {
    /// Creates an appender for shards that end as `spread` says; Parquet shards start where their units say.
    pub fn new(
        store: Arc<dyn Store>,
        encoder: &'a Encoder,
        naming: ShardNaming,
        spread: Spread,
        writer: &Writer,
        observer: &'a dyn Observer,
    ) -> Self {
        let ids = |kind| SegmentWriter::new(Arc::clone(&store), kind, encoder.hash_plan(), writer.clone());
        let (record_ids, subject_ids) = (ids(IdKind::Record), ids(IdKind::Subject));
        let open = match encoder.output() {
            Output::Parquet(parquet) => CurrentShard::Parquet(parquet, None),
            Output::Stream(framing) => CurrentShard::Stream(*framing, None),
        };
        Self {
            store,
            naming,
            spread,
            by_units: false,
            write_window: 0,
            read: 0,
            written: 0,
            observer,
            open,
            ended: 0,
            ended_records: 0,
            ending: None,
            finished: Vec::new(),
            records: 0,
            last_key: None,
            record_ids,
            subject_ids,
            scatter: None,
        }
    }

    /// Takes records whose numbers are not consecutive.
    #[must_use]
    pub fn with_scatter(self, scatter: Option<Scatter<'a>>) -> Self {
        Self { scatter, ..self }
    }

    /// Starts all shards only where their units say, whatever their sizes.
    #[must_use]
    pub fn ending_with_units(self, by_units: bool) -> Self {
        Self { by_units, ..self }
    }

    /// Lets framed units wait to be written, and a shard begin before the end of the one before it is written.
    #[must_use]
    pub fn writing_behind(self, write_window: usize) -> Self {
        Self { write_window, ..self }
    }

    /// Makes it one of the appenders of a run, one for each split of a divided dataset.
    #[must_use]
    pub fn of_split(self, split: Split, splits: Option<&Splits>) -> Self {
        let Some(splits) = splits else { return self };
        let (record_ids, subject_ids) =
            (self.record_ids.of_split(split, splits), self.subject_ids.of_split(split, splits));
        Self { record_ids, subject_ids, ..self }
    }

    /// Appends a unit.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append_unit(&mut self, mut unit: Encoded) -> Result<()> {
        self.index(&mut unit)?;
        if let Some((first, last)) = unit.end_keys {
            if let Some(before) = &self.last_key {
                check_neighbours(before, &first)?;
            }
            self.last_key = Some(last);
        }
        match unit.body {
            Body::RowGroup(group, rows) => {
                if unit.starts_shard {
                    self.roll_shard()?;
                }
                self.note_numbers(&unit.numbers)?;
                self.row_group_shard()?.append_row_group(group, rows)
            }
            Body::Stream(piece) => {
                let size = piece.bytes.len() as u64;
                self.read += unit.bytes_in;
                self.written += size;
                if !self.by_units && self.naming.codec == Codec::None {
                    return self.append_plain(&piece, &unit.numbers);
                }
                let rolls = match self.by_units {
                    true => unit.starts_shard,
                    false => self.next_aim(size).rolls_before(self.open_bytes(), size),
                };
                if rolls {
                    self.roll_shard()?;
                }
                self.note_numbers(&unit.numbers)?;
                self.stream_shard()?.append(piece)
            }
        }
    }

    /// Decides where the open shard should end, given the bytes of the newest unit that are not in a shard yet.
    fn next_aim(&mut self, rest_of_unit: u64) -> Aim {
        let after = self.spread.estimate_left(self.read, self.read, self.written);
        self.spread.next_aim(self.open_bytes() as f64, after.map(|after| after + rest_of_unit as f64))
    }

    /// Appends uncompressed records; may start a new shard between any two of them.
    fn append_plain(&mut self, unit: &Piece, numbers: &[u64]) -> Result<()> {
        let Piece { bytes, lengths, .. } = unit;
        let (mut first, mut at) = (0, 0_usize);
        while first < lengths.len() {
            let aim = self.next_aim((bytes.len() - at) as u64);
            let mut size = self.open_bytes();
            let mut end = first;
            let mut taken = 0_u64;
            while end < lengths.len() && !aim.rolls_before(size, lengths[end]) {
                size += lengths[end];
                taken += lengths[end];
                end += 1;
            }
            if end > first {
                let next = at + usize::try_from(taken).map_err(|_| Error::internal("a unit is larger than memory"))?;
                let piece = Box::new(Piece {
                    bytes: bytes.slice(at..next),
                    raw_bytes: taken,
                    crc32: 0,
                    rows: unit.rows.slice(first, end - first),
                    lengths: lengths[first..end].to_vec(),
                    members: unit.members.as_ref().map(|(members, start)| (Arc::clone(members), start + at as u64)),
                });
                self.note_numbers(numbers.get(first..end).unwrap_or_default())?;
                self.stream_shard()?.append(piece)?;
                at = next;
                first = end;
            }
            if end < lengths.len() {
                self.roll_shard()?;
            }
        }
        Ok(())
    }

    /// Finishes the last shard.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn finish(mut self) -> Result<Appended> {
        self.roll_shard()?;
        self.wait_for_ending()?;
        let segments = Segments::finish_all([self.record_ids, self.subject_ids])?;
        let places = self.scatter.map_or_else(|| Ok(Vec::new()), Scatter::finish)?;
        Ok(Appended { shards: self.finished, records: self.records, segments, places })
    }

    /// Notes the numbers of the next records of the open shard.
    fn note_numbers(&mut self, numbers: &[u64]) -> Result<()> {
        let shard = self.ended;
        match &mut self.scatter {
            Some(scatter) => scatter.push_numbers(numbers, shard, &self.naming.shard_path(shard)),
            None => Ok(()),
        }
    }

    fn index(&mut self, unit: &mut Encoded) -> Result<()> {
        self.record_ids.push_all(std::mem::take(&mut unit.record_hashes), self.records)?;
        self.subject_ids.push_all(std::mem::take(&mut unit.subject_hashes), self.records)?;
        self.records += unit.records as u64;
        Ok(())
    }

    /// Returns the bytes of the open shard; 0 if none is open.
    fn open_bytes(&self) -> u64 {
        match &self.open {
            CurrentShard::Parquet(_, open) => open.as_ref().map_or(0, |shard| shard.bytes_written()),
            CurrentShard::Stream(_, open) => open.as_ref().map_or(0, ShardThread::total_bytes),
        }
    }

    fn row_group_shard(&mut self) -> Result<&mut ParquetShardWriter> {
        let CurrentShard::Parquet(parquet, open) = &mut self.open else {
            return Err(Error::internal("a row group was given to a shard of another format"));
        };
        Ok(match open {
            Some(shard) => shard,
            None => {
                let number = self.ended;
                let shard = ParquetShardWriter::create(self.store.as_ref(), parquet, &self.naming, number)?;
                open.insert(Box::new(shard))
            }
        })
    }

    fn stream_shard(&mut self) -> Result<&mut ShardThread> {
        let CurrentShard::Stream(framing, open) = &mut self.open else {
            return Err(Error::internal("framed records were given to a Parquet shard"));
        };
        Ok(match open {
            Some(shard) => shard,
            None => {
                let number = self.ended;
                let writer = StreamShardWriter::create(self.store.as_ref(), *framing, &self.naming, number)?;
                open.insert(ShardThread::start(writer, self.write_window)?)
            }
        })
    }

    /// Ends the open shard, if any.
    fn roll_shard(&mut self) -> Result<()> {
        let first = self.ended_records;
        let records = match &mut self.open {
            CurrentShard::Parquet(_, open) => {
                let Some(shard) = open.take() else { return Ok(()) };
                let finished = shard.finish(&[(first, None)])?;
                let (records, numbered) = (finished.meta().records, self.end_numbers());
                self.add_finished(finished, numbered)?;
                records
            }
            CurrentShard::Stream(_, open) => {
                let Some(mut shard) = open.take() else { return Ok(()) };
                shard.end_shard(first)?;
                let records = shard.record_count();
                // One at a time, so that memory has no more than two shards that are being written.
                self.wait_for_ending()?;
                self.ending = Some((shard, self.end_numbers()));
                if self.write_window == 0 {
                    self.wait_for_ending()?;
                }
                records
            }
        };
        self.ended += 1;
        self.ended_records += records;
        self.spread.end_shard();
        Ok(())
    }

    /// Returns the numbers of the records of the open shard, if they are noted.
    fn end_numbers(&mut self) -> Option<Numbered> {
        let number = self.ended;
        self.scatter.as_mut().map(|scatter| scatter.end_shard(number))
    }

    /// Waits for the shard whose end is being written.
    fn wait_for_ending(&mut self) -> Result<()> {
        let Some((shard, numbered)) = self.ending.take() else { return Ok(()) };
        self.add_finished(shard.wait_finished()?, numbered)
    }

    fn add_finished(&mut self, mut finished: FinishedShard, numbered: Option<Numbered>) -> Result<()> {
        if let Some(numbered) = numbered {
            numbered.describe_shard(&mut finished)?;
        }
        self.observer.event(Event::Shard { bytes: finished.meta().bytes });
        self.finished.push(finished);
        Ok(())
    }
}
