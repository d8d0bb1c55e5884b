//! Levels: the positions of values in rows, as Parquet represents them.
//!
//! ```text
//! rows         [7, null]   null   []    [9]         an optional list of optional items
//! slots         7   null   null   []     9          one for each item, and one for a row that has none
//! repetition    0    1      0     0      0          0 begins a row
//! definition   3    2      0     1      3          how many optional parts on the path to a value exist
//! values        7                        9
//! ```
//!
//! Lists within lists are not supported here, so a repetition level has one bit. Whatever is equal for all slots or all
//! rows is never stored for each of them: tensors have millions of slots, and all their rows are alike.

use std::ops::Range;

use arrow::buffer::{BooleanBuffer, Buffer};

use super::bits::{put_behind_length, put_hybrid, put_levels, put_run, width_of};

/// Size in bytes after which a data page is closed.
pub(in super::super) const PAGE_BYTES: usize = 1 << 20;

/// Number of rows after which a data page is closed.
pub(in super::super) const PAGE_ROWS: usize = 20_000;

/// Minimum number of slots in a row for its repetition levels to be two runs; fewer are packed.
const MIN_RUN_SLOTS: usize = 256;

/// Positions of the slots of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Slots {
    /// That many rows with one slot each.
    One(usize),
    /// Rows with the same number of slots each, at least one.
    Even { rows: usize, each: usize },
    /// The first slot of each row, followed by the number of all slots.
    Each(Vec<usize>),
}

/// Rows of a column, with their slots and levels.
#[derive(Debug, Clone)]
pub(super) struct LevelLayout {
    pub(super) slots: Slots,
    /// Definition levels. If absent, slots without a value are nulls of the innermost field.
    pub(super) levels: Option<Vec<u8>>,
    /// Definition level of a value, which is the maximum.
    pub(super) max_level: u8,
    /// Whether values may be null.
    pub(super) nullable: bool,
    /// Whether rows are lists.
    pub(super) repeats: bool,
}

/// A page: a range of rows, their slots, and the values in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageRange {
    pub(super) rows: Range<usize>,
    pub(super) slots: Range<usize>,
    pub(super) values: Range<usize>,
}

impl LevelLayout {
    /// Returns the layout of rows with one value each, or null if they are nullable.
    pub(super) fn flat(rows: usize, nullable: bool) -> Self {
        Self { slots: Slots::One(rows), levels: None, max_level: u8::from(nullable), nullable, repeats: false }
    }

    pub(super) fn row_count(&self) -> usize {
        match &self.slots {
            Slots::One(rows) | Slots::Even { rows, .. } => *rows,
            Slots::Each(starts) => starts.len().saturating_sub(1),
        }
    }

    /// Returns the number of slots of all rows.
    pub(super) fn slot_count(&self) -> usize {
        self.slots_of(0..self.row_count()).end
    }

    /// Returns the slots of some rows.
    pub(super) fn slots_of(&self, rows: Range<usize>) -> Range<usize> {
        match &self.slots {
            Slots::One(_) => rows,
            Slots::Even { each, .. } => rows.start * each..rows.end * each,
            Slots::Each(starts) => starts[rows.start]..starts[rows.end],
        }
    }

    /// Returns which slots have a value, from their levels.
    pub(super) fn slot_validity(&self) -> Option<BooleanBuffer> {
        let levels = self.levels.as_ref()?;
        Some(BooleanBuffer::collect_bool(levels.len(), |slot| levels[slot] == self.max_level))
    }

    /// Cuts rows into pages. `bytes` returns the size of the values of some rows, and is called in order. A row is
    /// never divided, because readers that skip rows skip whole pages.
    pub(super) fn cut_by_bytes(&self, mut bytes: impl FnMut(Range<usize>) -> usize) -> Vec<Range<usize>> {
        let (mut pages, mut start, mut filled) = (Vec::new(), 0, 0_usize);
        for row in 0..self.row_count() {
            let more = bytes(self.slots_of(row..row + 1));
            if row > start && (filled.saturating_add(more) > PAGE_BYTES || row - start >= PAGE_ROWS) {
                pages.push(start..row);
                (start, filled) = (row, 0);
            }
            filled = filled.saturating_add(more);
        }
        if start < self.row_count() {
            pages.push(start..self.row_count());
        }
        pages
    }

    /// Cuts rows with values of that many bytes into pages. Rows that are not lists are counted, because they are
    /// small.
    pub(super) fn cut_words(&self, width: usize) -> Vec<Range<usize>> {
        let step = match &self.slots {
            Slots::One(_) => PAGE_ROWS,
            Slots::Even { each, .. } => (PAGE_BYTES / each.saturating_mul(width).max(1)).clamp(1, PAGE_ROWS),
            Slots::Each(_) => return self.cut_by_bytes(|slots| slots.len() * width),
        };
        let rows = self.row_count();
        (0..rows).step_by(step).map(|start| start..rows.min(start + step)).collect()
    }

    /// Appends the levels at the start of a page's body; `validity` states which slots have a value, `values` how many
    /// do.
    pub(super) fn put_page_levels(
        &self,
        rows: &Range<usize>,
        validity: Option<&BooleanBuffer>,
        values: usize,
        body: &mut Vec<u8>,
    ) {
        body.clear();
        if self.repeats {
            put_behind_length(body, |body| self.put_repetition(rows, body));
        }
        if self.max_level > 0 {
            put_behind_length(body, |body| self.put_definition(&self.slots_of(rows.clone()), validity, values, body));
        }
    }

