//! What the log keeps of versions that were vacuumed: their entries, without what they referred to.
//!
//! They are rows of lists, so ten thousand versions take less than a megabyte and a few requests. `vacuum` adds them
//! with the entry by which the versions expire. Once it has deleted all that the old entries name, it deletes these.
//!
//! ```text
//! version     1 2 3 4 | 5 6 7       readable from 5; 2 has a tag
//! history     1 2 3 4 |             who did what, and when: what `--history` shows
//! log           2     | 5 6 7       what has to be read to open a version
//! ```

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema},
};

use crate::{
    dataset::{
        log::{bounds, entry::Entry},
        table::{self, TableWriter, growth, list::ListRef, sealed::seal_of, typed_column},
    },
    error::{Error, Result},
    id::Version,
    storage::{RESTORE_HINT, Store},
};

/// Versions of which the log keeps no more than this, with what it keeps.
pub(in crate::dataset) type Past = BTreeMap<Version, Entry>;

/// Returns an entry without what it refers to.
fn summarize_entry(entry: &Entry) -> Entry {
    Entry {
        shards: Vec::new(),
        runs: Vec::new(),
        lineage: Vec::new(),
        sources: Vec::new(),
        segments: Vec::new(),
        places: Vec::new(),
        duplicates: Vec::new(),
        history: Vec::new(),
        basis: Vec::new(),
        erasures: None,
        tags: BTreeMap::new(),
        corrections: Vec::new(),
        ..entry.clone()
    }
}

fn to_batch(entries: &[Entry]) -> Result<RecordBatch> {
    let failed = |e| Error::internal("encoding a log entry failed").with_cause(e);
    let texts = entries.iter().map(|entry| serde_json::to_string(&summarize_entry(entry)).map_err(failed));
    let columns: [ArrayRef; 2] = [
        Arc::new(UInt64Array::from_iter_values(entries.iter().map(|entry| entry.version.0))),
        Arc::new(StringArray::from_iter_values(texts.collect::<Result<Vec<_>>>()?)),
    ];
    let fields = vec![Field::new("version", DataType::UInt64, false), Field::new("entry", DataType::Utf8, false)];
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into())?)
}

/// Returns the lists with some more versions, in a list of this path together with those that are merged with it.
///
/// # Errors
/// When a list cannot be read, or the store fails.
pub(in crate::dataset) fn extend_lists(
    store: &Arc<dyn Store>,
    mut lists: Vec<ListRef>,
    entries: &[Entry],
    path: String,
) -> Result<Vec<ListRef>> {
    if entries.is_empty() {
        return Ok(lists);
    }
    let joined = growth::take_crowd(&mut lists, entries.len() as u64, 0, u64::MAX);
    let mut table = TableWriter::new(store.as_ref(), &path);
    joined.iter().try_for_each(|list| table::read_batches(store, list, &mut |rows| table.add_rows(rows)))?;
    table.add_rows(&to_batch(entries)?)?;
    if let Some((staged, rows)) = table.finish()? {
        let seal = seal_of(&staged)?;
        store.publish_staged(vec![staged])?;
        lists.push(ListRef { path, rows, root: None, seal });
    }
    Ok(lists)
}

/// Reads what lists keep of `oldest` and later versions.
///
/// # Errors
/// When a list cannot be read, or says what no entry says.
pub(in crate::dataset) fn read(store: &Arc<dyn Store>, lists: &[ListRef], oldest: Version) -> Result<Past> {
    let mut past = Past::new();
    for list in lists {
        let damaged = |what: &str| {
            Error::integrity(format!("the history is damaged: {what}"))
                .at_location(store.location().join(&list.path).to_string())
                .with_hint(RESTORE_HINT)
        };
        table::read_batches(store, list, &mut |rows| {
            let (versions, entries): (&UInt64Array, &StringArray) =
                (typed_column(rows, "version")?, typed_column(rows, "entry")?);
            for (version, text) in versions.values().iter().zip(entries.iter()) {
                if *version < oldest.0 {
                    continue;
                }
                let entry: Entry = serde_json::from_str(text.unwrap_or_default())
                    .map_err(|e| damaged("it has a row that is no entry").with_cause(e))?;
                bounds::check_entry(&entry).map_err(|e| damaged(e.message()))?;
                let refers = entry.shards.len() + entry.runs.len() + entry.sources.len() + entry.segments.len() > 0;
                if entry.version.0 != *version || refers {
                    return Err(damaged("it has a row that is the entry of another version"));
                }
                past.insert(entry.version, entry);
            }
            Ok(())
        })?;
    }
    Ok(past)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{dataset::log::entry, error::Kind, storage::RemoteStore};

    fn entry_of(version: u64) -> Entry {
        serde_json::from_value(serde_json::json!({
            "format": entry::FORMAT_VERSION, "version": version, "transaction": format!("{version:032x}"),
            "committed_at": "2026-01-01T00:00:00Z", "operation": "convert", "tool": "t",
            "arguments": {"id": "patient"},
            "counts": {"records_in": 0, "records_out": 0, "records_rejected": 0, "records_deduplicated": 0,
                "records_filtered": 0, "bytes_in": 0, "bytes_out": 0, "shards_added": 0, "shards_removed": 0},
            "settings": {"shard_format": "tar", "codec": "none", "target_shard": 1, "row_group": 1, "id": [],
                "subject": null},
            "totals": {"shards": 0, "records": 0, "bytes": 0}, "next_record": 0,
            "shards": [{
                "path": "x", "rows": 1, "root": "00".repeat(32),
                "seal": crate::codec::seal::Seal::for_bytes(b""),
            }],
            "runs": [], "sources": [], "segments": [], "root": "00".repeat(32),
        }))
        .unwrap()
    }

    #[test]
    fn what_is_kept_of_versions_is_read_back_from_few_lists() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let mut lists = Vec::new();
        for i in 0..100 {
            let more: Vec<Entry> = (3 * i + 1..=3 * i + 3).map(entry_of).collect();
            lists = extend_lists(&store, lists, &more, format!("_shardify/lists/{i}")).unwrap();
            assert!(lists.len() < 6, "{lists:?}");
        }
        assert_eq!(extend_lists(&store, lists.clone(), &[], "_shardify/lists/none".into()).unwrap(), lists);
        let past = read(&store, &lists, Version(7)).unwrap();
        assert!(past.keys().map(|version| version.0).eq(7..=300));
        let kept = &past[&Version(9)];
        assert_eq!((kept, kept.shards.len()), (&summarize_entry(&entry_of(9)), 0));
        assert_eq!((kept.root, &kept.arguments), (entry_of(9).root, &entry_of(9).arguments));
    }

    #[test]
    fn a_row_that_names_objects_or_another_version_is_damage() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        for (version, text) in [
            (3, serde_json::to_string(&entry_of(3)).unwrap()),
            (4, serde_json::to_string(&summarize_entry(&entry_of(3))).unwrap()),
            (3, "{".to_owned()),
        ] {
            let columns: [ArrayRef; 2] =
                [Arc::new(UInt64Array::from(vec![version])), Arc::new(StringArray::from(vec![text]))];
            let rows = RecordBatch::try_new(to_batch(&[entry_of(1)]).unwrap().schema(), columns.into()).unwrap();
            let path = format!("_shardify/lists/{version}");
            store.delete(&path).unwrap();
            let seal = table::write(store.as_ref(), &path, &rows, table::list_properties(&rows.schema())).unwrap();
            let list = ListRef { path, rows: 1, root: None, seal };
            assert_eq!(read(&store, &[list], Version(1)).unwrap_err().kind(), Kind::Integrity);
        }
    }
}
