//! Hyperslabs: boxes of an array, and copying between boxes in C order.

use std::ops::Range;

use bytes::Bytes;

use crate::error::{Error, Result};

/// Span in bytes, gaps included, that is always read at once rather than with several reads.
const SINGLE_READ_SPAN: u64 = 256 << 10;

/// A box within an array: its first index and its length in each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slab {
    /// First index in each dimension.
    pub start: Vec<u64>,
    /// Number of indices in each dimension.
    pub count: Vec<u64>,
}

impl Slab {
    /// Returns the slab of a whole array.
    pub fn from_shape(shape: &[u64]) -> Self {
        Self { start: vec![0; shape.len()], count: shape.to_vec() }
    }

    /// Returns the number of elements.
    pub fn element_count(&self) -> u64 {
        self.count.iter().fold(1, |all, count| all.saturating_mul(*count))
    }

    /// Returns the bytes of all elements of `width` bytes.
    ///
    /// # Errors
    /// When memory cannot hold that many bytes.
    pub fn byte_count(&self, width: usize) -> Result<usize> {
        let bytes = self.count.iter().try_fold(width as u64, |all, count| all.checked_mul(*count));
        bytes
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| Error::input(format!("expected an array that fits into memory, found {:?}", self.count)))
    }

    /// Returns the intersection of this slab and the box of `count` at `start`.
    pub fn intersect_box(&self, start: &[u64], count: &[u64]) -> Option<Self> {
        let mut shared = Self { start: Vec::with_capacity(start.len()), count: Vec::with_capacity(start.len()) };
        for axis in 0..self.start.len() {
            let first = self.start[axis].max(start[axis]);
            let end = (self.start[axis] + self.count[axis]).min(start[axis] + count[axis]);
            if first >= end {
                return None;
            }
            shared.start.push(first);
            shared.count.push(end - first);
        }
        Some(shared)
    }

    /// Formats the slab for messages: `[0:4, 10:20]`.
    pub fn describe(&self) -> String {
        let ranges = self.start.iter().zip(&self.count).map(|(start, count)| format!("{start}:{}", start + count));
        format!("[{}]", ranges.collect::<Vec<_>>().join(", "))
    }
}

/// A box of elements in memory.
#[derive(Debug, Clone, Copy)]
pub struct BufferExtent<'a> {
    /// First index of the box within the array.
    pub start: &'a [u64],
    /// Shape of the box.
    pub shape: &'a [u64],
}

impl BufferExtent<'_> {
    /// Returns the number of elements between consecutive indices of each axis.
    fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1_usize; self.shape.len()];
        for axis in (0..self.shape.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * index(self.shape[axis + 1]);
        }
        strides
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Copies the elements of `slab` from one box in memory to another; both contain all of it.
pub fn copy_box(
    slab: &Slab,
    width: usize,
    from: BufferExtent<'_>,
    source: &[u8],
    to: BufferExtent<'_>,
    target: &mut [u8],
) {
    let (from_strides, to_strides) = (from.strides(), to.strides());
    let axes = slab.count.len();
    let mut row = width;
    // Trailing axes that are complete in both boxes are copied as one run with the axis before them.
    let mut runs = axes;
    while runs > 0 {
        runs -= 1;
        row *= index(slab.count[runs]);
        if slab.count[runs] != from.shape[runs] || slab.count[runs] != to.shape[runs] {
            break;
        }
    }
    if row == 0 || slab.element_count() == 0 {
        return;
    }
    let begin = |place: BufferExtent<'_>, strides: &[usize]| -> usize {
        (0..axes).map(|axis| index(slab.start[axis] - place.start[axis]) * strides[axis]).sum()
    };
    let (mut source_at, mut target_at) = (begin(from, &from_strides), begin(to, &to_strides));
    let mut at = vec![0_u64; runs];
    loop {
        target[target_at * width..][..row].copy_from_slice(&source[source_at * width..][..row]);
        let mut axis = runs;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            at[axis] += 1;
            source_at += from_strides[axis];
            target_at += to_strides[axis];
            if at[axis] < slab.count[axis] {
                break;
            }
            source_at -= from_strides[axis] * index(slab.count[axis]);
            target_at -= to_strides[axis] * index(slab.count[axis]);
            at[axis] = 0;
        }
    }
}

/// Reorders the axes of elements: axis `order[i]` of the source becomes axis `i`.
pub fn permute_axes(source: &[u8], width: usize, shape: &[u64], order: &[usize]) -> Vec<u8> {
    let place = BufferExtent { start: &[], shape };
    let strides = place.strides();
    let mut target = Vec::with_capacity(source.len());
    let counts: Vec<u64> = order.iter().map(|axis| shape[*axis]).collect();
    if counts.contains(&0) {
        return target;
    }
    // Trailing axes that keep their position are copied as one run.
    let kept = (0..order.len()).rev().take_while(|axis| order[*axis] == *axis).count();
    let moved = order.len() - kept;
    let run = width * shape[moved..].iter().map(|length| index(*length)).product::<usize>();
    let mut at = vec![0_u64; moved];
    let mut source_at = 0;
    loop {
        target.extend_from_slice(&source[source_at * width..][..run]);
        let mut axis = moved;
        loop {
            if axis == 0 {
                return target;
            }
            axis -= 1;
            at[axis] += 1;
            source_at += strides[order[axis]];
            if at[axis] < counts[axis] {
                break;
            }
            source_at -= strides[order[axis]] * index(counts[axis]);
            at[axis] = 0;
        }
    }
}

