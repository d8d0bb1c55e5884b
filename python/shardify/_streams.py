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
from typing import Any

from ._extras import needs
from ._plain import plain_pieces, plain_schema
from ._sources import ArrowStream, is_table, no_table
from .errors import UsageError

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


def _close_pipe(pipe: int) -> None:
    _open_pipes.discard(pipe)
    with contextlib.suppress(OSError):
        os.close(pipe)


def _close_pipes() -> None:
    for pipe in list(_open_pipes):
        _close_pipe(pipe)


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
        self._pipe = -1
        self._stopped = threading.Event()
        # What a producer raised, and what to know of it, for the caller's thread.
        self.raised: BaseException | None = None
        self.notes: list[str] = []

    def open(self) -> int:
        """Makes the pipe; returns the end for the program, which the caller closes."""
        read, self._pipe = os.pipe()
        _open_pipes.add(self._pipe)
        return read

    def start(self) -> None:
        """Begins to write."""
        # Producers may depend on the context of their caller, such as that of decimals.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._write, self._pipe), name="shardify-stream", daemon=True)
        self._thread.start()

    def cease(self) -> bool:
        """Asks for no further batch; returns whether the program still waits for one."""
        self._stopped.set()
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """Waits for the end of writing; no further batch is asked for, and a producer that does not answer is left behind."""
        self._stopped.set()
        if self._thread is None:
            _close_pipe(self._pipe)
        else:
            self._thread.join(PATIENCE)

    def _write(self, pipe: int) -> None:
        sink = _Pipe(pipe, self._stopped)
        try:
            if sink.is_wanted():
                self._write_tables(sink)
        except BaseException as error:
            # What a producer raises once nobody reads is of no interest.
            if not sink.is_broken and not self._stopped.is_set():
                self.raised = error
        finally:
            sink.close()
            self._tables = ()
            _close_pipe(pipe)

    def _write_tables(self, sink: _Pipe) -> None:
        import pyarrow.ipc

        writer: Any = None
        first: Any = None
        for number, table in enumerate(self._tables, 1):
            if not is_table(table):
                raise no_table(table)
            self.notes += _left_out(table)
            with _batches_of(table) as batches:
                schema = plain_schema(batches.schema)
                if writer is None:
                    first, writer = schema, pyarrow.ipc.new_stream(pyarrow.PythonFile(sink, mode="w"), schema)
                elif not schema.equals(first):
                    raise UsageError(f"expected objects of one schema, found another in object {number}: {_difference(first, schema)}")
                for batch in batches:
                    for piece in plain_pieces(batch, first):
                        writer.write_batch(piece)
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


def _left_out(table: Any) -> list[str]:
    """What a table holds that is not in its stream: pandas leaves out each index that is a range, also one that was a column of ids."""
    index: Any = getattr(table, "index", None) if type(table).__module__.split(".")[0] == "pandas" else None
    if type(index).__name__ != "RangeIndex" or index.name is None:
        return []
    return [
        f"the index `{index.name}` of the pandas frame is a range, which its stream leaves out; frame.reset_index() makes a column of it"
    ]


@contextlib.contextmanager
def _batches_of(table: Any) -> Iterator[Any]:
    """A reader of a table's batches. One of pyarrow raises what its producer raised; the interface in C knows only messages."""
    import pyarrow

    if isinstance(table, pyarrow.RecordBatchReader):
        yield table
    elif isinstance(table, pyarrow.Table):
        yield table.to_reader()
    else:
        with _imported(table) as reader:
            yield reader


def _imported(table: Any) -> Any:
    import pyarrow

    try:
        return pyarrow.RecordBatchReader.from_stream(table)
    except pyarrow.ArrowInvalid as error:
        # A series of Polars, or a chunked array, is a stream as well.
        if "non-struct" not in str(error):
            raise
        hint = 'make a table of it: frame = series.to_frame(), or pyarrow.table({"name": column})'
        raise UsageError(f"expected a table, found a column: {error}", hints=[hint]) from error


def _difference(one: Any, other: Any) -> str:
    """What two schemas do not have in common."""
    if one.names != other.names:
        return f"columns {', '.join(other.names)} in place of {', '.join(one.names)}"
    field = next((field for field in one if not field.equals(other.field(field.name))), one[0])
    return f"column `{field.name}` is {other.field(field.name).type} in place of {field.type}"
