#!/usr/bin/env python3
"""Other people's readers get every value back.

Converts test data to every output format with every codec, reads the shards with stock readers, and compares the count
and every value with the source, which is read here without shardify: Python's csv and json, and plain files. Then builds
datasets of many small shards, compacts them, and compares again.

    python3 scripts/checks/interop.py --shardify target/release/shardify [--data testdata] [--only TEXT]

One line per combination, then `N passed, N failed`; exit code 1 if one failed. Installs nothing: the packages of
scripts/requirements.txt have to be there. TensorFlow reads along where it is installed.
"""

import argparse
import contextlib
import csv
import datetime as dt
import functools
import importlib
import importlib.util
import json
import math
import os
import pathlib
import pickle
import subprocess
import sys
import tarfile
import tempfile

import harness
from harness import Failure, finish, not_run

REQUIRED = ["duckdb", "numpy", "polars", "pyarrow", "pytz", "tfrecord", "webdataset", "zstandard"]
OPTIONAL = ["tensorflow"]
CODECS = {
    "parquet": ["none", "zstd", "lz4", "snappy", "gzip"],
    "tar": ["none", "gzip", "zstd"],
    "tfrecord": ["none", "gzip"],
}


class Mismatch(Failure):
    """What was expected and what was found."""


# --- sources, read without shardify ---------------------------------------------------------------------------------


class Text(str):
    """A value of delimited text, whose type the converter infers."""


def rows_of_delimited(path):
    delimiter = "|" if path.stem.endswith("_pipe") else "\t" if path.suffix == ".tsv" else ","
    with open(path, encoding="utf-8-sig", newline="") as file:
        records = [record for record in csv.reader(file, delimiter=delimiter, strict=True) if record]
    header, *records = records
    for record in records:
        record += [""] * (len(header) - len(record))
    return [{name: Text(value) for name, value in zip(header, record, strict=True)} for record in records]


def rows_of_json_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def rows_of(path):
    return rows_of_json_lines(path) if path.suffix == ".jsonl" else rows_of_delimited(path)


