//! Ids that ascend, kept until they make a segment or until others follow that do not.
//!
//! ```text
//! parts of ascending ids -> groups: encoded, 2^15 ids or more each          a segment of ids
//!                        -> loose: the last ones, too few for a row group
//!                        -> unhashed: the same ids, while hashes may be     a segment of hashes
//!                                     needed after all
//! ```
//!
//! Where the root of a segment is that of its pairs, all ids are hashed anyway, and nothing is unhashed. Else hashes
//! are needed only if other ids follow before enough of these have arrived for a segment of their own, or if hashes
//! would take less.

use std::borrow::Cow;

use arrow::{
    array::{Array, AsArray, StringArray},
    compute::concat,
};

use super::collect::Pairs;
use crate::{
    dataset::{
        ids::{
            ascending::{self, Ascending, Form, LEAST_GROUP_ROWS, text_bytes},
            column::IdHashes,
            width::HashWidth,
        },
        table::chunks::Chunk,
    },
    error::{Error, Result},
    id::IdHash,
    record::numbers::Progression,
};

/// Ids from which on they make a segment of their own when others follow that do not ascend: fewer would be many
/// segments.
pub(super) const LEAST_ORDERED: usize = 1 << 20;

/// Bytes of encoded ids in memory that make a segment.
pub(super) const MOST_ORDERED_BYTES: usize = 24 << 20;

/// Bytes of texts in memory from which on hashes are not expected to be needed any more.
const MOST_UNHASHED_BYTES: usize = 24 << 20;

/// Bytes of headers of pages, which count for little beside many ids.
const HEADER_BYTES: usize = 1 << 10;

/// The ids of the pending pairs.
#[derive(Debug)]
pub(super) enum PendingIds {
    /// They ascend. Only if these are all pending pairs do they make a segment.
    Ascend(Kept),
    /// They do not, or not all of them are known.
    Mixed,
}

/// Ids that ascend.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Those that are encoded.
    groups: Vec<IdGroup>,
    /// Those that follow and are too few for a row group, with the number of the first record of each part.
    loose: Vec<(u64, StringArray)>,
    loose_rows: usize,
    bytes: usize,
    /// Number of ids.
    rows: usize,
    /// Ids that equal the one before.
    repeated: u64,
    first_record: u64,
    last: Option<String>,
    unhashed: Unhashed,
}

/// Ids that are in no pair yet, with the number of the first record of each part.
#[derive(Debug, Default)]
struct Unhashed {
    parts: Vec<(u64, IdHashes)>,
    bytes: usize,
    /// Whether they were dropped because the ids make a segment in any case.
    dropped: bool,
}

/// Ids of a row group, and the numbers of their records.
#[derive(Debug)]
pub(super) struct IdGroup {
    pub(super) ids: Chunk,
    pub(super) records: Vec<Progression>,
}

/// What is to be done with ids that were kept, and not hashed.
pub(super) enum Later {
    /// Nothing yet.
    Kept,
    /// They are to make a segment now, because they take more than their hashes.
    Full,
    /// They are to be hashed now, for the same reason.
    Hashed,
}

/// What kept ids become.
pub(super) enum SegmentForm {
    /// A segment of ids, and how many of them equal the one before.
    Ordered(Vec<IdGroup>, u64),
    /// A segment of hashes.
    Hashed,
}

impl Default for PendingIds {
    fn default() -> Self {
        Self::Ascend(Kept::default())
    }
}

impl PendingIds {
    /// Adds ids; returns false if they do not follow those before. `first` is the number of their first record, and
    /// `is_first` whether no pairs are before them.
    pub(super) fn try_push(&mut self, ids: &Ascending, first: u64, is_first: bool) -> Result<bool> {
        let Self::Ascend(kept) = self else { return Ok(false) };
        let follows = kept.last.as_deref().map_or(is_first, |last| last <= ids.first_id());
        if follows {
            kept.push(ids, first)?;
        }
        Ok(follows)
    }

    /// Number of ids that are in no pair.
    pub(super) fn unhashed_count(&self) -> usize {
        match self {
            Self::Ascend(kept) if kept.unhashed.dropped || !kept.unhashed.parts.is_empty() => kept.rows,
            _ => 0,
        }
    }

    /// Whether a part, whose first record has this number, is to be kept apart from those before: a segment has whole
    /// parts.
    pub(super) fn is_full(&self, ids: &Ascending, first: u64, pairs: usize, most: usize) -> bool {
        let Self::Ascend(kept) = self else { return false };
        let is_far = kept.rows > 0 && first + ids.len() as u64 - kept.first_record > u64::from(u32::MAX);
        pairs + ids.len() > most || kept.bytes + ids.memory_bytes() > MOST_ORDERED_BYTES || is_far
    }
}

