#!/usr/bin/env python3
"""Conversions on Ray under faults give the shards of plain `convert`.

    python3 scripts/checks/ray_faults.py --shardify target/release/shardify [--rounds 20] [--only frozen] [--seed 1]

A cluster of Ray with three nodes on this machine serves all rounds, and each round converts a dozen tables to Parquet, tar or TFRecord while
one thing goes wrong:

    node      a node is killed while its worker runs a task, and another one joins
    frozen    the worker of a task and the program are stopped by SIGSTOP, and go on after the commit
    twice     every third task is submitted twice
    driver    the driver is killed when some tasks are done, and started again
    drivers   two drivers run the same conversion at once

A driver that fails has to say why, and is started again, up to four times. In the end there is one version with exactly the shards of
`convert`, `verify --read-data` finds nothing, and no program is left running. Exit code 1 if something differs.
"""

import argparse
import contextlib
import importlib.util
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import Failure, expect, finish, not_run, objects, run
from runners_check import OPTIONS, shards, write_inputs

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMATS = ("parquet", "tar", "tfrecord")
STARTS = 4
PATIENCE = 240

# Three nodes; a line on standard input kills one that is not the head, and another one joins.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes.pop(int(line) % 2), allow_graceful=False)
    nodes.append(cluster.add_node(num_cpus=1))
    print("killed", flush=True)
cluster.shutdown()
"""

DRIVER = """
import sys, ray, shardify.ray, shardify.runners
address, raw, out, twice = sys.argv[1:5]
ray.init(address=address, log_to_driver=False)
# What is late is repeated after seconds here, not after a minute.
shardify.runners.SOONEST = 3.0
if twice == "twice":
    submit = shardify.ray.RayExecutor.submit
    def again(self, function, plan, task, *more, **options):
        if task % 3 == 0:
            submit(self, function, plan, task, *more, **options)
        return submit(self, function, plan, task, *more, **options)
    shardify.ray.RayExecutor.submit = again
report = shardify.ray.convert(raw, out=out, **OPTIONS)
print("version", report and report.version)
"""

# Stands for the program on the nodes: tasks take a little time, so that faults come in the middle of them.
PROGRAM = """#!/bin/sh
case "$*" in *run-task*) . "{hook}";; esac
exec "{program}" "$@"
"""
SLOW = 'sleep 0.$(($$ % 4 + 1))\n'
# The first attempt of one task stops the worker that waits for it, and itself.
FREEZE = SLOW + """
case "$*" in *"--task=2 "*)
  if mkdir "{mark}" 2>/dev/null; then echo "$PPID $$" > "{mark}/pids"; kill -STOP "$PPID"; kill -STOP $$; fi;;
