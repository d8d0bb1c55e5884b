//! Writes shards: appends encoded units in order, starts the next shard when one is full, and writes each shard's
//! sidecar and index entries along the way.
//!
//! A finished shard is staged, and its bytes are on their way to the disk: it becomes durable and gets its name only
//! when the whole run is published.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use arrow::array::RecordBatch;
use jiff::Timestamp;
use md5::{Digest as _, Md5};

use super::{
    encode::{Body, Encoded, Output, check_neighbours},
    index::ShardIndexes,
    scatter::Scatter,
};
use crate::{
    codec::{
        Codec,
        stream::{Frames, Tail},
    },
    dataset::{
        FrameTable, IdKind, NewShard, PlaceRef, SegmentWriter, Segments, ShardMeta, SidecarColumns, SidecarGroups,
        SidecarPart, SidecarWriter, folder_of, new_sidecar_path,
    },
    error::{Error, Result},
    events::{Event, Observer},
    format::{
        Framing, OutputFormat,
        index::IndexKind,
        parquet::{ParquetEncoder, ParquetShard, RowGroup},
    },
    id::{Version, Writer},
    plan::roll::{Aim, Spread},
    record::side::{Side, Sides},
    storage::{Sink, Staged, Store},
};

/// Paths, format and compression of the shards of one run.
#[derive(Debug, Clone)]
pub struct ShardNaming {
    /// Folder of the shards.
    pub tag: String,
    /// Format.
    pub format: OutputFormat,
    /// Compression.
    pub codec: Codec,
    /// Indexes of each shard.
    pub indexes: Vec<IndexKind>,
    /// Whether sidecars have a column of fingerprints.
    pub fingerprints: bool,
}

impl ShardNaming {
    /// Returns the naming for a folder below: `partition` follows the tag, `/` or `/key=value/`.
    pub fn within(&self, partition: &str) -> Self {
        let tag = format!("{}{partition}", self.tag);
        Self { tag: tag.trim_end_matches('/').to_owned(), ..self.clone() }
    }

    /// Returns the path of the shard with this number: `<tag>/000017.tar.gz`.
    pub fn path(&self, number: usize) -> String {
        let packed = if self.format == OutputFormat::Parquet { "" } else { self.codec.stream_extension() };
        format!("{}/{number:06}.{}{packed}", self.tag, self.format.name())
    }
}

/// A complete shard that is not published yet.
#[derive(Debug)]
pub struct FinishedShard {
    /// Its sidecar, its indexes and, last, its bytes: the order in which they are published.
    pub staged: Vec<Staged>,
    /// Metadata and runs of the shard.
    pub shard: NewShard,
    /// MD5 of its bytes, if an index needs it.
    pub md5: Option<[u8; 16]>,
}

impl FinishedShard {
    /// Returns the shard's entry for the list of shards.
    pub fn meta(&self) -> &ShardMeta {
        &self.shard.meta
    }

    /// Returns the folder of the shard.
    pub fn folder(&self) -> &str {
        folder_of(&self.shard.meta.path)
    }
}

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
    /// Bytes of input that the units so far account for.
    read: u64,
    /// Bytes of the units so far.
    written: u64,
    observer: &'a dyn Observer,
    open: Open<'a>,
    finished: Vec<FinishedShard>,
    records: u64,
    last_key: Option<String>,
    record_ids: SegmentWriter,
    subject_ids: SegmentWriter,
    /// Notes the numbers of records that do not lie in their order; `None` if they are consecutive.
    scatter: Option<Scatter<'a>>,
}

/// The shard that is being filled, if any, and what is needed to start the next.
enum Open<'a> {
    Parquet(&'a ParquetEncoder, Option<ParquetShardWriter>),
    Stream(&'a dyn Framing, Option<StreamShardWriter<'a>>),
}

