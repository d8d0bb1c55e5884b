//! Labels of samples from tables beside their files: the row that names a sample becomes its part `json`.
//!
//! ```text
//! labels.csv   file_name,label      cat.jpg   FF D8 ..
//!              cat.jpg,7       ->   cat.json  {"label":7}
//! ```
//!
//! The types of labels are united over all tables of a run and bind those of later runs, as the types of columns do.
//!
//! Rows are joined with all listed files, also those that are in the dataset already: otherwise the name of a new file
//! might seem to be unique. A plan stores the numbers of rows, and the dataset a hash of the tables, but no content of
//! theirs, so that an erasure need not look for it.

use std::collections::HashMap;

use arrow::{
    array::{Array as _, RecordBatch},
    datatypes::{Field, Fields},
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    job::ConvertJob,
    options::{Accept, ConvertOptions, LabelSource, OnSchema},
    side_table::{self, SideTable},
};
use crate::{
    dataset::{Pseudonymizer, Settings},
    error::{Error, Result},
    events::Event,
    exec::gates::names::EXAMPLES,
    format::files::{self, GivenPart, PartContents, Samples, TreeFile as _},
    ops::Context,
    record::{id_column, json::RowJson},
    scan::{InputFormat, SourceFile, content_hash, names_records},
    schema::{bound, file::print_type, hint_columns, unite_lists},
    storage::plain_argument,
    units::Size,
};

/// Extension of the part that a row becomes.
const EXTENSION: &str = "json";
/// Name of the option that names the table.
const OPTION: &str = "--labels";
/// Columns that may name samples, in order of preference.
const KEYS: [&str; 7] = ["file_name", "file", "path", "image", "filename", "id", "key"];
/// Column that names the files in the metadata of Hugging Face's imagefolder.
const FILE_NAME: &str = "file_name";
/// Names of tables with the metadata of Hugging Face's imagefolder.
const METADATA: [&str; 3] = ["metadata.csv", "metadata.jsonl", "metadata.parquet"];
/// Divisor of the memory limit: labels may use an eighth of it.
const SHARE: u64 = 8;
/// Memory of a row besides its texts, in bytes.
const ROW_BYTES: u64 = 192;
/// Number of a row or sample that stands for none.
const NONE: u32 = u32::MAX;

/// The tables of labels of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LabelTables {
    /// Paths or URLs, in order.
    places: Vec<String>,
    /// The column that names samples.
    column: String,
}

/// Labels of the samples of a run.
#[derive(Debug)]
pub(super) struct Labels {
    pub(super) tables: LabelTables,
    /// Types of the labels of the dataset, with these tables.
    pub(super) types: Fields,
    /// The tables, as messages name them.
    shown: String,
    /// The hash of all tables, without a key.
    hash: u64,
    /// JSON of the rows.
    contents: PartContents,
    /// The row of each sample, by its key.
    of_sample: HashMap<Box<str>, u32>,
    /// Number of rows that name no sample, and what the first of them name.
    unused: (u64, Vec<String>),
    /// Whether the tables were found among the sources, rather than named.
    found: bool,
    /// Whether the column was chosen by its name.
    chosen: bool,
}

impl Labels {
    /// Reads the labels of the listed files: from the table that the user names, or from the metadata of an imagefolder
    /// among the files. Tables are removed from the list; their number is added to `ignored`. `known` are the types of
    /// the labels that the dataset has.
    ///
    /// # Errors
    /// When a table cannot be read, two rows name one sample, or a value does not fit the type that the dataset has.
    pub(super) fn read(
        context: &Context<'_>,
        options: &ConvertOptions,
        known: &Fields,
        files: &mut Vec<SourceFile>,
        ignored: &mut u64,
    ) -> Result<Option<Self>> {
        let (before, found) = (files.len(), options.labels.is_none());
        let (tables, column) = match &options.labels {
            Some(LabelSource::None) => return Ok(None),
            Some(LabelSource::Table(_)) if options.from.is_some_and(|from| from != InputFormat::FILES) => {
                return Err(records_refusal(OPTION));
            }
            Some(LabelSource::Table(text)) => {
                let (place, column) = place_and_column(context, text);
                let table = OpenedTable::new(side_table::locate_table(context, place, OPTION)?, plain_argument(place))?;
                files.retain(|other| other.uri() != table.table.uri());
                (vec![table], column)
            }
            None => (take_metadata(options.from, files)?, None),
        };
        *ignored += (before - files.len()) as u64;
        let Some(first) = tables.first() else { return Ok(None) };
        let key = if found { FILE_NAME.to_owned() } else { key_of(&first.table, column)? };
        let more = if tables.len() > 1 { format!(" and {} more", tables.len() - 1) } else { String::new() };
        let shown = format!("{}{more}", first.shown);
        let types = types_of(&tables, &key, known, options.on_schema)?;
        let mut rows = Rows::new(context.memory.0 / SHARE);
        let (mut places, mut hashes) = (Vec::new(), Vec::new());
        for OpenedTable { table, shown, hash } in tables {
            let folder = shown.rfind('/').map_or("", |slash| &shown[..=slash]);
            places.push(table.uri());
            hashes.extend_from_slice(&hash.to_le_bytes());
            rows.add_table(table.with_types(&types), &key, Some(folder).filter(|_| found))?;
        }
        let joined = join_samples(&rows, files, !found)?;
        let unused = rows.unused_rows(&joined.owners);
        Ok(Some(Self {
            tables: LabelTables { places, column: key },
            types,
            shown,
            hash: xxh3_64(&hashes),
            contents: rows.into_contents(),
            of_sample: joined.of_sample,
            unused,
            found,
            chosen: column.is_none(),
        }))
    }

