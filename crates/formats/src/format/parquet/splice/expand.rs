//! Expands a compressed dictionary into a page of values without compressing anything again.
//!
//! If nearly every value occurs once, the dictionary has the values in their order, except for repeated ones:
//!
//! ```text
//! values       a  b  c  b  d  e  a  f
//! dictionary   a  b  c  d  e  f
//! page         a  b  c [b] d  e [a] f     elements of the dictionary; [] copies of bytes that the page already has
//! ```
//!
//! A snappy element copies bytes from a distance. If a repeated value was inserted in between, the distance grows; an
//! element that produces or copies bytes on both sides of an insertion is split. If a dictionary has several pages,
//! each page takes the elements of its new entries, and bytes of entries of earlier pages become literals.
//!
//! Elements take a few bytes each and most are copied unchanged, so this is several times faster than compression.

use std::ops::Range;

use super::snappy::{Element, parse_length, put_copy, put_length, put_literal};

/// A compressed dictionary, which was decompressed: its elements are sound.
#[derive(Debug, Clone, Copy)]
pub(super) struct SnappyDictionary<'a> {
    pub(super) packed: &'a [u8],
    pub(super) inflated: &'a [u8],
}

/// Position in a dictionary: the end of what previous pages contain.
#[derive(Debug, Default)]
pub(super) struct Expander {
    /// Offset of the next element, and of the bytes that it produces.
    next: usize,
    at: usize,
    /// Remainder of an element that was split.
    rest: Option<Rest>,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    /// Offset of the literal's remaining bytes.
    literal: usize,
    distance: usize,
    length: usize,
}

impl Expander {
    /// Appends a page to `out`: `prefix` as a literal, then the given byte ranges of the dictionary. `None` if their
    /// order does not match the dictionary, or the dictionary is damaged; no further page can be expanded then.
    pub(super) fn expand_page(
        &mut self,
        dictionary: SnappyDictionary<'_>,
        prefix: &[u8],
        ranges: &[Range<usize>],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let (length, elements) = parse_length(dictionary.packed)?;
        if usize::try_from(length) != Ok(dictionary.inflated.len()) {
            return None;
        }
        let total = prefix.len() + ranges.iter().map(|range| range.len()).sum::<usize>();
        u32::try_from(total).ok()?;
        put_length(out, total as u64);
        put_literal(out, prefix);
        let first = ranges.first().map_or(self.at, |range| range.start.max(self.at));
        let mut page = ExpandedPage {
            elements,
            inflated: dictionary.inflated,
            first,
            prefix: prefix.len(),
            end: prefix.len(),
            insertions: Vec::new(),
            marks: Vec::new(),
            shift: 0,
            out,
        };
        self.skip_to(elements, first)?;
        for range in ranges {
            let old = range.start..range.end.min(self.at);
            if !old.is_empty() {
                page.insert(self.at, old)?;
            }
            let new = range.start.max(self.at)..range.end;
            if !new.is_empty() {
                // An entry was skipped.
                if new.start != self.at {
                    return None;
                }
                self.append_until(&mut page, new.end)?;
            }
        }
        (page.end == total).then_some(())
    }

    /// Parses the next element.
    fn next_element(&mut self, elements: &[u8]) -> Option<Rest> {
        if let Some(rest) = self.rest.take() {
            return Some(rest);
        }
        let Element { header, length, distance } = Element::parse_first(elements.get(self.next..)?)?;
        let literal = self.next + header;
        self.next = literal + if distance == 0 { length } else { 0 };
        Some(Rest { literal, distance, length })
    }

    /// Keeps what follows the first `taken` bytes of an element.
    fn keep_rest(&mut self, element: Rest, taken: usize) {
        self.at += taken;
        if taken < element.length {
            let literal = element.literal + taken;
            self.rest = Some(Rest { literal, length: element.length - taken, ..element });
        }
    }

    fn skip_to(&mut self, elements: &[u8], start: usize) -> Option<()> {
        while self.at < start {
            let element = self.next_element(elements)?;
            self.keep_rest(element, element.length.min(start - self.at));
        }
        Some(())
    }

    /// Appends the bytes of the dictionary up to `end`.
    fn append_until(&mut self, page: &mut ExpandedPage<'_>, end: usize) -> Option<()> {
        while self.at < end {
            if self.rest.is_none() && self.take_unchanged(page, end) {
                continue;
            }
            let element = self.next_element(page.elements)?;
            let taken = element.length.min(end - self.at);
            if element.distance == 0 {
                page.append_literal(page.elements.get(element.literal..element.literal + taken)?);
            } else {
                let start = self.at.checked_sub(element.distance)?;
                page.append_copy(start..start + taken)?;
            }
            self.keep_rest(element, taken);
        }
        Some(())
    }

