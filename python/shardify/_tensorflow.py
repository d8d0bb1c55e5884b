"""Batches as tensors of TensorFlow: numbers as NumPy has them, texts and bytes as `tf.string`, lists as ragged tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ._columns import Lists, Parts, Texts
from ._extras import needs

if TYPE_CHECKING:
    from .loader import Batch, Loader


def dataset_of(batches: Iterable[Batch], loaders: Sequence[Loader]) -> Any:
    """A `tf.data.Dataset` of batches, whose types are those of the first record of the first loader."""
    with needs("tensorflow"):
        import tensorflow

    first = loaders[0]
    example = first.dataset.take([0], columns=first.columns, fill=first.fill)
    signature = {name: _signature(tensorflow, example[name]) for name in example}

    def tensors() -> Iterator[dict[str, Any]]:
        for batch in batches:
            yield {name: _tensor(tensorflow, batch[name]) for name in batch}

    return tensorflow.data.Dataset.from_generator(tensors, output_signature=signature)


def _signature(tensorflow: Any, column: Any) -> Any:
    if isinstance(column, (Texts, Parts)):
        return tensorflow.TensorSpec([None], tensorflow.string)
    if isinstance(column, Lists):
        inner = _signature(tensorflow, column.values)
        ragged = getattr(inner, "ragged_rank", 0)
        return tensorflow.RaggedTensorSpec([None, *inner.shape], inner.dtype, ragged_rank=ragged + 1, row_splits_dtype=tensorflow.int64)
    return tensorflow.TensorSpec([None, *column.shape[1:]], tensorflow.as_dtype(column.dtype))


def _tensor(tensorflow: Any, column: Any) -> Any:
    if isinstance(column, (Texts, Parts)):
        return tensorflow.constant(column.tolist(), tensorflow.string, shape=[len(column)])
    if isinstance(column, Lists):
        start, end = int(column.offsets[0]), int(column.offsets[-1])
        splits = (column.offsets - column.offsets[0]).astype("int64")
        items = column.values.part(start, end) if isinstance(column.values, (Lists, Texts, Parts)) else column.values[start:end]
        return tensorflow.RaggedTensor.from_row_splits(_tensor(tensorflow, items), splits)
    return tensorflow.convert_to_tensor(column)
