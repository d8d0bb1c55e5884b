#!/usr/bin/env python3
"""The power goes out after every call: what was not synced is gone.

A tracer (scripts/checks/syscalls.c) records what a command asks of the file system. The record is played again up to each call, on a
model of a disk that promises no more than POSIX does: the bytes of a file are there as they were when it was last synced, and a
name is there once its folder was synced after it was given. The folder as it would be found afterwards is written out, and the
dataset in it has to be in order: the version before, or the next one, whole; the next one if the command had said that it is
done. The command is run again then and finishes.

Besides the strict disk, which drops all that was not synced, each point is played with disks that keep some of it: by a seed,
each name and each file may be as it was, or as it was last synced, or, of a file, cut off in between.

    python3 scripts/checks/power_cuts.py --shardify target/release/shardify [--tasks convert erase-all] [--formats parquet]
        [--cuts 500] [--seed N]

Prints a line per command and one per failure; exit code 1 if there was one. x86-64 Linux only.
"""

import argparse
import collections
import json
import os
import random
import shutil
import stat

from harness import FORMATS, OK, Failure, copied, finish
from syscall_sweep import must_change, trace_all

CREATE, TRUNCATE_FLAG = os.O_CREAT, os.O_TRUNC


class File:
    """A file's bytes as they are, and as they were last synced."""

    def __init__(self, content=b""):
        self.now = bytearray(content)
        self.synced = bytes(content)


class Folder:
    """Names in a folder as they are, and as they were last synced."""

    def __init__(self):
        self.now, self.synced = {}, {}


class Link:
    """A symbolic link, which nothing here makes."""

    def __init__(self, target):
        self.target = target


class Disk:
    """Files and folders below a root, in two states."""

    def __init__(self, root):
        self.root = str(root)
        self.inodes = {}
        self.top = self.load(root)

    def load(self, path):
        facts = os.lstat(path)
        if stat.S_ISLNK(facts.st_mode):
            return Link(os.readlink(path))
        if not stat.S_ISDIR(facts.st_mode):
            # Files that were linked are one file.
            if facts.st_ino not in self.inodes:
                with open(path, "rb") as file:
                    self.inodes[facts.st_ino] = File(file.read())
            return self.inodes[facts.st_ino]
        folder = Folder()
        for name in os.listdir(os.fsencode(path)):
            folder.now[name] = self.load(os.path.join(os.fsencode(path), name))
        folder.synced = dict(folder.now)
        return folder

    def parts(self, path):
        if path != self.root and not path.startswith(self.root + "/"):
            return None
        return [part for part in os.fsencode(path[len(self.root) :]).split(b"/") if part not in (b"", b".")]

    def find(self, path):
        parts = self.parts(path)
        if parts is None:
            return None
        here = self.top
        for part in parts:
            here = here.now.get(part) if isinstance(here, Folder) else None
        return here

    def above(self, path):
        parts = self.parts(path)
        if not parts:
            raise Failure(f"a call outside of the folder: {path}")
        here = self.top
        for part in parts[:-1]:
            here = here.now[part]
        return here, parts[-1]

    def play(self, call):
        """What a call that succeeded did."""
        kind, path, result = call["call"], os.fsdecode(call["path"].encode("utf-8", "surrogateescape")), call["result"]
        if result < 0:
            return
        if kind in ("open", "openat", "openat2", "creat"):
            self.opened(path, call)
        elif kind in ("write", "pwrite64", "writev"):
            file = self.inodes.get(call["inode"])
            if file is not None:
                self.write(file, call)
        elif kind in ("fsync", "fdatasync"):
            self.sync(path, call)
        elif kind in ("rename", "renameat", "renameat2"):
            old, old_name = self.above(path)
            new, new_name = self.above(call["to"])
            new.now[new_name] = old.now.pop(old_name)
        elif kind in ("link", "linkat"):
            new, name = self.above(call["to"])
            new.now[name] = self.find(path) or self.inodes.get(call["inode"])
        elif kind in ("unlink", "unlinkat", "rmdir"):
            folder, name = self.above(path)
            folder.now.pop(name, None)
        elif kind in ("mkdir", "mkdirat"):
            folder, name = self.above(path)
            folder.now[name] = Folder()
        elif kind == "ftruncate" and call["inode"] in self.inodes:
            file = self.inodes[call["inode"]]
            file.now = file.now[: call["length"]].ljust(call["length"], b"\0")
        elif kind == "copy_file_range" and call["inode"] in self.inodes:
            raise Failure("copy_file_range is not known here")

    def opened(self, path, call):
        found = self.find(path)
        if isinstance(found, Folder):
            return
        if found is None and call["flags"] & CREATE:
            folder, name = self.above(path)
            found = folder.now[name] = File()
        if isinstance(found, File):
            self.inodes[call["inode"]] = found
            if call["flags"] & TRUNCATE_FLAG:
                found.now = bytearray()

    def write(self, file, call):
        content = call["bytes"]
        start = len(file.now) if call["offset"] < 0 or call["flags"] & os.O_APPEND else call["offset"]
        if len(file.now) < start:
            file.now.extend(bytes(start - len(file.now)))
        file.now[start : start + len(content)] = content

    def sync(self, path, call):
        found = self.inodes.get(call["inode"]) or self.find(path)
        if isinstance(found, File):
            found.synced = bytes(found.now)
        elif isinstance(found, Folder):
            found.synced = dict(found.now)

    def write_out(self, target, rng=None):
        """Writes what is found after a cut; `rng` keeps some of what was not synced."""
        done = {}
        self.folder_out(self.top, os.fsencode(target), rng, done)

    def folder_out(self, folder, target, rng, done):
        os.mkdir(target)
        names = folder.synced
        if rng:
            names = dict(folder.synced)
            for name in folder.now.keys() | folder.synced.keys():
                if folder.now.get(name) is not folder.synced.get(name) and rng.random() < 0.5:
                    names.pop(name, None)
                    if name in folder.now:
                        names[name] = folder.now[name]
        for name, entry in sorted(names.items()):
            path = os.path.join(target, name)
            if isinstance(entry, Folder):
                self.folder_out(entry, path, rng, done)
            elif isinstance(entry, Link):
                os.symlink(entry.target, path)
            elif id(entry) in done:
                os.link(done[id(entry)], path)
            else:
                with open(path, "wb") as file:
                    file.write(self.content(entry, rng))
                done[id(entry)] = path

    def content(self, file, rng):
        if not rng or file.synced == file.now:
            return file.synced
        kept = rng.choice(("now", "synced", "cut"))
        if kept == "cut":
            return bytes(file.now[: rng.randrange(len(file.now) + 1)])
        return bytes(file.now) if kept == "now" else file.synced


