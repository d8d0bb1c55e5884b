//! The library as other programs use it: what a session, its builders and a dataset promise.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use shardify::{Accept, Batch, Cancel, ErrorKind, Event, Format, Observer, OnError, Session};

fn session() -> Session {
    Session::new().unwrap()
}

/// Writes so many rows to a CSV, whose ids are their numbers.
fn write_rows(path: &Path, numbers: std::ops::Range<u64>) {
    let row = |n: u64| format!("{n},name {n},{},20{:02}-01-1{}", n as f64 / 4.0, n % 90 + 10, n % 10);
    let rows: Vec<String> = numbers.map(row).collect();
    fs::write(path, format!("id,name,value,day\n{}\n", rows.join("\n"))).unwrap();
}

/// Returns the ids that the live shards of a dataset hold, in order.
fn ids(session: &Session, dataset: &Path) -> Vec<i64> {
    use shardify::arrow::{
        array::AsArray,
        datatypes::{DataType, Int64Type},
    };
    let mut ids = Vec::new();
    for shard in session.open(dataset).unwrap().shards().unwrap() {
        let before = ids.len();
        for batch in shard.batches() {
            match batch.unwrap() {
                Batch::Rows(rows) => {
                    let types: Vec<_> = rows.schema().fields().iter().map(|field| field.data_type().clone()).collect();
                    assert_eq!(types, [DataType::Int64, DataType::Utf8, DataType::Float64, DataType::Date32]);
                    ids.extend(rows.column_by_name("id").unwrap().as_primitive::<Int64Type>().values().iter().copied());
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((ids.len() - before) as u64, shard.records());
    }
    ids
}

#[test]
fn every_format_gives_its_rows_back_at_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("rows.csv");
    write_rows(&source, 0..50_000);
    for (format, jobs) in [(Format::Parquet, 1), (Format::Tar, 1), (Format::TfRecord, 3), (Format::Parquet, 8)] {
        let out = folder.path().join(format!("{format}-{jobs}"));
        let session = session().jobs(jobs);
        let report = session.convert(&source, &out).to(format).id(["id"]).records_per_shard(20_000).run().unwrap();
        assert_eq!(
            (report.counts().records_in, report.counts().records_out, report.version()),
            (50_000, 50_000, Some(1))
        );
        assert!(session.open(&out).unwrap().shards().unwrap().len() > 1, "{format}");
        assert_eq!(ids(&session, &out), (0..50_000).collect::<Vec<i64>>(), "{format}");
    }
}

#[test]
fn samples_come_back_as_their_files() {
    let (folder, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for n in 0..20 {
        fs::write(source.path().join(format!("{n:02}.txt")), format!("text {n}")).unwrap();
        fs::write(source.path().join(format!("{n:02}.bin")), vec![n; 300]).unwrap();
    }
    let out = folder.path().join("out");
    session().convert(source.path(), &out).run().unwrap();
    let mut number = 0;
    for shard in session().open(&out).unwrap().shards().unwrap() {
        for batch in shard.batches() {
            let Batch::Samples(samples) = batch.unwrap() else { panic!("rows") };
            for sample in samples {
                let parts: Vec<_> =
                    sample.parts.iter().map(|part| (part.extension.as_str(), part.bytes.to_vec())).collect();
                let text = format!("text {number}").into_bytes();
                assert_eq!(
                    (sample.key.as_str(), parts),
                    (&*format!("{number:02}"), vec![("bin", vec![number; 300]), ("txt", text)])
                );
                number += 1;
            }
        }
    }
    assert_eq!(number, 20);
}

#[test]
fn what_is_erased_or_removed_is_in_no_batch() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("rows.csv"), folder.path().join("out"));
    write_rows(&source, 0..1_000);
    session().convert(&source, &out).id(["id"]).run().unwrap();
    let dataset = session().open(&out).unwrap();
    let erased = dataset.erase().id("17").record("900").reason("asked").run().unwrap();
    assert_eq!((erased.records(), erased.version(), erased.kept_in()), (2, 2, Some((1, 1))));
    assert!(erased.receipt().is_some() && erased.missing().is_empty());
    let left: Vec<i64> = (0..1_000).filter(|id| ![17, 900].contains(id)).collect();
    assert_eq!(ids(&session(), &out), left);
    // The version that was opened before still has them.
    assert_eq!((dataset.version(), dataset.records()), (1, 1_000));
    assert_eq!(dataset.find(["17"]).unwrap().count(), 1);
    let found = session().open(&out).unwrap().find(["17", "18", "nobody"]).unwrap();
    assert_eq!((found.count(), found.missing().len()), (1, 2));
    assert_eq!(found.erased().collect::<Vec<_>>(), [("17", 2)]);
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!((&json["records"][0]["record_id"], &json["hits"]), (&"18".into(), &1.into()));
    assert_eq!((&json["erased"][0]["id"], &json["missing"][1]), (&"17".into(), &"nobody".into()));
}

#[test]
fn mistakes_are_errors_of_run_and_name_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("rows.csv"), folder.path().join("out"));
    write_rows(&source, 0..10);
    let begin = || session().convert(&source, &out);
    let wrong = [
        (begin().codec("zip"), "zip"),
        (begin().split("train=2"), "split"),
        (begin().split_by("subject"), "split"),
        (begin().on_schema("keeep"), "on_schema"),
        (begin().index(["wids", "nobody"]), "nobody"),
        (begin().read("delimeter", ";"), "delimeter"),
        (begin().column_type("id", "int65"), "int65"),
        (begin().from("cvs"), "cvs"),
        (begin().even(), "even"),
        (begin().shards(3).records_per_shard(3), "shards"),
        (begin().filter("id >"), "--where"),
        (begin().subject("id").subject_from_path("{subject}/*"), "subject"),
    ];
    for (convert, named) in wrong {
        let error = convert.run().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
        assert!(error.to_string().contains(named), "{named}: {error}");
        assert!(!out.exists(), "{named}");
    }
    assert_eq!(session().open(&out).unwrap_err().kind(), ErrorKind::Usage);
}

