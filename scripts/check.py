#!/usr/bin/env python3
"""Runs checks of the built program by name: `scripts/checks/NAME.py`, each against something independent.

    python3 scripts/check.py --list
    python3 scripts/check.py find_oracle --ids 60000          # one check, with options of its own
    python3 scripts/check.py --all                            # every check, in the size that .ci/run takes
    python3 scripts/check.py --all --full                     # every check in full: many hours
    python3 scripts/check.py --all --only erase kill          # those with such a text in their name

The program is `--shardify` (default: target/release/shardify). With `--all`, `--jobs` checks run side by side, those that measure time or
memory alone; what a check prints is in `target/checks/NAME.log`. The table at the end says what ran, how long it took, and what was not
run and why: a check omits nothing without a line `NOT RUN: what: why`. Exit code 1 if a check failed.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECKS = ROOT / "scripts" / "checks"
LOGS = ROOT / "target" / "checks"
NOT_RUN = "NOT RUN: "
# Longest time for one check with `--all`, in seconds; with --full there is none.
PATIENCE = 1800


@dataclasses.dataclass(frozen=True)
class Check:
    """A script, what it shows, and its options: `sample` in CI (None: only in full), `full` for the numbers in docs/. `alone`: nothing
    runs beside it. `needs` are keys of NEEDS. `cost` is how many seconds the sample takes alone: long ones begin first. `cargo` are the
    arguments of a test that is run in place of a script."""

    script: str
    shows: str
    sample: str | None = ""
    full: str = ""
    needs: tuple = ()
    alone: bool = False
    cost: int = 60
    name: str = ""
    group: str = "values"
    cargo: str = ""
    settings: tuple = ()

    @property
    def title(self):
        return self.name or self.script


ALL = [
    Check("interop", "other people's readers get every value back", cost=120),
    Check("roundtrip", "every input to every output and back, value by value", cost=30),
    Check("corpus_check", "each file of the corpus ends with an independent count or an error, in 10 s and 1 GiB", needs=("corpus",), alone=True),
    Check("value_check", "each value and type of the corpus, to every output and back", "--jobs 1 --every 9", "--jobs 2", ("corpus",), cost=90),
    Check("rewrite_check", "each value and type after every command that rewrites, as pyarrow, DuckDB and Polars see them", "--tables 5", "--tables 200", cost=40),
    Check("zip_check", "members of zip archives are what zipfile reads; bombs, cuts and flipped bits end in errors", "--flips 120 --cuts 30", "--flips 20000 --cuts 2000", cost=20),
    Check("warc_check", "records of web archives are what warcio and FastWARC read; bombs, cuts and flipped bits end in errors", "--rounds 16 --flips 120 --cuts 30", "--rounds 1000 --flips 20000 --cuts 2000", cost=30),
    Check("avro_check", "Avro files are what fastavro reads, in every codec; bombs, cuts and flipped bits end in errors or rejects", "--files 36 --flips 120 --cuts 30", "--files 3000 --flips 20000 --cuts 3000", cost=30),
    Check("excel_check", "sheets of workbooks have the values that openpyxl, xlrd and calamine read; bombs, cuts and flips end in errors", "--books 25 --flips 25 --cuts 15", "--books 2000 --flips 3000 --cuts 500", cost=40),
    Check("stream_check", "tables of pyarrow, Polars, DuckDB, pandas, ADBC and others arrive whole or not at all, and the same rows are known in any batches", "--tables 12 --cuts 25 --rows 300 --batches 3", "--tables 400 --cuts 1000 --rows 5000 --batches 20", cost=40),
    Check("dirty_csv", "damaged delimited text is read right, refused, or told", "--alone", "", cost=40),
    Check("situations_check", "files as people have them become the records that they mean, or a message says what to do", "", "", cost=5),
    Check("dialect_check", "CSV in stated dialects, value by value as it was written and as DuckDB reads it", "--rounds 40", "--rounds 2000", cost=15),
    Check("types_check", "types and values are what pyarrow and DuckDB saw before, through every output and compact", cost=5),
    Check("where_check", "conditions keep the rows that DuckDB keeps, and one column of 17 reads few bytes", "--tables 20", "--tables 400", cost=60),
    Check("split_check", "no subject is in two splits, as other readers see them", "--subjects 20000", "", cost=10),
    Check("dedup_check", "duplicates are those of DuckDB's DISTINCT, in every format, in one run and in two", "", "--rounds 20", cost=25),
    Check("diff_check", "a diff tells the changed records that DuckDB finds, whether hashes are stored or not", "--rounds 12", "--rounds 300", cost=15),
    Check("shuffle_check", "shuffled records are in a uniform order, each of them once, as other readers see them", "--rows 60000 --seeds 12", "", cost=20),
    Check("order_check", "orders of training loaders are those of the format, in Python and in Rust, in both directions", "--sets 300", "", cost=30),
    Check("order_statistics", "orders of training loaders are as random as uniform permutations, and mix sorted data as stated", "--keys 10000 --pairs 50 --epochs 8", "",
          cost=40),
    Check("reshard_check", "datasets that are cut anew hold the chosen records for other readers, and nothing of the others", "--rounds 16", "--rounds 600", cost=30),
    Check("training_check", "random sequences of all that makes a training set, against a model and other readers", "--sequences 12", "", cost=30),
    Check("runs_check", "a dataset made in several runs is that of one run for every reader, and merges change no type", "--rounds 12", "--rounds 200", cost=40),
    Check("agree_check", "inspect, dry runs, history and report agree with convert about files of the corpus", "--every 20", "", ("corpus",), cost=30),
    Check("arrays_check", "arrays, value for value and mask for mask, against numpy, netCDF4, h5py and zarr", cost=90),
    Check("safetensors_check", "tensors are what safetensors reads; cuts, flipped bits and hostile headers end in errors", "--files 20 --flips 100 --cuts 30", "--files 400 --flips 5000 --cuts 2000", cost=15),
    Check("nifti_check", "volumes of NIfTI are what nibabel reads; cuts, flipped bits, hostile headers and bombs end in errors", "--files 30 --flips 100 --cuts 20", "--files 600 --flips 5000 --cuts 2000", cost=25),
    Check("report_check", "the numbers of a report are DuckDB's over the live shards, and its page fits 400 and 1,400 pixels", "--rows 150000", "--rows 2000000", cost=40),
    Check("rules_check", "rules of `check` hold where DuckDB counts no record that breaks them", "--rounds 2", "--rounds 40 --rows 50000", cost=15),
    Check("bench_check", "`bench` agrees with loops that are written for the purpose, and its page fits 400 and 1,400 pixels", "--rounds 1 --seconds 0.3", "--rates --rounds 9",
          alone=True, cost=60),
    Check("events_check", "with --json, each line of standard error is an event of the published schema", cost=20),
    Check("splice_check", "compacted Parquet files of the corpus, as other readers see them", "", "--all-codecs", ("corpus",)),
    Check("index_check", "indexes for training tools, with offsets derived anew and the tools' own readers", cost=15),
    Check("mirror_check", "Delta logs, at every version, by delta-rs, DuckDB, Polars, ClickHouse and Sail", "--rounds 2", "--rounds 60 --steps 60 --types", cost=40),
    Check("folder_check", "stock readers that are given the folder of a dataset find its shards and nothing else", cost=30),
    Check("card_check", "dataset cards, by Hugging Face datasets, loaded and streamed", "--rounds 2", "--rounds 40 --steps 40", cost=15),
    Check("adopt_check", "shards of webdataset, tfrecord, pyarrow and DuckDB become datasets", cost=15),
    Check("python_check", "the Python package, its types, and its wheel in an environment of its own", alone=True, cost=20),
    Check("readers_table", "the table of README.md says what stock readers read", cost=60),
    Check("loaders_check", "the snippets of the training guides print what they say; ranks and workers get each record once", cost=60),
    Check("examples_check", "the examples run, and print what follows from their inputs", cost=15),
    Check("runners_check", "conversions on process pools, Dask, Ray and Spark give the shards of `convert`", "--rounds 1", "--rounds 5", cost=25),
    Check("ray_faults", "conversions on Ray whose nodes, workers and drivers are killed, frozen and doubled", "--rounds 5", "--rounds 20", cost=60),
    Check("cluster_check", "a Slurm array with killed tasks gives the shards of `convert`; Kubernetes takes the Job", "--rounds 1", "--rounds 5", cost=30),
    Check("labels_check", "labels beside files are what webdataset, tfrecord, pyarrow and Hugging Face datasets read", cost=15),
    Check("five_tasks_check", "five tasks of a new user in three commands each, read by webdataset and pyarrow", cost=5),
    Check("first_day_check", "five tasks from nothing in three commands and ten lines of Python each, against independent counts", cost=10),
    Check("delta_check", "Delta tables, in every version and while they change, are what delta-rs reads", "--tables 6", "--tables 100", cost=60),
    Check("delta_compact_check", "compacted Delta tables, at every version, by delta-rs, DuckDB, Polars, ClickHouse and Sail, and beside delta-rs that writes", "--rounds 2 --commits 20", "--rounds 40 --commits 200", cost=60),
    Check("delta_vacuum_check", "vacuumed Delta tables, at every retained version, beside vacuum of delta-rs", "--rounds 5", "--rounds 100", cost=40),
    Check("lineage_check", "history, lineage and proofs, by validators of others", needs=("lineage",), group="ids"),
    Check("training_runs_check", "which steps saw a record is what its trainer wrote down, whatever happened to the dataset since", "--rounds 5", "--rounds 400", group="ids", cost=60),
    Check("find_oracle", "lookups and erasures find exactly the rows of each id", "--ids 6000 --erase-ids 60", "--ids 60000", group="ids", cost=50),
    Check("index_ids", "nasty ids are found, and no others; the SQL of the format answers the same", "", "--ids 1000000", group="ids", cost=25),
    Check("erase_check", "who was erased is in no byte of any version, and stays out; killed, it is finished", "--rows 600 --rounds 2", group="ids", cost=80),
    Check("erase_beside", "erasures beside converters, a compactor and a vacuum", "--erasures 6 --converters 3", group="ids", cost=20),
    Check("dictionary_attack", "guesses of all records against private datasets", "--patients 40 --formats parquet", "--patients 200", group="ids", cost=8),
    Check("flip_check", "a flipped bit anywhere is found, and nothing answers from it", "--flips 250", "--flips 10000", group="reliability", cost=60),
    Check("fields_check", "datasets that somebody else made change nothing outside of them, whatever any field says", "--rounds 100", "--rounds 100000 --jobs 2", group="reliability", cost=40),
    Check("kill_test", "killed at any moment, nothing is lost", "--rounds 30", "--rounds 500", group="reliability", cost=70),
    Check("plans_check", "plans whose processes are killed, and commits beside other commands", "--rounds 4", "--rounds 200", group="reliability", cost=40),
    Check("plans_check", "the same on S3", "--rounds 1 --store s3", "--rounds 100 --store s3", name="plans-s3", group="reliability", cost=60),
    Check("pull_check", "pulls that are killed, meet, run out of space or read damage leave a whole copy or none", "--rounds 12", "--rounds 500", group="reliability", cost=40),
    Check("pull_check", "the same from S3", "--rounds 6 --store s3", "--rounds 100 --store s3", name="pull-s3", group="reliability", cost=40),
    Check("mutants", "files damaged where their lengths lie end in errors", "--mutants 300", "--mutants 50000", ("corpus",), group="reliability"),
    Check("syscall_sweep", "each system call is killed, fails, or is short", "--sample 1", "", ("tracer",), name="sweep", group="reliability", cost=110),
    Check("power_cuts", "the power goes out after each call", "--cuts 12", "--cuts 500", ("tracer",), name="cuts", group="reliability"),
    Check("faulty_store", "a proxy before S3 spoils requests and answers", "--runs 24", "--runs 1000", group="reliability"),
    Check("faulty_store", "the same before Azure", None, "--runs 200 --store azure", name="azure", group="reliability"),
    Check("ward", "30 days of a hospital ward, against a model", "--wards 1", "--wards 50", group="reliability"),
    Check("stress", "eight writers, compact, erase, vacuum and a reader at once", "--rounds 5 --retain 3", "--rounds 200", alone=True, group="reliability"),
    Check("stress", "the same with kills", "--rounds 3 --kills 0.2 --formats parquet", "--rounds 200 --kills 0.2", alone=True, name="stress-kills",
          group="reliability"),
    Check("stress", "the same with kills, on S3", "--rounds 2 --kills 0.2 --store s3 --formats parquet", "--rounds 200 --kills 0.2 --store s3",
          alone=True, name="stress-s3", group="reliability"),
    Check("model", "ten thousand sequences of commands against a model; cargo test has a sample", None, group="reliability",
          cargo="test --release --test histories model -- --nocapture", settings=(("SHARDIFY_SEED", "1"), ("SHARDIFY_SEQUENCES", "10000"))),
    Check("schedule", "every order of two commands; cargo test has a sample", None, group="reliability",
          cargo="test --release --test histories schedule -- --nocapture", settings=(("SHARDIFY_SEED", "1"), ("SHARDIFY_SCHEDULE", "all"))),
    Check("many_files", "a million files in 512 MiB, or a quarter in a quarter", "--files 250000 --memory 128MiB", "--files 1000000", alone=True, group="scale"),
    Check("many_parquet", "10 large and many small Parquet files compacted in 512 MiB, 64 of them open", "--files 10,20000", "--files 10,100000",
          alone=True, group="scale"),
    Check("growth_check", "what many small commits cost in bytes and requests, and what vacuum leaves of them", "--commits 200 --delay 0.003", "--commits 10000",
          group="scale", cost=30),
    Check("delta_replay", "the log of a Delta table of 100,000 files, or a fifth, is read in 2 s and 512 MiB", "--files 20000 --commits 200", "", alone=True, group="scale"),
    Check("stores_check", "S3 and Azure: same bytes as locally, failures, no secrets", "--files 4000 --azure-files 300", "--azure-files 2000", group="stores", cost=150),
]  # fmt: skip


def corpus():
    return pathlib.Path(os.environ.get("SHARDIFY_CORPUS") or ROOT.parent / "shared" / "corpus").resolve()


def needs_corpus():
    return None if (corpus() / "ORACLE.tsv").is_file() else "there is no corpus; name its folder in SHARDIFY_CORPUS"


def needs_lineage():
    return None if interpreter("lineage") else "target/venv-lineage is missing; .ci/run makes it"


def needs_tracer():
    if os.uname().sysname != "Linux" or os.uname().machine != "x86_64":
        return "the tracer needs x86-64 Linux"
    return None if shutil.which("cc") else "the tracer needs a C compiler"


NEEDS = {"corpus": needs_corpus, "lineage": needs_lineage, "tracer": needs_tracer}


def interpreter(kind):
    """Python with the packages of a kind of checks; None if it is missing."""
    path = ROOT / "target" / {"lineage": "venv-lineage", "": "venv"}[kind] / "bin" / "python"
    return path if path.is_file() else None


def path(script):
    found = CHECKS / f"{script}.py"
    return found if found.is_file() else ROOT / "scripts" / f"{script}.py"


def not_needed(check):
    """Why a check cannot run here; None if it can."""
    return next((why for why in (NEEDS[need]() for need in check.needs) if why), None)


def command(check, shardify, options):
    if check.cargo:
        return ["cargo", *shlex.split(check.cargo)]
    python = interpreter("lineage" if "lineage" in check.needs else "") or sys.executable
    return [str(python), str(path(check.script)), "--shardify", str(pathlib.Path(shardify).resolve()), *options]


def environment(check):
    found = {**os.environ, **dict(check.settings), "PYTHONPATH": str(CHECKS)}
    if needs_corpus() is None:
        found["SHARDIFY_CORPUS"] = str(corpus())
    return found


@dataclasses.dataclass
class Result:
    check: Check
    seconds: float = 0.0
    processor: float = 0.0
    code: int = 0
    left_out: tuple = ()

    @property
    def outcome(self):
        return "not run" if self.code is None else "ok" if self.code == 0 else f"FAILED ({self.code})"


class Runs:
    """Checks side by side, their logs, and their results."""

    def __init__(self, options):
        self.options, self.lock, self.results = options, threading.Lock(), []
        LOGS.mkdir(parents=True, exist_ok=True)

    def one(self, check):
        why = not_needed(check)
        if check.sample is None and not self.options.full:
            why = "only with --full"
        if why:
            return self.ended(Result(check, code=None, left_out=(f"{check.title}: {why}",)), "")
        words = shlex.split(check.full or check.sample or "") if self.options.full else shlex.split(check.sample)
        if check.title in ("stores_check", "azure") and self.options.azurite:
            words += ["--azurite", self.options.azurite]
        log = LOGS / f"{check.title}.log"
        started = time.monotonic()
        with open(log, "wb") as out:
            process = subprocess.Popen(
                command(check, self.options.shardify, words), stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment(check)
            )
            watch = threading.Timer(PATIENCE, process.kill)
            if not self.options.full:
                watch.start()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            watch.cancel()
        text = log.read_text(errors="replace")
        left_out = tuple(f"{check.title}: {line[len(NOT_RUN):]}" for line in text.splitlines() if line.startswith(NOT_RUN))
        seconds = time.monotonic() - started
        return self.ended(Result(check, seconds, usage.ru_utime + usage.ru_stime, process.returncode, left_out), text)

    def ended(self, result, text):
        with self.lock:
            self.results.append(result)
            print(f"{result.outcome:12} {result.check.title:18} {result.seconds:7.1f} s  {result.check.shows}", flush=True)
            if result.code:
                print("\n".join(f"    {line}" for line in text.splitlines()[-40:]), flush=True)

    def all(self, checks):
        beside = sorted((check for check in checks if not check.alone), key=lambda check: -check.cost)
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(self.one, beside))
        for check in checks:
            if check.alone:
                self.one(check)

    def table(self):
        """Prints what ran and what did not; returns the exit code."""
        print(f"\n{'check':18} {'outcome':12} {'seconds':>8} {'processor':>10}")
        for result in sorted(self.results, key=lambda result: -result.seconds):
            print(f"{result.check.title:18} {result.outcome:12} {result.seconds:8.1f} {result.processor:10.1f}")
        left_out = collections.Counter(line for result in self.results for line in result.left_out)
        for line, times in left_out.items():
            print(f"{NOT_RUN}{line}{f' ({times} times)' if times > 1 else ''}")
        failed = [result.check.title for result in self.results if result.code]
        print(f"failed: {', '.join(failed)}" if failed else f"passed: {sum(result.code == 0 for result in self.results)} checks")
        return 1 if failed else 0


def listing():
    for check in sorted(ALL, key=lambda check: check.group):
        print(f"{check.title:18} {check.group:12} {check.shows}")
        sample = "not run" if check.sample is None else check.sample or "no options"
        print(f"{'':31}   CI: {sample}; full: {check.full or 'the same'}")
    others = sorted(path.stem for path in CHECKS.glob("*.py") if "argparse" in path.read_text())
    print("\nby name only: " + ", ".join(name for name in others if name not in {check.script for check in ALL}))
    return 0


def by_name(arguments):
    """Runs one check with its own options, in the foreground."""
    name, *options = arguments
    check = next((check for check in ALL if name in (check.title, check.script)), Check(name, ""))
    if not check.cargo and not path(check.script).is_file():
        print(f"there is no check {name}; `python3 scripts/check.py --list` names them", file=sys.stderr)
        return 2
    why = not_needed(check)
    if why:
        print(f"{NOT_RUN}{check.title}: {why}")
        return 1
    shardify = "target/release/shardify"
    if "--shardify" in options:
        at = options.index("--shardify")
        shardify, options = options[at + 1], options[:at] + options[at + 2 :]
    return subprocess.run(command(check, shardify, options), cwd=ROOT, env=environment(check)).returncode


def main():
    if sys.argv[1:] and re.fullmatch(r"[a-z_-]+", sys.argv[1]) and not sys.argv[1].startswith("-"):
        return by_name(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", default=ROOT / "target" / "release" / "shardify")
    parser.add_argument("--list", action="store_true", help="print the checks and their options")
    parser.add_argument("--all", action="store_true", help="run every check")
    parser.add_argument("--full", action="store_true", help="in full")
    parser.add_argument("--only", nargs="+", default=[], help="parts of names, or groups")
    parser.add_argument("--without", nargs="+", default=[], help="parts of names, or groups")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="checks that run side by side")
    parser.add_argument("--azurite", help="folder that has Azurite, or is to have it")
    options = parser.parse_args()
    if options.list or not options.all:
        return listing()
    has = lambda check, texts: any(text in (check.group, check.script) or text in check.title for text in texts)
    chosen = [check for check in ALL if (not options.only or has(check, options.only)) and not has(check, options.without)]
    runs = Runs(options)
    try:
        runs.all(chosen)
    finally:
        code = runs.table()
    return code


if __name__ == "__main__":
    sys.exit(main())
