//! What a lookup asks of a store: few requests, few of them one after the other, and right answers.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

#[path = "support/counted.rs"]
mod counted;
#[path = "support/scale.rs"]
mod scale;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arrow::array::StringArray;
use counted::{Counted, Request, Sums, sums};
use scale::{Scale, id, merge_index, new_shard, transaction};
use shardify::{
    dataset::{
        Arrangement, Dataset, HashPlan, HashWidth, IdColumn, IdKind, Numbers, NumbersWriter, Operation, Order,
        PlacesWriter, Publication, Scattered, SegmentRef, SegmentWriter, Segments, ShardOrder, SidecarColumns,
        SidecarWriter, SourceRow, SourceRuns, Transaction, find_each, find_hits,
    },
    id::{TransactionId, Version},
    storage::{RemoteStore, Store},
};

/// Long, so that a busy machine does not make requests follow one another that are sent together.
const DELAY: Duration = Duration::from_millis(60);

/// A dataset of 5,000,000 records in 500 shards, once as committed and once with a merged index.
fn built() -> (Arc<dyn Store>, Scale) {
    let scale = Scale { records: 5_000_000, shards: 500, growing: false };
    let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
    let dataset = Dataset::new(Counted::new(Arc::clone(&store), Duration::ZERO));
    let held: BTreeSet<_> = single().map(|record| scale.shard_of(record)).chain(together()).collect();
    let sidecars = scale.write_sidecars(&dataset, held).unwrap();
    let snapshot = scale.build(&dataset, &sidecars).unwrap();
    assert_eq!(snapshot.entry().segments.len(), 2);
    (store, scale)
}

/// Records that are looked up one by one.
fn single() -> impl Iterator<Item = u64> {
    (0..12).map(|i| i * 416_667 + 1_234 * i)
}

/// Shards of records that are looked up together.
fn together() -> impl Iterator<Item = u64> {
    (7..500).step_by(50)
}

/// Both parts look at one dataset, because making it takes longer than they do; the second changes its index.
#[test]
fn ids_among_five_million_records() {
    let (store, scale) = built();
    one_id_takes_four_round_trips_and_six_reads(&store, scale);
    absent_ids_are_absent_and_many_are_found_together(&store, scale);
}

