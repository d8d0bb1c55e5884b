//! Places of members in tar shards, for indexes: those that framing noted, or that a scanner of headers finds.
//!
//! Readers group neighbours by the name up to the first dot of its last component, as does [`MemberScanner`].

use std::ops::Range;

use super::{
    entry::{self, EntryKind, HeaderOutcome},
    header::{BLOCK, padding_length},
    scan::key_of,
};
use crate::error::{Error, Result};

/// Position of a member in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Full name, `key.extension`.
    pub name: &'a str,
    /// Length of the key in the name.
    pub key: usize,
    /// Whether it is the first member of a sample.
    pub first: bool,
    /// Offset of its first header, a pax header included.
    pub header: u64,
    /// Offset of its content.
    pub content: u64,
    /// Bytes of content.
    pub size: u64,
}

impl Place<'_> {
    /// Returns the name after the key and its dot.
    pub fn extension(&self) -> &str {
        self.name.get(self.key + 1..).unwrap_or_default()
    }
}

/// Members of records that are framed together, in their order; offsets are from the first byte of the first record.
#[derive(Debug, Default)]
pub struct MemberPlaces {
    /// The names, without anything between.
    names: String,
    places: Vec<MemberPlace>,
}

/// A [`Place`] whose name ends at byte `name_end` of all names.
#[derive(Debug)]
struct MemberPlace {
    name_end: usize,
    key: usize,
    first: bool,
    header: u64,
    content: u64,
    size: u64,
}

impl MemberPlaces {
    /// Finds the members of whole records.
    ///
    /// # Errors
    /// If the bytes are not a tar, or a name is one that readers skip.
    pub fn from_records(bytes: &[u8]) -> Result<Self> {
        let mut members = Self::default();
        MemberScanner::default().feed(bytes, &mut |place| {
            members.push(place);
            Ok(())
        })?;
        Ok(members)
    }

    /// Adds the next member.
    pub fn push(&mut self, place: Place<'_>) {
        self.names.push_str(place.name);
        let Place { key, first, header, content, size, .. } = place;
        self.places.push(MemberPlace { name_end: self.names.len(), key, first, header, content, size });
    }

    /// Returns the members whose headers begin in a range of bytes, as they are when that range begins at byte `at` of
    /// a shard.
    pub fn in_range(&self, range: Range<u64>, at: u64) -> impl Iterator<Item = Place<'_>> {
        let index = |offset: u64| self.places.partition_point(|place| place.header < offset);
        let (from, to) = (index(range.start), index(range.end));
        let mut name_start = from.checked_sub(1).and_then(|i| self.places.get(i)).map_or(0, |before| before.name_end);
        self.places.get(from..to).unwrap_or_default().iter().map(move |place| {
            let MemberPlace { name_end, key, first, header, content, size } = *place;
            let name = self.names.get(name_start..name_end).unwrap_or_default();
            name_start = name_end;
            let moved = |offset: u64| offset - range.start + at;
            Place { name, key, first, header: moved(header), content: moved(content), size }
        })
    }
}

/// Finds members in a tar that arrives in pieces of any size. It holds one header in memory, never content.
#[derive(Debug)]
pub struct MemberScanner {
    window: Vec<u8>,
    wanted: usize,
    /// Bytes of content and padding still expected.
    skip: u64,
    offset: u64,
    key: Vec<u8>,
    samples: u64,
}

impl Default for MemberScanner {
    fn default() -> Self {
        Self { window: Vec::new(), wanted: BLOCK, skip: 0, offset: 0, key: Vec::new(), samples: 0 }
    }
}

