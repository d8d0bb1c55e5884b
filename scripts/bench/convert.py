#!/usr/bin/env python3
"""Times shardify beside its peers: the same bytes, one fresh process a run, in rotating order, medians and ratios.

    python3 scripts/bench/convert.py --shardify target/release/shardify [--data FOLDER] [--jobs csv_zstd,tree_tar] [--reps 5]
                             [--peers duckdb,gnu_tar] [--json FILE]

Inputs are made once by data.py (`--scale 10` makes a tenth of them); warm means read just before, cold that the page cache was
emptied before each run, which needs root. shardify writes its log, checksums, sidecars and id index in the time that
is measured and syncs everything; its peers do neither, so `synced` is the time until the disk has all bytes, for everyone. `thread` is
the share of the processor time that the busiest thread took in a run of its own, which limits what more cores can do. Each job also shows a limit that no
tool can pass: reading, copying or summing the same bytes with nothing else to do.

After the runs DuckDB compares the hash of every column of what shardify wrote with the source, and the files in tar and TFRecord are
counted by other readers. Writes of a gigabyte vary twofold with what ran before: compare ratios of one run. The peak of a small process
includes the memory of this script.

Peers: pip install duckdb polars pyarrow webdataset tfrecord
"""

import argparse
import glob
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import data as inputs

SHARD = 128 << 20
PYTHON = [sys.executable, "-c"]

DUCKDB = """
import duckdb, sys
source, out, codec = sys.argv[1:]
read = f"read_csv('{source}')" if source.endswith("csv") else f"read_json('{source}', format='newline_delimited')"
level = ", COMPRESSION_LEVEL 3" if codec == "zstd" else ""
duckdb.execute(f"COPY (SELECT * FROM {read}) TO '{out}/o' (FORMAT parquet, COMPRESSION {codec}{level}, FILE_SIZE_BYTES '128MB')")
"""
POLARS = """
import polars, sys
source, out, codec = sys.argv[1:]
table = polars.scan_csv(source, try_parse_dates=True) if source.endswith("csv") else polars.scan_ndjson(source)
table.sink_parquet(f"{out}/o.parquet", compression=codec, **({"compression_level": 3} if codec == "zstd" else {}))
"""
PYARROW = """
import glob, sys, pyarrow.csv, pyarrow.dataset as ds
source, out, codec = sys.argv[1:]
kind = ds.CsvFileFormat(parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True)) if source.endswith("csv") else "json"
level = {"compression_level": 3} if codec == "zstd" else {}
options = ds.ParquetFileFormat().make_write_options(compression=codec, **level)
ds.write_dataset(ds.dataset(sorted(glob.glob(source)), format=kind), out + "/o", format="parquet", file_options=options,
                 max_rows_per_file=2_000_000, max_rows_per_group=250_000, min_rows_per_group=100_000)
"""
SAMPLES = """
import os, sys
root, out = sys.argv[1:]
def samples():
    for folder in sorted(os.listdir(root)):
        for name in sorted(os.listdir(f"{root}/{folder}")):
            if name.endswith(".jpg"):
                yield f"{folder}/{name[:-4]}"
def content(path):
    with open(f"{root}/{path}", "rb", 0) as file:
        return file.read()
"""
WEBDATASET = SAMPLES + """
import webdataset
with webdataset.ShardWriter(f"{out}/%06d.tar", maxsize=128 << 20, maxcount=10**9, verbose=0) as writer:
    for key in samples():
        writer.write({"__key__": key, **{part: content(f"{key}.{part}") for part in ("jpg", "json", "cls")}})
"""
TFRECORD = SAMPLES + """
import tfrecord
writer = tfrecord.TFRecordWriter(f"{out}/o.tfrecord")
for key in samples():
    parts = {part: (content(f"{key}.{part}"), "byte") for part in ("jpg", "json")}
    writer.write({"key": (key.encode(), "byte"), **parts, "cls": (int(content(f"{key}.cls")), "int")})
writer.close()
"""
CRC = """
import glob, sys, zlib
for path in sorted(glob.glob(sys.argv[1])):
    with open(path, "rb", 0) as file:
        while piece := file.read(1 << 20):
            zlib.crc32(piece)
"""


