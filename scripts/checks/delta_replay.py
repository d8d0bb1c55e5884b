#!/usr/bin/env python3
"""Time and memory of opening a Delta table whose log has many files, in a checkpoint and in commits behind it.

Only the log is written: nine tenths of the files are in the checkpoint, which delta-rs makes of a commit that is then deleted; the others are
in commits, which also remove a tenth of the first. Each file has statistics of nine columns. The commands read the log and no data.

    python3 scripts/checks/delta_replay.py --shardify target/ci/shardify [--files 100000] [--commits 1000]
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import subprocess
import tempfile
import time

import deltalake

from harness import OK, ROOT, Failure, expect, finish

DAYS = 365


def field(name, kind):
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def add(number):
    columns = [f"c{at}" for at in range(5)]
    low = {"id": number * 1000, **{name: number * 7.5 for name in columns}, "city": f"city-{number:06}", "country": "Norway", "at": "2026-01-01T00:00:00.000Z"}
    high = {"id": number * 1000 + 999, **{name: number * 7.5 + 3 for name in columns}, "city": f"city-{number:06}~", "country": "Switzerland",
            "at": "2026-01-01T23:59:59.000Z"}
    stats = {"numRecords": 1000, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
    day = number % DAYS
    return {"add": {"path": f"day={day}/part-{number:05}-6f2f8e0d-1f33-4c5a-9a53-0d5c7c1a{number:08x}-c000.snappy.parquet", "partitionValues": {"day": str(day)},
                    "size": 1_000_000 + number, "modificationTime": 1_780_000_000_000 + number, "dataChange": True, "stats": json.dumps(stats)}}


def remove(number):
    one = add(number)["add"]
    return {"remove": {"path": one["path"], "deletionTimestamp": one["modificationTime"] + 1, "dataChange": False, "extendedFileMetadata": True,
                       "partitionValues": one["partitionValues"], "size": one["size"]}}


def write(folder, files, commits):
    """Writes the log; returns the number of live files."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    fields = [field("id", "long"), *(field(f"c{at}", "double") for at in range(5)), field("city", "string"), field("country", "string"),
              field("at", "timestamp"), field("day", "integer")]
    schema = json.dumps({"type": "struct", "fields": fields})
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    metadata = {"metaData": {"id": "6f2f8e0d-1f33-4c5a-9a53-0d5c7c1a0000", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                             "partitionColumns": ["day"], "configuration": {}, "createdTime": 1_780_000_000_000}}
    commit = lambda version, actions: (log / f"{version:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))
    first = files * 9 // 10
    commit(0, [protocol, metadata, *map(add, range(first))])
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    (log / f"{0:020d}.json").unlink()
    later, removed = range(first, files), range(0, first, 10)
    for number in range(commits):
        part = lambda numbers: numbers[len(numbers) * number // commits:len(numbers) * (number + 1) // commits]
        info = {"commitInfo": {"timestamp": 1_790_000_000_000 + number, "operation": "MERGE", "operationParameters": {}}}
        commit(number + 1, [info, *map(remove, part(removed)), *map(add, part(later))])
    return files - len(removed)


def by_delta_rs(folder):
    """The number of live files, and the seconds until it is known."""
    began = time.perf_counter()
    return len(deltalake.DeltaTable(str(folder)).file_uris()), time.perf_counter() - began


def measured(binary, *words):
    """Runs a command; returns the last object that it printed, its seconds, those of the processor, and its peak in bytes."""
    began = time.perf_counter()
    with subprocess.Popen([str(binary), *map(str, words), "--json", "--progress", "never"], stdout=subprocess.PIPE) as process:
        lines = process.stdout.read().splitlines()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    expect(f"{words[0]}: exit code", process.returncode, OK)
    return json.loads(lines[-1]), time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", default=ROOT / "target" / "release" / "shardify")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2, help="longest time that is accepted")
    parser.add_argument("--mib", type=int, default=512, help="largest peak of memory that is accepted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / "table"
        # The peak of a process counts from that of the one that started it, so this one stays small.
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as elsewhere:
            live = elsewhere.submit(write, folder, options.files, options.commits).result()
            theirs = elsewhere.submit(by_delta_rs, folder).result()
        size = sum(path.stat().st_size for path in (folder / "_delta_log").iterdir())
        print(f"{options.files} files in a checkpoint and {options.commits} commits, {live} live, {size / 1e6:.0f} MB of log", flush=True)
        expect("live files, by delta-rs", theirs[0], live)
        print(f"delta-rs: {theirs[1]:.2f} s", flush=True)
        for words in (["inspect", folder], ["compact", folder, "--dry-run", "--target-shard", "100kB"], ["vacuum", folder, "--dry-run"]):
            runs = [measured(options.shardify, *words) for _ in range(3)]
            found = runs[0][0]
            seconds, cpu, peak = [one[1] for one in runs], min(one[2] for one in runs), max(one[3] for one in runs) / 2**20
            print(f"{words[0]}: {min(seconds):.2f} to {max(seconds):.2f} s, {cpu:.2f} s of processor time, peak {peak:.0f} MiB", flush=True)
            if words[0] == "compact":
                expect("live files", found["files_before"], live)
            if min(seconds) > options.seconds or peak > options.mib:
                raise Failure(f"{words[0]}: expected at most {options.seconds} s and {options.mib} MiB")


if __name__ == "__main__":
    finish(main)
