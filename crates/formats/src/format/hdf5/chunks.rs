//! Chunked datasets: the location of each chunk is read once, then chunks are fetched, decoded and copied one by one.
//!
//! ```text
//! index    tree of nodes, or an array, in the file  -->  number in the grid -> address, bytes, skipped filters
//! slab     chunks that it touches --> their ranges (requested together if remote) --> decoded --> copied
//! ```
//!
//! The crate walks the whole tree for every box that is read, so its time grows with the square of the number of
//! chunks. Here, nodes of the tree are read level by level, because each level has the addresses of the next.

use std::{
    collections::HashSet,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use hdf5_reader::{
    Dataset, FilterRegistry, Hdf5File,
    btree_v1::{BTreeV1Key, BTreeV1Node},
    chunk_index::collect_v2_chunk_entries_storage,
    error::Error as Hdf5Error,
    filters::apply_pipeline_with_limit,
    io::Cursor,
    messages::{
        HdfMessage,
        filter_pipeline::FilterPipelineMessage,
        layout::{ChunkIndexing, DataLayout},
    },
};

use super::{
    checks::invalid_data,
    filters::{MAX_CHUNK, MAX_READ},
    headers::Headers,
    indexes::{IndexEntry, Numbering, extensible_array, fixed_array},
    storage::Blocks,
};
use crate::array::{
    Slab,
    slab::{BufferExtent, copy_box, intersecting_chunks},
};

type ChunkResult<T> = std::result::Result<T, Hdf5Error>;

/// Entries of an index collected at a time, because they take several times as much memory as the index made from them.
const BAND: u64 = 1 << 16;

/// Grid size above which stored chunks are enumerated: most chunks of such a grid are missing, and looking up each
/// takes longer.
const MAX_LOOKUP_GRID: u64 = 1 << 24;

/// Maximum levels of a tree.
const MAX_LEVELS: usize = 64;

/// Bytes before the keys of a node if offsets take 8 bytes, and default number of children of a node.
const NODE_HEAD: usize = 24;
const CHILDREN: u64 = 64;

/// Returns the offset of a contiguous dataset; `None` if it is stored otherwise.
pub(super) fn contiguous_offset(file: &Hdf5File, dataset: &Dataset) -> ChunkResult<Option<u64>> {
    let header = file.get_or_parse_header(dataset.address())?;
    let is_elsewhere = header.messages.iter().any(|message| matches!(message, HdfMessage::ExternalFiles(_)));
    let offset_size = file.superblock().offset_size;
    Ok(header.messages.iter().rev().find_map(|message| match message {
        HdfMessage::DataLayout(message) => match message.layout {
            DataLayout::Contiguous { address, .. }
                if !is_elsewhere && !Cursor::is_undefined_offset(address, offset_size) =>
            {
                file.superblock().base_address.checked_add(address)
            }
            _ => None,
        },
        _ => None,
    }))
}

/// Context for reading chunks.
pub(super) struct ReadContext<'a> {
    pub(super) file: &'a Hdf5File,
    pub(super) blocks: &'a Blocks,
    pub(super) registry: &'a FilterRegistry,
}

impl ReadContext<'_> {
    /// Converts an address to an offset in the input.
    pub(super) fn input_offset(&self, address: u64) -> u64 {
        self.file.superblock().base_address.saturating_add(address)
    }
}

/// A chunked dataset.
pub(super) struct Chunked {
    address: u64,
    indexing: Option<ChunkIndexing>,
    /// Shape of a chunk.
    chunk: Vec<u64>,
    chunk_dims: Vec<u32>,
    /// Stored shape, which may be smaller than the dataset's visible shape.
    stored: Vec<u64>,
    max_dims: Option<Vec<u64>>,
    /// Number of chunks along each axis.
    grid: Vec<u64>,
    filters: FilterPipelineMessage,
    /// Whether chunks that extend beyond the stored shape are unfiltered.
    bare_edges: bool,
    /// Bytes of an element, and the fill value.
    width: usize,
    fill: Vec<u8>,
    index: Mutex<Option<Arc<ChunkIndex>>>,
}

