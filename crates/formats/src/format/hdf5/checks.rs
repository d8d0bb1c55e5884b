//! Detection of damage that the `hdf5-reader` crate does not check: a truncated file, and blocks with a wrong checksum.
//!
//! ```text
//! superblock                 states where the file ends; a file that ends earlier is truncated
//! fractal heap, FRHP, FHDB   checked by the crate, as are object headers, trees of version 2, shared messages
//! its indirect blocks, FHIB  checked here when the crate begins to read one
//! arrays of chunks           see `indexes.rs`
//! ```
//!
//! Older structures (trees of version 1, symbol tables, local and global heaps) have no checksums.

use std::collections::HashMap;

use hdf5_reader::{
    checksum::jenkins_lookup3, error::Error as Hdf5Error, fractal_heap::FractalHeap, io::Cursor, superblock::Superblock,
};

/// Bytes of a checksum.
pub(super) const CHECKSUM: usize = 4;

/// Maximum rows of an indirect block: each is twice as large as the one before.
const MAX_ROWS: u16 = 64;

/// Reads a little-endian number of up to 8 bytes.
pub(super) fn read_le_uint(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Returns the error for contradictory data.
pub(super) fn invalid_data(message: String) -> Hdf5Error {
    Hdf5Error::InvalidData(message)
}

/// Returns the checksum at the end of a block, and that of the bytes before it; `None` if the block is too short to
/// have one.
fn checksum_pair(bytes: &[u8]) -> Option<(u32, u32)> {
    let (content, stored) = bytes.split_last_chunk::<CHECKSUM>()?;
    Some((u32::from_le_bytes(*stored), jenkins_lookup3(content)))
}

/// Whether a block ends in the checksum of the bytes before it.
pub(super) fn has_valid_checksum(bytes: &[u8]) -> bool {
    checksum_pair(bytes).is_some_and(|(stored, found)| stored == found)
}

/// Fails if a block, at byte `at` of the input, does not end in its checksum.
pub(super) fn verify_checksum(what: &str, at: u64, bytes: &[u8]) -> Result<(), Hdf5Error> {
    let Some((stored, found)) = checksum_pair(bytes) else {
        return Err(invalid_data(format!("{what} at byte {at}: expected a checksum, found the end")));
    };
    if stored == found {
        return Ok(());
    }
    Err(invalid_data(format!(
        "{what} at byte {at}: expected bytes with the checksum {stored:#010x}, found {found:#010x}; they have changed \
         since they were written"
    )))
}

/// Fails if a file of `bytes` bytes is shorter than its superblock states. `stored_base` is the base address in the
/// superblock, which the end address includes.
pub(super) fn is_whole(superblock: &Superblock, stored_base: u64, bytes: u64) -> Result<(), Hdf5Error> {
    let end = superblock.eof_address;
    let end = if Cursor::is_undefined_offset(end, superblock.offset_size) {
        u64::MAX
    } else {
        end.saturating_sub(stored_base).saturating_add(superblock.base_address)
    };
    if end <= bytes {
        return Ok(());
    }
    let short = Hdf5Error::UnexpectedEof { offset: bytes, needed: end - bytes, available: 0 };
    Err(short
        .with_context(format!("superblock: expected the file to end at byte {end}, found its end at byte {bytes}")))
}

/// Indirect blocks of fractal heaps that were named but not checked yet.
#[derive(Debug, Default)]
pub(super) struct FractalHeaps {
    waiting: HashMap<u64, Indirect>,
}

/// An indirect block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Indirect {
    table: HeapTable,
    rows: u16,
}

/// Block sizes of a heap.
#[derive(Debug, Clone, Copy)]
struct HeapTable {
    width: u64,
    /// Bytes of the smallest block, and of the largest direct one.
    smallest: u64,
    direct: u64,
    /// Bytes before the entries; of an address; and of an entry of a direct block.
    prefix: u64,
    offset: u64,
    entry: u64,
}

