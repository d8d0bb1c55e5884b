//! Prefetching of known ranges of a remote object: they are requested together and held until they are used.
//!
//! ```text
//! wanted     ##..##......................###.#      chunks of one variable, and between them those of others
//! requests   ------                      -----      small gaps are fetched with their neighbours
//! ```
//!
//! A request takes as long as transferring a few hundred kilobytes, so small gaps are read rather than skipped. Gaps
//! never add up to more than the wanted bytes, so at most twice the wanted bytes are fetched. The decision depends only
//! on the ranges, never on time.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

/// Maximum bytes of a gap that is fetched with its neighbours.
const MAX_GAP: u64 = 1 << 20;

/// Maximum bytes per request, unless a single piece is larger.
const MAX_REQUEST: u64 = 8 << 20;

/// Maximum spans that are examined before a lookup gives up.
const LOOK_BACK: usize = 64;

/// Returns the requests that cover all wanted ranges, in order; each range lies within one of them.
pub(super) fn covering_requests(mut wanted: Vec<Range<u64>>) -> Vec<Range<u64>> {
    wanted.retain(|range| range.start < range.end);
    wanted.sort_by_key(|range| (range.start, range.end));
    let mut pieces: Vec<Range<u64>> = Vec::with_capacity(wanted.len());
    for range in wanted {
        match pieces.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => pieces.push(range),
        }
    }
    let joined = plan_joins(&pieces);
    let mut requests: Vec<Range<u64>> = Vec::new();
    for (number, piece) in pieces.into_iter().enumerate() {
        match requests.last_mut() {
            Some(last) if joined[number] && piece.end - last.start <= MAX_REQUEST => last.end = piece.end,
            _ => requests.push(piece),
        }
    }
    requests
}

/// Decides for each piece whether it is fetched with the previous one: the smallest gaps are closed until they add up
/// to the size of the pieces.
fn plan_joins(pieces: &[Range<u64>]) -> Vec<bool> {
    let mut room: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
    let mut gaps: Vec<(u64, usize)> =
        pieces.windows(2).enumerate().map(|(number, pair)| (pair[1].start - pair[0].end, number + 1)).collect();
    gaps.sort_unstable();
    let mut joined = vec![false; pieces.len()];
    for (gap, number) in gaps {
        if gap > MAX_GAP || gap > room {
            break;
        }
        room -= gap;
        joined[number] = true;
    }
    joined
}

/// Prefetched bytes of an object.
#[derive(Debug, Default)]
pub(super) struct Fetched(Mutex<Spans>);

#[derive(Debug, Default)]
struct Spans {
    next: u64,
    /// Keyed by start and a serial number, because several spans may share a start.
    held: BTreeMap<(u64, u64), Bytes>,
}

impl Fetched {
    fn lock_spans(&self) -> MutexGuard<'_, Spans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a range if one span contains all of it.
    pub(super) fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        let spans = self.lock_spans();
        let before = spans.held.range(..=(range.start, u64::MAX)).rev().take(LOOK_BACK);
        before.into_iter().find_map(|((start, _), bytes)| slice_range(*start, bytes, range))
    }

    /// Holds spans, given by start and bytes, until the returned guard is dropped.
    pub(super) fn hold_spans(self: &Arc<Self>, found: impl Iterator<Item = (u64, Bytes)>) -> Prefetched {
        let mut spans = self.lock_spans();
        let mut keys = Vec::new();
        for (start, bytes) in found {
            let key = (start, spans.next);
            spans.next += 1;
            spans.held.insert(key, bytes);
            keys.push(key);
        }
        drop(spans);
        Prefetched { fetched: Arc::clone(self), keys }
    }
}

/// Returns a range of bytes that begin at `start` if they contain all of it.
pub(super) fn slice_range(start: u64, bytes: &Bytes, range: &Range<u64>) -> Option<Bytes> {
    let at = |offset: u64| usize::try_from(offset.checked_sub(start)?).ok();
    let (first, end) = (at(range.start)?, at(range.end)?);
    (first <= end && end <= bytes.len()).then(|| bytes.slice(first..end))
}

/// Guard that keeps prefetched ranges in memory.
#[derive(Debug)]
pub struct Prefetched {
    fetched: Arc<Fetched>,
    keys: Vec<(u64, u64)>,
}

impl Drop for Prefetched {
    fn drop(&mut self) {
        let mut spans = self.fetched.lock_spans();
        self.keys.iter().for_each(|key| drop(spans.held.remove(key)));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn bytes_of(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    #[test]
    fn requests_cover_all_wanted_ranges_and_at_most_twice_their_bytes() {
        // Pieces of all sizes, gaps of all sizes, in random order.
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for (most_piece, most_gap) in [(4 << 10, 20 << 10), (64 << 10, 64 << 10), (1 << 20, 10), (9 << 20, 3 << 20)] {
            let mut at = 0;
            let mut wanted = Vec::new();
            for _ in 0..200 {
                at += random(most_gap);
                let piece = at..at + 1 + random(most_piece);
                at = piece.end;
                wanted.insert(usize::try_from(random(wanted.len() as u64 + 1)).unwrap(), piece);
            }
            let found = covering_requests(wanted.clone());
            assert!(found.is_sorted_by_key(|range| range.start));
            assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start), "{found:?}");
            assert!(bytes_of(&found) <= 2 * bytes_of(&wanted));
            for piece in &wanted {
                assert!(found.iter().any(|range| range.start <= piece.start && piece.end <= range.end), "{piece:?}");
            }
        }
    }

    #[test]
    fn neighbouring_ranges_are_one_request_up_to_a_limit() {
        let neighbours = |count: u64, size: u64| (0..count).map(|n| n * size..(n + 1) * size).collect();
        assert_eq!(covering_requests(neighbours(1000, 4096)).as_slice(), std::slice::from_ref(&(0..4_096_000)));
        assert_eq!(covering_requests(neighbours(12, 1 << 20)), [0..8 << 20, 8 << 20..12 << 20]);
        assert_eq!(covering_requests(neighbours(2, 10 << 20)), [0..10 << 20, 10 << 20..20 << 20]);
        // A small gap between large pieces is fetched; a large gap between small pieces is not.
        assert_eq!(
            covering_requests(vec![1000..5000, 0..900, 4000..6000, 9_000_000..9_000_001]),
            [0..6000, 9_000_000..9_000_001]
        );
        assert_eq!(covering_requests(vec![0..10, 100..110]), [0..10, 100..110]);
        assert!(covering_requests(vec![5..5, 7..7]).is_empty());
    }

    #[test]
    fn fetched_ranges_are_held_until_the_guard_is_dropped() {
        let fetched = Arc::new(Fetched::default());
        let span = |start: u64, text: &'static [u8]| (start, Bytes::from_static(text));
        let one = fetched.hold_spans([span(10, b"abcdef"), span(30, b"xyz")].into_iter());
        let other = fetched.hold_spans([span(10, b"ab"), span(12, b"c")].into_iter());
        assert_eq!(fetched.get(&(12..15)).unwrap(), &b"cde"[..]);
        assert_eq!((fetched.get(&(12..17)), fetched.get(&(9..11)), fetched.get(&(29..31))), (None, None, None));
        drop(one);
        assert_eq!((fetched.get(&(10..12)).unwrap(), fetched.get(&(10..13))), (Bytes::from_static(b"ab"), None));
        drop(other);
        assert!(fetched.get(&(10..12)).is_none() && fetched.lock_spans().held.is_empty());
    }
}
