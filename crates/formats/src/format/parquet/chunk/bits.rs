//! Integers packed into as few bits as they need: the hybrid of runs and packed groups in which Parquet stores levels
//! and dictionary indices, and the packed differences of `DELTA_BINARY_PACKED`.
//!
//! ```text
//! hybrid   [ varint count << 1      | value in whole bytes      ]   a run of equal values
//!          [ varint groups << 1 | 1 | groups x 8 values, packed ]   anything else
//! delta    varint 128  varint 4  varint values  zigzag first
//!          [ zigzag least difference | 4 widths | 4 x 32 differences minus the least, packed ]
//! packed   value 0 in the lowest bits of byte 0, value 1 in the bits above, and so on
//! ```
//!
//! A group always has 8 values; the last one is padded with zeros, because readers know the number of values.

mod simd;

use arrow::buffer::BooleanBuffer;

/// Number of values packed in one call.
const PACK: usize = 32;

/// Number of values in a group.
pub(in super::super) const GROUP: usize = 8;

/// Minimum number of bits, when packed, of equal values that become a run; a width of 1 counts as 2.
const RUN_BITS: usize = 128;

/// Maximum number of values in a packed stretch. Readers decode some thousands of values at a time, and some of them
/// unpack fast only from the start of a stretch: if nulls, which have no indices, make a batch end within a stretch,
/// they are slow up to its end.
const PACKED: usize = 256;

/// Minimum number of words of 64 equal levels that become a run.
const RUN_WORDS: usize = 4;

/// Appends an unsigned number, seven bits per byte.
pub(in super::super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends a signed number such that small absolute values are short.
pub(super) fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value.wrapping_shl(1) ^ (value >> 63)).cast_unsigned());
}

/// Returns the number of bits of numbers up to `largest`.
pub fn width_of(largest: u64) -> u8 {
    u8::try_from(u64::BITS - largest.leading_zeros()).unwrap_or(u8::MAX)
}

/// Returns the number of bits of the largest number. A bitwise OR has the same width, and is vectorized.
pub(in crate::format::parquet) fn width_of_all(numbers: &[u32]) -> u8 {
    width_of(numbers.iter().fold(0, |all, number| all | number).into())
}

/// Appends indices of at most `width` bits each in the hybrid form.
pub fn put_hybrid(out: &mut Vec<u8>, values: &[u32], width: u8) {
    let mut rest = values;
    while !rest.is_empty() {
        let packed = before_run(rest, least_run(width));
        put_packed(out, &rest[..packed], width);
        rest = &rest[packed..];
        if let Some(&value) = rest.first() {
            let run = rest.iter().position(|v| *v != value).unwrap_or(rest.len());
            put_run(out, run as u64, value, width);
            rest = &rest[run..];
        }
    }
}

/// Returns the minimum length of a run: shorter sequences of equal values are packed with their neighbours, because a
/// run has a header and readers process each run separately. As a result, levels of a column with a few nulls are
/// mostly packed.
pub(in super::super) fn least_run(width: u8) -> usize {
    if width == 0 { GROUP } else { (RUN_BITS / usize::from(width.max(2))).max(GROUP) }
}

/// Returns how many values precede a run of at least `least` values, in whole groups.
fn before_run(values: &[u32], least: usize) -> usize {
    let (groups, _) = values.as_chunks::<GROUP>();
    let mut equal = 0;
    for (number, group) in groups.iter().enumerate() {
        let alike = group.iter().fold(0, |differs, v| differs | (v ^ group[0])) == 0;
        let goes_on = equal > 0 && groups[number - 1][0] == group[0];
        equal = match (alike, goes_on) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => equal + 1,
        };
        if equal * GROUP >= least {
            return (number + 1 - equal) * GROUP;
        }
    }
    values.len()
}

pub(in super::super) fn put_run(out: &mut Vec<u8>, count: u64, value: u32, width: u8) {
    put_varint(out, count << 1);
    out.extend_from_slice(&value.to_le_bytes()[..usize::from(width).div_ceil(8)]);
}

