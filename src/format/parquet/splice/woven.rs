//! Makes a compressed page of values of a compressed dictionary, without compressing.
//!
//! If nearly every value occurs once, the dictionary is the values in their order, but for those that occurred before:
//!
//! ```text
//! values       a  b  c  b  d  e  a  f
//! dictionary   a  b  c  d  e  f
//! page         a  b  c [b] d  e [a] f     [] copies of what the page already has; the rest is the dictionary's elements
//! ```
//!
//! Snappy's elements copy from a distance, so an element that copies across an inserted value gets a longer distance,
//! and one that is made or copied of bytes around an insertion becomes two. Of the dictionary of several pages, each page
//! takes the elements of its new entries; what they, or its values, copy from entries of earlier pages becomes literal.
//!
//! Elements have a few bytes each and most are copied as they are, so walking over them is several times faster than
//! compressing what they make.

use std::ops::Range;

use super::snappy::{Element, parts, put_copy, put_length, put_literal};

/// A compressed dictionary, which was decompressed: its elements are sound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dictionary<'a> {
    pub(super) packed: &'a [u8],
    pub(super) inflated: &'a [u8],
}

/// How much of a dictionary its pages have taken.
#[derive(Debug, Default)]
pub(super) struct Weaver {
    /// Offset of the next element, and of the bytes that it makes.
    next: usize,
    at: usize,
    /// The rest of an element that made the end of a page, or the bytes before an insertion.
    rest: Option<Rest>,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    /// Offset of the literal's remaining bytes.
    literal: usize,
    back: usize,
    length: usize,
}

impl Weaver {
    /// Appends a page to `out`: `front` as it is, then the bytes of the dictionary in `stretches`. `None` if these do not
    /// have the form above, or the dictionary is damaged; then, no further page can be made.
    pub(super) fn page(
        &mut self,
        dictionary: Dictionary<'_>,
        front: &[u8],
        stretches: &[Range<usize>],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let (length, elements) = parts(dictionary.packed)?;
        if usize::try_from(length) != Ok(dictionary.inflated.len()) {
            return None;
        }
        let total = front.len() + stretches.iter().map(|stretch| stretch.len()).sum::<usize>();
        u32::try_from(total).ok()?;
        put_length(out, total as u64);
        put_literal(out, front);
        let first = stretches.first().map_or(self.at, |stretch| stretch.start.max(self.at));
        let mut page = Page {
            elements,
            inflated: dictionary.inflated,
            first,
            front: front.len(),
            end: front.len(),
            insertions: Vec::new(),
            marks: Vec::new(),
            shift: 0,
            out,
        };
        self.skip_to(elements, first)?;
        for stretch in stretches {
            let old = stretch.start..stretch.end.min(self.at);
            if !old.is_empty() {
                page.insert(self.at, old)?;
            }
            let new = stretch.start.max(self.at)..stretch.end;
            if !new.is_empty() {
                // An entry between was left out.
                if new.start != self.at {
                    return None;
                }
                self.take(&mut page, new.end)?;
            }
        }
        (page.end == total).then_some(())
    }

    /// Parses the next element.
    fn element(&mut self, elements: &[u8]) -> Option<Rest> {
        if let Some(rest) = self.rest.take() {
            return Some(rest);
        }
        let Element { header, length, back } = Element::first(elements.get(self.next..)?)?;
        let literal = self.next + header;
        self.next = literal + if back == 0 { length } else { 0 };
        Some(Rest { literal, back, length })
    }

    /// Keeps what follows the first `taken` bytes of an element.
    fn keep(&mut self, element: Rest, taken: usize) {
        self.at += taken;
        if taken < element.length {
            let literal = element.literal + taken;
            self.rest = Some(Rest { literal, length: element.length - taken, ..element });
        }
    }

    fn skip_to(&mut self, elements: &[u8], start: usize) -> Option<()> {
        while self.at < start {
            let element = self.element(elements)?;
            self.keep(element, element.length.min(start - self.at));
        }
        Some(())
    }

