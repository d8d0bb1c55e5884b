//! CF conventions: missing values, packed values and times.
//!
//! ```text
//! stored --_Unsigned--> stored --missing_value, _FillValue, valid_range--> null
//!                              --scale_factor, add_offset--> float        --units since--> timestamp
//! ```
//!
//! The rules are those of netCDF4-python; results agree value by value and null by null. A variable of a netCDF file
//! without a `_FillValue` has the default of its type, unless the type is a byte. Unpacked values are float32 if both
//! the stored type and the factors are small enough, else float64. Attributes that netCDF4-python and xarray cannot
//! apply, or apply in different ways, are errors, so that no packed value passes for an unpacked one.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Float32Array, Float64Array, StringBuilder, TimestampMicrosecondBuilder},
    buffer::{BooleanBuffer, NullBuffer},
    datatypes::{DataType, TimeUnit},
};

use super::{
    Attribute, DType, Variable,
    calendar::TimeUnits,
    dtype::{Half, primitive_array},
};
use crate::error::{Error, Result};

/// Decoding of a variable's stored values.
#[derive(Debug, Clone, Default)]
pub struct Decode {
    /// Whether integers are interpreted with the opposite signedness.
    flip_sign: bool,
    /// Numbers that represent missing values, as stored.
    missing: Missing,
    scale: Option<Scale>,
    time: Option<TimeUnits>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Missing {
    integers: Vec<i128>,
    doubles: Vec<f64>,
    /// Smallest and largest valid number.
    at_least: Option<StoredNumber>,
    at_most: Option<StoredNumber>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct StoredNumber {
    integer: Option<i128>,
    double: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Scale {
    factor: Option<f64>,
    offset: Option<f64>,
    /// Whether float32 suffices for the product, and for the sum.
    single: [bool; 2],
}

impl Decode {
    /// Derives the decoding from the attributes of a variable.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) when its time units are invalid, or an attribute has another type or
    /// number of values than the conventions say.
    pub fn from_variable(variable: &Variable) -> Result<Self> {
        let mut stored = match &variable.dtype {
            dtype @ (DType::Int(_) | DType::UInt(_) | DType::Float(_)) => dtype.clone(),
            _ => return Ok(Self::default()),
        };
        let mut decode = Self::default();
        let unsigned = text_attribute(variable, "_Unsigned")?.map(str::to_ascii_lowercase);
        match (&stored, unsigned.as_deref()) {
            (DType::Int(width), Some("true")) => (decode.flip_sign, stored) = (true, DType::UInt(*width)),
            (DType::UInt(width), Some("false")) => (decode.flip_sign, stored) = (true, DType::Int(*width)),
            _ => {}
        }
        decode.scale = parse_scale(variable, &stored)?;
        decode.missing = parse_missing(variable, &stored, decode.flip_sign)?;
        if decode.scale.is_some() {
            check_bounds(variable, &stored)?;
        }
        if let (None, Some(units)) = (&decode.scale, variable.attribute("units").and_then(Attribute::as_text)) {
            let calendar = if units.to_ascii_lowercase().contains(" since ") {
                text_attribute(variable, "calendar")?
            } else {
                None
            };
            let time = TimeUnits::parse(units, calendar.unwrap_or("standard")).transpose();
            decode.time = time.map_err(|e| e.in_column(variable.name.as_str()))?;
        }
        Ok(decode)
    }

    /// Whether values are used as they are stored.
    pub fn is_plain(&self) -> bool {
        !self.flip_sign && self.missing == Missing::default() && self.scale.is_none() && self.time.is_none()
    }

    /// Whether values are times, which are stored in a unit after an instant.
    pub fn is_of_time(&self) -> bool {
        self.time.is_some()
    }

    /// Whether some values may be null.
    pub fn gives_nulls(&self) -> bool {
        self.missing != Missing::default() || self.time.is_some()
    }

    /// Returns the type of the column that stored values become.
    pub fn column_type(&self, stored: &DType, raw: bool) -> DataType {
        match (&self.time, &self.scale) {
            (Some(time), _) if time.has_timestamps() => DataType::Timestamp(TimeUnit::Microsecond, None),
            (Some(_), _) => DataType::Utf8,
            (None, Some(scale)) if scale.single[1] => DataType::Float32,
            (None, Some(_)) => DataType::Float64,
            (None, None) => self.flipped_type(stored).column_type(raw),
        }
    }

    fn flipped_type(&self, stored: &DType) -> DType {
        match stored {
            DType::Int(width) if self.flip_sign => DType::UInt(*width),
            DType::UInt(width) if self.flip_sign => DType::Int(*width),
            other => other.clone(),
        }
    }

    /// Decodes stored numbers, in native order, to a column.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) for a time outside the range of timestamps.
    pub fn decode_column(&self, stored: &DType, bytes: &[u8]) -> Result<ArrayRef> {
        let stored = self.flipped_type(stored);
        match &stored {
            DType::Int(1) => self.of_integers(&stored, bytes, i8::from_ne_bytes, f64::from, f32::from),
            DType::UInt(1) => self.of_integers(&stored, bytes, u8::from_ne_bytes, f64::from, f32::from),
            DType::Int(2) => self.of_integers(&stored, bytes, i16::from_ne_bytes, f64::from, f32::from),
            DType::UInt(2) => self.of_integers(&stored, bytes, u16::from_ne_bytes, f64::from, f32::from),
            #[expect(clippy::cast_precision_loss, reason = "as numpy does")]
            DType::Int(4) => self.of_integers(&stored, bytes, i32::from_ne_bytes, f64::from, |v| v as f32),
            #[expect(clippy::cast_precision_loss, reason = "as numpy does")]
            DType::UInt(4) => self.of_integers(&stored, bytes, u32::from_ne_bytes, f64::from, |v| v as f32),
            #[expect(clippy::cast_precision_loss, reason = "as numpy does")]
            DType::Int(_) => self.of_integers(&stored, bytes, i64::from_ne_bytes, |v| v as f64, |v| v as f32),
            #[expect(clippy::cast_precision_loss, reason = "as numpy does")]
            DType::UInt(_) => self.of_integers(&stored, bytes, u64::from_ne_bytes, |v| v as f64, |v| v as f32),
            DType::Float(2) => {
                self.of_floats(&stored, bytes, Half::from_ne_bytes, f64::from, f32::from, Half::from_f64)
            }
            #[expect(clippy::cast_possible_truncation, reason = "fill values are of the stored type")]
            DType::Float(4) => self.of_floats(&stored, bytes, f32::from_ne_bytes, f64::from, |v| v, |v| v as f32),
            #[expect(clippy::cast_possible_truncation, reason = "never asked for")]
            DType::Float(8) => self.of_floats(&stored, bytes, f64::from_ne_bytes, |v| v, |v| v as f32, |v| v),
            other => Err(Error::internal(format!("values of {} cannot be decoded", other.name()))),
        }
    }

    fn of_integers<const N: usize, T: Copy + PartialOrd + TryFrom<i128> + Into<i128>>(
        &self,
        stored: &DType,
        bytes: &[u8],
        read: impl Fn([u8; N]) -> T,
        double: impl Fn(T) -> f64,
        single: impl Fn(T) -> f32,
    ) -> Result<ArrayRef> {
        let values = bytes.as_chunks::<N>().0;
        let missing: Vec<T> = self.missing.integers.iter().filter_map(|value| T::try_from(*value).ok()).collect();
        let bound = |bound: &Option<StoredNumber>| bound.and_then(|bound| bound.integer);
        // A bound outside the range of the type excludes nothing, or everything.
        let (low, high) = (bound(&self.missing.at_least), bound(&self.missing.at_most));
        let plain = low.is_none() && high.is_none();
        let nulls = if plain && !missing.iter().any(|missing| any_value(values, |value| read(value) == *missing)) {
            None
        } else {
            let valid = BooleanBuffer::collect_bool(values.len(), |i| {
                let value = read(values[i]);
                missing.iter().all(|missing| *missing != value)
                    && (plain
                        || low.is_none_or(|low| value.into() >= low) && high.is_none_or(|high| value.into() <= high))
            });
            Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0)
        };
        match self.time {
            Some(time) => decode_times(values.len(), nulls, &time, |i| Number::Integer(read(values[i]).into())),
            None => match self.scale {
                None => primitive_array(stored.column_type(false), bytes, values.len(), nulls),
                Some(scale) => scale.unpack_values(values.iter().map(|value| read(*value)), nulls, double, single),
            },
        }
    }

    fn of_floats<const N: usize, T: Copy + PartialOrd>(
        &self,
        stored: &DType,
        bytes: &[u8],
        read: impl Fn([u8; N]) -> T,
        double: impl Fn(T) -> f64,
        single: impl Fn(T) -> f32,
        narrow: impl Fn(f64) -> T,
    ) -> Result<ArrayRef> {
        let values = bytes.as_chunks::<N>().0;
        let nan = self.missing.doubles.iter().any(|value| value.is_nan());
        let missing: Vec<T> =
            self.missing.doubles.iter().filter(|value| !value.is_nan()).map(|value| narrow(*value)).collect();
        let (low, high) = (self.missing.at_least.map(|b| b.double), self.missing.at_most.map(|b| b.double));
        let (low, high) = (low.map(&narrow), high.map(&narrow));
        #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
        let valid = BooleanBuffer::collect_bool(values.len(), |i| {
            let value = read(values[i]);
            // NaN is within all bounds.
            let outside = low.is_some_and(|low| value < low) || high.is_some_and(|high| value > high);
            missing.iter().all(|missing| *missing != value) && !outside && !(nan && value != value)
        });
        let nulls = Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0);
        match self.time {
            Some(time) => decode_times(values.len(), nulls, &time, |i| Number::Double(double(read(values[i])))),
            None => match self.scale {
                None => primitive_array(stored.column_type(false), bytes, values.len(), nulls),
                Some(scale) => scale.unpack_values(values.iter().map(|value| read(*value)), nulls, double, single),
            },
        }
    }
}

impl Scale {
    /// Unpacks values.
    #[expect(clippy::cast_possible_truncation, reason = "the factors were float32")]
    fn unpack_values<T>(
        self,
        values: impl Iterator<Item = T>,
        nulls: Option<NullBuffer>,
        double: impl Fn(T) -> f64,
        single: impl Fn(T) -> f32,
    ) -> Result<ArrayRef> {
        // A separate loop for each case, so that the compiler can vectorise it.
        let (factor, offset) = (self.factor.unwrap_or(1.0), self.offset.unwrap_or(0.0));
        let (narrow_factor, narrow_offset) = (factor as f32, offset as f32);
        Ok(match self.single {
            [true, true] => {
                let values: Vec<f32> = match (self.factor, self.offset) {
                    (Some(_), None) => values.map(|value| single(value) * narrow_factor).collect(),
                    (None, _) => values.map(|value| single(value) + narrow_offset).collect(),
                    (Some(_), Some(_)) => values.map(|value| single(value) * narrow_factor + narrow_offset).collect(),
                };
                Arc::new(Float32Array::try_new(values.into(), nulls)?)
            }
            [product, _] => {
                let narrow = |value| f64::from(single(value) * narrow_factor);
                let values: Vec<f64> = match (self.factor, self.offset, product) {
                    (Some(_), None, true) => values.map(narrow).collect(),
                    (Some(_), None, false) => values.map(|value| double(value) * factor).collect(),
                    (None, ..) => values.map(|value| double(value) + offset).collect(),
                    (Some(_), Some(_), true) => values.map(|value| narrow(value) + offset).collect(),
                    (Some(_), Some(_), false) => values.map(|value| double(value) * factor + offset).collect(),
                };
                Arc::new(Float64Array::try_new(values.into(), nulls)?)
            }
        })
    }
}

/// Whether such a value occurs; checks many values at a time.
fn any_value<const N: usize>(values: &[[u8; N]], is: impl Fn([u8; N]) -> bool) -> bool {
    values.chunks(1024).any(|values| values.iter().fold(false, |found, value| found | is(*value)))
}

enum Number {
    Integer(i128),
    Double(f64),
}

fn decode_times(
    count: usize,
    nulls: Option<NullBuffer>,
    units: &TimeUnits,
    number: impl Fn(usize) -> Number,
) -> Result<ArrayRef> {
    let far = |i| {
        let found = match number(i) {
            Number::Integer(number) => number.to_string(),
            Number::Double(number) => number.to_string(),
        };
        Error::input(format!("expected a time within the range of timestamps, found {found} units after the start"))
            .with_hint("keep the numbers as they are with --read raw=yes")
    };
    let is_null = |i| {
        nulls.as_ref().is_some_and(|nulls| nulls.is_null(i)) || matches!(number(i), Number::Double(d) if d.is_nan())
    };
    if !units.has_timestamps() {
        let mut out = StringBuilder::new();
        for i in 0..count {
            let text = || match number(i) {
                Number::Integer(number) => units.text_of_integer(number),
                Number::Double(number) => units.text_of_double(number),
            };
            out.append_option(if is_null(i) { None } else { Some(text().ok_or_else(|| far(i))?) });
        }
        return Ok(Arc::new(out.finish()));
    }
    let mut out = TimestampMicrosecondBuilder::with_capacity(count);
    for i in 0..count {
        let instant = || match number(i) {
            Number::Integer(number) => units.timestamp_of_integer(number),
            Number::Double(number) => units.timestamp_of_double(number),
        };
        out.append_option(if is_null(i) { None } else { Some(instant().ok_or_else(|| far(i))?) });
    }
    Ok(Arc::new(out.finish()))
}

/// Returns netCDF's default fill value for values that were never written.
fn default_fill(stored: &DType) -> Option<StoredNumber> {
    let integer = |integer: i128| Some(StoredNumber { integer: Some(integer), double: 0.0 });
    match stored {
        DType::Int(2) => integer(-32_767),
        DType::UInt(2) => integer(65_535),
        DType::Int(4) => integer(-2_147_483_647),
        DType::UInt(4) => integer(4_294_967_295),
        DType::Int(8) => integer(-9_223_372_036_854_775_806),
        DType::UInt(8) => integer(18_446_744_073_709_551_614),
        DType::Float(_) => Some(StoredNumber { integer: None, double: 9.969_209_968_386_869e36 }),
        _ => None,
    }
}

/// Returns an error about an attribute that cannot be applied.
fn unusable_attribute(variable: &Variable, name: &str, expected: &str) -> Error {
    let found = match variable.attribute(name) {
        Some(Attribute::Text(text)) => format!("the text `{text}`"),
        Some(Attribute::Texts(_)) => "texts".to_owned(),
        Some(Attribute::Numbers(dtype, bytes)) => {
            let count = bytes.len() / dtype.byte_width().unwrap_or(1).max(1);
            format!("{count} of {}", dtype.name())
        }
        Some(Attribute::Other(other)) => other.clone(),
        None => "none".to_owned(),
    };
    Error::input(format!("expected {expected} as attribute `{name}`, found {found}"))
        .in_column(variable.name.as_str())
        .with_hint("keep values as stored with --read raw=yes, choose others with --read var, or correct the attribute")
}

/// Returns an attribute that has to be a text.
fn text_attribute<'a>(variable: &'a Variable, name: &str) -> Result<Option<&'a str>> {
    let Some(attribute) = variable.attribute(name) else { return Ok(None) };
    attribute.as_text().map(Some).ok_or_else(|| unusable_attribute(variable, name, "a text"))
}

