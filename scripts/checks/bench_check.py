#!/usr/bin/env python3
"""`bench` agrees with loops that are written here for the purpose, and its page fits the window.

The loaders of `python -m shardify.bench` are compared with loops over the same files and shards: all of the records and bytes, and the
rates. The readers of `shardify bench` are compared with a loop that reads the same files by system calls, where reading is all that a
loader does: files of a MiB, one reader, a full page cache. The share of time that a step waits is compared with the rates that were
measured. Rates are medians of several alternating runs. With `--rates` they have to be within 15 % of each other, which only a machine that
does nothing else can say; without, a rate that another unit or a wrong count would give fails.

    python3 scripts/checks/bench_check.py --shardify target/release/shardify [--rates] [--rounds N] [--seconds S] [--shots FOLDER]
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import pages
from harness import ROOT, Failure, Shardify, expect, finish, not_run

TOLERANCE = 0.15
# Rates of sound programs on busy machines are nearer to each other than this.
ANOTHER_UNIT = 10


@dataclasses.dataclass(frozen=True)
class Effort:
    """Whether rates have to agree, how many runs a median has, and how long each measurement takes."""

    rates: bool
    rounds: int
    seconds: float


def rate(loop, seconds):
    """Records per second of a loop that yields numbers of records and bytes, over and over until the time is over."""
    records, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for more, _ in loop():
            records += more
    return records / (time.perf_counter() - started)


def by_open(samples):
    def loop():
        for files in samples:
            size = 0
            for path in files:
                with open(path, "rb") as file:
                    size += len(file.read())
            yield 1, size

    return loop


def by_read(paths):
    """System calls alone, into a buffer of each file's own."""

    def loop():
        for path in paths:
            file = os.open(path, os.O_RDONLY)
            size = os.fstat(file).st_size
            yield 1, len(os.read(file, size))
            os.close(file)

    return loop


def by_tarfile(shards):
    def loop():
        for shard in shards:
            with tarfile.open(shard, "r|") as archive:
                parts = {}
                for member in archive:
                    key = member.name.split(".")[0]
                    if parts and key not in parts:
                        yield 1, sum(parts.values())
                        parts = {}
                    parts[key] = parts.get(key, 0) + len(archive.extractfile(member).read())
                yield 1, sum(parts.values())

    return loop


def by_webdataset(shards):
    import webdataset

    def loop():
        for sample in webdataset.WebDataset(shards, shardshuffle=False):
            yield 1, sum(len(value) for key, value in sample.items() if not key.startswith("__"))

    return loop


def by_parquet(shards):
    def loop():
        for shard in shards:
            for batch in pq.ParquetFile(shard).iter_batches(batch_size=1 << 17):
                yield batch.num_rows, batch.nbytes

    return loop


def by_csv(path):
    def loop():
        for batch in pa.csv.open_csv(path):
            yield batch.num_rows, batch.nbytes

    return loop


def compare(what, ours, theirs, effort):
    """Compares medians of alternating runs; where rates have to agree, there are several attempts."""
    ratios = []
    for _ in range(4 if effort.rates else 1):
        pairs = [(ours(), theirs()) for _ in range(effort.rounds)]
        mine, other = (statistics.median(side) for side in zip(*pairs))
        ratios.append(mine / other)
        print(f"{what}: {mine:,.0f} records/s by bench, {other:,.0f} by the loop, {ratios[-1]:.3f}", flush=True)
        if abs(ratios[-1] - 1) <= TOLERANCE:
            return
    if effort.rates:
        raise Failure(f"{what}: expected rates within {TOLERANCE:.0%}, found {', '.join(f'{ratio:.3f}' for ratio in ratios)}")
    if not 1 / ANOTHER_UNIT < ratios[0] < ANOTHER_UNIT:
        raise Failure(f"{what}: expected rates that are less than {ANOTHER_UNIT} times each other, found {ratios[0]:.3f}")


