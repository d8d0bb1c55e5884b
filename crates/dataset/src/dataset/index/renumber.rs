//! Segments of another dataset that has some of the records, under new numbers.
//!
//! ```text
//! segment    b=0000  hash | record      pairs of records that are not kept are omitted,
//!            b=0001  ...                the others get their new numbers, in the same order
//!               \------> new segment    b=0000 ...: of fewer buckets if few pairs are left
//! ```
//!
//! If all records keep their numbers, buckets are copied byte for byte.

use std::{io::Write, ops::Range, sync::Arc};

use rayon::prelude::*;

use super::{
    BUCKET_PAIRS, BucketWriter, SegmentRef, Segments, WrittenBucket, ordered, read::bucket_pairs, segment::seals_of,
    sum,
};
use crate::{
    dataset::{
        ids::numbers::Renumbering,
        table::{
            self,
            paths::segment_path,
            sealed::{self, Sealed},
        },
    },
    error::Result,
    events::Cancel,
    id::TransactionId,
    storage::{Staged, Store},
};

/// Writes segments for another dataset, whose records are those that a numbering keeps. Their buckets are not published
/// yet.
///
/// # Errors
/// When a bucket is missing or damaged, a store fails, or the run is cancelled.
pub fn renumber_segments(
    from: &Arc<dyn Store>,
    to: &dyn Store,
    segments: &[SegmentRef],
    numbering: &Renumbering,
    transaction: &TransactionId,
    cancel: &Cancel,
) -> Result<Segments> {
    let mut out = Segments::default();
    for segment in segments {
        let name = format!("{}/{transaction}-{}", segment.kind.name(), out.refs.len());
        let made = SegmentRef { path: segment_path(&name), ..segment.clone() };
        if numbering.is_identity() {
            for bucket in 0..segment.buckets {
                cancel.check()?;
                out.staged.push(copy_bucket(from, to, &segment.sealed_bucket(bucket)?, &made.bucket_path(bucket))?);
            }
            out.refs.push(made);
            continue;
        }
        let made = SegmentRef { buckets: bucket_count(segment, numbering), record_base: 0, ..made };
        let merged = segment.buckets / made.buckets;
        let write = |bucket: u64| {
            cancel.check()?;
            match segment.ordered {
                true => ordered::rewrite_ordered(from, to, segment, &made, &|record| numbering.new_number(record)),
                false => write(from, to, segment, bucket * merged..(bucket + 1) * merged, &made, bucket, numbering),
            }
        };
        let buckets = (0..made.buckets).into_par_iter().map(write).collect::<Result<Vec<WrittenBucket>>>()?;
        let pairs = buckets.iter().map(|bucket| bucket.pairs).sum();
        if pairs == 0 {
            continue;
        }
        out.refs.push(SegmentRef {
            pairs,
            bytes: buckets.iter().map(|bucket| bucket.bytes).sum(),
            root: sum::root_of_written(&buckets),
            seals: seals_of(&buckets)?,
            ..made
        });
        out.staged.extend(buckets.into_iter().map(|bucket| bucket.staged));
    }
    Ok(out)
}

/// Returns the number of buckets of a new segment, by the share of the pairs that are kept.
fn bucket_count(segment: &SegmentRef, numbering: &Renumbering) -> u64 {
    let kept = segment.pairs.min(numbering.record_count());
    kept.div_ceil(BUCKET_PAIRS).max(1).next_power_of_two().min(segment.buckets)
}

/// Writes a bucket of the kept pairs of consecutive old buckets.
fn write(
    from: &Arc<dyn Store>,
    to: &dyn Store,
    segment: &SegmentRef,
    old: Range<u64>,
    made: &SegmentRef,
    bucket: u64,
    numbering: &Renumbering,
) -> Result<WrittenBucket> {
    let mut written = BucketWriter::create(to, made, bucket)?;
    let number = |record: u64| numbering.new_number(segment.record_base.saturating_add(record));
    for old in old {
        for batch in table::read(from.as_ref(), &segment.sealed_bucket(old)?)? {
            let pairs = bucket_pairs(segment.hashes, &batch)?.into_iter();
            let kept: Vec<(u64, u64)> = pairs.filter_map(|(hash, record)| Some((hash, number(record)?))).collect();
            written.push_all(&kept)?;
        }
    }
    written.finish()
}

/// Copies a bucket into another store; its seal is unchanged.
fn copy_bucket(from: &Arc<dyn Store>, to: &dyn Store, bucket: &Sealed, path: &str) -> Result<Staged> {
    let mut sink = to.create_sink(path)?;
    sealed::copy_sealed(from, bucket, &mut |bytes| Ok(sink.write_all(bytes)?))?;
    Ok(sink.finish()?.with_seal(Some(bucket.seal)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{
        dataset::{
            ids::{IdKind, Wanted, numbers::NumberSet, width::HashPlan},
            index::{SegmentWriter, lookup_one, read_segment},
        },
        id::IdHash,
        storage::RemoteStore,
    };

    #[test]
    fn exactly_the_kept_ids_are_found_under_their_new_numbers() {
        let (from, to): (Arc<dyn Store>, Arc<dyn Store>) =
            (Arc::new(RemoteStore::in_memory().unwrap()), Arc::new(RemoteStore::in_memory().unwrap()));
        let id = |record: u64| IdHash::from_id(&format!("R{record}"));
        let mut writer =
            SegmentWriter::new(Arc::clone(&from), IdKind::Record, &HashPlan::default(), TransactionId::fresh());
        (0..3_000_000_u64).for_each(|record| writer.push(id(record), record).unwrap());
        let Segments { refs, staged, .. } = Segments::finish_all([writer]).unwrap();
        assert_eq!(refs[0].buckets, 4);
        from.publish_staged(staged).unwrap();
        let mut kept = NumberSet::default();
        (0..3_000_000).filter(|record| record % 7 == 3).for_each(|record| kept.insert_range(record, 1));
        let (numbering, run, cancel) = (Renumbering::from_kept(kept), TransactionId::fresh(), Cancel::default());
        let made = renumber_segments(&from, to.as_ref(), &refs, &numbering, &run, &cancel).unwrap();
        to.publish_staged(made.staged).unwrap();
        let [segment] = made.refs.as_slice() else { panic!("expected one segment") };
        assert_eq!((segment.buckets, segment.pairs), (1, 428_571));
        assert!(read_segment(&to, segment).unwrap().iter().all(|(hash, new)| *hash == id(new * 7 + 3)));
        let find = |record: u64| {
            let wanted = Wanted { hash: id(record), id: &format!("R{record}") };
            lookup_one(&to, segment, wanted).unwrap()
        };
        assert_eq!(find(10), [1]);
        assert!(find(11).is_empty());
        let (identity, run) = (Renumbering::identity(3_000_000), TransactionId::fresh());
        let whole = renumber_segments(&from, to.as_ref(), &refs, &identity, &run, &cancel).unwrap();
        to.publish_staged(whole.staged).unwrap();
        let [copied] = whole.refs.as_slice() else { panic!("expected one segment") };
        assert_eq!(read_segment(&to, copied).unwrap(), read_segment(&from, &refs[0]).unwrap());
    }
}
