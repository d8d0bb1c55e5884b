"""Mixtures: steps that have records of several datasets, in the proportion of their weights.

    books, code = (shardify.open(place, at="train") for place in ("s3://bucket/books", "s3://bucket/code"))
    mixture = shardify.mix({books: 3, code: 1}, global_batch_size=1024, seed=1, steps=100_000)
    for batch in mixture:
        batch["text"], batch.source

Every step has the same number of records of each dataset: 768 of books and 256 of code, those of the first dataset first. Each dataset has
its own order, as a loader with that batch has, and begins its next epoch after its last full step. So the records of a step follow from
its number, and a state is that number.
"""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from . import _tensorflow
from ._order import LIMITS
from .errors import UsageError
from .loader import FORMAT, Batch, Loader, TorchSteps, expect_erased, expect_same, native, ranks_of

if TYPE_CHECKING:
    import numpy

    from ._native import NativeBatches
    from .dataset import Dataset

__all__ = ["MixedBatch", "Mixture", "mix"]

Weights: TypeAlias = "Mapping[Dataset, int] | Sequence[tuple[Dataset, int]]"


def mix(
    sources: Weights,
    *,
    global_batch_size: int,
    seed: int,
    steps: int | None = None,
    columns: Sequence[str] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    memory: str | int = "2GiB",
    threads: int | None = None,
    shuffle: bool = True,
    lanes: int | None = None,
    window: int | None = None,
    block: int | None = None,
    fill: Mapping[str, Any] | None = None,
) -> Mixture:
    """A [`Mixture`](shardify.mixture.Mixture) of datasets: steps that have records of each of them.

    - `sources`: datasets with whole numbers as weights, as `{books: 3, code: 1}` or as pairs. The sum of the weights divides the batch.
    - `global_batch_size`: records of a step over all ranks, of which each rank gets an equal part of each dataset.
    - `seed`, `shuffle`: as of a loader.
    - `steps`: where the mixture ends; without it, it goes on for ever.
    - `columns`, `fill`: as of a loader. All datasets have the same columns, or those that are named here.
    - `rank`, `world_size`: of data parallelism, as of a loader.
    - `memory`, `threads`: limits of this process, which the datasets share equally; they never change the order.
    - `lanes`, `window`, `block`: parameters of the order of each dataset, see `shardify.Order`. By default the windows of all together are
      as large as those of one loader.
    """
    pairs = list(sources.items()) if isinstance(sources, Mapping) else [(data, weight) for data, weight in sources]
    more: dict[str, Any] = {"columns": columns, "memory": memory, "threads": threads, "shuffle": shuffle, "fill": fill}
    dealt: dict[str, Any] = {"rank": rank, "world_size": world_size, "lanes": lanes, "window": window, "block": block}
    return Mixture(pairs, global_batch_size=global_batch_size, seed=seed, steps=steps, **dealt, **more)


class MixedBatch(Batch):
    """The records of this rank in a step of a mixture: those of its first dataset, then those of the next one."""

    def __init__(self, loaded: Any, step: int, fill: Mapping[str, Any], parts: Sequence[Any]) -> None:
        super().__init__(loaded, step, fill)
        self._lengths = [len(part) for part in parts]
        self.epochs = [part.epoch for part in parts]
        """Number of the epoch of each dataset."""

    @functools.cached_property
    def source(self) -> numpy.ndarray[Any, Any]:
        """Number of the dataset of each record, from 0. `records` and `positions` count in that dataset."""
        import numpy

        return numpy.repeat(numpy.arange(len(self._lengths)), self._lengths)

    def _marks(self) -> dict[str, Any]:
        import torch

        return {"__step__": self.step, "__source__": torch.from_numpy(self.source)}