    /// Appends elements that need no change and end at `end` at the latest; returns whether there were any.
    fn take_unchanged(&mut self, page: &mut ExpandedPage<'_>, end: usize) -> bool {
        let (start, made) = (self.next, self.at);
        // There is no insertion after this offset.
        let clear = page.last_insertion();
        while let Some(tag) = page.elements.get(self.next..).and_then(|rest| rest.first_chunk::<5>()) {
            let step = &STEPS[usize::from(tag[0])];
            let distance = usize::from(u16::from_le_bytes([tag[1], tag[2]]) & step.mask | step.high);
            let made = self.at + usize::from(step.length);
            if step.stored == 0 || made > end || self.at < clear + distance {
                break;
            }
            self.next += usize::from(step.stored);
            self.at = made;
        }
        let Some(unchanged) = page.elements.get(start..self.next).filter(|some| !some.is_empty()) else {
            (self.next, self.at) = (start, made);
            return false;
        };
        page.out.extend_from_slice(unchanged);
        page.end += self.at - made;
        true
    }
}

/// What the tag of an element determines.
#[derive(Clone, Copy)]
struct TagInfo {
    /// Stored bytes; 0 if the tag does not determine them, or the distance has four bytes.
    stored: u8,
    /// Uncompressed bytes.
    length: u8,
    /// Mask of the 16 bits after the tag that belong to the distance, and its upper bits from the tag; 0 for a literal.
    mask: u16,
    high: u16,
}

const STEPS: [TagInfo; 256] = {
    let mut steps = [TagInfo { stored: 0, length: 0, mask: 0, high: 0 }; 256];
    let mut at = 0;
    while at < steps.len() {
        #[expect(clippy::cast_possible_truncation, reason = "there are 256 tags")]
        let tag = at as u8;
        let long = tag >> 2;
        let step = &mut steps[at];
        match tag & 3 {
            0 if long < 60 => *step = TagInfo { stored: long + 2, length: long + 1, mask: 0, high: 0 },
            1 => *step = TagInfo { stored: 2, length: 4 + (long & 7), mask: 0xff, high: ((tag >> 5) as u16) << 8 },
            2 => *step = TagInfo { stored: 3, length: long + 1, mask: u16::MAX, high: 0 },
            _ => {}
        }
        at += 1;
    }
    steps
};

/// Bytes of the dictionary for which one mark is kept.
const MARKED: usize = 256;

/// A page in progress.
struct ExpandedPage<'a> {
    elements: &'a [u8],
    inflated: &'a [u8],
    /// Start of the page's part of the dictionary, and of that part's bytes in the page.
    first: usize,
    prefix: usize,
    /// Number of bytes of the page so far.
    end: usize,
    /// For each insertion its offset in the dictionary, and the bytes of all insertions so far.
    insertions: Vec<(usize, usize)>,
    /// For every [`MARKED`] bytes of the part, the number of insertions before them.
    marks: Vec<usize>,
    /// Bytes of all insertions.
    shift: usize,
    out: &'a mut Vec<u8>,
}

