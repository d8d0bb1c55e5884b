//! Merging shards: framed records are copied as they are stored, Parquet is spliced, or decoded and encoded anew.
//!
//! Every input is checked against its checksum while it is read, so damage is found and never copied on. Sidecar rows
//! are carried over, offsets moved; record numbers stay what they are, which the runs of the new shard say.

use std::io::Read as _;

use arrow::{
    array::RecordBatch,
    datatypes::{Fields, SchemaRef},
};

use super::{
    encode::{Encoder, Output, framing},
    shard::{FinishedShard, OpenShard, ShardNaming},
};
use crate::{
    codec::{Codec, stream::Frames},
    dataset::{Dataset, Run, ShardMeta, SidecarRow, read_frames, read_sidecar, read_sidecar_rows},
    error::{Error, Result},
    events::{Cancel, Event, Observer},
    format::{
        OutputFormat,
        parquet::{self, Tally, cast_to, logical_bytes},
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
    /// Folder of the new shard below that of the compaction, `key=value/`; empty unless the inputs lie in such folders.
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
    /// Is told what happens.
    pub observer: &'a dyn Observer,
    /// Stops it.
    pub cancel: &'a Cancel,
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
        let (shard, tally) = match self.naming.format {
            OutputFormat::Parquet => self.splice(merge)?,
            OutputFormat::Tar | OutputFormat::TfRecord => {
                (self.copy(merge)?, Tally { copied: bytes, ..Tally::default() })
            }
        };
        let records: u64 = merge.inputs.iter().map(|(shard, _)| shard.records).sum();
        if shard.shard.meta.records != records {
            return Err(Error::integrity(format!(
                "expected {records} records after the merge, found {}",
                shard.shard.meta.records
            ))
            .hint("nothing was committed; please report this as a bug"));
        }
        self.observer.event(Event::Shard { bytes: shard.shard.meta.bytes });
        let Tally { copied: bytes_copied, spliced: bytes_spliced, reencoded: bytes_reencoded } = tally;
        Ok(Merged { shard, bytes_copied, bytes_spliced, bytes_reencoded })
    }

    fn copy(&self, merge: &Merge) -> Result<FinishedShard> {
        let encoder =
            Encoder::new(self.naming.format, self.naming.codec, &schema_of(&Fields::empty()), Vec::new(), None)?;
        let mut out = self.create(&encoder, merge)?;
        let framing = framing(self.naming.format).ok_or_else(|| Error::internal("expected a framed format"))?;
        let trailer = framing.trailer().len() as u64;
        // What others wrote may end in another trailer; without compression the records are as long as they are.
        let raw_body = |input: &ShardMeta| {
            if input.codec == Codec::None { input.body_bytes } else { input.raw_bytes - trailer }
        };
        if framing.has_keys() {
            self.check_seams(merge)?;
        }
        for (input, _) in &merge.inputs {
            let base = self.copy_body(input, &mut out)?;
            out.end_bytes(raw_body(input), input.body_crc32, &self.frames(input)?)?;
            self.copy_sidecar(input, &mut out, i128::from(base))?;
            self.observer.event(Event::Read { bytes: input.bytes, records: input.records });
        }
        out.finish(&runs(merge))
    }

    /// Units of a shard; unknown when it was written without a table of them.
    fn frames(&self, input: &ShardMeta) -> Result<Frames> {
        if input.codec.stream_extension().is_empty() {
            return Ok(Frames::default());
        }
        Ok(read_frames(self.dataset.store(), &input.path)?.map_or(Frames::UNKNOWN, |table| table.frames()))
    }

    /// Refuses to make neighbours of two records with the same id, which readers of keys would take for one.
    fn check_seams(&self, merge: &Merge) -> Result<()> {
        let mut last: Option<SidecarRow> = None;
        for (input, _) in merge.inputs.iter().filter(|(shard, _)| shard.records > 0) {
            let ordinals: Vec<u64> = if input.records == 1 { vec![0] } else { vec![0, input.records - 1] };
            let rows = read_sidecar_rows(self.dataset.store(), &input.path, &ordinals)?;
            if let (Some(last), Some(first)) = (&last, rows.first())
                && last.id() == first.id()
            {
                return Err(Error::usage(format!(
                    "the record `{}` would come twice in a row, and readers would take both for one",
                    first.id()
                ))
                .at(self.place(input))
                .hint("leave one of the two shards out with --since or --until"));
            }
            last = rows.into_iter().next_back();
        }
        Ok(())
    }

    /// Copies the records of a shard, as stored, and checks the whole shard; returns where they begin.
    fn copy_body(&self, input: &ShardMeta, out: &mut OpenShard<'_>) -> Result<u64> {
        let mut source = self.store().read(&input.path)?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; COPY_BYTES];
        let body = input.body_offset..input.body_offset + input.body_bytes;
        let base = out.append_bytes(&[])?;
        let mut at = 0_u64;
        loop {
            self.cancel.check()?;
            let n = source.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            hasher.update(&buffer[..n]);
            let start = body.start.clamp(at, at + n as u64) - at;
            let end = body.end.clamp(at, at + n as u64) - at;
            let within = |n: u64| usize::try_from(n).unwrap_or(buffer.len());
            out.append_bytes(&buffer[within(start)..within(end)])?;
            at += n as u64;
        }
        check(self.dataset, input, at, hasher.finalize().as_bytes())?;
        Ok(base)
    }

    /// Decodes and encodes everything.
    pub(super) fn reencode(&self, merge: &Merge) -> Result<FinishedShard> {
        let schema = self.united_schema(merge)?;
        let encoder = Encoder::new(OutputFormat::Parquet, self.naming.codec, &schema, Vec::new(), None)?;
        let Output::Parquet(parquet) = encoder.output() else {
            return Err(Error::internal("expected the encoder of Parquet"));
        };
        let mut out = self.create(&encoder, merge)?;
        let mut pending: Vec<RecordBatch> = Vec::new();
        let mut pending_bytes = 0;
        for (input, _) in &merge.inputs {
            verify_checksum(self.dataset, input, self.cancel)?;
            let mut rows = 0;
            for batch in self.open(input)?.batches(DECODE_ROWS) {
                self.cancel.check()?;
                let batch = cast_to(&batch?, &schema)?;
                rows += batch.num_rows() as u64;
                pending_bytes += logical_bytes(&batch);
                pending.push(batch);
                if pending_bytes >= self.row_group {
                    out.append_known_rows(parquet.encode(&pending)?)?;
                    pending.clear();
                    pending_bytes = 0;
                }
            }
            if rows != input.records {
                return Err(
                    Error::integrity(format!("expected {} records, found {rows}", input.records)).at(self.place(input))
                );
            }
            self.copy_sidecar(input, &mut out, 0)?;
            self.observer.event(Event::Read { bytes: input.bytes, records: input.records });
        }
        if !pending.is_empty() {
            out.append_known_rows(parquet.encode(&pending)?)?;
        }
        out.finish(&runs(merge))
    }

    fn united_schema(&self, merge: &Merge) -> Result<SchemaRef> {
        let mut fields = Fields::empty();
        for (input, _) in &merge.inputs {
            fields = unite_lists(&fields, self.open(input)?.schema().fields());
        }
        Ok(schema_of(&fields))
    }

    fn open(&self, input: &ShardMeta) -> Result<parquet::ParquetFile<crate::storage::Object>> {
        parquet::open(self.dataset.object(&input.path, input.bytes), &self.place(input))
    }

    pub(super) fn create<'e>(&self, encoder: &'e Encoder, merge: &Merge) -> Result<OpenShard<'e>> {
        let tag = format!("{}/{}", self.naming.tag, merge.partition);
        let naming = ShardNaming { tag: tag.trim_end_matches('/').to_owned(), ..self.naming.clone() };
        OpenShard::create(self.store(), encoder, &naming, merge.number)
    }

    fn copy_sidecar(&self, input: &ShardMeta, out: &mut OpenShard<'_>, shift: i128) -> Result<()> {
        self.append_sidecar(input, None, out, shift)
    }

    /// Appends the sidecar of an input, which was read already or is read now.
    pub(super) fn append_sidecar(
        &self,
        input: &ShardMeta,
        rows: Option<Vec<RecordBatch>>,
        out: &mut OpenShard<'_>,
        shift: i128,
    ) -> Result<()> {
        let before = out.records();
        let batches = match rows {
            Some(batches) => batches,
            None => read_sidecar(self.store(), &input.path)?,
        };
        for batch in batches {
            out.append_sidecar(&batch, shift)?;
        }
        let rows = out.records() - before;
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
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; COPY_BYTES];
    let mut bytes = 0;
    loop {
        cancel.check()?;
        let n = source.read(&mut buffer)?;
        if n == 0 {
            return check(dataset, shard, bytes, hasher.finalize().as_bytes());
        }
        hasher.update(&buffer[..n]);
        bytes += n as u64;
    }
}

pub(super) fn check(dataset: &Dataset, shard: &ShardMeta, bytes: u64, checksum: &[u8; 32]) -> Result<()> {
    let damaged = |message: String| {
        Err(Error::integrity(message)
            .at(dataset.store().location().join(&shard.path).to_string())
            .hint("restore the shard from a copy, or convert its sources again into a new dataset"))
    };
    if bytes != shard.bytes {
        return damaged(format!("expected {} bytes, found {bytes}", shard.bytes));
    }
    if *checksum != shard.checksum {
        return damaged("the checksum differs: the shard was changed after it was written".to_owned());
    }
    Ok(())
}
