//! Bounds of chunks, derived from the bounds of their parts without reading a value.
//!
//! Bounds are used as stored in the footers: values in the PLAIN encoding. Unreliable bounds are ignored: deprecated
//! ones of bytes compared without sign, and those of columns with an undefined order. A bound is exact if the part that
//! it comes from says so. NaNs bound nothing, unless a part states that it contains nothing else.

use std::cmp::Ordering;

use ::parquet::{
    basic::{ConvertedType, LogicalType, SortOrder, Type as Physical},
    data_type::{ByteArray, FixedLenByteArray},
    file::{
        metadata::ColumnChunkMetaData,
        statistics::{Statistics, ValueStatistics},
    },
    schema::types::ColumnDescriptor,
};

/// How the values of a column are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparisonOrder {
    /// Unsigned numbers, little-endian.
    Unsigned,
    /// Signed numbers, little-endian.
    Signed,
    /// Floating-point numbers, little-endian.
    Float,
    /// Byte by byte.
    Bytes,
    /// Signed numbers, big-endian.
    Decimal,
    /// The order is undefined.
    Undefined,
}

impl ComparisonOrder {
    pub(super) fn for_column(column: &ColumnDescriptor) -> Self {
        let decimal = matches!(column.logical_type_ref(), Some(LogicalType::Decimal { .. }))
            || column.converted_type() == ConvertedType::DECIMAL;
        let half = matches!(column.logical_type_ref(), Some(LogicalType::Float16));
        match (column.physical_type(), column.sort_order()) {
            (Physical::BOOLEAN, _) => Self::Unsigned,
            (Physical::FLOAT | Physical::DOUBLE, _) => Self::Float,
            (Physical::FIXED_LEN_BYTE_ARRAY, _) if half => Self::Float,
            (Physical::INT32 | Physical::INT64, SortOrder::SIGNED) => Self::Signed,
            (Physical::INT32 | Physical::INT64, SortOrder::UNSIGNED) => Self::Unsigned,
            (Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY, _) if decimal => Self::Decimal,
            (Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY, SortOrder::UNSIGNED) => Self::Bytes,
            _ => Self::Undefined,
        }
    }

    /// Compares two values; NaNs are at the ends of the order.
    pub(super) fn compare(self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            Self::Unsigned => one.iter().rev().cmp(other.iter().rev()),
            Self::Signed => compare_signed(one.iter().rev(), other.iter().rev()),
            // The total order of IEEE 754: negative numbers are in reverse order of their bits.
            Self::Float => match (is_negative(one), is_negative(other)) {
                (false, true) => Ordering::Greater,
                (true, false) => Ordering::Less,
                (false, false) => one.iter().rev().cmp(other.iter().rev()),
                (true, true) => other.iter().rev().cmp(one.iter().rev()),
            },
            Self::Bytes | Self::Undefined => one.cmp(other),
            Self::Decimal => compare_decimals(one, other),
        }
    }

    /// Extends a bound of zero to both zeros: writers that treat them as equal store either, whereas the output
    /// declares them ordered.
    pub(super) fn widen_zeros(self, least: &mut [u8], greatest: &mut [u8]) {
        let is_zero =
            |value: &[u8]| value.iter().rev().enumerate().all(|(i, byte)| *byte == 0 || (i == 0 && *byte == 0x80));
        if self == Self::Float {
            if let Some(sign) = Some(&mut *least).filter(|least| is_zero(least)).and_then(|least| least.last_mut()) {
                *sign = 0x80;
            }
            if let Some(sign) = Some(greatest).filter(|greatest| is_zero(greatest)).and_then(|most| most.last_mut()) {
                *sign = 0;
            }
        }
    }

    /// Returns whether a value is NaN.
    pub(super) fn is_nan(self, value: &[u8]) -> bool {
        self == Self::Float
            && match *value {
                [a, b] => u16::from_le_bytes([a, b]) & 0x7fff > 0x7c00,
                [a, b, c, d] => f32::from_le_bytes([a, b, c, d]).is_nan(),
                [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]).is_nan(),
                _ => false,
            }
    }
}

