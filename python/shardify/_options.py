"""Values of options: their types, and how they become words of a command line.

A person writes `target_shard="128MiB"`, `on_error="quarantine"`, `index=["wids", "energon"]`, `split={"train": 0.9, "val": 0.1}`,
`read={"header": False}`, `at=12` or `since=timedelta(days=7)`; the program reads `--target-shard=128MiB` and so on.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from . import _definitions

Path = str | os.PathLike[str]
# A version (12, "v12"), a tag, a date, an instant, or a duration before now ("7d").
When = int | str | datetime.date | datetime.timedelta
Duration = str | datetime.timedelta


def words(options: Mapping[str, Any]) -> list[str]:
    """Options as words of a command line. A value is a part of its word, so that none is taken for an option."""
    made: list[str] = []
    for name, value in options.items():
        option = name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            made.append(f"--{option}")
        elif is_list(value):
            made += [f"--{option}={one}" for one in _listed(option, value)]
        else:
            made.append(f"--{option}={text(option, value)}")
    return made


def is_list(value: object) -> bool:
    """Whether a value is several values: a list, a dictionary or another iterable, but no text or path."""
    return isinstance(value, Iterable) and not isinstance(value, (str, os.PathLike))


def text(option: str, value: Any) -> str:
    """One value as the program reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and option in _definitions.VERSIONS:
        return f"v{value}"
    if isinstance(value, float):
        # Never with an exponent.
        return format(Decimal(repr(value)), "f")
    if isinstance(value, datetime.datetime):
        # A time without a zone is one of this machine.
        return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, datetime.timedelta):
        return f"{round(value.total_seconds())}s"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _listed(option: str, value: Any) -> list[str]:
    """Several values: those of options that take a list are joined, those of others are repeated."""
    if isinstance(value, Mapping):
        values = [f"{_key(option, key)}={_setting(_key(option, key), one)}" for key, one in value.items()]
    else:
        values = [text(option, one) for one in value]
    return [",".join(values)] if values and option in _definitions.JOINED else values


def _key(option: str, key: str) -> str:
    """The name of a setting as the program knows it; keys of other options are names of columns and splits."""
    return key.replace("_", "-") if option in _definitions.SETTINGS else key


def _setting(key: str, value: Any) -> str:
    """The value of a key, such as those of `read={"header": False, "patch": {"lat": 64, "lon": 64}, "var": ["t", "u"]}`."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={one}" for name, one in value.items())
    return ",".join(text(key, one) for one in value) if is_list(value) else text(key, value)
