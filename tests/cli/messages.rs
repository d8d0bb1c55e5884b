//! Error messages that people meet who use the program for the first time, one test for each of five tasks. Each
//! message says what was expected, what was found, where, and what to do.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::process::Command;

use insta::assert_snapshot;

use crate::support::{Folder, Ran, without_tags};

/// Commands and what they said, as on a terminal.
struct Session {
    folder: Folder,
    said: String,
}

impl Session {
    fn new() -> Self {
        Self { folder: Folder::new(), said: String::new() }
    }

    /// Runs a command, which must fail.
    fn fails(&mut self, words: &[&str]) {
        let ran = self.folder.run_with(words);
        self.note(words, &ran);
    }

    /// Notes what a command said, which must have failed with a message that says what to do.
    fn note(&mut self, words: &[&str], ran: &Ran) {
        assert!(ran.code != 0 && ran.code != 70, "{words:?}: {ran:?}");
        let (command, text) = (words.join(" "), self.folder.redact(&ran.stderr));
        let helps = ["hint:", "tip:", "possible values", "; ", "invalid value", "required arguments"]
            .iter()
            .any(|help| text.contains(help));
        assert!(helps, "{command} does not say what to do: {text}");
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("For more information"));
        let lines: String = lines.map(|line| format!("{}\n", line.trim_end())).collect();
        self.said.push_str(&format!("$ shardify {command}\n{}[{}]\n", without_tags(&lines), ran.code));
    }
}

