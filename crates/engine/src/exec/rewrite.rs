//! Context shared by merges, sorts and erasures: they read shards of a dataset and write others in their place.

use std::io::Read as _;

use arrow::datatypes::{Fields, SchemaRef};

use crate::{
    dataset::{Dataset, ShardMeta},
    error::{Error, Result},
    events::{Cancel, Observer},
    format::parquet::{self, ParquetFile},
    schema::{schema_of, unite_lists},
    storage::{Object, Store},
};

/// Bytes of a shard read at a time.
const READ_BYTES: usize = 1 << 20;

/// The dataset whose shards are rewritten, and the common settings of rewriting.
#[derive(Clone, Copy)]
pub struct Rewriter<'a> {
    /// The dataset.
    pub dataset: &'a Dataset,
    /// Maximum uncompressed bytes of a row group.
    pub row_group: u64,
    /// Receives progress events.
    pub observer: &'a dyn Observer,
    /// Cancellation token.
    pub cancel: &'a Cancel,
}

impl<'a> Rewriter<'a> {
    pub(super) fn store(&self) -> &'a dyn Store {
        self.dataset.store().as_ref()
    }

    /// Returns the location of a shard, for messages.
    pub(super) fn location_of(&self, shard: &ShardMeta) -> String {
        shard_location(self.dataset, shard)
    }

    /// Opens a Parquet shard.
    pub(super) fn open_shard(&self, shard: &ShardMeta) -> Result<ParquetFile<Object>> {
        open_parquet_shard(self.dataset, shard)
    }

    /// Reads a whole shard and verifies its checksum.
    pub(super) fn verify_checksum(&self, shard: &ShardMeta) -> Result<()> {
        verify_checksum(self.dataset, shard, self.cancel)
    }

    /// Returns the united columns of these shards.
    pub(super) fn united_schema<'s>(&self, shards: impl Iterator<Item = &'s ShardMeta>) -> Result<SchemaRef> {
        united_schema(self.dataset, shards)
    }
}

/// Returns the location of a shard, for messages.
pub(super) fn shard_location(dataset: &Dataset, shard: &ShardMeta) -> String {
    dataset.store().location().join(&shard.path).to_string()
}

/// Opens a Parquet shard.
pub(super) fn open_parquet_shard(dataset: &Dataset, shard: &ShardMeta) -> Result<ParquetFile<Object>> {
    parquet::open(dataset.object_at(&shard.path, shard.bytes), &shard_location(dataset, shard))
}

/// Returns the united columns of Parquet shards.
pub(super) fn united_schema<'s>(dataset: &Dataset, shards: impl Iterator<Item = &'s ShardMeta>) -> Result<SchemaRef> {
    let mut fields = Fields::empty();
    for shard in shards {
        fields = unite_lists(&fields, &open_parquet_shard(dataset, shard)?.open_fields());
    }
    Ok(schema_of(&fields))
}

/// Reads a whole shard and verifies its checksum.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if the checksum differs.
pub fn verify_checksum(dataset: &Dataset, shard: &ShardMeta, cancel: &Cancel) -> Result<()> {
    let mut source = dataset.store().read(&shard.path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = 0;
    loop {
        cancel.check()?;
        let n = source
            .read(&mut buffer)
            .map_err(|e| Error::from(e).at_location(shard_location(dataset, shard)).at_byte(bytes))?;
        if n == 0 {
            return check_checksum(dataset, shard, bytes, Some(hasher.finalize().as_bytes()));
        }
        hasher.update(&buffer[..n]);
        bytes += n as u64;
    }
}

/// Compares the size and checksum of a shard that was read with the recorded ones.
pub(super) fn check_checksum(
    dataset: &Dataset,
    shard: &ShardMeta,
    bytes: u64,
    checksum: Option<&[u8; 32]>,
) -> Result<()> {
    let damaged = |message: String| {
        Err(Error::integrity(message)
            .at_location(shard_location(dataset, shard))
            .with_hint("restore the shard from a copy, or convert its sources again into a new dataset"))
    };
    if bytes != shard.bytes {
        return damaged(format!("expected {} bytes, found {bytes}", shard.bytes));
    }
    if checksum.is_some_and(|checksum| *checksum != shard.checksum) {
        return damaged(
            "expected the recorded checksum, found another: the shard was changed after it was written".to_owned(),
        );
    }
    Ok(())
}
