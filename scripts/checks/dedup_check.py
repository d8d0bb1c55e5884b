#!/usr/bin/env python3
"""`--dedup` omits the records that DuckDB's DISTINCT and DISTINCT ON omit, and keeps the first of each.

Makes tables of a few nasty values each (nulls, empty texts, NaN, both zeros, ends of ranges, 2^53 + 1, quotes, Unicode in two forms, nested values,
dates, instants, decimals), as Parquet, JSON Lines and CSV. Converts them to Parquet, tar and TFRecord with 1, 2 and 7 jobs, in one run and in
two, by content, by columns and by id. The origins that are left are those that DuckDB finds; of one run, the shards have the same bytes at any
number of jobs. `reshard --dedup` takes the same ones from a dataset that has them all. Each record that is omitted leads to the first of its group by `manifest --find-file`. Then samples: files, archives and tables
of samples, against a dictionary of their parts.

    python3 scripts/checks/dedup_check.py --shardify target/release/shardify [--rows N] [--rounds N] [--seed S]
"""

import argparse
import datetime as dt
import decimal
import hashlib
import itertools
import json
import math
import pathlib
import random
import shutil
import tempfile

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from harness import FORMATS, Failure, expect, finish, run

TEXTS = ["", "a", "A", "a ", "é", "e\u0301", "日本", 'a"b', "a,b", "a\nb", "null", "NaN", "1", "1.0", None]
INTS = [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), None]
FLOATS = [0.0, -0.0, 1.0, 0.1, math.nan, -math.nan, math.inf, -math.inf, 5e-324, float(2**53), None]
DAY, INSTANT = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 0, 1)
NESTED = [{"a": None, "b": []}, {"a": "", "b": [None]}, {"a": "x", "b": [1, 2]}, {"a": "x", "b": [2, 1]}, {"a": None, "b": None}, None]
COLUMNS = {
    "i": (pa.int64(), INTS),
    "u": (pa.uint64(), [0, 1, 2**64 - 1, None]),
    "f": (pa.float64(), FLOATS),
    "g": (pa.float32(), [0.0, -0.0, 0.5, math.nan, None]),
    "d": (pa.decimal128(20, 3), [decimal.Decimal(t) for t in ("0.000", "1.000", "1.500", "-1.500", "12345678901234567.125")] + [None]),
    "t": (pa.string(), TEXTS),
    "b": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [DAY, dt.date(1, 1, 1), None]),
    "at": (pa.timestamp("us"), [INSTANT, dt.datetime(1970, 1, 1), None]),
    "utc": (pa.timestamp("us", "UTC"), [INSTANT, dt.datetime(1970, 1, 1), None]),
    "bin": (pa.binary(), [b"", b"\0", b"a", None]),
    "s": (pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))]), NESTED),
    "l": (pa.list_(pa.float64()), [[], [None], [0.0, math.nan], [-0.0, math.nan], [1.0], None]),
}
# Columns that delimited text and JSON can state.
PLAIN = {"csv": ["i", "t", "day", "d"], "jsonl": ["i", "t", "b", "s"], "parquet": list(COLUMNS)}


def table(rng, form, rows):
    """Rows of a few columns; about half of them repeat others. `id` repeats, too."""
    chosen = rng.sample(PLAIN[form], min(3, len(PLAIN[form])))
    some = {name: rng.sample(COLUMNS[name][1], min(len(COLUMNS[name][1]), 7)) for name in chosen}
    columns = {name: pa.array([rng.choice(values) for _ in range(rows)], COLUMNS[name][0]) for name, values in some.items()}
    columns["id"] = pa.array([rng.choice([None, 1, 2, 3]) for _ in range(rows)], pa.int64())
    return pa.table(columns), chosen


def write(folder, name, form, rows):
    path = folder / f"{name}.{form}"
    if form == "parquet":
        pq.write_table(rows, path, row_group_size=97)
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.to_pylist()))
    else:
        quote = lambda value: "" if value is None else '"' + str(value).replace('"', '""') + '"'
        lines = [",".join(rows.column_names)] + [",".join(quote(value) for value in row.values()) for row in rows.to_pylist()]
        path.write_text("\n".join(lines) + "\n")
    return path


