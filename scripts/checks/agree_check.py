#!/usr/bin/env python3
"""`inspect`, `--dry-run`, `convert`, the history and the report agree about files of the corpus.

Each file is inspected, tried with `convert --dry-run`, and converted; then the history and the report of the dataset are read, also of
what `--on-error skip` omitted. They agree where all of these hold:

- What `inspect` calls exact is what `convert` reads, and columns have the same names and types.
- A file that `convert` takes is taken by `inspect` and by a dry run. If both refuse it, they give the same reason. What is wrong with a small
  text file or its name is not first met by `convert`; larger files, arrays, Parquet and archives are not read to their end before.
- A dry run has the columns of the conversion; its estimates of records and bytes are not off by a factor of more than 10.
- History and report have the counts of the conversion, rejects included, and the report has its types.

    python3 scripts/checks/agree_check.py --shardify target/release/shardify [--corpus ../shared/corpus] [--every N] [--jobs N] [--only TEXT]
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import tempfile

from harness import INPUT, OK, REJECTS, ROOT, Failure, Shardify, finish

# What a dry run looks at of a file, in bytes; damage beyond it is met by the conversion alone.
LOOKED_AT = 1 << 20
# Estimates of bytes of less than this are no use to anybody.
SMALL = 64 << 10
COUNTS = ("records_in", "records_out", "records_rejected", "records_filtered", "records_deduplicated", "bytes_in", "bytes_out")


def message(errors):
    """The message of the error among events; the words before a place, which may name another one."""
    events = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    return next((event["message"] for event in events if event["type"] == "error"), "")


class Agreement:
    def __init__(self, shardify, path, folder):
        self.shardify, self.path, self.folder, self.problems = shardify, path, folder, []
        self.kind = path.suffix

    def expect(self, what, found, expected):
        if found != expected:
            self.problems.append(f"{what}: {str(found)[:300]}, not {str(expected)[:300]}")

    def check(self):
        run = lambda *words: self.shardify.run(*words, folder=self.folder)
        inspected, tried = run("inspect", self.path), run("convert", self.path, "--out", "dry", "--dry-run")
        converted = run("convert", self.path, "--out", "out")
        if (self.folder / "dry").exists():
            self.problems.append("a dry run made a folder")
        self.codes(inspected, tried, converted)
        if converted[0] == OK:
            summary = converted[1][-1]
            self.inspection(inspected, summary)
            self.trial(tried, summary)
            self.dataset("out", summary)
        else:
            code, objects, _ = run("convert", self.path, "--out", "skipped", "--on-error", "skip")
            if code in (OK, REJECTS) and objects and objects[-1].get("version"):
                self.dataset("skipped", objects[-1])
        return self.problems

    def codes(self, inspected, tried, converted):
        whole = self.path.stat().st_size <= LOOKED_AT and not self.is_sampled(converted)
        for name, (code, objects, errors) in (("inspect", inspected), ("dry run", tried)):
            if code not in (OK, INPUT, 2, 5):
                self.problems.append(f"{name} ended with {code}: {errors[-200:]}")
            elif converted[0] == OK and code != OK:
                self.problems.append(f"{name} refuses what convert takes: {message(errors)}")
            elif code != OK and converted[0] != code:
                self.problems.append(f"{name} ended with {code}, convert with {converted[0]}: {message(errors)} / {message(converted[2])}")
            elif code != OK:
                self.expect(f"reason of {name}", message(errors).replace("to inspect", "to convert"), message(converted[2]))
            elif converted[0] != OK and whole:
                told = json.dumps(objects[-1].get("problems", [])) + objects[-1].get("advice", "") if name == "inspect" else ""
                # `inspect` may name what is wrong as a problem or in its advice.
                if message(converted[2])[:30] not in told.replace('\\\\"', '"'):
                    self.problems.append(f"{name} takes what convert refuses: {message(converted[2])}")

    def is_array(self):
        return self.path.read_bytes()[:8].lstrip(b"\x89\x93").startswith((b"HDF", b"CDF", b"NUMPY", b"PK"))

    def is_sampled(self, converted):
        """Whether the content is not read before the conversion: that of arrays, Parquet, compressed and framed files, whose own checks
        see their damage."""
        start = self.path.read_bytes()[:512]
        known = (b"PAR1", b"ARROW1", b"\x89HDF", b"CDF", b"\x93NUMPY", b"PK", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
        return start.startswith(known) or start[257:262] == b"ustar" or self.path.suffix in (".tar", ".tfrecord", ".arrow")

    def inspection(self, inspected, summary):
        code, objects, _ = inspected
        if code != OK:
            return
        found = objects[-1]
        if found["exact"]:
            self.expect("exact records of inspect", found["records"], summary["records_in"])
        elif found["records"] is not None and not any(one.get("at_least") for one in objects):
            self.within("records of inspect", found["records"], summary["records_in"])
        columns = [[one["column"], one["data_type"]] for one in objects if one["type"] == "column"]
        if columns and found["exact"] and summary["format"] == "parquet" and "" not in [name for name, _ in columns]:
            # A column without a name gets one when it is converted.
            self.expect("columns of inspect", columns, summary["columns"])

    def trial(self, tried, summary):
        code, objects, _ = tried
        if code != OK:
            return
        found = objects[-1]
        self.expect("columns of the dry run", found["columns"], summary["columns"])
        estimate = found["estimate"]
        if not estimate["sampled"]:
            self.expect("records of the dry run", estimate["records"], summary["records_out"])
            if "rejected" in estimate:
                self.expect("what a dry run converts whole", (estimate["bytes"], estimate["rejected"]), (summary["bytes_out"], summary["records_rejected"]))
        elif not estimate["compressed"]:
            self.within("records of the dry run", estimate["records"], summary["records_out"])
        # Values of arrays that repeat compress better together than the few that a dry run encodes.
        most = summary["bytes_out"] if self.is_array() and estimate["bytes"] > summary["bytes_out"] else estimate["bytes"]
        if not estimate["compressed"] and max(estimate["bytes"], summary["bytes_out"]) > SMALL:
            self.within("bytes of the dry run", most, summary["bytes_out"])

    def within(self, what, found, expected):
        if not found or not expected:
            found, expected = (found or 0) + 1, expected + 1
        if not 0.1 <= found / expected <= 10:
            self.problems.append(f"{what} is off by more than 10: {found}, not {expected}")

    def dataset(self, dataset, summary):
        run = lambda *words: self.shardify.ok(*words, folder=self.folder)
        versions = [one for one in run("manifest", dataset, "--history") if one["type"] == "version"]
        expected = {name: summary[name] for name in COUNTS}
        self.expect("history", {name: versions[-1][name] for name in COUNTS}, expected)
        self.expect("the sum of records", summary["records_in"], sum(summary[name] for name in COUNTS[1:5]))
        objects = run("report", dataset)
        told = objects[-1]
        of_version = next(one for one in objects if one["type"] == "version")
        self.expect("version of the report", {name: of_version[name] for name in COUNTS}, expected)
        self.expect("records of the report", (told["records"], told["rejects"]["records"]), (summary["records_out"], summary["records_rejected"]))
        columns = [[one["column"], one["data_type"]] for one in objects if one["type"] == "column"]
        if len(columns) == told["columns"] and summary["format"] == "parquet" and summary["records_out"]:
            # The report is read from records; it has the leaves of structs, and of very wide tables some.
            plain = [one for one in summary["columns"] if not one[1].startswith(("struct", "variant"))]
            self.expect("columns of the report", [one for one in plain if one not in columns], [])
        inspected = run("inspect", dataset)
        self.expect("records of inspect of the dataset", inspected[-1]["records"], summary["records_out"])


def check(shardify, path):
    with tempfile.TemporaryDirectory() as folder:
        try:
            return Agreement(shardify, path, pathlib.Path(folder)).check()
        except Failure as failure:
            return [str(failure)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--corpus", type=pathlib.Path, default=ROOT.parent / "shared" / "corpus")
    parser.add_argument("--every", type=int, default=1, help="only every n-th file of each kind")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="only files whose path has this text")
    options = parser.parse_args()
    shardify = Shardify(options.shardify)
    corpus = options.corpus.resolve()
    files = collections.defaultdict(list)
    for path in sorted(corpus.rglob("*")):
        if path.is_file() and len(path.relative_to(corpus).parts) > 1 and options.only in str(path):
            files[path.relative_to(corpus).parts[0]].append(path)
    chosen = [path for kind in sorted(files) for path in files[kind][:: options.every]]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for path, problems in zip(chosen, pool.map(lambda path: check(shardify, path), chosen)):
            failed += bool(problems)
            for problem in problems:
                print(f"FAILED {path.relative_to(corpus)}: {problem}", flush=True)
    print(f"{len(chosen)} files, {failed} with a disagreement")
    if failed:
        raise Failure(f"{failed} of {len(chosen)} files")


if __name__ == "__main__":
    finish(main)
