#!/usr/bin/env python3
"""Sends damaged copies of the files of the corpus through `convert`, `inspect` and `adopt`.

The damage lies where lengths and offsets lie (scripts/checks/mutators.py). Copies of one file go together, `--batch` at a time, so that
many thousands take minutes. Each run has to end with an exit code that the README lists and no other than 70, without a
panic, with counts that add up, within 10 s of processor time and 1 GiB of memory. A batch that does not is run again copy by
copy, and who is to blame is kept in `--keep` with the command.

With `--integrity` the files are damaged as disks do it, no checksum is made right, and none of them may be accepted whole with a
record that was not in the original: formats with checksums (TFRecord, gzip, bzip2, xz, pages of Parquet as we write them) can
tell. Streams have their checksum at the end, so records in front of it may be damaged ones where the file has a reject.

    scripts/checks/mutants.py --shardify target/release/shardify --mutants 50000 --seed 1 [--only hdf5,netcdf] [--integrity]
"""

import argparse
import collections
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import mutators

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPU_SECONDS = 10
WALL_SECONDS = 120
KIBIBYTES = 1 << 20
# 8: sources disagree, as where a mutant states another unit than the others of its run.
CODES = (0, 2, 3, 6, 8)
KINDS = {
    "csv-edge": "csv", "csv-real": "csv", "json-edge": "json", "json-real": "json", "jsonl-real": "jsonl", "parquet": "parquet",
    "parquet-bad": "parquet", "petastorm": "parquet", "tar-edge": "tar", "tar-wds": "tar", "tfrecord": "tfrecord", "hdf5": "hdf5",
    "netcdf": "netcdf", "npy": "npy", "compressed-edge": "csv", "zarr": "zarr", "images": "files",
}  # fmt: skip
# How often a format is drawn: by how much there is to go wrong.
WEIGHTS = {"parquet": 6, "hdf5": 6, "netcdf": 4, "tar": 4, "tfrecord": 3, "zarr": 4, "npy": 3, "arrow": 4, "csv": 3, "json": 2, "jsonl": 1, "files": 0.2}
LARGEST = 600_000


def format_of(path, kind, head):
    """The format as `--from` names it, or `None` for what is of no use here."""
    form = KINDS.get(kind)
    if form == "tar" and head[257:262] != b"ustar" and head[:2] not in (b"\x1f\x8b", b"BZ", b"\xfd7", b"(\xb5"):
        return None
    if form == "parquet" and head[:4] != b"PAR1":
        return "arrow" if head[:6] == b"ARROW1" else None
    if form == "json" and path.suffix in (".jsonl", ".ndjson", ".geojsonl"):
        return "jsonl"
    return form


def corpus_seeds(corpus):
    """Format -> [(name, bytes or {path: bytes} of a store)]."""
    seeds = collections.defaultdict(list)
    stores = set()
    for path in sorted(corpus.rglob("*")):
        kind = path.relative_to(corpus).parts[0]
        if kind == "zarr" and path.name in ("zarr.json", ".zgroup", ".zarray"):
            above = path.parent
            if not any(parent in stores for parent in above.parents) and above not in stores:
                stores.add(above)
        elif path.is_file() and kind in KINDS and kind != "zarr" and 0 < path.stat().st_size <= LARGEST:
            data = path.read_bytes()
            form = format_of(path, kind, data[:512])
            if form:
                seeds[form].append((str(path.relative_to(corpus)), data))
    for store in sorted(stores):
        files = {str(p.relative_to(store)): p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()}
        if sum(map(len, files.values())) <= LARGEST and len(files) <= 200:
            seeds["zarr"].append((str(store.relative_to(corpus)), files))
    return seeds


def limits(seconds):
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


