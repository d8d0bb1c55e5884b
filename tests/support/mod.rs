//! Runs the real binary on real files, for tests of the command line.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]
#![expect(unreachable_pub, reason = "binaries have no outside")]

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

#[path = "../../crates/formats/src/format/corpus.rs"]
pub mod corpus;

/// Every index of tar shards that this program has.
pub const TAR_INDEXES: &str = if cfg!(feature = "energon") { "dali,wids,energon" } else { "dali,wids" };

/// Values of `--to` for tar shards of rows with these indexes, as parts and as they are by default.
pub const INDEXED_PARTS: &str = if cfg!(feature = "energon") {
    "tar --write rows=parts --index dali,wids,energon"
} else {
    "tar --write rows=parts --index dali,wids"
};
pub const INDEXED_TAR: &str =
    if cfg!(feature = "energon") { "tar --index dali,wids,energon" } else { "tar --index dali,wids" };

/// Output and exit code of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Returns the objects printed with `--json`.
    pub fn objects(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the last object, which must be the summary.
    pub fn summary(&self) -> Value {
        let last = self.objects().pop().unwrap_or_else(|| panic!("no output: {self:?}"));
        assert_eq!(last["type"], "summary", "{self:?}");
        last
    }

    /// Returns the error that ended a command with `--json`.
    pub fn error(&self) -> Value {
        let last = self.stderr.lines().last().unwrap_or_else(|| panic!("no error: {self:?}"));
        let last: Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["type"], "error", "{self:?}");
        last
    }

    /// Asserts that the run succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

/// A temporary working folder.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn copy(&self, testdata: &str, name: &str) {
        self.write(name, std::fs::read(testdata_path(testdata)).unwrap());
    }

    /// Returns the shards of a dataset without the files beside them.
    pub fn only_shards(&self, dataset: &str) -> Vec<(String, Vec<u8>)> {
        let formats = [".parquet", ".tar", ".tar.gz", ".tar.zst", ".tfrecord", ".tfrecord.gz"];
        let mut out = self.shards(dataset);
        out.retain(|(name, _)| {
            formats.iter().any(|format| name.ends_with(format)) && !name.contains("READ-LIVE-SHARDS")
        });
        out
    }

    /// Returns the members of all tars of a dataset.
    pub fn members(&self, dataset: &str) -> BTreeMap<String, Vec<u8>> {
        let mut out = BTreeMap::new();
        for (_, bytes) in self.only_shards(dataset) {
            for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
                let mut entry = entry.unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                out.insert(entry.path().unwrap().to_string_lossy().into_owned(), content);
            }
        }
        out
    }

    /// Runs shardify in this folder; arguments are split at spaces.
    pub fn run(&self, arguments: &str) -> Ran {
        self.run_with(&arguments.split(' ').filter(|a| !a.is_empty()).collect::<Vec<_>>())
    }

    pub fn run_with(&self, arguments: &[&str]) -> Ran {
        self.run_input(arguments, b"")
    }

    /// Runs shardify in this folder with the given standard input.
    pub fn run_input(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut child = Command::new(env!("CARGO_BIN_EXE_shardify"))
            .args(arguments)
            .current_dir(self.path())
            .env_remove("SHARDIFY_DATASET")
            .env("XDG_CONFIG_HOME", self.path().join(".config"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that does not read its input may have exited already.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns the paths and contents of all shards of a dataset and of the files beside them, sorted by path.
    pub fn shards(&self, dataset: &str) -> Vec<(String, Vec<u8>)> {
        let root = self.path().join(dataset);
        let mut out = Vec::new();
        for folder in std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().path()) {
            if folder.file_name().unwrap() == "_shardify" || !folder.is_dir() {
                continue;
            }
            for file in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
                let name = file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
                out.push((name, std::fs::read(file).unwrap()));
            }
        }
        out.sort();
        out
    }

    /// Returns the same with paths relative to the folders of runs, whose names are random.
    pub fn shards_below_tags(&self, dataset: &str) -> Vec<(String, Vec<u8>)> {
        let below = |(path, bytes): (String, Vec<u8>)| (path.split_once('/').unwrap().1.to_owned(), bytes);
        let shards = self.shards(dataset).into_iter().filter(|(path, _)| !path.starts_with(".nv-meta"));
        let mut out: Vec<_> = shards.map(below).collect();
        out.sort();
        out
    }

    /// Replaces this folder's name in an output and removes times.
    pub fn redact(&self, text: &str) -> String {
        let mut out = text.replace(&self.path().to_string_lossy().into_owned(), "[FOLDER]");
        let canonical = self.path().canonicalize().unwrap();
        out = out.replace(&canonical.to_string_lossy().into_owned(), "[FOLDER]");
        out.lines().filter(|l| !l.trim_start().starts_with("took ")).map(|l| format!("{l}\n")).collect()
    }
}

/// Removes the random names of folders of runs from a text.
pub fn without_tags(text: &str) -> String {
    let is_tag = |part: &str| part.len() == 16 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = text.split('/').map(|part| match part.char_indices().rev().nth(15) {
        Some((at, _)) if is_tag(&part[at..]) => &part[..at],
        _ => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Changes a log entry as another program could that follows the format.
pub fn rewrite_entry(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut entry: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut entry);
    entry.as_object_mut().unwrap().remove("checksum");
    std::fs::write(path, closed(&entry)).unwrap();
}

/// Returns a JSON object that ends with its checksum.
pub fn closed(object: &Value) -> Vec<u8> {
    shardify::codec::seal::close_json(serde_json::to_vec_pretty(object).unwrap()).unwrap()
}

/// Returns the path of the outcome of a task.
pub fn outcome_path(plan: &str, task: u64) -> PathBuf {
    let (folder, name) = plan.rsplit_once("/plans/").unwrap();
    Path::new(folder).join(format!("outcomes/{}-{task}.json", &name[..32]))
}

/// Returns the path of a file of `testdata/`.
pub fn testdata_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}
