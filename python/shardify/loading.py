"""Shards for training loops: each record once an epoch, whatever the number of ranks and workers, also after a stop.

The records of an epoch are numbered: shards in an order that follows from the seed and the epoch, records of a shard from first to last.

    positions    0 ........................................ N-1
    consumers    |-- rank 0, worker 0 --|-- rank 0, worker 1 --|-- rank 1, worker 0 --| ...    equal parts, give or take a record
    a stop       |##########------------|##########------------|#########-------------|       # was read, - is left

What is left after a stop is a list of ranges of positions, which any other number of consumers divides again.

    dataset = shardify.open("shards").torch(seed=1)
    for epoch in range(10):
        dataset.set_epoch(epoch)
        for step, batch in enumerate(DataLoader(dataset, batch_size=64, num_workers=4)):
            ...
            state = dataset.state_dict(batches=step + 1, batch_size=64, workers=4)    # save those of all ranks
    dataset.load_state_dict([state of rank 0, state of rank 1, ...])                  # on any number of ranks and workers
"""

from __future__ import annotations

import copy
import io
import itertools
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from . import _values
from .dataset import unknown
from .errors import UsageError

if TYPE_CHECKING:
    from .dataset import Dataset, Shard

try:
    from torch.utils.data import IterableDataset as _Base
    from torch.utils.data import get_worker_info
except ImportError:  # Without torch, the dataset is an iterable of one worker.
    _Base = object

    def get_worker_info() -> Any:
        return None


Range = tuple[int, int]

VALUES = ("numpy", "python")
# Rows of Parquet that are decoded at once.
BATCH = 1024
KEY = "__key__"
WHOLE_NUMBER = re.compile(rb"\s*[+-]?[0-9]{1,18}\s*")
# Shards that this program has written are in the folder of a run, or in a division of it. Others were adopted, with their keys.
OF_A_RUN = re.compile(r"/[0-9a-f]{16}/([^/=]+=[^/]*/)*[^/]+$")
ESCAPES = re.compile(r"(?:%[0-9A-F]{2})+")


def deal(left: Sequence[Range], consumers: int) -> list[list[Range]]:
    """Divides ranges of positions into equal parts, one for each consumer, in order."""
    total = sum(end - start for start, end in left)
    parts: list[list[Range]] = [[] for _ in range(consumers)]
    before = 0
    for start, end in left:
        at = start
        while at < end:
            consumer = consumer_of(before, total, consumers)
            last = total * (consumer + 1) // consumers
            taken = min(end - at, last - before)
            parts[consumer].append((at, at + taken))
            at, before = at + taken, before + taken
    return parts


