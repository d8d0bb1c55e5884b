//! Plans: tasks in any order, killed runs that continue, and everything that may happen between a plan and its commit.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

use crate::support;

use std::{collections::BTreeMap, fmt::Write as _, path::Path, process::Command};

use flate2::{Compression, write::GzEncoder};
use support::{Folder, Ran, outcome_path, rewrite_entry, testdata_path};

/// A kind of job: how its sources are made, and the options of the conversion.
struct Job {
    name: &'static str,
    make: fn(&Folder),
    options: &'static str,
}

fn csv(folder: &Folder) {
    for file in 0..9 {
        let mut text = String::from("id,who,score\n");
        for row in 0..200 {
            writeln!(text, "r{file}-{row},PAT-{},{}.5", row % 17, file * row).unwrap();
        }
        folder.write(&format!("raw/{file}.csv"), text);
    }
}

fn json_lines(folder: &Folder) {
    for file in 0..6 {
        let mut text = String::new();
        for row in 0..150 {
            writeln!(text, r#"{{"id":"{file}/{row}","tags":["a","b"],"value":{}}}"#, row * file).unwrap();
        }
        folder.write(&format!("raw/{file}.jsonl"), text);
    }
}

fn parquet(folder: &Folder) {
    csv(folder);
    for file in 0..9 {
        folder.run(&format!("convert raw/{file}.csv --out parts/{file}")).ok();
    }
    std::fs::remove_dir_all(folder.path().join("raw")).unwrap();
    for file in 0..9 {
        let (_, bytes) = folder.shards(&format!("parts/{file}")).into_iter().next().unwrap();
        folder.write(&format!("raw/{file}.parquet"), bytes);
    }
}

fn arrays(folder: &Folder) {
    for file in 0..4 {
        let bytes = std::fs::read(testdata_path("arrays/grid.nc")).unwrap();
        folder.write(&format!("raw/{file}.nc"), bytes);
    }
}

fn files(folder: &Folder) {
    for sample in 0..60 {
        folder.write(&format!("raw/{}/s{sample:03}.JPG", sample % 3), vec![7; 900 + sample]);
        folder.write(&format!("raw/{}/s{sample:03}.json", sample % 3), format!("{{\"n\":{sample}}}"));
    }
}

fn gzip(folder: &Folder) {
    for file in 0..5 {
        let mut text = String::from("id,value\n");
        for row in 0..100 {
            writeln!(text, "{file}-{row},{row}").unwrap();
        }
        text.push_str("bad,1,2,3\n");
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
        folder.write(&format!("raw/{file}.csv.gz"), packed.finish().unwrap());
    }
}

/// One table of several parts, with line ends within quotes and a damaged record.
fn large_csv(folder: &Folder) {
    let mut text = String::from("id,who,note,score\n");
    for row in 0..60_000 {
        let note = if row % 7 == 0 { "\"two\nlines, and \"\"quotes\"\"\"" } else { "plain" };
        writeln!(text, "r{row},PAT-{},{note},{}.25", row % 300, row % 1000).unwrap();
        if row % 9001 == 9000 {
            text.push_str("too,many,fields,1,2,3\n\n");
        }
    }
    folder.write("raw/large.csv", text);
    folder.write("raw/small.csv", "id,who,note,score\nsmall,PAT-1,x,1.5\n");
}

fn large_json_lines(folder: &Folder) {
    let mut text = String::new();
    for row in 0..50_000 {
        writeln!(text, r#"{{"id":{row},"words":["a","b"],"text":"line\n{row}"}}"#).unwrap();
    }
    folder.write("raw/large.jsonl", text);
}

const JOBS: [Job; 10] = [
    Job {
        name: "one large csv",
        make: large_csv,
        options: "--id id --subject who --task-size 640KiB --memory 64MiB --on-error quarantine",
    },
    Job {
        name: "one large json lines to tar",
        make: large_json_lines,
        options: "--to tar --task-size 900KiB --memory 64MiB",
    },
    Job { name: "csv", make: csv, options: "--id id --subject who --task-size 10KiB" },
    Job { name: "csv to tar", make: csv, options: "--to tar --task-size 14KiB --target-shard 20KiB --index dali,wids" },
    Job { name: "json lines", make: json_lines, options: "--id id --task-size 12KiB" },
    Job { name: "parquet", make: parquet, options: "--task-size 12KiB" },
    Job { name: "arrays", make: arrays, options: "--task-size 8KiB" },
    Job { name: "files to tar", make: files, options: "--task-size 120KiB --target-shard 20KiB" },
    Job { name: "files to tfrecord", make: files, options: "--to tfrecord --task-size 90KiB --identity content" },
    Job { name: "gzip, quarantine", make: gzip, options: "--on-error quarantine --task-size 6KiB" },
];

/// Everything that a dataset consists of, but for random names and times.
fn content(folder: &Folder, dataset: &str) -> BTreeMap<String, Vec<u8>> {
    let tag = folder.shards(dataset).iter().map(|(path, _)| path[..16].to_owned()).min().unwrap();
    let id = std::fs::read_dir(folder.path().join(dataset).join("_shardify/lists")).unwrap();
    let id = id.map(|entry| entry.unwrap().file_name().into_string().unwrap()[..32].to_owned()).min().unwrap();
    let plain = |text: &str| text.replace(&id, "ID").replace(&tag, "TAG").replace(&format!("/{dataset}"), "/DATASET");
    let root = folder.path().join(dataset);
    let mut out = BTreeMap::new();
    for path in files_below(&root) {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        let kind = name.strip_prefix("_shardify/").map_or("shard", |below| below.split('/').next().unwrap());
        if !["log", "lists", "locks", "staging", "store.json", "clock"].contains(&kind) {
            let bytes = std::fs::read(&path).unwrap();
            let bytes =
                if name.ends_with(".json") { plain(std::str::from_utf8(&bytes).unwrap()).into_bytes() } else { bytes };
            out.insert(without_call(&plain(name)), bytes);
        }
    }
    for arguments in ["manifest NAME --export csv", "manifest NAME --list --json", "manifest NAME --json"] {
        let shown = folder.run(&arguments.replace("NAME", dataset)).ok();
        let lines: Vec<String> = plain(&shown.stdout).lines().map(without_times).collect();
        out.insert(arguments.to_owned(), lines.join("\n").into_bytes());
    }
    let entry: serde_json::Value = newest_entry(folder, dataset);
    for field in ["counts", "settings", "totals", "arguments", "next_record"] {
        out.insert(format!("log: {field}"), entry[field].to_string().into_bytes());
    }
    out
}

/// Names of merged segments have a number of the call that committed them, which is drawn at random.
fn without_call(name: &str) -> String {
    let parts = name.split('/').map(|part| match part.strip_prefix("ID-").and_then(|rest| rest.split_once('-')) {
        Some((call, number)) if call.bytes().all(|b| b.is_ascii_digit()) => format!("ID-{number}"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

fn without_times(line: &str) -> String {
    let mut value: serde_json::Value = match serde_json::from_str(line) {
        Ok(value) => value,
        Err(_) => return line.to_owned(),
    };
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !name.contains("committed") && name != "root" && name != "seconds");
    }
    value.to_string()
}

fn newest_entry(folder: &Folder, dataset: &str) -> serde_json::Value {
    let log = folder.path().join(dataset).join("_shardify/log");
    let newest = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    serde_json::from_slice(&std::fs::read(newest).unwrap()).unwrap()
}

fn files_below(root: &Path) -> Vec<std::path::PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { out.extend(files_below(&entry)) } else { out.push(entry) }
    }
    out
}

/// Plans a conversion of `raw` into `planned`; returns the plan and the number of its tasks.
fn plan(folder: &Folder, options: &str) -> (String, u64) {
    let report = folder.run(&format!("plan convert raw --out planned --json {options}")).ok().summary();
    (report["plan"].as_str().unwrap().to_owned(), report["tasks"].as_u64().unwrap())
}

fn run_task(folder: &Folder, plan: &str, task: u64) -> Ran {
    folder.run(&format!("run-task {plan} --task {task} --json"))
}

/// A permutation that depends on a seed.
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    order.sort_by_key(|task| (task + 1).wrapping_mul(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).rotate_left(17));
    order
}

#[test]
fn tasks_in_any_order_give_what_convert_gives() {
    for job in JOBS {
        let folder = Folder::new();
        (job.make)(&folder);
        let converted = folder.run(&format!("convert raw --out plain {}", job.options));
        assert!([0, 3].contains(&converted.code), "{}: {converted:?}", job.name);
        let expected = content(&folder, "plain");
        for seed in 1..=2 {
            let (plan, tasks) = plan(&folder, job.options);
            assert!(tasks > 2, "{}: {tasks} tasks", job.name);
            for task in shuffled(tasks, seed).into_iter().chain(shuffled(tasks, seed + 7)) {
                run_task(&folder, &plan, task).ok();
            }
            let committed = folder.run(&format!("commit {plan}"));
            assert_eq!(committed.code, converted.code, "{}: {committed:?}", job.name);
            let found = content(&folder, "planned");
            assert_eq!(
                found.keys().collect::<Vec<_>>(),
                expected.keys().collect::<Vec<_>>(),
                "{}: names of objects differ",
                job.name
            );
            for (name, bytes) in &found {
                let same = bytes == &expected[name];
                let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(3000)]).into_owned();
                assert!(same, "{}: {name} differs\n{}\n\n{}", job.name, shown(bytes), shown(&expected[name]));
            }
            folder.run("verify planned --read-data").ok();
            std::fs::remove_dir_all(folder.path().join("planned")).unwrap();
        }
    }
}

