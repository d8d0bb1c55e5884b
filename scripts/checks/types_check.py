#!/usr/bin/env python3
"""Types are what they were, as other readers see them.

Writes tables with pyarrow and DuckDB that have a column for each type that Parquet or Arrow states and other formats do not:
logical types, lists and maps of them, dates and times in units that Parquet lacks. Converts them to Parquet, and to tar and
TFRecord and back, compacts small shards both of one schema and of several, and compares the types in the footer, Arrow's types
and all values, by pyarrow and by DuckDB.

    python3 scripts/checks/types_check.py --shardify target/release/shardify [--only TEXT]

One line per combination, then `N passed, N failed`; exit code 1 if one failed.
"""

import argparse
import datetime as dt
import pathlib
import re
import subprocess
import sys
import tempfile
import uuid

import duckdb
import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
import pyarrow.parquet as pq

ROWS = 40


def table(seed=0):
    """A column for every type, with nulls."""

    def some(make):
        return [None if i % 7 == 3 else make(i + seed) for i in range(ROWS)]

    def number(i):
        return uuid.UUID(int=i * 7919 + 1).bytes

    documents = ['{"a": 1.50}', "[1, 2]", '"x"', '{\n "b": null\n}']
    record = pa.struct([("d", pa.timestamp("s")), ("b", pa.large_binary()), ("u", pa.duration("us")), ("t", pa.time32("s"))])
    start = 1577923200
    columns = {
        "date_ms": pa.array(some(lambda i: 86400000 * (i - 3)), pa.date64()),
        "seconds": pa.array(some(lambda i: start + i), pa.timestamp("s")),
        "zoned": pa.array(some(lambda i: start - i), pa.timestamp("s", "Europe/Berlin")),
        "millis": pa.array(some(lambda i: start - i), pa.timestamp("ms")),
        "nanos": pa.array(some(lambda i: start - i), pa.timestamp("ns", "UTC")),
        "time_s": pa.array(some(lambda i: i), pa.time32("s")),
        "time_ms": pa.array(some(lambda i: i), pa.time32("ms")),
        "time_us": pa.array(some(lambda i: i), pa.time64("us")),
        "time_ns": pa.array(some(lambda i: i * 1001), pa.time64("ns")),
        "nothing": pa.nulls(ROWS),
        "nothings": pa.array(some(lambda i: [None] * (i % 3)), pa.list_(pa.null())),
        "duration": pa.array(some(lambda i: i - 5), pa.duration("s")),
        "duration_ns": pa.array(some(lambda i: i * 10**12 + 1), pa.duration("ns")),
        "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(some(lambda i: documents[i % 4]), pa.string())),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array(some(number), pa.binary(16))),
        "uuids": pa.array(some(lambda i: [number(i)] * (i % 3)), pa.list_(pa.binary(16))).cast(pa.list_(pa.uuid())),
        "fixed": pa.array(some(lambda i: b"%03d" % i), pa.binary(3)),
        "large_list": pa.array(some(lambda i: list(range(i % 4))), pa.large_list(pa.int32())),
        "fixed_list": pa.array(some(lambda i: [i / 2, None]), pa.list_(pa.float32(), 2)),
        "list_of_fixed": pa.array(some(lambda i: [b"%03d" % i] * (i % 3)), pa.list_(pa.binary(3))),
        "map": pa.array(some(lambda i: [(f"k{j}", j) for j in range(i % 3)]), pa.map_(pa.string(), pa.int16())),
        "map_of_dates": pa.array(
            some(lambda i: [(j, dt.date(2020, 1, 1 + j)) for j in range(i % 3)]), pa.map_(pa.int32(), pa.date32())
        ),
        "lists": pa.array(some(lambda i: [[j] for j in range(i % 3)]), pa.list_(pa.large_list(pa.int8()))),
        "record": pa.array(
            some(lambda i: {"d": start + i, "b": b"\x00%d" % i, "u": i * 10**9, "t": dt.time(0, 0, i % 60)}), record
        ),
        "large_text": pa.array(some(lambda i: f"x{i}"), pa.large_string()),
        "large_binary": pa.array(some(lambda i: b"\xff%d" % i), pa.large_binary()),
        "decimal": pa.array(some(lambda i: i), pa.decimal128(20, 0)).cast(pa.decimal128(22, 2)),
        "half": pa.array(some(lambda i: i / 2), pa.float64()).cast(pa.float16()),
    }
    return pa.table({"id": pa.array(range(seed, seed + ROWS)), **columns})