/// Returns an attribute that has to be numbers, `count` of them, or at least one if that is 0.
fn numeric_attribute<'a>(variable: &'a Variable, name: &str, count: usize) -> Result<Option<&'a Attribute>> {
    let Some(attribute) = variable.attribute(name) else { return Ok(None) };
    let found = match attribute {
        Attribute::Numbers(DType::Int(width) | DType::UInt(width) | DType::Float(width), bytes) => bytes.len() / width,
        _ => 0,
    };
    if found > 0 && (count == 0 || found == count) {
        return Ok(Some(attribute));
    }
    let expected = match count {
        0 => "numbers".to_owned(),
        1 => "a number".to_owned(),
        count => format!("{count} numbers"),
    };
    Err(unusable_attribute(variable, name, &expected))
}

/// Fails on bounds of packed numbers that are floats: netCDF4-python takes them for packed values, others for unpacked
/// ones. Those that no packed value can equal are ignored by all.
fn check_bounds(variable: &Variable, stored: &DType) -> Result<()> {
    for name in ["valid_min", "valid_max", "valid_range"] {
        let attribute = variable.attribute(name);
        if let (false, Some(Attribute::Numbers(DType::Float(_), _))) = (matches!(stored, DType::Float(_)), attribute)
            && !stored_numbers(attribute, stored, false).is_empty()
        {
            let expected = format!("bounds of the packed type {}", stored.name());
            return Err(unusable_attribute(variable, name, &expected));
        }
    }
    Ok(())
}

