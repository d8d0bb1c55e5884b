//! Datasets and folders that somebody else made: whatever they contain, no command writes, deletes or empties a file
//! outside of them.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

use std::{fs, os::unix::fs::symlink, path::Path};

use crate::support::{Folder, closed};

const ROWS: &str = "id,v\nA1,1\nA2,2\nA3,3\n";

/// Returns a folder with a dataset, and precious files outside of it.
fn dataset() -> Folder {
    let folder = Folder::new();
    folder.write("a.csv", ROWS);
    folder.run("convert a.csv --id id --out ds -q").ok();
    for name in ["one", "two"] {
        folder.write(&format!("home/{name}"), "precious");
    }
    folder
}

fn assert_untouched(folder: &Folder) {
    let mut names: Vec<_> =
        fs::read_dir(folder.path().join("home")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    for name in names {
        assert_eq!(fs::read_to_string(folder.path().join("home").join(name)).unwrap(), "precious");
    }
}

#[test]
fn links_in_place_of_locks_do_not_empty_their_targets() {
    let folder = dataset();
    let locks = folder.path().join("ds/_shardify/locks");
    fs::create_dir_all(&locks).unwrap();
    for (name, target) in [("erase", "one"), ("vacuum", "two")] {
        let _ = fs::remove_file(locks.join(name));
        symlink(Path::new("../../../home").join(target), locks.join(name)).unwrap();
    }
    for command in ["erase ds A1", "erase ds A1 --all-versions", "vacuum ds --retain 0s --force"] {
        let ran = folder.run(command);
        assert!(ran.code == 0 || ran.code == 5 && ran.stderr.contains("found the link"), "{command}: {ran:?}");
    }
    assert_untouched(&folder);
}

#[test]
fn links_in_place_of_folders_are_not_followed_for_writing_or_deleting() {
    for below in ["staging", "log", "locks", "lists", "erasures", "receipts", "index"] {
        let folder = dataset();
        let place = folder.path().join("ds/_shardify").join(below);
        if place.exists() {
            // The content is the same, behind a link.
            fs::rename(&place, folder.path().join("moved")).unwrap();
            for entry in fs::read_dir(folder.path().join("moved")).unwrap().map(Result::unwrap) {
                fs::rename(entry.path(), folder.path().join("home").join(entry.file_name())).unwrap();
            }
        }
        let before = listing(&folder.path().join("home"));
        symlink("../../home", &place).unwrap();
        folder.write("b.csv", "id,v\nB1,1\n");
        for command in [
            "convert b.csv --out ds",
            "compact ds --min-inputs 2",
            "erase ds A1 --all-versions",
            "vacuum ds --retain 0s --force",
        ] {
            let ran = folder.run(command);
            assert!([0, 5].contains(&ran.code), "{below}, {command}: {ran:?}");
        }
        assert_eq!(listing(&folder.path().join("home")), before, "{below}");
    }
}

fn listing(folder: &Path) -> Vec<(std::ffi::OsString, u64)> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut out: Vec<_> = entries.map(|entry| (entry.file_name(), entry.metadata().unwrap().len())).collect();
    out.sort();
    out
}

#[test]
fn the_settings_of_a_folder_neither_write_elsewhere_nor_choose_what_is_erased() {
    let folder = dataset();
    folder.write("home/one", "precious");
    for (settings, command) in [
        ("[report]\nhtml = \"home/one\"\n", "report ds"),
        ("[check]\nprometheus = \"home/one\"\n", "check ds"),
        ("[erase]\nreceipt = \"home/one\"\n", "erase ds A1"),
        ("[erase]\nsubject = [\"A2\"]\n", "erase ds A1"),
        ("[vacuum]\nforce = true\n", "vacuum ds"),
        ("dataset = \"../ds\"\n", "manifest"),
        ("[convert]\nopenlineage = \"http://127.0.0.1:9/x\"\n", "convert a.csv --out ds"),
        ("[convert]\nid-key = \"home/one\"\n", "convert a.csv --out ds"),
    ] {
        folder.write("shardify.toml", settings);
        let ran = folder.run(command);
        assert!(ran.code == 2 && ran.stderr.contains("~/.config/shardify/shardify.toml"), "{settings}: {ran:?}");
    }
    assert_untouched(&folder);
}