class Ran:
    def __init__(self, command, folder, count):
        self.allowed = CPU_SECONDS if count == 1 else CPU_SECONDS * 2
        with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            process = subprocess.Popen(command, stdout=out, stderr=err, cwd=folder, preexec_fn=lambda: limits(self.allowed + 1))
            started, pid = time.monotonic(), 0
            while not pid:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if not pid and time.monotonic() - started > WALL_SECONDS:
                    process.send_signal(signal.SIGKILL)
                    pid, status, usage = os.wait4(process.pid, 0)
                    status = None
                elif not pid:
                    time.sleep(0.01)
        process.returncode = 0
        self.command = command
        self.code = None if status is None else os.waitstatus_to_exitcode(status)
        self.out = (folder / "stdout").read_text(errors="replace")
        self.err = (folder / "stderr").read_text(errors="replace")
        self.cpu = usage.ru_utime + usage.ru_stime
        self.memory = usage.ru_maxrss

    def problem(self):
        """What is wrong with it."""
        if self.code is None:
            return f"still running after {WALL_SECONDS} s, {self.cpu:.0f} s of processor time"
        if self.cpu > self.allowed:
            return f"took {self.cpu:.1f} s of processor time"
        if self.memory > KIBIBYTES:
            return f"took {self.memory >> 10} MiB"
        if "panicked" in self.err:
            return "panicked: " + self.err[:400]
        if self.code not in CODES:
            return f"exit code {self.code}: {self.err[-400:]}"
        if self.out and self.code in (0, 3) and "convert" in self.command:
            summary = json.loads(self.out.splitlines()[-1])
            counts = [summary[f"records_{part}"] for part in ("in", "out", "rejected", "deduplicated", "filtered")]
            if counts[0] != sum(counts[1:]):
                return f"in, out, rejected, repeated and filtered do not add up: {counts}"
        return None


