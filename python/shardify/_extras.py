"""Packages of others that a reader needs. The error about a missing one says what to install."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .errors import MissingPackageError


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """For imports that need an extra of the package: `with needs("pandas"): import pandas`."""
    try:
        yield
    except ImportError as error:
        hint = f"pip install 'shardify[{extra}]'"
        raise MissingPackageError(f"expected the packages of the extra {extra}: {error}", hints=[hint]) from error
