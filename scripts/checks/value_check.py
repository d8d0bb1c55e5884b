#!/usr/bin/env python3
"""Every value of every file of the corpus, to every output and back, as independent readers see it.

A table (CSV, TSV, JSON, JSON lines, Parquet, Arrow), an archive (tar, TFRecord) or arrays (NetCDF, HDF5, Zarr, NPY) is read by
another reader (scripts/checks/readers.py: Python's csv, json and tarfile, an own parser of TFRecord; pyarrow; netCDF4, h5py, zarr, numpy) and
compared, value by value and in order, with what `convert` wrote:

    source -> Parquet, as pyarrow reads it; of Parquet and Arrow the types, too, as the footer, pyarrow and DuckDB state them
    source -> tar, as tarfile reads it, and back to Parquet: values, Arrow types, footer, extensions, types of DuckDB
    source -> TFRecord, both checksums proved, and back to Parquet: the same

Records that shardify rejects (`--on-error quarantine`) have to be ones that the other reader finds fault with, too. A file that
shardify refuses and the other reader reads is printed; a difference that is meant stands in `KNOWN` with its reason, and fails
when it is gone. Each file has a process of its own.

    scripts/checks/value_check.py --shardify target/release/shardify [--corpus DIR] [--only TEXT] [--jobs N]
"""

import argparse
import collections
import fnmatch
import io
import json
import lzma
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import urllib.parse
import zlib

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
import pyarrow.parquet as pq

import arrays_check
import readers
import types_check
from harness import not_run
from readers import Bad, cells

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 60
# Folder of the corpus -> what its files are; others hold pictures, recordings, or tables of other systems.
KINDS = {
    "csv-edge": "csv", "csv-real": "csv", "patients": "csv", "json-edge": "json", "json-real": "json",
    "jsonl-real": "jsonl", "parquet": "parquet", "parquet-bad": "parquet", "petastorm": "parquet", "delta-tables": "parquet",
    "tar-edge": "tar", "tar-wds": "tar", "tfrecord": "tfrecord", "hdf5": "hdf5", "netcdf": "netcdf", "npy": "npy", "zarr": "zarr",
}  # fmt: skip
ARRAYS = ("hdf5", "netcdf", "npy", "zarr")

# Name (a pattern) and the begin of the difference -> why it is meant.
KNOWN = {
    ("*/smallpop-colon.csv", "csv: no delimiter"): "delimited by colons, which the other reader is not told",
    ("*/17738_rn.csv", "csv: no delimiter"): "lines of text above the table are skipped with a note",
    ("*/comments/comment_skip.csv", "csv: no delimiter"): "the same",
    ("*/stats_3_muta_10_21.csv", "csv: no delimiter"): "the same",
    ("*/fuzzing/2.csv", "csv: no delimiter"): "the first line has another delimiter than the records",
    ("*/strange.csv", "csv: "): "quotes that are not doubled stay in the value, with a note; Python drops them",
    ("*/auto/titlebasicsdebug.tsv", "csv: primaryTitle"): "the same",
    ("*/unquoted/unquoted_new_line.csv", "csv: a"): "the same",
    ("*/unescaped_quotes/unescaped_quote.csv", "csv: pedro"): "the same",
    ("*/unescaped_quotes/unescaped_quote_new_line.csv", "csv: pedro"): "the same",
    ("*/unescaped_quotes/unescaped_quote_new_line_rn.csv", "csv: pedro"): "the same",
    ("*/nested_structs.rust.parquet", "types of DuckDB"): "older writers say with a converted type that times are in UTC, which DuckDB passes over",
    ("*/json_convertedtype.parquet", "types of DuckDB"): "the same",
    ("*/unknown-logical-type.parquet", "footer"): "a logical type that no reader knows is omitted",
    ("*/empty_group_test.parquet", "types of DuckDB"): "a group without columns has no values, and is omitted",
    ("*/bug4903.parquet", "types of pyarrow"): "dates in INT96 beyond the nanoseconds of 64 bits, which pyarrow wraps around",
    ("*/gnu-utf8.tar", "back from tar"): "names beyond ASCII are escaped in tar, and the key is the name",
    ("*/test_write_disk_mac_metadata.tar.gz", "tar: sample 1"): "an empty key is escaped in tar",
    ("*/invalid-go17.tar", "tar: __key__"): "GNU's archives have no prefix; Python takes one",
    ("*/netcdf4_classic.nc", "values: ['netcdf4_classic.nc : x is missing"): "a dimension of netCDF, which HDF5 stores as a dataset without values",
    ("*/top_level_two_arrays.json", "rejects"): "a second document in a file is a reject; Python's json takes neither",
}


