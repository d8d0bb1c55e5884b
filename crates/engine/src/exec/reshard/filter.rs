//! Which rows of Parquet shards satisfy a condition. Only the columns that it names are decoded.

use arrow::{buffer::BooleanBuffer, datatypes::SchemaRef};

use crate::{
    dataset::ShardMeta,
    error::{Error, Result},
    exec::rewrite::Rewriter,
    format::parquet::cast_to,
    record::{
        BATCH_ROWS,
        filter::{BoundFilter, Filter},
    },
    schema::schema_of,
};

/// A condition that is bound to the columns of some shards.
#[derive(Debug)]
pub struct Condition {
    filter: BoundFilter,
    /// The columns that it names.
    schema: SchemaRef,
}

impl Condition {
    /// Binds a condition to the united columns of the shards.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if it does not suit them; when a shard cannot be read.
    pub fn bind_to_shards<'s>(
        rewriter: &Rewriter<'_>,
        filter: &Filter,
        shards: impl Iterator<Item = &'s ShardMeta>,
    ) -> Result<Self> {
        let all = rewriter.united_schema(shards)?;
        let bound = filter.bind(all.fields())?;
        let tested = filter.columns();
        let is_tested = |name: &str| {
            tested
                .iter()
                .any(|path| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
        };
        let fields = all.fields().iter().filter(|field| is_tested(field.name())).cloned().collect();
        Ok(Self { filter: bound, schema: schema_of(&fields) })
    }

    /// Returns for each row of a shard whether it satisfies the condition.
    ///
    /// # Errors
    /// When the shard is damaged or cannot be read.
    pub fn matching_rows(&self, rewriter: &Rewriter<'_>, shard: &ShardMeta) -> Result<BooleanBuffer> {
        let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let mut matching = arrow::array::BooleanBufferBuilder::new(usize::try_from(shard.records).unwrap_or(0));
        for batch in rewriter.open_shard(shard)?.with_columns(&names).into_batches(BATCH_ROWS) {
            rewriter.cancel.check()?;
            matching.append_buffer(self.filter.matching_rows(&cast_to(&batch?, &self.schema)?)?.values());
        }
        if matching.len() as u64 == shard.records {
            return Ok(matching.finish());
        }
        Err(Error::integrity(format!("expected {} records, found {}", shard.records, matching.len()))
            .at_location(rewriter.location_of(shard)))
    }
}
