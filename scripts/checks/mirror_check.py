#!/usr/bin/env python3
"""Delta logs (`--index delta`), as readers of Delta tables see them.

Random operations on a dataset (convert, adopt, compact, sort, erase, erase --all-versions, remove, revert, tag, vacuum). After each one,
`verify` is content, and the newest versions in delta-rs, and the newest one in DuckDB and Polars, hold exactly the rows of the live shards,
read by pyarrow; at the end every version that delta-rs can read does. Readers that are not installed are not run.
"""

import argparse
import json
import pathlib
import random
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

from duckdb_delta import DuckDB
from harness import Failure, finish, not_run, run

OPERATIONS = ["convert"] * 3 + ["compact", "sort", "erase", "erase all", "remove", "revert", "tag", "vacuum", "adopt"]


def readers():
    """Functions that give the rows of a table: at any version, and the newest one by other programs."""
    at, newest = None, {}
    try:
        import deltalake

        at = lambda folder, version: deltalake.DeltaTable(str(folder), version=version).to_pyarrow_table()
    except ImportError as why:
        not_run("delta-rs", why)
        return at, newest
    try:
        import polars

        newest["Polars"] = lambda folder: polars.scan_delta(str(folder)).collect().to_dicts()
    except ImportError as why:
        not_run("Polars", why)
    try:
        base = DuckDB()
        newest["DuckDB"] = lambda folder: base.scan(folder).to_pylist()
    except ImportError as why:
        not_run("DuckDB", why)
    return at, newest


def rows_of(rows, columns):
    value = lambda found: "nan" if found != found else found
    return sorted(json.dumps([value(row.get(column)) for column in columns], default=str) for row in rows)


class Round:
    def __init__(self, program, folder, seed):
        self.program, self.folder, self.rng = program, folder, random.Random(seed)
        self.dataset, self.numbers, self.sources, self.done = folder / "d", 0, 0, []

    def run(self, *words, codes=(0,)):
        return run(self.program, *words, codes=codes, folder=self.folder).decode()

    def source(self):
        extra = f",c{self.sources % 3}" if self.sources % 4 == 3 else ""
        lines = [f"pat,n,x,ts,t{extra}"]
        for _ in range(self.rng.randint(5, 60)):
            self.numbers += 1
            x, day, micros = self.rng.choice(["", "1.5", "nan", "-3.25"]), self.rng.randint(1, 9), self.rng.randint(0, 999999)
            end = f",{self.sources}" if extra else ""
            lines.append(f"P{self.rng.randint(1, 12)},{self.numbers},{x},2024-01-0{day}T00:00:00.{micros:06d},t{day}{end}")
        name = f"s{self.sources}.csv"
        (self.folder / name).write_text("\n".join(lines) + "\n")
        self.sources += 1
        return name

    def version(self):
        return json.loads(self.run("manifest", "d", "--json").splitlines()[-1])["version"]

    def step(self, operation):
        person = f"P{self.rng.randint(1, 12)}"
        self.done.append(operation)
        if operation == "convert":
            self.run("convert", self.source(), "--out", "d")
        elif operation == "adopt":
            place = self.folder / f"a{len(self.done)}"
            place.mkdir()
            number = 10**6 + len(self.done)
            pq.write_table(pa.table({"pat": ["Q"], "n": [number], "x": [float("nan")]}), place / "f.parquet")
            self.run("adopt", place.name, "--out", "d")
        elif operation == "compact":
            self.run("compact", "d", "--min-inputs", "2")
        elif operation == "sort":
            self.run("compact", "d", "--sort-by", "x")
        elif operation == "erase":
            self.run("erase", "d", "--subject", person, codes=(0, 1, 2))
        elif operation == "erase all":
            self.run("erase", "d", "--subject", person, "--all-versions", codes=(0, 1, 2))
        elif operation == "remove":
            self.run("remove", "d", "--source", f"s{self.rng.randrange(self.sources)}.csv", codes=(0, 1, 2))
        elif operation == "revert":
            # An older version may have been vacuumed.
            self.run("revert", "d", "--to", f"v{self.rng.randint(1, self.version())}", codes=(0, 1, 2))
        elif operation == "tag":
            self.run("manifest", "d", "--tag", f"t{len(self.done)}")
        elif operation == "vacuum" and self.rng.random() < 0.3:
            self.run("vacuum", "d", "--retain", "0s", "--force")

    def live(self, version):
        objects = map(json.loads, self.run("manifest", "d", "--list", "--at", f"v{version}", "--json").splitlines())
        paths = [found["path"] for found in objects if found["type"] == "shard"]
        return [row for path in paths for row in pq.ParquetFile(self.dataset / path).read().to_pylist()]

    def compare(self, at, newest, every):
        self.run("verify", "d")
        commits = sorted(int(path.stem) for path in (self.dataset / "_delta_log").glob("*.json"))
        if commits != list(range(commits[0], commits[-1] + 1)):
            raise Failure(f"{self.done}: expected commits without gaps, found {commits}")
        for version in commits if every else commits[-2:]:
            table = at(self.dataset, version)
            columns = table.column_names
            self.equal(f"delta-rs, version {version}", rows_of(table.to_pylist(), columns), rows_of(self.live(version + 1), columns))
        for name, read in newest.items():
            self.equal(name, rows_of(read(self.dataset), columns), rows_of(self.live(commits[-1] + 1), columns))
        text = "".join(path.read_text() for path in (self.dataset / "_delta_log").glob("*.json"))
        if any(f'"P{person}' in text for person in range(1, 13)):
            raise Failure(f"{self.done}: an id is in the log")
        return len(commits)

    def equal(self, reader, found, expected):
        if found != expected:
            raise Failure(f"{self.done}: {reader}: expected {len(expected)} rows, found {len(found)}, or other values")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    at, newest = readers()
    if at is None:
        return
    program = pathlib.Path(options.shardify).resolve()
    versions = 0
    for seed in range(options.seed, options.seed + options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            one = Round(program, pathlib.Path(folder), seed)
            one.run("convert", one.source(), "--to", "parquet", "--out", "d", "--index", "delta", "--id", "n", "--subject", "pat",
                    "--type", "x=float64", "--type", "ts=timestamp(us)")
            for step in range(options.steps):
                one.step(one.rng.choice(OPERATIONS))
                versions += one.compare(at, newest, step == options.steps - 1)
    print(f"{options.rounds} rounds of {options.steps} operations, {versions} commits; readers: delta-rs {' '.join(newest)}")


if __name__ == "__main__":
    finish(main)
