//! Least and greatest values of a column of any type. NaN is neither, and nulls are not values.

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, new_null_array},
    compute::{SortOptions, filter, sort_to_indices, take},
    datatypes::{ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type},
};

/// Returns the least or the greatest value as an array of one, which is null if there are no values; `None` if the
/// type has no order.
pub fn extreme_value(values: &ArrayRef, greatest: bool) -> Option<ArrayRef> {
    let numbers = match nan_mask(values) {
        Some(nans) if nans.true_count() > 0 => filter(values, &arrow::compute::not(&nans).ok()?).ok()?,
        _ => ArrayRef::clone(values),
    };
    if numbers.is_empty() {
        return Some(new_null_array(values.data_type(), 1));
    }
    let options = SortOptions { descending: greatest, nulls_first: false };
    let first = sort_to_indices(&numbers, Some(options), Some(1)).ok()?;
    take(&numbers, &first, None).ok()
}

/// Returns which values are NaN; `None` if the type has none.
pub fn nan_mask(values: &ArrayRef) -> Option<BooleanArray> {
    fn primitive_nans<T: ArrowPrimitiveType>(values: &ArrayRef, is_nan: fn(T::Native) -> bool) -> BooleanArray {
        values.as_primitive::<T>().iter().map(|value| value.map(is_nan).or(Some(false))).collect()
    }
    match values.data_type() {
        DataType::Float16 => Some(primitive_nans::<Float16Type>(values, |value| value.is_nan())),
        DataType::Float32 => Some(primitive_nans::<Float32Type>(values, f32::is_nan)),
        DataType::Float64 => Some(primitive_nans::<Float64Type>(values, f64::is_nan)),
        _ => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, StringArray};

    use super::*;
    use crate::record::json::text_of;

    #[test]
    fn nulls_and_nan_are_no_bounds() {
        let ends = |values: ArrayRef| {
            let text = |greatest| text_of(&extreme_value(&values, greatest).unwrap(), 0);
            (text(false), text(true))
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            ends(Arc::new(Float64Array::from(vec![Some(f64::NAN), None, Some(2.5), Some(-1.0)]))),
            (text("-1.0"), text("2.5"))
        );
        assert_eq!(ends(Arc::new(Float64Array::from(vec![f64::NAN]))), (None, None));
        assert_eq!(ends(Arc::new(StringArray::from(vec![Some("b"), None, Some("")]))), (text(""), text("b")));
        assert_eq!(ends(Arc::new(StringArray::from(vec![None::<&str>]))), (None, None));
    }
}
