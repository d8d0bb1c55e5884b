#!/usr/bin/env python3
"""Tables of other packages, and Arrow streams on standard input: every value arrives, a stream that was cut never does, and the same rows are known.

    python3 scripts/checks/stream_check.py --shardify target/release/shardify [--tables 40] [--cuts 40] [--rows 2000] [--seed 1]

Tables of all Arrow types and random ones, in batches of 1, of 7 and of 1,000 rows, packed as dictionaries, views and run ends: shards have the values of the
table's own `to_pylist`, the second form is "nothing to do", and the hash in the list of sources is that of an implementation in Python, by the picture
in `crates/core/src/record/table_hash.rs`. Tables of Polars, DuckDB, pandas, ADBC, Hugging Face, pyiceberg and ORC files are those that their own `to_arrow` gives.
A producer that is killed, or raises, after any batch, and a stream that is cut at any byte, commit nothing, whatever `--on-error` says; the caller gets the
producer's exception. The program's own errors, Ctrl-C, a missing name, tags and forked processes end in time.
"""

import argparse
import contextlib
import datetime
import decimal
import importlib.util
import io
import json
import math
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings

from harness import ROOT, Failure, expect, finish, not_run

import pyarrow
import pyarrow.parquet
import xxhash

sys.path.insert(0, str(ROOT / "python"))
import shardify  # noqa: E402

# Longest time of anything here, in seconds.
PATIENCE = 60


