//! The database of samples by their keys, `index.sqlite`: the tables that `energon prepare` makes, from the lists of
//! parts and the offsets beside each shard.

use std::path::Path;

use rusqlite::Connection;

use crate::{
    dataset::{ShardMeta, get_sealed, read_parts},
    error::{Error, Result},
    format::index::IndexKind,
    storage::Store,
};

const TABLES: &str = "
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE samples (
        tar_file_id INTEGER NOT NULL,
        sample_key TEXT NOT NULL UNIQUE,
        sample_index INTEGER NOT NULL,
        byte_offset INTEGER,
        byte_size INTEGER
    );
    CREATE TABLE sample_parts (
        tar_file_id INTEGER,
        sample_index INTEGER,
        part_name TEXT,
        content_byte_offset INTEGER,
        content_byte_size INTEGER
    );";

const INDEXES: &str = "
    CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index);
    CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset);
    CREATE INDEX idx_sample_parts_full
        ON sample_parts(tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size);";

/// Writes the database of these shards to a file.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if two samples have the same key; also fails if the store fails.
pub(super) fn write_database(store: &dyn Store, path: &Path, shards: &[&ShardMeta]) -> Result<()> {
    let failed = |e: rusqlite::Error| unwritable_error(path, e);
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.execute_batch(TABLES).map_err(failed)?;
    let transaction = connection.transaction().map_err(failed)?;
    for (shard, id) in shards.iter().zip(0_i64..) {
        insert_shard(store, &transaction, path, shard, id)?;
    }
    transaction.execute_batch(INDEXES).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    connection.close().map_err(|(_, e)| failed(e))
}

/// Returns the error for a database that cannot be written.
fn unwritable_error(path: &Path, cause: rusqlite::Error) -> Error {
    let full = cause.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
    let error = Error::storage("writing the database of samples failed")
        .at_location(path.display().to_string())
        .with_cause(cause);
    if full { error.with_hint("free some space on that file system") } else { error }
}

/// Inserts the samples of a shard and their parts.
fn insert_shard(store: &dyn Store, connection: &Connection, path: &Path, meta: &ShardMeta, id: i64) -> Result<()> {
    let shard = meta.path.as_str();
    let failed = |e: rusqlite::Error| unwritable_error(path, e);
    let starts = read_starts(store, meta)?;
    let number =
        |n: u64| i64::try_from(n).map_err(|_| Error::integrity("an offset is out of range").at_location(shard));
    let mut samples = connection.prepare("INSERT INTO samples VALUES (?, ?, ?, ?, ?)").map_err(failed)?;
    let mut parts = connection.prepare("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)").map_err(failed)?;
    let mut record = None;
    for part in read_parts(store, &meta.parts_table()?)? {
        let name = part.name.rfind('/').map_or(0, |slash| slash + 1);
        let dot = part.name[name..].find('.').map_or(part.name.len(), |dot| name + dot);
        let (key, extension) = (&part.name[..dot], part.name.get(dot + 1..).unwrap_or_default());
        if record != Some(part.record) {
            record = Some(part.record);
            let extent = usize::try_from(part.record).ok().and_then(|i| starts.get(i..i + 2)).ok_or_else(|| {
                Error::integrity(format!("expected more than {} samples in the index", part.record)).at_location(shard)
            })?;
            let row = (id, key, number(part.record)?, number(extent[0])?, number(extent[1] - extent[0])?);
            samples.execute(row).map_err(|e| match e.sqlite_error_code() {
                Some(rusqlite::ErrorCode::ConstraintViolation) => duplicate_key_error(key).at_location(shard),
                _ => failed(e),
            })?;
        }
        let row = (id, number(part.record)?, extension, number(part.offset)?, number(part.size)?);
        parts.execute(row).map_err(failed)?;
    }
    Ok(())
}

fn duplicate_key_error(key: &str) -> Error {
    Error::input(format!("expected every sample of the dataset to have its own key, found `{key}` twice"))
        .with_hint("Megatron-Energon rejects such datasets; choose a unique --id, or omit energon from --index")
}

/// Reads the offsets of samples, and the end of the last one, from the index beside the shard.
fn read_starts(store: &dyn Store, shard: &ShardMeta) -> Result<Vec<u64>> {
    let path = IndexKind::Energon.sidecar_path(&shard.path).unwrap_or_default();
    let bytes = get_sealed(store, &shard.beside_at(&path)?)?;
    let starts: Vec<u64> =
        bytes.chunks_exact(8).filter_map(|chunk| Some(u64::from_le_bytes(*chunk.first_chunk()?))).collect();
    if bytes.len() % 8 != 0 || !starts.is_sorted() {
        return Err(Error::integrity("expected ascending offsets of 8 bytes each, found others").at_location(path));
    }
    Ok(starts)
}
