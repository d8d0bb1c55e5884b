#!/usr/bin/env python3
"""`manifest --diff` tells changed records from unchanged ones as DuckDB does, whether their hashes are stored or not.

Makes tables of a few nasty values each (nulls, NaN, both zeros, ends of ranges, Unicode in two forms, nested values, decimals, instants), takes them
in, changes, removes and adds rows, and takes them in again (`--on-changed replace`), with `--hash-records` or without, with ids or by origin, private
or not; merges, sorts or cuts the shards in between. The records that `manifest --diff` reports as changed, added and removed, in both directions, are
those that `IS DISTINCT FROM` finds between the shards of both versions.

    python3 scripts/checks/diff_check.py --shardify target/release/shardify [--rows N] [--rounds N] [--seed S]
"""

import argparse
import json
import pathlib
import random
import tempfile

import duckdb
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from dedup_check import COLUMNS
from harness import expect, finish, run

BETWEEN = [None, ["compact", "--min-inputs", "2", "--target-shard", "1GiB"], ["compact", "--sort-by", "id"], ["compact", "--target-shard", "2KiB"]]


def table(rng, names, ids):
    some = {name: rng.sample(COLUMNS[name][1], min(len(COLUMNS[name][1]), 5)) for name in names}
    columns = {name: pa.array([rng.choice(some[name]) for _ in ids], COLUMNS[name][0]) for name in names}
    return pa.table({"id": pa.array(ids, pa.string()), **columns})


def changed(rng, rows, names, ids):
    """Some rows have other values or are gone, and there are new ones; the order may be another."""
    again = table(rng, names, ids)
    taken = [number for number in range(len(ids)) if rng.random() > 0.05]
    if rng.random() < 0.5:
        rng.shuffle(taken)
    old, new = rows.take(taken), again.take(taken)
    masks = {name: pa.array([rng.random() < 0.2 for _ in taken]) for name in names}
    columns = {name: pa.array([new[name][i].as_py() if masks[name][i].as_py() else old[name][i].as_py() for i in range(len(taken))],
                              COLUMNS[name][0]) for name in names}
    kept = pa.table({"id": old["id"], **columns})
    return pa.concat_tables([kept, table(rng, names, [f"new-{number}" for number in range(rng.randrange(9))])])


def write(form, path, rows):
    pq.write_table(rows, path) if form == "parquet" else pc.write_csv(rows, path)


def shards(binary, dataset, version, key):
    listed = run(binary, "manifest", dataset, "--list", "--json", "--at", version, *key)
    objects = [json.loads(line) for line in listed.splitlines()]
    return [str(dataset / found["path"]) for found in objects if found["type"] == "shard"]


def differences(first, second, names):
    """Ids that DuckDB finds changed, only in the first and only in the second."""
    read = lambda files: f"read_parquet({files!r}, union_by_name = true)"
    distinct = " or ".join(f'a."{name}" is distinct from b."{name}"' for name in names)
    both = f"{read(first)} a full join {read(second)} b on a.id = b.id"
    query = f"select coalesce(a.id, b.id), a.id is null, b.id is null from {both} where a.id is null or b.id is null or {distinct}"
    found = duckdb.sql(query).fetchall()
    pick = lambda which: {row[0] for row in found if which(row)}
    return pick(lambda row: not row[1] and not row[2]), pick(lambda row: row[2]), pick(lambda row: row[1])


def one_round(binary, folder, rng, rows, number):
    form = rng.choice(["parquet", "parquet", "csv"])
    names = rng.sample(list(COLUMNS) if form == "parquet" else ["t", "day", "b"], 3)
    ids = [f"r-{at:05}" for at in range(rows)]
    source, dataset = folder / f"in-{number}", folder / f"d-{number}"
    source.mkdir()
    (folder / "key").write_bytes(bytes(range(32)))
    key = ["--id-key", folder / "key"] if rng.random() < 0.3 else []
    made = ["--id-mode", "sealed", *key] if key else []
    before = table(rng, names, ids)
    write(form, source / f"a.{form}", before)
    # Names and types do not change: only the values do.
    options = ["--id", "id", "--out", dataset, "--target-shard", rng.choice(["2KiB", "1MiB"]), "--on-changed", "replace"]
    run(binary, "convert", source, *options, *made)
    write(form, source / f"a.{form}", changed(rng, before, names, ids))
    hashed = ["--hash-records"] if rng.random() < 0.5 else []
    run(binary, "convert", source, *options, *key, *hashed)
    between = rng.choice(BETWEEN)
    if between:
        run(binary, between[0], dataset, *between[1:])
    history = run(binary, "manifest", dataset, "--history", "--json", *key)
    newest = f"v{max(json.loads(line).get('version') or 0 for line in history.splitlines())}"
    expected = differences(shards(binary, dataset, "v1", key), shards(binary, dataset, newest, key), names)
    what = f"round {number} ({form}, {names}, {bool(key)}, {hashed}, {between})"
    for one, other, wanted in (("v1", newest, expected), (newest, "v1", (expected[0], expected[2], expected[1]))):
        told = [json.loads(line) for line in run(binary, "manifest", dataset, "--diff", one, other, "--json", *key).splitlines()]
        found = {change: set() for change in ("changed", "removed", "added")}
        for record in told:
            if record["type"] == "record":
                found[record["change"]].add(record["record_id"])
        expect(f"{what}: {one} to {other}", tuple(found.values()), wanted)
        summary, same = told[-1], len(ids) - len(wanted[0]) - len(expected[1])
        expect(f"{what}: rewritten", summary["records_rewritten"], same)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", type=pathlib.Path, default=pathlib.Path("target/release/shardify"))
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="diff-check-") as place:
        for number in range(arguments.rounds):
            one_round(arguments.shardify, pathlib.Path(place), random.Random(f"{arguments.seed}/{number}"), arguments.rows, number)
    print(f"{arguments.rounds} rounds: the changes are those that DuckDB finds")


if __name__ == "__main__":
    finish(main)