def export(shardify, dataset):
    return [json.loads(line) for line in run(shardify, "manifest", dataset, "--export", "jsonl").decode().splitlines()]


def origins(shardify, dataset):
    return sorted((row["source"], row["row"] or 0) for row in export(shardify, dataset))


def wanted(shardify, folder, sources, form, columns):
    """The first record of the group of each record, by DuckDB: of the inputs if they are Parquet, else of what was read of them."""
    if form == "parquet":
        paths = [str(path) for path in sources]
        all_origins = [(path.name, row + 1) for path in sources for row in range(pq.read_metadata(path).num_rows)]
    else:
        plain = folder / f"plain-{len(list(folder.iterdir()))}"
        run(shardify, "convert", *sources, "--out", plain)
        paths = run(shardify, "manifest", plain, "--list", "--paths").decode().splitlines()
        all_origins = [(row["source"], row["row"]) for row in export(shardify, plain)]
    for number, path in enumerate(paths):
        more = f"select * exclude (file_row_number), {number} as file, file_row_number as line from read_parquet('{path}', file_row_number = true)"
        duckdb.execute(f"create or replace table rows as {more}" if number == 0 else f"insert into rows by name {more}")
    firsts = {}
    for mode, by in {"content": "* exclude (file, line)", **columns}.items():
        names = [c for (c,) in duckdb.execute("select column_name from (describe rows)").fetchall() if c not in ("file", "line", "place")]
        keys = ", ".join(f'"{name}"' for name in (names if mode == "content" else by))
        ordered = f"select row_number() over (order by file, line) - 1 as place, * exclude (file, line) from rows"
        first = f"min(place) over (partition by {keys})"
        query = f"select place, {f'if(id is null, place, {first})' if mode == 'id' else first} from ({ordered}) order by place"
        firsts[mode] = {all_origins[place]: all_origins[first] for place, first in duckdb.execute(query).fetchall()}
        distinct = f"select count(*) from (select distinct {keys} from rows)"
        if mode != "id":
            expect(f"groups of {mode}", len(set(firsts[mode].values())), duckdb.execute(distinct).fetchone()[0])
    return firsts


def same(what, found, want):
    if found != want:
        more, less = sorted(set(found) - set(want))[:5], sorted(set(want) - set(found))[:5]
        raise Failure(f"{what}: expected {len(want)} origins, found {len(found)}; {more} are too many, {less} are missing")


def counted(text):
    summary = json.loads(text.decode().splitlines()[-1])
    parts = {part: summary.get(f"records_{part}", 0) for part in ("in", "out", "rejected", "deduplicated", "filtered")}
    expect("the sum of the counts", sum(parts.values()), 2 * parts["in"])
    return parts


def digest(shardify, dataset):
    paths = run(shardify, "manifest", dataset, "--list", "--paths").decode().splitlines()
    return [hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() for path in paths]


