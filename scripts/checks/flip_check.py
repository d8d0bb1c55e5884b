#!/usr/bin/env python3
"""Flips single bits in every kind of file of datasets, and looks at what each command makes of it.

Datasets of every format are built: sorted, erased from, private, tagged, adopted, of arrays with constants, with indexes. Then, one
at a time, a bit is flipped and put back: at the begin of a file, at its end, or anywhere, in files of every kind. While it is flipped
  - `verify --read-data` finds it, with the exit code for damage;
  - `--find`, `--export`, `erase --dry-run` and `vacuum --dry-run` give exactly what they gave before, or end with that exit code;
  - `compact` of a copy does the same: where it succeeds, the records are those that there were, and so are constants;
  - nothing ends with another exit code, least of all that of a bug, and nothing takes long.

Omitted is what is under no checksum by design (docs/FORMAT.md, Seals): rejected records, `.nv-meta/index.sqlite` and `dataset.yaml`,
locks. The same seed makes the same flips.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

import harness
from harness import Failure, finish

DAMAGE = 5
NOT_CHECKED = ("_shardify/locks/", "_shardify/staging/", "_shardify/intents/", ".nv-meta/index.sqlite",
               ".nv-meta/dataset.yaml", "_shardify/store.json", "_shardify/erasures/", "_shardify/leases/", "_shardify/clock")
FOLDER_OBJECTS = ("schema.json", "_constants.arrow", "shardindex.json")


def run(args, folder, *words, limit=60):
    """Exit code and output of a command."""
    command = [args.shardify, *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit, errors="replace")
    return done.returncode, done.stdout, done.stderr


def must(args, folder, words):
    harness.run(args.shardify, *words.split(), folder=folder, timeout=60)


def table(folder, number, rows=40):
    lines = "".join(f"r{number}-{i},PAT-{i % 9},{(i * 37 + number) % 101},note {number}:{i}\n" for i in range(rows))
    (folder / f"{number}.csv").write_text("id,who,x,note\n" + lines)


def grid(folder, name, first):
    """A Zarr store with `v(t, y)`, and `y(y)`, which is the same for all records."""
    import struct

    store = folder / name

    def array(label, shape, dtype, dims, content):
        (store / label).mkdir(parents=True)
        about = {"zarr_format": 2, "shape": shape, "chunks": shape, "dtype": dtype, "compressor": None, "fill_value": 0,
                 "order": "C", "filters": None}
        (store / label / ".zarray").write_text(json.dumps(about))
        (store / label / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": dims}))
        (store / label / ".".join("0" * len(shape))).write_bytes(content)

    array("v", [2, 3], "<i4", ["t", "y"], struct.pack("<6i", *range(first, first + 6)))
    array("y", [3], "<f4", ["y"], struct.pack("<3f", 0.5, 1.5, 2.5))
    (store / ".zgroup").write_text('{"zarr_format":2}')


def build(args, folder):
    """Datasets, each with what is looked up in it and options that reading it takes."""
    for number in range(6):
        table(folder, number)
    (folder / "key").write_bytes(bytes(range(1, 33)))
    convert = "convert {0}.csv --id id --subject who --out {1} {2}"
    everything = [
        ("parquet", "--to parquet", ["compact {0} --sort-by x", "convert 3.csv --id id --subject who --out {0}",
                                     "manifest {0} --tag gold", "erase {0} PAT-4 --all-versions --reason test"]),
        ("tar", "--to tar --codec none --index dali,energon,wids",
         ["compact {0} --min-inputs 2", "manifest {0} --tag gold", "erase {0} PAT-4", "convert 3.csv --id id --subject who --out {0}"]),
        ("packed", "--to tar --codec zstd", ["erase {0} PAT-2 --all-versions"]),
        ("tfrecord", "--to tfrecord --codec none --index dali,tfindex",
         ["manifest {0} --tag gold", "compact {0} --min-inputs 2", "erase {0} PAT-4 --all-versions",
          "convert 3.csv --id id --subject who --out {0}"]),
        ("private", "--to parquet --id-mode hmac --id-key key", ["erase {0} PAT-4 --all-versions --id-key key"]),
    ]
    found = []
    for name, options, steps in everything:
        for number in range(3):
            must(args, folder, convert.format(number, name, options))
        for step in steps:
            must(args, folder, step.format(name))
        found.append((name, "--id-key key" if name == "private" else "", "PAT-3", "r1-5"))
    for number in range(3):
        grid(folder, f"g{number}.zarr", 100 * number)
        must(args, folder, f"convert g{number}.zarr --out arrays --to tar --read record-dim=t --codec none")
    found.append(("arrays", "", "g1.zarr#2", "g2.zarr#1"))
    for number in range(2):
        must(args, folder, f"convert {number}.csv --id id --subject who --to tfrecord --codec none --out foreign{number}")
        shard = next(path for path in (folder / f"foreign{number}").glob("*/*.tfrecord"))
        (folder / "adopted").mkdir(exist_ok=True)
        shutil.copy(shard, folder / "adopted" / f"part-{number}.tfrecord")
    must(args, folder, "adopt adopted --id id --subject who")
    found.append(("adopted", "", "PAT-3", "r1-5"))
    return found


def steady(text):
    """Output without what differs from run to run."""
    out = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            out.append(line)
            continue
        if isinstance(value, dict):
            for key in ("seconds", "cutoff", "now", "retained_since", "took"):
                value.pop(key, None)
        out.append(json.dumps(value, sort_keys=True))
    return out


def content(lines):
    """What an export says of records, wherever they are."""
    rows = []
    for line in lines:
        row = json.loads(line)
        if row.get("record_id") is None:
            continue
        for key in ("shard", "shard_version", "ordinal", "offset", "length"):
            row.pop(key, None)
        rows.append(json.dumps(row, sort_keys=True))
    return sorted(rows)


class Probe:
    """The commands that are tried on one dataset."""

    def __init__(self, args, root, dataset, options, ids):
        self.args, self.root, self.dataset = args, root, dataset
        self.options, self.ids = options.split(), ids
        self.before = {name: self.ask(name) for name in self.commands()}
        for name, (code, lines) in self.before.items():
            if code not in (0, 1):
                raise Failure(f"{dataset}: {name} ended with {code} before anything was flipped\n" + "\n".join(lines))
        code, out, error = self.verify()
        if code != 0:
            raise Failure(f"{dataset} is damaged before anything was flipped\n{out}{error}")
        self.constants = {path.read_bytes() for path in (root / dataset).glob("*/_constants.arrow")}
        code, problem = self.compact()
        if code != 0 or problem:
            raise Failure(f"{dataset}: compact ended with {code} before anything was flipped: {problem}")

    def commands(self):
        found = {f"find {one}": ["manifest", self.dataset, "--find", one] for one in self.ids}
        found["export"] = ["manifest", self.dataset, "--export", "jsonl"]
        found["erase"] = ["erase", self.dataset, self.ids[0], "--all-versions", "--dry-run"]
        found["vacuum"] = ["vacuum", self.dataset, "--retain", "0s", "--force", "--dry-run"]
        return found

    def ask(self, name):
        options = [] if name in ("export", "vacuum") and not self.options else self.options
        if name == "vacuum":
            options = []
        code, out, _ = run(self.args, self.root, *self.commands()[name], *options, "--json")
        return code, steady(out)

    def verify(self):
        return run(self.args, self.root, "verify", self.dataset, "--read-data", *self.options, "--json")

    def compact(self):
        """Exit code of a compaction of a copy, and what is wrong with what it made."""
        with tempfile.TemporaryDirectory(dir=self.root) as copied:
            copy = pathlib.Path(copied) / self.dataset
            # Nothing that is there is ever written to, so links will do.
            shutil.copytree(self.root / self.dataset, copy, copy_function=os.link)
            if self.options:
                shutil.copy(self.root / "key", copied)
            code, _, _ = run(self.args, copied, "compact", self.dataset, "--min-inputs", "2", "--json")
            if code != 0:
                return code, None
            code, out, _ = run(self.args, copied, "manifest", self.dataset, "--export", "jsonl", *self.options, "--json")
            if code != 0:
                return 0, None if code == DAMAGE else f"export of what it made ended with {code}"
            if content(out.splitlines()) != content(self.before["export"][1]):
                return 0, "compact made other records"
            listing = {path.read_bytes() for path in self.new_folders(copy, "_constants.arrow")}
            return 0, None if listing <= self.constants else "compact copied other constants"

    def new_folders(self, copy, name):
        return [path for path in copy.glob(f"*/{name}") if not (self.root / self.dataset / path.relative_to(copy)).exists()]

    def problems(self, is_shard):
        """What is wrong with how the commands take the flipped bit."""
        found = []
        code, out, error = self.verify()
        if code != DAMAGE and code != 1:
            found.append(f"verify ended with {code}: {error.strip()[-300:]}")
        elif code == 1 and '"problem_count":0' in out:
            found.append("verify found nothing")
        for name, before in self.before.items():
            after = self.ask(name)
            if after != before and after[0] != DAMAGE:
                found.append(f"{name} ended with {after[0]} and another answer")
        code, problem = self.compact()
        if code not in (0, DAMAGE) and not (is_shard and code == 6):
            found.append(f"compact ended with {code}")
        if problem:
            found.append(problem)
        return found


def kind(path):
    """What sort of file it is."""
    parts = path.split("/")
    if parts[0] != "_shardify":
        ending = pathlib.PurePath(path).suffix
        return path if parts[0] == ".nv-meta" else f"shards {pathlib.PurePath(path).name if not ending[1:] or 'json' in ending or 'arrow' in ending else ending}"
    name = parts[-1]
    if parts[1] == "lists":
        return "list of " + next((word for word in ("shards", "runs", "sources", "lineage", "suppressed", "tombstones", "rewritten", "replaced")
                                  if f"-{word}-" in name), "others")
    if parts[1] == "sidecar":
        return "sidecar " + next((word for word in ("parts", "records") if f".{word}." in name), "")
    return " ".join(parts[1:3]) if parts[1] == "index" else parts[1]


def spots(size, rng):
    """Where bits are flipped: at the begin, at the end, anywhere."""
    where = rng.randrange(4)
    if where == 0:
        return rng.randrange(min(16, size))
    if where == 1:
        return size - 1 - rng.randrange(min(64, size))
    return rng.randrange(size)


def flips(args, root, dataset, probe, count, seed):
    """Flips some bits; counts by kinds of files, and what went wrong."""
    rng = random.Random(f"{seed} {dataset}")
    folder = root / dataset
    kinds = collections.defaultdict(list)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        # What described a folder of shards that are erased is of no version any more.
        left = path.name in FOLDER_OBJECTS and "/" in name and not any(path.parent.glob("0*"))
        # Nothing refers to signs beside old shards, and no reader of the log reads them.
        left |= path.name.startswith("READ-LIVE-SHARDS-ONLY")
        if path.stat().st_size and not name.startswith(NOT_CHECKED) and not left:
            kinds[kind(name)].append(path)
    counts, failures = collections.Counter(), []
    names = sorted(kinds)
    for number in range(count):
        name = names[number % len(names)]
        path = rng.choice(kinds[name])
        at, bit = spots(path.stat().st_size, rng), rng.randrange(8)
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << bit]))
        try:
            found = probe.problems(name.startswith("shards"))
        except subprocess.TimeoutExpired as e:
            found = [f"{' '.join(e.cmd[1:3])} did not end within {e.timeout} s"]
        finally:
            with open(path, "r+b") as file:
                file.seek(at)
                file.write(bytes([byte]))
        counts[name] += 1
        if found:
            failures.append(f"{path.relative_to(root)} byte {at} bit {bit}: " + "; ".join(found))
    return dataset, counts, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--flips", type=int, default=400, help="bits to flip, over all datasets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="do not delete the datasets")
    args = parser.parse_args()
    args.shardify = str(pathlib.Path(args.shardify).resolve())
    started = time.time()
    root = pathlib.Path(tempfile.mkdtemp(prefix="flips-"))
    try:
        datasets = build(args, root)
        share = -(-args.flips // len(datasets))
        total, failed = collections.Counter(), []
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            work = [pool.submit(lambda one=one: flips(args, root, one[0], Probe(args, root, one[0], one[1], one[2:]), share, args.seed))
                    for one in datasets]
            for done in concurrent.futures.as_completed(work):
                dataset, counts, failures = done.result()
                total.update(counts)
                failed += failures
                print(f"{dataset}: {sum(counts.values())} flips, {len(failures)} failures", flush=True)
        for name, count in sorted(total.items()):
            print(f"  {name:30} {count}")
        print(f"{sum(total.values())} flips with seed {args.seed} in {time.time() - started:.0f} s, {len(failed)} failures")
        for line in failed[:40]:
            print("  " + line)
    finally:
        if not args.keep:
            shutil.rmtree(root, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    finish(main)
