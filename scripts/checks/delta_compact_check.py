#!/usr/bin/env python3
"""`compact` of Delta tables, as readers of Delta tables see them.

Random tables that delta-rs writes (partitions, nulls, nested columns, deletes, later columns, checkpoints) are compacted, sorted and put
into Z-orders again and again: every version has the same rows before and after in delta-rs, the newest one in DuckDB, Polars, ClickHouse and Sail, also where they
skip files by their statistics; rows of new files are in order; a second run finds nothing to do. Tables of the corpus, with every file many times, so that those with deletion vectors are
merged, too, are compacted or refused. Then delta-rs appends, deletes and merges beside compactions that are killed: a model says which rows
the table has to have. Last, damaged logs: an error, and nothing is written.

    python3 scripts/checks/delta_compact_check.py --shardify target/release/shardify [--corpus ../shared/corpus] [--rounds 10]
    python3 scripts/checks/delta_compact_check.py --timing 2000     # beside `optimize.compact` of delta-rs; nothing else
    python3 scripts/checks/delta_compact_check.py --timing 2000 --zorder    # beside `optimize.z_order`, and which files range queries read
"""

import argparse
import copy
import datetime
import decimal
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

import deltalake
import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_check import Corpus, by_delta_rs, rows_of
from delta_readers import PLACES, Reader
from harness import CONFLICT, INPUT, OK, ROOT, USAGE, Failure, Shardify, error_message, expect, finish, not_run
from stores_check import bucket_of

INTERRUPTED = -signal.SIGKILL


def readers():
    """Functions that count the rows of the newest version that fulfil a condition, and give all rows, by name of the program."""
    found = {}
    try:
        import polars

        def by_polars(folder, condition):
            table = polars.scan_delta(str(folder))
            return (table.filter(polars.sql_expr(condition)) if condition else table).collect().to_arrow()

        found["Polars"] = by_polars
    except ImportError as why:
        not_run("Polars", why)
    for name in PLACES:
        try:
            found[name] = Reader(name).scan
        except ImportError as why:
            not_run(name, why)
    return found


def taken(name, table):
    """A table without the columns that a reader does not give as they are: Polars has no maps, and ClickHouse no nulls of nested types."""
    other = {"Polars": pa.types.is_map, "ClickHouse": pa.types.is_nested}.get(name)
    return table.drop_columns([field.name for field in table.schema if other(field.type)]) if other else table


def filtered(folder, condition):
    reader = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(folder)))
    return pa.table(reader.execute(f"select * from t where {condition}").read_all())


def same(what, found, expected):
    if found is None or expected is None:
        raise Failure(f"{what}: a reader cannot read it: {found is None}, {expected is None}")
    missing, more = rows_of(expected) - rows_of(found), rows_of(found) - rows_of(expected)
    if missing or more:
        examples = [*list(missing)[:2], "--", *list(more)[:2]]
        raise Failure(f"{what}: {missing.total()} rows are missing, {more.total()} are there in addition: {examples}")


def commits_of(table):
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())


