//! `adopt`: makes existing shards a dataset without rewriting a byte of them.
//!
//! In place, the folder gains `_shardify/` and its files become the shards, under their present names. If another
//! dataset is the destination, the files are linked there, or copied where they cannot be linked, under names that
//! shardify assigns. Format and compression are detected from the content. Files that other programs keep beside shards
//! (`_SUCCESS`, `_metadata`, indexes, notes) are ignored and counted; a file that is named like a shard but is not one
//! is an error.

mod planned;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use self::planned::{AdoptWork, plan_adoption as store_plan};
use super::{
    Context,
    inputs::{self, Identity, LiveDataset, OnChanged},
    lineage, revision,
};
use crate::{
    codec::{
        Codec,
        decompress::{self, Compression},
    },
    dataset::{
        Counts, Dataset, HashPlan, HashWidth, IdKind, NewShard, Numbers, Operation, PrivateChoice, Pseudonymizer,
        Publication, Revision, SegmentRef, SegmentWriter, Segments, Settings, Snapshot, SourceRow, SuppressList,
        Transaction, adopted_sidecar_path, choose_private, is_shard_name, sidecar_path,
    },
    error::{Error, Kind, Result},
    events::Event,
    exec::{
        adopt::{AdoptCandidate, Adopted, Adopter},
        ordered::run_ordered,
        shard::ShardNaming,
    },
    format::{OutputFormat, index::IndexKind},
    id::{TransactionId, Version, Writer},
    indexes::{self, version},
    record::key_rule::KeyRule,
    scan::{self, Archives, ScanOptions, ScanResult, SourceFile, TableFormat},
    storage::{Location, Staged},
    units::Size,
};

/// Maximum number of TFRecord files read at once: each may hold a record of an eighth of the memory.
const TFRECORD_FILES: usize = 4;
/// Number of leading bytes from which the format is detected.
const HEAD_BYTES: usize = 1 << 10;

/// What to adopt, and how.
#[derive(Debug, Clone, Default)]
pub struct AdoptOptions {
    /// Folder or glob with the shards.
    pub source: String,
    /// The dataset, unless the folder itself becomes one.
    pub out: Option<Location>,
    /// Columns that make the record id.
    pub id: Vec<String>,
    /// Column of the subject id.
    pub subject: Option<String>,
    /// Globs of files to include.
    pub include: Vec<String>,
    /// Globs of files to exclude.
    pub exclude: Vec<String>,
    /// Whether sidecars of Parquet shards have the content hash of every row, also where the dataset has none so far.
    pub hash_records: bool,
    /// Whether the id index of a new dataset has all that `manifest --prove` needs.
    pub proofs: bool,
    /// How ids are stored.
    pub private: PrivateChoice,
    /// Skip damaged files instead of stopping.
    pub skip_errors: bool,
}

/// A file that was skipped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SkippedFile {
    /// The file.
    pub file: String,
    /// What was expected and what was found.
    pub problem: String,
}

/// Report of an `adopt` run.
#[derive(Debug, Clone, Serialize)]
pub struct AdoptReport {
    /// The dataset.
    pub dataset: String,
    /// The new version; the current one if nothing was adopted.
    pub version: Option<Version>,
    /// Whether the shards stayed where they are.
    pub in_place: bool,
    /// Format of the shards.
    pub format: Option<OutputFormat>,
    /// Folder of the shards in the dataset, unless they stayed where they are.
    pub folder: Option<String>,
    /// Counts of the run; `bytes_out` are those of the adopted shards.
    #[serde(flatten)]
    pub counts: Counts,
    /// Files that were copied because they could not be linked.
    pub files_copied: u64,
    /// Files that the dataset contains already.
    pub files_unchanged: u64,
    /// Files that are not shards.
    #[serde(rename = "files_passed_over")]
    pub files_ignored: u64,
    /// Files that were skipped because they are damaged.
    pub files_skipped: u64,
    /// Whether records have explicit ids, from columns or keys.
    pub record_ids: bool,
    /// Records with an explicit id.
    pub records_with_id: u64,
    /// Records with a subject id.
    pub records_with_subject: u64,
    /// Time taken.
    pub seconds: f64,
    /// The skipped files.
    #[serde(skip)]
    pub skipped: Vec<SkippedFile>,
}

