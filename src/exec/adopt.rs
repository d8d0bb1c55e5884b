//! Taking files that are shards already into a dataset: reads each once from end to end, and writes only its sidecar.
//!
//! ```text
//! file --> BLAKE3 of the stored bytes, XXH3 of the source, and a copy where no link is possible
//!      '-> decoded: records, ids, extents --> sidecar, hashes for the id index
//!                   places of records and files --> indexes for training tools, where the dataset has them
//! ```
//!
//! Every record is decoded, so a damaged file is found now and not by the first training run. Of a TFRecord only the
//! features that make ids are. Memory holds a batch of rows or one record, and 16 bytes for each id of the file.

use std::{
    borrow::Cow,
    io::{BufReader, Read as _, Write as _},
    sync::{Arc, Mutex, PoisonError},
};

use arrow::array::{Array, RecordBatch, StringArray};
use jiff::Timestamp;
use md5::{Digest as _, Md5};
use xxhash_rust::xxh3::Xxh3Default;

use super::{
    encode::{framing, id_column},
    index::ShardIndexes,
};
use crate::{
    codec::Codec,
    dataset::{
        Beside, Hiding, IdColumn, IdKind, NewShard, RowNumbers, ShardMeta, SidecarColumns, SidecarWriter, SourceRuns,
        SuppressList,
    },
    error::{Error, Result},
    events::{Cancel, Event, Observer},
    format::{
        Extent, OutputFormat, Scanned,
        index::IndexKind,
        parquet,
        tar::scan_foreign_files,
        tfrecord::{IdFeatures, feature_names, scan_with},
    },
    id::{IdHash, Version},
    record::{BATCH_ROWS, hash::row_hashes, numbers::Numbers, parts::KEY_COLUMN},
    scan::SourceFile,
    storage::{Location, Sink, Staged, Store},
    units::Size,
};

/// Uncompressed bytes of Parquet decoded at once.
const BATCH_BYTES: u64 = 16 << 20;
const READ_BYTES: usize = 1 << 20;

/// How files are taken in.
pub struct Adopter<'a> {
    /// The dataset's store.
    pub store: &'a Arc<dyn Store>,
    /// Format of all files.
    pub format: OutputFormat,
    /// Columns that make the record id; empty: the key where there is one, else the origin.
    pub id: &'a [String],
    /// Column of the subject id.
    pub subject: Option<&'a String>,
    /// Bytes that a record may have where its ids are in it.
    pub max_record: Size,
    /// Indexes for training tools that every shard gets.
    pub indexes: &'a [IndexKind],
    /// Hides ids and names of sources, where they are private.
    pub hiding: Option<Hiding>,
    /// Who is not to come back.
    pub suppress: Option<&'a SuppressList>,
    /// Is told what happens.
    pub observer: &'a dyn Observer,
    /// Stops it.
    pub cancel: &'a Cancel,
}

/// A file to be taken in.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The file.
    pub file: SourceFile,
    /// How it is compressed as a whole; none for Parquet.
    pub codec: Codec,
    /// Path of the shard in the dataset.
    pub path: String,
    /// Path of its sidecar, where that of the shard does not tell.
    pub sidecar: Option<String>,
    /// Where the file lies, when it is not there yet.
    pub from: Option<Location>,
}

/// A file that is ready to be a shard.
#[derive(Debug)]
pub struct Adopted {
    /// Its sidecar, its indexes, and last the file itself where it was linked or copied.
    pub staged: Vec<Staged>,
    /// Its facts, with record numbers from 0.
    pub shard: NewShard,
    /// XXH3-64 of the stored bytes.
    pub source_hash: u64,
    /// MD5 of the stored bytes, where an index needs it.
    pub md5: Option<[u8; 16]>,
    /// Whether it was copied, because it could not be linked.
    pub copied: bool,
    /// Hashes of record ids, with the ordinals of their records.
    pub record_ids: Vec<(IdHash, u64)>,
    /// Hashes of subject ids, likewise.
    pub subject_ids: Vec<(IdHash, u64)>,
    /// Columns for ids that none of its records has; only of TFRecord, where an absent value is a null.
    pub absent: Vec<String>,
    /// Columns of its first record, if something is absent.
    pub columns: Vec<String>,
}

