//! Chunk indexes that are arrays, used by newer files (`libver='latest'`).
//!
//! ```text
//! fixed array        FAHD -> FADB: entries; or a bitmap of the pages that were written, and pages
//! extensible array   EAHD -> EAIB: entries, data blocks, super blocks -> EASB: bitmap, data blocks
//!                    data block, EADB: entries or pages
//! ```
//!
//! Every block and every page ends in a checksum, most of which the `hdf5-reader` crate does not verify; with one
//! changed byte it reads another part of the file as a chunk. So blocks are read here, each once and as a whole, and no
//! entry is used from a block with a wrong checksum. Chunks are numbered row by row over the grid of the dataset's
//! maximum shape, the unlimited dimension first.

use hdf5_reader::{StorageBuffer, error::Error as Hdf5Error};

use super::{
    checks::{CHECKSUM, invalid_data, read_le_uint, verify_checksum},
    chunks::ReadContext,
    filters::MAX_READ,
};

type IndexResult<T> = std::result::Result<T, Hdf5Error>;

/// Maximum levels of super blocks: an array has at most 2^64 elements.
const MAX_BITS: u8 = 64;

/// A chunk in an index; `bytes` is 0 if chunks are not filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) mask: u32,
}

/// Numbering of the chunks of a dataset in an index.
#[derive(Debug)]
pub(super) struct Numbering {
    /// Dimensions, the slowest first.
    order: Vec<usize>,
    /// Chunks of the maximum shape along each dimension of `order`, and the stride between neighbours.
    most: Vec<u64>,
    weights: Vec<u64>,
    /// Chunks of the current shape along each dimension.
    grid: Vec<u64>,
}

impl Numbering {
    /// Creates the numbering: `grid` is the number of chunks along each dimension, `chunk` the chunk shape, and
    /// `max_dims` the maximum shape, if there is one.
    pub(super) fn new(grid: &[u64], chunk: &[u64], max_dims: Option<&[u64]>) -> Self {
        let rank = grid.len();
        let max_dims = max_dims.filter(|dims| dims.len() == rank);
        let unlimited = max_dims.and_then(|dims| dims.iter().position(|dim| *dim == u64::MAX)).unwrap_or(0);
        let order: Vec<usize> =
            std::iter::once(unlimited).chain((0..rank).filter(|dim| *dim != unlimited)).take(rank).collect();
        let count = |dim: &usize| match max_dims.map(|dims| dims[*dim]) {
            Some(most) if most != u64::MAX => most.div_ceil(chunk[*dim]).max(grid[*dim]),
            _ => grid[*dim],
        };
        let most: Vec<u64> = order.iter().map(count).collect();
        let mut weights = vec![1_u64; rank];
        for at in (1..rank).rev() {
            weights[at - 1] = weights[at].saturating_mul(most[at]).max(1);
        }
        Self { order, most, weights, grid: grid.to_vec() }
    }

    /// Returns the number of a chunk.
    pub(super) fn chunk_number(&self, at: &[u64]) -> u64 {
        let parts = self.order.iter().zip(&self.weights).map(|(dim, weight)| at[*dim].saturating_mul(*weight));
        parts.fold(0, u64::saturating_add)
    }

    /// Returns one more than the number of the last chunk of the current shape.
    fn end_number(&self) -> u64 {
        let last: Vec<u64> = self.grid.iter().map(|length| length.saturating_sub(1)).collect();
        if self.grid.contains(&0) { 0 } else { self.chunk_number(&last).saturating_add(1) }
    }

    /// Sets `at` to the position in the grid of the chunk with this number; returns false if it is outside of the
    /// current shape.
    fn locate_chunk(&self, number: u64, at: &mut [u64]) -> bool {
        for (position, dim) in self.order.iter().enumerate() {
            let index = number / self.weights[position];
            at[*dim] = if position == 0 { index } else { index % self.most[position] };
        }
        at.iter().zip(&self.grid).all(|(at, length)| at < length)
    }
}

/// Receives entries with their positions in the grid.
type Take<'a> = dyn FnMut(&[u64], IndexEntry) -> IndexResult<()> + 'a;

