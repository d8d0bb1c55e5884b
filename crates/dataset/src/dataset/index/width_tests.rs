//! Both widths of hashes must give the same index but for the bytes of the hashes that one does not have.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::StringArray;

use super::{
    MergedSegment, SegmentRef, SegmentTree, SegmentWriter, Segments, known_leaf, lookup_many, lookup_one,
    merge_into_one, read_segment,
};
use crate::{
    dataset::{
        ids::{
            IdKind, Wanted,
            column::IdColumn,
            width::{HashPlan, HashWidth},
        },
        table,
    },
    error::Kind,
    events::Cancel,
    id::{IdHash, TransactionId},
    storage::{RemoteStore, Store},
};

const WIDTHS: [HashWidth; 2] = [HashWidth::Eight, HashWidth::Five];

fn memory() -> Arc<dyn Store> {
    Arc::new(RemoteStore::in_memory().unwrap())
}

fn noise(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Writes ids of consecutive records, a part at a time, as a run does: only what the plan asks for is hashed before.
fn written(store: &Arc<dyn Store>, width: HashWidth, parts: &[Vec<Option<String>>]) -> (Vec<SegmentRef>, u64) {
    let plan = HashPlan::new(width);
    let mut writer = SegmentWriter::new(Arc::clone(store), IdKind::Record, &plan, TransactionId::fresh());
    let mut record = 0;
    for part in parts {
        let ids = IdColumn::from(part.iter().cloned().collect::<StringArray>());
        writer.push_all(plan.ids_for_index(IdKind::Record, Some(&ids)).into_encoded().unwrap(), record).unwrap();
        record += part.len() as u64;
    }
    let Segments { refs, staged, repeated } = Segments::finish_all([writer]).unwrap();
    store.publish_staged(staged).unwrap();
    (refs, repeated)
}

/// Returns all pairs, with hashes as far as both widths have them.
fn pairs(store: &Arc<dyn Store>, segments: &[SegmentRef]) -> Vec<(IdHash, u64)> {
    let mut all: Vec<(IdHash, u64)> = Vec::new();
    for segment in segments {
        let own = read_segment(store, segment).unwrap();
        assert!(own.is_sorted() && own.len() as u64 == segment.pairs);
        all.extend(own.into_iter().map(|(hash, record)| (HashWidth::Five.truncate_hash(hash), record)));
    }
    all.sort_unstable();
    all
}

fn found(store: &Arc<dyn Store>, segments: &[SegmentRef], id: &str) -> Vec<u64> {
    let wanted = Wanted { hash: IdHash::from_id(id), id };
    let mut records: Vec<u64> = segments.iter().flat_map(|one| lookup_one(store, one, wanted).unwrap()).collect();
    records.sort_unstable();
    records
}

/// Checks that both widths have the same pairs, and returns the forms of the segments of each.
fn compared(parts: &[Vec<Option<String>>]) -> [Vec<(bool, u64)>; 2] {
    let made = WIDTHS.map(|width| {
        let store = memory();
        let (segments, repeated) = written(&store, width, parts);
        (store, segments, repeated)
    });
    let [(eight, whole, _), (five, cut, _)] = &made;
    assert!(pairs(eight, whole) == pairs(five, cut));
    assert_eq!(made[0].2, made[1].2, "ids that occur again");
    let ids: Vec<&String> = parts.iter().flatten().flatten().collect();
    for id in ids.iter().step_by(1 + ids.len() / 9) {
        assert!(!found(five, cut, id).is_empty(), "{id}");
        assert_eq!(found(five, cut, id), found(eight, whole, id), "{id}");
    }
    assert!(found(five, cut, "nobody").is_empty());
    for (segment, width) in
        whole.iter().map(|one| (one, HashWidth::Eight)).chain(cut.iter().map(|one| (one, HashWidth::Five)))
    {
        assert_eq!((segment.hashes, segment.root.is_some()), (width, width.has_proofs()));
        assert!(known_leaf(segment).is_some());
    }
    made.map(|(_, segments, _)| segments.iter().map(|one| (one.ordered, one.pairs)).collect())
}

fn ids(numbers: impl Iterator<Item = u64>) -> Vec<Option<String>> {
    numbers.map(|n| Some(format!("{n:07}"))).collect()
}

#[test]
fn ids_of_any_order_have_the_same_pairs() {
    let ascend = |from: u64, count: u64| ids(from..from + count);
    let with_nulls = |from: u64, count: u64| -> Vec<Option<String>> {
        (from..from + count).map(|n| (n % 3 > 0).then(|| format!("{n:07}"))).collect()
    };
    let long = |from: u64| (from..from + 3_000).map(|n| Some(format!("{:05}{:030}", n, noise(n)))).collect::<Vec<_>>();
    let cases: [&[Vec<Option<String>>]; 9] = [
        &[],
        &[vec![], vec![None, None], vec![]],
        &[ascend(0, 70_000), ascend(70_000, 3), ascend(70_002, 10)],
        &[ascend(500, 1_000), ascend(0, 1_000), ascend(2_000, 1_000)],
        &[ascend(0, 1_000), with_nulls(1_000, 1_000), ascend(2_000, 50_000)],
        &[ids([3, 1, 2].into_iter()), ascend(5, 40_000), ascend(45_005, 1)],
        &[ids([7; 40].into_iter()), ids([7, 7, 8].into_iter()), ids([8].into_iter())],
        &[long(0), long(3_000), long(1)],
        &[ascend(0, 40_000), (0..40_000).map(|n| Some(format!("{:07}{:040}", 50_000 + n, noise(n)))).collect()],
    ];
    for parts in cases {
        let [eight, five] = compared(parts);
        assert_eq!(eight, five);
    }
}

#[test]
fn parts_in_random_orders_have_the_same_pairs() {
    for seed in 0..20 {
        let mut at = 0;
        let mut random = |below: u64| {
            at += 1;
            noise(seed << 20 | at) % below
        };
        let mut parts = Vec::new();
        let mut next = 0;
        for _ in 0..random(12) {
            let rows = [0, 1, 2, 100, 33_000][usize::try_from(random(5)).unwrap()];
            match random(6) {
                0 => parts.push(ids((0..rows).map(|n| noise(n + seed) % 1_000))),
                1 => parts.push((0..rows).map(|n| (n % 7 > 0).then(|| n.to_string())).collect()),
                _ => {
                    parts.push(ids((0..rows).map(|n| next + n / 2)));
                    next += rows;
                }
            }
        }
        let [eight, five] = compared(&parts);
        assert_eq!(eight, five, "{seed}");
    }
}

#[test]
fn many_ids_that_ascend_are_a_segment_before_others_follow() {
    const MANY: u64 = 1 << 20;
    let all = ids(0..MANY + 1_000);
    let parts: Vec<Vec<Option<String>>> = all.chunks(50_000).map(<[_]>::to_vec).collect();
    let [eight, five] = compared(&[parts.clone(), vec![ids(5..10), ids(7..2_000)]].concat());
    assert_eq!(eight, five);
    assert_eq!(eight, [(true, MANY + 1_000), (false, 1_998)]);
    // A record without an id, and then the rest.
    let [eight, five] =
        compared(&[parts, vec![vec![None, Some("0".into())]], vec![ids(MANY * 2..MANY * 2 + 9)]].concat());
    assert_eq!((&eight, &eight[0]), (&five, &(true, MANY + 1_000)));
    // Ids of which each takes more than five bytes, but less than eight.
    let six = |n: u64| Some(format!("{n:08}{:012x}", noise(n) >> 16));
    let parts: Vec<Vec<Option<String>>> =
        (0..22).map(|part| (part * 50_000..(part + 1) * 50_000).map(six).collect()).collect();
    let [eight, five] = compared(&parts);
    assert!(eight[0].0 && five.iter().all(|(ordered, _)| !ordered), "{eight:?} {five:?}");
}

#[test]
fn hashes_with_the_same_first_bytes_are_all_found_in_the_order_of_records() {
    let store = memory();
    let plan = HashPlan::new(HashWidth::Five);
    // Four hashes for each beginning; later records have lesser ones.
    let hash =
        |record: u64| IdHash(HashWidth::Five.truncate_hash(IdHash(noise(record % 2_500))).0 | (3 - record / 2_500));
    let mut segments = Vec::new();
    for half in [0..5_000_u64, 5_000..10_000] {
        let mut writer = SegmentWriter::new(Arc::clone(&store), IdKind::Record, &plan, TransactionId::fresh());
        half.clone().for_each(|record| writer.push(hash(record), record - half.start).unwrap());
        let made = Segments::finish_all([writer]).unwrap();
        assert_eq!(made.repeated, 0, "they are different");
        store.publish_staged(made.staged).unwrap();
        segments.extend(made.refs.into_iter().map(|segment| segment.shifted_by(half.start)));
    }
    let MergedSegment { output, staged, .. } =
        merge_into_one(&store, segments.clone(), 1 << 20, &Cancel::default()).unwrap();
    store.publish_staged(staged).unwrap();
    assert!(output.hashes == HashWidth::Five && output.root.is_none());
    assert!(pairs(&store, std::slice::from_ref(&output)) == pairs(&store, &segments));
    let mut wanted: Vec<Wanted<'_>> =
        (0..10_000).step_by(3).map(|record| Wanted { hash: hash(record), id: "" }).collect();
    wanted.sort_unstable();
    let mut all: BTreeMap<IdHash, Vec<u64>> = BTreeMap::new();
    for (hash, record) in lookup_many(&store, &output, &wanted).unwrap() {
        all.entry(hash).or_default().push(record);
    }
    assert_eq!(all.len(), wanted.len());
    for record in (0..10_000).step_by(3) {
        let same: Vec<u64> = (0..4).map(|i| record % 2_500 + 2_500 * i).collect();
        assert_eq!(all[&hash(record)], same);
        assert_eq!(lookup_one(&store, &output, Wanted { hash: hash(record), id: "" }).unwrap(), same);
    }
    assert!(lookup_one(&store, &output, Wanted { hash: IdHash(hash(7).0 + (1 << 24)), id: "" }).unwrap().is_empty());
}

#[test]
fn five_bytes_take_less_and_their_seals_make_the_leaf() {
    let random: Vec<Option<String>> = (0..1_500_000).map(|n| Some(format!("{:016x}", noise(n)))).collect();
    let made = WIDTHS.map(|width| {
        let store = memory();
        let (segments, _) = written(&store, width, std::slice::from_ref(&random));
        (store, segments[0].clone())
    });
    let [(_, eight), (store, five)] = made;
    assert_eq!((eight.buckets, five.buckets), (2, 2));
    assert!(eight.bytes > 1_500_000 * 8 && five.bytes < 1_500_000 * 6, "{} {}", eight.bytes, five.bytes);
    let leaf = known_leaf(&five).unwrap();
    assert!(leaf.starts_with("sealed record 0 1500000 2 "), "{leaf}");
    assert_eq!(SegmentTree::new(&store, &five, None).unwrap().text, leaf);
    let refused = SegmentTree::new(&store, &five, Some(IdHash::from_id("x"))).unwrap_err();
    assert_eq!(refused.kind(), Kind::Usage);
    // The leaf follows from what the buckets are.
    let mut other = five.clone();
    other.seals[1].hash[0] ^= 1;
    assert_ne!(known_leaf(&other), Some(leaf));
    let footer = table::open_table(&store, &five.sealed_bucket(0).unwrap()).unwrap();
    let about = footer.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
    assert!(about.iter().all(|pair| pair.key != "shardify.blake3"));
    // The log says which hashes a segment has; another statement is damage, not an empty answer.
    let wrong = SegmentRef { hashes: HashWidth::Eight, ..five.clone() };
    assert!(lookup_one(&store, &wrong, Wanted { hash: IdHash::from_id("x"), id: "x" }).is_err());
    assert!(read_segment(&store, &wrong).is_err());
}
