//! `runs`: events of training runs are added once and checked, and what they answer outlives changes of the dataset.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage files")]

use crate::support;

use std::fs;

use serde_json::{Value, json};
use support::Folder;

const ATTEMPT: &str = "00000000000000000000000000000001";

/// A hundred records of seven subjects, in the order of the dataset: step `s` has records `8 s` to `8 s + 7`.
fn dataset() -> Folder {
    let folder = Folder::new();
    let rows: String = (0..100).map(|i| format!("R{i},P{},{i}\n", i % 7)).collect();
    folder.write("rows.csv", format!("id,who,x\n{rows}"));
    folder.run("convert rows.csv --id id --subject who").ok();
    folder
}

fn event(kind: &str, more: &Value) -> Value {
    let mut event = json!({ "run": "run-7", "format": 1, "attempt": ATTEMPT, "at": "2026-01-01T00:00:00.000000Z",
        "tool": "test", "kind": kind });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

fn start(basis: &str) -> Value {
    let order = json!({ "format": 1, "seed": 1, "shuffle": false, "block": 8, "lanes": 1, "window": 8 });
    event(
        "start",
        &json!({ "name": "run-7", "id": ATTEMPT, "version": 1, "basis": basis, "records": 100, "order": order,
            "global_batch_size": 8, "drop_last": true, "epoch": 0, "turn": 0, "report_every": 3, "role": "train" }),
    )
}

fn at(kind: &str, step: u64, more: &Value) -> Value {
    let mut place = json!({ "step": step, "epoch": step / 12, "turn": step % 12 * 8 });
    place.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event(kind, &place)
}

fn add(folder: &Folder, events: &[Value]) -> support::Ran {
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    folder.run_input(&["runs", "shards", "--add", "-", "--json"], lines.as_bytes())
}

/// A dataset with a run of 15 steps and a checkpoint after 2 and after 9 of them.
fn trained() -> Folder {
    let folder = dataset();
    // The refusal of a wrong basis names the right one.
    let refused = add(&folder, &[start(&"0".repeat(64))]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let said = refused.error()["message"].as_str().unwrap().to_owned();
    let basis = said.split("expected the basis ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(!folder.path().join("shards/_shardify/training").exists());
    let events = [
        start(&basis),
        at("checkpoint", 2, &json!({ "name": "ckpt/2" })),
        at("checkpoint", 9, &json!({ "name": "ckpt/9" })),
        at("end", 15, &json!({})),
    ];
    let added = add(&folder, &events).ok().summary();
    assert_eq!((&added["added"], &added["runs"]), (&json!(4), &json!(["run-7"])));
    assert_eq!(add(&folder, &events).ok().summary()["known"], 4);
    folder
}

/// The steps that saw an id, by the summary of the only run.
fn steps(folder: &Folder, id: &str) -> Vec<u64> {
    let found = folder.run(&format!("manifest shards --find {id} --runs --json")).objects();
    let run = found.iter().find(|one| one["type"] == "run").unwrap();
    run["seen"].as_array().unwrap().iter().map(|seen| seen["step"].as_u64().unwrap()).collect()
}

#[test]
fn a_record_leads_to_its_steps_and_a_step_to_its_records() {
    let folder = trained();
    // Epoch 1 has steps 12 to 14 of the run; 96 to 99 fill no step.
    assert_eq!(
        (steps(&folder, "R0"), steps(&folder, "R17"), steps(&folder, "R30")),
        (vec![0, 12], vec![2, 14], vec![3])
    );
    assert_eq!(steps(&folder, "P3").len(), 14 + 3);
    let none = folder.run("manifest shards --find R97 --runs");
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.stdout.contains("fill no step, in 1 epoch"), "{}", none.stdout);
    let found = folder.run("runs shards run-7 --find R17");
    assert!(found.stdout.contains("ckpt/2 (2)") && found.stdout.contains("repeats 13 steps"), "{}", found.stdout);
    let rows = folder.run("runs shards run-7 --step 11..12 --json").ok().objects();
    let ids: Vec<&str> = rows.iter().filter_map(|row| row["record_id"].as_str()).collect();
    assert_eq!(ids[..8], ["R88", "R89", "R90", "R91", "R92", "R93", "R94", "R95"]);
    assert_eq!((ids[8], ids.len(), &rows[16]["steps"]), ("R0", 16, &json!(2)));
    let beyond = folder.run("runs shards run-7 --step 15");
    assert!(beyond.code == 2 && beyond.stderr.contains("15 steps"), "{beyond:?}");
    let shown = folder.run("runs shards run-7 --json").ok().summary();
    assert_eq!((&shown["steps"], &shown["state"], &shown["epochs"]), (&json!(15), &json!("ended"), &json!(2)));
    let unknown = folder.run("runs shards run-8");
    assert!(unknown.code == 2 && unknown.stderr.contains("training runs: run-7"), "{unknown:?}");
}

#[test]
fn answers_outlive_changes_and_a_released_version_does_not() {
    let folder = trained();
    let before = steps(&folder, "P5");
    folder.write("more.csv", "id,who,x\nX1,P5,1\n");
    folder.run("convert more.csv").ok();
    folder.run("compact shards --target-shard 1MiB").ok();
    folder.run("vacuum shards --retain 0s --force").ok();
    assert_eq!(steps(&folder, "P5"), before);
    folder.run("pull shards copy --at run/run-7").ok();
    let copied = folder.run("runs copy run-7 --find P5 --json").ok().objects();
    assert_eq!((&copied[0]["first_step"], &copied[0]["version"]), (&json!(before[0]), &json!(1)));
    folder.run("runs shards run-7 --release").ok();
    assert_eq!(folder.run("runs shards --json").ok().objects()[0]["state"], "released");
    assert_eq!(folder.run("runs shards run-7 --release").code, 2);
    folder.run("vacuum shards --retain 0s --force").ok();
    let gone = folder.run("manifest shards --find P5 --runs");
    assert!(gone.code == 2 && gone.stderr.contains("was vacuumed"), "{gone:?}");
    assert_eq!(folder.run("verify shards").code, 0);
}

#[test]
fn an_erasure_says_which_steps_saw_somebody() {
    let folder = trained();
    let seen = |summary: &Value| {
        let run = &summary["training_runs"][0];
        (run["steps"].as_u64(), run["first_step"].as_u64(), run["clean_checkpoint"].clone())
    };
    let planned = folder.run("erase shards --subject P3 --dry-run --json").ok().summary();
    assert_eq!(seen(&planned), (Some(15), Some(0), Value::Null));
    let summary = folder.run("erase shards --record R30 --json").ok().summary();
    assert_eq!(seen(&summary), (Some(1), Some(3), json!({ "step": 2, "epoch": 0, "turn": 16, "name": "ckpt/2" })));
    let receipt = folder.path().join("shards").join(summary["receipt"].as_str().unwrap());
    let receipt: Value = serde_json::from_slice(&fs::read(receipt).unwrap()).unwrap();
    assert_eq!(receipt["training_runs"], summary["training_runs"]);
    let nobody = folder.run("erase shards --record R98 --json").ok().summary();
    assert_eq!(
        (seen(&nobody), nobody["training_runs"][0]["records"].as_u64()),
        ((Some(0), None, Value::Null), Some(1))
    );
}

#[test]
fn events_that_do_not_follow_are_refused_and_damage_is_found() {
    let folder = trained();
    let other = "00000000000000000000000000000002";
    let resume = |attempt: &str, step: u64| {
        let mut resume = at("resume", step, &json!({ "global_batch_size": 8 }));
        resume["attempt"] = json!(attempt);
        resume
    };
    for (wrong, code) in [
        (at("progress", 16, &json!({})), 2), // The run has ended.
        (event("start", &json!({})), 2),     // Fields are missing.
        (at("resume", 3, &json!({ "global_batch_size": 0 })), 2),
        (json!({ "kind": "end" }), 2),
        (json!({ "run": "../x", "kind": "end" }), 2),
        (json!([1]), 2),
    ] {
        let refused = add(&folder, std::slice::from_ref(&wrong));
        assert_eq!(refused.code, code, "{wrong} {refused:?}");
        assert_eq!(refused.error()["line"], 1, "{refused:?}");
    }
    add(&folder, &[resume(other, 9)]).ok();
    // Steps from 9 on do not count until the second attempt reports them.
    assert_eq!(steps(&folder, "R80"), [10]);
    let found = folder.run("runs shards run-7 --find R80 --json").ok().objects();
    assert_eq!(found[0]["is_certain"], false);
    let late = add(&folder, &[at("checkpoint", 15, &json!({ "name": "late" }))]);
    assert!(late.code == 4 && late.stderr.contains("another attempt"), "{late:?}");
    let path = folder.path().join("shards/_shardify/training/run-7/00000002.json");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, String::from_utf8(whole.clone()).unwrap().replace("ckpt/9", "ckpt/8")).unwrap();
    let damaged = folder.run("verify shards");
    assert!(damaged.code == 1 && damaged.stdout.contains("00000002.json"), "{damaged:?}");
    assert_eq!(folder.run("manifest shards --find R0 --runs").code, 5);
    fs::remove_file(&path).unwrap();
    assert_eq!(folder.run("runs shards").code, 5);
    fs::write(&path, whole).unwrap();
    folder.run("verify shards").ok();
}
