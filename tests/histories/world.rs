//! A small environment for tests of a dataset's history: sources of equal names and sizes, the user's own files, a
//! store with or without locks, and a model of the records of each version.
//!
//! ```text
//! WORLD/in/<n>/export.csv     sources: all have the same name and, if they have as many rows, the same size
//! WORLD/given/<n>/part.*      shards of another program, to be linked
//! WORLD/ds/                   the dataset, or memory:///ds
//! WORLD/ds/mine/part-<n>.*    shards of another program in the folder of the dataset
//! ```
//!
//! The model is a list of versions, each a multiset of records. It is advanced by the entries of the log: an entry
//! names the command that made it, the command determines the effect on the records, and nothing else may have
//! happened.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::{Cursor, Read},
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use arrow::array::{Array, AsArray};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use shardify::{
    codec::Codec,
    dataset::{Arrangement, Entry, Hit, Order, ShardMeta, Snapshot, find_each, read_sidecar},
    error::{Error, Kind},
    events::{Cancel, Silent},
    format::OutputFormat,
    id::Version,
    ops::{
        Context, adopt, compact,
        convert::{ConvertOptions, SplitChoice, convert_sources},
        erase::{EraseId, EraseOptions, erase_records},
        export, manifest, prove,
        tag::{remove_tag, tag_version},
        undo::{RemoveOptions, remove_sources, revert_dataset},
        vacuum::{VacuumOptions, vacuum_dataset},
        verify::verify_dataset,
    },
    scan::InputFormat,
    storage::{LocalStore, Location, RemoteStore, Store, StoreSettings},
    units::Size,
};

use super::gate::{Gate, Gated};

/// Location of the dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    /// A local folder, with locks, links and renames.
    Local,
    /// A store without locks.
    Lockless,
}

/// A record as readers of the shards see it: id, subject, and value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) who: String,
    pub(crate) value: String,
}

/// A multiset of records.
pub(crate) type Records = BTreeMap<Record, usize>;

/// A command on the dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Converts the file of this number.
    Convert(usize),
    /// Converts the same bytes from standard input.
    ConvertStdin(usize),
    /// Links or copies the shards of this number.
    AdoptLinked(usize),
    /// Adopts the shards in the dataset's folder.
    AdoptInPlace,
    Compact,
    Sort,
    ZOrder,
    /// Erases all records of one subject.
    Erase {
        who: String,
        all: bool,
    },
    Vacuum,
    /// Removes the records of the file of this number.
    Remove(usize),
    /// Reverts to a version, counted back from the newest.
    Revert {
        back: u64,
    },
    /// Tags a version, counted back from the newest.
    Tag {
        name: String,
        back: u64,
    },
    Untag(String),
    /// Reads the newest version in every way: verifies it, exports it, looks up an id, computes its root.
    Read,
}

impl Command {
    /// Returns the operation that its entry names.
    fn operation(&self) -> &'static str {
        match self {
            Self::Convert(_) | Self::ConvertStdin(_) => "convert",
            Self::AdoptLinked(_) | Self::AdoptInPlace => "adopt",
            Self::Compact | Self::Sort | Self::ZOrder => "compact",
            Self::Erase { .. } => "erase",
            Self::Vacuum => "vacuum",
            Self::Remove(_) => "remove",
            Self::Revert { .. } => "revert",
            Self::Tag { .. } => "tag",
            Self::Untag(_) => "untag",
            Self::Read => "none (read-only)",
        }
    }

    fn changes_records(&self) -> bool {
        matches!(self.operation(), "convert" | "adopt" | "erase" | "remove" | "revert")
    }
}

/// Outcome of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) command: Command,
    /// The version that it reports, or its error.
    pub(crate) result: Result<Option<Version>, Error>,
    /// Whether it was ended from outside.
    pub(crate) killed: bool,
}

/// Reads the newest version of a dataset, if there is one; any inconsistency is an error.
fn read_all(context: &Context<'_>, ds: &Location) -> shardify::error::Result<Version> {
    if context.open_dataset(ds)?.newest_snapshot()?.is_none() {
        return Ok(Version(0));
    }
    let verified = verify_dataset(context, ds, None, true)?;
    if let Some(problem) = verified.problems.first() {
        return Err(Error::integrity(format!("`verify` found {problem:?}")));
    }
    let snapshot = manifest::open_snapshot(context, ds, None)?;
    let mut ids = Vec::new();
    let exported = export::visit_records(&snapshot, &context.cancel, &mut |rows| {
        ids.extend(rows.iter().map(|row| row.record_id.clone()));
        Ok(())
    });
    let exported = exported?;
    if exported != snapshot.entry().totals.records {
        return Err(Error::integrity(format!("{exported} of {} were exported", snapshot.entry().totals.records)));
    }
    let at = snapshot.version().to_string();
    if let Some(id) = ids.into_iter().next() {
        let wanted = manifest::LookupIds { ids: vec![id.clone()], ..manifest::LookupIds::default() };
        let report = manifest::find_wanted(context, ds, Some(&at), &wanted, &mut |_| Ok(()))?;
        // Records that were erased from all versions in the meantime cannot be found.
        if report.hits == 0 && !snapshot.has_lost_data()? {
            return Err(Error::integrity(format!("`{id}` was exported, and was not found")));
        }
    }
    prove::version_root(context, ds, None)?;
    Ok(snapshot.version())
}

