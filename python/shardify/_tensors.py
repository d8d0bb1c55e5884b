"""Tensors of Parquet shards as arrays of NumPy, for readers of other projects that know no tensors (`arrow.fixed_shape_tensor`).

An array has no place for a null among its values: it is the value that the caller has named for the column, or NaN, or an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    import numpy
    import pyarrow


def opened(path: str) -> Any:
    """The file of a path or a URL, opened for reading."""
    if "://" not in path:
        return open(path, "rb")
    import pyarrow.fs

    system, place = pyarrow.fs.FileSystem.from_uri(path)
    return system.open_input_file(place)


def shape_of(kind: Any) -> tuple[int, ...] | None:
    """The shape of a tensor type; None for other types."""
    import pyarrow

    if not isinstance(kind, pyarrow.FixedShapeTensorType):
        return None
    return tuple(kind.shape[at] for at in kind.permutation) if kind.permutation else tuple(kind.shape)


def tensors_with_nulls(paths: Sequence[str]) -> list[str]:
    """The columns of tensors in which values are null, by the footers of Parquet shards."""
    import pyarrow.parquet

    found: dict[str, None] = {}
    for path in paths:
        with opened(path) as file:
            footer = pyarrow.parquet.ParquetFile(file).metadata
        names = [field.name for field in footer.schema.to_arrow_schema() if shape_of(field.type)]
        if not names:
            break
        chunks = (footer.row_group(group).column(at) for group in range(footer.num_row_groups) for at in range(footer.num_columns))
        lacking = [one.path_in_schema for one in chunks if not one.statistics or one.statistics.null_count]
        found.update((name, None) for name in names if any(one.startswith(f"{name}.") for one in lacking))
    return list(found)


def block_of(array: pyarrow.Array, name: str, fill: Mapping[str, Any]) -> numpy.ndarray[Any, Any]:
    """Tensors as one array. A value that is missing is the one of `fill`, else NaN, else an error; so is one of a tensor that is null."""
    import numpy
    import pyarrow

    items = items_of(array)
    block = _shaped(_whole(items).to_numpy(zero_copy_only=False), array.type)
    absent = _missing(array).reshape(-1, *[1] * (block.ndim - 1))
    mask = _shaped(_missing(items), array.type) | absent
    if not mask.any():
        return block
    if name in fill:
        return numpy.where(mask, _of_shape(fill[name], array.type, name), block)
    if pyarrow.types.is_floating(items.type) and not absent.any():
        return block
    hints = [
        f"`.huggingface(fill={{{name!r}: ...}})` puts a value of yours in the place of nulls",
        "`.huggingface(columns=[...])` leaves the column out",
        "`.pyarrow()` has the nulls",
    ]
    raise UsageError(f"expected a value in every element of tensors, found null in `{name}`", column=name, hints=hints)


def items_of(array: pyarrow.Array) -> pyarrow.Array:
    """The values of tensors, one after the other as they are stored; those of a tensor that is null are anything."""
    size = array.storage.type.list_size
    return array.storage.values.slice(array.storage.offset * size, len(array) * size)


def _missing(array: pyarrow.Array) -> Any:
    return array.is_null().to_numpy(zero_copy_only=False)


def _shaped(items: Any, kind: Any) -> numpy.ndarray[Any, Any]:
    """Values of tensors with the shape of the tensors."""
    import numpy

    block = numpy.asarray(items).reshape(-1, *kind.shape)
    return block.transpose(0, *(at + 1 for at in kind.permutation)) if kind.permutation else block


def _whole(items: pyarrow.Array) -> pyarrow.Array:
    """Values of which none is null: NaN for floats, else anything."""
    import pyarrow

    if not items.null_count or pyarrow.types.is_floating(items.type) or not pyarrow.types.is_primitive(items.type):
        return items
    return pyarrow.Array.from_buffers(items.type, len(items), [None, items.buffers()[1]], offset=items.offset)


def _of_shape(value: Any, kind: Any, name: str) -> Any:
    """What stands for missing values of tensors: a value for all of them, or an array."""
    import numpy

    given, shape = numpy.asarray(value), shape_of(kind) or ()
    values = _array(given.ravel().tolist(), kind.value_type, name).to_numpy(zero_copy_only=False)
    try:
        return numpy.broadcast_to(values.reshape(given.shape), shape)
    except ValueError as error:
        message = f"expected a value, or an array of the shape {shape}, to fill nulls with, found {given.shape}"
        raise UsageError(message, column=name) from error


def _array(values: list[Any], kind: Any, name: str) -> pyarrow.Array:
    """Values that stand for nulls of this type."""
    import pyarrow

    cause = None
    try:
        array = pyarrow.array(values, kind)
        # pyarrow makes 1 of 1.5.
        if not array.null_count and (not pyarrow.types.is_integer(kind) or array.to_pylist() == values):
            return array
    except (pyarrow.ArrowException, TypeError, OverflowError) as error:
        cause = error
    found = values[0] if len(values) == 1 else values
    raise UsageError(f"expected a value of {kind} to fill nulls with, found {found!r}", column=name) from cause
