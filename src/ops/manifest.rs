//! `manifest`: what a dataset contains, where a record is, and how it was made.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use serde::Serialize;

use super::{
    Context,
    export::shown_hash,
    or_overtaken,
    parent::{Look, ParentReport, parent_report},
};
use crate::{
    array::origin::Hyperslab,
    codec::{hex::hash_or_none, merkle::Hash},
    dataset::{
        Duplicate, DuplicateRow, Entry, Hit, Operation, Place, PlaceState, Settings, ShardMeta, Snapshot, SuppressList,
        Totals, find_duplicates, find_each, find_prefix, find_vacuumed, read_tombstones,
    },
    error::{Error, Result},
    id::Version,
    plan::compact::When,
    record::split::split_of_path,
    storage::Location,
    units::parse_duration,
};

/// Opens the snapshot at a point in time.
///
/// # Errors
/// When there is no dataset, or it had no version at that time.
pub fn open_snapshot(context: &Context<'_>, location: &Location, at: Option<&str>) -> Result<Snapshot> {
    super::of_newest(&context.open_dataset(location)?, &mut |newest| snapshot_at(newest, at))
}

/// Returns the snapshot at a point in time, given the newest one.
fn snapshot_at(newest: &Snapshot, at: Option<&str>) -> Result<Snapshot> {
    let dataset = newest.dataset();
    match parse_tag_or_when(newest, at)? {
        None => Ok(newest.clone()),
        Some(When::Version(version)) => dataset.open_version(version),
        Some(When::Instant(instant)) => match dataset.version_at(instant)? {
            Some(version) => dataset.open_version(version),
            None => Err(Error::usage(format!("the dataset has no version from {instant} or before"))
                .at_location(dataset.store().location().to_string())
                .with_hint("`shardify manifest --history` lists the versions")),
        },
    }
}

/// Parses a tag, or anything that [`parse_when`] accepts.
///
/// # Errors
/// When the text is none of these.
pub fn parse_tag_or_when(newest: &Snapshot, text: Option<&str>) -> Result<Option<When>> {
    let tagged = text.and_then(|name| newest.tags().get(name));
    match tagged {
        Some(version) => Ok(Some(When::Version(*version))),
        None => parse_when(text).map_err(|error| match newest.tags().is_empty() {
            true => error,
            false => {
                let names: Vec<&str> = newest.tags().keys().map(String::as_str).collect();
                error.with_hint(format!("tags of this dataset: {}", names.join(", ")))
            }
        }),
    }
}

/// Parses a duration back from now, an instant, a date, or a version.
///
/// # Errors
/// When the text is none of these.
pub fn parse_when(text: Option<&str>) -> Result<Option<When>> {
    let Some(text) = text else { return Ok(None) };
    let bad = || {
        Error::usage(format!("expected a point in time, found `{text}`")).with_hint(
            "write a duration back from now (7d), a date (2026-11-21), an instant (2026-11-21T08:00:00Z) or a \
             version (v42), or the name that `manifest --tag` gave one",
        )
    };
    // No point in time is a whole number.
    if let Ok(number) = text.parse() {
        return Ok(Some(When::Version(Version(number))));
    }
    if let Some(number) = text.strip_prefix('v') {
        return number.parse().map(|n| Some(When::Version(Version(n)))).map_err(|_| bad());
    }
    if let Ok(back) = parse_duration(text) {
        let instant = Timestamp::now().checked_sub(back).map_err(|_| bad())?;
        return Ok(Some(When::Instant(instant)));
    }
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(Some(When::Instant(instant)));
    }
    let date: jiff::civil::Date = text.parse().map_err(|_| bad())?;
    let instant = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| bad())?.timestamp();
    Ok(Some(When::Instant(instant)))
}

