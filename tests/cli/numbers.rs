//! Numbers of a column are the same wherever they are printed, and those of the values.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{
        ArrayRef, BooleanArray, Date32Array, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
        StructArray,
    },
    buffer::NullBuffer,
    datatypes::{DataType, Field, Int64Type},
};
use parquet::arrow::ArrowWriter;
use serde_json::Value;
use support::Folder;

/// Rows of the file, which `inspect` samples all of.
const ROWS: i64 = 4_000;

/// Nulls, and different values, of a column.
struct Expected {
    nulls: i64,
    distinct: Option<usize>,
    range: Option<(&'static str, &'static str)>,
}

/// A column, made from what a row has.
fn column<T: Clone + PartialEq + PartialOrd>(
    of: impl Fn(i64) -> Option<T>,
    range: Option<(&'static str, &'static str)>,
) -> (Vec<Option<T>>, Expected) {
    let values: Vec<Option<T>> = (0..ROWS).map(of).collect();
    let mut distinct: Vec<T> = Vec::new();
    for value in values.iter().flatten() {
        // NaN is one value, as in SQL, and 0.0 is -0.0.
        #[expect(clippy::eq_op, reason = "only NaN is not itself")]
        if !distinct.iter().any(|known| known == value || (known != known && value != value)) {
            distinct.push(value.clone());
        }
    }
    let nulls = values.iter().filter(|value| value.is_none()).count();
    let expected = Expected { nulls: i64::try_from(nulls).unwrap(), distinct: Some(distinct.len()), range };
    (values, expected)
}

