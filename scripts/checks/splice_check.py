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

What a reader cannot do with the inputs is not asked of the output. Groups keep their codec, or get zstd, in turn, so that pages are
copied in some and compressed anew in others.

    scripts/checks/splice_check.py --shardify target/release/shardify [--corpus ../shared/corpus]
"""

import argparse
import collections
import datetime
import decimal
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import duckdb
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
    if "--on-error skip" in adopted.stderr:
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
    for number, paths in enumerate(groups(options.corpus)):
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
    print(", ".join(f"{number:,} {what}" for what, number in sorted(COUNTS.items())))
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
