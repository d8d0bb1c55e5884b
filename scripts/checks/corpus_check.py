#!/usr/bin/env python3
"""Converts every file of the corpus, one process each, and compares with what an independent reader counts.

Each run must end within 10 seconds and 1 GiB of memory, without a panic, in one of two ways: with the oracle's count, or
with an error or rejects that name the place. Files for which shardify counts differently on purpose are listed with
their reasons in docs/CORRECTNESS.md, and nowhere else: a difference that is not listed fails, and so does a listed one
that is gone.

    scripts/checks/corpus_check.py --shardify target/release/shardify [--corpus ../shared/corpus] [kind ...]
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import subprocess
import tarfile
import tempfile
import time

from harness import ROOT, Failure, finish

SECONDS = 10
KIBIBYTES = 1 << 20
KINDS = [
    "csv-edge", "csv-real", "json-edge", "json-real", "jsonl-real", "parquet", "parquet-bad", "petastorm", "tar-edge",
    "tar-wds", "tfrecord", "compressed-edge", "images", "audio", "patients",
]  # fmt: skip


def oracle(corpus):
    """File -> (kind, status, what, count)."""
    out = {}
    for line in (corpus / "ORACLE.tsv").read_text().splitlines()[1:]:
        file, kind, status, what, count, *_ = line.split("\t")
        out[file] = (kind, status, what, int(count) if count.lstrip("-").isdigit() else -1)
    return out


def listed_differences():
    """File -> (count of the oracle, count of shardify), from the table in the documentation."""
    out = {}
    for line in (ROOT / "docs/CORRECTNESS.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`") and cells[1].isdigit() and cells[2].isdigit():
            out[cells[0].strip("`")] = (int(cells[1]), int(cells[2]))
    return out


def run(command, folder):
    """Exit code, stdout, stderr, seconds, peak memory in KiB; the code is None when it took too long."""
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=folder)
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            seconds = time.monotonic() - started
            if pid:
                code = os.waitstatus_to_exitcode(status)
                break
            if seconds > SECONDS:
                process.send_signal(signal.SIGKILL)
                _, _, usage = os.wait4(process.pid, 0)
                code = None
                break
            time.sleep(0.002)
    text = [(folder / name).read_text(errors="replace") for name in ("stdout", "stderr")]
    return code, *text, seconds, usage.ru_maxrss


def options(kind, what):
    """How a file is read so that the oracle's reading is the same."""
    if what.startswith("csv-rows"):
        return ["--from", "csv", "--read", "delimiter=,"]
    if kind == "json-edge":
        return ["--from", "json"]
    if kind in ("images", "audio"):
        return ["--from", "files"]
    if kind.startswith("tar"):
        return ["--from", "tar", "--to", "tar"]
    if kind == "tfrecord":
        return ["--from", "tfrecord"]
    return []


def expected(path, what, count):
    """Records that a file should have, by the oracle's count."""
    if what.startswith("csv-rows"):
        return max(count - 1, 0)
    if what == "json-doc":
        # The oracle counts documents; the records of an array are its elements.
        document = json.loads(path.read_bytes())
        return len(document) if isinstance(document, list) else 1
    return count


def members(dataset):
    count = 0
    for path in dataset.glob("*/*.tar"):
        with tarfile.open(path) as archive:
            count += len(archive.getmembers())
    return count