pub(in super::super) fn put_packed(out: &mut Vec<u8>, values: &[u32], width: u8) {
    if values.is_empty() {
        return;
    }
    let bytes = values.len().div_ceil(GROUP) * usize::from(width);
    out.reserve(bytes + values.len().div_ceil(PACKED) * 2 + PACK * 4);
    let mut room = [0; PACKED * 4 + simd::SLACK];
    for stretch in values.chunks(PACKED) {
        let groups = stretch.len().div_ceil(GROUP);
        put_varint(out, (groups as u64) << 1 | 1);
        let end = out.len() + groups * usize::from(width);
        let done = simd::pack(stretch, width, &mut room);
        out.extend_from_slice(&room[..done / GROUP * usize::from(width)]);
        if done < stretch.len() {
            pack_rest(out, &stretch[done..], width);
            out.truncate(end);
        }
    }
}

/// Packs values, padded with zeros.
fn pack_rest(out: &mut Vec<u8>, values: &[u32], width: u8) {
    let (blocks, tail) = values.as_chunks::<PACK>();
    pack_blocks(out, blocks, width);
    let mut last = [0; PACK];
    last[..tail.len()].copy_from_slice(tail);
    pack_blocks(out, &[last], width);
}

/// Selects the packer for the width, so that all its shifts are constants.
fn pack_blocks(out: &mut Vec<u8>, blocks: &[[u32; PACK]], width: u8) {
    macro_rules! by_width {
        ($($w:literal)*) => {
            match width {
                $($w => blocks.iter().for_each(|block| out.extend_from_slice(&pack::<$w>(block)[..$w * 4])),)*
                _ => {}
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
}

/// Packs 32 values of `W` bits into `W` little-endian words; the remaining bytes are zero.
#[inline]
fn pack<const W: usize>(values: &[u32; PACK]) -> [u8; PACK * 4] {
    let mut bytes = [0; PACK * 4];
    let (words, _) = bytes.as_chunks_mut::<4>();
    let (mut pending, mut filled, mut next) = (0_u64, 0, 0);
    for &value in values {
        pending |= u64::from(value) << filled;
        filled += W;
        if filled >= 32 {
            words[next] = low_word(pending);
            next += 1;
            pending >>= 32;
            filled -= 32;
        }
    }
    bytes
}

fn low_word(pending: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = pending.to_le_bytes();
    [a, b, c, d]
}

/// Unpacks values from the first byte on until `out` is full; missing bytes are read as zero.
pub(in super::super) fn unpack(bytes: &[u8], width: u8, out: &mut [u32]) {
    let done = simd::unpack(bytes, width, out);
    if done < out.len() {
        unpack_rest(bytes.get(done / GROUP * usize::from(width)..).unwrap_or_default(), width, &mut out[done..]);
    }
}

/// Selects the unpacker for the width, so that all its shifts are constants.
fn unpack_rest(bytes: &[u8], width: u8, out: &mut [u32]) {
    macro_rules! by_width {
        ($($w:literal)*) => {
            match width {
                $($w => unpack_width::<$w>(bytes, out),)*
                _ => out.fill(0),
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
}

#[inline]
fn unpack_width<const W: usize>(bytes: &[u8], out: &mut [u32]) {
    let (groups, rest) = out.as_chunks_mut::<GROUP>();
    let whole = groups.len().min((bytes.len() / W).saturating_sub(1));
    // All but the last groups are followed by bytes that can be read with them.
    for (group, out) in groups[..whole].iter_mut().enumerate().map(|(i, out)| (&bytes[i * W..], out)) {
        unpack_group::<W>(group, out);
    }
    let mut last = [0; 40];
    for (i, out) in groups[whole..].iter_mut().enumerate() {
        last.fill(0);
        let packed = &bytes[((whole + i) * W).min(bytes.len())..];
        let length = packed.len().min(W);
        last[..length].copy_from_slice(&packed[..length]);
        unpack_group::<W>(&last, out);
    }
    if !rest.is_empty() {
        last.fill(0);
        let packed = &bytes[(groups.len() * W).min(bytes.len())..];
        let length = packed.len().min(W);
        last[..length].copy_from_slice(&packed[..length]);
        let mut values = [0; GROUP];
        unpack_group::<W>(&last, &mut values);
        rest.copy_from_slice(&values[..rest.len()]);
    }
}

#[inline]
fn unpack_group<const W: usize>(bytes: &[u8], out: &mut [u32; GROUP]) {
    let mask = if W == 32 { u64::from(u32::MAX) } else { (1 << W) - 1 };
    for (i, out) in out.iter_mut().enumerate() {
        let bit = i * W;
        // A value begins in the first of eight bytes and ends in the fifth at the latest.
        let word = match bytes[bit / 8..].first_chunk::<8>() {
            Some(word) => u64::from_le_bytes(*word),
            None => bytes[bit / 8..].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)),
        };
        *out = u32::try_from(word >> (bit % 8) & mask).unwrap_or_default();
    }
}

/// Appends the output of `put`, preceded by its length in four bytes, as levels are stored in a page. Returns the
/// result of `put` and that length.
pub fn put_behind_length<T>(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>) -> T) -> (T, usize) {
    let at = out.len() + 4;
    out.extend_from_slice(&[0; 4]);
    let given = put(out);
    let length = out.len() - at;
    out[at - 4..at].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    (given, length)
}

/// Appends one-bit levels in the hybrid form; a set bit is a value, a cleared one a null.
pub fn put_levels(out: &mut Vec<u8>, levels: &BooleanBuffer) {
    let chunks = levels.bit_chunks();
    let words: Vec<u64> = chunks.iter().collect();
    let mut at = 0;
    while at < words.len() {
        let mixed = mixed_words(&words[at..]);
        let last = at + mixed == words.len();
        if mixed > 0 || last {
            break_off(out, &words[at..at + mixed], if last { tail_of(&chunks) } else { None });
            at += mixed;
            if last {
                return;
            }
        }
        let run = words[at..].iter().take_while(|word| **word == words[at]).count();
        put_run(out, run as u64 * 64, u32::from(words[at] != 0), 1);
        at += run;
    }
    break_off(out, &[], tail_of(&chunks));
}

/// Returns the bits after the last whole word, and their number.
fn tail_of(chunks: &arrow::util::bit_chunk_iterator::BitChunks<'_>) -> Option<(u64, usize)> {
    (chunks.remainder_len() > 0).then(|| (chunks.remainder_bits(), chunks.remainder_len()))
}

/// Returns the number of words before a run that is long enough.
fn mixed_words(words: &[u64]) -> usize {
    let plain = |word: &u64| *word == 0 || *word == u64::MAX;
    let mut at = 0;
    while at < words.len() {
        let run = words[at..].iter().take_while(|word| **word == words[at] && plain(word)).count();
        if run >= RUN_WORDS {
            return at;
        }
        at += run.max(1);
    }
    words.len()
}

fn break_off(out: &mut Vec<u8>, words: &[u64], tail: Option<(u64, usize)>) {
    let stretch = |out: &mut Vec<u8>, groups: usize| put_varint(out, (groups as u64) << 1 | 1);
    for words in words.chunks(PACKED / 64) {
        stretch(out, words.len() * 8);
        words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
    if let Some((bits, length)) = tail {
        stretch(out, length.div_ceil(GROUP));
        out.extend_from_slice(&bits.to_le_bytes()[..length.div_ceil(GROUP)]);
    }
}

/// Appends the levels of a page in which all are equal.
pub fn put_same_levels(out: &mut Vec<u8>, rows: usize, level: u32) {
    if rows > 0 {
        put_run(out, rows as u64, level, 1);
    }
}

/// Number of values in a block of differences, and in one of its miniblocks, which have separate widths.
const BLOCK: usize = 128;
const MINI: usize = 32;

/// Appends numbers as differences.
pub(super) fn put_delta(out: &mut Vec<u8>, values: &[i64]) {
    let Some((&first, rest)) = put_delta_header(out, values) else { return };
    put_zigzag(out, first);
    let mut before = first;
    let mut differences = [0_i64; BLOCK];
    for block in rest.chunks(BLOCK) {
        for (difference, &value) in differences.iter_mut().zip(block) {
            *difference = value.wrapping_sub(before);
            before = value;
        }
        put_delta_block(out, &differences[..block.len()]);
    }
}

/// Appends numbers of 32 bits as differences, which wrap at this width.
pub(super) fn put_delta_narrow(out: &mut Vec<u8>, values: &[i32]) {
    let Some((&first, rest)) = put_delta_header(out, values) else { return };
    put_zigzag(out, first.into());
    let mut before = first;
    for block in rest.chunks(BLOCK) {
        let mut differences = [0_i32; BLOCK];
        for (difference, &value) in differences.iter_mut().zip(block) {
            *difference = value.wrapping_sub(before);
            before = value;
        }
        let least = differences[..block.len()].iter().copied().min().unwrap_or_default();
        let mut above = [0_u32; BLOCK];
        for (above, difference) in above.iter_mut().zip(&differences[..block.len()]) {
            *above = difference.wrapping_sub(least).cast_unsigned();
        }
        put_zigzag(out, least.into());
        let (parts, _) = above.as_chunks::<MINI>();
        let widths: [u8; BLOCK / MINI] =
            std::array::from_fn(|i| width_of(parts[i].iter().fold(0, |all, v| all | v).into()));
        out.extend_from_slice(&widths);
        for (part, width) in parts.iter().zip(widths).take(block.len().div_ceil(MINI)) {
            pack_blocks(out, std::slice::from_ref(part), width);
        }
    }
}

/// Appends what precedes the blocks, and returns the first number and the others.
fn put_delta_header<'a, T>(out: &mut Vec<u8>, values: &'a [T]) -> Option<(&'a T, &'a [T])> {
    put_varint(out, BLOCK as u64);
    put_varint(out, (BLOCK / MINI) as u64);
    put_varint(out, values.len() as u64);
    if values.is_empty() {
        put_zigzag(out, 0);
    }
    values.split_first()
}

/// Appends `count` equally spaced numbers, starting at `first`, in the same form.
pub fn put_even(out: &mut Vec<u8>, first: u64, step: u64, count: usize) {
    put_varint(out, BLOCK as u64);
    put_varint(out, (BLOCK / MINI) as u64);
    put_varint(out, count as u64);
    put_zigzag(out, first.cast_signed());
    for _ in 0..count.saturating_sub(1).div_ceil(BLOCK) {
        put_zigzag(out, step.cast_signed());
        out.extend_from_slice(&[0; BLOCK / MINI]);
    }
}

fn put_delta_block(out: &mut Vec<u8>, differences: &[i64]) {
    let least = differences.iter().copied().min().unwrap_or_default();
    let mut above = [0_u64; BLOCK];
    for (above, &difference) in above.iter_mut().zip(differences) {
        *above = difference.wrapping_sub(least).cast_unsigned();
    }
    put_zigzag(out, least);
    let minis = differences.len().div_ceil(MINI);
    let (parts, _) = above.as_chunks::<MINI>();
    let widths: [u8; BLOCK / MINI] = std::array::from_fn(|i| width_of(parts[i].iter().fold(0, |all, v| all | v)));
    out.extend_from_slice(&widths);
    for (part, width) in parts.iter().zip(widths).take(minis) {
        put_wide(out, part, width);
    }
}

/// Packs 32 values of up to 64 bits.
fn put_wide(out: &mut Vec<u8>, values: &[u64; MINI], width: u8) {
    macro_rules! by_width {
        ($($w:literal)*) => {
            match width {
                $($w => out.extend_from_slice(&pack_wide::<$w>(values)[..$w * 4]),)*
                _ => pack_blocks(out, &[values.map(low_bits)], width),
            }
        };
    }
    by_width!(33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64);
}

#[expect(clippy::cast_possible_truncation, reason = "the width guarantees that there are no more")]
fn low_bits(value: u64) -> u32 {
    value as u32
}

fn low_half(pending: u128) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = pending.to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Like [`pack`], for wider values, in words of eight bytes.
#[inline]
fn pack_wide<const W: usize>(values: &[u64; MINI]) -> [u8; MINI * 8] {
    let mut bytes = [0; MINI * 8];
    let (words, _) = bytes.as_chunks_mut::<8>();
    let (mut pending, mut filled, mut next) = (0_u128, 0, 0);
    for &value in values {
        pending |= u128::from(value) << filled;
        filled += W;
        if filled >= 64 {
            words[next] = low_half(pending);
            next += 1;
            pending >>= 64;
            filled -= 64;
        }
    }
    // For an odd width, half a word remains.
    if filled > 0 {
        words[next] = low_half(pending);
    }
    bytes
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (&byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    fn bits(bytes: &[u8], at: usize, width: usize) -> u64 {
        (0..width).fold(0, |value, i| value | u64::from(bytes[(at + i) / 8] >> ((at + i) % 8) & 1) << i)
    }

    /// Decodes the hybrid form bit by bit, following its specification.
    fn read_hybrid(mut bytes: &[u8], width: usize, count: usize) -> Vec<u32> {
        let mut out = Vec::new();
        while out.len() < count {
            let header = varint(&mut bytes);
            let n = usize::try_from(header >> 1).unwrap();
            if header & 1 == 1 {
                out.extend((0..n * 8).map(|i| u32::try_from(bits(bytes, i * width, width)).unwrap()));
                bytes = &bytes[n * width..];
            } else {
                let length = width.div_ceil(8);
                out.extend(vec![u32::try_from(bits(bytes, 0, length * 8)).unwrap(); n]);
                bytes = &bytes[length..];
            }
        }
        assert!(bytes.is_empty(), "{} bytes are left", bytes.len());
        out.truncate(count);
        out
    }

    /// Decodes packed differences, following their specification.
    fn read_delta(mut bytes: &[u8], narrow: bool) -> Vec<i64> {
        let zigzag = |v: u64| (v >> 1).cast_signed() ^ -(v & 1).cast_signed();
        assert_eq!((varint(&mut bytes), varint(&mut bytes)), (128, 4));
        let count = usize::try_from(varint(&mut bytes)).unwrap();
        let mut last = zigzag(varint(&mut bytes));
        let mut out = vec![last];
        while out.len() < count {
            let least = zigzag(varint(&mut bytes));
            let (widths, rest) = bytes.split_at(4);
            bytes = rest;
            for &width in widths {
                if out.len() >= count {
                    break;
                }
                for i in 0..32 {
                    let above = bits(bytes, i * usize::from(width), usize::from(width)).cast_signed();
                    last = last.wrapping_add(least).wrapping_add(above);
                    last = if narrow { last << 32 >> 32 } else { last };
                    out.push(last);
                }
                bytes = &bytes[usize::from(width) * 4..];
            }
        }
        assert!(bytes.is_empty(), "{} bytes are left", bytes.len());
        out.truncate(count);
        out
    }

    proptest! {
        #[test]
        fn indices_round_trip(runs in proptest::collection::vec((any::<u32>(), 1_usize..40), 0..40),
            width in 0_u8..=32) {
            let mask = u32::try_from((1_u64 << width) - 1).unwrap();
            let values: Vec<u32> = runs.iter().flat_map(|(v, n)| {
                (0..*n).map(move |i| if n % 2 == 0 { *v } else { v.rotate_left(u32::try_from(i).unwrap()) } & mask)
            }).collect();
            let mut out = Vec::new();
            put_hybrid(&mut out, &values, width);
            prop_assert_eq!(read_hybrid(&out, usize::from(width), values.len()), values);
        }

        #[test]
        fn levels_round_trip(runs in proptest::collection::vec((any::<bool>(), any::<bool>(), 1_usize..700), 0..9),
            skip in 0_usize..20) {
            let all: Vec<bool> = runs.iter().flat_map(|(value, mixed, n)| {
                (0..*n).map(move |i| if *mixed { i % 3 == 0 } else { *value })
            }).collect();
            let skip = skip.min(all.len());
            let levels = BooleanBuffer::from(all.clone()).slice(skip, all.len() - skip);
            let mut out = Vec::new();
            put_levels(&mut out, &levels);
            let expected: Vec<u32> = all[skip..].iter().map(|v| u32::from(*v)).collect();
            prop_assert_eq!(read_hybrid(&out, 1, expected.len()), expected);
        }

        #[test]
        fn differences_round_trip(values in proptest::collection::vec(any::<i64>(), 1..400), shift in 0_u32..64,
            narrow: bool) {
            let values: Vec<i64> = values.iter().map(|v| if narrow { v << 32 >> 32 } else { v >> shift }).collect();
            let mut out = Vec::new();
            if narrow {
                put_delta_narrow(&mut out, &values.iter().map(|v| i32::try_from(*v).unwrap()).collect::<Vec<_>>());
            } else {
                put_delta(&mut out, &values);
            }
            prop_assert_eq!(read_delta(&out, narrow), values);
        }
    }

    proptest! {
        #[test]
        fn vector_code_agrees_with_scalar_code(values in proptest::collection::vec(any::<u32>(), 0..700),
            behind in 0_usize..40) {
            for width in 0_u8..=32 {
                let mask = u32::try_from((1_u64 << width) - 1).unwrap();
                let values: Vec<u32> = values.iter().map(|v| v & mask).collect();
                let bytes = values.len() * usize::from(width) / 8;
                let mut packed = Vec::new();
                pack_rest(&mut packed, &values, width);
                packed.truncate(values.len().div_ceil(GROUP) * usize::from(width));
                let mut room = vec![0xff; values.len() * 4 + simd::SLACK];
                let done = simd::pack(&values, width, &mut room);
                prop_assert!(done.is_multiple_of(GROUP) && done <= values.len());
                let whole = done / GROUP * usize::from(width);
                prop_assert_eq!(&room[..whole], &packed[..whole]);
                packed.resize(packed.len() + behind, 0xa5);
                let (mut by_vectors, mut by_words) = (vec![7; values.len()], vec![7; values.len()]);
                let done = simd::unpack(&packed[..bytes + behind.min(packed.len() - bytes)], width, &mut by_vectors);
                unpack_rest(&packed, width, &mut by_words);
                prop_assert_eq!(&by_words, &values);
                prop_assert!(done.is_multiple_of(GROUP));
                prop_assert_eq!(&by_vectors[..done], &values[..done]);
                let mut all = vec![7; values.len()];
                unpack(&packed, width, &mut all);
                prop_assert_eq!(&all, &values);
                // Missing bytes are zero, and nothing is read beyond the slice.
                unpack(&packed[..bytes / 2], width, &mut all);
            }
        }
    }

    #[test]
    fn long_runs_take_few_bytes() {
        let mut out = Vec::new();
        put_hybrid(&mut out, &[7; 100_000], 13);
        assert!(out.len() <= 6, "{}", out.len());
        out.clear();
        put_levels(&mut out, &BooleanBuffer::new_set(100_000));
        assert!(out.len() <= 16, "{}", out.len());
    }

    #[test]
    fn numbers_equally_far_apart_need_no_list() {
        for (first, step, count) in [(0, 1, 0), (7, 1, 1), (7, 1, 129), (5, 0, 300), (1 << 62, 3, 1000)] {
            let list: Vec<i64> = (0..count).map(|i| i64::try_from(first + step * i).unwrap()).collect();
            let (mut even, mut one_by_one) = (Vec::new(), Vec::new());
            put_even(&mut even, if count == 0 { 0 } else { first }, step, usize::try_from(count).unwrap());
            put_delta(&mut one_by_one, &list);
            assert_eq!(even, one_by_one);
        }
    }
}