def write_foreign(path, seed=0):
    """What DuckDB alone writes: shapes, variants, times in UTC, intervals."""
    crs = '{"type":"GeographicCRS","name":"x","id":{"authority":"A","code":1}}'
    duckdb.sql("set ignore_unknown_crs = true")
    duckdb.sql(f"""copy (select i + {seed} id,
        case when i % 5 <> 1 then ('{{"a":' || i || '}}')::json::variant end variant,
        case when i % 5 <> 2 then ('POINT (1 ' || i || ')')::geometry end shape,
        ('POINT (1 ' || i || ')')::geometry('{crs}') shape_elsewhere,
        ('{{"a":' || i || '}}')::json json, ('00000000-0000-0000-0000-' || (100000000000 + i))::uuid uuid,
        ('12:00:' || (10 + i) || '+00')::timetz time_utc, '12:00:00'::time time, null nothing,
        [('00000000-0000-0000-0000-' || (100000000000 + i))::uuid] uuids, interval 3 days as "interval"
        from range({ROWS}) t(i)) to '{path}' (format parquet, geoparquet_version 'V2')""")


# --- what readers see -----------------------------------------------------------------------------------------------


def parquet_files(folder):
    return sorted(p for p in folder.rglob("*.parquet") if "_shardify" not in p.parts)


def footer(path):
    """Columns with their physical and logical types, whether they may be null aside."""
    schema = pq.ParquetFile(path).schema
    columns = [schema.column(i) for i in range(len(schema.names))]
    groups = re.findall(r"\b(\w+) \((Variant[^)]*)\)", str(schema))
    # Integers of 32 and 64 bits need no logical type, and some writers give them one.
    logical = [re.sub(r"Int\(bitWidth=(32|64), isSigned=true\)", "None", str(c.logical_type)) for c in columns]
    paths = [c.path.replace(".element", ".item").replace(".entries.", ".key_value.") for c in columns]
    return [(path, c.physical_type, kind, c.length) for path, c, kind in zip(paths, columns, logical)] + groups


def arrow_types(path):
    return {field.name: plain(field.type) for field in pq.ParquetFile(path).schema_arrow}


def plain(kind):
    """The type without nullability and names of items."""
    return re.sub(r" not null|<(item|element|array): |: ", lambda m: "" if m[0] == " not null" else ":", str(kind))


def duck_types(path):
    return {row[0]: row[1] for row in duckdb.sql(f"describe from read_parquet('{path}')").fetchall()}


def duck_rows(paths):
    names = ", ".join(f"'{p}'" for p in paths)
    return duckdb.sql(f"select columns(*)::varchar from read_parquet([{names}]) order by id::bigint").fetchall()


def arrow_rows(paths):
    whole = pa.concat_tables([pq.read_table(p) for p in paths], promote_options="permissive").sort_by("id")
    return {name: texts(whole[name]) for name in whole.column_names}


def texts(column):
    # Python has no nanoseconds.
    in_nanos = pa.types.is_temporal(column.type) and getattr(column.type, "unit", "") == "ns"
    return [str(value) for value in (column.cast(pa.int64()) if in_nanos else column)]


def compare(what, expected, found):
    # A row in a tar is one line, so line ends between values of a document become blanks there.
    expected, found = one_line(expected), one_line(found)
    if isinstance(expected, dict):
        wrong = {k: (v, found.get(k)) for k, v in expected.items() if found.get(k) != v}
        wrong |= {k: (None, v) for k, v in found.items() if k not in expected}
        wrong = {k: tuple(str(side)[:160] for side in v) for k, v in wrong.items()}
    else:
        wrong = [(e, f) for e, f in zip(expected, found) if e != f][:6] or (len(expected) != len(found) and (expected, found))
    return [f"{what}: {wrong}"] if wrong else []