# What a deprecated INT96 becomes: pyarrow sees nanoseconds in both, DuckDB microseconds in INT96 and nanoseconds afterwards.
NANOSECONDS = "Timestamp(isAdjustedToUTC=false, timeUnit=nanoseconds)"


class Refused(Exception):
    """shardify ended with an error."""


class Skipped(Exception):
    """Nothing to compare with, and why."""


class Different(Exception):
    """A difference; the message begins with where."""


def expect(condition, message):
    if not condition:
        raise Different(message() if callable(message) else message)


# --- shardify -------------------------------------------------------------------------------------------------------


class Work:
    """A file in the hands of shardify, in a folder that is deleted afterwards."""

    def __init__(self, shardify, folder):
        self.shardify, self.folder = shardify, folder
        self.summary = {}

    def convert(self, source, out, *options):
        """Converts, and returns the summary; `Refused` with what was said."""
        command = [self.shardify, "convert", source, "--out", out, "--json", "--jobs", "1", "--progress", "never", *options]
        command += [] if "--to" in options else ["--to", "parquet"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=SECONDS)
        expect(done.returncode in (0, 2, 3, 6), f"exit code {done.returncode}: {done.stderr[-300:]}")
        if done.returncode in (2, 6):
            raise Refused(done.stderr.strip().splitlines()[0] if done.stderr.strip() else done.stdout[-200:])
        self.summary = json.loads(done.stdout.splitlines()[-1])
        return self.summary

    def files(self, out, ending):
        return sorted(p for p in (self.folder / out).glob(f"*/*{ending}") if p.parent.name != "_shardify")

    def parquet(self, out):
        """One table of all shards, in order; `None` where no record was written."""
        shards = self.files(out, ".parquet")
        return pa.concat_tables([pq.ParquetFile(path).read() for path in shards]) if shards else None

    def rejects(self, out, summary):
        """What was rejected, each with its row, the first being 1; without one for a file that cannot be read any further."""
        if not summary["records_rejected"]:
            return []
        lines = (self.folder / out / summary["rejects"]).read_bytes().splitlines()
        return [json.loads(line) for line in lines]

    def read(self, path, options, given):
        """(records of the other reader that were not rejected, table) of a source as Parquet. `given` reads it as the other reader does;
        a record is `Bad` or an exception where that one cannot read it."""
        try:
            summary = self.convert(path, "parquet", *options)
        except Refused:
            # Whether the other reader reads it.
            self.good(given)
            raise
        rejects, table = self.rejects("parquet", summary), self.parquet("parquet")
        records = self.good(given)
        if table is None and len(rejects) == 1 and not only_bad(records):
            raise Refused(rejects[0]["reason"])
        return records, [line.get("row", 0) for line in rejects], table

    def good(self, given):
        try:
            records = given()
        except (Bad, ValueError, OSError, EOFError, RecursionError, struct.error, tarfile.TarError, lzma.LZMAError, zlib.error, OverflowError) as error:
            raise Skipped(f"the other reader: {type(error).__name__}: {str(error)[:150]}") from error
        if only_bad(records):
            raise Skipped("no records that the other reader reads")
        return records


def only_bad(records):
    return not any(isinstance(record, (dict, tuple, list, bytes, int)) for record in records)


def kept(records, rejected, is_bad):
    """Records without the rejected ones, each of which has to be bad; where the end cannot be read, as many as there are."""
    for row in rejected:
        expect(0 <= row <= len(records), f"rejects: row {row} of {len(records)}")
        expect(row == 0 or is_bad(records[row - 1]), lambda: f"rejects: row {row} was rejected: {str(records[row - 1])[:200]}")
    wrong = set(rejected)
    return [record for row, record in enumerate(records, 1) if row not in wrong]


def same_values(records, table, agrees, where):
    """`agrees(record, column name, value, type)` for all of them."""
    expect(len(records) == table.num_rows, f"{where}: expected {len(records)} records, found {table.num_rows}")
    for number, field in enumerate(table.schema):
        for row, value in enumerate(cells(table.column(number))):
            try:
                fine = agrees(records[row], field.name, value, field.type)
            except (ValueError, KeyError, AttributeError, TypeError, IndexError, Bad) as error:
                raise Different(f"{where}: {field.name}, record {row + 1}: {value!r:.200} ({field.type}): {error!r:.200}") from error
            expect(fine, lambda: f"{where}: {field.name}, record {row + 1}: {records[row]!r:.300} is not {value!r:.200} ({field.type})")


