#!/usr/bin/env python3
"""Times shardify beside its peers on the same bytes.

Makes a table and a tree of small files, then runs every program in rotating order, each as a fresh process, and prints
medians and the ratio to the fastest peer. Compare ratios of one run only: machines are noisy.

    python3 scripts/bench.py --shardify target/release/shardify [--rows 3000000] [--samples 30000] [--reps 5]

Peers: DuckDB and pyarrow for tables (`pip install duckdb pyarrow`), GNU tar and tfrecord for files.
"""

import argparse
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

DUCKDB = """
import duckdb, sys
read = "read_csv" if sys.argv[1].endswith("csv") else "read_json"
duckdb.execute(f"COPY (SELECT * FROM {read}('{sys.argv[1]}')) TO '{sys.argv[2]}' "
               "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3, FILE_SIZE_BYTES '128MB')")
"""
PYARROW = """
import sys, pyarrow.csv, pyarrow.json, pyarrow.parquet
module = pyarrow.csv.read_csv if sys.argv[1].endswith("csv") else pyarrow.json.read_json
pyarrow.parquet.write_table(module(sys.argv[1]), sys.argv[2], compression="zstd", compression_level=3)
"""
TFRECORD = """
import pathlib, sys, tfrecord
writer = tfrecord.TFRecordWriter(sys.argv[2])
for image in sorted(pathlib.Path(sys.argv[1]).rglob("*.jpg")):
    label = image.with_suffix(".json").read_bytes()
    writer.write({"jpg": (image.read_bytes(), "byte"), "json": (label, "byte")})
writer.close()
"""


def make_table(folder, rows):
    rng = random.Random(7)
    words = ["stable", "afebrile", "reports mild headache", "declined vaccine", "follow-up in two weeks"]
    with open(folder / "table.csv", "w") as csv, open(folder / "table.jsonl", "w") as jsonl:
        csv.write("patient_id,visit_id,ts,heart_rate,temp_c,age,sex,icd10,note\n")
        for i in range(rows):
            row = [f"PAT-{rng.randrange(50_000):05}", f"V{i:09}",
                   f"2022-{1 + i % 12:02}-{1 + i % 28:02} {i % 24:02}:{i % 60:02}:{i * 7 % 60:02}",
                   rng.randrange(40, 180), rng.randrange(3500, 4100) / 100, rng.randrange(100),
                   "MF"[i % 2], f"K{rng.randrange(99):02}.{i % 10}", "; ".join(rng.sample(words, 1 + i % 3))]
            csv.write(",".join(map(str, row)) + "\n")
            names = ("patient_id", "visit_id", "ts", "heart_rate", "temp_c", "age", "sex", "icd10", "note")
            jsonl.write(json.dumps(dict(zip(names, row))) + "\n")


def make_tree(folder, samples):
    rng = random.Random(7)
    for i in range(samples):
        below = folder / "tree" / f"{i // 1000:03}"
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{i:06}.jpg").write_bytes(rng.randbytes(4_000 + i % 8_000))
        (below / f"{i:06}.json").write_text(json.dumps({"label": i % 10}))


def jobs(shardify, data, out):
    """job -> program -> command."""
    python = [sys.executable, "-c"]
    convert = [shardify, "convert", "--quiet", "--out", str(out / "ds")]
    tables = {}
    for name in ("table.csv", "table.jsonl"):
        source = str(data / name)
        tables[f"{name} -> parquet zstd:3"] = {
            "shardify": [*convert, source, "--codec", "zstd:3"],
            "shardify with subject ids": [*convert, source, "--codec", "zstd:3", "--subject", "patient_id"],
            "duckdb": [*python, DUCKDB, source, str(out / "o")],
            "pyarrow": [*python, PYARROW, source, str(out / "o.parquet")],
        }
    tree = str(data / "tree")
    return tables | {
        "files -> tar": {
            "shardify": [*convert, tree, "--to", "tar"],
            "GNU tar --sort=name": ["tar", "--sort=name", "-cf", str(out / "o.tar"), "-C", tree, "."],
        },
        "files -> tfrecord": {
            "shardify": [*convert, tree, "--to", "tfrecord"],
            "tfrecord": [*python, TFRECORD, tree, str(out / "o.tfrecord")],
        },
    }


def run(command, out):
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--samples", type=int, default=30_000)
    parser.add_argument("--reps", type=int, default=5)
    options = parser.parse_args()
    shardify = str(pathlib.Path(options.shardify).resolve())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        make_table(folder, options.rows)
        make_tree(folder, options.samples)
        for job, programs in jobs(shardify, folder, folder / "out").items():
            times = {name: [] for name in programs}
            for rep in range(options.reps):
                names = list(programs)
                for name in names[rep % len(names):] + names[:rep % len(names)]:
                    times[name].append(run(programs[name], folder / "out"))
            medians = {name: statistics.median(seconds) for name, seconds in times.items()}
            fastest = min(seconds for name, seconds in medians.items() if not name.startswith("shardify"))
            print(job)
            for name, seconds in medians.items():
                print(f"  {name:28} {seconds:8.2f} s  {fastest / seconds:5.2f}x the fastest peer", flush=True)


if __name__ == "__main__":
    main()
