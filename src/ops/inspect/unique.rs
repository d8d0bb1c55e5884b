//! Whether a column that looks like an id never repeats: in all records of a small source, whose sample alone may
//! deceive.

use std::collections::HashSet;

use arrow::array::{Array, RecordBatch, StringArray};

use crate::{
    codec::checksum::xxh3_64,
    error::{Error, Result},
    format::parquet,
    ops::{Context, head::each_block},
    record::{Payload, id_column},
    scan::{RecordSource, SourceFile},
};

/// Maximum number of stored bytes that are read.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of records.
const MAX_RECORDS: u64 = 4 << 20;
const SPLIT_BYTES: usize = 1 << 20;
const BATCH_ROWS: usize = 8_192;

/// Looks for a column in all records of a small source: the number of records if it never repeats, 0 if it does, and
/// `None` if the source is large or cannot be read, which `convert` tells.
pub(super) fn unique_in(
    context: &Context<'_>,
    sources: &[RecordSource],
    parquet: Option<&Vec<SourceFile>>,
    id: &str,
) -> Option<u64> {
    let files = parquet.map_or(&[][..], Vec::as_slice);
    let bytes: u64 = sources.iter().map(|s| s.file.bytes()).chain(files.iter().map(SourceFile::bytes)).sum();
    if bytes > MAX_BYTES || sources.iter().any(|source| source.reader.facts().layout.is_some()) {
        return None;
    }
    let mut seen = Seen { id: [id.to_owned()], hashes: HashSet::new(), records: 0, repeats: false };
    seen.read(context, sources, files).ok()?;
    Some(if seen.repeats { 0 } else { seen.records })
}

struct Seen {
    id: [String; 1],
    hashes: HashSet<u64>,
    records: u64,
    repeats: bool,
}

impl Seen {
    fn read(&mut self, context: &Context<'_>, sources: &[RecordSource], files: &[SourceFile]) -> Result<()> {
        for source in sources {
            each_block(context, source, SPLIT_BYTES, &mut |block| match &block.payload {
                Payload::Rows(batch) => self.add_batch(batch),
                Payload::Samples(_) => Err(Error::input("expected rows, found samples")),
            })?;
        }
        for file in files {
            let [id] = &self.id;
            let columns = parquet::open(file.object(), &file.uri())?.with_columns(&[id]);
            for batch in columns.into_batches(BATCH_ROWS) {
                context.cancel.check()?;
                if !self.add_batch(&batch?)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds rows; returns whether more are wanted.
    fn add_batch(&mut self, batch: &RecordBatch) -> Result<bool> {
        let ids: StringArray = id_column(batch, &self.id)?;
        self.records += ids.len() as u64;
        // Two ids of one hash are too rare to matter for a suggestion.
        self.repeats |= ids.null_count() > 0;
        for id in ids.iter().flatten() {
            self.repeats |= !self.hashes.insert(xxh3_64(id.as_bytes()));
        }
        match self.records > MAX_RECORDS {
            true => Err(Error::input("expected a small source, found a large one")),
            false => Ok(!self.repeats),
        }
    }
}