/// Converts the numbers of an attribute to the stored type; numbers that the type cannot represent are skipped.
fn stored_numbers(attribute: Option<&Attribute>, stored: &DType, wrap: bool) -> Vec<StoredNumber> {
    let Some(attribute) = attribute else { return Vec::new() };
    let integers = attribute.to_integers();
    let doubles = attribute.to_doubles();
    let bits = match stored {
        DType::Int(width) | DType::UInt(width) => 8 * u32::try_from(*width).unwrap_or(8),
        _ => return doubles.into_iter().map(|double| StoredNumber { integer: None, double }).collect(),
    };
    let limit = 1_i128 << bits;
    let (low, high) = if matches!(stored, DType::UInt(_)) { (0, limit) } else { (-limit / 2, limit / 2) };
    let wrapped = |integer: i128| match integer.rem_euclid(limit) {
        large if large >= high => large - limit,
        other => other,
    };
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers, within bounds that follow")]
    let whole = |double: f64| (double.fract() == 0.0 && double.abs() < 1e30).then_some(double as i128);
    let values: Vec<i128> =
        if integers.is_empty() { doubles.into_iter().filter_map(whole).collect() } else { integers };
    let values = values.into_iter().map(|value| if wrap { wrapped(value) } else { value });
    let fitting = values.filter(|value| (low..high).contains(value));
    fitting.map(|integer| StoredNumber { integer: Some(integer), double: 0.0 }).collect()
}