/// Records, their origins and the sources, without what depends on shards.
fn records(folder: &Folder, dataset: &str) -> Vec<String> {
    let exported = folder.run(&format!("manifest {dataset} --export jsonl")).ok();
    let placed = ["shard", "ordinal", "offset", "length", "record"];
    let record = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        value.as_object_mut().unwrap().retain(|name, _| !placed.contains(&name.as_str()));
        value.to_string()
    };
    let mut all: Vec<String> = exported.stdout.lines().map(record).collect();
    let sources = folder.path().join(dataset).join("_shardify/lists");
    for path in files_below(&sources).iter().filter(|path| path.to_str().unwrap().contains("-sources-")) {
        let reader =
            parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap());
        for batch in reader.unwrap().build().unwrap() {
            all.push(format!("{:?}", batch.unwrap().columns()));
        }
    }
    all
}

#[test]
fn records_of_a_source_that_is_cut_are_those_of_the_whole() {
    for job in &JOBS[..2] {
        let folder = Folder::new();
        (job.make)(&folder);
        let (to, task) = job.options.split_once("--task-size ").unwrap();
        let whole = format!("{to} {}", task.split_once(' ').unwrap().1);
        assert!([0, 3].contains(&folder.run(&format!("convert raw --out whole {whole}")).code));
        assert!([0, 3].contains(&folder.run(&format!("convert raw --out cut {}", job.options)).code));
        let (cut, whole) = (records(&folder, "cut"), records(&folder, "whole"));
        assert!(cut.len() > 10 && cut == whole, "{}: {:?}", job.name, cut.iter().zip(&whole).find(|(a, b)| a != b));
        let folders: std::collections::BTreeSet<String> =
            folder.shards("cut").into_iter().map(|(path, _)| path.split('/').next().unwrap().to_owned()).collect();
        assert!(folders.len() > 2, "{folders:?}");
    }
}

