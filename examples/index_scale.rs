//! How the id index and the log behave as they grow: builds datasets without data and measures lookups.
//!
//! ```text
//! cargo run --release --example index_scale -- find RECORDS [SHARDS] --folder FOLDER     ids in any order
//! cargo run --release --example index_scale -- grow RECORDS [SHARDS] --folder FOLDER     ids that ascend
//! cargo run --release --example index_scale -- open VERSIONS SHARDS_EACH --folder FOLDER
//! ```
//! `find` needs about 18 bytes of disk for each record while it merges, and half of that afterwards; the folder is
//! removed at the end. Prints one JSON object per measurement.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures and removes what it made"
)]

#[path = "../tests/support/counted.rs"]
mod counted;
#[path = "../tests/support/scale.rs"]
mod scale;

use std::{
    collections::{BTreeSet, HashSet},
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use counted::{Counted, Sums, sums};
use rayon::prelude::*;
use scale::{Scale, id, merge_index, new_shard, transaction};
use serde_json::json;
use shardify::{
    dataset::{
        Dataset, HashWidth, IdColumn, Numbers, SegmentRef, Transaction, commit_transaction, find_each, find_hits,
    },
    id::{IdHash, Version},
    storage::{LocalStore, Store},
};

/// Single lookups of each kind.
const LOOKUPS: u64 = 50;
/// Ids of a batch, and shards they are in.
const BATCH_IDS: u64 = 100_000;
const BATCH_SHARDS: u64 = 200;
/// Shards that are added one by one to a dataset of many versions: lists are merged every so often.
const APPENDS: u64 = 80;
/// Time that a request takes where it is counted who waits for whom.
const DELAY: Duration = Duration::from_millis(20);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let folder = match words.iter().position(|word| word == "--folder") {
        Some(at) if at + 1 < words.len() => PathBuf::from(words.drain(at..at + 2).nth(1).unwrap_or_default()),
        _ => return Err("expected --folder FOLDER, which must not exist".into()),
    };
    if folder.exists() {
        return Err(format!("{} exists", folder.display()).into());
    }
    let number = |at: usize| words.get(at).map(|word| word.replace('_', "").parse::<u64>()).transpose();
    let done = match words.first().map(String::as_str) {
        Some(form @ ("find" | "grow")) => {
            let records = number(1)?.ok_or("expected a number of records")?;
            let shards = number(2)?.unwrap_or((records / 10_000).max(1));
            measure_find(&folder, Scale { records, shards, growing: form == "grow" })
        }
        Some("open") => measure_open(&folder, number(1)?.unwrap_or(1_000), number(2)?.unwrap_or(100)),
        _ => Err("expected `find`, `grow` or `open`".into()),
    };
    std::fs::remove_dir_all(&folder)?;
    done
}

fn seconds(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e3).round() / 1e3
}

/// Bytes of the objects of a segment.
fn stored(store: &dyn Store, segments: &[SegmentRef]) -> Outcome<u64> {
    let mut bytes = 0;
    for path in segments.iter().flat_map(SegmentRef::bucket_paths) {
        bytes += store.head(&path)?.ok_or("a bucket is missing")?.bytes;
    }
    Ok(bytes)
}

fn measure_find(folder: &Path, scale: Scale) -> Outcome<()> {
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder.to_owned()));
    let dataset = Dataset::new(Arc::clone(&store));
    let sidecars = scale.write_sidecars(&dataset, looked_in(scale))?;
    let begun = Instant::now();
    let snapshot = scale.build(&dataset, &sidecars)?;
    let built = seconds(begun);
    let before = snapshot.entry().segments.len();
    let begun = Instant::now();
    for path in merge_index(&dataset, 1 << 30)?.iter().flat_map(SegmentRef::bucket_paths) {
        // What vacuum would do.
        store.delete(&path)?;
    }
    let merged = seconds(begun);
    let segments = dataset.open_newest()?.entry().segments.clone();
    let bytes = stored(store.as_ref(), &segments)?;
    let buckets: Vec<u64> = segments.iter().map(|segment| segment.buckets).collect();
    println!(
        "{}",
        json!({
            "type": "index", "records": scale.records, "shards": scale.shards, "segments_written": before,
            "segments": segments.len(), "buckets": buckets, "bytes": bytes,
            "bytes_per_record": bytes as f64 / scale.records as f64,
            "build_seconds": built, "merge_seconds": merged,
        })
    );
    lookups(&store, scale)?;
    batch(&dataset, scale)
}

