//! Reads and rewrites the hybrid of runs and packed groups in which Parquet stores levels and dictionary indices;
//! `chunk::bits` describes the format.
//!
//! A rewritten sequence keeps its long runs and packs everything between them into one stretch, without analysing the
//! values. The padding of the last group is arbitrary and is never read, because readers know the number of values.

use std::ops::Range;

use arrow::array::BooleanBufferBuilder;

use super::super::chunk::{GROUP, least_run, put_packed, put_run, unpack};

/// Number of values unpacked at a time.
const BLOCK: usize = 1024;

/// A sequence of values as it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hybrid<'a> {
    /// Its runs and packed groups.
    pub(super) bytes: &'a [u8],
    /// Bits of a value.
    pub(super) width: u8,
    /// Number of values.
    pub(super) count: usize,
}

/// A run or a stretch of packed values.
enum Run<'a> {
    /// A value and the number of its repetitions.
    Same(u32, usize),
    /// Packed values from the first byte on, and their number.
    Packed(&'a [u8], usize),
}

/// Iterates over the runs of a sequence.
struct Runs<'a> {
    bytes: &'a [u8],
    width: u8,
    left: usize,
}

impl<'a> Runs<'a> {
    fn new(values: Hybrid<'a>) -> Option<Self> {
        let Hybrid { bytes, width, count } = values;
        (width <= 32).then_some(Self { bytes, width, left: count })
    }

    /// Returns the next run; `None` if the bytes end too early or are malformed.
    fn next(&mut self) -> Option<Run<'a>> {
        let header = self.read_varint()?;
        let width = usize::from(self.width);
        let length = usize::try_from(header >> 1).ok()?;
        if header & 1 == 0 {
            let (value, rest) = self.bytes.split_at_checked(width.div_ceil(8))?;
            self.bytes = rest;
            let value = value.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
            let count = length.min(self.left);
            self.left -= count;
            return Some(Run::Same(value, count));
        }
        let count = length.checked_mul(8)?.min(self.left);
        // Some writers truncate the last group.
        let bytes = length.checked_mul(width)?.min(self.bytes.len());
        if bytes < (count * width).div_ceil(8) {
            return None;
        }
        // Includes the bytes that follow, so that the last values can be unpacked without bounds checks.
        let packed = self.bytes;
        self.bytes = &packed[bytes..];
        self.left -= count;
        Some(Run::Packed(packed, count))
    }

    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

/// Returns the packed values from `first` on, which must begin a group.
fn from(packed: &[u8], width: u8, first: usize) -> &[u8] {
    packed.get(first / GROUP * usize::from(width)..).unwrap_or_default()
}

/// Passes all values to `take`, in stretches; returns false if the bytes are malformed.
pub(super) fn read(values: Hybrid<'_>, mut take: impl FnMut(&[u32])) -> bool {
    let width = values.width;
    let Some(mut runs) = Runs::new(values) else { return false };
    let mut block = [0; BLOCK];
    while runs.left > 0 {
        match runs.next() {
            None => return false,
            Some(Run::Same(value, mut count)) => {
                block.fill(value);
                while count > 0 {
                    take(&block[..count.min(BLOCK)]);
                    count -= count.min(BLOCK);
                }
            }
            Some(Run::Packed(packed, count)) => {
                let mut first = 0;
                while first < count {
                    let length = (count - first).min(BLOCK);
                    unpack(from(packed, width, first), width, &mut block[..length]);
                    take(&block[..length]);
                    first += length;
                }
            }
        }
    }
    true
}

/// Appends one-bit values; returns false if the bytes are malformed.
pub(super) fn read_bits(bytes: &[u8], count: usize, out: &mut BooleanBufferBuilder) -> bool {
    let Some(mut runs) = Runs::new(Hybrid { bytes, width: 1, count }) else { return false };
    while runs.left > 0 {
        match runs.next() {
            Some(Run::Same(value @ 0..=1, count)) => out.append_n(count, value == 1),
            Some(Run::Packed(packed, count)) => out.append_packed_range(0..count, packed),
            _ => return false,
        }
    }
    true
}

