//! Conversions: the options of `shardify convert` as a builder.

use std::ffi::OsStr;

use super::{
    Mistake, report,
    session::{Session, text},
};
use crate::{
    dataset::Counts,
    error::{Error, Result},
    exec::{cut::ShardEnds, gather::OnError},
    format::OutputFormat,
    ops::{
        convert::{
            Accept, ConvertOptions, LabelSource, SubjectSource, WriteSetting, column_type, convert_sources,
            parse_condition,
        },
        inputs::OnChanged,
    },
    record::{split::SplitBy, subject::SubjectPattern},
    scan::{InputFormat, settings::ReadSetting},
    units::Size,
};

/// A conversion of sources into a dataset; [`Session::convert`] begins one.
///
/// Options have the names and the notation of `shardify convert`, whose help explains them.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("weather");
/// use shardify::{Format, OnError, Session};
///
/// let report = Session::new()?
///     .convert("testdata/csv/seattle-weather.csv", &out)
///     .to(Format::Tar)
///     .id(["date"])
///     .filter("precipitation > 0")
///     .split("train=0.8,test=0.2")
///     .shuffle(7)
///     .on_error(OnError::Quarantine)
///     .run()?;
/// let counts = report.counts();
/// assert_eq!(counts.records_in, counts.records_out + counts.records_filtered);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a conversion does nothing until `run`"]
pub struct Convert {
    session: Session,
    dataset: String,
    options: ConvertOptions,
    shards: Option<u64>,
    even: bool,
    split_by: Option<SplitBy>,
    read: Vec<ReadSetting>,
    write: Vec<WriteSetting>,
    mistake: Mistake,
}

impl Session {
    /// Converts sources (a file, folder, glob or URL) into a dataset, which is created if it does not exist.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("patients");
    /// use shardify::Session;
    ///
    /// let session = Session::new()?;
    /// let report = session.convert("testdata/patients/PERSON.csv", &out).subject("person_id").run()?;
    /// assert_eq!(report.counts().records_in, report.counts().records_out);
    ///
    /// // Again: nothing is new.
    /// let again = session.convert("testdata/patients/PERSON.csv", &out).subject("person_id").run()?;
    /// assert_eq!((again.version(), again.sources_unchanged()), (Some(1), 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn convert(&self, source: impl AsRef<OsStr>, dataset: impl AsRef<OsStr>) -> Convert {
        Convert::new(self.clone(), source.as_ref(), dataset.as_ref())
    }
}

impl Convert {
    fn new(session: Session, source: &OsStr, dataset: &OsStr) -> Self {
        let mut new = Self {
            session,
            dataset: String::new(),
            options: ConvertOptions::default(),
            shards: None,
            even: false,
            split_by: None,
            read: Vec::new(),
            write: Vec::new(),
            mistake: Mistake::default(),
        };
        new.dataset = new.mistake.accept("dataset", text(dataset)).unwrap_or_default();
        new.source(source)
    }

    /// Adds a source: a file, folder, glob or URL.
    pub fn source(mut self, source: impl AsRef<OsStr>) -> Self {
        self.options.sources.extend(self.mistake.accept("source", text(source.as_ref())));
        self
    }

    /// Sets the format of the sources, such as `csv`; by default it is detected from the content.
    pub fn from(mut self, format: &str) -> Self {
        let known = InputFormat::ALL.iter().find(|known| known.name() == format).copied();
        let unknown = || Error::usage(format!("from: expected an input format, found `{format}`"));
        self.options.from = self.mistake.accept("from", known.ok_or_else(unknown));
        self
    }

    /// Reads only inputs whose paths below the sources match a glob; may be repeated.
    pub fn include(mut self, glob: impl Into<String>) -> Self {
        self.options.include.push(glob.into());
        self
    }

    /// Skips inputs whose paths below the sources match a glob; may be repeated.
    pub fn exclude(mut self, glob: impl Into<String>) -> Self {
        self.options.exclude.push(glob.into());
        self
    }

