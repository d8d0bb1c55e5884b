//! `block` and `unblock`: ids that must not come in, though no record has them, and ids that may come in again.
//!
//! A person who opts out before any of their records arrives has nothing to erase. Whoever was erased or blocked by mistake can be
//! taken off the list; nothing comes back by that, and the log says who did it and why.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::{
    Context,
    erase::{EraseId, NameKind},
};
use crate::{
    codec::hex::hex,
    dataset::{
        Asked, BlockChange, Hiding, KeyedHash, Salt, Snapshot, SuppressList, Suppressed, SuppressedKind,
        change_blocked, find, hiding_of,
    },
    error::{Error, Result},
    id::Version,
    record::spelling::normal_form,
    storage::Location,
};

/// What the user asks for.
#[derive(Debug, Clone, Default)]
pub struct BlockOptions {
    /// Whom.
    pub ids: Vec<EraseId>,
    /// Why; it is kept.
    pub reason: Option<String>,
    /// Whether the ids are taken off the list.
    pub lift: bool,
    /// Only plan.
    pub dry_run: bool,
}

/// What was done, or would be.
#[derive(Debug, Clone, Serialize)]
pub struct BlockReport {
    /// The dataset.
    pub dataset: String,
    /// The newest version afterwards.
    pub version: Version,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Whether ids were taken off the list.
    pub lifted: bool,
    /// Ids that were put on the list, or taken off it.
    pub changed: Vec<String>,
    /// Ids that were on the list already, or not on it.
    pub unchanged: Vec<String>,
}

/// Changes who is kept out.
///
/// # Errors
/// When there is no dataset, records have an id that is to be blocked, other runs keep committing, or the store fails.
pub fn block(context: &Context<'_>, location: &Location, options: &BlockOptions) -> Result<BlockReport> {
    if options.ids.is_empty() || options.ids.iter().any(|id| id.id.is_empty()) {
        return Err(Error::usage("expected ids, found none").hint("name them with --subject or --record"));
    }
    if let Some(origin) = options.ids.iter().find(|id| id.kind == Some(NameKind::Source)) {
        return Err(Error::usage(format!("expected a subject id or a record id, found the origin `{}`", origin.id))
            .hint("a row of a source can only be erased"));
    }
    let dataset = context.dataset(location)?;
    let newest = dataset.open()?;
    let mut report = BlockReport {
        dataset: dataset.store().location().to_string(),
        version: newest.version(),
        dry_run: options.dry_run,
        lifted: options.lift,
        changed: Vec::new(),
        unchanged: Vec::new(),
    };
    if !options.dry_run {
        super::erase::finish_cut_short(context, Some(&newest))?;
    }
    let plan = |snapshot: &Snapshot, salt: &Salt| plan(snapshot, salt, options);
    if options.dry_run {
        let salt = newest.entry().erasures.as_ref().map_or_else(|| Ok(Salt::fresh()), |erasures| erasures.salt())?;
        (_, report.changed, report.unchanged) = plan(&newest, &salt)?;
        return Ok(report);
    }
    let operation = if options.lift { "unblock" } else { "block" };
    let snapshot = change_blocked(&dataset, operation, &arguments(&newest, options)?, &mut |snapshot, salt| {
        let (change, changed, unchanged) = plan(snapshot, salt)?;
        (report.changed, report.unchanged) = (changed, unchanged);
        Ok((!report.changed.is_empty()).then_some(change))
    })?;
    report.version = snapshot.version();
    Ok(report)
}

/// The kinds that an id may be on the list as, the one that it is put on it as first.
fn kinds(id: &EraseId, has_subjects: bool) -> &'static [SuppressedKind] {
    use SuppressedKind::{Id, Record, Subject};
    match id.kind {
        Some(NameKind::Subject) => &[Subject, Id],
        Some(NameKind::Record) if has_subjects => &[Record, Id],
        _ => &[Id, Record, Subject],
    }
}

/// The change, and the ids that it changes and does not change something about.
fn plan(newest: &Snapshot, salt: &Salt, options: &BlockOptions) -> Result<(BlockChange, Vec<String>, Vec<String>)> {
    let hiding = hiding_of(newest)?;
    let list = SuppressList::of(newest)?;
    let has_subjects = newest.entry().settings.has_subjects();
    let (mut add, mut remove) = (Vec::new(), HashSet::new());
    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    for id in &options.ids {
        let kinds = kinds(id, has_subjects);
        // An id of any kind is on the list as soon as whatever carries it stays out.
        let known = if options.lift { kinds } else { &kinds[..1] };
        let is_known = list.as_ref().is_some_and(|list| list.find_as(&id.id, known).is_some());
        if is_known != options.lift {
            unchanged.push(id.id.clone());
            continue;
        }
        if options.lift {
            let similar = kinds.iter().filter_map(|kind| kind.similar());
            remove.extend(kinds.iter().map(|kind| (hashed(salt, hiding.as_ref(), &id.id), *kind)));
            remove.extend(similar.map(|kind| (hashed(salt, hiding.as_ref(), &normal_form(&id.id)), kind)));
        } else {
            refuse_records(newest, id)?;
            add.extend(rows(salt, hiding.as_ref(), &id.id, kinds[0]));
        }
        changed.push(id.id.clone());
    }
    let change = if options.lift { BlockChange::Remove(remove) } else { BlockChange::Add(add) };
    Ok((change, changed, unchanged))
}

fn hashed(salt: &Salt, hiding: Option<&Hiding>, id: &str) -> KeyedHash {
    salt.hash(Asked::new(hiding, id).text())
}

fn rows(salt: &Salt, hiding: Option<&Hiding>, id: &str, kind: SuppressedKind) -> Vec<Suppressed> {
    let row = |text: &str, kind| Suppressed {
        hash: hashed(salt, hiding, text),
        kind,
        source: None,
        version: Version(0),
        records: 0,
    };
    let form = normal_form(id);
    std::iter::once(row(id, kind)).chain(kind.similar().map(|similar| row(&form, similar))).collect()
}

/// Whom records are about is erased, not blocked: the records would stay.
fn refuse_records(newest: &Snapshot, id: &EraseId) -> Result<()> {
    let mut hits = find(newest, &id.id)?;
    hits.retain(|hit| hit.is_live() && id.kind.is_none_or(|kind| NameKind::of(hit) == kind));
    if hits.is_empty() {
        return Ok(());
    }
    Err(Error::usage(format!("expected an id that no record has, found {} with `{}`", hits.len(), id.id))
        .at(newest.dataset().store().location().to_string())
        .hint("`shardify erase` takes the records out and keeps the id out"))
}

/// What the log says of the change: hashes of the ids, by which it can be shown whom it was about.
fn arguments(newest: &Snapshot, options: &BlockOptions) -> Result<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    if let Some(reason) = &options.reason {
        out.insert("reason".to_owned(), reason.clone());
    }
    out.insert("ids".to_owned(), options.ids.len().to_string());
    if let Some(erasures) = &newest.entry().erasures {
        let (salt, hiding) = (erasures.salt()?, hiding_of(newest)?);
        let hashes: Vec<String> = options.ids.iter().map(|id| hex(&hashed(&salt, hiding.as_ref(), &id.id))).collect();
        out.insert("hmac_sha256".to_owned(), hashes.join(","));
    }
    Ok(out)
}
