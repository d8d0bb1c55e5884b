//! Shards of others through the command line: where their ids come from, and what is said about those that have none.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and make their own folders")]

use crate::{reseal, support};

use insta::assert_snapshot;
use reseal::reseal;
use serde_json::Value;
use shardify::codec::checksum::masked_crc32c;
use support::Folder;

/// A TFRecord file with these records.
fn tfrecord(records: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for data in records {
        let length = (data.len() as u64).to_le_bytes();
        out.extend_from_slice(&length);
        out.extend_from_slice(&masked_crc32c(&length).to_le_bytes());
        out.extend_from_slice(data);
        out.extend_from_slice(&masked_crc32c(data).to_le_bytes());
    }
    out
}

/// A field of protobuf that has a length, which is small.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
    out.extend_from_slice(content);
    out
}

/// An Example with one feature, a list of bytes.
fn example(name: &str, values: &[&[u8]]) -> Vec<u8> {
    let list: Vec<u8> = values.iter().flat_map(|value| field(1, value)).collect();
    let entry = [field(1, name.as_bytes()), field(2, &field(1, &list))].concat();
    field(1, &field(1, &entry))
}

/// `data/<k>.tfrecord`, of which every fourth record has no site.
fn tables(folder: &Folder) {
    for k in 0..6 {
        let site = |i: usize| if i.is_multiple_of(4) { String::new() } else { (i % 3).to_string() };
        let rows: String = (0..20).map(|i| format!("r{k}-{i},{},PAT-{},{i}.5\n", site(i), i % 7)).collect();
        folder.write("a.csv", format!("id,site,who,x\n{rows}"));
        folder.run(&format!("convert a.csv --to tfrecord --out tmp{k}")).ok();
        folder.write(&format!("data/{k}.tfrecord"), folder.only_shards(&format!("tmp{k}")).remove(0).1);
    }
}

/// Everything about a record but where it lies.
fn identity(hit: &Value) -> Value {
    let mut hit = hit.clone();
    ["shard", "ordinal", "offset", "state", "versions", "earlier"].iter().for_each(|field| {
        hit.as_object_mut().unwrap().remove(*field);
    });
    hit
}