/// Returns the shards with an id whose hash begins as that of one of some ids does: a lookup reads their sidecars, too.
fn others(scale: Scale, ids: &[String]) -> Vec<u64> {
    let cut = |hash: IdHash| HashWidth::Five.truncate_hash(hash);
    let wanted: HashSet<IdHash> = ids.iter().map(|id| cut(IdHash::from_id(id))).collect();
    let own: HashSet<&String> = ids.iter().collect();
    let parts: Vec<u64> = (0..scale.records).step_by(1 << 20).collect();
    let others = parts.into_par_iter().flat_map_iter(|start| {
        let ids = scale::ids(start, scale.records.min(start + (1 << 20)));
        let hashes = IdColumn::from(ids).to_hashes();
        let same: Vec<u64> =
            hashes.iter().filter(|(_, hash)| wanted.contains(&cut(*hash))).map(|(row, _)| row as u64).collect();
        same.into_iter().map(move |row| start + row)
    });
    let others: Vec<u64> = others.collect();
    let others = others.into_iter().filter(|record| !own.contains(&id(*record)));
    others.map(|record| scale.shard_of(record)).collect()
}

/// Records that are looked up one by one.
fn single(scale: Scale) -> Vec<u64> {
    let step = (scale.records / LOOKUPS).max(1);
    let at = (0..LOOKUPS + 1).map(|number| number * step + step * 7 / 11);
    at.filter(|record| *record < scale.records).collect()
}

/// Records that are looked up together, as `--find-file` has them, and the number of their shards.
fn together(scale: Scale) -> (Vec<u64>, u64) {
    let shards = scale.shards.min(BATCH_SHARDS);
    let each = (BATCH_IDS.min(scale.records) / shards).max(1);
    let of_shard = |number: u64| {
        let shard = number * (scale.shards / shards);
        let (first, end) = (scale.first(shard), scale.first(shard + 1));
        (0..each.min(end - first)).map(move |i| first + i * (end - first) / each.min(end - first))
    };
    ((0..shards).flat_map(of_shard).collect(), shards)
}

/// Returns the shards whose sidecars lookups read.
fn looked_in(scale: Scale) -> BTreeSet<u64> {
    let records: Vec<u64> = single(scale).into_iter().chain(together(scale).0).collect();
    let ids: Vec<String> = records.iter().map(|record| id(*record)).chain(["nobody".to_owned()]).collect();
    let others = if scale.growing { Vec::new() } else { others(scale, &ids) };
    records.into_iter().map(|record| scale.shard_of(record)).chain(others).collect()
}

