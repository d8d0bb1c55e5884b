"""Tables of other packages as a source of `convert`: objects with `__arrow_c_stream__`, written to the program's standard input.

A thread asks the object for batches and writes them as an Arrow stream, once the program reads: a program that has nothing to do, or
refuses an option, never starts a query. Only a stream that is whole gets the mark that ends one, so the program commits nothing of a
producer that failed, and the caller gets the producer's own exception.

pyarrow is needed for objects alone, and imported when there are some.
"""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import io
import os
import select
import struct
import termios
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ._extras import needs
from ._sources import ArrowStream, is_table, no_table
from .errors import UsageError

if TYPE_CHECKING:
    import pyarrow


# Bytes of a batch that is written as it is; larger ones are written in pieces, since the program holds whole batches.
BATCH_BYTES = 8 << 20
# The first bytes of every Arrow stream. The program has read them when it reads its standard input.
START = b"\xff\xff\xff\xff"
# Bytes that a pipe may hold, where that can be set.
PIPE_BYTES = 1 << 20
# How long between two looks whether the program reads, in milliseconds.
LOOK_EVERY = 2
# What a producer may take for its last batch once nobody reads any more, in seconds.
PATIENCE = 30

# Ends of pipes to programs. Processes forked meanwhile must not have them: the program would wait for those to close them, too.
_open_pipes: set[int] = set()


def _close_pipes() -> None:
    for pipe in list(_open_pipes):
        with contextlib.suppress(OSError):
            os.close(pipe)
    _open_pipes.clear()


os.register_at_fork(after_in_child=_close_pipes)


class _NobodyReads(Exception):
    """The program has ended, or is about to: there is nothing to write to."""


class Stream:
    """Objects of one schema, which a thread writes to a pipe."""

    def __init__(self, tables: Iterable[ArrowStream]) -> None:
        with needs("pyarrow"):
            import pyarrow  # noqa: F401
        self._tables: Iterable[ArrowStream] = tables
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        # What a producer raised, for the caller's thread.
        self.raised: BaseException | None = None

    def start(self, pipe: int) -> None:
        """Begins to write; `pipe` is closed when all is written, or nothing more can be."""
        _open_pipes.add(pipe)
        # Producers may depend on the context of their caller, such as that of decimals.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._write, pipe), name="shardify-stream", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Waits for the end of writing; no further batch is asked for, and a producer that does not answer is left behind."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def _write(self, pipe: int) -> None:
        sink = _Pipe(pipe, self._stopped)
        try:
            if sink.is_wanted():
                self._write_tables(sink)
        except BaseException as error:
            if not sink.is_broken:
                self.raised = error
        finally:
            sink.close()
            self._tables = ()
            _open_pipes.discard(pipe)
            os.close(pipe)

    def _write_tables(self, sink: _Pipe) -> None:
        import pyarrow.ipc

        writer: Any = None
        first: Any = None
        for number, table in enumerate(self._tables, 1):
            if not is_table(table):
                raise no_table(table)
            with _batches_of(table) as batches:
                schema = _plain_schema(batches.schema)
                if writer is None:
                    first, writer = schema, pyarrow.ipc.new_stream(pyarrow.PythonFile(sink, mode="w"), schema)
                elif not schema.equals(first):
                    raise UsageError(f"expected objects of one schema, found another in object {number}: {_difference(first, schema)}")
                for batch in batches:
                    for piece in _pieces(batch):
                        writer.write_batch(_plain_batch(piece, first))
        if writer is None:
            raise UsageError("expected objects, found none", hints=["a table without rows is an object, too"])
        # The mark that ends the stream: all producers have ended well.
        writer.close()
        sink.flush()


class _Pipe:
    """The program's standard input, as pyarrow writes to a file. The first bytes of a stream are written to see whether they are read, and
    not again."""

    # Whoever has the pipe closes it.
    closed = False

    def __init__(self, pipe: int, stopped: threading.Event) -> None:
        self._pipe, self._stopped = pipe, stopped
        self._written = 0
        self._gathered = bytearray()
        self.is_broken = False
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def is_wanted(self) -> bool:
        """Waits until the program has read the first bytes; false if it ends without."""
        self._send(START)
        look = select.poll()
        # Without an event, only the end of the reader is reported.
        look.register(self._pipe, 0)
        while not self._stopped.is_set() and not look.poll(LOOK_EVERY):
            if not struct.unpack("i", fcntl.ioctl(self._pipe, termios.FIONREAD, bytes(4)))[0]:
                return True
        return False

    def close(self) -> None:
        """Nothing is written from here on: the pipe may be another file by now."""
        self.is_broken = True
        self._gathered = bytearray()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        known = view[: max(len(START) - self._written, 0)]
        self._written += len(view)
        self._gathered += view[len(known) :] if len(view) < io.DEFAULT_BUFFER_SIZE else b""
        if len(view) >= io.DEFAULT_BUFFER_SIZE:
            self.flush()
            self._send(view[len(known) :])
        elif len(self._gathered) >= PIPE_BYTES // 16:
            self.flush()
        return len(view)

    def flush(self) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        self._send(gathered)

    def _send(self, data: Any) -> None:
        """Writes all bytes. Other threads run meanwhile: a system call holds no lock of Python."""
        view = memoryview(data)
        while len(view) > 0:
            if self._stopped.is_set() or self.is_broken:
                self.is_broken = True
                raise _NobodyReads
            try:
                view = view[os.write(self._pipe, view) :]
            except BrokenPipeError:
                self.is_broken = True
                raise _NobodyReads from None


