"""Values of Arrow columns as a batch of a training loop takes them: numbers and arrays of NumPy, text, bytes, lists and dictionaries.

    integers, floats, booleans      numbers whose type torch gives back: Python's for int64, uint64, float64 and bool, else NumPy's
    tensors, lists of numbers       arrays of NumPy of the stored shape and type, which the caller may write to
    dates, times                    whole numbers: days, or counts of the column's unit, since 1970-01-01 in UTC
    text, binary                    `str`, `bytes`
    structs, other lists, maps      dictionaries, lists, lists of pairs

A null has no place in a batch, also inside of a list or a tensor: it is replaced by the value that the caller has named for the column, or
is an error. In tensors of floats it is NaN. With masks, tensors of other types have 0 in its place, beside a boolean array that is true
there. Decimals have no place in a batch either.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    import pyarrow

# What a column becomes: an array whose first dimension is the rows, or a list.
Block = Any

OWN_VALUES = '`.torch(values="python")` gives Python\'s values and None, for a `collate_fn` of your own'


def rows(batch: pyarrow.RecordBatch, fill: Mapping[str, Any], masks: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of a batch as dictionaries; `fill` has what stands for a null, by the name of the column. With `masks`, a tensor that may
    lack values has a boolean array `NAME/mask` beside it."""
    names = list(batch.schema.names)
    masked = [masks and _has_mask(kind) for kind in batch.schema.types]
    empty = [name for at, name in enumerate(names) if name not in fill and not masked[at] and batch.column(at).null_count]
    if empty:
        raise _null(empty)
    blocks = [(tensors if masked[at] else _block)(batch.column(at), name, fill) for at, name in enumerate(names)]
    for at in range(batch.num_columns):
        if masked[at]:
            names.append(f"{names[at]}/mask")
            blocks.append(_mask(batch.column(at)))
            if names[-1] in batch.schema.names:
                raise UsageError(f"expected no column of the name of a mask, found `{names[-1]}`")
    columns = [_cells(block) for block in blocks]
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
        return tensors(array, name, fill, masked=False)
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


def tensors(array: pyarrow.Array, name: str, fill: Mapping[str, Any], masked: bool = True) -> Block:
    """Tensors as one array of NumPy. A value that is missing is the one of `fill`, else NaN; else 0 if it is masked, or an error."""
    import numpy
    import pyarrow

    items = items_of(array)
    block = _shaped(_flat(_whole(items), name), array.type)
    if not items.null_count and not array.null_count:
        return block
    mask, absent = _mask(array), _missing(array).reshape(-1, *[1] * (block.ndim - 1))
    of_items = f"{name}[]"
    for places, inside in ((mask & ~absent, True), (mask & absent, False)):
        key = of_items if inside and of_items in fill else name
        if not places.any():
            continue
        if key in fill:
            block = numpy.where(places, _of_shape(fill[key], array.type, name), block)
        elif masked:
            block = numpy.where(places, block.dtype.type(0), block)
        elif not inside or not pyarrow.types.is_floating(items.type):
            raise _null([name], inside=inside)
    return block


def items_of(array: pyarrow.Array) -> pyarrow.Array:
    """The values of tensors, one after the other as they are stored; those of a tensor that is null are anything."""
    size = array.storage.type.list_size
    return array.storage.values.slice(array.storage.offset * size, len(array) * size)


def _shaped(items: Any, kind: Any) -> Block:
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


def _has_mask(kind: Any) -> bool:
    """Whether a column of this type can only tell by a mask which values are missing: floats have NaN."""
    import pyarrow

    return shape_of(kind) is not None and not pyarrow.types.is_floating(kind.value_type)


def _mask(array: pyarrow.Array) -> Any:
    """Which values of tensors are missing, also because the tensor is."""
    mask = _shaped(_missing(items_of(array)), array.type)
    return mask | _missing(array).reshape(-1, *[1] * (mask.ndim - 1))


def _of_shape(value: Any, kind: Any, name: str) -> Any:
    """What stands for missing values of tensors: a value for all of them, or an array."""
    import numpy

    given, shape = numpy.asarray(value), shape_of(kind) or ()
    try:
        return numpy.broadcast_to(_flat(_array(given.ravel().tolist(), kind.value_type, name), name).reshape(given.shape), shape)
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

    items = f"{name}[]"
    if name in fill and not _is_nested(fill[name]):
        # A value that is no list stands for each item.
        fill = {items: fill[name], **fill}
        if array.null_count and pyarrow.types.is_fixed_size_list(array.type):
            (one,) = _lists(_array([_repeated(fill[name], array.type)], array.type, name), name, {})
            fill = {**fill, name: one}
    present = array.drop_null() if array.null_count else array
    block = _block(present.flatten(), items, fill)
    ends = pyarrow.compute.list_value_length(present).to_numpy(zero_copy_only=False).cumsum().tolist()
    pieces = (block[start:end] for start, end in itertools.pairwise([0, *ends]))
    return _with_fill(array, (one if isinstance(one, list) else one.copy() for one in pieces), name, fill)


def _is_nested(value: Any) -> bool:
    is_text = isinstance(value, (str, bytes))
    return (isinstance(value, (Mapping, Sequence)) and not is_text) or getattr(value, "ndim", 0) > 0


def _repeated(value: Any, kind: Any) -> Any:
    """Lists of fixed size, in lists of fixed size or not, that have this value everywhere."""
    import pyarrow

    return [_repeated(value, kind.value_type)] * kind.list_size if pyarrow.types.is_fixed_size_list(kind) else value


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
    return array.fill_null(_array([value], array.type, name)[0])


def _null(names: list[str], inside: bool = False) -> UsageError:
    """The error about columns with nulls, or about a tensor with nulls inside, that nothing fills."""
    example = ", ".join(f"{name!r}: ..." for name in names)
    mask = f"`.torch(masks=True)` gives 0 for them, and an array `{names[0]}/mask` that is true where a value is missing"
    return UsageError(
        f"expected a value in every {'element of tensors' if inside else 'row of the batch'}, "
        f"found null in {', '.join(f'`{name}`' for name in names)}",
        hints=[
            f"`.torch(fill={{{example}}})` puts a value of yours in the place of nulls",
            *([mask] if inside else []),
            f"`.torch(columns=[...])` leaves {'the columns' if len(names) > 1 else 'the column'} out",
            OWN_VALUES,
        ],
    )