def table_jobs(data, out, convert):
    """job -> (inputs, what it must and should be against whom, program -> command)."""
    jobs = {}
    for job, name, codec, goal in (("csv_zstd", "clinical.csv", "zstd", ("duckdb", 1.6, 2.5)),
                                   ("csv_snappy", "clinical.csv", "snappy", ("duckdb", 2, 3)),
                                   ("csv_many_zstd", "csv_parts/*.csv", "zstd", ("pyarrow", 2, 3)),
                                   ("jsonl_zstd", "clinical.jsonl", "zstd", ("duckdb", 1.4, 2))):
        source = f"{data}/{name}"
        flags = ["--to", "parquet", "--codec", "zstd:3" if codec == "zstd" else codec, "--id", "visit_id", "--subject", "patient_id"]
        jobs[job] = (source, goal, {
            "shardify": [*convert, source.removesuffix("/*.csv"), *flags],
            "without ids": [*convert, source.removesuffix("/*.csv"), *flags[:4]],
            "duckdb": [*PYTHON, DUCKDB, source, str(out), codec],
            "polars": [*PYTHON, POLARS, source, str(out), codec],
            "pyarrow": [*PYTHON, PYARROW, source, str(out), codec],
            "limit: cat": ["sh", "-c", f"cat {source} > {out}/o"],
            "limit: crc32": [*PYTHON, CRC, source],
        })
    return jobs


def tree_jobs(data, out, convert):
    tree, files = f"{data}/tree", f"{data}/tree/*/*"
    tar = {
        "shardify": [*convert, tree, "--to", "tar"],
        "gnu_tar": ["tar", "-cf", f"{out}/o.tar", "-C", tree, "--format=ustar", "."],
        "webdataset": [*PYTHON, WEBDATASET, tree, str(out)],
        "limit: find": ["sh", "-c", f"find {tree} -type f | wc -l"],
        "limit: crc32": [*PYTHON, CRC, files],
    }
    tfrecord = {
        "shardify": [*convert, tree, "--to", "tfrecord"],
        "tfrecord": [*PYTHON, TFRECORD, tree, str(out)],
        "limit: crc32": [*PYTHON, CRC, files],
    }
    cold = {name: command for name, command in tar.items() if name in ("shardify", "gnu_tar")}
    return {"tree_tar": (files, ("gnu_tar", 1.2, 1.8), tar), "tree_tar_cold": (files, ("gnu_tar", 3, 4), cold),
            "tree_tfrecord": (files, ("tfrecord", 2.5, 4), tfrecord)}


def warm(pattern):
    total = 0
    for path in glob.glob(pattern):
        with open(path, "rb", 0) as file:
            while piece := file.read(4 << 20):
                total += len(piece)
    return total


class Threads:
    """Processor time of each thread of a process, looked at until it ends."""

    def __init__(self, pid):
        self.folder, self.ticks, self.ended = pathlib.Path(f"/proc/{pid}/task"), {}, threading.Event()
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def watch(self):
        while not self.ended.wait(0.01):
            for thread in glob.glob(f"{self.folder}/*/stat"):
                try:
                    fields = pathlib.Path(thread).read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                self.ticks[thread] = int(fields[11]) + int(fields[12])

    def largest(self):
        """Seconds of the busiest one, as last seen."""
        self.ended.set()
        self.watcher.join()
        return max(self.ticks.values(), default=0) / os.sysconf("SC_CLK_TCK")


