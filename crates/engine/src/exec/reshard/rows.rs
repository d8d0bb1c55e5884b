//! Takes rows of Parquet shards: row groups of which consecutive rows go to one new shard are spliced page by page, as
//! in a compaction; of others, the rows are decoded and encoded.

use std::{ops::Range, sync::Arc};

use super::{NewCut, Resharder, RowPicker};
use crate::{
    dataset::{Arrangement, SidecarPart},
    error::Result,
    exec::{
        shard::{FinishedShard, ParquetShardWriter},
        splice::{Splicing, load_shard, prove_written},
    },
    format::{
        parquet::{GroupPart, ParquetEncoder, Source, Survey, Tally, cast_to, media_metadata},
        ranged::RangedInput,
    },
};

impl Resharder<'_> {
    pub(super) fn write_rows(&self, new: &NewCut<'_>) -> Result<(FinishedShard, Tally)> {
        match self.splice_rows(new, false)? {
            Some(done) => Ok(done),
            // Some column is stored in a way that only the decoder supports.
            None => self.splice_rows(new, true)?.ok_or_else(|| {
                crate::error::Error::internal("rows of a Parquet shard can neither be spliced nor encoded")
            }),
        }
    }

    /// Writes the shard; `None` if some row group cannot be spliced into the schema of the others. With `decode`, all
    /// columns can be encoded.
    fn splice_rows(&self, new: &NewCut<'_>, decode: bool) -> Result<Option<(FinishedShard, Tally)>> {
        let parquet = self.survey_footers(new, decode)?;
        let store = self.child.store().as_ref();
        let shard = ParquetShardWriter::create(store, &parquet, &new.naming, new.number)?;
        let mut splicing = Splicing::new(&parquet, shard, self.rewriter.row_group, self.rewriter.cancel);
        for part in &new.parts {
            let rows = part.stock.row_ranges(&part.kept);
            let source = load_shard(&self.rewriter, &part.stock.shard, || self.verify_once(part.stock))?;
            splicing.hold_source(&source);
            let mut first = 0;
            for group in 0..source.row_groups().len() {
                let range = first..first + source.row_groups()[group].rows;
                first = range.end;
                if !take_rows(&mut splicing, &parquet, &source, group, &range, &rows)? {
                    return Ok(None);
                }
            }
            if part.stock.kept.is_none() && part.kept.end - part.kept.start == part.stock.shard.records {
                let sidecar = part.stock.shard.sidecar();
                let sidecar = SidecarPart::open(self.rewriter.dataset.store(), &sidecar, part.stock.shard.records)?;
                splicing.shard.append_sidecar_part(&sidecar)?;
            } else {
                let sidecar = self.sidecar_rows(part.stock, &rows)?;
                sidecar.iter().try_for_each(|batch| splicing.shard.append_sidecar(batch))?;
            }
            if !splicing.release_if_large()? {
                return Ok(None);
            }
        }
        splicing.end_rows()?;
        if !splicing.end_group()? {
            return Ok(None);
        }
        let Splicing { shard, proving, tally, .. } = splicing;
        let finished = shard.finish(&self.new_runs(new)?)?;
        prove_written(self.child, &finished, proving)?;
        Ok(Some((finished, tally)))
    }

    /// Reads the footers of all shards that rows come from.
    fn survey_footers(&self, new: &NewCut<'_>, decode: bool) -> Result<ParquetEncoder> {
        let (mut survey, mut decode) = (Survey::default(), decode);
        for part in &new.parts {
            self.rewriter.cancel.check()?;
            let shard = &part.stock.shard;
            let object = self.rewriter.dataset.object_at(&shard.path, shard.bytes);
            let source = Source::open(RangedInput::Object(object), &self.rewriter.location_of(shard))?;
            survey.add_source(&source)?;
            let rows = part.stock.row_ranges(&part.kept);
            let mut first = 0;
            for group in source.row_groups() {
                let range = first..first + group.rows;
                first = range.end;
                decode |= ranges_within(&rows, &range).nth(1).is_some();
            }
        }
        if !decode {
            return survey.into_encoder(new.naming.codec, |schema| media_metadata(schema).into_iter().collect());
        }
        let survey = survey.with_decoded_rows();
        let parquet = survey.into_encoder(new.naming.codec, |schema| media_metadata(schema).into_iter().collect())?;
        let order = new.parts.first().and_then(|part| part.stock.shard.order.as_ref());
        let Some(order) = order.filter(|order| order.order.by == Arrangement::Sort) else { return Ok(parquet) };
        let columns = order.order.columns.iter().filter_map(|name| parquet.schema().index_of(name).ok());
        let columns: Vec<usize> = columns.collect();
        Ok(parquet.sorted_by(&columns))
    }
}

/// Takes the wanted rows of a row group; returns false if they cannot be spliced.
fn take_rows(
    splicing: &mut Splicing<'_>,
    parquet: &ParquetEncoder,
    source: &Arc<Source>,
    group: usize,
    range: &Range<u64>,
    rows: &[Range<u64>],
) -> Result<bool> {
    let wanted: Vec<Range<u64>> = ranges_within(rows, range).collect();
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(true) };
    let part = GroupPart::whole(source, group);
    if wanted.len() == 1 && first == range {
        return splicing.add_whole(part);
    }
    let span = first.start..last.end;
    let part = part.slice(span.start - range.start..span.end - range.start);
    if wanted.len() == 1 {
        return splicing.add_part(part);
    }
    let kept: u64 = wanted.iter().map(|rows| rows.end - rows.start).sum();
    let share = u128::from(part.encoded_bytes()) * u128::from(kept) / u128::from(part.row_count().max(1));
    splicing.tally.reencoded += u64::try_from(share).unwrap_or(0);
    let mut picker = RowPicker::new(&wanted, span.start);
    for batch in part.decode_rows()? {
        let batch = picker.pick_rows(&batch)?;
        if batch.num_rows() > 0 && !splicing.add_rows(cast_to(&batch, parquet.schema())?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the parts of ascending ranges that are in another range.
fn ranges_within<'a>(rows: &'a [Range<u64>], range: &'a Range<u64>) -> impl Iterator<Item = Range<u64>> + 'a {
    let start = rows.partition_point(|rows| rows.end <= range.start);
    let here = rows[start..].iter().take_while(|rows| rows.start < range.end);
    here.map(|rows| rows.start.max(range.start)..rows.end.min(range.end))
}