#[test]
fn settings_are_a_small_file_and_no_pipe_or_device() {
    let folder = dataset();
    symlink("/dev/zero", folder.path().join("shardify.toml")).unwrap();
    assert!(folder.run("manifest ds").stderr.contains("found a device"));
    fs::remove_file(folder.path().join("shardify.toml")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("shardify.toml")).status();
    if made.is_ok_and(|made| made.success()) {
        assert!(folder.run("manifest ds").stderr.contains("found a pipe"));
        fs::remove_file(folder.path().join("shardify.toml")).unwrap();
    }
    folder.write("shardify.toml", "#".repeat((1 << 20) + 1));
    assert!(folder.run("manifest ds").stderr.contains("of at most 1.0 MiB"));
}

#[test]
fn the_intent_of_a_plan_deletes_nothing_outside_of_the_dataset() {
    let folder = dataset();
    for i in 1..=3 {
        folder.write(&format!("in/{i}.csv"), format!("id,v\nB{i},1\n"));
    }
    let planned = folder.run("plan convert in --out ds --task-size 8B --json").ok();
    let plan = planned.summary()["plan"].as_str().unwrap().to_owned();
    folder.run_with(&["run-task", &plan, "--task", "0", "-q"]).ok();
    let id = &Path::new(&plan).file_name().unwrap().to_str().unwrap()[..32];
    let outside = format!("{}/../../home/one", &id[..16]);
    let absolute = folder.path().join("home/two");
    let intent = serde_json::json!({
        "transaction": id, "operation": "plan", "planned_on": 1, "paths": [outside, absolute.to_str().unwrap()],
    });
    folder.write(&format!("ds/_shardify/intents/{id}-9-0.json"), closed(&intent));
    folder.run("erase ds A1 --all-versions");
    assert_untouched(&folder);
}

/// Makes a pipe that nobody writes to.
fn pipe(folder: &Folder, name: &str) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, folder.path().join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn files_that_options_name_are_regular_and_bounded() {
    let folder = dataset();
    pipe(&folder, "pipe");
    let large = fs::File::create(folder.path().join("large")).unwrap();
    large.set_len(1 << 30).unwrap();
    for command in [
        "convert a.csv --out new --schema",
        "convert a.csv --out new --id-mode hmac --id id --id-key",
        "check ds --rules",
        "verify-proof",
        "manifest ds --find-file",
        "erase ds --ids",
        "reshard ds --out new --ids",
        "block ds --ids",
    ] {
        for (file, found) in [("pipe", "found a pipe"), ("/dev/zero", "found a device"), ("large", "found 1.0 GiB")] {
            let ran = folder.run(&format!("{command} {file}"));
            assert!(ran.code == 2 && ran.stderr.contains(found), "{command} {file}: {ran:?}");
            assert!(ran.stderr.contains(&format!("at: {file}")) || ran.stderr.contains(&format!("/{file}")), "{ran:?}");
        }
    }
}

