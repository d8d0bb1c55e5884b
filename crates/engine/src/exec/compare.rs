//! `compact --verify full`: compares a finished merge with its inputs, record by record.
//!
//! ```text
//! parquet         rows of input 0 | rows of input 1 | ...    decoded, cast to the output's schema
//!                 rows of the output                         decoded: every value of every column
//! tar, tfrecord   body of input 0 | body of input 1 | ...    as stored
//!                 body of the output                         every byte
//! ```
//!
//! It shares no code with the writers of shards, so their errors do not affect it.

use std::{io::Read, sync::Arc};

use arrow::{
    array::{Array, RecordBatch},
    datatypes::SchemaRef,
};

use super::{
    compact::{Merge, Merger},
    shard::FinishedShard,
};
use crate::{
    dataset::ShardMeta,
    error::{Error, Result},
    format::parquet::{self, cast_to},
    record::BATCH_ROWS,
};

/// Bytes compared at a time.
const CHUNK_BYTES: u64 = 256 << 10;

impl Merger<'_> {
    /// Compares a finished shard, which is not published yet, with its inputs.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if they differ, [`Kind::Usage`](crate::error::Kind::Usage) if
    /// the store cannot read an object before it is published.
    pub(super) fn compare_with_inputs(&self, merge: &Merge, made: &FinishedShard) -> Result<()> {
        let path = self.readable_path(made)?;
        if self.naming.format.is_columnar() {
            self.compare_rows(merge, &[(path, &made.shard.meta)])
        } else {
            self.compare_bytes(merge, &path, &made.shard.meta)
        }
    }

    /// Returns where a shard that is not published yet can be read.
    pub(super) fn readable_path(&self, made: &FinishedShard) -> Result<String> {
        let path = made.staged.last().and_then(|staged| staged.readable_at(self.rewriter.store()));
        path.ok_or_else(|| {
            Error::usage("expected a store that can be read before the commit, for --verify full")
                .at_location(self.rewriter.store().location().to_string())
                .with_hint("omit --verify, and run `shardify verify --read-data` after the compaction")
        })
    }

    /// Compares the rows of the inputs with those of the shards that were made of them, in order.
    pub(super) fn compare_rows(&self, merge: &Merge, written: &[(String, &ShardMeta)]) -> Result<()> {
        let open = |(path, made): &(String, &ShardMeta)| {
            parquet::open(self.rewriter.dataset.object_at(path, made.bytes), &self.rewriter.location_of(made))
        };
        let Some((first, made)) = written.first().map(|first| (open(first), first.1)) else { return Ok(()) };
        let schema = Arc::clone(first?.schema());
        let mut batches = written.iter().flat_map(|one| match open(one) {
            Ok(file) => Box::new(file.into_batches(BATCH_ROWS)) as Box<dyn Iterator<Item = Result<RecordBatch>>>,
            Err(error) => Box::new(std::iter::once(Err(error))),
        });
        let (mut left, mut ordinal) = (RecordBatch::new_empty(Arc::clone(&schema)), 0);
        for (input, _) in &merge.inputs {
            for batch in self.rewriter.open_shard(input)?.into_batches(BATCH_ROWS) {
                self.rewriter.cancel.check()?;
                let batch = cast_to(&batch?, &schema)?;
                let mut row = 0;
                while row < batch.num_rows() {
                    if left.num_rows() == 0 {
                        left = match batches.next() {
                            Some(next) => next?,
                            None => return Err(self.difference_error(made, "fewer records", ordinal)),
                        };
                        continue;
                    }
                    let rows = (batch.num_rows() - row).min(left.num_rows());
                    if let Some((at, column)) = first_difference(&schema, &batch.slice(row, rows), &left.slice(0, rows))
                    {
                        return Err(self
                            .difference_error(made, "another value", ordinal + at as u64)
                            .in_column(column));
                    }
                    left = left.slice(rows, left.num_rows() - rows);
                    row += rows;
                    ordinal += rows as u64;
                }
            }
        }
        if left.num_rows() > 0 || batches.next().transpose()?.is_some_and(|more| more.num_rows() > 0) {
            return Err(self.difference_error(made, "more records", ordinal));
        }
        Ok(())
    }

    fn compare_bytes(&self, merge: &Merge, path: &str, made: &ShardMeta) -> Result<()> {
        let body = |path: &str, shard: &ShardMeta| -> Result<Box<dyn Read + Send>> {
            let mut source = self.rewriter.store().read(path)?;
            std::io::copy(&mut source.by_ref().take(shard.body_offset), &mut std::io::sink())?;
            Ok(Box::new(source.take(shard.body_bytes)))
        };
        let (mut out, mut compared) = (body(path, made)?, 0);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for (input, _) in &merge.inputs {
            let mut source = body(&input.path, input)?;
            loop {
                self.rewriter.cancel.check()?;
                one.clear();
                other.clear();
                let taken = source.by_ref().take(CHUNK_BYTES).read_to_end(&mut one)?;
                if taken == 0 {
                    break;
                }
                out.by_ref().take(taken as u64).read_to_end(&mut other)?;
                if one != other {
                    let at = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
                    return Err(Error::inconsistent_output("expected the bytes of the input's records, found others")
                        .at_location(self.rewriter.location_of(made))
                        .at_byte(made.body_offset + compared + at as u64));
                }
                compared += taken as u64;
            }
        }
        if compared != made.body_bytes {
            let message = format!("expected {compared} bytes of records, found {}", made.body_bytes);
            return Err(Error::inconsistent_output(message).at_location(self.rewriter.location_of(made)));
        }
        Ok(())
    }

    pub(super) fn difference_error(&self, made: &ShardMeta, found: &str, ordinal: u64) -> Error {
        Error::inconsistent_output(format!("record {ordinal}: expected the values of the inputs, found {found}"))
            .at_location(self.rewriter.location_of(made))
    }
}