def look_at_rows(shardify, folder, rng, form, rows, formats):
    first, chosen = table(rng, form, rows)
    both = [write(folder, "one", form, first.slice(0, rows // 3)), write(folder, "two", form, first.slice(rows // 3))]
    columns = rng.sample(chosen, 2)
    firsts = wanted(shardify, folder, both, form, {",".join(columns): columns, "id": ["id"]})
    for to, (mode, first_of) in itertools.product(formats, firsts.items()):
        want = sorted(set(first_of.values()))
        what, shards = f"{form} to {to} by {mode}", {}
        words = ["--to", to, *(["--id", "id"] if mode == "id" else []), "--dedup", mode, "--target-shard", "64KiB", "--memory", "64MiB", "--json"]
        for jobs in (1, 2, 7):
            out = folder / f"{form}-{to}-{jobs}-{mode}"
            counts = counted(run(shardify, "convert", *both, "--out", out, "--jobs", str(jobs), *words))
            same(f"{what}, {jobs} jobs", origins(shardify, out), want)
            expect(f"{what}, records omitted", counts["deduplicated"], rows - len(want))
            shards[jobs] = digest(shardify, out)
        if len(set(map(tuple, shards.values()))) != 1:
            raise Failure(f"{what}: shards differ by the number of jobs")
        out = folder / f"{form}-{to}-twice-{mode}"
        run(shardify, "convert", both[0], "--out", out, *words)
        run(shardify, "convert", both[1], "--out", out)
        same(f"{what}, in two runs", origins(shardify, out), want)
        # Samples of one tar cannot have one key twice.
        if (to, mode) != ("tar", "id"):
            cut_anew(shardify, folder, f"{what}, by reshard", both, words, mode, want)
        look_up(shardify, folder, what, (folder / f"{form}-{to}-7-{mode}", out), first_of)
        run(shardify, "verify", out, "--read-data")
    return len(set(firsts["content"].values()))


def cut_anew(shardify, folder, what, sources, words, mode, want):
    """`reshard --dedup` takes the same records from a dataset of two runs that has all of them."""
    whole, out = folder / "whole", folder / "anew"
    at = words.index("--dedup")
    for source in sources:
        run(shardify, "convert", source, "--out", whole, *(words[:at] + words[at + 2 :]))
    for jobs in (1, 3):
        counts = counted(run(shardify, "reshard", whole, "--out", out, "--dedup", mode, "--jobs", str(jobs), "--memory", "64MiB", "--json"))
        same(f"{what}, {jobs} jobs", origins(shardify, out), want)
        expect(f"{what}, records omitted", counts["deduplicated"], counts["in"] - len(want))
        run(shardify, "verify", out, "--read-data")
        shutil.rmtree(out)
    shutil.rmtree(whole)


def look_up(shardify, folder, what, datasets, first_of):
    """Each record that was omitted leads to the first of its group."""
    gone = {f"{source}#{row}": first for (source, row), first in first_of.items() if (source, row) != first}
    ids = folder / "gone.txt"
    ids.write_text("".join(f"{origin}\n" for origin in gone))
    for dataset in datasets if gone else ():
        found = [json.loads(line) for line in run(shardify, "manifest", dataset, "--find-file", ids, "--json").decode().splitlines()]
        found = {one["id"]: one["of"]["origin"] for one in found if one["type"] == "duplicate"}
        expect(f"{what}, what was omitted", {id: (of["source"], of["row"]) for id, of in found.items()}, gone)


def look_at_samples(shardify, folder, rng):
    tree = folder / "tree"
    extensions = ["txt", "cls", "seg.txt"]
    for number in range(300):
        place = tree / str(number % 3)
        place.mkdir(parents=True, exist_ok=True)
        for extension in rng.sample(extensions, rng.randint(1, 3)):
            (place / f"s{number:03}.{extension}").write_bytes(rng.choice([b"", b"a", b"ab", b"1", "é".encode()]))
    plain = folder / "samples"
    run(shardify, "convert", tree, "--out", plain)
    keys = [row["record_id"] for row in export(shardify, plain)]
    firsts = {}
    for key in keys:
        parts = sorted((path.name.split(".", 1)[1], path.read_bytes()) for path in tree.glob(f"{key}.*"))
        firsts.setdefault(tuple(parts), key)
    run(shardify, "convert", tree, "--out", folder / "samples-parquet", "--to", "parquet")
    for number, source in enumerate([tree, plain, folder / "samples-parquet"]):
        for to in ("tar", "parquet"):
            for jobs in (1, 2, 7):
                out = folder / f"samples-{number}-{to}-{jobs}"
                run(shardify, "convert", source, "--out", out, "--to", to, "--dedup", "content", "--jobs", str(jobs))
                found = sorted(row["record_id"] for row in export(shardify, out))
                same(f"samples of {source.name} to {to}, {jobs} jobs", found, sorted(firsts.values()))
    return len(firsts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for number in range(options.rounds):
        rng = random.Random(options.seed + number)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for form in PLAIN:
                left = look_at_rows(options.shardify, folder, rng, form, options.rows, FORMATS)
                print(f"round {number}, {form}: {left} of {options.rows} rows differ, in every format", flush=True)
            left = look_at_samples(options.shardify, folder, rng)
            print(f"round {number}, samples: {left} of 300 differ", flush=True)


if __name__ == "__main__":
    finish(main)