impl Ended {
    /// Returns whether it succeeded, was ended, or failed because of a concurrent command.
    pub(crate) fn is_clean(&self) -> bool {
        match &self.result {
            Ok(_) => true,
            // The version or tag that it names may be gone by the time it runs.
            Err(e) => {
                self.killed
                    || e.kind() == Kind::Conflict
                    || (e.kind() == Kind::Usage
                        && matches!(
                            self.command,
                            Command::Tag { .. } | Command::Untag(_) | Command::Read | Command::Revert { .. }
                        ))
            }
        }
    }
}

/// Expected content of each version.
#[derive(Debug, Clone, Default)]
struct Model {
    versions: Vec<Records>,
    /// Erased subjects, which must not be imported again.
    erased: BTreeSet<String>,
    tags: BTreeMap<String, Version>,
    /// Whether an erasure in all versions was ended, and no command has finished its work since.
    cut_short: bool,
}

/// Slots of standard input of the sequences, of which each that runs at a time has one; pairs of commands have the
/// others.
///
/// Tests run at once in one process: two with the same slot would give each other's records to their commands.
pub(crate) const SEQUENCE_PIPES: Range<usize> = 4..6;

/// Contents of standard input, by slot.
static PIPED: Mutex<BTreeMap<usize, Vec<u8>>> = Mutex::new(BTreeMap::new());

fn piped<const SLOT: usize>() -> Box<dyn Read + Send> {
    Box::new(Cursor::new(PIPED.lock().unwrap().get(&SLOT).cloned().unwrap_or_default()))
}

const PIPES: [fn() -> Box<dyn Read + Send>; SEQUENCE_PIPES.end] =
    [piped::<0>, piped::<1>, piped::<2>, piped::<3>, piped::<4>, piped::<5>];

/// A dataset, its environment, and its expected content.
pub(crate) struct World {
    folder: tempfile::TempDir,
    /// Folder of the world from which this one was copied: the sources of its history are there.
    home: PathBuf,
    ground: Ground,
    pub(crate) format: OutputFormat,
    memory: Arc<RemoteStore>,
    model: Model,
    /// The user's own files, which no command may change.
    canaries: BTreeMap<PathBuf, Vec<u8>>,
    /// Records of shards that can be adopted in place.
    in_place: Records,
    rows: usize,
    /// Slot of standard input, which no other test may use.
    pipe: usize,
    target: u64,
    /// Whether subjects are divided for training and evaluation.
    divided: bool,
    /// Whether duplicates are omitted.
    unique: bool,
    /// Ids are looked up in the newest version, and in one of so many others, from the given one on.
    lookups: (u64, u64),
}

/// Threads of a run that is paused: more than it pauses at a time, one for each version that it reads.
const OWN_THREADS: usize = 16;

/// One in so many older versions is searched for ids where cases are many.
const LOOKUP_STEP: u64 = 4;

/// Numbers of the sources that come from standard input.
const PIPED_SOURCES: Range<usize> = 10..16;

fn own_names() -> bool {
    std::env::var("SHARDIFY_OWN_NAMES").as_deref() != Ok("no")
}

fn odd_names() -> bool {
    std::env::var("SHARDIFY_ODD_NAMES").as_deref() != Ok("no")
}

/// Creates a folder in memory if possible, where files are fast and syncs are free.
fn fast_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::Builder::new().prefix("world-").tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.unwrap()
}

/// Returns the records of a source. All sources with as many rows have the same size.
pub(crate) fn records_of(source: usize, rows: usize) -> Vec<Record> {
    let record = |row: usize| {
        let id = format!("s{source:03}r{row:02}");
        let value = format!("x{}", &blake3::hash(id.as_bytes()).to_hex()[..10]);
        // One subject of its own, and subjects that sources share.
        let who = if row == 0 { format!("Q{source:02}") } else { format!("P{:02}", row % 4) };
        Record { id, who, value }
    };
    (0..rows).map(record).collect()
}

/// Returns the records of a foreign shard. Samples of tar have no subjects.
fn adopted_of(format: OutputFormat, source: usize, rows: usize) -> Vec<Record> {
    let mut records = records_of(source, rows);
    if format == OutputFormat::Tar {
        records.iter_mut().for_each(|record| record.who = "nobody".to_owned());
    }
    records
}

fn csv_of(records: Vec<Record>) -> Vec<u8> {
    let mut text = "rid,who,v\n".to_owned();
    for Record { id, who, value } in records {
        text.push_str(&format!("{id},{who},{value}\n"));
    }
    text.into_bytes()
}

fn multiset(records: impl IntoIterator<Item = Record>) -> Records {
    let mut out = Records::new();
    for record in records {
        *out.entry(record).or_default() += 1;
    }
    out
}

