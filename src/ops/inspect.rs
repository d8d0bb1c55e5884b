//! `inspect`: what a source contains, how suitable its file sizes are, and which command to run next.
//!
//! Little is read: the first bytes of each file, the footers of Parquet, and a sample of the records. Numbers of
//! records that cannot be determined exactly this way are estimates and marked as such.

mod advice;
mod cost;
mod report;
mod table;
mod unique;

use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};

use arrow::{
    array::{Array, RecordBatch, StringArray},
    datatypes::{DataType, Fields},
};
use rayon::prelude::*;

use self::report::{HIGH_SCORE, base_report};
use self::{
    advice::{convert_options, set_advice},
    cost::Forecast,
};
pub use self::{
    cost::Cost,
    report::{
        Bucket, FormatReport, InspectOptions, InspectReport, InspectedColumn, OPEN_COST, PlanInfo, VariableReport,
    },
    table::TableFacts,
};
use super::{
    Context, adopt, compact, convert,
    parent::{Look, parent_report},
    problems, shell_word,
};
use crate::{
    array::{Header, Variable, records::Plan},
    dataset::{Dataset, PlanRecord, PlanState, Snapshot, plan_state, stored_plans},
    error::Result,
    events::Event,
    exec::separated::Separated,
    format::{OutputFormat, Parsed, files, parquet},
    record::{Payload, id_column, key_rule::KeyRule},
    scan::{self, Input, RecordSource, ScanOptions, SourceFile, classify_inputs},
    schema::{self, is_id, is_subject, schema_of, unite_lists},
    storage::{Location, Object, with_io_threads},
    units::Size,
};

/// Files below this size are small: an eighth of the usual shard.
pub const SMALL_FILE: Size = Size::from_mib(16);
/// Maximum number of files whose records are sampled.
const SAMPLED_FILES: usize = 8;
const SAMPLE_ROWS: usize = 4_096;
/// Maximum number of stored bytes of a tar or TFRecord file that are sampled.
const SAMPLE_BYTES: u64 = 16 << 20;

fn variable_reports(header: &Header, plan: &Plan) -> Vec<VariableReport> {
    let role = |number: usize| match header.variables[number].dtype.refusal_reason() {
        Some(_) => "refused",
        None if plan.constants.contains(&number) => "constant",
        None => "record",
    };
    let column_type = |number: usize| {
        let column = plan.columns.iter().find(|column| column.variable == number && !column.decode.is_plain())?;
        let mut item = &column.field;
        while let DataType::FixedSizeList(inner, _) = item.data_type() {
            item = inner;
        }
        Some(schema::file::print_type(item)).filter(|name| *name != header.variables[number].dtype.name())
    };
    let report = |(number, variable): (usize, &Variable)| VariableReport {
        variable: variable.name.clone(),
        data_type: variable.dtype.name(),
        column_type: column_type(number),
        dims: variable.dims.iter().cloned().zip(variable.shape.iter().copied()).collect(),
        chunks: variable.chunks.clone(),
        codecs: variable.codecs.clone(),
        role: role(number),
        attributes: variable.attributes.iter().map(|(name, value)| (name.clone(), value.describe())).collect(),
    };
    header.variables.iter().enumerate().map(report).collect()
}

