//! Merges data files of a Delta table into one with the same rows.
//!
//! ```text
//! files of one schema, no deletion vectors   pages are copied or spliced, under this schema
//! other files                                the table's schema; pages of columns that fit it are spliced,
//!                                            other columns are decoded, files with vectors as a whole
//! ```
//!
//! The new file has the physical names and field ids of the table, and no sidecar. It is read back and compared with
//! what was spliced.

use std::{
    io::{self, BufRead, Write},
    sync::Arc,
};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;

use super::{
    budget::{Budget, Reservation},
    splice::{BATCH_BYTES, BATCH_FILES, FOOTERS, Splicing, TakesRowGroups, WHOLE_BYTES, prove_staged},
};
use crate::{
    codec::Codec,
    delta::{
        LiveFile, LiveTable, TableReader,
        stats::{Stats, Types},
    },
    error::{Error, Result},
    events::{Cancel, Event, Observer},
    format::{
        parquet::{GroupNote, ParquetEncoder, ParquetReader, ParquetShard, RowGroup, Source, Survey, Tally},
        ranged::RangedInput,
    },
    id::run_uuid,
    storage::{Object, RequestMemory, Sink, Staged, Store, for_each_waiting},
};

/// Merges files of one table.
pub struct FileMerger<'a> {
    /// The table.
    pub table: &'a LiveTable,
    /// Columns of its files.
    pub schema: SchemaRef,
    /// Types of their columns by path.
    pub types: Types,
    /// Compression of new files; `None` for that of the first old one.
    pub codec: Option<Codec>,
    /// Uncompressed bytes of a row group.
    pub row_group: u64,
    /// Bytes of rows that are decoded at once.
    pub range_bytes: usize,
    /// Maximum bytes of a row.
    pub max_record_bytes: usize,
    /// Limits how many merges hold row groups or open files at a time.
    pub concurrent_merges: Budget,
    /// Receives progress events.
    pub observer: &'a dyn Observer,
    /// Cancellation token.
    pub cancel: &'a Cancel,
}

/// A new file, which has no name yet.
#[derive(Debug)]
pub struct NewFile {
    /// The file; `None` once it was published.
    pub staged: Option<Staged>,
    /// Its size.
    pub bytes: u64,
    /// Statistics of its rows.
    pub stats: Stats,
}

/// New files with the rows of old ones.
#[derive(Debug)]
pub struct Rewritten {
    /// The files; none if all rows are deleted.
    pub files: Vec<NewFile>,
    /// Rows of the old files that are not deleted, by their footers and deletion vectors.
    pub records_in: u64,
    /// How the bytes of the old files were processed.
    pub tally: Tally,
}

impl Rewritten {
    /// Returns the number of rows of the new files.
    pub fn records_out(&self) -> u64 {
        self.files.iter().map(|file| file.stats.record_count()).sum()
    }
}

/// How files are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// With the schema that all of them have.
    Kept,
    /// With the schema of the table.
    Table,
    /// With the schema of the table, decoding all files.
    Decoded,
}

/// What the footers of the files say.
pub(super) struct FooterSummary {
    pub(super) survey: Survey,
    pub(super) codec: Option<Codec>,
    has_int96: bool,
    /// Rows of all files, also deleted ones.
    pub(super) rows: u64,
}