/// Locations of chunks, by their number in the grid.
#[derive(Debug, Default)]
struct ChunkIndex {
    numbers: Vec<u64>,
    places: Vec<ChunkLocation>,
}

/// Location of a chunk in the file, its stored bytes, and its skipped filters.
#[derive(Debug, Clone, Copy)]
struct ChunkLocation {
    address: u64,
    bytes: u32,
    mask: u32,
}

impl ChunkLocation {
    fn from_parts(address: u64, bytes: u64, mask: u32) -> ChunkResult<Self> {
        let too_large = |_| Hdf5Error::ResourceLimit(format!("a chunk of {bytes} bytes is too large"));
        Ok(Self { address, bytes: u32::try_from(bytes).map_err(too_large)?, mask })
    }
}

impl ChunkIndex {
    fn get(&self, number: u64) -> Option<ChunkLocation> {
        // Usually all chunks exist.
        let at = usize::try_from(number).ok().filter(|at| self.numbers.get(*at) == Some(&number));
        let at = at.or_else(|| self.numbers.binary_search(&number).ok())?;
        self.places.get(at).copied()
    }
}

impl Chunked {
    /// Returns the chunks of a dataset that the file declares as chunked; `None` if it is stored otherwise. `stored` is
    /// its shape in the file.
    pub(super) fn for_dataset(
        file: &Hdf5File,
        headers: &Headers,
        dataset: &Dataset,
        stored: &[u64],
    ) -> ChunkResult<Option<Self>> {
        let header = file.get_or_parse_header(dataset.address())?;
        let layout = header.messages.iter().rev().find_map(|message| match message {
            HdfMessage::DataLayout(message) => Some(&message.layout),
            _ => None,
        });
        let filters = header.messages.iter().rev().find_map(|message| match message {
            HdfMessage::FilterPipeline(message) => Some(message.clone()),
            _ => None,
        });
        let (Some(DataLayout::Chunked { address, chunk_indexing, .. }), Some(dims)) = (layout, dataset.chunks()) else {
            return Ok(None);
        };
        let width = dataset.raw_element_size()?;
        let fill = dataset.fill_value().and_then(|fill| fill.value.clone()).unwrap_or_default();
        let fill = if fill.is_empty() { vec![0; width] } else { fill };
        // Unusual datasets are left to the crate, which also reports what is wrong with them.
        if dims.is_empty() || dims.len() != stored.len() || dims.contains(&0) || width == 0 || fill.len() != width {
            return Ok(None);
        }
        let chunk: Vec<u64> = dims.iter().copied().map(u64::from).collect();
        let grid: Vec<u64> = stored.iter().zip(&chunk).map(|(length, chunk)| length.div_ceil(*chunk)).collect();
        Ok(Some(Self {
            address: *address,
            indexing: chunk_indexing.clone(),
            chunk,
            chunk_dims: dims,
            stored: stored.to_vec(),
            max_dims: dataset.max_dims().map(<[u64]>::to_vec),
            grid,
            filters: filters.unwrap_or(FilterPipelineMessage { filters: Vec::new() }),
            bare_edges: headers.has_bare_edges(dataset.address()),
            width,
            fill,
            index: Mutex::default(),
        }))
    }

    /// Returns the bytes of an element.
    pub(super) fn element_width(&self) -> usize {
        self.width
    }