/// Summary of a snapshot.
#[derive(Debug, Clone, Serialize)]
pub struct SummaryReport {
    /// The dataset.
    pub dataset: String,
    /// The version.
    pub version: Version,
    /// When it was committed.
    pub committed_at: String,
    /// Operation that made it.
    pub operation: Operation,
    /// Settings of the dataset.
    pub settings: Settings,
    /// Live shards, records and bytes.
    #[serde(flatten)]
    pub totals: Totals,
    /// Sources converted so far.
    pub sources: u64,
    /// Smallest, median and largest shard in bytes.
    pub shard_bytes: [u64; 3],
    /// Shards of older versions that are stored beside the live ones, in the same folder: a reader of the folder finds
    /// both.
    pub older_shards: u64,
    /// Column of the subject id; absent if there is none.
    pub subject: Option<String>,
    /// Tags and the versions that they name.
    pub tags: BTreeMap<String, Version>,
    /// Root hash of the version, as stored by its commit; absent if records were erased from it since:
    /// `--root` computes it then.
    #[serde(skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    pub root: Option<Hash>,
    /// The dataset that this one was cut from; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentReport>,
}

/// Summarises a snapshot.
///
/// # Errors
/// When its lists cannot be read.
pub fn summarize_snapshot(context: &Context<'_>, snapshot: &Snapshot) -> Result<SummaryReport> {
    let entry = snapshot.entry();
    let mut sizes: Vec<u64> = live_shards(snapshot)?.iter().map(|s| s.bytes).collect();
    sizes.sort_unstable();
    let pick = |i: usize| sizes.get(i).copied().unwrap_or_default();
    Ok(SummaryReport {
        dataset: snapshot.dataset().store().location().to_string(),
        version: entry.version,
        committed_at: format!("{:.0}", entry.committed_at),
        operation: entry.operation,
        settings: entry.settings.clone(),
        totals: entry.totals,
        sources: entry.sources.iter().map(|l| l.rows).sum(),
        shard_bytes: [pick(0), pick(sizes.len() / 2), pick(sizes.len().saturating_sub(1))],
        older_shards: older_shards(snapshot)?,
        subject: entry.settings.subject.clone(),
        tags: snapshot.tags().clone(),
        root: entry.root,
        parent: parent_report(context, snapshot, Look::Here)?,
    })
}

/// A hit in a report.
#[derive(Debug, Clone, Serialize)]
pub struct HitReport {
    /// The requested id.
    pub id: String,
    /// `record` or `subject`: which of the record's ids matched.
    pub kind: &'static str,
    /// Record id.
    pub record_id: String,
    /// Subject id.
    pub subject_id: Option<String>,
    /// Path of the shard.
    pub shard: String,
    /// Row within the shard, from 0.
    pub ordinal: u64,
    /// Offset in the uncompressed shard.
    pub offset: Option<u64>,
    /// Length in bytes.
    pub length: Option<u64>,
    /// Offset in the stored shard of the compressed unit that holds the record; absent if the shard is not compressed
    /// as a whole. zstd: a frame; gzip: raw deflate data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_offset: Option<u64>,
    /// Stored bytes of that unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_length: Option<u64>,
    /// Offset of the record in the decompressed unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_in_frame: Option<u64>,
    /// Origin of the record.
    pub origin: OriginReport,
    /// Versions that contain it.
    pub versions: VersionsReport,
    /// `live`, `removed` or `erased` at the requested version; `vacuumed` if that version was vacuumed.
    pub state: PlaceState,
    /// Whether the bytes still exist.
    pub stored: bool,
    /// Content hash, XXH3-64 in hexadecimal; absent if none is stored.
    pub hash: Option<String>,
    /// Earlier places of the record, oldest first.
    pub earlier: Vec<EarlierReport>,
    /// Place of the record in the newest version; present only if a vacuumed version was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<NowReport>,
}

/// Place of a record in the newest version.
#[derive(Debug, Clone, Serialize)]
pub struct NowReport {
    /// Path of the shard.
    pub shard: String,
    /// Row within the shard.
    pub ordinal: u64,
}

