#!/usr/bin/env python3
"""`report` states the numbers that DuckDB computes over the live shards.

Makes a table with nulls, NaN, both infinities, times, texts beyond ASCII and hostile names, converts it in three runs, removes one of them,
merges, and erases some records, so that some shards have rows that are not live. After each step the numbers of `report --json` that are
stated as exact must be DuckDB's over the live rows: records, nulls, least and greatest values; and, since all rows are read, bins of
histograms and frequent values. Then it does the same with more rows than are sampled, where counts, nulls and ranges must still be exact.

    python3 scripts/checks/report_check.py --shardify target/release/shardify [--rows N] [--shots FOLDER]

Headless Chromium opens the page at 400 and 1,400 pixels, light and dark: nothing may be wider than the window. With --shots, the
pictures are kept.
"""

import argparse
import math
import pathlib
import random
import tempfile

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import pages
from harness import Failure, Shardify, expect, finish

HOSTILE = "<script>alert('x')</script>"
TEXTS = ["", "a", "é", "日本", "</script>", "a&b", 'say "x"', "z" * 40]


def table(first, rows, seed):
    rng = random.Random(f"{seed} {first}")
    maybe = lambda value: None if rng.random() < 0.1 else value
    floats = [0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf"), 1e300]
    return pa.table({
        "id": pa.array(range(first, first + rows), pa.int64()),
        "whole": pa.array([maybe(rng.randrange(-50, 900)) for _ in range(rows)], pa.int32()),
        "few": pa.array([maybe(rng.randrange(5)) for _ in range(rows)], pa.int8()),
        "x": pa.array([maybe(rng.choice(floats) if rng.random() < 0.1 else rng.gauss(5, 2)) for _ in range(rows)], pa.float64()),
        "money": pa.array([maybe(round(rng.random() * 1000, 2)) for _ in range(rows)], pa.float64()).cast(pa.decimal128(12, 2), safe=False),
        "at": pa.array([maybe(rng.randrange(10**15)) for _ in range(rows)], pa.timestamp("us")),
        "day": pa.array([maybe(rng.randrange(20_000)) for _ in range(rows)], pa.date32()),
        "flag": pa.array([maybe(rng.random() < 0.3) for _ in range(rows)], pa.bool_()),
        HOSTILE: pa.array([maybe(rng.choice(TEXTS)) for _ in range(rows)], pa.string()),
        "nothing": pa.array([None] * rows, pa.int64()),
    })  # fmt: skip


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def live(shardify, dataset):
    """DuckDB with the live rows as the table `live`: those of the live shards."""
    shards = [shard["path"] for shard in shardify.ok("manifest", dataset, "--list") if shard["type"] == "shard"]
    database = duckdb.connect()
    paths = ", ".join("'" + str(dataset / path) + "'" for path in shards)
    database.execute(f"CREATE TABLE live AS SELECT * FROM read_parquet([{paths}], union_by_name = true)")
    return database


def value_of(text, expected):
    """A value of the report in the type of DuckDB's."""
    if isinstance(expected, bool):
        return {"true": True, "false": False}[text]
    if isinstance(expected, (int, float)):
        return type(expected)(text)
    return text


def check_column(database, column, records, all_rows):
    name = quoted(column["column"])
    is_float = column["data_type"].startswith(("float", "double"))
    values = f"SELECT {name} AS v FROM live WHERE {name} IS NOT NULL" + (f" AND NOT isnan({name})" if is_float else "")
    (nulls,) = database.execute(f"SELECT count(*) FROM live WHERE {name} IS NULL").fetchone()
    what = f"{column['column']}: "
    if column["nulls"] is None:
        raise Failure(f"{what}expected an exact number of nulls, found none")
    expect(what + "nulls", column["nulls"], nulls)
    expect(what + "share of nulls", math.isclose(column["null_share"], nulls / records), True)
    compared = 1
    least, greatest = database.execute(f"SELECT min(v), max(v) FROM ({values})").fetchone()
    if column["range_exact"]:
        for end, expected in (("min", least), ("max", greatest)):
            found = column[end]
            if expected is None or found is None:
                expect(what + end, found, expected)
            elif hasattr(expected, "isoformat"):
                expect(what + end, type(expected).fromisoformat(found.rstrip("Z")), expected)
            elif type(expected).__name__ == "Decimal":
                expect(what + end, type(expected)(found), expected)
            elif not (is_float and math.isinf(expected)):
                expect(what + end, value_of(found, expected), expected)
            compared += 1
    if not all_rows:
        return compared
    if column["kind"] == "number":
        for at, part in enumerate(column["bins"]):
            last = "<=" if at == len(column["bins"]) - 1 else "<"
            query = f"SELECT count(*) FROM ({values}) WHERE v::DOUBLE >= ? AND v::DOUBLE {last} ?"
            (count,) = database.execute(query, [part["from"], part["to"]]).fetchone()
            expect(f"{what}bin from {part['from']}", part["count"], count)
            compared += 1
    if column["kind"] in ("text", "boolean") or column["column"] in ("whole", "few", "id"):
        for top in column["top"]:
            (count,) = database.execute(f"SELECT count(*) FROM ({values}) WHERE v::VARCHAR = ?", [top["value"]]).fetchone()
            expect(f"{what}value {top['value']!r}", top["count"], count)
            compared += 1
        expected = database.execute(f"SELECT count(*) FROM ({values}) GROUP BY v ORDER BY 1 DESC LIMIT {len(column['top'])}").fetchall()
        expect(what + "frequent values", [top["count"] for top in column["top"]], [count for (count,) in expected])
        (distinct,) = database.execute(f"SELECT count(DISTINCT v) FROM ({values})").fetchone()
        expect(what + "distinct values", column["sampled_distinct"], distinct)
        compared += 2
    return compared


def check(shardify, dataset, all_rows):
    """Compares a report; returns how many numbers were compared."""
    objects = shardify.ok("report", dataset, "--ids")
    database = live(shardify, dataset)
    summary = objects[-1]
    (records,) = database.execute("SELECT count(*) FROM live").fetchone()
    expect("records", summary["records"], records)
    expect("all rows are read", summary["sample_is_all"], all_rows)
    expect("bytes", summary["bytes"], sum(o["bytes"] for o in objects if o["type"] == "sizes"))
    expect("record sizes", sum(o["count"] for o in objects if o["type"] == "record_sizes"), summary["sampled_records"])
    columns = [o for o in objects if o["type"] == "column"]
    expect("columns", {column["column"] for column in columns}, {row[0] for row in database.execute("DESCRIBE live").fetchall()})
    return sum(check_column(database, column, records, all_rows) for column in columns)


def check_page(shardify, dataset, folder, shots):
    """Opens the page in a browser."""
    page = folder / "report.html"
    shardify.ok("report", dataset, "--ids", "--html", page, "--against", "v1")
    pages.look_at(page, folder, shots)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", type=pathlib.Path, required=True)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--shots", type=pathlib.Path)
    options = parser.parse_args()
    shardify = Shardify(options.shardify)
    compared = 0
    with tempfile.TemporaryDirectory(prefix="report_check.") as temporary:
        folder = pathlib.Path(temporary)
        dataset, source = folder / "d", folder / "in"
        source.mkdir()
        for number in range(3):
            pq.write_table(table(number * 2_000, 2_000, 1), source / f"{number}.parquet", row_group_size=700)
            shardify.ok("convert", source, "--out", dataset, "--id", "id", "--target-shard", "40KiB")
            compared += check(shardify, dataset, True)
        shardify.ok("remove", dataset, "--source", "1.parquet")
        compared += check(shardify, dataset, True)
        shardify.ok("erase", dataset, "3", "7", "4001", "--all-versions")
        compared += check(shardify, dataset, True)
        shardify.ok("compact", dataset, "--min-inputs", "2")
        compared += check(shardify, dataset, True)
        check_page(shardify, dataset, folder, options.shots)
        large = folder / "large"
        pq.write_table(table(0, options.rows, 2), folder / "large.parquet", row_group_size=50_000)
        shardify.ok("convert", folder / "large.parquet", "--out", large, "--id", "id", "--target-shard", "2MiB")
        compared += check(shardify, large, False)
    print(f"{compared} numbers are those of DuckDB")
    return 0


finish(main)
