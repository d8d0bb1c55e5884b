//! Adopts existing shard files into a dataset: reads each file once from end to end and writes only its sidecar.
//!
//! ```text
//! file --> BLAKE3 of the stored bytes, XXH3 of the source, and a copy where no link is possible
//!      '-> decoded: records, ids, extents --> sidecar, hashes for the id index
//!                   places of records and files --> indexes for training tools, where the dataset has them
//! ```
//!
//! Every record is decoded, so a damaged file is detected now and not by the first training run. From a TFRecord file,
//! only the features that make ids are decoded. Memory holds one batch of rows or one record, and 16 bytes for each id
//! of the file.

use std::{
    borrow::Cow,
    io::{BufReader, Read as _, Write as _},
    sync::{Arc, Mutex, PoisonError},
};

use arrow::array::{Array, StringArray};
use jiff::Timestamp;
use md5::{Digest as _, Md5};
use xxhash_rust::xxh3::Xxh3Default;

use crate::{
    codec::Codec,
    dataset::{
        Beside, IdColumn, IdKind, NewShard, Pseudonymizer, RowNumbers, Sealed, ShardMeta, SidecarColumns,
        SidecarWriter, SourceRuns, SuppressList,
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
    indexes::{self, kind::StartedShard, shard::ShardIndexes},
    record::{BATCH_ROWS, hash::row_hashes, id_column, numbers::Numbers, parts::KEY_COLUMN},
    scan::SourceFile,
    schema,
    storage::{Location, Sink, Staged, Store},
    units::Size,
};

/// Uncompressed bytes of Parquet to decode at once.
const BATCH_BYTES: u64 = 16 << 20;
const READ_BYTES: usize = 1 << 20;

/// Settings for adopting files.
pub struct Adopter<'a> {
    /// The dataset's store.
    pub store: &'a Arc<dyn Store>,
    /// Format of all files.
    pub format: OutputFormat,
    /// Columns that make the record id; if empty, the key column if there is one, else the origin.
    pub id: &'a [String],
    /// Column of the subject id.
    pub subject: Option<&'a String>,
    /// Whether rows of Parquet are hashed.
    pub hash_records: bool,
    /// Maximum bytes of a record whose ids are read from its content.
    pub max_record: Size,
    /// Indexes for training tools that every shard gets.
    pub indexes: &'a [IndexKind],
    /// Pseudonymizes ids and source names if they are private.
    pub pseudonymizer: Option<Pseudonymizer>,
    /// Ids of erased records, which must not be imported again; `None` if nothing was erased.
    pub suppress: Option<&'a SuppressList>,
    /// Receives progress events.
    pub observer: &'a dyn Observer,
    /// Cancellation token.
    pub cancel: &'a Cancel,
}

/// A file to be adopted.
#[derive(Debug, Clone)]
pub struct AdoptCandidate {
    /// The file.
    pub file: SourceFile,
    /// Compression of the whole file; none for Parquet.
    pub codec: Codec,
    /// Path of the shard in the dataset.
    pub path: String,
    /// Path of its sidecar.
    pub sidecar: String,
    /// Location of the file if it is outside the dataset; `None` if it is already in place.
    pub source_location: Option<Location>,
}

/// A file that is ready to become a shard.
#[derive(Debug)]
pub struct Adopted {
    /// Its sidecar, its indexes and, last, the file itself if it was linked or copied.
    pub staged: Vec<Staged>,
    /// Metadata of the shard, with record numbers from 0.
    pub shard: NewShard,
    /// XXH3-64 of the stored bytes.
    pub source_hash: u64,
    /// MD5 of the stored bytes, if an index needs it.
    pub md5: Option<[u8; 16]>,
    /// Whether the file was copied because it could not be linked.
    pub copied: bool,
    /// Hashes of record ids with the ordinals of their records.
    pub record_ids: Vec<(IdHash, u64)>,
    /// Hashes of subject ids with the ordinals of their records.
    pub subject_ids: Vec<(IdHash, u64)>,
    /// Id columns that no record of the file has; only for TFRecord, where an absent value is null.
    pub absent: Vec<String>,
    /// Columns of the first record, if `absent` is not empty.
    pub columns: Vec<String>,
}

