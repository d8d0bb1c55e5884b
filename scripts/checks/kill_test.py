#!/usr/bin/env python3
"""Killed at any moment, nothing is lost.

Measures a full run, then starts it again and again and kills it with SIGKILL at random moments. After each kill the
dataset has to verify, the same command has to finish the work, and the records have to be the expected ones. First for
convert, then for compact.

    python3 scripts/checks/kill_test.py --shardify target/release/shardify --rounds 50 [--seed N]

Prints a line per round, then `N passed, N failed`; exit code 1 if one failed. Needs nothing but Python.
"""

import argparse
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

import harness
from harness import Failure, finish

CSV_FILES = 5
CSV_BYTES = 4_000_000
SMALL_FILES = 2_000
BATCHES = 8
ROWS_PER_BATCH = 20_000


class Shardify:
    """The program under test, which can be killed."""

    def __init__(self, binary):
        self.binary = str(pathlib.Path(binary).resolve())

    def command(self, *arguments):
        return [self.binary, *map(str, arguments), "--json", "--progress", "never"]

    def run(self, *arguments):
        """Runs to the end and returns the summary."""
        return harness.objects(self.binary, *arguments, "--progress", "never")[-1]

    def kill_after(self, seconds, *arguments):
        """Starts the command and kills it. Returns whether it was still running."""
        process = subprocess.Popen(self.command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return True
        if process.returncode != 0:
            raise Failure(f"`{' '.join(map(str, arguments))}` ended with {process.returncode}")
        return False


def write_csv(path, rng, rows, first):
    words = ["stable", "improving", "discharged, well", 'said "fine"', "", "naïve"]
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write("id,patient,day,value,note\n")
        for row in range(first, first + rows):
            note = rng.choice(words).replace('"', '""')
            day = f"20{rng.randrange(10, 26)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
            file.write(f'{row},PAT-{rng.randrange(100_000):05},{day},{rng.random():.6f},"{note}"\n')


def write_inputs(root, rng):
    """Tables, files and batches for compaction. Returns the number of records of each."""
    rows = CSV_BYTES // 45
    (root / "tables").mkdir()
    for number in range(CSV_FILES):
        write_csv(root / "tables" / f"{number}.csv", rng, rows, number * rows)
    for number in range(SMALL_FILES):
        folder = root / "files" / f"{number % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05}.bin").write_bytes(rng.randbytes(rng.randrange(3_000)))
        (folder / f"{number:05}.txt").write_text(f"file {number}\n")
    (root / "batches").mkdir()
    for number in range(BATCHES):
        write_csv(root / "batches" / f"{number}.csv", rng, ROWS_PER_BATCH, number * ROWS_PER_BATCH)
    return {"tables": CSV_FILES * rows, "files": SMALL_FILES, "batches": BATCHES * ROWS_PER_BATCH}


def check(shardify, dataset, records=None):
    """The dataset verifies, and holds these many records if that is known."""
    if not dataset.exists():
        if records is None:
            return
        raise Failure(f"{dataset} is missing")
    shardify.run("verify", dataset, "--read-data")
    if records is None:
        return
    summary = shardify.run("manifest", dataset)
    if summary["records"] != records:
        raise Failure(f"expected {records} records, found {summary['records']}")


class Scenario:
    """A command that is killed, the dataset it starts from, and the records that have to be there in the end."""

    def __init__(self, name, records, arguments, start=None):
        self.name, self.records, self.arguments, self.start = name, records, arguments, start

    def prepare(self, dataset):
        shutil.rmtree(dataset, ignore_errors=True)
        if self.start:
            shutil.copytree(self.start, dataset)

    def duration(self, shardify, dataset):
        self.prepare(dataset)
        started = time.monotonic()
        shardify.run(*self.arguments(dataset))
        seconds = time.monotonic() - started
        check(shardify, dataset, self.records)
        return seconds

    def round(self, shardify, dataset, seconds):
        """Kills once, looks, finishes, looks again. Returns what to print."""
        self.prepare(dataset)
        killed = shardify.kill_after(seconds, *self.arguments(dataset))
        # Compaction moves records; until it is done they are where they were.
        check(shardify, dataset, self.records if self.start else None)
        shardify.run(*self.arguments(dataset))
        check(shardify, dataset, self.records)
        return "killed" if killed else "was done before"


def scenarios(shardify, root, records):
    for name, stored in (("tables", "parquet"), ("tables", "tfrecord"), ("files", "tar")):
        source = root / name

        def convert(dataset, source=source, stored=stored):
            return ["convert", source, "--out", dataset, "--to", stored, "--target-shard", "1MiB"]

        yield Scenario(f"convert {name} to {stored}", records[name], convert)
    for stored in ("parquet", "tar"):
        start = root / f"many-{stored}"
        for batch in sorted((root / "batches").glob("*.csv")):
            shardify.run("convert", batch, "--out", start, "--to", stored, "--target-shard", "256KiB")

        def compact(dataset):
            return ["compact", dataset, "--target-shard", "8MiB"]

        yield Scenario(f"compact {stored}", records["batches"], compact, start)


def run_scenario(shardify, scenario, dataset, rounds, rng):
    """Returns how many rounds passed and how many failed."""
    failed = 0
    try:
        full = scenario.duration(shardify, dataset)
    except Failure as failure:
        print(f"FAIL  {scenario.name}, undisturbed: {failure}", flush=True)
        return 0, 1
    print(f"      {scenario.name}: {scenario.records} records, {full:.2f} s undisturbed", flush=True)
    for number in range(1, rounds + 1):
        moment = rng.uniform(0, full * 1.05)
        title = f"{scenario.name}, round {number}, after {moment:.3f} s"
        try:
            print(f"ok    {title}: {scenario.round(shardify, dataset, moment)}", flush=True)
        except (Failure, subprocess.TimeoutExpired) as failure:
            failed += 1
            print(f"FAIL  {title}: {failure}", flush=True)
    return rounds - failed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--rounds", type=int, default=50, help="kills in all")
    parser.add_argument("--seed", type=int, default=1, help="of inputs and moments")
    options = parser.parse_args()
    rng, shardify = random.Random(options.seed), Shardify(options.shardify)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        todo = list(scenarios(shardify, root, write_inputs(root, rng)))
        for number, scenario in enumerate(todo):
            # All rounds, shared out over the scenarios.
            rounds = (options.rounds + len(todo) - 1 - number) // len(todo)
            good, bad = run_scenario(shardify, scenario, root / "ds", rounds, rng)
            passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    finish(main)
