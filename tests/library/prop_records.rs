//! Any records, through any conversion, any compactions and vacuums: the same multiset of ids and contents, each
//! findable.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{collections::BTreeMap, path::Path};

use proptest::prelude::*;
use shardify::{
    codec::Codec,
    dataset::{Arrangement, Order, find_hits, read_sidecar},
    events::{Cancel, Silent},
    format::OutputFormat,
    ops::{
        Context, compact,
        convert::{ConvertOptions, OnSchema, convert_sources},
        manifest::find_at,
        vacuum::{VacuumOptions, vacuum_dataset},
        verify::verify_dataset,
    },
    storage::{Location, StoreSettings},
    units::Size,
};

fn context(folder: &Path) -> Context<'static> {
    Context {
        folder: folder.to_owned(),
        settings: StoreSettings::default(),
        stdin: || Box::new(std::io::empty()),
        jobs: 2,
        memory: Size::from_mib(64),
        id_key: None,
        observer: &Silent,
        cancel: Cancel::default(),
    }
}

/// Fields that test quoting and typing.
fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,6}",
        "-?[0-9]{1,12}",
        "[0-9]{1,4}\\.[0-9]{1,3}",
        Just("true".to_owned()),
        Just("2024-02-29".to_owned()),
        Just("say \"hi\",\nthere".to_owned()),
        "\\PC{0,8}",
    ]
}

#[derive(Debug, Clone)]
struct Table {
    rows: Vec<[String; 3]>,
}

fn table() -> impl Strategy<Value = Table> {
    prop::collection::vec([field(), field(), field()], 1..60).prop_map(|rows| Table { rows })
}

fn csv(table: &Table, number: usize) -> String {
    let quote = |s: &String| format!("\"{}\"", s.replace('"', "\"\""));
    let mut text = "rid,who,a,b,c\n".to_owned();
    for (i, row) in table.rows.iter().enumerate() {
        let fields: Vec<String> = row.iter().map(quote).collect();
        text.push_str(&format!("t{number}r{i},P{},{}\n", i % 5, fields.join(",")));
    }
    text
}

fn output() -> impl Strategy<Value = (OutputFormat, Codec)> {
    prop_oneof![
        Just((OutputFormat::Parquet, Codec::Zstd(1))),
        Just((OutputFormat::Parquet, Codec::None)),
        Just((OutputFormat::Tar, Codec::None)),
        Just((OutputFormat::Tar, Codec::Gzip(6))),
        Just((OutputFormat::Tar, Codec::Zstd(3))),
        Just((OutputFormat::TfRecord, Codec::None)),
        Just((OutputFormat::TfRecord, Codec::Gzip(1))),
    ]
}

/// What may happen to a dataset.
#[derive(Debug, Clone)]
enum Step {
    Compact {
        target: u64,
        min_inputs: usize,
        max_bytes: Option<u64>,
    },
    /// Of Parquet; other shards are compacted in record order then.
    Sort {
        target: u64,
        by: Arrangement,
        columns: Vec<&'static str>,
    },
    Vacuum,
}

