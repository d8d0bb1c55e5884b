//! Sorts the rows of data files of a Delta table, or puts them into a Z-order: an external merge sort into new files.
//!
//! ```text
//! files -> ranges, decoded side by side -> runs of --memory / 9 on disk -> merge -> row groups -> files
//! ```
//!
//! Rows are numbered as they are read, so rows that are equal in the order stay as they were. The sum of hashes over
//! all rows is computed when they are read and again when they are encoded; both must agree before a file is committed.
//! The statistics of a new file are those of its rows.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StringArray, UInt64Array},
    compute::{CastOptions, cast_with_options, take},
    datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef},
};
use rayon::prelude::*;

use super::{
    encode::sorted_parquet_encoder,
    optimize::{DataFileWriter, FileMerger, FooterSummary, NewFile, Rewritten},
    ordered::{group_by_bytes, run_ordered},
    sort::{
        Sum,
        keys::{self, Keys, Ranks, SAMPLE_ROWS, columns_of, curve_keys},
        runs::{Batches, MergedRuns, SortRun, reduce_runs},
    },
    splice::{TakesRowGroups as _, prove_staged},
};
use crate::{
    codec::Codec,
    dataset::{Arrangement, Order},
    delta::{LiveFile, LiveTable, TableReader, stats::Stats},
    error::{Error, Result},
    events::Event,
    format::{
        parquet::{self, ParquetEncoder, ParquetReader, Proving, RowGroup, Tally, cast_to, logical_bytes},
        ranged::RangedInput,
    },
    plan::{
        roll::rolls_before,
        sort::{Range, SortMemory},
    },
    record::{BATCH_ROWS, SourceRange},
    schema::schema_of,
    storage::Object,
};

/// How rows are arranged.
pub struct Arranging {
    /// The order, by the names that columns have in data files.
    pub order: Order,
    /// Indexes of its columns in the schema of data files.
    pub columns: Vec<usize>,
    /// Target size of a file, in bytes.
    pub target: u64,
    /// Memory limits.
    pub memory: SortMemory,
    /// Number of threads.
    pub jobs: usize,
    /// Statistics that new files get; their values do not matter.
    pub wanted: Stats,
}

impl Arranging {
    /// Creates an arrangement by columns of a table, given by the names that users see.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if the table cannot be ordered by these columns.
    pub fn new(table: &LiveTable, order: &Order, target: u64, memory: SortMemory, jobs: usize) -> Result<Self> {
        table.check_sortable(&order.columns)?;
        let columns = columns_of(&table.named_file_schema()?, order)?;
        let schema = table.file_schema()?;
        let names = columns.iter().map(|column| schema.field(*column).name().clone()).collect::<Vec<_>>();
        let wanted = Stats::for_columns(table.stats_columns(&names));
        Ok(Self { order: Order { by: order.by, columns: names }, columns, target, memory, jobs, wanted })
    }
}

/// Returns the range of values of each file in the first column of an order, by its statistics, as bytes that compare
/// like the values; `None` if they are not known.
///
/// # Errors
/// Never in practice: the types of the columns can be ordered.
pub fn key_ranges(table: &LiveTable, files: &[&LiveFile], arranging: &Arranging) -> Result<Vec<Option<Range>>> {
    let schema = table.file_schema()?;
    let Some(column) = arranging.columns.first() else { return Ok(vec![None; files.len()]) };
    let field = schema.field(*column);
    let converter = keys::row_converter(std::iter::once(field.data_type()))?;
    let range = |file: &&LiveFile| -> Result<Option<Range>> {
        let stats = Stats::read(file.add.stats.as_deref(), file.stated_rows().unwrap_or_default());
        let path = vec![field.name().clone()];
        let (Some((least, greatest)), Some(nulls)) = (stats.column_bounds(&path), stats.null_count(&path)) else {
            return Ok(None);
        };
        let texts: ArrayRef = Arc::new(StringArray::from(vec![least, greatest]));
        let Ok(values) = cast_with_options(&texts, field.data_type(), &CastOptions::default()) else { return Ok(None) };
        if values.null_count() > 0 {
            return Ok(None);
        }
        let rows = converter.convert_columns(&[values])?;
        let bytes = |row: usize| rows.row(row).data().to_vec();
        let mut last = bytes(1);
        if arranging.columns.len() > 1 {
            last.extend([u8::MAX; 64]);
        }
        // Nulls come first.
        Ok(Some((if nulls > 0 { Vec::new() } else { bytes(0) }, last)))
    };
    files.iter().map(range).collect()
}

