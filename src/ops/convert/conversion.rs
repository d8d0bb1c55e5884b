//! State of a conversion, from its start to its commit.

use std::collections::HashSet;

use arrow::datatypes::Fields;
use bytes::Bytes;

use super::options::ConvertOptions;
use crate::{
    dataset::{Dataset, Hiding, Settings, Snapshot, SuppressList},
    error::Error,
    exec::subjects::SubjectResolver,
    id::Version,
    ops::{Context, inputs, names::Naming},
};

/// A running conversion.
pub(super) struct Conversion<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) dataset: &'a Dataset,
    pub(super) snapshot: Option<&'a Snapshot>,
    pub(super) options: &'a ConvertOptions,
    /// Places that could not be listed; each counts as a rejected record.
    pub(super) faults: Vec<Error>,
    pub(super) settings: Settings,
    /// Hides ids, where they are private.
    pub(super) hiding: Option<Hiding>,
    /// Sources that are datasets.
    pub(super) live: Vec<inputs::Live>,
    /// What is the same for all records of arrays.
    pub(super) constants: Option<Bytes>,
    /// Columns that the user prescribed.
    pub(super) prescribed: Option<Fields>,
    pub(super) naming: Naming,
    /// Who is not to come back.
    pub(super) suppress: Option<SuppressList>,
    /// Resolves subject ids that no column has.
    pub(super) resolver: Option<SubjectResolver>,
    /// Sources that were left out for that.
    pub(super) sources_erased: u64,
    /// Samples of files whose keys are other spellings of erased ones.
    pub(super) samples_similar: u64,
    /// URIs, as stored, of sources whose old records are to be removed.
    pub(super) replaced: HashSet<String>,
    pub(super) planned_on: Version,
}
