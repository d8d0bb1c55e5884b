//! Omits duplicates among the chosen records: the first one in the order of the version stays.
//!
//! ```text
//! workers      fingerprint each chosen record of a shard: of its values, or of its id in the sidecar
//! one thread   shard by shard, in order: seen before?  -> omitted
//! ```
//!
//! Fingerprints are those of `convert --dedup`, but never keyed: they are compared here and stored nowhere.

use std::thread;

use arrow::{array::BooleanBufferBuilder, buffer::BooleanBuffer};

use crate::{
    dataset::{RecordIdentity, Snapshot, each_known, token_of},
    error::{Error, Kind, Result},
    exec::{
        ordered::run_ordered,
        reshard::Stock,
        seen::{Seen, SeenMemory},
    },
    ops::{Context, live},
    record::{
        dedup::DedupBy,
        fingerprint::{Fingerprint, Fingerprinter},
    },
};

/// Returns the stocks without the records whose like was kept before.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if no record has an id and duplicates are those of one id, or a column
/// does not exist; [`Kind::Integrity`](crate::error::Kind::Integrity) naming a shard that is damaged.
pub(super) fn omit_duplicates(
    context: &Context<'_>,
    snapshot: &Snapshot,
    by: &DedupBy,
    stocks: Vec<Stock>,
) -> Result<Vec<Stock>> {
    let settings = &snapshot.entry().settings;
    let mut seen = Seen::new(SeenMemory::from_limit(context.memory_plan(settings).bytes));
    let (mut out, mut known) = (Vec::with_capacity(stocks.len()), 0_u64);
    thread::scope(|scope| {
        let taken = run_ordered(scope, stocks.into_iter().map(Ok), context.jobs, context.jobs, &context.cancel, {
            move |stock: Stock| Ok((fingerprints_of(context, snapshot, by, &stock)?, stock))
        });
        for one in taken {
            let (fingerprints, stock) = one?;
            known += fingerprints.iter().flatten().count() as u64;
            out.push(without_duplicates(stock, &fingerprints, &mut seen)?);
        }
        Ok::<_, Error>(())
    })?;
    if *by == DedupBy::Id && known == 0 {
        return Err(Error::usage("expected record ids for --dedup id, found none: origins differ for all records")
            .at_location(snapshot.dataset().store().location().to_string())
            .with_hint("use --dedup content, or --dedup with the columns that make up an id"));
    }
    Ok(out)
}

/// Returns a stock without the kept records that were seen.
fn without_duplicates(stock: Stock, fingerprints: &[Option<Fingerprint>], seen: &mut Seen) -> Result<Stock> {
    let rows = usize::try_from(stock.shard.records).unwrap_or(usize::MAX);
    let mut kept = BooleanBufferBuilder::new(rows);
    let mut fingerprints = fingerprints.iter();
    for row in 0..rows {
        let is_first = if is_kept(stock.kept.as_ref(), row) {
            match fingerprints.next() {
                Some(Some(fingerprint)) => seen.find_or_insert(fingerprint, 0)?.is_none(),
                Some(None) => true,
                None => return Err(Error::internal("a chosen record has no fingerprint")),
            }
        } else {
            false
        };
        kept.append(is_first);
    }
    Ok(Stock::new(stock.shard, stock.runs, Some(kept.finish())))
}

fn is_kept(kept: Option<&BooleanBuffer>, row: usize) -> bool {
    kept.is_none_or(|kept| row < kept.len() && kept.value(row))
}

/// Returns the fingerprints of the chosen records of a shard, in their order; `None` for records without an id.
fn fingerprints_of(
    context: &Context<'_>,
    snapshot: &Snapshot,
    by: &DedupBy,
    stock: &Stock,
) -> Result<Vec<Option<Fingerprint>>> {
    if stock.share.records == 0 {
        return Ok(Vec::new());
    }
    let fingerprinter = Fingerprinter::default();
    let mut out = Vec::new();
    if !by.needs_fingerprints() {
        let is_private = snapshot.entry().settings.private.is_some();
        let mut row = 0..;
        each_known(snapshot.dataset().store(), &stock.shard.sidecar(), true, &mut |known| {
            if let RecordIdentity::Id(id) = known
                && row.next().is_some_and(|row| is_kept(stock.kept.as_ref(), row))
            {
                out.push(id.map(|id| fingerprinter.of_id(if is_private { token_of(id) } else { id })));
            }
            Ok(())
        })?;
        return Ok(out);
    }
    // Live records alone are passed, in the order of their rows.
    let mut rows = stock.runs.iter().flat_map(|run| run.ordinal..run.ordinal + run.records);
    live::each_batch(context, snapshot, &stock.shard, &mut |payload| {
        context.cancel.check()?;
        let taken = fingerprinter.of_payload(&payload, by.columns(), usize::MAX).map_err(|e| match e.kind() {
            Kind::Input => {
                Error::usage(format!("expected columns of the dataset for --dedup, found {by}")).with_cause(e)
            }
            _ => e,
        })?;
        for (fingerprint, row) in taken.into_iter().zip(&mut rows) {
            if usize::try_from(row).is_ok_and(|row| is_kept(stock.kept.as_ref(), row)) {
                out.push(Some(fingerprint));
            }
        }
        Ok(true)
    })?;
    Ok(out)
}