impl World {
    /// Creates an empty world. Shards end at `target` bytes; sources have `rows` rows.
    pub(crate) fn new(ground: Ground, format: OutputFormat, target: u64, rows: usize, pipe: usize) -> Self {
        let folder = fast_folder();
        let memory = Arc::new(RemoteStore::in_memory().unwrap());
        let mut world = Self {
            home: folder.path().to_owned(),
            folder,
            ground,
            format,
            memory,
            model: Model::default(),
            canaries: BTreeMap::new(),
            in_place: Records::new(),
            rows,
            pipe,
            target,
            divided: false,
            unique: false,
            lookups: (0, 1),
        };
        world.plant("notes.txt", b"mine");
        world.plant("ds/notes.txt", b"mine too");
        world.plant("ds/000099.tar", b"not a shard of yours");
        world.plant("ds/.hidden/file", b"hidden");
        if own_names() {
            let shard = match format {
                OutputFormat::TfRecord => b"of another dataset".to_vec(),
                _ => foreign_shard(format, &adopted_of(format, 99, rows)),
            };
            world.plant(&format!("ds/0123456789abcdef/000000.{}", world.extension()), &shard);
        }
        if ground == Ground::Local && odd_names() {
            let ds = world.folder.path().join("ds");
            let odd = ds.join(std::ffi::OsStr::from_bytes(b"caf\xe9.txt"));
            std::fs::write(&odd, b"odd").unwrap();
            world.canaries.insert(PathBuf::from("ds").join(odd.file_name().unwrap()), b"odd".to_vec());
            std::os::unix::fs::symlink("../notes.txt", ds.join("link.txt")).unwrap();
            world.canaries.insert("ds/link.txt".into(), b"mine".to_vec());
        }
        world
    }

    /// Divides the subjects of the dataset, which must be empty.
    pub(crate) fn divide(&mut self) {
        self.divided = true;
    }

    /// Omits duplicates of the dataset, which must be empty.
    pub(crate) fn make_unique(&mut self) {
        self.unique = true;
    }

    /// Looks up ids in fewer of the older versions, as cases that are many do: others look in the rest.
    pub(crate) fn look_up_less(&mut self, case: usize) {
        self.lookups = (case as u64 % LOOKUP_STEP, LOOKUP_STEP);
    }

    /// Returns the records of a source. Where duplicates are omitted, standard input repeats itself, and the next one.
    fn content(&self, source: usize) -> Vec<Record> {
        let mut records = records_of(source, self.rows);
        if self.unique && PIPED_SOURCES.contains(&source) {
            let next = if PIPED_SOURCES.contains(&(source + 1)) { source + 1 } else { PIPED_SOURCES.start };
            records.extend(records_of(next, self.rows));
            records.extend(records.clone());
        }
        records
    }

    fn split(&self) -> Option<SplitChoice> {
        let choice = || SplitChoice { shares: "train=0.5,val=0.25,test=0.25".parse().unwrap(), by: None, seed: 0 };
        self.divided.then(choice)
    }

    /// Copies the world, to be used for another case.
    pub(crate) fn copied(&self) -> Self {
        let folder = fast_folder();
        copy_tree(self.folder.path(), folder.path());
        let memory = Arc::new(RemoteStore::in_memory().unwrap());
        let (from, to): (&dyn Store, &dyn Store) = (self.memory.as_ref(), memory.as_ref());
        for facts in from.list_folder("").unwrap() {
            to.put(&facts.path, from.get(&facts.path).unwrap().unwrap()).unwrap();
        }
        Self {
            folder,
            home: self.home.clone(),
            memory,
            model: self.model.clone(),
            canaries: self.canaries.clone(),
            in_place: self.in_place.clone(),
            ..*self
        }
    }

    pub(crate) fn dataset(&self) -> Location {
        self.location("ds")
    }

    fn location(&self, path: &str) -> Location {
        match self.ground {
            Ground::Local => Location::from_local_path(&self.folder.path().join(path)).unwrap(),
            Ground::Lockless => Location::parse(&format!("memory:///{path}"), Path::new("/")).unwrap(),
        }
    }

    fn of_memory(&self) -> &dyn Store {
        self.memory.as_ref()
    }

    /// Writes one of the user's own files, in the dataset's folder or beside it.
    fn write(&self, path: &str, bytes: &[u8]) {
        match self.ground {
            Ground::Local => {
                let path = self.folder.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
            Ground::Lockless => self.of_memory().put(path, bytes.to_vec().into()).unwrap(),
        }
    }

    fn read(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        match self.ground {
            Ground::Local => std::fs::read(self.folder.path().join(path)).ok(),
            Ground::Lockless => {
                self.of_memory().get(path.as_ref().to_str().unwrap()).unwrap().map(|bytes| bytes.to_vec())
            }
        }
    }

    /// Writes one of the user's own files and remembers its content.
    pub(crate) fn plant(&mut self, path: &str, bytes: &[u8]) {
        self.write(path, bytes);
        self.canaries.insert(path.into(), bytes.to_vec());
    }

    /// Writes the user's own files next to shards: files that are only named like shards, and whole shards of another
    /// dataset.
    pub(crate) fn plant_beside_shards(&mut self) {
        let folders: BTreeSet<String> = self
            .snapshot()
            .map(|snapshot| {
                snapshot
                    .live_shards()
                    .unwrap()
                    .iter()
                    .filter_map(|s| Some(s.path.rsplit_once('/')?.0.to_owned()))
                    .collect()
            })
            .unwrap_or_default();
        for folder in folders.into_iter().filter(|folder| !folder.starts_with("mine")) {
            self.plant(&format!("ds/{folder}/notes.txt"), b"about these");
            if own_names() {
                self.plant(&format!("ds/{folder}/000099.{}", self.extension()), b"named as yours");
            }
        }
    }

    fn extension(&self) -> &'static str {
        match self.format {
            OutputFormat::Parquet => "parquet",
            OutputFormat::Tar => "tar",
            OutputFormat::TfRecord => "tfrecord",
        }
    }

