//! Which array sources are open, for there may be tens of thousands of them.
//!
//! An open source holds its metadata, up to some megabytes. Those that were looked at stay open as long as all of them take no
//! more than their share of the memory; others are closed, and opened again for as long as records of them are read. What
//! stays of each is its [`Outline`], which files of one kind have in common.

use std::{
    any::Any,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arrow::{array::RecordBatch, datatypes::Fields};

use super::stripes::Striped;
use crate::array::{
    Arrays, Header,
    origin::Layout,
    records::{ArrayOptions, Plan},
    rows::fields,
};

/// Opens a source anew.
pub type Reopen = Box<dyn Fn() -> crate::error::Result<Box<dyn Arrays>> + Send + Sync>;

/// Part of the memory of a run that open sources may take.
const SHARE: u64 = 16;

/// Bytes that they take unless told.
const DEFAULT_BYTES: u64 = 16 << 20;

/// Different outlines, and constants, that are looked through for those of a source.
const ALIKE: usize = 8;

/// An open source, and what was decided about it.
#[derive(Debug)]
pub struct Opened {
    pub(super) source: Striped,
    pub(super) plan: Plan,
}

impl Opened {
    /// What the source holds.
    pub fn header(&self) -> &Header {
        self.source.header()
    }

    /// What its records are.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// What is known of a source when it is closed.
#[derive(Debug, PartialEq)]
pub(super) struct Outline {
    pub(super) fields: Fields,
    pub(super) columns: Vec<String>,
    pub(super) layout: Layout,
    pub(super) rows: u64,
    pub(super) rows_per_record: u64,
    pub(super) row_bytes: u64,
    /// Records of a stored chunk.
    pub(super) chunk: u64,
    /// Whether rows are cells.
    pub(super) cells: bool,
    /// Whether something is the same for all records.
    pub(super) constants: bool,
}

impl Outline {
    pub(super) fn of(header: &Header, plan: &Plan) -> Self {
        let fields = fields(plan);
        Self {
            columns: fields.iter().map(|field| field.name().clone()).collect(),
            fields,
            layout: Layout::of(header, plan),
            rows: plan.rows(),
            rows_per_record: plan.rows_per_record(),
            row_bytes: plan.row_bytes(),
            chunk: plan.chunk(),
            cells: plan.cells.is_some(),
            constants: !plan.constants.is_empty(),
        }
    }
}

/// What all array sources of a run share.
#[derive(Debug)]
pub struct OpenSources {
    bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of those that stay open.
    used: u64,
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
    /// For a run with so many bytes of memory.
    pub fn within(memory: u64) -> Self {
        Self { bytes: memory / SHARE, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a source that holds so many bytes may stay open; one that is larger than all the room may if it is alone.
    pub(super) fn keep(self: &Arc<Self>, bytes: u64) -> Option<Kept> {
        let mut state = self.lock();
        let fits = state.used == 0 || state.used.saturating_add(bytes) <= self.bytes;
        fits.then(|| {
            state.used = state.used.saturating_add(bytes);
            Kept { open: Arc::clone(self), bytes }
        })
    }

    /// The same outline, as another source has it if there is one.
    pub(super) fn outline(&self, outline: Outline) -> Arc<Outline> {
        alike(&mut self.lock().outlines, outline)
    }

    /// The same constants, as another source has them if there is one.
    pub(super) fn constants(&self, constants: RecordBatch) -> Arc<RecordBatch> {
        alike(&mut self.lock().constants, constants)
    }

    /// The options, once for all sources.
    pub(super) fn options(&self, options: &ArrayOptions) -> Arc<ArrayOptions> {
        let mut state = self.lock();
        match &state.options {
            Some(known) if **known == *options => Arc::clone(known),
            _ => Arc::clone(state.options.insert(Arc::new(options.clone()))),
        }
    }
}

fn alike<T: PartialEq>(known: &mut Vec<Arc<T>>, one: T) -> Arc<T> {
    if let Some(same) = known.iter().rev().find(|other| ***other == one) {
        return Arc::clone(same);
    }
    if known.len() == ALIKE {
        known.remove(0);
    }
    let one = Arc::new(one);
    known.push(Arc::clone(&one));
    one
}

/// Room of a source that stays open.
#[derive(Debug)]
pub(super) struct Kept {
    open: Arc<OpenSources>,
    bytes: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut state = self.open.lock();
        state.used = state.used.saturating_sub(self.bytes);
    }
}

/// What was asked for ahead, for as long as it is needed.
pub(super) type Ahead = Option<Box<dyn Any + Send>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_stay_open_as_long_as_there_is_room() {
        let open = Arc::new(OpenSources::within(SHARE * 100));
        let (one, other) = (open.keep(60), open.keep(40));
        assert!(one.is_some() && other.is_some() && open.keep(1).is_none());
        drop(other);
        assert!(open.keep(41).is_none());
        let other = open.keep(40);
        assert!(other.is_some());
        drop((one, other));
        // One that is too large may if it is alone.
        let large = open.keep(1000);
        assert!(large.is_some() && open.keep(1).is_none());
    }

    #[test]
    fn what_is_alike_is_there_once() {
        let mut known = Vec::new();
        let first = alike(&mut known, 0);
        assert!(Arc::ptr_eq(&first, &alike(&mut known, 0)));
        for number in 1..=ALIKE {
            alike(&mut known, number);
        }
        assert_eq!(known.len(), ALIKE);
        assert!(!Arc::ptr_eq(&first, &alike(&mut known, 0)));
    }
}
