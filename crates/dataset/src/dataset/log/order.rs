//! Order of the records of a shard that a compaction sorted, or a conversion shuffled.
//!
//! It is stored in the list of shards, so that the next compaction knows what is already sorted without opening a
//! shard.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The order of records.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Order {
    /// How the columns are combined.
    pub by: Arrangement,
    /// The columns.
    pub columns: Vec<String>,
}

/// How several columns form one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrangement {
    /// Lexicographic: the first column is the most significant.
    Sort,
    /// Z-order: all columns are equally significant; their bits are interleaved.
    ZOrder,
    /// Shuffled by the seed of the dataset; there are no columns.
    Shuffle,
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let by = match self.by {
            Arrangement::Sort => "sorted by",
            Arrangement::ZOrder => "in Z-order of",
            Arrangement::Shuffle => return f.write_str("shuffled"),
        };
        write!(f, "{by} {}", self.columns.join(", "))
    }
}

/// The order of a shard, and the set of shards it was sorted with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardOrder {
    /// Order of its records.
    #[serde(flatten)]
    pub order: Order,
    /// Name of the set of shards that were sorted together: no two of them overlap, and their names are in order.
    pub set: String,
}

impl ShardOrder {
    pub(in crate::dataset) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::internal("encoding an order failed").with_cause(e))
    }

    pub(in crate::dataset) fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|e| Error::integrity("expected the order of a shard").with_cause(e))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn orders_are_json() {
        let order = Order { by: Arrangement::ZOrder, columns: vec!["a,b".into(), "c".into()] };
        let text = ShardOrder { order, set: "0123456789ab".into() };
        assert_eq!(text.to_json().unwrap(), r#"{"by":"zorder","columns":["a,b","c"],"set":"0123456789ab"}"#);
        assert_eq!(ShardOrder::from_json(&text.to_json().unwrap()).unwrap(), text);
        assert!(ShardOrder::from_json("{}").is_err());
    }
}