impl Adopter<'_> {
    /// Reads a file and prepares it as a shard.
    ///
    /// # Errors
    /// Fails if the file is damaged or has another format, an id column is missing, or a store fails; the error names
    /// the file.
    pub fn adopt_file(&self, candidate: &AdoptCandidate) -> Result<Adopted> {
        self.cancel.check()?;
        let uri = &candidate.file.uri();
        let (mut staged, copy) = self.link_or_copy(candidate)?;
        let copied = copy.is_some();
        let stored = Arc::new(Mutex::new(Stored::new(copy, indexes::any_kind(self.indexes, |about| about.needs_md5))));
        let mut indexes = self.start_indexes(candidate)?;
        let mut rows = AdoptedRows::new(self.store.as_ref(), candidate, self.pseudonymizer.clone(), self.suppress)?;
        let found = match self.format {
            OutputFormat::Parquet => self.read_parquet(candidate, &stored, &mut rows),
            OutputFormat::Tar => self.read_tar(candidate, &stored, &mut rows, indexes.as_mut()),
            OutputFormat::TfRecord => self.read_tfrecord(candidate, &stored, &mut rows, indexes.as_mut()),
        }
        .map_err(|e| if e.place().source.is_none() { e.at_location(uri.clone()) } else { e })?;
        rows.flush()?;
        let mut stored = stored.lock().unwrap_or_else(PoisonError::into_inner);
        let checksum = stored.finish(candidate.file.bytes()).map_err(|e| e.at_location(uri.clone()))?;
        if let Some(copy) = stored.copy.take() {
            staged.push(copy.finish()?);
        }
        let records = rows.ordinal;
        let source_hash = stored.xxh3.digest();
        let md5 = stored.md5.take().map(|md5| md5.finalize().into());
        let sidecar = rows.sidecar.finish()?;
        let beside = Arc::new(Beside::new(Sealed::from_staged(&sidecar)?));
        let mut before = vec![sidecar];
        if let Some(indexes) = indexes {
            before.extend(indexes.finish(records, rows.end).map_err(|e| e.at_location(uri.clone()))?);
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
            // A stream compressed by another program cannot be split at record boundaries.
            body_bytes: if found.codec == Codec::None { found.extent.body } else { 0 },
            body_crc32: 0,
            compacted_for: 0,
            first_record: 0,
            version: Version(0),
            committed_at: Timestamp::UNIX_EPOCH,
            order: None,
            beside,
        };
        self.observer.event(Event::Read { bytes: meta.bytes, records });
        Ok(Adopted {
            staged,
            shard: NewShard { meta, runs: vec![(0, records, 0)], since: Vec::new(), scattered: None },
            source_hash,
            md5,
            copied,
            record_ids: rows.record_ids,
            subject_ids: rows.subject_ids,
            absent: found.absent,
            columns: found.columns,
        })
    }

    /// Creates the indexes of a shard; `None` if the dataset has none.
    fn start_indexes(&self, candidate: &AdoptCandidate) -> Result<Option<ShardIndexes>> {
        if self.indexes.is_empty() {
            return Ok(None);
        }
        let AdoptCandidate { path, sidecar, .. } = candidate;
        let shard = StartedShard { store: self.store.as_ref(), path, sidecar, format: self.format };
        ShardIndexes::create(&shard, self.indexes).map(Some)
    }

    /// Links a file that is outside the dataset, or starts a copy of it.
    fn link_or_copy(&self, candidate: &AdoptCandidate) -> Result<LinkOrCopy> {
        let Some(from) = &candidate.source_location else { return Ok((Vec::new(), None)) };
        Ok(match self.store.link_object(from, &candidate.path)? {
            Some(linked) => (vec![linked], None),
            None => (Vec::new(), Some(self.store.create_sink(&candidate.path)?)),
        })
    }

    fn read_parquet(
        &self,
        candidate: &AdoptCandidate,
        stored: &Arc<Mutex<Stored>>,
        rows: &mut AdoptedRows<'_>,
    ) -> Result<FileProperties> {
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
        let found = FileProperties::new(file.codec(), Extent { body: 0, raw });
        let row_bytes = (raw / file.row_count().max(1)).max(1);
        let batch_rows = usize::try_from(BATCH_BYTES / row_bytes).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS);
        for batch in file.into_batches(batch_rows) {
            self.cancel.check()?;
            let batch = batch?;
            let text = |columns: &[String]| -> Result<Option<StringArray>> {
                if columns.is_empty() { Ok(None) } else { id_column(&batch, columns).map(Some) }
            };
            let hashes = if self.hash_records {
                Numbers::Each(row_hashes(&batch))
            } else {
                Numbers::repeat_number(0, batch.num_rows())
            };
            rows.write(text(&ids)?, text(self.subject.map_or(&[], std::slice::from_ref))?, None, hashes)?;
        }
        if self.hash_records {
            rows.sidecar.set_hashes_cover_values();
        }
        Ok(found)
    }

    /// Returns the columns that make the record id of this file.
    fn id_columns(
        &self,
        file: &parquet::ParquetFile<crate::storage::Object>,
        candidate: &AdoptCandidate,
    ) -> Result<Vec<String>> {
        let has = |column: &str| file.schema().column_with_name(column).is_some();
        if let Some(missing) = self.id.iter().chain(self.subject).find(|column| !has(column)) {
            let columns: Vec<&str> = file.schema().fields().iter().map(|f| f.name().as_str()).collect();
            let error = Error::input("expected an id column, found no column of this name")
                .at_location(candidate.file.uri())
                .in_column(missing.clone());
            return Err(schema::hint_columns(error, missing, &columns)
                .with_hint("a column that exists only in a folder name (key=value) cannot be an id"));
        }
        if self.id.is_empty() && has(KEY_COLUMN) { Ok(vec![KEY_COLUMN.to_owned()]) } else { Ok(self.id.to_vec()) }
    }

    fn read_tar(
        &self,
        candidate: &AdoptCandidate,
        stored: &Arc<Mutex<Stored>>,
        rows: &mut AdoptedRows<'_>,
        indexes: Option<&mut ShardIndexes>,
    ) -> Result<FileProperties> {
        let framing = self.format.framing()?;
        let mut input = open_hashed(candidate, stored)?;
        let mut visit = |found: Scanned, key: Option<&str>| {
            self.check_cancel(rows)?;
            rows.append_row(&found, key.map(str::to_owned), None)
        };
        let extent = match indexes {
            None => framing.scan_foreign(&mut input, &mut visit)?,
            Some(indexes) => scan_foreign_files(&mut input, &mut |place| indexes.add_member(&place), &mut visit)?,
        };
        rows.flush()?;
        if let Some(note) = separated_note(&rows.record_ids) {
            self.observer.event(Event::Note(format!("{}: {note}", candidate.file.name())));
        }
        Ok(FileProperties::new(candidate.codec, extent))
    }

    fn read_tfrecord(
        &self,
        candidate: &AdoptCandidate,
        stored: &Arc<Mutex<Stored>>,
        rows: &mut AdoptedRows<'_>,
        mut indexes: Option<&mut ShardIndexes>,
    ) -> Result<FileProperties> {
        let features = IdFeatures::new(self.id, self.subject);
        let mut absent: Vec<Option<&String>> = features.requested_features().map(Some).collect();
        let mut columns = Vec::new();
        let mut first = true;
        let read = |data: Option<&[u8]>| {
            let data = data.ok_or_else(|| self.too_large())?;
            if std::mem::take(&mut first) && !absent.is_empty() {
                columns = feature_names(data);
            }
            features.read(data, |at| absent[at] = None)
        };
        let mut input = open_hashed(candidate, stored)?;
        let extent = scan_with(&mut input, self.max_record.0, read, |found, ids| {
            self.check_cancel(rows)?;
            let ids = ids.map_err(|e| e.at_byte(found.offset))?;
            if let Some(indexes) = &mut indexes {
                indexes.add_record(found.offset, found.length)?;
            }
            rows.append_row(&found, ids.record, ids.subject)
        })
        .map_err(|e| e.at_location(candidate.file.uri()))?;
        let absent = absent.into_iter().flatten().cloned().collect();
        Ok(FileProperties { absent, columns, ..FileProperties::new(candidate.codec, extent) })
    }

    /// Checks for cancellation once per batch of records.
    fn check_cancel(&self, rows: &AdoptedRows<'_>) -> Result<()> {
        if rows.pending.hashes.is_empty() { self.cancel.check() } else { Ok(()) }
    }

    fn too_large(&self) -> Error {
        let limit = self.max_record.0;
        Error::input(format!("expected a record of at most {limit} bytes, to read its ids, found a larger one"))
            .with_hint("if the record is valid, raise --memory; a record may take an eighth of it")
    }
}

