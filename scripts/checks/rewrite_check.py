#!/usr/bin/env python3
"""Every command that rewrites records keeps each value and type, as pyarrow, DuckDB and Polars see them.

Each round makes a table with random columns of all types that Parquet and Arrow share, nested ones included, and values that include the
extremes of each type. pyarrow writes it as Parquet (also with INT96), as an Arrow file and as an Arrow stream; DuckDB writes Parquet, because
only it writes INTERVAL. What is expected are the Python values that the table was made from, never what shardify reads. After each step
all three readers read the live shards:

    convert; compact by copying, splicing, dividing, encoding again, --sort-by, --zorder; adopt and compact; convert of a dataset;
    erase from the newest version and from all; reshard, also with --shuffle and --where; remove and revert; tar and TFRecord and back

A reader is not asked for a column that it misreads in a Parquet file that pyarrow made of the same values; these are named as NOT RUN.
pyarrow reads all columns but INTERVAL, which it sees as 12 bytes.

    scripts/checks/rewrite_check.py --shardify target/release/shardify [--tables N] [--seed N] [--table N] [--known NAME ...]

`--known` names types whose differences are printed, but do not fail; a known type without a difference fails.
"""

import argparse
import collections
import decimal
import itertools
import os
import pathlib
import random
import re
import struct
import tempfile

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
import pyarrow.parquet as pq
from harness import Failure, Shardify, copied, finish, not_run
from readers import as_binary, is_list, is_text, plain_type

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86400
LONG = decimal.Context(prec=90)
# Seconds since 1970 of the beginnings of the years -1, 1, 9999 and 10000; days likewise.
YEARS = (-62198755200, -62135596800, 253370764800, 253402300800)
ROWS = 70
SOURCES = 3


class Unreadable(Exception):
    """A reader has another kind of value than the column."""


# --- values ---------------------------------------------------------------------------------------------------------
# Values of a column are in one form, whoever reads them: floats are their bits, times and durations count nanoseconds, dates count days,
# intervals are (months, days, nanoseconds), maps are lists of pairs, everything else is as in Python.


