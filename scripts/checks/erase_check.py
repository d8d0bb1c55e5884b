#!/usr/bin/env python3
"""Erases people from datasets of every format and looks for them: in every byte of every object, decompressed too.

Each case: convert sources in several commits, compact (or sort), append, erase, and then
  - no object holds a payload or an id of an erased record, in any version that can be read;
  - other programs read exactly the other records from the newest shards, and every older version lists exactly its others;
  - converting the same sources again does nothing, and a copy of them brings nobody back;
  - it can be done while others write and compact;
  - where ids are private, all of this holds, no receipt or list names anybody, and the SQL of the format finds who is left and nobody else;
  - names with quotes, slashes, blanks and letters beyond ASCII are found as CSV and JSON escape them, in rejected lines and names
    of sources too; what stays is listed, tags keep nobody, and other spellings come in counted, or not at all;
  - an erasure that is killed at a random moment leaves a dataset in order, and the same command finishes it.
"""
import argparse
import concurrent.futures
import csv
import gzip
import hashlib
import hmac
import io
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import tempfile
import time

import duckdb
import pyarrow.parquet as pq
import tfrecord
import webdataset
import zstandard

import harness
from harness import Failure, finish
from hmac_sql import HMAC_SQL

SUBJECTS = 40
SOURCES = 3
KEY = hashlib.sha256(b"a key for private ids").digest()


def run(args, *words, code=0):
    return harness.run(args.shardify, *words, codes=(code,), environment=args.env).decode()


def summary(args, *words, code=0):
    return json.loads(run(args, *words, "--json", code=code).splitlines()[-1])


def make_sources(args, folder, seed):
    """Rows whose notes are found nowhere else."""
    rng = random.Random(seed)
    rows = {}
    folder.mkdir()
    for k in range(SOURCES):
        with open(folder / f"s{k}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "who", "x", "note"])
            for i in range(args.rows):
                note = f"note-{rng.getrandbits(96):024x}"
                row = (f"rec{k}x{i:06d}", f"PAT-{rng.randrange(SUBJECTS):04d}", i, note)
                rows[row[0]] = row
                writer.writerow(row)
    return rows


def texts_of(path):
    """The bytes of an object as they are, and all that can be unpacked from them."""
    raw = path.read_bytes()
    yield raw
    if raw[:2] == b"\x1f\x8b":
        yield gzip.decompress(raw)
    elif raw[:4] == b"\x28\xb5\x2f\xfd":
        yield zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw), read_across_frames=True).read()
    elif raw[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(raw))
        yield repr(file.metadata.metadata).encode()
        for group in range(file.num_row_groups):
            described = file.metadata.row_group(group)
            for column in range(described.num_columns):
                yield repr(described.column(column).statistics).encode()
        yield "\n".join(str(row) for row in file.read().to_pylist()).encode()
    elif raw[:6] == b"SQLite":
        with sqlite3.connect(path) as database:
            yield "\n".join(database.iterdump()).encode()


def holding(dataset, needles):
    found = {}
    for path in sorted(dataset.rglob("*")):
        if path.is_file():
            for text in texts_of(path):
                for needle in needles:
                    if needle.encode() in text:
                        found.setdefault(str(path.relative_to(dataset)), needle)
    return found


def ids_in_shards(args, dataset, to):
    """Record ids in the live shards, as other programs read them."""
    listed = [json.loads(line) for line in run(args, "manifest", dataset, "--list", "--json").splitlines()]
    paths = [str(dataset / shard["path"]) for shard in listed if shard["type"] == "shard"]
    if to == "parquet":
        return sorted(row for path in paths for row in pq.read_table(path, columns=["id"])["id"].to_pylist())
    if to == "tar":
        if any(path.endswith(".zst") for path in paths):
            ids = []
            for path in paths:
                raw = zstandard.ZstdDecompressor().stream_reader(open(path, "rb"), read_across_frames=True)
                with tarfile.open(fileobj=raw, mode="r|") as tar:
                    ids.extend(member.name.removesuffix(".json") for member in tar)
            return sorted(ids)
        if not paths:
            return []
        samples = webdataset.WebDataset(paths, shardshuffle=False, empty_check=False)
        return sorted(sample["__key__"] for sample in samples)
    ids = []
    for path in paths:
        packed = "gzip" if path.endswith(".gz") else None
        for record in tfrecord.tfrecord_loader(path, None, {"id": "byte"}, compression_type=packed):
            ids.append(bytes(record["id"]).decode())
    return sorted(ids)