/// Origin of a record.
#[derive(Debug, Clone, Serialize)]
pub struct OriginReport {
    /// Name of the source.
    pub source: String,
    /// Row in it, from 1; absent if the whole source is the record.
    pub row: Option<u64>,
    /// URL or path of the source.
    pub uri: Option<String>,
    /// Position in the arrays of the source; absent if the source contains no arrays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperslab: Option<HyperslabReport>,
}

/// A hyperslab of some arrays.
#[derive(Debug, Clone, Serialize)]
pub struct HyperslabReport {
    /// The hyperslab as text: `time[17:18], lat[0:64]`.
    pub text: String,
    /// First index of each dimension, and the one after the last.
    pub ranges: BTreeMap<String, (u64, u64)>,
    /// The arrays, with their dimensions.
    pub variables: BTreeMap<String, Vec<String>>,
}

impl HyperslabReport {
    fn new(slab: Hyperslab) -> Self {
        Self {
            text: slab.describe(),
            ranges: slab.ranges.into_iter().map(|(dim, range)| (dim, (range.start, range.end))).collect(),
            variables: slab.variables.into_iter().collect(),
        }
    }
}

/// An interval of versions.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct VersionsReport {
    /// First version that contains the record.
    pub from: Version,
    /// Last version that contains it; absent while it is live.
    pub to: Option<Version>,
}

/// A place that held a record in earlier versions.
#[derive(Debug, Clone, Serialize)]
pub struct EarlierReport {
    /// Path of the shard.
    pub shard: String,
    /// Row within the shard.
    pub ordinal: u64,
    /// Versions that have it there.
    pub versions: VersionsReport,
    /// `compacted`: the record moved to the next place; `vacuumed`: it moved, and the bytes here are deleted.
    pub state: PlaceState,
    /// Whether the bytes still exist.
    pub stored: bool,
}

/// An id that was erased.
#[derive(Debug, Clone, Serialize)]
pub struct ErasedReport {
    /// The requested id.
    pub id: String,
    /// Always `erased`.
    pub state: &'static str,
    /// Version that erased it.
    pub version: Version,
    /// Records that had it.
    pub records: u64,
    /// Stated reason.
    pub reason: Option<String>,
}

/// Returns those of the ids that were erased before a version, or from all versions.
///
/// # Errors
/// When the lists of erased ids cannot be read.
fn find_erased(newest: &Snapshot, ids: &[String], at: Version) -> Result<Vec<ErasedReport>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let Some(list) = SuppressList::from_snapshot(newest)? else { return Ok(Vec::new()) };
    let stones = read_tombstones(newest.dataset(), newest.entry())?;
    let report = |id: &String| {
        let (version, records) = list.find_erased(id)?;
        let stone = stones.iter().find(|stone| stone.version == version)?;
        let reason = stone.reason.clone();
        let seen = stone.all_versions || version <= at;
        seen.then(|| ErasedReport { id: id.clone(), state: "erased", version, records, reason })
    };
    Ok(ids.iter().filter_map(report).collect())
}

/// A record that was omitted as a duplicate, in a report.
#[derive(Debug, Clone, Serialize)]
pub struct DuplicateReport {
    /// The requested id.
    pub id: String,
    /// Always `duplicate`.
    pub state: &'static str,
    /// Version of the run that left the record out.
    pub version: Version,
    /// Name of its source.
    pub source: String,
    /// Row in its source, from 1; absent if the whole source is the record.
    pub row: Option<u64>,
    /// The record that it repeats; absent if the dataset does not know it any longer.
    pub of: Option<HitReport>,
}

/// Returns what runs up to a version omitted that has one of the ids, or one of them as its origin.
///
/// # Errors
/// When the tables of duplicates, the index or a sidecar cannot be read.
fn find_duplicate(newest: &Snapshot, ids: &[String], at: Version) -> Result<Vec<DuplicateReport>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let found = find_duplicates(newest, ids, at)?;
    let report = |duplicate: Duplicate| {
        let id = ids.get(duplicate.id)?.clone();
        let of = duplicate.first.and_then(|hit| hit_report(&hit.record_id.clone(), hit, None));
        let DuplicateRow { source, row, .. } = duplicate.row;
        Some(DuplicateReport { id, state: "duplicate", version: duplicate.version, source, row, of })
    };
    Ok(found.into_iter().filter_map(report).collect())
}