/// Inspects a dataset, a folder, a file or a glob.
///
/// # Errors
/// When nothing is found, or it cannot be read.
pub fn inspect_source(context: &Context<'_>, options: &InspectOptions) -> Result<InspectReport> {
    let source = options.source.as_str();
    if let Some(report) = inspect_stored(context, source)? {
        return Ok(report);
    }
    let started = Instant::now();
    let all = ScanOptions::default();
    let mut found = scan::scan_sources(&[source.to_owned()], &context.folder, &context.settings, &all)?;
    found.take_described(source);
    let listing = started.elapsed();
    if found.files.is_empty() {
        return Err(found.into_error("there are no files to inspect", source));
    }
    let sizes: Vec<u64> = found.files.iter().map(SourceFile::bytes).collect();
    let mut report = base_report(source, &sizes, SMALL_FILE);
    report.problems = problems::of_files(&found);
    let refused = convert::refuse_tables(&found).err().map(|e| e.to_line());
    let small = (report.bytes <= convert::SMALL && refused.is_none()).then(|| found.files.clone());
    report.problems.extend(refused);
    // Nothing else has opened the files yet, so the time that a disk or a network takes shows.
    let forecast = found.tables.is_empty().then(|| Forecast::new(context, &found.files, listing)).flatten();
    let (shards, others) = match options.from {
        Some(_) => (ByFormat::new(), found.files),
        None => by_format(found.files)?,
    };
    let mut sample = SampledBatches::default();
    for (format, files) in &shards {
        let (shards, problem) = shard_format(*format, files, &mut sample)?;
        report.formats.push(shards);
        report.problems.extend(problem);
    }
    let (mut note, mut sources_of_records) = (None, Vec::new());
    if !others.is_empty() {
        match classify_files(context, others.clone(), options) {
            Ok(Input::Records(sources)) => {
                of_records(context, &sources, &mut report, &mut sample)?;
                sources_of_records = sources;
            }
            Ok(Input::Files(files)) => of_files(context, &files, &mut report),
            // There is nothing else to say of a single file that cannot be read.
            Err(e) if others.len() == 1 && shards.is_empty() => return Err(e),
            Err(e) => {
                note = Some(e.to_line());
                report.formats.push(format_report("files", &others, None, false));
            }
        }
    }
    report.problems.extend(problems::of_names(&sources_of_records, &shards));
    // What cannot be read at all is said in the advice.
    if let (Some(files), true, None) = (small, shards.is_empty(), &note) {
        report.problems.extend(cost::convert_refusal(context, files, options).map(|e| e.to_line()));
    }
    sample.describe_columns(&mut report)?;
    check_id(&mut report, &|id| {
        unique::unique_in(context, &sources_of_records, shards.get(&OutputFormat::Parquet), id)
    });
    report.records = report.formats.iter().map(|format| format.records).sum();
    report.exact = report.formats.iter().all(|f| f.exact);
    let of_whole = problems::of_report(&report, HIGH_SCORE, &|column| !is_float(column) && is_id(&column.column));
    report.problems.extend(of_whole);
    set_advice(&mut report, options, shards.len(), others.is_empty(), note);
    if let (true, Some(forecast), Some(_)) = (shards.is_empty(), forecast, &report.command) {
        report.cost = forecast.estimate_cost(context, &convert_options(&report, options));
    }
    Ok(report)
}

/// Adds sources of records to a report.
fn of_records(
    context: &Context<'_>,
    sources: &[RecordSource],
    report: &mut InspectReport,
    sample: &mut SampledBatches,
) -> Result<()> {
    if let Some(source) = sources.iter().find(|source| source.reader.facts().layout.is_some())
        && let Some(opened) = source.reader.arrays().map(|arrays| arrays.open_source()).transpose()?
    {
        report.record_dim.clone_from(&opened.plan().dim);
        report.variables = variable_reports(opened.header(), opened.plan());
    }
    let note_remark = |text| context.observer.event(Event::Note(text));
    convert::reader_remarks(sources).into_iter().for_each(note_remark);
    sample_tables(sources, &mut report.formats, sample)
}

/// Adds files that are grouped into samples to a report.
fn of_files(context: &Context<'_>, files: &[SourceFile], report: &mut InspectReport) {
    let samples = files::group_samples(files);
    report.formats.push(format_report("files", files, Some(samples.len() as u64), true));
    report.problems.extend(problems::of_samples(files, &samples));
    report.problems.extend(convert::layout_notes(files, std::slice::from_ref(&report.source)));
    if let Some(note) = convert::collapsed_note(&KeyRule::FirstDot, files, &samples) {
        context.observer.event(Event::Note(note));
    }
}