    /// Writes foreign shards into the folder of the dataset.
    pub(crate) fn give_in_place(&mut self, number: usize) {
        let records = adopted_of(self.format, number, self.rows);
        let path = format!("ds/mine/part-{number:03}.{}", self.extension());
        self.write(&path, &foreign_shard(self.format, &records));
        for record in records {
            *self.in_place.entry(record).or_default() += 1;
        }
    }

    /// Returns settings that open stores behind a gate, if there is one.
    fn settings(&self, gate: Option<Arc<Gate>>) -> StoreSettings {
        let memory = Arc::clone(&self.memory);
        StoreSettings::default().with_opener(Arc::new(move |location: &Location| {
            let inner: Arc<dyn Store> = match location.local_path() {
                Some(path) => Arc::new(LocalStore::new(path.to_owned())),
                None => Arc::new(memory.rooted_at(location)?),
            };
            Ok(match &gate {
                Some(gate) => Arc::new(Gated { inner, gate: Arc::clone(gate) }),
                None => inner,
            })
        }))
    }

    fn context(&self, gate: Option<Arc<Gate>>) -> Context<'static> {
        Context {
            folder: self.folder.path().to_owned(),
            settings: self.settings(gate),
            stdin: PIPES[self.pipe],
            jobs: 1,
            memory: Size::from_mib(64),
            id_key: None,
            observer: &Silent,
            cancel: Cancel::default(),
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.context(None).open_dataset(&self.dataset()).unwrap().newest_snapshot().unwrap()
    }

    /// Prepares the inputs of a command. Must be called once before the command runs, from one thread.
    pub(crate) fn prepare(&self, command: &Command) {
        match command {
            Command::Convert(n) => {
                let path = format!("in/{n}/export.csv");
                if self.read(&path).is_none() {
                    self.write(&path, &csv_of(self.content(*n)));
                }
            }
            Command::ConvertStdin(n) => {
                PIPED.lock().unwrap().insert(self.pipe, csv_of(self.content(*n)));
            }
            Command::AdoptLinked(n) => {
                let path = format!("given/{n}/part.{}", self.extension());
                if self.read(&path).is_none() {
                    self.write(&path, &foreign_shard(self.format, &adopted_of(self.format, *n, self.rows)));
                }
            }
            _ => {}
        }
    }

    /// Runs a command, behind a gate if there is one.
    pub(crate) fn run(&self, command: &Command, gate: Option<&Arc<Gate>>) -> Ended {
        let context = self.context(gate.cloned());
        let attempt = || self.attempt(&context, command);
        // A paused run would keep threads of the global pool from the run that it waits for.
        let result = match gate {
            Some(gate) if gate.pauses() => {
                rayon::ThreadPoolBuilder::new().num_threads(OWN_THREADS).build().unwrap().install(attempt)
            }
            _ => attempt(),
        };
        if let Some(gate) = gate {
            gate.mark_finished();
        }
        Ended { command: command.clone(), result, killed: gate.is_some_and(|gate| gate.ended()) }
    }

    fn attempt(&self, context: &Context<'_>, command: &Command) -> shardify::error::Result<Option<Version>> {
        let ds = self.dataset();
        Ok(match command {
            Command::Convert(_) | Command::ConvertStdin(_) => {
                let source = match command {
                    Command::Convert(n) => self.location(&format!("in/{n}/export.csv")).to_string(),
                    _ => "-".to_owned(),
                };
                let options = ConvertOptions {
                    sources: vec![source],
                    from: Some(InputFormat::CSV),
                    to: Some(self.format),
                    codec: (!self.format.is_columnar()).then_some(Codec::None),
                    target_shard: Some(Size(self.target)),
                    id: vec!["rid".into()],
                    subject: Some("who".into()),
                    index: Some(Vec::new()),
                    split: self.split(),
                    dedup: self.unique.then(|| "content".parse().unwrap()),
                    proofs: self.has_proofs(),
                    ..ConvertOptions::default()
                };
                // A run with nothing to do reports the newest version, which another command made.
                let report = convert_sources(context, &ds, &options)?;
                report.version.filter(|_| report.sources > 0)
            }
            Command::AdoptLinked(n) => {
                let source = self.location(&format!("given/{n}")).to_string();
                let options = adopt::AdoptOptions { source, out: Some(ds), ..self.adopting() };
                let report = adopt::adopt_shards(context, &options)?;
                report.version.filter(|_| report.counts.shards_added > 0)
            }
            Command::AdoptInPlace => {
                let include = vec!["mine/*".to_owned()];
                let options = adopt::AdoptOptions { source: ds.to_string(), include, ..self.adopting() };
                let report = adopt::adopt_shards(context, &options)?;
                report.version.filter(|_| report.counts.shards_added > 0)
            }
            Command::Compact | Command::Sort | Command::ZOrder => {
                let order = |by, columns: &[&str]| {
                    Some(Order { by, columns: columns.iter().map(|c| (*c).to_owned()).collect() })
                };
                let order = match command {
                    _ if !self.format.is_columnar() => None,
                    Command::Sort => order(Arrangement::Sort, &["v"]),
                    Command::ZOrder => order(Arrangement::ZOrder, &["v", "who"]),
                    _ => None,
                };
                let options = compact::Options {
                    target_shard: Some(Size::from_mib(1)),
                    min_inputs: Some(2),
                    order,
                    ..compact::Options::default()
                };
                Some(compact::compact_dataset(context, &ds, &options)?.version)
            }
            Command::Erase { who, all } => {
                let options = EraseOptions {
                    ids: vec![EraseId::with_any_kind(who)],
                    all_versions: *all,
                    ..EraseOptions::default()
                };
                let report = erase_records(context, &ds, &options)?;
                Some(report.version).filter(|_| report.records_erased > 0)
            }
            Command::Vacuum => {
                let options = VacuumOptions { retain: Some(Duration::ZERO), force: true, dry_run: false };
                Some(vacuum_dataset(context, &ds, &options)?.version)
            }
            Command::Remove(n) => {
                let path = format!("in/{n}/export.csv");
                let mut sources = vec![self.location(&path).to_string()];
                if self.ground == Ground::Local && self.home != self.folder.path() {
                    sources.push(self.home.join(&path).display().to_string());
                }
                let options = RemoveOptions { sources, ..RemoveOptions::default() };
                let report = remove_sources(context, &ds, &options)?;
                Some(report.version).filter(|_| report.sources > 0)
            }
            Command::Revert { back } => {
                let newest = context.open_dataset(&ds)?.open_newest()?.version();
                let version = Version(newest.0.saturating_sub(*back).max(1));
                let report = revert_dataset(context, &ds, &version.to_string(), false)?;
                Some(report.version)
            }
            Command::Tag { name, back } => {
                let newest = context.open_dataset(&ds)?.open_newest()?.version();
                let version = Version(newest.0.saturating_sub(*back).max(1));
                tag_version(context, &ds, name, Some(&version.to_string()))?;
                Some(version)
            }
            Command::Untag(name) => Some(remove_tag(context, &ds, name)?.version),
            Command::Read => Some(read_all(context, &ds)?),
        })
    }