def consumer_of(number: int, total: int, consumers: int) -> int:
    """The consumer whose part has the record of this number among those that are left."""
    guess = min(consumers - 1, number * consumers // total)
    while total * (guess + 1) // consumers <= number:
        guess += 1
    while total * guess // consumers > number:
        guess -= 1
    return guess


def without_first(ranges: Sequence[Range], count: int) -> list[Range]:
    """What is left of ranges after that many positions."""
    left = []
    for start, end in ranges:
        taken = min(count, end - start)
        count -= taken
        if start + taken < end:
            left.append((start + taken, end))
    return left


def delivered(lengths: Sequence[int], batches: int, batch_size: int) -> list[int]:
    """Records of each worker in the first batches of a DataLoader, which takes one batch of each worker in turn and passes over
    those that have none left."""
    taken = [0] * len(lengths)
    turns = [worker for worker, length in enumerate(lengths) if length > 0]
    at = 0
    while batches > 0 and turns:
        worker = turns[at % len(turns)]
        taken[worker] = min(lengths[worker], taken[worker] + batch_size)
        batches -= 1
        if taken[worker] == lengths[worker]:
            place = at % len(turns)
            turns.remove(worker)
            at = place
        else:
            at = at % len(turns) + 1
    return taken


class ShardDataset(_Base):  # type: ignore[misc, unused-ignore]
    """Records of a version of a dataset, dealt to ranks and workers.

    Parquet gives a dictionary for each row, tar one for each sample with `__key__` and its parts, TFRecord the bytes of each Example.
    Values are what `torch.utils.data.default_collate` takes: tensors and parts `.npy` are arrays of NumPy of the stored shape and type,
    dates and times are whole numbers since 1970, and a null is an error unless `fill` has a value for its column; so is a part of a sample
    that others lack. The part `cls` is an `int` if it is a whole number, and other parts are bytes. With `values="python"`, rows have the
    values of `pyarrow.Table.to_pylist`, samples have the parts that they have, and all parts are bytes.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        ranks: int | None = None,
        columns: Sequence[str] | None = None,
        fill: Mapping[str, Any] | None = None,
        values: str = "numpy",
        masks: bool = False,
    ) -> None:
        super().__init__()
        self.dataset, self.seed, self.shuffle = dataset, seed, shuffle
        self.columns = list(columns) if columns is not None else None
        self.fill, self.values, self.masks = dict(fill or {}), values, masks
        self._check_values()
        self._check_columns()
        self.rank = _of_environment("RANK", 0) if rank is None else rank
        self.ranks = _of_environment("WORLD_SIZE", 1) if ranks is None else ranks
        self.epoch = 0
        self._left: list[Range] | None = None

    def _check_values(self) -> None:
        if self.values not in VALUES:
            raise UsageError(f"expected values of {' or '.join(VALUES)}, found `{self.values}`")
        if self.fill and (self.dataset.format == "tfrecord" or self.values != "numpy"):
            raise UsageError("expected no `fill`: only columns of Parquet and parts of tar, read as `numpy`, can be filled")
        if self.masks and (self.dataset.format != "parquet" or self.values != "numpy"):
            hints = ["samples of tar have the mask of `NAME.npy` as `NAME.mask.npy`"] if self.dataset.format == "tar" else []
            raise UsageError("expected no `masks`: only tensors of Parquet, read as `numpy`, have nulls to be masked", hints=hints)

    def _check_columns(self) -> None:
        """Refuses columns that no shard has, which readers would omit. Tar has no list of its parts."""
        missing = {*(self.columns or ()), *self.fill}
        if missing and self.dataset.format == "tfrecord":
            raise UsageError("expected no columns: records of TFRecord are given as bytes")
        if not missing or self.dataset.format != "parquet":
            return
        import pyarrow.parquet

        known: dict[str, None] = {}
        for path in self.dataset.paths():
            with opened(path) as file:
                schema = pyarrow.parquet.read_schema(file)
            known.update(dict.fromkeys(schema.names))
            missing = {one for one in missing if not _columns_of(one) & set(schema.names)}
            if not missing:
                return
        if self.dataset.shards:
            raise unknown("column", min(_columns_of(min(missing)), key=len), list(known))

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch; the one that `load_state_dict` has resumed stays as it is."""
        if epoch != self.epoch:
            self.epoch, self._left = epoch, None

    def __len__(self) -> int:
        """Records of this rank."""
        return sum(end - start for start, end in self._of_rank(1)[0])

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        order = self._order()
        parts = self._of_rank(workers)[number]
        records = itertools.chain.from_iterable(self._records(order, start, end) for start, end in parts)
        return _alike(records, self) if self.dataset.format == "tar" and self.values == "numpy" else records

    def state_dict(self, batches: int, batch_size: int = 1, workers: int = 0) -> dict[str, Any]:
        """What this rank has left after so many batches of a `DataLoader` of so many workers."""
        parts = self._of_rank(max(workers, 1))
        lengths = [sum(end - start for start, end in part) for part in parts]
        taken = delivered(lengths, batches, batch_size)
        left = [one for part, count in zip(parts, taken, strict=True) for one in without_first(part, count)]
        return {"version": self.dataset.version, "seed": self.seed, "shuffle": self.shuffle, "epoch": self.epoch, "left": left}

    def load_state_dict(self, states: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continues an epoch, given the states of all ranks at one moment; their number may differ from that of now."""
        every = [states] if isinstance(states, Mapping) else list(states)
        for name, mine in (("version", self.dataset.version), ("seed", self.seed), ("shuffle", self.shuffle)):
            for state in every:
                if state[name] != mine:
                    raise ValueError(f"expected the state of {name} {mine}, found {state[name]}")
        if len({state["epoch"] for state in every}) != 1:
            raise ValueError("expected states of one epoch, found several")
        self.epoch = every[0]["epoch"]
        left = sorted((start, end) for state in every for start, end in state["left"])
        if any(before[1] > after[0] for before, after in itertools.pairwise(left)):
            raise ValueError("expected states of different ranks, found a record in two of them")
        self._left = left

    def _of_rank(self, workers: int) -> list[list[Range]]:
        left = [(0, self.dataset.records)] if self._left is None else self._left
        parts = deal(left, self.ranks * workers)
        return parts[self.rank * workers : (self.rank + 1) * workers]

    def _order(self) -> list[tuple[int, Shard]]:
        """The shards of the epoch, each with the position of its first record."""
        shards = list(self.dataset.shards)
        if self.shuffle:
            random.Random(f"{self.seed}/{self.epoch}").shuffle(shards)
        order, first = [], 0
        for shard in shards:
            order.append((first, shard))
            first += shard.records
        return order

    def _records(self, order: Sequence[tuple[int, Shard]], start: int, end: int) -> Iterator[Any]:
        read = READERS[self.dataset.format]
        for first, shard in order:
            lower, upper = max(start, first), min(end, first + shard.records)
            if lower < upper:
                path = f"{self.dataset.location.rstrip('/')}/{shard.path}"
                yield from read(path, lower - first, upper - first, self)


def _columns_of(name: str) -> set[str]:
    """The columns that a name may be about: `box.left[]` is about `box.left[]`, `box.left` or `box`."""
    return {name, *(name[: found.start()] for found in re.finditer(r"\.|\[\]", name))}


def _of_environment(name: str, otherwise: int) -> int:
    return int(os.environ.get(name) or otherwise)


def _rows(path: str, start: int, end: int, wanted: ShardDataset) -> Iterator[dict[str, Any]]:
    """Rows of Parquet; row groups outside of the range are not read."""
    import pyarrow.parquet

    with opened(path) as file:
        parquet = pyarrow.parquet.ParquetFile(file)
        # Columns of a table of this name are no parts of samples.
        labels = [name for name in parquet.schema_arrow.names if _is_label(name)] if KEY in parquet.schema_arrow.names else []
        first = 0
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            if first < end and start < first + rows:
                at = first
                for batch in parquet.iter_batches(BATCH, row_groups=[group], columns=wanted.columns):
                    lower, upper = max(start, at) - at, min(end, at + batch.num_rows) - at
                    if lower < upper:
                        yield from _values_of(batch.slice(lower, upper - lower), path, wanted, labels)
                    at += batch.num_rows
            first += rows


def _values_of(batch: Any, path: str, wanted: ShardDataset, labels: Sequence[str]) -> Iterable[dict[str, Any]]:
    if wanted.values == "python":
        return cast("list[dict[str, Any]]", batch.to_pylist())
    # A label is stored as text, and so is what stands for one.
    numbers = {name: str(wanted.fill[name]) for name in labels if isinstance(wanted.fill.get(name), int)}
    try:
        rows = _values.rows(batch, {**wanted.fill, **numbers}, wanted.masks)
    except UsageError as error:
        error.source = path
        raise
    labels = [name for name in labels if name in batch.schema.names]
    return ({**row, **{name: _label(row[name]) for name in labels}} for row in rows) if labels else rows


def _samples(path: str, start: int, end: int, wanted: ShardDataset) -> Iterator[dict[str, Any]]:
    """Samples of a tar, compressed or not, by the rule of WebDataset: files that share a path up to the first dot of their name."""
    import tarfile

    with opened(path) as file, _inflated(path, file) as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
        number, sample = -1, dict[str, Any]()
        current, renamed = None, OF_A_RUN.search(path) is not None
        for member in tar:
            if not member.isfile():
                continue
            folder, _, name = member.name.rpartition("/")
            stem, _, extension = name.partition(".")
            key = f"{folder}/{stem}" if folder else stem
            if key != current:
                if start <= number < end:
                    yield sample
                number, current, sample = number + 1, key, {KEY: _plain_key(key) if renamed else key}
                if number >= end:
                    return
            if number >= start and (wanted.columns is None or extension in wanted.columns):
                content = tar.extractfile(member)
                assert content is not None
                sample[extension] = _part(extension, content.read(), wanted)
        if start <= number < end:
            yield sample


def _plain_key(key: str) -> str:
    """A key without the escapes of characters that readers of tar misinterpret, or that were renamed for an index."""
    return "" if key == "%" else ESCAPES.sub(_unescaped, key)


def _unescaped(escapes: re.Match[str]) -> str:
    try:
        text = bytes.fromhex(escapes[0].replace("%", "")).decode()
    except UnicodeDecodeError:
        return escapes[0]
    # Others are never escaped.
    escaped = all(one in "%._/" or one.isspace() or not one.isascii() or not one.isprintable() for one in text)
    return text if escaped else escapes[0]


def _is_label(name: str) -> bool:
    return name.rpartition(".")[2] == "cls"


def _label(content: Any) -> Any:
    """A part `cls`: a number if it is a whole one, as the decoders of WebDataset have it."""
    written = content.encode() if isinstance(content, str) else content
    return int(written) if isinstance(written, bytes) and WHOLE_NUMBER.fullmatch(written) else content


def _alike(samples: Iterable[dict[str, Any]], wanted: ShardDataset) -> Iterator[dict[str, Any]]:
    """Samples that have the same parts, as a batch needs it: `default_collate` takes those of the first sample for all."""
    chosen, first = wanted.columns and {KEY, *wanted.columns}, None
    fill = {name: value for name, value in wanted.fill.items() if not chosen or name in chosen}
    for sample in samples:
        for name in fill.keys() - sample.keys():
            sample[name] = copy.copy(fill[name])
        first = first or chosen or sample.keys()
        if sample.keys() != first:
            raise _unlike(sample, first)
        yield sample


def _unlike(sample: Mapping[str, Any], first: Iterable[str]) -> UsageError:
    """The error about a sample whose parts are not those of the first sample, or those that are wanted."""
    lacks, has = sorted(set(first) - sample.keys()), sorted(sample.keys() - set(first))
    found = [f"{words} {', '.join(f'`{name}`' for name in names)}" for words, names in (("without", lacks), ("with", has)) if names]
    example = ", ".join(f"{name!r}: ..." for name in (*lacks, *has))
    return UsageError(
        f"expected the same parts in every sample, found `{sample[KEY]}` {' and '.join(found)}",
        hints=[
            f"`.torch(fill={{{example}}})` puts a value of yours in the place of parts that a sample lacks",
            "`.torch(columns=[...])` leaves parts out",
            '`.torch(values="python")` gives samples as they are, for a `collate_fn` of your own, or `DataLoader(..., batch_size=None)`',
        ],
    )


def _part(extension: str, content: bytes, wanted: ShardDataset) -> Any:
    """A part of a sample: an array of NumPy or a number if it is one and these are wanted, else its bytes."""
    if wanted.values == "python":
        return content
    if _is_label(extension):
        return _label(content)
    if extension.rpartition(".")[2] != "npy":
        return content
    import numpy.lib.format

    return numpy.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


def _examples(path: str, start: int, end: int, wanted: ShardDataset) -> Iterator[bytes]:
    """Records of a TFRecord file: 8 bytes of length, 4 of checksum, the record, 4 of checksum."""
    with opened(path) as file, _inflated(path, file) as plain:
        for number in range(end):
            head = plain.read(12)
            if len(head) < 12:
                raise OSError(f"expected {end} records in {path}, found {number}")
            record = plain.read(int.from_bytes(head[:8], "little"))
            plain.read(4)
            if number >= start:
                yield record


def tensors_with_nulls(paths: Sequence[str]) -> list[str]:
    """The columns of tensors in which values are null, by the footers of Parquet shards."""
    import pyarrow.parquet

    found: dict[str, None] = {}
    for path in paths:
        with opened(path) as file:
            footer = pyarrow.parquet.ParquetFile(file).metadata
        names = [field.name for field in footer.schema.to_arrow_schema() if _values.shape_of(field.type)]
        if not names:
            break
        chunks = (footer.row_group(group).column(at) for group in range(footer.num_row_groups) for at in range(footer.num_columns))
        lacking = [one.path_in_schema for one in chunks if not one.statistics or one.statistics.null_count]
        found.update((name, None) for name in names if any(one.startswith(f"{name}.") for one in lacking))
    return list(found)


def opened(path: str) -> Any:
    """The file of a path or a URL, opened for reading."""
    if "://" not in path:
        return open(path, "rb")
    import pyarrow.fs

    system, place = pyarrow.fs.FileSystem.from_uri(path)
    return system.open_input_file(place)


def _inflated(path: str, file: Any) -> Any:
    if path.endswith(".gz"):
        import gzip

        return gzip.GzipFile(fileobj=file)
    if path.endswith(".zst"):
        import zstandard

        return zstandard.ZstdDecompressor().stream_reader(file)
    import contextlib

    return contextlib.nullcontext(file)


READERS = {"parquet": _rows, "tar": _samples, "tfrecord": _examples}