#[test]
fn users_and_passwords_of_malformed_urls_are_printed_by_no_command() {
    let folder = dataset();
    folder.write("shardify.toml", "");
    let urls = [
        "http:bob:s3cret@h/x",
        "http://bob:s3cret@h:x/y",
        "HTTPS:/bob:s3cret@h/x",
        "https:\\\\bob:s3cret@h\\x",
        "//bob:s3cret@h/x",
        "bob:s3cret@h:/x",
        "s3:bob:s3cret@bucket/x",
        "s3:///bob:s3cret@bucket/x",
        "ftp://bob:s3cret@h/x",
        "http://http://bob:s3cret@h/x",
        "http://bob:s3cret",
    ];
    let commands = [
        "convert URL --out new",
        "convert a.csv --out URL",
        "convert a.csv --out new --openlineage URL",
        "convert a.csv --out new --labels URL",
        "convert a.csv --out new --schema URL",
        "convert a.csv --out new --subject-table URL",
        "convert a.csv --out new --unknown=URL",
        "convert a.csv --to URL",
        "URL",
        "adopt URL",
        "inspect URL",
        "head URL",
        "report URL",
        "report ds --html URL",
        "bench URL",
        "pull URL copy",
        "pull ds URL",
        "reshard URL --out new",
        "reshard ds --out URL",
        "compact URL",
        "manifest URL",
        "manifest ds more URL",
        "check ds --rules URL",
        "check ds --prometheus URL --rules a.csv",
        "verify URL",
        "vacuum URL",
        "remove URL --source x",
        "revert URL --to v1",
        "erase URL x --dry-run",
        "erase ds x --receipt URL --dry-run",
        "block URL --subject x",
        "verify-proof URL",
        "plan convert URL --out new",
        "plan convert a.csv --out URL",
        "run-task URL --task 0",
        "commit URL",
    ];
    let pairs = urls.iter().flat_map(|url| commands.iter().map(move |command| (url, command)));
    for (number, (url, command)) in pairs.enumerate() {
        let json = if number % 2 == 0 { " --json" } else { "" };
        let words: Vec<String> = format!("{command}{json}").split(' ').map(|word| word.replace("URL", url)).collect();
        let ran = folder.run_with(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let said = format!("{}{}", ran.stdout, ran.stderr);
        // What follows the last colon of --labels is the name of a column, so `bob` may be a host there.
        let told = said.contains("s3cret") || (said.contains("bob") && !command.contains("--labels"));
        assert!(ran.code != 70 && !told, "{words:?}: {ran:?}");
    }
    assert!(
        fs::read_dir(folder.path()).unwrap().all(|entry| !entry.unwrap().file_name().to_string_lossy().contains("bob"))
    );
}

#[test]
fn control_characters_of_arguments_are_not_printed() {
    let folder = dataset();
    for words in
        [["--\u{1b}]0;x\u{7}", "ds"], ["manifest", "--\u{1b}[2J"], ["convert", "--to=\u{1b}[31m"], ["\u{1b}c", "x"]]
    {
        let ran = folder.run_with(&words);
        assert_eq!(ran.code, 2);
        assert!(!ran.stderr.contains('\u{1b}') && !ran.stderr.contains('\u{7}'), "{ran:?}");
    }
}

#[test]
fn urls_that_training_tools_would_run_or_expand_are_refused() {
    for name in ["x::pipe:echo", "a{0..3}", "a\\b"] {
        let folder = dataset();
        fs::rename(folder.path().join("ds"), folder.path().join(name)).unwrap();
        let ran = folder.run_with(&["manifest", name, "--list", "--urls"]);
        assert!(ran.code == 2 && ran.stderr.contains("--paths"), "{ran:?}");
        folder.run_with(&["manifest", name, "--list", "--paths"]).ok();
    }
    let folder = dataset();
    fs::rename(folder.path().join("ds"), folder.path().join("pipe:x")).unwrap();
    let urls = folder.run_with(&["manifest", "pipe:x", "--list", "--urls"]).ok().stdout;
    assert!(urls.lines().all(|url| url.starts_with('/')), "an absolute path is no command: {urls}");
}

#[test]
fn a_source_that_grows_while_it_is_read_is_not_committed() {
    use std::{
        io::Write as _,
        sync::atomic::{AtomicBool, Ordering},
    };
    let folder = Folder::new();
    let mut rows = String::from("id,value\n");
    (0..400_000).for_each(|row| rows.push_str(&format!("{row},{row}\n")));
    let path = folder.write("log.csv", rows + "400000,1");
    let done = AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::options().append(true).open(&path).unwrap();
            // Every state of the file is valid: the last number has more and more digits.
            while !done.load(Ordering::Relaxed) {
                file.write_all(b"0").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let ran = folder.run("convert log.csv --out ds --type value=text");
        done.store(true, Ordering::Relaxed);
        ran
    });
    assert!(ran.code == 6 && ran.stderr.contains("found it changed"), "{ran:?}");
    assert_ne!(folder.run("manifest ds").code, 0);
    assert_eq!(folder.run("convert log.csv --out ds --type value=text --json").ok().summary()["records_out"], 400_001);
}

#[test]
fn a_lack_of_memory_or_threads_is_an_error_with_a_sentence() {
    let folder = Folder::new();
    folder.write("a.csv", format!("id,v\n{}", "1,2\n".repeat(100_000)));
    let limited = |kib: u32, arguments: &str| {
        let program = env!("CARGO_BIN_EXE_shardify");
        let script = format!("ulimit -v {kib}; exec timeout -s KILL 60 '{program}' {arguments}");
        let ran = std::process::Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
        (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    let mut codes = Vec::new();
    // Below some limit, the program cannot be loaded.
    for kib in (1..=24).map(|step| step * 40_000).filter(|kib| limited(*kib, "--version").0 == Some(0)) {
        let (code, said) = limited(kib, &format!("convert a.csv --out ds{kib} --jobs 8 --memory 1GiB"));
        assert!(code == Some(0) || (code == Some(5) && said.contains("refused")), "{kib}: {code:?} {said}");
        codes.push(code);
    }
    assert!(codes.contains(&Some(5)), "{codes:?}");
}