/// Adopts existing shards.
///
/// # Errors
/// When nothing is found, formats are mixed, a file is damaged, or the store fails; nothing is committed then.
pub fn adopt_shards(context: &Context<'_>, options: &AdoptOptions) -> Result<AdoptReport> {
    let started = Instant::now();
    let location = dataset_location(context, options)?;
    let dataset = context.open_dataset(&location)?;
    let snapshot = dataset.newest_snapshot()?;
    super::erase::finish_cut_short(context, snapshot.as_ref())?;
    let mut adoption = Adoption::new(context, options, &location, &dataset, snapshot.as_ref());
    let adopted = adoption.run();
    super::or_overtaken_since(&dataset, snapshot.as_ref(), adopted)?;
    let mut report = adoption.report;
    report.files_skipped = report.skipped.len() as u64;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

fn dataset_location(context: &Context<'_>, options: &AdoptOptions) -> Result<Location> {
    if let Some(out) = &options.out {
        return Ok(out.clone());
    }
    let location = context.parse_location(&options.source)?;
    if let Some(path) = location.local_path().filter(|path| !path.is_dir()) {
        let found = if path.exists() { "a file" } else { "nothing" };
        return Err(Error::usage(format!("expected a folder to become a dataset, found {found}"))
            .at_location(options.source.clone())
            .with_hint("name the folder that holds the shards, or a dataset to link them into with --out"));
    }
    Ok(location)
}

struct Adoption<'a> {
    context: &'a Context<'a>,
    options: &'a AdoptOptions,
    dataset: &'a Dataset,
    snapshot: Option<&'a Snapshot>,
    report: AdoptReport,
}

/// Parts of a transaction.
struct AdoptCommitParts {
    staged: Vec<Staged>,
    adds: Vec<NewShard>,
    segments: Vec<SegmentRef>,
    sources: Vec<SourceRow>,
    counts: Counts,
}

/// Format and compression of a file; `None` if it is not a shard.
type Detected = Option<(OutputFormat, Codec)>;

impl<'a> Adoption<'a> {
    fn new(
        context: &'a Context<'a>,
        options: &'a AdoptOptions,
        location: &Location,
        dataset: &'a Dataset,
        snapshot: Option<&'a Snapshot>,
    ) -> Self {
        let report = AdoptReport {
            dataset: location.to_string(),
            version: snapshot.map(Snapshot::version),
            in_place: options.out.is_none(),
            format: None,
            folder: None,
            counts: Counts::default(),
            files_copied: 0,
            files_unchanged: 0,
            files_ignored: 0,
            files_skipped: 0,
            record_ids: false,
            records_with_id: 0,
            records_with_subject: 0,
            seconds: 0.0,
            skipped: Vec::new(),
        };
        Self { context, options, dataset, snapshot, report }
    }

    /// Lists the files to be adopted, and detects their formats; none if all were adopted already.
    fn new_files(&mut self) -> Result<Vec<(SourceFile, Detected)>> {
        let files = self.find_files()?;
        let sorted = inputs::partition_sources(self.context, files, self.snapshot, Identity::Path, OnChanged::Fail)?;
        self.report.files_unchanged = sorted.unchanged;
        let detected = self.detect_formats(sorted.fresh)?;
        if self.report.files_unchanged > 0 {
            self.note_other_ids();
        }
        if detected.is_empty() {
            if self.report.files_unchanged > 0 || !self.report.skipped.is_empty() {
                return Ok(detected);
            }
            let others = self.report.files_ignored;
            let others = if others == 0 { String::new() } else { format!(", but {others} of other kinds") };
            return Err(Error::usage(format!("expected Parquet, tar or TFRecord files, found none{others}"))
                .at_location(self.options.source.clone())
                .with_hint(
                    "`shardify inspect` shows what is there; `shardify convert` makes shards from other files",
                ));
        }
        Ok(detected)
    }

