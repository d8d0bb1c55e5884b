"""Records by their positions: some of them as a batch, or one at a time, for samplers that choose them.

    records = shardify.open("shards", at="train-2026-11").map_style(columns=["jpg", "cls"])
    records[7], len(records), records.take([5, 17, 5])
    DataLoader(records, batch_size=64, shuffle=True, num_workers=4)

Each call reads what it needs: a record of tar or TFRecord is a request, and one of Parquet decodes a page. A loader in an order of its own
reads blocks, and is many times faster; see `shardify.open(...).loader(...)`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from .loader import Batch, expect_columns, native, split_of

if TYPE_CHECKING:
    from ._native import NativeRecords
    from .dataset import Dataset

__all__ = ["Records"]

# Records that are read at once where all are wanted, and their bytes.
MOST_AT_ONCE, BYTES_AT_ONCE = 1024, 8 << 20


class Records(Sequence[dict[str, Any]]):
    """The records of a dataset, or of a split, in list order; `shardify.open(...).map_style(...)` makes it.

    It is a sequence of dictionaries, and so a map-style dataset of torch, which asks for the records of a batch at once. It may be
    pickled, and used by several threads and in forked processes.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        columns: Sequence[str] | None = None,
        fill: Mapping[str, Any] | None = None,
        threads: int | None = None,
    ) -> None:
        self.dataset = dataset
        self.columns = None if columns is None else list(columns)
        self.split = split_of(dataset)
        self.fill, self._threads = dict(fill or {}), threads
        self._made: NativeRecords | None = None
        self._known: dict[str, Any] | None = None

    def _records(self) -> NativeRecords:
        if self._made is None:
            place = (self.dataset.location, self.dataset.version)
            self._made = native().NativeRecords(*place, split=self.split, columns=self.columns, threads=self._threads)
        return self._made

    def _facts(self) -> dict[str, Any]:
        if self._known is None:
            known = self._records().facts()
            expect_columns(self.fill, self.columns, known)
            self._known = known
        return self._known

    @property
    def basis(self) -> str:
        """Hash that names the records and their positions, as in the state of a loader."""
        return str(self._facts()["basis"])

    def take(self, positions: Iterable[SupportsIndex], fill: Mapping[str, Any] | None = None) -> Batch:
        """The records at some positions, in this order, which may name one several times. Its `step` and `epoch` are 0.

        `fill` stands for that of all records.

        Raises IndexError: if a position is negative, or there is no record at it.
        """
        wanted = list(map(operator.index, positions))
        for position in (min(wanted, default=0), max(wanted, default=0)):
            if wanted and not 0 <= position < len(self):
                raise IndexError(f"position {position} of {len(self)} records: expected one from 0 to {len(self) - 1}")
        expect_columns(fill or {}, self.columns, self._facts())
        return Batch(self._records().take(wanted), 0, self.fill if fill is None else fill)

    def __len__(self) -> int:
        """Number of positions."""
        return int(self._facts()["records"])

    def __bool__(self) -> bool:
        """True, also without records."""
        return True

    @overload
    def __getitem__(self, at: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(at, slice):
            return self.__getitems__(range(*at.indices(len(self))))
        position = operator.index(at)
        (record,) = self.take([position + len(self) if position < 0 else position]).rows()
        return record

    def __getitems__(self, positions: Iterable[SupportsIndex]) -> list[dict[str, Any]]:
        """Records at some positions, which `DataLoader` asks for a batch at a time."""
        return list(self.take(positions).rows())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        average = sum(shard.bytes for shard in self.dataset.shards) // max(len(self), 1)
        count = max(1, min(MOST_AT_ONCE, BYTES_AT_ONCE // max(average, 1)))
        for first in range(0, len(self), count):
            yield from self.take(range(first, min(first + count, len(self)))).rows()

    def __repr__(self) -> str:
        chosen = "" if self.columns is None else f", columns {', '.join(self.columns)}"
        return f"<shardify.records.Records of {self.dataset!r}{chosen}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}