def exported(args, dataset, version=None):
    at = ["--at", version] if version else []
    lines = run(args, "manifest", dataset, "--export", "jsonl", *at).splitlines()
    return sorted(json.loads(line)["record_id"] for line in lines)


def token(text):
    return hmac.new(KEY, text.encode(), "sha256").hexdigest()[:32]


def sql_counts(dataset, ids, kind):
    """What DuckDB finds for each id in the index and in the sidecars."""
    base = dataset / "_shardify"
    with duckdb.connect() as database:
        database.execute(HMAC_SQL)
        database.execute("create table asked (id text, mac text)")
        database.executemany("insert into asked select ?, null", [(one,) for one in ids])
        database.execute(f"update asked set mac = hmac_sha256('{KEY.hex()}', id)")
        index = database.execute(f"""
            select id, (select count(*) from read_parquet('{base}/index/{kind}/*/*.table')
                        where hash40 = ('0x' || substr(mac, 1, 10))::ubigint) from asked""").fetchall()
        rows = database.execute(f"""
            select id, (select count(*) from read_parquet('{base}/sidecar/*/*.table', union_by_name = true)
                        where substr({kind}_id, 1, 32) = substr(mac, 1, 32)) from asked""").fetchall()
        return dict(index), dict(rows)


def check_sql(dataset, rows, gone):
    """The lookups of the format, after everything but the newest version was vacuumed."""
    for kind, column in (("record", 0), ("subject", 1)):
        left = [row[column] for record, row in rows.items() if record not in gone]
        some = sorted(set(left))[:40]
        lost = sorted({rows[record][column] for record in gone} - set(left))[:40]
        expected = {one: left.count(one) for one in some} | {one: 0 for one in lost}
        index, found = sql_counts(dataset, list(expected), kind)
        assert index == expected, f"DuckDB finds others in the index of {kind} ids"
        assert found == expected, f"DuckDB finds others in sidecars by {kind} ids"


def build(args, work, to, codec, order, seed, more=()):
    sources, dataset = work / "sources", work / "dataset"
    rows = make_sources(args, sources, seed)
    size = f"{max(args.rows // 20, 8)}KiB"
    index = {"tar": "dali,wids,energon", "tfrecord": "dali,tfindex"}.get(to) if codec == "none" else None
    index = "delta,hf" if to == "parquet" else index
    more = [*more, *(["--index", index] if index else [])]
    for k in range(SOURCES - 1):
        run(args, "convert", sources / f"s{k}.csv", "--out", dataset, "--id", "id", "--subject", "who", "--to", to,
            "--codec", codec, "--target-shard", size, *more)
    run(args, "compact", dataset, "--min-inputs", "2", "--target-shard", "4MiB", *order)
    run(args, "convert", sources / f"s{SOURCES - 1}.csv", "--out", dataset)
    return sources, dataset, rows


def check_clean(args, dataset, rows, gone, to, name=str):
    """Nobody of `gone` is anywhere, and everybody else is where they were; `name` tells how ids are exported."""
    needles = sorted({token(who) for record in gone for who in rows[record][:2]}) + [rows[record][3] for record in gone] + list(gone) + sorted({rows[record][1] for record in gone})
    left = holding(dataset, needles)
    assert not left, left
    others = sorted(set(rows) - set(gone))
    assert ids_in_shards(args, dataset, to) == others, "other programs read other records"
    newest = summary(args, "manifest", dataset)["version"]
    for version in range(1, newest + 1):
        found = exported(args, dataset, f"v{version}")
        held = min(version, SOURCES - 1) if version < SOURCES + 1 else SOURCES
        expected = sorted(name(record) for record in others if int(record[3]) < held)
        assert found == expected, f"v{version}: expected {len(expected)} records, found {len(found)}"
        run(args, "verify", dataset, "--read-data", "--at", f"v{version}")


