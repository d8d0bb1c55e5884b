//! `head`: the first records of a dataset, or of any source that `convert` reads.
//!
//! The readers are those of `convert`, and they read a split at a time, so that the size of a source does not matter.
//! Records go to the caller one by one. Ids of private datasets are hidden: their columns, the keys of samples, and the
//! content of parts, which may hold them.

use std::{collections::BTreeSet, io::Read};

use arrow::{array::RecordBatch, datatypes::Fields};
use serde::Serialize;

use super::{Context, convert, manifest};
use crate::{
    dataset::{Dataset, Snapshot, check_folders, id_columns},
    error::{Error, Result},
    events::Event,
    format::{
        OutputFormat, Parsed,
        files::{self, TreeFile as _},
    },
    id::Version,
    plan::memory::MemoryPlan,
    record::{
        Part, Payload, RecordBlock, Sample, SourceRange, coded,
        json::text_of,
        parts::{KEY_COLUMN, is_table_of_samples, samples_of_rows},
    },
    scan::{
        self, Input, InputFormat, RecordSource, ScanOptions, SniffOptions, SourceFile, classify_inputs,
        settings::ReadSettings,
    },
    schema::{force_text, schema_of, unite_lists},
    storage::Location,
    units::Size,
};

/// Bytes of a range.
const SPLIT_BYTES: usize = 256 << 10;
/// Maximum number of files that are opened to learn what a source is.
const MAX_FILES: usize = 1_000;
/// Bytes of a part that are read to tell its type and to show its text.
const PART_BYTES: u64 = 4 << 10;
/// Bytes of standard input that are read, except for formats whose beginning says nothing.
const STDIN_BYTES: u64 = 16 << 20;
/// Attempts to find types that fit the values of a range.
const ATTEMPTS: usize = 64;

/// What to show.
#[derive(Debug, Clone)]
pub struct HeadOptions {
    /// Dataset, file, folder, glob or URL; `-` is standard input.
    pub source: String,
    /// Maximum number of records.
    pub records: u64,
    /// Version of the dataset; the newest by default.
    pub at: Option<String>,
    /// Format of the source, if its content does not tell.
    pub from: Option<InputFormat>,
    /// Settings of input formats.
    pub read: ReadSettings,
}

/// A record.
#[derive(Debug)]
pub enum HeadRecord<'a> {
    /// A row of a table.
    Row {
        /// Name of the file.
        source: &'a str,
        /// Number of the record in the file, from 1.
        row: u64,
        /// The batch that holds it.
        batch: &'a RecordBatch,
        /// Its index in the batch.
        index: usize,
    },
    /// A sample.
    Sample(HeadSample),
}

/// A sample: a key and parts.
#[derive(Debug, Clone)]
pub struct HeadSample {
    /// Name of the file; `None` if each part is a file.
    pub source: Option<String>,
    /// Number of the record in the file, from 1.
    pub row: Option<u64>,
    /// Its key; `None` if it is hidden.
    pub key: Option<String>,
    /// Its parts, by extension.
    pub parts: Vec<HeadPart>,
}

/// A part of a sample.
#[derive(Debug, Clone)]
pub struct HeadPart {
    /// Extension.
    pub extension: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Its first bytes.
    pub start: Vec<u8>,
    /// Whether its content must not be shown.
    pub is_hidden: bool,
}

/// Report of `head`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HeadReport {
    /// The source.
    pub source: String,
    /// The version, if the source is a dataset.
    pub version: Option<Version>,
    /// Format of the records' files.
    pub format: String,
    /// Number of records shown.
    pub records: u64,
    /// Number of records before the last one shown that `convert` would reject.
    pub rejected: u64,
    /// Columns that are not shown, because they hold ids of a private dataset.
    pub hidden: BTreeSet<String>,
}

/// Receives records.
pub(super) type Emit<'a> = dyn FnMut(HeadRecord<'_>) -> Result<()> + 'a;

