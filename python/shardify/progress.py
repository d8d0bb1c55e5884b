"""Progress of a command: `shardify.convert("raw", out="shards", progress=True)`, or a function that gets a `Progress` about once a second.

    def show(now: shardify.Progress) -> None:
        print(f"{now.phase}: {now.done} of {now.total} {now.unit}")

    shardify.convert("raw", out="shards", progress=show)

With `True`, a bar: that of tqdm where it is installed, a widget in notebooks, else a line on standard error. A function that raises
ends the program, as Ctrl-C does.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a command is: `done` of `total` bytes or tasks of a phase, `None` if the total is unknown."""

    phase: str
    done: int
    total: int | None
    unit: str = "bytes"
    records: int = 0
    shards: int = 0


Callback = Callable[[Progress], Any]
Wanted = bool | Callback | None


def of_line(line: str) -> Progress | None:
    """The progress in a line that the program writes once a second with `--json --progress always`; `None` if it is something else."""
    if not line.startswith('{"type":"progress"'):
        return None
    now = json.loads(line)
    return Progress(now["phase"], now["bytes"], now["bytes_total"], records=now["records"], shards=now["shards"])


class Watch:
    """Calls what the caller has given, and closes the bar at the end."""

    def __init__(self, wanted: Wanted) -> None:
        self._bar = _Bar() if wanted is True else None
        self._callback: Callback | None = self._bar.show if self._bar else wanted if callable(wanted) else None

    def __bool__(self) -> bool:
        return self._callback is not None

    def __call__(self, now: Progress) -> None:
        if self._callback is not None:
            self._callback(now)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


class _Bar:
    """A bar for each phase."""

    def __init__(self) -> None:
        self._phase, self._width = "", 0
        self._bar: Any = None
        try:
            from tqdm.auto import tqdm
        except ImportError:
            tqdm = None
        self._tqdm: Any = tqdm

    def show(self, now: Progress) -> None:
        if self._tqdm is None:
            text = f"{now.phase}: {_text(now)}"
            # Blanks cover what is left of a longer line.
            print(f"\r{text:{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(text)
            return
        if self._bar is None or now.phase != self._phase:
            self.close()
            scale = {"unit": "B", "unit_scale": True, "unit_divisor": 1024} if now.unit == "bytes" else {"unit": now.unit}
            self._bar, self._phase = self._tqdm(desc=now.phase, total=now.total, **scale), now.phase
        self._bar.total = now.total
        if now.unit == "bytes":
            self._bar.set_postfix_str(f"{now.records:,} records, {now.shards:,} shards", refresh=False)
        self._bar.update(now.done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self._width:
            print(file=sys.stderr, flush=True)
            self._width = 0


def _text(now: Progress) -> str:
    share = f"{100 * now.done / now.total:.0f} %, " if now.total else ""
    done = f"{now.done} of {now.total} tasks" if now.unit == "tasks" else f"{now.done / (1 << 20):,.0f} MiB"
    return f"{share}{done}, {now.records:,} records, {now.shards:,} shards" if now.unit == "bytes" else f"{share}{done}"