#[test]
fn a_killed_run_continues_where_it_was() {
    let folder = Folder::new();
    csv(&folder);
    let options = "--id id --task-size 10KiB";
    let (plan, tasks) = plan(&folder, options);
    run_task(&folder, &plan, 0).ok();
    run_task(&folder, &plan, 3).ok();
    let shown = folder.run("inspect planned").ok().stdout;
    assert!(shown.contains(&format!("convert: 2 of {tasks} tasks done")) && shown.contains("run-task"), "{shown}");
    let continued = folder.run(&format!("convert raw --out planned {options}")).ok();
    assert!(continued.stderr.contains(&format!("2 of {tasks} tasks are done")), "{}", continued.stderr);
    let entry = newest_entry(&folder, "planned");
    assert!(plan.contains(entry["transaction"].as_str().unwrap()));
    assert_eq!((&entry["version"], &entry["counts"]["records_out"]), (&1.into(), &1800.into()));
    // A run with other options does not continue it.
    folder.write("raw/9.csv", "id,who,score\nx,PAT-1,1\n");
    folder.run(&format!("convert raw --out planned {options}")).ok();
    assert_eq!(newest_entry(&folder, "planned")["totals"]["records"], 1801);
    assert!(files_below(&folder.path().join("planned/_shardify/plans")).is_empty());
    assert!(files_below(&folder.path().join("planned/_shardify/outcomes")).is_empty());
    assert!(files_below(&folder.path().join("planned/_shardify/intents")).is_empty());
}