/// Looks up ids in the version that was current at some time, which may have been vacuumed: in that case the hits state
/// where the records were, and where they are now. Also returns the version.
///
/// # Errors
/// When there was no such version, or the index, the lineage or a sidecar cannot be read.
pub fn find_at(
    context: &Context<'_>,
    location: &Location,
    at: Option<&str>,
    ids: &[String],
) -> Result<(Vec<HitReport>, Version)> {
    let mut found = Vec::new();
    let wanted = LookupIds { ids: ids.to_vec(), ..LookupIds::default() };
    let report = find_wanted(context, location, at, &wanted, &mut |hit| {
        found.push(hit);
        Ok(())
    })?;
    Ok((found, report.version))
}

/// Ids and prefixes to look up.
#[derive(Debug, Clone, Default)]
pub struct LookupIds {
    /// Exact ids.
    pub ids: Vec<String>,
    /// Prefixes of ids.
    pub prefixes: Vec<String>,
    /// Maximum number of records to show for each id and each prefix; all of them are counted.
    pub limit: Option<u64>,
}

impl LookupIds {
    /// Adds a query as typed: an id, or a prefix of ids followed by `*`. For an id that itself ends in `*`, a `\`
    /// precedes the `*`.
    pub fn add_query(&mut self, text: &str) {
        match (text.strip_suffix("\\*"), text.strip_suffix('*')) {
            (Some(begin), _) => self.ids.push(format!("{begin}*")),
            (None, Some(begin)) => self.prefixes.push(begin.to_owned()),
            (None, None) => self.ids.push(text.to_owned()),
        }
    }
}

/// Result of a search.
#[derive(Debug, Clone, Serialize)]
pub struct SearchReport {
    /// The version that was searched.
    pub version: Version,
    /// Number of requested ids and prefixes.
    pub ids: u64,
    /// Number of records found.
    pub hits: u64,
    /// Number of records shown; lower than `hits` if there is a limit.
    pub shown: u64,
    /// Ids and prefixes without a record.
    pub missing: Vec<String>,
    /// Those of them that were erased.
    #[serde(skip)]
    pub erased: Vec<ErasedReport>,
    /// Those of the others that runs omitted as duplicates.
    #[serde(skip)]
    pub duplicates: Vec<DuplicateReport>,
}

/// Finds records by ids and prefixes at some time, and passes them to `visit` as they are found: those of ids first, in
/// the order of the ids, then of the records.
///
/// # Errors
/// Those of [`find_at`], and any error of `visit`.
pub fn find_wanted(
    context: &Context<'_>,
    location: &Location,
    at: Option<&str>,
    wanted: &LookupIds,
    visit: &mut dyn FnMut(HitReport) -> Result<()>,
) -> Result<SearchReport> {
    let mut has_visited = false;
    super::of_newest(&context.open_dataset(location)?, &mut |newest| {
        let mut visit = |hit| {
            has_visited = true;
            visit(hit)
        };
        let result = find_from(context, newest, at, wanted, &mut visit);
        // A search can only start again if nobody has seen a record of it.
        if has_visited { or_overtaken(Some(newest), result) } else { result }
    })
}

