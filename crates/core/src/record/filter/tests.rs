//! Conditions in unit tests: what is parsed, and which groups of rows are skipped. Results on rows are compared with
//! DuckDB's by `scripts/checks/where_check.py`.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, StringArray},
    datatypes::{DataType, Field, Fields},
    record_batch::RecordBatch,
};
use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> Filter {
    Filter::parse(text, "2026-11-25T10:11:12.5Z".parse().unwrap()).unwrap()
}

#[test]
fn what_depends_on_the_time_is_resolved() {
    for (given, resolved) in [
        ("day >= today() - 30", "day >= date '2026-10-26'"),
        ("at < now() - interval '12 hours' and a = 1", "at < timestamp '2026-11-24T22:11:12.5Z' and a = 1"),
        ("day = CURRENT_DATE", "day = date '2026-11-25'"),
        ("day > today() - interval 1 month", "day > timestamp '2026-10-25T00:00:00'"),
        ("day > date '2024-03-31' - interval '1 month'", "day > date '2024-03-31' - interval '1 month'"),
        (
            "day in (today(), date '2026-01-01', today() - 1)",
            "day in (date '2026-11-25', date '2026-01-01', date '2026-11-24')",
        ),
    ] {
        let filter = parsed(given);
        assert_eq!(filter.resolved(), resolved);
        let again: Filter = serde_json::from_str(&serde_json::to_string(&filter).unwrap()).unwrap();
        assert_eq!(again, filter);
    }
}

#[test]
fn columns_are_names_or_paths() {
    let filter = parsed("a.b = 1 and \"c d\" is null or not (date = 'x' and Today > 2)");
    assert_eq!(filter.columns().into_iter().collect::<Vec<_>>(), ["Today", "a.b", "c d", "date"]);
}

/// Columns `n`, `t` and `x` with these rows.
fn table(rows: &[(Option<i64>, Option<String>, Option<f64>)]) -> RecordBatch {
    let columns: [(&str, ArrayRef); 3] = [
        ("n", Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>())),
        ("t", Arc::new(rows.iter().map(|row| row.1.clone()).collect::<StringArray>())),
        ("x", Arc::new(rows.iter().map(|row| row.2).collect::<Float64Array>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// Bounds as a writer of Parquet states them: without NaN.
fn bounds(rows: &RecordBatch, column: &str) -> Option<ColumnBounds> {
    let array = rows.column_by_name(column)?;
    let values: Vec<Bound> = (0..array.len()).filter_map(|row| bound_of(array.slice(row, 1).as_ref())).collect();
    let less = |a: &&Bound, b: &&Bound| match (a, b) {
        (Bound::Whole(a), Bound::Whole(b)) => a.cmp(b),
        (Bound::Text(a), Bound::Text(b)) => a.cmp(b),
        (Bound::Float(a), Bound::Float(b)) => a.total_cmp(b),
        _ => std::cmp::Ordering::Equal,
    };
    let usual = || values.iter().filter(|value| !matches!(value, Bound::Float(x) if x.is_nan()));
    Some(ColumnBounds {
        min: usual().min_by(less).cloned(),
        max: usual().max_by(less).cloned(),
        nulls: Some(array.null_count() as u64),
    })
}

fn condition() -> impl Strategy<Value = String> {
    let op = prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]);
    let number = prop::sample::select(vec!["-3", "0", "1", "1.5", "2", "3e0", "null"]);
    let text = prop::sample::select(vec!["''", "'a'", "'ab'", "'b'", "null"]);
    let leaf = prop_oneof![
        (prop::sample::select(vec!["n", "x"]), op.clone(), number.clone()).prop_map(|(c, o, v)| format!("{c} {o} {v}")),
        (op, text.clone()).prop_map(|(o, v)| format!("t {o} {v}")),
        (number.clone(), number.clone()).prop_map(|(a, b)| format!("n between {a} and {b}")),
        (number.clone(), number).prop_map(|(a, b)| format!("n not in ({a}, {b})")),
        (text.clone(), text).prop_map(|(a, b)| format!("t in ({a}, {b})")),
        prop::sample::select(vec!["n", "t", "x"]).prop_map(|c| format!("{c} is null")),
        Just("t like 'a%'".to_owned()),
        Just("n = x".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) or ({b})")),
            inner.prop_map(|a| format!("not ({a})")),
        ]
    })
}

proptest! {
    /// A group of rows is skipped only if none of them matches.
    #[test]
    fn no_group_with_a_matching_row_is_skipped(
        condition in condition(),
        rows in prop::collection::vec((
            prop::option::of(-3..4_i64),
            prop::option::of("[ab]{0,2}"),
            prop::option::of(prop::sample::select(vec![-3.0, -0.0, 0.0, 1.5, 2.0, f64::NAN, f64::INFINITY])),
        ), 1..6),
    ) {
        let batch = table(&rows);
        let filter = parsed(&condition).bind(batch.schema_ref().fields()).unwrap();
        let matching = filter.matching_rows(&batch).unwrap().true_count();
        let may_match = filter.may_match(rows.len() as u64, &|column, _| bounds(&batch, column));
        prop_assert!(may_match || matching == 0, "{condition}: {rows:?}");
    }
}

#[test]
fn groups_beyond_the_bounds_are_skipped() {
    let batch = table(&[(Some(1), Some("b".to_owned()), Some(1.0)), (Some(5), Some("d".to_owned()), Some(2.0))]);
    for condition in [
        "n > 5",
        "n = 1.5",
        "not n >= 1",
        "t < 'b'",
        "t in ('a', 'e')",
        "n is null",
        "x < 1",
        "n = 3 and t = 'a'",
        "n = null",
    ] {
        let filter = parsed(condition).bind(batch.schema_ref().fields()).unwrap();
        assert!(!filter.may_match(2, &|column, _| bounds(&batch, column)), "{condition}");
        assert!(
            filter.may_match(2, &|_, _| None) || condition.contains("null") || condition.contains("1.5"),
            "{condition}"
        );
    }
}

#[test]
fn a_column_without_values_is_null() {
    let fields = Fields::from(vec![Field::new("n", DataType::Null, true), Field::new("m", DataType::Int64, true)]);
    for condition in ["n > 5", "n = 'a'", "n = m", "n in (1)", "n like 'a'", "n"] {
        assert!(parsed(condition).bind(&fields).is_ok(), "{condition}");
    }
    assert!(parsed("m like 'a'").bind(&fields).is_err());
}