/// Returns the histogram of the levels up to `most`; `None` if the bytes are malformed.
pub(super) fn level_histogram(bytes: &[u8], most: i16, count: usize) -> Option<Vec<i64>> {
    let most = u16::try_from(most).ok()?;
    let width = u8::try_from(u16::BITS - most.leading_zeros()).ok()?;
    let mut counts = vec![0_i64; usize::from(most) + 1];
    let mut runs = Runs::new(Hybrid { bytes, width, count })?;
    let mut block = [0; BLOCK];
    while runs.left > 0 {
        match runs.next()? {
            Run::Same(level, count) => *counts.get_mut(level as usize)? += i64::try_from(count).ok()?,
            Run::Packed(packed, count) if width == 1 => {
                let ones = count_set_bits(packed, count);
                counts[1] += i64::try_from(ones).ok()?;
                counts[0] += i64::try_from(count - ones).ok()?;
            }
            Run::Packed(packed, count) => {
                let mut first = 0;
                while first < count {
                    let length = (count - first).min(BLOCK);
                    unpack(from(packed, width, first), width, &mut block[..length]);
                    for level in &block[..length] {
                        *counts.get_mut(*level as usize)? += 1;
                    }
                    first += length;
                }
            }
        }
    }
    Some(counts)
}

/// Returns how many of the first `count` bits are set.
fn count_set_bits(bytes: &[u8], count: usize) -> usize {
    let (words, _) = bytes[..count / 8].as_chunks::<8>();
    let tail = &bytes[words.len() * 8..count / 8];
    let all: u32 = words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum();
    let rest: u32 = tail.iter().map(|byte| byte.count_ones()).sum();
    let last = if !count.is_multiple_of(8) { (bytes[count / 8] & ((1 << (count % 8)) - 1)).count_ones() } else { 0 };
    (all + rest + last) as usize
}

/// Returns whether the first level is 0.
pub(super) fn begins_with_zero(bytes: &[u8], most: i16) -> bool {
    let width = u8::try_from(u16::BITS - most.unsigned_abs().leading_zeros()).unwrap_or(u8::MAX);
    let mut first = None;
    read(Hybrid { bytes, width, count: 1 }, |levels| first = levels.first().copied()) && first == Some(0)
}

/// Returns whether the values are consecutive numbers that start at `next`.
pub(super) fn counts_up(values: Hybrid<'_>, mut next: u32) -> bool {
    let width = values.width;
    let mut differs = 0;
    let mut up = true;
    // A mismatch usually occurs at the start.
    let Some(mut runs) = Runs::new(values) else { return false };
    let mut block = [0; BLOCK];
    while runs.left > 0 && up {
        match runs.next() {
            Some(Run::Packed(packed, count)) => {
                let mut first = 0;
                while first < count {
                    let length = (count - first).min(BLOCK);
                    unpack(from(packed, width, first), width, &mut block[..length]);
                    for value in &block[..length] {
                        differs |= value ^ next;
                        next = next.wrapping_add(1);
                    }
                    first += length;
                }
                up = differs == 0;
            }
            Some(Run::Same(value, 1)) if value == next => next += 1,
            Some(Run::Same(_, 0)) => {}
            _ => up = false,
        }
    }
    up
}

/// Maximum number of values that are packed at a time: whole groups.
const MAX_PACKED: usize = 64 * BLOCK;

/// Writes values of `width` bits. Adjacent packed stretches become one: readers process each stretch separately, and
/// some writers begin one every few hundred values.
struct Writer<'a> {
    width: u8,
    /// Values to be packed.
    values: &'a mut Vec<u32>,
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn add_run(&mut self, value: u32, mut count: usize) {
        if count < least_run(self.width) {
            self.values.extend(std::iter::repeat_n(value, count));
            return;
        }
        // Only the last stretch may end within a group.
        let fill = (self.values.len().next_multiple_of(GROUP) - self.values.len()).min(count);
        self.values.extend(std::iter::repeat_n(value, fill));
        count -= fill;
        if count > 0 {
            self.flush(self.values.len());
            put_run(self.out, count as u64, value, self.width);
        }
    }

    /// Unpacks a range of at most [`MAX_PACKED`] values, to be packed again.
    fn add_packed(&mut self, packed: &[u8], width: u8, range: Range<usize>) -> &mut [u32] {
        if self.values.len() >= MAX_PACKED {
            self.flush(self.values.len() / GROUP * GROUP);
        }
        let start = self.values.len();
        self.values.resize(start + range.len(), 0);
        let values = &mut self.values[start..];
        unpack(from(packed, width, range.start), width, values);
        values
    }

    fn flush(&mut self, count: usize) {
        put_packed(self.out, &self.values[..count], self.width);
        self.values.drain(..count);
    }
}

