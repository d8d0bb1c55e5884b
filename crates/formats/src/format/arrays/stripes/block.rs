//! A block: the content of some chunks, records first, on disk or, if small, in memory.
//!
//! ```text
//! block   chunks side by side, all of the same records
//! group   as many chunks as are transposed in memory at a time: chunk 0, 1, 2 | 3, 4, 5 | ...
//! piece   the records of a group that are read together:   records 0..8 of chunk 0, 1, 2
//! blob    a part of a piece that is stored contiguously, packed with LZ4 if that makes it smaller
//! ```
//!
//! Groups and pieces are as large as memory permits, so that a record is gathered from few places however small the
//! chunks are. All boxes here are transposed: their first axis is that of the records.

use std::{ops::Range, sync::Arc};

use rayon::prelude::*;

use super::{StripeSizes, reorder_axes};
use crate::{
    array::{
        Arrays, Slab, Values,
        slab::{BufferExtent, copy_box, permute_axes},
    },
    error::{Error, Result},
    storage::Spill,
};

/// Maximum blobs of a block: their locations are held in memory.
const MAX_BLOBS: u64 = 1 << 20;

/// Maximum chunks of a block.
const MAX_CHUNKS: u64 = 1 << 24;

/// Maximum bytes of a decoded chunk.
const MAX_CHUNK: usize = 256 << 20;

/// The array to be read, and its storage layout.
#[derive(Debug)]
pub(super) struct BlockOrigin<'a> {
    pub(super) source: &'a dyn Arrays,
    pub(super) variable: usize,
    pub(super) width: usize,
    /// Axis `order[i]` of the array is axis `i` of the block.
    pub(super) order: &'a [usize],
    /// The inverse of `order`.
    pub(super) back: &'a [usize],
    /// Shape of a chunk, transposed.
    pub(super) chunk: &'a [u64],
}

impl BlockOrigin<'_> {
    /// Converts a transposed box to the array's axes.
    fn to_array_axes(&self, area: &Slab) -> Slab {
        Slab { start: reorder_axes(&area.start, self.back), count: reorder_axes(&area.count, self.back) }
    }

    /// Reads a box and transposes it.
    fn read(&self, area: &Slab) -> Result<Vec<u8>> {
        let slab = self.to_array_axes(area);
        let Values::Fixed(bytes) = self.source.read(self.variable, &slab)? else {
            return Err(Error::internal("elements of any length in a chunk of fixed ones"));
        };
        if bytes.len() != slab.byte_count(self.width)? {
            return Err(Error::internal(format!("expected the elements at {}, found others", slab.describe())));
        }
        let in_place = self.order.iter().copied().eq(0..self.order.len());
        Ok(if in_place { bytes } else { permute_axes(&bytes, self.width, &slab.count, self.order) })
    }
}

/// Records of all chunks of some rows of chunks.
#[derive(Debug)]
pub(super) struct Block {
    /// The part of the array that it holds.
    area: Slab,
    width: usize,
    content: BlockContent,
}

#[derive(Debug)]
enum BlockContent {
    Little(Vec<u8>),
    Large(Large),
}

#[derive(Debug)]
struct Large {
    spill: Spill,
    grid: Grid,
    /// Records per piece.
    piece: u64,
    /// Bytes at which a blob ends.
    blob: usize,
    groups: Vec<ChunkGroup>,
    /// Blobs of all groups, ordered by piece, and within a piece by chunk. One list, allocated before anything large:
    /// small allocations that stay would fragment the memory that large ones free.
    blobs: Vec<Blob>,
}

#[derive(Debug)]
struct ChunkGroup {
    chunks: Range<u64>,
    blobs: Range<usize>,
}

#[derive(Debug)]
struct Blob {
    piece: u32,
    chunks: Range<u32>,
    stored: BlobStorage,
}

