#!/usr/bin/env python3
"""`vacuum` of Delta tables beside `vacuum` of delta-rs.

Random tables that delta-rs and `compact` write, with commits that are made to look days old. What `vacuum` deletes is what a model of the log
says, and includes what delta-rs would delete: the files that were removed before the retention and that are not live. Every version
since then is read as before by delta-rs and Polars, the newest one by DuckDB as well. Files that the log does not name stay, whatever their
names; a second run finds nothing; kills leave a table that the next run finishes. A writer whose clock is wrong makes nothing expire early.

    python3 scripts/checks/delta_vacuum_check.py --shardify target/release/shardify [--rounds 10]
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time
import urllib.parse

import deltalake

from delta_check import by_delta_rs
from delta_compact_check import Random, actions_of, commits_of, readers, same, taken, tree_of
from harness import OK, USAGE, Failure, Shardify, expect, finish

HOUR = 3_600_000


def age(folder, rng):
    """Makes the commits of a table, and the files that they add, hours apart; returns the time of each version in milliseconds."""
    versions, now, times = commits_of(folder), int(time.time() * 1000), {}
    at = now
    for version in reversed(versions):
        at -= rng.randint(1, 20) * HOUR
        times[version] = at
    for version in versions:
        path = folder / "_delta_log" / f"{version:020d}.json"
        actions = actions_of(folder, version)
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = times[version]
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = times[version]
            if "add" in action:
                action["add"]["modificationTime"] = times[version]
                os.utime(folder / urllib.parse.unquote(action["add"]["path"]), (times[version] / 1000,) * 2)
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
        os.utime(path, (times[version] / 1000,) * 2)
    return times


def expired(folder, times, cutoff):
    """Files that were removed by the cutoff and are not live, and the oldest version that needs none of them."""
    removed, live = {}, set()
    for version in commits_of(folder):
        for action in actions_of(folder, version):
            if "remove" in action:
                path = urllib.parse.unquote(action["remove"]["path"])
                removed[path] = times[version]
                live.discard(path)
            if "add" in action:
                live.add(urllib.parse.unquote(action["add"]["path"]))
    files = sorted(path for path, at in removed.items() if at <= cutoff and path not in live)
    return files, max((version for version, at in times.items() if at <= cutoff), default=0)


def plant(folder):
    """Files that no log names, with the names of others; all are old."""
    partition = next((path for path in folder.iterdir() if path.is_dir() and "=" in path.name), folder)
    names = ["notes.txt", "part-00000-orphan.parquet", "_secret/a.parquet", ".hidden", "_temporary/0/part.parquet", "deletion_vector_orphan.bin",
             "_change_data/cdc-orphan.parquet"]
    planted = [folder / name for name in names] + [partition / "part-orphan.parquet"]
    for path in planted:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("mine")
        os.utime(path, (1, 1))
    return planted


def check_random(shardify, work, seed, others):
    folder, rng = work / f"vacuum{seed}", random.Random(seed)
    table = Random(folder, seed)
    for _ in range(rng.randint(4, 25)):
        table.step()
        if rng.random() < 0.2:
            order = rng.choice([(), ("--sort-by", "n"), ("--zorder", "n,x")])
            code, _, errors = shardify.run("compact", folder, "--min-inputs", "2", *order)
            expect(f"seed {seed}: compact ({errors})", code, OK)
    checkpoints = list((folder / "_delta_log").glob("*checkpoint*"))
    for path in checkpoints:
        path.unlink()
    times = age(folder, rng)
    if checkpoints:
        deltalake.DeltaTable(str(folder)).create_checkpoint()
    planted = plant(folder)
    before = {version: by_delta_rs(folder, version) for version in commits_of(folder)}
    hours = rng.choice([0, 5, 24, 24 * 7, 24 * 30])
    cutoff = int(time.time() * 1000) - hours * HOUR
    wanted, oldest = expired(folder, times, cutoff)
    theirs = deltalake.DeltaTable(str(folder)).vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=True)
    theirs = sorted(urllib.parse.unquote(path) for path in theirs)
    what = f"seed {seed}, {len(before)} versions, {hours} h"
    retain = ("--retain", f"{hours}h" if hours else "0", "--force")
    if hours < 24 * 7:
        code, _, errors = shardify.run("vacuum", folder, *retain[:2])
        expect(f"{what}: less than the table states ({errors})", code, USAGE)
    tree = tree_of(folder)
    code, planned, errors = shardify.run("vacuum", folder, *retain, "--dry-run")
    expect(f"{what}: exit code ({errors})", code, OK)
    expect(f"{what}: tree after --dry-run", tree_of(folder), tree)
    found = [one["path"] for one in planned if one.get("type") == "object"]
    expect(f"{what}: files", found, wanted)
    missed = [path for path in theirs if path not in found and (folder / path).exists()]
    expect(f"{what}: files that delta-rs alone would delete", missed, [])
    kills = 0
    while rng.random() < 0.5:
        process = subprocess.Popen(shardify.command("vacuum", folder, *retain), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.05)
        process.kill()
        process.wait()
        kills += 1
    code, objects, errors = shardify.run("vacuum", folder, *retain)
    expect(f"{what}: exit code ({errors})", code, OK)
    summary = objects[-1]
    expect(f"{what}: files left", [path for path in wanted if (folder / path).exists()], [])
    left = set(tree_of(folder))
    gone = [path for path in tree if path not in left]
    expect(f"{what}: files gone", gone, wanted)
    expect(f"{what}: planted files", [path for path in planted if not path.exists() or path.read_text() != "mine"], [])
    # Commits of runs that were killed are versions, too.
    expect(f"{what}: readable", min(summary["retained_from"], len(before) - 1), oldest)
    for version in range(oldest, len(before)):
        same(f"{what}: version {version}", by_delta_rs(folder, version), before[version])
    newest = before[max(before)]
    same(f"{what}: newest", by_delta_rs(folder), newest)
    for name, read in others.items():
        some = lambda table: table.select(taken(name, newest).column_names)
        same(f"{what}: {name}", some(read(folder, None)), some(newest))
    if summary["files_deleted"]:
        history = deltalake.DeltaTable(str(folder)).history()
        expect(f"{what}: history", [one["operation"] for one in history[:2]], ["VACUUM END", "VACUUM START"])
        expect(f"{what}: deleted files in the log", int(history[0]["operationMetrics"]["numDeletedFiles"]), summary["files_deleted"])
    code, objects, errors = shardify.run("vacuum", folder, *retain)
    expect(f"{what}: a second run ({errors})", (code, objects[-1]["files_deleted"], objects[-1]["version"]), (OK, 0, summary["version"]))
    # The table's own tools go on.
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    deltalake.DeltaTable(str(folder)).vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False)
    same(f"{what}: after delta-rs", by_delta_rs(folder), newest)
    return len(wanted), kills, theirs == wanted


def check_clocks(shardify, work):
    """A writer whose clock is behind or ahead by a month."""
    for days, name in ((-30, "behind"), (30, "ahead")):
        folder = work / name
        table = Random(folder, 5)
        deltalake.write_deltalake(folder, table.rows(50))
        deltalake.write_deltalake(folder, table.rows(50), mode="overwrite")
        path = folder / "_delta_log" / f"{1:020d}.json"
        actions = actions_of(folder, 1)
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] += days * 24 * HOUR
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
        code, objects, errors = shardify.run("vacuum", folder, "--retain", "7d")
        expect(f"{name}: ({errors})", (code, objects[-1]["files_deleted"]), (OK, 0))
        if days > 0 and "after the present" not in errors:
            raise Failure(f"a removal in the future is not told: {errors}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    shardify = Shardify(options.shardify)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        others = readers()
        done = []
        for seed in range(options.seed, options.seed + options.rounds):
            done.append(check_random(shardify, work, seed, others))
            shutil.rmtree(work / f"vacuum{seed}")
        print(f"{len(done)} random tables, {sum(one[0] for one in done)} files deleted, {sum(one[1] for one in done)} runs killed; "
              f"the same files as delta-rs in {sum(one[2] for one in done)}; readers: delta-rs {' '.join(others)}", flush=True)
        check_clocks(shardify, work)
        print("clocks of writers that are a month behind or ahead: nothing deleted", flush=True)


if __name__ == "__main__":
    finish(main)