    fn run(&mut self) -> Result<()> {
        let detected = self.new_files()?;
        if detected.is_empty() {
            return Ok(());
        }
        let format = self.one_format(&detected)?;
        self.report.format = Some(format);
        let mut settings = self.choose_settings(format, detected[0].1.map_or(Codec::None, |(_, codec)| codec))?;
        let transaction = TransactionId::fresh();
        let tag = transaction.short_tag().to_owned();
        let candidates = self.assign_paths(detected, &settings, &tag)?;
        let planned_on = self.snapshot.map_or(Version(0), Snapshot::version);
        let publication = Publication::begin(self.dataset, &transaction, Operation::Adopt, planned_on)?;
        let adopted = self.adopt_candidates(&candidates, &settings)?;
        check_named_features(&adopted)?;
        if adopted.is_empty() {
            return Ok(());
        }
        if self.options.out.is_some() {
            self.report.folder = Some(tag);
        }
        if format.is_columnar() && self.snapshot.is_none() {
            // Shards that are added or compacted later use the codec of the existing ones.
            settings.codec = adopted.first().map_or(settings.codec, |(_, first)| first.shard.meta.codec);
        }
        self.commit(adopted, settings, publication)
    }

    /// Keeps only the live shards of another dataset. In place, not even these can be adopted: the other dataset erases
    /// records from them and deletes them.
    fn without_other_datasets(&self, found: &mut ScanResult) -> Result<()> {
        let own = self.dataset.store().location();
        let tables = std::mem::take(&mut found.tables);
        for table in tables.iter().filter(|table| table.format == TableFormat::Dataset && table.root != *own) {
            let Some(other) = LiveDataset::open_at(self.context, &table.root)? else { continue };
            if self.options.out.is_some() {
                found.ignored += other.remove_stale_files(&mut found.files);
            } else if let Some(file) = found.files.iter().find(|file| other.contains_file(file)) {
                return Err(Error::usage("expected plain shards, found one of another dataset")
                    .at_location(file.uri())
                    .with_hint(
                        "name this dataset with --out, so that the file is linked; or leave it out with --exclude",
                    ));
            }
        }
        Ok(())
    }

    /// Lists the candidate files, in order.
    fn find_files(&mut self) -> Result<Vec<SourceFile>> {
        let options = ScanOptions {
            include: self.options.include.clone(),
            exclude: self.options.exclude.clone(),
            dataset: self.options.out.clone(),
            memory: self.context.memory,
            archives: Archives::None,
        };
        let source = [self.options.source.clone()];
        let mut found = scan::scan_sources(&source, &self.context.folder, &self.context.settings, &options)?;
        // The dataset's own system files are not reported to the user.
        let own_files = if self.options.out.is_none() { found.system_files } else { 0 };
        self.report.files_ignored = found.ignored - own_files;
        scan::refuse_foreign(&found.tables, &found.files)?;
        self.without_other_datasets(&mut found)?;
        let own: HashSet<&str> = match self.snapshot.filter(|_| self.options.out.is_none()) {
            Some(snapshot) => snapshot.run_table()?.as_slice().iter().map(|run| run.shard.as_str()).collect(),
            None => HashSet::new(),
        };
        let pseudonymizer = match self.snapshot {
            Some(snapshot) => Pseudonymizer::from_settings(&snapshot.entry().settings, self.context.id_key.as_ref())?,
            None => None,
        };
        let has_snapshot = self.snapshot.is_some() && self.options.out.is_none();
        let mut sources: HashSet<String> = HashSet::new();
        if let Some(snapshot) = self.snapshot {
            snapshot.each_source(&mut |source| {
                // A removed source was still adopted in place: its file is a shard of older versions.
                sources.insert(source.uri);
                Ok(())
            })?;
        }
        let is_own = |file: &SourceFile| {
            let uri = file.uri();
            let stored = pseudonymizer
                .as_ref()
                .map_or(Cow::Borrowed(uri.as_str()), |pseudonymizer| pseudonymizer.stored_uri(&uri));
            !sources.contains(stored.as_ref())
                && (own.contains(file.name()) || (has_snapshot && is_shard_name(file.name())))
        };
        let mut files = found.files;
        files.retain(|file| !is_own(file));
        let before = files.len();
        files.retain(|file| !is_reserved(file.name()));
        self.report.files_ignored += (before - files.len()) as u64;
        Ok(files)
    }

