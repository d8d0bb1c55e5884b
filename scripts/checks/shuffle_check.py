#!/usr/bin/env python3
"""`--shuffle` puts records in the order that docs/FORMAT.md states, as other readers see them, and that order is uniform.

The ranks are computed here anew, with the xxhash package. Over 1,000 seeds, the positions of records and their neighbours are compared with those of
2,000 times as many random permutations of numpy: chi-square must stay below the 0.999 quantile. For some seeds, tables of all readers, archives,
arrays and files are converted, and pyarrow, webdataset and tfrecord must read the records in the order of their ranks, each of them once. A larger
table has the same bytes at any number of threads and any memory, and `verify` accepts it, also after an erasure and a merge.

    python3 scripts/checks/shuffle_check.py --shardify target/release/shardify [--rows N] [--seeds N]
"""

import argparse
import collections
import io
import json
import pathlib
import random
import tarfile
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import webdataset as wds
import xxhash
from harness import Failure, expect, finish, run
from tfrecord.reader import tfrecord_loader

SEEDS, RECORDS, REFERENCES = 1000, 16, 2000
FORMATS = {"parquet": [], "tar": [], "tar gzip": ["--codec", "gzip"], "tfrecord": [], "tfrecord gzip": ["--codec", "gzip"]}


def rank_of_row(seed, source, row):
    return xxhash.xxh3_128_intdigest(source.encode() + row.to_bytes(8, "little"), seed=seed)


def rank_of_sample(seed, key):
    return xxhash.xxh3_128_intdigest(key.encode(), seed=seed)


def statistics(orders):
    """Chi-square of the positions of records, and of which record follows which, of many orders at once: seeds, records."""
    seeds, records = orders.shape[-2:]
    flat = orders.reshape(-1, seeds, records)
    numbers = np.arange(len(flat))[:, None, None] * records * records
    out = []
    for cells in (orders.reshape(flat.shape) + np.arange(records) * records, flat[..., 1:] + flat[..., :-1] * records):
        counts = np.bincount((cells + numbers).ravel(), minlength=len(flat) * records * records).reshape(len(flat), records, records)
        expected = seeds / records
        squares = (counts - expected) ** 2 / expected
        # No record follows itself.
        squares[:, np.arange(records), np.arange(records)] *= cells.shape[-1] == records
        out.append(squares.sum(axis=(1, 2)))
    return out


