#!/usr/bin/env python3
"""Compacts few and very many Parquet files in bounded memory, with few files open.

For each number of files a dataset is adopted, then `compact` runs with a small --memory. Prints seconds, the peak of resident memory and
the most files that were open at a time; fails when memory or 64 open files were exceeded, when a row is missing, or when the
values of a column do not add up to what they were.

    python3 scripts/checks/many_parquet.py --shardify target/release/shardify [--files 10,100000] [--memory 512MiB] [--work DIR]

Few files are large (3,000,000 rows), many are small (50 rows; a thousand different ones under as many names as are wanted). Needs
pyarrow.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from harness import Failure, expect, finish
from many_files import parse_size

FEW = 1000
DIFFERENT = 1000
MOST_OPEN = 64


def write(job):
    import numpy
    import pyarrow
    import pyarrow.parquet
    path, number, rows = job
    rng = numpy.random.default_rng(number)
    words = numpy.array(["low", "high", "none", "unknown"], dtype=object)
    table = pyarrow.table({"id": [f"P{number:05}-{row}" for row in range(rows)], "value": rng.normal(100, 15, rows).round(2),
                           "count": rng.integers(0, 1000, rows), "word": words[rng.integers(0, 4, rows)]})
    pyarrow.parquet.write_table(table, path, compression="snappy")


def write_inputs(folder, files):
    if folder.exists():
        return
    making = folder.with_suffix(".making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    different = min(files, DIFFERENT)
    with multiprocessing.get_context("spawn").Pool() as pool:
        rows = 3_000_000 if files <= FEW else 50
        pool.map(write, [(making / f"part-{number:06}.parquet", number, rows) for number in range(different)])
    for number in range(different, files):
        os.link(making / f"part-{number % different:06}.parquet", making / f"part-{number:06}.parquet")
    making.rename(folder)


def sums(pattern):
    """Rows and sums of a folder, in a process of its own, whose memory is nobody's."""
    code = ("import sys, json, pyarrow.dataset as ds\nrows = total = 0\n"
            "for batch in ds.dataset(json.loads(sys.stdin.read())).to_batches(columns=['id', 'count']):\n"
            "    rows += batch.num_rows; total += sum(batch['count'].to_pylist())\n"
            "print(json.dumps([rows, total]))")
    files = sorted(str(path) for path in pattern)
    return json.loads(subprocess.run([sys.executable, "-c", code], input=json.dumps(files), check=True, capture_output=True, text=True).stdout)


def watched(command, below):
    """Runs a command; returns its summary, seconds, peak memory, and most open files below a folder and in all."""
    started, most = time.monotonic(), [0, 0]
    process = subprocess.Popen([*command, "--json", "--progress", "never"], stdout=subprocess.PIPE)

    def watch():
        while process.returncode is None:
            try:
                found = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{process.pid}/fd")]
            except OSError:
                continue
            most[0] = max(most[0], sum(path.startswith(below) for path in found))
            most[1] = max(most[1], len(found))
            time.sleep(0.002)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    thread.join()
    expect("exit code", process.returncode, 0)
    return json.loads(out.splitlines()[-1]), time.monotonic() - started, usage.ru_maxrss * 1024, most


def check(arguments, files, work):
    inputs, out = work / f"inputs-{files}", work / "out"
    write_inputs(inputs, files)
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([arguments.shardify, "adopt", inputs, "--out", out, "--quiet"], check=True)
    before = set(out.glob("*/[0-9]*.parquet"))
    done, seconds, peak, (below, every) = watched(
        [arguments.shardify, "compact", str(out), "--memory", arguments.memory, "--target-shard", "128MiB", "--min-inputs", "2"], str(work))
    added = set(out.glob("*/[0-9]*.parquet")) - before
    print(f"{files:7,} files {done['bytes_in'] / 1e6:8,.0f} MB {seconds:7.1f} s   peak {peak / 2**20:6.0f} MiB   most open files {below:3} "
          f"({every} descriptors)   {done['shards_removed']:,} shards became {done['shards_added']:,}", flush=True)
    expect("shards added", len(added), done["shards_added"])
    if done["shards_removed"] == files:
        expect("rows, and sum of a column", sums(added), sums(before))
    if peak > parse_size(arguments.memory):
        raise Failure(f"expected at most {arguments.memory}, found {peak >> 20} MiB")
    if every > MOST_OPEN:
        raise Failure(f"expected at most {MOST_OPEN} open files, found {every}")
    shutil.rmtree(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--files", default="10,100000")
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "shardify-many-parquet")
    arguments = parser.parse_args()
    arguments.shardify = str(pathlib.Path(arguments.shardify).resolve())
    for files in arguments.files.split(","):
        check(arguments, int(files), arguments.work)
    print("passed")


if __name__ == "__main__":
    finish(main)