/// Passes the first records to `emit`.
///
/// # Errors
/// When nothing is found, it cannot be read, or `emit` fails.
pub fn read_head(context: &Context<'_>, options: &HeadOptions, emit: &mut Emit<'_>) -> Result<HeadReport> {
    let report = HeadReport { source: options.source.clone(), ..HeadReport::default() };
    let mut reading = Reading { context, options, report, part_bytes: PART_BYTES, first_reject: None };
    if options.source == STDIN {
        reading.read_stdin(emit)?;
    } else if let Some(snapshot) = reading.open_snapshot()? {
        reading.read_dataset(&snapshot, emit)?;
    } else {
        if options.at.is_some() {
            return Err(Error::usage("expected a dataset with --at, found none").at_location(options.source.clone()));
        }
        let mut found = scan::scan_sources(
            std::slice::from_ref(&options.source),
            &context.folder,
            &context.settings,
            &ScanOptions { memory: context.memory, ..ScanOptions::default() },
        )?;
        scan::refuse_foreign(&found.tables, &found.files)?;
        if options.from != Some(InputFormat::FILES) {
            found.take_described(&options.source);
        }
        if found.files.is_empty() {
            return Err(found.into_error("expected files, found none", &options.source));
        }
        let mut files = found.files;
        convert::leave_out_metadata(options.from, &mut files)?;
        files.truncate(MAX_FILES);
        reading.read_files(files, emit)?;
    }
    if let Some(reject) = reading.first_reject {
        context.observer.event(Event::Note(reject));
    }
    Ok(reading.report)
}

/// The name of standard input.
const STDIN: &str = "-";

struct Reading<'a> {
    context: &'a Context<'a>,
    options: &'a HeadOptions,
    report: HeadReport,
    /// Bytes of a part that are passed on.
    part_bytes: u64,
    first_reject: Option<String>,
}

/// Passes the first records of some files to `emit`, with at most `part_bytes` bytes of each part. Returns how many
/// were passed, and how many before the last one `convert` would reject.
///
/// # Errors
/// When the files cannot be read, or `emit` fails.
pub(super) fn first_records(
    context: &Context<'_>,
    files: Vec<SourceFile>,
    hidden: &Hidden,
    from: Option<InputFormat>,
    records: u64,
    part_bytes: u64,
    emit: &mut Emit<'_>,
) -> Result<(u64, u64)> {
    let options = HeadOptions { source: String::new(), records, at: None, from, read: ReadSettings::default() };
    let report = HeadReport::default();
    let mut reading = Reading { context, options: &options, report, part_bytes, first_reject: None };
    reading.records_of(files, "", hidden, emit)?;
    Ok((reading.report.records, reading.report.rejected))
}

