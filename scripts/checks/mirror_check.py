#!/usr/bin/env python3
"""Delta logs (`--index delta`), as readers of Delta tables see them.

Random operations on a dataset (convert, adopt, compact, divide, sort, Z-order, erase, erase --all-versions, remove, revert, tag, vacuum); every
second dataset is divided (`--split`), so that its table has a partition. After each operation, `verify` is content, and delta-rs, DuckDB,
Polars, ClickHouse and Sail find exactly the rows of the live shards, read by pyarrow, in the versions that it made; at the end they do in
every version that the log still has, the newest by default and the others by number. Readers that are not installed are not run.

`--types` takes a table of one column for each type, and fails where a reader does anything else than docs/CORRECTNESS.md says.
"""

import argparse
import datetime
import decimal
import json
import pathlib
import random
import tempfile
import time
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

from delta_readers import PLACES, Reader
from harness import Failure, finish, not_run, run

OPERATIONS = ["convert"] * 3 + ["compact", "divide", "sort", "zorder", "erase", "erase all", "remove", "revert", "tag", "vacuum", "adopt"]
PARTS = ["--split", "train=0.8,val=0.2"]
# What a reader says by mistake of a version before the newest checkpoint, in a log that does not begin with version 0: Sail 0.7.2 does of logs
# that delta-rs alone has written and cleaned, too.
REFUSALS = {"Sail": "Missing commit file: expected version 0"}


def by_delta_rs():
    import deltalake

    return lambda folder, version: deltalake.DeltaTable(str(folder), version=version).to_pyarrow_table()


def by_polars():
    import deltalake  # noqa: F401
    import polars

    return lambda folder, version: polars.scan_delta(str(folder), version=version).collect().to_arrow()


def other(name):
    reader = Reader(name)
    return lambda folder, version: reader.scan(folder, version=version)


def readers(chosen):
    """Functions that give the rows of a version of a table, or of the newest, by the name of the program."""
    found = {}
    known = {"delta-rs": by_delta_rs, "Polars": by_polars, **{name: lambda name=name: other(name) for name in PLACES}}
    for name in chosen or known:
        try:
            found[name] = known[name]()
        except ImportError as why:
            not_run(name, why)
    return found


def plain(value):
    """A value as all readers give it: NaN equals NaN, and some readers say of times without a zone that they are UTC."""
    if isinstance(value, datetime.datetime) and value.tzinfo:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if isinstance(value, uuid.UUID):
        value = value.bytes
    return "nan" if value != value else value


def rows_of(rows, columns):
    return sorted(json.dumps([plain(row.get(column)) for column in columns], default=str) for row in rows)