    /// Keeps these columns of tables, in this order; by default all.
    pub fn columns(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.columns = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Keeps the rows that satisfy a condition in SQL (`--where`): `age >= 18 and site in ('A', 'B')`.
    pub fn filter(mut self, text: &str) -> Self {
        self.options.filter = self.mistake.accept("filter", parse_condition(text));
        self
    }

    /// Sets the table with the labels of files: its path or URL, and after a colon the column that names the files.
    pub fn labels(mut self, table: impl Into<String>) -> Self {
        self.options.labels = Some(LabelSource::Table(table.into()));
        self
    }

    /// Names the column of the labels that becomes the class of a sample, its part `cls`.
    pub fn label_column(mut self, column: impl Into<String>) -> Self {
        self.options.label_column = Some(column.into());
        self
    }

    /// Gives samples the numbers of the folders above their files as classes.
    pub fn label_from_folder(mut self) -> Self {
        self.options.label_from_folder = true;
        self
    }

    /// Sets the rule by which files are parts of one sample: `first-dot`, `last-dot` or a regular expression.
    pub fn key(mut self, rule: &str) -> Self {
        self.options.key = self.mistake.accept("key", rule.parse());
        self
    }

    /// Sets a setting of an input format, such as `delimiter` to `;`.
    pub fn read(mut self, key: &str, value: &str) -> Self {
        self.read.extend(self.mistake.accept("read", format!("{key}={value}").parse::<ReadSetting>()));
        self
    }

    /// Sets a setting of a shard format, such as `row-group` to `64MiB`.
    pub fn write(mut self, key: &str, value: &str) -> Self {
        self.write.extend(self.mistake.accept("write", format!("{key}={value}").parse::<WriteSetting>()));
        self
    }

    /// Recognises inputs by `path`, the default, or also by `content`, so that moved inputs are skipped.
    pub fn identity(mut self, how: &str) -> Self {
        self.options.identity = self.mistake.accept_word("identity", how).unwrap_or_default();
        self
    }

    /// Sets the format of the shards; by default tables become Parquet, and files tar.
    pub fn to(mut self, format: OutputFormat) -> Self {
        self.options.to = Some(format);
        self
    }

    /// Sets the size of a shard on disk, in bytes; by default 128 MiB.
    pub fn target_shard(mut self, bytes: u64) -> Self {
        self.options.target_shard = Some(Size(bytes));
        self
    }

    /// Makes so many shards, each of about as much of the input.
    pub fn shards(mut self, shards: u64) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Makes the shards even in records, not in bytes; needs [`shards`](Self::shards).
    pub fn even(mut self) -> Self {
        self.even = true;
        self
    }

    /// Puts so many records into each shard.
    pub fn records_per_shard(mut self, records: u64) -> Self {
        self.options.ends = Some(ShardEnds::Records(records));
        self
    }

    /// Divides the records: `train=0.8,val=0.1,test=0.1`, with `,seed=7` behind it for another division.
    pub fn split(mut self, shares: &str) -> Self {
        self.options.split = self.mistake.accept("split", shares.parse());
        self
    }

    /// Sets what [`split`](Self::split) keeps together: `subject`, `id`, `content` or a column; by default the first of
    /// the three that the records have.
    pub fn split_by(mut self, what: &str) -> Self {
        self.split_by = self.mistake.accept("split_by", what.parse());
        self
    }

    /// Omits duplicates by `content`, `id` or columns: the first record stays.
    pub fn dedup(mut self, by: &str) -> Self {
        self.options.dedup = self.mistake.accept("dedup", by.parse());
        self
    }

    /// Puts the records into a random order that follows from the seed.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.options.shuffle = Some(seed);
        self
    }