    /// Whether its datasets have proofs: the index is the same for all formats, so those of one of them do.
    fn has_proofs(&self) -> bool {
        self.format == OutputFormat::TfRecord
    }

    fn adopting(&self) -> adopt::AdoptOptions {
        // In tar, the keys are the ids.
        let columns = self.format != OutputFormat::Tar;
        adopt::AdoptOptions {
            id: if columns { vec!["rid".to_owned()] } else { Vec::new() },
            subject: columns.then(|| "who".to_owned()),
            proofs: self.has_proofs(),
            ..adopt::AdoptOptions::default()
        }
    }

    /// Returns the records after a command.
    fn effect(&self, command: &Command, before: &Records) -> Records {
        let mut after = before.clone();
        let mut add = |records: &Records| {
            for (record, times) in records.iter().filter(|(record, _)| !self.model.erased.contains(&record.who)) {
                *after.entry(record.clone()).or_default() += times;
            }
        };
        match command {
            Command::Convert(n) | Command::ConvertStdin(n) if self.unique => {
                for record in self.content(*n).into_iter().filter(|record| !self.model.erased.contains(&record.who)) {
                    after.entry(record).or_insert(1);
                }
            }
            Command::Convert(n) | Command::ConvertStdin(n) => add(&multiset(self.content(*n))),
            Command::AdoptLinked(n) => add(&multiset(adopted_of(self.format, *n, self.rows))),
            Command::AdoptInPlace => {
                let missing: Records = self
                    .in_place
                    .iter()
                    .filter(|(record, _)| !before.contains_key(record))
                    .map(|(r, n)| (r.clone(), *n))
                    .collect();
                add(&missing);
            }
            Command::Erase { who, .. } => after.retain(|record, _| record.who != *who),
            Command::Remove(n) => {
                let gone = multiset(records_of(*n, self.rows));
                after.retain(|record, _| !gone.contains_key(record));
            }
            _ => {}
        }
        after
    }

    /// Advances the model by the new entries of the log, which the given commands must have made, and checks
    /// everything.
    pub(crate) fn settle(&mut self, ended: &[&Ended]) -> Result<(), String> {
        for one in ended {
            if !one.is_clean() && !self.is_refused(one, ended) {
                let error = one.result.as_ref().err().map(describe).unwrap_or_default();
                return Err(format!("{:?} ended neither well nor with a conflict: {error}", one.command));
            }
        }
        for one in ended {
            match one.command {
                Command::Erase { all: true, .. } if one.killed => self.model.cut_short = true,
                Command::Erase { .. } | Command::Vacuum if one.result.is_ok() => self.model.cut_short = false,
                _ => {}
            }
        }
        let Some(snapshot) = self.snapshot() else {
            return match ended.iter().any(|one| one.result.is_ok() && one.command != Command::Read) {
                true => Err("a command said that it was done, and there is no version".to_owned()),
                false => Ok(()),
            };
        };
        let mut left: Vec<&Ended> = ended.iter().copied().filter(|one| one.command.changes_records()).collect();
        let known = self.model.versions.len() as u64;
        let newest = snapshot.version();
        for version in known + 1..=newest.0 {
            let entry = self.entry(Version(version))?;
            let before = self.model.versions.last().cloned().unwrap_or_default();
            let mut after = before.clone();
            if ["convert", "adopt", "erase", "remove", "revert"].contains(&entry.operation.name()) {
                let at = run_of(&left, &entry).ok_or_else(|| {
                    format!("v{version} was made by `{}`, and nobody says so: {ended:?}", entry.operation)
                })?;
                let mine = left.remove(at);
                after = self.effect(&mine.command, &before);
                if let Command::Revert { .. } = &mine.command {
                    after = self.then(&entry)?;
                }
                self.forget(&mine.command);
                if let Command::Erase { who, .. } = &mine.command {
                    after.retain(|record, _| record.who != *who);
                }
            }
            self.model.versions.push(after);
            self.name(&entry, ended)?;
        }
        for one in ended {
            if let (Command::Tag { name, .. }, Ok(version)) = (&one.command, &one.result)
                && self.model.tags.get(name) != version.as_ref()
                && !ended.iter().any(|other| matches!(other.command, Command::Untag(_)))
            {
                return Err(format!("{:?} says that it is done: {:?}", one.command, self.model.tags));
            }
        }
        let seen = self.model.versions[usize::try_from(known.saturating_sub(1)).unwrap_or(0)..].to_vec();
        for one in left.iter().filter(|one| one.result.is_ok()) {
            // A command that reports no work must be right: at some time since it began, there was nothing to do.
            if !seen.iter().any(|then| self.effect(&one.command, then) == *then || self.is_known(&one.command, then)) {
                return Err(format!("{:?} says that it is done, and nothing was committed", one.command));
            }
        }
        self.check(&snapshot)
    }