def leaf_types(rng):
    """Types that are not nested, one of each sort, by their name."""
    zone = rng.choice(["UTC", "Europe/Berlin", "+05:30"])
    short, long = rng.randrange(1, 39), rng.randrange(39, 77)
    types = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
    types += [pa.bool_(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.null()]
    types += [pa.decimal128(short, rng.randrange(0, short + 1)), pa.decimal256(long, rng.randrange(0, long + 1)), pa.decimal256(rng.randrange(1, 39), 1)]
    types += [pa.decimal32(rng.randrange(1, 10), 1), pa.decimal64(rng.randrange(10, 19), 4), pa.binary(rng.randrange(1, 9)), pa.uuid()]
    types += [pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
    types += [make(unit) for unit in UNITS for make in (pa.timestamp, pa.duration, lambda unit: pa.timestamp(unit, zone))]
    return types


def arrow_types(rng):
    """Types that Arrow files have and Parquet has not."""
    inner = rng.choice([pa.string(), pa.int64(), pa.timestamp("us"), pa.decimal128(20, 3)])
    return [
        pa.string_view(), pa.binary_view(), pa.list_view(pa.int32()), pa.dictionary(pa.int16(), inner), pa.dictionary(pa.uint8(), pa.large_string()),
        pa.run_end_encoded(pa.int32(), inner), pa.month_day_nano_interval(), pa.decimal128(7, -3), pa.list_(pa.dictionary(pa.int8(), pa.string())),
    ]  # fmt: skip


def nested_type(rng, depth=0):
    part = lambda: nested_type(rng, depth + 1) if depth < 2 and rng.random() < 0.4 else rng.choice(leaf_types(rng))
    some = lambda: next(kind for kind in iter(part, None) if not pa.types.is_null(kind))
    key = rng.choice([pa.string(), pa.int32(), pa.int64(), pa.date32(), pa.binary()])
    tensor = lambda: pa.fixed_shape_tensor(rng.choice([pa.int8(), pa.float32(), pa.float64(), pa.uint16()]), rng.choice([[4], [2, 3], [1, 2, 2]]))
    makers = [
        lambda: pa.list_(part()), lambda: pa.large_list(some()), lambda: pa.list_(some(), rng.randrange(1, 4)), lambda: pa.map_(key, some()),
        lambda: pa.struct([(name, part()) for name in rng.choice(["a", "ab", "xyz"])]),
    ]  # fmt: skip
    return rng.choice(makers if depth else [*makers, tensor])()


def value(rng, kind, wild):
    """A value of a type; `wild` columns go up to the ends of the type."""
    types = pa.types
    if types.is_null(kind) or rng.random() < 0.15:
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return rng.randbytes(16) if isinstance(kind, pa.UuidType) else [value(rng, kind.value_type, wild) or 0 for _ in range(kind.storage_type.list_size)]
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return value(rng, kind.value_type, wild)
    if types.is_struct(kind):
        return {field.name: value(rng, field.type, wild) for field in kind}
    if types.is_map(kind):
        pairs = [(value(rng, kind.key_type, wild), value(rng, kind.item_type, wild)) for _ in range(rng.randrange(4))]
        return list({key: (key, item) for key, item in pairs if key is not None}.values())
    if types.is_fixed_size_list(kind):
        return [value(rng, kind.value_type, wild) for _ in range(kind.list_size)]
    if is_list(kind) or types.is_list_view(kind):
        return [value(rng, kind.value_type, wild) for _ in range(rng.choice([0, 0, 1, 1, 2, 5]))]
    if types.is_boolean(kind):
        return rng.random() < 0.5
    if types.is_integer(kind):
        low, high = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1) if types.is_signed_integer(kind) else (0, 2**kind.bit_width - 1)
        return rng.choice([low, high, low + 1, high // 2 + 1, 0, 1, rng.randint(low, high), rng.randrange(100)])
    if types.is_floating(kind):
        exponent = {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF0000000000000}[kind.bit_width]
        sign, quiet = 1 << kind.bit_width - 1, exponent | (exponent & -exponent) >> 1
        bits = [0, sign, exponent, sign | exponent, quiet, 1, exponent - 1, rng.randrange(exponent), sign | rng.randrange(exponent)]
        return rng.choice(bits + [sign | quiet | 5, quiet | 0x101] * wild)
    if types.is_decimal(kind):
        digits = rng.choice([0, 1, 10**kind.precision - 1, 1 - 10**kind.precision, rng.randrange(10**kind.precision), -rng.randrange(10**kind.precision)])
        return decimal.Decimal(digits).scaleb(-kind.scale, LONG)
    if is_text(kind):
        return rng.choice(["", "a", "null", "NaN", "é😀\u0301", "a\0b", ' "x", \r\n', "x" * rng.randrange(300), f"t{rng.randrange(9)}"])
    if types.is_fixed_size_binary(kind):
        return rng.choice([bytes(kind.byte_width), b"\xff" * kind.byte_width, rng.randbytes(kind.byte_width)])
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return rng.choice([b"", b"\0", b"\0\0", b"a\0b", b"\xff\xfe", rng.randbytes(rng.randrange(200))])
    if types.is_interval(kind):
        return rng.randrange(2**31 * wild + 20), rng.randrange(100), rng.randrange(DAY * 1000) * 10**6
    return instant(rng, kind, wild)


def instant(rng, kind, wild):
    """A date (days), a time of day, a time or a duration (nanoseconds)."""
    if pa.types.is_date(kind):
        far = [-(2**31), 2**31 - 1, -5_000_000, 5_000_000] if pa.types.is_date32(kind) else [-(10**8), 10**8]
        return rng.choice([0, -1, *(year // DAY for year in YEARS[1:3]), rng.randrange(-50000, 50000), *(far + [YEARS[0] // DAY, YEARS[3] // DAY]) * wild])
    unit = UNITS[kind.unit]
    if pa.types.is_time(kind):
        end = DAY * 10**9 // unit
        return unit * rng.choice([0, 1, end - 1, end // 2, rng.randrange(end)])
    top = (2**63 - 1) // unit if kind.unit != "s" else 2**63 // 1000
    near = [0, 1, -1, rng.randrange(2**31) * 10**9 // unit, rng.randrange(-(2**62), 2**62) // unit]
    years = [year * 10**9 // unit + rng.randrange(2) for year in YEARS[1:3]] if kind.unit != "ns" else []
    far = [top, -top] if kind.unit == "ns" else [year * 10**9 // unit for year in (YEARS[0], YEARS[3])] + [2**62 * 1000 // unit // 10**4]
    return unit * rng.choice(near + years + far * wild)


def built(kind, values):
    """The array of Arrow of such values."""
    types, gone = pa.types, pa.array([value is None for value in values], pa.bool_())
    if types.is_null(kind):
        return pa.nulls(len(values))
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, built(kind.storage_type, values))
    if types.is_dictionary(kind):
        # Some keys lead to a null, and some values have no key.
        texts = sorted(set(value for value in values if value is not None), key=repr)
        keys = [len(texts) if value is None and row % 2 else None if value is None else texts.index(value) for row, value in enumerate(values)]
        return pa.DictionaryArray.from_arrays(pa.array(keys, kind.index_type), built(kind.value_type, [*texts, None]))
    if types.is_run_end_encoded(kind):
        return pa.compute.run_end_encode(built(kind.value_type, values), kind.run_end_type)
    if types.is_struct(kind):
        # Below a null there may be anything.
        below, last = [], {field.name: None for field in kind}
        for one in values:
            last = last if one is None else one
            below.append(last)
        parts = [built(field.type, [one[field.name] for one in below]) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=gone)
    if types.is_fixed_size_list(kind):
        items = [item for one in values for item in ([None] * kind.list_size if one is None else one)]
        return pa.FixedSizeListArray.from_arrays(built(kind.value_type, items), type=kind, mask=gone)
    if types.is_map(kind) or is_list(kind):
        items = [item for one in values for item in one or ()]
        ends = list(itertools.accumulate((len(one or ()) for one in values), initial=0))
        ends = pa.array(ends, pa.int64() if types.is_large_list(kind) else pa.int32())
        if types.is_map(kind):
            keys, items = built(kind.key_type, [key for key, _ in items]), built(kind.item_type, [item for _, item in items])
            return pa.MapArray.from_arrays(ends, keys, items, type=kind, mask=gone)
        maker = pa.LargeListArray if types.is_large_list(kind) else pa.ListArray
        return maker.from_arrays(ends, built(kind.value_type, items), type=kind, mask=gone)
    if types.is_floating(kind):
        return pa.array(values, {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[kind.bit_width]).view(kind)
    if types.is_date64(kind):
        return pa.array([one if one is None else one * DAY * 1000 for one in values], pa.int64()).view(kind)
    if types.is_date32(kind):
        return pa.array(values, pa.int32()).view(kind)
    if types.is_temporal(kind) and not types.is_interval(kind):
        counts = [one if one is None else one // UNITS[kind.unit] for one in values]
        return pa.array(counts, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array([pa.MonthDayNano(one) if types.is_interval(kind) and one is not None else one for one in values], kind)


class AnyNan:
    """A NaN of a float that a reader has widened: its bits are not those of the column."""


def seen(array, kind):
    """The values of an array that a reader returned for a column of the type `kind`; `Unreadable` if they are of another sort."""
    if isinstance(array, pa.ChunkedArray):
        return [one for chunk in array.chunks for one in seen(chunk, kind)]
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    types, found = pa.types, array.type
    if types.is_dictionary(found):
        return seen(array.dictionary_decode(), kind)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return seen(array, kind.value_type)
    missing = array.is_null().to_pylist()
    if types.is_null(kind):
        if not all(missing):
            raise Unreadable("values in a column without any")
        return [None] * len(missing)
    if all(missing):
        return [None] * len(missing)
    if types.is_struct(kind) and types.is_struct(found):
        if [field.name for field in kind] != [field.name for field in found]:
            raise Unreadable(f"fields {found}")
        parts = [seen(array.field(number), field.type) for number, field in enumerate(kind)]
        rows = zip(*parts) if parts else [()] * len(missing)
        return [None if gone else {field.name: one for field, one in zip(kind, row)} for gone, row in zip(missing, rows)]
    if types.is_nested(kind) and types.is_nested(found) and not types.is_struct(kind):
        return lists(array, kind, missing)
    if types.is_nested(kind) or types.is_nested(found):
        raise Unreadable(str(found))
    return leaves(array, kind, missing)


def lists(array, kind, missing):
    """Lists and maps; some readers see a map as a list of structs, and a list of fixed size as any list."""
    if pa.types.is_map(array.type):
        items = list(zip(seen(array.keys, kind.key_type), seen(array.items, kind.item_type)))
    elif pa.types.is_map(kind):
        below = array.values
        if not pa.types.is_struct(below.type):
            raise Unreadable(str(array.type))
        items = list(zip(seen(below.field(0), kind.key_type), seen(below.field(1), kind.item_type)))
    else:
        items = seen(array.values, kind.value_type)
    if pa.types.is_fixed_size_list(array.type):
        size, start = array.type.list_size, array.offset
        return [None if gone else items[(start + row) * size : (start + row + 1) * size] for row, gone in enumerate(missing)]
    starts = array.offsets.to_pylist()
    ends = [start + size for start, size in zip(starts, array.sizes.to_pylist())] if pa.types.is_list_view(array.type) else starts[1:]
    return [None if gone else items[start:end] for gone, start, end in zip(missing, starts, ends)]


def leaves(array, kind, missing):
    types, found = pa.types, array.type
    if types.is_floating(kind):
        if not types.is_floating(found) or found.bit_width < kind.bit_width:
            raise Unreadable(str(found))
        if found == kind:
            return array.view({16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[kind.bit_width]).to_pylist()
        wide = [0.0 if one is None else one for one in array.to_pylist()]
        with np.errstate(over="ignore", invalid="ignore"):
            bits = np.array(wide).astype(np.float16 if kind.bit_width == 16 else np.float32).view(f"u{kind.bit_width // 8}")
        return [None if gone else AnyNan if one != one else int(bit) for gone, one, bit in zip(missing, wide, bits)]
    if types.is_interval(kind):
        if types.is_fixed_size_binary(found) and found.byte_width == 12:
            parts = [one and struct.unpack("<III", one) for one in array.to_pylist()]
            return [part and (part[0], part[1], part[2] * 10**6) for part in parts]
        if not types.is_interval(found):
            raise Unreadable(str(found))
        return [one if one is None else tuple(one) for one in array.to_pylist()]
    if types.is_temporal(kind):
        if types.is_integer(found) and types.is_duration(kind):
            return [one if one is None else one * UNITS[kind.unit] for one in array.to_pylist()]
        if not types.is_temporal(found) or types.is_date(kind) != types.is_date(found) or types.is_interval(found):
            raise Unreadable(str(found))
        counts = array.view(pa.int32() if found.bit_width == 32 else pa.int64()).to_pylist()
        if types.is_date64(found):
            return [one if one is None else one // (DAY * 1000) for one in counts]
        scale = 1 if types.is_date32(found) else UNITS[found.unit]
        return [one if one is None else one * scale for one in counts]
    if is_text(kind) and is_text(found):
        return [one if one is None else one.decode() for one in as_binary(array).to_pylist()]
    if any(sort(kind) and sort(found) for sort in (types.is_boolean, types.is_integer, types.is_decimal, is_bytes)):
        return array.to_pylist()
    raise Unreadable(str(found))


def is_bytes(kind):
    return "binary" in str(kind)


def same(one, other):
    if isinstance(one, (list, tuple)):
        return isinstance(other, (list, tuple)) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return isinstance(other, dict) and all(same(one[name], other[name]) for name in one)
    return other is AnyNan and isinstance(one, int) or type(one) is type(other) and one == other


def without_payloads(kind, one):
    """The value with one NaN in place of all: text has no others."""
    if one is None or not isinstance(kind, pa.DataType):
        return one
    if isinstance(kind, pa.BaseExtensionType):
        return without_payloads(kind.storage_type, one)
    if pa.types.is_struct(kind):
        return {field.name: without_payloads(field.type, one[field.name]) for field in kind}
    if pa.types.is_map(kind):
        return [(key, without_payloads(kind.item_type, item)) for key, item in one]
    if is_list(kind) or pa.types.is_list_view(kind):
        return [without_payloads(kind.value_type, item) for item in one]
    if pa.types.is_floating(kind):
        exponent = {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF0000000000000}[kind.bit_width]
        return exponent + 1 if one is not AnyNan and one & exponent == exponent and one & (exponent & -exponent) - 1 else one
    return one


# --- readers --------------------------------------------------------------------------------------------------------


def item_names(kind):
    """The type as text, without the names that lists and maps give their items, which mean nothing."""
    return re.sub(r" \('\w+'\)", "", str(kind)).replace("<element: ", "<item: ")


def quoted(path):
    return "'" + str(path).replace("'", "''") + "'"


class Pyarrow:
    def read(self, path, names):
        return pq.ParquetFile(path).read(columns=names)

    def types(self, path):
        return {field.name: item_names(field.type) for field in pq.ParquetFile(path).schema_arrow}


class Duckdb:
    def read(self, path, names):
        columns = ", ".join(f'"{name}"' for name in names)
        return duckdb.sql(f"select {columns} from read_parquet({quoted(path)})").to_arrow_table()

    def types(self, path):
        return {row[0]: row[1] for row in duckdb.sql(f"describe from read_parquet({quoted(path)})").fetchall()}


class Polars:
    def read(self, path, names):
        return pl.read_parquet(path, columns=names, hive_partitioning=False).to_arrow()

    def types(self, path):
        return {name: str(kind) for name, kind in pl.read_parquet_schema(path).items()}


# With more threads, DuckDB 2.0 sometimes returns other texts for a column whose chunk has both dictionary and DELTA pages in its row group.
duckdb.sql("set threads = 1")
READERS = {"pyarrow": Pyarrow(), "DuckDB": Duckdb(), "Polars": Polars()}


def attempt(work):
    """(result, None), or (None, what was raised); Polars raises panics that are no `Exception`, and prints them."""
    with open(os.devnull, "w") as nowhere:
        shown = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            return work(), None
        except (Exception, pl.exceptions.PanicException) as error:  # noqa: BLE001: whatever a reader says of a column
            return None, f"{type(error).__name__}: {str(error)[:120]}"
        finally:
            os.dup2(shown, 2)
            os.close(shown)


# --- tables ---------------------------------------------------------------------------------------------------------

PARQUET = [
    {}, {"data_page_version": "2.0", "compression": "zstd", "data_page_size": 700}, {"use_dictionary": False, "compression": "none"},
    {"row_group_size": 40, "compression": "gzip"}, {"use_byte_stream_split": False, "write_page_index": True, "dictionary_pagesize_limit": 300},
]  # fmt: skip


def has(kind, *sorts):
    """Whether a type, or one within it, is of such a sort."""
    if isinstance(kind, pa.BaseExtensionType):
        return has(kind.storage_type, *sorts)
    below = [kind.value_type] if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else [kind.field(i).type for i in range(kind.num_fields)]
    return any(sort(kind) for sort in sorts) or any(has(one, *sorts) for one in below)


class Table:
    """Random columns and their values, and the files with them: `writer` is parquet, int96, arrow, duckdb, or interval: DuckDB with a column of that type."""

    def __init__(self, rng, writer):
        self.rng, self.writer, self.rows = rng, writer, ROWS * SOURCES
        self.of_duckdb = writer in ("duckdb", "interval")
        leaves = [kind for kind in leaf_types(rng) if not self.of_duckdb or not has(kind, *NOT_OF_DUCKDB)]
        kinds = rng.sample(leaves, 9) + [nested_type(rng) for _ in range(5)]
        if rng.random() < 0.7:
            # Polars takes no file that has one of these.
            kinds = [kind for kind in kinds if not has(kind, pa.types.is_decimal256)]
        if writer == "arrow":
            kinds += rng.sample(arrow_types(rng), 3)
        if writer == "int96":
            kinds += [pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms", "UTC")]
        if self.of_duckdb:
            kinds = [kind for kind in kinds if not has(kind, *NOT_OF_DUCKDB)]
            kinds += [pa.month_day_nano_interval()] * (writer == "interval")
        self.kinds = {"id": pa.string(), "who": pa.string(), "key": pa.int32()} | {f"c{number}": kind for number, kind in enumerate(kinds)}
        numbers = range(self.rows)
        self.values = {"id": [f"R{row:05}" for row in numbers], "who": [f"P{row % 7}" for row in numbers]}
        self.values["key"] = [None if row % 11 == 0 else row * 7919 % 50 for row in numbers]
        for name, kind in list(self.kinds.items())[3:]:
            wild, empty = rng.random() < 0.3, rng.random() < 0.05 and not has(kind, pa.types.is_interval)
            self.values[name] = [None if empty else value(rng, kind, wild) for _ in numbers]

    def arrow(self, rows, plain=False):
        kinds = {name: plain_type(kind) if plain else kind for name, kind in self.kinds.items()}
        return pa.table({name: built(kind, [self.values[name][row] for row in rows]) for name, kind in kinds.items()})

    def write(self, path, number):
        rows = range(number * ROWS, (number + 1) * ROWS)
        if self.of_duckdb:
            table = self.arrow(rows)  # noqa: F841: DuckDB finds it by its name
            duckdb.sql(f"copy (select * from table) to {quoted(path)} (format parquet, row_group_size 2048)".replace("from table", 'from "table"'))
        elif self.writer == "arrow":
            table = self.arrow(rows)
            make = pa.ipc.new_stream if number == 1 else pa.ipc.new_file
            with make(path, table.schema) as file:
                file.write_table(table, max_chunksize=self.rng.choice([40, 1000]))
        else:
            options = self.rng.choice(PARQUET)
            int96 = self.writer == "int96"
            pq.write_table(self.arrow(rows), path, use_deprecated_int96_timestamps=int96, store_schema=not int96, **options)

    def known_as(self, name):
        """The name of a column's type for `--known` and in what is printed."""
        kind = self.kinds[name]
        if self.writer == "int96" and has(kind, pa.types.is_timestamp):
            return "int96"
        return "interval" if has(kind, pa.types.is_interval) else str(kind)


# What DuckDB has no type for, or writes as another.
NOT_OF_DUCKDB = (
    pa.types.is_decimal256, pa.types.is_float16, pa.types.is_duration, pa.types.is_null, pa.types.is_date64, pa.types.is_time, pa.types.is_fixed_size_binary,
    pa.types.is_fixed_size_list, pa.types.is_large_string, pa.types.is_large_binary, pa.types.is_large_list, pa.types.is_timestamp,
)  # fmt: skip


# --- rounds ---------------------------------------------------------------------------------------------------------


class Round:
    """One table, taken through every command."""

    def __init__(self, shardify, folder, number, seed, tally):
        self.shardify, self.folder, self.number, self.tally = shardify, folder, number, tally
        writers = ("parquet", "arrow", "int96", "interval", "duckdb")
        self.table = Table(random.Random(f"{seed}-{number}"), writers[number % len(writers)])
        self.count = 0

    def sources(self):
        ending = "arrow" if self.table.writer == "arrow" else "parquet"
        (self.folder / "in").mkdir()
        paths = [self.folder / "in" / f"{number}.{ending}" for number in range(SOURCES)]
        for number, path in enumerate(paths):
            self.table.write(path, number)
        self.reference = paths[0]
        if not self.table.of_duckdb:
            self.reference = self.folder / "reference.parquet"
            written = self.table.arrow(range(self.table.rows), plain=True)
            pq.write_table(
                written.select([name for name in written.column_names if writable(written.schema.field(name).type)]),
                self.reference,
                store_schema=self.table.writer != "int96",
            )
        self.able = {reader: self.readable(reader, self.reference) for reader in READERS}
        return paths

    def readable(self, reader, path):
        """The columns that a reader reads right in the reference, or in a file of the first rows."""
        table, names, rows = self.table, [], range(pq.ParquetFile(path).metadata.num_rows)
        for name, kind in table.kinds.items():
            if not writable(plain_type(kind)) and not table.of_duckdb:
                names += [name] if reader == "pyarrow" else []
                continue
            found, error = attempt(lambda: seen(READERS[reader].read(path, [name])[name], kind))
            expected = [table.values[name][row] for row in rows]
            if error is None and same(expected, found):
                names.append(name)
            elif reader == "pyarrow" and path == self.reference:
                raise Failure(f"round {self.number}: pyarrow does not read what was written: {kind}: {error or unequal(expected, found)}")
            else:
                self.tally.unread[reader, table.known_as(name), re.sub(r"\d+", "N", error or "it reads other values")[:90]] += 1
        return names

    def fresh(self, name):
        self.count += 1
        return self.folder / f"{name}{self.count}"

    def copy(self):
        return copied(self.base, self.fresh("ds"))

    def check(self, step, dataset, rows=None, ordered=True, at=None, exact=True, types=None):
        """All three readers see these rows (all of them by default) in the live shards, with the types of the reference."""
        rows = list(range(self.table.rows)) if rows is None else rows
        listed = self.shardify.ok("manifest", dataset, "--list", *(["--at", at] if at else []))
        paths = [pathlib.Path(dataset) / one["path"] for one in listed if one["type"] == "shard"]
        read = [name for path in paths for name in pq.ParquetFile(path).read(columns=["id"])["id"].to_pylist()]
        # A row that only makes the schemas differ.
        found = [int(name[1:]) for name in read if name != "extra"]
        wrong = found != rows if ordered else sorted(found) != sorted(rows)
        if wrong:
            raise Failure(f"round {self.number}, {step}: expected {len(rows)} rows{' in order' * ordered}, found {len(found)}: {found[:20]}")
        order = [None if name == "extra" else int(name[1:]) for name in read]
        for reader, names in self.able.items():
            self.tally.checks += 1
            tables = [attempt(lambda: READERS[reader].read(path, names))[0] for path in paths]
            for name in names:
                self.column(step, reader, name, paths, tables, order, exact)
            self.same_types(step, reader, names, paths, types)

    def column(self, step, reader, name, paths, tables, order, exact):
        kind, values = self.table.kinds[name], self.table.values[name]
        # Where a reader fails for one of the columns, each is read by itself.
        column = lambda path, table: (READERS[reader].read(path, [name]) if table is None else table)[name]
        found, error = attempt(lambda: [one for path, table in zip(paths, tables) for one in seen(column(path, table), kind)])
        if error:
            return self.tally.difference(self, step, reader, name, error)
        # The row that only makes schemas differ is not looked at.
        found = [one for row, one in zip(order, found, strict=True) if row is not None]
        expected = [values[row] for row in order if row is not None]
        if not exact:
            expected, found = ([without_payloads(kind, one) for one in side] for side in (expected, found))
        if not same(expected, found):
            self.tally.difference(self, step, reader, name, unequal(expected, found))

    def same_types(self, step, reader, names, paths, source):
        expected = attempt(lambda: READERS[reader].types(source or self.reference))[0] or {}
        for path in paths:
            found, error = attempt(lambda: READERS[reader].types(path))
            for name in names:
                a, b = expected.get(name), error or found.get(name)
                # INT96 has no unit of its own, so a rewrite may state one.
                if a != b and a is not None and self.table.known_as(name) != "int96":
                    self.tally.difference(self, step, reader, name, f"type: expected {a}, found {b}")

    def convert(self, source, out, *options):
        self.shardify.ok("convert", source, "--out", out, "--id", "id", "--subject", "who", "--target-shard", "48KiB", *options)
        return out

    def run(self):
        paths = self.sources()
        self.base = self.fresh("base")
        for path in paths:
            self.convert(path, self.base)
        self.check("convert", self.base)
        self.compacted()
        self.sorted()
        self.erased()
        self.resharded()
        self.undone()
        if self.table.writer != "arrow":
            self.adopted()
        self.converted()

    def compacted(self):
        run, dataset = self.shardify.ok, self.copy()
        merge = ("--min-inputs", 2, "--target-shard", "1MiB")
        run("compact", dataset, *merge)
        self.check("compact", dataset)
        run("compact", dataset, "--target-shard", "16KiB")
        self.check("compact that divides", dataset)
        dataset = self.copy()
        run("compact", dataset, *merge, "--codec", "gzip")
        self.check("compact --codec", dataset)
        dataset, extra = self.copy(), self.fresh("extra").with_suffix(".parquet")
        pq.write_table(pa.table({"id": ["extra"], "who": ["nobody"], "more": [1]}), extra)
        self.convert(extra, dataset)
        run("compact", dataset, *merge)
        self.check("compact of two schemas", dataset)

    def sorted(self):
        dataset, keys = self.copy(), self.table.values["key"]
        self.shardify.ok("compact", dataset, "--sort-by", "key")
        rows = sorted(range(self.table.rows), key=lambda row: (keys[row] is not None, keys[row] or 0))
        self.check("compact --sort-by", dataset, rows)
        dataset = self.copy()
        self.shardify.ok("compact", dataset, "--zorder", "key,who")
        self.check("compact --zorder", dataset, ordered=False)

    def without(self, *people):
        return [row for row in range(self.table.rows) if f"P{row % 7}" not in people]

    def erased(self):
        run, dataset = self.shardify.ok, self.copy()
        run("erase", dataset, "--subject", "P3")
        self.check("erase", dataset, self.without("P3"))
        self.check("erase, an older version", dataset, at="v3")
        run("erase", dataset, "--subject", "P4", "--all-versions")
        self.check("erase --all-versions", dataset, self.without("P3", "P4"))
        self.check("erase --all-versions, an older version", dataset, self.without("P4"), at="v3")

    def resharded(self):
        run, keys = self.shardify.ok, self.table.values["key"]
        for options, rows in (
            (["--records-per-shard", 37], None),
            (["--shuffle", 5], None),
            (["--where", "key < 20"], [row for row in range(self.table.rows) if keys[row] is not None and keys[row] < 20]),
        ):
            out = self.fresh("cut")
            run("reshard", self.base, "--out", out, *options)
            self.check(f"reshard {options[0]}", out, rows, ordered="--shuffle" not in options)

    def undone(self):
        run, dataset = self.shardify.ok, self.copy()
        run("remove", dataset, "--run", "v2")
        self.check("remove", dataset, [row for row in range(self.table.rows) if row // ROWS != 1])
        run("remove", dataset, "--source", "0.arrow" if self.table.writer == "arrow" else "0.parquet")
        run("revert", dataset, "--to", "v3")
        self.check("revert", dataset)

    def converted(self):
        # Shards of a dataset are sources like others, in the order of their names.
        self.check("convert of a dataset", self.convert(self.base, self.fresh("again")), ordered=False)
        # Tensors are arrays of their own there, which stay what they are.
        tensors = {name for name, kind in self.table.kinds.items() if isinstance(kind, pa.FixedShapeTensorType)}
        others = ["--columns", ",".join(name for name in self.table.kinds if name not in tensors)]
        self.able = {reader: [name for name in names if name not in tensors] for reader, names in self.able.items()}
        for form in ("tar", "tfrecord"):
            between, back = self.convert(self.base, self.fresh(form), "--to", form, *others), self.fresh("back")
            self.shardify.ok("convert", between, "--out", back, "--to", "parquet")
            self.check(f"back from {form}", back, ordered=False, exact=False)

    def adopted(self):
        run, dataset = self.shardify.ok, self.fresh("adopted")
        source = self.folder / "in" / "0.parquet"
        able, self.able = self.able, {reader: self.readable(reader, source) for reader in READERS}
        run("adopt", self.folder / "in", "--out", dataset, "--id", "id", "--subject", "who")
        self.check("adopt", dataset, types=source)
        cut = self.fresh("cut")
        run("reshard", dataset, "--out", cut, "--records-per-shard", 41)
        self.check("reshard of adopted files", cut, types=source)
        run("compact", dataset, "--min-inputs", 2, "--target-shard", "1MiB")
        self.check("compact of adopted files", dataset, types=source)
        run("erase", dataset, "--subject", "P5", "--all-versions")
        self.check("erase from adopted files", dataset, self.without("P5"), types=source)
        self.able = able


def writable(kind):
    """Whether pyarrow writes a type to Parquet."""
    return not has(kind, pa.types.is_interval, lambda one: pa.types.is_decimal(one) and one.scale < 0)


def unequal(expected, found):
    if len(expected) != len(found):
        return f"expected {len(expected)} values, found {len(found)}"
    row = next(row for row, (a, b) in enumerate(zip(expected, found)) if not same(a, b))
    return f"row {row + 1}: expected {expected[row]!r:.150}, found {found[row]!r:.150}"


class Tally:
    """What was found over all rounds."""

    def __init__(self, known):
        self.known, self.failed, self.checks = dict.fromkeys(known, 0), 0, 0
        self.unread, self.told = collections.Counter(), collections.Counter()

    def difference(self, one, step, reader, name, message):
        kind = one.table.known_as(name)
        if kind in self.known:
            self.known[kind] += 1
        else:
            self.failed += 1
        # What begins in one step is the same in those that follow.
        place = (one.number, reader, name, message.startswith("type: "))
        self.told[place] += 1
        if self.told[place] > 1:
            return
        print(f"{'known' if kind in self.known else 'FAIL '} round {one.number} ({one.table.writer}), {step}: {reader}: {name} {kind}: {message}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--table", type=int, help="only the round of this number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--known", nargs="*", default=[], metavar="NAME", help="types whose differences do not fail, such as interval")
    options = parser.parse_args()
    shardify, tally = Shardify(options.shardify), Tally(options.known)
    numbers = range(options.tables) if options.table is None else [options.table]
    for number in numbers:
        with tempfile.TemporaryDirectory(prefix="rewrite") as folder:
            try:
                Round(shardify, pathlib.Path(folder), number, options.seed, tally).run()
            except Failure as failure:
                tally.failed += 1
                print(f"FAIL  round {number}: {failure}", flush=True)
    for (reader, kind, why), times in sorted(tally.unread.items()):
        not_run(f"{reader}: {kind}", f"in the file of the writer: {why} ({times} columns)")
    stale = [kind for kind, times in tally.known.items() if not times]
    for kind in stale:
        print(f"FAIL  {kind}: given as known, and there is no difference")
    print(f"seed {options.seed}: {len(numbers)} tables, {tally.checks} readings, {tally.failed} differences")
    return 1 if tally.failed or stale else 0


if __name__ == "__main__":
    os.environ["RUST_BACKTRACE"] = "0"
    finish(main)
