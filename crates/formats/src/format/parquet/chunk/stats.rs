//! Least and greatest values of pages and chunks, in the orders that Parquet defines.
//!
//! Values of fixed width are compared by a key: an unsigned number made from their bits, in the order of the values.
//! For floating-point numbers this is the total order of IEEE 754; NaNs count only if there are no other numbers.
//!
//! Long texts are truncated for the footer. The greatest one is then incremented, so that it still bounds all values,
//! and both are marked as inexact.

use ::parquet::{
    data_type::ByteArray,
    file::statistics::{Statistics, ValueStatistics},
};

use super::column::Word;

/// Maximum length in bytes of a text in the footer.
const MAX_FOOTER_BYTES: usize = 64;

/// How values of a column are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueOrder {
    /// False before true.
    Boolean,
    /// Signed integers of 32 or 64 bits.
    Signed { wide: bool },
    /// Unsigned integers of 32 or 64 bits.
    Unsigned { wide: bool },
    /// Floating-point numbers of 32 or 64 bits.
    Float { wide: bool },
    /// Byte by byte.
    Bytes { utf8: bool },
}

/// Least and greatest of some values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bounds {
    /// Keys, the number of NaNs, and whether all values are NaN.
    Keys { least: u64, greatest: u64, nans: u64, only_nans: bool },
    /// Bytes; of long values those at the start, which decide what the footer says.
    Bytes { least: Vec<u8>, greatest: Vec<u8> },
}

const SIGN: u64 = 1 << 63;
const SIGN_32: u64 = 1 << 31;

impl ValueOrder {
    /// Returns whether values may be NaN.
    pub(super) fn is_float(self) -> bool {
        matches!(self, Self::Float { .. })
    }

    /// Returns the key of a value's bits; keys are in the order of the values.
    pub(super) fn key_of_bits(self, bits: u64) -> u64 {
        match self {
            Self::Boolean | Self::Bytes { .. } | Self::Unsigned { .. } => bits,
            Self::Signed { wide: true } => bits ^ SIGN,
            Self::Signed { wide: false } => bits ^ SIGN_32,
            Self::Float { wide: true } => bits ^ if bits & SIGN == 0 { SIGN } else { u64::MAX },
            Self::Float { wide: false } => bits ^ if bits & SIGN_32 == 0 { SIGN_32 } else { 0xffff_ffff },
        }
    }

    fn bits(self, key: u64) -> u64 {
        match self {
            Self::Float { wide: true } => key ^ if key & SIGN == 0 { u64::MAX } else { SIGN },
            Self::Float { wide: false } => key ^ if key & SIGN_32 == 0 { 0xffff_ffff } else { SIGN_32 },
            other => other.key_of_bits(key),
        }
    }

    /// Returns whether these are the bits of a NaN.
    pub(super) fn is_nan(self, bits: u64) -> bool {
        match self {
            Self::Float { wide: true } => bits << 1 > 0x7ff << 53,
            Self::Float { wide: false } => bits & 0x7fff_ffff > 0x7f80_0000,
            _ => false,
        }
    }

    /// Returns the bounds of values of fixed width; `None` if there are none.
    pub(super) fn of_words<W: Word>(self, values: &[W]) -> Option<Bounds> {
        // One loop for each order, which the compiler vectorises.
        match self {
            Self::Float { .. } => self.of_floats(values),
            Self::Signed { wide: true } => Self::fold_keys(values, |bits| bits ^ SIGN),
            Self::Signed { wide: false } => Self::fold_keys(values, |bits| bits ^ SIGN_32),
            _ => Self::fold_keys(values, |bits| bits),
        }
    }

    fn fold_keys<W: Word>(values: &[W], key: impl Fn(u64) -> u64) -> Option<Bounds> {
        if values.is_empty() {
            return None;
        }
        let (mut least, mut greatest) = (u64::MAX, 0);
        for value in values {
            let key = key(value.bits());
            least = least.min(key);
            greatest = greatest.max(key);
        }
        Some(Bounds::Keys { least, greatest, nans: 0, only_nans: false })
    }

    fn of_floats<W: Word>(self, values: &[W]) -> Option<Bounds> {
        let (mut least, mut greatest, mut nans) = (u64::MAX, 0, 0);
        for value in values {
            let bits = value.bits();
            let key = self.key_of_bits(bits);
            let nan = self.is_nan(bits);
            nans += u64::from(nan);
            least = least.min(if nan { u64::MAX } else { key });
            greatest = greatest.max(if nan { 0 } else { key });
        }
        if values.len() as u64 > nans {
            return Some(Bounds::Keys { least, greatest, nans, only_nans: false });
        }
        let keys = || values.iter().map(|value| self.key_of_bits(value.bits()));
        Some(Bounds::Keys { least: keys().min()?, greatest: keys().max()?, nans, only_nans: true })
    }