    /// Notes that adopted records keep the ids of their first adoption, if other id columns are named now.
    fn note_other_ids(&self) {
        let Some(old) = self.snapshot.map(|snapshot| &snapshot.entry().settings) else { return };
        let other_id = !self.options.id.is_empty() && self.options.id != old.id;
        if other_id || (self.options.subject.is_some() && self.options.subject != old.subject) {
            self.context.observer.event(Event::Note(
                "files that were adopted already keep their ids; --id and --subject apply only to new ones. To read \
                 their ids anew, adopt them into another dataset with --out"
                    .to_owned(),
            ));
        }
    }

    /// Detects the format of each file; files that are not shards are counted.
    fn detect_formats(&mut self, files: Vec<SourceFile>) -> Result<Vec<(SourceFile, Detected)>> {
        let detected: Vec<(SourceFile, Result<Detected>)> = files
            .into_par_iter()
            .map(|file| {
                let found = sniff_format(&file);
                (file, found)
            })
            .collect();
        let mut out = Vec::new();
        for (file, found) in detected {
            match found {
                Ok(None) if !is_named_like_a_shard(file.name()) => self.report.files_ignored += 1,
                Ok(None) => {
                    let found =
                        if file.bytes() == 0 { "found nothing, the file is empty" } else { "found something else" };
                    let message = format!("expected a Parquet, tar or TFRecord file, as the name says, {found}");
                    let error = Error::input(message).at_location(file.uri()).with_hint("leave it out with --exclude");
                    self.skip_damaged(&file.uri(), error)?;
                }
                Ok(found) => out.push((file, found)),
                Err(e) => self.skip_damaged(&file.uri(), file.store_fault().unwrap_or(e))?,
            }
        }
        Ok(out)
    }

    /// Skips a damaged file if that is allowed.
    fn skip_damaged(&mut self, file: &str, error: Error) -> Result<()> {
        if !matches!(error.kind(), Kind::Input | Kind::Integrity) {
            return Err(error);
        }
        if !self.options.skip_errors {
            // A column that is missing from one file is missing from the others too.
            let damaged = error.place().column.is_none();
            return Err(if damaged { error.with_hint("--on-error skip adopts the other files") } else { error });
        }
        let mut problem = error.message().to_owned();
        if let Some(byte) = error.place().byte {
            problem = format!("{problem}, at byte {byte}");
        }
        if let Some(cause) = std::error::Error::source(&error) {
            problem = format!("{problem}: {cause}");
        }
        self.report.skipped.push(SkippedFile { file: file.to_owned(), problem });
        Ok(())
    }

    fn one_format(&self, detected: &[(SourceFile, Detected)]) -> Result<OutputFormat> {
        let format = |(_, found): &(SourceFile, Detected)| found.map(|(format, _)| format);
        let first = format(&detected[0]).ok_or_else(|| Error::internal("a shard has no format"))?;
        if let Some(other) = detected.iter().find(|file| format(file) != Some(first)) {
            let name = format(other).map_or("another", OutputFormat::name);
            return Err(Error::usage(format!(
                "expected shards of one format, found both: `{}` is {first}, `{}` is {name}",
                detected[0].0.name(),
                other.0.name()
            ))
            .with_hint("choose with --include or --exclude; a dataset has one format"));
        }
        match self.snapshot.map(|s| s.entry().settings.shard_format) {
            Some(known) if known != first => {
                Err(Error::usage(format!("this dataset has {} shards; these are {}", known.title(), first.title()))
                    .at_location(detected[0].0.uri())
                    .with_hint("name another dataset with --out"))
            }
            _ => Ok(first),
        }
    }

