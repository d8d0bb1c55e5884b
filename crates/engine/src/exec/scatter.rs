//! Numbers and places of records that do not lie in the order of their numbers, noted while their shards are written.

use super::{shard::finished::FinishedShard, sort::pairs::Pairs};
use crate::{
    dataset::{Arrangement, NumbersWriter, Order, PlaceRef, PlacesWriter, Scattered, ShardOrder},
    error::{Error, Result},
    events::Cancel,
    id::Version,
    storage::{Staged, Store},
};

/// Notes where new records are whose numbers count from 0.
pub struct Scatter<'a> {
    store: &'a dyn Store,
    /// Name of the set of shards.
    set: String,
    /// Numbers of the open shard.
    open: Option<OpenNumbers>,
    pairs: Pairs<'a>,
}

/// Numbers of a shard that is being written.
struct OpenNumbers {
    numbers: NumbersWriter,
    first: u64,
    last: u64,
    records: u64,
}

impl<'a> Scatter<'a> {
    /// Starts a set of shards; `fan_in` files are read at a time when places are put in order.
    pub fn new(store: &'a dyn Store, cancel: &'a Cancel, set: String, fan_in: usize) -> Self {
        Self { store, set, open: None, pairs: Pairs::new(store, cancel, fan_in) }
    }

    /// Notes the numbers of records that are appended to a shard, given its number in the set and its path.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn push_numbers(&mut self, records: &[u64], shard: usize, path: &str) -> Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let numbers = NumbersWriter::create(self.store, path)?;
                self.open.insert(OpenNumbers { numbers, first: u64::MAX, last: 0, records: 0 })
            }
        };
        for record in records {
            open.numbers.push(*record, Version(0))?;
            self.pairs.push(*record, shard, open.records)?;
            open.first = open.first.min(*record);
            open.last = open.last.max(*record);
            open.records += 1;
        }
        Ok(())
    }

    /// Ends the open shard, which has this number in the set.
    pub fn end_shard(&mut self, number: usize) -> Numbered {
        Numbered { set: self.set.clone(), shard: number as u64, open: self.open.take() }
    }

    /// Writes the tables of places.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn finish(self) -> Result<Vec<(PlaceRef, Staged)>> {
        self.pairs.finish(PlacesWriter::new(self.store, &self.set)?.of_new_records())
    }
}

/// Numbers of the records of a shard that has ended.
pub struct Numbered {
    set: String,
    shard: u64,
    open: Option<OpenNumbers>,
}

impl Numbered {
    /// Describes the shard, once it is finished.
    ///
    /// # Errors
    /// Fails if the store fails, or the shard has other records.
    pub fn describe_shard(self, finished: &mut FinishedShard) -> Result<()> {
        let Self { set, shard, open } = self;
        let open = open.filter(|open| open.records == finished.shard.meta.records);
        let open = open.ok_or_else(|| Error::internal("a shard has other records than numbers"))?;
        let span = open.last - open.first + 1;
        finished.shard.scattered = Some(Scattered { span, set: set.clone(), shard, base: Some(0) });
        finished.shard.runs = vec![(open.first, open.records, 0)];
        // All shards of a set are listed at the place of its first record.
        finished.shard.meta.first_record = 0;
        let order = Order { by: Arrangement::Shuffle, columns: Vec::new() };
        finished.shard.meta.order = Some(ShardOrder { order, set });
        finished.staged.insert(0, open.numbers.finish()?);
        Ok(())
    }
}