    /// Returns the bytes of memory that its index takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.as_ref().map_or(0, |index| index.numbers.len() as u64 * 24)
    }

    /// Returns the bytes of a decoded chunk.
    fn chunk_bytes(&self) -> ChunkResult<usize> {
        let bytes = self.chunk.iter().try_fold(self.width as u64, |all, length| all.checked_mul(*length));
        bytes.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes <= MAX_CHUNK).ok_or_else(|| {
            Hdf5Error::ResourceLimit(format!("a chunk of shape {:?} takes more than {MAX_CHUNK} bytes", self.chunk))
        })
    }

    /// Returns the stored chunks of a slab: the start and the location of each.
    fn stored_chunks(&self, index: &ChunkIndex, slab: &Slab) -> Vec<(Vec<u64>, ChunkLocation)> {
        let within = |at: &Vec<u64>| at.iter().zip(&self.grid).all(|(at, length)| at < length);
        let number =
            |at: &[u64]| at.iter().zip(&self.grid).fold(0_u64, |all, (at, length)| all.wrapping_mul(*length) + at);
        let place = |at: Vec<u64>| {
            let place = index.get(number(&at))?;
            Some((at.iter().zip(&self.chunk).map(|(at, chunk)| at * chunk).collect(), place))
        };
        intersecting_chunks(slab, &self.chunk).filter(within).filter_map(place).collect()
    }

    /// Returns the ranges of the input that a slab needs.
    pub(super) fn slab_ranges(&self, source: &ReadContext<'_>, slab: &Slab) -> ChunkResult<Vec<Range<u64>>> {
        let index = self.index(source)?;
        let base = source.file.superblock().base_address;
        let whole = self.chunk_bytes()? as u64;
        let range = |(_, place): (Vec<u64>, ChunkLocation)| {
            let start = base.checked_add(place.address)?;
            let bytes = if place.bytes == 0 { whole } else { place.bytes.into() };
            Some(start..start.checked_add(bytes)?)
        };
        Ok(self.stored_chunks(&index, slab).into_iter().filter_map(range).collect())
    }

    /// Returns the elements of a slab of at least one, as stored.
    pub(super) fn read(&self, source: &ReadContext<'_>, slab: &Slab) -> ChunkResult<Vec<u8>> {
        let chunk_bytes = self.chunk_bytes()?;
        let total = slab.byte_count(self.width).ok().filter(|bytes| *bytes <= MAX_READ);
        let total =
            total.ok_or_else(|| Hdf5Error::ResourceLimit(format!("{} takes too much memory", slab.describe())))?;
        let index = self.index(source)?;
        let places = self.stored_chunks(&index, slab);
        if self.side_by_side(&places, slab) {
            // The chunks follow one another and are the whole result.
            let mut out = Vec::new();
            for (start, place) in places {
                let bytes = self.read_chunk(source, &start, place, chunk_bytes)?;
                if bytes.len() == total {
                    return Ok(bytes);
                }
                out.reserve_exact(total - out.len());
                out.extend_from_slice(&bytes);
            }
            return Ok(out);
        }
        let elements = total / self.width;
        let mut out = if self.fill.iter().all(|byte| *byte == 0) { vec![0; total] } else { self.fill.repeat(elements) };
        let to = BufferExtent { start: &slab.start, shape: &slab.count };
        for (start, place) in places {
            let bytes = self.read_chunk(source, &start, place, chunk_bytes)?;
            if let Some(shared) = slab.intersect_box(&start, &self.chunk) {
                copy_box(&shared, self.width, BufferExtent { start: &start, shape: &self.chunk }, &bytes, to, &mut out);
            }
        }
        Ok(out)
    }

    /// Whether these chunks, concatenated, are exactly the content of a slab.
    fn side_by_side(&self, places: &[(Vec<u64>, ChunkLocation)], slab: &Slab) -> bool {
        let Some((first, _)) = places.first() else { return false };
        *first == slab.start
            && slab.count[1..] == self.chunk[1..]
            && slab.count[0].is_multiple_of(self.chunk[0])
            && places.len() as u64 == slab.count[0] / self.chunk[0]
    }

    /// Returns a decoded chunk.
    fn read_chunk(
        &self,
        source: &ReadContext<'_>,
        start: &[u64],
        place: ChunkLocation,
        expected: usize,
    ) -> ChunkResult<Vec<u8>> {
        let length = if place.bytes == 0 { expected } else { place.bytes as usize };
        let base = source.file.superblock().base_address;
        let at = base.checked_add(place.address).ok_or(Hdf5Error::OffsetOutOfBounds(place.address))?;
        let stored = source.blocks.read_chunk(at, length)?;
        let filters = &self.filters.filters;
        let mut reach = start.iter().zip(&self.chunk).zip(&self.stored);
        let is_bare = self.bare_edges && reach.any(|((start, chunk), stored)| start + chunk > *stored);
        let mut bytes = if filters.is_empty() || is_bare {
            stored.as_ref().to_vec()
        } else {
            let limit = Some(expected + 1);
            apply_pipeline_with_limit(stored.as_ref(), filters, place.mask, self.width, Some(source.registry), limit)?
        };
        if bytes.len() != expected {
            let found = bytes.len();
            return Err(invalid_data(format!(
                "chunk at offsets {start:?} decoded to {found} bytes, expected {expected} bytes"
            )));
        }
        self.fill_beyond_shape(start, &mut bytes);
        Ok(bytes)
    }

    /// Overwrites the part of a chunk beyond the shape in the file with the fill value: it may date from when the
    /// dataset was larger.
    fn fill_beyond_shape(&self, start: &[u64], bytes: &mut [u8]) {
        let kept = |axis: usize| self.stored[axis].saturating_sub(start[axis]).min(self.chunk[axis]);
        if (0..start.len()).all(|axis| kept(axis) == self.chunk[axis]) {
            return;
        }
        let inside = Slab { start: vec![0; start.len()], count: (0..start.len()).map(kept).collect() };
        let whole = BufferExtent { start: &inside.start, shape: &self.chunk };
        let mut cleared = self.fill.repeat(bytes.len() / self.width);
        copy_box(&inside, self.width, whole, bytes, whole, &mut cleared);
        bytes.copy_from_slice(&cleared);
    }

    /// Returns the index, which the first caller reads.
    fn index(&self, source: &ReadContext<'_>) -> ChunkResult<Arc<ChunkIndex>> {
        let mut known = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = &*known {
            return Ok(Arc::clone(index));
        }
        let mut found = Collected { chunked: self, entries: Vec::new() };
        let offset_size = source.file.superblock().offset_size;
        if !Cursor::is_undefined_offset(self.address, offset_size) && !self.stored.contains(&0) {
            match &self.indexing {
                None => self.read_btree_v1(source, &mut found)?,
                Some(other) => self.read_other_index(source, other, &mut found)?,
            }
        }
        let index = Arc::new(found.index()?);
        *known = Some(Arc::clone(&index));
        Ok(index)
    }

    /// Reads the B-tree of version 1, level by level.
    fn read_btree_v1(&self, source: &ReadContext<'_>, found: &mut Collected<'_>) -> ChunkResult<()> {
        let superblock = source.file.superblock();
        let storage = source.file.storage();
        let (offset_size, length_size) = (superblock.offset_size, superblock.length_size);
        let rank = self.chunk.len();
        let (key, head) = (8 + (rank + 1) * 8, NODE_HEAD - 16 + 2 * usize::from(offset_size));
        let node_bytes = |children: usize| head + (children + 1) * key + children * usize::from(offset_size);
        let most = match superblock.indexed_storage_k {
            0 => CHILDREN,
            half => 2 * u64::from(half),
        };
        let expected = node_bytes(usize::try_from(most).unwrap_or(0)) as u64;
        let (mut level, mut seen) = (vec![self.address], HashSet::new());
        for _ in 0..MAX_LEVELS {
            let end = storage.len();
            let range = |at: &u64| {
                let start = superblock.base_address.saturating_add(*at);
                start..start.saturating_add(expected).min(end.saturating_add(superblock.base_address))
            };
            let _prefetched = source.blocks.prefetch_ranges(level.iter().map(range).collect())?;
            let mut next = Vec::new();
            for address in level {
                if Cursor::is_undefined_offset(address, offset_size) {
                    continue;
                }
                if !seen.insert(address) {
                    return Err(invalid_data(format!(
                        "expected each node of a tree of chunks once, found the one at {address:#x} twice"
                    )));
                }
                let begin = storage.read_range(address, head)?;
                let children = begin.as_ref().get(6..8).map_or(0, |n| usize::from(u16::from_le_bytes([n[0], n[1]])));
                if begin.as_ref().get(4) != Some(&1) {
                    return Err(invalid_data(format!("expected a node of a tree of chunks at {address:#x}")));
                }
                let bytes = storage.read_range(address, node_bytes(children))?;
                let rank = u32::try_from(rank).unwrap_or(u32::MAX);
                let node = BTreeV1Node::parse(&mut Cursor::new(bytes.as_ref()), offset_size, length_size, Some(rank))?;
                if node.level > 0 {
                    next.extend(node.children);
                    continue;
                }
                for (key, address) in node.keys.into_iter().zip(node.children) {
                    let BTreeV1Key::RawData { chunk_size, filter_mask, offsets } = key else {
                        return Err(invalid_data(
                            "expected keys of chunks in a tree of chunks, found others".to_owned(),
                        ));
                    };
                    found.add_at_offsets(
                        &offsets[..self.chunk.len()],
                        ChunkLocation { address, bytes: chunk_size, mask: filter_mask },
                    )?;
                }
            }
            if next.is_empty() {
                return Ok(());
            }
            level = next;
        }
        Err(invalid_data(format!("expected a tree of chunks of at most {MAX_LEVELS} levels, found more")))
    }

    /// Reads an index of another kind.
    fn read_other_index(
        &self,
        source: &ReadContext<'_>,
        indexing: &ChunkIndexing,
        found: &mut Collected<'_>,
    ) -> ChunkResult<()> {
        let numbering = Numbering::new(&self.grid, &self.chunk, self.max_dims.as_deref());
        let mut take = |at: &[u64], entry: IndexEntry| {
            found.add_at_position(at, ChunkLocation::from_parts(entry.address, entry.bytes, entry.mask)?)
        };
        match indexing {
            ChunkIndexing::SingleChunk { filtered_size, filters } => {
                let entry = IndexEntry { address: self.address, bytes: *filtered_size, mask: *filters };
                take(&vec![0; self.grid.len()], entry)
            }
            ChunkIndexing::Implicit => self.add_implicit(source.file.storage().len(), &numbering, &mut take),
            ChunkIndexing::FixedArray { .. } => fixed_array(source, self.address, &numbering, &mut take),
            ChunkIndexing::ExtensibleArray { .. } => extensible_array(source, self.address, &numbering, &mut take),
            ChunkIndexing::BTreeV2 => self.read_btree_v2(source, found),
        }
    }

    /// Reads a tree of version 2, a band of the first axis at a time.
    fn read_btree_v2(&self, source: &ReadContext<'_>, found: &mut Collected<'_>) -> ChunkResult<()> {
        let superblock = source.file.superblock();
        let (offset_size, length_size) = (superblock.offset_size, superblock.length_size);
        let rank = u32::try_from(self.chunk.len()).unwrap_or(u32::MAX);
        let total = self.grid.iter().fold(1_u64, |all, length| all.saturating_mul(*length));
        let band = if total > MAX_LOOKUP_GRID { self.grid[0] } else { (BAND * self.grid[0] / total).max(1) };
        let mut first = 0;
        while first < self.grid[0] {
            let end = first.saturating_add(band).min(self.grid[0]);
            let mut low = vec![0; self.grid.len()];
            let mut high: Vec<u64> = self.grid.iter().map(|length| length - 1).collect();
            (low[0], high[0]) = (first, end - 1);
            let bounds = (band < self.grid[0]).then_some((low.as_slice(), high.as_slice()));
            let (storage, dims) = (source.file.storage(), self.chunk_dims.as_slice());
            for entry in
                collect_v2_chunk_entries_storage(storage, self.address, offset_size, length_size, rank, dims, bounds)?
            {
                found.add_at_offsets(
                    &entry.offsets,
                    ChunkLocation::from_parts(entry.address, entry.size, entry.filter_mask)?,
                )?;
            }
            first = end;
        }
        Ok(())
    }

    /// Adds consecutive chunks, those of the maximum shape; `length` is that of the file.
    fn add_implicit(
        &self,
        length: u64,
        numbering: &Numbering,
        take: &mut dyn FnMut(&[u64], IndexEntry) -> ChunkResult<()>,
    ) -> ChunkResult<()> {
        let size = self.chunk_bytes()? as u64;
        let total = self.grid.iter().fold(1_u64, |all, length| all.saturating_mul(*length));
        let mut at = vec![0; self.grid.len()];
        for number in 0..total {
            let mut rest = number;
            for axis in (0..self.grid.len()).rev() {
                at[axis] = rest % self.grid[axis];
                rest /= self.grid[axis];
            }
            let address = numbering.chunk_number(&at).checked_mul(size).and_then(|at| at.checked_add(self.address));
            let Some(address) = address.filter(|at| at.checked_add(size).is_some_and(|end| end <= length)) else {
                return Err(invalid_data("chunks reach beyond the end of the file".to_owned()));
            };
            take(&at, IndexEntry { address, bytes: 0, mask: 0 })?;
        }
        Ok(())
    }
}

