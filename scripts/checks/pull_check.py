#!/usr/bin/env python3
"""Pulls that are killed, that meet each other, that run out of space, or whose upstream changes: the copy is whole or not there.

Kinds of rounds, on a local folder or from S3 (moto):

- kill: a pull is killed at random moments until one ends; between two of them upstream may get another version. After each kill the
  copy has its version before, whole, or none. At the end it has the bytes of upstream's shards, and no file more than a fresh copy.
- erase: somebody is erased upstream between pulls that are killed. No file of the copy holds them after the next pull.
- pairs: two pulls into one folder at once. Each succeeds or reports a conflict, and the copy is whole.
- space: a pull into a file system that is full in the middle fails with exit code 5, and continues when there is space.
- flips: a bit of a random file of the upstream dataset is flipped. The pull names the file, and the copy has no version.
- parts: pulls of changing parts of a divided dataset (`--split`) into one folder are killed; upstream gets versions, is sorted, and somebody
  is erased. The copy has the shards and ids of the last part, what readers get from it is what they get from these folders upstream, and no
  file is left that a fresh copy has not.
- readers: pyarrow, webdataset and tfrecord read from a pulled copy (whole, and `--data-only`) what they read from the upstream dataset.

    python3 scripts/checks/pull_check.py --shardify target/release/shardify [--rounds 50] [--store local|s3] [--seed N]

Prints a line per kind and one per failure; exit code 1 if there was one. `--rounds` are kills, and a tenth of it rounds of the other kinds.
"""

import argparse
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

import harness
from harness import CONFLICT, FORMATS, NO, OK, STORAGE, Failure, expect, finish, forget_folders, not_run, rounds_of
from stores_check import bucket_of

FILES, ROWS = 8, 4000
# Files of a copy that are its own: log, lists, and what runs leave.
OWN = ("log", "lists", "locks", "staging", "pull.json")


def is_sign(path):
    """Whether it lies beside old shards for readers of the folder, and is no part of a version."""
    return path.name.startswith("READ-LIVE-SHARDS-ONLY")


def write_table(folder, number):
    folder.mkdir(exist_ok=True)
    with open(folder / f"{number:03}.csv", "w", encoding="utf-8") as out:
        out.write("id,who,value\n")
        for row in range(ROWS):
            out.write(f"{number}-{row},PAT-{row % 50},{(row * 7919) % 1000003} {'x' * (row % 60)}\n")