/// Divides that many values into pieces.
fn packed_pieces(count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(MAX_PACKED).map(move |first| first..count.min(first + MAX_PACKED))
}

/// Appends the levels of several sequences as one sequence.
pub(super) fn join_levels(parts: &[(&[u8], usize)], most: i16, out: &mut Vec<u8>) -> bool {
    let Ok(width) = u8::try_from(u16::BITS - most.unsigned_abs().leading_zeros()) else { return false };
    let mut values = Vec::new();
    let mut writer = Writer { width, values: &mut values, out };
    for (bytes, count) in parts {
        let Some(mut runs) = Runs::new(Hybrid { bytes, width, count: *count }) else { return false };
        while runs.left > 0 {
            match runs.next() {
                None => return false,
                Some(Run::Same(value, count)) => writer.add_run(value, count),
                Some(Run::Packed(packed, count)) => packed_pieces(count).for_each(|piece| {
                    writer.add_packed(packed, width, piece);
                }),
            }
        }
    }
    writer.flush(writer.values.len());
    true
}

/// Appends the table's value of each index; returns false if an index is not in the table or the bytes are malformed.
pub(super) fn map_indices(indices: Hybrid<'_>, table: &[u32], out: &mut Vec<u32>) -> bool {
    let mut beyond = false;
    let whole = read(indices, |indices| {
        out.extend(indices.iter().map(|index| match table.get(*index as usize) {
            Some(value) => *value,
            None => {
                beyond = true;
                0
            }
        }));
    });
    whole && !beyond
}