@contextlib.contextmanager
def _batches_of(table: Any) -> Iterator[Any]:
    """A reader of a table's batches. One of pyarrow raises what its producer raised; the interface in C knows only messages."""
    import pyarrow

    if isinstance(table, pyarrow.RecordBatchReader):
        yield table
    elif isinstance(table, pyarrow.Table):
        yield table.to_reader()
    else:
        with pyarrow.RecordBatchReader.from_stream(table) as reader:
            yield reader


def _pieces(batch: Any) -> Iterator[Any]:
    """A batch in pieces of about `BATCH_BYTES`."""
    if batch.num_rows <= 1 or batch.nbytes <= BATCH_BYTES:
        if batch.num_rows > 0:
            yield batch
        return
    rows = max(batch.num_rows * BATCH_BYTES // batch.nbytes, 1)
    if rows >= batch.num_rows:
        rows = (batch.num_rows + 1) // 2
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        yield from [piece] if piece.nbytes <= 2 * BATCH_BYTES else _pieces(piece)


def _plain_schema(schema: pyarrow.Schema) -> Any:
    """A schema without views and run ends, all of whose columns may have nulls.

    The buffers of views hold the values of all rows, so each piece of a batch would be written with all of them.
    """
    import pyarrow

    return pyarrow.schema([_plain_field(field) for field in schema])


def _plain_field(field: Any) -> Any:
    plain = field.with_nullable(True)
    kind = field.type
    if hasattr(kind, "extension_name"):
        storage = _plain_type(kind.storage_type)
        if storage.equals(kind.storage_type):
            return plain
        marks = {b"ARROW:extension:name": kind.extension_name.encode(), b"ARROW:extension:metadata": kind.__arrow_ext_serialize__()}
        return plain.with_type(storage).with_metadata({**(field.metadata or {}), **marks})
    return plain.with_type(_plain_type(kind))


def _plain_type(kind: Any) -> Any:
    import pyarrow
    import pyarrow.types as types

    if types.is_string_view(kind):
        return pyarrow.string()
    if types.is_binary_view(kind):
        return pyarrow.binary()
    if types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type)
    if types.is_list(kind) or types.is_list_view(kind):
        return pyarrow.list_(_plain_field(kind.value_field))
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pyarrow.large_list(_plain_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(_plain_field(kind.value_field), kind.list_size)
    if types.is_struct(kind):
        return pyarrow.struct([_plain_field(kind.field(at)) for at in range(kind.num_fields)])
    if types.is_map(kind):
        key = _plain_field(kind.key_field).with_nullable(False)
        return pyarrow.map_(key, _plain_field(kind.item_field), keys_sorted=kind.keys_sorted)
    if types.is_dictionary(kind):
        return pyarrow.dictionary(kind.index_type, _plain_type(kind.value_type), kind.ordered)
    return kind


def _plain_batch(batch: Any, schema: Any) -> Any:
    """A batch in the types of a plain schema."""
    import pyarrow

    columns = [_plain_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _plain_column(column: Any, kind: Any) -> Any:
    import pyarrow.compute

    if column.type.equals(kind):
        return column
    if hasattr(column.type, "extension_name") and not hasattr(kind, "extension_name"):
        column = column.storage
    if pyarrow.types.is_run_end_encoded(column.type):
        column = pyarrow.compute.run_end_decode(column)
    return column if column.type.equals(kind) else column.cast(kind)


def _difference(one: Any, other: Any) -> str:
    """What two schemas do not have in common."""
    if one.names != other.names:
        return f"columns {', '.join(other.names)} in place of {', '.join(one.names)}"
    field = next((field for field in one if not field.equals(other.field(field.name))), one[0])
    return f"column `{field.name}` is {other.field(field.name).type} in place of {field.type}"
