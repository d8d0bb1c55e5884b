//! `inspect`, dry runs and `convert` agree about small inputs: counts, types, rejects, and whether they are refused.

use crate::support;

use support::Folder;

/// The message of the error of a command.
fn message(stderr: &str) -> &str {
    stderr.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or_default()
}

#[test]
fn what_convert_refuses_is_refused_by_a_dry_run_and_named_by_inspect() {
    let folder = Folder::new();
    let rows: String = (1..=30).map(|n| format!("{n},name {n}\n")).collect();
    folder.write("long.csv", format!("id,name\n{rows}31,a,b\n"));
    folder.write("torn.json", "[{\"a\":1},{\"a\":}]");
    folder.write("numbers.json", "[1,2]");
    folder.write(".odd", "x");
    for file in ["long.csv", "torn.json", "numbers.json", ".odd"] {
        let refused = folder.run(&format!("convert {file} --out ds"));
        let tried = folder.run(&format!("convert {file} --out ds --dry-run"));
        assert!(refused.code != 0 && !message(&refused.stderr).is_empty(), "{refused:?}");
        assert_eq!((tried.code, message(&tried.stderr)), (refused.code, message(&refused.stderr)), "{file}");
        let inspected = folder.run(&format!("inspect {file}"));
        let told = format!("{}{}", inspected.stdout, inspected.stderr);
        assert!(told.contains(message(&refused.stderr)), "{file}: {told}");
    }
}

#[test]
fn a_dry_run_of_a_small_input_has_the_counts_types_and_bytes_of_the_run() {
    let folder = Folder::new();
    let rows: String = (1..=3000).map(|n| format!("{n},{}\n", n % 7)).collect();
    folder.write("late.csv", format!("id,v\n{rows}3001,abc\n3002,1,2\n"));
    folder.write("empty.json", "[]");
    let tried = folder.run("convert late.csv --out ds --on-error skip --dry-run --json").ok().summary();
    let made = folder.run("convert late.csv --out ds --on-error skip --json").summary();
    let estimate = &tried["estimate"];
    assert_eq!(made["records_out"], 3001);
    for (estimated, made) in [("records", "records_out"), ("rejected", "records_rejected"), ("bytes", "bytes_out")]
        .map(|(estimated, counted)| (&estimate[estimated], &made[counted]))
    {
        assert_eq!(estimated, made, "{tried}");
    }
    assert_eq!((&tried["columns"], &estimate["sampled"]), (&made["columns"], &false.into()));
    folder.run("convert empty.json --out none --dry-run").ok();
}
