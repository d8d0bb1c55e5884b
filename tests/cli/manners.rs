//! Manners: streams, exit codes, configuration, interruption, help.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use support::Folder;

#[test]
fn completions_and_the_manual_page_are_printed_and_wrong_options_are_usage_errors() {
    let folder = Folder::new();
    assert!(folder.run("completions bash").ok().stdout.contains("shardify"));
    assert!(folder.run("man").ok().stdout.contains(".TH"));
    assert_eq!(folder.run("convert --nonsense").code, 2);
    assert_eq!(folder.run("convert --target-shard huge").code, 2);
    let words = folder.run("completions bash").ok().stdout;
    assert!(words.contains("quarantine"), "values of options are completed");
    let wrong = folder.run("erase --nonsense").stderr;
    assert!(wrong.contains("[DATASET] [ID]...") || wrong.contains("Usage: shardify erase [OPTIONS]"), "{wrong}");
}

#[test]
fn quiet_silences_summaries_and_neither_answers_nor_damage() {
    let folder = Folder::new();
    folder.write("a.csv", "id,who\n1,ada\n2,ada\n");
    let silent = |arguments: &str| {
        let ran = folder.run(arguments).ok();
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""), "{arguments}");
    };
    silent("convert a.csv --subject who -q");
    silent("convert a.csv --subject who -q --dry-run");
    silent("compact -q");
    silent("verify -q");
    silent("manifest --tag t -q");
    silent("vacuum -q --dry-run");
    silent("block --subject bea -q");
    silent("erase --source a.csv#1 -q");
    for answer in
        ["manifest -q", "manifest --list -q", "manifest --find ada -q", "inspect a.csv -q", "verify -q --json"]
    {
        assert!(!folder.run(answer).ok().stdout.is_empty(), "{answer}");
    }
    // Those of older versions, too.
    for (shard, mut bytes) in folder.only_shards("shards") {
        bytes.truncate(bytes.len() - 1);
        folder.write(&format!("shards/{shard}"), bytes);
    }
    let damaged = folder.run("verify -q");
    assert_eq!(damaged.code, 1);
    assert!(
        damaged.stdout.lines().all(|line| line.starts_with("damaged: ")) && !damaged.stdout.is_empty(),
        "{damaged:?}"
    );
    assert!(folder.run("convert missing.csv -q").stderr.starts_with("error: "));
}

#[test]
fn json_is_one_object_a_line_with_type_and_schema_first() {
    let folder = Folder::new();
    folder.write("a.csv", "id,who\n1,ada\n2,ada\n");
    let converted = folder.run("convert a.csv --subject who --json").ok();
    assert!(converted.stdout.starts_with("{\"type\":\"summary\",\"schema\":1,"), "{converted:?}");
    let summary = converted.summary();
    for field in [
        "version",
        "records_in",
        "records_out",
        "records_rejected",
        "records_deduplicated",
        "records_filtered",
        "bytes_in",
        "bytes_out",
        "shards_added",
        "shards_removed",
        "seconds",
    ] {
        assert!(summary.get(field).is_some(), "{field}");
    }
    let compacted = folder.run("compact --json").ok().summary();
    for field in ["bytes_copied", "bytes_spliced", "bytes_reencoded", "version", "records_in", "seconds"] {
        assert!(compacted.get(field).is_some(), "{field}");
    }
    for command in
        ["manifest --find ada", "manifest --list", "manifest --list --urls", "manifest --history", "manifest"]
    {
        let ran = folder.run(&format!("{command} --json")).ok();
        assert!(ran.stdout.lines().all(|l| l.starts_with("{\"type\":\"")), "{command}: {ran:?}");
        ran.summary();
    }
    let failed = folder.run("convert missing.csv --json");
    assert_eq!((failed.error()["type"].as_str(), failed.stdout.as_str()), (Some("error"), ""), "once");
}

