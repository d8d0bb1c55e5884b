#!/usr/bin/env python3
"""Erases beside converters, a compactor and a vacuum that never stop: all erasures have to succeed, and nothing of an
erased person may be left in any object once all of them have ended; everybody else's records are there exactly once.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

from harness import finish

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--shardify", required=True)
parser.add_argument("--erasures", type=int, default=20)
parser.add_argument("--erasers", type=int, default=1, help="erasures that run at a time")
parser.add_argument("--converters", type=int, default=4)
parser.add_argument("--format", default="tar", choices=["parquet", "tar", "tfrecord"])
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()
binary = str(pathlib.Path(options.shardify).resolve())
rng = random.Random(options.seed)
SUBJECTS = 60


def shardify(folder, *words):
    return subprocess.run([binary, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=600)


def source(folder, name, rows, erased):
    """Rows about subjects who are not erased; what is unique of each is its note."""
    notes = {}
    with open(folder / name, "w") as file:
        file.write("id,who,note\n")
        for i in range(rows):
            who = rng.randrange(options.erasures, SUBJECTS) if erased else rng.randrange(SUBJECTS)
            note = f"note-{rng.getrandbits(64):016x}"
            notes[note] = who
            file.write(f"{name}-{i},PAT-{who:03},{note}\n")
    return notes


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        notes, lock, stop = {}, threading.Lock(), threading.Event()
        for i in range(8):
            notes.update(source(folder, f"s{i}.csv", 400, False))
            ran = shardify(folder, "convert", f"s{i}.csv", "--out", "ds", "--id", "id", "--subject", "who",
                           "--to", options.format, "--codec", "none")
            assert ran.returncode == 0, ran
        counts = {"convert": 0, "compact": 0, "vacuum": 0, "lost": 0}

        def convert(number):
            serial = 0
            while not stop.is_set():
                serial += 1
                name = f"c{number}-{serial}.csv"
                with lock:
                    # The people who will be erased are among them at first.
                    new = source(folder, name, 50, serial > 3)
                while True:
                    ran = shardify(folder, "convert", name, "--out", "ds")
                    if ran.returncode == 0:
                        break
                    if ran.returncode != 4:
                        os._exit(print(f"convert: {ran}", file=sys.stderr) or 1)
                    counts["lost"] += 1
                counts["convert"] += 1
                with lock:
                    notes.update(new)

        def beside(name, *words):
            while not stop.is_set():
                ran = shardify(folder, *words)
                if ran.returncode not in (0, 4):
                    os._exit(print(f"{name}: {ran}", file=sys.stderr) or 1)
                counts[name] += ran.returncode == 0

        threads = [threading.Thread(target=convert, args=(n,)) for n in range(options.converters)]
        threads.append(threading.Thread(target=beside, args=("compact", "compact", "ds", "--min-inputs", 2)))
        threads.append(threading.Thread(target=beside, args=("vacuum", "vacuum", "ds", "--retain", 0, "--force")))
        for thread in threads:
            thread.start()

        def erase(number):
            begun = time.monotonic()
            ran = shardify(folder, "erase", "ds", f"PAT-{number:03}", "--all-versions", "--json")
            return ran, time.monotonic() - begun

        with concurrent.futures.ThreadPoolExecutor(options.erasers) as pool:
            erased = list(pool.map(erase, range(options.erasures)))
        stop.set()
        for thread in threads:
            thread.join()
        failed = [ran for ran, _ in erased if ran.returncode != 0]
        print(f"{len(erased) - len(failed)} of {len(erased)} erasures beside {counts}; "
              f"longest {max(seconds for _, seconds in erased):.1f} s")
        for ran in failed:
            print(ran.returncode, ran.stderr, file=sys.stderr)
        # A person may have come in again between the look-up and the commit of a converter: then that run has left it out.
        shardify(folder, "vacuum", "ds", "--retain", 0, "--force")
        verified = shardify(folder, "verify", "ds", "--read-data")
        assert verified.returncode == 0, verified
        gone = [note for note, who in notes.items() if who < options.erasures]
        stays = [note for note, who in notes.items() if who >= options.erasures]
        export = shardify(folder, "manifest", "ds", "--export", "jsonl").stdout
        rows = [json.loads(line) for line in export.splitlines()]
        assert len(rows) == len(stays), (len(rows), len(stays))
        assert not any(int(row["subject_id"][4:]) < options.erasures for row in rows)
        needles = [f"PAT-{n:03}".encode() for n in range(options.erasures)] + [note.encode() for note in gone]
        for path in (folder / "ds").rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                found = [needle for needle in needles if needle in content]
                assert not found, (path, found[:3])
        return 1 if failed else 0


finish(main)