/// Returns the first row that differs and its column. Numbers are equal if their bits are.
fn first_difference(schema: &SchemaRef, one: &RecordBatch, other: &RecordBatch) -> Option<(usize, String)> {
    let columns = one.columns().iter().zip(other.columns()).enumerate();
    let mut differing = columns.filter(|(_, (one, other))| one != other);
    let (number, (one, other)) = differing.next()?;
    let row = (0..one.len()).position(|row| one.slice(row, 1) != other.slice(row, 1));
    Some((row.unwrap_or(0), schema.field(number).name().clone()))
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{ArrayRef, Float64Array, StringArray},
        datatypes::{DataType, Field, Schema},
    };

    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("x", DataType::Float64, true),
            Field::new("note", DataType::Utf8, true),
        ]));
        let batch = |x: Vec<Option<f64>>, note: Vec<Option<&str>>| {
            let columns: Vec<ArrayRef> = vec![Arc::new(Float64Array::from(x)), Arc::new(StringArray::from(note))];
            RecordBatch::try_new(Arc::clone(&schema), columns)
                .unwrap_or_else(|_| RecordBatch::new_empty(Arc::clone(&schema)))
        };
        let one = batch(vec![Some(f64::NAN), Some(0.0), None], vec![Some("a"), None, Some("")]);
        assert_eq!(first_difference(&schema, &one, &one), None);
        for (other, row, column) in [
            (batch(vec![Some(f64::NAN), Some(-0.0), None], vec![Some("a"), None, Some("")]), 1, "x"),
            (batch(vec![Some(f64::NAN), Some(0.0), Some(0.0)], vec![Some("a"), None, Some("")]), 2, "x"),
            (batch(vec![Some(f64::NAN), Some(0.0), None], vec![Some("a"), Some(""), Some("")]), 1, "note"),
        ] {
            assert_eq!(first_difference(&schema, &one, &other), Some((row, column.to_owned())));
        }
    }
}
