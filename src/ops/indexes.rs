//! Which indexes the shards of a dataset have, and whether they agree with the sidecars.
//!
//! All shards of a dataset have the same kinds, because most indexes are useful only if they are complete; therefore
//! they are chosen when the dataset is made.

use std::sync::Arc;

use arrow::array::UInt64Array;

use crate::{
    codec::{Codec, stream::Frames},
    dataset::{ShardMeta, get_sealed, read_frames, read_sidecar},
    error::{Error, Result},
    format::{
        OutputFormat,
        index::{self, IndexKind, shard_stem},
    },
    indexes, schema,
    storage::Store,
};

/// Returns the indexes of a run: the requested ones, else those of the dataset, else those that suit the shards and are
/// cheap.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) for kinds that these shards cannot have, or that older shards lack.
pub fn choose_indexes(
    asked: Option<&[IndexKind]>,
    old: Option<&[IndexKind]>,
    format: OutputFormat,
    codec: Codec,
) -> Result<Vec<IndexKind>> {
    let asked = asked.map(|kinds| {
        let mut kinds = kinds.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    });
    let kinds = match (asked, old) {
        (Some(asked), Some(old)) if asked != old => {
            return Err(Error::usage(format!(
                "this dataset was created with --index {}; you gave --index {}",
                format_kinds(old),
                format_kinds(&asked)
            ))
            .with_hint(
                "all shards of a dataset have the same indexes: leave --index out, or name another dataset with --out",
            ));
        }
        (_, Some(old)) => old.to_vec(),
        (Some(asked), None) => asked,
        (None, None) => indexes::default_kinds(format, codec),
    };
    indexes::check_kinds(&kinds, format, codec)?;
    Ok(kinds)
}

/// Returns the kinds as written on the command line.
pub fn format_kinds(kinds: &[IndexKind]) -> String {
    if kinds.is_empty() {
        return "none".to_owned();
    }
    kinds.iter().map(|kind| kind.files().name).collect::<Vec<_>>().join(",")
}

/// Returns whether an object belongs to one of these shards: it is in the same folder and has the same name up to the
/// first dot, or it is a list of all shards of their folder.
pub fn belongs_to_shard(
    path: &str,
    is_shard_stem: impl Fn(&str) -> bool,
    is_shard_folder: impl Fn(&str) -> bool,
) -> bool {
    let (folder, name) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
    let describes_folder = || name == schema::file::NAME || index::of_folders().any(|list| list == name);
    is_shard_stem(shard_stem(path)) || describes_folder() && is_shard_folder(folder)
}

/// Compares the indexes beside a shard, and the table of its units, with its sidecar; the shard itself is not read.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) at the first mismatch.
pub fn check_shard(store: &Arc<dyn Store>, shard: &ShardMeta, format: OutputFormat, kinds: &[IndexKind]) -> Result<()> {
    check_frames(store, shard)?;
    let mut beside: Vec<(IndexKind, String)> =
        kinds.iter().filter_map(|k| Some((*k, k.sidecar_path(&shard.path)?))).collect();
    // Shards that were adopted in place have no such objects.
    let sealed = shard.all_beside();
    beside.retain(|(_, path)| sealed.iter().any(|object| object.path == *path));
    if beside.is_empty() {
        return Ok(());
    }
    let extents = record_extents(store.as_ref(), shard)?;
    for (kind, path) in beside {
        let at = |e: Error| e.at_location(store.location().join(&path).to_string());
        let bytes = get_sealed(store.as_ref(), &shard.beside_at(&path)?)?;
        if !indexes::index_for(kind).matches_records(&bytes, &extents, format) {
            return Err(at(Error::integrity(format!("the index {kind} does not agree with the sidecar")))
                .with_hint("it belongs to other bytes: restore it from a copy, or convert the sources again"));
        }
    }
    Ok(())
}

/// Returns offset and length of every record.
fn record_extents(store: &dyn Store, shard: &ShardMeta) -> Result<Vec<(u64, u64)>> {
    let mut out = Vec::new();
    for batch in read_sidecar(store, &shard.sidecar())? {
        let number = |name| batch.column_by_name(name).and_then(|c| c.as_any().downcast_ref::<UInt64Array>());
        if let (Some(offsets), Some(lengths)) = (number("offset"), number("length")) {
            out.extend(offsets.values().iter().copied().zip(lengths.values().iter().copied()));
        }
    }
    Ok(out)
}

/// Returns an error unless the units of a compressed shard begin and end at record boundaries and a seek table lists
/// all of them.
fn check_frames(store: &Arc<dyn Store>, shard: &ShardMeta) -> Result<()> {
    if shard.codec.stream_extension().is_empty() || shard.body_bytes == 0 {
        return Ok(());
    }
    let Some(table) = read_frames(store, &shard.sidecar())? else { return Ok(()) };
    let body = (shard.body_offset, shard.body_offset.saturating_add(shard.body_bytes));
    if table.stored_range() != body {
        let (start, end) = table.stored_range();
        return Err(Error::integrity(format!(
            "expected a frame table of the bytes {} to {}, found {start} to {end}",
            body.0, body.1
        )));
    }
    if !matches!(shard.codec, Codec::Zstd(_)) {
        return Ok(());
    }
    let mut frames = table.to_frames();
    // The end of the shard is a frame of its own; only its size is needed.
    let one_more = Frames::seek_table_bytes(frames.units().map_or(0, <[_]>::len) + 1);
    let trailer = shard.bytes.saturating_sub(body.1).checked_sub(one_more).filter(|trailer| *trailer > 0);
    if let Some(stored) = trailer {
        frames.push(stored, shard.raw_bytes.saturating_sub(frames.raw_bytes()));
    }
    let expected = frames.seek_table();
    let found = store.get_range(&shard.path, shard.bytes.saturating_sub(expected.len() as u64)..shard.bytes)?;
    if found == expected {
        return Ok(());
    }
    Err(Error::integrity("expected the seek table of the frames at the end of the shard, found other bytes"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_keeps_its_indexes() {
        use IndexKind::{Dali, TfIndex, Wids};
        let tar = |asked: Option<&[IndexKind]>, old: Option<&[IndexKind]>| {
            choose_indexes(asked, old, OutputFormat::Tar, Codec::None)
        };
        assert_eq!(tar(None, None).unwrap(), [Dali]);
        assert_eq!(tar(Some(&[Wids, Dali, Wids]), None).unwrap(), [Dali, Wids]);
        assert_eq!(tar(Some(&[Wids, Dali]), Some(&[Dali, Wids])).unwrap(), [Dali, Wids]);
        assert_eq!(tar(None, Some(&[])).unwrap(), []);
        assert_eq!(tar(Some(&[]), None).unwrap(), []);
        assert!(tar(Some(&[Dali]), Some(&[])).is_err());
        assert!(tar(Some(&[TfIndex]), None).is_err());
        assert!(choose_indexes(None, Some(&[Dali]), OutputFormat::Tar, Codec::Gzip(6)).is_err());
        assert_eq!(choose_indexes(None, None, OutputFormat::TfRecord, Codec::None).unwrap(), [Dali, TfIndex]);
        assert_eq!(choose_indexes(None, None, OutputFormat::TfRecord, Codec::Gzip(6)).unwrap(), []);
    }
}
