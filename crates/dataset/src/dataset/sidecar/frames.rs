//! Frame table: the positions of the units of a compressed shard, so that one record can be read without the rest of
//! it.
//!
//! Kept in the Parquet metadata of the shard's sidecar under `shardify.frames`, as JSON: an array of pairs, the offset
//! in the stored and in the uncompressed shard where each unit begins, and one more pair where the last one ends.
//!
//! ```text
//! [[10,0],[81236,4194304],[160733,8388608]]        two units behind a gzip header
//! ```

use std::ops::Range;

use crate::{
    codec::stream::Frames,
    error::{Error, Result},
};

/// Key of the table in a sidecar's metadata.
pub(in crate::dataset) const METADATA_KEY: &str = "shardify.frames";

/// Stored and raw offsets of the units of a shard, and of its end; always ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameTable(Vec<(u64, u64)>);

/// The unit that holds a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Offset in the stored shard.
    pub offset: u64,
    /// Stored bytes.
    pub length: u64,
    /// Offset of its content in the uncompressed shard.
    pub raw_offset: u64,
}

impl FrameTable {
    /// Returns the table of a shard whose first unit begins at `header` stored bytes; `None` if its units are unknown.
    pub fn new(header: u64, frames: &Frames) -> Option<Self> {
        let mut at = (header, 0);
        let mut places = vec![at];
        for (stored, raw) in frames.units()? {
            at = (at.0 + u64::from(*stored), at.1 + u64::from(*raw));
            places.push(at);
        }
        Some(Self(places))
    }

    /// Returns the text stored in the metadata.
    pub(in crate::dataset) fn to_json(&self) -> Result<String> {
        serde_json::to_string(&self.0).map_err(|e| Error::internal("encoding a frame table failed").with_cause(e))
    }

    /// Parses the text made by [`to_json`](Self::to_json).
    pub(in crate::dataset) fn from_json(text: &str) -> Result<Self> {
        let places: Vec<(u64, u64)> =
            serde_json::from_str(text).map_err(|e| Error::integrity("the frame table is damaged").with_cause(e))?;
        if places.is_empty() || !places.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
            return Err(Error::integrity("expected a frame table with ascending offsets, found another order"));
        }
        Ok(Self(places))
    }

    /// Returns the unit that contains a byte of the uncompressed shard.
    pub fn frame_of(&self, raw_offset: u64) -> Option<Frame> {
        let next = self.0.partition_point(|(_, raw)| *raw <= raw_offset);
        let (end, _) = self.0.get(next)?;
        let (offset, raw_offset) = self.0.get(next.checked_sub(1)?)?;
        Some(Frame { offset: *offset, length: end - offset, raw_offset: *raw_offset })
    }

    /// Returns the units that hold some bytes of the uncompressed shard, each with its number of raw bytes; `None` if
    /// the shard ends before they do.
    pub fn units_of(&self, raw: &Range<u64>) -> Option<Vec<(Frame, u64)>> {
        let mut at = self.0.partition_point(|(_, end)| *end <= raw.start).checked_sub(1)?;
        let (mut units, mut reached) = (Vec::new(), raw.start);
        while reached < raw.end || units.is_empty() {
            let ((offset, raw_offset), (end, raw_end)) = (*self.0.get(at)?, *self.0.get(at + 1)?);
            units.push((Frame { offset, length: end - offset, raw_offset }, raw_end - raw_offset));
            (at, reached) = (at + 1, raw_end);
        }
        Some(units)
    }

    /// Returns the stored offsets of the first unit's start and the last unit's end.
    pub fn stored_range(&self) -> (u64, u64) {
        let at = |place: Option<&(u64, u64)>| place.map_or(0, |(stored, _)| *stored);
        (at(self.0.first()), at(self.0.last()))
    }

    /// Returns the sizes of the units, for joining them with those of other shards.
    pub fn to_frames(&self) -> Frames {
        let mut frames = Frames::default();
        for pair in self.0.windows(2) {
            frames.push(pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        }
        frames
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_back_and_finds_frames() {
        let mut frames = Frames::default();
        frames.push(100, 1000);
        frames.push(50, 24);
        let table = FrameTable::new(10, &frames).unwrap();
        let text = table.to_json().unwrap();
        assert_eq!(text, "[[10,0],[110,1000],[160,1024]]");
        assert_eq!(FrameTable::from_json(&text).unwrap(), table);
        assert_eq!(table.to_frames(), frames);
        assert_eq!(table.frame_of(0), Some(Frame { offset: 10, length: 100, raw_offset: 0 }));
        assert_eq!(table.frame_of(999), Some(Frame { offset: 10, length: 100, raw_offset: 0 }));
        assert_eq!(table.frame_of(1000), Some(Frame { offset: 110, length: 50, raw_offset: 1000 }));
        assert_eq!(table.frame_of(1024), None);
        assert_eq!(table.stored_range(), (10, 160));
        let units = [0..1000, 999..1001, 1000..1024, 5..5].map(|raw| table.units_of(&raw).unwrap());
        assert_eq!(units.map(|units| units.len()), [1, 2, 1, 1]);
        let second = (Frame { offset: 110, length: 50, raw_offset: 1000 }, 24);
        assert_eq!(table.units_of(&(999..1001)).unwrap()[1], second);
        assert_eq!((table.units_of(&(1000..1025)), table.units_of(&(1024..1024))), (None, None));
    }

    #[test]
    fn damage_is_an_error_and_an_unknown_table_stays_unknown() {
        for text in ["", "[]", "{}", "[[5,0],[4,1]]", "[[0,1],[1,0]]", "[[-1,0]]"] {
            assert!(FrameTable::from_json(text).is_err(), "{text}");
        }
        let mut joined = Frames::default();
        joined.push(1, 1);
        joined.append_frames(&Frames::UNKNOWN);
        joined.push(1, 1);
        assert_eq!(FrameTable::new(0, &joined), None);
        assert!(joined.seek_table().is_empty());
    }
}
