"""Hugging Face datasets of Parquet shards with tensors.

Their own reader of Parquet knows no tensors (`arrow.fixed_shape_tensor`). Here a tensor becomes a feature `Array2D` to `Array5D`, or a list
of fixed length if it has one dimension. All other columns have the features that `datasets` derives from their types.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet

from ._values import shape_of
from .errors import UsageError
from .loading import opened

MOST_DIMENSIONS = 5
# Rows of a table that the builder writes at once.
BATCH = 1000


def has_tensors(path: str) -> bool:
    """Whether a shard has columns of tensors."""
    return any(shape_of(field.type) is not None for field in _schema(path))


def load(paths: Sequence[str], contents: Sequence[str], split: str = "train", streaming: bool = False, **options: Any) -> Any:
    """A `Dataset` of the shards, or an `IterableDataset`; `contents` tell shards apart that had the same path at another time."""
    cache = {name: options.pop(name) for name in ("cache_dir",) if name in options}
    columns = options.pop("columns", None)
    key = hashlib.sha256("\n".join([*paths, *contents, *(columns or ())]).encode()).hexdigest()
    builder = Shards(paths=list(paths), columns=columns, hash=key[:16], **cache)
    if streaming:
        return builder.as_streaming_dataset(split=split)
    builder.download_and_prepare(**options)
    return builder.as_dataset(split=split)


class Shards(datasets.ArrowBasedBuilder):  # type: ignore[misc, unused-ignore]
    """Reads shards one after the other; several processes divide them."""

    def __init__(self, *, paths: list[str], columns: list[str] | None, **options: Any) -> None:
        self._paths, self._columns = paths, columns
        super().__init__(dataset_name="shards", **options)

    def _info(self) -> Any:
        schema = pyarrow.unify_schemas([_schema(path) for path in self._paths], promote_options="permissive")
        fields = [schema.field(name) for name in self._columns or schema.names]
        return datasets.DatasetInfo(features=features_of(pyarrow.schema(fields)))

    def _split_generators(self, _: Any) -> list[Any]:
        return [datasets.SplitGenerator(name="train", gen_kwargs={"paths": self._paths})]

    def _generate_tables(self, paths: list[str]) -> Iterator[tuple[str, Any]]:
        target = self.info.features.arrow_schema
        for number, path in enumerate(paths):
            with opened(path) as file:
                for batch in pyarrow.parquet.ParquetFile(file).iter_batches(BATCH, columns=self._columns):
                    yield f"{number}-{batch.num_rows}", pyarrow.Table.from_batches([as_features(batch, target)])


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
        hint = "`.torch()` and `.pyarrow()` give tensors of any shape; `columns=[...]` leaves the column out"
        raise UsageError(f"Hugging Face datasets have arrays of at most 5 dimensions, found {len(shape)}", column=name, hints=[hint])
    return getattr(datasets, f"Array{len(shape)}D")(shape=shape, dtype=values.feature.dtype)


def as_features(batch: pyarrow.RecordBatch, target: pyarrow.Schema) -> pyarrow.RecordBatch:
    """A batch whose columns have the types of the features; columns that a shard lacks are null."""
    columns = [
        _column(batch.column(field.name), field.type) if field.name in batch.schema.names else pyarrow.nulls(batch.num_rows, field.type)
        for field in target
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=target)


def _column(array: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    shape = shape_of(array.type)
    if shape is None:
        return array.cast(kind)
    if not isinstance(kind, pyarrow.ExtensionType):
        return array.storage.cast(kind)
    return pyarrow.ExtensionArray.from_storage(kind, _nested(array.storage, shape))


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