#[derive(Debug)]
enum BlobStorage {
    /// All elements have this value.
    Uniform(Arc<[u8]>),
    /// Uncompressed at this offset.
    Plain(u64),
    /// Compressed at this offset, with this many bytes.
    Packed(u64, u32),
}

/// The chunks of a block.
#[derive(Debug)]
struct Grid {
    area: Slab,
    chunk: Vec<u64>,
    counts: Vec<u64>,
}

impl Grid {
    fn for_area(area: &Slab, chunk: &[u64]) -> Self {
        let counts = area.count.iter().zip(chunk).map(|(length, chunk)| length.div_ceil(*chunk)).collect();
        Self { area: area.clone(), chunk: chunk.to_vec(), counts }
    }

    fn chunk_count(&self) -> Option<u64> {
        self.counts.iter().try_fold(1_u64, |all, count| all.checked_mul(*count))
    }

    /// Returns the box of the chunk with this number.
    fn chunk_slab(&self, number: u64) -> Slab {
        let mut slab = self.area.clone();
        let mut rest = number;
        for axis in (0..self.counts.len()).rev() {
            let at = rest % self.counts[axis] * self.chunk[axis];
            rest /= self.counts[axis];
            slab.start[axis] += at;
            slab.count[axis] = self.chunk[axis].min(slab.count[axis] - at);
        }
        slab
    }
}

/// Returns the part of a box with some of the records.
fn with_records(area: &Slab, records: &Range<u64>) -> Option<Slab> {
    let (first, end) = (area.start[0].max(records.start), (area.start[0] + area.count[0]).min(records.end));
    (first < end).then(|| {
        let mut part = area.clone();
        (part.start[0], part.count[0]) = (first, end - first);
        part
    })
}

/// A transposed chunk, and the bytes of one of its records.
struct Transposed {
    area: Slab,
    bytes: Vec<u8>,
    record: usize,
}

impl Transposed {
    fn bytes_of_records(&self, records: &Range<u64>) -> &[u8] {
        let Some(part) = with_records(&self.area, records) else { return &[] };
        let at = |records: u64| usize::try_from(records).unwrap_or(0) * self.record;
        &self.bytes[at(part.start[0] - self.area.start[0])..][..at(part.count[0])]
    }
}

impl Block {
    /// Reads the chunks of an area, each once.
    ///
    /// # Errors
    /// If the source cannot be read, or the disk is full.
    pub(super) fn read_area(origin: &BlockOrigin<'_>, area: Slab, sizes: &StripeSizes) -> Result<Self> {
        let width = origin.width;
        let bytes = area.byte_count(width);
        if bytes.as_ref().is_ok_and(|bytes| *bytes <= sizes.max_in_memory) {
            let _prefetched = origin.source.prefetch(&[(origin.variable, origin.to_array_axes(&area))])?;
            let content = BlockContent::Little(origin.read(&area)?);
            return Ok(Self { area, width, content });
        }
        let grid = Grid::for_area(&area, origin.chunk);
        let Some(total) = grid.chunk_count().filter(|total| *total <= MAX_CHUNKS) else {
            return Err(Error::input(format!("expected records in at most {MAX_CHUNKS} chunks, found more")).with_hint(
                "name a --read record-dim along which fewer chunks lie side by side, or choose others with --read var",
            ));
        };
        let chunk_bytes = Slab { start: vec![0; origin.chunk.len()], count: origin.chunk.to_vec() }.byte_count(width);
        let Ok(chunk_bytes) = chunk_bytes.and_then(|bytes| match bytes {
            1..=MAX_CHUNK => Ok(bytes),
            _ => Err(Error::internal("a chunk is too large")),
        }) else {
            return Err(Error::input(format!(
                "expected chunks of at most {MAX_CHUNK} bytes, found {:?}",
                origin.chunk
            )));
        };
        // At least two if they are no larger, to use several processors.
        let least = if chunk_bytes as u64 <= sizes.group { 2 } else { 1 };
        let per_group = (sizes.group / chunk_bytes as u64).clamp(least, u64::from(u32::MAX));
        let groups = total.div_ceil(per_group);
        let most_pieces = (MAX_BLOBS / groups).max(1);
        let wanted = sizes.piece.max(1);
        let piece = area.count[0].div_ceil(most_pieces).div_ceil(wanted).max(1) * wanted;
        let pieces = groups.saturating_mul(area.count[0].div_ceil(piece));
        let blobs = Vec::with_capacity(usize::try_from(pieces).unwrap_or(0));
        let mut large = Large { spill: Spill::new()?, grid, piece, blob: sizes.blob, groups: Vec::new(), blobs };
        for number in 0..groups {
            let chunks = number * per_group..((number + 1) * per_group).min(total);
            large.spill_chunks(origin, chunks)?;
        }
        Ok(Self { area, width, content: BlockContent::Large(large) })
    }