impl Adopter<'_> {
    /// Reads a file and prepares it.
    ///
    /// # Errors
    /// When it is damaged or not what it was taken for, an id column is missing, or a store fails; names the file.
    pub fn adopt(&self, candidate: &Candidate) -> Result<Adopted> {
        self.cancel.check()?;
        let uri = &candidate.file.uri();
        let (mut staged, copy) = self.bring(candidate)?;
        let copied = copy.is_some();
        let stored = Arc::new(Mutex::new(Stored::new(copy, self.indexes.contains(&IndexKind::Wids))));
        let mut indexes = self.start_indexes(candidate)?;
        let mut rows = Rows::new(self.store.as_ref(), candidate, self.hiding.clone(), self.suppress)?;
        let found = match self.format {
            OutputFormat::Parquet => self.parquet(candidate, &stored, &mut rows),
            OutputFormat::Tar => self.tar(candidate, &stored, &mut rows, indexes.as_mut()),
            OutputFormat::TfRecord => self.tfrecord(candidate, &stored, &mut rows, indexes.as_mut()),
        }
        .map_err(|e| if e.place().source.is_none() { e.at(uri.clone()) } else { e })?;
        rows.flush()?;
        let mut stored = stored.lock().unwrap_or_else(PoisonError::into_inner);
        let checksum = stored.finish(candidate.file.bytes()).map_err(|e| e.at(uri.clone()))?;
        if let Some(copy) = stored.copy.take() {
            staged.push(copy.finish()?);
        }
        let records = rows.ordinal;
        let source_hash = stored.xxh3.digest();
        let md5 = stored.md5.take().map(|md5| md5.finalize().into());
        let mut before = vec![rows.sidecar.finish()?];
        if let Some(indexes) = indexes {
            before.extend(indexes.finish_at(records, rows.end).map_err(|e| e.at(uri.clone()))?);
        }
        staged.splice(0..0, before);
        let meta = ShardMeta {
            path: candidate.path.clone(),
            records,
            bytes: candidate.file.bytes(),
            codec: found.codec,
            raw_bytes: found.extent.raw,
            checksum,
            body_offset: 0,
            // A stream that others compressed cannot be cut where its records end.
            body_bytes: if found.codec == Codec::None { found.extent.body } else { 0 },
            body_crc32: 0,
            compacted_for: 0,
            first_record: 0,
            version: Version(0),
            committed_at: Timestamp::UNIX_EPOCH,
            order: None,
            beside: candidate.sidecar.clone().map(|at| Arc::new(Beside { at: Some(at), ..Beside::default() })),
        };
        self.observer.event(Event::Read { bytes: meta.bytes, records });
        Ok(Adopted {
            staged,
            shard: NewShard { meta, runs: vec![(0, records, 0)], scattered: None },
            source_hash,
            md5,
            copied,
            record_ids: rows.record_ids,
            subject_ids: rows.subject_ids,
            absent: found.absent,
            columns: found.columns,
        })
    }

    /// The indexes of a shard; `None` where the dataset has none.
    fn start_indexes(&self, candidate: &Candidate) -> Result<Option<ShardIndexes>> {
        if self.indexes.is_empty() {
            return Ok(None);
        }
        let (store, sidecar) = (self.store.as_ref(), candidate.sidecar.as_deref());
        ShardIndexes::create_beside(store, &candidate.path, sidecar, self.format, self.indexes).map(Some)
    }

    /// Links a file that is not in the dataset yet, or starts a copy of it.
    fn bring(&self, candidate: &Candidate) -> Result<Brought> {
        let Some(from) = &candidate.from else { return Ok((Vec::new(), None)) };
        Ok(match self.store.link(from, &candidate.path)? {
            Some(linked) => (vec![linked], None),
            None => (Vec::new(), Some(self.store.create(&candidate.path)?)),
        })
    }

    fn parquet(&self, candidate: &Candidate, stored: &Arc<Mutex<Stored>>, rows: &mut Rows<'_>) -> Result<Found> {
        let mut input = candidate.file.object().read()?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            self.cancel.check()?;
            let n = input.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            stored.lock().unwrap_or_else(PoisonError::into_inner).update(&buffer[..n]);
        }
        let file = parquet::open(candidate.file.object(), &candidate.file.uri())?;
        let ids = self.id_columns(&file, candidate)?;
        let raw: u64 = file.row_groups().iter().map(|g| g.uncompressed_bytes).sum();
        let found = Found::new(file.codec(), Extent { body: 0, raw });
        let row_bytes = (raw / file.rows().max(1)).max(1);
        let batch_rows = usize::try_from(BATCH_BYTES / row_bytes).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS);
        for batch in file.batches(batch_rows) {
            self.cancel.check()?;
            let batch = batch?;
            let text = |columns: &[String]| -> Result<Option<StringArray>> {
                if columns.is_empty() { Ok(None) } else { id_column(&batch, columns).map(Some) }
            };
            rows.append_batch(&batch, text(&ids)?, text(self.subject.map_or(&[], std::slice::from_ref))?)?;
        }
        rows.sidecar.set_of_values();
        Ok(found)
    }

    /// The columns that make the record id of this file.
    fn id_columns(
        &self,
        file: &parquet::ParquetFile<crate::storage::Object>,
        candidate: &Candidate,
    ) -> Result<Vec<String>> {
        let has = |column: &str| file.schema().column_with_name(column).is_some();
        if let Some(missing) = self.id.iter().chain(self.subject).find(|column| !has(column)) {
            let columns: Vec<&str> = file.schema().fields().iter().map(|f| f.name().as_str()).collect();
            return Err(Error::input("expected a column for ids, found none with this name")
                .at(candidate.file.uri())
                .column(missing.clone())
                .hint(format!("the columns are {}", columns.join(", ")))
                .hint("columns that only the name of a folder tells (key=value) cannot be ids"));
        }
        if self.id.is_empty() && has(KEY_COLUMN) { Ok(vec![KEY_COLUMN.to_owned()]) } else { Ok(self.id.to_vec()) }
    }

    fn tar(
        &self,
        candidate: &Candidate,
        stored: &Arc<Mutex<Stored>>,
        rows: &mut Rows<'_>,
        indexes: Option<&mut ShardIndexes>,
    ) -> Result<Found> {
        let framing = framing(self.format).ok_or_else(|| Error::internal("expected a framed format"))?;
        let mut input = open(candidate, stored)?;
        let mut visit = |found: Scanned, key: Option<&str>| {
            self.pause(rows)?;
            rows.append(&found, key.map(str::to_owned), None)
        };
        let extent = match indexes {
            None => framing.scan_foreign(&mut input, &mut visit)?,
            Some(indexes) => scan_foreign_files(&mut input, &mut |place| indexes.member(&place), &mut visit)?,
        };
        Ok(Found::new(candidate.codec, extent))
    }

    fn tfrecord(
        &self,
        candidate: &Candidate,
        stored: &Arc<Mutex<Stored>>,
        rows: &mut Rows<'_>,
        mut indexes: Option<&mut ShardIndexes>,
    ) -> Result<Found> {
        let features = IdFeatures::new(self.id, self.subject);
        let mut absent: Vec<Option<&String>> = features.named().map(Some).collect();
        let mut columns = Vec::new();
        let mut first = true;
        let read = |data: Option<&[u8]>| {
            let data = data.ok_or_else(|| self.too_large())?;
            if std::mem::take(&mut first) && !absent.is_empty() {
                columns = feature_names(data);
            }
            features.read(data, |at| absent[at] = None)
        };
        let mut input = open(candidate, stored)?;
        let extent = scan_with(&mut input, self.max_record.0, read, |found, ids| {
            self.pause(rows)?;
            let ids = ids.map_err(|e| e.byte(found.offset))?;
            if let Some(indexes) = &mut indexes {
                indexes.record(found.offset, found.length)?;
            }
            rows.append(&found, ids.record, ids.subject)
        })
        .map_err(|e| e.at(candidate.file.uri()))?;
        let absent = absent.into_iter().flatten().cloned().collect();
        Ok(Found { absent, columns, ..Found::new(candidate.codec, extent) })
    }

    /// Looks now and then whether somebody wants to stop.
    fn pause(&self, rows: &Rows<'_>) -> Result<()> {
        if rows.pending.hashes.is_empty() { self.cancel.check() } else { Ok(()) }
    }

    fn too_large(&self) -> Error {
        let limit = self.max_record.0;
        Error::input(format!("expected a record of at most {limit} bytes, to read its ids, found a larger one"))
            .hint("if the file is as it should be, raise --memory; a record may take an eighth of it")
    }
}

