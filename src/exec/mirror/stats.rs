//! Statistics of files in a Delta log, from the footers of shards.
//!
//! Bounds are those of numbers, dates and times. Texts have none, nor have the columns of record ids and subject ids: an
//! id must not live on in the log after its records were erased.

use arrow::datatypes::{DataType, Fields, TimeUnit};
use jiff::{Timestamp, civil::Date};
use serde_json::{Map, Value, json};

use crate::{
    dataset::{Dataset, Settings, ShardMeta},
    error::Result,
    format::parquet::{self, Bound, ColumnValues},
};

/// What the log needs of a shard's footer.
#[derive(Debug, Clone)]
pub(super) struct Footer {
    /// The columns.
    pub(super) fields: Fields,
    values: Vec<ColumnValues>,
}

impl Footer {
    /// Reads the footer of a shard.
    ///
    /// # Errors
    /// When the shard is missing or no Parquet file.
    pub(super) fn read(dataset: &Dataset, shard: &ShardMeta) -> Result<Self> {
        let place = dataset.store().location().join(&shard.path).to_string();
        let file = parquet::open(dataset.object(&shard.path, shard.bytes), &place)?;
        Ok(Self { fields: file.schema().fields().clone(), values: file.column_values() })
    }

    /// Returns the statistics of a shard, as JSON.
    pub(super) fn stats(&self, records: u64, settings: &Settings) -> String {
        let (mut nulls, mut least, mut greatest) = (Map::new(), Map::new(), Map::new());
        for values in &self.values {
            let name = &values.name;
            if let Some(count) = values.nulls {
                nulls.insert(name.clone(), count.into());
            }
            let is_id = settings.id.iter().chain(&settings.subject).any(|column| column == name);
            let Some(field) = self.fields.find(name).map(|(_, field)| field).filter(|_| !is_id) else { continue };
            let printed = |bound: &Bound, is_greatest| print(field.data_type(), *bound, is_greatest);
            let bounds = values.bounds.as_ref();
            if let Some((low, high)) = bounds.and_then(|(a, b)| Some((printed(a, false)?, printed(b, true)?))) {
                least.insert(name.clone(), low);
                greatest.insert(name.clone(), high);
            }
        }
        json!({"numRecords": records, "minValues": least, "maxValues": greatest, "nullCount": nulls}).to_string()
    }
}

/// Returns the number of records that statistics state.
pub(super) fn records(stats: &str) -> Option<u64> {
    serde_json::from_str::<Value>(stats).ok()?["numRecords"].as_u64()
}

/// Prints a bound; `None` for types without bounds in the log.
fn print(data_type: &DataType, bound: Bound, is_greatest: bool) -> Option<Value> {
    Some(match (data_type, bound) {
        (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, Bound::Whole(number)) => number.into(),
        (DataType::Float32 | DataType::Float64, Bound::Float(number)) => {
            // Infinity is no number in JSON.
            serde_json::Number::from_f64(number).map(Value::Number)?
        }
        (DataType::Date32, Bound::Whole(days)) => date(days)?.into(),
        (DataType::Timestamp(unit, zone), Bound::Whole(ticks)) => {
            time(ticks, *unit, is_greatest, zone.is_some())?.into()
        }
        _ => return None,
    })
}

/// Years that readers print with four digits.
fn is_plain(year: i16) -> bool {
    (1..=9999).contains(&year)
}

fn date(days: i64) -> Option<String> {
    let date = Date::constant(1970, 1, 1).checked_add(jiff::Span::new().try_days(days).ok()?).ok()?;
    is_plain(date.year()).then(|| date.to_string())
}

/// Prints a time in milliseconds, the unit of times in a log: least ones are rounded down, greatest ones up.
fn time(ticks: i64, unit: TimeUnit, is_greatest: bool, has_zone: bool) -> Option<String> {
    let millis = match unit {
        // Parquet has no seconds: they are stored as milliseconds.
        TimeUnit::Second | TimeUnit::Millisecond => ticks,
        TimeUnit::Microsecond => {
            let down = ticks.div_euclid(1000);
            if is_greatest && ticks.rem_euclid(1000) > 0 { down + 1 } else { down }
        }
        TimeUnit::Nanosecond => return None,
    };
    let instant = Timestamp::from_millisecond(millis).ok()?;
    let text = instant.strftime(if has_zone { "%Y-%m-%dT%H:%M:%S.%3fZ" } else { "%Y-%m-%dT%H:%M:%S.%3f" }).to_string();
    let year = instant.to_zoned(jiff::tz::TimeZone::UTC).year();
    is_plain(year).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_never_exclude_a_value() {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let local = DataType::Timestamp(TimeUnit::Millisecond, None);
        for (data_type, bound, is_greatest, expected) in [
            (&DataType::Int8, Bound::Whole(-3), false, json!(-3)),
            (&DataType::Float64, Bound::Float(-2.5), false, json!(-2.5)),
            (&DataType::Date32, Bound::Whole(-1), true, json!("1969-12-31")),
            (&utc, Bound::Whole(-1), false, json!("1969-12-31T23:59:59.999Z")),
            (&utc, Bound::Whole(1), true, json!("1970-01-01T00:00:00.001Z")),
            (&utc, Bound::Whole(2000), true, json!("1970-01-01T00:00:00.002Z")),
            (&local, Bound::Whole(1_700_000_000_123), true, json!("2023-11-14T22:13:20.123")),
        ] {
            assert_eq!(print(data_type, bound, is_greatest), Some(expected));
        }
        for (data_type, bound) in [
            (DataType::Utf8, Bound::Whole(1)),
            (DataType::Float64, Bound::Float(f64::INFINITY)),
            (DataType::Decimal128(9, 2), Bound::Whole(1)),
            (DataType::Date32, Bound::Whole(i64::from(i32::MAX))),
            (utc, Bound::Whole(i64::MIN)),
        ] {
            assert_eq!(print(&data_type, bound, false), None);
        }
    }
}