def frames(dataset):
    """The data of all records of the TFRecord shards of a dataset."""
    out = []
    for path in sorted(dataset.glob("*/*.tfrecord")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            out.append(data[at + 12 : at + 12 + length])
            at += 16 + length
    return out


class Mutants:
    def __init__(self, arguments):
        self.shardify = str(pathlib.Path(arguments.shardify).resolve())
        self.keep = pathlib.Path(arguments.keep).resolve()
        self.rng = random.Random(arguments.seed)
        self.batch = arguments.batch
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="mutants-", dir=arguments.scratch))
        self.findings = []
        self.tally = collections.Counter()
        self.formats = collections.Counter()
        self.worst = collections.Counter()
        self.started = time.monotonic()

    # One batch.

    def write(self, folder, mutants):
        for name, mutant in mutants:
            if isinstance(mutant, dict):
                for path, data in mutant.items():
                    target = folder / name / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(data)
            else:
                (folder / name).write_bytes(mutant)

    def run(self, mutants, command):
        """Runs a command over some mutants; returns how it went and the folder, which the next run removes."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        source = self.scratch / "in"
        source.mkdir(parents=True)
        self.write(source, mutants)
        ran = Ran([self.shardify, *command], self.scratch, len(mutants))
        self.worst["MiB"] = max(self.worst["MiB"], ran.memory >> 10)
        self.worst["ms"] = max(self.worst["ms"], int(ran.cpu * 1000))
        return ran

    def check(self, mutants, command, blame, halvings=3):
        """Runs a command, and looks for who is to blame when it goes wrong; halves what is refused as a whole, such as tables
        whose damaged schemas contradict each other, so that one does not keep the others from being read."""
        ran = self.run(mutants, command)
        problem = ran.problem()
        if problem and len(mutants) > 1:
            guilty = 0
            for mutant in mutants:
                alone = self.run([mutant], command)
                why = alone.problem()
                if why:
                    guilty += 1
                    self.report(blame, [mutant], command, why)
            if not guilty and "MiB" not in problem and "processor time" not in problem:
                self.report(blame, mutants, command, problem)
            return
        if problem:
            self.report(blame, mutants, command, problem)
            return
        self.tally[f"exit {ran.code}"] += 1
        if ran.code in (2, 6) and len(mutants) > 1 and halvings and command[0] == "convert":
            half = len(mutants) // 2
            self.check(mutants[:half], command, blame, halvings - 1)
            self.check(mutants[half:], command, blame, halvings - 1)

    def report(self, blame, mutants, command, why):
        number = len(self.findings)
        folder = self.keep / f"{number:04}"
        folder.mkdir(parents=True, exist_ok=True)
        self.write(folder, mutants)
        line = f"{blame}: {' '.join(command)}: {why}"
        (folder / "FINDING").write_text(line + "\n")
        self.findings.append(line)
        print(f"FOUND {number:04} {line}", flush=True)

    # Which mutants, and which commands.

    def made(self, form, name, seed, seeds):
        base = name.rsplit("/", 1)[-1]
        out = []
        for number in range(self.batch):
            if isinstance(seed, dict):
                files = dict(seed)
                metadata = [path for path in files if path.rsplit("/", 1)[-1] in ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")]
                chunks = [path for path in files if path not in metadata and files[path]]
                if metadata and (not chunks or self.rng.random() < 0.7):
                    path = self.rng.choice(metadata)
                    files[path] = mutators.mutant(files[path], "zarr", [], self.rng)
                elif chunks:
                    path = self.rng.choice(chunks)
                    files[path] = mutators.mutant(files[path], "files", [], self.rng)
                out.append((f"{number:03}.zarr", files))
            else:
                others = [data for _, data in self.rng.sample(seeds, min(2, len(seeds)))]
                out.append((f"{number:03}-{base}", mutators.mutant(seed, form, others, self.rng)))
        return out

    def commands(self, form):
        rng = self.rng
        to = rng.choice(["parquet", "tar", "tfrecord"])
        convert = ["convert", "in", "--out", "out", "--from", form, "--to", to, "--json", "-q", "--on-error", rng.choice(["skip", "quarantine"])]
        convert += ["--memory", "256MiB"]
        if form in ("hdf5", "netcdf", "zarr", "npy"):
            convert += rng.choice([[], [], ["--read", "raw=yes"], ["--read", "flatten=yes"]])
            if rng.random() < 0.2 and to == "tfrecord":
                convert += ["--write", "tensors=lists"]
        out = [convert]
        if rng.random() < 0.25:
            out.append(["inspect", "in", "--json"])
        if form in ("parquet", "tar", "tfrecord") and rng.random() < 0.4:
            out.append(["adopt", "in", "--out", "out", "--json", "--on-error", "skip"])
        return out

    def go(self, seeds, wanted, until):
        forms = [form for form in seeds if seeds[form]]
        weights = [WEIGHTS[form] for form in forms]
        made = 0
        while made < wanted and time.monotonic() < until:
            form = self.rng.choices(forms, weights)[0]
            name, seed = self.rng.choice(seeds[form])
            mutants = self.made(form, name, seed, seeds[form])
            for command in self.commands(form):
                self.check(mutants, command, name)
            made += len(mutants)
            self.formats[form] += len(mutants)
            if made % 1000 < len(mutants):
                self.progress(made)
        return made

    def progress(self, made):
        print(f"{made} mutants in {time.monotonic() - self.started:.0f} s, {len(self.findings)} findings, worst {dict(self.worst)}", flush=True)

    # Damage that a format can tell.

    def integrity(self, seeds, wanted, until):
        made = 0
        rejected = 0
        while made < wanted and time.monotonic() < until:
            form, name, data, damage = self.rng.choice(seeds)
            base = name.rsplit("/", 1)[-1]
            command = ["convert", "in", "--out", "out", "--from", form, "--to", "tfrecord", "--json", "-q", "--on-error", "skip"]
            original = (f"000-{base}", data)
            ran = self.run([original], command)
            if ran.code not in (0, 3):
                continue
            known = set(frames(self.scratch / "out"))
            rejected_of_original = json.loads(ran.out.splitlines()[-1])["records_rejected"]
            mutants = [original] + [(f"{number:03}-{base}", damage(data, self.rng)) for number in range(1, self.batch)]
            ran = self.run(mutants, command)
            problem = ran.problem()
            if problem or ran.code not in (0, 3) or set(frames(self.scratch / "out")) - known:
                for mutant in mutants[1:]:
                    ran = self.run([original, mutant], command)
                    why = ran.problem()
                    if not why and ran.code in (0, 3):
                        strange = set(frames(self.scratch / "out")) - known
                        told = json.loads(ran.out.splitlines()[-1])["records_rejected"] > rejected_of_original
                        why = f"{len(strange)} records that the original does not have" if strange and not told else None
                    if why:
                        self.report(name, [original, mutant], command, why)
            elif ran.out:
                rejected += json.loads(ran.out.splitlines()[-1])["records_rejected"]
            made += len(mutants) - 1
            self.formats[form + " (integrity)"] += len(mutants) - 1
            if made % 1000 < len(mutants):
                self.progress(made)
        print(f"{rejected} rejects")
        return made

    def finish(self, made):
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.progress(made)
        print("of format:", ", ".join(f"{form} {count}" for form, count in self.formats.most_common()))
        print("ended:", ", ".join(f"{outcome} {count}" for outcome, count in self.tally.most_common()))
        for finding in self.findings:
            print(f"  {finding[:300]}")
        return 1 if self.findings else 0


def data_pages(data, rng):
    """Damages the data of one page of Parquet that has a checksum; what stands beside pages has none."""
    pages = [page for page in mutators.pages_of_parquet(data) if page[4] and page[3] > page[2]]
    _, _, start, end, _ = rng.choice(pages)
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 3])):
        out[rng.randrange(start, end)] ^= 1 << rng.randrange(8)
    return bytes(out)


def checked_seeds(seeds, shardify, scratch):
    """(format, name, bytes, how to damage) of what is under checksums."""
    out = []
    for name, data in seeds["tfrecord"]:
        out.append(("tfrecord", name, data, mutators.damage))
    texts = [(name, data) for name, data in seeds["csv"] if 2000 < len(data) < 200_000 and name.startswith("csv-real")][:4]
    for name, data in texts:
        for _, pack in mutators.WRAPPERS.values():
            out.append(("csv", f"{name}.packed", pack(data), mutators.damage))
    folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    for codec in ("zstd", "none", "snappy", "gzip", "lz4"):
        for name, data in texts:
            source, target = folder / "x.csv", folder / "out"
            source.write_bytes(data)
            shutil.rmtree(target, ignore_errors=True)
            subprocess.run([shardify, "convert", source, "--out", target, "--codec", codec, "-q"], check=True, cwd=folder)
            for shard in target.glob("*/*.parquet"):
                packed = shard.read_bytes()
                if any(page[4] for page in mutators.pages_of_parquet(packed)):
                    out.append(("parquet", f"{name}.{codec}.parquet", packed, data_pages))
    shutil.rmtree(folder)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--corpus", default=os.environ.get("SHARDIFY_CORPUS", ROOT / "../shared/corpus"))
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so long, however many there were")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--only", help="formats, with commas between")
    parser.add_argument("--integrity", action="store_true")
    parser.add_argument("--keep", default="target/mutants", help="folder for what was found")
    parser.add_argument("--scratch", default="/dev/shm" if os.path.isdir("/dev/shm") else None)
    arguments = parser.parse_args()
    corpus = pathlib.Path(arguments.corpus).resolve()
    if not corpus.is_dir():
        print(f"skipped: there is no corpus at {corpus}")
        return 0
    seeds = corpus_seeds(corpus)
    if arguments.only:
        seeds = {form: seeds[form] for form in arguments.only.split(",")}
    print("seeds:", ", ".join(f"{form} {len(found)}" for form, found in seeds.items()), flush=True)
    mutants = Mutants(arguments)
    until = time.monotonic() + 60 * arguments.minutes
    if arguments.integrity:
        made = mutants.integrity(checked_seeds(seeds, mutants.shardify, arguments.scratch), arguments.mutants, until)
    else:
        made = mutants.go(seeds, arguments.mutants, until)
    return mutants.finish(made)


if __name__ == "__main__":
    sys.exit(main())
