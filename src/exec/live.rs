//! Indexes that describe all live shards of a dataset: `shardindex.json` of wids, `.nv-meta/` of Megatron-Energon, the
//! Delta log ([`mirror`]) and the dataset card of Hugging Face ([`card`]).
//!
//! They are the only objects of a dataset that are ever replaced (of the Delta log, `_last_checkpoint`), so they are
//! written after the commit, from the committed snapshot. Each is replaced atomically, and the one that states their
//! version is written last. If a run is interrupted in between, old indexes remain, which name shards that still exist;
//! the next `convert` or `compact` rewrites them, and `verify` reports that they are outdated. They are built only from
//! the shards' footers and the files beside each shard.

use std::{collections::HashMap, fmt::Write as _};

use rusqlite::Connection;

use super::{
    card,
    index::{WIDS_LIST, wids_path},
    mirror::{self, Footers},
};
use crate::{
    dataset::{Dataset, NewShard, ShardMeta, Snapshot, get_sealed, read_parts},
    error::{Effect, Error, Result},
    events::{Event, Observer},
    format::{
        index::IndexKind,
        tar::index::{WidsList, WidsShard},
    },
    record::side::side_of_path,
    storage::{self, Staged, Store},
};

/// Folder of Megatron-Energon in a dataset.
pub const ENERGON_FOLDER: &str = ".nv-meta";

/// Maximum attempts to rewrite the indexes when other runs commit in the meantime.
const ATTEMPTS: usize = 10;

const TABLES: &str = "
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE samples (
        tar_file_id INTEGER NOT NULL,
        sample_key TEXT NOT NULL UNIQUE,
        sample_index INTEGER NOT NULL,
        byte_offset INTEGER,
        byte_size INTEGER
    );
    CREATE TABLE sample_parts (
        tar_file_id INTEGER,
        sample_index INTEGER,
        part_name TEXT,
        content_byte_offset INTEGER,
        content_byte_size INTEGER
    );";

const INDEXES: &str = "
    CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index);
    CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset);
    CREATE INDEX idx_sample_parts_full
        ON sample_parts(tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size);";

/// A crude dataset: samples are passed on unchanged, and the training code interprets their parts.
const DATASET_YAML: &str = "__module__: megatron.energon\n__class__: CrudeWebdataset\nsubflavors: {}\n";

/// What is prepared before the commit, so that what an index cannot hold is detected in time.
#[derive(Debug, Default)]
pub struct Prepared {
    database: Option<Database>,
    footers: Footers,
}

impl Prepared {
    /// Prepares the indexes of a snapshot and additional shards, which are published already.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if two samples have the same key, the Delta log has a column with
    /// another type, or the card cannot name a split; [`Kind::Usage`](crate::error::Kind::Usage) if another program's
    /// log, or a card of the user's, is where a new dataset would have its own; also fails if the store fails.
    pub fn new(dataset: &Dataset, snapshot: Option<&Snapshot>, adds: &[NewShard], kinds: &[IndexKind]) -> Result<Self> {
        check(dataset, snapshot, kinds)?;
        let live = snapshot.map(Snapshot::shards).transpose()?.unwrap_or_default();
        let shards: Vec<&ShardMeta> = live.iter().chain(adds.iter().map(|shard| &shard.meta)).collect();
        let database = Database::create(dataset.store().as_ref(), kinds, &shards)?;
        card::prepare(dataset, snapshot, &shards, kinds)?;
        Ok(Self { database, footers: mirror::prepare(dataset, snapshot, adds, kinds)? })
    }
}

/// Checks that a new dataset would replace no file of somebody else by its indexes, before any work is done.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) that names the file; if the store fails.
pub fn check(dataset: &Dataset, snapshot: Option<&Snapshot>, kinds: &[IndexKind]) -> Result<()> {
    card::check(dataset, snapshot, kinds)?;
    if snapshot.is_some() {
        return Ok(());
    }
    let store = dataset.store();
    let energon = REPLACED_BY_ENERGON.map(|name| format!("{ENERGON_FOLDER}/{name}"));
    let replaced =
        (kinds.contains(&IndexKind::Wids).then(|| WIDS_LIST.to_owned()).into_iter().map(|path| (path, "wids")))
            .chain(energon.into_iter().filter(|_| kinds.contains(&IndexKind::Energon)).map(|path| (path, "energon")));
    for (path, kind) in replaced {
        // Another run may have made the dataset meanwhile.
        if store.head(&path)?.is_some() && dataset.latest()?.is_none() {
            return Err(Error::usage(format!("expected no {path}, which the index {kind} would replace, found one"))
                .at(store.location().join(&path).to_string())
                .hint(format!("move it away, name another dataset with --out, or leave {kind} out of --index")));
        }
    }
    Ok(())
}