fn is_negative(value: &[u8]) -> bool {
    value.last().is_some_and(|byte| byte & 0x80 != 0)
}

/// Compares signed numbers, big-endian.
fn compare_signed<'a>(mut one: impl Iterator<Item = &'a u8>, mut other: impl Iterator<Item = &'a u8>) -> Ordering {
    let flipped = |byte: Option<&u8>| byte.map(|byte| byte ^ 0x80);
    flipped(one.next()).cmp(&flipped(other.next())).then_with(|| one.cmp(other))
}

/// Compares signed numbers of any length, big-endian.
fn compare_decimals(one: &[u8], other: &[u8]) -> Ordering {
    let length = one.len().max(other.len());
    let filled = |value: &[u8]| {
        let sign = if value.first().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
        let mut filled = vec![sign; length - value.len()];
        filled.extend_from_slice(value);
        filled
    };
    let (one, other) = (filled(one), filled(other));
    compare_signed(one.iter(), other.iter())
}

/// A bound, and whether a value equals it.
type StatedBound = (Vec<u8>, bool);

/// A footer's statement about the values of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bounded {
    /// All values are null or NaN.
    Empty,
    /// The values are within these bounds.
    Within(StatedBound, StatedBound),
    /// No statement.
    Unknown,
}

/// Returns a footer's statement about the values of a chunk.
pub(super) fn bounds_of(chunk: &ColumnChunkMetaData, order: ComparisonOrder) -> Bounded {
    let Some(statistics) = chunk.statistics() else { return Bounded::Unknown };
    let values = u64::try_from(chunk.num_values()).unwrap_or(u64::MAX);
    let nulls = statistics.null_count_opt();
    if nulls == Some(values) {
        return Bounded::Empty;
    }
    let old = statistics.is_min_max_deprecated()
        && matches!(order, ComparisonOrder::Unsigned | ComparisonOrder::Bytes | ComparisonOrder::Decimal);
    let (Some(least), Some(greatest)) = (statistics.min_bytes_opt(), statistics.max_bytes_opt()) else {
        return Bounded::Unknown;
    };
    if order.is_nan(least) || order.is_nan(greatest) {
        let numbers = statistics.nan_count_opt().zip(nulls).map(|(nans, nulls)| values.saturating_sub(nans + nulls));
        return if numbers == Some(0) { Bounded::Empty } else { Bounded::Unknown };
    }
    let mistaken = order.compare(least, greatest) == Ordering::Greater;
    if order == ComparisonOrder::Undefined || (old && least != greatest) || mistaken {
        return Bounded::Unknown;
    }
    let (mut least, mut greatest) = (least.to_vec(), greatest.to_vec());
    order.widen_zeros(&mut least, &mut greatest);
    Bounded::Within((least, statistics.min_is_exact()), (greatest, statistics.max_is_exact()))
}

/// Returns the statistics of all chunks together, which have `nulls` nulls. The first chunk determines their type.
pub(super) fn unite_statistics(
    chunks: &[&ColumnChunkMetaData],
    order: ComparisonOrder,
    nulls: Option<u64>,
) -> Option<Statistics> {
    let column = chunks.first()?.column_descr();
    if let [one] = chunks {
        return one.statistics().cloned();
    }
    if chunks.iter().any(|chunk| chunk.statistics().is_none()) {
        return None;
    }
    let mut whole = Bounded::Empty;
    for chunk in chunks {
        whole = match (whole, bounds_of(chunk, order)) {
            (Bounded::Unknown, _) | (_, Bounded::Unknown) => Bounded::Unknown,
            (whole, Bounded::Empty) => whole,
            (Bounded::Empty, bounds) => bounds,
            (Bounded::Within(least, greatest), Bounded::Within(l, g)) => Bounded::Within(
                if order.compare(&l.0, &least.0) == Ordering::Less { l } else { least },
                if order.compare(&g.0, &greatest.0) == Ordering::Greater { g } else { greatest },
            ),
        };
    }
    let counted = |count: fn(&Statistics) -> Option<u64>| {
        chunks.iter().map(|chunk| chunk.statistics().and_then(count)).sum::<Option<u64>>()
    };
    let nulls = counted(Statistics::null_count_opt).or(nulls);
    let nans = counted(Statistics::nan_count_opt);
    Some(statistics_of(column, whole, nulls, nans))
}

