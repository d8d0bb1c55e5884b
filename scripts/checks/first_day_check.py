#!/usr/bin/env python3
"""The first afternoon: five tasks from nothing, each in at most three commands and ten lines of Python, against an independent count.

`pictures`: images with a table of labels, read by the loader on each of two ranks. `tables`: three CSV files of three habits, read by
DuckDB. `chats`: JSON Lines, split so that no conversation is in two parts. `maps`: NetCDF whose masked cells stay
masked in patches. `archives`: tars of webdataset, merged, shuffled and without duplicates.

    python3 scripts/checks/first_day_check.py --shardify target/release/shardify

Without the extension of the package (`cargo build -p shardify-py`, and a link to it), `pictures` is not run.
"""

import argparse
import collections
import hashlib
import importlib.util
import io
import itertools
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tarfile
import tempfile

from harness import ROOT, Failure, expect, finish, not_run, objects

MOST_COMMANDS, MOST_LINES = 3, 10


class Task:
    """A folder, what is typed in it, and the Python that reads what came out."""

    def __init__(self, binary, folder, python):
        self.binary, self.folder, self.python, self.commands = binary, folder, python, 0
        folder.mkdir()

    def run(self, line):
        """Runs a command as it is typed; returns the objects that it prints with --json."""
        self.commands += 1
        if self.commands > MOST_COMMANDS:
            raise Failure(f"{self.folder.name}: more than {MOST_COMMANDS} commands")
        print(f"  $ {line}", flush=True)
        return objects(self.binary, *shlex.split(line)[1:], folder=self.folder)

    def read(self, lines, **environment):
        """What some lines of Python print as JSON."""
        lines = lines.strip()
        if len(lines.splitlines()) > MOST_LINES:
            raise Failure(f"{self.folder.name}: more than {MOST_LINES} lines of Python")
        settings = os.environ | {"SHARDIFY_BINARY": self.binary, "PYTHONPATH": str(ROOT / "python")} | environment
        done = subprocess.run([self.python, "-c", lines], cwd=self.folder, env=settings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure(f"{self.folder.name}: {done.stderr[-2000:]}")
        return json.loads(done.stdout)


def pictures(task):
    """Images with a table of labels, for two ranks."""
    names, chance = ("cat", "dog", "owl"), random.Random(1)
    expected, rows = {}, ["file_name,animal"]
    for number in range(96):
        animal = chance.choice(names)
        path = task.folder / "pictures" / f"{number:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff\xe0" + chance.randbytes(2_000))
        rows.append(f"{path.name},{animal}")
        expected[path.stem] = [hashlib.sha256(path.read_bytes()).hexdigest(), animal]
    (task.folder / "labels.csv").write_text("\n".join(rows) + "\n")
    task.run("shardify convert pictures --labels labels.csv --label-column animal --shards 8 --out train")
    classes = task.run("shardify manifest train")[-1]["settings"]["classes"]
    expect("the classes", classes, sorted({animal for _, animal in expected.values()}))
    lines = """
import hashlib, json, shardify
loader = shardify.open("train", at=1).loader(global_batch_size=8, seed=1)
print(json.dumps([[one["__key__"], hashlib.sha256(one["jpg"]).hexdigest(), int(one["cls"])] for batch in loader for one in batch.rows()]))
"""
    found = [task.read(lines, RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    expect("the records of each rank", [len(of_rank) for of_rank in found], [48, 48])
    read = {key: [digest, classes[number]] for of_rank in found for key, digest, number in of_rank}
    expect("pictures with their labels", read, expected)


def tables(task):
    """Three exports of three programs become one table for DuckDB."""
    folder = task.folder / "exports"
    folder.mkdir()
    visits = [(n, f"P{n % 40:03}", None if n % 9 == 0 else n / 4, "Müller" if n % 2 else "Straße") for n in range(300)]
    texts = [
        "id,patient,weight,ward\n" + "".join(f"{n},{p},{'' if w is None else w},{t}\n" for n, p, w, t in visits[:100]),
        "Export of ward 7\n\nid;patient;weight;ward\n"
        + "".join(f"{n};{p};{'NA' if w is None else w};{t}\n" for n, p, w, t in visits[100:200]),
        "ward\tid\tpatient\tweight\n" + "".join(f"{t}\t{n}\t{p}\t{'N/A' if w is None else w}\n" for n, p, w, t in visits[200:]),
    ]
    for name, text, encoding in zip(("a.csv", "b.csv", "c.tsv"), texts, ("utf-8", "latin-1", "utf-8-sig"), strict=True):
        (folder / name).write_bytes(text.encode(encoding))
    # One file has another encoding, as the error for all three says.
    summary = task.run("shardify convert exports --exclude b.csv --null NA,N/A --id id --subject patient --out visits")[-1]
    other = task.run("shardify convert exports/b.csv --encoding latin1 --null NA,N/A --out visits")[-1]
    expect("rows", (summary["records_out"], other["records_out"]), (200, 100))
    lines = """
import json, shardify
visits = shardify.open("visits").duckdb()
counts = "count(*), sum(id), count(weight), sum(weight), count(distinct patient), count_if(ward = 'Müller')"
print(json.dumps(visits.aggregate(counts).fetchall()[0], default=float))
"""
    weights = [weight for _, _, weight, _ in visits if weight is not None]
    wanted = [300, sum(n for n, *_ in visits), len(weights), sum(weights), 40, 150]
    expect("the table in DuckDB", [float(value) for value in task.read(lines)], [float(value) for value in wanted])


def chats(task):
    """Turns of conversations, none of which is in two parts."""
    turns = [{"conversation": f"c{n % 120}", "turn": n // 120, "text": f"said {n}", "tags": ["a", "b"][: n % 3]} for n in range(1_200)]
    (task.folder / "chats.jsonl").write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    task.run("shardify convert chats.jsonl --split train=0.8,val=0.1,test=0.1 --split-by conversation --out chats")
    lines = """
import json, shardify
data = shardify.open("chats")
rows = {name: data.split(name).pyarrow().to_table(columns=["conversation", "turn"]).to_pylist() for name in ("train", "val", "test")}
print(json.dumps(rows))
"""
    parts = task.read(lines)
    where = collections.defaultdict(set)
    for name, rows in parts.items():
        for row in rows:
            where[row["conversation"]].add(name)
    expect("parts of each conversation", {len(names) for names in where.values()}, {1})
    read = sorted((row["conversation"], row["turn"]) for rows in parts.values() for row in rows)
    expect("turns", read, sorted((turn["conversation"], turn["turn"]) for turn in turns))
    shares = {name: len(rows) / len(turns) for name, rows in parts.items()}
    expect("the shares", all(abs(shares[name] - share) < 0.1 for name, share in (("train", 0.8), ("val", 0.1), ("test", 0.1))), True)


def maps(task):
    """Maps of temperatures with a mask become patches."""
    if not importlib.util.find_spec("netCDF4"):
        return not_run("maps", "netCDF4 is not installed")
    import netCDF4
    import numpy as np

    values = np.random.default_rng(1).normal(280, 9, (6, 8, 12)).astype("f4")
    masked = np.ma.array(values, mask=values < 275)
    with netCDF4.Dataset(task.folder / "maps.nc", "w") as file:
        for name, length in (("time", 6), ("lat", 8), ("lon", 12)):
            file.createDimension(name, length)
        variable = file.createVariable("t", "f4", ("time", "lat", "lon"), fill_value=-999.0, zlib=True)
        variable[:] = masked
    task.run("shardify convert maps.nc --read record-dim=time --read patch=lat=4,lon=4 --out patches")
    lines = """
import json, math, shardify
table = shardify.open("patches").pyarrow().to_table().to_pydict()
flat = lambda value: [cell for row in value for cell in (flat(row) if isinstance(row, list) else [row])]
cells = [cell for patch in table["t"] for cell in flat(patch)]
seen = [cell for cell in cells if cell is not None and not math.isnan(cell)]
print(json.dumps([len(table["t"]), len(cells), len(seen), sum(seen)]))
"""
    patches, cells, seen, total = task.read(lines)
    expect("patches and cells", (patches, cells, seen), (6 * 2 * 3, masked.size, int(masked.count())))
    expect("their sum", abs(total - float(masked.sum(dtype="f8"))) < 1e-2, True)
    return None


def archives(task):
    """Tars of several crawls become one dataset without duplicates, in a random order."""
    folder, chance, expected = task.folder / "crawls", random.Random(2), {}
    folder.mkdir()
    contents = [chance.randbytes(500) for _ in range(300)]
    for number in range(6):
        with tarfile.open(folder / f"crawl-{number}.tar", "w") as archive:
            for at in range(80):
                key, content = f"{number}_{at:03}", contents[(number * 60 + at) % len(contents)]
                for ending, data in (("jpg", content), ("txt", hashlib.md5(content).hexdigest().encode())):
                    member = tarfile.TarInfo(f"{key}.{ending}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
                expected[content] = hashlib.md5(content).hexdigest()
    summary = task.run("shardify convert crawls --dedup content --shuffle 7 --records-per-shard 60 --out merged")[-1]
    counts = (summary["records_in"], summary["records_out"], summary["records_deduplicated"])
    expect("samples, kept and omitted", counts, (480, len(expected), 480 - len(expected)))
    lines = """
import hashlib, json, shardify
loader = shardify.open("merged").webdataset(shardshuffle=False)
print(json.dumps([[one["__key__"], hashlib.md5(one["jpg"]).hexdigest(), one["txt"].decode()] for one in loader]))
"""
    read = task.read(lines)
    expect("each content once, with its text", sorted(digest for _, digest, _ in read), sorted(expected.values()))
    expect("pairs", all(digest == text for _, digest, text in read), True)
    expect("a random order", sum(a < b for (a, *_), (b, *_) in itertools.pairwise(read)) in range(100, 201), True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True)
    arguments = parser.parse_args()
    binary = str(pathlib.Path(arguments.shardify).resolve())
    with tempfile.TemporaryDirectory(prefix="first_day.") as folder:
        for task in (pictures, tables, chats, maps, archives):
            print(task.__name__, flush=True)
            if task is pictures and not (list((ROOT / "python" / "shardify").glob("_native*.so")) and importlib.util.find_spec("numpy")):
                not_run("pictures", "there is no extension of the package, or no numpy")
                continue
            task(Task(binary, pathlib.Path(folder) / task.__name__, sys.executable))
    print("ok")
    return 0


if __name__ == "__main__":
    finish(main)
