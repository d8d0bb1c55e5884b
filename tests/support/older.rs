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
        without_column(&list, "beside", &mut |text| {
            // The path of a sidecar follows from the path of its shard.
            let beside: Value = serde_json::from_str(text).unwrap();
            let Some(at) = beside["at"].as_str() else { return };
            let (_, name) = at.split_once("/adopted/").unwrap();
            let target = system.join("sidecar/adopted").join(name);
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            if !target.exists() {
                fs::rename(dataset.join(at), target).unwrap();
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

fn without_column(path: &Path, name: &str, look: &mut dyn FnMut(&str)) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(fs::read(path).unwrap())).unwrap();
    let batches: Vec<_> = reader.build().unwrap().map(|batch| batch.unwrap()).collect();
    let Some(at) = batches.first().and_then(|batch| batch.schema_ref().index_of(name).ok()) else { return };
    let kept: Vec<usize> = (0..batches[0].num_columns()).filter(|column| *column != at).collect();
    let schema = batches[0].project(&kept).unwrap().schema();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), schema, None).unwrap();
    for batch in batches {
        let texts = batch.column(at).as_any().downcast_ref::<StringArray>().unwrap();
        texts.iter().flatten().for_each(&mut *look);
        assert!(texts.null_count() <= texts.len());
        writer.write(&batch.project(&kept).unwrap()).unwrap();
    }
    writer.close().unwrap();
}
