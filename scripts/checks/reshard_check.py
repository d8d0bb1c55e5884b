#!/usr/bin/env python3
"""Datasets that are cut anew hold, for other programs, the chosen records of the old ones and nothing else.

Kinds of rounds:

- readers: random datasets of every format and codec, cut by size, number or records, with ids, conditions and samples. pyarrow, `tarfile`
  and webdataset, and tfrecord read the new shards and find the records that are expected from what they read in the old ones: all of them,
  those with the ids, those that DuckDB selects. Members of tar and records of TFRecord are the same bytes.
- kill: a run is killed at random moments. No version is left, and the same command then makes the same shards.
- pairs: two runs make one dataset at once. One of them does, the other reports a conflict or refuses.
- private: who was omitted is in no byte of the new dataset, in a dataset without compression of ids.

    python3 scripts/checks/reshard_check.py --shardify target/release/shardify [--rounds 60] [--seed N]

Prints a line per kind and one per failure; exit code 1 if there was one.
"""

import argparse
import hashlib
import pathlib
import random
import subprocess
import tempfile
import time

import duckdb
import harness
import pyarrow as pa
import pyarrow.parquet as pq
import readers
import webdataset
from harness import CONFLICT, OK, USAGE, Failure, expect, finish, forget_folders, rounds_of
from tfrecord.reader import tfrecord_loader

KINDS = [
    ("parquet", "zstd"), ("parquet", "snappy"), ("tar", "none"), ("tar", "zstd"), ("tar", "gzip"), ("tfrecord", "none"), ("tfrecord", "gzip"),
    ("files", "none"), ("files", "zstd"), ("arrow", "zstd"),
]


def paths(shardify, dataset):
    """The live shards, in the order of the records."""
    listed = [one for one in shardify.ok("manifest", dataset, "--list") if one["type"] == "shard"]
    return [pathlib.Path(dataset) / one["path"] for one in listed]


def read(shardify, dataset, form):
    """The records as other programs read them, in order: (key or id, content)."""
    found = paths(shardify, dataset)
    if form in ("parquet", "arrow"):
        return [(row["id"], repr(row)) for path in found for row in pq.read_table(path, partitioning=None).to_pylist()]
    if form == "tfrecord":
        # The framing and its checksums by the parser of the checks; what is in a record by the package tfrecord.
        return [(bytes(readers.example(data)["id"].values[0]).decode(), data) for path in found for data in readers.frames(readers.content(path))]
    files = (file for path in found for file in readers.members(readers.content(path)))
    return [(key, repr(sorted(parts.items()))) for key, parts in readers.samples(files)]


def check_stock(shardify, dataset, form, codec, records):
    """Stock readers get as many records, with these keys."""
    found = paths(shardify, dataset)
    if form == "tfrecord":
        kind = "gzip" if codec == "gzip" else None
        ids = [bytes(one["id"]).decode() for path in found for one in tfrecord_loader(str(path), None, {"id": "byte"}, compression_type=kind)]
        expect("ids that tfrecord reads", ids, [key for key, _ in records])
    if form in ("tar", "files") and codec != "zstd":
        urls = [str(path) for path in found]
        keys = [sample["__key__"] for sample in webdataset.WebDataset(urls, shardshuffle=False, empty_check=False)]
        expect("keys that webdataset reads", keys, [key for key, _ in records])


