//! Outcomes of tasks that are damaged or made up: whatever a field says, the commit is refused, or all records are
//! there and the dataset is sound.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

use crate::support;

use std::{fmt::Write as _, path::Path, process::Command};

use serde_json::{Value, json};
use support::{Folder, outcome_path, rewrite_entry};

/// A dataset `d` and an open plan for it whose tasks are done; returns its path and the number of tasks.
fn planned(operation: &str) -> (Folder, String, u64) {
    let folder = Folder::new();
    for file in 0..6 {
        let mut text = String::from("id,who,score\n");
        for row in 0..30 {
            writeln!(text, "r{file}-{row},PAT-{},{}.5", row % 7, file * row).unwrap();
        }
        folder.write(&format!("raw/{file}.csv"), text);
    }
    let options = "--out d --id id --subject who";
    let plan = match operation {
        "convert" => format!("plan convert raw {options} --task-size 1KiB --json"),
        _ => {
            (0..6).for_each(|file| {
                folder.run(&format!("convert raw/{file}.csv {options}")).ok();
            });
            "plan compact d --target-shard 3KiB --task-size 3KiB --json".to_owned()
        }
    };
    let report = folder.run(&plan).ok().summary();
    let (plan, tasks) = (report["plan"].as_str().unwrap().to_owned(), report["tasks"].as_u64().unwrap());
    assert!(tasks > 1, "{report}");
    folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
    (folder, plan, tasks)
}

/// The places of all values in a value.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| places(value, &format!("{at}/{name}"), out)),
        Value::Array(values) => {
            values.iter().enumerate().take(2).for_each(|(number, value)| places(value, &format!("{at}/{number}"), out));
        }
        _ => {}
    }
}

/// Values that somebody may put in place of one.
fn others(value: &Value, task_1: &Value, at: &str) -> Vec<Value> {
    let mut others: Vec<Value> = task_1.pointer(at).into_iter().cloned().collect();
    match value {
        Value::Number(number) => {
            let number = number.as_u64().unwrap();
            others.extend([0, number + 1, number.wrapping_sub(1), 1 << 63, u64::MAX].map(Value::from));
        }
        Value::Array(values) => {
            others.push(json!([]));
            others.push(values.iter().chain(values.last()).cloned().collect());
            others.push(values.iter().skip(1).cloned().collect());
        }
        Value::String(_) => others.extend(["../x", "/etc/passwd", ""].map(Value::from)),
        _ => {}
    }
    others.retain(|other| other != value);
    others
}

#[test]
fn whatever_an_outcome_says_no_record_is_lost_or_invented() {
    for operation in ["convert", "compact"] {
        let (folder, plan, _) = planned(operation);
        let keep = folder.path().join("kept");
        let copy = |from: &Path, to: &Path| {
            let _ = std::fs::remove_dir_all(to);
            assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
        };
        let dataset = folder.path().join("d");
        copy(&dataset, &keep);
        let outcome = |task| outcome_path(&plan, task);
        let bytes = std::fs::read(outcome(0)).unwrap();
        let read = |task| serde_json::from_slice::<Value>(&std::fs::read(outcome(task)).unwrap()).unwrap();
        let (task_0, task_1) = (read(0), read(1));
        let mut all = Vec::new();
        places(&task_0, "", &mut all);
        let mut refused = 0;
        for at in all.iter().filter(|at| !at.is_empty() && !at.starts_with("/others") && *at != "/checksum") {
            for other in others(task_0.pointer(at).unwrap(), &task_1, at) {
                let case = format!("{operation} {at} {other}");
                rewrite_entry(&outcome(0), |outcome| *outcome.pointer_mut(at).unwrap() = other);
                let ran = folder.run(&format!("commit {plan}"));
                if ran.code == 0 {
                    folder.run("verify d --read-data").ok();
                    let summary = folder.run("manifest d --json").ok().summary();
                    assert_eq!(summary["records"], 180, "{case}");
                } else {
                    assert!(matches!(ran.code, 4..=6), "{case}: {ran:?}");
                    refused += 1;
                    // A commit deletes the outcome of a task whose shards are gone.
                    std::fs::write(outcome(0), &bytes).unwrap();
                    continue;
                }
                copy(&keep, &dataset);
            }
        }
        assert!(refused > 100, "{operation}: {refused}");
    }
}

#[test]
fn sources_of_other_tasks_are_not_taken() {
    let (folder, plan, _) = planned("convert");
    let outcome = |task| outcome_path(&plan, task);
    let of_task_1: Value = serde_json::from_slice(&std::fs::read(outcome(1)).unwrap()).unwrap();
    rewrite_entry(&outcome(0), |outcome| outcome["sources"] = of_task_1["sources"].clone());
    let ran = folder.run(&format!("commit {plan}"));
    assert!(ran.code == 5 && ran.stderr.contains("does not add up"), "{ran:?}");
    assert!(ran.stderr.contains("delete it, run its task again"), "{ran:?}");
    std::fs::remove_file(outcome(0)).unwrap();
    folder.run(&format!("run-task {plan} --task 0")).ok();
    folder.run(&format!("commit {plan}")).ok();
    folder.run("verify d --read-data").ok();
}