def plain(value):
    """A value in a form that compares by what it is: NaN is NaN, and -0.0 is not 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if hasattr(value, "isoformat") and hasattr(value, "nanosecond"):
        return value.isoformat()
    return value


def shards_of(dataset):
    return [pyarrow.parquet.read_table(path, partitioning=None) for path in shardify.open(dataset).paths()]


def rows_of(dataset):
    return [plain(row) for shard in shards_of(dataset) for row in shard.to_pylist()]


def expect_rows(what, dataset, table):
    wanted, found = [plain(row) for row in table.to_pylist()], rows_of(dataset)
    for number, (one, other) in enumerate(zip(wanted, found)):
        if one != other:
            raise Failure(f"{what}, row {number}: expected {one}, found {other}")
    expect(f"{what}: rows", len(found), len(wanted))


def is_nothing(report):
    return report.records_in == 0 and report.sources_unchanged == 1 and report.sources == 0


def in_batches(table, rows):
    return pyarrow.Table.from_batches(table.to_batches(max_chunksize=rows), table.schema)


# Types


def typed(rows):
    """A table with a column of each type, whose values are null, least, greatest and ordinary in turn."""
    p, d = pyarrow, datetime
    zone = d.timezone.utc
    values = {
        "null": (p.null(), [None]),
        "bool": (p.bool_(), [True, False]),
        **{f"int{n}": (getattr(p, f"int{n}")(), [-(2 ** (n - 1)), 2 ** (n - 1) - 1, 0]) for n in (8, 16, 32, 64)},
        **{f"uint{n}": (getattr(p, f"uint{n}")(), [0, 2**n - 1]) for n in (8, 16, 32, 64)},
        "float16": (p.float16(), [1.5, -0.0, float("nan")]),
        "float32": (p.float32(), [1.5, float("inf"), float("nan")]),
        "float64": (p.float64(), [0.1, -0.0, 5e-324]),
        "decimal32": (p.decimal32(9, 2), [decimal.Decimal("1234567.89"), decimal.Decimal("-0.01")]),
        "decimal64": (p.decimal64(18, 4), [decimal.Decimal("12345678901234.5678")]),
        "decimal128": (p.decimal128(38, 10), [decimal.Decimal("1234567890123456789012345678.0123456789")]),
        "decimal256": (p.decimal256(76, 20), [decimal.Decimal("9" * 56 + "." + "9" * 20), decimal.Decimal("-1.00000000000000000001")]),
        "date32": (p.date32(), [d.date(1, 1, 1), d.date(9999, 12, 31)]),
        "date64": (p.date64(), [d.date(1970, 1, 2)]),
        "time32": (p.time32("ms"), [d.time(23, 59, 59, 999000)]),
        "time64": (p.time64("us"), [d.time(0, 0, 0, 1)]),
        "ts_s": (p.timestamp("s"), [d.datetime(1900, 1, 1)]),
        "ts_us": (p.timestamp("us"), [d.datetime(2024, 2, 29, 1, 2, 3, 4)]),
        "ts_zone": (p.timestamp("us", "Europe/Berlin"), [d.datetime(2024, 7, 1, tzinfo=zone)]),
        "duration": (p.duration("us"), [d.timedelta(days=-1, microseconds=1)]),
        "string": (p.string(), ["", "a", "日本語", "x" * 100]),
        "large_string": (p.large_string(), ["long", ""]),
        "string_view": (p.string_view(), ["short", "a text of more than twelve bytes", ""]),
        "binary": (p.binary(), [b"", b"\x00\xff"]),
        "large_binary": (p.large_binary(), [b"large"]),
        "binary_view": (p.binary_view(), [b"a view of more than twelve bytes", b"\x00"]),
        "fixed_binary": (p.binary(3), [b"abc", b"\x00\x00\x00"]),
        "list": (p.list_(p.int32()), [[], [1, None, 3]]),
        "large_list": (p.large_list(p.string()), [["a", None], []]),
        "fixed_list": (p.list_(p.float32(), 2), [[1.0, 2.0], [None, 0.5]]),
        "struct": (p.struct([("a", p.int8()), ("b", p.list_(p.string()))]), [{"a": 1, "b": ["x"]}, {"a": None, "b": None}]),
        "map": (p.map_(p.string(), p.int32()), [[("k", 1), ("l", None)], []]),
        "views_within": (p.list_(p.struct([("v", p.string_view())])), [[{"v": "a text of more than twelve bytes"}], [None, {"v": None}]]),
        "deep": (p.list_(p.list_(p.map_(p.int8(), p.list_(p.bool_())))), [[[[(1, [True, None])]], []], []]),
    }
    arrays = {}
    for name, (kind, some) in values.items():
        arrays[name] = p.array([([None] + some)[(row * 7 + len(name)) % (len(some) + 1)] for row in range(rows)], kind)
    words = [None, "one", "two", "one"]
    arrays["dictionary"] = p.array([words[row % 4] for row in range(rows)]).dictionary_encode()
    arrays["ordered"] = p.DictionaryArray.from_arrays(p.array([row % 2 for row in range(rows)], p.int8()), p.array(["lo", "hi"]), ordered=True)
    return p.table(arrays)


def special():
    """Tables with types that need some care, and what their values are."""
    p = pyarrow
    ree = p.RunEndEncodedArray.from_arrays(p.array([2, 5], p.int32()), p.array(["a", None]))
    yield "run ends", p.table({"r": ree, "n": range(5)}), p.table({"r": ["a", "a", None, None, None], "n": range(5)})
    yield "run ends, sliced", p.table({"r": ree}).slice(1, 2), p.table({"r": ["a", None]})
    views = p.array([[1, 2], None, [], [3]], p.list_view(p.int64()))
    yield "list views", p.table({"v": views}), p.table({"v": [[1, 2], None, [], [3]]})
    nested = p.array([{"v": [1, None]}, None, {"v": []}], p.struct([("v", p.list_view(p.int64()))]))
    yield "list views in structs", p.table({"s": nested}), p.table({"s": [{"v": [1, None]}, None, {"v": []}]})
    runs = p.StructArray.from_arrays([ree], names=["r"])
    yield "run ends in structs", p.table({"s": runs}), p.table({"s": [{"r": one} for one in ["a", "a", None, None, None]]})
    texts = p.array([["a text of more than twelve bytes", None], None, []], p.large_list_view(p.string_view()))
    yield "list views of views, sliced", p.table({"v": texts}).slice(1), p.table({"v": [None, []]})
    odd = p.ListViewArray.from_arrays(p.array([3, 0, 1], p.int32()), p.array([1, 2, 2], p.int32()), p.array([1, 2, 3, 4]))
    yield "list views that overlap", p.table({"v": odd}), p.table({"v": [[4], [1, 2], [2, 3]]})
    within = p.array([{"w": "a text of more than twelve bytes"}, None], p.struct([("w", p.string_view())]))
    yield "views in structs", p.table({"s": within}), p.table({"s": [{"w": "a text of more than twelve bytes"}, None]})
    yield "no rows", p.table({"a": p.array([], p.int64()), "s": p.array([], p.string_view())}), p.table({"a": p.array([], p.int64())})
    # Dictionaries that differ from chunk to chunk, and one within a list.
    chunks = p.chunked_array([p.array(["a", "b"]).dictionary_encode(), p.array(["b", "c", None]).dictionary_encode()])
    yield "other dictionaries", p.table({"d": chunks}), p.table({"d": ["a", "b", "b", "c", None]})
    lists = p.ListArray.from_arrays([0, 2, 3], p.array(["x", "y", "x"]).dictionary_encode())
    yield "dictionaries in lists", p.table({"d": lists}), p.table({"d": [["x", "y"], ["x"]]})
    uuids = p.array([bytes(16), None], p.uuid())
    yield "uuid", p.table({"u": uuids}), p.table({"u": uuids})


def types_arrive(folder, rows):
    table = typed(rows)
    wanted = pyarrow.table({name: table[name].cast(pyarrow.string()) if "ordered" == name else table[name] for name in table.column_names})
    for size in (1, 7, 1000):
        dataset = folder / f"types-{size}"
        shardify.convert(in_batches(table, size), name="typed", out=dataset)
        expect_rows(f"types in batches of {size}", dataset, wanted)
        for other in (1000, 7, 1):
            if not is_nothing(shardify.convert(in_batches(table, other), name="typed", out=dataset)):
                raise Failure(f"types in batches of {size}, then of {other}: expected nothing to do")
    print(f"ok    {len(table.column_names)} types, {rows} rows, in batches of 1, 7 and 1,000", flush=True)
    for number, (what, table, wanted) in enumerate(special()):
        dataset = folder / f"special-{number}"
        shardify.convert(table, name="special", out=dataset)
        if table.num_rows:
            expect_rows(what, dataset, wanted)
        if not is_nothing(shardify.convert(table, name="special", out=dataset)):
            raise Failure(f"{what}: expected nothing to do the second time")
    tensor = pyarrow.ExtensionArray.from_storage(pyarrow.fixed_shape_tensor(pyarrow.int8(), [2]), pyarrow.array([[1, 2], [3, 4]], pyarrow.list_(pyarrow.int8(), 2)))
    shardify.convert(pyarrow.table({"t": tensor}), name="tensor", out=folder / "tensor")
    (shard,) = shards_of(folder / "tensor")
    expect("type of a tensor", shard.schema.field("t").type, tensor.type)
    for kind in ("dense", "sparse"):
        union = getattr(pyarrow.UnionArray, f"from_{kind}")(*([pyarrow.array([0], pyarrow.int8())] + ([pyarrow.array([0], pyarrow.int32())] if kind == "dense" else []) + [[pyarrow.array([1])]]))
        error = raised(shardify.InputError, lambda: shardify.convert(pyarrow.table({"u": union}), name="union", out=folder / "union"))
        expect("column of a union", error.column, "u")
    print("ok    run ends, views, dictionaries, extensions; unions are refused", flush=True)


# Hashes of tables


def u64(number):
    return struct.pack("<Q", number)


def hashed(data):
    return xxhash.xxh3_64_intdigest(data)


def column_hash(name, kind, values):
    """The hash of a column by the picture, a value at a time."""
    nulls, lengths, data, children = b"", b"", b"", []
    present = [value for value in values if value is not None]
    nulls = b"".join(u64(row) for row, value in enumerate(values) if value is None)
    types = pyarrow.types
    if types.is_struct(kind):
        word = "struct"
        for at in range(kind.num_fields):
            field = kind.field(at)
            children.append(column_hash(field.name, field.type, [None if value is None else value[field.name] for value in values]))
    elif types.is_list(kind) or types.is_large_list(kind):
        word, lengths = "list", b"".join(u64(len(value)) for value in present)
        children.append(column_hash("item", kind.value_type, [item for value in present for item in value]))
    elif types.is_string(kind) or types.is_large_string(kind):
        word, lengths = "text", b"".join(u64(len(value.encode())) for value in present)
        data = "".join(present).encode()
    elif types.is_boolean(kind):
        word, data = "bool", bytes(present)
    elif types.is_int64(kind):
        word, data = "int64", struct.pack(f"<{len(present)}q", *present)
    else:
        word, data = "float64", struct.pack(f"<{len(present)}d", *present)
    head = b"".join(u64(len(text.encode())) + text.encode() for text in (name, word, "", ""))
    return hashed(head + u64(len(values)) + u64(hashed(nulls)) + u64(hashed(lengths)) + u64(hashed(data)) + b"".join(map(u64, children)))


def table_hash(table):
    columns = (column_hash(name, table.schema.field(name).type, table[name].to_pylist()) for name in table.column_names)
    return hashed(u64(table.num_rows) + b"".join(map(u64, columns))) or 1


def random_type(rng, depth=0):
    kinds = [pyarrow.int64(), pyarrow.float64(), pyarrow.string(), pyarrow.bool_(), pyarrow.large_string()]
    roll = rng.random()
    if depth < 3 and roll < 0.2:
        return pyarrow.list_(random_type(rng, depth + 1))
    if depth < 3 and roll < 0.4:
        return pyarrow.struct([(f"f{at}", random_type(rng, depth + 1)) for at in range(rng.randint(1, 3))])
    return rng.choice(kinds)


def random_value(rng, kind, nulls):
    if rng.random() < nulls:
        return None
    if pyarrow.types.is_struct(kind):
        return {kind.field(at).name: random_value(rng, kind.field(at).type, nulls) for at in range(kind.num_fields)}
    if pyarrow.types.is_list(kind):
        return [random_value(rng, kind.value_type, nulls) for _ in range(rng.choice([0, 1, 2, 9]))]
    if pyarrow.types.is_boolean(kind):
        return rng.random() < 0.5
    if pyarrow.types.is_int64(kind):
        return rng.randint(-5, 5)
    if pyarrow.types.is_float64(kind):
        return rng.choice([0.0, -0.0, 1.5, 1e300])
    return rng.choice(["", "a", "bc", "ü", "x" * 30])


def repacked(rng, table):
    """The same rows, cut and packed otherwise."""
    columns = []
    for column in table.columns:
        column = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
        if pyarrow.types.is_string(column.type) and rng.random() < 0.7:
            column = column.dictionary_encode() if rng.random() < 0.5 else column.cast(pyarrow.string_view())
        columns.append(column)
    whole = pyarrow.table(columns, names=table.column_names)
    cuts = sorted(rng.randint(0, table.num_rows) for _ in range(rng.choice([0, 1, 5])))
    pieces = [whole.slice(start, end - start) for start, end in zip([0, *cuts], [*cuts, table.num_rows])]
    return pyarrow.concat_tables(pieces)


def stored_hashes(dataset):
    """Hashes and tags in the list of sources, newest last."""
    found = []
    for path in sorted(pathlib.Path(dataset).glob("_shardify/lists/*sources*")):
        found += pyarrow.parquet.read_table(path, columns=["version", "name", "hash", "etag"]).to_pylist()
    return [(row["name"], row["hash"], row["etag"]) for row in sorted(found, key=lambda row: row["version"])]


def hashes_agree(folder, rng, tables):
    for number in range(tables):
        rows, nulls = rng.choice([0, 1, 3, 50, 700]), rng.choice([0, 0.1, 0.9, 1])
        kinds = {f"c{at}": random_type(rng) for at in range(rng.randint(1, 5))}
        table = pyarrow.table({name: pyarrow.array([random_value(rng, kind, nulls) for _ in range(rows)], kind) for name, kind in kinds.items()})
        dataset = folder / f"hash-{number}"
        shardify.convert(repacked(rng, table), name="r", out=dataset)
        expect(f"list of sources of table {number}", stored_hashes(dataset), [("r", table_hash(table), "rows")])
        if rows:
            expect_rows(f"random table {number}", dataset, table)
        if not is_nothing(shardify.convert(repacked(rng, table), name="r", out=dataset)):
            raise Failure(f"random table {number}: expected nothing to do")
        moved = shardify.convert(repacked(rng, table), name="other", identity="content", out=dataset)
        if rows and moved.raw["sources_moved"] != 1:
            raise Failure(f"random table {number}: expected its rows to be known under another name, found {moved.raw}")
        if rows:
            changed = table.slice(1)
            error = raised(shardify.ChangedError, lambda changed=changed, dataset=dataset: shardify.convert(changed, name="r", out=dataset))
            expect("place of what has changed", error.source, "stream:r")
    print(f"ok    {tables} random tables have the hash of another implementation, however they are packed", flush=True)


# Other packages


def installed(package, what):
    if importlib.util.find_spec(package) is None:
        not_run(f"stream_check: {what}", f"{package} is not installed")
        return False
    return True


def others(folder):
    """Objects of other packages, made anew each time, with the table that their own `to_arrow` gives."""
    csv = ROOT / "testdata" / "csv" / "titanic.csv"
    if installed("pandas", "pandas"):
        import pandas

        frame = pandas.read_csv(csv)
        frame["when"] = pandas.date_range("2024-01-01", periods=len(frame), tz="Europe/Berlin")
        frame["kind"] = pandas.Categorical(frame["Gender"])
        yield "pandas", lambda: frame, pyarrow.Table.from_pandas(frame)
        indexed = frame.set_index("Name")
        yield "pandas with an index", lambda: indexed, pyarrow.Table.from_pandas(indexed)
        ranged = frame.set_index(pandas.RangeIndex(100, 100 + 2 * len(frame), 2, name="pos"))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield "pandas with a range", lambda: ranged, pyarrow.Table.from_pandas(ranged)
        if not any("`pos`" in str(one.message) for one in said):
            raise Failure("expected a warning about an index that is left out")
    if installed("polars", "Polars"):
        import polars

        frame = polars.read_csv(csv).with_columns(polars.col("Gender").cast(polars.Categorical), polars.lit([1, None]).alias("list"))
        yield "Polars", lambda: frame, frame.to_arrow()
    if installed("duckdb", "DuckDB"):
        import duckdb

        query = f"select *, {{'a': Age}} as s, [Fare] as l, Fare::decimal(10, 4) as d from '{csv}' where Age is not null order by PassengerId"
        wanted = duckdb.sql(query).to_arrow_table()
        yield "DuckDB", lambda: duckdb.sql(query), wanted
    if installed("adbc_driver_sqlite", "ADBC"):
        import adbc_driver_sqlite.dbapi

        with contextlib.closing(adbc_driver_sqlite.dbapi.connect(str(folder / "a.db"))) as connection:
            with connection.cursor() as cursor:
                cursor.execute("create table t as with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) select i, 'text ' || i as s, i / 2.0 as f from n")
            connection.commit()
            with connection.cursor() as cursor:
                cursor.execute("select * from t")
                wanted = cursor.fetch_arrow_table()

            with contextlib.ExitStack() as cursors:

                def reader():
                    # A reader ends with its cursor.
                    cursor = cursors.enter_context(connection.cursor())
                    cursor.execute("select * from t")
                    return cursor.fetch_record_batch()

                yield "ADBC", reader, wanted
    if installed("datasets", "Hugging Face datasets"):
        import datasets

        dataset = datasets.Dataset.from_dict({"i": range(2500), "s": [f"text {i}" for i in range(2500)]}).shuffle(seed=1)
        yield "Hugging Face", lambda: dataset.with_format("arrow").iter(batch_size=1000), dataset.with_format("arrow")[:]
    if installed("pyiceberg", "pyiceberg"):
        try:
            from pyiceberg.catalog.sql import SqlCatalog

            catalog = SqlCatalog("c", uri="sqlite://", warehouse=f"file://{folder}/warehouse")
            catalog.create_namespace("n")
            iceberg = catalog.create_table("n.t", schema=pyarrow.schema([("a", pyarrow.int64()), ("s", pyarrow.string())]))
            for part in range(3):
                iceberg.append(pyarrow.table({"a": range(part * 10, part * 10 + 10), "s": [f"{part}"] * 10}))
            yield "pyiceberg", lambda: iceberg.scan().to_arrow_batch_reader(), iceberg.scan().to_arrow()
        except ImportError as error:
            not_run("stream_check: pyiceberg", str(error))
    if installed("arro3.core" if importlib.util.find_spec("arro3") else "arro3", "arro3"):
        import arro3.core

        table = pyarrow.table({"a": range(100), "s": [str(i) for i in range(100)]})
        yield "arro3", lambda: arro3.core.Table.from_arrow(table), table
    try:
        from pyarrow import orc
    except ImportError as error:
        not_run("stream_check: ORC", str(error))
    else:
        path = folder / "t.orc"
        orc.write_table(pyarrow.table({"a": range(5000), "s": [str(i) for i in range(5000)]}), str(path), stripe_size=1 << 16)
        file = orc.ORCFile(str(path))
        stripes = lambda: (pyarrow.Table.from_batches([file.read_stripe(at)]) for at in range(file.nstripes))  # noqa: E731
        yield "ORC", stripes, file.read()


def packages_agree(folder):
    for number, (what, make, wanted) in enumerate(others(folder)):
        dataset = folder / f"other-{number}"
        report = shardify.convert(make(), name=f"{what}.orc", etag="v1", out=dataset)
        expect(f"{what}: records", report.records_out, wanted.num_rows)
        expect_rows(what, dataset, wanted)
        if not is_nothing(shardify.convert(make(), name=f"{what}.orc", out=dataset)):
            raise Failure(f"{what}: expected nothing to do the second time")
        # The same table as one object of pyarrow.
        if not is_nothing(shardify.convert(wanted, name=f"{what}.orc", out=dataset)) and what != "Polars":
            raise Failure(f"{what}: expected nothing to do for its own table of pyarrow")
        (hit,) = shardify.find(dataset, f"{what}.orc#{wanted.num_rows}")
        expect(f"{what}: row of the last record", hit.origin["row"], wanted.num_rows)
        for shard in shards_of(dataset):
            marks = json.loads((shard.schema.metadata or {}).get(b"pandas", b"{}"))
            if any(isinstance(column, dict) for column in marks.get("index_columns", [])):
                raise Failure(f"{what}: a footer states a range of rows that is not its own: {marks}")
        print(f"ok    {what}: {wanted.num_rows} rows", flush=True)


# Cuts


class Mine(Exception):
    """What a producer raises."""


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise Failure(f"expected {kind.__name__}, found no exception")


def has_version(dataset):
    return any(pathlib.Path(dataset).glob("_shardify/log/*.json"))


def producers_fail(folder, batches):
    schema = pyarrow.schema([("a", pyarrow.int64()), ("s", pyarrow.string())])
    batch = pyarrow.record_batch({"a": range(1000), "s": ["x" * 50] * 1000}, schema=schema)
    before = set(threading.enumerate())
    for end in range(batches):
        for skips in ({}, {"on_error": "skip"}, {"on_error": "quarantine"}):

            def produce(end=end):
                for _ in range(end):
                    yield batch
                raise Mine(end)

            dataset = folder / "failing"
            forms = {
                "a reader": lambda: pyarrow.RecordBatchReader.from_batches(schema, produce()),
                "a generator": lambda: (pyarrow.Table.from_batches([one]) for one in produce()),
            }
            for what, make in forms.items():
                error = raised(Mine, lambda make=make, skips=skips: shardify.convert(make(), name="f", out=dataset, **skips))
                expect(f"exception of {what} after {end} batches", error.args, (end,))
                frames, at = [], error.__traceback__
                while at is not None:
                    frames.append(at.tb_frame.f_code.co_name)
                    at = at.tb_next
                if "produce" not in frames:
                    raise Failure(f"expected the producer's frame in the traceback, found {frames}")
            if has_version(dataset):
                raise Failure(f"a producer that fails after {end} batches: a version was committed")
    expect("threads that are left", [one.name for one in threading.enumerate() if one not in before], [])
    print(f"ok    producers that raise after 0 to {batches - 1} batches", flush=True)


KILLED = """
import os, signal, sys, pyarrow
schema = pyarrow.schema([("a", pyarrow.int64())])
with os.fdopen(1, "wb") as out:
    writer = pyarrow.ipc.new_stream(out, schema)
    for number in range(int(sys.argv[1])):
        writer.write_batch(pyarrow.record_batch({"a": range(1000)}, schema=schema))
    out.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def convert_stdin(program, dataset, source, *words):
    """The exit code of `convert -` with such a standard input, and the objects on standard error."""
    command = [program, "convert", "-", "--from", "arrow", "--out", str(dataset), "--json", *words]
    given = {"input": source} if isinstance(source, bytes) else {"stdin": source}
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, **given)
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines()]


