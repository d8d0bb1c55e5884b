//! Order 1 stays as it is: the rows of `testdata/order1.tsv` are answered as they were when it was specified.

#[path = "../examples/vectors.rs"]
#[expect(dead_code, reason = "the example's `main`")]
mod vectors;

#[test]
fn the_committed_table_is_answered_alike() -> Result<(), Box<dyn std::error::Error>> {
    let table = include_str!("../../../testdata/order1.tsv");
    let rows: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(rows.len() > 170, "{} rows", rows.len());
    for row in rows {
        assert_eq!(vectors::answered(row)?, row);
    }
    Ok(())
}
