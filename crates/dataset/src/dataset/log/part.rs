//! The part of a version that a copy has: all of it, or some splits of a divided dataset.
//!
//! Shards lie in the folders of their splits, a segment of the id index states its split, and a table of places belongs
//! to the shards of one folder. So a part is a choice of whole objects, and record numbers stay. The list of sources is
//! that of the whole version: numbers of the other sides lead to no run, like those of removed records.

use std::collections::{BTreeSet, HashSet};

use crate::{
    dataset::{
        index::SegmentRef,
        index::places::PlaceRef,
        log::{
            entry::{Entry, Totals},
            operation::Operation,
            runs::Run,
            shards::ShardMeta,
            snapshot::Snapshot,
        },
    },
    error::{Error, Result},
    record::split::split_of_path,
};

/// Name of the argument of a pull that holds the names of the splits.
const SPLIT: &str = "split";

/// The part of a version that a copy has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// Names of the splits; `None`: everything.
    splits: Option<BTreeSet<String>>,
}

impl Part {
    /// Returns the part of a snapshot that consists of some splits: everything that it has if none or all of its splits
    /// are named.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if the dataset is not divided or has no such split.
    pub fn from_names(snapshot: &Snapshot, names: &[String]) -> Result<Self> {
        let place = || snapshot.dataset().store().location().to_string();
        let Some(splits) = &snapshot.entry().settings.split else {
            return if names.is_empty() {
                Ok(Self::default())
            } else {
                Err(Error::usage("expected a dataset made with --split, found one whose records are not divided")
                    .at_location(place()))
            };
        };
        let own = Self::from_history(&snapshot.dataset().entries_up_to(snapshot.version())?);
        let has: Vec<&str> = splits.shares.names().filter(|name| own.has_split(Some(name))).collect();
        if let Some(name) = names.iter().find(|name| !has.contains(&name.as_str())) {
            let error =
                Error::usage(format!("expected one of {}, found `{name}`", has.join(", "))).at_location(place());
            return Err(if own.splits.is_some() {
                error.with_hint(
                    "this is a copy of these alone: pull the others from the dataset that it was pulled from",
                )
            } else {
                error
            });
        }
        let chosen: BTreeSet<String> = names.iter().cloned().collect();
        if chosen.is_empty() || chosen.len() == has.len() {
            return Ok(own);
        }
        Ok(Self { splits: Some(chosen) })
    }

    /// Returns the part that a version has, given the entries up to it: that of the last pull, unless the copy has
    /// become a dataset of its own.
    fn from_history(entries: &[Entry]) -> Self {
        let mut kept = entries.iter().rev().take_while(|entry| entry.operation.keeps_a_copy());
        kept.find(|entry| entry.operation == Operation::Pull).map(Self::from_entry).unwrap_or_default()
    }

    /// Returns the part that a pull has copied.
    pub fn from_entry(entry: &Entry) -> Self {
        let names = entry.arguments.get(SPLIT).filter(|_| entry.operation == Operation::Pull);
        Self { splits: names.map(|names| names.split(',').map(str::to_owned).collect()) }
    }

    /// Returns the argument that states the part; `None` for everything.
    pub(in crate::dataset) fn to_argument(&self) -> Option<(String, String)> {
        let names: Vec<&str> = self.splits.as_ref()?.iter().map(String::as_str).collect();
        Some((SPLIT.to_owned(), names.join(",")))
    }

    /// Returns the names of its splits, ascending; none if it is everything.
    pub fn split_names(&self) -> Vec<String> {
        self.splits.iter().flatten().cloned().collect()
    }

    pub(in crate::dataset) fn has_split(&self, split: Option<&str>) -> bool {
        self.splits.as_ref().is_none_or(|splits| split.is_some_and(|split| splits.contains(split)))
    }

    /// Returns the live shards of a snapshot that belong to it.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn shards_in<'a>(&'a self, snapshot: &'a Snapshot) -> Result<impl Iterator<Item = &'a ShardMeta>> {
        Ok(snapshot.live_shards()?.iter().filter(|shard| self.has_split(split_of_path(&shard.path))))
    }

    /// Returns the sums over its shards.
    ///
    /// # Errors
    /// When the list of shards cannot be read.
    pub fn totals_in(&self, snapshot: &Snapshot) -> Result<Totals> {
        let mut totals = Totals::default();
        for shard in self.shards_in(snapshot)? {
            totals.shards += 1;
            totals.records += shard.records;
            totals.bytes += shard.bytes;
        }
        Ok(totals)
    }

    /// Returns its live runs of a snapshot.
    pub(in crate::dataset) fn runs_in<'a>(&'a self, snapshot: &'a Snapshot) -> Result<impl Iterator<Item = &'a Run>> {
        let version = snapshot.version();
        let live = snapshot.run_table()?.as_slice().iter().filter(move |run| run.is_in_version(version));
        Ok(live.filter(|run| self.has_split(split_of_path(&run.shard))))
    }

    /// Returns its segments of the id index of a snapshot.
    pub(in crate::dataset) fn segments_in<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a SegmentRef> {
        snapshot.entry().segments.iter().filter(|segment| self.has_split(segment.split.as_deref())).collect()
    }

    /// Returns its tables of places of a snapshot.
    pub(in crate::dataset) fn places_in<'a>(&self, snapshot: &'a Snapshot) -> Result<Vec<&'a PlaceRef>> {
        let places = snapshot.entry().places.iter();
        if self.splits.is_none() {
            return Ok(places.collect());
        }
        let sets: HashSet<&str> =
            self.runs_in(snapshot)?.filter_map(|run| run.scattered.as_ref()).map(|one| one.set.as_str()).collect();
        Ok(places.filter(|place| sets.contains(place.set.as_str())).collect())
    }
}
