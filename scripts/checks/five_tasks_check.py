#!/usr/bin/env python3
"""The first five minutes: five tasks, each in at most three commands, the result read by a program of others.

Images in folders of classes, a CSV dump, a folder of JSON Lines, a NetCDF file, and tar shards of webdataset that exist already. The
first command is always `inspect`, and the second one is what it suggests, with options that a user would add. webdataset, pyarrow and
netCDF4 or h5py have to find in the shards what is in the inputs.

    python3 scripts/checks/five_tasks_check.py --shardify target/release/shardify
"""

import argparse
import csv
import importlib.util
import io
import json
import pathlib
import shlex
import tarfile
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import Failure, expect, finish, not_run, objects, run

MOST_COMMANDS = 3
PEOPLE = 1_000


class Task:
    """A folder, the commands that were run in it, and how many."""

    def __init__(self, shardify, folder):
        self.shardify, self.folder, self.commands = shardify, folder, []
        folder.mkdir()

    def run(self, line):
        """Runs a command line, as it is typed."""
        self.commands.append(line)
        if len(self.commands) > MOST_COMMANDS:
            raise Failure(f"{self.folder.name}: more than {MOST_COMMANDS} commands: {self.commands}")
        print(f"  $ {line}", flush=True)
        return objects(self.shardify, *shlex.split(line)[1:], folder=self.folder)

    def inspect(self, source):
        """Runs `inspect`; returns its summary, whose command is the next one to run."""
        summary = self.run(f"shardify inspect {source}")[-1]
        expect("the object of inspect", summary["type"], "summary")
        return summary

    def shards(self, ending):
        listed = json.loads(
            b"[" + b",".join(run(self.shardify, "manifest", "--list", "--json", folder=self.folder).splitlines()[:-1]) + b"]"
        )
        return sorted(self.folder / "shards" / shard["path"] for shard in listed if shard["path"].endswith(ending))


def samples(shards):
    """The samples of tar shards as webdataset reads them, or by tarfile where it is not installed."""
    if importlib.util.find_spec("webdataset"):
        import webdataset

        loader = webdataset.WebDataset([str(shard) for shard in shards], shardshuffle=False, empty_check=False)
        return {one["__key__"]: {part: value for part, value in one.items() if not part.startswith("__")} for one in loader}
    not_run("shards as webdataset reads them", "webdataset is not installed")
    found = {}
    for shard in shards:
        with tarfile.open(shard) as archive:
            for member in archive:
                key, _, part = member.name.partition(".")
                found.setdefault(key, {})[part] = archive.extractfile(member).read()
    return found


def images(shardify, folder):
    task = Task(shardify, folder)
    pictures = {}
    for number in range(120):
        kind = ("cat", "dog", "owl")[number % 3]
        path = task.folder / "pets" / kind / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff\xe0" + bytes(f"{kind} {number} ", "ascii") * 200)
        pictures[f"{kind}/{number:03}"] = (path.read_bytes(), kind)
    found = task.inspect("pets")
    expect("the option for labels", any("--label-from-folder" in problem for problem in found["problems"]), True)
    task.run(f"{found['command']} --label-from-folder --shards 8")
    task.run("shardify verify --read-data")
    shards = task.shards(".tar")
    expect("shards for 8 workers", len(shards), 8)
    kinds = sorted({kind for _, kind in pictures.values()})
    read = {key: (one["jpg"], kinds[int(one["cls"])]) for key, one in samples(shards).items()}
    expect("pictures and classes", read, pictures)


