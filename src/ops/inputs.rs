//! Which of the found sources are new to a dataset, and which have changed since they were converted.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    num::NonZeroU64,
    sync::Arc,
};

use arrow::datatypes::Fields;
use bytes::Bytes;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::Context;
use crate::{
    dataset::{
        CameFrom, IdQuery, Pseudonymizer, ReplacedSources, Snapshot, SourceRow, check_folders, find_orphaned,
        is_beside_shards, is_shard_name, pseudonymizer_of,
    },
    error::{Error, Kind, Result},
    events::Event,
    exec::{constants::ConstantSets, types},
    format::{files::TreeFile as _, index::IndexKind},
    id::Version,
    record::{
        clutter::is_sign,
        split::Splits,
        stream_tag::{StreamHash, StreamTag},
    },
    scan::{SourceFile, content_hash},
    schema::bound,
    storage::{Location, Store},
};

/// What to do with a source that changed since it was converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnChanged {
    /// Stop with an error that names it.
    #[default]
    Fail,
    /// Convert it again; the records of its old content stay.
    Append,
    /// Convert it again, and remove the records of its old content in the same version.
    Replace,
    /// Skip it.
    Skip,
}

/// What identifies a source that was converted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// Its path or URL.
    #[default]
    Path,
    /// The path or URL, or else the content: a file that was moved, or sent again under another name, is recognised.
    Content,
}

/// Sources by their state in the dataset.
#[derive(Debug, Default)]
pub struct Partition {
    /// Sources to be converted.
    pub fresh: Vec<SourceFile>,
    /// Number of sources that have not changed since they were converted.
    pub unchanged: u64,
    /// Number of sources that have changed and are skipped.
    pub changed: u64,
    /// Number of sources that are known under another name, and are skipped.
    pub moved: u64,
    /// Stored URIs of the sources to be converted whose old records are to be removed.
    pub replaced: HashSet<String>,
}

/// Partitions sources by their state in the dataset. The dataset may know many more than were found, so its list is
/// streamed and only its rows about found sources are kept.
///
/// # Errors
/// When a source changed and `on_changed` is `Fail`, a source cannot be read, or names are private and there is no key.
pub fn partition_sources(
    context: &Context<'_>,
    found: Vec<SourceFile>,
    snapshot: Option<&Snapshot>,
    identity: Identity,
    on_changed: OnChanged,
) -> Result<Partition> {
    let Some(snapshot) = snapshot else {
        return Ok(Partition { fresh: found, ..Partition::default() });
    };
    let pseudonymizer = Pseudonymizer::from_settings(&snapshot.entry().settings, context.id_key.as_ref())?;
    let known = look_up_files(&found, snapshot, pseudonymizer.as_ref())?;
    let states: Vec<SourceState> = found
        .par_iter()
        .zip(&known)
        .map(|(file, (known, _))| match known {
            KnownFile::No => Ok(SourceState::New),
            KnownFile::Same(_) => Ok(SourceState::Same),
            KnownFile::Changed(_) => Ok(SourceState::Changed),
            // Its content was never hashed, and is not read now.
            KnownFile::Touched(_, None) => Ok(SourceState::Changed),
            // Copied or touched: only the content decides.
            KnownFile::Touched(_, Some(hash)) => Ok(if stored_hash(file, pseudonymizer.as_ref())? == hash.get() {
                SourceState::Same
            } else {
                SourceState::Changed
            }),
        })
        .collect::<Result<_>>()?;
    let mut partition = Partition::default();
    let mut states = states;
    if identity == Identity::Content {
        find_moved(context, &found, snapshot, pseudonymizer.as_ref(), &mut states)?;
    }
    if on_changed == OnChanged::Replace {
        propagate_state(&found, &known, &mut states, SourceState::Changed);
    }
    partition.replaced =
        with_orphans(context, snapshot, pseudonymizer.as_ref(), &found, &known, &mut states, on_changed)?;
    tell_orphaned(context, &found, &states);
    for ((file, state), known) in found.into_iter().zip(states).zip(known) {
        match (state, on_changed) {
            (SourceState::New | SourceState::Orphaned, _)
            | (SourceState::Changed, OnChanged::Append | OnChanged::Replace) => {
                partition.fresh.push(file);
            }
            (SourceState::Same, _) => partition.unchanged += 1,
            (SourceState::Moved, _) => partition.moved += 1,
            (SourceState::Changed, OnChanged::Skip) => partition.changed += 1,
            (SourceState::Changed, OnChanged::Fail) => {
                let version = known.0.version();
                return Err(Error::changed(format!("this source changed since {version} converted it"))
                    .at_location(file.uri())
                    .with_hint("replace its old records with --on-changed replace")
                    .with_hint("keep its old records beside the new ones with --on-changed append")
                    .with_hint("skip it with --on-changed skip"));
            }
        }
    }
    Ok(partition)
}