impl<'a> Appender<'a> {
    /// Creates an appender for shards that end as `spread` says; Parquet shards start where their units say.
    pub fn new(
        store: Arc<dyn Store>,
        output: &'a Output,
        naming: ShardNaming,
        spread: Spread,
        writer: &Writer,
        observer: &'a dyn Observer,
    ) -> Self {
        let ids = |kind| SegmentWriter::new(Arc::clone(&store), kind, writer.clone());
        let (record_ids, subject_ids) = (ids(IdKind::Record), ids(IdKind::Subject));
        let open = match output {
            Output::Parquet(parquet) => Open::Parquet(parquet, None),
            Output::Stream(framing) => Open::Stream(framing.as_ref(), None),
        };
        Self {
            store,
            naming,
            spread,
            by_units: false,
            read: 0,
            written: 0,
            observer,
            open,
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
    pub fn scattering(self, scatter: Option<Scatter<'a>>) -> Self {
        Self { scatter, ..self }
    }

    /// Starts all shards only where their units say, whatever their sizes.
    #[must_use]
    pub fn ending_with_units(self, by_units: bool) -> Self {
        Self { by_units, ..self }
    }

    /// Makes it one of the appenders of a run, one for each side of a divided dataset.
    #[must_use]
    pub fn of_side(self, side: Side, sides: Option<&Sides>) -> Self {
        let Some(sides) = sides else { return self };
        let (record_ids, subject_ids) = (self.record_ids.of_side(side, sides), self.subject_ids.of_side(side, sides));
        Self { record_ids, subject_ids, ..self }
    }

    /// Appends a unit.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append(&mut self, unit: Encoded) -> Result<()> {
        self.index(&unit)?;
        if let Some((first, last)) = unit.end_keys {
            if let Some(before) = &self.last_key {
                check_neighbours(before, &first)?;
            }
            self.last_key = Some(last);
        }
        match unit.body {
            Body::RowGroup(group, rows) => {
                if unit.starts_shard {
                    self.roll()?;
                }
                self.scatter(&unit.numbers)?;
                self.row_group_shard()?.append_row_group(group, rows)
            }
            Body::Stream { rows, bytes, lengths, raw_bytes, crc32 } => {
                let size = bytes.len() as u64;
                self.read += unit.bytes_in;
                self.written += size;
                if self.by_units {
                    if unit.starts_shard {
                        self.roll()?;
                    }
                    self.scatter(&unit.numbers)?;
                    return self.stream_shard()?.append_stream(&bytes, raw_bytes, crc32, *rows, &lengths);
                }
                if self.naming.codec == Codec::None {
                    return self.append_plain(&bytes, &lengths, &rows, &unit.numbers);
                }
                if self.aim(size).rolls_before(self.open_bytes(), size) {
                    self.roll()?;
                }
                self.scatter(&unit.numbers)?;
                self.stream_shard()?.append_stream(&bytes, raw_bytes, crc32, *rows, &lengths)
            }
        }
    }

    /// Decides where the open shard should end, given the bytes of the newest unit that are not in a shard yet.
    fn aim(&mut self, rest_of_unit: u64) -> Aim {
        let after = self.spread.left(self.read, self.read, self.written);
        self.spread.aim(self.open_bytes() as f64, after.map(|after| after + rest_of_unit as f64))
    }

    /// Appends uncompressed records; may start a new shard between any two of them.
    fn append_plain(&mut self, bytes: &[u8], lengths: &[u64], rows: &SidecarColumns, numbers: &[u64]) -> Result<()> {
        let (mut first, mut at) = (0, 0_usize);
        while first < lengths.len() {
            let aim = self.aim((bytes.len() - at) as u64);
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
                let (slice, lengths) = (rows.slice(first, end - first), &lengths[first..end]);
                self.scatter(numbers.get(first..end).unwrap_or_default())?;
                self.stream_shard()?.append_stream(&bytes[at..next], taken, 0, slice, lengths)?;
                at = next;
                first = end;
            }
            if end < lengths.len() {
                self.roll()?;
            }
        }
        Ok(())
    }