def tables(paths):
    """Rows of several sources, united: every row has every column."""
    rows = [row for path in paths for row in rows_of(path)]
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def samples(root):
    """Files that share a path up to the first dot of the name: key -> extension -> bytes."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            key, extension = split_name(path.relative_to(root).as_posix())
            found.setdefault(key, {})[extension] = path.read_bytes()
    return found


def split_name(name):
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return folder + slash + stem, extension.lower()


# --- values -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=100_000)
def instant(text):
    """A date or timestamp as a datetime, or nothing."""
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return None


def same_number(expected, got):
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(got)
    return expected == got and math.copysign(1, expected) == math.copysign(1, got)


def as_number(text, kind):
    try:
        return kind(text)
    except ValueError:
        return None


def same_text(expected, got, stored):
    """A value of delimited text against what came back, whatever type was inferred for its column."""
    if got is None:
        return expected == ""
    if isinstance(got, bool):
        return expected.lower() == str(got).lower()
    if isinstance(got, int):
        if stored == "tfrecord" and expected.lower() in ("true", "false"):
            return got == (expected.lower() == "true")
        return as_number(expected, int) == got
    if isinstance(got, float):
        number = as_number(expected, float)
        return number is not None and same_float(number, got, stored)
    if isinstance(got, dt.datetime):
        moment = instant(expected)
        return moment is not None and (moment.tzinfo is None) == (got.tzinfo is None) and moment == got
    if isinstance(got, dt.date):
        return expected == got.isoformat()
    if got == expected:
        return True
    # Formats without dates and without non-finite floats hold them as text, in one canonical form.
    return stored != "parquet" and (same_moment(expected, got) or same_special(expected, got))


def same_float(expected, got, stored):
    import numpy

    if stored == "tfrecord":
        expected = float(numpy.float32(expected))
    return same_number(expected, got)


def same_moment(expected, got):
    left, right = instant(expected), instant(got)
    return left is not None and right is not None and (left.tzinfo is None) == (right.tzinfo is None) and left == right


def same_special(expected, got):
    number = as_number(expected, float)
    return got in ("NaN", "Infinity", "-Infinity") and number is not None and same_number(number, float(got))


def same(expected, got, stored):
    """Whether a value of the source came back. JSON keeps its types; what has no column type is stored as JSON text."""
    if isinstance(expected, Text):
        return same_text(expected, got, stored)
    if expected is None or got is None:
        return is_nothing(expected) and is_nothing(got)
    if isinstance(expected, (dict, list)) and isinstance(got, str):
        # Inside of JSON text floats keep all their digits.
        return same(expected, json.loads(got), "json")
    if isinstance(expected, dict):
        names = expected.keys() | got.keys()
        return isinstance(got, dict) and all(same(expected.get(n), got.get(n), stored) for n in names)
    if isinstance(expected, list):
        return isinstance(got, list) and len(expected) == len(got) and all(map(same, expected, got, [stored] * len(got)))
    if isinstance(expected, bool):
        return got is expected or stored == "tfrecord" and got == int(expected)
    if isinstance(expected, (int, float)) and isinstance(got, float):
        return same_float(float(expected), got, stored)
    return type(expected) is type(got) and expected == got


def is_nothing(value):
    """Null, or a struct of nulls: not every reader tells them apart."""
    return value is None or isinstance(value, dict) and all(map(is_nothing, value.values()))


def compare_rows(expected, got, stored):
    if len(expected) != len(got):
        raise Mismatch(f"expected {len(expected)} records, found {len(got)}")
    for number, (row, back) in enumerate(zip(expected, got)):
        if unknown := back.keys() - row.keys():
            raise Mismatch(f"record {number} has columns {sorted(unknown)} that the source lacks")
        for name, value in row.items():
            if not same(value, back.get(name), stored):
                raise Mismatch(f"record {number}, `{name}`: expected {value!r}, found {back.get(name)!r}")


def compare_samples(expected, got, stored):
    keys = [key for key, _ in got]
    if sorted(keys) != sorted(expected):
        raise Mismatch(f"expected keys {sorted(expected)}, found {sorted(keys)}")
    for key, parts in got:
        if parts.keys() != expected[key].keys():
            raise Mismatch(f"{key}: expected {sorted(expected[key])}, found {sorted(parts)}")
        for extension, content in parts.items():
            if content != expected[key][extension]:
                raise Mismatch(f"{key}.{extension} differs")


# --- stock readers: shard -> list of dicts ----------------------------------------------------------------------------


def read_pyarrow(path, codec):
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path).read().to_pylist()


def read_duckdb(path, codec):
    import duckdb

    with duckdb.connect() as connection:
        # Instants come back in the zone of the session, which by default is that of the machine.
        connection.execute("SET TimeZone = 'UTC'")
        result = connection.execute("SELECT * FROM read_parquet(?)", [str(path)])
        names = [column[0] for column in result.description]
        return [dict(zip(names, row)) for row in result.fetchall()]


def read_polars(path, codec):
    import polars

    return polars.read_parquet(path, hive_partitioning=False).to_dicts()


@contextlib.contextmanager
def plain_tar(path, codec):
    """Path of the same tar in a form that Python's tarfile knows: before 3.14 that is without zstd."""
    if codec != "zstd":
        yield path
        return
    import zstandard

    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with open(path, "rb") as shard:
            zstandard.ZstdDecompressor().copy_stream(shard, file)
        file.flush()
        yield file.name


def read_tarfile(path, codec):
    """Members one after the other; those that share a key are a sample."""
    found = {}
    with plain_tar(path, codec) as plain, tarfile.open(plain, "r:*") as tar:
        for member in tar:
            key, extension = split_name(member.name)
            if extension in found.setdefault(key, {}):
                raise Mismatch(f"two members are called {member.name}")
            found[key][extension] = tar.extractfile(member).read()
    return [{"__key__": key, **parts} for key, parts in found.items()]


def read_webdataset(path, codec):
    import webdataset

    with plain_tar(path, codec) as plain:
        dataset = webdataset.WebDataset(str(plain), shardshuffle=False, empty_check=False)
        return [{k: v for k, v in sample.items() if k not in ("__url__", "__local_path__")} for sample in dataset]