    /// Tells where labels come from, which rows name no sample, and whether the tables differ from those used before;
    /// returns the hash of the tables as the dataset stores it.
    pub(super) fn tell_origin(&self, job: &ConvertJob<'_>) -> String {
        let note = |text: String| job.context.observer.event(Event::Note(text));
        if self.found {
            note(format!("{}: its rows become the parts `json` of samples; --labels none turns that off", self.shown));
        } else if self.chosen {
            note(format!("{}: the column `{}` names the samples", self.shown, self.tables.column));
        }
        let (unused, names) = &self.unused;
        if *unused > 0 {
            let rows =
                if *unused == 1 { "1 row of the labels names" } else { &format!("{unused} rows of the labels name") };
            note(format!("{rows} no sample{}", list_examples(job, names)));
        }
        let hash = stored_hash(self.hash, job.pseudonymizer.as_ref());
        let old = job.snapshot.and_then(|snapshot| snapshot.entry().settings.labels.clone());
        if old.is_some_and(|old| old != hash) {
            note("the labels changed since an earlier run; samples that were converted before keep theirs".to_owned());
        }
        let known = job.snapshot.and_then(|snapshot| snapshot.entry().settings.label_types.clone()).unwrap_or_default();
        let changes: Vec<String> = known.iter().filter_map(|then| type_change(then, &self.types)).collect();
        if !changes.is_empty() {
            let changes = changes.join(", ");
            note(format!("types of labels change: {changes}; samples that were converted before keep theirs"));
        }
        hash
    }

    /// Returns the labels of samples as parts of theirs.
    ///
    /// # Errors
    /// When a sample has no row and must have one, or has a part of this extension already.
    pub(super) fn of_samples(
        &self,
        job: &ConvertJob<'_>,
        files: &[SourceFile],
        samples: &Samples,
    ) -> Result<GivenPart> {
        let (mut without, mut names, mut place) = (0_u64, Vec::new(), String::new());
        for sample in samples.iter_range(0..samples.len(), files) {
            if !self.of_sample.contains_key(sample.key()) {
                if without == 0 {
                    place = sample.files().next().map_or_else(String::new, SourceFile::uri);
                }
                without += 1;
                if names.len() < EXAMPLES {
                    names.push(sample.key().to_owned());
                }
            } else if let Some(file) = sample.files().find(|file| file.extension() == EXTENSION) {
                return Err(Error::input(
                    "expected samples without a part `json`, because the row of the labels becomes this part, found a \
                     file",
                )
                .at_location(file.uri())
                .with_hint("leave such files out with --exclude '*.json'")
                .with_hint("or keep them and leave the labels out with --labels none"));
            }
        }
        if without > 0 && !job.options.accept.contains(&Accept::Labels) {
            let first = names.first().cloned().unwrap_or_default();
            if without == samples.len() as u64
                && let Some(row) = self.unused.1.first()
            {
                return Err(Error::input(format!(
                    "no row of the labels names a sample: the first row names `{row}`, the first sample is `{first}`"
                ))
                .at_location(self.shown.clone())
                .with_hint("a row names a file by its path below the source, its file name, or the sample's key")
                .with_hint(format!("if another column does: {OPTION} FILE:COLUMN")));
            }
            return Err(Error::input(format!(
                "expected a row of the labels for each sample, found none for the sample `{first}`; {without} of {} \
                 samples have none",
                samples.len()
            ))
            .at_location(place)
            .with_hint("add rows to the table, or skip files with --exclude")
            .with_hint("--accept labels converts samples that have no row, without a label"));
        }
        if without > 0 {
            let note = format!("samples without a label: {without} of {}{}", samples.len(), list_examples(job, &names));
            job.context.observer.event(Event::Note(note));
        }
        let row = |sample: files::SampleFiles<'_, SourceFile>| self.of_sample.get(sample.key()).copied();
        let numbers = samples.iter_range(0..samples.len(), files).map(row);
        Ok(GivenPart::new(EXTENSION, self.contents.clone(), numbers))
    }
}