/// Files of Megatron-Energon that each version replaces.
const REPLACED_BY_ENERGON: [&str; 4] = ["index.sqlite", "split.yaml", ".info.json", "index.uuid"];

/// A database of samples.
#[derive(Debug)]
struct Database {
    shards: Vec<String>,
    staged: Staged,
}

impl Database {
    /// Builds the database of these shards if `kinds` require one.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if two samples have the same key; also fails if the store fails.
    fn create(store: &dyn Store, kinds: &[IndexKind], shards: &[&ShardMeta]) -> Result<Option<Self>> {
        if !kinds.contains(&IndexKind::Energon) {
            return Ok(None);
        }
        let scratch = storage::scratch_path(store.location())?;
        fill(store, scratch.path(), shards)?;
        let mut sink = store.create(&format!("{ENERGON_FOLDER}/index.sqlite"))?;
        scratch.copy_to(&mut sink)?;
        let staged = sink.finish()?;
        Ok(Some(Self { shards: shards.iter().map(|shard| shard.path.clone()).collect(), staged }))
    }
}

/// Updates the indexes of all live shards to the newest version, unless they are up to date.
///
/// # Errors
/// Fails if an index beside a shard is missing or damaged, or the store fails. The commit remains valid.
pub fn refresh(snapshot: &Snapshot, mut prepared: Prepared, observer: &dyn Observer) -> Result<()> {
    if snapshot.entry().settings.indexes.is_empty() {
        return Ok(());
    }
    let mut newer: Option<Snapshot> = None;
    for _ in 0..ATTEMPTS {
        let current = newer.as_ref().unwrap_or(snapshot);
        let written = write(current, prepared.database.take(), &prepared.footers);
        let latest = current.dataset().open()?;
        if latest.version() == current.version() {
            let notes = written.map_err(|e| e.with_effect(Effect::Certain))?;
            notes.into_iter().for_each(|note| observer.event(Event::Note(note)));
            return Ok(());
        }
        // Objects of an older version may be vacuumed by now, so the newer version decides.
        newer = Some(latest);
    }
    Ok(())
}

/// Returns the indexes of all live shards that differ from the snapshot: their paths, and what is wrong and what to do.
///
/// # Errors
/// Fails if the store fails.
pub fn stale(snapshot: &Snapshot) -> Result<Vec<(String, String)>> {
    let replaced = |(object, what)| (object, format!("{what}; `shardify compact` or `convert` rewrites it"));
    let mut out: Vec<(String, String)> = replaced_indexes(snapshot)?.into_iter().map(replaced).collect();
    out.extend(card::difference(snapshot)?.map(|difference| (card::CARD.to_owned(), difference.to_string())));
    let differences = mirror::differences(snapshot)?;
    out.extend(differences.into_iter().map(|found| (found.object, format!("{}; {}", found.what, found.remedy))));
    Ok(out)
}

/// Returns the indexes that are replaced with each version and differ from the snapshot.
fn replaced_indexes(snapshot: &Snapshot) -> Result<Vec<(String, &'static str)>> {
    let kinds = &snapshot.entry().settings.indexes;
    let store = snapshot.dataset().store().as_ref();
    let mut out = Vec::new();
    let mut compare = |path: String, expected: Vec<u8>| -> Result<()> {
        match store.get(&path)? {
            None => out.push((path, "expected an index of the live shards, found none")),
            Some(found) if found != expected => out.push((path, "the index belongs to another version")),
            Some(_) => {}
        }
        Ok(())
    };
    if kinds.contains(&IndexKind::Wids) {
        compare(WIDS_LIST.to_owned(), wids(snapshot)?)?;
    }
    if kinds.contains(&IndexKind::Energon) {
        let shards = snapshot.shards()?;
        for (name, text) in [(".info.json", info(shards)), ("split.yaml", split(shards)), ("index.uuid", uuid(shards))]
        {
            compare(format!("{ENERGON_FOLDER}/{name}"), text.into_bytes())?;
        }
        let database = format!("{ENERGON_FOLDER}/index.sqlite");
        if store.head(&database)?.is_none() {
            out.push((database, "expected an index of the live shards, found none"));
        }
    }
    Ok(out)
}