def feature_value(kind, values):
    values = [bytes(value) if kind == "bytes" else value for value in values]
    return values[0] if len(values) == 1 else values


def read_tfrecord(path, codec):
    from tfrecord import reader

    rows = []
    for example in reader.tfrecord_loader(str(path), None, compression_type="gzip" if codec == "gzip" else None):
        rows.append({name: v if isinstance(v, bytes) else feature_value("", v.tolist()) for name, v in example.items()})
    return rows


# TensorFlow and tfrecord register the same protobuf messages, so they cannot live in one process.
TENSORFLOW = """
import pickle, sys
import tensorflow

rows = []
for record in tensorflow.data.TFRecordDataset(sys.argv[1], sys.argv[2]):
    features = tensorflow.train.Example.FromString(record.numpy()).features.feature
    kinds = {name: feature.WhichOneof("kind") for name, feature in features.items()}
    rows.append({name: list(getattr(features[name], kind).value) for name, kind in kinds.items()})
sys.stdout.buffer.write(pickle.dumps(rows))
"""


def read_tensorflow(path, codec):
    command = [sys.executable, "-c", TENSORFLOW, str(path), "GZIP" if codec == "gzip" else ""]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, check=True)
    rows = pickle.loads(done.stdout)
    return [{name: feature_value("", values) for name, values in row.items()} for row in rows]


READERS = {
    "parquet": {"pyarrow": read_pyarrow, "duckdb": read_duckdb, "polars": read_polars},
    "tar": {"tarfile": read_tarfile, "webdataset": read_webdataset},
    "tfrecord": {"tfrecord": read_tfrecord, "tensorflow": read_tensorflow},
}


# --- what readers give, as rows or samples ----------------------------------------------------------------------------


def as_rows(records, stored):
    """Rows of a table: in a tar, the JSON of each sample; in TFRecord, text instead of bytes."""
    if stored == "tar":
        keys = [record["__key__"] for record in records]
        if len(set(keys)) != len(keys):
            raise Mismatch("keys are not unique")
        return [json.loads(record["json"]) for record in records]
    if stored == "tfrecord":
        return [{name: text_inside(value) for name, value in record.items()} for record in records]
    return records


def text_inside(value):
    if isinstance(value, list):
        return [text_inside(v) for v in value]
    return value.decode() if isinstance(value, bytes) else value


def as_samples(records, stored):
    found = []
    for record in records:
        key = record.pop("__key__")
        key = key.decode() if isinstance(key, bytes) else key
        # Parts that are text by their extension are text in Parquet.
        parts = {e: c.encode() if isinstance(c, str) else c for e, c in record.items() if c is not None}
        found.append((key, parts))
    return found


# --- shardify -----------------------------------------------------------------------------------------------------------


class Shardify:
    """The program under test."""

    def __init__(self, binary):
        self.binary = os.path.abspath(binary)

    def run(self, *arguments):
        """Objects that the command prints with --json; the last one is the summary."""
        return harness.objects(self.binary, *arguments, "--progress", "never")

    def shards(self, dataset):
        """Live shards in the order of their records."""
        found = [shard for shard in self.run("manifest", dataset, "--list") if shard["type"] == "shard"]
        found.sort(key=lambda shard: shard.get("first_record", 0))
        return [pathlib.Path(dataset) / shard["path"] for shard in found]


class Input:
    """Something to convert, and what has to come back."""

    def __init__(self, name, sources, expected, arguments=()):
        self.name, self.sources, self.expected, self.arguments = name, sources, expected, list(arguments)
        self.is_table = isinstance(expected, list)

    def check(self, records, stored):
        if self.is_table:
            rows = as_rows(records, stored)
            if stored == "tar":
                # A row by itself has the columns of its own table; the others are null in the united table.
                rows = [{**dict.fromkeys(self.expected[0]), **row} for row in rows]
            compare_rows(self.expected, rows, stored)
        else:
            compare_samples(self.expected, as_samples(records, stored), stored)


def inputs(data):
    patients = sorted((data / "patients").glob("*.csv"))
    yield Input("patients", [data / "patients"], tables(patients), ["--subject", "person_id"])
    for path in sorted([*data.glob("csv/*"), *data.glob("jsonl/*")]):
        yield Input(f"{path.parent.name}/{path.name}", [path], tables([path]))
    for name in ("files", "fhir"):
        yield Input(name, [data / name], samples(data / name), ["--from", "files"])