/// A file of a column of each class, and what is known of them.
fn file() -> (Vec<u8>, BTreeMap<&'static str, Expected>) {
    let (whole, whole_expected) = column(|n| (n % 10 > 0).then_some(n * 7_919 % 1_000 - 500), Some(("-499", "499")));
    let of_float = |n: i64| match (n % 9, n % 4, n % 5) {
        (0, ..) => None,
        (_, 0, _) => Some(f64::NAN),
        (.., 0) => Some(-0.0),
        (.., 1) => Some(0.0),
        _ => Some((n % 300) as f64 / 8.0 + 1.0),
    };
    let (float, float_expected) = column(of_float, None);
    let (text, text_expected) =
        column(|n| (n % 7 > 0).then(|| format!("text {}", n % 50 + 10)), Some(("text 10", "text 59")));
    // 18262 days after 1970-01-01.
    let of_day = |n: i64| (n % 6 > 0).then(|| i32::try_from(18_262 + n % 700).unwrap());
    let (day, day_expected) = column(of_day, Some(("2020-01-01", "2021-11-30")));
    let (flag, flag_expected) = column(|n| (n % 3 > 0).then_some(n % 2 == 0), Some(("false", "true")));
    let is_struct = |n: i64| n % 8 > 0;
    let of_member = |n: i64| (n % 5 > 0).then(|| i32::try_from(n % 77).unwrap());
    let (_, member_expected) = column(|n| of_member(n).filter(|_| is_struct(n)), Some(("0", "76")));
    let member: ArrayRef = Arc::new((0..ROWS).map(of_member).collect::<Int32Array>());
    let members = StructArray::new(
        vec![Field::new("x", DataType::Int32, true)].into(),
        vec![member],
        Some((0..ROWS).map(is_struct).collect::<NullBuffer>()),
    );
    let of_list = |n: i64| (n % 12 > 0).then(|| (0..n % 4).map(Some).collect::<Vec<_>>());
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>((0..ROWS).map(of_list));
    let nulls = Expected { nulls: ROWS, distinct: Some(0), range: None };
    let columns: [(&str, ArrayRef); 8] = [
        ("whole", Arc::new(Int64Array::from(whole))),
        ("float", Arc::new(Float64Array::from(float))),
        ("text", Arc::new(StringArray::from(text))),
        ("day", Arc::new(Date32Array::from(day))),
        ("flag", Arc::new(BooleanArray::from(flag))),
        ("nested", Arc::new(members)),
        ("list", Arc::new(lists)),
        ("nulls", Arc::new(Int64Array::from(vec![None; usize::try_from(ROWS).unwrap()]))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let list_nulls = Expected { nulls: (ROWS + 11) / 12, distinct: None, range: None };
    let expected = [
        ("whole", whole_expected),
        ("float", float_expected),
        ("text", text_expected),
        ("day", day_expected),
        ("flag", flag_expected),
        ("nested.x", member_expected),
        ("list", list_nulls),
        ("nulls", nulls),
    ];
    (bytes, expected.into())
}

fn columns(folder: &Folder, command: &str) -> BTreeMap<String, Value> {
    let ran = folder.run(&format!("{command} --json"));
    let objects = ran.objects().into_iter().filter(|object| object["type"] == "column");
    objects.map(|object| (object["column"].as_str().unwrap().to_owned(), object)).collect()
}

fn rules(names: &[&str]) -> String {
    let rule = |name: &&str| {
        let least = if ["whole", "nested.x", "float"].contains(name) { "min = -1000\n" } else { "" };
        format!("[columns.\"{name}\"]\nunique = true\n{least}")
    };
    names.iter().map(rule).collect()
}

#[test]
fn commands_print_the_same_numbers_of_a_column() {
    let folder = Folder::new();
    let (bytes, expected) = file();
    folder.write("in.parquet", bytes);
    folder.run("convert in.parquet --out d --target-shard 16KiB --quiet").ok();
    folder.write("rules.toml", rules(&expected.keys().copied().collect::<Vec<_>>()));
    let reported = columns(&folder, "report d");
    let drifted = columns(&folder, "manifest d --drift v1 v1");
    let checked = columns(&folder, "check d --rules rules.toml");
    let inspected = columns(&folder, "inspect in.parquet");
    for (name, expected) in expected {
        let (report, drift, check) = (&reported[name], &drifted[name], &checked[name]);
        assert_eq!((&report["nulls"], &check["nulls"]), (&expected.nulls.into(), &expected.nulls.into()), "{name}");
        let share = Value::from(expected.nulls as f64 / ROWS as f64);
        for (of, found) in [("report", &report["null_share"]), ("before", &drift["nulls_before"])] {
            assert_eq!(found, &share, "{name} {of}");
        }
        assert_eq!(drift["nulls_after"], share, "{name}");
        if let Some(inspect) = inspected.get(name) {
            assert_eq!(inspect["nulls"], share, "{name}");
        }
        if let Some(distinct) = expected.distinct {
            assert_eq!(report["sampled_distinct"], distinct, "{name}");
            assert_eq!(check["distinct"], distinct, "{name}");
        }
        if let Some((least, greatest)) = expected.range {
            assert_eq!((&report["min"], &report["max"]), (&least.into(), &greatest.into()), "{name}");
        }
        for (end, text) in [("min", &report["min"]), ("max", &report["max"])] {
            if let Some(number) = check[end].as_f64() {
                assert_eq!(text.as_str().unwrap().parse(), Ok(number), "{name}");
            }
        }
    }
    assert_eq!(inspected.len(), 8);
}

#[test]
fn bins_are_those_of_the_sample_that_a_report_describes() {
    let folder = Folder::new();
    let rows: String = (0..80_000).map(|n| format!("{n},{}\n", n * 7 % 1_009)).collect();
    folder.write("a.csv", format!("id,x\n{rows}"));
    folder.run("convert a.csv --out d --target-shard 64KiB --quiet").ok();
    folder.run("convert a.csv --out tar --to tar --target-shard 4MiB --quiet").ok();
    let sampled = |command: &str| folder.run(&format!("{command} --json")).ok().summary()["sampled_rows"].clone();
    let report = folder.run("report d --json").ok().summary();
    assert_eq!(report["sampled_records"], 65_536);
    assert_eq!(sampled("manifest d --drift v1 v1"), 65_536);
    assert_eq!(sampled("manifest tar --drift v1 v1"), 65_536);
    // The values of `x` are 0 to 1008, about equally often, so the bounds of the bins are its deciles.
    let drifted = columns(&folder, "manifest d --drift v1 v1 -j 1");
    let again = columns(&folder, "manifest d --drift v1 v1 -j 3");
    assert_eq!(drifted, again);
    for (tenth, bin) in drifted["x"]["bins"].as_array().unwrap().iter().enumerate().take(9) {
        let bound = bin["up_to"].as_f64().unwrap();
        assert!((bound - 100.8 * (tenth as f64 + 1.0)).abs() < 12.0, "{bin}");
    }
}
