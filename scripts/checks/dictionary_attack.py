#!/usr/bin/env python3
"""Tries to find out who is in a private dataset from everything but its shards, by guessing.

The attacker has all objects below `_shardify/` (log, lists, sidecars, id index, list of erased ids, receipts) and a
dictionary: every patient id with both sexes and 60 years of birth. The attacker converts all guesses with shardify, without a
key, and looks for what that gives (content hashes of records and sources, hashes of ids, HMACs under the salt of the list of
erased ids, ids as text) in the objects of the target. A patient is recovered when one of these is there.

    python3 scripts/checks/dictionary_attack.py --shardify target/release/shardify [--patients 200] [--formats parquet tar tfrecord]

A plain dataset is attacked as well: there everybody has to be recovered by each way, or the attack proves nothing. Prints a
line per format and mode; exit code 1 if anybody of a private dataset was recovered, or somebody of a plain one was not.
Needs pyarrow.
"""

import argparse
import hashlib
import hmac
import json
import pathlib
import random
import tempfile
from collections import defaultdict

import pyarrow.parquet as pq

from harness import FORMATS, Shardify, expect, finish

MODES = {
    "plain": [],
    "hmac": ["--id-mode", "hmac"],
    "sealed": ["--id-mode", "sealed"],
    "sealed, sources redacted": ["--id-mode", "sealed", "--redact-source-paths"],
}
IDS = ["--id", "pid", "--subject", "pid", "--type", "pid=text", "--hash-records"]
HEADER = "pid,sex,year\n"
# Patients with a source of their own, whose content can be guessed too.
ALONE = 10


class World:
    """Patients, and what each of them says about themselves."""

    def __init__(self, patients, seed):
        rng = random.Random(seed)
        self.truth = {f"PAT-{n:05}": (rng.choice("fm"), rng.randrange(1930, 1990)) for n in range(patients)}
        self.alone = sorted(self.truth)[:ALONE]

    def row(self, pid):
        return f"{pid},{self.truth[pid][0]},{self.truth[pid][1]}\n"

    def guesses(self, pid):
        return [f"{pid},{sex},{year}\n" for sex in "fm" for year in range(1930, 1990)]


def build(shardify, world, folder, form, options):
    """Makes the target: a source for many patients, sources for some alone, and somebody erased."""
    folder.mkdir()
    dataset = folder / "dataset"
    to = ["--out", dataset, "--to", form, *IDS, *options]
    for number, pid in enumerate(world.alone):
        source = folder / f"export-{number}.csv"
        source.write_text(HEADER + world.row(pid))
        expect("convert", shardify.run("convert", source, *to)[0], 0)
    many = folder / "export.csv"
    many.write_text(HEADER + "".join(map(world.row, sorted(world.truth)[ALONE:])))
    expect("convert", shardify.run("convert", many, *to)[0], 0)
    expect("compact", shardify.run("compact", dataset, "--min-inputs", "2")[0], 0)
    erased = sorted(world.truth)[-1]
    expect("erase", shardify.run("erase", dataset, "--subject", erased)[0], 0)
    return dataset, erased


def values(dataset):
    """Everything that the attacker can read: numbers, bytes and texts of tables, and all other objects as they are."""
    numbers, blobs, texts = set(), set(), []
    for path in sorted((dataset / "_shardify").rglob("*")):
        if not path.is_file():
            continue
        if path.suffix != ".table":
            texts.append(path.read_text(errors="replace"))
            continue
        for name, column in zip((table := pq.read_table(path)).column_names, table.columns):
            kind = str(column.type)
            found = [value for value in column.to_pylist() if value is not None]
            if kind == "uint64":
                numbers.update(found)
            elif kind.startswith(("binary", "fixed_size_binary")):
                blobs.update(found)
            elif kind.endswith("string"):
                texts.extend(set(found))
    return numbers, blobs, "\n".join(texts)