/// Returns the shape of contiguous boxes of at most `bytes` bytes into which an array is divided; a box has at least
/// one element.
pub fn layer_shape(shape: &[u64], width: u64, bytes: u64) -> Vec<u64> {
    let mut rest = width.max(1);
    let mut layer = vec![1; shape.len()];
    for (axis, length) in shape.iter().enumerate().rev() {
        layer[axis] = (bytes / rest).clamp(1, (*length).max(1));
        if layer[axis] < *length {
            break;
        }
        rest = rest.saturating_mul(*length);
    }
    layer
}

/// Returns the indices of the chunks that a non-empty slab intersects.
pub fn intersecting_chunks(slab: &Slab, chunks: &[u64]) -> impl Iterator<Item = Vec<u64>> + use<> {
    let ends = slab.start.iter().zip(&slab.count).zip(chunks);
    let bounds: Vec<(u64, u64)> =
        ends.map(|((start, count), chunk)| (start / chunk, (start + count.max(&1) - 1) / chunk)).collect();
    let first: Vec<u64> = bounds.iter().map(|(first, _)| *first).collect();
    std::iter::successors(Some(first), move |at| {
        let mut next = at.clone();
        for (number, (first, last)) in next.iter_mut().zip(&bounds).rev() {
            if *number < *last {
                *number += 1;
                return Some(next);
            }
            *number = *first;
        }
        None
    })
}

/// Read plan for a box of an array that is stored contiguously in C order.
struct Runs {
    /// Bytes between consecutive indices of each axis.
    strides: Vec<u64>,
    /// Number of leading axes that are iterated; one run is read for each combination of their indices.
    outer: usize,
    /// Bytes of a run, and the wanted bytes of it.
    span: u64,
    wanted: u64,
}

impl Runs {
    /// Plans runs for a non-empty box; small gaps between wanted elements are read as well.
    fn for_slab(shape: &[u64], slab: &Slab, width: usize) -> Self {
        let axes = shape.len();
        let mut strides = vec![width as u64; axes];
        for axis in (0..axes.saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1].saturating_mul(shape[axis + 1]);
        }
        // From the first to the last wanted byte for one index of the axes before.
        let span = |from: usize| {
            (from..axes)
                .map(|axis| (slab.count[axis] - 1).saturating_mul(strides[axis]))
                .fold(width as u64, u64::saturating_add)
        };
        let wanted =
            |from: usize| slab.count[from..].iter().fold(width as u64, |all, count| all.saturating_mul(*count));
        let fits = |from: &usize| span(*from) <= SINGLE_READ_SPAN.max(wanted(*from).saturating_mul(2));
        let outer = (0..axes).find(fits).unwrap_or(axes);
        Self { outer, span: span(outer), wanted: wanted(outer), strides }
    }

    /// Returns the offsets of the runs, in the order of their wanted elements.
    fn run_offsets(&self, slab: &Slab) -> impl Iterator<Item = u64> {
        let outer = Slab { start: slab.start[..self.outer].to_vec(), count: slab.count[..self.outer].to_vec() };
        let (ones, inner) = (vec![1; self.outer], slab.start[self.outer..].to_vec());
        intersecting_chunks(&outer, &ones).map(move |at| {
            let place = at.iter().chain(&inner).zip(&self.strides);
            place.fold(0_u64, |all, (index, stride)| all.saturating_add(index.saturating_mul(*stride)))
        })
    }
}

/// Returns the byte ranges that [`read_box`] requests.
pub fn box_ranges(shape: &[u64], slab: &Slab, width: usize) -> Vec<Range<u64>> {
    if slab.element_count() == 0 || width == 0 {
        return Vec::new();
    }
    let runs = Runs::for_slab(shape, slab, width);
    runs.run_offsets(slab).map(|start| start..start.saturating_add(runs.span)).collect()
}

