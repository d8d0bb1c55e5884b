//! Fingerprints of the records that were seen before, and which record had each first. Exact, in bounded memory.
//!
//! ```text
//! table in memory, up to an eighth of --memory
//!     full: sorted, written ---> run  run  run  ...      a temporary file each: 24 bytes a fingerprint, in order
//!                                |----merged----|        as soon as there are 8 of one size class
//! lookup: table, then a filter in memory that says that most new fingerprints are in no run, then one page of each run
//! ```

use std::collections::HashMap;

use crate::{
    error::{Error, Result},
    record::fingerprint::Fingerprint,
    storage::Spill,
};

/// Bytes of a fingerprint with its record.
const ENTRY: usize = 24;

/// Entries that are read together: less than a page of memory.
const PAGE: usize = 170;

/// Runs of one size class that are merged into one of the next.
const FAN_IN: usize = 8;

/// Entries that are read ahead of each run that is merged.
const AHEAD: usize = 64 * PAGE;

/// Memory that the table and the filter take.
#[derive(Debug, Clone, Copy)]
pub struct SeenMemory {
    /// Maximum entries of the table.
    entries: usize,
    /// Bytes of the filter.
    filter: usize,
}

impl SeenMemory {
    /// Divides an eighth of a memory limit for the table, and a 32nd for the filter.
    pub fn from_limit(memory: u64) -> Self {
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        // A table has a power of two of places of 25 bytes, seven of eight in use, and half as many more while it
        // grows.
        let places = (memory / 8 / 38).max(16);
        let places = if places.is_power_of_two() { places } else { places.next_power_of_two() / 2 };
        Self { entries: places / 8 * 7, filter: (memory / 32).max(64).next_power_of_two() / 2 }
    }

    /// Returns the bytes that they take at most.
    pub fn max_bytes(self) -> u64 {
        (self.entries * 53 + self.filter) as u64
    }
}

/// Fingerprints that were seen.
#[derive(Debug)]
pub struct Seen {
    memory: SeenMemory,
    table: HashMap<Fingerprint, u64>,
    runs: Vec<FingerprintRun>,
    /// Filter of the fingerprints in runs; empty while there are none.
    filter: Vec<u64>,
}

/// Entries on disk, sorted by fingerprint.
#[derive(Debug)]
struct FingerprintRun {
    file: Spill,
    entries: usize,
    /// First eight bytes of the first fingerprint of each page.
    fences: Vec<u64>,
    /// Number of times that its entries were merged.
    class: u32,
}

impl Seen {
    /// Has seen nothing.
    pub fn new(memory: SeenMemory) -> Self {
        Self { memory, table: HashMap::new(), runs: Vec::new(), filter: Vec::new() }
    }

    /// Returns the record that had this fingerprint first; `None` if it is this one, which is noted.
    ///
    /// # Errors
    /// When runs cannot be written or read.
    pub fn find_or_insert(&mut self, fingerprint: &Fingerprint, record: u64) -> Result<Option<u64>> {
        if let Some(first) = self.table.get(fingerprint) {
            return Ok(Some(*first));
        }
        if self.may_be_in_runs(fingerprint) {
            for run in &self.runs {
                if let Some(first) = run.find_record(fingerprint)? {
                    return Ok(Some(first));
                }
            }
        }
        if self.table.len() >= self.memory.entries {
            self.flush()?;
        }
        self.table.insert(*fingerprint, record);
        Ok(None)
    }

    /// Returns two places of a fingerprint in the filter: words and bits.
    fn filter_bits(&self, fingerprint: &Fingerprint) -> [(usize, u64); 2] {
        let (low, high) = (fingerprint_word(fingerprint, 0), fingerprint_word(fingerprint, 8));
        [low.rotate_left(32), high].map(|hash| {
            let bit = usize::try_from(hash).unwrap_or_default() % (self.filter.len() * 64).max(1);
            (bit / 64, 1_u64 << (bit % 64))
        })
    }

    fn may_be_in_runs(&self, fingerprint: &Fingerprint) -> bool {
        !self.filter.is_empty() && self.filter_bits(fingerprint).iter().all(|(at, bit)| self.filter[*at] & bit != 0)
    }

    /// Writes the table as a run.
    fn flush(&mut self) -> Result<()> {
        if self.filter.is_empty() {
            self.filter = vec![0; self.memory.filter / 8];
        }
        let mut entries: Vec<(Fingerprint, u64)> = self.table.drain().collect();
        entries.sort_unstable();
        for (fingerprint, _) in &entries {
            for (at, bit) in self.filter_bits(fingerprint) {
                self.filter[at] |= bit;
            }
        }
        let mut run = FingerprintRunWriter::new(0)?;
        entries.into_iter().try_for_each(|(fingerprint, record)| run.add_entry(&fingerprint, record))?;
        self.runs.push(run.finish()?);
        for class in 0.. {
            if self.runs.iter().filter(|run| run.class == class).count() < FAN_IN {
                return Ok(());
            }
            let (same, others) = std::mem::take(&mut self.runs).into_iter().partition(|run| run.class == class);
            self.runs = others;
            self.runs.push(merge_runs(&same, class + 1)?);
        }
        Ok(())
    }
}

