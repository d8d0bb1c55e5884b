"""How objects look in a terminal and in a notebook: short, whatever they hold."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

# The longest text of a value, in characters, and the most items of a list that are shown.
LONGEST, MOST = 80, 4


def line(name: str, fields: Mapping[str, object]) -> str:
    """`ConvertReport(version=1, records_in=500)`."""
    return f"{name}({', '.join(f'{field}={shown(value)}' for field, value in fields.items())})"


def table(title: str, fields: Mapping[str, object]) -> str:
    """A small table in HTML."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in ((name, value if isinstance(value, str) else shown(value)) for name, value in fields.items())
    )
    return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"


def shown(value: object) -> str:
    """A value in few characters: a long text ends in dots, a long list is its number of items."""
    if isinstance(value, Mapping) or (isinstance(value, Sequence) and not isinstance(value, (str, bytes))):
        simple = all(isinstance(one, (str, int, float)) for one in value)
        text = repr(value)
        return text if simple and len(value) <= MOST and len(text) <= LONGEST else f"<{count(len(value), 'item')}>"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...{text[-1] if isinstance(value, (str, bytes)) else ''}"


def count(number: int, what: str) -> str:
    """`1 shard`, `1,234 shards`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