/// The uncompressed bytes of a file; those that are stored go by on the way.
fn open(candidate: &Candidate, stored: &Arc<Mutex<Stored>>) -> Result<impl std::io::Read> {
    let stored = Arc::clone(stored);
    let tap = move |bytes: &[u8]| stored.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
    Ok(BufReader::with_capacity(READ_BYTES, candidate.file.open(tap)?))
}

/// The link to a file, or the copy of it that is to be written.
type Brought = (Vec<Staged>, Option<Box<dyn Sink>>);

/// What a file turned out to be.
struct Found {
    codec: Codec,
    extent: Extent,
    absent: Vec<String>,
    columns: Vec<String>,
}

impl Found {
    fn new(codec: Codec, extent: Extent) -> Self {
        Self { codec, extent, absent: Vec::new(), columns: Vec::new() }
    }
}

/// The stored bytes of a file on their way.
struct Stored {
    blake3: Box<blake3::Hasher>,
    xxh3: Box<Xxh3Default>,
    md5: Option<Md5>,
    bytes: u64,
    copy: Option<Box<dyn Sink>>,
    /// Why the copy failed; readers have no way to be told at once.
    failure: Option<Error>,
}

impl Stored {
    fn new(copy: Option<Box<dyn Sink>>, md5: bool) -> Self {
        Self {
            blake3: Box::new(blake3::Hasher::new()),
            xxh3: Box::new(Xxh3Default::new()),
            md5: md5.then(Md5::new),
            bytes: 0,
            copy,
            failure: None,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.blake3.update(bytes);
        self.xxh3.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        self.bytes += bytes.len() as u64;
        if let Some(copy) = self.copy.as_mut().filter(|_| self.failure.is_none()) {
            self.failure = copy.write_all(bytes).err().map(Error::from);
        }
    }

    /// The checksum, if all of the file went by.
    fn finish(&mut self, expected: u64) -> Result<[u8; 32]> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if self.bytes != expected {
            return Err(Error::input(format!("expected {expected} bytes, found {}", self.bytes))
                .hint("the file changes while it is read; wait until its writer is done"));
        }
        Ok(*self.blake3.finalize().as_bytes())
    }
}