    fn choose_settings(&self, format: OutputFormat, codec: Codec) -> Result<Settings> {
        let old = self.snapshot.map(|s| s.entry().settings.clone());
        if self.options.private.redact_sources && self.options.out.is_none() {
            return Err(Error::usage("expected --out beside --redact-source-paths, found none")
                .with_hint("shards that are adopted in place keep the names of their sources"));
        }
        let private = choose_private(old.as_ref(), self.options.private, self.context.id_key.as_ref())?;
        let hashes = HashWidth::for_dataset(old.as_ref().map(|o| o.hashes), self.options.proofs)
            .map_err(|error| error.at_location(self.dataset.store().location().to_string()))?;
        let mut settings = old.unwrap_or_else(|| Settings {
            shard_format: format,
            codec,
            target_shard: Size::from_mib(128),
            row_group: Size::from_mib(64),
            id: Vec::new(),
            subject: None,
            subjects_from: None,
            keys: KeyRule::FirstDot,
            labels: None,
            label_types: None,
            units: BTreeMap::new(),
            label_column: None,
            classes: None,
            indexes: Vec::new(),
            columns: Vec::new(),
            types: None,
            retyped: BTreeSet::new(),
            split: None,
            dedup: None,
            limit: None,
            shuffle: None,
            hash_records: false,
            hashes,
            private: None,
        });
        if format.has_keys() && (!self.options.id.is_empty() || self.options.subject.is_some()) {
            return Err(Error::usage("expected Parquet or TFRecord for --id and --subject, found tar")
                .with_hint("leave both out: the record id of a tar sample is its key, the path up to the first dot")
                .with_hint("`shardify convert` makes shards with subject ids from tables"));
        }
        if let Some(split) = &settings.split {
            return Err(Error::usage(format!("this dataset is split ({split}), which shards to adopt are not"))
                .with_hint(
                    "`shardify convert` reads these shards and divides their records; --out names another dataset",
                ));
        }
        if settings.subjects_from.is_some() && self.options.subject.is_none() {
            return Err(Error::usage(
                "this dataset takes subject ids from paths or a table, which shards to adopt do not have",
            )
            .with_hint("`shardify convert` takes subject ids from paths or a table; --out names another dataset"));
        }
        if !self.options.id.is_empty() {
            settings.id.clone_from(&self.options.id);
        }
        settings.subject = self.options.subject.clone().or(settings.subject);
        settings.hash_records |= self.options.hash_records;
        settings.private = private;
        Ok(settings)
    }

    /// Returns the source revisions of the files.
    fn source_revisions(&self, pseudonymizer: Option<&Pseudonymizer>) -> Vec<Revision> {
        revision::all_revisions(
            lineage::source_folder_or_file(self.context, &self.options.source).into_iter(),
            pseudonymizer,
        )
    }

    /// Assigns each file the path of its shard.
    fn assign_paths(
        &self,
        detected: Vec<(SourceFile, Detected)>,
        settings: &Settings,
        tag: &str,
    ) -> Result<Vec<AdoptCandidate>> {
        let format = settings.shard_format;
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let mut names: HashSet<String> = HashSet::new();
        let mut out = Vec::with_capacity(detected.len());
        for (file, found) in detected {
            let codec = found.map_or(Codec::None, |(_, codec)| codec);
            let (path, source_location) = if self.options.out.is_none() {
                (file.name().to_owned(), None)
            } else {
                let folders = file.name().rsplit_once('/').map_or("", |(folders, _)| folders).split('/');
                let partition: String = folders.filter(|f| f.contains('=')).map(|f| format!("/{f}")).collect();
                let number = numbers.entry(partition.clone()).or_default();
                *number += 1;
                let naming = ShardNaming {
                    tag: format!("{tag}{partition}"),
                    format,
                    codec,
                    indexes: Vec::new(),
                    fingerprints: false,
                };
                (naming.shard_path(*number - 1), Some(self.context.parse_location(&file.uri())?))
            };
            self.check_indexes(&file, codec, settings)?;
            // No other run may choose the same path, even if it adopts the same file.
            let sidecar = match &source_location {
                None => adopted_sidecar_path(tag, out.len()),
                Some(_) => sidecar_path(&path),
            };
            let name = if is_shard_name(&path) { sidecar_path(&path) } else { path.clone() };
            if !names.insert(name) {
                return Err(Error::usage(format!("expected shards with different names, found another `{path}`"))
                    .at_location(file.uri())
                    .with_hint("names that differ only in their ending collide here; use --out"));
            }
            out.push(AdoptCandidate { file, codec, path, sidecar, source_location });
        }
        Ok(out)
    }