/// Reads the entries of a fixed array.
///
/// # Errors
/// If it is damaged, or `take` fails.
pub(super) fn fixed_array(
    source: &ReadContext<'_>,
    at: u64,
    numbering: &Numbering,
    take: &mut Take<'_>,
) -> IndexResult<()> {
    let sizes = FieldWidths::for_source(source);
    let head = sizes.read_checked(source, "fixed array header", at, 8 + sizes.length + sizes.offset + 4, *b"FAHD")?;
    let head = head.as_ref();
    let form = IndexEntryForm::for_client(head[5], head[6], sizes)?;
    let elements = sizes.number_at(head, 8, sizes.length);
    let block = sizes.number_at(head, 8 + sizes.length, sizes.offset);
    let end = numbering.end_number();
    if end > elements {
        return Err(invalid_data(format!(
            "fixed array header at byte {}: expected entries for {end} chunks, found {elements}",
            source.input_offset(at)
        )));
    }
    if sizes.is_undefined(block) {
        return Ok(());
    }
    let prefix = 6 + sizes.offset;
    let page = 1_u64.checked_shl(u32::from(head[7])).filter(|page| head[7] > 0 && elements > *page);
    let mut entries = EntrySink { form, numbering, at: vec![0; numbering.grid.len()], take };
    let Some(page) = page else {
        let bytes = form.block_bytes(prefix, elements)?;
        let bytes = sizes.read_checked(source, "fixed array data block", block, bytes, *b"FADB")?;
        sizes.check_owner(source, bytes.as_ref(), block, at)?;
        return entries.add_entries(without_checksum(&bytes.as_ref()[prefix..]), 0, end);
    };
    let pages = elements.div_ceil(page);
    let bitmap = checked_size(pages.div_ceil(8))?;
    let bytes = sizes.read_checked(source, "fixed array data block", block, prefix + bitmap + 4, *b"FADB")?;
    sizes.check_owner(source, bytes.as_ref(), block, at)?;
    let bitmap = &bytes.as_ref()[prefix..prefix + bitmap];
    let page_bytes = form.block_bytes(0, page)? as u64;
    let mut page_at = block.saturating_add(bytes.len() as u64);
    for number in 0..end.div_ceil(page) {
        let first = number * page;
        let count = page.min(elements - first);
        if is_written(bitmap, number) {
            let bytes = sizes.read(source, "fixed array page", page_at, form.block_bytes(0, count)?)?;
            entries.add_entries(without_checksum(bytes.as_ref()), first, end)?;
        }
        page_at = page_at.saturating_add(page_bytes);
    }
    Ok(())
}

/// Reads the entries of an extensible array.
///
/// # Errors
/// If it is damaged, or `take` fails.
pub(super) fn extensible_array(
    source: &ReadContext<'_>,
    at: u64,
    numbering: &Numbering,
    take: &mut Take<'_>,
) -> IndexResult<()> {
    let sizes = FieldWidths::for_source(source);
    let head = 12 + 6 * sizes.length + sizes.offset + 4;
    let head = sizes.read_checked(source, "extensible array header", at, head, *b"EAHD")?;
    let head = head.as_ref();
    let array = Extensible::parse_header(head, at, sizes)?;
    let index = sizes.number_at(head, 12 + 6 * sizes.length, sizes.offset);
    if sizes.is_undefined(index) {
        return Ok(());
    }
    let end = numbering.end_number();
    let mut entries = EntrySink { form: array.form, numbering, at: vec![0; numbering.grid.len()], take };
    let (prefix, inline) = (6 + sizes.offset, usize::from(array.inline));
    let inline_bytes = inline * array.form.entry;
    let (direct, levels) = (array.direct_blocks(), array.block_levels());
    let pointers = direct + levels.len() - array.direct_levels(&levels);
    let bytes = prefix + inline_bytes + pointers * sizes.offset + 4;
    let bytes = sizes.read_checked(source, "extensible array index block", index, bytes, *b"EAIB")?;
    sizes.check_owner(source, bytes.as_ref(), index, at)?;
    let mut first = inline as u64;
    entries.add_entries(&bytes.as_ref()[prefix..prefix + inline_bytes], 0, end.min(first))?;
    let pointers = bytes.as_ref()[prefix + inline_bytes..].chunks_exact(sizes.offset).take(pointers);
    let mut pointers = pointers.map(|pointer| sizes.number_at(pointer, 0, sizes.offset));
    for (number, level) in levels.iter().enumerate() {
        if first >= end {
            break;
        }
        if number < array.direct_levels(&levels) {
            for _ in 0..level.blocks {
                let block = pointers.next().unwrap_or(u64::MAX);
                let block = DataBlock { address: block, first, elements: level.elements, written: None };
                array.data_block(source, block, end, &mut entries)?;
                first = first.saturating_add(level.elements);
            }
            continue;
        }
        let block = pointers.next().unwrap_or(u64::MAX);
        if !sizes.is_undefined(block) {
            array.super_block(source, block, first, level, end, &mut entries)?;
        }
        first = first.saturating_add(level.elements.saturating_mul(level.blocks));
    }
    Ok(())
}