def tables(dataset, below):
    return [pq.read_table(path) for path in sorted((dataset / "_shardify" / below).rglob("*.table"))]


def fingerprints(shardify, world, folder, form):
    """What the attacker makes of the guesses: for each patient the numbers that would give them away, by the way."""
    folder.mkdir()
    dataset = folder / "dataset"
    to = ["--out", dataset, "--to", form, *IDS]
    # Neighbours are about different patients, for tar has no two samples of one key in a row.
    guesses = {pid: world.guesses(pid) for pid in sorted(world.truth)}
    rows = [(pid, guesses[pid][number]) for number in range(2 * 60) for pid in guesses]
    source = folder / "guesses.csv"
    source.write_text(HEADER + "".join(row for _, row in rows))
    expect("convert", shardify.run("convert", source, *to)[0], 0)
    marks = defaultdict(lambda: defaultdict(set))
    for table in tables(dataset, "sidecar"):
        for pid, content in zip(table["record_id"].to_pylist(), table["hash"].to_pylist()):
            marks[pid]["content hash"].add(content)
    alone = folder / "alone"
    for pid in world.alone:
        for number, row in enumerate(world.guesses(pid)):
            path = alone / pid / f"{number}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(HEADER + row)
    second = folder / "sources"
    expect("convert", shardify.run("convert", alone, "--out", second, "--to", "parquet", *IDS)[0], 0)
    for table in tables(second, "lists"):
        if "uri" in table.column_names:
            for uri, content in zip(table["uri"].to_pylist(), table["hash"].to_pylist()):
                marks[pathlib.Path(uri).parent.name]["source hash"].add(content)
    for pid in guesses:
        marks[pid]["id hash"].add(int.from_bytes(hashlib.sha256(pid.encode()).digest()[:5], "big"))
    return marks


def erasure_salt(dataset):
    newest = min((dataset / "_shardify" / "log").glob("*.json"))
    return bytes.fromhex(json.loads(newest.read_text())["erasures"]["salt"])


def attack(world, dataset, erased, marks):
    """Returns the patients who are recovered, by each way."""
    numbers, blobs, text = values(dataset)
    salt = erasure_salt(dataset)
    recovered = defaultdict(set)
    for pid in world.truth:
        for way, found in marks[pid].items():
            if found & numbers:
                recovered[way].add(pid)
        if pid in text:
            recovered["text"].add(pid)
        if hmac.new(salt, pid.encode(), hashlib.sha256).digest() in blobs:
            recovered["erased list"].add(pid)
    return recovered


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--patients", type=int, default=200)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        key = root / "key"
        key.touch(mode=0o600)
        key.write_bytes(hashlib.sha256(b"nobody guesses this").digest())
        plain = Shardify(options.shardify)
        private = Shardify(options.shardify, {"SHARDIFY_ID_KEY": key.read_bytes().hex()})
        world = World(options.patients, options.seed)
        for form in options.formats:
            marks = fingerprints(plain, world, root / f"{form}-guesses", form)
            for mode, words in MODES.items():
                binary = private if words else plain
                dataset, erased = build(binary, world, root / f"{form}-{mode}", form, words)
                recovered = attack(world, dataset, erased, marks)
                everybody = set(world.truth) - {erased}
                if words:
                    wrong = set().union(*recovered.values())
                else:
                    # The erased one is on the list, all others are found by each way that there is.
                    wrong = everybody - recovered["content hash"]
                    # Ids that ascend are in the index as they are.
                    wrong |= everybody - recovered["id hash"] if recovered["id hash"] else set()
                    wrong |= everybody - recovered["text"] | {erased} - recovered["erased list"]
                    wrong |= set(world.alone) - recovered["source hash"]
                failed += bool(wrong)
                ways = ", ".join(f"{way} {len(who)}" for way, who in sorted(recovered.items())) or "nobody"
                print(f"{form}, {mode}: recovered {ways} of {len(world.truth)}{'  FAILED' if wrong else ''}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    finish(main)