/// Returns an error if samples of a dataset had labels, and new samples would have none without the user's saying so.
///
/// # Errors
/// [`Kind::Changed`](crate::error::Kind::Changed) without consent.
pub(super) fn require_known(job: &ConvertJob<'_>, settings: &Settings) -> Result<()> {
    if settings.labels.is_none() || job.options.labels.is_some() {
        return Ok(());
    }
    job.require_accepted(Accept::Labels, "labels", || {
        "expected --labels, because samples of this dataset have labels from a table, found none".to_owned()
    })
}

/// Returns the error for labels of records that are not samples of files.
pub(super) fn records_refusal(what: &str) -> Error {
    Error::usage(format!("expected files for {what}, found records"))
        .with_hint(format!("leave {what} out; the rows of a table and the samples of an archive have their own labels"))
}

/// Returns the labels of a task's samples, given the number of the row of each.
pub(super) fn of_task(contents: &PartContents, rows: impl Iterator<Item = Option<u32>>) -> GivenPart {
    GivenPart::new(EXTENSION, contents.clone(), rows)
}

/// Returns the contents of the labels that samples have as parts, if they have labels.
pub(super) fn contents_of(samples: &Samples) -> Option<&PartContents> {
    part_of(samples).map(GivenPart::contents)
}

/// Returns the labels of samples, if they have labels.
pub(super) fn part_of(samples: &Samples) -> Option<&GivenPart> {
    samples.given_parts().iter().find(|part| part.extension() == EXTENSION)
}

impl LabelTables {
    /// Reads the tables again, which must be those of the plan.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) when one has changed; when it cannot be read.
    pub(super) fn reopen(
        &self,
        context: &Context<'_>,
        settings: &Settings,
        pseudonymizer: Option<&Pseudonymizer>,
    ) -> Result<PartContents> {
        let mut rows = Rows::new(context.memory.0 / SHARE);
        let mut hashes = Vec::new();
        for place in &self.places {
            let OpenedTable { table, hash, .. } =
                OpenedTable::new(side_table::locate_table(context, place, OPTION)?, String::new())?;
            hashes.extend_from_slice(&hash.to_le_bytes());
            let types = settings.label_types.clone().unwrap_or_default();
            rows.add_table(table.with_types(&types), &self.column, None)?;
        }
        if settings.labels.as_ref() != Some(&stored_hash(xxh3_64(&hashes), pseudonymizer)) {
            let first = self.places.first().cloned().unwrap_or_default();
            return Err(Error::input("expected the labels as they were when the plan was made, found them changed")
                .at_location(first)
                .with_hint("plan again; what other tasks have written is not used then"));
        }
        Ok(rows.into_contents())
    }
}

/// Returns the types of the labels of a dataset with those of these tables: types of the dataset stay if they hold
/// every value.
///
/// # Errors
/// When one does not, unless types are widened.
fn types_of(tables: &[OpenedTable], key: &str, known: &Fields, on_schema: OnSchema) -> Result<Fields> {
    let mut all = Fields::empty();
    for OpenedTable { table, .. } in tables {
        let found: Fields = table.fields.iter().filter(|field| field.name() != key).cloned().collect();
        if let Some((column, then, now)) = bound::type_conflict(known, &found).filter(|_| on_schema != OnSchema::Union)
        {
            let message = format!("expected {then}, as labels of this dataset have, found {now}");
            return Err(Error::input(message)
                .at_location(table.uri())
                .in_column(column)
                .with_hint("correct the values in the table, or widen the type of later labels with --on-schema union")
                .with_hint("or name another dataset with --out"));
        }
        all = unite_lists(&all, &found);
    }
    Ok(bound::types_after_run(known, &all))
}