#[test]
fn a_value_that_fits_no_column_leads_to_a_plan_with_wider_types() {
    let folder = Folder::new();
    let rows: String = (0..60_000).map(|row| format!("{row},{row}\n")).collect();
    for file in 0..3 {
        let last = if file == 1 { "1,late\n" } else { "" };
        folder.write(&format!("raw/{file}.csv"), format!("id,value\n{rows}{last}"));
    }
    let options = "--task-size 600KiB";
    folder.run(&format!("convert raw --out plain {options}")).ok();
    let (first, tasks) = plan(&folder, options);
    assert_eq!(tasks, 3);
    for task in 0..3 {
        let report = run_task(&folder, &first, task).ok();
        assert_eq!(report.stdout.contains("mismatch"), task == 1, "{}", report.stdout);
    }
    let none = folder.run(&format!("commit {first} --json")).ok().summary();
    let next = none["next_plan"].as_str().unwrap().to_owned();
    assert!(none["version"].is_null() && none["why"].as_str().unwrap().contains("`late`"), "{none}");
    assert!(!Path::new(&first).exists(), "the first plan is still there");
    folder.run(&format!("run-task {next} --task 0..2")).ok();
    folder.run(&format!("commit {next}")).ok();
    assert_eq!(content(&folder, "planned"), content(&folder, "plain"));
}

#[test]
fn commits_are_refused_until_every_task_has_an_outcome() {
    let folder = Folder::new();
    csv(&folder);
    let (plan, tasks) = plan(&folder, "--task-size 10KiB");
    run_task(&folder, &plan, 1).ok();
    let refused = folder.run(&format!("commit {plan}"));
    assert!(refused.code == 4 && refused.stderr.contains(&format!("missing: 0, 2-{}", tasks - 1)), "{refused:?}");
    folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
    let none = folder.run(&format!("run-task {plan} --task {tasks}"));
    assert!(none.code == 2 && none.stderr.contains(&format!("expected a task from 0 to {}", tasks - 1)), "{none:?}");
    let copy = std::fs::read(&plan).unwrap();
    folder.run(&format!("commit {plan}")).ok();
    let again = folder.run(&format!("commit {plan}")).ok();
    assert!(again.stdout.contains("already committed as v1"), "{again:?}");
    // As if the process had been killed right after the commit.
    std::fs::write(&plan, copy).unwrap();
    let again = folder.run(&format!("commit {plan}")).ok();
    assert!(again.stdout.contains("already committed as v1") && !Path::new(&plan).exists(), "{again:?}");
}

/// Committing again would fail again.
#[test]
fn a_plan_whose_sources_were_converted_meanwhile_says_to_plan_again() {
    let folder = Folder::new();
    csv(&folder);
    let (plan, tasks) = plan(&folder, "--id id --task-size 10KiB");
    folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
    folder.run("convert raw --out planned --id id --task-size 1MiB").ok();
    let refused = folder.run(&format!("commit {plan}"));
    let hint = "nothing was committed; plan again, it skips what is there";
    assert!(refused.code == 4 && refused.stderr.contains(hint), "{refused:?}");
}