    /// Copies the part of a box that it holds to memory that holds the box `to`.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn copy_to(&self, wanted: &Slab, to: BufferExtent<'_>, out: &mut [u8]) -> Result<()> {
        let Some(wanted) = wanted.intersect_box(&self.area.start, &self.area.count) else { return Ok(()) };
        match &self.content {
            BlockContent::Little(bytes) => {
                let from = BufferExtent { start: &self.area.start, shape: &self.area.count };
                copy_box(&wanted, self.width, from, bytes, to, out);
                Ok(())
            }
            BlockContent::Large(large) => large.copy_to(&wanted, self.width, to, out),
        }
    }
}

impl Large {
    /// Returns the records of the piece with this number.
    fn piece_records(&self, piece: u64) -> Range<u64> {
        let first = self.grid.area.start[0] + piece * self.piece;
        first..first + self.piece
    }

    /// Reads chunks and writes them to disk.
    fn spill_chunks(&mut self, origin: &BlockOrigin<'_>, chunks: Range<u64>) -> Result<()> {
        let wanted =
            chunks.clone().map(|number| (origin.variable, origin.to_array_axes(&self.grid.chunk_slab(number))));
        let _prefetched = origin.source.prefetch(&wanted.collect::<Vec<_>>())?;
        let transposed: Vec<Transposed> = chunks
            .clone()
            .into_par_iter()
            .map(|number| {
                let area = self.grid.chunk_slab(number);
                let bytes = origin.read(&area)?;
                let record = bytes.len() / usize::try_from(area.count[0]).unwrap_or(1).max(1);
                Ok(Transposed { area, bytes, record })
            })
            .collect::<Result<_>>()?;
        let pieces = self.grid.area.count[0].div_ceil(self.piece);
        let pieces = u32::try_from(pieces).map_err(|_| Error::internal("too many pieces of a block"))?;
        // Only few pieces are packed and written at a time, because together they are as large as what was read.
        let at_once = u32::try_from(rayon::current_num_threads() * 2).unwrap_or(u32::MAX).max(1);
        let first = self.blobs.len();
        let mut piece = 0;
        while piece < pieces {
            let some = piece..pieces.min(piece.saturating_add(at_once));
            piece = some.end;
            let packed: Vec<Vec<(Blob, Vec<u8>)>> =
                some.into_par_iter().map(|piece| self.pack_piece(&transposed, piece, origin.width)).collect();
            for (mut blob, bytes) in packed.into_iter().flatten() {
                match &mut blob.stored {
                    BlobStorage::Uniform(element) => {
                        if let Some(BlobStorage::Uniform(same)) = self.blobs.last().map(|last| &last.stored)
                            && same == element
                        {
                            *element = Arc::clone(same);
                        }
                    }
                    BlobStorage::Plain(at) | BlobStorage::Packed(at, _) => *at = self.spill.append(&bytes)?,
                }
                self.blobs.push(blob);
            }
        }
        self.groups.push(ChunkGroup { chunks, blobs: first..self.blobs.len() });
        Ok(())
    }