/// Describes how the type of a label with values changes.
fn type_change(then: &Field, now: &Fields) -> Option<String> {
    let (_, now) = now.find(then.name()).filter(|_| !then.data_type().is_null())?;
    let (before, after) = (print_type(then), print_type(now));
    (before != after).then(|| format!("`{}` from {before} to {after}", then.name()))
}

/// Returns the hash of tables as the dataset stores it: keyed if ids are private, since a label may be guessed.
fn stored_hash(hash: u64, pseudonymizer: Option<&Pseudonymizer>) -> String {
    format!("{:016x}", pseudonymizer.map_or(hash, |pseudonymizer| pseudonymizer.content_hash(hash)))
}

/// Lists a few names unless ids are private.
fn list_examples(job: &ConvertJob<'_>, names: &[String]) -> String {
    if job.pseudonymizer.is_some() || names.is_empty() {
        return String::new();
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!(", first {}", names.join(", "))
}

/// Splits `FILE:KEY`. A path that exists is not split, and neither is the colon of a URL.
fn place_and_column<'a>(context: &Context<'_>, text: &'a str) -> (&'a str, Option<&'a str>) {
    let has_query = |place: &str| place.contains("://") && place.contains('?');
    match text.rsplit_once(':') {
        None | Some(("", _) | (_, "")) => (text, None),
        Some((place, column)) if column.contains('/') || has_query(place) || context.folder.join(text).exists() => {
            (text, None)
        }
        Some((place, column)) => (place, Some(column)),
    }
}

/// Returns the column that names the samples: the user's, or the first known one.
fn key_of(table: &SideTable, wanted: Option<&str>) -> Result<String> {
    let names = table.column_names();
    let known = || KEYS.iter().find(|key| names.contains(key)).copied();
    match wanted {
        Some(wanted) if names.contains(&wanted) => Ok(wanted.to_owned()),
        Some(wanted) => {
            let error = Error::usage(format!("the table of {OPTION} has no such column"))
                .at_location(table.uri())
                .in_column(wanted);
            Err(hint_columns(error, wanted, &names))
        }
        None => known().map(str::to_owned).ok_or_else(|| {
            Error::usage(format!(
                "expected a column that names the samples, such as {FILE_NAME}, in the table of {OPTION}, found {}",
                names.join(", ")
            ))
            .at_location(table.uri())
            .with_hint(format!("name the column: {OPTION} FILE:COLUMN"))
        }),
    }
}

/// Leaves the metadata of an imagefolder out of a list of files, as `convert` does, which reads it as labels.
///
/// # Errors
/// When it cannot be read.
pub(in crate::ops) fn leave_out_metadata(from: Option<InputFormat>, files: &mut Vec<SourceFile>) -> Result<()> {
    take_metadata(from, files).map(drop)
}

/// An open table of labels.
struct OpenedTable {
    table: SideTable,
    /// Its path, as the user or the listing names it.
    shown: String,
    /// Hash of its content.
    hash: u64,
}

impl OpenedTable {
    fn new(file: SourceFile, shown: String) -> Result<Self> {
        // A table that changes while it is read has another hash than the next run finds.
        let hash = content_hash(&file)?;
        Ok(Self { table: SideTable::open(file, OPTION)?, shown, hash })
    }
}

/// Takes the metadata of an imagefolder out of a list of files: tables of the right name with a column `file_name`
/// beside files that cannot be tables.
fn take_metadata(from: Option<InputFormat>, files: &mut Vec<SourceFile>) -> Result<Vec<OpenedTable>> {
    let is_metadata = |name: &str| METADATA.contains(&name.rsplit('/').next().unwrap_or_default());
    let candidates: Vec<usize> = (0..files.len()).into_par_iter().filter(|at| is_metadata(files[*at].name())).collect();
    let is_plain = |file: &SourceFile| !file.is_store() && file.table_file().is_none();
    let other = |file: &SourceFile| is_plain(file) && !is_metadata(file.name());
    let of_samples = match from {
        None => files.iter().any(|file| other(file) && !names_records(file.name())),
        Some(from) => from == InputFormat::FILES && files.iter().any(other),
    };
    if candidates.is_empty() || !of_samples {
        return Ok(Vec::new());
    }
    let mut taken = Vec::new();
    for at in candidates.into_iter().rev() {
        let shown = files[at].name().to_owned();
        let opened = OpenedTable::new(files[at].clone(), shown)
            .map_err(|e| e.with_hint("--labels none does not read it as the labels of the files beside it"))?;
        if opened.table.column_names().contains(&FILE_NAME) {
            files.remove(at);
            taken.push(opened);
        }
    }
    taken.reverse();
    Ok(taken)
}