def run(command, out, cold, prepare=None, watched=False):
    """One run, after `prepare`: seconds, the same until all is on disk, processor seconds, the share of the busiest thread if the threads are
    watched, peak memory in MiB, bytes of shards and of the whole folder."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    if prepare:
        prepare()
    os.sync()
    if cold:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    threads = Threads(process.pid) if watched else None
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    os.sync()
    synced = time.perf_counter() - started
    process.returncode = status
    if status:
        raise SystemExit(f"failed: {' '.join(command)[:300]}")
    cpu = usage.ru_utime + usage.ru_stime
    files = [path for path in out.rglob("*") if path.is_file()]
    sizes = {path: path.stat().st_size for path in files}
    busiest = min(1, threads.largest() / max(cpu, 0.01)) if threads else 0
    return {"wall": wall, "synced": synced, "cpu": cpu, "thread": busiest, "peak": usage.ru_maxrss / 1024,
            "bytes": sum(size for path, size in sizes.items() if "_shardify" not in path.parts), "folder": sum(sizes.values())}


def in_turn(names, reps, once, patience=float("inf")):
    """Runs programs in rotating order. Watching threads takes a part of a core, and more of it the more threads there are, so one run of
    each is watched, and only the others are timed. A program that takes longer than `patience` seconds gets no more runs."""
    busiest = {name: once(name, True) for name in names}
    results, dead = {name: [] for name in names}, set()
    for rep in range(reps):
        turn = rep % len(names)
        for name in names[turn:] + names[:turn]:
            if name not in dead:
                results[name].append(once(name, False) | {"thread": busiest[name]["thread"]})
                if results[name][-1]["wall"] > patience:
                    dead.add(name)
    return results


def check(job, source, out):
    """Whether others find in the output of shardify what was in the source; in words."""
    if job.startswith("tree"):
        return check_samples(source, out)
    import duckdb
    db = duckdb.connect()
    read = f"read_csv('{source}')" if source.endswith("csv") else f"read_json('{source}', format='newline_delimited')"
    # In JSON times are text, which DuckDB guesses to be times.
    sums = "SELECT count(*), sum(hash(columns(*))) FROM (SELECT * REPLACE (ts::VARCHAR AS ts) FROM {})"
    one = db.execute(sums.format(read)).fetchall()
    other = db.execute(sums.format(f"read_parquet('{out}/ds/*/*.parquet')")).fetchall()
    if one != other:
        raise SystemExit(f"{job}: the output differs from the source: {one} {other}")
    return f"{one[0][0]:,} rows, all columns equal"


def check_samples(source, out):
    files = len(glob.glob(source))
    if shards := sorted(glob.glob(f"{out}/ds/*/*.tar")):
        import tarfile
        found = sum(1 for shard in shards for member in tarfile.open(shard) if member.isfile())
    else:
        from tfrecord.reader import tfrecord_iterator
        found = 3 * sum(1 for shard in glob.glob(f"{out}/ds/*/*.tfrecord") for _ in tfrecord_iterator(shard))
    if found != files:
        raise SystemExit(f"expected {files} files, found {found}")
    return f"{found:,} files found again"


def measure(job, source, programs, out, options):
    cold = job.endswith("cold")
    size = warm(source)
    results = in_turn(list(programs), options.reps, lambda name, watched: run(programs[name], out, cold, watched=watched), options.patience)
    run(programs["shardify"], out, False)
    return size, results, check(job, source, out)


def report(job, size, goals, results, checked):
    median = {name: {key: statistics.median(r[key] for r in runs) for key in runs[0]} for name, runs in results.items()}
    own = median["shardify"]
    print(f"\n{job}: {size / 1e6:,.0f} MB; {checked}")
    columns = ("program", 14), ("wall s", 7), ("synced", 7), ("MB/s", 6), ("cpu s", 6), ("thread", 6), ("peak MiB", 8), ("shards MB", 9), ("all MB", 8)
    columns = (*columns, ("shardify is", 11), ("synced", 7))
    print(" ".join(f"| {name:>{width}}" if at else f"| {name:<{width}}" for at, (name, width) in enumerate(columns)) + " |")
    print("".join(f"|{'-' * (width + 1)}{':' if at else '-'}" for at, (_, width) in enumerate(columns)) + "|")
    for name, m in sorted(median.items(), key=lambda entry: entry[1]["wall"]):
        ratios = ("", "") if name == "shardify" else (f"{m['wall'] / own['wall']:.2f}x", f"{m['synced'] / own['synced']:.2f}x")
        print(f"| {name:<14} | {m['wall']:7.2f} | {m['synced']:7.2f} | {size / m['wall'] / 1e6:6.0f} | {m['cpu']:6.2f} | {m['thread']:6.0%} | "
              f"{m['peak']:8.0f} | {m['bytes'] / 1e6:9.1f} | {m['folder'] / 1e6:8.1f} | {ratios[0]:>11} | {ratios[1]:>7} |")
    for peer, must, aim in goals:
        if peer in median:
            print(f"against {peer}: {median[peer]['wall'] / own['wall']:.2f}x (must {must:.2f}x, aim {aim:.2f}x)", flush=True)
    if "without ids" in median:
        print(f"ids: {statistics.median(a['cpu'] / b['cpu'] for a, b in zip(results['shardify'], results['without ids'], strict=True)) - 1:.1%} of processor time")
    return {"job": job, "bytes": size, "median": median, "runs": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "shardify-bench")
    parser.add_argument("--out", type=pathlib.Path, help="default: below the data")
    parser.add_argument("--scale", type=int, default=100, help="percent of the full size, when the data is made")
    parser.add_argument("--jobs", help="default: all; cold ones only as root")
    parser.add_argument("--peers", help="default: all")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--memory", help="given to shardify as --memory")
    parser.add_argument("--patience", type=float, default=120, help="no more runs of a program that takes longer, in seconds")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    inputs.make(options.data, 65_000 * options.scale, max(10, 10 * options.scale), 1000 * options.scale)
    out = options.out or options.data / "out"
    convert = [str(pathlib.Path(options.shardify).resolve()), "convert", "--quiet", "--out", f"{out}/ds",
               "--target-shard", str(SHARD), *(["--memory", options.memory] if options.memory else [])]
    jobs = table_jobs(options.data, out, convert) | tree_jobs(options.data, out, convert)
    wanted = options.jobs.split(",") if options.jobs else [j for j in jobs if os.geteuid() == 0 or not j.endswith("cold")]
    reports = []
    for job in wanted:
        source, goal, programs = jobs[job]
        if options.peers:
            programs = {name: command for name, command in programs.items()
                        if name in ("shardify", "without ids") or name.removeprefix("limit: ") in options.peers.split(",")}
        size, results, checked = measure(job, source, programs, out, options)
        reports.append(report(job, size, [goal], results, checked))
    shutil.rmtree(out, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
