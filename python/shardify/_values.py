"""Values of Arrow columns as a batch of a training loop takes them: numbers and arrays of NumPy, text, bytes, lists and dictionaries.

    integers, floats, booleans      numbers whose type torch gives back: Python's for int64, uint64, float64 and bool, else NumPy's
    tensors, lists of numbers       arrays of NumPy of the stored shape and type, which the caller may write to
    dates, times                    whole numbers: days, or counts of the column's unit, since 1970-01-01 in UTC
    text, binary                    `str`, `bytes`
    structs, other lists, maps      dictionaries, lists, lists of pairs

A null has no place in a batch: it is replaced by the value that the caller has named for the column, or is an error. Decimals have no
place in it either.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    import pyarrow

# What a column becomes: an array whose first dimension is the rows, or a list.
Block = Any

OWN_VALUES = '`.torch(values="python")` gives Python\'s values and None, for a `collate_fn` of your own'


def rows(batch: pyarrow.RecordBatch, fill: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a batch as dictionaries; `fill` has what stands for a null, by the name of the column."""
    names = batch.schema.names
    empty = [name for at, name in enumerate(names) if name not in fill and batch.column(at).null_count]
    if empty:
        raise _null(empty)
    columns = [_cells(_block(batch.column(at), name, fill)) for at, name in enumerate(names)]
    if not columns:
        return ({} for _ in range(batch.num_rows))
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def shape_of(kind: Any) -> tuple[int, ...] | None:
    """The shape of a tensor type; None for other types."""
    import pyarrow

    if not isinstance(kind, pyarrow.FixedShapeTensorType):
        return None
    return tuple(kind.shape[at] for at in kind.permutation) if kind.permutation else tuple(kind.shape)


def _cells(block: Block) -> list[Any]:
    """The values of the rows, none of which keeps the memory of the others alive."""
    if isinstance(block, list):
        return block
    if block.ndim > 1:
        return [one.copy() for one in block]
    # Collated, Python's numbers have these types, and NumPy's the others. torch refuses single numbers of uint64 by NumPy.
    return block.tolist() if block.dtype.name in ("int64", "uint64", "float64", "bool") else list(block)


def _block(array: pyarrow.Array, name: str, fill: Mapping[str, Any]) -> Block:
    import pyarrow

    kind, types = array.type, pyarrow.types
    if types.is_dictionary(kind):
        return _block(array.dictionary_decode(), name, fill)
    if isinstance(kind, pyarrow.BaseExtensionType) and shape_of(kind) is None:
        return _block(array.storage, name, fill)
    if array.null_count and name not in fill:
        raise _null([name])
    if shape_of(kind) is not None:
        return _tensors(array, name, fill)
    if types.is_struct(kind):
        return _structs(array, name, fill)
    if types.is_map(kind):
        return _maps(array, name, fill)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(array, name, fill)
    return _flat(_filled(array, name, fill), name)


def _flat(array: pyarrow.Array, name: str) -> Block:
    """Values that are not nested, none of them null."""
    import pyarrow

    kind, types = array.type, pyarrow.types
    if types.is_temporal(kind) and not types.is_interval(kind):
        return array.view(pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()).to_numpy()
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return array.to_numpy(zero_copy_only=False)
    if types.is_decimal(kind) or types.is_interval(kind):
        hints = [
            f"`shardify convert --type {name}=float64` stores numbers of a type that batches have",
            "`.torch(columns=[...])` leaves the column out",
            OWN_VALUES,
        ]
        raise UsageError(f"expected values that a batch has, found {kind}", column=name, hints=hints)
    return array.to_pylist()


def _tensors(array: pyarrow.Array, name: str, fill: Mapping[str, Any]) -> Block:
    import pyarrow

    kind, storage = array.type, array.storage
    size = storage.type.list_size
    # Values that are missing in a tensor are NaN already, so no null in it counts.
    flat = storage.values.slice(storage.offset * size, len(storage) * size)
    if flat.null_count and not pyarrow.types.is_floating(flat.type):
        flat = flat.fill_null(False if pyarrow.types.is_boolean(flat.type) else 0)
    block = flat.to_numpy(zero_copy_only=False).reshape(len(storage), *kind.shape)
    if kind.permutation:
        block = block.transpose(0, *(at + 1 for at in kind.permutation))
    if array.null_count:
        block = block.copy()
        block[_missing(array)] = fill[name]
    return block


def _structs(array: pyarrow.Array, name: str, fill: Mapping[str, Any]) -> Block:
    # A field of a struct that is null has no value to be replaced.
    present = array.drop_null() if array.null_count else array
    names = [field.name for field in array.type]
    blocks = present.flatten()
    parts = [_cells(_block(part, f"{name}.{one}", fill)) for part, one in zip(blocks, names, strict=True)]
    found = iter([dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True)] if parts else [{} for _ in present])
    return _with_fill(array, found, name, fill)


def _lists(array: pyarrow.Array, name: str, fill: Mapping[str, Any]) -> Block:
    import pyarrow

    present = array.drop_null() if array.null_count else array
    block = _block(present.flatten(), f"{name}[]", fill)
    ends = pyarrow.compute.list_value_length(present).to_numpy(zero_copy_only=False).cumsum().tolist()
    pieces = (block[start:end] for start, end in itertools.pairwise([0, *ends]))
    return _with_fill(array, (one if isinstance(one, list) else one.copy() for one in pieces), name, fill)


def _maps(array: pyarrow.Array, name: str, fill: Mapping[str, Any]) -> Block:
    present = array.drop_null() if array.null_count else array
    first, last = (present.offsets[0].as_py(), present.offsets[-1].as_py()) if len(present) else (0, 0)
    keys = _cells(_block(present.keys.slice(first, last - first), f"{name}.key", fill))
    items = _cells(_block(present.items.slice(first, last - first), f"{name}.value", fill))
    pairs = list(zip(keys, items, strict=True))
    places = [one - first for one in present.offsets.to_pylist()]
    return _with_fill(array, (pairs[start:end] for start, end in itertools.pairwise(places)), name, fill)


def _with_fill(array: pyarrow.Array, present: Iterator[Any], name: str, fill: Mapping[str, Any]) -> list[Any]:
    """The values of the rows, given those that are not null."""
    if not array.null_count:
        return list(present)
    return [fill[name] if missing else next(present) for missing in _missing(array).tolist()]


def _missing(array: pyarrow.Array) -> Any:
    return array.is_null().to_numpy(zero_copy_only=False)


def _filled(array: pyarrow.Array, name: str, fill: Mapping[str, Any]) -> pyarrow.Array:
    """Values with what stands for null in place of nulls."""
    import pyarrow

    if not array.null_count:
        return array
    value = fill[name]
    if pyarrow.types.is_null(array.type):
        return pyarrow.array([value] * len(array))
    try:
        return array.fill_null(pyarrow.scalar(value, array.type))
    except (pyarrow.ArrowException, TypeError, OverflowError) as error:
        raise UsageError(f"expected a value of {array.type} to fill nulls with, found {value!r}", column=name) from error


def _null(names: list[str]) -> UsageError:
    """The error about columns with nulls that nothing fills."""
    example = ", ".join(f"{name!r}: ..." for name in names)
    return UsageError(
        f"expected a value in every row of the batch, found null in {', '.join(f'`{name}`' for name in names)}",
        hints=[
            f"`.torch(fill={{{example}}})` puts a value of yours in the place of nulls",
            f"`.torch(columns=[...])` leaves {'the columns' if len(names) > 1 else 'the column'} out",
            OWN_VALUES,
        ],
    )