/// Chunks collected for an index.
struct Collected<'a> {
    chunked: &'a Chunked,
    entries: Vec<(u64, ChunkLocation)>,
}

impl Collected<'_> {
    fn add_at_offsets(&mut self, offsets: &[u64], place: ChunkLocation) -> ChunkResult<()> {
        let chunked = self.chunked;
        let aligned = offsets.iter().zip(&chunked.chunk).all(|(at, chunk)| at.is_multiple_of(*chunk));
        if offsets.len() != chunked.chunk.len() || !aligned {
            return Err(invalid_data(format!(
                "chunk at address {:#x} has non-grid offsets {offsets:?}",
                place.address
            )));
        }
        // A dataset that was shrunk may have kept its chunks.
        if offsets.iter().zip(&chunked.stored).any(|(at, length)| at >= length) {
            return Ok(());
        }
        let at: Vec<u64> = offsets.iter().zip(&chunked.chunk).map(|(at, chunk)| at / chunk).collect();
        self.add_at_position(&at, place)
    }

    /// Adds a chunk at a position of the grid.
    fn add_at_position(&mut self, at: &[u64], place: ChunkLocation) -> ChunkResult<()> {
        let mut parts = at.iter().zip(&self.chunked.grid);
        let number = parts.try_fold(0_u64, |all, (at, length)| all.checked_mul(*length)?.checked_add(*at));
        let number = number.ok_or_else(|| invalid_data("more chunks than can be counted".to_owned()))?;
        self.entries.push((number, place));
        Ok(())
    }

    fn index(mut self) -> ChunkResult<ChunkIndex> {
        if !self.entries.is_sorted_by_key(|(number, _)| *number) {
            self.entries.sort_by_key(|(number, _)| *number);
        }
        if let Some(pair) = self.entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let [one, other] = [pair[0].1.address, pair[1].1.address];
            return Err(invalid_data(format!("a chunk is there twice, at addresses {one:#x} and {other:#x}")));
        }
        let (numbers, places) = self.entries.into_iter().unzip();
        Ok(ChunkIndex { numbers, places })
    }
}
