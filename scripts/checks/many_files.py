#!/usr/bin/env python3
"""A million small files in bounded memory.

Writes a tree of samples (an image-like file and a label each), plans and runs `convert` to tar with a small --memory,
runs it again (nothing new), and converts once more while files of the tree vanish and change. Prints files per second
and the peak of resident memory of each run; fails when memory was exceeded or a record is not accounted for.

    python3 scripts/checks/many_files.py --shardify target/release/shardify [--files 1000000] [--memory 512MiB] [--work DIR]

The tree stays in DIR/tree, for the next time. Needs nothing but Python.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import threading
import time

from harness import Failure, expect, finish

SAMPLES_PER_FOLDER = 500
IMAGE_BYTES = 2_048
LABEL_BYTES = 100
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_size(text):
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return int(text)


def write_file(path, content):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(file, content)
    os.close(file)


def write_tree(tree, files):
    """Writes the tree unless it is there. Returns its folders."""
    folders = [tree / f"site-{number:05}" for number in range(-(-files // 2 // SAMPLES_PER_FOLDER))]
    marker = tree.with_name(f"tree-of-{files}")
    if marker.exists():
        return folders
    noise = random.Random(1).randbytes(1 << 20)
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True, exist_ok=True)
        for sample in range(number * SAMPLES_PER_FOLDER, min((number + 1) * SAMPLES_PER_FOLDER, files // 2)):
            start = sample * 977 % (len(noise) - IMAGE_BYTES)
            label = b'{"patient":"PAT-%07d","site":%d}' % (sample, number)
            write_file(f"{folder}/PAT-{sample:07}.jpg", noise[start : start + IMAGE_BYTES])
            write_file(f"{folder}/PAT-{sample:07}.json", label.ljust(LABEL_BYTES))
    marker.touch()
    return folders


def run(command, meanwhile=None):
    """Runs a command; returns its exit code, summary, seconds and peak of resident memory in bytes."""
    started = time.monotonic()
    process = subprocess.Popen([*command, "--json", "--progress", "never"], stdout=subprocess.PIPE)
    helper = threading.Thread(target=meanwhile) if meanwhile else None
    if helper:
        helper.start()
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - started
    if helper:
        helper.join()
    lines = out.splitlines()
    summary = json.loads(lines[-1]) if lines else {}
    return os.waitstatus_to_exitcode(status), summary, seconds, usage.ru_maxrss * 1024


class Check:
    def __init__(self, arguments):
        self.arguments = arguments
        self.limit = parse_size(arguments.memory)

    def step(self, name, command, code=0, meanwhile=None):
        got, summary, seconds, peak = run(command, meanwhile)
        files = self.arguments.files
        print(f"{name:10} {seconds:7.1f} s {files / seconds:10,.0f} files/s   peak {peak / 2**20:6.0f} MiB", flush=True)
        expect(f"{name}: exit code", got, code)
        if peak > self.limit:
            raise Failure(f"{name}: expected at most {self.limit >> 20} MiB, found {peak >> 20} MiB")
        return summary

    def run(self, work):
        arguments = self.arguments
        tree, out = work / "tree", work / "out"
        print(f"writing    {arguments.files:,} files to {tree}", flush=True)
        folders = write_tree(tree, arguments.files)
        samples = arguments.files // 2
        shutil.rmtree(out, ignore_errors=True)
        convert = [arguments.shardify, "convert", str(tree), "--to", "tar", "--memory", arguments.memory]
        plan = self.step("plan", [*convert, "--out", str(out), "--dry-run"])
        expect("planned records", plan["estimate"]["records"], samples)
        done = self.step("convert", [*convert, "--out", str(out)])
        expect("records", done["records_out"], samples)
        again = self.step("again", [*convert, "--out", str(out)])
        expect("unchanged sources", again["sources_unchanged"], samples * 2)
        expect("version", again["version"], done["version"])
        shutil.rmtree(out)
        self.disturb(folders, [*convert, "--out", str(out), "--on-error", "skip"], out)

    def disturb(self, folders, command, out):
        """Files of the last folder vanish, grow and shrink after they were listed and before they are read."""
        victims = sorted(folders[-1].glob("*.jpg"))[:30]
        kept = {path: path.read_bytes() for path in victims}

        def meddle():
            # The first shard is staged once the list is complete.
            while not any((out / "_shardify" / "staging").glob("*")):
                time.sleep(0.001)
            for number, path in enumerate(victims):
                path.unlink() if number % 3 == 0 else write_file(path, kept[path] * 2 if number % 3 == 1 else b"short")

        try:
            # That is no property of a record: the run ends, commits nothing, and is made again once the files stay.
            self.step("disturbed", command, code=5, meanwhile=meddle)
        finally:
            for path, content in kept.items():
                write_file(path, content)
        samples = self.arguments.files // 2
        done = self.step("made again", command)
        expect("version", done["version"], 1)
        expect("records in", done["records_in"], samples)
        expect("written", done["records_out"], samples)
        shutil.rmtree(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--work", help="folder to work in; default: one that is removed afterwards")
    arguments = parser.parse_args()
    arguments.shardify = str(pathlib.Path(arguments.shardify).resolve())
    if arguments.work:
        Check(arguments).run(pathlib.Path(arguments.work).resolve())
    else:
        with tempfile.TemporaryDirectory() as work:
            Check(arguments).run(pathlib.Path(work))
    print("passed")


if __name__ == "__main__":
    finish(main)