def writers_are_killed(folder, program, batches):
    for end in range(batches):
        for words in (["--name", "k"], []):
            writer = subprocess.Popen([sys.executable, "-c", KILLED, str(end)], stdout=subprocess.PIPE)
            code, said = convert_stdin(program, folder / "killed", writer.stdout, *words, "--on-error", "skip")
            writer.stdout.close()
            expect("exit code of the writer", writer.wait(), -signal.SIGKILL)
            expect(f"exit code after {end} batches of a killed writer", code, 6)
            if not said[-1]["message"].endswith(("the stream was cut", "standard input is empty")) or has_version(folder / "killed"):
                raise Failure(f"killed after {end} batches: {said}")
    print(f"ok    writers that are killed after 0 to {batches - 1} batches", flush=True)


def streams_are_cut(folder, program, rng, cuts):
    table = typed(30)
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    whole = sink.getvalue()
    for length in {0, 1, len(whole) - 8, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(cuts))}:
        for words in (["--name", "c", "--on-error", "skip"], ["--on-error", "skip"]):
            code, said = convert_stdin(program, folder / "cut", whole[:length], *words)
            if code != 6 or has_version(folder / "cut"):
                raise Failure(f"cut at byte {length} of {len(whole)} with {words}: exit code {code}, {said}")
    for at in range(cuts):
        place = rng.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        code, said = convert_stdin(program, folder / f"flip-{at}", bytes(damaged), "--name", "c")
        if code not in (0, 6):
            raise Failure(f"bit flipped in byte {place}: exit code {code}, {said}")
    # Without the mark, but taken as it is; with it, the same table.
    code, said = convert_stdin(program, folder / "any", whole[:-8], "--name", "c", "--read", "end=any")
    expect("exit code without the mark, with end=any", code, 0)
    code, _ = convert_stdin(program, folder / "any", whole, "--name", "c")
    expect("exit code of the same with the mark", code, 0)
    expect("sources", len(stored_hashes(folder / "any")), 1)
    print(f"ok    streams that are cut at {cuts} places, or have one of {cuts} bits flipped", flush=True)