fn find_from(
    context: &Context<'_>,
    newest: &Snapshot,
    at: Option<&str>,
    wanted: &LookupIds,
    visit: &mut dyn FnMut(HitReport) -> Result<()>,
) -> Result<SearchReport> {
    let version = match parse_tag_or_when(newest, at)? {
        Some(When::Version(version)) => Some(version),
        Some(When::Instant(instant)) => newest.dataset().version_at(instant)?,
        None => None,
    };
    let vacuumed = version.filter(|version| Version(0) < *version && !newest.can_read(*version));
    check_prefixes(newest, wanted)?;
    let mut found = vec![0_u64; wanted.ids.len()];
    let limit = wanted.limit.unwrap_or(u64::MAX);
    let mut report = SearchReport {
        version: newest.version(),
        ids: (wanted.ids.len() + wanted.prefixes.len()) as u64,
        hits: 0,
        shown: 0,
        missing: Vec::new(),
        erased: Vec::new(),
        duplicates: Vec::new(),
    };
    let mut show = |number: usize, hit: Hit, now: Option<Place>| {
        let now = now.map(|place| NowReport { shard: place.shard, ordinal: place.ordinal });
        let Some(hit) = hit_report(&wanted.ids[number], hit, now) else { return Ok(()) };
        found[number] += 1;
        report.hits += 1;
        if found[number] > limit {
            return Ok(());
        }
        report.shown += 1;
        visit(hit)
    };
    if let Some(version) = vacuumed {
        refuse_prefixes(newest, version, wanted)?;
        report.version = version;
        for (number, id) in wanted.ids.iter().enumerate() {
            for (hit, now) in find_vacuumed(newest, version, id)? {
                show(number, hit, Some(now))?;
            }
        }
    } else {
        let snapshot = snapshot_at(newest, at)?;
        report.version = snapshot.version();
        if !wanted.ids.is_empty() {
            find_each(&snapshot, &wanted.ids, &mut |number, hit| show(number, hit, None))?;
        }
        for prefix in &wanted.prefixes {
            let name = format!("{prefix}*");
            let hits = find_prefix(&snapshot, prefix, limit, &context.cancel, &mut |hit| {
                report.shown += 1;
                hit_report(&name, hit, None).map_or(Ok(()), &mut *visit)
            })?;
            report.hits += hits;
            if hits == 0 {
                report.missing.push(name);
            }
        }
    }
    let missing = wanted.ids.iter().zip(found).filter(|(_, found)| *found == 0).map(|(id, _)| id.clone());
    report.missing.splice(0..0, missing);
    report.erased = find_erased(newest, &report.missing, report.version)?;
    let unknown = report.missing.iter().filter(|id| report.erased.iter().all(|erased| erased.id != **id));
    report.duplicates = find_duplicate(newest, &unknown.cloned().collect::<Vec<_>>(), report.version)?;
    Ok(report)
}

/// Returns an error for prefixes in a dataset with private ids: prefixes are compared with plain ids, which it does not
/// store.
fn check_prefixes(newest: &Snapshot, wanted: &LookupIds) -> Result<()> {
    match wanted.prefixes.first().filter(|_| newest.entry().settings.private.is_some()) {
        None => Ok(()),
        Some(prefix) => Err(Error::usage("ids of this dataset are private: only whole ids can be found")
            .at_location(newest.dataset().store().location().to_string())
            .with_hint(format!("leave the `*` of `{prefix}*` out"))),
    }
}

/// Returns an error for prefixes in a version whose sidecars are deleted.
fn refuse_prefixes(newest: &Snapshot, version: Version, wanted: &LookupIds) -> Result<()> {
    match wanted.prefixes.first() {
        None => Ok(()),
        Some(prefix) => Err(Error::usage(format!("{version} was vacuumed: only whole ids are found in it")).with_hint(
            format!("leave the `*` of `{prefix}*` out, or search a version from {}", newest.readable_from()),
        )),
    }
}

