#!/usr/bin/env python3
"""Times `shardify.open(...).loader()` beside the stock readers on the same shards, in pairs.

    python3 scripts/bench/loading.py --shardify target/release/shardify [--reps 5] [--only tar] [--rows 150000] [--samples 10000]

| job      | shards                                             | beside                                             |
|----------|----------------------------------------------------|----------------------------------------------------|
| listed   | rows of six columns, zstd:1, in list order         | pyarrow.dataset, whose batches stay Arrow's        |
| parquet  | the same, shuffled                                 | the same                                           |
| tar      | samples of a picture of 8 kB and a label, shuffled | webdataset                                         |
| tfrecord | rows as Examples, given as bytes, shuffled         | the package tfrecord                               |

`.loader()` delivers batches of 256 records in memory, as bytes or columns. It needs the extension: cargo build -p shardify-py --profile ci,
and python/shardify/_native.abi3.so as a link to target/ci/lib_native.so.

Both read every record in one process of its own, one after the other, after a run that fills the page cache; the order of
a pair alternates. A ratio is records per second of `loader()` over those of the other in the same pair; the median counts. Both must see
as many records, and the same ones: hashes of what they read are compared.

Peers: pip install pyarrow webdataset tfrecord
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

RUN = """
import hashlib, os, sys, time
# Imported before the clock starts.
import pyarrow.dataset, pyarrow.parquet, tarfile, tfrecord.reader, webdataset
out, check = sys.argv[1], sys.argv[2] == "check"
import shardify
dataset = shardify.open(out)
size = lambda record: 1
{read}
started, busy, count, digest = time.perf_counter(), time.process_time(), 0, 0
for record in read():
    count += size(record)
    if check:
        digest ^= int.from_bytes(hashlib.blake2b(repr(key(record)).encode(), digest_size=8).digest(), "big")
print(count, time.perf_counter() - started, time.process_time() - busy, digest)
"""
LOADER = """
loader = dataset.loader(global_batch_size=256, seed=1, drop_last=False, shuffle={shuffle})
if check:
    read = lambda: (record for batch in loader for record in split(batch))
else:
    read, size = lambda: loader, len
"""
ROWS_OF = "split = lambda batch: batch.arrow().to_pylist()\n"
SAMPLES_OF = """
def split(batch):
    for row in range(len(batch)):
        yield {name: value if isinstance(value := batch[name][row], str) else bytes(value) for name in batch}
"""
BYTES_OF = "split = lambda batch: [bytes(one) for one in batch['record']]\n"
TABLES = """
def read():
    for batch in dataset.pyarrow().to_batches():
        yield from batch.to_pylist() if check else [batch]
if not check:
    size = lambda batch: batch.num_rows
"""
WEBDATASET = """
read = dataset.webdataset
"""
TFRECORD = """
def read():
    for path in dataset.paths():
        for record in tfrecord.reader.tfrecord_iterator(path):
            yield record
"""
ROWS = "key = lambda row: sorted(row.items())\n"
SAMPLES = "key = lambda one: sorted((name, value) for name, value in one.items() if name == '__key__' or name[0] != '_')\n"
BYTES = "key = bytes\n"

SHUFFLED, LISTED = ({"shuffle": True}, {"shuffle": False})

# Job: folder of the dataset, our reader, the reader beside, and what is compared of a record.
JOBS = {
    "loader-listed": ("parquet", LOADER.format(**LISTED) + ROWS_OF, TABLES, ROWS),
    "loader-parquet": ("parquet", LOADER.format(**SHUFFLED) + ROWS_OF, TABLES, ROWS),
    "loader-tar": ("files", LOADER.format(**SHUFFLED) + SAMPLES_OF, WEBDATASET, SAMPLES),
    "loader-tfrecord": ("tfrecord", LOADER.format(**SHUFFLED) + BYTES_OF, TFRECORD, BYTES),
}


def write_inputs(folder, rows, samples):
    rng = random.Random(1)
    with open(folder / "rows.csv", "w") as file:
        file.write("number,text,value,day,flag,name\n")
        for number in range(rows):
            text = rng.randbytes(20).hex()
            flag = "true" if number % 3 == 0 else "false"
            day = f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}"
            file.write(f"{number},{text},{rng.random()},{day},{flag},PAT-{number % 977}\n")
    pictures = folder / "pictures"
    pictures.mkdir()
    for number in range(samples):
        (pictures / f"{number:06}.jpg").write_bytes(rng.randbytes(8000))
        (pictures / f"{number:06}.cls").write_text(str(number % 10))


def convert(program, folder):
    for out, words in {
        "parquet": ["rows.csv"],
        "tfrecord": ["rows.csv", "--to", "tfrecord"],
        "files": ["pictures"],
    }.items():
        subprocess.run([program, "convert", *words, "--out", out, "--target-shard", "8MiB", "--quiet"], cwd=folder, check=True)


def once(code, out, check, program):
    settings = {**os.environ, "SHARDIFY_BINARY": str(program), "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, "-c", code, str(out), check], capture_output=True, text=True, env=settings)
    if done.returncode != 0:
        sys.exit(done.stderr)
    count, seconds, busy, digest = done.stdout.split()
    return int(count), float(seconds), float(busy), int(digest)


def measured(name, folder, program, reps):
    out, own, peer, key = JOBS[name]
    # Code of a loader has braces of its own.
    both = [RUN.replace("{read}", reader + key) for reader in (own, peer)]
    seen = [once(code, folder / out, "check", program) for code in both]
    if (seen[0][0], seen[0][3]) != (seen[1][0], seen[1][3]):
        sys.exit(f"{name}: expected the same records, found {seen[0][0]} and {seen[1][0]}, or other values")
    ratios, busy, times = [], [], []
    for rep in range(reps):
        pair = [None, None]
        for which in (0, 1) if rep % 2 == 0 else (1, 0):
            pair[which] = once(both[which], folder / out, "no", program)
        ratios.append(pair[1][1] / pair[0][1])
        busy.append(pair[1][2] / pair[0][2])
        times.append([one[1] for one in pair])
    ours, other = (statistics.median(times[rep][which] for rep in range(reps)) for which in (0, 1))
    return {"job": name, "records": seen[0][0], "ours": seen[0][0] / ours, "other": seen[0][0] / other,
            "ratio": statistics.median(ratios), "processor": statistics.median(busy)}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True, type=pathlib.Path)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--only", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--json", type=pathlib.Path, help="also write the results here")
    options = parser.parse_args()
    program = options.shardify.resolve()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_inputs(folder, options.rows, options.samples)
        convert(program, folder)
        print(f"{'job':15} {'records':>9} {'ours/s':>11} {'other/s':>11} {'ratio':>6} {'processor':>9}")
        for name in options.only:
            results.append(one := measured(name, folder, program, options.reps))
            print(
                f"{name:15} {one['records']:9,} {one['ours']:11,.0f} {one['other']:11,.0f} {one['ratio']:6.2f} {one['processor']:9.2f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
