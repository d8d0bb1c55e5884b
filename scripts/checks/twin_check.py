#!/usr/bin/env python3
"""Two programs make the same of the files of the corpus: what a change of structure must not change.

Each file is converted by both programs, to Parquet, tar and TFRecord. They end with the same exit code; shards have the same bytes in
the same order; records have the same ids, origins, hashes and offsets; lookups of some ids and the report say the same. Names of folders,
times, places and what only one of the programs reports are not compared.

    python3 scripts/checks/twin_check.py --shardify target/release/shardify --before OLD [--corpus FOLDER] [--every N] [--only TEXT]
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import pathlib
import re
import tempfile

from harness import OK, REJECTS, ROOT, Failure, Shardify, finish, not_run

LARGEST = 4 << 20
FORMATS = ("parquet", "tar", "tfrecord")
ENDINGS = (".parquet", ".tar", ".tfrecord", ".gz", ".zst")
# What differs between two runs of one program, or between versions of the report.
VOLATILE = re.compile("seconds|^source$|time|at$|version|tool|command|path|place|dataset|location|bytes_index|schema$")


def stable(value):
    """A document without what differs between two runs of one program."""
    if isinstance(value, dict):
        return {key: stable(inner) for key, inner in value.items() if not VOLATILE.search(key)}
    return [stable(inner) for inner in value] if isinstance(value, list) else value


def shared(old, new):
    """Both documents without keys that only one of them has."""
    if isinstance(old, dict) and isinstance(new, dict):
        both = {key: shared(old[key], new[key]) for key in old.keys() & new.keys()}
        return {key: pair[0] for key, pair in both.items()}, {key: pair[1] for key, pair in both.items()}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [shared(*pair) for pair in zip(old, new, strict=True)]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return old, new


class Made:
    """What a program makes of a file."""

    def __init__(self, shardify, path, form, folder):
        def run(*words):
            return shardify.run(*words, folder=folder)

        self.code, _, _ = run("convert", path, "--out", "out", "--to", form, "--on-error", "skip")
        self.shards, self.records, self.found, self.report = [], [], [], {}
        if self.code not in (OK, REJECTS) or not (folder / "out").exists():
            return
        files = [file for file in (folder / "out").rglob("*") if "_shardify" not in file.parts and file.suffix in ENDINGS]
        self.shards = [hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)]
        _, exported, _ = run("manifest", "out", "--export", "jsonl")
        self.records = [{key: value for key, value in row.items() if not VOLATILE.search(key) and key != "shard"} for row in exported]
        for row in self.records[:: max(1, len(self.records) // 3)][:3]:
            name = row.get("record_id") or ""
            if name and not name.startswith("-"):
                code, objects, _ = run("manifest", "out", "--find", name)
                self.found.append((code, len(objects)))
        code, objects, _ = run("report", "out")
        self.report = stable(objects[-1]) if code == OK and objects else {"code": code}


def differences(old, new):
    if old.code != new.code:
        yield f"exit code {old.code}, now {new.code}"
        return
    for what in ("shards", "records", "found"):
        if getattr(old, what) != getattr(new, what):
            yield f"{what}: {str(getattr(old, what))[:160]}, now {str(getattr(new, what))[:160]}"
    before, after = shared(old.report, new.report)
    if before != after:
        keys = [key for key in before if before[key] != after.get(key)]
        yield f"report: {keys}: {str([before[key] for key in keys])[:200]}, now {str([after[key] for key in keys])[:200]}"


def check(arguments, path):
    found = []
    for form in FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            made = []
            for name in ("before", "shardify"):
                own = pathlib.Path(folder) / name
                own.mkdir()
                made.append(Made(Shardify(getattr(arguments, name)), path, form, own))
            found.extend(f"{form}: {difference}" for difference in differences(*made))
    return path, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", type=pathlib.Path, required=True)
    parser.add_argument("--before", type=pathlib.Path, required=True)
    parser.add_argument("--corpus", type=pathlib.Path, default=ROOT.parent / "shared" / "corpus")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if not arguments.corpus.is_dir():
        not_run("twin_check", f"there is no corpus at {arguments.corpus}")
        return 0
    files = sorted(path for path in arguments.corpus.rglob("*") if path.is_file() and path.stat().st_size <= LARGEST)
    files = [path for path in files if arguments.only in str(path)][:: arguments.every]
    kinds = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for path, found in pool.map(lambda path: check(arguments, path), files):
            for difference in found:
                print(f"{path.relative_to(arguments.corpus)}: {difference}", flush=True)
                kinds[difference.split(":")[1].strip()[:20]] += 1
    print(json.dumps({"files": len(files), "differences": dict(kinds)}))
    if kinds:
        raise Failure(f"expected both programs to make the same, found {sum(kinds.values())} differences")


if __name__ == "__main__":
    finish(main)