class Cuts:
    """All cuts of one task."""

    def __init__(self, shardify, tracer, task, start, canaries, root):
        self.shardify, self.tracer, self.task, self.start, self.canaries = shardify, tracer, task, start, canaries
        self.root = root

    def record(self):
        copied(self.start, self.root)
        log = self.root.with_suffix(".log")
        before = Disk(self.root)
        wrapped = [self.tracer, "--under", str(self.root), "--log", str(log), "--"]
        code, _, errors = self.shardify.run(*self.task.words(self.root), wrapped=wrapped)
        if code != OK:
            raise Failure(f"undisturbed, it ended with {code}: {errors}")
        data = log.with_suffix(".log.data").read_bytes()
        calls = [json.loads(line) for line in log.read_text().splitlines()]
        must_change(calls)
        for call in calls:
            if call["call"] in ("write", "pwrite64", "writev") and call["result"] > 0:
                call["bytes"] = data[call["data"] : call["data"] + call["result"]]
            else:
                call["bytes"] = b""
        return before, calls

    def cut(self, disk, done, rng):
        shutil.rmtree(self.root)
        disk.write_out(self.root, rng)
        self.task.look(self.shardify, self.root, OK if done else None)
        self.check_canaries()
        self.task.redo(self.shardify, self.root)
        self.check_canaries()

    def check_canaries(self):
        if self.canaries:
            self.canaries.check(lambda path: path.replace(str(self.start), str(self.root)))

    def all(self, most, seed, title):
        """Cuts after every call that changes something, in rounds until there are as many as wanted."""
        disk, calls = self.record()
        changing = [at for at, call in enumerate(calls) if call["result"] >= 0 and self.changes(call)]
        rng = random.Random(seed)
        # Each point on the strict disk, then on disks that keep some; the last of all is after the command has said that it is done.
        rounds = max(1, -(-most // (len(changing) + 1)))
        wanted = [(at, number) for number in range(rounds) for at in [*changing, len(calls)]]
        if len(wanted) > most:
            wanted = [(len(calls), 0), *rng.sample(wanted, most - 1)]
        wanted = collections.Counter(wanted)
        passed = failed = 0
        for at in range(len(calls) + 1):
            for number in range(rounds):
                if not wanted[(at, number)]:
                    continue
                try:
                    self.cut(disk, at == len(calls), random.Random(f"{seed} {at} {number}") if number else None)
                    passed += 1
                except Failure as failure:
                    failed += 1
                    call = calls[at] if at < len(calls) else {"call": "the end", "path": ""}
                    where = f"{call['call']} {call['path'].replace(str(self.root), '')}"
                    print(f"FAILED {title} cut before call {at} ({where}), disk {number}: {failure}", flush=True)
            if at < len(calls):
                disk.play(calls[at])
        return passed, failed, len(calls)

    @staticmethod
    def changes(call):
        return call["call"] not in ("open", "openat", "openat2") or call["flags"] & CREATE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--formats", nargs="+", default=["parquet"], choices=FORMATS)
    parser.add_argument("--tasks", nargs="+", help="only these commands")
    parser.add_argument("--cuts", type=int, default=500, help="of each command")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    def each(label, traced):
        good, bad, calls = Cuts(*traced).all(options.cuts, options.seed, label)
        print(f"{label}: {good + bad} cuts of {calls} calls, {bad} failed", flush=True)
        return good, bad

    return trace_all(options, each)


if __name__ == "__main__":
    finish(main)