/// Rows of the sidecar on their way.
struct Rows<'a> {
    suppress: Option<&'a SuppressList>,
    sidecar: SidecarWriter,
    /// Name of the source as people know it, and as it is stored.
    name: Arc<str>,
    source: Arc<str>,
    ordinal: u64,
    /// Where the last framed record ends.
    end: u64,
    pending: Pending,
    record_ids: Vec<(IdHash, u64)>,
    subject_ids: Vec<(IdHash, u64)>,
    hiding: Option<Hiding>,
}

#[derive(Default)]
struct Pending {
    record_ids: Vec<Option<String>>,
    subject_ids: Vec<Option<String>>,
    offsets: Vec<u64>,
    lengths: Vec<u64>,
    hashes: Vec<u64>,
}

impl<'a> Rows<'a> {
    fn new(
        store: &dyn Store,
        candidate: &Candidate,
        hiding: Option<Hiding>,
        suppress: Option<&'a SuppressList>,
    ) -> Result<Self> {
        let source = hiding.as_ref().map_or(Cow::Borrowed(candidate.file.name()), |h| h.source(candidate.file.name()));
        Ok(Self {
            suppress,
            sidecar: match &candidate.sidecar {
                Some(path) => SidecarWriter::create_at(store, path)?,
                None => SidecarWriter::create(store, &candidate.path)?,
            },
            name: candidate.file.name().into(),
            source: source.into(),
            hiding,
            ordinal: 0,
            end: 0,
            pending: Pending::default(),
            record_ids: Vec::new(),
            subject_ids: Vec::new(),
        })
    }

