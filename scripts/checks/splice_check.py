#!/usr/bin/env python3
"""Compacts the readable Parquet files of the corpus and compares what other people's readers find before and after.

Files of one schema become a dataset, each of them twice, so that every file is spliced with another one. They are adopted and
compacted into one shard with `--verify full`. Then, of inputs and output:

| reader                          | compared                                                                       |
|---------------------------------|--------------------------------------------------------------------------------|
| pyarrow                         | every value, in order                                                          |
| pyarrow with `read_dictionary`  | every value of columns of text and binary                                      |
| DuckDB, Polars                  | every value; of DuckDB by a sum of hashes                                      |
| pyarrow, DuckDB, Polars         | counts of `= v`, `>= v`, `< v` and `is null` for values of each flat column, which use statistics and page indexes |

To these come files that the script makes: scalars that writers store in odd ways, columns without values, pages of every codec that is
read, and footers and page indexes whose bounds are not those of the values (`made`). Bounds that lie are merged like others and
mislead readers that use them, so nothing is asked of these files by predicate; every value has to be there all the same.

What a reader cannot do with the inputs is not asked of the output. Groups keep their codec, or get zstd, in turn, so that pages are
copied in some and compressed anew in others.

    scripts/checks/splice_check.py --shardify target/release/shardify [--corpus ../shared/corpus]
"""

import argparse
import collections
import datetime
import decimal
import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ["parquet", "parquet-bad", "petastorm", "delta-tables"]
MOST_BYTES = 24 << 20
MOST_FILES = 40
COUNTS = collections.Counter()


class Failure(Exception):
    """What was expected and what was found."""


def groups(corpus):
    """Readable files by schema."""
    found = collections.defaultdict(list)
    folders = [corpus / kind for kind in KINDS] + [ROOT / "testdata" / "inputs"]
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        if path.stat().st_size > MOST_BYTES or path.read_bytes()[:4] != b"PAR1":
            continue
        try:
            table = pq.ParquetFile(path).read()
        except Exception:  # pylint: disable=broad-except
            COUNTS["files that pyarrow cannot read"] += 1
            continue
        if table.num_rows:
            found[str(table.schema.remove_metadata()) + str(pq.ParquetFile(path).schema)].append(path)
    return list(found.values())


def odd_table(first, rows=1500):
    """Columns of values that are stored in odd ways, or not at all; every one has nulls."""
    numbers = range(first, first + rows)
    holes = lambda values: [None if i % 11 == 3 else value for i, value in enumerate(values)]  # noqa: E731
    floats = [(math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5)[i % 6] if i % 5 else i / 7 for i in numbers]
    return pa.table({
        "decimal_of_13_bytes": pa.array(holes(decimal.Decimal(i * (-1) ** i * 10**20 + i).scaleb(-4) for i in numbers), pa.decimal128(30, 4)),
        "decimal_of_26_bytes": pa.array(holes(decimal.Decimal(i * (-1) ** i).scaleb(-3) for i in numbers), pa.decimal256(60, 3)),
        "decimal_small": pa.array(holes(decimal.Decimal(i % 900 - 450).scaleb(-2) for i in numbers), pa.decimal128(5, 2)),
        "above_int64": pa.array(holes((2**63 - 2 + i if i % 3 else 2**64 - 1 - i) for i in numbers), pa.uint64()),
        "above_int32": pa.array(holes((2**31 + i) for i in numbers), pa.uint32()),
        "float16": pa.array([None if i % 11 == 3 else np.float16(v) for i, v in enumerate(floats)], pa.float16()),
        "float32": pa.array(holes(floats), pa.float32()),
        "float64": pa.array(holes(floats), pa.float64()),
        "all_nan": pa.array([math.nan] * rows, pa.float64()),
        "empty_texts": pa.array(holes("" if i % 2 else "\u00e5" * (i % 4) for i in numbers)),
        "only_empty": pa.array([""] * rows),
        "empty_bytes": pa.array(holes(b"" if i % 2 else bytes([255] * (i % 5)) for i in numbers), pa.binary()),
        "fixed_bytes": pa.array(holes(struct.pack("<I", i)[:3] for i in numbers), pa.binary(3)),
        "no_values": pa.nulls(rows, pa.string()),
        "no_numbers": pa.nulls(rows, pa.int64()),
        "no_type": pa.nulls(rows),
        "one_value": pa.array([None] * (rows - 1) + [7], pa.int64()),
        "truth": pa.array(holes(i % 3 == 0 for i in numbers)),
        "day": pa.array(holes(i - 700_000 for i in numbers), pa.date32()),
        "time": pa.array(holes(i * 1_000_003 for i in numbers), pa.time64("ns")),
        "instant": pa.array(holes((i - 500) * 86_400 * 10**9 + i for i in numbers), pa.timestamp("ns")),
        "empty_lists": pa.array(holes([] if i % 2 else [None, i] for i in numbers), pa.list_(pa.int64())),
    })


