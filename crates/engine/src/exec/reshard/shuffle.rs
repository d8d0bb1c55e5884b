//! Writes the records of some shards of the parent in the order of their ranks, as `convert --shuffle` does.
//!
//! ```text
//! shard | rows or frames, sidecar rows, new numbers -(sorted runs)-> units -(encode)-> shards, numbers, places
//! ```
//!
//! Rows are decoded and encoded; frames are copied as they are, and compressed again.

use std::{io::Read, sync::Arc};

use arrow::{
    array::{AsArray, BooleanArray, LargeBinaryBuilder, RecordBatch, StringArray},
    compute::{concat_batches, filter_record_batch},
    datatypes::{Schema, SchemaRef},
};
use rayon::prelude::*;

use super::{CutShard, Resharder, Stock, is_framed, unnumbered_error};
use crate::{
    codec::stream,
    dataset::{Numbered, RecordExtents, Run, numbered_rows, sidecar_batches, token_of},
    error::{Error, Result},
    exec::{
        cut::{Closing, Encoding, Feedback, ShardSize},
        encode::{Encoder, Layout, Output},
        scatter::Scatter,
        shard::{Appended, Appender, ShardNaming},
        shuffle::{ShuffleSetup, Shuffler},
        sort::runs::batch_rows,
    },
    format::parquet::{Tally, cast_to},
    id::Writer,
    plan::{
        memory::MemoryPlan,
        roll::{InputSize, Spread},
    },
    record::BATCH_ROWS,
};

/// Stored bytes of records that are read together.
const READ_TOGETHER: u64 = 1 << 20;

/// Shards whose records are mixed.
pub struct Mixed<'a> {
    /// The shards.
    pub members: Vec<&'a Stock>,
    /// Folder, format, codec and indexes of the new shards.
    pub naming: ShardNaming,
    /// Where the new shards end.
    pub size: ShardSize,
    /// The smallest new record number.
    pub first: u64,
}

/// How records are shuffled.
pub struct Order<'a> {
    /// Seed of the order.
    pub seed: u64,
    /// Memory limits.
    pub memory: MemoryPlan,
    /// Number of threads.
    pub jobs: usize,
    /// Names the objects of the run.
    pub writer: &'a Writer,
}

impl Resharder<'_> {
    /// Writes new shards of records in the order of their ranks.
    ///
    /// # Errors
    /// When a shard of the parent is damaged, or a store or the disk fails.
    pub fn shuffle_records(&self, mixed: &Mixed<'_>, order: &Order<'_>) -> Result<Vec<CutShard>> {
        mixed.members.par_iter().try_for_each(|stock| self.verify_once(stock))?;
        let schema = match mixed.members.iter().all(|stock| is_framed(stock)) {
            true => Arc::new(Schema::empty()),
            false => self.rewriter.united_schema(mixed.members.iter().map(|stock| &stock.shard))?,
        };
        let naming = &mixed.naming;
        let encoder = Encoder::new(naming.format, naming.codec, &schema, Vec::new(), None)?
            .noting_members_for(&naming.indexes, naming.format);
        let setup = ShuffleSetup {
            store: self.child.store(),
            splits: 1,
            memory: order.memory.for_shuffle(),
            jobs: order.jobs,
            observer: self.rewriter.observer,
            cancel: self.rewriter.cancel,
        };
        let shuffler = Shuffler::new(setup, encoder.prepared_layout(naming.fingerprints));
        let bytes = mixed.members.iter().map(|stock| stock.share.bytes).sum();
        let input = InputSize { bytes, error: 0 };
        let feedback: Arc<[Feedback]> = Arc::new([Feedback::default()]);
        let appended = std::thread::scope(|scope| {
            let _closing = Closing(&feedback);
            let has_keys = matches!(encoder.output(), Output::Stream(framing) if framing.has_keys());
            let source =
                Source { resharder: self, layout: shuffler.layout(), seed: order.seed, first: mixed.first, has_keys };
            let batches = mixed.members.iter().flat_map(move |stock| source.read_batches(stock));
            let spilled = shuffler.spill_batches(scope, batches)?;
            let counts = spilled.split_records().to_vec();
            let shuffled = shuffler.merge_runs(scope, spilled, input)?;
            let encoding = Encoding {
                encoder: &encoder,
                memory: setup.memory,
                jobs: order.jobs,
                size: mixed.size,
                input,
                counts,
                is_framed: true,
                cancel: self.rewriter.cancel,
            };
            let encoded = encoding.encode_units(scope, shuffled, &feedback);
            let mut appender = self.create_appender(mixed, order, &encoder, input, shuffler.fan_in());
            for unit in encoded {
                appender.append_unit(unit?)?;
            }
            appender.finish()
        })?;
        self.finish_shards(mixed, appended)
    }

    fn create_appender<'s>(
        &'s self,
        mixed: &Mixed<'_>,
        order: &Order<'_>,
        encoder: &'s Encoder,
        input: InputSize,
        fan_in: usize,
    ) -> Appender<'s> {
        let (store, naming) = (self.child.store(), mixed.naming.clone());
        let set = format!("{}-0", naming.tag.replace('/', "-"));
        let scatter = Scatter::new(store.as_ref(), self.rewriter.cancel, set, fan_in);
        let spread = Spread::new(mixed.size.target, Some(input));
        Appender::new(Arc::clone(store), encoder, naming, spread, order.writer, self.rewriter.observer)
            .ending_with_units(mixed.size.ends.is_some())
            .writing_behind(order.memory.write_window)
            .with_scatter(Some(scatter))
    }

    fn finish_shards(&self, mixed: &Mixed<'_>, appended: Appended) -> Result<Vec<CutShard>> {
        let expected: u64 = mixed.members.iter().map(|stock| stock.share.records).sum();
        let found: u64 = appended.shards.iter().map(|finished| finished.shard.meta.records).sum();
        if expected != found {
            return Err(Error::inconsistent_output(format!("expected {expected} records, found {found}")));
        }
        let mut out: Vec<CutShard> = Vec::with_capacity(appended.shards.len());
        for mut finished in appended.shards {
            finished.shard = finished.shard.shifted_by(mixed.first);
            finished.shard.meta.compacted_for = self.settled_for;
            let tally = Tally { reencoded: finished.shard.meta.bytes, ..Tally::default() };
            out.push(CutShard { finished, tally, places: Vec::new() });
        }
        if let Some(shard) = out.first_mut() {
            let (places, staged): (Vec<_>, Vec<_>) = appended.places.into_iter().unzip();
            shard.places = places.into_iter().map(|place| place.shifted_by(mixed.first)).collect();
            // Tables of places come before the shards that they lead to.
            shard.finished.staged.splice(0..0, staged);
        }
        Ok(out)
    }
}