#[test]
fn with_json_each_line_of_standard_error_is_an_object() {
    let folder = Folder::new();
    folder.write("a.csv", "id,x\n1,2\n3,4,5\n");
    folder.write("b.parquet", "id,x\n1,2\n3,4\n");
    folder.write("key", "0123456789abcdef".repeat(4));
    for (command, code, kind) in [
        ("convert b.parquet --out b --memory 16MiB", 0, "note"),
        ("convert b.parquet --out p --id id --id-mode hmac --id-key key", 0, "warning"),
        ("convert a.csv", 6, "error"),
        ("convert a.csv --on-error skip --type x=int64 --type y=int64", 2, "error"),
        ("convert a.csv --nothing", 2, "error"),
        ("inspect nothing.csv", 2, "error"),
    ] {
        let ran = folder.run(&format!("{command} --json"));
        assert_eq!(ran.code, code, "{ran:?}");
        let events: Vec<serde_json::Value> = ran.stderr.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert!(events.iter().all(|event| event["schema"] == 1 && event["message"].is_string()), "{ran:?}");
        assert!(events.iter().any(|event| event["type"] == kind), "{ran:?}");
        let quiet = folder.run(&format!("{command} --json --quiet"));
        assert!(kind != "note" || quiet.stderr.is_empty(), "{quiet:?}");
    }
}

/// Asserts that a file that cannot be written is named, and that what was there before is still there.
#[track_caller]
fn fails_to_write(folder: &Folder, command: &str, file: &str) {
    let ran = folder.run(&format!("{command} /dev/full"));
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("at: /dev/full") && ran.stderr.contains("No space left"), "{ran:?}");
    folder.write(file, "before");
    let line = format!("ulimit -f 1; exec {} {command} {file}", env!("CARGO_BIN_EXE_shardify"));
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", &line]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(5) && said.contains(&format!("/{file}\n")), "{said}");
    assert_eq!(std::fs::read_to_string(folder.path().join(file)).unwrap(), "before", "{command}");
    let names =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = names.filter(|name| name.starts_with(".shardify-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn pages_and_metrics_are_written_whole_or_not_at_all() {
    let folder = Folder::new();
    folder.write("a.csv", "id,x\n1,2\n3,4\n");
    // Metrics of many rules are longer than what may be written.
    let rules: String = (0..40).map(|n| format!("[columns.c{n}]\nnot_null = true\nmin = 0\n")).collect();
    let header: Vec<String> = (0..40).map(|n| format!("c{n}")).collect();
    folder.write("wide.csv", format!("{}\n{}\n", header.join(","), vec!["1"; 40].join(",")));
    folder.write("rules.toml", rules);
    folder.run("convert a.csv --quiet").ok();
    folder.run("convert wide.csv --out wide --quiet").ok();
    fails_to_write(&folder, "report shards --html", "report.html");
    fails_to_write(&folder, "bench a.csv shards --time 10ms --step 1ms --readers 1 --html", "bench.html");
    fails_to_write(&folder, "check wide --rules rules.toml --prometheus", "metrics.prom");
    // What was measured or checked is told all the same.
    let told = folder.run("bench a.csv shards --time 10ms --step 1ms --readers 1 --html /dev/full");
    assert!(told.stdout.contains("records/s"), "{told:?}");
    let told = folder.run("check wide --rules rules.toml --prometheus /dev/full");
    assert!(told.stdout.contains("80 rules"), "{told:?}");
}

#[test]
fn urls_are_brace_ranges_of_shards_that_exist() {
    let folder = Folder::new();
    let mut text = "n\n".to_owned();
    (0..3_000).for_each(|i| text.push_str(&format!("{i}\n")));
    folder.write("a.csv", text);
    folder.run("convert a.csv --to tar --target-shard 512KiB").ok();
    let urls = folder.run("manifest --list --urls").ok().stdout;
    let tag = folder.only_shards("shards")[0].0.split('/').next().unwrap().to_owned();
    assert!(
        urls.trim_end()
            .ends_with(&format!("/shards/{tag}/{{000000..{:06}}}.tar", folder.only_shards("shards").len() - 1)),
        "{urls}"
    );
}

#[test]
fn paths_are_those_of_the_live_shards_alone() {
    let folder = Folder::new();
    for i in 0..5 {
        folder.write(&format!("{i}.csv"), format!("n\n{i}\n"));
        folder.run(&format!("convert {i}.csv")).ok();
    }
    let few = folder.run("compact --min-inputs 6").ok().stdout;
    assert!(
        few.contains("kept       5 shards: small; merging starts at --min-inputs such shards (default 5)"),
        "{few}"
    );
    folder.run("compact").ok();
    assert_eq!(folder.only_shards("shards").len(), 6);
    let paths = folder.run("manifest --list --paths").ok().stdout;
    let [path] = paths.lines().collect::<Vec<_>>()[..] else { panic!("{paths}") };
    assert!(Path::new(path).is_file(), "{path}");
    let ran = folder.run("manifest --list --paths --json").ok();
    assert_eq!((&ran.objects()[0]["path"], &ran.summary()["shards"]), (&path.into(), &1.into()));
    assert_eq!(folder.run("manifest --list --paths --at v2").ok().stdout.lines().count(), 2);
    let summary = folder.run("manifest").ok().stdout;
    assert!(summary.contains("5 shards of older versions in the same folder"), "{summary}");
}

#[test]
fn the_configuration_and_the_environment_name_the_dataset() {
    let folder = Folder::new();
    folder.write("raw/a.csv", "n\n1\n");
    folder.write("shardify.toml", "dataset = \"here\"\n[convert]\nsources = [\"raw\"]\ntarget-shard = \"1MiB\"\n");
    folder.run("convert").ok();
    assert!(folder.path().join("here/_shardify").is_dir());
    assert!(folder.run("manifest").ok().stdout.contains("target 1.0 MiB"));
    folder.write("shardify.toml", "[convert]\ntarget-shrad = \"1MiB\"\n");
    let ran = folder.run("convert");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("`target-shrad` is not an option of convert"), "{ran:?}");
}

