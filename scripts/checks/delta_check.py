#!/usr/bin/env python3
"""Delta tables as sources, row for row against delta-rs.

Every table of the corpus, in every version that its log has: the shards hold the rows that delta-rs reads, with the same types, or both
refuse it. Then tables that delta-rs writes while they are converted again and again: appends, merges of small files, deletions,
overwrites, checkpoints. A model says which rows the dataset has to have. Last, damaged logs: an error, and nothing is written.

    python3 scripts/checks/delta_check.py --shardify target/release/shardify [--corpus ../shared/corpus] [--tables 20]
"""

import argparse
import collections
import datetime
import decimal
import io
import json
import math
import os
import pathlib
import random
import shutil
import sys
import tarfile
import tempfile

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from harness import INPUT, OK, ROOT, USAGE, Failure, Shardify, error_message, expect, finish, not_run

CHANGED = 8
# What is refused although delta-rs reads it, by what the message has to name.
REFUSED = ("variantType", "variantType-preview")
# Tables with INT96 timestamps beyond the nanoseconds of 64 bits, in which delta-rs returns other years.
BY_PYARROW = ("table_with_edge_timestamps",)


def plain(value):
    """A value that compares and sorts: floats by their bits, maps and structs in order."""
    if isinstance(value, dict):
        return tuple((key, plain(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(plain(one) for one in value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    return value.normalize() if isinstance(value, decimal.Decimal) else value


def rows_of(table):
    """The rows of a table, and how often each is there; columns in the order of their names."""
    names = sorted(table.column_names)
    columns = [table.column(name).to_pylist() for name in names]
    rows = zip(*columns) if columns else []
    return collections.Counter(repr([plain(value) for value in row]) for row in rows)


def types_of(schema):
    def plain_type(one):
        if pa.types.is_string_view(one) or pa.types.is_large_string(one):
            return "string"
        if pa.types.is_binary_view(one) or pa.types.is_large_binary(one):
            return "binary"
        if pa.types.is_map(one):
            return f"map<{plain_type(one.key_type)}, {plain_type(one.item_type)}>"
        if pa.types.is_list(one) or pa.types.is_large_list(one) or pa.types.is_list_view(one):
            return f"list<{plain_type(one.value_type)}>"
        if pa.types.is_struct(one):
            return f"struct<{', '.join(f'{one.field(i).name}: {plain_type(one.field(i).type)}' for i in range(one.num_fields))}>"
        return str(one)

    return {field.name: plain_type(field.type) for field in schema}


def by_delta_rs(folder, version=None):
    """The table as delta-rs reads it; None if it cannot."""
    try:
        table = deltalake.DeltaTable(str(folder), version=version)
        if pathlib.Path(folder).name in BY_PYARROW:
            files = [pq.read_table(uri.removeprefix("file://"), coerce_int96_timestamp_unit="us") for uri in table.file_uris()]
            return pa.concat_tables(files).cast(pa.schema(table.schema().to_arrow()))
        reader = deltalake.QueryBuilder().register("t", table).execute("select * from t")
        return pa.table(reader.read_all())
    except Exception:
        # Whatever it fails with, there are no rows to compare with.
        return None


def shards_of(dataset):
    files = sorted(path for path in pathlib.Path(dataset).rglob("*.parquet") if "_shardify" not in path.parts)
    tables = [pq.ParquetFile(path).read() for path in files]
    return pa.concat_tables(tables, promote_options="permissive") if tables else None


class Corpus:
    """Tables of the corpus, with those in archives unpacked."""

    def __init__(self, root, work):
        import zstandard

        self.tables = sorted(log.parent for log in (root / "delta-tables").rglob("_delta_log"))
        for archive in sorted((root / "delta-tables").rglob("*.tar.zst")):
            into = work / "unpacked" / archive.name.removesuffix(".tar.zst")
            into.mkdir(parents=True)
            bytes_of = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(archive.read_bytes())).read()
            with tarfile.open(fileobj=io.BytesIO(bytes_of)) as tar:
                tar.extractall(into, filter="data")
            self.tables += sorted(log.parent for log in into.rglob("_delta_log"))


def same(what, found, expected):
    """The shards have the rows and types of the table."""
    if expected.num_rows == 0:
        expect(f"{what}: rows", 0 if found is None else found.num_rows, 0)
        return
    if found is None:
        raise Failure(f"{what}: no shards, expected {expected.num_rows} rows")
    types, wanted = types_of(found.schema), types_of(expected.schema)
    # A column of which the table knows no type is text without values.
    expect(f"{what}: types", types, {name: "string" if one == "null" else one for name, one in wanted.items()})
    missing, more = rows_of(expected) - rows_of(found), rows_of(found) - rows_of(expected)
    if missing or more:
        examples = [*list(missing)[:2], "--", *list(more)[:2]]
        raise Failure(f"{what}: {missing.total()} rows are missing, {more.total()} are there in addition: {examples}")


def check_version(shardify, table, version, work):
    """Converts one version; returns `equal`, or why it was refused."""
    what = f"{table.name} v{version}" if version is not None else table.name
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    as_of = [] if version is None else ["--read", f"as-of=v{version}"]
    code, _, errors = shardify.run("convert", table, "--out", out, *as_of)
    expected = by_delta_rs(table, version)
    if code != OK:
        if code not in (INPUT, USAGE):
            raise Failure(f"{what}: exit code {code}: {errors}")
        if (out / "_shardify" / "log").exists():
            raise Failure(f"{what}: it was refused, and something was written")
        if expected is not None and not any(feature in errors for feature in REFUSED):
            raise Failure(f"{what}: delta-rs reads {expected.num_rows} rows, found: {errors}")
        return error_message(errors)
    if expected is None:
        raise Failure(f"{what}: delta-rs cannot read it, found shards")
    same(what, shards_of(out), expected)
    return "equal"


def versions_of(table):
    names = [path.name for path in (table / "_delta_log").iterdir()]
    return sorted({int(name[:20]) for name in names if name[:20].isdigit() and name.endswith(".json") and len(name) == 25})


def instants(shardify, table, work):
    """Versions by the times that commits state; 0 if they state none."""
    first = table / "_delta_log" / f"{0:020}.json"
    if not first.is_file() or '"delta.enableInCommitTimestamps":"true"' not in first.read_text():
        return 0
    times = {}
    for version in versions_of(table):
        text = (table / "_delta_log" / f"{version:020}.json").read_text()
        stated = [json.loads(line).get("commitInfo", {}).get("inCommitTimestamp") for line in text.splitlines() if line]
        times[version] = next((one for one in stated if one), None)
    count = 0
    for version, stated in times.items():
        expected = by_delta_rs(table, version)
        # Where times run backwards, an instant has no one answer.
        known = [(other, at) for other, at in times.items() if at is not None]
        if stated is None or expected is None or any((other < version) != (at < stated) for other, at in known if other != version):
            continue
        at = datetime.datetime.fromtimestamp(stated / 1000, datetime.timezone.utc).isoformat()
        out = work / "instant"
        shutil.rmtree(out, ignore_errors=True)
        shardify.ok("convert", table, "--out", out, "--read", f"as-of={at}")
        same(f"{table.name} at {at}", shards_of(out), expected)
        count += 1
    return count


def corpus(shardify, root, work):
    outcomes, reasons, failures = collections.Counter(), {}, []
    for table in Corpus(root, work).tables:
        try:
            outcome = check_version(shardify, table, None, work)
            outcomes["equal" if outcome == "equal" else "refused"] += 1
            if outcome != "equal":
                reasons[table.name] = outcome
                continue
            for version in versions_of(table)[:-1]:
                outcome = check_version(shardify, table, version, work)
                outcomes["versions equal" if outcome == "equal" else "versions refused"] += 1
            outcomes["instants equal"] += instants(shardify, table, work)
        except Failure as failure:
            failures.append(str(failure))
    print(f"corpus: {dict(outcomes)}")
    for name, reason in sorted(reasons.items()):
        print(f"  refused {name}: {reason[:150]}")
    if failures or not outcomes["equal"]:
        raise Failure("\n".join(failures) or "no table of the corpus was read")


def some_rows(seed, count, first):
    rng = random.Random(seed)
    day = [rng.choice(["2026-11-01", "2026-11-02", None]) for _ in range(count)]
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "day": pa.array(day, pa.string()),
            "note": pa.array([rng.choice(["ä/=%", "", "x" * 50, None]) for _ in range(count)], pa.string()),
            "at": pa.array([rng.randrange(-(10**15), 10**15) for _ in range(count)], pa.timestamp("us", "UTC")),
            "tags": pa.array([[rng.randrange(9)] * rng.randrange(3) for _ in range(count)], pa.list_(pa.int32())),
            "price": pa.array([decimal.Decimal(rng.randrange(10**6)) / 100 for _ in range(count)], pa.decimal128(9, 2)),
        }
    )


# What happens to a living table after its first rows.
ACTIONS = ("append", "append", "optimize", "zorder", "delete", "overwrite", "checkpoint", "nothing")


def living(shardify, work, number):
    """A table that changes between conversions. The dataset has all rows that were ever added, once each, until rows are removed; then
    it has to say so, and `--on-changed replace` makes it equal to the table."""
    rng = random.Random(number)
    table, out = work / f"living{number}", work / f"living{number}-out"
    partition = rng.choice([None, ["day"]])
    first = 0
    for step in range(12):
        action = "append" if step == 0 else rng.choice(ACTIONS)
        removed = False
        delta = deltalake.DeltaTable(str(table)) if step else None
        if action == "append":
            count = rng.randrange(1, 60)
            deltalake.write_deltalake(str(table), some_rows(rng.random(), count, first), mode="append", partition_by=partition)
            first += count
        elif action == "optimize":
            delta.optimize.compact()
        elif action == "zorder":
            delta.optimize.z_order(["id"])
        elif action == "checkpoint":
            delta.create_checkpoint()
        elif action == "delete":
            bound = rng.randrange(first + 1)
            removed = delta.delete(f"id % 7 = {bound % 7}")["num_deleted_rows"] > 0
        elif action == "overwrite":
            removed = True
            deltalake.write_deltalake(str(table), some_rows(rng.random(), 20, first), mode="overwrite")
            first += 20
        if action in ("optimize", "zorder") and rng.random() < 0.5:
            count = rng.randrange(1, 30)
            deltalake.write_deltalake(str(table), some_rows(rng.random(), count, first), mode="append", partition_by=partition)
            first += count
        what = f"living {number}, step {step}, {action}"
        code, _, errors = shardify.run("convert", table, "--out", out)
        if removed:
            expect(f"{what}: exit code ({errors})", code, CHANGED)
            shardify.ok("convert", table, "--out", out, "--on-changed", "replace")
        else:
            expect(f"{what}: exit code ({errors})", code, OK)
        same_live(shardify, what, out, by_delta_rs(table), work)
        before = shardify.versions(out)
        shardify.ok("convert", table, "--out", out)
        expect(f"{what}: versions after a second run", shardify.versions(out), before)
    shardify.ok("verify", out, "--read-data")


def same_live(shardify, what, out, expected, work):
    """The newest version has these rows: old shards are still beside the live ones."""
    copy = work / "live"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    listed = shardify.ok("manifest", out, "--list")
    paths = [one["path"] for one in listed if one.get("type") == "shard"]
    for number, path in enumerate(paths):
        os.link(pathlib.Path(out) / path, copy / f"{number}.parquet")
    same(what, shards_of(copy), expected)


def origins(shardify, root, work):
    """Origins name file and row, also where rows before it are deleted."""
    table = root / "delta-tables/delta-io__delta-rs/crates/test/tests/data/table_with_deletion_logs"
    if not table.is_dir():
        not_run("origins of a table with deletion vectors", f"{table} is missing")
        return
    out = work / "origins"
    shardify.ok("convert", table, "--out", out)
    for one in shardify.ok("manifest", out, "--export", "jsonl"):
        if "record_id" not in one:
            continue
        shardify.ok("manifest", out, "--find", one["record_id"])
        physical = pq.read_table(table / one["source"]).slice(one["row"] - 1, 1).to_pylist()
        shard = pq.read_table(out / one["shard"]).slice(one["ordinal"], 1).to_pylist()
        expect(f"row of {one['record_id']}", shard, physical)


def damaged(shardify, work):
    """Damaged logs end in errors that say where, and nothing is written."""
    good = work / "good"
    for step in range(4):
        deltalake.write_deltalake(str(good), some_rows(step, 5, 5 * step), mode="append")

    def commit(table, version):
        return table / "_delta_log" / f"{version:020}.json"

    def torn(table):
        text = commit(table, 2).read_text()
        commit(table, 2).write_text(text[: len(text) // 2])

    def climbing(table):
        lines = [json.loads(line) for line in commit(table, 2).read_text().splitlines()]
        for line in lines:
            if "add" in line:
                line["add"]["path"] = "../good/" + line["add"]["path"]
        commit(table, 2).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def without_data(table):
        next(path for path in sorted(table.glob("*.parquet"))).unlink()

    def no_metadata(table):
        commit(table, 0).write_text('{"commitInfo":{}}\n')

    def feature(table):
        lines = [json.loads(line) for line in commit(table, 0).read_text().splitlines()]
        for line in lines:
            if "protocol" in line:
                features = {"readerFeatures": ["warpDrive"], "writerFeatures": ["warpDrive"]}
                line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        commit(table, 0).write_text("".join(json.dumps(line) + "\n" for line in lines))

    cases = [
        ("a missing version", lambda table: commit(table, 1).unlink(), INPUT, "version 1"),
        ("torn JSON", torn, INPUT, "line"),
        ("a path out of the table", climbing, INPUT, "../good"),
        ("a missing data file", without_data, INPUT, ".parquet"),
        ("no schema", no_metadata, INPUT, "protocol and schema"),
        ("an unknown feature", feature, USAGE, "warpDrive"),
    ]
    for what, damage, expected, text in cases:
        table, out = work / "damaged", work / "damaged-out"
        shutil.rmtree(table, ignore_errors=True)
        shutil.copytree(good, table)
        damage(table)
        code, _, errors = shardify.run("convert", table, "--out", out)
        expect(f"{what}: exit code ({errors})", code, expected)
        if text not in errors:
            raise Failure(f"{what}: expected `{text}` in the message, found {errors}")
        if out.exists() and any(out.rglob("*.parquet")):
            raise Failure(f"{what}: something was written")
    print(f"damage: {len(cases)} kinds are told, with nothing written")


def remote(shardify, work):
    """A table on S3: the same rows, and a later run takes what was added."""
    from stores_check import ATOMIC_MOTO, BUCKET, S3, Server, free_port

    port = free_port()
    with Server([sys.executable, str(ATOMIC_MOTO), "-H", "127.0.0.1", "-p", str(port)], port):
        s3 = S3(port)
        there = Shardify(shardify.binary, s3.settings)
        table, out = work / "remote", work / "remote-out"

        def upload():
            for path in table.rglob("*"):
                if path.is_file():
                    s3.put(f"lake/t=1/{path.relative_to(table)}", path.read_bytes())

        for step in range(3):
            deltalake.write_deltalake(str(table), some_rows(step, 40, 40 * step), mode="append", partition_by=["day"])
            upload()
            there.ok("convert", f"s3://{BUCKET}/lake/t=1", "--out", out)
            same_live(there, f"S3, step {step}", out, by_delta_rs(table), work)
        deltalake.DeltaTable(str(table)).optimize.compact()
        upload()
        before = there.versions(out)
        there.ok("convert", f"s3://{BUCKET}/lake/t=1", "--out", out)
        expect("S3: versions after OPTIMIZE", there.versions(out), before)
    print("S3: 3 appends and an OPTIMIZE")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", default=ROOT / "target" / "release" / "shardify")
    default = pathlib.Path(os.environ.get("SHARDIFY_CORPUS") or ROOT.parent / "shared" / "corpus")
    parser.add_argument("--corpus", type=pathlib.Path, default=default)
    parser.add_argument("--tables", type=int, default=20, help="tables that change between conversions")
    options = parser.parse_args()
    shardify = Shardify(options.shardify)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        damaged(shardify, work)
        remote(shardify, work)
        for number in range(options.tables):
            living(shardify, work, number)
        print(f"living tables: {options.tables}, 12 steps each, equal to delta-rs after each")
        if (options.corpus / "delta-tables").is_dir():
            corpus(shardify, options.corpus, work)
            origins(shardify, options.corpus, work)
        else:
            not_run("tables of the corpus", f"there is no {options.corpus / 'delta-tables'}")


if __name__ == "__main__":
    finish(main)