# Ends


def ends_in_time(folder, program):
    asked = []

    class Table:
        def __arrow_c_stream__(self, requested_schema=None):
            asked.append(1)
            return pyarrow.table({"a": [1]}).__arrow_c_stream__(requested_schema)

    dataset = folder / "ends"
    raised(shardify.UsageError, lambda: shardify.convert(Table(), out=dataset))
    raised(shardify.UsageError, lambda: shardify.convert(Table(), "file.csv", name="t", out=dataset))
    raised(shardify.UsageError, lambda: shardify.convert("file.csv", name="t", out=dataset))
    raised(shardify.UsageError, lambda: shardify.plan(Table(), out=dataset))
    raised(shardify.UsageError, lambda: shardify.convert(Table(), name="t", out=dataset, where="a >"))
    expect("how often a table was asked for its rows before the program read", len(asked), 0)
    shardify.convert(Table(), name="t", etag="v1", out=dataset)
    if not is_nothing(shardify.convert(Table(), name="t", etag="v1", out=dataset)):
        raise Failure("the same tag: expected nothing to do")
    expect("how often a table was asked for its rows that the tag says are known", len(asked), 1)
    if not is_nothing(shardify.convert(Table(), name="t", etag="v2", out=dataset)):
        raise Failure("another tag, the same rows: expected nothing to do")
    expect("tags", [etag for _, _, etag in stored_hashes(dataset)], ["rows:v1"])
    # The program fails while the producer has much more: a full disk for the copy of the stream.
    batch = pyarrow.record_batch({"a": range(100_000)})
    endless = pyarrow.RecordBatchReader.from_batches(batch.schema, iter(lambda: batch, None))
    started = time.monotonic()
    limited = folder / "limited.sh"
    limited.write_text(f'#!/bin/sh\nulimit -f 20000\ntrap "" XFSZ\nexec "{program}" "$@"\n')
    limited.chmod(0o755)
    os.environ["SHARDIFY_BINARY"] = str(limited)
    try:
        raised(shardify.StorageError, lambda: shardify.convert(endless, name="e", out=folder / "endless"))
    finally:
        os.environ["SHARDIFY_BINARY"] = program
    if time.monotonic() - started > PATIENCE / 2:
        raise Failure("the program failed, and the producer went on")
    print("ok    names, tags, and a program that fails first", flush=True)