fn one_id_takes_four_round_trips_and_six_reads(store: &Arc<dyn Store>, scale: Scale) {
    let counted = Counted::new(Arc::clone(store), DELAY);
    // A command knows nothing yet of what others before it have read.
    let slow = || Dataset::new(Arc::clone(&counted) as Arc<dyn Store>);
    let mut second_reads = 0;
    for record in single() {
        let shard = scale.shard_of(record);
        counted.take();
        let hits = find_hits(&slow().open_newest().unwrap(), &id(record)).unwrap();
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

fn absent_ids_are_absent_and_many_are_found_together(store: &Arc<dyn Store>, scale: Scale) {
    let dataset = Dataset::new(Arc::clone(store));
    // None of those that the other part has looked in.
    let snapshot = dataset.open_newest().unwrap();
    assert!(find_hits(&snapshot, "nobody").unwrap().is_empty());
    let records: Vec<u64> = together().flat_map(|shard| scale.first(shard)..scale.first(shard) + 300).collect();
    let mut ids: Vec<String> = records.iter().map(|record| id(*record)).collect();
    ids.extend((0..1_000).map(|i| format!("nobody {i}")));
    let check = |dataset: &Dataset| {
        let mut found = Vec::new();
        find_each(&dataset.open_newest().unwrap(), &ids, &mut |number, hit| {
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
    let merged: Vec<SegmentRef> = dataset.open_newest().unwrap().entry().segments.clone();
    assert_eq!(merged.iter().map(|segment| segment.pairs).sum::<u64>(), scale.records);
    let bytes: u64 = merged.iter().map(|segment| segment.bytes).sum();
    assert!(bytes * 10 < scale.records * 60, "{bytes}");
    check(&dataset);
}

/// What finding each of some records takes.
fn lookups(store: &Arc<dyn Store>, records: &[u64]) -> Vec<(Sums, Vec<Request>)> {
    let counted = Counted::new(Arc::clone(store), DELAY);
    let slow = Dataset::new(Arc::clone(&counted) as Arc<dyn Store>);
    let look = |record: &u64| {
        let hits = find_hits(&slow.open_newest().unwrap(), &id(*record)).unwrap();
        assert_eq!(hits.iter().map(|hit| hit.record).collect::<Vec<_>>(), [*record]);
        let requests = counted.take();
        (sums(&requests), requests)
    };
    records.iter().map(look).collect()
}

#[test]
fn larger_shards_take_a_round_trip_more() {
    // Rows of a shard, and round trips.
    for (shards, most) in [(105, 4), (5, 5)] {
        let scale = Scale { records: 2_000_000, shards, growing: false };
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let dataset = Dataset::new(Counted::new(Arc::clone(&store), Duration::ZERO));
        let records: Vec<u64> = (0..6).map(|i| 100_000 + 313_131 * i).collect();
        let held: BTreeSet<_> = records.iter().map(|record| scale.shard_of(*record)).collect();
        let sidecars = scale.write_sidecars(&dataset, held).unwrap();
        scale.build(&dataset, &sidecars).unwrap();
        let found = lookups(&store, &records);
        // A guess in the id index may be wrong, and a busy machine makes requests wait that need not, but not always.
        assert!(found.iter().any(|(sums, _)| sums.depth <= most), "{shards}: {found:#?}");
        let (gets, bytes) = if most == 4 { (7, 500_000) } else { (12, 600_000) };
        assert!(found.iter().all(|(sums, _)| sums.gets <= gets && sums.bytes_read < bytes), "{shards}: {found:#?}");
    }
}

#[test]
fn ids_that_ascend_take_a_round_trip_more_and_a_fraction_of_the_room() {
    let scale = Scale { records: 5_000_000, shards: 500, growing: true };
    let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
    let dataset = Dataset::new(Counted::new(Arc::clone(&store), Duration::ZERO));
    let records: Vec<u64> = (0..8).map(|i| 100_000 + 613_131 * i).collect();
    let held: BTreeSet<_> = records.iter().map(|record| scale.shard_of(*record)).chain(together()).collect();
    let sidecars = scale.write_sidecars(&dataset, held).unwrap();
    let segments = scale.build(&dataset, &sidecars).unwrap().entry().segments.clone();
    assert!(segments.len() == 2 && segments.iter().all(|segment| segment.ordered), "{segments:?}");
    let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    assert!(bytes * 5 < scale.records, "{bytes}");
    let found = lookups(&store, &records);
    assert!(found.iter().any(|(sums, _)| sums.depth <= 5), "{found:#?}");
    assert!(found.iter().all(|(sums, _)| sums.gets <= 9 && sums.bytes_read < 500_000), "{found:#?}");
    absent_ids_are_absent_and_many_are_found_together(&store, scale);
}

/// A set of sorted shards, whose records are in no order.
fn sorted(records: u64, shards: u64) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
    let dataset = Dataset::new(Counted::new(Arc::clone(&store), Duration::ZERO));
    let rows = records / shards;
    // Odd and no multiple of five, so that no two records have one place.
    let place = |record: u64| record * 7_919 % records;
    let mut at = vec![0; usize::try_from(records).unwrap()];
    (0..records).for_each(|record| at[usize::try_from(place(record)).unwrap()] = record);
    let mut places = PlacesWriter::new(store.as_ref(), "set").unwrap();
    let plan = HashPlan::new(HashWidth::Five);
    let mut index = SegmentWriter::new(Arc::clone(&store), IdKind::Record, &plan, TransactionId::fresh());
    let ids: StringArray = (0..records).map(|record| Some(id(record))).collect();
    for (row, hash) in IdColumn::from(ids).to_hashes().iter() {
        let (record, place) = (row as u64, place(row as u64));
        index.push(hash, record).unwrap();
        places.push(record, place / rows, place % rows).unwrap();
    }
    let (places, mut staged): (Vec<_>, Vec<_>) = places.finish().unwrap().into_iter().unzip();
    let segments = Segments::finish_all([index]).unwrap();
    staged.extend(segments.staged);
    let mut adds = Vec::new();
    for (number, numbers) in (0..shards).zip(at.chunks(usize::try_from(rows).unwrap())) {
        let path = format!("0123456789ab/{number:06}.parquet");
        let mut shard = new_shard(path.clone(), 0, rows);
        let order = Order { by: Arrangement::Sort, columns: vec!["x".into()] };
        shard.meta.order = Some(ShardOrder { order, set: "set".into() });
        shard.scattered = Some(Scattered { span: records, set: "set".into(), shard: number, base: None });
        adds.push(shard);
        let mut beside = NumbersWriter::create(store.as_ref(), &path).unwrap();
        numbers.iter().for_each(|record| beside.push(*record, Version(1)).unwrap());
        let mut sidecar = SidecarWriter::create(store.as_ref(), &path, false).unwrap();
        let ids: StringArray = numbers.iter().map(|record| Some(id(*record))).collect();
        let columns = SidecarColumns {
            record_ids: Some(ids.into()),
            subject_ids: None,
            extents: None,
            sources: SourceRuns::for_source(&"a.csv".into(), numbers.len()),
            rows: Some(numbers.iter().map(|record| record + 1).collect()),
            hashes: numbers.iter().map(|record| record.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect(),
            fingerprints: None,
        };
        sidecar.append_rows(columns).unwrap();
        staged.extend([beside.finish().unwrap(), sidecar.finish().unwrap()]);
    }
    let run = transaction();
    let mut publication = Publication::begin(&dataset, &run.id, Operation::Convert, Version(0)).unwrap();
    publication.publish_shards(adds.iter_mut(), staged).unwrap();
    let sources = vec![SourceRow {
        uri: "file:///a.csv".into(),
        name: "a.csv".into(),
        bytes: 1,
        modified: jiff::Timestamp::UNIX_EPOCH,
        etag: None,
        hash: 1,
        records,
        first_record: 0,
        other_firsts: Vec::new(),
        version: Version(0),
        removed: None,
        arrays: None,
        part_hash: None,
    }];
    let transaction = Transaction {
        adds,
        places,
        segments: segments.refs,
        sources: &sources,
        numbers: Numbers::Fresh(records),
        ..run
    };
    publication.commit(&transaction).unwrap();
    store
}

#[test]
fn a_record_of_sorted_shards_takes_a_round_trip_for_its_place() {
    for (rows, most) in [(10_000, 5), (100_000, 6)] {
        let store = sorted(200_000, 200_000 / rows);
        let found = lookups(&store, &[7, 60_000, 123_456, 199_990]);
        assert!(found.iter().any(|(sums, _)| sums.depth <= most), "{rows}: {found:#?}");
        // Entry, bucket and guess, runs, sources, places and guess, sidecar, numbers; of larger shards their pages,
        // too.
        let gets = if most == 5 { 10 } else { 16 };
        assert!(found.iter().all(|(sums, _)| sums.gets <= gets), "{rows}: {found:#?}");
    }
}