/// A dataset among the sources, or in a folder above them.
#[derive(Debug)]
pub struct LiveDataset {
    store: Arc<dyn Store>,
    /// Common prefix of its objects' names.
    root: String,
    /// Its live shards.
    live: HashSet<String>,
    /// Folders of the live shards.
    folders: HashSet<String>,
    /// All shards that it has or had.
    known: HashSet<String>,
    /// Whether it keeps a dataset card.
    indexes: Vec<IndexKind>,
    /// How its records are divided.
    split: Option<Splits>,
    /// Types of the columns that some of its shards have with other types.
    retyped: Fields,
}

impl LiveDataset {
    /// Returns the columns of a source; those of a shard of the dataset that had no values yet have no type.
    pub fn source_fields(&self, uri: &str, fields: &Fields) -> Fields {
        match self.live.contains(uri) {
            true => bound::open_text_fields(fields, &self.retyped),
            false => fields.clone(),
        }
    }

    /// Returns how the records of the dataset are divided.
    pub fn split_splits(&self) -> Option<&Splits> {
        self.split.as_ref()
    }

    /// Returns the dataset at a location; `None` if there is none.
    ///
    /// # Errors
    /// When the log of the dataset is damaged.
    pub fn open_at(context: &Context<'_>, location: &Location) -> Result<Option<Self>> {
        let snapshot = match context.open_dataset(location).and_then(|dataset| dataset.newest_snapshot()) {
            Ok(Some(snapshot)) => snapshot,
            // A dataset that cannot be read would be treated as plain files, including everything that was ever
            // replaced or erased.
            Err(e) if matches!(e.kind(), Kind::Integrity | Kind::Storage) => return Err(e),
            // A web server cannot be listed, and any other error was reported when the source was listed.
            Ok(None) | Err(_) => return Ok(None),
        };
        let uri = |path: &str| match location.local_path() {
            Some(folder) => folder.join(path).display().to_string(),
            None => location.join(path).to_string(),
        };
        check_folders(snapshot.dataset().store().as_ref(), snapshot.live_shards()?.iter())?;
        let live: HashSet<String> = snapshot.live_shards()?.iter().map(|shard| uri(&shard.path)).collect();
        Ok(Some(Self {
            store: Arc::clone(snapshot.dataset().store()),
            root: uri(""),
            folders: live.iter().filter_map(|uri| Some(uri.rsplit_once('/')?.0.to_owned())).collect(),
            live,
            indexes: snapshot.entry().settings.indexes.clone(),
            split: snapshot.entry().settings.split.clone(),
            retyped: types::retyped_fields(&snapshot.entry().settings),
            known: snapshot.run_table()?.as_slice().iter().map(|run| uri(&run.shard)).collect(),
        }))
    }

    /// Returns the dataset's location.
    pub fn dataset_location(&self) -> String {
        self.store.location().to_string()
    }