def case(args, to, codec, order, seed, private=()):
    args.env = {**os.environ, "SHARDIFY_ID_KEY": KEY.hex()} if private else None
    name = token if "hmac" in private else str
    with tempfile.TemporaryDirectory(dir=args.tmp) as work:
        work = pathlib.Path(work)
        sources, dataset, rows = build(args, work, to, codec, order, seed, private)
        whom = ["PAT-0007", "PAT-0011"]
        one = next(record for record in rows if rows[record][1] not in whom)
        gone = {record for record, row in rows.items() if row[1] in whom}
        needle = [rows[record][3] for record in sorted(gone)[:3]]
        assert holding(dataset, needle), "the search does not find what is there"
        (work / "ids.txt").write_text("\n".join(whom))
        done = summary(args, "erase", dataset, "--ids", work / "ids.txt", "--all-versions", "--reason", "request 17",
                       "--receipt", work / "receipt.json")
        assert done["records_erased"] == len(gone), done
        receipt = json.loads((work / "receipt.json").read_text())
        assert receipt["records_erased"] == len(gone) and not any(who in json.dumps(receipt) for who in whom)
        check_clean(args, dataset, rows, gone, to, name)
        # A single record, which shares its subject with others: the subject stays.
        run(args, "erase", dataset, one, "--all-versions")
        assert not holding(dataset, [rows[one][3], one])
        gone.add(one)
        assert ids_in_shards(args, dataset, to) == sorted(set(rows) - gone)
        # Nobody comes back, whatever is converted again.
        before = summary(args, "manifest", dataset)["version"]
        again = summary(args, "convert", *sorted(sources.glob("*.csv")), "--out", dataset)
        assert again["version"] == before and again["sources_unchanged"] == SOURCES, again
        lost = [record for record in gone if record.startswith("rec0")]
        with open(work / "copy.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "who", "x", "note"])
            for record, row in rows.items():
                if record.startswith("rec0"):
                    # Others get new ids, for the index energon wants every id once.
                    writer.writerow(row if record in gone else ("again" + record, *row[1:]))
        copied = summary(args, "convert", work / "copy.csv", "--out", dataset, "--on-error", "quarantine")
        assert (copied["records_erased"], copied["records_out"]) == (len(lost), args.rows - len(lost)), copied
        assert not holding(dataset, [rows[record][3] for record in gone] + whom)
        # What follows works on.
        run(args, "compact", dataset, "--min-inputs", "2", *order)
        run(args, "vacuum", dataset, "--retain", "0", "--force")
        run(args, "verify", dataset, "--read-data")
        assert not holding(dataset, [rows[record][3] for record in gone] + whom)
        if private:
            # Nobody stands in what lies beside the shards, and SQL finds everybody who is left.
            some = sorted(rows)[:5] + sorted({row[1] for row in rows.values()})[:5]
            # What `energon` repeats of the names of members is no secret of the dataset.
            assert all(path.endswith(".parts.table") for path in holding(dataset / "_shardify", some))
            for record, row in list(rows.items()):
                if record.startswith("rec0") and record not in gone:
                    rows["again" + record] = ("again" + record, *row[1:])
            check_sql(dataset, rows, gone)
            args.env = None
            refused = subprocess.run([args.shardify, "erase", dataset, "PAT-0001"], capture_output=True, text=True)
            assert refused.returncode == 2 and "--id-key" in refused.stderr, refused
    print(f"{to} {codec} {' '.join([*order, *private])}: {len(gone)} of {len(rows)} records are gone and nobody else")


ODD = 'J"\u00f6/rg 7'
AS_JSON = ('J\\"\\u00f6\\/rg 7', 'J\\"\u00f6/rg 7')
AS_CSV = ODD.replace('"', '""')


def spelled(args, to, private=()):
    """One person with an odd name, and one whose id names sources."""
    args.env = {**os.environ, "SHARDIFY_ID_KEY": KEY.hex()} if private else None
    with tempfile.TemporaryDirectory(dir=args.tmp) as work:
        work = pathlib.Path(work)
        sources, dataset = work / "in", work / "dataset"
        sources.mkdir()
        (sources / "a.csv").write_text(
            f'id,who,n\na1,"{AS_CSV}",11\na2,PAT-0007,12\na3,PAT-0008,13\na4,"{AS_CSV}",14,too,many\na5,PAT-0008,15,too,many\n')
        (sources / "b.jsonl").write_text(
            f'{{"id": "b1", "who": "{AS_JSON[0]}", "n": 21}}\n{{"id": "b2", "who": "{AS_JSON[1]}", "n": \n'
            '{"id": "b3", "who": "PAT-0008", "n": 23}\n{"id": "b4", "who": "PAT-0008", "n": \n')
        (sources / "PAT-0007.csv").write_text("id,who,n\np1,PAT-0007,31\np2,PAT-0007,32\n")
        (sources / "visits of PAT-0007 and others.csv").write_text("id,who,n\nv1,PAT-0007,41\nv2,PAT-0008,42\n")
        convert = ["--out", dataset, "--id", "id", "--subject", "who", "--to", to, "--on-error", "quarantine", *private]
        for source in sorted(sources.iterdir()):
            run(args, "convert", source, *convert, code=3 if source.name[0] in "ab" else 0)
        run(args, "manifest", dataset, "--tag", "kept", "--at", "v2")
        run(args, "compact", dataset, "--min-inputs", "2")
        forms = [ODD, AS_CSV, *AS_JSON, json.dumps(ODD)[1:-1], json.dumps(ODD, ensure_ascii=False)[1:-1]]
        assert holding(dataset, forms), "the search does not find what is there"
        (work / "ids.txt").write_text(f"{ODD}\nPAT-0007\n")
        done = summary(args, "erase", dataset, "--ids", work / "ids.txt", "--all-versions")
        assert done["records_erased"] == 6, done
        left = holding(dataset, forms)
        assert not left, left
        redacted = "--redact-source-paths" in private
        kept = done["names_kept"]
        assert redacted or any("visits of PAT-0007" in name for name in kept), kept
        assert redacted or not any(name.endswith("PAT-0007.csv") for name in kept), kept
        # The one name that stays is that of a source with records of others.
        for path in dataset.rglob("*"):
            texts = texts_of(path) if path.is_file() else ()
            for text in texts:
                rest = text.replace(b"visits of PAT-0007 and others", b"")
                assert b"PAT-0007" not in rest, path
        assert ids_in_shards(args, dataset, to) == ["a3", "b3", "v2"]
        run(args, "verify", dataset, "--read-data", "--at", "kept")
        rejects = "".join(path.read_text() for path in (dataset / "_shardify" / "rejects").glob("*"))
        assert "a5" in rejects and "b4" in rejects, rejects
        # Other spellings.
        (sources / "later.csv").write_text('id,who,n\nl1, pat-0007,51\nl2,PAT-0007,52\nl3,"J""o\u0308/RG 7 ",53\nl4,PAT-0009,54\n')
        told = summary(args, "convert", sources / "later.csv", "--out", dataset, "--on-error", "quarantine")
        assert (told["records_erased"], told["records_similar"], told["records_out"]) == (1, 2, 3), told
        (sources / "again.csv").write_text('id,who,n\ng1, pat-0007,61\ng2,PAT-0007,62\ng3,"J""o\u0308/RG 7 ",63\ng4,PAT-0009,64\n')
        told = summary(args, "convert", sources / "again.csv", "--out", dataset, "--on-error", "quarantine", "--id-normalize")
        assert (told["records_erased"], told["records_out"]) == (3, 1), told
    print(f"{to} {' '.join(private)}: odd names, escapes and spellings")


def killed(args, to, seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=args.tmp) as work:
        work = pathlib.Path(work)
        _, dataset, rows = build(args, work, to, "none", [], seed)
        gone = {record for record, row in rows.items() if row[1] == "PAT-0003"}
        whole = work / "whole"
        shutil.copytree(dataset, whole)
        start = time.monotonic()
        run(args, "erase", whole, "PAT-0003", "--all-versions")
        took = time.monotonic() - start
        ends = {"before": 0, "after": 0}
        for _ in range(args.rounds):
            copy = work / "copy"
            shutil.copytree(dataset, copy)
            child = subprocess.Popen([args.shardify, "erase", copy, "PAT-0003", "--all-versions"],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0, took))
            child.send_signal(signal.SIGKILL)
            child.wait()
            version = summary(args, "manifest", copy)["version"]
            state = "before" if version == SOURCES + 1 else "after"
            ends[state] += 1
            others = sorted(set(rows) - gone)
            assert exported(args, copy) == (sorted(rows) if state == "before" else others)
            if state == "before":
                run(args, "verify", copy, "--read-data")
            run(args, "erase", copy, "PAT-0003", "--all-versions")
            # What was never committed belongs to nobody; vacuum deletes it.
            run(args, "vacuum", copy, "--retain", "7d")
            shutil.rmtree(copy / "_shardify" / "staging", ignore_errors=True)
            check_clean(args, copy, rows, gone, to)
            shutil.rmtree(copy)
    print(f"{to}: killed {ends['before']} times before the commit and {ends['after']} times after it")


