//! What `inspect` says that the advised command will take, and what it leaves unsaid.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::process::Command;

use crate::support::Folder;

/// Rows of four columns.
fn rows(first: u64, count: u64) -> String {
    let row = |n: u64| {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        format!("{n},{mixed},{}.{},ward {}\n", mixed % 97, mixed % 10, mixed % 12)
    };
    (first..first + count).map(row).collect()
}

/// All files below a folder, with their sizes.
fn listed(folder: &std::path::Path) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            out.extend(listed(&path));
        }
        out.push((path.display().to_string(), path.metadata().unwrap().len()));
    }
    out.sort();
    out
}

#[test]
fn inspect_says_what_the_advised_convert_takes_and_leaves_nothing_on_disk() {
    let folder = Folder::new();
    let temporary = Folder::new();
    folder.write("one/big.csv", format!("visit_id,b,c,d\n{}", rows(0, 600_000)));
    for part in 0..30 {
        folder.write(&format!("many/{part:02}.csv"), format!("visit_id,b,c,d\n{}", rows(part * 20_000, 20_000)));
    }
    for sample in 0..1_500 {
        folder.write(
            &format!("tree/{:02}/{sample:04}.bin", sample % 10),
            vec![u8::try_from(sample % 251).unwrap(); 12_000],
        );
        folder.write(&format!("tree/{:02}/{sample:04}.txt", sample % 10), "a text");
    }
    for source in ["one/big.csv", "many", "tree"] {
        let before = listed(folder.path());
        let inspect = |options: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_shardify"));
            command.args(["inspect", source]).args(options).current_dir(folder.path()).env("TMPDIR", temporary.path());
            let output = command.output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        // On a busy machine, the sample may take too long.
        let measured = |options: &[&str], word: &str| {
            (0..10).map(|_| inspect(options)).find(|said| said.contains(word)).unwrap_or_else(|| inspect(options))
        };
        let text = measured(&[], "  about ");
        let last = text.lines().last().unwrap();
        let words = [" and ", " in 1 shard, by ", " s of work on a sample of ", " MiB"];
        assert!(last.starts_with("  about ") && words.iter().all(|word| last.contains(word)), "{text}");
        let json = measured(&["--json"], "\"cost\"");
        let summary: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
        assert_eq!(listed(folder.path()), before);
        assert_eq!(listed(temporary.path()), []);
        let cost = &summary["cost"];
        let command = summary["command"].as_str().unwrap().strip_prefix("shardify ").unwrap();
        let made = folder.run(&format!("{command} --out out-{} --json", source.replace('/', "-"))).ok().summary();
        let ratio =
            |cost: &serde_json::Value, made: &serde_json::Value| cost.as_f64().unwrap() / made.as_f64().unwrap();
        let bytes = ratio(&cost["bytes"], &made["bytes_out"]);
        assert!((0.8..1.25).contains(&bytes), "{source}: {cost} {bytes}");
        assert!(cost["seconds"].as_f64().unwrap() > 0.0, "{source}: {cost}");
        assert_eq!((&cost["shards"], &cost["memory"]), (&made["shards_added"], &made["memory_bytes"]), "{source}");
        assert!(cost["sampled_bytes"].as_u64().unwrap() > 1 << 20 && cost["sampled_files"].as_u64().unwrap() > 0);
        assert!(cost["sampled_seconds"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn sources_that_are_small_or_not_converted_have_no_estimate() {
    let folder = Folder::new();
    folder.write("a.csv", "visit_id,b,c,d\n1,2,3,4\n");
    folder.write("big.csv", format!("visit_id,b,c,d\n{}", rows(0, 600_000)));
    folder.run("convert big.csv --out shards --codec none --target-shard 1MiB").ok();
    folder.run("convert big.csv --out whole --codec none").ok();
    for (index, (_, shard)) in folder.only_shards("whole").into_iter().enumerate() {
        folder.write(&format!("parquet/{index}.parquet"), shard);
    }
    for source in ["a.csv", "shards", "parquet"] {
        let summary = folder.run(&format!("inspect {source} --json")).ok().summary();
        assert!(summary.get("cost").is_none(), "{summary}");
        assert!(!folder.run(&format!("inspect {source}")).ok().stdout.contains("about "), "{source}");
    }
}

#[test]
fn odd_sources_give_the_rest_of_the_report() {
    let folder = Folder::new();
    let noise = |bytes: u32| (0..bytes).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<u8>>();
    // A picture among tables: neither of them is converted by one command.
    for part in 0..20 {
        folder.write(&format!("mixed/{part:02}.csv"), format!("visit_id,b,c,d\n{}", rows(part * 30_000, 30_000)));
    }
    folder.write("mixed/none.csv", "");
    folder.write("mixed/x.csv", [&[0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'][..], &noise(2_000_000)].concat());
    let mixed = folder.run("inspect mixed --json").ok().summary();
    assert!(mixed.get("cost").is_none() && mixed.get("command").is_some_and(serde_json::Value::is_null), "{mixed}");
    // A record that is as long as the file.
    folder.write("line.csv", [b"a,b\n1,\"".as_slice(), &vec![b'x'; 18 << 20]].concat());
    folder.write("lines.csv", vec![b'\n'; 18 << 20]);
    // The first megabytes are sound.
    let broken = [format!("visit_id,b,c,d\n{}", rows(0, 400_000)).into_bytes(), noise(8 << 20)].concat();
    folder.write("broken.csv", broken);
    folder.write("packs/a.rar", [b"Rar!".as_slice(), &noise(17 << 20)].concat());
    folder.write("packs/b.rar", "Rar!");
    for number in 0..4_200 {
        folder.write(&format!("bytes/{number:04}.txt"), "x");
    }
    let packs = folder.run("inspect packs --json").ok().summary();
    assert!(packs["command"].is_null() && packs["advice"].as_str().unwrap().contains("a rar archive"), "{packs}");
    for source in ["line.csv", "broken.csv", "bytes"] {
        let ran = folder.run(&format!("inspect {source} --json"));
        assert!(ran.code == 0 && ran.stderr.is_empty(), "{source}: {ran:?}");
        assert!(ran.summary()["command"].as_str().unwrap().starts_with("shardify convert"), "{source}");
    }
    let bytes = folder.run("inspect bytes --json").ok().summary();
    assert!(bytes.get("cost").is_none_or(|cost| cost["seconds"].as_f64().unwrap() < 60.0), "{bytes}");
    // What was said of damaged files, and its exit code, stay what they are.
    folder.write("damaged.parquet", [b"PAR1".as_slice(), &noise(17 << 20)].concat());
    let damaged = folder.run("inspect damaged.parquet --json").ok().summary();
    assert!(damaged.get("cost").is_none() && damaged["problems"][0].as_str().unwrap().contains("cannot be read"));
    let lines = folder.run("inspect lines.csv");
    assert!(lines.code == 6 && lines.stdout.is_empty(), "{lines:?}");
}