    /// Returns an error if the dataset's indexes cannot describe a file.
    fn check_indexes(&self, file: &SourceFile, codec: Codec, settings: &Settings) -> Result<()> {
        let kinds = &settings.indexes;
        let unfit = match self.options.out {
            Some(_) => kinds.iter().find(|kind| !indexes::fits_shards(**kind, settings.shard_format, codec)),
            None => kinds.iter().find(|kind| indexes::index_for(**kind).about().needs_all_beside),
        };
        let Some(kind) = unfit else { return Ok(()) };
        let (problem, hint) = match self.options.out {
            Some(_) => (
                format!("expected shards that the index {kind} fits, found one with {codec}"),
                "a dataset without this index accepts it: name one with --out".to_owned(),
            ),
            None => (
                format!("expected --out for shards of a dataset with the index {kind}, found none"),
                "nothing is written beside files that stay in place; move them elsewhere and adopt them with --out"
                    .to_owned(),
            ),
        };
        Err(Error::usage(problem).at_location(file.uri()).with_hint(hint))
    }

    /// Returns the indexes to write beside each shard. Shards that stay in place get none: their paths are not unique
    /// to a run, so a killed run would leave files that cannot be told from the user's.
    fn indexes_beside<'s>(&self, settings: &'s Settings) -> &'s [IndexKind] {
        if self.options.out.is_some() { &settings.indexes } else { &[] }
    }

    /// Reads every file; results are in the order of the files.
    fn adopt_candidates(
        &mut self,
        candidates: &[AdoptCandidate],
        settings: &Settings,
    ) -> Result<Vec<(SourceFile, Adopted)>> {
        let context = self.context;
        let bytes = candidates.iter().map(|c| c.file.bytes()).sum();
        context.observer.event(Event::Phase { name: "adopting", bytes: Some(bytes) });
        let suppress = self.snapshot.map(SuppressList::from_snapshot).transpose()?.flatten();
        let adopter = Adopter {
            suppress: suppress.as_ref(),
            store: self.dataset.store(),
            format: settings.shard_format,
            id: &settings.id,
            subject: settings.subject.as_ref(),
            hash_records: settings.hash_records,
            max_record: Size(context.memory.0 / 8),
            indexes: self.indexes_beside(settings),
            pseudonymizer: Pseudonymizer::from_settings(settings, context.id_key.as_ref())?,
            observer: context.observer,
            cancel: &context.cancel,
        };
        let adopter = &adopter;
        let most = if adopter.format == OutputFormat::TfRecord { TFRECORD_FILES } else { usize::MAX };
        let jobs = context.jobs.min(most);
        let results: Vec<Result<Adopted>> = std::thread::scope(|scope| {
            let input = candidates.iter().map(Ok);
            let work = move |candidate: &AdoptCandidate| Ok(adopter.adopt_file(candidate));
            run_ordered(scope, input, jobs, jobs, &context.cancel, work).collect::<Result<Vec<Result<Adopted>>>>()
        })?;
        let mut out = Vec::with_capacity(results.len());
        for (candidate, result) in candidates.iter().zip(results) {
            match result {
                Ok(adopted) => out.push((candidate.file.clone(), adopted)),
                Err(e) => self.skip_damaged(&candidate.file.uri(), candidate.file.store_fault().unwrap_or(e))?,
            }
        }
        Ok(out)
    }

    fn commit(
        &mut self,
        adopted: Vec<(SourceFile, Adopted)>,
        settings: Settings,
        mut publication: Publication<'_>,
    ) -> Result<()> {
        let pseudonymizer = Pseudonymizer::from_settings(&settings, self.context.id_key.as_ref())?;
        let writer = publication.run_id().clone().into();
        let AdoptCommitParts { staged, mut adds, segments, sources, counts } =
            self.assemble_commit(adopted, &writer, &settings, pseudonymizer.as_ref())?;
        self.context.cancel.check()?;
        publication.publish_shards(adds.iter_mut(), staged)?;
        let indexes = version::PreparedIndexes::new(self.dataset, self.snapshot, &adds, &settings.indexes)?;
        let transaction = Transaction {
            arguments: self.log_arguments(&settings),
            revisions: self.source_revisions(pseudonymizer.as_ref()),
            counts,
            adds,
            segments,
            sources: &sources,
            numbers: Numbers::Fresh(counts.records_out),
            ..Transaction::new(publication.run_id().clone(), Operation::Adopt, settings)
        };
        let snapshot = publication.commit(&transaction)?;
        self.report.version = Some(snapshot.version());
        version::refresh_indexes(&snapshot, indexes, self.context.observer)
    }

    /// Collects the objects to be published, and the additions to the dataset; counts are added to the report.
    fn assemble_commit(
        &mut self,
        adopted: Vec<(SourceFile, Adopted)>,
        writer: &Writer,
        settings: &Settings,
        pseudonymizer: Option<&Pseudonymizer>,
    ) -> Result<AdoptCommitParts> {
        let plan = HashPlan::new(settings.hashes);
        let ids = |kind| SegmentWriter::new(Arc::clone(self.dataset.store()), kind, &plan, writer.clone());
        let mut segments = [ids(IdKind::Record), ids(IdKind::Subject)];
        let mut staged: Vec<Staged> = Vec::new();
        let mut adds: Vec<NewShard> = Vec::new();
        let mut sources: Vec<SourceRow> = Vec::new();
        let mut records = 0;
        let mut sums: Vec<Option<[u8; 16]>> = Vec::new();
        for (file, mut one) in adopted {
            for (writer, ids) in segments.iter_mut().zip([&one.record_ids, &one.subject_ids]) {
                ids.iter().try_for_each(|(hash, ordinal)| writer.push(*hash, records + ordinal))?;
            }
            self.count_adopted(&one);
            one.shard.meta.first_record = records;
            one.shard.runs.iter_mut().for_each(|run| run.0 += records);
            sources.push(source_row(&file, &one, records, pseudonymizer));
            records += one.shard.meta.records;
            staged.extend(one.staged);
            sums.push(one.md5);
            adds.push(one.shard);
        }
        let bytes = adds.iter().map(|s| s.meta.bytes).sum();
        let counts = Counts {
            records_in: records,
            records_out: records,
            bytes_in: bytes,
            bytes_out: bytes,
            shards_added: adds.len() as u64,
            ..Counts::default()
        };
        self.report.counts = counts;
        let segments = Segments::finish_all(segments)?;
        staged.extend(segments.staged);
        let shards = adds.iter().map(|shard| &shard.meta).zip(sums);
        staged.extend(indexes::of_folders(self.dataset.store().as_ref(), self.indexes_beside(settings), shards)?);
        Ok(AdoptCommitParts { staged, adds, segments: segments.refs, sources, counts })
    }

    fn count_adopted(&mut self, one: &Adopted) {
        let report = &mut self.report;
        report.records_with_id += one.record_ids.len() as u64;
        report.records_with_subject += one.subject_ids.len() as u64;
        report.record_ids = report.records_with_id > 0;
        report.files_copied += u64::from(one.copied);
    }

    fn log_arguments(&self, settings: &Settings) -> BTreeMap<String, String> {
        adopt_arguments(self.options.out.is_none(), settings)
    }
}

