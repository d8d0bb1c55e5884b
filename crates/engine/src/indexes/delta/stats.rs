//! Statistics of files in a Delta log, from the footers of shards.
//!
//! Bounds are those of numbers, dates and times. Texts have none, nor have the columns of record ids and subject ids:
//! an id must not live on in the log after its records were erased.

use arrow::datatypes::Fields;
use serde_json::{Map, Value, json};

use crate::{
    dataset::{Dataset, Settings, ShardMeta},
    delta::stats::print_bound,
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
        let file = parquet::open(dataset.object_at(&shard.path, shard.bytes), &place)?;
        Ok(Self { fields: file.schema().fields().clone(), values: file.column_values() })
    }

    /// Returns the statistics of a shard, as JSON.
    pub(super) fn stats_json(&self, records: u64, settings: &Settings) -> String {
        let (mut nulls, mut least, mut greatest) = (Map::new(), Map::new(), Map::new());
        for values in &self.values {
            let name = &values.name;
            if let Some(count) = values.nulls {
                nulls.insert(name.clone(), count.into());
            }
            let is_id = settings.id.iter().chain(&settings.subject).any(|column| column == name);
            let Some(field) = self.fields.find(name).map(|(_, field)| field).filter(|_| !is_id) else { continue };
            let printed = |bound: Bound, is_greatest| print_bound(field.data_type(), bound, is_greatest);
            let bounds = values.bounds.and_then(|of| Some((printed(of.least, false)?, printed(of.greatest, true)?)));
            if let Some((low, high)) = bounds {
                least.insert(name.clone(), low);
                greatest.insert(name.clone(), high);
            }
        }
        json!({"numRecords": records, "minValues": least, "maxValues": greatest, "nullCount": nulls}).to_string()
    }
}

/// Returns the number of records that statistics state.
pub(super) fn stated_records(stats: &str) -> Option<u64> {
    serde_json::from_str::<Value>(stats).ok()?["numRecords"].as_u64()
}
