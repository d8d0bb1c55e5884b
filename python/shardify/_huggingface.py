"""Hugging Face datasets of Parquet shards with tensors.

Their own reader of Parquet knows no tensors (`arrow.fixed_shape_tensor`). Here a tensor becomes a feature `Array2D` to `Array5D`, or a list
of fixed length if it has one dimension. All other columns have the features that `datasets` derives from their types.

An array has no place for a null among its values: it is NaN, or the value of `fill`, or an error. Lists have None.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import datasets
import datasets.exceptions
import numpy
import pyarrow
import pyarrow.parquet

from ._tensors import block_of, items_of, opened, shape_of
from .dataset import unknown
from .errors import UsageError

MOST_DIMENSIONS = 5
# Told apart in the cache from what other releases have built.
BUILDER = "2"
# Rows of a table that the builder writes at once.
BATCH = 1000


def has_tensors(path: str) -> bool:
    """Whether a shard has columns of tensors."""
    return any(shape_of(field.type) is not None for field in _schema(path))


def load(paths: Sequence[str], contents: Sequence[str], split: str = "train", streaming: bool = False, **options: Any) -> Any:
    """A `Dataset` of the shards, or an `IterableDataset`; `contents` tell shards apart that had the same path at another time."""
    cache = {name: options.pop(name) for name in ("cache_dir",) if name in options}
    columns, fill = options.pop("columns", None), dict(options.pop("fill", None) or {})
    # Not all of a large array of NumPy is in its own text.
    filled = [f"{name}={numpy.asarray(value).tolist()!r}" for name, value in sorted(fill.items())]
    key = hashlib.sha256("\n".join([BUILDER, *paths, *contents, *(columns or ()), *filled]).encode()).hexdigest()
    builder = Shards(paths=list(paths), columns=columns, fill=fill, hash=key[:16], **cache)
    if streaming:
        return builder.as_streaming_dataset(split=split)
    try:
        builder.download_and_prepare(**options)
    except datasets.exceptions.DatasetGenerationError as error:
        # Their error says no more than that there was one.
        if isinstance(error.__cause__, UsageError):
            raise error.__cause__ from None
        raise
    return builder.as_dataset(split=split)


class Shards(datasets.ArrowBasedBuilder):  # type: ignore[misc, unused-ignore]
    """Reads shards one after the other; several processes divide them."""

    def __init__(self, *, paths: list[str], columns: list[str] | None, fill: Mapping[str, Any], **options: Any) -> None:
        self._paths, self._columns, self._fill = paths, columns, fill
        super().__init__(dataset_name="shards", **options)

    def _info(self) -> Any:
        schema = pyarrow.unify_schemas([_schema(path) for path in self._paths], promote_options="permissive")
        fields = [schema.field(name) for name in self._columns or schema.names]
        tensors = [field.name for field in schema if shape_of(field.type) is not None]
        for name in self._fill:
            if name not in tensors:
                raise unknown("column of tensors", name, tensors)
        return datasets.DatasetInfo(features=features_of(pyarrow.schema(fields)))

    def _split_generators(self, _: Any) -> list[Any]:
        return [datasets.SplitGenerator(name="train", gen_kwargs={"paths": self._paths})]

    def _generate_tables(self, paths: list[str]) -> Iterator[tuple[str, Any]]:
        target = self.info.features.arrow_schema
        for number, path in enumerate(paths):
            with opened(path) as file:
                for batch in pyarrow.parquet.ParquetFile(file).iter_batches(BATCH, columns=self._columns):
                    yield f"{number}-{batch.num_rows}", pyarrow.Table.from_batches([as_features(batch, target, self._fill)])


def features_of(schema: pyarrow.Schema) -> Any:
    """The features of columns."""
    plain = [pyarrow.field(field.name, field.type.storage_type if shape_of(field.type) else field.type) for field in schema]
    features = datasets.Features.from_arrow_schema(pyarrow.schema(plain))
    for field in schema:
        shape = shape_of(field.type)
        if shape is not None and len(shape) > 1:
            features[field.name] = _array(field.name, shape, features[field.name])
    return features


def _array(name: str, shape: tuple[int, ...], values: Any) -> Any:
    if len(shape) > MOST_DIMENSIONS:
        hint = "`.loader()` and `.pyarrow()` give tensors of any shape; `columns=[...]` leaves the column out"
        raise UsageError(f"Hugging Face datasets have arrays of at most 5 dimensions, found {len(shape)}", column=name, hints=[hint])
    return getattr(datasets, f"Array{len(shape)}D")(shape=shape, dtype=values.feature.dtype)


def as_features(batch: pyarrow.RecordBatch, target: pyarrow.Schema, fill: Mapping[str, Any]) -> pyarrow.RecordBatch:
    """A batch whose columns have the types of the features; columns that a shard lacks are null."""
    columns = [
        _column(batch.column(field.name), field, fill) if field.name in batch.schema.names else pyarrow.nulls(batch.num_rows, field.type)
        for field in target
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=target)


def _column(array: pyarrow.Array, field: pyarrow.Field, fill: Mapping[str, Any]) -> pyarrow.Array:
    kind, shape = field.type, shape_of(array.type)
    if shape is None:
        return array.cast(kind)
    is_array = isinstance(kind, pyarrow.ExtensionType)
    lacks_values = bool(array.null_count or items_of(array).null_count)
    if array.type.permutation or (lacks_values and (is_array or field.name in fill)):
        array = _whole(array, field.name, fill)
    return pyarrow.ExtensionArray.from_storage(kind, _nested(array.storage, shape)) if is_array else array.storage.cast(kind)


def _whole(array: pyarrow.Array, name: str, fill: Mapping[str, Any]) -> pyarrow.Array:
    """Tensors of which each has all of its values, in the order of the dimensions. Those that are null stay it unless they are filled."""
    kind, absent = array.type, array.is_null().to_numpy(zero_copy_only=False)
    if name in fill:
        absent[:] = False
    present = block_of(array.filter(pyarrow.array(~absent)), name, fill)
    block = numpy.zeros((len(array), *present.shape[1:]), present.dtype)
    block[~absent] = present
    values, size = pyarrow.array(block.ravel()).view(kind.value_type), kind.storage_type.list_size
    valid = pyarrow.array(~absent).buffers()[1]
    storage = pyarrow.Array.from_buffers(pyarrow.list_(kind.value_type, size), len(array), [valid], children=[values])
    return pyarrow.ExtensionArray.from_storage(pyarrow.fixed_shape_tensor(kind.value_type, shape_of(kind)), storage)


def _nested(storage: pyarrow.FixedSizeListArray, shape: tuple[int, ...]) -> pyarrow.ListArray:
    """Flat values of each row as lists in lists, without a copy of the values."""
    size, rows = storage.type.list_size, len(storage)
    values = storage.values.slice(storage.offset * size, rows * size)
    inner = size
    for length in reversed(shape[1:]):
        count = rows * inner // length
        values = pyarrow.ListArray.from_arrays(_offsets(count, length), values)
        inner //= length
    mask = storage.is_null() if storage.null_count else None
    return pyarrow.ListArray.from_arrays(_offsets(rows, shape[0]), values, mask=mask)


def _offsets(count: int, length: int) -> pyarrow.Array:
    import numpy

    return pyarrow.array(numpy.arange(count + 1, dtype="int32") * numpy.int32(length))


def _schema(path: str) -> pyarrow.Schema:
    with opened(path) as file:
        return pyarrow.parquet.read_schema(file).remove_metadata()