/// Returns a note that samples of an archive have the key of an earlier one, given the hashes and ordinals of all.
fn separated_note(ids: &[(IdHash, u64)]) -> Option<String> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    let again = sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    let (count, first) = again.fold((0, None), |(count, first): (u64, Option<[u64; 2]>), pair| {
        (count + 1, first.into_iter().chain([[pair[0].1, pair[1].1]]).min_by_key(|numbers| numbers[1]))
    });
    let [one, other] = first?;
    Some(format!(
        "{count} samples have the key of an earlier sample, the first of them samples {} and {}: parts of a sample \
         must be neighbours, or training loaders see several samples; unpack the archive and convert the folder, which \
         joins files by name: mkdir FOLDER && tar xf ARCHIVE -C FOLDER && shardify convert FOLDER",
        one + 1,
        other + 1
    ))
}

/// Opens a file as uncompressed bytes; `stored` observes the stored bytes as they are read.
fn open_hashed(candidate: &AdoptCandidate, stored: &Arc<Mutex<Stored>>) -> Result<impl std::io::Read> {
    let stored = Arc::clone(stored);
    let tap = move |bytes: &[u8]| stored.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
    Ok(BufReader::with_capacity(READ_BYTES, candidate.file.open(tap)?))
}

/// The link to a file, or the sink of its copy.
type LinkOrCopy = (Vec<Staged>, Option<Box<dyn Sink>>);