def csv_dump(shardify, folder):
    task = Task(shardify, folder)
    rows = [
        {"patient_id": f"P{n % 90:03}", "visit_id": f"V{n}", "day": f"2024-{n % 12 + 1:02}-03", "weight": n / 8, "note": f'a, "b" {n}'}
        for n in range(PEOPLE)
    ]
    with (task.folder / "dump.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    found = task.inspect("dump.csv")
    expect("the record id", (found["id"], found["subject"]), ("visit_id", "patient_id"))
    task.run(found["command"])
    hits = task.run("shardify manifest --find P007")
    expect("visits of a patient", sum(one["type"] == "hit" for one in hits), sum(row["patient_id"] == "P007" for row in rows))
    table = pa.concat_tables(pq.read_table(shard) for shard in task.shards(".parquet"))
    read = [{**row, "day": row["day"].isoformat()} for row in table.to_pylist()]
    expect("rows", read, rows)


def jsonl_folder(shardify, folder):
    task = Task(shardify, folder)
    (task.folder / "logs").mkdir()
    rows = [{"id": n, "text": f"line {n} ü", "tags": ["a"] * (n % 3), "at": {"x": n / 4}} for n in range(600)]
    for file in range(6):
        text = "".join(json.dumps(row) + "\n" for row in rows[file * 100 : file * 100 + 100])
        (task.folder / "logs" / f"{file}.jsonl").write_text(text)
    found = task.inspect("logs")
    expect("a problem of sizes", any("files are small" in problem for problem in found["problems"]), True)
    task.run(found["command"])
    task.run("shardify verify --read-data")
    table = pa.concat_tables(pq.read_table(shard) for shard in task.shards(".parquet"))
    expect("rows", table.to_pylist(), rows)


def netcdf(shardify, folder):
    task = Task(shardify, folder)
    times, shape = 12, (5, 7)
    values = np.arange(times * 35, dtype="f4").reshape(times, *shape) / 4
    if importlib.util.find_spec("netCDF4"):
        import netCDF4

        with netCDF4.Dataset(task.folder / "grid.nc", "w") as file:
            for name, length in (("time", None), ("lat", shape[0]), ("lon", shape[1])):
                file.createDimension(name, length)
            file.createVariable("time", "f8", ("time",))[:] = np.arange(times)
            file.createVariable("temp", "f4", ("time", "lat", "lon"))[:] = values
        with netCDF4.Dataset(task.folder / "grid.nc") as file:
            wanted = np.asarray(file["temp"][:])
    else:
        import h5py

        with h5py.File(task.folder / "grid.nc", "w") as file:
            file["temp"] = values
        with h5py.File(task.folder / "grid.nc") as file:
            wanted = file["temp"][:]
    found = task.inspect("grid.nc")
    task.run(found["command"])
    task.run("shardify verify --read-data")
    table = pa.concat_tables(pq.read_table(shard) for shard in task.shards(".parquet"))
    expect("records", table.num_rows, times)
    column = table.column("temp").combine_chunks()
    flat = np.asarray(column.storage.flatten() if isinstance(column, pa.ExtensionArray) else column.flatten())
    expect("values", bool((flat.reshape(times, *shape) == wanted).all()), True)


def webdataset_shards(shardify, folder):
    task = Task(shardify, folder)
    (task.folder / "wds").mkdir()
    wanted = {}
    for shard in range(10):
        with tarfile.open(task.folder / "wds" / f"{shard:06}.tar", "w") as archive:
            for number in range(shard * 30, shard * 30 + 30):
                wanted[f"{number:05}"] = parts = {"txt": bytes(f"text {number}", "ascii"), "cls": bytes(str(number % 7), "ascii")}
                for part, content in parts.items():
                    member = tarfile.TarInfo(f"{number:05}.{part}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    found = task.inspect("'wds/*.tar'")
    expect("samples", found["records"], 300)
    for command in found["command"].split(" && "):
        task.run(command)
    shards = task.shards(".tar")
    expect("shards after they were merged", len(shards), 1)
    expect("samples", samples(shards), wanted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shardify", required=True)
    shardify = str(pathlib.Path(parser.parse_args().shardify).resolve())
    tasks = {"images": images, "csv": csv_dump, "jsonl": jsonl_folder, "netcdf": netcdf, "webdataset": webdataset_shards}
    with tempfile.TemporaryDirectory() as work:
        for name, task in tasks.items():
            print(name, flush=True)
            task(shardify, pathlib.Path(work) / name)
    print(f"{len(tasks)} tasks in at most {MOST_COMMANDS} commands each")


if __name__ == "__main__":
    finish(main)