/// A data file that was opened, and what it is divided into.
struct OpenedFile {
    reader: TableReader,
    ranges: Vec<SourceRange>,
}

/// Columns of a row while it is sorted: those of data files, its place on the curve of a Z-order, and its number.
struct ArrangeLayout<'a> {
    data: SchemaRef,
    all: SchemaRef,
    /// Columns of the order.
    columns: &'a [usize],
    curve: Option<Vec<Ranks>>,
}

impl<'a> ArrangeLayout<'a> {
    fn new(data: &SchemaRef, columns: &'a [usize], curve: Option<Vec<Ranks>>) -> Self {
        let number = |name: &str| -> FieldRef { Arc::new(Field::new(name, DataType::UInt64, false)) };
        let more = curve.iter().map(|_| number("place")).chain([number("row")]);
        let all = data.fields().iter().cloned().chain(more).collect::<Fields>();
        Self { data: Arc::clone(data), all: Arc::new(Schema::new(all)), columns, curve }
    }

    /// Returns the keys of rows.
    fn sort_keys(&self) -> Result<Keys> {
        let after = self.data.fields().len();
        match &self.curve {
            None => Keys::new(&self.all, self.columns, after, None),
            // Places are computed once, not with each comparison of rows.
            Some(_) => Keys::new(&self.all, &[after], after + 1, None),
        }
    }

    /// Returns rows with their places on the curve, if there is one.
    fn with_curve_places(&self, batch: RecordBatch) -> Result<(RecordBatch, Option<ArrayRef>)> {
        let places = self.curve.as_ref().map(|curve| curve_keys(curve, self.columns, &batch)).transpose()?;
        Ok((batch, places.map(|places| Arc::new(places) as ArrayRef)))
    }

    fn with_row_numbers(&self, batch: &RecordBatch, places: Option<&ArrayRef>, first: u64) -> Result<RecordBatch> {
        let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(first..first + batch.num_rows() as u64));
        let columns = batch.columns().iter().chain(places).cloned().chain([numbers]).collect();
        Ok(RecordBatch::try_new(Arc::clone(&self.all), columns)?)
    }

    fn data_of(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns()[..self.data.fields().len()].to_vec();
        Ok(RecordBatch::try_new(Arc::clone(&self.data), columns)?)
    }
}

