#!/usr/bin/env python3
"""`check` decides rules as DuckDB does over the live rows.

Makes a table with nulls, NaN, times, texts and repeated values, converts it to every format in runs, removes one of them, and holds the
numbers of random rules against DuckDB: nulls, values beyond a bound, other than accepted, that do not match, that repeat, and groups on two
sides. A rule fails exactly where DuckDB counts a record that breaks it. Memory is small, so that fingerprints go to disk.

    python3 scripts/checks/rules_check.py --shardify target/release/shardify [--rounds N] [--rows N]
"""

import argparse
import pathlib
import random
import tempfile

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from harness import FORMATS, Shardify, expect, finish

TEXTS = ["", "a", "é", "日本", "x y", "b" * 30]


def table(first, rows, rng):
    maybe = lambda value: None if rng.random() < 0.1 else value
    return pa.table({
        "id": pa.array(range(first, first + rows), pa.int64()),
        "whole": pa.array([maybe(rng.randrange(-50, 900)) for _ in range(rows)], pa.int32()),
        "x": pa.array([float("nan") if rng.random() < 0.01 else maybe(rng.gauss(5, 2)) for _ in range(rows)], pa.float64()),
        "day": pa.array([maybe(rng.randrange(19_000, 20_000)) for _ in range(rows)], pa.date32()),
        "word": pa.array([maybe(rng.choice(TEXTS)) for _ in range(rows)], pa.string()),
        "who": pa.array([f"P-{rng.randrange(rows // 3)}" for _ in range(rows)], pa.string()),
        "side": pa.array([rng.choice(["train", "train", "test"]) for _ in range(rows)], pa.string()),
    })  # fmt: skip


def rules(rng):
    """A file of rules, and for each rule the SQL that counts the records which break it."""
    low, high, share = rng.randrange(-60, 100), rng.randrange(700, 1000), rng.choice([0.05, 0.1, 0.2])
    bound, day = round(rng.uniform(-2, 4), 3), rng.choice(["2022-01-09", "2023-05-01", "2024-10-04"])
    words = rng.sample(TEXTS, 4)
    accepted = ", ".join(f"'{word}'" for word in words)
    text = f"""
[columns.whole]
not_null = true
max_null_share = {share}
min = {low}
max = {high}
[columns.x]
min = {bound}
max = 9.5
[columns.day]
min = {day}
unique = true
[columns.word]
accepted_values = [{", ".join(repr(word) for word in words)}]
pattern = "^[a-z]"
[columns.id]
unique = true
[splits]
by = "who"
column = "side"
"""
    queries = {
        ("whole", "not_null"): "count(*) FILTER (whole IS NULL)",
        ("whole", "min"): f"count(*) FILTER (whole < {low})",
        ("whole", "max"): f"count(*) FILTER (whole > {high})",
        ("x", "min"): f"count(*) FILTER (x < {bound} OR isnan(x))",
        ("x", "max"): "count(*) FILTER (x > 9.5)",
        ("day", "min"): f"count(*) FILTER (day < DATE '{day}')",
        ("day", "unique"): "count(day) - count(DISTINCT day)",
        ("word", "accepted_values"): f"count(*) FILTER (word NOT IN ({accepted}))",
        ("word", "pattern"): "count(*) FILTER (NOT regexp_matches(word, '^[a-z]'))",
        ("id", "unique"): "count(id) - count(DISTINCT id)",
    }
    return text, share, queries


def check(shardify, dataset, live, folder, rng):
    """Compares a dataset with its rows; returns the number of comparisons."""
    text, share, queries = rules(rng)
    (folder / "rules.toml").write_text(text)
    code, objects, errors = shardify.run("check", dataset, "--rules", folder / "rules.toml", "--memory", "64MiB")
    found = {(one.get("column"), one["rule"]): one for one in objects if one["type"] == "rule"}
    database = duckdb.connect()
    database.register("live", live)
    count = lambda query: database.execute(f"SELECT {query} FROM live").fetchone()[0]
    for key, query in queries.items():
        broken = count(query)
        rule = found[key]
        expect(f"{key} of {dataset}", rule.get("failed_records", 0) or 0, broken)
        expect(f"status of {key}", rule["status"], "fail" if broken else "pass")
    nulls = count("count(*) FILTER (whole IS NULL) / count(*)")
    expect("share of nulls", found["whole", "max_null_share"]["status"], "fail" if nulls > share else "pass")
    leaks = database.execute("SELECT count(*) FROM (SELECT who FROM live GROUP BY who HAVING count(DISTINCT side) > 1)").fetchone()[0]
    expect("leaks", found["who", "splits.leaks"]["value"], leaks)
    expect("exit code", code, 1 if any(one["status"] == "fail" for one in found.values()) else 0)
    summary = objects[-1]
    expect("records", summary["records"], live.num_rows)
    return len(queries) + 3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rows", type=int, default=4000)
    options = parser.parse_args()
    shardify = Shardify(options.shardify)
    compared = 0
    for number in range(options.rounds):
        rng = random.Random(number)
        with tempfile.TemporaryDirectory(prefix="rules_check.") as temporary:
            folder = pathlib.Path(temporary)
            (folder / "in").mkdir()
            tables = [table(part * options.rows - rng.choice([0, 0, 7]) * part, options.rows, rng) for part in range(3)]
            for format in FORMATS:
                dataset = folder / format
                for part, rows in enumerate(tables):
                    pq.write_table(rows, folder / "in" / f"{part}.parquet", row_group_size=rng.choice([500, 5000]))
                    shardify.ok("convert", folder / "in" / f"{part}.parquet", "--out", dataset, "--to", format, "--target-shard", "60KiB")
                compared += check(shardify, dataset, pa.concat_tables(tables), folder, rng)
                shardify.ok("remove", dataset, "--source", "1.parquet")
                left = [tables[0], tables[2]]
                compared += check(shardify, dataset, pa.concat_tables(left), folder, rng)
                if format == "parquet":
                    shardify.ok("compact", dataset, "--min-inputs", "2")
                    compared += check(shardify, dataset, pa.concat_tables(left), folder, rng)
    print(f"{compared} rules are decided as DuckDB decides them")
    return 0


finish(main)
