"""Sources of a conversion: paths, or tables of other packages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from ._options import Path
from .errors import UsageError


@runtime_checkable
class ArrowStream(Protocol):
    """A table or a reader of one: of pyarrow, Polars, DuckDB, pandas, ADBC and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


# A file, or a table of another package, or several of one of the two.
Source = Path | ArrowStream | Iterable[Path] | Iterable[ArrowStream]


def sort_sources(sources: Sequence[Source], name: str | None) -> tuple[list[Path], Iterable[ArrowStream] | None]:
    """The sources as paths, or as one series of objects. A generator of objects, which have a name, is not asked for any yet."""
    if len(sources) == 1 and isinstance(sources[0], Iterator) and not is_table(sources[0]):
        if name is not None:
            return [], cast("Iterable[ArrowStream]", sources[0])
        sources = [cast("list[Path]", list(sources[0]))]
    flat: list[object] = []
    for source in sources:
        flat += source if isinstance(source, (list, tuple)) else [source]
    if sources and not flat:
        raise UsageError("expected paths or objects, found an empty list")
    tables = [one for one in flat if is_table(one)]
    paths = [one for one in flat if isinstance(one, (str, os.PathLike))]
    if tables and paths:
        raise UsageError(
            f"expected paths or objects, found both: {os.fspath(paths[0])!r} and {_kind(tables[0])}",
            hints=["convert them one after the other, into the same dataset"],
        )
    for one in flat:
        if not is_table(one) and not isinstance(one, (str, os.PathLike)):
            raise no_table(one)
    return cast("list[Path]", paths), cast("list[ArrowStream]", tables) if tables else None


def stream_options(name: str | None, etag: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options of `convert` for objects: their format, and what they are called."""
    if not name:
        raise UsageError(
            "expected a name for the objects, found none",
            hints=['name="visits" makes visits#1 the origin of the first row; a later call with this name finds what has changed'],
        )
    if options.get("from_") not in (None, "arrow"):
        raise UsageError(f"expected paths with from_={options['from_']!r}, found objects: those are read as Arrow data")
    read = dict(options.get("read") or {})
    for key in ("name", "etag", "end"):
        if key in read:
            hint = "an object's stream ends with its mark" if key == "end" else f"`{key}` is an argument of its own"
            raise UsageError(f"expected no `{key}` in `read` with objects, found {read[key]!r}", hints=[hint])
    read["name"] = name
    if etag is not None:
        read["etag"] = etag
    return {**options, "from_": "arrow", "read": read}


def is_table(source: object) -> bool:
    return hasattr(source, "__arrow_c_stream__")


def _kind(source: object) -> str:
    return f"{type(source).__module__.split('.')[0]}.{type(source).__qualname__}"


def no_table(source: object) -> UsageError:
    hints = {
        "LazyFrame": "collect it first: frame.collect()",
        "Dataset": 'a dataset of Hugging Face gives its tables by dataset.with_format("arrow").iter(batch_size=1000)',
        "IterableDataset": 'a dataset of Hugging Face gives its tables by dataset.with_format("arrow").iter(batch_size=1000)',
    }
    known = "paths, or tables and readers of pyarrow, Polars, DuckDB, pandas and others that have __arrow_c_stream__"
    hint = hints.get(type(source).__name__, known)
    return UsageError(f"expected a path, or an object with __arrow_c_stream__, found {_kind(source)}", hints=[hint])