    /// Returns the statistics of a chunk whose pages have these bounds.
    pub(super) fn chunk_statistics<'a>(
        self,
        pages: impl Iterator<Item = &'a Bounds>,
        nulls: u64,
        signed: bool,
    ) -> Statistics {
        let whole = pages.fold(None, |all: Option<Bounds>, page| {
            Some(match all {
                Some(all) => all.unite(page),
                None => page.clone(),
            })
        });
        let nans = self.is_float().then(|| whole.as_ref().map_or(0, Bounds::nan_count));
        macro_rules! of {
            ($kind:ident, $read:expr) => {{
                let read = $read;
                let (least, greatest) = match &whole {
                    Some(Bounds::Keys { least, greatest, .. }) => {
                        (Some(read(self.bits(*least))), Some(read(self.bits(*greatest))))
                    }
                    _ => (None, None),
                };
                Statistics::$kind(
                    ValueStatistics::new(least, greatest, None, Some(nulls), false)
                        .with_nan_count(nans)
                        .with_backwards_compatible_min_max(signed),
                )
            }};
        }
        match self {
            Self::Boolean => of!(Boolean, |bits: u64| bits != 0),
            Self::Signed { wide: true } | Self::Unsigned { wide: true } => of!(Int64, u64::cast_signed),
            Self::Signed { wide: false } | Self::Unsigned { wide: false } => {
                of!(Int32, |bits: u64| low(bits).cast_signed())
            }
            Self::Float { wide: true } => of!(Double, f64::from_bits),
            Self::Float { wide: false } => of!(Float, |bits: u64| f32::from_bits(low(bits))),
            Self::Bytes { .. } => {
                let (least, greatest) =
                    whole.map_or((None, None), |w| (Some(self.index_min(&w)), Some(self.index_max(&w))));
                let exact = |side: &Option<(Vec<u8>, bool)>| side.as_ref().is_some_and(|(_, exact)| *exact);
                let (least_is_exact, greatest_is_exact) = (exact(&least), exact(&greatest));
                let bytes = |side: Option<(Vec<u8>, bool)>| side.map(|(bytes, _)| ByteArray::from(bytes));
                Statistics::ByteArray(
                    ValueStatistics::new(bytes(least), bytes(greatest), None, Some(nulls), false)
                        .with_min_is_exact(least_is_exact)
                        .with_max_is_exact(greatest_is_exact),
                )
            }
        }
    }

    /// Returns the least value for the column index, and whether it is exact.
    pub(super) fn index_min(self, bounds: &Bounds) -> (Vec<u8>, bool) {
        match bounds {
            Bounds::Keys { least, .. } => (self.plain_bytes(*least), true),
            Bounds::Bytes { least, .. } if least.len() <= MAX_FOOTER_BYTES => (least.clone(), true),
            Bounds::Bytes { least, .. } => (least[..self.truncated_length(least)].to_vec(), false),
        }
    }

    /// Returns the greatest value for the column index, and whether it is exact.
    pub(super) fn index_max(self, bounds: &Bounds) -> (Vec<u8>, bool) {
        match bounds {
            Bounds::Keys { greatest, .. } => (self.plain_bytes(*greatest), true),
            Bounds::Bytes { greatest, .. } if greatest.len() <= MAX_FOOTER_BYTES => (greatest.clone(), true),
            Bounds::Bytes { greatest, .. } => {
                let head = &greatest[..self.truncated_length(greatest)];
                let raised = match self {
                    Self::Bytes { utf8: true } => std::str::from_utf8(head).ok().and_then(raised_text),
                    _ => raised_bytes(head),
                };
                raised.map_or_else(|| (greatest.clone(), true), |raised| (raised, false))
            }
        }
    }

    /// Returns the length to which a long value is truncated.
    fn truncated_length(self, value: &[u8]) -> usize {
        let inside = |at: &usize| value[*at] & 0xc0 == 0x80;
        match self {
            Self::Bytes { utf8: true } => {
                (1..=MAX_FOOTER_BYTES).rev().find(|at| !inside(at)).unwrap_or(MAX_FOOTER_BYTES)
            }
            _ => MAX_FOOTER_BYTES,
        }
    }

    fn plain_bytes(self, key: u64) -> Vec<u8> {
        let bytes = self.bits(key).to_le_bytes();
        match self {
            Self::Boolean => bytes[..1].to_vec(),
            Self::Signed { wide: false } | Self::Unsigned { wide: false } | Self::Float { wide: false } => {
                bytes[..4].to_vec()
            }
            _ => bytes.to_vec(),
        }
    }
}

impl Bounds {
    /// Returns the number of NaNs.
    pub(super) fn nan_count(&self) -> u64 {
        match self {
            Self::Keys { nans, .. } => *nans,
            Self::Bytes { .. } => 0,
        }
    }

