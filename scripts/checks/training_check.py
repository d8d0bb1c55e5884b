#!/usr/bin/env python3
"""Random sequences of everything that makes a training set: conversions with `--where`, `--dedup`, `--split` and `--shuffle`, merges, erasures,
vacuums, datasets cut from others, and copies. A model in Python says which records each dataset has.

After each step, the counts of the summary add up; pyarrow, tarfile or tfrecord read exactly the records of the model from the live shards;
the export names each of them once, and lookups find them where it says; nobody who was erased is there, in the dataset or in those cut from
it later; of a shuffled run, the records have the order of their ranks; nobody is in two splits; and `verify --read-data` accepts the dataset.

    python3 scripts/checks/training_check.py --shardify target/release/shardify [--sequences N] [--steps N] [--seed N]
"""

import argparse
import collections
import json
import pathlib
import random
import tarfile
import tempfile

import pyarrow.parquet as pq
import xxhash
from harness import FORMATS, Failure, expect, finish, run
from tfrecord.reader import tfrecord_loader

COLUMNS = ("id", "who", "age", "note")
CODECS = {"parquet": ("zstd", "none", "snappy"), "tar": ("none", "gzip"), "tfrecord": ("none", "gzip")}
SUMS = ("records_out", "records_rejected", "records_deduplicated", "records_filtered")


class Dataset:
    """What a dataset should have: its live rows, each with the source and row that it came from, and who was erased."""

    def __init__(self, path, to, options, seed):
        self.path, self.to, self.options, self.seed = path, to, options, seed
        self.rows, self.erased, self.mixed = [], set(), []

    def kept(self, rows):
        return [row for row in rows if row[1] not in self.erased]


