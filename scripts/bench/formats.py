#!/usr/bin/env python3
"""Times conversions of dumps and tables of other tools beside the stock reader of each format.

    python3 scripts/bench/formats.py --shardify target/release/shardify [--only avro,warc] [--reps 5]

A stock reader only reads: every record is decoded and dropped. shardify reads and writes shards, with its log, checksums and id index.
Each pair runs in turn, on warm files, one fresh process a run; the ratio is that of medians, and `user` is processor time. Two more pairs
compare shardify with itself: a zip archive with its unpacked files, and a table of pyarrow, which is in memory, with Parquet of its rows.

Peers: pip install fastavro fastwarc warcio openpyxl pyarrow
"""

import argparse
import io
import json
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

AVRO = """
import fastavro, sys
with open(sys.argv[1], "rb") as file:
    print(sum(1 for _ in fastavro.reader(file)))
"""
WARC = """
import sys
from fastwarc.warc import ArchiveIterator
count = 0
for record in ArchiveIterator(open(sys.argv[1], "rb"), parse_http=True):
    record.reader.read()
    count += 1
print(count)
"""
EXCEL = """
import openpyxl, sys
sheet = openpyxl.load_workbook(sys.argv[1], read_only=True).worksheets[0]
print(sum(1 for _ in sheet.iter_rows(values_only=True)) - 1)
"""
STREAM = """
import json, pyarrow.parquet as pq, resource, shardify, sys, time
table = pq.read_table(sys.argv[1])
used = lambda: sum(getattr(resource.getrusage(whom), of) for whom in (-1, 0) for of in ("ru_utime", "ru_stime"))
began, before = time.perf_counter(), used()
report = shardify.convert(table, name="rows", out=sys.argv[2])
print(json.dumps([time.perf_counter() - began, used() - before, report.records_out]))
"""


def make_avro(path):
    import fastavro

    kinds = [("id", "long"), ("name", "string"), ("score", "double"), ("active", "boolean"), ("note", ["null", "string"])]
    schema = fastavro.parse_schema({"type": "record", "name": "Row", "fields": [{"name": n, "type": t} for n, t in kinds]})
    draw = random.Random(1)
    rows = (
        {"id": n, "name": f"name-{draw.randrange(10**6)}", "score": draw.random(), "active": n % 3 == 0,
         "note": None if n % 5 else "a note of some words " * draw.randrange(1, 5)}
        for n in range(1_000_000)
    )  # fmt: skip
    with open(path, "wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate")


def make_warc(path):
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    draw = random.Random(2)
    words = [bytes(draw.choices(b"abcdefghijklmnopqrstuvwxyz", k=draw.randrange(2, 12))) for _ in range(5000)]
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True)
        for n in range(12_000):
            body = b"<html><body>" + b" ".join(draw.choices(words, k=draw.randrange(500, 5000))) + b"</body></html>"
            headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html"), ("Content-Length", str(len(body)))], protocol="HTTP/1.1")
            uri = f"https://example.org/{n}"
            writer.write_record(writer.create_warc_record(uri, "response", payload=io.BytesIO(body), http_headers=headers))


def make_excel(path):
    import datetime

    import openpyxl

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("rows")
    sheet.append(["id", "name", "score", "day", "flag"])
    draw = random.Random(3)
    for n in range(150_000):
        day = datetime.datetime(2020, 1, 1) + datetime.timedelta(days=draw.randrange(2000))
        sheet.append([n, f"name-{draw.randrange(10**5)}", draw.random(), day, n % 2 == 0])
    book.save(path)


def make_tree(folder):
    draw = random.Random(4)
    for n in range(100_000):
        file = folder / f"{n // 1000:03}" / f"{n:06}.txt"
        if n % 1000 == 0:
            file.parent.mkdir(parents=True)
        file.write_bytes(draw.randbytes(draw.randrange(500, 4000)))