/// A header of an extensible array.
struct Extensible {
    at: u64,
    sizes: FieldWidths,
    form: IndexEntryForm,
    /// Bits of the number of an element, and bytes of it.
    bits: u8,
    /// Entries in the index block itself, and in the smallest data block.
    inline: u8,
    smallest: u8,
    /// Data blocks of the smallest super block.
    pointers: u8,
    /// Elements per page; larger data blocks have several pages.
    page: u64,
}

/// Data blocks of one size.
struct Level {
    elements: u64,
    blocks: u64,
}

/// A data block of an extensible array.
#[derive(Debug, Clone, Copy)]
struct DataBlock<'a> {
    /// Its address; undefined if it was never written.
    address: u64,
    /// Number of its first element.
    first: u64,
    /// Number of its elements.
    elements: u64,
    /// Bitmap of written pages, and the number of its first page there; `None` for blocks that the index block names.
    written: Option<(&'a [u8], u64)>,
}

impl Extensible {
    fn parse_header(head: &[u8], at: u64, sizes: FieldWidths) -> IndexResult<Self> {
        let form = IndexEntryForm::for_client(head[5], head[6], sizes)?;
        let [bits, inline, smallest, pointers, page] = [head[7], head[8], head[9], head[10], head[11]];
        let sound = smallest.is_power_of_two()
            && pointers.is_power_of_two()
            && bits <= MAX_BITS
            && u32::from(bits) >= smallest.trailing_zeros();
        let page = 1_u64.checked_shl(page.into()).filter(|_| page > 0).unwrap_or(u64::MAX);
        if !sound {
            return Err(invalid_data("expected an extensible array with consistent parameters".to_owned()));
        }
        Ok(Self { at, sizes, form, bits, inline, smallest, pointers, page })
    }

    /// Returns the levels of super blocks, including those whose data blocks the index block names.
    fn block_levels(&self) -> Vec<Level> {
        let count = u32::from(self.bits) - self.smallest.trailing_zeros() + 1;
        let level = |number: u32| Level {
            elements: u64::from(self.smallest).checked_shl(number.div_ceil(2)).unwrap_or(u64::MAX),
            blocks: 1 << (number / 2),
        };
        (0..count).map(level).collect()
    }

    /// Returns the number of levels whose data blocks the index block names, and the number of these blocks.
    fn direct_levels(&self, levels: &[Level]) -> usize {
        (2 * self.pointers.trailing_zeros() as usize).min(levels.len())
    }

    fn direct_blocks(&self) -> usize {
        2 * (usize::from(self.pointers) - 1)
    }

    /// Returns the bytes before the content of a block: signature, version, client, header, number of its first
    /// element.
    fn prefix_bytes(&self) -> usize {
        6 + self.sizes.offset + usize::from(self.bits).div_ceil(8)
    }

    fn page_count(&self, elements: u64) -> u64 {
        if elements > self.page { elements.div_ceil(self.page) } else { 0 }
    }