/// Rows of all tables, numbered from 0.
struct Rows {
    /// The tables, each with the number of its first row.
    tables: Vec<(SideTable, u64)>,
    /// What the rows name.
    texts: Vec<Box<str>>,
    json: Vec<u8>,
    ends: Vec<usize>,
    room: u64,
}

impl Rows {
    /// Creates rows that may use so many bytes of memory.
    fn new(room: u64) -> Self {
        Self { tables: Vec::new(), texts: Vec::new(), json: Vec::new(), ends: Vec::new(), room }
    }

    /// Adds the rows of a table; paths in its column are relative to `folder`.
    fn add_table(&mut self, table: SideTable, column: &str, folder: Option<&str>) -> Result<()> {
        let first = self.texts.len() as u64;
        let uri = table.uri();
        let at = |e: Error| if e.place().source.is_none() { e.at_location(uri.clone()) } else { e };
        table.each_batch(|name| name == column, &mut |batch| self.add_batch(batch, column, folder)).map_err(at)?;
        self.tables.push((table, first));
        Ok(())
    }

    fn add_batch(&mut self, batch: &RecordBatch, column: &str, folder: Option<&str>) -> Result<()> {
        let names = id_column(batch, &[column.to_owned()])?;
        let others: Vec<usize> =
            (0..batch.num_columns()).filter(|at| batch.schema_ref().field(*at).name() != column).collect();
        let others = batch.project(&others)?;
        let json = RowJson::new(&others);
        for row in 0..batch.num_rows() {
            let name = if names.is_valid(row) { names.value(row) } else { "" };
            let name = name.strip_prefix("./").unwrap_or(name).trim_start_matches('/');
            let text = if name.is_empty() { String::new() } else { [folder.unwrap_or_default(), name].concat() };
            let before = self.json.len();
            json.write_row(row, &mut self.json);
            let bytes = ROW_BYTES + 2 * text.len() as u64 + (self.json.len() - before) as u64;
            self.room = self.room.checked_sub(bytes).ok_or_else(|| {
                Error::input(format!(
                    "expected labels that fit an eighth of the memory, found more than {} rows",
                    self.texts.len()
                ))
                .with_hint(format!("raise --memory, or take fewer sources at a time; this row needs {}", Size(bytes)))
            })?;
            self.texts.push(text.into_boxed_str());
            self.ends.push(self.json.len());
        }
        Ok(())
    }

    /// Describes where a row is.
    fn place_of(&self, row: u32) -> String {
        let row = u64::from(row);
        let of = self.tables.iter().rev().find(|(_, first)| *first <= row);
        of.map_or_else(String::new, |(table, first)| table.place_of(row - first))
    }

    /// Returns the path or URL of the table of a row.
    fn table_of(&self, row: u32) -> String {
        let of = self.tables.iter().rev().find(|(_, first)| *first <= u64::from(row));
        of.map_or_else(String::new, |(table, _)| table.uri())
    }

    /// Returns the number of rows without an owner, and what the first of them name.
    fn unused_rows(&self, owners: &[u32]) -> (u64, Vec<String>) {
        let unused = || owners.iter().zip(&self.texts).filter(|(owner, _)| **owner == NONE);
        (unused().count() as u64, unused().take(EXAMPLES).map(|(_, text)| text.to_string()).collect())
    }

    fn into_contents(self) -> PartContents {
        PartContents::new(self.json, self.ends)
    }
}

/// Rows joined with samples.
struct Joined {
    /// The row of each sample, by its key.
    of_sample: HashMap<Box<str>, u32>,
    /// The sample that each row names.
    owners: Vec<u32>,
}

