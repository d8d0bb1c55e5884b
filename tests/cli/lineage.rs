//! Lineage that leaves shardify: OpenLineage events, revisions of sources, documents about a version.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
};

use serde_json::Value;
use support::Folder;

fn events(folder: &Folder, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn with_sources() -> Folder {
    let folder = Folder::new();
    for i in 0..3 {
        folder.write(&format!("in/{i}.csv"), format!("id,x\n{i},1\n"));
    }
    folder
}

#[test]
fn a_run_is_told_from_start_to_end() {
    let folder = with_sources();
    folder.run("convert in/0.csv in/1.csv --out d --id id --openlineage events.jsonl --quiet").ok();
    folder.run("convert in --out d --openlineage events.jsonl --quiet").ok();
    folder.run("compact d --min-inputs 2 --openlineage events.jsonl --quiet").ok();
    assert_eq!(folder.run("convert nowhere --out d --openlineage events.jsonl").code, 2);
    // A plan is no run.
    folder.run("convert in --out e --dry-run --openlineage events.jsonl").ok();
    let events = events(&folder, "events.jsonl");
    let kinds: Vec<&str> = events.iter().map(|e| e["eventType"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["START", "COMPLETE", "START", "COMPLETE", "START", "COMPLETE", "START", "FAIL"]);
    for pair in events.chunks(2) {
        assert_eq!(pair[0]["run"]["runId"], pair[1]["run"]["runId"]);
        assert_eq!(pair[0]["run"]["runId"].as_str().unwrap().as_bytes()[14], b'7');
        // The folder, not its files.
        assert_eq!(pair[1]["inputs"].as_array().unwrap().len(), 1);
    }
    let root = folder.path().canonicalize().unwrap();
    assert_eq!(events[1]["inputs"][0]["namespace"], "file");
    assert_eq!(events[1]["inputs"][0]["name"], root.join("in").to_str().unwrap());
    let output = &events[1]["outputs"][0];
    assert_eq!(output["facets"]["version"]["datasetVersion"], "1");
    assert_eq!(output["outputFacets"]["outputStatistics"]["rowCount"], 2);
    assert_eq!(output["facets"]["schema"]["fields"][0]["name"], "id");
    assert_eq!(events[5]["job"]["name"], "shardify.compact");
    assert_eq!(events[5]["inputs"][0]["name"], events[5]["outputs"][0]["name"]);
    assert!(events[7]["run"]["facets"]["errorMessage"]["message"].as_str().unwrap().contains("no such file or folder"));
    // The same by the user's configuration, but not by that of a folder, which may come from somebody else.
    folder.write("shardify.toml", "[adopt]\nopenlineage = \"more.jsonl\"\n");
    let refused = folder.run("adopt d --out linked --quiet");
    assert!(refused.code == 2 && refused.stderr.contains("may not be set by the file of a folder"), "{refused:?}");
    assert!(!folder.path().join("more.jsonl").exists());
    folder.write("shardify.toml", "");
    folder.write(".config/shardify/shardify.toml", "[adopt]\nopenlineage = \"more.jsonl\"\n");
    folder.run("adopt d --out linked --quiet").ok();
    assert_eq!(self::events(&folder, "more.jsonl")[1]["job"]["name"], "shardify.adopt");
}

#[test]
fn a_server_is_told_and_one_that_is_not_there_loses_no_run() {
    let folder = with_sources();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut input = BufReader::new(stream.try_clone().unwrap());
            let (mut first, mut length) = (String::new(), 0);
            input.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                input.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            input.read_exact(&mut body).unwrap();
            stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            requests.push((first, serde_json::from_slice::<Value>(&body).unwrap()));
        }
        requests
    });
    let told = folder.run(&format!("convert in --out d --openlineage {url}")).ok();
    assert!(!told.stderr.contains("not delivered"), "{}", told.stderr);
    let requests = server.join().unwrap();
    assert!(requests.iter().all(|(first, _)| first.starts_with("POST /api/v1/lineage ")), "{requests:?}");
    assert_eq!(requests[1].1["eventType"], "COMPLETE");
    // Now nobody listens any more, and a secret in the URL is nobody's business.
    let url = url.replace("http://", "http://user:hunter22@");
    let lost = folder.run(&format!("compact d --openlineage {url}")).ok();
    assert!(lost.stderr.contains("not delivered") && !lost.stderr.contains("hunter22"), "{}", lost.stderr);
    let lost = folder.run("compact d --openlineage no/such/folder/events.jsonl").ok();
    assert!(lost.stderr.contains("not delivered"), "{}", lost.stderr);
    assert_eq!(folder.run("compact d --openlineage s3://bucket/events").code, 2);
}

