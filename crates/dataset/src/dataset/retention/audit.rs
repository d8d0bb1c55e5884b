//! All objects that the versions of a dataset refer to, each once, so that all of them can be checked.
//!
//! ```text
//! entries: of all versions            checked by their own checksums
//! versions that can be read           lists, segments, places -> shards and the objects beside them
//! versions before an erasure          the same, with replaced objects mapped to their replacements
//! ```

use std::collections::BTreeMap;

use crate::{
    codec::seal::{Seal, json_is_whole},
    dataset::{
        log::{
            entry::Entry,
            erased::Replacements,
            shards,
            snapshot::{Dataset, Snapshot},
        },
        table::{
            list::ListRef,
            paths::system_path,
            sealed::{self, Sealed},
        },
    },
    error::{Error, Kind, Result},
    id::Version,
    storage::{RESTORE_HINT, SMALL, for_each_waiting},
};

/// The objects to be checked.
#[derive(Debug, Default)]
pub struct Audit {
    /// Objects, each once.
    pub objects: Vec<Sealed>,
    /// Damage to objects that refer to others: entries, lists of shards, receipts.
    pub problems: Vec<Error>,
}

impl Audit {
    /// Collects everything that the newest version and older readable versions refer to, or `only` one version.
    /// Includes shards if `with_shards`.
    ///
    /// # Errors
    /// If the store fails; damage is reported in `problems`.
    pub fn new(newest: &Snapshot, only: Option<Version>, with_shards: bool) -> Result<Self> {
        let dataset = newest.dataset();
        let mut audit = Self::default();
        let mut objects: BTreeMap<String, Seal> = BTreeMap::new();
        let store = dataset.store().as_ref();
        let Some(replacements) = audit.record_problem(Replacements::from_entry(store, newest.entry()))? else {
            return Ok(audit);
        };
        let before = newest.entry().erasures.as_ref().map_or(Version(0), |erasures| erasures.rewrote_before);
        // Each once: neighbouring versions name nearly the same lists, which name nearly the same shards.
        let mut lists: BTreeMap<(String, bool), Sealed> = BTreeMap::new();
        for entry in audit.readable_entries(dataset, newest, only)? {
            let mapped = entry.version < before;
            let all = named_objects(&entry, &replacements, mapped)?;
            objects.extend(all.into_iter().map(|object| (object.path, object.seal)));
            lists.extend(entry.shards.iter().map(|list| ((list.path.clone(), mapped), list.as_sealed())));
        }
        let lists: Vec<((String, bool), Sealed)> = lists.into_iter().collect();
        shards::each_list(dataset.log_cache(), &lists, &mut |((_, mapped), _), shards| {
            for shard in audit.record_problem(shards)?.unwrap_or_default() {
                let now = if *mapped { replacements.current_shard(shard) } else { Some(shard) };
                let Some(now) = now else { continue };
                objects.extend(now.all_beside().into_iter().map(|object| (object.path, object.seal)));
                if with_shards {
                    objects.insert(now.path, Seal::from_hash(now.bytes, now.checksum));
                }
            }
            Ok(())
        })?;
        audit.objects = objects.into_iter().map(|(path, seal)| Sealed { path, seal }).collect();
        if only.is_none() {
            for unfinished in newest.entry().erasures.iter().flat_map(|erasures| &erasures.unfinished) {
                if store.head(&unfinished.order)?.is_some() {
                    audit.record_problem(unfinished.read_order(dataset))?;
                }
            }
            audit.check_receipts(dataset)?;
        }
        Ok(audit)
    }

    /// Returns the value, or `None` if it is damaged, which is recorded.
    fn record_problem<T>(&mut self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.kind() == Kind::Integrity => {
                self.problems.push(e);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Returns the entries of readable versions. All entries of the log are read, because they have their own
    /// checksums.
    fn readable_entries(&mut self, dataset: &Dataset, newest: &Snapshot, only: Option<Version>) -> Result<Vec<Entry>> {
        // What the log keeps of vacuumed versions is in lists with seals.
        let Some(past) = self.record_problem(dataset.past_entries(newest.entry(), Version(1)))? else {
            return Ok(Vec::new());
        };
        let (oldest, last) = only.map_or((Version(1), newest.version()), |version| (version, version));
        let versions: Vec<Version> =
            (oldest.0..=last.0).map(Version).filter(|version| !past.contains_key(version)).collect();
        let read = |version: &Version| Ok::<_, Error>(dataset.read_entry(*version));
        let read = for_each_waiting(dataset.store().as_ref(), SMALL, &versions, read)?;
        let mut out = Vec::new();
        for entry in read {
            out.extend(self.record_problem(entry)?.filter(|entry| newest.can_read(entry.version)));
        }
        Ok(out)
    }

    /// Checks receipts of erasures by their own checksums.
    fn check_receipts(&mut self, dataset: &Dataset) -> Result<()> {
        let store = dataset.store();
        for receipt in store.list_folder(&system_path("receipts"))? {
            let Some(bytes) = store.get(&receipt.path)? else { continue };
            if json_is_whole(&bytes) != Some(true) {
                let damaged = Error::integrity("the receipt does not match its checksum").with_hint(RESTORE_HINT);
                self.problems.push(damaged.at_location(store.location().join(&receipt.path).to_string()));
            }
        }
        Ok(())
    }

    /// Checks all objects except those for which `skip` is true, several at a time; returns the damage found.
    ///
    /// # Errors
    /// If the store fails, or the `check` before an object fails.
    pub fn run(
        self,
        dataset: &Dataset,
        skip: impl Fn(&str) -> bool + Sync,
        check: impl Fn() -> Result<()> + Sync,
    ) -> Result<Vec<Error>> {
        let store = dataset.store();
        let examine = |object: &Sealed| -> Result<Option<Error>> {
            if skip(&object.path) {
                return Ok(None);
            }
            check()?;
            match sealed::check_sealed(store, object) {
                Ok(()) => Ok(None),
                Err(e) if e.kind() == Kind::Integrity => Ok(Some(e)),
                Err(e) => Err(e),
            }
        };
        let found = for_each_waiting(store.as_ref(), SMALL, &self.objects, examine)?;
        Ok(self.problems.into_iter().chain(found.into_iter().flatten()).collect())
    }
}

/// Returns the objects that an entry names: lists, buckets and places.
fn named_objects(entry: &Entry, replacements: &Replacements, mapped: bool) -> Result<Vec<Sealed>> {
    let (segments, sources) = match mapped {
        true => (replacements.current_segments(&entry.segments), replacements.current_lists(&entry.sources)?),
        false => (entry.segments.clone(), entry.sources.clone()),
    };
    let lists = [&entry.shards, &entry.runs, &entry.lineage, &sources, &entry.history, &entry.basis];
    let lists = lists.into_iter().flatten();
    let erasures = entry.erasures.iter().flat_map(|erasures| erasures.all_lists());
    let mut out: Vec<Sealed> = lists.chain(erasures).map(ListRef::as_sealed).collect();
    for segment in &segments {
        for bucket in 0..segment.buckets {
            out.push(segment.sealed_bucket(bucket)?);
        }
    }
    out.extend(entry.places.iter().map(|place| place.as_sealed()));
    Ok(out)
}