/// Returns eight bytes of a fingerprint as a number, in the order of fingerprints.
fn fingerprint_word(fingerprint: &Fingerprint, at: usize) -> u64 {
    fingerprint.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn parse_entry(bytes: &[u8]) -> Result<(Fingerprint, u64)> {
    let parts =
        bytes.split_first_chunk::<16>().and_then(|(fingerprint, rest)| Some((fingerprint, rest.first_chunk()?)));
    let (fingerprint, record) = parts.ok_or_else(|| Error::internal("an entry of fingerprints is cut"))?;
    Ok((*fingerprint, u64::from_le_bytes(*record)))
}

impl FingerprintRun {
    fn read(&self, entries: std::ops::Range<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; entries.len() * ENTRY];
        self.file.read((entries.start * ENTRY) as u64, &mut bytes)?;
        Ok(bytes)
    }

    fn find_record(&self, wanted: &Fingerprint) -> Result<Option<u64>> {
        let begin = fingerprint_word(wanted, 0);
        // The page before the first fence that is not smaller may end with it.
        let first = self.fences.partition_point(|fence| *fence < begin).saturating_sub(1);
        for (page, fence) in self.fences.iter().enumerate().skip(first) {
            if *fence > begin {
                break;
            }
            let bytes = self.read(page * PAGE..self.entries.min((page + 1) * PAGE))?;
            for bytes in bytes.chunks_exact(ENTRY) {
                if bytes.starts_with(wanted) {
                    return Ok(Some(parse_entry(bytes)?.1));
                }
            }
        }
        Ok(None)
    }
}

/// Writes entries that come in the order of their fingerprints.
struct FingerprintRunWriter {
    run: FingerprintRun,
    pending: Vec<u8>,
}

impl FingerprintRunWriter {
    fn new(class: u32) -> Result<Self> {
        let run = FingerprintRun { file: Spill::new()?, entries: 0, fences: Vec::new(), class };
        Ok(Self { run, pending: Vec::new() })
    }

    fn add_entry(&mut self, fingerprint: &Fingerprint, record: u64) -> Result<()> {
        if self.run.entries.is_multiple_of(PAGE) {
            self.run.fences.push(fingerprint_word(fingerprint, 0));
        }
        self.run.entries += 1;
        self.pending.extend_from_slice(fingerprint);
        self.pending.extend_from_slice(&record.to_le_bytes());
        if self.pending.len() >= AHEAD * ENTRY { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.run.file.append(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<FingerprintRun> {
        self.write()?;
        Ok(self.run)
    }
}

/// Reads the entries of a run in order.
struct RunReader<'a> {
    run: &'a FingerprintRun,
    ahead: Vec<u8>,
    /// Bytes of `ahead` that were returned.
    used: usize,
    /// Entries that were read.
    read: usize,
}

impl RunReader<'_> {
    fn next(&mut self) -> Result<Option<(Fingerprint, u64)>> {
        if self.used == self.ahead.len() {
            let end = self.run.entries.min(self.read + AHEAD);
            if end == self.read {
                return Ok(None);
            }
            self.ahead = self.run.read(self.read..end)?;
            (self.read, self.used) = (end, 0);
        }
        self.used += ENTRY;
        parse_entry(&self.ahead[self.used - ENTRY..self.used]).map(Some)
    }
}

/// Merges runs, which have no fingerprint in common.
fn merge_runs(runs: &[FingerprintRun], class: u32) -> Result<FingerprintRun> {
    let mut readers: Vec<RunReader<'_>> =
        runs.iter().map(|run| RunReader { run, ahead: Vec::new(), used: 0, read: 0 }).collect();
    let mut heads: Vec<Option<(Fingerprint, u64)>> = readers.iter_mut().map(RunReader::next).collect::<Result<_>>()?;
    let mut out = FingerprintRunWriter::new(class)?;
    loop {
        let least = heads.iter().enumerate().filter_map(|(at, head)| Some(((*head)?, at))).min();
        let Some(((fingerprint, record), at)) = least else { return out.finish() };
        out.add_entry(&fingerprint, record)?;
        heads[at] = readers[at].next()?;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn fingerprint(number: u64) -> Fingerprint {
        let mut out = [0; 16];
        blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut out);
        // Some share their first eight bytes, so that pages begin within them.
        if number.is_multiple_of(5) {
            out[..8].fill(7);
        }
        out
    }

    #[test]
    fn the_first_is_found_in_memory_and_on_disk() {
        let memory = SeenMemory { entries: 100, filter: 256 };
        let mut seen = Seen::new(memory);
        let mut model: HashMap<u64, u64> = HashMap::new();
        let mut state = 1_u64;
        for record in 0..60_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (state >> 33) % 9_000;
            let known = model.get(&number).copied();
            assert_eq!(seen.find_or_insert(&fingerprint(number), record).unwrap(), known, "{record}");
            model.entry(number).or_insert(record);
            assert!(seen.table.len() <= memory.entries);
        }
        assert!(seen.runs.iter().any(|run| run.class >= 1));
        let classes = seen.runs.iter().map(|run| run.class).max().unwrap();
        assert!((0..=classes).all(|class| seen.runs.iter().filter(|run| run.class == class).count() < FAN_IN));
        assert_eq!(seen.runs.iter().map(|run| run.entries).sum::<usize>() + seen.table.len(), model.len());
    }

    #[test]
    fn memory_is_within_its_share() {
        for mib in [64_u64, 300, 1024, 16 << 10] {
            let memory = SeenMemory::from_limit(mib << 20);
            assert!(memory.max_bytes() <= (mib << 20) * 5 / 32, "{mib}: {memory:?}");
            assert!(memory.entries > 30_000);
        }
    }
}
