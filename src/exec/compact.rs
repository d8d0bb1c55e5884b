//! Merging shards: framed records are copied as they are stored (`copy`), Parquet is spliced, or decoded and encoded anew.
//!
//! Every input is checked while it is read, so damage is found and never copied on. Sidecar rows
//! are carried over, offsets moved; record numbers stay what they are, which the runs of the new shard say.

use std::io::Read as _;

use arrow::{
    array::RecordBatch,
    datatypes::{Fields, SchemaRef},
};

use super::{
    budget::Budget,
    encode::{Encoder, Output},
    shard::{FinishedShard, OpenShard, ShardNaming},
};
use crate::{
    dataset::{ContentHashes, Dataset, Run, ShardMeta, SidecarPart},
    error::{Error, Result},
    events::{Cancel, Event, Observer},
    format::{
        OutputFormat,
        parquet::{self, ParquetEncoder, Tally, cast_to, logical_bytes},
    },
    schema::{schema_of, unite_lists},
    storage::Store,
};

const COPY_BYTES: usize = 1 << 20;
const DECODE_ROWS: usize = 8_192;

/// One merge.
#[derive(Debug, Clone)]
pub struct Merge {
    /// Shards to merge, in order, each with its live runs.
    pub inputs: Vec<(ShardMeta, Vec<Run>)>,
    /// What its folder has behind the name of the compaction: `/`, and `key=value/` where the inputs lie in such folders.
    pub partition: String,
    /// Number of the new shard within its folder.
    pub number: usize,
}

/// How merges are done.
pub struct Merger<'a> {
    /// The dataset.
    pub dataset: &'a Dataset,
    /// Names, format and codec of new shards.
    pub naming: &'a ShardNaming,
    /// Uncompressed bytes of a row group.
    pub row_group: u64,
    /// How many merges may hold row groups or have inputs open at a time; those that only end their shard are not among them.
    pub at_once: Budget,
    /// Whether checksums that the format has are checked as well.
    pub check_crc: bool,
    /// How content hashes are compared.
    pub hashes: ContentHashes,
    /// Whether everything is compared with the inputs once more.
    pub compare: bool,
    /// Is told what happens.
    pub observer: &'a dyn Observer,
    /// Stops it.
    pub cancel: &'a Cancel,
}

/// Rows on their way to row groups of one size; their sidecar rows are known from elsewhere.
pub(super) struct RowGroups<'a> {
    parquet: &'a ParquetEncoder,
    bytes: u64,
    pending: Vec<RecordBatch>,
    pending_bytes: u64,
}

impl<'a> RowGroups<'a> {
    /// Row groups of about so many bytes, uncompressed.
    pub(super) fn new(parquet: &'a ParquetEncoder, bytes: u64) -> Self {
        Self { parquet, bytes, pending: Vec::new(), pending_bytes: 0 }
    }

    /// Adds rows; a row group that is full goes to the shard.
    pub(super) fn push(&mut self, batch: RecordBatch, out: &mut OpenShard<'_>) -> Result<()> {
        self.pending_bytes += logical_bytes(&batch);
        self.pending.push(batch);
        if self.pending_bytes < self.bytes { Ok(()) } else { self.flush(out) }
    }

    /// The last row group goes to the shard.
    pub(super) fn finish(mut self, out: &mut OpenShard<'_>) -> Result<()> {
        self.flush(out)
    }

    fn flush(&mut self, out: &mut OpenShard<'_>) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        if pending.iter().all(|batch| batch.num_rows() == 0) {
            return Ok(());
        }
        out.append_known_rows(self.parquet.encode(&pending)?)
    }
}

/// What a merge made.
#[derive(Debug)]
pub struct Merged {
    /// The new shard.
    pub shard: FinishedShard,
    /// Bytes that were copied as they were.
    pub bytes_copied: u64,
    /// Bytes that were put together anew, but not decoded.
    pub bytes_spliced: u64,
    /// Bytes that were decoded and encoded.
    pub bytes_reencoded: u64,
}