/// Single ids, each from an unopened dataset: how long, how many requests, and how many one after the other.
fn lookups(store: &Arc<dyn Store>, scale: Scale) -> Outcome<()> {
    let dataset = Dataset::new(Arc::clone(store));
    let records = single(scale);
    let mut times = Vec::new();
    for record in &records {
        let begun = Instant::now();
        check(&dataset, scale, *record)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let counted = Counted::new(Arc::clone(store), DELAY);
    let slow = Dataset::new(Arc::clone(&counted) as Arc<dyn Store>);
    let mut all: Vec<Sums> = Vec::new();
    for record in &records {
        check(&slow, scale, *record)?;
        all.push(sums(&counted.take()));
    }
    let absent = {
        assert!(find_hits(&slow.open_newest()?, "nobody")?.is_empty(), "an id that nobody has");
        sums(&counted.take())
    };
    let most = |of: fn(&Sums) -> u64| all.iter().map(of).max().unwrap_or(0);
    let mean = |of: fn(&Sums) -> u64| all.iter().map(of).sum::<u64>() as f64 / all.len() as f64;
    println!(
        "{}",
        json!({
            "type": "lookup", "lookups": records.len(), "ms_median": times[times.len() / 2],
                "ms_most": times[times.len() - 1],
            "listings": most(|s| s.listings), "heads": most(|s| s.heads),
            "gets_mean": mean(|s| s.gets), "gets_most": most(|s| s.gets),
            "depth_mean": mean(|s| s.depth), "depth_most": most(|s| s.depth),
            "bytes_mean": mean(|s| s.bytes_read), "bytes_most": most(|s| s.bytes_read),
            "absent": { "gets": absent.gets, "depth": absent.depth, "bytes": absent.bytes_read },
        })
    );
    Ok(())
}

/// Looks one record up and fails unless it is where it has to be.
fn check(dataset: &Dataset, scale: Scale, record: u64) -> Outcome<()> {
    let hits = find_hits(&dataset.open_newest()?, &id(record))?;
    let shard = scale.shard_of(record);
    let [hit] = hits.as_slice() else { return Err(format!("{} hits of {}", hits.len(), id(record)).into()) };
    let [place] = hit.places.as_slice() else { return Err("more than one place".into()) };
    let right = hit.record == record
        && place.shard == Scale::path(shard)
        && place.ordinal == record - scale.first(shard)
        && hit.uri.is_some();
    if right { Ok(()) } else { Err(format!("{} is not there: {hit:?}", id(record)).into()) }
}

/// Many ids together, as `--find-file` has them.
fn batch(dataset: &Dataset, scale: Scale) -> Outcome<()> {
    let (records, shards) = together(scale);
    let ids: Vec<String> = records.iter().map(|record| id(*record)).collect();
    let begun = Instant::now();
    let mut found = 0;
    find_each(&dataset.open_newest()?, &ids, &mut |number, hit| {
        assert!(hit.record == records[number], "{hit:?}");
        found += 1;
        Ok(())
    })?;
    let seconds = seconds(begun);
    if found != ids.len() {
        return Err(format!("expected {} hits, found {found}", ids.len()).into());
    }
    println!("{}", json!({ "type": "batch", "ids": ids.len(), "hits": found, "shards": shards, "seconds": seconds }));
    Ok(())
}

/// A dataset of many versions: how it is opened, and what one more shard costs.
fn measure_open(folder: &Path, versions: u64, shards_each: u64) -> Outcome<()> {
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder.to_owned()));
    let dataset = Dataset::new(Arc::clone(&store));
    let append = |dataset: &Dataset, version: u64, shards: u64| {
        let records = 10_000;
        let adds =
            (0..shards).map(|shard| new_shard(format!("{version:012x}/{shard:06}.tar"), shard * records, records));
        let numbers = Numbers::Fresh(shards * records);
        let appended = Transaction { adds: adds.collect(), numbers, ..transaction() };
        commit_transaction(dataset, &appended, Version(version))
    };
    let begun = Instant::now();
    for version in 0..versions {
        append(&dataset, version, shards_each)?;
    }
    let built = seconds(begun);
    let mut times = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        let snapshot = Dataset::new(Arc::clone(&store)).open_newest()?;
        assert_eq!(snapshot.live_shards()?.len() as u64, versions * shards_each, "all shards are there");
        let shards = begun.elapsed().as_secs_f64() * 1e3;
        let runs = snapshot.run_table()?.as_slice().len();
        times.push((shards, begun.elapsed().as_secs_f64() * 1e3, runs));
    }
    times.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (with_shards, with_runs, runs) = times[2];
    let counted = Counted::new(Arc::clone(&store), DELAY);
    let slow = Dataset::new(Arc::clone(&counted) as Arc<dyn Store>);
    let snapshot = slow.open_newest()?;
    snapshot.live_shards()?;
    let opened = sums(&counted.take());
    let lists = snapshot.entry().shards.len();
    let entry = serde_json::to_vec(snapshot.entry())?.len();
    let mut written = Vec::new();
    for i in 0..APPENDS {
        append(&slow, versions + i, 1)?;
        written.push(sums(&counted.take()).bytes_written);
    }
    written.sort_unstable();
    println!(
        "{}",
        json!({
            "type": "open", "versions": versions, "shards": versions * shards_each, "runs": runs, "lists": lists,
            "build_seconds": built, "entry_bytes": entry, "ms_with_shards": with_shards, "ms_with_runs": with_runs,
            "gets": opened.gets, "heads": opened.heads, "depth": opened.depth, "bytes": opened.bytes_read,
            "append_bytes_median": written[written.len() / 2], "append_bytes_most": written[written.len() - 1],
        })
    );
    Ok(())
}