#[test]
fn a_plan_made_before_an_erasure_is_void_and_its_bytes_are_gone() {
    let folder = Folder::new();
    csv(&folder);
    folder.write("first.csv", "id,who,score\nfirst,PAT-3,1.5\n");
    folder.run("convert first.csv --out planned --id id --subject who").ok();
    let (plan, tasks) = plan(&folder, "--id id --subject who --task-size 10KiB");
    folder.run(&format!("run-task {plan} --task 0..{}", tasks - 2)).ok();
    let root = folder.path().join("planned");
    folder.write("planned/notes.txt", "mine");
    let intent = files_below(&root.join("_shardify/intents")).into_iter().find(|path| plan_owns(&plan, path)).unwrap();
    rewrite_entry(&intent, |listed| listed["paths"].as_array_mut().unwrap().push("notes.txt".into()));
    folder.run("erase --subject PAT-3 planned --all-versions").ok();
    assert!(root.join("notes.txt").exists());
    let left: Vec<_> = files_below(&root).into_iter().filter(|path| plan_owns(&plan, path)).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
    let refused = folder.run(&format!("commit {plan}"));
    assert!(refused.code == 2 && refused.stderr.contains("plan again"), "{refused:?}");
    let (plan, tasks) = plan_again(&folder);
    folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
    folder.run(&format!("commit {plan}"));
    assert_eq!(folder.run("manifest planned --find PAT-3").code, 1);
    assert_eq!(folder.run("manifest planned --find PAT-4").code, 0);
}

fn plan_again(folder: &Folder) -> (String, u64) {
    plan(folder, "--id id --subject who --task-size 10KiB")
}

fn plan_owns(plan: &str, path: &Path) -> bool {
    let id = Path::new(plan).file_stem().unwrap().to_str().unwrap();
    path.to_str().unwrap().contains(&id[..16])
}

#[test]
fn what_is_wrong_with_a_plan_is_said() {
    let folder = Folder::new();
    csv(&folder);
    let (first, _) = plan(&folder, "--task-size 10KiB");
    let changed = folder.path().join("raw/0.csv");
    std::fs::write(&changed, "id,who,score\n1,2,3\n").unwrap();
    let refused = run_task(&folder, &first, 0);
    assert!(refused.code == 6 && refused.stderr.contains("raw/0.csv"), "{refused:?}");
    std::fs::remove_file(&changed).unwrap();
    assert_eq!(run_task(&folder, &first, 0).code, 6);
    run_task(&folder, &first, 1).ok();
    for wrong in ["planned", "raw/1.csv", "planned/_shardify/plans/x.json"] {
        let refused = folder.run(&format!("commit {wrong}"));
        assert!(refused.code == 2 && refused.stderr.contains("the path or URL of a plan"), "{refused:?}");
    }
    let bytes = std::fs::read(&first).unwrap();
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&first, &damaged).unwrap();
    let refused = run_task(&folder, &first, 2);
    assert!(refused.code == 5 && refused.stderr.contains("the hash that its name states"), "{refused:?}");
    std::fs::write(&first, &bytes).unwrap();
    rewrite_entry(Path::new(&first), |plan| plan["tool"] = "shardify 99.0".into());
    let refused = run_task(&folder, &named_anew(&first), 2);
    assert!(refused.code == 2 && refused.stderr.contains("found one of shardify 99.0"), "{refused:?}");
    for (arguments, why) in [
        ("plan convert - --from csv --out planned", "standard input"),
        ("run-task x --task 3..1", "expected a task such as 7"),
        ("plan sort planned", "plan"),
    ] {
        let refused = folder.run(arguments);
        assert!(refused.code == 2 && refused.stderr.contains(why), "{arguments}: {refused:?}");
    }
}

/// Gives a plan the name that its bytes have now.
fn named_anew(plan: &str) -> String {
    let hash = blake3::hash(&std::fs::read(plan).unwrap()).to_hex();
    let name = format!("{}-{}.json", plan.strip_suffix(".json").unwrap().rsplit_once('-').unwrap().0, &hash[..32]);
    std::fs::rename(plan, &name).unwrap();
    name
}