class Rounds:
    def __init__(self, shardify, root, rng):
        self.shardify, self.root, self.rng = shardify, root, rng
        self.count = self.kills = 0

    def fresh(self, name):
        self.count += 1
        return self.root / f"{name}{self.count}"

    def rows(self, start, count):
        rng = self.rng
        for row in range(start, start + count):
            yield {"id": f"R{row:06}", "who": f"PAT-{rng.randrange(200):03}", "age": rng.choice([None, *range(90)]), "score": rng.random(),
                   "note": rng.choice(["", "x" * rng.randrange(300), f"note {row % 5}"]), "tags": [rng.choice("abc")] * rng.randrange(3)}

    def dataset(self, form, codec, rows=None, runs=None):
        """A dataset of some runs, of which some may be compacted or erased from."""
        rng, dataset = self.rng, self.fresh("parent")
        size = ["--target-shard", rng.choice(["8KiB", "40KiB", "200KiB"]), "--codec", codec]
        rows, runs = rows or rng.choice([40, 700, 3000]), runs or rng.randrange(1, 4)
        for number in range(runs):
            raw = self.fresh("raw")
            raw.mkdir()
            made = list(self.rows(number * rows, rows))
            if form == "files":
                for row in made[:250]:
                    (raw / f"{row['id']}.bin").write_bytes(rng.randbytes(rng.randrange(4000)))
                    (raw / f"{row['id']}.cls").write_text(row["who"])
                self.shardify.ok("convert", raw, "--out", dataset, *size)
                continue
            table = pa.Table.from_pylist(made)
            if form != "arrow" and form != "parquet":
                table = table.drop_columns(["tags"])
            pq.write_table(table, raw / f"{number}.parquet", row_group_size=rng.choice([50, 1000, 100000]))
            to = "parquet" if form == "arrow" else form
            source = raw
            if form == "arrow":
                # Files of another writer, with lists, pages and row groups of its own.
                self.shardify.ok("adopt", raw, "--out", dataset, "--id", "id", "--subject", "who")
                continue
            self.shardify.ok("convert", source, "--out", dataset, "--to", to, "--id", "id", "--subject", "who", *size)
        if form == "parquet" and rng.random() < 0.3:
            self.shardify.ok("compact", dataset, "--sort-by", rng.choice(["score", "who"]))
        elif rng.random() < 0.3:
            self.shardify.ok("compact", dataset, "--min-inputs", "2", "--target-shard", "100KiB")
        if rng.random() < 0.2 and form != "files":
            self.shardify.run("erase", dataset, "--subject", "PAT-007", *rng.choice([[], ["--all-versions"]]))
        return dataset

    def cut(self):
        rng = self.rng
        return rng.choice([[], ["--shards", rng.choice([1, 2, 5])], ["--records-per-shard", rng.choice([30, 137, 5000])],
                           ["--target-shard", rng.choice(["10KiB", "60KiB", "1MiB"])]])

    def choice(self, form, dataset, records):
        """Options that choose records, and what they choose; a sample is compared with itself."""
        rng, kind = self.rng, self.rng.choice(["all", "all", "ids", "subjects", "where", "sample"])
        ids = [key for key, _ in records]
        if kind == "ids" and ids:
            some = rng.sample(ids, rng.choice([1, len(ids) // 2 + 1, len(ids)]))
            chosen, given = set(some), [*some, "nobody"] + [f"absent-{n}" for n in range(rng.choice([0, 1500]))]
        elif kind == "subjects" and form in ("parquet", "arrow", "tar", "tfrecord"):
            hits = [one for one in self.shardify.ok("manifest", dataset, "--export", "jsonl") if one.get("subject_id") in ("PAT-001", "PAT-100", "PAT-150")]
            chosen, given = {one["record_id"] for one in hits}, ["PAT-001", "PAT-100", "PAT-150"]
        elif kind == "where" and form in ("parquet", "arrow"):
            condition = rng.choice(["age >= 40", "age is null or who in ('PAT-003', 'PAT-050')", "score < 0.5 and note like 'x%'", "age between 3 and 80"])
            files = [str(path) for path in paths(self.shardify, dataset)]
            found = duckdb.sql(f"select id from read_parquet({files!r}, union_by_name = true) where {condition}").fetchall()
            return ["--where", condition], {row[0] for row in found}
        elif kind == "sample":
            return ["--sample", rng.choice([0.1, 0.5, 0.99]), "--seed", rng.randrange(9)], None
        else:
            return [], set(ids)
        path = self.fresh("ids")
        path.write_text("\n".join(given) + "\n")
        return ["--ids", path], chosen

    def readers(self, form, codec):
        dataset = self.dataset(form, codec)
        records = read(self.shardify, dataset, form)
        options, chosen = self.choice(form, dataset, records)
        child, cut = self.fresh("child"), self.cut()
        code, objects, said = self.shardify.run("reshard", dataset, "--out", child, *options, *cut)
        if chosen is not None and not chosen:
            expect(f"exit code without a record ({said})", code, USAGE)
            return dataset, child
        if code == USAGE and ("--shards of" in said or "--sample" in options and "found none" in said):
            return dataset, child
        expect(f"exit code of {options} {cut} ({said})", code, OK)
        summary = objects[-1]
        found = read(self.shardify, child, form)
        if chosen is None:
            chosen = {key for key, _ in found}
        expected = [one for one in records if one[0] in chosen]
        if found != expected:
            missing = [key for key, _ in expected if key not in {key for key, _ in found}]
            raise Failure(f"{form} {codec} {options} {cut}: {len(found)} records in place of {len(expected)}; missing {missing[:5]}")
        counts = [summary[f"records_{part}"] for part in ("in", "out", "filtered")]
        expect("counts", counts, [len(records), len(expected), len(records) - len(expected)])
        self.shardify.ok("verify", child, "--read-data")
        check_stock(self.shardify, child, form, codec, expected)
        key = self.rng.choice(sorted(chosen))
        expect("hits of a record", self.shardify.ok("manifest", child, "--find", key)[-1]["hits"], 1)
        others = [key for key, _ in records if key not in chosen]
        if others:
            expect("exit code of a search for a record that is omitted", self.shardify.run("manifest", child, "--find", self.rng.choice(others))[0], 1)
        if "--records-per-shard" in cut and form != "arrow":
            sizes = [one["records"] for one in objects if one["type"] == "shard"]
            if any(size > cut[1] for size in sizes):
                raise Failure(f"shards of more than {cut[1]} records: {sizes}")
        return dataset, child

    def sums(self, dataset):
        return [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths(self.shardify, dataset)]

    def kill(self, form, codec):
        dataset = self.dataset(form, codec, 3000, 3)
        options = ["--shards", 6, "--sample", 0.7]
        whole, started = self.fresh("whole"), time.monotonic()
        self.shardify.ok("reshard", dataset, "--out", whole, *options)
        seconds, child = time.monotonic() - started, self.fresh("child")
        for _ in range(6):
            command = self.shardify.command("reshard", dataset, "--out", child, *options)
            process = subprocess.Popen(command, env=self.shardify.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                process.wait(timeout=self.rng.uniform(0, seconds))
            except subprocess.TimeoutExpired:
                process.kill()
                self.kills += 1
            process.communicate()
            if process.returncode == OK:
                break
            log = child / "_shardify" / "log"
            if log.is_dir() and [path for path in log.iterdir() if path.suffix == ".json"]:
                # The process was killed between its commit and its end.
                break
        else:
            self.shardify.ok("reshard", dataset, "--out", child, *options)
        self.shardify.ok("verify", child, "--read-data")
        expect("shards", self.sums(child), self.sums(whole))
        self.shardify.ok("vacuum", child, "--retain", "0s", "--force")
        self.shardify.ok("verify", child, "--read-data")
        expect("shards after a vacuum", self.sums(child), self.sums(whole))
        expect("exit code of a run into a dataset", self.shardify.run("reshard", dataset, "--out", child)[0], USAGE)
        return dataset, whole, child

    def pairs(self, form, codec):
        dataset, child = self.dataset(form, codec, 3000, 2), self.fresh("child")
        start = lambda: subprocess.Popen(
            self.shardify.command("reshard", dataset, "--out", child, "--shards", 2), env=self.shardify.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes = [start() for _ in range(2)]
        said = [process.communicate(timeout=300) for process in processes]
        codes = sorted(process.returncode for process in processes)
        if codes not in ([OK, CONFLICT], [OK, USAGE]):
            raise Failure(f"two runs ended with {codes}: {said}")
        self.shardify.ok("verify", child, "--read-data")
        expect("records", read(self.shardify, child, form), read(self.shardify, dataset, form))
        return dataset, child

    def private(self, form, codec):
        if form in ("parquet", "arrow") or codec != "none":
            return None
        dataset, child = self.dataset(form, codec, 700, 2), self.fresh("child")
        keys = [key for key, _ in read(self.shardify, dataset, form)]
        chosen = set(self.rng.sample(keys, 20))
        path = self.fresh("ids")
        path.write_text("\n".join(chosen))
        self.shardify.ok("reshard", dataset, "--out", child, "--ids", path)
        for file in child.rglob("*"):
            if not file.is_file():
                continue
            # In compressed pages, pieces of ids that were kept may lie side by side and look like another.
            contents = {"bytes": b"" if file.suffix == ".parquet" else file.read_bytes()}
            if file.suffix == ".parquet":
                contents["values"] = repr(pq.read_table(file, partitioning=None).to_pylist()).encode()
                metadata = pq.read_metadata(file)
                groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
                columns = [group.column(column) for group in groups for column in range(group.num_columns)]
                contents["statistics"] = repr([(one.statistics.min, one.statistics.max) for one in columns if one.statistics]).encode()
                contents["metadata"] = repr(metadata.metadata).encode()
            for key in keys:
                for what, content in contents.items():
                    at = content.find(key.encode())
                    if key not in chosen and at >= 0:
                        near = content[max(0, at - 50) : at + 50]
                        raise Failure(f"{what} of {file.relative_to(child)} have {key}, which was omitted: {near!r}, of {sorted(chosen)}")
        expect("ids in the index", self.shardify.ok("manifest", child)[-1]["records"], 20)
        return dataset, child

    def all(self, rounds):
        others = max(1, rounds // 10)
        plan = [(self.readers, rounds), (self.kill, others), (self.pairs, others), (self.private, max(len(KINDS), others))]
        return rounds_of(plan, KINDS, forget_folders, lambda kind: f", {self.kills} runs killed" if kind == self.kill else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shardify = harness.Shardify(options.shardify)
        return 1 if Rounds(shardify, pathlib.Path(folder), random.Random(options.seed)).all(options.rounds) else 0


if __name__ == "__main__":
    finish(main)