    /// Returns the content of the version that an entry reverts to, without subjects that were erased since.
    fn then(&self, entry: &Entry) -> Result<Records, String> {
        let to = entry.arguments.get("to").and_then(|to| to.trim_start_matches('v').parse::<usize>().ok());
        let then = to.and_then(|to| self.model.versions.get(to - 1)).ok_or("a revert to no version")?;
        let stays = |(record, _): &(&Record, &usize)| !self.model.erased.contains(&record.who);
        Ok(then.iter().filter(stays).map(|(record, times)| (record.clone(), *times)).collect())
    }

    /// Applies a tag entry to the model; one of the commands must have requested it.
    fn name(&mut self, entry: &Entry, ended: &[&Ended]) -> Result<(), String> {
        let argument = |name: &str| entry.arguments.get(name).cloned().unwrap_or_default();
        let asked = |one: &&Ended| match &one.command {
            Command::Tag { name, .. } => entry.operation.name() == "tag" && argument("tag") == *name,
            Command::Untag(name) => entry.operation.name() == "untag" && argument("tag") == *name,
            _ => false,
        };
        match entry.operation.name() {
            "tag" | "untag" if !ended.iter().copied().any(|one| asked(&one)) => {
                return Err(format!("v{} was made by nobody: {} {}", entry.version, entry.operation, argument("tag")));
            }
            "tag" => {
                let version =
                    argument("version").trim_start_matches('v').parse().map_err(|_| "a tag without a version")?;
                self.model.tags.insert(argument("tag"), Version(version));
            }
            "untag" => {
                self.model.tags.remove(&argument("tag"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the records that a command adds are already present.
    fn is_known(&self, command: &Command, last: &Records) -> bool {
        let records = match command {
            Command::Convert(n) | Command::ConvertStdin(n) => self.content(*n),
            Command::AdoptLinked(n) => adopted_of(self.format, *n, self.rows),
            _ => return false,
        };
        let expected = |record: &&Record| !self.model.erased.contains(&record.who);
        records.iter().filter(expected).all(|record| last.contains_key(record))
    }

    /// Returns whether a failure is expected because of an erasure: an adoption takes whole shards or fails.
    fn is_refused(&self, ended: &Ended, others: &[&Ended]) -> bool {
        if ended.command == Command::Read {
            // Files that an erasure has yet to delete are reported as such, whether it runs or was ended.
            let erases = |other: &Ended| matches!(other.command, Command::Erase { all: true, .. });
            let told = |error: &Error| describe(error).contains("holds records that were erased");
            let may_tell = self.model.cut_short || others.iter().any(|other| erases(other));
            return may_tell && ended.result.as_ref().is_err_and(told);
        }
        let records = match &ended.command {
            Command::AdoptLinked(n) => adopted_of(self.format, *n, self.rows),
            Command::AdoptInPlace => self.in_place.keys().cloned().collect(),
            _ => return false,
        };
        let kind = ended.result.as_ref().err().map(Error::kind);
        let last = self.model.versions.last().cloned().unwrap_or_default();
        if kind == Some(Kind::Usage) && ended.command == Command::AdoptInPlace {
            // Nothing can be adopted.
            return self.effect(&ended.command, &last) == last;
        }
        let input = kind == Some(Kind::Input);
        let meanwhile = |who: &String| {
            others.iter().any(|other| matches!(&other.command, Command::Erase { who: one, .. } if one == who))
        };
        input && records.iter().any(|record| self.model.erased.contains(&record.who) || meanwhile(&record.who))
    }

    /// Applies an erasure to the model.
    fn forget(&mut self, command: &Command) {
        let Command::Erase { who, all } = command else { return };
        self.model.erased.insert(who.clone());
        if *all {
            self.model.versions.iter_mut().for_each(|records| records.retain(|record, _| record.who != *who));
        }
    }

    fn entry(&self, version: Version) -> Result<Entry, String> {
        let dataset = self.context(None).open_dataset(&self.dataset()).map_err(|e| describe(&e))?;
        let mut found = dataset.entries_up_to(version).map_err(|e| format!("the log: {}", describe(&e)))?;
        found.pop().ok_or_else(|| format!("v{version} has no entry"))
    }

    /// Checks that every readable and tagged version has its records, in the shards and by their ids, and that the
    /// user's own files are unchanged.
    fn check(&self, newest: &Snapshot) -> Result<(), String> {
        let dataset = newest.dataset();
        for (name, version) in &self.model.tags {
            if newest.tags().get(name) != Some(version) || !newest.can_read(*version) {
                return Err(format!("the tag `{name}` was given to {version}: {:?}", newest.tags()));
            }
        }
        let mut read: HashMap<String, Vec<Record>> = HashMap::new();
        for (number, expected) in (1..).zip(&self.model.versions) {
            let version = Version(number);
            if !newest.can_read(version) {
                continue;
            }
            let at = |e: Error| format!("{version} of {}: {}", newest.version(), describe(&e));
            let snapshot = dataset.open_version(version).map_err(at)?;
            let mut found = Records::new();
            for shard in snapshot.live_shards().map_err(at)? {
                if !read.contains_key(&shard.path) {
                    let records = self
                        .shard(dataset.store().as_ref(), shard)
                        .map_err(|e| format!("{version} of {}, shard {}: {e}", newest.version(), shard.path))?;
                    read.insert(shard.path.clone(), records);
                }
                for record in &read[&shard.path] {
                    *found.entry(record.clone()).or_default() += 1;
                }
            }
            if found != *expected {
                return Err(format!("{version} of {}: {}", newest.version(), difference(expected, &found)));
            }
            let (first, step) = self.lookups;
            if version == newest.version() || number % step == first {
                self.find_some(&snapshot, expected).map_err(|e| format!("{version} of {}: {e}", newest.version()))?;
            }
        }
        self.check_canaries()
    }

    /// Checks for some ids that lookups find exactly their live records.
    fn find_some(&self, snapshot: &Snapshot, expected: &Records) -> Result<(), String> {
        let ever: BTreeSet<&String> = self.model.versions.iter().flat_map(|v| v.keys().map(|r| &r.id)).collect();
        // Check a few ids, different ones in each version.
        let step = ever.len() / 3 + 1;
        let first = usize::try_from(snapshot.version().0).unwrap() % step;
        let ids: Vec<&String> = ever.into_iter().skip(first).step_by(step).collect();
        let (mut live, mut hits) = (vec![0; ids.len()], vec![0; ids.len()]);
        let mut count = |number: usize, hit: Hit| {
            hits[number] += 1;
            live[number] += usize::from(hit.is_live() && hit.record_id == *ids[number]);
            Ok(())
        };
        find_each(snapshot, &ids, &mut count).map_err(|e| format!("find {ids:?}: {}", describe(&e)))?;
        for (number, id) in ids.iter().enumerate() {
            let times: usize = expected.iter().filter(|(record, _)| record.id == **id).map(|(_, times)| times).sum();
            if live[number] != times {
                return Err(format!(
                    "find {id}: expected {times} live hits, found {} of {}",
                    live[number], hits[number]
                ));
            }
        }
        Ok(())
    }

    fn shard(&self, store: &dyn Store, shard: &ShardMeta) -> Result<Vec<Record>, String> {
        let bytes = store.get(&shard.path).map_err(|e| describe(&e))?.ok_or("it is gone")?;
        match self.format {
            OutputFormat::Parquet => parquet_records(bytes),
            OutputFormat::Tar => tar_records(&bytes),
            OutputFormat::TfRecord => sidecar_records(store, shard),
        }
    }

    /// Checks that the user's own files are unchanged.
    fn check_canaries(&self) -> Result<(), String> {
        for (path, bytes) in &self.canaries {
            if self.read(path).as_ref() != Some(bytes) {
                return Err(format!("a file of the user's has changed or is gone: {}", path.display()));
            }
        }
        Ok(())
    }

    /// Vacuums, verifies every readable version byte by byte, and checks that a second vacuum finds nothing to do.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        // Remove the leases of ended erasures, which would expire after two minutes.
        if let Some(newest) = self.snapshot() {
            let store = newest.dataset().store();
            for lease in store.list_folder("_shardify/leases").map_err(|e| describe(&e))? {
                store.delete(&lease.path).map_err(|e| describe(&e))?;
            }
        }
        // Each vacuum makes a version, and the next one may delete objects that only the previous version needed.
        for _ in 0..3 {
            let ended = self.run(&Command::Vacuum, None);
            if ended.result.is_err() && self.snapshot().is_none() {
                break;
            }
            self.settle(&[&ended])?;
        }
        let Some(newest) = self.snapshot() else { return Ok(()) };
        for number in 1..=newest.version().0 {
            if !newest.can_read(Version(number)) {
                continue;
            }
            let at = format!("v{number}");
            let report = verify_dataset(&self.context(None), &self.dataset(), Some(&at), true)
                .map_err(|e| format!("verify {at}: {}", describe(&e)))?;
            if !report.problems.is_empty() {
                return Err(format!("verify {at}: {:?}", report.problems));
            }
        }
        let options = VacuumOptions { retain: Some(Duration::ZERO), force: true, dry_run: true };
        let report = vacuum_dataset(&self.context(None), &self.dataset(), &options).map_err(|e| describe(&e))?;
        if report.objects_deleted + report.objects_young + report.objects_in_use > 0 {
            return Err(format!("a vacuum left something behind: {:?}", report.deleted));
        }
        Ok(())
    }
}

/// Returns the run that made an entry: the one that reports the version, else one that was ended before its report.
fn run_of(runs: &[&Ended], entry: &Entry) -> Option<usize> {
    let same = |one: &Ended| one.command.operation() == entry.operation.name();
    let reports = |one: &Ended| matches!(&one.result, Ok(Some(version)) if *version == entry.version);
    let silent = |one: &Ended| one.result.is_err() && one.killed;
    runs.iter()
        .position(|one| same(one) && reports(one))
        .or_else(|| runs.iter().position(|one| same(one) && silent(one)))
}

/// Formats an error with its causes.
pub(crate) fn describe(error: &Error) -> String {
    let mut text = format!("[{:?}] {error}", error.kind());
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn difference(expected: &Records, found: &Records) -> String {
    let more = |a: &Records, b: &Records| -> Vec<String> {
        a.iter().filter(|(r, n)| b.get(r).copied().unwrap_or(0) < **n).map(|(r, _)| r.id.clone()).collect()
    };
    format!("lost {:?}, doubled or invented {:?}", more(expected, found), more(found, expected))
}

fn copy_tree(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_tree(&entry.path(), &target);
        } else if entry.file_type().unwrap().is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(entry.path()).unwrap(), target).unwrap();
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn parquet_records(bytes: bytes::Bytes) -> Result<Vec<Record>, String> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|b| b.build()).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    for batch in reader {
        let batch = batch.map_err(|e| e.to_string())?;
        let column = |name: &str| -> Result<Vec<String>, String> {
            let column = batch.column_by_name(name).ok_or_else(|| format!("no column {name}"))?;
            let column = arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8).map_err(|e| e.to_string())?;
            let texts = column.as_string::<i32>();
            Ok((0..texts.len()).map(|i| texts.value(i).to_owned()).collect())
        };
        let (ids, who, values) = (column("rid")?, column("who")?, column("v")?);
        out.extend(ids.into_iter().zip(who).zip(values).map(|((id, who), value)| Record { id, who, value }));
    }
    Ok(out)
}

fn record_of(value: &serde_json::Value) -> Record {
    let text = |name: &str| value[name].as_str().unwrap_or("?").to_owned();
    Record { id: text("rid"), who: text("who"), value: text("v") }
}

fn tar_records(bytes: &[u8]) -> Result<Vec<Record>, String> {
    let mut archive = tar::Archive::new(bytes);
    let mut out = Vec::new();
    for entry in archive.entries().map_err(|e| e.to_string())? {
        let mut text = String::new();
        entry.and_then(|mut e| e.read_to_string(&mut text)).map_err(|e| e.to_string())?;
        out.push(record_of(&serde_json::from_str(&text).map_err(|e| e.to_string())?));
    }
    Ok(out)
}

/// Reads the records of formats without another reader here from the sidecars; the values follow from the ids.
fn sidecar_records(store: &dyn Store, shard: &ShardMeta) -> Result<Vec<Record>, String> {
    let mut out = Vec::new();
    for batch in read_sidecar(store, &shard.sidecar()).map_err(|e| describe(&e))? {
        let column = |i: usize| batch.column(i).as_string::<i32>().clone();
        let (ids, who) = (column(0), column(1));
        for row in 0..batch.num_rows() {
            let value = format!("x{}", &blake3::hash(ids.value(row).as_bytes()).to_hex()[..10]);
            out.push(Record { id: ids.value(row).to_owned(), who: who.value(row).to_owned(), value });
        }
    }
    Ok(out)
}

/// Encodes a shard as other programs do.
fn foreign_shard(format: OutputFormat, records: &[Record]) -> Vec<u8> {
    use arrow::{
        array::StringArray,
        datatypes::{DataType, Field, Schema},
        record_batch::RecordBatch,
    };
    match format {
        OutputFormat::Parquet => {
            let column =
                |of: fn(&Record) -> &String| Arc::new(records.iter().map(|r| Some(of(r))).collect::<StringArray>());
            let field = |name: &str| Field::new(name, DataType::Utf8, true);
            let schema = Arc::new(Schema::new(vec![field("rid"), field("who"), field("v")]));
            let columns: Vec<arrow::array::ArrayRef> =
                vec![column(|r| &r.id), column(|r| &r.who), column(|r| &r.value)];
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
            let mut out = Vec::new();
            let mut writer = parquet::arrow::ArrowWriter::try_new(&mut out, schema, None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            out
        }
        OutputFormat::Tar => {
            let mut out = Vec::new();
            for record in records {
                let json = serde_json::json!({"rid": record.id, "who": record.who, "v": record.value}).to_string();
                let mut header = tar::Header::new_ustar();
                header.set_path(format!("{}.json", record.id)).unwrap();
                header.set_size(json.len() as u64);
                header.set_mode(0o644);
                header.set_entry_type(tar::EntryType::Regular);
                header.set_cksum();
                // GNU tar writes six digits.
                let sum = format!("{:06o}\0 ", header.cksum().unwrap());
                header.as_mut_bytes()[148..156].copy_from_slice(sum.as_bytes());
                out.extend_from_slice(header.as_bytes());
                out.extend_from_slice(json.as_bytes());
                out.resize(out.len().next_multiple_of(512), 0);
            }
            out.resize(out.len() + 1024, 0);
            out
        }
        OutputFormat::TfRecord => unreachable!("no TFRecord of other programs here"),
    }
}
