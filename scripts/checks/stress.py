#!/usr/bin/env python3
"""Eight writers, a compaction, an eraser, a vacuum and a reader on one dataset: nothing is lost, doubled or brought back.

Writers convert one small table after the other and remember what was acknowledged. Meanwhile one process compacts to sizes
that change, one erases somebody from all versions, one vacuums with a retention of seconds, and one reads: it opens a snapshot, reads every file of it with other
people's readers, and looks for each record that was acknowledged before. In the end every acknowledged record has to be
there once, in the shards and in `manifest --export`, and `verify --read-data` has to agree.

With `--kills`, some of all these runs are killed at a random moment and started again. With `--store s3` all of it happens on
moto, which only this machine can reach.

    python3 scripts/checks/stress.py --shardify target/release/shardify --rounds 10 [--formats tar parquet] [--seed N]
        [--kills 0.2] [--store s3]

A round is a conversion of each writer; the others work as long as the writers do. Prints a line per format, then
`N passed, N failed`; exit code 1 if one failed. Needs pyarrow and, for tfrecord, the package of that name.
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

from harness import Failure, finish
from stores_check import S3, Server, free_port

ATOMIC_MOTO = pathlib.Path(__file__).with_name("atomic_moto.py")
WRITERS = 8
IDS = ("--id", "id", "--subject", "who")
MOST_ROWS = 60
CONFLICT = 4
# A conflict is an answer; this many in a row are none.
ATTEMPTS = 20
# How much earlier than the retention ends a reader must be done, for what it finds missing to count.
MARGIN = 1.0
# Seconds between the rounds of those that have little to do.
PAUSE = 0.2


def tar_ids(path):
    with tarfile.open(path) as archive:
        return [json.load(archive.extractfile(member))["id"] for member in archive if member.isfile()]


def parquet_ids(path):
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path, columns=["id"])["id"].to_pylist()


def tfrecord_ids(path):
    from tfrecord.reader import tfrecord_loader

    loader = tfrecord_loader(str(path), None, {"id": "byte"})
    return [bytes(record["id"]).decode() for record in loader]


READERS = {"tar": tar_ids, "parquet": parquet_ids, "tfrecord": tfrecord_ids}


class Stress:
    """One dataset and everybody who works on it."""

    def __init__(self, binary, root, form, options):
        self.binary, self.root, self.form, self.options = binary, root, form, options
        self.store = options.s3
        self.dataset = f"{self.store.root}/{root.name}" if self.store else root / "dataset"
        self.environment = {**os.environ, **(self.store.settings if self.store else {})}
        # Ids by whom they are about; who is being erased may be there or not.
        self.acknowledged, self.people, self.erasing = set(), {}, set()
        self.failures = []
        self.counts = collections.Counter()
        self.lock = threading.Lock()
        self.writing = threading.Event()
        self.writing.set()

    def run(self, *arguments, expect=(0,)):
        """Runs a command; returns its exit code and the objects that it printed."""
        command = [self.binary, *map(str, arguments), "--json", "--progress", "never", "--jobs", "2"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=self.environment)
        if done.returncode not in expect:
            raise Failure(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []

    def until_done(self, name, *arguments):
        """Runs a command until it meets no conflict."""
        for _ in range(ATTEMPTS):
            if random.random() < self.options.kills:
                self.killed(*arguments)
            code, objects = self.run(*arguments, expect=(0, CONFLICT))
            if code == 0:
                return objects
            self.count(f"{name} conflicts")
        raise Failure(f"{name} met {ATTEMPTS} conflicts in a row")

    def killed(self, *arguments):
        """Starts a command and kills it, unless it is faster."""
        command = [self.binary, *map(str, arguments), "--json", "--progress", "never", "--jobs", "2"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment)
        try:
            process.wait(timeout=random.uniform(0, 0.4))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.count("kills")

    def count(self, what, by=1):
        with self.lock:
            self.counts[what] += by

    def writer(self, number):
        rng = random.Random(f"{self.options.seed}-{number}")
        for turn in range(self.options.rounds):
            ids = [f"w{number}-{turn}-{row}" for row in range(rng.randrange(1, MOST_ROWS))]
            source = self.root / f"w{number}-{turn}.csv"
            with open(source, "w", encoding="utf-8", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(["id", "who", "value"])
                rows.writerows((name, f"P-{number}-{turn}", rng.randrange(10**9)) for name in ids)
            self.until_done("convert", "convert", source, "--out", self.dataset, "--to", self.form, *IDS)
            with self.lock:
                self.acknowledged.update(ids)
                self.people[f"P-{number}-{turn}"] = ids
            source.unlink()
            self.count("conversions")

    def compactor(self):
        rng = random.Random(f"{self.options.seed}-compact")
        while self.writing.is_set():
            target = rng.choice([20_000, 100_000, 1_000_000])
            arguments = ["compact", self.dataset, "--target-shard", target, "--min-inputs", rng.choice([2, 5])]
            summary = self.until_done("compact", *arguments)[-1]
            self.count("shards merged", summary["shards_removed"])
            self.count("merges dropped", summary["groups_dropped"])
            self.count("compactions")
            time.sleep(PAUSE)

    def vacuumer(self):
        while self.writing.is_set():
            arguments = ["vacuum", self.dataset, "--retain", f"{self.options.retain}s", "--force"]
            summary = self.until_done("vacuum", *arguments)[-1]
            self.count("objects vacuumed", summary["objects_deleted"])
            self.count("vacuums")
            time.sleep(PAUSE)

    def eraser(self):
        rng = random.Random(f"{self.options.seed}-erase")
        while self.writing.is_set():
            with self.lock:
                people = sorted(self.people)
                who = rng.choice(people) if people else None
                ids = self.people.pop(who, [])
                self.acknowledged.difference_update(ids)
                self.erasing.update(ids)
            if who:
                self.until_done("erase", "erase", self.dataset, who, "--all-versions")
                self.count("people erased")
            time.sleep(PAUSE)

    def reader(self):
        while self.writing.is_set():
            with self.lock:
                expected = set(self.acknowledged)
                erased = len(self.erasing)
            opened = time.monotonic()
            _, listed = self.run("manifest", self.dataset, "--list")
            try:
                with self.lock:
                    settled = erased == len(self.erasing)
                self.check(listed, expected if settled else set(), exactly=False)
            except FileNotFoundError as missing:
                with self.lock:
                    # An erasure waits for nobody.
                    settled = erased == len(self.erasing) and not erased
                if settled and time.monotonic() - opened < self.options.retain - MARGIN:
                    raise Failure(f"a reader misses {missing.filename}") from missing
                self.count("readers too slow")
            with self.lock:
                expected &= self.acknowledged
            if expected:
                name = random.choice(sorted(expected))
                hits = [o for o in self.run("manifest", self.dataset, "--find", name)[1] if o["type"] == "hit"]
                with self.lock:
                    expected &= self.acknowledged
                if name in expected and (len(hits) != 1 or hits[0]["state"] != "live"):
                    raise Failure(f"expected one live hit for {name}, found {hits}")
            self.count("snapshots read")

    def check(self, listed, expected, exactly):
        """All records of a snapshot are there, once, and those that were acknowledged among them."""
        found = collections.Counter()
        for shard in (entry for entry in listed if entry["type"] == "shard"):
            ids = READERS[self.form](self.fetched(shard["path"]))
            if len(ids) != shard["records"]:
                raise Failure(f"expected {shard['records']} records in {shard['path']}, found {len(ids)}")
            found.update(ids)
        self.compare(found, expected, exactly)

    def fetched(self, path):
        """A shard as a local file."""
        if not self.store:
            return self.dataset / path
        try:
            content = self.store.get(f"{self.root.name}/{path}")
        except self.store.client.exceptions.NoSuchKey as missing:
            raise FileNotFoundError(2, "no such object", path) from missing
        file = self.root / path.replace("/", "-")
        file.write_bytes(content)
        return file

    def compare(self, found, expected, exactly):
        doubled = [name for name, times in found.items() if times > 1]
        lost = expected - found.keys()
        invented = found.keys() - expected if exactly else []
        if doubled or lost or invented:
            raise Failure(f"lost {sorted(lost)[:5]}, doubled {sorted(doubled)[:5]}, invented {sorted(invented)[:5]}")

    def guarded(self, work, *arguments):
        try:
            work(*arguments)
        except Exception as failure:  # pylint: disable=broad-except
            # A command that was stopped has printed to standard error what it was doing: as bytes, even where text was asked for.
            told = getattr(failure, "stderr", None) or ""
            told = (told.decode(errors="replace") if isinstance(told, bytes) else told)[-4000:]
            with self.lock:
                self.failures.append(f"{work.__name__}: {failure} {told}".rstrip())

    def all(self):
        """Lets everybody work, then looks at what is there."""
        first = self.root / "first.csv"
        first.write_text("id,who,value\nfirst,nobody,1\n", encoding="utf-8")
        self.run("convert", first, "--out", self.dataset, "--to", self.form, *IDS)
        self.acknowledged.add("first")
        start = lambda work, *a: threading.Thread(target=self.guarded, args=(work, *a))
        writers = [start(self.writer, number) for number in range(WRITERS)]
        others = [start(work) for work in (self.compactor, self.vacuumer, self.eraser, self.reader)]
        for thread in [*writers, *others]:
            thread.start()
        for thread in writers:
            thread.join()
        self.writing.clear()
        for thread in others:
            thread.join()
        self.guarded(self.end)

    def end(self):
        self.run("compact", self.dataset, "--min-inputs", 2)
        time.sleep(0.1)
        self.run("vacuum", self.dataset, "--retain", "0s", "--force")
        self.check(self.run("manifest", self.dataset, "--list")[1], self.acknowledged, exactly=True)
        command = [self.binary, "manifest", str(self.dataset), "--export", "csv"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600, env=self.environment)
        exported = collections.Counter(row["record_id"] for row in csv.DictReader(done.stdout.splitlines()))
        self.compare(exported, self.acknowledged, exactly=True)
        self.run("verify", self.dataset, "--read-data")
        staged = [] if self.store else list((self.dataset / "_shardify" / "staging").glob("*"))
        if staged:
            raise Failure(f"expected an empty staging folder, found {len(staged)} files")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--retain", type=int, default=5, help="seconds")
    parser.add_argument("--formats", nargs="+", default=list(READERS), choices=list(READERS))
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--kills", type=float, default=0.0, help="share of runs that are killed first")
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    options = parser.parse_args()
    if options.store == "local":
        return everything(options, None)
    port = free_port()
    with Server([sys.executable, str(ATOMIC_MOTO), "-H", "127.0.0.1", "-p", str(port)], port):
        return everything(options, S3(port))


def everything(options, s3):
    """All formats, one after the other."""
    options.s3 = s3
    print(f"seed {options.seed}", flush=True)
    failed = 0
    for form in options.formats:
        root = pathlib.Path(tempfile.mkdtemp(prefix="stress-"))
        stress = Stress(str(pathlib.Path(options.shardify).resolve()), root, form, options)
        started = time.monotonic()
        stress.all()
        counts = ", ".join(f"{number} {what}" for what, number in sorted(stress.counts.items()))
        print(f"{form}: {len(stress.acknowledged)} records, {counts}, {time.monotonic() - started:.0f} s", flush=True)
        for failure in stress.failures:
            print(f"  FAILED {failure}", flush=True)
        failed += bool(stress.failures)
        if not stress.failures:
            shutil.rmtree(root)
        else:
            print(f"  kept {root}", flush=True)
    print(f"{len(options.formats) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    finish(main)