impl Reading<'_> {
    /// Returns the snapshot, if the source is a dataset.
    fn open_snapshot(&self) -> Result<Option<Snapshot>> {
        let Ok(location) = self.context.parse_location(&self.options.source) else { return Ok(None) };
        let is_web = location.local_path().is_none() && matches!(location.url().scheme(), "http" | "https");
        if is_web || location.local_path().is_some_and(|path| !path.is_dir()) {
            return Ok(None);
        }
        match self.context.open_dataset(&location)?.newest_snapshot()? {
            None => Ok(None),
            Some(_) => manifest::open_snapshot(self.context, &location, self.options.at.as_deref()).map(Some),
        }
    }

    fn read_dataset(&mut self, snapshot: &Snapshot, emit: &mut Emit<'_>) -> Result<()> {
        let settings = &snapshot.entry().settings;
        self.report.version = Some(snapshot.version());
        self.report.format = settings.shard_format.to_string();
        let hidden = Hidden::from_snapshot(snapshot)?;
        self.report.hidden.clone_from(&hidden.columns);
        let result = self.read_shards(snapshot, &hidden, emit);
        super::or_overtaken(Some(snapshot), result)
    }

    fn read_shards(&mut self, snapshot: &Snapshot, hidden: &Hidden, emit: &mut Emit<'_>) -> Result<()> {
        let shards = snapshot.live_shards()?;
        for shard in shards {
            if self.is_done() {
                break;
            }
            check_folders(snapshot.dataset().store().as_ref(), std::iter::once(shard))?;
            let file = shard_file(snapshot.dataset(), &shard.path)?;
            self.records_of(vec![file], &shard.path, hidden, emit)?;
        }
        Ok(())
    }

    fn read_stdin(&mut self, emit: &mut Emit<'_>) -> Result<()> {
        let whole = matches!(self.options.from, Some(f) if f == InputFormat::PARQUET || f.is_array());
        let limit = if whole { u64::MAX } else { STDIN_BYTES };
        let file = SourceFile::of_stream("stdin", (self.context.stdin)().take(limit))?;
        let cut = file.bytes() == limit;
        self.read_files(vec![file], emit)?;
        if cut && !self.is_done() {
            let note = format!("only the first {} of standard input were read", Size(limit));
            self.context.observer.event(Event::Note(note));
        }
        Ok(())
    }

    fn read_files(&mut self, files: Vec<SourceFile>, emit: &mut Emit<'_>) -> Result<()> {
        self.records_of(files, "", &Hidden::default(), emit)
    }

    /// Reads files; `name` stands for the names of files, unless it is empty.
    fn records_of(&mut self, files: Vec<SourceFile>, name: &str, hidden: &Hidden, emit: &mut Emit<'_>) -> Result<()> {
        let stated = self.options.read.to_sniff_options(self.options.from, self.context.memory.0);
        let options = SniffOptions { sources: files.len(), samples: Some(0), ..stated };
        match classify_inputs(files, &options)? {
            Input::Records(sources) => {
                for source in &sources {
                    if self.is_done() {
                        break;
                    }
                    if self.report.version.is_none() {
                        self.report.format = source.format.name().to_owned();
                    }
                    let name = if name.is_empty() { source.file.name() } else { name };
                    self.read_source(source, name, hidden, emit)?;
                }
                Ok(())
            }
            Input::Files(files) => {
                self.report.format = InputFormat::FILES.name().to_owned();
                self.read_samples(&files, emit)
            }
        }
    }

    fn is_done(&self) -> bool {
        self.report.records >= self.options.records
    }

    /// Reads samples made of files: the names, and the first bytes of each file.
    fn read_samples(&mut self, files: &[SourceFile], emit: &mut Emit<'_>) -> Result<()> {
        let samples = files::group_samples(files);
        for sample in samples.iter_range(0..samples.len(), files) {
            if self.is_done() {
                break;
            }
            self.context.cancel.check()?;
            let part = |file: &SourceFile| -> Result<HeadPart> {
                let start = file.object().get_range(0..file.bytes().min(self.part_bytes))?;
                let extension = file.extension();
                Ok(HeadPart { extension, bytes: file.bytes(), start: start.to_vec(), is_hidden: false })
            };
            let parts = sample.files().map(part).collect::<Result<_>>()?;
            self.report.records += 1;
            emit(HeadRecord::Sample(HeadSample {
                source: None,
                row: None,
                key: Some(sample.key().to_owned()),
                parts,
            }))?;
        }
        Ok(())
    }

    /// Reads a source of records from its beginning.
    fn read_source(&mut self, source: &RecordSource, name: &str, hidden: &Hidden, emit: &mut Emit<'_>) -> Result<()> {
        let mut before = 0;
        each_block(self.context, source, SPLIT_BYTES, &mut |block| {
            self.emit_block(&block, name, before, hidden, emit)?;
            before += block.records_in();
            Ok(!self.is_done())
        })
    }

    /// Passes the records of a block to `emit`; `before` records of the source precede it.
    fn emit_block(
        &mut self,
        block: &RecordBlock,
        name: &str,
        before: u64,
        hidden: &Hidden,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let number = |index: usize| block.rows.get(index).map_or(index as u64, |row| u64::from(*row));
        let left = usize::try_from(self.options.records - self.report.records).unwrap_or(usize::MAX);
        let shown = block.payload.len().min(left);
        let end = if shown < block.payload.len() { number(shown) } else { u64::MAX };
        for reject in block.rejects.iter().filter(|reject| u64::from(reject.row) < end) {
            self.report.rejected += 1;
            let row = before + u64::from(reject.row) + 1;
            self.first_reject
                .get_or_insert_with(|| format!("`convert` would reject record {row} of {name}: {}", reject.reason));
        }
        self.report.records += shown as u64;
        let samples = match &block.payload {
            Payload::Rows(batch) => as_samples(&batch.slice(0, shown), hidden)?.map(Payload::Samples),
            Payload::Samples(_) => None,
        };
        match samples.as_ref().unwrap_or(&block.payload) {
            Payload::Rows(batch) => {
                let visible = hidden.remove_columns(&coded::plain_batch(&batch.slice(0, shown))?)?;
                for index in 0..shown {
                    let row = before + number(index) + 1;
                    emit(HeadRecord::Row { source: name, row, batch: &visible, index })?;
                }
            }
            Payload::Samples(samples) => {
                for (index, sample) in samples.iter().take(shown).enumerate() {
                    let start = |bytes: &[u8]| {
                        let end = bytes.len().min(usize::try_from(self.part_bytes).unwrap_or(0));
                        bytes[..end].to_vec()
                    };
                    let part = |part: &Part| HeadPart {
                        extension: part.extension.clone(),
                        bytes: part.bytes.len() as u64,
                        start: start(&part.bytes),
                        is_hidden: hidden.is_private,
                    };
                    emit(HeadRecord::Sample(HeadSample {
                        source: Some(name.to_owned()),
                        row: Some(before + number(index) + 1),
                        key: (!hidden.is_private).then(|| sample.key.clone()),
                        parts: sample.parts.iter().map(part).collect(),
                    }))?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the samples that rows were made of: a key, and nothing but parts.
fn as_samples(batch: &RecordBatch, hidden: &Hidden) -> Result<Option<Vec<Sample>>> {
    if !is_table_of_samples(batch.schema_ref().fields()) {
        return Ok(None);
    }
    let Some(keys) = batch.column_by_name(KEY_COLUMN) else { return Ok(None) };
    let keys: Option<Vec<String>> = (0..batch.num_rows()).map(|row| text_of(keys.as_ref(), row)).collect();
    match keys.map(|keys| samples_of_rows(batch, &keys)).transpose() {
        // Parts may name people, so they are not shown as values of columns either.
        Err(error) if hidden.is_private => Err(error),
        samples => Ok(samples.unwrap_or_default()),
    }
}

/// Passes the records of a source to `visit`, a range of so many bytes after the other, as long as it returns true.
///
/// # Errors
/// When the source cannot be read, or `visit` fails.
pub(super) fn each_block(
    context: &Context<'_>,
    source: &RecordSource,
    range_bytes: usize,
    visit: &mut dyn FnMut(RecordBlock) -> Result<bool>,
) -> Result<()> {
    let memory =
        MemoryPlan::new(context.memory, context.jobs, OutputFormat::Tar, Size::from_mib(128), Size::from_mib(64));
    let max_record = usize::try_from(memory.max_record_bytes).unwrap_or(usize::MAX);
    let input: Box<dyn Read + Send> =
        if source.reader.facts().reads_own_source { Box::new(std::io::empty()) } else { source.open(|_| {})? };
    let place = |e: Error| match source.file.store_fault() {
        Some(fault) => fault,
        None if e.place().source.is_some() => e,
        None => e.at_location(source.file.uri()),
    };
    let mut fields = source.fields.clone();
    for range in source.ranges(input, range_bytes, max_record) {
        context.cancel.check()?;
        let block = parse_range(source, &range.map_err(place)?, &mut fields).map_err(place)?;
        if !visit(block)? {
            break;
        }
    }
    Ok(())
}

/// Parses a range, with wider types as long as a value does not fit.
fn parse_range(source: &RecordSource, range: &SourceRange, fields: &mut Fields) -> Result<RecordBlock> {
    for attempt in 0..ATTEMPTS {
        match source.reader.parse(range, &schema_of(fields))? {
            Parsed::Block(block) => return Ok(block),
            Parsed::Mismatch(mismatch) if mismatch.is_of_quotes() => {
                source.reader.settle(source.open(|_| {})?)?;
            }
            Parsed::Mismatch(_) if attempt == 0 => *fields = unite_lists(fields, &source.reader.infer(range)),
            Parsed::Mismatch(mismatch) => *fields = force_text(fields, &mismatch.column),
        }
    }
    Err(Error::input("expected columns with types that fit the first records, found none"))
}

/// Returns a shard as a source.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if there is none; when the store fails.
pub(super) fn shard_file(dataset: &Dataset, path: &str) -> Result<SourceFile> {
    scan::file_in_store(dataset.store(), path)?.ok_or_else(|| {
        let place: Location = dataset.store().location().join(path);
        Error::integrity("expected a shard that the log refers to, found none").at_location(place.to_string())
    })
}

/// What is not shown of a private dataset.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    pub(super) is_private: bool,
    pub(super) columns: BTreeSet<String>,
}

impl Hidden {
    pub(super) fn from_snapshot(snapshot: &Snapshot) -> Result<Self> {
        if snapshot.entry().settings.private.is_none() {
            return Ok(Self::default());
        }
        let mut columns = Self::id_columns(snapshot)?;
        columns.insert(KEY_COLUMN.to_owned());
        Ok(Self { is_private: true, columns })
    }

    /// Returns the same for a report, which also does not show ids that are not private.
    pub(super) fn in_report(snapshot: &Snapshot) -> Result<Self> {
        let hidden = Self::from_snapshot(snapshot)?;
        let columns = if hidden.is_private { hidden.columns } else { Self::id_columns(snapshot)? };
        Ok(Self { columns, ..hidden })
    }

    /// Returns the columns of record ids and subject ids. Shards of older runs may have ids in other columns.
    fn id_columns(snapshot: &Snapshot) -> Result<BTreeSet<String>> {
        let mut columns = BTreeSet::new();
        for (id, subject, _) in id_columns(&snapshot.dataset().entries_up_to(snapshot.version())?) {
            for name in id.iter().chain(&subject) {
                // A nested column is hidden with all of the column that holds it.
                columns.extend([name.clone(), name.split('.').next().unwrap_or(name).to_owned()]);
            }
        }
        Ok(columns)
    }

    fn remove_columns(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let fields = batch.schema_ref().fields().iter().enumerate();
        let kept: Vec<usize> = fields.filter(|(_, f)| !self.columns.contains(f.name())).map(|(i, _)| i).collect();
        Ok(batch.project(&kept)?)
    }
}