def files_of(folder):
    """Relative paths of files that have names, with their sizes."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file() and not is_sign(path)}


def is_own(path):
    return path.startswith("_shardify/") and path.split("/")[1] in OWN


def shared(folder):
    """The files that a copy has of its upstream."""
    return {path: size for path, size in files_of(folder).items() if not is_own(path)}


class Rounds:
    def __init__(self, shardify, root, bucket, rng):
        self.shardify, self.root, self.bucket, self.rng = shardify, root, bucket, rng
        self.count = self.kills = 0

    def fresh(self, name):
        self.count += 1
        return self.root / f"{name}{self.count}"

    def upstream(self, form, *more):
        """A dataset of several runs, and its folder of tables."""
        tables = self.fresh("raw")
        name = self.fresh("upstream")
        dataset = f"{self.bucket.root}/{name.name}" if self.bucket else str(name)
        for number in range(FILES):
            write_table(tables, number)
            self.convert(tables, dataset, form, *more)
        return dataset, tables

    def convert(self, tables, dataset, form, *more):
        options = ["--id", "id", "--subject", "who", "--to", form, "--target-shard", "64KiB", *more]
        self.shardify.ok("convert", tables, "--out", dataset, *options)

    def start(self, *arguments):
        command = self.shardify.command(*arguments)
        return subprocess.Popen(command, env=self.shardify.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def shards(self, dataset):
        listed = [one for one in self.shardify.ok("manifest", dataset, "--list") if one["type"] == "shard"]
        return sorted((one["path"], one["blake3"], one["records"], one["first_record"]) for one in listed)

    def same(self, upstream, copy):
        """The copy is whole, has upstream's records at upstream's places, and no file that a fresh copy has not."""
        self.shardify.ok("verify", copy, "--read-data")
        expect("shards", self.shards(copy), self.shards(upstream))
        expect("ids", self.shardify.ids(copy), self.shardify.ids(upstream))
        hits = [one for one in self.shardify.ok("manifest", copy, "--find", "PAT-7") if one["type"] == "hit"]
        expect("subject's records", len(hits), len([1 for one in self.shardify.ok("manifest", upstream, "--find", "PAT-7") if one["type"] == "hit"]))

    def check_killed(self, copy):
        """What a killed pull leaves: no version, or a whole one."""
        log = copy / "_shardify" / "log"
        if log.is_dir() and any(log.iterdir()):
            self.shardify.ok("verify", copy, "--read-data")

    def kill(self, form):
        """One copy, killed `kills` times; returns their number."""
        upstream, tables = self.upstream(form)
        whole, started = self.fresh("copy"), time.monotonic()
        self.shardify.ok("pull", upstream, whole)
        seconds = time.monotonic() - started
        shutil.rmtree(whole)
        copy, kills = self.fresh("copy"), 0
        for attempt in range(10):
            process = self.start("pull", upstream, copy, *(["--prune"] if attempt % 3 == 2 else []))
            try:
                process.wait(timeout=self.rng.uniform(0, seconds))
                expect(f"exit code of a pull ({process.stderr.read()})", process.returncode, OK)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
            self.check_killed(copy)
            if attempt in (3, 6):
                write_table(tables, FILES + attempt)
                self.convert(tables, upstream, form)
            if attempt == 7:
                self.shardify.ok("compact", upstream)
        self.shardify.ok("pull", upstream, copy, "--prune")
        self.same(upstream, copy)
        again = self.shardify.ok("pull", upstream, copy)[-1]
        expect("a pull of the same version", again["unchanged"], True)
        whole = self.fresh("copy")
        self.shardify.ok("pull", upstream, whole)
        expect("files", shared(copy), shared(whole))
        self.kills += kills
        return copy, whole, tables

    def erase(self, form):
        """Somebody is erased upstream between pulls that are killed: nothing of them is left, in files with or without a name."""
        upstream, tables = self.upstream(form)
        copy, started = self.fresh("copy"), time.monotonic()
        self.shardify.ok("pull", upstream, copy)
        seconds = time.monotonic() - started
        write_table(tables, FILES)
        self.convert(tables, upstream, form)
        self.shardify.ok("compact", upstream)
        for erased in (False, True):
            for _ in range(4):
                process = self.start("pull", upstream, copy)
                try:
                    process.wait(timeout=self.rng.uniform(0, seconds))
                except subprocess.TimeoutExpired:
                    process.kill()
                process.communicate()
                self.check_killed(copy)
            if not erased:
                self.shardify.ok("erase", upstream, "--subject", "PAT-7", "--all-versions", "--reason", "request")
        self.shardify.ok("pull", upstream, copy)
        self.shardify.ok("verify", copy, "--read-data")
        expect("shards", self.shards(copy), self.shards(upstream))
        code, _, _ = self.shardify.run("manifest", copy, "--find", "PAT-7")
        expect("exit code of a search for the subject", code, NO)
        files = [path for path in copy.rglob("*") if path.is_file()]
        expect("files that hold the subject", [str(path) for path in files if b"PAT-7" in path.read_bytes()], [])
        whole = self.fresh("copy")
        self.shardify.ok("pull", upstream, whole)
        expect("files", shared(copy), shared(whole))
        return copy, whole, tables

    def pairs(self, form):
        upstream, tables = self.upstream(form)
        copy = self.fresh("copy")
        processes = [self.start("pull", upstream, copy) for _ in range(2)]
        said = [process.communicate(timeout=300) for process in processes]
        codes = [process.returncode for process in processes]
        if OK not in codes or not set(codes) <= {OK, CONFLICT}:
            raise Failure(f"pulls ended with {codes}: {said}")
        self.same(upstream, copy)
        expect("versions", self.shardify.versions(copy), [1])
        return copy, tables

    def space(self, form):
        upstream, tables = self.upstream(form)
        copy = self.fresh("copy")
        copy.mkdir()
        size = self.rng.choice([200, 400, 600])
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", copy], capture_output=True)
        if done.returncode:
            return not_run("a full file system", "mounting one is not permitted")
        try:
            code, _, said = self.shardify.run("pull", upstream, copy)
            expect(f"exit code on a file system of {size} KiB ({said})", code, STORAGE)
            if "space" not in said:
                raise Failure(f"the error does not say that the space is used up: {said}")
            self.check_killed(copy)
            before = len([path for path in files_of(copy) if not is_own(path)])
            subprocess.run(["mount", "-o", "remount,size=64m", copy], check=True)
            report = self.shardify.ok("pull", upstream, copy)[-1]
            expect("files kept", report["files_kept"], before)
            self.same(upstream, copy)
        finally:
            subprocess.run(["umount", copy], check=True)
        return copy, tables

    def flips(self, form):
        if self.bucket:
            return None
        upstream, tables = self.upstream(form)
        self.shardify.ok("compact", upstream)
        root, whole = pathlib.Path(upstream), self.fresh("copy")
        self.shardify.ok("pull", upstream, whole)
        named = sorted(shared(whole))
        for _ in range(10):
            path = self.rng.choice(named)
            sound = (root / path).read_bytes()
            damaged = bytearray(sound)
            damaged[self.rng.randrange(len(sound))] ^= 1 << self.rng.randrange(8)
            (root / path).write_bytes(damaged)
            copy = self.fresh("copy")
            code, _, said = self.shardify.run("pull", upstream, copy)
            expect(f"exit code with a flipped bit in {path} ({said})", code, STORAGE)
            if path not in said:
                raise Failure(f"the error does not name {path}: {said}")
            if (copy / "_shardify" / "log").exists():
                raise Failure(f"the copy has a version, although {path} is damaged")
            (root / path).write_bytes(sound)
            self.shardify.ok("pull", upstream, copy)
            self.same(upstream, copy)
            shutil.rmtree(copy)
        return whole, tables

    def parts(self, form):
        """Parts of a divided dataset, pulled into one folder and killed."""
        upstream, tables = self.upstream(form, "--split", "train=0.5,val=0.3,test=0.2")
        copy, started = self.fresh("copy"), time.monotonic()
        self.shardify.ok("pull", upstream, copy)
        seconds = time.monotonic() - started
        shutil.rmtree(copy)
        for attempt in range(10):
            chosen = self.rng.sample(("train", "val", "test"), self.rng.randrange(1, 4))
            process = self.start("pull", upstream, copy, "--split", ",".join(chosen), *(["--prune"] if attempt % 4 == 3 else []))
            try:
                process.wait(timeout=self.rng.uniform(0, seconds))
                expect(f"exit code of a pull ({process.stderr.read()})", process.returncode, OK)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self.kills += 1
            self.check_killed(copy)
            if attempt in (3, 5):
                write_table(tables, FILES + attempt)
                self.convert(tables, upstream, form)
            if attempt == 6 and form == "parquet":
                self.shardify.ok("compact", upstream, "--sort-by", "value")
            if attempt == 8:
                self.shardify.ok("erase", upstream, "--subject", "PAT-7", "--all-versions", "--reason", "request")
        for chosen in (self.rng.sample(("train", "val", "test"), 2), ["test"]):
            self.shardify.ok("pull", upstream, copy, "--split", ",".join(chosen), "--prune")
            self.part(upstream, copy, chosen, form)
            again = self.shardify.ok("pull", upstream, copy, "--split", ",".join(chosen))[-1]
            expect("a pull of the same part", again["unchanged"], True)
            fresh = self.fresh("copy")
            self.shardify.ok("pull", upstream, fresh, "--split", ",".join(chosen))
            expect("files", shared(copy), shared(fresh))
            shutil.rmtree(fresh)
        self.shardify.ok("pull", upstream, copy, "--prune")
        expect("shards", self.shards(copy), self.shards(upstream))
        self.shardify.ok("verify", copy, "--read-data")
        return copy, tables

    def part(self, upstream, copy, chosen, form):
        """The copy is whole, and has the shards and ids of these parts alone."""
        self.shardify.ok("verify", copy, "--read-data")
        folders = tuple(f"/split={name}/" for name in chosen)
        expect("shards", self.shards(copy), [one for one in self.shards(upstream) if any(folder in one[0] for folder in folders)])
        if not self.bucket:
            live = [pathlib.Path(upstream) / one[0] for one in self.shards(upstream) if any(folder in one[0] for folder in folders)]
            expect("records that readers get", read(copy, form) == read_shards(live, form), True)
        for number in range(50):
            found = [self.shardify.run("manifest", one, "--find", f"PAT-{number}") for one in (upstream, copy)]
            hits = [[one for one in said if one["type"] == "hit" and any(folder in one["shard"] for folder in folders)] for _, said, _ in found]
            expect(f"records of PAT-{number}", len(hits[1]), len(hits[0]))
            expect(f"exit code of a search for PAT-{number}", found[1][0], OK if hits[0] else NO)

    def readers(self, form):
        if self.bucket:
            return None
        upstream, _ = self.upstream(form)
        copy, data = self.fresh("copy"), self.fresh("data")
        self.shardify.ok("pull", upstream, copy)
        self.shardify.ok("pull", upstream, data, "--data-only")
        expected = read(pathlib.Path(upstream), form)
        expect("records", len(expected), FILES * ROWS)
        expect("records that readers get from the copy", read(copy, form) == expected, True)
        expect("records that readers get from the data", read(data, form) == expected, True)
        return copy, data

    def all(self, rounds):
        others = max(1, rounds // 10)
        plan = [(self.kill, (rounds + 8) // 9), (self.erase, others), (self.pairs, others), (self.space, others), (self.flips, others), (self.parts, others), (self.readers, 3)]
        forms = [(form,) for form in FORMATS]
        return rounds_of(plan, forms, forget_folders, lambda kind: f", {self.kills} pulls killed" if kind == self.kill else "")


def read(folder, form):
    """All records of the shards in a folder, as other programs read them, sorted."""
    files = (path for path in folder.rglob("*") if path.is_file() and "_shardify" not in path.parts and not is_sign(path))
    return read_shards(sorted(files), form)


def read_shards(paths, form):
    """All records of some shards, as other programs read them, sorted."""
    if form == "parquet":
        import pyarrow.parquet as pq

        return sorted(repr(row) for path in paths if path.suffix == ".parquet" for row in pq.read_table(path).to_pylist())
    if form == "tar":
        import webdataset

        urls = [str(path) for path in paths if path.suffix == ".tar"]
        return sorted((sample["__key__"], sample["json"]) for sample in webdataset.WebDataset(urls, shardshuffle=False))
    from tfrecord.reader import tfrecord_loader

    found = []
    for path in paths:
        if path.suffix == ".tfrecord":
            found += [repr(sorted((name, bytes(value) if hasattr(value, "tobytes") else value) for name, value in one.items())) for one in tfrecord_loader(str(path), None)]
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--rounds", type=int, default=50, help="kills")
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        with bucket_of(options.store) as bucket:
            shardify = harness.Shardify(options.shardify, bucket and bucket.settings)
            return 1 if Rounds(shardify, root, bucket, rng).all(options.rounds) else 0


if __name__ == "__main__":
    finish(main)