#[test]
fn options_that_belong_together_are_put_together() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("rows.csv"), folder.path().join("out"));
    write_rows(&source, 0..100);
    fs::write(folder.path().join("who.csv"), "path,person\nrows.csv,P1\n").unwrap();
    let who = folder.path().join("who.csv").display().to_string();
    let report = session()
        .convert(&source, &out)
        .id(["id"])
        .split_by("id")
        .split("train=0.5,test=0.5")
        .subject_table(who)
        .subject("person")
        .even()
        .shards(2)
        .accept(Accept::Subjects)
        .run()
        .unwrap();
    let shards = session().open(&out).unwrap().shards().unwrap();
    assert_eq!((report.counts().shards_added, shards.len()), (4, 4));
    assert!(shards.iter().all(|shard| ["train", "test"].contains(&shard.part().unwrap())));
    assert!(Path::new(&shards[0].location()).is_file(), "{}", shards[0].location());
    assert_eq!(session().open(&out).unwrap().find(["P1"]).unwrap().count(), 100);
}

#[test]
fn a_damaged_shard_is_an_error_at_the_end_of_its_batches() {
    for format in [Format::Parquet, Format::Tar, Format::TfRecord] {
        let folder = tempfile::tempdir().unwrap();
        let (source, out) = (folder.path().join("rows.csv"), folder.path().join("out"));
        write_rows(&source, 0..5_000);
        session().convert(&source, &out).to(format).run().unwrap();
        let shard = session().open(&out).unwrap().shards().unwrap().remove(0);
        let path = out.join(shard.path());
        let bytes = fs::read(&path).unwrap();
        // Cut between two records: every record that is left can be read.
        fs::write(&path, &bytes[..bytes.len() / 2 / 512 * 512]).unwrap();
        let all: Vec<_> = shard.batches().collect();
        assert!(all.last().unwrap().is_err(), "{format}: {all:?}");
        assert!(all[..all.len() - 1].iter().all(Result::is_ok), "{format}");
        let report = session().open(&out).unwrap().verify().unwrap();
        assert!(!report.is_sound() && report.problems().next().is_some());
    }
}

#[test]
fn a_reader_may_stop_early_and_a_run_may_be_cancelled() {
    struct CancelAtOnce(Cancel, Arc<Mutex<u64>>);
    impl Observer for CancelAtOnce {
        fn event(&self, event: Event) {
            if let Event::Phase { .. } = event {
                *self.1.lock().unwrap() += 1;
                self.0.cancel();
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("rows.csv"), folder.path().join("out"));
    write_rows(&source, 0..300_000);
    let (cancel, phases) = (Cancel::default(), Arc::new(Mutex::new(0)));
    let stopped = session().cancel(cancel.clone()).observer(CancelAtOnce(cancel, Arc::clone(&phases)));
    assert_eq!(stopped.convert(&source, &out).run().unwrap_err().kind(), ErrorKind::Interrupted);
    assert!(*phases.lock().unwrap() > 0);
    assert_eq!(session().open(&out).unwrap_err().kind(), ErrorKind::Usage);

    session().convert(&source, &out).on_error(OnError::Skip).run().unwrap();
    for shard in session().open(&out).unwrap().shards().unwrap() {
        assert!(shard.batches().next().unwrap().unwrap().records() > 0);
    }
}

#[test]
fn ids_can_be_private() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("rows.csv"), folder.path().join("out"));
    write_rows(&source, 0..50);
    let key: Vec<u8> = (1..=32).collect();
    let with_key = || session().id_key(&key).unwrap();
    with_key().convert(&source, &out).id(["id"]).id_mode("hmac").run().unwrap();
    assert_eq!(with_key().open(&out).unwrap().find(["17"]).unwrap().count(), 1);
    let without = session().open(&out).unwrap();
    assert!(without.find(["17"]).is_err());
    assert_eq!(with_key().open(&out).unwrap().find_prefix("1", 3).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(session().id_key(b"short").unwrap_err().kind(), ErrorKind::Usage);
}