impl FileMerger<'_> {
    /// Writes the rows of files in an order into new files of the target size, in a folder that ends with a slash, or
    /// none.
    ///
    /// # Errors
    /// As [`Self::merge_files`].
    pub fn arrange_files(&self, files: &[&LiveFile], folder: &str, number: usize, by: &Arranging) -> Result<Rewritten> {
        let _reserved = self.concurrent_merges.reserve(1);
        let FooterSummary { survey, codec, rows, .. } = self.read_footers(files)?;
        let expected = self.live_rows(files, rows)?;
        let codec = self.codec.or(codec).unwrap_or(Codec::Snappy);
        let curve = match by.order.by {
            Arrangement::Sort | Arrangement::Shuffle => None,
            Arrangement::ZOrder => Some(self.sample_ranks(files, rows, by)?),
        };
        let layout = ArrangeLayout::new(&self.schema, &by.columns, curve);
        let keys = layout.sort_keys()?;
        let (read, written) = (Sum::default(), Sum::default());
        let runs = self.spill_runs(files, &layout, &keys, by, &read)?;
        if read.get().0 != expected {
            let found = read.get().0;
            return Err(Error::inconsistent_output(format!("expected to read {expected} rows, found {found}")));
        }
        let location = self.table.store().location();
        let runs = reduce_runs(runs, by.memory.fan_in, location, &layout.all, &keys, &|| self.cancel.check())?;
        let merged = MergedRuns::new(&keys, runs, Vec::new())?;
        let parquet = sorted_parquet_encoder(codec, &self.schema, &by.order, survey.marks_of_spark())?;
        let mut out = NewFiles {
            merger: self,
            parquet: &parquet,
            folder,
            number,
            target: by.target,
            open: None,
            files: Vec::new(),
        };
        let bytes: u64 = files.iter().map(|file| file.stated_bytes()).sum();
        let limit = self.group_bytes(by.target, read.memory_bytes(), bytes);
        self.write(merged, &layout, by, limit, &written, &mut out)?;
        if read.get() != written.get() {
            return Err(Error::inconsistent_output(format!(
                "expected the {expected} rows that were read, found {} with other values",
                written.get().0
            )));
        }
        let tally = Tally { reencoded: bytes, ..Tally::default() };
        Ok(Rewritten { files: out.files, records_in: expected, tally })
    }

    /// Returns the byte limit of a row group: as large as allowed, but small enough to end a file near its target.
    fn group_bytes(&self, target: u64, raw: u64, stored: u64) -> u64 {
        let part = u128::from(target / 8) * u128::from(raw) / u128::from(stored.max(1));
        u64::try_from(part).unwrap_or(u64::MAX).clamp(1 << 16, self.row_group.max(1 << 16))
    }

    /// Computes quantiles of the columns of a Z-order from a sample of rows at equal distances, deleted ones included.
    fn sample_ranks(&self, files: &[&LiveFile], rows: u64, by: &Arranging) -> Result<Vec<Ranks>> {
        let every = rows.div_ceil(SAMPLE_ROWS).max(1);
        let fields: Fields = by.columns.iter().map(|column| Arc::clone(&self.schema.fields()[*column])).collect();
        let schema = schema_of(&fields);
        let samples: Vec<Vec<RecordBatch>> =
            files.par_iter().map(|file| self.sample_rows(file, &schema, every)).collect::<Result<_>>()?;
        let column = |number: usize| samples.iter().flatten().map(move |batch| Arc::clone(batch.column(number)));
        let of =
            |(number, field): (usize, &FieldRef)| Ranks::new(&column(number).collect::<Vec<_>>(), field.data_type());
        fields.iter().enumerate().map(of).collect()
    }

    /// Returns every so many rows of a file, with some of its columns.
    fn sample_rows(&self, file: &LiveFile, schema: &SchemaRef, every: u64) -> Result<Vec<RecordBatch>> {
        self.cancel.check()?;
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let object = Object::new(Arc::clone(self.table.store()), file.path.as_str(), self.bytes_of(file)?);
        let input = RangedInput::Object(object);
        let found = parquet::open(input, &self.file_location(file))?.with_columns(&names);
        let mut out = Vec::new();
        let mut next = 0;
        for batch in found.into_batches(BATCH_ROWS) {
            let batch = batch?;
            let rows = batch.num_rows() as u64;
            let wanted =
                UInt64Array::from_iter_values((next..rows).step_by(usize::try_from(every).unwrap_or(usize::MAX)));
            next = next + wanted.len() as u64 * every - rows;
            if wanted.is_empty() {
                continue;
            }
            let columns = batch.columns().iter().map(|column| take(column, &wanted, None)).collect::<Result<_, _>>()?;
            let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(wanted.len()));
            let some = RecordBatch::try_new_with_options(batch.schema(), columns, &options)?;
            // A column of another type is cast; one that cannot be is omitted from the sample, and so are mapped ones.
            out.extend(cast_to(&some, schema).ok());
        }
        Ok(out)
    }

    /// Sorts the rows of files into runs that fit into memory.
    fn spill_runs(
        &self,
        files: &[&LiveFile],
        layout: &ArrangeLayout<'_>,
        keys: &Keys,
        by: &Arranging,
        read: &Sum,
    ) -> Result<Vec<SortRun>> {
        let location = self.table.store().location();
        std::thread::scope(|scope| {
            let open = move |file: &LiveFile| self.open_file(file);
            let opened =
                run_ordered(scope, files.iter().map(|file| Ok(*file)), by.jobs, by.jobs + 1, self.cancel, open);
            let ranges = opened.flat_map(|opened| match opened {
                Err(e) => vec![Err(e)],
                Ok(mut opened) => {
                    let ranges = std::mem::take(&mut opened.ranges);
                    let opened = Arc::new(opened);
                    ranges.into_iter().map(|range| Ok((Arc::clone(&opened), range))).collect()
                }
            });
            let decode = move |(opened, range): (Arc<OpenedFile>, SourceRange)| -> Result<_> {
                let batch = opened.reader.file_rows_of(&range, &self.schema)?;
                read.add_batch(&batch);
                layout.with_curve_places(batch)
            };
            let mut first = 0;
            let batches = run_ordered(scope, ranges, by.jobs, by.jobs + 1, self.cancel, decode).map(move |batch| {
                let (batch, places) = batch?;
                let batch = layout.with_row_numbers(&batch, places.as_ref(), first)?;
                first += batch.num_rows() as u64;
                Ok(batch)
            });
            let sort = move |chunk: Vec<RecordBatch>| {
                SortRun::sort_batches(location, &layout.all, keys, &chunk, by.memory.batch_bytes)
            };
            let chunks = group_by_bytes(batches, by.memory.run_bytes, logical_bytes);
            let runs = run_ordered(scope, chunks, by.jobs.min(2), 2, self.cancel, sort);
            Ok(runs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
        })
    }

    fn open_file(&self, file: &LiveFile) -> Result<OpenedFile> {
        let place = self.file_location(file);
        let input = self.load_file(file)?;
        let reader = TableReader::open(ParquetReader::open_as_stored(input, &place)?, &file.data)
            .map_err(|e| if e.place().source.is_some() { e } else { e.at_location(place.as_str()) })?;
        let ranges = reader.ranges_of_rows(self.range_bytes, self.max_record_bytes).collect::<Result<Vec<_>>>()?;
        self.observer.event(Event::Read { bytes: file.stated_bytes(), records: reader.live_rows() });
        Ok(OpenedFile { reader, ranges })
    }

    /// Encodes sorted rows and appends them to files.
    fn write(
        &self,
        merged: MergedRuns<'_>,
        layout: &ArrangeLayout<'_>,
        by: &Arranging,
        limit: u64,
        written: &Sum,
        out: &mut NewFiles<'_>,
    ) -> Result<()> {
        let parquet = out.parquet;
        let types = &self.types;
        let encode = move |group: Vec<RecordBatch>| -> Result<(RowGroup, Stats)> {
            let data: Vec<RecordBatch> = group.iter().map(|batch| layout.data_of(batch)).collect::<Result<_>>()?;
            drop(group);
            data.iter().for_each(|batch| written.add_batch(batch));
            let stats = Stats::of_rows(&data, &by.wanted, types)?;
            Ok((parquet.encode(&data)?, stats))
        };
        std::thread::scope(|scope| {
            let merged: Batches<'_> = Box::new(merged);
            let groups = group_by_bytes(merged, limit, logical_bytes);
            // One thread encodes, by columns on all processors, while another merges.
            for unit in run_ordered(scope, groups, 1, 2, self.cancel, encode) {
                let (group, stats) = unit?;
                out.append_group(group, &stats)?;
            }
            out.roll_file()
        })
    }
}