def look_at_uniformity():
    rng = np.random.default_rng(1)
    parts = [statistics(rng.random((100, SEEDS, RECORDS)).argsort(axis=-1)) for _ in range(REFERENCES // 100)]
    limits = [np.quantile(np.concatenate(part), 0.999) for part in zip(*parts)]
    of_rows = [[rank_of_row(seed, "table.csv", row + 1) for row in range(RECORDS)] for seed in range(SEEDS)]
    of_samples = [[rank_of_sample(seed, f"folder/{number}") for number in range(RECORDS)] for seed in range(SEEDS)]
    for what, ranks in (("rows", of_rows), ("samples", of_samples)):
        orders = np.array([sorted(range(RECORDS), key=of_seed.__getitem__) for of_seed in ranks])
        for name, found, limit in zip(("positions", "neighbours"), statistics(orders), limits):
            if found[0] > limit:
                raise Failure(f"{name} of {what}: chi-square {found[0]:.1f}, expected at most {limit:.1f}")
            print(f"{name} of {what} over {SEEDS} seeds: chi-square {found[0]:.1f}, 0.999 quantile {limit:.1f}", flush=True)


def write_sources(folder):
    """Tables of several formats, whose rows say their source and row; returns source and row of all, in the order of the input."""
    folder.mkdir()
    counts = {"a.csv": 41, "b/c.jsonl": 23, "b/d.parquet": 37}
    (folder / "b").mkdir()
    (folder / "a.csv").write_text("name,row\n" + "".join(f"a.csv,{row}\n" for row in range(1, 42)))
    (folder / "b/c.jsonl").write_text("".join(json.dumps({"name": "b/c.jsonl", "row": row, "more": [row]}) + "\n" for row in range(1, 24)))
    pq.write_table(pa.table({"name": ["b/d.parquet"] * 37, "row": list(range(1, 38))}), folder / "b/d.parquet", row_group_size=10)
    return [(name, row) for name, count in counts.items() for row in range(1, count + 1)]


def live(shardify, dataset):
    return run(shardify, "manifest", dataset, "--list", "--paths").decode().splitlines()


def read(shardify, dataset, to):
    """Name and row of all records, in the order in which another reader reads the shards."""
    paths = live(shardify, dataset)
    if to == "parquet":
        tables = [pq.read_table(path, columns=["name", "row"]) for path in paths]
        return [(row["name"], row["row"]) for table in tables for row in table.to_pylist()]
    if to.startswith("tar"):
        samples = wds.WebDataset(paths, shardshuffle=False, empty_check=False).decode()
        return [(sample["json"]["name"], sample["json"]["row"]) for sample in samples]
    kind = "gzip" if to.endswith("gzip") else None
    rows = [row for path in paths for row in tfrecord_loader(path, None, compression_type=kind)]
    return [(bytes(row["name"]).decode(), int(row["row"][0])) for row in rows]


def look_at_tables(shardify, folder, seeds):
    known = write_sources(folder / "sources")
    for to, more in FORMATS.items():
        for seed in seeds if to == "parquet" else seeds[:3]:
            dataset = folder / f"{to}-{seed}"
            run(shardify, "convert", folder / "sources", "--out", dataset, "--to", to.split()[0], *more, "--shuffle", seed, "--target-shard", "2KiB")
            expect(f"{to} with seed {seed}", read(shardify, dataset, to), sorted(known, key=lambda record: rank_of_row(seed, *record)))
            run(shardify, "verify", dataset, "--read-data")
    print(f"tables: {len(seeds)} seeds, {len(FORMATS)} kinds of shards, each record once and in the order of its rank", flush=True)


def look_at_samples(shardify, folder, seeds):
    """Files, and the same files in archives."""
    keys = [f"{name}-{number:02}" for name in ("cat", "dog") for number in range(20)]
    archives = {"x.tar": keys[:25], "y.tar": keys[25:]}
    (folder / "archives").mkdir()
    for name, members in archives.items():
        with tarfile.open(folder / "archives" / name, "w") as archive:
            for key in members:
                entry = tarfile.TarInfo(f"{key}.txt")
                entry.size = len(key)
                archive.addfile(entry, io.BytesIO(key.encode()))
    for key in keys:
        path = folder / "files" / f"{key}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(key)
    rows = {key: (name, row) for name, members in archives.items() for row, key in enumerate(members, 1)}
    for seed in seeds:
        for kind, rank in (("files", lambda key: rank_of_sample(seed, key)), ("archives", lambda key: rank_of_row(seed, *rows[key]))):
            dataset = folder / f"{kind}-{seed}"
            run(shardify, "convert", folder / kind, "--out", dataset, "--to", "tar", "--shuffle", seed, "--target-shard", "4KiB")
            samples = wds.WebDataset(live(shardify, dataset), shardshuffle=False, empty_check=False).decode()
            found = [(sample["__key__"], sample["txt"]) for sample in samples]
            expect(f"{kind} with seed {seed}", found, [(key, key) for key in sorted(keys, key=rank)])
            run(shardify, "verify", dataset, "--read-data")
    print(f"files and archives: {len(seeds)} seeds, in the order of their ranks for webdataset", flush=True)


def look_at_arrays(shardify, folder):
    cells = np.random.default_rng(2).random((300, 4, 4)).astype("float32")
    np.save(folder / "cells.npy", cells)
    run(shardify, "convert", folder / "cells.npy", "--out", folder / "cells", "--shuffle", "5", "--target-shard", "8KiB")
    found = np.concatenate([pq.read_table(path).column(0).combine_chunks().to_pylist() for path in live(shardify, folder / "cells")])
    order = sorted(range(300), key=lambda index: rank_of_row(5, "cells.npy", index + 1))
    if not np.array_equal(np.array(found).reshape(300, -1), cells[order].reshape(300, -1)):
        raise Failure("the records of an array are not in the order of their ranks")
    run(shardify, "verify", folder / "cells", "--read-data")
    print("arrays: 300 records in the order of their ranks", flush=True)


def shards(shardify, dataset):
    return [pathlib.Path(path).read_bytes() for path in live(shardify, dataset)]


def look_at_sizes(shardify, folder, rows):
    """More rows than are sorted at a time: the same bytes whatever the memory, and the same rows as without the order."""
    rng, table = random.Random(3), folder / "large.csv"
    with table.open("w") as out:
        out.write("id,who,text\n")
        for row in range(rows):
            out.write(f"r{row},PAT-{row % 997},{'%x' % rng.getrandbits(4 * rng.randrange(1, 600))}\n")
    options = ["--id", "id", "--subject", "who", "--write", "row-group=4MiB", "--target-shard", "8MiB"]
    run(shardify, "convert", table, "--out", folder / "plain", *options)
    runs = (["--jobs", "1"], ["--jobs", "2", "--memory", "64MiB"], ["--jobs", "7", "--memory", "256MiB"])
    names = [folder / f"large-{number}" for number in range(len(runs))]
    for name, more in zip(names, runs):
        run(shardify, "convert", table, "--out", name, *options, "--shuffle", "9", *more)
    contents = [shards(shardify, name) for name in names]
    if any(content != contents[0] for content in contents):
        raise Failure("shards depend on the memory or on the number of threads")
    texts = lambda dataset: collections.Counter(value for path in live(shardify, dataset) for value in pq.read_table(path)["text"].to_pylist())
    if texts(names[0]) != texts(folder / "plain"):
        raise Failure("the records are others than without the order")
    run(shardify, "verify", names[1], "--read-data")
    run(shardify, "erase", names[1], "PAT-7", "--all-versions")
    run(shardify, "compact", names[1], "--sort-by", "id")
    run(shardify, "verify", names[1], "--read-data")
    print(f"{rows:,} rows in {len(contents[0])} shards: the same bytes at {len(runs)} sizes of memory; verified, erased from and sorted", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds that the program is run with")
    options = parser.parse_args()
    look_at_uniformity()
    seeds = [*range(options.seeds - 1), 2**64 - 1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        look_at_tables(options.shardify, folder, seeds)
        look_at_samples(options.shardify, folder, seeds[-3:])
        look_at_arrays(options.shardify, folder)
        look_at_sizes(options.shardify, folder, options.rows)


if __name__ == "__main__":
    finish(main)
