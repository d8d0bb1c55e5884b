//! Pages of Parquet of which several blocks have a part: decoded once, copied by each.
//!
//! ```text
//! pages     |        |        |        |        |
//! blocks    | a        | b          | c         |       a page at a border is shared, those between are decoded alone
//! ```
//!
//! Neighbouring lanes begin with neighbouring blocks, and a window that ends in a block leaves the rest to the next.
//! What is copied out of a shared page does not keep it in memory.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::array::RecordBatch;

use crate::error::Result;

/// Share of the bytes that one page may have: a larger one is decoded again.
const PAGE_SHARE: usize = 4;

/// What is decoded of a block, in the order of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PageSpan {
    /// Rows that no other block has a page of.
    Alone(Range<u64>),
    /// Rows of a page, which is given by its own rows.
    Shared(Range<u64>, Range<u64>),
}

/// Cuts rows where pages are shared. `starts` are the first rows of pages, and the number of rows.
pub(super) fn page_spans(rows: &Range<u64>, starts: &[u64]) -> Vec<PageSpan> {
    let page_of = |row: u64| {
        let next = starts.partition_point(|start| *start <= row);
        Some(*starts.get(next.checked_sub(1)?)?..*starts.get(next)?)
    };
    let Some((first, last)) = page_of(rows.start).zip(rows.end.checked_sub(1).and_then(page_of)) else {
        return vec![PageSpan::Alone(rows.clone())];
    };
    let mut out = Vec::new();
    let (mut start, mut end) = (rows.start, rows.end);
    if first.start < start {
        let part = start..end.min(first.end);
        start = part.end;
        out.push(PageSpan::Shared(part, first));
    }
    let tail = (start < end && last.end > end).then(|| {
        let part = start.max(last.start)..end;
        end = part.start;
        PageSpan::Shared(part, last)
    });
    if start < end {
        out.push(PageSpan::Alone(start..end));
    }
    out.extend(tail);
    out
}

/// A page that is decoded by whoever needs it first.
type SharedPage = Arc<Mutex<Option<RecordBatch>>>;

/// Decoded pages, by shard and first row, the ones used last at the end.
#[derive(Debug)]
pub(super) struct SharedPages {
    kept: Mutex<VecDeque<((usize, u64), SharedPage)>>,
    most_bytes: usize,
}

impl SharedPages {
    /// Makes a place for pages of so many bytes in all.
    pub(super) fn new(bytes: u64) -> Self {
        Self { kept: Mutex::default(), most_bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }
    }

    /// Returns a page, which `decode` reads unless it is kept. Threads that need it meanwhile wait for it.
    pub(super) fn page(
        &self,
        shard: usize,
        first_row: u64,
        decode: impl FnOnce() -> Result<RecordBatch>,
    ) -> Result<RecordBatch> {
        let key = (shard, first_row);
        let page = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let at = kept.iter().position(|(known, _)| *known == key);
            let found = at.and_then(|at| kept.remove(at)).unwrap_or_else(|| (key, SharedPage::default()));
            let page = Arc::clone(&found.1);
            kept.push_back(found);
            page
        };
        let mut decoded = page.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = &*decoded {
            return Ok(rows.clone());
        }
        let rows = decode()?;
        if rows.get_array_memory_size() <= self.most_bytes / PAGE_SHARE {
            *decoded = Some(rows.clone());
        }
        drop(decoded);
        self.drop_oldest();
        Ok(rows)
    }

    /// Drops pages until the others have few enough bytes. Those that are being decoded have none yet.
    fn drop_oldest(&self) {
        let bytes = |page: &SharedPage| {
            let rows = page.try_lock().ok();
            rows.and_then(|rows| rows.as_ref().map(RecordBatch::get_array_memory_size)).unwrap_or(0)
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: usize = kept.iter().map(|(_, page)| bytes(page)).sum();
        while all > self.most_bytes {
            let Some((_, oldest)) = kept.pop_front() else { break };
            all -= bytes(&oldest);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{ArrayRef, UInt8Array};

    use super::*;
    use crate::error::Error;

    #[test]
    fn only_pages_at_borders_are_shared() {
        use PageSpan::{Alone, Shared};
        let starts = [0, 10, 20, 30, 35];
        let spans = |rows: Range<u64>| page_spans(&rows, &starts);
        assert_eq!(spans(10..30), [Alone(10..30)]);
        assert_eq!(spans(0..35), [Alone(0..35)]);
        assert_eq!(spans(3..32), [Shared(3..10, 0..10), Alone(10..30), Shared(30..32, 30..35)]);
        assert_eq!(spans(3..15), [Shared(3..10, 0..10), Shared(10..15, 10..20)]);
        assert_eq!(spans(12..18), [Shared(12..18, 10..20)]);
        assert_eq!(spans(10..18), [Shared(10..18, 10..20)]);
        assert_eq!(spans(12..20), [Shared(12..20, 10..20)]);
        assert_eq!(spans(3..40), [Alone(3..40)]);
        assert_eq!(page_spans(&(3..7), &[]), [Alone(3..7)]);
    }

    #[test]
    fn a_page_is_decoded_once_while_there_is_room() {
        let page = |rows: usize| {
            let column: ArrayRef = Arc::new(UInt8Array::from(vec![7; rows]));
            RecordBatch::try_from_iter([("x", column)]).unwrap()
        };
        let pages = SharedPages::new(5000);
        let unexpected = || Err(Error::internal("decoded again"));
        for first in 0..4 {
            pages.page(0, first, || Ok(page(1000))).unwrap();
        }
        assert_eq!(pages.page(0, 0, unexpected).unwrap().num_rows(), 1000);
        pages.page(1, 0, || Ok(page(1000))).unwrap();
        // The page that was used longest ago made room.
        assert!(pages.page(0, 1, unexpected).is_err());
        assert!(pages.page(0, 0, unexpected).is_ok());
        assert!(pages.page(0, 9, unexpected).is_err());
        pages.page(2, 0, || Ok(page(4000))).unwrap();
        assert!(pages.page(2, 0, unexpected).is_err());
    }
}
