//! Least and greatest values, from values or from what footers state, of parts whose types may differ.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef},
    compute::{cast, concat},
    datatypes::{DataType, Field, Fields},
};

use crate::{record::extreme::extreme_value, schema::unite_lists};

/// Least and greatest value as arrays of one value, which is null where there are only nulls and NaN.
pub(in crate::ops) type Range = (ArrayRef, ArrayRef);

/// The range of the parts so far.
#[derive(Debug, Clone, Default)]
pub(in crate::ops) struct Extremes {
    range: Option<Range>,
    /// Whether the range of some part is not known.
    is_unknown: bool,
}

impl Extremes {
    /// Adds values.
    pub(in crate::ops) fn add_values(&mut self, values: &ArrayRef) {
        self.add_range(extreme_value(values, false).zip(extreme_value(values, true)).as_ref());
    }

    /// Adds the range of a part; `None` if it is not known.
    pub(in crate::ops) fn add_range(&mut self, part: Option<&Range>) {
        self.range = match (self.range.take(), part) {
            (None, Some(part)) => Some(part.clone()),
            (Some(own), Some(part)) => unite_ranges(&own, part),
            (_, None) => None,
        };
        self.is_unknown |= self.range.is_none();
    }

    /// Adds the parts of others.
    pub(in crate::ops) fn merge(&mut self, other: &Self) {
        if let Some(range) = &other.range {
            self.add_range(Some(range));
        }
        self.is_unknown |= other.is_unknown;
    }

    /// Converts the range to a wider type, if that has the same order.
    pub(in crate::ops) fn convert_type(&mut self, data_type: &DataType) {
        if let Some(range) = self.range.take() {
            self.range = convert_range(&range, data_type);
            self.is_unknown |= self.range.is_none();
        }
    }

    /// Returns the range; `None` if there are no values, or it is not known.
    pub(in crate::ops) fn known_range(&self) -> Option<&Range> {
        self.range.as_ref().filter(|(least, _)| !self.is_unknown && least.is_valid(0))
    }
}

/// Unites two ranges; `None` if they have no common order.
fn unite_ranges(own: &Range, other: &Range) -> Option<Range> {
    let fields = |range: &Range| Fields::from(vec![Field::new("x", range.0.data_type().clone(), true)]);
    let data_type = match own.0.data_type() == other.0.data_type() {
        true => own.0.data_type().clone(),
        false => unite_lists(&fields(own), &fields(other)).first()?.data_type().clone(),
    };
    let (own, other) = (convert_range(own, &data_type)?, convert_range(other, &data_type)?);
    let of = |a: &ArrayRef, b: &ArrayRef, greatest| extreme_value(&concat(&[a.as_ref(), b.as_ref()]).ok()?, greatest);
    Some((of(&own.0, &other.0, false)?, of(&own.1, &other.1, true)?))
}

/// Converts a range. Wider numbers and times have the same order; other types may not.
fn convert_range((least, greatest): &Range, data_type: &DataType) -> Option<Range> {
    let from = least.data_type();
    let has_same_order = from == data_type
        || from.is_numeric() && data_type.is_numeric()
        || from.is_temporal() && data_type.is_temporal();
    let convert = |value: &ArrayRef| match from == data_type {
        true => Some(Arc::clone(value)),
        false => cast(value, data_type).ok().filter(|cast| cast.null_count() == value.null_count()),
    };
    if has_same_order { convert(least).zip(convert(greatest)) } else { None }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{Float64Array, Int32Array, Int64Array, StringArray};

    use super::*;
    use crate::record::json::text_of;

    fn range_of(parts: &[ArrayRef]) -> Option<(String, String)> {
        let mut all = Extremes::default();
        for part in parts {
            let mut own = Extremes::default();
            own.add_values(part);
            all.merge(&own);
        }
        all.known_range().map(|(least, greatest)| (text_of(least, 0).unwrap(), text_of(greatest, 0).unwrap()))
    }

    #[test]
    fn parts_of_wider_numbers_are_united_and_other_types_have_no_range() {
        let some = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        let small: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), None, Some(-1)]));
        let large: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX]));
        let float: ArrayRef = Arc::new(Float64Array::from(vec![0.5, f64::NAN, 7.25]));
        let nulls: ArrayRef = Arc::new(Int32Array::from(vec![None, None]));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["10", "9"]));
        for [a, b] in [[0, 1], [1, 0]] {
            let parts = [Arc::clone(&small), Arc::clone(&large)];
            let parts = [Arc::clone(&parts[a]), Arc::clone(&parts[b]), Arc::clone(&nulls)];
            assert_eq!(range_of(&parts), some("-1", &i64::MAX.to_string()));
        }
        assert_eq!(range_of(&[Arc::clone(&small), float]), some("-1.0", "7.25"));
        assert_eq!(range_of(&[nulls]), None);
        assert_eq!(range_of(&[]), None);
        assert_eq!(range_of(&[Arc::clone(&small), Arc::clone(&text), small]), None);
        assert_eq!(range_of(&[text]), some("10", "9"));
    }
}