    fn super_block(
        &self,
        source: &ReadContext<'_>,
        block: u64,
        mut first: u64,
        level: &Level,
        end: u64,
        entries: &mut EntrySink<'_, '_>,
    ) -> IndexResult<()> {
        let (sizes, prefix) = (self.sizes, self.prefix_bytes());
        let pages = self.page_count(level.elements);
        let blocks = checked_size(level.blocks)?;
        let bitmap = checked_size(level.blocks.saturating_mul(pages.div_ceil(8)))?;
        let pointers = blocks.checked_mul(sizes.offset).ok_or_else(too_large)?;
        let bytes = prefix.saturating_add(bitmap).saturating_add(pointers).saturating_add(4);
        let bytes = sizes.read_checked(source, "extensible array super block", block, bytes, *b"EASB")?;
        sizes.check_owner(source, bytes.as_ref(), block, self.at)?;
        let (bitmap, pointers) = bytes.as_ref()[prefix..prefix + bitmap + pointers].split_at(bitmap);
        for (number, pointer) in pointers.chunks_exact(sizes.offset).enumerate() {
            if first >= end {
                break;
            }
            let written = Some((bitmap, number as u64 * pages));
            let address = sizes.number_at(pointer, 0, sizes.offset);
            let block = DataBlock { address, first, elements: level.elements, written };
            self.data_block(source, block, end, entries)?;
            first = first.saturating_add(level.elements);
        }
        Ok(())
    }

    /// Reads a data block.
    fn data_block(
        &self,
        source: &ReadContext<'_>,
        block: DataBlock<'_>,
        end: u64,
        entries: &mut EntrySink<'_, '_>,
    ) -> IndexResult<()> {
        let (sizes, prefix) = (self.sizes, self.prefix_bytes());
        let DataBlock { address: block, first, elements, written } = block;
        if sizes.is_undefined(block) || first >= end {
            return Ok(());
        }
        let what = "extensible array data block";
        let pages = self.page_count(elements);
        if pages == 0 {
            let bytes = sizes.read_checked(source, what, block, self.form.block_bytes(prefix, elements)?, *b"EADB")?;
            sizes.check_owner(source, bytes.as_ref(), block, self.at)?;
            return entries.add_entries(without_checksum(&bytes.as_ref()[prefix..]), first, end);
        }
        let bytes = sizes.read_checked(source, what, block, prefix + 4, *b"EADB")?;
        sizes.check_owner(source, bytes.as_ref(), block, self.at)?;
        let Some((bitmap, bit)) = written else {
            return Err(invalid_data(format!(
                "{what} at byte {}: expected one of a single page",
                source.input_offset(block)
            )));
        };
        let page_bytes = self.form.block_bytes(0, self.page)?;
        let mut page_at = block.saturating_add(bytes.len() as u64);
        for page in 0..pages {
            let first = first.saturating_add(page * self.page);
            if first >= end {
                break;
            }
            if is_written(bitmap, bit + page) {
                let bytes = sizes.read(source, "extensible array page", page_at, page_bytes)?;
                entries.add_entries(without_checksum(bytes.as_ref()), first, end)?;
            }
            page_at = page_at.saturating_add(page_bytes as u64);
        }
        Ok(())
    }
}

/// Bytes of addresses and of lengths in a file.
#[derive(Clone, Copy)]
struct FieldWidths {
    offset: usize,
    length: usize,
}

impl FieldWidths {
    fn for_source(source: &ReadContext<'_>) -> Self {
        let superblock = source.file.superblock();
        Self { offset: superblock.offset_size.into(), length: superblock.length_size.into() }
    }

    /// Returns the number of `width` bytes at an offset of a block, which must have them.
    fn number_at(self, bytes: &[u8], at: usize, width: usize) -> u64 {
        read_le_uint(&bytes[at..at + width])
    }

    fn is_undefined(self, address: u64) -> bool {
        address == u64::MAX >> (64 - 8 * self.offset.clamp(1, 8))
    }

    /// Reads a block that ends in its checksum.
    fn read(self, source: &ReadContext<'_>, what: &str, at: u64, bytes: usize) -> IndexResult<StorageBuffer> {
        let block = source.file.storage().read_range(at, bytes)?;
        verify_checksum(what, source.input_offset(at), block.as_ref())?;
        Ok(block)
    }