    /// Adds a framed record.
    fn append(&mut self, found: &Scanned, record_id: Option<String>, subject_id: Option<String>) -> Result<()> {
        self.end = found.offset + found.length;
        self.pending.record_ids.push(record_id);
        self.pending.subject_ids.push(subject_id);
        self.pending.offsets.push(found.offset);
        self.pending.lengths.push(found.length);
        self.pending.hashes.push(found.hash);
        if self.pending.hashes.len() == BATCH_ROWS { self.flush() } else { Ok(()) }
    }

    /// Writes the framed records that are waiting.
    fn flush(&mut self) -> Result<()> {
        let Pending { record_ids, subject_ids, offsets, lengths, hashes } = std::mem::take(&mut self.pending);
        let text = |ids: Vec<Option<String>>| ids.iter().any(Option::is_some).then(|| StringArray::from(ids));
        self.write(text(record_ids), text(subject_ids), Some((offsets, lengths)), hashes)
    }

    /// Adopted shards are never rewritten, so nobody can be left out of one.
    fn refuse_erased(&self, ids: [Option<&StringArray>; 2], rows: usize) -> Result<()> {
        let Some(list) = self.suppress else { return Ok(()) };
        let origins = list.has_origins_in(&self.name);
        for row in 0..rows {
            let kinds = [IdKind::Record, IdKind::Subject].into_iter().zip(ids);
            let named = kinds
                .filter_map(|(kind, ids)| Some((kind, ids?)))
                .any(|(kind, ids)| ids.is_valid(row) && list.has_id(kind, ids.value(row)));
            let number = self.ordinal + row as u64 + 1;
            if named || (origins && list.has_origin(&format!("{}#{number}", self.name), None)) {
                return Err(Error::input(format!(
                    "expected nobody who was erased from this dataset, found somebody in record {number}"
                ))
                .hint("`shardify convert` takes the file without who was erased"));
            }
        }
        Ok(())
    }

    /// Adds rows of Parquet. They have no bytes of their own, so their values are hashed.
    fn append_batch(
        &mut self,
        batch: &RecordBatch,
        ids: Option<StringArray>,
        subjects: Option<StringArray>,
    ) -> Result<()> {
        self.write(ids, subjects, None, row_hashes(batch))
    }

    fn write(
        &mut self,
        record_ids: Option<StringArray>,
        subject_ids: Option<StringArray>,
        extents: Option<(Vec<u64>, Vec<u64>)>,
        hashes: Vec<u64>,
    ) -> Result<()> {
        let rows = hashes.len();
        if rows == 0 {
            return Ok(());
        }
        self.refuse_erased([record_ids.as_ref(), subject_ids.as_ref()], rows)?;
        let column = |ids: Option<StringArray>| -> Result<Option<IdColumn>> {
            let ids = ids.map(|ids| IdColumn::join(&[ids])).transpose()?;
            match (&self.hiding, ids) {
                (Some(hiding), Some(ids)) => ids.hidden(hiding).map(Some),
                (_, ids) => Ok(ids),
            }
        };
        let (record_ids, subject_ids) = (column(record_ids)?, column(subject_ids)?);
        for (ids, known) in [(&record_ids, &mut self.record_ids), (&subject_ids, &mut self.subject_ids)] {
            let Some(ids) = ids else { continue };
            known.extend(ids.hashes().iter().map(|(row, hash)| (hash, self.ordinal + row as u64)));
        }
        let first = self.ordinal + 1;
        self.ordinal += rows as u64;
        self.sidecar.append(SidecarColumns {
            record_ids,
            subject_ids,
            extents: extents.map(|(offsets, lengths)| (offsets.into(), lengths.into())),
            sources: SourceRuns::one(&self.source, rows),
            rows: Some(RowNumbers::Known(Numbers::counting(first, rows))),
            hashes: match &self.hiding {
                Some(hiding) => hiding.contents(hashes.into()),
                None => hashes.into(),
            },
        })
    }
}