#[test]
fn workers_read_what_the_planner_named_whoever_may_write_to_the_dataset() {
    let folder = Folder::new();
    csv(&folder);
    folder.write("secret/0.csv", "id,who,score\nroot,secret,1\n");
    let theirs = folder.run("plan convert secret --out planned --task-size 10KiB").ok();
    let theirs: serde_json::Value =
        serde_json::from_slice(&std::fs::read(theirs.stdout.lines().next().unwrap()).unwrap()).unwrap();
    let (first, tasks) = plan(&folder, "--task-size 10KiB");
    rewrite_entry(Path::new(&first), |plan| plan["sources"] = theirs["sources"].clone());
    for command in [format!("run-task {first} --task 0"), format!("commit {first}")] {
        let refused = folder.run(&command);
        assert!(refused.code == 5 && refused.stderr.contains("the hash that its name states"), "{refused:?}");
    }
    // Nor is such a plan continued under a name that fits, although it states the same signature.
    let forged = named_anew(&first);
    rewrite_entry(Path::new(&forged), |plan| plan["tasks"] = theirs["tasks"].clone());
    let forged = named_anew(&forged);
    let (again, _) = plan(&folder, "--task-size 10KiB");
    assert!(again != forged && again != first, "{again}");
    folder.run(&format!("run-task {again} --task 0..{}", tasks - 1)).ok();
    folder.run(&format!("commit {again}")).ok();
    assert_eq!(newest_entry(&folder, "planned")["totals"]["records"], 1800);
    let found = folder.run("manifest planned --find root");
    assert_eq!(found.code, 1, "{found:?}");
}

#[test]
fn an_outcome_whose_shard_is_gone_is_run_again() {
    let folder = Folder::new();
    csv(&folder);
    let (plan, tasks) = plan(&folder, "--task-size 10KiB");
    folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
    let (shard, _) = folder.shards("planned").into_iter().find(|(path, _)| !path.contains('-')).unwrap();
    std::fs::remove_file(folder.path().join("planned").join(shard)).unwrap();
    let refused = folder.run(&format!("commit {plan}"));
    assert!(refused.code == 4 && refused.stderr.contains("run task 0 again"), "{refused:?}");
    run_task(&folder, &plan, 0).ok();
    folder.run(&format!("commit {plan}")).ok();
    folder.run("verify planned --read-data").ok();
    assert_eq!(newest_entry(&folder, "planned")["totals"]["records"], 1800);
}

#[test]
fn an_outcome_names_objects_of_its_plan_alone() {
    let folder = Folder::new();
    csv(&folder);
    let (plan, tasks) = plan(&folder, "--task-size 10KiB");
    folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
    let outcome = outcome_path(&plan, 1);
    for wrong in ["../secret.parquet", "0123456789abcdef/000000.parquet", "notes.parquet"] {
        rewrite_entry(&outcome, |outcome| outcome["shards"][0]["path"] = wrong.into());
        let refused = folder.run(&format!("commit {plan}"));
        assert!(refused.code == 5 && refused.stderr.contains("outcomes/"), "{wrong}: {refused:?}");
    }
}

#[test]
fn vacuum_keeps_what_an_open_plan_needs_for_a_week() {
    let folder = Folder::new();
    csv(&folder);
    folder.write("first.csv", "id,who,score\nfirst,PAT-3,1.5\n");
    folder.run("convert first.csv --out planned").ok();
    let (plan, tasks) = plan(&folder, "--task-size 10KiB");
    folder.run(&format!("run-task {plan} --task 0..{}", tasks - 2)).ok();
    let owned =
        || files_below(&folder.path().join("planned")).into_iter().filter(|path| plan_owns(&plan, path)).count();
    let before = owned();
    let kept = folder.run("vacuum planned --retain 0s --force --json").ok().summary();
    assert_eq!((&kept["objects_deleted"], owned()), (&0.into(), before));
    let old = "2001-01-01";
    for path in files_below(&folder.path().join("planned")) {
        Command::new("touch").args(["-d", old]).arg(path).status().unwrap();
    }
    let given_up = folder.run("vacuum planned --retain 0s --force --json").ok().summary();
    assert!(given_up["objects_deleted"].as_u64().unwrap() > 10, "{given_up}");
    let left: Vec<_> =
        files_below(&folder.path().join("planned")).into_iter().filter(|p| plan_owns(&plan, p)).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
    assert_eq!(folder.run(&format!("commit {plan}")).code, 2);
    folder.run("verify planned --read-data").ok();
}