    /// Reads a block that begins with its signature and version 0 and ends in its checksum.
    fn read_checked(
        self,
        source: &ReadContext<'_>,
        what: &str,
        at: u64,
        bytes: usize,
        signature: [u8; 4],
    ) -> IndexResult<StorageBuffer> {
        let block = source.file.storage().read_range(at, bytes)?;
        if block.as_ref().get(..5) != Some(&[signature[0], signature[1], signature[2], signature[3], 0]) {
            let (name, at) = (String::from_utf8_lossy(&signature), source.input_offset(at));
            return Err(invalid_data(format!("{what} at byte {at}: expected the signature `{name}` and version 0")));
        }
        verify_checksum(what, source.input_offset(at), block.as_ref())?;
        Ok(block)
    }

    /// Fails unless a block belongs to the array whose header is at `head`.
    fn check_owner(self, source: &ReadContext<'_>, block: &[u8], at: u64, head: u64) -> IndexResult<()> {
        let found = self.number_at(block, 6, self.offset);
        if found == head {
            return Ok(());
        }
        let [at, head, found] = [at, head, found].map(|at| source.input_offset(at));
        Err(invalid_data(format!(
            "chunk index at byte {at}: expected a block of the array at byte {head}, found one of {found}"
        )))
    }
}

/// Storage form of entries.
#[derive(Clone, Copy)]
struct IndexEntryForm {
    sizes: FieldWidths,
    entry: usize,
    /// Bytes of the size of a chunk; 0 if chunks are not filtered and entries are addresses.
    size: usize,
}

impl IndexEntryForm {
    fn for_client(client: u8, entry: u8, sizes: FieldWidths) -> IndexResult<Self> {
        let entry = usize::from(entry);
        let size = match client {
            0 => Some(0).filter(|_| entry == sizes.offset),
            1 => entry.checked_sub(sizes.offset + 4).filter(|size| (1..=8).contains(size)),
            _ => None,
        };
        let wrong = || {
            invalid_data(format!("expected an index of chunks, found one of kind {client}, entries of {entry} bytes"))
        };
        Ok(Self { sizes, entry, size: size.ok_or_else(wrong)? })
    }

    /// Returns the bytes of a block of `entries` entries, including its checksum.
    fn block_bytes(self, prefix: usize, entries: u64) -> IndexResult<usize> {
        let bytes = checked_size(entries)?.checked_mul(self.entry).and_then(|bytes| bytes.checked_add(prefix + 4));
        bytes.filter(|bytes| *bytes <= MAX_READ).ok_or_else(too_large)
    }

    fn parse_entry(self, bytes: &[u8]) -> IndexEntry {
        let FieldWidths { offset, .. } = self.sizes;
        let number = |at, width| self.sizes.number_at(bytes, at, width);
        let address = number(0, offset);
        if self.size == 0 {
            return IndexEntry { address, bytes: 0, mask: 0 };
        }
        let mask = u32::try_from(number(offset + self.size, 4)).unwrap_or(0);
        IndexEntry { address, bytes: number(offset, self.size), mask }
    }
}

/// Passes entries on to the caller.
struct EntrySink<'a, 'b> {
    form: IndexEntryForm,
    numbering: &'a Numbering,
    at: Vec<u64>,
    take: &'a mut Take<'b>,
}

impl EntrySink<'_, '_> {
    /// Adds entries from number `first` up to `end`, or as many as there are bytes.
    fn add_entries(&mut self, bytes: &[u8], first: u64, end: u64) -> IndexResult<()> {
        for (number, bytes) in (first..end).zip(bytes.chunks_exact(self.form.entry)) {
            let entry = self.form.parse_entry(bytes);
            if !self.form.sizes.is_undefined(entry.address) && self.numbering.locate_chunk(number, &mut self.at) {
                (self.take)(&self.at, entry)?;
            }
        }
        Ok(())
    }
}

fn without_checksum(block: &[u8]) -> &[u8] {
    &block[..block.len().saturating_sub(CHECKSUM)]
}