    /// Appends the bytes of the dictionary up to `end`.
    fn take(&mut self, page: &mut Page<'_>, end: usize) -> Option<()> {
        while self.at < end {
            if self.rest.is_none() && self.take_unchanged(page, end) {
                continue;
            }
            let element = self.element(page.elements)?;
            let taken = element.length.min(end - self.at);
            if element.back == 0 {
                page.literal(page.elements.get(element.literal..element.literal + taken)?);
            } else {
                let start = self.at.checked_sub(element.back)?;
                page.copy(start..start + taken)?;
            }
            self.keep(element, taken);
        }
        Some(())
    }

    /// Appends elements that are the same in the page, and end at `end` at the latest; returns whether there were any.
    fn take_unchanged(&mut self, page: &mut Page<'_>, end: usize) -> bool {
        let (start, made) = (self.next, self.at);
        // What is copied from here on lies before it without an insertion between.
        let clear = page.last_insertion();
        while let Some(tag) = page.elements.get(self.next..).and_then(|rest| rest.first_chunk::<5>()) {
            let step = &STEPS[usize::from(tag[0])];
            let back = usize::from(u16::from_le_bytes([tag[1], tag[2]]) & step.mask | step.high);
            let made = self.at + usize::from(step.made);
            if step.stored == 0 || made > end || self.at < clear + back {
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

/// What the tag of an element tells.
#[derive(Clone, Copy)]
struct Step {
    /// Bytes that it is stored in; 0 if the tag does not tell, or it copies from far away.
    stored: u8,
    /// Bytes that it makes.
    made: u8,
    /// Which of the 16 bits after the tag are the distance, and what the tag adds to it; 0 for a literal.
    mask: u16,
    high: u16,
}

const STEPS: [Step; 256] = {
    let mut steps = [Step { stored: 0, made: 0, mask: 0, high: 0 }; 256];
    let mut at = 0;
    while at < steps.len() {
        #[expect(clippy::cast_possible_truncation, reason = "there are 256 tags")]
        let tag = at as u8;
        let long = tag >> 2;
        let step = &mut steps[at];
        match tag & 3 {
            0 if long < 60 => *step = Step { stored: long + 2, made: long + 1, mask: 0, high: 0 },
            1 => *step = Step { stored: 2, made: 4 + (long & 7), mask: 0xff, high: ((tag >> 5) as u16) << 8 },
            2 => *step = Step { stored: 3, made: long + 1, mask: u16::MAX, high: 0 },
            _ => {}
        }
        at += 1;
    }
    steps
};

/// Bytes of the dictionary for which one mark is kept.
const MARKED: usize = 256;

/// A page in progress.
struct Page<'a> {
    elements: &'a [u8],
    inflated: &'a [u8],
    /// Where the page's part of the dictionary begins, and where its bytes begin in the page.
    first: usize,
    front: usize,
    /// Number of bytes of the page so far.
    end: usize,
    /// Where values were inserted into that part, and the bytes of all insertions up to there.
    insertions: Vec<(usize, usize)>,
    /// For every [`MARKED`] bytes of the part, the number of insertions before them.
    marks: Vec<usize>,
    /// Bytes of all insertions.
    shift: usize,
    out: &'a mut Vec<u8>,
}

impl Page<'_> {
    /// Returns the part's offset of the last insertion, or of its first byte.
    fn last_insertion(&self) -> usize {
        self.insertions.last().map_or(self.first, |(at, _)| *at)
    }

    fn literal(&mut self, bytes: &[u8]) {
        put_literal(self.out, bytes);
        self.end += bytes.len();
    }

    /// Inserts old bytes of the dictionary before those at `at`.
    fn insert(&mut self, at: usize, old: Range<usize>) -> Option<()> {
        let length = old.len();
        self.copy(old)?;
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

    /// Returns how far insertions have moved a byte of the part, and where the next insertion is.
    fn moved(&self, at: usize) -> (usize, usize) {
        let marked = self.marks.get((at - self.first) / MARKED).copied().unwrap_or(self.insertions.len());
        let before = marked + self.insertions[marked..].iter().take_while(|(place, _)| *place <= at).count();
        let shift = before.checked_sub(1).map_or(0, |last| self.insertions[last].1);
        (shift, self.insertions.get(before).map_or(usize::MAX, |(place, _)| *place))
    }

    /// Copies bytes of the dictionary, which are in the page unless they precede its part.
    fn copy(&mut self, from: Range<usize>) -> Option<()> {
        let Range { mut start, end } = from;
        if start < self.first {
            let before = self.inflated.get(start..end.min(self.first))?;
            self.literal(before);
            start = end.min(self.first);
        }
        while start < end {
            let (shift, next) = self.moved(start);
            let length = end.min(next) - start;
            let place = self.front + (start - self.first) + shift;
            put_copy(self.out, self.end.checked_sub(place).filter(|back| *back > 0)?, length);
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

    /// Weaves pages of values, which `order` selects from the entries, and returns whether each page has its values.
    fn weave(entries: &[Vec<u8>], pages: &[Vec<usize>], front: &[u8]) -> Result<usize, TestCaseError> {
        let mut places = vec![0];
        let inflated = entries.concat();
        entries.iter().for_each(|entry| places.push(places[places.len() - 1] + entry.len()));
        let packed = snap::raw::Encoder::new().compress_vec(&inflated).unwrap();
        let dictionary = Dictionary { packed: &packed, inflated: &inflated };
        let (mut weaver, mut stored) = (Weaver::default(), 0);
        for page in pages {
            let mut stretches: Vec<Range<usize>> = Vec::new();
            for entry in page {
                let range = places[*entry]..places[entry + 1];
                match stretches.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => stretches.push(range),
                }
            }
            let mut out = Vec::new();
            weaver.page(dictionary, front, &stretches, &mut out).unwrap();
            let expected = [front.to_vec(), page.iter().flat_map(|entry| entries[*entry].clone()).collect()].concat();
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
            page in 1_usize..400, front in prop::collection::vec(any::<u8>(), 0..90)
        ) {
            let entries: Vec<Vec<u8>> =
                entries.into_iter().map(|text| [&u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()).collect();
            let mut order: Vec<usize> = (0..entries.len()).collect();
            for (at, of, times) in repeats {
                let at = at % (order.len() + 1);
                if let Some(old) = at.checked_sub(1).map(|last| order[of.index(last + 1)]) {
                    (0..times).for_each(|_| order.insert(at, old));
                }
            }
            let pages: Vec<Vec<usize>> = order.chunks(page).map(<[usize]>::to_vec).collect();
            weave(&entries, &pages, &front)?;
            // A slice begins after other entries.
            let begin = order.iter().position(|entry| *entry == entries.len() / 2).unwrap();
            weave(&entries, &[order[begin..].to_vec()], &front)?;
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
        let stored = weave(&entries, std::slice::from_ref(&order), b"levels").unwrap();
        let alone = weave(&entries, &[(0..3000).collect()], b"levels").unwrap();
        assert!(stored < alone + 50 * 20, "{stored} {alone}");
    }

    #[test]
    fn pages_of_another_form_are_refused() {
        let inflated = b"aaaabbbbccccdddd".to_vec();
        let packed = snap::raw::Encoder::new().compress_vec(&inflated).unwrap();
        let dictionary = Dictionary { packed: &packed, inflated: &inflated };
        for stretches in [&[0..4, 8..12][..], &[0..4, 4..20], &[8..12, 0..4, 4..16, 20..24]] {
            assert!(Weaver::default().page(dictionary, b"", stretches, &mut Vec::new()).is_none(), "{stretches:?}");
        }
        let short = Dictionary { packed: &packed, inflated: b"aaaa" };
        assert!(Weaver::default().page(short, b"", std::slice::from_ref(&(0..4)), &mut Vec::new()).is_none());
        let mut empty = Vec::new();
        Weaver::default().page(dictionary, b"nulls", &[], &mut empty).unwrap();
        assert_eq!(snap::raw::Decoder::new().decompress_vec(&empty).unwrap(), b"nulls");
    }
}
