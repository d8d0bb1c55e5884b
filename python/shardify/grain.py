"""Records for Grain, in list order or in an order of this package.

    import grain
    from shardify.grain import Source

    data = shardify.open("shards", at="train-2026-11")
    records = grain.MapDataset.source(Source(data)).shuffle(seed=1).batch(64)

    order = data.loader(global_batch_size=1024, seed=1).order
    records = grain.MapDataset.source(Source(data, order=order, epochs=10)).batch(1024)     # do not shuffle it again

Each record is read by itself, or those of a batch together where Grain asks for them so. With an order, index i of an epoch is its turn i:
batches of consecutive records are the steps of a loader with this order, in other slots.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from .errors import UsageError
from .records import Records

if TYPE_CHECKING:
    from ._order import Order
    from .dataset import Dataset

__all__ = ["Source"]


class Source:
    """A random-access source for Grain: it may be pickled, and used by several threads and processes.

    Its `repr` states the data by hash, the columns and the order, so that Grain refuses a checkpoint of other data.
    """

    def __init__(
        self,
        data: Dataset,
        order: Order | None = None,
        *,
        epochs: int = 1,
        columns: Sequence[str] | None = None,
        fill: Mapping[str, Any] | None = None,
    ) -> None:
        self._records = Records(data, columns=columns, fill=fill)
        if epochs < 1 or (epochs > 1 and order is None):
            raise UsageError(f"expected epochs of an order, found {epochs} without one", hints=["`.repeat()` of Grain repeats list order"])
        if order is not None and (order.records, order.basis) != (len(self._records), self._records.basis):
            raise UsageError(
                f"expected an order of {len(self._records)} records with basis {self._records.basis}; "
                f"found one of {order.records} with basis {order.basis}",
                hints=["`data.loader(...).order` is one of the dataset"],
            )
        self._orders = [dataclasses.replace(order, epoch=order.epoch + at) for at in range(epochs)] if order else []
        # Turns of an epoch that are in a step.
        self._turns = min(order.steps * order.global_batch_size, order.records) if order else len(self._records)

    def __len__(self) -> int:
        """Number of indices: of records, or of turns in all epochs."""
        return self._turns * max(len(self._orders), 1)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        (record,) = self._getitems([index])
        return record

    def _getitems(self, indices: Iterable[SupportsIndex]) -> list[dict[str, Any]]:
        """Several records at once."""
        return self._records.__getitems__([self._position(operator.index(index)) for index in indices])

    __getitems__ = _getitems

    def _position(self, index: int) -> int:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} of {len(self)} records: expected one from 0 to {len(self) - 1}")
        epoch, turn = divmod(index, max(self._turns, 1))
        return self._orders[epoch].position(turn) if self._orders else index

    def __repr__(self) -> str:
        order = repr(self._orders[0]) if self._orders else "None"
        about = f"basis='{self._records.basis}', columns={self._records.columns}, fill={self._records.fill}"
        return f"shardify.grain.Source({about}, order={order}, epochs={max(len(self._orders), 1)})"
