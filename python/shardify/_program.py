"""Finds the program and runs it.

Each call is one process with `--json`: it prints one object per line, the last one of type `summary` or `error`. The process has a
session of its own, so that Ctrl-C reaches it through this module alone, and
on Linux the kernel kills it when its parent dies, which a dataset survives.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Union

from ._hints import in_python
from .errors import ShardifyWarning, of_code
from .progress import Callback, of_line

if TYPE_CHECKING:
    from ._streams import Stream

# Standard input of the program: nothing, a text, or tables.
Given = Union[str, "Stream", None]

# What the program may take to end after SIGINT, in seconds; it deletes what it has not committed.
PATIENCE = 30
# The same of a program that waits for its standard input.
PATIENCE_FOR_READING = 1
# Exit codes that are answers: done, no, records were rejected, checked in part.
ANSWERS = (0, 1, 3, 7)
# The end of standard error that is kept for messages, in characters.
KEPT = 64 << 10

# Where pip puts programs. Looked up once, at import: the first calls of sysconfig must not be made by several threads at once.
_SCRIPTS = [
    sysconfig.get_path("scripts"),
    str(Path(sys.executable).parent),
    sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")),
]

_PR_SET_PDEATHSIG = 1
_PACKAGE = os.path.dirname(__file__)


def find() -> str:
    """The path of the program: `$SHARDIFY_BINARY`, that of the installed wheel, or the one in `$PATH`."""
    name = "shardify.exe" if os.name == "nt" else "shardify"
    given = os.environ.get("SHARDIFY_BINARY")
    for path in [given, *(os.path.join(folder, name) for folder in _SCRIPTS)]:
        if path and os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError("expected the program shardify in $SHARDIFY_BINARY, beside Python or in $PATH, found none")
    return found


def _dies_with_parent() -> Callable[[], None] | None:
    """What the child does before it becomes the program, so that the kernel ends it with its parent."""
    if not sys.platform.startswith("linux"):
        return None
    # Looked up here: between fork and exec nothing may be imported or allocated.
    prctl, parent, kill = ctypes.CDLL(None, use_errno=True).prctl, os.getpid(), signal.SIGKILL

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, kill, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def run(
    arguments: Sequence[str],
    on_object: Callable[[dict[str, Any]], None] | None = None,
    progress: Callback | None = None,
    given: Given = None,
) -> list[dict[str, Any]]:
    """Runs a command, with `given` as its standard input; returns the objects that it printed, or passes them to `on_object`.

    They are passed as they come, and how far the command is to `progress`. Once the program has ended, its notes become warnings, and the
    exception of its exit code, what `progress` or the producer of a table raised, or `KeyboardInterrupt` after Ctrl-C is raised.
    """
    stream = None if given is None or isinstance(given, str) else given
    process = _start([find(), "--json", "--progress", "always" if progress else "never", *arguments], given)
    objects: list[dict[str, Any]] = []
    with process:
        assert process.stdout is not None and process.stderr is not None
        errors = _Errors(process, process.stderr, progress)
        reader = threading.Thread(target=errors.read, daemon=True)
        reader.start()
        if isinstance(given, str):
            threading.Thread(target=_give, args=(process, given), daemon=True).start()
        try:
            if stream is not None:
                stream.start()
            for one in _objects(process.stdout):
                if on_object is None:
                    objects.append(one)
                else:
                    on_object(one)
            code = process.wait()
        except BaseException:
            _end(process, stream)
            raise
        finally:
            reader.join()
            if stream is not None:
                stream.stop()
    for note in (*errors.notes, *(stream.notes if stream is not None else ())):
        # Shown at the line of the caller, which is outside of the package.
        warnings.warn(in_python(note), ShardifyWarning, stacklevel=_caller())
    if errors.raised is not None:
        raise errors.raised
    if code not in ANSWERS:
        if stream is not None and stream.raised is not None:
            # The program's error only says that the stream was cut.
            raise stream.raised
        raise of_code(code, errors.failure, "".join(errors.said))
    return objects


def _start(command: list[str], given: Given) -> subprocess.Popen[str]:
    """Starts the program. The pipe to it is that of the stream, if there is one."""
    stream = None if given is None or isinstance(given, str) else given
    read = None if stream is None else stream.open()
    stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
    try:
        return subprocess.Popen(
            command,
            stdin=stdin if read is None else read,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            preexec_fn=_dies_with_parent(),
        )
    except BaseException:
        if stream is not None:
            stream.stop()
        raise
    finally:
        if read is not None:
            os.close(read)


def _caller() -> int:
    """How many calls above the function that asks the first one outside of the package is, as `warnings.warn` counts them."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level


def _give(process: subprocess.Popen[str], text: str) -> None:
    """Writes the standard input of a program, which may end before it has read all."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ValueError), process.stdin as stream:
        stream.write(text)


def _objects(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        if line.startswith("{"):
            yield json.loads(line)


class _Errors:
    """Standard error of the program: keeps its notes, and its end for messages, and passes progress on."""

    def __init__(self, process: subprocess.Popen[str], stream: IO[str], progress: Callback | None) -> None:
        self._process, self._stream, self._progress = process, stream, progress
        self._kept = 0
        self.said: list[str] = []
        self.notes: list[str] = []
        self.failure: dict[str, Any] | None = None
        self.raised: BaseException | None = None

    def read(self) -> None:
        for line in self._stream:
            now = of_line(line) if self._progress else None
            event = _event_of(line) if now is None else None
            if event is not None and event["type"] == "error":
                self.failure = event
            elif event is not None:
                self.notes.append(event["message"])
            elif now is None:
                self._keep(line)
            elif self.raised is None and self._progress is not None:
                try:
                    self._progress(now)
                except BaseException as error:
                    # The caller's thread raises it once the program has ended.
                    self.raised = error
                    self._process.send_signal(signal.SIGINT)

    def _keep(self, line: str) -> None:
        self.said.append(line)
        self._kept += len(line)
        while self._kept > KEPT and len(self.said) > 1:
            self._kept -= len(self.said.pop(0))


def _event_of(line: str) -> dict[str, Any] | None:
    """The note, the warning or the error in a line of the program; `None` if it is something else."""
    if not line.startswith(('{"type":"note"', '{"type":"warning"', '{"type":"error"')):
        return None
    event: dict[str, Any] = json.loads(line)
    return event


def _end(process: subprocess.Popen[str], stream: Stream | None) -> None:
    """Asks the program to end as Ctrl-C does, and kills it if it takes too long."""
    if process.poll() is not None:
        return
    # A program that waits for the rest of a stream has written nothing, and may not see the signal before the rest is there.
    is_reading = stream is not None and stream.cease()
    process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=PATIENCE_FOR_READING if is_reading else PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