    /// Returns whether neither bound is greater than the other's corresponding bound.
    pub(super) fn not_above(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Keys { least, greatest, .. }, Self::Keys { least: l, greatest: g, .. }) => {
                least <= l && greatest <= g
            }
            (Self::Bytes { least, greatest }, Self::Bytes { least: l, greatest: g }) => least <= l && greatest <= g,
            _ => false,
        }
    }

    fn unite(self, other: &Self) -> Self {
        match (self, other) {
            (
                Self::Keys { least, greatest, nans, only_nans },
                Self::Keys { least: l, greatest: g, nans: n, only_nans: only },
            ) => {
                let nans = nans + n;
                match (only_nans, *only) {
                    (true, false) => Self::Keys { least: *l, greatest: *g, nans, only_nans: false },
                    (false, true) => Self::Keys { least, greatest, nans, only_nans: false },
                    (only_nans, _) => Self::Keys { least: least.min(*l), greatest: greatest.max(*g), nans, only_nans },
                }
            }
            (Self::Bytes { least, greatest }, Self::Bytes { least: l, greatest: g }) => {
                let least = if *l < least { l.clone() } else { least };
                let greatest = if *g > greatest { g.clone() } else { greatest };
                Self::Bytes { least, greatest }
            }
            (one, _) => one,
        }
    }

    /// Returns the bounds of values of variable length; `None` if there are none.
    pub(super) fn of_bytes<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let first = values.next()?;
        let (mut least, mut greatest) = (first, first);
        let (mut least_head, mut greatest_head) = (prefix_key(first), prefix_key(first));
        for value in values {
            // Most values differ in their first bytes, which needs no call.
            let head = prefix_key(value);
            if head < least_head || (head == least_head && value < least) {
                (least, least_head) = (value, head);
            }
            if head > greatest_head || (head == greatest_head && value > greatest) {
                (greatest, greatest_head) = (value, head);
            }
        }
        Some(Self::Bytes { least: bounding_prefix(least), greatest: bounding_prefix(greatest) })
    }
}

/// Returns what the footer may need of a value: as much more than [`MAX_FOOTER_BYTES`] as tells that it is longer, or
/// all of one that must be stated whole because its start cannot be incremented.
fn bounding_prefix(value: &[u8]) -> Vec<u8> {
    let Some(head) = value.get(..MAX_FOOTER_BYTES).filter(|_| value.len() > 2 * MAX_FOOTER_BYTES) else {
        return value.to_vec();
    };
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    // A character at the end may be cut off.
    let is_text = text.len() + 4 > MAX_FOOTER_BYTES;
    let is_raised = raised_bytes(head).is_some() && (!is_text || raised_text(text).is_some());
    if is_raised { value[..2 * MAX_FOOTER_BYTES].to_vec() } else { value.to_vec() }
}

/// Returns the first eight bytes as a number of the same order; a shorter value is padded with zeros.
#[inline]
pub(super) fn prefix_key(value: &[u8]) -> u64 {
    match value.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => value.iter().rev().fold(0, |head, byte| head >> 8 | u64::from(*byte) << 56),
    }
}

fn low(bits: u64) -> u32 {
    u32::try_from(bits & 0xffff_ffff).unwrap_or_default()
}

/// Returns the text up to its last character that can be incremented within its length, with that character
/// incremented.
fn raised_text(text: &str) -> Option<Vec<u8>> {
    text.char_indices().rev().find_map(|(at, c)| {
        let next = char::from_u32(u32::from(c) + 1).filter(|next| next.len_utf8() == c.len_utf8())?;
        let mut raised = text[..at].to_owned();
        raised.push(next);
        Some(raised.into_bytes())
    })
}

fn raised_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    let at = bytes.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut raised = bytes[..=at].to_vec();
    raised[at] += 1;
    Some(raised)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn of_long_values_the_start_is_kept_and_says_the_same() {
        let long = |start: &str, filler: &str| [start, &filler.repeat(1000)].concat().into_bytes();
        let text = ValueOrder::Bytes { utf8: true };
        for utf8 in [true, false] {
            let order = ValueOrder::Bytes { utf8 };
            for value in [long("a", "b"), long("ab", "\u{20ac}"), long("abc", "\u{1f600}"), long("", "\u{10fffe}")] {
                let bounds = Bounds::of_bytes([value.as_slice()].into_iter()).unwrap();
                let whole = Bounds::Bytes { least: value.clone(), greatest: value.clone() };
                assert_eq!(order.index_min(&bounds), order.index_min(&whole));
                assert_eq!(order.index_max(&bounds), order.index_max(&whole));
                let Bounds::Bytes { least, greatest } = bounds else { panic!("keys") };
                assert_eq!((least.len(), greatest.len()), (2 * MAX_FOOTER_BYTES, 2 * MAX_FOOTER_BYTES));
            }
        }
        let picture = [&[0xff, 0xd8, 0xff, 0xe0][..], &[0; 1000]].concat();
        let bounds = Bounds::of_bytes([picture.as_slice()].into_iter()).unwrap();
        let (greatest, exact) = ValueOrder::Bytes { utf8: false }.index_max(&bounds);
        assert!(greatest > picture && greatest.len() <= MAX_FOOTER_BYTES && !exact);
        // Nothing of so many bytes is above it, so it is stated whole.
        let highest = long("", "\u{7f}");
        let bounds = Bounds::of_bytes([highest.as_slice()].into_iter()).unwrap();
        assert_eq!(text.index_max(&bounds), (highest, true));
    }
}
