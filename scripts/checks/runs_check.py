#!/usr/bin/env python3
"""A dataset made in one run and in several is the same for every stock reader: the rules that hold within a run (types, structure,
sides, ids) hold across runs.

Each round makes random days of rows, in which some columns have no value on some days, and converts them in one run and in one run per
day, to every format. pyarrow, DuckDB and Polars (Parquet), tarfile (tar) and the reader of the package tfrecord (TFRecord) read the shards
of both, before and after compact, sort, erase and reshard: they find the same rows and types, and the datasets converted back to Parquet have
the same columns. A day with a value of another type is refused and changes nothing; if its type is accepted, merges change no value
and no type of one.

    python3 scripts/checks/runs_check.py --shardify target/release/shardify [--rounds N] [--seed N]
"""

import argparse
import collections
import datetime
import json
import pathlib
import random
import tarfile
import tempfile

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from harness import FORMATS, INPUT, Failure, expect, finish, objects, run
from tfrecord.reader import tfrecord_loader

VALUES = {
    "v": lambda rng: rng.randrange(-9, 99),
    "f": lambda rng: rng.choice((rng.randrange(9), rng.randrange(99) / 4)),
    "d": lambda rng: str(datetime.date(2024, 1, 1) + datetime.timedelta(rng.randrange(400))),
    "t": lambda rng: rng.choice(("x", "y z", "ä,b")),
    "b": lambda rng: rng.random() < 0.5,
    "s": lambda rng: {"a": rng.randrange(9), "c": rng.choice(("p", "q"))},
    "l": lambda rng: [{"n": rng.randrange(9)} for _ in range(rng.randrange(1, 3))],
    "tags": lambda rng: [rng.randrange(9) for _ in range(rng.randrange(1, 4))],
}
NESTED = ("s", "l", "tags")
# A first value that shows each type, so that the runs agree on it whatever the days hold.
FIRST = {"v": 7, "f": 0.25, "d": "2024-02-03", "t": "x", "b": True, "s": {"a": 1, "c": "p"}, "l": [{"n": 1}], "tags": [1]}
OTHER = {"v": ("abc", 1.5), "f": ("abc",), "d": ("soon", 7), "b": ("maybe", 3)}


def days_of(rng, text):
    """Days of rows, and whether the first one lacks values of some columns that others have."""
    columns = rng.sample(sorted(VALUES), rng.randrange(3, len(VALUES)))
    columns = [name for name in columns if not text or name not in NESTED] or ["v", "d"]
    first_is_open, number, days = rng.random() < 0.4, 0, []
    for day in range(rng.randrange(2, 6)):
        empty = {name for name in columns if rng.random() < 0.35} if day or first_is_open else set()
        rows = []
        for row in range(rng.randrange(2, 9)):
            one = {"id": number, "who": f"p{number % 5}"}
            number += 1
            for name in columns:
                none = [] if name in ("l", "tags") and rng.random() < 0.5 else None
                one[name] = none if name in empty else FIRST[name] if row == 0 else VALUES[name](rng) if rng.random() < 0.8 else None
            rows.append(one)
        days.append(rows)
    is_open = any(all(not row[name] and row[name] not in (0, False) for row in days[0]) for name in columns)
    return columns, days, is_open


def write(path, rows, text):
    if not text:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return
    cell = lambda value: "" if value is None else json.dumps(value) if isinstance(value, bool) else '"' + str(value) + '"'
    path.write_text("\n".join(",".join(map(cell, line)) for line in [list(rows[0]), *(list(row.values()) for row in rows)]) + "\n")