#[test]
fn features_of_tfrecord_make_ids() {
    let folder = Folder::new();
    tables(&folder);
    let adopted = folder.run("adopt data --id id --subject who").ok();
    assert_snapshot!(folder.redact(&adopted.stdout), @r"
    v1 of [FOLDER]/data
      adopted    6 TFRecord shards, 9.2 KiB, in place
      records    120, with ids, 120 with subject ids
      originals  `compact` and `erase` replace these files, and `vacuum` deletes what they replaced; to keep them, adopt into another folder with --out
    ");
    folder.run("verify data --read-data").ok();
    let hits = |id: &str| folder.run(&format!("manifest data --find {id} --json")).ok().objects();
    let before = hits("r3-7");
    assert_eq!((&before[0]["shard"], &before[0]["ordinal"]), (&"3.tfrecord".into(), &7.into()));
    assert_eq!((&before[0]["subject_id"], before.len()), (&"PAT-0".into(), 2));
    assert_eq!(hits("PAT-0").pop().unwrap()["hits"], 18);
    assert_eq!(folder.run("compact data --json").ok().summary()["shards_removed"], 6);
    assert_eq!(identity(&hits("r3-7")[0]), identity(&before[0]));
    assert_eq!(hits("PAT-0").pop().unwrap()["hits"], 18);
    folder.run("verify data --read-data").ok();
    // Other rows go on being found by the same columns, and files that come later are read with them.
    folder.write("b.csv", "id,site,who,x\nc1,1,PAT-0,1.5\n");
    folder.run("convert b.csv --out data").ok();
    folder.write("data/more.tfrecord", tfrecord(&[&example("id", &[b"m1"]), &example("who", &[b"PAT-0"])]));
    let more = folder.run("adopt data --json").ok().summary();
    assert_eq!((&more["records_with_id"], &more["records_with_subject"]), (&1.into(), &1.into()));
    assert_eq!(hits("PAT-0").pop().unwrap()["hits"], 20);
    assert_eq!(hits("more.tfrecord#2").pop().unwrap()["hits"], 1, "a record without an id has its origin");
    assert_eq!(folder.run("verify data --read-data --json").ok().summary()["records"], 123);
}

/// Gives a dataset the sidecar of another one, and states it as its own.
fn exchange_sidecars(folder: &Folder, from: &str, to: &str, name: &str) {
    let sidecar = |dataset: &str| {
        let runs = std::fs::read_dir(folder.path().join(dataset).join("_shardify/sidecar")).unwrap();
        let tag = runs.map(|run| run.unwrap().file_name().into_string().unwrap()).next().unwrap();
        format!("_shardify/sidecar/{tag}/{name}")
    };
    let path = |dataset: &str| folder.path().join(dataset).join(sidecar(dataset));
    std::fs::copy(path(from), path(to)).unwrap();
    reseal(&folder.path().join(to), &[sidecar(to)]);
}

#[test]
fn ids_that_are_not_those_of_their_records_are_damage() {
    let folder = Folder::new();
    tables(&folder);
    folder.run("adopt data --id id --out one").ok();
    folder.run("adopt data --id who --out other").ok();
    exchange_sidecars(&folder, "other", "one", "000000.table");
    let ran = folder.run("verify one --read-data");
    assert!(ran.stdout.contains("row 0: expected a record with the id `PAT-0`, found another"), "{ran:?}");
    folder.run("verify other --read-data").ok();
}

/// Rows keep the ids of the columns that were named when they came.
#[test]
fn columns_named_later_are_no_damage() {
    for to in ["parquet", "tfrecord"] {
        let folder = Folder::new();
        folder.write("a.csv", "id,name,who\n1,a,x\n");
        folder.write("b.csv", "id,name,who\n2,b,y\n");
        folder.write("c.csv", "id,name,who\n3,c,z\n");
        folder.run(&format!("convert a.csv --to {to}")).ok();
        folder.run("convert b.csv --id id --accept settings").ok();
        folder.run("convert c.csv --id name --subject who --accept settings").ok();
        folder.run("verify --read-data").ok();
        folder.run("compact --min-inputs 2").ok();
        folder.run("verify --read-data").ok();
    }
}

#[test]
fn a_record_larger_than_memory_is_refused_by_its_place() {
    let folder = Folder::new();
    let large = [example("id", &[b"a"]), field(9, &[0; 100]).repeat(1000)].concat();
    folder.write("data/x.tfrecord", tfrecord(&[&example("id", &[b"b"]), &large]));
    let ran = folder.run("adopt data --id id --memory 128KiB");
    assert!(ran.code == 6 && ran.stderr.contains("byte 31") && ran.stderr.contains("--memory"), "{ran:?}");
    folder.run("adopt data --id id --memory 1MiB").ok();
    folder.run("verify data --read-data --memory 128KiB").ok();
}

#[test]
fn ids_of_several_features_are_joined_and_may_be_absent() {
    let folder = Folder::new();
    tables(&folder);
    let adopted = folder.run("adopt data --id site,id").ok();
    assert!(adopted.stdout.contains("120, 90 with ids (the others have the origin, file#row)"), "{adopted:?}");
    for known in ["1,r2-7", "2.tfrecord#5"] {
        assert_eq!(folder.run(&format!("manifest data --find {known} --json")).ok().summary()["hits"], 1, "{known}");
    }
    folder.run("verify data --read-data").ok();
    let again = folder.run("adopt data --id id").ok();
    assert!(again.stdout.starts_with("nothing to do: 6 files already adopted"), "{again:?}");
    assert!(again.stderr.contains("keep their ids"), "{again:?}");
    // Columns that are named later are no damage of what came before.
    folder.write("data/z.tfrecord", tfrecord(&[&example("id", &[b"z1"])]));
    folder.run("adopt data --id id").ok();
    assert_eq!(folder.run("manifest data --find z1 --json").ok().summary()["hits"], 1);
    folder.run("verify data --read-data").ok();
}

#[test]
fn keys_of_samples_need_no_naming() {
    let folder = Folder::new();
    for i in 0..9 {
        folder.write(&format!("in/s {i}.txt"), format!("text {i}"));
    }
    folder.run("convert in --to tfrecord --codec gzip").ok();
    folder.write("data/x.tfrecord.gz", folder.only_shards("shards").remove(0).1);
    folder.write(
        "data/y.tfrecord",
        tfrecord(&[b"no Example", &example("__key__", &[b"a", b"b"]), &example("__key__", &[b"k"])]),
    );
    let summary = folder.run("adopt data --json").ok().summary();
    assert_eq!((&summary["records_out"], &summary["records_with_id"]), (&12.into(), &10.into()));
    for known in ["k", "y.tfrecord#1"] {
        assert_eq!(folder.run(&format!("manifest data --find {known} --json")).ok().summary()["hits"], 1, "{known}");
    }
    folder.run("verify data --read-data").ok();
    folder.run("verify shards --read-data").ok();
}

#[test]
fn a_record_that_has_no_id_where_one_was_asked_for_is_named() {
    let folder = Folder::new();
    let good = example("id", &[b"a"]);
    let sequence = field(2, b"");
    let cases: [(&str, &[u8], &str); 4] = [
        ("sequence", &sequence, "found a tf.train.SequenceExample"),
        ("other", b"not a message", "expected a tf.train.Example, found"),
        ("list", &example("id", &[b"a", b"b"]), "expected one value, found 2"),
        ("binary", &example("id", &[b"\xff"]), "found bytes that are not UTF-8"),
    ];
    for (name, bad, problem) in cases {
        folder.write(&format!("{name}/x.tfrecord"), tfrecord(&[&good, bad]));
        let ran = folder.run(&format!("adopt {name} --id id"));
        assert_eq!(ran.code, 6, "{ran:?}");
        let place = format!("{name}/x.tfrecord, byte {}", good.len() + 16);
        assert!(ran.stderr.contains(problem) && ran.stderr.contains(&place), "{ran:?}");
        folder.write(&format!("{name}/y.tfrecord"), tfrecord(&[&good]));
        let skipped = folder.run(&format!("adopt {name} --id id --on-error skip"));
        assert_eq!(skipped.code, 3, "{skipped:?}");
        assert!(skipped.stdout.contains(&format!("at byte {}", good.len() + 16)), "{skipped:?}");
        let rest = folder.run(&format!("adopt {name} --out {name}-origins --json")).ok().summary();
        assert_eq!((&rest["records_out"], &rest["record_ids"]), (&3.into(), &false.into()));
    }
    let typo = folder.run("adopt list --id idd --out typo");
    assert!(typo.code == 6 && typo.stderr.contains("the first record has id"), "{typo:?}");
}

#[test]
fn what_an_adoption_cannot_do_is_said_with_what_it_can() {
    let folder = Folder::new();
    let says = |arguments: &str, code: i32, text: &str| {
        let ran = folder.run(arguments);
        assert!(ran.code == code && ran.stderr.contains(text), "{arguments}: {text}: {ran:?}");
    };
    std::fs::create_dir(folder.path().join("nothing")).unwrap();
    folder.write("csv/a.csv", "a\n1\n");
    folder.write("tf/a.tfrecord", tfrecord(&[&example("id", &[b"a"])]));
    says("adopt nowhere", 2, "found nothing");
    says("adopt nothing", 2, "found none\n");
    says("adopt csv", 2, "found none, but 1 of other kinds");
    says("adopt tf/a.tfrecord", 2, "found a file");
    folder.write("in/k.txt", "text");
    folder.run("convert in --to tar").ok();
    folder.write("tars/a.tar", folder.only_shards("shards").remove(0).1);
    says("adopt tars --id id", 2, "is its key");
    says("adopt tars --subject who", 2, "expected Parquet or TFRecord");
    folder.run("adopt tars").ok();
    let again = folder.run("adopt tars").ok().stdout;
    assert!(!again.contains("ignored"), "what shardify wrote is not told as ignored: {again}");
}

/// A row has the same hash whether it was adopted or converted.
#[test]
fn rows_of_parquet_are_hashed() {
    let folder = Folder::new();
    folder.write("a.csv", "id,x,when\nr1,1.5,2024-01-02\nr2,,\nr3,7,2024-01-03\n");
    folder.run("convert a.csv --out made").ok();
    folder.write("data/a.parquet", folder.only_shards("made").remove(0).1);
    folder.run("adopt data --id id --out adopted --hash-records").ok();
    folder.run("convert data --id id --out converted --hash-records").ok();
    let hashes = |set: &str| -> Vec<Value> {
        let rows = folder.run(&format!("manifest {set} --export jsonl --json")).ok().objects();
        rows.iter().filter(|row| row["type"] == "record").map(|row| row["hash"].clone()).collect()
    };
    assert_eq!(hashes("adopted"), hashes("converted"));
    assert!(hashes("adopted").windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn rows_of_adopted_parquet_are_held_against_their_hashes() {
    let folder = Folder::new();
    for (name, x) in [("mine", "1"), ("theirs", "2")] {
        folder.write("a.csv", format!("id,x\na,{x}\nb,3\n"));
        folder.run(&format!("convert a.csv --out made-{name} --quiet")).ok();
        folder.write(&format!("{name}/part.parquet"), &folder.only_shards(&format!("made-{name}"))[0].1);
        folder.run(&format!("adopt {name} --id id --hash-records --quiet")).ok();
        folder.run(&format!("verify {name} --read-data")).ok();
    }
    // The same ids and places, but of other records.
    exchange_sidecars(&folder, "theirs", "mine", "adopted/000000.table");
    folder.run("verify mine").ok();
    let ran = folder.run("verify mine --read-data");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("row 0: the record does not agree with the sidecar"), "{ran:?}");
}

#[test]
fn footers_that_name_an_erased_person_are_listed() {
    use std::sync::Arc;

    use arrow::{
        array::{RecordBatch, StringArray},
        datatypes::{DataType, Field, Schema},
    };
    let folder = Folder::new();
    for (name, ids, note) in [
        ("a", ["PAT-1", "PAT-2"], "of PAT-1"),
        ("b", ["PAT-3", "PAT-4"], "like PAT-1"),
        ("c", ["PAT-5", "PAT-6"], "PAT-11"),
    ] {
        let notes = std::collections::HashMap::from([("note".to_owned(), note.to_owned())]);
        let schema = Arc::new(Schema::new_with_metadata(vec![Field::new("id", DataType::Utf8, false)], notes));
        let ids = StringArray::from_iter_values(ids);
        let rows = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(ids)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, schema, None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        folder.write(&format!("in/{name}.parquet"), bytes);
    }
    folder.run("adopt in --out shards --id id").ok();
    let told = folder.run("erase shards PAT-1 --all-versions --json").ok();
    let summary = told.summary();
    let kept: Vec<&str> = summary["names_kept"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(kept.len(), 1, "{summary}");
    assert!(kept[0].starts_with("the footer of ") && kept[0].ends_with("000001.parquet"), "{kept:?}");
}

#[test]
fn folders_that_name_an_erased_person_are_listed() {
    let folder = Folder::new();
    for (who, other) in [("PAT-1", "x"), ("PAT-2", "y"), ("PAT-11", "z")] {
        folder.write(&format!("raw/{who}.csv"), format!("who,x\n{who},{other}\n"));
        folder.run(&format!("convert raw/{who}.csv --out of/{who}")).ok();
        let (_, bytes) = folder.shards(&format!("of/{who}")).into_iter().next().unwrap();
        folder.write(&format!("set/who={who}/0.parquet"), bytes);
    }
    folder.run("adopt set --subject who").ok();
    let told = folder.run("erase set --subject PAT-1 --all-versions --json").ok();
    assert_eq!(told.summary()["names_kept"], serde_json::json!(["the folder who=PAT-1"]), "{told:?}");
    assert_eq!(folder.run("manifest set --find PAT-1").code, 1);
}
