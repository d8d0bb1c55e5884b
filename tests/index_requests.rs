//! What a lookup asks of a store: few requests, few of them one after the other, and right answers.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

#[path = "support/counted.rs"]
mod counted;
#[path = "support/scale.rs"]
mod scale;

use std::{sync::Arc, time::Duration};

use counted::{Counted, sums};
use scale::{Scale, id, merge_index};
use shardify::{
    dataset::{Dataset, SegmentRef, find, find_each},
    storage::{RemoteStore, Store},
};

/// Long, so that a busy machine does not make requests follow one another that are sent together.
const DELAY: Duration = Duration::from_millis(60);

/// A dataset of 5,000,000 records in 500 shards, once as committed and once with a merged index.
fn built() -> (Arc<dyn Store>, Scale) {
    let scale = Scale { records: 5_000_000, shards: 500 };
    let store: Arc<dyn Store> = Arc::new(RemoteStore::memory().unwrap());
    let dataset = Dataset::new(Arc::clone(&store));
    let snapshot = scale.build(&dataset).unwrap();
    assert_eq!(snapshot.entry().segments.len(), 2);
    (store, scale)
}

#[test]
fn one_id_takes_four_round_trips_and_six_reads() {
    let (store, scale) = built();
    let dataset = Dataset::new(Arc::clone(&store));
    let counted = Counted::new(Arc::clone(&store), DELAY);
    let slow = Dataset::new(Arc::clone(&counted) as Arc<dyn Store>);
    let mut second_reads = 0;
    for i in 0..12 {
        let record = i * 416_667 + 1_234 * i;
        let shard = scale.shard_of(record);
        scale.write_sidecar(&dataset, shard).unwrap();
        counted.take();
        let hits = find(&slow.open().unwrap(), &id(record)).unwrap();
        let requests = counted.take();
        let sums = sums(&requests);
        assert_eq!(hits.len(), 1, "{record}");
        assert_eq!((hits[0].record, &hits[0].places[0].shard), (record, &Scale::path(shard)));
        assert_eq!(hits[0].places[0].ordinal, record - scale.first(shard));
        assert!(hits[0].uri.as_deref().unwrap().ends_with(&hits[0].source));
        // Two segments: that is two reads more than of one.
        assert_eq!((sums.listings, sums.heads), (1, 0), "{requests:?}");
        assert!(sums.bytes_read < 700_000, "{requests:?}");
        match (sums.gets, sums.depth) {
            (8, 4) => {}
            // A guess that was wrong.
            (9..=10, 5) => second_reads += 1,
            _ => panic!("{sums:?} {requests:#?}"),
        }
    }
    assert!(second_reads < 2, "{second_reads}");
}

#[test]
fn absent_ids_are_absent_and_many_are_found_together() {
    let (store, scale) = built();
    let dataset = Dataset::new(Arc::clone(&store));
    (0..500).step_by(50).for_each(|shard| scale.write_sidecar(&dataset, shard).unwrap());
    let snapshot = dataset.open().unwrap();
    assert!(find(&snapshot, "nobody").unwrap().is_empty());
    let records: Vec<u64> =
        (0..500).step_by(50).flat_map(|shard| scale.first(shard)..scale.first(shard) + 300).collect();
    let mut ids: Vec<String> = records.iter().map(|record| id(*record)).collect();
    ids.extend((0..1_000).map(|i| format!("nobody {i}")));
    let check = |dataset: &Dataset| {
        let mut found = Vec::new();
        find_each(&dataset.open().unwrap(), &ids, &mut |number, hit| {
            assert_eq!(hit.record, records[number]);
            found.push(number);
            Ok(())
        })
        .unwrap();
        assert!(found.into_iter().eq(0..records.len()));
    };
    check(&dataset);
    // Segments of other sizes stay as they are; these are merged by hand.
    assert!(merge_index(&dataset, 1 << 28).unwrap().is_empty());
    let merged: Vec<SegmentRef> = dataset.open().unwrap().entry().segments.clone();
    assert_eq!(merged.iter().map(|segment| segment.pairs).sum::<u64>(), scale.records);
    let bytes: u64 = merged.iter().map(|segment| segment.bytes).sum();
    assert!(bytes * 10 < scale.records * 88, "{bytes}");
    check(&dataset);
}