fn parse_missing(variable: &Variable, stored: &DType, wrap: bool) -> Result<Missing> {
    let all = |name, count| Ok::<_, Error>(stored_numbers(numeric_attribute(variable, name, count)?, stored, wrap));
    let mut values = all("missing_value", 0)?;
    let fill = all("_FillValue", 1)?;
    match default_fill(stored) {
        Some(default) if variable.fills && variable.attribute("_FillValue").is_none() => values.push(default),
        _ => values.extend(fill),
    }
    let range = all("valid_range", 2)?;
    let (mut at_least, mut at_most) = match range.as_slice() {
        [low, high] => (Some(*low), Some(*high)),
        _ => (None, None),
    };
    at_least = all("valid_min", 1)?.first().copied().or(at_least);
    at_most = all("valid_max", 1)?.first().copied().or(at_most);
    Ok(Missing {
        integers: values.iter().filter_map(|bound| bound.integer).collect(),
        doubles: values.iter().filter(|bound| bound.integer.is_none()).map(|bound| bound.double).collect(),
        at_least,
        at_most,
    })
}

fn parse_scale(variable: &Variable, stored: &DType) -> Result<Option<Scale>> {
    let number = |name| {
        let attribute = numeric_attribute(variable, name, 1)?;
        let is_single = matches!(attribute, Some(Attribute::Numbers(DType::Float(2 | 4), _)));
        Ok::<_, Error>(attribute.and_then(|attribute| Some((*attribute.to_doubles().first()?, is_single))))
    };
    let (mut factor, mut offset) = (number("scale_factor")?, number("add_offset")?);
    // A scale or offset that changes nothing does not change the type either, if it is the only one.
    if offset.is_none() {
        factor = factor.filter(|(factor, _)| *factor != 1.0);
    }
    if factor.is_none() {
        offset = offset.filter(|(offset, _)| *offset != 0.0);
    }
    if factor.is_none() && offset.is_none() {
        return Ok(None);
    }
    let small = matches!(stored, DType::Int(1 | 2) | DType::UInt(1 | 2) | DType::Float(2 | 4));
    let product = small && factor.is_none_or(|(_, single)| single);
    let sum = product && offset.is_none_or(|(_, single)| single);
    Ok(Some(Scale { factor: factor.map(|(f, _)| f), offset: offset.map(|(o, _)| o), single: [product, sum] }))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{Array, AsArray, Int16Array, TimestampMicrosecondArray, UInt8Array};
    use arrow::datatypes::Float32Type;

    use super::*;

    fn shorts(values: &[i16]) -> Attribute {
        Attribute::Numbers(DType::Int(2), values.iter().flat_map(|v| v.to_ne_bytes()).collect())
    }

    fn single(value: f32) -> Attribute {
        Attribute::Numbers(DType::Float(4), value.to_ne_bytes().to_vec())
    }

    fn text(value: &str) -> Attribute {
        Attribute::Text(value.to_owned())
    }

    fn variable(dtype: DType, attributes: Vec<(&str, Attribute)>) -> Variable {
        let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Variable { attributes, ..Variable::with_dims("v", dtype, &[]) }
    }

    fn column(variable: &Variable, fills: bool, bytes: &[u8]) -> ArrayRef {
        let variable = &Variable { fills, ..variable.clone() };
        let decode = Decode::from_variable(variable).unwrap();
        let column = decode.decode_column(&variable.dtype, bytes).unwrap();
        assert_eq!(column.data_type(), &decode.column_type(&variable.dtype, false));
        column
    }

    fn bytes(values: &[i16]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_ne_bytes()).collect()
    }

    #[test]
    fn missing_values_are_null() {
        let given = variable(
            DType::Int(2),
            vec![("_FillValue", shorts(&[-1])), ("missing_value", single(7.0)), ("valid_range", shorts(&[-10, 10]))],
        );
        let expected = Int16Array::from(vec![None, None, Some(3), None, Some(-10), Some(10)]);
        assert_eq!(column(&given, true, &bytes(&[-1, 7, 3, 11, -10, 10])).as_ref(), &expected as &dyn Array);
        let none = variable(DType::Int(2), vec![]);
        assert_eq!(column(&none, true, &bytes(&[-32_767, 1])).null_count(), 1);
        assert!(Decode::from_variable(&none).unwrap().is_plain());
    }

    #[test]
    fn packed_values_are_unpacked_as_numpy_does() {
        let given = variable(DType::Int(2), vec![("scale_factor", single(0.1)), ("add_offset", single(20.0))]);
        let found = column(&given, false, &bytes(&[3]));
        assert_eq!(found.as_primitive::<Float32Type>().value(0), 3.0_f32 * 0.1 + 20.0);
        let one = variable(DType::Int(2), vec![("scale_factor", single(1.0))]);
        assert_eq!(column(&one, false, &bytes(&[3])).data_type(), &DataType::Int16);
        let wide = variable(DType::Int(4), vec![("scale_factor", single(0.5))]);
        assert_eq!(column(&wide, false, &3_i32.to_ne_bytes()).data_type(), &DataType::Float64);
    }

    #[test]
    fn unsigned_attributes_and_times_are_decoded() {
        let byte = Attribute::Numbers(DType::Int(1), vec![0xff]);
        let given = variable(DType::Int(1), vec![("_Unsigned", text("true")), ("_FillValue", byte)]);
        let expected = UInt8Array::from(vec![Some(254), None]);
        assert_eq!(column(&given, true, &[254, 255]).as_ref(), &expected as &dyn Array);
        let time = variable(DType::Int(2), vec![("units", text("hours since 1970-01-01"))]);
        let expected = TimestampMicrosecondArray::from(vec![3_600_000_000]);
        assert_eq!(column(&time, true, &bytes(&[1])).as_ref(), &expected as &dyn Array);
        let lunar = variable(DType::Int(2), vec![("units", text("months since 1970-01-01"))]);
        assert_eq!(Decode::from_variable(&lunar).unwrap_err().place().column.as_deref(), Some("v"));
    }

    #[test]
    fn attributes_that_cannot_be_applied_are_refused_by_name() {
        let other = || Attribute::Other("references to objects or regions".to_owned());
        let doubles = |values: &[f64]| {
            Attribute::Numbers(DType::Float(8), values.iter().flat_map(|value| value.to_ne_bytes()).collect())
        };
        for (name, value, expected) in [
            ("scale_factor", text("0.005"), "a number as attribute `scale_factor`, found the text `0.005`"),
            ("scale_factor", doubles(&[0.5, 0.5]), "a number as attribute `scale_factor`, found 2 of float64"),
            ("add_offset", doubles(&[]), "a number as attribute `add_offset`, found 0 of float64"),
            ("missing_value", text("-32767"), "numbers as attribute `missing_value`, found the text `-32767`"),
            ("_FillValue", shorts(&[-1, -2]), "a number as attribute `_FillValue`, found 2 of int16"),
            ("_FillValue", other(), "a number as attribute `_FillValue`, found references"),
            ("valid_range", shorts(&[1]), "2 numbers as attribute `valid_range`, found 1 of int16"),
            ("valid_min", text("1"), "a number as attribute `valid_min`, found the text `1`"),
            ("_Unsigned", shorts(&[1]), "a text as attribute `_Unsigned`, found 1 of int16"),
        ] {
            let error = Decode::from_variable(&variable(DType::Int(2), vec![(name, value)])).unwrap_err();
            assert!(error.message().contains(expected), "{error}");
            assert_eq!(error.place().column.as_deref(), Some("v"));
        }
        // Bounds of the packed type are clear, those of the unpacked type are not.
        let bounded = |range, scale| variable(DType::Int(2), vec![("valid_range", range), ("scale_factor", scale)]);
        assert!(Decode::from_variable(&bounded(doubles(&[0.0, 4.0]), doubles(&[0.5]))).is_err());
        assert!(Decode::from_variable(&bounded(doubles(&[0.0, 4.0]), doubles(&[1.0]))).is_ok());
        assert!(Decode::from_variable(&bounded(doubles(&[0.5, 4.5]), doubles(&[0.5]))).is_ok());
        assert!(Decode::from_variable(&bounded(shorts(&[0, 4]), doubles(&[0.5]))).is_ok());
        // A text is never packed.
        assert!(Decode::from_variable(&variable(DType::AnyText, vec![("_FillValue", text(""))])).is_ok());
        let calendar = vec![("units", text("days since 2000-01-01")), ("calendar", shorts(&[1]))];
        assert!(Decode::from_variable(&variable(DType::Int(2), calendar)).is_err());
    }

    #[test]
    fn half_floats_are_decoded() {
        let half = |value: f32| Half::from_f32(value).to_ne_bytes();
        let values = [half(-9.0), half(1.5)].concat();
        let fill = variable(DType::Float(2), vec![("_FillValue", single(-9.0))]);
        assert_eq!(column(&fill, false, &values).null_count(), 1);
        let scaled = variable(DType::Float(2), vec![("scale_factor", single(2.0))]);
        assert_eq!(column(&scaled, false, &values).as_primitive::<Float32Type>().values(), &[-18.0, 3.0]);
    }

    #[test]
    fn nan_stays_unless_it_is_missing() {
        let double = |value: f64| Attribute::Numbers(DType::Float(8), value.to_ne_bytes().to_vec());
        let values = [1.0_f64.to_ne_bytes(), f64::NAN.to_ne_bytes()].concat();
        let nan = variable(DType::Float(8), vec![("_FillValue", double(f64::NAN))]);
        assert_eq!(column(&nan, true, &values).null_count(), 1);
        let range = variable(DType::Float(8), vec![("valid_min", double(0.0))]);
        assert_eq!(column(&range, true, &values).null_count(), 0);
    }
}
