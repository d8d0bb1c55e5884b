"""Batches of pyarrow as the program reads them: of bounded size, and without what would be written again with each of their pieces.

The buffers of views, and of the runs of a column, hold the values of all rows, whatever piece of them is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Bytes and rows of a batch that is written as it is; larger ones are written in pieces, since the program holds whole batches.
BATCH_BYTES = 8 << 20
BATCH_ROWS = 64 << 10


def plain_pieces(batch: Any, schema: Any) -> Iterator[Any]:
    """A batch in pieces of at most about `BATCH_BYTES`, in the types of a plain schema."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield from _halves(_plain_batch(batch.slice(start, BATCH_ROWS), schema))


def _halves(batch: Any) -> Iterator[Any]:
    if batch.num_rows <= 1 or sum(map(_size, batch.columns)) <= BATCH_BYTES:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halves(batch.slice(0, middle))
    yield from _halves(batch.slice(middle))


def _size(column: Any) -> int:
    """The bytes of a column's rows, without dictionaries, which all pieces share."""
    if hasattr(column.type, "value_type") and hasattr(column, "indices"):
        column = column.indices
    return 0 if _has_dictionary(column.type) else int(column.nbytes)


def _has_dictionary(kind: Any) -> bool:
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def plain_schema(schema: Any) -> Any:
    """A schema in plain types, all of whose columns may have nulls. Notes of the producer about the whole schema are not kept."""
    import pyarrow

    return pyarrow.schema([_plain_field(field).with_nullable(True) for field in schema])


def _plain_field(field: Any) -> Any:
    kind = field.type
    if not hasattr(kind, "extension_name"):
        return field.with_type(_plain_column_type(kind))
    storage = _plain_column_type(kind.storage_type)
    if storage.equals(kind.storage_type):
        return field
    marks = {b"ARROW:extension:name": kind.extension_name.encode(), b"ARROW:extension:metadata": kind.__arrow_ext_serialize__()}
    return field.with_type(storage).with_metadata({**(field.metadata or {}), **marks})


def _plain_column_type(kind: Any) -> Any:
    """The plain type of a column. What pyarrow cannot cast within other types, or casts wrongly, stays: the program reads it, too."""
    import pyarrow

    types = pyarrow.types
    if types.is_run_end_encoded(kind):
        return _plain_column_type(kind.value_type)
    if types.is_list_view(kind):
        return pyarrow.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if types.is_large_list_view(kind):
        return pyarrow.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    return _plain_type(kind)


def _plain_type(kind: Any) -> Any:
    """A type with plain texts and binaries in place of views."""
    import pyarrow

    types = pyarrow.types
    if types.is_string_view(kind):
        return pyarrow.string()
    if types.is_binary_view(kind):
        return pyarrow.binary()
    if types.is_dictionary(kind):
        return pyarrow.dictionary(kind.index_type, _plain_type(kind.value_type), kind.ordered)
    if not types.is_nested(kind) or not _has_text_views(kind):
        return kind

    def plain(field: Any) -> Any:
        return field.with_type(_plain_type(field.type))

    if types.is_list(kind):
        return pyarrow.list_(plain(kind.value_field))
    if types.is_large_list(kind):
        return pyarrow.large_list(plain(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(plain(kind.value_field), kind.list_size)
    if types.is_struct(kind):
        return pyarrow.struct([plain(kind.field(at)) for at in range(kind.num_fields)])
    if types.is_map(kind):
        return pyarrow.map_(plain(kind.key_field), plain(kind.item_field), keys_sorted=kind.keys_sorted)
    return kind


def _has_text_views(kind: Any) -> bool:
    """Whether a nested type has views of texts or binaries, and nothing that cannot be cast with them."""
    import pyarrow

    types = pyarrow.types
    within = [kind.field(at).type for at in range(kind.num_fields)]
    kept = (types.is_list_view, types.is_large_list_view, types.is_run_end_encoded, types.is_union, types.is_dictionary)
    if any(is_kept(one) for one in within for is_kept in kept) or any(hasattr(one, "extension_name") for one in within):
        return False
    return any(types.is_string_view(one) or types.is_binary_view(one) or (types.is_nested(one) and _has_text_views(one)) for one in within)


def _plain_batch(batch: Any, schema: Any) -> Any:
    """A batch in the types of a plain schema."""
    import pyarrow

    columns = [_plain_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _plain_column(column: Any, kind: Any) -> Any:
    import pyarrow.compute

    types = pyarrow.types
    if column.type.equals(kind):
        return column
    if hasattr(column.type, "extension_name") and not hasattr(kind, "extension_name"):
        column = column.storage
    if types.is_run_end_encoded(column.type):
        column = pyarrow.compute.run_end_decode(column)
    if types.is_list_view(column.type) or types.is_large_list_view(column.type):
        column = _plain_lists(column, kind)
    return column if column.type.equals(kind) else column.cast(kind)


def _plain_lists(column: Any, kind: Any) -> Any:
    """Lists of views as lists one after the other: a cast of pyarrow gives offsets that are wrong."""
    import pyarrow.compute

    compute = pyarrow.compute
    lengths = compute.fill_null(compute.list_value_length(column), 0).cast(pyarrow.int64())
    ends = compute.cumulative_sum(lengths)
    offsets = pyarrow.concat_arrays([pyarrow.array([0], pyarrow.int64()), ends])
    is_large = pyarrow.types.is_large_list(kind)
    lists = pyarrow.LargeListArray if is_large else pyarrow.ListArray
    offsets = offsets if is_large else offsets.cast(pyarrow.int32())
    items = column.flatten().cast(kind.value_type)
    return lists.from_arrays(offsets, items, type=kind, mask=compute.is_null(column))