/// Writes all indexes; returns what users must be told about those that belong to others.
fn write(snapshot: &Snapshot, database: Option<Database>, footers: &Footers) -> Result<Vec<String>> {
    replace(snapshot, database)?;
    let note = card::refresh(snapshot)?;
    Ok(note.into_iter().chain(mirror::catch_up(snapshot, footers)?).collect())
}

/// Writes the indexes that are replaced with each version.
fn replace(snapshot: &Snapshot, database: Option<Database>) -> Result<()> {
    let kinds = &snapshot.entry().settings.indexes;
    if replaced_indexes(snapshot)?.is_empty() {
        return Ok(());
    }
    let store = snapshot.dataset().store().as_ref();
    if kinds.contains(&IndexKind::Wids) {
        store.put(WIDS_LIST, wids(snapshot)?.into())?;
    }
    let shards = snapshot.shards()?;
    let paths: Vec<String> = shards.iter().map(|shard| shard.path.clone()).collect();
    let database = match database.filter(|database| database.shards == paths) {
        Some(database) => Some(database),
        None => Database::create(store, kinds, &shards.iter().collect::<Vec<_>>())?,
    };
    let Some(database) = database else { return Ok(()) };
    store.replace(vec![database.staged])?;
    let place = |name: &str| format!("{ENERGON_FOLDER}/{name}");
    store.put(&place("split.yaml"), split(shards).into())?;
    store.put(&place(".info.json"), info(shards).into())?;
    // Only users can describe what the parts mean, so an existing description is kept.
    store.put_if_absent(&place("dataset.yaml"), DATASET_YAML.into())?;
    store.put(&place("index.uuid"), uuid(shards).into())
}

/// Builds the list of all live shards from the lists of their folders.
fn wids(snapshot: &Snapshot) -> Result<Vec<u8>> {
    let store = snapshot.dataset().store().as_ref();
    let mut lists: HashMap<String, WidsList> = HashMap::new();
    let mut live = Vec::new();
    for shard in snapshot.shards()? {
        let path = wids_path(&shard.path);
        if !lists.contains_key(&path) {
            let place = store.location().join(&path).to_string();
            let bytes = get_sealed(store, &shard.beside_at(&path)?)?;
            lists.insert(path.clone(), WidsList::decode(&bytes).map_err(|e| e.at(place))?);
        }
        let name = shard.path.rsplit('/').next().unwrap_or_default();
        let listed = lists.get(&path).and_then(|list| list.shardlist.iter().find(|s| s.url == name));
        let listed = listed.filter(|s| s.filesize == shard.bytes && s.nsamples == shard.records).ok_or_else(|| {
            Error::integrity(format!(
                "expected the shard `{name}` in the wids list, found no entry with its size and records"
            ))
            .at(path.clone())
        })?;
        live.push(WidsShard { url: shard.path.clone(), ..listed.clone() });
    }
    WidsList::new(live).encode()
}

/// Encodes `.info.json`: shards and their counts; a shard's number is its position.
fn info(shards: &[ShardMeta]) -> String {
    let mut out = "{\n  \"shard_counts\": {".to_owned();
    for (i, shard) in shards.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        // Writing to memory cannot fail.
        let _ = write!(out, "{comma}\n    {}: {}", serde_json::Value::from(shard.path.as_str()), shard.records);
    }
    out.push_str(if shards.is_empty() { "}\n}\n" } else { "\n  }\n}\n" });
    out
}

/// Encodes `split.yaml`: the shards of each side; all are for training if the dataset is not divided. Users keep other
/// splits in a file of another name.
fn split(shards: &[ShardMeta]) -> String {
    let mut sides: Vec<(&str, String)> = ["train", "val", "test"].map(|side| (side, String::new())).to_vec();
    for shard in shards {
        let side = side_of_path(&shard.path).unwrap_or("train");
        let path = format!("\n  - {}", serde_json::Value::from(shard.path.as_str()));
        match sides.iter_mut().find(|(name, _)| *name == side) {
            Some((_, paths)) => paths.push_str(&path),
            None => sides.push((side, path)),
        }
    }
    let mut out = "split_parts:\n".to_owned();
    for (name, paths) in sides {
        // Writing to memory cannot fail.
        let _ = writeln!(out, "  {name}:{}", if paths.is_empty() { " []" } else { &paths });
    }
    out.push_str("exclude: []\n");
    out
}

