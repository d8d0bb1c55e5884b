#!/usr/bin/env python3
"""Times `shardify compact` beside what else makes few large files of many small ones, and scans of what came out.

    python3 scripts/bench/compact.py --shardify target/release/shardify [--data FOLDER] [--jobs pq_small,tar] [--reps 5]
                                     [--peers polars,delta_rs] [--json FILE]

| job       | inputs, made once by data.py (about 6 GB in all)                   | must, aim          |
|-----------|--------------------------------------------------------------------------|--------------------|
| pq_small  | 2,000 Parquet files of 0.5 MB, snappy, dictionaries                       | Polars 2x, 3x; delta-rs 2.5x |
| pq_plain  | the same without dictionaries                                            | Polars 5x, 10x     |
| pq_medium | 500 Parquet files of 3.4 MB                                              | Polars 3x, 5x      |
| tar       | 200 tar shards of 1,500 files                                            | `cat` 1.5x, 1.2x   |
| tfrecord  | 200 TFRecord shards of 500 examples, checksums checked                    | `cat` 1.5x, 1.2x   |

All write shards of 128 MiB, but Polars and `cat`, which write one file. Datasets are made before the clock starts, a fresh one for each run
of shardify and of delta-rs. shardify reads everything that it wrote back, and syncs it, in the time that is measured; nobody else does.
After the runs DuckDB compares the hash of every column with the inputs, and scans two columns of the output of shardify, and of its own.
For the rest see bench.py.

Peers: pip install duckdb polars pyarrow deltalake
"""

import argparse
import glob
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import convert as bench
import data as inputs

FILES = {"pq_small": (2000, 8300, True), "pq_plain": (2000, 8300, False), "pq_medium": (500, 66_000, True)}
GOALS = {"pq_small": [("polars", 2, 3), ("delta_rs", 2.5, 3)], "pq_plain": [("polars", 5, 10)], "pq_medium": [("polars", 3, 5)],
         "tar": [("limit: cat", 1 / 1.5, 1 / 1.2)], "tfrecord": [("limit: cat", 1 / 1.5, 1 / 1.2)]}
SMALL_SHARDS = 200

DUCKDB = """
import duckdb, sys
source, out = sys.argv[1:]
duckdb.execute("SET enable_progress_bar = false")
duckdb.execute(f"COPY (SELECT * FROM read_parquet('{source}')) TO '{out}' (FORMAT parquet, COMPRESSION snappy, FILE_SIZE_BYTES '128MiB')")
"""
POLARS = """
import polars, sys
source, out = sys.argv[1:]
polars.scan_parquet(source).sink_parquet(f"{out}/o.parquet", compression="snappy")
"""
PYARROW = """
import glob, sys, pyarrow.dataset as ds
source, out = sys.argv[1:]
ds.write_dataset(ds.dataset(sorted(glob.glob(source)), format="parquet"), out + "/o", format="parquet",
                 file_options=ds.ParquetFileFormat().make_write_options(compression="snappy"),
                 max_rows_per_file=2_000_000, max_rows_per_group=250_000, min_rows_per_group=100_000)
"""
DELTA_MAKE = "import deltalake, sys; deltalake.convert_to_deltalake(sys.argv[1])"
DELTA = """
import deltalake, sys
deltalake.DeltaTable(sys.argv[1]).optimize.compact(target_size=128 << 20, writer_properties=deltalake.WriterProperties(compression="SNAPPY"))
"""
SUMS = """
import duckdb, sys
duckdb.execute("SET enable_progress_bar = false")
sums = "SELECT count(*), sum(hash(columns(*))) FROM read_parquet('{}')"
one, other = (duckdb.execute(sums.format(pattern)).fetchall() for pattern in sys.argv[1:])
if one != other:
    raise SystemExit(f"the output differs from the source: {one} {other}")
print(f"{one[0][0]:,} rows, all columns equal")
"""
SCAN = """
import duckdb, sys, time
query, reps, *patterns = sys.argv[1:]
db, times = duckdb.connect(), {pattern: [] for pattern in patterns}
db.execute("SET enable_progress_bar = false")
for rep in range(int(reps) + 1):
    for pattern in patterns if rep % 2 else patterns[::-1]:
        started = time.perf_counter()
        db.execute(query.format(f"read_parquet('{pattern}')")).fetchall()
        times[pattern].append(time.perf_counter() - started)
print(*(sorted(times[pattern][1:])[int(reps) // 2] for pattern in patterns))
"""
QUERIES = {
    "numbers": "SELECT sum(heart_rate), sum(age) FROM {}",
    "group by text": "SELECT department, avg(glucose) FROM {} GROUP BY ALL",
    "long texts": "SELECT sum(length(note)), count(DISTINCT patient_id) FROM {}",
    "ids": "SELECT max(visit_id), max(ts) FROM {} WHERE visit_id LIKE '%7'",
    "one in many": "SELECT visit_id, note FROM {} WHERE patient_id = 'PAT-00023'",
}


def parquet_job(job, data, out, compact):
    source = f"{data}/{job}/*.parquet"
    programs = {"shardify": compact, "duckdb": [*bench.PYTHON, DUCKDB, source, f"{out}/o"],
                "polars": [*bench.PYTHON, POLARS, source, str(out)], "pyarrow": [*bench.PYTHON, PYARROW, source, str(out)],
                "delta_rs": [*bench.PYTHON, DELTA, f"{out}/ds"], "limit: cat": ["sh", "-c", f"cat {source} > {out}/o"]}
    return source, programs


