#!/usr/bin/env python3
"""Every call to the kernel fails once: each open, write, sync, rename, link, mkdir and unlink of each command.

A tracer (scripts/checks/syscalls.c, built with cc) runs a command and spoils call N of those that concern files below the folder: the
process is killed before it, it returns EIO or ENOSPC, or it writes half of what it was given. For every N, every command and
every format; runs make some ten shards. Files that are only read fail with EIO alone. Afterwards the last version can be read, or the next one whole; an error is told as
one of storage, with an exit code that says so; run again, the command finishes; a vacuum leaves nothing; files of the user's
are as they were.

    python3 scripts/checks/syscall_sweep.py --shardify target/release/shardify [--formats tar] [--tasks convert erase-all]
        [--faults kill eio enospc short] [--sample 40] [--seed N]

Prints a line per command, fault and format and one per failure; exit code 1 if there was one. x86-64 Linux only.
"""

import argparse
import collections
import json
import os
import pathlib
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time

from harness import FORMATS, OK, STORAGE, Failure, Shardify, copied, finish, not_run, tasks

FAULTS = ("kill", "eio", "enospc", "short")
WRITES = ("write", "pwrite64")
CHANGES = (*WRITES, "rename", "unlink", "link")
KILLED = 128 + 9


def makes_a_difference(fault, call):
    """Whether a fault at this call leaves another state than at the next one. Opening a file to read it changes nothing, so
    that a kill there is one at the next call that changes something, and needs no space."""
    if fault == "short":
        return call["call"] in WRITES
    reads = call["call"].startswith("openat") and not call["flags"] & os.O_CREAT
    return fault == "eio" or not reads


def must_change(calls):
    """A command that changes nothing cannot be disturbed, and its test shows nothing."""
    if not any(call["call"].startswith(CHANGES) for call in calls):
        raise Failure("undisturbed, it changes nothing")


def build(folder):
    """Builds the tracer."""
    source = pathlib.Path(__file__).with_name("syscalls.c")
    program = pathlib.Path(folder) / "syscalls"
    subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
    return str(program)


def fast_folder():
    return "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None


class Sweep:
    """All calls of one task."""

    def __init__(self, shardify, tracer, task, start, canaries, root):
        self.shardify, self.tracer, self.task, self.start, self.canaries = shardify, tracer, task, start, canaries
        self.root = root

    def run(self, *options):
        """Runs the task in a fresh copy under the tracer; returns exit code and standard error."""
        copied(self.start, self.root)
        wrapped = [self.tracer, "--under", str(self.root), *map(str, options), "--"]
        code, _, errors = self.shardify.run(*self.task.words(self.root), wrapped=wrapped)
        return code, errors

    def calls(self):
        """Calls of an undisturbed run, by what they are."""
        log = self.root.with_suffix(".log")
        code, errors = self.run("--log", log)
        if code != OK:
            raise Failure(f"undisturbed, it ended with {code}: {errors}")
        calls = {call["n"]: call for call in map(json.loads, log.read_text().splitlines())}
        must_change(calls.values())
        return calls

    def point(self, number, fault):
        code, errors = self.run("--at", number, "--do", fault)
        allowed = {"kill": (KILLED, OK), "short": (OK,), "eio": (OK, STORAGE), "enospc": (OK, STORAGE)}[fault]
        if code not in allowed:
            raise Failure(f"ended with {code}: {errors}")
        if code == STORAGE and not errors:
            raise Failure("an error without a word")
        self.task.look(self.shardify, self.root, code if code == OK else None)
        self.check_canaries()
        self.task.redo(self.shardify, self.root)
        self.check_canaries()
        return code

    def check_canaries(self):
        if self.canaries:
            self.canaries.check(lambda path: path.replace(str(self.start), str(self.root)))


def trace_all(options, each):
    """Shows each format and task that was asked for to `each`, which says how many of its cases passed and failed: a label, and
    the program, its tracer, the task, the dataset that it starts from, canaries and a folder. Returns the exit code."""
    if platform.machine() != "x86_64" or not sys.platform.startswith("linux") or not shutil.which("cc"):
        not_run("the tracer", "it needs x86-64 Linux and a C compiler")
        return 0
    passed = failed = 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        folder = pathlib.Path(folder)
        tracer, shardify = build(folder), Shardify(options.shardify)
        for form in options.formats:
            for task, start, canaries in tasks(shardify, folder, form):
                if options.tasks and task.name not in options.tasks:
                    continue
                good, bad = each(f"{form} {task.name}", (shardify, tracer, task, start, canaries, folder / "run"))
                passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed, seed {options.seed}, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--formats", nargs="+", default=FORMATS, choices=FORMATS)
    parser.add_argument("--tasks", nargs="+", help="only these commands")
    parser.add_argument("--faults", nargs="+", default=FAULTS, choices=FAULTS)
    parser.add_argument("--sample", type=int, help="points of each command and fault, instead of all")
    parser.add_argument("--point", type=int, help="only this call")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)

    def each(label, traced):
        sweep = Sweep(*traced)
        calls = sweep.calls()
        passed = failed = 0
        for fault in options.faults:
            points = sorted(n for n, call in calls.items() if makes_a_difference(fault, call))
            points = [options.point] if options.point else points
            if options.sample and len(points) > options.sample:
                points = sorted(rng.sample(points, options.sample))
            codes, bad = collections.Counter(), 0
            for number in points:
                try:
                    codes[sweep.point(number, fault)] += 1
                except Failure as failure:
                    bad += 1
                    call = calls.get(number, {})
                    what = f"{call.get('call')} {call.get('path', '').replace(str(sweep.root), '')}"
                    print(f"FAILED {label} {fault} at {number} ({what}): {failure}", flush=True)
            failed, passed = failed + bad, passed + len(points) - bad
            ends = ", ".join(f"{count} times {code}" for code, count in sorted(codes.items()))
            print(f"{label} {fault}: {len(points)} of {len(calls)} calls, exit codes {ends}; {bad} failed", flush=True)
        return passed, failed

    return trace_all(options, each)


if __name__ == "__main__":
    finish(main)
