"""Columns of a loader's batch: arrays of NumPy that share its memory, and sequences of texts, bytes or lists.

    integers, floats, booleans      an array
    dates, times                    an array of whole numbers: days, or counts of the column's unit, since 1970-01-01 in UTC
    tensors, lists of fixed size    an array with the records as its first dimension
    text, binary                    `Texts` of `str`, `Parts` of memoryviews
    lists of these                  `Lists` of arrays, or of lists

A null has no place in an array: `fill` has a value for it, or the column is an error. Structs, maps and decimals are for Arrow.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ._extras import needs
from .errors import UsageError

if TYPE_CHECKING:
    import numpy

Item = TypeVar("Item")
Own = TypeVar("Own", bound="_Pieces[Any]")


class _Pieces(Sequence[Item], abc.ABC):
    """Values that lie end to end in a buffer, made when they are asked for."""

    def __init__(self, values: Any, offsets: numpy.ndarray[Any, Any], missing: Any = None, fill: Any = None) -> None:
        self.values, self.offsets = values, offsets
        self._missing, self._fill = missing, fill

    def part(self: Own, start: int, end: int) -> Own:
        """Those from a place to another, which share the memory of all."""
        missing = None if self._missing is None else self._missing[start:end]
        return type(self)(self.values, self.offsets[start : end + 1], missing, self._fill)

    @abc.abstractmethod
    def _piece(self, start: int, end: int) -> Item: ...

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> list[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | list[Item]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        place = at + len(self) if at < 0 else at
        if not 0 <= place < len(self):
            raise IndexError(f"item {at} of a column of {len(self)}")
        if self._missing is not None and self._missing[place]:
            filled: Item = self._fill
            return filled
        return self._piece(int(self.offsets[place]), int(self.offsets[place + 1]))

    def __iter__(self) -> Iterator[Item]:
        return (self[at] for at in range(len(self)))

    def __repr__(self) -> str:
        return f"<shardify.loader.{type(self).__name__} of {len(self)}>"


class Parts(_Pieces[memoryview]):
    """Bytes of a column, as views of the batch's memory; `bytes(part)` is a copy.

    values: the bytes of all records, an array of NumPy
    offsets: where each begins, and the end
    """

    def _piece(self, start: int, end: int) -> memoryview:
        return memoryview(self.values[start:end])

    def tolist(self) -> list[bytes]:
        """Copies of all of them."""
        return [bytes(one) for one in self]

    def astype(self, dtype: Any) -> numpy.ndarray[Any, Any]:
        """Numbers that are written as text, such as those of `cls`, as an array of a type of NumPy."""
        return _numbers(self.tolist(), dtype)


class Texts(_Pieces[str]):
    """Texts of a column, each decoded when it is asked for."""

    def _piece(self, start: int, end: int) -> str:
        return str(memoryview(self.values[start:end]), "utf-8")

    def tolist(self) -> list[str]:
        """All of them."""
        return list(self)

    def astype(self, dtype: Any) -> numpy.ndarray[Any, Any]:
        """Numbers that are written as text, as an array of a type of NumPy."""
        return _numbers(self.tolist(), dtype)


class Lists(_Pieces[Any]):
    """Lists of a column: views of the array of all items, or parts of the sequence of all items."""

    def _piece(self, start: int, end: int) -> Any:
        return self.values[start:end]

    def tolist(self) -> list[list[Any]]:
        """All of them, as lists."""
        return [list(one) for one in self]


def _numbers(written: list[Any], dtype: Any) -> numpy.ndarray[Any, Any]:
    import numpy

    # An array of no texts has a type of its own.
    return numpy.array(written or numpy.zeros(0), object).astype(dtype)


PIECES: dict[str, type[_Pieces[Any]]] = {"binary": Parts, "text": Texts, "list": Lists}
TENSOR = "arrow.fixed_shape_tensor"


def of_native(column: Mapping[str, Any], name: str, fill: Mapping[str, Any]) -> Any:
    """The column that the extension describes."""
    with needs("numpy"):
        import numpy

    if column["kind"] == "other":
        raise _no_array(name, column["type"])
    missing = numpy.asarray(column["missing"]) if "missing" in column else None
    if missing is not None and name not in fill:
        raise _null(name)
    if column["kind"] == "array":
        return _array(column, name, missing, fill)
    values = of_native(column["items"], f"{name}[]", fill) if column["kind"] == "list" else numpy.asarray(column["values"])
    return PIECES[column["kind"]](values, numpy.asarray(column["offsets"]), missing, fill.get(name))


def _array(column: Mapping[str, Any], name: str, missing: Any, fill: Mapping[str, Any]) -> Any:
    import numpy

    array = numpy.asarray(column["values"])
    items = numpy.asarray(column["missing_items"]) if "missing_items" in column else None
    if items is not None and missing is not None:
        items = items & ~missing.reshape(-1, *[1] * (array.ndim - 1))
    for gaps, inside in ((missing, False), (items, True)):
        if gaps is None or not gaps.any():
            continue
        key = f"{name}[]" if inside and f"{name}[]" in fill else name
        if key in fill:
            array = _filled(array, gaps, fill[key], name)
        elif array.dtype.kind == "f":
            array = _filled(array, gaps, float("nan"), name)
        else:
            raise _null(name, inside=True)
    return _tensors(array, json.loads(column["parameters"])) if column["extension"] == TENSOR else array


def _filled(array: Any, gaps: Any, value: Any, name: str) -> Any:
    """The array with a value in its gaps: in place, where only the batch has the memory."""
    import numpy

    given = numpy.asarray(value)
    try:
        # Not of another kind, and not another number: 1.5 is no integer.
        exact = given.astype(array.dtype, casting="same_kind" if given.dtype.kind != "i" else "unsafe")
        broadcast = numpy.broadcast_to(exact, array.shape[gaps.ndim :]) if gaps.ndim < array.ndim else exact
    except (TypeError, ValueError) as error:
        raise _no_fill(array, value, name) from error
    if given.dtype.kind in "iu" and (exact != given).any():
        raise _no_fill(array, value, name)
    if not array.flags.writeable:
        array = array.copy()
    array[gaps] = broadcast
    return array


def _tensors(array: Any, parameters: Mapping[str, Any]) -> Any:
    """Values of tensors with the shape of the tensors."""
    shaped = array.reshape(len(array), *parameters["shape"])
    order = parameters.get("permutation")
    return shaped.transpose(0, *(at + 1 for at in order)) if order else shaped


def _no_fill(array: Any, value: Any, name: str) -> UsageError:
    return UsageError(f"expected a value of {array.dtype} to fill nulls with, found {value!r}", column=name)


def _null(name: str, inside: bool = False) -> UsageError:
    where = "element of tensors" if inside else "record of the batch"
    hints = [
        f"`.loader(fill={{{name!r}: ...}})` puts a value of yours in the place of nulls",
        "`batch.arrow()` has the nulls",
        "`.loader(columns=[...])` leaves the column out",
    ]
    return UsageError(f"expected a value in every {where}, found null in `{name}`", column=name, hints=hints)


def _no_array(name: str, kind: str) -> UsageError:
    hints = ["`batch.arrow()` has the column", "`.loader(columns=[...])` leaves the column out"]
    return UsageError(f"expected a column that NumPy has a type for, found {kind} in `{name}`", column=name, hints=hints)