    /// Sets the compression: `none`, `zstd`, `lz4`, `snappy` or `gzip`, with a level as in `zstd:3`.
    pub fn codec(mut self, codec: &str) -> Self {
        self.options.codec = self.mistake.accept("codec", codec.parse());
        self
    }

    /// Sets the columns that make the record id; by default it is the origin, `source#row`, or the key of a sample.
    pub fn id(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.id = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the column of the subject id, which names the person, or the thing, that a record is about.
    pub fn subject(mut self, column: impl Into<String>) -> Self {
        self.options.subject = Some(column.into());
        self
    }

    /// Takes subject ids from paths, by a pattern such as `scans/{subject}/*`, or `bids` for the rule of BIDS.
    pub fn subject_from_path(mut self, pattern: &str) -> Self {
        let pattern = self.mistake.accept("subject_from_path", SubjectPattern::parse(pattern));
        self.options.subjects = pattern.map(SubjectSource::Path);
        self
    }

    /// Takes subject ids from a table, whose column `path` has the paths, and `subject`, or the one that
    /// [`subject`](Self::subject) names, the ids.
    pub fn subject_table(mut self, table: impl Into<String>) -> Self {
        self.options.subjects = Some(SubjectSource::Table { place: table.into(), column: None });
        self
    }

    /// Keeps the content hash of every row of Parquet shards.
    pub fn hash_records(mut self) -> Self {
        self.options.hash_records = true;
        self
    }

    /// Makes a dataset whose versions can be proved to have an id, or not to have it.
    pub fn proofs(mut self) -> Self {
        self.options.proofs = true;
        self
    }

    /// Sets how ids are stored: `plain`, `hmac` or `sealed`; the last two need [`Session::id_key`].
    pub fn id_mode(mut self, mode: &str) -> Self {
        self.options.private.mode = self.mistake.accept_word("id_mode", mode);
        self
    }

    /// Accepts data that differs from what the dataset holds; may be repeated.
    pub fn accept(mut self, difference: Accept) -> Self {
        self.options.accept.push(difference);
        self
    }

    /// Sets the type of a column, such as `int64` or `list<float32>`; may be repeated.
    pub fn column_type(mut self, column: &str, kind: &str) -> Self {
        self.options.types.extend(self.mistake.accept("column_type", column_type(column, kind)));
        self
    }

    /// Sets a file with the columns and their types: JSON or Parquet.
    pub fn schema(mut self, file: impl Into<String>) -> Self {
        self.options.schema = Some(file.into());
        self
    }

    /// Sets what becomes of inputs with other columns or types: `keep`, `union` or `fail`.
    pub fn on_schema(mut self, how: &str) -> Self {
        self.options.on_schema = self.mistake.accept_word("on_schema", how).unwrap_or_default();
        self
    }

    /// Writes indexes for training tools, such as `wids` or `dali`; by default those that cost almost nothing.
    pub fn index(mut self, kinds: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let kinds: Vec<_> = kinds.into_iter().map(|kind| self.mistake.accept_word("index", kind.as_ref())).collect();
        self.options.index = kinds.into_iter().collect();
        self
    }

    /// Sets what becomes of names that a reader of the shards cannot handle: `fail`, `rename` or `skip`.
    pub fn on_name(mut self, how: &str) -> Self {
        self.options.on_name = self.mistake.accept_word("on_name", how);
        self
    }

    /// Sets what becomes of samples that lack a part which others have: `keep`, `skip` or `fail`.
    pub fn missing(mut self, how: &str) -> Self {
        self.options.missing = self.mistake.accept_word("missing", how).unwrap_or_default();
        self
    }

    /// Sets what becomes of bad records and files; by default the first one is an error.
    pub fn on_error(mut self, how: OnError) -> Self {
        self.options.on_error = how;
        self
    }

    /// Sets what becomes of inputs that changed since they were converted; by default the first one is an error.
    pub fn on_changed(mut self, how: OnChanged) -> Self {
        self.options.on_changed = how;
        self
    }

    /// Converts only so many records, the first ones, as a trial; later runs into the dataset have to replace them.
    pub fn limit(mut self, records: u64) -> Self {
        self.options.limit = Some(records);
        self
    }

    /// Replaces all records of the dataset in one version; older versions stay readable.
    pub fn overwrite(mut self) -> Self {
        self.options.overwrite = true;
        self
    }

    /// Plans without writing anything.
    pub fn dry_run(mut self) -> Self {
        self.options.dry_run = true;
        self
    }

    /// Converts, and commits a version; nothing is visible before.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for options that make no sense,
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for bad data, [`ErrorKind::Changed`](crate::ErrorKind::Changed) if
    /// the sources or options do not fit the dataset, [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if another
    /// run was faster, [`ErrorKind::Storage`](crate::ErrorKind::Storage) if the store fails.
    pub fn run(mut self) -> Result<ConvertReport> {
        self.mistake.check()?;
        let (session, dataset) = (self.session.clone(), std::mem::take(&mut self.dataset));
        let options = self.settled()?;
        session.run(|context| convert_sources(context, &context.parse_location(&dataset)?, &options)).map(ConvertReport)
    }

    /// Returns the options; those that belong together are put together.
    fn settled(self) -> Result<ConvertOptions> {
        let mut options = self.options;
        options.read = self.read.into_iter().collect();
        options.write = self.write.into_iter().collect();
        if self.even && self.shards.is_none() {
            return Err(Error::usage("expected `shards` with `even`, found none"));
        }
        let ends = self.shards.map(if self.even { ShardEnds::Even } else { ShardEnds::Parts });
        let rules = [options.ends.is_some(), ends.is_some(), options.target_shard.is_some()];
        if rules.into_iter().filter(|given| *given).count() > 1 {
            return Err(Error::usage(
                "expected one of `target_shard`, `shards` and `records_per_shard`, found more of them",
            ));
        }
        options.ends = ends.or(options.ends);
        match (&mut options.split, self.split_by) {
            (_, None) => {}
            (Some(split), by) => split.by = by,
            (None, Some(_)) => return Err(Error::usage("expected `split` with `split_by`, found none")),
        }
        match &mut options.subjects {
            None => {}
            Some(SubjectSource::Table { column, .. }) => *column = options.subject.take(),
            Some(SubjectSource::Path(_)) if options.subject.is_some() => {
                return Err(Error::usage("expected `subject` or `subject_from_path`, found both"));
            }
            Some(SubjectSource::Path(_)) => {}
        }
        Ok(options)
    }
}

report! {
    /// What a conversion did.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("patients");
    /// use shardify::Session;
    ///
    /// let session = Session::new()?;
    /// let report = session.convert("testdata/patients/OBSERVATION.csv", &out).subject("person_id").run()?;
    /// assert_eq!((report.sources(), report.rejects()), (1, None));
    /// assert_eq!(serde_json::to_value(&report)?["records_in"], 8_099);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ConvertReport(crate::ops::convert::ConvertReport)
}

impl ConvertReport {
    /// Returns the new version; the newest one if nothing was new, `None` if there is no version yet.
    pub fn version(&self) -> Option<u64> {
        self.0.version.map(|version| version.0)
    }

    /// Returns the counts: records in = out + rejected + deduplicated + filtered.
    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Returns the number of sources that were converted.
    pub fn sources(&self) -> u64 {
        self.0.sources
    }

    /// Returns the number of sources that the dataset had already.
    pub fn sources_unchanged(&self) -> u64 {
        self.0.sources_unchanged
    }

    /// Returns the file with the rejected records, relative to the dataset.
    pub fn rejects(&self) -> Option<&str> {
        self.0.rejects.as_deref()
    }

    /// Returns name and type of each column of the shards.
    pub fn columns(&self) -> &[(String, String)] {
        &self.0.columns
    }
}