def make_zip(folder, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(folder.rglob("*.txt")):
            archive.write(file, file.relative_to(folder))


def make_parquet(path):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(5)
    rows = 4_000_000
    names = pa.array([f"name-{n}" for n in range(50_000)]).take(pa.array(draw.integers(0, 50_000, rows)))
    table = pa.table({"id": np.arange(rows), "name": names, "a": draw.random(rows), "b": draw.integers(0, 1000, rows)})
    pq.write_table(table, path)


def timed(command, environment):
    """Seconds and processor seconds of a command, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise SystemExit(f"{command[:4]}: exit {ran.returncode}: {ran.stderr[-600:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ran.stdout


class Pairs:
    def __init__(self, options, folder):
        self.program, self.reps, self.folder = options.shardify.resolve(), options.reps, folder
        package = pathlib.Path(__file__).resolve().parents[2] / "python"
        self.environment = {**os.environ, "SHARDIFY_BINARY": str(self.program), "PYTHONPATH": str(package)}

    def convert(self, source, *more):
        """A function that converts into a new dataset, and says how many records that gave."""

        def run():
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            command = [self.program, "convert", source, "--out", self.folder / "out", "--json", *more]
            seconds, user, out = timed(command, self.environment)
            return seconds, user, json.loads(out.splitlines()[-1])["records_out"]

        return run

    def python(self, code, *arguments):
        """A function that runs code, which prints how many records it read, or its own times and the number."""

        def run():
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            seconds, user, out = timed([sys.executable, "-c", code, *arguments], self.environment)
            printed = json.loads(out.splitlines()[-1])
            return printed if isinstance(printed, list) else (seconds, user, printed)

        return run

    def compare(self, name, wanted, own, peer):
        """Runs both in turn and prints how many times as fast ours is."""
        ours, others = [], []
        own(), peer()
        for _ in range(self.reps):
            ours.append(own())
            others.append(peer())
        counts = {run[2] for run in ours + others}
        if len(counts) != 1:
            raise SystemExit(f"{name}: numbers of records differ: {counts}")
        medians = [[statistics.median(run[n] for run in runs) for n in (0, 1)] for runs in (ours, others)]
        (seconds, user), (peer_seconds, peer_user) = medians
        print(
            f"| {name} | {counts.pop():,} | {seconds:.2f} s ({user:.2f}) | {peer_seconds:.2f} s ({peer_user:.2f}) "
            f"| {peer_seconds / seconds:.2f} | {wanted} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", type=pathlib.Path, default="target/release/shardify")
    parser.add_argument("--only", default="avro,warc,excel,zip,stream")
    parser.add_argument("--reps", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        pairs = Pairs(options, folder)
        print("| input | records | shardify (processor) | stock reader (processor) | times as fast | wanted |\n|---|---|---|---|---|---|")
        for kind in options.only.split(","):
            source = folder / {"avro": "a.avro", "warc": "a.warc.gz", "excel": "a.xlsx", "zip": "a.zip", "stream": "a.parquet"}[kind]
            if kind == "avro":
                make_avro(source)
                pairs.compare("Avro, fastavro", 5, pairs.convert(source), pairs.python(AVRO, source))
            elif kind == "warc":
                make_warc(source)
                pairs.compare("WARC, fastwarc", 3, pairs.convert(source), pairs.python(WARC, source))
            elif kind == "excel":
                make_excel(source)
                pairs.compare("Excel, openpyxl read-only", 3, pairs.convert(source), pairs.python(EXCEL, source))
            elif kind == "zip":
                make_tree(folder / "tree")
                make_zip(folder / "tree", source)
                pairs.compare("zip, the same files unpacked", 0.8, pairs.convert(source), pairs.convert(folder / "tree"))
            elif kind == "stream":
                make_parquet(source)
                stream = pairs.python(STREAM, source, folder / "out")
                pairs.compare("Arrow stream, Parquet of the same rows", 0.87, stream, pairs.convert(source))


if __name__ == "__main__":
    main()