/// Rewrites indices through a table into values of `to` bits, and passes the new values to `seen`; returns false if an
/// index is not in the table or the bytes are malformed. `room` is reusable memory.
pub(super) fn remap_indices(
    indices: Hybrid<'_>,
    table: &[u32],
    to: u8,
    room: &mut Vec<u32>,
    out: &mut Vec<u8>,
    mut seen: impl FnMut(&[u32]),
) -> bool {
    let width = indices.width;
    let Some(mut runs) = Runs::new(indices) else { return false };
    room.clear();
    let mut writer = Writer { width: to, values: room, out };
    while runs.left > 0 {
        match runs.next() {
            None => return false,
            Some(Run::Same(_, 0)) => {}
            Some(Run::Same(value, count)) => match table.get(value as usize) {
                Some(value) => {
                    let block = [*value; BLOCK];
                    (0..count).step_by(BLOCK).for_each(|at| seen(&block[..(count - at).min(BLOCK)]));
                    writer.add_run(*value, count);
                }
                None => return false,
            },
            Some(Run::Packed(packed, count)) => {
                for piece in packed_pieces(count) {
                    let values = writer.add_packed(packed, width, piece);
                    let mut beyond = false;
                    for value in &mut *values {
                        match table.get(*value as usize) {
                            Some(mapped) => *value = *mapped,
                            None => beyond = true,
                        }
                    }
                    if beyond {
                        return false;
                    }
                    seen(values);
                }
            }
        }
    }
    writer.flush(writer.values.len());
    true
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::parquet::chunk::put_hybrid;

    fn back(bytes: &[u8], width: u8, count: usize) -> Vec<u32> {
        let mut out = Vec::new();
        assert!(read(Hybrid { bytes, width, count }, |values| out.extend_from_slice(values)));
        out
    }

    proptest! {
        #[test]
        fn values_round_trip_and_are_mapped(
            runs in prop::collection::vec((any::<u32>(), 1_usize..60), 0..60), width in 0_u8..=16, to in 0_u8..=32
        ) {
            let mask = (1_u32 << width) - 1;
            let values: Vec<u32> = runs.iter().flat_map(|(v, n)| {
                (0..*n).map(move |i| if n % 2 == 0 { *v } else { v.rotate_left(u32::try_from(i).unwrap()) } & mask)
            }).collect();
            let mut bytes = Vec::new();
            put_hybrid(&mut bytes, &values, width);
            prop_assert_eq!(&back(&bytes, width, values.len()), &values);
            let most = u32::try_from((1_u64 << to) - 1).unwrap();
            let table: Vec<u32> = (0..=mask).map(|i| i.wrapping_mul(0x9e37_79b9) & most).collect();
            let mut mapped = Vec::new();
            let mut told = 0;
            let mut room = Vec::new();
            let indices = Hybrid { bytes: &bytes, width, count: values.len() };
            let whole = remap_indices(indices, &table, to, &mut room, &mut mapped, |some| told += some.len());
            prop_assert!(whole && told == values.len());
            let expected: Vec<u32> = values.iter().map(|v| table[*v as usize]).collect();
            prop_assert_eq!(back(&mapped, to, values.len()), expected);
            let largest = values.iter().max().copied().unwrap_or(0);
            let short = &table[..largest as usize];
            let short = remap_indices(indices, short, to, &mut room, &mut mapped, |_| {});
            prop_assert!(values.is_empty() || !short);
        }

        #[test]
        fn levels_are_counted(levels in prop::collection::vec(0_u32..4, 1..3000), most in 1_i16..4) {
            let levels: Vec<u32> = levels.iter().map(|l| l % (u32::try_from(most).unwrap() + 1)).collect();
            let mut bytes = Vec::new();
            put_hybrid(&mut bytes, &levels, if most == 1 { 1 } else { 2 });
            let found = level_histogram(&bytes, most, levels.len()).unwrap();
            for (level, count) in found.iter().enumerate() {
                prop_assert_eq!(usize::try_from(*count).unwrap(),
                    levels.iter().filter(|l| **l as usize == level).count());
            }
            prop_assert_eq!(begins_with_zero(&bytes, most), levels[0] == 0);
        }

        #[test]
        fn bits_round_trip(runs in prop::collection::vec((any::<bool>(), 1_usize..300), 0..60), before in 0_usize..20) {
            let levels: Vec<u32> = runs.iter().enumerate().flat_map(|(i, (level, n))| {
                (0..*n).map(move |at| u32::from(if i % 3 == 0 { at % 3 == 0 } else { *level }))
            }).collect();
            let mut bytes = Vec::new();
            put_hybrid(&mut bytes, &levels, 1);
            let mut bits = BooleanBufferBuilder::new(0);
            bits.append_n(before, true);
            prop_assert!(read_bits(&bytes, levels.len(), &mut bits));
            let found: Vec<u32> = bits.finish().iter().skip(before).map(u32::from).collect();
            prop_assert_eq!(found, levels);
        }

        #[test]
        fn levels_of_several_pages_become_one_sequence(
            parts in prop::collection::vec(prop::collection::vec((0_u32..3, 1_usize..90), 0..40), 0..5)
        ) {
            let levels: Vec<Vec<u32>> = parts.iter().map(|runs| {
                runs.iter().flat_map(|(level, n)| std::iter::repeat_n(*level, *n)).collect()
            }).collect();
            let stored: Vec<(Vec<u8>, usize)> = levels.iter().map(|levels| {
                let mut bytes = Vec::new();
                put_hybrid(&mut bytes, levels, 2);
                (bytes, levels.len())
            }).collect();
            let stored: Vec<(&[u8], usize)> = stored.iter().map(|(bytes, count)| (&bytes[..], *count)).collect();
            let mut out = Vec::new();
            prop_assert!(join_levels(&stored, 2, &mut out));
            let all = levels.concat();
            prop_assert_eq!(back(&out, 2, all.len()), all);
        }

        #[test]
        fn hostile_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..60), width in 0_u8..=40,
            count in 0_usize..10_000) {
            let mut seen = 0;
            let values = Hybrid { bytes: &bytes, width, count };
            let whole = read(values, |values| seen += values.len());
            prop_assert!(!whole || seen == count);
            let mut out = Vec::new();
            remap_indices(values, &[0; 100], 7, &mut Vec::new(), &mut out, |_| {});
            level_histogram(&bytes, i16::from(width % 5), count);
            counts_up(values, 0);
            read_bits(&bytes, count, &mut BooleanBufferBuilder::new(0));
            join_levels(&[(&bytes, count), (&bytes, 3)], i16::from(width % 5), &mut out);
        }
    }

    #[test]
    fn consecutive_numbers_are_detected() {
        for count in [0_u32, 1, 7, 8, 9, 5000] {
            let up = |bytes: &[u8], next| counts_up(Hybrid { bytes, width: 13, count: count as usize }, next);
            let mut bytes = Vec::new();
            put_hybrid(&mut bytes, &(0..count).collect::<Vec<_>>(), 13);
            assert!(up(&bytes, 0), "{count}");
            assert!(count == 0 || !up(&bytes, 1), "{count}");
            bytes.clear();
            put_hybrid(&mut bytes, &(0..count).map(|i| if i == 4000 { 1 } else { i }).collect::<Vec<_>>(), 13);
            assert_eq!(up(&bytes, 0), count < 4001, "{count}");
        }
    }
}