    /// Finishes the last shard.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn finish(mut self) -> Result<Appended> {
        self.roll()?;
        let segments = Segments::finish([self.record_ids, self.subject_ids])?;
        let places = self.scatter.map_or_else(|| Ok(Vec::new()), Scatter::finish)?;
        Ok(Appended { shards: self.finished, records: self.records, segments, places })
    }

    /// Notes the numbers of the next records of the open shard.
    fn scatter(&mut self, numbers: &[u64]) -> Result<()> {
        let shard = self.finished.len();
        match &mut self.scatter {
            Some(scatter) => scatter.push(numbers, shard, &self.naming.path(shard)),
            None => Ok(()),
        }
    }

    fn index(&mut self, unit: &Encoded) -> Result<()> {
        self.record_ids.push_all(&unit.record_hashes, self.records)?;
        self.subject_ids.push_all(&unit.subject_hashes, self.records)?;
        self.records += unit.records as u64;
        Ok(())
    }

    /// Returns the bytes of the open shard; 0 if none is open.
    fn open_bytes(&self) -> u64 {
        match &self.open {
            Open::Parquet(_, open) => open.as_ref().map_or(0, ParquetShardWriter::bytes),
            Open::Stream(_, open) => open.as_ref().map_or(0, StreamShardWriter::bytes),
        }
    }

    fn row_group_shard(&mut self) -> Result<&mut ParquetShardWriter> {
        let Open::Parquet(parquet, open) = &mut self.open else {
            return Err(Error::internal("a row group was given to a shard of another format"));
        };
        Ok(match open {
            Some(shard) => shard,
            None => {
                let number = self.finished.len();
                open.insert(ParquetShardWriter::create(self.store.as_ref(), parquet, &self.naming, number)?)
            }
        })
    }

    fn stream_shard(&mut self) -> Result<&mut StreamShardWriter<'a>> {
        let Open::Stream(framing, open) = &mut self.open else {
            return Err(Error::internal("framed records were given to a Parquet shard"));
        };
        Ok(match open {
            Some(shard) => shard,
            None => {
                let number = self.finished.len();
                open.insert(StreamShardWriter::create(self.store.as_ref(), *framing, &self.naming, number)?)
            }
        })
    }

    fn roll(&mut self) -> Result<()> {
        let first = self.finished.last().map_or(0, |f| f.shard.meta.first_record + f.shard.meta.records);
        let runs = [(first, None)];
        let finished = match &mut self.open {
            Open::Parquet(_, open) => open.take().map(|open| open.finish(&runs)),
            Open::Stream(_, open) => open.take().map(|open| open.finish(&runs)),
        };
        let Some(mut finished) = finished.transpose()? else { return Ok(()) };
        if let Some(scatter) = &mut self.scatter {
            scatter.finish_shard(self.finished.len(), &mut finished)?;
        }
        self.observer.event(Event::Shard { bytes: finished.shard.meta.bytes });
        self.finished.push(finished);
        self.spread.ended();
        Ok(())
    }
}

/// Sidecar and indexes of an open shard.
struct Beside {
    path: String,
    codec: Codec,
    sidecar: SidecarWriter,
    indexes: Option<ShardIndexes>,
}

impl Beside {
    fn create(store: &dyn Store, path: String, codec: Codec, naming: &ShardNaming) -> Result<Self> {
        let sidecar = SidecarWriter::create(store, &path, naming.fingerprints)?;
        let indexes = if naming.indexes.is_empty() {
            None
        } else {
            Some(ShardIndexes::create(store, &path, &new_sidecar_path(&path), naming.format, &naming.indexes)?)
        };
        Ok(Self { path, codec, sidecar, indexes })
    }

    fn append_sidecar(&mut self, batch: &RecordBatch, shift: i128) -> Result<()> {
        let Some(indexes) = &mut self.indexes else { return self.sidecar.append_moved(batch, shift) };
        self.sidecar.append_moved_with(batch, shift, &mut |offset, length| indexes.record(offset, length))
    }

    /// Finishes the sidecar and the indexes of a shard whose bytes are complete.
    fn finish(mut self, ended: Ended, runs: &[(u64, Option<u64>)]) -> Result<FinishedShard> {
        let records = self.sidecar.rows();
        if let Some(frames) = &ended.frames {
            self.sidecar.set_frames(frames)?;
        }
        let mut staged = vec![self.sidecar.finish()?];
        if let Some(indexes) = self.indexes {
            staged.extend(indexes.finish(records)?);
        }
        staged.push(ended.sums.staged);
        let mut ordinal = 0;
        let mut placed = Vec::with_capacity(runs.len());
        for (first, length) in runs {
            let length = length.unwrap_or(records - ordinal);
            placed.push((*first, length, ordinal));
            ordinal += length;
        }
        if ordinal != records {
            return Err(Error::internal(format!("expected runs of {records} records, found {ordinal}")));
        }
        let beside = Some(Arc::new(crate::dataset::Beside::at_new(&self.path)));
        let meta = ShardMeta {
            path: self.path,
            records,
            bytes: ended.sums.bytes,
            codec: self.codec,
            raw_bytes: ended.raw_bytes,
            checksum: ended.sums.checksum,
            body_offset: ended.body_offset,
            body_bytes: ended.body_bytes,
            body_crc32: ended.body_crc32,
            compacted_for: 0,
            first_record: runs.iter().map(|r| r.0).min().unwrap_or_default(),
            version: Version(0),
            committed_at: Timestamp::UNIX_EPOCH,
            order: None,
            beside,
        };
        let shard = NewShard { meta, runs: placed, scattered: None };
        Ok(FinishedShard { staged, shard, md5: ended.sums.md5 })
    }
}

/// Sizes and checksums of a shard whose bytes are complete.
struct Ended {
    sums: Hashed,
    frames: Option<FrameTable>,
    raw_bytes: u64,
    body_offset: u64,
    body_bytes: u64,
    body_crc32: u32,
}

