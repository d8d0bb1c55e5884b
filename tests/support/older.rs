//! Creates datasets as releases before format 4 wrote them: without checksums of metadata, so that other checks are
//! exercised.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "tests fail loudly, and write what they like"
)]

use std::{fs, path::Path};

use arrow::array::{Array, StringArray};
use bytes::Bytes;
use parquet::arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder};
use serde_json::Value;

/// Removes all checksums of metadata from a dataset and makes it one of format 3.
pub fn make_older(dataset: &Path) {
    let system = dataset.join("_shardify");
    for list in files(&system.join("lists")) {
        without_column(&list, "beside", &mut |shard, text| {
            let beside: Value = serde_json::from_str(text).unwrap();
            if let Some(at) = beside["at"].as_str() {
                move_sidecar(dataset, at.strip_suffix(".table").unwrap(), shard);
            }
        });
    }
    for path in files(&system.join("log")) {
        let mut entry: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        without_seals(&mut entry);
        entry["format"] = 3.into();
        // Format 3 computes roots by another rule.
        entry.as_object_mut().unwrap().remove("root");
        fs::write(&path, serde_json::to_vec_pretty(&entry).unwrap()).unwrap();
    }
}

/// Gives the sidecar of a shard, and the tables beside it, the names that follow from the path of the shard.
fn move_sidecar(dataset: &Path, at: &str, shard: &str) {
    let stem = match at.contains("/adopted/") {
        true => format!("_shardify/sidecar/adopted/{shard}"),
        false => at.to_owned(),
    };
    fs::create_dir_all(dataset.join(&stem).parent().unwrap()).unwrap();
    for name in ["", ".records", ".parts"] {
        let (from, to) = (format!("{at}{name}.table"), format!("{stem}{name}.parquet"));
        if dataset.join(&from).exists() {
            fs::rename(dataset.join(from), dataset.join(to)).unwrap();
        }
    }
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn without_seals(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            ["seal", "seals", "checksum"].iter().for_each(|name| {
                fields.remove(*name);
            });
            fields.values_mut().for_each(without_seals);
        }
        Value::Array(values) => values.iter_mut().for_each(without_seals),
        _ => {}
    }
}

fn without_column(path: &Path, name: &str, look: &mut dyn FnMut(&str, &str)) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(fs::read(path).unwrap())).unwrap();
    let batches: Vec<_> = reader.build().unwrap().map(|batch| batch.unwrap()).collect();
    let Some(at) = batches.first().and_then(|batch| batch.schema_ref().index_of(name).ok()) else { return };
    let kept: Vec<usize> = (0..batches[0].num_columns()).filter(|column| *column != at).collect();
    let schema = batches[0].project(&kept).unwrap().schema();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), schema, None).unwrap();
    for batch in batches {
        let texts = |column: usize| batch.column(column).as_any().downcast_ref::<StringArray>().unwrap();
        // Lists of shards have the path of the shard as `path`, lists of runs as `shard`.
        let schema = batch.schema_ref();
        let shards = schema.index_of("shard").or_else(|_| schema.index_of("path")).unwrap();
        for (shard, text) in texts(shards).iter().zip(texts(at)) {
            text.into_iter().for_each(|text| look(shard.unwrap(), text));
        }
        writer.write(&batch.project(&kept).unwrap()).unwrap();
    }
    writer.close().unwrap();
}
