//! Reading of consecutive rows of a sidecar.
//!
//! A large shard may be cut into many: each of them needs its own rows, and to decode all rows for each would take time
//! that grows with the square of the rows. Row groups before and after the range are not read.

use std::{ops::Range, sync::Arc};

use arrow::array::RecordBatch;

use super::check_columns;
use crate::{
    dataset::table::{self, sealed::Sealed},
    error::{Error, Result},
    storage::Store,
};

/// Returns some consecutive rows of a sidecar, as batches with the columns of the table.
///
/// # Errors
/// When it is missing, damaged or shorter.
pub fn read_range(store: &Arc<dyn Store>, sidecar: &Sealed, rows: Range<u64>) -> Result<Vec<RecordBatch>> {
    let damaged = |e: Error| table::damage_error(e, "the sidecar is damaged", sidecar.display_location(store.as_ref()));
    let builder = table::open_table(store, sidecar)?;
    let read = table::catch_panics(|| {
        let (mut groups, mut first, mut at) = (Vec::new(), None, 0_u64);
        for (number, group) in builder.metadata().row_groups().iter().enumerate() {
            let end = at.saturating_add(u64::try_from(group.num_rows()).unwrap_or(0));
            if at < rows.end && rows.start < end {
                groups.push(number);
                first.get_or_insert(at);
            }
            at = end;
        }
        let place = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
        let skipped = rows.start.saturating_sub(first.unwrap_or(0));
        let reader = builder.with_row_groups(groups).with_offset(place(skipped));
        let reader = reader.with_limit(place(rows.end - rows.start)).build().map_err(table::parquet_error)?;
        let batches: Vec<RecordBatch> = reader.map(|batch| batch.map_err(Error::from)).collect::<Result<_>>()?;
        check_columns(&batches)?;
        Ok(batches)
    })
    .map_err(damaged)?;
    let found: u64 = read.iter().map(|batch| batch.num_rows() as u64).sum();
    if found == rows.end - rows.start {
        return Ok(read);
    }
    Err(Error::integrity(format!("expected rows {} to {}, found {found} of them", rows.start, rows.end))
        .at_location(sidecar.display_location(store.as_ref())))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::UInt64Array;

    use super::*;
    use crate::{
        dataset::sidecar::{RowNumbers, SidecarColumns, SidecarWriter, SourceRuns},
        storage::RemoteStore,
    };

    #[test]
    fn a_range_has_its_rows_in_any_row_group() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let mut writer = SidecarWriter::create_at(store.as_ref(), "sidecar", false).unwrap();
        for part in 0..4_u64 {
            writer
                .append_rows(SidecarColumns {
                    record_ids: None,
                    subject_ids: None,
                    extents: None,
                    sources: SourceRuns::for_source(&"a".into(), 100_000),
                    rows: Some((part * 100_000..(part + 1) * 100_000).collect::<RowNumbers>()),
                    hashes: vec![7; 100_000].into(),
                    fingerprints: None,
                })
                .unwrap();
        }
        let staged = writer.finish().unwrap();
        let sidecar = Sealed::from_staged(&staged).unwrap();
        store.publish_staged(vec![staged]).unwrap();
        for range in [0..1, 0..400_000, 99_999..100_001, 250_000..250_000, 399_999..400_000, 123_456..333_333] {
            let batches = read_range(&store, &sidecar, range.clone()).unwrap();
            let rows = batches
                .iter()
                .flat_map(|batch| table::typed_column::<UInt64Array>(batch, "row").unwrap().values().to_vec());
            assert!(rows.eq(range.clone()), "{range:?}");
        }
        assert!(read_range(&store, &sidecar, 399_999..400_001).is_err());
    }
}