    /// Returns the blobs of a piece, which have no offsets yet.
    fn pack_piece(&self, transposed: &[Transposed], piece: u32, width: usize) -> Vec<(Blob, Vec<u8>)> {
        let records = self.piece_records(piece.into());
        let mut blobs = Vec::new();
        let (mut first, mut bytes) = (0, Vec::new());
        for (number, chunk) in (0_u32..).zip(transposed) {
            bytes.extend_from_slice(chunk.bytes_of_records(&records));
            if bytes.len() >= self.blob || number as usize + 1 == transposed.len() {
                let (stored, bytes) = pack_bytes(std::mem::take(&mut bytes), width);
                blobs.push((Blob { piece, chunks: first..number + 1, stored }, bytes));
                first = number + 1;
            }
        }
        blobs
    }

    fn copy_to(&self, wanted: &Slab, width: usize, to: BufferExtent<'_>, out: &mut [u8]) -> Result<()> {
        let first = (wanted.start[0] - self.grid.area.start[0]) / self.piece;
        let end = (wanted.start[0] + wanted.count[0] - self.grid.area.start[0]).div_ceil(self.piece);
        for group in &self.groups {
            let blobs = &self.blobs[group.blobs.clone()];
            let from = blobs.partition_point(|blob| u64::from(blob.piece) < first);
            for blob in blobs[from..].iter().take_while(|blob| u64::from(blob.piece) < end) {
                let records = self.piece_records(blob.piece.into());
                let parts: Vec<Slab> = blob
                    .chunks
                    .clone()
                    .filter_map(|chunk| {
                        with_records(&self.grid.chunk_slab(group.chunks.start + u64::from(chunk)), &records)
                    })
                    .collect();
                if parts.iter().all(|part| wanted.intersect_box(&part.start, &part.count).is_none()) {
                    continue;
                }
                let sizes: Vec<usize> = parts.iter().map(|part| part.byte_count(width)).collect::<Result<_>>()?;
                let bytes = self.unpack_stored(&blob.stored, sizes.iter().sum())?;
                let mut at = 0;
                for (part, size) in parts.iter().zip(sizes) {
                    if let Some(shared) = wanted.intersect_box(&part.start, &part.count) {
                        let from = BufferExtent { start: &part.start, shape: &part.count };
                        copy_box(&shared, width, from, &bytes[at..at + size], to, out);
                    }
                    at += size;
                }
            }
        }
        Ok(())
    }

    fn unpack_stored(&self, stored: &BlobStorage, size: usize) -> Result<Vec<u8>> {
        match stored {
            BlobStorage::Uniform(element) => Ok(element.repeat(size / element.len().max(1))),
            BlobStorage::Plain(at) => {
                let mut bytes = vec![0; size];
                self.spill.read(*at, &mut bytes)?;
                Ok(bytes)
            }
            BlobStorage::Packed(at, length) => {
                let mut bytes = vec![0; *length as usize];
                self.spill.read(*at, &mut bytes)?;
                lz4_flex::block::decompress(&bytes, size).ok().filter(|bytes| bytes.len() == size).ok_or_else(|| {
                    Error::storage("chunks kept on disk changed before they were read back")
                        .with_hint("check the disk of TMPDIR")
                })
            }
        }
    }
}

/// Compresses bytes if that makes them smaller; returns their storage form and the bytes to store.
fn pack_bytes(bytes: Vec<u8>, width: usize) -> (BlobStorage, Vec<u8>) {
    let element = bytes.get(..width).unwrap_or_default();
    if bytes.chunks_exact(width.max(1)).all(|other| other == element) {
        return (BlobStorage::Uniform(element.into()), Vec::new());
    }
    let smaller = lz4_flex::block::compress(&bytes);
    match u32::try_from(smaller.len()) {
        Ok(length) if smaller.len() < bytes.len() - bytes.len() / 8 => (BlobStorage::Packed(0, length), smaller),
        _ => (BlobStorage::Plain(0), bytes),
    }
}