/// Encodes `index.uuid`: an identifier of the content, in the form of a UUID (version 8: custom).
fn uuid(shards: &[ShardMeta]) -> String {
    let mut hasher = blake3::Hasher::new();
    for shard in shards {
        hasher.update(&(shard.path.len() as u64).to_le_bytes());
        hasher.update(shard.path.as_bytes());
        hasher.update(&shard.checksum);
    }
    let hex = hasher.finalize().to_hex();
    format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[12..15], &hex[15..18], &hex[18..30])
}

fn fill(store: &dyn Store, path: &std::path::Path, shards: &[&ShardMeta]) -> Result<()> {
    let failed = |e: rusqlite::Error| unwritable(path, e);
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.execute_batch(TABLES).map_err(failed)?;
    let transaction = connection.transaction().map_err(failed)?;
    for (shard, id) in shards.iter().zip(0_i64..) {
        insert(store, &transaction, path, shard, id)?;
    }
    transaction.execute_batch(INDEXES).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    connection.close().map_err(|(_, e)| failed(e))
}

/// Returns the error for a database that cannot be written.
fn unwritable(path: &std::path::Path, cause: rusqlite::Error) -> Error {
    let full = cause.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
    let error = Error::storage("writing the database of samples failed").at(path.display().to_string()).cause(cause);
    if full { error.hint("free some space on that file system") } else { error }
}

/// Inserts the samples of a shard and their parts.
fn insert(store: &dyn Store, connection: &Connection, path: &std::path::Path, meta: &ShardMeta, id: i64) -> Result<()> {
    let shard = meta.path.as_str();
    let failed = |e: rusqlite::Error| unwritable(path, e);
    let starts = starts(store, meta)?;
    let number = |n: u64| i64::try_from(n).map_err(|_| Error::integrity("an offset is out of range").at(shard));
    let mut samples = connection.prepare("INSERT INTO samples VALUES (?, ?, ?, ?, ?)").map_err(failed)?;
    let mut parts = connection.prepare("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)").map_err(failed)?;
    let mut record = None;
    for part in read_parts(store, &meta.parts()?)? {
        let name = part.name.rfind('/').map_or(0, |slash| slash + 1);
        let dot = part.name[name..].find('.').map_or(part.name.len(), |dot| name + dot);
        let (key, extension) = (&part.name[..dot], part.name.get(dot + 1..).unwrap_or_default());
        if record != Some(part.record) {
            record = Some(part.record);
            let extent = usize::try_from(part.record).ok().and_then(|i| starts.get(i..i + 2)).ok_or_else(|| {
                Error::integrity(format!("expected more than {} samples in the index", part.record)).at(shard)
            })?;
            let row = (id, key, number(part.record)?, number(extent[0])?, number(extent[1] - extent[0])?);
            samples.execute(row).map_err(|e| match e.sqlite_error_code() {
                Some(rusqlite::ErrorCode::ConstraintViolation) => twice(key).at(shard),
                _ => failed(e),
            })?;
        }
        let row = (id, number(part.record)?, extension, number(part.offset)?, number(part.size)?);
        parts.execute(row).map_err(failed)?;
    }
    Ok(())
}

fn twice(key: &str) -> Error {
    Error::input(format!("expected every sample of the dataset to have its own key, found `{key}` twice"))
        .hint("Megatron-Energon rejects such datasets; choose a unique --id, or omit energon from --index")
}

/// Reads the offsets of samples, and the end of the last one, from the index beside the shard.
fn starts(store: &dyn Store, shard: &ShardMeta) -> Result<Vec<u64>> {
    let path = IndexKind::Energon.beside(&shard.path).unwrap_or_default();
    let bytes = get_sealed(store, &shard.beside_at(&path)?)?;
    let starts: Vec<u64> =
        bytes.chunks_exact(8).filter_map(|chunk| Some(u64::from_le_bytes(*chunk.first_chunk()?))).collect();
    if bytes.len() % 8 != 0 || !starts.is_sorted() {
        return Err(Error::integrity("expected ascending offsets of 8 bytes each, found others").at(path));
    }
    Ok(starts)
}