impl HeapTable {
    /// Returns the bytes of each block of a row.
    fn block_bytes(&self, row: u16) -> u64 {
        let factor = 1_u64.checked_shl(u32::from(row.saturating_sub(1)));
        factor.and_then(|factor| self.smallest.checked_mul(factor)).unwrap_or(u64::MAX)
    }

    /// Returns the rows of an indirect block that covers this many bytes.
    fn rows_covering(&self, bytes: u64) -> u16 {
        let mut rest = bytes;
        let whole = |row: &u16| {
            let left = self.block_bytes(*row).checked_mul(self.width).and_then(|row| rest.checked_sub(row));
            left.inspect(|left| rest = *left).is_some()
        };
        u16::try_from((0..MAX_ROWS).take_while(whole).count()).unwrap_or(MAX_ROWS)
    }

    fn direct_rows(&self, rows: u16) -> u64 {
        (0..rows).take_while(|row| self.block_bytes(*row) <= self.direct).count() as u64
    }
}

impl Indirect {
    /// Returns the bytes of the block.
    pub(super) fn byte_len(&self) -> Option<usize> {
        let HeapTable { width, prefix, offset, entry, .. } = self.table;
        let direct = self.table.direct_rows(self.rows);
        let entries = (direct * entry + (u64::from(self.rows) - direct) * offset).checked_mul(width)?;
        usize::try_from(prefix.checked_add(entries)?.checked_add(CHECKSUM as u64)?).ok()
    }
}

impl FractalHeaps {
    /// Examines bytes that the crate reads at an offset of the input if they begin with the signature of a heap.
    pub(super) fn examine_header(&mut self, bytes: &[u8], base: u64, offset_size: u8, length_size: u8) {
        // The crate detects damage of the header itself.
        let Ok(heap) = FractalHeap::parse(&mut Cursor::new(bytes), offset_size, length_size) else { return };
        let rows = heap.current_rows_in_root_indirect;
        if rows == 0 || rows > MAX_ROWS || Cursor::is_undefined_offset(heap.root_block_address, offset_size) {
            return;
        }
        let filtered = if heap.io_filters_len > 0 { u64::from(length_size) + 4 } else { 0 };
        let table = HeapTable {
            width: heap.table_width.into(),
            smallest: heap.starting_block_size,
            direct: heap.max_direct_block_size,
            prefix: 5 + u64::from(offset_size) + u64::from(heap.max_heap_size).div_ceil(8),
            offset: offset_size.into(),
            entry: u64::from(offset_size) + filtered,
        };
        self.waiting.insert(heap.root_block_address.saturating_add(base), Indirect { table, rows });
    }

    /// Removes and returns the indirect block at an offset of the input, if it was not checked yet.
    pub(super) fn take_indirect(&mut self, at: u64) -> Option<Indirect> {
        self.waiting.remove(&at)
    }