#[test]
fn revisions_of_repositories_are_on_record() {
    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    let folder = with_sources();
    folder.run("convert in/0.csv --out d --quiet").ok();
    folder.write(".git/HEAD", "ref: refs/heads/main\n");
    folder.write(".git/packed-refs", format!("{COMMIT} refs/heads/main\n"));
    folder.write("in.dvc", "outs:\n- md5: 22e37ba7eb5a7f0d2e6bc10aba06bee1.dir\n  path: in\n");
    folder.run("convert in --out d --quiet").ok();
    let history = folder.run("manifest d --history --json").ok().objects();
    assert_eq!(history[0]["revisions"], Value::Array(Vec::new()));
    let revisions = history[1]["revisions"].as_array().unwrap();
    assert_eq!((&revisions[0]["system"], &revisions[0]["revision"]), (&"git".into(), &COMMIT.into()));
    assert_eq!(revisions[0]["reference"], "refs/heads/main");
    assert_eq!((&revisions[1]["system"], &revisions[1]["reference"]), (&"dvc".into(), &"md5".into()));
    let shown = folder.run("manifest d --history").ok().stdout;
    assert!(shown.contains(&format!("git {COMMIT} (refs/heads/main)")), "{shown}");
    // A tag, a vacuum and a compaction are of no revision.
    folder.run("manifest d --tag t").ok();
    folder.run("compact d --min-inputs 2 --quiet").ok();
    let history = folder.run("manifest d --history --json").ok().objects();
    assert_eq!((&history[2]["revisions"], &history[3]["revisions"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    let prov = folder.run("manifest d --export prov").ok().stdout;
    assert!(prov.contains(&format!("git:{COMMIT}")), "{prov}");
}

#[test]
fn a_version_is_described_to_other_programs() {
    let folder = with_sources();
    folder.run("convert in --out d --id id --quiet").ok();
    folder.run("manifest d --tag gold").ok();
    let export = |format: &str, more: &str| -> Value {
        serde_json::from_str(&folder.run(&format!("manifest d --export {format} {more}")).ok().stdout).unwrap()
    };
    let croissant = export("croissant", "");
    assert_eq!(croissant["conformsTo"], "http://mlcommons.org/croissant/1.1");
    assert_eq!(croissant["version"], "2.0.0");
    let [log, shards] = croissant["distribution"].as_array().unwrap().as_slice() else { panic!("{croissant}") };
    assert!(folder.path().join("d").join(log["contentUrl"].as_str().unwrap()).exists());
    assert!(folder.path().join("d").join(shards["includes"][0].as_str().unwrap()).exists());
    let records = &croissant["recordSet"][0];
    assert_eq!(records["key"]["@id"], "records/id");
    assert_eq!(records["field"].as_array().unwrap().len(), 2);
    let mlflow = export("mlflow", "--at gold");
    assert_eq!((&mlflow["name"], &mlflow["source_type"]), (&"d@v1".into(), &"local".into()));
    assert_eq!(mlflow["digest"].as_str().unwrap().len(), 8);
    let profile: Value = serde_json::from_str(mlflow["profile"].as_str().unwrap()).unwrap();
    assert_eq!((&profile["records"], &profile["tags"][0]), (&3.into(), &"gold".into()));
    let root = folder.run("manifest d --root --at gold --json").ok().summary()["root"].as_str().unwrap().to_owned();
    assert_eq!(profile["root"], format!("sha256:{root}"));
    assert_eq!(profile["content"].as_str().unwrap()["blake3:".len()..][..8], *mlflow["digest"].as_str().unwrap());
    let prov = export("prov", "");
    assert!(prov["entity"]["s:v1"]["s:tag"].as_array().unwrap().contains(&"gold".into()));
    assert_eq!(prov["wasGeneratedBy"].as_object().unwrap().len(), 2);
    // The digest is of the records: a tag changes nothing, new records do.
    assert_eq!(export("mlflow", "")["digest"], mlflow["digest"]);
    folder.write("in/9.csv", "id,x\n9,9\n");
    folder.run("convert in --out d --quiet").ok();
    assert_ne!(export("mlflow", "")["digest"], mlflow["digest"]);
    assert_eq!(folder.run("manifest d --export prov --json").code, 2);
    let samples = Folder::new();
    samples.write("in/a.txt", "a");
    samples.run("convert in --out d --quiet").ok();
    let croissant: Value = serde_json::from_str(&samples.run("manifest d --export croissant").ok().stdout).unwrap();
    assert!(croissant["recordSet"].is_null());
    assert_eq!(croissant["distribution"][1]["encodingFormat"], "application/x-tar");
}