fn hit_report(id: &str, hit: Hit, now: Option<NowReport>) -> Option<HitReport> {
    let interval = |from: Version, until: Option<Version>| VersionsReport {
        from,
        to: until.map(|u| Version(u.0.saturating_sub(1))),
    };
    let current = hit.places.last()?.clone();
    let earlier = hit.places[..hit.places.len() - 1]
        .iter()
        .map(|p| EarlierReport {
            shard: p.shard.clone(),
            ordinal: p.ordinal,
            versions: interval(p.from, p.until),
            state: p.state,
            stored: p.state.is_stored(),
        })
        .collect();
    Some(HitReport {
        id: id.to_owned(),
        kind: hit.kind.name(),
        record_id: hit.record_id,
        subject_id: hit.subject_id,
        shard: current.shard,
        ordinal: current.ordinal,
        offset: current.offset,
        length: current.length,
        frame_offset: current.frame.map(|f| f.offset),
        frame_length: current.frame.map(|f| f.length),
        offset_in_frame: current.frame.and_then(|f| Some(current.offset? - f.raw_offset)),
        origin: OriginReport {
            source: hit.source,
            row: hit.row,
            uri: hit.uri,
            hyperslab: hit.hyperslab.map(HyperslabReport::new),
        },
        versions: interval(hit.since, current.until),
        state: current.state,
        stored: current.state.is_stored(),
        hash: shown_hash(hit.hash),
        earlier,
        now,
    })
}

/// Live shards in record order.
///
/// # Errors
/// When the list cannot be read.
pub fn live_shards(snapshot: &Snapshot) -> Result<&[ShardMeta]> {
    or_overtaken(Some(snapshot), snapshot.live_shards())
}

/// Live shards of one side of a divided dataset, in record order.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if there is no such split; when the list cannot be read.
pub fn list_of_split(snapshot: &Snapshot, name: &str) -> Result<Vec<ShardMeta>> {
    let at = || snapshot.dataset().store().location().to_string();
    let Some(splits) = &snapshot.entry().settings.split else {
        return Err(Error::usage("expected a dataset made with --split, found one whose records are not divided")
            .at_location(at()));
    };
    if !splits.shares.names().any(|known| known == name) {
        let names: Vec<&str> = splits.shares.names().collect();
        return Err(Error::usage(format!("expected one of {}, found `{name}`", names.join(", "))).at_location(at()));
    }
    Ok(live_shards(snapshot)?.iter().filter(|shard| split_of_path(&shard.path) == Some(name)).cloned().collect())
}

/// Returns the number of shards that only older versions need.
fn older_shards(snapshot: &Snapshot) -> Result<u64> {
    let live: HashSet<&str> = live_shards(snapshot)?.iter().map(|shard| shard.path.as_str()).collect();
    let table = or_overtaken(Some(snapshot), snapshot.run_table())?;
    let all = table.as_slice().iter().map(|run| run.shard.as_str());
    Ok(all.filter(|shard| !live.contains(shard)).collect::<HashSet<_>>().len() as u64)
}

/// Returns brace patterns that match all live shards, as training tools expand them: `TAG/{000000..000123}.tar`. Shards
/// without a number are listed as they are.
pub fn brace_patterns(shards: &[ShardMeta]) -> Vec<String> {
    let mut paths: Vec<&str> = shards.iter().map(|s| s.path.as_str()).collect();
    paths.sort_by_cached_key(|path| path.split('/').map(numbered_part).collect::<Vec<_>>());
    let mut out = Vec::new();
    let mut open: Option<Numbered<'_>> = None;
    for path in paths {
        let next = Numbered::from_path(path);
        match (&mut open, next) {
            (Some(range), Some(next)) if range.goes_on_with(&next) => range.last = next.last,
            (_, next) => {
                out.extend(open.take().map(|range| range.to_string()));
                if next.is_none() {
                    out.push(path.to_owned());
                }
                open = next;
            }
        }
    }
    out.extend(open.map(|range| range.to_string()));
    out
}