/// A Parquet shard that is being written.
pub struct ParquetShardWriter {
    beside: Beside,
    shard: Box<ParquetShard<HashingSink>>,
    raw_bytes: u64,
}

impl ParquetShardWriter {
    /// Starts a shard.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn create(store: &dyn Store, parquet: &ParquetEncoder, naming: &ShardNaming, number: usize) -> Result<Self> {
        let path = naming.path(number);
        let shard = Box::new(parquet.start(HashingSink::create(store, &path, naming)?)?);
        let beside = Beside::create(store, path, parquet.codec(), naming)?;
        Ok(Self { beside, shard, raw_bytes: 0 })
    }

    /// Returns the bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.shard.bytes_written()
    }

    /// Appends a row group.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append_row_group(&mut self, group: RowGroup, rows: SidecarGroups) -> Result<()> {
        self.append_known_rows(group)?;
        self.beside.sidecar.append_groups(rows)
    }

    /// Appends a row group whose sidecar rows are appended separately, from existing sidecars.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append_known_rows(&mut self, group: RowGroup) -> Result<()> {
        self.raw_bytes += group.raw_bytes;
        self.shard.append(group)
    }

    /// Appends rows of another sidecar.
    ///
    /// # Errors
    /// Fails if the batch has another schema.
    pub fn append_sidecar(&mut self, batch: &RecordBatch) -> Result<()> {
        self.beside.append_sidecar(batch, 0)
    }

    /// Appends a whole sidecar unchanged.
    ///
    /// # Errors
    /// Fails if the sidecar is damaged or the store fails.
    pub fn append_sidecar_part(&mut self, part: &SidecarPart) -> Result<()> {
        self.beside.sidecar.append_part(part)
    }

    /// Finishes the shard and its sidecar. `runs` gives for each run its first record number and its length; the last
    /// one may omit the length.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn finish(self, runs: &[(u64, Option<u64>)]) -> Result<FinishedShard> {
        let Self { beside, shard, raw_bytes } = self;
        let sums = shard.finish()?.finish()?;
        let ended = Ended { sums, frames: None, raw_bytes, body_offset: 0, body_bytes: 0, body_crc32: 0 };
        beside.finish(ended, runs)
    }
}

/// A shard of framed records that is being written.
pub struct StreamShardWriter<'a> {
    beside: Beside,
    sink: HashingSink,
    header_bytes: u64,
    tail: Tail,
    trailer: &'a [u8],
}