def framed_job(job, data, out, compact):
    source = f"{data}/small_{job}/*/*.{job}"
    return source, {"shardify": compact, "limit: cat": ["sh", "-c", f"cat {source} > {out}/o"]}


def make_inputs(job, data, shardify):
    """Makes the inputs, and the dataset of them of which each run gets a copy, both unless they are there."""
    base = data / (f"small_{job}" if job in ("tar", "tfrecord") else f"{job}_adopted")
    if job in FILES:
        inputs.make_parquet(data / job, *FILES[job])
        if not base.exists():
            subprocess.run([shardify, "adopt", data / job, "--out", base, "--quiet"], check=True)
    elif not base.exists():
        if not (data / "tree").exists():
            inputs.make_tree(data, 100_000)
        size = sum(os.path.getsize(path) for path in glob.glob(f"{data}/tree/*/*"))
        subprocess.run([shardify, "convert", data / "tree", "--to", job, "--out", base, "--quiet",
                        "--target-shard", str(size * 5 // 4 // SMALL_SHARDS)], check=True)
    return base


def linked(source, target):
    """A copy of a folder whose files are links: nobody changes a file that is there."""
    subprocess.run(["cp", "-al", source, target], check=True)


def prepared(name, job, base, data, out):
    """What happens before the clock starts."""
    if name == "shardify":
        return lambda: linked(base, out / "ds")
    if name == "delta_rs":
        def prepare():
            linked(data / job, out / "ds")
            subprocess.run([*bench.PYTHON, DELTA_MAKE, out / "ds"], check=True)
        return prepare
    return None


def one(name, job, command, base, data, out, watched=False):
    result = bench.run(command, out, False, prepared(name, job, base, data, out), watched)
    if name in ("shardify", "delta_rs"):
        before = base if name == "shardify" else data / job
        result["bytes"] -= sum(path.stat().st_size for path in before.rglob("*") if path.is_file() and "_shardify" not in path.parts)
    return result


def measure(job, base, source, programs, data, out, options):
    size = bench.warm(source)
    names = list(programs)
    results = bench.in_turn(names, options.reps, lambda name, watched: one(name, job, programs[name], base, data, out, watched))
    return size, results


def new_shards(out, base, extension):
    """The shards that were not there before, as a pattern."""
    before = {path.relative_to(base).parts[0] for path in base.rglob(f"*.{extension}")}
    folder, = {path.relative_to(out / "ds").parts[0] for path in (out / "ds").rglob(f"*.{extension}")} - before
    return f"{out}/ds/{folder}/*.{extension}"


def check(job, base, source, programs, data, out):
    """Compares the output of shardify with the inputs; in words."""
    one("shardify", job, programs["shardify"], base, data, out)
    made = new_shards(out, base, "parquet" if job in FILES else job)
    if job in FILES:
        return made, subprocess.run([*bench.PYTHON, SUMS, source, made], check=True, capture_output=True, text=True).stdout.strip()
    sums = [subprocess.run(["sh", "-c", listing], check=True, capture_output=True, text=True).stdout for listing in (
        [f"for shard in {pattern}; do tar -xOf $shard; done | md5sum" for pattern in (source, made)] if job == "tar"
        else [f"cat {pattern} | md5sum" for pattern in (source, made)])]
    if sums[0] != sums[1]:
        raise SystemExit(f"{job}: the output differs from the source")
    return made, "all bytes equal"


def scans(job, made, programs, out, reps):
    """DuckDB over the output of shardify and over its own."""
    other = out.with_name("out_duckdb")
    shutil.rmtree(other, ignore_errors=True)
    other.mkdir()
    subprocess.run([*programs["duckdb"][:-1], f"{other}/o"], check=True)
    patterns = [made, f"{other}/o/*.parquet"]
    for pattern in patterns:
        bench.warm(pattern)
    found = {}
    for name, query in QUERIES.items():
        printed = subprocess.run([*bench.PYTHON, SCAN, query, str(reps), *patterns], check=True, capture_output=True, text=True).stdout
        found[name] = [float(seconds) for seconds in printed.split()]
        own, duck = found[name]
        print(f"scan by DuckDB, {name}: {own * 1e3:.0f} ms, over its own files {duck * 1e3:.0f} ms ({duck / own:.2f}x)", flush=True)
    shutil.rmtree(other)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "shardify-bench")
    parser.add_argument("--out", type=pathlib.Path, help="default: below the data, where files can be linked")
    parser.add_argument("--jobs", help="default: all")
    parser.add_argument("--peers", help="default: all")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--scans", type=int, default=9, help="repetitions of each scan; 0 for none")
    parser.add_argument("--memory", help="given to shardify as --memory")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    shardify = str(pathlib.Path(options.shardify).resolve())
    out, reports = options.out or options.data / "out", []
    for job in options.jobs.split(",") if options.jobs else GOALS:
        base = make_inputs(job, options.data, shardify)
        compact = [shardify, "compact", f"{out}/ds", "--quiet", "--target-shard", str(bench.SHARD),
                   *(["--memory", options.memory] if options.memory else [])]
        source, programs = (parquet_job if job in FILES else framed_job)(job, options.data, out, compact)
        wanted = {name: command for name, command in programs.items() if not options.peers or name == "shardify"
                  or name.removeprefix("limit: ") in options.peers.split(",")}
        size, results = measure(job, base, source, wanted, options.data, out, options)
        made, checked = check(job, base, source, programs, options.data, out)
        reports.append(bench.report(job, size, GOALS[job], results, checked))
        if options.scans and job in FILES:
            reports[-1]["scans"] = scans(job, made, programs, out, options.scans)
        shutil.rmtree(out, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
