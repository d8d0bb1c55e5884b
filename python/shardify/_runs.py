"""Records what a loader delivers as a training run of its dataset: by the program, or in a file where the dataset may only be read.

A run has no list of records. Its events say from which turn of which epoch to which one it came, and the order is a function.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import secrets
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _program
from ._options import Path
from .errors import ShardifyError, ShardifyWarning, UsageError

if TYPE_CHECKING:
    from .loader import Loader

# Events that wait for a program that cannot write them, at most: enough to say how far the run has come.
WAITING = 64
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


class RunRecorder:
    """A training run that is being recorded; `loader.record(...)` makes it.

    As a context manager, it ends the run: `with loader.record("run-7"): ...`
    """

    def __init__(self, loader: Loader, name: str, *, report_every: int, to: Path | None, role: str) -> None:
        if not NAME.fullmatch(name):
            raise UsageError(
                f"expected the name of a training run, found {name!r}",
                hints=["names begin with a letter or digit and consist of letters, digits and . _ - +"],
            )
        if report_every < 1:
            raise UsageError(f"`report_every` is {report_every}; expected 1 step or more")
        if role not in ("train", "validate"):
            raise UsageError(f'`role` is {role!r}; expected "train" or "validate"')
        self.name, self.attempt = name, secrets.token_hex(16)
        self._loader, self._report_every, self._role = loader, report_every, role
        self._to = None if to is None else os.path.abspath(to)
        self._process = os.getpid()
        self._has_begun = self._has_ended = False
        self._reported = 0
        self._waiting: list[str] = []

    def __enter__(self) -> RunRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end(None if kind is None else kind.__name__)

    def __repr__(self) -> str:
        return f"<shardify.loader.RunRecorder of {self.name}, attempt {self.attempt}>"

    @property
    def is_writer(self) -> bool:
        """Whether this is the rank that writes: rank 0."""
        return self._loader.rank == 0

    def begin(self) -> None:
        """Writes the start of the run, or that it goes on from the state of the loader. The first iteration does it.

        Raises UsageError: if another run of other data has this name.
        """
        if self._process != os.getpid():
            raise UsageError(
                "expected a recorded loader in the process that recorded it, found a worker",
                hints=["use `num_workers=0`: the threads of the loader read in parallel without it"],
            )
        if self._has_begun:
            return
        if self.is_writer:
            self._write_first()
        self._has_begun = True

    def _write_first(self) -> None:
        state = self._loader.state_dict()
        self._reported = state["step"]
        if self._is_known(state):
            event = {"kind": "resume", **self._place(state), "global_batch_size": state["global_batch_size"]}
        else:
            event = {
                "kind": "start",
                "name": self.name,
                "id": secrets.token_hex(16),
                **{key: state[key] for key in ("version", "basis", "records", "order", "global_batch_size", "drop_last", "epoch", "turn")},
                **{key: state[key] for key in ("root", "split") if state.get(key) is not None},
                "report_every": self._report_every,
                "role": self._role,
                **self._replay(),
            }
        self._write([self._line(event)])

    def _replay(self) -> dict[str, Any]:
        """What a replay repeats and leaves out."""
        of, numbers = self._loader.replays, self._loader._settings["without"]
        more: dict[str, Any] = {} if of is None else {"replay_of": {key: of[key] for key in ("run", "id", "step")}}
        return more if numbers is None else {**more, "without": numbers}

    def _is_known(self, state: dict[str, Any]) -> bool:
        """Whether the run has begun, so that this is another attempt."""
        if self._to is not None:
            return os.path.exists(self._to) and os.path.getsize(self._to) > 0
        known = _program.run(["runs", "--", os.fspath(self._loader.dataset.location)])
        mine = next((one for one in known if one.get("type") == "run" and one["run"] == self.name), None)
        if mine is not None and state["step"] == 0 and mine["steps"] > 0:
            raise UsageError(
                f"the training run {self.name} has begun before, and this loader begins anew",
                hints=["load the state of a checkpoint first: `loader.load_state_dict(state)`", "or choose another name"],
            )
        return mine is not None

    def delivered(self) -> None:
        """Notes that the loader has delivered a batch."""
        is_recorded = self._has_begun and self.is_writer and not self._has_ended
        if is_recorded and self._loader.steps - self._reported >= self._report_every:
            self._report({"kind": "progress"})

    def checkpoint(self, name: Path, digest: str | None = None) -> None:
        """Records that a checkpoint of the weights was written, after the batches that were delivered.

        name: where it is, such as a path or URL; it is stored as it is
        digest: a hash of it, stored as it is
        """
        more = {} if digest is None else {"digest": digest}
        self._report({"kind": "checkpoint", "name": os.fspath(name), **more})

    def end(self, reason: str | None = None) -> None:
        """Records that the run has ended. A later attempt may resume it."""
        if not self._has_ended:
            self._report({"kind": "end", **({} if reason is None else {"reason": reason})})
        self._has_ended = True

    def _report(self, event: dict[str, Any]) -> None:
        """Writes an event; if that fails, a warning says so, and the next event tries it again."""
        if not self._has_begun:
            self.begin()
        if not self.is_writer or self._has_ended:
            return
        state = self._loader.state_dict()
        self._reported = state["step"]
        self._waiting = [*self._waiting[-WAITING:], self._line({**event, **self._place(state)})]
        try:
            self._write(self._waiting)
            self._waiting = []
        except (ShardifyError, OSError) as error:
            warnings.warn(f"the training run {self.name} is not recorded at step {state['step']}: {error}", ShardifyWarning, stacklevel=3)

    @staticmethod
    def _place(state: dict[str, Any]) -> dict[str, Any]:
        return {key: state[key] for key in ("step", "epoch", "turn")}

    def _line(self, event: dict[str, Any]) -> str:
        from . import __version__

        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        common = {"run": self.name, "format": 1, "attempt": self.attempt, "at": now, "tool": f"shardify {__version__}"}
        return json.dumps({**common, **event})

    def _write(self, lines: list[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        if self._to is None:
            _program.run(["runs", "--add", "-", "--", os.fspath(self._loader.dataset.location)], given=text)
            return
        with open(self._to, "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