#[test]
fn verify_does_not_count_what_waits_for_a_commit() {
    let folder = Folder::new();
    csv(&folder);
    let (open, tasks) = plan(&folder, "--task-size 10KiB");
    assert!(tasks > 2);
    run_task(&folder, &open, 0).ok();
    run_task(&folder, &open, 1).ok();
    assert_eq!(folder.run("verify planned --json").ok().summary()["unreferenced"], 0);
    folder.write("other.csv", "id,who,score\n1,2,3\n");
    folder.run("convert other.csv --out planned").ok();
    assert_eq!(folder.run("verify planned --read-data --json").ok().summary()["unreferenced"], 0);
    // Without its plan, the work of a task is what an unfinished run left.
    std::fs::remove_file(folder.path().join(&open)).unwrap();
    assert_ne!(folder.run("verify planned --json").ok().summary()["unreferenced"], 0);
}

#[test]
fn manifests_name_every_task() {
    let folder = Folder::new();
    csv(&folder);
    let slurm = folder.run("plan convert raw --out planned --task-size 10KiB --manifest slurm").ok().stdout;
    assert!(
        slurm.starts_with("#!/bin/sh\n") && slurm.contains("--array=\"0-") && slurm.contains("shardify commit"),
        "{slurm}"
    );
    let k8s = folder.run("plan convert raw --out planned --task-size 10KiB --manifest k8s").ok().stdout;
    assert!(k8s.contains("kind: Job\n") && k8s.contains("completionMode: Indexed"), "{k8s}");
}

/// The script for Slurm submits arrays of at most so many tasks, and the commit after them, whatever is in the path of
/// the plan.
#[cfg(unix)]
#[test]
fn the_script_for_slurm_runs_every_task() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    for file in 0..25 {
        folder.write(&format!("in/{file:02}.csv"), format!("id\n{}\n", "7,".repeat(file).len()));
    }
    let plan = ["plan", "convert", "in", "--out", "it's \"new\" $HOME", "--task-size", "5KiB", "--manifest", "slurm"];
    let script = folder.write("submit.sh", folder.run_with(&plan).ok().stdout);
    // Runs what it is given at once, as Slurm does later: each task of an array with its number.
    let sbatch = r#"#!/bin/sh
wrap= array= after=
for word do
    case $word in
        --array=*) array=${word#--array=0-}; array=${array%%%*} ;;
        --export=ALL,*) export "${word#--export=ALL,}" ;;
        --dependency=*) after=${word#--dependency=} ;;
    esac
    wrap=$word
done
echo "array to $array, after $after" >> sbatch.log
if [ -z "$array" ]; then sh -c "$wrap" > committed.txt || exit 1; fi
SLURM_ARRAY_TASK_ID=0
while [ "$SLURM_ARRAY_TASK_ID" -le "${array:--1}" ]; do
    export SLURM_ARRAY_TASK_ID
    sh -c "$wrap" > /dev/null || exit 1
    SLURM_ARRAY_TASK_ID=$((SLURM_ARRAY_TASK_ID + 1))
done
echo "$((1 + $(grep -c . sbatch.log)));cluster"
"#;
    let sbatch = folder.write("bin/sbatch", sbatch);
    std::fs::set_permissions(&sbatch, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_shardify")).parent().unwrap();
    let path =
        format!("{}:{}:{}", folder.path().join("bin").display(), program.display(), std::env::var("PATH").unwrap());
    let mut submit = std::process::Command::new("sh");
    submit.arg(script).current_dir(folder.path()).env("PATH", path).env("SHARDIFY_ARRAY_SIZE", "4");
    let done = submit.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let log = std::fs::read_to_string(folder.path().join("sbatch.log")).unwrap();
    let arrays: Vec<&str> = log.lines().collect();
    assert!(arrays.len() > 3 && arrays[0] == "array to 3, after ", "{log}");
    let numbers: Vec<String> = (2..arrays.len() + 1).map(|job| job.to_string()).collect();
    assert_eq!(*arrays.last().unwrap(), format!("array to , after afterok:{}", numbers.join(":")), "{log}");
    let summary = folder.run_with(&["manifest", "it's \"new\" $HOME", "--json"]).ok().summary();
    assert_eq!(summary["records"], 25);
}