/// Joins rows with the samples of files, which are sorted by name. A row names the path of a file. If `loose`, it may
/// also name the key of a sample, the last component of either or the path in an archive if only one sample has it, or
/// a longer path that ends with that of a file.
fn join_samples(rows: &Rows, files: &[SourceFile], loose: bool) -> Result<Joined> {
    let samples = files::group_samples(files);
    let mut join =
        Join { rows, same: HashMap::new(), joined: Joined { of_sample: HashMap::new(), owners: Vec::new() } };
    join.joined.owners.resize(rows.texts.len(), NONE);
    for (row, text) in (0_u32..).zip(&rows.texts).filter(|(_, text)| !text.is_empty()) {
        join.same.entry(text).or_insert((row, NONE)).1 = row;
    }
    for (number, sample) in (0_u32..).zip(samples.iter_range(0..samples.len(), files)) {
        let names = sample.files().map(|file| file.path());
        for text in names.chain(Some(sample.key()).filter(|_| loose)) {
            join.assign_rows(text, sample.key(), number)?;
        }
    }
    if !loose {
        return Ok(join.joined);
    }
    let whole = join.joined.owners.clone();
    for (number, sample) in (0_u32..).zip(samples.iter_range(0..samples.len(), files)) {
        let last = |path: &'_ str| path.rfind('/').map(|slash| slash + 1);
        let names = sample.files().map(|file| file.path()).chain(Some(sample.key()));
        let in_archives = sample.files().filter_map(SourceFile::path_in_archive);
        for text in names.filter_map(|path| Some(&path[last(path)?..])).chain(in_archives) {
            let Some((row, _)) = join.same.get(text) else { continue };
            if whole[*row as usize] != NONE {
                continue;
            }
            let owner = join.joined.owners[*row as usize];
            if owner != NONE && owner != number {
                return Err(Error::input(format!(
                    "expected rows of the labels that name one sample, found `{text}`, which may be `{}` or `{}`",
                    samples.get(owner as usize, files).key(),
                    sample.key()
                ))
                .at_location(rows.table_of(*row))
                .with_hint("write more of the path into the table"));
            }
            join.assign_rows(text, sample.key(), number)?;
        }
    }
    join.longer_paths(files, &samples)?;
    Ok(join.joined)
}

struct Join<'a> {
    rows: &'a Rows,
    /// First and last row with a text.
    same: HashMap<&'a str, (u32, u32)>,
    joined: Joined,
}

impl Join<'_> {
    /// Gives a sample the rows with a text, if there are any.
    fn assign_rows(&mut self, text: &str, key: &str, sample: u32) -> Result<()> {
        let Some((first, last)) = self.same.get(text).copied() else { return Ok(()) };
        for row in [first, last] {
            self.joined.owners[row as usize] = sample;
            let known = *self.joined.of_sample.entry(key.into()).or_insert(row);
            if known != row {
                return Err(self.duplicate_error(key, known, row));
            }
        }
        Ok(())
    }

    fn duplicate_error(&self, key: &str, one: u32, other: u32) -> Error {
        let (one, other) = (one.min(other), one.max(other));
        let (place, table) = (self.rows.place_of(one), self.rows.table_of(one));
        let second = match self.rows.table_of(other) {
            same if same == table => self.rows.place_of(other),
            another => format!("{} of {another}", self.rows.place_of(other)),
        };
        Error::input(format!("expected one row of the labels for the sample `{key}`, found two: {place} and {second}"))
            .at_location(table)
            .with_hint("remove one of them; a row may name any file of the sample, or its key")
    }

    /// Joins rows that name a longer path than the listing, such as `data/a.jpg` for the file `a.jpg` of the source
    /// `data`.
    fn longer_paths(&mut self, files: &[SourceFile], samples: &Samples) -> Result<()> {
        let mut left = self.joined.owners.iter().zip(&self.rows.texts);
        if !left.any(|(owner, text)| is_left_and_longer(*owner, text)) {
            return Ok(());
        }
        let keys: HashMap<&str, u32> =
            samples.iter_range(0..samples.len(), files).map(files::SampleFiles::key).zip(0..).collect();
        for (row, text) in self.rows.texts.iter().enumerate() {
            if !is_left_and_longer(self.joined.owners[row], text) {
                continue;
            }
            let ending = text.bytes().enumerate().filter(|(_, byte)| *byte == b'/').find_map(|(slash, _)| {
                let path = &text[slash + 1..];
                let at = files.binary_search_by(|file| file.path().cmp(path)).ok()?;
                files[at].uri().ends_with(&format!("/{text}")).then(|| files[at].key())
            });
            if let Some((key, number)) = ending.and_then(|key| Some((key, *keys.get(key)?))) {
                self.assign_rows(text, key, number)?;
            }
        }
        Ok(())
    }
}

/// Whether a row has no sample yet, and names a path with folders.
fn is_left_and_longer(owner: u32, text: &str) -> bool {
    owner == NONE && text.contains('/')
}