    /// Returns a file's path in the dataset, if the file is in it.
    fn path_in_dataset<'a>(&self, uri: &'a str) -> Option<&'a str> {
        uri.strip_prefix(&self.root).map(|path| path.trim_start_matches('/'))
    }

    /// Returns whether a file belongs to the dataset: a live shard, an old one, or an index of an old one.
    pub fn contains_file(&self, file: &SourceFile) -> bool {
        let uri = file.uri();
        self.live.contains(&uri) || self.is_old(&uri)
    }

    /// Returns whether a file is a shard that is not live, or is not beside a live shard.
    fn is_old(&self, uri: &str) -> bool {
        let is_folder_old = || uri.rsplit_once('/').is_none_or(|(folder, _)| !self.folders.contains(folder));
        let may_be = |path: &str| is_shard_name(path) || is_beside_shards(path) && is_folder_old();
        !self.live.contains(uri) && (self.known.contains(uri) || self.path_in_dataset(uri).is_some_and(may_be))
    }

    /// Removes shards that the newest version does not contain: shards that were compacted into others, and shards of
    /// runs that never committed. Also removes the indexes of the live shards. Returns their number.
    pub fn remove_stale_files(&self, files: &mut Vec<SourceFile>) -> u64 {
        let before = files.len();
        // A file may be the user's; what is in the folder of an index is no record, whoever wrote it.
        let may_have = |kind: &IndexKind, path: &str| path.contains('/') || self.indexes.contains(kind);
        let is_index = |path: &str| IndexKind::ALL.iter().any(|k| k.has_of_version(path) && may_have(k, path));
        let is_ours = |path: &str| is_index(path) || is_sign(path);
        files.retain(|file| !self.is_old(&file.uri()) && !self.path_in_dataset(&file.uri()).is_some_and(is_ours));
        (before - files.len()) as u64
    }

    /// Returns the constants that all records of these files share, as far as the files are shards of this dataset.
    ///
    /// # Errors
    /// When the constants differ, or the store fails.
    pub fn shared_constants(&self, files: &[String]) -> Result<Option<Bytes>> {
        let shards = || files.iter().filter(|uri| self.live.contains(*uri)).filter_map(|uri| self.path_in_dataset(uri));
        let constants = ConstantSets::of_shards(self.store.as_ref(), shards())?;
        constants.common_constants(shards()).map_err(|(one, other)| {
            Error::input("expected shards whose records have the same constants, found others")
                .at_location(self.store.location().join(&other).to_string())
                .with_hint(format!("shards of other constants are in {one}"))
                .with_hint("convert them one after the other, choosing with --include 'FOLDER/**'")
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceState {
    New,
    Same,
    Changed,
    /// Unchanged, with records that were omitted as duplicates of records which the dataset no longer has.
    Orphaned,
    /// Known under another name.
    Moved,
}

/// Maximum number of moved sources that are listed by name.
const MAX_LISTED: usize = 10;

/// Searches the dataset for the content of new sources: that of a file, or that of a sample made of files. All parts of
/// such a sample must be parts of one known sample.
fn find_moved(
    context: &Context<'_>,
    found: &[SourceFile],
    snapshot: &Snapshot,
    pseudonymizer: Option<&Pseudonymizer>,
    states: &mut [SourceState],
) -> Result<()> {
    let new =
        found.iter().zip(states.iter()).filter(|(file, state)| file.bytes() > 0 && matches!(state, SourceState::New));
    let sizes: HashSet<u64> = new.map(|(file, _)| file.bytes()).collect();
    let mut files: HashMap<ContentKey, Place> = HashMap::new();
    let mut samples: BTreeMap<(Version, u64), SampleContent> = BTreeMap::new();
    let mut part_sizes: HashSet<u64> = HashSet::new();
    let keys = &snapshot.entry().settings.keys;
    snapshot.each_source(&mut |row| {
        if row.removed.is_some() {
            return Ok(());
        }
        if let Some(hash) = row.part_hash {
            let sample = samples.entry((row.version, xxh3_64(keys.path_key(&row.name).as_bytes()))).or_default();
            sample.add_part(keys.path_extension(&row.name), row.bytes, hash);
            part_sizes.insert(row.bytes);
            sample.place = (row.name, row.version);
        } else if is_table(row.stream_tag()) {
            files.insert(ContentKey::Table(row.hash), (row.name, row.version));
        } else if !row.is_part_of_sample() && sizes.contains(&row.bytes) {
            files.insert(ContentKey::Bytes(row.bytes, row.hash), (row.name, row.version));
        }
        Ok(())
    })?;
    let mut told = 0;
    let mut tell = |file: &SourceFile, (name, version): &Place| {
        told += 1;
        if told <= MAX_LISTED {
            let note = format!("{}: skipped, {version} converted the same content as `{name}`", file.name());
            context.observer.event(Event::Note(note));
        }
    };
    let of_bytes = |key: &ContentKey| if let ContentKey::Bytes(bytes, _) = key { Some(*bytes) } else { None };
    let sizes: HashSet<u64> = files.keys().filter_map(of_bytes).collect();
    let moved: Vec<Option<&Place>> = found
        .par_iter()
        .zip(states.par_iter())
        .map(|(file, state)| match state {
            SourceState::New if is_table(file.stream_tag()) => {
                Ok(files.get(&ContentKey::Table(stored_hash(file, pseudonymizer)?)))
            }
            SourceState::New if sizes.contains(&file.bytes()) => {
                Ok(files.get(&ContentKey::Bytes(file.bytes(), stored_hash(file, pseudonymizer)?)))
            }
            _ => Ok(None),
        })
        .collect::<Result<_>>()?;
    for ((file, state), place) in found.iter().zip(states.iter_mut()).zip(moved) {
        let Some(place) = place else { continue };
        *state = SourceState::Moved;
        tell(file, place);
    }
    for (parts, place) in moved_samples(found, states, &samples, &part_sizes, pseudonymizer)? {
        parts.iter().for_each(|at| states[*at] = SourceState::Moved);
        tell(&found[parts[0]], place);
    }
    Ok(())
}

/// Whether the hash of a source is that of its rows.
fn is_table(tag: Option<StreamTag<'_>>) -> bool {
    tag.is_some_and(|tag| tag.hash == StreamHash::Rows)
}

/// What sources of equal content share.
#[derive(PartialEq, Eq, Hash)]
enum ContentKey {
    /// Size and hash of the bytes.
    Bytes(u64, u64),
    /// Hash of the rows of a named stream.
    Table(u64),
}

/// Name of a source, and the version that converted it.
type Place = (String, Version);

/// Content of a sample made of files: an order-independent sum over its parts, their number, and the sample's place.
#[derive(Default)]
struct SampleContent {
    sum: u64,
    parts: u32,
    place: Place,
}

impl SampleContent {
    fn add_part(&mut self, extension: String, bytes: u64, hash: u64) {
        let mut text = extension.into_bytes();
        text.extend_from_slice(&bytes.to_le_bytes());
        text.extend_from_slice(&hash.to_le_bytes());
        self.sum = self.sum.wrapping_add(xxh3_64(&text));
        self.parts += 1;
    }

    /// Returns the key that samples of the same content share.
    fn content_key(&self) -> (u64, u32) {
        (self.sum, self.parts)
    }
}

/// Returns the new samples made of files whose content the dataset has, each with the indexes of its files. Only files
/// whose size occurs in the dataset are read.
fn moved_samples<'a>(
    found: &[SourceFile],
    states: &[SourceState],
    samples: &'a BTreeMap<(Version, u64), SampleContent>,
    sizes: &HashSet<u64>,
    pseudonymizer: Option<&Pseudonymizer>,
) -> Result<Vec<(Vec<usize>, &'a Place)>> {
    if samples.is_empty() {
        return Ok(Vec::new());
    }
    let known: HashMap<(u64, u32), &Place> =
        samples.values().map(|sample| (sample.content_key(), &sample.place)).collect();
    let mut new: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, (file, _)) in
        found.iter().zip(states).enumerate().filter(|(_, (_, state))| matches!(state, SourceState::New))
    {
        new.entry(file.key()).or_default().push(at);
    }
    let look = |parts: Vec<usize>| -> Result<Option<(Vec<usize>, &'a Place)>> {
        let mut sample = SampleContent::default();
        for at in &parts {
            sample.add_part(found[*at].extension(), found[*at].bytes(), stored_hash(&found[*at], pseudonymizer)?);
        }
        Ok(known.get(&sample.content_key()).map(|place| (parts, *place)))
    };
    let candidates: Vec<Vec<usize>> =
        new.into_values().filter(|parts| parts.iter().all(|at| sizes.contains(&found[*at].bytes()))).collect();
    let moved: Vec<_> = candidates.into_par_iter().map(look).collect::<Result<_>>()?;
    Ok(moved.into_iter().flatten().collect())
}

/// What the newest version that converted a file records about it.
#[derive(Clone, Copy)]
enum KnownFile {
    No,
    Same(Version),
    Changed(Version),
    /// Same size, but written since; with the hash of the recorded content, if it was computed.
    Touched(Version, Option<NonZeroU64>),
}

/// Gives all unchanged files of a sample the state of one of them that is to be replaced, because a sample is replaced
/// as a whole.
fn propagate_state(found: &[SourceFile], known: &[(KnownFile, bool)], states: &mut [SourceState], state: SourceState) {
    let key = |file: &SourceFile| file.key().to_owned();
    let changed: HashSet<String> = found
        .iter()
        .zip(known)
        .zip(states.iter())
        .filter(|((_, (_, is_part)), other)| *is_part && **other == state)
        .map(|((file, _), _)| key(file))
        .collect();
    for ((file, (_, is_part)), other) in found.iter().zip(known).zip(states.iter_mut()) {
        if *is_part && *other == SourceState::Same && changed.contains(&key(file)) {
            *other = state;
        }
    }
}

/// Marks unchanged sources with records that were omitted as duplicates of records which the dataset does not have any
/// longer, or which are replaced. Returns the URIs of all that are replaced, as stored.
fn with_orphans(
    context: &Context<'_>,
    snapshot: &Snapshot,
    pseudonymizer: Option<&Pseudonymizer>,
    found: &[SourceFile],
    known: &[(KnownFile, bool)],
    states: &mut [SourceState],
    on_changed: OnChanged,
) -> Result<HashSet<String>> {
    let came_from = |file: &SourceFile, is_part: bool| match is_part {
        true => CameFrom::Sample(IdQuery::new(pseudonymizer, file.key()).hashed_text().to_owned()),
        false => CameFrom::Source(match pseudonymizer {
            Some(pseudonymizer) => pseudonymizer.stored_source(file.name()).into_owned(),
            None => file.name().to_owned(),
        }),
    };
    loop {
        let mut replaced = ReplacedSources::default();
        for ((file, (_, is_part)), state) in found.iter().zip(known).zip(&*states) {
            if *state == SourceState::Orphaned || *state == SourceState::Changed && on_changed == OnChanged::Replace {
                replaced.uris.insert(stored_uri(file, pseudonymizer));
                if let (true, CameFrom::Sample(key)) = (*is_part, came_from(file, *is_part)) {
                    replaced.samples.insert(key);
                }
            }
        }
        // What repeats records of a replaced source is read again together with it.
        let orphaned = orphaned_sources(context, snapshot, &replaced)?;
        let mut more = false;
        for ((file, (version, is_part)), state) in found.iter().zip(known).zip(states.iter_mut()) {
            let is_new = || orphaned.contains_key(&(came_from(file, *is_part), version.version()));
            if *state == SourceState::Same && !orphaned.is_empty() && is_new() {
                *state = SourceState::Orphaned;
                more = true;
            }
        }
        if !more {
            return Ok(replaced.uris);
        }
        propagate_state(found, known, states, SourceState::Orphaned);
    }
}

/// Returns [`find_orphaned`] sources; a damaged table is told and stops nothing that does not need it.
fn orphaned_sources(
    context: &Context<'_>,
    snapshot: &Snapshot,
    replaced: &ReplacedSources,
) -> Result<BTreeMap<(CameFrom, Version), u64>> {
    find_orphaned(snapshot, replaced).or_else(|error| {
        if error.kind() != Kind::Integrity {
            return Err(error);
        }
        let note = format!("records that were omitted as duplicates do not come back, because of damage: {error}");
        context.observer.event(Event::Note(note));
        Ok(BTreeMap::new())
    })
}

/// Says which unchanged sources are read again.
fn tell_orphaned(context: &Context<'_>, found: &[SourceFile], states: &[SourceState]) {
    let orphaned = found.iter().zip(states).filter(|(_, state)| **state == SourceState::Orphaned);
    let names: Vec<&str> = orphaned.map(|(file, _)| file.name()).collect();
    if !names.is_empty() {
        context.observer.event(Event::Note(format!(
            "read again: {}; records were omitted as duplicates of records that the dataset no longer has",
            some_of(&names)
        )));
    }
}

/// Says which records were omitted as duplicates of records that the dataset no longer has, and how they come back.
///
/// # Errors
/// When a table of duplicates, the index or a sidecar cannot be read.
pub fn tell_left_out(context: &Context<'_>, snapshot: &Snapshot) -> Result<()> {
    // Without the key of private ids nobody can tell.
    if pseudonymizer_of(snapshot).is_err() {
        return Ok(());
    }
    let orphans = orphaned_sources(context, snapshot, &ReplacedSources::default())?;
    let records: u64 = orphans.values().sum();
    let names: Vec<&str> = orphans.keys().map(|(came_from, _)| came_from.source_name()).collect();
    if records > 0 {
        let (left_out, them) = match records {
            1 => ("1 record was omitted as a duplicate of a record that the dataset no longer has".to_owned(), "it"),
            _ => (format!("{records} records were omitted as duplicates of records that it no longer has"), "them"),
        };
        context.observer.event(Event::Note(format!(
            "{left_out}: `shardify convert` takes {them} when it is given these sources again: {}",
            some_of(&names)
        )));
    }
    Ok(())
}

/// Returns the first names, and how many others there are.
fn some_of(names: &[&str]) -> String {
    let some = names.iter().take(MAX_LISTED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_LISTED) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}

/// Returns the hash of a file's content as the dataset stores it.
fn stored_hash(file: &SourceFile, pseudonymizer: Option<&Pseudonymizer>) -> Result<u64> {
    let hash = content_hash(file)?;
    Ok(pseudonymizer.map_or(hash, |pseudonymizer| pseudonymizer.content_hash(hash)))
}

/// Returns the URI of a file as the dataset stores it.
fn stored_uri(file: &SourceFile, pseudonymizer: Option<&Pseudonymizer>) -> String {
    let uri = file.uri();
    pseudonymizer.map_or_else(|| uri.clone(), |pseudonymizer| pseudonymizer.stored_uri(&uri).into_owned())
}

impl KnownFile {
    fn version(self) -> Version {
        match self {
            Self::No => Version(0),
            Self::Same(version) | Self::Changed(version) | Self::Touched(version, _) => version,
        }
    }
}

/// Returns what the dataset records about each found file, and whether the file was one part of a sample.
fn look_up_files(
    found: &[SourceFile],
    snapshot: &Snapshot,
    pseudonymizer: Option<&Pseudonymizer>,
) -> Result<Vec<(KnownFile, bool)>> {
    let stored = |file: &SourceFile| stored_uri(file, pseudonymizer);
    let mut known = vec![(KnownFile::No, false); found.len()];
    let mut places: Vec<(u64, u32)> =
        found.par_iter().zip(0..u32::MAX).map(|(file, at)| (xxh3_64(stored(file).as_bytes()), at)).collect();
    places.par_sort_unstable();
    snapshot.each_source(&mut |row| {
        if row.removed.is_some() {
            return Ok(());
        }
        let hash = xxh3_64(row.uri.as_bytes());
        let first = places.partition_point(|place| place.0 < hash);
        for (_, at) in places[first..].iter().take_while(|place| place.0 == hash) {
            let at = *at as usize;
            if stored(&found[at]) == row.uri && known[at].0.version() <= row.version {
                known[at] = (compare_file(&found[at], &row, pseudonymizer), row.is_part_of_sample());
            }
        }
        Ok(())
    })?;
    Ok(known)
}

fn compare_file(file: &SourceFile, row: &SourceRow, pseudonymizer: Option<&Pseudonymizer>) -> KnownFile {
    if let Some(tag) = file.stream_tag() {
        return compare_stream(file, tag, row, pseudonymizer);
    }
    if file.bytes() != row.bytes {
        return KnownFile::Changed(row.version);
    }
    let same = match file.etag() {
        Some(etag) => row.etag.as_deref() == Some(etag),
        None => file.modified().as_microsecond() == row.modified.as_microsecond(),
    };
    if same { KnownFile::Same(row.version) } else { KnownFile::Touched(row.version, row.content_hash()) }
}

/// Compares a named stream with one of the same name: the tag that the user states decides, or else the hash.
fn compare_stream(
    file: &SourceFile,
    tag: StreamTag<'_>,
    row: &SourceRow,
    pseudonymizer: Option<&Pseudonymizer>,
) -> KnownFile {
    let known = row.stream_tag().filter(|known| known.hash == tag.hash);
    let is_stated = tag.stated.is_some() && known.is_some_and(|known| known.stated == tag.stated);
    let hash =
        file.stream_hash().map(|hash| pseudonymizer.map_or(hash, |pseudonymizer| pseudonymizer.content_hash(hash)));
    match is_stated || known.is_some() && hash == Some(row.hash) {
        true => KnownFile::Same(row.version),
        false => KnownFile::Changed(row.version),
    }
}

/// Whether the tag that the user states of a named stream says that it is unchanged, so that it need not be read.
///
/// # Errors
/// When the list of sources cannot be read, or names are private and there is no key.
pub fn is_known_stream(context: &Context<'_>, file: &SourceFile, snapshot: &Snapshot) -> Result<bool> {
    let pseudonymizer = Pseudonymizer::from_settings(&snapshot.entry().settings, context.id_key.as_ref())?;
    let known = look_up_files(std::slice::from_ref(file), snapshot, pseudonymizer.as_ref())?;
    Ok(known.iter().all(|(known, _)| matches!(known, KnownFile::Same(_))))
}
