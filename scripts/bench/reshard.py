#!/usr/bin/env python3
"""Times `shardify reshard` beside `cat` of the shards, and beside Polars, which reads them and writes as many.

    python3 scripts/bench/reshard.py --shardify target/ci/shardify [--data /dev/shm/reshard] [--reps 5]

Pairs in alternating order, after one run of each that does not count; prints the medians, and the median of the ratios. About 5 GB of room are needed.

Peers: pip install numpy polars
"""

import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

POLARS = """
import os, polars
table = polars.read_parquet({files!r})
os.makedirs({out!r})
rows = -(-table.height // {shards})
for shard in range({shards}):
    table.slice(shard * rows, rows).write_parquet(os.path.join({out!r}, f"{{shard}}.parquet"), compression="zstd", compression_level=1)
"""


class Bench:
    def __init__(self, options):
        self.shardify, self.root, self.reps = options.shardify, pathlib.Path(options.data), options.reps
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)

    def run(self, *words):
        subprocess.run([self.shardify, *map(str, words), "-q"], check=True)

    def shards(self, dataset, extension):
        return sorted(map(str, (self.root / dataset).glob(f"*/*.{extension}")))

    def reshard(self, dataset, *options):
        def run():
            shutil.rmtree(self.root / "out", ignore_errors=True)
            self.run("reshard", self.root / dataset, "--out", self.root / "out", *options)

        return run

    def cat(self, files):
        def run():
            (self.root / "cat").unlink(missing_ok=True)
            with open(self.root / "cat", "wb") as out:
                subprocess.run(["cat", *files], stdout=out, check=True)

        return run

    def polars(self, files, shards):
        out = self.root / "polars"

        def run():
            shutil.rmtree(out, ignore_errors=True)
            subprocess.run([sys.executable, "-c", POLARS.format(files=files, out=str(out), shards=shards)], check=True)

        return run

    def pairs(self, name, ours, theirs):
        times = ([], [])
        for number in range(self.reps + 1):
            order = [(ours, times[0]), (theirs, times[1])]
            for job, all_times in order if number % 2 else reversed(order):
                started = time.perf_counter()
                job()
                all_times.append(time.perf_counter() - started)
        one, other = (all_times[1:] for all_times in times)
        ratio = statistics.median(a / b for a, b in zip(one, other))
        print(f"{name}: {statistics.median(one):.3f} s beside {statistics.median(other):.3f} s, ratio {ratio:.2f}", flush=True)

    def samples(self):
        raw, count, rng = self.root / "raw", 20_000, random.Random(3)
        raw.mkdir()
        noise = rng.randbytes(1 << 20)
        for number in range(count):
            size = rng.randrange(20_000, 80_000)
            at = rng.randrange(len(noise) - size)
            (raw / f"s{number:06}.jpg").write_bytes(noise[at : at + size])
            (raw / f"s{number:06}.cls").write_text(str(number % 10))
        ids = self.root / "ids.txt"
        ids.write_text("\n".join(f"s{number:06}" for number in rng.sample(range(count), count // 2)))
        size = ("--target-shard", "12MiB")
        for to in ("tar", "tfrecord"):
            self.run("convert", raw, "--out", self.root / to, "--to", to, "--codec", "none", *size)
            files = self.shards(to, to)
            shards = len(files) * 4 // 3
            self.pairs(f"{to}, {len(files)} shards to {shards}, cat", self.reshard(to, "--shards", shards), self.cat(files))
            half = self.reshard(to, "--ids", ids, *size)
            half()
            (self.root / "out").rename(self.root / "half")
            self.pairs(f"{to}, half of the samples by ids, cat of them", half, self.cat(self.shards("half", to)))
            shutil.rmtree(self.root / "half")
            shutil.rmtree(self.root / to)
        shutil.rmtree(raw)

    def tables(self, files, target):
        import numpy as np
        import polars as pl

        rng, rows, raw = np.random.default_rng(1), 1_000_000, self.root / "tables"
        raw.mkdir()
        for number in range(files):
            pl.DataFrame({
                "id": np.arange(number * rows, (number + 1) * rows),
                "who": rng.integers(0, 50_000, rows),
                "x": rng.normal(size=rows),
                "y": rng.normal(size=rows).astype("f4"),
                "site": rng.choice(["A", "B", "C", "D"], rows),
                "note": [f"note {value}" for value in rng.integers(0, 10**9, rows)],
            }).write_parquet(raw / f"{number}.parquet")
        self.run("convert", raw, "--out", self.root / "parquet", "--target-shard", target)
        shutil.rmtree(raw)
        made = self.shards("parquet", "parquet")
        more = len(made) * 4 // 3
        for shards in (more, max(1, len(made) // 3)):
            self.pairs(f"parquet, {len(made)} shards to {shards}, Polars", self.reshard("parquet", "--shards", shards), self.polars(made, more))
        shutil.rmtree(self.root / "parquet")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--data", default="/dev/shm/reshard")
    parser.add_argument("--reps", type=int, default=5)
    bench = Bench(parser.parse_args())
    try:
        bench.samples()
        bench.tables(6, "4MiB")
        bench.tables(24, "64MiB")
    finally:
        shutil.rmtree(bench.root, ignore_errors=True)


main()
