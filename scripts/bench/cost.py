#!/usr/bin/env python3
"""Compares what inspect says that convert will take with what it takes: seconds and bytes of shards, in rotating order.

    python3 scripts/bench/cost.py --shardify target/release/shardify [--reps 5] [--out FOLDER] [--cold] SOURCE...

Each run inspects a source, converts it as inspect advises, and removes the result. --cold empties the page cache before both, which
needs root. Sources of tables, texts and samples are made by data.py, those of arrays by arrays.py. Prints a line per source: medians, ratios of
the estimate to the truth with their smallest and largest, and what measuring took.
"""

import argparse
import json
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def empty_cache():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def run(command, cold):
    if cold:
        empty_cache()
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: {done.stderr}")
    return time.monotonic() - started, json.loads(done.stdout.splitlines()[-1])


def measure(arguments, source, out):
    took, said = run([arguments.shardify, "inspect", source, "--json"], arguments.cold)
    if "cost" not in said:
        return {"inspect": took}
    command = shlex.split(said["command"].replace("shardify", arguments.shardify, 1))
    seconds, report = run([*command, "--out", str(out), "--json"], arguments.cold)
    shutil.rmtree(out)
    cost = said["cost"]
    return {"inspect": took, "said": cost["seconds"], "seconds": seconds, "said_bytes": cost["bytes"], "bytes": report["bytes_out"],
            "said_shards": cost["shards"], "shards": report["shards_added"], "measuring": cost["sampled_seconds"],
            "sampled": cost["sampled_bytes"], "read": report["bytes_in"]}


def line(source, runs):
    if any("said" not in found for found in runs):
        return f"{source}: no estimate, inspect {statistics.median(found['inspect'] for found in runs):.2f} s"
    median = {name: statistics.median(found[name] for found in runs) for name in runs[0]}
    ratios = sorted(found["said"] / found["seconds"] for found in runs)
    sizes = sorted(found["said_bytes"] / found["bytes"] for found in runs)
    return (f"{source}: {median['read'] / 1e6:.0f} MB, said {median['said']:.2f} s, took {median['seconds']:.2f} s, "
            f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
            f"said {median['said_bytes'] / 1e6:.1f} MB in {median['said_shards']:.0f}, are {median['bytes'] / 1e6:.1f} MB in "
            f"{median['shards']:.0f}, ratio {statistics.median(sizes):.3f} ({sizes[0]:.3f} to {sizes[-1]:.3f}); "
            f"measuring {median['measuring']:.2f} s, {median['sampled'] / 1e6:.1f} MB, inspect {median['inspect']:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, help="folder for the datasets [default: a temporary one]")
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    runs = {source: [] for source in arguments.sources}
    with tempfile.TemporaryDirectory(dir=arguments.out) as folder:
        for _ in range(arguments.reps):
            for source in arguments.sources:
                runs[source].append(measure(arguments, source, pathlib.Path(folder) / "dataset"))
    for source, found in runs.items():
        print(line(source, found), flush=True)


if __name__ == "__main__":
    main()
