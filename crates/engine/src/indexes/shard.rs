//! Indexes beside shards, written while the bytes of the shard pass by, so that nothing is read a second time.
//!
//! Members of a tar are found by parsing its headers, or are passed with their offsets if another program wrote the
//! tar; records of a TFRecord are passed with their offsets.

use std::ops::Range;

use super::kind::{FileBeside, StartedShard};
use crate::{
    error::{Error, Result},
    format::{
        OutputFormat,
        index::IndexKind,
        tar::places::{MemberPlaces, MemberScanner, Place},
    },
    storage::Staged,
};

/// Indexes of one shard that is being written.
pub struct ShardIndexes {
    scanner: MemberScanner,
    files: Vec<Box<dyn FileBeside>>,
    /// Records of the tar so far.
    samples: u64,
    is_tar: bool,
}

impl ShardIndexes {
    /// Starts the indexes of a shard.
    ///
    /// # Errors
    /// When the store fails.
    pub fn create(shard: &StartedShard<'_>, kinds: &[IndexKind]) -> Result<Self> {
        let files = kinds
            .iter()
            .filter_map(|kind| super::index_for(*kind).start_beside(shard).transpose())
            .collect::<Result<_>>()?;
        Ok(Self { scanner: MemberScanner::default(), files, samples: 0, is_tar: shard.format == OutputFormat::Tar })
    }

    /// Parses the next bytes of the records, as stored.
    ///
    /// # Errors
    /// Fails if a name does not fit an index or the store fails.
    pub fn feed_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.has_members() {
            return Ok(());
        }
        let Self { scanner, files, samples, .. } = self;
        scanner.feed(bytes, &mut |place| add_to_files(files, samples, &place))
    }

    /// Adds the next member of a tar, by its place instead of its bytes.
    ///
    /// # Errors
    /// Fails if its name does not fit an index or the store fails.
    pub fn add_member(&mut self, place: &Place<'_>) -> Result<()> {
        add_to_files(&mut self.files, &mut self.samples, place)
    }

    /// Adds the members of the next records, which are a range of the bytes of a unit, instead of these bytes.
    ///
    /// # Errors
    /// Fails if a name does not fit an index or the store fails.
    pub fn add_members(&mut self, members: &MemberPlaces, range: Range<u64>) -> Result<()> {
        let (at, length) = (self.scanner.offset(), range.end - range.start);
        self.scanner.pass_over(length);
        members.in_range(range, at).try_for_each(|place| self.add_member(&place))
    }

    /// Adds a record that begins at byte `offset` of the shard.
    ///
    /// # Errors
    /// When the store fails.
    pub fn add_record(&mut self, offset: u64, length: u64) -> Result<()> {
        if self.is_tar {
            return Ok(());
        }
        self.files.iter_mut().try_for_each(|file| file.add_record(offset, length))
    }

    /// Finishes the indexes, which are not published yet; the last record ends at byte `end` of the shard.
    ///
    /// # Errors
    /// Fails if the tar does not contain `records` samples or the store fails.
    pub fn finish(self, records: u64, end: u64) -> Result<Vec<Staged>> {
        if self.has_members() && self.samples != records {
            return Err(Error::integrity(format!("expected {records} samples in the tar, found {}", self.samples))
                .with_hint("two neighbouring records have the same key; choose a unique --id"));
        }
        let staged = self.files.into_iter().map(|file| file.finish(records, end)).collect::<Result<Vec<_>>>()?;
        Ok(staged.into_iter().flatten().collect())
    }

    fn has_members(&self) -> bool {
        self.is_tar && !self.files.is_empty()
    }
}

fn add_to_files(files: &mut [Box<dyn FileBeside>], samples: &mut u64, place: &Place<'_>) -> Result<()> {
    *samples += u64::from(place.first);
    files.iter_mut().try_for_each(|file| file.add_member(place, samples.saturating_sub(1)))
}
