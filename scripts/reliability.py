#!/usr/bin/env python3
"""Everything that breaks things on purpose, one after the other: a sample, or the numbers of docs/RELIABILITY.md.

    python3 scripts/reliability.py --shardify target/release/shardify [--full] [--only sweep cuts] [--seed N] [--azurite DIR]

`histories` needs cargo, `store` and `stress` the packages of scripts/requirements.txt. Prints what it starts, its seed and how long
it took; exit code 1 if anything failed.
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import time

# What is known not to hold (docs/CORRECTNESS.md); left out of the sample.
UNMET = {
    "sweep": (),
    "cuts": (),
}
TASKS = ("convert-new", "convert", "compact", "sort", "erase", "erase-all", "adopt", "adopt-in-place", "vacuum", "tag")

HERE = pathlib.Path(__file__).resolve().parent


def steps(options):
    """(name, command, environment) of each step."""
    full, seed = options.full, str(options.seed)
    script = lambda name, *words: [sys.executable, HERE / f"{name}.py", "--shardify", options.shardify, "--seed", seed, *words]
    cargo = ["cargo", "test", "--release", "--test", "histories"]
    show = ["--", "--nocapture"]
    counts = {"SHARDIFY_SEED": seed}
    sequences = {**counts, "SHARDIFY_SEQUENCES": "10000"}
    if full:
        # Without --full `cargo test` has run a sample of these two.
        yield "model", [*cargo, "model", *show], sequences
        yield "schedule", [*cargo, "schedule", *show], {**counts, "SHARDIFY_SCHEDULE": "all"}
    met = lambda name: ["--tasks", *(task for task in TASKS if full or task not in UNMET[name])]
    yield "sweep", script("syscall_sweep", *([] if full else ["--sample", "2"]), *met("sweep")), {}
    yield "cuts", script("power_cuts", "--cuts", "500" if full else "12", *met("cuts")), {}
    yield "store", script("faulty_store", "--runs", "1000" if full else "24"), {}
    if full and options.azurite:
        yield "azure", script("faulty_store", "--runs", "200", "--store", "azure", "--azurite", options.azurite), {}
    yield "ward", script("ward", "--wards", "50" if full else "1"), {}
    yield "dictionary", script("dictionary_attack", *([] if full else ["--patients", "40", "--formats", "parquet"])), {}
    for store in ("local", "s3"):
        rounds = "200" if full else "3"
        formats = ["tar", "parquet", "tfrecord"] if full else ["parquet"]
        words = ["--rounds", rounds, "--kills", "0.2", "--store", store, "--formats", *formats]
        yield f"stress-{store}", script("stress", *words), {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--full", action="store_true", help="the full numbers, which take hours")
    parser.add_argument("--only", nargs="+", help="names of steps")
    parser.add_argument("--without", nargs="+", default=[], help="names of steps")
    parser.add_argument("--azurite", help="folder that has Azurite, or is to have it")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = []
    for name, command, environment in steps(options):
        if (options.only and name not in options.only) or name in options.without:
            continue
        words = [f"{key}={value}" for key, value in environment.items()] + [shlex.quote(str(word)) for word in command]
        print(f"\n-- {name}: {' '.join(words)}", flush=True)
        started = time.monotonic()
        done = subprocess.run(list(map(str, command)), env={**os.environ, **environment}, cwd=HERE.parent)
        print(f"-- {name}: {'ok' if done.returncode == 0 else 'FAILED'}, {time.monotonic() - started:.0f} s", flush=True)
        if done.returncode != 0:
            failed.append(name)
    print(f"\nfailed: {', '.join(failed)}" if failed else "\npassed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