    /// Checks an indirect block, and records the blocks that it names.
    pub(super) fn check_indirect(
        &mut self,
        block: Indirect,
        at: u64,
        bytes: &[u8],
        base: u64,
    ) -> Result<(), Hdf5Error> {
        verify_checksum("indirect block of a fractal heap", at, bytes)?;
        let HeapTable { width, prefix, offset, entry, .. } = block.table;
        let direct = block.table.direct_rows(block.rows);
        let skipped = usize::try_from(prefix + direct * entry * width).unwrap_or(usize::MAX);
        let rows = (direct..u64::from(block.rows)).flat_map(|row| (0..width).map(move |_| row));
        let entries = bytes.get(skipped..bytes.len() - CHECKSUM).unwrap_or_default();
        for (row, address) in rows.zip(entries.chunks_exact(usize::try_from(offset).unwrap_or(8).max(1))) {
            let address = read_le_uint(address);
            let rows = block.table.rows_covering(block.table.block_bytes(u16::try_from(row).unwrap_or(MAX_ROWS)));
            if !Cursor::is_undefined_offset(address, u8::try_from(offset).unwrap_or(8)) {
                self.waiting.insert(address.saturating_add(base), Indirect { table: block.table, rows });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend_from_slice(&jenkins_lookup3(&bytes).to_le_bytes());
        bytes
    }

    #[test]
    fn checksums_are_those_of_the_field() {
        // The first value is from Bob Jenkins' lookup3.c, the second is of an empty block.
        assert_eq!(jenkins_lookup3(b"Four score and seven years ago"), 0x1777_0551);
        assert_eq!(jenkins_lookup3(b""), 0xdead_beef);
        let block = sealed(b"block".to_vec());
        assert!(has_valid_checksum(&block) && verify_checksum("block", 7, &block).is_ok());
        assert!(!has_valid_checksum(b"abc") && verify_checksum("block", 7, b"abc").is_err());
        let error = verify_checksum("block", 7, b"blocksums").unwrap_err().to_string();
        assert!(error.contains("block at byte 7: expected bytes with the checksum 0x736d7573, found 0x"), "{error}");
    }

    #[test]
    fn files_that_end_before_they_should_are_refused() {
        let mut bytes = b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00".to_vec();
        for address in [0, u64::MAX, 1000, 48] {
            bytes.extend_from_slice(&address.to_le_bytes());
        }
        let mut superblock = Superblock::parse(&mut Cursor::new(&sealed(bytes))).unwrap();
        assert!(is_whole(&superblock, 0, 1000).is_ok() && is_whole(&superblock, 0, 5000).is_ok());
        let error = is_whole(&superblock, 0, 999).unwrap_err().to_string();
        assert!(error.contains("expected the file to end at byte 1000, found its end at byte 999"), "{error}");
        // After a user block of 512 bytes, whether the superblock includes it or not.
        superblock.base_address = 512;
        assert!(is_whole(&superblock, 512, 1000).is_ok() && is_whole(&superblock, 512, 999).is_err());
        assert!(is_whole(&superblock, 0, 1512).is_ok() && is_whole(&superblock, 0, 1511).is_err());
        superblock.eof_address = u64::MAX;
        assert!(is_whole(&superblock, 0, 5000).is_err());
    }

    #[test]
    fn indirect_blocks_of_heaps_are_compared_and_lead_to_others() {
        let mut header = b"FRHP\x00\x07\x00\x00\x00\x02".to_vec();
        header.extend_from_slice(&4096_u32.to_le_bytes());
        header.extend_from_slice(&[0; 12 * 8]);
        header.extend_from_slice(&2_u16.to_le_bytes());
        // Blocks of 16 bytes and more, direct ones up to 32; 4 rows from byte 500 on.
        header.extend([16_u64, 32].into_iter().flat_map(u64::to_le_bytes));
        header.extend_from_slice(&[32, 0, 1, 0]);
        header.extend_from_slice(&500_u64.to_le_bytes());
        header.extend_from_slice(&4_u16.to_le_bytes());
        let mut heaps = FractalHeaps::default();
        heaps.examine_header(&sealed(header), 100, 8, 8);
        assert!(heaps.take_indirect(500).is_none());
        let block = heaps.take_indirect(600).unwrap();
        let mut bytes = b"FHIB\x00".to_vec();
        bytes.extend([0; 8 + 4]);
        bytes.extend([1_u64, 2, 3, 4, 5, 6, 700, u64::MAX].into_iter().flat_map(u64::to_le_bytes));
        let bytes = sealed(bytes);
        assert_eq!(block.byte_len(), Some(bytes.len()));
        heaps.check_indirect(block, 600, &bytes, 100).unwrap();
        // The third row has blocks of 64 bytes: two rows of two blocks of 16.
        let inner = heaps.take_indirect(800).unwrap();
        assert_eq!((inner.rows, heaps.waiting.len()), (2, 0));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let error = heaps.check_indirect(block, 600, &changed, 100).unwrap_err();
            assert!(error.to_string().contains("fractal heap at byte 600"), "{error}");
        }
    }
}