def same_records(records, table, agrees, where, names=dict.keys):
    """As `same_values`, and each of the `names` of a record is a column; returns the table."""
    if table is None:
        expect(not records, f"{where}: no records, {len(records)} expected")
        raise Skipped("no records")
    same_values(records, table, agrees, where)
    columns = set(table.column_names)
    for record in records:
        expect(names(record) <= columns, lambda: f"{where}: a column is missing: {names(record)}")
    return table


# --- what others read -----------------------------------------------------------------------------------------------


def check_csv(work, path, options):
    data = b""

    def given():
        nonlocal data
        data = readers.in_utf8(readers.content(path))
        if b"\0" in data:
            raise Bad("text with NULs")
        data[: data.find(b"\n") + 1].decode()
        return data.splitlines()

    _, rejected, table = work.read(path, options, given)
    if table is None:
        names = [name for name, _ in work.summary["columns"]]
        found = readers.csv_rows(data, names) if names else None
        expect(not found or all(readers.is_bad(row, len(names)) for row in found[1]), "csv: no records")
        raise Skipped("no records")
    found = readers.csv_rows(data, table.column_names)
    expect(found, lambda: f"csv: no delimiter gives the columns {table.column_names}")
    header, rows = found
    bad = lambda row: readers.is_bad(row, len(header))
    if rejected and rejected[-1] in (0, len(rows)) and data.count(b'"') % 2:
        # A quote that is never closed: Python takes what is behind it as the field.
        rows, rejected = rows[: table.num_rows + len(rejected) - 1], rejected[:-1]
    rows = kept(rows, rejected, bad)
    places = {name: number for number, name in enumerate(table.column_names)}

    def agrees(row, name, value, kind):
        place = places[name]
        return value is None if place >= len(row) else readers.field_agrees(row[place], value, kind)

    same_values(rows, table, agrees, "csv")
    return table


def check_json(work, path, options):
    lines = "jsonl" in options

    def given():
        data = readers.in_utf8(readers.content(path))
        try:
            return readers.json_records(data, lines)
        except ValueError:
            # Lines, or one document behind the other, whatever the name says.
            return readers.json_records(data, True)

    records, rejected, table = work.read(path, options, given)
    records = kept(records, rejected, lambda record: not isinstance(record, dict))
    agrees = lambda record, name, value, kind: readers.json_agrees(record.get(name), value, kind)
    return same_records(records, table, agrees, "json")


