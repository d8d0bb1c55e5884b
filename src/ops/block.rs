//! `block` and `unblock`: ids whose records must not be imported, even though no record has them yet, and ids that may
//! be imported again.
//!
//! A person who opts out before any of their records arrives has nothing to erase. An id that was erased or blocked by
//! mistake can be removed from the list; this restores no records, and the log states who did it and why.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::{
    Context,
    erase::{EraseId, NameKind},
};
use crate::{
    codec::hex::to_hex,
    dataset::{
        BlockChange, IdQuery, KeyedHash, Operation, Pseudonymizer, Salt, Snapshot, SuppressList, Suppressed,
        SuppressedKind, change_blocked, find_hits, pseudonymizer_of,
    },
    error::{Error, Result},
    id::Version,
    record::spelling::normal_form,
    storage::Location,
};

/// Options of `block` and `unblock`.
#[derive(Debug, Clone, Default)]
pub struct BlockOptions {
    /// Ids to block or unblock.
    pub ids: Vec<EraseId>,
    /// Reason for the change, recorded in the log.
    pub reason: Option<String>,
    /// Whether the ids are removed from the list.
    pub lift: bool,
    /// Plan without changing anything.
    pub dry_run: bool,
}

/// Report of `block` or `unblock`.
#[derive(Debug, Clone, Serialize)]
pub struct BlockReport {
    /// The dataset.
    pub dataset: String,
    /// The newest version after the run.
    pub version: Version,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Whether ids were removed from the list.
    pub lifted: bool,
    /// Ids that were added to the list, or removed from it.
    pub changed: Vec<String>,
    /// Ids that were on the list already, or not on it.
    pub unchanged: Vec<String>,
}

/// Adds ids to the list of blocked ids, or removes them.
///
/// # Errors
/// When there is no dataset, records have an id that is to be blocked, other runs keep committing, or the store fails.
pub fn block_ids(context: &Context<'_>, location: &Location, options: &BlockOptions) -> Result<BlockReport> {
    if options.ids.is_empty() || options.ids.iter().any(|id| id.id.is_empty()) {
        return Err(Error::usage("expected ids, found none").with_hint("name them with --subject or --record"));
    }
    if let Some(origin) = options.ids.iter().find(|id| id.kind == Some(NameKind::Source)) {
        return Err(Error::usage(format!("expected a subject id or a record id, found the origin `{}`", origin.id))
            .with_hint("a row of a source can be erased, but not blocked"));
    }
    let dataset = context.open_dataset(location)?;
    let newest = dataset.open_newest()?;
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
    let plan = |snapshot: &Snapshot, salt: &Salt| plan_change(snapshot, salt, options);
    if options.dry_run {
        let salt =
            newest.entry().erasures.as_ref().map_or_else(|| Ok(Salt::fresh()), |erasures| erasures.parse_salt())?;
        (_, report.changed, report.unchanged) = plan(&newest, &salt)?;
        return Ok(report);
    }
    let operation = if options.lift { Operation::Unblock } else { Operation::Block };
    let snapshot = change_blocked(&dataset, operation, &log_arguments(&newest, options)?, &mut |snapshot, salt| {
        let (change, changed, unchanged) = plan(snapshot, salt)?;
        (report.changed, report.unchanged) = (changed, unchanged);
        Ok((!report.changed.is_empty()).then_some(change))
    })?;
    report.version = snapshot.version();
    Ok(report)
}

/// Returns the kinds under which an id may be on the list; the first is the one it is added under.
fn listed_kinds(id: &EraseId, has_subjects: bool) -> &'static [SuppressedKind] {
    use SuppressedKind::{Id, Record, Subject};
    match id.kind {
        Some(NameKind::Subject) => &[Subject, Id],
        Some(NameKind::Record) if has_subjects => &[Record, Id],
        _ => &[Id, Record, Subject],
    }
}

/// Returns the change, the ids that it affects, and the ids that it leaves unchanged.
fn plan_change(
    newest: &Snapshot,
    salt: &Salt,
    options: &BlockOptions,
) -> Result<(BlockChange, Vec<String>, Vec<String>)> {
    let pseudonymizer = pseudonymizer_of(newest)?;
    let list = SuppressList::from_snapshot(newest)?;
    let has_subjects = newest.entry().settings.has_subjects();
    let (mut add, mut remove) = (Vec::new(), HashSet::new());
    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    for id in &options.ids {
        let kinds = listed_kinds(id, has_subjects);
        // An id without a kind counts as blocked only if every record that carries it in any way is rejected.
        let known = if options.lift { kinds } else { &kinds[..1] };
        let is_known = list.as_ref().is_some_and(|list| list.find_as(&id.id, known).is_some());
        if is_known != options.lift {
            unchanged.push(id.id.clone());
            continue;
        }
        if options.lift {
            let similar = kinds.iter().filter_map(|kind| kind.to_similar());
            remove.extend(kinds.iter().map(|kind| (hash_id(salt, pseudonymizer.as_ref(), &id.id), *kind)));
            remove.extend(similar.map(|kind| (hash_id(salt, pseudonymizer.as_ref(), &normal_form(&id.id)), kind)));
        } else {
            refuse_records(newest, id)?;
            add.extend(suppressed_rows(salt, pseudonymizer.as_ref(), &id.id, kinds[0]));
        }
        changed.push(id.id.clone());
    }
    let change = if options.lift { BlockChange::Remove(remove) } else { BlockChange::Add(add) };
    Ok((change, changed, unchanged))
}

fn hash_id(salt: &Salt, pseudonymizer: Option<&Pseudonymizer>, id: &str) -> KeyedHash {
    salt.hash(IdQuery::new(pseudonymizer, id).hashed_text())
}

fn suppressed_rows(
    salt: &Salt,
    pseudonymizer: Option<&Pseudonymizer>,
    id: &str,
    kind: SuppressedKind,
) -> Vec<Suppressed> {
    let row = |text: &str, kind| Suppressed {
        hash: hash_id(salt, pseudonymizer, text),
        kind,
        source: None,
        version: Version(0),
        records: 0,
    };
    let form = normal_form(id);
    std::iter::once(row(id, kind)).chain(kind.to_similar().map(|similar| row(&form, similar))).collect()
}

/// Returns an error if records have the id: blocking would not remove them, so such an id must be erased.
fn refuse_records(newest: &Snapshot, id: &EraseId) -> Result<()> {
    let mut hits = find_hits(newest, &id.id)?;
    hits.retain(|hit| hit.is_live() && id.kind.is_none_or(|kind| NameKind::from_hit(hit) == kind));
    if hits.is_empty() {
        return Ok(());
    }
    Err(Error::usage(format!("expected an id that no record has, found {} with `{}`", hits.len(), id.id))
        .at_location(newest.dataset().store().location().to_string())
        .with_hint("`shardify erase` removes the records and blocks the id"))
}

/// Returns the arguments recorded in the log: hashes of the ids, by which a blocked id can be proved.
fn log_arguments(newest: &Snapshot, options: &BlockOptions) -> Result<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    if let Some(reason) = &options.reason {
        out.insert("reason".to_owned(), reason.clone());
    }
    out.insert("ids".to_owned(), options.ids.len().to_string());
    if let Some(erasures) = &newest.entry().erasures {
        let (salt, pseudonymizer) = (erasures.parse_salt()?, pseudonymizer_of(newest)?);
        let hashes: Vec<String> =
            options.ids.iter().map(|id| to_hex(&hash_id(&salt, pseudonymizer.as_ref(), &id.id))).collect();
        out.insert("hmac_sha256".to_owned(), hashes.join(","));
    }
    Ok(out)
}
