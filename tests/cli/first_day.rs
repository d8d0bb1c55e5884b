//! Mistakes that people make on their first day, and what they are told: a snapshot of every answer.
//!
//! No mistake is accepted in silence: it is an error with a hint, or a note says what was not done. The snapshot is
//! read by people; `INSTA_UPDATE=always cargo test --test cli first_day` writes it anew.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

use crate::support::Folder;

/// Mistakes in options and values of `convert`.
const CONVERT: &[&str] = &[
    "convert people.csv --id persn",
    "convert people.csv --subject patient_id",
    "convert people.csv --where 'agee > 3'",
    "convert people.csv --where 'sex == \"M\"'",
    "convert people.csv --where 'sex = \"M\"'",
    "convert people.csv --where 'age > 3 && sex = 1'",
    "convert people.csv --where 'age > 3 | sex = 1'",
    "convert people.csv --where 'age >'",
    "convert people.csv --where 'age > \"old'",
    "convert people.cvs",
    "convert missing/*.csv",
    "convert people.csv --include *.json",
    "convert people.csv out",
    "convert people.csv --from parquet",
    "convert people.csv --from xlsx",
    "convert people.csv --from dicom",
    "convert people.csv --from orc",
    "convert people.csv --to csv",
    "convert people.csv --to litdata",
    "convert people.csv --sep ;",
    "convert people.csv --format parquet",
    "convert people.csv --workers 4",
    "convert people.csv --maxsize 1GB",
    "convert people.csv --maxcount 100",
    "convert people.csv --num-shards 4",
    "convert people.csv -r",
    "convert people.csv --force",
    "convert people.csv --subjct person_id",
    "convert people.csv --seed 3",
    "convert people.csv --train-split 0.8",
    "convert people.csv --test-size 0.2",
    "convert people.csv --split train=0.8",
    "convert people.csv --split train=0.8 --split val=0.2",
    "convert people.csv --split 0.8,0.2",
    "convert people.csv --split train=80,val=20",
    "convert people.csv --split-by sex",
    "convert people.csv --shards 3 --target-shard 1MiB",
    "convert people.csv --even",
    "convert people.csv --target-shard 256",
    "convert people.csv --target-shard big",
    "convert people.csv --memory 1",
    "convert people.csv --jobs 0",
    "convert people.csv --type age=interger",
    "convert people.csv --type age",
    "convert people.csv --type yob=int64",
    "convert people.csv --type age=int64 --type age=text",
    "convert people.csv --type price=float64",
    "convert people.csv --dtype age=int64",
    "convert people.csv --skiprows 1",
    "convert people.csv --na-values NA",
    "convert people.csv --ignore-errors",
    "convert people.csv --on-error ignore",
    "convert people.csv --filter 'age > 3'",
    "convert people.csv --usecols age",
    "convert people.csv --label age",
    "convert people.csv --nrows 10",
    "convert people.csv --codec brotli",
    "convert people.csv --codec zstd:99",
    "convert people.csv --to tar --codec snappy",
    "convert people.csv --index dali",
    "convert people.csv --index parquet",
    "convert people.csv --columns age,weight",
    "convert people.csv --dedup nosuch",
    "convert people.csv --schema people.csv",
    "convert people.csv --key last-dot",
    "convert people.csv --label-from-folder",
    "convert people.csv --labels labels.csv",
    "convert people.csv --read nosuch=1",
    "convert people.csv --read header=maybe",
    "convert -",
    "convert hdfs://node/data",
    "convert hf://datasets/imdb",
    "convert visits.jsonl --out new --delimiter ;",
    "convert visits.jsonl --out new2 --null NA",
    "convert photos --out new3 --no-header",
    "convert people.csv --out new4 --to tar --row-group 1MiB",
    "convert people.csv --out new5 --tensors lists",
    "convert people.csv --out new6 --patch lat=2",
];

/// Mistakes about files.
const FILES: &[&str] = &[
    "convert broken.jsonl",
    "convert latin.csv",
    "convert wide.csv",
    "convert short.parquet",
    "convert survey.dta",
    "convert pack.zip",
    "convert mixed",
    "convert photos --labels other.csv",
    "convert photos --label-column label",
    "convert photos --labels labels.csv --label-column nosuch",
    "convert photos --id name",
    "convert photos --where 'age > 3'",
    "convert empty",
];

