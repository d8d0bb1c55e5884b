//! States changed objects of a dataset as its own: seals, checksums and the root are made to agree with what is there,
//! as somebody with access to the dataset could do. So the checks that compare contents are exercised.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "tests fail loudly, and write what they like"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use bytes::Bytes;
use parquet::arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shardify::{
    codec::{
        hex::to_hex,
        seal::{Seal, many},
    },
    dataset::{Dataset, VersionTree},
    storage::LocalStore,
};

use crate::support::rewrite_entry;

/// Seals of the buckets of a segment, as entries have them.
#[derive(Serialize, Deserialize)]
struct Seals(#[serde(with = "many")] Vec<Seal>);

/// Makes the newest entry state what the objects at `changed` (paths relative to the dataset) are now.
pub fn reseal(dataset: &Path, changed: &[String]) {
    let seal = |path: &str| Seal::for_bytes(&fs::read(dataset.join(path)).unwrap());
    let newest = newest_entry(dataset);
    for list in ["shards", "runs"].iter().flat_map(|name| newest[*name].as_array().unwrap()) {
        let path = dataset.join(list["path"].as_str().unwrap());
        reseal_list(&path, &|path| changed.iter().any(|one| one == path).then(|| seal(path)));
    }
    restate(dataset, |entry| {
        for name in ["shards", "runs"] {
            for list in entry[name].as_array_mut().unwrap() {
                list["seal"] = seal(list["path"].as_str().unwrap()).to_string().into();
            }
        }
        for segment in entry["segments"].as_array_mut().unwrap() {
            let folder = segment["path"].as_str().unwrap().to_owned();
            let Seals(mut seals) = serde_json::from_value(segment["seals"].clone()).unwrap();
            for (bucket, known) in seals.iter_mut().enumerate() {
                let path = format!("{folder}/b={bucket:04x}.table");
                if changed.contains(&path) {
                    *known = seal(&path);
                }
            }
            segment["seals"] = serde_json::to_value(Seals(seals)).unwrap();
        }
    });
}

/// Returns the newest entry of the log.
fn newest_entry(dataset: &Path) -> Value {
    let entries = fs::read_dir(dataset.join("_shardify/log")).unwrap().map(|entry| entry.unwrap().path());
    serde_json::from_slice(&fs::read(entries.min().unwrap()).unwrap()).unwrap()
}

/// Returns the files of the segments of the newest version that have ids of a kind.
pub fn live_segments(dataset: &Path, kind: &str) -> Vec<PathBuf> {
    let newest = newest_entry(dataset);
    let own = newest["segments"].as_array().unwrap().iter().filter(|segment| segment["kind"] == kind);
    own.map(|segment| dataset.join(segment["path"].as_str().unwrap()).join("b=0000.table")).collect()
}

/// Changes the newest entry, and makes its root and its checksum agree with the change.
pub fn restate(dataset: &Path, change: impl FnOnce(&mut Value)) {
    let entries = fs::read_dir(dataset.join("_shardify/log")).unwrap().map(|entry| entry.unwrap().path());
    let newest = entries.min().unwrap();
    rewrite_entry(&newest, change);
    let snapshot = Dataset::new(Arc::new(LocalStore::new(dataset.to_owned()))).open_newest().unwrap();
    let root = to_hex(&VersionTree::new(&snapshot, None).unwrap().merkle_root());
    rewrite_entry(&newest, |entry| entry["root"] = root.into());
}

/// Replaces seals in the column of objects beside shards.
fn reseal_list(path: &Path, seal: &dyn Fn(&str) -> Option<Seal>) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(fs::read(path).unwrap())).unwrap();
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(|batch| batch.unwrap()).collect();
    let Some(at) = batches.first().and_then(|batch| batch.schema_ref().index_of("beside").ok()) else { return };
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), batches[0].schema(), None).unwrap();
    for batch in batches {
        let texts = |column: usize| batch.column(column).as_any().downcast_ref::<StringArray>().unwrap();
        // Lists of shards have the path of the shard as `path`, lists of runs as `shard`.
        let schema = batch.schema_ref();
        let shards = texts(schema.index_of("shard").or_else(|_| schema.index_of("path")).unwrap());
        let resealed = |(shard, text): (Option<&str>, Option<&str>)| {
            let mut beside: Value = serde_json::from_str(text?).unwrap();
            let sidecar = beside["at"].as_str().unwrap().to_owned();
            let stem = shard.unwrap().split_once('.').unwrap().0;
            for (name, known) in beside["seals"].as_object_mut().unwrap() {
                let object = if name == "sidecar" { sidecar.clone() } else { format!("{stem}{name}") };
                if let Some(now) = seal(&object) {
                    *known = now.to_string().into();
                }
            }
            Some(beside.to_string())
        };
        let beside: StringArray = shards.iter().zip(texts(at)).map(resealed).collect();
        let mut columns = batch.columns().to_vec();
        columns[at] = Arc::new(beside) as ArrayRef;
        writer.write(&RecordBatch::try_new(batch.schema(), columns).unwrap()).unwrap();
    }
    writer.close().unwrap();
}