/// Reads a box of an array that is stored contiguously in C order. `read` returns a number of bytes at an offset; small
/// gaps between wanted bytes are read as well.
///
/// # Errors
/// When `read` fails, and when the box does not fit into memory.
pub fn read_box(shape: &[u64], slab: &Slab, width: usize, read: impl Fn(u64, u64) -> Result<Bytes>) -> Result<Vec<u8>> {
    let total = slab.byte_count(width)?;
    if total == 0 {
        return Ok(Vec::new());
    }
    let runs = Runs::for_slab(shape, slab, width);
    let outer = runs.outer;
    if outer == 0 && runs.span == runs.wanted {
        let first = runs.run_offsets(slab).next().unwrap_or(0);
        return Ok(read(first, runs.span)?.to_vec());
    }
    let mut out = vec![0; total];
    let inner = Slab { start: slab.start[outer..].to_vec(), count: slab.count[outer..].to_vec() };
    let (from, to) = (
        BufferExtent { start: &inner.start, shape: &shape[outer..] },
        BufferExtent { start: &inner.start, shape: &inner.count },
    );
    for (target, start) in out.chunks_exact_mut(inner.byte_count(width)?).zip(runs.run_offsets(slab)) {
        copy_box(&inner, width, from, &read(start, runs.span)?, to, target);
    }
    Ok(out)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn numbers(count: u8) -> Vec<u8> {
        (0..count).collect()
    }

    #[test]
    fn boxes_are_copied_row_by_row() {
        // An array of 4 x 6 of which a box of 3 x 4 at (1, 1) is in memory; 2 x 2 at (2, 3) are copied to another box
        // at (2, 2).
        let held = numbers(12);
        let mut target = vec![99; 6];
        let slab = Slab { start: vec![2, 3], count: vec![2, 2] };
        let from = BufferExtent { start: &[1, 1], shape: &[3, 4] };
        copy_box(&slab, 1, from, &held, BufferExtent { start: &[2, 2], shape: &[2, 3] }, &mut target);
        assert_eq!(target, [99, 6, 7, 99, 10, 11]);
    }

    #[test]
    fn whole_boxes_and_single_elements_are_copied() {
        let held = numbers(8);
        for shape in [&[2_u64, 2, 2][..], &[8], &[]] {
            let slab = Slab::from_shape(shape);
            let place = BufferExtent { start: &slab.start, shape };
            let mut target = vec![0; slab.byte_count(1).unwrap()];
            copy_box(&slab, 1, place, &held[..target.len()], place, &mut target);
            assert_eq!(target, held[..target.len()]);
        }
    }

    #[test]
    fn axes_change_places() {
        let source = numbers(12);
        assert_eq!(permute_axes(&source, 1, &[3, 4], &[1, 0]), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
        assert_eq!(permute_axes(&source, 2, &[3, 2], &[1, 0]), [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]);
        assert_eq!(permute_axes(&source, 1, &[2, 3, 2], &[1, 0, 2]), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        assert_eq!(permute_axes(&source, 1, &[3, 4], &[0, 1]), source);
    }

    #[test]
    fn small_gaps_between_wanted_bytes_are_read() {
        let shape = [3_u64, 5, 4];
        let all = numbers(60);
        for start in [[0, 0, 0], [1, 2, 1], [2, 4, 3]] {
            for count in [[1, 1, 1], [1, 1, 0], [2, 3, 3], [3, 5, 4], [1, 5, 2]] {
                let count: Vec<u64> =
                    shape.iter().zip(start).zip(count).map(|((length, start), n)| n.min(length - start)).collect();
                let slab = Slab { start: start.to_vec(), count };
                let whole = Slab::from_shape(&shape);
                let mut expected = vec![0; slab.byte_count(1).unwrap()];
                let from = BufferExtent { start: &whole.start, shape: &shape };
                copy_box(&slab, 1, from, &all, BufferExtent { start: &slab.start, shape: &slab.count }, &mut expected);
                let read = |at: u64, bytes: u64| Ok(Bytes::copy_from_slice(&all[index(at)..index(at + bytes)]));
                assert_eq!(read_box(&shape, &slab, 1, read).unwrap(), expected, "{slab:?}");
            }
        }
        // Only the wanted part of long rows is read.
        let slab = Slab { start: vec![5, 7], count: vec![3, 10] };
        let read = std::cell::RefCell::new(Vec::new());
        let found = read_box(&[10, 1 << 20], &slab, 1, |at, bytes| {
            read.borrow_mut().push((at, bytes));
            Ok(vec![7; index(bytes)].into())
        });
        assert_eq!(found.unwrap(), [7; 30]);
        assert_eq!(read.into_inner(), [5, 6, 7].map(|row| ((row << 20) + 7, 10)));
    }

    #[test]
    fn layers_are_as_large_as_allowed() {
        assert_eq!(layer_shape(&[3, 100, 50], 2, 1_000), [1, 10, 50]);
        assert_eq!(layer_shape(&[3, 100, 50], 2, 20_000), [2, 100, 50]);
        assert_eq!(layer_shape(&[3, 100, 50], 2, 60), [1, 1, 30]);
        assert_eq!(layer_shape(&[3, 100, 50], 2, 1), [1, 1, 1]);
    }

    #[test]
    fn intersections_are_boxes() {
        let slab = Slab { start: vec![2, 0], count: vec![4, 5] };
        assert_eq!(slab.intersect_box(&[0, 4], &[3, 4]), Some(Slab { start: vec![2, 4], count: vec![1, 1] }));
        assert_eq!(slab.intersect_box(&[6, 0], &[2, 2]), None);
        assert_eq!(slab.describe(), "[2:6, 0:5]");
    }
}
