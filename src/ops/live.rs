//! The live records of a shard, as a loader gets them: rows with the types of the shard, or samples.
//!
//! Of the records that a shard holds, only those in a run of the version are live. The readers are those of `convert`.

use arrow::array::BooleanArray;

use crate::{
    dataset::{ShardMeta, Snapshot, check_folders},
    error::{Error, Result},
    record::{Payload, coded},
    scan::{Input, SniffOptions, classify_inputs},
};

use super::{Context, columns::shard_tables, head};

/// Bytes of a shard that are decoded at a time.
const SPLIT_BYTES: usize = 4 << 20;

/// Passes the live records of a shard to `visit`, in their order, as long as it returns true.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if the shard is damaged or lacks records; when the store or
/// `visit` fails.
pub fn each_batch(
    context: &Context<'_>,
    snapshot: &Snapshot,
    shard: &ShardMeta,
    visit: &mut dyn FnMut(Payload) -> Result<bool>,
) -> Result<()> {
    let dataset = snapshot.dataset();
    check_folders(dataset.store().as_ref(), std::iter::once(shard))?;
    let table = shard_tables(snapshot, std::slice::from_ref(shard))?.pop();
    let table = table.ok_or_else(|| Error::internal("a shard has no table"))?;
    let damaged = |why: String| {
        Error::integrity(why).at_location(table.place.clone()).with_hint("run `shardify verify --read-data`")
    };
    let files = vec![head::shard_file(dataset, &shard.path)?];
    let options = SniffOptions { samples: Some(0), sources: 1, ..SniffOptions::default() };
    let Input::Records(sources) = classify_inputs(files, &options)? else {
        return Err(damaged(format!(
            "expected a shard of {}, found another file",
            snapshot.entry().settings.shard_format
        )));
    };
    let (mut before, mut wants_more) = (0, true);
    for source in &sources {
        head::each_block(context, source, SPLIT_BYTES, &mut |mut block| {
            if let Some(reject) = block.rejects.first() {
                let row = before + u64::from(reject.row) + 1;
                return Err(damaged(format!("expected a readable record {row}, found one of which {}", reject.reason)));
            }
            let number = |index: usize| block.rows.get(index).map_or(index as u64, |row| u64::from(*row));
            let live: Vec<bool> = (0..block.payload.len()).map(|index| table.is_live(before + number(index))).collect();
            before += block.records_in();
            block.retain(&BooleanArray::from(live))?;
            if let Payload::Rows(rows) = &mut block.payload {
                *rows = coded::plain_batch(rows)?;
            }
            wants_more = block.payload.is_empty() || visit(block.payload)?;
            Ok(wants_more)
        })?;
    }
    let expected = table.live.iter().flatten().last().map_or(0, |last| last.end);
    if wants_more && before < expected {
        return Err(damaged(format!("expected at least {expected} records, found {before}")));
    }
    Ok(())
}