impl<'a> StreamShardWriter<'a> {
    /// Starts a shard with the codec of its naming.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn create(store: &dyn Store, framing: &'a dyn Framing, naming: &ShardNaming, number: usize) -> Result<Self> {
        let (path, codec) = (naming.path(number), naming.codec);
        let mut sink = HashingSink::create(store, &path, naming)?;
        sink.write_all(codec.stream_header())?;
        let header_bytes = sink.bytes;
        let beside = Beside::create(store, path, codec, naming)?;
        Ok(Self { beside, sink, header_bytes, tail: Tail::new(codec), trailer: framing.trailer() })
    }

    /// Returns the bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.sink.bytes
    }

    /// Appends framed records that are compressed with the shard's codec, given the length of each before compression.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append_stream(
        &mut self,
        bytes: &[u8],
        raw_bytes: u64,
        crc32: u32,
        rows: SidecarColumns,
        lengths: &[u64],
    ) -> Result<()> {
        let mut at = self.append_bytes(bytes)?;
        self.tail.add(bytes.len() as u64, raw_bytes, crc32);
        let mut offsets = Vec::with_capacity(lengths.len());
        for length in lengths {
            offsets.push(at);
            if let Some(indexes) = &mut self.beside.indexes {
                indexes.record(at, *length)?;
            }
            at += length;
        }
        let extents = Some((offsets.into(), lengths.to_vec().into()));
        self.beside.sidecar.append(SidecarColumns { extents, ..rows })
    }

    /// Appends stored bytes of records and returns their offset in the uncompressed shard. More bytes of the same part
    /// may follow; [`Self::end_bytes`] ends it.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append_bytes(&mut self, bytes: &[u8]) -> Result<u64> {
        self.sink.write_all(bytes)?;
        if let Some(indexes) = &mut self.beside.indexes {
            indexes.feed(bytes)?;
        }
        Ok(self.tail.combined().0)
    }

    /// Appends up to `bytes` stored bytes of records from a source and passes them to `look`; returns how many there
    /// were. Otherwise like [`Self::append_bytes`].
    ///
    /// # Errors
    /// Fails if the source, the store or `look` fails.
    pub fn append_from(
        &mut self,
        source: &mut dyn Read,
        bytes: u64,
        look: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let indexes = &mut self.beside.indexes;
        self.sink.append_from(source, bytes, &mut |piece| {
            if let Some(indexes) = indexes {
                indexes.feed(piece)?;
            }
            look(piece)
        })
    }

    /// Ends a part written with [`Self::append_bytes`], given its size and CRC-32 before compression, and its units.
    pub fn end_bytes(&mut self, raw_bytes: u64, crc32: u32, frames: &Frames) {
        self.tail.join(raw_bytes, crc32, frames);
    }

    /// Compresses bytes of records as a unit and appends it; nothing if there are none.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append_unit(&mut self, codec: Codec, raw: Vec<u8>) -> Result<()> {
        if raw.is_empty() {
            return Ok(());
        }
        let unit = codec.compress_unit(raw)?;
        let mut one = Frames::default();
        one.push(unit.bytes.len() as u64, unit.raw_bytes);
        self.append_bytes(&unit.bytes)?;
        self.end_bytes(unit.raw_bytes, unit.crc32, &one);
        Ok(())
    }

    /// Appends rows of another sidecar, with offsets moved by `shift` bytes.
    ///
    /// # Errors
    /// Fails if the batch has another schema.
    pub fn append_sidecar(&mut self, batch: &RecordBatch, shift: i128) -> Result<()> {
        self.beside.append_sidecar(batch, shift)
    }

    /// Finishes the shard and its sidecar. `runs` gives for each run its first record number and its length; the last
    /// one may omit the length.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn finish(self, runs: &[(u64, Option<u64>)]) -> Result<FinishedShard> {
        let Self { beside, mut sink, header_bytes: body_offset, mut tail, trailer } = self;
        let codec = beside.codec;
        let body_bytes = sink.bytes - body_offset;
        let (_, body_crc32) = tail.combined();
        let packed = !codec.stream_extension().is_empty();
        let frames = if packed { FrameTable::new(body_offset, tail.frames()) } else { None };
        if !trailer.is_empty() {
            let unit = codec.compress_unit(trailer.to_vec())?;
            sink.write_all(&unit.bytes)?;
            tail.add(unit.bytes.len() as u64, unit.raw_bytes, unit.crc32);
        }
        let (raw_bytes, _) = tail.combined();
        sink.write_all(&tail.finish())?;
        let sums = sink.finish()?;
        beside.finish(Ended { sums, frames, raw_bytes, body_offset, body_bytes, body_crc32 }, runs)
    }
}

/// Counts and hashes the bytes written to a sink.
struct HashingSink {
    inner: Box<dyn Sink>,
    sums: Sums,
    bytes: u64,
}

struct Sums {
    /// Boxed because the hasher is larger than everything around it.
    blake3: Box<blake3::Hasher>,
    md5: Option<Md5>,
}

impl Sums {
    fn update(&mut self, bytes: &[u8]) {
        match &mut self.md5 {
            None => {
                self.blake3.update(bytes);
            }
            // MD5 is the slowest step for these bytes, so both hashes are computed in parallel.
            Some(md5) => {
                rayon::join(|| md5.update(bytes), || self.blake3.update(bytes));
            }
        }
    }
}

/// Size and hashes of the bytes written to a sink.
struct Hashed {
    bytes: u64,
    checksum: [u8; 32],
    md5: Option<[u8; 16]>,
    staged: Staged,
}

impl HashingSink {
    fn create(store: &dyn Store, path: &str, naming: &ShardNaming) -> Result<Self> {
        let md5 = naming.indexes.contains(&IndexKind::Wids).then(Md5::new);
        let sums = Sums { blake3: Box::new(blake3::Hasher::new()), md5 };
        Ok(Self { inner: store.create(path)?, sums, bytes: 0 })
    }

    fn append_from(
        &mut self,
        source: &mut dyn Read,
        bytes: u64,
        look: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let sums = &mut self.sums;
        let taken = self.inner.append_from(source, bytes, &mut |piece| {
            sums.update(piece);
            look(piece)
        })?;
        self.bytes += taken;
        Ok(taken)
    }

    fn finish(self) -> Result<Hashed> {
        Ok(Hashed {
            bytes: self.bytes,
            checksum: *self.sums.blake3.finalize().as_bytes(),
            md5: self.sums.md5.map(|md5| md5.finalize().into()),
            staged: self.inner.finish()?,
        })
    }
}

impl Write for HashingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.sums.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