/// Describes a dataset or a Delta table; `None` if there is neither.
fn inspect_stored(context: &Context<'_>, source: &str) -> Result<Option<InspectReport>> {
    let Ok(location) = context.parse_location(source) else { return Ok(None) };
    if location.local_path().is_some_and(|path| !path.is_dir()) {
        return Ok(None);
    }
    let Some(opened) = open_dataset(context, &location)? else { return Ok(None) };
    let plans = open_plans(&opened)?;
    if let Some(snapshot) = opened.newest_snapshot()? {
        return Ok(Some(InspectReport { plans, ..inspect_dataset(context, &location, &snapshot)? }));
    }
    if !plans.is_empty() {
        return Ok(Some(plans_report(&location, plans)));
    }
    let Some(found) = compact::table_at(context, &location)? else { return Ok(None) };
    table::inspect_table(source, &found).map(Some)
}

/// Files that are shards, by their format.
type ByFormat = BTreeMap<OutputFormat, Vec<SourceFile>>;

/// Divides files into shards, by their format, and others.
fn by_format(files: Vec<SourceFile>) -> Result<(ByFormat, Vec<SourceFile>)> {
    let describe = |file: SourceFile| {
        // An unreadable file is an error only when it is converted; here it counts as any other file. A Zarr store is
        // not a file.
        let sniffed = if file.is_store() { Ok(None) } else { adopt::sniff_format(&file) };
        let format = sniffed.ok().flatten().map(|(format, _)| format);
        (file, format)
    };
    let remote = files.iter().any(SourceFile::is_remote);
    let described: Vec<(SourceFile, Option<OutputFormat>)> =
        with_io_threads(files.len(), remote, || files.into_par_iter().map(describe).collect())?;
    let mut shards = ByFormat::new();
    let mut others = Vec::new();
    for (file, format) in described {
        match format {
            Some(format) => shards.entry(format).or_default().push(file),
            None => others.push(file),
        }
    }
    Ok((shards, others))
}

/// Classifies files that are no shards, without the metadata of an imagefolder.
fn classify_files(context: &Context<'_>, mut files: Vec<SourceFile>, options: &InspectOptions) -> Result<Input> {
    // Metadata that cannot be read is an error only when it is converted.
    let _ = convert::leave_out_metadata(options.from, &mut files);
    classify_inputs(files, &options.read.to_sniff_options(options.from, context.memory.0))
}

/// Returns the dataset at a location, which may have no version; `None` if there cannot be one.
fn open_dataset(context: &Context<'_>, location: &Location) -> Result<Option<Dataset>> {
    // A web server's folders cannot be listed.
    if location.local_path().is_none() && matches!(location.url().scheme(), "http" | "https") {
        return Ok(None);
    }
    context.open_dataset(location).map(Some)
}

/// Returns the plans of a dataset that can be continued.
fn open_plans(dataset: &Dataset) -> Result<Vec<PlanInfo>> {
    let mut plans = Vec::new();
    for stored in stored_plans(dataset)? {
        // A plan of another release is shown by its age alone.
        let Ok(record) = PlanRecord::read(dataset, &stored.name) else { continue };
        let Some(record) = record else { continue };
        if plan_state(dataset, &record.id, record.base)? == PlanState::Open {
            plans.push(PlanInfo {
                plan: dataset.store().location().join(&record.plan_name().path()).to_string(),
                operation: record.operation,
                tasks: record.tasks.len() as u64,
                tasks_done: stored.outcomes,
                touched: format!("{:.0}", stored.touched),
            });
        }
    }
    Ok(plans)
}

/// Returns the report of a dataset that has plans but no version.
fn plans_report(location: &Location, plans: Vec<PlanInfo>) -> InspectReport {
    let mut report = InspectReport { plans, ..base_report(&location.to_string(), &[], SMALL_FILE) };
    if let Some(plan) = report.plans.last() {
        let word = shell_word(&plan.plan);
        let (command, advice) = match plan.tasks_done < plan.tasks {
            true => (
                format!("shardify run-task {word} --task 0..{}", plan.tasks.saturating_sub(1)),
                "runs the tasks that have not finished; repeating the `convert` does so, too",
            ),
            false => (format!("shardify commit {word}"), "makes a version of what the tasks wrote"),
        };
        (report.command, report.advice) = (Some(command), advice.to_owned());
    }
    report
}