class Check:
    def __init__(self, arguments):
        self.shardify = pathlib.Path(arguments.shardify).resolve()
        self.corpus = pathlib.Path(arguments.corpus).resolve()
        self.oracle = oracle(self.corpus)
        self.listed = listed_differences()
        self.seen = set()
        self.failures = []
        self.tally = collections.Counter()
        self.worst = collections.Counter()

    def file(self, path):
        name = str(path.relative_to(self.corpus))
        kind, status, what, count = self.oracle.get(name, (name.split("/")[0], "none", "", -1))
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            command = [self.shardify, "convert", path, "--out", "out", "--json", "--on-error", "quarantine"]
            command += options(kind, what)
            code, out, err, seconds, memory = run(command, folder)
            self.worst["milliseconds"] = max(self.worst["milliseconds"], int(seconds * 1000))
            self.worst["MiB"] = max(self.worst["MiB"], memory >> 10)
            problem = self.judge(name, path, status, what, count, code, out, err, memory, folder / "out")
        if problem:
            self.failures.append(f"{name}: {problem}")
            print(f"FAILED {name}: {problem}")

    def judge(self, name, path, status, what, count, code, out, err, memory, dataset):
        if code is None:
            return f"still running after {SECONDS} s"
        if memory > KIBIBYTES:
            return f"took {memory >> 10} MiB"
        if "panicked" in err or code not in (0, 2, 3, 6):
            return f"exit code {code}: {err[-300:]}"
        base = name.rsplit("/", 1)[-1]
        if "JSONTestSuite" in name or base.startswith(("y_", "n_")):
            problem = self.judge_json(base, code, err)
            if problem:
                return problem
        if code in (2, 6):
            self.tally["error"] += 1
            return None if str(path) in err or path.name in err else f"the error does not name the file: {err}"
        summary = json.loads(out.splitlines()[-1])
        counts = [summary[f"records_{part}"] for part in ("in", "out", "rejected")]
        if counts[0] != counts[1] + counts[2]:
            return f"in, out and rejected do not add up: {counts}"
        if counts[2]:
            self.tally["rejects"] += 1
            # Of what cannot be listed, and is all there is, the faults are told and no run begins.
            if summary["rejects"] is None and counts[1] == 0:
                return None if path.name in err else f"{counts[2]} rejects, and no word about them"
            lines = map(json.loads, (dataset / summary["rejects"]).read_bytes().splitlines())
            kept = sum(line.get("records", 1) for line in lines)
            return None if kept == counts[2] else f"{counts[2]} rejects, {kept} of them kept"
        found = members(dataset) + summary["entries_passed_over"] if what == "tar-members" else counts[1]
        if status != "ok":
            self.tally["read where the oracle gives up" if status == "error" else "read"] += 1
            return None
        if count < 0:
            self.tally["read, and not counted by the oracle"] += 1
            return None
        wanted = expected(path, what, count)
        if what.startswith("csv-rows") and wanted == found + summary["blank_lines"]:
            self.tally["the oracle's count, empty lines included"] += summary["blank_lines"] > 0
            found = wanted
        if name in self.listed:
            self.seen.add(name)
            return None if self.listed[name] == (wanted, found) else f"listed as {self.listed[name]}, found {(wanted, found)}"
        if found != wanted:
            return f"the oracle counts {wanted}, found {found}"
        self.tally["the oracle's count"] += 1
        return None

    def judge_json(self, base, code, err):
        malformed = code in (2, 3, 6)
        if base.startswith("n_") and not malformed:
            return "no JSON, and taken"
        # A scalar is JSON but no record: it may be refused, not called malformed.
        if base.startswith("y_") and malformed and "object" not in err and code != 3:
            return f"JSON, and refused: {err}"
        return None

    def finish(self, all_kinds):
        if all_kinds:
            self.failures += [f"{name}: listed as a difference, and there is none" for name in self.listed if name not in self.seen]
        for outcome, count in self.tally.most_common():
            print(f"{count:6} {outcome}")
        print(f"worst: {self.worst['milliseconds']} ms, {self.worst['MiB']} MiB")
        print(f"{len(self.failures)} failures")
        for failure in self.failures:
            print(f"  {failure}")
        return 1 if self.failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--corpus", default=os.environ.get("SHARDIFY_CORPUS", ROOT / "../shared/corpus"))
    parser.add_argument("kinds", nargs="*", default=KINDS)
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.corpus).is_dir():
        raise Failure(f"there is no corpus at {arguments.corpus}; name its folder in SHARDIFY_CORPUS")
    check = Check(arguments)
    for kind in arguments.kinds:
        files = sorted(p for p in (check.corpus / kind).rglob("*") if p.is_file())
        for path in files:
            check.file(path)
        print(f"{kind}: {len(files)} files")
    return check.finish(arguments.kinds == KINDS)


if __name__ == "__main__":
    finish(main)