class Round:
    def __init__(self, program, folder, seed):
        self.program, self.folder, self.seed, self.rng = program, folder, seed, random.Random(seed)
        self.dataset, self.numbers, self.sources, self.done = folder / "d", 0, 0, []
        self.parts, self.seen, self.scans, self.refused = PARTS if seed % 2 == 0 else [], -1, 0, {}

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
            # A divided dataset does not adopt.
            self.run("adopt", place.name, "--out", "d", codes=(2,) if self.parts else (0,))
        elif operation == "compact":
            self.run("compact", "d", "--min-inputs", "2")
        elif operation == "divide":
            self.run("compact", "d", "--target-shard", self.rng.choice(["1KiB", "2KiB"]))
        elif operation == "sort":
            self.run("compact", "d", "--sort-by", "x")
        elif operation == "zorder":
            self.run("compact", "d", "--zorder", "x,ts")
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
        """Rows of the live shards of a version, with the values of their partitions."""
        objects = map(json.loads, self.run("manifest", "d", "--list", "--at", f"v{version}", "--json").splitlines())
        rows = []
        for path in (found["path"] for found in objects if found["type"] == "shard"):
            parts = dict(part.split("=") for part in path.split("/") if "=" in part)
            rows += [{**row, **parts} for row in pq.ParquetFile(self.dataset / path).read().to_pylist()]
        return rows

    def compare(self, readers, every):
        """Compares the versions that are new since the last call, or every one; returns how many."""
        self.run("verify", "d")
        commits = sorted(int(path.stem) for path in (self.dataset / "_delta_log").glob("*.json"))
        if commits != list(range(commits[0], commits[-1] + 1)):
            raise Failure(f"{self.done}: expected commits without gaps, found {commits}")
        fresh = [version for version in commits if version > self.seen]
        self.is_cleaned = commits[0] > 0
        for version in commits if every else fresh or commits[-1:]:
            rows = self.live(version + 1)
            # Rows that are newest are also read as a reader does that is told no version.
            wanted = [version, None] if version == commits[-1] else [version]
            for name, read in readers.items():
                for at in wanted:
                    self.equal(name, version, at, read, rows)
        self.seen = commits[-1]
        text = "".join(path.read_text() for path in (self.dataset / "_delta_log").glob("*.json"))
        if any(f'"P{person}' in text for person in range(1, 13)):
            raise Failure(f"{self.done}: an id is in the log")
        return len(fresh)

    def equal(self, name, version, at, read, rows):
        which = f"seed {self.seed}, {self.done}: {name}, version {version}{', as the newest' if at is None else ''}"
        try:
            table = read(self.dataset, at)
        except Exception as why:
            if at is not None and self.is_cleaned and str(why).startswith(REFUSALS.get(name, "nothing")):
                self.refused[name] = self.refused.get(name, 0) + 1
                return
            raise Failure(f"{which}: {why}") from why
        self.scans += 1
        columns = sorted({column for row in rows for column in row})
        # A column of shards that are not live any more stays in the table.
        more = [column for column in table.column_names if column not in columns]
        if lacking := set(columns) - set(table.column_names):
            raise Failure(f"{which}: no columns {lacking}")
        found, expected = rows_of(table.to_pylist(), columns + more), rows_of(rows, columns + more)
        if found != expected:
            pair = next(((a, b) for a, b in zip(found, expected) if a != b), "")
            raise Failure(f"{which}: expected {len(expected)} rows, found {len(found)}; the first that differs: {pair}")


