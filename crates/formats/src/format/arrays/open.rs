//! Limit on open array sources, of which there may be tens of thousands.
//!
//! An open source holds its metadata, up to some megabytes. Planned sources stay open while all of them fit their share
//! of the memory; others are closed, and reopened while their records are read. What remains of each is its
//! [`Outline`], which similar files share.

use std::{
    any::Any,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arrow::{array::RecordBatch, datatypes::Fields};

use super::stripes::Striped;
use crate::{
    array::{
        Arrays, Header,
        origin::Layout,
        records::{ArrayOptions, Plan, PlanColumn},
        rows::row_fields,
    },
    error::Result,
    format::facts::ReaderFacts,
};

/// Reopens a source.
pub type ReopenArrays = Box<dyn Fn() -> Result<Box<dyn Arrays>> + Send + Sync>;

/// Divisor of a run's memory that gives the maximum bytes of open sources.
const SHARE: u64 = 16;

/// How often these bytes may be taken by the content of sources that are compressed as a whole.
const UNPACKED_FACTOR: u64 = 2;

/// Default bytes that they may take.
const DEFAULT_BYTES: u64 = 16 << 20;

/// Number of distinct outlines and constants that are compared with those of a new source.
const MAX_DISTINCT: usize = 8;

/// A reader whose records are slices of arrays.
pub trait ArraySource {
    /// Returns the source and the plan of its records, opening it if needed; it stays open while ranges wait for it.
    ///
    /// # Errors
    /// When it cannot be opened again, or has changed.
    fn open_source(&self) -> Result<Arc<Opened>>;

    /// Returns the values that are the same for all records of the source: a row whose columns are not columns of the
    /// records; `None` if there are none.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_constants(&self) -> Result<Option<RecordBatch>>;
}

/// An open source and its plan.
#[derive(Debug)]
pub struct Opened {
    pub(super) source: Striped,
    pub(super) plan: Plan,
}

impl Opened {
    /// Returns the header of the source.
    pub fn header(&self) -> &Header {
        self.source.header()
    }

    /// Returns the plan of its records.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// Facts about a source that remain when it is closed.
#[derive(Debug, PartialEq)]
pub(super) struct Outline {
    pub(super) fields: Fields,
    pub(super) facts: ReaderFacts,
    pub(super) rows: u64,
    pub(super) rows_per_record: u64,
    pub(super) row_bytes: u64,
    /// Records per stored chunk.
    pub(super) chunk: u64,
    /// Whether rows are cells.
    pub(super) cells: bool,
    /// Whether some values are the same for all records.
    pub(super) constants: bool,
}

impl Outline {
    pub(super) fn from_plan(header: &Header, plan: &Plan) -> Self {
        let fields = row_fields(plan);
        Self {
            facts: ReaderFacts {
                reads_own_source: true,
                columns: Some(fields.iter().map(|field| field.name().clone()).collect()),
                rows: Some(plan.row_count()),
                remarks: header.remarks.iter().cloned().chain(plan.remark(header)).collect(),
                units: column_units(header, plan),
                layout: Some(Arc::new(Layout::from_plan(header, plan))),
                ..ReaderFacts::default()
            },
            fields,
            rows: plan.row_count(),
            rows_per_record: plan.rows_per_record(),
            row_bytes: plan.row_bytes(),
            chunk: plan.chunk_length(),
            cells: plan.cells.is_some(),
            constants: !plan.constants.is_empty(),
        }
    }
}

/// Returns the units that the variables of columns state.
fn column_units(header: &Header, plan: &Plan) -> Vec<(String, String)> {
    let unit = |column: &PlanColumn| {
        // Values of time become timestamps, whatever their unit is.
        let stated = header.variables[column.variable].attribute("units").filter(|_| !column.decode.is_of_time())?;
        let stated = stated.as_text()?.trim();
        (!stated.is_empty()).then(|| (column.field.name().clone(), stated.to_owned()))
    };
    plan.columns.iter().filter_map(unit).collect()
}

/// State shared by all array sources of a run.
#[derive(Debug)]
pub struct OpenSources {
    bytes: u64,
    state: Mutex<SharedState>,
}

#[derive(Debug, Default)]
struct SharedState {
    /// Bytes of the sources that stay open.
    used: u64,
    /// Bytes of unpacked content in memory.
    unpacked: u64,
    outlines: Vec<Arc<Outline>>,
    constants: Vec<Arc<RecordBatch>>,
    options: Option<Arc<ArrayOptions>>,
}

impl Default for OpenSources {
    fn default() -> Self {
        Self { bytes: DEFAULT_BYTES, state: Mutex::default() }
    }
}

impl OpenSources {
    /// Returns the state of a run with `memory` bytes.
    pub fn with_memory(memory: u64) -> Self {
        Self { bytes: memory / SHARE, state: Mutex::default() }
    }

    fn lock_state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves room for a source of `bytes` bytes to stay open; one that exceeds the whole limit gets it if it is
    /// alone.
    pub(super) fn reserve_memory(self: &Arc<Self>, bytes: u64) -> Option<OpenReservation> {
        let mut state = self.lock_state();
        let fits = state.used == 0 || state.used.saturating_add(bytes) <= self.bytes;
        fits.then(|| {
            state.used = state.used.saturating_add(bytes);
            OpenReservation { open: Arc::clone(self), bytes }
        })
    }

    /// Reserves room for the content of a source that is compressed as a whole; `None` if it has to go to disk.
    pub fn reserve_unpacked(self: &Arc<Self>, bytes: u64) -> Option<UnpackedReservation> {
        let mut state = self.lock_state();
        let all = state.unpacked.saturating_add(bytes);
        (all <= self.bytes.saturating_mul(UNPACKED_FACTOR)).then(|| {
            state.unpacked = all;
            UnpackedReservation { open: Arc::clone(self), bytes }
        })
    }

    /// Returns an equal outline that another source already has, or this one.
    pub(super) fn intern_outline(&self, outline: Outline) -> Arc<Outline> {
        intern_recent(&mut self.lock_state().outlines, outline)
    }

    /// Returns equal constants that another source already has, or these.
    pub(super) fn intern_constants(&self, constants: RecordBatch) -> Arc<RecordBatch> {
        intern_recent(&mut self.lock_state().constants, constants)
    }

    /// Returns the options, shared by all sources.
    pub(super) fn intern_options(&self, options: &ArrayOptions) -> Arc<ArrayOptions> {
        let mut state = self.lock_state();
        match &state.options {
            Some(known) if **known == *options => Arc::clone(known),
            _ => Arc::clone(state.options.insert(Arc::new(options.clone()))),
        }
    }
}

fn intern_recent<T: PartialEq>(known: &mut Vec<Arc<T>>, one: T) -> Arc<T> {
    if let Some(same) = known.iter().rev().find(|other| ***other == one) {
        return Arc::clone(same);
    }
    if known.len() == MAX_DISTINCT {
        known.remove(0);
    }
    let one = Arc::new(one);
    known.push(Arc::clone(&one));
    one
}

/// Reservation of a source that stays open.
#[derive(Debug)]
pub(super) struct OpenReservation {
    open: Arc<OpenSources>,
    bytes: u64,
}

impl Drop for OpenReservation {
    fn drop(&mut self) {
        let mut state = self.open.lock_state();
        state.used = state.used.saturating_sub(self.bytes);
    }
}

/// Reservation of unpacked content.
#[derive(Debug)]
pub struct UnpackedReservation {
    open: Arc<OpenSources>,
    bytes: u64,
}

impl Drop for UnpackedReservation {
    fn drop(&mut self) {
        let mut state = self.open.lock_state();
        state.unpacked = state.unpacked.saturating_sub(self.bytes);
    }
}

/// Keeps prefetched ranges in memory while they are needed.
pub(super) type Prefetched = Option<Box<dyn Any + Send>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_stay_open_as_long_as_there_is_room() {
        let open = Arc::new(OpenSources::with_memory(SHARE * 100));
        let (one, other) = (open.reserve_memory(60), open.reserve_memory(40));
        assert!(one.is_some() && other.is_some() && open.reserve_memory(1).is_none());
        drop(other);
        assert!(open.reserve_memory(41).is_none());
        let other = open.reserve_memory(40);
        assert!(other.is_some());
        drop((one, other));
        // A source that is too large is accepted if it is alone.
        let large = open.reserve_memory(1000);
        assert!(large.is_some() && open.reserve_memory(1).is_none());
    }

    #[test]
    fn content_is_unpacked_to_memory_as_long_as_there_is_room() {
        let open = Arc::new(OpenSources::with_memory(SHARE * 100));
        let (one, other) = (open.reserve_unpacked(150), open.reserve_unpacked(50));
        assert!(one.is_some() && other.is_some() && open.reserve_unpacked(1).is_none());
        drop(one);
        assert!(open.reserve_unpacked(151).is_none() && open.reserve_unpacked(150).is_some());
        assert!(open.reserve_unpacked(u64::MAX).is_none());
    }

    #[test]
    fn equal_values_share_one_allocation() {
        let mut known = Vec::new();
        let first = intern_recent(&mut known, 0);
        assert!(Arc::ptr_eq(&first, &intern_recent(&mut known, 0)));
        for number in 1..=MAX_DISTINCT {
            intern_recent(&mut known, number);
        }
        assert_eq!(known.len(), MAX_DISTINCT);
        assert!(!Arc::ptr_eq(&first, &intern_recent(&mut known, 0)));
    }
}