/// Properties of a file that are known after it was read.
struct FileProperties {
    codec: Codec,
    extent: Extent,
    absent: Vec<String>,
    columns: Vec<String>,
}

impl FileProperties {
    fn new(codec: Codec, extent: Extent) -> Self {
        Self { codec, extent, absent: Vec::new(), columns: Vec::new() }
    }
}

/// Hashes, counts and optionally copies the stored bytes of a file as they are read.
struct Stored {
    blake3: Box<blake3::Hasher>,
    xxh3: Box<Xxh3Default>,
    md5: Option<Md5>,
    bytes: u64,
    copy: Option<Box<dyn Sink>>,
    /// Failure of the copy, kept until `finish` because a reader's tap cannot return an error.
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

    /// Returns the checksum if the whole file was read.
    fn finish(&mut self, expected: u64) -> Result<[u8; 32]> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if self.bytes != expected {
            return Err(Error::input(format!("expected {expected} bytes, found {}", self.bytes))
                .with_hint("the file changed while it was read; wait until its writer is done"));
        }
        Ok(*self.blake3.finalize().as_bytes())
    }
}

/// Collects rows for the sidecar.
struct AdoptedRows<'a> {
    suppress: Option<&'a SuppressList>,
    sidecar: SidecarWriter,
    /// Name of the source as users know it.
    name: Arc<str>,
    /// Name of the source as it is stored.
    source: Arc<str>,
    ordinal: u64,
    /// Byte at which the last framed record ends.
    end: u64,
    pending: PendingRows,
    record_ids: Vec<(IdHash, u64)>,
    subject_ids: Vec<(IdHash, u64)>,
    pseudonymizer: Option<Pseudonymizer>,
}

#[derive(Default)]
struct PendingRows {
    record_ids: Vec<Option<String>>,
    subject_ids: Vec<Option<String>>,
    offsets: Vec<u64>,
    lengths: Vec<u64>,
    hashes: Vec<u64>,
}

