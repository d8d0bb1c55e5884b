//! The records of a shard, batch by batch, read ahead on a thread of its own.
//!
//! A reader that stops early drops the iterator; the thread ends with its next batch. A thread that panics does not end
//! the records early: the iterator returns the error.

use std::{
    sync::mpsc::{Receiver, sync_channel},
    thread::{Builder, JoinHandle},
};

use arrow::array::RecordBatch;

use super::session::Session;
use crate::{
    dataset::{ShardMeta, Snapshot},
    error::{Error, Result},
    ops::live,
    record::{Payload, Sample},
};

/// Records of a shard.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("patients");
/// use shardify::Session;
///
/// let session = Session::new()?;
/// session.convert("testdata/files/images", &out).run()?;
/// for batch in session.open(&out)?.shards()?[0].batches() {
///     match batch? {
///         shardify::Batch::Rows(rows) => println!("{:?}", rows.schema()),
///         shardify::Batch::Samples(samples) => println!("{} of {} parts", samples[0].key, samples[0].parts.len()),
///         _ => {}
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Batch {
    /// Rows of a table; `RecordBatch` is that of `arrow`, which [`shardify::arrow`](crate::arrow) is.
    Rows(RecordBatch),
    /// Samples made of files.
    Samples(Vec<Sample>),
}

impl Batch {
    /// Returns the number of records.
    pub fn records(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.num_rows(),
            Self::Samples(samples) => samples.len(),
        }
    }
}

/// Batches read ahead.
const AHEAD: usize = 2;

/// The live records of a shard; [`Shard::batches`](crate::Shard::batches) reads them.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("patients");
/// use shardify::Session;
///
/// let session = Session::new()?;
/// session.convert("testdata/patients/OBSERVATION.csv", &out).subject("person_id").run()?;
/// let shards = session.open(&out)?.shards()?;
/// let records: usize = shards[0].batches().map(|batch| batch.map(|batch| batch.records())).sum::<Result<_, _>>()?;
/// assert_eq!(records as u64, shards[0].records());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Batches {
    batches: Option<Receiver<Result<Batch>>>,
    reader: Option<JoinHandle<()>>,
}

impl Batches {
    pub(super) fn read_ahead(session: Session, snapshot: Snapshot, shard: ShardMeta) -> Self {
        let (sender, receiver) = sync_channel(AHEAD);
        let refused = sender.clone();
        let read = move || {
            let mut emit = |records: Payload| {
                let batch = match records {
                    Payload::Rows(rows) => Batch::Rows(rows),
                    Payload::Samples(samples) => Batch::Samples(samples),
                };
                Ok(sender.send(Ok(batch)).is_ok())
            };
            let result = session.run(|context| live::each_batch(context, &snapshot, &shard, &mut emit));
            if let Err(error) = result {
                // If nobody listens any more, nobody misses the error.
                let _ = sender.send(Err(error));
            }
        };
        let reader = Builder::new().name("shard".to_owned()).spawn(read);
        let reader = reader.map_err(|e| {
            let error = Error::storage("the system refused to start a thread").with_cause(e);
            let _ = refused.send(Err(error));
        });
        Self { batches: Some(receiver), reader: reader.ok() }
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.batches.as_ref()?.recv() {
            Ok(batch) => {
                if batch.is_err() {
                    self.batches = None;
                }
                Some(batch)
            }
            Err(_) => {
                self.batches = None;
                let panicked = self.reader.take()?.join().err()?;
                Some(Err(Error::of_panic(panicked.as_ref())))
            }
        }
    }
}
