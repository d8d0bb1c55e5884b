//! Global heaps, which hold values of variable length: texts and sequences. An element holds only a reference.
//!
//! ```text
//! reference    number of items (u32), address of the heap, index of the object in it (u32)
//! heap         GCOL, its size, then objects: number (u16), references (u16), 4 bytes, size, padded bytes
//! ```
//!
//! Heaps have no checksums. The only possible check is that an object has exactly the bytes that its reference implies.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use hdf5_reader::{StorageBuffer, error::Error as Hdf5Error};

use super::{
    checks::{invalid_data, read_le_uint},
    chunks::ReadContext,
    filters::MAX_READ,
};

type HeapResult<T> = std::result::Result<T, Hdf5Error>;

/// Bytes of heaps that are cached.
const KEPT: usize = 16 << 20;

/// Bytes of an object's header without its size.
const OBJECT: usize = 8;

/// The most recently read heaps.
#[derive(Default)]
pub(super) struct HeapCache(Mutex<CachedHeaps>);

#[derive(Default)]
struct CachedHeaps {
    heaps: HashMap<u64, Arc<Heap>>,
    bytes: usize,
}

struct Heap {
    bytes: StorageBuffer,
    /// Range of each object, by its index.
    objects: Vec<Option<Range<usize>>>,
}

/// The bytes of a value, which may be empty.
pub(super) struct HeapValue(Option<(Arc<Heap>, Range<usize>)>);

impl AsRef<[u8]> for HeapValue {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().and_then(|(heap, range)| heap.bytes.as_ref().get(range.clone())).unwrap_or_default()
    }
}

impl HeapCache {
    /// Returns the value of a reference to items of `width` bytes each.
    ///
    /// # Errors
    /// If there is no such object, or it has another size.
    pub(super) fn read_value(&self, source: &ReadContext<'_>, reference: &[u8], width: usize) -> HeapResult<HeapValue> {
        let offset = usize::from(source.file.superblock().offset_size);
        let part = |at: Range<usize>| {
            let bytes =
                reference.get(at).ok_or_else(|| invalid_data("a reference to a value is cut short".to_owned()))?;
            Ok::<_, Hdf5Error>(read_le_uint(bytes))
        };
        let (items, at, object) = (part(0..4)?, part(4..4 + offset)?, part(4 + offset..8 + offset)?);
        // A null address: nothing was ever written here. Other empty values have an object without bytes.
        if at == 0 {
            return Ok(HeapValue(None));
        }
        let heap = self.load_heap(source, at)?;
        let range = usize::try_from(object).ok().and_then(|object| heap.objects.get(object)).cloned().flatten();
        let place = || format!("heap at byte {}", source.input_offset(at));
        let range = range.ok_or_else(|| invalid_data(format!("{}: expected object {object}, found none", place())))?;
        let expected = items.saturating_mul(width as u64);
        if range.len() as u64 != expected {
            let found = range.len();
            let message = format!("{}: expected {expected} bytes in object {object}, found {found}", place());
            return Err(invalid_data(message));
        }
        Ok(HeapValue(Some((heap, range))))
    }

    fn load_heap(&self, source: &ReadContext<'_>, at: u64) -> HeapResult<Arc<Heap>> {
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(heap) = kept().heaps.get(&at) {
            return Ok(Arc::clone(heap));
        }
        let heap = Arc::new(Heap::read(source, at)?);
        let mut kept = kept();
        if kept.bytes.saturating_add(heap.bytes.len()) > KEPT {
            *kept = CachedHeaps::default();
        }
        kept.bytes += heap.bytes.len();
        kept.heaps.insert(at, Arc::clone(&heap));
        Ok(heap)
    }

    /// Returns the cached bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes as u64
    }
}

impl Heap {
    fn read(source: &ReadContext<'_>, at: u64) -> HeapResult<Self> {
        let wrong = || invalid_data(format!("expected a global heap at byte {}", source.input_offset(at)));
        let storage = source.file.storage();
        let width = usize::from(source.file.superblock().length_size);
        let head = storage.read_range(at, 8 + width)?;
        if head.as_ref().get(..5) != Some(b"GCOL\x01") {
            return Err(wrong());
        }
        let bytes = size_at(head.as_ref(), 8, width).filter(|bytes| *bytes <= MAX_READ).ok_or_else(wrong)?;
        let bytes = storage.read_range(at, bytes)?;
        let objects = object_ranges(bytes.as_ref(), width).ok_or_else(wrong)?;
        Ok(Self { bytes, objects })
    }
}

/// Returns the ranges of a heap's objects; `None` if one extends beyond its end.
fn object_ranges(heap: &[u8], width: usize) -> Option<Vec<Option<Range<usize>>>> {
    let mut objects = Vec::new();
    let mut at = 8 + width;
    while at + OBJECT + width <= heap.len() {
        let number = usize::from(u16::from_le_bytes([heap[at], heap[at + 1]]));
        // The rest is free space.
        if number == 0 {
            break;
        }
        let start = at + OBJECT + width;
        let end = start.checked_add(size_at(heap, at + OBJECT, width)?).filter(|end| *end <= heap.len())?;
        if objects.len() <= number {
            objects.resize(number + 1, None);
        }
        objects[number] = Some(start..end);
        at = end.next_multiple_of(8);
    }
    Some(objects)
}

fn size_at(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    usize::try_from(read_le_uint(bytes.get(at..at + width)?)).ok()
}