impl Kept {
    fn push(&mut self, ids: &Ascending, first: u64) -> Result<()> {
        if self.rows == 0 {
            self.first_record = first;
        }
        self.repeated += ids.repeated_count() + u64::from(self.last.as_deref() == Some(ids.first_id()));
        self.last = Some(ids.last_id().to_owned());
        self.bytes += ids.memory_bytes();
        self.rows += ids.len();
        match ids.form() {
            Form::Texts(texts) => {
                self.loose.push((first, texts.clone()));
                self.loose_rows += texts.len();
                if self.loose_rows < LEAST_GROUP_ROWS { Ok(()) } else { self.encode_loose() }
            }
            Form::Encoded(chunks) => {
                self.encode_loose()?;
                let mut first = first;
                for ids in chunks {
                    let count = ids.row_count();
                    self.groups
                        .push(IdGroup { ids: ids.clone(), records: vec![Progression { first, step: 1, count }] });
                    first += count as u64;
                }
                Ok(())
            }
        }
    }

    /// Encodes what is loose.
    fn encode_loose(&mut self) -> Result<()> {
        let (loose, _) = (std::mem::take(&mut self.loose), std::mem::take(&mut self.loose_rows));
        if loose.is_empty() {
            return Ok(());
        }
        let progression =
            |(first, texts): &(u64, StringArray)| Progression { first: *first, step: 1, count: texts.len() };
        let records = loose.iter().map(progression).collect();
        self.bytes -= loose.iter().map(|(_, texts)| text_bytes(texts)).sum::<usize>();
        let texts: Vec<&dyn Array> = loose.iter().map(|(_, texts)| texts as &dyn Array).collect();
        let ids = ascending::encode_ids(concat(&texts)?.as_string())?;
        self.bytes += ids.bytes.len();
        self.groups.push(IdGroup { ids, records });
        Ok(())
    }

    /// Keeps the part that was added last so that it can be hashed later, unless there are enough ids for a segment in
    /// any case.
    pub(super) fn hash_later(&mut self, part: IdHashes, first: u64, width: HashWidth) -> Result<Later> {
        if self.unhashed.dropped {
            return Ok(if self.loose.is_empty() && !self.is_small(width) { Later::Full } else { Later::Kept });
        }
        self.unhashed.bytes += part.memory_bytes();
        self.unhashed.parts.push((first, part));
        if self.rows < LEAST_ORDERED && self.unhashed.bytes < MOST_UNHASHED_BYTES {
            return Ok(Later::Kept);
        }
        self.encode_loose()?;
        if !self.is_small(width) {
            return Ok(Later::Hashed);
        }
        self.unhashed = Unhashed { dropped: true, ..Unhashed::default() };
        Ok(Later::Kept)
    }

    /// Whether they make a segment of their own if others follow that do not ascend.
    pub(super) fn is_enough(&self, pairs: usize) -> bool {
        self.rows > 0 && (self.unhashed.dropped || pairs >= LEAST_ORDERED)
    }

    /// Whether the ids take less than hashes of this width.
    fn is_small(&self, width: HashWidth) -> bool {
        self.bytes <= self.rows * usize::from(width.byte_count()) + HEADER_BYTES
    }

    /// Hashes what is unhashed, part by part; each has the number of its first record.
    pub(super) fn hash_parts(&self) -> impl Iterator<Item = (Cow<'_, [IdHash]>, u64)> {
        self.unhashed.parts.iter().map(|(first, part)| (part.record_hashes(), *first))
    }

    /// Returns what they become, for all of `pairs` pairs; if hashes, those that were not hashed are added to `all`.
    pub(super) fn finish(mut self, width: HashWidth, pairs: usize, all: &mut Pairs) -> Result<SegmentForm> {
        self.encode_loose()?;
        if self.rows == pairs && (self.unhashed.dropped || self.is_small(width)) {
            return Ok(SegmentForm::Ordered(self.groups, self.repeated));
        }
        for (hashes, first) in self.hash_parts() {
            let (mut rest, mut record) = (hashes.as_ref(), first);
            while !rest.is_empty() {
                let taken = all.push_consecutive(rest, record);
                if taken == 0 {
                    return Err(Error::internal("ids of a segment are too far from each other"));
                }
                (rest, record) = (&rest[taken..], record + taken as u64);
            }
        }
        Ok(SegmentForm::Hashed)
    }
}