def types():
    """A type, and values of it, by name."""
    moment, number, tiny = datetime.datetime(2024, 1, 1, 0, 0, 1, 1000), decimal.Decimal, datetime.timedelta(microseconds=1)
    with_zone = moment.replace(tzinfo=datetime.timezone.utc)
    whole = {f"int{bits}": (getattr(pa, f"int{bits}")(), [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]) for bits in (8, 16, 32, 64)}
    return {
        **whole,
        "bool": (pa.bool_(), [True, False]),
        "float32": (pa.float32(), [1.5, float("nan")]),
        "float64": (pa.float64(), [-0.0, float("inf")]),
        "text": (pa.string(), ["", "\u00e4\0b"]),
        "large text": (pa.large_string(), ["a", "b"]),
        "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", "b"]),
        "JSON": (pa.json_(), ['{"a": 1}', "[1]"]),
        "binary": (pa.binary(), [b"\xff\0", b""]),
        "fixed binary": (pa.binary(4), [b"\xff\0ab", b"abcd"]),
        "UUID": (pa.uuid(), [uuid.UUID(int=5).bytes, uuid.UUID(int=2**127).bytes]),
        "date": (pa.date32(), [datetime.date(1582, 10, 4), datetime.date(9999, 12, 31)]),
        "decimal of 9": (pa.decimal128(9, 2), [number("1.23"), number("-9999999.99")]),
        "decimal of 18": (pa.decimal128(18, 4), [number("1.2345"), number("-99999999999999.9999")]),
        "decimal of 38": (pa.decimal128(38, 10), [number("1.2345000000"), number("-9999999999999999999999999999.9999999999")]),
        "s": (pa.timestamp("s"), [moment.replace(microsecond=0)]),
        "ms": (pa.timestamp("ms"), [moment]),
        "us": (pa.timestamp("us"), [moment + tiny, datetime.datetime(1, 1, 1), datetime.datetime(1600, 1, 1) + tiny, datetime.datetime.max]),
        "ms UTC": (pa.timestamp("ms", "UTC"), [with_zone]),
        "us UTC": (pa.timestamp("us", "UTC"), [with_zone + tiny]),
        "us of a place": (pa.timestamp("us", "Europe/Berlin"), [with_zone + tiny]),
        "list": (pa.list_(pa.int64()), [[1, None], []]),
        "large list": (pa.large_list(pa.string()), [["a"], []]),
        "fixed list": (pa.list_(pa.float32(), 2), [[1.5, 2.5], [0.0, 1.0]]),
        "list of lists": (pa.list_(pa.list_(pa.int32())), [[[1], []], [[2, 3]]]),
        "list of structs": (pa.list_(pa.struct({"a": pa.int64()})), [[{"a": 1}], [{"a": None}]]),
        "struct": (pa.struct({"a": pa.int64(), "b": pa.string()}), [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
        "struct of a list": (pa.struct({"a": pa.list_(pa.float64())}), [{"a": [1.0]}, {"a": []}]),
        "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("b", None)]]),
    }


# What readers make of types, where that is not the values.
DIFFERENT = {
    ("Polars", "JSON"): "refused",
    ("Polars", "fixed list"): "refused",
    ("Sail", "fixed list"): "refused",
    ("ClickHouse", "UUID"): "other values",
    **{("ClickHouse", name): "nulls are empty" for name in types() if "list" in name or name in ("struct", "map")},
}


def outcome(read, folder, values):
    """What a reader makes of a column `v`, whose last value is null."""
    as_read = lambda value: list(map(as_read, value)) if isinstance(value, (list, tuple)) else plain(value)
    pairs = lambda value: list(value.items()) if isinstance(value, dict) else value
    try:
        found = read(folder, None).sort_by("n")["v"].to_pylist()
    except Exception as why:
        return "refused", str(why)
    found, expected = ([as_read(pairs(value)) for value in some] for some in (found, values))
    if found == expected:
        return "equal", ""
    return "nulls are empty" if found[:-1] == expected[:-1] else "other values", f"expected {expected}, found {found}"


def check_types(program, readers):
    seen = {}
    for name, (kind, values) in types().items():
        with tempfile.TemporaryDirectory() as folder:
            place, values = pathlib.Path(folder), [*values, None]
            array = pa.array(values, kind.storage_type).cast(kind) if isinstance(kind, pa.BaseExtensionType) else pa.array(values, kind)
            pq.write_table(pa.table({"n": range(len(values)), "v": array}), place / "f.parquet")
            run(program, "convert", "f.parquet", "--out", "d", "--index", "delta", folder=place)
            for reader, read in readers.items():
                seen[reader, name] = outcome(read, place / "d", values)
    for (reader, name), (found, why) in seen.items():
        if found != (expected := DIFFERENT.get((reader, name), "equal")):
            raise Failure(f"{reader}, a column of type {name}: expected it to be {expected}, found {found}: {why}")
    different = [f"{reader}: {name}: {found}" for (reader, name), (found, _) in seen.items() if found != "equal"]
    print(f"{len(types())} types in {len(readers)} readers, of {len(seen)} columns {len(different)} are not equal: {'; '.join(different)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--readers", nargs="*", help="only these")
    parser.add_argument("--types", action="store_true", help="also read a column of each type")
    options = parser.parse_args()
    others = readers(options.readers)
    program = pathlib.Path(options.shardify).resolve()
    versions, scans, refused = 0, 0, {}
    if options.types:
        check_types(program, others)
    for seed in range(options.seed, options.seed + options.rounds):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            one = Round(program, pathlib.Path(folder), seed)
            one.run("convert", one.source(), "--to", "parquet", "--out", "d", "--index", "delta", "--id", "n", "--subject", "pat",
                    "--type", "x=float64", "--type", "ts=timestamp(us)", *one.parts)
            new = 0
            for step in range(options.steps):
                one.step(one.rng.choice(OPERATIONS))
                new += one.compare(others, step == options.steps - 1)
            versions, scans = versions + new, scans + one.scans
            refused.update({name: refused.get(name, 0) + count for name, count in one.refused.items()})
            left = len(list((one.dataset / "_delta_log").glob("*.json")))
        print(f"seed {seed}{', divided' if one.parts else ''}: {options.steps} operations, {one.seen + 1} versions, {new} read when they were new, "
              f"{left} of them again at the end, {one.scans} scans, {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{options.rounds} rounds of {options.steps} operations, {versions} versions, {scans} scans; readers: {' '.join(others)}")
    for name, count in refused.items():
        print(f"{name} refused {count} scans of old versions of a log that was cleaned")


if __name__ == "__main__":
    finish(main)