class Report:
    """Counts, and prints a line per combination."""

    def __init__(self, only):
        self.only, self.passed, self.failed = only, 0, 0

    def attempt(self, title, work):
        if self.only and self.only not in title:
            return
        try:
            records = work()
        except Exception as error:
            self.failed += 1
            kind = "" if isinstance(error, Mismatch) else f"{type(error).__name__}: "
            print(f"FAIL  {title}: {kind}{error}", flush=True)
        else:
            self.passed += 1
            print(f"ok    {title}: {records}", flush=True)


def check_readers(shardify, dataset, source, stored, codec, available):
    """Reads every shard with every reader. Returns what to print."""
    shards = shardify.shards(dataset)
    # TensorFlow takes seconds to start for each shard.
    too_many = {"tensorflow"} if len(shards) > 20 else set()
    used = [name for name in READERS[stored] if name in available and name not in too_many]
    for name in used:
        try:
            source.check([record for shard in shards for record in READERS[stored][name](shard, codec)], stored)
        except Failure as error:
            raise Mismatch(f"{name}: {error}") from error
    return f"{len(source.expected)} records in {len(shards)} shards, read by {', '.join(used)}"


def convert_and_check(shardify, source, stored, codec, available):
    with tempfile.TemporaryDirectory() as folder:
        dataset = pathlib.Path(folder) / "ds"
        options = [*source.arguments, "--out", dataset, "--to", stored, "--codec", codec]
        summary = shardify.run("convert", *source.sources, *options)[-1]
        if summary["records_out"] != len(source.expected) or summary["records_rejected"] != 0:
            raise Mismatch(f"expected {len(source.expected)} records, the summary says {summary}")
        return check_readers(shardify, dataset, source, stored, codec, available)


def compact_and_check(shardify, data, source, parts, stored, codec, available):
    """Several conversions to small shards, one compaction, and nothing may have changed."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = pathlib.Path(folder) / "ds"
        for part in parts:
            options = [*source.arguments, "--out", dataset, "--to", stored, "--codec", codec, "--target-shard", "64KiB"]
            shardify.run("convert", part, *options)
        before = check_readers(shardify, dataset, source, stored, codec, available)
        summary = shardify.run("compact", dataset, "--target-shard", "4MiB")[-1]
        if not summary["shards_removed"] > summary["shards_added"] > 0:
            raise Mismatch(f"expected fewer shards, the summary says {summary}")
        shardify.run("verify", dataset, "--read-data")
        after = check_readers(shardify, dataset, source, stored, codec, available)
        return f"{before}; compacted: {after}"


def available_readers():
    present = set()
    for name in REQUIRED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
            present.add(name)
    present.update(name for name in OPTIONAL if importlib.util.find_spec(name))
    missing = [name for name in REQUIRED if name not in present]
    if missing:
        raise Failure(f"missing: {', '.join(missing)}; install them with: pip install -r scripts/requirements.txt")
    for name in OPTIONAL:
        if name not in present:
            not_run(name, "it is not installed")
    return present | {"tarfile"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("testdata"), help="folder of inputs")
    parser.add_argument("--only", default="", help="run only combinations whose title has this text")
    options = parser.parse_args()
    os.environ["TZ"] = "UTC"
    available = available_readers()
    shardify, report = Shardify(options.shardify), Report(options.only)
    sources = list(inputs(options.data))
    for stored, codecs in CODECS.items():
        for codec in codecs:
            for source in sources:
                work = functools.partial(convert_and_check, shardify, source, stored, codec, available)
                report.attempt(f"{source.name} -> {stored} {codec}", work)
    patients = next(source for source in sources if source.name == "patients")
    parts = sorted((options.data / "patients").glob("*.csv"))
    for stored, codecs in CODECS.items():
        for codec in codecs:
            work = functools.partial(compact_and_check, shardify, options.data, patients, parts, stored, codec, available)
            report.attempt(f"compact patients {stored} {codec}", work)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    finish(main)
