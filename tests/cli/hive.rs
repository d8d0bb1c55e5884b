//! Folders `key=value` as columns, by choice.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use support::Folder;

/// Names and types of the columns, and a line for each row.
fn rows(folder: &Folder, dataset: &str) -> String {
    let options = FormatOptions::default().with_null("-");
    let mut out = String::new();
    for (_, bytes) in folder.only_shards(dataset) {
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
        let names: Vec<String> =
            reader.schema().fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect();
        out += &names.join(", ");
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let columns: Vec<_> =
                batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
            for row in 0..batch.num_rows() {
                let values: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
                out += &format!("\n{}", values.join(" "));
            }
        }
    }
    out
}

#[test]
fn folders_become_columns_where_that_is_asked_for() {
    let folder = Folder::new();
    folder.write("in/dt=2026-11-01/site=A%2FB/a.csv", "id,v\n1,x\n2,y\n");
    folder.write("in/dt=2026-11-02/site=__HIVE_DEFAULT_PARTITION__/b.csv", "id,v\n3,z\n");
    folder.write("in/dt=2026-11-03/c.csv", "id,site\n4,own\n");
    let told = folder.run("convert in --out plain").ok();
    assert!(
        told.stderr.contains("folders such as `dt=` do not become columns; --read hive-columns=yes"),
        "{}",
        told.stderr
    );
    folder.run("convert in --read hive-columns=yes --out ds --id id").ok();
    insta::assert_snapshot!(rows(&folder, "ds"), @r"
    id Int64, v Utf8, dt Date32, site Utf8
    1 x 2026-11-01 A/B
    2 y 2026-11-01 A/B
    3 z 2026-11-02 -
    4 - 2026-11-03 own
    ");
    folder.run("verify ds --read-data").ok();
    let json = folder.run("manifest ds --find 3 --json").ok();
    assert_eq!(json.stdout.matches("\"source\"").count(), 1);
    // Named by itself, a file lies in the same folders.
    folder.write("in/dt=2026-11-04/site=7/d.jsonl", "{\"id\":5}\n");
    folder.run("convert in/dt=2026-11-04/site=7/d.jsonl --read hive-columns=yes --out one").ok();
    insta::assert_snapshot!(rows(&folder, "one"), @r"
    id Int64, dt Date32, site Int64
    5 2026-11-04 7
    ");
}

#[test]
fn types_are_those_of_all_folders_or_the_given_ones() {
    let folder = Folder::new();
    folder.write("in/n=1/a.csv", "id\n1\n");
    folder.write("in/n=07/b.csv", "id\n2\n");
    folder.run("convert in --read hive-columns=yes --out text").ok();
    insta::assert_snapshot!(rows(&folder, "text"), @r"
    id Int64, n Utf8
    2 07
    1 1
    ");
    folder.run("convert in --read hive-columns=yes --out number --type n=int32").ok();
    insta::assert_snapshot!(rows(&folder, "number"), @r"
    id Int64, n Int32
    2 7
    1 1
    ");
    let refused = folder.run("convert in --read hive-columns=yes --out date --type n=date");
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("expected a folder `n=` with a value of"), "{}", refused.stderr);
    folder.write("pictures/n=1/a.jpg", [0xff, 0xd8, 0xff, 0xe0, 0]);
    assert_eq!(folder.run("convert pictures --read hive-columns=yes --out p").code, 2);
    for to in ["tar", "tfrecord"] {
        folder.run(&format!("convert in --read hive-columns=yes --out {to} --to {to}")).ok();
        folder.run(&format!("convert {to} --out {to}-back --to parquet")).ok();
        assert!(rows(&folder, &format!("{to}-back")).contains("07"));
    }
}