/// Mistakes about a dataset that there is.
const DATASET: &[&str] = &[
    "convert people.csv --out ds --id person_id",
    "convert people.csv --out ds --to tar",
    "convert photos --out ds",
    "convert people.csv --out people.csv",
    "convert ds --out ds",
    "compact photos",
    "compact people.csv",
    "merge ds",
    "ls ds",
    "find 7",
    "split ds",
    "delete ds",
    "rm ds",
    "tag ds",
    "shuffle ds",
    "dedup ds",
    "undo ds",
    "convertt people.csv",
    "erase ds",
    "erase ds nobody",
    "manifest ds --find nobody",
    "manifest ds --limit 3",
    "manifest ds u7",
    "manifest --find u7 ds",
    "convert people.csv ds",
    "erase ds --id 7",
    "erase ds --record people.csv#1",
    "head ds --split val",
    "manifest ds --at v9",
    "manifest ds --at 9",
    "manifest ds --at yesterday",
    "manifest ds --export xml",
    "vacuum ds --older-than 7d",
    "vacuum ds --retain 7",
    "compact ds --since week",
    "reshard ds",
    "reshard ds --out ds",
    "revert ds",
    "remove ds",
    "remove ds --source nosuch.csv",
    "check ds",
    "check ds --rules people.csv",
    "pull ds",
    "pull ds -o copy",
    "head nosuch",
    "report nosuch",
    "verify people.csv",
];

fn prepared() -> Folder {
    let folder = Folder::new();
    folder.write("people.csv", "person_id,age,sex,price\n1,30,M,\"9326,97\"\n2,40,F,\"12,50\"\n");
    folder.write("visits.jsonl", "{\"id\":1,\"day\":\"2026-01-31\"}\n");
    folder.write("broken.jsonl", "{\"id\":1}\n{\"id\":\n");
    folder.write("latin.csv", b"id,street\n1,Stra\xdfe\n");
    folder.write("wide.csv", "a,b\n1,2\n1,2,3\n");
    folder.write("short.parquet", b"PAR1\x15\x04\x15");
    folder.write("survey.dta", "<stata_dta><header>");
    folder.write("pack.zip", zip_of("a.csv"));
    folder.write("photos/cat.jpg", "cat");
    folder.write("photos/dog.jpg", "dog");
    folder.write("labels.csv", "file_name,label\ncat.jpg,cat\ndog.jpg,dog\n");
    folder.write("other.csv", "file_name,label\n/data/1.jpg,cat\n/data/2.jpg,dog\n");
    folder.write("mixed/labels.csv", "name,label\ncat,1\n");
    folder.write("mixed/cat.jpg", "cat");
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    folder.run("convert people.csv --out ds").ok();
    folder
}

/// The first bytes of a zip archive with a member of this name.
fn zip_of(member: &str) -> Vec<u8> {
    let name = member.as_bytes();
    let length = u16::try_from(name.len()).unwrap().to_le_bytes();
    [b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".as_slice(), &length, &[0, 0], name].concat()
}

/// Words of a line for a shell, where single quotes hold a word together.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// Runs mistakes, and returns what they were answered.
fn answers(lines: &[&str]) -> String {
    let (folder, mut out) = (prepared(), String::new());
    let (place, target) = (folder.path().display().to_string(), folder.path().join("shards"));
    for line in lines {
        let words = words(line);
        let ran = folder.run_with(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let said = ran.stderr.replace(&place, "[FOLDER]");
        let said: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
        out.push_str(&format!("$ shardify {line}\n{}\n-> {}\n\n", said.join("\n"), ran.code));
        let helps = ["hint:", "tip:", "possible values", "no record has the id", "no source in the dataset", "note:"];
        let told = helps.iter().any(|help| ran.stderr.contains(help)) || said.len() > 1;
        assert!(told && (ran.code != 0 || ran.stderr.contains("note:")), "{line}: {ran:?}");
        assert!(!["panicked", "internal"].iter().any(|word| ran.stderr.contains(word)), "{line}: {ran:?}");
        assert!(ran.code == 0 || !target.join("_shardify/log").exists(), "{line} made a version: {ran:?}");
        let _ = std::fs::remove_dir_all(&target);
    }
    out
}

#[test]
fn mistakes_in_a_conversion_are_answered() {
    insta::assert_snapshot!("mistakes_convert", answers(CONVERT));
}

#[test]
fn mistakes_about_files_are_answered() {
    insta::assert_snapshot!("mistakes_files", answers(FILES));
}

#[test]
fn mistakes_about_a_dataset_are_answered() {
    insta::assert_snapshot!("mistakes_dataset", answers(DATASET));
}