#[test]
fn history_and_at_answer_for_old_versions() {
    let folder = Folder::new();
    for i in 1..=3 {
        folder.write(&format!("{i}.csv"), format!("n\n{i}\n"));
        folder.run(&format!("convert {i}.csv")).ok();
    }
    let versions = folder.run("manifest --history --json").ok();
    assert_eq!(versions.summary()["versions"], 3);
    assert_eq!(folder.run("manifest --json --at v2").ok().summary()["records"], 2);
    assert_eq!(folder.run("manifest --at v9").code, 2);
    assert_eq!(folder.run("manifest --at 2000-01-01").code, 2);
    assert_eq!(folder.run("manifest --json --find 3.csv#1 --at v2").code, 1);
    assert_eq!(folder.run("manifest --json --find 3.csv#1").code, 0);
}

#[test]
fn an_interrupted_run_leaves_nothing_visible() {
    let folder = Folder::new();
    let row = format!("{}\n", "x,".repeat(200));
    folder.write("big.csv", row.repeat(60_000));
    let mut run = Command::new(env!("CARGO_BIN_EXE_shardify"))
        .args(["convert", "big.csv", "--read", "header=no", "--target-shard", "1MiB", "--to", "tar"])
        .current_dir(folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let staging = folder.path().join("shards/_shardify/staging");
    while std::fs::read_dir(&staging).map_or(0, Iterator::count) == 0 && started.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let interrupt = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let status = run.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    let left: Vec<_> =
        std::fs::read_dir(folder.path().join("shards")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["_shardify"], "no shard has a name");
    assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 0, "nothing is left behind");
    folder.run("convert big.csv --read header=no --to tar").ok();
    assert_eq!(folder.run("verify").code, 0);
}

#[test]
fn two_runs_of_one_command_do_not_mix() {
    let folder = Folder::new();
    let mut text = "n,m\n".to_owned();
    (0..200_000).for_each(|i| text.push_str(&format!("{i},{}\n", i * 7)));
    folder.write("a.csv", text);
    let codes: Vec<i32> = std::thread::scope(|scope| {
        let runs: Vec<_> =
            (0..3).map(|_| scope.spawn(|| folder.run("convert a.csv --target-shard 100KiB").code)).collect();
        runs.into_iter().map(|r| r.join().unwrap()).collect()
    });
    // One does the work; the others find the lock held, or the work done.
    assert!(codes.contains(&0) && codes.iter().all(|c| matches!(c, 0 | 4)), "{codes:?}");
    let verified = folder.run("verify --read-data --json").ok().summary();
    assert_eq!(verified["records"], 200_000);
}

#[test]
fn a_key_of_two_lines_is_told_by_its_name_and_not_shown() {
    let folder = Folder::new();
    let ran = Command::new(env!("CARGO_BIN_EXE_shardify"))
        .args(["inspect", "s3://bucket/x"])
        .env("AWS_ACCESS_KEY_ID", "AKIA\nSECRET")
        .env("AWS_SECRET_ACCESS_KEY", "x")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let told = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2), "{told}");
    assert!(told.contains("AWS_ACCESS_KEY_ID") && !told.contains("SECRET"), "{told}");
}