#[test]
fn images_with_labels() {
    let mut session = Session::new();
    let folder = &session.folder;
    for (name, kind) in [("cat/1", "cat"), ("cat/2", "cat"), ("dog/1", "dog")] {
        folder.write(&format!("pets/{name}.jpg"), [b"\xff\xd8\xff\xe0", kind.as_bytes()].concat());
    }
    folder.write("pets/labels.csv", "file,label\ncat/1.jpg,cat\ncat/2.jpg,cat\n");
    folder.write("pets.zip", "PK\u{3}\u{4}");
    for words in [
        "convert pet",
        "convert pets",
        "convert pets --labels pets/label.csv",
        "convert pets --labels pets/labels.csv:fil",
        "convert pets --labels pets/labels.csv",
        "convert pets --exclude *.csv --type label=text",
        "convert pets --exclude *.csv --to csv",
        "convert pets --exclude *.csv --codec zstd:40",
        "convert pets --exclude *",
        "convert pets.zip",
    ] {
        session.fails(&words.split(' ').collect::<Vec<_>>());
    }
    assert_snapshot!(session.said, @r"
    $ shardify convert pet
    error: no such file or folder
       at: pet
     hint: there is `pets` in the same folder
     hint: check the path; quote patterns so that the shell does not expand them
    [2]
    $ shardify convert pets
    error: expected either records or files, found both: `labels.csv` contains records, `cat/1.jpg` does not
     hint: if it has the labels of the other files: --labels [FOLDER]/pets/labels.csv
     hint: to convert the files with records alone: --include '*.csv' (or *.jsonl ...)
     hint: to convert all files as samples, grouped by name: --from files
    [2]
    $ shardify convert pets --labels pets/label.csv
    error: no such file or folder
       at: pets/label.csv
     hint: there is `labels.csv` in the same folder
     hint: check the path; quote patterns so that the shell does not expand them
    [2]
    $ shardify convert pets --labels pets/labels.csv:fil
    error: the table of --labels has no such column
       at: [FOLDER]/pets/labels.csv, column `fil`
     hint: there is a column `file`
     hint: the columns are file, label
    [2]
    $ shardify convert pets --labels pets/labels.csv
    note: pets/labels.csv: the column `file` names the samples
    error: expected a row of the labels for each sample, found none for the sample `dog/1`; 1 of 3 samples have none
       at: [FOLDER]/pets/dog/1.jpg
     hint: add rows to the table, or skip files with --exclude
     hint: --accept labels converts samples that have no row, without a label
    [6]
    $ shardify convert pets --exclude *.csv --type label=text
    error: expected tables for --type, found samples
     hint: samples have no columns; leave --type out
    [2]
    $ shardify convert pets --exclude *.csv --to csv
    error: invalid value 'csv' for '--to <FORMAT>'
      [possible values: parquet, tar, tfrecord]
      tip: shards are parquet, tar or tfrecord; '--index delta' adds a Delta log to Parquet
    [2]
    $ shardify convert pets --exclude *.csv --codec zstd:40
    error: invalid value 'zstd:40' for '--codec <CODEC[:LEVEL]>': expected a zstd level from 1 to 22, found `40`; use none, zstd, zstd:1 to zstd:22, lz4, snappy, gzip, or gzip:1 to gzip:9
    [2]
    $ shardify convert pets --exclude *
    error: no files match
       at: pets
     hint: check --include and --exclude
    [2]
    $ shardify convert pets.zip
    error: expected the directory of a zip archive at the end of the file, found none: it is truncated
       at: [FOLDER]/pets.zip, byte 4
     hint: the file may have been cut short: download or copy it again
     hint: count such places as rejects with --on-error skip or quarantine
    [6]
    ");
}

#[test]
fn a_csv_dump() {
    let mut session = Session::new();
    let folder = &session.folder;
    folder.write("people.csv", "id,name,age\n1,Ann,31\n2,Bob,25\n3,Cid,x\n");
    folder.write("good.csv", "id,name,age\n1,Ann,31\n2,Bob,25\n");
    folder.write("bad.csv", "id,name,age\n1,Ann,31\n2,Bob,25,7\n3,Cid,47\n");
    folder.write("cities.csv", "city,people\nRome,3\n");
    let words = |text: &'static str| text.split(' ').collect::<Vec<_>>();
    for text in [
        "convert poeple.csv",
        "convert people.csv --id nmae",
        "convert people.csv --subject nmae",
        "convert people.csv --columns id,agee",
        "convert people.csv --type agee=int64",
        "convert people.csv --type age=integer",
        "convert people.csv --type age=int64",
        "convert bad.csv",
        "convert people.csv --jobs 0",
        "convert people.csv --shards 0",
        "convert people.csv --target-shard 128Mb/s",
        "convert people.csv --compresion zstd",
        "convert people.csv --format csv",
        "convert people.csv --out good.csv",
        "convert people.csv --out good.csv/shards",
        "create shards",
    ] {
        session.fails(&words(text));
    }
    session.fails(&["convert", "people.csv", "--where", "age >"]);
    session.fails(&["convert", "people.csv", "--where", "agee > 3"]);
    session.folder.run("convert good.csv").ok();
    session.fails(&words("convert good.csv --type agee=int64"));
    session.fails(&words("convert cities.csv"));
    session.folder.write("good.csv", "id,name,age\n1,Ann,32\n");
    session.fails(&words("convert good.csv"));
    session.fails(&words("erase shards"));
    assert_snapshot!(session.said, @r#"
    $ shardify convert poeple.csv
    error: no such file or folder
       at: poeple.csv
     hint: there is `people.csv` in the same folder
     hint: check the path; quote patterns so that the shell does not expand them
    [2]
    $ shardify convert people.csv --id nmae
    error: no source has this column
       at: column `nmae`
     hint: there is a column `name`
     hint: the columns are id, name, age
    [2]
    $ shardify convert people.csv --subject nmae
    error: no source has this column
       at: column `nmae`
     hint: there is a column `name`
     hint: the columns are id, name, age
    [2]
    $ shardify convert people.csv --columns id,agee
    error: no source has this column
       at: column `agee`
     hint: there is a column `age`
     hint: the columns are id, name, age
    [2]
    $ shardify convert people.csv --type agee=int64
    error: no source has this column
       at: column `agee`
     hint: there is a column `age`
     hint: the columns are id, name, age
    [2]
    $ shardify convert people.csv --type age=integer
    error: expected int64, found `x`
       at: [FOLDER]/people.csv, line 4, byte 30, column `age`
     hint: skip bad records with --on-error skip, or keep them in a file with --on-error quarantine
    [6]
    $ shardify convert people.csv --type age=int64
    error: expected int64, found `x`
       at: [FOLDER]/people.csv, line 4, byte 30, column `age`
     hint: skip bad records with --on-error skip, or keep them in a file with --on-error quarantine
    [6]
    $ shardify convert bad.csv
    error: expected 3 fields, found 4
       at: [FOLDER]/bad.csv, line 3, byte 21
     hint: skip bad records with --on-error skip, or keep them in a file with --on-error quarantine
    [6]
    $ shardify convert people.csv --jobs 0
    error: invalid value '0' for '--jobs <N>': expected a number of threads of 1 or more, found `0`; without --jobs, all cores are used
    [2]
    $ shardify convert people.csv --shards 0
    error: invalid value '0' for '--shards <N>': expected a whole number of 1 or more, found `0`
    [2]
    $ shardify convert people.csv --target-shard 128Mb/s
    error: invalid value '128Mb/s' for '--target-shard <SIZE>': expected a size, found `128Mb/s`; write it like 128MiB, 1GB or 4096 (bytes)
    [2]
    $ shardify convert people.csv --compresion zstd
    error: unexpected argument '--compresion' found
      tip: a similar argument exists: '--compression'
    Usage: shardify convert --codec <CODEC[:LEVEL]> <SOURCES>...
    [2]
    $ shardify convert people.csv --format csv
    error: unexpected argument '--format' found
      tip: '--to' is the format of the shards, '--from' that of the inputs
    [2]
    $ shardify convert people.csv --out good.csv
    error: expected the folder of a dataset, found a file
       at: [FOLDER]/good.csv
     hint: a dataset is a folder of shards: name one that is new, or has a dataset
    [2]
    $ shardify convert people.csv --out good.csv/shards
    error: expected a folder, found a file
       at: [FOLDER]/good.csv
     hint: a dataset is a folder of shards: name one that is new, or has a dataset
    [2]
    $ shardify create shards
    error: unrecognized subcommand 'create'
      tip: `shardify convert SOURCE --out DATASET` makes a dataset, or extends one
    Usage: shardify [OPTIONS] <COMMAND>
    [2]
    $ shardify convert people.csv --where age >
    error: expected a column or a literal in --where, found its end at character 6
     hint: a condition looks like "age >= 18 and site in ('A', 'B')" or "day >= today() - 30"
    [2]
    $ shardify convert people.csv --where agee > 3
    error: no source has this column of --where
       at: column `agee`
     hint: there is a column `age`
     hint: the columns are id, name, age
    [2]
    $ shardify convert good.csv --type agee=int64
    error: the dataset has no such column
       at: [FOLDER]/shards, column `agee`
     hint: there is a column `age`
     hint: the columns are id, name, age
    [2]
    $ shardify convert cities.csv
    error: expected at least one of this dataset's columns, id, name, age, found city, people
       at: [FOLDER]/shards
     hint: name another dataset with --out
     hint: or accept it with --accept columns
    [8]
    $ shardify convert good.csv
    error: this source changed since v1 converted it
       at: [FOLDER]/good.csv
     hint: replace its old records with --on-changed replace
     hint: keep its old records beside the new ones with --on-changed append
     hint: skip it with --on-changed skip
    [8]
    $ shardify erase shards
    error: expected an id to erase, found a dataset
       at: shards
     hint: write `shardify erase shards ID`, or --record or --subject before an id that is spelt like a dataset
    [2]
    "#);
}

#[test]
fn a_folder_of_jsonl() {
    let mut session = Session::new();
    let folder = &session.folder;
    folder.write("logs/a.jsonl", "{\"id\":1,\"text\":\"Mrs. Secret\"}\n");
    folder.write("broken/a.jsonl", "{\"id\":1}\n{\"id\":2,}\n");
    folder.write("cut/a.jsonl", "{\"id\":1}\n{\"id\":2,\"te");
    folder.write("named.jsonl", "%PDF-1.7 and so on");
    folder.write("schema.json", "{\"columns\": [{\"name\": \"id\", \"type\": \"int64\"}]}");
    folder.write("other.json", "{\"id\": \"int64\"}");
    for words in [
        "convert log",
        "convert logs --id idd",
        "convert broken",
        "convert cut",
        "convert named.jsonl",
        "convert logs --schema schema.json",
        "convert logs --schema other.json",
        "convert logs --schema missing.json",
        "convert logs/*.json",
        "convert - --to tar",
    ] {
        session.fails(&words.split(' ').collect::<Vec<_>>());
    }
    assert_snapshot!(session.said, @r#"
    $ shardify convert log
    error: no such file or folder
       at: log
     hint: there is `logs` in the same folder
     hint: check the path; quote patterns so that the shell does not expand them
    [2]
    $ shardify convert logs --id idd
    error: no source has this column
       at: column `idd`
     hint: there is a column `id`
     hint: the columns are id, text
    [2]
    $ shardify convert broken
    error: invalid JSON: trailing comma
       at: [FOLDER]/broken/a.jsonl, line 2, byte 17
     hint: skip bad records with --on-error skip, or keep them in a file with --on-error quarantine
    [6]
    $ shardify convert cut
    error: invalid JSON: the record ends within a string; the file may have been cut short while it was copied or written
       at: [FOLDER]/cut/a.jsonl, line 2, byte 19
     hint: skip bad records with --on-error skip, or keep them in a file with --on-error quarantine
    [6]
    $ shardify convert named.jsonl
    error: expected records, as the name states, found a PDF document
       at: [FOLDER]/named.jsonl
     hint: if it belongs to a sample, convert it with --from files, or skip it with --exclude
    [6]
    $ shardify convert logs --schema schema.json
    error: expected the columns of the schema, found another one
       at: [FOLDER]/logs/a.jsonl, byte 0, column `text`
     hint: add the column to the schema, or name the columns to keep with --columns
    [6]
    $ shardify convert logs --schema other.json
    error: expected a schema file, found something else
       at: other.json, line 1
    cause: unknown field `id`, expected `columns` at line 1 column 5
     hint: a schema looks like {"columns": [{"name": "age", "type": "int64"}]}
    [2]
    $ shardify convert logs --schema missing.json
    error: expected a schema file, found nothing
       at: missing.json
     hint: a schema is a Parquet file, or JSON like {"columns": [{"name": "age", "type": "int64"}]}
    [2]
    $ shardify convert logs/*.json
    error: no files match
       at: logs/*.json
     hint: name a file or folder with data
    [2]
    $ shardify convert - --to tar
    error: expected --from with `-`, because the format of standard input cannot be derived from a name
     hint: name the format, such as --from csv or --from jsonl
    [2]
    "#);
}

#[test]
fn netcdf() {
    let mut session = Session::new();
    let file = std::fs::read(crate::support::testdata_path("arrays/example_1.nc")).unwrap();
    session.folder.write("grid.nc", &file);
    session.folder.write("cut.nc", &file[..file.len() / 2]);
    session.folder.write("text.nc", "not an array");
    for words in [
        "convert grid.nc --read record-dim=tiem",
        "convert grid.nc --read var=nothing",
        "convert grid.nc --read patch=lat=0",
        "convert grid.nc --read patch=nowhere=4",
        "convert grid.nc --id station",
        "convert cut.nc",
        "convert text.nc",
    ] {
        session.fails(&words.split(' ').collect::<Vec<_>>());
    }
    assert_snapshot!(session.said, @r#"
    $ shardify convert grid.nc --read record-dim=tiem
    error: expected a dimension of the variables for --read record-dim, found `tiem`
       at: [FOLDER]/grid.nc
     hint: the dimensions are time, level, lat, lon
    [2]
    $ shardify convert grid.nc --read var=nothing
    error: no variable has this name
       at: [FOLDER]/grid.nc, column `nothing`
     hint: the variables are temp, rh, lat, lon, level, time
    [2]
    $ shardify convert grid.nc --read patch=lat=0
    error: expected a patch and a stride of 1 to 5 for `lat`, found 0 and 0
       at: [FOLDER]/grid.nc
     hint: a patch fits into its dimension: --read patch=lat=5
    [2]
    $ shardify convert grid.nc --read patch=nowhere=4
    error: expected a dimension of the variables for --read patch, found `nowhere`
       at: [FOLDER]/grid.nc
     hint: the dimensions are time, level, lat, lon
    [2]
    $ shardify convert grid.nc --id station
    error: no source has this column
       at: column `station`
     hint: the columns are temp, rh, time
    [2]
    $ shardify convert cut.nc
    error: expected 1532 bytes for a variable of shape [1, 4, 5, 10], found 868
       at: [FOLDER]/cut.nc, byte 732, column `temp`
     hint: the file may have been cut short
    [6]
    $ shardify convert text.nc
    error: expected records, as the name states, found text of another kind
       at: [FOLDER]/text.nc
     hint: the file may be damaged: download it again, or skip it with --exclude
     hint: if it has another format, name it with --from; --from files converts all files as samples
    [6]
    "#);
}

#[test]
fn an_existing_webdataset() {
    let mut session = Session::new();
    let folder = &session.folder;
    for sample in 0..20 {
        folder.write(&format!("raw/{sample}.txt"), format!("sample {sample}"));
    }
    folder.run("convert raw --out made --records-per-shard 10").ok();
    let shards = folder.only_shards("made");
    for (number, (_, bytes)) in shards.iter().enumerate() {
        folder.write(&format!("wds/{number:06}.tar"), bytes);
    }
    folder.write("cut/000000.tar", &shards[0].1[..1300]);
    for words in [
        "adopt wsd",
        "adopt raw",
        "adopt cut",
        "compact wds",
        "verify wds",
        "head wds/nothing.tar",
        "manifest made --at v9",
        "reshard made --out made",
        "reshard made --out new --compression gzip",
        "pull made --out copy",
        "convert made --out made",
        "convert made --to parquet --codec lz5",
        "revert made",
        "convert s4://bucket/wds",
    ] {
        session.fails(&words.split(' ').collect::<Vec<_>>());
    }
    assert_snapshot!(session.said, @r"
    $ shardify adopt wsd
    error: expected a folder to become a dataset, found nothing
       at: wsd
     hint: name the folder that holds the shards, or a dataset to link them into with --out
    [2]
    $ shardify adopt raw
    error: expected Parquet, tar or TFRecord files, found none, but 20 of other kinds
       at: raw
     hint: `shardify inspect` shows what is there; `shardify convert` makes shards from other files
    [2]
    $ shardify adopt cut
    error: expected the header of a member, found the end of the archive
       at: [FOLDER]/cut/000000.tar, byte 1300
     hint: the archive was cut short
     hint: --on-error skip adopts the other files
    [6]
    $ shardify compact wds
    error: there is no shardify dataset here
       at: [FOLDER]/wds
     hint: make one with `shardify convert SOURCE --out DATASET`, or name the right folder
     hint: shards that other tools wrote become one with `shardify adopt [FOLDER]/wds`
    [2]
    $ shardify verify wds
    error: there is no shardify dataset here
       at: [FOLDER]/wds
     hint: make one with `shardify convert SOURCE --out DATASET`, or name the right folder
     hint: shards that other tools wrote become one with `shardify adopt [FOLDER]/wds`
    [2]
    $ shardify head wds/nothing.tar
    error: no such file or folder
       at: wds/nothing.tar
     hint: check the path; quote patterns so that the shell does not expand them
    [2]
    $ shardify manifest made --at v9
    error: there is no version v9
       at: [FOLDER]/made
     hint: `shardify manifest --history` lists the versions
    [2]
    $ shardify reshard made --out made
    error: expected an --out outside of the dataset
       at: [FOLDER]/made
     hint: name a new folder or URL; `compact` merges the shards of the dataset itself
    [2]
    $ shardify reshard made --out new --compression gzip
    error: unexpected argument '--compression' found
      tip: the new shards keep the codec of the dataset; 'convert DATASET --codec CODEC --out NEW' changes it
    [2]
    $ shardify pull made --out copy
    error: unexpected argument '--out' found
      tip: the folder is the second argument: shardify pull DATASET FOLDER
    [2]
    $ shardify convert made --out made
    error: expected a source other than the dataset itself, found the same folder for both
       at: [FOLDER]/made
     hint: name another dataset with --out; `compact` merges the shards of this one, `reshard` cuts it anew
    [2]
    $ shardify convert made --to parquet --codec lz5
    error: invalid value 'lz5' for '--codec <CODEC[:LEVEL]>': expected a codec, found `lz5`; use none, zstd, zstd:1 to zstd:22, lz4, snappy, gzip, or gzip:1 to gzip:9
    [2]
    $ shardify revert made
    error: the following required arguments were not provided:
      --to <WHEN>
    Usage: shardify revert --to <WHEN> <DATASET>
    [2]
    $ shardify convert s4://bucket/wds
    error: expected a path or a URL of a known scheme, found `s4:`
       at: s4://bucket/wds
     hint: use a path or one of file:, s3:, gs:, az:, http:, https:
     hint: copy the files to a folder or a bucket first, for example with rclone
    [2]
    ");
}

#[test]
fn files_that_are_not_what_their_names_say() {
    let mut session = Session::new();
    let folder = &session.folder;
    folder.write("doc.jsonl", "%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\n");
    folder.write("scan.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    folder.write("page.csv", "<!DOCTYPE html>\n<html><title>404, not found</title></html>\n");
    folder.write("large.parquet", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n");
    folder.write("lines.csv", "{\"id\":1,\"x\":2}\n{\"id\":2,\"x\":3}\n");
    folder.write("rows.jsonl", "id,x\n1,2\n3,4\n");
    folder.write("base.tsv", b"SQLite format 3\0\x10\0\x01\x01");
    folder.write("sheet.csv", b"PK\x03\x04\x14\0\x06\0");
    for words in [
        "convert doc.jsonl",
        "inspect doc.jsonl",
        "inspect scan.csv",
        "inspect page.csv",
        "inspect large.parquet",
        "inspect lines.csv",
        "inspect rows.jsonl",
        "inspect base.tsv",
        "inspect sheet.csv",
    ] {
        session.fails(&words.split(' ').collect::<Vec<_>>());
    }
    assert_snapshot!(session.said, @r#"
    $ shardify convert doc.jsonl
    error: expected records, as the name states, found a PDF document
       at: [FOLDER]/doc.jsonl
     hint: if it belongs to a sample, convert it with --from files, or skip it with --exclude
    [6]
    $ shardify inspect doc.jsonl
    error: expected records, as the name states, found a PDF document
       at: [FOLDER]/doc.jsonl
     hint: if it belongs to a sample, convert it with --from files, or skip it with --exclude
    [6]
    $ shardify inspect scan.csv
    error: expected records, as the name states, found a PNG picture
       at: [FOLDER]/scan.csv
     hint: if it belongs to a sample, convert it with --from files, or skip it with --exclude
    [6]
    $ shardify inspect page.csv
    error: expected records, as the name states, found an HTML page
       at: [FOLDER]/page.csv
     hint: a download may have saved the page of an error: open it in an editor, and download the file again
    [6]
    $ shardify inspect large.parquet
    error: expected records, as the name states, found a pointer of Git LFS
       at: [FOLDER]/large.parquet
     hint: fetch the file that it stands for: git lfs pull
    [6]
    $ shardify inspect lines.csv
    error: expected records, as the name states, found JSON Lines
       at: [FOLDER]/lines.csv
     hint: name the format with --from jsonl, or rename the file
    [6]
    $ shardify inspect rows.jsonl
    error: expected records, as the name states, found delimited text
       at: [FOLDER]/rows.jsonl
     hint: name the format with --from csv, or rename the file
    [6]
    $ shardify inspect base.tsv
    error: expected records, as the name states, found an SQLite database
       at: [FOLDER]/base.tsv
     hint: export it as CSV or Parquet first, or give it to shardify.convert in Python as an Arrow table
    [6]
    $ shardify inspect sheet.csv
    error: expected records, as the name states, found a zip archive
       at: [FOLDER]/sheet.csv
     hint: if it is an archive of files, rename it to end in .zip, or unpack it
    [6]
    "#);
}

#[test]
fn content_that_contradicts_a_name_is_read_and_told() {
    let folder = Folder::new();
    let rows: String = (0..100).map(|row| format!("{row},{row}\n")).collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, format!("id,x\n{rows}").as_bytes()).unwrap();
    folder.write("in/a.parquet", packed.finish().unwrap());
    let told = "`a.parquet` is named as Parquet but contains compressed csv; reading it as csv\n";
    let shown = folder.run("inspect in").ok();
    assert!(shown.stdout.contains(told), "{shown:?}");
    let converted = folder.run("convert in --out d").ok();
    assert!(converted.stderr.contains(&format!("note: {told}")), "{converted:?}");
    let silent = folder.run("convert in --out e --from csv").ok();
    assert!(!silent.stderr.contains("is named as"), "{silent:?}");
    folder.write("b.csv", &folder.only_shards("d")[0].1);
    let shown = folder.run("inspect b.csv").ok();
    assert!(shown.stdout.contains("`b.csv` is named as delimited text but contains parquet"), "{shown:?}");
}

#[test]
fn forty_messages_and_more_differ_by_their_first_line() {
    let text = include_str!("messages.rs");
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("error: "));
    let different: std::collections::BTreeSet<&str> = lines.collect();
    assert!(different.len() >= 40, "{different:#?}");
}

#[test]
fn files_that_may_not_grow_and_places_that_cannot_be_written() {
    let mut session = Session::new();
    let rows: String = (0..60_000).map(|row| format!("{row},some text that is long enough {row}\n")).collect();
    session.folder.write("a.csv", format!("id,text\n{rows}"));
    let words = ["convert", "a.csv", "--codec", "none", "--to", "tar"];
    let line = format!("ulimit -f 1000; exec {} {}", env!("CARGO_BIN_EXE_shardify"), words.join(" "));
    let output = Command::new("sh").args(["-c", &line]).current_dir(session.folder.path()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) };
    session.note(&words, &ran);
    session.fails(&["convert", "a.csv", "--out", "/proc/nothing"]);
    assert_snapshot!(session.said, @r#"
    $ shardify convert a.csv --codec none --to tar
    error: writing failed
       at: [FOLDER]/shards//000000.tar
    cause: File too large (os error 27)
     hint: files may not grow further there: raise `ulimit -f`, or make smaller shards with --target-shard
    [5]
    $ shardify convert a.csv --out /proc/nothing
    error: creating the folder of the dataset failed
       at: /proc/nothing
    cause: No such file or directory (os error 2)
     hint: name another folder for the dataset
    [5]
    "#);
}
