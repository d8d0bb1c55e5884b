#!/usr/bin/env python3
"""`--split` puts every subject on one side, whatever is done to the dataset, and other readers see the sides.

A dataset of a million subjects (with `--subjects`) grows in ten runs, in which subjects come back. Its shards are merged and sorted, one
subject is erased, and one run is removed. Each time, DuckDB reads the shards by their folders: no subject is in two splits, each is on the
side that the rule of docs/FORMAT.md gives, computed here anew, and the shares differ by less than 0.005 from what was asked for. pyarrow,
Polars, webdataset and the Python package see the same sides.

    python3 scripts/checks/split_check.py --shardify target/release/shardify [--subjects N]
"""

import argparse
import os
import pathlib
import sys
import tempfile

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import webdataset as wds
import xxhash
from harness import ROOT, Failure, expect, finish, run

SHARES = {"train": 0.7, "val": 0.2, "test": 0.1}
SPLIT = ",".join(f"{name}={share}" for name, share in SHARES.items())
RUNS = 10


def side_of(subject, seed=7):
    """The rule of docs/FORMAT.md."""
    place = (xxhash.xxh3_64_intdigest(subject.encode(), seed=seed) >> 11) / 2**53
    end = 0.0
    for name, share in list(SHARES.items())[:-1]:
        end += share
        if place < end:
            return name
    return list(SHARES)[-1]


def write_runs(folder, subjects):
    """Tables of visits: each has a tenth of the subjects, and as many of those before."""
    rng, each, tables = np.random.default_rng(1), subjects // RUNS, []
    for number in range(RUNS):
        fresh = np.arange(number * each, (number + 1) * each)
        back = rng.integers(0, max(1, number * each), each)
        people = np.concatenate([fresh, back])
        rng.shuffle(people)
        names = pa.array([f"PAT-{person:07}" for person in people])
        visits = np.arange(number * 2 * each, number * 2 * each + len(people))
        table = pa.table({"visit": visits, "patient": names, "value": rng.random(len(people)).round(3)})
        path = folder / f"run{number}.csv"
        pyarrow.csv.write_csv(table, path)
        tables.append(path)
    return tables


def live(shardify, dataset, side=None):
    more = ["--split", side] if side else []
    return run(shardify, "manifest", dataset, "--list", "--paths", *more).decode().splitlines()


def look(shardify, dataset, what, gone=()):
    """Asks DuckDB which subjects are on which side."""
    query = "select patient, list(distinct split), count(*) from read_parquet(?, hive_partitioning = true) group by 1"
    rows = duckdb.execute(query, [live(shardify, dataset)]).fetchall()
    for patient, sides, _ in rows:
        if sides != [side_of(patient)]:
            raise Failure(f"{what}: {patient} is on {sides}, expected {side_of(patient)}")
    if any(patient in gone for patient, _, _ in rows):
        raise Failure(f"{what}: an erased subject is back")
    for name, share in SHARES.items():
        found = sum(sides == [name] for _, sides, _ in rows) / len(rows)
        if len(rows) >= 100_000 and abs(found - share) > 0.005:
            raise Failure(f"{what}: {name} has {found:.4f} of the subjects, expected {share}")
    run(shardify, "verify", dataset)
    print(f"{what}: {len(rows):,} subjects, {sum(count for _, _, count in rows):,} records, none in two splits", flush=True)


def look_with_others(shardify, dataset):
    """pyarrow, Polars and the Python package."""
    os.environ["SHARDIFY_BINARY"] = str(pathlib.Path(shardify).resolve())
    sys.path.insert(0, str(ROOT / "python"))
    import shardify as package

    package_dataset = package.open(str(dataset))
    for side in SHARES:
        paths = live(shardify, dataset, side)
        want = duckdb.execute("select count(*), sum(visit)::bigint from read_parquet(?)", [paths]).fetchone()
        every = pyarrow.dataset.dataset(live(shardify, dataset), partitioning=pyarrow.dataset.partitioning(flavor="hive"))
        table = every.to_table(filter=pyarrow.dataset.field("split") == side)
        expect(f"pyarrow, {side}", (table.num_rows, sum(table["visit"].to_pylist())), want)
        frame = pl.scan_parquet(live(shardify, dataset), hive_partitioning=True).filter(pl.col("split") == side).select("visit").collect()
        expect(f"Polars, {side}", (frame.height, frame["visit"].sum()), want)
        expect(f"the Python package, {side}", sorted(package_dataset.split(side).paths()), sorted(paths))


def look_at_tar(shardify, folder, table):
    """webdataset reads the samples of a side."""
    tar = folder / "tar"
    ids = ["--id", "visit", "--subject", "patient"]
    run(shardify, "convert", table, "--out", tar, "--to", "tar", *ids, "--split", f"{SPLIT},seed=7")
    seen = 0
    for side in SHARES:
        urls = run(shardify, "manifest", tar, "--list", "--urls", "--split", side).decode().split()
        for sample in wds.WebDataset(urls, shardshuffle=False, empty_check=False).decode():
            expect(f"webdataset, {sample['__key__']}", side_of(sample["json"]["patient"]), side)
            seen += 1
    expect("webdataset", seen, len(table.read_text().splitlines()) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--subjects", type=int, default=1_000_000)
    options = parser.parse_args()
    shardify = options.shardify
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tables, dataset = write_runs(folder, options.subjects), folder / "dataset"
        first = ["--id", "visit", "--subject", "patient", "--split", f"{SPLIT},seed=7", "--target-shard", "1MiB"]
        for number, table in enumerate(tables):
            run(shardify, "convert", table, "--out", dataset, *(first if number == 0 else []))
        look(shardify, dataset, f"{RUNS} runs")
        run(shardify, "compact", dataset, "--target-shard", "4MiB")
        look(shardify, dataset, "merged")
        run(shardify, "compact", dataset, "--sort-by", "value")
        look(shardify, dataset, "sorted")
        run(shardify, "erase", dataset, "PAT-0000023", "--all-versions")
        look(shardify, dataset, "after an erasure", gone=("PAT-0000023",))
        run(shardify, "remove", dataset, "--source", "run3.csv")
        run(shardify, "convert", tables[3], "--out", dataset)
        look(shardify, dataset, "after a removal", gone=("PAT-0000023",))
        look_with_others(shardify, dataset)
        look_at_tar(shardify, folder, tables[1] if options.subjects <= 100_000 else write_runs(folder, 20_000)[1])


if __name__ == "__main__":
    finish(main)