/// The files of one arrangement.
struct NewFiles<'a> {
    merger: &'a FileMerger<'a>,
    parquet: &'a ParquetEncoder,
    folder: &'a str,
    number: usize,
    target: u64,
    open: Option<OpenFile>,
    files: Vec<NewFile>,
}

/// A file that is being written.
struct OpenFile {
    writer: DataFileWriter,
    bytes: u64,
    proving: Proving,
    stats: Option<Stats>,
}

impl NewFiles<'_> {
    fn append_group(&mut self, group: RowGroup, stats: &Stats) -> Result<()> {
        let size = self.open.as_ref().map_or(0, |open| open.bytes);
        if rolls_before(size, group.encoded_bytes, self.target) {
            self.roll_file()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let path = self.merger.new_path(self.folder, self.number, self.parquet.codec());
                let writer = DataFileWriter::create(self.merger.table.store().as_ref(), self.parquet, &path)?;
                none.insert(OpenFile { writer, bytes: 0, proving: Proving::default(), stats: None })
            }
        };
        open.bytes += group.encoded_bytes;
        let united = open.stats.take().map(|all| all.merged_with(stats, &self.merger.types));
        open.stats = Some(united.unwrap_or_else(|| stats.clone()));
        if let Some(note) = open.writer.append(group)? {
            open.proving.add_group(note, || open.writer.open_unfinished());
        }
        Ok(())
    }

    fn roll_file(&mut self) -> Result<()> {
        let Some(OpenFile { writer, proving, stats, .. }) = self.open.take() else { return Ok(()) };
        let (staged, bytes) = writer.finish()?;
        prove_staged(self.merger.table.store(), &staged, bytes, proving)?;
        self.merger.observer.event(Event::Shard { bytes });
        self.files.push(NewFile { staged: Some(staged), bytes, stats: stats.unwrap_or_default() });
        Ok(())
    }
}