/// Returns the statistics of values of a column.
pub(super) fn statistics_of(
    column: &ColumnDescriptor,
    whole: Bounded,
    nulls: Option<u64>,
    nans: Option<u64>,
) -> Statistics {
    let (least, greatest) = match whole {
        Bounded::Within(least, greatest) => (Some(least), Some(greatest)),
        _ => (None, None),
    };
    let exact = |bound: &Option<StatedBound>| bound.as_ref().is_some_and(|bound| bound.1);
    let exact = (exact(&least), exact(&greatest));
    macro_rules! of {
        ($kind:ident, $read:expr) => {{
            let read = $read;
            let least = least.and_then(|bound| read(bound.0));
            let greatest = greatest.and_then(|bound| read(bound.0));
            Statistics::$kind(
                ValueStatistics::new(least, greatest, None, nulls, false)
                    .with_min_is_exact(exact.0)
                    .with_max_is_exact(exact.1)
                    .with_nan_count(nans)
                    .with_backwards_compatible_min_max(column.sort_order().is_signed()),
            )
        }};
    }
    match column.physical_type() {
        Physical::BOOLEAN => of!(Boolean, |b: Vec<u8>| b.first().map(|byte| *byte != 0)),
        Physical::INT32 => of!(Int32, |b: Vec<u8>| b.try_into().ok().map(i32::from_le_bytes)),
        Physical::INT64 => of!(Int64, |b: Vec<u8>| b.try_into().ok().map(i64::from_le_bytes)),
        Physical::FLOAT => of!(Float, |b: Vec<u8>| b.try_into().ok().map(f32::from_le_bytes)),
        Physical::DOUBLE => of!(Double, |b: Vec<u8>| b.try_into().ok().map(f64::from_le_bytes)),
        // INT96 has no defined order, so there are no bounds.
        Physical::INT96 => of!(Int96, |_: Vec<u8>| None),
        Physical::BYTE_ARRAY => of!(ByteArray, |b: Vec<u8>| Some(ByteArray::from(b))),
        Physical::FIXED_LEN_BYTE_ARRAY => {
            of!(FixedLenByteArray, |b: Vec<u8>| Some(FixedLenByteArray::from(ByteArray::from(b))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_as_what_they_are() {
        let less = |order: ComparisonOrder, one: &[u8], other: &[u8]| {
            assert_eq!(order.compare(one, other), Ordering::Less);
            assert_eq!(order.compare(other, one), Ordering::Greater);
            assert_eq!(order.compare(one, one), Ordering::Equal);
        };
        less(ComparisonOrder::Signed, &(-1_i32).to_le_bytes(), &256_i32.to_le_bytes());
        less(ComparisonOrder::Signed, &i64::MIN.to_le_bytes(), &(-1_i64).to_le_bytes());
        less(ComparisonOrder::Unsigned, &256_u32.to_le_bytes(), &u32::MAX.to_le_bytes());
        for (one, other) in [(-2.0, -1.0), (-1.0, 0.5), (-0.0, 0.0), (1.0, 1e300), (f64::NEG_INFINITY, -1e300)] {
            less(ComparisonOrder::Float, &f64::to_le_bytes(one), &f64::to_le_bytes(other));
        }
        less(ComparisonOrder::Bytes, b"a", b"ab");
        less(ComparisonOrder::Decimal, &[0xff], &[0, 1]);
        less(ComparisonOrder::Decimal, &[0x80, 0], &[0xff]);
        less(ComparisonOrder::Decimal, &[1], &[1, 0]);
        assert!(ComparisonOrder::Float.is_nan(&f32::NAN.to_le_bytes()) && ComparisonOrder::Float.is_nan(&[1, 0x7c]));
        assert!(
            !ComparisonOrder::Float.is_nan(&f64::INFINITY.to_le_bytes()) && !ComparisonOrder::Float.is_nan(&[0, 0x7c])
        );
    }
}