impl ExpandedPage<'_> {
    /// Returns the offset of the last insertion, or of the first byte of the part.
    fn last_insertion(&self) -> usize {
        self.insertions.last().map_or(self.first, |(at, _)| *at)
    }

    fn append_literal(&mut self, bytes: &[u8]) {
        put_literal(self.out, bytes);
        self.end += bytes.len();
    }

    /// Inserts earlier bytes of the dictionary before those at `at`.
    fn insert(&mut self, at: usize, old: Range<usize>) -> Option<()> {
        let length = old.len();
        self.append_copy(old)?;
        self.shift += length;
        match self.insertions.last_mut() {
            Some((last, shift)) if *last == at => *shift = self.shift,
            _ => {
                self.marks.resize((at - self.first) / MARKED + 1, self.insertions.len());
                self.insertions.push((at, self.shift));
            }
        }
        Some(())
    }

    /// Returns the bytes inserted before a byte of the part, and the offset of the next insertion.
    fn shift_before(&self, at: usize) -> (usize, usize) {
        let marked = self.marks.get((at - self.first) / MARKED).copied().unwrap_or(self.insertions.len());
        let before = marked + self.insertions[marked..].iter().take_while(|(place, _)| *place <= at).count();
        let shift = before.checked_sub(1).map_or(0, |last| self.insertions[last].1);
        (shift, self.insertions.get(before).map_or(usize::MAX, |(place, _)| *place))
    }

    /// Appends bytes of the dictionary again: as copies, or as a literal if they precede the page's part.
    fn append_copy(&mut self, from: Range<usize>) -> Option<()> {
        let Range { mut start, end } = from;
        if start < self.first {
            let before = self.inflated.get(start..end.min(self.first))?;
            self.append_literal(before);
            start = end.min(self.first);
        }
        while start < end {
            let (shift, next) = self.shift_before(start);
            let length = end.min(next) - start;
            let place = self.prefix + (start - self.first) + shift;
            put_copy(self.out, self.end.checked_sub(place).filter(|distance| *distance > 0)?, length);
            self.end += length;
            start += length;
        }
        Some(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Expands pages of these entries and checks their values; returns the compressed size.
    fn expand(entries: &[Vec<u8>], pages: &[Vec<usize>], prefix: &[u8]) -> Result<usize, TestCaseError> {
        let mut places = vec![0];
        let inflated = entries.concat();
        entries.iter().for_each(|entry| places.push(places[places.len() - 1] + entry.len()));
        let packed = snap::raw::Encoder::new().compress_vec(&inflated).unwrap();
        let dictionary = SnappyDictionary { packed: &packed, inflated: &inflated };
        let (mut expander, mut stored) = (Expander::default(), 0);
        for page in pages {
            let mut ranges: Vec<Range<usize>> = Vec::new();
            for entry in page {
                let range = places[*entry]..places[entry + 1];
                match ranges.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => ranges.push(range),
                }
            }
            let mut out = Vec::new();
            expander.expand_page(dictionary, prefix, &ranges, &mut out).unwrap();
            let expected = [prefix.to_vec(), page.iter().flat_map(|entry| entries[*entry].clone()).collect()].concat();
            prop_assert!(snap::raw::Decoder::new().decompress_vec(&out).unwrap() == expected);
            stored += out.len();
        }
        Ok(stored)
    }

    proptest! {
        #[test]
        fn pages_have_their_values(
            entries in prop::collection::vec("[ab]{0,3}|(abcdefgh|hgfedcba|xyz){1,30}|[a-z]{40,90}", 1..300),
            repeats in prop::collection::vec((0_usize..1000, any::<prop::sample::Index>(), 1_usize..4), 0..80),
            page in 1_usize..400, prefix in prop::collection::vec(any::<u8>(), 0..90)
        ) {
            let entries: Vec<Vec<u8>> =
                entries.into_iter().map(|text| [&u32::try_from(text.len()).unwrap().to_le_bytes(),
                    text.as_bytes()].concat()).collect();
            let mut order: Vec<usize> = (0..entries.len()).collect();
            for (at, of, times) in repeats {
                let at = at % (order.len() + 1);
                if let Some(old) = at.checked_sub(1).map(|last| order[of.index(last + 1)]) {
                    (0..times).for_each(|_| order.insert(at, old));
                }
            }
            let pages: Vec<Vec<usize>> = order.chunks(page).map(<[usize]>::to_vec).collect();
            expand(&entries, &pages, &prefix)?;
            // A slice begins after other entries.
            let begin = order.iter().position(|entry| *entry == entries.len() / 2).unwrap();
            expand(&entries, &[order[begin..].to_vec()], &prefix)?;
        }
    }

    #[test]
    fn values_from_far_away_are_copied() {
        let entry = |i: u32| -> Vec<u8> {
            let word = |at: u32| (i * 31 + at).wrapping_mul(2_654_435_761).to_be_bytes();
            (0..30).flat_map(word).chain(*b"the same in all").collect()
        };
        let entries: Vec<_> = (0..3000).map(entry).collect();
        let mut order: Vec<usize> = (0..3000).collect();
        (0..50).for_each(|i| order.insert(2900 + i, i * 50));
        let stored = expand(&entries, std::slice::from_ref(&order), b"levels").unwrap();
        let alone = expand(&entries, &[(0..3000).collect()], b"levels").unwrap();
        assert!(stored < alone + 50 * 20, "{stored} {alone}");
    }

    #[test]
    fn pages_of_another_form_are_refused() {
        let inflated = b"aaaabbbbccccdddd".to_vec();
        let packed = snap::raw::Encoder::new().compress_vec(&inflated).unwrap();
        let dictionary = SnappyDictionary { packed: &packed, inflated: &inflated };
        for ranges in [&[0..4, 8..12][..], &[0..4, 4..20], &[8..12, 0..4, 4..16, 20..24]] {
            assert!(Expander::default().expand_page(dictionary, b"", ranges, &mut Vec::new()).is_none(), "{ranges:?}");
        }
        let short = SnappyDictionary { packed: &packed, inflated: b"aaaa" };
        assert!(Expander::default().expand_page(short, b"", std::slice::from_ref(&(0..4)), &mut Vec::new()).is_none());
        let mut empty = Vec::new();
        Expander::default().expand_page(dictionary, b"nulls", &[], &mut empty).unwrap();
        assert_eq!(snap::raw::Decoder::new().decompress_vec(&empty).unwrap(), b"nulls");
    }
}