/// Returns the arguments as recorded in the log.
fn adopt_arguments(in_place: bool, settings: &Settings) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let how = if in_place { "in place" } else { "linked" };
    out.insert("adopted".to_owned(), how.to_owned());
    if !settings.id.is_empty() {
        out.insert("id".to_owned(), settings.id.join(","));
    }
    if let Some(subject) = &settings.subject {
        out.insert("subject".to_owned(), subject.clone());
    }
    out
}

/// Returns an error if a named feature is absent from all files. It may be absent from single records, and from all
/// records of one file.
fn check_named_features(adopted: &[(SourceFile, Adopted)]) -> Result<()> {
    let Some((file, first)) = adopted.iter().find(|(_, one)| one.shard.meta.records > 0) else { return Ok(()) };
    let absent =
        |column: &&String| adopted.iter().all(|(_, one)| one.shard.meta.records == 0 || one.absent.contains(column));
    match first.absent.iter().find(absent) {
        None => Ok(()),
        Some(column) => Err(Error::input("expected a feature for ids, found none with this name in any record")
            .at_location(file.uri())
            .in_column(column.clone())
            .with_hint(format!("the first record has {}", first.columns.join(", ")))),
    }
}

fn source_row(
    file: &SourceFile,
    adopted: &Adopted,
    first_record: u64,
    pseudonymizer: Option<&Pseudonymizer>,
) -> SourceRow {
    SourceRow {
        uri: pseudonymizer
            .map_or_else(|| file.uri(), |pseudonymizer| pseudonymizer.stored_uri(&file.uri()).into_owned()),
        name: pseudonymizer.map_or_else(
            || file.name().to_owned(),
            |pseudonymizer| pseudonymizer.stored_source(file.name()).into_owned(),
        ),
        bytes: file.bytes(),
        modified: file.modified(),
        etag: file.etag().map(str::to_owned),
        hash: pseudonymizer
            .map_or(adopted.source_hash, |pseudonymizer| pseudonymizer.content_hash(adopted.source_hash)),
        records: adopted.shard.meta.records,
        first_record,
        other_firsts: Vec::new(),
        arrays: None,
        part_hash: None,
        version: Version(0),
        removed: None,
    }
}