def made(folder):
    """Groups of files like those of `groups`."""
    ways = {
        "snappy": {"compression": "snappy", "write_page_index": True},
        "zstd": {"compression": "zstd", "data_page_version": "2.0", "store_decimal_as_integer": True},
        "none": {"compression": "none", "use_dictionary": False, "write_page_index": True},
        "int96": {"compression": "gzip", "use_deprecated_int96_timestamps": True},
        "brotli": {"compression": "brotli", "write_page_index": True},
        "brotli2": {"compression": "brotli", "data_page_version": "2.0", "use_dictionary": False},
        "lz4": {"compression": "lz4", "data_page_version": "2.0"},
    }
    for name, options in ways.items():
        paths = []
        for part, first in enumerate((1, 400, 90_000)):
            paths.append(folder / f"odd-{name}-{part}.parquet")
            pq.write_table(odd_table(first), paths[-1], row_group_size=400, **options)
        yield paths
    for name in LIES:
        paths = [folder / f"{LIE}{name}-{part}.parquet" for part in range(2)]
        for part, path in enumerate(paths):
            write_lies(path, part, LIES[name])
        yield paths


MADE = "splice-made-"
LIE = "lie-"
NAN = struct.pack("<d", math.nan)
LEAST = {"number": 1_000_003, "float": 1_000_003.25, "text": b"m-least-of-all"}
GREATEST = {"number": 2_000_029, "float": 2_000_029.75, "text": b"n-most-of-all!"}
# Bounds in footers and page indexes, and what stands there instead.
LIES = {
    "swapped": lambda least, greatest: {least: greatest, greatest: least},
    "too-narrow": lambda least, greatest: {greatest: least},
    "beyond": lambda least, greatest: {least: greatest},
    "nan": lambda least, greatest: {least: NAN, greatest: NAN} if len(least) == 8 else {},
    "zeros": lambda least, greatest: {least: bytes(len(least)), greatest: bytes(len(least))},
    "ones": lambda least, greatest: {least: b"\xff" * len(least), greatest: b"\xff" * len(least)},
}


