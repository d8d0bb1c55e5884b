"""What the loaders of this environment get from a source and from its shards.

    python -m shardify.bench SOURCE DATASET [--step 0.1] [--batch 32] [--workers 0 2] [--seconds 5] [--json]

Before: a loop over files, `torch.utils.data.DataLoader` over files, pyarrow and Hugging Face datasets over tables. After: the shards by
`shardify.open(DATASET).loader()`, by a loop over `tarfile` or pyarrow, webdataset, `tf.data` and Hugging Face datasets. A loader whose
package is missing is said to be. Records are counted with the bytes of their parts or columns, and decoded no further. Everything is read
again and again until the time is over; with `--cold` it is dropped from the page cache before each measurement, and read once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .dataset import Dataset
from .dataset import open as open_dataset

TABLES = {".csv": "csv", ".parquet": "parquet", ".json": "json", ".jsonl": "json"}

Counts = Iterator[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Options:
    """How to measure."""

    batch: int = 32
    workers: int = 0
    step: float = 0.1
    seconds: float = 5.0


@dataclasses.dataclass(frozen=True)
class Result:
    """A measurement; `missing` says why there is none."""

    side: str
    loader: str
    workers: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    records_per_second: float = 0.0
    bytes_per_second: float = 0.0
    first_batch_seconds: float = 0.0
    waiting: float | None = None
    missing: str | None = None


def samples_of(folder: str) -> list[list[str]]:
    """The files below a folder by sample: those whose paths are equal up to the first dot of the name."""
    groups: dict[str, list[str]] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            groups.setdefault(os.path.join(root, name.split(".")[0]), []).append(os.path.join(root, name))
    samples = [sorted(files) for _, files in sorted(groups.items())]
    random.Random(0).shuffle(samples)
    return samples


def read_sample(files: Iterable[str]) -> tuple[int, int]:
    """Reads the files of a sample; returns 1 and their bytes."""
    size = 0
    for path in files:
        with open(path, "rb") as file:
            size += len(file.read())
    return 1, size


class Files:
    """A map-style dataset of torch: a sample is its files."""

    def __init__(self, samples: Sequence[Sequence[str]]):
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, at: int) -> tuple[int, int]:
        return read_sample(self.samples[at])


def size_of(record: Any) -> int:
    """Bytes of a record: of its parts, texts and arrays; 8 for a number."""
    if isinstance(record, (bytes, bytearray, memoryview)):
        return len(record)
    if isinstance(record, str):
        return len(record.encode())
    if isinstance(record, dict):
        return sum(size_of(value) for key, value in record.items() if not str(key).startswith("__"))
    if isinstance(record, (list, tuple)):
        return sum(size_of(value) for value in record)
    if record is None:
        return 0
    return int(getattr(record, "nbytes", 8))


def together(batch: list[tuple[int, int]]) -> tuple[int, int]:
    """Joins the counts of a batch; torch calls it in the workers."""
    return sum(records for records, _ in batch), sum(size for _, size in batch)


def batched(counts: Iterable[tuple[int, int]], batch: int) -> Counts:
    """Cuts a stream of counts into batches."""
    records = size = 0
    for more, bytes_of_more in counts:
        records, size = records + more, size + bytes_of_more
        while records >= batch:
            part = size * batch // records
            yield batch, part
            records, size = records - batch, size - part
    if records:
        yield records, size


def with_torch(dataset: Any, options: Options) -> Counts:
    from torch.utils.data import DataLoader

    return iter(DataLoader(dataset, batch_size=options.batch, shuffle=True, num_workers=options.workers, collate_fn=together))


def sources(source: str) -> dict[str, Callable[[Options], Counts]]:
    """Loaders of a source."""
    path = pathlib.Path(source)
    names = [str(path)] if path.is_file() else [str(file) for file in path.rglob("*") if file.is_file()]
    kinds = {TABLES.get(pathlib.Path(name).suffix, "") for name in names[:1000]}
    if len(kinds) == 1 and kinds != {""}:
        kind = kinds.pop()
        return {
            "pyarrow": lambda o: batched(arrow(names, kind), o.batch),
            "datasets": lambda o: batched(hugging(kind, names), o.batch),
        }
    samples = samples_of(source)
    return {
        "files": lambda o: batched(map(read_sample, samples), o.batch),
        "torch DataLoader": lambda o: with_torch(Files(samples), o),
    }


def arrow(paths: list[str], kind: str) -> Counts:
    import pyarrow.dataset

    for batch in pyarrow.dataset.dataset(paths, format=kind).to_batches():
        yield batch.num_rows, batch.nbytes


def hugging(kind: str, paths: list[str]) -> Counts:
    import datasets

    stream = datasets.load_dataset(kind, data_files=paths, split="train", streaming=True)
    return ((1, size_of(record)) for record in stream)


def tar_members(paths: list[str]) -> Counts:
    """Samples of tar by the standard library: members whose names are equal up to the first dot of the last component."""
    import tarfile

    for path in paths:
        key, size = None, 0
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is None:
                    continue
                folder, _, name = member.name.rpartition("/")
                own = f"{folder}/{name.split('.')[0]}"
                if key is not None and own != key:
                    yield 1, size
                    size = 0
                key, size = own, size + len(file.read())
        if key is not None:
            yield 1, size


def own(dataset: Dataset, options: Options) -> Counts:
    """Shuffled batches of the loader of this package."""
    return ((len(batch), batch.nbytes) for batch in dataset.loader(global_batch_size=options.batch, seed=1, drop_last=False))


def shards(dataset: Dataset) -> dict[str, Callable[[Options], Counts]]:
    """Loaders of a dataset."""
    paths = dataset.paths()
    found: dict[str, Callable[[Options], Counts]] = {
        "shardify": lambda o: own(dataset, o),
    }
    if dataset.format == "tar":
        found["tarfile"] = lambda o: batched(tar_members(paths), o.batch)
        found["webdataset"] = lambda o: batched(((1, size_of(one)) for one in dataset.webdataset()), o.batch)
        found["datasets"] = lambda o: batched(hugging("webdataset", paths), o.batch)
    elif dataset.format == "parquet":
        found["pyarrow"] = lambda o: batched(arrow(paths, "parquet"), o.batch)
        found["datasets"] = lambda o: batched(hugging("parquet", paths), o.batch)
    else:
        found["tf.data"] = lambda o: batched(((1, len(one)) for one in dataset.tf().as_numpy_iterator()), o.batch)
    return found


def passes(loader: Callable[[Options], Counts], options: Options) -> Counts:
    """Reads everything again and again."""
    is_empty = False
    while not is_empty:
        is_empty = True
        for counts in loader(options):
            is_empty = False
            yield counts


def measure(side: str, name: str, loader: Callable[[Options], Counts], options: Options, files: Sequence[str] | None = None) -> Result:
    """Measures a loader: without steps for its rate, and with them for the share of time that a step waits.

    With `files`, these are dropped from the page cache before each of the two, and read once.
    """
    read = passes if files is None else lambda loader, options: loader(options)
    try:
        # Packages are imported before the clock runs.
        next(loader(options), None)
        if files is not None:
            drop_cached(files)
        rate = once(read(loader, options), 0.0, options.seconds)
        if files is not None:
            drop_cached(files)
        stepped = once(read(loader, options), options.step, options.seconds)
    except ImportError as error:
        return Result(side, name, missing=f"{error.name} is not installed" if error.name else str(error))
    records, size, seconds, first, _ = rate
    _, _, time_of_steps, first_of_steps, waited = stepped
    after = time_of_steps - first_of_steps
    return Result(
        side=side,
        loader=name,
        workers=options.workers if name.startswith("torch") else 0,
        records=records,
        bytes=size,
        seconds=seconds,
        records_per_second=records / seconds if seconds else 0.0,
        bytes_per_second=size / seconds if seconds else 0.0,
        first_batch_seconds=first,
        waiting=waited / after if after > 0 and waited else None,
    )


def once(counts: Counts, step: float, limit: float) -> tuple[int, int, float, float, float]:
    """Takes batches until the time is over; returns records, bytes, time, time to the first batch, and time waited after it."""
    started = time.perf_counter()
    records = size = 0
    first = waited = ended = 0.0
    while time.perf_counter() - started < limit:
        asked = time.perf_counter()
        batch = next(counts, None)
        if batch is None:
            break
        now = time.perf_counter()
        if records:
            waited += now - asked
        else:
            first = now - started
        records, size = records + batch[0], size + batch[1]
        if step:
            time.sleep(step)
        ended = time.perf_counter() - started
    return records, size, ended, first, waited


def drop_cached(paths: Iterable[str]) -> None:
    """Drops files from the page cache; needs no privileges."""
    os.sync()
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def files_of(source: str) -> list[str]:
    return [source] if os.path.isfile(source) else [os.path.join(root, name) for root, _, names in os.walk(source) for name in names]


def bench(
    source: str,
    dataset: str,
    options: Options,
    workers: Sequence[int] = (0, 2),
    cold: bool = False,
    only: Sequence[str] = (),
) -> list[Result]:
    """Measures all loaders, those of torch with each number of workers."""
    opened = open_dataset(dataset)
    results = []
    for side, loaders, files in (("before", sources(source), files_of(source)), ("after", shards(opened), opened.paths())):
        for name, loader in loaders.items():
            if only and not any(text in name for text in only):
                continue
            for count in workers if name.startswith("torch") else (0,):
                results.append(measure(side, name, loader, dataclasses.replace(options, workers=count), files if cold else None))
    return results


def show(results: Iterable[Result]) -> None:
    print(f"{'':<6} {'loader':<20} {'workers':>7} {'records/s':>12} {'MiB/s':>9} {'first batch':>12} {'waiting':>8}")
    for one in results:
        if one.missing:
            print(f"{one.side:<6} {one.loader:<20} {one.missing}")
            continue
        waiting = "" if one.waiting is None else f"{one.waiting:.0%}"
        print(
            f"{one.side:<6} {one.loader:<20} {one.workers:>7} {one.records_per_second:>12,.0f} {one.bytes_per_second / 2**20:>9,.1f}"
            f" {one.first_batch_seconds * 1000:>9,.0f} ms {waiting:>8}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m shardify.bench", description="What the loaders of this environment get.")
    parser.add_argument("source", help="folder or file that a loader reads before")
    parser.add_argument("dataset", help="dataset that was made of it")
    parser.add_argument("--step", type=float, default=0.1, metavar="SECONDS", help="time that a training step takes [default: 0.1]")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="records of a batch [default: 32]")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], metavar="N", help="workers of torch [default: 0 2]")
    parser.add_argument("--seconds", type=float, default=5.0, help="longest time of a measurement [default: 5]")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="loaders with such a text in their name")
    parser.add_argument("--cold", action="store_true", help="drop files from the page cache first, and read them once")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    given = parser.parse_args(arguments)
    options = Options(batch=given.batch, step=given.step, seconds=given.seconds)
    results = bench(given.source, given.dataset, options, given.workers, given.cold, given.only)
    if given.json:
        for one in results:
            print(json.dumps({"type": "run", **dataclasses.asdict(one)}))
    else:
        show(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