impl Merger<'_> {
    /// Merges one group of shards.
    ///
    /// # Errors
    /// When an input is damaged or the store fails.
    pub fn merge(&self, merge: &Merge) -> Result<Merged> {
        let bytes: u64 = merge.inputs.iter().map(|(shard, _)| shard.bytes).sum();
        let room = self.at_once.room(1);
        let (shard, tally) = match self.naming.format {
            OutputFormat::Parquet => self.splice(merge, room)?,
            OutputFormat::Tar | OutputFormat::TfRecord => {
                (self.copy(merge)?, Tally { copied: bytes, ..Tally::default() })
            }
        };
        let records: u64 = merge.inputs.iter().map(|(shard, _)| shard.records).sum();
        if shard.shard.meta.records != records {
            return Err(Error::mistaken(format!(
                "expected {records} records after the merge, found {}",
                shard.shard.meta.records
            )));
        }
        if self.compare {
            self.compare(merge, &shard)?;
        }
        self.observer.event(Event::Shard { bytes: shard.shard.meta.bytes });
        let Tally { copied: bytes_copied, spliced: bytes_spliced, reencoded: bytes_reencoded } = tally;
        Ok(Merged { shard, bytes_copied, bytes_spliced, bytes_reencoded })
    }

    /// Decodes and encodes everything.
    pub(super) fn reencode(&self, merge: &Merge) -> Result<FinishedShard> {
        let schema = self.united_schema(merge)?;
        let encoder = Encoder::new(OutputFormat::Parquet, self.naming.codec, &schema, Vec::new(), None)?;
        let Output::Parquet(parquet) = encoder.output() else {
            return Err(Error::internal("expected the encoder of Parquet"));
        };
        let mut out = self.create(&encoder, merge)?;
        let mut pending = RowGroups::new(parquet, self.row_group);
        for (input, _) in &merge.inputs {
            verify_checksum(self.dataset, input, self.cancel)?;
            let mut rows = 0;
            for batch in self.open(input)?.batches(DECODE_ROWS) {
                self.cancel.check()?;
                let batch = cast_to(&batch?, &schema)?;
                rows += batch.num_rows() as u64;
                pending.push(batch, &mut out)?;
            }
            if rows != input.records {
                return Err(
                    Error::integrity(format!("expected {} records, found {rows}", input.records)).at(self.place(input))
                );
            }
            out.append_sidecar_part(&self.sidecar(input)?)?;
            self.observer.event(Event::Read { bytes: input.bytes, records: input.records });
        }
        pending.finish(&mut out)?;
        out.finish(&runs(merge))
    }

    fn united_schema(&self, merge: &Merge) -> Result<SchemaRef> {
        let mut fields = Fields::empty();
        for (input, _) in &merge.inputs {
            fields = unite_lists(&fields, self.open(input)?.schema().fields());
        }
        Ok(schema_of(&fields))
    }

    pub(super) fn open(&self, input: &ShardMeta) -> Result<parquet::ParquetFile<crate::storage::Object>> {
        parquet::open(self.dataset.object(&input.path, input.bytes), &self.place(input))
    }

    pub(super) fn create<'e>(&self, encoder: &'e Encoder, merge: &Merge) -> Result<OpenShard<'e>> {
        let tag = format!("{}{}", self.naming.tag, merge.partition);
        let naming = ShardNaming { tag: tag.trim_end_matches('/').to_owned(), ..self.naming.clone() };
        OpenShard::create(self.store(), encoder, &naming, merge.number)
    }

    /// The sidecar of an input, which is to tell of each record.
    pub(super) fn sidecar(&self, input: &ShardMeta) -> Result<SidecarPart> {
        let part = SidecarPart::open(self.dataset.store(), &input.sidecar(), input.records)?;
        self.check_row_count(input, part.rows())?;
        Ok(part)
    }

    /// Refuses a sidecar that does not tell of each record.
    pub(super) fn check_rows(&self, input: &ShardMeta, sidecar: &[RecordBatch]) -> Result<()> {
        self.check_row_count(input, sidecar.iter().map(|batch| batch.num_rows() as u64).sum())
    }

    fn check_row_count(&self, input: &ShardMeta, rows: u64) -> Result<()> {
        if rows == input.records {
            return Ok(());
        }
        Err(Error::integrity(format!("expected a sidecar of {} rows, found {rows}", input.records))
            .at(self.place(input)))
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.dataset.store().as_ref()
    }

    pub(super) fn place(&self, input: &ShardMeta) -> String {
        self.store().location().join(&input.path).to_string()
    }
}

pub(super) fn runs(merge: &Merge) -> Vec<(u64, Option<u64>)> {
    merge.inputs.iter().flat_map(|(_, runs)| runs.iter().map(|run| (run.first, Some(run.records)))).collect()
}

/// Reads a whole shard and compares its checksum.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) when it differs.
pub fn verify_checksum(dataset: &Dataset, shard: &ShardMeta, cancel: &Cancel) -> Result<()> {
    let mut source = dataset.store().read(&shard.path)?;
    let place = || dataset.store().location().join(&shard.path).to_string();
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; COPY_BYTES];
    let mut bytes = 0;
    loop {
        cancel.check()?;
        let n = source.read(&mut buffer).map_err(|e| Error::from(e).at(place()).byte(bytes))?;
        if n == 0 {
            return check(dataset, shard, bytes, Some(hasher.finalize().as_bytes()));
        }
        hasher.update(&buffer[..n]);
        bytes += n as u64;
    }
}

/// Compares what was read of a shard with what is on record about it.
pub(super) fn check(dataset: &Dataset, shard: &ShardMeta, bytes: u64, checksum: Option<&[u8; 32]>) -> Result<()> {
    let damaged = |message: String| {
        Err(Error::integrity(message)
            .at(dataset.store().location().join(&shard.path).to_string())
            .hint("restore the shard from a copy, or convert its sources again into a new dataset"))
    };
    if bytes != shard.bytes {
        return damaged(format!("expected {} bytes, found {bytes}", shard.bytes));
    }
    if checksum.is_some_and(|checksum| *checksum != shard.checksum) {
        return damaged("the checksum differs: the shard was changed after it was written".to_owned());
    }
    Ok(())
}