INTERRUPTED = """
import os, sys, time, pyarrow, shardify, shardify._streams
shardify._streams.PATIENCE = 1
schema = pyarrow.schema([("a", pyarrow.int64())])
def produce():
    yield pyarrow.record_batch({"a": [1]}, schema=schema)
    print("running", flush=True)
    while True:
        time.sleep(float(sys.argv[2]))
        yield pyarrow.record_batch({"a": [1]}, schema=schema)
shardify.convert(pyarrow.RecordBatchReader.from_batches(schema, produce()), name="i", out=sys.argv[1])
"""

FORKED = """
import os, sys, time, pyarrow, shardify
schema = pyarrow.schema([("a", pyarrow.int64())])
def produce():
    yield pyarrow.record_batch({"a": [1]}, schema=schema)
    if os.fork() == 0:
        os.close(1); os.close(2); time.sleep(100); os._exit(0)
    yield pyarrow.record_batch({"a": [2]}, schema=schema)
print(shardify.convert(pyarrow.RecordBatchReader.from_batches(schema, produce()), name="f", out=sys.argv[1]).records_out, flush=True)
"""


def signals_end_it(folder, program):
    environment = {**os.environ, "SHARDIFY_BINARY": program, "PYTHONPATH": str(ROOT / "python")}
    for pause in ("0.01", "1000"):
        child = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(folder / "interrupted"), pause], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        child.stdout.readline()
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=PATIENCE)[1]
        if "KeyboardInterrupt" not in said or has_version(folder / "interrupted"):
            raise Failure(f"Ctrl-C with a producer that pauses {pause} s: {said}")
    child = subprocess.Popen([sys.executable, "-c", FORKED, str(folder / "forked")], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        said = child.communicate(timeout=PATIENCE / 2)[0]
    except subprocess.TimeoutExpired as error:
        raise Failure("a process that the producer forked keeps the stream open") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    expect("records of a producer that forks", said.strip(), "2")
    print("ok    Ctrl-C, and processes that a producer forks", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=textwrap.dedent(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--shardify", required=True)
    arguments.add_argument("--tables", type=int, default=40)
    arguments.add_argument("--cuts", type=int, default=40)
    arguments.add_argument("--batches", type=int, default=4)
    arguments.add_argument("--rows", type=int, default=2000)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    rng = random.Random(given.seed)
    program = str(pathlib.Path(given.shardify).resolve())
    os.environ["SHARDIFY_BINARY"] = program
    warnings.simplefilter("ignore", shardify.ShardifyWarning)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        types_arrive(folder, given.rows)
        hashes_agree(folder, rng, given.tables)
        packages_agree(folder)
        producers_fail(folder, given.batches)
        writers_are_killed(folder, program, given.batches)
        streams_are_cut(folder, program, rng, given.cuts)
        ends_in_time(folder, program)
        signals_end_it(folder, program)


if __name__ == "__main__":
    finish(main)
