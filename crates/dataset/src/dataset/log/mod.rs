//! The log: entries and the lists that they name, commits, names of versions, and the state of a dataset at each
//! version.

pub mod attempts;
pub(super) mod bounds;
pub(super) mod cache;
pub(super) mod clock;
pub(super) mod commit;
pub(super) mod committed;
pub(super) mod draft;
pub(super) mod duplicates;
pub(super) mod entry;
pub(super) mod erased;
pub(super) mod erasures;
pub(super) mod gone;
pub mod leases;
pub(super) mod operation;
pub(super) mod order;
pub(super) mod part;
pub(super) mod past;
pub(super) mod private;
pub(super) mod publication;
pub(super) mod pulled;
pub(super) mod resharded;
pub(super) mod retraction;
pub(super) mod root;
pub(super) mod runs;
pub(super) mod shards;
pub(super) mod snapshot;
pub(super) mod sources;
pub(super) mod store_test;
pub(super) mod tags;
pub(super) mod transaction;
