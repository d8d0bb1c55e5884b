#!/usr/bin/env python3
"""What many small commits cost: bytes of the log and the index, requests, time, and what `vacuum` leaves.

Makes as many commits of ten rows with ids and subjects, serves the dataset through an S3 server whose answers take 30 ms, and counts
what `find`, one more `convert`, `erase`, `verify`, `history` and `compact` ask it for, beside the same after ten commits. Then a vacuum
deletes what no version needs: the log has to say the same of every version as before, a version with a tag has to stay readable,
once its tag is gone nothing of it may be left, and every record has to be found throughout.

    python3 scripts/checks/growth_check.py --shardify target/release/shardify [--commits 10000] [--delay 0.03]

Fails where a limit is exceeded that does not depend on the machine; times are printed alone. Needs nothing but Python.
"""

import argparse
import pathlib
import shutil
import tempfile
import time

from harness import Failure, Shardify, expect, finish, run
from slow_store import SlowStore

ROWS, FEW, SUBJECTS = 10, 10, 5_000
# Bytes that a commit may write beside its shard and its sidecar.
BYTES_OF_COMMIT = 24 << 10
# Bytes of log, lists and index for each version after a vacuum.
BYTES_OF_VERSION = 1_500


class Growing:
    """A dataset that grows by ten rows at a time."""

    def __init__(self, binary, work, name):
        self.shardify, self.inputs, self.path = Shardify(binary), work / f"{name}-in", work / name
        self.commits = 0

    def grow(self, commits):
        for _ in range(commits):
            shutil.rmtree(self.inputs, ignore_errors=True)
            self.inputs.mkdir()
            first = self.commits * ROWS
            rows = [f"REC-{n:07},PAT-{n * 7 % SUBJECTS:05},{n}.5" for n in range(first, first + ROWS)]
            (self.inputs / f"f{self.commits:06}.csv").write_text("id,patient,value\n" + "\n".join(rows) + "\n")
            self.shardify.ok("convert", self.inputs, "--out", self.path, "--id", "id", "--subject", "patient")
            self.commits += 1

    def bytes(self):
        """Bytes of the log, of its lists and of the id index."""
        system = self.path / "_shardify"
        folders = ("log", "lists", "index")
        return {name: sum(file.stat().st_size for file in (system / name).rglob("*") if file.is_file()) for name in folders}

    def history(self):
        return [
            {key: value for key, value in entry.items() if key not in ("readable", "tags")}
            for entry in self.shardify.ok("manifest", self.path, "--history")
            if entry["type"] == "version"
        ]


def asked(binary, served, *words, codes=(0,)):
    """Runs a command on the served dataset; returns the requests that it made."""
    served.take()
    begun = time.monotonic()
    run(binary, *words, codes=codes, environment=served.environment())
    seconds, counts = time.monotonic() - begun, served.take()
    size = counts.pop("bytes", 0)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"  {words[0]:9} {sum(counts.values()):6} requests {seconds:7.2f} s {size / 1024:9.0f} KiB   {kinds}", flush=True)
    return sum(counts.values())


def requests(binary, work, growing, delay):
    """What commands ask a store for, by name."""
    root = work / "served"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(growing.path, root / "ds")
    served = SlowStore(root, delay)
    one = work / "one"
    one.mkdir(exist_ok=True)
    (one / "one.csv").write_text("id,patient,value\nREC-ONE,PAT-ONE,1.5\n")
    print(f"{growing.commits} commits:", flush=True)
    dataset, last = "s3://bucket/ds", f"REC-{growing.commits * ROWS - 1:07}"
    return {
        "find": asked(binary, served, "manifest", dataset, "--find", last),
        "absent": asked(binary, served, "manifest", dataset, "--find", "nobody", codes=(1,)),
        "convert": asked(binary, served, "convert", one, "--out", dataset, "--id", "id", "--subject", "patient"),
        "erase": asked(binary, served, "erase", dataset, last),
        "verify": asked(binary, served, "verify", dataset),
        "history": asked(binary, served, "manifest", dataset, "--history"),
        "compact": asked(binary, served, "compact", dataset),
        "vacuum": asked(binary, served, "vacuum", dataset, "--retain", "0s", "--force"),
        "history after vacuum": asked(binary, served, "manifest", dataset, "--history"),
    }


def within(what, found, most):
    if found > most:
        raise Failure(f"{what}: expected at most {most}, found {found}")


def same_history(growing, before):
    for was, now in zip(before, growing.history(), strict=False):
        expect(f"the history of version {was['version']}", now, was)


def vacuumed(growing):
    """Checks what is left after a vacuum, with a tagged version in between and without it."""
    tagged = growing.commits // 2
    growing.shardify.ok("manifest", growing.path, "--tag", "kept", "--at", f"v{tagged}")
    growing.shardify.ok("compact", growing.path)
    before, ids = growing.history(), growing.shardify.ids(growing.path)
    expect("records", len(ids), growing.commits * ROWS)
    for _ in range(2):
        growing.shardify.ok("vacuum", growing.path, "--retain", "0s", "--force")
    same_history(growing, before)
    expect("records of the tagged version", len(growing.shardify.ids(growing.path, at=f"v{tagged}")), tagged * ROWS)
    code, _, errors = growing.shardify.run("manifest", growing.path, "--at", f"v{tagged - 1}")
    if code != 2 or "vacuumed" not in errors:
        raise Failure(f"a vacuumed version: expected a refusal, found {code}: {errors}")
    growing.shardify.ok("manifest", growing.path, "--untag", "kept")
    growing.shardify.ok("vacuum", growing.path, "--retain", "0s", "--force")
    if growing.shardify.ids(growing.path) != ids:
        raise Failure("expected the records that there were before the vacuum, found others")
    shards = {path.relative_to(growing.path).as_posix() for path in growing.path.rglob("*.parquet")}
    listed = growing.shardify.ok("manifest", growing.path, "--list")
    expect("shards on disk", shards, {shard["path"] for shard in listed if shard["type"] == "shard"})
    expect("entries of the log", len(list((growing.path / "_shardify/log").iterdir())) < 8, True)
    growing.shardify.ok("verify", growing.path, "--read-data")
    left = growing.bytes()
    print(f"after vacuum: {left}", flush=True)
    within("bytes for each version after a vacuum", sum(left.values()) // growing.commits, BYTES_OF_VERSION)
    same_history(growing, before)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--delay", type=float, default=0.03, help="seconds of an answer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        growing = Growing(arguments.shardify, work, "ds")
        growing.grow(FEW)
        few = requests(arguments.shardify, work, growing, arguments.delay)
        begun = time.monotonic()
        growing.grow(arguments.commits - FEW)
        size = growing.bytes()
        print(f"{growing.commits} commits: {time.monotonic() - begun:.0f} s, {size}", flush=True)
        within("bytes of a commit", sum(size.values()) // growing.commits, BYTES_OF_COMMIT)
        many = requests(arguments.shardify, work, growing, arguments.delay)
        for name in ("find", "absent", "convert", "erase"):
            within(f"requests of {name} after {growing.commits} commits, {few[name]} after {FEW}", many[name], 2 * few[name] + 8)
        within("requests of compact", many["compact"], 3 * growing.commits + 60)
        within("requests of history after a vacuum", many["history after vacuum"], 12)
        vacuumed(growing)
    print("ok")
    return 0


if __name__ == "__main__":
    finish(main)