    fn put_repetition(&self, rows: &Range<usize>, body: &mut Vec<u8>) {
        let slots = self.slots_of(rows.clone());
        match &self.slots {
            Slots::Even { each, .. } if *each >= MIN_RUN_SLOTS => rows.clone().for_each(|_| {
                put_run(body, 1, 0, 1);
                put_run(body, *each as u64 - 1, 1, 1);
            }),
            _ if slots.len() == rows.len() => put_run(body, slots.len() as u64, 0, 1),
            _ => {
                let mut bits = vec![u8::MAX; slots.len().div_ceil(8)];
                for row in rows.clone() {
                    let first = self.slots_of(row..row + 1).start - slots.start;
                    bits[first / 8] &= !(1 << (first % 8));
                }
                put_levels(body, &BooleanBuffer::new(Buffer::from_vec(bits), 0, slots.len()));
            }
        }
    }

    fn put_definition(
        &self,
        slots: &Range<usize>,
        validity: Option<&BooleanBuffer>,
        values: usize,
        body: &mut Vec<u8>,
    ) {
        let width = width_of(u64::from(self.max_level));
        match (&self.levels, validity) {
            _ if slots.is_empty() => {}
            _ if values == slots.len() => put_run(body, slots.len() as u64, self.max_level.into(), width),
            (Some(levels), _) => {
                let levels: Vec<u32> = levels[slots.clone()].iter().map(|level| u32::from(*level)).collect();
                put_hybrid(body, &levels, width);
            }
            (None, Some(validity)) if values > 0 && self.max_level == 1 => put_levels(body, validity),
            (None, Some(validity)) if values > 0 => {
                let below = u32::from(self.max_level - 1);
                let levels: Vec<u32> = validity.iter().map(|valid| below + u32::from(valid)).collect();
                put_hybrid(body, &levels, width);
            }
            (None, _) => put_run(body, slots.len() as u64, u32::from(self.max_level - 1), width),
        }
    }

    /// Returns how many slots of some rows have each definition level, `values` of them the highest; empty if all are
    /// equal.
    pub(super) fn level_counts(&self, rows: &Range<usize>, values: usize) -> Vec<usize> {
        let slots = self.slots_of(rows.clone());
        let max_level = usize::from(self.max_level);
        if max_level == 0 {
            return Vec::new();
        }
        let mut counts = vec![0; max_level + 1];
        match &self.levels {
            Some(levels) => levels[slots].iter().for_each(|level| counts[usize::from(*level)] += 1),
            None => (counts[max_level - 1], counts[max_level]) = (slots.len() - values, values),
        }
        counts
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn pages_begin_with_rows() {
        let even = LevelLayout {
            slots: Slots::Even { rows: 5, each: 60_000 },
            levels: None,
            max_level: 3,
            nullable: true,
            repeats: true,
        };
        assert_eq!(even.cut_words(8), [0..2, 2..4, 4..5]);
        assert_eq!(even.cut_words(4), [0..4, 4..5]);
        assert_eq!(even.cut_words(80), [0..1, 1..2, 2..3, 3..4, 4..5]);
        let each = LevelLayout { slots: Slots::Each(vec![0, 1, 200_000, 200_001]), ..even };
        assert_eq!((each.row_count(), each.slot_count(), each.slots_of(1..3)), (3, 200_001, 1..200_001));
        assert_eq!(each.cut_words(8), [0..1, 1..2, 2..3]);
        let flat = LevelLayout::flat(PAGE_ROWS + 1, true);
        assert_eq!(flat.cut_words(8), [0..PAGE_ROWS, PAGE_ROWS..PAGE_ROWS + 1]);
        assert!(LevelLayout::flat(0, true).cut_words(8).is_empty());
    }

    #[test]
    fn levels_are_those_of_the_picture() {
        let layout = LevelLayout {
            slots: Slots::Each(vec![0, 2, 3, 4, 5]),
            levels: Some(vec![3, 2, 0, 1, 3]),
            max_level: 3,
            nullable: true,
            repeats: true,
        };
        let mut body = Vec::new();
        layout.put_page_levels(&(0..4), layout.slot_validity().as_ref(), 2, &mut body);
        // One group of eight each: one with one bit per level, one with two.
        assert_eq!(body, [2, 0, 0, 0, 3, 0b0_0010, 3, 0, 0, 0, 3, 0b0100_1011, 0b11]);
        assert_eq!(layout.level_counts(&(0..4), 2), [1, 1, 1, 2]);
        assert_eq!(layout.level_counts(&(1..3), 0), [1, 1, 0, 0]);
        assert_eq!(layout.slot_validity().unwrap().iter().collect::<Vec<_>>(), [true, false, false, false, true]);
    }

    #[test]
    fn equal_rows_take_few_bytes() {
        let layout = LevelLayout {
            slots: Slots::Even { rows: 2, each: 60_000 },
            levels: None,
            max_level: 3,
            nullable: true,
            repeats: true,
        };
        let mut body = Vec::new();
        layout.put_page_levels(&(0..2), None, 120_000, &mut body);
        let row = [2, 0, 0xbe, 0xa9, 7, 1];
        assert_eq!(body, [&[12, 0, 0, 0], &row[..], &row, &[4, 0, 0, 0, 0x80, 0xd3, 0x0e, 3]].concat());
        assert_eq!(layout.level_counts(&(0..2), 120_000), [0, 0, 0, 120_000]);
    }
}