impl<'a> AdoptedRows<'a> {
    fn new(
        store: &dyn Store,
        candidate: &AdoptCandidate,
        pseudonymizer: Option<Pseudonymizer>,
        suppress: Option<&'a SuppressList>,
    ) -> Result<Self> {
        let source = pseudonymizer
            .as_ref()
            .map_or(Cow::Borrowed(candidate.file.name()), |h| h.stored_source(candidate.file.name()));
        Ok(Self {
            suppress,
            sidecar: SidecarWriter::create_at(store, &candidate.sidecar, false)?,
            name: candidate.file.name().into(),
            source: source.into(),
            pseudonymizer,
            ordinal: 0,
            end: 0,
            pending: PendingRows::default(),
            record_ids: Vec::new(),
            subject_ids: Vec::new(),
        })
    }

    /// Adds a framed record.
    fn append_row(&mut self, found: &Scanned, record_id: Option<String>, subject_id: Option<String>) -> Result<()> {
        self.end = found.offset + found.length;
        self.pending.record_ids.push(record_id);
        self.pending.subject_ids.push(subject_id);
        self.pending.offsets.push(found.offset);
        self.pending.lengths.push(found.length);
        self.pending.hashes.push(found.hash);
        if self.pending.hashes.len() == BATCH_ROWS { self.flush() } else { Ok(()) }
    }

    /// Writes the pending framed records.
    fn flush(&mut self) -> Result<()> {
        let PendingRows { record_ids, subject_ids, offsets, lengths, hashes } = std::mem::take(&mut self.pending);
        let text = |ids: Vec<Option<String>>| ids.iter().any(Option::is_some).then(|| StringArray::from(ids));
        self.write(text(record_ids), text(subject_ids), Some((offsets, lengths)), hashes.into())
    }

    /// Refuses erased records: adopted shards are never rewritten, so a record cannot be removed from one.
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
                    "expected no record that was erased from this dataset, found one: record {number}"
                ))
                .with_hint("import the file with `shardify convert`, which skips erased records"));
            }
        }
        Ok(())
    }

    /// Adds records. Rows of Parquet have no contiguous bytes in the file, so their values are hashed.
    fn write(
        &mut self,
        record_ids: Option<StringArray>,
        subject_ids: Option<StringArray>,
        extents: Option<(Vec<u64>, Vec<u64>)>,
        hashes: Numbers,
    ) -> Result<()> {
        let rows = hashes.len();
        if rows == 0 {
            return Ok(());
        }
        self.refuse_erased([record_ids.as_ref(), subject_ids.as_ref()], rows)?;
        let column = |ids: Option<StringArray>| -> Result<Option<IdColumn>> {
            let ids = ids.map(|ids| IdColumn::join_parts(&[ids])).transpose()?;
            match (&self.pseudonymizer, ids) {
                (Some(pseudonymizer), Some(ids)) => ids.to_pseudonymized(pseudonymizer).map(Some),
                (_, ids) => Ok(ids),
            }
        };
        let (record_ids, subject_ids) = (column(record_ids)?, column(subject_ids)?);
        for (ids, known) in [(&record_ids, &mut self.record_ids), (&subject_ids, &mut self.subject_ids)] {
            let Some(ids) = ids else { continue };
            known.extend(ids.to_hashes().iter().map(|(row, hash)| (hash, self.ordinal + row as u64)));
        }
        let first = self.ordinal + 1;
        self.ordinal += rows as u64;
        self.sidecar.append_rows(SidecarColumns {
            record_ids,
            subject_ids,
            extents: extents.map(|(offsets, lengths)| (offsets.into(), lengths.into())),
            sources: SourceRuns::for_source(&self.source, rows),
            rows: Some(RowNumbers::Known(Numbers::counting_from(first, rows))),
            hashes: match &self.pseudonymizer {
                Some(pseudonymizer) => pseudonymizer.content_hashes(hashes),
                None => hashes,
            },
            fingerprints: None,
        })
    }
}
