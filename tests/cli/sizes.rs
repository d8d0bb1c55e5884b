//! Sizes of all shards of a conversion, the last one included: the rest of the output is spread over the last shards.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::io::Write;

use crate::support;

use support::Folder;

/// Writes about 4 MiB of records as CSV, as JSON Lines, as gzip of the latter, and as files.
fn folder() -> Folder {
    let folder = Folder::new();
    let (mut csv, mut jsonl) = ("id,kind,score,note\n".to_owned(), String::new());
    for i in 0..60_000_u64 {
        let noise = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let (kind, score) = (i % 7, format!("{}.{:03}", noise % 1000, noise % 997));
        csv.push_str(&format!("{i},{kind},{score},note {noise:x}\n"));
        jsonl.push_str(&format!("{{\"id\":{i},\"kind\":{kind},\"score\":{score},\"note\":\"note {noise:x}\"}}\n"));
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(jsonl.as_bytes()).unwrap();
    folder.write("packed.jsonl.gz", packed.finish().unwrap());
    folder.write("rows.csv", csv);
    folder.write("rows.jsonl", jsonl);
    // Small files first, then large ones, each with a label.
    for i in 0..900_usize {
        folder.write(&format!("raw/{i:03}.bin"), vec![7; if i < 600 { 40 + i } else { 4000 + 17 * i % 5000 }]);
        folder.write(&format!("raw/{i:03}.cls"), (i % 10).to_string());
    }
    folder
}

/// Converts, and returns the sizes of the shards in their order.
fn sizes(folder: &Folder, source: &str, to: &str, target: usize) -> Vec<usize> {
    let out = format!("{source}-{to}-{target}").replace(' ', "");
    folder.run(&format!("convert {source} --to {to} --target-shard {target} --out {out}")).ok();
    folder.only_shards(&out).iter().map(|(_, bytes)| bytes.len()).collect()
}

/// Returns the bytes of all shards.
fn output(folder: &Folder, source: &str, to: &str) -> usize {
    sizes(folder, source, to, 1 << 20).iter().sum()
}

/// Inputs and outputs whose rest can be estimated.
const CASES: [(&str, &str); 6] = [
    ("rows.csv", "parquet"),
    ("rows.jsonl", "parquet --codec none"),
    ("rows.jsonl", "tfrecord"),
    ("rows.csv", "tar --codec gzip"),
    ("raw", "tar"),
    ("raw", "parquet --codec none"),
];

#[test]
fn no_shard_is_small() {
    let folder = folder();
    for (source, to) in CASES {
        let whole = output(&folder, source, to);
        for tenths in [46, 53, 62, 75] {
            let target = whole * 10 / tenths;
            let sizes = sizes(&folder, source, to, target);
            for size in &sizes {
                let off = *size as f64 / target as f64;
                assert!((0.88..=1.13).contains(&off), "{source} to {to}, {tenths} tenths of {target}: {sizes:?}");
            }
        }
    }
}

#[test]
fn little_more_than_a_shard_is_one_shard_and_more_is_two_alike() {
    let folder = folder();
    for (source, to) in CASES {
        let whole = output(&folder, source, to);
        let few = |tenths: usize| sizes(&folder, source, to, whole * 10 / tenths);
        assert_eq!(few(8).len(), 1, "{source} to {to}");
        let one = sizes(&folder, source, to, whole * 100 / 108);
        assert_eq!(one.len(), 1, "{source} to {to}: {one:?} of {whole}");
        let two = few(13);
        let alike = two.len() == 2 && two.iter().all(|size| *size * 10 > whole * 4);
        assert!(alike, "{source} to {to}: {two:?} of {whole}");
    }
}

#[test]
fn even_shards_depend_on_neither_threads_nor_memory() {
    let folder = folder();
    for (source, to) in CASES {
        let shards = |name: &str, more: &str| {
            let out = format!("{source}-{to}-{name}").replace(' ', "");
            folder.run(&format!("convert {source} --to {to} --target-shard 300KB --out {out} {more}")).ok();
            folder.shards_below_tags(&out)
        };
        let one = shards("one", "--jobs 1");
        assert!(one.len() > 1, "{source} to {to}");
        assert!(one == shards("two", "--jobs 2"), "{source} to {to}: 2 jobs");
        assert!(one == shards("seven", "--jobs 7"), "{source} to {to}: 7 jobs");
        assert!(one == shards("memory", "--jobs 2 --memory 3GiB"), "{source} to {to}: memory");
    }
}

#[test]
fn a_compressed_source_leaves_its_rest_to_the_last_shard() {
    let folder = folder();
    let sizes = sizes(&folder, "packed.jsonl.gz", "tfrecord", 1 << 20);
    let (last, full) = sizes.split_last().unwrap();
    assert!(full.len() > 1 && *last < 1 << 20, "{sizes:?}");
    for size in full {
        assert!((0.99..=1.01).contains(&(*size as f64 / f64::from(1 << 20))), "{sizes:?}");
    }
}

#[test]
fn rejected_records_do_not_upset_the_estimate() {
    let folder = Folder::new();
    let mut csv = "id,note\n".to_owned();
    for i in 0..40_000_u64 {
        // Two thirds of the first half are rejects.
        let more = if i < 20_000 && i % 3 > 0 { ",too many" } else { "" };
        csv.push_str(&format!("{i},note {:x}{more}\n", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    folder.write("rows.csv", csv);
    let convert = |target: &str| {
        let ran = folder
            .run(&format!("convert rows.csv --to tfrecord --target-shard {target} --out {target} --on-error skip"));
        assert_eq!(ran.code, 3);
        folder.only_shards(target).iter().map(|(_, bytes)| bytes.len()).collect::<Vec<usize>>()
    };
    let whole = convert("1GiB")[0];
    let target = whole * 10 / 65;
    for size in convert(&target.to_string()) {
        assert!((0.8..=1.2).contains(&(size as f64 / target as f64)), "{size} of {target}");
    }
}

#[test]
fn a_target_of_compact_is_the_datasets_from_then_on() {
    for plan in [false, true] {
        let folder = folder();
        for part in ["rows.csv", "rows.jsonl"] {
            folder.run(&format!("convert {part} --out d --target-shard 32KiB")).ok();
        }
        let target = |folder: &Folder| {
            folder.run("manifest d --json").ok().summary()["settings"]["target_shard"].as_u64().unwrap()
        };
        let shards = || folder.run("manifest d --json").ok().summary()["shards"].as_u64().unwrap();
        assert_eq!(target(&folder), 32 << 10);
        let before = shards();
        assert_eq!(folder.run("compact d --target-shard 256KiB --dry-run").ok().stderr, "");
        assert_eq!(target(&folder), 32 << 10);
        let said = if plan {
            let made = folder.run("plan compact d --target-shard 256KiB --json").ok().summary();
            let plan = made["plan"].as_str().unwrap().to_owned();
            folder.run(&format!("run-task {plan} --task 0")).ok();
            folder.run(&format!("commit {plan}")).ok().stderr
        } else {
            folder.run("compact d --target-shard 256KiB").ok().stderr
        };
        assert!(said.contains("--target-shard changes from 32.0 KiB to 256 KiB"), "{said}");
        assert!(shards() < before / 4, "{} of {before} shards", shards());
        assert_eq!(target(&folder), 256 << 10);
        let (again, merged) = (folder.run("compact d").ok(), shards());
        assert!(again.stdout.starts_with("nothing to do"), "{again:?}");
        assert_eq!((shards(), again.stderr.as_str()), (merged, ""));
        // A conversion without the option has the new target.
        folder.run("convert packed.jsonl.gz --out d").ok();
        assert!(shards() - merged <= before / 8, "{} of {before}", shards() - merged);
        // Where nothing is merged, nothing changes, and that is said.
        let said = folder.run("compact d --target-shard 250KiB --min-inputs 99 --max-bytes 1KiB").ok();
        assert!(said.stderr.contains("--target-shard stays 256 KiB, not 250 KiB"), "{said:?}");
        assert_eq!(target(&folder), 256 << 10);
    }
}

#[test]
fn counts_of_compressed_files_are_lower_bounds() {
    let folder = folder();
    let inspected = folder.run("inspect packed.jsonl.gz").ok().stdout;
    assert!(inspected.contains(", at least "), "{inspected}");
    let planned = folder.run("convert packed.jsonl.gz --dry-run --json").ok().summary();
    let estimate = &planned["estimate"];
    assert!(estimate["records"].as_u64().unwrap() <= 60_000 && estimate["compressed"] == true, "{planned}");
    assert_eq!(estimate["sampled"], true, "{planned}");
}
