"""A training loader: threads of the extension fill batches, in an order that any number of ranks shares.

    data = shardify.open("s3://bucket/shards", at="train-2026-11").split("train")
    loader = data.loader(global_batch_size=1024, seed=1)
    for epoch in range(10):
        for batch in loader:
            batch["cls"], batch["jpg"], batch.records
            if batch.step % 1000 == 0:
                save(model, loader.state_dict())

Steps are counted over epochs. The records of a step follow from the dataset, the seed and the parameters of the order, never from the
number of ranks, threads or workers, so a state fits any number of them. `shardify.Order` computes the same order in pure Python.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import _columns, _tensorflow
from ._columns import Lists, Parts, Texts
from ._extras import needs
from ._options import Path
from ._order import LIMITS, Order
from ._runs import RunRecorder
from .dataset import unknown
from .errors import MissingPackageError, UsageError

if TYPE_CHECKING:
    import numpy
    import pyarrow

    from ._native import NativeBatch, NativeBatches, NativeLoader
    from .dataset import Dataset
    from .mixture import Mixture

__all__ = ["Batch", "Lists", "Loader", "Parts", "Texts", "TorchSteps"]

FORMAT = 1
# What has to be the same for a state to be that of the same run, beside the order.
SAME = ("basis", "split", "records", "order", "drop_last")


def expect_erased(now: int, then: int, choice: str) -> None:
    """Fails if more records are erased from the version than when a state was made, unless the choice is to skip them.

    Raises UsageError: with their number, and what to do.
    """
    if choice not in ("refuse", "skip"):
        raise UsageError(f"expected `refuse` or `skip` for erased, found {choice!r}")
    if now < then:
        raise UsageError(
            f"expected data without the {then} records that were erased before the state was made, found data without {now}",
            hints=["this copy is older than the erasure: `shardify pull` it again"],
        )
    if now > then and choice != "skip":
        raise UsageError(
            f"expected the records that the state has, found that {now - then} of them were erased since",
            hints=[
                'load it with `erased="skip"`: their slots stay empty, and no other record changes its step',
                "the model of this state may have seen them: a checkpoint from before their first step has not",
            ],
        )


def native() -> ModuleType:
    """The extension. It is imported by the first loader, since it takes longer to load than the rest of the package.

    Raises MissingPackageError: where it is not installed, with the reason.
    """
    try:
        return importlib.import_module("._native", __package__)
    except ImportError as error:
        here = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
        raise MissingPackageError(
            f"expected the extension `shardify._native`, which loaders need, and found none for {here}: {error}",
            hints=[
                "the wheel `cp310-abi3` has it, for CPython 3.10 and later; free-threaded builds and PyPy have no loader",
                "`.webdataset()`, `.pyarrow()` and `.tf()` read the same shards without it",
            ],
        ) from error


class Batch:
    """The records of this rank in a step: columns by their names.

    `batch["name"]` is an array of NumPy, or a sequence of texts, bytes or lists. It shares the memory of the batch, which stays as long
    as an array refers to it; a writable array may be written to, as nothing else uses its memory but `arrow()` of the same batch.
    """

    def __init__(self, loaded: NativeBatch, step: int, fill: Mapping[str, Any]) -> None:
        self._loaded, self._fill = loaded, fill
        self._places = {name: at for at, name in enumerate(loaded.names)}
        self._columns: dict[str, Any] = {}
        self.epoch = loaded.epoch
        """Number of the epoch, from 0."""
        self.step = step
        """Number of the step, from 0, counted over epochs."""
        self.expected = loaded.expected
        """Records that this rank's part of the step has unless some were erased."""

    def __len__(self) -> int:
        """Number of records."""
        return len(self._loaded)

    def __bool__(self) -> bool:
        """True, also without records."""
        return True

    def keys(self) -> list[str]:
        """Names of the columns."""
        return list(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> Any:
        if name not in self._columns:
            if name not in self._places:
                raise KeyError(f"{name!r}; the batch has {', '.join(self._places) or 'no columns'}")
            self._columns[name] = _columns.of_native(self._loaded.column(self._places[name]), name, self._fill)
        return self._columns[name]

    @property
    def nbytes(self) -> int:
        """Bytes of its columns in memory."""
        return self._loaded.nbytes

    @property
    def records(self) -> numpy.ndarray[Any, Any]:
        """Record numbers, which never change."""
        return _array(self._loaded.records)

    @property
    def positions(self) -> numpy.ndarray[Any, Any]:
        """Positions in the list of live records, as `shardify.Order` has them."""
        return _array(self._loaded.positions)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The records one by one, as dictionaries of the values that `default_collate` of torch takes.

        These are numbers, `str`, `bytes`, and arrays that share the memory of the batch.
        """
        names = list(self._places)
        columns = [_cells(self[name]) for name in names]
        return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))

    def arrow(self) -> pyarrow.RecordBatch:
        """A `pyarrow.RecordBatch` of the same memory, with nulls."""
        with needs("pyarrow"):
            import pyarrow

        return pyarrow.record_batch(self)

    def torch(self) -> dict[str, Any]:
        """Tensors of the same memory; texts, bytes and lists of several lengths are lists."""
        with needs("torch"):
            import torch

        return {name: _to_torch(torch, self[name]) for name in self}

    def _marks(self) -> dict[str, Any]:
        """What `TorchSteps` has beside the columns."""
        return {"__step__": self.step, "__epoch__": self.epoch}

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._loaded.__arrow_c_array__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._loaded.__arrow_c_schema__()

    def __repr__(self) -> str:
        return f"<shardify.loader.Batch of step {self.step}, epoch {self.epoch}: {len(self)} records of {', '.join(self)}>"


class Loader:
    """Batches of a version of a dataset; `shardify.open(...).loader(...)` makes it.

    Iterating gives one epoch, and iterating again the next one, also after a `break`. No thread runs and nothing is read before the
    first batch is asked for; only lists of shards are read to answer `len(loader)` and `state_dict()`.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        global_batch_size: int,
        seed: int,
        columns: Sequence[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        memory: str | int = "2GiB",
        threads: int | None = None,
        drop_last: bool = True,
        shuffle: bool = True,
        lanes: int | None = None,
        window: int | None = None,
        block: int | None = None,
        fill: Mapping[str, Any] | None = None,
        without: Sequence[int] | None = None,
    ) -> None:
        given = {"seed": seed, "global_batch_size": global_batch_size, "block": block, "lanes": lanes, "window": window, "threads": threads}
        for name, value in given.items():
            least, most = LIMITS.get(name, (1, 1024))
            if value is not None and not least <= value <= most:
                raise UsageError(f"`{name}` is {value}; expected a number from {least} to {most}")
        self.dataset = dataset
        self.rank, self.world_size = ranks_of(rank, world_size)
        if self.world_size > 1 and not dataset.pinned:
            raise UsageError(
                "expected a dataset opened at a version: with several ranks, a commit between two of them would give them different ones",
                hints=[f"`shardify.open({dataset.location!r}, at={dataset.version})`, or at a tag"],
            )
        self.seed, self.global_batch_size, self.drop_last, self.shuffle = seed, global_batch_size, drop_last, shuffle
        self.split = split_of(dataset)
        self.columns = None if columns is None else list(columns)
        self.fill = dict(fill or {})
        self._settings: dict[str, Any] = {
            "columns": self.columns,
            "memory": str(memory),
            "threads": threads,
            "lanes": lanes,
            "window": window,
            "block": block,
            "without": sorted(without or ()) or None,
        }
        numbers = b"".join(number.to_bytes(8, "little") for number in self._settings["without"] or ())
        self.without = hashlib.sha256(numbers).hexdigest() if numbers else None
        """SHA-256 of the numbers of the records that are left out, each as u64, little-endian; `None` if none are."""
        self.replays: Mapping[str, Any] | None = None
        """The run that `Dataset.replay` repeats, and the `checkpoint` that the weights start from, which may be `None`."""
        # The epoch, and its first step that was not delivered; and whether iterating begins there, not at the next epoch.
        self._epoch, self._step, self._resumes = 0, 0, True
        self._iterating: weakref.ref[_Epoch] | None = None
        self._ended: dict[str, Any] = {}
        self._made: NativeLoader | None = None
        self._known: dict[str, Any] | None = None
        self._recorder: RunRecorder | None = None

    def _loader(self) -> NativeLoader:
        if self._made is None:
            made: NativeLoader = native().NativeLoader(
                self.dataset.location,
                self.dataset.version,
                global_batch_size=self.global_batch_size,
                seed=self.seed,
                rank=self.rank,
                world_size=self.world_size,
                drop_last=self.drop_last,
                shuffle=self.shuffle,
                split=self.split,
                **self._settings,
            )
            self._made = made
        return self._made

    def _facts(self) -> dict[str, Any]:
        if self._known is None:
            known = self._loader().facts()
            expect_columns(self.fill, self.columns, known)
            self._known = known
        return self._known

    @property
    def records(self) -> int:
        """Number of records of the dataset or split, over all ranks."""
        return int(self._facts()["records"])

    @property
    def dropped(self) -> int:
        """Number of records that no step of an epoch has, since they do not fill one; other ones in each epoch."""
        return int(self._facts()["dropped_per_epoch"])

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to, if iterating goes on."""
        return self._epoch

    @property
    def next_step(self) -> int:
        """The step that the next iteration begins with, counted over epochs."""
        return (self._epoch * len(self) + self._step) if self._resumes else (self._epoch + 1) * len(self)

    @property
    def order(self) -> Order:
        """The order of this epoch in pure Python; that of a shuffled loader alone.

        Raises UsageError: if the loader does not shuffle, for then a turn is a position.
        """
        if not self.shuffle:
            raise UsageError("expected a loader that shuffles, found one in list order", hints=["there, a turn is a position"])
        facts = self._facts()
        dealt: dict[str, Any] = {"global_batch_size": self.global_batch_size, "drop_last": self.drop_last}
        chosen: dict[str, Any] = {name: facts[name] for name in ("basis", "block", "lanes", "window")}
        return Order(self.records, seed=self.seed, epoch=self._epoch, **chosen, **dealt)

    def __len__(self) -> int:
        """Number of steps of an epoch."""
        return int(self._facts()["steps_per_epoch"])

    def __bool__(self) -> bool:
        """True, also without steps."""
        return True

    def __iter__(self) -> Iterator[Batch]:
        return self.every(0, 1)

    def every(self, skipped: int, stride: int) -> Iterator[Batch]:
        """Iterates every so manyth step of an epoch, after some that are skipped: the part of a worker that shares it with others."""
        running = self._running()
        if running is not None:
            running.close()
        if not self._resumes:
            self._epoch, self._step, self._resumes = self._epoch + 1, 0, True
        if self._recorder is not None:
            self._recorder.begin()
        epoch = _Epoch(self, self._loader().start(self._epoch, self._step + skipped, stride), len(self))
        self._iterating = weakref.ref(epoch)
        return epoch

    def __repr__(self) -> str:
        return f"<shardify.Loader of {self.dataset!r}: steps of {self.global_batch_size}, rank {self.rank} of {self.world_size}>"

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of an epoch, from its first step on."""
        self._expect_idle("set the epoch")
        self._epoch, self._step, self._resumes = epoch, 0, True

    def state_dict(self) -> dict[str, Any]:
        """The state after the batches that were delivered, for `load_state_dict`: it is JSON, and the same on all ranks.

        It counts batches that the loop has received, not those that were read ahead. It has no ids, only hashes and numbers.
        """
        return self._state(self._epoch, self._step)

    def state_at(self, step: int) -> dict[str, Any]:
        """The state before a step, counted over epochs: with the batches of all steps before it delivered.

        A `DataLoader` with workers reads ahead in other processes, so there the trainer says which steps it has done.
        """
        if step < 0:
            raise UsageError(f"expected the number of a step, found {step}")
        return self._state(*divmod(step, max(len(self), 1)))

    def _state(self, epoch: int, step: int) -> dict[str, Any]:
        if step >= len(self):
            epoch, step = epoch + 1, 0
        return {
            "format": FORMAT,
            "version": self.dataset.version,
            "root": self._facts()["root"],
            "erased": self._facts()["erased"],
            **self._identity(),
            "global_batch_size": self.global_batch_size,
            "epoch": epoch,
            "turn": step * self.global_batch_size,
            "step": epoch * len(self) + step,
            **({} if self.without is None else {"without": self.without}),
        }

    @property
    def steps(self) -> int:
        """Number of steps that were delivered, counted over epochs."""
        return self._epoch * len(self) + self._step

    def _identity(self) -> dict[str, Any]:
        """What a state must have in common with this loader, see `SAME`."""
        facts = self._facts()
        order = {"format": 1, "seed": self.seed, "shuffle": self.shuffle, **{name: facts[name] for name in ("block", "lanes", "window")}}
        return {"basis": facts["basis"], "split": self.split, "records": self.records, "order": order, "drop_last": self.drop_last}

    def load_state_dict(self, state: Mapping[str, Any], *, erased: str = "refuse") -> None:
        """Makes the next iteration continue after a state: at any number of ranks, workers and threads, and with other columns.

        If records were erased from all versions since, the state is refused. With `erased="skip"` it continues without them: their slots
        stay empty, and no other record changes its step.

        Raises UsageError: if the state is of other data, another split or another order, if records were erased since, or while the loader
        is being iterated.
        """
        self._expect_idle("load a state")
        if state.get("format") != FORMAT or not {*SAME, "epoch", "turn"} <= state.keys():
            hints = ["`loader.state_dict()` makes one"]
            raise UsageError(f"expected a state of a loader, found one with {', '.join(map(str, state))}", hints=hints)
        expect_same(self._identity(), state)
        if state.get("without") != self.without:
            raise UsageError(
                "expected a state that leaves out the same records, found one that leaves out others, or none",
                hints=["`shardify.open(...).replay(...)` makes a loader that leaves records out"],
            )
        expect_erased(self._facts()["erased"], int(state.get("erased", 0)), erased)
        self.go_on(int(state["epoch"]), int(state["turn"]))

    def go_on(self, epoch: int, turn: int) -> None:
        """Makes the next iteration begin where so many turns of an epoch were delivered.

        Raises UsageError: if that is not the end of a step.
        """
        self._expect_idle("choose a step")
        step, rest = divmod(turn, self.global_batch_size)
        if rest or turn > self.records:
            raise UsageError(f"expected a state at the end of a step of {self.global_batch_size} records, found turn {turn}")
        self._epoch, self._step = (epoch, step) if step < len(self) else (epoch + 1, 0)
        self._resumes = True

    def _expect_idle(self, action: str) -> None:
        if self._running() is not None:
            raise UsageError(
                f"expected to {action} before iterating, found an iteration that has not ended",
                hints=["call it before `iter(loader)`, or after the loop has ended or was left"],
            )

    def _running(self) -> _Epoch | None:
        epoch = self._iterating() if self._iterating is not None else None
        return None if epoch is None or epoch.is_done else epoch

    def _delivered(self, epoch: int, steps: int) -> None:
        """Notes that so many steps of an epoch were delivered."""
        self._epoch, self._step, self._resumes = epoch, steps, False
        if self._recorder is not None:
            self._recorder.delivered()

    def record(self, name: str, *, report_every: int = 1000, to: Path | None = None, role: str = "train") -> RunRecorder:
        """Records the steps that are delivered as the training run `name` of the dataset, so that it can say which of them saw a record.

            with loader.record("run-7") as run:
                for batch in loader:
                    ...
                    if batch.step % 1000 == 999:
                        save(model, loader.state_dict())
                        run.checkpoint("s3://checkpoints/run-7/1000")

        Nothing is stored but how far the run has come: under 1 kB, and no id. `shardify runs DATASET` lists the runs, and
        `shardify manifest DATASET --find ID --runs` says what they saw. The version stays readable, as it has the tag `run/NAME`. A loader
        that goes on from a state resumes the run of this name. All ranks may call it; rank 0 writes, by the program.

        report_every: after how many steps the run says at the latest how far it has come. Steps since then count as "may have been"
        to: a local file to write events to, where the dataset may only be read; `shardify runs DATASET --add FILE` adds them later
        role: "train", or "validate" if the weights do not learn from it

        Raises UsageError: if the name is no name, or an iteration is under way.
        """
        self._expect_idle("record a run")
        self._recorder = RunRecorder(self, name, report_every=report_every, to=to, role=role)
        return self._recorder

    def checkpoint(self, name: Path, digest: str | None = None) -> None:
        """Records a checkpoint of the run that is being recorded, see `RunRecorder.checkpoint`."""
        if self._recorder is None:
            raise UsageError("expected a recorded run, found none", hints=['`loader.record("run-7")` records one'])
        self._recorder.checkpoint(name, digest)

    def stats(self) -> dict[str, Any]:
        """Measurements of the newest iteration in this process; none before the first one.

        samples, steps: delivered
        requests, bytes_read, bytes_delivered: `bytes_read / bytes_delivered` is what the order costs
        seconds_waited: of the trainer for batches; seconds_read, seconds_decoded, seconds_gathered: of all threads together
        memory_now, memory_peak: bytes of windows and batches
        """
        epoch = self._iterating() if self._iterating is not None else None
        return dict(self._ended) if epoch is None else epoch.stats()

    def torch(self) -> TorchSteps:
        """An iterable dataset of dictionaries, for `DataLoader(loader.torch(), batch_size=None)`."""
        return TorchSteps.of(self)

    def tf(self) -> Any:
        """A `tf.data.Dataset` of dictionaries of tensors; lists of several lengths are ragged. Iterating it iterates the loader."""
        return _tensorflow.dataset_of(self, [self])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterating": None, "_made": None}


class _Epoch(Iterator[Batch]):
    """The batches of one epoch, from a step on."""

    def __init__(self, loader: Loader, batches: NativeBatches, steps: int) -> None:
        self._loader, self._batches, self._steps = loader, batches, steps
        self._fill, self.is_done = loader.fill, False

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self.is_done:
            raise StopIteration
        try:
            loaded = next(self._batches)
        except StopIteration:
            self.is_done = True
            self._loader._delivered(self._loader._epoch, self._steps)
            raise
        except Exception:
            self.is_done = True
            raise
        self._loader._delivered(loaded.epoch, loaded.step + 1)
        return Batch(loaded, loaded.epoch * self._steps + loaded.step, self._fill)

    def __del__(self) -> None:
        self._loader._ended = self.stats()

    def close(self) -> None:
        """Ends the threads; there are no batches any more."""
        self.is_done = True
        self._batches.close()

    def stats(self) -> dict[str, Any]:
        return self._batches.stats()


class TorchSteps:
    """Batches as dictionaries of tensors, texts and bytes, with `__step__`, `__epoch__` and `__records__`; of a mixture with `__source__`.

    A worker of a `DataLoader` delivers every so manyth step, which the `DataLoader` puts back in order. Each worker reads the windows of
    its steps by itself, so threads (`num_workers=0`) read less. Workers are copies that begin where the loader was when they were started:
    call `set_epoch(epoch)` before each epoch, unless they persist.
    """

    def __init__(self, loader: Loader | Mixture) -> None:
        self.loader = loader
        # The steps of worker 0, modulo the workers: of this iteration, and of the next one if a state says it. Else its first step is one.
        self._phase: int | None = None
        self._next_phase: int | None = None

    @staticmethod
    def of(loader: Loader | Mixture) -> TorchSteps:
        """One that torch takes for an iterable dataset."""
        with needs("torch"):
            import torch.utils.data  # noqa: F401

        return _torch_class()(loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        import torch

        number, workers = _worker()
        first, phase, self._next_phase = self.loader.next_step, self._next_phase, None
        self._phase = phase = first % workers if phase is None else phase
        for batch in self.loader.every((number + phase - first) % workers, workers):
            records = torch.from_numpy(batch.records.astype("int64"))
            yield {**batch.torch(), **batch._marks(), "__records__": records}
        self._phase = None

    def __len__(self) -> int:
        return len(self.loader)

    def __reduce__(self) -> Any:
        return TorchSteps.of, (self.loader,)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of an epoch."""
        self.loader.set_epoch(epoch)
        self._phase = self._next_phase = None

    def state_dict(self) -> dict[str, Any]:
        """The state of the loader in this process, for a `StatefulDataLoader`, which asks each worker: their number must stay."""
        return {**self.loader.state_dict(), "phase": self._phase}

    def load_state_dict(self, state: Mapping[str, Any], *, erased: str = "refuse") -> None:
        """See `Loader.load_state_dict`. A state of the loader itself fits, too, with any number of workers."""
        self.loader.load_state_dict(state, erased=erased)
        self._phase = self._next_phase = state.get("phase")


@functools.cache
def _torch_class() -> type[TorchSteps]:
    """The class that is also one of torch."""
    from torch.utils.data import IterableDataset

    return type("TorchSteps", (TorchSteps, IterableDataset), {"__module__": __name__, "__doc__": TorchSteps.__doc__})


def _worker() -> tuple[int, int]:
    """Number of this worker of a `DataLoader`, and of all."""
    from torch.utils.data import get_worker_info

    worker = get_worker_info()
    return (worker.id, worker.num_workers) if worker else (0, 1)


def _array(buffer: Any) -> numpy.ndarray[Any, Any]:
    with needs("numpy"):
        import numpy

    return numpy.asarray(buffer)


def _cells(column: Any) -> Sequence[Any]:
    """The values of a column, one for each record."""
    if isinstance(column, (Parts, Texts)):
        return column.tolist()
    if isinstance(column, Lists) or column.ndim > 1:
        return list(column)
    # Collated, Python's numbers have these types, and NumPy's the others. torch refuses single numbers of uint64 by NumPy.
    values: list[Any] = column.tolist() if column.dtype.name in ("int64", "uint64", "float64", "bool") else list(column)
    return values


def _to_torch(torch: Any, column: Any) -> Any:
    if isinstance(column, (Parts, Texts)):
        return column.tolist()
    if isinstance(column, Lists):
        return [_to_torch(torch, one) if hasattr(one, "dtype") else list(one) for one in column]
    return torch.from_numpy(column)


def ranks_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and number of ranks: those given, of torch.distributed if it was initialised, of the environment, or 0 of 1."""
    if (rank is None) != (world_size is None):
        raise UsageError("expected both `rank` and `world_size`, or neither; found one of them")
    if rank is not None and world_size is not None:
        found = (rank, world_size)
    else:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            found = (int(distributed.get_rank()), int(distributed.get_world_size()))
        else:
            found = (int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1))
    if not 0 <= found[0] < found[1]:
        raise UsageError(f"expected a rank below the number of ranks, found rank {found[0]} of {found[1]}")
    return found


def split_of(dataset: Dataset) -> str | None:
    """The split that the dataset is; None if it is all of a version."""
    others = sorted(key for key in dataset.chosen if key != "split")
    if others:
        raise UsageError(
            f"expected a whole version or a split, found a part by {', '.join(f'`{one}=`' for one in others)}",
            hints=["`shardify.reshard` makes a dataset of some of the records"],
        )
    return dataset.chosen.get("split")


def expect_columns(fill: Mapping[str, Any], chosen: Sequence[str] | None, facts: Mapping[str, Any]) -> None:
    """Refuses a value for nulls of a column that there is not. Where columns are chosen, others may be named."""
    known = [name for name, _ in facts["columns"]]
    for name in fill if chosen is None else ():
        if name.split("[]")[0] not in known:
            raise unknown("column", name, known)


def expect_same(mine: Mapping[str, Any], theirs: Mapping[str, Any], inside: str = "") -> None:
    """Refuses a state that has another value than this for a name, which it has `inside` of another."""
    for name, value in mine.items():
        found = theirs.get(name)
        if isinstance(value, Mapping) and isinstance(found, Mapping):
            expect_same(value, found, f"{inside}{name}.")
        elif value != found:
            raise UsageError(f"expected a state whose {inside}{name} is {value!r}, found {found!r}")