def write_lies(path, part, lie):
    """A file whose bounds are not those of its values: behind the last page they are others."""
    rows = 2000
    table = pa.table({
        "number": [LEAST["number"], GREATEST["number"]] + [1_500_000 + i * (part + 1) for i in range(rows)],
        "float": [LEAST["float"], GREATEST["float"]] + [1_500_000.5 + i * (part + 1) for i in range(rows)],
        "text": [LEAST["text"].decode(), GREATEST["text"].decode()] + [f"m-middle-{i % 300:05}" for i in range(rows)],
    })
    pq.write_table(table, path, write_page_index=True, use_dictionary=["text"], compression="snappy")
    data = path.read_bytes()
    group = pq.ParquetFile(path).metadata.row_group(0)
    ends = [(c.dictionary_page_offset or c.data_page_offset) + c.total_compressed_size for c in map(group.column, range(3))]
    tail = data[max(ends):]
    for name, form in (("number", "<q"), ("float", "<d"), ("text", "14s")):
        least, greatest = struct.pack(form, LEAST[name]), struct.pack(form, GREATEST[name])
        swaps = lie(least, greatest)
        # All at once: what is put in place of one bound may be another.
        for n, old in enumerate(swaps):
            if old not in tail:
                raise Failure(f"{path}: no bounds of {name} to change")
            tail = tail.replace(old, bytes([0xfe, n]) * (len(old) // 2))
        for n, (old, new) in enumerate(swaps.items()):
            tail = tail.replace(bytes([0xfe, n]) * (len(old) // 2), new)
    path.write_bytes(data[:max(ends)] + tail)


def same(one, other):
    """Whether two columns have the same values; NaN is itself."""
    return one.equals(other) or repr(one.to_pylist()) == repr(other.to_pylist())


def check_tables(before, after, how):
    if before.column_names != after.column_names or before.num_rows != after.num_rows:
        raise Failure(f"{how}: expected {before.num_rows} rows of {before.column_names}, found {after.num_rows} of {after.column_names}")
    for name, one, other in zip(before.column_names, before.columns, after.columns):
        if not same(one, other):
            raise Failure(f"{how}: column {name} has other values")


def read_all(paths, **options):
    return pa.concat_tables([pq.ParquetFile(path, **options).read().replace_schema_metadata() for path in paths])


def check_pyarrow(inputs, outputs, reencoded):
    before, after = read_all(inputs), read_all(outputs)
    check_tables(before, after, "pyarrow")
    texts = [f.name for f in before.schema if pa.types.is_string(f.type) or pa.types.is_binary(f.type)]
    if texts:
        try:
            read_all(inputs, read_dictionary=texts)
        except (OSError, pa.ArrowException):
            COUNTS["groups that pyarrow cannot read as dictionaries"] += 1
            return before
        try:
            decoded = read_all(outputs, read_dictionary=texts)
        except (OSError, pa.ArrowException) as error:
            if "Not yet implemented" in str(error) and reencoded:
                COUNTS["groups encoded anew that pyarrow cannot read as dictionaries"] += 1
                return before
            raise Failure(f"pyarrow with read_dictionary: {error}") from error
        for name in set(texts):
            if before.column_names.count(name) > 1:
                continue
            column = decoded[name]
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if not same(before[name], column):
                raise Failure(f"pyarrow with read_dictionary: column {name} has other values")
            COUNTS["columns read as dictionaries"] += 1
    return before


def names(paths):
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths) + "]"


def check_duckdb(db, inputs, outputs):
    sums = "SELECT count(*), sum(hash(COLUMNS(*))) FROM read_parquet({})"
    try:
        before = db.execute(sums.format(names(inputs))).fetchall()
    except duckdb.Error:
        COUNTS["groups that duckdb cannot read"] += 1
        return False
    after = db.execute(sums.format(names(outputs))).fetchall()
    if before != after:
        raise Failure(f"duckdb: expected {before}, found {after}")
    return True


def check_polars(inputs, outputs):
    try:
        before = pl.concat([pl.read_parquet(path) for path in inputs])
    except BaseException:  # polars panics by an exception that is no Exception  # pylint: disable=broad-except
        COUNTS["groups that polars cannot read"] += 1
        return False
    after = pl.concat([pl.read_parquet(path) for path in outputs])
    if not before.equals(after):
        try:
            alike = repr(before.to_dicts()) == repr(after.to_dicts())
        except BaseException:  # pylint: disable=broad-except
            alike = False
        if not alike:
            raise Failure("polars: other values")
    return True


def samples(column):
    """Some values of a column, least and greatest among them."""
    try:
        values = pc.unique(column.drop_null()).to_pylist()
        values = sorted(v for v in values if v == v)  # pylint: disable=comparison-with-itself
    except (TypeError, pa.ArrowException, ValueError, OverflowError):
        return []
    return list(dict.fromkeys([values[0], values[len(values) // 3], values[-1]])) if values else []


def flat(kind):
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind) and not pa.types.is_null(kind)


PLAIN = (int, str, bytes, bool, datetime.date, datetime.datetime, decimal.Decimal)


def check_predicates(db, table, inputs, outputs, by_duckdb, by_polars):
    footer = pq.ParquetFile(outputs[0]).metadata
    chunks = [footer.row_group(0).column(i) for i in range(footer.num_columns)]
    # The range of these is larger than that of pyarrow's timestamps.
    skipped = {chunk.path_in_schema for chunk in chunks if chunk.physical_type == "INT96"}
    for field in table.schema:
        if field.name in skipped or not flat(field.type) or table.column_names.count(field.name) > 1:
            continue
        column, side, polars_side = table[field.name], ds.field(field.name), pl.col(field.name)
        quoted = '"' + field.name.replace('"', '""') + '"'

        def check_count(reader, predicate, expected, count):
            check_one(reader, f"{field.name} {predicate}", expected, count, inputs, outputs)

        check_count("pyarrow", "is null", column.null_count, lambda paths: by_pyarrow(paths, side.is_null()))
        if by_duckdb:
            check_count("duckdb", "is null", column.null_count, lambda paths: in_duckdb(db, paths, f"{quoted} IS NULL"))
        for value in samples(column):
            scalar = pa.scalar(value, field.type)
            for sign, compare in (("=", pc.equal), (">=", pc.greater_equal), ("<", pc.less)):
                try:
                    expected = pc.sum(compare(column, scalar)).as_py() or 0
                except pa.ArrowException:
                    continue
                predicate = f"{sign} {value!r}"
                check_count("pyarrow", predicate, expected, lambda paths: by_pyarrow(paths, compare(side, scalar)))
                # NaN is the greatest of numbers for DuckDB and Polars; zones are converted by each in its own way.
                if by_duckdb and isinstance(value, PLAIN) and not (isinstance(value, datetime.datetime) and value.tzinfo):
                    check_count("duckdb", predicate, expected, lambda paths: in_duckdb(db, paths, f"{quoted} {sign} ?", value))
                if by_polars and isinstance(value, (int, str, bool)):
                    where = {"=": polars_side == value, ">=": polars_side >= value, "<": polars_side < value}[sign]
                    check_count("polars", predicate, expected, lambda paths: in_polars(paths, where))


def by_pyarrow(paths, where):
    return ds.dataset([str(path) for path in paths]).count_rows(filter=where)


def in_duckdb(db, paths, where, *values):
    return db.execute(f"SELECT count(*) FROM read_parquet({names(paths)}) WHERE {where}", list(values)).fetchone()[0]


def in_polars(paths, where):
    return sum(pl.scan_parquet(path).filter(where).select(pl.len()).collect().item() for path in paths)


def check_one(reader, predicate, expected, count, inputs, outputs):
    try:
        found = count(outputs)
    except BaseException as error:  # pylint: disable=broad-except
        if "corrupt" in str(error).lower():
            raise Failure(f"{reader}: {predicate}: {error}") from error
        COUNTS[f"predicates that {reader} refuses"] += 1
        return
    COUNTS["predicates"] += 1
    if found == expected:
        return
    if count(inputs) == expected:
        raise Failure(f"{reader}: {predicate}: expected {expected} rows, found {found}")
    # Statistics may be wrong from the beginning.
    COUNTS[f"predicates that {reader} answers wrongly over the inputs"] += 1


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Failure(f"`{' '.join(map(str, command))}` ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def damaged(path):
    """Whether a page has another checksum than its header says."""
    try:
        pq.ParquetFile(path, page_checksum_verification=True).read()
    except (OSError, pa.ArrowException) as error:
        return "crc" in str(error).lower() or "checksum" in str(error).lower()
    return False


def check_refused(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == 0 or "checksum" not in done.stderr:
        raise Failure(f"expected damage to be found, found exit code {done.returncode}: {done.stderr.strip()}")
    COUNTS["groups with damage, refused"] += 1


def check(binary, paths, codec, folder):
    """One group with one codec; tells what was done with its bytes."""
    inputs = []
    (folder / "in").mkdir()
    for number, path in enumerate(paths * 2):
        inputs.append(folder / "in" / f"{number:06}.parquet")
        shutil.copyfile(path, inputs[-1])
    adopted = subprocess.run([binary, "adopt", folder / "in", "--out", folder / "ds", "--quiet"], capture_output=True, text=True)
    if "--on-error skip" in adopted.stderr and not paths[0].parent.name.startswith(MADE):
        COUNTS["groups that shardify cannot read"] += 1
        return
    if adopted.returncode:
        raise Failure(adopted.stderr)
    if any(damaged(path) for path in paths):
        check_refused([binary, "compact", folder / "ds", "--min-inputs", "2", "--target-shard", "1GiB", "--codec", codec, "--quiet"])
        return
    summary = run([binary, "compact", folder / "ds", "--min-inputs", "2", "--target-shard", "1GiB", "--codec", codec,
                   "--verify", "full", "--quiet", "--json"])
    outputs = sorted((folder / "ds" / summary["folder"]).rglob("*.parquet"))
    for way in ("copied", "spliced", "reencoded"):
        COUNTS[f"bytes {way}"] += summary[f"bytes_{way}"]
    table = check_pyarrow(inputs, outputs, summary["bytes_reencoded"] > 0)
    db = duckdb.connect()
    db.execute("SET enable_progress_bar = false")
    by_duckdb, by_polars = check_duckdb(db, inputs, outputs), check_polars(inputs, outputs)
    if paths[0].name.startswith(LIE):
        COUNTS["groups with bounds that lie"] += 1
    else:
        check_predicates(db, table, inputs, outputs, by_duckdb, by_polars)
    COUNTS["groups"] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--all-codecs", action="store_true", help="each group with its own codec and with zstd, not in turn")
    parser.add_argument("--only", default="", help="part of the path of a file of the groups to look at")
    parser.add_argument("--corpus", type=pathlib.Path, default=ROOT.parent / "shared" / "corpus")
    options = parser.parse_args()
    if not options.corpus.is_dir():
        print(f"no corpus at {options.corpus}; only files of testdata are spliced")
    binary = str(pathlib.Path(options.shardify).resolve())
    passed, failed = 0, 0
    own = pathlib.Path(tempfile.mkdtemp(prefix=MADE))
    for number, paths in enumerate([*made(own), *groups(options.corpus)]):
        if not any(options.only in str(path) for path in paths):
            continue
        codecs = sorted({str(pq.ParquetFile(paths[0]).metadata.row_group(0).column(0).compression).lower().replace("uncompressed", "none"),
                         "zstd"} & {"none", "snappy", "zstd", "gzip"})
        for codec in codecs if options.all_codecs else [codecs[number % len(codecs)]]:
            folder = pathlib.Path(tempfile.mkdtemp(prefix="splice-"))
            try:
                check(binary, paths[:MOST_FILES], codec, folder)
                passed += 1
            except Failure as failure:
                failed += 1
                print(f"FAILED {paths[0]} and {len(paths) - 1} more, {codec}: {failure}", flush=True)
            finally:
                shutil.rmtree(folder)
    shutil.rmtree(own)
    print(", ".join(f"{number:,} {what}" for what, number in sorted(COUNTS.items())))
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
