//! Doubles in a format whose only float has 32 bits.
//!
//! A double is written as the nearest `f32`. Reading widens it through its shortest decimal text, so that `129.16`,
//! which is typical of doubles of measured data, round-trips. Doubles that would not round-trip are written a second
//! time, in full, in a field that other readers skip; see `example`.

/// Returns the double that a float represents: the one nearest to the shortest decimal text of the float. `text` is a
/// scratch buffer.
pub(super) fn widen_float(value: f32, text: &mut Vec<u8>) -> f64 {
    let exact = f64::from(value);
    // The text of a small whole number is exact; signs, infinities and NaN are preserved.
    let whole = exact.fract() == 0.0 && exact.abs() < 16_777_216.0;
    if whole || !value.is_finite() {
        return exact;
    }
    text.clear();
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut *text, &value);
    fast_float2::parse(&*text).unwrap_or(exact)
}

/// Returns the nearest float.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what this is for")]
pub(super) fn narrow_double(value: f64) -> f32 {
    value as f32
}

/// Whether a double round-trips through its nearest float; all NaNs are equivalent.
pub(super) fn round_trips(value: f64, text: &mut Vec<u8>) -> bool {
    value.is_nan() || widen_float(narrow_double(value), text).to_bits() == value.to_bits()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_decimals_round_trip_and_others_do_not() {
        let mut text = Vec::new();
        for value in
            [0.0, -0.0, 1.0, 129.16, 0.1, -2.5e-3, 1e30, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 16_777_215.0]
        {
            assert!(round_trips(value, &mut text), "{value}");
        }
        for value in [1.0 / 3.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, 1e300, f64::from(0.1_f32), 16_777_217.0] {
            assert!(!round_trips(value, &mut text), "{value}");
        }
    }

    /// Shards depend on it: of two texts that are equally short and near, the one with an even last digit is chosen.
    #[test]
    fn ties_go_to_the_even_digit() {
        for (float, double) in [(387_285.63, 387_285.62), (16_777_216.0, 16_777_216.0), (0.3, 0.3)] {
            assert_eq!(widen_float(float, &mut Vec::new()).to_bits(), f64::to_bits(double));
        }
    }

    proptest! {
        #[test]
        fn floats_round_trip_through_text(value: f32) {
            let wide = widen_float(value, &mut Vec::new());
            prop_assert_eq!(narrow_double(wide).to_bits(), value.to_bits());
        }

        #[test]
        fn decimals_of_six_digits_round_trip(digits in 0_u32..1_000_000, places in 0_i32..12) {
            let value: f64 = format!("{digits}e-{places}").parse().unwrap_or(f64::NAN);
            prop_assert!(round_trips(value, &mut Vec::new()));
        }
    }
}