def racing(args, to, seed):
    """Writers, a compactor and an eraser at once; whoever meets a conflict tries again."""
    with tempfile.TemporaryDirectory(dir=args.tmp) as work:
        work = pathlib.Path(work)
        _, dataset, rows = build(args, work, to, "none", [], seed)
        # Other notes than those of the first sources.
        rng = random.Random(f"racing {seed}")
        parts = []
        for number in range(8):
            part = work / f"part{number}.csv"
            with open(part, "w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["id", "who", "x", "note"])
                for i in range(args.rows // 4):
                    row = (f"more{number}x{i:06d}", f"PAT-{rng.randrange(SUBJECTS):04d}", i, f"note-{rng.getrandbits(96):024x}")
                    rows[row[0]] = row
                    writer.writerow(row)
            parts.append(part)
        conflicts = [0]

        def insist(*words):
            for _ in range(200):
                done = subprocess.run([args.shardify, *map(str, words)], capture_output=True, text=True, timeout=600)
                if done.returncode != 4:
                    return done
                conflicts[0] += 1
            raise Failure(f"{words}: conflicts without end")

        def write(mine):
            return [insist("convert", part, "--out", dataset) for part in mine]

        def erase(whom):
            return [insist("erase", dataset, who, "--all-versions") for who in whom]

        def compact():
            return [insist("compact", dataset, "--min-inputs", "2", "--target-shard", "4MiB") for _ in range(4)]

        whom = ["PAT-0003", "PAT-0005", "PAT-0008"]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            jobs = [pool.submit(write, parts[0::2]), pool.submit(write, parts[1::2]), pool.submit(erase, whom),
                    pool.submit(compact)]
            for done in [one for job in jobs for one in job.result()]:
                assert done.returncode == 0, done
        gone = {record for record, row in rows.items() if row[1] in whom}
        left = holding(dataset, [rows[record][3] for record in gone] + whom)
        assert not left, left
        assert exported(args, dataset) == sorted(set(rows) - gone)
        newest = summary(args, "manifest", dataset)["version"]
        for version in range(1, newest + 1):
            run(args, "verify", dataset, "--read-data", "--at", f"v{version}")
        run(args, "vacuum", dataset, "--retain", "0", "--force")
        run(args, "verify", dataset, "--read-data")
    print(f"{to}: {len(gone)} records erased while others wrote and compacted, {conflicts[0]} conflicts")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--rows", type=int, default=2000, help="rows of each source")
    parser.add_argument("--rounds", type=int, default=5, help="kills for each format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tmp", help="folder to work in")
    args = parser.parse_args()
    args.shardify = str(pathlib.Path(args.shardify).resolve())
    args.env = None
    cases = [("parquet", "zstd", []), ("parquet", "none", []), ("parquet", "zstd", ["--sort-by", "note"]),
             ("parquet", "snappy", ["--zorder", "x,who"]), ("tar", "none", []), ("tar", "gzip", []), ("tar", "zstd", []),
             ("tfrecord", "none", []), ("tfrecord", "gzip", [])]
    for number, (to, codec, order) in enumerate(cases):
        case(args, to, codec, order, args.seed + number)
    hidden = [("parquet", "zstd", "hmac"), ("tar", "none", "hmac"), ("tfrecord", "gzip", "hmac"), ("parquet", "none", "sealed"),
              ("tar", "zstd", "sealed"), ("tfrecord", "none", "sealed")]
    for number, (to, codec, mode) in enumerate(hidden):
        more = ("--redact-source-paths",) if number % 2 else ()
        case(args, to, codec, [], args.seed + number, ("--id-mode", mode, *more))
    for to in ("parquet", "tar", "tfrecord"):
        for mode in ("", "hmac", "sealed"):
            for redact in ((), ("--redact-source-paths",)) if mode else ((),):
                spelled(args, to, ("--id-mode", mode, *redact) if mode else ())
        killed(args, to, args.seed)
        racing(args, to, args.seed)
    print("nobody who was erased is left anywhere")


if __name__ == "__main__":
    finish(main)