class Mixture:
    """Batches of several datasets; `shardify.mix(...)` makes it.

    Iterating begins at the first step that was not delivered, also after a `break`, and ends after `steps`. A state fits any number of
    ranks that divides the records of each dataset in a step.
    """

    def __init__(
        self,
        sources: Sequence[tuple[Dataset, int]],
        *,
        global_batch_size: int,
        seed: int,
        steps: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        **settings: Any,
    ) -> None:
        self.weights = [weight for _, weight in sources]
        self.counts = _counts(self.weights, global_batch_size)
        """Records of each dataset in a step over all ranks."""
        self.global_batch_size, self.steps = global_batch_size, steps
        self.rank, self.world_size = ranks_of(rank, world_size)
        _check_ranks(self.counts, self.world_size)
        if steps is not None and steps < 0:
            raise UsageError(f"expected a number of steps, found {steps}")
        dealt: dict[str, Any] = {"rank": self.rank, "world_size": self.world_size, "seed": seed}
        self.loaders = [Loader(data, global_batch_size=n, **dealt, **settings) for (data, _), n in zip(sources, self.counts, strict=True)]
        """A loader of each dataset, which has its order and its numbers of records and steps."""
        for loader in self.loaders:
            loader._settings["sources"] = len(sources)
        self._fill = dict(settings.get("fill") or {})
        self._step, self._is_checked = 0, False
        self._iterating: weakref.ref[_Run] | None = None
        self._ended: list[dict[str, Any]] = []

    def _check(self) -> None:
        """Opens the datasets, and refuses those that do not fit together."""
        if self._is_checked:
            return
        try:
            opened = [loader._facts() for loader in self.loaders]
        except UsageError as error:
            if "memory" in error.message:
                error.hints = [*error.hints, f"each of the {len(self.loaders)} datasets has an equal part of `memory=`"]
            raise
        wanted, bases = opened[0]["columns"], set[str]()
        for loader, facts in zip(self.loaders, opened, strict=True):
            if facts["basis"] in bases:
                hints = ["give it the sum of its weights: twice in a mixture, its records would be twice in a step"]
                raise UsageError("expected several datasets, found one of them twice", source=loader.dataset.location, hints=hints)
            bases.add(facts["basis"])
            if len(loader) == 0:
                message = f"expected {loader.global_batch_size} records or more, as many as a step has, found {loader.records}"
                raise UsageError(message, source=loader.dataset.location, hints=["give the dataset a smaller weight"])
            if facts["columns"] != wanted:
                expected, there = (", ".join(" ".join(one) for one in columns) for columns in (wanted, facts["columns"]))
                hint = "`columns=[...]` names columns that all datasets have, in one order"
                raise UsageError(f"expected the columns {expected}; found {there}", source=loader.dataset.location, hints=[hint])
        self._is_checked = True

    def __len__(self) -> int:
        """Number of steps, of a mixture that ends."""
        if self.steps is None:
            raise TypeError("a mixture without `steps=` has no end")
        return self.steps

    def __bool__(self) -> bool:
        """True, also without steps."""
        return True

    def __iter__(self) -> Iterator[MixedBatch]:
        running = self._running()
        if running is not None:
            running.close()
        self._check()
        run = _Run(self, self._step)
        self._iterating = weakref.ref(run)
        return run

    @property
    def next_step(self) -> int:
        """The step that the next iteration begins with."""
        return self._step

    def every(self, skipped: int, stride: int) -> Iterator[MixedBatch]:
        """Iterates every so manyth step, after some that are skipped: the part of a worker that shares the steps with others."""
        return itertools.islice(self, skipped, None, stride)

    def __repr__(self) -> str:
        parts = ", ".join(f"{count} of {loader.dataset!r}" for count, loader in zip(self.counts, self.loaders, strict=True))
        return f"<shardify.Mixture: steps of {parts}; rank {self.rank} of {self.world_size}>"

    def state_dict(self) -> dict[str, Any]:
        """The state after the batches that were delivered, for `load_state_dict`: it is JSON, and the same on all ranks."""
        return self.state_at(self._step)

    def state_at(self, step: int) -> dict[str, Any]:
        """The state before a step: with the batches of all steps before it delivered."""
        if step < 0:
            raise UsageError(f"expected the number of a step, found {step}")
        self._check()
        facts = [{name: one._facts()[name] for name in ("root", "erased")} for one in self.loaders]
        about = ({"version": one.dataset.version, **of, **one._identity()} for one, of in zip(self.loaders, facts, strict=True))
        sources = [{"weight": weight, **one} for weight, one in zip(self.weights, about, strict=True)]
        return {"format": FORMAT, "sources": sources, "global_batch_size": self.global_batch_size, "step": step}

    def load_state_dict(self, state: Mapping[str, Any], *, erased: str = "refuse") -> None:
        """Makes the next iteration continue after a state: at any number of ranks, workers and threads; `erased` as for a loader.

        Raises UsageError: if the state is of other datasets, weights, orders or another batch, if records were erased since, or while the
        mixture is being iterated.
        """
        if self._running() is not None:
            hints = ["call it before `iter(mixture)`, or after the loop has ended or was left"]
            raise UsageError("expected to load a state before iterating, found an iteration that has not ended", hints=hints)
        if state.get("format") != FORMAT or not {"sources", "global_batch_size", "step"} <= state.keys():
            hints = ["`mixture.state_dict()` makes one"]
            raise UsageError(f"expected a state of a mixture, found one with {', '.join(map(str, state))}", hints=hints)
        self._check()
        expect_same({"global_batch_size": self.global_batch_size}, state)
        expect_same({"number of sources": len(self.loaders)}, {"number of sources": len(state["sources"])})
        for at, (weight, loader, theirs) in enumerate(zip(self.weights, self.loaders, state["sources"], strict=True)):
            expect_same({"weight": weight, **loader._identity()}, theirs, f"sources[{at}].")
            expect_erased(loader._facts()["erased"], int(theirs.get("erased", 0)), erased)
        self._step = int(state["step"])

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: a mixture has steps, and no epochs. Trainers call it."""

    def _running(self) -> _Run | None:
        run = self._iterating() if self._iterating is not None else None
        return None if run is None or run.is_done else run

    def stats(self) -> list[dict[str, Any]]:
        """Measurements of the epoch of each dataset in the newest iteration, as those of a loader; none before the first one."""
        run = self._iterating() if self._iterating is not None else None
        return list(self._ended) if run is None else run.stats()

    def torch(self) -> TorchSteps:
        """An iterable dataset of dictionaries, for `DataLoader(mixture.torch(), batch_size=None)`."""
        return TorchSteps.of(self)

    def tf(self) -> Any:
        """A `tf.data.Dataset` of dictionaries of tensors. Iterating it iterates the mixture."""
        return _tensorflow.dataset_of(self, self.loaders)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterating": None}


class _Run(Iterator[MixedBatch]):
    """The steps of a mixture, from one on."""

    def __init__(self, mixture: Mixture, step: int) -> None:
        self._mixture, self._step, self.is_done = mixture, step, False
        self._epochs: list[NativeBatches] = []

    def __iter__(self) -> Iterator[MixedBatch]:
        return self

    def __next__(self) -> MixedBatch:
        mixture = self._mixture
        if self.is_done or (mixture.steps is not None and self._step >= mixture.steps):
            self.close()
            raise StopIteration
        try:
            epochs = [self._epoch_of(at, loader) for at, loader in enumerate(mixture.loaders)]
            for epoch in epochs:
                epoch.begin()
            parts = [next(epoch) for epoch in epochs]
            joined = native().NativeBatch.join(parts)
        except BaseException:
            self.close()
            raise
        batch = MixedBatch(joined, self._step, mixture._fill, parts)
        self._step += 1
        mixture._step = self._step
        return batch

    def _epoch_of(self, at: int, loader: Loader) -> NativeBatches:
        """The batches of a dataset, of which the next one is that of the step."""
        epoch, step = divmod(self._step, len(loader))
        if at == len(self._epochs):
            self._epochs.append(loader._loader().start(epoch, step))
        elif step == 0:
            self._epochs[at].close()
            self._epochs[at] = loader._loader().start(epoch, step)
        return self._epochs[at]

    def __del__(self) -> None:
        self._mixture._ended = self.stats()

    def close(self) -> None:
        """Ends the threads; there are no batches any more."""
        self.is_done = True
        for epoch in self._epochs:
            epoch.close()

    def stats(self) -> list[dict[str, Any]]:
        return [epoch.stats() for epoch in self._epochs]


def _counts(weights: Sequence[int], batch: int) -> list[int]:
    """Records of each dataset in a step."""
    if not weights or any(not isinstance(weight, int) or weight < 1 for weight in weights):
        raise UsageError(f"expected datasets with whole numbers from 1 on as weights, found weights {_listed(weights) or 'of none'}")
    least, most = LIMITS["global_batch_size"]
    if not least <= batch <= most:
        raise UsageError(f"`global_batch_size` is {batch}; expected a number from {least} to {most}")
    divisor = math.gcd(*weights)
    total = sum(weights) // divisor
    if batch % total == 0:
        return [weight // divisor * (batch // total) for weight in weights]
    message = f"the weights {_listed(weights)} divide a step into {total} parts, which {batch} records are not a multiple of"
    near = [n for n in (batch // total * total, (batch // total + 1) * total) if n]
    hints = [f"`global_batch_size` {' or '.join(map(str, near))} fits the weights"]
    if len(weights) <= batch:
        hints.insert(0, f"weights {_listed(_nearest(weights, batch))} fit {batch} records")
    raise UsageError(message, hints=hints)


def _nearest(weights: Sequence[int], batch: int) -> list[int]:
    """Whole numbers from 1 on that add up to the batch, and are near the weights."""
    total = sum(weights)
    counts = [max(1, batch * weight // total) for weight in weights]
    while (rest := batch - sum(counts)) != 0:
        # The one that is furthest from its share is changed by one.
        lacks = [(batch * weight - count * total, at) for at, (weight, count) in enumerate(zip(weights, counts, strict=True))]
        at = max(lacks)[1] if rest > 0 else min(one for one in lacks if counts[one[1]] > 1)[1]
        counts[at] += 1 if rest > 0 else -1
    divisor = math.gcd(*counts)
    return [count // divisor for count in counts]


def _check_ranks(counts: Sequence[int], ranks: int) -> None:
    common = math.gcd(*counts)
    if common % ranks == 0:
        return
    below = next(n for n in range(min(ranks, common), 0, -1) if common % n == 0)
    above = next((n for n in range(ranks, min(common, 2 * ranks) + 1) if common % n == 0), below)
    fits = " or ".join(str(n) for n in dict.fromkeys((below, above)))
    message = f"a step has {_listed(counts)} records of the datasets, each of which {ranks} ranks cannot share equally; use {fits} ranks"
    raise UsageError(message)


def _listed(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers))