def of_package(shardify, source, dataset, loader, side, seconds, *more):
    """A measurement of `python -m shardify.bench`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SHARDIFY_BINARY": shardify.binary}
    words = [sys.executable, "-m", "shardify.bench", source, dataset, "--only", loader, "--seconds", seconds, "--step", "0.001", "--json", *more]
    done = subprocess.run([*map(str, words)], env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Failure(f"shardify.bench ended with {done.returncode}: {done.stderr[-2000:]}")
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    return next(run for run in runs if run["side"] == side and run["loader"] == loader)


def images(folder, count, size, rng):
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:05}.jpg").write_bytes(rng.randbytes(size))
        (folder / f"{number:05}.cls").write_text(str(number % 10))
    return [[str(folder / f"{number:05}.cls"), str(folder / f"{number:05}.jpg")] for number in range(count)]


def python_loaders(shardify, folder, effort, rng):
    source, dataset = folder / "images", folder / "tar"
    samples = images(source, 4000, 8000, rng)
    rng.shuffle(samples)
    shardify.ok("convert", source, "--out", dataset, "--to", "tar", "--target-shard", "8MiB")
    shards = [str(path) for path in sorted(dataset.rglob("*.tar")) if "_shardify" not in path.parts]
    total = sum(os.path.getsize(path) for files in samples for path in files)
    own = of_package(shardify, source, dataset, "shardify", "after", 60, "--cold")
    if own["missing"]:
        not_run("bench_check: the loader of the package", own["missing"])
    else:
        # Offsets and keys are counted, too.
        expect("records and bytes of the loader", (own["records"], total <= own["bytes"] <= total * 1.05), (4000, True))
    for loader, side in (("files", "before"), ("tarfile", "after"), ("webdataset", "after")):
        run = of_package(shardify, source, dataset, loader, side, 60, "--cold")
        expect(f"records and bytes of {loader}", (run["records"], run["bytes"]), (4000, total))
    for loader, side, loop in (
        ("files", "before", by_open(samples)),
        ("tarfile", "after", by_tarfile(shards)),
        ("webdataset", "after", by_webdataset(shards)),
    ):
        ours = lambda loader=loader, side=side: of_package(shardify, source, dataset, loader, side, effort.seconds)["records_per_second"]
        compare(f"{loader}", ours, lambda loop=loop: rate(loop, effort.seconds), effort)


def tables(shardify, folder, effort, rng):
    source, dataset = folder / "table.csv", folder / "parquet"
    rows = 600_000
    columns = {"id": range(rows), "x": [rng.random() for _ in range(rows)], "word": [f"word {rng.randrange(1000)}" for _ in range(rows)]}
    pa.csv.write_csv(pa.table(columns), source)
    shardify.ok("convert", source, "--out", dataset, "--target-shard", "2MiB")
    shards = [str(path) for path in sorted(dataset.rglob("*.parquet")) if "_shardify" not in path.parts]
    for side, loop in (("before", by_csv(str(source))), ("after", by_parquet(shards))):
        run = of_package(shardify, source, dataset, "pyarrow", side, max(1, effort.seconds))
        expect(f"whole passes {side}", run["records"] > rows, True)
        # pyarrow reads ahead in several threads where a loop takes one file after the other, so only an order is expected of it.
        compare_at_least(f"pyarrow {side}", run["records_per_second"], rate(loop, effort.seconds))


def compare_at_least(what, ours, theirs):
    print(f"{what}: {ours:,.0f} records/s by bench, {theirs:,.0f} by the loop", flush=True)
    if not ours > theirs / ANOTHER_UNIT:
        raise Failure(f"{what}: expected at least a tenth of {theirs:,.0f} records/s, found {ours:,.0f}")


def own_readers(shardify, folder, effort, rng):
    """The readers of the program, where reading is all there is to do."""
    source, dataset = folder / "large", folder / "large-tar"
    source.mkdir()
    paths = [source / f"{number:03}.bin" for number in range(150)]
    for path in paths:
        path.write_bytes(rng.randbytes(1 << 20))
    shardify.ok("convert", source, "--out", dataset, "--to", "tar", "--target-shard", "32MiB")

    def ours():
        words = ["bench", source, dataset, "--readers", "1", "--batch", "8", "--time", f"{effort.seconds * 1000:.0f}ms", "--step", "10ms"]
        runs = [one for one in shardify.ok(*words) if one["type"] == "run"]
        return next(run for run in runs if run["side"] == "source" and run["cache"] == "warm")["records_per_second"]

    order = paths[:]
    rng.shuffle(order)
    compare("files of 1 MiB", ours, lambda: rate(by_read(order), effort.seconds), effort)
    return source, dataset


def waiting(shardify, source, dataset, effort):
    """A step that takes half of the time that a reader needs for a batch waits for the other half, and a long one does not wait."""
    words = ["bench", source, dataset, "--readers", "1", "--batch", "16", "--time", f"{effort.seconds * 2000:.0f}ms"]
    runs = lambda *more: [one for one in shardify.ok(*words, *more) if one["type"] == "run" and one["cache"] == "warm"]
    for run in runs("--step", "200ms"):
        if not run["waiting"] < (0.05 if effort.rates else 0.5):
            raise Failure(f"waiting of a long step: expected that there is hardly any, found {run}")
    for attempt in range(3 if effort.rates else 1):
        found = []
        for side in ("source", "dataset"):
            per_batch = 16 / next(run for run in runs("--step", "1ms") if run["side"] == side)["records_per_second"]
            step = max(1, round(per_batch * 500))
            run = next(run for run in runs("--step", f"{step}ms") if run["side"] == side)
            expected = max(0.0, 1 - step / 1000 / per_batch)
            found.append((side, expected, run["waiting"]))
            print(f"waiting for the {side}: {run['waiting']:.2f}, {expected:.2f} by the rates")
        if all(abs(expected - share) < 0.2 for _, expected, share in found):
            return
    if effort.rates:
        raise Failure(f"waiting: expected what follows from the rates, found {found}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", type=pathlib.Path, required=True)
    parser.add_argument("--rates", action="store_true", help="rates have to be within 15 %%")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--shots", type=pathlib.Path)
    options = parser.parse_args()
    shardify, rng = Shardify(options.shardify), random.Random(1)
    effort = Effort(options.rates, options.rounds, options.seconds)
    with tempfile.TemporaryDirectory(prefix="bench_check.") as temporary:
        folder = pathlib.Path(temporary)
        python_loaders(shardify, folder, effort, rng)
        tables(shardify, folder, effort, rng)
        source, dataset = own_readers(shardify, folder, effort, rng)
        waiting(shardify, source, dataset, effort)
        page = folder / "bench.html"
        shardify.ok("bench", folder / "images", folder / "tar", "--time", "500ms", "--html", page)
        pages.look_at(page, folder, options.shots, 1900)
    return 0


finish(main)