/// Whether a page was ever written; bits are numbered from the highest one of each byte.
fn is_written(bitmap: &[u8], bit: u64) -> bool {
    let byte = usize::try_from(bit / 8).ok().and_then(|at| bitmap.get(at));
    byte.is_some_and(|byte| byte & (0x80 >> (bit % 8)) != 0)
}

fn checked_size(number: u64) -> IndexResult<usize> {
    usize::try_from(number).ok().filter(|number| *number <= MAX_READ).ok_or_else(too_large)
}

fn too_large() -> Hdf5Error {
    Hdf5Error::ResourceLimit(format!("expected chunk indexes in blocks of at most {MAX_READ} bytes, found more"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use hdf5_reader::{Hdf5File, checksum::jenkins_lookup3};

    use super::*;
    use crate::format::{
        hdf5::{filters::filter_registry, storage::Blocks},
        ranged::RangedInput,
    };

    /// Returns the parts of a block followed by their checksum.
    fn sealed(parts: &[&[u8]]) -> Vec<u8> {
        let mut out = parts.concat();
        out.extend_from_slice(&jenkins_lookup3(&out).to_le_bytes());
        out
    }

    fn pointers(addresses: &[u64]) -> Vec<u8> {
        addresses.iter().flat_map(|address| address.to_le_bytes()).collect()
    }

    /// Returns a file of a superblock and blocks at some offsets.
    fn file(blocks: &[(usize, Vec<u8>)]) -> Vec<u8> {
        let length = blocks.iter().map(|(at, block)| at + block.len()).max().unwrap();
        let ends = pointers(&[0, u64::MAX, length as u64, 0]);
        let mut out = sealed(&[b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00", &ends]);
        out.resize(length, 0xee);
        blocks.iter().for_each(|(at, block)| out[*at..*at + block.len()].copy_from_slice(block));
        out
    }

    /// Returns the entries of an index at byte 64, or the error.
    fn entries(bytes: Vec<u8>, numbering: &Numbering, fixed: bool) -> IndexResult<Vec<(Vec<u64>, u64)>> {
        let blocks = Arc::new(Blocks::new(RangedInput::Bytes(Bytes::from(bytes)))?);
        let file = Hdf5File::from_storage(Arc::clone(&blocks) as _)?;
        let registry = filter_registry();
        let source = ReadContext { file: &file, blocks: &blocks, registry: &registry };
        let mut found = Vec::new();
        let mut take = |at: &[u64], entry: IndexEntry| {
            found.push((at.to_vec(), entry.address));
            Ok(())
        };
        if fixed {
            fixed_array(&source, 64, numbering, &mut take)?;
        } else {
            extensible_array(&source, 64, numbering, &mut take)?;
        }
        Ok(found)
    }

    /// Changes each byte of a file from its index on: the result must be unchanged or an error.
    fn withstands_damage(bytes: &[u8], numbering: &Numbering, fixed: bool) {
        let whole = entries(bytes.to_vec(), numbering, fixed).unwrap();
        let mut refused = 0;
        for at in 64..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 0x10;
            match entries(changed, numbering, fixed) {
                Ok(found) => assert!(found == whole && bytes[at] == 0xee, "byte {at}"),
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("at byte "), "{error}");
                }
            }
        }
        assert!(refused > 80, "{refused}");
    }

    #[test]
    fn fixed_arrays_are_numbered_by_the_largest_shape_and_every_byte_counts() {
        // 2 x 3 chunks of a grid that may grow to 3 x 4.
        let numbering = Numbering::new(&[2, 3], &[5, 5], Some(&[15, 20]));
        let head = |page_bits: u8| {
            let sizes = [8_u8, page_bits];
            (64, sealed(&[b"FAHD\x00\x00", &sizes, &pointers(&[12, 128])]))
        };
        let addresses: Vec<u64> = (1000..1012).collect();
        let expected: Vec<(Vec<u64>, u64)> =
            [(0, 0, 1000), (0, 1, 1001), (0, 2, 1002), (1, 0, 1004), (1, 1, 1005), (1, 2, 1006)]
                .map(|(row, column, address)| (vec![row, column], address))
                .to_vec();
        let block = sealed(&[b"FADB\x00\x00", &pointers(&[64]), &pointers(&addresses)]);
        let whole = file(&[head(10), (128, block)]);
        assert_eq!(entries(whole.clone(), &numbering, true).unwrap(), expected);
        withstands_damage(&whole, &numbering, true);
        // Pages of 4, of which the second was never written.
        let mut block = sealed(&[b"FADB\x00\x00", &pointers(&[64]), &[0b1010_0000]]);
        block.extend(sealed(&[&pointers(&addresses[..4])]));
        block.extend([0xee; 36]);
        block.extend(sealed(&[&pointers(&addresses[8..])]));
        let whole = file(&[head(2), (128, block)]);
        assert_eq!(entries(whole.clone(), &numbering, true).unwrap(), expected[..3]);
        // The last page is beyond the shape.
        let mut unread = whole.clone();
        let end = unread.len();
        unread[end - 36..].fill(0xee);
        withstands_damage(&unread, &Numbering::new(&[1, 3], &[5, 5], Some(&[15, 20])), true);
        let more = Numbering::new(&[3, 5], &[5, 5], None);
        assert!(entries(whole, &more, true).unwrap_err().to_string().contains("expected entries for 15 chunks"));
    }

    #[test]
    fn extensible_arrays_are_read_with_super_blocks_and_pages() {
        let none = u64::MAX;
        let addresses = |numbers: std::ops::Range<u64>| pointers(&numbers.map(|n| 1000 + n).collect::<Vec<_>>());
        // 256 elements at most, 2 in the index block, 2 in the smallest data block, 2 pointers, pages of 4.
        let head = sealed(&[b"EAHD\x00\x00\x08\x08\x02\x02\x02\x02", &pointers(&[0, 0, 0, 0, 0, 0, 256])]);
        let own = pointers(&[64]);
        let direct = pointers(&[512, 576]);
        let supers = pointers(&[700, 800, none, none, none, none]);
        let index = sealed(&[b"EAIB\x00\x00", &own, &addresses(0..2), &direct, &supers]);
        let data = |first: u8, numbers| sealed(&[b"EADB\x00\x00", &own, &[first], &addresses(numbers)]);
        let unpaged = sealed(&[b"EASB\x00\x00", &own, &[6], &pointers(&[none, 900])]);
        // The second page of the first data block, and the first of the second.
        let paged = sealed(&[b"EASB\x00\x00", &own, &[14], &[0b0110_0000, 0], &pointers(&[1000, 1200])]);
        let mut first = sealed(&[b"EADB\x00\x00", &own, &[14]]);
        first.extend([0xee; 36]);
        first.extend(sealed(&[&addresses(20..24)]));
        let mut second = sealed(&[b"EADB\x00\x00", &own, &[22]]);
        second.extend(sealed(&[&addresses(24..28)]));
        second.extend([0xee; 36]);
        let whole = file(&[
            (64, head),
            (256, index),
            (512, data(0, 2..4)),
            (576, data(2, 4..8)),
            (700, unpaged),
            (800, paged),
            (900, data(10, 12..16)),
            (1000, first),
            (1200, second),
        ]);
        let expected: Vec<(Vec<u64>, u64)> =
            (0..8).chain(12..16).chain(20..27).map(|n: u64| (vec![n % 3, n / 3], 1000 + n)).collect();
        // The second dimension is unlimited, so it is the slowest.
        let numbering = Numbering::new(&[3, 9], &[1, 1], Some(&[3, u64::MAX]));
        assert_eq!(entries(whole.clone(), &numbering, false).unwrap(), expected);
        withstands_damage(&whole, &numbering, false);
    }

    #[test]
    fn numbers_map_to_places_and_back() {
        let numbering = Numbering::new(&[2, 3, 2], &[2, 2, 5], Some(&[9, u64::MAX, 11]));
        let mut at = vec![0; 3];
        for number in 0..numbering.end_number() {
            if numbering.locate_chunk(number, &mut at) {
                assert_eq!(numbering.chunk_number(&at), number);
            }
        }
        assert_eq!(numbering.chunk_number(&[1, 2, 1]), 2 * 15 + 3 + 1);
        assert_eq!(Numbering::new(&[0, 3], &[1, 1], None).end_number(), 0);
    }
}