class Round:
    def __init__(self, shardify, folder, seed):
        self.shardify, self.folder, self.rng = shardify, pathlib.Path(folder), random.Random(seed)

    def run(self, *words, codes=(0,)):
        return run(self.shardify, *words, "--progress", "never", codes=codes, folder=self.folder)

    def live(self, dataset):
        found = objects(self.shardify, "manifest", dataset, "--list", folder=self.folder)
        return [str(self.folder / dataset / one["path"]) for one in found if one.get("type") == "shard"]

    def parquet(self, dataset):
        """Types and rows, by reader."""
        shards = self.live(dataset)
        by_id = lambda rows: sorted((json.dumps(row, default=str, sort_keys=True) for row in rows))
        order = self.rng.sample(shards, len(shards))
        arrow = pa.dataset.dataset(order, format="parquet").to_table()
        duck = duckdb.sql(f"SELECT * FROM read_parquet({order!r}, hive_partitioning=false)")
        polar = polars.read_parquet(order, hive_partitioning=False)
        return {
            "pyarrow": ({field.name: str(field.type) for field in arrow.schema}, by_id(arrow.to_pylist())),
            "duckdb": (dict(zip(duck.columns, map(str, duck.types))), by_id(dict(zip(duck.columns, row)) for row in duck.fetchall())),
            "polars": ({name: str(kind) for name, kind in polar.schema.items()}, by_id(polar.to_dicts())),
        }

    def tar(self, dataset):
        rows = []
        for shard in self.live(dataset):
            with tarfile.open(shard) as tar:
                rows += [(one.name if self.named else "", tar.extractfile(one).read().decode()) for one in tar]
        return {"tarfile": sorted(rows)}

    def tfrecord(self, dataset):
        rows = []
        for shard in self.live(dataset):
            for row in tfrecord_loader(shard, None, compression_type="gzip" if shard.endswith(".gz") else None):
                rows.append(sorted((name, str(value.dtype) if hasattr(value, "dtype") else "", str(value)) for name, value in row.items()))
        return {"tfrecord": sorted(rows)}

    def back(self, dataset):
        """Types and rows after a conversion to Parquet."""
        self.made = getattr(self, "made", 0) + 1
        out = f"back-{self.made}"
        self.run("convert", dataset, "--to", "parquet", "--out", out, "--accept", "settings")
        return self.parquet(out)

    def sides(self, dataset):
        out = run(self.shardify, "manifest", dataset, "--export", "jsonl", folder=self.folder)
        rows = [json.loads(line) for line in out.splitlines()]
        side = lambda row: next((part for part in row["shard"].split("/") if part.startswith("split=")), "")
        return sorted((row["record_id"] if self.named else "", row["subject_id"] or "", side(row)) for row in rows)

    def same(self, to, one, several, what):
        read = getattr(self, to)
        expect(f"{what} of {to} made in several runs", read(several), read(one))
        expect(f"{what}: ids and sides of {to}", self.sides(several), self.sides(one))
        if to != "parquet":
            expect(f"{what} of {to}, back in Parquet", self.back(several), self.back(one))

    def agree(self):
        """One run and several runs over the same days."""
        rng = self.rng
        text = rng.random() < 0.5
        columns, days, is_open = days_of(rng, text)
        names = [f"day{number}.{'csv' if text else 'jsonl'}" for number in range(len(days))]
        for name, rows in zip(names, days):
            write(self.folder / name, rows, text)
        self.named = rng.random() < 0.6
        options = ["--id", "id"] if self.named else []
        options += ["--subject", "who"] if rng.random() < 0.5 else []
        options += ["--split", "train=0.6,val=0.4"] if self.named and rng.random() < 0.4 else []
        for to in FORMATS:
            one, several = f"one-{to}", f"several-{to}"
            self.run("convert", *names, "--out", one, "--to", to, *options)
            for number, name in enumerate(names):
                self.run("convert", name, "--out", several, "--to", to, *(options if number == 0 else []))
            # Shards of a day before a column's first value have no type for it until they are merged.
            if not is_open:
                self.same(to, one, several, "shards")
            for dataset in (one, several):
                self.run("compact", dataset, "--min-inputs", "2")
            self.same(to, one, several, "compacted shards")
            if to == "parquet" and rng.random() < 0.5:
                for dataset in (one, several):
                    self.run("compact", dataset, "--sort-by", "id")
                self.same(to, one, several, "sorted shards")
            if self.named:
                for dataset in (one, several):
                    self.run("erase", dataset, "--record", "1")
                self.same(to, one, several, "shards after an erasure")
            for dataset in (one, several):
                self.run("reshard", dataset, "--out", f"{dataset}-again", "--target-shard", "4KiB")
            self.same(to, f"{one}-again", f"{several}-again", "resharded shards")
            self.run("verify", several, "--read-data")

    def values(self, to, dataset):
        """What each record has in column `x`, with its kind, as it is stored."""
        out = {}
        for shard in self.live(dataset):
            if to == "parquet":
                table = pq.read_table(shard, partitioning=None)
                numbers = not (pa.types.is_string(table["x"].type) or pa.types.is_binary(table["x"].type))
                out |= {row["id"]: (numbers, row["x"]) for row in table.select(["id", "x"]).to_pylist()}
            elif to == "tar":
                with tarfile.open(shard) as tar:
                    rows = [json.load(tar.extractfile(one)) for one in tar]
                out |= {row["id"]: (isinstance(row["x"], (int, float)), row["x"]) for row in rows}
            else:
                for row in tfrecord_loader(shard, None):
                    out[int(row["id"][0])] = ("int" in str(getattr(row["x"], "dtype", "")) or "float" in str(getattr(row["x"], "dtype", "")), str(row["x"]))
        return out

    def differ(self):
        """A day with a value of another type."""
        rng = self.rng
        kind = rng.choice(sorted(OTHER))
        other, text = rng.choice(OTHER[kind]), rng.random() < 0.5
        rows = [{"id": number, "x": FIRST[kind] if number == 0 else VALUES[kind](rng)} for number in range(6)]
        bad = [{"id": 100 + number, "x": other if number == 3 else VALUES[kind](rng)} for number in range(6)]
        suffix = "csv" if text else "jsonl"
        write(self.folder / f"good.{suffix}", rows, text)
        write(self.folder / f"bad.{suffix}", bad, text)
        write(self.folder / f"more.{suffix}", [{**row, "id": row["id"] + 200} for row in rows], text)
        for to in FORMATS:
            dataset = f"differ-{to}"
            self.run("convert", f"good.{suffix}", "--out", dataset, "--to", to)
            before = self.live(dataset)
            self.run("convert", f"bad.{suffix}", "--out", dataset, codes=(INPUT,))
            expect(f"shards after a refused day ({kind}, {other!r})", self.live(dataset), before)
            self.run("convert", f"bad.{suffix}", "--out", dataset, "--on-schema", "union")
            self.run("convert", f"more.{suffix}", "--out", dataset)
            before = self.values(to, dataset)
            self.run("compact", dataset, "--min-inputs", "2")
            expect(f"values of {to} after a merge ({kind}, {other!r})", self.values(to, dataset), before)
            self.run("verify", dataset, "--read-data")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shardify", default="target/release/shardify", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds, failed = collections.Counter(), []
    for number in range(options.rounds):
        kind = "differ" if number % 3 == 2 else "agree"
        with tempfile.TemporaryDirectory() as folder:
            try:
                getattr(Round(options.shardify.resolve(), folder, options.seed * 1_000_003 + number), kind)()
            except Failure as failure:
                failed.append(f"round {number} ({kind}): {str(failure)[:1500]}")
                print(failed[-1], flush=True)
            except (pa.ArrowException, duckdb.Error, polars.exceptions.PolarsError) as refused:
                failed.append(f"round {number} ({kind}): a reader refuses the shards: {type(refused).__name__}: {str(refused)[:300]}")
                print(failed[-1], flush=True)
        kinds[kind] += 1
    print(f"{options.rounds} rounds ({dict(kinds)}), {len(failed)} failed")
    if failed:
        raise Failure(f"{len(failed)} of {options.rounds} rounds")


if __name__ == "__main__":
    finish(main)
