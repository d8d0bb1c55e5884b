//! Record batches that do not fit into memory: in a temporary file, in Arrow's stream format.
//!
//! ```text
//! file       schema | batch | batch | ...
//! in memory  the schema, and the place of each batch
//! ```
//!
//! The file is deleted when its [`SpilledBatches`] are dropped. Batches are read in order, or some of them by their
//! numbers. Sort runs (`sort/runs.rs`) and shuffle runs (`shuffle/runs.rs`) are such files; what is seen of duplicates
//! (`seen.rs`) is not, because it is looked up entry by entry.

use std::{io::Write, ops::Range};

use arrow::{
    array::RecordBatch,
    buffer::Buffer,
    datatypes::SchemaRef,
    ipc::{
        CompressionType,
        reader::StreamDecoder,
        writer::{IpcWriteOptions, StreamWriter},
    },
};

use crate::{
    error::{Error, Result},
    storage::{Location, Scratch, create_scratch},
};

/// Batches in a temporary file.
#[derive(Debug)]
pub(super) struct SpilledBatches {
    file: Scratch,
    /// The schema in Arrow's stream format.
    schema: Buffer,
    /// Offset of each batch in the file, and of the end of the last one.
    places: Vec<u64>,
    records: u64,
    batch_rows: usize,
}

impl SpilledBatches {
    /// Returns the number of records.
    pub(super) fn record_count(&self) -> u64 {
        self.records
    }

    /// Returns the number of rows of the largest batch.
    pub(super) fn batch_rows(&self) -> usize {
        self.batch_rows
    }

    /// Reads some batches, by their numbers.
    pub(super) fn read(&self, numbers: Range<usize>) -> Result<Vec<RecordBatch>> {
        if numbers.is_empty() { Ok(Vec::new()) } else { self.decode_batches(&mut self.start_decoder()?, numbers) }
    }

    /// Returns all batches in order; the file is deleted when they are dropped.
    pub(super) fn into_batches(self) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
        let (mut decoder, batches) = (self.start_decoder()?, self.places.len() - 1);
        let batch = move |number: usize| {
            let batch = self.decode_batches(&mut decoder, number..number + 1)?.pop();
            batch.ok_or_else(|| Error::internal("a batch in a temporary file is cut"))
        };
        Ok((0..batches).map(batch))
    }

    fn start_decoder(&self) -> Result<StreamDecoder> {
        let mut decoder = StreamDecoder::new();
        decoder.decode(&mut self.schema.clone())?;
        Ok(decoder)
    }

    fn decode_batches(&self, decoder: &mut StreamDecoder, numbers: Range<usize>) -> Result<Vec<RecordBatch>> {
        let mut bytes = Buffer::from_vec(self.file.read(self.places[numbers.start]..self.places[numbers.end])?);
        let mut batches = Vec::with_capacity(numbers.len());
        while let Some(batch) = decoder.decode(&mut bytes)? {
            batches.push(batch);
        }
        Ok(batches)
    }
}

/// Counts the bytes that are written.
struct Counting<W> {
    inner: W,
    at: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// Writes batches to a temporary file.
pub(super) struct SpillWriter {
    file: Scratch,
    writer: StreamWriter<Counting<Box<dyn Write + Send>>>,
    places: Vec<u64>,
    records: u64,
    batch_rows: usize,
}

impl SpillWriter {
    /// Creates a file near a dataset.
    pub(super) fn create(
        location: &Location,
        schema: &SchemaRef,
        compression: Option<CompressionType>,
    ) -> Result<Self> {
        let file = create_scratch(location)?;
        let inner: Box<dyn Write + Send> = Box::new(file.create_writer()?);
        let options = IpcWriteOptions::default().try_with_compression(compression)?;
        let writer = StreamWriter::try_new_with_options(Counting { inner, at: 0 }, schema, options)?;
        let places = vec![writer.get_ref().at];
        Ok(Self { file, writer, places, records: 0, batch_rows: 0 })
    }

    /// Appends a batch.
    pub(super) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.writer.write(batch)?;
        self.places.push(self.writer.get_ref().at);
        self.records += batch.num_rows() as u64;
        self.batch_rows = self.batch_rows.max(batch.num_rows());
        Ok(())
    }

    /// Finishes the file.
    pub(super) fn finish(mut self) -> Result<SpilledBatches> {
        self.writer.flush()?;
        let Self { file, places, records, batch_rows, .. } = self;
        let schema = file.read(0..places[0])?.into();
        Ok(SpilledBatches { file, schema, places, records, batch_rows })
    }
}

/// Merges runs, `fan_in` at a time, until at most so many remain.
pub(super) fn reduce_runs<R>(
    mut runs: Vec<R>,
    fan_in: usize,
    mut merge: impl FnMut(Vec<R>) -> Result<R>,
) -> Result<Vec<R>> {
    while runs.len() > fan_in {
        let mut next = Vec::new();
        let mut rest = runs.into_iter().peekable();
        while rest.peek().is_some() {
            next.push(merge(rest.by_ref().take(fan_in).collect())?);
        }
        runs = next;
    }
    Ok(runs)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, DictionaryArray, StringArray, types::Int32Type};

    use super::*;

    #[test]
    fn batches_are_read_in_order_and_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::from_local_path(folder.path()).unwrap();
        let batch = |texts: &[&str], keys: &[&str]| {
            let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
            let keys: ArrayRef = Arc::new(keys.iter().copied().collect::<DictionaryArray<Int32Type>>());
            RecordBatch::try_from_iter([("text", texts), ("key", keys)]).unwrap()
        };
        let batches =
            [batch(&["a", "b"], &["x", "x"]), batch(&["c"], &["y"]), batch(&["", "d", "e"], &["z", "x", "y"])];
        for compression in [None, Some(CompressionType::LZ4_FRAME)] {
            let mut writer = SpillWriter::create(&location, &batches[0].schema(), compression).unwrap();
            batches.iter().for_each(|batch| writer.push(batch).unwrap());
            let spilled = writer.finish().unwrap();
            assert_eq!((spilled.record_count(), spilled.batch_rows()), (6, 3));
            assert_eq!(spilled.read(1..3).unwrap(), batches[1..]);
            assert_eq!(spilled.read(2..2).unwrap(), []);
            assert_eq!(spilled.into_batches().unwrap().map(Result::unwrap).collect::<Vec<_>>(), batches);
        }
    }

    #[test]
    fn runs_are_merged_until_few_remain() {
        let merge = |some: Vec<Vec<u32>>| Ok(some.concat());
        let runs = reduce_runs((0..11).map(|run| vec![run]).collect(), 3, merge).unwrap();
        assert_eq!(runs, [(0..9).collect::<Vec<_>>(), vec![9, 10]]);
    }
}