/// Returns whether a name is reserved: Spark, Hive and Arrow keep auxiliary files and folders whose names begin with an
/// underscore.
fn is_reserved(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with('_'))
}

/// Returns whether a name looks like a shard: `a.tar.gz`, `part-0.snappy.parquet`, `train.tfrecord-00000-of-00010`.
fn is_named_like_a_shard(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let mut endings = OutputFormat::ALL.iter().flat_map(|format| format.facts().endings);
    endings.any(|ending| file.ends_with(ending)) || file.contains(".tfrecord-")
}

/// Detects a file's format and compression from its content.
pub(super) fn sniff_format(file: &SourceFile) -> Result<Detected> {
    let head = file.read_head(HEAD_BYTES)?;
    let packed = if head.packed { file.object().get_range(0..file.bytes().min(16))? } else { Bytes::new() };
    let codec = match decompress::detect_compression(&packed) {
        None => Codec::None,
        Some(Compression::Gzip) => "gzip".parse()?,
        Some(Compression::Zstd) => "zstd".parse()?,
        Some(Compression::Lz4) => Codec::Lz4,
        Some(Compression::Snappy) => Codec::Snappy,
        Some(Compression::Bzip2 | Compression::Xz) => return Ok(None),
    };
    if head.bytes.is_empty() && !head.packed && is_named_like_a_shard(file.name()) && file.name().contains(".tfrecord")
    {
        // An empty file is a TFRecord file without records.
        return Ok(Some((OutputFormat::TfRecord, codec)));
    }
    let claims = |format: &OutputFormat| (format.facts().claims)(&head.bytes);
    // Columns have their codec within the file.
    let Some(format) =
        OutputFormat::ALL.into_iter().find(claims).filter(|format| codec == Codec::None || !format.is_columnar())
    else {
        return Ok(None);
    };
    format.check_codec(codec).map_err(|e| e.at_location(file.uri()))?;
    Ok(Some((format, codec)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_ought_to_be_a_shard() {
        for shard in [
            "a/b.tar",
            "a.tar.old.tar",
            "x.TGZ",
            "p.snappy.parquet",
            "train.tfrecord-00000-of-00010",
            "y=1/a.tfrecords",
        ] {
            assert!(is_named_like_a_shard(shard), "{shard}");
        }
        for other in ["a.tar.idx", "notes.txt", "a.tar/x", "tfrecord.py", "a.parquet.crc"] {
            assert!(!is_named_like_a_shard(other), "{other}");
        }
        assert!(is_reserved("_SUCCESS") && is_reserved("a/_temporary/0/x.parquet") && !is_reserved("a/b_c"));
    }
}