def check_arrow(work, path, options):
    """Parquet and Arrow: values and types, as pyarrow and DuckDB see them in the source and in the shards."""
    with open(path, "rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    given = None

    def rows():
        nonlocal given
        try:
            given = pq.ParquetFile(path).read() if is_parquet else pa.ipc.open_file(path).read_all()
            given.validate(full=True)
        except (pa.ArrowException, OSError, NotImplementedError, UnicodeDecodeError) as error:
            raise Skipped(f"pyarrow: {str(error)[:150]}") from error
        return range(given.num_rows)

    _, _, table = work.read(path, options, rows)
    expect(given.num_rows == table.num_rows, f"values: expected {given.num_rows} rows, found {table.num_rows}")
    names = readers.distinct([name.encode() for name in given.column_names])
    expect(names == table.column_names, lambda: f"names: expected {names}, found {table.column_names}")
    for number, name in enumerate(names):
        one, other = given.column(number), table.column(number)
        wanted, kind = str(readers.plain_type(one.type)), str(readers.plain_type(other.type))
        expect(wanted == kind, f"types of pyarrow: {name}: expected {wanted}, found {kind}")
        for row, (a, b) in enumerate(zip(cells(one), cells(other))):
            expect(readers.same(a, b), lambda: f"values: {name}, row {row + 1}: expected {a!r:.200}, found {b!r:.200}")
    if is_parquet:
        same_types(path, work.files("parquet", ".parquet")[0])
    return table


def same_types(one, other):
    """The types of leaves in the footer, and those of DuckDB; names that lists give their items aside."""
    expected, found = leaves(one), leaves(other)
    expect(expected == found, lambda: f"footer: {[(e, f) for e, f in zip(expected, found) if e != f][:3]}")
    expected, found = duck_types(one), duck_types(other)
    if expected is not None:
        schema = pq.ParquetFile(one).schema
        columns = [schema.column(i) for i in range(len(schema.names))]
        places = {column.path.split(".")[0] for column in columns if column.physical_type == "INT96"}
        names = pq.ParquetFile(one).schema_arrow.names
        expected = [t.replace("TIMESTAMP", "TIMESTAMP_NS") if n in places else t for n, t in zip(names, expected)]
        expect(expected == found, lambda: f"types of DuckDB: {[(e, f) for e, f in zip(expected, found or []) if e != f][:3]}")


def leaves(path):
    """Logical type of each leaf, and the physical one where there is none or it says more."""
    schema = pq.ParquetFile(path).schema
    out = []
    for number in range(len(schema.names)):
        column = schema.column(number)
        logical = str(column.logical_type)
        logical = re.sub(r"Int\(bitWidth=(32|64), isSigned=true\)", "None", logical)
        # An older writer says this with the converted type alone.
        logical = re.sub(r", is_from_converted_type=\w+|, force_set_converted_type=\w+", "", logical)
        physical = "" if logical.startswith("Decimal") else column.physical_type
        if physical == "INT96":
            physical, logical = "INT64", NANOSECONDS
        out.append((physical, logical))
    return out


def duck_types(path):
    try:
        return [row[1] for row in duckdb.sql(f"describe from read_parquet('{str(path).replace(chr(39), chr(39) * 2)}')").fetchall()]
    except duckdb.Error:
        return None


def check_tar(work, path, options):
    samples, rejected, table = work.read(path, options, lambda: readers.samples(readers.members(readers.content(path))))
    is_bad = lambda parts: any(len(p) > 1 or isinstance(p[0], Bad) for p in parts.values())
    good = [(key, parts) for key, parts in samples if not is_bad(parts)]

    def agrees(sample, name, value, kind):
        key, parts = sample
        if name == "__key__":
            return value == key
        found = parts.get(name, [None])[0]
        return found == (value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)

    return same_records(good, table, agrees, "tar", lambda sample: sample[1].keys())


def check_tfrecord(work, path, options):
    records, rejected, table = work.read(path, options, lambda: list(map(as_example, readers.frames(readers.content(path)))))
    records = kept(records, rejected, lambda record: isinstance(record, Bad))
    agrees = lambda record, name, value, kind: readers.feature_agrees(record.get(name), value, kind)
    return same_records(records, table, agrees, "tfrecord")


def as_example(frame):
    try:
        return frame if isinstance(frame, Bad) else readers.example(frame)
    except (Bad, UnicodeDecodeError) as error:
        return Bad(str(error))


# --- there and back -------------------------------------------------------------------------------------------------


def check_ways(work, path, options, table, samples):
    """To tar and TFRecord, and back."""
    for way in ("tar", "tfrecord"):
        try:
            work.convert(path, way, "--to", way, *options)
        except Refused as error:
            raise Different(f"{way}: refused, and Parquet is not: {error}") from error
        if way == "tar":
            same_tar(work, table, samples)
        else:
            same_tfrecord(work, table)
        work.convert(way, f"{way}-back", "--to", "parquet")
        back = work.parquet(f"{way}-back")
        expect(back is not None, f"back from {way}: no records")
        expect(back.num_rows == table.num_rows, f"back from {way}: expected {table.num_rows} records, found {back.num_rows}")
        same_schema(work, table, back, way)
        for name in table.column_names:
            for row, (a, b) in enumerate(zip(cells(table[name]), cells(back[name]))):
                expect(
                    readers.same(a, b) or is_json(table.schema.field(name).type, a, b),
                    lambda: f"back from {way}: {name}, record {row + 1}: expected {a!r:.200}, found {b!r:.200}",
                )


def is_json(kind, one, other):
    """Whether both are the same document; a row in a tar is one line."""
    return "arrow.json" in str(kind) and one is not None and other is not None and as_documents(one) == as_documents(other)


def as_documents(value):
    if isinstance(value, (list, dict)):
        return [as_documents(v) for v in (value.values() if isinstance(value, dict) else value)]
    if isinstance(value, str):
        try:
            return readers.parsed(value)
        except ValueError:
            return value
    return value


def same_schema(work, table, back, way):
    expected = {field.name: (str(field.type), field.nullable, extension(field)) for field in table.schema}
    found = {field.name: (str(field.type), field.nullable, extension(field)) for field in back.schema}
    wrong = {name: (expected.get(name), found.get(name)) for name in expected | found if expected.get(name) != found.get(name)}
    expect(not wrong, lambda: f"back from {way}: types of pyarrow: {str(wrong)[:400]}")
    expect(list(expected) == list(found), lambda: f"back from {way}: order of columns: {list(found)}")
    one, other = work.files("parquet", ".parquet")[0], work.files(f"{way}-back", ".parquet")[0]
    one_footer, other_footer = types_check.footer(one), types_check.footer(other)
    expect(one_footer == other_footer, lambda: f"back from {way}: footer: {[x for x in zip(one_footer, other_footer) if x[0] != x[1]][:3]}")
    # What DuckDB sees is made of the schema in the footer alone.
    if str(pq.ParquetFile(one).schema) != str(pq.ParquetFile(other).schema):
        one_duck, other_duck = duck_types(one), duck_types(other)
        expect(one_duck == other_duck, lambda: f"back from {way}: types of DuckDB: {one_duck} {other_duck}"[:400])


def extension(field):
    """Name and metadata of the extension of a column that pyarrow knows, and of one that it does not."""
    known = isinstance(field.type, pa.BaseExtensionType) and (field.type.extension_name, str(field.type))
    unknown = {key: value for key, value in (field.metadata or {}).items() if key.startswith(b"ARROW:extension")}
    return known, unknown


def same_tar(work, table, samples):
    files = [file for shard in work.files("tar", ".tar") for file in readers.members(shard)]
    if samples:
        keys = cells(table["__key__"])
        found = [(key, {e: p[0] for e, p in parts.items()}) for key, parts in readers.samples(files)]
        columns = {name: cells(table[name]) for name in table.column_names if name != "__key__"}
        expect(len(found) == len(keys), f"tar: expected {len(keys)} samples, found {len(found)}")
        for row, (key, parts) in enumerate(found):
            # What a reader of tar would take for something else is escaped.
            key = urllib.parse.unquote(key) if "%" not in keys[row] else key
            expect(key == keys[row], lambda: f"tar: sample {row + 1}: expected {keys[row]!r}, found {key!r}")
            given = {name: column[row] for name, column in columns.items() if column[row] is not None}
            given = {n: v.encode("utf-8", "surrogateescape") if isinstance(v, str) else v for n, v in given.items()}
            expect(given == parts, lambda: f"tar: sample {key}: parts {given.keys()} and {parts.keys()} differ")
        return
    records = [readers.parsed(data) for name, data in files]
    agrees = lambda record, name, value, kind: readers.json_agrees(record[name], value, kind)
    same_values(records, table, agrees, "tar")


def same_tfrecord(work, table):
    frames = [frame for shard in work.files("tfrecord", ".tfrecord") for frame in readers.frames(shard.read_bytes())]
    expect(not any(isinstance(frame, Bad) for frame in frames), "tfrecord: a checksum that does not match")
    records = [readers.example(frame) for frame in frames]
    agrees = lambda record, name, value, kind: readers.feature_agrees(record.get(name), value, kind)
    same_values(records, table, agrees, "tfrecord")


# --- arrays ---------------------------------------------------------------------------------------------------------


def check_arrays(work, path, kind, options):
    """Parquet as arrays_check compares it; tar and TFRecord, and what comes back from them, with Parquet."""
    raw = ["--read", "raw=yes"] if kind in ("zarr",) else []
    rejects = work.rejects("parquet", work.convert(path, "parquet", *raw, *options))
    try:
        expected = {
            "hdf5": lambda: arrays_check.hdf5_arrays(path),
            "netcdf": lambda: arrays_check.netcdf_arrays(path, False),
            "npy": lambda: arrays_check.numpy_arrays(path),
            "zarr": lambda: arrays_check.zarr_arrays(path),
        }[kind]()
    except Exception as error:  # noqa: BLE001: whatever a reader says of a file that it cannot read
        raise Skipped(f"{type(error).__name__}: {str(error)[:150]}") from error
    if rejects:
        raise Refused(rejects[0]["reason"])
    if path.name in arrays_check.KNOWN:
        raise Skipped(arrays_check.KNOWN[path.name])
    arrays_check.failures.clear()
    with open(os.devnull, "w") as nowhere:
        shown, sys.stdout = sys.stdout, nowhere
        try:
            arrays_check.compare(f"{path.name} ", expected, work.folder / "parquet")
        finally:
            sys.stdout = shown
    expect(not arrays_check.failures, lambda: f"values: {arrays_check.failures[:3]}")
    table = work.parquet("parquet")
    if table is None:
        return
    for way in ("tar", "tfrecord"):
        work.convert(path, way, "--to", way, *raw, *options)
        same_arrays(work, table, way)


def same_arrays(work, table, way):
    """Columns of tensors are members `NAME.npy`, or the features NAME, NAME/shape and NAME/dtype; all others as of tables."""
    tensors = [f.name for f in table.schema if isinstance(f.type, pa.FixedShapeTensorType)]
    if way == "tar":
        files = [file for shard in work.files("tar", ".tar") for file in readers.members(shard)]
        samples = [{extension: parts[0] for extension, parts in sample.items()} for _, sample in readers.samples(files)]
        rest = [readers.parsed(sample["json"]) if "json" in sample else {} for sample in samples]
        one = lambda row, name: np.load(io.BytesIO(samples[row][f"{name.lower()}.npy"]), allow_pickle=False)
        agrees = lambda record, name, value, kind: readers.json_agrees(record[name], value, kind)
    else:
        rest = [readers.example(f) for shard in work.files(way, ".tfrecord") for f in readers.frames(shard.read_bytes())]
        agrees = lambda record, name, value, kind: readers.feature_agrees(record.get(name), value, kind)

        def one(row, name):
            parts = [rest[row][f"{name}{end}"] for end in ("", "/shape", "/dtype")]
            return np.frombuffer(parts[0].values[0], parts[2].values[0].decode()).reshape(parts[1].values)

    expect(len(rest) == table.num_rows, f"{way}: expected {table.num_rows} records, found {len(rest)}")
    for name in tensors:
        column = table[name].combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        values, mask = arrays_check.values_of(column, None)
        for row in range(len(rest)):
            found = one(row, name)
            there = ~mask[row]
            expect(found.shape == values[row].shape, lambda: f"{way}: {name}, record {row + 1}: shape {found.shape}")
            given = values[row].astype(found.dtype) if found.dtype.kind in "Mm" else values[row]
            expect(
                np.array_equal(found[there], given[there], equal_nan=found.dtype.kind in "fc"),
                lambda: f"{way}: {name}, record {row + 1}: values differ",
            )
    others = [name for name in table.column_names if name not in tensors]
    same_values(rest, table.select(others), agrees, way)


# --- all of them ----------------------------------------------------------------------------------------------------


def check_file(shardify, path, kind):
    """(outcome, detail) of one file; outcomes are compared, refused, skipped and different."""
    with tempfile.TemporaryDirectory(prefix="values") as folder:
        work = Work(shardify, pathlib.Path(folder))
        options = ["--on-error", "quarantine"]
        kind = by_name(path, kind)
        if kind == "parquet":
            # Beside the log of a Delta table they are refused, for the log knows which of them are live.
            source = pathlib.Path(folder) / path.name
            shutil.copyfile(path, source)
            path = source
        else:
            options += ["--from", kind]
        try:
            if kind in ARRAYS:
                check_arrays(work, path, kind, options)
            else:
                check = {"csv": check_csv, "tsv": check_csv, "json": check_json, "jsonl": check_json, "parquet": check_arrow, "tar": check_tar}
                table = check.get(kind, check_tfrecord)(work, path, options)
                check_ways(work, path, options, table, samples=kind == "tar")
        except (Refused, Skipped, Different) as outcome:
            return type(outcome).__name__.lower(), str(outcome)
        except Exception:  # noqa: BLE001: whatever goes wrong is a difference
            return "different", traceback.format_exc()[-900:]
        return "compared", ""


def by_name(path, kind):
    """The kind of a file whose folder holds several."""
    if ".json" in path.suffixes and kind == "json" and is_lines(path):
        return "jsonl"
    names = {".tsv": "tsv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".geojsonl": "jsonl", ".tar": "tar"}
    found = [names[suffix] for suffix in path.suffixes if suffix in names]
    return found[-1] if kind in ("csv", "json") and found else kind


def is_lines(path):
    """Whether it is no document, and its first line is one."""
    try:
        data = readers.content(path)
        json.loads(data)
    except (ValueError, RecursionError, OSError, EOFError):
        try:
            return isinstance(json.loads(data.split(b"\n")[0]), dict)
        except (ValueError, RecursionError, UnboundLocalError):
            pass
    return False


def found_files(corpus, only):
    """(path, kind) of everything that is to be compared."""
    for folder, kind in KINDS.items():
        if kind == "zarr":
            stores = {path.parent for name in (".zarray", "zarr.json", ".zgroup") for path in corpus.glob(f"{folder}/**/{name}")}
            paths = sorted(store for store in stores if not any(above in stores for above in store.parents))
        else:
            paths = sorted(path for path in corpus.glob(f"{folder}/**/*") if path.is_file())
        for path in paths:
            name = str(path.relative_to(corpus))
            if only and only not in name and only != kind:
                continue
            if kind == "parquet" and path.suffix in (".json", ".crc", ".txt", ".md", ".txn", ".py", ".checkpoint"):
                continue
            yield path, kind


def every(files, step):
    """The first file of each kind, and every N-th one after it."""
    counts = collections.Counter()
    for path, kind in files:
        if counts[kind] % step == 0:
            yield path, kind
        counts[kind] += 1


def child(pipe, *arguments):
    pipe.send(check_file(*arguments))
    pipe.close()


class Running:
    """A process for one file."""

    def __init__(self, shardify, path, kind):
        self.path, self.kind, self.started = path, kind, time.monotonic()
        context = multiprocessing.get_context("fork")
        self.pipe, end = context.Pipe(duplex=False)
        self.process = context.Process(target=child, args=(end, shardify, path, kind))
        self.process.start()
        end.close()

    def outcome(self):
        """What came of it, once the pipe can be read."""
        try:
            outcome = self.pipe.recv()
        except EOFError:
            self.process.join()
            outcome = "skipped", f"the other reader took its process along, {self.process.exitcode}"
        self.process.join()
        return outcome


def all_outcomes(shardify, files, jobs):
    """(path, outcome, detail), as they come."""
    running, files = [], list(files)
    while running or files:
        while files and len(running) < jobs:
            running.append(Running(shardify, *files.pop(0)))
        ready = multiprocessing.connection.wait([one.pipe for one in running], timeout=1)
        for one in list(running):
            if one.pipe in ready:
                running.remove(one)
                yield one.path, *one.outcome()
            elif time.monotonic() - one.started > 4 * SECONDS:
                one.process.kill()
                running.remove(one)
                yield one.path, "different", f"still running after {4 * SECONDS} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--corpus", default=os.environ.get("SHARDIFY_CORPUS", ROOT / "../shared/corpus"))
    parser.add_argument("--only", default="", help="a kind, or part of a name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--every", type=int, default=1, metavar="N", help="a sample: every N-th file of each kind")
    options = parser.parse_args()
    corpus = pathlib.Path(options.corpus).resolve()
    if not corpus.is_dir():
        print(f"skipped: there is no corpus at {corpus}")
        return 0
    if options.every > 1:
        not_run("other files of the corpus", f"every {options.every}th file is a sample of it; without --every all are compared")
    tally, reasons, failures, known = collections.Counter(), collections.Counter(), 0, set()
    for path, outcome, detail in all_outcomes(str(pathlib.Path(options.shardify).resolve()), every(found_files(corpus, options.only), options.every), options.jobs):
        name = str(path.relative_to(corpus))
        if outcome == "different":
            meant = [key for key in KNOWN if fnmatch.fnmatch(name, key[0]) and detail.startswith(key[1])]
            if meant:
                known.update(meant)
                outcome = "known"
            else:
                failures += 1
        tally[outcome] += 1
        if outcome == "skipped":
            reasons[re.sub(r"[\d'\"/].*", "", detail)[:60].strip()] += 1
        if outcome in ("different", "refused"):
            print(f"{'FAIL' if outcome == 'different' else 'refused'} {name}: {detail}", flush=True)
    stale = [key for key in KNOWN if key not in known and not options.only and options.every == 1]
    for key in stale:
        print(f"FAIL {key}: listed as known, and there is none")
    for reason, count in reasons.most_common():
        print(f"{count:6} skipped: {reason}")
    print(", ".join(f"{count} {outcome}" for outcome, count in tally.most_common()))
    return 1 if failures or stale else 0


if __name__ == "__main__":
    sys.exit(main())