impl MemberScanner {
    /// Processes the next bytes of the shard and reports members whose headers they complete.
    ///
    /// # Errors
    /// If the bytes are not a tar, a name is one that readers skip, or `visit` fails.
    pub fn feed(&mut self, mut bytes: &[u8], visit: &mut dyn FnMut(Place<'_>) -> Result<()>) -> Result<()> {
        while !bytes.is_empty() {
            let missing = if self.skip > 0 { self.skip } else { (self.wanted - self.window.len()) as u64 };
            let taken = usize::try_from(missing).unwrap_or(bytes.len()).min(bytes.len());
            let (piece, rest) = bytes.split_at(taken);
            bytes = rest;
            self.offset += taken as u64;
            if self.skip > 0 {
                self.skip -= taken as u64;
                continue;
            }
            self.window.extend_from_slice(piece);
            if self.window.len() == self.wanted {
                self.read_header(visit)?;
            }
        }
        Ok(())
    }

    /// Passes over whole records whose members are known.
    pub fn pass_over(&mut self, bytes: u64) {
        self.offset += bytes;
        self.key.clear();
    }

    fn read_header(&mut self, visit: &mut dyn FnMut(Place<'_>) -> Result<()>) -> Result<()> {
        let header = self.offset - self.window.len() as u64;
        let damaged = |problem: String| Error::integrity(problem).at_byte(header);
        // Shards may hold records that other programs framed.
        let entry = match entry::read_entry(&self.window)
            .map_err(|fault| Error::integrity(fault.problem).at_byte(header + fault.at as u64))?
        {
            HeaderOutcome::Needs(wanted) => {
                self.wanted = wanted;
                return Ok(());
            }
            HeaderOutcome::End(_) => return Err(damaged("expected a member, found the end of an archive".to_owned())),
            HeaderOutcome::Entry(entry) => entry,
        };
        let over = usize::try_from(entry.size % BLOCK as u64).map_or(0, padding_length);
        self.skip = entry.size + over as u64;
        self.window.clear();
        self.wanted = BLOCK;
        match entry.kind {
            EntryKind::File => {}
            EntryKind::NoFile | EntryKind::Ignored | EntryKind::Link(_) => return Ok(()),
            EntryKind::Unreadable(found) => return Err(damaged(format!("expected a plain file, found {found}"))),
        }
        let name = std::str::from_utf8(&entry.name)
            .map_err(|e| damaged("expected a member name in UTF-8, found other bytes".to_owned()).with_cause(e))?;
        let key = key_of(&entry.name)
            .ok_or_else(|| damaged(format!("expected a member named `key.extension`, found `{name}`")))?;
        let first = self.samples == 0 || key != self.key;
        let place = Place { name, key: key.len(), first, header, content: self.offset, size: entry.size };
        visit(place)?;
        if first {
            self.samples += 1;
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        Ok(())
    }

    /// Returns the number of samples found so far.
    pub fn sample_count(&self) -> u64 {
        self.samples
    }

    /// Returns the number of bytes seen so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, StringArray};

    use super::{
        super::{TRAILER, TarFraming, scan::record_members},
        *,
    };
    use crate::{
        format::{Framed, Framing, Keyed},
        record::{Part, Payload, Sample},
    };

    fn shard() -> Framed {
        let part = |extension: &str, size: usize| Part { extension: extension.into(), bytes: vec![b'x'; size].into() };
        let sample =
            |key: &str, parts: Vec<Part>| Sample { key: key.into(), origin: String::new(), subject: None, parts };
        let long = "d/".repeat(90) + &"n".repeat(120);
        let samples = vec![
            sample("a", vec![part("cls", 0), part("jpg", 513)]),
            sample(&long, vec![part("jpg", 512)]),
            sample("b/c", vec![part("seg.png", 1), part("txt", 2000)]),
        ];
        let keys: Vec<String> = samples.iter().map(|s| s.key.clone()).collect();
        let mut framed = Framed { members: Some(MemberPlaces::default()), ..Framed::default() };
        TarFraming.frame(Keyed::new(&Payload::Samples(samples), &keys), &mut framed).unwrap();
        framed
    }

    #[test]
    fn members_are_found_whatever_the_pieces() {
        let Framed { bytes, lengths, .. } = shard();
        let mut expected = Vec::new();
        let mut start = 0;
        for length in &lengths {
            let end = start + usize::try_from(*length).unwrap();
            for (i, member) in record_members(&bytes[start..end]).enumerate() {
                let member = member.unwrap();
                expected.push((member.name, i == 0, start as u64 + member.data_offset, member.size));
            }
            start = end;
        }
        assert_eq!(expected.len(), 5);
        for step in [1, 7, 511, 512, 513, 4096, bytes.len()] {
            let mut scanner = MemberScanner::default();
            let mut found = Vec::new();
            let mut starts = Vec::new();
            for piece in bytes.chunks(step) {
                scanner
                    .feed(piece, &mut |place| {
                        found.push((place.name.to_owned(), place.first, place.content, place.size));
                        if place.first {
                            starts.push(place.header);
                        }
                        Ok(())
                    })
                    .unwrap();
            }
            assert_eq!(found, expected, "{step}");
            assert_eq!(starts, [0, lengths[0], lengths[0] + lengths[1]]);
            assert_eq!((scanner.sample_count(), scanner.offset()), (3, bytes.len() as u64));
        }
    }

    #[test]
    fn members_that_framing_noted_are_those_that_are_found() {
        let key = |row: usize| format!("{}{row}", "d/".repeat(100 * row));
        let keys: Vec<String> = (0..3).map(key).collect();
        let column = Arc::new(StringArray::from_iter_values(["", "a", &"text".repeat(300)])) as ArrayRef;
        let rows = Payload::Rows(RecordBatch::try_from_iter([("a", column)]).unwrap());
        let mut of_rows = Framed { members: Some(MemberPlaces::default()), ..Framed::default() };
        TarFraming.frame(Keyed::new(&rows, &keys), &mut of_rows).unwrap();
        for framed in [shard(), of_rows] {
            let (noted, found) = (framed.members.unwrap(), MemberPlaces::from_records(&framed.bytes).unwrap());
            let end = framed.bytes.len() as u64;
            let all: Vec<Place<'_>> = noted.in_range(0..end, 0).collect();
            assert_eq!(all, found.in_range(0..end, 0).collect::<Vec<_>>());
            assert!(all.len() >= 3);
            // Shards may end between any two records.
            let cut = framed.lengths[0];
            let (before, after) = (noted.in_range(0..cut, 0), noted.in_range(cut..end, cut));
            assert_eq!(before.chain(after).collect::<Vec<_>>(), all);
            let moved = noted.in_range(cut..end, 1000).map(|place| (place.name, place.header, place.content));
            let expected = all.iter().filter(|place| place.header >= cut);
            let expected = expected.map(|place| (place.name, place.header - cut + 1000, place.content - cut + 1000));
            assert_eq!(moved.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_end_of_an_archive_is_no_member() {
        assert!(MemberScanner::default().feed(&TRAILER, &mut |_| Ok(())).is_err());
    }
}