impl FileMerger<'_> {
    /// Merges files into one, in a folder that ends with a slash, or none.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) or [`Kind::Integrity`](crate::error::Kind::Integrity) if a file is
    /// missing or damaged; fails if the store fails.
    pub fn merge_files(&self, files: &[&LiveFile], folder: &str, number: usize) -> Result<Rewritten> {
        let mut reservation = Some(self.concurrent_merges.reserve(1));
        let FooterSummary { survey, codec, has_int96, rows } = self.read_footers(files)?;
        let codec = self.codec.or(codec).unwrap_or(Codec::Snappy);
        let path = self.new_path(folder, number, codec);
        let expected = self.live_rows(files, rows)?;
        let has_vectors = files.iter().any(|file| file.deleted_row_count().is_some());
        let marks = survey.marks_of_spark();
        let mut made = None;
        if !has_vectors && let Some(encoder) = survey.keeping_encoder(codec)? {
            made = self.try_merge(files, &path, &encoder, Way::Kept, &mut reservation)?;
        }
        if made.is_none() {
            let encoder = ParquetEncoder::new(&self.schema, codec, &marks)?;
            // Their timestamps are beyond what the splicing decoder holds, and columns may have other names.
            let spliced = !has_int96 && !self.table.maps_by_id();
            for way in [Way::Table, Way::Decoded].into_iter().filter(|way| spliced || *way == Way::Decoded) {
                made = self.try_merge(files, &path, &encoder, way, &mut reservation)?;
                if made.is_some() {
                    break;
                }
            }
        }
        let made = made.ok_or_else(|| {
            Error::internal("decoded rows could not be encoded").at_location(self.file_location(files[0]))
        })?;
        if made.records_out() != expected {
            let found = made.records_out();
            return Err(Error::inconsistent_output(format!("expected {expected} rows after the merge, found {found}")));
        }
        self.observer.event(Event::Shard { bytes: made.files.iter().map(|file| file.bytes).sum() });
        Ok(Rewritten { records_in: expected, ..made })
    }

    /// Returns how many of `rows` rows of all files are not deleted.
    pub(super) fn live_rows(&self, files: &[&LiveFile], rows: u64) -> Result<u64> {
        let deleted: u64 = files.iter().filter_map(|file| file.deleted_row_count()).sum();
        rows.checked_sub(deleted).ok_or_else(|| {
            Error::input(format!("expected deletion vectors of at most {rows} rows, found {deleted}"))
                .at_location(self.file_location(files[0]))
        })
    }

    /// Returns a new path in a folder that ends with a slash, or none.
    pub(super) fn new_path(&self, folder: &str, number: usize, codec: Codec) -> String {
        let extension = match codec {
            Codec::None => "",
            Codec::Snappy => ".snappy",
            Codec::Zstd(_) => ".zstd",
            Codec::Gzip(_) => ".gz",
            Codec::Lz4 => ".lz4raw",
        };
        format!("{folder}part-{number:05}-{}-c000{extension}.parquet", run_uuid())
    }

    pub(super) fn file_location(&self, file: &LiveFile) -> String {
        self.table.store().location().join(&file.path).to_string()
    }

    /// Reads the footers of files.
    pub(super) fn read_footers(&self, files: &[&LiveFile]) -> Result<FooterSummary> {
        let mut out = FooterSummary { survey: Survey::default(), codec: None, has_int96: false, rows: 0 };
        for some in files.chunks(BATCH_FILES) {
            self.cancel.check()?;
            let open = |file: &&LiveFile| {
                let object = Object::new(Arc::clone(self.table.store()), file.path.as_str(), self.bytes_of(file)?);
                Source::open(RangedInput::Object(object), &self.file_location(file))
            };
            for source in for_each_waiting(self.table.store().as_ref(), FOOTERS, some, open)? {
                out.codec = out.codec.or_else(|| source.codec());
                out.has_int96 |= source.has_int96();
                out.rows += source.row_count();
                out.survey.add_source(&source)?;
            }
        }
        Ok(out)
    }

    /// Returns the size of a file, which must be what the log says.
    pub(super) fn bytes_of(&self, file: &LiveFile) -> Result<u64> {
        let store = self.table.store();
        let facts = store.head(&file.path)?.ok_or_else(|| {
            Error::input("expected a data file that the log of the Delta table names, found none")
                .at_location(self.file_location(file))
                .with_hint(
                    "the table was copied in part, or vacuumed: restore the file, or take it out of the log (FSCK \
                 REPAIR TABLE)",
                )
        })?;
        if file.add.size.is_some() && file.stated_bytes() != facts.bytes {
            let message =
                format!("expected a file of {} bytes, as the log says, found {}", file.stated_bytes(), facts.bytes);
            return Err(Error::input(message)
                .at_location(self.file_location(file))
                .with_hint("the file was damaged or replaced: restore it from a copy"));
        }
        Ok(facts.bytes)
    }

    /// Reads a file, or only its footer if it is large.
    pub(super) fn load_file(&self, file: &LiveFile) -> Result<RangedInput> {
        self.cancel.check()?;
        // A size that the log states was compared when the footer was read.
        let bytes = if file.add.size.is_some() { file.stated_bytes() } else { self.bytes_of(file)? };
        if bytes > WHOLE_BYTES {
            return Ok(RangedInput::Object(Object::new(Arc::clone(self.table.store()), file.path.as_str(), bytes)));
        }
        let mut whole = Vec::new();
        self.table.store().read_whole(&file.path, bytes, &mut whole)?;
        Ok(RangedInput::Bytes(Bytes::from(whole)))
    }

    /// Merges files in one way; `None` if a column cannot be.
    fn try_merge(
        &self,
        files: &[&LiveFile],
        path: &str,
        encoder: &ParquetEncoder,
        way: Way,
        reservation: &mut Option<Reservation<'_>>,
    ) -> Result<Option<Rewritten>> {
        let writer = DataFileWriter::create(self.table.store().as_ref(), encoder, path)?;
        let mut splicing = Splicing::new(encoder, writer, self.row_group, self.cancel);
        let mut stats: Option<Stats> = None;
        for batch in file_batches(files) {
            let all = RequestMemory::for_count(BATCH_FILES as u64);
            let loaded = for_each_waiting(self.table.store().as_ref(), all, batch, |file| self.load_file(file))?;
            for (file, input) in batch.iter().zip(loaded) {
                self.cancel.check()?;
                let Some(more) = self.add_file(&mut splicing, file, input, way)? else { return Ok(None) };
                stats = Some(stats.map_or_else(|| more.clone(), |stats| stats.merged_with(&more, &self.types)));
                self.observer.event(Event::Read { bytes: file.stated_bytes(), records: more.record_count() });
            }
        }
        splicing.end_rows()?;
        if !splicing.end_group()? {
            return Ok(None);
        }
        let Splicing { shard, proving, tally, .. } = splicing;
        // From here on the merge waits for the disk, so the next one may begin.
        drop(reservation.take());
        let stats = stats.unwrap_or_default();
        if stats.record_count() == 0 {
            return Ok(Some(Rewritten { files: Vec::new(), records_in: 0, tally }));
        }
        let (staged, bytes) = shard.finish()?;
        prove_staged(self.table.store(), &staged, bytes, proving)?;
        Ok(Some(Rewritten { files: vec![NewFile { staged: Some(staged), bytes, stats }], records_in: 0, tally }))
    }

    /// Adds the rows of a file and returns their statistics; `None` if they cannot be spliced.
    fn add_file(
        &self,
        splicing: &mut Splicing<'_, DataFileWriter>,
        file: &LiveFile,
        input: RangedInput,
        way: Way,
    ) -> Result<Option<Stats>> {
        let place = self.file_location(file);
        if way != Way::Kept {
            let reader = TableReader::open(ParquetReader::open_as_stored(input.clone(), &place)?, &file.data)
                .map_err(|e| if e.place().source.is_some() { e } else { e.at_location(place.as_str()) })?;
            if way == Way::Decoded || file.deleted_row_count().is_some() {
                return self.add_decoded(splicing, file, &reader, input.byte_count());
            }
        }
        let source = Arc::new(Source::open(input, &place)?.with_indexes()?);
        let added = splicing.add_source(&source)? && splicing.release_if_large()?;
        Ok(added.then(|| Stats::read(file.add.stats.as_deref(), source.row_count())))
    }

    fn add_decoded(
        &self,
        splicing: &mut Splicing<'_, DataFileWriter>,
        file: &LiveFile,
        reader: &TableReader,
        bytes: u64,
    ) -> Result<Option<Stats>> {
        let stated = Stats::read(file.add.stats.as_deref(), reader.live_rows());
        let mut stats: Option<Stats> = None;
        let mut rows = 0;
        for batch in reader.file_rows(self.range_bytes, self.max_record_bytes, &self.schema) {
            self.cancel.check()?;
            let batch = batch?;
            rows += batch.num_rows() as u64;
            if file.deleted_row_count().is_some() {
                let more = Stats::of_rows(std::slice::from_ref(&batch), &stated, &self.types)?;
                stats = Some(stats.map_or_else(|| more.clone(), |stats| stats.merged_with(&more, &self.types)));
            }
            if batch.num_rows() > 0 && !splicing.add_rows(batch)? {
                return Ok(None);
            }
        }
        if rows != reader.live_rows() {
            let message = format!("expected {} rows that are not deleted, found {rows}", reader.live_rows());
            return Err(Error::integrity(message).at_location(self.file_location(file)));
        }
        splicing.tally.reencoded += bytes;
        let of_rows = stats.unwrap_or_default();
        Ok(Some(if file.deleted_row_count().is_some() { of_rows } else { stated }))
    }
}