/// Checks that training tools take the paths of brace patterns as they are: WebDataset runs what follows `::pipe:` as a
/// command, and its patterns may stand for other files.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) for the first path with such characters.
pub fn check_literal(root: &Location, shards: &[ShardMeta]) -> Result<()> {
    // The tools pass URLs to a shell.
    let of_shell = |c: char| root.local_path().is_none() && "'\"$`;|&<>".contains(c) || c.is_whitespace() && c != ' ';
    let is_special = |c: char| matches!(c, '{' | '}' | '\\') || c.is_control() || of_shell(c);
    let paths = std::iter::once(root.to_string()).chain(shards.iter().map(|shard| shard.path.clone()));
    for path in paths {
        if path.contains("::") || path.contains(is_special) {
            return Err(Error::usage(
                "expected paths that stand for themselves, found one that training tools expand \
             or run",
            )
            .at_location(path)
            .with_hint(
                "`::`, braces, backslashes and control characters have a meaning in patterns: use --paths, or \
                 rename the folder",
            ));
        }
    }
    Ok(())
}

/// Returns a part of a path and its number, so that the folders of tasks follow in order: `tag`, `tag-2`, `tag-10`.
fn numbered_part(part: &str) -> (&str, u64) {
    let numbered = part.rsplit_once('-').and_then(|(stem, number)| Some((stem, number.parse().ok()?)));
    numbered.unwrap_or((part, 0))
}

/// Paths that differ only in a number: `folder/`, the numbers, `.tar`.
struct Numbered<'a> {
    folder: &'a str,
    first: u64,
    last: u64,
    width: usize,
    extension: &'a str,
}

impl<'a> Numbered<'a> {
    fn from_path(path: &'a str) -> Option<Self> {
        let start = path.rfind('/').map_or(0, |i| i + 1);
        let width = path[start..].find(|c: char| !c.is_ascii_digit()).unwrap_or(path.len() - start);
        let number = path[start..start + width].parse().ok()?;
        Some(Self { folder: &path[..start], first: number, last: number, width, extension: &path[start + width..] })
    }

    fn goes_on_with(&self, next: &Self) -> bool {
        (self.folder, self.width, self.extension) == (next.folder, next.width, next.extension)
            && self.last.checked_add(1) == Some(next.first)
    }
}

impl std::fmt::Display for Numbered<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { folder, first, last, width, extension } = self;
        if first == last {
            return write!(f, "{folder}{first:0width$}{extension}");
        }
        write!(f, "{folder}{{{first:0width$}..{last:0width$}}}{extension}")
    }
}

/// Returns the log entries of a version and all versions before it, oldest first.
///
/// # Errors
/// When the log cannot be read.
pub fn log_entries(snapshot: &Snapshot) -> Result<Vec<Entry>> {
    or_overtaken(Some(snapshot), snapshot.dataset().entries_up_to(snapshot.version()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn shard(path: &str) -> ShardMeta {
        ShardMeta { path: path.into(), version: Version(1), ..ShardMeta::placeholder() }
    }

    #[test]
    fn shards_are_named_by_ranges() {
        let shards: Vec<ShardMeta> =
            ["a/000000.tar.gz", "a/000001.tar.gz", "a/000003.tar.gz", "b/000000.tar", "b/part-0.tar"].map(shard).into();
        let patterns = ["a/{000000..000001}.tar.gz", "a/000003.tar.gz", "b/000000.tar", "b/part-0.tar"];
        assert_eq!(brace_patterns(&shards), patterns);
        assert!(brace_patterns(&[]).is_empty());
        let folders = ["t-10/000000.tar", "t-2/000000.tar", "t-2/000001.tar", "t/000000.tar"].map(shard);
        assert_eq!(brace_patterns(&folders), ["t/000000.tar", "t-2/{000000..000001}.tar", "t-10/000000.tar"]);
    }

    #[test]
    fn points_in_time_parse() {
        assert_eq!(parse_when(Some("v42")).unwrap(), Some(When::Version(Version(42))));
        let day = "2026-11-21T00:00:00Z".parse().unwrap();
        assert_eq!(parse_when(Some("2026-11-21")).unwrap(), Some(When::Instant(day)));
        assert!(matches!(parse_when(Some("7d")).unwrap(), Some(When::Instant(_))));
        assert!(parse_when(Some("soon")).is_err());
        assert!(parse_when(Some("v")).is_err());
        assert_eq!(parse_when(None).unwrap(), None);
    }
}