fn step() -> impl Strategy<Value = Step> {
    let compact = (2_000..200_000_u64, 2..4_usize, prop::option::of(1_000..100_000_u64))
        .prop_map(|(target, min_inputs, max_bytes)| Step::Compact { target, min_inputs, max_bytes });
    let columns = prop_oneof![Just(vec!["a"]), Just(vec!["who", "b"]), Just(vec!["c", "a"]), Just(vec!["rid"])];
    let by = prop_oneof![Just(Arrangement::Sort), Just(Arrangement::ZOrder)];
    let sort = (2_000..200_000_u64, by, columns).prop_map(|(target, by, columns)| Step::Sort { target, by, columns });
    prop_oneof![3 => compact, 2 => sort, 2 => Just(Step::Vacuum)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_lost_or_invented(
        tables in prop::collection::vec(table(), 1..7),
        (format, codec) in output(),
        target in prop_oneof![Just(1_u64), 1_000..20_000_u64, Just(1 << 20)],
        steps in prop::collection::vec(step(), 0..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let context = context(folder.path());
        let out = Location::from_local_path(&folder.path().join("ds")).unwrap();
        let mut expected = 0;
        for (number, table) in tables.iter().enumerate() {
            let name = format!("{number}.csv");
            #[expect(clippy::disallowed_methods, reason = "tests write their own inputs")]
            std::fs::write(folder.path().join(&name), csv(table, number)).unwrap();
            let options = ConvertOptions {
                sources: vec![name],
                to: Some(format),
                codec: Some(codec),
                target_shard: Some(Size(target)),
                id: vec!["rid".into()],
                subject: Some("who".into()),
                // The tables have columns of one name with different types.
                on_schema: OnSchema::Union,
                ..ConvertOptions::default()
            };
            let report = convert_sources(&context, &out, &options).unwrap();
            prop_assert_eq!(report.counts.records_out, table.rows.len() as u64);
            expected += table.rows.len() as u64;
        }
        let before = contents(&context, &out);
        prop_assert_eq!(before.values().sum::<u64>(), expected);
        let first = context.open_dataset(&out).unwrap().open_newest().unwrap().version();
        let ids: Vec<String> = (0..tables.len()).map(|number| format!("t{number}r0")).collect();
        let places = |at: Option<String>| -> Vec<(String, u64)> {
            let (hits, _) = find_at(&context, &out, at.as_deref(), &ids).unwrap();
            hits.into_iter().map(|hit| (hit.shard, hit.ordinal)).collect()
        };
        let then = places(None);
        for step in steps {
            match step {
                Step::Compact { target, min_inputs, max_bytes } => {
                    let options = compact::Options {
                        target_shard: Some(Size(target)),
                        min_inputs: Some(min_inputs),
                        max_bytes: max_bytes.map(Size),
                        ..compact::Options::default()
                    };
                    compact::compact_dataset(&context, &out, &options).unwrap();
                    if max_bytes.is_none() {
                        let again = compact::compact_dataset(&context, &out, &options).unwrap();
                        prop_assert_eq!(again.counts.shards_added, 0);
                    }
                }
                Step::Sort { target, by, columns } => {
                    // A Z-order takes two columns.
                    let by = if columns.len() == 1 { Arrangement::Sort } else { by };
                    let columns = columns.into_iter().map(str::to_owned).collect();
                    let options = compact::Options {
                        target_shard: Some(Size(target)),
                        order: (format.is_columnar()).then_some(Order { by, columns }),
                        ..compact::Options::default()
                    };
                    compact::compact_dataset(&context, &out, &options).unwrap();
                }
                Step::Vacuum => {
                    let options = VacuumOptions { retain: Some(std::time::Duration::ZERO), force: true,
                        dry_run: false };
                    vacuum_dataset(&context, &out, &options).unwrap();
                }
            }
            prop_assert_eq!(&contents(&context, &out), &before);
            prop_assert_eq!(&places(Some(format!("v{}", first.0))), &then);
        }
        let verified = verify_dataset(&context, &out, None, true).unwrap();
        prop_assert!(verified.problems.is_empty(), "{:?}", verified.problems);
        let snapshot = context.open_dataset(&out).unwrap().open_newest().unwrap();
        for (number, table) in tables.iter().enumerate() {
            let row = table.rows.len() / 2;
            let hits = find_hits(&snapshot, &format!("t{number}r{row}")).unwrap();
            prop_assert_eq!(hits.len(), 1);
            prop_assert!(hits[0].is_live());
            prop_assert_eq!((hits[0].source.clone(), hits[0].row), (format!("{number}.csv"), Some(row as u64 + 1)));
        }
        let people: usize = tables.iter().map(|t| (0..t.rows.len()).filter(|i| i % 5 == 0).count()).sum();
        prop_assert_eq!(find_hits(&snapshot, "P0").unwrap().len(), people);
        prop_assert!(find_hits(&snapshot, "P9").unwrap().is_empty());
    }
}

/// How often each (id, content hash) is in the live shards.
fn contents(context: &Context<'_>, out: &Location) -> BTreeMap<(String, u64), u64> {
    use arrow::array::{Array, StringArray, UInt64Array};
    let dataset = context.open_dataset(out).unwrap();
    let snapshot = dataset.open_newest().unwrap();
    let mut counts = BTreeMap::new();
    for shard in snapshot.live_shards().unwrap() {
        for batch in read_sidecar(dataset.store().as_ref(), &shard.sidecar()).unwrap() {
            let ids: &StringArray = batch.column(0).as_any().downcast_ref().unwrap();
            let hashes: &UInt64Array = batch.column(6).as_any().downcast_ref().unwrap();
            assert_eq!(ids.null_count(), 0);
            for row in 0..batch.num_rows() {
                *counts.entry((ids.value(row).to_owned(), hashes.value(row))).or_default() += 1;
            }
        }
    }
    counts
}