esac
"""


class Ray:
    """The cluster, as a context."""

    def __init__(self, folder, program):
        self.folder, self.program = folder, program
        self.hook, self.wrapper = folder / "hook", folder / "program"
        self.hook.write_text(SLOW)
        self.wrapper.write_text(PROGRAM.format(hook=self.hook, program=program))
        self.wrapper.chmod(0o755)
        self.settings = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1", "RAY_AUTH_MODE": "disabled"}
        self.settings["RAY_DEDUP_LOGS"] = "0"

    def __enter__(self):
        # The program of the workers is that of the node's environment.
        settings = {**self.settings, "SHARDIFY_BINARY": str(self.wrapper)}
        self.log = open(self.folder / "cluster.log", "wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER], env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True
        )  # fmt: skip
        self.address = self.line(r"[\d.]+:\d+")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def line(self, pattern):
        """The next line of the cluster that looks so."""
        for line in self.process.stdout:
            if re.fullmatch(pattern, line.strip()):
                return line.strip()
        raise Failure(f"the cluster has ended: {(self.folder / 'cluster.log').read_text()[-2000:]}")

    def kill_node(self, number):
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        self.line("killed")

    def driver(self, out, form, twice=False):
        """Starts a conversion."""
        script = f"OPTIONS = {({**OPTIONS, 'to': form})!r}\n{DRIVER}"
        command = [sys.executable, "-c", script, self.address, self.folder / "raw", out, "twice" if twice else "once"]
        settings = {**self.settings, "SHARDIFY_BINARY": str(self.program)}
        log = open(self.folder / f"{out.name}-{time.monotonic_ns()}.driver", "w+")
        process = subprocess.Popen([str(word) for word in command], env=settings, stdout=log, stderr=log, start_new_session=True)
        process.log = log
        return process


def outcomes(out):
    return len(list((out / "_shardify" / "outcomes").glob("*.json")))


def wait_until(holds, process, what):
    """Waits while a driver runs."""
    deadline = time.monotonic() + PATIENCE
    while not holds() and process.poll() is None:
        if time.monotonic() > deadline:
            raise Failure(f"expected {what} within {PATIENCE} s")
        time.sleep(0.02)


def ended(process):
    """Exit code of a driver and what it said."""
    try:
        code = process.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        process.log.seek(0)
        raise Failure(f"a driver hangs:\n{process.log.read()[-3000:]}") from None
    process.log.seek(0)
    said = process.log.read()
    process.log.close()
    why = re.findall(r"^shardify\.errors\..*", said, re.M)
    if code > 0 and not why:
        raise Failure(f"expected a driver to say why it fails, found {code}\n{said[-3000:]}")
    if code > 0:
        print(f"      a driver: {why[-1]}", flush=True)
    return code


def until_done(ray, out, form):
    """Starts drivers until one succeeds; returns their exit codes."""
    codes = []
    while 0 not in codes:
        if len(codes) == STARTS:
            raise Failure(f"expected a conversion to finish when it is started again, found {codes}")
        codes.append(ended(ray.driver(out, form)))
    return codes


def node(ray, out, form, rng):
    process, some = ray.driver(out, form), rng.randrange(1, 6)
    wait_until(lambda: outcomes(out) >= some, process, "tasks that are done")
    ray.kill_node(rng.randrange(2))
    return [ended(process)]


def frozen(ray, out, form, rng):
    mark = out.with_name(f"{out.name}-frozen")
    ray.hook.write_text(FREEZE.format(mark=mark))
    try:
        code = ended(ray.driver(out, form))
        expect("a worker that was stopped", mark.exists(), True)
        versions(ray, out)
        # Now it goes on, after the commit.
        for pid in map(int, reversed((mark / "pids").read_text().split())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        time.sleep(2)
    finally:
        ray.hook.write_text(SLOW)
    return [code]


def twice(ray, out, form, rng):
    return [ended(ray.driver(out, form, twice=True))]


def driver(ray, out, form, rng):
    process, some = ray.driver(out, form), rng.randrange(1, 8)
    wait_until(lambda: outcomes(out) >= some, process, "tasks that are done")
    process.kill()
    return [ended(process)]


def drivers(ray, out, form, rng):
    both = [ray.driver(out, form) for _ in range(2)]
    codes = [ended(process) for process in both]
    # The one that was told of a conflict finds nothing to do.
    return codes if codes == [0, 0] or 0 not in codes else [*codes, ended(ray.driver(out, form))]


FAULTS = {"node": node, "frozen": frozen, "twice": twice, "driver": driver, "drivers": drivers}


def versions(ray, out):
    found = [one for one in objects(ray.program, "manifest", out, "--history") if one["type"] == "version"]
    expect("versions", len(found), 1)


def running(out):
    """Programs that work on a dataset."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.fsencode(out) in (entry / "cmdline").read_bytes() and b"run-task" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        not_run("ray_faults", "ray is not installed")
        return 0
    program, rng = pathlib.Path(options.shardify).resolve(), random.Random(options.seed)
    words = [word for name, value in OPTIONS.items() for word in ("--" + name.replace("_", "-"), value)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_inputs(folder / "raw")
        wanted = {}
        for form in FORMATS:
            run(program, "convert", folder / "raw", "--out", folder / form, "--to", form, *words)
            wanted[form] = shards(program, folder / form)
        with Ray(folder, program) as ray:
            for number in range(options.rounds):
                fault, form = options.only[number % len(options.only)], FORMATS[number % len(FORMATS)]
                out, started = folder / f"{number}-{fault}-{form}", time.monotonic()
                codes = FAULTS[fault](ray, out, form, rng)
                if codes[-1] != 0:
                    codes += until_done(ray, out, form)
                versions(ray, out)
                expect(f"shards of {form} after {fault}", shards(program, out), wanted[form])
                run(program, "verify", out, "--read-data")
                deadline = time.monotonic() + 10
                while running(out) and time.monotonic() < deadline:
                    time.sleep(0.1)
                expect("programs that are left", running(out), [])
                shutil.rmtree(out)
                seconds = time.monotonic() - started
                print(f"ok    {number + 1} of {options.rounds}: {fault}, {form}: exit codes of drivers {codes}, {seconds:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    finish(main)