/// Divides files into batches that are read at once.
fn file_batches<'f, 'a>(files: &'f [&'a LiveFile]) -> impl Iterator<Item = &'f [&'a LiveFile]> {
    let mut rest = files;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |file: &&&LiveFile| {
            bytes += file.stated_bytes();
            bytes <= BATCH_BYTES
        };
        let count = rest.iter().take(BATCH_FILES).take_while(fits).count().max(1).min(rest.len());
        let (batch, after) = rest.split_at(count);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// A data file that is being written.
pub(super) struct DataFileWriter {
    shard: Box<ParquetShard<CountingSink>>,
}

impl DataFileWriter {
    pub(super) fn create(store: &dyn Store, encoder: &ParquetEncoder, path: &str) -> Result<Self> {
        let sink = CountingSink { inner: store.create_sink(path)?, bytes: 0 };
        Ok(Self { shard: Box::new(encoder.start_shard(sink)?) })
    }

    /// Writes the footer; returns the file and its size.
    pub(super) fn finish(self) -> Result<(Staged, u64)> {
        let CountingSink { inner, bytes } = self.shard.finish()?;
        Ok((inner.finish()?, bytes))
    }

    /// Appends a row group and returns the note with which the file is compared.
    pub(super) fn append(&mut self, group: RowGroup) -> Result<Option<GroupNote>> {
        self.shard.append(group)
    }
}

impl TakesRowGroups for DataFileWriter {
    fn append_group(&mut self, group: RowGroup) -> Result<Option<GroupNote>> {
        self.append(group)
    }

    fn open_unfinished(&self) -> Option<Box<dyn BufRead + Send>> {
        self.shard.sink()?.inner.read_following()
    }
}

/// Counts the bytes written to a sink.
struct CountingSink {
    inner: Box<dyn Sink>,
    bytes: u64,
}

impl Write for CountingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