fn inspect_dataset(context: &Context<'_>, location: &Location, snapshot: &Snapshot) -> Result<InspectReport> {
    let settings = &snapshot.entry().settings;
    let shards = snapshot.live_shards()?;
    let sizes: Vec<u64> = shards.iter().map(|s| s.bytes).collect();
    let mut report = base_report(&location.to_string(), &sizes, Size(settings.target_shard.0 / 8));
    report.version = Some(snapshot.version());
    report.parent = parent_report(context, snapshot, Look::Nearby)?;
    report.records = Some(snapshot.entry().totals.records);
    report.exact = true;
    report.id = (!settings.id.is_empty()).then(|| settings.id.join(","));
    report.subject.clone_from(&settings.subject);
    report.classes = settings.classes.clone().unwrap_or_default();
    report.settings = Some(settings.clone());
    report.formats.push(FormatReport {
        at_least: false,
        format: settings.shard_format.to_string(),
        files: report.files,
        bytes: report.bytes,
        records: report.records,
        exact: true,
        damaged: 0,
    });
    let store: &Dataset = snapshot.dataset();
    if settings.shard_format.is_columnar()
        && let Some(shard) = shards.last()
    {
        let mut sample = SampledBatches::default();
        sample.add_parquet(parquet::open(store.object_at(&shard.path, shard.bytes), &shard.path)?)?;
        let (id, subject) = (report.id.take(), report.subject.take());
        sample.describe_columns(&mut report)?;
        (report.id, report.subject) = (id, subject);
    }
    let options = compact::Options { dry_run: true, ..compact::Options::default() };
    let plan = compact::compact_dataset(context, location, &options)?;
    if plan.shards_after < plan.shards_before {
        report.command = Some(format!("shardify compact {}", shell_word(&report.source)));
        report.advice = format!("leaves {} of {} shards", plan.shards_after, plan.shards_before);
    } else if report.small_files > 1 {
        report.advice =
            "some shards are small, but too few to be worth merging; compact --min-inputs 2 does it".to_owned();
    } else if report.small_files == 1 {
        report.advice = "nothing to do: the one small shard has no other to merge with".to_owned();
    } else {
        report.advice = "nothing to do: no shards need merging".to_owned();
    }
    Ok(report)
}

fn format_report(format: &str, files: &[SourceFile], records: Option<u64>, exact: bool) -> FormatReport {
    let bytes = files.iter().map(SourceFile::bytes).sum();
    FormatReport {
        format: format.to_owned(),
        files: files.len() as u64,
        bytes,
        records,
        exact,
        at_least: false,
        damaged: 0,
    }
}

