#!/usr/bin/env python3
"""Dataset cards (`--index hf`), as `datasets.load_dataset(FOLDER)` of Hugging Face reads them.

Random operations on a dataset of Parquet shards (convert, compact, sort, erase, erase --all-versions, remove, revert, tag, vacuum). After
each one, `verify` is content, and `load_dataset` of the folder, loaded and streamed, gives exactly the rows of the live shards, read by
pyarrow, though shards of older versions lie beside them. Then splits in folders `split=NAME`, and tar shards, by their keys.
"""

import argparse
import os
import pathlib
import tarfile
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

from harness import expect, finish, not_run, objects, run
from mirror_check import OPERATIONS, Round, rows_of


def loaded(folder, columns):
    """The rows of each split, loaded and streamed."""
    import datasets

    for streaming in (False, True):
        found = datasets.load_dataset(str(folder), streaming=streaming)
        yield {split: rows_of(({**row} for row in rows), columns) for split, rows in found.items()}


class CardRound(Round):
    def source(self):
        # `datasets` takes the columns of the first shard for those of all.
        name = super().source()
        self.sources += self.sources % 4 == 3
        return name

    def compare_card(self):
        self.run("verify", "d")
        rows = self.live(self.version())
        for found in loaded(self.dataset, ["pat", "n", "x"]) if rows else ():
            which = f"seed {self.seed}, {self.done}: load_dataset"
            expect(which, found["train"], rows_of(rows, ["pat", "n", "x"]))


def splits(program, folder):
    """Shards of three splits, adopted with names that are patterns, unless they are escaped."""
    for split, name, number in [("train", "a[1]", 1), ("train", "a1", 2), ("test", "b*", 3), ("dev.x_1", "c?ü %", 4)]:
        place = folder / "in" / f"split={split}"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": [number]}), place / f"{name}.parquet")
    (folder / "s.csv").write_text("n\n9\n")
    run(program, "convert", "s.csv", "--out", "s", "--index", "hf", folder=folder)
    run(program, "adopt", "in", "--out", "s", folder=folder)
    for found in loaded(folder / "s", ["n"]):
        expect("splits", found, {"train": ["[1]", "[2]", "[9]"], "test": ["[3]"], "dev.x_1": ["[4]"]})


def samples(program, folder):
    """Tar shards of several runs, which are merged, and a sample erased."""
    import datasets

    for source in range(3):
        for sample in range(7):
            path = folder / f"raw{source}" / f"{source}-{sample}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"text {source} {sample}")
        run(program, "convert", f"raw{source}", "--to", "tar", "--index", "hf", "--out", "t", folder=folder)
        if source == 1:
            run(program, "compact", "t", "--min-inputs", "2", folder=folder)
    run(program, "erase", "t", "--record", "1-3", folder=folder)
    live = [o["path"] for o in objects(program, "manifest", "t", "--list", folder=folder) if o["type"] == "shard"]
    keys = sorted({member.split(".")[0] for path in live for member in tarfile.open(folder / "t" / path).getnames()})
    for streaming in (False, True):
        found = datasets.load_dataset(str(folder / "t"), streaming=streaming)["train"]
        expect("keys of tar shards", sorted(pathlib.PurePath(row["__key__"]).name for row in found), keys)
    expect("whether the erased sample is live", "1-3" in keys, False)
    run(program, "verify", "t", folder=folder)
    return len(keys)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program = pathlib.Path(options.shardify).resolve()
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"HF_HOME": cache, "HF_HUB_OFFLINE": "1"}
        try:
            import datasets
        except ImportError as why:
            not_run("Hugging Face datasets", why)
            return
        datasets.disable_progress_bars()
        for seed in range(options.seed, options.seed + options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                one = CardRound(program, pathlib.Path(folder), seed)
                one.run("convert", one.source(), "--to", "parquet", "--out", "d", "--index", "hf", "--id", "n", "--subject", "pat",
                        "--type", "x=float64", "--type", "ts=timestamp(us)")
                for _ in range(options.steps):
                    one.step(one.rng.choice([operation for operation in OPERATIONS if operation != "adopt"]))
                    one.compare_card()
        with tempfile.TemporaryDirectory() as folder:
            splits(program, pathlib.Path(folder))
            keys = samples(program, pathlib.Path(folder))
        print(f"{options.rounds} rounds of {options.steps} operations; splits; {keys} samples; datasets {datasets.__version__}")


if __name__ == "__main__":
    finish(main)