/// Reads the kept records of shards of the parent.
#[derive(Clone, Copy)]
struct Source<'a> {
    resharder: &'a Resharder<'a>,
    layout: &'a Layout,
    seed: u64,
    first: u64,
    /// Whether frames have keys.
    has_keys: bool,
}

/// Batches of records with everything that they are shuffled with.
type ShuffleBatches<'a> = Box<dyn Iterator<Item = Result<RecordBatch>> + Send + 'a>;

impl<'a> Source<'a> {
    fn read_batches(self, stock: &'a Stock) -> ShuffleBatches<'a> {
        let batches = if is_framed(stock) { self.read_frames(stock) } else { self.read_rows(stock) };
        match batches {
            Ok(batches) => {
                Box::new(batches.map(move |batch| batch.map_err(|e| self.resharder.locate_error(e, &stock.shard))))
            }
            Err(error) => Box::new(std::iter::once(Err(self.resharder.locate_error(error, &stock.shard)))),
        }
    }

    fn read_rows(self, stock: &'a Stock) -> Result<ShuffleBatches<'a>> {
        let shard = &stock.shard;
        let together = batch_rows(shard.raw_bytes.max(shard.bytes), shard.records, READ_TOGETHER);
        let mut beside = NumberedSidecar::open(self, stock)?;
        let schema: &SchemaRef = self.layout.data_schema();
        let batches = self.resharder.rewriter.open_shard(shard)?.into_batches(together).map(move |batch| {
            let batch = cast_to(&batch?, schema)?;
            let (sidecar, numbers, kept) = beside.take_rows(batch.num_rows())?;
            let batch = filter_record_batch(&batch, &kept)?;
            self.layout.stored_batch(self.seed, &batch, &sidecar, numbers)
        });
        Ok(Box::new(batches))
    }

    fn read_frames(self, stock: &'a Stock) -> Result<ShuffleBatches<'a>> {
        let shard = &stock.shard;
        let store = self.resharder.rewriter.dataset.store();
        let mut raw = Frames { source: stream::open_shard_decoder(shard.codec, store.read(&shard.path)?)?, at: 0 };
        let mut beside = NumberedSidecar::open(self, stock)?;
        let together = batch_rows(shard.raw_bytes.max(shard.bytes), shard.records, READ_TOGETHER);
        let mut left = usize::try_from(shard.records).unwrap_or(usize::MAX);
        Ok(Box::new(std::iter::from_fn(move || {
            let rows = together.min(left);
            left -= rows;
            (rows > 0).then(|| {
                let (sidecar, numbers, _) = beside.take_rows(rows)?;
                let data = raw.read_batch(&sidecar, self.has_keys, self.layout.data_schema())?;
                self.layout.stored_batch(self.seed, &data, &sidecar, numbers)
            })
        })))
    }
}

/// Raw bytes of a tar or TFRecord shard, read from its beginning to its end.
struct Frames {
    source: Box<dyn Read + Send>,
    at: u64,
}

impl Frames {
    /// Reads the records of sidecar rows, which follow those before.
    fn read_batch(&mut self, sidecar: &RecordBatch, has_keys: bool, schema: &SchemaRef) -> Result<RecordBatch> {
        let extents = RecordExtents::from_batch(sidecar)?;
        let mut frames = LargeBinaryBuilder::new();
        let mut frame = Vec::new();
        for (offset, length) in extents.offsets.values().iter().zip(extents.lengths.values()) {
            let gap = offset.checked_sub(self.at).ok_or_else(|| {
                Error::integrity(format!("expected a record after byte {}, found one at another offset", self.at))
                    .at_byte(*offset)
                    .with_hint("the sidecar is damaged; convert the sources again into a new dataset")
            })?;
            std::io::copy(&mut self.source.by_ref().take(gap), &mut std::io::sink())?;
            frame.clear();
            let found = self.source.by_ref().take(*length).read_to_end(&mut frame)? as u64;
            if found < *length {
                return Err(super::stream::unexpected_end(length - found));
            }
            frames.append_value(&frame);
            self.at = offset + length;
        }
        let ids = sidecar.column_by_name("record_id").and_then(|ids| ids.as_string_opt::<i32>());
        let keys: StringArray = match ids.filter(|_| has_keys) {
            Some(ids) => ids.iter().map(|id| id.map(token_of)).collect(),
            None => StringArray::new_null(sidecar.num_rows()),
        };
        Ok(RecordBatch::try_new(Arc::clone(schema), vec![Arc::new(frames.finish()), Arc::new(keys)])?)
    }
}

/// Sidecar rows and numbers of the records of a shard.
struct NumberedSidecar<'a> {
    source: Source<'a>,
    stock: &'a Stock,
    sidecar: ShuffleBatches<'a>,
    rest: Option<RecordBatch>,
    numbers: Box<dyn Iterator<Item = Result<Option<Numbered>>> + Send + 'a>,
    at: usize,
}

impl<'a> NumberedSidecar<'a> {
    fn open(source: Source<'a>, stock: &'a Stock) -> Result<Self> {
        let store = source.resharder.rewriter.dataset.store();
        let sidecar = Box::new(sidecar_batches(store, &stock.shard.sidecar(), BATCH_ROWS)?);
        let runs: Vec<&Run> = stock.runs.iter().collect();
        let numbers = numbered_rows(store, &runs, source.resharder.runs)?;
        Ok(Self { source, stock, sidecar, rest: None, numbers, at: 0 })
    }

    /// Returns which of the next rows are kept, with the sidecar rows and the numbers of those.
    fn take_rows(&mut self, rows: usize) -> Result<(RecordBatch, Vec<u64>, BooleanArray)> {
        self.source.resharder.rewriter.cancel.check()?;
        let kept: BooleanArray = match &self.stock.kept {
            None => vec![true; rows].into(),
            Some(kept) => (self.at..self.at + rows).map(|row| Some(row < kept.len() && kept.value(row))).collect(),
        };
        let sidecar = filter_record_batch(&self.sidecar_rows(rows)?, &kept)?;
        let mut numbers = Vec::with_capacity(sidecar.num_rows());
        for row in 0..rows {
            let unknown = || unnumbered_error(self.stock, (self.at + row) as u64);
            let known = self.numbers.next().transpose()?.flatten();
            if kept.value(row) {
                let number = self.source.resharder.numbering.new_number(known.ok_or_else(unknown)?.record);
                let number = number.and_then(|number| number.checked_sub(self.source.first));
                numbers.push(number.ok_or_else(unknown)?);
            }
        }
        self.at += rows;
        Ok((sidecar, numbers, kept))
    }

    fn sidecar_rows(&mut self, rows: usize) -> Result<RecordBatch> {
        let (mut parts, mut found): (Vec<RecordBatch>, usize) = (Vec::new(), 0);
        while found < rows {
            let batch = match self.rest.take() {
                Some(rest) => rest,
                None => self.sidecar.next().transpose()?.ok_or_else(|| {
                    Error::integrity(format!(
                        "expected {} sidecar rows, found {}",
                        self.stock.shard.records,
                        self.at + found
                    ))
                })?,
            };
            let taken = batch.num_rows().min(rows - found);
            parts.push(batch.slice(0, taken));
            self.rest = (taken < batch.num_rows()).then(|| batch.slice(taken, batch.num_rows() - taken));
            found += taken;
        }
        match parts.as_slice() {
            [one] => Ok(one.clone()),
            [first, ..] => Ok(concat_batches(&first.schema(), &parts)?),
            [] => Err(Error::internal("no rows were asked for")),
        }
    }
}