def one_line(values):
    if isinstance(values, dict):
        return {key: one_line(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [one_line(value) for value in values]
    return values.replace("\n", " ") if isinstance(values, str) else values


def check(reference, sources, shards):
    """All shards have the types of the reference, and the values of the sources."""
    faults = []
    for shard in shards:
        faults += compare("footer", sorted(map(str, footer(reference))), sorted(map(str, footer(shard))))
        faults += compare("pyarrow", arrow_types(reference), arrow_types(shard))
        faults += compare("duckdb", duck_types(reference), duck_types(shard))
    faults += compare("values of pyarrow", arrow_rows(sources), arrow_rows(shards))
    faults += compare("values of duckdb", duck_rows(sources), duck_rows(shards))
    return faults


def values(reference, kind, files):
    """Files whose values both readers see: DuckDB may write what it shows alike in other parts."""
    return files if kind == "foreign" else [reference]


class Checker:
    def __init__(self, shardify, only):
        self.shardify, self.only = shardify, only
        self.passed = self.failed = 0

    def run(self, *arguments):
        done = subprocess.run([self.shardify, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{arguments}: {done.stderr.strip()}")

    def case(self, name, work):
        if self.only and self.only not in name:
            return
        with tempfile.TemporaryDirectory() as folder:
            try:
                faults = work(pathlib.Path(folder))
            except Exception as error:  # noqa: BLE001
                faults = [f"{type(error).__name__}: {error}"]
        print("ok  " if not faults else "FAIL", name)
        for fault in faults:
            print("     ", fault)
        self.passed, self.failed = self.passed + (not faults), self.failed + bool(faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, type=pathlib.Path)
    parser.add_argument("--only")
    options = parser.parse_args()
    checker = Checker(options.shardify.resolve(), options.only)

    def sources(folder, kind):
        """Two files for input, and a reference with the rows of both, as their own writers make them."""
        (folder / "in").mkdir()
        first, second = folder / "in" / f"a.{kind}", folder / "in" / f"b.{kind}"
        if kind == "arrow":
            for path, seed in ((first, 0), (second, ROWS)):
                data = table(seed)
                with pa.ipc.new_file(path, data.schema) as file:
                    file.write_table(data)
        elif kind == "parquet":
            pq.write_table(table(), first)
            pq.write_table(table(ROWS), second)
        else:
            first, second = first.with_suffix(".parquet"), second.with_suffix(".parquet")
            write_foreign(first)
            write_foreign(second, ROWS)
            duckdb.sql(f"copy (from read_parquet(['{first}', '{second}'])) to '{folder}/reference.parquet' "
                       "(format parquet, geoparquet_version 'V2')")
            return folder / "reference.parquet", [first, second]
        pq.write_table(pa.concat_tables([table(), table(ROWS)]), folder / "reference.parquet")
        return folder / "reference.parquet", [first, second]

    for kind in ("parquet", "arrow", "foreign"):

        def straight(folder, kind=kind):
            reference, files = sources(folder, kind)
            checker.run("convert", folder / "in", "--to", "parquet", "--out", folder / "out")
            return check(reference, values(reference, kind, files), parquet_files(folder / "out"))

        def compacted(folder, kind=kind, mixed=False):
            reference, files = sources(folder, kind)
            checker.run("convert", files[0], "--to", "parquet", "--out", folder / "out")
            if mixed:
                # Another schema: with it columns are no longer taken over as they are.
                extra = pa.table({"id": [10**6], "more": [1]})
                pq.write_table(extra, folder / "extra.parquet")
                checker.run("convert", folder / "extra.parquet", "--out", folder / "out")
            checker.run("convert", files[1], "--out", folder / "out")
            checker.run("compact", folder / "out", "--verify", "full", "--min-inputs", "2")
            checker.run("vacuum", folder / "out", "--retain", "0s", "--force")
            shards = parquet_files(folder / "out")
            if len(shards) != 1:
                return [f"expected one shard, found {len(shards)}"]
            if mixed:
                whole = folder / "whole.parquet"
                if kind == "foreign":
                    # pyarrow cannot write these types; DuckDB sees them.
                    duckdb.sql(f"copy (select * exclude more from '{shards[0]}' where id < 10**6) to '{whole}' "
                               "(format parquet, geoparquet_version 'V2')")
                    faults = compare("duckdb", duck_types(reference), duck_types(whole))
                    return faults + compare("values of duckdb", duck_rows([reference]), duck_rows([whole]))
                found = pq.read_table(shards[0])
                faults = compare("pyarrow", {**arrow_types(reference), "more": "int64"}, arrow_types(shards[0]))
                faults += compare("duckdb", {**duck_types(reference), "more": "BIGINT"}, duck_types(shards[0]))
                pq.write_table(found.slice(0, found.num_rows).filter(pa.compute.less(found["id"], 10**6)).drop(["more"]), whole)
                return faults + compare("values of pyarrow", arrow_rows([reference]), arrow_rows([whole]))
            return check(reference, values(reference, kind, files), shards)

        checker.case(f"{kind} -> parquet", straight)
        checker.case(f"{kind} -> parquet, compacted", compacted)
        checker.case(f"{kind} -> parquet, compacted with other columns", lambda f, kind=kind: compacted(f, kind, True))
        for way in ("tar", "tfrecord"):

            def back(folder, kind=kind, way=way):
                reference, files = sources(folder, kind)
                checker.run("convert", folder / "in", "--to", way, "--out", folder / "between")
                checker.run("convert", folder / "between", "--to", "parquet", "--out", folder / "out")
                return check(reference, values(reference, kind, files), parquet_files(folder / "out"))

            checker.case(f"{kind} -> {way} -> parquet", back)
    print(f"{checker.passed} passed, {checker.failed} failed")
    return 1 if checker.failed else 0


if __name__ == "__main__":
    sys.exit(main())