class Sequence:
    def __init__(self, shardify, folder, seed):
        self.shardify, self.folder, self.rng = shardify, pathlib.Path(folder), random.Random(seed)
        self.datasets, self.sources, self.made, self.done = [], 0, 0, []

    def run(self, *words, codes=(0,)):
        self.done.append(" ".join(map(str, words)))
        out = run(self.shardify, *words, "--json", "--progress", "never", codes=codes, folder=self.folder)
        objects = [json.loads(line) for line in out.splitlines()]
        return objects, next((one for one in objects if one["type"] == "summary"), {})

    def name(self):
        self.made += 1
        return f"dataset-{self.made}"

    def new(self):
        rng, to = self.rng, self.rng.choice(FORMATS)
        options = ["--to", to, "--codec", rng.choice(CODECS[to]), "--id", "id", "--subject", "who", "--target-shard", rng.choice(("2KiB", "20KiB", "1MiB"))]
        dedup = rng.choice(("", "content", "id"))
        options += ["--dedup", dedup] if dedup else []
        options += ["--split", "train=0.6,val=0.2,test=0.2"] if rng.random() < 0.4 else []
        seed = rng.randrange(1000) if rng.random() < 0.5 else None
        options += ["--shuffle", str(seed)] if seed is not None else []
        return Dataset(self.name(), to, options, seed), dedup

    def source(self, dedup):
        """A table with new rows, rows of earlier ones, and rows that are there twice."""
        self.sources += 1
        rng, name, rows = self.rng, f"s{self.sources}.csv", []
        old = [row for one in self.datasets for row in one.rows]
        for number in range(rng.randrange(1, 120)):
            again = (rows or old) and rng.random() < 0.2
            if again:
                rows.append(rng.choice([row[:4] for row in rows + old]))
            else:
                who = f"P{rng.randrange(25):02}"
                rows.append((f"{who}-{self.sources}-{number}", who, rng.randrange(90), rng.choice(("", "note", 'a "quoted", text', "ä\nb"))))
        if not dedup:
            # Without it, two neighbours with one id would be one sample of a tar.
            rows = list({row[0]: row for row in rows}.values())
        text = lambda row: ",".join('"' + str(value).replace('"', '""') + '"' for value in row)
        (self.folder / name).write_text("\n".join(map(text, [COLUMNS, *rows])) + "\n")
        return name, [(*row, name, number) for number, row in enumerate(rows, 1)]

    def convert(self):
        if self.datasets and self.rng.random() < 0.7:
            dataset = self.rng.choice(self.datasets)
            dedup = next((b for a, b in zip(dataset.options, dataset.options[1:]) if a == "--dedup"), "")
            options = []
        else:
            dataset, dedup = self.new()
            options = dataset.options
            self.datasets.append(dataset)
        name, rows = self.source(dedup)
        where = dataset.to == "parquet" and self.rng.random() < 0.3
        options = [*options, *(["--where", "age >= 30"] if where else [])]
        _, summary = self.run("convert", name, "--out", dataset.path, *options, codes=(0, 3))
        expect("records in", summary["records_in"], len(rows))
        expect("the sum of the counts", sum(summary[name] for name in SUMS), summary["records_in"])
        rows = dataset.kept([row for row in rows if not where or row[2] >= 30])
        if dedup:
            key = (lambda row: row[0]) if dedup == "id" else (lambda row: row[:4])
            seen, fresh = {key(row) for row in dataset.rows}, []
            for row in rows:
                if key(row) not in seen:
                    seen.add(key(row))
                    fresh.append(row)
            rows = fresh
        expect("records out", summary["records_out"], len(rows))
        dataset.rows += rows
        if dataset.seed is not None and rows:
            dataset.mixed.append(({name}, dataset.seed))
        return [dataset]

    def any(self):
        full = [one for one in self.datasets if one.rows]
        return self.rng.choice(full) if full else None

    def compact(self):
        dataset = self.any()
        if dataset:
            self.run("compact", dataset.path, *self.rng.choice(([], ["--target-shard", "6KiB"])))
        return [dataset]

    def erase(self):
        dataset = self.any()
        if not dataset:
            return []
        who = self.rng.choice(dataset.rows)[1]
        _, summary = self.run("erase", dataset.path, "--subject", who, *self.rng.choice((["--all-versions"], [])))
        gone = [row for row in dataset.rows if row[1] == who]
        expect("records erased", summary["records_erased"], len(gone))
        dataset.rows = [row for row in dataset.rows if row[1] != who]
        dataset.erased.add(who)
        return [dataset]

    def vacuum(self):
        dataset = self.any()
        if dataset:
            self.run("vacuum", dataset.path, "--retain", "0s", "--force")
        return [dataset]

    def reshard(self):
        dataset, rng = self.any(), self.rng
        if not dataset:
            return []
        options, wanted, sampled = [], list(dataset.rows), False
        how = rng.choice(("all", "ids", "who", "sample", "where"))
        if how in ("ids", "who"):
            place = 0 if how == "ids" else 1
            names = {row[place] for row in rng.sample(dataset.rows, rng.randrange(1, len(dataset.rows) + 1))}
            (self.folder / "ids.txt").write_text("".join(f"{name}\n" for name in sorted(names)))
            options += ["--ids", "ids.txt"]
            wanted = [row for row in wanted if row[place] in names]
        elif how == "sample":
            options += ["--sample", "0.5", "--seed", str(rng.randrange(99))]
            sampled = True
        elif how == "where" and dataset.to == "parquet" and any(row[2] < 50 for row in wanted):
            options += ["--where", "age < 50"]
            wanted = [row for row in wanted if row[2] < 50]
        seed = rng.randrange(1000) if rng.random() < 0.6 else None
        options += ["--shuffle", str(seed)] if seed is not None else []
        options += rng.choice(([], ["--shards", "3"], ["--records-per-shard", "7"], ["--target-shard", "4KiB"]))
        child = Dataset(self.name(), dataset.to, dataset.options, seed if seed is not None else dataset.seed)
        # A sample may be empty, and sides and sets of shuffled shards are not mixed.
        codes = (0, 2) if sampled or "--shards" in options else (0,)
        # In tar, two records with one id cannot be neighbours.
        codes = (*codes, 6) if dataset.to == "tar" and len({row[0] for row in wanted}) < len(wanted) else codes
        _, summary = self.run("reshard", dataset.path, "--out", child.path, *options, codes=codes)
        if not summary:
            return []
        expect("the sum of the counts", summary["records_out"] + summary["records_filtered"], len(dataset.rows))
        if sampled:
            taken = collections.Counter((row["source"], row["row"]) for row in self.export(child))
            wanted = [row for row in wanted if taken[row[4:]]]
        expect("records out", summary["records_out"], len(wanted))
        child.rows, child.erased = wanted, set(dataset.erased)
        # A shard that an erasure rewrote is a set of its own, which is not mixed with the others.
        kept = [] if dataset.erased else list(dataset.mixed)
        child.mixed = [({row[4] for row in wanted}, seed)] if seed is not None else kept
        self.datasets.append(child)
        return [dataset, child]

    def pull(self):
        dataset = self.any()
        if not dataset:
            return []
        place = f"copy-of-{dataset.path}"
        self.run("pull", dataset.path, place)
        copy = Dataset(place, dataset.to, [], None)
        copy.rows, copy.erased, copy.mixed = dataset.rows, dataset.erased, dataset.mixed
        return [copy]

    def export(self, dataset):
        self.done.append(f"export of {dataset.path}")
        out = run(self.shardify, "manifest", dataset.path, "--export", "jsonl", folder=self.folder)
        return [json.loads(line) for line in out.splitlines()]

    def stored(self, dataset, shards):
        """The rows that another reader finds in the shards."""
        out = []
        for shard in shards:
            path = self.folder / dataset.path / shard
            if dataset.to == "parquet":
                out += [tuple(row[name] for name in COLUMNS) for row in pq.read_table(path, partitioning=None).to_pylist()]
            elif dataset.to == "tar":
                with tarfile.open(path) as tar:
                    found = [json.load(tar.extractfile(one)) for one in tar if one.name.endswith(".json")]
                out += [tuple(row.get(name) for name in COLUMNS) for row in found]
            else:
                kind = "gzip" if path.name.endswith(".gz") else None
                for row in tfrecord_loader(str(path), None, compression_type=kind):
                    text = lambda name: bytes(row[name]).decode() if name in row else None
                    out.append((text("id"), text("who"), int(row["age"][0]), text("note")))
        return [(*row[:3], row[3] or "") for row in out]

    def look(self, dataset):
        exported, rows = self.export(dataset), dataset.rows
        expect("exported records", sorted((row["source"], row["row"]) for row in exported), sorted(row[4:] for row in rows))
        shards = list(dict.fromkeys(row["shard"] for row in exported))
        expect("rows that another reader finds", sorted(self.stored(dataset, shards)), sorted(row[:4] for row in rows))
        for sources, seed in dataset.mixed:
            by_set = collections.defaultdict(list)
            for row in exported:
                if row["source"] in sources:
                    rank = xxhash.xxh3_128_intdigest(row["source"].encode() + row["row"].to_bytes(8, "little"), seed=seed)
                    by_set[row["shard"].rsplit("/", 1)[0]].append(rank)
            for ranks in by_set.values():
                expect("shuffled records", ranks, sorted(ranks))
        sides = collections.defaultdict(set)
        for row in exported:
            sides[row["subject_id"]].add(next((part for part in row["shard"].split("/") if part.startswith("split=")), ""))
        expect("subjects in two splits", [who for who, found in sides.items() if len(found) > 1], [])
        for row in self.rng.sample(exported, min(3, len(exported))):
            hits, _ = self.run("manifest", dataset.path, "--find", row["record_id"])
            places = [(hit["shard"], hit["ordinal"]) for hit in hits if hit["type"] == "hit"]
            same = [(one["shard"], one["ordinal"]) for one in exported if one["record_id"] == row["record_id"]]
            expect(f"places of {row['record_id']}", sorted(places), sorted(same))
        for who in sorted(dataset.erased)[:2]:
            hits, _ = self.run("manifest", dataset.path, "--find", who, codes=(0, 1))
            expect(f"hits for {who}, who was erased", [hit for hit in hits if hit["type"] == "hit"], [])
        self.run("verify", dataset.path, "--read-data")

    def step(self):
        kinds = (self.convert, self.convert, self.convert, self.compact, self.erase, self.vacuum, self.reshard, self.reshard, self.pull)
        for dataset in self.rng.choice(kinds)():
            if dataset:
                self.look(dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--sequences", type=int, default=300)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    steps = 0
    for number in range(options.sequences):
        with tempfile.TemporaryDirectory() as folder:
            sequence = Sequence(str(pathlib.Path(options.shardify).resolve()), folder, f"{options.seed}-{number}")
            try:
                for _ in range(options.steps):
                    sequence.step()
                    steps += 1
            except Failure as failure:
                told = "\n  ".join(sequence.done)
                raise Failure(f"sequence {number} of seed {options.seed}: {failure}\n  {told}") from failure
    print(f"{options.sequences} sequences of {options.steps} steps: {steps} steps, 0 failed")


finish(main)