/// Describes shards of a format, and what is wrong with them.
fn shard_format(
    format: OutputFormat,
    files: &[SourceFile],
    sample: &mut SampledBatches,
) -> Result<(FormatReport, Option<String>)> {
    if format.is_columnar() {
        let open = |file: &SourceFile| parquet::open(file.object(), &file.uri());
        let facts = |file: parquet::ParquetFile<Object>| {
            let largest = file.row_groups().iter().map(|group| group.uncompressed_bytes).max().unwrap_or(0);
            (file.row_count(), largest)
        };
        let remote = files.iter().any(SourceFile::is_remote);
        let rows: Vec<Option<(u64, u64)>> =
            with_io_threads(files.len(), remote, || files.par_iter().map(|file| open(file).ok().map(facts)).collect())?;
        let sound = files.iter().zip(&rows).filter(|(_, rows)| rows.is_some());
        for (file, _) in sound.take(SAMPLED_FILES) {
            // A file with a valid footer and damaged pages is reported when it is read in full.
            let _ = sample.add_parquet(open(file)?);
        }
        let damaged = rows.iter().filter(|rows| rows.is_none()).count() as u64;
        let report = format_report(format.name(), files, Some(rows.iter().flatten().map(|(rows, _)| rows).sum()), true);
        let largest = rows.iter().flatten().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        return Ok((FormatReport { damaged, ..report }, problems::of_row_groups(largest)));
    }
    let framing = format.framing()?;
    let (mut records, mut looked_at, mut problem) = (0_u64, 0_u64, None);
    for file in files.iter().take(SAMPLED_FILES) {
        let read = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let tap = {
            let read = std::sync::Arc::clone(&read);
            move |bytes: &[u8]| {
                read.fetch_add(bytes.len() as u64, std::sync::atomic::Ordering::Relaxed);
            }
        };
        let input = file.open(tap)?;
        let mut separated = Separated::default();
        let scanned = framing.scan_foreign(&mut std::io::Read::take(input, SAMPLE_BYTES), &mut |_, key| {
            records += 1;
            key.into_iter().for_each(|key| separated.add_sample(key, std::iter::empty()));
            Ok(())
        });
        problem = problem.or_else(|| separated.repeated_keys_note(file.name()));
        // The end of the sample may cut a record in two, which is not damage.
        if let Err(e) = scanned
            && format.has_keys()
            && !e.message().contains("the end of the archive")
        {
            problem.get_or_insert_with(|| format!("{}: {}", file.name(), e.message()));
        }
        looked_at += read.load(std::sync::atomic::Ordering::Relaxed);
    }
    let bytes: u64 = files.iter().map(SourceFile::bytes).sum();
    let exact = looked_at >= bytes;
    let estimate = if exact { records } else { scale_records(records, bytes, looked_at) };
    Ok((format_report(format.name(), files, Some(estimate), exact), problem))
}

/// Scales `records` of `part` bytes up to `whole` bytes.
fn scale_records(records: u64, whole: u64, part: u64) -> u64 {
    u64::try_from(u128::from(records) * u128::from(whole) / u128::from(part.max(1))).unwrap_or(u64::MAX)
}

fn sample_tables(sources: &[RecordSource], formats: &mut Vec<FormatReport>, sample: &mut SampledBatches) -> Result<()> {
    let mut by_format: BTreeMap<&str, (Vec<SourceFile>, u64, bool)> = BTreeMap::new();
    // Of compressed sources, only the stored size is known.
    let packed: HashSet<&str> = sources.iter().filter(|s| s.packed).map(|source| source.format.name()).collect();
    for (i, source) in sources.iter().enumerate() {
        let entry = by_format.entry(source.format.name()).or_insert_with(|| (Vec::new(), 0, true));
        let bytes = source.file.bytes();
        if let Some(rows) = source.reader.facts().rows {
            entry.1 += rows;
            if let (true, Some(range), true) =
                (i < SAMPLED_FILES, &source.sample, source.reader.facts().sheet.is_some())
                && let Parsed::Block(block) = source.reader.parse(range, &schema_of(&source.fields))?
                && let Payload::Rows(batch) = block.payload
            {
                sample.add_batch(batch.slice(0, batch.num_rows().min(SAMPLE_ROWS)));
            }
        } else if let Some(range) = &source.sample {
            let fields = schema_of(&source.fields);
            if let Parsed::Block(block) = source.reader.parse(range, &fields)? {
                let whole = !source.packed && range.offset + range.bytes_in() >= bytes;
                let rows = block.records_in();
                entry.1 += if whole { rows } else { scale_records(rows, bytes, range.bytes_in()).max(rows) };
                entry.2 &= whole;
                if let (true, Payload::Rows(batch)) = (i < SAMPLED_FILES, block.payload) {
                    sample.add_batch(batch.slice(0, batch.num_rows().min(SAMPLE_ROWS)));
                }
            } else {
                entry.2 = false;
            }
        }
        entry.0.push(source.file.clone());
    }
    for (format, (files, records, exact)) in by_format {
        let at_least = packed.contains(format);
        formats.push(FormatReport { at_least, ..format_report(format, &files, Some(records), exact) });
    }
    Ok(())
}

/// The sampled records.
#[derive(Default)]
struct SampledBatches {
    batches: Vec<RecordBatch>,
}