def actions_of(table, version):
    return [json.loads(line) for line in (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines() if line.strip()]


def check_commit(what, table, version):
    """The newest commit is an OPTIMIZE that changes no data, and its counts are right."""
    actions = actions_of(table, version)
    info = actions[0]["commitInfo"]
    expect(f"{what}: operation", info["operation"], "OPTIMIZE")
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    if any(one["dataChange"] for one in adds + removes):
        raise Failure(f"{what}: a commit of a compaction changes data")
    expect(f"{what}: added", info["operationMetrics"]["numAddedFiles"], str(len(adds)))
    expect(f"{what}: removed bytes", info["operationMetrics"]["numRemovedBytes"], str(sum(one["size"] for one in removes)))
    for add in adds:
        path = table / add["path"].replace("%20", " ").replace("%25", "%").replace("%3A", ":")
        if path.exists():
            expect(f"{what}: size of {add['path']}", path.stat().st_size, add["size"])


class Random:
    """A table of random rows."""

    def __init__(self, folder, seed):
        self.folder, self.rng, self.number = folder, random.Random(seed), 0
        self.partitions = self.rng.choice([[], ["day"], ["day", "kind"]])
        self.has_later = False

    def rows(self, count):
        rng = self.rng
        out = []
        for _ in range(count):
            self.number += 1
            maybe = lambda value: None if rng.random() < 0.15 else value
            out.append({
                "n": self.number,
                "day": maybe(datetime.date(2026, 1, rng.randint(1, 3))),
                "kind": maybe(rng.choice(["a b", "c/d", "é%", "x=1"])),
                "text": maybe(rng.choice(["", "short", "long" * 20, "\u00fc" * 40, f"t{self.number % 7}"])),
                "x": maybe(rng.choice([0.5, -3.25, 1e300, float(self.number)])),
                "amount": maybe(decimal.Decimal(rng.randint(-10**30, 10**30)).scaleb(-4)),
                "at": maybe(datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(microseconds=rng.randint(0, 10**12))),
                "flag": maybe(rng.random() < 0.5),
                "lab": maybe({"code": maybe(f"L{rng.randint(1, 9)}"), "value": maybe(rng.random())}),
                "list": maybe([maybe(rng.randint(1, 5)) for _ in range(rng.randint(0, 3))]),
                "raw": maybe(bytes(rng.randbytes(rng.randint(0, 9)))),
                "map": maybe([(f"k{i}", maybe(rng.randint(1, 9))) for i in range(rng.randint(0, 3))]),
                **({"later": maybe(rng.randint(1, 100))} if self.has_later else {}),
            })
        fields = [
            ("n", pa.int64()), ("day", pa.date32()), ("kind", pa.string()), ("text", pa.string()), ("x", pa.float64()),
            ("amount", pa.decimal128(38, 4)), ("at", pa.timestamp("us", "UTC")), ("flag", pa.bool_()),
            ("lab", pa.struct([("code", pa.string()), ("value", pa.float64())])), ("list", pa.list_(pa.int32())), ("raw", pa.binary()),
            ("map", pa.map_(pa.string(), pa.int64())),
        ]
        return pa.Table.from_pylist(out, schema=pa.schema(fields + ([("later", pa.int32())] if self.has_later else [])))

    def step(self):
        kind = self.rng.choice(["append"] * 8 + ["delete", "later", "checkpoint", "update"])
        if kind == "append" or not (self.folder / "_delta_log").exists():
            rows = self.rows(self.rng.choice([1, 3, 40, 700]))
            deltalake.write_deltalake(self.folder, rows, mode="append", partition_by=self.partitions or None,
                                      schema_mode="merge" if self.has_later else None)
            return
        table = deltalake.DeltaTable(str(self.folder))
        if kind == "delete":
            table.delete(f"n % {self.rng.randint(3, 9)} = 0")
        elif kind == "update":
            table.update(updates={"text": "'changed'"}, predicate=f"n % 13 = {self.rng.randint(0, 12)}")
        elif kind == "checkpoint":
            table.create_checkpoint()
        else:
            self.has_later = True


# Columns, and whether files are sorted by them; None for a merge in the order of the files.
ORDERS = (None, None, ("--sort-by", "n"), ("--sort-by", "text,x"), ("--sort-by", "at"), ("--zorder", "x,n"), ("--zorder", "text,at,amount"))


def check_order(what, table, version, order):
    """Rows of each new file are sorted, files of a partition do not overlap, and tags name the order."""
    adds = [action["add"] for action in actions_of(table, version) if "add" in action]
    for add in adds:
        tag = json.loads(add["tags"]["shardify.order"])
        expect(f"{what}: the order in the tags", (tag["by"], tag["columns"]), ({"--sort-by": "sort", "--zorder": "zorder"}[order[0]], order[1].split(",")))
    if order[0] != "--sort-by":
        return
    ends = {}
    key = lambda row: tuple((value is not None, value) for value in row.values())
    for add in adds:
        rows = pq.ParquetFile(table / urllib.parse.unquote(add["path"])).read(columns=order[1].split(",")).select(order[1].split(",")).to_pylist()
        keys = [key(row) for row in rows]
        expect(f"{what}: rows of {add['path']} are sorted", keys == sorted(keys), True)
        ends.setdefault(json.dumps(add["partitionValues"]), []).append((keys[0], keys[-1]))
    for of_partition in ends.values():
        of_partition.sort()
        expect(f"{what}: files overlap", [one for one, other in zip(of_partition, of_partition[1:]) if one[1] > other[0]], [])


CONDITIONS = ("n > 100", "n < 20", "text = 'short'", "text > 't3'", "x < -1", "amount > 0", "later >= 50", "kind is null",
              "day = date '2026-01-02'")


def check_random(shardify, work, seed, others):
    folder = work / f"random{seed}"
    random_table = Random(folder, seed)
    compactions = 0
    for _ in range(3):
        for _ in range(random_table.rng.randint(2, 14)):
            random_table.step()
        table = deltalake.DeltaTable(str(folder))
        before = {version: by_delta_rs(folder, version) for version in range(table.version() + 1)}
        names = [field.name for field in table.schema().fields]
        conditions = [one for one in CONDITIONS if one.split()[0] in names]
        counts = {one: filtered(folder, one) for one in conditions}
        target, order = random_table.rng.choice(["20kb", "100kb", "128MiB"]), random_table.rng.choice(ORDERS)
        what = f"seed {seed}, v{table.version()}, target {target}, {order}"
        command = ("compact", folder, "--min-inputs", "2", "--target-shard", target, *(order or ()))
        code, objects, errors = shardify.run(*command)
        expect(f"{what}: exit code ({errors})", code, OK)
        summary = objects[-1]
        expect(f"{what}: rows", summary["records_in"], summary["records_out"])
        if summary["files_removed"]:
            compactions += 1
            check_commit(what, folder, summary["version"])
            if order:
                check_order(what, folder, summary["version"], order)
        for version, rows in before.items():
            same(f"{what}: version {version}", by_delta_rs(folder, version), rows)
        newest = before[max(before)]
        same(f"{what}: newest", by_delta_rs(folder), newest)
        for condition in conditions:
            same(f"{what}: {condition}", filtered(folder, condition), counts[condition])
        for name, read in others.items():
            some = lambda table: table.select(taken(name, newest).column_names)
            same(f"{what}: {name}", some(read(folder, None)), some(newest))
            for condition in conditions[:4]:
                same(f"{what}: {name}, {condition}", some(read(folder, condition)), some(counts[condition]))
        code, objects, errors = shardify.run(*command)
        expect(f"{what}: a second run ({errors})", (code, objects[-1]["files_removed"], objects[-1]["version"]), (OK, 0, summary["version"]))
        leftovers = [path.name for path in folder.iterdir() if path.name == "_shardify"]
        expect(f"{what}: folders left", leftovers, [])
    # The table's own tools go on.
    table = deltalake.DeltaTable(str(folder))
    before = by_delta_rs(folder)
    table.create_checkpoint()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    same(f"seed {seed}: after checkpoint and VACUUM", by_delta_rs(folder), before)
    code, objects, errors = shardify.run("compact", folder, "--min-inputs", "2", "--target-shard", "128MiB")
    expect(f"seed {seed}: after VACUUM ({errors})", code, OK)
    same(f"seed {seed}: compacted after VACUUM", by_delta_rs(folder), before)
    return compactions


def multiplied(table, times):
    """Commits every live file again and again, under other names, so that there is something to merge."""
    version = commits_of(table)[-1]
    live = {}
    for number in commits_of(table):
        for action in actions_of(table, number):
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
    lines = []
    for path, add in live.items():
        # Paths that are encoded are left alone.
        source = table / path
        if "%" in path or not source.exists():
            continue
        for number in range(times):
            name = f"{path.rpartition('/')[0]}/copy{number}-{source.name}".lstrip("/")
            shutil.copyfile(source, table / name)
            lines.append(json.dumps({"add": {**copy.deepcopy(add), "path": name, "dataChange": True}}))
    if not lines or (table / "_delta_log" / f"{version + 1:020d}.json").exists():
        return False
    first = actions_of(table, version)
    stated = [one["commitInfo"]["inCommitTimestamp"] for one in first if "inCommitTimestamp" in one.get("commitInfo", {})]
    info = {"commitInfo": {"operation": "WRITE", **({"inCommitTimestamp": stated[0] + 1} if stated else {})}}
    (table / "_delta_log" / f"{version + 1:020d}.json").write_text("\n".join([json.dumps(info), *lines]) + "\n")
    return True


def tree_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def check_corpus(shardify, table, work, counts):
    copied = work / "corpus"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(table, copied)
    if not commits_of(copied):
        return
    multiplied(copied, 12)
    before = by_delta_rs(copied)
    tree = tree_of(copied)
    code, objects, errors = shardify.run("compact", copied, "--min-inputs", "2")
    if code != OK:
        if code not in (USAGE, INPUT):
            raise Failure(f"{table.name}: exit code {code}: {errors}")
        # A damaged file keeps others from being merged only with it.
        if "other merges are committed" in errors:
            counts["merged but for damaged files"] = counts.get("merged but for damaged files", 0) + 1
            return
        expect(f"{table.name}: files after a refusal", tree_of(copied), tree)
        line = error_message(errors)
        counts[line] = counts.get(line, 0) + 1
        return
    summary = objects[-1]
    if summary["files_removed"]:
        counts["merged"] = counts.get("merged", 0) + 1
        counts["with vectors"] = counts.get("with vectors", 0) + (summary["vectors_removed"] > 0)
        check_commit(table.name, copied, summary["version"])
    if before is None:
        counts["not read by delta-rs"] = counts.get("not read by delta-rs", 0) + 1
        return
    same(f"{table.name}: compacted", by_delta_rs(copied), before)
    code, objects, errors = shardify.run("compact", copied, "--min-inputs", "2")
    expect(f"{table.name}: a second run ({errors})", (code, objects[-1]["files_removed"]), (OK, 0))


class Writer(threading.Thread):
    """Another program that writes to a table; `rows` are those that it has to have."""

    def __init__(self, folder, commits, seed):
        super().__init__()
        self.folder, self.commits, self.rng = folder, commits, random.Random(seed)
        self.rows, self.number, self.conflicts, self.failure = {}, 0, 0, None

    def run(self):
        try:
            for _ in range(self.commits):
                self.step()
        except Exception as failure:
            self.failure = failure

    def append(self):
        rows = [{"n": self.number + i, "p": (self.number + i) % 2, "text": f"t{i}"} for i in range(self.rng.randint(1, 9))]
        self.number += len(rows)
        deltalake.write_deltalake(self.folder, pa.Table.from_pylist(rows), mode="append", partition_by=["p"])
        self.rows.update({row["n"]: row["text"] for row in rows})

    def step(self):
        kind = self.rng.choice(["append"] * 6 + ["delete", "merge", "checkpoint"])
        if kind == "append" or not self.rows:
            return self.append()
        # A conflict with a compaction is for the writer to try again.
        for _ in range(20):
            try:
                table = deltalake.DeltaTable(str(self.folder))
                if kind == "delete":
                    divisor, rest = self.rng.randint(3, 11), self.rng.randint(0, 2)
                    table.delete(f"n % {divisor} = {rest}")
                    self.rows = {n: text for n, text in self.rows.items() if n % divisor != rest}
                elif kind == "merge":
                    some = self.rng.sample(sorted(self.rows), min(len(self.rows), 4))
                    source = pa.Table.from_pylist([{"n": n, "p": n % 2, "text": f"m{self.rng.randint(0, 99)}"} for n in some])
                    merge = table.merge(source, "target.n = source.n", source_alias="source", target_alias="target")
                    merge.when_matched_update_all().execute()
                    self.rows.update(zip(source["n"].to_pylist(), source["text"].to_pylist()))
                else:
                    table.create_checkpoint()
                return None
            except deltalake.exceptions.DeltaError:
                self.conflicts += 1
        return None


def check_beside(shardify, folder, seed, commits, where):
    writer = Writer(folder, commits, seed)
    writer.append()
    writer.start()
    rng, killed, ended = random.Random(seed), 0, {}
    while writer.is_alive():
        words = rng.choice([("compact", folder, "--min-inputs", "2"), ("compact", folder, "--min-inputs", "2"),
                            ("compact", folder, "--sort-by", "text,n"), ("compact", folder, "--zorder", "n,text"),
                            ("vacuum", folder, "--retain", "10s", "--force")])
        process = subprocess.Popen(shardify.command(*words), env=shardify.environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            _, errors = process.communicate(timeout=rng.choice([0.01, 0.03, 0.06, 0.1, 30, 30]))
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
            killed += 1
        ended[process.returncode] = ended.get(process.returncode, 0) + 1
        if process.returncode not in (OK, CONFLICT, INTERRUPTED):
            raise Failure(f"beside, seed {seed}: {words}: exit code {process.returncode}: {errors}")
    writer.join()
    if writer.failure:
        raise Failure(f"beside, seed {seed}: delta-rs failed: {writer.failure!r}")
    code, objects, errors = shardify.run("compact", folder, "--min-inputs", "2")
    expect(f"beside, seed {seed}: the last run ({errors})", code, OK)
    table = by_delta_rs(folder)
    found = sorted(zip(table["n"].to_pylist(), table["text"].to_pylist()))
    expect(f"beside, seed {seed}: rows", found, sorted(writer.rows.items()))
    code, objects, errors = shardify.run("vacuum", folder, "--retain", "0", "--force")
    expect(f"beside, seed {seed}: vacuum ({errors})", code, OK)
    table = by_delta_rs(folder)
    expect(f"beside, seed {seed}: rows after vacuum", sorted(zip(table["n"].to_pylist(), table["text"].to_pylist())), sorted(writer.rows.items()))
    history = deltalake.DeltaTable(str(folder)).history()
    ours = sum(one.get("engineInfo", "").startswith("shardify") and one["operation"] == "OPTIMIZE" for one in history)
    print(f"{where}, beside {commits} commits of delta-rs: {ours} compactions committed, {objects[-1]['files_deleted']} files deleted last, {killed} killed, "
          f"delta-rs tried again {writer.conflicts} times; exit codes {ended}", flush=True)


def check_on_s3(shardify, seed, commits):
    """The same in a bucket, where commits are conditional creates; no upload may stay open."""
    try:
        import boto3  # noqa: F401
        import moto  # noqa: F401
    except ImportError as why:
        not_run("S3", why)
        return
    with bucket_of("s3") as bucket:
        os.environ.update({**bucket.settings, "AWS_CONDITIONAL_PUT": "etag"})
        on_s3 = Shardify(shardify.binary, bucket.settings)
        check_beside(on_s3, f"{bucket.root}/lake/beside", seed, commits, "S3")
        # A run that is killed while it tests the store leaves what it races for; `vacuum` asks for the time of the store.
        kept = ("/store.json", "/clock")
        left = [key for key in bucket.keys("lake/") if "/_shardify/" in key and not key.endswith(kept) and "/proof/" not in key]
        expect("S3: objects left", left, [])
        for name in [*bucket.settings, "AWS_CONDITIONAL_PUT"]:
            del os.environ[name]


def check_damaged(shardify, work):
    def table(name):
        folder = work / name
        for number in range(6):
            deltalake.write_deltalake(folder, pa.table({"n": [number]}), mode="append")
        return folder, folder / "_delta_log" / f"{3:020d}.json"

    def broken(name, damage, place):
        folder, commit = table(name)
        damage(folder, commit)
        tree = tree_of(folder)
        of_data = name in ("gone", "cut")
        for words in (("compact", "--min-inputs", "2"), ("compact", "--sort-by", "n"), ("vacuum", "--retain", "0", "--force")):
            if of_data and words[0] == "vacuum":
                continue
            code, _, errors = shardify.run(words[0], folder, *words[1:])
            expect(f"{name}, {words}: exit code ({errors})", code, INPUT)
            if place not in errors:
                raise Failure(f"{name}, {words}: the error does not name {place}: {errors}")
            expect(f"{name}, {words}: files", tree_of(folder), tree)

    def other_path(path):
        def damage(_, commit):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            for action in actions:
                if "add" in action:
                    action["add"]["path"] = path
            commit.write_text("\n".join(map(json.dumps, actions)) + "\n")
        return damage

    def cut_data(folder, _):
        path = sorted(folder.glob("*.parquet"))[0]
        path.write_bytes(path.read_bytes()[:-9])

    broken("missing", lambda _, commit: commit.unlink(), "00000000000000000003.json")
    broken("torn", lambda _, commit: commit.write_bytes(commit.read_bytes()[:-20]), "00000000000000000003.json")
    broken("above", other_path("../other.parquet"), "00000000000000000003.json")
    broken("absolute", other_path("/etc/passwd"), "00000000000000000003.json")
    broken("url", other_path("s3://bucket/x.parquet"), "00000000000000000003.json")
    broken("gone", lambda folder, _: sorted(folder.glob("*.parquet"))[0].unlink(), ".parquet")
    broken("cut", cut_data, ".parquet")


def small_files(source, files, rows):
    """Makes a table of small files, as delta-rs writes them; returns their mean size in bytes."""
    rng, adds = numpy.random.default_rng(1), []
    texts = pa.array([f"text {number}" for number in range(51)])
    for number in range(files):
        first = number * rows
        ids = pa.array(rng.integers(0, 10**9, rows)).cast(pa.string())
        table = pa.table({"n": range(first, first + rows), "text": texts.take(pa.array(rng.integers(0, 51, rows))), "x": rng.random(rows),
                          "id": pc.binary_join_element_wise("id-", ids, "")})
        if number == 0:
            deltalake.write_deltalake(source, table)
            continue
        path = source / f"part-{number:05}.snappy.parquet"
        pq.write_table(table, path, compression="snappy")
        stats = {"numRecords": rows, "minValues": {"n": first}, "maxValues": {"n": first + rows - 1}, "nullCount": {"n": 0, "text": 0, "x": 0, "id": 0}}
        adds.append(json.dumps({"add": {"path": path.name, "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 1_700_000_000_000 + number,
                                        "dataChange": True, "stats": json.dumps(stats)}}))
    (source / "_delta_log" / f"{1:020d}.json").write_text("\n".join([json.dumps({"commitInfo": {"operation": "WRITE"}}), *adds]) + "\n")
    return sum(path.stat().st_size for path in source.glob("*.parquet")) / files


def timing(binary, files, rows, work, is_zorder, runs):
    """Times both on copies of a table of small files, in an order that rotates."""
    source, columns = work / "source", ["x", "id"]
    size = small_files(source, files, rows)
    target = 16 << 20 if is_zorder else 128 << 20
    words = ["--zorder", ",".join(columns), "--target-shard", str(target)] if is_zorder else []

    def ours(folder):
        subprocess.run([binary, "compact", folder, "--quiet", *words], check=True)

    def theirs(folder):
        optimize = deltalake.DeltaTable(str(folder)).optimize
        if is_zorder:
            optimize.z_order(columns, target_size=target)
        else:
            optimize.compact(target_size=target)

    programs = {"shardify": ours, "delta-rs": theirs}
    times = {name: [] for name in programs}
    for number in range(runs):
        for name in list(programs)[::1 if number % 2 == 0 else -1]:
            folder = work / name
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(source, folder, copy_function=os.link)
            began = time.perf_counter()
            programs[name](folder)
            times[name].append(time.perf_counter() - began)
            print(f"  run {number + 1}, load {os.getloadavg()[0]:.1f}: {name} {times[name][-1]:.2f} s", flush=True)
    for name in programs:
        expect(f"timing: rows of {name}", deltalake.DeltaTable(str(work / name)).to_pyarrow_dataset().count_rows(), files * rows)
    medians = {name: sorted(found)[len(found) // 2] for name, found in times.items()}
    spread = ", ".join(f"{name} {medians[name]:.2f} s ({min(found):.2f} to {max(found):.2f})" for name, found in times.items())
    print(f"{files} files of {size / 1e3:.0f} kB, medians of {runs}: {spread}, ratio {medians['delta-rs'] / medians['shardify']:.2f}")
    if is_zorder:
        for name in programs:
            print(f"range queries on {name}: {read_by_ranges(work / name, columns)}")
    version = deltalake.DeltaTable(str(work / "shardify")).version()
    again = subprocess.run([binary, "compact", work / "shardify", *words], check=True, capture_output=True, text=True)
    expect("timing: the version after a second run", deltalake.DeltaTable(str(work / "shardify")).version(), version)
    print(f"a second run: {(again.stdout + again.stderr).splitlines()[0]}")


def read_by_ranges(folder, columns):
    """Shares of files and bytes that range queries of one in a hundred rows skip by the statistics in the log, for each column."""
    adds = deltalake.DeltaTable(str(folder)).get_add_actions(flatten=True)
    adds = pa.table(adds)
    sizes, out = adds["size_bytes"].to_pylist(), [f"{len(adds)} files"]
    for column in columns:
        ends = list(zip(adds[f"min.{column}"].to_pylist(), adds[f"max.{column}"].to_pylist()))
        values = sorted(pq.read_table(next(folder.glob("part-*.parquet")), columns=[column])[column].to_pylist())
        shares = []
        for number in range(50):
            low = values[number * (len(values) * 98 // 100) // 50]
            high = values[min(len(values) - 1, number * (len(values) * 98 // 100) // 50 + len(values) // 100)]
            read = [size for size, (least, greatest) in zip(sizes, ends) if least is None or (least <= high and greatest >= low)]
            shares.append((len(read) / len(sizes), sum(read) / sum(sizes)))
        files, read_bytes = (sum(share[at] for share in shares) / len(shares) for at in (0, 1))
        out.append(f"{column} skips {1 - files:.1%} of the files, {1 - read_bytes:.1%} of the bytes")
    return ", ".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--corpus", default=str(ROOT.parent / "shared" / "corpus"))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--commits", type=int, default=60, help="commits of delta-rs beside compactions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timing", type=int, help="small files of the timed table")
    parser.add_argument("--zorder", action="store_true", help="time Z-orders in place of merges")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of each of them")
    parser.add_argument("--runs", type=int, default=5, help="runs of each program that are timed")
    options = parser.parse_args()
    shardify = Shardify(options.shardify)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        if options.timing:
            timing(shardify.binary, options.timing, options.rows, work, options.zorder, options.runs)
            return
        others = readers()
        done = sum(check_random(shardify, work, seed, others) for seed in range(options.seed, options.seed + options.rounds))
        print(f"{options.rounds} random tables, {done} compactions; readers: delta-rs {' '.join(others)}", flush=True)
        check_damaged(shardify, work)
        print("damaged logs and files: refused, nothing written", flush=True)
        corpus = pathlib.Path(options.corpus)
        if (corpus / "delta-tables").is_dir():
            counts = {}
            for table in Corpus(corpus, work).tables:
                check_corpus(shardify, table, work, counts)
            for what, count in sorted(counts.items(), key=lambda pair: -pair[1]):
                print(f"  {count:3} {what}")
        else:
            not_run("tables of the corpus", f"no {corpus}/delta-tables")
        for seed in range(options.seed, options.seed + 2):
            check_beside(shardify, work / f"beside{seed}", seed, options.commits, "local")
        check_on_s3(shardify, options.seed, options.commits)


if __name__ == "__main__":
    finish(main)