impl SampledBatches {
    fn add_batch(&mut self, batch: RecordBatch) {
        self.batches.push(batch);
    }

    fn add_parquet(&mut self, file: parquet::ParquetFile<Object>) -> Result<()> {
        let raw: u64 = file.row_groups().iter().map(|g| g.uncompressed_bytes).sum();
        let rows = SAMPLE_BYTES / (raw / file.row_count().max(1)).max(1);
        let rows = usize::try_from(rows).unwrap_or(SAMPLE_ROWS).clamp(1, SAMPLE_ROWS);
        if let Some(batch) = file.into_batches(rows).next() {
            self.add_batch(batch?);
        }
        Ok(())
    }

    /// Describes the columns, and finds those that look like ids.
    fn describe_columns(&self, report: &mut InspectReport) -> Result<()> {
        let fields = self.batches.iter().fold(Fields::empty(), |all, b| unite_lists(&all, b.schema().fields()));
        let records: usize = self.batches.iter().map(RecordBatch::num_rows).sum();
        report.sampled_records = records as u64;
        for field in &fields {
            let parts: Vec<_> = self.batches.iter().map(|b| (b.num_rows(), b.column_by_name(field.name()))).collect();
            let nulls: usize = parts.iter().map(|(rows, part)| part.map_or(*rows, |p| p.logical_null_count())).sum();
            let nested = field.data_type().is_nested() || matches!(field.data_type(), DataType::Binary);
            let data_type = schema::file::print_type(field);
            let column = InspectedColumn {
                column: field.name().clone(),
                data_type,
                nulls: nulls as f64 / records.max(1) as f64,
                unique: records > 1 && nulls == 0 && !nested && self.is_unique(field.name())?,
            };
            report.columns.push(column);
        }
        report.subject = find_column(&report.columns, |c| !is_float(c) && is_subject(&c.column));
        report.id = unique_id(&report.columns, report.subject.as_deref());
        Ok(())
    }

    fn is_unique(&self, column: &str) -> Result<bool> {
        // A batch without records cannot lack a column.
        let batches = self.batches.iter().filter(|batch| batch.num_rows() > 0);
        let ids: Vec<StringArray> =
            batches.map(|batch| id_column(batch, &[column.to_owned()])).collect::<Result<_>>()?;
        let mut seen = HashSet::new();
        Ok(ids.iter().flatten().flatten().all(|id| seen.insert(id)))
    }
}

/// Looks at all records of a small source, and takes the suggestion of an id back if it repeats: that makes room for
/// the next.
fn check_id(report: &mut InspectReport, unique_in: &dyn Fn(&str) -> Option<u64>) {
    while let Some(id) = report.id.clone() {
        match unique_in(&id) {
            Some(0) => {
                report.columns.iter_mut().filter(|column| column.column == id).for_each(|column| column.unique = false);
                report.id = unique_id(&report.columns, report.subject.as_deref());
            }
            records => {
                report.id_unique_in = records;
                return;
            }
        }
    }
}

/// Returns the first column without repeated values whose name is that of a record id.
fn unique_id(columns: &[InspectedColumn], subject: Option<&str>) -> Option<String> {
    find_column(columns, |column| {
        column.unique && !is_float(column) && is_id(&column.column) && Some(column.column.as_str()) != subject
    })
}

fn find_column(columns: &[InspectedColumn], wanted: impl Fn(&InspectedColumn) -> bool) -> Option<String> {
    columns.iter().find(|column| wanted(column)).map(|column| column.column.clone())
}

fn is_float(column: &InspectedColumn) -> bool {
    column.data_type.starts_with("Float")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_recognised_by_name() {
        assert!(["patient_id", "PatientID", "mrn", "user"].iter().all(|n| is_subject(n)));
        assert!(["id", "record_id", "recordId", "UUID"].iter().all(|n| is_id(n)));
        assert!(!is_id("idle") && !is_subject("userland") && !is_id("valid"));
        assert_eq!(shell_word("a b's"), r"'a b'\''s'");
    }
}
